/* SPDX-License-Identifier: MIT */
/* Worlds begin and end: thousands of times, with changing counts, side by side, with every argument wrong, and leave nothing. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

enum { MANY = 144 };

static void many_devices(void)
{
	setenv("SPMT_HOST_DEVICES", "144", 1);
}

TestSuite(life, .init = many_devices);

/* ---- again and again ---------------------------------------------------------------------------------------------- */

struct churn {
	int rounds, ncounts;
	const int *counts;
	spmt_uid *uids;
	pthread_barrier_t pause, go;
};

static int churn_rounds(int index, struct churn *c, int from, int to)
{
	for (int i = from; i < to; i++) {
		int n = c->counts[i % c->ncounts];
		struct spmt_attr attr = ranks_attr(index, n, &c->uids[i]);
		spmt_comm *comm = NULL;

		if (index >= n)
			continue;
		REQUIRE_OK(spmt_init(&attr, &comm));
		REQUIRE_EQ(spmt_rank(comm), index);
		REQUIRE_EQ(spmt_nranks(comm), n);
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(spmt_finalize(comm));
	}
	return 0;
}

/* A quarter of the rounds warms allocator and stacks up; the rest may not add to what the process holds. */
static int churn_main(int index, void *arg)
{
	struct churn *c = arg;
	int warm = c->rounds / 4 / c->ncounts * c->ncounts + c->ncounts, code;

	code = churn_rounds(index, c, 0, warm);
	pthread_barrier_wait(&c->pause);
	pthread_barrier_wait(&c->go);
	if (!code)
		code = churn_rounds(index, c, warm, c->rounds);
	pthread_barrier_wait(&c->pause);
	pthread_barrier_wait(&c->go);
	return code;
}

struct crew {
	struct churn *churn;
	int n, code;
	char message[512];
};

static void *crew_main(void *arg)
{
	struct crew *c = arg;

	c->code = ranks_threads(c->n, churn_main, c->churn);
	strncpy(c->message, ranks_message(), sizeof(c->message) - 1);
	return NULL;
}

/* Counted while all threads rest between rounds, none of them new. */
static void churn(int rounds, const int *counts, int ncounts, int threads)
{
	struct churn c = { .rounds = rounds, .counts = counts, .ncounts = ncounts };
	struct crew crew = { .churn = &c, .n = threads };
	struct usage before, slack = { .maps = 64, .rss_kib = 3072 };
	const char *grown;
	pthread_t thread;

	/* glibc's arenas, one a thread, keep what they had at their fullest moment: not what is looked for here. */
	mallopt(M_ARENA_MAX, 1);
	c.uids = calloc((size_t)rounds + (size_t)ncounts, sizeof(*c.uids));
	cr_assert(c.uids);
	for (int i = 0; i < rounds; i++)
		cr_assert_eq(spmt_uid_create(&c.uids[i]), 0);
	pthread_barrier_init(&c.pause, NULL, (unsigned)threads + 1);
	pthread_barrier_init(&c.go, NULL, (unsigned)threads + 1);
	cr_assert_eq(pthread_create(&thread, NULL, crew_main, &crew), 0);
	pthread_barrier_wait(&c.pause);
	before = usage_now();
	pthread_barrier_wait(&c.go);
	pthread_barrier_wait(&c.pause);
	grown = usage_grown(&before, &slack);
	pthread_barrier_wait(&c.go);
	pthread_join(thread, NULL);
	cr_expect_eq(crew.code, 0, "%s", crew.message);
	cr_expect_null(grown, "%s", grown);
	free(c.uids);
}

Test(life, a_thousand_worlds_of_eight)
{
	static const int counts[] = { 8 };

	ranks_deadline(120);
	churn((int)test_count(1000, 4000), counts, 1, 8);
}

Test(life, changing_counts)
{
	static const int counts[] = { 1, 8, 3, 64, 2 };

	ranks_deadline(120);
	churn((int)test_count(1000, 4000), counts, 5, 64);
}

static int ring(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm);
	uint64_t mine = (uint64_t)rank + 1000, *word;

	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_copy_in(comm, word + 1, &mine, sizeof(mine)));
	REQUIRE_OK(spmt_put(comm, word, word + 1, sizeof(*word), (rank + 1) % n));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, word, (uint64_t)((rank + n - 1) % n) + 1000));
	if (arg)
		REQUIRE_EQ(spmt_device(comm), rank);
	return 0;
}

Test(life, a_world_of_144)
{
	struct spmt_attr attr = ranks_attr(0, MANY, NULL);
	int count = 0;

	NEEDS_HOST("144 devices");
	cr_assert_eq(spmt_device_count("host", &count), 0);
	cr_assert_eq(count, MANY);
	RANKS_OK(ranks_run(MANY, &attr, ring, &count));
}

struct pair {
	int n, rounds, code;
	char message[512];
};

static void *pair_main(void *arg)
{
	struct pair *p = arg;

	for (int i = 0; i < p->rounds && !p->code; i++)
		p->code = ranks_run(p->n, NULL, ring, NULL);
	strncpy(p->message, ranks_message(), sizeof(p->message) - 1);
	return NULL;
}

Test(life, two_worlds_at_once)
{
	struct pair pairs[2] = { { .n = 4, .rounds = 20 }, { .n = 7, .rounds = 20 } };
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, pair_main, &pairs[i]), 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		cr_expect_eq(pairs[i].code, 0, "%s", pairs[i].message);
	}
}

/* ---- init refuses ------------------------------------------------------------------------------------------------- */

static int init_one(const struct spmt_attr *attr)
{
	spmt_comm *none = (spmt_comm *)(uintptr_t)0x51, *comm = none;
	int code = spmt_init(attr, &comm);

	if (!code)
		return spmt_finalize(comm);
	cr_expect_eq(comm, none, "the output was written");
	return code;
}

static void refuses_as(const struct spmt_attr *attr, int code, const char *word)
{
	cr_expect_eq(init_one(attr), code, "%s", word);
	cr_expect(strstr(spmt_last_error(), "spmt_init"), "%s", spmt_last_error());
	cr_expect(strstr(spmt_last_error(), word), "no %s in: %s", word, spmt_last_error());
}

static void refuses(const struct spmt_attr *attr, const char *word)
{
	refuses_as(attr, -EINVAL, word);
}

Test(life, attr_size)
{
	struct {
		struct spmt_attr attr;
		unsigned char tail[64];
	} later = { .attr = ranks_attr(0, 1, NULL) };

	for (int i = 0; i < 3; i++) { /* the last of a caller who never set it */
		later.attr.size = (const size_t[]){ 0, sizeof(struct spmt_attr) - 1, SIZE_MAX }[i];
		refuses(&later.attr, i < 2 ? "is below" : "is above");
	}
	later.attr.size = sizeof(later);
	cr_expect_eq(init_one(&later.attr), 0, "%s", spmt_last_error());
	later.tail[sizeof(later.tail) - 1] = 1;
	refuses(&later.attr, "size");
	later.attr.size = sizeof(later) - 1;
	cr_expect_eq(init_one(&later.attr), 0, "%s", spmt_last_error());
}

Test(life, attr_ranks_and_device)
{
	static const int bad[][2] = { { -1, 1 }, { 1, 1 }, { 0, 0 }, { 0, -1 }, { INT32_MAX, 1 },
		{ INT32_MIN, 1 }, { 5, 4 } };
	int last = ranks_here(MANY) - 1;
	char number[16];
	spmt_uid uid;
	struct spmt_attr attr;

	cr_assert_eq(spmt_uid_create(&uid), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		attr = ranks_attr(bad[i][0], bad[i][1], &uid);
		refuses(&attr, "rank");
	}
	attr = ranks_attr(0, 2, NULL);
	refuses(&attr, "uid");
	attr = ranks_attr(0, 1, NULL);
	attr.device = last + 1;
	snprintf(number, sizeof(number), "%d", last + 1);
	refuses_as(&attr, -ENODEV, number);
	attr.device = -2;
	refuses(&attr, "-2");
	attr.device = last;
	cr_expect_eq(init_one(&attr), 0, "%s", spmt_last_error());
	attr.device = 0;
	attr.backend = "abacus";
	cr_expect_lt(init_one(&attr), 0);
	cr_expect(strstr(spmt_last_error(), "abacus"), "%s", spmt_last_error());
	cr_expect_eq(spmt_init(NULL, &(spmt_comm *){ NULL }), -EINVAL);
	attr = ranks_attr(0, 1, NULL);
	cr_expect_eq(spmt_init(&attr, NULL), -EINVAL);
}

Test(life, attr_uid_with_any_bit_flipped)
{
	struct spmt_attr attr;
	spmt_uid uid, bad;

	cr_assert_eq(spmt_uid_create(&uid), 0);
	for (size_t i = 0; i < sizeof(uid) * 8; i++) {
		bad = uid;
		bad.bytes[i / 8] ^= (unsigned char)(1u << i % 8);
		attr = ranks_attr(0, 1, &bad);
		refuses(&attr, "uid");
	}
	attr = ranks_attr(0, 1, &uid);
	cr_expect_eq(init_one(&attr), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_uid_create(NULL), -EINVAL);
}

/* What a rank can know alone it says at once, whether the others come or not. */
Test(life, a_bad_device_needs_nobody_else)
{
	spmt_uid uid;
	struct spmt_attr attr;
	int64_t begin = calm_ns();

	cr_assert_eq(spmt_uid_create(&uid), 0);
	attr = ranks_attr(0, 4, &uid);
	attr.device = 1000;
	refuses_as(&attr, -ENODEV, "1000");
	cr_expect_lt(calm_ns() - begin, 2000000000);
}

/* Four ranks, one of which is odd: all fail with one code and one sentence that names it, long before the deadline. */
enum { ODD_MOST = 9 };
enum odd { ODD_NRANKS, ODD_HEAP, ODD_BACKEND, ODD_DEVICE, ODD_TAIL, ODD_TWICE };
struct odd_world {
	enum odd odd;
	spmt_uid uid;
	int n, codes[ODD_MOST];
	char sentences[ODD_MOST][512];
	_Atomic int started;
};

/* Not the one under test. */
static const char *absent_backend(void)
{
	const char *name = getenv("SPMT_BACKEND");

	return name && strcmp(name, "cuda") == 0 ? "hip" : "cuda";
}

static void make_odd(struct spmt_attr *attr, enum odd odd)
{
	switch (odd) {
	case ODD_NRANKS:
		attr->nranks = 3;
		break;
	case ODD_HEAP:
		attr->heap_size = 16u << 20;
		break;
	case ODD_BACKEND:
		attr->backend = absent_backend();
		break;
	case ODD_DEVICE:
		attr->device = 1000;
		break;
	case ODD_TAIL:
		attr->size = sizeof(struct spmt_attr) + 8;
		break;
	case ODD_TWICE:
		attr->rank = 1;
		break;
	}
}

static int odd_main(int index, void *arg)
{
	struct odd_world *w = arg;
	struct {
		struct spmt_attr attr;
		uint64_t unknown;
	} given = { .attr = ranks_attr(index, 4, &w->uid), .unknown = 1 };
	spmt_comm *comm = NULL;
	int64_t begin;

	/* The odd one comes last, so that the others are there and named a world. */
	atomic_fetch_add(&w->started, 1);
	while (index == 2 && atomic_load(&w->started) < 4)
		sleep_ms(1);
	if (index == 2) {
		sleep_ms(20);
		make_odd(&given.attr, w->odd);
	}
	begin = calm_ns();
	w->codes[index] = spmt_init(&given.attr, &comm);
	strncpy(w->sentences[index], spmt_last_error(), sizeof(w->sentences[index]) - 1);
	if (!w->codes[index])
		spmt_finalize(comm);
	REQUIRE(calm_ns() - begin < 3000000000);
	return 0;
}

static void odd_world(enum odd odd, int code, const char *word)
{
	struct odd_world *w = calloc(1, sizeof(*w));
	struct usage before = usage_now(), slack = { .maps = 64, .rss_kib = 8192 };
	const char *grown;

	cr_assert(w);
	w->odd = odd;
	cr_assert_eq(spmt_uid_create(&w->uid), 0);
	cr_expect_eq(ranks_threads(4, odd_main, w), 0, "odd %d: %s", (int)odd, ranks_message());
	for (int i = 0; i < 4; i++) {
		cr_expect_eq(w->codes[i], code, "odd %d: rank %d got %d, rank 0 %d: %s", odd, i,
			w->codes[i], w->codes[0], w->sentences[i]);
		cr_expect(strstr(w->sentences[i], word), "odd %d: rank %d, no \"%s\" in: %s", odd,
			i, word, w->sentences[i]);
	}
	grown = usage_grown(&before, &slack);
	cr_expect_null(grown, "odd %d: %s", odd, grown);
	free(w);
	RANKS_OK(ranks_run(4, NULL, ring, NULL));
}

Test(life, odd_ranks_fail_on_all)
{
	RANKS_OK(ranks_run(4, NULL, ring, NULL));
	odd_world(ODD_NRANKS, SPMT_ERR_MISMATCH, "2");
	odd_world(ODD_HEAP, SPMT_ERR_MISMATCH, "2");
	odd_world(ODD_DEVICE, -ENODEV, "1000");
	odd_world(ODD_TAIL, -EINVAL, "size");
}

/* A rank that comes twice: both ranks of that number cannot be told apart, the world cannot be made. */
Test(life, a_rank_twice)
{
	struct odd_world *w = calloc(1, sizeof(*w));

	cr_assert(w);
	w->odd = ODD_TWICE;
	cr_assert_eq(spmt_uid_create(&w->uid), 0);
	RANKS_OK(ranks_threads(4, odd_main, w));
	for (int i = 0; i < 4; i++) {
		cr_expect_lt(w->codes[i], 0, "rank %d", i);
		cr_expect(strstr(w->sentences[i], "1"), "%s", w->sentences[i]);
	}
	free(w);
}

/* The backend that the odd rank asks for is not there: its own failure, and everybody's. */
Test(life, odd_backend)
{
	struct odd_world *w = calloc(1, sizeof(*w));

	cr_assert(w);
	w->odd = ODD_BACKEND;
	cr_assert_eq(spmt_uid_create(&w->uid), 0);
	setenv(strcmp(absent_backend(), "cuda") ? "SPMT_HIP_LIB" : "SPMT_CUDA_LIB",
		"/nonexistent/library.so", 1);
	RANKS_OK(ranks_threads(4, odd_main, w));
	for (int i = 0; i < 4; i++) {
		cr_expect_lt(w->codes[i], 0, "rank %d", i);
		cr_expect(strstr(w->sentences[i], absent_backend()), "%s", w->sentences[i]);
	}
	free(w);
}

static int one_too_many(int index, void *arg)
{
	struct odd_world *w = arg;
	struct spmt_attr attr = ranks_attr(index, w->n, &w->uid);
	spmt_comm *comm = NULL;

	attr.device = -1;
	w->codes[index] = spmt_init(&attr, &comm);
	strncpy(w->sentences[index], spmt_last_error(), sizeof(w->sentences[index]) - 1);
	return 0;
}

Test(life, more_ranks_than_devices)
{
	struct odd_world *w = calloc(1, sizeof(*w));
	int64_t begin = calm_ns();
	char number[16];

	cr_assert(w);
	setenv("SPMT_HOST_DEVICES", "3", 1);
	w->n = ranks_here(ODD_MOST - 1) + 1;
	w->n = on_host() ? 4 : w->n;
	snprintf(number, sizeof(number), "%d", w->n - 1);
	cr_assert_eq(spmt_uid_create(&w->uid), 0);
	RANKS_OK(ranks_threads(w->n, one_too_many, w));
	cr_expect_lt(calm_ns() - begin, 5000000000);
	for (int i = 0; i < w->n; i++) {
		cr_expect_eq(w->codes[i], -ENODEV, "rank %d: %d", i, w->codes[i]);
		cr_expect(strstr(w->sentences[i], "SPMT_HOST_DEVICES") ||
				strstr(w->sentences[i], number),
			"%s", w->sentences[i]);
	}
	free(w);
}

/* ---- finalize ----------------------------------------------------------------------------------------------------- */

static int leave_things(spmt_comm *comm, void *arg)
{
	int next = (spmt_rank(comm) + 1) % spmt_nranks(comm);
	size_t size = 1u << 20;
	char *a, *b;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&a));
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&b));
	for (int i = 0; i < 20; i++)
		REQUIRE_OK(spmt_put_nbi(comm, a, b, size, next));
	return 0;
}

Test(life, finalize_with_live_things)
{
	struct usage before, slack = { .maps = 64, .rss_kib = 4096 };
	const char *grown;

	for (int i = 0; i < 3; i++)
		RANKS_OK(ranks_run(8, NULL, leave_things, NULL));
	before = usage_now();
	for (int i = 0; i < 20; i++)
		RANKS_OK(ranks_run(8, NULL, leave_things, NULL));
	grown = usage_grown(&before, &slack);
	cr_expect_null(grown, "%s", grown);
}

Test(life, use_after_finalize)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_comm *comm = NULL;
	char *block = NULL;
	int64_t value = 77;

	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_malloc(comm, 64, (void **)&block), 0);
	cr_assert_eq(spmt_finalize(comm), 0);
	cr_expect_eq(spmt_finalize(comm), -EBADF);
	cr_expect_eq(spmt_put(comm, block, &value, 8, 0), -EBADF);
	cr_expect_eq(spmt_barrier(comm), -EBADF);
	cr_expect_eq(spmt_quiet(comm), -EBADF);
	cr_expect_eq(spmt_malloc(comm, 8, (void **)&block), -EBADF);
	cr_expect_eq(spmt_rank(comm), -EBADF);
	cr_expect_eq(spmt_nranks(comm), -EBADF);
	cr_expect_eq(spmt_device(comm), -EBADF);
	cr_expect_null(spmt_backend(comm));
	cr_expect_null(spmt_ptr(comm, block, 0));
	cr_expect_eq(spmt_query(comm, SPMT_CAP_VMM, &value), -EBADF);
	cr_expect_eq(value, 77);
	cr_expect_eq(spmt_abort(comm, -5), -EBADF);
	cr_expect_eq(spmt_status(comm), -EBADF);
	cr_expect_eq(spmt_finalize(NULL), -EINVAL);
}

/* ---- one thread, many ranks --------------------------------------------------------------------------------------- */

static int finalize_one(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

Test(life, init_all_and_each)
{
	struct spmt_attr attrs[8];
	spmt_comm *comms[8] = { NULL };

	for (int i = 0; i < 8; i++)
		attrs[i] = ranks_attr(7 - i, 8, NULL);
	for (int round = 0; round < 20; round++) {
		cr_assert_eq(spmt_init_all(8, attrs, comms), 0, "%s", spmt_last_error());
		for (int i = 0; i < 8; i++)
			cr_expect_eq(spmt_rank(comms[i]), 7 - i);
		cr_expect_eq(spmt_each(8, comms, ring, NULL), 0, "%s", spmt_last_error());
		cr_expect_eq(spmt_each(8, comms, finalize_one, NULL), 0, "%s", spmt_last_error());
	}
}

Test(life, init_all_is_all_or_none)
{
	struct spmt_attr attrs[4];
	spmt_comm *none = (spmt_comm *)(uintptr_t)0x51, *comms[4] = { none, none, none, none };
	int64_t begin = calm_ns();

	for (int i = 0; i < 4; i++)
		attrs[i] = ranks_attr(i, 4, NULL);
	attrs[2].device = 1000;
	cr_expect_eq(spmt_init_all(4, attrs, comms), -ENODEV);
	cr_expect(strstr(spmt_last_error(), "1000"), "%s", spmt_last_error());
	for (int i = 0; i < 4; i++)
		cr_expect_eq(comms[i], none);
	cr_expect_lt(calm_ns() - begin, 3000000000);
	cr_expect_eq(spmt_init_all(0, attrs, comms), -EINVAL);
	cr_expect_eq(spmt_init_all(4, NULL, comms), -EINVAL);
	cr_expect_eq(spmt_init_all(4, attrs, NULL), -EINVAL);
	cr_expect_eq(spmt_each(4, NULL, ring, NULL), -EINVAL);
	cr_expect_eq(spmt_each(0, comms, ring, NULL), -EINVAL);
}

/* ---- spmt_run ----------------------------------------------------------------------------------------------------- */

static int fail_on_the_last(spmt_comm *comm, void *arg)
{
	int code = arg ? *(int *)arg : 0;
	char byte = 0;

	if (spmt_rank(comm) != spmt_nranks(comm) - 1)
		return spmt_barrier(comm);
	return code ? code : spmt_put(comm, &byte, &byte, 1, 99);
}

Test(life, run_gives_the_first_failure)
{
	int own = -77, positive = 5, n = ranks_here(8);
	int64_t begin;

	cr_expect_eq(spmt_run(n, NULL, fail_on_the_last, &own), -77);
	begin = calm_ns(); /* the first had devices to open */
	cr_expect_eq(spmt_run(n, NULL, fail_on_the_last, &positive), 5);
	cr_expect_eq(spmt_run(n, NULL, fail_on_the_last, NULL), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "99"), "%s", spmt_last_error());
	cr_expect_lt(calm_ns() - begin, 5000000000, "a failed rank left the others waiting");
	cr_expect_eq(spmt_run(n, NULL, ring, NULL), 0, "%s", spmt_last_error());
}

Test(life, run_ignores_what_differs_by_rank)
{
	spmt_uid junk = { { 0xa5 } };
	struct spmt_attr common = ranks_attr(77, -3, &junk);

	common.device = 9999;
	cr_expect_eq(spmt_run(ranks_here(5), &common, ring, &common), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_run(0, NULL, ring, NULL), -EINVAL);
	cr_expect_eq(spmt_run(-1, NULL, ring, NULL), -EINVAL);
	cr_expect_eq(spmt_run(2, NULL, NULL, NULL), -EINVAL);
	common.backend = "abacus";
	cr_expect_lt(spmt_run(ranks_here(2), &common, ring, NULL), 0);
	common.backend = NULL;
	common.size = 4;
	cr_expect_eq(spmt_run(ranks_here(2), &common, ring, NULL), -EINVAL);
}
