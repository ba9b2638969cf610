/* SPDX-License-Identifier: MIT */
/* Collectives against an oracle on the host: all kinds, types, ops, counts and rank counts, through every kind of stream. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

enum { MOST = 8, LARGE = 5003, GUARD = 64 };

enum kind { BROADCAST, ALL_GATHER, ALL_TO_ALL, PERMUTE, REDUCE_SCATTER, ALL_REDUCE, KINDS };

static const size_t widths[] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8 }; /* by enum spmt_type */

struct call {
	enum kind kind;
	enum spmt_type type;
	enum spmt_op op;
	size_t count;
	int root, n;
	bool in_place;
	const int *to;
	uint64_t seed;
};

/* ---- elements ------------------------------------------------------------------------------------------------------------- */

/* Bits of element i of rank's src. Floats lie in [0.5, 2) and their negatives: nothing overflows, not even f16 products. */
static uint64_t element(const struct call *c, int rank, size_t i)
{
	static const struct {
		int mantissa, bias;
	} real[] = { [SPMT_TYPE_F16] = { 10, 15 },
		[SPMT_TYPE_BF16] = { 7, 127 },
		[SPMT_TYPE_F32] = { 23, 127 },
		[SPMT_TYPE_F64] = { 52, 1023 } };
	uint64_t x = (c->seed * 1000003 + (uint64_t)rank * 7919 + i + 1) * 0x9e3779b97f4a7c15u;
	unsigned width = (unsigned)widths[c->type] * 8;
	int m;

	x ^= x >> 31;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 29;
	if (c->type < SPMT_TYPE_F16)
		return width == 64 ? x : x & (((uint64_t)1 << width) - 1);
	m = real[c->type].mantissa;
	return (x & (((uint64_t)1 << m) - 1)) |
		(uint64_t)(real[c->type].bias - (int)(x >> 62 & 1)) << m | (x >> 63) << (width - 1);
}

static double decode_f16(uint64_t bits)
{
	int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
	double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);

	return bits >> 15 & 1 ? -v : v;
}

static double decode(enum spmt_type type, uint64_t bits)
{
	uint32_t low = (uint32_t)(type == SPMT_TYPE_BF16 ? bits << 16 : bits);
	double d;
	float f;

	if (type == SPMT_TYPE_F16)
		return decode_f16(bits);
	if (type == SPMT_TYPE_F64) {
		memcpy(&d, &bits, sizeof(d));
		return d;
	}
	memcpy(&f, &low, sizeof(f));
	return (double)f;
}

static bool is_signed(enum spmt_type type)
{
	return type == SPMT_TYPE_I8 || type == SPMT_TYPE_I16 || type == SPMT_TYPE_I32 ||
		type == SPMT_TYPE_I64;
}

/* a op b on integers in the low bits. */
static uint64_t combine(const struct call *c, uint64_t a, uint64_t b)
{
	unsigned shift = 64 - (unsigned)widths[c->type] * 8;
	bool less = is_signed(c->type) ? (int64_t)(a << shift) < (int64_t)(b << shift) : a < b;

	switch (c->op) {
	case SPMT_OP_SUM:
		return (a + b) << shift >> shift;
	case SPMT_OP_PROD:
		return (a * b) << shift >> shift;
	case SPMT_OP_MIN:
		return less ? a : b;
	case SPMT_OP_MAX:
		return less ? b : a;
	case SPMT_OP_AND:
		return a & b;
	case SPMT_OP_OR:
		return a | b;
	default:
		return a ^ b;
	}
}

/* Rounding: half a unit in the last place of the result, and as much of f32 or f64 for each step. */
static bool near(const struct call *c, size_t i, uint64_t bits)
{
	static const double eps[] = { [SPMT_TYPE_F16] = 0x1p-11,
		[SPMT_TYPE_BF16] = 0x1p-8,
		[SPMT_TYPE_F32] = 0x1p-24,
		[SPMT_TYPE_F64] = 0x1p-53 };
	double step = c->type == SPMT_TYPE_F64 ? 0x1p-53 : 0x1p-24, got = decode(c->type, bits);
	double v = decode(c->type, element(c, 0, i)), size = fabs(v);

	for (int r = 1; r < c->n; r++) {
		double x = decode(c->type, element(c, r, i));

		v = c->op == SPMT_OP_SUM	? v + x
			: c->op == SPMT_OP_PROD ? v * x
			: c->op == SPMT_OP_MIN	? fmin(v, x)
						: fmax(v, x);
		size = c->op == SPMT_OP_SUM ? size + fabs(x) : c->op == SPMT_OP_PROD ? fabs(v) : 0;
	}
	return fabs(got - v) <= fabs(v) * eps[c->type] * 1.01 * (size > 0) + size * step * 2 * c->n;
}

/* ---- one call --------------------------------------------------------------------------------------------------------------- */

static size_t src_count(const struct call *c)
{
	return c->kind == ALL_TO_ALL || c->kind == REDUCE_SCATTER ? c->count * (size_t)c->n
								  : c->count;
}

static size_t dst_count(const struct call *c)
{
	return c->kind == ALL_TO_ALL || c->kind == ALL_GATHER ? c->count * (size_t)c->n : c->count;
}

static int make(
	spmt_comm *comm, const struct call *c, void *dst, const void *src, spmt_stream stream)
{
	switch (c->kind) {
	case BROADCAST:
		/* what nobody reads may be anything */
		return spmt_broadcast(comm, dst,
			spmt_rank(comm) == c->root ? src : (const char *)src + 1, c->count, c->type,
			c->root, stream);
	case ALL_GATHER:
		return spmt_all_gather(comm, dst, src, c->count, c->type, stream);
	case ALL_TO_ALL:
		return spmt_all_to_all(comm, dst, src, c->count, c->type, stream);
	case PERMUTE:
		return spmt_permute(comm, dst, src, c->count, c->type, c->to, stream);
	case REDUCE_SCATTER:
		return spmt_reduce_scatter(comm, dst, src, c->count, c->type, c->op, stream);
	default:
		return spmt_all_reduce(comm, dst, src, c->count, c->type, c->op, stream);
	}
}

/* Who gave element i of rank's dst, and as which of its own; -1: nobody, it stays 0x5c. */
static int giver(const struct call *c, int rank, size_t i, size_t *own)
{
	size_t part = c->count ? i / c->count : 0, rest = c->count ? i % c->count : 0;

	*own = c->kind == ALL_TO_ALL ? (size_t)rank * c->count + rest : rest;
	if (c->kind == BROADCAST)
		return c->root;
	for (int r = 0; c->kind == PERMUTE && r < c->n; r++)
		if (c->to[r] == rank)
			return r;
	return c->kind == PERMUTE ? -1 : (int)part;
}

static bool right(const struct call *c, int rank, size_t i, uint64_t bits)
{
	size_t own, base = c->kind == REDUCE_SCATTER ? (size_t)rank * c->count : 0;
	uint64_t v, untouched = 0x5c5c5c5c5c5c5c5c;
	int from;

	if (c->kind < REDUCE_SCATTER) {
		from = giver(c, rank, i, &own);
		return bits ==
			(from < 0 ? untouched >> (64 - widths[c->type] * 8)
				  : element(c, from, own));
	}
	if (c->type >= SPMT_TYPE_F16)
		return near(c, base + i, bits);
	v = element(c, 0, base + i);
	for (int r = 1; r < c->n; r++)
		v = combine(c, v, element(c, r, base + i));
	return v == bits;
}

/* Fills `bytes` of host memory with rank's src. */
static void fill(const struct call *c, int rank, char *host)
{
	for (size_t i = 0; i < src_count(c); i++) {
		uint64_t bits = element(c, rank, i);

		memcpy(host + i * widths[c->type], &bits, widths[c->type]);
	}
}

static int check(const struct call *c, int rank, const char *host)
{
	for (size_t i = 0; i < dst_count(c); i++) {
		uint64_t bits = 0;

		memcpy(&bits, host + i * widths[c->type], widths[c->type]);
		if (!right(c, rank, i, bits))
			return ranks_fail(
				"kind %d type %d op %d count %zu of %d ranks: element %zu is %#jx",
				(int)c->kind, (int)c->type, (int)c->op, c->count, c->n, i,
				(uintmax_t)bits);
	}
	/* behind a block of src in place lies the next one */
	for (size_t i = 0; i < GUARD && !(c->in_place && c->kind == REDUCE_SCATTER); i++)
		REQUIRE_EQ(host[dst_count(c) * widths[c->type] + i], 0x5c);
	return 0;
}

struct desk {
	char *dst, *src, *host; /* dst, src: device; host: as large as either */
	size_t room;
	spmt_stream stream;
};

/* Hashes of the ranks' results, for those that must be equal bit by bit. */
static _Atomic uint64_t hashes[MOST];

static uint64_t hash_of(const char *p, size_t n)
{
	uint64_t h = 14695981039346656037u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)p[i]) * 1099511628211u;
	return h;
}

static int equal_on_all(spmt_comm *comm, const struct call *c, const char *host)
{
	atomic_store(&hashes[spmt_rank(comm)], hash_of(host, dst_count(c) * widths[c->type]));
	REQUIRE_OK(spmt_sync(comm));
	for (int pe = 0; pe < c->n; pe++)
		REQUIRE(atomic_load(&hashes[pe]) == atomic_load(&hashes[0]));
	return spmt_sync(comm);
}

/* Reductions are the same on all ranks: one of them computes what is right. */
static int one(spmt_comm *comm, struct call *c, const struct desk *d)
{
	int rank = spmt_rank(comm);
	size_t width = widths[c->type], in = src_count(c) * width, out = dst_count(c) * width;
	char *dst = d->dst + (size_t)rank % 3 * width, *src = d->src + (size_t)rank % 2 * width;
	bool same = c->kind == ALL_REDUCE || c->kind == BROADCAST;

	if (c->in_place && c->kind == REDUCE_SCATTER)
		dst = src + (size_t)rank * c->count * width;
	else if (c->in_place)
		src = dst + (c->kind == ALL_GATHER ? (size_t)rank * c->count * width : 0);
	c->n = spmt_nranks(comm);
	c->seed++;
	REQUIRE(out + GUARD + 64 <= d->room && in + GUARD + 64 <= d->room);
	TRY(sym_set(comm, dst, 0x5c, out + GUARD));
	fill(c, rank, d->host);
	REQUIRE_OK(spmt_copy_in(comm, src, d->host, in));
	REQUIRE_OK(make(comm, c, dst, src, d->stream));
	if (d->stream && d->stream != SPMT_STREAM_LEGACY && d->stream != SPMT_STREAM_PER_THREAD &&
		c->seed % 2)
		REQUIRE_OK(stream_wait(comm, d->stream));
	else
		REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_copy_out(comm, d->host, dst, out + GUARD));
	if (same)
		TRY(equal_on_all(comm, c, d->host));
	if (!same || (uint64_t)rank == c->seed % (uint64_t)c->n)
		TRY(check(c, rank, d->host));
	if (!c->in_place) {
		REQUIRE_OK(spmt_copy_out(comm, d->host, src, in));
		for (size_t i = 0; i < src_count(c); i++) {
			uint64_t bits = element(c, rank, i);

			REQUIRE(memcmp(d->host + i * width, &bits, width) == 0);
		}
	}
	return 0;
}

static int desk_open(spmt_comm *comm, struct desk *d, size_t room)
{
	d->room = room + 2 * GUARD;
	d->stream = NULL;
	d->host = malloc(d->room);
	REQUIRE(d->host);
	REQUIRE_OK(spmt_malloc(comm, d->room, (void **)&d->dst));
	REQUIRE_OK(spmt_malloc(comm, d->room, (void **)&d->src));
	return 0;
}

static void run_with(const int *counts, int n, int (*fn)(spmt_comm *, void *), void *arg)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);

	attr.heap_size = 16u << 20;
	for (int i = 0; i < n; i++)
		RANKS_OK(ranks_run(counts[i], &attr, fn, arg));
}

static const int worlds[] = { 1, 2, 3, 8 };

/* ---- moves ---------------------------------------------------------------------------------------------------------------------- */

static int moves(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 0, 1, 2, 37, LARGE };
	enum kind kind = *(enum kind *)arg;
	int n = spmt_nranks(comm);
	struct call c = { .kind = kind };
	struct desk d;

	TRY(desk_open(comm, &d, (size_t)n * LARGE * 8));
	for (c.type = SPMT_TYPE_I8; c.type <= SPMT_TYPE_F64; c.type++)
		for (size_t i = 0; i < 5; i++) {
			c.count = counts[i];
			c.root = (int)(i + (size_t)c.type) % n;
			TRY(one(comm, &c, &d));
			if (kind != BROADCAST && kind != ALL_GATHER)
				continue;
			c.in_place = true;
			TRY(one(comm, &c, &d));
			c.in_place = false;
		}
	free(d.host);
	return 0;
}

Test(collectives, broadcast)
{
	run_with(worlds, 4, moves, &(enum kind){ BROADCAST });
}

Test(collectives, all_gather)
{
	run_with(worlds, 4, moves, &(enum kind){ ALL_GATHER });
}

Test(collectives, all_to_all)
{
	run_with(worlds, 4, moves, &(enum kind){ ALL_TO_ALL });
}

static int permutes(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 0, 1, 5, LARGE };
	int n = spmt_nranks(comm), to[MOST];
	struct call c = { .kind = PERMUTE, .to = to };
	struct desk d;

	(void)arg;
	TRY(desk_open(comm, &d, LARGE * 8));
	for (int way = 0; way < 5; way++)
		for (size_t i = 0; i < 4; i++) {
			/* ring, back, to self, nobody, every other one */
			for (int r = 0; r < n; r++)
				to[r] = way == 0	    ? (r + 1) % n
					: way == 1	    ? n - 1 - r
					: way == 2	    ? r
					: way == 3 || r % 2 ? -1
							    : (r + 1) % n;
			c.count = counts[i];
			c.type = (enum spmt_type)((way * 4 + (int)i) % 12);
			TRY(one(comm, &c, &d));
		}
	free(d.host);
	return 0;
}

Test(collectives, permute)
{
	run_with(worlds, 4, permutes, NULL);
}

/* ---- reductions -------------------------------------------------------------------------------------------------------------------- */

static int reductions(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 0, 1, 2, 129, LARGE };
	struct call c = { .kind = *(enum kind *)arg };
	size_t most = c.kind == REDUCE_SCATTER ? LARGE * (size_t)spmt_nranks(comm) : LARGE;
	struct desk d;

	TRY(desk_open(comm, &d, most * 8));
	for (c.type = SPMT_TYPE_I8; c.type <= SPMT_TYPE_F64; c.type++)
		for (c.op = SPMT_OP_SUM; c.op <= SPMT_OP_XOR; c.op++)
			for (size_t i = 0; i < 5; i++) {
				bool large = counts[i] == LARGE;

				if (c.type >= SPMT_TYPE_F16 && c.op >= SPMT_OP_AND)
					continue;
				if (large && !test_long() &&
					((unsigned)c.type + (unsigned)c.op) % 4)
					continue;
				c.count = counts[i];
				c.in_place = ((size_t)c.type + (size_t)c.op + i) % 2;
				TRY(one(comm, &c, &d));
			}
	free(d.host);
	return 0;
}

Test(collectives, all_reduce)
{
	run_with(worlds, 4, reductions, &(enum kind){ ALL_REDUCE });
}

Test(collectives, reduce_scatter)
{
	run_with(worlds, 4, reductions, &(enum kind){ REDUCE_SCATTER });
}

/* ---- streams and buffers ------------------------------------------------------------------------------------------------------------- */

static int every_stream(spmt_comm *comm, void *arg)
{
	static int to[MOST] = { 1, 0, 2 };
	spmt_stream streams[] = { NULL, SPMT_STREAM_LEGACY, SPMT_STREAM_PER_THREAD, NULL };
	struct call c = { .count = 1001, .type = SPMT_TYPE_I32, .to = to };
	struct desk d;

	(void)arg;
	TRY(desk_open(comm, &d, 1001 * 8 * 3));
	REQUIRE_OK(stream_make(comm, &streams[3]));
	for (int round = 0; round < 10; round++)
		for (size_t s = 0; s < 4; s++)
			for (c.kind = BROADCAST; c.kind < KINDS; c.kind++) {
				d.stream = streams[s];
				TRY(one(comm, &c, &d));
			}
	REQUIRE_OK(stream_end(comm, streams[3]));
	free(d.host);
	return 0;
}

Test(collectives, on_every_stream)
{
	/* Ranks of one device would share its legacy stream, and wait in it for each other. */
	NEEDS_DEVICES(3);
	run_with((const int[]){ 3 }, 1, every_stream, NULL);
}

/* Where the CPU's memory is the device's: buffers of any origin. */
static int any_buffer(spmt_comm *comm, void *arg)
{
	struct call c = { .kind = ALL_REDUCE,
		.type = SPMT_TYPE_F64,
		.count = 300,
		.n = spmt_nranks(comm),
		.seed = 5 };
	char *heap = malloc(300 * 8 + GUARD), stack[300 * 8];

	(void)arg;
	REQUIRE(heap);
	for (int round = 0; round < 50 && host_access(comm); round++) {
		c.seed++;
		memset(heap, 0x5c, 300 * 8 + GUARD);
		fill(&c, spmt_rank(comm), stack);
		REQUIRE_OK(make(comm, &c, heap, stack, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		/* src is this rank's own again: nobody reads it any more. */
		memset(stack, 0xff, sizeof(stack));
		TRY(check(&c, spmt_rank(comm), heap));
	}
	free(heap);
	return 0;
}

Test(collectives, on_any_buffer)
{
	run_with((const int[]){ 4 }, 1, any_buffer, NULL);
}

/* One rank comes late: until it calls, nobody has read its src or written its dst. */
static int late_rank(spmt_comm *comm, void *arg)
{
	struct call c = { .kind = *(enum kind *)arg, .type = SPMT_TYPE_U64, .count = 500 };
	int rank = spmt_rank(comm), n = spmt_nranks(comm), to[MOST];
	struct desk d;

	for (int r = 0; r < n; r++)
		to[r] = (r + 1) % n;
	c.to = to;
	c.n = n;
	TRY(desk_open(comm, &d, 500 * 8 * (size_t)n));
	for (int late = 0; late < n; late++) {
		c.seed++;
		c.root = late;
		TRY(sym_set(comm, d.dst, 0x5c, d.room));
		TRY(sym_set(comm, d.src, 0xbb, d.room));
		REQUIRE_OK(spmt_barrier(comm));
		if (rank == late) {
			sleep_ms(20);
			TRY(sym_check_byte(comm, d.dst, 0x5c, d.room));
		}
		fill(&c, rank, d.host);
		REQUIRE_OK(spmt_copy_in(comm, d.src, d.host, src_count(&c) * 8));
		REQUIRE_OK(make(comm, &c, d.dst, d.src, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(sym_set(comm, d.src, 0xcc, d.room));
		REQUIRE_OK(spmt_copy_out(comm, d.host, d.dst, d.room));
		TRY(check(&c, rank, d.host));
	}
	free(d.host);
	return 0;
}

Test(collectives, nobody_touches_a_late_ranks_buffers)
{
	for (enum kind k = BROADCAST; k < KINDS; k++)
		run_with((const int[]){ 4 }, 1, late_rank, &k);
}

/* ---- ranks that differ -------------------------------------------------------------------------------------------------------------------- */

static int differs(spmt_comm *comm, void *arg)
{
	int way = *(int *)arg;
	bool odd = spmt_rank(comm) == 2;
	uint64_t *at;
	int code;

	REQUIRE_OK(spmt_calloc(comm, 64, sizeof(*at), (void **)&at));
	if (way == 0)
		code = spmt_all_reduce(comm, at, at, odd ? 3 : 4, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	else if (way == 1)
		code = spmt_all_reduce(
			comm, at, at, 4, odd ? SPMT_TYPE_F64 : SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
	else if (way == 2)
		code = spmt_all_reduce(
			comm, at, at, 4, SPMT_TYPE_U64, odd ? SPMT_OP_MAX : SPMT_OP_SUM, NULL);
	else if (way == 3)
		code = spmt_broadcast(comm, at, at, 4, SPMT_TYPE_U64, odd ? 1 : 0, NULL);
	else
		code = odd ? spmt_all_gather(comm, at, at + 16, 4, SPMT_TYPE_U64, NULL)
			   : spmt_all_to_all(comm, at, at + 16, 4, SPMT_TYPE_U64, NULL);
	REQUIRE_CODE(code, 0);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("spmt_quiet");
	return 0;
}

Test(collectives, a_difference_is_reported)
{
	for (int way = 0; way < 5; way++)
		run_with((const int[]){ 4 }, 1, differs, &way);
}

/* What would read bytes that are written already is refused, on every rank, and nothing has begun. */
static int overlaps(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), to[] = { 1, 2, 0 };
	struct call c = { .type = SPMT_TYPE_U32, .count = 4, .n = n, .to = to };
	uint32_t *at;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 64, sizeof(*at), (void **)&at));
	for (c.kind = BROADCAST; c.kind < KINDS; c.kind++) {
		uint32_t *dst = at + 16, *src = at + 16;

		c.root = spmt_rank(comm);
		REQUIRE_CODE(make(comm, &c, dst, src + 1, NULL), -EINVAL);
		REQUIRE_SAYS("overlap");
		REQUIRE_CODE(make(comm, &c, dst, src - 1, NULL), -EINVAL);
		REQUIRE_CODE(make(comm, &c, dst, src + dst_count(&c) - 1, NULL), -EINVAL);
		REQUIRE_CODE(make(comm, &c, dst, src - src_count(&c) + 1, NULL), -EINVAL);
		/* a block of its own is another rank's */
		if (c.kind == ALL_GATHER)
			REQUIRE_CODE(
				make(comm, &c, dst,
					dst + (size_t)(spmt_rank(comm) + 1) % 3 * c.count, NULL),
				-EINVAL);
		c.root = 0;
		REQUIRE_OK(make(comm, &c, dst, src - src_count(&c), NULL));
		REQUIRE_OK(make(comm, &c, dst, src + dst_count(&c), NULL));
		c.count = 0;
		REQUIRE_OK(make(comm, &c, dst, src, NULL));
		c.count = 4;
	}
	REQUIRE_OK(spmt_quiet(comm));
	return sym_check_u64(comm, (uint64_t *)(void *)at, 0);
}

Test(collectives, overlaps_are_refused)
{
	run_with((const int[]){ 3 }, 1, overlaps, NULL);
}
