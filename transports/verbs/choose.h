/* SPDX-License-Identifier: MIT */
/* Which device, port and GID a rank uses. */
#ifndef SPMT_VERBS_CHOOSE_H
#define SPMT_VERBS_CHOOSE_H

#include <sched.h>

#include "api.h"

#define VERBS_SYS "/sys"

#define VERBS_NAME 64

/* A port, and how others address it. */
struct verbs_place {
	char name[VERBS_NAME];
	struct verbs_ctx *ctx; /* open; the caller's to close */
	struct verbs_port attr;
	struct verbs_device_attr device;
	union verbs_gid gid;
	int gid_index; /* -1: it has a LID and no GID to speak of */
	uint8_t port;
	bool ethernet;
};

/*
 * The rank's ports, `most` at most and *n > 0 of them: of those that SPMT_RDMA_DEVICE names, or else have an active port, the ones
 * nearest to `pci` in the machine, and where several are as near, those that are its part (verbs_turn). All have the link layer of the
 * first. On failure nothing is open, and the sentence says what there is.
 */
int verbs_choose(const struct verbs_api *api, int dev, const char *pci, int most,
	struct verbs_place *places, int *n);

/* How far an RDMA device is from a PCI device in the machine's tree, as hwloc sees it, too: by bridges where they have one in common, then
   by the NUMA node. `sys`: /sys. INT16_MAX: it has not both. */
int verbs_steps(const char *sys, const char *pci, const char *name);
/* The CPUs that are near an RDMA device, as `sys` lists them; false: it does not say. */
bool verbs_cpus(const char *sys, const char *name, cpu_set_t *cpus);
/* Which of several equally near ones a device uses: the number of devices of its kind before it on the machine's buses, so that it does not
   matter which of them a process sees. dev: used if `sys` lacks it. */
int verbs_turn(const char *sys, const char *pci, int dev);
/* Where among `near` equally near ones the device with this turn begins, taking `each` of them, so that all are taken equally often, and
   equally often first. Pure. */
int verbs_first(int turn, int each, int near);
/* Of two GIDs of a port, by type and what they name, the greater is to be preferred; 0: it cannot be used. Pure. */
int verbs_gid_rank(const union verbs_gid *gid, bool v2);
/* Whether `list` (SPMT_RDMA_DEVICE: "rxe0,mlx5_1:2") names the device, NULL: all; *port: 0 without one, -1: of no
   port. Pure. */
bool verbs_listed(const char *list, const char *name, int *port);

#endif
