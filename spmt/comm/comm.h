/* SPDX-License-Identifier: MIT */
/* A comm: the handle on a rank, the first argument of every call; and what calls share. A slot owns what all comms of the rank use: heap,
   device, memory that calls borrow; the world's comm the maps of the links. A split-off comm has its own numbers, control, movers, stream, area. */
#ifndef SPMT_COMM_H
#define SPMT_COMM_H

#include "mark.h"
#include "meet.h"
#include "table.h"
#include "world.h"

struct spmt_comm {
	struct object head;
	int rank, nranks; /* this and what follows: read by every call */
	struct control *control;
	const struct meeting_ops *meeting; /* NULL: none yet; guarded by the world's lock */
	const uint32_t *raised;		   /* not 0: broken, by a kernel as well */
	struct heap *heap;
	struct link *links;
	struct wake_counter **wake_counters; /* by rank, of the world */
	_Atomic int64_t timeout_ms;
	bool pending;			   /* some link has NBI work */
	bool streamed, streamed_own, lost; /* work in some stream; in its own; in one that may go */
	struct fifo *fifo;		   /* what kernels post (spmt/proxy); NULL: none can */
	struct queues *queues; /* of copy engines that kernels feed (spmt/proxy); NULL: none */
	int dev, nlanes;       /* library areas for its lanes; 0: these meet on the host */
	uint64_t epoch;	       /* meetings so far */
	void *meeting_state;   /* the row's own */
	struct world *world;
	spmt_comm *next_here; /* of the world, in this process; guarded by its lock */
	struct slot *slot;
	spmt_comm *parent;	       /* NULL: the world's comm */
	spmt_comm *children, *sibling; /* guarded by the slot's lock */
	_Atomic int going;   /* finalize.c: comms of its tree with work that outlives it */
	int *world_ranks;    /* by rank; NULL: the same numbers */
	uint64_t id;	     /* equal on its ranks, unique in the world; owner of its blocks */
	uint32_t shrinks;    /* calls of spmt_shrink */
	uint64_t *survivors; /* of so many shrinks, a set; NULL: all ranks */
	uint64_t area;	     /* split: offset of its library area, as heap_own_alloc gave it */
	struct signals *signals, *signals_dev; /* host address, and the same for kernels */
	struct stop_word *stop_word;
	const struct backend *backend;
	device_stream stream;
	struct mark *used;	/* stream.c: a stream each */
	size_t nused, nkept;	/* of them; streams that were ever registered */
	struct mark collective; /* behind the last collective */
	struct pinned *scratch; /* table.c: for results */
	char *stage; /* ranks in several processes: stage_size bytes in, as many out; else NULL */
	size_t stage_size;
	_Atomic(struct comm_op *) ops; /* collective/op.c; NULL: none was ever made */
	uint32_t slot_room, push_at;   /* of a slot; where row push2 has its stage, 0: nowhere */
	int coll_wanted;	       /* SPMT_COLL, a row of the table; -1: none */
	struct coll_plans *plans;      /* those it names (collective.h); NULL: none */
	struct spmt_plan_open *opens;  /* plans that have begun (plan/run.c) */
	struct kernel_table peers, lane_peers; /* of spmtd_peers; those of lane areas */
	struct far_link far;   /* one that kernels do not reach, the same on all ranks */
	struct far *far_state; /* collective/far.c, where there is one; NULL: no collective yet */
	struct engine_meeting *engine; /* collective/engine.c; NULL: none, or none yet */
	struct spmt_mem *mems;	       /* live registered buffers; guarded by the slot's lock */
	uint64_t registered, offered, made, freed; /* so far; blocks for SPMT_CHECK alone */
	int64_t default_timeout_ms;
	uint64_t looks;	    /* how many calls have begun that take one of many words */
	int sharers, units; /* a world's ranks of the device; blocks sure to run at once for each */
	_Atomic uint32_t engine_says;		    /* whether it may have one */
	bool flat, collectives, graphs, keeps_area; /* the last: a lane of it broke */
	struct comm_host {
		struct spmtd_host ops;
		spmt_comm *comm;
	} host;			/* callbacks of the device header on the host backend */
	struct comm_lane *lane; /* not NULL: this comm is one; links and ranks are the parent's */
	char *lane_area;	/* of one by kernels: its library area */
	struct completion *awaited;   /* functions that streams call; guarded by the slot's lock */
	_Atomic uint32_t completions; /* how many of them have not returned */
	_Atomic uint64_t waits, longest_ns;
	_Atomic int64_t parted; /* spin.c: when it last slept to get a CPU of its own */
};

/* ---- entering a call ----------------------------------------------------------------------- */
static inline bool comm_is_broken(const spmt_comm *comm)
{
	return atomic_load_explicit(&comm->control->stop, memory_order_relaxed) ||
		__atomic_load_n(comm->raised, __ATOMIC_RELAXED);
}

/* True if comm is live and whole, and SPMT_CHECK is off. */
static inline bool comm_quick(const spmt_comm *comm)
{
	return LIKELY(comm && object_is_live(&comm->head) && !comm_is_broken(comm));
}

int comm_refuse(const spmt_comm *comm, const char *what) __attribute__((cold)); /* why not */
/* Every public call begins here. 0: comm is live and its world is whole. */
static inline int comm_enter(const spmt_comm *comm, const char *what)
{
	return comm_quick(comm) ? 0 : comm_refuse(comm, what);
}
int comm_refuse_lane(const spmt_comm *comm, const char *what) __attribute__((cold));
/* As comm_enter for calls that work in a broken world, too. */
int comm_enter_any(const spmt_comm *comm, const char *what);
int comm_refuse_pe(const spmt_comm *comm, const char *what, int pe) __attribute__((cold));

static inline bool comm_has_pe(const spmt_comm *comm, int pe)
{
	return (unsigned)pe < (unsigned)comm->nranks;
}

static inline bool comm_cpu_access(const spmt_comm *comm)
{
	return comm->backend->traits & DEVICE_HOST_ACCESS;
}

/* From here on calls on comm succeed in comm_enter. */
void comm_set_live(spmt_comm *comm);
/* As comm_enter_any, but beside finalize, which waits for callers between comm_visit and comm_left. Not 0: no comm_left follows. */
int comm_visit(spmt_comm *comm, const char *what);
static inline void comm_left(spmt_comm *comm)
{
	atomic_fetch_sub_explicit(&comm->head.visitors, 1, memory_order_release);
}
void comm_unvisited(spmt_comm *comm); /* waits until nobody is in it; it is no longer live */

/* Two threads in collectives of one comm would both count as its rank. A claim (object_claim) lasts from a call's first step to its last, and
   that of who ends the comm for good: who gets it, and finds the comm live, has one that stays. */
static inline void comm_unclaim(spmt_comm *comm)
{
	atomic_store_explicit(&comm->head.inside, NULL, memory_order_release);
}
int comm_busy(const spmt_comm *comm, const char *what, const char *other) __attribute__((cold));
/* The beginning of a public call that is a collective: as comm_enter, and claims the comm. -EBUSY: another thread is in a call, and is not disturbed. */
int comm_begin(spmt_comm *comm, const char *what);
int comm_begin_lane(spmt_comm *comm, const char *what); /* keyed.h */
int comm_begin_any(spmt_comm *comm, const char *what);	/* of a broken comm, too */
/* rc < 0: puts function and rank before the sentence of a lower layer, which knows neither. */
int comm_failed(const spmt_comm *comm, const char *what, int rc);

/* A comm and all split from it, each before its parent. No recursion: trees may be deeper than a stack. Nobody else is in a call on them. */
spmt_comm *comm_tree_first(spmt_comm *root);
spmt_comm *comm_tree_next(const spmt_comm *comm);

static inline int64_t comm_timeout(const spmt_comm *comm)
{
	return atomic_load_explicit(&comm->timeout_ms, memory_order_relaxed);
}

static inline int comm_world_rank(const spmt_comm *comm, int pe)
{
	return comm->world_ranks ? comm->world_ranks[pe] : pe;
}

#endif
