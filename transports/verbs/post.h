/* SPDX-License-Identifier: MIT */
/*
 * The one way by which work goes to a queue pair. A sender is what one user of a connection, a link or a move in a stream, has posted
 * there; what it waits for is counted.
 */
#ifndef SPMT_VERBS_POST_H
#define SPMT_VERBS_POST_H

#include "conn.h"

struct amo;

struct sender {
	struct pairing *conn;
	struct stage *stage;	/* by which its rank's memory is reached; NULL: by the CPU */
	uint64_t posted, asked; /* these and what follows: under the port's lock */
	uint64_t done, answered;
	uint64_t old;	  /* what the last ask found */
	uint32_t mail;	  /* of what it has asked, messages */
	_Atomic int code; /* the first failure since it was taken; read without the lock as well */
	uint32_t held;	  /* of what it has posted, with the stager still */
	uint32_t direct;  /* of it, by the port from or to memory of its user */
	bool deaf;	  /* no copy to or from memory of its user begins any more */
	bool called; /* posts from a callback in a stream, where no call of a device is allowed */
	bool orphan; /* nobody waits any more, either: ends with its work */
};

/* Of a peer's memory. */
struct rdma_place {
	uint64_t at;
	uint32_t key;
	bool staged; /* its port does not know it: the peer's thread moves it */
	enum rdma_atomics atomics;
};

/* Of this side: bytes that the port knows, or that go inline. */
struct leg {
	uint64_t at;
	size_t n;
	uint32_t lkey, rkey;
	bool inlined;
};

/* NULL: a sentence. */
struct sender *sender_make(struct pairing *c, struct stage *stage);
/* The user may have taken its buffers back. The port still moves what it has of them, until they are deregistered. */
void sender_deafen(struct sender *sender);
/* The same once the port moves nothing of its user's memory any more; where that does not end, the connection does. */
void sender_part(struct sender *sender, struct verbs_wait *wait);
/* As sender_deafen, and work in flight goes on. NULL is nothing. */
void sender_drop(struct sender *sender);

/*
 * 0, why the connection failed, -ETIMEDOUT or -ECANCELED while there is no room. blocking: on return src may be used again (put), or all of
 * it is there (get); a wait that is cut short leaves the work in flight. region: by which the port knows the bytes here, kept by the
 * caller; NULL: it is looked for.
 */
int sender_put(struct sender *sender, struct rdma_place to, const void *src, struct region *region,
	size_t n, bool blocking, struct verbs_wait *wait);
int sender_get(struct sender *sender, struct rdma_place from, void *dst, struct region *region,
	size_t n, bool blocking, struct verbs_wait *wait);
/* By a NIC or the peer's thread, as the peer says of its memory. old NULL: it may be in flight on return. Either way it counts as asked. */
int sender_atomic(struct sender *sender, struct rdma_place at, const struct amo *amo, uint64_t *old,
	struct verbs_wait *wait);
/* Until all of it has ended, or the asks alone: 0 also where it failed. */
int sender_wait(struct sender *sender, bool asks_alone, struct verbs_wait *wait);
/* The first failure, with a sentence; `take`: it is told once. */
int sender_failure(struct sender *sender, bool take);

/* What is to be had before one more can go. */
struct work_room {
	struct pairing *c;
	bool ask, chunk;
};
/* 0: under the lock, and there is room. */
int post_begin(struct work_room *room, struct verbs_wait *wait);
/*
 * Under the lock: the next work request, to be filled in where it stays. It has no flags; the caller fills in *wr->sg_list, or sets num_sge 0
 * for no bytes.
 */
static inline struct verbs_send *post_next(struct pairing *c)
{
	struct verbs_send *wr = &c->chain[c->chained];

	wr->next = NULL;
	wr->sg_list = &c->chain_sge[c->chained];
	wr->num_sge = 1;
	wr->send_flags = 0;
	return wr;
}
/* And what is to be known of it. */
static inline struct sent *post_known(struct pairing *c)
{
	return &c->sent[c->tail % CONN_RING];
}
/* It goes alone: who chains rings before the lock is let go, so nothing is chained. tells: its end is to be heard of at once. A failure is
   the caller's. */
int post_send(struct pairing *c, bool tells);
/* It goes with what post_ring tells the device of. There is room in the chain. */
void post_chain(struct pairing *c, bool tells);
/* A failure is the connection's. */
int post_ring(struct pairing *c);
/* A move between a leg and a peer's memory, chained, or asked of the peer, where a failure ends nothing. */
int leg_post(struct pairing *c, const struct rdma_place *far, const struct leg *leg,
	const struct landing *land, bool put, bool tells);
/* Under the lock: one of the sender's has ended, and failed, or nobody waits for it. */
void sender_ended(struct sender *sender, int code);
static inline void sender_moved(struct sender *sender, int code)
{
	sender->done++;
	if (code || sender->orphan)
		sender_ended(sender, code);
}
static inline void sender_answered(struct sender *sender, int code)
{
	sender->answered++;
	if (code || sender->orphan)
		sender_ended(sender, code);
}
/* The port closes: nothing of the connection comes any more. */
void lanes_forget(struct pairing *c);

#endif
