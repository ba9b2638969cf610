/* SPDX-License-Identifier: MIT */
/* What is compared, by libspmt. Also for clang as C. */
#define SPMT_NEAR /* as the others, which go to GPUs of one node here */
#include "../../include/spmt_device.h"

#if defined(__CUDACC__)
#define OP static __device__ __forceinline__
#else
#define OP static inline __attribute__((always_inline, unused))
#endif

struct place {
	struct spmt_view view;
	struct spmt_channel channel; /* ranks 0 and 1: to each other */
};

#include "job.cuh"

#define DEFINE_SPMT_OPS(scope, suffix)                                                          \
	OP void put_##scope(const struct job *j, char *dst, const char *src, uint64_t n)        \
	{                                                                                       \
		spmtd_putmem##suffix(&j->place.view, dst, src, n, j->peer);                     \
	}                                                                                       \
	OP void get_##scope(const struct job *j, char *dst, const char *src, uint64_t n)        \
	{                                                                                       \
		spmtd_getmem##suffix(&j->place.view, dst, src, n, j->peer);                     \
	}                                                                                       \
	OP void quiet_##scope(const struct job *j)                                              \
	{                                                                                       \
		(void)spmtd_quiet##suffix(&j->place.view);                                      \
	}                                                                                       \
	OP void put_signal_##scope(const struct job *j, char *dst, const char *src, uint64_t n, \
		uint64_t *sig, uint64_t value)                                                  \
	{                                                                                       \
		spmtd_putmem_signal##suffix(                                                    \
			&j->place.view, dst, src, n, sig, value, SPMT_SIGNAL_SET, j->peer);     \
	}                                                                                       \
	OP int sync_##scope(const struct job *j, uint64_t epoch)                                \
	{                                                                                       \
		(void)epoch;                                                                    \
		return spmtd_sync##suffix(&j->place.view);                                      \
	}                                                                                       \
	OP int barrier_##scope(const struct job *j, uint64_t epoch)                             \
	{                                                                                       \
		(void)epoch;                                                                    \
		return spmtd_barrier##suffix(&j->place.view);                                   \
	}
DEFINE_SPMT_OPS(thread, )
DEFINE_SPMT_OPS(warp, _warp)
DEFINE_SPMT_OPS(block, _block)

OP int wait_signal(const struct job *j, uint64_t *sig, uint64_t value)
{
	return spmtd_signal_wait_until(&j->place.view, sig, SPMT_CMP_GE, value);
}

OP void meet_thread(void)
{
}

OP void meet_block(void)
{
	__syncthreads();
}

OP void amo_add(const struct job *j, uint64_t *word, uint64_t value)
{
	spmtd_uint64_atomic_add(&j->place.view, word, value, j->peer);
}

OP uint64_t amo_fetch_add(const struct job *j, uint64_t *word, uint64_t value)
{
	return spmtd_uint64_atomic_fetch_add(&j->place.view, word, value, j->peer);
}
