/* SPDX-License-Identifier: MIT */
/* The library's kernels as host functions, a thread a rank, on views made by hand; collectives
   against a naive oracle. */
#include "src/kernels/fold/slot_unit.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/folds.h"

TestSuite(kernels, .timeout = 100);

/* ---- the oracle ----------------------------------------------------------------------------- */

enum { MOST = 11, ANY_ROW = -1 };

/* What rank `pe` gives as element i of a case: all kinds of numbers, or small ones. */
static uint64_t element(uint32_t seed, int pe, size_t i, int type)
{
	uint64_t x =
		(seed * 2654435761u) ^ ((uint64_t)i * 0x9e3779b97f4a7c15ull) ^ ((uint64_t)pe << 40);
	static const double some[] = { 0, -0.0, 1, -1, 0.5, 3, 1e-7, -2e-39, 60000, -0.1, 1e30, 7 };

	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	x ^= x >> 31;
	if (type >= SPMT_TYPE_F16 && x % 4)
		return folds_bits((enum spmt_type)type, some[x / 4 % 12]);
	return x & folds_mask((enum spmt_type)type);
}

struct call {
	int kind, type, op, root;
	size_t count;
	uint32_t seed;
	bool in_place;
};

static uint64_t reduced(const struct call *c, int n, size_t i)
{
	uint64_t in[MOST] = { 0 };

	for (int pe = 0; pe < n; pe++)
		in[pe] = element(c->seed, pe, i, c->type);
	return folds_of((enum spmt_type)c->type, (enum spmt_op)c->op, in, n);
}

/* ---- the collectives against it ------------------------------------------------------------- */

/* Where rank i's data goes: to the next but one, nowhere from rank 0 if there are more than two. */
static int target(int i, int n)
{
	return i == 0 && n > 2 ? -1 : (i + 2) % n;
}

static int source(int pe, int n)
{
	for (int i = 0; i < n; i++)
		if (target(i, n) == pe)
			return i;
	return -1;
}

/* What dst[i] is on rank pe after the call; false: untouched. */
static bool expected(const struct call *c, int n, int pe, size_t i, uint64_t *want)
{
	size_t block = c->count ? i / c->count : 0, inside = c->count ? i % c->count : 0;
	int from = source(pe, n);

	switch (c->kind) {
	case COLL_BROADCAST:
		*want = element(c->seed, c->root, i, c->type);
		return true;
	case COLL_ALL_GATHER:
		*want = element(c->seed, (int)block, inside, c->type);
		return true;
	case COLL_ALL_TO_ALL:
	case COLL_EXCHANGE:
		*want = element(c->seed, (int)block, (size_t)pe * c->count + inside, c->type);
		return true;
	case COLL_PERMUTE:
		if (from >= 0)
			*want = element(c->seed, from, i, c->type);
		return from >= 0;
	case COLL_GATHER:
		if (pe == c->root)
			*want = element(c->seed, (int)block, inside, c->type);
		return pe == c->root;
	case COLL_SCATTER:
		*want = element(c->seed, c->root, (size_t)pe * c->count + i, c->type);
		return true;
	case COLL_REDUCE_SCATTER:
		*want = reduced(c, n, (size_t)pe * c->count + i);
		return true;
	default:
		if (c->kind == COLL_REDUCE && pe != c->root)
			return false;
		*want = reduced(c, n, i);
		return true;
	}
}

struct runner {
	pthread_t thread;
	struct spmt_view v;
	uint32_t room; /* of slots */
	int row;       /* the algorithm; ANY_ROW: as the library chooses */
	uint64_t calls;
	char message[256];
};

/* The algorithm for a call of blocks of so many bytes; ANY_ROW: the one to test does not do it. */
static int row_for(const struct runner *r, enum kernel_collective_kind kind, size_t bytes)
{
	struct coll_case c = { kind, .bytes = bytes, .room = r->room, .ranks = r->v.npes,
		.whole = true, .sums = true, .wanted = r->row };
	int row = r->row;

	if (row == ANY_ROW)
		return coll_choose(&c);
	if (row == COLL_ROW_ll12)
		return coll_choose(&c) == row ? row : ANY_ROW;
	if (!(coll_rows[row].kinds >> kind & 1))
		return ANY_ROW;
	return coll_rows[row].way == COLL_BY_SLOTS && bytes > r->room ? ANY_ROW : row;
}

static int run_call(struct runner *r, const struct call *c, char *memory, size_t room)
{
	int n = r->v.npes, pe = r->v.pe;
	size_t size = folds_width[c->type];
	struct coll_moves moves = coll_moves((enum kernel_collective_kind)c->kind, pe, n,
		c->kind == COLL_PERMUTE ? source(pe, n) : c->root, target(pe, n));
	size_t given = c->count * (moves.src_blocks ? (size_t)n : 1);
	size_t got = c->count * (moves.dst_blocks ? (size_t)n : 1);
	/* Differently aligned on every rank, or on none. */
	char *src = memory + size * (c->seed / 2 % 2 ? (size_t)(pe % 3) : c->seed / 4 % 8),
	     *dst = c->in_place ? src : memory + room / 2 + size * (size_t)(c->seed % 5);
	struct kernel_collective_args args = { .view = r->v,
		.dst = (uint64_t)(uintptr_t)dst,
		.src = (uint64_t)(uintptr_t)src,
		.bytes = c->count * size,
		.key = c->seed,
		.algorithm = row_for(r, (enum kernel_collective_kind)c->kind, c->count * size),
		.type = c->type,
		.op = c->op,
		.moves = moves,
		.room = r->room,
		.places = views_places(n, 1 + c->seed % 24),
		.words = AREA_BLOCKS };

	if ((args.algorithm == COLL_ROW_push2 || args.algorithm == COLL_ROW_ll12) && moves.folds &&
		!coll_sums(c->type, c->op, n))
		return 0;
	if (args.algorithm == ANY_ROW)
		return 0;
	args.share = coll_share(args.bytes, n, 1, 1);
	r->calls++;
	/* what is to be seen to be as it was */
	memset(memory, 0x5a, size * (c->count * (size_t)n + 8));
	memset(memory + room / 2, 0x5a, size * (c->count * (size_t)n + 8));
	for (size_t i = 0; i < given; i++) {
		uint64_t x = element(c->seed, pe, i, c->type);

		memcpy(src + i * size, &x, size);
	}
	kernel_collective.host(&args);
	for (size_t i = 0; i <= got; i++) {
		uint64_t want = 0x5a5a5a5a5a5a5a5aull, is = 0;

		if (i < got)
			expected(c, n, pe, i, &want);
		memcpy(&is, dst + i * size, size);
		want = size == 8 ? want : want & ((1ull << 8 * size) - 1);
		if (is != want && !r->message[0])
			snprintf(r->message, sizeof(r->message),
				"%s, kind %d type %d op %d count %zu: rank %d of %d: [%zu] is "
				"%#llx, not %#llx",
				coll_rows[args.algorithm].name, c->kind, c->type, c->op, c->count,
				pe, n, i, (unsigned long long)is, (unsigned long long)want);
	}
	return r->message[0] || area_of(&r->v)->error;
}

static void run_ops(struct runner *r, struct call *c, char *memory, size_t room)
{
	bool reduces = c->kind >= COLL_REDUCE_SCATTER;
	int places = c->kind == COLL_ALL_REDUCE || c->kind == COLL_BROADCAST ? 2 : 1;

	for (c->op = 0; c->op <= (reduces ? SPMT_OP_AVG : 0); c->op++)
		for (int place = 0; place < places; place++) {
			if (!folds_valid((enum spmt_type)c->type, (enum spmt_op)c->op))
				continue;
			c->in_place = c->kind == COLL_EXCHANGE || place;
			c->seed++;
			c->root = (int)(c->seed % (uint32_t)r->v.npes);
			run_call(r, c, memory, room);
		}
}

static void *run_all(void *arg)
{
	static const size_t counts[] = { 0, 1, 2, 7, 33, 1000 };
	struct runner *r = arg;
	size_t room = 2 * (MOST * 1000 * 8 + 64);
	char *memory = malloc(room);
	struct call c = { .seed = 1 };

	for (c.kind = 0; memory && c.kind < COLL_KINDS; c.kind++)
		for (c.type = 0; c.type < FOLDS_TYPES; c.type++)
			for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
				c.count = counts[i];
				run_ops(r, &c, memory, room);
			}
	free(memory);
	return NULL;
}

static void start_all(struct views *w, int n, const struct runner *like, struct runner *runners,
	void *(*fn)(void *))
{
	for (int pe = 0; pe < n; pe++) {
		runners[pe] = *like;
		runners[pe].v = view_of(w, pe);
	}
	for (int pe = 0; pe < n; pe++)
		cr_assert_eq(pthread_create(&runners[pe].thread, NULL, fn, &runners[pe]), 0);
	for (int pe = 0; pe < n; pe++)
		pthread_join(runners[pe].thread, NULL);
}

static void collectives_with(int n, int row, uint32_t room)
{
	struct runner runners[MOST];
	struct views w;

	cr_assert_eq(views_open(&w, n, 4096, n % 2), 0);
	start_all(&w, n, &(struct runner){ .room = room, .row = row }, runners, run_all);
	for (int pe = 0; pe < n; pe++) {
		cr_expect_str_empty(runners[pe].message, "%s", runners[pe].message);
		cr_expect_eq(area_of(&runners[pe].v)->error, 0);
		cr_expect_eq(area_of(&runners[pe].v)->coll_epoch, runners[pe].calls);
		cr_expect_gt(runners[pe].calls, 50);
	}
	views_close(&w);
}

/* Every row of the table over all kinds and sizes that are its own; then as the library chooses, one after the other. */
static void collectives_of(int n)
{
	for (int row = 0; row < COLL_KERNEL_ROWS; row++)
		if (row != COLL_ROW_copy /* it posts to a host: flow-copies */ &&
			(row != COLL_ROW_push2 || n > 1))
			collectives_with(n, row, VIEWS_ROOM);
	collectives_with(n, ANY_ROW, VIEWS_ROOM);
	collectives_with(n, ANY_ROW, 64);
}

Test(kernels, collectives_of_1)
{
	collectives_of(1);
}

Test(kernels, collectives_of_2)
{
	collectives_of(2);
}

Test(kernels, collectives_of_3)
{
	collectives_of(3);
}

Test(kernels, collectives_of_5)
{
	collectives_of(5);
}

/* More than a thread has loads for. */
Test(kernels, blocks_meet_in_folds_of_11)
{
	collectives_with(11, COLL_ROW_twoshot, 64);
}

/* An all_reduce of u64: sums. */
static struct kernel_collective_args sum_args(
	const struct spmt_view *v, int row, const uint64_t *src, uint64_t *dst, size_t count)
{
	return (struct kernel_collective_args){ .view = *v,
		.dst = (uint64_t)(uintptr_t)dst,
		.src = (uint64_t)(uintptr_t)src,
		.bytes = count * sizeof(*src),
		.algorithm = row,
		.type = SPMT_TYPE_U64,
		.moves = coll_moves(COLL_ALL_REDUCE, v->pe, v->npes, 0, 0),
		.room = VIEWS_ROOM,
		.places = views_places(v->npes, 2),
		.words = AREA_BLOCKS,
		.share = coll_share(count * sizeof(*src), v->npes, 1, 1) };
}

/* Two ranks, each of which maps the other's heap at an address of its own, as processes do. */
struct process {
	struct runner runner; /* first */
	struct spmtd_peer peers[2];
};

static void *run_process(void *arg)
{
	struct process *p = arg;
	uint64_t *src = (uint64_t *)(void *)(uintptr_t)p->runner.v.base, *dst = src + 8;
	struct kernel_collective_args args = sum_args(&p->runner.v, COLL_ROW_reduce, src, dst, 8);

	for (uint64_t i = 0; i < 8; i++)
		src[i] = i + 10 * (uint64_t)(p->runner.v.pe + 1);
	kernel_collective.host(&args);
	for (uint64_t i = 0; i < 8; i++)
		if (dst[i] != 30 + 2 * i)
			strcpy(p->runner.message, "wrong sum");
	return NULL;
}

Test(kernels, ranks_that_see_each_other_elsewhere)
{
	struct process two[2] = { { .peers = { { 0 } } } };
	struct views world;
	size_t size = 4096 + area_size(2, VIEWS_ROOM);
	char *maps[2][2]; /* [who][whose] */

	cr_assert_eq(views_open(&world, 2, 4096, false), 0);
	for (int whose = 0; whose < 2; whose++) {
		int fd = memfd_create("heap", 0);

		cr_assert(fd >= 0 && !ftruncate(fd, (off_t)size));
		for (int who = 0; who < 2; who++) {
			maps[who][whose] =
				mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			cr_assert(maps[who][whose] != MAP_FAILED);
		}
		close(fd);
	}
	for (int who = 0; who < 2; who++) {
		struct spmt_view *v = &two[who].runner.v;

		*v = view_of(&world, who);
		v->base = (uint64_t)(uintptr_t)maps[who][who];
		v->own = (struct spmtd_own *)(void *)(maps[who][who] + 4096);
		v->peers = two[who].peers;
		for (int pe = 0; pe < 2; pe++) {
			two[who].peers[pe].base = (uint64_t)(uintptr_t)maps[who][pe];
			two[who].peers[pe].own = two[who].peers[pe].base + 4096;
			two[who].peers[pe].mine = (uint64_t)(uintptr_t)maps[pe][who];
		}
	}
	for (int who = 0; who < 2; who++)
		cr_assert_eq(
			pthread_create(&two[who].runner.thread, NULL, run_process, &two[who]), 0);
	for (int who = 0; who < 2; who++) {
		pthread_join(two[who].runner.thread, NULL);
		cr_expect_str_empty(two[who].runner.message);
		cr_expect_eq(area_of(&two[who].runner.v)->error, 0);
		for (int from = 0; from < 2; from++) {
			const struct area_inbox *box = area_inbox(&two[who].runner.v, from);

			/* told as this rank sees it */
			cr_expect_eq(box->src, (uint64_t)(uintptr_t)maps[who][from]);
			cr_expect_eq(box->dst, (uint64_t)(uintptr_t)maps[who][from] + 64);
		}
	}
	views_close(&world);
}

static void *run_odd_one(void *arg)
{
	struct runner *r = arg;
	uint64_t src = 1, dst = 77;
	struct kernel_collective_args args = sum_args(&r->v, r->row, &src, &dst, 1);

	args.key = r->v.pe == 2 ? 5 : 4;
	kernel_collective.host(&args);
	if (dst != 77)
		strcpy(r->message, "something was moved");
	args.key = 6;
	kernel_collective.host(&args);
	if (dst != 3)
		strcpy(r->message, "the next call failed");
	return NULL;
}

static void one_differs(int row)
{
	struct runner runners[3];
	struct views w;

	cr_assert_eq(views_open(&w, 3, 4096, true), 0);
	start_all(&w, 3, &(struct runner){ .row = row }, runners, run_odd_one);
	for (int pe = 0; pe < 3; pe++) {
		cr_expect_str_empty(runners[pe].message, "%s", runners[pe].message);
		cr_expect_eq(area_of(&runners[pe].v)->error, 0);
		cr_expect_eq(w.records[pe].valid, 2);
		cr_expect_eq(w.records[pe].code, SPMT_ERR_MISMATCH);
		cr_expect_eq(w.records[pe].what, SPMTD_WHAT_COLLECTIVE);
	}
	cr_expect_eq(w.records[0].peer, 2);
	cr_expect_eq(w.records[1].peer, 2);
	views_close(&w);
}

Test(kernels, a_call_that_differs_moves_nothing_on_all_ranks)
{
	for (int row = 0; row < COLL_KERNEL_ROWS; row++)
		if (coll_rows[row].kinds >> COLL_ALL_REDUCE & 1)
			one_differs(row);
}

/* One rank's data is small, the others' is not. */
static void *run_short_one(void *arg)
{
	struct runner *r = arg;
	uint64_t src[4] = { 1, 1, 1, 1 }, dst[4] = { 77, 77, 77, 77 };
	bool small = r->v.pe == 1;
	struct kernel_collective_args args =
		sum_args(&r->v, small ? r->row : COLL_ROW_reduce, src, dst, small ? 2 : 4);

	args.key = small ? 1ull << 40 : 1ull << 41; /* in their upper halves */
	kernel_collective.host(&args);
	for (int i = 0; i < 4; i++)
		if (dst[i] != 77)
			strcpy(r->message, "something was moved");
	for (uint64_t key = 0; key < 3; key++) {
		args = sum_args(
			&r->v, key == 1 ? COLL_ROW_reduce : r->row, src, dst, key == 1 ? 4 : 2);
		args.key = key;
		kernel_collective.host(&args);
		if (dst[1] != 3 || dst[3] != (key ? 3 : 77))
			strcpy(r->message, "the next call failed");
	}
	return NULL;
}

static void one_is_small(int row)
{
	struct runner runners[3];
	struct views w;

	cr_assert_eq(views_open(&w, 3, 4096, true), 0);
	start_all(&w, 3, &(struct runner){ .row = row }, runners, run_short_one);
	for (int pe = 0; pe < 3; pe++) {
		cr_expect_str_empty(runners[pe].message, "%s", runners[pe].message);
		cr_expect_eq(area_of(&runners[pe].v)->error, 0);
		cr_expect_eq(w.records[pe].code, SPMT_ERR_MISMATCH);
	}
	views_close(&w);
}

Test(kernels, small_here_and_large_there_moves_nothing)
{
	one_is_small(COLL_ROW_ll);
	one_is_small(COLL_ROW_pushed);
}

/* Epochs 5 and AREA_TURN + 5 have the same flag in slots. */
static void *run_past_the_turn(void *arg)
{
	struct runner *r = arg;
	uint64_t src[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, dst[8];
	struct kernel_collective_args args = sum_args(&r->v, r->row, src, dst, 8);

	for (int i = 0; i < 14; i++) {
		if (i == 6) /* odd ones follow even ones */
			area_of(&r->v)->coll_epoch = (uint64_t)(r->row + 1) * AREA_TURN - 4;
		args.bytes = i < 6 ? sizeof(src) : sizeof(src[0]);
		args.share = coll_share(args.bytes, r->v.npes, 1, 1);
		memset(dst, 0, sizeof(dst));
		kernel_collective.host(&args);
		if (dst[0] != 2 || dst[7] != (i < 6 ? 2 : 0))
			snprintf(r->message, sizeof(r->message), "wrong sum in call %d", i);
	}
	return NULL;
}

static void past_the_turn(int row)
{
	struct runner runners[2];
	struct views w;

	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	start_all(&w, 2, &(struct runner){ .row = row }, runners, run_past_the_turn);
	for (int pe = 0; pe < 2; pe++) {
		const uint64_t *slots = spmtd_to_(area_slots(spmtd_at_(runners[pe].v.own), 2));

		cr_expect_str_empty(runners[pe].message);
		for (size_t i = 0; i < 4 * VIEWS_ROOM / 4; i++) {
			size_t word = i % (VIEWS_ROOM / 4);
			bool is_sent = word < 4 ||
				(row == COLL_ROW_ll &&
					word / 2 ==
						unit_place(0, 0, unit_group(VIEWS_ROOM)).odd / 16);

			cr_expect(is_sent || !slots[i], "slot word %zu", i);
		}
		cr_expect_neq(slots[(size_t)(1 - pe) * (VIEWS_ROOM / 4)], 0, "the peer's is used");
	}
	views_close(&w);
}

Test(kernels, what_flags_have_told_is_forgotten_before_they_come_again)
{
	past_the_turn(COLL_ROW_ll);
	past_the_turn(COLL_ROW_pushed);
}

Test(kernels, a_rank_that_does_not_come_ends_the_collective)
{
	struct kernel_collective_args args;
	struct spmt_view other;
	uint64_t word = 1;
	struct views w;

	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	w.timeout_ns = 2000000;
	other = view_of(&w, 0);
	args = sum_args(&other, COLL_ROW_reduce, &word, &word, 1);
	other = view_of(&w, 1);
	kernel_collective.host(&args);
	cr_expect_eq((int32_t)area_of(&args.view)->error, SPMT_ERR_TIMEOUT);
	cr_expect_eq((int32_t)area_of(&other)->error, SPMT_ERR_TIMEOUT, "a mark is left there");
	cr_expect_eq(w.stop, 1);
	cr_expect_eq(w.records[0].peer, 1);
	cr_expect_eq(
		area_inbox(&other, 0)->words.done, 3, "the others are told that it has failed");
	area_of(&args.view)->error = 0;
	kernel_collective.host(&args);
	cr_expect_eq(area_of(&args.view)->error >> 32, 1, "1 + the rank");
	cr_expect_eq((int32_t)area_of(&args.view)->error, SPMT_ERR_ABORTED);
	views_close(&w);
}

/* Rank 0 gives up; rank 1, which comes later and has not heard of it, finds its hello and yet leaves its buffers alone. Of what lies
   behind a lane's words nothing is touched. */
static void blocks_let_go(uint16_t has)
{
	uint64_t src[2][64] = { 0 }, dst[2][64]; /* a share of units for each */
	struct kernel_collective_args args[2];
	struct views w;

	memset(dst, 0x77, sizeof(dst));
	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	w.timeout_ns = 2000000;
	for (int pe = 0; pe < 2; pe++) {
		struct spmt_view v = view_of(&w, pe);

		args[pe] = sum_args(&v, COLL_ROW_twoshot, src[pe], dst[pe], 64);
		args[pe].words = has;
	}
	kernel_collective.host(&args[0]);
	cr_expect_eq((int32_t)area_of(&args[0].view)->error, SPMT_ERR_TIMEOUT);
	cr_expect_eq((int32_t)area_of(&args[1].view)->error, SPMT_ERR_TIMEOUT, "a mark is left");
	cr_expect_eq(w.records[0].peer, 1);
	for (uint32_t word = 0; word < AREA_BLOCKS; word++) {
		const struct area_words *words =
			area_words_at(spmtd_at_(args[1].view.own), 2, 0, word);

		cr_expect_eq(words->turn, word < has ? 2 : 0, "word %u of %u", word, has);
		cr_expect_eq(words->done, word ? 0 : 3, "one block was there, and has failed");
	}
	area_of(&args[1].view)->error = 0;
	w.stop = 0;
	kernel_collective.host(&args[1]);
	cr_expect_eq((int32_t)area_of(&args[1].view)->error, SPMT_ERR_ABORTED);
	for (size_t i = 0; i < 64; i++)
		cr_expect(dst[0][i] && dst[1][i], "word %zu is moved", i);
	views_close(&w);
}

Test(kernels, blocks_let_go_of_who_gives_up)
{
	blocks_let_go(AREA_BLOCKS);
	blocks_let_go(AREA_LANE_BLOCKS);
}
