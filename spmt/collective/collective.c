/* SPDX-License-Identifier: MIT */
/*
 * Collectives: checked here, then one kernel on every rank's stream. What the ranks passed is
 * put into a key that the kernels compare before they move anything.
 */
#include <errno.h>

#include "call.h"
#include "engine.h"
#include "far.h"
#include "op.h"
#include "spmt/calls/keyed.h"
#include "spmt/calls/view.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/record.h"
#include "spmt/control/coll_key.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "spmt/proxy/fifo.h"
#include "src/base/mem.h"
#include "src/base/names.h"
#include "src/base/status.h"
#include "src/kernels/area_words.h"
#include "src/kernels/kernels.h"

#define COLL_STAGE_GRAIN (16u << 10) /* bytes for each thread block of a stage */

static uint64_t call_key(const struct coll_call *c)
{
	return coll_key(&(struct coll_same){ .kind = c->kind,
		.type = (int)c->type,
		.op = c->op,
		.root = c->root,
		.count = c->count,
		.to = c->to });
}

/* A capture is replayed when no host meets. */
static int coll_row(spmt_comm *comm, const struct coll_call *c, bool captured)
{
	bool apart, meets = engine_fits(comm, &apart, NULL) && !captured;

	return coll_choose(&(struct coll_case){ .kind = c->kind,
		.on_cpu = comm_cpu_access(comm),
		.bytes = c->count * type_size(c->type),
		.room = comm->slot_room,
		.wanted = comm->coll_wanted,
		.factors = c->op == COLL_PREMUL,
		.whole = coll_whole_units(comm),
		.sums = coll_sums((int)c->type, c->op, comm->nranks),
		.staged = comm->push_at != 0,
		.engines = coll_copies(comm),
		.meets = meets,
		.apart = meets && apart,
		.ranks = comm->nranks });
}

/* All but the view, what is told, and how it is divided. */
static struct kernel_collective_args coll_args(
	const spmt_comm *comm, const struct coll_call *c, uint64_t key, int part)
{
	return (struct kernel_collective_args){
		.dst = (uint64_t)(uintptr_t)c->dst,
		.src = (uint64_t)(uintptr_t)c->src,
		.bytes = c->count * type_size(c->type),
		.key = key,
		.algorithm = c->row,
		.type = (int)c->type,
		.op = c->op,
		.factor = c->factor,
		.moves = c->moves,
		.room = comm->slot_room,
		.places = coll_places(comm->nranks),
		.part = part,
		.words = comm->lane ? AREA_LANE_BLOCKS : AREA_BLOCKS,
	};
}

static struct coll_planned coll_as_planned(const struct coll_call *c, uint64_t key, int part)
{
	return (struct coll_planned){ .what = c->what,
		.kind = c->kind,
		.dst = c->dst,
		.src = c->src,
		.count = c->count,
		.type = c->type,
		.op = (enum spmt_op)c->op,
		.key = key,
		.part = part };
}

static int coll_plan_for(spmt_comm *comm, struct coll_call *c)
{
	const struct coll_planned call = coll_as_planned(c, 0, 0);

	return comm->plans ? comm->plans->choose(comm, &call, &c->plan) : 0;
}

/* A part of a call has a multiple of so many elements. */
static uint64_t coll_grain(const spmt_comm *comm, const struct coll_call *c)
{
	const struct coll_planned call = coll_as_planned(c, 0, 0);

	return c->plan ? comm->plans->grain(c->plan, &call) : 1;
}

static int coll_kernel(spmt_comm *comm, const struct coll_call *c, uint64_t key, int part,
	struct coll_in_stream *in)
{
	struct kernel_collective_args args;
	uint64_t blocks = coll_rows[c->row].way == COLL_BY_SLOTS
		? (uint64_t)comm->nranks
		: MAX_OF(c->src_blocks, c->dst_blocks);
	const uint64_t ranks = (uint64_t)comm->nranks;
	bool parts = c->row == COLL_ROW_ll12 && c->kind == COLL_ALL_REDUCE;
	const struct kernel *kernel;
	struct kernel_grid grid;
	int rc;

	if (c->plan) {
		const struct coll_planned planned = coll_as_planned(c, key, part);

		return comm->plans->queue(comm, c->plan, &planned, in);
	}
	args = coll_args(comm, c, key, part);
	args.report = coll_report(comm);
	args.captured = in->reserved.captured;
	if (c->row == COLL_ROW_copy)
		args.fifo = fifo_device(comm->fifo);
	args.places.stage = comm->push_at;
	args.places.piece = coll_piece(comm->nranks);
	view_fill(comm, &args.view);
	grid = coll_shape(comm, c->row, c->moves.folds,
		parts ? (args.bytes + ranks - 1) / ranks : args.bytes, blocks);
	args.share = coll_share(args.bytes, comm->nranks, grid.blocks, grid.threads);
	args.brief = coll_brief(&args, comm->nranks, grid.threads);
	kernel = kernel_of_collective(&args);
	args.alone = coll_is_alone(comm, kernel);
	rc = kernel_queue_grid(comm, kernel, &args, sizeof(args), grid, in->stream);
	in->queued |= !rc;
	in->met |= !rc;
	return rc;
}

/* One part of a staged collective: elements [from, from + call.count) of every block. */
struct coll_part {
	struct coll_call call;
	uint64_t from;
	int nth;
};

/* A kernel copies, because it stops after a failure; dst and src as in the call. */
static int coll_stage(spmt_comm *comm, const struct coll_call *whole, const struct coll_part *part,
	bool out, struct coll_in_stream *in)
{
	uint64_t size = type_size(whole->type), bytes = part->call.count * size;
	/* as numbers: of a rank that only gives or gets the other may be NULL */
	uint64_t src = (uint64_t)(uintptr_t)whole->src + part->from * size;
	uint64_t dst = (uint64_t)(uintptr_t)whole->dst + part->from * size;
	struct kernel_stage_args args = {
		.dst = out ? dst : (uint64_t)(uintptr_t)comm->stage,
		.dst_step = out ? whole->count * size : bytes,
		.src = out ? (uint64_t)(uintptr_t)part->call.dst : src,
		.src_step = out ? bytes : whole->count * size,
		.blocks = out ? whole->dst_blocks : whole->src_blocks,
		.bytes = bytes,
		.behind = out || part->nth,
	};
	int rc;

	view_fill(comm, &args.view);
	rc = kernel_queue_wide(comm, &kernel_stage, &args, sizeof(args),
		coll_grid(comm, bytes * args.blocks, COLL_STAGE_GRAIN, COLL_BLOCKS), in->stream);
	in->queued |= !rc;
	return rc;
}

static int coll_part(spmt_comm *comm, const struct coll_call *whole, const struct coll_part *part,
	struct coll_in_stream *in)
{
	int rc = whole->moves.tos ? coll_stage(comm, whole, part, false, in) : 0;

	if (!rc)
		rc = coll_kernel(comm, &part->call, call_key(whole), part->nth, in);
	return rc || !whole->moves.froms ? rc : coll_stage(comm, whole, part, true, in);
}

/*
 * Ranks of other processes reach this rank's heap and nothing else, so what is to be moved passes
 * through the heap, in parts that all ranks cut alike.
 */
static int coll_staged(spmt_comm *comm, const struct coll_call *c, struct coll_in_stream *in)
{
	uint64_t most =
		comm->stage_size / (MAX_OF(c->src_blocks, c->dst_blocks) * type_size(c->type));
	struct coll_part part = { .call = *c };
	int rc = 0;

	most -= most % coll_grain(comm, c); /* a plan whose grain is more does not fit */
	if (!most)
		return fail_call(SPMT_ERR_UNSUPPORTED, c->what,
			"rank %d: %d ranks in several processes are too many", comm->rank,
			comm->nranks);
	part.call.src = comm->stage;
	part.call.dst = comm->stage + (c->kind == COLL_EXCHANGE ? 0 : comm->stage_size);
	for (; !rc && (part.from < c->count || !part.nth); part.from += most, part.nth++) {
		part.call.count = MIN_OF(most, c->count - part.from);
		part.call.row = coll_row(comm, &part.call, in->reserved.captured);
		rc = coll_part(comm, c, &part, in);
	}
	/* The others have met this rank and would take its part as complete. */
	if (rc && in->met)
		comm_break_last(comm, rc);
	return rc;
}

int coll_far(spmt_comm *comm, const struct far_call *call, struct coll_in_stream *in)
{
	int rc;

	if (in->reserved.captured) {
		mem_free(call->spans);
		return fail_rank(SPMT_ERR_UNSUPPORTED, comm->rank,
			"a collective between nodes cannot be captured into a graph");
	}
	rc = far_queue(comm, call, in->stream);
	in->queued = !rc;
	return rc;
}

static int coll_moved(spmt_comm *comm, const struct coll_call *c, struct coll_in_stream *in)
{
	const struct far_call call = { .what = c->what,
		.dst = c->dst,
		.src = c->src,
		.count = c->count,
		.size = type_size(c->type),
		.type = (int)c->type,
		.op = c->op,
		.factor = c->factor,
		.key = call_key(c),
		.moves = c->moves,
		.kind = c->kind,
		.root = c->root };

	return coll_far(comm, &call, in);
}

static int coll_by_engines(spmt_comm *comm, const struct coll_call *c, struct coll_in_stream *in)
{
	const struct engine_call call = { .what = c->what,
		.kind = c->kind,
		.dst = c->dst,
		.src = c->src,
		.bytes = c->count * type_size(c->type),
		.key = in->key,
		.moves = c->moves };
	int rc = engine_queue(comm, &call, in->stream);

	in->queued |= !rc;
	return rc;
}

/* By kernels, or by none. */
static int coll_launch(spmt_comm *comm, struct coll_call *c, struct coll_in_stream *in)
{
	c->row = coll_row(comm, c, in->reserved.captured);
	in->key = call_key(c);
	if (coll_rows[c->row].way == COLL_BY_ENGINES && !c->plan)
		return coll_by_engines(comm, c, in);
	return comm->stage && (c->plan || coll_rows[c->row].way == COLL_AT_PEERS)
		? coll_staged(comm, c, in)
		: coll_kernel(comm, c, in->key | (comm->lane ? COLL_KEY_BREAKS : 0), 0, in);
}

static int coll_queue(spmt_comm *comm, struct coll_call *c, device_stream stream)
{
	HOLD_DEVICE(comm);
	struct coll_in_stream in;
	int rc = coll_begin(comm, stream, &in);

	if (rc)
		return rc;
	rc = comm->far.map ? coll_moved(comm, c, &in) : coll_launch(comm, c, &in);
	coll_end(comm, &in);
	return rc;
}

/* A lane has no slots, so that the choice is one that works at peers. */
static int coll_keyed(spmt_comm *comm, struct coll_call *c, spmt_stream stream)
{
	struct kernel_collective_args args;

	c->row = coll_row(comm, c, false);
	args = coll_args(comm, c, call_key(c), 0);
	args.share = coll_share(args.bytes, comm->nranks, 1, 1);
	return keyed_collective(comm, c->what, &args, stream);
}

__attribute__((cold)) static void coll_trace(spmt_comm *comm, const struct coll_call *c)
{
	enum coll_among among = coll_kinds[c->kind].among;
	int peer = among == COLL_ONE_TO_ONE ? c->target : among == COLL_ALL_TO_EACH ? -1 : c->root;

	trace_peer(peer, c->count * type_size(c->type));
	trace_algorithm(comm->far.map ? "movers"
			: c->plan     ? "plan"
				      : coll_rows[coll_row(comm, c, false)].name);
}

static int coll_held(spmt_comm *comm, struct coll_call *c, spmt_stream stream)
{
	LANE_HOLD(comm);

	return comm_failed(comm, c->what, coll_queue(comm, c, stream_of(comm, stream)));
}

/* Checks the table, finds who sends here, and folds it, so that a rank with another table is
   detected. */
static int coll_permuted(const spmt_comm *comm, struct coll_call *c)
{
	const char *what = c->what;
	const int *to = c->table;

	if (!to)
		return fail_call(-EINVAL, what, "rank %d: to is NULL", comm->rank);
	c->root = -1;
	c->to = 1;
	for (int i = 0; i < comm->nranks; i++) {
		if (to[i] != -1 && !comm_has_pe(comm, to[i]))
			return fail_call(-EINVAL, what,
				"rank %d: to[%d] is %d, neither -1 nor a rank below %d", comm->rank,
				i, to[i], comm->nranks);
		for (int j = 0; j < i && to[i] != -1; j++)
			if (to[j] == to[i])
				return fail_call(-EINVAL, what,
					"rank %d: to[%d] and to[%d] both name rank %d", comm->rank,
					j, i, to[i]);
		if (to[i] == comm->rank)
			c->root = i;
		c->to = coll_fold(c->to, (uint64_t)(int64_t)to[i]);
	}
	c->target = to[comm->rank];
	return 0;
}

/* Which of the caller's buffers count on this rank. */
static int coll_rooted(const spmt_comm *comm, struct coll_call *c, enum coll_among among)
{
	int rc = coll_root(comm, c);

	if (rc || comm->rank == c->root)
		return rc;
	c->unread = among == COLL_ROOT_TO_ALL;
	c->unwritten = among == COLL_ALL_TO_ROOT;
	if (c->unwritten)
		c->dst = NULL;
	else if (c->kind == COLL_SCATTER)
		c->src = NULL;
	else if (!c->src)
		c->src = c->dst;
	return 0;
}

static int coll_sides(const spmt_comm *comm, struct coll_call *c)
{
	enum coll_among among = coll_kinds[c->kind].among;

	if (among == COLL_ONE_TO_ONE)
		return coll_permuted(comm, c);
	return among == COLL_ALL_TO_EACH ? 0 : coll_rooted(comm, c, among);
}

/* What the caller has passed is as it has to be, and c->moves and what follows there is made of it. */
static int coll_make(spmt_comm *comm, struct coll_call *c)
{
	int rc = coll_sides(comm, c);

	if (rc)
		return rc;
	c->moves = coll_moves(c->kind, comm->rank, comm->nranks, c->root, c->target);
	c->src_blocks = c->moves.src_blocks ? (uint64_t)comm->nranks : 1;
	c->dst_blocks = c->moves.dst_blocks ? (uint64_t)comm->nranks : 1;
	rc = op_use(comm, c->what, c->type, &c->op, &c->factor);
	if (!rc)
		rc = coll_check(comm, c);
	if (!rc)
		rc = coll_plan_for(comm, c);
	if (!rc && object_is_traced(&comm->head))
		coll_trace(comm, c);
	if (!rc && (comm->lane || !comm->stage))
		rc = view_whole(comm, c->what);
	return rc;
}

static int coll_run(spmt_comm *comm, struct coll_call *c, spmt_stream stream)
{
	int rc = comm_begin_lane(comm, c->what);

	if (rc)
		return rc;
	rc = coll_make(comm, c);
	if (!rc)
		rc = comm_is_keyed(comm) ? coll_keyed(comm, c, stream) : coll_held(comm, c, stream);
	comm_end_lane(comm);
	return rc;
}

int spmt_broadcast(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	int root, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_broadcast", COLL_BROADCAST, dst, src, count, type, SPMT_OP_SUM,
		.root = root };

	return coll_run(comm, &c, stream);
}

int spmt_gather(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	int root, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_gather", COLL_GATHER, dst, src, count, type, SPMT_OP_SUM,
		.root = root };

	return coll_run(comm, &c, stream);
}

int spmt_reduce(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	enum spmt_op op, int root, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_reduce", COLL_REDUCE, dst, src, count, type, (int)op,
		.root = root };

	return coll_run(comm, &c, stream);
}

int spmt_scatter(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	int root, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_scatter", COLL_SCATTER, dst, src, count, type, SPMT_OP_SUM,
		.root = root };

	return coll_run(comm, &c, stream);
}

int spmt_all_gather(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_all_gather", COLL_ALL_GATHER, dst, src, count, type,
		SPMT_OP_SUM };

	return coll_run(comm, &c, stream);
}

int spmt_all_to_all(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_all_to_all",
		dst == src && count ? COLL_EXCHANGE : COLL_ALL_TO_ALL, dst, src, count, type,
		SPMT_OP_SUM };

	return coll_run(comm, &c, stream);
}

int spmt_permute(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	const int *to, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_permute", COLL_PERMUTE, dst, src, count, type, SPMT_OP_SUM,
		.table = to };

	return coll_run(comm, &c, stream);
}

int spmt_reduce_scatter(spmt_comm *comm, void *dst, const void *src, size_t count,
	enum spmt_type type, enum spmt_op op, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_reduce_scatter", COLL_REDUCE_SCATTER, dst, src, count, type,
		(int)op };

	return coll_run(comm, &c, stream);
}

int spmt_all_reduce(spmt_comm *comm, void *dst, const void *src, size_t count, enum spmt_type type,
	enum spmt_op op, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct coll_call c = { "spmt_all_reduce", COLL_ALL_REDUCE, dst, src, count, type, (int)op };

	return coll_run(comm, &c, stream);
}
