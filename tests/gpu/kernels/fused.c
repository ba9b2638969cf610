/* SPDX-License-Identifier: MIT */
#include "fused.h"

/* ---- packets --------------------------------------------------------------------------------- */

#define CALLS(scope, suffix)                                                                       \
	static inline void put_##scope(                                                            \
		const struct packets_args *a, void *to, const void *from, uint32_t flag, int pe)   \
	{                                                                                          \
		if (a->format == PACKETS_NARROW)                                                   \
			spmtd_put_packets8##suffix(&a->view, to, from, a->words * 8, flag, pe);    \
		else                                                                               \
			spmtd_put_packets##suffix(&a->view, to, from, a->words * 8, flag, pe);     \
	}                                                                                          \
	static inline int get_##scope(                                                             \
		const struct packets_args *a, void *to, const void *from, uint32_t flag)           \
	{                                                                                          \
		if (a->format == PACKETS_NARROW)                                                   \
			return spmtd_get_packets8##suffix(&a->view, to, from, a->words * 8, flag); \
		return spmtd_get_packets##suffix(&a->view, to, from, a->words * 8, flag);          \
	}                                                                                          \
	static inline int forward_##scope(const struct packets_args *a, void *onto, void *to,      \
		const void *from, uint32_t flag, int pe)                                           \
	{                                                                                          \
		if (a->format == PACKETS_NARROW)                                                   \
			return spmtd_forward_packets8##suffix(                                     \
				&a->view, onto, to, from, a->words * 8, flag, pe);                 \
		return spmtd_forward_packets##suffix(                                              \
			&a->view, onto, to, from, a->words * 8, flag, pe);                         \
	}                                                                                          \
	static inline int meet_at_##scope(const struct spmt_view *v, uint32_t index)               \
	{                                                                                          \
		return spmtd_barrier_at##suffix(v, index);                                         \
	}                                                                                          \
	static inline int sync_at_##scope(const struct spmt_view *v, uint32_t index)               \
	{                                                                                          \
		int rc = spmtd_quiet##suffix(v);                                                   \
		return rc ? rc : spmtd_sync_at##suffix(v, index);                                  \
	}
CALLS(thread, )
CALLS(warp, _warp)
CALLS(block, _block)

/* Lines have no form for one thread. */
#define LINES(scope, suffix)                                                                     \
	static inline int put_lines_##scope(                                                     \
		const struct packets_args *a, void *to, const void *from, uint64_t flag, int pe) \
	{                                                                                        \
		return spmtd_put_lines##suffix(&a->view, to, from, a->words * 8, flag, pe);      \
	}                                                                                        \
	static inline int get_lines_##scope(                                                     \
		const struct packets_args *a, void *to, const void *from, uint64_t flag)         \
	{                                                                                        \
		return spmtd_get_lines##suffix(&a->view, to, from, a->words * 8, flag);          \
	}                                                                                        \
	static inline int forward_lines_##scope(const struct packets_args *a, void *onto,        \
		void *to, const void *from, uint64_t flag, int pe)                               \
	{                                                                                        \
		return spmtd_forward_lines##suffix(                                              \
			&a->view, onto, to, from, a->words * 8, flag, pe);                       \
	}
LINES(warp, _warp)
LINES(block, _block)

#define BY_MANY(scope, call, ...) \
	((scope) == BY_WARP ? call##_warp(__VA_ARGS__) : call##_block(__VA_ARGS__))

#define BY_SCOPE(scope, call, ...)                                        \
	((scope) == BY_THREAD		     ? call##_thread(__VA_ARGS__) \
			: (scope) == BY_WARP ? call##_warp(__VA_ARGS__)   \
					     : call##_block(__VA_ARGS__))

/* What one worker works with in one round. */
struct packets_round {
	uint64_t *buffer, *unpacked, round;
	char *places; /* of this round's turn, npes of them */
	uint32_t lane, lanes;
};

static inline uint64_t packets_word(uint64_t round, int pe, uint64_t i)
{
	return round * 0x9e3779b97f4a7c15ull + (uint64_t)(uint32_t)pe * 1000003 + i;
}

static inline void packets_fill(const struct packets_args *a, const struct packets_round *p)
{
	for (uint64_t i = p->lane; i < a->words; i += p->lanes)
		p->buffer[i] = packets_word(p->round, a->view.pe, i);
}

static inline void packets_check(
	const struct packets_args *a, const struct packets_round *p, int from)
{
	for (uint64_t i = p->lane; i < a->words; i += p->lanes) {
		uint64_t want = packets_word(p->round, from, i), seen = p->unpacked[i];

		if (seen != want)
			outcome_add(a->outcome, 0, p->round, seen, want);
	}
}

static inline char *packets_place(
	const struct packets_args *a, const struct packets_round *p, int pe)
{
	return p->places + (uint64_t)(uint32_t)pe * a->place;
}

/* In one of the formats. */
static inline int packets_put(
	const struct packets_args *a, void *to, const void *from, uint64_t round, int pe)
{
	if (a->format == PACKETS_LINES)
		return BY_MANY(a->scope, put_lines, a, to, from, round << 8, pe);
	if (a->format == PACKETS_EACH)
		spmtd_put_packets_each(&a->view, to, from, a->words * 8, (uint32_t)round, pe,
			spmtd_lane_(a->scope), spmtd_lanes_(a->scope));
	else
		BY_SCOPE(a->scope, put, a, to, from, (uint32_t)round, pe);
	return 0;
}

static inline int packets_get(
	const struct packets_args *a, void *to, const void *from, uint64_t round)
{
	if (a->format == PACKETS_LINES)
		return BY_MANY(a->scope, get_lines, a, to, from, round << 8);
	if (a->format == PACKETS_EACH)
		return spmtd_get_packets_each(&a->view, to, from, a->words * 8, (uint32_t)round,
			spmtd_lane_(a->scope), spmtd_lanes_(a->scope));
	return BY_SCOPE(a->scope, get, a, to, from, (uint32_t)round);
}

static inline int packets_forward(const struct packets_args *a, void *onto, void *to,
	const void *from, uint64_t round, int pe)
{
	if (a->format == PACKETS_LINES)
		return BY_MANY(a->scope, forward_lines, a, onto, to, from, round << 8, pe);
	if (a->format == PACKETS_EACH)
		return spmtd_forward_packets_each(&a->view, onto, to, from, a->words * 8,
			(uint32_t)round, pe, spmtd_lane_(a->scope), spmtd_lanes_(a->scope));
	return BY_SCOPE(a->scope, forward, a, onto, to, from, (uint32_t)round, pe);
}

static inline int packets_to_all(const struct packets_args *a, const struct packets_round *p)
{
	int rc = 0;

	packets_fill(a, p);
	for (int pe = 0; pe < a->view.npes && !rc; pe++)
		rc = packets_put(a, packets_place(a, p, a->view.pe), p->buffer, p->round, pe);
	for (int pe = 0; pe < a->view.npes && !rc; pe++) {
		rc = packets_get(a, p->unpacked, packets_place(a, p, pe), p->round);
		if (!rc)
			packets_check(a, p, pe);
	}
	return rc;
}

/* Rank 0's, which come back to it: then all have passed them on. */
static inline int packets_round_the_ring(
	const struct packets_args *a, const struct packets_round *p)
{
	int next = a->view.pe + 1 < a->view.npes ? a->view.pe + 1 : 0, rc;

	if (a->view.pe == 0) {
		packets_fill(a, p);
		rc = packets_put(a, p->places, p->buffer, p->round, next);
		if (!rc)
			rc = packets_get(a, p->unpacked, p->places, p->round);
	} else {
		rc = packets_forward(a, p->places, p->unpacked, p->places, p->round, next);
	}
	if (!rc)
		packets_check(a, p, 0);
	return rc;
}

KERNEL_BODY run_packets(const struct packets_args *a)
{
	uint64_t w = worker(a->scope), place = (uint64_t)(uint32_t)a->view.npes * a->place;
	struct packets_round p;

	p.buffer = (uint64_t *)spmtd_to_(a->buffers) + w * a->words;
	p.unpacked = (uint64_t *)spmtd_to_(a->unpacked) + w * a->words;
	p.lane = spmtd_lane_(a->scope);
	p.lanes = spmtd_lanes_(a->scope);
	for (uint64_t i = 1; i <= a->rounds; i++) {
		int rc;

		p.round = a->done + i;
		p.places = (char *)spmtd_to_(a->places) + (2 * w + (p.round & 1)) * place;
		rc = a->form == PACKETS_TO_ALL ? packets_to_all(a, &p)
					       : packets_round_the_ring(a, &p);
		if (rc) {
			outcome_add(a->outcome, rc, p.round, 0, 0);
			return;
		}
	}
}
TEST_KERNEL(packets)

/* ---- sessions -------------------------------------------------------------------------------- */

static inline int session_meet(const struct sessions_args *a, uint32_t index)
{
	if (a->sync)
		return BY_SCOPE(a->scope, sync_at, &a->view, index);
	return BY_SCOPE(a->scope, meet_at, &a->view, index);
}

/* Words alternate between two sets: a peer that is a round ahead does not touch those being read. Sessions are taken
   from the last one down, too. */
KERNEL_BODY run_sessions(const struct sessions_args *a)
{
	const struct spmt_view *v = &a->view;
	uint32_t w = worker(a->scope), index = w % 2 ? (uint32_t)v->nsessions - 1 - w : w;
	int lane = (int)spmtd_lane_(a->scope), lanes = (int)spmtd_lanes_(a->scope), n = v->npes;

	for (uint64_t i = 1; i <= a->rounds; i++) {
		uint64_t round = a->done + i;
		uint64_t *set =
			(uint64_t *)spmtd_to_(a->slots) + (2 * w + (round & 1)) * (uint32_t)n;
		int rc;

		for (int pe = lane; pe < n; pe += lanes)
			spmtd_uint64_p(v, set + v->pe, round, pe);
		rc = session_meet(a, index);
		if (rc) {
			outcome_add(a->outcome, rc, round, 0, 0);
			return;
		}
		for (int pe = lane; pe < n; pe += lanes) {
			uint64_t seen = set[pe];

			if (seen != round)
				outcome_add(a->outcome, 0, round, seen, round);
		}
	}
}
TEST_KERNEL(sessions)

/* ---- collectives ----------------------------------------------------------------------------- */

#define TOGETHER(scope, suffix)                                                           \
	static inline int gather_##scope(const struct spmt_view *v, uint32_t *dst,        \
		const uint32_t *src, size_t n, uint32_t w)                                \
	{                                                                                 \
		return spmtd_all_gathermem_at##suffix(v, dst, src, n * 4, w);             \
	}                                                                                 \
	static inline int exchange_##scope(const struct spmt_view *v, uint32_t *dst,      \
		const uint32_t *src, size_t n, uint32_t w)                                \
	{                                                                                 \
		return spmtd_all_to_allmem_at##suffix(v, dst, src, n * 4, w);             \
	}                                                                                 \
	static inline int broadcast_##scope(const struct spmt_view *v, uint32_t *dst,     \
		const uint32_t *src, size_t n, uint32_t w)                                \
	{                                                                                 \
		return spmtd_broadcastmem_at##suffix(v, dst, src, n * 4, v->npes - 1, w); \
	}                                                                                 \
	static inline int sum_##scope(const struct spmt_view *v, uint32_t *dst,           \
		const uint32_t *src, size_t n, uint32_t w)                                \
	{                                                                                 \
		return spmtd_uint32_sum_all_reduce_at##suffix(v, dst, src, n, w);         \
	}                                                                                 \
	static inline int half_##scope(const struct spmt_view *v, uint32_t *dst,          \
		const uint32_t *src, size_t n, uint32_t w)                                \
	{                                                                                 \
		return spmtd_half_sum_all_reduce_at##suffix(                              \
			v, (uint16_t *)dst, (const uint16_t *)src, n, w);                 \
	}
TOGETHER(thread, )
TOGETHER(warp, _warp)
TOGETHER(block, _block)

enum together_kind { GATHERS, EXCHANGES, BROADCASTS, SUMS, HALVES, TOGETHER_KINDS };

static inline uint32_t together_word(uint64_t round, int pe, uint64_t i)
{
	return (uint32_t)(round * 2654435761u + (uint32_t)pe * 40503u + i * 7);
}

/* One f16 in [1, 2) of rank pe; sums of few of them are exact, in eighths. */
static inline uint16_t together_half(uint64_t round, int pe, uint64_t i)
{
	return (uint16_t)(0x3c00u + (round + (uint32_t)pe + i) % 8 * 0x80u);
}

static inline uint32_t together_want(
	const struct together_args *a, int kind, uint64_t round, uint64_t i)
{
	int n = a->view.npes, from = (int)(i / a->words);
	uint32_t sum = 0;

	if (kind == GATHERS)
		return together_word(round, from, i % a->words);
	if (kind == EXCHANGES)
		return together_word(round, from, (uint32_t)a->view.pe * a->words + i % a->words);
	if (kind == BROADCASTS)
		return together_word(round, n - 1, i);
	for (int pe = 0; pe < n; pe++)
		sum += kind == SUMS ? together_word(round, pe, i)
				    : 8 + (uint32_t)(round + (uint32_t)pe + i) % 8;
	return kind == SUMS ? sum : spmtd_half_nearest_((float)sum / 8);
}

static inline int together_call(
	const struct together_args *a, int kind, uint32_t *dst, const uint32_t *src, uint32_t w)
{
	const struct spmt_view *v = &a->view;

	switch (kind) {
	case GATHERS:
		return BY_SCOPE(a->scope, gather, v, dst, src, a->words, w);
	case EXCHANGES:
		return BY_SCOPE(a->scope, exchange, v, dst, src, a->words, w);
	case BROADCASTS:
		return BY_SCOPE(a->scope, broadcast, v, dst, src, a->words, w);
	case SUMS:
		return BY_SCOPE(a->scope, sum, v, dst, src, a->words, w);
	default:
		return BY_SCOPE(a->scope, half, v, dst, src, a->words, w);
	}
}

static inline void together_check(
	const struct together_args *a, int kind, uint64_t round, const uint32_t *dst)
{
	uint64_t n = a->words * (kind <= EXCHANGES ? (uint32_t)a->view.npes : 1);

	for (uint64_t i = spmtd_lane_(a->scope); i < n; i += spmtd_lanes_(a->scope)) {
		uint32_t want = together_want(a, kind, round, i);
		uint32_t seen = kind == HALVES ? ((const uint16_t *)dst)[i] : dst[i];

		if (seen != want)
			outcome_add(a->outcome, kind, round, seen, want);
	}
}

KERNEL_BODY run_together(const struct together_args *a)
{
	uint32_t w = worker(a->scope), lane = spmtd_lane_(a->scope), lanes = spmtd_lanes_(a->scope);
	uint64_t room = (uint32_t)a->view.npes * a->words;
	uint32_t *src = (uint32_t *)spmtd_to_(a->src) + w * room;
	uint32_t *dst = (uint32_t *)spmtd_to_(a->dst) + w * room;

	for (uint64_t round = 1; round <= a->rounds; round++) {
		int kind = (int)(round % TOGETHER_KINDS), rc;

		for (uint64_t i = lane; i < room && kind != HALVES; i += lanes)
			src[i] = together_word(round, a->view.pe, i);
		for (uint64_t i = lane; i < a->words && kind == HALVES; i += lanes)
			((uint16_t *)src)[i] = together_half(round, a->view.pe, i);
		rc = together_call(a, kind, dst, src, w);
		if (rc) {
			outcome_add(a->outcome, rc, round, 0, 0);
			return;
		}
		together_check(a, kind, round, dst);
	}
}
TEST_KERNEL(together)

/* ---- waits for some of many words ------------------------------------------------------------ */

#define CHOOSE(scope, suffix)                                                                      \
	static inline int any_##scope(const struct choices_args *a, size_t *index)                 \
	{                                                                                          \
		return spmtd_uint64_wait_until_any##suffix(&a->view, spmtd_to_(a->words), CHOICES, \
			(const int *)0, SPMT_CMP_EQ, 1, index);                                    \
	}                                                                                          \
	static inline int some_##scope(                                                            \
		const struct choices_args *a, size_t *indices, size_t *found)                      \
	{                                                                                          \
		return spmtd_uint64_wait_until_some##suffix(&a->view, spmtd_to_(a->words),         \
			CHOICES, (const int *)0, SPMT_CMP_EQ, 1, indices, found);                  \
	}                                                                                          \
	static inline int all_##scope(const struct choices_args *a)                                \
	{                                                                                          \
		return spmtd_uint64_wait_until_all##suffix(                                        \
			&a->view, spmtd_to_(a->words), CHOICES, (const int *)0, SPMT_CMP_LE, 1);   \
	}
CHOOSE(thread, )
CHOOSE(warp, _warp)
CHOOSE(block, _block)

/* All threads have the same, which is right. */
static inline void choices_same(const struct choices_args *a, uint64_t round, uint64_t x)
{
	uint64_t cells = a->cells, first;

	spmtd_poke64_(cells + 8 * spmtd_lane_(a->scope), x);
	spmtd_meet_(a->scope);
	first = spmtd_peek64_(cells);
	if (x != first)
		outcome_add(a->outcome, 1, round, x, first);
	spmtd_meet_(a->scope);
}

KERNEL_BODY run_choices(const struct choices_args *a)
{
	if (worker(a->scope) != 0)
		return;
	for (uint64_t round = 1; round <= a->rounds; round++) {
		size_t index = CHOICES, found = 0, indices[CHOICES] = { 0 };
		int rc = BY_SCOPE(a->scope, any, a, &index);

		if (!rc)
			rc = BY_SCOPE(a->scope, some, a, indices, &found);
		if (!rc)
			rc = BY_SCOPE(a->scope, all, a);
		if (rc || index % 3 || index >= CHOICES || found != CHOICES_HOLD)
			outcome_add(a->outcome, rc, round, index, found);
		for (uint32_t i = 0; i < CHOICES_HOLD; i++)
			if (indices[i] != 3 * i)
				outcome_add(a->outcome, rc, round, indices[i], 3 * i);
		choices_same(a, round, index);
		choices_same(a, round, found);
	}
}
TEST_KERNEL(choices)
