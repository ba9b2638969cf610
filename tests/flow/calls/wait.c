/* SPDX-License-Identifier: MIT */
/* Waiting for words: what compares true, who is fair, who sleeps and who wakes when, and what a deadline leaves behind. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "spmt/comm/comm.h"
#include "spmt_device.h"
#include "tests/lib/ranks.h"

static void many_devices(void)
{
	setenv("SPMT_HOST_DEVICES", "144", 1);
}

TestSuite(waits, .init = many_devices);

/* ---- compares at the edges ------------------------------------------------------------------------------------------------ */

static const size_t widths[] = { 1, 1, 2, 2, 4, 4, 8, 8, 0, 0, 4, 8 }; /* by enum spmt_type */

static bool holds(int order, enum spmt_cmp cmp)
{
	switch (cmp) {
	case SPMT_CMP_EQ:
		return order == 0;
	case SPMT_CMP_NE:
		return order != 0;
	case SPMT_CMP_GT:
		return order == 1;
	case SPMT_CMP_GE:
		return order == 1 || order == 0;
	case SPMT_CMP_LT:
		return order == -1;
	case SPMT_CMP_LE:
		return order == -1 || order == 0;
	}
	return false;
}

enum { NO_ORDER = 2 };

static int order_real(double a, double b)
{
	return isnan(a) || isnan(b) ? NO_ORDER : (a > b) - (a < b);
}

/* How the values that a type sees in two bit patterns compare. */
static int order_of(enum spmt_type type, uint64_t a, uint64_t b)
{
	unsigned shift = 64 - (unsigned)widths[type] * 8;
	float fa, fb;
	double da, db;

	if (type == SPMT_TYPE_F32) {
		memcpy(&fa, &a, sizeof(fa));
		memcpy(&fb, &b, sizeof(fb));
		return order_real((double)fa, (double)fb);
	}
	if (type == SPMT_TYPE_F64) {
		memcpy(&da, &a, sizeof(da));
		memcpy(&db, &b, sizeof(db));
		return order_real(da, db);
	}
	a <<= shift;
	b <<= shift;
	if (type == SPMT_TYPE_I8 || type == SPMT_TYPE_I16 || type == SPMT_TYPE_I32 ||
		type == SPMT_TYPE_I64)
		return ((int64_t)a > (int64_t)b) - ((int64_t)a < (int64_t)b);
	return (a > b) - (a < b);
}

static const uint64_t edges[] = { 0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff,
	0x80000000, 0xffffffff, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff,
	/* f32: 1, -1, infinities, NaN; f64 the same */
	0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00000, 0x3ff0000000000000,
	0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000 };

enum { EDGES = sizeof(edges) / sizeof(edges[0]) };

static int one_compare(spmt_comm *comm, enum spmt_type type, uint64_t *word, uint64_t a, uint64_t b)
{
	for (enum spmt_cmp cmp = SPMT_CMP_EQ; cmp <= SPMT_CMP_LE; cmp++) {
		bool want = holds(order_of(type, a, b), cmp);
		int seen = -1, all = -1;
		size_t index = 77;

		REQUIRE_OK(spmt_test(comm, type, word, cmp, &b, &seen));
		REQUIRE_OK(spmt_test_all(comm, type, word, 1, NULL, cmp, &b, &all));
		REQUIRE_OK(spmt_test_any(comm, type, word, 1, NULL, cmp, &b, &index));
		if (seen != want || all != want || (index == 0) != want ||
			(index == SIZE_MAX) == want)
			return ranks_fail("type %d, compare %d: %#jx with %#jx gave %d %d %zu",
				(int)type, (int)cmp, (uintmax_t)a, (uintmax_t)b, seen, all, index);
		if (want)
			REQUIRE_OK(spmt_wait_until(comm, type, word, cmp, &b));
		if (want && type == SPMT_TYPE_U64)
			REQUIRE_OK(spmt_signal_wait(comm, word, cmp, b, NULL));
	}
	return 0;
}

static int compares(spmt_comm *comm, void *arg)
{
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	for (enum spmt_type type = SPMT_TYPE_I8; type <= SPMT_TYPE_F64; type++)
		for (int a = 0; widths[type] && a < EDGES; a++) {
			REQUIRE_OK(spmt_copy_in(comm, word, &edges[a], sizeof(*word)));
			for (int b = 0; b < EDGES; b++)
				TRY(one_compare(comm, type, word, edges[a], edges[b]));
		}
	return 0;
}

Test(waits, compares_at_the_edges)
{
	RANKS_OK(ranks_run(1, NULL, compares, NULL));
}

/* ---- any, some, all ---------------------------------------------------------------------------------------------------------- */

enum { N = 8 };

static int masks(spmt_comm *comm, void *arg)
{
	static const int out[N] = { 1, 1, 1, 1, 1, 1, 1, 1 }, even[N] = { 0, 1, 0, 1, 0, 1, 0, 1 };
	uint32_t *words, one = 1, init[N] = { 1, 1, 0, 0, 0, 1, 1, 0 };
	size_t index = 77, list[N], found = 77;
	int all = 77;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, N, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_copy_in(comm, words, init, sizeof(init)));
	for (int tests = 0; tests < 2; tests++) {
		int (*any)(spmt_comm *, enum spmt_type, const void *, size_t, const int *,
			enum spmt_cmp, const void *, size_t *) =
			tests ? spmt_test_any : spmt_wait_until_any;
		int (*some)(spmt_comm *, enum spmt_type, const void *, size_t, const int *,
			enum spmt_cmp, const void *, size_t *, size_t *) =
			tests ? spmt_test_some : spmt_wait_until_some;

		REQUIRE_OK(any(comm, SPMT_TYPE_U32, words, N, NULL, SPMT_CMP_EQ, &one, &index));
		REQUIRE(index < N && init[index] == 1);
		REQUIRE_OK(any(comm, SPMT_TYPE_U32, words, N, even, SPMT_CMP_EQ, &one, &index));
		REQUIRE(index == 0 || index == 6);
		REQUIRE_OK(any(comm, SPMT_TYPE_U32, words, N, out, SPMT_CMP_EQ, &one, &index));
		REQUIRE(index == SIZE_MAX);
		REQUIRE_OK(any(comm, SPMT_TYPE_U32, words, 0, NULL, SPMT_CMP_EQ, &one, &index));
		REQUIRE(index == SIZE_MAX);
		REQUIRE_OK(
			some(comm, SPMT_TYPE_U32, words, N, NULL, SPMT_CMP_EQ, &one, list, &found));
		REQUIRE_EQ(found, 4);
		for (size_t i = 0, seen = 0; i < found; i++, seen |= (size_t)1 << list[i - 1])
			REQUIRE(list[i] < N && init[list[i]] == 1 && !(seen >> list[i] & 1));
		REQUIRE_OK(
			some(comm, SPMT_TYPE_U32, words, N, even, SPMT_CMP_EQ, &one, list, &found));
		REQUIRE_EQ(found, 2);
		REQUIRE_EQ(list[0] + list[1], 6);
		REQUIRE_OK(
			some(comm, SPMT_TYPE_U32, words, N, out, SPMT_CMP_EQ, &one, list, &found));
		REQUIRE_EQ(found, 0);
	}
	REQUIRE_OK(spmt_wait_until_all(comm, SPMT_TYPE_U32, words, N, out, SPMT_CMP_EQ, &one));
	REQUIRE_OK(spmt_wait_until_all(comm, SPMT_TYPE_U32, words, 0, NULL, SPMT_CMP_EQ, &one));
	REQUIRE_OK(spmt_wait_until_all(comm, SPMT_TYPE_U32, words, 2, NULL, SPMT_CMP_EQ, &one));
	REQUIRE_OK(spmt_test_all(comm, SPMT_TYPE_U32, words, N, out, SPMT_CMP_EQ, &one, &all));
	REQUIRE_EQ(all, 1);
	REQUIRE_OK(spmt_test_all(comm, SPMT_TYPE_U32, words, N, even, SPMT_CMP_EQ, &one, &all));
	REQUIRE_EQ(all, 0);
	one = 2;
	REQUIRE_OK(spmt_test_any(comm, SPMT_TYPE_U32, words, N, NULL, SPMT_CMP_EQ, &one, &index));
	REQUIRE(index == SIZE_MAX);
	REQUIRE_OK(spmt_test_some(
		comm, SPMT_TYPE_U32, words, N, NULL, SPMT_CMP_EQ, &one, list, &found));
	REQUIRE_EQ(found, 0);
	return 0;
}

Test(waits, masks_and_what_is_left_in)
{
	RANKS_OK(ranks_run(1, NULL, masks, NULL));
}

/* ---- what a kernel's wait ends with ------------------------------------------------------------------------------------- */

struct flipper {
	pthread_t thread;
	_Atomic uint32_t *stop;
	atomic_bool end;
};

/* As if the world broke and stood again all the time: an abort may come between any two looks. */
static void *flip(void *arg)
{
	struct flipper *f = arg;

	while (!atomic_load(&f->end)) {
		atomic_store(f->stop, 1);
		atomic_store(f->stop, 0);
	}
	return NULL;
}

static int codes(spmt_comm *comm, void *arg)
{
	struct spmt_view v = { .size = sizeof(v) };
	struct flipper f = { .stop = &comm->control->stop };
	long changes = 0, other = 0;
	int last = 0;

	(void)arg;
	REQUIRE_OK(spmt_view_get(comm, &v));
	comm->control->words[0].cause.code = -55;
	REQUIRE_EQ(pthread_create(&f.thread, NULL, flip, &f), 0);
	for (long i = 0; i < 100000000 && changes < 100000; i++) {
		struct spmtd_pause p = { .n = 0 };
		int rc = v.host->pause(&v, &p);

		changes += rc != last;
		other += rc != SPMTD_ABORTED && rc != 0;
		last = rc;
	}
	atomic_store(&f.end, true);
	pthread_join(f.thread, NULL);
	comm->control->words[0].cause.code = 0;
	REQUIRE(changes > 0);
	REQUIRE_EQ(other, 0);
	return 0;
}

Test(waits, a_kernel_s_wait_ends_with_a_code_of_its_own)
{
	NEEDS_HOST("a kernel's wait asks the library");
	RANKS_OK(ranks_run(1, NULL, codes, NULL));
}

/* A queue a producer: all of them are served, in any order, by one consumer. */
static int served(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm), done = 0;
	uint64_t *words, zero = 0, rounds = 300, seen[16] = { 0 };
	int status[16] = { 1 };

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, (size_t)n, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; rank && i < rounds; i++) {
		REQUIRE_OK(spmt_signal(comm, words + rank, 1, SPMT_SIGNAL_SET, 0));
		REQUIRE_OK(spmt_signal_wait(comm, words, SPMT_CMP_GE, i + 1, NULL));
	}
	while (!rank && done < n - 1) {
		size_t list[16], found = 0;

		REQUIRE_OK(spmt_wait_until_some(comm, SPMT_TYPE_U64, words, (size_t)n, status,
			SPMT_CMP_NE, &zero, list, &found));
		REQUIRE(found > 0);
		for (size_t i = 0; i < found; i++) {
			int pe = (int)list[i];

			REQUIRE_OK(spmt_copy_in(comm, words + pe, &zero, sizeof(zero)));
			REQUIRE_OK(spmt_signal(comm, words, 1, SPMT_SIGNAL_ADD, pe));
			status[pe] = ++seen[pe] == rounds;
			done += status[pe];
		}
	}
	return spmt_barrier(comm);
}

Test(waits, some_serves_all)
{
	RANKS_OK(ranks_run(6, NULL, served, NULL));
}

/* ---- deadlines ------------------------------------------------------------------------------------------------------------------ */

static int timed_out(spmt_comm *comm, int64_t begin, int code)
{
	int64_t ms = (now_ns() - begin) / 1000000;

	REQUIRE_CODE(code, SPMT_ERR_TIMEOUT);
	REQUIRE(ms >= 59 && ms < 4000);
	REQUIRE_EQ(spmt_status(comm), 0);
	return 0;
}

#define TIMES_OUT(call)                               \
	do {                                          \
		int64_t begin_ = now_ns();            \
		TRY(timed_out(comm, begin_, (call))); \
	} while (0)

static int deadlines(spmt_comm *comm, void *arg)
{
	uint64_t *words, one = 1, seen = 77;
	size_t index = 77, list[4], found = 77;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_set_timeout(comm, 60));
	TIMES_OUT(spmt_wait_until(comm, SPMT_TYPE_U64, words, SPMT_CMP_EQ, &one));
	REQUIRE_SAYS("spmt_wait_until");
	REQUIRE_SAYS("0.06");
	TIMES_OUT(spmt_wait_until_any(
		comm, SPMT_TYPE_U64, words, 4, NULL, SPMT_CMP_EQ, &one, &index));
	TIMES_OUT(spmt_wait_until_some(
		comm, SPMT_TYPE_U64, words, 4, NULL, SPMT_CMP_EQ, &one, list, &found));
	TIMES_OUT(spmt_wait_until_all(comm, SPMT_TYPE_U64, words, 4, NULL, SPMT_CMP_EQ, &one));
	TIMES_OUT(spmt_signal_wait(comm, words, SPMT_CMP_GE, 1, &seen));
	REQUIRE_SAYS("spmt_signal_wait");
	REQUIRE(index == 77 && found == 77 && seen == 77);
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_signal(comm, words, 1, SPMT_SIGNAL_ADD, 1 - spmt_rank(comm)));
	REQUIRE_OK(spmt_signal_wait(comm, words, SPMT_CMP_GE, 1, &seen));
	REQUIRE(seen == 1 || seen == 2);
	REQUIRE_OK(spmt_set_timeout(comm, -1));
	if (spmt_rank(comm) == 0)
		sleep_ms(200);
	REQUIRE_OK(spmt_signal(comm, words, 1, SPMT_SIGNAL_ADD, 1 - spmt_rank(comm)));
	REQUIRE_OK(spmt_signal_wait(comm, words, SPMT_CMP_GE, 2, NULL));
	return spmt_barrier(comm);
}

Test(waits, deadlines_leave_the_world_usable)
{
	RANKS_OK(ranks_run(2, NULL, deadlines, NULL));
}

/* ---- waking ---------------------------------------------------------------------------------------------------------------------- */

enum store {
	BY_POINTER,
	BY_PUT,
	BY_NBI,
	BY_SIGNAL,
	BY_PUT_SIGNAL,
	BY_ATOMIC,
	BY_IPUT,
	BY_MEM,
	STORES
};

struct wake {
	uint64_t *words;
	spmt_mem *mem;
	uint64_t sent; /* until the next barrier */
};

static int wake_by(spmt_comm *comm, struct wake *w, enum store store, uint64_t value)
{
	switch (store) {
	case BY_POINTER:
		__atomic_store_n((uint64_t *)spmt_ptr(comm, w->words, 1), value, __ATOMIC_RELEASE);
		return 0;
	case BY_PUT:
		return spmt_put(comm, w->words, &value, sizeof(value), 1);
	case BY_NBI:
		w->sent = value;
		return spmt_put_nbi(comm, w->words, &w->sent, sizeof(w->sent), 1);
	case BY_SIGNAL:
		return spmt_signal(comm, w->words, value, SPMT_SIGNAL_SET, 1);
	case BY_PUT_SIGNAL:
		return spmt_put_signal(comm, NULL, NULL, 0, w->words, value, SPMT_SIGNAL_SET, 1);
	case BY_ATOMIC:
		return spmt_atomic(
			comm, SPMT_AMO_SET, SPMT_TYPE_U64, w->words, &value, NULL, NULL, 1);
	case BY_IPUT:
		return spmt_iput(comm, w->words, &value, 1, 1, 1, sizeof(value), 1);
	default:
		return spmt_mem_put(comm, w->mem, 0, &value, sizeof(value), 1);
	}
}

static int compare_times(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

struct woken {
	enum store store;
	int64_t told, late; /* the latter: the median of some waits, nanoseconds */
};

/* Rank 1 has long been asleep when rank 0 stores. */
static int waking(spmt_comm *comm, void *arg)
{
	struct woken *woken = arg;
	struct wake w;
	int64_t late[9];

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*w.words), (void **)&w.words));
	REQUIRE_OK(spmt_register(comm, w.words, 8, &w.mem));
	for (int i = 0; i < 9; i++) {
		uint64_t last = 0, seen;

		REQUIRE_OK(spmt_signal_fetch(comm, w.words, &last));
		REQUIRE_OK(spmt_barrier(comm));
		if (spmt_rank(comm) == 0) {
			sleep_ms(25 + i);
			woken->told = calm_ns();
			REQUIRE_OK(wake_by(comm, &w, woken->store, (uint64_t)now_ns()));
			continue;
		}
		REQUIRE_OK(spmt_signal_wait(comm, w.words, SPMT_CMP_NE, last, &seen));
		late[i] = calm_ns() - woken->told;
	}
	if (spmt_rank(comm) == 1) {
		qsort(late, 9, sizeof(late[0]), compare_times);
		woken->late = late[4];
	}
	return spmt_barrier(comm);
}

Test(waits, a_store_wakes)
{
	/* A plain store is for memory that the CPU reaches. */
	for (enum store store = on_host() ? BY_POINTER : BY_PUT; store < STORES; store++) {
		int64_t most = !on_host() ? 20000000 : store == BY_POINTER ? 6000000 : 1000000;
		struct woken woken = { .store = store, .late = INT64_MAX };

		/* Again where others have the CPUs. Who is not woken looks every few ms, hardly ever that early five times of nine. */
		for (int tries = 0; tries < 4 && woken.late > most; tries++)
			RANKS_OK(ranks_run(2, NULL, waking, &woken));
		cr_expect_leq(woken.late, most, "store %d: woken after %.2f ms", (int)store,
			(double)woken.late / 1e6);
	}
}

/* ---- interruptions ---------------------------------------------------------------------------------------------------------------------- */

enum { STORMED = 4 };

static struct {
	pthread_t threads[STORMED];
	_Atomic int ready, over;
	_Atomic long caught;
} storm;

static void caught(int number)
{
	(void)number;
	atomic_fetch_add_explicit(&storm.caught, 1, memory_order_relaxed);
}

static int in_the_storm(spmt_comm *comm)
{
	int rank = spmt_rank(comm), next = (rank + 1) % STORMED;
	uint64_t *word, seen;
	void *block;

	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	for (uint64_t i = 1; i <= 300; i++) {
		if (rank == 0)
			sleep_ms(1);
		REQUIRE_OK(spmt_put_signal(
			comm, word, &i, sizeof(i), word + 1, 1, SPMT_SIGNAL_ADD, next));
		REQUIRE_OK(spmt_signal_wait(comm, word + 1, SPMT_CMP_GE, i, &seen));
		REQUIRE_EQ(seen, i);
		REQUIRE_OK(spmt_malloc(comm, 1000, &block));
		REQUIRE_OK(spmt_put_on_stream(comm, block, block, 1000, next, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_free(comm, block));
	}
	return 0;
}

static int stormed(spmt_comm *comm, void *arg)
{
	int code;

	(void)arg;
	storm.threads[spmt_rank(comm)] = pthread_self();
	atomic_fetch_add(&storm.ready, 1);
	code = in_the_storm(comm);
	atomic_fetch_add(&storm.ready, -1);
	while (!atomic_load(&storm.over))
		sleep_ms(1);
	return code;
}

static void *strike(void *arg)
{
	while (atomic_load(&storm.ready) < STORMED)
		sleep_ms(1);
	while (atomic_load(&storm.ready) > 0)
		for (int i = 0; i < STORMED; i++) {
			pthread_kill(storm.threads[i], SIGUSR1);
			nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
		}
	atomic_store(&storm.over, 1);
	return arg;
}

Test(waits, interruptions_are_harmless)
{
	struct sigaction act = { .sa_handler = caught }, after;
	pthread_t thread;

	cr_assert_eq(sigaction(SIGUSR1, &act, NULL), 0);
	cr_assert_eq(pthread_create(&thread, NULL, strike, NULL), 0);
	RANKS_OK(ranks_run(STORMED, NULL, stormed, NULL));
	pthread_join(thread, NULL);
	cr_expect_gt(atomic_load(&storm.caught), 1000);
	for (int number = 1; number < 32; number++) {
		cr_assert_eq(sigaction(number, NULL, &after), 0);
		cr_expect(number == SIGUSR1 || after.sa_handler == SIG_DFL ||
				after.sa_handler == SIG_IGN || SANITIZED,
			"a handler for signal %d", number);
	}
}

/* ---- small stacks -------------------------------------------------------------------------------------------------------------------------- */

static int on_a_small_stack(int index, void *arg)
{
	struct spmt_attr attr = ranks_attr(index, STORMED, arg);
	spmt_comm *comm;
	uint64_t *word;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 1000, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_put_nbi(comm, word, word, 8000, (index + 1) % STORMED));
	REQUIRE_OK(spmt_all_reduce(comm, word, word, 1000, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_CODE(spmt_put(comm, word, word, 8, 99), -EINVAL);
	REQUIRE_OK(spmt_set_timeout(comm, 20));
	REQUIRE_CODE(spmt_signal_wait(comm, word, SPMT_CMP_EQ, 5, NULL), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE_OK(spmt_free(comm, word));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(waits, stacks_of_64_kib)
{
	spmt_uid uid;

	if (SANITIZED)
		cr_skip_test("sanitizers need larger stacks");
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads_stack(STORMED, 64 << 10, on_a_small_stack, &uid));
}
