/* SPDX-License-Identifier: MIT */
/* Meetings: how the ranks of a world agree. */
#ifndef SPMT_MEET_H
#define SPMT_MEET_H

#include "include/spmt.h"
#include "spmt/control/meeting.h"
#include "src/base/status.h"

struct control;

enum meet_op {
	MEET_INIT = 1,
	MEET_OPENED,
	MEET_SHARED,
	MEET_SEEN,
	MEET_LINKED,
	MEET_FINALIZE,
	MEET_BARRIER,
	MEET_SYNC,
	MEET_MALLOC,
	MEET_CALLOC,
	MEET_ALIGNED_ALLOC,
	MEET_FREE, /* of an offset, or MEET_FREE_NULL */
	MEET_REGISTER,
	MEET_DEREGISTER,
	MEET_SPLIT,
	MEET_SPLIT_MADE,
	MEET_SPLIT_LINKED,
	MEET_NAMED,
	MEET_RELEASED,
	MEET_DETACHED,
	MEET_PLAN,
	MEET_FREED /* where blocks are looked at: what each has found */
};

#define MEET_FREE_NULL UINT64_MAX
#define MEET_PLAN_WORDS \
	200 /* the most bytes, final zero included, of the plan in words that comes with MEET_PLAN */

/*
 * agree(): every collective step ends here. All ranks leave with the same result: 0; a status that
 * some rank brought, with its sentence; SPMT_ERR_MISMATCH; or what broke the world, a missed
 * deadline included. mine->status < 0: the sentence is the calling thread's. The caller has claimed the comm (comm_begin)
 * from its first step to its last, or nobody else knows it.
 */
int meet(spmt_comm *comm, const struct meet_record *mine);
/* Word i of the payload that `rank` brought to the last meeting, until this rank joins the next. Where processes share the memory it
   may be anything: it is to be checked before it is used. */
uint64_t meet_payload(const spmt_comm *comm, int rank, int i);
/* At most STATUS_SENTENCE bytes that go with what this rank brings to its next meeting, unless it brings a
   failure; and what `rank` attached to the last, valid as above. */
void meet_attach(spmt_comm *comm, const void *data, size_t size);
const void *meet_attached(const spmt_comm *comm, int rank);
const char *meet_name(uint32_t op);

/* For rows. The verdict on what all ranks have brought. */
enum meet_verdict meet_judge(const struct brought *all, int nranks);
/* This rank has waited so long in vain: says who is missing and what they wait in themselves, or what else is wrong. False: all have come,
   and none is known to be at fault. */
bool meet_missed(const spmt_comm *comm, int64_t waited_ns, struct cause *cause);

/* The gate of a control block (meet_shared.c), for a row only some of whose ranks share memory. This rank comes; true: it is the
   last of the n that have the block. */
bool gate_arrive(spmt_comm *comm, const struct meet_record *mine, int n);
/* All ranks have come, and their rows are filled: decides the meeting and lets everybody through. Any thread. */
void gate_open(struct control *control, int nranks, uint64_t epoch);
struct gate_hooks {
	/* Again and again while a rank waits, which may open or break the gate meanwhile. Returns whether it has to be called soon. */
	bool (*step)(spmt_comm *comm);
	/* Now and then while a rank sleeps at the gate. */
	void (*look)(spmt_comm *comm);
	/* Its deadline has passed. Returns once the gate is open, or no other node goes through any more, and it is known who is
	   missing. */
	void (*give_up)(spmt_comm *comm);
};
/* hooks: NULL: none. As the operation wait. */
int64_t gate_wait(spmt_comm *comm, const struct gate_hooks *hooks);

#endif
