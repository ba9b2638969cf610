/* SPDX-License-Identifier: MIT */
/* Packets as they lie at the rank that waits for them. */
#ifndef SPMT_KERNELS_PACKETS_THERE_H
#define SPMT_KERNELS_PACKETS_THERE_H

#include "packets_part.h"
#include "src/kernels/fold/slot.h"

PLAN_FN struct spmtd_unit_ packets_made(const struct packets *t, struct packets_words x)
{
	const union unit u = packets_unit(t, x);
	struct spmtd_unit_ p = { u.words[0], (uint64_t)t->flag << 32 | x.w[2] };

	return t->size == PLAN_PACKETS_WIDE ? p : spmtd_packet_(x.two, t->flag);
}

PLAN_FN uint64_t packets_at(const struct packets *t, uint64_t even, uint32_t i)
{
	return even + t->set + i * (uint64_t)(16 * spmtd_threads_());
}

PLAN_FN void packets_send(const struct packets *t, uint64_t even, const struct packets_data *x)
{
	LL_EACH(PLAN_PACKETS_EACH)
	{
		if (packets_has(t, i))
			slot_poke(packets_at(t, even, i), packets_made(t, x->x[i]));
	}
}

/* As if those that the thread does not have had come. */
PLAN_FN struct packets_seen packets_look(const struct packets *t, uint64_t even)
{
	struct packets_seen s;

	LL_EACH(PLAN_PACKETS_EACH)
	{
		s.at[i].a = s.at[i].b = (uint64_t)t->flag << 32;
		if (packets_has(t, i))
			s.at[i] = t->size == PLAN_PACKETS_WIDE
				? slot_peek_flagged(packets_at(t, even, i))
				: slot_peek(packets_at(t, even, i));
	}
	return s;
}

PLAN_FN int packets_came(const struct packets *t, const struct packets_seen *s)
{
	uint32_t differ = 0;

	LL_EACH(PLAN_PACKETS_EACH)
	{
		if (i >= t->each)
			break;
		differ |= (uint32_t)(s->at[i].b >> 32) ^ t->flag;
		if (t->size != PLAN_PACKETS_WIDE)
			differ |= (uint32_t)(s->at[i].a >> 32) ^ t->flag;
	}
	return !differ;
}

PLAN_FN struct packets_data packets_data_of(const struct packets *t, const struct packets_seen *s)
{
	struct packets_data x;

	LL_EACH(PLAN_PACKETS_EACH)
	{
		const int wide = t->size == PLAN_PACKETS_WIDE;

		x.x[i] = packets_words_of(
			(union unit){ .words = { wide ? s->at[i].a : spmtd_packet_data_(s->at[i]),
					      wide ? s->at[i].b : 0 } });
	}
	return x;
}

#endif
