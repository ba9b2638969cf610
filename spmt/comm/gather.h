/* SPDX-License-Identifier: MIT */
/* How the ranks of a world find each other, in one process or in several of a node. */
#ifndef SPMT_GATHER_H
#define SPMT_GATHER_H

#include "include/spmt.h"
#include "src/base/base.h"

struct bootstrap;
struct control;
struct uid;
struct world;

/*
 * This rank has come: once its process's first one has, other processes' ranks hear of the process's
 * death. Returns once it is clear whether all ranks are in this process.
 */
int gather_begin(spmt_comm *comm);
/*
 * Waits until every rank of the world has told who it is: comm->control is then what the ranks meet on, unless they are on several
 * nodes, and each rank's entry of world->infos is everywhere, within this process after their next meeting. A missing
 * rank is named at the deadline, in all processes.
 */
int gather(spmt_comm *comm);
/* After it: from here on they can meet. */
int gather_meet(spmt_comm *comm);

/* The control block on which this process's ranks meet; under the world's lock, once, before any rank has settled. */
void world_adopt(struct world *w, struct control *control);
/* A rank takes what its world has adopted. */
void comm_settle(spmt_comm *comm);
/* A rank has failed between the two, and its world is broken: gives others a moment to hear of
   it. */
void gather_give_up(const spmt_comm *comm);

/* Whether `rank` of comm lives in this process. */
bool comm_is_local(const spmt_comm *comm, int rank);

/* Whether it lives on this rank's node. */
bool comm_is_neighbour(const spmt_comm *comm, int rank);

/* Whether some rank lives in another process. Known once gathered. */
bool comm_spans_processes(const spmt_comm *comm);

/* Exchanges what ranks say of themselves now, and, on a node, what names the heaps among its processes: world->memory. By one rank of each process, the
   others return at once; follows a meeting and is followed by one. */
int gather_memory(spmt_comm *comm);

/* The i-th rank of this process; -1: there are fewer. Exchanges of one rank at a time take as many rounds
   as the largest process has ranks. */
int gather_nth(const spmt_comm *comm, int i);
int gather_rounds(const spmt_comm *comm);

/* The bootstrap of the processes of this node, through which descriptors pass; NULL: there is one alone. */
struct bootstrap *gather_neighbours(const struct world *w);
/* Whether the process of a rank of this node still takes part, as bootstrap_is_alive(). */
bool comm_is_alive(const spmt_comm *comm, int rank);

/* Called with the world's last rank of this process. The world may never have gathered. */
void gather_close(struct world *world);

/* Tells the ranks that gather in other processes that one here has failed before it could join; ones that
   come within a tenth of a second hear of it, too. The sentence is the thread's last. */
void gather_post(const struct uid *uid, int nranks, int code);

#endif
