/* SPDX-License-Identifier: MIT */
/* Collectives in which each pair of ranks has a count of its own: checked here, then one kernel for every COLL_SPANS ranks. */
#include <errno.h>

#include "collective.h"
#include "far.h"
#include "spmt/calls/rma.h"
#include "spmt/calls/view.h"
#include "spmt/comm/comm.h"
#include "spmt/control/coll_key.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "src/base/mem.h"
#include "src/base/names.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"

#define VARIED_GRAIN (16u << 10)       /* bytes for each thread block */
#define VARIED_MOST ((1ull << 54) - 1) /* elements: what a key has room for */

/* One buffer as a call names it: of each rank how many elements, and where they begin. */
struct varied_side {
	const char *name, *counts_name, *offsets_name;
	uintptr_t at;
	const size_t *counts, *offsets;
};

struct varied {
	const char *what;
	enum kernel_collective_kind kind;
	enum spmt_type type;
	struct varied_side dst, src; /* of an all_gather src has neither counts nor offsets: */
	uint64_t given;		     /* to each, from the beginning */
};

static uint64_t src_count(const struct varied *c, int pe)
{
	return c->src.counts ? c->src.counts[pe] : c->given;
}

static uint64_t src_offset(const struct varied *c, int pe)
{
	return c->src.counts ? c->src.offsets[pe] : 0;
}

/* ---- what is wrong ------------------------------------------------------------------------------- */

static int varied_given(const spmt_comm *comm, const char *what, const struct varied_side *side)
{
	if (side->counts && side->offsets)
		return 0;
	return fail_call(-EINVAL, what, "rank %d: %s is NULL", comm->rank,
		side->counts ? side->offsets_name : side->counts_name);
}

/* [offset, offset + count) elements of a buffer; pe: whose they are, for words. */
static int varied_range(const spmt_comm *comm, const struct varied *c,
	const struct varied_side *side, int pe, const size_t range[2])
{
	size_t size = type_size(c->type), offset = range[0], count = range[1], at, end;

	if (!count)
		return 0;
	if (!side->at)
		return fail_call(-EINVAL, c->what, "rank %d: %s is NULL with count %zu for rank %d",
			comm->rank, side->name, count, pe);
	if (count > VARIED_MOST || __builtin_add_overflow(offset, count, &end) ||
		__builtin_mul_overflow(end, size, &end) ||
		__builtin_add_overflow(side->at, end, &end))
		return fail_call(-EINVAL, c->what,
			"rank %d: %s: count %zu at offset %zu for rank %d wraps the address space",
			comm->rank, side->name, count, offset, pe);
	at = side->at + offset * size;
	return local_check(comm, c->what, side->name, (const void *)at,
		count * size); /* NOLINT(performance-no-int-to-ptr) */
}

static int varied_side_check(
	const spmt_comm *comm, const struct varied *c, const struct varied_side *side)
{
	int rc = 0;

	if (side->at % type_size(c->type))
		return fail_call(-EINVAL, c->what,
			"rank %d: %s %#zx is not aligned to its type (%zu bytes)", comm->rank,
			side->name, (size_t)side->at, type_size(c->type));
	for (int pe = 0; !rc && side->counts && pe < comm->nranks; pe++)
		rc = varied_range(comm, c, side, pe,
			(const size_t[2]){ side->offsets[pe], side->counts[pe] });
	return rc;
}

/* From where to where the elements lie, as addresses; rising: one after the other, as most calls have them. */
struct varied_box {
	uintptr_t from, to;
	bool rising;
};

static struct varied_box varied_box(
	const spmt_comm *comm, const struct varied *c, const struct varied_side *side)
{
	struct varied_box box = { UINTPTR_MAX, 0, true };
	size_t size = type_size(c->type);

	for (int pe = 0; pe < comm->nranks; pe++) {
		uintptr_t at = side->at + (side->offsets ? side->offsets[pe] * size : 0);
		uint64_t count = side->counts ? side->counts[pe] : c->given;

		if (!count)
			continue;
		box.rising &= at >= box.to;
		box.from = MIN_OF(box.from, at);
		box.to = MAX_OF(box.to, at + count * size);
	}
	return box;
}

static bool ranges_meet(size_t a, size_t na, size_t b, size_t nb)
{
	return na && nb && a < b + nb && b < a + na;
}

/* Where ranges do not rise: each with each. */
static int varied_apart(const spmt_comm *comm, const struct varied *c)
{
	const size_t *at = c->dst.offsets, *n = c->dst.counts;

	for (int i = 0; i < comm->nranks; i++)
		for (int j = 0; j < i; j++)
			if (ranges_meet(at[i], n[i], at[j], n[j]))
				return fail_call(-EINVAL, c->what,
					"rank %d: what comes from rank %d and from rank %d overlaps in dst",
					comm->rank, j, i);
	return 0;
}

static int varied_overlap(const spmt_comm *comm, const struct varied *c, int i, int j)
{
	return fail_call(-EINVAL, c->what,
		"rank %d: what comes from rank %d to dst and what goes from src to rank %d overlap",
		comm->rank, i, j);
}

/* What this rank gives may be its own part of an all_gather's dst. */
static int varied_buffers_apart(const spmt_comm *comm, const struct varied *c)
{
	size_t size = type_size(c->type);
	int targets = c->src.counts ? comm->nranks : 1;

	for (int i = 0; i < comm->nranks; i++)
		for (int j = 0; j < targets; j++) {
			uintptr_t dst = c->dst.at + c->dst.offsets[i] * size;
			uintptr_t src = c->src.at + src_offset(c, j) * size;

			if (!c->src.counts && i == comm->rank && dst == src)
				continue;
			if (ranges_meet(dst, c->dst.counts[i] * size, src, src_count(c, j) * size))
				return varied_overlap(comm, c, i, j);
		}
	return 0;
}

static int varied_check(const spmt_comm *comm, struct varied *c)
{
	struct varied_box dst, src;
	int rc;

	if (!type_size(c->type))
		return fail_call(
			-EINVAL, c->what, "rank %d: unknown type %d", comm->rank, (int)c->type);
	rc = varied_side_check(comm, c, &c->dst);
	if (!rc)
		rc = varied_side_check(comm, c, &c->src);
	if (!rc && !c->src.counts)
		rc = varied_range(comm, c, &c->src, comm->rank, (const size_t[2]){ 0, c->given });
	if (rc)
		return rc;
	if (src_count(c, comm->rank) != c->dst.counts[comm->rank])
		return fail_call(-EINVAL, c->what,
			"rank %d: %zu elements go to itself, %zu come from itself", comm->rank,
			(size_t)src_count(c, comm->rank), c->dst.counts[comm->rank]);
	dst = varied_box(comm, c, &c->dst);
	src = varied_box(comm, c, &c->src);
	if (!dst.rising)
		rc = varied_apart(comm, c);
	if (!rc && dst.from < src.to && src.from < dst.to)
		rc = varied_buffers_apart(comm, c);
	return rc;
}

/* ---- what is queued ------------------------------------------------------------------------------ */

/* The ranks from `first` on. */
static void varied_spans(const spmt_comm *comm, const struct varied *c, int first,
	struct kernel_collective_v_args *args)
{
	args->first = first;
	args->spans = MIN_OF(comm->nranks - first, COLL_SPANS);
	for (int i = 0; i < args->spans; i++) {
		int to = (comm->rank + first + i) % comm->nranks;
		int from = (comm->rank + comm->nranks - first - i) % comm->nranks;

		args->span[i] = (struct coll_span){ .src_at = src_offset(c, to),
			.src_count = src_count(c, to),
			.dst_at = c->dst.offsets[from],
			.dst_count = c->dst.counts[from] };
		if (!args->span[i].dst_count)
			args->span[i].dst_at = 0;
		if (!args->span[i].src_count)
			args->span[i].src_at = 0;
	}
}

/* Both halves of the stage, since what comes needs none. */
static void varied_stage(const spmt_comm *comm, struct kernel_collective_v_args *args)
{
	uint64_t parts = args->same.moves.src_blocks ? (uint64_t)args->spans : 1;

	args->stage = (uint64_t)(uintptr_t)comm->stage;
	args->room = 2 * comm->stage_size / parts / 16 * 16;
}

static int varied_kernel(
	spmt_comm *comm, const struct varied *c, int first, struct coll_in_stream *in)
{
	struct kernel_collective_v_args args = { .size = type_size(c->type),
		.same = { .dst = c->dst.at,
			.src = c->src.at,
			.report = coll_report(comm),
			.type = (int)c->type,
			.moves = coll_moves(c->kind, comm->rank, comm->nranks, 0, 0),
			.room = comm->slot_room,
			.places = coll_places(comm->nranks) } };
	uint64_t gives = 0, gets = 0;
	int rc;

	args.same.key = coll_key(&(struct coll_same){ .kind = c->kind, .type = (int)c->type });
	view_fill(comm, &args.same.view);
	varied_spans(comm, c, first, &args);
	if (comm->stage)
		varied_stage(comm, &args);
	for (int i = 0; i < args.spans; i++) {
		gives += args.span[i].src_count * args.size;
		gets += args.span[i].dst_count * args.size;
	}
	rc = kernel_queue_wide(comm, &kernel_collective_v, &args, sizeof(args),
		coll_grid(comm, MAX_OF(gives, gets), VARIED_GRAIN, COLL_BLOCKS), in->stream);
	in->queued |= !rc;
	in->met |= !rc;
	return rc;
}

static int varied_kernels(spmt_comm *comm, const struct varied *c, struct coll_in_stream *in)
{
	int rc = 0;

	for (int first = 0; !rc && first < comm->nranks; first += COLL_SPANS)
		rc = varied_kernel(comm, c, first, in);
	/* The others have met this rank and would take what has come as all. */
	if (rc && in->met)
		comm_break_last(comm, rc);
	return rc;
}

static int varied_moved(spmt_comm *comm, const struct varied *c, struct coll_in_stream *in)
{
	struct far_call call = { .what = c->what,
		.dst = (void *)c->dst.at,	/* NOLINT(performance-no-int-to-ptr) */
		.src = (const void *)c->src.at, /* NOLINT(performance-no-int-to-ptr) */
		.size = type_size(c->type),
		.type = (int)c->type,
		.kind = c->kind,
		.varied = true,
		.spans = mem_calloc((size_t)comm->nranks, sizeof(*call.spans)) };

	if (!call.spans)
		return fail_rank(-ENOMEM, comm->rank, "out of memory for the counts of %d ranks",
			comm->nranks);
	for (int pe = 0; pe < comm->nranks; pe++)
		call.spans[pe] = (struct far_span){ .src_at = src_offset(c, pe),
			.src_count = src_count(c, pe),
			.dst_at = c->dst.offsets[pe],
			.dst_count = c->dst.counts[pe] };
	return coll_far(comm, &call, in);
}

static int varied_queue(spmt_comm *comm, struct varied *c, spmt_stream stream)
{
	struct coll_in_stream in;
	int rc = varied_check(comm, c);

	if (!rc && object_is_traced(&comm->head)) {
		trace_peer(-1, src_count(c, comm->rank) * type_size(c->type));
		trace_algorithm("varied");
	}
	if (!rc && !comm->stage)
		rc = view_whole(comm, c->what);
	if (!rc)
		rc = coll_begin(comm, stream_of(comm, stream), &in);
	if (rc)
		return rc;
	rc = comm->far.map ? varied_moved(comm, c, &in) : varied_kernels(comm, c, &in);
	coll_end(comm, &in);
	return rc;
}

static int varied_run(spmt_comm *comm, struct varied *c, spmt_stream stream)
{
	int rc = comm_begin(comm, c->what);

	if (rc)
		return rc;
	rc = varied_given(comm, c->what, &c->dst);
	if (!rc && c->kind == COLL_ALL_GATHER_V)
		c->given = c->dst.counts[comm->rank];
	else if (!rc)
		rc = varied_given(comm, c->what, &c->src);
	if (!rc)
		rc = varied_queue(comm, c, stream);
	rc = comm_failed(comm, c->what, rc);
	comm_unclaim(comm);
	return rc;
}

int spmt_all_gather_v(spmt_comm *comm, void *dst, const size_t *counts, const size_t *offsets,
	const void *src, enum spmt_type type, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct varied c = { "spmt_all_gather_v", COLL_ALL_GATHER_V, type,
		.dst = { "dst", "counts", "offsets", (uintptr_t)dst, counts, offsets },
		.src = { .name = "src", .at = (uintptr_t)src } };

	return varied_run(comm, &c, stream);
}

int spmt_all_to_all_v(spmt_comm *comm, void *dst, const size_t *dst_counts,
	const size_t *dst_offsets, const void *src, const size_t *src_counts,
	const size_t *src_offsets, enum spmt_type type, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct varied c = { "spmt_all_to_all_v", COLL_ALL_TO_ALL_V, type,
		.dst = { "dst", "dst_counts", "dst_offsets", (uintptr_t)dst, dst_counts,
			dst_offsets },
		.src = { "src", "src_counts", "src_offsets", (uintptr_t)src, src_counts,
			src_offsets } };

	return varied_run(comm, &c, stream);
}
