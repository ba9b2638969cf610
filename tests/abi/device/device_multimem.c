/* SPDX-License-Identifier: MIT */
/* A kernel for each way to use a switch channel, for compilers of devices: device_multimem.sh looks at what they make of it. */
#include "spmt_channel.h"

#if defined(__CUDACC__)
#define ENTRY extern "C" __global__
#else
#define ENTRY __attribute__((nvptx_kernel, visibility("default")))
#endif

struct switch_args {
	struct spmt_view view;
	struct spmt_switch all;
	char *dst, *src;
	size_t n;
};

#define KERNEL(name, T, op, OP)                                       \
	ENTRY void switch_##name##_##op(struct switch_args a);        \
	ENTRY void switch_##name##_##op(struct switch_args a)         \
	{                                                             \
		spmtd_switch_##name##_##op##_reduce_block(            \
			&a.view, &a.all, (T *)(void *)a.dst, 0, a.n); \
	}
SPMTD_TERM_TYPES(KERNEL)

ENTRY void switch_broadcast(struct switch_args a);
ENTRY void switch_broadcast(struct switch_args a)
{
	spmtd_switch_broadcast_block(&a.view, &a.all, 0, a.src, a.n);
}
