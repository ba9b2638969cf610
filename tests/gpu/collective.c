/* SPDX-License-Identifier: MIT */
/*
 * Every collective x type x op x count on the devices' streams, in place where that is allowed, on
 * symmetric and other memory, against what a world of the host backend makes of the same input: bit
 * for bit. What that makes is checked by a few lines of C, but for the sums of floats, which flow-collectives looks at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { TYPES = SPMT_TYPE_F8E5M2 + 1, RANKS_MOST = 8, AFTER = 64, POISON = 0xb6 };

enum kind {
	BROADCAST,
	ALL_GATHER,
	ALL_TO_ALL,
	PERMUTE,
	GATHER,
	SCATTER,
	ALL_GATHER_V,
	ALL_TO_ALL_V,
	REDUCE_SCATTER,
	ALL_REDUCE,
	REDUCE,
	KINDS
};

static const char *const kind_names[KINDS] = { "broadcast", "all_gather", "all_to_all", "permute",
	"gather", "scatter", "all_gather_v", "all_to_all_v", "reduce_scatter", "all_reduce",
	"reduce" };
static const size_t type_bytes[TYPES] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1 };
enum { OPS = SPMT_OP_AVG + 1 };

struct item {
	enum kind kind;
	enum spmt_type type;
	enum spmt_op op;
	size_t count;
	bool in_place;
};

struct plan {
	struct item *items;
	size_t n, room;
	uint64_t *sums; /* of the reference: an item x rank */
	bool reference;
};

struct scene {
	struct rank r;
	char *dst[2], *src[2]; /* symmetric, and not */
	unsigned char *host;
	unsigned char *peer, *want; /* the reference alone: a rank's input, and what comes of all */
};

/* ---- what to run ----------------------------------------------------------------------------- */

enum { PARTS = 3 << 7, MORE_PARTS = 3 << 14, SIZES_MOST = 9 };

static size_t sizes_of(size_t *counts, bool all)
{
	static const size_t usual[] = { 0, 1, 3, 257, PARTS, 1001, MORE_PARTS, 65537 };
	size_t n = 0;

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		counts[n++] = usual[i];
	if (all)
		counts[n++] = 1u << 20;
	return n;
}

static bool item_valid(const struct item *i)
{
	bool reduces = i->kind >= REDUCE_SCATTER, floats = i->type >= SPMT_TYPE_F16;

	if (!reduces && i->op != SPMT_OP_SUM)
		return false;
	if (floats && i->op >= SPMT_OP_AND && i->op <= SPMT_OP_XOR)
		return false;
	/* Whole units of 16 bytes for each of 2, 3, 4 or 8 ranks: in two phases, and of some types in one. */
	if (i->count == MORE_PARTS && i->kind != ALL_REDUCE && i->type % 4)
		return false;
	if (i->in_place && i->kind != BROADCAST && i->kind != ALL_REDUCE && i->kind != ALL_TO_ALL)
		return false;
	if (i->count > 1001 && (i->kind >= GATHER && i->kind <= ALL_TO_ALL_V) && i->type % 4)
		return false;
	/* The largest and the next with one op a type, the usual ones with all. */
	return i->count <= 1001 || i->op == SPMT_OP_SUM || (int)i->op == (int)i->type % 4;
}

static int plan_make(struct plan *p)
{
	size_t counts[SIZES_MOST], ncounts = sizes_of(counts, gpu_number(1, 0) != 0), at = 0;
	const size_t most = 2 * KINDS * TYPES * OPS * SIZES_MOST;

	p->items = calloc(most, sizeof(*p->items));
	p->sums = calloc(most * RANKS_MOST, sizeof(*p->sums));
	REQUIRE(p->items && p->sums);
	for (size_t i = 0; i < 2 * KINDS * TYPES * OPS * ncounts; i++) {
		struct item item = { .kind = (enum kind)(i % KINDS),
			.type = (enum spmt_type)(i / KINDS % TYPES),
			.op = (enum spmt_op)(i / KINDS / TYPES % OPS),
			.in_place = i / KINDS / TYPES / OPS % 2,
			.count = counts[i / KINDS / TYPES / OPS / 2] };

		if (item_valid(&item))
			p->items[at++] = item;
	}
	p->n = at;
	p->room = RANKS_MOST * counts[ncounts - 1] * 8 + 4096;
	return 0;
}

static void plan_free(struct plan *p)
{
	free(p->items);
	free(p->sums);
}

/* ---- one of them ----------------------------------------------------------------------------- */

/* Any bits for integers; for floats numbers that stay finite and round differently in another
   order. */
static void input(unsigned char *p, size_t bytes, enum spmt_type type, uint64_t seed)
{
	pattern_fill(p, bytes, seed);
	for (size_t i = 0; i + type_bytes[type] <= bytes; i += type_bytes[type]) {
		uint64_t x = 0;

		memcpy(&x, p + i, type_bytes[type]);
		if (type == SPMT_TYPE_F16)
			x = (x & 0x87ff) | 0x3800;
		else if (type == SPMT_TYPE_BF16)
			x = (x & 0x80ff) | 0x3f00;
		else if (type == SPMT_TYPE_F32)
			x = (x & 0x80ffffff) | 0x3f000000;
		else if (type >= SPMT_TYPE_F8E4M3)
			x = (x & 0x9f) | 0x20;
		else if (type == SPMT_TYPE_F64)
			x = (x & 0x801fffffffffffffull) | 0x3fe0000000000000ull;
		memcpy(p + i, &x, type_bytes[type]);
	}
}

static uint64_t sum_of(const unsigned char *p, size_t n)
{
	uint64_t sum = n, x = 0;

	for (size_t i = 0; i < n; i += 8) {
		memcpy(&x, p + i, n - i < 8 ? n - i : 8);
		sum = (sum ^ x) * 0x9e3779b97f4a7c15ull;
		sum ^= sum >> 29;
	}
	return sum;
}

static int root_of(const struct scene *s, const struct item *i)
{
	return (int)i->count % s->r.n;
}

/* Elements from one rank to another, of those that have room for `count`. */
static size_t pair_of(const struct item *i, int from, int to)
{
	return i->count * (size_t)(1 + (from * 2 + (i->kind == ALL_TO_ALL_V) * to) % 4) / 4;
}

static int call_varied(
	struct scene *s, const struct item *i, void *dst, const void *src, spmt_stream stream)
{
	size_t gets[RANKS_MOST], gives[RANKS_MOST], at[RANKS_MOST];

	for (int pe = 0; pe < s->r.n; pe++) {
		gets[pe] = pair_of(i, pe, s->r.pe);
		gives[pe] = pair_of(i, s->r.pe, pe);
		at[pe] = (size_t)pe * i->count;
	}
	if (i->kind == ALL_GATHER_V)
		return spmt_all_gather_v(s->r.comm, dst, gets, at, src, i->type, stream);
	return spmt_all_to_all_v(s->r.comm, dst, gets, at, src, gives, at, i->type, stream);
}

static int call(
	struct scene *s, const struct item *i, void *dst, const void *src, spmt_stream stream)
{
	spmt_comm *comm = s->r.comm;
	int to[RANKS_MOST];

	switch (i->kind) {
	case BROADCAST:
		return spmt_broadcast(comm, dst, src, i->count, i->type, root_of(s, i), stream);
	case ALL_GATHER:
		return spmt_all_gather(comm, dst, src, i->count, i->type, stream);
	case ALL_TO_ALL:
		return spmt_all_to_all(comm, dst, src, i->count, i->type, stream);
	case PERMUTE:
		/* Round by one; of more than two ranks, the last gives nothing. */
		for (int pe = 0; pe < s->r.n; pe++)
			to[pe] = pe == 2 ? -1 : (pe + 1) % s->r.n;
		return spmt_permute(comm, dst, src, i->count, i->type, to, stream);
	case GATHER:
		return spmt_gather(comm, dst, src, i->count, i->type, root_of(s, i), stream);
	case SCATTER:
		return spmt_scatter(comm, dst, src, i->count, i->type, root_of(s, i), stream);
	case ALL_GATHER_V:
	case ALL_TO_ALL_V:
		return call_varied(s, i, dst, src, stream);
	case REDUCE:
		return spmt_reduce(comm, dst, src, i->count, i->type, i->op, root_of(s, i), stream);
	case REDUCE_SCATTER:
		return spmt_reduce_scatter(comm, dst, src, i->count, i->type, i->op, stream);
	default:
		return spmt_all_reduce(comm, dst, src, i->count, i->type, i->op, stream);
	}
}

/* ---- what it has to be ------------------------------------------------------------------------ */

static uint64_t combined(enum spmt_type type, enum spmt_op op, uint64_t a, uint64_t b)
{
	unsigned shift = 64 - 8 * (unsigned)type_bytes[type];
	bool is_signed = type % 2 == 0;
	bool less = is_signed ? (int64_t)(a << shift) < (int64_t)(b << shift) : a < b;

	switch (op) {
	case SPMT_OP_SUM:
		return a + b;
	case SPMT_OP_PROD:
		return a * b;
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

static void combine(const struct item *i, unsigned char *to, const unsigned char *from)
{
	size_t size = type_bytes[i->type];

	for (size_t k = 0; k < i->count * size; k += size) {
		uint64_t a = 0, b = 0;

		memcpy(&a, to + k, size);
		memcpy(&b, from + k, size);
		a = combined(i->type, i->op, a, b);
		memcpy(to + k, &a, size);
	}
}

/* What rank q's input adds to this rank's result. */
static void take(struct scene *s, const struct item *i, int q)
{
	size_t bytes = i->count * type_bytes[i->type], me = (size_t)s->r.pe, from = (size_t)q;
	size_t pair = pair_of(i, q, s->r.pe) * type_bytes[i->type];
	bool root = s->r.pe == root_of(s, i);

	switch (i->kind) {
	case BROADCAST:
		if (q == root_of(s, i))
			memcpy(s->want, s->peer, bytes);
		break;
	case GATHER:
		if (root)
			memcpy(s->want + from * bytes, s->peer, bytes);
		break;
	case SCATTER:
		if (q == root_of(s, i))
			memcpy(s->want, s->peer + me * bytes, bytes);
		break;
	case ALL_GATHER_V:
		memcpy(s->want + from * bytes, s->peer, pair);
		break;
	case ALL_TO_ALL_V:
		memcpy(s->want + from * bytes, s->peer + me * bytes, pair);
		break;
	case ALL_GATHER:
		memcpy(s->want + from * bytes, s->peer, bytes);
		break;
	case ALL_TO_ALL:
		memcpy(s->want + from * bytes, s->peer + me * bytes, bytes);
		break;
	case PERMUTE:
		if (q != 2 && (q + 1) % s->r.n == s->r.pe)
			memcpy(s->want, s->peer, bytes);
		break;
	default:
		if (i->kind == REDUCE && !root)
			break;
		if (q == 0)
			memcpy(s->want, s->peer + (i->kind == REDUCE_SCATTER) * me * bytes, bytes);
		else
			combine(i, s->want, s->peer + (i->kind == REDUCE_SCATTER) * me * bytes);
	}
}

static uint64_t seed_of(size_t number, int pe)
{
	return number * 64 + (uint64_t)pe + 1;
}

/* s->host has the result of `out` bytes. */
static int check_result(struct scene *s, const struct item *i, size_t number, size_t in, size_t out)
{
	if (i->kind >= REDUCE_SCATTER && (i->type >= SPMT_TYPE_F16 || i->op == SPMT_OP_AVG))
		return 0;
	memset(s->want, POISON, out);
	for (int q = 0; q < s->r.n; q++) {
		input(s->peer, in, i->type, seed_of(number, q));
		take(s, i, q);
	}
	if (!memcmp(s->want, s->host, out))
		return 0;
	return ranks_fail("%s of type %d, op %d, count %zu%s: rank %d is wrong on the host",
		kind_names[i->kind], (int)i->type, (int)i->op, i->count,
		i->in_place ? ", in place" : "", s->r.pe);
}

static bool from_blocks(enum kind kind)
{
	return kind == ALL_TO_ALL || kind == ALL_TO_ALL_V || kind == SCATTER ||
		kind == REDUCE_SCATTER;
}

static bool to_blocks(enum kind kind)
{
	return kind == ALL_TO_ALL || kind == ALL_TO_ALL_V || kind == ALL_GATHER ||
		kind == ALL_GATHER_V || kind == GATHER;
}

/* Of dst's bytes and what follows them. */
static int one_item(struct scene *s, const struct item *i, size_t number, uint64_t *sum)
{
	size_t size = type_bytes[i->type], bytes = i->count * size, n = (size_t)s->r.n;
	size_t in = from_blocks(i->kind) ? n * bytes : bytes;
	size_t out = to_blocks(i->kind) ? n * bytes : bytes;
	size_t shift = number % 3 * size; /* from an address that is aligned for all */
	char *dst = s->dst[number % 2] + shift, *src = s->src[number / 2 % 2] + number % 5 * size;
	spmt_stream stream = number % 4 ? s->r.stream : NULL;

	if (i->in_place)
		src = dst;
	input(s->host, in, i->type, seed_of(number, s->r.pe));
	TRY(rank_fill(&s->r, dst, POISON, out + AFTER));
	TRY(rank_write(&s->r, src, s->host, in));
	REQUIRE_OK(call(s, i, dst, src, stream));
	if (stream)
		TRY(rank_sync(&s->r));
	else
		REQUIRE_OK(spmt_quiet(s->r.comm));
	TRY(rank_read(&s->r, s->host, dst, out + AFTER));
	for (size_t k = i->in_place && in > out ? in : out; k < out + AFTER; k++)
		if (s->host[k] != POISON)
			return ranks_fail("%s of type %d, count %zu wrote byte %zu of %zu",
				kind_names[i->kind], (int)i->type, i->count, k, out);
	*sum = sum_of(s->host, out);
	return s->want ? check_result(s, i, number, in, out) : 0;
}

static int scene_open(struct scene *s, spmt_comm *comm, size_t room)
{
	void *p;

	TRY(rank_open(&s->r, comm));
	for (int i = 0; i < 2; i++) {
		if (i)
			TRY(rank_alloc(&s->r, room, &p));
		else
			REQUIRE_OK(spmt_malloc(comm, room, &p));
		s->dst[i] = p;
		if (i)
			TRY(rank_alloc(&s->r, room, &p));
		else
			REQUIRE_OK(spmt_malloc(comm, room, &p));
		s->src[i] = p;
	}
	s->host = malloc(room);
	REQUIRE(s->host);
	return 0;
}

static int plan_rank(spmt_comm *comm, void *arg)
{
	struct plan *p = arg;
	struct scene s;

	TRY(scene_open(&s, comm, p->room));
	s.peer = p->reference ? malloc(p->room) : NULL;
	s.want = p->reference ? malloc(p->room) : NULL;
	REQUIRE(!p->reference || (s.peer && s.want));
	for (size_t i = 0; i < p->n; i++) {
		uint64_t *want = &p->sums[i * RANKS_MOST + (size_t)s.r.pe], sum = 0;

		TRY(one_item(&s, &p->items[i], i, &sum));
		if (p->reference)
			*want = sum;
		else if (sum != *want)
			return ranks_fail(
				"%s of type %d, op %d, count %zu%s: rank %d differs from the host's",
				kind_names[p->items[i].kind], (int)p->items[i].type,
				(int)p->items[i].op, p->items[i].count,
				p->items[i].in_place ? ", in place" : "", s.r.pe);
	}
	REQUIRE_OK(spmt_barrier(comm));
	for (int i = 1; i < 2; i++) {
		rank_free(&s.r, s.dst[i]);
		rank_free(&s.r, s.src[i]);
	}
	free(s.host);
	free(s.peer);
	free(s.want);
	rank_close(&s.r);
	return 0;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static int same_on_all(const struct plan *p, int n)
{
	for (size_t i = 0; i < p->n; i++) {
		enum kind kind = p->items[i].kind;

		for (int pe = 1; pe < n; pe++)
			if ((kind == ALL_REDUCE || kind == BROADCAST || kind == ALL_GATHER) &&
				p->sums[i * RANKS_MOST + (size_t)pe] != p->sums[i * RANKS_MOST])
				return ranks_fail(
					"%s: ranks 0 and %d differ", kind_names[kind], pe);
	}
	return 0;
}

static int run_plan(int n)
{
	struct plan p = { .reference = true };
	size_t heap;
	int rc;

	TRY(plan_make(&p));
	heap = 2 * p.room + (4u << 20);
	rc = gpu_run_on(&backend_host, n, heap, plan_rank, &p);
	if (!rc)
		rc = same_on_all(&p, n);
	p.reference = false;
	if (!rc)
		rc = gpu_run(n, heap, plan_rank, &p);
	plan_free(&p);
	return rc;
}

/* Multiplied by the number of ranks, a word soon has no bits left: it begins anew. */
enum { ANEW = 24 };

/* The words of the chain. */
enum { FACTOR, PRODUCT, ONE, NOTHING, SUMS, WORDS = SUMS + 2 };

/* One round on a stream: product = n * factor to all; factor = that; the next sum = the last and the factor, where two ranks give
   one each. */
static int chain_round(struct rank *r, uint64_t *words, int i, spmt_stream stream)
{
	uint64_t *mine = r->pe == 0 ? words + FACTOR
		: r->pe == 1	    ? words + SUMS + i % 2
				    : words + NOTHING;

	if (i % ANEW == 0)
		REQUIRE_OK(spmt_broadcast(
			r->comm, words + FACTOR, words + ONE, 1, SPMT_TYPE_U64, 0, stream));
	REQUIRE_OK(spmt_all_reduce(
		r->comm, words + PRODUCT, words + FACTOR, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	REQUIRE_OK(spmt_broadcast(
		r->comm, words + FACTOR, words + PRODUCT, 1, SPMT_TYPE_U64, i % r->n, stream));
	REQUIRE_OK(spmt_all_reduce(
		r->comm, words + SUMS + (i + 1) % 2, mine, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream));
	return 0;
}

/* Back to back without a look in between: each feeds the next, on two streams in turn. The sum has every round's product. */
static int chain(spmt_comm *comm, void *arg)
{
	const int rounds = (int)gpu_number(2000, 200);
	uint64_t seen[WORDS] = { [ONE] = 1 }, n, factor = 1, sum = 0;
	struct rank r;
	uint64_t *words;
	void *p;

	(void)arg;
	TRY(rank_open(&r, comm));
	n = (uint64_t)r.n;
	REQUIRE_OK(spmt_calloc(comm, WORDS, 8, &p));
	words = p;
	TRY(rank_write(&r, words, seen, sizeof(seen)));
	for (int i = 0; i < rounds; i++) {
		TRY(chain_round(&r, words, i, i / 3 % 2 ? r.stream : NULL));
		factor = (i % ANEW ? factor : 1) * n;
		sum = n > 1 ? sum + factor : factor;
	}
	REQUIRE_OK(spmt_quiet(comm));
	TRY(rank_read(&r, seen, words, sizeof(seen)));
	REQUIRE_EQ(seen[FACTOR], factor);
	REQUIRE_EQ(seen[PRODUCT], factor);
	REQUIRE_EQ(seen[SUMS + rounds % 2], sum);
	REQUIRE_OK(spmt_barrier(comm));
	rank_close(&r);
	return 0;
}

static int run_chain(int n)
{
	return gpu_run(n, 4u << 20, chain, NULL);
}

static const struct gpu_test tests[] = {
	{ "collectives_as_on_the_host", run_plan, 1 },
	{ "collectives_in_a_chain", run_chain, 1 },
};
static const struct test_kernel *const kernels[] = { NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
