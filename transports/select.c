/* SPDX-License-Identifier: MIT */
/* The tables of maps and movers, and which of them a link gets. Choosing is pure: it looks at
   nothing but its arguments. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "transport.h"

#define LOADABLE (1u << MAP_SELF | 1u << MAP_P2P | 1u << MAP_IPC)

/* What is known of one pair while its route is chosen. */
struct pair {
	const struct rank_info *me, *peer;
	const struct pair_facts *facts;
	struct route *route;
	size_t used; /* of route->reason */
};

/* Adds to the reason, cutting it off where it is full. */
static void add_reason(struct pair *p, const char *fmt, ...) PRINTF(2, 3);
static void add_reason(struct pair *p, const char *fmt, ...)
{
	char *text = p->route->reason;
	va_list args;
	int n;

	if (p->used && p->used + 2 < LINK_REASON) {
		memcpy(text + p->used, "; ", 3);
		p->used += 2;
	}
	va_start(args, fmt);
	n = vsnprintf(text + p->used, LINK_REASON - p->used, fmt, args);
	va_end(args);
	p->used = MIN_OF(p->used + (size_t)MAX_OF(n, 0), LINK_REASON - 1);
}

static bool same_process(const struct pair *p)
{
	return !memcmp(p->me->process, p->peer->process, sizeof(p->me->process));
}

static bool same_host(const struct pair *p)
{
	return !memcmp(p->me->host, p->peer->host, sizeof(p->me->host));
}

/* Each says whether its map can be, and notes why or why not. */
static bool p2p_fits(struct pair *p)
{
	const char *reason = p->facts->peer_reason;

	if (!same_process(p))
		add_reason(p, "p2p: another process");
	else if (p->facts->peer_code)
		add_reason(p, "p2p: %s", reason[0] ? reason : "the driver refuses peer access");
	else
		add_reason(p, "p2p: same process, peer access granted");
	return same_process(p) && !p->facts->peer_code;
}

static bool ipc_fits(struct pair *p)
{
	const struct rank_info *deaf = p->me->caps & RANK_CAP_IPC ? p->peer : p->me;

	if (same_process(p))
		add_reason(p, "ipc: same process");
	else if (!same_host(p))
		add_reason(p, "ipc: another host");
	else if (!(deaf->caps & RANK_CAP_IPC))
		add_reason(
			p, "ipc: rank %d cannot share memory between processes", (int)deaf->rank);
	else if (p->facts->peer_code)
		add_reason(p, "ipc: %s",
			p->facts->peer_reason[0] ? p->facts->peer_reason
						 : "the driver refuses peer access");
	else
		add_reason(p, "ipc: same host, another process");
	return !same_process(p) && same_host(p) && deaf->caps & RANK_CAP_IPC &&
		!p->facts->peer_code;
}

static bool has_rdma(const struct rank_info *rank)
{
	return rank->caps & RANK_CAP_RDMA && !rank->nic.why[0];
}

static bool rdma_fits(struct pair *p)
{
	const struct rank_info *deaf = has_rdma(p->me) ? p->peer : p->me;
	char rails[64] = "";

	if (p->me->nic.rails || p->peer->nic.rails)
		snprintf(rails, sizeof(rails), ", large moves by %d devices here, %d there",
			1 + p->me->nic.rails, 1 + p->peer->nic.rails);
	if (has_rdma(deaf) && p->me->nic.memory == RDMA_HOST && p->peer->nic.memory == RDMA_HOST)
		add_reason(p, "rdma: both ranks have it%s", rails);
	else if (has_rdma(deaf))
		add_reason(p, "rdma: both ranks have it, memory here by %s, there by %s%s",
			rdma_memory_name(p->me->nic.memory), rdma_memory_name(p->peer->nic.memory),
			rails);
	else if (deaf->nic.why[0])
		add_reason(p, "rdma: rank %d: %.*s", (int)deaf->rank, RANK_NIC_WHY, deaf->nic.why);
	else
		add_reason(p, "rdma: rank %d does not have it", (int)deaf->rank);
	return has_rdma(deaf);
}

static bool sdma_fits(struct pair *p)
{
	if (p->facts->threshold == UINT64_MAX) {
		add_reason(p, "sdma: no copy engine");
		return false;
	}
	if (p->facts->engine[0])
		add_reason(p, "sdma: %s", p->facts->engine);
	return true;
}

static const struct mover_row {
	const char *name;
	const struct mover_ops *ops;  /* NULL: not in this build */
	unsigned maps;		      /* that it works over, 1u << map */
	bool (*fits)(struct pair *p); /* NULL: always */
} mover_rows[] = {
	[MOVER_STORE] = { "store", &mover_store, LOADABLE, NULL },
	[MOVER_SDMA] = { "sdma", &mover_sdma, LOADABLE, sdma_fits },
	[MOVER_VERBS] = { "verbs", &mover_verbs, 1u << MAP_RDMA, NULL },
};

/* In order of preference from MAP_P2P on; users cannot choose the two before it. */
static const struct map_row {
	const char *name;
	const struct map_ops *ops; /* NULL: not in this build */
	bool (*fits)(struct pair *p);
} map_rows[] = {
	[MAP_NONE] = { "none", NULL, NULL },
	[MAP_SELF] = { "self", &map_self, NULL },
	[MAP_P2P] = { "p2p", &map_p2p, p2p_fits },
	[MAP_IPC] = { "ipc", &map_ipc, ipc_fits },
	[MAP_RDMA] = { "rdma", &map_rdma, rdma_fits },
};

const struct map_ops *map_ops(enum map_kind map)
{
	return (unsigned)map < LINK_MAPS ? map_rows[map].ops : NULL;
}

const struct mover_ops *mover_ops(enum mover_kind mover)
{
	return (unsigned)mover < LINK_MOVERS ? mover_rows[mover].ops : NULL;
}

/* Puts i among the n of `order` by ascending rank; equal ranks stay in the order they came. */
static void rank_in(int *order, int *ranks, int n, int i, int rank)
{
	for (; n > 0 && ranks[n - 1] > rank; n--) {
		order[n] = order[n - 1];
		ranks[n] = ranks[n - 1];
	}
	order[n] = i;
	ranks[n] = rank;
}

/* The movers of a map in the user's order; what is left out is noted. */
static int choose_movers(struct pair *p, enum map_kind map)
{
	const char *wish = p->facts->moves;
	int order[LINK_MOVERS], ranks[LINK_MOVERS], n = 0;

	for (int i = 0; i < LINK_MOVERS; i++) {
		const struct mover_row *row = &mover_rows[i];
		int rank = env_list_rank(wish, row->name, i);

		if (!(row->maps & 1u << map))
			continue;
		if (rank < 0)
			add_reason(p, "%s: left out by SPMT_MOVES=%s", row->name, wish);
		else if (!row->ops)
			add_reason(p, "%s: not in this build", row->name);
		else if (!row->fits || row->fits(p))
			rank_in(order, ranks, n++, i, rank);
	}
	for (int i = 0; i < n; i++)
		p->route->movers[i] = (enum mover_kind)order[i];
	p->route->nmovers = n;
	p->route->threshold = n > 1 ? p->facts->threshold : UINT64_MAX;
	return n;
}

/* A rank always reaches itself. */
static void choose_self(struct pair *p)
{
	p->route->map = MAP_SELF;
	add_reason(p, "self");
	if (choose_movers(p, MAP_SELF))
		return;
	p->route->movers[0] = MOVER_STORE;
	p->route->nmovers = 1;
}

static bool choose_map(struct pair *p, enum map_kind map)
{
	const struct map_row *row = &map_rows[map];

	if (!row->ops) {
		add_reason(p, "%s: not in this build", row->name);
		return false;
	}
	if (!row->fits(p))
		return false;
	if (!choose_movers(p, map)) {
		add_reason(p, "%s: no mover is left for it", row->name);
		return false;
	}
	p->route->map = map;
	return true;
}

int route_select(const struct rank_info *me, const struct rank_info *peer,
	const struct pair_facts *facts, struct route *route)
{
	struct pair p = { me, peer, facts, route, 0 };
	int order[LINK_MAPS], ranks[LINK_MAPS], n = 0;

	*route = (struct route){ .map = MAP_NONE, .threshold = UINT64_MAX };
	if (me->rank == peer->rank) {
		choose_self(&p);
		return 0;
	}
	for (int map = MAP_P2P; map < LINK_MAPS; map++) {
		int rank = env_list_rank(facts->maps, map_rows[map].name, map);

		if (rank < 0)
			add_reason(&p, "%s: left out by SPMT_MAPS=%s", map_rows[map].name,
				facts->maps);
		else
			rank_in(order, ranks, n++, map, rank);
	}
	if (strncmp(me->backend, peer->backend, sizeof(me->backend))) {
		add_reason(&p, "backends differ: %.8s and %.8s", me->backend, peer->backend);
		return -EHOSTUNREACH;
	}
	for (int i = 0; i < n; i++) {
		if (choose_map(&p, (enum map_kind)order[i]))
			return 0;
	}
	return -EHOSTUNREACH;
}

const char *rdma_memory_name(enum rdma_memory memory)
{
	static const char *const names[] = { [RDMA_HOST] = "the CPU's addresses",
		[RDMA_DMABUF] = "dma-buf",
		[RDMA_PEER] = "peer memory",
		[RDMA_BOUNCE] = "bounce buffers" };

	return (unsigned)memory < ARRAY_SIZE(names) ? names[memory] : "unknown";
}

const char *map_name(enum map_kind map)
{
	return (unsigned)map < LINK_MAPS ? map_rows[map].name : "unknown";
}

const char *mover_name(enum mover_kind mover)
{
	return (unsigned)mover < LINK_MOVERS ? mover_rows[mover].name : "unknown";
}

void route_movers(const struct route *route, char *text, size_t size)
{
	size_t used = 0;

	if (size)
		text[0] = '\0';
	for (int i = 0; i < route->nmovers && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "",
			mover_name(route->movers[i]));
}
