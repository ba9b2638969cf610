/* SPDX-License-Identifier: MIT */
/* One link a peer: routes are selected from what the ranks published and what the driver says of
   each pair, and then attached. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "peer.h"
#include "spmt/calls/sync.h"
#include "spmt/calls/view.h"
#include "spmt/collective/engine.h"
#include "spmt/collective/far.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/nodes/nodes.h"
#include "spmt/proxy/fifo.h"
#include "spmt/proxy/queues.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/*
 * The peer's device as this process numbers it. Ordinals of another process mean nothing here
 * (CUDA_VISIBLE_DEVICES), but identities do. A device that is not visible here gets a number
 * beyond the others.
 */
static int peer_device(const spmt_comm *comm, const struct rank_info *peer)
{
	static const unsigned char none[sizeof(peer->uuid)];
	const struct rank_info *me = &comm->world->infos[comm->rank];
	struct device_desc desc;
	bool known = memcmp(peer->uuid, none, sizeof(none)) != 0;
	int n = 0, dev = 0;

	if (!memcmp(me->process, peer->process, sizeof(me->process)))
		return peer->settled;
	KEEPS_SENTENCE;
	comm->backend->count(&n);
	for (; known && dev < n; dev++)
		if (!comm->backend->describe(dev, &desc) &&
			!memcmp(desc.uuid, peer->uuid, sizeof(desc.uuid)))
			break;
	return known && dev < n ? dev : n + peer->rank;
}

static bool device_is_here(const spmt_comm *comm, int dev)
{
	int n = 0;

	return !comm->backend->count(&n) && dev < n;
}

/* What serves the pair's copies where user-mode queues are wanted. */
static void engine_facts(const spmt_comm *comm, int peer_dev, struct pair_facts *facts)
{
	const struct device_sdma_ops *sdma = comm->backend->sdma;
	char why[DEVICE_REASON];

	if (!sdma)
		snprintf(facts->engine, sizeof(facts->engine),
			"streams, as there are no user-mode queues for %s", comm->backend->name);
	else if (!device_is_here(comm, peer_dev))
		snprintf(facts->engine, sizeof(facts->engine),
			"streams, as the peer's device is not seen here");
	else if (sdma->check(comm->dev, peer_dev, why))
		snprintf(facts->engine, sizeof(facts->engine), "streams, as %.*s",
			DEVICE_REASON - 13, why);
	else
		snprintf(facts->engine, sizeof(facts->engine), "%s", why);
}

static void link_facts(
	const spmt_comm *comm, int peer_dev, const struct env *env, struct pair_facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	facts->maps = env->maps;
	facts->moves = env->moves;
	facts->threshold =
		env->threshold == ENV_SIZE_UNSET ? comm->backend->store_threshold : env->threshold;
	if (device_is_here(comm, peer_dev))
		facts->peer_code =
			comm->backend->peer_check(comm->dev, peer_dev, facts->peer_reason);
	if (env->sdma == ENV_SDMA_QUEUES)
		engine_facts(comm, peer_dev, facts);
}

static void link_movers(spmt_comm *comm, struct link *link)
{
	const struct route *route = &link->route;

	link->nmovers = MIN_OF(route->nmovers, 2);
	for (int i = 0; i < link->nmovers; i++)
		link->movers[i] =
			(struct mover){ .ops = mover_ops(route->movers[i]), .link = link };
	link->threshold = link->nmovers > 1 ? route->threshold : UINT64_MAX;
	link->direct = comm_cpu_access(comm) && route->movers[0] == MOVER_STORE;
}

/* p2p is sometimes refused only when it is enabled: then the route is chosen again without it,
   the reason kept. */
static int link_attach(
	spmt_comm *comm, struct link *link, const struct rank_info *peer, struct pair_facts *facts)
{
	const struct rank_info *me = &comm->world->infos[comm->rank];
	int rc = link->map->attach(link, comm->backend, comm->dev, peer);

	if (rc != -EACCES || link->route.map != MAP_P2P)
		return rc;
	facts->peer_code = rc;
	snprintf(facts->peer_reason, sizeof(facts->peer_reason), "%.*s", DEVICE_REASON - 1,
		status_sentence());
	rc = route_select(me, peer, facts, &link->route);
	if (rc)
		return fail_call(rc, "spmt_init", "rank %d: no route to rank %d: %s", comm->rank,
			peer->rank, link->route.reason);
	link->map = map_ops(link->route.map);
	link_movers(comm, link);
	return link->map->attach(link, comm->backend, comm->dev, peer);
}

/* Fills what a link knows of its comm. */
static struct link *link_begin(spmt_comm *comm, int pe, int peer_dev)
{
	struct link *link = &comm->links[pe];

	link->backend = comm->backend;
	link->dev = comm->dev;
	link->peer_dev = peer_dev;
	link->rank = comm->rank;
	link->pe = pe;
	link->stream = comm->stream;
	link->rdma = comm->slot->rdma;
	link->timeout_ms = &comm->timeout_ms;
	link->stop = control_stop_word(comm->control);
	return link;
}

static int link_open(spmt_comm *comm, int pe, int peer_dev, const struct env *env)
{
	const struct rank_info *me = &comm->world->infos[comm->rank],
			       *peer = &comm->world->infos[pe];
	struct link *link = link_begin(comm, pe, peer_dev);
	struct pair_facts facts;
	int rc;

	if (comm->world->memory && comm->world->memory[pe].known && !comm_is_local(comm, pe))
		link->memory = &comm->world->memory[pe];
	link_facts(comm, peer_dev, env, &facts);
	rc = route_select(me, peer, &facts, &link->route);
	if (rc)
		return fail_call(rc, "spmt_init", "rank %d: no route to rank %d: %s", comm->rank,
			pe, link->route.reason);
	link->map = map_ops(link->route.map);
	if (!link->map)
		return fail_call(SPMT_ERR_UNSUPPORTED, "spmt_init",
			"rank %d: map %s to rank %d is not in this build", comm->rank,
			map_name(link->route.map), pe);
	link_movers(comm, link);
	rc = link_attach(comm, link, peer, &facts);
	link->by_kernel = link->base != NULL;
	return rc;
}

static int links_room(spmt_comm *comm)
{
	comm->links = mem_aligned(CACHE_LINE, (size_t)comm->nranks * sizeof(*comm->links));
	comm->wake_counters = mem_calloc((size_t)comm->nranks, sizeof(*comm->wake_counters));
	return comm->links && comm->wake_counters
		? 0
		: fail(-ENOMEM, "out of memory for %d links", comm->nranks);
}

/* seen: where another comm's peers see this rank's heap; numbers: this comm's ranks in that one. */
static int peers_table(spmt_comm *comm, const struct spmtd_peer *seen, const int *numbers)
{
	struct spmtd_peer *peers;
	int rc = table_open(comm, (size_t)comm->nranks * sizeof(*peers), &comm->peers);

	if (rc)
		return rc;
	peers = comm->peers.host;
	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct link *link = &comm->links[pe];

		peers[pe].base = (uintptr_t)link->base;
		/* an address; or, of a peer that has none, the offset that is posted */
		peers[pe].own = (uintptr_t)link_at(link, link->own);
		peers[pe].mine =
			seen ? seen[numbers[pe]].mine : (uint64_t)(uintptr_t)comm->heap->base;
	}
	return table_publish(comm, &comm->peers);
}

/* ---- worlds of several processes: who sees whose heap where ---------------------------------- */

/* Where on a link's peer `rank` tells it. */
static uint64_t inbox(const struct link *link, int rank)
{
	return link->own + sizeof(struct spmtd_own) + (uint64_t)rank * sizeof(struct spmtd_inbox) +
		offsetof(struct spmtd_inbox, seen);
}

int peers_publish(spmt_comm *comm)
{
	int rc = 0;

	for (int pe = 0; pe < comm->nranks && !rc; pe++) {
		struct link *link = &comm->links[pe];
		struct mover *m = &link->movers[0];
		uint64_t seen = (uintptr_t)link->base;

		rc = m->ops->put(
			m, inbox(link, comm->rank), &seen, sizeof(seen), MOVE_BLOCKING, NULL);
		comm->pending |= link->pending;
	}
	return rc ? rc : movers_quiet(comm, "spmt_init");
}

int peers_collect(spmt_comm *comm)
{
	struct link *self = &comm->links[comm->rank];
	struct mover *m = &self->movers[0];
	struct spmtd_peer *peers = comm->peers.host;
	int rc = 0;

	for (int pe = 0; pe < comm->nranks && !rc; pe++)
		rc = m->ops->get(m, &peers[pe].mine, inbox(self, pe), sizeof(peers[pe].mine),
			MOVE_BLOCKING, NULL);
	return rc ? rc : table_publish(comm, &comm->peers);
}

/* ---- what kernels reach ---------------------------------------------------------------------- */

void peers_reach(spmt_comm *comm, struct meet_record *record)
{
	if (comm->stage)
		nodes_notes_offer(
			comm, comm->stage - far_head(comm->nranks) - nodes_notes_room(), record);
	for (int pe = 0; pe < comm->nranks; pe++) {
		if (comm->links[pe].base)
			continue;
		record->payload[0] = (uint64_t)pe;
		record->payload[1] = comm->links[pe].route.map;
		return;
	}
}

void peers_reached(spmt_comm *comm, const spmt_comm *met, const int *numbers)
{
	for (int r = 0; r < comm->nranks && !comm->far.map; r++) {
		int rank = numbers ? numbers[r] : r;
		uint64_t pe = meet_payload(met, rank, 0), map = meet_payload(met, rank, 1);

		if (map && map <= MAP_RDMA && pe < (uint64_t)comm->nranks)
			comm->far = (struct far_link){ r, (int)pe, (enum map_kind)map };
	}
	nodes_notes_begin(comm, met, numbers);
}

/* ---- init and finalize ----------------------------------------------------------------------- */

int peers_link(spmt_comm *comm)
{
	const struct rank_info *infos = comm->world->infos;
	const struct env *env;
	int rc = env_get(&env);

	if (rc)
		return rc;
	rc = links_room(comm);
	for (int pe = 0; pe < comm->nranks && !rc; pe++) {
		comm->wake_counters[pe] = &comm->control->rows[pe].wake_counter;
		rc = link_open(comm, pe, peer_device(comm, &infos[pe]), env);
	}
	if (!rc)
		rc = peers_table(comm, NULL, NULL);
	if (!rc)
		view_prepare(comm);
	return !rc && coll_copies(comm) ? fifo_open(comm) : rc;
}

static void link_share(spmt_comm *comm, int pe, const struct link *from, uint64_t area)
{
	struct link *link = link_begin(comm, pe, from->peer_dev);

	link->route = from->route;
	link->base = from->base;
	link->own = area;
	link->attached = from->attached;
	link->by_kernel = link->base != NULL;
	link_movers(comm, link);
}

int peers_share(spmt_comm *comm, const uint64_t *areas, const int *parent_ranks)
{
	const struct spmtd_peer *seen = comm->parent->peers.host;
	int rc = links_room(comm);

	for (int pe = 0; pe < comm->nranks && !rc; pe++) {
		comm->wake_counters[pe] = comm->parent->wake_counters[parent_ranks[pe]];
		link_share(comm, pe, &comm->parent->links[parent_ranks[pe]], areas[pe]);
	}
	if (!rc)
		rc = peers_table(comm, seen, parent_ranks);
	if (!rc)
		view_prepare(comm);
	return !rc && coll_copies(comm) ? fifo_open(comm) : rc;
}

void peers_unlink(spmt_comm *comm)
{
	far_drop(comm);
	engine_drop(comm);
	nodes_notes_end(comm);
	mem_free(comm->ops);
	comm->ops = NULL;
	queues_close(comm);
	fifo_close(comm);
	table_close(comm, &comm->peers);
	table_close(comm, &comm->lane_peers);
	for (int pe = 0; comm->links && pe < comm->nranks; pe++) {
		struct link *link = &comm->links[pe];

		for (int i = 0; i < link->nmovers; i++)
			link->movers[i].ops->close(&link->movers[i]);
		if (link->map)
			link->map->detach(link, comm->backend, comm->dev);
	}
	mem_free(comm->links);
	mem_free(comm->wake_counters);
	comm->links = NULL;
	comm->wake_counters = NULL;
}
