/* SPDX-License-Identifier: MIT */
/*
 * Plans of packets alone, as rows, in which all blocks do the same. Where a thread has two packets of each step at the most, what it executes
 * is most of what the call takes. What needs nothing of what is ahead in the stream is found before that has ended; then a rank sends what its
 * blocks begin with, says what it calls, and takes what comes. Nothing is stored before all are known to call the same. As in `ll` who is
 * through has heard from all, and nobody waits at the end. No thread of a GPU sleeps, so nobody is woken; virtual devices run these plans as
 * any other.
 */
#include "plan_row.h"

#include "coll/ll/ll_loops.h"
#include "coll/ll/ll_wait.h"
#include "plan_run.h"

#if defined(PLAN_IN_BLOCKS)

/* So many of the steps that send what the rank has itself are loaded at once. */
enum { PACKETS_LEADS = 3 };

enum packets_kernel {
#define X(name) PACKETS_##name,
	PLAN_PACKETS_KERNELS(X)
#undef X
};

/* A step, and where a thread's first packet of it is in even epochs: what is plain and sent or folded, what comes, and what is stored. */
struct packets_step {
	uint32_t kind, ndst, n, first, meets;
	uint64_t own, term, to;
};

/* A thread's part: of each step, in each round of its block's threads, the packet of its number and the one as many threads further on. */
struct packets {
	const struct plan_packets *plan;
	int op, second; /* as folds have them */
	uint32_t leads, steps, rounds;
	uint64_t from; /* where in a place the block's packets begin, */
	uint32_t n;    /* and how many these are */
	uint32_t flag;
	uint64_t set;	   /* bytes to this epoch's packets, from those of even ones */
	uint64_t hello[2]; /* where this rank's call is told, in even epochs, and in odd ones */
	/* of this round: packets, where the first is, and bytes from there to the second among packets */
	uint32_t has;
	uint64_t plain, apart;
	/* of the first round */
	struct packets_lead {
		uint64_t from, there;
		union unit x;
	} lead[PACKETS_LEADS];
	struct packets_step step; /* the first behind the leads, */
	union unit own;		  /* and what is plain of it */
};

/* ---- places ------------------------------------------------------------------------------------- */

/* Where a block's share begins. */
PLAN_FN uint64_t packets_from(const struct plan_packets *p, uint32_t block)
{
	uint64_t lines = (uint64_t)p->lines * block + (block < p->more ? block : p->more);

	return lines * SPMTD_SHARE_LINE_ < p->bytes ? lines * SPMTD_SHARE_LINE_ : p->bytes;
}

PLAN_FN uint64_t packets_plain(const struct packets *t, uint32_t place)
{
	return t->plan->at[place] + t->plain;
}

/* Of packets, in even epochs. */
PLAN_FN uint64_t packets_even(const struct packets *t, uint32_t place)
{
	return t->plan->at[place] + 2 * t->plain;
}

/* In this epoch. Of one packet both are the same. */
PLAN_FN struct unit_place packets_place(const struct packets *t, uint64_t even)
{
	return (struct unit_place){ even + t->set, even + t->set + t->apart };
}

PLAN_FN void packets_round(struct packets *t, uint32_t round)
{
	const uint32_t threads = spmtd_threads_();
	uint32_t k = spmtd_tid_() + PLAN_PACKETS_EACH * threads * round;

	t->has = k >= t->n ? 0 : t->n - k > threads ? 2 : 1;
	t->plain = t->from + 8 * (uint64_t)k;
	t->apart = t->has > 1 ? 16 * (uint64_t)threads : 0;
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

/* ---- packets ------------------------------------------------------------------------------------ */

PLAN_FN uint64_t packets_fetch(uint64_t a)
{
#if defined(UNITS_ALIGNED)
	return spmtd_gload64_(a);
#else
	return fetch(a, PIECE).words[0];
#endif
}

PLAN_FN void packets_store(uint64_t a, uint64_t x)
{
#if defined(UNITS_ALIGNED)
	spmtd_gstore64_(a, x);
#else
	union unit u = { .words = { x, 0 } };

	place(a, u, PIECE);
#endif
}

PLAN_FN union unit packets_load(const struct packets *t, uint64_t a)
{
	union unit u = { .words = { 0, 0 } };

	if (t->has)
		u.words[0] = packets_fetch(a);
	if (t->has > 1)
		u.words[1] = packets_fetch(a + t->apart / 2);
	return u;
}

PLAN_FN void packets_send(const struct packets *t, uint64_t even, union unit u)
{
	slot_poke(even + t->set, spmtd_packet_(u.words[0], t->flag));
	if (t->has > 1)
		slot_poke(even + t->set + t->apart, spmtd_packet_(u.words[1], t->flag));
}

/* ---- waits -------------------------------------------------------------------------------------- */

/* A plan does not say whose packets are missing: some rank calls something else, or one has not come. */
PLAN_FN void packets_look_around(const struct coll *c, struct ll_waits *w)
{
	w->pe = -1;
	LL_ROLLED
	for (int pe = 0; pe < c->view->npes; pe++) {
		uint64_t key = c->args->key;
		int came = pe == c->view->pe || coll_hello(c, pe, &key);

		if (!came && w->pe < 0)
			w->pe = pe;
		if (w->rc || !came || key == c->args->key)
			continue;
		w->rc = SPMTD_MISMATCH;
		w->pe = pe;
		return;
	}
}

PLAN_FN void packets_gave_up(const struct coll *c, struct ll_waits *w, uint64_t at, uint64_t seen)
{
	w->at = at;
	w->seen = seen;
	if (w->rc != SPMTD_MISMATCH)
		packets_look_around(c, w);
	if (w->pe < 0)
		kernel_record_here(c->view, c->args->report, w->rc, SPMTD_WHAT_CHANNEL, -1, at,
			w->flags.lo.a, seen >> 32);
}

/* Packets that have been s. Of no meaning once w->rc is set. */
PLAN_FN union unit packets_arrive(
	const struct coll *c, struct ll_waits *w, struct unit_place at, struct slot_unit s)
{
	while (!w->rc && !slot_unit_is_whole(&s, &w->flags)) {
		w->rc = coll_patience(c->view, &w->w);
		if (!w->rc && COLL_LOOKS(w->w.polls))
			packets_look_around(c, w);
		if (w->rc)
			packets_gave_up(c, w, at.even, s.lo.a);
		s = slot_unit_peek(at);
	}
	return slot_unit_data(&s);
}

/* Before the block stores anything: all call the same, and none has ended the comm. */
PLAN_FN int packets_agreed(const struct coll *c, struct ll_waits *w)
{
	if (!w->rc || w->rc == SPMTD_MISMATCH)
		await_keys(c, w, 0);
	return ll_first_agreed(c, w);
}

/* ---- steps -------------------------------------------------------------------------------------- */

/* The next term's packets are looked at before this one's are folded. */
#define DEFINE_PACKETS_FOLD(name, acc, begin, step, end, hold)                                \
	PLAN_FN union unit packets_fold_##name(const struct coll *c, const struct packets *t, \
		struct ll_waits *w, const struct packets_step *s, union unit own)             \
	{                                                                                     \
		const int op = t->op, second = t->second;                                     \
		const uint32_t last = s->first + s->n - 1;                                    \
		uint32_t term = s->first + s->ndst;                                           \
		struct unit_place next = packets_place(t, s->term), at;                       \
		struct slot_unit one, looked;                                                 \
		acc a;                                                                        \
                                                                                              \
		__builtin_memset(&looked, 0, sizeof(looked));                                 \
		if (term < last)                                                              \
			looked = slot_unit_peek(next);                                        \
		a = hold(begin(packed(own), second));                                         \
		LL_ROLLED                                                                     \
		while (term < last && !w->rc) {                                               \
			at = next;                                                            \
			one = looked;                                                         \
			if (++term < last) {                                                  \
				next = packets_place(t, packets_even(t, term + 1));           \
				looked = slot_unit_peek(next);                                \
			}                                                                     \
			a = hold(step(a, packed(packets_arrive(c, w, at, one)), op, second)); \
		}                                                                             \
		return end(a, op, 1, second);                                                 \
	}
LL_LOOPS_OF_PLANS(DEFINE_PACKETS_FOLD)

PLAN_FN union unit packets_fold(const struct coll *c, const struct packets *t, struct ll_waits *w,
	const struct packets_step *s, union unit own, enum packets_kernel which)
{
	switch (which) {
#define X(name, acc, begin, step, end, hold)                \
	case PACKETS_##name:                                \
		own = packets_fold_##name(c, t, w, s, own); \
		break;
		LL_LOOPS_OF_PLANS(X)
#undef X
	case PACKETS_copy:
	default:
		break;
	}
	return own;
}

/* What a step brings a thread that has packets; own: what is plain of it. */
PLAN_FN union unit packets_get(const struct coll *c, const struct packets *t, struct ll_waits *w,
	const struct packets_step *s, union unit own, enum packets_kernel which)
{
	struct unit_place at;

	if (which != PACKETS_copy && s->kind == PLAN_STEP_FOLD_PACKETS)
		return packets_fold(c, t, w, s, own, which);
	if (s->kind == PLAN_STEP_PACK)
		return own;
	at = packets_place(t, s->term);
	return packets_arrive(c, w, at, slot_unit_peek(at));
}

PLAN_FN void packets_give(const struct packets *t, const struct packets_step *s, union unit u)
{
	const uint32_t packs = s->kind == PLAN_STEP_PACK || s->kind == PLAN_STEP_FORWARD;

	LL_ROLLED
	for (uint32_t i = !packs; i < s->ndst; i++)
		packets_send(t, packets_even(t, s->first + i), u);
	if (packs)
		return;
	packets_store(s->to, u.words[0]);
	if (t->has > 1)
		packets_store(s->to + t->apart / 2, u.words[1]);
}

/* ---- a run -------------------------------------------------------------------------------------- */

/* Needs nothing of what is ahead in the stream. Worked out before that has ended, in this order: what comes last is put off. */
PLAN_FN void packets_find(
	const struct coll *c, struct packets *t, const struct kernel_plan_packets_args *args)
{
	const struct plan_packets *plan = &args->packets;

	__builtin_memset(t, 0, sizeof(*t));
	ll_hello_find(c, t->hello);
	t->plan = plan;
	t->op = (int)kernel_now((uint32_t)args->row.plan.op);
	t->second = (int)kernel_now((uint32_t)second_type(args->row.plan.type));
	t->leads = (uint32_t)kernel_now(plan->leads);
	t->steps = (uint32_t)kernel_now(plan->steps);
	t->rounds = (uint32_t)kernel_now(plan->rounds);
	t->from = packets_from(plan, kernel_block());
	t->n = (uint32_t)((packets_from(plan, kernel_block() + 1) - t->from) / 8);
	packets_round(t, 0);
	t->has = (uint32_t)kernel_now(t->has);
	t->plain = kernel_now(t->plain);
	t->apart = kernel_now(t->apart);
	t->step = packets_step_of(t, t->leads);
	t->step.own = kernel_now(t->step.own);
	t->step.term = kernel_now(t->step.term);
	t->step.to = kernel_now(t->step.to);
	LL_EACH(PACKETS_LEADS)
	{
		if (i >= t->leads)
			break;
		t->lead[i].from = kernel_now(packets_plain(t, 2 * i + 1));
		t->lead[i].there = kernel_now(packets_even(t, 2 * i));
	}
}

PLAN_FN int packets_have_own(const struct packets_step *s)
{
	return s->kind == PLAN_STEP_FOLD_PACKETS || s->kind == PLAN_STEP_PACK;
}

PLAN_FN void packets_begin(struct packets *t)
{
	LL_EACH(PACKETS_LEADS)
	{
		if (i < t->leads)
			t->lead[i].x = packets_load(t, t->lead[i].from);
	}
	if (t->leads < t->steps && packets_have_own(&t->step))
		t->own = packets_load(t, t->step.own);
}

/* Those from `first` on. A lead has two places: where it goes, and where it is. */
PLAN_FN void packets_lead_on(const struct packets *t, uint32_t first)
{
	LL_ROLLED
	for (uint32_t i = first; i < t->leads && t->has; i++)
		packets_send(
			t, packets_even(t, 2 * i), packets_load(t, packets_plain(t, 2 * i + 1)));
}

PLAN_FN void packets_lead(struct packets *t)
{
	LL_EACH(PACKETS_LEADS)
	{
		if (i < t->leads && t->has)
			packets_send(t, t->lead[i].there, t->lead[i].x);
	}
	packets_lead_on(t, PACKETS_LEADS);
	if (t->rounds > 1) {
		LL_ROLLED
		for (uint32_t round = 1; round < t->rounds; round++) {
			packets_round(t, round);
			packets_lead_on(t, 0);
		}
		packets_round(t, 0);
	}
}

/* The step *s, number `at`. Of the first one's first round a block's threads agree before they store it; own: what is plain of that. */
PLAN_FN int packets_do(const struct coll *c, struct packets *t, struct ll_waits *w,
	struct packets_step *s, uint32_t at, enum packets_kernel which)
{
	const int first = at == t->leads;
	union unit own = t->own;
	uint32_t round = 0;
	int rc = 0;

	LL_ROLLED
	do {
		if (round) {
			packets_round(t, round);
			*s = packets_step_of(t, at);
		}
		if ((!first || round) && packets_have_own(s))
			own = packets_load(t, s->own);
		if (t->has && !w->rc)
			own = packets_get(c, t, w, s, own, which);
		if (first && !round)
			rc = packets_agreed(c, w);
		if (t->has && !w->rc && !rc)
			packets_give(t, s, own);
	} while (++round < t->rounds && !rc);
	if (round > 1)
		packets_round(t, 0);
	return rc;
}

/* The steps behind the leads. */
PLAN_FN int packets_take(const struct coll *c, struct packets *t, enum packets_kernel which)
{
	struct packets_step s = t->step;
	struct ll_waits w;
	int rc = 0;

	w.flags = (struct slot_flags){ { t->flag, t->flag }, { t->flag, t->flag } };
	w.rc = 0;
	spmtd_wait_begin_(&w.w);
	LL_ROLLED
	for (uint32_t at = t->leads; at < t->steps && !rc;) {
		if (at > t->leads && (s.meets & PLAN_MEETS_ALL))
			spmtd_meet_settled_(SPMTD_BLOCK_);
		rc = packets_do(c, t, &w, &s, at, which);
		if (++at < t->steps)
			s = packets_step_of(t, at);
	}
	if (t->leads == t->steps)
		rc = packets_agreed(c, &w);
	else if (!rc && (t->leads + 1 < t->steps || t->rounds > 1))
		rc = ll_agreed(c, &w);
	spmtd_wait_rest_(c->view, &w.w);
	return rc;
}

PLAN_FN void packets_run(const struct kernel_plan_packets_args *args, enum packets_kernel which)
{
	struct packets t;
	struct coll c;

	coll_enter(&c, &args->row.same);
	packets_find(&c, &t, args);
	kernel_behind(args->row.same.alone);
	coll_set(&c);
	packets_begin(&t);
	if (!coll_open(&c))
		return;
	t.flag = area_flag(c.epoch);
	t.set = (c.epoch & 1) * args->packets.other;
	if (!c.refused) {
		packets_lead(&t);
		ll_hello_found(&c, t.hello);
	}
	coll_slots_begin(&c);
	coll_slots_end(&c, c.refused ? SPMTD_ABORTED : packets_take(&c, &t, which));
}

#endif

/* ---- kernels ------------------------------------------------------------------------------------ */

/* The number of the kernel that folds this type. */
#define PACKETS_OF(type) ((type) < SPMT_TYPE_F16 ? 1 + (type) / 2 : 5 + (type) - (int)SPMT_TYPE_F16)

#if defined(__AMDGCN__) || defined(__NVPTX__)

#define X(name)                                                                          \
	KERNEL_BODY run_plan_packets_##name(const struct kernel_plan_packets_args *args) \
	{                                                                                \
		packets_run(args, PACKETS_##name);                                       \
	}                                                                                \
	KERNEL_TAKING_EARLY(plan_packets_##name, struct kernel_plan_packets_args, true)
PLAN_PACKETS_KERNELS(X)
#undef X

#elif defined(COLL_ONE_UNIT)

#if defined(PLAN_IN_BLOCKS)
PLAN_FN void run_plan_packets(const struct kernel_plan_packets_args *args, bool folds)
{
	int type = args->row.plan.type;

	packets_run(args, folds ? (enum packets_kernel)(PACKETS_OF(type)) : PACKETS_copy);
}
#endif

#else

static void packets_on_host(const void *args)
{
	kernel_plan_row.host(&((const struct kernel_plan_packets_args *)args)->row);
}

#define X(name)               \
	KERNEL_EARLY_ON_HOST( \
		plan_packets_##name, packets_on_host, struct kernel_plan_packets_args, true)
PLAN_PACKETS_KERNELS(X)
#undef X

const struct kernel *kernel_of_plan_packets(int type, bool folds)
{
	static const struct kernel *const kernels[] = {
#define X(name) &kernel_plan_packets_##name,
		PLAN_PACKETS_KERNELS(X)
#undef X
	};

	return kernels[folds ? PACKETS_OF(type) : 0];
}

#endif
