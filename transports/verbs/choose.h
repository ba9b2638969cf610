/* SPDX-License-Identifier: MIT */
/* libibverbs, opened at run time for the life of the process, and which device, port and GID of it a rank uses. */
#ifndef SPMT_VERBS_CHOOSE_H
#define SPMT_VERBS_CHOOSE_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "abi/abi_verbs.h"

/* The library: api.c */

struct cache;
struct nic;

/* What this process has open of it, in pages that a forked child sees as zeros. */
struct verbs_state {
	pthread_mutex_t lock; /* guards all of it, and the opening and closing of ports */
	bool bound;
	struct verbs_api api; /* once bound: constant */
	struct nic *nics;
	pthread_mutex_t caches_lock; /* guards the list of them alone */
	struct cache *caches;
	_Atomic uint32_t failures; /* of connections */
};

/* NULL: no memory. */
struct verbs_state *verbs_state(void);

/* Whether it is worth while to look: a device, or a library that the user names. Opens nothing. */
bool verbs_likely(void);

/* Under the state's lock. A failure, with its sentence, is tried again the next time. */
int verbs_bind(struct verbs_state *state);

/* Its devices: choose.c */

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
/* Whether *list (SPMT_RDMA_DEVICE: "rxe0,mlx5_1:2") names the device, NULL: all; *port: 0 without one, -1: of no
   port. *list is then what comes behind that. Pure. */
bool verbs_listed(const char **list, const char *name, int *port);

#endif
