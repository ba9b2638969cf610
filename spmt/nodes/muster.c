/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "nodes.h"
#include "spmt/bootstrap/bootstrap.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/waits.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define MUSTER_LOOK_NS (20 * 1000000ll) /* whether the hub is still there, or another */
#define MUSTER_ANSWER_NS \
	(3 * 1000000000ll) /* what it gets to answer once this rank waits no longer */

/* What a rank has heard. */
struct muster {
	_Atomic uint32_t round; /* sleepers' word */
	struct bootstrap_joined *joined;
};

static size_t muster_size(const spmt_comm *comm)
{
	return sizeof(struct bootstrap_joined) + control_set(comm->nranks) * sizeof(uint64_t);
}

void muster_drop(struct nodes *nodes)
{
	if (nodes->muster)
		mem_free(nodes->muster->joined);
	mem_free(nodes->muster);
	nodes->muster = NULL;
}

static int muster_open(const spmt_comm *comm)
{
	struct nodes *nodes = comm->meeting_state;
	struct muster *m;

	if (nodes->muster)
		return 0;
	m = mem_calloc(1, sizeof(*m));
	if (m)
		m->joined = mem_calloc(1, muster_size(comm));
	if (!m || !m->joined) {
		mem_free(m);
		return fail_call(-ENOMEM, "spmt_shrink", "rank %d: out of memory for %d ranks",
			comm->rank, comm->nranks);
	}
	pthread_mutex_lock(&comm->world->lock);
	nodes->muster = m;
	pthread_mutex_unlock(&comm->world->lock);
	return 0;
}

bool muster_heard(spmt_comm *comm, const struct bootstrap_word *word, const void *data, size_t size)
{
	struct nodes *nodes = comm->meeting_state;
	struct muster *m = nodes->muster;

	if (size != muster_size(comm) || word->epoch > UINT32_MAX)
		return false;
	if (!m || word->epoch <= atomic_load(&m->round))
		return true;
	memcpy(m->joined, data, size);
	atomic_store_explicit(&m->round, (uint32_t)word->epoch, memory_order_release);
	futex_wake_all(&m->round);
	return true;
}

static int muster_say(const spmt_comm *comm, enum word_kind kind)
{
	const struct bootstrap_word w = { .comm = comm->id,
		.epoch = comm->shrinks,
		.kind = (uint32_t)kind,
		.part = (uint32_t)comm->rank,
		.parts = (uint32_t)comm->nranks };
	size_t size = comm->world_ranks ? (size_t)comm->nranks * sizeof(uint32_t) : 0;

	return bootstrap_say(atomic_load(&comm->world->boot), &w, comm->world_ranks, size);
}

/* What a rank has said so far, and to which hub. */
struct muster_talk {
	bool said, hasty; /* hasty: it waits no longer for others */
	unsigned leaders;
};

static int muster_lost(const spmt_comm *comm, int rc)
{
	if (rc == -ENOTCONN)
		return fail_call(SPMT_ERR_TIMEOUT, "spmt_shrink",
			"rank %d came too late: the others go on without it", comm->rank);
	return fail_call(rc, "spmt_shrink",
		"rank %d: the process that led the rendezvous has died, by which ranks on several nodes would agree, and none follows",
		comm->rank);
}

/* Says it to the hub, unless that has heard it. One that dies is followed by another, which has not. */
static int muster_talk_on(const spmt_comm *comm, struct muster_talk *t)
{
	struct bootstrap *boot = atomic_load(&comm->world->boot);
	unsigned leaders = bootstrap_leaders(boot);
	int rc = bootstrap_leader(boot);

	if (rc == -EAGAIN)
		return 0;
	if (rc)
		return muster_lost(comm, rc);
	if (t->said && t->leaders == leaders)
		return 0;
	t->leaders = leaders;
	rc = muster_say(comm, t->hasty ? WORD_HASTE : WORD_JOIN);
	t->said = !rc;
	return rc == SPMT_ERR_PEER_DEAD ? 0 : rc;
}

static int muster_wait(spmt_comm *comm, struct muster *m)
{
	const int64_t begin = process_now(), limit = comm_timeout(comm);
	int64_t end = limit < 0 ? INT64_MAX : begin + limit * 1000000;
	struct muster_talk talk = { .said = false };
	uint32_t round;
	int rc = 0;

	/* Once more after a failure: the hub may have left behind its answer. */
	while ((round = atomic_load_explicit(&m->round, memory_order_acquire)) < comm->shrinks) {
		int64_t now = process_now();

		if (now >= end && talk.hasty)
			return fail_call(SPMT_ERR_TIMEOUT, "spmt_shrink",
				"rank %d: the process that led the rendezvous has not said who goes on",
				comm->rank);
		if (now >= end) {
			talk = (struct muster_talk){ .hasty = true };
			end = now + MUSTER_ANSWER_NS;
		}
		if (rc)
			return rc;
		rc = muster_talk_on(comm, &talk);
		waits_show(comm, m, &(struct wait_for){ .name = "spmt_shrink", .since = begin });
		if (!rc)
			futex_sleep(&m->round, round, MIN_OF(end - now, MUSTER_LOOK_NS));
	}
	return 0;
}

int nodes_muster(spmt_comm *comm, uint64_t *set, struct uid_place *place)
{
	struct nodes *nodes = comm->meeting_state;
	int rc = muster_open(comm);

	if (rc)
		return rc;
	rc = muster_wait(comm, nodes->muster);
	waits_hide(comm, nodes->muster);
	if (rc)
		return rc;
	pthread_mutex_lock(&comm->world->lock);
	comm->shrinks = atomic_load(&nodes->muster->round);
	*place = nodes->muster->joined->place;
	memcpy(set, nodes->muster->joined->set, control_set(comm->nranks) * sizeof(*set));
	pthread_mutex_unlock(&comm->world->lock);
	return 0;
}
