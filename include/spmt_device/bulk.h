/* SPDX-License-Identifier: MIT */
/* Bulk copies: one thread or warp has the chip's own engine move bytes through shared memory (cp.async.bulk of sm_90). */
#ifndef SPMTD_BULK_H
#define SPMTD_BULK_H

#include "switch.h"

/*
 * SPMTD_BULK: defined where the chip has them and the compiler's PTX can say so: nvcc 12 or later, NVRTC, for sm_90 or later. clang does
 * not tell which PTX it writes; with one that writes 8.0 (-Xclang -target-feature -Xclang +ptx80) a program defines SPMTD_BULK itself.
 * SPMTD_BULK_SPREAD: likewise where the engine also stores to a switch's multicast, for which PTX has an instruction from 9.1 on: nvcc 13.1.
 * SPMTD_BULK_MODEL: a test has the engine's operations, and with SPMTD_MULTIMEM_MODEL that one, too.
 */
#if !defined(SPMTD_BULK) && defined(SPMTD_NVPTX) && defined(__CUDA_ARCH__) && \
	defined(__CUDACC_VER_MAJOR__)
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12
#define SPMTD_BULK 1
#endif
#endif

#if !defined(SPMTD_BULK_SPREAD) && defined(SPMTD_BULK) && defined(SPMTD_MULTIMEM_) && \
	defined(__CUDACC_VER_MAJOR__)
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1301
#define SPMTD_BULK_SPREAD 1
#endif
#endif
#if defined(SPMTD_BULK_MODEL) && defined(SPMTD_MULTIMEM_MODEL)
#define SPMTD_BULK_SPREAD 1
#endif

SPMTD_BEGIN

/* ---- bulk copies ---------------------------------------------------------------------------- */

/*
 * A thread, or a warp (_warp), takes shared memory of its block with begin, has it until end, and meanwhile copies with it: each chunk is
 * loaded into one of the stages and stored from there, several on their way at once, by an engine beside the threads. Where the chip has
 * none, sides are misaligned differently within 16 bytes, or the local side is not device memory, the same calls copy by loads and stores.
 *
 *	begin      stages (2 to 8) of `chunk` bytes (a power of two from 16 to 32768) in spmtd_bulk_room(chunk, stages) bytes of the block's
 *	           shared memory, at a multiple of 128. 0, or SPMTD_INVALID; then copies go by loads and stores. b is the thread's own, or
 *	           of each thread of the warp
 *	put, get   as spmtd_putmem, spmtd_getmem. _nbi: complete after spmtd_bulk_quiet; spmtd_quiet, spmtd_fence and signals do not know of
 *	           them before. Of a peer that has no address (fifo.h) _nbi forms wait as the others do
 *	copy       between addresses that this thread can load and store, as of spmtd_ptr, spmtd_mem_ptr or a channel: remote or local
 *	put_many   each chunk is loaded once and stored to `count` ranks
 *	broadcast  n bytes of src to every rank's buffer of a switch channel at off, its own included: each chunk is loaded once and stored to each
 *	           rank, or once, to the switch's multicast, where s has one (SPMTD_BULK_SPREAD); what the engine leaves goes as spmtd_switch_broadcast
 *	put_shared size bytes of the block's shared memory, without a stage; `src` and what dst is on pe are multiples of 16, and so is
 *	           n, or it goes by stores
 *	reduce, reduce_shared  by type and op: below
 *	quiet      completes what was begun with b, so that spmtd_quiet, spmtd_fence and signals behind it cover it
 *	end        quiet, and gives the shared memory back
 */
struct spmtd_bulk {
	uint64_t
		stages_at; /* in shared memory; the barriers of the stages lie behind them. 0: by loads and stores */
	uint32_t stage,
		parity; /* of the next load, and of the phase that ends it; the first thread's alone go on */
	uint32_t chunk, stages;
	uint32_t spread; /* 1: a multicast was stored to since the last quiet */
};

enum {
	SPMTD_BULK_STAGES_ = 8,
	SPMTD_BULK_CHUNK_ = 32768,
	SPMTD_BULK_ALIGN_ = 128,
	SPMTD_BULK_UNIT_ = 16
};

/* Bytes of shared memory for so many stages. */
SPMTD_FN size_t spmtd_bulk_room(uint32_t chunk, uint32_t stages)
{
	return (size_t)chunk * stages + SPMTD_BULK_STAGES_ * sizeof(uint64_t);
}

/* ---- bulk copies: the engine ---------------------------------------------------------------- */

/*
 * Its operations, all by one thread:
 *	engine_open_ close_   a stage's barrier, in shared memory
 *	engine_load_          n bytes of device memory into a stage; ends a phase of its barrier
 *	engine_loaded_        waits for the phase of this parity. The chip moves it: no peer has to do anything for it
 *	engine_store_         n bytes of shared memory to device memory; a group takes what was stored since the last
 *	engine_fold_          the same, folded element by element into what lies there (enum spmtd_engine_folds_)
 *	engine_spread_        as store_, to a switch's multicast
 *	engine_group_
 *	engine_read_          waits until all groups but the last `but` (0 to 3) have read their stages
 *	engine_done_          waits until all groups have stored
 *	engine_fence_         what this thread has seen of device memory, and the engine's accesses to it, in order
 *	engine_fence_shared_  the same of shared memory. (PTX's fence for both also waits for the whole GPU, 0.1 to 0.2 us.)
 *	engine_reaches_       1: the engine can load from, or store to, this address
 */
/* X(type, op, PTX's words): what it can fold. */
#define SPMTD_ENGINE_INTEGER(X, name, bits, type, add) \
	X(name, sum, "add." add)                       \
	X(name, min, "min." type)                      \
	X(name, max, "max." type)                      \
	X(name, and, "and.b" bits)                     \
	X(name, or, "or.b" bits)                       \
	X(name, xor, "xor.b" bits)
#define SPMTD_ENGINE_HALF(X, name, type) \
	X(name, sum, "add.noftz." type)  \
	X(name, min, "min." type)        \
	X(name, max, "max." type)
#define SPMTD_ENGINE_FOLDS(X)                               \
	SPMTD_ENGINE_INTEGER(X, int32, "32", "s32", "s32")  \
	SPMTD_ENGINE_INTEGER(X, uint32, "32", "u32", "u32") \
	SPMTD_ENGINE_INTEGER(X, int64, "64", "s64", "u64")  \
	SPMTD_ENGINE_INTEGER(X, uint64, "64", "u64", "u64") \
	SPMTD_ENGINE_HALF(X, half, "f16")                   \
	SPMTD_ENGINE_HALF(X, bfloat16, "bf16")              \
	X(float, sum, "add.f32")                            \
	X(double, sum, "add.f64")
enum spmtd_engine_folds_ {
	SPMTD_FOLD_NONE_,
#define SPMTD_ENGINE_FOLD(name, op, ptx) SPMTD_FOLD_##name##_##op##_,
	SPMTD_ENGINE_FOLDS(SPMTD_ENGINE_FOLD)
#undef SPMTD_ENGINE_FOLD
	/* by loads and stores */
	SPMTD_FOLD_float_min_ = SPMTD_FOLD_NONE_,
	SPMTD_FOLD_float_max_ = SPMTD_FOLD_NONE_,
	SPMTD_FOLD_double_min_ = SPMTD_FOLD_NONE_,
	SPMTD_FOLD_double_max_ = SPMTD_FOLD_NONE_
};

#if defined(SPMTD_BULK_MODEL)

void spmtd_engine_open_(uint64_t bar);
void spmtd_engine_close_(uint64_t bar);
void spmtd_engine_load_(uint64_t stage, uint64_t src, uint32_t n, uint64_t bar);
void spmtd_engine_loaded_(uint64_t bar, uint32_t parity);
void spmtd_engine_store_(uint64_t dst, uint64_t stage, uint32_t n);
void spmtd_engine_fold_(uint64_t dst, uint64_t stage, uint32_t n, int fold);
void spmtd_engine_group_(void);
void spmtd_engine_read_(uint32_t but);
void spmtd_engine_done_(void);
void spmtd_engine_fence_(void);
void spmtd_engine_fence_shared_(void);
int spmtd_engine_reaches_(uint64_t a);
#if defined(SPMTD_BULK_SPREAD)
void spmtd_engine_spread_(uint64_t dst, uint64_t stage, uint32_t n);
#endif

#elif defined(SPMTD_BULK)

SPMTD_FN uint32_t spmtd_shared_at_(uint64_t a)
{
	uint32_t s;

	SPMTD_PURE("{ .reg .u64 s; cvta.to.shared.u64 s, %1; cvt.u32.u64 %0, s; }"
		   : "=r"(s)
		   : "l"(a));
	return s;
}

SPMTD_FN void spmtd_engine_fence_(void)
{
	SPMTD_ASM("fence.proxy.async.global;" ::: "memory");
}

SPMTD_FN void spmtd_engine_fence_shared_(void)
{
	SPMTD_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

SPMTD_FN void spmtd_engine_open_(uint64_t bar)
{
	SPMTD_ASM("mbarrier.init.shared.b64 [%0], 1;" ::"r"(spmtd_shared_at_(bar)) : "memory");
}

SPMTD_FN void spmtd_engine_close_(uint64_t bar)
{
	SPMTD_ASM("mbarrier.inval.shared.b64 [%0];" ::"r"(spmtd_shared_at_(bar)) : "memory");
}

SPMTD_FN void spmtd_engine_load_(uint64_t stage, uint64_t src, uint32_t n, uint64_t bar)
{
	SPMTD_ASM(
		"{ .reg .u64 g; cvta.to.global.u64 g, %1; "
		"mbarrier.arrive.expect_tx.shared.b64 _, [%3], %2; "
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [g], %2, [%3]; }" ::
			"r"(spmtd_shared_at_(stage)),
		"l"(src), "r"(n), "r"(spmtd_shared_at_(bar))
		: "memory");
}

SPMTD_FN void spmtd_engine_loaded_(uint64_t bar, uint32_t parity)
{
	uint32_t s = spmtd_shared_at_(bar), done = 0;

	while (!done)
		SPMTD_ASM("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
			  "selp.u32 %0, 1, 0, p; }"
			  : "=r"(done)
			  : "r"(s), "r"(parity)
			  : "memory");
}

SPMTD_FN void spmtd_engine_store_(uint64_t dst, uint64_t stage, uint32_t n)
{
	SPMTD_ASM("{ .reg .u64 g; cvta.to.global.u64 g, %0; "
		  "cp.async.bulk.global.shared::cta.bulk_group [g], [%1], %2; }" ::"l"(dst),
		  "r"(spmtd_shared_at_(stage)), "r"(n)
		  : "memory");
}

SPMTD_FN void spmtd_engine_fold_(uint64_t dst, uint64_t stage, uint32_t n, int fold)
{
	switch (fold) {
#define SPMTD_ENGINE_FOLD(name, op, ptx)                                            \
	case SPMTD_FOLD_##name##_##op##_:                                           \
		SPMTD_ASM("{ .reg .u64 g; cvta.to.global.u64 g, %0; "               \
			  "cp.reduce.async.bulk.global.shared::cta.bulk_group." ptx \
			  " [g], [%1], %2; }" ::"l"(dst),                           \
			  "r"(spmtd_shared_at_(stage)), "r"(n)                      \
			  : "memory");                                              \
		break;
		SPMTD_ENGINE_FOLDS(SPMTD_ENGINE_FOLD)
#undef SPMTD_ENGINE_FOLD
	default:
		break;
	}
}

#if defined(SPMTD_BULK_SPREAD)
/* Of PTX's memory operations those of multimem alone may name such an address: cp.async.bulk may not. */
SPMTD_FN void spmtd_engine_spread_(uint64_t dst, uint64_t stage, uint32_t n)
{
	SPMTD_ASM(
		"{ .reg .u64 g; cvta.to.global.u64 g, %0; "
		"multimem.cp.async.bulk.global.shared::cta.bulk_group [g], [%1], %2; }" ::"l"(dst),
		"r"(spmtd_shared_at_(stage)), "r"(n)
		: "memory");
}
#endif

SPMTD_FN void spmtd_engine_group_(void)
{
	SPMTD_ASM("cp.async.bulk.commit_group;" ::: "memory");
}

SPMTD_FN void spmtd_engine_read_(uint32_t but)
{
	if (but == 0)
		SPMTD_ASM("cp.async.bulk.wait_group.read 0;" ::: "memory");
	else if (but == 1)
		SPMTD_ASM("cp.async.bulk.wait_group.read 1;" ::: "memory");
	else if (but == 2)
		SPMTD_ASM("cp.async.bulk.wait_group.read 2;" ::: "memory");
	else
		SPMTD_ASM("cp.async.bulk.wait_group.read 3;" ::: "memory");
}

SPMTD_FN void spmtd_engine_done_(void)
{
	SPMTD_ASM("cp.async.bulk.wait_group 0;" ::: "memory");
}

SPMTD_FN int spmtd_engine_reaches_(uint64_t a)
{
	int is;

	SPMTD_PURE("{ .reg .pred p; isspacep.global p, %1; selp.s32 %0, 1, 0, p; }"
		   : "=r"(is)
		   : "l"(a));
	return is;
}

#else

SPMTD_FN void spmtd_engine_open_(uint64_t bar)
{
	(void)bar;
}

SPMTD_FN void spmtd_engine_close_(uint64_t bar)
{
	(void)bar;
}

SPMTD_FN void spmtd_engine_load_(uint64_t stage, uint64_t src, uint32_t n, uint64_t bar)
{
	(void)stage, (void)src, (void)n, (void)bar;
}

SPMTD_FN void spmtd_engine_loaded_(uint64_t bar, uint32_t parity)
{
	(void)bar, (void)parity;
}

SPMTD_FN void spmtd_engine_store_(uint64_t dst, uint64_t stage, uint32_t n)
{
	(void)dst, (void)stage, (void)n;
}

SPMTD_FN void spmtd_engine_fold_(uint64_t dst, uint64_t stage, uint32_t n, int fold)
{
	(void)dst, (void)stage, (void)n, (void)fold;
}

SPMTD_FN void spmtd_engine_group_(void)
{
}

SPMTD_FN void spmtd_engine_read_(uint32_t but)
{
	(void)but;
}

SPMTD_FN void spmtd_engine_done_(void)
{
}

SPMTD_FN void spmtd_engine_fence_(void)
{
}

SPMTD_FN void spmtd_engine_fence_shared_(void)
{
}

/* Nothing: so all goes by loads and stores. */
SPMTD_FN int spmtd_engine_reaches_(uint64_t a)
{
	(void)a;
	return 0;
}

#endif

/* ---- bulk copies: stages -------------------------------------------------------------------- */

SPMTD_FN uint64_t spmtd_bulk_stage_(const struct spmtd_bulk *b, uint32_t stage)
{
	return b->stages_at + (uint64_t)stage * b->chunk;
}

SPMTD_FN uint64_t spmtd_bulk_bar_(const struct spmtd_bulk *b, uint32_t stage)
{
	return spmtd_bulk_stage_(b, b->stages) + stage * sizeof(uint64_t);
}

/* To the next stage; its barrier's phases take turns. Without a division, which takes longer than a small copy's first chunk. */
SPMTD_FN void spmtd_bulk_next_(const struct spmtd_bulk *b, uint32_t *stage, uint32_t *parity)
{
	if (++*stage == b->stages) {
		*stage = 0;
		*parity ^= 1;
	}
}

/* Where it goes: one address, the same offset of several ranks, or of all buffers of a switch. */
struct spmtd_bulk_to_ {
	const struct spmt_view *v;
	const int *pes;		       /* NULL: one, or all */
	const struct spmt_switch *all; /* not NULL: all */
	uint64_t dst; /* its address; or this rank's symmetric one; or of all an offset */
	int32_t count;
	int32_t fold; /* of one: enum spmtd_engine_folds_ */
};

/* 1: by the switch's multicast. */
SPMTD_FN int spmtd_bulk_spreads_(const struct spmt_switch *s)
{
#if defined(SPMTD_BULK_SPREAD)
	return s->multicast != 0;
#else
	(void)s;
	return 0;
#endif
}

/* at_off: in every rank's buffer. */
SPMTD_FN void spmtd_bulk_store_all_(
	const struct spmt_switch *s, uint64_t at_off, uint64_t at, uint32_t n)
{
#if defined(SPMTD_BULK_SPREAD)
	if (s->multicast) {
		spmtd_engine_spread_(s->multicast + at_off, at, n);
		return;
	}
#endif
	SPMTD_ROLLED for (int i = 1; i <= s->npes; i++)
	{
		int pe = i < s->npes - s->pe ? s->pe + i : s->pe + i - s->npes;

		spmtd_engine_store_(spmtd_switch_there_(s, pe) + at_off, at, n);
	}
}

SPMTD_FN void spmtd_bulk_store_(
	const struct spmtd_bulk_to_ *to, uint64_t off, uint64_t at, uint32_t n)
{
	if (to->all)
		spmtd_bulk_store_all_(to->all, to->dst + off, at, n);
	else if (!to->pes && to->fold)
		spmtd_engine_fold_(to->dst + off, at, n, to->fold);
	else if (!to->pes)
		spmtd_engine_store_(to->dst + off, at, n);
	for (int i = 0; to->pes && i < to->count; i++)
		spmtd_engine_store_(
			spmtd_there_(to->v, spmtd_to_(to->dst), to->pes[i]) + off, at, n);
	spmtd_engine_group_();
}

/*
 * n bytes from off on, whole units, by one thread: loads run `ahead` chunks before stores. A stage is loaded again when the store before has read it:
 * with `ahead` loads not yet stored, all groups but the last stages - ahead - 1 have. What is counted has 32 bits: the first load waits for all
 * that comes before it here, and the end of a small copy for its loop.
 */
SPMTD_FN void spmtd_bulk_run_(struct spmtd_bulk *b, const struct spmtd_bulk_to_ *to, uint64_t src,
	uint64_t off, uint32_t n)
{
	uint32_t ahead = b->stages / 2, flying = 0;    /* loads that are not yet stored */
	uint32_t stage = b->stage, parity = b->parity; /* of the next store */
	uint32_t loaded = 0, stored = 0;

	SPMTD_ROLLED while (stored < n)
	{
		if (loaded < n && flying <= ahead) {
			uint32_t bytes = n - loaded < b->chunk ? n - loaded : b->chunk;

			spmtd_engine_read_(b->stages - ahead - 1);
			spmtd_engine_load_(spmtd_bulk_stage_(b, b->stage), src + off + loaded,
				bytes, spmtd_bulk_bar_(b, b->stage));
			spmtd_bulk_next_(b, &b->stage, &b->parity);
			loaded += bytes;
			flying++;
		} else {
			uint32_t bytes = n - stored < b->chunk ? n - stored : b->chunk;

			spmtd_engine_loaded_(spmtd_bulk_bar_(b, stage), parity);
			spmtd_bulk_store_(to, off + stored, spmtd_bulk_stage_(b, stage), bytes);
			spmtd_bulk_next_(b, &stage, &parity);
			stored += bytes;
			flying--;
		}
	}
}

/* The engine has done all that it was given, and what follows is behind it, also where others see it by their own addresses. */
SPMTD_FN void spmtd_bulk_settle_(struct spmtd_bulk *b, int scope)
{
	if (b->stages_at && spmtd_lane_(scope) == 0) {
		spmtd_engine_done_();
		spmtd_engine_fence_();
#if defined(SPMTD_BULK_SPREAD)
		if (b->spread)
			spmtd_multimem_fence_();
#endif
	}
	b->spread = 0;
	spmtd_meet_(scope);
}

SPMTD_FN void spmtd_bulk_wake_(const struct spmtd_bulk_to_ *to)
{
	for (int i = 0; i < to->count; i++)
		spmtd_wake_(to->v, to->pes[i]);
}

/* By loads and stores: `n` bytes from off on. */
SPMTD_FN void spmtd_bulk_plain_(
	const struct spmtd_bulk_to_ *to, uint64_t src, uint64_t off, uint64_t n, int way, int scope)
{
	if (!n)
		return;
	if (to->pes)
		for (int i = 0; i < to->count; i++)
			spmtd_copy_put_(spmtd_there_(to->v, spmtd_to_(to->dst), to->pes[i]) + off,
				src + off, n, scope);
	else if (way == SPMTD_GET_)
		spmtd_copy_get_(to->dst + off, src + off, n, scope);
	else
		spmtd_copy_put_(to->dst + off, src + off, n, scope);
}

/* What the engine moves of n bytes: whole units from `head` on; 0 of them: nothing, and all is head. The rest goes by stores. Heaps of
   ranks lie at multiples of a unit, so that all of several are aligned alike. */
struct spmtd_bulk_cut_ {
	uint64_t head, units;
};

/* Sides whose address is the caller's, and may be of memory that the engine does not reach, as a thread's own is. What a peer has it reaches. */
enum { SPMTD_BULK_SRC_ = 1, SPMTD_BULK_DST_ = 2 };

SPMTD_FN struct spmtd_bulk_cut_ spmtd_bulk_cut_at_(
	const struct spmtd_bulk *b, uint64_t dst, uint64_t src, uint64_t n, int asked)
{
	struct spmtd_bulk_cut_ c;

	c.head = (0 - src) & (SPMTD_BULK_UNIT_ - 1);
	c.units = 0;
	if (b->stages_at && !((dst ^ src) & (SPMTD_BULK_UNIT_ - 1)) &&
		n >= c.head + SPMTD_BULK_UNIT_ &&
		(!(asked & SPMTD_BULK_SRC_) || spmtd_engine_reaches_(src)) &&
		(!(asked & SPMTD_BULK_DST_) || spmtd_engine_reaches_(dst)))
		c.units = (n - c.head) & ~(uint64_t)(SPMTD_BULK_UNIT_ - 1);
	if (!c.units)
		c.head = n;
	return c;
}

/* What one run counts: a multiple of every chunk. */
enum { SPMTD_BULK_RUN_ = 1 << 30 };

/* By the engine; by all threads of the scope, behind a meeting. */
SPMTD_FN void spmtd_bulk_units_(struct spmtd_bulk *b, const struct spmtd_bulk_to_ *to, uint64_t src,
	struct spmtd_bulk_cut_ c, int scope)
{
	const uint32_t most = SPMTD_BULK_RUN_;
	uint64_t off = c.head, left = c.units;

	if (!left || spmtd_lane_(scope))
		return;
	spmtd_engine_fence_(); /* what threads have stored is loaded */
	SPMTD_ROLLED while (left)
	{
		uint32_t n = left < most ? (uint32_t)left : most;

		spmtd_bulk_run_(b, to, src, off, n);
		off += n;
		left -= n;
	}
}

SPMTD_FN void spmtd_bulk_move_(struct spmtd_bulk *b, const struct spmtd_bulk_to_ *to, uint64_t src,
	uint64_t n, int way, int asked, int scope, int nbi)
{
	struct spmtd_bulk_cut_ c;
	uint64_t rest;

	spmtd_meet_(scope);
	c = spmtd_bulk_cut_at_(b, to->dst, src, n, asked);
	rest = c.head + c.units;
	spmtd_bulk_units_(b, to, src, c, scope);
	spmtd_bulk_plain_(to, src, 0, c.head, way, scope);
	spmtd_bulk_plain_(to, src, rest, n - rest, way, scope);
	if (!nbi)
		spmtd_bulk_settle_(b, scope);
	if (n && to->pes)
		spmtd_bulk_wake_(to);
}

SPMTD_FN struct spmtd_bulk_to_ spmtd_bulk_to_one_(const struct spmt_view *v, uint64_t dst)
{
	struct spmtd_bulk_to_ to;

	to.v = v;
	to.pes = (const int *)spmtd_to_(0);
	to.all = (const struct spmt_switch *)spmtd_to_(0);
	to.dst = dst;
	to.count = 0;
	to.fold = SPMTD_FOLD_NONE_;
	return to;
}

SPMTD_FN int spmtd_bulk_open_(
	struct spmtd_bulk *b, void *shared, uint32_t chunk, uint32_t stages, int scope)
{
	b->stages_at = 0;
	b->spread = 0;
	if (chunk < SPMTD_BULK_UNIT_ || chunk > SPMTD_BULK_CHUNK_ || (chunk & (chunk - 1)) ||
		stages < 2 || stages > SPMTD_BULK_STAGES_ ||
		(spmtd_at_(shared) & (SPMTD_BULK_ALIGN_ - 1)) || !shared)
		return SPMTD_INVALID;
	b->stages_at = spmtd_at_(shared);
	b->chunk = chunk;
	b->stages = stages;
	b->stage = b->parity = 0;
	spmtd_meet_(scope); /* what others have had there is over */
	if (spmtd_lane_(scope) == 0) {
		for (uint32_t i = 0; i < stages; i++)
			spmtd_engine_open_(spmtd_bulk_bar_(b, i));
		spmtd_engine_fence_shared_();
	}
	spmtd_meet_(scope);
	return 0;
}

SPMTD_FN void spmtd_bulk_close_(struct spmtd_bulk *b, int scope)
{
	spmtd_bulk_settle_(b, scope);
	if (b->stages_at && spmtd_lane_(scope) == 0) {
		for (uint32_t i = 0; i < b->stages; i++)
			spmtd_engine_close_(spmtd_bulk_bar_(b, i));
		spmtd_engine_fence_shared_(); /* what threads store there next is behind it */
	}
	b->stages_at = 0;
	spmtd_meet_(scope);
}

/* From shared memory itself. */
SPMTD_FN void spmtd_bulk_shared_(struct spmtd_bulk *b, const struct spmt_view *v, uint64_t dst,
	uint64_t src, uint64_t n, int pe, int scope, int nbi)
{
	struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(v, dst);

	spmtd_meet_(scope);
	if (!b->stages_at || ((dst | src | n) & (SPMTD_BULK_UNIT_ - 1)) ||
		!spmtd_engine_reaches_(dst))
		spmtd_bulk_plain_(&to, src, 0, n, SPMTD_PUT_, scope);
	else if (n && spmtd_lane_(scope) == 0) {
		spmtd_engine_fence_();
		spmtd_engine_fence_shared_(); /* what threads have stored there is read */
		spmtd_bulk_store_(&to, 0, src, (uint32_t)n);
	}
	if (!nbi)
		spmtd_bulk_settle_(b, scope);
	if (n)
		spmtd_wake_(v, pe);
}

/* An address that all buffers of a switch are aligned as; 1 beside src where they differ, which no engine takes. */
SPMTD_FN uint64_t spmtd_bulk_like_all_(const struct spmt_switch *s, uint64_t off, uint64_t src)
{
	uint64_t own = spmtd_switch_there_(s, s->pe), odd = 0;

	SPMTD_ROLLED for (int pe = 0; s->parts && pe < s->npes; pe++) odd |=
		own ^ spmtd_switch_there_(s, pe);
	return odd & (SPMTD_BULK_UNIT_ - 1) ? src ^ 1 : own + off;
}

SPMTD_FN void spmtd_bulk_all_(struct spmtd_bulk *b, const struct spmt_view *v,
	const struct spmt_switch *s, uint64_t off, uint64_t src, uint64_t n, int scope, int nbi)
{
	struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(v, off);
	struct spmtd_bulk_cut_ c;
	uint64_t at = 0, rest;

	to.all = s;
	spmtd_meet_(scope);
	c = spmtd_bulk_cut_at_(b, spmtd_bulk_like_all_(s, off, src), src, n, SPMTD_BULK_SRC_);
	rest = c.head;
	if (c.units && spmtd_bulk_spreads_(s)) {
#if defined(SPMTD_BULK_SPREAD)
		if (spmtd_lane_(scope) == 0)
			spmtd_multimem_fence_();
#endif
		b->spread = 1;
	}
	spmtd_bulk_units_(b, &to, src, c, scope);
	SPMTD_ROLLED for (int i = 0; i < 2; i++)
	{
		spmtd_do_switch_broadcast_(v, s, off + at, src + at, rest, scope);
		at = c.head + c.units;
		rest = n - at;
	}
	if (!nbi)
		spmtd_bulk_settle_(b, scope);
	SPMTD_ROLLED for (int pe = 0; n && pe < s->npes; pe++) spmtd_wake_(v, pe);
}

#define SPMTD_BULK_MOVES(suffix, scope, nbi)                                                       \
	SPMTD_FN void spmtd_bulk_put##suffix(const struct spmt_view *v, struct spmtd_bulk *b,      \
		void *dst, const void *src, size_t n, int pe)                                      \
	{                                                                                          \
		struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(v, spmtd_there_(v, dst, pe));        \
		if (spmtd_is_far_(v, pe)) {                                                        \
			spmtd_far_put_(v, dst, src, n, pe, scope, 0);                              \
			return;                                                                    \
		}                                                                                  \
		spmtd_bulk_move_(                                                                  \
			b, &to, spmtd_at_(src), n, SPMTD_PUT_, SPMTD_BULK_SRC_, scope, nbi);       \
		if (n)                                                                             \
			spmtd_wake_(v, pe);                                                        \
	}                                                                                          \
	SPMTD_FN void spmtd_bulk_get##suffix(const struct spmt_view *v, struct spmtd_bulk *b,      \
		void *dst, const void *src, size_t n, int pe)                                      \
	{                                                                                          \
		struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(v, spmtd_at_(dst));                  \
		if (spmtd_is_far_(v, pe)) {                                                        \
			spmtd_far_get_(v, dst, src, n, pe, scope, 0);                              \
			return;                                                                    \
		}                                                                                  \
		spmtd_bulk_move_(b, &to, spmtd_there_(v, src, pe), n, SPMTD_GET_, SPMTD_BULK_DST_, \
			scope, nbi);                                                               \
	}                                                                                          \
	SPMTD_FN void spmtd_bulk_copy##suffix(const struct spmt_view *v, struct spmtd_bulk *b,     \
		void *dst, const void *src, size_t n)                                              \
	{                                                                                          \
		struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(v, spmtd_at_(dst));                  \
		spmtd_bulk_move_(b, &to, spmtd_at_(src), n, SPMTD_PUT_,                            \
			SPMTD_BULK_SRC_ | SPMTD_BULK_DST_, scope, nbi);                            \
	}                                                                                          \
	SPMTD_FN void spmtd_bulk_put_many##suffix(const struct spmt_view *v, struct spmtd_bulk *b, \
		void *dst, const void *src, size_t n, const int *pes, int count)                   \
	{                                                                                          \
		struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(v, spmtd_at_(dst));                  \
		to.pes = pes;                                                                      \
		to.count = count;                                                                  \
		if (spmtd_fifo_(v)) {                                                              \
			for (int i = 0; i < count; i++)                                            \
				spmtd_put_to_(v, dst, src, n, pes[i], scope, 0);                   \
			return;                                                                    \
		}                                                                                  \
		if (count > 0)                                                                     \
			spmtd_bulk_move_(b, &to, spmtd_at_(src), n, SPMTD_PUT_, SPMTD_BULK_SRC_,   \
				scope, nbi);                                                       \
	}                                                                                          \
	SPMTD_FN void spmtd_bulk_broadcast##suffix(const struct spmt_view *v,                      \
		struct spmtd_bulk *b, const struct spmt_switch *s, size_t off, const void *src,    \
		size_t n)                                                                          \
	{                                                                                          \
		spmtd_bulk_all_(b, v, s, off, spmtd_at_(src), n, scope, nbi);                      \
	}                                                                                          \
	SPMTD_FN void spmtd_bulk_put_shared##suffix(const struct spmt_view *v,                     \
		struct spmtd_bulk *b, void *dst, const void *src, size_t n, int pe)                \
	{                                                                                          \
		if (spmtd_is_far_(v, pe))                                                          \
			spmtd_far_refuse_(v, pe, scope);                                           \
		else                                                                               \
			spmtd_bulk_shared_(b, v, spmtd_there_(v, dst, pe), spmtd_at_(src), n, pe,  \
				scope, nbi);                                                       \
	}
SPMTD_BULK_MOVES(, SPMTD_THREAD_, 0)
SPMTD_BULK_MOVES(_warp, SPMTD_WARP_, 0)
SPMTD_BULK_MOVES(_nbi, SPMTD_THREAD_, 1)
SPMTD_BULK_MOVES(_nbi_warp, SPMTD_WARP_, 1)

#define SPMTD_BULK_ENDS(suffix, scope)                                               \
	SPMTD_FN int spmtd_bulk_begin##suffix(                                       \
		struct spmtd_bulk *b, void *shared, uint32_t chunk, uint32_t stages) \
	{                                                                            \
		return spmtd_bulk_open_(b, shared, chunk, stages, scope);            \
	}                                                                            \
	SPMTD_FN void spmtd_bulk_quiet##suffix(struct spmtd_bulk *b)                 \
	{                                                                            \
		spmtd_bulk_settle_(b, scope);                                        \
	}                                                                            \
	SPMTD_FN void spmtd_bulk_end##suffix(struct spmtd_bulk *b)                   \
	{                                                                            \
		spmtd_bulk_close_(b, scope);                                         \
	}
SPMTD_BULK_ENDS(, SPMTD_THREAD_)
SPMTD_BULK_ENDS(_warp, SPMTD_WARP_)

/* ---- bulk copies: by the view --------------------------------------------------------------- */

/*
 * The ordinary puts and gets by the engine: a program that defines SPMTD_BULK_BY_VIEW before it includes spmt_device.h hands shared memory
 * to a view of its own, a copy of the kernel's that it may write, and from then on putmem, getmem, putmem_signal, their typed forms
 * and those of registered buffers go by stages there, if they are of the same scope, have at least SPMTD_BULK_LEAST bytes (a warp's 8 times as
 * many), and the chip has an engine. All others go by loads and stores, as without it. _nbi forms are complete on return then.
 *
 *	view_bulk  `bytes` of the block's shared memory at a multiple of 128, which nobody else uses until the end: four stages, as large as fit,
 *	           of 128 to 32768 bytes, and 128 bytes more. 0; SPMTD_INVALID: no such memory, or the view has some; SPMTD_UNSUPPORTED: the
 *	           program has not defined SPMTD_BULK_BY_VIEW. Then copies go by loads and stores. By all threads of the warp (_warp), each
 *	           with a view of its own; a view that is copied from one uses the same memory
 *	end        gives it back; copies of the view may not be used any more
 */
#if !defined(SPMTD_BULK_LEAST)
#define SPMTD_BULK_LEAST 2048
#endif
enum { SPMTD_VIEW_STAGES_ = 4, SPMTD_VIEW_REST_ = 128 };

#if defined(SPMTD_BULK_BY_VIEW)

/* The next stage and its parity, in shared memory, so that copies of a view go on where another has been: used by one thread alone. */
SPMTD_FN uint32_t *spmtd_view_turn_(const struct spmtd_bulk *b)
{
	return (uint32_t *)spmtd_to_(b->stages_at + spmtd_bulk_room(b->chunk, b->stages));
}

SPMTD_FN struct spmtd_bulk spmtd_view_stages_(const struct spmt_view *v, int scope)
{
	struct spmtd_bulk b;

	b.stages_at = v->bulk;
	b.chunk = (uint32_t)v->bulk_shape;
	b.stages = SPMTD_VIEW_STAGES_;
	b.spread = 0;
	b.stage = b.parity = 0;
	if (v->bulk && spmtd_lane_(scope) == 0) {
		b.stage = spmtd_view_turn_(&b)[0];
		b.parity = spmtd_view_turn_(&b)[1];
	}
	return b;
}

SPMTD_FN int spmtd_view_moves_(
	const struct spmt_view *v, uint64_t dst, uint64_t src, uint64_t n, int way, int scope)
{
	uint64_t least = (uint64_t)SPMTD_BULK_LEAST * (scope == SPMTD_THREAD_ ? 1 : 8);
	struct spmtd_bulk_to_ to;
	struct spmtd_bulk b;

	if (!v->bulk || n < least || v->bulk_shape >> 32 != (uint64_t)(uint32_t)scope)
		return 0;
	b = spmtd_view_stages_(v, scope);
	to = spmtd_bulk_to_one_(v, dst);
	spmtd_bulk_move_(&b, &to, src, n, way,
		way == SPMTD_GET_ ? SPMTD_BULK_DST_ : SPMTD_BULK_SRC_, scope, 0);
	if (spmtd_lane_(scope) == 0) {
		spmtd_view_turn_(&b)[0] = b.stage;
		spmtd_view_turn_(&b)[1] = b.parity;
	}
	return 1;
}

SPMTD_FN int spmtd_view_open_(struct spmt_view *v, void *shared, size_t bytes, int scope)
{
	uint32_t chunk = SPMTD_BULK_CHUNK_;
	struct spmtd_bulk b;
	int rc;

	while (chunk >= SPMTD_BULK_ALIGN_ &&
		bytes < (size_t)chunk * SPMTD_VIEW_STAGES_ + SPMTD_VIEW_REST_)
		chunk /= 2;
	if (v->bulk || chunk < SPMTD_BULK_ALIGN_)
		return SPMTD_INVALID;
	rc = spmtd_bulk_open_(&b, shared, chunk, SPMTD_VIEW_STAGES_, scope);
	if (rc)
		return rc;
#if defined(SPMTD_BULK) || defined(SPMTD_BULK_MODEL)
	if (spmtd_lane_(scope) == 0)
		spmtd_view_turn_(&b)[0] = spmtd_view_turn_(&b)[1] = 0;
	v->bulk = b.stages_at;
	v->bulk_shape = (uint64_t)(uint32_t)scope << 32 | chunk;
#endif
	return 0;
}

SPMTD_FN void spmtd_view_close_(struct spmt_view *v, int scope)
{
	struct spmtd_bulk b = spmtd_view_stages_(v, scope);

	if (v->bulk && v->bulk_shape >> 32 == (uint64_t)(uint32_t)scope)
		spmtd_bulk_close_(&b, scope);
	v->bulk = v->bulk_shape = 0;
}

#else

SPMTD_FN int spmtd_view_open_(struct spmt_view *v, void *shared, size_t bytes, int scope)
{
	(void)v, (void)shared, (void)bytes, (void)scope;
	return SPMTD_UNSUPPORTED;
}

SPMTD_FN void spmtd_view_close_(struct spmt_view *v, int scope)
{
	(void)v, (void)scope;
}

#endif

#define SPMTD_VIEW_BULK(suffix, scope)                                                        \
	SPMTD_FN int spmtd_view_bulk##suffix(struct spmt_view *v, void *shared, size_t bytes) \
	{                                                                                     \
		return spmtd_view_open_(v, shared, bytes, scope);                             \
	}                                                                                     \
	SPMTD_FN void spmtd_view_bulk_end##suffix(struct spmt_view *v)                        \
	{                                                                                     \
		spmtd_view_close_(v, scope);                                                  \
	}
SPMTD_VIEW_BULK(, SPMTD_THREAD_)
SPMTD_VIEW_BULK(_warp, SPMTD_WARP_)
#undef SPMTD_VIEW_BULK

/* ---- bulk copies: reductions ---------------------------------------------------------------- */

/*
 * With what begin has filled:
 *
 *	reduce         count elements of src are folded, one by one, into those at pe's dst, symmetric: what lies there is the first operand. By
 *	               the engine where it moves puts; by loads and stores elsewhere, and for min and max of float and double, which no
 *	               engine has
 *	reduce_shared  the same of the block's shared memory, without a stage, as put_shared
 *
 * _nbi: complete after spmtd_bulk_quiet. Until then nobody touches these elements at the peer, another reduction included, as
 * loads and stores are no atomics: ranks that add to one place take turns, and a signal or barrier in between says whose turn it is.
 *
 * sum min max, of integers and or xor; integers wrap, half and bfloat16 are rounded to nearest even. Both ways have the same
 * results but for what only engines do: which NaN comes out, and min and max of halves with a NaN, are not said; float sums may take
 * numbers below the normal range for zero.
 *
 * To a peer that has no address (fifo.h) there is none: the host breaks the comm, with a sentence.
 */

/* dst and then src, as parts of a switch have it. */
SPMTD_FN struct spmtd_terms_ spmtd_bulk_terms_(
	struct spmtd_mem_peer *parts, uint64_t dst, uint64_t src, int scope)
{
	struct spmtd_terms_ t;

	parts[0].base = dst;
	parts[1].base = src;
	parts[0].size = parts[1].size = 0;
	t.channels = (const struct spmt_channel *)spmtd_to_(0);
	t.offsets = (const uint64_t *)spmtd_to_(0);
	t.peers = (const struct spmtd_peer *)spmtd_to_(0);
	t.parts = parts;
	t.flat = t.stride = t.at = 0;
	t.dst = dst;
	t.from = t.n = 0;
	t.terms = 2;
	t.switched = 1;
	t.lane = spmtd_lane_(scope);
	t.lanes = spmtd_lanes_(scope);
	return t;
}

/* A block's shared memory goes in one piece, or not at all by the engine. */
SPMTD_FN struct spmtd_bulk_cut_ spmtd_bulk_cut_shared_(
	const struct spmtd_bulk *b, uint64_t dst, uint64_t src, uint64_t n)
{
	struct spmtd_bulk_cut_ c;
	int whole = b->stages_at && !((dst | src | n) & (SPMTD_BULK_UNIT_ - 1)) &&
		spmtd_engine_reaches_(dst);

	c.head = whole ? 0 : n;
	c.units = whole ? n : 0;
	return c;
}

/* The engine's part; how it is cut. */
SPMTD_FN struct spmtd_bulk_cut_ spmtd_bulk_fold_units_(struct spmtd_bulk *b,
	const struct spmtd_bulk_to_ *to, uint64_t src, uint64_t n, int shared, int scope)
{
	struct spmtd_bulk_cut_ c;

	c.head = n;
	c.units = 0;
	if (!to->fold)
		return c;
	if (!shared) {
		c = spmtd_bulk_cut_at_(b, to->dst, src, n, SPMTD_BULK_SRC_);
		spmtd_bulk_units_(b, to, src, c, scope);
		return c;
	}
	c = spmtd_bulk_cut_shared_(b, to->dst, src, n);
	if (c.units && spmtd_lane_(scope) == 0) {
		spmtd_engine_fence_();
		spmtd_engine_fence_shared_(); /* what threads have stored there is read */
		spmtd_bulk_store_(to, 0, src, (uint32_t)n);
	}
	return c;
}

/* dst: the raw address on pe. What the engine leaves are two pieces. */
#define SPMTD_BULK_FOLD(name, T)                                                                 \
	SPMTD_FN void spmtd_bulk_##name##_fold_(const struct spmt_view *v, struct spmtd_bulk *b, \
		uint64_t dst, uint64_t src, uint64_t n, int pe, int op, int fold, int shared,    \
		int scope, int nbi)                                                              \
	{                                                                                        \
		struct spmtd_bulk_to_ to = spmtd_bulk_to_one_(v, dst);                           \
		struct spmtd_mem_peer parts[2];                                                  \
		struct spmtd_bulk_cut_ c;                                                        \
		struct spmtd_terms_ t;                                                           \
		to.fold = fold;                                                                  \
		spmtd_meet_(scope);                                                              \
		c = spmtd_bulk_fold_units_(b, &to, src, n, shared, scope);                       \
		t = spmtd_bulk_terms_(parts, dst, src, scope);                                   \
		t.n = c.head / sizeof(T);                                                        \
		SPMTD_ROLLED for (int i = 0; i < 2; i++)                                         \
		{                                                                                \
			if (t.n)                                                                 \
				spmtd_##name##_terms_(&t, op);                                   \
			t.from = c.head + c.units;                                               \
			t.n = (n - t.from) / sizeof(T);                                          \
		}                                                                                \
		if (!nbi)                                                                        \
			spmtd_bulk_settle_(b, scope);                                            \
		if (n)                                                                           \
			spmtd_wake_(v, pe);                                                      \
	}
SPMTD_BULK_FOLD(int32, int32_t)
SPMTD_BULK_FOLD(uint32, uint32_t)
SPMTD_BULK_FOLD(int64, int64_t)
SPMTD_BULK_FOLD(uint64, uint64_t)
SPMTD_BULK_FOLD(float, float)
SPMTD_BULK_FOLD(double, double)
SPMTD_BULK_FOLD(half, uint16_t)
SPMTD_BULK_FOLD(bfloat16, uint16_t)

#define SPMTD_BULK_REDUCE_FROM(name, T, op, OP, from, shared, suffix, scope, nbi)                 \
	SPMTD_FN void spmtd_bulk_##name##_##op##_##from##suffix(const struct spmt_view *v,        \
		struct spmtd_bulk *b, T *dst, const T *src, size_t count, int pe)                 \
	{                                                                                         \
		if (spmtd_is_far_(v, pe))                                                         \
			spmtd_far_refuse_(v, pe, scope);                                          \
		else                                                                              \
			spmtd_bulk_##name##_fold_(v, b, spmtd_there_(v, dst, pe), spmtd_at_(src), \
				count * sizeof(T), pe, OP, SPMTD_FOLD_##name##_##op##_, shared,   \
				scope, nbi);                                                      \
	}
#define SPMTD_BULK_REDUCE_BY(name, T, op, OP, suffix, scope, nbi)              \
	SPMTD_BULK_REDUCE_FROM(name, T, op, OP, reduce, 0, suffix, scope, nbi) \
	SPMTD_BULK_REDUCE_FROM(name, T, op, OP, reduce_shared, 1, suffix, scope, nbi)
#define SPMTD_BULK_REDUCE(name, T, op, OP)                            \
	SPMTD_BULK_REDUCE_BY(name, T, op, OP, , SPMTD_THREAD_, 0)     \
	SPMTD_BULK_REDUCE_BY(name, T, op, OP, _warp, SPMTD_WARP_, 0)  \
	SPMTD_BULK_REDUCE_BY(name, T, op, OP, _nbi, SPMTD_THREAD_, 1) \
	SPMTD_BULK_REDUCE_BY(name, T, op, OP, _nbi_warp, SPMTD_WARP_, 1)
#define SPMTD_BULK_ORDERED(name, T)                    \
	SPMTD_BULK_REDUCE(name, T, sum, SPMTD_OP_SUM_) \
	SPMTD_BULK_REDUCE(name, T, min, SPMTD_OP_MIN_) \
	SPMTD_BULK_REDUCE(name, T, max, SPMTD_OP_MAX_)
#define SPMTD_BULK_INTEGER(name, T)                    \
	SPMTD_BULK_ORDERED(name, T)                    \
	SPMTD_BULK_REDUCE(name, T, and, SPMTD_OP_AND_) \
	SPMTD_BULK_REDUCE(name, T, or, SPMTD_OP_OR_)   \
	SPMTD_BULK_REDUCE(name, T, xor, SPMTD_OP_XOR_)
SPMTD_BULK_INTEGER(int32, int32_t)
SPMTD_BULK_INTEGER(uint32, uint32_t)
SPMTD_BULK_INTEGER(int64, int64_t)
SPMTD_BULK_INTEGER(uint64, uint64_t)
SPMTD_BULK_ORDERED(float, float)
SPMTD_BULK_ORDERED(double, double)
SPMTD_BULK_ORDERED(half, uint16_t)
SPMTD_BULK_ORDERED(bfloat16, uint16_t)

#undef SPMTD_BULK_FOLD
#undef SPMTD_BULK_REDUCE_FROM
#undef SPMTD_BULK_REDUCE_BY
#undef SPMTD_BULK_REDUCE
#undef SPMTD_BULK_ORDERED
#undef SPMTD_BULK_INTEGER
#undef SPMTD_ENGINE_INTEGER
#undef SPMTD_ENGINE_HALF
#undef SPMTD_ENGINE_FOLDS
#undef SPMTD_BULK_MOVES
#undef SPMTD_BULK_ENDS

SPMTD_END

#endif
