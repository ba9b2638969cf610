/* SPDX-License-Identifier: MIT */
/* Route selection: rules one by one, then whole recorded machines against the matrix that stands
   beside each. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/status.h"
#include "tools/topo/replay.h"
#include "transports/transport.h"

/* Rank `rank` in process `process` of host `host`. */
static struct rank_info someone(int rank, unsigned char host, unsigned char process, uint32_t caps)
{
	return (struct rank_info){ .rank = rank,
		.process = { process },
		.host = { host },
		.backend = "host",
		.caps = caps };
}

static const struct pair_facts granted = { .threshold = 4096 };

static void expect_movers(const struct route *route, const char *movers, uint64_t threshold)
{
	char text[32];

	route_movers(route, text, sizeof(text));
	cr_expect_str_eq(text, movers);
	cr_expect_eq(route->threshold, threshold);
}

static void expect_reason(const struct route *route, const char *part)
{
	cr_expect(strstr(route->reason, part), "\"%s\" in \"%s\"", part, route->reason);
}

Test(select, self)
{
	struct rank_info me = someone(3, 1, 1, 0);
	struct pair_facts facts = {
		.peer_code = -EACCES, .maps = "ipc", .moves = "verbs", .threshold = 1
	};
	struct route route;

	cr_expect_eq(route_select(&me, &me, &facts, &route), 0, "no wish keeps a rank from itself");
	cr_expect_eq(route.map, MAP_SELF);
	expect_movers(&route, "store", UINT64_MAX);
	cr_expect_eq(route_select(&me, &me, &granted, &route), 0);
	expect_movers(&route, "store,sdma", 4096);
}

Test(select, p2p_in_a_process)
{
	struct rank_info me = someone(0, 1, 1, 0), peer = someone(1, 1, 1, 0);
	struct route route;

	cr_expect_eq(route_select(&me, &peer, &granted, &route), 0);
	cr_expect_eq(route.map, MAP_P2P);
	expect_movers(&route, "store,sdma", 4096);
	expect_reason(&route, "p2p: same process");
}

Test(select, p2p_refused)
{
	struct rank_info me = someone(0, 1, 1, RANK_CAP_IPC), peer = someone(1, 1, 1, RANK_CAP_IPC);
	struct pair_facts facts = { .peer_code = -EACCES, .peer_reason = "not over this bridge" };
	struct route route;

	cr_expect_eq(route_select(&me, &peer, &facts, &route), -EHOSTUNREACH);
	cr_expect_eq(route.map, MAP_NONE);
	cr_expect_eq(route.nmovers, 0);
	expect_reason(&route, "p2p: not over this bridge");
	expect_reason(&route, "ipc: same process");
	expect_reason(&route, "rdma: rank 0 does not have it");
	facts.peer_reason[0] = '\0';
	route_select(&me, &peer, &facts, &route);
	expect_reason(&route, "p2p: the driver refuses");
}

Test(select, ipc_between_processes)
{
	struct rank_info me = someone(0, 1, 1, RANK_CAP_IPC), peer = someone(1, 1, 2, RANK_CAP_IPC);
	struct pair_facts refused = { .peer_code = -EACCES, .peer_reason = "not over this bridge" };
	struct route route;

	cr_expect_eq(route_select(&me, &peer, &granted, &route), 0);
	cr_expect_eq(route.map, MAP_IPC);
	expect_movers(&route, "store,sdma", 4096);
	expect_reason(&route, "p2p: another process; ipc: same host, another process");
	cr_expect_eq(route_select(&me, &peer, &refused, &route), -EHOSTUNREACH);
	expect_reason(&route, "p2p: another process; ipc: not over this bridge");
	peer.caps = 0;
	cr_expect_eq(route_select(&me, &peer, &granted, &route), -EHOSTUNREACH);
	expect_reason(&route, "ipc: rank 1 cannot");
	cr_expect_eq(route_select(&peer, &me, &granted, &route), -EHOSTUNREACH);
	expect_reason(&route, "ipc: rank 1 cannot");
	peer = someone(1, 2, 2, RANK_CAP_IPC);
	cr_expect_eq(route_select(&me, &peer, &granted, &route), -EHOSTUNREACH);
	expect_reason(&route, "ipc: another host");
}

Test(select, equal_nonces_on_two_hosts_are_one_process)
{
	struct rank_info me = someone(0, 1, 1, 0), peer = someone(1, 2, 1, 0);
	struct route route;

	cr_expect_eq(route_select(&me, &peer, &granted, &route), 0);
	cr_expect_eq(route.map, MAP_P2P, "a nonce is made once; a host's name may be set twice");
}

Test(select, backends_differ)
{
	struct rank_info me = someone(0, 1, 1, 0), peer = someone(1, 1, 1, 0);
	struct route route;

	memcpy(peer.backend, "cuda", 5);
	cr_expect_eq(route_select(&me, &peer, &granted, &route), -EHOSTUNREACH);
	expect_reason(&route, "backends differ: host and cuda");
}

static void wish_maps(const char *maps, enum map_kind want, const char *reason)
{
	struct rank_info me = someone(0, 1, 1, RANK_CAP_IPC), peer = someone(1, 1, 1, RANK_CAP_IPC);
	struct pair_facts facts = { .threshold = 4096, .maps = maps };
	struct route route;
	int rc = route_select(&me, &peer, &facts, &route);

	cr_expect_eq(route.map, want, "SPMT_MAPS=%s: %s", maps, route.reason);
	cr_expect_eq(rc, want == MAP_NONE ? -EHOSTUNREACH : 0);
	expect_reason(&route, reason);
}

Test(select, maps_wished)
{
	wish_maps("p2p", MAP_P2P, "ipc: left out by SPMT_MAPS=p2p");
	wish_maps("ipc,p2p", MAP_P2P, "ipc: same process; p2p: same process");
	wish_maps("p2p,ipc", MAP_P2P, "p2p: same process, peer access granted");
	wish_maps("-ipc", MAP_P2P, "ipc: left out by SPMT_MAPS=-ipc");
	wish_maps("-p2p", MAP_NONE, "p2p: left out by SPMT_MAPS=-p2p; ipc: same process; rdma");
	wish_maps("ipc", MAP_NONE, "p2p: left out by SPMT_MAPS=ipc");
}

static void wish_moves(const char *moves, uint64_t limit, const char *movers, uint64_t threshold)
{
	struct rank_info me = someone(0, 1, 1, 0), peer = someone(1, 1, 1, 0);
	struct pair_facts facts = { .threshold = limit, .moves = moves };
	struct route route;

	cr_expect_eq(route_select(&me, &peer, &facts, &route), *movers ? 0 : -EHOSTUNREACH);
	expect_movers(&route, movers, threshold);
	cr_expect_eq(route.map, *movers ? MAP_P2P : MAP_NONE);
}

Test(select, moves_wished)
{
	wish_moves(NULL, 4096, "store,sdma", 4096);
	wish_moves("store", 4096, "store", UINT64_MAX);
	wish_moves("sdma", 4096, "sdma", UINT64_MAX);
	wish_moves("sdma,store", 4096, "sdma,store", 4096);
	wish_moves("-store", 4096, "sdma", UINT64_MAX);
	wish_moves("-verbs", 0, "store,sdma", 0);
	wish_moves(NULL, UINT64_MAX, "store", UINT64_MAX);
	wish_moves("sdma", UINT64_MAX, "", UINT64_MAX);
	wish_moves("verbs", 4096, "", UINT64_MAX);
}

Test(select, reason_is_cut_not_overrun)
{
	struct rank_info me = someone(0, 1, 1, 0), peer = someone(1, 1, 1, 0);
	struct pair_facts facts = { .peer_code = -EACCES };
	struct route route;
	char wish[600];

	memset(facts.peer_reason, 'x', DEVICE_REASON - 1);
	memset(wish, ',', sizeof(wish) - 1);
	memcpy(wish, "rdma", 4);
	wish[sizeof(wish) - 1] = '\0';
	facts.maps = wish;
	cr_expect_eq(route_select(&me, &peer, &facts, &route), -EHOSTUNREACH);
	cr_expect_eq(strlen(route.reason), LINK_REASON - 1);
}

Test(select, tables)
{
	static const char *const maps[] = { "none", "self", "p2p", "ipc", "rdma" };
	static const char *const movers[] = { "store", "sdma", "verbs" };

	_Static_assert(ARRAY_SIZE(maps) == LINK_MAPS, "each map is named here");
	_Static_assert(ARRAY_SIZE(movers) == LINK_MOVERS, "each mover is named here");
	for (int i = 0; i < LINK_MAPS; i++) {
		const struct map_ops *ops = map_ops((enum map_kind)i);

		cr_expect_str_eq(map_name((enum map_kind)i), maps[i]);
		cr_expect(!ops || (!strcmp(ops->name, maps[i]) && ops->attach && ops->detach));
		cr_expect_eq(ops != NULL, i != MAP_NONE);
	}
	for (int i = 0; i < LINK_MOVERS; i++) {
		const struct mover_ops *ops = mover_ops((enum mover_kind)i);

		cr_expect_str_eq(mover_name((enum mover_kind)i), movers[i]);
		cr_expect_not_null(ops);
		cr_expect(ops &&
			(!strcmp(ops->name, movers[i]) && ops->put && ops->get && ops->signal &&
				ops->atomic && ops->fence && ops->quiet && ops->close));
	}
	cr_expect_str_eq(map_name((enum map_kind) - 1), "unknown");
	cr_expect_str_eq(mover_name((enum mover_kind)77), "unknown");
	cr_expect_null(map_ops(LINK_MAPS));
	cr_expect_null(mover_ops(LINK_MOVERS));
}

Test(select, movers_text_is_cut)
{
	struct route route = { .movers = { MOVER_STORE, MOVER_SDMA }, .nmovers = 2 };
	char text[16];

	for (size_t size = 1; size <= sizeof(text); size++) {
		memset(text, '!', sizeof(text));
		route_movers(&route, text, size);
		cr_expect_eq(strlen(text), MIN_OF(size - 1, strlen("store,sdma")));
	}
}

Test(select, line)
{
	struct route route = { .map = MAP_P2P,
		.movers = { MOVER_STORE, MOVER_SDMA },
		.nmovers = 2,
		.threshold = 65536,
		.reason = "why" };
	char line[64];

	cr_expect_eq(route_format(2, 5, 9, &route, line, sizeof(line)), 30);
	cr_expect_str_eq(line, "2 5-9 p2p store,sdma 65536 why");
	route = (struct route){ .reason = "no way" };
	route_format(0, 1, 1, &route, line, sizeof(line));
	cr_expect_str_eq(line, "0 1 none - - no way");
}

/* ---- recorded machines */

static const struct machine {
	char name[24];	    /* no pointer: parameters are copied to another process */
	int ranks, reached; /* pairs with a route */
} machines[] = {
	{ "mi300x-8", 8, 64 },
	{ "mi300x-cpx-64", 64, 64 * 64 },
	{ "h200-8", 8, 64 },
	{ "two-nodes-of-8", 16, 2 * 64 },
	{ "vm-without-p2p", 4, 4 },
	{ "laptop", 8, 64 },
	{ "processes-1-3-4", 8, 63 },
	{ "rack-72", 72, 18 * 16 },
};

static void fixture(const struct machine *m, const char *suffix, char path[512])
{
	const char *source = getenv("SPMT_SOURCE");

	snprintf(path, 512, "%s/tests/fixtures/%s.%s", source ? source : ".", m->name, suffix);
}

/* Compares each line with the next of the file. */
static void next_line(void *ctx, const char *text)
{
	char want[1024];

	cr_assert(fgets(want, sizeof(want), ctx), "more lines than expected: %s", text);
	want[strcspn(want, "\n")] = '\0';
	cr_assert_str_eq(text, want);
}

static int reached(const struct topo *topo)
{
	struct rank_info me, peer;
	struct pair_facts facts;
	struct route route;
	int n = topo_nranks(topo), count = 0;

	for (int i = 0; i < n * n; i++) {
		replay_pair(topo, i / n, i % n, &me, &peer, &facts);
		count += !route_select(&me, &peer, &facts, &route);
	}
	return count;
}

ParameterizedTestParameters(select, machine)
{
	return cr_make_param_array(
		struct machine, (void *)(uintptr_t)machines, ARRAY_SIZE(machines));
}

/* SPMT_NEW_ROUTES=<dir> writes what is chosen now, to be read before it replaces what stands. */
static void write_line(void *ctx, const char *text)
{
	fprintf(ctx, "%s\n", text);
}

static void write_routes(const struct machine *m, const struct topo *topo, const char *dir)
{
	struct replay_wish all = { .last = m->ranks - 1 };
	char path[512];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s.routes", dir, m->name);
	out = fopen(path, "w");
	cr_assert(out, "%s", path);
	replay_routes(topo, &all, write_line, out);
	fclose(out);
}

ParameterizedTest(const struct machine *m, select, machine)
{
	struct replay_wish all = { .last = m->ranks - 1 };
	const char *dir = getenv("SPMT_NEW_ROUTES");
	struct topo *topo = NULL;
	char path[512];
	FILE *want;

	fixture(m, "topo", path);
	cr_assert_eq(topo_read(path, &topo), 0, "%s", status_sentence());
	cr_assert_eq(topo_nranks(topo), m->ranks);
	if (dir)
		write_routes(m, topo, dir);
	fixture(m, "routes", path);
	want = fopen(path, "r");
	cr_assert(want, "%s", path);
	cr_expect_eq(replay_routes(topo, &all, next_line, want), 0);
	cr_expect_eq(fgetc(want), EOF, "fewer lines than expected");
	fclose(want);
	cr_expect_eq(reached(topo), m->reached);
	topo_free(topo);
}

static void ignore_line(void *ctx, const char *text)
{
	(void)ctx, (void)text;
}

Test(select, rows_out_of_range)
{
	static const struct replay_wish bad[] = { { .first = -1 }, { .last = 8 },
		{ .first = 3, .last = 2 } };
	struct topo *topo = NULL;
	char path[512];

	fixture(&machines[5], "topo", path);
	cr_assert_eq(topo_read(path, &topo), 0, "%s", status_sentence());
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_expect_eq(replay_routes(topo, &bad[i], ignore_line, NULL), -EINVAL);
	topo_free(topo);
}
