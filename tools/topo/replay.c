/* SPDX-License-Identifier: MIT */
#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/status.h"

/* Stand-ins for a nonce and a host's identity: equal where the recording says "the same". */
static void stand_in_id(unsigned char id[16], uint64_t host, uint64_t process)
{
	memcpy(id, &host, sizeof(host));
	memcpy(id + sizeof(host), &process, sizeof(process));
}

static void describe(const struct topo *topo, int rank, struct rank_info *info)
{
	struct topo_rank at = topo_rank(topo, rank);
	const struct topo_device *d = &topo->devices[at.device];

	*info = (struct rank_info){ .rank = rank,
		.device = (int32_t)d->ordinal,
		.settled = (int32_t)d->ordinal,
		.caps = d->ipc ? RANK_CAP_IPC : 0 };
	memcpy(info->backend, d->backend, sizeof(info->backend));
	memcpy(info->pci, d->pci, sizeof(info->pci));
	stand_in_id(info->host, (uint64_t)d->host, 0);
	stand_in_id(info->process, (uint64_t)d->host, at.process);
}

void replay_pair(const struct topo *topo, int from, int to, struct rank_info *me,
	struct rank_info *peer, struct pair_facts *facts)
{
	int mine = topo_rank(topo, from).device, theirs = topo_rank(topo, to).device;
	const struct topo_peers *rule = topo_peers(topo, mine, theirs);

	describe(topo, from, me);
	describe(topo, to, peer);
	*facts = (struct pair_facts){ .threshold = topo->devices[mine].threshold };
	if (mine == theirs || (rule && !rule->reason[0]))
		return;
	facts->peer_code = -EACCES;
	snprintf(facts->peer_reason, sizeof(facts->peer_reason), "%s",
		rule ? rule->reason : "nothing is recorded of this pair");
}

int route_format(int from, int first, int last, const struct route *route, char *line, size_t size)
{
	char to[32], movers[32], threshold[24] = "-";

	snprintf(to, sizeof(to), last > first ? "%d-%d" : "%d", first, last);
	route_movers(route, movers, sizeof(movers));
	if (route->nmovers > 1)
		snprintf(threshold, sizeof(threshold), "%" PRIu64, route->threshold);
	return snprintf(line, size, "%d %s %s %s %s %s", from, to, map_name(route->map),
		route->nmovers ? movers : "-", threshold, route->reason);
}

static void select_pair(const struct topo *topo, const struct replay_wish *wish, int from, int to,
	struct route *route)
{
	struct rank_info me, peer;
	struct pair_facts facts;

	replay_pair(topo, from, to, &me, &peer, &facts);
	facts.maps = wish->maps;
	facts.moves = wish->moves;
	route_select(&me, &peer, &facts, route);
}

static bool same_route(const struct route *a, const struct route *b)
{
	return a->map == b->map && a->nmovers == b->nmovers && a->threshold == b->threshold &&
		!memcmp(a->movers, b->movers, sizeof(a->movers)) && !strcmp(a->reason, b->reason);
}

static void replay_row(const struct topo *topo, const struct replay_wish *wish, int from,
	void (*line)(void *ctx, const char *text), void *ctx)
{
	int n = topo_nranks(topo), next;
	struct route route, other;
	char text[LINK_REASON + 128];

	select_pair(topo, wish, from, 0, &route);
	for (int to = 0; to < n; to = next) {
		for (next = to + 1; next < n; next++) {
			select_pair(topo, wish, from, next, &other);
			if (!same_route(&route, &other))
				break;
		}
		route_format(from, to, next - 1, &route, text, sizeof(text));
		line(ctx, text);
		route = other;
	}
}

int replay_routes(const struct topo *topo, const struct replay_wish *wish,
	void (*line)(void *ctx, const char *text), void *ctx)
{
	int n = topo_nranks(topo);

	if (wish->first < 0 || wish->last >= n || wish->last < wish->first)
		return fail(-EINVAL, "routes of ranks %d to %d asked, the recording has %d",
			wish->first, wish->last, n);
	line(ctx, ROUTE_HEAD);
	for (int from = wish->first; from <= wish->last; from++)
		replay_row(topo, wish, from, line, ctx);
	return 0;
}
