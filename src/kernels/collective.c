/* SPDX-License-Identifier: MIT */
/*
 * Collectives. Every rank tells all others what it was called with and waits for all (each block
 * for itself); only then does anybody touch anybody's buffers. The last block of a rank to be
 * through with its part tells all others, and waits until all have told: after that no peer reads
 * src or writes dst. Blocks never wait for each other, so any grid is fine.
 *
 * Small ones meet once: each rank pushes its data with its hello, into slots of which there are two sets,
 * for even and odd epochs. Who has come to the epoch after next has heard from all in the next, so
 * all are through with this one, and its set is free.
 */
#include "../../include/spmt.h"
#include "entry.h"
#include "reduce.h"
#include "slot.h"

/* own->grid: how many blocks have ever come to the end, and how many had before this launch. */
enum { GRID_ENDED, GRID_BEFORE };

struct coll {
	const struct kernel_collective_args *args;
	const struct spmt_view *view;
	uint64_t epoch, before;
	uint64_t bytes; /* of args->count elements */
};

static inline uint64_t peek_word(const uint64_t *word)
{
	return spmtd_peek64_(spmtd_at_(word));
}

static inline uint64_t type_bytes(int type)
{
	switch (type) {
	case SPMT_TYPE_I8:
	case SPMT_TYPE_U8:
		return 1;
	case SPMT_TYPE_I16:
	case SPMT_TYPE_U16:
	case SPMT_TYPE_F16:
	case SPMT_TYPE_BF16:
		return 2;
	case SPMT_TYPE_I64:
	case SPMT_TYPE_U64:
	case SPMT_TYPE_F64:
		return 8;
	default:
		return 4;
	}
}

/* One code for the block: an abort outdoes a timeout, that a mismatch. */
static inline int block_agrees(int rc)
{
	if (!spmtd_any_block_(rc))
		return 0;
	if (spmtd_any_block_(rc == SPMTD_ABORTED))
		return SPMTD_ABORTED;
	return spmtd_any_block_(rc == SPMTD_TIMEOUT) ? SPMTD_TIMEOUT : SPMTD_MISMATCH;
}

/* ---- meetings ------------------------------------------------------------------------------- */

/* By the threads of one block. Loads of peers follow where `posted`. */
static inline void greet(const struct coll *c, int posted)
{
	const struct spmt_view *v = c->view;
	uint64_t flag = (uint64_t)spmtd_flag_(c->epoch) << 32, key = c->args->key;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		struct spmtd_inbox *box = spmtd_outbox_(v, pe);
		uint64_t *hello = box->hello[c->epoch & 1];

		spmtd_poke64_(spmtd_at_(&hello[1]), flag | key >> 32);
		if (posted) {
			/* In another process the buffers, which lie in the heap then, have other
			   addresses. */
			uint64_t mine = v->stride ? 0 : v->peers[pe].mine;
			uint64_t shift = mine ? mine - v->base : 0;

			spmtd_poke64_(spmtd_at_(&box->src), c->args->src + shift);
			spmtd_poke64_(spmtd_at_(&box->dst), c->args->dst + shift);
			spmtd_ring_set_(spmtd_at_(&hello[0]), flag | (uint32_t)key);
		} else {
			spmtd_poke64_(spmtd_at_(&hello[0]), flag | (uint32_t)key);
		}
		spmtd_wake_(v, pe);
	}
}

/* One half of a hello; *other: the first rank that called something else, as far as this half tells. */
static inline int await_hello(
	const struct coll *c, struct spmtd_waiter_ *w, int pe, int half, int *other)
{
	const struct spmt_view *v = c->view;
	uint32_t flag = spmtd_flag_(c->epoch), key = (uint32_t)(c->args->key >> (32 * half));
	uint64_t a = spmtd_at_(&spmtd_inbox_(v, pe)->hello[c->epoch & 1][half]), seen;
	int rc = 0;

	for (;;) {
		seen = spmtd_look64_(a);
		if (seen >> 32 == flag)
			break;
		rc = spmtd_patience_(v, w);
		if (rc) {
			spmtd_record_(v, rc, SPMTD_WHAT_COLLECTIVE, pe, a, c->epoch, seen);
			return rc;
		}
	}
	if ((uint32_t)seen != key && *other < 0)
		*other = pe;
	return 0;
}

static inline void record_mismatch(const struct coll *c, int pe)
{
	const uint64_t *hello = spmtd_inbox_(c->view, pe)->hello[c->epoch & 1];
	uint64_t low = (uint32_t)peek_word(&hello[0]), high = peek_word(&hello[1]) << 32;

	spmtd_record_(c->view, SPMTD_MISMATCH, SPMTD_WHAT_COLLECTIVE, pe, spmtd_at_(hello),
		c->args->key, high | low);
}

/* All ranks see some key that is not their own, or none does. */
static inline int coll_meet(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;
	int rc = 0, other = -1;

	spmtd_wait_begin_(&w);
	for (int i = (int)spmtd_tid_(); i < 2 * v->npes && !rc; i += (int)spmtd_threads_())
		rc = await_hello(c, &w, i / 2, i % 2, &other);
	spmtd_wait_end_(v, &w);
	rc = block_agrees(rc);
	if (rc)
		return rc;
	if (other >= 0)
		record_mismatch(c, other);
	return block_agrees(other < 0 ? 0 : SPMTD_MISMATCH);
}

static inline int await_done(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (int pe = (int)spmtd_tid_(); pe < v->npes && !rc; pe += (int)spmtd_threads_())
		rc = spmtd_await_(v, &w, SPMTD_KIND_W_, 64, spmtd_at_(&spmtd_inbox_(v, pe)->done),
			0, c->epoch, SPMTD_WHAT_COLLECTIVE, pe);
	spmtd_wait_end_(v, &w);
	return rc;
}

/* Is this block the last of its rank to get here? What the others have stored is then seen, and
   told with the next release. One block alone needs neither fence nor count: two microseconds. */
static inline int last_block(const struct coll *c)
{
	uint64_t ended = spmtd_at_(&c->view->own->grid[GRID_ENDED]);
	int last = 0;

	spmtd_gather_(SPMTD_BLOCK_);
	if (kernel_blocks() == 1) {
		if (spmtd_tid_() == 0)
			spmtd_poke64_(ended, c->before + 1);
		return 1;
	}
	if (spmtd_tid_() == 0) {
		spmtd_order_();
		last = spmtd_add64_(ended, 1) + 1 == c->before + kernel_blocks();
		spmtd_order_();
	}
	return spmtd_any_block_(last);
}

static inline void tell_done(const struct coll *c)
{
	const struct spmt_view *v = c->view;

	for (int pe = (int)spmtd_tid_(); pe < v->npes; pe += (int)spmtd_threads_()) {
		spmtd_ring_set_(spmtd_at_(&spmtd_outbox_(v, pe)->done), c->epoch);
		spmtd_wake_(v, pe);
	}
}

/* By one thread of the last block. */
static inline void end(const struct coll *c)
{
	struct spmtd_own *own = c->view->own;

	spmtd_poke64_(spmtd_at_(&own->grid[GRID_BEFORE]), c->before + kernel_blocks());
	spmtd_poke64_(spmtd_at_(&own->coll_epoch), c->epoch);
}

/* After a timeout or an abort the world is broken: the others are told, but not waited for. Where calls differ
   nothing was touched. */
static inline void part(const struct coll *c, int rc)
{
	if (spmtd_tid_() == 0)
		kernel_failed(c->view, rc);
	if (!last_block(c))
		return;
	tell_done(c);
	if (!rc)
		rc = block_agrees(await_done(c));
	if (spmtd_tid_() != 0)
		return;
	kernel_failed(c->view, rc);
	end(c);
}

/* ---- moving --------------------------------------------------------------------------------- */

/* n ranks' blocks from `from` on, rank `pe` first, to their places in dst or to its begin. */
static inline void coll_pull(const struct coll *c, int pe, int n, uint64_t from, int places)
{
	for (int i = 0; i < n; i++) {
		uint64_t src = spmtd_inbox_(c->view, pe)->src + from, dst = c->args->dst;

		if (places)
			dst += (uint64_t)(uint32_t)pe * c->bytes;
		if (dst != src)
			spmtd_bulk_raw_(dst, src, c->bytes, kernel_lane(), kernel_lanes());
		pe = pe + 1 < c->view->npes ? pe + 1 : 0;
	}
}

/*
 * all_reduce: each rank makes an equal share of the result, in units of 16 bytes, for all. In place
 * is fine: a share is read by one rank only, before that rank writes it.
 */
static inline void share(const struct coll *c, struct reduce *r)
{
	uint64_t n = (uint64_t)c->view->npes, pe = (uint64_t)c->view->pe;
	uint64_t units = (c->bytes + 15) / 16, each = units / n, over = units % n;
	uint64_t bytes = 16 * (each + (pe < over));

	r->from = 16 * (pe * each + (pe < over ? pe : over));
	r->to = r->from;
	r->bytes = 0;
	if (r->from < c->bytes)
		r->bytes = bytes < c->bytes - r->from ? bytes : c->bytes - r->from;
}

static inline void reduce(const struct coll *c)
{
	struct reduce r;

	r.inboxes = spmtd_inbox_(c->view, 0);
	r.npes = c->view->npes;
	r.first = c->view->pe;
	r.everyone = c->args->kind == COLL_ALL_REDUCE;
	r.slots = 0;
	r.from = (uint64_t)c->view->pe * c->bytes;
	r.to = 0;
	r.bytes = c->bytes;
	r.dst = c->args->dst;
	r.lane = kernel_lane();
	r.lanes = kernel_lanes();
	if (r.everyone)
		share(c, &r);
	reduce_run(&r, c->args->type, c->args->op);
}

static inline void coll_move(const struct coll *c)
{
	const struct kernel_collective_args *args = c->args;
	int kind = args->kind, pe = args->root, n = 1, places = 0;
	uint64_t from = 0;

	if (kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_REDUCE) {
		reduce(c);
		return;
	}
	if (kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL) {
		pe = c->view->pe; /* this rank first: no two ranks begin with the same */
		n = c->view->npes;
		places = 1;
	}
	if (kind == COLL_ALL_TO_ALL)
		from = (uint64_t)c->view->pe * c->bytes;
	if (pe >= 0)
		coll_pull(c, pe, n, from, places);
}

/* ---- small ones: pushed ---------------------------------------------------------------------- */

/* The slot that `writer` fills at the rank with this library area. */
static inline uint64_t slot_of(const struct coll *c, uint64_t own, int writer)
{
	uint64_t npes = (uint64_t)c->view->npes, nth = (c->epoch & 1) * npes + (uint64_t)writer;

	return spmtd_at_(spmtd_inbox_at_(own, c->view->npes)) + nth * 2 * c->args->room;
}

/* A block's share of every rank's data, in pieces: an equal range of whole units. */
struct sweep {
	uint64_t from, n;
	int first, ranks; /* from `first` on, round */
};

/* The i-th of these pieces: which, and of which rank. 0: there are no more. */
static inline int sweep_at(
	const struct coll *c, const struct sweep *s, uint64_t i, uint64_t *piece, int *pe)
{
	uint32_t n = (uint32_t)s->n, nth = n ? (uint32_t)i / n : (uint32_t)s->ranks;

	if (nth >= (uint32_t)s->ranks)
		return 0;
	*piece = s->from + (uint32_t)i % n;
	*pe = s->first + (int)nth;
	if (*pe >= c->view->npes)
		*pe -= c->view->npes;
	return 1;
}

static inline struct sweep sweep_all(const struct coll *c)
{
	uint64_t pieces = (c->bytes + PIECE - 1) / PIECE;
	uint64_t each = (pieces + 2 * kernel_blocks() - 1) / (2 * kernel_blocks()) * 2;
	struct sweep s = { kernel_block() * each, 0, c->view->pe, c->view->npes };

	if (s.from < pieces)
		s.n = pieces - s.from < each ? pieces - s.from : each;
	return s;
}

static inline struct sweep targets(const struct coll *c)
{
	struct sweep s = sweep_all(c);

	if (c->args->kind == COLL_BROADCAST && c->args->root != c->view->pe)
		s.ranks = 0;
	if (c->args->kind == COLL_PERMUTE) {
		s.first = c->args->to;
		s.ranks = c->args->to >= 0;
	}
	return s;
}

static inline struct sweep sources(const struct coll *c)
{
	struct sweep s = sweep_all(c);

	if (c->args->kind == COLL_BROADCAST || c->args->kind == COLL_PERMUTE) {
		s.first = c->args->root;
		s.ranks = c->args->root >= 0;
	}
	return s;
}

static inline uint32_t bytes_of(const struct coll *c, uint64_t piece)
{
	uint64_t left = c->bytes - PIECE * piece;

	return left < PIECE ? (uint32_t)left : PIECE;
}

static inline void coll_push(const struct coll *c)
{
	const struct spmt_view *v = c->view;
	struct sweep s = targets(c);
	int parts = c->args->kind == COLL_ALL_TO_ALL || c->args->kind == COLL_REDUCE_SCATTER, pe;
	uint64_t p;

	for (uint64_t i = spmtd_tid_(); sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_()) {
		uint64_t own = v->stride ? spmtd_there_(v, v->own, pe) : v->peers[pe].own;
		uint64_t from = c->args->src + (parts ? (uint64_t)(uint32_t)pe * c->bytes : 0);

		piece_send(slot_of(c, own, v->pe), p, piece_fetch(from + PIECE * p, bytes_of(c, p)),
			spmtd_flag_(c->epoch));
	}
}

static inline int await_piece(
	const struct coll *c, struct spmtd_waiter_ *w, uint64_t slot, uint64_t p, int pe)
{
	uint64_t a = slot + PIECE_IN_SLOT * p;
	int rc;

	while (!piece_is_here(slot, p, spmtd_flag_(c->epoch))) {
		rc = spmtd_patience_(c->view, w);
		if (!rc)
			continue;
		spmtd_record_(
			c->view, rc, SPMTD_WHAT_COLLECTIVE, pe, a, c->epoch, spmtd_peek64_(a));
		return rc;
	}
	return 0;
}

static inline int await_data(const struct coll *c)
{
	struct sweep s = sources(c);
	struct spmtd_waiter_ w;
	uint64_t p;
	int rc = 0, pe;

	spmtd_wait_begin_(&w);
	for (uint64_t i = spmtd_tid_(); !rc && sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_())
		rc = await_piece(c, &w, slot_of(c, spmtd_at_(c->view->own), pe), p, pe);
	spmtd_wait_end_(c->view, &w);
	return block_agrees(rc);
}

/* The block's share of what has arrived. */
static inline void reduce_arrived(const struct coll *c)
{
	struct sweep s = sweep_all(c);
	struct reduce r;

	if (!s.n)
		return;
	r.slots = slot_of(c, spmtd_at_(c->view->own), 0) + PIECE_IN_SLOT * s.from;
	r.slot = 2 * (uint64_t)c->args->room;
	r.npes = c->view->npes;
	r.everyone = 0;
	r.to = 0;
	r.bytes = c->bytes - PIECE * s.from < PIECE * s.n ? c->bytes - PIECE * s.from : PIECE * s.n;
	r.dst = c->args->dst + PIECE * s.from;
	r.lane = spmtd_tid_();
	r.lanes = spmtd_threads_();
	reduce_run(&r, c->args->type, c->args->op);
}

/* The block's share of what has arrived, to dst. */
static inline void unpack(const struct coll *c)
{
	struct sweep s = sources(c);
	int places = c->args->kind == COLL_ALL_GATHER || c->args->kind == COLL_ALL_TO_ALL, pe;
	uint64_t p;

	for (uint64_t i = spmtd_tid_(); sweep_at(c, &s, i, &p, &pe); i += spmtd_threads_()) {
		uint64_t to = c->args->dst + (places ? (uint64_t)(uint32_t)pe * c->bytes : 0);

		piece_place(to + PIECE * p,
			piece_arrived(slot_of(c, spmtd_at_(c->view->own), pe), p), bytes_of(c, p));
	}
}

/* Flags come again after 2^31 epochs, and a slot's end may not have been written since: before this rank's
   hello nobody writes to the other set. */
static inline void clear_other_set(const struct coll *c)
{
	uint64_t set = (uint64_t)c->view->npes * 2 * c->args->room;
	uint64_t at = spmtd_at_(spmtd_inbox_at_(spmtd_at_(c->view->own), c->view->npes)) +
		(~c->epoch & 1) * set;

	for (uint64_t i = spmtd_tid_(); i < set / 8; i += spmtd_threads_())
		spmtd_poke64_(at + 8 * i, 0);
	spmtd_gather_(SPMTD_BLOCK_);
	spmtd_order_(); /* by each, so that all hellos come after it */
}

static inline int collect_small(const struct coll *c)
{
	int rc;

	if (c->bytes)
		coll_push(c);
	if (kernel_block() == 0)
		greet(c, 0);
	rc = coll_meet(c);
	if (!rc && c->bytes)
		rc = await_data(c);
	if (rc || !c->bytes)
		return rc;
	if (c->args->kind == COLL_REDUCE_SCATTER || c->args->kind == COLL_ALL_REDUCE)
		reduce_arrived(c);
	else
		unpack(c);
	return 0;
}

static inline void run_small(const struct coll *c)
{
	int rc = collect_small(c), last = 1;

	if (spmtd_tid_() != 0)
		return;
	kernel_failed(c->view, rc);
	if (kernel_blocks() > 1)
		last = spmtd_add64_(spmtd_at_(&c->view->own->grid[GRID_ENDED]), 1) + 1 ==
			c->before + kernel_blocks();
	else
		spmtd_poke64_(spmtd_at_(&c->view->own->grid[GRID_ENDED]), c->before + 1);
	if (last)
		end(c);
}

/* ---- large ones: moved ----------------------------------------------------------------------- */

static inline void run_large(const struct coll *c)
{
	int rc;

	if (kernel_block() == 0)
		greet(c, 1);
	rc = coll_meet(c);
	if (!rc)
		coll_move(c);
	part(c, rc);
}

KERNEL_BODY run_collective(const struct kernel_collective_args *args)
{
	const struct spmt_view *v = &args->view;
	struct coll c;

	c.args = args;
	c.view = v;
	c.epoch = peek_word(&v->own->coll_epoch) + 1;
	c.before = peek_word(&v->own->grid[GRID_BEFORE]);
	c.bytes = args->count * type_bytes(args->type);
	if (kernel_block() == 0 && c.epoch >> 31 && (c.epoch & 0x7fffffff) <= 1)
		clear_other_set(&c);
	if (c.bytes <= args->room)
		run_small(&c);
	else
		run_large(&c);
}
KERNEL(collective)
