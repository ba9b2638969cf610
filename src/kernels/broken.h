/* SPDX-License-Identifier: MIT */
/*
 * How kernels of the library break their comm, and find it broken. A rank that gives up a collective or barrier leaves a mark in
 * every rank's area: from then on nothing of the library takes place there, whatever was queued, relaunched graphs included. Its
 * host learns of it by the stop word and the report.
 */
#ifndef SPMT_KERNELS_BROKEN_H
#define SPMT_KERNELS_BROKEN_H

#include "area.h"
#include "entry.h"

/* The upper half of a mark: 1 + the rank that left it, 0: the host did. */
static inline uint64_t broken_mark(int pe, int code)
{
	return (uint64_t)(uint32_t)(pe + 1) << 32 | (uint32_t)code;
}

static inline int broken_by(uint64_t mark)
{
	return (int)(mark >> 32) - 1;
}

/* 0, or the mark. On GPUs the stop word lies across the bus: who has something to wait for looks at it meanwhile. */
static inline uint64_t broken_in(const struct spmt_view *v, const struct area *area)
{
	uint64_t mark = area ? spmtd_peek64_(spmtd_at_(&area->error)) : 0;

#if !defined(__AMDGCN__) && !defined(__NVPTX__) && !defined(KERNELS_OF_GPUS)
	if (!mark && v->stop && spmtd_peek32_(spmtd_at_(v->stop)))
		mark = broken_mark(-1, SPMTD_ABORTED);
#else
	(void)v;
#endif
	return mark;
}

static inline uint64_t broken(const struct spmt_view *v)
{
	return broken_in(v, v->own ? area_of(v) : 0);
}

/* At all ranks, this one included, once the host has been told: it knows best. Passes on a mark that this rank has found. By thread
   `lane` of `lanes`. */
static inline void broken_leave_marks(
	const struct spmt_view *v, int code, uint32_t lane, uint32_t lanes)
{
	uint64_t mark = spmtd_peek64_(spmtd_at_(&area_of(v)->error));

	if (!mark)
		mark = broken_mark(v->pe, code);
	for (int pe = (int)lane; pe < v->npes; pe += (int)lanes) {
		uint64_t own = pe == v->pe ? spmtd_at_(v->own) : area_there(v, pe);

		spmtd_poke64_(spmtd_at_(&area_at(own, v->npes)->error), mark);
		spmtd_wake_(v, pe);
	}
}

/* On the host backend the stream hears as well. By one thread. */
static inline void kernel_ended(const struct spmt_view *v, int code)
{
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
	if (v->host && v->host->ended)
		v->host->ended(v, code);
#else
	(void)v;
	(void)code;
#endif
}

/* Called after the report is written: whoever learns by the word reads the reports of all ranks of the process. By one thread. */
static inline void broken_raise(const struct spmt_view *v, uint64_t report, int code)
{
	spmtd_order_();
	if (report) {
		spmtd_poke64_(spmtd_at_(&((struct kernel_report *)spmtd_to_(report))->told), 1);
		spmtd_order_();
	}
	if (v->stop)
		spmtd_poke32_(spmtd_at_(v->stop), 1);
	kernel_ended(v, code);
}

/* Where the host looks for what a kernel has found out: `report` 0: in the record of waits. An abort is told as the mark has it. */
static inline struct spmtd_record *kernel_record_for(
	const struct spmt_view *v, uint64_t report, int *code, int *peer)
{
	struct kernel_report *t = (struct kernel_report *)spmtd_to_(report);
	struct spmtd_record *r = v->record;

	if (t)
		r = *code == SPMTD_MISMATCH ? &t->differs : &t->broke;
	if (t && *code == SPMTD_ABORTED) { /* who has told, -1: the host; and what */
		uint64_t mark = spmtd_peek64_(spmtd_at_(&area_of(v)->error));

		*peer = broken_by(mark);
		if ((int32_t)(uint32_t)mark == SPMTD_MISMATCH)
			*code = SPMTD_MISMATCH;
	}
	return v->own ? r : 0;
}

static inline void kernel_record(const struct spmt_view *v, uint64_t report, int code, int what,
	int peer, uint64_t a, uint64_t expected, uint64_t seen)
{
	struct spmtd_record *r = kernel_record_for(v, report, &code, &peer);

	if (r)
		spmtd_record_at_(r, spmtd_at_(&v->own->recording), code, v->pe, what, peer, a,
			expected, seen);
}

/* The same, inlined: a small kernel would have to spill its registers around a call. */
static inline void kernel_record_here(const struct spmt_view *v, uint64_t report, int code,
	int what, int peer, uint64_t a, uint64_t expected, uint64_t seen)
{
	struct spmtd_record *r = kernel_record_for(v, report, &code, &peer);

	if (r)
		spmtd_record_in_(r, spmtd_at_(&v->own->recording), code, v->pe, what, peer, a,
			expected, seen);
}

static inline void kernel_missing(uint64_t report, int pe)
{
	if (report)
		spmtd_poke8_(report + sizeof(struct kernel_report) + (uint64_t)(uint32_t)pe, 1);
}

/* By one thread of a collective or barrier that begins in a broken comm. */
static inline void broken_refuse(
	const struct spmt_view *v, uint64_t report, int what, uint64_t mark)
{
	kernel_record_here(
		v, report, SPMTD_ABORTED, what, -1, spmtd_at_(&area_of(v)->error), 0, mark);
	broken_raise(v, report, SPMTD_ABORTED);
}

/* Of what is queued behind collectives: it does not take place in a broken comm. */
static inline int kernel_refused(const struct spmt_view *v)
{
	if (!broken(v))
		return 0;
	if (kernel_lane() == 0)
		kernel_ended(v, SPMTD_ABORTED);
	return 1;
}

#endif
