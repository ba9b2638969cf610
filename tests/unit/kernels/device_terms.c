/* SPDX-License-Identifier: MIT */
/* Reductions through channels, and switch channels, in every form, type and op, against what one thread makes of the same data. */
#include <criterion/criterion.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/folds.h"

enum { RANKS = 5, HEAP = 65536, PLACE = 16384, OTHER = 32768, MOST = 70 };

static struct views world;
static struct spmt_view v;
static char before[RANKS * HEAP];

static void open_world(bool flat)
{
	cr_assert_eq(views_open(&world, RANKS, HEAP, flat), 0);
	v = view_of(&world, 1);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_terms, .fini = close_world, .timeout = 120);

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

/* Any bits. */
static void scramble_all(uint64_t seed)
{
	for (int pe = 0; pe < RANKS; pe++) {
		for (size_t i = 0; i < HEAP; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			before[(size_t)pe * HEAP + i] = (char)(seed >> 56);
		}
		memcpy(at(pe, 0), before + (size_t)pe * HEAP, HEAP);
	}
}

static void check_all(const char *what, int type, int op, int form)
{
	for (int pe = 0; pe < RANKS; pe++)
		if (memcmp(at(pe, 0), before + (size_t)pe * HEAP, HEAP))
			for (size_t i = 0; i < HEAP; i++)
				cr_assert_eq(at(pe, 0)[i], before[(size_t)pe * HEAP + i],
					"%s, type %d, op %d, form %d: byte %zu of rank %d", what,
					type, op, form, i, pe);
}

/* One element, folded from n places. */
static void expect(int type, int op, const char *const *places, int n, size_t k, char *out)
{
	size_t width = folds_width[type];
	uint64_t in[RANKS + 1] = { 0 }, x;

	for (int i = 0; i < n; i++)
		memcpy(&in[i], places[i] + k * width, width);
	x = folds_of((enum spmt_type)type, (enum spmt_op)op, in, n);
	memcpy(out + k * width, &x, width);
}

/* ---- the calls -------------------------------------------------------------------------------- */

enum { FORMS = 4, GROUP = 3 };

#define CALLS(name, T, op)                                                                     \
	static void channel_##name##_##op(int form, void *dst, const void *own,                \
		const struct spmt_channel *c, const uint64_t *offs, int n, size_t count)       \
	{                                                                                      \
		if (form == 0)                                                                 \
			spmtd_channel_##name##_##op##_reduce(&v, dst, own, c, offs, n, count); \
		else if (form == 1)                                                            \
			spmtd_channel_##name##_##op##_reduce_warp(                             \
				&v, dst, own, c, offs, n, count);                              \
		else if (form == 2)                                                            \
			spmtd_channel_##name##_##op##_reduce_block(                            \
				&v, dst, own, c, offs, n, count);                              \
		for (uint32_t i = 0; form == 3 && i < GROUP; i++)                              \
			spmtd_channel_##name##_##op##_reduce_group(                            \
				&v, dst, own, c, offs, n, count, i, GROUP);                    \
	}                                                                                      \
	static void switch_##name##_##op(                                                      \
		int form, const struct spmt_switch *s, void *dst, size_t off, size_t count)    \
	{                                                                                      \
		if (form == 0)                                                                 \
			spmtd_switch_##name##_##op##_reduce(&v, s, dst, off, count);           \
		else if (form == 1)                                                            \
			spmtd_switch_##name##_##op##_reduce_warp(&v, s, dst, off, count);      \
		else if (form == 2)                                                            \
			spmtd_switch_##name##_##op##_reduce_block(&v, s, dst, off, count);     \
		for (uint32_t i = 0; form == 3 && i < GROUP; i++)                              \
			spmtd_switch_##name##_##op##_reduce_group(                             \
				&v, s, dst, off, count, i, GROUP);                             \
	}
#define OPS(name, T)         \
	CALLS(name, T, sum)  \
	CALLS(name, T, prod) \
	CALLS(name, T, min)  \
	CALLS(name, T, max)
OPS(uint8, uint8_t)
OPS(int8, int8_t)
OPS(schar, signed char)
OPS(uint16, uint16_t)
OPS(int16, int16_t)
OPS(uint32, uint32_t)
OPS(int32, int32_t)
OPS(uint64, uint64_t)
OPS(int64, int64_t)
OPS(float, float)
OPS(double, double)
OPS(half, uint16_t)
OPS(bfloat16, uint16_t)

typedef void channel_fn(
	int, void *, const void *, const struct spmt_channel *, const uint64_t *, int, size_t);
typedef void switch_fn(int, const struct spmt_switch *, void *, size_t, size_t);
static const struct row {
	int type;
	channel_fn *channel[4];
	switch_fn *sw[4];
} rows[] = {
#define ROW(TYPE, name)                                                                      \
	{                                                                                    \
		SPMT_TYPE_##TYPE,                                                            \
			{ channel_##name##_sum, channel_##name##_prod, channel_##name##_min, \
				channel_##name##_max },                                      \
			{ switch_##name##_sum, switch_##name##_prod, switch_##name##_min,    \
				switch_##name##_max },                                       \
	}
	ROW(U8, uint8),
	ROW(I8, int8),
	ROW(I8, schar),
	ROW(U16, uint16),
	ROW(I16, int16),
	ROW(U32, uint32),
	ROW(I32, int32),
	ROW(U64, uint64),
	ROW(I64, int64),
	ROW(F32, float),
	ROW(F64, double),
	ROW(F16, half),
	ROW(BF16, bfloat16),
};
static const int ops[] = { SPMT_OP_SUM, SPMT_OP_PROD, SPMT_OP_MIN, SPMT_OP_MAX };
enum { ROWS = sizeof(rows) / sizeof(rows[0]), OPS_OF = sizeof(ops) / sizeof(ops[0]) };

/* ---- channels --------------------------------------------------------------------------------- */

/* n channels, to the others and to itself. dst: 0 apart, 1 in place, 2 at a peer, 3 off the aligned path. */
static void reduce_by_channels(const struct row *row, int o, int form, int n, int where)
{
	size_t width = folds_width[row->type], count = (size_t)(17 * n + 13 * form + o) % MOST;
	size_t dst_off = where == 3 ? OTHER + width : OTHER;
	char *own = at(1, PLACE), *dst = at(where == 2 ? 3 : 1, dst_off), *out;
	const char *places[RANKS + 1] = { before + HEAP + PLACE };
	struct spmt_channel c[RANKS];
	uint64_t offs[RANKS];

	scramble_all((uint64_t)(row->type * 1000 + o * 100 + form * 10 + n));
	for (int i = 0; i < n; i++) {
		c[i] = channel_of(&world, 1, i, 0, 0, PLACE, 8192);
		offs[i] = (uint64_t)i * 1024;
		places[i + 1] = before + (size_t)i * HEAP + PLACE + offs[i];
	}
	out = before + (where == 2 ? 3 : 1) * (size_t)HEAP + dst_off;
	if (where == 1) {
		dst = own;
		out = before + HEAP + PLACE;
	}
	for (size_t k = 0; k < count; k++)
		expect(row->type, ops[o], places, n + 1, k, out);
	row->channel[o](form, dst, own, c, offs, n, count);
	check_all("channel", row->type, ops[o], form);
}

Test(device_terms, reductions_through_channels)
{
	open_world(false);
	for (const struct row *row = rows; row < rows + ROWS; row++)
		for (int o = 0; o < OPS_OF; o++)
			for (int form = 0; form < FORMS; form++)
				for (int i = 0; i < 4; i++)
					reduce_by_channels(row, o, form, (form + i + o) % RANKS, i);
}

/* More channels than a thread has loads in flight for, several to one peer. */
Test(device_terms, reductions_through_many_channels)
{
	enum { MANY = 21, COUNT = 37 };
	struct spmt_channel c[MANY];
	uint64_t offs[MANY];

	open_world(true);
	for (int i = 0; i < MANY; i++) {
		c[i] = channel_of(&world, 1, i % RANKS, (uint32_t)i, 0, PLACE, 16384);
		offs[i] = (uint64_t)(i / RANKS + 1) * 1024;
	}
	for (const struct row *row = rows; row < rows + ROWS; row++)
		for (int n = 5; n <= MANY; n += 4)
			for (size_t k = 0; k < COUNT; k++) {
				size_t width = folds_width[row->type];
				int o = (n / 4 + row->type) % OPS_OF;
				uint64_t in[MANY + 1] = { 0 }, x;

				if (k == 0) {
					scramble_all((uint64_t)(row->type * 100 + n));
					row->channel[o](n % FORMS, at(1, OTHER + 16384),
						at(1, PLACE), c, offs, n, COUNT);
				}
				memcpy(&in[0], before + HEAP + PLACE + k * width, width);
				for (size_t i = 0; i < (size_t)n; i++)
					memcpy(&in[i + 1],
						before + i % RANKS * HEAP + PLACE + offs[i] +
							k * width,
						width);
				x = folds_of(
					(enum spmt_type)row->type, (enum spmt_op)ops[o], in, n + 1);
				cr_assert_eq(memcmp(&x, at(1, OTHER + 16384 + k * width), width), 0,
					"type %d, op %d, %d channels, element %zu", row->type, o, n,
					k);
			}
}

/* One's own term, of which a peer's is the same memory as dst, is read before it is written. */
Test(device_terms, no_channel_at_all_copies)
{
	float x[3] = { 1, -2, 3 }, y[3] = { 0 };

	open_world(false);
	spmtd_channel_float_sum_reduce(&v, y, x, NULL, NULL, 0, 3);
	cr_assert_eq(memcmp(x, y, sizeof(x)), 0);
}

/* ---- switch channels -------------------------------------------------------------------------- */

static void reduce_by_switch(
	const struct row *row, int o, int form, const struct spmt_switch *s, size_t count)
{
	const char *places[RANKS];

	scramble_all((uint64_t)(row->type * 1000 + o * 100 + form * 10));
	for (int pe = 0; pe < RANKS; pe++)
		places[pe] = before + (size_t)pe * HEAP + PLACE + 64;
	for (size_t k = 0; k < count; k++)
		expect(row->type, ops[o], places, RANKS, k, before + HEAP + OTHER);
	row->sw[o](form, s, at(1, OTHER), 64, count);
	check_all("switch", row->type, ops[o], form);
}

static void reduce_all_by(const struct spmt_switch *s)
{
	for (const struct row *row = rows; row < rows + ROWS; row++)
		for (int o = 0; o < OPS_OF; o++)
			for (int form = 0; form < FORMS; form++)
				reduce_by_switch(row, o, form, s, (size_t)(o * 16 + form * 5));
}

static void broadcast(int form, const struct spmt_switch *s, size_t off, const void *src, size_t n)
{
	if (form == 0)
		spmtd_switch_broadcast(&v, s, off, src, n);
	else if (form == 1)
		spmtd_switch_broadcast_warp(&v, s, off, src, n);
	else if (form == 2)
		spmtd_switch_broadcast_block(&v, s, off, src, n);
	for (uint32_t i = 0; form == 3 && i < GROUP; i++)
		spmtd_switch_broadcast_group(&v, s, off, src, n, i, GROUP);
}

/* From elsewhere, and from the rank's own place in the buffer. */
static void broadcast_all_by(const struct spmt_switch *s)
{
	for (int form = 0; form < FORMS; form++)
		for (size_t n = 0; n < 600; n += 41)
			for (int own = 0; own < 2; own++) {
				size_t src = own ? PLACE + 16 : OTHER + n % 3;

				scramble_all(n + (size_t)form);
				for (size_t pe = 0; pe < RANKS; pe++)
					memcpy(before + pe * HEAP + PLACE + 16, at(1, src), n);
				broadcast(form, s, 16, at(1, src), n);
				check_all("broadcast", own, (int)n, form);
			}
}

static void switch_all(bool flat, bool registered)
{
	struct spmtd_mem_peer parts[RANKS];
	struct spmt_switch s;

	open_world(flat);
	s = switch_of(&world, 1, PLACE, 8192);
	for (int pe = 0; pe < RANKS; pe++)
		parts[pe] = (struct spmtd_mem_peer){ (uint64_t)(uintptr_t)at(pe, PLACE), 8192 };
	if (registered) {
		s.offset = 0;
		s.parts = parts;
	}
	reduce_all_by(&s);
	broadcast_all_by(&s);
	for (int pe = 0; pe < RANKS; pe++)
		cr_assert_eq(spmtd_switch_at_rank(&v, &s, pe), (void *)at(pe, PLACE));
	cr_assert_null(spmtd_switch_at_rank(&v, &s, -1));
	cr_assert_null(spmtd_switch_at_rank(&v, &s, RANKS));
}

Test(device_terms, switches_of_heaps_in_one_range)
{
	switch_all(true, false);
}

Test(device_terms, switches_of_heaps_by_a_table)
{
	switch_all(false, false);
}

Test(device_terms, switches_of_registered_buffers)
{
	switch_all(true, true);
}

Test(device_terms, a_broadcast_wakes_those_it_stores_to)
{
	struct spmt_switch s;

	open_world(true);
	s = switch_of(&world, 1, PLACE, 8192);
	spmtd_switch_broadcast(&v, &s, 0, at(1, PLACE), 0);
	for (int pe = 0; pe < RANKS; pe++)
		cr_assert_eq(views_wakes(&world, pe), 0);
	spmtd_switch_broadcast(&v, &s, 0, at(1, OTHER), 8);
	for (int pe = 0; pe < RANKS; pe++)
		cr_assert_eq(views_wakes(&world, pe), 1);
}
