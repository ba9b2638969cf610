/* SPDX-License-Identifier: MIT */
/* Waits for this rank's own words, and looks at them. spmtd_wait_begin_, spmtd_await_ and spmtd_wait_end_ are a wait in pieces. */
#ifndef SPMTD_WAIT_H
#define SPMTD_WAIT_H

#include "view.h"

SPMTD_BEGIN

/* ---- waits ---------------------------------------------------------------------------------- */

/* The calling thread's way through one wait. */
struct spmtd_waiter_ {
	struct spmtd_pause pause;
	uint64_t begin;
	uint32_t polls;
};

/* Is the world broken? */
SPMTD_FN int spmtd_stopped_(const struct spmt_view *v)
{
	return v->stop && spmtd_peek32_(spmtd_at_(v->stop)) != 0;
}

SPMTD_FN void spmtd_wait_begin_(struct spmtd_waiter_ *w)
{
	w->pause.n = 0;
	w->pause.wakes = 0;
	w->pause.begin = 0;
	w->begin = 0;
	w->polls = 0;
}

/*
 * Looks from one to the next at the clock, and at the stop word: that lies in the host's memory, and a grid that waits may have 16384
 * threads: between one H100 and the host a microsecond goes by for each access, whoever asks. A warp's threads that look together do so
 * in one. Having one of them look, chosen by its lane or a vote, makes a wait code that threads diverge in: between NVIDIA GPUs a sync by
 * one thread took 0.1 us more.
 */
enum { SPMTD_CLOCK_EVERY_ = 64, SPMTD_STOP_EVERY_ = 2048 };

/* Between two looks: 0, or the code that ends the wait. */
SPMTD_FN int spmtd_wait_check_(const struct spmt_view *v, struct spmtd_waiter_ *w)
{
#if defined(SPMTD_HOST)
	w->polls++;
	if (v->host)
		return v->host->pause(v, &w->pause);
	spmtd_relax_();
	return w->polls % SPMTD_CLOCK_EVERY_ == 0 && spmtd_stopped_(v) ? SPMTD_ABORTED : 0;
#else
	uint64_t now;

	if (++w->polls % SPMTD_CLOCK_EVERY_)
		return 0;
	if (w->polls % SPMTD_STOP_EVERY_ == 0 && spmtd_stopped_(v))
		return SPMTD_ABORTED;
	if (!v->timeout_ns)
		return 0;
	now = spmtd_clock_();
	if (!w->begin)
		w->begin = now;
	if (now - w->begin <= v->timeout_ns)
		return 0;
	return spmtd_stopped_(v) ? SPMTD_ABORTED : SPMTD_TIMEOUT;
#endif
}

/* Without the acquire: for words that tell of nothing but themselves. */
SPMTD_FN void spmtd_wait_rest_(const struct spmt_view *v, struct spmtd_waiter_ *w)
{
#if defined(SPMTD_HOST)
	if (w->polls && v->host)
		v->host->resume(v, &w->pause);
#else
	(void)v;
	(void)w;
#endif
}

SPMTD_FN void spmtd_wait_end_(const struct spmt_view *v, struct spmtd_waiter_ *w)
{
	spmtd_wait_rest_(v, w);
	spmtd_acquired_();
}

/* The lock is device memory, because host memory need not take a device's atomics. Not the view,
   but what is needed of it: a kernel's argument whose address reaches a call is copied to the
   stack. */
SPMTD_FN void spmtd_record_in_(struct spmtd_record *r, uint64_t lock, int code, int pe, int what,
	int peer, uint64_t a, uint64_t expected, uint64_t seen)
{
	if (spmtd_peek64_(spmtd_at_(&r->valid)) || spmtd_cas64_(lock, 0, 1))
		return;
	if (!spmtd_look64_(spmtd_at_(&r->valid))) {
		r->code = code;
		r->pe = pe;
		r->peer = peer;
		r->what = (uint32_t)what;
		r->address = a;
		r->expected = expected;
		r->seen = seen;
		spmtd_release_set_(spmtd_at_(&r->valid), 2);
	}
	spmtd_release_set_(lock, 0);
}

SPMTD_RARE void spmtd_record_at_(struct spmtd_record *r, uint64_t lock, int code, int pe, int what,
	int peer, uint64_t a, uint64_t expected, uint64_t seen)
{
	spmtd_record_in_(r, lock, code, pe, what, peer, a, expected, seen);
}

SPMTD_FN void spmtd_record_(const struct spmt_view *v, int code, int what, int peer, uint64_t a,
	uint64_t expected, uint64_t seen)
{
	if (v->record && v->own)
		spmtd_record_at_(v->record, spmtd_at_(&v->own->recording), code, v->pe, what, peer,
			a, expected, seen);
}

/* Values are carried as 64 bits: extended by sign or zeros; floating point as a double. W:
   counters that only rise. */
enum spmtd_kind_ { SPMTD_KIND_U_, SPMTD_KIND_S_, SPMTD_KIND_F_, SPMTD_KIND_W_ };

#define SPMTD_ORDERED(cmp, x, y)                            \
	((cmp) == SPMT_CMP_EQ		       ? (x) == (y) \
			: (cmp) == SPMT_CMP_NE ? (x) != (y) \
			: (cmp) == SPMT_CMP_GT ? (x) > (y)  \
			: (cmp) == SPMT_CMP_GE ? (x) >= (y) \
			: (cmp) == SPMT_CMP_LT ? (x) < (y)  \
			: (cmp) == SPMT_CMP_LE ? (x) <= (y) \
					       : 0)

/* What a wait by an unknown compare returns at once. */
SPMTD_FN int spmtd_cmp_known_(int cmp)
{
	return (unsigned)cmp <= SPMT_CMP_LE ? 0 : SPMTD_INVALID;
}

SPMTD_FN int spmtd_holds_(int kind, uint64_t seen, int cmp, uint64_t val)
{
	if (kind == SPMTD_KIND_W_)
		return (int64_t)(seen - val) >= 0;
	if (kind == SPMTD_KIND_S_)
		return SPMTD_ORDERED(cmp, (int64_t)seen, (int64_t)val);
	if (kind == SPMTD_KIND_F_)
		return SPMTD_ORDERED(cmp, spmtd_double_of_(seen), spmtd_double_of_(val));
	return SPMTD_ORDERED(cmp, seen, val);
}

SPMTD_FN uint64_t spmtd_widen_(int kind, uint32_t bits, uint64_t x)
{
	if (kind == SPMTD_KIND_S_ && bits < 64)
		return (x ^ (uint64_t)1 << (bits - 1)) - ((uint64_t)1 << (bits - 1));
	if (kind == SPMTD_KIND_F_ && bits == 32)
		return spmtd_double_bits_((double)spmtd_float_of_((uint32_t)x));
	return x;
}

SPMTD_FN uint64_t spmtd_read_(int kind, uint32_t bits, uint64_t a)
{
	uint64_t x = bits == 8 ? spmtd_look8_(a)
		: bits == 16   ? spmtd_look16_(a)
		: bits == 32   ? spmtd_look32_(a)
			       : spmtd_look64_(a);

	return spmtd_widen_(kind, bits, x);
}

/* Polls one word with what patience *w has left; records a failure. */
SPMTD_FN int spmtd_await_(const struct spmt_view *v, struct spmtd_waiter_ *w, int kind,
	uint32_t bits, uint64_t a, int cmp, uint64_t val, int what, int peer)
{
	for (;;) {
		uint64_t seen = spmtd_read_(kind, bits, a);
		int rc;

		if (spmtd_holds_(kind, seen, cmp, val))
			return 0;
		rc = spmtd_wait_check_(v, w);
		if (rc) {
			spmtd_record_(v, rc, what, peer, a, val, seen);
			return rc;
		}
	}
}

SPMTD_FN int spmtd_wait_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a, int cmp,
	uint64_t val, int what)
{
	struct spmtd_waiter_ w;
	int rc = spmtd_cmp_known_(cmp);

	if (rc)
		return rc;
	spmtd_wait_begin_(&w);
	rc = spmtd_await_(v, &w, kind, bits, a, cmp, val, what, -1);
	spmtd_wait_end_(v, &w);
	return rc;
}

SPMTD_FN int spmtd_test_(int kind, uint32_t bits, uint64_t a, int cmp, uint64_t val)
{
	int holds = spmtd_holds_(kind, spmtd_read_(kind, bits, a), cmp, val);

	spmtd_acquired_();
	return holds;
}

SPMTD_FN struct spmtd_inbox *spmtd_inbox_at_(uint64_t own, int writer)
{
	return (struct spmtd_inbox *)spmtd_to_(own + sizeof(struct spmtd_own)) + writer;
}

/* writer's slot at this rank. */
SPMTD_FN struct spmtd_inbox *spmtd_inbox_(const struct spmt_view *v, int writer)
{
	return spmtd_inbox_at_(spmtd_at_(v->own), writer);
}

/* An order in which to look at n words: `at`, and every `step`, of which the bits of `mask` count; an
   odd step comes by all. */
struct spmtd_walk_ {
	uint64_t at, step, mask;
};

SPMTD_FN struct spmtd_walk_ spmtd_walk_over_(size_t n, uint64_t at, uint64_t step)
{
	struct spmtd_walk_ w;

	w.at = at;
	w.step = step;
	w.mask = n ? (uint64_t)n - 1 : 0;
	for (uint32_t by = 1; by < 64; by *= 2)
		w.mask |= w.mask >> by;
	return w;
}

/*
 * One of all orders, at random. Of several words that hold each then comes first now and then, whatever
 * else has been waited for in between: no call knows of the others. If it began behind what the last one
 * found, calls for two arrays in turn could pass over a word for ever.
 */
SPMTD_FN struct spmtd_walk_ spmtd_any_walk_(size_t n, uint64_t turn)
{
	uint64_t x = (turn + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return spmtd_walk_over_(n, x >> 32, x | 1);
}

/* One pass over the words whose status is 0: where they hold, at most `most` of them; *left: how
   many were asked. */
SPMTD_FN size_t spmtd_scan_(int kind, uint32_t bits, uint64_t a, size_t n, const int *status,
	int cmp, uint64_t val, struct spmtd_walk_ w, size_t most, size_t *indices, size_t *left)
{
	size_t found = 0;

	*left = 0;
	for (uint64_t k = 0; n && k <= w.mask && found < most; k++, w.at += w.step) {
		size_t i = (size_t)(w.at & w.mask);

		if (i >= n || (status && status[i]))
			continue;
		++*left;
		if (spmtd_holds_(kind, spmtd_read_(kind, bits, a + i * (bits / 8)), cmp, val))
			indices[found++] = i;
	}
	spmtd_acquired_();
	return found;
}

SPMTD_FN int spmtd_wait_some_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val, struct spmtd_walk_ walk, size_t most,
	size_t *indices, size_t *found)
{
	struct spmtd_waiter_ w;
	size_t some, left;
	int rc = spmtd_cmp_known_(cmp);

	if (rc)
		return rc;
	spmtd_wait_begin_(&w);
	for (;;) {
		some = spmtd_scan_(kind, bits, a, n, status, cmp, val, walk, most, indices, &left);
		if (some || !left)
			break;
		rc = spmtd_wait_check_(v, &w);
		if (rc) {
			spmtd_record_(
				v, rc, SPMTD_WHAT_WAIT, -1, a, val, spmtd_read_(kind, bits, a));
			break;
		}
	}
	spmtd_wait_end_(v, &w);
	if (!rc)
		*found = some;
	return rc;
}

SPMTD_FN struct spmtd_walk_ spmtd_next_walk_(const struct spmt_view *v, size_t n)
{
	uint64_t at = v->own ? spmtd_at_(&spmtd_inbox_(v, v->pe)->turn) : 0;
	uint64_t turn = at ? spmtd_peek64_(at) : 0;

	if (at)
		spmtd_poke64_(at, turn + 1);
	return spmtd_any_walk_(n, turn);
}

SPMTD_FN int spmtd_wait_any_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val, size_t *index)
{
	size_t at = (size_t)-1, found;
	int rc = spmtd_wait_some_(
		v, kind, bits, a, n, status, cmp, val, spmtd_next_walk_(v, n), 1, &at, &found);

	if (!rc)
		*index = at;
	return rc;
}

SPMTD_FN int spmtd_wait_all_(const struct spmt_view *v, int kind, uint32_t bits, uint64_t a,
	size_t n, const int *status, int cmp, uint64_t val)
{
	struct spmtd_waiter_ w;
	int rc = spmtd_cmp_known_(cmp);

	spmtd_wait_begin_(&w);
	for (size_t i = 0; i < n && !rc; i++)
		if (!status || !status[i])
			rc = spmtd_await_(v, &w, kind, bits, a + i * (bits / 8), cmp, val,
				SPMTD_WHAT_WAIT, -1);
	spmtd_wait_end_(v, &w);
	return rc;
}

SPMTD_FN int spmtd_test_all_(
	int kind, uint32_t bits, uint64_t a, size_t n, const int *status, int cmp, uint64_t val)
{
	for (size_t i = 0; i < n; i++)
		if ((!status || !status[i]) &&
			!spmtd_holds_(kind, spmtd_read_(kind, bits, a + i * (bits / 8)), cmp, val))
			return 0;
	spmtd_acquired_();
	return 1;
}

/*
 * cmp: SPMT_CMP_*, the same for all threads of a warp or block; of any other a wait is SPMTD_INVALID at once, and a test 0. status may be NULL; status[i] != 0 leaves element i out. Nothing left in: 0 with
 * *index SIZE_MAX (any), *found 0 (some), 0 (all). Where several hold, _any takes one at random, so
 * that each has its turn, and _some writes rising indices. Outputs are unwritten when a wait fails. The test
 * forms ask once and return 1 or 0, with the same outputs; all of nothing is 1.
 */
#define SPMTD_WAIT(name, T, U_, bits, kind)                                                        \
	SPMTD_FN uint64_t spmtd_##name##_wide_(T x)                                                \
	{                                                                                          \
		return spmtd_widen_(SPMTD_KIND_##kind##_, bits, spmtd_##name##_bits_(x));          \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until(                                                    \
		const struct spmt_view *v, const T *ivar, int cmp, T val)                          \
	{                                                                                          \
		return spmtd_wait_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivar), cmp,            \
			spmtd_##name##_wide_(val), SPMTD_WHAT_WAIT);                               \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until_any(const struct spmt_view *v, const T *ivars,      \
		size_t n, const int *status, int cmp, T val, size_t *index)                        \
	{                                                                                          \
		return spmtd_wait_any_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, \
			cmp, spmtd_##name##_wide_(val), index);                                    \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until_some(const struct spmt_view *v, const T *ivars,     \
		size_t n, const int *status, int cmp, T val, size_t *indices, size_t *found)       \
	{                                                                                          \
		return spmtd_wait_some_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n,        \
			status, cmp, spmtd_##name##_wide_(val), spmtd_walk_over_(n, 0, 1), n,      \
			indices, found);                                                           \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_wait_until_all(const struct spmt_view *v, const T *ivars,      \
		size_t n, const int *status, int cmp, T val)                                       \
	{                                                                                          \
		return spmtd_wait_all_(v, SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, \
			cmp, spmtd_##name##_wide_(val));                                           \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test(const struct spmt_view *v, const T *ivar, int cmp, T val) \
	{                                                                                          \
		(void)v;                                                                           \
		return spmtd_test_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivar), cmp,               \
			spmtd_##name##_wide_(val));                                                \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test_any(const struct spmt_view *v, const T *ivars, size_t n,  \
		const int *status, int cmp, T val, size_t *index)                                  \
	{                                                                                          \
		size_t left, found;                                                                \
		*index = (size_t)-1;                                                               \
		found = spmtd_scan_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, cmp,  \
			spmtd_##name##_wide_(val), spmtd_next_walk_(v, n), 1, index, &left);       \
		return found != 0;                                                                 \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test_some(const struct spmt_view *v, const T *ivars, size_t n, \
		const int *status, int cmp, T val, size_t *indices, size_t *found)                 \
	{                                                                                          \
		size_t left;                                                                       \
		(void)v;                                                                           \
		*found = spmtd_scan_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status, cmp, \
			spmtd_##name##_wide_(val), spmtd_walk_over_(n, 0, 1), n, indices, &left);  \
		return *found != 0;                                                                \
	}                                                                                          \
	SPMTD_FN int spmtd_##name##_test_all(const struct spmt_view *v, const T *ivars, size_t n,  \
		const int *status, int cmp, T val)                                                 \
	{                                                                                          \
		(void)v;                                                                           \
		return spmtd_test_all_(SPMTD_KIND_##kind##_, bits, spmtd_at_(ivars), n, status,    \
			cmp, spmtd_##name##_wide_(val));                                           \
	}
SPMTD_TYPES(SPMTD_WAIT)

SPMTD_FN int spmtd_signal_wait_until(
	const struct spmt_view *v, const uint64_t *sig, int cmp, uint64_t val)
{
	return spmtd_wait_(v, SPMTD_KIND_U_, 64, spmtd_at_(sig), cmp, val, SPMTD_WHAT_SIGNAL);
}

#undef SPMTD_ORDERED
#undef SPMTD_WAIT

SPMTD_END

#endif
