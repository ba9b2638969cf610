/* SPDX-License-Identifier: MIT */
/*
 * Collectives. Every rank tells all others what it was called with and waits for all (each block
 * for itself). By slots that is all: the data comes with it. Otherwise nobody touches another's
 * buffers before that; the last block of a rank to finish its part tells all others, and waits
 * until all have told: after that no peer reads src or writes dst. Blocks wait only for the first one.
 * Or each block does this for itself, with the peers' blocks of its number, and none waits for another of
 * its rank.
 */
#include "coll.h"
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/slot.h"
#include "words.h"

/* On GPUs this kernel leaves out rows with kernels of their own. */
#if defined(__AMDGCN__) || defined(__NVPTX__)
#define COLL_HERE(X) COLL_TABLE_SHARED(X)
#else
#define COLL_HERE(X) COLL_TABLE(X)
#endif

/* The rows of one way, a constant: the compiler drops the others. */
static inline __attribute__((always_inline)) int run_row(struct coll *c, enum coll_way way)
{
	int rc = 0;

	switch (c->args->algorithm) {
#define X(name, kinds, way_of, gpu, cpu, grain) \
	case COLL_ROW_##name:                   \
		if (way == (way_of))            \
			rc = coll_##name(c);    \
		break;
		COLL_HERE(X)
#undef X
	default:
		break;
	}
	return rc;
}

/* ---- by slots --------------------------------------------------------------------------------- */

/* Flags in slots recur, and a slot's end may not have been written since: until this rank's data and hello
   come, nobody writes to the other set, which the next epoch fills. */
static inline int set_is_to_clear(const struct coll *c)
{
	uint64_t next = c->epoch + 1;

	return next >= AREA_TURN && next % AREA_TURN <= 1;
}

static inline SPMTD_MEETS void clear_other_set(const struct coll *c)
{
	uint64_t set = (uint64_t)c->view->npes * 2 * c->args->room;
	uint64_t at = spmtd_at_(c->view->own) + c->args->places.slots + (~c->epoch & 1) * set;

	for (uint64_t i = spmtd_tid_(); i < set / 8; i += spmtd_threads_())
		spmtd_poke64_(at + 8 * i, 0);
	at = factors_at(spmtd_at_(c->view->own), c->view->npes, ~c->epoch);
	set = (uint64_t)c->view->npes * PIECE_IN_SLOT;
	for (uint64_t i = spmtd_tid_(); i < set / 8; i += spmtd_threads_())
		spmtd_poke64_(at + 8 * i, 0);
	spmtd_meet_settled_(SPMTD_BLOCK_);
	spmtd_order_(); /* by each, so that all that it sends comes after it */
}

/*
 * By one thread of each block, as soon as all its threads know the epoch: is it the last to begin? That one writes the next
 * epoch when it ends, and no block of this launch reads it any more. Each block tells what it has done itself, so that none
 * waits for a fence.
 */
static inline int count_block(struct coll *c)
{
	uint64_t count = spmtd_at_(&coll_area(c)->grid[GRID_ENDED]);

	c->ended = kernel_blocks();
	if (c->ended > 1)
		return spmtd_add64_(count, 1) + 1 == c->before + c->ended;
	spmtd_poke64_(count, c->before + 1);
	return 1;
}

/*
 * Where calls differ: does that end the comm, and not this collective alone? So say the keys, which all ranks see and keep until all are
 * through. This rank's own is in its arguments: block 0's hello to itself may not have landed, and an older one lies there.
 */
static inline int breaks(const struct coll *c)
{
	uint64_t any = c->args->key;

	for (int pe = 0; pe < c->view->npes; pe++)
		if (pe != c->view->pe)
			any |= peek_word(&area_inbox(c->view, pe)->hello[c->epoch & 1][1]) << 32;
	return (any & COLL_KEY_BREAKS) != 0;
}

/* By one thread of a block, for itself. */
static inline void slots_failed(const struct coll *c, int rc)
{
	coll_ended_badly(c, rc);
	if (rc == SPMTD_MISMATCH && !breaks(c)) {
		kernel_ended(c->view, rc);
		return;
	}
	coll_note_missing(c, 0, 1);
	broken_raise(c->view, c->args->report, rc);
	broken_leave_marks(c->view, rc, 0, 1);
}

COLL_FN void coll_slots_begin(struct coll *c)
{
	c->last = spmtd_tid_() == 0 && count_block(c);
}

COLL_FN void coll_slots_end(const struct coll *c, int rc)
{
	if (rc && spmtd_tid_() == 0)
		slots_failed(c, rc);
	if (c->last)
		coll_end_epoch(c);
}

static inline void run_by_slots(struct coll *c)
{
	coll_slots_begin(c);
	coll_slots_end(c, c->refused ? SPMTD_ABORTED : run_row(c, COLL_BY_SLOTS));
}

/* ---- at peers --------------------------------------------------------------------------------- */

/* failed: this rank's share is not stored. */
static inline void tell_done(const struct coll *c, int failed)
{
	const struct spmt_view *v = c->view;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		spmtd_release_set_(spmtd_at_(&coll_words_at(c, pe, c->word)->done),
			c->epoch << 1 | (uint64_t)(failed != 0));
		spmtd_wake_(v, pe);
	}
}

/* The same behind a block's own signals, which cover all that it has touched at others; they are the first thread's. On NVIDIA GPUs it has executed a
   fence of the system for each (`red.release` is one, MEMBAR.ALL.SYS, with an add behind it), so that a plain store comes behind all that, too. */
static inline void tell_done_behind(const struct coll *c)
{
#if defined(__NVPTX__)
	if (spmtd_tid_() != 0)
		return;
	for (int pe = 0; pe < c->view->npes; pe++)
		spmtd_poke64_(spmtd_at_(&coll_words_at(c, pe, c->word)->done), c->epoch << 1);
#else
	tell_done(c, 0);
#endif
}

static inline int await_done_by(
	const struct coll *c, struct spmtd_waiter_ *w, int pe, uint32_t word)
{
	uint64_t a = spmtd_at_(&coll_words_from(c, pe, word)->done), want = c->epoch << 1, seen;
	int rc = 0;

	for (;;) {
		seen = spmtd_look64_(a);
		if (seen == want)
			return 0;
		if (seen == (want | 1))
			rc = SPMTD_ABORTED;
		if (!rc)
			rc = coll_patience(c->view, w);
		if (rc) {
			kernel_record_here(c->view, c->args->report, rc, SPMTD_WHAT_COLLECTIVE, pe,
				a, c->args->key, seen);
			return rc;
		}
	}
}

static inline int await_done_of(const struct coll *c, struct spmtd_waiter_ *w, int pe)
{
	uint32_t end = coll_words_of(c, pe);
	int rc = 0;

	for (uint32_t word = c->word; word < end && !rc; word += kernel_blocks())
		rc = await_done_by(c, w, pe, word);
	return rc;
}

static inline SPMTD_MEETS int await_done(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (int pe = (int)spmtd_tid_(); pe < v->npes && !rc; pe += (int)spmtd_threads_())
		rc = await_done_of(c, &w, pe);
	spmtd_wait_end_(v, &w);
	return coll_agrees(rc);
}

/* By the rank's last block. */
static inline SPMTD_MEETS void break_all(const struct coll *c, int how)
{
	spmtd_meet_settled_(SPMTD_BLOCK_);
	if (spmtd_tid_() == 0)
		broken_raise(c->view, c->args->report, ended_code(how));
	spmtd_meet_settled_(SPMTD_BLOCK_);
	broken_leave_marks(c->view, ended_code(how), spmtd_tid_(), spmtd_threads_());
}

/* By the rank's last block. Where calls differ nothing was touched, unless a pair's alone do: then the others are told why before
   they are told that it has failed. */
static inline SPMTD_MEETS void part(struct coll *c, int rc)
{
	int how, odd;

	if (rc && spmtd_tid_() == 0)
		coll_ended_badly(c, rc);
	if (!coll_last_block(c, rc))
		return;
	how = c->failed ? coll_ended_how(c->view, c->epoch) : ENDED_WELL;
	odd = how == ENDED_DIFFERS && breaks(c);
	if (odd)
		break_all(c, how);
	tell_done(c, odd || how >= ENDED_ABORTED);
	if (how == ENDED_WELL) {
		rc = await_done(c);
		how = rc == SPMTD_TIMEOUT ? ENDED_TIMEOUT : rc ? ENDED_ABORTED : ENDED_WELL;
		if (how && spmtd_tid_() == 0)
			coll_ended_badly(c, rc);
	}
	if (how >= ENDED_ABORTED) {
		coll_note_missing(c, spmtd_tid_(), spmtd_threads_());
		break_all(c, how);
	}
	if (odd || how >= ENDED_ABORTED)
		coll_take_back(c);
	else if (how && spmtd_tid_() == 0)
		kernel_ended(c->view, SPMTD_MISMATCH);
	if (spmtd_tid_() == 0)
		coll_end_epoch(c);
}

COLL_FN void coll_at_peers(struct coll *c, enum coll_counts counts)
{
	int rc = c->refused ? SPMTD_ABORTED : 0;

	if (!rc && kernel_block() == 0)
		coll_greet(c, 1);
	if (!rc)
		rc = coll_meet(c);
	c->met = !rc;
	rc = coll_take_all(c, rc);
	if (!rc)
		rc = counts == COLL_COUNTS_VARY ? coll_varied(c) : run_row(c, COLL_AT_PEERS);
	part(c, rc);
}

/* ---- a block alone ------------------------------------------------------------------------------ */

COLL_FN void coll_block_begins(struct coll *c)
{
	c->word = kernel_block();
	c->words = c->args->words;
	coll_slots_begin(c);
}

/* Takes peers before they have come, so that this is done by then. Peers taken in vain are let go with the rest. */
COLL_FN int coll_block_greets(struct coll *c)
{
	coll_block_begins(c);
	if (c->refused)
		return SPMTD_ABORTED;
	if (kernel_block() == 0)
		coll_greet(c, 1);
	coll_block_takes(c);
	return 0;
}

COLL_FN int coll_block_met(struct coll *c)
{
	int rc = coll_meet(c);

	c->met = !rc;
	return rc;
}

COLL_FN int coll_block_meets(struct coll *c)
{
	int rc = coll_block_greets(c);

	return rc ? rc : coll_block_met(c);
}

COLL_FN void coll_block_parts(struct coll *c, int rc)
{
	if (rc || !c->closed) {
		spmtd_meet_settled_(SPMTD_BLOCK_);
		tell_done(c, rc && rc != SPMTD_MISMATCH);
	} else {
		tell_done_behind(c);
	}
	if (!rc && !c->closed)
		rc = await_done(c);
	if (rc && spmtd_tid_() == 0)
		slots_failed(c, rc);
	if (rc && rc != SPMTD_MISMATCH)
		coll_take_back(c);
	if (c->last)
		coll_end_epoch(c);
}

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
static inline void run_by_block(struct coll *c)
{
	int rc = c->args->algorithm == COLL_ROW_push2 ? coll_block_greets(c) : coll_block_meets(c);

	coll_block_parts(c, rc ? rc : run_row(c, COLL_AT_PEERS));
}
#endif

/* ---- the kernel -------------------------------------------------------------------------------- */

/*
 * The stop word lies across the bus, and whoever queued a collective has checked it; but graphs are relaunched without a call. Its value is
 * wanted only when all have come. Of many blocks only the first reads it: such reads are serialised. NVIDIA's threads that wait for one
 * load into a register also wait for others, so this one goes to the block's shared memory.
 */
#if defined(__NVPTX__)
static __attribute__((address_space(3), loader_uninitialized)) uint32_t glanced;

static inline int glance(const struct spmt_view *v)
{
	if (!v->stop || spmtd_tid_() != spmtd_threads_() - 1)
		return 0;
	__asm__ volatile(
		"{ .reg .u64 g; cvta.to.global.u64 g, %1; cp.async.ca.shared.global [%0], [g], 4; }" ::
			"r"((uint32_t)(uintptr_t)&glanced),
		"l"(spmtd_at_(v->stop))
		: "memory");
	return 1;
}

COLL_FN int coll_stopped(const struct coll *c)
{
	if (c->glances) {
		__asm__ volatile("cp.async.wait_all;" ::: "memory");
		return c->stopped ||
			*(volatile __attribute__((address_space(3))) uint32_t *)&glanced;
	}
	return c->stopped;
}
#else
static inline int glance(const struct spmt_view *v)
{
#if defined(__AMDGCN__) || defined(KERNELS_OF_GPUS)
	if (v->stop && spmtd_tid_() == spmtd_threads_() - 1)
		return (int)spmtd_peek32_(spmtd_at_(v->stop));
#else
	(void)v;
#endif
	return 0;
}

COLL_FN int coll_stopped(const struct coll *c)
{
	return c->stopped || c->glances;
}
#endif

/* On a CPU a block of one thread may run for a grid of more. */
static inline void find_share(struct coll *c)
{
	const struct coll_share *s = &c->args->share;

	c->share = s;
	c->brief = c->args->brief;
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
	if (s->blocks == kernel_blocks() && s->threads == spmtd_threads_())
		return;
	c->own_share = coll_share(c->bytes, c->view->npes, kernel_blocks(), spmtd_threads_());
	c->share = &c->own_share;
	c->brief = 0;
#endif
}

COLL_FN void coll_enter(struct coll *c, const struct kernel_collective_args *args)
{
	c->args = args;
	c->view = &args->view;
	c->bytes = args->bytes;
	find_share(c);
	c->glances = args->captured && kernel_block() == 0 ? glance(c->view) : 0;
	c->ended = 0;
	c->stopped = 0;
	c->last = 0;
	c->met = 0;
	c->closed = 0;
	c->tells = 0;
	c->failed = 0;
	c->word = 0;
	c->words = 1;
	c->v = 0;
}

/*
 * Reads of one word by all warps of a grid are serialised, which takes a microsecond and more with 64 blocks of 480 threads. So in kernels for many threads one warp of
 * each block reads it, and tells the others.
 */
#if defined(__NVPTX__)
#define COLL_WARP 32u
static __attribute__((address_space(3), loader_uninitialized)) struct coll_told {
	uint64_t epoch, before, mark;
	int differs;
} coll_told;

static inline int coll_asks(const struct coll *c)
{
	return !c->tells || spmtd_tid_() < COLL_WARP;
}

static inline SPMTD_MEETS void coll_tell(struct coll *c, int *differs)
{
	if (spmtd_tid_() == 0)
		coll_told = (struct coll_told){ c->epoch, c->before, c->mark, *differs };
	spmtd_meet_settled_(SPMTD_BLOCK_);
	c->epoch = coll_told.epoch;
	c->before = coll_told.before;
	c->mark = coll_told.mark;
	*differs = coll_told.differs;
}
#else
static inline int coll_asks(const struct coll *c)
{
	(void)c;
	return 1;
}

static inline SPMTD_MEETS void coll_tell(struct coll *c, int *differs)
{
	(void)c;
	(void)differs;
}
#endif

COLL_FN void coll_set(struct coll *c)
{
	c->epoch = c->before = c->mark = 0;
	if (!coll_asks(c))
		return;
	c->epoch = peek_word(&coll_area(c)->coll_epoch); /* the last one's, until coll_open */
	c->before = peek_word(&coll_area(c)->grid[GRID_BEFORE]);
	c->mark = broken_in(c->view, coll_area(c));
}

COLL_FN int coll_open(struct coll *c)
{
	const struct kernel_collective_args *args = c->args;
	const struct spmt_view *v = c->view;
	/* All ranks have seen the part before differ. */
	int differs = args->part && coll_asks(c) && coll_ended_how(v, c->epoch) == ENDED_DIFFERS;

	/* All threads have the epoch before the block is counted. */
	if (c->tells)
		coll_tell(c, &differs);
	c->epoch++; /* never 0 */
	c->refused = c->mark != 0 || !c->epoch;
	if (!c->tells)
		c->refused = spmtd_any_block_(c->refused);
	if (differs)
		return 0;
	if (c->refused && kernel_lane() == 0)
		broken_refuse(v, args->report, SPMTD_WHAT_COLLECTIVE, c->mark);
	if (kernel_block() == 0 && set_is_to_clear(c))
		clear_other_set(c);
	return 1;
}

KERNEL_BODY run_collective(const struct kernel_collective_args *args)
{
	struct coll c;

	coll_enter(&c, args);
	coll_set(&c);
	if (!coll_open(&c))
		return;
	if (coll_way(args->algorithm) == COLL_BY_SLOTS)
		run_by_slots(&c);
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
	else if (args->algorithm == COLL_ROW_push2 || args->algorithm == COLL_ROW_twoshot ||
		args->algorithm == COLL_ROW_give)
		run_by_block(&c);
#endif
	else
		coll_at_peers(&c, COLL_COUNTS_EQUAL);
}
KERNEL(collective)

/* ---- stages ------------------------------------------------------------------------------------- */

KERNEL_BODY run_stage(const struct kernel_stage_args *args)
{
	const struct spmt_view *v = &args->view;

	if (kernel_refused(v) ||
		(args->behind && coll_ended_how(v, peek_word(&area_of(v)->coll_epoch))))
		return;
	for (uint64_t b = 0; b < args->blocks; b++)
		spmtd_bulk_raw_(args->dst + b * args->dst_step, args->src + b * args->src_step,
			args->bytes, kernel_lane(), kernel_lanes());
}
KERNEL(stage)
