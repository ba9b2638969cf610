/* SPDX-License-Identifier: MIT */
/* Bad handles, ranks that are refused, and work that outlives its world: what every end leaves to the others. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "spmt/comm/comm.h"
#include "spmt_device.h"
#include "tests/lib/ranks.h"

TestSuite(ends, .timeout = 120);

#define KERNELS "kernels are C functions"

/* ---- dead streams ------------------------------------------------------------------------------ */

struct dead {
	spmt_comm *comm;
	uint64_t *words;
	spmt_mem *mem;
	spmt_stream stream;
};

static void never(void *args)
{
	(void)args;
	_exit(9);
}

/* The call's text begins with its name. */
static int named(const struct dead *d, const char *text, int code)
{
	char start[96], value[32];

	snprintf(start, sizeof(start), "%.*s: rank %d: ", (int)strcspn(text, "("), text,
		spmt_rank(d->comm));
	snprintf(value, sizeof(value), "%p", d->stream);
	if (code != -EINVAL)
		return ranks_fail("%s gave %d", text, code);
	if (strncmp(spmt_last_error(), start, strlen(start)) != 0 ||
		!strstr(spmt_last_error(), value))
		return ranks_fail(
			"%s: no \"%s\" and %s in: %s", text, start, value, spmt_last_error());
	return 0;
}

#define DEAD(call) TRY(named(d, #call, (call)))

static int dead_moves(const struct dead *d)
{
	spmt_comm *c = d->comm;
	uint64_t *w = d->words, local[4] = { 0 };
	spmt_stream s = d->stream;

	DEAD(spmt_put_on_stream(c, w, local, 8, 1, s));
	DEAD(spmt_get_on_stream(c, local, w, 8, 1, s));
	DEAD(spmt_put_signal_on_stream(c, w, local, 8, w + 1, 1, SPMT_SIGNAL_SET, 1, s));
	DEAD(spmt_put_signal_on_stream(c, w, local, 0, w + 1, 1, SPMT_SIGNAL_SET, 1, s));
	DEAD(spmt_signal_on_stream(c, w, 1, SPMT_SIGNAL_ADD, 1, s));
	DEAD(spmt_signal_wait_on_stream(c, w, SPMT_CMP_EQ, 0, s));
	DEAD(spmt_mem_put_on_stream(c, d->mem, 0, local, 8, 1, s));
	DEAD(spmt_mem_get_on_stream(c, local, d->mem, 0, 8, 1, s));
	DEAD(spmt_quiet_on_stream(c, s));
	DEAD(spmt_host_launch(c, s, never, NULL, 0));
	return 0;
}

static int dead_collectives(const struct dead *d)
{
	spmt_comm *c = d->comm;
	uint64_t *a = d->words, *b = d->words + 16;
	const int to[2] = { 1, 0 };
	spmt_stream s = d->stream;

	DEAD(spmt_barrier_on_stream(c, s));
	DEAD(spmt_broadcast(c, a, b, 1, SPMT_TYPE_U64, 0, s));
	DEAD(spmt_all_gather(c, a, b, 1, SPMT_TYPE_U64, s));
	DEAD(spmt_all_to_all(c, a, b, 1, SPMT_TYPE_U64, s));
	DEAD(spmt_permute(c, a, b, 1, SPMT_TYPE_U64, to, s));
	DEAD(spmt_reduce_scatter(c, a, b, 1, SPMT_TYPE_U64, SPMT_OP_SUM, s));
	DEAD(spmt_all_reduce(c, a, b, 1, SPMT_TYPE_U64, SPMT_OP_SUM, s));
	return 0;
}

static int dead_streams(spmt_comm *comm, void *arg)
{
	struct dead d = { .comm = comm };

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 64, 8, (void **)&d.words));
	REQUIRE_OK(spmt_register(comm, d.words, 64, &d.mem));
	REQUIRE_OK(spmt_host_stream_create(comm, &d.stream));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_host_stream_destroy(d.stream));
	REQUIRE_OK(spmt_barrier(comm)); /* or the other's stream may get this one's handle */
	for (int i = 0; i < 2; i++) {
		TRY(dead_moves(&d));
		TRY(dead_collectives(&d));
		d.stream = (spmt_stream)(uintptr_t)0x1230; /* never was one */
	}
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	return sym_check_byte(comm, d.words, 0, 64 * 8);
}

Test(ends, dead_streams_are_named_with_function_and_rank)
{
	NEEDS_HOST("a driver may have given a dead stream's handle away again, or crash on it");
	RANKS_OK(ranks_run(2, NULL, dead_streams, NULL));
}

/* ---- default streams ----------------------------------------------------------------------------- */

static void slow(void *args)
{
	_Atomic int *done = *(_Atomic int **)args;

	sleep_ms(100);
	atomic_fetch_add(done, 1);
}

static int default_streams(spmt_comm *comm, void *arg)
{
	const spmt_stream streams[] = { SPMT_STREAM_LEGACY, SPMT_STREAM_PER_THREAD };
	_Atomic int done = 0, *at = &done;

	(void)arg;
	for (int i = 0; i < 2; i++) {
		REQUIRE_OK(stream_call(comm, streams[i], slow, &at, sizeof(at)));
		REQUIRE_OK(stream_wait(comm, streams[i]));
		REQUIRE_EQ(done, i + 1);
		REQUIRE(!on_host() || spmt_host_stream_destroy(streams[i]) < 0);
	}
	return 0;
}

Test(ends, default_streams_are_synchronised_on_any_device)
{
	RANKS_OK(ranks_run(3, NULL, default_streams, NULL));
}

/* ---- sizes and values in sentences ------------------------------------------------------------------ */

static int sizes(spmt_comm *comm, void *arg)
{
	struct spmt_route route = { .size = 11, .pe = -5 };
	struct spmt_stats stats = { .size = 12, .ops = 99 };

	(void)arg;
	REQUIRE_CODE(spmt_route(comm, 0, &route), -EINVAL);
	REQUIRE_SAYS("spmt_route: rank 0: route->size 11");
	REQUIRE_EQ(route.pe, -5);
	REQUIRE_CODE(spmt_stats(comm, 0, &stats), -EINVAL);
	REQUIRE_SAYS("spmt_stats: rank 0: stats->size 12");
	REQUIRE_EQ(stats.ops, 99);
	REQUIRE(spmt_host_set_device(-3) < 0);
	REQUIRE_SAYS("spmt_host_set_device: ");
	REQUIRE_SAYS("-3");
	return 0;
}

Test(ends, sizes_and_ordinals_are_named)
{
	RANKS_OK(ranks_run(1, NULL, sizes, NULL));
}

static int two_guards(spmt_comm *comm)
{
	/* clang-format off */
	SPMT_GUARD(comm); SPMT_GUARD(comm);
	/* clang-format on */
	return spmt_host_get_device() == spmt_device(comm) ? 0 : ranks_fail("not bound");
}

static int guards(spmt_comm *comm, void *arg)
{
	int before = spmt_host_get_device();

	(void)arg;
	TRY(two_guards(comm));
	REQUIRE_EQ(spmt_host_get_device(), before);
	return 0;
}

Test(ends, two_guards_fit_on_a_line)
{
	NEEDS_HOST("spmt_host_get_device");
	RANKS_OK(ranks_run(2, NULL, guards, NULL));
}

/* ---- refused ranks ------------------------------------------------------------------------------------ */

static int meet_once(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_barrier(comm);
}

/* Whichever rank is refused, however early: nobody waits out the deadline of 10 s. */
static int refused_among(int n, int odd, int kind)
{
	struct spmt_attr attrs[4];
	spmt_comm *comms[4] = { NULL };
	int64_t begin = now_ns();

	for (int i = 0; i < n; i++)
		attrs[i] = ranks_attr(i, n, NULL);
	if (kind == 0)
		attrs[odd].device = 1000;
	else if (kind == 1)
		attrs[odd].device = -7;
	else
		attrs[odd].heap_size = SIZE_MAX;
	cr_expect_lt(spmt_init_all(n, attrs, comms), 0);
	cr_expect_null(comms[0]);
	return (int)((now_ns() - begin) / 1000000);
}

Test(ends, a_refused_rank_is_heard_by_those_that_come_later)
{
	for (size_t i = 0; i < test_count(48, 480); i++)
		cr_assert_lt(refused_among(4, (int)(i % 4), (int)(i / 4 % 3)), 5000);
}

Test(ends, too_many_ranks_are_told_so_in_one_voice)
{
	int count;

	cr_assert_eq(spmt_device_count(NULL, &count), 0);
	for (size_t i = 0; i < test_count(40, 400); i++) {
		cr_assert_eq(spmt_run(count + 1, NULL, meet_once, NULL), -ENODEV);
		cr_assert_eq(strncmp(spmt_last_error(), "spmt_init: rank ", 16), 0, "%s",
			spmt_last_error());
		cr_assert_not_null(strstr(spmt_last_error(),
					   on_host() ? "SPMT_HOST_DEVICES" : " of its process, "),
			"%s", spmt_last_error());
	}
}

static int odd_code(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_rank(comm) == 1 ? -4242 : spmt_barrier(comm);
}

Test(ends, a_code_of_the_users_has_a_sentence)
{
	NEEDS_DEVICES(2);
	cr_assert_eq(spmt_run(ranks_here(3), NULL, odd_code, NULL), -4242);
	cr_expect_str_eq(spmt_last_error(), "spmt_run: rank 1: fn returned -4242");
}

/* ---- a rank that returned ------------------------------------------------------------------------------- */

static int all_but_one_reduce(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), rc;
	_Atomic int *named = arg;
	char head[64], tail[32];
	uint64_t *w;

	REQUIRE_OK(spmt_calloc(comm, 64, 8, (void **)&w));
	REQUIRE_OK(spmt_set_timeout(comm, 1000)); /* not of init, which opens devices */
	if (spmt_rank(comm) == n / 2) {
		sleep_ms(400); /* so that its finalize is not the first to give up */
		return 0;
	}
	REQUIRE_OK(spmt_all_reduce(comm, w, w + 8, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	rc = spmt_quiet(comm);
	snprintf(head, sizeof(head), "1 of %d ranks missing after ", n);
	snprintf(tail, sizeof(tail), " s: %d", n / 2);
	if (calm_says(spmt_last_error(), head, 1, tail))
		atomic_fetch_add(named, 1);
	return rc;
}

Test(ends, others_name_the_rank_that_returned)
{
	_Atomic int named = 0;
	int n = ranks_here(4);

	NEEDS_DEVICES(2);
	cr_assert_lt(spmt_run(n, NULL, all_but_one_reduce, &named), 0);
	cr_expect_eq(atomic_load(&named), n - 1, "%s", spmt_last_error());
}

/* ---- work that outlives its world -------------------------------------------------------------------------- */

struct outliving {
	struct spmt_view view;
	uint64_t *words;
	_Atomic int *awake;
};

/* By now its rank has finalized and the world is broken. */
static void outlive(void *args)
{
	struct outliving *o = args;

	sleep_ms(2500);
	spmtd_uint64_p(&o->view, o->words, 5, 1 - o->view.pe);
	if (spmtd_signal_wait_until(&o->view, o->words + 8, SPMT_CMP_EQ, 77) != 0)
		atomic_fetch_add(o->awake, 1);
}

static int leave_work_behind(spmt_comm *comm, void *arg)
{
	struct outliving o = { .view.size = sizeof(o.view), .awake = arg };
	int other = 1 - spmt_rank(comm);
	uint64_t *w;

	REQUIRE_OK(spmt_calloc(comm, 256, 8, (void **)&w));
	o.words = w;
	REQUIRE_OK(spmt_view_get(comm, &o.view));
	REQUIRE_OK(spmt_host_launch(comm, NULL, outlive, &o, sizeof(o)));
	REQUIRE_OK(spmt_put_on_stream(comm, w + 16, w + 32, 64, other, NULL));
	REQUIRE_OK(spmt_signal_on_stream(comm, w + 9, 1, SPMT_SIGNAL_ADD, other, NULL));
	REQUIRE_OK(spmt_all_reduce(comm, w + 64, w + 128, 8, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_sync(comm));
	return spmt_rank(comm) ? spmt_quiet(comm) : -4242;
}

Test(ends, work_may_outlive_a_broken_world)
{
	struct usage before, slack = { .fds = 0, .threads = 0, .maps = 32, .rss_kib = 4096 };
	struct spmt_attr attr = SPMT_ATTR_INIT;
	_Atomic int awake = 0;
	const char *grown = "never looked";

	NEEDS_HOST(KERNELS);
	cr_assert_eq(spmt_run(2, NULL, meet_once, NULL), 0);
	before = usage_now();
	attr.heap_size = (size_t)4 << 20;
	cr_assert_eq(spmt_run(2, &attr, leave_work_behind, &awake), -4242, "%s", spmt_last_error());
	cr_assert_eq(atomic_load(&awake), 0, "finalize waited for a user's kernel");
	cr_assert_eq(spmt_run(2, NULL, meet_once, NULL), 0);
	for (int i = 0; i < 300 && (grown || atomic_load(&awake) < 2); i++) {
		sleep_ms(50);
		grown = usage_grown(&before, &slack);
	}
	cr_expect_eq(atomic_load(&awake), 2);
	cr_expect_null(grown, "%s", grown);
}

/* The same with parts of the world, and of a part: work in the stream of one, with the view of another. */
enum { CHAIN = 3 };

struct leaving {
	_Atomic int awake;
	int where;
	bool part_first; /* the part ends, in a world that stands, and then that */
};

static int chain_make(spmt_comm *comm, spmt_comm *chain[CHAIN])
{
	chain[0] = comm;
	for (int i = 1; i < CHAIN; i++)
		REQUIRE_OK(spmt_split(chain[i - 1], 0, 0, &chain[i]));
	return 0;
}

static int leave_in_part(spmt_comm *comm, void *arg)
{
	struct leaving *l = arg;
	struct outliving o = { .view.size = sizeof(o.view), .awake = &l->awake };
	spmt_comm *chain[CHAIN], *at, *beside;

	REQUIRE_OK(spmt_calloc(comm, 256, 8, (void **)&o.words));
	TRY(chain_make(comm, chain));
	REQUIRE_OK(spmt_split(chain[1], 0, 0, &beside));
	at = chain[l->where];
	REQUIRE_OK(spmt_set_timeout(at, 300));
	REQUIRE_OK(spmt_view_get(l->part_first ? at : chain[(l->where + 1) % CHAIN], &o.view));
	REQUIRE_OK(spmt_host_launch(at, NULL, outlive, &o, sizeof(o)));
	REQUIRE_OK(spmt_put_on_stream(at, o.words + 16, o.words + 32, 64, 0, NULL));
	REQUIRE_OK(spmt_sync(comm));
	if (!l->part_first)
		return spmt_rank(comm) ? spmt_quiet(at) : -4242;
	REQUIRE_CODE(spmt_finalize(at), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(spmt_quiet(at), -EBADF);
	return spmt_barrier(comm);
}

static void in_parts(int where, bool part_first)
{
	struct usage before, slack = { .fds = 0, .threads = 0, .maps = 64, .rss_kib = 4096 };
	struct spmt_attr attr = SPMT_ATTR_INIT;
	struct leaving l = { .where = where, .part_first = part_first };
	const char *grown = "never looked";

	cr_assert_eq(spmt_run(2, NULL, meet_once, NULL), 0);
	before = usage_now();
	attr.heap_size = (size_t)4 << 20;
	cr_assert_eq(spmt_run(2, &attr, leave_in_part, &l), part_first ? 0 : -4242, "%s",
		spmt_last_error());
	cr_assert_eq(atomic_load(&l.awake), 0, "finalize waited for a user's kernel");
	for (int i = 0; i < 300 && (grown || atomic_load(&l.awake) < 2); i++) {
		sleep_ms(50);
		grown = usage_grown(&before, &slack);
	}
	cr_expect_eq(atomic_load(&l.awake), 2);
	cr_expect_null(grown, "%s", grown);
}

Test(ends, work_may_outlive_a_world_with_parts)
{
	NEEDS_HOST(KERNELS);
	for (int where = 0; where < CHAIN; where++)
		in_parts(where, false);
}

Test(ends, work_may_outlive_a_part_and_then_its_world)
{
	NEEDS_HOST(KERNELS);
	in_parts(1, true);
	in_parts(2, true);
}

/* Parts of parts end with the world, as deep as they are, on a stack that is not. */
enum { DEEP = 120, STACK = (SANITIZED ? 256 : 64) << 10 };

static int deep(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, 8, arg);
	uint64_t one = 1, sum = 0;
	spmt_comm *comm, *at;

	attr.device = device_of(rank);
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_split(comm, rank == 3 ? 0 : -1, 0, &at));
	for (int i = 1; rank == 3 && i < DEEP; i++)
		REQUIRE_OK(spmt_split(at, 0, 0, &at));
	if (rank == 3)
		REQUIRE_OK(spmt_all_reduce(at, &sum, &one, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	return spmt_finalize(comm);
}

Test(ends, a_deep_tree_on_a_small_stack)
{
	spmt_uid uid;

	NEEDS_HOST("the smallest stack that a driver takes is its own");
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads_stack(8, STACK, deep, &uid));
}

/* A stream of the user's is held up beyond its rank's deadline. What waits in it writes to the heap in the end, which is nobody
   else's until then. */
struct held {
	struct latch latch;
	spmt_stream stream;
};

static spmt_comm *alone(int64_t timeout_ms)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm = NULL;
	spmt_uid uid;

	cr_assert_eq(spmt_uid_create(&uid), 0);
	attr = ranks_attr(0, 1, &uid);
	attr.timeout_ms = timeout_ms;
	cr_assert_eq(spmt_init(&attr, &comm), 0, "%s", spmt_last_error());
	return comm;
}

static void leave_held(struct held *h)
{
	struct latch *latch = &h->latch;
	spmt_comm *comm = alone(200);
	uint64_t *w;

	cr_assert_eq(spmt_calloc(comm, 64, 8, (void **)&w), 0);
	cr_assert_eq(stream_make(comm, &h->stream), 0);
	cr_assert_eq(stream_call(comm, h->stream, latch_kernel, &latch, sizeof(latch)), 0);
	cr_assert_eq(stream_store(comm, h->stream, w, 77), 0);
	cr_assert_eq(spmt_put_on_stream(comm, w + 8, w, 8, 0, h->stream), 0);
	cr_expect_lt(spmt_finalize(comm), 0, "nothing was held");
}

static void next_is_clean(struct held *h)
{
	uint64_t *w, seen[64];
	spmt_comm *comm = alone(0);

	cr_assert_eq(spmt_calloc(comm, 64, 8, (void **)&w), 0);
	cr_assert(latch_open(&h->latch), "somebody waited for the stream");
	cr_assert_eq(stream_wait(comm, h->stream), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_copy_out(comm, seen, w, sizeof(seen)), 0);
	for (int i = 0; i < 64; i++)
		cr_expect_eq(seen[i], 0, "word %d: %llu", i, (unsigned long long)seen[i]);
	cr_assert_eq(stream_end(comm, h->stream), 0);
	cr_expect_eq(spmt_finalize(comm), 0, "%s", spmt_last_error());
}

static void held(const char *heap_mode)
{
	struct held h = { .stream = NULL };
	struct usage before, slack = { .fds = 0, .threads = 64, .maps = 1024, .rss_kib = 1 << 20 };
	const char *grown = "never looked";

	setenv("SPMT_HEAP_MODE", heap_mode, 1);
	cr_assert_eq(spmt_finalize(alone(0)), 0);
	before = usage_now();
	leave_held(&h);
	next_is_clean(&h);
	for (int i = 0; i < 100 && grown; i++) {
		sleep_ms(20);
		cr_assert_eq(spmt_finalize(alone(0)), 0);
		grown = usage_grown(&before, &slack);
	}
	cr_expect_null(grown, "%s", grown);
}

Test(ends, memory_of_held_work_is_nobodys_static)
{
	held("static");
}

Test(ends, memory_of_held_work_is_nobodys_vmm)
{
	NEEDS_RANGES();
	held("vmm");
}

/* ---- a thread waits in a comm that another one ends ---------------------------------------------- */

enum { BESIDE_BARRIER, BESIDE_QUIET, BESIDE_WORD, BESIDE_CALLS };

struct beside {
	spmt_comm *comms[2]; /* somebody waits in the first */
	uint64_t *words;
	pthread_t id;
	int call, code; /* what it ended with */
};

static void *waits_beside(void *arg)
{
	struct beside *b = arg;

	b->code = b->call == BESIDE_BARRIER ? spmt_barrier(*b->comms)
		: b->call == BESIDE_WORD
		? spmt_signal_wait(*b->comms, b->words, SPMT_CMP_EQ, 5, NULL)
		: spmt_quiet(*b->comms);
	return NULL;
}

/* A watchdog gives a world up in which its own thread waits (one that is not there yet is nobody's to end): no call loses what it stands on. */
static void given_up(struct beside *b, int ms)
{
	spmt_comm *comm = b->comms[0];

	if (b->call == BESIDE_QUIET)
		spmt_all_reduce(comm, b->words, b->words, 8, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	cr_assert_eq(pthread_create(&b->id, NULL, waits_beside, b), 0);
	while (!atomic_load(&comm->head.inside) && !atomic_load(&comm->head.visitors))
		sched_yield();
	sleep_ms(ms);
	cr_expect_eq(spmt_abort(comm, -55), 0);
	cr_expect_eq(spmt_finalize(b->comms[1]), 0);
	cr_expect_eq(spmt_finalize(comm), 0, "%s", spmt_last_error());
	pthread_join(b->id, NULL);
	cr_expect(b->code == -55 || b->code == -EBADF, "call %d ended with %d", b->call, b->code);
}

static int words_of(spmt_comm *comm, void *arg)
{
	void *others, **words = (void **)&((struct beside *)arg)->words;

	return spmt_calloc(comm, 64, 8, comm == ((struct beside *)arg)->comms[0] ? words : &others);
}

Test(ends, a_watchdog_ends_a_world_in_which_a_thread_waits)
{
	for (int i = 0; i < 8 * BESIDE_CALLS; i++) {
		struct beside b = { .call = i % BESIDE_CALLS };
		struct spmt_attr attrs[] = { ranks_attr(0, 2, NULL), ranks_attr(1, 2, NULL) };

		cr_assert(!spmt_init_all(2, attrs, b.comms) && !spmt_each(2, b.comms, words_of, &b),
			"%s", spmt_last_error());
		given_up(&b, 3 * (i / BESIDE_CALLS));
	}
}

Test(ends, a_wait_for_a_word_ends_with_its_comm)
{
	setenv("SPMT_CHECK", "0", 1); /* else finalize is refused: check.c */
	for (int i = 0; i < 4; i++) {
		struct beside b = { .comms = { alone(-1) }, .call = BESIDE_WORD };

		cr_assert(!words_of(*b.comms, &b) && !pthread_create(&b.id, 0, waits_beside, &b));
		while (!atomic_load(&b.comms[0]->head.visitors))
			sleep_ms(5 * (i + 1));
		cr_expect_eq(spmt_finalize(b.comms[0]), 0, "%s", spmt_last_error());
		pthread_join(b.id, NULL);
		cr_expect_eq(b.code, -EBADF, "it ended with %d", b.code);
	}
}
