/* SPDX-License-Identifier: MIT */
/*
 * The executor of plans: one kernel, a block of threads a block of the plan. On the host one thread goes through all blocks of its rank
 * in turn, each as far as what it waits for is there.
 */
#include "../../include/spmt.h"
#include "plan_fold.h"
#include "plan_kept.h"
#include "plan_places.h"
#include "plan_run.h"

/* How far a block has come. */
struct plan_block {
	uint32_t at, end;
	uint32_t block;
	uint32_t arrived; /* where it waits, to see `before` and `more` there */
	uint64_t before, more;
};

/* ---- the steps -------------------------------------------------------------------------------- */

/* Of src, which is place 1 unless that is being copied, to place 0. */
PLAN_FN void plan_copy(const struct plan_run *r, const struct plan_step *s, uint64_t src)
{
	uint64_t n = plan_bytes(r, s);

	if (n)
		spmtd_copy_put_(plan_place_at(r, s, 0), src, n, SPMTD_BLOCK_);
}

PLAN_FN int plan_fold(const struct plan_run *r, const struct plan_step *s)
{
	uint64_t found[2 * SPMT_PLAN_TERMS];
	const uint64_t *at = r->now->at ? plan_kept_at(r, s) : found;
	struct plan_fold f = { .v = r->v,
		.dst = at,
		.src = at + s->ndst,
		.ndst = s->ndst,
		.nsrc = s->n - s->ndst,
		.packets = s->kind == PLAN_STEP_FOLD_PACKETS,
		.flag = (uint32_t)r->now->flag,
		.n = plan_bytes(r, s) };

	for (uint32_t i = 0; !r->now->at && i < s->n; i++)
		found[i] = plan_place_at(r, s, i);
	plan_fold_units(&f, r->given->type, r->given->op);
	if (!f.packets)
		return 0;
	for (uint32_t i = 1; i < s->ndst; i++)
		spmtd_wake_(r->v, (int)plan_place(r, s, i)->rank);
	return spmtd_agree_(f.rc, SPMTD_BLOCK_);
}

/* Packets of this rank's src to place 0. */
PLAN_FN void plan_pack(const struct plan_run *r, const struct plan_step *s, uint64_t src)
{
	spmtd_do_put_packets_(r->v, plan_place_at(r, s, 0), spmtd_to_(src), plan_bytes(r, s),
		(uint32_t)r->now->flag, (int)plan_place(r, s, 0)->rank, SPMTD_BLOCK_, 8);
}

/* What waits is over by then on the host. */
PLAN_FN int plan_packets(const struct plan_run *r, const struct plan_step *s)
{
	uint64_t dst = plan_place_at(r, s, 0), n = plan_bytes(r, s);
	const void *src = spmtd_to_(plan_place_at(r, s, 1));
	int onward = s->kind == PLAN_STEP_FORWARD;

	return spmtd_do_get_packets_(r->v, spmtd_to_(onward ? 0 : dst), src, n,
		(uint32_t)r->now->flag, onward ? dst : 0,
		onward ? (int)plan_place(r, s, 0)->rank : -1, SPMTD_BLOCK_, 8);
}

/* The block has met behind what it has moved. */
PLAN_FN void plan_signal(const struct plan_run *r, const struct plan_step *s)
{
	uint64_t word;

	if (spmtd_tid_() != 0)
		return;
	word = plan_word_at(r, s);
	if (s->relaxed)
		spmtd_noret_add64_(word, 1);
	else
		spmtd_release_add_(word, 1);
	spmtd_wake_(r->v, (int)s->peer);
}

/* ---- waits ------------------------------------------------------------------------------------ */

/* By one thread: where a block has to see `before` and `more`, `arrived` set. */
PLAN_FN uint64_t plan_awaited(
	const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	uint64_t word = plan_word_at(r, s);

	if (b->arrived)
		return word;
	b->arrived = 1;
	if (s->kind == PLAN_STEP_WAIT) {
		b->before = spmtd_peek64_(word + sizeof(uint64_t));
		b->more = 1 - (uint64_t)s->initial;
	} else {
		spmtd_order_(); /* an arrival tells of what the block has done */
		b->before = spmtd_add64_(word, 1);
		spmtd_wake_(r->v, r->v->pe);
		b->more = s->initial - b->before % s->initial;
	}
	return word;
}

PLAN_FN int plan_has_come(const struct plan_block *b, uint64_t seen)
{
	return (int64_t)(seen - b->before - b->more) >= 0;
}

/* By one thread, of a wait that is over. */
PLAN_FN void plan_taken(const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	if (s->kind == PLAN_STEP_WAIT)
		spmtd_poke64_(plan_word_at(r, s) + sizeof(uint64_t), b->before + 1);
	b->arrived = 0;
}

PLAN_FN int plan_step_waits(const struct plan_step *s)
{
	return s->kind == PLAN_STEP_WAIT || s->kind == PLAN_STEP_BARRIER;
}

/* Anything but a wait. */
PLAN_FN int plan_do(const struct plan_run *r, const struct plan_step *s)
{
	switch (s->kind) {
	case PLAN_STEP_COPY:
		plan_copy(r, s, plan_place_at(r, s, 1));
		return 0;
	case PLAN_STEP_FOLD:
	case PLAN_STEP_FOLD_PACKETS:
		return plan_fold(r, s);
	case PLAN_STEP_SIGNAL:
		plan_signal(r, s);
		return 0;
	case PLAN_STEP_PACK:
		plan_pack(r, s, plan_place_at(r, s, 1));
		return 0;
	default:
		return plan_packets(r, s);
	}
}

PLAN_FN void plan_failed(
	const struct plan_run *r, const struct plan_step *s, uint64_t word, uint64_t target, int rc)
{
	int peer = s->kind == PLAN_STEP_WAIT && s->peer < (uint32_t)r->v->npes ? (int)s->peer : -1;

	kernel_record(r->v, r->given->report, rc, SPMTD_WHAT_CHANNEL, peer, word, target,
		word ? spmtd_peek64_(word) : 0);
	if (peer >= 0 && peer != r->v->pe)
		kernel_missing(r->given->report, peer);
	if (r->given->row) /* it ends as collectives do */
		return;
	broken_raise(r->v, r->given->report, rc);
	broken_leave_marks(r->v, rc, 0, 1);
}

/* ---- before the ranks have met, as a row ------------------------------------------------------- */

/*
 * What a block begins with of its own input, as packets, or to another rank's scratch where that has two sets, goes as early as the greeting: no
 * peer has touched this set since it came to the collective before this one. An input that is being copied is read where it was.
 */
PLAN_FN int plan_leads(const struct plan_run *r, const struct plan_step *s)
{
	const struct plan_step_place *to = plan_place(r, s, 0), *from = plan_place(r, s, 1);

	if (s->kind == PLAN_STEP_COPY &&
		(!r->given->other_scratch || to->space != PLAN_SPACE_SCRATCH ||
			(int)to->rank == r->v->pe))
		return 0;
	return (s->kind == PLAN_STEP_COPY || s->kind == PLAN_STEP_PACK) &&
		from->space <= PLAN_SPACE_OUTPUT && (int)from->rank == r->v->pe;
}

/* How far that goes; threads do not meet on the way. */
PLAN_FN uint32_t plan_led(const struct plan_run *r, uint32_t first, uint32_t end)
{
	uint32_t at = first;

	while (r->given->row && at < end) {
		const struct plan_step *s = plan_step_at(r, at);

		if (!plan_leads(r, s))
			break;
		if (s->kind == PLAN_STEP_COPY && at > first && (s->meets & PLAN_MEETS))
			break;
		at++;
	}
	return at;
}

PLAN_FN void plan_lead(const struct plan_run *r, uint32_t at, uint32_t end)
{
	for (end = plan_led(r, at, end); at < end; at++) {
		const struct plan_step *s = plan_step_at(r, at);
		uint64_t src = plan_place_at(r, s, 1);

		if (src - r->now->to < r->now->bytes)
			src += r->now->from - r->now->to;
		if (s->kind == PLAN_STEP_PACK)
			plan_pack(r, s, src);
		else
			plan_copy(r, s, src);
	}
}

#if defined(PLAN_IN_BLOCKS)

PLAN_FN void plan_find(const struct plan_given *g, struct plan_now *now)
{
	const struct plan_first *first = plan_firsts(g) + kernel_block();

	now->first = first[0];
	now->end = first[1];
	now->steps = g->at + g->steps + now->first.step * sizeof(struct plan_step);
	now->places = g->at + g->places + now->first.place * sizeof(struct plan_step_place);
#if defined(PLAN_KEPT)
	plan_keep(now);
#endif
}

/* Until a wait is over, the same in all threads of the block. */
PLAN_FN int plan_wait(const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	int rc = 0;

	if (spmtd_tid_() == 0) {
		uint64_t word = plan_awaited(r, s, b), seen = spmtd_look64_(word);
		struct spmtd_waiter_ w;

		/* Both words are loaded at once: nothing is made of the first before the second is looked at. */
		b->before = kernel_now(b->before);
		spmtd_wait_begin_(&w);
		while (!rc && !plan_has_come(b, seen)) {
			rc = coll_patience(r->v, &w);
			seen = spmtd_look64_(word);
		}
		if (rc)
			plan_failed(r, s, word, b->before + b->more, rc);
		else
			plan_taken(r, s, b);
	}
	rc = spmtd_agree_(rc, SPMTD_BLOCK_);
	if (!s->relaxed)
		spmtd_acquired_();
	return rc;
}

/* By the threads of a block that has a list: 0, or the code that ended it. */
PLAN_CALL int plan_go(const struct plan_run *r)
{
	struct plan_block b = { 0 };
	int rc = 0, told = !plan_is_to_hear(r);

	for (b.at = plan_led(r, r->now->first.step, r->now->end.step);
		!rc && b.at < r->now->end.step; b.at++) {
		const struct plan_step *s = plan_step_at(r, b.at);
		uint32_t meets = s->meets & (told ? PLAN_MEETS : PLAN_MEETS | PLAN_MEETS_TOLD);

		if (meets && !told) {
			plan_hear(r);
			told = 1;
		}
		if (meets)
			spmtd_meet_settled_(SPMTD_BLOCK_);
		if (plan_step_waits(s)) {
			rc = plan_wait(r, s, &b);
			continue;
		}
		rc = plan_do(r, s);
		if (rc && spmtd_tid_() == 0)
			plan_failed(r, s, 0, 0, rc);
	}
	return rc;
}

PLAN_CALL void plan_early(const struct plan_run *r)
{
	plan_lead(r, r->now->first.step, r->now->end.step);
}

PLAN_CALL int plan_has_list(const struct plan_given *g)
{
	return (int)kernel_block() < g->blocks;
}

#else

PLAN_FN void plan_find(const struct plan_given *g, struct plan_now *now)
{
	now->steps = g->at + g->steps;
	now->places = g->at + g->places;
}

PLAN_CALL int plan_has_list(const struct plan_given *g)
{
	return g->blocks > 0;
}

PLAN_CALL void plan_early(const struct plan_run *r)
{
	const struct plan_first *firsts = plan_firsts(r->given);

	for (int i = 0; i < r->given->blocks; i++)
		plan_lead(r, firsts[i].step, firsts[i + 1].step);
}

PLAN_FN int plan_packets_came(const struct plan_run *r, uint64_t at, uint64_t n)
{
	for (n /= 8; n; n--)
		if (!spmtd_packet_came_(
			    spmtd_packet_peek_(at + (n - 1) * 16, 8), (uint32_t)r->now->flag))
			return 0;
	return 1;
}

/* How many of the sources of a step are none. */
PLAN_FN uint32_t plan_plain(const struct plan_step *s)
{
	if (s->kind == PLAN_STEP_UNPACK || s->kind == PLAN_STEP_FORWARD)
		return 0;
	return s->kind == PLAN_STEP_FOLD_PACKETS ? 1 : s->n;
}

PLAN_FN int plan_ready(const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	uint64_t word;

	for (uint32_t i = s->ndst + plan_plain(s); i < s->n; i++)
		if (!plan_packets_came(r, plan_place_at(r, s, i), plan_bytes(r, s)))
			return 0;
	if (!plan_step_waits(s))
		return 1;
	word = plan_awaited(r, s, b);
	if (!plan_has_come(b, spmtd_look64_(word)))
		return 0;
	plan_taken(r, s, b);
	return 1;
}

/* As far as it goes. How many steps that were; *rc: of the last. */
PLAN_FN int plan_further(const struct plan_run *r, struct plan_block *b, int *rc)
{
	int done = 0;

	for (; !*rc && b->at < b->end; b->at++, done = 1) {
		const struct plan_step *s = plan_step_at(r, b->at);

		if (!plan_ready(r, s, b))
			break;
		if (!plan_step_waits(s))
			*rc = plan_do(r, s);
	}
	return done;
}

PLAN_FN void plan_gave_up(const struct plan_run *r, struct plan_block *blocks, int rc)
{
	for (int i = 0; i < r->given->blocks; i++) {
		struct plan_block *b = &blocks[i];
		const struct plan_step *s = plan_step_at(r, b->at);

		if (b->at == b->end)
			continue;
		if (plan_step_waits(s))
			plan_failed(r, s, plan_awaited(r, s, b), b->before + b->more, rc);
		else
			plan_failed(r, s, 0, 0, rc);
		return;
	}
}

PLAN_CALL int plan_go(const struct plan_run *r)
{
	const struct plan_first *firsts = plan_firsts(r->given);
	struct plan_block blocks[SPMT_PLAN_BLOCKS] = { 0 };
	struct spmtd_waiter_ w;
	int rc = 0, left = 1;

	for (int i = 0; i < r->given->blocks; i++) {
		blocks[i].end = firsts[i + 1].step;
		blocks[i].at = plan_led(r, firsts[i].step, blocks[i].end);
	}
	spmtd_wait_begin_(&w);
	while (!rc && left) {
		int done = 0;

		left = 0;
		for (int i = 0; i < r->given->blocks && !rc; i++) {
			done |= plan_further(r, &blocks[i], &rc);
			left |= blocks[i].at < blocks[i].end;
		}
		if (done) { /* the deadline is of each wait */
			spmtd_wait_rest_(r->v, &w);
			spmtd_wait_begin_(&w);
		} else if (left && !rc) {
			rc = coll_patience(r->v, &w);
		}
	}
	spmtd_wait_end_(r->v, &w);
	if (rc)
		plan_gave_up(r, blocks, rc);
	return rc;
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------- */

PLAN_FN struct plan_words *plan_words_at(const struct plan_run *r, uint32_t rank)
{
	return (struct plan_words *)spmtd_to_(plan_there(r, r->given->at + r->given->words, rank));
}

enum { PLAN_SAME, PLAN_DIFFERS, PLAN_ELSEWHERE }; /* elsewhere: in another plan's run, or in none */

/* Leaves for the host which argument it is, as this rank passed it and as that one did. */
PLAN_FN int plan_differs_from(const struct plan_run *r, const struct kernel_plan_args *args, int pe)
{
	const struct plan_words *w = plan_words_at(r, (uint32_t)pe);
	uint64_t mine = args->key, theirs = spmtd_look64_(spmtd_at_(&w->key)), value = 0;
	int how = spmtd_look64_(spmtd_at_(&w->epoch)) == r->now->epoch ? PLAN_DIFFERS
								       : PLAN_ELSEWHERE;
	int i = how == PLAN_ELSEWHERE ? PLAN_OPEN : PLAN_COUNT;

	if (how == PLAN_DIFFERS && theirs == mine)
		return PLAN_SAME;
	for (; how == PLAN_DIFFERS && i < PLAN_ARGUMENTS; i++) {
		value = spmtd_look64_(spmtd_at_(&w->passed[i]));
		if (value != args->passed[i])
			break;
	}
	if (i < PLAN_ARGUMENTS) { /* else it is the type, which every key shows */
		theirs = plan_shown(how == PLAN_DIFFERS ? theirs : mine, i, value);
		mine = plan_shown(mine, i, args->passed[i]);
	}
	kernel_record(r->v, r->given->report, SPMTD_MISMATCH, SPMTD_WHAT_COLLECTIVE, pe,
		spmtd_at_(&w->key), mine, theirs);
	return how;
}

/*
 * All ranks call the same, or none runs, and all find that out. They have met since, and none begins its next run before all are through
 * with this one. Who is elsewhere has not counted this run, so that no later one could be told from it: all ranks see that somebody is.
 */
PLAN_FN int plan_differs(const struct plan_run *r, const struct kernel_plan_args *args)
{
	int odd = PLAN_SAME;

	for (int pe = (int)spmtd_tid_(); pe < r->v->npes; pe += (int)spmtd_threads_()) {
		int how = plan_differs_from(r, args, pe);

		odd = how > odd ? how : odd;
	}
	if (!spmtd_any_block_(odd))
		return PLAN_SAME;
	return spmtd_any_block_(odd == PLAN_ELSEWHERE) ? PLAN_ELSEWHERE : PLAN_DIFFERS;
}

/* By one thread, for its rank. */
PLAN_FN void plan_ends_as(const struct plan_run *r, int how)
{
	if (how == PLAN_DIFFERS) {
		kernel_ended(r->v, SPMTD_MISMATCH);
		return;
	}
	broken_raise(r->v, r->given->report, SPMTD_MISMATCH);
	broken_leave_marks(r->v, SPMTD_MISMATCH, 0, 1);
}

/* By one thread. */
PLAN_FN void plan_post(const struct kernel_plan_args *args, struct plan_words *own, uint64_t epoch)
{
	spmtd_poke64_(spmtd_at_(&own->epoch), epoch);
	spmtd_poke64_(spmtd_at_(&own->key), args->key);
	for (int i = 0; i < PLAN_ARGUMENTS; i++)
		spmtd_poke64_(spmtd_at_(&own->passed[i]), args->passed[i]);
	spmtd_order_();
}

PLAN_CALL void plan_ahead(
	const struct plan_given *given, const struct spmt_view *v, struct plan_now *now)
{
	if (!plan_has_list(given))
		return;
	plan_find(given, now);
	now->packets = given->packets;
	now->scratch = given->scratch;
#if defined(PLAN_KEPT)
	spmtd_meet_block_();
	if (now->at)
		plan_resolve(&(struct plan_run){ given, v, now }, 0);
#else
	(void)v;
#endif
}

PLAN_CALL struct plan_run plan_begin(const struct plan_given *given, const struct spmt_view *v,
	struct plan_now *now, uint64_t epoch)
{
	struct plan_run r = { given, v, now };

	now->epoch = epoch;
	now->flag = area_flag(epoch);
	now->packets = given->packets + (epoch & 1) * given->other_packets;
	now->scratch = given->scratch + (epoch & 1) * given->other_scratch;
#if defined(PLAN_KEPT)
	if (now->at && (epoch & 1))
		plan_turn(&r);
#endif
#if defined(__NVPTX__)
	*(struct plan_now *)&plan_running = *now;
	r.now = (const struct plan_now *)&plan_running;
#endif
#if defined(PLAN_KEPT)
	spmtd_meet_block_();
#endif
	return r;
}

KERNEL_BODY run_plan(const struct kernel_plan_args *args)
{
	const struct plan_given *given = &args->plan;
	struct plan_words *own = (struct plan_words *)spmtd_to_(given->at + given->words);
	uint64_t epoch;
	struct plan_now now = { 0 };
	struct plan_run r;
	int differs;

	if (kernel_refused(&args->view))
		return;
	epoch = spmtd_peek64_(spmtd_at_(&own->epoch));
	if (args->posts) {
		if (kernel_lane() == 0)
			plan_post(args, own, epoch + 1);
		return;
	}
	plan_ahead(given, &args->view, &now);
	r = plan_begin(given, &args->view, &now, epoch);
	differs = plan_differs(&r, args);
	if (differs) {
		if (kernel_lane() == 0)
			plan_ends_as(&r, differs);
	} else if (plan_has_list(given)) {
		plan_early(&r);
		(void)plan_go(&r);
	}
}
KERNEL(plan)
