/* SPDX-License-Identifier: MIT */
/*
 * Plans of packets alone, as rows, in which all blocks do the same. What a thread executes is most of what a call takes: so calls in brief have
 * kernels of their own, in which it has one packet of each step at the most. What needs nothing of what is ahead in the stream is found before that has ended; then a rank sends what its
 * blocks begin with, says what it calls, and takes what comes. Nothing is stored before all are known to call the same. As in `ll` who is
 * through has heard from all, and nobody waits at the end. No thread of a GPU sleeps, so nobody is woken; virtual devices run these plans as
 * any other.
 */
#include "plan_row.h"

#include "plan_run.h"

#if defined(PLAN_IN_BLOCKS)

#include "packets/packets_plain.h"
#include "packets/packets_wait.h"

/* ---- steps -------------------------------------------------------------------------------------- */

/* What a thread has in a round, if it has all: what is folded is held, so that no compiler leaves out what nobody wants. */
#define PACKETS_EACH(t)            \
	LL_EACH(PLAN_PACKETS_EACH) \
	if (i < (t)->each)

/* The next term's packets are looked at before this one's are folded. */
#define DEFINE_PACKETS_FOLD(name, acc, begin, step, end, hold)                                \
	PLAN_FN struct packets_data packets_fold_##name(const struct coll *c,                 \
		const struct packets *t, struct ll_waits *w, const struct packets_step *s,    \
		struct packets_data x)                                                        \
	{                                                                                     \
		const int op = t->op, second = t->second;                                     \
		const uint32_t last = s->first + s->n - 1;                                    \
		uint32_t term = s->first + s->ndst;                                           \
		uint64_t next = s->term, at;                                                  \
		struct packets_seen one, looked;                                              \
		acc a[PLAN_PACKETS_EACH];                                                     \
                                                                                              \
		__builtin_memset(&looked, 0, sizeof(looked));                                 \
		if (term < last)                                                              \
			looked = packets_look(t, next);                                       \
		PACKETS_EACH(t)                                                               \
		a[i] = hold(begin(packed(packets_unit(t, x.x[i])), second));                  \
		LL_ROLLED                                                                     \
		while (term < last && !w->rc) {                                               \
			at = next;                                                            \
			one = looked;                                                         \
			if (++term < last) {                                                  \
				next = packets_even(t, term + 1);                             \
				looked = packets_look(t, next);                               \
			}                                                                     \
			x = packets_arrive(c, t, w, at, one);                                 \
			PACKETS_EACH(t)                                                       \
			a[i] = hold(step(a[i], packed(packets_unit(t, x.x[i])), op, second)); \
		}                                                                             \
		PACKETS_EACH(t)                                                               \
		x.x[i] = packets_words_of(end(a[i], op, 1, second));                          \
		return x;                                                                     \
	}
LL_LOOPS_OF_PLANS(DEFINE_PACKETS_FOLD)

PLAN_FN struct packets_data packets_fold(const struct coll *c, const struct packets *t,
	struct ll_waits *w, const struct packets_step *s, struct packets_data own,
	enum packets_kernel which)
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
PLAN_FN struct packets_data packets_get(const struct coll *c, const struct packets *t,
	struct ll_waits *w, const struct packets_step *s, struct packets_data own,
	enum packets_kernel which)
{
	if (which != PACKETS_copy && s->kind == PLAN_STEP_FOLD_PACKETS)
		return packets_fold(c, t, w, s, own, which);
	if (s->kind == PLAN_STEP_PACK)
		return own;
	return packets_arrive(c, t, w, s->term, packets_look(t, s->term));
}

PLAN_FN void packets_give(
	const struct packets *t, const struct packets_step *s, const struct packets_data *x)
{
	const uint32_t packs = s->kind == PLAN_STEP_PACK || s->kind == PLAN_STEP_FORWARD;

	LL_ROLLED
	for (uint32_t i = !packs; i < s->ndst; i++)
		packets_send(t, packets_even(t, s->first + i), x);
	if (!packs)
		packets_store(t, s->to, x);
}

/* ---- a run -------------------------------------------------------------------------------------- */

/* Needs nothing of what is ahead in the stream. Worked out before that has ended, in this order: what comes last is put off. */
PLAN_FN void packets_find(const struct coll *c, struct packets *t,
	const struct kernel_plan_packets_args *args, struct plan_packets_way way)
{
	const struct plan_packets *plan = &args->packets;

	__builtin_memset(t, 0, sizeof(*t));
	ll_hello_find(c, t->hello);
	t->plan = plan;
	t->op = (int)kernel_now((uint32_t)args->row.plan.op);
	t->second = (int)kernel_now((uint32_t)second_type(args->row.plan.type));
	t->leads = (uint32_t)kernel_now(plan->leads);
	t->steps = (uint32_t)kernel_now(plan->steps);
	t->rounds = way.brief ? 1 : (uint32_t)kernel_now(plan->rounds);
	t->odd = way.size == PLAN_PACKETS_WIDE ? (int)kernel_now(plan->odd) : 0;
	t->size = way.size;
	t->each = plan_packets_each(way);
	packets_share(t, kernel_block());
	packets_round(t, 0);
	t->has = (uint32_t)kernel_now(t->has);
	t->plain = kernel_now(t->plain);
	t->packed = kernel_now(t->packed);
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
	if (t->odd)
		return;
	LL_EACH(PACKETS_LEADS)
	{
		if (i < t->leads)
			t->lead[i].x = packets_load(t, t->lead[i].from);
	}
	if (t->leads == t->steps || !packets_have_own(&t->step))
		return;
	if (t->each > 1 && t->leads && t->lead[0].from == t->step.own)
		t->own = t->lead[0].x;
	else
		t->own = packets_load(t, t->step.own);
}

/* Those from `first` on. A lead has two places: where it goes, and where it is. */
PLAN_FN void packets_lead_on(const struct packets *t, uint32_t first)
{
	LL_ROLLED
	for (uint32_t i = first; i < t->leads && t->has; i++) {
		struct packets_data x = packets_load(t, packets_plain(t, 2 * i + 1));

		packets_send(t, packets_even(t, 2 * i), &x);
	}
}

PLAN_FN void packets_lead(struct packets *t)
{
	LL_EACH(PACKETS_LEADS)
	{
		if (i < t->leads && !t->odd)
			packets_send(t, t->lead[i].there, &t->lead[i].x);
	}
	packets_lead_on(t, t->odd ? 0 : PACKETS_LEADS);
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
	struct packets_data own = t->own;
	uint32_t round = 0;
	int rc = 0;

	LL_ROLLED
	do {
		if (round) {
			packets_round(t, round);
			*s = packets_step_of(t, at);
		}
		if ((!first || round || t->odd) && packets_have_own(s))
			own = packets_load(t, s->own);
		if (t->has && !w->rc)
			own = packets_get(c, t, w, s, own, which);
		if (first && !round)
			rc = packets_agreed(c, w);
		if (t->has && !w->rc && !rc)
			packets_give(t, s, &own);
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

PLAN_FN void packets_run(const struct kernel_plan_packets_args *args, enum packets_kernel which,
	struct plan_packets_way way)
{
	struct packets t;
	struct coll c;

	coll_enter(&c, &args->row.same);
	c.tells = COLL_TELLS;
	packets_find(&c, &t, args, way);
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

#if defined(__NVPTX__)
#define PACKETS_WHOLE 1
#else
#define PACKETS_WHOLE 0
#endif
#define PACKETS_SIZE(name)               \
	plan_packets_size(PACKETS_WHOLE, \
		PACKETS_##name == PACKETS_u64 || PACKETS_##name == PACKETS_f64 ? 8 : 1)

#define X(name)                                                                                    \
	KERNEL_BODY run_plan_packets_##name(const struct kernel_plan_packets_args *args)           \
	{                                                                                          \
		packets_run(                                                                       \
			args, PACKETS_##name, (struct plan_packets_way){ 0, PACKETS_SIZE(name) }); \
	}                                                                                          \
	KERNEL_TAKING_EARLY(plan_packets_##name, struct kernel_plan_packets_args, true)            \
	KERNEL_BODY run_plan_packets_brief_##name(const struct kernel_plan_packets_args *args)     \
	{                                                                                          \
		packets_run(args, PACKETS_##name,                                                  \
			(struct plan_packets_way){ 1, PLAN_PACKETS_NARROW });                      \
	}                                                                                          \
	KERNEL_TAKING_EARLY(plan_packets_brief_##name, struct kernel_plan_packets_args, true)
PLAN_PACKETS_KERNELS(X)
#undef X

#elif defined(COLL_ONE_UNIT)

#if defined(PLAN_IN_BLOCKS)
PLAN_FN void run_plan_packets(
	const struct kernel_plan_packets_args *args, bool folds, struct plan_packets_way way)
{
	int type = args->row.plan.type;

	packets_run(args, folds ? (enum packets_kernel)(PACKETS_OF(type)) : PACKETS_copy, way);
}
#endif

#else

static void packets_on_host(const void *args)
{
	kernel_plan_row.host(&((const struct kernel_plan_packets_args *)args)->row);
}

#define X(name)                                                                              \
	KERNEL_EARLY_ON_HOST(                                                                \
		plan_packets_##name, packets_on_host, struct kernel_plan_packets_args, true) \
	KERNEL_EARLY_ON_HOST(                                                                \
		plan_packets_brief_##name, packets_on_host, struct kernel_plan_packets_args, true)
PLAN_PACKETS_KERNELS(X)
#undef X

const struct kernel *kernel_of_plan_packets(int type, bool folds, bool brief)
{
	static const struct kernel *const kernels[][2] = {
#define X(name) { &kernel_plan_packets_##name, &kernel_plan_packets_brief_##name },
		PLAN_PACKETS_KERNELS(X)
#undef X
	};

	return kernels[folds ? PACKETS_OF(type) : 0][brief];
}

#endif
