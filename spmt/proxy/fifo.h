/* SPDX-License-Identifier: MIT */
/*
 * What the kernels of a comm's rank post (include/spmt_device/fifo.h): the ring, and what it takes to do it. Made by the first call that
 * gives kernels something to post with, kept until the comm ends. Posts are done in their order, by the proxy's thread, over links and movers
 * of the fifo's own, as those of the comm are its user's thread's.
 *
 * A post that fails breaks the comm. Those behind it, and all of a broken comm, are taken and dropped, so that no kernel waits for them.
 */
#ifndef SPMT_FIFO_H
#define SPMT_FIFO_H

#include "spmt/comm/comm.h"

#define FIFO_SHIFT 9u /* 512 places */

/* Makes comm->fifo if there is none; by the comm's thread. With copy queues for its collectives, where SPMT_COLL asks for row copy. A failure
   has a sentence. */
int fifo_open(spmt_comm *comm);
/* Whether SPMT_COLL has its collectives made by copy queues. */
bool coll_copies(const spmt_comm *comm);
/* Once no kernel of the comm runs any more, before its links go. */
void fifo_close(spmt_comm *comm);
/* The address of its struct spmtd_fifo, for kernels. */
uint64_t fifo_device(const struct fifo *fifo);

/* What a port stands for. Offsets are those of links. */
struct fifo_mem;
struct fifo_port {
	uint64_t remote, remote_size;	  /* the peer's buffer */
	uint64_t local, local_size;	  /* an address */
	uint64_t incoming, incoming_size; /* likewise: where the peer puts */
	uint64_t there;			  /* the peer's count of its signals */
	const struct fifo_mem *mem;	  /* what the buffers are of; NULL: the heap */
};
/* For the posts that name it from here on; may be called again for the same one. -ENOMEM, and a sentence. */
int fifo_port(spmt_comm *comm, int peer, uint32_t index, const struct fifo_port *port);

/*
 * A registered buffer that kernels may name in posts (SPMTD_FAR_MEM), from fifo_mem on, which may be called again, until fifo_mem_drop,
 * which takes one that was never named, too, and ends its ports. By rank; both arrays stay until then.
 */
struct fifo_mem {
	struct fifo_mem *next;
	const struct spmtd_mem_peer *peers;
	const uint64_t *offsets;  /* on each rank's link */
	const _Atomic bool *gone; /* not NULL: of one rank, which has deregistered it */
	bool known;
};
void fifo_mem(spmt_comm *comm, struct fifo_mem *mem);
void fifo_mem_drop(spmt_comm *comm, struct fifo_mem *mem);

/* Has all that is posted by now completed. fifo_asked returns a number; it is done once fifo_answered is true of that. A thread that waits
   is woken as by a store to the rank's memory. */
uint64_t fifo_ask(struct fifo *fifo);
bool fifo_answered(const struct fifo *fifo, uint64_t asked);
/* For a broken comm the proxy, which has others to serve, answers as soon as it no longer touches anything of it. A caller that has that answer,
   to what it asked after the break, waits here for what had begun. Failures of that are no news: the comm is broken. */
void fifo_settle(struct fifo *fifo);

/* A callback of the device header: after a post. */
void fifo_posted(const struct spmt_view *v);

#endif
