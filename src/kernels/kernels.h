/* SPDX-License-Identifier: MIT */
/*
 * The library's own kernels: C over spmt_device.h, compiled for the host into the core and, by clang-19, into device images. Each takes one struct
 * by value on GPUs, a pointer to a copy on the host. All are right for any grid and block size; that of collectives on GPUs for those of its coll_share.
 */
#ifndef SPMT_KERNELS_H
#define SPMT_KERNELS_H

#include "coll/table.h"
#include "src/device/device.h"
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
#include "src/base/tsan.h"
#define SPMTD_SEEN(word) tsan_acquire(word)
#define SPMTD_SHOWN(word) tsan_release(word)
#endif
#include "../../include/spmt_device.h"

/* clang-format off */
/* Kernels that fold, one for each loop of ll_fold.h, or each of sums and means of floats; `ll` and `ll12` have copies as well. X(name). */
#define COLL_PUSH2_KERNELS(X) X(u8) X(u16) X(u32) X(u64) X(f16) X(bf16) X(f32) X(f64)
#define COLL_FOLD_KERNELS(X) COLL_PUSH2_KERNELS(X) X(f8) X(mean8) X(mean16) X(mean32) X(mean64)
#define COLL_LL_KERNELS(X) X(copy) COLL_FOLD_KERNELS(X)
#define COLL_LL12_KERNELS(X) X(copy) COLL_PUSH2_KERNELS(X)
/* clang-format on */

/* No padding: virtual devices look for addresses in all bytes of a kernel's arguments. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
/* Bytes from src to dst (raw addresses), 16 at a time. */
struct kernel_copy_args {
	struct spmt_view view;
	uint64_t dst, src, size;
	int32_t wake; /* pe whose sleepers to wake, -1: none */
	int32_t unused;
};
/* A signal: op is enum spmt_signal_op; `sig` this rank's symmetric address or, if raw, an address. */
struct kernel_signal_args {
	struct spmt_view view;
	uint64_t sig, value;
	int32_t op, pe;
};
/* Holds the stream until *sig compares; cmp is enum spmt_cmp. */
struct kernel_wait_args {
	struct spmt_view view;
	uint64_t sig, value;
	int32_t cmp, unused;
};
/* One atomic by one thread; the old value goes to `fetched` (raw, 8 bytes, may be 0). operand and compare in the low bytes. pe < 0: the
   target is raw, and nobody is woken. */
struct kernel_atomic_args {
	struct spmt_view view;
	uint64_t target, operand, compare, fetched;
	int32_t amo, type, pe, unused;
};
/* What a rank's collectives and barriers leave for its host, in memory that both see; the address of one in `report`, 0: none. Apart from
   the record of waits, which a user's kernel may have filled. */
struct kernel_report {
	struct spmtd_record differs; /* calls did: nothing was moved, and the comm goes on */
	/* the comm is: of a collective `expected` is its key; then npes bytes, not 0: that rank was missing */
	struct spmtd_record broke;
	uint64_t told; /* not 0: `broke` and all that belongs to it is there */
};
struct kernel_barrier_args {
	struct spmt_view view;
	uint64_t report;
	int32_t plan, alone; /* not 0: a plan's, as the report tells; as a collective's */
};
#include "coll/share.h"
/*
 * `algorithm` is the number of a row of coll/table.h, equal on all ranks. `key` folds the call's arguments; a peer's key that differs
 * ends the collective with SPMT_ERR_MISMATCH, nothing moved, on all ranks alike, and the comm if the highest bit of any of the keys says
 * so. A call may be cut into parts: those behind the first do not take place where the one before differed.
 */
#define COLL_KEY_BREAKS (1ull << 63)
/* An op after those of enum spmt_op: the sum of what each rank gives, times that rank's own factor. */
#define COLL_PREMUL 8
/* Where that lies: at `at`, and `bits` is its size; 0: it is in the low bytes of `bits`. Of the call's type. */
struct coll_factor {
	uint64_t at, bits;
};
struct kernel_collective_args {
	struct spmt_view view;
	uint64_t dst, src;
	struct coll_factor factor; /* this rank's, of COLL_PREMUL; a caller's addresses end here */
	uint64_t key, report, bytes; /* of a block */
	int32_t algorithm, type, op;
	struct coll_moves moves;
	uint32_t room;	   /* of a slot, equal on all ranks, a multiple of 16 */
	int32_t part;	   /* 0: the first */
	uint64_t fifo;	   /* of row copy: the address of a struct spmtd_fifo */
	uint16_t captured; /* into a graph: no host call checks the stop word at launch */
	uint16_t brief;	   /* of `ll`: a thread has one unit at most, of so many bytes; or 0 */
	uint16_t words;	   /* by which blocks meet, between two ranks, at most */
	uint16_t alone;	   /* no other comm's kernels want the device's units (kernel_behind) */
	struct coll_share share;
	struct coll_places places;
};
/*
 * A collective in which each pair of ranks has a count of its own, in elements of `size` bytes: for rank pe + first + i the
 * i-th span says where in src its elements begin and how many they are, for rank pe - first - i the same in dst. The
 * key of a pair is that of the call, with the count. `stage`, where ranks live in several processes: what is to be moved
 * passes through it, `room` bytes of each span at a time; where all give the same to everyone (moves.src_blocks 0), one
 * such part is for all.
 */
#define COLL_SPANS 8
struct coll_span {
	uint64_t src_at, src_count, dst_at, dst_count;
};
struct kernel_collective_v_args {
	struct kernel_collective_args same;
	uint64_t size, stage, room; /* stage 0: peers load from src itself */
	int32_t first, spans;
	struct coll_span span[COLL_SPANS];
};
/* Around a part: `blocks` blocks of `bytes` bytes at these distances. */
struct kernel_stage_args {
	struct spmt_view view;
	uint64_t dst, dst_step, src, src_step, blocks, bytes;
	int32_t behind, unused; /* behind: a part of this call has run: not if that differed */
};
#include "plan.h"
#pragma GCC diagnostic pop

extern const struct kernel kernel_copy, kernel_signal, kernel_wait, kernel_atomic, kernel_barrier,
	kernel_collective, kernel_collective_v, kernel_plan, kernel_stage, kernel_give,
	kernel_ll12_copy, kernel_ll12_pair_copy, kernel_ll12_odd_copy;
#define X(name) extern const struct kernel kernel_ll_##name, kernel_ll_brief_##name;
COLL_LL_KERNELS(X)
#undef X
#define X(name) extern const struct kernel kernel_twoshot_##name, kernel_ll_abreast_##name;
COLL_FOLD_KERNELS(X)
#undef X
#define X(name) extern const struct kernel kernel_push2_##name, kernel_ll12_##name;
COLL_PUSH2_KERNELS(X)
#undef X
#define X(name) extern const struct kernel kernel_ll12_pair_##name, kernel_ll12_odd_##name;
COLL_PUSH2_KERNELS(X)
#undef X
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
uint16_t coll_brief(const struct kernel_collective_args *args, int npes, uint32_t threads);
/* By the call's algorithm, type and op. */
const struct kernel *kernel_of_collective(const struct kernel_collective_args *args);
/* One rank's part of a collective at peers, on the host, once all ranks have come and until none has gone: of the view pe, npes and own are
   needed, and there the inboxes with everybody's src and dst. */
void coll_here(const struct kernel_collective_args *args);
/* Before that, for each rank: leaves its factor there, of COLL_PREMUL. */
void coll_here_factor(const struct kernel_collective_args *args);
#endif

#endif
