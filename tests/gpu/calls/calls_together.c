/* SPDX-License-Identifier: MIT */
/* What all ranks do together: collectives, the heap, registered buffers, parts of a comm. */
#include <stdlib.h>

#include "calls.h"
#include "spmt_device.h"
#include "spmt_plan.h"

enum { MOST = 4001 }; /* elements */

/* ---- collectives ----------------------------------------------------------------------------- */

enum coll {
	BROADCAST,
	ALL_GATHER,
	ALL_TO_ALL,
	PERMUTE,
	REDUCE_SCATTER,
	ALL_REDUCE,
	PREMUL,
	REDUCE,
	GATHER,
	SCATTER,
	ALL_GATHER_V,
	ALL_TO_ALL_V,
	COLLS
};

static uint64_t given(const struct calls *c, int pe, size_t i)
{
	return (c->turn << 32) + (uint64_t)pe * 100003 + i;
}

/* Element i of rank me's dst; to[r] is r - 1. */
static uint64_t expected(const struct calls *c, enum coll what, size_t count, size_t i)
{
	size_t mine = (size_t)c->r->pe * count;
	uint64_t sum = 0;

	switch (what) {
	case BROADCAST:
	case ALL_REDUCE: /* of the greatest */
		return given(c, c->r->n - 1, i);
	case PREMUL: /* the scalar of rank r is r + 1 */
		for (int pe = 0; pe < c->r->n; pe++)
			sum += given(c, pe, i) * (uint64_t)(pe + 1);
		return sum;
	case REDUCE: /* of the smallest */
		return c->r->pe ? UINT64_MAX : given(c, 0, i);
	case SCATTER:
		return given(c, 0, mine + i);
	case GATHER:
		return c->r->pe ? UINT64_MAX : given(c, (int)(i / count), i % count);
	case ALL_GATHER:
	case ALL_GATHER_V:
		return given(c, (int)(i / count), i % count);
	case ALL_TO_ALL:
	case ALL_TO_ALL_V:
		return given(c, (int)(i / count), mine + i % count);
	case PERMUTE:
		return c->r->pe + 1 < c->r->n ? given(c, c->r->pe + 1, i) : UINT64_MAX;
	default:
		for (int pe = 0; pe < c->r->n; pe++)
			sum += given(c, pe, mine + i);
		return sum;
	}
}

/* The scalar is in memory of the device, behind what the collective touches. */
static int collect_premul(struct calls *c, size_t count, spmt_stream s)
{
	uint64_t factor = (uint64_t)c->r->pe + 1;
	void *scalar = c->block + CALLS_LARGE - 64;
	spmt_comm *comm = c->r->comm;
	enum spmt_op op;

	CALL(spmt_copy_in(comm, scalar, &factor, 8));
	CALL(spmt_op_premul_create(comm, SPMT_TYPE_U64, count > 5 ? scalar : (void *)&factor,
		count > 5 ? SPMT_SCALAR_DEVICE : SPMT_SCALAR_HOST, &op));
	CALL(spmt_all_reduce(comm, c->block + CALLS_LARGE, c->block, count, SPMT_TYPE_U64, op, s));
	CALL(spmt_op_destroy(comm, op));
	return calls_settle(c, s);
}

static int collect(struct calls *c, enum coll what, size_t count, spmt_stream s)
{
	void *dst = c->block + CALLS_LARGE, *src = c->block;
	const enum spmt_type t = SPMT_TYPE_U64;
	spmt_comm *comm = c->r->comm;
	size_t counts[64], at[64];
	int to[64];

	REQUIRE(c->r->n <= 64);
	if (what == PREMUL)
		return collect_premul(c, count, s);
	for (int pe = 0; pe < c->r->n; pe++) {
		to[pe] = pe - 1;
		counts[pe] = count;
		at[pe] = (size_t)pe * count;
	}
	if (what == BROADCAST)
		CALL(spmt_broadcast(comm, dst, src, count, t, c->r->n - 1, s));
	else if (what == ALL_GATHER)
		CALL(spmt_all_gather(comm, dst, src, count, t, s));
	else if (what == ALL_TO_ALL)
		CALL(spmt_all_to_all(comm, dst, src, count, t, s));
	else if (what == PERMUTE)
		CALL(spmt_permute(comm, dst, src, count, t, to, s));
	else if (what == REDUCE)
		CALL(spmt_reduce(comm, dst, src, count, t, SPMT_OP_MIN, 0, s));
	else if (what == GATHER)
		CALL(spmt_gather(comm, dst, src, count, t, 0, s));
	else if (what == SCATTER)
		CALL(spmt_scatter(comm, dst, src, count, t, 0, s));
	else if (what == ALL_GATHER_V)
		CALL(spmt_all_gather_v(comm, dst, counts, at, src, t, s));
	else if (what == ALL_TO_ALL_V)
		CALL(spmt_all_to_all_v(comm, dst, counts, at, src, counts, at, t, s));
	else if (what == REDUCE_SCATTER)
		CALL(spmt_reduce_scatter(comm, dst, src, count, t, SPMT_OP_SUM, s));
	else
		CALL(spmt_all_reduce(comm, dst, src, count, t, SPMT_OP_MAX, s));
	return calls_settle(c, s);
}

static int collective(struct calls *c, enum coll what, size_t count, spmt_stream s, uint64_t *host)
{
	size_t all = count * (size_t)c->r->n;
	bool blocks = what == ALL_GATHER || what == ALL_TO_ALL || what == GATHER ||
		what == ALL_GATHER_V || what == ALL_TO_ALL_V;
	size_t gets = blocks ? all : count;
	spmt_comm *comm = c->r->comm;

	c->turn++;
	for (size_t i = 0; i < all; i++)
		host[i] = given(c, c->r->pe, i);
	CALL(spmt_copy_in(comm, c->block, host, all * 8));
	TRY(sym_set(comm, c->block + CALLS_LARGE, 0xff, (all + 1) * 8));
	TRY(collect(c, what, count, s));
	CALL(spmt_copy_out(comm, host, c->block + CALLS_LARGE, (all + 1) * 8));
	for (size_t i = 0; i <= gets; i++) {
		uint64_t want = i < gets ? expected(c, what, count, i) : UINT64_MAX;

		if (host[i] != want)
			return ranks_fail("collective %d of %zu: element %zu is %#llx, not %#llx",
				(int)what, count, i, (unsigned long long)host[i],
				(unsigned long long)want);
	}
	return 0;
}

static int collectives(struct calls *c)
{
	uint64_t *host = malloc(((size_t)MOST * (size_t)c->r->n + 1) * 8);
	int rc = 0;

	REQUIRE(host);
	for (enum coll what = BROADCAST; what < COLLS && !rc; what++)
		for (int k = 0; k < 4 && !rc; k++)
			rc = collective(c, what, k & 1 ? MOST : 5, c->streams[k / 2], host);
	free(host);
	return rc;
}

/* ---- the heap, registered buffers, parts ----------------------------------------------------- */

/* A block that is not the same on all ranks would not have the next one's word. */
static int block_works(struct calls *c, void *p)
{
	uint64_t own = ++c->turn * 64 + (uint64_t)c->r->pe;
	spmt_comm *comm = c->r->comm;

	CALL(spmt_barrier(comm));
	CALL(spmt_put(comm, p, &own, 8, c->r->next));
	CALL(spmt_barrier(comm));
	TRY(sym_check_u64(comm, p, calls_pattern(c, c->r->prev)));
	CALL(spmt_free(comm, p));
	return 0;
}

static int heap(struct calls *c)
{
	spmt_comm *comm = c->r->comm;
	void *p;

	CALL(spmt_malloc(comm, 5u << 20, &p));
	TRY(block_works(c, p));
	CALL(spmt_calloc(comm, 100, 20, &p));
	TRY(sym_check_byte(comm, p, 0, 2000));
	TRY(block_works(c, p));
	CALL(spmt_aligned_alloc(comm, 64 << 10, 100, &p));
	REQUIRE_EQ((uintptr_t)p % (64 << 10), 0);
	TRY(block_works(c, p));
	CALL(spmt_free(comm, NULL));
	return 0;
}

/* Of every rank another size, in the heap. */
static int registered(struct calls *c)
{
	struct spmt_mem_view view = { .size = sizeof(view) };
	uint64_t own = ++c->turn, seen = 0;
	spmt_comm *comm = c->r->comm;
	int pe = c->r->pe, next = c->r->next;
	size_t size = 8 * (2 + (size_t)pe);
	spmt_mem *mem;

	CALL(spmt_register(comm, c->block + 64 * pe, size, &mem));
	TRUE(spmt_mem_size(mem, next) == 8 * (2 + (size_t)next));
	TRUE(spmt_mem_ptr(mem, pe) == c->block + 64 * pe);
	TRUE(spmt_mem_ptr(mem, next));
	CALL(spmt_mem_view_get(comm, mem, &view));
	REQUIRE(view.pe == pe && view.npes == c->r->n);
	CALL(spmt_mem_put(comm, mem, size - 8, &own, 8, pe));
	CALL(spmt_barrier(comm));
	CALL(spmt_mem_get(comm, &seen, mem, 8 * (1 + (size_t)next), 8, next));
	REQUIRE_EQ(seen, own);
	CALL(spmt_deregister(comm, mem));
	return 0;
}

/* By each rank for itself. */
static int offered(struct calls *c)
{
	uint64_t own = ++c->turn, seen = 0;
	spmt_comm *comm = c->r->comm;
	int pe = c->r->pe, next = c->r->next;
	spmt_mem *mem, *theirs;

	CALL(spmt_register_local(comm, c->turn, c->block + 64 * pe, 64, &mem));
	CALL(spmt_mem_put(comm, mem, 8, &own, 8, pe));
	CALL(spmt_barrier(comm));
	CALL(spmt_mem_lookup(comm, next, c->turn, &theirs));
	CALL(spmt_mem_get(comm, &seen, theirs, 8, 8, next));
	REQUIRE_EQ(seen, own);
	CALL(spmt_deregister(comm, theirs));
	CALL(spmt_barrier(comm));
	CALL(spmt_deregister(comm, mem));
	return 0;
}

static int part_works(struct calls *c, spmt_comm *part, spmt_stream s)
{
	uint64_t *src = c->words, own = (uint64_t)c->r->pe + 1, want = 0, seen = 0;

	for (int pe = c->r->pe % 2; pe < c->r->n; pe += 2)
		want += (uint64_t)pe + 1;
	CALL(spmt_copy_in(part, src, &own, 8));
	CALL(spmt_all_reduce(part, src + 1, src, 1, SPMT_TYPE_U64, SPMT_OP_SUM, s));
	if (s)
		TRY(calls_settle(c, s));
	else
		CALL(spmt_quiet(part));
	CALL(spmt_copy_out(part, &seen, src + 1, 8));
	REQUIRE_EQ(seen, want);
	CALL(spmt_barrier(part));
	return 0;
}

static int split(struct calls *c)
{
	spmt_comm *comm = c->r->comm, *part;
	int pe = c->r->pe;

	CALL(spmt_split(comm, pe % 2, -pe, &part));
	REQUIRE_EQ(spmt_rank(part), (c->r->n - 1 - pe) / 2);
	for (int s = 0; s < 2; s++)
		TRY(part_works(c, part, c->streams[s]));
	CALL(spmt_finalize(part));
	CALL(spmt_split(comm, SPMT_SPLIT_NONE, 0, &part));
	REQUIRE(!part);
	return 0;
}

/* A part that breaks leaves the rest whole. */
static int broken_part(struct calls *c)
{
	spmt_comm *comm = c->r->comm, *part;
	int rank = -1, n = 0;
	spmt_uid uid;

	CALL(spmt_split(comm, 0, 0, &part));
	CALL(spmt_abort(part, -ECHILD));
	GIVES(-ECHILD, spmt_status(part));
	GIVES(-ECHILD, spmt_barrier(part));
	CALL(spmt_shrink(part, &uid, &rank, &n));
	REQUIRE(rank == c->r->pe && n == c->r->n);
	CALL(spmt_finalize(part));
	CALL(spmt_status(comm));
	CALL(spmt_barrier(comm));
	return 0;
}

/* Everybody's words go on to the next rank, by two blocks, one with packets. */
static int ring_plan(int n, spmt_plan **plan)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "ring",
		.collective = "ring",
		.nranks = n,
		.input_chunks = 2,
		.output_chunks = 2,
		.scratch_chunks = 1 };
	int rc = spmt_plan_create(&attr, plan);

	for (int r = 0; r < n && !rc; r++) {
		int next = (r + 1) % n;

		rc = n > 1 ? spmt_plan_put(*plan, r, 0, spmt_plan_input(r, 0, 1),
				     spmt_plan_output(next, 0, 1))
			   : spmt_plan_copy(*plan, r, 0, spmt_plan_input(r, 0, 1),
				     spmt_plan_output(r, 0, 1));
		if (!rc)
			rc = spmt_plan_put_packets(*plan, r, 1, spmt_plan_input(r, 1, 1),
				spmt_plan_scratch(next, 0, 1));
		if (!rc)
			rc = spmt_plan_unpack_packets(
				*plan, r, 1, spmt_plan_scratch(r, 0, 1), spmt_plan_output(r, 1, 1));
		if (!rc)
			rc = spmt_plan_barrier(*plan, r, 0, 0, 2);
		if (!rc)
			rc = spmt_plan_barrier(*plan, r, 1, 0, 2);
	}
	return rc;
}

static int planned(struct calls *c)
{
	int prev = (c->r->pe + c->r->n - 1) % c->r->n;
	uint64_t *src = c->words, *dst = src + 2, own[2], seen[2] = { 0, 0 };
	spmt_comm *comm = c->r->comm;
	spmt_plan_open *open;
	spmt_plan *plan;

	CALL(ring_plan(c->r->n, &plan));
	CALL(spmt_plan_begin(comm, plan, 16, &open));
	spmt_plan_destroy(plan);
	for (int s = 0; s < 2; s++) {
		for (uint64_t i = 0; i < 2; i++)
			own[i] = (uint64_t)c->r->pe * 100 + (uint64_t)s * 10 + i + 1;
		CALL(spmt_copy_in(comm, src, own, sizeof(own)));
		CALL(spmt_plan_run(
			comm, open, dst, src, 2, SPMT_TYPE_U64, SPMT_OP_SUM, c->streams[s]));
		if (c->streams[s])
			TRY(calls_settle(c, c->streams[s]));
		else
			CALL(spmt_quiet(comm));
		CALL(spmt_copy_out(comm, seen, dst, sizeof(seen)));
		for (uint64_t i = 0; i < 2; i++)
			REQUIRE_EQ(seen[i], (uint64_t)prev * 100 + (uint64_t)s * 10 + i + 1);
	}
	CALL(spmt_plan_end(comm, open));
	return 0;
}

int calls_together(struct calls *c)
{
	TRY(collectives(c));
	TRY(planned(c));
	TRY(heap(c));
	TRY(registered(c));
	TRY(offered(c));
	TRY(split(c));
	return broken_part(c);
}
