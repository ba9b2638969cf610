/* SPDX-License-Identifier: MIT */
/*
 * Who of a broken comm goes on. No message is sent and nobody leads: each rank says in its row that it
 * has come; one that sees that all others have come, left or died, or whose deadline passes, writes
 * down whom it has seen, and tries to make that the decision by one compare-and-swap. The first one
 * counts as a whole: its writer may die right after.
 *
 * Ranks on several nodes have no memory in common. There the hub of the world decides (spmt/nodes/muster.c).
 *
 * A comm may be shrunk more than once: those who went on together last time are asked again, in case
 * one of them died before the next world stood.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "claim.h"
#include "spmt/bootstrap/bootstrap.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/comm/waits.h"
#include "spmt/control/exclusive.h"
#include "spmt/nodes/nodes.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define DEATH_LOOK_NS (20 * 1000000ll) /* death makes no noise: look for it so often */

static bool in_set(const uint64_t *set, int rank)
{
	return set[rank / 64] >> rank % 64 & 1;
}

static void add_to_set(uint64_t *set, int rank)
{
	set[rank / 64] |= 1ull << rank % 64;
}

static uint32_t decided_round(uint64_t decided)
{
	return (uint32_t)(decided >> 32);
}

/* True if it will not come, or has come and died. */
static bool is_gone(const spmt_comm *comm, int pe)
{
	return atomic_load(&comm->control->rows[pe].left) || !comm_is_alive(comm, pe);
}

/* Collects those who have come and live; returns how many may still come. */
static int count_missing(const spmt_comm *comm, uint64_t *set)
{
	int missing = 0;

	for (int pe = 0; pe < comm->nranks; pe++) {
		bool come = atomic_load(&comm->control->rows[pe].come) >= comm->shrinks;

		if (!in_set(comm->survivors, pe) || is_gone(comm, pe))
			continue;
		if (come)
			add_to_set(set, pe);
		else
			missing++;
	}
	return missing;
}

static void wake_others(struct control *control)
{
	atomic_fetch_add(&control->coming, 1);
	futex_wake_all(&control->coming);
}

/* Makes what this rank has seen the decision of its round, unless there is one already. */
static void decide(spmt_comm *comm, const uint64_t *set, uint64_t before)
{
	struct control *control = comm->control;
	_Atomic uint64_t *votes = control_votes(control, comm->rank, comm->nranks);
	uint64_t mine = (uint64_t)comm->shrinks << 32 | ((uint64_t)comm->rank + 1);

	for (size_t i = 0; i < control_set(comm->nranks); i++)
		atomic_store_explicit(&votes[i], set[i], memory_order_release);
	atomic_compare_exchange_strong(&control->decided, &before, mine);
	wake_others(control);
}

/* Waits until this round is decided. This rank decides if there is nobody left to wait for. */
static void settle_round(spmt_comm *comm, uint64_t *set)
{
	struct control *control = comm->control;
	int64_t begin = process_now(), limit = comm_timeout(comm), left = INT64_MAX;
	uint64_t decided;

	while (decided_round(decided = atomic_load(&control->decided)) < comm->shrinks) {
		uint32_t coming = atomic_load(&control->coming);

		if (limit >= 0)
			left = limit * 1000000 - (process_now() - begin);
		for (size_t i = 0; i < control_set(comm->nranks); i++)
			set[i] = 0;
		if (!count_missing(comm, set) || left <= 0) {
			decide(comm, set, decided);
			continue;
		}
		waits_show(comm, set, &(struct wait_for){ .name = "spmt_shrink", .since = begin });
		futex_sleep(&control->coming, coming, MIN_OF(left, DEATH_LOOK_NS));
	}
	waits_hide(comm, set);
}

/* Writes who goes on into set. False: this rank does not. */
static bool outcome(const spmt_comm *comm, uint64_t *set)
{
	struct control *control = comm->control;
	uint64_t decided = atomic_load(&control->decided);
	uint32_t by = (uint32_t)decided - 1;
	_Atomic uint64_t *votes;

	if (by >= (uint32_t)comm->nranks)
		return false;
	votes = control_votes(control, (int)by, comm->nranks);
	for (size_t i = 0; i < control_set(comm->nranks); i++)
		set[i] = atomic_load_explicit(&votes[i], memory_order_acquire);
	/* A rank writes its votes again only in a later round; the check below detects that. */
	return decided_round(decided) == comm->shrinks &&
		atomic_load(&control->decided) == decided && in_set(set, comm->rank);
}

/* ---- what the caller gets ---------------------------------------------------------------------- */

/* Names the next world: equal on all who go on, new in each round. The set is who goes on. */
struct next {
	uint64_t comm, round, nranks, set[];
};

static size_t next_size(const spmt_comm *comm)
{
	return sizeof(struct next) + control_set(comm->nranks) * sizeof(uint64_t);
}

static void number_survivors(const spmt_comm *comm, const uint64_t *set, int *rank, int *nranks)
{
	*nranks = 0;
	for (int pe = 0; pe < comm->nranks; pe++) {
		if (pe == comm->rank)
			*rank = *nranks;
		*nranks += in_set(set, pe);
	}
}

static int survivors_make(spmt_comm *comm)
{
	if (comm->survivors)
		return 0;
	comm->survivors = mem_calloc(control_set(comm->nranks), sizeof(*comm->survivors));
	if (!comm->survivors)
		return fail_call(-ENOMEM, "spmt_shrink", "rank %d: out of memory for %d ranks",
			comm->rank, comm->nranks);
	for (int pe = 0; pe < comm->nranks; pe++)
		add_to_set(comm->survivors, pe);
	return 0;
}

static int came_too_late(const spmt_comm *comm)
{
	return fail_call(SPMT_ERR_TIMEOUT, "spmt_shrink",
		"rank %d came too late: the others go on without it", comm->rank);
}

/* The rank cannot rejoin the survivors. */
static int leave_out(spmt_comm *comm)
{
	comm->survivors[comm->rank / 64] &= ~(1ull << comm->rank % 64);
	return came_too_late(comm);
}

/* Survivors agree through the memory that they share. A faulty process may have overwritten its
   own votes or those of others there. */
static int intact(const spmt_comm *comm)
{
	struct bootstrap *boot = gather_neighbours(comm->world);
	struct cause cause;

	if (control_state(comm->control, &cause) == CONTROL_BROKEN &&
		(!boot || bootstrap_intact(boot)))
		return 0;
	comm_cause(comm, &cause);
	return fail_call(SPMT_ERR_BROKEN, "spmt_shrink",
		"rank %d: the memory in which the survivors would agree has been overwritten: %.300s",
		comm->rank, cause.sentence);
}

static int shrink_check(spmt_comm *comm, const spmt_uid *next, const int *rank, const int *nranks)
{
	if (comm->lane)
		return fail_call(SPMT_ERR_UNSUPPORTED, "spmt_shrink",
			"rank %d: a lane has no survivors, its key names a new one", comm->rank);
	if (!next || !rank || !nranks)
		return fail_call(-EINVAL, "spmt_shrink", "rank %d: %s is NULL", comm->rank,
			!next		? "next"
				: !rank ? "rank"
					: "nranks");
	comm_look(comm);
	comm_inherit(comm);
	/* a move may have failed with the death by which the comm breaks in a moment */
	if (!atomic_load(&comm->control->stop))
		nodes_hear(comm);
	if (!atomic_load(&comm->control->stop))
		return fail_call(-EINVAL, "spmt_shrink",
			"rank %d: the %s is whole, spmt_split makes parts", comm->rank,
			comm->parent ? "comm" : "world");
	return intact(comm);
}

static bool on_one_node(const spmt_comm *comm)
{
	for (int pe = 0; pe < comm->nranks; pe++)
		if (!meet_is_near(comm, pe))
			return false;
	return true;
}

/* In the memory that all share. False: they go on without this rank. */
static bool agree_here(spmt_comm *comm, struct next *name)
{
	atomic_store(&comm->control->rows[comm->rank].come, comm->shrinks);
	wake_others(comm->control);
	settle_round(comm, name->set);
	return outcome(comm, name->set);
}

/* *in: as agree_here. A failure may pass: this round has not been decided. */
static int agree(spmt_comm *comm, struct next *name, struct uid_place *place, bool *in)
{
	int rc;

	*place = (struct uid_place){ 0 };
	comm->shrinks++;
	if (on_one_node(comm)) {
		*in = agree_here(comm, name);
		return 0;
	}
	rc = nodes_muster(comm, name->set, place);
	if (rc)
		comm->shrinks--;
	*in = !rc && in_set(name->set, comm->rank);
	return rc;
}

static void next_name(
	const spmt_comm *comm, struct next *name, const struct uid_place *place, spmt_uid *next)
{
	struct uid uid;

	name->comm = comm->id;
	name->round = comm->shrinks;
	name->nranks = (uint64_t)comm->nranks;
	uid_derive(&comm->world->uid, name, next_size(comm), &uid);
	if (comm->world->node)
		uid_move(&uid, place);
	memcpy(next, &uid, sizeof(*next));
}

static int shrink_claimed(spmt_comm *comm, spmt_uid *next, int *rank, int *nranks)
{
	struct uid_place place;
	struct next *name;
	bool in = false;
	int rc = survivors_make(comm);

	if (rc)
		return rc;
	if (!in_set(comm->survivors, comm->rank))
		return came_too_late(comm);
	name = mem_calloc(1, next_size(comm));
	if (!name)
		return fail_call(-ENOMEM, "spmt_shrink", "rank %d: out of memory for %d ranks",
			comm->rank, comm->nranks);
	rc = agree(comm, name, &place, &in);
	if (in) {
		next_name(comm, name, &place, next);
		number_survivors(comm, name->set, rank, nranks);
		memcpy(comm->survivors, name->set,
			control_set(comm->nranks) * sizeof(*comm->survivors));
	} else if (!rc) {
		rc = leave_out(comm);
	}
	mem_free(name);
	return rc;
}

/* Other threads' collectives in a broken comm end by themselves, soon, and are let out first. */
static int shrink_claim(spmt_comm *comm)
{
	static const char what[] = "spmt_shrink";
	const struct timespec slice = { .tv_nsec = 100000 };
	int64_t until = process_now() + COMM_BROKEN_NS;
	const char *other;

	while ((other = object_claim(&comm->head, what)) && other != what && other != comm_ending &&
		process_now() < until)
		nanosleep(&slice, NULL);
	return other ? comm_busy(comm, what, other) : 0;
}

int spmt_shrink(spmt_comm *comm, spmt_uid *next, int *rank, int *nranks)
{
	TRACED(comm, __func__);
	UNCANCELLED;
	int rc = comm_visit(comm, "spmt_shrink");

	if (rc)
		return rc;
	rc = shrink_check(comm, next, rank, nranks);
	if (!rc)
		rc = shrink_claim(comm);
	comm_left(comm); /* claimed, it stays */
	if (rc)
		return rc;
	rc = shrink_claimed(comm, next, rank, nranks);
	comm_unclaim(comm);
	return rc;
}
