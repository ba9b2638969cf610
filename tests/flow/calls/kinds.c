/* SPDX-License-Identifier: MIT */
/*
 * Collectives with a root, with a count of each pair, in place, and reductions of all types and ops: to the last bit, and nothing
 * beside it is touched; in one process and in several.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/lib/folds.h"
#include "tests/lib/processes.h"

enum { MOST = 10, LARGE = 5003, GUARD = 64, POISON = 0x5c };

enum kind {
	GATHER,
	SCATTER,
	ALL_TO_ALL,
	ALL_GATHER_V,
	ALL_TO_ALL_V,
	FOLDS,
	ALL_REDUCE = FOLDS,
	REDUCE_SCATTER,
	REDUCE,
	KINDS
};

struct item {
	enum kind kind;
	enum spmt_type type;
	enum spmt_op op;
	size_t count;
	int root, n;
	bool in_place;
	uint64_t seed;
};

/* One rank's buffers, as large as `room` each; host: memory of the CPU. */
struct desk {
	char *dst, *src;
	unsigned char *host;
	size_t room;
	void *factor; /* of a pre-multiplied sum, in memory of the device */
	spmt_stream stream;
};

/* ---- what ranks give ----------------------------------------------------------------------------------------------------- */

/* Integers have any bits, f8 any code; the others are numbers that round, overflow or are none now and then. */
static uint64_t element(const struct item *c, int rank, size_t i)
{
	static const double some[] = { 0, -0.0, 1, -1, 0.5, 3, 1e-7, -2e-39, 60000, -0.1, 1e30, 7 };
	uint64_t x = (c->seed * 1000003 + (uint64_t)rank * 7919 + i + 1) * 0x9e3779b97f4a7c15u;

	x ^= x >> 31;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 29;
	if (c->type >= SPMT_TYPE_F16 && c->type <= SPMT_TYPE_F64 && x % 4)
		return folds_bits(c->type, some[x / 4 % 12]);
	/* in the middle of the range, so that not every sum is NaN */
	if (c->type > SPMT_TYPE_F64 && x % 4)
		return 0x20 | (x >> 8 & 0x9f);
	return x & folds_mask(c->type);
}

/* What a rank's elements are multiplied by. */
static uint64_t factor_of(const struct item *c, int rank)
{
	return element(c, rank, 1000000);
}

/* Elements that one rank has for another, of collectives with counts; of the others `count`. */
static size_t pair(const struct item *c, int from, int to)
{
	uint64_t x = c->seed * 31 + (uint64_t)from * 7;

	if (c->kind != ALL_GATHER_V && c->kind != ALL_TO_ALL_V)
		return c->count;
	x += c->kind == ALL_TO_ALL_V ? (uint64_t)to * 13 : 0;
	return x % 5 == 0 ? 0 : (size_t)(x * 2654435761u >> 7) % (2 * c->count + 1);
}

/* Where these lie: in the order of ranks, or from the last to the first, with a gap. */
static size_t src_at(const struct item *c, int from, int to)
{
	size_t at = 0;

	if (c->kind == ALL_GATHER_V || c->kind == GATHER)
		return 0;
	for (int r = 0; r < to; r++)
		at += pair(c, from, r) + (c->kind == ALL_TO_ALL_V);
	return at;
}

static size_t dst_at(const struct item *c, int to, int from)
{
	size_t at = 0;

	if (c->kind == ALL_GATHER_V || c->kind == ALL_TO_ALL_V) {
		for (int r = c->n - 1; r > from; r--)
			at += pair(c, r, to) + 1;
		return at;
	}
	return c->kind == SCATTER ? 0 : (size_t)from * c->count;
}

static bool gives(const struct item *c, int rank)
{
	return c->kind != SCATTER || rank == c->root;
}

static bool gets(const struct item *c, int rank)
{
	return (c->kind != GATHER && c->kind != REDUCE) || rank == c->root;
}

/* Elements, gaps included. */
static size_t src_count(const struct item *c, int rank)
{
	if (!gives(c, rank))
		return 0;
	if (c->kind >= FOLDS)
		return c->count * (size_t)(c->kind == REDUCE_SCATTER ? c->n : 1);
	return src_at(c, rank, c->n - 1) + pair(c, rank, c->n - 1);
}

static size_t dst_count(const struct item *c, int rank)
{
	if (!gets(c, rank))
		return 0;
	if (c->kind >= FOLDS || c->kind == SCATTER)
		return c->count;
	return c->kind <= ALL_TO_ALL ? c->count * (size_t)c->n
				     : dst_at(c, rank, 0) + pair(c, 0, rank);
}

/* ---- what comes of it ------------------------------------------------------------------------------------------------------ */

static void want_moved(const struct item *c, int rank, unsigned char *want)
{
	size_t width = folds_width[c->type];

	for (int from = 0; from < c->n; from++) {
		size_t n = pair(c, from, rank), at = dst_at(c, rank, from);

		if (!gives(c, from) || !gets(c, rank))
			continue;
		for (size_t i = 0; i < n; i++) {
			uint64_t bits = element(c, from, src_at(c, from, rank) + i);

			memcpy(want + (at + i) * width, &bits, width);
		}
	}
}

static void want_folded(const struct item *c, int rank, unsigned char *want)
{
	size_t width = folds_width[c->type],
	       from = c->kind == REDUCE_SCATTER ? (size_t)rank * c->count : 0;

	for (size_t i = 0; i < dst_count(c, rank); i++) {
		uint64_t in[MOST], factors[MOST], bits;

		for (int r = 0; r < c->n; r++) {
			in[r] = element(c, r, from + i);
			factors[r] = factor_of(c, r);
		}
		bits = c->op == FOLDS_PREMUL ? folds_premul(c->type, in, factors, c->n)
					     : folds_of(c->type, c->op, in, c->n);
		memcpy(want + i * width, &bits, width);
	}
}

/* ---- one call ---------------------------------------------------------------------------------------------------------------- */

static int varied(spmt_comm *comm, const struct item *c, void *dst, const void *src, spmt_stream s)
{
	size_t gets_n[MOST], gets_at[MOST], gives_n[MOST], gives_at[MOST];
	int me = spmt_rank(comm);

	for (int r = 0; r < c->n; r++) {
		gets_n[r] = pair(c, r, me);
		gets_at[r] = gets_n[r] ? dst_at(c, me, r) : SIZE_MAX; /* not looked at */
		gives_n[r] = pair(c, me, r);
		gives_at[r] = gives_n[r] ? src_at(c, me, r) : SIZE_MAX;
	}
	if (c->kind == ALL_GATHER_V)
		return spmt_all_gather_v(comm, dst, gets_n, gets_at, src, c->type, s);
	return spmt_all_to_all_v(comm, dst, gets_n, gets_at, src, gives_n, gives_at, c->type, s);
}

static int make_with(
	spmt_comm *comm, const struct item *c, void *dst, const void *src, spmt_stream s)
{
	switch (c->kind) {
	case GATHER:
		return spmt_gather(comm, dst, src, c->count, c->type, c->root, s);
	case SCATTER:
		return spmt_scatter(comm, dst, src, c->count, c->type, c->root, s);
	case ALL_TO_ALL:
		return spmt_all_to_all(comm, dst, src, c->count, c->type, s);
	case ALL_REDUCE:
		return spmt_all_reduce(comm, dst, src, c->count, c->type, c->op, s);
	case REDUCE_SCATTER:
		return spmt_reduce_scatter(comm, dst, src, c->count, c->type, c->op, s);
	case REDUCE:
		return spmt_reduce(comm, dst, src, c->count, c->type, c->op, c->root, s);
	default:
		return varied(comm, c, dst, src, s);
	}
}

/* Its scalar is the CPU's, or the device's; and it is gone when the call has returned. */
static int make_premul(
	spmt_comm *comm, const struct item *c, const struct desk *d, void *dst, const void *src)
{
	uint64_t factor = factor_of(c, spmt_rank(comm));
	bool on_device = (c->seed + (uint64_t)spmt_rank(comm)) % 2;
	struct item with = *c;

	if (on_device)
		REQUIRE_OK(spmt_copy_in(comm, d->factor, &factor, folds_width[c->type]));
	REQUIRE_OK(spmt_op_premul_create(comm, c->type, on_device ? d->factor : &factor,
		on_device ? SPMT_SCALAR_DEVICE : SPMT_SCALAR_HOST, &with.op));
	factor = 0;
	REQUIRE_OK(make_with(comm, &with, dst, src, d->stream));
	return spmt_op_destroy(comm, with.op);
}

static int make(
	spmt_comm *comm, const struct item *c, const struct desk *d, void *dst, const void *src)
{
	return c->op == FOLDS_PREMUL ? make_premul(comm, c, d, dst, src)
				     : make_with(comm, c, dst, src, d->stream);
}

/* In place: the block that is the same in both. */
static void place(const struct item *c, int rank, size_t width, char **dst, char **src)
{
	if (c->kind == SCATTER || c->kind == REDUCE_SCATTER)
		*dst = *src + (size_t)rank * c->count * width;
	else if (c->kind == GATHER)
		*src = *dst + (size_t)rank * c->count * width;
	else if (c->kind == ALL_GATHER_V)
		*src = *dst + dst_at(c, rank, rank) * width;
	else
		*src = *dst;
}

static int differs(const struct item *c, int rank, const char *what, size_t at)
{
	return ranks_fail(
		"kind %d type %d op %d count %zu root %d%s: rank %d of %d: byte %zu of %s is wrong",
		(int)c->kind, (int)c->type, (int)c->op, c->count, c->root,
		c->in_place ? " in place" : "", rank, c->n, at, what);
}

/* What the call may have touched is compared with `want`, which was poisoned first; then, out of place, src. */
static int compare(
	spmt_comm *comm, const struct item *c, const struct desk *d, char *dst, char *src)
{
	size_t width = folds_width[c->type];
	size_t in = src_count(c, spmt_rank(comm)) * width,
	       out = dst_count(c, spmt_rank(comm)) * width;
	unsigned char *want = d->host + d->room;
	int rank = spmt_rank(comm);
	bool inside = c->in_place && (c->kind == SCATTER || c->kind == REDUCE_SCATTER);

	memset(want, POISON, out + GUARD);
	if (c->kind >= FOLDS)
		want_folded(c, rank, want);
	else
		want_moved(c, rank, want);
	REQUIRE_OK(spmt_copy_out(comm, d->host, dst, out + GUARD));
	for (size_t i = 0; i < out + (inside ? 0 : GUARD); i++)
		if (d->host[i] != want[i] && (gets(c, rank) || !c->in_place))
			return differs(c, rank, "dst", i);
	if (c->in_place)
		return 0;
	REQUIRE_OK(spmt_copy_out(comm, d->host, src, in));
	for (size_t i = 0; i < in / width; i++) {
		uint64_t bits = element(c, rank, i);

		if (memcmp(d->host + i * width, &bits, width) != 0)
			return differs(c, rank, "src", i * width);
	}
	return 0;
}

/* A rank that a root leaves out may pass NULL. */
static int one(spmt_comm *comm, struct item *c, const struct desk *d)
{
	int rank = spmt_rank(comm);
	size_t width = folds_width[c->type], in, out;
	char *dst = d->dst + (size_t)rank % 3 * width, *src = d->src + (size_t)rank % 2 * width;

	c->n = spmt_nranks(comm);
	c->seed++;
	c->root %= c->n;
	in = src_count(c, rank) * width;
	out = dst_count(c, rank) * width;
	REQUIRE(in + GUARD + 64 <= d->room && out + GUARD + 64 <= d->room);
	if (c->in_place)
		place(c, rank, width, &dst, &src);
	TRY(sym_set(comm, dst, POISON, out + GUARD));
	for (size_t i = 0; i < in / width; i++) {
		uint64_t bits = element(c, rank, i);

		memcpy(d->host + i * width, &bits, width);
	}
	REQUIRE_OK(spmt_copy_in(comm, src, d->host, in));
	REQUIRE_OK(make(comm, c, d, gets(c, rank) || c->seed % 2 ? dst : NULL,
		gives(c, rank) || c->seed % 2 ? src : NULL));
	if (d->stream && c->seed % 3)
		REQUIRE_OK(stream_wait(comm, d->stream));
	else
		REQUIRE_OK(spmt_quiet(comm));
	return compare(comm, c, d, dst, src);
}

static int desk_open(spmt_comm *comm, struct desk *d, size_t room)
{
	d->room = room + 2 * GUARD;
	d->host = malloc(2 * d->room);
	REQUIRE(d->host);
	REQUIRE_OK(spmt_malloc(comm, d->room, (void **)&d->dst));
	REQUIRE_OK(spmt_malloc(comm, d->room, (void **)&d->src));
	REQUIRE_OK(spmt_malloc(comm, sizeof(uint64_t), &d->factor));
	return stream_make(comm, &d->stream);
}

static int desk_close(spmt_comm *comm, struct desk *d)
{
	REQUIRE_OK(spmt_quiet(comm));
	free(d->host);
	return stream_end(comm, d->stream);
}

/* ---- in one process ------------------------------------------------------------------------------------------------------------ */

/* Every type at every count, every root, in place and not, on two streams. */
static int moves(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 0, 1, 37, LARGE };
	struct item c = { .kind = *(enum kind *)arg };
	struct desk d;
	spmt_stream made;

	TRY(desk_open(comm, &d, 2 * MOST * (2 * LARGE + 1) * 8));
	made = d.stream;
	for (int i = 0; i < FOLDS_TYPES * 4; i++) {
		c.type = (enum spmt_type)(i % FOLDS_TYPES);
		c.count = counts[i / FOLDS_TYPES];
		if (c.count == LARGE && c.type % 3 && !test_long())
			continue;
		for (c.root = 0; c.root < (c.type == SPMT_TYPE_U32 ? spmt_nranks(comm) : 1);
			c.root++)
			for (int k = 0; k < 2; k++) {
				int root = c.root;

				c.in_place = k && c.kind != ALL_TO_ALL_V;
				c.root += i;
				d.stream = k ? made : NULL;
				TRY(one(comm, &c, &d));
				c.root = root;
			}
	}
	d.stream = made;
	return desk_close(comm, &d);
}

/* Every op of every type. */
static int reductions(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 0, 1, 37, LARGE };
	struct item c = { .kind = *(enum kind *)arg };
	struct desk d;

	TRY(desk_open(comm, &d, (MOST + 1) * LARGE * 8));
	for (c.type = SPMT_TYPE_I8; c.type <= SPMT_TYPE_F8E5M2; c.type++)
		for (c.op = SPMT_OP_SUM; c.op <= FOLDS_PREMUL; c.op++)
			for (int i = 0; i < 4; i++) {
				unsigned both = (unsigned)c.type + (unsigned)c.op;

				if (!folds_valid(c.type, c.op))
					continue;
				if (counts[i] == LARGE && both % 5 && !test_long())
					continue;
				c.count = counts[i];
				c.root = (int)both + i;
				c.in_place = both % 2 ^ (unsigned)i % 2;
				TRY(one(comm, &c, &d));
			}
	return desk_close(comm, &d);
}

/* Powers of two have rows that others have not, and 8 is the most for some. */
static void in_worlds_of_many_sizes(enum kind kind)
{
	static const int sizes[] = { 1, 2, 3, 4, 5, 8 };
	struct spmt_attr attr = ranks_attr(0, 1, NULL);

	attr.heap_size = 16u << 20;
	setenv("SPMT_HOST_DEVICES", "16", 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		RANKS_OK(ranks_run(
			ranks_here(sizes[i]), &attr, kind < FOLDS ? moves : reductions, &kind));
	/* more than one launch has room for */
	if (kind == ALL_GATHER_V || kind == ALL_TO_ALL_V)
		RANKS_OK(ranks_run(ranks_here(MOST), &attr, moves, &kind));
}

Test(kinds, gather)
{
	in_worlds_of_many_sizes(GATHER);
}

Test(kinds, scatter)
{
	in_worlds_of_many_sizes(SCATTER);
}

Test(kinds, all_to_all_in_place)
{
	in_worlds_of_many_sizes(ALL_TO_ALL);
}

Test(kinds, all_gather_v)
{
	in_worlds_of_many_sizes(ALL_GATHER_V);
}

Test(kinds, all_to_all_v)
{
	in_worlds_of_many_sizes(ALL_TO_ALL_V);
}

Test(kinds, all_reduce)
{
	in_worlds_of_many_sizes(ALL_REDUCE);
}

Test(kinds, reduce_scatter)
{
	in_worlds_of_many_sizes(REDUCE_SCATTER);
}

Test(kinds, reduce)
{
	in_worlds_of_many_sizes(REDUCE);
}

/* ---- in several, where what is moved passes through the heap, in several parts if it is large -------------------------------------- */

static int everything(spmt_comm *comm, void *arg)
{
	const size_t counts[] = { 0, 1, 1001, spmt_nranks(comm) > 3 ? 100000 : 140000 };
	size_t room = (size_t)spmt_nranks(comm) * 2 * (counts[3] + 1) * 8;
	struct item c = { .type = SPMT_TYPE_I8 };
	struct desk d;

	(void)arg;
	TRY(desk_open(comm, &d, room));
	for (int round = 0; round < 3; round++)
		for (c.kind = GATHER; c.kind < KINDS; c.kind++)
			for (int i = 0; i < 4; i++) {
				bool large = i == 3;

				c.type = large ? SPMT_TYPE_F64
					       : (enum spmt_type)((c.type + 1) % FOLDS_TYPES);
				if (large && round)
					continue;
				c.count = c.kind == REDUCE_SCATTER && large ? 60000 : counts[i];
				c.op = round == 1	 ? SPMT_OP_AVG
					: round || large ? FOLDS_PREMUL
							 : SPMT_OP_MAX;
				if (c.kind < FOLDS)
					c.op = SPMT_OP_SUM;
				c.root = round + i;
				c.in_place = round % 2 && c.kind != ALL_TO_ALL_V;
				TRY(one(comm, &c, &d));
			}
	return desk_close(comm, &d);
}

static void over(const char *layout)
{
	struct processes p = { .layout = layout };

	NEEDS_LAYOUT(layout);
	RANKS_OK(processes_world(&p, everything, NULL));
}

Test(kinds, over_processes)
{
	over("0,1|2");
}

Test(kinds, over_more_processes)
{
	over("0|1,2|3");
}
