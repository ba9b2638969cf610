/* SPDX-License-Identifier: MIT */
/* How the ranks of a collective meet, and how one gives it up. */
#include "coll.h"
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/slot.h"
#include "varied.h"
#include "words.h"

/* One code for the block: an abort outranks a timeout, a timeout a mismatch. */
COLL_FN int coll_agrees(int rc)
{
	if (!spmtd_any_block_(rc))
		return 0;
	if (spmtd_any_block_(rc == SPMTD_ABORTED))
		return SPMTD_ABORTED;
	return spmtd_any_block_(rc == SPMTD_TIMEOUT) ? SPMTD_TIMEOUT : SPMTD_MISMATCH;
}

/* ---- meetings ------------------------------------------------------------------------------- */

/* This rank's factor to pe, before the hello. */
static inline void send_factor(const struct coll *c, int pe)
{
	uint64_t to = factors_at(area_there(c->view, pe), c->view->npes, c->epoch);

	piece_send(to, (uint64_t)(uint32_t)c->view->pe, factor_bits(&c->args->factor),
		flags_alike(area_flag(c->epoch)));
}

/* By the threads of one block. Loads of peers follow where `posted`. */
COLL_FN void coll_greet(const struct coll *c, int posted)
{
	const struct spmt_view *v = c->view;
	uint64_t flag = (uint64_t)area_flag(c->epoch) << 32;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		struct area_inbox *box = area_outbox(v, pe);
		uint64_t *hello = box->hello[c->epoch & 1], key = coll_key_to(c, pe);

		if (c->args->op == COLL_PREMUL)
			send_factor(c, pe);
		spmtd_poke64_(spmtd_at_(&hello[1]), flag | key >> 32);
		if (posted) {
			/* In another process the buffers, which lie in the heap then, have other
			   addresses. */
			uint64_t mine = v->stride ? 0 : v->peers[pe].mine;
			uint64_t shift = mine ? mine - v->base : 0;

			spmtd_poke64_(spmtd_at_(&box->src), coll_src_for(c, pe) + shift);
			spmtd_poke64_(
				spmtd_at_(&box->dst), c->v ? c->rounds : c->args->dst + shift);
			if (c->words > 1)
				spmtd_poke64_(coll_blocks_word(c, area_there(v, pe), v->pe),
					kernel_blocks());
			spmtd_release_set_(spmtd_at_(&hello[0]), flag | (uint32_t)key);
		} else {
			spmtd_poke64_(spmtd_at_(&hello[0]), flag | (uint32_t)key);
		}
		spmtd_wake_(v, pe);
	}
}

/* As spmtd_wait_check_, of a rank that any other may have told that it waits in vain. */
COLL_FN int coll_patience(const struct spmt_view *v, struct spmtd_waiter_ *w)
{
	int rc = spmtd_wait_check_(v, w);

	if (!COLL_LOOKS(w->polls))
		return rc;
	return !rc && peek_word(&area_of(v)->error) ? SPMTD_ABORTED : rc;
}

/* One half of a hello; *other: the first rank that called something else, as far as this half tells. */
static inline int await_hello(
	const struct coll *c, struct spmtd_waiter_ *w, int pe, int half, int *other)
{
	const struct spmt_view *v = c->view;
	uint32_t flag = area_flag(c->epoch), key = (uint32_t)(coll_key_of(c, pe) >> (32 * half));
	uint64_t a = spmtd_at_(&area_inbox(v, pe)->hello[c->epoch & 1][half]), seen;
	int rc = 0;

	for (;;) {
		seen = spmtd_look64_(a);
		if (seen >> 32 == flag)
			break;
		rc = coll_patience(v, w);
		if (rc) {
			kernel_record_here(v, c->args->report, rc, SPMTD_WHAT_COLLECTIVE, pe, a,
				c->args->key, seen);
			return rc;
		}
	}
	if ((uint32_t)seen != key && *other < 0)
		*other = pe;
	return 0;
}

COLL_FN int coll_hello(const struct coll *c, int pe, uint64_t *key)
{
	const uint64_t *hello = coll_box(c, spmtd_at_(c->view->own), pe)->hello[c->epoch & 1];
	struct spmtd_unit_ u = slot_peek(spmtd_at_(hello));

	*key = (uint32_t)u.a | u.b << 32;
	return u.a >> 32 == area_flag(c->epoch) && u.b >> 32 == area_flag(c->epoch);
}

COLL_FN void coll_record_mismatch(const struct coll *c, int pe)
{
	const uint64_t *hello = area_inbox(c->view, pe)->hello[c->epoch & 1];
	uint64_t low = (uint32_t)peek_word(&hello[0]), high = peek_word(&hello[1]) << 32;

	kernel_record_here(c->view, c->args->report, SPMTD_MISMATCH, SPMTD_WHAT_COLLECTIVE, pe,
		spmtd_at_(hello), coll_key_of(c, pe), high | low);
}

/* All ranks see some key that is not their own, or none does. */
COLL_FN int coll_meet(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;
	int rc = 0, other = -1;

	spmtd_wait_begin_(&w);
	for (int i = (int)spmtd_tid_(); i < 2 * v->npes && !rc; i += (int)spmtd_threads_())
		rc = await_hello(c, &w, i / 2, i % 2, &other);
	spmtd_wait_end_(v, &w);
	rc = coll_agrees(coll_stopped(c) ? SPMTD_ABORTED : rc);
	if (rc)
		return rc;
	if (other >= 0)
		coll_record_mismatch(c, other);
	return coll_agrees(other < 0 ? 0 : SPMTD_MISMATCH);
}

/* Blocks that have failed are counted in the upper bits: where none has, nobody asks how. One block alone
   needs neither fence nor count: two microseconds. */
#define GRID_FAILED (1ull << 48)

COLL_FN int coll_last_block(struct coll *c, int failed)
{
	uint64_t ended = spmtd_at_(&area_of(c->view)->grid[GRID_ENDED]);
	uint64_t one = failed ? GRID_FAILED + 1 : 1;
	int last = 0;

	spmtd_meet_settled_(SPMTD_BLOCK_);
	c->failed = failed != 0;
	c->ended = one;
	if (kernel_blocks() == 1) {
		if (spmtd_tid_() == 0)
			spmtd_poke64_(ended, c->before + one);
		return 1;
	}
	if (spmtd_tid_() == 0) {
		spmtd_order_();
		c->ended = spmtd_add64_(ended, one) + one - c->before;
		last = c->ended % GRID_FAILED == kernel_blocks();
		if (last)
			spmtd_order_();
	}
	if (!spmtd_any_block_(last))
		return 0;
	c->failed = spmtd_any_block_(last && c->ended >= GRID_FAILED);
	return 1;
}

/* By one thread of the last block. */
COLL_FN void coll_end_epoch(const struct coll *c)
{
	struct area *area = coll_area(c);

	spmtd_poke64_(spmtd_at_(&area->grid[GRID_BEFORE]), c->before + c->ended);
	spmtd_poke64_(spmtd_at_(&area->coll_epoch), c->epoch);
}

/* ---- giving up ------------------------------------------------------------------------------- */

/* By one thread of each block that is not through with it. */
COLL_FN void coll_ended_badly(const struct coll *c, int rc)
{
	uint64_t a = spmtd_at_(&area_of(c->view)->grid[GRID_HOW]), seen = spmtd_peek64_(a), old;
	uint64_t how = c->epoch << 2 |
		(rc == SPMTD_TIMEOUT		      ? ENDED_TIMEOUT
				: rc == SPMTD_ABORTED ? ENDED_ABORTED
						      : ENDED_DIFFERS);

	while ((int64_t)(seen - how) < 0) {
		old = spmtd_cas64_(a, seen, how);
		if (old == seen)
			return;
		seen = old;
	}
}

/* Of the collective `epoch`. */
COLL_FN int coll_ended_how(const struct spmt_view *v, uint64_t epoch)
{
	uint64_t how = peek_word(&area_of(v)->grid[GRID_HOW]);

	return how >> 2 == (epoch << 2) >> 2 ? (int)(how & 3) : ENDED_WELL;
}

/*
 * A rank takes a peer before it touches its buffers; one that gives up takes itself back from all peers. One
 * word at the peer decides between the two: whoever was too late waits until the other is done.
 */
/* One exchange, as the word need not be read first: what is lost is put back. */
static inline int take_peer(const struct coll *c, int pe)
{
	uint64_t a = spmtd_at_(&coll_words_from(c, pe, c->word)->turn), back = c->epoch << 1;

	if (spmtd_swap64_(a, back | 1) != back)
		return 1;
	spmtd_poke64_(a, back);
	return 0;
}

COLL_FN void coll_block_takes(struct coll *c)
{
	const struct spmt_view *v = c->view;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_())
		c->stopped |= pe != v->pe && !take_peer(c, pe);
}

static inline SPMTD_MEETS int await_taken(const struct coll *c, uint64_t word)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	while (!rc && spmtd_tid_() == 0) {
		uint64_t seen = spmtd_look64_(word);

		if (seen >> 1 == (c->epoch << 1) >> 1) {
			rc = seen & 1 ? SPMTD_ABORTED : 0;
			break;
		}
		rc = coll_patience(c->view, &w);
	}
	spmtd_wait_end_(c->view, &w);
	return coll_agrees(rc);
}

/* The first block takes all peers for its rank: a hundred blocks at one word of a peer took 30 us. The others wait for it, which runs:
   there are never more than run at once. */
COLL_FN int coll_take_all(const struct coll *c, int rc)
{
	const struct spmt_view *v = c->view;
	uint64_t word = spmtd_at_(&area_of(v)->grid[GRID_TAKEN]);

	if (kernel_block() != 0)
		return rc ? rc : await_taken(c, word);
	for (int pe = (int)spmtd_tid_(); !rc && pe < v->npes; pe += (int)spmtd_threads_())
		if (pe != v->pe && !take_peer(c, pe))
			rc = SPMTD_ABORTED;
	rc = coll_agrees(rc);
	if (kernel_blocks() > 1 && spmtd_tid_() == 0) {
		spmtd_order_();
		spmtd_poke64_(word, c->epoch << 1 | (uint64_t)(rc != 0));
	}
	return rc;
}

/* The other side: 0: pe was first. */
static inline int taken_back(const struct coll *c, int pe, uint32_t word)
{
	uint64_t a = spmtd_at_(&coll_words_at(c, pe, word)->turn), back = c->epoch << 1;
	uint64_t seen = spmtd_peek64_(a), old;

	while (seen >> 1 != back >> 1) {
		old = spmtd_cas64_(a, seen, back);
		if (old == seen)
			return 1;
		seen = old;
	}
	return seen == back;
}

/* pe has said that it is through with this rank. */
static inline int is_done(const struct coll *c, int pe, uint32_t word)
{
	uint64_t done = peek_word(&coll_words_from(c, pe, word)->done);

	return (int64_t)(done - (c->epoch << 1)) >= 0;
}

static inline int lacks(const struct coll *c, int pe)
{
	const struct area_inbox *box = area_inbox(c->view, pe);

	if (peek_word(&box->hello[c->epoch & 1][0]) >> 32 != area_flag(c->epoch))
		return 1;
	for (uint32_t word = c->word; c->met && word < coll_words_of(c, pe);
		word += kernel_blocks())
		if (!is_done(c, pe, word))
			return 1;
	return 0;
}

/* By lane of lanes threads of the rank's last block. */
COLL_FN void coll_note_missing(const struct coll *c, uint32_t lane, uint32_t lanes)
{
	for (int pe = (int)lane; pe < c->view->npes && !c->refused; pe += (int)lanes)
		if (pe != c->view->pe && lacks(c, pe))
			kernel_missing(c->args->report, pe);
}

#define LINGER_NS 10000000000ull /* then the peer is dead */

COLL_FN int coll_pause_broken(const struct spmt_view *v, int pe, struct spmtd_waiter_ *w)
{
	w->polls++;
#if defined(__AMDGCN__) || defined(__NVPTX__)
	(void)v;
	(void)pe;
	if (!w->begin)
		w->begin = spmtd_clock_();
	return spmtd_clock_() - w->begin > LINGER_NS;
#else
	w->pause.wakes = (uint32_t)(pe + 1);
	return v->host && v->host->pause_broken ? v->host->pause_broken(v, &w->pause) : 1;
#endif
}

/* Until no peer touches this rank's buffers. By the threads of the rank's last block. */
COLL_FN void coll_take_back(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;

	spmtd_wait_begin_(&w);
	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		int enough = 0;

		if (pe == v->pe)
			continue;
		/* however many blocks it has */
		for (uint32_t word = c->word; word < c->words; word += kernel_blocks()) {
			int back = taken_back(c, pe, word);

			while (!back && !enough && !is_done(c, pe, word))
				enough = coll_pause_broken(v, pe, &w);
		}
	}
	spmtd_meet_settled_(SPMTD_BLOCK_);
}
