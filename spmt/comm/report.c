/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "gather.h"
#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/coll/table.h"

/* "0-3, 6": runs of numbers that rise by one; what would fill the line is cut. */
struct report_runs {
	int first, last, n;
};

#define RUNS_MOST 16

static void report_runs_end(struct text *l, struct report_runs *r)
{
	if (r->n && r->n <= RUNS_MOST)
		text_add(l, r->last > r->first ? "%s%d-%d" : "%s%d", r->n > 1 ? ", " : "", r->first,
			r->last);
	else if (r->n == RUNS_MOST + 1)
		text_add(l, ", ..");
}

static void report_runs_add(struct text *l, struct report_runs *r, int number)
{
	if (r->n && number == r->last + 1) {
		r->last = number;
		return;
	}
	report_runs_end(l, r);
	*r = (struct report_runs){ number, number, r->n + 1 };
}

static void report_add_local(struct text *l, const spmt_comm *comm, bool devices)
{
	struct report_runs runs = { .n = 0 };

	for (int r = 0; r < comm->nranks; r++)
		if (comm_is_local(comm, r))
			report_runs_add(l, &runs, devices ? comm->world->infos[r].settled : r);
	report_runs_end(l, &runs);
}

static void report_add_size(struct text *l, uint64_t bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	size_t unit = 0;

	for (; bytes && bytes % 1024 == 0 && unit + 1 < ARRAY_SIZE(units); unit++)
		bytes /= 1024;
	text_add(l, "%llu %s", (unsigned long long)bytes, units[unit]);
}

#define KINDS_MOST 6

/* Of this rank's routes, how many are of which kind: "1 self by store, 7 p2p by store,sdma". */
static void report_add_routes(struct text *l, const spmt_comm *comm)
{
	char kinds[KINDS_MOST][64];
	int n[KINDS_MOST] = { 0 }, known = 0;

	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct route *route = &comm->links[pe].route;
		char movers[32], kind[64];
		int k = 0;

		route_movers(route, movers, sizeof(movers));
		snprintf(kind, sizeof(kind), "%s by %s", map_name(route->map), movers);
		while (k < known && strcmp(kinds[k], kind) != 0)
			k++;
		if (k == KINDS_MOST)
			continue;
		memcpy(kinds[k], kind, sizeof(kind));
		known = MAX_OF(known, k + 1);
		n[k]++;
	}
	for (int k = 0; k < known; k++)
		text_add(l, "%s%d %s", k ? ", " : "", n[k], kinds[k]);
}

static bool log_asked(enum log_level level)
{
	const struct env *env = env_loaded();

	return env && env->log >= (int)level;
}

void report_world(const spmt_comm *comm, int64_t begin)
{
	struct text l = { .used = 0 };

	if (!log_asked(LOG_INFO) || gather_nth(comm, 0) != comm->rank)
		return;
	text_add(&l, "world %016llx of %d ranks: ", world_label(comm->world), comm->nranks);
	report_add_local(&l, comm, false);
	text_add(&l, " in process %d, backend %s, devices ", (int)getpid(), comm->backend->name);
	report_add_local(&l, comm, true);
	text_add(&l, ", heaps of ");
	report_add_size(&l, comm->heap->size);
	text_add(
		&l, " (%s), routes of rank %d: ", comm->heap->range ? "vmm" : "static", comm->rank);
	report_add_routes(&l, comm);
	text_add(&l, ", slots of %u bytes, collectives by %s", comm->slot_room,
		comm->coll_wanted < 0 ? "kind and size" : coll_rows[comm->coll_wanted].name);
	log_line(LOG_INFO, "%s; init took %.1f ms", l.bytes, (double)(process_now() - begin) / 1e6);
}

void report_broken(const struct world *world, int rank, const struct cause *cause)
{
	char who[32] = "";

	if (rank >= 0)
		snprintf(who, sizeof(who), "rank %d: ", rank);
	log_line(LOG_ERROR, "world %016llx of %d ranks is broken (%s%s): %.*s", world_label(world),
		world->nranks, who, status_text(cause->code), STATUS_SENTENCE - 1, cause->sentence);
}

void report_part_broken(const spmt_comm *comm, const struct cause *cause)
{
	log_line(LOG_ERROR, "a part of %d ranks of world %016llx is broken (rank %d: %s): %.*s",
		comm->nranks, world_label(comm->world), comm_world_rank(comm, comm->rank),
		status_text(cause->code), STATUS_SENTENCE - 1, cause->sentence);
}
