/* SPDX-License-Identifier: MIT */
/* The data of packets as it lies before and behind them. */
#ifndef SPMT_KERNELS_PACKETS_PLAIN_H
#define SPMT_KERNELS_PACKETS_PLAIN_H

#include "packets.h"

/* any: it may not be aligned to words. */
PLAN_FN uint32_t packets_word(const struct packets *t, uint64_t a, int any)
{
#if defined(UNITS_ALIGNED)
	return any && t->odd ? (uint32_t)gather_here(a, 4).words[0] : spmtd_gload32_(a);
#else
	(void)t;
	(void)any;
	return (uint32_t)fetch(a, 4).words[0];
#endif
}

PLAN_FN void packets_put_word(const struct packets *t, uint64_t a, uint32_t x, int any)
{
	union unit u = { .words = { x, 0 } };

#if defined(UNITS_ALIGNED)
	if (any && t->odd)
		scatter_here(a, u, 4);
	else
		spmtd_gstore32_(a, x);
#else
	(void)t;
	(void)any;
	place(a, u, 4);
#endif
}

/* Bytes from the thread's first packet's data to its i-th's. */
PLAN_FN uint64_t packets_apart(const struct packets *t, uint32_t i)
{
	return 4 * (uint64_t)(packets_first(t, i) - packets_first(t, 0));
}

/* full: a constant, which says nothing of narrow ones. */
PLAN_FN union unit packets_fetch(const struct packets *t, uint64_t a, uint32_t i, int full)
{
	const uint64_t at = a + packets_apart(t, i);
	const uint32_t words = full ? 3 : packets_words(t, i);
	union unit u = { .words = { 0, 0 } };

	if (t->size != PLAN_PACKETS_WIDE) {
#if defined(UNITS_ALIGNED)
		u.words[0] = spmtd_gload64_(at);
		return u;
#else
		return fetch(at, 8);
#endif
	}
	u.words[0] = packets_word(t, at, !full);
	if (words > 1)
		u.words[0] |= (uint64_t)packets_word(t, at + PLAN_PACKETS_LINE, !full) << 32;
	if (words > 2)
		u.words[1] = packets_word(t, at + 2 * PLAN_PACKETS_LINE, !full);
	return u;
}

PLAN_FN void packets_put(const struct packets *t, uint64_t a, union unit u, uint32_t i, int full)
{
	const uint64_t at = a + packets_apart(t, i);
	const uint32_t words = full ? 3 : packets_words(t, i);

	if (t->size != PLAN_PACKETS_WIDE) {
#if defined(UNITS_ALIGNED)
		spmtd_gstore64_(at, u.words[0]);
#else
		place(at, u, 8);
#endif
		return;
	}
	packets_put_word(t, at, (uint32_t)u.words[0], !full);
	if (words > 1)
		packets_put_word(t, at + PLAN_PACKETS_LINE, (uint32_t)(u.words[0] >> 32), !full);
	if (words > 2)
		packets_put_word(t, at + 2 * PLAN_PACKETS_LINE, (uint32_t)u.words[1], !full);
}

/* a: where its first one is. What is wide and not full goes one after the other: not by index, which would put it into memory. */
PLAN_FN struct packets_data packets_load(const struct packets *t, uint64_t a)
{
	struct packets_data x;

	__builtin_memset(&x, 0, sizeof(x));
	if (t->full || t->size != PLAN_PACKETS_WIDE) {
		LL_EACH(PLAN_PACKETS_EACH)
		{
			if (packets_has(t, i, t->full))
				x.u[i] = packets_fetch(t, a, i, 1);
		}
		return x;
	}
	LL_ROLLED
	for (uint32_t nth = 0; nth < t->has; nth++) {
		union unit u = packets_fetch(t, a, nth, 0);

		LL_EACH(PLAN_PACKETS_EACH)
		{
			if (i == nth)
				x.u[i] = u;
		}
	}
	return x;
}

PLAN_FN void packets_store(const struct packets *t, uint64_t a, const struct packets_data *x)
{
	if (t->full || t->size != PLAN_PACKETS_WIDE) {
		LL_EACH(PLAN_PACKETS_EACH)
		{
			if (packets_has(t, i, t->full))
				packets_put(t, a, x->u[i], i, 1);
		}
		return;
	}
	LL_ROLLED
	for (uint32_t nth = 0; nth < t->has; nth++) {
		union unit u = x->u[0];

		LL_EACH(PLAN_PACKETS_EACH)
		{
			if (i == nth)
				u = x->u[i];
		}
		packets_put(t, a, u, nth, 0);
	}
}

#endif
