/* SPDX-License-Identifier: MIT */
#include "waits.h"

enum { CMPS = SPMT_CMP_LE + 1 };

/* All forms on the six words; every one of them holds in the end. Whichever of two words wait_until_any
   takes, it soon takes the other. Returns the step that went wrong, *code what it returned. */
#define ONE_TYPE(name, T)                                                                          \
	static inline int name##_forms(const struct spmt_view *v, const T *w, int type, int *code) \
	{                                                                                          \
		const T after = (T)waits_after(type);                                              \
		const int skip[CMPS] = { 1, 1, 0, 1, 0, 1 };                                       \
		const int all[CMPS] = { 1, 1, 1, 1, 1, 1 };                                        \
		size_t at = 77, then = 77, found = 77, indices[CMPS];                              \
                                                                                                   \
		*code = spmtd_##name##_wait_until_any(v, w, CMPS, skip, SPMT_CMP_EQ, after, &at);  \
		if (*code || (at != 2 && at != 4))                                                 \
			return 10;                                                                 \
		for (int tries = 0; !*code && then != 6 - at && tries < 100; tries++)              \
			*code = spmtd_##name##_wait_until_any(                                     \
				v, w, CMPS, skip, SPMT_CMP_EQ, after, &then);                      \
		if (*code || then != 6 - at)                                                       \
			return 10;                                                                 \
		*code = spmtd_##name##_wait_until_some(                                            \
			v, w, CMPS, skip, SPMT_CMP_GE, after, indices, &found);                    \
		if (*code || found != 2 || indices[0] != 2 || indices[1] != 4)                     \
			return 11;                                                                 \
		*code = spmtd_##name##_wait_until_all(                                             \
			v, w, CMPS, (const int *)0, SPMT_CMP_LE, after);                           \
		if (*code)                                                                         \
			return 12;                                                                 \
		*code = spmtd_##name##_wait_until_any(v, w, CMPS, all, SPMT_CMP_EQ, after, &at);   \
		if (*code || at != (size_t)-1)                                                     \
			return 13;                                                                 \
		*code = spmtd_##name##_wait_until_some(                                            \
			v, w, CMPS, all, SPMT_CMP_EQ, after, indices, &found);                     \
		if (*code || found)                                                                \
			return 14;                                                                 \
		if (!spmtd_##name##_test_any(v, w, CMPS, skip, SPMT_CMP_EQ, after, &at) ||         \
			(at != 2 && at != 4))                                                      \
			return 15;                                                                 \
		if (!spmtd_##name##_test_some(                                                     \
			    v, w, CMPS, skip, SPMT_CMP_EQ, after, indices, &found) ||              \
			found != 2)                                                                \
			return 16;                                                                 \
		if (!spmtd_##name##_test_all(v, w, CMPS, (const int *)0, SPMT_CMP_EQ, after))      \
			return 17;                                                                 \
		if (spmtd_##name##_test_all(v, w, CMPS, (const int *)0, SPMT_CMP_NE, after))       \
			return 18;                                                                 \
		return spmtd_##name##_test_any(                                                    \
			       v, w, CMPS, (const int *)0, SPMT_CMP_GT, after, &at)                \
			? 19                                                                       \
			: 0;                                                                       \
	}                                                                                          \
	static __attribute__((noinline)) void name##_all(const struct waits_args *a)               \
	{                                                                                          \
		const struct spmt_view *v = &a->view;                                              \
		T *w = (T *)spmtd_to_(a->words);                                                   \
		int wrong = 0, code = 0;                                                           \
                                                                                                   \
		for (int cmp = 0; cmp < CMPS; cmp++)                                               \
			spmtd_##name##_p(v, w + cmp, (T)waits_after(a->type), a->pe);              \
		for (int cmp = 0; cmp < CMPS && !wrong; cmp++) {                                   \
			T with = (T)waits_with(cmp, a->type);                                      \
                                                                                                   \
			code = spmtd_##name##_wait_until(v, w + cmp, cmp, with);                   \
			wrong = code || !spmtd_##name##_test(v, w + cmp, cmp, with) ? cmp + 1 : 0; \
		}                                                                                  \
		if (!wrong)                                                                        \
			wrong = name##_forms(v, w, a->type, &code);                                \
		if (wrong)                                                                         \
			outcome_add(a->outcome, code, (uint64_t)wrong, 0, 0);                      \
	}
TYPES(ONE_TYPE)

KERNEL_BODY run_waits(const struct waits_args *a)
{
	if (kernel_lane())
		return;
	switch (a->type) {
#define X(name, T)             \
	case TYPE_OF_##name:   \
		name##_all(a); \
		break;
		TYPES(X)
#undef X
	default:
		break;
	}
}
TEST_KERNEL(waits)

/* ---- waits that may fail --------------------------------------------------------------------- */

static inline int hold_words(const struct hold_args *a)
{
	const struct spmt_view *v = &a->view;
	const uint64_t *w = (const uint64_t *)spmtd_to_(a->word);
	size_t at, found, indices[4];

	switch (a->form) {
	case HOLD_SIGNAL:
		return spmtd_signal_wait_until(v, w, SPMT_CMP_GE, a->value);
	case HOLD_WORD:
		return spmtd_uint64_wait_until(v, w, SPMT_CMP_EQ, a->value);
	case HOLD_ANY:
		return spmtd_uint64_wait_until_any(
			v, w, 4, (const int *)0, SPMT_CMP_EQ, a->value, &at);
	case HOLD_SOME:
		return spmtd_uint64_wait_until_some(
			v, w, 4, (const int *)0, SPMT_CMP_EQ, a->value, indices, &found);
	default:
		return spmtd_uint64_wait_until_all(v, w, 4, (const int *)0, SPMT_CMP_EQ, a->value);
	}
}

static inline int hold_meeting(const struct hold_args *a)
{
	const struct spmt_view *v = &a->view;
	int sync = a->form == HOLD_SYNC;

	if (a->scope == BY_THREAD)
		return sync ? spmtd_sync(v) : spmtd_barrier(v);
	if (a->scope == BY_WARP)
		return sync ? spmtd_sync_warp(v) : spmtd_barrier_warp(v);
	return sync ? spmtd_sync_block(v) : spmtd_barrier_block(v);
}

/* Every thread of the scope must get the same code: each that differs adds 1 to the word after
   it. */
KERNEL_BODY run_hold(const struct hold_args *a)
{
	int rc;

	if (worker(a->scope) != 0)
		return;
	if (a->form == HOLD_HALVES && kernel_lane() == 0)
		spmtd_sync_arrive(&a->view);
	if (a->form == HOLD_SYNC || a->form == HOLD_BARRIER)
		rc = hold_meeting(a);
	else if (kernel_lane() != 0)
		return;
	else if (a->form == HOLD_HALVES || a->form == HOLD_SECOND_HALF)
		rc = spmtd_sync_wait(&a->view);
	else
		rc = hold_words(a);
	if (rc)
		spmtd_add64_(a->code + 8, 1);
	if (kernel_lane() == 0)
		spmtd_poke64_(a->code, (uint64_t)(int64_t)rc);
}
TEST_KERNEL(hold)

/* ---- what a kernel asks of its view ---------------------------------------------------------- */

static inline uint64_t word_at(const void *p)
{
	return p ? spmtd_peek64_(spmtd_at_(p)) : 0;
}

static inline int asks_wrong(const struct asks_args *a)
{
	const struct spmt_view *v = &a->view;
	const struct spmt_mem_view *m = &a->mem;
	const uint64_t *w = (const uint64_t *)spmtd_to_(a->word);
	const char *end = (const char *)spmtd_to_(v->base + v->heap_size);

	if (spmtd_my_pe(v) != a->pe || spmtd_n_pes(v) != a->npes)
		return 1;
	for (int pe = 0; pe < a->npes; pe++) {
		uint64_t want = 0x7700 + (uint64_t)pe;

		if (word_at(spmtd_ptr(v, w + 1, pe)) != want)
			return 2;
		if (word_at(spmtd_mem_ptr(m, pe)) != want)
			return 3;
	}
	if (spmtd_ptr(v, w, a->pe) != (const void *)w)
		return 4;
	if (spmtd_ptr(v, w, -1) || spmtd_ptr(v, w, a->npes) || spmtd_ptr(v, end, 0) ||
		spmtd_ptr(v, (const char *)spmtd_to_(v->base) - 1, 0))
		return 5;
	if (spmtd_mem_ptr(m, -1) || spmtd_mem_ptr(m, a->npes))
		return 6;
	if (spmtd_mc_ptr(v, w))
		return 7;
	return spmtd_signal_fetch(v, w) == 0x7700 + (uint64_t)a->pe ? 0 : 8;
}

KERNEL_BODY run_asks(const struct asks_args *a)
{
	int wrong = asks_wrong(a);

	if (wrong)
		outcome_add(a->outcome, 0, (uint64_t)wrong, 0, 0);
}
TEST_KERNEL(asks)
