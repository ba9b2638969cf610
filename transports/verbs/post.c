/* SPDX-License-Identifier: MIT */
#include "post.h"

#include <errno.h>
#include <string.h>

#include "ask.h"
#include "memory.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define TELL_EVERY 16u /* of so many work requests one tells of its end */
#define COPY_MOST \
	((size_t)4096) /* a blocking put up to this is copied, larger ones are waited for */
#define PIECE_MOST (1u << 30)
#define PROBE_NS 100000000ll

/* ---- lanes ---------------------------------------------------------------------------------- */

struct lane *lane_make(struct conn *c)
{
	struct lane *lane = mem_calloc(1, sizeof(*lane));

	if (lane)
		lane->conn = c;
	else
		fail(-ENOMEM, "out of memory for a lane of %s", c->nic->place.name);
	return lane;
}

static bool lane_idle(const struct lane *lane)
{
	return lane->done == lane->posted && lane->answered == lane->asked;
}

void lane_drop(struct lane *lane)
{
	pthread_mutex_t *lock;
	bool idle;

	if (!lane)
		return;
	lock = &lane->conn->nic->lock;
	pthread_mutex_lock(lock);
	idle = lane_idle(lane);
	lane->orphan = true;
	pthread_mutex_unlock(lock);
	if (idle)
		mem_free(lane);
}

static void lane_ended(struct lane *lane, int code)
{
	if (code && !lane->code)
		lane->code = code;
	if (lane->orphan && lane_idle(lane))
		mem_free(lane);
}

void lane_moved(struct lane *lane, int code)
{
	lane->done++;
	lane_ended(lane, code);
}

void lane_answered(struct lane *lane, int code)
{
	lane->answered++;
	lane_ended(lane, code);
}

void lanes_forget(struct conn *c)
{
	for (; c->head != c->tail; c->head++) {
		struct lane *lane = c->sent[c->head % CONN_RING].lane;

		if (lane)
			lane_moved(lane, -ECANCELED);
	}
	if (!c->code)
		c->code = -ECANCELED;
	asks_fail(c);
}

static int conn_failure(const struct conn *c)
{
	return c->state == CONN_FAILED ? fail(c->code, "%s", c->why) : 0;
}

int lane_failure(struct lane *lane, bool take)
{
	struct conn *c = lane->conn;
	int code;

	pthread_mutex_lock(&c->nic->lock);
	code = lane->code;
	if (take)
		lane->code = 0;
	if (code == -EFAULT)
		fail(code, "%s port %d: the peer has no such memory", c->nic->place.name,
			c->nic->place.port);
	else if (code)
		fail(code, "%s", c->why);
	pthread_mutex_unlock(&c->nic->lock);
	return code;
}

/* ---- posting -------------------------------------------------------------------------------- */

int post_send(struct conn *c, struct verbs_send *wr, const struct sent *sent, bool tells)
{
	struct verbs_send *bad;
	int rc;

	/* Who wants a chunk that another connection has would not know that it has to ask there. */
	if (tells || sent->chunk >= 0 || c->head == c->tail ||
		c->tail - c->signaled >= TELL_EVERY - 1)
		wr->send_flags |= VERBS_SEND_SIGNALED;
	wr->wr_id = nic_number(NIC_SENT, c->number, c->tail);
	rc = c->nic->place.ctx->ops.post_send(c->qp, wr, &bad);
	if (rc)
		return fail_errno(
			rc, "%s port %d: ibv_post_send", c->nic->place.name, c->nic->place.port);
	c->sent[c->tail % CONN_RING] = *sent;
	c->tail++;
	if (wr->send_flags & VERBS_SEND_SIGNALED)
		c->signaled = c->tail;
	return 0;
}

/* The last work request tells of its end. */
static int post_flush(struct conn *c)
{
	struct verbs_send wr = { .opcode = VERBS_WR_RDMA_WRITE };

	if (c->state != CONN_READY || c->head == c->tail || c->signaled == c->tail)
		return 0;
	return post_send(c, &wr, &(struct sent){ .chunk = -1 }, true);
}

/* What is to be had before one more can go. */
struct room {
	struct conn *c;
	bool ask, chunk;
};

static bool has_room(void *ctx)
{
	const struct room *room = ctx;
	const struct conn *c = room->c;

	return c->state == CONN_FAILED ||
		(c->tail - c->head < CONN_DEPTH &&
			(!room->ask || c->asked - c->answered < CONN_ASKS) &&
			(!room->chunk || c->nic->nfree));
}

/* 0: under the lock. */
static int post_begin(struct room *room, const struct verbs_wait *wait)
{
	struct nic *nic = room->c->nic;
	int rc;

	for (;;) {
		pthread_mutex_lock(&nic->lock);
		rc = conn_failure(room->c);
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
	struct far_place far;
	char *local;
	size_t n;
	bool blocking;
	bool wait; /* some of it is in flight from or to where the caller has it */
};

enum piece_way { PIECE_INLINE, PIECE_DIRECT, PIECE_BOUNCE };

/* How the next bytes go, of which *n: the rest at most. */
static inline enum piece_way piece_way(const struct lane *lane, const struct piece *p,
	const bool put, const struct region **region, size_t *n)
{
	const struct conn *c = lane->conn;

	*n = p->n;
	if (put && p->n <= c->inline_most)
		return PIECE_INLINE;
	*region =
		put && p->blocking && p->n <= COPY_MOST ? NULL : region_of(c->nic, p->local, p->n);
	*n = MIN_OF(p->n, *region ? MIN_OF(c->nic->place.attr.max_msg_sz, PIECE_MOST) : NIC_CHUNK);
	return *region ? PIECE_DIRECT : PIECE_BOUNCE;
}

/* Under the lock, with room; false: a chunk is wanted first. */
static inline bool piece_post(struct lane *lane, struct piece *p, const bool put, int *rc)
{
	struct conn *c = lane->conn;
	const struct region *region = NULL;
	struct sent sent = { .lane = lane, .chunk = -1 };
	struct verbs_sge sge = { .addr = (uintptr_t)p->local };
	struct verbs_send wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = put ? VERBS_WR_RDMA_WRITE : VERBS_WR_RDMA_READ,
		.wr.rdma = { p->far.at, p->far.key } };
	size_t n;

	switch (piece_way(lane, p, put, &region, &n)) {
	case PIECE_INLINE:
		wr.send_flags = VERBS_SEND_INLINE;
		break;
	case PIECE_DIRECT:
		sge.lkey = region->mr->lkey;
		p->wait = true;
		break;
	case PIECE_BOUNCE:
		sent.chunk = chunk_take(c->nic);
		if (sent.chunk < 0)
			return false;
		sge.addr = (uintptr_t)chunk_at(c->nic, sent.chunk);
		sge.lkey = c->nic->bounce->lkey;
		if (put)
			memcpy(chunk_at(c->nic, sent.chunk), p->local, n);
		else
			sent.dst = p->local;
		p->wait |= !put;
		sent.n = n;
		break;
	}
	sge.length = (uint32_t)n;
	*rc = post_send(c, &wr, &sent, n == p->n && p->blocking && p->wait);
	if (*rc) {
		chunk_give(c->nic, sent.chunk);
		return true;
	}
	lane->posted++;
	p->far.at += n;
	p->local += n;
	p->n -= n;
	return true;
}

/* Of both directions; `put` is known where this is compiled. */
static inline __attribute__((always_inline)) int lane_move(
	struct lane *lane, struct piece *p, const bool put, const struct verbs_wait *wait)
{
	struct room room = { .c = lane->conn };
	int rc = 0;

	while (p->n && !rc) {
		rc = post_begin(&room, wait);
		if (rc)
			return rc;
		room.chunk = !piece_post(lane, p, put, &rc);
		pthread_mutex_unlock(&lane->conn->nic->lock);
	}
	if (rc || !p->blocking || !p->wait)
		return rc;
	rc = lane_wait(lane, false, wait);
	return rc ? rc : lane_failure(lane, false);
}

int lane_put(struct lane *lane, struct far_place to, const void *src, size_t n, bool blocking,
	const struct verbs_wait *wait)
{
	struct piece p = {
		.far = to, .local = (char *)(uintptr_t)src, .n = n, .blocking = blocking
	};

	return lane_move(lane, &p, true, wait);
}

int lane_get(struct lane *lane, struct far_place from, void *dst, size_t n, bool blocking,
	const struct verbs_wait *wait)
{
	struct piece p = { .far = from, .local = dst, .n = n, .blocking = blocking };

	return lane_move(lane, &p, false, wait);
}

/* ---- asking and waiting --------------------------------------------------------------------- */

/* So much of a lane's. */
struct mark_of_lane {
	const struct lane *lane;
	uint64_t posted, asked;
};

static bool lane_is_there(void *ctx)
{
	const struct mark_of_lane *mark = ctx;

	return mark->lane->done >= mark->posted && mark->lane->answered >= mark->asked;
}

/* Who waits for an answer alone would not be told that the peer has gone: what is written to it comes back. */
static int lane_probe(struct lane *lane)
{
	struct conn *c = lane->conn;
	struct verbs_send wr = { .opcode = VERBS_WR_RDMA_WRITE };
	int rc = 0;

	pthread_mutex_lock(&c->nic->lock);
	if (c->state == CONN_READY && (c->head == c->tail || c->signaled != c->tail))
		rc = post_send(c, &wr, &(struct sent){ .chunk = -1 }, true);
	pthread_mutex_unlock(&c->nic->lock);
	return rc;
}

static int lane_await(struct lane *lane, struct mark_of_lane *mark, const struct verbs_wait *wait)
{
	for (;;) {
		struct verbs_wait slice = { .end = MIN_OF(wait->end, process_now() + PROBE_NS),
			.stop = wait->stop };
		int rc = nic_wait(lane->conn->nic, lane_is_there, mark, &slice);

		if (rc != -ETIMEDOUT || slice.end == wait->end)
			return rc;
		rc = lane_probe(lane);
		if (rc)
			return rc;
	}
}

int lane_wait(struct lane *lane, bool asks_alone, const struct verbs_wait *wait)
{
	struct nic *nic = lane->conn->nic;
	struct mark_of_lane mark = { .lane = lane };
	bool there;
	int rc = 0;

	pthread_mutex_lock(&nic->lock);
	mark.posted = asks_alone ? 0 : lane->posted;
	mark.asked = lane->asked;
	there = lane_is_there(&mark);
	if (!there && !asks_alone)
		rc = post_flush(lane->conn);
	pthread_mutex_unlock(&nic->lock);
	return rc || there ? rc : lane_await(lane, &mark, wait);
}

int lane_ask(struct lane *lane, struct far_place at, const struct amo *amo, uint64_t *old,
	const struct verbs_wait *wait)
{
	struct room room = { .c = lane->conn, .ask = true };
	int rc = post_begin(&room, wait);

	if (rc)
		return rc;
	rc = ask_send(lane->conn, lane, at.at, at.key, amo, old);
	pthread_mutex_unlock(&lane->conn->nic->lock);
	if (rc || !old)
		return rc;
	rc = lane_wait(lane, true, wait);
	if (!rc)
		rc = lane_failure(lane, false);
	if (!rc)
		*old = lane->old;
	return rc;
}
