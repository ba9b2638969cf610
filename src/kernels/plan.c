/* SPDX-License-Identifier: MIT */
/*
 * The executor of plans: one kernel, a block of threads a block of the plan. On the host one thread goes through all blocks of its rank
 * in turn, each as far as what it waits for is there.
 */
#include "../../include/spmt.h"
#include "broken.h"
#include "coll/coll.h"

#if defined(__AMDGCN__) || defined(__NVPTX__)
#define PLAN_FN static inline __attribute__((always_inline))
#else
#define PLAN_FN static
#endif

/* How far a block has come. */
struct plan_block {
	uint32_t at, end;
	uint32_t block;
	uint32_t
		arrived; /* at the barrier that it stands at, as number `target` to be seen there */
	uint64_t target;
};

struct plan_run {
	const struct kernel_plan_args *args;
	const struct spmt_view *v;
	uint64_t epoch;
	uint32_t flag;
};

/* ---- where things are ------------------------------------------------------------------------- */

PLAN_FN const uint32_t *plan_firsts(const struct kernel_plan_args *a)
{
	return (const uint32_t *)spmtd_to_(a->at);
}

PLAN_FN const struct plan_step *plan_step_at(const struct kernel_plan_args *a, uint32_t i)
{
	return (const struct plan_step *)spmtd_to_(a->at + a->steps) + i;
}

/* The address of this rank's `own` on another one. Rows have their memory in the library's area, which of a part may lie elsewhere in
   each heap. */
PLAN_FN uint64_t plan_there(const struct kernel_plan_args *a, uint64_t own, uint32_t rank)
{
	const struct spmt_view *v = &a->view;

	if ((int)rank == v->pe)
		return own;
	return a->launch == PLAN_LAUNCH_ROW ? area_there(v, (int)rank) + (own - spmtd_at_(v->own))
					    : spmtd_there_(v, spmtd_to_(own), (int)rank);
}

PLAN_FN uint64_t plan_word(const struct kernel_plan_args *a, uint32_t word)
{
	return a->at + a->words + sizeof(struct plan_words) + (uint64_t)word * sizeof(uint64_t);
}

PLAN_FN uint64_t plan_base(const struct kernel_plan_args *a, uint32_t space)
{
	switch (space) {
	case PLAN_SPACE_INPUT:
		return a->src;
	case PLAN_SPACE_OUTPUT:
		return a->dst;
	case PLAN_SPACE_SCRATCH:
		return a->at + a->scratch;
	case PLAN_SPACE_LANDING:
		return a->at + a->landing;
	default:
		return a->at + a->packets;
	}
}

/* As a row: a buffer of another rank, as the collective before this launch has told. */
PLAN_FN uint64_t plan_called_with(const struct spmt_view *v, const struct plan_step_place *p)
{
	const struct area_inbox *box = area_inbox(v, (int)p->rank);

	return peek_word(p->space == PLAN_SPACE_INPUT ? &box->src : &box->dst);
}

/* What a step moves: the same part of each of its places. */
PLAN_FN struct spmtd_range_ plan_part(const struct kernel_plan_args *a, const struct plan_step *s)
{
	return spmtd_share_by_(s->chunks * a->chunk, s->slice, s->slices);
}

PLAN_FN uint64_t plan_place_at(
	const struct plan_run *r, const struct plan_step *s, uint32_t nth, uint64_t from)
{
	const struct kernel_plan_args *a = r->args;
	const struct plan_step_place *p =
		(const struct plan_step_place *)spmtd_to_(a->at + a->places) + s->places + nth;
	uint64_t at = p->index * a->chunk + from;

	if (p->space == PLAN_SPACE_PACKETS)
		at *= 2;
	if (a->launch == PLAN_LAUNCH_ROW && p->space <= PLAN_SPACE_OUTPUT &&
		(int)p->rank != r->v->pe)
		return plan_called_with(r->v, p) + at;
	return plan_there(a, plan_base(a, p->space) + at, p->rank);
}

/* ---- the steps -------------------------------------------------------------------------------- */

PLAN_FN void plan_copy(const struct plan_run *r, const struct plan_step *s)
{
	struct spmtd_range_ by = plan_part(r->args, s);
	uint64_t dst = plan_place_at(r, s, 0, by.from), src = plan_place_at(r, s, 1, by.from);

	if (by.n)
		spmtd_copy_put_(dst, src, by.n, SPMTD_BLOCK_);
}

/* X(enumerator, name in terms.h, bytes) */
#define PLAN_TYPES(X)        \
	X(I8, int8, 1)       \
	X(U8, uint8, 1)      \
	X(I16, int16, 2)     \
	X(U16, uint16, 2)    \
	X(I32, int32, 4)     \
	X(U32, uint32, 4)    \
	X(I64, int64, 8)     \
	X(U64, uint64, 8)    \
	X(F16, half, 2)      \
	X(BF16, bfloat16, 2) \
	X(F32, float, 4)     \
	X(F64, double, 8)

PLAN_FN void plan_fold(const struct plan_run *r, const struct plan_step *s)
{
	struct spmtd_range_ by = plan_part(r->args, s);
	struct spmtd_mem_peer parts[SPMT_PLAN_TERMS];
	struct spmtd_terms_ t = { 0 };

	for (uint32_t i = 1; i < s->n; i++)
		parts[i - 1].base = plan_place_at(r, s, i, by.from);
	t.parts = parts;
	t.dst = plan_place_at(r, s, 0, by.from);
	t.terms = (int32_t)s->n - 1;
	t.switched = 1;
	t.lane = spmtd_tid_();
	t.lanes = spmtd_threads_();
	spmtd_meet_block_();
	switch (r->args->type) {
#define X(type, name, bytes)                            \
	case SPMT_TYPE_##type:                          \
		t.n = by.n / (bytes);                   \
		spmtd_##name##_terms_(&t, r->args->op); \
		break;
		PLAN_TYPES(X)
#undef X
	default:
		break;
	}
}

/* What waits is over by then on the host. */
PLAN_FN int plan_packets(const struct plan_run *r, const struct plan_step *s)
{
	const struct plan_step_place *to =
		(const struct plan_step_place *)spmtd_to_(r->args->at + r->args->places) +
		s->places;
	struct spmtd_range_ by = plan_part(r->args, s);
	uint64_t dst = plan_place_at(r, s, 0, by.from), src = plan_place_at(r, s, 1, by.from);
	void *from = spmtd_to_(src);

	if (s->kind == PLAN_STEP_PACK) {
		spmtd_do_put_packets_(
			r->v, dst, from, by.n, r->flag, (int)to->rank, SPMTD_BLOCK_, 8);
		return 0;
	}
	if (s->kind == PLAN_STEP_UNPACK)
		return spmtd_do_get_packets_(
			r->v, spmtd_to_(dst), from, by.n, r->flag, 0, -1, SPMTD_BLOCK_, 8);
	return spmtd_do_get_packets_(
		r->v, spmtd_to_(0), from, by.n, r->flag, dst, (int)to->rank, SPMTD_BLOCK_, 8);
}

PLAN_FN void plan_signal(const struct plan_run *r, const struct plan_step *s)
{
	uint64_t word = plan_there(r->args, plan_word(r->args, s->word), s->peer);

	if (s->relaxed)
		spmtd_meet_block_();
	else
		spmtd_meet_settled_(SPMTD_BLOCK_);
	if (spmtd_tid_() == 0) {
		if (s->relaxed)
			spmtd_noret_add64_(word, 1);
		else
			spmtd_release_add_(word, 1);
		spmtd_wake_(r->v, (int)s->peer);
	}
}

/* ---- waits ------------------------------------------------------------------------------------ */

/* By one thread: where a block has to see which number, `arrived` set. */
PLAN_FN uint64_t plan_awaited(
	const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	uint64_t word = plan_word(r->args, s->word);

	if (b->arrived)
		return word;
	b->arrived = 1;
	if (s->kind == PLAN_STEP_WAIT) {
		b->target = spmtd_peek64_(word + sizeof(uint64_t)) + 1;
		b->target -= s->initial;
	} else {
		uint64_t before = spmtd_add64_(word, 1);

		spmtd_wake_(r->v, r->v->pe);
		b->target = before - before % s->initial + s->initial;
	}
	return word;
}

/* By one thread, of a wait that is over. */
PLAN_FN void plan_taken(const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	if (s->kind == PLAN_STEP_WAIT)
		spmtd_poke64_(
			plan_word(r->args, s->word) + sizeof(uint64_t), b->target + s->initial);
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
		plan_copy(r, s);
		return 0;
	case PLAN_STEP_FOLD:
		plan_fold(r, s);
		return 0;
	case PLAN_STEP_SIGNAL:
		plan_signal(r, s);
		return 0;
	default:
		return plan_packets(r, s);
	}
}

PLAN_FN void plan_failed(
	const struct plan_run *r, const struct plan_step *s, uint64_t word, uint64_t target, int rc)
{
	int peer = s->kind == PLAN_STEP_WAIT && s->peer < (uint32_t)r->v->npes ? (int)s->peer : -1;

	kernel_record(r->v, r->args->report, rc, SPMTD_WHAT_CHANNEL, peer, word, target,
		word ? spmtd_peek64_(word) : 0);
	if (peer >= 0 && peer != r->v->pe)
		kernel_missing(r->args->report, peer);
	broken_raise(r->v, rc);
	broken_leave_marks(r->v, rc, 0, 1);
}

#if defined(__AMDGCN__) || defined(__NVPTX__)

/* Until a wait is over, the same in all threads of the block. */
PLAN_FN int plan_wait(const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	int rc = 0;

	spmtd_meet_settled_(SPMTD_BLOCK_);
	if (spmtd_tid_() == 0) {
		uint64_t word, seen = 0;
		struct spmtd_waiter_ w;

		spmtd_order_(); /* an arrival tells of what the block has done */
		word = plan_awaited(r, s, b);
		spmtd_wait_begin_(&w);
		while (!rc && (int64_t)((seen = spmtd_look64_(word)) - b->target) < 0)
			rc = spmtd_wait_check_(r->v, &w);
		if (rc)
			plan_failed(r, s, word, b->target, rc);
		else
			plan_taken(r, s, b);
	}
	rc = spmtd_agree_(rc, SPMTD_BLOCK_);
	if (!s->relaxed)
		spmtd_acquired_();
	return rc;
}

PLAN_FN void plan_go(const struct plan_run *r)
{
	const uint32_t *firsts = plan_firsts(r->args);
	struct plan_block b = { 0 };
	int rc = 0;

	if ((int)kernel_block() >= r->args->blocks)
		return;
	b.end = firsts[kernel_block() + 1];
	for (uint32_t i = firsts[kernel_block()]; !rc && i < b.end; i++) {
		const struct plan_step *s = plan_step_at(r->args, i);

		if (plan_step_waits(s)) {
			rc = plan_wait(r, s, &b);
			continue;
		}
		rc = plan_do(r, s);
		spmtd_meet_settled_(SPMTD_BLOCK_);
		if (rc && spmtd_tid_() == 0)
			plan_failed(r, s, 0, 0, rc);
	}
}

#else

/* Packets: have all come? */
PLAN_FN int plan_packets_came(const struct plan_run *r, const struct plan_step *s)
{
	struct spmtd_range_ by = plan_part(r->args, s);
	uint64_t at = plan_place_at(r, s, 1, by.from);

	for (uint64_t n = by.n / 8; n; n--)
		if (!spmtd_packet_came_(spmtd_packet_peek_(at + (n - 1) * 16, 8), r->flag))
			return 0;
	return 1;
}

PLAN_FN int plan_ready(const struct plan_run *r, const struct plan_step *s, struct plan_block *b)
{
	if (s->kind == PLAN_STEP_UNPACK || s->kind == PLAN_STEP_FORWARD)
		return plan_packets_came(r, s);
	if (!plan_step_waits(s))
		return 1;
	if ((int64_t)(spmtd_look64_(plan_awaited(r, s, b)) - b->target) < 0)
		return 0;
	plan_taken(r, s, b);
	return 1;
}

/* As far as it goes. How many steps that were; *rc: of the last. */
PLAN_FN int plan_further(const struct plan_run *r, struct plan_block *b, int *rc)
{
	int done = 0;

	for (; !*rc && b->at < b->end; b->at++, done = 1) {
		const struct plan_step *s = plan_step_at(r->args, b->at);

		if (!plan_ready(r, s, b))
			break;
		if (!plan_step_waits(s))
			*rc = plan_do(r, s);
	}
	return done;
}

PLAN_FN void plan_gave_up(const struct plan_run *r, struct plan_block *blocks, int rc)
{
	for (int i = 0; i < r->args->blocks; i++) {
		struct plan_block *b = &blocks[i];
		const struct plan_step *s = plan_step_at(r->args, b->at);

		if (b->at == b->end)
			continue;
		if (plan_step_waits(s))
			plan_failed(r, s, plan_awaited(r, s, b), b->target, rc);
		else
			plan_failed(r, s, 0, 0, rc);
		return;
	}
}

PLAN_FN void plan_go(const struct plan_run *r)
{
	const uint32_t *firsts = plan_firsts(r->args);
	struct plan_block blocks[SPMT_PLAN_BLOCKS] = { 0 };
	struct spmtd_waiter_ w;
	int rc = 0, left = 1;

	for (int i = 0; i < r->args->blocks; i++) {
		blocks[i].at = firsts[i];
		blocks[i].end = firsts[i + 1];
	}
	spmtd_wait_begin_(&w);
	while (!rc && left) {
		int done = 0;

		left = 0;
		for (int i = 0; i < r->args->blocks && !rc; i++) {
			done |= plan_further(r, &blocks[i], &rc);
			left |= blocks[i].at < blocks[i].end;
		}
		if (done) { /* the deadline is of each wait */
			spmtd_wait_rest_(r->v, &w);
			spmtd_wait_begin_(&w);
		} else if (left && !rc) {
			rc = spmtd_wait_check_(r->v, &w);
		}
	}
	spmtd_wait_end_(r->v, &w);
	if (rc)
		plan_gave_up(r, blocks, rc);
}

#endif

/* ---- the kernel ------------------------------------------------------------------------------- */

PLAN_FN struct plan_words *plan_words_at(const struct kernel_plan_args *a, uint32_t rank)
{
	return (struct plan_words *)spmtd_to_(plan_there(a, a->at + a->words, rank));
}

/* All ranks call the same, or none runs. They have met since, and none begins its next run before all are through with this one. */
PLAN_FN int plan_differs(const struct plan_run *r)
{
	uint64_t mine = r->args->key;
	int odd = 0;

	for (int pe = (int)spmtd_tid_(); pe < r->v->npes; pe += (int)spmtd_threads_()) {
		const struct plan_words *w = plan_words_at(r->args, (uint32_t)pe);
		uint64_t theirs = spmtd_look64_(spmtd_at_(&w->key));

		if (theirs == mine && spmtd_look64_(spmtd_at_(&w->epoch)) == r->epoch)
			continue;
		kernel_record(r->v, r->args->report, SPMTD_MISMATCH, SPMTD_WHAT_COLLECTIVE, pe,
			spmtd_at_(&w->key), mine, theirs);
		odd = 1;
	}
	return spmtd_any_block_(odd);
}

/* Whether the others call the same: as a row, the collective before this launch has met them. */
PLAN_FN int plan_agreed(struct plan_run *r)
{
	uint64_t epoch = peek_word(&area_of(r->v)->coll_epoch);

	if (r->args->launch == PLAN_LAUNCH_ROW) {
		r->flag = area_flag(epoch);
		return !coll_ended_how(r->v, epoch);
	}
	r->flag = area_flag(r->epoch);
	if (!plan_differs(r))
		return 1;
	if (kernel_lane() == 0) {
		broken_raise(r->v, SPMTD_MISMATCH);
		broken_leave_marks(r->v, SPMTD_MISMATCH, 0, 1);
	}
	return 0;
}

KERNEL_BODY run_plan(const struct kernel_plan_args *args)
{
	struct plan_words *own = plan_words_at(args, (uint32_t)args->view.pe);
	struct plan_run r = { .args = args, .v = &args->view };

	if (kernel_refused(&args->view))
		return;
	r.epoch = spmtd_peek64_(spmtd_at_(&own->epoch));
	if (args->launch == PLAN_LAUNCH_POST) {
		if (kernel_lane() != 0)
			return;
		spmtd_poke64_(spmtd_at_(&own->epoch), r.epoch + 1);
		spmtd_poke64_(spmtd_at_(&own->key), args->key);
		spmtd_order_();
		return;
	}
	if (plan_agreed(&r))
		plan_go(&r);
}
KERNEL(plan)

#undef PLAN_TYPES
#undef PLAN_FN
