/* SPDX-License-Identifier: MIT */
/*
 * Moves in order of a stream: its thread posts each and waits for it. A stream cannot be told that one has failed, so the link is told, and
 * tells fence and quiet; on_complete sees link->failed. From the failure on the link's moves in streams do not happen, of any stream, so that
 * no signal follows data that is not there: not before quiet has told of it, and those that were queued before that quiet not at all, as
 * it may have ended at its deadline, ahead of them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache.h"
#include "map.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "src/device/host/host.h"

/* What a link has of them. */
struct laters {
	/* guarded by the lock of the link's port */
	uint32_t queued; /* have not ended yet */
	uint32_t told;	 /* failures that quiet has told of */
	struct later *
		left; /* failed, and perhaps still in flight; only the comm's thread takes one out */
	int code;     /* link->failed, or what that was when quiet last told of one */
	char why[STATUS_SENTENCE];
};

/* It does not outlive its link, which stays until the comm's streams have ended. */
struct later {
	struct later *next; /* in laters->left */
	struct link *link;
	struct laters *laters;
	struct later_move move;
	struct stripe stripe;
	struct cut cut;
	struct cached *cached; /* what is to be known of it, where the thread cannot find it out */
	int64_t ms;
	uint32_t told; /* of laters, when it was queued */
};

/* The port's. */
static pthread_mutex_t *link_lock(const struct link *link)
{
	const struct rdma_peer *peer = link->attached;

	return &peer->nic->lock;
}

static bool link_stopped(const struct link *link)
{
	return __atomic_load_n(link->stop, __ATOMIC_ACQUIRE);
}

/* ---- on the stream's thread -------------------------------------------------------------------- */

/* Of a wait that was cut short; others have their sentence. */
static int later_cut_short(const struct later *later, int rc)
{
	struct pairing *c = later->stripe.lanes[0]->conn;
	char place[NIC_PLACE];

	if (rc != -ETIMEDOUT && rc != -ECANCELED)
		return rc;
	rc = rc == -ETIMEDOUT ? SPMT_ERR_TIMEOUT : rc;
	pthread_mutex_lock(&c->nic->lock);
	fail(rc, "%s: a move over the network %s", nic_route_text(c->nic, &c->peer, place),
		rc == -ECANCELED ? "was stopped" : "is not done in time");
	pthread_mutex_unlock(&c->nic->lock);
	return rc;
}

/* 0: it may happen. */
static int later_begin(struct later *later)
{
	struct link *link = later->link;
	struct laters *all = later->laters;
	int rc = 0;

	pthread_mutex_lock(link_lock(link));
	if (link_stopped(link)) {
		rc = -ECANCELED;
	} else if (link->failed || later->told != all->told || all->left) {
		/* what is left may be in flight on another lane, and land on what this one writes */
		rc = fail(all->code, "not done, as an earlier one failed: %.300s", all->why);
		link->failed = all->code;
	}
	pthread_mutex_unlock(link_lock(link));
	return rc == -ECANCELED ? later_cut_short(later, rc) : rc;
}

static int later_do(struct later *later)
{
	struct verbs_wait wait = { .ns = verbs_wait_ns(later->ms), .stop = later->link->stop };
	const struct later_move *move = &later->move;
	int rc;

	switch (move->kind) {
	case LATER_PUT:
		rc = stripe_put(&later->stripe, &later->cut, move->local, false, &wait);
		break;
	case LATER_GET:
		rc = stripe_get(&later->stripe, &later->cut, move->local, false, &wait);
		break;
	default:
		rc = sender_atomic(later->stripe.lanes[0], later->cut.pieces[0].place, &move->amo,
			NULL, &wait);
		break;
	}
	if (!rc)
		rc = stripe_wait(&later->stripe, &wait);
	if (!rc)
		rc = stripe_failure(&later->stripe, true);
	return later_cut_short(later, rc);
}

/* A kernel behind it in a GPU's stream runs all the same, and could tell the peer of data that is not there: nothing else goes there, of
   other comms, either. The deadline that has passed is none of theirs. */
static void later_cut_off(const struct later *later)
{
	struct pairing *c = later->stripe.lanes[0]->conn;

	pthread_mutex_lock(&c->nic->lock);
	pairing_fail_last(c, -EIO);
	pthread_mutex_unlock(&c->nic->lock);
}

/* The link is told, unless its comm is broken, which says why itself; and who synchronizes a stream of the host's. */
static void later_failed(const struct later *later, int code)
{
	struct link *link = later->link;
	struct laters *all = later->laters;
	char why[STATUS_SENTENCE];

	snprintf(why, sizeof(why), "%s to rank %d: %.400s", later->move.name, link->pe,
		status_sentence());
	if (!later->stripe.lanes[0]->stage)
		host_stream_blame(code, why);
	pthread_mutex_lock(link_lock(link));
	if (!link->failed && !link_stopped(link)) {
		link->failed = all->code = code;
		memcpy(all->why, why, sizeof(why));
	}
	pthread_mutex_unlock(link_lock(link));
}

static void later_drop(struct later *later)
{
	cut_drop(&later->cut);
	stripe_drop(&later->stripe);
	mem_free(later);
}

/* leaves: some of it may be in flight, from or to its user's memory, and is the link's to wait for. */
static void later_end(struct later *later, bool leaves)
{
	pthread_mutex_t *lock = link_lock(later->link);
	struct laters *all = later->laters;

	cache_let_go(later->cached);
	pthread_mutex_lock(lock);
	all->queued--;
	if (leaves) {
		later->next = all->left;
		all->left = later;
	}
	pthread_mutex_unlock(lock);
	if (!leaves)
		later_drop(later);
}

static void later_run(void *arg)
{
	struct later *later = arg;
	int rc = later_begin(later);
	bool begun = !rc;

	if (begun)
		rc = later_do(later);
	if (rc)
		later_failed(later, rc);
	if (begun && rc && rc != -ECANCELED /* the comm is broken, and others use the connection */
		&& later->stripe.lanes[0]->stage)
		later_cut_off(later);
	later_end(later, begun && rc);
}

/* ---- queueing ---------------------------------------------------------------------------------- */

/* A callback in a GPU's stream may call no device: what is to be known of memory is found out before. */
static void later_know(struct later *later)
{
	struct sender *sender = later->stripe.lanes[0];
	const struct later_move *move = &later->move;
	struct nic *nic = sender->conn->nic;

	for (int i = 0; i < later->cut.n; i++)
		later->stripe.lanes[i]->called = sender->stage != NULL;
	if (sender->called && later->cut.n == 1 && move->local && cache_wants(nic, move->n))
		later->cached = cache_hold(nic, sender->stage, move->local, move->n, true);
}

static int later_open(struct later *later, struct link_work *work, uint64_t offset)
{
	const struct link *link = later->link;
	struct verbs_wait wait = link_patience(link);
	int rc;

	if (!work->laters)
		work->laters = mem_calloc(1, sizeof(*work->laters));
	if (!work->laters)
		return fail(-ENOMEM, "out of memory");
	later->laters = work->laters;
	rc = stripe_cut(link, offset, later->move.local, later->move.n, &later->cut);
	return rc ? rc : stripe_open(link, later->cut.n, &wait, &later->stripe);
}

/* From here on quiet has to look at the link. */
static int later_give(struct later *later, device_stream stream)
{
	struct link *link = later->link;
	int rc;

	pthread_mutex_lock(link_lock(link));
	later->told = later->laters->told;
	later->laters->queued++;
	pthread_mutex_unlock(link_lock(link));
	link->pending = true;
	link_count(link, MOVER_VERBS, later->move.n);
	rc = link->backend->call(link->dev, stream, later_run, later);
	if (rc)
		later_end(later, false);
	return rc;
}

int later_queue(struct link *link, struct link_work *work, uint64_t offset,
	const struct later_move *move, device_stream stream)
{
	struct later *later = mem_calloc(1, sizeof(*later));
	int rc;

	if (!later)
		return fail_rank(
			-ENOMEM, link->rank, "%s to rank %d: out of memory", move->name, link->pe);
	later->link = link;
	later->move = *move;
	later->ms = *link->timeout_ms;
	rc = later_open(later, work, offset);
	if (rc) {
		rc = verbs_failed(link, move->name, rc);
		later_drop(later);
		return rc;
	}
	later_know(later);
	return later_give(later, stream);
}

/* ---- on the comm's thread ---------------------------------------------------------------------- */

static struct later *laters_left(const struct link *link, const struct laters *all)
{
	struct later *left;

	pthread_mutex_lock(link_lock(link));
	left = all->left;
	pthread_mutex_unlock(link_lock(link));
	return left;
}

static void left_drop(struct laters *all, struct later *later)
{
	pthread_mutex_t *lock = link_lock(later->link);
	struct later **at = &all->left;

	pthread_mutex_lock(lock);
	while (*at != later)
		at = &(*at)->next;
	*at = later->next;
	pthread_mutex_unlock(lock);
	later_drop(later);
}

int laters_wait(struct link *link, const struct link_work *work, bool take, struct verbs_wait *wait)
{
	struct laters *all = work->laters;
	struct later *next, *later = all ? laters_left(link, all) : NULL;
	struct first_failure first;

	first.rc = 0;
	for (; later; later = next) {
		int rc = stripe_wait(&later->stripe, wait);

		/* and not why one has failed: more is in flight */
		if (rc)
			return rc;
		next = later->next;
		failure_note(&first, stripe_failure(&later->stripe, take));
		if (take)
			left_drop(all, later);
	}
	return failure_tell(&first);
}

int laters_failure(struct link *link, const struct link_work *work, bool take)
{
	struct laters *all = work->laters;
	int code;

	pthread_mutex_lock(link_lock(link));
	code = link->failed;
	if (code)
		fail_rank(code, link->rank, "%s", all->why);
	if (code && take) {
		link->failed = 0;
		all->told++;
	}
	pthread_mutex_unlock(link_lock(link));
	return code;
}

bool laters_go_on(const struct link *link, const struct link_work *work)
{
	const struct laters *all = work->laters;
	bool go_on;

	pthread_mutex_lock(link_lock(link));
	go_on = all->queued || all->left || link->failed; /* which nobody has been told */
	pthread_mutex_unlock(link_lock(link));
	return go_on;
}

void laters_stop(const struct link *link, const struct link_work *work, struct verbs_wait *wait,
	struct verbs_wait *last)
{
	const struct laters *all = work->laters;

	for (struct later *l = all ? laters_left(link, all) : NULL; l; l = l->next)
		stripe_stop(&l->stripe, wait, last);
}

void laters_close(struct link *link, struct link_work *work)
{
	struct laters *all = work->laters;

	while (all && all->left)
		left_drop(all, all->left);
	mem_free(all);
	work->laters = NULL;
	link->failed = 0;
}
