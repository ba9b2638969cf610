/* SPDX-License-Identifier: MIT */
/* All_reduces as plans, made at random, and files of plans. */
#ifndef TESTS_ROW_PLANS_H
#define TESTS_ROW_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "spmt_plan.h"

enum {
	ROW_PLANS_RANKS = 4,
	ROW_PLANS_BLOCKS = 3,
	ROW_PLANS_CHUNKS = 4,
	ROW_PLANS_BYTES = 64 << 10,
	ROW_PLANS_NAME = 64
};

/*
 * A right one, equal for equal arguments: each chunk is folded by some block of some rank, to which it comes by puts, by packets or by its own
 * loads, and from which it goes to the others likewise; or by all of them, each block a part of it. `apart`: by packets alone. In place or not.
 * Ranks have from 1 to ROW_PLANS_BLOCKS blocks. Half of them are for inputs of ROW_PLANS_BYTES at the most. 0, or a call's code.
 */
int row_plans_random(uint64_t seed, int nranks, bool apart, spmt_plan **plan);
/* By packets alone, where all blocks of all ranks do the same, each with its slice: in one phase, in two, or handed on from rank to rank. Of
   some each block begins with another chunk. */
int row_plans_packets(uint64_t seed, int nranks, spmt_plan **plan);
/* In a file that goes with the process, and its children. 0, or -errno. */
int row_plans_file(const spmt_plan *plan, char name[ROW_PLANS_NAME]);

#endif
