/* SPDX-License-Identifier: MIT */
/* What programs written from the documents alone found: each test failed before its fix. */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

TestSuite(acceptance, .timeout = 120);

enum { RANKS = 4 };

static void sleep_kernel(void *args)
{
	sleep_ms(*(const int *)args);
}

static struct spmt_attr attr_of(int64_t timeout_ms)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.heap_size = (size_t)4 << 20;
	attr.timeout_ms = timeout_ms;
	return attr;
}

/* ---- threads that end inside fn -------------------------------------------------------------- */

enum ending { BY_EXIT, BY_CANCEL };

struct ending_scene {
	enum ending how;
	pthread_t victim;
	_Atomic bool there;
	_Atomic int64_t begin; /* by calm_ns(): opening devices may take long */
};

static int end_inside(spmt_comm *comm, void *arg)
{
	struct ending_scene *scene = arg;

	atomic_store(&scene->begin, calm_ns());
	if (spmt_rank(comm) != 3)
		return spmt_barrier(comm);
	if (scene->how == BY_EXIT)
		pthread_exit(NULL);
	scene->victim = pthread_self();
	atomic_store(&scene->there, true);
	for (;;)
		sleep_ms(1000); /* a cancellation point */
}

static void *cancel_victim(void *arg)
{
	struct ending_scene *scene = arg;

	while (!atomic_load(&scene->there))
		sleep_ms(1);
	pthread_cancel(scene->victim);
	return NULL;
}

/* The others wait without a deadline: only the news of the death ends their barrier. */
static void ended_rank_is_named(enum ending how)
{
	struct spmt_attr attr = attr_of(-1);
	struct ending_scene scene = { .how = how };
	pthread_t canceller;

	NEEDS_DEVICES(RANKS);
	if (how == BY_CANCEL)
		pthread_create(&canceller, NULL, cancel_victim, &scene);
	cr_assert_eq(spmt_run(RANKS, &attr, end_inside, &scene), SPMT_ERR_PEER_DEAD);
	cr_expect_not_null(strstr(spmt_last_error(), "1 of 4 ranks"), "%s", spmt_last_error());
	cr_expect_not_null(strstr(spmt_last_error(), ": 3"), "%s", spmt_last_error());
	cr_expect_lt(calm_ns() - atomic_load(&scene.begin), 5000000000ll);
	if (how == BY_CANCEL)
		pthread_join(canceller, NULL);
}

Test(acceptance, run_tells_of_a_thread_that_exits)
{
	ended_rank_is_named(BY_EXIT);
}

Test(acceptance, run_tells_of_a_thread_that_is_cancelled)
{
	ended_rank_is_named(BY_CANCEL);
}

static int finalize(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

Test(acceptance, each_tells_of_a_thread_that_exits)
{
	struct ending_scene scene = { .how = BY_EXIT };
	struct spmt_attr attrs[RANKS];
	spmt_comm *comms[RANKS];

	for (int i = 0; i < RANKS; i++) {
		attrs[i] = attr_of(-1);
		attrs[i].rank = i;
		attrs[i].nranks = RANKS;
		attrs[i].device = device_of(i);
	}
	cr_assert_eq(spmt_init_all(RANKS, attrs, comms), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_each(RANKS, comms, end_inside, &scene), SPMT_ERR_PEER_DEAD);
	cr_expect_eq(spmt_status(comms[0]), SPMT_ERR_PEER_DEAD);
	spmt_each(RANKS, comms, finalize, NULL);
}

/* ---- the caller of spmt_run ------------------------------------------------------------------ */

static _Atomic int finished;

static int meet_late(spmt_comm *comm, void *arg)
{
	int code;

	(void)arg;
	sleep_ms(300);
	code = spmt_barrier(comm);
	atomic_fetch_add(&finished, code == 0);
	return code;
}

static void *call_run(void *arg)
{
	struct spmt_attr attr = attr_of(0);

	*(int *)arg = spmt_run(2, &attr, meet_late, NULL);
	return NULL;
}

/* Its stack holds what the ranks work on. */
Test(acceptance, run_is_no_cancellation_point)
{
	int code = 1;
	pthread_t caller;

	NEEDS_DEVICES(2);
	pthread_create(&caller, NULL, call_run, &code);
	sleep_ms(100);
	pthread_cancel(caller);
	pthread_join(caller, NULL);
	cr_expect_eq(code, 0);
	cr_expect_eq(atomic_load(&finished), 2);
}

/* ---- attributes of a later release ------------------------------------------------------------ */

struct later_attr {
	struct spmt_attr attr;
	uint64_t tail;
};

static void later_attrs(struct later_attr *later)
{
	memset(later, 0, RANKS * sizeof(*later));
	for (int i = 0; i < RANKS; i++) {
		later[i].attr = attr_of(2000 + opening_s() * 1000);
		later[i].attr.size = sizeof(*later);
		later[i].attr.rank = i;
		later[i].attr.nranks = RANKS;
		later[i].attr.device = device_of(i);
	}
}

Test(acceptance, init_all_steps_by_the_size_of_attrs)
{
	struct later_attr later[RANKS];
	spmt_comm *comms[RANKS];

	later_attrs(later);
	cr_assert_eq(spmt_init_all(RANKS, &later[0].attr, comms), 0, "%s", spmt_last_error());
	for (int i = 0; i < RANKS; i++)
		cr_expect_eq(spmt_rank(comms[i]), i);
	cr_expect_eq(spmt_each(RANKS, comms, finalize, NULL), 0);
	later[2].tail = 1;
	cr_expect_eq(spmt_init_all(RANKS, &later[0].attr, comms), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "attrs[2].size"), "%s", spmt_last_error());
	later[2].tail = 0;
	later[1].attr.size = sizeof(struct spmt_attr);
	cr_expect_eq(spmt_init_all(RANKS, &later[0].attr, comms), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "attrs[1].size"), "%s", spmt_last_error());
}

/* ---- quiet ------------------------------------------------------------------------------------ */

static int time_out_twice(spmt_comm *comm, void *arg)
{
	struct latch latch = { 0 }, *at = &latch;
	uint64_t *word = arg, seen = 0;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_set_timeout(comm, 50));
	REQUIRE_OK(stream_call(comm, NULL, latch_kernel, &at, sizeof(at)));
	REQUIRE_OK(spmt_signal_on_stream(comm, word, 1, SPMT_SIGNAL_SET, 0, NULL));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_status(comm));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_set_timeout(comm, 20000));
	REQUIRE(latch_open(&latch));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_signal_fetch(comm, word, &seen));
	REQUIRE_EQ(seen, 1);
	return 0;
}

Test(acceptance, quiet_waits_again_for_what_it_gave_up)
{
	RANKS_OK(ranks_run(1, NULL, time_out_twice, NULL));
}

struct per_thread {
	spmt_comm *comm;
	char *to, from[64];
	_Atomic bool queued, seen;
};

/* The stream lives as long as its thread. */
static void *queue_slowly(void *arg)
{
	struct per_thread *p = arg;
	int ms = 300;

	stream_call(p->comm, SPMT_STREAM_PER_THREAD, sleep_kernel, &ms, sizeof(ms));
	spmt_put_on_stream(p->comm, p->to, p->from, sizeof(p->from), 0, SPMT_STREAM_PER_THREAD);
	atomic_store(&p->queued, true);
	while (!atomic_load(&p->seen))
		sleep_ms(1);
	return NULL;
}

static int quiet_of_two_threads(spmt_comm *comm, void *arg)
{
	struct per_thread p = { .comm = comm };
	pthread_t other;
	int code;

	(void)arg;
	memset(p.from, 7, sizeof(p.from));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(p.from), (void **)&p.to));
	pthread_create(&other, NULL, queue_slowly, &p);
	while (!atomic_load(&p.queued))
		sleep_ms(1);
	code = spmt_put_on_stream(
		comm, p.to + sizeof(p.from), p.from, sizeof(p.from), 0, SPMT_STREAM_PER_THREAD);
	if (!code)
		code = spmt_quiet(comm);
	if (!code)
		code = sym_check_byte(comm, p.to, 7, 2 * sizeof(p.from));
	atomic_store(&p.seen, true);
	pthread_join(other, NULL);
	REQUIRE_OK(code);
	return 0;
}

Test(acceptance, quiet_covers_the_streams_of_all_threads)
{
	RANKS_OK(ranks_run(1, NULL, quiet_of_two_threads, NULL));
}

/* ---- sentences -------------------------------------------------------------------------------- */

static int names_of_buffers(spmt_comm *comm)
{
	void *sym;
	spmt_mem *mem;

	REQUIRE_OK(spmt_malloc(comm, 64, &sym));
	REQUIRE_OK(spmt_register(comm, sym, 64, &mem));
	REQUIRE_CODE(spmt_put(comm, sym, NULL, 8, 0), -EINVAL);
	REQUIRE_SAYS("spmt_put: rank 0: src is NULL with 8 bytes");
	REQUIRE_CODE(spmt_iget(comm, NULL, sym, 1, 1, 2, 4, 0), -EINVAL);
	REQUIRE_SAYS(" dst is NULL with 8 bytes");
	REQUIRE_CODE(spmt_copy_in(comm, sym, NULL, 8), -EINVAL);
	REQUIRE_SAYS(" host_src is NULL");
	REQUIRE_CODE(spmt_copy_out(comm, NULL, sym, 8), -EINVAL);
	REQUIRE_SAYS(" host_dst is NULL");
	REQUIRE_CODE(spmt_mem_put_nbi(comm, mem, 0, NULL, 8, 0), -EINVAL);
	REQUIRE_SAYS(" src is NULL");
	REQUIRE_CODE(spmt_mem_get(comm, NULL, mem, 0, 8, 0), -EINVAL);
	REQUIRE_SAYS(" dst is NULL");
	REQUIRE_OK(spmt_deregister(comm, mem));
	return spmt_free(comm, sym);
}

static int names_of_words(spmt_comm *comm, void *arg)
{
	uint64_t stranger = 0, one = 1;
	size_t index = 5;

	(void)arg;
	REQUIRE_CODE(spmt_signal_wait(comm, &stranger, SPMT_CMP_EQ, 1, NULL), -EINVAL);
	REQUIRE_SAYS("spmt_signal_wait: rank 0: sig ");
	REQUIRE_CODE(spmt_signal_fetch(comm, &stranger, &one), -EINVAL);
	REQUIRE_SAYS("sig ");
	REQUIRE_CODE(spmt_wait_until(comm, SPMT_TYPE_U64, &stranger, SPMT_CMP_EQ, &one), -EINVAL);
	REQUIRE_SAYS("ivar ");
	REQUIRE_CODE(
		spmt_test_any(comm, SPMT_TYPE_U64, &stranger, 1, NULL, SPMT_CMP_EQ, &one, &index),
		-EINVAL);
	REQUIRE_SAYS("ivars ");
	REQUIRE_CODE(spmt_wait_until_any(comm, SPMT_TYPE_U64, &stranger, SIZE_MAX, NULL,
			     SPMT_CMP_EQ, &one, &index),
		-EINVAL);
	REQUIRE_SAYS("ivars ");
	REQUIRE_EQ(index, 5);
	return names_of_buffers(comm);
}

Test(acceptance, sentences_call_words_as_the_prototypes_do)
{
	RANKS_OK(ranks_run(1, NULL, names_of_words, NULL));
}

/* The sentence has the offset and the value of a word that is waited for and does not hold. */
static int names_its_word(spmt_comm *comm, void *arg)
{
	static const int32_t words[8] = { 1, -7, 1, 1, -7, 1, 1, 1 }, one = 1, two = 2;
	static const int all_but_5[8] = { 1, 1, 1, 1, 1, 0, 1, 1 };
	float half = 0.5f, more = -1.5f;
	size_t index[8], found;
	int32_t *ivars;

	(void)arg;
	REQUIRE_OK(spmt_aligned_alloc(comm, 4096, sizeof(words), (void **)&ivars));
	REQUIRE_OK(spmt_copy_in(comm, ivars, words, sizeof(words)));
	REQUIRE_OK(spmt_set_timeout(comm, 20));
	REQUIRE_CODE(spmt_wait_until_all(comm, SPMT_TYPE_I32, ivars, 8, (const int[8]){ 0, 1 },
			     SPMT_CMP_EQ, &one),
		SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("10 is -7, waited for == 1");
	REQUIRE_CODE(spmt_wait_until_any(
			     comm, SPMT_TYPE_I32, ivars, 8, all_but_5, SPMT_CMP_EQ, &two, index),
		SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("14 is 1, waited for == 2");
	REQUIRE_CODE(spmt_wait_until_some(comm, SPMT_TYPE_I32, ivars, 8, all_but_5, SPMT_CMP_LT,
			     &one, index, &found),
		SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("14 is 1, waited for < 1");
	REQUIRE_OK(spmt_copy_in(comm, ivars, &half, sizeof(half)));
	REQUIRE_CODE(
		spmt_wait_until(comm, SPMT_TYPE_F32, ivars, SPMT_CMP_LE, &more), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS(" is 0.5, waited for <= -1.5");
	return 0;
}

Test(acceptance, a_sentence_names_its_word)
{
	RANKS_OK(ranks_run(1, NULL, names_its_word, NULL));
}

Test(acceptance, what_is_wrong_is_named_not_its_neighbour)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm;
	spmt_uid uid;

	attr.nranks = -1;
	cr_assert_eq(spmt_init(&attr, &comm), -EINVAL);
	cr_expect_not_null(strstr(spmt_last_error(), "attr.nranks -1"), "%s", spmt_last_error());
	cr_assert_eq(spmt_uid_create(&uid), 0);
	attr.uid = &uid;
	attr.nranks = INT_MAX; /* no table of so many is made */
	cr_expect_eq(spmt_init(&attr, &comm), -EINVAL);
	cr_expect_not_null(
		strstr(spmt_last_error(), "at most 32768 ranks"), "%s", spmt_last_error());
}

Test(acceptance, counting_devices_leaves_no_sentence)
{
	int count;

	cr_assert_eq(spmt_device_count(NULL, &count), 0);
	cr_expect_str_empty(spmt_last_error());
	cr_expect_lt(spmt_device_count("nowhere", &count), 0);
	cr_expect_not_null(strstr(spmt_last_error(), "spmt_device_count: "));
}

/* Backends without devices that were passed over are no failure of init. */
Test(acceptance, init_leaves_no_sentence)
{
	struct spmt_attr attr = attr_of(INT64_MAX);
	spmt_comm *comm;

	attr.nranks = 1;
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_expect_str_empty(spmt_last_error());
	cr_expect_eq(spmt_finalize(comm), 0);
	attr.backend = "nowhere";
	cr_expect_lt(spmt_init(&attr, &comm), 0);
	cr_expect_not_null(strstr(spmt_last_error(), "spmt_init: rank 0: attr.backend: "));
}

static int wait_long(spmt_comm *comm, void *arg)
{
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	if (spmt_rank(comm) == 0)
		sleep_ms(30);
	REQUIRE_OK(spmt_signal(comm, word, 1, SPMT_SIGNAL_SET, 1 - spmt_rank(comm)));
	REQUIRE_OK(spmt_signal_wait(comm, word, SPMT_CMP_EQ, 1, NULL));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

Test(acceptance, the_longest_deadline_is_no_short_one)
{
	struct spmt_attr attr = attr_of(INT64_MAX);

	RANKS_OK(ranks_run(2, &attr, wait_long, NULL));
}

Test(acceptance, the_longest_deadline_is_one)
{
	struct spmt_attr attr = attr_of(0);
	spmt_comm *comm;

	attr.nranks = 1;
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_set_timeout(comm, INT64_MAX), 0);
	cr_expect_eq(spmt_barrier(comm), 0);
	cr_expect_eq(spmt_finalize(comm), 0);
}
