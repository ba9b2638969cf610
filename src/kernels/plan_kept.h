/* SPDX-License-Identifier: MIT */
/* A block's list in memory that answers at once, with the addresses of its places. */
#ifndef SPMT_KERNELS_PLAN_KEPT_H
#define SPMT_KERNELS_PLAN_KEPT_H

#include "plan_places.h"

#if defined(PLAN_KEPT)

PLAN_FN void plan_keep_words(uint64_t *to, uint64_t from, uint32_t words)
{
	const uint64_t *at = (const uint64_t *)spmtd_to_(from);

	for (uint32_t i = spmtd_tid_(); i < words; i += spmtd_threads_())
		to[i] = at[i];
}

/* A block's list to memory that answers at once, unless it has no room there; the block has yet to meet. */
PLAN_FN void plan_keep(struct plan_now *now)
{
	uint32_t places = now->end.place - now->first.place;
	uint32_t of_steps = (now->end.step - now->first.step) * (sizeof(struct plan_step) / 8);
	uint32_t of_places = places * (sizeof(struct plan_step_place) / 8);
	uint64_t *to = (uint64_t *)plan_kept;

	_Static_assert(!(sizeof(struct plan_step) % 8 || sizeof(struct plan_step_place) % 8), "");
	if (of_steps > PLAN_KEPT || of_places + places > PLAN_KEPT - of_steps)
		return;
	plan_keep_words(to, now->steps, of_steps);
	plan_keep_words(to + of_steps, now->places, of_places);
	now->steps = spmtd_at_(to);
	now->places = spmtd_at_(to + of_steps);
	now->at = spmtd_at_(to + of_steps + of_places);
}

/* A thread each: the addresses that other ranks tell, or all else, of packets and scratch in the sets that r has. The block has yet to meet. */
PLAN_FN void plan_resolve(const struct plan_run *r, int told)
{
	const struct plan_step_place *places =
		(const struct plan_step_place *)spmtd_to_(r->now->places);
	uint64_t *at = (uint64_t *)spmtd_to_(r->now->at);
	struct plan_step *steps = (struct plan_step *)spmtd_to_(r->now->steps);

	for (uint32_t i = spmtd_tid_(); i < r->now->end.place - r->now->first.place;
		i += spmtd_threads_())
		if (plan_is_told(r, &places[i]) == told)
			at[i] = plan_place_from(
				r, &places[i], plan_part(r, plan_step_at(r, places[i].step)).from);
	for (uint32_t i = spmtd_tid_(); !told && i < r->now->end.step - r->now->first.step;
		i += spmtd_threads_())
		steps[i].found =
			steps[i].n ? plan_part(r, &steps[i]).n : plan_word_from(r, &steps[i]);
}

/* What others tell is not known before the ranks have met: then, as late as a block meets anyway, unless some step wants it sooner. */
PLAN_FN int plan_is_to_hear(const struct plan_run *r)
{
	return r->now->at && r->given->row;
}

PLAN_FN void plan_hear(const struct plan_run *r)
{
	plan_resolve(r, 1);
}

/* Of what a thread has resolved packets, and scratch of two sets, are in the other one. */
PLAN_FN void plan_turn(const struct plan_run *r)
{
	const struct plan_step_place *places =
		(const struct plan_step_place *)spmtd_to_(r->now->places);
	uint64_t *at = (uint64_t *)spmtd_to_(r->now->at);

	for (uint32_t i = spmtd_tid_(); i < r->now->end.place - r->now->first.place;
		i += spmtd_threads_()) {
		if (places[i].space == PLAN_SPACE_PACKETS)
			at[i] += r->given->other_packets;
		if (places[i].space == PLAN_SPACE_SCRATCH)
			at[i] += r->given->other_scratch;
	}
}

#elif defined(PLAN_IN_BLOCKS)

PLAN_FN int plan_is_to_hear(const struct plan_run *r)
{
	(void)r;
	return 0;
}

PLAN_FN void plan_hear(const struct plan_run *r)
{
	(void)r;
}

#endif

#endif
