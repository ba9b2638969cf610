/* SPDX-License-Identifier: MIT */
/* Waits by a warp or block. */
#ifndef SPMTD_WAITBY_H
#define SPMTD_WAITBY_H

#include "wait.h"

SPMTD_BEGIN

/* ---- waits by warp and block ---------------------------------------------------------------- */

/*
 * As the waits of a thread, for all threads of the warp or block, who get the same code and outputs; what was put before
 * the signal is then seen by all of them. An output may be one word for all, or each thread's own.
 */
SPMTD_FN int spmtd_vote_(int x, int scope)
{
	if (scope == SPMTD_WARP_)
		return spmtd_any_warp_(x);
	return scope == SPMTD_BLOCK_ ? spmtd_any_block_(x) : x != 0;
}

/* One thread looks. */
SPMTD_FN int spmtd_wait_by_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a, int cmp,
	uint64_t val, int what, int scope)
{
	int rc = spmtd_cmp_known_(cmp);

	if (rc)
		return rc;
	spmtd_meet_(scope);
	if (spmtd_lane_(scope) == 0)
		rc = spmtd_wait_(v, kind, bits, a, cmp, val, what);
	rc = spmtd_agree_(rc, scope);
	spmtd_acquired_(); /* by those who did not look, too */
	return rc;
}

/* Each looks at its share. */
SPMTD_FN int spmtd_wait_all_by_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val, int scope)
{
	struct spmtd_waiter_ w;
	int rc = spmtd_cmp_known_(cmp);

	if (rc)
		return rc;
	spmtd_meet_(scope);
	spmtd_wait_begin_(&w);
	for (size_t i = spmtd_lane_(scope); i < n && !rc; i += spmtd_lanes_(scope))
		if (!status || !status[i])
			rc = spmtd_await_(v, &w, kind, bits, a + i * (bits / 8), cmp, val,
				SPMTD_WHAT_WAIT, -1);
	spmtd_wait_end_(v, &w);
	rc = spmtd_agree_(rc, scope);
	spmtd_acquired_();
	return rc;
}

/* spmtd_scan_, a word a thread at once; whose holds, they tell each other one after the other. */
SPMTD_FN size_t spmtd_scan_by_(int kind, uint32_t bits, uint64_t a, size_t n, const int *status,
	int cmp, uint64_t val, struct spmtd_walk_ w, size_t most, size_t *indices, int *left,
	int scope)
{
	uint64_t lane = spmtd_lane_(scope), lanes = spmtd_lanes_(scope);
	size_t found = 0;
	int asked = 0;

	for (uint64_t from = 0; n && from <= w.mask && found < most; from += lanes) {
		size_t i = (size_t)((w.at + (from + lane) * w.step) & w.mask);
		int asks = from + lane <= w.mask && i < n && !(status && status[i]);
		int holds = asks &&
			spmtd_holds_(kind, spmtd_read_(kind, bits, a + i * (bits / 8)), cmp, val);

		asked |= asks;
		if (!spmtd_vote_(holds, scope))
			continue;
		for (uint64_t k = 0; k < lanes && found < most; k++)
			if (spmtd_vote_(holds && k == lane, scope))
				indices[found++] = (size_t)((w.at + (from + k) * w.step) & w.mask);
	}
	*left = spmtd_vote_(asked, scope);
	return found;
}

SPMTD_FN int spmtd_wait_some_by_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val, struct spmtd_walk_ walk, size_t most,
	size_t *indices, size_t *found, int scope)
{
	struct spmtd_waiter_ w;
	size_t some;
	int rc = spmtd_cmp_known_(cmp), left;

	if (rc)
		return rc;
	spmtd_wait_begin_(&w);
	for (;;) {
		some = spmtd_scan_by_(
			kind, bits, a, n, status, cmp, val, walk, most, indices, &left, scope);
		if (some || !left)
			break;
		rc = spmtd_agree_(spmtd_wait_check_(v, &w), scope);
		if (rc) {
			if (spmtd_lane_(scope) == 0)
				spmtd_record_(v, rc, SPMTD_WHAT_WAIT, -1, a, val,
					spmtd_read_(kind, bits, a));
			break;
		}
	}
	spmtd_wait_end_(v, &w);
	spmtd_meet_(scope); /* what one has seen is before all that any does next */
	if (!rc)
		*found = some;
	return rc;
}

/*
 * One walk for all. The first thread reads the turn, which other blocks move at any time, and tells the others as many of its bits
 * as let each of n words come first now and then.
 */
SPMTD_FN struct spmtd_walk_ spmtd_next_walk_by_(const struct spmt_view *v, size_t n, int scope)
{
	uint64_t at, turn = 0, told = 0;

	if (v->own && spmtd_lane_(scope) == 0) {
		at = spmtd_at_(&spmtd_inbox_(v, v->pe)->turn);
		turn = spmtd_peek64_(at);
		spmtd_poke64_(at, turn + 1);
	}
	for (uint32_t b = 0; b < 64 && (b < 8 || (uint64_t)n >> (b - 8)); b++)
		told |= (uint64_t)spmtd_vote_((int)(turn >> b & 1), scope) << b;
	return spmtd_any_walk_(n, told);
}

SPMTD_FN int spmtd_wait_any_by_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val, size_t *index, int scope)
{
	size_t first = (size_t)-1, found;
	int rc;

	spmtd_meet_(scope);
	rc = spmtd_wait_some_by_(v, kind, bits, a, n, status, cmp, val,
		spmtd_next_walk_by_(v, n, scope), 1, &first, &found, scope);
	if (!rc)
		*index = first;
	return rc;
}

#define SPMTD_WAIT_BY(name, T, bits, kind, suffix, scope)                                      \
	SPMTD_FN int spmtd_##name##_wait_until##suffix(                                        \
		const struct spmt_view *v, const T *ivar, int cmp, T val)                      \
	{                                                                                      \
		return spmtd_wait_by_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivar), cmp,     \
			spmtd_##name##_wide_(val), SPMTD_WHAT_WAIT, scope);                    \
	}                                                                                      \
	SPMTD_FN int spmtd_##name##_wait_until_any##suffix(const struct spmt_view *v,          \
		const T *ivars, size_t n, const int *status, int cmp, T val, size_t *index)    \
	{                                                                                      \
		return spmtd_wait_any_by_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n,  \
			status, cmp, spmtd_##name##_wide_(val), index, scope);                 \
	}                                                                                      \
	SPMTD_FN int spmtd_##name##_wait_until_some##suffix(const struct spmt_view *v,         \
		const T *ivars, size_t n, const int *status, int cmp, T val, size_t *indices,  \
		size_t *found)                                                                 \
	{                                                                                      \
		spmtd_meet_(scope);                                                            \
		return spmtd_wait_some_by_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, \
			status, cmp, spmtd_##name##_wide_(val), spmtd_walk_over_(n, 0, 1), n,  \
			indices, found, scope);                                                \
	}                                                                                      \
	SPMTD_FN int spmtd_##name##_wait_until_all##suffix(const struct spmt_view *v,          \
		const T *ivars, size_t n, const int *status, int cmp, T val)                   \
	{                                                                                      \
		return spmtd_wait_all_by_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n,  \
			status, cmp, spmtd_##name##_wide_(val), scope);                        \
	}
#define SPMTD_WAITS_BY(name, T, U_, bits, kind)                \
	SPMTD_WAIT_BY(name, T, bits, kind, _warp, SPMTD_WARP_) \
	SPMTD_WAIT_BY(name, T, bits, kind, _block, SPMTD_BLOCK_)
SPMTD_TYPES(SPMTD_WAITS_BY)

SPMTD_FN int spmtd_signal_wait_until_warp(
	const struct spmt_view *v, const uint64_t *sig, int cmp, uint64_t val)
{
	return spmtd_wait_by_(
		v, SPMTD_KIND_U_, 64, spmtd_at_(sig), cmp, val, SPMTD_WHAT_SIGNAL, SPMTD_WARP_);
}

SPMTD_FN int spmtd_signal_wait_until_block(
	const struct spmt_view *v, const uint64_t *sig, int cmp, uint64_t val)
{
	return spmtd_wait_by_(
		v, SPMTD_KIND_U_, 64, spmtd_at_(sig), cmp, val, SPMTD_WHAT_SIGNAL, SPMTD_BLOCK_);
}

#undef SPMTD_WAIT_BY
#undef SPMTD_WAITS_BY

SPMTD_END

#endif
