/* SPDX-License-Identifier: MIT */
/*
 * The tests' own kernels: C over spmt_device.h, compiled into device images and, for the host
 * backend, as plain functions. Each takes one struct by value on GPUs, a pointer to a copy on the
 * host, and is right for any grid and block, 1 x 1 included.
 */
#ifndef TESTS_GPU_KERNELS_H
#define TESTS_GPU_KERNELS_H

#include "../../../src/kernels/entry.h"
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
#include "../../../src/images.h"
#endif

struct device_image;
struct test_kernel {
	const char *name;
	void (*host)(void *args);
	const struct device_image *images; /* of the file it is in */
	const size_t *image_count;
};

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define TEST_KERNEL(name)                                       \
	KERNEL_ENTRY void test_##name(struct name##_args args); \
	KERNEL_ENTRY void test_##name(struct name##_args args)  \
	{                                                       \
		run_##name(&args);                              \
	}
#else
#define TEST_KERNEL(name)                                                                      \
	static void name##_on_host(void *args)                                                 \
	{                                                                                      \
		run_##name((const struct name##_args *)args);                                  \
	}                                                                                      \
	/* the build gives each file's images names of their own */                            \
	const struct test_kernel test_##name = { "test_" #name, name##_on_host, device_images, \
		&device_image_count };
#endif

/* Who makes one call. */
enum scope { BY_THREAD, BY_WARP, BY_BLOCK, SCOPES };

enum { GUARD = 64, SIDE = 18 };

/* ---- copies: many calls of one form, each with a misalignment and a slot of its own ---------- */

enum copy_form {
	PUT,
	PUT_NBI,
	GET,
	GET_NBI,
	PUT_SIGNAL,
	PUT_SIGNAL_NBI,
	COPY_FORMS, /* and the same on a registered buffer */
};

/*
 * Call c moves from src + its src shift to GUARD + its dst shift in slot c of dst. Sizes rise by
 * one every `each` calls. The remote side of the forms with mem is an offset in the buffer.
 */
struct copies_args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	uint64_t dst, src, sig; /* a signal word a call: 1 is added */
	uint64_t size, slot;
	uint32_t calls, each;
	int32_t pe, scope, form, on_mem;
};

/* SIDE * SIDE calls: every pair of shifts; fewer: pairs that differ in both. */
static inline uint32_t copies_dst_shift(uint32_t call)
{
	return call % SIDE;
}
static inline uint32_t copies_src_shift(uint32_t call, uint32_t each)
{
	return each == SIDE * SIDE ? call / SIDE % SIDE : (call * 5 + call / SIDE * 7) % SIDE;
}

/* ---- typed: one call of each form for each type ---------------------------------------------- */

enum typed_form {
	TYPED_PUT,
	TYPED_PUT_NBI,
	TYPED_GET,
	TYPED_GET_NBI,
	TYPED_P,
	TYPED_G,
	TYPED_FORMS
};

#define TYPES_BY_NAME(X)      \
	X(uint8, uint8_t)     \
	X(int8, int8_t)       \
	X(schar, signed char) \
	X(uint16, uint16_t)   \
	X(int16, int16_t)     \
	X(uint32, uint32_t)   \
	X(int32, int32_t)     \
	X(uint64, uint64_t)   \
	X(int64, int64_t)     \
	X(float, float)       \
	X(double, double)
#define X(name, T) TYPE_OF_##name,
enum type_of { TYPES_BY_NAME(X) TYPES_OF };
#undef X

/* count elements, from src to dst; the remote side is an offset in the buffer if on_mem. */
struct typed_args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	uint64_t dst, src, count;
	int32_t pe, scope, form, on_mem, type;
};

/* ---- locals: the local side on the stack and in the block's shared memory -------------------- */

/* Per size 1 .. 64: `get` from src to the stack (or shared memory), put from there to dst + 128
   * size. */
struct locals_args {
	struct spmt_view view;
	uint64_t dst, src;
	int32_t pe, shared;
};

/* ---- what a kernel found --------------------------------------------------------------------- */

struct outcome {
	uint64_t errors; /* 0: all is well; the rest tells of the first */
	int64_t code;	 /* what a call returned */
	uint64_t round, seen, expected;
};

static inline void outcome_add(
	uint64_t at, int code, uint64_t round, uint64_t seen, uint64_t expected)
{
	struct outcome *o = (struct outcome *)spmtd_to_(at);

	if (spmtd_add64_(spmtd_at_(&o->errors), 1))
		return;
	spmtd_poke64_(spmtd_at_(&o->code), (uint64_t)(int64_t)code);
	spmtd_poke64_(spmtd_at_(&o->round), round);
	spmtd_poke64_(spmtd_at_(&o->seen), seen);
	spmtd_poke64_(spmtd_at_(&o->expected), expected);
}

/* ---- signals: rounds of data and its signal round a ring of ranks ---------------------------- */

enum signal_form {
	SIGNAL_SET_FORM,
	SIGNAL_ADD_FORM,
	SIGNAL_NBI_FORM,
	SIGNAL_FENCE_FORM, /* put, fence, signal */
	SIGNAL_QUIET_FORM, /* put_nbi, quiet, signal */
	SIGNAL_FORMS
};

/* Each worker (thread, warp or block) has 2 slots of `words` words, a buffer, a signal and an
   acknowledgement of its own. */
struct signals_args {
	struct spmt_view view;
	uint64_t slots, buffers, sigs, acks, outcome;
	uint64_t words, rounds, done; /* rounds of earlier launches */
	int32_t to, from, scope, form;
};

/* ---- meetings: rounds of stores to all, a meeting, a look ------------------------------------ */

enum meet_form { MEET_BY_BARRIER, MEET_BY_SYNC, MEET_BY_HALVES, MEET_FORMS };

struct meetings_args {
	struct spmt_view view;
	uint64_t slots, outcome; /* 2 x npes words */
	uint64_t rounds, done;
	int32_t scope, form;
};

/* ---- atomics: all threads of all ranks on the words of one ----------------------------------- */

enum atomic_form {
	ATOMIC_ADD,
	ATOMIC_INC,
	ATOMIC_FETCH_ADD,
	ATOMIC_FETCH_INC,
	ATOMIC_SWAP,
	ATOMIC_CAS,
	ATOMIC_SET,
	ATOMIC_BITS, /* and or xor and their fetching forms, integers only */
	ATOMIC_FORMS
};

/* Operation k of this rank is its `first + k`th of all; `results` gets the old value as bits. */
struct atomics_args {
	struct spmt_view view;
	uint64_t target, results, outcome;
	uint64_t first;
	uint32_t threads, each; /* of this rank; operations a thread */
	int32_t pe, type, form;
};

/* ---- waits ----------------------------------------------------------------------------------- */

/* words: 6 of the type, one a compare. Puts what makes all six hold to pe, waits by every form,
   asks by every test. */
struct waits_args {
	struct spmt_view view;
	uint64_t words, outcome;
	int32_t pe, type;
};
/* What the six compare with, hold before, and hold after; the type's own when converted. Signed
   ones are below zero, too. */
static inline int waits_shift(int type)
{
	return type == TYPE_OF_uint8 || type == TYPE_OF_uint16 || type == TYPE_OF_uint32 ||
			type == TYPE_OF_uint64
		? 0
		: -6;
}
static inline int waits_before(int cmp, int type)
{
	return (cmp == SPMT_CMP_LT || cmp == SPMT_CMP_LE ? 9 : 1) + waits_shift(type);
}
static inline int waits_after(int type)
{
	return 5 + waits_shift(type);
}
static inline int waits_with(int cmp, int type)
{
	int with = 5;

	if (cmp == SPMT_CMP_NE)
		with = 1;
	else if (cmp == SPMT_CMP_GT)
		with = 3;
	else if (cmp == SPMT_CMP_LT)
		with = 7;
	return with + waits_shift(type);
}

/* One wait whose end is not sure; its code goes to code. */
enum hold_form {
	HOLD_SIGNAL,
	HOLD_WORD,
	HOLD_ANY,
	HOLD_SOME,
	HOLD_ALL,
	HOLD_SYNC,
	HOLD_BARRIER,
	HOLD_HALVES,
	HOLD_SECOND_HALF,
	HOLD_FORMS
};
struct hold_args {
	struct spmt_view view;
	uint64_t word, value, code; /* 4 words; code: one int64 */
	int32_t scope, form;
};

/* ---- the graph's step ------------------------------------------------------------------------ */

/* Checks the words that came, clears the signal, writes the next round's; the round is a word of
   the device. */
struct step_args {
	struct spmt_view view;
	uint64_t came, next, sig, round, outcome;
	uint64_t words;
	int32_t from;
};
static inline uint64_t step_value(int pe, uint64_t round, uint64_t i)
{
	return ((uint64_t)(uint32_t)pe << 48) + (round << 24) + i;
}

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_copies, test_typed, test_locals, test_signals, test_meetings,
	test_atomics, test_waits, test_hold, test_step;
#endif

/* ---- workers --------------------------------------------------------------------------------- */

/* The calling thread's scope among its like in the grid. Blocks are whole warps where warps
   work. */
static inline uint32_t worker(int scope)
{
	if (scope == BY_BLOCK)
		return kernel_block();
	return scope == BY_WARP ? kernel_lane() / spmtd_lanes_(SPMTD_WARP_) : kernel_lane();
}

static inline uint32_t workers(int scope)
{
	if (scope == BY_BLOCK)
		return kernel_blocks();
	return scope == BY_WARP ? kernel_lanes() / spmtd_lanes_(SPMTD_WARP_) : kernel_lanes();
}

#endif
