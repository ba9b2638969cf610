/* SPDX-License-Identifier: MIT */
/*
 * A user's program, to be built with ThreadSanitizer and linked with a library that is not: plain loads and stores of memory that
 * the ranks share, ordered by the library's calls alone. `tsan race NAME` leaves out what orders one of them.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spmt.h>
#include <spmt_device.h>

enum { RANKS = 3, N = 512, BIG = 40000, ROUNDS = 20 };

static const char *race = ""; /* which case is to be wrong */

#define CHECK(call)                                                                               \
	do {                                                                                      \
		int check_ = (call);                                                              \
		if (check_) {                                                                     \
			fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, check_, \
				spmt_last_error());                                               \
			return check_;                                                            \
		}                                                                                 \
	} while (0)
#define EXPECT(cond) CHECK((cond) ? 0 : -1)

static int next_of(spmt_comm *c)
{
	return (spmt_rank(c) + 1) % spmt_nranks(c);
}

static int left_of(spmt_comm *c)
{
	return (spmt_rank(c) + spmt_nranks(c) - 1) % spmt_nranks(c);
}

static void fill(uint64_t *p, size_t n, uint64_t value)
{
	for (size_t i = 0; i < n; i++)
		p[i] = value + i;
}

static int holds(const uint64_t *p, size_t n, uint64_t value)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != value + i)
			return 0;
	return 1;
}

/* ---- puts and signals ------------------------------------------------------------------------ */

/* Data to the right, its signal; the reader gives the place back. */
static int ring(spmt_comm *c, void *arg)
{
	int right = next_of(c), left = left_of(c), me = spmt_rank(c);
	uint64_t *dst, *src, *sig, seen;

	(void)arg;
	CHECK(spmt_malloc(c, N * 8, (void **)&dst));
	CHECK(spmt_malloc(c, N * 8, (void **)&src));
	CHECK(spmt_calloc(c, 2, 8, (void **)&sig));
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		fill(src, N, 1000 * i + (uint64_t)me);
		if (i > 1)
			CHECK(spmt_signal_wait(c, sig + 1, SPMT_CMP_GE, i - 1, NULL));
		if (i % 4 == 0) {
			CHECK(spmt_put(c, dst, src, N * 8, right));
			CHECK(spmt_fence(c));
			CHECK(spmt_signal(c, sig, 1, SPMT_SIGNAL_ADD, right));
		} else if (i % 4 == 1) {
			CHECK(spmt_put_signal(c, dst, src, N * 8, sig, i, SPMT_SIGNAL_SET, right));
		} else if (i % 4 == 2) {
			memcpy(spmt_ptr(c, dst, right), src, N * 8);
			CHECK(spmt_put(c, sig, &i, 8, right));
		} else {
			CHECK(spmt_put_nbi(c, dst, src, N * 8, right));
			CHECK(spmt_quiet(c));
			CHECK(spmt_atomic(
				c, SPMT_AMO_INC, SPMT_TYPE_U64, sig, NULL, NULL, NULL, right));
		}
		if (strcmp(race, "ring") != 0)
			CHECK(spmt_wait_until(c, SPMT_TYPE_U64, sig, SPMT_CMP_GE, &i));
		EXPECT(holds(dst, N, 1000 * i + (uint64_t)left) || *race);
		CHECK(spmt_signal(c, sig + 1, i, SPMT_SIGNAL_SET, left));
	}
	CHECK(spmt_barrier(c));
	CHECK(spmt_signal_fetch(c, sig, &seen));
	return spmt_free(c, dst);
}

/* By the copy engines, whose streams the ranks share. */
static int copies(spmt_comm *c, void *arg)
{
	int right = next_of(c), left = left_of(c), me = spmt_rank(c);
	uint64_t *dst, *src, *own = malloc(BIG * 8);

	(void)arg;
	EXPECT(own);
	CHECK(spmt_malloc(c, BIG * 8, (void **)&dst));
	CHECK(spmt_malloc(c, BIG * 8, (void **)&src));
	for (uint64_t i = 1; i <= ROUNDS / 2; i++) {
		fill(src, BIG, i * 10 + (uint64_t)me);
		CHECK(spmt_put_nbi(c, dst, src, BIG * 8, right));
		CHECK(spmt_barrier(c));
		EXPECT(holds(dst, BIG, i * 10 + (uint64_t)left));
		CHECK(spmt_get_nbi(c, own, src, BIG * 8, right));
		CHECK(spmt_quiet(c));
		EXPECT(holds(own, BIG, i * 10 + (uint64_t)right));
		CHECK(spmt_barrier(c));
	}
	free(own);
	return 0;
}

/* A flag of each width that a put sets, asked for in all ways. */
static int flags(spmt_comm *c, void *arg)
{
	static const enum spmt_type types[] = { SPMT_TYPE_U8, SPMT_TYPE_U16, SPMT_TYPE_U32,
		SPMT_TYPE_U64 };
	int right = next_of(c), left = left_of(c), me = spmt_rank(c), yes;
	uint64_t *data, *flag, one = 1;
	size_t index;

	(void)arg;
	CHECK(spmt_calloc(c, 4 * N, 8, (void **)&data));
	CHECK(spmt_calloc(c, 4, 8, (void **)&flag));
	for (int i = 0; i < 4; i++) {
		uint64_t *mine = data + i * N;

		fill(spmt_ptr(c, mine, right), N, (uint64_t)(10 * me + i));
		CHECK(spmt_put(c, flag + i, &one, (size_t)1 << i, right));
		for (yes = 0; i == 0 && !yes; sched_yield())
			CHECK(spmt_test(c, types[i], flag + i, SPMT_CMP_EQ, &one, &yes));
		if (i == 1)
			CHECK(spmt_wait_until_any(
				c, types[i], flag + i, 1, NULL, SPMT_CMP_EQ, &one, &index));
		if (i == 2)
			CHECK(spmt_wait_until_all(
				c, types[i], flag + i, 1, NULL, SPMT_CMP_EQ, &one));
		for (uint64_t got = 0; i == 3 && got != 1; sched_yield())
			CHECK(spmt_get(c, &got, flag + i, 8, me));
		EXPECT(holds(mine, N, (uint64_t)(10 * left + i)));
	}
	return spmt_barrier(c);
}

/* Words of rank 0's are a lock for plain data of rank 0's. */
static int lock(spmt_comm *c, void *arg)
{
	uint64_t *word, *data, zero = 0, one = 1, old;

	(void)arg;
	CHECK(spmt_calloc(c, 1, 8, (void **)&word));
	CHECK(spmt_calloc(c, N, 8, (void **)&data));
	for (int i = 0; i < 200; i++) {
		uint64_t *at = spmt_ptr(c, data, 0);

		for (old = 1; old; sched_yield())
			CHECK(spmt_atomic(c, SPMT_AMO_COMPARE_SWAP, SPMT_TYPE_U64, word, &one,
				&zero, &old, 0));
		for (int k = 0; k < N; k++)
			at[k]++;
		CHECK(spmt_atomic(c, SPMT_AMO_SET, SPMT_TYPE_U64, word, &zero, NULL, NULL, 0));
	}
	CHECK(spmt_barrier(c));
	EXPECT(spmt_rank(c) || data[N - 1] == 200 * RANKS);
	return 0;
}

/* ---- meetings ---------------------------------------------------------------------------------- */

static int meetings(spmt_comm *c, void *arg)
{
	int right = next_of(c), left = left_of(c);
	uint64_t *data, *own = malloc(N * 8);

	(void)arg;
	EXPECT(own);
	CHECK(spmt_malloc(c, N * 8, (void **)&data));
	for (uint64_t i = 0; i < ROUNDS; i++) {
		fill(spmt_ptr(c, data, right), N, i * 10 + (uint64_t)spmt_rank(c));
		if (strcmp(race, "meetings") != 0)
			CHECK(i % 2 ? spmt_sync(c) : spmt_barrier(c));
		EXPECT(holds(data, N, i * 10 + (uint64_t)left) || *race);
		CHECK(spmt_get(c, own, data, N * 8, right));
		CHECK(spmt_barrier(c));
	}
	free(own);
	return 0;
}

/* Blocks, parts and registered buffers come and go. */
static int blocks(spmt_comm *c, void *arg)
{
	int right = next_of(c), left = left_of(c), me = spmt_rank(c);

	(void)arg;
	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t *block, *other, *buf = malloc(N * 8);
		spmt_comm *part;
		spmt_mem *mem;

		EXPECT(buf);
		fill(buf, N, i + (uint64_t)me);
		CHECK(spmt_calloc(c, N, 8, (void **)&block));
		CHECK(spmt_register(c, buf, N * 8, &mem));
		other = spmt_mem_ptr(mem, right);
		EXPECT(holds(other, N, i + (uint64_t)right));
		CHECK(spmt_split(c, i % 2 ? me / 2 : 0, -me, &part));
		fill(spmt_ptr(c, block, right), N, i);
		CHECK(spmt_barrier(part));
		CHECK(spmt_finalize(part));
		CHECK(spmt_barrier(c));
		EXPECT(holds(block, N, i));
		CHECK(spmt_mem_put(c, mem, 0, block, N * 8, left));
		CHECK(spmt_deregister(c, mem));
		EXPECT(holds(buf, N, i));
		CHECK(spmt_free(c, block));
		free(buf);
	}
	return 0;
}

/* ---- streams ----------------------------------------------------------------------------------- */

struct work {
	uint64_t *at;
	size_t n;
	uint64_t value;
	int *wrong; /* NULL: to fill */
};

static void work(void *args)
{
	struct work *w = args;

	if (w->wrong)
		*w->wrong += !holds(w->at, w->n, w->value);
	else
		fill(w->at, w->n, w->value);
}

static int reduce(spmt_comm *c, uint64_t *dst, uint64_t *src, size_t n, spmt_stream s)
{
	return spmt_all_reduce(c, dst, src, n, SPMT_TYPE_U64, SPMT_OP_MAX, s);
}

/* The host's buffers, of a few bytes and of many. */
static int reductions(spmt_comm *c, void *arg)
{
	int n = spmt_nranks(c);
	uint64_t *src = malloc(BIG * 8), *dst = malloc(BIG * 8), *all = malloc(n * N * 8);
	size_t sizes[] = { 1, 8, N, BIG };
	spmt_stream s;

	(void)arg;
	EXPECT(src && dst && all);
	CHECK(spmt_host_stream_create(c, &s));
	for (uint64_t i = 0; i < ROUNDS; i++) {
		size_t size = sizes[i % 4];
		spmt_stream in = i % 3 ? s : NULL;

		fill(src, size, i * 10 + (uint64_t)spmt_rank(c));
		CHECK(reduce(c, dst, src, size, in));
		CHECK(i % 3 == 1 ? spmt_host_stream_synchronize(s) : spmt_quiet(c));
		EXPECT(holds(dst, size, i * 10 + (uint64_t)n - 1) || *race);
		fill(src, N, i);
		CHECK(spmt_all_gather(c, all, src, N, SPMT_TYPE_U64, in));
		CHECK(spmt_broadcast(c, dst, src, N, SPMT_TYPE_U64, (int)i % n, in));
		CHECK(spmt_all_to_all(c, dst, all, N / n, SPMT_TYPE_U64, in));
		if (strcmp(race, "reductions") != 0)
			CHECK(spmt_quiet(c));
		EXPECT(holds(all, N, i) || *race);
	}
	CHECK(spmt_quiet(c));
	CHECK(spmt_host_stream_destroy(s));
	CHECK(spmt_barrier(c));
	free(src);
	free(dst);
	free(all);
	return 0;
}

/* Kernels round collectives, barriers and signals of the streams of all ranks. */
static int kernels(spmt_comm *c, void *arg)
{
	int right = next_of(c), left = left_of(c), n = spmt_nranks(c), wrong = 0;
	uint64_t *src, *dst, *sig;
	spmt_stream s[2];

	(void)arg;
	CHECK(spmt_malloc(c, BIG * 8, (void **)&src));
	CHECK(spmt_malloc(c, BIG * 8, (void **)&dst));
	CHECK(spmt_calloc(c, 1, 8, (void **)&sig));
	CHECK(spmt_host_stream_create(c, &s[0]));
	CHECK(spmt_host_stream_create(c, &s[1]));
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		size_t size = i % 2 ? BIG : N;
		uint64_t value = i * 100;
		struct work make = { src, size, value + (uint64_t)spmt_rank(c), NULL };
		struct work look = { dst, size, value + (uint64_t)n - 1, &wrong };
		struct work seen = { dst, size, value + (uint64_t)left, &wrong };

		CHECK(spmt_host_launch(c, s[0], work, &make, sizeof(make)));
		CHECK(reduce(c, dst, src, size, s[0]));
		CHECK(spmt_host_launch(c, s[0], work, &look, sizeof(look)));
		CHECK(spmt_barrier_on_stream(c, s[0]));
		CHECK(spmt_put_signal_on_stream(
			c, dst, src, size * 8, sig, i, SPMT_SIGNAL_SET, right, s[0]));
		if (strcmp(race, "kernels") != 0)
			CHECK(spmt_signal_wait_on_stream(c, sig, SPMT_CMP_GE, i, s[1]));
		CHECK(spmt_host_launch(c, s[1], work, &seen, sizeof(seen)));
		CHECK(spmt_quiet_on_stream(c, s[0]));
		CHECK(spmt_barrier_on_stream(c, s[1]));
		CHECK(spmt_signal_on_stream(c, sig, i, SPMT_SIGNAL_SET, spmt_rank(c), s[1]));
		CHECK(spmt_quiet_on_stream(c, s[0]));
	}
	CHECK(spmt_barrier_on_stream(c, s[0]));
	CHECK(spmt_quiet(c));
	EXPECT(wrong == 0 || *race);
	CHECK(spmt_host_stream_destroy(s[0]));
	return spmt_host_stream_destroy(s[1]);
}

/* Kernels that use the device header, which is built with the program. */
struct device_work {
	struct spmt_view view;
	uint64_t *data, *sig;
	int *wrong;
};

static void device_work(void *args)
{
	struct device_work *w = args;
	const struct spmt_view *v = &w->view;
	int right = (v->pe + 1) % v->npes, left = (v->pe + v->npes - 1) % v->npes;

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		fill(w->data, N, i + (uint64_t)v->pe);
		spmtd_uint64_put(v, w->data + N, w->data, N, right);
		spmtd_fence(v);
		spmtd_signal_op(v, w->sig, i, SPMT_SIGNAL_SET, right);
		*w->wrong += spmtd_signal_wait_until(v, w->sig, SPMT_CMP_GE, i) != 0;
		*w->wrong += !holds(w->data + N, N, i + (uint64_t)left);
		*w->wrong += spmtd_barrier(v) != 0;
	}
}

static int device_calls(spmt_comm *c, void *arg)
{
	int wrong = 0;
	struct device_work w = { .wrong = &wrong };

	(void)arg;
	w.view.size = sizeof(w.view);
	CHECK(spmt_view_get(c, &w.view));
	CHECK(spmt_malloc(c, 2 * N * 8, (void **)&w.data));
	CHECK(spmt_calloc(c, 1, 8, (void **)&w.sig));
	CHECK(spmt_host_launch(c, NULL, device_work, &w, sizeof(w)));
	CHECK(spmt_quiet(c));
	EXPECT(wrong == 0);
	EXPECT(holds(w.data, N, ROUNDS + (uint64_t)spmt_rank(c)));
	return spmt_barrier(c);
}

/* ---- threads of the program --------------------------------------------------------------------- */

static struct shared {
	spmt_uid uid;
	uint64_t before[RANKS][N], after[RANKS];
} shared;

/* What a rank's thread has done before spmt_init is seen by who finds its comm. */
static void *finder(void *arg)
{
	int rank = (int)(uintptr_t)arg;
	spmt_comm *c;

	while (!(c = spmt_comm_by_rank(&shared.uid, rank)))
		sched_yield();
	if (spmt_rank(c) != rank || !holds(shared.before[rank], N, (uint64_t)rank))
		exit(3);
	return NULL;
}

static int each(spmt_comm *c, void *arg)
{
	uint64_t *data = arg;

	shared.after[spmt_rank(c)] = data[spmt_rank(c)];
	CHECK(spmt_barrier(c));
	return shared.after[next_of(c)] ? 0 : -1;
}

static void *member(void *arg)
{
	int rank = (int)(uintptr_t)arg;
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *c = NULL;

	attr.uid = &shared.uid;
	attr.rank = rank;
	attr.nranks = RANKS;
	attr.backend = "host";
	attr.heap_size = 4 << 20;
	fill(shared.before[rank], N, (uint64_t)rank);
	if (spmt_init(&attr, &c) || each(c, (uint64_t[RANKS]){ 1, 2, 3 }))
		exit(4);
	return c;
}

/* Threads of the program's own are ranks; others find them; then one thread has them all. */
static int threads(void)
{
	pthread_t ranks[RANKS], finders[RANKS];
	spmt_comm *comms[RANKS];
	uint64_t data[RANKS] = { 4, 5, 6 };

	CHECK(spmt_uid_create(&shared.uid));
	for (uintptr_t i = 0; i < RANKS; i++)
		CHECK(pthread_create(&finders[i], NULL, finder, (void *)i));
	for (uintptr_t i = 0; i < RANKS; i++)
		CHECK(pthread_create(&ranks[i], NULL, member, (void *)i));
	for (int i = 0; i < RANKS; i++) {
		void *c;

		CHECK(pthread_join(ranks[i], &c));
		CHECK(pthread_join(finders[i], NULL));
		comms[i] = c;
	}
	CHECK(spmt_each(RANKS, comms, each, data));
	data[0] = shared.after[0] + shared.after[1];
	EXPECT(data[0] == 9);
	for (int i = 0; i < RANKS; i++)
		CHECK(spmt_abort(comms[i], -77));
	for (int i = 0; i < RANKS; i++)
		CHECK(spmt_finalize(comms[i]));
	return 0;
}

/* Made by whoever asks first; the others find it. */
static int lanes(spmt_comm *c, void *arg)
{
	uint64_t *data, *sums;

	(void)arg;
	CHECK(spmt_malloc(c, N * 8, (void **)&data));
	CHECK(spmt_malloc(c, N * 8, (void **)&sums));
	fill(data, N, 0);
	for (uint64_t key = 1; key <= ROUNDS; key++) {
		spmt_comm *lane;

		CHECK(spmt_lane(c, key, &lane));
		CHECK(spmt_all_reduce(lane, sums, data, N, SPMT_TYPE_U64, SPMT_OP_MAX, NULL));
		CHECK(spmt_quiet(lane));
		EXPECT(holds(sums, N, 0));
		if (key % 2)
			CHECK(spmt_finalize(lane));
	}
	return spmt_barrier(c);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*fn)(spmt_comm *c, void *arg);
	} cases[] = { { "ring", ring }, { "copies", copies }, { "flags", flags }, { "lock", lock },
		{ "meetings", meetings }, { "blocks", blocks }, { "reductions", reductions },
		{ "kernels", kernels }, { "device_calls", device_calls }, { "lanes", lanes } };
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int rc = 0;

	if (argc == 3 && !strcmp(argv[1], "race"))
		race = argv[2];
	attr.backend = "host";
	attr.heap_size = 8 << 20;
	attr.timeout_ms = 60000;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && !rc; i++)
		if (!*race ? argc < 2 || !strcmp(argv[1], cases[i].name)
			   : !strcmp(race, cases[i].name))
			rc = spmt_run(RANKS, &attr, cases[i].fn, NULL);
	if (!rc && !*race && argc < 2)
		rc = threads();
	printf("%s: %d\n", *race ? race : "all", rc);
	return rc != 0;
}
