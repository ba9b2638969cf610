/* SPDX-License-Identifier: MIT */
/* A world as this process sees it, its slots (the state of one rank, one a device), and the table of
   worlds: joining, leaving, looking up. */
#ifndef SPMT_WORLD_H
#define SPMT_WORLD_H

#include <pthread.h>

#include "heap/window.h"
#include "include/spmt.h"
#include "include/spmt_device.h"
#include "spmt/bootstrap/search.h"
#include "spmt/control/control.h"
#include "spmt/control/found.h"
#include "spmt/control/object.h"
#include "spmt/lane/offers.h"
#include "transports/ipc.h"
#include "transports/transport.h"

/* Owned by the world and released by the last of its ranks in this process to leave: peers may
   store into a heap until then. */
struct slot {
	struct heap heap;
	struct heap_export export;     /* for other processes; empty where there are none */
	int offered_fd;		       /* of a buffer while it is registered, -1: none */
	struct rdma_rank *rdma;	       /* what map rdma has of the rank; NULL: nothing */
	const struct backend *backend; /* not NULL: device `dev` is open */
	int dev;
	bool taken;	       /* a rank of this process has it */
	pthread_mutex_t lock;  /* guards the tree of the rank's comms and the lists below; zeroed is
				 unlocked */
	struct pinned *pinned; /* table.c: what its comms have borrowed or given back */
	struct spare_table *tables;
	struct caller *caller; /* its thread for users' functions; NULL: none was needed */
};

struct directory;
struct bootstrap;

struct world {
	struct object head;
	_Atomic(struct world *) next; /* all worlds there ever were; only grows */
	_Atomic uint64_t id[2];	      /* zero: this one is free */
	_Atomic(struct directory *) directory;

	int members; /* guarded by the table's lock: ranks of this process that have not left, and holds */

	/* written by the rank that made it, before anybody else joins */
	int nranks;
	int cpus;
	int64_t spin_ns; /* 0: ranks outnumber CPUs, do not spin */
	struct uid uid;
	struct control *local; /* of this process alone: what ranks gather by */
	size_t local_size;
	struct slot *slots;	 /* by rank */
	struct rank_info *infos; /* by rank; each rank writes its own before a meeting */

	/* gather.c: how the ranks found each other */
	_Atomic(struct control *) control; /* what they meet on: local, or shared by processes */
	/* Of all its comms, the same in all processes: shared memory, if nothing else is put here before this process gathers. */
	_Atomic(const struct meeting_ops *) meeting;
	_Atomic bool made;  /* its first meeting is over */
	_Atomic bool found; /* all have come to spmt_init's last meeting: look-ups find its ranks */
	_Atomic uint32_t gathering;
	int arrived;			  /* guarded by lock */
	struct meeting met;		  /* guarded by lock; not yet of a bootstrap */
	_Atomic(struct bootstrap *) boot; /* NULL: all ranks are in this process */
	const int *process;		  /* by rank, likewise; equal numbers share a process */
	int *node; /* by rank, NULL: one node; equal numbers share one. Written once, under lock */
	_Atomic uint32_t node_state; /* of what follows: enum node_state */
	struct bootstrap *node_boot; /* of this node's processes; NULL: it has one alone */
	const int *node_process;   /* by the order of this node's processes: their numbers there */
	struct ipc_memory *memory; /* by rank, likewise; of ranks elsewhere */

	pthread_mutex_t lock; /* guards the writes of gathering and control, and all below */
	spmt_comm *comms; /* of this process, split ones included, from when they have a control */
	struct stop_word *stop_words;
	struct heap_range range;
	int range_state; /* 0 not tried, 1 open, negative: why not */
	char *routes;	 /* what SPMT_ROUTES asks for, of the ranks that have come so far */
	size_t routes_size;
	int routes_ranks;
	_Atomic(struct lanes *) lanes;	/* NULL: there never was one */
	struct engine_meeting *engines; /* collective/engine.c: those of its comms */
	struct offers offers;		/* none is left when its ranks have gone */
	struct heap_windows windows;	/* of heaps of this process */
	struct plan_found plans;	/* of SPMT_COLL */
};

/* Claims rank `rank` of the world that uid names, which the first rank of the process to come makes. On failure nothing is claimed, and a world in
   the making is broken with the sentence. */
int world_join(const struct uid *uid, int rank, int nranks, spmt_comm **comm);
/* Gives everything of comm back, and the world with the last one. The comm is free afterwards. */
void world_leave(spmt_comm *comm);
/* Keeps a comm whose work goes on, with its world; and takes all that are kept, a list by `sibling`. */
void world_defer(spmt_comm *comm);
spmt_comm *world_deferred(void);
/* No other world of this process has a name: only one that is ending may still run kernels on this one's devices. */
bool world_is_only(const struct world *world);
/* This process was forked from one that has, or had, worlds: memory of its comms is zeros here. */
bool world_is_inherited(void);
/* Keeps the world that uid names, made if need be, until the release (NULL: a no-op), so that whoever
   makes its ranks lets latecomers hear that one failed. */
int world_hold(const char *what, const struct uid *uid, int nranks, struct world **world);
void world_release(struct world *world);
/* Makes comm visible to spmt_comm_by_* as soon as its world is found, or takes it back. */
void world_publish(spmt_comm *comm);
extern const char world_joining
	[]; /* whose claim a comm has until it is complete: a world's, until spmt_init returns */
void world_unpublish(spmt_comm *comm);
/* A comm: busy, claimed and empty, NULL: no memory; and back. */
spmt_comm *world_comm_take(void);
void world_comm_give(spmt_comm *comm);
/* From here on the comm breaks together with its world, at once if that is broken; until it is
   taken off the list. */
void world_comm_list(spmt_comm *comm);
void world_comm_unlist(spmt_comm *comm);

/* Where this process has the thread that serves kernels (spmt/proxy), for process_state(). NULL: out of memory. */
void *_Atomic *world_proxy(void);

/* Breaks the world that uid names if one of its ranks is here and it is still in the making. */
void world_post_failure(const struct uid *uid, int code);
/* Breaks the world for all its ranks, wherever they are, and stops their kernels. */
void world_break(struct world *world, const struct cause *cause);
/* Breaks it in this process only: for what other processes have reported. */
void world_break_here(struct world *world, const struct cause *cause);
/* Breaks a broken world's comms in this process, those split from it included, and wakes their ranks. */
void comms_break(struct world *world, const struct cause *cause);
/* Breaks the comm split from it that has this id, for its ranks in this process. */
void world_break_part(struct world *world, uint64_t id, const struct cause *cause);

/* Breaks the world of a world's comm, and with it all comms split from it; a split comm breaks
   for its ranks alone. Any thread while comm cannot end. */
void comm_break(spmt_comm *comm, const struct cause *cause);
/* The same, with this thread's last failure as cause. */
void comm_break_last(spmt_comm *comm, int code);
/* Ends the waits of this rank's kernels. */
void comm_stop(const spmt_comm *comm);
/* Names a world without telling its id. */
static inline unsigned long long world_label(const struct world *world)
{
	return world->uid.id[0] ^ (world->uid.id[1] << 29 | world->uid.id[1] >> 35);
}
/* The number of a rank's process, the same in all processes. */
static inline int world_process(const struct world *world, int rank)
{
	return world->process ? world->process[rank] : 0;
}
#endif
