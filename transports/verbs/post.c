/* SPDX-License-Identifier: MIT */
#include "post.h"

#include <errno.h>
#include <string.h>

#include "ask.h"
#include "cache.h"
#include "memory.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "stage.h"

#define TELL_EVERY 16u /* of so many work requests one tells of its end */
#define COPY_MOST \
	((size_t)4096) /* a blocking put up to this is copied, larger ones are waited for */
#define PIECE_MOST (1u << 30)
#define CHAIN_MOST \
	4u /* pieces of a move that the device is told of at once; they may be copied first */
_Static_assert(CHAIN_MOST < CONN_CHAIN, "what goes at once has room behind a chain");
#define SENDER_LOOKS 8 /* before one waits without the lock */
#define PROBE_NS 100000000ll
#define FLUSHED_NS 1000000000ll /* that a queue pair that has failed may take to end its work */

/* ---- senders ---------------------------------------------------------------------------------- */

struct sender *sender_make(struct pairing *c, struct stage *stage)
{
	struct sender *sender = mem_calloc(1, sizeof(*sender));

	if (!sender) {
		fail(-ENOMEM, "out of memory for a sender of %s", c->nic->place.name);
		return NULL;
	}
	sender->conn = c;
	sender->stage = stage;
	return sender;
}

static bool sender_idle(const struct sender *sender)
{
	return sender->done == sender->posted && sender->answered == sender->asked;
}

void sender_deafen(struct sender *sender)
{
	pthread_mutex_t *lock = &sender->conn->nic->lock;

	pthread_mutex_lock(lock);
	sender->deaf = true;
	stage_part(sender);
	pthread_mutex_unlock(lock);
}

void sender_drop(struct sender *sender)
{
	pthread_mutex_t *lock;
	bool idle;

	if (!sender)
		return;
	lock = &sender->conn->nic->lock;
	sender_deafen(sender);
	pthread_mutex_lock(lock);
	idle = sender_idle(sender);
	sender->orphan = true;
	pthread_mutex_unlock(lock);
	if (idle)
		mem_free(sender);
}

void sender_ended(struct sender *sender, int code)
{
	if (code && !sender->code)
		sender->code = code;
	if (sender->orphan && sender_idle(sender))
		mem_free(sender);
}

void lanes_forget(struct pairing *c)
{
	for (; c->head != c->tail; c->head++) {
		const struct sent *s = &c->sent[c->head % CONN_RING];

		if (s->land.sender && s->native)
			sender_answered(s->land.sender, -ECANCELED);
		else if (s->land.sender)
			sender_moved(s->land.sender, -ECANCELED);
	}
	if (!c->code)
		c->code = -ECANCELED;
	asks_fail(c);
}

static int pairing_failure(const struct pairing *c)
{
	return c->state == CONN_FAILED ? fail(c->code, "%s", c->why) : 0;
}

int sender_failure(struct sender *sender, bool take)
{
	struct pairing *c = sender->conn;
	char place[NIC_PLACE];
	int code;

	if (!atomic_load_explicit(&sender->code, memory_order_relaxed))
		return 0; /* what has ended has set it by then */
	pthread_mutex_lock(&c->nic->lock);
	code = sender->code;
	if (take)
		sender->code = 0;
	if (code == -EFAULT)
		fail(code, "%s: the peer has no such memory",
			nic_route_text(c->nic, &c->peer, place));
	else if (code && c->state != CONN_FAILED)
		fail(code, "%s: a device has not moved what its CPU does not reach (%d)",
			nic_route_text(c->nic, &c->peer, place), code);
	else if (code)
		fail(code, "%s", c->why);
	pthread_mutex_unlock(&c->nic->lock);
	return code;
}

/* ---- posting -------------------------------------------------------------------------------- */

static int device_post(struct pairing *c, struct verbs_send *first, struct verbs_send **bad)
{
	char place[NIC_PLACE];
	int rc = c->nic->place.ctx->ops.post_send(c->qp, first, bad);

	return rc ? fail_errno(rc, "%s: ibv_post_send", nic_route_text(c->nic, &c->peer, place))
		  : 0;
}

/* The last n of the chain stay; they were not taken, or not all. */
static int chain_post(struct pairing *c)
{
	struct verbs_send *bad = c->chain;
	uint32_t n = c->chained;
	int rc = n ? device_post(c, c->chain, &bad) : 0;

	c->chained = rc ? n - (uint32_t)(bad - c->chain) : 0;
	return rc;
}

int post_ring(struct pairing *c)
{
	int rc = chain_post(c);

	return rc ? pairing_fail_last(c, rc) : 0;
}

/* As the last that is in flight, behind those that the device has not been told of. */
static inline void chain_add(struct pairing *c, bool tells)
{
	struct verbs_send *wr = &c->chain[c->chained];

	/* Who wants a chunk that another connection has would not know that it has to ask there. */
	if (tells || post_known(c)->land.chunk >= 0 || c->head == c->tail ||
		c->tail - c->signaled >= TELL_EVERY - 1) {
		wr->send_flags |= VERBS_SEND_SIGNALED;
		c->signaled = c->tail + 1;
	}
	wr->wr_id = nic_number(NIC_SENT, c->number, c->tail);
	if (c->chained)
		wr[-1].next = wr;
	c->chained++;
	c->tail++;
}

void post_chain(struct pairing *c, bool tells)
{
	chain_add(c, tells);
}

int post_send(struct pairing *c, bool tells)
{
	uint32_t before = c->signaled;
	int rc;

	chain_add(c, tells);
	rc = chain_post(c);
	if (!rc)
		return 0;
	c->chained = 0; /* it alone was */
	c->tail--;
	c->signaled = before;
	return rc;
}

/* One more, that does nothing and tells of the end of all before it. Where it cannot be had the connection fails, or nobody would hear of that. */
static int post_tell(struct pairing *c)
{
	struct verbs_send *wr = post_next(c);
	int rc;

	wr->num_sge = 0;
	wr->opcode = VERBS_WR_RDMA_WRITE;
	*post_known(c) = (struct sent){ .land = { .chunk = -1 } };
	rc = post_send(c, true);
	return rc ? pairing_fail_last(c, rc) : 0;
}

/* The last work request tells of its end. */
static int post_flush(struct pairing *c)
{
	if (c->state != CONN_READY || c->head == c->tail || c->signaled == c->tail)
		return 0;
	return post_tell(c);
}

static bool has_room(void *ctx)
{
	const struct work_room *room = ctx;
	const struct pairing *c = room->c;

	return c->state == CONN_FAILED ||
		(c->tail - c->head + c->held < CONN_DEPTH &&
			(!room->ask || c->asked - c->answered + c->held_asks < CONN_ASKS) &&
			(!room->chunk || c->nic->nfree));
}

int post_begin(struct work_room *room, struct verbs_wait *wait)
{
	struct nic *nic = room->c->nic;
	int rc;

	for (;;) {
		pthread_mutex_lock(&nic->lock);
		rc = pairing_failure(room->c);
		if (!rc && has_room(room))
			return 0;
		if (!rc)
			rc = post_flush(room->c);
		pthread_mutex_unlock(&nic->lock);
		if (!rc)
			rc = nic_wait(nic, has_room, room, wait);
		if (rc)
			return rc;
	}
}

/* ---- put and get ---------------------------------------------------------------------------- */

/* A move, and what of it is left. */
struct piece {
	struct rdma_place rdma;
	char *local;
	size_t n;
	bool blocking;
	struct cached
		*cached; /* by which the port knows it; NULL: it is registered, or not known */
	struct region *region; /* as its caller says */
	bool wait;	       /* some of it is in flight from or to where the caller has it */
};

enum piece_way { PIECE_INLINE, PIECE_DIRECT, PIECE_BOUNCE, PIECE_STAGE };

/* How the next bytes go, of which leg->n: the rest at most. */
static inline enum piece_way piece_way(const struct sender *sender, const struct piece *p,
	const bool put, struct leg *leg, struct region **known)
{
	const struct pairing *c = sender->conn;
	bool copied = put && p->blocking && p->n <= COPY_MOST && !sender->stage;
	struct region *region;

	*leg = (struct leg){ .at = (uintptr_t)p->local, .n = p->n };
	if (put && p->n <= c->inline_most && !sender->stage && !p->rdma.staged) {
		leg->inlined = true;
		return PIECE_INLINE;
	}
	region = p->region  ? p->region
		: p->cached ? cached_region(p->cached)
		: copied    ? NULL
			    : region_of(c->nic, p->local, p->n);
	leg->n = MIN_OF(p->n,
		region && !p->rdma.staged ? MIN_OF(c->nic->place.attr.max_msg_sz, PIECE_MOST)
					  : NIC_CHUNK);
	if (!region)
		return sender->stage ? PIECE_STAGE : PIECE_BOUNCE;
	leg->lkey = region->mr->lkey;
	leg->rkey = region->mr->rkey;
	*known = region;
	return PIECE_DIRECT;
}

int leg_post(struct pairing *c, const struct rdma_place *far, const struct leg *leg,
	const struct landing *land, bool put, bool tells)
{
	if (!far->staged) {
		struct verbs_send *wr = post_next(c);

		*wr->sg_list = (struct verbs_sge){ leg->at, (uint32_t)leg->n, leg->lkey };
		wr->opcode = put ? VERBS_WR_RDMA_WRITE : VERBS_WR_RDMA_READ;
		wr->send_flags = leg->inlined ? VERBS_SEND_INLINE : 0;
		wr->wr.rdma.remote_addr = far->at;
		wr->wr.rdma.rkey = far->key;
		*post_known(c) = (struct sent){ .land = *land };
		post_chain(c, tells);
		return 0;
	}
	return ask_send(c,
		&(struct ask_message){ .kind = put ? MESSAGE_TAKE : MESSAGE_GIVE,
			.size = (uint32_t)leg->n,
			.key = far->key,
			.at = far->at,
			.operand = leg->at,
			.compare = leg->rkey },
		land, false);
}

/* A chunk of the port's, with the bytes in it, if the CPU puts them there. False: none is free. */
static inline bool piece_chunk(struct sender *sender, const struct piece *p, const bool put,
	enum piece_way way, struct leg *leg, struct landing *land)
{
	struct nic *nic = sender->conn->nic;

	land->chunk = chunk_take(nic);
	if (land->chunk < 0)
		return false;
	leg->at = (uintptr_t)chunk_at(nic, land->chunk);
	leg->lkey = nic->bounce->lkey;
	leg->rkey = nic->bounce->rkey;
	if (!put)
		land->dst = p->local;
	else if (way == PIECE_BOUNCE)
		memcpy(chunk_at(nic, land->chunk), p->local, leg->n);
	return true;
}

/* Under the lock, with room: chained. False: a chunk is wanted first. */
static inline bool piece_post(struct sender *sender, struct piece *p, const bool put, int *rc)
{
	struct pairing *c = sender->conn;
	struct landing land = { .sender = sender, .chunk = -1 };
	struct leg leg;
	enum piece_way way = piece_way(sender, p, put, &leg, &land.region);
	bool last = leg.n == p->n && p->blocking;

	land.n = leg.n;
	land.stage = way == PIECE_STAGE ? sender->stage : NULL;
	if (way >= PIECE_BOUNCE && !piece_chunk(sender, p, put, way, &leg, &land))
		return false;
	p->wait |= way == PIECE_DIRECT || way == PIECE_STAGE || (way == PIECE_BOUNCE && !put);
	*rc = 0;
	if (put && way == PIECE_STAGE)
		stage_out(c, &land, &p->rdma, p->local, last);
	else
		*rc = leg_post(c, &p->rdma, &leg, &land, put, last && p->wait);
	if (*rc) {
		chunk_give(c->nic, land.chunk);
		return true;
	}
	if (way == PIECE_DIRECT) {
		region_keep(land.region);
		sender->direct++;
	}
	*(p->rdma.staged ? &sender->asked : &sender->posted) += 1;
	p->rdma.at += leg.n;
	p->local += leg.n;
	p->n -= leg.n;
	return true;
}

/* Under the lock, with room: as many pieces as there is room for and the device is told of at once. */
static inline void pieces_post(
	struct sender *sender, struct piece *p, const bool put, struct work_room *room, int *rc)
{
	struct pairing *c = sender->conn;
	int rung;

	room->chunk = false;
	for (uint32_t n = 0; n < CHAIN_MOST && p->n && !*rc && !room->chunk; n++) {
		if (n && (c->state != CONN_READY || !has_room(room)))
			break;
		room->chunk = !piece_post(sender, p, put, rc);
	}
	rung = c->state == CONN_READY ? post_ring(c) : 0;
	if (!*rc)
		*rc = rung;
}

/* All of it. */
static inline int pieces_move(
	struct sender *sender, struct piece *p, const bool put, struct verbs_wait *wait)
{
	struct work_room room = { .c = sender->conn, .ask = p->rdma.staged };
	int rc = 0;

	while (p->n && !rc) {
		rc = post_begin(&room, wait);
		if (rc)
			break;
		pieces_post(sender, p, put, &room, &rc);
		pthread_mutex_unlock(&sender->conn->nic->lock);
	}
	return rc;
}

/* When a call tells that it has failed, nothing that it has posted touches its caller's memory any more; if that cannot be waited for, the
   call is late, and quiet waits. */
__attribute__((cold, noinline)) static int move_fails(
	struct sender *sender, int rc, struct verbs_wait *wait)
{
	int late;

	if (verbs_cut_short(rc))
		return rc;
	KEEPS_SENTENCE;
	late = sender_wait(sender, false, wait);
	return late ? late : rc;
}

/* Of both directions; `put` is known where this is compiled. */
static inline __attribute__((always_inline)) int sender_move(
	struct sender *sender, struct piece *p, const bool put, struct verbs_wait *wait)
{
	struct nic *nic = sender->conn->nic;
	int rc;

	if (!p->region && cache_wants(nic, p->n))
		p->cached = cache_hold(nic, sender->stage, p->local, p->n, !sender->called);
	rc = pieces_move(sender, p, put, wait);
	cache_let_go(p->cached);
	if (rc && p->blocking)
		return move_fails(sender, rc, wait);
	if (rc || !p->blocking || !p->wait)
		return rc;
	rc = sender_wait(sender, false, wait);
	return rc ? rc : sender_failure(sender, false);
}

int sender_put(struct sender *sender, struct rdma_place to, const void *src, struct region *region,
	size_t n, bool blocking, struct verbs_wait *wait)
{
	struct piece p = { .rdma = to,
		.local = (char *)(uintptr_t)src,
		.n = n,
		.blocking = blocking,
		.region = region };

	return sender_move(sender, &p, true, wait);
}

int sender_get(struct sender *sender, struct rdma_place from, void *dst, struct region *region,
	size_t n, bool blocking, struct verbs_wait *wait)
{
	struct piece p = {
		.rdma = from, .local = dst, .n = n, .blocking = blocking, .region = region
	};

	return sender_move(sender, &p, false, wait);
}

/* ---- waiting --------------------------------------------------------------------- */

/* So much of a sender's. */
struct mark_of_sender {
	const struct sender *sender;
	uint64_t posted, asked;
};

static bool sender_is_there(void *ctx)
{
	const struct mark_of_sender *mark = ctx;

	return mark->sender->done >= mark->posted && mark->sender->answered >= mark->asked &&
		!mark->sender->held;
}

static bool sender_has_parted(void *ctx)
{
	const struct sender *sender = ctx;

	return !sender->direct;
}

void sender_part(struct sender *sender, struct verbs_wait *wait)
{
	struct pairing *c = sender->conn;
	struct verbs_wait flushed = { .ns = FLUSHED_NS };

	sender_deafen(sender);
	if (!nic_wait(c->nic, sender_has_parted, sender, wait))
		return;
	pthread_mutex_lock(&c->nic->lock);
	/* not -ECANCELED, by which other comms that have the connection would take themselves for broken */
	pairing_fail(c, -EIO, "moves of a broken comm do not end");
	pthread_mutex_unlock(&c->nic->lock);
	if (nic_wait(c->nic, sender_has_parted, sender, &flushed))
		log_line(LOG_ERROR, "%s port %d: moves of a broken comm go on", c->nic->place.name,
			c->nic->place.port);
}

/* Who waits for an answer alone would not be told that the peer has gone: what is written to it comes back. */
static void sender_probe(struct sender *sender)
{
	struct pairing *c = sender->conn;

	pthread_mutex_lock(&c->nic->lock);
	if (c->state == CONN_READY && (c->head == c->tail || c->signaled != c->tail))
		post_tell(c);
	pthread_mutex_unlock(&c->nic->lock);
}

static int sender_await(struct sender *sender, struct mark_of_sender *mark, struct verbs_wait *wait)
{
	int64_t end = verbs_wait_end(wait);

	for (;;) {
		int64_t probe = process_now() + PROBE_NS;
		struct verbs_wait slice = { .end = MIN_OF(end, probe), .stop = wait->stop };
		int rc = nic_wait(sender->conn->nic, sender_is_there, mark, &slice);

		if (rc != -ETIMEDOUT || slice.end == end)
			return rc;
		sender_probe(sender);
	}
}

/*
 * Under the lock. The device may be done, or nearly so: then there is nothing to lock again, no clock to look at, and the port's thread
 * sleeps on. Few looks, for others want the lock. What is owed to peers is left to the thread, or to nic_wait.
 */
static bool sender_look(struct nic *nic, struct mark_of_sender *mark)
{
	for (int i = 0; i < SENDER_LOOKS; i++) {
		nic_poll(nic);
		if (!sender_is_there(mark))
			continue;
		if (nic->owing)
			nic_look_out(nic);
		return true;
	}
	return false;
}

int sender_wait(struct sender *sender, bool asks_alone, struct verbs_wait *wait)
{
	struct nic *nic = sender->conn->nic;
	struct mark_of_sender mark = { .sender = sender };
	bool there;

	pthread_mutex_lock(&nic->lock);
	mark.posted = asks_alone ? 0 : sender->posted;
	mark.asked = sender->asked;
	there = sender_is_there(&mark);
	if (!there && (!asks_alone || sender->conn->natives))
		post_flush(sender->conn);
	there = there || sender_look(nic, &mark);
	pthread_mutex_unlock(&nic->lock);
	return there ? 0 : sender_await(sender, &mark, wait);
}
