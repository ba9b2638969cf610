/* SPDX-License-Identifier: MIT */
/* Collectives of the device header, in every form, against what one thread makes of all ranks' data. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "halves_oracle.h"
#include "spmt.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/typed_calls.h"

TestSuite(device_coll, .timeout = 120);

enum { RANKS_MOST = 5, MOST = 120, WIDEST = 8, ROOM = (MOST + 8) * WIDEST, SESSION = 3 };
/* Places in every heap. */
enum { SRC = 64, DST = SRC + RANKS_MOST * ROOM, HEAP = 2 * DST };

/* ---- data ------------------------------------------------------------------------------------ */

static void scramble(void *p, size_t n, uint64_t seed)
{
	unsigned char *c = p;

	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		c[i] = (unsigned char)(seed >> 56);
	}
}

/* Any bits; of floating-point numbers every other one is a small integer, or a zero with a sign. */
#define FILL_BITS(name, T)                                            \
	static void fill_##name(void *p, size_t count, uint64_t seed) \
	{                                                             \
		scramble(p, count * sizeof(T), seed);                 \
	}
#define FILL_NUMBERS(name, T, from)                                            \
	static void fill_##name(void *p, size_t count, uint64_t seed)          \
	{                                                                      \
		T *x = p;                                                      \
		scramble(p, count * sizeof(T), seed);                          \
		for (size_t i = seed % 2; i < count; i += 2)                   \
			x[i] = from((float)((int)(seed + i) % 7 - 3) * -0.0f + \
				(float)((int)((seed ^ i) % 9) - 4));           \
	}
#define SAME(x) (x)
#define AS_F16(x) encode((double)(x), 10, 15)
#define AS_BF16(x) encode((double)(x), 7, 127)
INTEGERS(FILL_BITS)
FILL_NUMBERS(float, float, SAME)
FILL_NUMBERS(double, double, SAME)
FILL_NUMBERS(half, uint16_t, AS_F16)
FILL_NUMBERS(bfloat16, uint16_t, AS_BF16)

/* ---- what is expected ------------------------------------------------------------------------ */

/* The kth of all ranks' elements, which lie ROOM bytes apart, in rank order. */
#define EXPECT_INT(name, T)                                                                  \
	static void expect_##name(int op, void *out, const char *all, int n, size_t k)       \
	{                                                                                    \
		T x, y;                                                                      \
		memcpy(&x, all + k * sizeof(T), sizeof(T));                                  \
		for (int pe = 1; pe < n; pe++) {                                             \
			memcpy(&y, all + pe * ROOM + (ptrdiff_t)(k * sizeof(T)), sizeof(T)); \
			x = op == SPMT_OP_SUM	     ? (T)((uint64_t)x + (uint64_t)y)        \
				: op == SPMT_OP_PROD ? (T)((uint64_t)x * (uint64_t)y)        \
				: op == SPMT_OP_MIN  ? (y < x ? y : x)                       \
				: op == SPMT_OP_MAX  ? (y > x ? y : x)                       \
				: op == SPMT_OP_AND  ? (T)(x & y)                            \
				: op == SPMT_OP_OR   ? (T)(x | y)                            \
						     : (T)(x ^ y);                             \
		}                                                                            \
		memcpy(out, &x, sizeof(T));                                                  \
	}
/* from and to: between an element and the type W of the sum; nan: the one that every NaN becomes. */
#define EXPECT_FLOAT(name, T, W, from, to, nan)                                               \
	static void expect_##name(int op, void *out, const char *all, int n, size_t k)        \
	{                                                                                     \
		const T none = nan;                                                           \
		W x = 0, y;                                                                   \
		T in;                                                                         \
		for (int pe = 0; pe < n; pe++) {                                              \
			memcpy(&in, all + pe * ROOM + (ptrdiff_t)(k * sizeof(T)), sizeof(T)); \
			y = (W)from(in);                                                      \
			if (pe == 0)                                                          \
				x = y;                                                        \
			else if (isnan(x) || isnan(y))                                        \
				x = (W)NAN;                                                   \
			else if (op == SPMT_OP_SUM)                                           \
				x += y;                                                       \
			else if (op == SPMT_OP_PROD)                                          \
				x *= y;                                                       \
			else if (op == SPMT_OP_MIN)                                           \
				x = y < x || (y == x && signbit(y)) ? y : x;                  \
			else                                                                  \
				x = y > x || (y == x && !signbit(y)) ? y : x;                 \
		}                                                                             \
		in = isnan(x) ? none : (T)to(x);                                              \
		memcpy(out, &in, sizeof(T));                                                  \
	}
#define OF_F16(x) decode(x, 10, 15)
#define OF_BF16(x) decode(x, 7, 127)
INTEGERS(EXPECT_INT)
EXPECT_FLOAT(float, float, float, SAME, SAME, NAN)
EXPECT_FLOAT(double, double, double, SAME, SAME, (double)NAN)
EXPECT_FLOAT(half, uint16_t, float, OF_F16, AS_F16, 0x7e00)
EXPECT_FLOAT(bfloat16, uint16_t, float, OF_BF16, AS_BF16, 0x7fc0)

/* ---- the calls ------------------------------------------------------------------------------- */

enum { FORMS = 6 }; /* by thread, warp and block; then the same in a session */

#define BY_FORM(call, ...)                                    \
	switch (form) {                                       \
	case 0:                                               \
		return call(__VA_ARGS__);                     \
	case 1:                                               \
		return call##_warp(__VA_ARGS__);              \
	case 2:                                               \
		return call##_block(__VA_ARGS__);             \
	case 3:                                               \
		return call##_at(__VA_ARGS__, SESSION);       \
	case 4:                                               \
		return call##_at_warp(__VA_ARGS__, SESSION);  \
	default:                                              \
		return call##_at_block(__VA_ARGS__, SESSION); \
	}
#define REDUCTION(name, T, op)                                                                  \
	static int name##_##op(const struct spmt_view *v, int form, void *dst, const void *src, \
		size_t count, int root)                                                         \
	{                                                                                       \
		if (root < 0)                                                                   \
			BY_FORM(spmtd_##name##_##op##_all_reduce, v, dst, src, count)           \
		BY_FORM(spmtd_##name##_##op##_reduce, v, dst, src, count, root)                 \
	}
#define NUMBERS(name, T)         \
	REDUCTION(name, T, sum)  \
	REDUCTION(name, T, prod) \
	REDUCTION(name, T, min)  \
	REDUCTION(name, T, max)
#define BITS(name, T)           \
	NUMBERS(name, T)        \
	REDUCTION(name, T, and) \
	REDUCTION(name, T, or)  \
	REDUCTION(name, T, xor)
INTEGERS(BITS)
NUMBERS(float, float)
NUMBERS(double, double)
NUMBERS(half, uint16_t)
NUMBERS(bfloat16, uint16_t)

static const struct reduction {
	const char *name;
	size_t size;
	void (*fill)(void *p, size_t count, uint64_t seed);
	void (*expect)(int op, void *out, const char *all, int n, size_t k);
	int nops;
	int (*ops[7])(const struct spmt_view *, int, void *, const void *, size_t, int);
} reductions[] = {
#define ROW_NUMBERS(name, T)                               \
	{ #name, sizeof(T), fill_##name, expect_##name, 4, \
		{ name##_sum, name##_prod, name##_min, name##_max, NULL } },
#define ROW_BITS(name, T)                                                                 \
	{ #name, sizeof(T), fill_##name, expect_##name, 7,                                \
		{ name##_sum, name##_prod, name##_min, name##_max, name##_and, name##_or, \
			name##_xor } },
	INTEGERS(ROW_BITS) ROW_NUMBERS(float, float) ROW_NUMBERS(double, double)
		ROW_NUMBERS(half, uint16_t) ROW_NUMBERS(bfloat16, uint16_t)
};

enum move { BROADCAST, ALL_GATHER, ALL_TO_ALL, MOVES };

static int move(const struct spmt_view *v, int form, enum move kind, void *dst, const void *src,
	size_t size, int root)
{
	if (kind == BROADCAST)
		BY_FORM(spmtd_broadcastmem, v, dst, src, size, root)
	if (kind == ALL_GATHER)
		BY_FORM(spmtd_all_gathermem, v, dst, src, size)
	BY_FORM(spmtd_all_to_allmem, v, dst, src, size)
}

/* ---- ranks ----------------------------------------------------------------------------------- */

struct runner {
	pthread_t thread;
	struct spmt_view v;
	char wrong[160];
	char all[RANKS_MOST * RANKS_MOST * ROOM]; /* every rank's data, RANKS_MOST * ROOM each */
	char want[RANKS_MOST * ROOM];
};
static struct runner runners[RANKS_MOST];
static struct views world;

#define WRONG(r, ...)                                                          \
	do {                                                                   \
		if (!(r)->wrong[0])                                            \
			snprintf((r)->wrong, sizeof((r)->wrong), __VA_ARGS__); \
	} while (0)

static void run_ranks(int n, bool flat, void *(*fn)(void *))
{
	cr_assert_eq(views_open(&world, n, HEAP, flat), 0);
	memset(runners, 0, sizeof(runners));
	for (int pe = 0; pe < n; pe++) {
		runners[pe].v = view_of(&world, pe);
		runners[pe].v.timeout_ns = 60000000000;
	}
	for (int pe = 0; pe < n; pe++)
		cr_assert_eq(pthread_create(&runners[pe].thread, NULL, fn, &runners[pe]), 0);
	for (int pe = 0; pe < n; pe++) {
		pthread_join(runners[pe].thread, NULL);
		cr_expect_str_empty(
			runners[pe].wrong, "%d ranks, rank %d: %s", n, pe, runners[pe].wrong);
	}
	views_close(&world);
}

static void run_worlds(void *(*fn)(void *))
{
	run_ranks(1, true, fn);
	run_ranks(2, false, fn);
	run_ranks(RANKS_MOST, true, fn);
}

static char *heap(const struct runner *r, size_t off)
{
	return views_heap(&world, r->v.pe) + off;
}

/* One reduction of all; `round` decides on form, root and places. */
static void reduce_once(
	struct runner *r, const struct reduction *t, int op, size_t count, size_t round)
{
	int n = r->v.npes, form = (int)(round % FORMS), rc;
	int root = round % 4 == 3 ? (int)(round / 4) % n : -1;
	bool in_place = round % 5 == 4, mine = root < 0 || root == r->v.pe;
	char *src = heap(r, SRC + (round % 3) * t->size);
	char *dst = in_place ? src : heap(r, DST + (round / 3 % 3) * t->size);
	size_t bytes = count * t->size;

	for (int pe = 0; pe < n; pe++)
		t->fill(r->all + pe * ROOM, count, round * RANKS_MOST + (size_t)pe);
	memset(dst, 0x55, bytes + 8);
	memcpy(src, r->all + r->v.pe * ROOM, bytes);
	memset(r->want, 0x55, bytes + 8);
	if (in_place)
		memcpy(r->want, src, bytes);
	for (size_t k = 0; k < count && mine; k++)
		t->expect(op, r->want + k * t->size, r->all, n, k);
	rc = t->ops[op](&r->v, form, dst, src, count, root);
	if (rc)
		WRONG(r, "%s, op %d, form %d: %d", t->name, op, form, rc);
	if (memcmp(dst, r->want, bytes + 8) != 0)
		WRONG(r, "%s, op %d, form %d, %zu elements, root %d, in place %d", t->name, op,
			form, count, root, in_place);
}

static void *reduce_all(void *arg)
{
	static const size_t counts[] = { 0, 1, 2, 3, 7, 16, 33, 64, MOST };
	struct runner *r = arg;
	size_t round = 0;

	for (size_t i = 0; i < sizeof(reductions) / sizeof(reductions[0]); i++)
		for (int op = 0; op < reductions[i].nops; op++)
			for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++)
				reduce_once(r, &reductions[i], op, counts[k], round++);
	return NULL;
}

Test(device_coll, reductions)
{
	run_worlds(reduce_all);
}

/* Where this rank's part comes from in the data of rank `pe`, or that of `pe` is in this one's dst. */
static void move_once(struct runner *r, enum move kind, size_t size, size_t round)
{
	int n = r->v.npes, me = r->v.pe, form = (int)(round % FORMS),
	    root = (int)(round % (size_t)n), rc;
	bool in_place = kind != ALL_TO_ALL && round % 3 == 1;
	size_t whole = kind == BROADCAST ? size : size * (size_t)n,
	       gives = kind == ALL_TO_ALL ? whole : size;
	char *dst = heap(r, DST + round % 13), *src = heap(r, SRC + round % 7);

	if (in_place)
		src = kind == BROADCAST ? dst : dst + (size_t)me * size;
	memset(dst, 0x55, whole + 8);
	memset(r->want, 0x55, whole + 8);
	for (int pe = 0; pe < n; pe++) {
		char *data = r->all + pe * RANKS_MOST * ROOM;

		scramble(data, gives, round * RANKS_MOST + (size_t)pe);
		if (kind == BROADCAST && pe == root)
			memcpy(r->want, data, size);
		else if (kind != BROADCAST)
			memcpy(r->want + (size_t)pe * size,
				data + (kind == ALL_TO_ALL ? (size_t)me * size : 0), size);
	}
	memcpy(src, r->all + me * RANKS_MOST * ROOM, gives);
	rc = move(&r->v, form, kind, dst, src, size, root);
	if (rc || memcmp(dst, r->want, whole + 8) != 0)
		WRONG(r, "move %d, form %d, %zu bytes, root %d: %d", (int)kind, form, size, root,
			rc);
}

static void *move_all(void *arg)
{
	static const size_t sizes[] = { 0, 1, 2, 4, 8, 3, 16, 17, 100, 512 };
	struct runner *r = arg;
	size_t round = 0;

	for (int kind = 0; kind < MOVES; kind++)
		for (int i = 0; i < 2 * FORMS; i++)
			for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
				move_once(r, (enum move)kind, sizes[k], round++);
	return NULL;
}

Test(device_coll, moves)
{
	run_worlds(move_all);
}

/* ---- what is refused, and what ends ----------------------------------------------------------- */

Test(device_coll, no_such_root_or_session)
{
	struct spmt_view v;
	float x = 5, y = 6;
	uint32_t none;

	cr_assert_eq(views_open(&world, 2, HEAP, true), 0);
	v = view_of(&world, 0);
	v.timeout_ns = 1000000;
	none = (uint32_t)v.nsessions;
	for (int root = -1; root < 4; root += 3)
		for (int form = 0; form < FORMS; form++) {
			cr_expect_eq(move(&v, form, BROADCAST, &x, &y, 4, root), SPMTD_INVALID);
			if (root >= 0)
				cr_expect_eq(float_sum(&v, form, &x, &y, 1, root), SPMTD_INVALID);
		}
	cr_expect_eq(spmtd_broadcastmem_at(&v, &x, &y, 4, 0, none), SPMTD_INVALID);
	cr_expect_eq(spmtd_all_gathermem_at_warp(&v, &x, &y, 4, none), SPMTD_INVALID);
	cr_expect_eq(spmtd_all_to_allmem_at_block(&v, &x, &y, 4, UINT32_MAX), SPMTD_INVALID);
	cr_expect_eq(spmtd_float_sum_all_reduce_at(&v, &x, &y, 1, none), SPMTD_INVALID);
	cr_expect_eq(spmtd_float_sum_reduce_at_block(&v, &x, &y, 1, 0, UINT32_MAX), SPMTD_INVALID);
	cr_expect_eq(spmtd_float_sum_reduce(&v, &x, &y, 1, -1), SPMTD_INVALID);
	cr_expect_eq(world.records[0].valid, 0, "nobody was waited for");
	cr_expect_eq(x, 5);
	views_close(&world);
}

Test(device_coll, nobody_else_comes)
{
	struct spmt_view v;

	cr_assert_eq(views_open(&world, 2, HEAP, true), 0);
	v = view_of(&world, 0);
	v.timeout_ns = 1000000;
	memset(views_heap(&world, 1), 0x55, HEAP);
	memset(views_heap(&world, 0), 0x44, HEAP);
	for (int form = 0; form < FORMS; form++) {
		char *dst = views_heap(&world, 0) + DST, *src = views_heap(&world, 0) + SRC;

		for (int kind = 0; kind < MOVES; kind++)
			cr_expect_eq(
				move(&v, form, (enum move)kind, dst, src, 8, 0), SPMTD_TIMEOUT);
		cr_expect_eq(float_sum(&v, form, dst, src, 8, -1), SPMTD_TIMEOUT);
		cr_expect_eq(int8_or(&v, form, dst, src, 8, 0), SPMTD_TIMEOUT);
	}
	cr_expect_eq(world.records[0].what, SPMTD_WHAT_BARRIER);
	cr_expect_eq(world.records[0].peer, 1);
	for (size_t i = 0; i < HEAP; i++)
		cr_assert(views_heap(&world, 1)[i] == 0x55 && views_heap(&world, 0)[i] == 0x44,
			"before all have come nobody's memory is written");
	world.stop = 1;
	cr_expect_eq(float_sum(&v, 5, views_heap(&world, 0), views_heap(&world, 0), 8, -1),
		SPMTD_ABORTED);
	views_close(&world);
}
