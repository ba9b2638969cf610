/* SPDX-License-Identifier: MIT */
/* What packets say of the order of a block that reads, and one that stores there behind them: from place to place, as they are sent on. */
#include <string.h>

#include "check.h"
#include "src/base/mem.h"

#define SENT_CUTS \
	32 /* ways of cutting the chunks of a packet's way; each doubles the cases at least */

static void sent_look(struct check *c, uint64_t times)
{
	c->looked += times;
	(void)check_goes_on(c, times);
}

static const struct check_touch *packets_of(const struct check *c, int rank)
{
	const struct check_touch *from = c->packets, *to = c->touches + c->ntouches;

	while (from < to) {
		const struct check_touch *middle = from + (to - from) / 2;

		if (middle->chunk.rank < rank)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static const struct spmt_plan_op *op_of(const struct check *c, const struct check_touch *t)
{
	const struct check_step *s = &c->steps[t->step];

	return &c->walk.threads[s->thread].list->ops[s->nth];
}

/* What b's operation takes comes packet by packet, and each one says that its own bytes have been read, and no others. */
static bool is_taken(const struct check *c, const struct check_touch *r, uint64_t shift,
	const struct check_touch *b)
{
	if (r->step == b->step)
		return r->range.all_from - b->range.all_from == shift;
	return check_before(c, r, b, true);
}

/* A part of these chunks; slices 0: all of them. */
struct sent_part {
	uint64_t from, to;
	int slice, slices;
};

/*
 * Bytes that are read to make packets of, and stored over: those of the chunk `at`, with as many behind it, up to `end`, as go the same way.
 * Of chunks that are cut like this they are in these parts: of who makes packets of them, of who stores there, and of those that are
 * gone through one after the other, as each part may go its own way.
 */
struct sent_bytes {
	uint64_t at, end;
	struct sent_part made_of, stored, followed[SENT_CUTS];
	int nfollowed;
};

/* As if it lay where the packets' bytes do. */
static struct sent_part sent_part_of(const struct check_touch *t, uint64_t shift)
{
	return (struct sent_part){ t->range.all_from - shift, t->range.all_to - shift,
		t->range.part.slice, t->range.part.slices };
}

static bool cut_like(const struct sent_part *a, const struct sent_part *b)
{
	return a->slices == b->slices && a->from == b->from && a->to == b->to;
}

/* Whether a part has the bytes. Where it begins is known of none that is cut otherwise. */
enum sent_has { HAS_NONE, HAS_SOME, HAS_ALL };
static enum sent_has sent_has(const struct sent_bytes *bytes, const struct sent_part *part)
{
	const struct sent_part *own = NULL;

	if (!part->slices)
		return HAS_ALL;
	if (cut_like(&bytes->made_of, part))
		own = &bytes->made_of;
	else if (cut_like(&bytes->stored, part))
		own = &bytes->stored;
	for (int i = 0; i < bytes->nfollowed && !own; i++)
		if (cut_like(&bytes->followed[i], part))
			own = &bytes->followed[i];
	return !own ? HAS_SOME : own->slice == part->slice ? HAS_ALL : HAS_NONE;
}

/* Each place once. */
static void place_note(struct check *c, int rank, uint64_t end, uint64_t shift)
{
	struct check_places *l = &c->places;

	sent_look(c, l->n);
	for (size_t i = 0; i < l->n; i++)
		if (l->at[i].rank == rank && l->at[i].shift == shift)
			return;
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 16;
		struct check_place *more = mem_calloc(room, sizeof(*more));

		c->no_memory |= !more;
		if (!more)
			return;
		if (l->n)
			memcpy(more, l->at, l->n * sizeof(*more));
		mem_free(l->at);
		l->at = more;
		l->room = room;
	}
	l->at[l->n++] = (struct check_place){ rank, end, shift };
}

/* Where r sends on what it reads at p, if that is to be noted. False: nowhere. */
static bool sends_on(
	struct check *c, const struct check_touch *r, const struct check_place *p, bool note)
{
	const struct spmt_plan_op *op = op_of(c, r);
	bool any = false;

	for (int i = 0; i < op->ndst; i++) {
		uint64_t move = walk_range_of(op, &op->dst[i]).all_from - r->range.all_from;

		if (plan_dst_place(op, i) != PLAN_PACKETS)
			continue;
		any = true;
		if (note)
			place_note(c, op->dst[i].rank, MIN_OF(p->end, r->range.all_to - p->shift),
				p->shift + move);
	}
	return any;
}

/* Up to where they have come when b stores, by one way from the places that are noted on; bytes->at: by none. *cut: who would take some of them,
   or send some on, has such a part; slices 0: nobody has. */
static uint64_t come_up_to(struct check *c, const struct sent_bytes *bytes,
	const struct check_touch *b, struct sent_part *cut)
{
	const struct check_touch *end = c->touches + c->ntouches;

	*cut = (struct sent_part){ .slices = 0 };
	for (size_t i = 0; i < c->places.n && !check_ended(c); i++) {
		const struct check_place p = c->places.at[i];
		uint64_t at = bytes->at + p.shift;

		for (const struct check_touch *r = packets_of(c, p.rank);
			r < end && r->chunk.rank == p.rank && r->range.all_from <= at; r++) {
			struct sent_part part = sent_part_of(r, p.shift);
			enum sent_has has = sent_has(bytes, &part);
			bool taken;

			sent_look(c, 1);
			if (r->writes || at >= r->range.all_to || has == HAS_NONE)
				continue;
			taken = is_taken(c, r, p.shift, b);
			if (taken && has == HAS_ALL)
				return MIN_OF(p.end, r->range.all_to - p.shift);
			if ((sends_on(c, r, &p, has == HAS_ALL) || taken) && has == HAS_SOME &&
				!part.slice)
				*cut = part;
		}
	}
	return bytes->at;
}

/* Each part of the cut is a case. False: there is none. */
static bool cases_begin(struct check *c, struct sent_bytes *bytes, const struct sent_part *cut)
{
	if (!cut->slices)
		return false;
	if (bytes->nfollowed < SENT_CUTS)
		bytes->followed[bytes->nfollowed++] = *cut;
	else
		c->looked = CHECK_LOOKS;
	return !check_ended(c);
}

/* False: that was the last one. */
static bool cases_go_on(struct sent_bytes *bytes)
{
	struct sent_part *last = bytes->followed + bytes->nfollowed;

	while (last > bytes->followed && last[-1].slice + 1 == last[-1].slices)
		last--;
	bytes->nfollowed = (int)(last - bytes->followed);
	if (bytes->nfollowed)
		last[-1].slice++;
	return bytes->nfollowed > 0;
}

/* Likewise, of those that go to one place first, in each case: whichever parts they are in. */
static uint64_t sent_up_to(struct check *c, struct sent_bytes *bytes, const struct check_touch *b,
	int rank, uint64_t shift)
{
	struct sent_part cut;
	bool more = true;

	bytes->nfollowed = 0;
	while (more) {
		uint64_t known;

		c->places.n = 0;
		place_note(c, rank, bytes->end, shift);
		known = come_up_to(c, bytes, b, &cut);
		if (known > bytes->at) {
			bytes->end = known;
			more = cases_go_on(bytes);
		} else if (!cases_begin(c, bytes, &cut)) {
			return bytes->at;
		}
	}
	return bytes->end;
}

/* a reads what its operation sends as packets, and b stores something there: have those come? */
static bool sent_before(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	const struct spmt_plan_op *op = op_of(c, a);
	uint64_t from = MAX_OF(a->range.all_from, b->range.all_from),
		 to = MIN_OF(a->range.all_to, b->range.all_to), known;

	for (int i = 0; i < op->ndst; i++) {
		uint64_t shift = walk_range_of(op, &op->dst[i]).all_from - a->range.all_from;
		struct sent_bytes bytes = { .made_of = sent_part_of(a, 0),
			.stored = sent_part_of(b, 0) };

		if (plan_dst_place(op, i) != PLAN_PACKETS)
			continue;
		known = from;
		do {
			bytes.at = known;
			bytes.end = to;
			known = sent_up_to(c, &bytes, b, op->dst[i].rank, shift);
		} while (known > bytes.at && known < to);
		if (known >= to)
			return true;
	}
	return false;
}

/* b stores what comes as packets, each behind the packet of its own place: whoever wrote that one had read what a reads. */
static bool told_before(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	const struct check_step *x = &c->steps[a->step], *y = &c->steps[b->step];
	const struct walk_packets *p = &c->walk.packets[c->walk.threads[y->thread].rank];
	const struct spmt_plan_op *op = op_of(c, b);

	for (int i = 0; i < op->nsrc; i++) {
		struct walk_range r = walk_range_of(op, &op->src[i]);
		uint64_t shift = r.all_from - b->range.all_from;
		bool any = false, all = true, had;

		for (size_t k = 0; plan_src_place(op, i) == PLAN_PACKETS && k < p->n; k++) {
			const struct walk_range *w = &p->ranges[k];

			sent_look(c, 1);
			if (!walk_feeds(w, &r) || w->all_from >= a->range.all_to + shift ||
				w->all_to <= a->range.all_from + shift)
				continue;
			any = true;
			had = check_had_read(&c->steps[w->by], x->thread) >= x->clock[x->thread];
			if (had && walk_shares(w, &r, c->given))
				return true;
			all &= had;
		}
		if (any && all)
			return true;
	}
	return false;
}

bool check_packets_before(struct check *c, const struct check_touch *a, const struct check_touch *b)
{
	return told_before(c, a, b) || sent_before(c, a, b);
}
