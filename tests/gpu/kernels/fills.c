/* SPDX-License-Identifier: MIT */
#include "fills.h"

KERNEL_BODY run_fills(const struct fills_args *a)
{
	uint64_t mine = a->run + 8 * (uint64_t)kernel_block();

	/* one looks, so that the device's memory is left to others; the rest keep their places */
	if (spmtd_tid_() == 0) {
		spmtd_poke64_(mine, 1);
		while (!spmtd_peek64_(a->end))
			;
	}
	spmtd_meet_block_();
}
TEST_KERNEL(fills)
