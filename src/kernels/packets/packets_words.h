/* SPDX-License-Identifier: MIT */
/* The data of one packet as it lies before and behind it. */
#ifndef SPMT_KERNELS_PACKETS_WORDS_H
#define SPMT_KERNELS_PACKETS_WORDS_H

#include "packets_part.h"

/* ---- wide ones: words, a line apart each, of which none waits for another ------------------------- */

PLAN_FN uint32_t packets_word(uint64_t a)
{
#if defined(UNITS_ALIGNED)
	return spmtd_gload32_(a);
#else
	return (uint32_t)fetch(a, 4).words[0];
#endif
}

PLAN_FN void packets_put_word(uint64_t a, uint32_t x)
{
#if defined(UNITS_ALIGNED)
	spmtd_gstore32_(a, x);
#else
	union unit u = { .words = { x, 0 } };

	place(a, u, 4);
#endif
}

PLAN_FN struct packets_words packets_fetch_wide(const struct packets *t, uint64_t a, uint32_t i)
{
	const uint64_t at = a + packets_apart(t, i);
	struct packets_words x = { 0, { 0, 0, 0 } };

	if (t->have[i] > 0)
		x.w[0] = packets_word(at);
	if (t->have[i] > 1)
		x.w[1] = packets_word(at + PLAN_PACKETS_LINE);
	if (t->have[i] > 2)
		x.w[2] = packets_word(at + 2 * PLAN_PACKETS_LINE);
	return x;
}

PLAN_FN void packets_put_wide(
	const struct packets *t, uint64_t a, struct packets_words x, uint32_t i)
{
	const uint64_t at = a + packets_apart(t, i);

	if (t->have[i] > 0)
		packets_put_word(at, x.w[0]);
	if (t->have[i] > 1)
		packets_put_word(at + PLAN_PACKETS_LINE, x.w[1]);
	if (t->have[i] > 2)
		packets_put_word(at + 2 * PLAN_PACKETS_LINE, x.w[2]);
}

/* ---- words that are not aligned: by bytes, in a loop, so that there is little code of them ----------- */

#if defined(UNITS_ALIGNED)
PLAN_FN uint32_t packets_any_word(uint64_t a)
{
	return (uint32_t)gather_here(a, 4).words[0];
}

PLAN_FN void packets_put_any_word(uint64_t a, uint32_t x)
{
	union unit u = { .words = { x, 0 } };

	scatter_here(a, u, 4);
}
#else
#define packets_any_word(a) packets_word(a)
#define packets_put_any_word(a, x) packets_put_word(a, x)
#endif

/* The nth packet's word w: not by index, which would put them into memory. */
#define PACKETS_EACH_WORD(nth, w)      \
	LL_EACH(3 * PLAN_PACKETS_EACH) \
	if (i / 3 == (nth) && i % 3 == (w))

PLAN_FN struct packets_data packets_gather(const struct packets *t, uint64_t a)
{
	struct packets_data x;

	__builtin_memset(&x, 0, sizeof(x));
	LL_ROLLED
	for (uint32_t nth = 0; nth < t->has; nth++) {
		const uint64_t at = a + packets_apart(t, nth);
		const uint32_t have = plan_packets_words(t->k + nth * spmtd_threads_(), t->words);

		LL_ROLLED
		for (uint32_t w = 0; w < have; w++) {
			const uint32_t word = packets_any_word(at + w * PLAN_PACKETS_LINE);

			PACKETS_EACH_WORD(nth, w)
			x.x[i / 3].w[i % 3] = word;
		}
	}
	return x;
}

PLAN_FN void packets_scatter(const struct packets *t, uint64_t a, const struct packets_data *x)
{
	LL_ROLLED
	for (uint32_t nth = 0; nth < t->has; nth++) {
		const uint64_t at = a + packets_apart(t, nth);
		const uint32_t have = plan_packets_words(t->k + nth * spmtd_threads_(), t->words);

		LL_ROLLED
		for (uint32_t w = 0; w < have; w++) {
			uint32_t word = 0;

			PACKETS_EACH_WORD(nth, w)
			word = x->x[i / 3].w[i % 3];
			packets_put_any_word(at + w * PLAN_PACKETS_LINE, word);
		}
	}
}

/* ---- narrow ones ------------------------------------------------------------------------------------ */

PLAN_FN struct packets_words packets_fetch(const struct packets *t, uint64_t a, uint32_t i)
{
	struct packets_words x = { 0, { 0, 0, 0 } };

#if defined(UNITS_ALIGNED)
	x.two = spmtd_gload64_(a + packets_apart(t, i));
#else
	x.two = fetch(a + packets_apart(t, i), 8).words[0];
#endif
	return x;
}

PLAN_FN void packets_put(const struct packets *t, uint64_t a, struct packets_words x, uint32_t i)
{
#if defined(UNITS_ALIGNED)
	spmtd_gstore64_(a + packets_apart(t, i), x.two);
#else
	place(a + packets_apart(t, i), packets_unit(t, x), 8);
#endif
}

#endif
