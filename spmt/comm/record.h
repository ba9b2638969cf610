/* SPDX-License-Identifier: MIT */
#ifndef SPMT_RECORD_H
#define SPMT_RECORD_H

#include "comm.h"
#include "src/kernels/kernels.h"

/* What a rank's kernels leave for the host, in pinned memory. Behind it lies struct kernel_report. */
struct signals {
	struct spmtd_record record;
	uint64_t mark; /* what the host leaves on the device, see comm_forbid */
};

/* The stop word of a comm, one for all its ranks of this process, in pinned memory of one of them: kernels poll it,
   and any rank's kernels raise it for all. */
struct stop_word {
	uint32_t stop; /* not 0: the comm is broken */
	int refs;      /* this and the rest: guarded by the world's lock */
	struct stop_word *next, *dev;
	uint64_t id; /* the comm's */
	struct slot *slot;
};

/* What a kernel of this rank has left behind when it failed: a wait that ended without its word, or a collective whose arguments
   differed; neither breaks the comm. 0 or its code, in words, once. */
int kernel_failure(spmt_comm *comm, const char *what);
/* The same without taking the record. 0 for a wait, but its sentence becomes the thread's. */
int kernel_looks(spmt_comm *comm, const char *what);

/* A collective or barrier has failed in a stream of some rank of this process: breaks the comm, if nobody has. Any thread. */
void comm_look(const spmt_comm *comm);

static inline struct kernel_report *kernel_report_of(struct signals *signals)
{
	return (struct kernel_report *)(void *)(signals + 1);
}

/* Whether kernel_failure will return a failure. */
static inline bool kernel_left(const spmt_comm *comm)
{
	return __atomic_load_n(&comm->signals->record.valid, __ATOMIC_RELAXED) == 2 ||
		__atomic_load_n(
			&kernel_report_of(comm->signals)->differs.valid, __ATOMIC_RELAXED) == 2;
}

#endif
