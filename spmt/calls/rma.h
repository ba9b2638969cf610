/* SPDX-License-Identifier: MIT */
/* What the RMA calls share: settling which bytes of a peer are meant, a link and an offset, and having the link's movers
   move them. */
#ifndef SPMT_RMA_H
#define SPMT_RMA_H

#include <errno.h>

#include "spmt/comm/comm.h"
#include "src/base/names.h"

/* What is wrong with the range; 0 where blocks are looked at and nothing is. */
int rma_judge(const spmt_comm *comm, const struct call *call, const void *sym, const void *local,
	size_t n) __attribute__((cold));

/* [ptr, ptr + n) may be any memory of the process; but what begins in this rank's heap ends there, and nothing wraps. */
static inline bool local_clear(const struct heap *heap, const void *ptr, uint64_t n)
{
	return heap_offset(heap, ptr) < heap->size ? heap_clear(heap, ptr, n)
						   : n <= UINTPTR_MAX - (uintptr_t)ptr;
}
int local_judge(const spmt_comm *comm, const char *what, const char *name, const void *local,
	size_t n) __attribute__((cold));
/* 0, or -EINVAL and a sentence for what does not fit. */
static inline int local_check(
	const spmt_comm *comm, const char *what, const char *name, const void *local, size_t n)
{
	return LIKELY(local_clear(comm->heap, local, n)) ? 0
							 : local_judge(comm, what, name, local, n);
}

/* All that most calls need to know: comm is live and whole, pe is one of its ranks, both ranges are there. False: not yet known,
   or n is 0. */
static inline bool rma_quick(spmt_comm *comm, const void *sym, const void *local, size_t n, int pe)
{
	return LIKELY(comm_quick(comm) && comm_has_pe(comm, pe) && n && local &&
		heap_clear(comm->heap, sym, n) && local_clear(comm->heap, local, n));
}
/* Checks comm and pe. */
int rma_peer(spmt_comm *comm, const struct call *call, int pe);
/* Of a comm that is traced, once comm and pe are checked: what moves n bytes; and that this call moves them, so many times. */
void rma_trace_route(const spmt_comm *comm, size_t n, int pe, enum move_mode mode)
	__attribute__((cold));
void rma_trace(const spmt_comm *comm, size_t n, size_t times, int pe, enum move_mode mode)
	__attribute__((cold));
/* The rest of rma_open, which notes n bytes of a comm that is traced. */
int rma_closer(spmt_comm *comm, const struct call *call, const void *sym, const void *local,
	size_t n, int pe) __attribute__((cold));

/*
 * Checks comm, pe and, unless n is 0, which is a no-op, that [sym, sym + n) is this rank's symmetric memory and local
 * is given and fits. The range's offset is then the same on pe: rma_offset.
 */
static inline int rma_open(spmt_comm *comm, const struct call *call, const void *sym,
	const void *local, size_t n, int pe)
{
	return rma_quick(comm, sym, local, n, pe) ? 0 : rma_closer(comm, call, sym, local, n, pe);
}

static inline uint64_t rma_offset(const spmt_comm *comm, const void *sym)
{
	return heap_offset(comm->heap, sym);
}

static inline struct mover *rma_mover(struct link *link, size_t n, enum move_mode mode)
{
	bool small = n <= link->threshold || (link->direct && mode == MOVE_BLOCKING);

	return &link->movers[small ? 0 : 1];
}

/* Wakes pe's sleepers after a store of the CPU's. */
static inline void rma_stored(spmt_comm *comm, int pe)
{
	wake_stored(comm->wake_counters[pe]);
}

/* The sentence for a failed move; for one stopped while it waited: what broke the world. */
int rma_failed(spmt_comm *comm, const char *what, int rc) __attribute__((cold));

/* n > 0, both sides settled. */
static inline int rma_put(spmt_comm *comm, const char *what, uint64_t offset, const void *src,
	size_t n, int pe, enum move_mode mode)
{
	struct link *link = &comm->links[pe];
	struct mover *m = rma_mover(link, n, mode);
	int rc = m->ops->put(m, offset, src, n, mode, NULL);

	comm->pending |= link->pending;
	rma_stored(comm, pe);
	return LIKELY(!rc) ? 0 : rma_failed(comm, what, rc);
}

static inline int rma_get(spmt_comm *comm, const char *what, void *dst, uint64_t offset, size_t n,
	int pe, enum move_mode mode)
{
	struct link *link = &comm->links[pe];
	struct mover *m = rma_mover(link, n, mode);
	int rc = m->ops->get(m, dst, offset, n, mode, NULL);

	comm->pending |= link->pending;
	return LIKELY(!rc) ? 0 : rma_failed(comm, what, rc);
}

/* The same in stream order; the stream is noted for quiet. */
int rma_put_stream(
	spmt_comm *comm, uint64_t offset, const void *src, size_t n, int pe, device_stream stream);
int rma_get_stream(
	spmt_comm *comm, void *dst, uint64_t offset, size_t n, int pe, device_stream stream);
/* Wakes pe's sleepers after what has been queued for its memory. */
void rma_stored_stream(spmt_comm *comm, int pe, device_stream stream);

/* signal.c: op and sig checked; sig has the same offset on pe. */
int signal_check(const spmt_comm *comm, const char *what, const void *sig, enum spmt_signal_op op);
int signal_now(spmt_comm *comm, const char *what, uint64_t *sig, uint64_t val,
	enum spmt_signal_op op, int pe);
/* Between the caller's stream_reserve and stream_note. */
int signal_queue(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe,
	device_stream stream);

#endif
