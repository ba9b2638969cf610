/* SPDX-License-Identifier: MIT */
#include "op.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "spmt/calls/keyed.h"
#include "spmt/calls/rma.h"
#include "spmt/control/exclusive.h"
#include "src/base/mem.h"
#include "src/base/names.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define OP_PLACES 256
_Static_assert(COLL_PREMUL == SPMT_OP_AVG + 1, "behind the ops that there are");

struct comm_op {
	struct coll_factor factor;
	enum spmt_type type;
	_Atomic uint32_t
		number; /* as its maker got it; 0: the place is free; SPMT_OP_MADE: it is being filled */
};

/* NULL: the comm has no such op. Numbers of free places, and of those that are being filled, are none that a caller can mean. */
static struct comm_op *op_find(const spmt_comm *comm, uint32_t number)
{
	struct comm_op *ops = atomic_load_explicit(&comm->ops, memory_order_acquire);

	for (int i = 0; ops && number > SPMT_OP_MADE && i < OP_PLACES; i++)
		if (atomic_load_explicit(&ops[i].number, memory_order_acquire) == number)
			return &ops[i];
	return NULL;
}

/* No comm of the process has had it, whether a lane, a part, or one of an earlier world: what is passed to the wrong one, or comes too
   late, is refused, until 2^30 ops have been made. Then it may be one that this comm still has, which is passed over. */
static int op_number(const spmt_comm *comm, uint32_t *number)
{
	int rc;

	do {
		rc = process_draw(number);
		*number = SPMT_OP_MADE | *number % SPMT_OP_MADE;
	} while (!rc && (*number == SPMT_OP_MADE || op_find(comm, *number)));
	return rc;
}

static int op_unknown(const spmt_comm *comm, const char *what, int op)
{
	if (op < SPMT_OP_MADE)
		return fail_call(-EINVAL, what, "rank %d: unknown op %d", comm->rank, op);
	return fail_call(-EINVAL, what,
		"rank %d: op %d was not made for this comm, or is destroyed", comm->rank, op);
}

int op_use(const spmt_comm *comm, const char *what, enum spmt_type type, int *op,
	struct coll_factor *factor)
{
	const struct comm_op *made;

	if ((unsigned)*op <= SPMT_OP_AVG)
		return 0;
	made = op_find(comm, (uint32_t)*op);
	if (!made)
		return op_unknown(comm, what, *op);
	if (made->type != type)
		return fail_call(-EINVAL, what, "rank %d: the op was made for type %s, not %s",
			comm->rank, type_name(made->type), type_name(type));
	*op = COLL_PREMUL;
	*factor = made->factor;
	return 0;
}

static int op_arguments(const spmt_comm *comm, const char *what, enum spmt_type type,
	const void *scalar, enum spmt_scalar where)
{
	size_t size = type_size(type);

	if (!size)
		return fail_call(-EINVAL, what, "rank %d: unknown type %d", comm->rank, (int)type);
	if (!scalar)
		return fail_call(-EINVAL, what, "rank %d: scalar is NULL", comm->rank);
	if (where != SPMT_SCALAR_HOST && where != SPMT_SCALAR_DEVICE)
		return fail_call(-EINVAL, what,
			"rank %d: where is %d, neither SPMT_SCALAR_HOST nor SPMT_SCALAR_DEVICE",
			comm->rank, (int)where);
	if (where == SPMT_SCALAR_DEVICE && (uintptr_t)scalar % size)
		return fail_call(-EINVAL, what,
			"rank %d: scalar %p is not aligned to its type (%zu bytes)", comm->rank,
			scalar, size);
	return where == SPMT_SCALAR_DEVICE ? local_check(comm, what, "scalar", scalar, size) : 0;
}

/* If several threads make a lane's first op, one brings the table. */
static struct comm_op *op_table(spmt_comm *comm)
{
	struct comm_op *seen = atomic_load_explicit(&comm->ops, memory_order_acquire), *made;

	if (seen)
		return seen;
	made = mem_calloc(OP_PLACES, sizeof(*made));
	if (!made || atomic_compare_exchange_strong(&comm->ops, &seen, made))
		return made;
	mem_free(made);
	return seen;
}

/* A place that is the caller's to fill. */
static int op_place(spmt_comm *comm, const char *what, struct comm_op **place)
{
	struct comm_op *ops = op_table(comm);

	if (!ops)
		return fail_call(-ENOMEM, what, "rank %d: out of memory for ops", comm->rank);
	for (int i = 0; i < OP_PLACES; i++) {
		uint32_t free = 0;

		if (atomic_compare_exchange_strong(&ops[i].number, &free, SPMT_OP_MADE)) {
			*place = &ops[i];
			return 0;
		}
	}
	return fail_call(-ENOSPC, what, "rank %d: %d ops are there and none was destroyed",
		comm->rank, OP_PLACES);
}

static int op_create(spmt_comm *comm, const char *what, enum spmt_type type, const void *scalar,
	enum spmt_scalar where, enum spmt_op *op)
{
	struct comm_op *place = NULL;
	uint32_t number = 0;
	int rc = op ? 0 : fail_call(-EINVAL, what, "rank %d: op is NULL", comm->rank);

	if (!rc)
		rc = op_arguments(comm, what, type, scalar, where);
	if (!rc)
		rc = comm_failed(comm, what, op_number(comm, &number));
	if (!rc)
		rc = op_place(comm, what, &place);
	if (rc)
		return rc;
	place->type = type;
	place->factor = (struct coll_factor){ .bits = type_size(type) };
	if (where == SPMT_SCALAR_DEVICE)
		place->factor.at = (uint64_t)(uintptr_t)scalar;
	else
		place->factor.bits = 0, memcpy(&place->factor.bits, scalar, type_size(type));
	atomic_store_explicit(&place->number, number, memory_order_release);
	*op = (enum spmt_op)number;
	return 0;
}

int spmt_op_premul_create(spmt_comm *comm, enum spmt_type type, const void *scalar,
	enum spmt_scalar where, enum spmt_op *op)
{
	EXCLUSIVE(comm, __func__);
	int rc = comm_enter_lane(comm, __func__);

	if (rc)
		return rc;
	rc = op_create(comm, __func__, type, scalar, where, op);
	comm_left_lane(comm);
	return rc;
}

static int op_drop(spmt_comm *comm, const char *what, enum spmt_op op)
{
	struct comm_op *made;
	uint32_t number = (uint32_t)op;

	if ((unsigned)op <= SPMT_OP_AVG)
		return fail_call(-EINVAL, what, "rank %d: op %s is not one that was made",
			comm->rank, op_name((uint64_t)op));
	made = op_find(comm, number);
	if (!made)
		return op_unknown(comm, what, (int)op);
	if (!atomic_compare_exchange_strong(
		    &made->number, &number, 0)) /* another thread was first */
		return op_unknown(comm, what, (int)op);
	return 0;
}

int spmt_op_destroy(spmt_comm *comm, enum spmt_op op)
{
	EXCLUSIVE(comm, __func__);
	int rc = comm_enter_lane(comm, __func__);

	if (rc)
		return rc;
	rc = op_drop(comm, __func__, op);
	comm_left_lane(comm);
	return rc;
}
