/* SPDX-License-Identifier: MIT */
/* Kernels as a user writes them, as C, CUDA or HIP; device_header.sh compiles them for every
   target and reads what came out. */
#include "spmt_device.h"

#if defined(__cplusplus)
#define ENTRY extern "C"
#else
#define ENTRY
#endif
#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define KERNEL ENTRY __global__ void
#elif defined(__CUDA__) || defined(__CUDACC__) || defined(__HIP__)
#define KERNEL ENTRY __attribute__((global)) void
#elif defined(__AMDGCN__)
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected"))) void
#elif defined(__NVPTX__)
#define KERNEL __attribute__((nvptx_kernel)) void
#else
#define KERNEL ENTRY void
#endif

struct args {
	struct spmt_view v;
	struct spmt_mem_view m;
	char *dst;
	const char *src;
	size_t n;
	uint64_t *sig;
	int *rc;
	int pe;
};

#define EACH(name)                  \
	KERNEL name(struct args a); \
	KERNEL name(struct args a)

EACH(put_thread)
{
	spmtd_putmem(&a.v, a.dst, a.src, a.n, a.pe);
}

EACH(get_thread)
{
	spmtd_getmem(&a.v, a.dst, a.src, a.n, a.pe);
}

EACH(put_block)
{
	spmtd_putmem_signal_block(&a.v, a.dst, a.src, a.n, a.sig, 1, SPMT_SIGNAL_ADD, a.pe);
	a.rc[0] = spmtd_signal_wait_until(&a.v, a.sig, SPMT_CMP_GE, 1);
}

EACH(get_warp)
{
	spmtd_mem_double_get_nbi_warp(&a.v, (double *)(void *)a.dst, &a.m, 16, a.n, a.pe);
	a.rc[0] = spmtd_quiet_warp(&a.v);
}

EACH(meet)
{
	a.rc[0] = spmtd_barrier_block(&a.v);
	a.rc[1] = spmtd_sync_warp(&a.v);
	spmtd_sync_arrive(&a.v);
	a.rc[2] = spmtd_sync_wait(&a.v);
}

EACH(words)
{
	size_t index = 0;

	a.rc[0] = spmtd_int16_atomic_fetch_add(&a.v, (int16_t *)(void *)a.dst, -3, a.pe);
	spmtd_uint64_atomic_xor(&a.v, a.sig, 5, a.pe);
	spmtd_double_atomic_add(&a.v, (double *)(void *)a.dst, 1, a.pe);
	spmtd_float_atomic_inc(&a.v, (float *)(void *)a.dst, a.pe);
	spmtd_half_atomic_add(&a.v, (uint16_t *)(void *)a.dst, 0x3c00, a.pe);
	spmtd_bfloat16_pair_atomic_add(&a.v, (uint32_t *)(void *)a.dst,
		spmtd_bfloat16_atomic_fetch_add(&a.v, (uint16_t *)(void *)a.dst, 1, a.pe), a.pe);
	spmtd_float_p(
		&a.v, (float *)(void *)a.dst, spmtd_float_g(&a.v, (float *)(void *)a.dst, 0), a.pe);
	a.rc[1] = spmtd_float_wait_until_any(
		&a.v, (float *)(void *)a.dst, a.n, (const int *)0, SPMT_CMP_GT, -1.5f, &index);
	a.rc[2] = (int)index;
}

EACH(packets)
{
	spmtd_put_packets_block(&a.v, a.dst, a.src, a.n, 3, a.pe);
	a.rc[0] = spmtd_forward_packets8_warp(&a.v, a.dst, a.dst, a.src, a.n, 3, a.pe);
}

EACH(together)
{
	a.rc[0] = spmtd_float_sum_all_reduce_at_block(
		&a.v, (float *)(void *)a.dst, (const float *)(const void *)a.src, a.n, 2);
	a.rc[1] = spmtd_all_gathermem_warp(&a.v, a.dst, a.src, a.n);
	a.rc[2] = spmtd_barrier_at_block(&a.v, (uint32_t)a.pe);
}

EACH(lines)
{
	a.rc[0] = spmtd_put_lines_block(&a.v, a.dst, a.src, a.n, 3, a.pe);
	a.rc[1] = spmtd_get_lines_warp(&a.v, a.dst, a.src, a.n, 3);
	a.rc[2] = spmtd_forward_lines_block(&a.v, a.dst, a.dst, a.src, a.n, 3, a.pe);
}
