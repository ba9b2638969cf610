/* SPDX-License-Identifier: MIT */
/*
 * What AMD's driver of compute would list in sysfs of the machine that the stand-ins for libamdhip64 and libhsakmt make up: two nodes of
 * CPUs, then the devices (SPMT_FAKE_DEVICES), gfx942 side by side over xGMI. For a program linked with
 * -Wl,--wrap=fopen,--wrap=fopen64,--wrap=access, whose files under /sys/class/kfd/kfd/topology/nodes are these; it has all render devices.
 */
#ifndef TESTS_KFD_NODES_H
#define TESTS_KFD_NODES_H

#include <stdbool.h>

/* Of a test before its first world. Devices by their number; as it is at first nothing is amiss. */
extern struct kfd_nodes {
	bool none;    /* there is no such folder */
	int hidden;   /* the device that the cgroup keeps from the process; -1: none */
	int parts;    /* of device 0, each a node at its place on the bus; 0: it is whole */
	int empty;    /* the device without engines; -1: none */
	int unlisted; /* the device without a node; -1: none */
} kfd_nodes;

#endif
