/* SPDX-License-Identifier: MIT */
/* What map `rdma` keeps of a link's peer: link->attached. The links of comms split from one another share it. */
#ifndef SPMT_VERBS_MAP_H
#define SPMT_VERBS_MAP_H

#include "post.h"
#include "transports/transport.h"

/* A registered buffer of the peer's, where its links count it. */
struct rdma_buffer {
	struct rdma_buffer *next;
	uint64_t offset, size;
	uint32_t key;
	bool staged;
};

/* What this process has of one of its ranks. */
struct rdma_rank {
	struct nic *nic;
	struct stage *stage; /* its device; NULL: the CPU reaches its memory */
	struct region *heap;
	/* guarded by the port's lock: of the last world that broke, until when its moves may end */
	const uint32_t *stopped;
	int64_t stopped_end;
};

struct rdma_peer {
	struct nic *nic;
	struct rank_nic address;
	uint64_t base, size;	     /* its heap and library area, by its own addresses */
	uint64_t own;		     /* offset of the latter */
	struct rdma_buffer *buffers; /* guarded by the port's lock */
};

/* The link's deadline, and what stops it. */
struct verbs_wait link_patience(const struct link *link);
/* Of the link's world, which is broken: ns from the first call of any of the rank's links, of process_now(). */
int64_t rdma_stopped_end(const struct link *link, int64_t ns);
/* The connection to the peer, made on first use: 0, or a code with its sentence, -ECANCELED without. */
int rdma_conn(const struct rdma_peer *peer, struct verbs_wait *wait, struct pairing **c);
/* Where n bytes of an offset are; -EFAULT with a sentence: no key is known. */
int rdma_find(const struct rdma_peer *peer, uint64_t offset, size_t n, struct rdma_place *place);

#endif
