/* SPDX-License-Identifier: MIT */
/* A comm: the handle on a slot, the first argument of every call; and what the calls share. */
#ifndef SPMT_COMM_H
#define SPMT_COMM_H

#include "meet.h"
#include "table.h"
#include "wait.h"
#include "world.h"

#define COLL_STAGE (1u << 20) /* bytes, either way */

struct spmt_comm {
	struct pooled head;
	/* read by every call */
	int rank, nranks;
	struct control *control;
	struct heap *heap;
	struct link *links;
	_Atomic int64_t timeout_ms;
	bool pending;	   /* some link has NBI work */
	bool streamed;	   /* some stream has work of this comm */
	bool streamed_own; /* its own stream has */
	/* the rest */
	int dev;
	uint64_t epoch; /* meetings so far */
	struct world *world;
	struct slot *slot;
	const struct backend *backend;
	device_stream stream;
	struct used_stream *used; /* stream.c */
	size_t nused;
	device_event collective; /* behind the last collective; made with the first */
	device_stream collective_stream;
	struct scratch *scratches;	  /* table.c: pinned memory for results */
	struct spare_table *spare_tables; /* table.c: for the next to ask */
	char *stage; /* worlds of several processes: COLL_STAGE bytes in, as many out; else NULL */
	struct kernel_table peers; /* of struct spmtd_peer, for kernels */
	struct spmt_mem *mems;	   /* live registered buffers */
	uint64_t registered;	   /* buffers ever registered: their names in a meeting */
	int64_t default_timeout_ms;
	size_t fair; /* where the next look at many words begins */
	int units;   /* of the device: blocks that are sure to run at once */
	bool flat;   /* all peer heaps lie in the world's range */
	struct comm_host {
		struct spmtd_host ops;
		spmt_comm *comm;
	} host; /* callbacks of the device header on the host backend */
	_Atomic uint64_t waits, longest_ns;
};

/* ---- entering a call ----------------------------------------------------------------------- */

/* Why comm cannot be used; the slow half of comm_enter. */
int comm_refuse(const spmt_comm *comm, const char *what) __attribute__((cold));

/* Every public call begins here. 0: comm is live and its world is whole. */
static inline int comm_enter(const spmt_comm *comm, const char *what)
{
	if (LIKELY(comm && pooled_is_live(&comm->head) &&
		    !atomic_load_explicit(&comm->control->stop, memory_order_relaxed)))
		return 0;
	return comm_refuse(comm, what);
}

/* As comm_enter for calls that work in a broken world, too. */
int comm_enter_any(const spmt_comm *comm, const char *what);
/* The same for calls that may run beside finalize, which waits for those between comm_visit and
   comm_left. Not 0: no comm_left follows. */
int comm_visit(spmt_comm *comm, const char *what);
static inline void comm_left(spmt_comm *comm)
{
	atomic_fetch_sub_explicit(&comm->head.visitors, 1, memory_order_release);
}
/* Once comm is no longer live: until nobody is in it. */
void comm_unvisited(spmt_comm *comm);
int comm_refuse_pe(const spmt_comm *comm, const char *what, int pe) __attribute__((cold));

static inline bool comm_has_pe(const spmt_comm *comm, int pe)
{
	return (unsigned)pe < (unsigned)comm->nranks;
}

static inline bool comm_cpu_access(const spmt_comm *comm)
{
	return comm->backend->traits & DEVICE_HOST_ACCESS;
}

/* Longer deadlines are taken for this one: in nanoseconds it is within the clock's range. */
#define TIMEOUT_MOST (INT64_MAX / 4000000)

/* 0: the default of this comm */
static inline int64_t comm_timeout(const spmt_comm *comm)
{
	return atomic_load_explicit(&comm->timeout_ms, memory_order_relaxed);
}

/* ---- one step each of init and finalize, and what the calls share -------------------------- */

void view_prepare(spmt_comm *comm); /* view.c: once the links stand */
void view_fill(spmt_comm *comm, struct spmt_view *view);

void mems_drop(spmt_comm *comm); /* register.c: what is still registered at finalize */

/* quiet without entering: 0 or the first failure since the last one. */
int quiet_slow(spmt_comm *comm, const char *what);   /* sync.c */
int movers_quiet(spmt_comm *comm, const char *what); /* NBI work of all links; the first failure */

static inline int quiet_all(spmt_comm *comm, const char *what)
{
	return LIKELY(!comm->pending && !comm->streamed) ? 0 : quiet_slow(comm, what);
}

#endif
