/* SPDX-License-Identifier: MIT */
/* Mover `verbs`: a NIC writes to the peer's memory and reads from it, and the peer's thread does atomics there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "map.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

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

int verbs_failed(struct link *link, const char *what, int rc)
{
	if (verbs_cut_short(rc)) {
		link->pending = true;
		return verbs_late(link, link_wait_failed(link, what, rc));
	}
	return fail_rank(
		rc, link->rank, "%s to rank %d: %.360s", what, link->pe, status_sentence());
}

/* Of what is not striped; NULL: none has been wanted yet. */
static struct sender *verbs_first_lane(const struct mover *m)
{
	const struct link_work *work = m->state;

	return work ? work->stripe.lanes[0] : NULL;
}

static int work_make(struct mover *m)
{
	if (m->state)
		return 0;
	rdma_begins(m->link);
	m->state = mem_calloc(1, sizeof(struct link_work));
	return m->state ? 0 : fail(-ENOMEM, "out of memory for senders");
}

static int senders_make(struct mover *m, int n, struct verbs_wait *wait)
{
	int rc = work_make(m);
	struct link_work *work = m->state;

	return rc ? rc : stripe_open(m->link, n, wait, &work->stripe);
}

/* The first n of the link's senders, made on first use, with the connections that they need. */
static inline int verbs_lanes(struct mover *m, int n, struct verbs_wait *wait)
{
	const struct link_work *work = m->state;

	return work && work->stripe.lanes[n - 1] ? 0 : senders_make(m, n, wait);
}

static inline struct stripe *verbs_stripe(const struct mover *m)
{
	struct link_work *work = m->state;

	return &work->stripe;
}

/* The end of a call. goes_on: by itself, for quiet to wait for. A failure that quiet does not come to is told here, once. */
static int verbs_called(struct mover *m, const char *what, bool goes_on, int rc)
{
	struct link *link = m->link;
	struct link_work *work = m->state;

	link->pending |= goes_on;
	if (!rc)
		return 0;
	rc = verbs_failed(link, what, rc);
	if (work && !link->pending) {
		KEEPS_SENTENCE;
		stripe_failure(&work->stripe, true);
	}
	return rc;
}

/* How a move goes, and the senders for it. */
static int verbs_open(struct mover *m, uint64_t offset, const void *local, size_t n,
	struct verbs_wait *wait, struct cut *cut)
{
	int rc = stripe_cut(m->link, offset, local, n, cut);

	if (rc)
		return rc;
	rc = verbs_lanes(m, cut->n, wait);
	if (rc)
		cut_drop(cut);
	return rc;
}

/* Whose first run frees it cannot be in a graph, which may run many times. */
static int verbs_queue(
	struct mover *m, uint64_t offset, const struct later_move *move, device_stream stream)
{
	struct link *link = m->link;
	int rc;

	if (link->backend->capturing(link->dev, stream))
		return fail_rank(SPMT_ERR_UNSUPPORTED, link->rank,
			"%s to rank %d: a move over the network cannot be captured into a graph",
			move->name, link->pe);
	rc = work_make(m);
	return rc ? verbs_failed(link, move->name, rc)
		  : later_queue(link, m->state, offset, move, stream);
}

/* ---- the mover ------------------------------------------------------------------------------ */

static int verbs_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	struct verbs_wait wait;
	struct cut cut;
	int rc;

	if (mode == MOVE_STREAM)
		return verbs_queue(m, offset,
			&(struct later_move){
				LATER_PUT, "put", (char *)(uintptr_t)local, n, { 0 } },
			stream);
	wait = link_patience(m->link);
	rc = verbs_open(m, offset, local, n, &wait, &cut);
	if (!rc) {
		link_count(m->link, MOVER_VERBS, n);
		m->link->pending = true;
		rc = stripe_put(verbs_stripe(m), &cut, local, mode == MOVE_BLOCKING, &wait);
	}
	return rc ? verbs_failed(m->link, "put", rc) : 0;
}

static int verbs_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	struct verbs_wait wait;
	struct cut cut;
	int rc;

	if (mode == MOVE_STREAM)
		return verbs_queue(m, offset,
			&(struct later_move){ LATER_GET, "get", local, n, { 0 } }, stream);
	wait = link_patience(m->link);
	rc = verbs_open(m, offset, local, n, &wait, &cut);
	if (!rc) {
		link_count(m->link, MOVER_VERBS, n);
		rc = stripe_get(verbs_stripe(m), &cut, local, mode == MOVE_BLOCKING, &wait);
	}
	return verbs_called(m, "get", mode != MOVE_BLOCKING, rc);
}

static int verbs_signal(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream)
{
	struct amo amo = { .op = op == SPMT_SIGNAL_SET ? SPMT_AMO_SET : SPMT_AMO_ADD,
		.size = sizeof(value),
		.operand = value };

	if (stream)
		return verbs_queue(m, offset,
			&(struct later_move){ LATER_ASK, "signal", NULL, sizeof(value), amo },
			stream);
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
		rc = stripe_order(verbs_stripe(m), &wait);
	if (!rc) {
		link_count(m->link, MOVER_VERBS, amo->size);
		rc = sender_atomic(verbs_first_lane(m), at, amo, old, &wait);
	}
	return verbs_called(m, "atomic", !old, rc);
}

/* Writes arrive in order, but the peer's thread takes its time; and so do other lanes. */
static int verbs_fence(struct mover *m, struct move_wait *call)
{
	struct verbs_wait wait = link_patience_of(m->link, call);
	struct link_work *work = m->state;
	int rc = 0;

	if (verbs_first_lane(m)) {
		struct stripe *stripe = &work->stripe;

		stripe->fenced = true;
		rc = stripe_order(stripe, &wait);
		if (!rc)
			rc = sender_wait(stripe->lanes[0], true, &wait);
		if (!rc)
			rc = stripe_failure(stripe, false);
	}
	if (!rc && work && work->laters) {
		rc = laters_failure(m->link, work, false);
		if (rc)
			return rc;
		rc = laters_wait(m->link, work, false, &wait);
	}
	verbs_waited(&wait, call);
	return rc ? verbs_failed(m->link, "fence", rc) : 0;
}

/*
 * The comm is broken, and its user about to give buffers back: what does not end soon touches them no more. Soon is for all links of the
 * rank. What the port itself has of them ends by the device's retries if not before.
 */
__attribute__((cold, noinline)) static void verbs_stopped(struct mover *m)
{
	struct verbs_wait wait = { .end = rdma_stopped_end(m->link, STOPPED_NS) };
	struct verbs_wait last = { .end = wait.end + CLOSE_NS };
	const struct link_work *work = m->state;

	stripe_stop(&work->stripe, &wait, &last);
	laters_stop(m->link, work, &wait, &last);
}

/* Behind what calls have under way, which ended with rc: what failed in streams, and what is still in flight of that. By itself, as all others pay for its
   registers. */
__attribute__((cold, noinline)) static int laters_quiet(
	struct mover *m, int rc, struct verbs_wait *wait)
{
	const struct link_work *work = m->state;
	struct first_failure first;

	first.rc = 0;
	failure_note(&first, rc);
	failure_note(&first, laters_failure(m->link, work, true));
	rc = laters_wait(m->link, work, true, wait);
	if (rc == -ECANCELED)
		verbs_stopped(m);
	failure_note(&first, rc ? verbs_failed(m->link, "quiet", rc) : 0);
	m->link->goes_on = laters_go_on(m->link, work);
	return failure_tell(&first);
}

static int verbs_quiet(struct mover *m, struct move_wait *call)
{
	struct verbs_wait wait = link_patience_of(m->link, call);
	struct link_work *work = m->state;
	int rc = work ? stripe_wait(&work->stripe, &wait) : 0;

	if (rc == -ECANCELED)
		verbs_stopped(m);
	if (!rc && work) {
		work->stripe.loose = work->stripe.fenced = false;
		rc = stripe_failure(&work->stripe, true);
	}
	if (rc)
		rc = verbs_failed(m->link, "quiet", rc);
	if (UNLIKELY(work && work->laters))
		rc = laters_quiet(m, rc, &wait);
	verbs_waited(&wait, call);
	return rc;
}

/* Buffers of the user's are free after it: what is in flight ends, or is told. */
static void verbs_close(struct mover *m)
{
	struct verbs_wait wait = { .ns = CLOSE_NS };
	struct link_work *work = m->state;

	if (!work)
		return;
	if (__atomic_load_n(m->link->stop, __ATOMIC_ACQUIRE))
		verbs_stopped(m);
	else if (stripe_wait(&work->stripe, &wait) ||
		laters_wait(m->link, work, true, &wait) == -ETIMEDOUT)
		log_line(LOG_ERROR, "rank %d: moves to rank %d do not end", m->link->rank,
			m->link->pe);
	laters_close(m->link, work);
	stripe_drop(&work->stripe);
	mem_free(work);
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
