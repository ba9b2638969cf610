/* SPDX-License-Identifier: MIT */
/*
 * As tests/fault/world.c, over two processes: every request for a resource that one of them makes in init, in spmt_split and
 * what is done with a part, and in spmt_shrink and what follows it, is refused once. All ranks, those of the other process
 * too, hear of it before their deadline, in a sentence; nothing is left behind, the comm that was split is whole, and the
 * next run is clean.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "src/base/fault.h"
#include "src/device/device.h"
#include "tests/lib/processes.h"

#define LAYOUT "0,1|2,3"
enum { RANKS = 4, STEPS = 8, DEADLINE_MS = SANITIZED ? 8000 : 4000, SAID = 240 };

/* What the ranks of both processes see. */
struct stage {
	pthread_barrier_t all;
	spmt_uid uid;
	int code[STEPS][RANKS];
	char said[STEPS][RANKS][SAID];
	bool refuse, fired;
	_Atomic bool bad;      /* some check failed: all end behind the next rendezvous */
	_Atomic int shrinks;   /* that were refused */
	_Atomic uint64_t late; /* the last request that somebody did not hear of */
	_Atomic int lates;
	uint64_t n;
};

struct sweep {
	struct processes p;
	struct stage *s;
	unsigned sites;
	int victim; /* the process that is refused */
	bool arms;  /* a turn arms the fault itself, in its middle */
	const char *const *steps;
	/* per rank: made once, every turn, once at the end */
	int (*begin)(struct sweep *sweep, int rank, spmt_comm **comm);
	void (*turn)(struct sweep *sweep, int rank, spmt_comm *comm);
	void (*judge)(struct sweep *sweep, int rank, spmt_comm *comm);
	int (*end)(struct sweep *sweep, int rank, spmt_comm *comm);
};

static void together(struct sweep *w)
{
	pthread_barrier_wait(&w->s->all);
}

/* Notes a failed check; the rank goes on, since others wait for it. */
__attribute__((format(printf, 2, 3))) static void bad(struct sweep *w, const char *fmt, ...)
{
	char text[400];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	atomic_store(&w->s->bad, true);
	ranks_fail("request %llu of %#x refused in process %d: %s", (unsigned long long)w->s->n,
		w->sites, w->victim, text);
}

static int note(struct sweep *w, int step, int rank, int code)
{
	w->s->code[step][rank] = code;
	snprintf(w->s->said[step][rank], SAID, "%s", code ? spmt_last_error() : "");
	return code;
}

/* ---- the sweep ------------------------------------------------------------------------------------------------------ */

static bool leads(const struct sweep *w, int rank)
{
	return processes_position(w->p.layout, rank) == 0;
}

static int join_within(int ms, const spmt_uid *uid, int rank, int nranks, spmt_comm **comm)
{
	struct spmt_attr attr = ranks_attr(rank, nranks, uid);

	attr.timeout_ms = ms;
	return spmt_init(&attr, comm);
}

static int join(const spmt_uid *uid, int rank, int nranks, spmt_comm **comm)
{
	return join_within(DEADLINE_MS, uid, rank, nranks, comm);
}

/* In the middle of a turn that arms: from here on requests are refused. */
static void arm_here(struct sweep *w, int rank)
{
	together(w);
	if (w->s->refuse && leads(w, rank) && processes_of(w->p.layout, rank) == w->victim)
		fault_arm(w->sites, w->s->n);
	together(w);
}

static void one_turn(struct sweep *w, int rank, spmt_comm *comm, bool refuse)
{
	bool victim = refuse && leads(w, rank) && processes_of(w->p.layout, rank) == w->victim;

	together(w);
	if (rank == 0) {
		memset(w->s->code, 0, sizeof(w->s->code));
		memset(w->s->said, 0, sizeof(w->s->said));
		w->s->refuse = refuse;
		if (spmt_uid_create(&w->s->uid))
			bad(w, "spmt_uid_create: %s", spmt_last_error());
	}
	together(w);
	if (victim && !w->arms)
		fault_arm(w->sites, w->s->n);
	together(w);
	w->turn(w, rank, comm);
	together(w);
	if (victim) {
		w->s->fired = fault_fired();
		fault_disarm();
	}
	together(w);
}

/* A failed init is told for a moment to those who come: on a busy machine one may come later. */
static void came_late(struct sweep *w)
{
	if (atomic_exchange(&w->s->late, w->s->n) != w->s->n)
		atomic_fetch_add(&w->s->lates, 1);
}

/* What a rank was told when something was refused. */
static void judge_words(struct sweep *w, int rank)
{
	for (int step = 0; w->steps[step]; step++) {
		const char *said = w->s->said[step][rank];

		if (w->s->code[step][rank] && strncmp(said, "spmt_", 5) != 0)
			bad(w, "%s on rank %d gave %d with '%s'", w->steps[step], rank,
				w->s->code[step][rank], said);
		if (w->s->code[step][rank] == SPMT_ERR_TIMEOUT && !strncmp(said, "spmt_init", 9))
			came_late(w);
		else if (w->s->code[step][rank] == SPMT_ERR_TIMEOUT)
			bad(w, "%s: rank %d was not told: %s", w->steps[step], rank, said);
	}
}

static void judge_clean(struct sweep *w, int rank)
{
	for (int step = 0; w->steps[step]; step++)
		if (w->s->code[step][rank])
			bad(w, "%s in the clean run after it: rank %d got %d: %s", w->steps[step],
				rank, w->s->code[step][rank], w->s->said[step][rank]);
}

static void judge_usage(struct sweep *w, int rank, const struct usage *before)
{
	const struct usage slack = { .fds = 0, .threads = 0, .maps = 8, .rss_kib = 8192 };
	const char *grown = leads(w, rank) ? usage_grown(before, &slack) : NULL;

	if (grown)
		bad(w, "process %d: %s", processes_of(w->p.layout, rank), grown);
}

static int sweep_rank(int rank, void *arg)
{
	struct sweep *w = arg;
	struct usage before;
	spmt_comm *comm = NULL;
	bool more = true;

	if (w->begin)
		TRY(w->begin(w, rank, &comm));
	for (int i = 0; i < 3; i++)
		one_turn(w, rank, comm, false);
	before = usage_now();
	while (more) {
		one_turn(w, rank, comm, true);
		judge_words(w, rank);
		w->judge(w, rank, comm);
		more = w->s->fired;
		one_turn(w, rank, comm, false);
		judge_clean(w, rank);
		together(w);
		judge_usage(w, rank, &before);
		together(w);
		if (atomic_load(&w->s->bad))
			return 0; /* whoever noted it has failed */
		if (rank == 0 && more)
			w->s->n++;
		together(w);
	}
	return w->end ? w->end(w, rank, comm) : 0;
}

/* Returns how many requests were refused, one at a time. */
static uint64_t sweep_one(struct sweep w, unsigned sites, int victim)
{
	pthread_barrierattr_t shared;

	w.p = (struct processes){ .layout = LAYOUT, .seconds = 120, .leaks = true };
	w.s = processes_shared(sizeof(*w.s));
	cr_assert_not_null(w.s);
	w.s->n = 1;
	w.sites = sites;
	w.victim = victim;
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&w.s->all, &shared, RANKS);
	RANKS_OK(processes_run(&w.p, sweep_rank, &w));
	cr_assert_leq(atomic_load(&w.s->lates), (int)w.s->n / 20 + 1,
		"of %llu failures %d were not told to all", (unsigned long long)w.s->n,
		atomic_load(&w.s->lates));
	return w.s->n - 1;
}

static uint64_t sweep(const struct sweep *w, unsigned sites)
{
	uint64_t n = sweep_one(*w, sites, 0) + sweep_one(*w, sites, 1);

	cr_log_info("%llu requests refused", (unsigned long long)n);
	return n;
}

#define SWEEP(what, name, site, least)                                                            \
	Test(process_faults, what##_##name, .timeout = 280)                                       \
	{                                                                                         \
		uint64_t n = sweep(&(what), 1u << (site));                                        \
                                                                                                  \
		cr_assert_geq(n, (least), "only %llu requests were seen", (unsigned long long)n); \
	}

/* ---- init ------------------------------------------------------------------------------------------------------------ */

enum { INIT, INIT_BARRIER, INIT_FINALIZE };
static const char *const init_steps[] = { "init", "barrier", "finalize", NULL };

static void init_turn(struct sweep *w, int rank, spmt_comm *none)
{
	spmt_comm *comm = NULL;

	(void)none;
	if (note(w, INIT, rank, join(&w->s->uid, rank, RANKS, &comm)))
		return;
	ranks_watch(comm);
	note(w, INIT_BARRIER, rank, spmt_barrier(comm));
	ranks_watch(NULL);
	note(w, INIT_FINALIZE, rank, spmt_finalize(comm));
}

/* Who fails has its own code, who hears of it the first. */
static void init_judge(struct sweep *w, int rank, spmt_comm *none)
{
	(void)none;
	if (!w->s->code[INIT][rank] != !w->s->code[INIT][0])
		bad(w, "init: rank 0 got %d, rank %d got %d", w->s->code[INIT][0], rank,
			w->s->code[INIT][rank]);
}

static const struct sweep init = { .steps = init_steps, .turn = init_turn, .judge = init_judge };

SWEEP(init, memory, FAULT_ALLOC, 40)
SWEEP(init, mappings, FAULT_MAP, 10)
SWEEP(init, descriptors, FAULT_FD, 10)
SWEEP(init, threads, FAULT_THREAD, 2)
SWEEP(init, device_ops, FAULT_DEVICE, 4)
SWEEP(init, device_memory, FAULT_MEMORY, 2)
SWEEP(init, registrations, FAULT_REGISTER, 2)
SWEEP(init, peers, FAULT_PEER, 2)

/* ---- a part --------------------------------------------------------------------------------------------------------- */

enum { PART_HEAP = 20 << 20 }; /* room for more parts than the control blocks are */
enum { SPLIT, PART_MALLOC, PART_REGISTER, PART_BARRIER, PART_FINALIZE };
static const char *const part_steps[] = { "split", "malloc", "register", "barrier", "finalize",
	NULL };

static int rooms[RANKS]; /* parts that could be alive at once */

/* Parts of all ranks until there is room for no more; then none again. */
static int room(spmt_comm *world)
{
	spmt_comm *parts[3000];
	int n = 0;

	while (n < 3000 && !spmt_split(world, 0, 0, &parts[n]))
		n++;
	for (int i = 0; i < n; i++)
		REQUIRE_OK(spmt_finalize(parts[i]));
	return n;
}

static int part_begin(struct sweep *w, int rank, spmt_comm **world)
{
	struct spmt_attr attr;

	if (rank == 0)
		REQUIRE_OK(spmt_uid_create(&w->s->uid));
	together(w);
	attr = ranks_attr(rank, RANKS, &w->s->uid);
	attr.heap_size = PART_HEAP;
	REQUIRE_OK(spmt_init(&attr, world));
	ranks_watch(*world);
	rooms[rank] = room(*world);
	REQUIRE(rooms[rank] > 10 && rooms[rank] < 3000);
	return 0;
}

/* Even and odd ranks: a part has one of each process. */
static void part_turn(struct sweep *w, int rank, spmt_comm *world)
{
	spmt_comm *part = NULL;
	spmt_mem *mem = NULL;
	char *block = NULL;

	if (note(w, SPLIT, rank, spmt_split(world, rank % 2, -rank, &part)))
		return;
	if (!note(w, PART_MALLOC, rank, spmt_malloc(part, 4096, (void **)&block)))
		note(w, PART_REGISTER, rank, spmt_register(part, block, 64, &mem));
	note(w, PART_BARRIER, rank, spmt_barrier(part));
	note(w, PART_FINALIZE, rank, spmt_finalize(part));
}

/* What one rank gets, those of its comm get; the world is whole. */
static void part_judge(struct sweep *w, int rank, spmt_comm *world)
{
	for (int step = 0; w->steps[step]; step++) {
		int first = step == SPLIT ? 0 : rank % 2;

		if (w->s->code[step][rank] != w->s->code[step][first])
			bad(w, "%s: rank %d got %d, rank %d got %d", w->steps[step], first,
				w->s->code[step][first], rank, w->s->code[step][rank]);
	}
	if (spmt_status(world) || spmt_barrier(world))
		bad(w, "the world is broken on rank %d: %s", rank, spmt_last_error());
}

/* Neither room for parts nor a byte of the heap is lost. */
static int part_end(struct sweep *w, int rank, spmt_comm *world)
{
	void *all;

	(void)w;
	REQUIRE_EQ(room(world), rooms[rank]);
	REQUIRE_OK(spmt_malloc(world, PART_HEAP - 4096, &all));
	REQUIRE_OK(spmt_free(world, all));
	ranks_watch(NULL);
	return spmt_finalize(world);
}

static const struct sweep part = { .steps = part_steps,
	.begin = part_begin,
	.turn = part_turn,
	.judge = part_judge,
	.end = part_end };

SWEEP(part, memory, FAULT_ALLOC, 20)
SWEEP(part, threads, FAULT_THREAD, 2)
SWEEP(part, device_ops, FAULT_DEVICE, 4)
SWEEP(part, registrations, FAULT_REGISTER, 4)

/* ---- memory that travels by descriptor --------------------------------------------------------------------------------- */

enum { WORLD, REGISTER, PUT, BARRIER, DEREGISTER, FINALIZE };
static const char *const buffer_steps[] = { "init", "register", "put", "barrier", "deregister",
	"finalize", NULL };

static void buffer_turn(struct sweep *w, int rank, spmt_comm *none)
{
	spmt_comm *comm = NULL;
	spmt_mem *mem = NULL;
	void *memory = NULL;
	int dev;

	(void)none;
	if (note(w, WORLD, rank, join(&w->s->uid, rank, RANKS, &comm)))
		return;
	dev = spmt_device(comm);
	if (backend_host.alloc(dev, 4096, DEVICE_MEMORY_PLAIN, &memory))
		bad(w, "no device memory: %s", spmt_last_error());
	arm_here(w, rank);
	if (!note(w, REGISTER, rank, spmt_register(comm, memory, 64, &mem))) {
		note(w, PUT, rank,
			spmt_mem_put(comm, mem, 8 * (size_t)rank, "a word.", 8,
				(rank + RANKS / 2) % RANKS));
		if (!note(w, BARRIER, rank, spmt_barrier(comm)))
			note(w, DEREGISTER, rank, spmt_deregister(comm, mem));
	}
	note(w, FINALIZE, rank, spmt_finalize(comm));
	if (backend_host.free(dev, memory))
		bad(w, "the memory is not free: %s", spmt_last_error());
}

/* A descriptor or a word that is lost between processes breaks their world, which who is in finalize by then hears of. What is registered
   can be reached: a put may be refused something of its own, but not the buffer. */
static void buffer_judge(struct sweep *w, int rank, spmt_comm *none)
{
	(void)none;
	if (w->s->code[PUT][rank] == SPMT_ERR_UNSUPPORTED)
		bad(w, "put: rank %d: %s", rank, w->s->said[PUT][rank]);
	for (int step = 0; step < FINALIZE; step++)
		if (step != PUT && w->s->code[step][rank] != w->s->code[step][0])
			bad(w, "%s: rank 0 got %d, rank %d got %d", w->steps[step],
				w->s->code[step][0], rank, w->s->code[step][rank]);
}

static const struct sweep buffer = {
	.steps = buffer_steps, .turn = buffer_turn, .judge = buffer_judge, .arms = true
};

SWEEP(buffer, memory, FAULT_ALLOC, 6)
SWEEP(buffer, mappings, FAULT_MAP, 2)
SWEEP(buffer, descriptors, FAULT_FD, 6)
SWEEP(buffer, registrations, FAULT_REGISTER, 6)

/* ---- the survivors --------------------------------------------------------------------------------------------------- */

enum { WHOLE, SHRINK, NEXT, AGAIN, NEXT_AGAIN, LAST_BARRIER, LAST_FINALIZE };
static const char *const shrink_steps[] = { "init", "shrink", "init of the next world",
	"shrink once more", "init of the world after it", "barrier", "finalize", NULL };

/* Out of memory before a rank has come is nobody's loss: it calls again, and the others wait for it. */
static int shrink(struct sweep *w, int step, int rank, spmt_comm *broken, spmt_uid *next)
{
	int mine = -1, n = -1;

	if (spmt_shrink(broken, next, &mine, &n)) {
		atomic_fetch_add(&w->s->shrinks, 1);
		if (!strstr(spmt_last_error(), "out of memory"))
			bad(w, "%s on rank %d: %s", w->steps[step], rank, spmt_last_error());
		note(w, step, rank, spmt_shrink(broken, next, &mine, &n));
	}
	if (mine != rank || n != RANKS)
		bad(w, "%s: rank %d became %d of %d", w->steps[step], rank, mine, n);
	return w->s->code[step][rank];
}

/* The broken comm is kept until the next world stands. Who comes late to that, and waits for its deadline, is waited for by those who
   shrink once more. */
static void shrink_turn(struct sweep *w, int rank, spmt_comm *none)
{
	spmt_comm *broken = NULL, *comm = NULL;
	spmt_uid next;

	(void)none;
	if (note(w, WHOLE, rank, join(&w->s->uid, rank, RANKS, &broken)))
		return;
	if (rank == 3)
		spmt_abort(broken, -ECANCELED);
	while (!spmt_status(broken))
		sleep_ms(1);
	arm_here(w, rank);
	if (shrink(w, SHRINK, rank, broken, &next))
		return;
	if (note(w, NEXT, rank, join_within(DEADLINE_MS / 2, &next, rank, RANKS, &comm))) {
		if (shrink(w, AGAIN, rank, broken, &next) ||
			note(w, NEXT_AGAIN, rank, join(&next, rank, RANKS, &comm)))
			return;
	}
	if (spmt_finalize(broken))
		bad(w, "finalize of the broken world: %s", spmt_last_error());
	ranks_watch(comm);
	note(w, LAST_BARRIER, rank, spmt_barrier(comm));
	ranks_watch(NULL);
	note(w, LAST_FINALIZE, rank, spmt_finalize(comm));
}

static void shrink_judge(struct sweep *w, int rank, spmt_comm *none)
{
	(void)none;
	for (int step = 0; w->steps[step]; step++)
		if (step == NEXT ? !w->s->code[step][rank] != !w->s->code[step][0]
				 : w->s->code[step][rank] != 0)
			bad(w, "%s: rank 0 got %d, rank %d got %d: %s", w->steps[step],
				w->s->code[step][0], rank, w->s->code[step][rank],
				w->s->said[step][rank]);
}

static int shrink_end(struct sweep *w, int rank, spmt_comm *none)
{
	(void)rank;
	(void)none;
	REQUIRE(!(w->sites >> FAULT_ALLOC & 1) || atomic_load(&w->s->shrinks) > 1);
	return 0;
}

static const struct sweep survivors = { .steps = shrink_steps,
	.turn = shrink_turn,
	.judge = shrink_judge,
	.end = shrink_end,
	.arms = true };

SWEEP(survivors, memory, FAULT_ALLOC, 20)
SWEEP(survivors, mappings, FAULT_MAP, 5)
SWEEP(survivors, descriptors, FAULT_FD, 5)
