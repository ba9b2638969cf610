/* SPDX-License-Identifier: MIT */
/* Moves and collectives that are still under way when something else begins: it waits for them, or tells what became of them. Held
   up by a latch in the stream that they are in, not by the clock. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spmt/comm/comm.h"
#include "spmt_channel.h"
#include "spmt_device.h"
#include "tests/lib/ranks.h"
#include "tests/lib/transports/device_links.h"
#include "tests/lib/usage.h"
#include "transports/sdma/sdma.h"

enum { BYTES = 1 << 20 };

#define QUEUES "its copy queues can be held, and its memory taken away"

/* Holds the copy queue to rank 1: what rank 0 puts there now is in flight until latch_release(). sym: for a first move. */
static int hold_queue(spmt_comm *comm, void *sym, struct latch *latch)
{
	static const char warm[BYTES];
	struct link *link = &comm->links[1];
	device_stream queue;

	REQUIRE_OK(spmt_put_nbi(comm, sym, warm, BYTES, 1));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(sdma_stream(link, 0, &queue), 0);
	return latch_hold(latch, link->backend, link->dev, queue);
}

static void *release_soon(void *latch)
{
	sleep_ms(100);
	latch_release(latch);
	return NULL;
}

/* ---- what waits for moves ------------------------------------------------------------------------------------------ */

enum behind { BARRIER, FREE, DEREGISTER, FENCE_AND_SIGNAL, QUIET_AND_SIGNAL, PUT_SIGNAL, BEHINDS };

static const char *const behinds[] = { "barrier", "free", "deregister", "fence, then a signal",
	"quiet, then a signal", "put with signal" };

struct scene {
	enum behind what;
	char *src, *to, *other; /* the latter symmetric */
	char *own;		/* not */
	uint64_t *sig;
	spmt_mem *mem;
};

/* Queues the move to rank 1, behind a latch that opens soon. */
static int move(spmt_comm *comm, struct scene *s, struct latch *latch, pthread_t *thread)
{
	if (s->what == PUT_SIGNAL) /* in the comm's own stream */
		REQUIRE_EQ(latch_hold(latch, comm->backend, comm->dev, comm->stream), 0);
	else
		TRY(hold_queue(comm, s->to, latch));
	if (s->what == DEREGISTER)
		REQUIRE_OK(spmt_mem_put_nbi(comm, s->mem, 0, s->src, BYTES, 1));
	else if (s->what != PUT_SIGNAL)
		REQUIRE_OK(spmt_put_nbi(comm, s->to, s->src, BYTES, 1));
	REQUIRE_EQ(pthread_create(thread, NULL, release_soon, latch), 0);
	if (s->what == PUT_SIGNAL)
		REQUIRE_OK(spmt_put_signal_nbi(
			comm, s->to, s->src, BYTES, s->sig, 1, SPMT_SIGNAL_SET, 1));
	return 0;
}

static int wait_behind(spmt_comm *comm, struct scene *s)
{
	bool sends = spmt_rank(comm) == 0;

	switch (s->what) {
	case BARRIER:
		return spmt_barrier(comm);
	case FREE:
		return spmt_free(comm, s->other);
	case DEREGISTER:
		return spmt_deregister(comm, s->mem);
	default:
		if (sends && s->what == FENCE_AND_SIGNAL)
			REQUIRE_OK(spmt_fence(comm));
		if (sends && s->what == QUIET_AND_SIGNAL)
			REQUIRE_OK(spmt_quiet(comm));
		if (!sends)
			return spmt_signal_wait(comm, s->sig, SPMT_CMP_EQ, 1, NULL);
		return s->what == PUT_SIGNAL ? 0 : spmt_signal(comm, s->sig, 1, SPMT_SIGNAL_SET, 1);
	}
}

/* Behind it the owner uses the memory: all that was on its way there has come. */
static int waits_for_moves(spmt_comm *comm, void *arg)
{
	struct scene s = { .what = *(const enum behind *)arg };
	const char *there;
	pthread_t thread;
	struct latch latch;

	s.own = calloc(1, BYTES);
	s.src = malloc(BYTES);
	REQUIRE(s.own && s.src);
	memset(s.src, 7, BYTES);
	REQUIRE_OK(spmt_calloc(comm, 1, BYTES, (void **)&s.to));
	REQUIRE_OK(spmt_malloc(comm, 64, (void **)&s.other));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*s.sig), (void **)&s.sig));
	REQUIRE_OK(spmt_register(comm, s.own, BYTES, &s.mem));
	if (spmt_rank(comm) == 0)
		TRY(move(comm, &s, &latch, &thread));
	REQUIRE_OK(wait_behind(comm, &s));
	there = s.what == DEREGISTER ? s.own : s.to;
	if (spmt_rank(comm) == 1)
		REQUIRE(there[0] == 7 && !memcmp(there, there + 1, BYTES - 1));
	else
		REQUIRE_EQ(pthread_join(thread, NULL), 0);
	REQUIRE_OK(spmt_barrier(comm));
	free(s.src);
	free(s.own);
	return 0;
}

Test(in_flight, what_waits_for_moves)
{
	NEEDS_HOST(QUEUES);
	for (enum behind what = BARRIER; what < BEHINDS; what++)
		cr_expect_eq(ranks_run(2, NULL, waits_for_moves, &what), 0, "%s: %s", behinds[what],
			ranks_message());
}

/* ---- finalize --------------------------------------------------------------------------------------------------- */

/* Rank 1's buffer of the part is freed while rank 0's put to it waits in a queue: nobody asks for that put before the world ends.
   There are parts without a failure before and behind it. */
static int lost_in_a_part(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, 2, arg);
	spmt_comm *world, *parts[3];
	struct latch latch;
	spmt_mem *mem;
	void *buf, *sym;

	REQUIRE_OK(spmt_init(&attr, &world));
	for (int i = 0; i < 3; i++)
		REQUIRE_OK(spmt_split(world, 0, 0, &parts[i]));
	REQUIRE_OK(backend_host.alloc(world->dev, BYTES, DEVICE_MEMORY_PLAIN, &buf));
	REQUIRE_OK(spmt_register(parts[1], buf, BYTES, &mem));
	REQUIRE_OK(spmt_malloc(parts[1], BYTES, &sym));
	if (rank == 0) {
		TRY(hold_queue(parts[1], sym, &latch));
		REQUIRE_OK(spmt_mem_put_nbi(parts[1], mem, 0, buf, BYTES, 1));
	}
	REQUIRE_OK(spmt_sync(world));
	if (rank == 1)
		REQUIRE_OK(backend_host.free(world->dev, buf));
	REQUIRE_OK(spmt_sync(world));
	if (rank == 0)
		latch_release(&latch);
	REQUIRE(spmt_finalize(world) < 0);
	REQUIRE_SAYS("copy of 1048576 bytes");
	if (rank == 0)
		REQUIRE_OK(backend_host.free(world->dev, buf));
	return 0;
}

Test(in_flight, finalize_tells_what_failed_in_a_part)
{
	spmt_uid uid;

	NEEDS_HOST(QUEUES);
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(2, lost_in_a_part, &uid));
}

/* ---- collectives ------------------------------------------------------------------------------------------------ */

/* On rank 0 the first of two collectives is held up in its stream; the second, in another, comes after it all the same. */
static int on_two_streams(spmt_comm *comm, void *arg)
{
	struct latch latch = { .open = 0 }, *at = &latch;
	uint64_t mine[2] = { 1, 100 }, *words, n = (uint64_t)spmt_nranks(comm);
	spmt_stream streams[2];

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	REQUIRE_OK(spmt_copy_in(comm, words, mine, sizeof(mine)));
	for (int i = 0; i < 2; i++)
		TRY(stream_make(comm, &streams[i]));
	if (spmt_rank(comm) == 0)
		TRY(stream_call(comm, streams[0], latch_kernel, &at, sizeof(at)));
	for (int i = 0; i < 2; i++)
		REQUIRE_OK(spmt_all_reduce(
			comm, words + 2 + i, words + i, 1, SPMT_TYPE_U64, SPMT_OP_SUM, streams[i]));
	sleep_ms(100); /* would let the second go first, were it free to */
	REQUIRE(latch_open(&latch));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(sym_check_u64(comm, words + 2, n));
	TRY(sym_check_u64(comm, words + 3, 100 * n));
	for (int i = 0; i < 2; i++)
		TRY(stream_end(comm, streams[i]));
	return spmt_barrier(comm);
}

Test(in_flight, collectives_on_two_streams_take_turns)
{
	NEEDS_HOST("tests/gpu: collective");
	RANKS_OK(ranks_run(3, NULL, on_two_streams, NULL));
}

/* ---- a kernel's deadline ---------------------------------------------------------------------------------------- */

struct kernel_wait {
	struct spmt_view view;
	uint64_t *sig;
	int *code;
};

static void wait_kernel(void *args)
{
	struct kernel_wait *w = args;

	*w->code = spmtd_signal_wait_until(&w->view, w->sig, SPMT_CMP_EQ, 4242);
}

/* It is that of its view, whatever has been set since. */
static int view_deadline(spmt_comm *comm, void *arg)
{
	struct kernel_wait w = { .view.size = sizeof(w.view) };
	int code = 1, rank = spmt_rank(comm);
	int64_t begin;

	(void)arg;
	w.code = &code;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*w.sig), (void **)&w.sig));
	REQUIRE_OK(spmt_set_timeout(comm, 60));
	REQUIRE_OK(spmt_view_get(comm, &w.view));
	REQUIRE_OK(spmt_set_timeout(comm, 6000));
	begin = calm_ns();
	REQUIRE_OK(spmt_host_launch(comm, NULL, wait_kernel, &w, sizeof(w)));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_EQ(code, SPMTD_TIMEOUT);
	REQUIRE(calm_ns() - begin < 3000000000);
	REQUIRE_OK(spmt_barrier(comm));
	/* now the other way round: the wait lasts longer than a deadline set behind its view */
	w.view = (struct spmt_view){ .size = sizeof(w.view) };
	REQUIRE_OK(spmt_view_get(comm, &w.view));
	REQUIRE_OK(spmt_set_timeout(comm, 30));
	REQUIRE_OK(spmt_host_launch(comm, NULL, wait_kernel, &w, sizeof(w)));
	sleep_ms(200);
	REQUIRE_OK(spmt_set_timeout(comm, 10000));
	REQUIRE_OK(spmt_signal(comm, w.sig, 4242, SPMT_SIGNAL_SET, 1 - rank));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(code, 0);
	return spmt_barrier(comm);
}

Test(in_flight, a_kernel_keeps_the_deadline_of_its_view)
{
	NEEDS_HOST("tests/gpu: wait");
	RANKS_OK(ranks_run(2, NULL, view_deadline, NULL));
}

/* ---- kernels in a user's stream ---------------------------------------------------------------------------------------- */

enum { ENDED_BROKEN = -4242 };

struct outliving {
	struct spmt_view view;
	uint64_t *words;
	struct held *held;
};

struct held {
	bool breaks;
	_Atomic bool go;
	_Atomic int stored;
};

/* By the time it goes on its rank has finalized. */
static void store_late(void *args)
{
	struct outliving *o = args;

	while (!atomic_load(&o->held->go))
		sleep_ms(1);
	for (int i = 0; i < 100; i++)
		spmtd_uint64_p(&o->view, o->words + i, 5, 1 - o->view.pe);
	spmtd_quiet(&o->view);
	atomic_fetch_add(&o->held->stored, 1);
}

/* quiet waits for no kernel of a user's stream, as it could not where a vendor's runtime has launched it. */
static int leave_kernel(spmt_comm *comm, void *arg)
{
	struct outliving o = { .view.size = sizeof(o.view), .held = arg };
	spmt_stream stream;

	REQUIRE_OK(spmt_calloc(comm, 256, 8, (void **)&o.words));
	REQUIRE_OK(spmt_view_get(comm, &o.view));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_launch(comm, stream, store_late, &o, sizeof(o)));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_quiet_on_stream(comm, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	return o.held->breaks && !spmt_rank(comm) ? ENDED_BROKEN : 0;
}

static int nothing(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_barrier(comm);
}

static void outlives(bool breaks)
{
	struct usage before, slack = { .fds = 0, .threads = 0, .maps = 32, .rss_kib = 4096 };
	struct spmt_attr attr = SPMT_ATTR_INIT;
	struct held held = { .breaks = breaks };
	const char *grown = "never looked";

	cr_assert_eq(spmt_run(2, NULL, nothing, NULL), 0);
	before = usage_now();
	attr.heap_size = (size_t)4 << 20;
	cr_assert_eq(spmt_run(2, &attr, leave_kernel, &held), breaks ? ENDED_BROKEN : 0, "%s",
		spmt_last_error());
	cr_assert_eq(atomic_load(&held.stored), 0);
	atomic_store(&held.go, true);
	for (int i = 0; i < 300 && (grown || atomic_load(&held.stored) < 2); i++) {
		sleep_ms(50);
		grown = usage_grown(&before, &slack);
	}
	cr_expect_eq(atomic_load(&held.stored), 2);
	cr_expect_null(grown, "%s", grown);
}

Test(in_flight, a_kernel_in_a_users_stream_may_outlive_its_world)
{
	NEEDS_HOST("kernels are C functions");
	outlives(false);
	outlives(true);
}

static void at_once(void *args)
{
	(void)args;
}

/* A mark is kept for each stream whose kernel goes on, and for no other. */
static int many_streams(spmt_comm *comm, void *arg)
{
	spmt_stream stream;

	(void)arg;
	for (int i = 0; i < 1000; i++) {
		REQUIRE_OK(spmt_host_stream_create(comm, &stream));
		REQUIRE_OK(spmt_host_launch(comm, stream, at_once, NULL, 0));
		REQUIRE_OK(spmt_host_stream_synchronize(stream));
		REQUIRE_OK(spmt_host_stream_destroy(stream));
	}
	REQUIRE(comm->nused <= 4);
	return spmt_barrier(comm);
}

Test(in_flight, kernels_that_have_ended_leave_nothing)
{
	NEEDS_HOST("kernels are C functions");
	RANKS_OK(ranks_run(1, NULL, many_streams, NULL));
}

/* ---- what kernels have others move, as the world breaks ------------------------------------------------------------- */

enum { MUCH = 64 << 20, PAGE = 4096 };

static _Atomic bool looked;

/* By a port's thread, or by a copy engine that the kernel feeds. */
static int post_much(spmt_comm *comm, char *to, char *own, bool engine)
{
	struct spmt_channel_attr attr = { .size = sizeof(attr),
		.peer = 1,
		.remote = to,
		.remote_size = MUCH,
		.local = own,
		.local_size = MUCH };
	struct spmt_view view = { .size = sizeof(view) };
	struct spmt_port port = { .size = sizeof(port) };

	REQUIRE_OK(spmt_view_get(comm, &view));
	if (engine)
		return spmtd_sdma_put(&view, to, own, MUCH, 1);
	REQUIRE_OK(spmt_port_get(comm, &attr, &port));
	return spmtd_port_put(&view, &port, 0, 0, MUCH);
}

/* Behind quiet nobody reads what is still there to be read: the end of it, stored then, does not arrive. */
static int quiet_and_look(spmt_comm *comm, char *to, char *own, bool engine)
{
	char *there = spmt_ptr(comm, to, 1);

	REQUIRE(there != NULL);
	REQUIRE_EQ(post_much(comm, to, own, engine), 0);
	REQUIRE(!engine || comm->queues);
	sleep_ms(2);
	REQUIRE_OK(spmt_abort(comm, -EIO));
	REQUIRE_CODE(spmt_quiet(comm), -EIO);
	memset(own + MUCH - PAGE, 2, PAGE);
	sleep_ms(100);
	for (int i = MUCH - PAGE; i < MUCH; i++)
		REQUIRE(there[i] != 2);
	return 0;
}

static int breaks_meanwhile(spmt_comm *comm, void *arg)
{
	char *own = malloc(MUCH);
	void *to;
	int rc = 0;

	REQUIRE(own != NULL);
	memset(own, 1, MUCH);
	REQUIRE_OK(spmt_calloc(comm, 1, MUCH, &to));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		rc = quiet_and_look(comm, to, own, arg != NULL);
		atomic_store(&looked, true);
	}
	while (!atomic_load(&looked))
		sleep_ms(1);
	free(own);
	return rc;
}

static const struct spmt_attr roomy = { .size = sizeof(roomy), .heap_size = 2 * MUCH };

Test(in_flight, a_broken_world_lets_end_what_ports_have_begun)
{
	NEEDS_HOST("kernels are C functions");
	RANKS_OK(ranks_run(2, &roomy, breaks_meanwhile, NULL));
}

Test(in_flight, a_broken_world_lets_end_what_engines_have_begun)
{
	static bool engine = true;

	NEEDS_HOST("kernels are C functions");
	setenv("SPMT_SDMA", "queues", 1);
	RANKS_OK(ranks_run(2, &roomy, breaks_meanwhile, &engine));
}

/* ---- what streams have begun, as the world breaks -------------------------------------------------------------------- */

enum begun { BEGUN_PUT, BEGUN_GATHER, BEGUN_SUM, BEGINNINGS };

/* Whoever reads `guarded` stands at the latch: a copy that has begun. */
static char *guarded;
static struct latch guard;

static void at_guard(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if ((char *)info->si_addr < guarded || (char *)info->si_addr >= guarded + BYTES)
		_exit(128 + signal);
	latch_pass(&guard);
	mprotect(guarded, BYTES, PROT_READ | PROT_WRITE);
}

/* Later than anybody waits for what a user's kernel holds up. */
static void *open_late(void *arg)
{
	(void)arg;
	sleep_ms(1200);
	latch_open(&guard);
	return NULL;
}

static int begin_in_stream(spmt_comm *comm, enum begun what, void *to, char *dst)
{
	switch (what) {
	case BEGUN_PUT:
		return spmt_rank(comm) ? 0 : spmt_put_on_stream(comm, to, guarded, BYTES, 1, NULL);
	case BEGUN_GATHER:
		return spmt_all_gather(
			comm, dst, spmt_rank(comm) ? to : guarded, BYTES, SPMT_TYPE_U8, NULL);
	default:
		return spmt_all_reduce(comm, dst, spmt_rank(comm) ? to : guarded, BYTES,
			SPMT_TYPE_U8, SPMT_OP_MAX, NULL);
	}
}

static int breaks_a_copy(spmt_comm *comm, void *arg)
{
	const enum begun *what = arg;
	char *dst = malloc(2 * BYTES);
	bool first = spmt_rank(comm) == 0;
	pthread_t opens;
	void *to;

	REQUIRE(dst != NULL);
	REQUIRE_OK(spmt_calloc(comm, 1, BYTES, &to));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(begin_in_stream(comm, *what, to, dst));
	while (!guard.reached)
		sleep_ms(1);
	if (first) {
		REQUIRE_EQ(pthread_create(&opens, NULL, open_late, NULL), 0);
		REQUIRE_OK(spmt_abort(comm, -EIO));
	}
	while (!spmt_status(comm))
		sleep_ms(1);
	REQUIRE_CODE(spmt_quiet(comm), -EIO);
	REQUIRE((!first && *what == BEGUN_PUT) || guard.passed);
	if (first)
		pthread_join(opens, NULL);
	free(dst);
	return 0;
}

static void breaks_while(enum begun what)
{
	const struct sigaction action = { .sa_sigaction = at_guard, .sa_flags = SA_SIGINFO };
	struct sigaction before;

	guard = (struct latch){ 0 };
	guarded = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq((void *)guarded, MAP_FAILED);
	cr_assert_eq(sigaction(SIGSEGV, &action, &before), 0);
	RANKS_OK(ranks_run(2, &roomy, breaks_a_copy, &what));
	cr_assert_eq(sigaction(SIGSEGV, &before, NULL), 0);
	munmap(guarded, BYTES);
}

Test(in_flight, a_broken_world_lets_end_what_streams_have_begun)
{
	NEEDS_HOST("the CPU copies, and a page that it may not read holds it up");
	for (enum begun what = 0; what < BEGINNINGS; what++)
		breaks_while(what);
}

/* ---- a part that ends before a kernel of the user's ------------------------------------------------------------------ */

static _Atomic bool let_go;

static void until_let_go(void *args)
{
	(void)args;
	while (!atomic_load(&let_go))
		sleep_ms(1);
}

static int part_first(spmt_comm *comm, void *arg)
{
	spmt_stream stream;
	spmt_comm *part;
	void *p;

	(void)arg;
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(spmt_host_launch(part, stream, until_let_go, NULL, 0));
	REQUIRE_OK(spmt_finalize(part));
	REQUIRE_OK(spmt_malloc(comm, 64, &p));
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	return 0; /* the world ends well: ranks_run() sees to that */
}

Test(in_flight, a_world_ends_well_whose_part_had_a_kernel_that_goes_on)
{
	NEEDS_HOST("kernels are C functions");
	RANKS_OK(ranks_run(2, NULL, part_first, NULL));
	atomic_store(&let_go, true);
}
