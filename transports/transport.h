/* SPDX-License-Identifier: MIT */
/*
 * How one rank reaches one peer. A link has a map (how the peer's memory is reached: p2p, ipc,
 * rdma) and one or two movers (how bytes move: store, sdma, verbs). Both are const tables, listed
 * in select.c in order of preference.
 *
 * A place in the peer's memory is a link and an offset: bytes from the beginning of the peer's heap, modulo 2^64. The peer's
 * library area and its registered buffers have offsets too, beyond its heap. Only a mover makes an address of an offset, and
 * only where the map is loadable (link->base).
 *
 * This layer knows a device, a heap and plain rank data; never another rank's comm. To add a map or a mover: docs/adding.md.
 */
#ifndef SPMT_TRANSPORT_H
#define SPMT_TRANSPORT_H

#include "../heap/heap.h"
#include "amo.h"
#include "link.h"

/* ---- maps ---------------------------------------------------------------------------------- */

struct map_ops {
	const char *name;
	/* Makes the peer's heap reachable: fills link->own and, where the CPU and the device can load from it, link->base. Called
	   once a link in init, from the rank's thread; may take driver locks; on failure nothing is attached and the sentence names
	   rank, peer and cause. A peer's refusal of p2p at this point (rather than at peer_check) is -EACCES: the caller demotes the
	   route and tries the next map. */
	int (*attach)(struct link *link, const struct backend *backend, int dev,
		const struct rank_info *peer);
	/* Undoes attach; link may be unattached. No work is in flight. */
	void (*detach)(struct link *link, const struct backend *backend, int dev);
	const struct rdma_ops
		*rdma; /* NULL: a rank has nothing to do for it before its peers attach */
};

/* What a map keeps of a registered buffer of this process. */
struct rdma_share {
	uint64_t keys[RDMA_RAILS]; /* peers need them */
	void *held[RDMA_RAILS];	   /* NULL: nothing */
};

/* A registered buffer of a link's peer: its owner's memory, which the map links in. */
struct rdma_buffer {
	struct rdma_buffer *next;  /* the map's */
	uint64_t offset, size;	   /* where the link counts it */
	uint64_t keys[RDMA_RAILS]; /* as in struct rdma_share: the peer's */
};

/*
 * For a map whose peers reach a rank's memory through a device that has to know it. struct rdma_rank is the map's own: what it has of one
 * rank of this process. Failures have sentences, and leave nothing.
 */
struct rdma_ops {
	/* Whether this process may have such a device. Cheap, opens nothing; from any thread. */
	bool (*likely)(void);
	/* The rank's heap, which me names, is reachable from here on; fills me->nic. By the rank's thread, which the others do not wait
	   for; it may block in a driver. A rank that fails says why in me->nic, and is not reached by this map. */
	int (*open)(const struct backend *backend, int dev, struct rank_info *me,
		struct rdma_rank **rdma);
	/* NULL is nothing. No peer has anything in flight to it, unless the world is broken: that is to harm no other world. */
	void (*close)(struct rdma_rank *rdma, bool broken);
	/* The same for a registered buffer. unshare takes a share that holds nothing. */
	int (*share)(struct rdma_rank *rdma, void *buf, size_t size, struct rdma_share *share);
	void (*unshare)(struct rdma_rank *rdma, struct rdma_share *share);
	/* From learn to forget the link's peer has the buffer, which stays where it is. Neither can fail: the peers have met by then. forget
	   takes what was never learnt. */
	void (*learn)(struct link *link, struct rdma_buffer *buffer);
	void (*forget)(struct link *link, struct rdma_buffer *buffer);
};

/* ---- movers -------------------------------------------------------------------------------- */

enum move_mode {
	MOVE_BLOCKING, /* locally complete on return: src reusable (put), dst written (get) */
	MOVE_NBI,      /* complete at quiet */
	MOVE_STREAM    /* in order of `stream`, which is never NULL */
};

/*
 * Any one thread at a time a link. What an op leaves in flight sets link->pending, so that quiet comes to it; the op that takes
 * a move counts it (link_count).
 */
struct mover_ops {
	const char *name;
	/* n > 0, checked by the caller. 1, 2, 4 or 8 bytes at a multiple of that are one access; what a rank moves to itself may
	   overlap. Ordering between two moves of one link: none; between a move and a later fence(): as its comment says. Failure:
	   nothing of this move will be written later, unless its wait was cut short: then it is pending. */
	int (*put)(struct mover *m, uint64_t offset, const void *local, size_t n,
		enum move_mode mode, device_stream stream);
	int (*get)(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
		device_stream stream);
	/* The aligned 64-bit word at offset, by the link's first mover: seen by the peer after every blocking put of the link, and
	   in order of `stream` unless that is NULL. The peer's sleepers are the caller's to wake. Where the map is loadable, kernels
	   signal in streams, and for devices that the CPU does not reach; no mover is asked then. */
	int (*signal)(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
		device_stream stream);
	/* The same for an atomic, not in a stream. *old: what was there; NULL: nobody asks, and it may be in flight on return. */
	int (*atomic)(struct mover *m, uint64_t offset, const struct amo *amo, uint64_t *old);
	/* After it, what was issued on this link before is visible at the peer before anything
	   issued later. May wait, as long as *wait, which other links may have begun, with the stop word of the link.
	   A wait that ends early is SPMT_ERR_TIMEOUT at the deadline or -ECANCELED at the stop word, with a
	   sentence; what was in flight stays so, and a later quiet waits for it again. A failed
	   move is reported here and again by the next quiet, so that no signal follows data
	   that is not there. */
	int (*fence)(struct mover *m, struct move_wait *wait);
	/* All NBI moves, signals and atomics are complete everywhere. First failure since the last quiet, also of moves in streams, where the
	   streams themselves do not tell of it: the mover sets link->failed then, and link->goes_on while some are left. */
	int (*quiet)(struct mover *m, struct move_wait *wait);
	/* Gives the state back, if there is any. */
	void (*close)(struct mover *m);
};

extern const struct map_ops map_self, map_p2p, map_ipc;
extern const struct mover_ops mover_store, mover_sdma;
/* Of a NIC. A test that defines them has its own in the rows `rdma` and `verbs` of select.c. */
extern const struct map_ops map_rdma;
extern const struct mover_ops mover_verbs;

/* The route as it is now, from any thread: link->route itself is not written after init. */
void link_route(const struct link *link, struct route *route);

/* In a user's stream. On virtual devices nothing is copied once the world is broken, as quiet may have given up on earlier work; nor does a
   kernel run after it, such as a signal's, as kernels check the same word. */
int link_stream_copy(
	const struct link *link, void *dst, const void *src, size_t n, device_stream stream);

/* A backend's -ETIMEDOUT or -ECANCELED as a mover's code, with a sentence; others pass. */
int link_wait_failed(const struct link *link, const char *what, int rc);

/* Such a code: what was waited for is still in flight. */
bool link_cut_short(int rc);
/* Moves begun after it arrive after those in flight, whatever their movers. */
int link_fence(struct link *link, struct move_wait *wait);
/* What all movers of the link have in flight is complete, or the first failure; what was cut short stays pending. */
int link_quiet(struct link *link, struct move_wait *wait);

/* The tables for a kind; NULL where this build has none. */
const struct map_ops *map_ops(enum map_kind map);
const struct mover_ops *mover_ops(enum mover_kind mover);

/* n bytes by the CPU, as memmove. A side that is naturally aligned for n = 1, 2, 4 or 8 is
   accessed by one atomic: a load that acquires, a store that releases. Defined in p2p.c. */
void store_bytes(void *dst, const void *src, size_t n);
/* The CPU's, for every mover over a loadable map. */
int store_signal(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream);
int store_atomic(struct mover *m, uint64_t offset, const struct amo *amo, uint64_t *old);

#endif
