/* SPDX-License-Identifier: MIT */
/* A fifo, for the files that implement it. */
#ifndef SPMT_FIFO_STATE_H
#define SPMT_FIFO_STATE_H

#include "fifo.h"
#include "src/kernels/area.h"

struct proxy;

#define FIFO_COPIES 4

/* In pinned memory; behind it lie the places. */
struct fifo_shared {
	uint64_t taken; /* posts that are done; kernels read it */
	uint64_t value; /* a signal on its way to a device that the CPU does not reach */
	uint64_t unused[6];
	uint64_t cells[SPMTD_CELLS]; /* what was asked for */
};

struct fifo {
	struct fifo *next; /* of the proxy; guarded by its lock */
	struct proxy *proxy;
	spmt_comm *comm;
	struct kernel_table table; /* of one struct spmtd_fifo */
	struct pinned *pinned;
	struct fifo_shared *shared;
	struct spmtd_post *ring;
	struct link *links;		   /* by rank */
	device_stream stream;		   /* NULL: the CPU reaches the memory, and there is none */
	bool polled;			   /* nobody says when there is a post */
	device_stream copies[FIFO_COPIES]; /* of SPMTD_FAR_COPY, by peer; NULL: there are none */

	pthread_mutex_t lock; /* guards `ports` and what is in them but `sent`, and `mems` */
	struct fifo_mem *mems;
	struct fifo_ports {
		struct fifo_port port[AREA_CHANNELS];
		bool known[AREA_CHANNELS];
		uint64_t sent[AREA_CHANNELS]; /* the thread's */
	} * *ports;			      /* by rank; NULL: it has none yet */

	_Atomic uint64_t asked, answered;
	uint64_t done; /* the thread's: posts so far */
	bool refused;  /* likewise: what fails now is a post that asks for what cannot be */
};

/* What is there, and what was asked. False: nothing. By the proxy's thread. */
bool fifo_serve(struct fifo *fifo);
/* The sentence is this thread's. */
void fifo_failed(struct fifo *fifo, const char *what, int rc);
static inline unsigned post_kind(const struct spmtd_post *post)
{
	return (unsigned)(post->head >> 1 & 0x7f);
}
/* Does one. 0, or a code with a sentence that begins with *what. */
int post_do(struct fifo *fifo, const struct spmtd_post *post, const char **what);
/* Whether SPMTD_FAR_COPY's copies are done: 1 yes, 0 not yet, or a code. */
int post_copied(struct fifo *fifo);
/* All that was done is complete everywhere. */
int post_quiet(struct fifo *fifo);

#endif
