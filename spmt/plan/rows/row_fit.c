/* SPDX-License-Identifier: MIT */
#include "row_fit.h"

#include <stdio.h>

#include "src/base/names.h"

uint64_t row_input_bytes(const struct coll_plan *p, const struct coll_planned *c)
{
	uint64_t blocks = coll_kinds[p->kind].src_blocks ? (uint64_t)p->open.attr.nranks : 1;

	return blocks * c->count * type_size(c->type);
}

size_t row_grain(const struct coll_plan *p, const struct coll_planned *c)
{
	return p->parts * (p->open.packets ? MAX_OF(8 / type_size(c->type), 1u) : 1);
}

/* Elements of each block that pass through the stage at once; a plan runs on a multiple of its grain. */
static uint64_t row_stage(
	const spmt_comm *comm, const struct coll_plan *p, const struct coll_planned *c)
{
	const struct coll_kind *k = &coll_kinds[p->kind];
	uint64_t blocks = k->src_blocks || k->dst_blocks ? (uint64_t)comm->nranks : 1;

	return comm->stage ? comm->stage_size / (blocks * type_size(c->type)) : UINT64_MAX;
}

enum row_misfit row_misfit(
	const spmt_comm *comm, const struct coll_plan *p, const struct coll_planned *c)
{
	uint64_t bytes = row_input_bytes(p, c);
	bool folds = coll_kinds[p->kind].folds;

	if (comm->far.map)
		return ROW_FAR;
	if (folds && (unsigned)c->type > SPMT_TYPE_F64)
		return ROW_TYPE;
	if (folds && (unsigned)c->op > SPMT_OP_XOR)
		return ROW_OP;
	if (bytes < p->open.attr.min_bytes || bytes > p->most)
		return ROW_BYTES;
	if (c->count % row_grain(p, c))
		return ROW_COUNT;
	return row_stage(comm, p, c) < row_grain(p, c) ? ROW_STAGE : ROW_FITS;
}

void row_misfit_words(const spmt_comm *comm, const struct coll_plan *p,
	const struct coll_planned *c, char *why, size_t room)
{
	switch (row_misfit(comm, p, c)) {
	case ROW_FAR:
		snprintf(why, room, "rank %d's kernels do not reach rank %d", comm->far.rank,
			comm->far.peer);
		break;
	case ROW_TYPE:
		snprintf(why, room, "type %s is none of a plan's", type_name(c->type));
		break;
	case ROW_OP:
		snprintf(why, room, "op %s is none of a plan's", op_name(c->op));
		break;
	case ROW_BYTES:
		snprintf(why, room, "%llu bytes are not in %llu .. %llu",
			(unsigned long long)row_input_bytes(p, c),
			(unsigned long long)p->open.attr.min_bytes, (unsigned long long)p->most);
		break;
	case ROW_COUNT:
		snprintf(
			why, room, "count %zu is not a multiple of %zu", c->count, row_grain(p, c));
		break;
	case ROW_STAGE:
		snprintf(why, room, "%zu of %s at once are more than its %llu bytes of stage take",
			row_grain(p, c), type_name(c->type), (unsigned long long)comm->stage_size);
		break;
	case ROW_FITS:
	default:
		break;
	}
}
