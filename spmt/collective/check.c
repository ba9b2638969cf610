/* SPDX-License-Identifier: MIT */
/* What a caller has passed to a collective, looked at before anything is queued. */
#include <errno.h>

#include "call.h"
#include "spmt/calls/keyed.h"
#include "spmt/calls/rma.h"
#include "src/base/names.h"
#include "src/base/status.h"

static bool is_float(enum spmt_type type)
{
	return type >= SPMT_TYPE_F16; /* f8 are behind them */
}

/* If both buffers hold the same bytes at the same place, each byte is read before it is written. */
static bool coll_in_place(const spmt_comm *comm, const struct coll_call *c, uint64_t part)
{
	uintptr_t own = (uintptr_t)comm->rank * part;

	return coll_kinds[c->kind].in_place &&
		(uintptr_t)c->dst + (c->moves.dst_blocks ? own : 0) ==
		(uintptr_t)c->src + (c->moves.src_blocks ? own : 0);
}

static bool coll_overlaps(const spmt_comm *comm, const struct coll_call *c)
{
	uintptr_t dst = (uintptr_t)c->dst, src = (uintptr_t)c->src;
	uint64_t part = c->count * type_size(c->type);

	if (c->unread || c->unwritten)
		return false;
	return (dst - src < part * c->src_blocks || src - dst < part * c->dst_blocks) &&
		!coll_in_place(comm, c, part);
}

static int coll_range(
	const spmt_comm *comm, const char *what, const char *name, const void *at, uint64_t bytes)
{
	int rc = local_check(comm, what, name, at, bytes);

	return rc || !comm->lane_area ? rc : keyed_range(comm, what, name, at, bytes);
}

static int coll_ranges(const spmt_comm *comm, const struct coll_call *c)
{
	uint64_t part = c->count * type_size(c->type);
	int rc = 0;

	if (!c->count)
		return 0;
	if (!c->unwritten)
		rc = coll_range(comm, c->what, "dst", c->dst, part * c->dst_blocks);
	if (rc || c->unread)
		return rc;
	return coll_range(comm, c->what, "src", c->src, part * c->src_blocks);
}

int coll_check(const spmt_comm *comm, const struct coll_call *c)
{
	uint64_t bytes, blocks = MAX_OF(c->src_blocks, c->dst_blocks);

	if (!type_size(c->type))
		return fail_call(
			-EINVAL, c->what, "rank %d: unknown type %d", comm->rank, (int)c->type);
	if (c->op >= SPMT_OP_AND && c->op <= SPMT_OP_XOR && is_float(c->type))
		return fail_call(-EINVAL, c->what,
			"rank %d: type %s, op %s: and, or, xor are for integers", comm->rank,
			type_name(c->type), op_name((uint64_t)c->op));
	if (__builtin_mul_overflow(c->count, type_size(c->type), &bytes) ||
		__builtin_mul_overflow(bytes, blocks, &bytes))
		return fail_call(-EINVAL, c->what, "rank %d: count %zu wraps the address space",
			comm->rank, c->count);
	if (c->count && ((!c->dst && !c->unwritten) || (!c->src && !c->unread)))
		return fail_call(-EINVAL, c->what, "rank %d: %s is NULL with count %zu", comm->rank,
			c->dst || c->unwritten ? "src" : "dst", c->count);
	if (((c->unwritten ? 0 : (uintptr_t)c->dst) | (c->unread ? 0 : (uintptr_t)c->src)) %
		type_size(c->type))
		return fail_call(-EINVAL, c->what,
			"rank %d: dst %p or src %p is not aligned to its type (%zu bytes)",
			comm->rank, c->dst, c->src, type_size(c->type));
	if (coll_overlaps(comm, c))
		return fail_call(-EINVAL, c->what,
			"rank %d: dst %p and src %p overlap with count %zu", comm->rank, c->dst,
			c->src, c->count);
	return coll_ranges(comm, c);
}

int coll_root(const spmt_comm *comm, const struct coll_call *c)
{
	if (comm_has_pe(comm, c->root))
		return 0;
	return fail_call(-EINVAL, c->what, "rank %d: root %d is not in 0 .. %d", comm->rank,
		c->root, comm->nranks - 1);
}
