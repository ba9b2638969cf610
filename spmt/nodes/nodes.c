/* SPDX-License-Identifier: MIT */
#include "nodes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "spmt/bootstrap/bootstrap.h"
#include "spmt/bootstrap/wire.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "src/base/env.h"
#include "src/base/futex.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define NODE_DEATH_NS (1500 * 1000000ll) /* by then a death is known */
#define NODE_HEARD_NS (700 * 1000000ll)	 /* .. so long after the time that a node may be silent */
#define NODE_LOOK_NS (2 * 1000000ll) /* a rank whose process is just being settled, at the world */
#define NODE_SLICE_MS 20	     /* the same of the one that settles it */

/* States of world->node_state. */
enum node_state { NODE_NEW, NODE_OPENING, NODE_SETTLED };

static bool same_node(const struct world *w, int a, int b)
{
	return w->node[a] == w->node[b];
}

void nodes_count(const spmt_comm *comm, struct nodes *nodes)
{
	const struct world *w = comm->world;
	int self = comm_world_rank(comm, comm->rank);

	*nodes = (struct nodes){ .n = 0 };
	for (int r = 0; r < comm->nranks; r++) {
		int rank = comm_world_rank(comm, r), first = 0;

		nodes->near += same_node(w, rank, self);
		while (!same_node(w, comm_world_rank(comm, first), rank))
			first++;
		if (first < r)
			continue;
		if (same_node(w, rank, self))
			nodes->mine = nodes->n;
		nodes->n++;
	}
}

static void break_await(const spmt_comm *comm, int64_t ns)
{
	const struct timespec slice = { .tv_nsec = NODE_LOOK_NS };
	int64_t end = process_now() + ns;

	while (atomic_load(&comm->world->boot) && !atomic_load(&comm->control->stop) &&
		process_now() < end)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
}

static bool has_nic(const spmt_comm *comm)
{
	int pe = 0;

	while (pe < comm->nranks && comm->links[pe].route.map != MAP_RDMA)
		pe++;
	return pe < comm->nranks;
}

void nodes_hear(const spmt_comm *comm)
{
	const struct env *env = env_loaded();
	int64_t ns = NODE_DEATH_NS, ms = comm_timeout(comm);

	if (!has_nic(comm))
		return;
	if (env)
		ns = MAX_OF(ns, env->socket_lost * 1000000 + NODE_HEARD_NS);
	break_await(comm, ms < 0 ? ns : MIN_OF(ns, MIN_OF(ms, TIMEOUT_MOST) * 1000000));
}

int nodes_move_failed(const spmt_comm *comm, const char *what, int rc)
{
	struct status_saved saved;

	status_save(&saved);
	break_await(comm, NODE_DEATH_NS);
	if (atomic_load(&comm->control->stop))
		return comm_broken(comm, what);
	status_restore(&saved);
	return rc;
}

/* ---- can they be reached at all? ------------------------------------------------------------- */

static bool is_far(const void *ctx, int rank)
{
	const spmt_comm *comm = ctx;

	return !same_node(comm->world, comm->rank, rank);
}

static bool is_far_and_deaf(const void *ctx, int rank)
{
	const spmt_comm *comm = ctx;
	const struct rank_info *infos = comm->world->infos;

	return is_far(ctx, rank) && !(infos[comm->rank].caps & infos[rank].caps & RANK_CAP_RDMA);
}

static bool is_near_and_deaf(const void *ctx, int rank)
{
	const spmt_comm *comm = ctx;

	return !is_far(ctx, rank) && !(comm->world->infos[rank].caps & RANK_CAP_RDMA);
}

/* Whoever reaches all others fails with its neighbours that do not: they would not come to its node's meeting. */
static int neighbours_check(const spmt_comm *comm)
{
	char sentence[STATUS_SENTENCE];
	int n = 0;

	for (int r = 0; r < comm->nranks; r++)
		n += is_near_and_deaf(comm, r);
	if (!n)
		return 0;
	snprintf(sentence, sizeof(sentence),
		"spmt_init: rank %d: %d ranks of its node do not reach the other nodes, as the map for that (rdma) is not to be had there (no RDMA device, or no libibverbs):",
		comm->rank, n);
	say_ranks(sentence, sizeof(sentence), comm->nranks, is_near_and_deaf, comm);
	return fail_with_call(-EHOSTUNREACH, "spmt_init", sentence);
}

/* A rank that does not know its node is on one of its own: `text` says so of the first, this one before others. */
static void say_nameless(const spmt_comm *comm, char *text, size_t size)
{
	const struct rank_info *infos = comm->world->infos;
	int r = comm->rank;

	*text = '\0';
	if (process_host_known(infos[r].host))
		for (r = 0; r < comm->nranks; r++)
			if (is_far_and_deaf(comm, r) && !process_host_known(infos[r].host))
				break;
	if (r < comm->nranks)
		snprintf(text, size,
			", or count as such since rank %d cannot read /proc/sys/kernel/random/boot_id,",
			r);
}

static int reach_check(const spmt_comm *comm)
{
	const struct rank_info *me = &comm->world->infos[comm->rank];
	char sentence[STATUS_SENTENCE], nameless[96];
	const char *why = !map_ops(MAP_RDMA) ? "is not in this build"
		: me->caps & RANK_CAP_RDMA
		? "is not to be had there (no RDMA device, or no libibverbs)"
		: "is not to be had here (no RDMA device, or no libibverbs)";
	int n = 0;

	for (int r = 0; r < comm->nranks; r++)
		n += is_far_and_deaf(comm, r);
	if (!n)
		return neighbours_check(comm);
	say_nameless(comm, nameless, sizeof(nameless));
	snprintf(sentence, sizeof(sentence),
		"spmt_init: rank %d: %d of %d ranks are on another node%s and the map that would reach them (rdma) %s:",
		comm->rank, n, comm->nranks, *nameless ? nameless : ",", why);
	say_ranks(sentence, sizeof(sentence), comm->nranks, is_far_and_deaf, comm);
	return fail_with_call(-EHOSTUNREACH, "spmt_init", sentence);
}

/* ---- the processes of a node ----------------------------------------------------------------- */

/* Is no lower rank in the process of this one? */
static bool leads_process(const struct world *w, int rank)
{
	for (int r = 0; r < rank; r++)
		if (w->process[r] == w->process[rank])
			return false;
	return true;
}

/* How many processes this rank's node has, and which of them is its own: by their numbers in the world. */
static int node_processes(const spmt_comm *comm, int *self)
{
	const struct world *w = comm->world;
	int n = 0;

	*self = 0;
	for (int r = 0; r < w->nranks; r++) {
		if (!same_node(w, r, comm->rank) || !leads_process(w, r))
			continue;
		n++;
		*self += w->process[r] < w->process[comm->rank];
	}
	return n;
}

/* A name of its own, so that the processes of one node find no others. */
static void node_uid(const spmt_comm *comm, struct uid *uid)
{
	struct {
		char label[16];
		int64_t node;
	} name = { "spmt node", comm->world->node[comm->rank] };

	uid_derive(&comm->world->uid, &name, sizeof(name), uid);
	uid_move(uid, &(struct uid_place){ 0 });
}

/* One that dies before it comes is missed by the world's bootstrap alone. */
static int node_wait(
	spmt_comm *comm, const struct patience *patience, const void **blobs, void **control)
{
	struct world *w = comm->world;
	struct patience slice = *patience;
	int rc;

	do {
		slice.ms = (process_now() - patience->begin) / 1000000 + NODE_SLICE_MS;
		if (patience->ms >= 0)
			slice.ms = MIN_OF(slice.ms, patience->ms);
		rc = bootstrap_wait(w->node_boot, &slice, blobs, &w->node_process, control);
	} while (rc == SPMT_ERR_TIMEOUT && slice.ms != patience->ms &&
		!atomic_load(&comm->control->stop));
	return rc;
}

/* Each process counts as a rank there. Deaths are heard of from the world's bootstrap, which knows its ranks. */
static int node_open(spmt_comm *comm, int self, int processes)
{
	struct world *w = comm->world;
	struct uid uid;
	const struct bootstrap_config config = { .uid = &uid,
		.nranks = processes,
		.rank = self,
		.control_size = control_world_size(w->nranks) };
	const struct patience patience = { process_now(), comm_timeout(comm) };
	const void *blobs;
	void *control;
	int rc;

	node_uid(comm, &uid);
	rc = bootstrap_open(&config, NULL, &w->node_boot);
	if (!rc)
		rc = bootstrap_add(w->node_boot, self, &uid, &patience);
	if (!rc)
		rc = node_wait(comm, &patience, &blobs, &control);
	if (rc == SPMT_ERR_PEER_DEAD)
		rc = nodes_move_failed(comm, "spmt_init", rc);
	if (rc && atomic_load(&comm->control->stop))
		return comm_broken(comm, "spmt_init");
	if (rc)
		return fail_call(rc, "spmt_init",
			"rank %d: the %d processes of its node have not found each other: %.300s",
			comm->rank, processes, status_sentence());
	pthread_mutex_lock(&w->lock);
	world_adopt(w, control);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

static void node_state_set(struct world *w, enum node_state state)
{
	atomic_store_explicit(&w->node_state, state, memory_order_release);
	futex_wake_all(&w->node_state);
}

/* The first rank of a process to come does this for all. */
static int node_settle(spmt_comm *comm)
{
	struct world *w = comm->world;
	uint32_t none = NODE_NEW;
	int self, n, rc = 0;

	if (atomic_compare_exchange_strong(&w->node_state, &none, NODE_OPENING)) {
		n = node_processes(comm, &self);
		if (n > 1)
			rc = node_open(comm, self, n);
		if (rc) {
			comm_break_last(comm, rc);
			return rc;
		}
		atomic_store(&w->meeting, &meeting_nodes);
		node_state_set(w, NODE_SETTLED);
	}
	while (atomic_load_explicit(&w->node_state, memory_order_acquire) != NODE_SETTLED) {
		if (atomic_load(&comm->control->stop))
			return comm_broken(comm, "spmt_init");
		futex_sleep(&w->node_state, NODE_OPENING, NODE_LOOK_NS);
	}
	return 0;
}

int nodes_settle(spmt_comm *comm)
{
	struct world *w = comm->world;
	struct cause cause;
	int rc;

	if (!w->node)
		return 0;
	rc = reach_check(comm);
	if (rc) {
		cause_last(&cause, rc);
		world_break_here(w, &cause);
		return rc;
	}
	rc = node_settle(comm);
	if (!rc)
		comm_settle(comm);
	return rc;
}
