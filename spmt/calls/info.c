/* SPDX-License-Identifier: MIT */
/* Queries: rank and size of a comm, routes, capabilities, statistics. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/record.h"
#include "spmt/control/exclusive.h"
#include "spmt/lane/lane.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/guard.h"
#include "src/kernels/area.h"
#include "view.h"

/* Sizes of the first struct spmt_route and struct spmt_stats: a program compiled then still calls. */
#define ROUTE_FIRST offsetof(struct spmt_route, process)
#define STATS_FIRST                                     \
	(offsetof(struct spmt_stats, longest_wait_ns) + \
		sizeof(((struct spmt_stats *)NULL)->longest_wait_ns))

/* ---- the world's state --------------------------------------------------------------------- */

int spmt_status(spmt_comm *comm)
{
	TRACED(comm, __func__);
	int rc = comm_visit(comm, "spmt_status");

	if (rc)
		return rc;
	comm_look(comm);
	comm_inherit(comm);
	if (atomic_load(&comm->control->stop)) {
		comm_stop(comm);
		rc = world_broken(comm->world, comm->control, "spmt_status", 0);
	} else {
		rc = kernel_looks(comm, "spmt_status");
	}
	comm_left(comm);
	return rc;
}

int spmt_abort(spmt_comm *comm, int code)
{
	TRACED(comm, __func__);
	struct text text = { .used = 0 };
	struct cause cause;
	int rc = comm_visit(comm, "spmt_abort");

	if (rc)
		return rc;
	text_add(&text, "spmt_abort: rank %d aborted ", comm->rank);
	if (comm->lane)
		text_add(&text, "lane %llu", (unsigned long long)comm->lane->key);
	else
		text_add(&text, "the %s", comm->parent ? "comm" : "world");
	text_add(&text, " with code %d", code);
	cause_set(&cause, code < 0 ? code : SPMT_ERR_ABORTED, "spmt_abort", text.bytes);
	comm_break(comm, &cause);
	comm_left(comm);
	return 0;
}

int spmt_set_timeout(spmt_comm *comm, int64_t timeout_ms)
{
	TRACED(comm, __func__);
	int rc = comm_visit(comm, "spmt_set_timeout");

	if (rc)
		return rc;
	timeout_ms = timeout_ms ? MIN_OF(timeout_ms, TIMEOUT_MOST) : comm->default_timeout_ms;
	atomic_store_explicit(&comm->timeout_ms, timeout_ms, memory_order_relaxed);
	comm_left(comm);
	return 0;
}

/* ---- who ----------------------------------------------------------------------------------- */

/* The int that lies `at` bytes into the comm, read while finalize waits. */
static int who(const spmt_comm *comm, const char *what, size_t at)
{
	spmt_comm *c = (spmt_comm *)(uintptr_t)comm;
	int rc = comm_visit(c, what);

	if (rc)
		return rc;
	memcpy(&rc, (const char *)comm + at, sizeof(rc));
	comm_left(c);
	return rc;
}

int spmt_rank(const spmt_comm *comm)
{
	return who(comm, "spmt_rank", offsetof(struct spmt_comm, rank));
}

int spmt_nranks(const spmt_comm *comm)
{
	return who(comm, "spmt_nranks", offsetof(struct spmt_comm, nranks));
}

int spmt_device(const spmt_comm *comm)
{
	return who(comm, "spmt_device", offsetof(struct spmt_comm, dev));
}

const char *spmt_backend(const spmt_comm *comm)
{
	spmt_comm *c = (spmt_comm *)(uintptr_t)comm;
	const char *name;

	if (comm_visit(c, "spmt_backend"))
		return NULL;
	name = comm->backend->name;
	comm_left(c);
	return name;
}

static int route_fill(const spmt_comm *comm, int pe, struct spmt_route *route)
{
	struct spmt_route whole = { .pe = pe };
	struct route now;

	if (!comm_has_pe(comm, pe))
		return comm_refuse_pe(comm, "spmt_route", pe);
	if (!route)
		return fail_call(-EINVAL, "spmt_route", "rank %d: route is NULL", comm->rank);
	if (route->size < ROUTE_FIRST)
		return fail_call(-EINVAL, "spmt_route",
			"rank %d: route->size %zu: set it to sizeof(struct spmt_route)", comm->rank,
			route->size);
	link_route(&comm->links[pe], &now);
	whole.process = world_process(comm->world, comm_world_rank(comm, pe));
	whole.device = comm->world->infos[comm_world_rank(comm, pe)].settled;
	snprintf(whole.map, sizeof(whole.map), "%s", map_name(now.map));
	route_movers(&now, whole.movers, sizeof(whole.movers));
	whole.threshold = now.threshold;
	snprintf(whole.reason, sizeof(whole.reason), "%.*s", LINK_REASON - 1, now.reason);
	whole.size = route->size;
	memcpy(route, &whole, MIN_OF(route->size, sizeof(whole)));
	return 0;
}

int spmt_route(spmt_comm *comm, int pe, struct spmt_route *route)
{
	TRACED(comm, __func__);
	int rc = comm_visit(comm, "spmt_route");

	if (rc)
		return rc;
	rc = route_fill(comm, pe, route);
	comm_left(comm);
	return rc;
}

/* ---- what it can do ------------------------------------------------------------------------ */

static bool has_multicast(spmt_comm *comm)
{
	bool has;

	if (!view_multicast_wanted() || comm->nranks == 1)
		return false;
	KEEPS_SENTENCE;
	has = !view_multicast(comm, 0, 0, NULL);
	return has;
}

static int query(spmt_comm *comm, enum spmt_cap cap, int64_t *value)
{
	if (!value)
		return fail_call(-EINVAL, "spmt_query", "rank %d: value is NULL", comm->rank);
	switch (cap) {
	case SPMT_CAP_VMM:
		*value = comm->heap->range != NULL;
		return 0;
	case SPMT_CAP_IPC:
		*value = comm->backend->ipc != NULL;
		return 0;
	case SPMT_CAP_GRAPH:
		*value = 1; /* every backend's streams can be captured */
		return 0;
	case SPMT_CAP_COPY_ENGINES:
		*value = comm->backend->store_threshold < UINT64_MAX;
		return 0;
	case SPMT_CAP_MULTICAST:
		*value = has_multicast(comm);
		return 0;
	case SPMT_CAP_RESIDENT_BLOCKS:
		*value = comm->units;
		return 0;
	case SPMT_CAP_HOST_ACCESS:
		*value = comm_cpu_access(comm);
		return 0;
	case SPMT_CAP_STORE_THRESHOLD:
		*value = (int64_t)MIN_OF(comm->links[comm->rank].threshold, (uint64_t)INT64_MAX);
		return 0;
	case SPMT_CAP_HEAP_SIZE:
		*value = (int64_t)(comm->heap->size - (comm->heap->check ? CHECK_ROOM : 0));
		return 0;
	case SPMT_CAP_BARRIERS:
		*value = AREA_SESSIONS;
		return 0;
	case SPMT_CAP_CHANNELS:
		*value = AREA_CHANNELS;
		return 0;
	}
	return fail_call(
		-EINVAL, "spmt_query", "rank %d: unknown capability %d", comm->rank, (int)cap);
}

int spmt_query(spmt_comm *comm, enum spmt_cap cap, int64_t *value)
{
	TRACED(comm, __func__);
	int rc = comm_visit(comm, "spmt_query");

	if (rc)
		return rc;
	rc = query(comm, cap, value);
	comm_left(comm);
	return rc;
}

int spmt_device_count(const char *backend, int *count)
{
	UNCANCELLED;
	const struct backend *b;
	struct status_saved saved;
	int rc;

	if (!count)
		return fail_call(-EINVAL, "spmt_device_count", "count is NULL");
	status_save(&saved);
	rc = device_select(backend, &b);
	if (rc)
		return fail_call(rc, "spmt_device_count", "%s", status_sentence());
	status_restore(&saved); /* backends without devices were passed over */
	return b->count(count);
}

/* ---- counters ------------------------------------------------------------------------------ */

static void stats_add(struct spmt_stats *s, const struct link *link)
{
	struct spmt_mover_stats *const movers[LINK_MOVERS] = { &s->store, &s->sdma, &s->verbs };

	for (int m = 0; m < LINK_MOVERS; m++) {
		uint64_t ops = atomic_load_explicit(&link->ops[m], memory_order_relaxed);
		uint64_t bytes = atomic_load_explicit(&link->bytes[m], memory_order_relaxed);

		movers[m]->ops += ops;
		movers[m]->bytes += bytes;
		s->ops += ops;
		s->bytes += bytes;
	}
}

static int stats_fill(const spmt_comm *comm, int pe, struct spmt_stats *stats)
{
	struct spmt_stats s = { .size = sizeof(s) };

	if (pe != -1 && !comm_has_pe(comm, pe))
		return comm_refuse_pe(comm, "spmt_stats", pe);
	if (!stats)
		return fail_call(-EINVAL, "spmt_stats", "rank %d: stats is NULL", comm->rank);
	if (stats->size < STATS_FIRST)
		return fail_call(-EINVAL, "spmt_stats",
			"rank %d: stats->size %zu: set it to sizeof(struct spmt_stats)", comm->rank,
			stats->size);
	for (int i = 0; i < comm->nranks; i++)
		if (pe == -1 || pe == i)
			stats_add(&s, &comm->links[i]);
	s.waits = atomic_load_explicit(&comm->waits, memory_order_relaxed);
	s.longest_wait_ns = atomic_load_explicit(&comm->longest_ns, memory_order_relaxed);
	s.size = stats->size;
	memcpy(stats, &s, MIN_OF(stats->size, sizeof(s)));
	return 0;
}

int spmt_stats(spmt_comm *comm, int pe, struct spmt_stats *stats)
{
	TRACED(comm, __func__);
	int rc = comm_visit(comm, "spmt_stats");

	if (rc)
		return rc;
	rc = comm->lane
		? fail_call(SPMT_ERR_UNSUPPORTED, "spmt_stats",
			  "rank %d: a lane counts nothing: ask the comm that it is a lane of",
			  comm->rank)
		: stats_fill(comm, pe, stats);
	comm_left(comm);
	return rc;
}

/* ---- guard --------------------------------------------------------------------------------- */

void spmt_guard_enter(spmt_comm *comm, struct spmt_guard *guard)
{
	struct guard g = { .backend = NULL };
	int rc;

	if (!guard)
		return;
	*guard = (struct spmt_guard){ .backend = NULL };
	if (comm_visit(comm, "spmt_guard_enter"))
		return;
	rc = guard_enter(&g, comm->backend, comm->dev);
	comm_left(comm);
	if (rc)
		return;
	*guard = (struct spmt_guard){ .backend = g.backend,
		.context = g.saved.context,
		.ordinal = g.saved.ordinal,
		.error = g.saved.error };
}

void spmt_guard_leave(struct spmt_guard *guard)
{
	struct guard g;

	if (!guard)
		return;
	g = (struct guard){ .backend = guard->backend,
		.saved = { .ordinal = guard->ordinal,
			.error = guard->error,
			.context = guard->context } };
	guard_leave(&g);
	guard->backend = NULL;
}

/* ---- the library --------------------------------------------------------------------------- */

const char *spmt_strerror(int code)
{
	return status_text(code);
}

const char *spmt_last_error(void)
{
	return status_sentence();
}
