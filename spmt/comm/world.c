/* SPDX-License-Identifier: MIT */
/* The table of worlds of this process: joining, leaving, looking up. Its lock is never held across a wait for another rank. */
#include <errno.h>
#include <string.h>

#include "broken.h"
#include "comm.h"
#include "gather.h"
#include "spmt/bootstrap/bootstrap.h"
#include "spmt/lane/lanes.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/base/tsan.h"
#include "waits.h"

/* rank -> comm for lookups without a lock; grows, is never freed. */
struct directory {
	int capacity;
	struct directory *retired;
	struct directory_entry {
		_Atomic(spmt_comm *) comm;
		_Atomic int dev;
	} entries[];
};

struct table {
	pthread_mutex_t lock; /* guards joining and leaving; zeroed is unlocked */
	struct object_pool worlds, comms;
	_Atomic(struct world *) first;
	_Atomic(spmt_comm *) deferred; /* comms that could not be released, by sibling */
	void *_Atomic proxy;
	atomic_bool original; /* no process that this one was forked from had a table */
};

static void *_Atomic table_pages;

static struct table *table(void)
{
	bool first = !atomic_load_explicit(&table_pages, memory_order_relaxed);
	struct table *t = process_state(&table_pages, sizeof(*t));

	if (first && t)
		atomic_store(&t->original, true);
	return t;
}

bool world_is_inherited(void)
{
	const struct table *t = atomic_load(&table_pages);

	return t && !atomic_load(&t->original);
}

void *_Atomic *world_proxy(void)
{
	struct table *t = table();

	return t ? &t->proxy : NULL;
}

static bool world_is(const struct world *world, const uint64_t id[2])
{
	return atomic_load_explicit(&world->id[0], memory_order_acquire) == id[0] &&
		atomic_load_explicit(&world->id[1], memory_order_acquire) == id[1];
}

static struct world *world_find(struct table *t, const uint64_t id[2])
{
	struct world *w = atomic_load_explicit(&t->first, memory_order_acquire);

	while (w && !world_is(w, id))
		w = atomic_load_explicit(&w->next, memory_order_acquire);
	return w;
}

bool world_is_only(const struct world *world)
{
	const struct world *w = atomic_load_explicit(&table()->first, memory_order_acquire);

	while (w && (w == world || !atomic_load_explicit(&w->id[0], memory_order_relaxed)))
		w = atomic_load_explicit(&w->next, memory_order_acquire);
	return !w;
}

/* ---- making a world, under the table's lock ------------------------------------------------ */

static int world_room(struct world *w, int nranks)
{
	struct directory *old = atomic_load(&w->directory);
	struct directory *dir;

	if (old && old->capacity >= nranks)
		return 0;
	/* The outgrown directory is kept, because a lookup may be reading it. Doubling bounds what is kept. */
	nranks = old ? MAX_OF(nranks, 2 * old->capacity) : nranks;
	dir = process_pages(sizeof(*dir) + (size_t)nranks * sizeof(dir->entries[0]));
	if (!dir)
		return -ENOMEM;
	dir->capacity = nranks;
	dir->retired = old;
	atomic_store_explicit(&w->directory, dir, memory_order_release);
	return 0;
}

static void world_empty(struct world *w)
{
	if (w->local)
		process_pages_free(w->local, w->local_size);
	mem_free(w->slots);
	mem_free(w->infos);
	mem_free(w->routes);
	w->local = NULL;
	atomic_store(&w->control, NULL);
	atomic_store(&w->gathering, 0);
	atomic_store(&w->made, false);
	atomic_store(&w->found, false);
	atomic_store(&w->node_state, 0);
	w->arrived = 0;
	w->slots = NULL;
	w->infos = NULL;
	w->routes = NULL;
	w->routes_size = 0;
	w->routes_ranks = 0;
	lanes_close(atomic_exchange(&w->lanes, NULL));
	heap_range_close(&w->range);
	memset(&w->range, 0, sizeof(w->range));
	w->plans.n = 0;
	w->range_state = 0;
}

static int world_fill(struct world *w, const struct uid *uid, int nranks, const struct env *env)
{
	w->local_size = control_world_size(nranks);
	w->local = process_pages(w->local_size);
	w->slots = mem_calloc((size_t)nranks, sizeof(*w->slots));
	w->infos = mem_calloc((size_t)nranks, sizeof(*w->infos));
	if (!w->local || !w->slots || !w->infos || world_room(w, nranks)) {
		world_empty(w);
		return fail_call(
			-ENOMEM, "spmt_init", "out of memory for a world of %d ranks", nranks);
	}
	w->uid = *uid;
	control_begin(w->local, nranks, world_label(w));
	atomic_store(&w->control, w->local);
	atomic_store(&w->meeting, &meeting_shared);
	w->nranks = nranks;
	w->cpus = process_cpus();
	w->spin_ns = nranks <= w->cpus ? env->spin * 1000 : 0;
	atomic_store_explicit(&w->id[1], uid->id[1], memory_order_relaxed);
	atomic_store_explicit(&w->id[0], uid->id[0], memory_order_release);
	return 0;
}

/* A free world of the list, or a new one at its end. */
static struct world *world_take(struct table *t)
{
	_Atomic(struct world *) *end = &t->first;
	struct world *w;

	while ((w = atomic_load(end))) {
		if (!w->members && !atomic_load(&w->id[0]) && !atomic_load(&w->id[1]))
			return w;
		end = &w->next;
	}
	w = object_take(&t->worlds, sizeof(*w));
	if (w)
		atomic_store_explicit(end, w, memory_order_release);
	return w;
}

static int world_make(struct table *t, const struct uid *uid, int nranks, struct world **world)
{
	const struct env *env;
	struct world *w;
	int rc = env_get(&env);

	if (rc)
		return rc;
	w = world_take(t);
	if (!w)
		return fail_call(-ENOMEM, "spmt_init", "out of memory for a world");
	rc = world_fill(w, uid, nranks, env);
	if (!rc)
		*world = w;
	return rc;
}

/* ---- joining ------------------------------------------------------------------------------- */

static bool world_making(const struct world *w)
{
	return !atomic_load(&w->made);
}

static int first_member(const struct world *w)
{
	for (int i = 0; i < w->nranks; i++)
		if (w->slots[i].taken)
			return i;
	return -1;
}

static void world_break_last(struct world *w, int code)
{
	struct cause cause;

	cause_last(&cause, code);
	world_break(w, &cause);
}

/* Why rank may not join. That breaks a world in the making, but not a complete one. */
static int world_admit(struct world *w, int rank, int nranks)
{
	struct control *control = atomic_load(&w->control);
	int rc = 0;

	rc = world_broken(w, control, "spmt_init", 0);
	if (rc)
		return rc;
	if (nranks != w->nranks)
		rc = fail_call(SPMT_ERR_MISMATCH, "spmt_init",
			"nranks differs: rank %d passed %d, rank %d passed %d", first_member(w),
			w->nranks, rank, nranks);
	else if (w->slots[rank].taken)
		rc = fail_call(-EEXIST, "spmt_init",
			"rank %d of %d is taken: two ranks passed the same number", rank, nranks);
	if (rc && world_making(w))
		world_break_last(w, rc);
	return rc;
}

spmt_comm *world_comm_take(void)
{
	spmt_comm *comm = object_take(&table()->comms, sizeof(*comm));

	if (comm)
		atomic_store(&comm->head.inside, world_joining);
	return comm;
}

static int world_claim(struct world *w, int rank, int nranks, spmt_comm **comm)
{
	int rc = world_admit(w, rank, nranks);
	spmt_comm *c;

	if (rc)
		return rc;
	c = world_comm_take();
	if (!c)
		return fail_call(-ENOMEM, "spmt_init", "rank %d: out of memory for a comm", rank);
	c->rank = rank;
	c->nranks = nranks;
	c->world = w;
	c->control = w->local;
	c->slot = &w->slots[rank];
	c->slot->taken = true;
	waits_join(c);
	world_comm_list(c);
	w->members++;
	*comm = c;
	return 0;
}

static void world_unname(struct world *w)
{
	atomic_store_explicit(&w->id[0], 0, memory_order_release);
	atomic_store_explicit(&w->id[1], 0, memory_order_release);
}

static void world_drop(struct world *w)
{
	world_unname(w);
	world_empty(w);
}

int world_join(const struct uid *uid, int rank, int nranks, spmt_comm **comm)
{
	struct table *t = table();
	struct world *w;
	int rc = 0;

	if (!t)
		return fail_call(-ENOMEM, "spmt_init",
			"rank %d: out of memory for the table of worlds", rank);
	pthread_mutex_lock(&t->lock);
	w = world_find(t, uid->id);
	if (!w)
		rc = world_make(t, uid, nranks, &w);
	if (!rc)
		rc = world_claim(w, rank, nranks, comm);
	if (rc && w && !w->members)
		world_drop(w);
	else if (rc && w && world_making(w))
		world_break_last(w, rc);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void world_post_failure(const struct uid *uid, int code)
{
	struct table *t = table();
	struct world *w;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	w = world_find(t, uid->id);
	if (w && w->members && world_making(w))
		world_break_last(w, code);
	pthread_mutex_unlock(&t->lock);
}

/* ---- comms of the process -------------------------------------------------------------------- */

void world_comm_give(spmt_comm *comm)
{
	object_give(&table()->comms, comm);
}

void world_comm_list(spmt_comm *comm)
{
	struct world *w = comm->world;
	struct control *control = atomic_load(&w->control);
	struct cause cause;
	bool broken;

	pthread_mutex_lock(&w->lock);
	comm->next_here = w->comms;
	w->comms = comm;
	broken = atomic_load(&control->stop);
	pthread_mutex_unlock(&w->lock);
	if (broken && comm->parent && world_cause(w, control, 0, &cause))
		comms_break(w, &cause);
}

void world_comm_unlist(spmt_comm *comm)
{
	struct world *w = comm->world;
	spmt_comm **at = &w->comms;

	pthread_mutex_lock(&w->lock);
	while (*at && *at != comm)
		at = &(*at)->next_here;
	if (*at)
		*at = comm->next_here;
	pthread_mutex_unlock(&w->lock);
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* In a broken world nobody waits until others have unmapped its memory. */
static void slot_close(struct slot *s, bool broken)
{
	if (s->rdma)
		map_ops(MAP_RDMA)->rdma->close(s->rdma, broken);
	s->heap.retire = broken && s->export.n;
	heap_export_close(&s->export);
	heap_close(&s->heap);
	if (!s->backend)
		return;
	tables_drop(s);
	s->backend->close(s->dev);
}

/* One member less, under the table's lock. */
static void world_lose(struct world *w)
{
	bool broken = atomic_load(&atomic_load(&w->control)->gate) & GATE_BROKEN;

	if (--w->members)
		return;
	gather_close(w); /* first: it hears of other processes' ends */
	heap_windows_close(&w->windows);
	for (int i = 0; i < w->nranks; i++)
		slot_close(&w->slots[i], broken);
	world_drop(w);
}

void world_leave(spmt_comm *comm)
{
	struct table *t = table();
	struct world *w = comm->world;

	pthread_mutex_lock(&t->lock);
	/* A world that ended in order gives up its name with the first rank that leaves: that rank may join the next world of this name before the
	   last has left. Late ranks of a broken world must still find it. */
	if (!(atomic_load(&comm->control->gate) & GATE_BROKEN))
		world_unname(w);
	world_lose(w);
	pthread_mutex_unlock(&t->lock);
	object_give(&t->comms, comm);
}

void world_defer(spmt_comm *comm)
{
	struct table *t = table();

	pthread_mutex_lock(&t->lock);
	comm->sibling = atomic_load(&t->deferred);
	atomic_store(&t->deferred, comm);
	pthread_mutex_unlock(&t->lock);
}

spmt_comm *world_deferred(void)
{
	struct table *t = table();
	spmt_comm *first;

	if (!t || LIKELY(!atomic_load(&t->deferred)))
		return NULL;
	pthread_mutex_lock(&t->lock);
	first = atomic_exchange(&t->deferred, NULL);
	pthread_mutex_unlock(&t->lock);
	return first;
}

int world_hold(const char *what, const struct uid *uid, int nranks, struct world **world)
{
	struct table *t = table();
	struct world *w;
	int rc = 0;

	if (!t)
		return fail_call(-ENOMEM, what, "out of memory for the table of worlds");
	pthread_mutex_lock(&t->lock);
	w = world_find(t, uid->id);
	if (!w)
		rc = world_make(t, uid, nranks, &w);
	if (!rc)
		w->members++;
	pthread_mutex_unlock(&t->lock);
	if (!rc)
		*world = w;
	return rc;
}

void world_release(struct world *world)
{
	struct table *t = table();

	if (!world)
		return;
	pthread_mutex_lock(&t->lock);
	world_lose(world);
	pthread_mutex_unlock(&t->lock);
}

/* ---- lookups: no lock ---------------------------------------------------------------------- */

const char world_joining[] = "spmt_init";

void world_publish(spmt_comm *comm)
{
	struct directory *dir = atomic_load(&comm->world->directory);

	comm_set_live(comm);
	atomic_store_explicit(&dir->entries[comm->rank].dev, comm->dev, memory_order_relaxed);
	tsan_release(&dir->entries[comm->rank]);
	atomic_store_explicit(&dir->entries[comm->rank].comm, comm, memory_order_release);
}

void world_unpublish(spmt_comm *comm)
{
	struct directory *dir = atomic_load(&comm->world->directory);

	atomic_store_explicit(&dir->entries[comm->rank].comm, NULL, memory_order_release);
	atomic_store_explicit(&comm->head.state, OBJECT_BUSY, memory_order_release);
}

/* The directory of the world that uid names, to be looked at once and then confirmed: the world may leave meanwhile. */
static struct directory *directory_of(const spmt_uid *uid, struct world **world, uint64_t id[2])
{
	struct table *t = table();

	if (!uid || !t)
		return NULL;
	memcpy(id, uid->bytes + offsetof(struct uid, id), 2 * sizeof(id[0]));
	if (!(id[0] | id[1]))
		return NULL;
	*world = world_find(t, id);
	if (!*world || !atomic_load_explicit(&(*world)->found, memory_order_acquire))
		return NULL;
	return atomic_load_explicit(&(*world)->directory, memory_order_acquire);
}

spmt_comm *spmt_comm_by_rank(const spmt_uid *uid, int rank)
{
	struct world *w;
	uint64_t id[2];
	struct directory *dir = directory_of(uid, &w, id);
	spmt_comm *c;

	if (!dir || rank < 0 || rank >= dir->capacity)
		return NULL;
	c = atomic_load_explicit(&dir->entries[rank].comm, memory_order_acquire);
	tsan_acquire(&dir->entries[rank]);
	return c && world_is(w, id) ? c : NULL;
}

spmt_comm *spmt_comm_by_device(const spmt_uid *uid, int device)
{
	struct world *w;
	uint64_t id[2];
	struct directory *dir = directory_of(uid, &w, id);

	for (int i = 0; dir && i < dir->capacity; i++) {
		spmt_comm *c = atomic_load_explicit(&dir->entries[i].comm, memory_order_acquire);

		tsan_acquire(&dir->entries[i]);
		if (c && atomic_load(&dir->entries[i].dev) == device && world_is(w, id))
			return c;
	}
	return NULL;
}
