/* SPDX-License-Identifier: MIT */
/*
 * Plans as rows of the collectives as GPUs run them, in blocks of several threads: a thread each here, of random grids, one plan made at
 * random after the other, in place and not, where all call the same and where one does not; then one that does not come. The kernels of
 * the host backend are of one thread, so that only this sees how blocks of a plan meet, and share what is copied.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spmt/plan/lower.h"
#include "spmt/plan/rows/row_fit.h"
#include "src/base/mem.h"

/* This program's own kernels, beside the library's. */
#define kernel_collective grid_collective
#define kernel_collective_v grid_collective_v
#define kernel_stage grid_stage
#define kernel_plan grid_plan
#define kernel_plan_row grid_plan_row
#define COLL_ONE_UNIT
#define UNITS_ALIGNED
#define PLAN_IN_BLOCKS 1
#define PLAN_KEPT 96u
#include "src/kernels/broken.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/plan/row_plans.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum {
	RANKS = 3,
	BLOCKS = ROW_PLANS_BLOCKS,
	THREADS = 3,
	PLANS = 40,
	MOST = 1024, /* bytes of a chunk */
	BUFFER = ROW_PLANS_CHUNKS * MOST,
	SHIFTS = 16, /* bytes by which a buffer begins later */
	HEAP = 16 << 20,
	POISON = 0x5c
};

#include "grid_block.h"
#include "src/kernels/coll/coll.c"
#include "src/kernels/coll/copy.c"
#include "src/kernels/coll/direct.c"
#include "src/kernels/coll/give.c"
#include "src/kernels/coll/ll/ll.c"
#include "src/kernels/coll/ll/ll12.c"
#include "src/kernels/coll/meet.c"
#include "src/kernels/coll/push2.c"
#include "src/kernels/coll/pushed.c"
#include "src/kernels/coll/reduce.c"
#include "src/kernels/coll/swap.c"
#include "src/kernels/coll/twoshot.c"
#include "src/kernels/coll/varied.c"
#include "src/kernels/plan.c"
#include "src/kernels/plan_packets.c"
#include "src/kernels/plan_row.c"

/* ---- plans, with their memory in all heaps -------------------------------------------------------------------------------------- */

static struct lowered {
	spmt_plan *plan;
	struct spmt_plan_info info;
	struct plan_layout layout;
	struct row_sets sets;
	uint64_t at, spare; /* offsets in the heaps */
	uint32_t blocks[RANKS];
	struct row_packets packets[RANKS];
} lowered[PLANS];

static uint32_t blocks_of_rank(const spmt_plan *plan, int rank)
{
	return (uint32_t)MAX_OF(plan->ranks[rank].nblocks, 1);
}

static int lower_packets(struct lowered *l)
{
	for (int r = 0; r < RANKS; r++) {
		void *table = plan_table(l->plan, &l->layout, r);

		REQUIRE(table);
		REQUIRE_OK(row_packets_find(l->plan, &l->layout, table, r, &l->packets[r]));
		mem_free(table);
	}
	return 0;
}

/* Two of three touch nothing of each other's but packets, half of these with blocks that are alike, or nearly. */
static int lower_all(void)
{
	uint64_t end = 0;
	int closed = 0, alike = 0, leads = 0;

	for (uint64_t i = 0; i < PLANS; i++) {
		struct lowered *l = &lowered[i];

		l->info.size = sizeof(l->info);
		REQUIRE_OK(i % 3 == 2 ? row_plans_packets(i, RANKS, &l->plan)
				      : row_plans_random(i, RANKS, i % 3, &l->plan));
		REQUIRE_OK(spmt_plan_check(l->plan));
		REQUIRE_OK(spmt_plan_about(l->plan, &l->info));
		REQUIRE_OK(
			plan_lay_out(l->plan, false, l->info.attr.input_chunks * MOST, &l->layout));
		REQUIRE(l->layout.apart || !(i % 3));
		TRY(lower_packets(l));
		alike += l->packets[0].is;
		closed += !l->layout.apart && l->layout.closed;
		l->sets = row_sets(&l->layout, l->layout.leads);
		l->at = end;
		l->spare = end + l->sets.end;
		leads += l->layout.leads;
		end = l->spare + BUFFER;
		for (int r = 0; r < RANKS; r++)
			l->blocks[r] = blocks_of_rank(l->plan, r);
	}
	REQUIRE(end <= HEAP);
	REQUIRE(closed > 0 && closed < PLANS / 3);
	REQUIRE(alike > PLANS / 4);
	REQUIRE(leads > 0);
	return 0;
}

/* ---- a call ------------------------------------------------------------------------------------------------------------------- */

struct call {
	const struct lowered *l;
	int odd; /* the rank that calls something else, -1: none */
	uint32_t nth, threads;
	size_t chunk, bytes;
	bool whole; /* packets are wide, if there are enough */
	bool in_place;
	int slow; /* a rank that comes late, -1: none */
};

static uint32_t any_number(uint64_t x)
{
	x = (x + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return (uint32_t)(x >> 33);
}

static size_t chunk_of(uint32_t any)
{
	static const size_t sizes[] = { 8, 16, 24, 136, 512, MOST };

	return sizes[any % (sizeof(sizes) / sizeof(*sizes))];
}

static struct call call_of(uint32_t nth, bool differ)
{
	uint64_t seed = (uint64_t)nth * 8;
	struct call c = { .l = &lowered[any_number(seed) % PLANS],
		.odd = differ && any_number(seed + 1) % 3 == 0 ? (int)(nth % RANKS) : -1,
		.nth = nth,
		.threads = 1 + any_number(seed + 2) % THREADS,
		.chunk = chunk_of(any_number(seed + 3)),
		.whole = any_number(seed + 7) % 2,
		.in_place = any_number(seed + 4) % 2,
		.slow = any_number(seed + 5) % 8 == 0 ? (int)(any_number(seed + 6) % RANKS) : -1 };

	c.bytes = c.l->info.attr.input_chunks * c.chunk;
	return c;
}

static unsigned char given(const struct call *c, int pe, size_t i)
{
	return (unsigned char)any_number((uint64_t)pe * 7919 + i * 31 + c->nth * 1000003ull);
}

static unsigned char wanted(const struct call *c, size_t i)
{
	unsigned sum = 0;

	for (int pe = 0; pe < RANKS; pe++)
		sum += given(c, pe, i);
	return (unsigned char)sum;
}

/* ---- ranks -------------------------------------------------------------------------------------------------------------------- */

static struct scene {
	struct views views;
	uint32_t calls, absent; /* `absent`: the call to which the last rank does not come */
	bool differ;
	_Atomic int wrong;		 /* 1 + the first call of which a result was */
	pthread_barrier_t before_absent; /* all have what came before: it has a deadline */
	struct rank {
		struct block blocks[BLOCKS];
		pthread_barrier_t all;
		_Alignas(16) unsigned char srcs[BUFFER + SHIFTS], dsts[BUFFER + SHIFTS],
			was[BUFFER];
		unsigned char *src, *dst; /* of a call */
	} ranks[RANKS];
} scene;

struct thread {
	pthread_t id;
	int pe;
	uint32_t tid, block;
};

/* As spmt/plan/rows has it. */
static void give(const struct call *c, int pe, struct kernel_plan_row_args *args)
{
	const struct lowered *l = c->l;
	struct rank *r = &scene.ranks[pe];
	uint64_t heap = spmtd_at_(views_heap(&scene.views, pe)), dst = spmtd_at_(r->dst);
	uint64_t src = c->in_place ? dst : spmtd_at_(r->src);
	bool is = l->info.attr.in_place;

	args->plan = (struct plan_given){ .at = heap + l->at,
		.dst = dst,
		.src = is ? dst : src,
		.steps = l->layout.steps,
		.places = l->layout.places,
		.words = l->layout.words,
		.scratch = l->layout.scratch,
		.packets = l->layout.packets,
		.other_packets = l->sets.other_packets,
		.other_scratch = l->sets.other_scratch,
		.chunk = c->chunk,
		.type = SPMT_TYPE_U8,
		.op = SPMT_OP_SUM,
		.blocks = l->plan->ranks[pe].nblocks,
		.row = 1 };
	args->from = args->to = src;
	args->bytes = c->bytes;
	args->apart = l->layout.apart;
	args->closed = l->layout.closed;
	if (is && !c->in_place)
		args->to = dst;
	if (!is && c->in_place)
		args->to = args->plan.src = heap + l->spare;
}

static void make(const struct thread *t, const struct call *c)
{
	struct kernel_plan_packets_args all = {
		.row = { .same = { .view = view_of(&scene.views, t->pe),
				 .room = VIEWS_ROOM,
				 .places = coll_places(RANKS),
				 .words = AREA_BLOCKS } }
	};
	struct kernel_plan_row_args *args = &all.row;
	const struct row_packets *p = &c->l->packets[t->pe];
	struct plan_packets_way way;

	give(c, t->pe, args);
	/* one that calls something else has other packets, too */
	if (c->odd == t->pe && args->from == args->to)
		args->plan.chunk = chunk_of(any_number((uint64_t)c->nth * 8 + 11));
	args->same.dst = args->plan.dst;
	args->same.src = args->plan.src;
	args->same.key = c->odd == t->pe ? 1ull << 40 : c->nth % 4;
	args->same.type = args->plan.type;
	args->same.op = args->plan.op;
	/* Nothing else ends soon, however slow the machine is. */
	args->same.view.timeout_ns = c->nth == scene.absent ? 20000000 : 100000000000;
	own_tid = t->tid;
	own_threads = c->threads;
	own_block = t->block;
	own_blocks = c->l->blocks[t->pe];
	own_meeting = &scene.ranks[t->pe].blocks[t->block];
	way = row_packets_way(p, &args->plan, c->threads, c->whole, 1);
	if (!row_packets_fit(way, args)) {
		kernel_plan_row.host(args);
		return;
	}
	row_packets_fill(p, &args->plan, way, scene.views.peers, c->threads, &all.packets);
	run_plan_packets(&all, true, way);
}

/* Most buffers are aligned. */
static uint32_t shift(const struct call *c, int buffer)
{
	uint32_t any = any_number((uint64_t)c->nth * 64 + (uint64_t)buffer + 9);

	return any % 3 ? 0 : any / 3 % SHIFTS;
}

static void prepare(const struct thread *t, const struct call *c)
{
	struct rank *r = &scene.ranks[t->pe];

	r->src = r->srcs + shift(c, 2 * t->pe);
	r->dst = r->dsts + shift(c, 2 * t->pe + 1);
	for (size_t i = 0; i < BUFFER; i++)
		r->src[i] = given(c, t->pe, i);
	memset(r->dst, POISON, BUFFER);
	if (c->in_place)
		memcpy(r->dst, r->src, c->bytes);
	memcpy(r->was, r->dst, sizeof(r->was));
	/* even where the calls differ, or one is missing */
	if (c->l->info.attr.in_place && (c->odd >= 0 || c->nth >= scene.absent))
		memcpy(r->was, r->src, c->bytes);
}

/* Where a rank is missing, nothing is moved either; but what is to be copied may have been. */
static void check(const struct thread *t, const struct call *c)
{
	const struct rank *r = &scene.ranks[t->pe];
	size_t n = c->odd >= 0 || c->nth >= scene.absent ? 0 : c->bytes;
	int right = 0;

	for (size_t i = 0; i < BUFFER; i++) {
		bool copied = r->dst[i] == r->was[i] ||
			(c->nth > scene.absent - 1 && r->dst[i] == POISON);

		if (i < n ? r->dst[i] != wanted(c, i) : !copied)
			atomic_compare_exchange_strong(&scene.wrong, &right, (int)c->nth + 1);
	}
}

static void until_told(void)
{
	while (!__atomic_load_n(&scene.views.stop, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void *run(void *arg)
{
	const struct thread *t = arg;
	const struct timespec late = { .tv_nsec = 1000000 };
	bool first = !t->tid && !t->block;

	for (uint32_t nth = 0; nth < scene.calls; nth++) {
		struct call c = call_of(nth, scene.differ);

		if (first)
			prepare(t, &c);
		pthread_barrier_wait(
			nth == scene.absent ? &scene.before_absent : &scene.ranks[t->pe].all);
		if (c.slow == t->pe && any_number(nth + t->block) % 2)
			nanosleep(&late, NULL);
		if (nth == scene.absent && t->pe == RANKS - 1)
			until_told();
		else if (t->block < c.l->blocks[t->pe] && t->tid < c.threads)
			make(t, &c);
		pthread_barrier_wait(&scene.ranks[t->pe].all);
		if (first)
			check(t, &c);
	}
	return NULL;
}

static int run_all(void)
{
	struct thread threads[RANKS][BLOCKS][THREADS];

	for (int pe = 0; pe < RANKS; pe++)
		for (uint32_t b = 0; b < BLOCKS; b++)
			for (uint32_t i = 0; i < THREADS; i++) {
				struct thread *t = &threads[pe][b][i];

				*t = (struct thread){ .pe = pe, .tid = i, .block = b };
				if (pthread_create(&t->id, NULL, run, t))
					abort();
			}
	for (int i = 0; i < RANKS * BLOCKS * THREADS; i++)
		pthread_join((&threads[0][0][0])[i].id, NULL);
	return 0;
}

static int place_tables(int pe)
{
	for (int i = 0; i < PLANS; i++) {
		const struct lowered *l = &lowered[i];
		void *table = plan_table(l->plan, &l->layout, pe);

		REQUIRE(table);
		memcpy(views_heap(&scene.views, pe) + l->at, table, l->layout.words);
		mem_free(table);
	}
	return 0;
}

static int run_scene(uint32_t calls, bool differ, uint32_t absent)
{
	if (!lowered[0].plan)
		TRY(lower_all());
	REQUIRE_EQ(views_open(&scene.views, RANKS, HEAP, true), 0);
	scene.calls = calls;
	scene.differ = differ;
	scene.absent = absent;
	atomic_store(&scene.wrong, 0);
	pthread_barrier_init(&scene.before_absent, NULL, RANKS * BLOCKS * THREADS);
	for (int pe = 0; pe < RANKS; pe++) {
		TRY(place_tables(pe));
		pthread_barrier_init(&scene.ranks[pe].all, NULL, BLOCKS * THREADS);
		for (int b = 0; b < BLOCKS; b++) {
			pthread_mutex_init(&scene.ranks[pe].blocks[b].lock, NULL);
			pthread_cond_init(&scene.ranks[pe].blocks[b].all, NULL);
		}
	}
	return run_all();
}

static int ended_well(void)
{
	for (int pe = 0; pe < RANKS; pe++) {
		struct spmt_view v = view_of(&scene.views, pe);

		REQUIRE_EQ(area_of(&v)->error, 0);
		REQUIRE_EQ(area_of(&v)->coll_epoch, scene.calls);
		REQUIRE_EQ(area_of(&v)->grid[GRID_ENDED], area_of(&v)->grid[GRID_BEFORE]);
	}
	if (atomic_load(&scene.wrong))
		return ranks_fail("call %d: a wrong result", atomic_load(&scene.wrong) - 1);
	REQUIRE_EQ(scene.views.stop, 0);
	views_close(&scene.views);
	return 0;
}

static int all_alike(void)
{
	TRY(run_scene(1500, false, UINT32_MAX));
	return ended_well();
}

static int some_differ(void)
{
	TRY(run_scene(1500, true, UINT32_MAX));
	return ended_well();
}

/* All who wait are told, or time out; the last rank, which comes to the next call, refuses it. */
static int one_is_absent(void)
{
	for (uint32_t absent = 20; absent < 40; absent++) {
		TRY(run_scene(absent + 2, false, absent));
		REQUIRE_EQ(scene.views.stop, 1);
		for (int pe = 0; pe < RANKS; pe++) {
			struct spmt_view v = view_of(&scene.views, pe);
			int mark = (int)(uint32_t)area_of(&v)->error;

			REQUIRE(mark == SPMT_ERR_TIMEOUT || mark == SPMT_ERR_ABORTED);
		}
		if (atomic_load(&scene.wrong))
			return ranks_fail("call %d: a wrong result without a rank",
				atomic_load(&scene.wrong) - 1);
		views_close(&scene.views);
	}
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "all_alike", all_alike },
		{ "some_differ", some_differ }, { "one_is_absent", one_is_absent } };

	if (SANITIZE_THREAD) {
		puts("1..1\nok 1 - blocks of threads # SKIP they all store what those of a GPU share");
		return 0;
	}
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
