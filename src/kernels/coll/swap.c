/* SPDX-License-Identifier: MIT */
/*
 * Blocks change places, in one buffer: of each pair of ranks each swaps one half of the two blocks, so that
 * both move as much, and every byte is read and written by one thread.
 */
#include "coll.h"
#include "src/kernels/fold/unit.h"

static inline void swap_units(uint64_t a, uint64_t b, uint64_t bytes)
{
	for (uint64_t at = 16 * (uint64_t)kernel_lane(); at < bytes;
		at += 16 * (uint64_t)kernel_lanes()) {
		uint32_t n = bytes - at < 16 ? (uint32_t)(bytes - at) : 16;
		union unit x = fetch(a + at, n), y = fetch(b + at, n);

		place(a + at, y, n);
		place(b + at, x, n);
	}
}

COLL_FN int coll_swap(struct coll *c)
{
	uint64_t half = c->bytes / 2 / 16 * 16, me = (uint64_t)(uint32_t)c->view->pe;
	int pe = c->args->moves.from;

	for (int i = 0; i < c->args->moves.froms; i++) {
		uint64_t mine = c->args->dst + (uint64_t)(uint32_t)pe * c->bytes;
		uint64_t theirs = area_inbox(c->view, pe)->dst + me * c->bytes;

		if (pe > c->view->pe)
			swap_units(mine, theirs, half);
		else if (pe < c->view->pe)
			swap_units(mine + half, theirs + half, c->bytes - half);
		pe = pe + 1 < c->view->npes ? pe + 1 : 0;
	}
	return 0;
}
