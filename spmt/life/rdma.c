/* SPDX-License-Identifier: MIT */
#include "rdma.h"

#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/status.h"

bool rdma_likely(struct rank_info *me)
{
	const struct map_ops *map = map_ops(MAP_RDMA);

	if (!map->rdma || map->rdma->likely())
		return true;
	snprintf(me->nic.why, sizeof(me->nic.why), "its node has no RDMA device");
	return false;
}

/* The map that a pair of one node would have without the user's wish. */
static const char *near_map(const struct rank_info *me, const struct rank_info *peer)
{
	if (!memcmp(me->process, peer->process, sizeof(me->process)))
		return map_name(MAP_P2P);
	return memcmp(me->host, peer->host, sizeof(me->host)) ? NULL : map_name(MAP_IPC);
}

/* Only what a rank said in the first meeting: it may be writing the rest. */
static bool goes_by_rdma(const struct rank_info *me, const struct rank_info *peer, const char *maps)
{
	const char *near = near_map(me, peer);
	int rdma_rank = env_list_rank(maps, map_name(MAP_RDMA), MAP_RDMA);
	int near_rank = near ? env_list_rank(maps, near, MAP_P2P) : -1;

	return me->rank != peer->rank && rdma_rank >= 0 && peer->caps & RANK_CAP_RDMA &&
		(near_rank < 0 || rdma_rank < near_rank);
}

bool rdma_wanted(const spmt_comm *comm, const struct env *env)
{
	const struct rank_info *infos = comm->world->infos, *me = &infos[comm->rank];

	for (int pe = 0; me->caps & RANK_CAP_RDMA && pe < comm->nranks; pe++)
		if (goes_by_rdma(me, &infos[pe], env->maps))
			return true;
	return false;
}

void rdma_open(spmt_comm *comm, const struct env *env)
{
	struct rank_info *me = &comm->world->infos[comm->rank];
	const struct map_ops *map = map_ops(MAP_RDMA);

	if (!(me->caps & RANK_CAP_RDMA) || !map->rdma)
		return;
	if (!rdma_wanted(comm, env)) {
		snprintf(me->nic.why, sizeof(me->nic.why),
			"its memory is not registered, as it had other ways to all peers");
		return;
	}
	KEEPS_SENTENCE;
	if (map->rdma->open(comm->backend, comm->dev, me, &comm->slot->rdma)) {
		snprintf(me->nic.why, sizeof(me->nic.why), "%.*s", RANK_NIC_WHY - 1,
			status_sentence());
		log_line(LOG_INFO, "rank %d has no RDMA: %s", comm->rank, status_sentence());
	}
}
