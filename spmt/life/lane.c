/* SPDX-License-Identifier: MIT */
/* Lanes as comms: handles that their ranks make without each other. */
#include "lane.h"

#include <errno.h>
#include <time.h>

#include "claim.h"
#include "split.h"
#include "spmt/calls/keyed.h"
#include "spmt/calls/view.h"
#include "spmt/collective/far.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "spmt/lane/lanes.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/area.h"

/* ---- where ranks meet in kernels ------------------------------------------------------------- */

/* Lanes alive or broken (KEYS_ROWS for a world): for a multi-process world on the host backend, and for a part. */
enum { LANES_HOST = 128, LANES_PART = 32 };

/*
 * A lane whose ranks meet in kernels has a library area of two parts: the head (struct spmtd_own and its inboxes) and what begins at
 * area_begin (struct area, its inboxes, factors and words for few blocks, as many lanes may wait on a device at once); it has no sessions,
 * channels or slots. The room between the two parts holds the heads of many lanes, and as much room after it the rest of each. Below: the
 * distance between lanes; where the n-th area begins, after the first; and the room that n take.
 */
static uint64_t area_lane_step(int npes)
{
	uint64_t rest = spmtd_at_(area_more_blocks_at(0, npes, 0)) - area_begin(0, npes);

	return MAX_OF(area_sessions(0, npes), rest);
}

static uint64_t area_lane(int npes, uint64_t n)
{
	uint64_t step = area_lane_step(npes), group = area_begin(0, npes), most = group / step;

	return n / most * 2 * group + n % most * step;
}

static uint64_t area_lanes_size(int npes, uint64_t n)
{
	uint64_t group = area_begin(0, npes), step = area_lane_step(npes), most = group / step;

	return n ? (n - 1) / most * 2 * group + group + ((n - 1) % most + 1) * step : 0;
}

/* All its ranks live where this one sees one control block. */
static bool shares_control(const spmt_comm *comm)
{
	for (int pe = 0; pe < comm->nranks; pe++)
		if (!meet_is_near(comm, pe))
			return false;
	return true;
}

/* Nothing is allocated when a lane is made: a vendor's allocation may wait for kernels, which may wait for a peer. */
static int lane_room(const spmt_comm *comm)
{
	bool spans = comm_spans_processes(comm);

	if ((!spans && (comm_cpu_access(comm) || far_possible(comm))) || !shares_control(comm))
		return 0;
	if (comm->parent)
		return LANES_PART;
	return comm_cpu_access(comm) ? LANES_HOST : KEYS_ROWS;
}

uint64_t lane_areas(spmt_comm *comm, uint64_t before)
{
	comm->nlanes = lane_room(comm);
	return comm->nlanes ? align_up(before, CACHE_LINE) - before +
			area_lanes_size(comm->nranks, (uint64_t)(unsigned)comm->nlanes)
			    : 0;
}

/* From the beginning of a comm's library area, the same on all ranks. */
static uint64_t lane_at(const spmt_comm *comm, int index)
{
	return align_up(area_size(comm->nranks, comm->slot_room), CACHE_LINE) +
		area_lane(comm->nranks, (uint64_t)(unsigned)index);
}

/* A lane's signals, and its stop word; of all lanes of the world, as parts have no more than its table has rows. */
int lane_signals_open(spmt_comm *comm)
{
	return far_possible(comm) && !comm_spans_processes(comm)
		? 0
		: pinned_for_lanes(comm, 2 * (size_t)KEYS_ROWS);
}

int lane_tables_open(spmt_comm *comm)
{
	size_t n = (size_t)comm->nranks, rows = (size_t)comm->nlanes * n;
	const struct spmtd_peer *peers = comm->peers.host;
	struct spmtd_peer *table;
	int rc;

	if (!rows || comm->flat)
		return 0;
	rc = table_open(comm, rows * sizeof(*table), &comm->lane_peers);
	if (rc)
		return rc;
	table = comm->lane_peers.host;
	for (size_t i = 0; i < rows; i++) {
		table[i] = peers[i % n];
		if (table[i].own)
			table[i].own += lane_at(comm, (int)(i / n));
	}
	return table_publish(comm, &comm->lane_peers);
}

/* So that what its kernels leave is found. */
static void kernels_list(spmt_comm *comm)
{
	struct world *w = comm->world;

	pthread_mutex_lock(&w->lock);
	comm->next_here = w->comms;
	w->comms = comm;
	pthread_mutex_unlock(&w->lock);
}

static int kernels_open(spmt_comm *comm)
{
	const spmt_comm *parent = comm->parent;
	size_t row = (size_t)comm->nranks * sizeof(struct spmtd_peer);
	struct comm_lane *lane = comm->lane;
	int rc;

	comm->id = lane->id;
	comm->units = MIN_OF(comm->units, (int)AREA_LANE_BLOCKS);
	if (parent->lane_peers.dev)
		comm->peers.dev = (char *)parent->lane_peers.dev +
			(size_t)(unsigned)lane->place.in.area * row;
	rc = signals_open(comm);
	if (!rc)
		rc = comm->backend->stream_create(comm->dev, &comm->stream);
	if (rc) {
		pinned_return(comm);
		return rc;
	}
	view_prepare(comm);
	lane_raises(lane, &comm->stop_word->stop);
	comm->lane_area = comm_own(parent) + lane_at(parent, lane->place.in.area);
	kernels_list(comm);
	return 0;
}

static void kernels_close(spmt_comm *comm)
{
	comm->lane_area = NULL;
	streams_drop(comm);
	comm->backend->stream_destroy(comm->dev, comm->stream);
	world_comm_unlist(comm);
}

/* ---- handles --------------------------------------------------------------------------------- */

static spmt_comm *handle_begin(spmt_comm *parent, struct comm_lane *lane)
{
	spmt_comm *comm = world_comm_take();

	if (!comm)
		return NULL;
	comm->rank = parent->rank;
	comm->nranks = parent->nranks;
	comm->parent = parent;
	comm->world = parent->world;
	comm->slot = parent->slot;
	comm->heap = parent->heap;
	comm->links = parent->links;
	comm->wake_counters = parent->wake_counters;
	comm->world_ranks = parent->world_ranks;
	comm->backend = parent->backend;
	comm->dev = parent->dev;
	comm->units = parent->units;
	comm->far = parent->far;
	comm->coll_wanted = -1;
	comm->id = parent->id;
	comm->default_timeout_ms = parent->default_timeout_ms;
	atomic_store(&comm->timeout_ms, comm_timeout(parent));
	comm->lane = lane;
	comm->control = lane->control;
	comm->raised = control_stop_word(lane->control);
	return comm;
}

static int handle_make(spmt_comm *parent, struct comm_lane *lane, spmt_comm **out)
{
	spmt_comm *comm;
	int rc = 0;

	/* it is misuse, and this sees it where the others are waited for */
	if (atomic_load(&parent->head.inside) == comm_ending)
		return comm_busy(parent, "spmt_lane", comm_ending);
	comm = handle_begin(parent, lane);
	if (!comm)
		return fail(-ENOMEM, "out of memory for a lane");
	if (parent->nlanes)
		rc = kernels_open(comm);
	if (rc) {
		world_comm_give(comm);
		return rc;
	}
	tree_add(comm);
	comm_set_live(comm);
	comm_unclaim(comm);
	*out = comm;
	return 0;
}

/* Which library areas the key names, on all ranks alike. -ECANCELED, without a sentence: the world is broken. */
static int place_find(spmt_comm *parent, uint64_t key, struct lane_place *place)
{
	struct control *control = atomic_load(&parent->world->control);
	int64_t ms = comm_timeout(parent);
	int rc;

	place->keys = control_keys(control, parent->world->nranks);
	place->stop = control_stop_word(control);
	rc = keys_enter(place->keys,
		&(struct keys_want){ .comm = parent->id,
			.key = key,
			.areas = parent->nlanes,
			.most_ns = ms < 0 ? -1 : ms * 1000000,
			.stop = place->stop },
		&place->in);
	switch (rc) {
	case -ENOMEM:
		return fail_rank(rc, parent->rank,
			"as many lanes as there is room for are alive or have broken: %d of a %s of backend %s, %d of a world and its parts",
			parent->nlanes, parent->parent ? "part" : "world", parent->backend->name,
			KEYS_ROWS);
	case -ETIMEDOUT:
		return fail_rank(SPMT_ERR_TIMEOUT, parent->rank,
			"another process has not given back the table of lanes after %.*f s",
			SECONDS((double)ms / 1e3));
	case -EIO:
		return fail_rank(SPMT_ERR_BROKEN, parent->rank,
			"a process has overwritten the table of lanes");
	default:
		return rc;
	}
}

/* Under the lock. */
static int lane_make(spmt_comm *parent, struct lanes *all, uint64_t key, struct comm_lane **lane)
{
	struct lane_place place;
	int rc = parent->nlanes ? place_find(parent, key, &place) : 0;

	if (rc)
		return rc;
	*lane = lanes_add(all, parent->id, key, parent->nranks, parent->nlanes ? &place : NULL);
	return *lane ? 0 : fail(-ENOMEM, "out of memory for a lane");
}

/* Two threads that ask at once get the same. */
static int handle_get(spmt_comm *parent, struct lanes *all, uint64_t key, spmt_comm **out)
{
	struct comm_lane *lane;
	spmt_comm *comm = NULL;
	int rc = 0;

	lanes_lock(all);
	lane = lanes_find(all, parent->id, key);
	if (!lane)
		rc = lane_make(parent, all, key, &lane);
	if (!rc)
		comm = lanes_user(lane, parent->rank);
	if (!rc && !comm) {
		rc = handle_make(parent, lane, &comm);
		if (!rc)
			lanes_enter(lane, parent->rank, comm);
		else
			lanes_drop(lane);
	}
	lanes_unlock(all);
	if (rc == -ECANCELED) /* not before: what breaks a world locks the table */
		return comm_spoiled(parent, "spmt_lane");
	if (!rc)
		*out = comm;
	return rc;
}

static int lane_check(spmt_comm *parent, spmt_comm **out, const char *what)
{
	if (parent->lane)
		return fail_call(-EINVAL, what,
			"rank %d: the comm is a lane, which has no lanes of its own", parent->rank);
	if (!out)
		return fail_call(-EINVAL, what, "rank %d: lane is NULL", parent->rank);
	if (!shares_control(parent))
		return fail_call(SPMT_ERR_UNSUPPORTED, what,
			"rank %d: the ranks live on several nodes, and what keys name is known to one alone: lanes are for ranks of one",
			parent->rank);
	if (parent->far.map)
		return fail_call(SPMT_ERR_UNSUPPORTED, what,
			"rank %d: rank %d reaches rank %d by map %s, through which the kernels of a lane cannot meet",
			parent->rank, parent->far.rank, parent->far.peer,
			map_name(parent->far.map));
	if (!parent->nlanes && !comm_cpu_access(parent))
		return fail_call(SPMT_ERR_UNSUPPORTED, what,
			"rank %d: SPMT_MAPS may have NICs reach peers, through which the kernels of a lane cannot meet",
			parent->rank);
	return comm_is_broken(parent) ? comm_enter(parent, what) : 0;
}

int spmt_lane(spmt_comm *parent, uint64_t key, spmt_comm **out)
{
	UNCANCELLED;
	static const char what[] = "spmt_lane";
	TRACED(parent, what);
	struct lanes *all;
	spmt_comm *comm = NULL;
	int rc = comm_visit(parent, what);

	if (rc)
		return rc;
	rc = lane_check(parent, out, what);
	if (!rc) {
		all = lanes_of(&parent->world->lanes);
		rc = all ? handle_get(parent, all, key, &comm)
			 : fail(-ENOMEM, "out of memory for a lane");
		rc = comm_failed(parent, what, rc);
	}
	if (!rc) {
		/* it may have broken before it knew of the lane, which another thread may be ending */
		comm_inherit_lanes(parent);
		*out = comm;
	}
	comm_left(parent);
	return rc;
}

/* ---- the end --------------------------------------------------------------------------------- */

void lane_forget(const spmt_comm *comm)
{
	struct control *control = atomic_load(&comm->world->control);

	if (comm->nlanes)
		keys_forget(control_keys(control, comm->world->nranks), comm->id,
			control_stop_word(control));
}

static void lane_abandon(const spmt_comm *comm)
{
	struct text text = { .used = 0 };
	struct cause cause;

	text_add(&text, "spmt_finalize: lane %llu: rank %d has ended it",
		(unsigned long long)comm->lane->key, comm->rank);
	cause_set(&cause, SPMT_ERR_BROKEN, "spmt_finalize", text.bytes);
	lane_break(comm->lane, &cause);
}

void lane_leave(spmt_comm *comm)
{
	lane_abandon(comm);
	comm_unclaim(comm);
}

#define VISIT_NS 100000000ll /* calls that wait for nobody take less */

/* A call that another thread was in when the lane was closed may queue yet; or its kernel waits for ranks that come no more. What it
   has queued is there once it is seen to have left, so that is looked at first. */
void lane_settle(spmt_comm *comm)
{
	const struct timespec slice = { .tv_nsec = 50000 };
	int64_t until = process_now() + VISIT_NS;
	struct comm_lane *lane = comm->lane;

	for (;;) {
		bool visited = object_is_visited(&comm->head);

		if (lane_drain(lane, comm->rank, 0)) {
			lane_abandon(comm);
			lane_unstream(lane, comm->rank);
			lane_drain(lane, comm->rank, -1);
		}
		if (!visited)
			return;
		if (process_now() >= until && !lane_is_broken(lane))
			lane_abandon(comm);
		nanosleep(&slice, NULL);
	}
}

void lane_release(spmt_comm *comm)
{
	if (comm->lane_area) {
		/* never back: other threads may end whole ones meanwhile */
		if (lane_is_broken(comm->lane))
			__atomic_store_n(&comm->parent->keeps_area, true, __ATOMIC_RELAXED);
		kernels_close(comm);
	}
	streams_drop(comm); /* a lane that meets on the host has but what was registered */
	lanes_leave(comm->lane, comm->rank);
	mem_free(comm->ops);
	comm->ops = NULL;
	pinned_return(comm); /* a lane that breaks meanwhile writes its stop word */
	tree_remove(comm);   /* from here on its world may end */
	world_comm_give(comm);
}
