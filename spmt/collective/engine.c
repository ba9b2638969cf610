/* SPDX-License-Identifier: MIT */
/* A rank's side of row `engine`. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine_state.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"

/* ---- whether there is one -------------------------------------------------------------------------- */

/* By what all ranks see alike. */
static int engine_ask(const spmt_comm *comm, char *why)
{
	const struct rank_info *infos = comm->world->infos;
	int rc = SPMT_ERR_UNSUPPORTED;

	if (comm->nranks < 2)
		snprintf(why, DEVICE_REASON, "a rank alone moves nothing");
	else if (comm->lane)
		snprintf(why, DEVICE_REASON, "lanes have it not");
	else if (comm_spans_processes(comm))
		snprintf(why, DEVICE_REASON,
			"ranks of several processes know no addresses of each other");
	else if (comm->stage || comm->far.map)
		snprintf(why, DEVICE_REASON, "its devices do not reach each other's memory");
	else if (!comm->backend->words)
		snprintf(why, DEVICE_REASON, "streams of backend %s wait for no words",
			comm->backend->name);
	else
		rc = 0;
	for (int pe = 0; pe < comm->nranks && !rc; pe++)
		rc = comm->backend->words->check(infos[comm_world_rank(comm, pe)].settled, why);
	return rc;
}

static bool ranks_are_apart(const spmt_comm *comm)
{
	const struct rank_info *infos = comm->world->infos;

	for (int a = 0; a < comm->nranks; a++)
		for (int b = 0; b < a; b++)
			if (coll_device_is_shared(&infos[comm_world_rank(comm, a)],
				    &infos[comm_world_rank(comm, b)]))
				return false;
	return true;
}

enum { ENGINE_UNASKED, ENGINE_NONE, ENGINE_SHARED, ENGINE_APART };

static bool engine_is_wanted(const spmt_comm *comm)
{
	return comm->coll_wanted >= 0 && coll_rows[comm->coll_wanted].way == COLL_BY_ENGINES;
}

bool engine_fits(spmt_comm *comm, bool *apart, char *why)
{
	uint32_t says = atomic_load_explicit(&comm->engine_says, memory_order_relaxed);
	char reason[DEVICE_REASON] = "";

	if (says == ENGINE_UNASKED || why) {
		says = engine_ask(comm, reason) ? ENGINE_NONE
			: ranks_are_apart(comm) ? ENGINE_APART
						: ENGINE_SHARED;
		if (atomic_exchange(&comm->engine_says, says) == ENGINE_UNASKED && *reason)
			log_line(engine_is_wanted(comm) ? LOG_WARN : LOG_DEBUG,
				"rank %d: no collectives by row engine: %s", comm->rank, reason);
		if (why)
			snprintf(why, DEVICE_REASON, "%s", reason);
	}
	*apart = says == ENGINE_APART;
	return says > ENGINE_NONE;
}

/* ---- the meeting ------------------------------------------------------------------------------------- */

static struct engine_meeting *meeting_new(const spmt_comm *comm)
{
	size_t size =
		sizeof(struct engine_meeting) + (size_t)comm->nranks * sizeof(struct engine_side);
	struct engine_meeting *m = mem_aligned(CACHE_LINE, align_up(size, CACHE_LINE));

	if (!m)
		return NULL;
	m->id = comm->id;
	m->nranks = comm->nranks;
	m->backend = comm->backend;
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->changed, NULL);
	for (int pe = 0; pe < m->nranks; pe++)
		m->sides[pe].end = &m->sides[pe].first;
	return m;
}

static void meeting_free(struct engine_meeting *m)
{
	pthread_cond_destroy(&m->changed);
	pthread_mutex_destroy(&m->lock);
	mem_free(m);
}

/* Finds the comm's, or makes it. */
static struct engine_meeting *meeting_enter(const spmt_comm *comm)
{
	struct world *w = comm->world;
	struct engine_meeting *m;

	pthread_mutex_lock(&w->lock);
	for (m = w->engines; m && m->id != comm->id;)
		m = m->next;
	if (!m) {
		m = meeting_new(comm);
		if (m) {
			m->next = w->engines;
			w->engines = m;
		}
	}
	if (m)
		m->users++;
	pthread_mutex_unlock(&w->lock);
	return m;
}

int engine_begin(spmt_comm *comm)
{
	struct engine_meeting *m;
	bool apart;

	if (LIKELY(comm->engine) || !engine_fits(comm, &apart, NULL))
		return 0;
	m = meeting_enter(comm);
	if (!m)
		return fail_rank(-ENOMEM, comm->rank, "out of memory for a meeting of %d ranks",
			comm->nranks);
	pthread_mutex_lock(&m->lock);
	m->sides[comm->rank].comm = comm;
	pthread_mutex_unlock(&m->lock);
	comm->engine = m;
	return 0;
}

void engine_end(spmt_comm *comm, uint64_t key, bool captured)
{
	struct engine_meeting *m = comm->engine;
	struct engine_side *side;
	uint64_t made;

	if (!m)
		return;
	if (captured) {
		atomic_store(&m->uneven, true);
		return;
	}
	side = &m->sides[comm->rank];
	atomic_store_explicit(&side->key, key, memory_order_relaxed);
	made = atomic_load_explicit(&side->made, memory_order_relaxed);
	atomic_store_explicit(&side->made, made + 1, memory_order_release);
	/* Whoever comes to wait just now looks again in a moment. */
	if (UNLIKELY(atomic_load_explicit(&m->waited, memory_order_relaxed)))
		engine_ring(m);
}

/* ---- a call ------------------------------------------------------------------------------------------ */

static void side_close(spmt_comm *comm, struct engine_side *side)
{
	const struct backend *b = comm->backend;
	device_stream of[] = { side->out, side->own };

	for (size_t i = 0; i < ARRAY_SIZE(of); i++) {
		if (!of[i])
			continue;
		if (b->stream_sync(comm->dev, of[i], ENGINE_LAST_NS, NULL))
			log_line(LOG_ERROR,
				"rank %d: a collective's copies are in flight at the end",
				comm->rank);
		b->stream_destroy(comm->dev, of[i]);
	}
	if (side->sent)
		b->event_destroy(comm->dev, side->sent);
	pinned_close(comm, side->pinned);
	side->out = side->own = NULL;
	side->sent = NULL;
	side->pinned = NULL;
	side->words_dev = NULL;
}

/* What the rank's parts need of its device; by the first. */
static int side_open(spmt_comm *comm, struct engine_side *side)
{
	const struct backend *b = comm->backend;
	int rc = b->words->stream_create(comm->dev, &side->out);

	if (!rc)
		rc = b->words->stream_create(comm->dev, &side->own);
	if (!rc)
		rc = b->event_create(comm->dev, &side->sent);
	if (!rc)
		rc = pinned_open(comm, sizeof(*side->words), &side->pinned);
	if (rc)
		return rc;
	memset(pinned_host(side->pinned), 0, sizeof(*side->words));
	side->words_dev = pinned_dev(side->pinned);
	return 0;
}

static int side_ready(spmt_comm *comm)
{
	struct engine_meeting *m = comm->engine;
	struct engine_side *side = &m->sides[comm->rank];
	int rc = side->pinned ? 0 : side_open(comm, side);

	if (!rc && !side->tickets) { /* from here on the thread sees it */
		pthread_mutex_lock(&m->lock);
		rc = engine_thread(m);
		if (!rc)
			side->words = pinned_host(side->pinned);
		pthread_mutex_unlock(&m->lock);
	}
	if (rc) { /* the thread has not seen it */
		KEEPS_SENTENCE;
		side_close(comm, side);
	}
	return rc;
}

struct engine_blame {
	spmt_comm *comm;
	const char *what;
};

/* On a thread of the stream, behind the wait: a virtual device's stream has failed. */
static void engine_blame(void *arg)
{
	struct engine_blame *blame = arg;
	int rc;
	KEEPS_SENTENCE;

	rc = comm_is_broken(blame->comm) ? comm_broken(blame->comm, blame->what)
					 : kernel_looks(blame->comm, blame->what);
	if (rc)
		host_stream_blame(rc, status_sentence());
	mem_free(blame);
}

/* The call is already queued: failures here are not reported. */
static void blame_queue(spmt_comm *comm, const char *what, device_stream stream)
{
	struct engine_blame *blame = mem_calloc(1, sizeof(*blame));
	KEEPS_SENTENCE;

	if (!blame)
		return;
	*blame = (struct engine_blame){ comm, what };
	if (comm->backend->call(comm->dev, stream, engine_blame, blame))
		mem_free(blame);
}

static void part_deposit(
	struct engine_meeting *m, struct engine_side *side, struct engine_part *part)
{
	pthread_mutex_lock(&m->lock);
	*side->end = part;
	side->end = &part->next;
	atomic_store(&m->waited, true);
	m->cleared = false;
	pthread_mutex_unlock(&m->lock);
	engine_ring(m);
}

int engine_queue(spmt_comm *comm, const struct engine_call *call, device_stream stream)
{
	const struct device_word_ops *words = comm->backend->words;
	struct engine_meeting *m = comm->engine;
	struct engine_side *side = &m->sides[comm->rank];
	int64_t ms = comm_timeout(comm);
	struct engine_part *part = NULL;
	int rc = side_ready(comm);

	if (rc)
		return rc;
	part = mem_calloc(1, sizeof(*part));
	if (!part)
		return fail_rank(-ENOMEM, comm->rank, "out of memory for a collective");
	*part = (struct engine_part){ .call = *call,
		.nth = atomic_load(&side->made) + 1,
		.ticket = ++side->tickets,
		.timeout_ns = ms < 0 ? -1 : ms * 1000000 };
	/* A ticket that is written and not waited for is nobody's. */
	rc = words->write(comm->dev, stream, &side->words_dev->ready, part->ticket);
	if (!rc)
		rc = words->wait(comm->dev, stream, &side->words_dev->done, part->ticket);
	if (rc) {
		mem_free(part);
		return rc;
	}
	if (comm_cpu_access(comm))
		blame_queue(comm, call->what, stream);
	part_deposit(m, side, part);
	return 0;
}

/* ---- the end ----------------------------------------------------------------------------------------- */

static void side_leave(struct engine_meeting *m, spmt_comm *comm)
{
	struct engine_side *side = &m->sides[comm->rank];

	pthread_mutex_lock(&m->lock);
	m->over = true;
	m->cleared &= !m->running;
	engine_ring(m);
	while (m->away || (m->running && !m->cleared))
		pthread_cond_wait(&m->changed, &m->lock);
	side->comm = NULL;
	side->words = NULL; /* the others' thread looks at them no more */
	pthread_mutex_unlock(&m->lock);
	side_close(comm, side);
}

static void meeting_end(struct engine_meeting *m)
{
	bool running;

	pthread_mutex_lock(&m->lock);
	running = m->running;
	m->ending = true;
	pthread_mutex_unlock(&m->lock);
	engine_ring(m);
	if (running)
		pthread_join(m->thread, NULL);
	meeting_free(m);
}

void engine_drop(spmt_comm *comm)
{
	UNCANCELLED;
	struct engine_meeting *m = comm->engine, **at;
	struct world *w = comm->world;
	bool last;

	if (!m)
		return;
	comm->engine = NULL;
	side_leave(m, comm);
	pthread_mutex_lock(&w->lock);
	last = !--m->users;
	for (at = &w->engines; last && *at != m;)
		at = &(*at)->next;
	if (last)
		*at = m->next;
	pthread_mutex_unlock(&w->lock);
	if (last)
		meeting_end(m);
}
