/* SPDX-License-Identifier: MIT */
/*
 * Large moves in pieces, one for each lane (map.h), so that several devices of a rank move them at once. The rest goes by the first lane,
 * and so does what orders moves: it waits for pieces on the other lanes, as no queue pair waits for another.
 */
#include <errno.h>

#include "cache.h"
#include "map.h"
#include "memory.h"
#include "src/base/env.h"
#include "src/base/status.h"

#define PIECE_UNIT ((size_t)4096) /* pieces but the last are multiples of it */

/* ---- cutting -------------------------------------------------------------------------------- */

/*
 * Whether the lane's device gets at the bytes by itself. What it knows of them is kept: any other comm may deregister the buffer before they
 * are posted, above all of a move in a stream, and a further device has nobody who would copy for it what a GPU alone reaches.
 */
static bool lane_reaches(
	const struct link *link, struct nic *nic, const char *local, struct cut_piece *p)
{
	pthread_mutex_lock(&nic->lock);
	p->nic = nic;
	p->region = region_of(nic, local + p->at, p->n);
	if (p->region)
		region_keep(p->region);
	pthread_mutex_unlock(&nic->lock);
	return p->region || (!link->rdma->stage && cache_wants(nic, p->n));
}

void cut_drop(struct cut *cut)
{
	for (int i = 0; i < cut->n; i++) {
		struct cut_piece *p = &cut->pieces[i];

		if (!p->region)
			continue;
		pthread_mutex_lock(&p->nic->lock);
		region_let_go(p->nic, p->region);
		pthread_mutex_unlock(&p->nic->lock);
		p->region = NULL;
	}
}

/* As many pieces as there are lanes, if none is too small. False: it stays whole, as *cut has it. */
static bool cut_up(
	const struct link *link, uint64_t offset, const char *local, size_t n, struct cut *cut)
{
	const struct rdma_peer *peer = link->attached;
	const struct env *env = env_loaded();
	size_t from = env ? MAX_OF(env->rdma_stripe_from, 1u) : SIZE_MAX;
	size_t count = MIN_OF(n / from, (size_t)peer->nlanes), each;
	struct cut parts = { .n = 0 };

	if (count < 2 || cut->pieces[0].place.staged)
		return false;
	each = ((n - 1) / count / PIECE_UNIT + 1) * PIECE_UNIT; /* a count-th at least */
	for (size_t at = 0; at < n; at += each) {
		int lane = parts.n++;
		struct cut_piece *p = &parts.pieces[lane];

		p->at = at;
		p->n = MIN_OF(each, n - at);
		if (lane_reaches(link, peer->lanes[lane].nic, local, p) &&
			rdma_known(peer, lane, offset + at, p->n, &p->place))
			continue;
		cut_drop(&parts);
		return false;
	}
	*cut = parts;
	return true;
}

int stripe_cut(
	const struct link *link, uint64_t offset, const void *local, size_t n, struct cut *cut)
{
	const struct rdma_peer *peer = link->attached;
	int rc = rdma_find(peer, offset, n, &cut->pieces[0].place);

	if (rc || (peer->nlanes > 1 && local && cut_up(link, offset, local, n, cut)))
		return rc;
	cut->n = 1;
	cut->pieces[0].region = NULL;
	cut->pieces[0].at = 0;
	cut->pieces[0].n = n;
	return 0;
}

/* ---- moving --------------------------------------------------------------------------------- */

int stripe_open(const struct link *link, int n, struct verbs_wait *wait, struct stripe *stripe)
{
	struct pairing *c;

	for (int i = 0; i < n; i++) {
		int rc = stripe->lanes[i] ? 0 : rdma_conn(link->attached, i, wait, &c);

		if (rc)
			return rc;
		if (!stripe->lanes[i])
			stripe->lanes[i] = sender_make(c, link->rdma->stage);
		if (!stripe->lanes[i])
			return -ENOMEM;
	}
	return 0;
}

static int stripe_post(struct stripe *stripe, const struct cut *cut, char *local, bool put,
	struct verbs_wait *wait)
{
	int rc = 0;

	for (int i = 0; i < cut->n && !rc; i++) {
		const struct cut_piece *p = &cut->pieces[i];

		rc = put ? sender_put(stripe->lanes[i], p->place, local + p->at, p->region, p->n,
				   false, wait)
			 : sender_get(stripe->lanes[i], p->place, local + p->at, p->region, p->n,
				   false, wait);
	}
	return rc;
}

/* As move_fails in post.c. */
static int pieces_fail(struct stripe *stripe, int rc, struct verbs_wait *wait)
{
	int late;

	if (verbs_cut_short(rc))
		return rc;
	KEEPS_SENTENCE;
	late = stripe_wait(stripe, wait);
	return late ? late : rc;
}

static int stripe_move(struct stripe *stripe, const struct cut *cut, char *local, bool put,
	bool blocking, struct verbs_wait *wait)
{
	bool loose = stripe->loose;
	int rc = stripe->fenced ? sender_wait(stripe->lanes[0], false, wait) : 0;

	if (!rc && stripe->fenced)
		rc = sender_failure(stripe->lanes[0], false);
	if (rc)
		return rc;
	stripe->fenced = false;
	stripe->loose |= put; /* what is fetched nobody can be told of before quiet */
	rc = stripe_post(stripe, cut, local, put, wait);
	if (rc)
		return pieces_fail(stripe, rc, wait);
	if (!blocking)
		return 0;
	rc = stripe_wait(stripe, wait);
	if (!rc)
		rc = stripe_failure(stripe, false);
	stripe->loose = loose || (put && rc);
	return rc;
}

int stripe_put(struct stripe *stripe, struct cut *cut, const void *src, bool blocking,
	struct verbs_wait *wait)
{
	int rc;

	if (cut->n == 1)
		return sender_put(stripe->lanes[0], cut->pieces[0].place, src, NULL,
			cut->pieces[0].n, blocking, wait);
	rc = stripe_move(stripe, cut, (char *)(uintptr_t)src, true, blocking, wait);
	cut_drop(cut);
	return rc;
}

int stripe_get(
	struct stripe *stripe, struct cut *cut, void *dst, bool blocking, struct verbs_wait *wait)
{
	int rc;

	if (cut->n == 1)
		return sender_get(stripe->lanes[0], cut->pieces[0].place, dst, NULL,
			cut->pieces[0].n, blocking, wait);
	rc = stripe_move(stripe, cut, dst, false, blocking, wait);
	cut_drop(cut);
	return rc;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* From a lane on. */
static int lanes_wait(const struct stripe *stripe, int first, struct verbs_wait *wait)
{
	int rc = 0;

	for (int i = first; i < RDMA_RAILS && !rc; i++)
		if (stripe->lanes[i])
			rc = sender_wait(stripe->lanes[i], false, wait);
	return rc;
}

/* The first of them, and its sentence. */
static int lanes_failure(const struct stripe *stripe, int first, bool take)
{
	struct first_failure failure;

	failure.rc = 0;
	for (int i = first; i < RDMA_RAILS; i++)
		if (stripe->lanes[i])
			failure_note(&failure, sender_failure(stripe->lanes[i], take));
	return failure_tell(&failure);
}

int stripe_wait(struct stripe *stripe, struct verbs_wait *wait)
{
	return lanes_wait(stripe, 0, wait);
}

int stripe_failure(struct stripe *stripe, bool take)
{
	return lanes_failure(stripe, 0, take);
}

int stripe_join(struct stripe *stripe, struct verbs_wait *wait)
{
	int rc = lanes_wait(stripe, 1, wait);

	if (!rc)
		rc = lanes_failure(stripe, 1, false);
	if (!rc)
		stripe->loose = false;
	return rc;
}

void stripe_stop(const struct stripe *stripe, struct verbs_wait *wait, struct verbs_wait *last)
{
	for (int i = 0; i < RDMA_RAILS; i++) {
		if (stripe->lanes[i] && !stripe->lanes[i]->deaf)
			sender_wait(stripe->lanes[i], false, wait);
		if (stripe->lanes[i])
			sender_part(stripe->lanes[i], last);
	}
}

void stripe_drop(struct stripe *stripe)
{
	for (int i = 0; i < RDMA_RAILS; i++) {
		sender_drop(stripe->lanes[i]);
		stripe->lanes[i] = NULL;
	}
}
