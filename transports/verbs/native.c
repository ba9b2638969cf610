/* SPDX-License-Identifier: MIT */
/*
 * Atomics that a port does in the peer's memory, of words of 64 bit. Who does them is the peer's to say, once for all of its memory that
 * others may change, so that all who come by a port are of one mind:
 *
 * - BOTH: its port's atomics are atomic with its CPU's (IBV_ATOMIC_GLOB). What a port can do it does, and the CPU the rest.
 * - NIC: they are atomic among each other alone (IBV_ATOMIC_HCA), and the user wants them (SPMT_RDMA_ATOMICS=nic). Then the port does
 *   all of them: what it cannot do in one go is compared and swapped until nobody was in between.
 * - CPU: in all other cases (ask.h).
 */
#include <errno.h>

#include "ask.h"
#include "post.h"
#include "src/base/status.h"

struct native {
	uint32_t opcode;
	uint64_t compare_add, swap;
};

/* False: no port does this in one go. */
static bool native_of(const struct amo *amo, struct native *native)
{
	*native = (struct native){ .opcode = VERBS_WR_ATOMIC_FETCH_AND_ADD };
	switch (amo->op) {
	case SPMT_AMO_FETCH:
		return true;
	case SPMT_AMO_INC:
	case SPMT_AMO_FETCH_INC:
		native->compare_add = 1;
		return true;
	case SPMT_AMO_ADD:
	case SPMT_AMO_FETCH_ADD:
		native->compare_add = amo->operand;
		return true;
	case SPMT_AMO_COMPARE_SWAP:
		*native =
			(struct native){ VERBS_WR_ATOMIC_CMP_AND_SWP, amo->compare, amo->operand };
		return true;
	default:
		return false;
	}
}

static int native_post(struct sender *sender, const struct rdma_place *at,
	const struct native *native, bool asks, struct verbs_wait *wait)
{
	struct pairing *c = sender->conn;
	struct work_room room = { .c = c };
	struct verbs_send wr = { .num_sge = 1,
		.opcode = native->opcode,
		.wr.atomic = { at->at, native->compare_add, native->swap, at->key } };
	struct verbs_sge sge = { .length = sizeof(uint64_t), .lkey = c->mr->lkey };
	int rc = post_begin(&room, wait);

	if (rc)
		return rc;
	sge.addr = (uintptr_t)native_word(c, c->tail);
	wr.sg_list = &sge;
	rc = post_send(c, &wr,
		&(struct sent){
			.land = { .sender = sender, .chunk = -1 }, .native = true, .asks = asks },
		asks);
	if (!rc) {
		sender->asked++;
		c->natives++;
	}
	pthread_mutex_unlock(&c->nic->lock);
	return rc;
}

/* old NULL: it is in flight on return. */
static int native_do(struct sender *sender, const struct rdma_place *at,
	const struct native *native, uint64_t *old, struct verbs_wait *wait)
{
	int rc = native_post(sender, at, native, old != NULL, wait);

	if (rc || !old)
		return rc;
	rc = sender_wait(sender, true, wait);
	if (!rc)
		rc = sender_failure(sender, false);
	if (!rc)
		*old = sender->old;
	return rc;
}

static int native_loop(struct sender *sender, const struct rdma_place *at, const struct amo *amo,
	uint64_t *old, struct verbs_wait *wait)
{
	struct native look = { .opcode = VERBS_WR_ATOMIC_FETCH_AND_ADD };
	uint64_t found, seen, next;
	int rc = native_do(sender, at, &look, &found, wait);

	do {
		if (rc)
			return rc;
		next = seen = found;
		amo_do(&next, amo);
		if (next == seen)
			break;
		rc = native_do(sender, at,
			&(struct native){ VERBS_WR_ATOMIC_CMP_AND_SWP, seen, next }, &found, wait);
	} while (rc || found != seen);
	if (old)
		*old = seen;
	return 0;
}

int sender_atomic(struct sender *sender, struct rdma_place at, const struct amo *amo, uint64_t *old,
	struct verbs_wait *wait)
{
	const struct nic *nic = sender->conn->nic;
	bool can = nic->place.device.atomic_cap != VERBS_ATOMIC_NONE;
	struct native native;

	if (amo->size != sizeof(uint64_t) || at.atomics == RDMA_ATOMICS_CPU)
		return sender_ask(sender, at, amo, old, wait);
	if (!can && at.atomics == RDMA_ATOMICS_NIC)
		return fail(-EOPNOTSUPP,
			"%s has no atomics, and in the peer's memory its device does them (SPMT_RDMA_ATOMICS)",
			nic->place.name);
	if (can && native_of(amo, &native))
		return native_do(sender, &at, &native, old, wait);
	return at.atomics == RDMA_ATOMICS_NIC ? native_loop(sender, &at, amo, old, wait)
					      : sender_ask(sender, at, amo, old, wait);
}
