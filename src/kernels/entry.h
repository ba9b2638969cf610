/* SPDX-License-Identifier: MIT */
/*
 * How a kernel is entered: on GPUs by value, on the host by a pointer to a copy. KERNEL(name) makes
 * the entry spmt_kernel_<name> of run_<name>(const struct kernel_<name>_args *), which begin with a view; KERNEL_TAKING is for arguments that
 * several kernels have.
 */
#ifndef SPMT_KERNELS_ENTRY_H
#define SPMT_KERNELS_ENTRY_H

#include "kernels.h"

#define KERNEL_BODY static inline __attribute__((always_inline)) void

#if defined(__AMDGCN__) || defined(__NVPTX__)

#if defined(__AMDGCN__)
#define KERNEL_ENTRY __attribute__((amdgpu_kernel, visibility("protected")))
#else
#define KERNEL_ENTRY __attribute__((nvptx_kernel))
#endif
#define KERNEL_TAKING(name, type)                        \
	KERNEL_ENTRY void spmt_kernel_##name(type args); \
	KERNEL_ENTRY void spmt_kernel_##name(type args)  \
	{                                                \
		run_##name(&args);                       \
	}
#define KERNEL_TAKING_EARLY(name, type, early) KERNEL_TAKING(name, type)

#else

#define KERNEL_GIVEN(type)                                  \
	_Generic((type *)0, struct kernel_collective_args * \
		 : offsetof(struct kernel_collective_args, key), default : 0)
#define KERNEL_EARLY_ON_HOST(name, fn, type, early)                                      \
	const struct kernel kernel_##name = { "spmt_kernel_" #name, (fn), true, (early), \
		sizeof(struct spmt_view), KERNEL_GIVEN(type) };
#define KERNEL_TAKING_EARLY(name, type, early)       \
	static void name##_on_host(const void *args) \
	{                                            \
		run_##name((const type *)args);      \
	}                                            \
	KERNEL_EARLY_ON_HOST(name, name##_on_host, type, early)
#define KERNEL_TAKING(name, type) KERNEL_TAKING_EARLY(name, type, false)

#endif

#define KERNEL(name) KERNEL_TAKING(name, struct kernel_##name##_args)
/* One that waits by kernel_behind(). */
#define KERNEL_EARLY(name) KERNEL_TAKING_EARLY(name, struct kernel_##name##_args, true)

/* The calling block in its grid, and how many there are; grids have one dimension. */
static inline uint32_t kernel_block(void)
{
#if defined(__AMDGCN__)
	return __builtin_amdgcn_workgroup_id_x();
#elif defined(__NVPTX__)
	return (uint32_t)__nvvm_read_ptx_sreg_ctaid_x();
#else
	return 0;
#endif
}

static inline uint32_t kernel_blocks(void)
{
#if defined(__AMDGCN__)
	return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
#elif defined(__NVPTX__)
	return (uint32_t)__nvvm_read_ptx_sreg_nctaid_x();
#else
	return 1;
#endif
}

/*
 * Of a kernel that may begin before what is ahead of it in its stream has ended (struct kernel's `early`): called first, waits until
 * that has, and its stores are visible. From then on the next one may begin likewise, so that its launch overhead is over by the time
 * this one ends. Not sooner, or any number of them would wait on the device's units; and not where kernels of other comms, which each GPU may
 * begin in a different order, want the units that the next one would wait on (next 0). For the sake of other
 * streams the backend launches what needs more than half of the units the ordinary way. In images for GPUs that have it.
 */
static inline void kernel_behind(int next)
{
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
	__asm__ volatile("griddepcontrol.wait;" ::: "memory");
	if (next)
		__asm__ volatile("griddepcontrol.launch_dependents;" ::: "memory");
#else
	(void)next;
#endif
}

/* x, computed here: a compiler may not defer that past a wait. */
static inline uint64_t kernel_now(uint64_t x)
{
#if defined(__NVPTX__)
	__asm__ volatile("" : "+l"(x));
#endif
	return x;
}

/* The calling thread in its grid, and how many there are. */
static inline uint32_t kernel_lane(void)
{
	return kernel_block() * spmtd_threads_() + spmtd_tid_();
}

static inline uint32_t kernel_lanes(void)
{
	return kernel_blocks() * spmtd_threads_();
}

#endif
