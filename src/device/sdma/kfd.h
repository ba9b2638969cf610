/* SPDX-License-Identifier: MIT */
/*
 * Nodes and links as AMD's driver of compute lists them in sysfs, a file of "name value" lines each, and what they say of SDMA engines.
 * Pure: the files lie where the caller says.
 */
#ifndef SPMT_SDMA_KFD_H
#define SPMT_SDMA_KFD_H

#include "packet.h"
#include "src/device/types.h"

/* A folder, and what the name of a GPU's render device begins with; its number follows. */
struct kfd_files {
	const char *nodes, *render;
};

struct kfd_node {
	int node;   /* the driver's number */
	int number; /* libhsakmt's, which has none for a node that this process may not use */
	unsigned
		gfx; /* 90402 is gfx942, 100300 gfx1030: major, minor, stepping, two digits the latter */
	unsigned engines, xgmi_engines;
};

/* How a pair's copies are served. */
struct kfd_engine {
	struct kfd_node src, dst;
	struct kfd_node cpu; /* whose memory queues take */
	unsigned counted;    /* nodes that libhsakmt has numbers for */
	bool xgmi;
	bool signals; /* atomics of 64 bits reach dst's memory */
	uint32_t
		engines; /* those that the driver recommends for the link, by bit; 0: it names none */
	struct sdma_format format;
};

/* Of two devices by their places on the bus, "0000:1b:00.0". 0, or a code and why not; no sentence. */
int kfd_engine(const struct kfd_files *files, const char *src, const char *dst,
	struct kfd_engine *engine, char reason[DEVICE_REASON]);

/* The packets of a chip; false: its engines take no user-mode queues of SDMA 4 or 5. Atomics are left false. */
bool kfd_format(unsigned gfx, struct sdma_format *format);

#endif
