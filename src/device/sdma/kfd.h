/* SPDX-License-Identifier: MIT */
/*
 * Nodes and links as AMD's driver of compute lists them in sysfs, a file of "name value" lines each, and what they say of SDMA engines.
 * Pure: the files lie under a folder that the caller names.
 */
#ifndef SPMT_SDMA_KFD_H
#define SPMT_SDMA_KFD_H

#include "packet.h"
#include "src/device/types.h"

#define KFD_NODES "/sys/class/kfd/kfd/topology/nodes"

struct kfd_node {
	int node;
	unsigned
		gfx; /* 90402 is gfx942, 100300 gfx1030: major, minor, stepping, two digits the latter */
	unsigned engines, xgmi_engines;
};

/* How a pair's copies are served. */
struct kfd_engine {
	struct kfd_node src, dst;
	int cpu; /* node of the CPU's memory */
	bool xgmi;
	bool signals; /* atomics of 64 bits reach dst's memory */
	uint32_t
		engines; /* those that the driver recommends for the link, by bit; 0: it names none */
	struct sdma_format format;
};

/* Of two devices by their places on the bus, "0000:1b:00.0". 0, or a code and why not; no sentence. */
int kfd_engine(const char *nodes, const char *src, const char *dst, struct kfd_engine *engine,
	char reason[DEVICE_REASON]);

/* The packets of a chip; false: its engines take no user-mode queues of SDMA 4 or 5. Atomics are left false. */
bool kfd_format(unsigned gfx, struct sdma_format *format);

#endif
