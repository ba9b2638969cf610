/* SPDX-License-Identifier: MIT */
#ifndef SPMT_REGISTER_H
#define SPMT_REGISTER_H

#include "share.h"
#include "spmt/comm/comm.h"
#include "spmt/lane/offers.h"
#include "spmt/proxy/fifo.h"

struct spmt_mem {
	struct object head;
	spmt_comm *comm;
	uint64_t
		name; /* the n-th registration of the world; of an offer, the rank's n-th of these */
	struct spmtd_mem_peer *peers; /* by rank: table.host */
	struct kernel_table table;
	uint64_t *
		offsets; /* by rank: where the buffer begins on its link; in the table, behind the peers */
	struct rdma_buffer *far; /* by rank: what map rdma has of those that it reaches */
	struct fifo_mem posts;	 /* what kernels may post to */
	struct rdma_share rdma;	 /* of this rank's own */
	struct share *shares;	 /* by rank; NULL: all ranks are in this process */
	bool published;
	struct offer *offer;	       /* local.c: of one rank, held; NULL: of all, by a meeting */
	bool offers;		       /* this rank does; deregistering it withdraws the offer */
	struct spmt_mem *next, **link; /* in comm->mems */
};

/* A buffer of no rank yet; takes any half-made one. */
int mem_create(spmt_comm *comm, const char *what, spmt_mem **out);
void mem_destroy(spmt_mem *mem);
void mem_publish(spmt_mem *mem, uint64_t name);
int mem_check(const spmt_comm *comm, const char *what, const spmt_mem *mem);
/* -EINVAL and a sentence where this rank has no such buffer, or there is nowhere to write the handle. */
int register_check(const spmt_comm *comm, const char *what, const void *buf, size_t size,
	spmt_mem *const *mem);
/* local.c: forgets what this rank offers. */
void mem_withdraw(spmt_mem *mem);

void mems_drop(spmt_comm *comm);       /* what is still registered at finalize */
void mems_left(const spmt_comm *comm); /* names it, with SPMT_CHECK */
/* A buffer of this rank that lies in [ptr, ptr + n); NULL: none does. */
const spmt_mem *mems_within(const spmt_comm *comm, const void *ptr, uint64_t n);
/* The call that made it. */
static inline const char *mem_made_by(const spmt_mem *mem)
{
	return mem->offer ? "spmt_register_local" : "spmt_register";
}

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
