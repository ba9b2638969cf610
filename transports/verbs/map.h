/* SPDX-License-Identifier: MIT */
/* What map `rdma` keeps of a link's peer: link->attached. The links of comms split from one another share it. */
#ifndef SPMT_VERBS_MAP_H
#define SPMT_VERBS_MAP_H

#include "post.h"
#include "transports/transport.h"

/* A further device of a rank's. */
struct rdma_rail {
	struct nic *nic;
	struct region *heap;
};

/* What this process has of one of its ranks. */
struct rdma_rank {
	struct nic *nic;
	struct stage *stage; /* its device; NULL: the CPU reaches its memory */
	struct region *heap;
	uint32_t failures; /* as it has said; see conn.h */
	int nrails;
	struct rdma_rail rails[RDMA_RAILS - 1];
	/* guarded by the port's lock: of the last world that broke, until when its moves may end */
	const uint32_t *stopped;
	int64_t stopped_end;
};

struct rdma_peer {
	struct nic *nic;
	struct rank_nic address;
	int nth;		     /* of the connections to a port of the peer's */
	uint32_t failures;	     /* as its rank here has said */
	uint64_t base, size;	     /* its heap and library area, by its own addresses */
	uint64_t own;		     /* offset of the latter */
	struct rdma_buffer *buffers; /* guarded by the port's lock */
	/* Pairs of a device here and one there: lane 0 is `nic` and `address`, the others are for pieces of large moves alone. */
	int nlanes;
	struct rdma_lane {
		struct nic *nic;
		int rail; /* of the peer's devices */
	} lanes[RDMA_RAILS];
};

/* The senders that a link, or a move in a stream, has on the lanes. By one thread at a time. */
struct stripe {
	struct sender *lanes[RDMA_RAILS]; /* NULL: none is wanted yet */
	bool loose; /* pieces of puts may be in flight on other lanes than the first, or have failed there */
	bool fenced; /* what is in flight on the first lane must arrive before later moves */
};

/* What a link has under way: by calls, on the comm's thread; and in streams, NULL until there was such a move. */
struct link_work {
	struct stripe stripe;
	struct laters *laters;
};

/* A move, or the pieces of it, of which lane i moves the i-th: cut.n > 0. */
struct cut {
	int n;
	struct cut_piece {
		struct rdma_place place;
		size_t at, n;
		struct region *
			region; /* of a move in pieces: as its device has the bytes; NULL: not kept */
		struct nic *nic; /* which has it */
	} pieces[RDMA_RAILS];
};

/* The link's deadline, and what stops it. */
static inline struct verbs_wait link_patience(const struct link *link)
{
	return (struct verbs_wait){ .ns = verbs_wait_ns(*link->timeout_ms), .stop = link->stop };
}
/* Of a call that comes by other links, too; verbs_waited tells these how far it has come. */
static inline struct verbs_wait link_patience_of(
	const struct link *link, const struct move_wait *call)
{
	return (struct verbs_wait){
		.ns = verbs_wait_ns(call->ms), .end = call->end, .stop = link->stop
	};
}
static inline void verbs_waited(const struct verbs_wait *wait, struct move_wait *call)
{
	call->end = wait->end;
}
/* Of the link's world, which is broken: ns from the first call of any of the rank's links, of process_now(). */
int64_t rdma_stopped_end(const struct link *link, int64_t ns);
/* The link is used for the first time: its comm may have its stop word where one that broke had it. */
void rdma_begins(const struct link *link);
/* The connection to the peer by a lane, made on first use: 0, or a code with its sentence, -ECANCELED without. */
int rdma_conn(const struct rdma_peer *peer, int lane, struct verbs_wait *wait, struct pairing **c);
/* Where n bytes of an offset are, for the first lane; -EFAULT with a sentence: no key is known. */
int rdma_find(const struct rdma_peer *peer, uint64_t offset, size_t n, struct rdma_place *place);
/* The same for any lane, without a sentence; false: that one has no key. */
bool rdma_known(const struct rdma_peer *peer, int lane, uint64_t offset, size_t n,
	struct rdma_place *place);

/* mover.c: a code of a sender's, or of finding one, as the link's mover's. */
int verbs_failed(struct link *link, const char *what, int rc);

/* stripe.c */

/* How a move goes: in pieces where it is large, and all devices know the memory at both ends. They know it until the pieces have been
   posted, or the cut is dropped. */
int stripe_cut(
	const struct link *link, uint64_t offset, const void *local, size_t n, struct cut *cut);
/* Not under a port's lock; any number of times, and of zeros. stripe_put and stripe_get have done it when they return. */
void cut_drop(struct cut *cut);
/* Makes the first n senders, where they are not. */
int stripe_open(const struct link *link, int n, struct verbs_wait *wait, struct stripe *stripe);
/* As the sender's (post.h), of all lanes. stripe_wait and stripe_order: 0 also where nothing was opened. */
int stripe_put(struct stripe *stripe, struct cut *cut, const void *src, bool blocking,
	struct verbs_wait *wait);
int stripe_get(
	struct stripe *stripe, struct cut *cut, void *dst, bool blocking, struct verbs_wait *wait);
int stripe_wait(struct stripe *stripe, struct verbs_wait *wait);
int stripe_failure(struct stripe *stripe, bool take);
void stripe_drop(struct stripe *stripe);
/* Of a broken comm: what does not end in time touches its user's memory no more, or, by `last`, its connection ends. */
void stripe_stop(const struct stripe *stripe, struct verbs_wait *wait, struct verbs_wait *last);
/* Before what comes behind earlier moves goes by the first lane: all pieces on the others are there, or one has failed. */
int stripe_join(struct stripe *stripe, struct verbs_wait *wait);
static inline int stripe_order(struct stripe *stripe, struct verbs_wait *wait)
{
	return stripe->loose ? stripe_join(stripe, wait) : 0;
}

/* later.c: moves in streams. All but later_queue: work->laters is there, or there is nothing to do (wait, stop, close). */

struct later_move {
	enum { LATER_PUT, LATER_GET, LATER_ASK } kind;
	const char *name;
	char *local;
	size_t n;
	struct amo amo; /* ASK */
};
int later_queue(struct link *link, struct link_work *work, uint64_t offset,
	const struct later_move *move, device_stream stream);
/* What failed since quiet last took a failure; `take`: it is told, and those queued from here on happen. */
int laters_failure(struct link *link, const struct link_work *work, bool take);
/* Until what may be in flight of those that failed has ended: 0, why it has failed since, or the wait was cut short. `take`: it goes. */
int laters_wait(
	struct link *link, const struct link_work *work, bool take, struct verbs_wait *wait);
/* Another quiet has to come. */
bool laters_go_on(const struct link *link, const struct link_work *work);
void laters_stop(const struct link *link, const struct link_work *work, struct verbs_wait *wait,
	struct verbs_wait *last);
void laters_close(struct link *link, struct link_work *work);

#endif
