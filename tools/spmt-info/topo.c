/* SPDX-License-Identifier: MIT */
/* A recorded machine: what it has, and the routes that the library would choose on it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "tools/topo/replay.h"
#include "topo.h"

static const char *numa_text(uint64_t numa, char *text, size_t room)
{
	if (numa == TOPO_NO_NUMA)
		snprintf(text, room, "-");
	else
		snprintf(text, room, "%llu", (unsigned long long)numa);
	return text;
}

static void print_device(const struct topo_device *d)
{
	char numa[24];

	printf("    device %3llu  %-5s %-28s %-8s %7.1f GiB  numa %s  pci %s%s\n",
		(unsigned long long)d->index, d->backend, d->name, d->arch,
		(double)d->memory / (1 << 30), numa_text(d->numa, numa, sizeof(numa)),
		d->pci[0] ? d->pci : "-", d->ipc ? "  ipc" : "");
}

static void print_nic(const struct topo_nic *nic)
{
	char numa[24];

	printf("    nic %-10s numa %s  pci %s", nic->name, numa_text(nic->numa, numa, sizeof(numa)),
		nic->pci[0] ? nic->pci : "-");
	if (nic->gbits)
		printf("  %llu Gbit/s", (unsigned long long)nic->gbits);
	printf("%s\n", nic->rdma ? "  rdma" : "");
}

static void print_host(const struct topo *t, int host, bool devices)
{
	printf("  host %s, %llu CPUs\n", t->hosts[host].name,
		(unsigned long long)t->hosts[host].cpus);
	for (int i = 0; i < t->nnumas; i++)
		if (t->numas[i].host == host)
			printf("    numa %llu  %llu CPUs  %.1f GiB\n",
				(unsigned long long)t->numas[i].node,
				(unsigned long long)t->numas[i].cpus,
				(double)t->numas[i].memory / (1 << 30));
	for (int i = 0; i < t->ndevices && devices; i++)
		if (t->devices[i].host == host)
			print_device(&t->devices[i]);
	for (int i = 0; i < t->nnics; i++)
		if (t->nics[i].host == host)
			print_nic(&t->nics[i]);
	for (int i = 0; i < t->npeers; i++) {
		const struct topo_peers *p = &t->peers[i];

		if (t->devices[p->from[0]].host == host)
			printf("    devices %llu-%llu to %llu-%llu  %s%s%s\n",
				(unsigned long long)t->devices[p->from[0]].index,
				(unsigned long long)t->devices[p->from[1]].index,
				(unsigned long long)t->devices[p->to[0]].index,
				(unsigned long long)t->devices[p->to[1]].index,
				topo_link_name((enum topo_link)p->link),
				p->reason[0] ? "  refused: " : "", p->reason);
	}
}

void topo_print(const struct topo *t, bool devices)
{
	printf("topology\n");
	for (int host = 0; host < t->nhosts; host++)
		print_host(t, host, devices);
}

/* ---- routes */

static void route_export(const struct route *in, int pe, struct spmt_route *out)
{
	*out = (struct spmt_route){ .size = sizeof(*out), .pe = pe, .threshold = in->threshold };
	if (in->map != MAP_NONE)
		snprintf(out->map, sizeof(out->map), "%s", map_name(in->map));
	route_movers(in, out->movers, sizeof(out->movers));
	snprintf(out->reason, sizeof(out->reason), "%s", in->reason);
}

static void route_one(
	const struct topo *t, const struct env *env, int rank, int pe, struct spmt_route *out)
{
	struct route route = { .map = MAP_NONE };
	struct pair_facts facts;
	struct rank_info me, peer;

	replay_pair(t, rank, pe, &me, &peer, &facts);
	facts.maps = env->maps;
	facts.moves = env->moves;
	if (env->threshold != ENV_SIZE_UNSET)
		facts.threshold = env->threshold;
	route_select(&me, &peer, &facts, &route);
	route_export(&route, pe, out);
}

int topo_routes(const struct topo *t, struct matrix *m)
{
	const struct env *env;
	int rc = env_get(&env);

	if (rc)
		return rc;
	if (topo_nranks(t) > MATRIX_MAX)
		return fail(-E2BIG, "%d ranks are recorded; a matrix has %d at most",
			topo_nranks(t), MATRIX_MAX);
	rc = matrix_make(topo_nranks(t), m);
	if (rc)
		return fail(rc, "no memory for the routes of %d ranks", topo_nranks(t));
	for (int rank = 0; rank < m->n; rank++)
		for (int pe = 0; pe < m->n; pe++)
			route_one(t, env, rank, pe, matrix_at(m, rank, pe));
	return 0;
}

int topo_write(const struct topo *t, const char *path)
{
	char *text;
	FILE *out;
	int rc = topo_format(t, &text);
	bool bad;

	if (rc)
		return rc;
	out = fopen(path, "we");
	bad = !out || fputs(text, out) < 0;
	if (out && fclose(out))
		bad = true;
	mem_free(text);
	return bad ? fail_errno(errno, "%s", path) : 0;
}
