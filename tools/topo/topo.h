/* SPDX-License-Identifier: MIT */
/*
 * A machine described as plain data: hosts, devices, NICs, NUMA nodes, what each pair of devices
 * can do, and where ranks run. It is loaded from the machine at hand only when asked for (it takes
 * tens of milliseconds), or read back from a recording, so that routes can be looked at for
 * machines that are not here (topo/fields.h: what a recording holds).
 */
#ifndef SPMT_TOPO_H
#define SPMT_TOPO_H

#include "src/device/device.h"

#define TOPO_VERSION 1
#define TOPO_NAME 64
#define TOPO_WORD 16

/* The most that a recording may hold, bytes of text included. */
enum topo_limits {
	TOPO_MAX_HOSTS = 1024,
	TOPO_MAX_DEVICES = 4096,
	TOPO_MAX_NICS = 4096,
	TOPO_MAX_NUMAS = 4096,
	TOPO_MAX_PEERS = 65536,
	TOPO_MAX_RANKS = 4096,
	TOPO_MAX_TEXT = 8 << 20
};

enum topo_link {
	TOPO_LINK_UNKNOWN,
	TOPO_LINK_HOST,
	TOPO_LINK_PCIE,
	TOPO_LINK_XGMI,
	TOPO_LINK_NVLINK
};

struct topo_host {
	char name[TOPO_NAME];
	uint64_t cpus;
};

struct topo_numa {
	int host;
	uint64_t node, cpus, memory;
};

struct topo_device {
	int host;
	uint64_t index;			       /* among the devices of its host */
	uint64_t ordinal, numa, memory, units; /* numa: TOPO_NO_NUMA if unknown */
	uint64_t threshold; /* largest put by stores; UINT64_MAX: no copy engine */
	char backend[8], name[TOPO_NAME], arch[32], pci[TOPO_WORD];
	unsigned char uuid[16]; /* zeros: none */
	uint64_t ipc;		/* 1: shares memory between processes */
};
#define TOPO_NO_NUMA UINT64_MAX

struct topo_nic {
	int host;
	char name[32], pci[TOPO_WORD];
	uint64_t numa, gbits, rdma; /* gbits: 0 unknown */
};

/* All pairs (from, to) of two ranges of devices of one host, last included; a later rule
   overrides an earlier one. */
struct topo_peers {
	int from[2], to[2];	    /* positions in topo.devices */
	uint64_t link;		    /* enum topo_link */
	char reason[DEVICE_REASON]; /* why access is refused; "": it is granted */
};

struct topo_rank {
	int device;	  /* position in topo.devices */
	uint64_t process; /* number within its host */
};

struct topo {
	struct topo_host *hosts;
	struct topo_numa *numas;
	struct topo_device *devices;
	struct topo_nic *nics;
	struct topo_peers *peers;
	struct topo_rank *ranks; /* none: rank i on device i, one process a host */
	int nhosts, nnumas, ndevices, nnics, npeers, nranks;
};

/* The machine at hand; loaded at the first call, valid while the process lives. Changes no
   affinity and no signal. */
int topo_get(const struct topo **topo);

/*
 * Reads a recording. `name` stands for it in sentences, which name the line. -EINVAL: not
 * understood; -E2BIG: above a limit; -ENOMEM. The result is the caller's to topo_free.
 */
int topo_parse(const char *text, size_t size, const char *name, struct topo **topo);
int topo_read(const char *path, struct topo **topo);
void topo_free(struct topo *topo); /* NULL is fine */

/* The recording of a topo as text, NUL-terminated, to be freed with mem_free. topo_parse gives
   the same topo again. */
int topo_format(const struct topo *topo, char **text);

/* The rule for a pair of devices, or NULL: nothing is known (one device, or two hosts,
   included). */
const struct topo_peers *topo_peers(const struct topo *topo, int from, int to);
const char *topo_link_name(enum topo_link link);

/* Ranks, the default layout included. */
int topo_nranks(const struct topo *topo);
struct topo_rank topo_rank(const struct topo *topo, int rank);

#endif
