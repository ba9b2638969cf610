/* SPDX-License-Identifier: MIT */
/* Mover `verbs`: a NIC writes to the peer's memory and reads from it, and the peer's thread does atomics there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache.h"
#include "map.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"

#define CLOSE_NS 10000000000ll
#define STOPPED_NS 500000000ll /* that moves of a broken comm may take to end */

/* ---- words ---------------------------------------------------------------------------------- */

/* The same sentence, and behind it the ports between which it was. */
static int verbs_late(const struct link *link, int code)
{
	const struct rdma_peer *peer = link->attached;
	struct status_saved why;
	char place[NIC_PLACE];
	size_t used;

	status_save(&why);
	used = strlen(why.sentence);
	pthread_mutex_lock(&peer->nic->lock);
	snprintf(why.sentence + used, sizeof(why.sentence) - used, ": %s",
		nic_route_text(peer->nic, &peer->address, place));
	pthread_mutex_unlock(&peer->nic->lock);
	return fail_again(code, &why);
}

/* A code of a sender's or of finding it, as a mover's. */
static int verbs_failed(struct mover *m, const char *what, int rc)
{
	struct link *link = m->link;

	if (rc == -ETIMEDOUT || rc == -ECANCELED) {
		link->pending = true;
		return verbs_late(link, link_wait_failed(link, what, rc));
	}
	return fail_rank(
		rc, link->rank, "%s to rank %d: %.360s", what, link->pe, status_sentence());
}

/* Of what is not striped; NULL: none has been wanted yet. */
static struct sender *verbs_first_lane(const struct mover *m)
{
	const struct stripe *stripe = m->state;

	return stripe ? stripe->lanes[0] : NULL;
}

static int senders_make(struct mover *m, int n, struct verbs_wait *wait)
{
	if (!m->state) {
		rdma_begins(m->link);
		m->state = mem_calloc(1, sizeof(struct stripe));
	}
	return m->state ? stripe_open(m->link, n, wait, m->state)
			: fail(-ENOMEM, "out of memory for senders");
}

/* The first n of the link's senders, made on first use, with the connections that they need. */
static inline int verbs_lanes(struct mover *m, int n, struct verbs_wait *wait)
{
	const struct stripe *stripe = m->state;

	return stripe && stripe->lanes[n - 1] ? 0 : senders_make(m, n, wait);
}

/* How a move goes, and the senders for it. */
static int verbs_open(struct mover *m, uint64_t offset, const void *local, size_t n,
	struct verbs_wait *wait, struct cut *cut)
{
	int rc = stripe_cut(m->link, offset, local, n, cut);

	return rc ? rc : verbs_lanes(m, cut->n, wait);
}

/* ---- in streams ----------------------------------------------------------------------------- */

enum later_kind { LATER_PUT, LATER_GET, LATER_ASK };

/* A move in order of a stream, whose thread posts it and waits for it. */
struct later {
	enum later_kind kind;
	struct stripe stripe;
	struct cached *cached; /* what is to be known of it, where the thread cannot find it out */
	struct cut cut;
	char *local;
	size_t n;
	struct amo amo;
	int64_t ms;
	const uint32_t *stop;
	const char *name;
	int pe;
};

static int later_do(struct later *later)
{
	struct verbs_wait wait = { .ns = verbs_wait_ns(later->ms), .stop = later->stop };
	int rc;

	if (__atomic_load_n(later->stop, __ATOMIC_ACQUIRE))
		return -ECANCELED; /* what is queued behind a failure does not happen */
	switch (later->kind) {
	case LATER_PUT:
		rc = stripe_put(&later->stripe, &later->cut, later->local, false, &wait);
		break;
	case LATER_GET:
		rc = stripe_get(&later->stripe, &later->cut, later->local, false, &wait);
		break;
	default:
		rc = sender_atomic(later->stripe.lanes[0], later->cut.pieces[0].place, &later->amo,
			NULL, &wait);
		break;
	}
	if (!rc)
		rc = stripe_wait(&later->stripe, &wait);
	return rc ? rc : stripe_failure(&later->stripe, true);
}

/* A stream of the host's keeps it. A GPU's cannot: what else goes to this peer fails, so that nothing queued behind it is believed. */
static void later_failed(const struct later *later, int code)
{
	struct pairing *c = later->stripe.lanes[0]->conn;
	char why[STATUS_SENTENCE];

	if (!later->stripe.lanes[0]->stage) {
		snprintf(why, sizeof(why), "%s to rank %d: %.360s", later->name, later->pe,
			status_sentence());
		host_stream_blame(code, why);
		return;
	}
	if (code == -ECANCELED) /* its comm is broken, and others use the connection */
		return;
	pthread_mutex_lock(&c->nic->lock);
	pairing_fail_last(c, code);
	pthread_mutex_unlock(&c->nic->lock);
}

/* That was not done in time, or not at all. */
static int later_cut(const struct later *later, int code, const char *what)
{
	struct pairing *c = later->stripe.lanes[0]->conn;
	char place[NIC_PLACE];

	pthread_mutex_lock(&c->nic->lock);
	fail(code, "%s: a move over the network %s", nic_route_text(c->nic, &c->peer, place), what);
	pthread_mutex_unlock(&c->nic->lock);
	return code;
}

static void later_drop(struct later *later)
{
	cache_let_go(later->cached);
	stripe_drop(&later->stripe);
	mem_free(later);
}

static void later_run(void *arg)
{
	struct later *later = arg;
	int rc = later_do(later);

	if (rc == -ETIMEDOUT)
		rc = later_cut(later, SPMT_ERR_TIMEOUT, "is not done in time");
	else if (rc == -ECANCELED)
		rc = later_cut(later, rc, "was stopped");
	if (rc)
		later_failed(later, rc);
	later_drop(later);
}

/* A callback in a GPU's stream may call no device: what is to be known of memory is found out before. */
static void later_know(struct later *later)
{
	struct sender *sender = later->stripe.lanes[0];
	struct nic *nic = sender->conn->nic;

	for (int i = 0; i < later->cut.n; i++)
		later->stripe.lanes[i]->called = sender->stage != NULL;
	if (sender->called && later->cut.n == 1 && later->local && cache_wants(nic, later->n))
		later->cached = cache_hold(nic, sender->stage, later->local, later->n, true);
}

static int later_queue(struct mover *m, const struct later *what, uint64_t offset, const char *name,
	device_stream stream)
{
	const struct link *link = m->link;
	struct verbs_wait wait = link_patience(link);
	struct later *later;
	int rc;

	/* it is done, and gone, with its first run, of which a graph may have many */
	if (link->backend->capturing(link->dev, stream))
		return fail_rank(SPMT_ERR_UNSUPPORTED, link->rank,
			"%s to rank %d: a move over the network cannot be captured into a graph",
			name, link->pe);
	later = mem_calloc(1, sizeof(*later));
	if (!later)
		return fail_rank(
			-ENOMEM, link->rank, "%s to rank %d: out of memory", name, link->pe);
	*later = *what;
	later->ms = *link->timeout_ms;
	later->stop = link->stop;
	later->name = name;
	later->pe = link->pe;
	rc = stripe_cut(link, offset, what->local, what->n, &later->cut);
	if (!rc)
		rc = stripe_open(link, later->cut.n, &wait, &later->stripe);
	if (rc) {
		rc = verbs_failed(m, name, rc);
		later_drop(later);
		return rc;
	}
	later_know(later);
	link_count(m->link, MOVER_VERBS, what->n);
	rc = link->backend->call(link->dev, stream, later_run, later);
	if (rc)
		later_drop(later);
	return rc;
}

/* ---- the mover ------------------------------------------------------------------------------ */

static int verbs_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	struct verbs_wait wait;
	struct cut cut;
	int rc;

	if (mode == MOVE_STREAM)
		return later_queue(m,
			&(struct later){
				.kind = LATER_PUT, .local = (char *)(uintptr_t)local, .n = n },
			offset, "put", stream);
	wait = link_patience(m->link);
	rc = verbs_open(m, offset, local, n, &wait, &cut);
	if (!rc) {
		link_count(m->link, MOVER_VERBS, n);
		m->link->pending = true;
		rc = stripe_put(m->state, &cut, local, mode == MOVE_BLOCKING, &wait);
	}
	return rc ? verbs_failed(m, "put", rc) : 0;
}

static int verbs_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	bool pending = m->link->pending;
	struct verbs_wait wait;
	struct cut cut;
	int rc;

	if (mode == MOVE_STREAM)
		return later_queue(m, &(struct later){ .kind = LATER_GET, .local = local, .n = n },
			offset, "get", stream);
	wait = link_patience(m->link);
	rc = verbs_open(m, offset, local, n, &wait, &cut);
	if (!rc) {
		link_count(m->link, MOVER_VERBS, n);
		rc = stripe_get(m->state, &cut, local, mode == MOVE_BLOCKING, &wait);
		/* of pieces that fail others may still be under way */
		m->link->pending = pending || mode != MOVE_BLOCKING || (rc && cut.n > 1);
	}
	return rc ? verbs_failed(m, "get", rc) : 0;
}

static int verbs_signal(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream)
{
	struct amo amo = { .op = op == SPMT_SIGNAL_SET ? SPMT_AMO_SET : SPMT_AMO_ADD,
		.size = sizeof(value),
		.operand = value };

	if (stream)
		return later_queue(m,
			&(struct later){ .kind = LATER_ASK, .n = sizeof(value), .amo = amo },
			offset, "signal", stream);
	return m->ops->atomic(m, offset, &amo, NULL);
}

static int verbs_atomic(struct mover *m, uint64_t offset, const struct amo *amo, uint64_t *old)
{
	struct verbs_wait wait = link_patience(m->link);
	struct rdma_place at;
	int rc = rdma_find(m->link->attached, offset, amo->size, &at);

	if (!rc)
		rc = verbs_lanes(m, 1, &wait);
	if (!rc)
		rc = stripe_order(m->state, &wait);
	if (!rc) {
		link_count(m->link, MOVER_VERBS, amo->size);
		m->link->pending |= !old;
		rc = sender_atomic(verbs_first_lane(m), at, amo, old, &wait);
	}
	return rc ? verbs_failed(m, "atomic", rc) : 0;
}

/* Writes arrive in order, but the peer's thread takes its time; and so do other lanes. */
static int verbs_fence(struct mover *m)
{
	struct verbs_wait wait = link_patience(m->link);
	struct stripe *stripe = m->state;
	int rc = 0;

	if (verbs_first_lane(m)) {
		stripe->fenced = true;
		rc = stripe_order(stripe, &wait);
		if (!rc)
			rc = sender_wait(stripe->lanes[0], true, &wait);
		if (!rc)
			rc = stripe_failure(stripe, false);
	}
	return rc ? verbs_failed(m, "fence", rc) : 0;
}

/*
 * The comm is broken, and its user about to give buffers back: what does not end soon touches them no more. Soon is for all links of the
 * rank. What the port itself has of them ends by the device's retries if not before.
 */
static void verbs_stopped(struct mover *m)
{
	struct verbs_wait wait = { .end = rdma_stopped_end(m->link, STOPPED_NS) };
	struct verbs_wait last = { .end = wait.end + CLOSE_NS };
	const struct stripe *stripe = m->state;

	for (int i = 0; i < RDMA_RAILS; i++) {
		if (stripe->lanes[i] && !stripe->lanes[i]->deaf)
			sender_wait(stripe->lanes[i], false, &wait);
		if (stripe->lanes[i])
			sender_part(stripe->lanes[i], &last);
	}
}

static int verbs_quiet(struct mover *m)
{
	struct verbs_wait wait = link_patience(m->link);
	struct stripe *stripe = m->state;
	int rc = stripe ? stripe_wait(stripe, &wait) : 0;

	if (rc == -ECANCELED)
		verbs_stopped(m);
	if (!rc && stripe) {
		stripe->loose = stripe->fenced = false;
		rc = stripe_failure(stripe, true);
	}
	return rc ? verbs_failed(m, "quiet", rc) : 0;
}

/* Buffers of the user's are free after it: what is in flight ends, or is told. */
static void verbs_close(struct mover *m)
{
	struct verbs_wait wait = { .ns = CLOSE_NS };

	if (!m->state)
		return;
	if (__atomic_load_n(m->link->stop, __ATOMIC_ACQUIRE))
		verbs_stopped(m);
	else if (stripe_wait(m->state, &wait))
		log_line(LOG_ERROR, "rank %d: moves to rank %d do not end", m->link->rank,
			m->link->pe);
	stripe_drop(m->state);
	mem_free(m->state);
	m->state = NULL;
}

/* Weak: a test puts another mover in its place. */
const struct mover_ops mover_verbs __attribute__((weak)) = {
	.name = "verbs",
	.put = verbs_put,
	.get = verbs_get,
	.signal = verbs_signal,
	.atomic = verbs_atomic,
	.fence = verbs_fence,
	.quiet = verbs_quiet,
	.close = verbs_close,
};
