/* SPDX-License-Identifier: MIT */
/*
 * The machine: what every target gives, by names that are the same on all of them, and all that the other parts and the
 * library's kernels are written over. Addresses are numbers (spmtd_at_, spmtd_to_).
 *
 * Accesses, for 8, 16, 32 and 64 bits (spmtd_load8_ ..); the first three rows also for a unit of 16 bytes (spmtd_load16b_,
 * struct spmtd_unit_), of which peek and poke access each half at once, but not both
 *	load store     any memory of the thread, ordinary
 *	gload gstore   device memory, ordinary
 *	peek poke      device memory, system scope, relaxed
 *	look           as peek, and acquires on NVIDIA and the host
 *	swap cas add and or xor   atomics, system scope, relaxed: the old value
 *	noret_add and or xor      the same without it (8 and 16 bits on GPUs: noret_swap as well)
 * On the host peek acquires and poke releases: it costs nothing there, and ThreadSanitizer, which
 * knows no fences, sees the order. Addresses are aligned but those of load and store on the host.
 *
 * Order, at system scope
 *	spmtd_order_      what this thread has accessed comes before what it accesses next
 *	spmtd_complete_   and its stores are in their places before it loads again
 *	spmtd_release_set_, spmtd_release_add_   a store or an add of 64 bits that releases
 *	spmtd_acquired_   after looks that have seen what they were for: acquires, where look does not
 *	spmtd_settle_     by each thread, before a meeting behind which one thread releases for all
 *
 * Threads
 *	spmtd_meet_warp_, spmtd_meet_block_   all threads of it wait for each other; memory of the block is in order
 *	spmtd_any_warp_, spmtd_any_block_     1 in all threads if x is not 0 in any
 *	spmtd_warp_size_
 * and on GPUs alone spmtd_tid_x_ and so on, spmtd_ntid_x_ and so on (view.h has what the host has too), and spmtd_clock_, in ns.
 *
 * Types
 *	SPMTD_TYPES(X)    X(name, C type, its bits' type, how many, how it compares) for each of the 11
 *	spmtd_NAME_bits_, spmtd_NAME_of_   a value as its bits, and back
 *
 * Names that end in an underscore, and macros SPMTD_, are for the parts of this header and for the library; programs have no
 * promise of them.
 */
#ifndef SPMTD_MACHINE_H
#define SPMTD_MACHINE_H

#include "amdgcn.h"
#include "host.h"
#include "narrow.h"
#include "nvptx.h"

SPMTD_BEGIN

/* The 11 types: name, C type, its bits as a number, how many, and how two of them compare: U, S
   or F. */
#define SPMTD_TYPES(X)                       \
	X(uint8, uint8_t, uint8_t, 8, U)     \
	X(int8, int8_t, uint8_t, 8, S)       \
	X(schar, signed char, uint8_t, 8, S) \
	X(uint16, uint16_t, uint16_t, 16, U) \
	X(int16, int16_t, uint16_t, 16, S)   \
	X(uint32, uint32_t, uint32_t, 32, U) \
	X(int32, int32_t, uint32_t, 32, S)   \
	X(uint64, uint64_t, uint64_t, 64, U) \
	X(int64, int64_t, uint64_t, 64, S)   \
	X(float, float, uint32_t, 32, F)     \
	X(double, double, uint64_t, 64, F)

#define SPMTD_BITS(name, T, U_, bits, kind)   \
	union spmtd_##name##_pun_ {           \
		T x;                          \
		U_ u;                         \
	};                                    \
	SPMTD_FN U_ spmtd_##name##_bits_(T x) \
	{                                     \
		union spmtd_##name##_pun_ p;  \
		p.x = x;                      \
		return p.u;                   \
	}                                     \
	SPMTD_FN T spmtd_##name##_of_(U_ u)   \
	{                                     \
		union spmtd_##name##_pun_ p;  \
		p.u = u;                      \
		return p.x;                   \
	}
SPMTD_TYPES(SPMTD_BITS)

#undef SPMTD_BITS

SPMTD_END

#endif
