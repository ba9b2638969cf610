/* SPDX-License-Identifier: MIT */
/* Which map and movers a pair of ranks gets: plain data in, plain data out. */
#ifndef SPMT_ROUTE_H
#define SPMT_ROUTE_H

#include "src/device/device.h"

#define LINK_REASON 256
#define RANK_NIC_DEVICE 42
#define RANK_NIC_WHY 122
#define RDMA_RAILS 4 /* RDMA devices that a rank uses at most (SPMT_RDMA_STRIPE) */

/* How a NIC reaches memory: as it is, by a dma-buf of a device's, by a driver that knows both, or not at all, so that it bounces. */
enum rdma_memory { RDMA_HOST, RDMA_DMABUF, RDMA_PEER, RDMA_BOUNCE };
const char *rdma_memory_name(enum rdma_memory memory);

/*
 * Who does others' 64-bit atomics in a rank's memory: its CPU; also a NIC, atomically with the CPU; or only a NIC.
 */
enum rdma_atomics { RDMA_ATOMICS_CPU, RDMA_ATOMICS_BOTH, RDMA_ATOMICS_NIC };

/* A further device of a rank's, for pieces of large moves. */
struct rank_rail {
	unsigned char endpoint[16], gid[16];
	uint32_t qpn, qkey, key;
	uint16_t lid;
	uint8_t mtu, ethernet;
	uint8_t port; /* of its device, for sentences */
	char device[RANK_NIC_DEVICE + 1];
};

/* How a rank's NIC is addressed, and what it knows of the rank's memory. */
struct rank_nic {
	unsigned char endpoint[16]; /* random: a port as its process has it open; zeros: none */
	unsigned char gid[16];
	uint32_t qpn, qkey; /* that take hellos */
	uint32_t key;	    /* of heap and library area */
	uint32_t failures;  /* connections of its process that had failed by then */
	uint16_t lid;
	uint8_t mtu, ethernet;
	uint8_t memory;	 /* enum rdma_memory: how it knows heap and library area */
	uint8_t atomics; /* enum rdma_atomics */
	uint8_t rails;	 /* further devices, which know the heap as it is */
	uint8_t port;	 /* of its device, for sentences */
	char device[RANK_NIC_DEVICE];
	char why[RANK_NIC_WHY]; /* not "": it has none, or none that knows its memory */
	struct rank_rail rail[RDMA_RAILS - 1];
};

/* What a rank tells the others about itself: plain data, gathered in init, may cross processes. */
struct rank_info {
	int32_t rank;
	int32_t device;		   /* as asked for; -1: by position in the process */
	int32_t settled;	   /* the ordinal it got, from the second meeting on */
	unsigned char process[16]; /* nonce of its process: equal means same address space */
	unsigned char host[16];	   /* equal means same node */
	char backend[8];
	char pci[16];
	unsigned char uuid[16]; /* of its device, zeros: none; from the second meeting on */
	uint32_t traits, caps;	/* the backend's; enum rank_cap */
	uint64_t heap_base, heap_size;
	uint64_t own_base, own_size;
	struct rank_nic nic; /* map rdma, from the second meeting on */
};
enum rank_cap { RANK_CAP_IPC = 1, RANK_CAP_RDMA = 2 };

enum map_kind { MAP_NONE, MAP_SELF, MAP_P2P, MAP_IPC, MAP_RDMA, LINK_MAPS };
enum mover_kind { MOVER_STORE, MOVER_SDMA, MOVER_VERBS, LINK_MOVERS };

/*
 * Selection is a pure function over plain data: what two ranks say, what the driver says of the pair, what the user wants.
 */
struct pair_facts {
	int peer_code; /* backend->peer_check's answer; 0: granted, or the peer's device is not to be
			  seen in this process */
	char peer_reason[DEVICE_REASON];
	const char *maps, *moves;   /* SPMT_MAPS, SPMT_MOVES; NULL: no wish */
	char engine[DEVICE_REASON]; /* what user-mode queues say of the pair; "": not asked */
	uint64_t threshold; /* SPMT_STORE_THRESHOLD or the backend's; UINT64_MAX: no copy engine */
};
struct route {
	enum map_kind map; /* MAP_NONE: no way at all */
	enum mover_kind
		movers[LINK_MOVERS]; /* by size: the first up to threshold, the second above */
	int nmovers;
	uint64_t threshold;
	char reason
		[LINK_REASON]; /* every refused map and mover with its reason, and why this one */
};
/* From rank to peer by a map that is not loadable; map MAP_NONE: there is none. */
struct far_link {
	int rank, peer;
	enum map_kind map;
};
/* 0, or -EHOSTUNREACH with route->reason saying why nothing fits (map is MAP_NONE then). No sentence. */
int route_select(const struct rank_info *me, const struct rank_info *peer,
	const struct pair_facts *facts, struct route *route);

const char *map_name(enum map_kind map);
const char *mover_name(enum mover_kind mover);
/* "store,sdma" */
void route_movers(const struct route *route, char *text, size_t size);

#endif
