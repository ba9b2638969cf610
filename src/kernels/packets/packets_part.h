/* SPDX-License-Identifier: MIT */
/* Which packets of a block's share a thread has in a round, and where they are. */
#ifndef SPMT_KERNELS_PACKETS_PART_H
#define SPMT_KERNELS_PACKETS_PART_H

#include "packets.h"

/* Where a block's share begins. */
PLAN_FN uint64_t packets_from(const struct plan_packets *p, uint32_t block)
{
	uint64_t lines = (uint64_t)p->lines * block + (block < p->more ? block : p->more);

	return lines * SPMTD_SHARE_LINE_ < p->bytes ? lines * SPMTD_SHARE_LINE_ : p->bytes;
}

PLAN_FN void packets_share(struct packets *t, uint32_t block)
{
	t->from = packets_from(t->plan, block);
	t->words = (uint32_t)(packets_from(t->plan, block + 1) - t->from) / 4;
	t->n = plan_packets_of(t->words, t->size);
}

/* Of plain data. */
PLAN_FN uint64_t packets_plain(const struct packets *t, uint32_t place)
{
	return t->plan->at[place] + t->plain;
}

/* Of packets, in even epochs. */
PLAN_FN uint64_t packets_even(const struct packets *t, uint32_t place)
{
	return t->plan->at[place] + t->packed;
}

/* The first word of the thread's i-th packet, among the block's. */
PLAN_FN uint32_t packets_first(const struct packets *t, uint32_t i)
{
	uint32_t k = t->k + i * spmtd_threads_();

	return t->size == PLAN_PACKETS_WIDE ? plan_packets_first(k) : 2 * k;
}

/* Bytes from the data of the thread's first packet to that of its i-th. A GPU's blocks are of whole warps. */
PLAN_FN uint64_t packets_apart(const struct packets *t, uint32_t i)
{
#if defined(__NVPTX__)
	return (uint64_t)(t->size * i * spmtd_threads_());
#else
	return 4 * (uint64_t)(packets_first(t, i) - packets_first(t, 0));
#endif
}

PLAN_FN void packets_round(struct packets *t, uint32_t round)
{
	const uint32_t threads = spmtd_threads_();
	const uint32_t k = spmtd_tid_() + t->each * threads * round;
	const uint32_t left = k < t->n ? t->n - k : 0;

	t->k = k;
	t->has = 0;
	LL_EACH(PLAN_PACKETS_EACH)
	{
		const uint32_t has = i < t->each && left > i * threads;

		t->has += has;
		t->have[i] = 0;
		if (t->size == PLAN_PACKETS_WIDE)
			t->have[i] = (uint32_t)kernel_now(
				has ? plan_packets_words(k + i * threads, t->words) : 0);
	}
	t->plain = t->from + 4 * (uint64_t)packets_first(t, 0);
	t->packed = 2 * t->from + 16 * (uint64_t)k;
}

/* A packet's data, as folds have it. */
PLAN_FN union unit packets_unit(const struct packets *t, struct packets_words x)
{
	if (t->size != PLAN_PACKETS_WIDE)
		return (union unit){ .words = { x.two, 0 } };
	return (union unit){ .words = { x.w[0] | (uint64_t)x.w[1] << 32, x.w[2] } };
}

PLAN_FN struct packets_words packets_words_of(union unit u)
{
	return (struct packets_words){ u.words[0],
		{ (uint32_t)u.words[0], (uint32_t)(u.words[0] >> 32), (uint32_t)u.words[1] } };
}

PLAN_FN int packets_has(const struct packets *t, uint32_t i)
{
	return i < t->each && i < t->has;
}

/* One behind the last: any. */
PLAN_FN struct packets_step packets_step_of(const struct packets *t, uint32_t nth)
{
	const struct plan_packets_step *s = &t->plan->step[nth];
	struct packets_step x = { s->kind, s->ndst, s->n, s->first, s->meets, 0, 0, 0 };
	uint32_t src = x.first + x.ndst;

	x.own = packets_plain(t, src);
	x.term = packets_even(t, x.kind == PLAN_STEP_FOLD_PACKETS ? src + 1 : src);
	x.to = packets_plain(t, x.first);
	return x;
}

#endif
