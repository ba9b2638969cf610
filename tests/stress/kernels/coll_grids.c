/* SPDX-License-Identifier: MIT */
/*
 * The collectives' kernel as GPUs run it, in blocks of several threads: a thread each here, of random grids. Every row of the table, kind
 * and size after the other, where all call the same and where one does not; then one that does not come. The kernels of the host backend
 * are of one thread, so that only this sees how blocks meet.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* This program's own kernels, beside the library's. */
#define kernel_collective grid_collective
#define kernel_collective_v grid_collective_v
#define kernel_stage grid_stage
#define fold_run grid_fold_run
#define fold_f8 grid_fold_f8
#define fold_mean grid_fold_mean
#define fold_sum grid_fold_sum
#define COLL_ONE_UNIT
#define UNITS_ALIGNED
#include "src/kernels/broken.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum {
	RANKS = 3,
	BLOCKS = 3,
#if defined(KERNELS_OF_GPUS)
	THREADS = 12,
	WARP = 4,
	CALLS = 400,
#else
	THREADS = 4,
	WARP = 1,
	CALLS = 1500,
#endif
	MOST = VIEWS_ROOM,
	BUFFER = RANKS * MOST + 64,
	POISON = 0x5c
};

#define BLOCK_ABREAST THREADS
#include "grid_block.h"

/* As GPUs are of accesses that are not aligned. */
static uint64_t aligned_at(uint64_t a, uint64_t size)
{
	if (a % size)
		abort();
	return a;
}
#define spmtd_gload16_(a) spmtd_gload16_(aligned_at(a, 2))
#define spmtd_gload32_(a) spmtd_gload32_(aligned_at(a, 4))
#define spmtd_gload64_(a) spmtd_gload64_(aligned_at(a, 8))
#define spmtd_gload16b_(a) spmtd_gload16b_(aligned_at(a, 16))
#define spmtd_gstore16_(a, x) spmtd_gstore16_(aligned_at(a, 2), x)
#define spmtd_gstore32_(a, x) spmtd_gstore32_(aligned_at(a, 4), x)
#define spmtd_gstore64_(a, x) spmtd_gstore64_(aligned_at(a, 8), x)
#define spmtd_gstore16b_(a, x) spmtd_gstore16b_(aligned_at(a, 16), x)

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
#include "src/kernels/fold/fold.c"
#include "src/kernels/fold/fold_f8.c"
#include "src/kernels/fold/fold_mean.c"
#include "src/kernels/fold/fold_premul.c"
#include "src/kernels/fold/fold_sum.c"

/* ---- a call ------------------------------------------------------------------------------------------------------------------- */

struct call {
	enum kernel_collective_kind kind;
	int row, root, odd; /* odd: the rank that calls something else, -1: none */
	uint32_t nth, blocks, threads;
	size_t bytes;
	bool in_place;
};

static uint32_t any_number(uint64_t x)
{
	x = (x + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return (uint32_t)(x >> 33);
}

static bool does(int row, const struct call *c)
{
	struct coll_case of = { .kind = c->kind,
		.bytes = c->bytes,
		.room = VIEWS_ROOM,
		.wanted = row,
		.whole = true,
		.sums = true,
		.staged = true,
		.ranks = RANKS };

	return coll_choose(&of) == row;
}

static struct call call_of(uint32_t nth, bool differ)
{
	static const size_t sizes[] = { 0, 1, 8, 15, 16, 17, 40, 160, 333, 1024, MOST };
	uint64_t seed = (uint64_t)nth * 8;
	struct call c = { .kind = (enum kernel_collective_kind)(any_number(seed) % COLL_KINDS),
		.row = (int)(any_number(seed + 1) % COLL_KERNEL_ROWS),
		.root = (int)(any_number(seed + 2) % RANKS),
		.odd = differ && any_number(seed + 3) % 3 == 0 ? (int)(nth % RANKS) : -1,
		.nth = nth,
		.blocks = 1 + any_number(seed + 4) % BLOCKS,
		.threads = WARP * (1 + any_number(seed + 5) % (THREADS / WARP)),
		.bytes = sizes[any_number(seed + 6) % (sizeof(sizes) / sizeof(*sizes))] };

	c.in_place = c.kind == COLL_EXCHANGE ||
		(coll_kinds[c.kind].in_place && any_number(seed + 7) % 2);
	if (WARP > 1)
		c.row = COLL_ROW_ll12;
	while (!does(c.row, &c)) /* `copy` is not, whose posts want a host */
		c.row = (c.row + 1) % COLL_KERNEL_ROWS;
	return c;
}

/* At peers a rank may have more blocks than another. */
static uint32_t blocks_of(const struct call *c, int pe)
{
	bool alike = coll_way(c->row) != COLL_AT_PEERS || any_number(c->nth) % 2;

	return alike ? c->blocks : 1 + (c->blocks + (uint32_t)pe) % BLOCKS;
}

static unsigned char given(const struct call *c, int pe, size_t i)
{
	return (unsigned char)any_number((uint64_t)pe * 7919 + i * 31 + c->nth * 1000003ull);
}

static unsigned char folded(const struct call *c, size_t i)
{
	unsigned sum = 0;

	for (int pe = 0; pe < RANKS; pe++)
		sum += given(c, pe, i);
	return (unsigned char)sum;
}

/* Bytes from an address that is aligned for all, which most are: of dst, and of a src that is not in place. Of every other call it is the
   same on all ranks. */
static size_t shift_of(const struct call *c, int pe, uint64_t which)
{
	uint32_t x =
		any_number(((uint64_t)c->nth * 2 + which) * RANKS + (c->nth % 2) * (uint64_t)pe);

	return x % 3 ? 0 : x / 3 % 17;
}

static size_t src_apart(const struct call *c, int pe)
{
	return shift_of(c, pe, 1);
}

/* Where its buffers begin in the memory of a rank. */
static size_t at_own(const struct call *c, int pe, bool other_blocks, bool blocks)
{
	return shift_of(c, pe, 0) +
		(c->in_place && other_blocks && !blocks ? (size_t)pe * c->bytes : 0);
}

static size_t src_at(const struct call *c, int pe)
{
	const struct coll_kind *k = &coll_kinds[c->kind];

	return at_own(c, pe, k->dst_blocks, k->src_blocks);
}

static size_t dst_at(const struct call *c, int pe)
{
	const struct coll_kind *k = &coll_kinds[c->kind];

	return at_own(c, pe, k->src_blocks, k->dst_blocks);
}

static bool gets(const struct call *c, int pe)
{
	return c->odd < 0 && (coll_kinds[c->kind].among != COLL_ALL_TO_ROOT || pe == c->root);
}

/* Byte i of pe's dst. */
static unsigned char wanted(const struct call *c, int pe, size_t i)
{
	const struct coll_kind *k = &coll_kinds[c->kind];
	size_t own = (size_t)pe * c->bytes;

	if (c->kind == COLL_PERMUTE)
		return given(c, (pe + RANKS - 1) % RANKS, i);
	if (k->folds)
		return folded(c, i + (k->src_blocks ? own : 0));
	if (!k->dst_blocks)
		return given(c, c->root, i + (k->src_blocks ? own : 0));
	return given(c, (int)(i / c->bytes), i % c->bytes + (k->src_blocks ? own : 0));
}

/* ---- ranks -------------------------------------------------------------------------------------------------------------------- */

static struct scene {
	struct views views;
	uint32_t calls, absent; /* `absent`: the call to which the last rank does not come */
	uint64_t before;	/* epochs */
	bool differ;
	/* not 0: rank 0 is slow to look for what it has answered, or is sent on; all are of the row before this number, and every
	   other one where that is ll12 */
	int late;
	/* a graph is replayed that is to be given up: of one call, this one */
	bool given_up;
	uint32_t from;
	uint32_t
		piece; /* of one comm's stage: each place has one writer, whose kernels follow each other */
	_Atomic int wrong;		 /* 1 + the first call of which a result was */
	pthread_barrier_t before_absent; /* all have what came before: it has a deadline */
	struct rank {
		struct block blocks[BLOCKS], warps[BLOCKS][THREADS / WARP];
		pthread_barrier_t all;
		_Alignas(16) unsigned char src[BUFFER];
		_Alignas(16) unsigned char dst[BUFFER];
		unsigned char was[BUFFER];
	} ranks[RANKS];
} scene;

struct thread {
	pthread_t id;
	int pe;
	uint32_t tid, block;
};

static void make(const struct thread *t, const struct call *c)
{
	struct rank *r = &scene.ranks[t->pe];
	bool odd = c->odd == t->pe;
	int from = c->kind == COLL_PERMUTE ? (t->pe + RANKS - 1) % RANKS : c->root;
	struct kernel_collective_args args = { .view = view_of(&scene.views, t->pe),
		.dst = (uint64_t)(uintptr_t)(r->dst + dst_at(c, t->pe)),
		.src = (uint64_t)(uintptr_t)(c->in_place ? r->dst + src_at(c, t->pe)
							 : r->src + src_apart(c, t->pe)),
		.bytes = odd ? c->bytes / 2 : c->bytes,
		.key = odd ? 1ull << 40 : c->nth % 4,
		.algorithm = odd && c->nth % 2 ? COLL_ROW_ll : c->row,
		.type = SPMT_TYPE_U8,
		.op = SPMT_OP_SUM,
		.moves = coll_moves(c->kind, t->pe, RANKS, from, (t->pe + 1) % RANKS),
		.room = VIEWS_ROOM,
		.places = views_places(RANKS, scene.piece),
		.words = c->nth % 3 ? AREA_BLOCKS : AREA_LANE_BLOCKS,
		.captured = scene.given_up };

	/* Nothing else ends soon, however slow the machine is. */
	args.view.timeout_ns = c->nth == scene.absent ? 20000000
		: scene.late			      ? 30000000000
						      : 100000000000;
	args.share = coll_share(args.bytes, RANKS, blocks_of(c, t->pe), c->threads);
	args.brief = c->nth % 5 ? coll_brief(&args, RANKS, c->threads) : 0;
	own_tid = t->tid;
	own_threads = c->threads;
	own_block = t->block;
	own_blocks = blocks_of(c, t->pe);
	own_meeting = &r->blocks[t->block];
#if defined(KERNELS_OF_GPUS)
	own_warp = &r->warps[t->block][t->tid / WARP];
#endif
	kernel_collective.host(&args);
}

static void prepare(const struct thread *t, const struct call *c)
{
	struct rank *r = &scene.ranks[t->pe];

	size_t given_bytes = c->bytes * (coll_kinds[c->kind].src_blocks ? RANKS : 1);
	size_t src = src_apart(c, t->pe);

	for (size_t i = src; i < sizeof(r->src); i++)
		r->src[i] = given(c, t->pe, i - src);
	memset(r->dst, POISON, sizeof(r->dst));
	if (c->in_place)
		memcpy(r->dst + src_at(c, t->pe), r->src + src, given_bytes);
	memcpy(r->was, r->dst, sizeof(r->was));
}

/* Where a rank is missing, nothing is moved either. */
static void check(const struct thread *t, const struct call *c)
{
	const struct rank *r = &scene.ranks[t->pe];
	size_t at = dst_at(c, t->pe), n = c->bytes * (coll_kinds[c->kind].dst_blocks ? RANKS : 1);
	int right = 0;

	if (c->nth >= scene.absent || scene.given_up || !gets(c, t->pe))
		n = 0;
	for (size_t i = 0; i < BUFFER; i++)
		if (r->dst[i] != (i - at < n ? wanted(c, t->pe, i - at) : r->was[i]))
			atomic_compare_exchange_strong(&scene.wrong, &right, (int)c->nth + 1);
}

/* By the others, whose waits end. */
static void until_told(void)
{
	while (!__atomic_load_n(&scene.views.stop, __ATOMIC_ACQUIRE))
		sched_yield();
}

static struct call next_call(uint32_t nth)
{
	struct call c = call_of(scene.from + nth, scene.differ);

	if (scene.late) {
		c.kind = COLL_ALL_REDUCE;
		c.row = scene.late - 1;
		if (c.row == COLL_ROW_ll12 && nth % 2)
			c.row = COLL_ROW_ll;
	}
	return c;
}

static void *run(void *arg)
{
	const struct thread *t = arg;
	bool first = !t->tid && !t->block;

	for (uint32_t nth = 0; nth < scene.calls; nth++) {
		struct call c = next_call(nth);

		if (first)
			prepare(t, &c);
		pthread_barrier_wait(
			nth == scene.absent ? &scene.before_absent : &scene.ranks[t->pe].all);
		if (nth == scene.absent && t->pe == RANKS - 1)
			until_told();
		else if (t->block < blocks_of(&c, t->pe) && t->tid < c.threads)
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

static void wake_late(const struct spmt_view *v, int32_t pe)
{
	struct timespec while_others_go_on = { .tv_nsec = 1000000 };

	if (v->pe == 0 && pe == RANKS - 1)
		nanosleep(&while_others_go_on, NULL);
}

static void meeting_open(struct block *b)
{
	memset(b, 0, sizeof(*b));
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->all, NULL);
}

static int run_scene(uint32_t calls, bool differ, uint64_t before, uint32_t absent)
{
	scene.piece = 1 + (scene.piece + 2) % 6;
	REQUIRE_EQ(views_open(&scene.views, RANKS, 4096, true), 0);
	if (scene.late)
		scene.views.ops.wake = wake_late;
	scene.calls = calls;
	scene.differ = differ;
	scene.absent = absent;
	atomic_store(&scene.wrong, 0);
	pthread_barrier_init(&scene.before_absent, NULL, RANKS * BLOCKS * THREADS);
	for (int pe = 0; pe < RANKS; pe++) {
		struct spmt_view v = view_of(&scene.views, pe);

		area_of(&v)->coll_epoch = before;
		pthread_barrier_init(&scene.ranks[pe].all, NULL, BLOCKS * THREADS);
		for (int b = 0; b < BLOCKS; b++) {
			meeting_open(&scene.ranks[pe].blocks[b]);
			for (int i = 0; i < THREADS / WARP; i++)
				meeting_open(&scene.ranks[pe].warps[b][i]);
		}
	}
	scene.views.stop = scene.given_up;
	return run_all();
}

static int ended_well(uint64_t before)
{
	for (int pe = 0; pe < RANKS; pe++) {
		struct spmt_view v = view_of(&scene.views, pe);

		REQUIRE_EQ(area_of(&v)->error, 0);
		REQUIRE_EQ(area_of(&v)->coll_epoch, before + scene.calls);
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
	for (scene.from = 0; scene.from < CALLS; scene.from += CALLS / 6) {
		TRY(run_scene(CALLS / 6, false, 0, UINT32_MAX));
		TRY(ended_well(0));
	}
	scene.from = 0;
	return 0;
}

static int some_differ(void)
{
	TRY(run_scene(CALLS, true, 0, UINT32_MAX));
	return ended_well(0);
}

static int flags_come_again(void)
{
	TRY(run_scene(300, true, AREA_TURN - 150, UINT32_MAX));
	return ended_well(AREA_TURN - 150);
}

/* Behind what rank 0 tells last the others may be in the next call before it looks, with grids of other sizes, or sends of more bytes. */
static int some_are_ahead(void)
{
	static const int rows[] = { COLL_ROW_push2, COLL_ROW_twoshot, COLL_ROW_ll12 };

	for (int i = 0; i < 3; i++) {
		int rc;

		scene.late = 1 + rows[i];
		rc = run_scene(80, false, 0, UINT32_MAX);
		scene.late = 0;
		TRY(rc ? rc : ended_well(0));
	}
	return 0;
}

/* Each row in turn is the one that waits in vain. Whoever was told by then refuses what comes; who heard of it while waiting, too,
   may be the first to mark the others. */
static int one_is_absent(void)
{
	for (uint32_t absent = 20; absent < 40; absent++) {
		int late = 0;

		TRY(run_scene(absent + 2, false, 0, absent));
		REQUIRE_EQ(scene.views.stop, 1);
		for (int pe = 0; pe < RANKS; pe++) {
			struct spmt_view v = view_of(&scene.views, pe);
			int mark = (int)(uint32_t)area_of(&v)->error;

			REQUIRE(mark == SPMT_ERR_TIMEOUT || mark == SPMT_ERR_ABORTED);
			REQUIRE(scene.views.records[pe].code != 0);
			late += scene.views.records[pe].code == SPMT_ERR_TIMEOUT;
		}
		REQUIRE(late > 0);
		if (atomic_load(&scene.wrong))
			return ranks_fail("call %d: a wrong result without a rank",
				atomic_load(&scene.wrong) - 1);
		views_close(&scene.views);
	}
	return 0;
}

#if defined(KERNELS_OF_GPUS)
/* The first block's last thread alone has seen that, and no block of any rank stores. */
static int graphs_given_up(void)
{
	for (uint32_t from = 0; from < 200; from++) {
		struct call c = call_of(from, false);

		if (c.row != COLL_ROW_ll12)
			continue;
		scene.given_up = true;
		scene.from = from;
		TRY(run_scene(1, false, 0, UINT32_MAX));
		scene.given_up = false;
		scene.from = 0;
		if (atomic_load(&scene.wrong))
			return ranks_fail("call %u stores", from);
		views_close(&scene.views);
	}
	return 0;
}
#endif

int main(void)
{
	static const struct test_case cases[] = {
		{ "all_alike", all_alike },
		{ "some_differ", some_differ },
		{ "flags_come_again", flags_come_again },
		{ "some_are_ahead", some_are_ahead },
		{ "one_is_absent", one_is_absent },
#if defined(KERNELS_OF_GPUS)
		{ "graphs_given_up", graphs_given_up },
#endif
	};

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
