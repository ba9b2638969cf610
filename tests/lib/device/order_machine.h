/* SPDX-License-Identifier: MIT */
/*
 * The device header as GPUs have it, over order_model.h in the place of their machines: for programs that include this before it, and the
 * library's kernels behind it.
 */
#ifndef TESTS_ORDER_MACHINE_H
#define TESTS_ORDER_MACHINE_H

#include "order_access.h"

SPMTD_FN void spmtd_meet_block_(void)
{
	(void)order_meet(0);
}

SPMTD_FN int spmtd_any_block_(int x)
{
	return order_meet(x);
}

/* Nothing that is run here is done by warps. */
SPMTD_FN void spmtd_meet_warp_(void)
{
	__builtin_trap();
}

SPMTD_FN int spmtd_any_warp_(int x)
{
	__builtin_trap();
	return x;
}

SPMTD_FN uint32_t spmtd_warp_size_(void)
{
	return 32;
}

SPMTD_FN uint64_t spmtd_clock_(void)
{
	return 0;
}

#define ORDER_PLACE(axis, tid, ntid)                 \
	SPMTD_FN uint32_t spmtd_tid_##axis##_(void)  \
	{                                            \
		return tid;                          \
	}                                            \
	SPMTD_FN uint32_t spmtd_ntid_##axis##_(void) \
	{                                            \
		return ntid;                         \
	}
ORDER_PLACE(x, order_self.tid, order_self.threads)
ORDER_PLACE(y, 0, 1)
ORDER_PLACE(z, 0, 1)

#include "spmt_device.h"

/* What kernels access, and find their place, by these, which are other functions on the host. */
#include "src/kernels/entry.h"
#include "src/kernels/fold/unit.h"

static inline union unit order_fetch(uint64_t a, uint32_t n)
{
	union unit u = { .words = { 0, 0 } };

	order_load(a, &u, n, ORDER_WEAK);
	return u;
}
#define fetch(a, n) order_fetch(a, n)
#define place(a, u, n)                                         \
	do {                                                   \
		const union unit order_unit_ = (u);            \
                                                               \
		order_store(a, &order_unit_, (n), ORDER_WEAK); \
	} while (0)

#define kernel_block() order_self.block
#define kernel_blocks() order_self.blocks
#define kernel_lane() (order_self.block * order_self.threads + order_self.tid)
#define kernel_lanes() (order_self.blocks * order_self.threads)

#endif
