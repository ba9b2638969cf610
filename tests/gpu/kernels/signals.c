/* SPDX-License-Identifier: MIT */
#include "signals.h"

/* What one worker works with. */
struct channel {
	uint64_t *slot, *buffer, *sig, *ack;
	uint64_t round;
	uint32_t lane, lanes;
};

static inline uint64_t word_of_round(uint64_t round, uint64_t i)
{
	return round * 0x9e3779b97f4a7c15ull + i;
}

#define SEND(scope, suffix)                                                                    \
	static inline void send_##scope(const struct signals_args *a, const struct channel *c) \
	{                                                                                      \
		const struct spmt_view *v = &a->view;                                          \
		const size_t n = (size_t)a->words * 8;                                         \
		const uint64_t r = c->round;                                                   \
		const int set = SPMT_SIGNAL_SET, add = SPMT_SIGNAL_ADD;                        \
                                                                                               \
		switch (a->form) {                                                             \
		case SIGNAL_SET_FORM:                                                          \
			spmtd_putmem_signal##suffix(                                           \
				v, c->slot, c->buffer, n, c->sig, r, set, a->to);              \
			return;                                                                \
		case SIGNAL_ADD_FORM:                                                          \
			spmtd_putmem_signal##suffix(                                           \
				v, c->slot, c->buffer, n, c->sig, 1, add, a->to);              \
			return;                                                                \
		case SIGNAL_NBI_FORM:                                                          \
			spmtd_putmem_signal_nbi##suffix(                                       \
				v, c->slot, c->buffer, n, c->sig, r, set, a->to);              \
			return;                                                                \
		case SIGNAL_SDMA_FORM:                                                         \
			(void)spmtd_sdma_put##suffix(v, c->slot, c->buffer, n, a->to);         \
			(void)spmtd_sdma_signal##suffix(v, c->sig, r, set, a->to);             \
			return;                                                                \
		case SIGNAL_SDMA_ADD_FORM:                                                     \
			(void)spmtd_sdma_put##suffix(v, c->slot, c->buffer, n, a->to);         \
			(void)spmtd_sdma_signal##suffix(v, c->sig, 1, add, a->to);             \
			return;                                                                \
		case SIGNAL_FENCE_FORM:                                                        \
			spmtd_putmem##suffix(v, c->slot, c->buffer, n, a->to);                 \
			spmtd_fence##suffix(v);                                                \
			break;                                                                 \
		default:                                                                       \
			spmtd_putmem_nbi##suffix(v, c->slot, c->buffer, n, a->to);             \
			(void)spmtd_quiet##suffix(v);                                          \
		}                                                                              \
		if (c->lane == 0)                                                              \
			spmtd_signal_op(v, c->sig, r, set, a->to);                             \
	}
SEND(thread, )
SEND(warp, _warp)
SEND(block, _block)

static inline void send(const struct signals_args *a, const struct channel *c)
{
	if (a->scope == BY_THREAD)
		send_thread(a, c);
	else if (a->scope == BY_WARP)
		send_warp(a, c);
	else
		send_block(a, c);
}

/* Ordinary loads: what a wait has acquired must be seen by them. */
static inline void check(const struct signals_args *a, const struct channel *c)
{
	for (uint64_t i = c->lane; i < a->words; i += c->lanes) {
		uint64_t want = word_of_round(c->round, i), seen = c->slot[i];

		if (seen != want)
			outcome_add(a->outcome, 0, c->round, seen, want);
	}
}

/* The buffer of a call that need not be complete may be written again after this. */
static inline void settle(const struct signals_args *a)
{
	int sdma = a->form == SIGNAL_SDMA_FORM || a->form == SIGNAL_SDMA_ADD_FORM;

	if (a->form != SIGNAL_NBI_FORM && !sdma)
		return;
	if (a->scope == BY_THREAD)
		(void)(sdma ? spmtd_sdma_quiet(&a->view, a->to) : spmtd_quiet(&a->view));
	else if (a->scope == BY_WARP)
		(void)(sdma ? spmtd_sdma_quiet_warp(&a->view, a->to) : spmtd_quiet_warp(&a->view));
	else
		(void)(sdma ? spmtd_sdma_quiet_block(&a->view, -1) : spmtd_quiet_block(&a->view));
}

/* By one of the scope for all; the wait for the acknowledgement is each thread's own. */
static inline int await(const struct signals_args *a, const struct channel *c)
{
	if (a->scope == BY_WARP)
		return spmtd_signal_wait_until_warp(&a->view, c->sig, SPMT_CMP_GE, c->round);
	if (a->scope == BY_BLOCK)
		return spmtd_signal_wait_until_block(&a->view, c->sig, SPMT_CMP_GE, c->round);
	return spmtd_signal_wait_until(&a->view, c->sig, SPMT_CMP_GE, c->round);
}

/* The two sides of a round: 0, or the code of a wait that ended early. */
static inline int one_round(const struct signals_args *a, const struct channel *c)
{
	const struct spmt_view *v = &a->view;
	int rc = 0;

	settle(a);
	/* the slot's last user has been read */
	if (c->round > 2)
		rc = spmtd_signal_wait_until(v, c->ack, SPMT_CMP_GE, c->round - 2);
	if (!rc) {
		for (uint64_t i = c->lane; i < a->words; i += c->lanes)
			c->buffer[i] = word_of_round(c->round, i);
	}
	rc = spmtd_agree_(rc, a->scope);
	if (rc)
		return rc;
	send(a, c);
	rc = await(a, c);
	if (!rc)
		check(a, c);
	rc = spmtd_agree_(rc, a->scope);
	if (!rc && c->lane == 0)
		spmtd_signal_op(v, c->ack, c->round, SPMT_SIGNAL_SET, a->from);
	return rc;
}

KERNEL_BODY run_signals(const struct signals_args *a)
{
	uint64_t w = worker(a->scope), *slots = (uint64_t *)spmtd_to_(a->slots) + w * 2 * a->words;
	struct channel c;

	c.buffer = (uint64_t *)spmtd_to_(a->buffers) + w * a->words;
	c.sig = (uint64_t *)spmtd_to_(a->sigs) + w;
	c.ack = (uint64_t *)spmtd_to_(a->acks) + w;
	c.lane = spmtd_lane_(a->scope);
	c.lanes = spmtd_lanes_(a->scope);
	for (uint64_t i = 1; i <= a->rounds; i++) {
		int rc;

		c.round = a->done + i;
		c.slot = slots + (c.round & 1) * a->words;
		rc = one_round(a, &c);
		if (rc) {
			outcome_add(a->outcome, rc, c.round, *c.sig, c.round);
			return;
		}
	}
}
TEST_KERNEL(signals)

/* ---- meetings -------------------------------------------------------------------------------- */

static inline int by_barrier(const struct spmt_view *v, int scope)
{
	if (scope == BY_THREAD)
		return spmtd_barrier(v);
	return scope == BY_WARP ? spmtd_barrier_warp(v) : spmtd_barrier_block(v);
}

static inline int by_sync(const struct spmt_view *v, int scope)
{
	if (scope == BY_THREAD) {
		int rc = spmtd_quiet(v);

		return rc ? rc : spmtd_sync(v);
	}
	if (scope == BY_WARP) {
		int rc = spmtd_quiet_warp(v);

		return rc ? rc : spmtd_sync_warp(v);
	}
	return spmtd_quiet_block(v) ? 1 : spmtd_sync_block(v);
}

/* One thread arrives and waits for its scope, which works in between. */
static inline int by_halves(const struct meetings_args *a, uint64_t round)
{
	const struct spmt_view *v = &a->view;
	int rc = 0;

	if (a->scope == BY_WARP)
		(void)spmtd_quiet_warp(v);
	else if (a->scope == BY_BLOCK)
		(void)spmtd_quiet_block(v);
	else
		(void)spmtd_quiet(v);
	if (spmtd_lane_(a->scope) == 0)
		spmtd_sync_arrive(v);
	for (uint64_t i = 0; i < round % 8; i++)
		(void)spmtd_look64_(a->slots);
	if (spmtd_lane_(a->scope) == 0)
		rc = spmtd_sync_wait(v);
	return spmtd_agree_(rc, a->scope);
}

static inline int meet_once(const struct meetings_args *a, uint64_t round)
{
	if (a->form == MEET_BY_BARRIER)
		return by_barrier(&a->view, a->scope);
	if (a->form == MEET_BY_SYNC)
		return by_sync(&a->view, a->scope);
	return by_halves(a, round);
}

/* Words alternate between two sets: a peer that is a round ahead does not touch those being
   read. */
KERNEL_BODY run_meetings(const struct meetings_args *a)
{
	const struct spmt_view *v = &a->view;
	int lanes, lane, n = v->npes;

	if (worker(a->scope) != 0)
		return;
	lane = (int)spmtd_lane_(a->scope);
	lanes = (int)spmtd_lanes_(a->scope);
	for (uint64_t i = 1; i <= a->rounds; i++) {
		uint64_t round = a->done + i;
		uint64_t *set = (uint64_t *)spmtd_to_(a->slots) + (round & 1) * (uint64_t)n;
		int rc;

		for (int pe = lane; pe < n; pe += lanes)
			spmtd_uint64_p(v, set + v->pe, round, pe);
		rc = meet_once(a, round);
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
TEST_KERNEL(meetings)

/* ---- the graph's step ------------------------------------------------------------------------ */

KERNEL_BODY run_step(const struct step_args *a)
{
	uint64_t *came = (uint64_t *)spmtd_to_(a->came), *next = (uint64_t *)spmtd_to_(a->next);
	uint64_t round = spmtd_peek64_(a->round);

	if (kernel_block() != 0)
		return;
	for (uint64_t i = spmtd_tid_(); i < a->words; i += spmtd_threads_()) {
		uint64_t want = step_value(a->from, round, i);

		if (came[i] != want)
			outcome_add(a->outcome, 0, round, came[i], want);
		next[i] = step_value(a->view.pe, round + 1, i);
	}
	spmtd_meet_(BY_BLOCK);
	if (spmtd_tid_() == 0) {
		spmtd_poke64_(a->sig, 0);
		spmtd_poke64_(a->round, round + 1);
	}
}
TEST_KERNEL(step)
