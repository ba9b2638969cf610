/* SPDX-License-Identifier: MIT */
/* Worlds made by hand for tests of the device header and the kernels: views over plain memory,
   no library below. */
#ifndef TESTS_PLAIN_VIEWS_H
#define TESTS_PLAIN_VIEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spmt_device.h"
#include "src/kernels/coll/share.h"

#define VIEWS_ROOM 2048u	/* of each slot for small collectives */
#define VIEWS_STAGE (32u << 10) /* behind the slots, for row push2 */

struct views {
	struct spmtd_host ops; /* first: a callback finds the world by it */
	int n;
	bool flat; /* views compute peer addresses; else they have a table */
	size_t heap, stride;
	char *memory;
	struct spmtd_peer *peers;
	struct spmtd_record *records;
	uint64_t *wakes; /* a rank: calls of wake() */
	uint32_t stop;
	uint64_t timeout_ns; /* of the views made from here on */
};

/* heap: bytes a rank, zeroed. A timeout of 10 s. 0 or -1. */
int views_open(struct views *w, int n, size_t heap, bool flat);
void views_close(struct views *w);
struct spmt_view view_of(const struct views *w, int pe);
char *views_heap(const struct views *w, int pe);
uint64_t views_wakes(const struct views *w, int pe);
/* pe's channel to peer: `local` and `remote` are offsets in their heaps, of n bytes. */
struct spmt_channel channel_of(const struct views *w, int pe, int peer, uint32_t index,
	size_t local, size_t remote, size_t n);
/* With a stage for row push2, in pieces of so many units: up to eight ranks of one block, or three of three, with 24. */
struct coll_places views_places(int n, uint32_t piece);
/* The buffer at `off` of every heap. */
struct spmt_switch switch_of(const struct views *w, int pe, size_t off, size_t n);

#endif
