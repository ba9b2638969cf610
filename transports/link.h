/* SPDX-License-Identifier: MIT */
/* What a rank has of one peer. */
#ifndef SPMT_LINK_H
#define SPMT_LINK_H

#include <stdatomic.h>

#include "route.h"
#include "src/base/process.h"

struct rdma_rank;
struct ipc_memory;
struct link;
struct map_ops;
struct mover_ops;

/* One of a link's. */
struct mover {
	const struct mover_ops *ops;
	struct link *link;
	void *state; /* the mover's own, made on first use */
};

/* How long one call waits for all that it comes by, on whatever number of links. */
struct move_wait {
	int64_t ms;  /* < 0: without end */
	int64_t end; /* of process_now(), known once it has had to wait; 0: it has not */
};
static inline int64_t move_wait_end(struct move_wait *wait)
{
	if (!wait->end)
		wait->end = wait->ms < 0 ? INT64_MAX
					 : process_now() + MIN_OF(wait->ms, TIMEOUT_MOST) * 1000000;
	return wait->end;
}

/* What a copy queue was replaced by. */
enum link_fall { LINK_STANDS, LINK_FELL_TO_STREAMS, LINK_FELL_TO_STORE };

struct link {
	/* read by every move */
	char *base;	    /* peer's user heap as seen from here; NULL: not loadable */
	uint64_t threshold; /* movers[0] up to it, movers[1] above */
	struct mover movers[2];
	int nmovers;
	bool pending; /* set by a mover: work since the last quiet */
	bool goes_on; /* by a mover, in quiet: whether another one has to come, whatever this one returns */
	bool direct;	/* blocking moves of any size are the CPU's own stores */
	bool by_kernel; /* a kernel may move what movers would: loadable, and nobody wraps them */

	struct route route;
	uint64_t own;		   /* offset of the peer's library area */
	const struct map_ops *map; /* NULL: not attached, or another link has attached it */
	void *attached;		   /* the map's own */
	struct rdma_rank *rdma;	   /* what a map has of this rank itself; NULL: nothing */

	const struct backend *backend;
	int dev, peer_dev, rank, pe;
	device_stream stream;		   /* the comm's own */
	const _Atomic int64_t *timeout_ms; /* the comm's; < 0: none */
	const uint32_t *stop;		   /* the world's; not 0: broken */
	const uint32_t
		*heeded; /* what this rank's kernels look at, raised behind `stop`; NULL: nothing */
	const struct ipc_memory *memory; /* map ipc: the peer's heap, named; the world's */

	/* A move in a stream, by a mover that streams do not tell of failures, has failed: its code, until quiet tells of it. Written by any
	   thread, under a lock of the mover's. */
	_Atomic int failed;

	/* enum link_fall, set with release when sdma did not get what it wanted; `why` is for link_route() */
	_Atomic int fell_back;
	char why[DEVICE_REASON];

	/* written by the one thread that uses the comm, read by any: relaxed atomics */
	_Atomic uint64_t ops[LINK_MOVERS], bytes[LINK_MOVERS];
};

/* The same peer by the same map for another thread, with one mover and counts of its own. The map stays `from`'s to detach. */
static inline void link_again(struct link *link, const struct link *from)
{
	link->base = from->base;
	link->own = from->own;
	link->threshold = UINT64_MAX;
	link->nmovers = 1;
	link->movers[0] = (struct mover){ .ops = from->movers[0].ops, .link = link };
	link->route = from->route;
	link->attached = from->attached;
	link->rdma = from->rdma;
	link->backend = from->backend;
	link->dev = from->dev;
	link->peer_dev = from->peer_dev;
	link->rank = from->rank;
	link->pe = from->pe;
	link->stream = from->stream;
	link->timeout_ms = from->timeout_ms;
	link->stop = from->stop;
	link->heeded = from->heeded;
	link->memory = from->memory;
	link->direct = from->direct;
}

/* Of a call that comes by this link alone. */
static inline struct move_wait link_wait_of(const struct link *link)
{
	return (struct move_wait){ .ms = *link->timeout_ms };
}

/* Over a loadable map, the address of an offset; and its reverse, for what is mapped by itself. */
static inline char *link_at(const struct link *link, uint64_t offset)
{
	return (char *)((uintptr_t)link->base + (uintptr_t)offset);
}

static inline uint64_t link_offset(const struct link *link, uint64_t address)
{
	return address - (uintptr_t)link->base;
}

/* Called by the mover that has taken the move. */
static inline void link_count(struct link *link, enum mover_kind mover, uint64_t bytes)
{
	uint64_t o = atomic_load_explicit(&link->ops[mover], memory_order_relaxed);
	uint64_t b = atomic_load_explicit(&link->bytes[mover], memory_order_relaxed);

	atomic_store_explicit(&link->ops[mover], o + 1, memory_order_relaxed);
	atomic_store_explicit(&link->bytes[mover], b + bytes, memory_order_relaxed);
}

#endif
