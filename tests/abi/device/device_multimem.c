/* SPDX-License-Identifier: MIT */
/* A kernel for each way to use a switch channel, for compilers of devices: device_multimem.sh looks at what they make of it. */
#include "spmt_channel.h"

#if defined(__CUDACC__)
#define ENTRY extern "C" __global__
#define SHARED(name, n) __shared__ __attribute__((aligned(128))) unsigned char name[n]
#else
#define ENTRY __attribute__((nvptx_kernel, visibility("default")))
#define SHARED(name, n)        \
	static __attribute__(( \
		address_space(3), aligned(128), loader_uninitialized)) unsigned char name[n]
#endif

enum { CHUNK = 4096, STAGES = 4, ROOM = CHUNK * STAGES + 64 };

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

ENTRY void switch_bulk(struct switch_args a);
ENTRY void switch_bulk(struct switch_args a)
{
	SHARED(room, ROOM);
	struct spmtd_bulk b;

	if (spmtd_bulk_begin_warp(&b, (void *)room, CHUNK, STAGES))
		return;
	spmtd_bulk_broadcast_warp(&a.view, &b, &a.all, 0, a.src, a.n);
	spmtd_bulk_end_warp(&b);
}
