/* SPDX-License-Identifier: MIT */
/* What the RMA calls share: settling where a symmetric address lies on a peer, and moving bytes
   over the link. */
#ifndef SPMT_RMA_H
#define SPMT_RMA_H

#include <errno.h>

#include "spmt/comm/comm.h"
#include "spmt/comm/names.h"

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

/* All that most calls need to know: comm is live and whole, pe is one of its ranks, both ranges are there. *remote: where the
   first lies on pe as seen from here. False: not yet known, or n is 0. */
static inline bool rma_quick(
	spmt_comm *comm, const void *sym, const void *local, size_t n, int pe, char **remote)
{
	if (UNLIKELY(!comm_quick(comm) || !comm_has_pe(comm, pe) || !n || !local ||
		    !heap_clear(comm->heap, sym, n) || !local_clear(comm->heap, local, n)))
		return false;
	*remote = comm->links[pe].base + heap_offset(comm->heap, sym);
	return true;
}
/* The rest of rma_open. */
int rma_closer(spmt_comm *comm, const struct call *call, const void *sym, const void *local,
	size_t n, int pe, char **remote) __attribute__((cold));

/*
 * Checks comm, pe and, unless n is 0, that [sym, sym + n) is this rank's symmetric memory and local
 * is given and fits. *remote: where the range lies on pe as seen from here; NULL when n is 0, which is a
 * no-op.
 */
static inline int rma_open(spmt_comm *comm, const struct call *call, const void *sym,
	const void *local, size_t n, int pe, char **remote)
{
	return rma_quick(comm, sym, local, n, pe, remote)
		? 0
		: rma_closer(comm, call, sym, local, n, pe, remote);
}

static inline const struct mover_ops *rma_mover(
	const struct link *link, size_t n, enum move_mode mode)
{
	return n <= link->threshold || (link->direct && mode == MOVE_BLOCKING) ? link->small
									       : link->large;
}

/* Wakes pe's sleepers after a store of the CPU's. */
static inline void rma_stored(spmt_comm *comm, int pe)
{
	bell_stored(comm->bells[pe]);
}

/* The words for a move that failed: one that waited and was stopped tells what broke the world. */
int rma_failed(spmt_comm *comm, const char *what, int rc) __attribute__((cold));

/* n > 0, addresses settled. */
static inline int rma_put(spmt_comm *comm, const char *what, char *remote, const void *src,
	size_t n, int pe, enum move_mode mode)
{
	struct link *link = &comm->links[pe];
	int rc = rma_mover(link, n, mode)->put(link, remote, src, n, mode, NULL);

	comm->pending |= link->pending;
	rma_stored(comm, pe);
	return LIKELY(!rc) ? 0 : rma_failed(comm, what, rc);
}

static inline int rma_get(spmt_comm *comm, const char *what, void *dst, const char *remote,
	size_t n, int pe, enum move_mode mode)
{
	struct link *link = &comm->links[pe];
	int rc = rma_mover(link, n, mode)->get(link, dst, remote, n, mode, NULL);

	comm->pending |= link->pending;
	return LIKELY(!rc) ? 0 : rma_failed(comm, what, rc);
}

/* The same in stream order; the stream is noted for quiet. */
int rma_put_stream(
	spmt_comm *comm, char *remote, const void *src, size_t n, int pe, device_stream stream);
int rma_get_stream(
	spmt_comm *comm, void *dst, const char *remote, size_t n, int pe, device_stream stream);

/* signal.c: op and sig checked; the word lies at `remote` on pe. */
int signal_check(const spmt_comm *comm, const char *what, const void *sig, enum spmt_signal_op op);
int signal_now(
	spmt_comm *comm, char *remote, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe);
/* Between the caller's stream_reserve and stream_note. */
int signal_queue(spmt_comm *comm, uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe,
	device_stream stream);

#endif
