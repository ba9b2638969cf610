/* SPDX-License-Identifier: MIT */
/* A kernel for each way to copy in bulk, for compilers of devices: device_bulk.sh looks at what they make of it. */
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

struct bulk_args {
	struct spmt_view view;
	char *dst, *src;
	size_t n;
	const int *pes;
	int count, pe;
};

ENTRY void bulk_by_warp(struct bulk_args a);
ENTRY void bulk_by_warp(struct bulk_args a)
{
	SHARED(room, ROOM);
	struct spmtd_bulk b;

	if (spmtd_bulk_begin_warp(&b, (void *)room, CHUNK, STAGES))
		return;
	spmtd_bulk_put_warp(&a.view, &b, a.dst, a.src, a.n, a.pe);
	spmtd_bulk_get_nbi_warp(&a.view, &b, a.dst, a.src, a.n, a.pe);
	spmtd_bulk_end_warp(&b);
}

ENTRY void bulk_by_thread(struct bulk_args a);
ENTRY void bulk_by_thread(struct bulk_args a)
{
	SHARED(room, ROOM);
	struct spmtd_bulk b;

	if (spmtd_bulk_begin(&b, (void *)room, CHUNK, STAGES))
		return;
	spmtd_bulk_put_many_nbi(&a.view, &b, a.dst, a.src, a.n, a.pes, a.count);
	spmtd_bulk_quiet(&b);
	spmtd_bulk_put_shared(&a.view, &b, a.dst, (const void *)room, CHUNK, a.pe);
	spmtd_bulk_end(&b);
}

/* Ordinary calls: by the engine where the program has asked for it, and else as ever. */
ENTRY void puts_by_view(struct bulk_args a);
ENTRY void puts_by_view(struct bulk_args a)
{
#if defined(SPMTD_BULK_BY_VIEW)
	SHARED(room, ROOM + 128);

	spmtd_view_bulk_warp(&a.view, (void *)room, ROOM + 128);
	spmtd_putmem_warp(&a.view, a.dst, a.src, a.n, a.pe);
	spmtd_view_bulk_end_warp(&a.view);
#else
	spmtd_putmem_warp(&a.view, a.dst, a.src, a.n, a.pe);
#endif
}

/* Every fold that the engine has. */
#define REDUCE(name, T, op)                           \
	spmtd_bulk_##name##_##op##_reduce_shared_nbi( \
		&a.view, &b, (T *)(void *)a.dst, (const T *)(const void *)a.src, a.n, a.pe);
#define REDUCE_FLOAT(name, T) REDUCE(name, T, sum) REDUCE(name, T, min) REDUCE(name, T, max)
#define REDUCE_INTEGER(name, T) \
	REDUCE_FLOAT(name, T)   \
	REDUCE(name, T, and) REDUCE(name, T, or) REDUCE(name, T, xor)

ENTRY void bulk_reductions(struct bulk_args a);
ENTRY void bulk_reductions(struct bulk_args a)
{
	SHARED(room, ROOM);
	struct spmtd_bulk b;

	if (spmtd_bulk_begin(&b, (void *)room, CHUNK, STAGES))
		return;
	REDUCE_INTEGER(int32, int32_t)
	REDUCE_INTEGER(uint32, uint32_t)
	REDUCE_INTEGER(int64, int64_t)
	REDUCE_INTEGER(uint64, uint64_t)
	REDUCE_FLOAT(float, float)
	REDUCE_FLOAT(double, double)
	REDUCE_FLOAT(half, uint16_t)
	REDUCE_FLOAT(bfloat16, uint16_t)
	spmtd_bulk_float_sum_reduce(
		&a.view, &b, (float *)(void *)a.dst, (const float *)(const void *)a.src, a.n, a.pe);
	spmtd_bulk_end(&b);
}
