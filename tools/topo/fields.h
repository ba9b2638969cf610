/* SPDX-License-Identifier: MIT */
/*
 * What a recording holds: one table a kind of line, for reader and writer alike.
 *
 * The recording is text. Its first line is "spmt-topo 1", then a line an item: words in pairs of
 * key and value, the first of which says what it is. Items belong to the host line above them,
 * ranks to host number `on`.
 *
 *	host NAME cpus N
 *	numa N cpus N memory SIZE
 *	device INDEX backend NAME [ordinal N] [name TEXT] [arch TEXT] [pci BDF] [numa N]
 *	       [memory SIZE] [units N] [threshold SIZE] [uuid HEX] [ipc yes]    (on one line)
 *	nic NAME [pci BDF] [numa N] [gbits N] [rdma yes]
 *	peers RANGE to RANGE link unknown|host|pcie|xgmi|nvlink [refused TEXT]
 *	ranks RANGE devices RANGE [on N] [process N]
 *
 * RANGE is N or N-M of device indices; a rank line's device range has one device a rank, or one for
 * all. SIZE takes K, M, G, T. TEXT with blanks stands in double quotes. A line that begins with #
 * is a comment.
 */
#ifndef SPMT_TOPO_FIELDS_H
#define SPMT_TOPO_FIELDS_H

#include "topo.h"

/* Of fields that stay unwritten then; no number or size that is read equals it. */
#define TOPO_UNSET UINT64_MAX

enum topo_kind { TOPO_TEXT, TOPO_NUMBER, TOPO_SIZE, TOPO_UUID, TOPO_YES, TOPO_LINK, TOPO_RANGE };

struct topo_field {
	const char *key;
	size_t offset, size;
	uint64_t def; /* numbers, where the key is missing */
	enum topo_kind kind;
	bool required;
};

/* A line of ranks, which are kept one by one. */
struct topo_ranks {
	int ranks[2], devices[2];
	uint64_t on, process;
};

/* Where a table ends is part of its type, so that ARRAY_SIZE works on both sides. */
extern const struct topo_field topo_host_fields[2];
extern const struct topo_field topo_numa_fields[3];
extern const struct topo_field topo_device_fields[12];
extern const struct topo_field topo_nic_fields[5];
extern const struct topo_field topo_peers_fields[4];
extern const struct topo_field topo_ranks_fields[4];

extern const char topo_suffixes[5]; /* of sizes: powers of 1024 from the first */

bool topo_is_number(enum topo_kind kind); /* the member is a uint64_t */

/* Position of device 0 of a host, and how many it has. */
int topo_host_devices(const struct topo *topo, uint64_t host, int *n);

/* Adds a zeroed item to one of the lists of a topo under construction: *list has *n of them.
   NULL: no memory. */
void *topo_add(void *list, int *n, size_t each);

#endif
