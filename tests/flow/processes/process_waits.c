/* SPDX-License-Identifier: MIT */
/* Waits across processes sleep as in one: they use next to no CPU, end when another process stores, and keep deadlines. */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt/comm/comm.h"
#include "tests/lib/processes.h"

/* ---- idle ----------------------------------------------------------------------------------------------------------- */

enum wait { BARRIER, MALLOC, SIGNAL, ANY, ON_STREAM, ALL_REDUCE, WAITS };

static const char *const wait_names[] = { "barrier", "malloc", "signal_wait", "wait_until_any",
	"signal_wait_on_stream", "all_reduce" };

enum { IDLE_MS = 500, IDLE_PERCENT = SANITIZED ? 40 : 5, WORDS = 16 };

struct idle {
	struct processes p;
	_Atomic int64_t cpu[WAITS][PROCESSES_MOST];
};

/* One wait that ends when rank 0 has called wait_end for it. */
static int wait_begin(spmt_comm *comm, enum wait w, uint64_t *words, uint64_t *sum)
{
	uint64_t one = 1;
	size_t index;
	void *block;

	switch (w) {
	case BARRIER:
		return spmt_barrier(comm);
	case MALLOC:
		return spmt_malloc(comm, 64, &block);
	case SIGNAL:
		return spmt_signal_wait(comm, &words[SIGNAL], SPMT_CMP_EQ, 1, NULL);
	case ANY:
		return spmt_wait_until_any(
			comm, SPMT_TYPE_U64, &words[ANY], 1, NULL, SPMT_CMP_EQ, &one, &index);
	case ON_STREAM:
		REQUIRE_OK(
			spmt_signal_wait_on_stream(comm, &words[ON_STREAM], SPMT_CMP_EQ, 1, NULL));
		return spmt_quiet(comm);
	default:
		REQUIRE_OK(spmt_all_reduce(comm, sum, &one, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		return spmt_quiet(comm);
	}
}

static int wait_end(spmt_comm *comm, enum wait w, uint64_t *words, uint64_t *sum)
{
	if (w == BARRIER || w == MALLOC || w == ALL_REDUCE)
		return wait_begin(comm, w, words, sum);
	for (int pe = 1; pe < spmt_nranks(comm); pe++)
		REQUIRE_OK(spmt_signal(comm, &words[w], 1, SPMT_SIGNAL_SET, pe));
	return 0;
}

/* Rank 0 stands for its process, the lowest rank of each other for that. */
static int idle(spmt_comm *comm, void *arg)
{
	struct idle *s = arg;
	int me = spmt_rank(comm), process = processes_of(s->p.layout, me);
	uint64_t *words, sum = 0;

	REQUIRE_OK(spmt_calloc(comm, WORDS, sizeof(*words), (void **)&words));
	for (enum wait w = BARRIER; w < WAITS; w++) {
		int64_t before;

		REQUIRE_OK(spmt_barrier(comm));
		before = cpu_ns();
		if (me == 0)
			sleep_ms(IDLE_MS);
		TRY(me ? wait_begin(comm, w, words, &sum) : wait_end(comm, w, words, &sum));
		if (processes_position(s->p.layout, me) == 0)
			atomic_store(&s->cpu[w][process], cpu_ns() - before);
		if (w == ALL_REDUCE)
			REQUIRE_EQ(sum, spmt_nranks(comm));
	}
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

/* How many processes used too much in some wait; `text` tells of the last. */
static int used_cpu(const struct idle *s, char text[200])
{
	int busy = 0;

	for (int w = 0; w < WAITS; w++)
		for (int p = 0; p < s->p.n; p++) {
			int64_t ms = atomic_load(&s->cpu[w][p]) / 1000000;

			if (ms <= IDLE_MS * IDLE_PERCENT / 100)
				continue;
			snprintf(text, 200, "%s: ranks of process %d in %s used %lld of %d ms",
				s->p.layout, p, wait_names[w], (long long)ms, IDLE_MS);
			busy++;
		}
	return busy;
}

/* Measured again, twice at the most, where others had the CPUs and their caches. */
static void uses_no_cpu(const char *layout)
{
	char text[200] = "";
	int busy = 1;

	NEEDS_HOST("the CPU that a driver's waits take");
	for (int tries = 0; tries < 3 && busy; tries++) {
		struct idle *s = processes_shared(sizeof(*s));

		cr_assert_not_null(s);
		s->p.layout = layout;
		RANKS_OK(processes_world(&s->p, idle, s));
		busy = used_cpu(s, text);
	}
	cr_expect_eq(busy, 0, "%s", text);
}

Test(process_waits, idle_waits_use_no_cpu)
{
	uses_no_cpu("0,1,2,3|4,5,6,7");
	uses_no_cpu("0|1|2|3|4|5|6|7");
}

/* ---- woken ---------------------------------------------------------------------------------------------------------- */

enum store { PUT, PUT_NBI, PUT_ON_STREAM, PUT_SIGNAL, SET_SIGNAL, ATOMIC, MEET, STORES };

static const char *const store_names[] = { "put", "put_nbi", "put_on_stream", "put_signal",
	"signal", "atomic", "barrier" };

enum { TURNS = 16 };

struct woken {
	struct processes p;
	_Atomic int64_t told;
	_Atomic int64_t late[STORES][TURNS];
};

static int store(spmt_comm *comm, enum store how, int64_t *word, int64_t value)
{
	uint64_t bits = (uint64_t)value;

	switch (how) {
	case PUT:
		return spmt_put(comm, word, &value, sizeof(value), 0);
	case PUT_NBI:
		REQUIRE_OK(spmt_put_nbi(comm, word, &value, sizeof(value), 0));
		return spmt_quiet(comm);
	case PUT_ON_STREAM:
		REQUIRE_OK(spmt_put_on_stream(comm, word, &value, sizeof(value), 0, NULL));
		return spmt_quiet(comm);
	case PUT_SIGNAL:
		return spmt_put_signal(comm, word + 1, &value, sizeof(value), (uint64_t *)word,
			bits, SPMT_SIGNAL_SET, 0);
	case SET_SIGNAL:
		return spmt_signal(comm, (uint64_t *)word, bits, SPMT_SIGNAL_SET, 0);
	case ATOMIC:
		return spmt_atomic(comm, SPMT_AMO_SET, SPMT_TYPE_I64, word, &value, NULL, NULL, 0);
	default:
		return spmt_barrier(comm);
	}
}

static int stored(spmt_comm *comm, enum store how, int64_t *word, int64_t value)
{
	return how == MEET ? spmt_barrier(comm)
			   : spmt_wait_until(comm, SPMT_TYPE_I64, word, SPMT_CMP_EQ, &value);
}

/* Rank 0 has slept for a while when the last rank, in another process, stores. Processes share the clock. */
static int wakes(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), last = spmt_nranks(comm) - 1;
	struct woken *s = arg;
	int64_t *word;

	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	for (int i = 0; i < STORES * TURNS; i++) {
		enum store how = (enum store)(i / TURNS);

		REQUIRE_OK(spmt_barrier(comm));
		if (me == last) {
			sleep_ms(13);
			atomic_store(&s->told, calm_ns());
			REQUIRE_OK(store(comm, how, word, i + 1));
		} else if (me == 0) {
			REQUIRE_OK(stored(comm, how, word, i + 1));
			atomic_store(&s->late[how][i % TURNS], calm_ns() - atomic_load(&s->told));
		} else if (how == MEET) {
			REQUIRE_OK(spmt_barrier(comm));
		}
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* How many kinds of stores wake late; `text` tells of the last. */
static int woken_late(const struct woken *s, char text[200])
{
	int slow = 0;

	for (int how = 0; how < STORES; how++) {
		int64_t late[TURNS];

		for (int i = 0; i < TURNS; i++)
			late[i] = atomic_load(&s->late[how][i]);
		qsort(late, TURNS, sizeof(*late), compare);
		if (late[TURNS / 4 - 1] < 500000)
			continue;
		snprintf(text, 200, "%s: woken by %s after %lld us", s->p.layout, store_names[how],
			(long long)(late[TURNS / 4 - 1] / 1000));
		slow++;
	}
	return slow;
}

/*
 * A waiter that looks every few ms, woken by nobody, would hardly ever be so early four times of 16, in three tries neither. Others
 * that have the CPUs make a woken one late.
 */
static void wakes_at_once(const char *layout)
{
	char text[200] = "";
	int slow = 1;

	NEEDS_HOST("a word in a GPU's memory is looked at, not slept on");
	for (int tries = 0; tries < 3 && slow; tries++) {
		struct woken *s = processes_shared(sizeof(*s));

		cr_assert_not_null(s);
		s->p.layout = layout;
		RANKS_OK(processes_world(&s->p, wakes, s));
		slow = woken_late(s, text);
	}
	cr_expect_eq(slow, 0, "%s", text);
}

Test(process_waits, a_store_wakes_at_once)
{
	wakes_at_once("0|1");
	wakes_at_once("0,1,2,3|4,5,6,7");
}

/* ---- deadlines ------------------------------------------------------------------------------------------------------ */

enum { DEADLINE_MS = 150, SLACK_MS = 4000 };

static int in_time(int64_t begin, int64_t least)
{
	int64_t ms = (now_ns() - begin) / 1000000;

	if (ms >= least && ms < DEADLINE_MS + SLACK_MS)
		return 0;
	return ranks_fail("a deadline of %d ms after %lld", DEADLINE_MS, (long long)ms);
}

/* All but the last have come so far: who is ahead by a deadline would end the waits of the others by that of the barrier. */
static int others_come(spmt_comm *comm, uint64_t *word)
{
	uint64_t come = 0, all = (uint64_t)spmt_nranks(comm) - 1;

	REQUIRE_OK(spmt_set_timeout(comm, 20000));
	REQUIRE_OK(spmt_signal(comm, word, 1, SPMT_SIGNAL_ADD, 0));
	for (; come < all; sleep_ms(1))
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_FETCH, SPMT_TYPE_U64, word, NULL, NULL, &come, 0));
	return spmt_set_timeout(comm, DEADLINE_MS);
}

/* The last rank stays away; what it is waited for with leaves the world whole, but for the barrier. */
static int deadlines(spmt_comm *comm, void *arg)
{
	int last = spmt_nranks(comm) - 1, never = 77;
	uint64_t *words, value = 1;
	size_t index = SIZE_MAX;
	int64_t begin;
	char list[16];

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 5, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == last) {
		while (spmt_status(comm) == 0)
			sleep_ms(1);
		REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
		return 0;
	}
	REQUIRE_OK(spmt_set_timeout(comm, DEADLINE_MS));
	begin = now_ns();
	REQUIRE_CODE(spmt_signal_wait(comm, words, SPMT_CMP_EQ, 1, NULL), SPMT_ERR_TIMEOUT);
	TRY(in_time(begin, DEADLINE_MS));
	begin = now_ns();
	REQUIRE_CODE(
		spmt_wait_until(comm, SPMT_TYPE_I32, words, SPMT_CMP_EQ, &never), SPMT_ERR_TIMEOUT);
	TRY(in_time(begin, DEADLINE_MS));
	begin = now_ns();
	REQUIRE_CODE(spmt_wait_until_any(
			     comm, SPMT_TYPE_U64, words, 4, NULL, SPMT_CMP_EQ, &value, &index),
		SPMT_ERR_TIMEOUT);
	TRY(in_time(begin, DEADLINE_MS));
	TRY(others_come(comm, words + 4));
	begin = now_ns();
	/* Whoever came first has the first deadline, which ends it for all, however late they come. */
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	TRY(in_time(begin, 0));
	snprintf(list, sizeof(list), ": %d", last);
	REQUIRE_SAYS("1 of ");
	REQUIRE_SAYS(list);
	return 0;
}

static int past_deadlines(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	TRY(deadlines(comm, NULL));
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(process_waits, deadlines_hold)
{
	struct processes p = { .layout = "0,1|2,3" }, each = { .layout = "0|1|2" };

	RANKS_OK(processes_run(&p, past_deadlines, &p));
	RANKS_OK(processes_run(&each, past_deadlines, &each));
}

/* ---- parts of a broken world ----------------------------------------------------------------------------------------- */

/* Whoever has heard that the world is broken finds its part broken, too. */
static int part_goes_on(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	spmt_comm *world, *part;
	spmt_uid next;
	int mine, n;

	REQUIRE_OK(spmt_init(&attr, &world));
	ranks_watch(world);
	REQUIRE_OK(spmt_split(world, rank != 0, 0, &part));
	REQUIRE_OK(spmt_barrier(world));
	if (rank == 0)
		REQUIRE_OK(spmt_abort(world, -44));
	else
		REQUIRE_CODE(spmt_barrier(world), -44);
	REQUIRE_OK(spmt_shrink(part, &next, &mine, &n));
	REQUIRE_EQ(n, rank ? p->nranks - 1 : 1);
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(world));
	return 0;
}

Test(process_waits, a_part_is_broken_with_its_world)
{
	struct processes p = { .layout = "0|1,2" }, each = { .layout = "0|1|2" };

	for (int i = 0; i < 5; i++) {
		RANKS_OK(processes_run(&p, part_goes_on, &p));
		RANKS_OK(processes_run(&each, part_goes_on, &each));
	}
}

/* Who waits in a part, of any process, is woken and told by the break alone: nobody makes another call. */
static int part_waits(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	_Atomic int *told = p->shared;
	spmt_comm *world, *part;
	uint64_t *word;

	attr.timeout_ms = 10000;
	REQUIRE_OK(spmt_init(&attr, &world));
	REQUIRE_OK(spmt_split(world, rank != 0, 0, &part));
	REQUIRE_OK(spmt_calloc(part, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_barrier(world));
	if (rank == 0) {
		sleep_ms(30); /* they wait by now, or else find out when they begin */
		REQUIRE_OK(spmt_abort(world, -44));
		for (int i = 0; i < 20000 && atomic_load(told) < p->nranks - 1; i++)
			sleep_ms(1);
	} else {
		int code = rank == 1 ? spmt_barrier(part)
				     : spmt_signal_wait(part, word, SPMT_CMP_EQ, 1, NULL);

		atomic_fetch_add(told, 1);
		REQUIRE_CODE(code, -44);
		REQUIRE_SAYS("rank 0 aborted the world");
	}
	REQUIRE_OK(spmt_finalize(world));
	return 0;
}

Test(process_waits, a_part_is_woken_when_its_world_breaks)
{
	static const char *const layouts[] = { "0,1,2,3", "0,1|2,3", "0|1|2|3" };

	for (int i = 0; i < 3; i++) {
		struct processes p = { .layout = layouts[i] };

		p.shared = processes_shared(sizeof(int));
		RANKS_OK(processes_run(&p, part_waits, &p));
	}
}

/* ---- two causes ------------------------------------------------------------------------------------------------------ */

/* Another process was the first in the shared memory, and now comes to write why. */
static void *writes_why(void *arg)
{
	struct control *control = arg;
	struct cause cause;

	cause_set(&cause, -56, NULL, "in the shared memory");
	sleep_ms(20);
	atomic_store(&control->claimed, 0);
	control_break(control, &cause);
	return NULL;
}

/* What a call says is what the next one reads. */
static int two_causes(spmt_comm *comm, void *arg)
{
	struct control *control = comm->control;
	struct cause here;
	pthread_t thread;

	(void)arg;
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		cause_set(&here, -55, NULL, "in this process");
		control_break(comm->world->local, &here);
		atomic_store(&control->claimed, 1);
		atomic_fetch_or(&control->gate, GATE_BROKEN);
		REQUIRE(!pthread_create(&thread, NULL, writes_why, control));
	}
	REQUIRE_CODE(spmt_barrier(comm), -56);
	REQUIRE_SAYS("in the shared memory");
	REQUIRE_CODE(spmt_status(comm), -56);
	return spmt_rank(comm) ? 0 : pthread_join(thread, NULL);
}

static int of_two_causes(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	TRY(two_causes(comm, NULL));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

Test(process_waits, a_world_has_one_cause)
{
	struct processes p = { .layout = "0|1" };

	RANKS_OK(processes_run(&p, of_two_causes, &p));
}

/* ---- memory of a broken world ------------------------------------------------------------------------------------- */

struct late {
	struct processes p;
	_Atomic int *step;
};

static int until(const struct late *l, int step)
{
	for (int64_t end = now_ns() + 20000000000; atomic_load(l->step) < step; sleep_ms(1))
		if (now_ns() > end)
			return ranks_fail("the other process is not at step %d", step);
	return 0;
}

/* Its process has not left the broken world yet. */
static int late_writes(spmt_comm *comm, const struct late *l, uint64_t *far)
{
	spmt_stream s;

	REQUIRE(far);
	REQUIRE_OK(stream_make(comm, &s));
	atomic_store(l->step, 1);
	TRY(until(l, 2));
	if (on_host()) /* where nothing is launched in a broken world */
		__atomic_store_n(far, 77, __ATOMIC_RELAXED);
	else
		REQUIRE_OK(stream_store(comm, s, far, 77));
	REQUIRE_OK(stream_wait(comm, s));
	REQUIRE_OK(stream_end(comm, s));
	atomic_store(l->step, 3);
	return 0;
}

static int late_world(struct late *l)
{
	spmt_comm *comm;
	uint64_t *w;
	spmt_uid uid;
	struct spmt_attr attr;

	REQUIRE_OK(spmt_uid_create(&uid));
	attr = ranks_attr(0, 1, &uid);
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 64, 8, (void **)&w));
	atomic_store(l->step, 2);
	TRY(until(l, 3));
	TRY(sym_check_byte(comm, w, 0, 64 * 8));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int late_rank(int rank, void *arg)
{
	struct late *l = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &l->p.uid[0]);
	spmt_comm *comm;
	uint64_t *w;

	setenv("SPMT_HEAP_MODE", "static", 1); /* a range of one world is never another's */
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 64, 8, (void **)&w));
	if (rank) {
		TRY(late_writes(comm, l, spmt_ptr(comm, w, 0)));
		spmt_finalize(comm);
		return 0;
	}
	TRY(until(l, 1));
	spmt_abort(comm, -4242);
	spmt_finalize(comm);
	return late_world(l);
}

Test(process_waits, memory_of_a_broken_world_is_nobodys_while_others_map_it)
{
	struct late l = { .p = { .layout = "0|1" } };

	l.step = processes_shared(sizeof(*l.step));
	cr_assert_not_null(l.step);
	RANKS_OK(processes_run(&l.p, late_rank, &l));
}
