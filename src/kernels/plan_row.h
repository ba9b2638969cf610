/* SPDX-License-Identifier: MIT */
/* The kernel that runs a plan as a row of the collectives. */
#ifndef SPMT_KERNELS_PLAN_ROW_H
#define SPMT_KERNELS_PLAN_ROW_H

#include "kernels.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
/*
 * `apart`: ranks touch nothing of each other's but packets and words, which are the library's: no rank waits for the others at its end, as by
 * slots. `closed`: nor where a rank has waited for signals of all that have touched its memory. The input, `bytes` of it, is to be copied
 * first where `from` is not `to`, where the plan finds it.
 */
struct kernel_plan_row_args {
	struct kernel_collective_args same;
	struct plan_given plan;
	uint64_t from, to, bytes;
	int32_t apart, closed;
};
#pragma GCC diagnostic pop

extern const struct kernel kernel_plan_row;

#endif
