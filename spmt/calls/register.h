/* SPDX-License-Identifier: MIT */
#ifndef SPMT_REGISTER_H
#define SPMT_REGISTER_H

#include "spmt/comm/comm.h"

void mems_drop(spmt_comm *comm);       /* what is still registered at finalize */
void mems_left(const spmt_comm *comm); /* names it, with SPMT_CHECK */
/* The number, from 1 on, of a buffer of this rank that lies in [ptr, ptr + n); 0: none does. */
uint64_t mems_within(const spmt_comm *comm, const void *ptr, uint64_t n);

/* What kernels reach of a buffer, by rank: as the host reads it, and as they do. */
struct mem_parts {
	const struct spmtd_mem_peer *host, *dev;
	const uint64_t *offsets; /* on each rank's link */
};
/* -EBADF, -EINVAL and a sentence where mem is no registered buffer of this comm. */
int mem_parts(spmt_comm *comm, const char *what, spmt_mem *mem, struct mem_parts *parts);
/* pe's part, of more than 0 bytes, is not seen from here: why. */
int mem_refuse_far(const spmt_comm *comm, const char *what, const spmt_mem *mem, int pe)
	__attribute__((cold));

#endif
