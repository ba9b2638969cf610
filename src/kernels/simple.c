/* SPDX-License-Identifier: MIT */
/* Kernels that need no meeting of ranks but the barrier's own. */
#include "../../include/spmt.h"
#include "broken.h"

/* ---- copy ----------------------------------------------------------------------------------- */

KERNEL_BODY run_copy(const struct kernel_copy_args *args)
{
	uint64_t n = args->size;

	if (kernel_refused(&args->view))
		return;
	if (n && !(spmtd_single_(args->dst, n) && spmtd_single_(args->src, n)))
		spmtd_bulk_raw_(args->dst, args->src, n, kernel_lane(), kernel_lanes());
	else if (n && kernel_lane() == 0)
		spmtd_poke_(args->dst, n, spmtd_peek_(args->src, n));
	if (args->wake >= 0)
		spmtd_wake_(&args->view, args->wake);
}
KERNEL(copy)

/* ---- signal and wait ------------------------------------------------------------------------ */

KERNEL_BODY run_signal(const struct kernel_signal_args *args)
{
	uint64_t sig = args->sig;

	if (kernel_lane() != 0 || kernel_refused(&args->view))
		return;
	if (args->pe >= 0)
		sig = spmtd_there_(&args->view, spmtd_to_(sig), args->pe);
	spmtd_signal_at_(sig, args->value, args->op);
	if (args->pe >= 0)
		spmtd_wake_(&args->view, args->pe);
}
KERNEL(signal)

KERNEL_BODY run_wait(const struct kernel_wait_args *args)
{
	int rc;

	if (kernel_lane() != 0)
		return;
	/* A failure is in the record; it breaks no world. */
	rc = spmtd_wait_(&args->view, SPMTD_KIND_U_, 64, args->sig, args->cmp, args->value,
		SPMTD_WHAT_ON_STREAM);
	if (rc)
		kernel_ended(&args->view, rc);
}
KERNEL(wait)

/* ---- atomic --------------------------------------------------------------------------------- */

static inline uint64_t atomic32(int amo, uint64_t a, uint32_t x, uint32_t compare)
{
	switch (amo) {
	case SPMT_AMO_SET:
		spmtd_poke32_(a, x);
		return 0;
	case SPMT_AMO_SWAP:
		return spmtd_swap32_(a, x);
	case SPMT_AMO_COMPARE_SWAP:
		return spmtd_cas32_(a, compare, x);
	case SPMT_AMO_INC:
	case SPMT_AMO_FETCH_INC:
		return spmtd_add32_(a, 1);
	case SPMT_AMO_ADD:
	case SPMT_AMO_FETCH_ADD:
		return spmtd_add32_(a, x);
	case SPMT_AMO_AND:
	case SPMT_AMO_FETCH_AND:
		return spmtd_and32_(a, x);
	case SPMT_AMO_OR:
	case SPMT_AMO_FETCH_OR:
		return spmtd_or32_(a, x);
	case SPMT_AMO_XOR:
	case SPMT_AMO_FETCH_XOR:
		return spmtd_xor32_(a, x);
	default:
		return spmtd_peek32_(a);
	}
}

static inline uint64_t atomic64(int amo, uint64_t a, uint64_t x, uint64_t compare)
{
	switch (amo) {
	case SPMT_AMO_SET:
		spmtd_poke64_(a, x);
		return 0;
	case SPMT_AMO_SWAP:
		return spmtd_swap64_(a, x);
	case SPMT_AMO_COMPARE_SWAP:
		return spmtd_cas64_(a, compare, x);
	case SPMT_AMO_INC:
	case SPMT_AMO_FETCH_INC:
		return spmtd_add64_(a, 1);
	case SPMT_AMO_ADD:
	case SPMT_AMO_FETCH_ADD:
		return spmtd_add64_(a, x);
	case SPMT_AMO_AND:
	case SPMT_AMO_FETCH_AND:
		return spmtd_and64_(a, x);
	case SPMT_AMO_OR:
	case SPMT_AMO_FETCH_OR:
		return spmtd_or64_(a, x);
	case SPMT_AMO_XOR:
	case SPMT_AMO_FETCH_XOR:
		return spmtd_xor64_(a, x);
	default:
		return spmtd_peek64_(a);
	}
}

KERNEL_BODY run_atomic(const struct kernel_atomic_args *args)
{
	int wide = args->type == SPMT_TYPE_I64 || args->type == SPMT_TYPE_U64 ||
		args->type == SPMT_TYPE_F64;
	uint64_t a, old;

	if (kernel_lane() != 0)
		return;
	a = args->pe < 0 ? args->target
			 : spmtd_there_(&args->view, spmtd_to_(args->target), args->pe);
	if (wide)
		old = atomic64(args->amo, a, args->operand, args->compare);
	else
		old = atomic32(args->amo, a, (uint32_t)args->operand, (uint32_t)args->compare);
	if (args->fetched)
		spmtd_poke64_(args->fetched, old);
	if (args->amo != SPMT_AMO_FETCH && args->pe >= 0)
		spmtd_wake_(&args->view, args->pe);
}
KERNEL(atomic)

/* ---- barrier -------------------------------------------------------------------------------- */

static inline int barrier_lacks(const struct spmt_view *v, int pe)
{
	uint64_t there = spmtd_peek64_(spmtd_at_(&spmtd_inbox_(v, pe)->sync));

	return pe != v->pe && (int64_t)(there - spmtd_epoch_(v)) < 0;
}

/* What it is told as. */
static inline int barrier_what(const struct kernel_barrier_args *args)
{
	return args->plan ? SPMTD_WHAT_CHANNEL : SPMTD_WHAT_BARRIER;
}

/* By one thread: where it fails time does not matter. */
static inline void barrier_failed(const struct kernel_barrier_args *args, int rc)
{
	const struct kernel_report *report = (const struct kernel_report *)spmtd_to_(args->report);
	const struct spmt_view *v = &args->view;

	for (int pe = 0; pe < v->npes; pe++)
		if (barrier_lacks(v, pe))
			kernel_missing(args->report, pe);
	/* unless it was told before, of something else */
	if (report && spmtd_peek32_(spmtd_at_(&report->broke.what)) == SPMTD_WHAT_BARRIER)
		spmtd_poke32_(spmtd_at_(&report->broke.what), (uint32_t)barrier_what(args));
	broken_raise(v, args->report, rc);
	broken_leave_marks(v, rc, 0, 1);
}

KERNEL_BODY run_barrier(const struct kernel_barrier_args *args)
{
	const struct kernel_report *report = (const struct kernel_report *)spmtd_to_(args->report);
	struct spmt_view v = args->view;
	uint64_t mark;
	int rc, refused;

	kernel_behind(args->alone);
	if (kernel_block() != 0)
		return;
	if (report)
		v.record = (struct spmtd_record *)spmtd_to_(spmtd_at_(&report->broke));
	/* Whether the comm is broken is found out while a fence is under way; but no copy engine is waited for then, which might not end. */
	mark = broken(&v);
	refused = spmtd_sdma_has_(&v) && spmtd_any_block_(mark != 0);
	rc = refused ? 0 : spmtd_session_settle_(&v, SPMTD_BLOCK_);
	if (refused || spmtd_any_block_(mark != 0)) {
		if (spmtd_tid_() == 0)
			broken_refuse(&v, args->report, barrier_what(args), mark);
		return;
	}
	if (!rc)
		rc = spmtd_session_join_(&v, spmtd_session_of_(&v, SPMTD_WORLD_), SPMTD_BLOCK_,
			SPMTD_WHAT_BARRIER, 1);
	if (rc && spmtd_tid_() == 0)
		barrier_failed(args, rc);
}
KERNEL_EARLY(barrier)
