/* SPDX-License-Identifier: MIT */
#include "claim.h"

#include <errno.h>
#include <time.h>

#include "spmt/calls/keyed.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/stream.h"
#include "src/base/process.h"
#include "src/base/status.h"

const char comm_ending[] = "spmt_finalize";

/* What keeps a tree from being claimed. */
struct in_the_way {
	const char *call; /* of another thread; NULL: nothing does */
	bool below;	  /* on a part or lane */
	bool soon;	  /* it ends by itself, as in a broken comm */
};

/* A part in the making is passed over: the comm that it is split from is claimed for it. */
static const char *not_in_the_making(const spmt_comm *comm, const char *other)
{
	return other == world_joining && !object_is_open(&comm->head) ? NULL : other;
}

static const char *look_to_end(spmt_comm *comm)
{
	return not_in_the_making(comm, atomic_load(&comm->head.inside));
}

static const char *claim_to_end(spmt_comm *comm)
{
	return not_in_the_making(comm, object_claim(&comm->head, comm_ending));
}

/* Up to the first of which `look` tells what another thread is in, or to the root. */
static spmt_comm *tree_look(
	spmt_comm *root, const char *(*look)(spmt_comm *comm), const char **other)
{
	spmt_comm *c = comm_tree_first(root);

	while (!(*other = look(c)) && c != root)
		c = comm_tree_next(c);
	return c;
}

static void claim_undo(spmt_comm *comm)
{
	if (atomic_load(&comm->head.inside) == comm_ending)
		comm_unclaim(comm);
}

/* Of those before `end`. */
static void claims_undo(spmt_comm *root, const spmt_comm *end)
{
	for (spmt_comm *c = comm_tree_first(root); c != end; c = comm_tree_next(c))
		claim_undo(c);
}

/* Of a comm that another thread ends nothing else may be looked at. */
static struct in_the_way tree_try(spmt_comm *root, bool claims)
{
	struct in_the_way way;
	spmt_comm *c;

	pthread_mutex_lock(&root->slot->lock);
	c = tree_look(root, look_to_end, &way.call);
	if (!way.call && claims) {
		c = tree_look(root, claim_to_end, &way.call);
		if (way.call)
			claims_undo(root, c);
	}
	way.below = c != root;
	way.soon = way.call && way.call != comm_ending &&
		(way.call == world_joining || atomic_load(&c->control->stop));
	pthread_mutex_unlock(&root->slot->lock);
	return way;
}

static int tree_busy(const spmt_comm *root, const char *what, const struct in_the_way *way)
{
	if (!way->below)
		return comm_busy(root, what, way->call);
	return fail_call(-EBUSY, what,
		"rank %d: another thread is in %s on a part or lane of this comm", root->rank,
		way->call);
}

/* Its marks are guarded by a lane's own lock, which comes before the slot's. */
static bool held_back(spmt_comm *comm)
{
	LANE_HOLD_ANY(comm);

	return streams_held_back(comm);
}

/* comm: NULL: the first. */
static spmt_comm *tree_step(spmt_comm *root, const spmt_comm *comm)
{
	spmt_comm *c;

	pthread_mutex_lock(&root->slot->lock);
	c = comm ? comm_tree_next(comm) : comm_tree_first(root);
	pthread_mutex_unlock(&root->slot->lock);
	return c;
}

/* Of a tree that is claimed, so that nobody ends any of it. */
static bool tree_held_back(spmt_comm *root)
{
	spmt_comm *c = tree_step(root, NULL);
	bool held;

	while (!(held = held_back(c)) && c != root)
		c = tree_step(root, c);
	return held;
}

int claim_look(spmt_comm *root, const char *what)
{
	struct in_the_way way = tree_try(root, false);

	return way.call && !way.soon ? tree_busy(root, what, &way) : 0;
}

int claim_tree(spmt_comm *root, const char *what)
{
	const struct timespec slice = { .tv_nsec = 100000 };
	int64_t until = process_now() + COMM_BROKEN_NS;
	struct in_the_way way;

	/* where it is broken the collectives of other threads are let out first */
	while ((way = tree_try(root, true)).call && way.soon && process_now() < until)
		nanosleep(&slice, NULL);
	if (way.call)
		return tree_busy(root, what, &way);
	if (comm_is_broken(root) || !tree_held_back(root))
		return 0;
	claim_drop(root);
	return fail_call(-EBUSY, what,
		"rank %d: a registered stream has work from before it was captured: end the capture first",
		root->rank);
}

void claim_drop(spmt_comm *root)
{
	pthread_mutex_lock(&root->slot->lock);
	claims_undo(root, root);
	claim_undo(root);
	pthread_mutex_unlock(&root->slot->lock);
}
