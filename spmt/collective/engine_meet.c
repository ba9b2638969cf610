/* SPDX-License-Identifier: MIT */
/* The thread of row `engine`: what the ranks of a comm have deposited, when it may be moved, and what becomes of it if it may not. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "engine_state.h"
#include "spmt/comm/record.h"
#include "spmt/control/coll_key.h"
#include "src/base/fault.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"

/* Between two looks, where nobody rings when streams come. For virtual devices others need the CPU. */
#define ENGINE_YIELDS 64     /* of virtual devices: rounds with nothing to do before it sleeps */
#define ENGINE_NEAR_NS 20000 /* all have called */
#define ENGINE_FAR_NS 1000000

/* ---- what there is -------------------------------------------------------------------------------------- */

static uint64_t word_of(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static bool side_has_come(const struct engine_side *side)
{
	return (int64_t)(word_of(&side->words->ready) - side->first->ticket) >= 0;
}

static bool side_is_stopped(const struct engine_side *side)
{
	return side->comm &&
		__atomic_load_n(control_stop_word(side->comm->control), __ATOMIC_ACQUIRE);
}

/* What the ranks' first parts are. */
struct engine_seen {
	int called, come; /* ranks */
	int late;	  /* a rank that has waited for too long; -1: none */
	bool stopped;	  /* the comm is broken */
};

static struct engine_seen engine_see(struct engine_meeting *m, int64_t now)
{
	struct engine_seen seen = { .late = -1 };

	for (int pe = 0; pe < m->nranks; pe++) {
		struct engine_side *side = &m->sides[pe];

		seen.stopped |= side_is_stopped(side);
		if (!side->first)
			continue;
		seen.called++;
		if (!side_has_come(side))
			continue;
		seen.come++;
		if (!side->since)
			side->since = now;
		if (side->first->timeout_ns >= 0 && now - side->since >= side->first->timeout_ns)
			seen.late = pe;
	}
	return seen;
}

/* The rank has made a collective of another row in place of `part`. */
static bool side_has_passed(const struct engine_meeting *m, const struct engine_side *side,
	const struct engine_part *part)
{
	if (atomic_load(&m->uneven))
		return false;
	return side->first ? side->first->nth != part->nth : atomic_load(&side->made) >= part->nth;
}

/* A rank whose call differs from that of `rank`; -1: none. *breaks: not a difference that all ranks may pass over. */
static int engine_odd(const struct engine_meeting *m, int rank, bool *breaks)
{
	const struct engine_part *part = m->sides[rank].first;
	int odd = -1;

	for (int pe = 0; pe < m->nranks; pe++) {
		const struct engine_side *side = &m->sides[pe];
		bool differs = side->first && side->first->call.key != part->call.key;

		*breaks = side_has_passed(m, side, part) ||
			(differs && (side->first->call.key | part->call.key) & COLL_KEY_BREAKS);
		if (pe != rank && *breaks)
			return pe;
		if (differs && odd < 0)
			odd = pe;
	}
	*breaks = false;
	return odd;
}

/* ---- sentences --------------------------------------------------------------------------------------------- */

/* "spmt_all_gather: rank 0: in a stream: 1 of 4 ranks missing after 5.0 s: 3" */
static void say_late(const struct engine_meeting *m, int rank, struct cause *cause)
{
	const struct engine_part *part = m->sides[rank].first;
	struct text t = { .used = 0 };
	int missing = 0, said = 0;

	for (int pe = 0; pe < m->nranks; pe++)
		missing += !m->sides[pe].since;
	text_add(&t,
		"%s: rank %d: in a stream: %d of %d ranks missing after %.*f s:", part->call.what,
		rank, missing, m->nranks, SECONDS((double)part->timeout_ns / 1e9));
	for (int pe = 0; pe < m->nranks; pe++)
		if (!m->sides[pe].since)
			text_add(&t, "%s %d", said++ ? "," : "", pe);
	if (atomic_load(&m->uneven))
		text_add(&t, "; what is captured into a graph does not meet what is not");
	cause_set(cause, SPMT_ERR_TIMEOUT, part->call.what, t.bytes);
}

/* Of the other rank only the last call is known, which may be a later one. */
static void say_passed(const struct engine_meeting *m, int rank, int odd, struct cause *cause)
{
	const struct engine_part *part = m->sides[rank].first;
	const struct engine_side *side = &m->sides[odd];
	uint64_t key = side->first			? side->first->call.key
		: atomic_load(&side->made) == part->nth ? atomic_load(&side->key)
							: 0;
	char text[STATUS_SENTENCE];

	if (key && key != part->call.key)
		coll_differ(text, sizeof(text), odd, key, rank, part->call.key);
	else
		snprintf(text, sizeof(text), "%s: rank %d has made another collective in its place",
			part->call.what, odd);
	cause_set(cause, SPMT_ERR_MISMATCH, part->call.what, text);
}

/* ---- moving ------------------------------------------------------------------------------------------------ */

static bool part_gives(const struct engine_part *part, int pe, int npes)
{
	return part->call.bytes && (pe - part->call.moves.to + npes) % npes < part->call.moves.tos;
}

struct engine_piece {
	const char *src;
	char *dst;
	uint64_t bytes;
};

static struct engine_piece engine_block(const struct engine_meeting *m, int r, int pe)
{
	const struct engine_call *a = &m->sides[r].first->call, *b = &m->sides[pe].first->call;

	return (struct engine_piece){ (const char *)a->src +
			(a->moves.src_blocks ? (uint64_t)(uint32_t)pe * a->bytes : 0),
		(char *)b->dst + (b->moves.dst_blocks ? (uint64_t)(uint32_t)r * b->bytes : 0),
		a->bytes };
}

/* From rank r to its `step`th next. */
static int engine_copy(const struct engine_meeting *m, int r, int step)
{
	const struct engine_side *from = &m->sides[r];
	int pe = (r + step) % m->nranks;
	struct engine_piece p;

	/* who gives nothing, or gets nothing, may have no buffer */
	if (!part_gives(from->first, pe, m->nranks))
		return 0;
	p = engine_block(m, r, pe);
	if (p.src == p.dst || !p.bytes)
		return 0;
	return m->backend->copy(
		from->comm->dev, p.dst, p.src, p.bytes, step ? from->out : from->own);
}

/* Behind what pe gives and gets: its word. */
static int engine_close_side(const struct engine_meeting *m, int pe)
{
	const struct engine_side *side = &m->sides[pe];
	const struct backend *b = m->backend;
	int dev = side->comm->dev, rc = 0;

	for (int r = 0; r < m->nranks && !rc; r++)
		if (r == pe ? side->first->call.moves.tos != 0
			    : part_gives(m->sides[r].first, pe, m->nranks))
			rc = b->stream_wait_event(dev, side->own, m->sides[r].sent);
	return rc ? rc
		  : b->words->write(dev, side->own, &side->words_dev->done, side->first->ticket);
}

int engine_send(const struct engine_meeting *m, int r, int step)
{
	const struct engine_side *side = &m->sides[r];
	int rc = engine_copy(m, r, step % m->nranks);

	if (rc || step < m->nranks)
		return rc;
	return m->backend->event_record(side->comm->dev, side->sent, side->out);
}

/* All ranks' parts. Without the lock. */
static int engine_move(struct engine_meeting *m)
{
	int rc = engine_send_all(m);

	for (int pe = 0; pe < m->nranks && !rc; pe++)
		rc = engine_close_side(m, pe);
	return rc;
}

static void side_pop(struct engine_side *side)
{
	struct engine_part *part = side->first;

	side->first = part->next;
	if (!side->first)
		side->end = &side->first;
	side->since = 0;
	mem_free(part);
}

static void waited_update(struct engine_meeting *m)
{
	bool any = false;

	for (int pe = 0; pe < m->nranks; pe++)
		any |= m->sides[pe].first != NULL;
	atomic_store(&m->waited, any);
}

static bool engine_has_landed(const struct engine_meeting *m)
{
	for (int pe = 0; pe < m->nranks; pe++) {
		const struct engine_side *side = &m->sides[pe];

		if (side->words && (int64_t)(word_of(&side->words->done) - side->flies) < 0)
			return false;
	}
	return true;
}

/* Some copies may have been queued: nothing goes on before these are through. */
static void engine_settle(const struct engine_meeting *m)
{
	for (int pe = 0; pe < m->nranks; pe++) {
		const struct engine_side *side = &m->sides[pe];

		m->backend->stream_sync(side->comm->dev, side->out, ENGINE_LAST_NS, NULL);
		m->backend->stream_sync(side->comm->dev, side->own, ENGINE_LAST_NS, NULL);
	}
}

/* ---- the end of all ------------------------------------------------------------------------------------------ */

/* Those that wait go on; what they had deposited is never moved. */
static void engine_clear(struct engine_meeting *m)
{
	for (int pe = 0; pe < m->nranks; pe++) {
		struct engine_side *side = &m->sides[pe];

		while (side->first)
			side_pop(side);
		if (side->words)
			__atomic_store_n(&side->words->done, ENGINE_FREE, __ATOMIC_RELEASE);
	}
	atomic_store(&m->waited, false);
	m->flies = NULL;
	m->cleared = true;
	pthread_cond_broadcast(&m->changed);
}

/* Calls for a moment without the lock: no rank leaves meanwhile. */
static void engine_go_away(struct engine_meeting *m)
{
	m->away = true;
	pthread_mutex_unlock(&m->lock);
}

static void engine_come_back(struct engine_meeting *m)
{
	pthread_mutex_lock(&m->lock);
	m->away = false;
	pthread_cond_broadcast(&m->changed);
}

/* The streams go on once the comm is known to be broken. */
static void engine_break(struct engine_meeting *m, int rank, const struct cause *cause)
{
	spmt_comm *comm = m->sides[rank].comm;

	m->over = true;
	if (!comm)
		return;
	engine_go_away(m);
	comm_break(comm, cause);
	engine_come_back(m);
}

/* ---- one look ------------------------------------------------------------------------------------------------- */

static void engine_fly(struct engine_meeting *m)
{
	const struct engine_part *part = m->sides[0].first;
	struct cause cause;
	int rc;

	m->flies = part->call.what;
	m->flies_ns = ENGINE_LAST_NS;
	m->flies_since = process_now();
	for (int pe = 0; pe < m->nranks; pe++) {
		m->sides[pe].flies = m->sides[pe].first->ticket;
		m->flies_ns = MAX_OF(m->flies_ns, m->sides[pe].first->timeout_ns);
	}
	engine_go_away(m);
	rc = engine_move(m);
	if (rc) {
		rc = comm_failed(m->sides[0].comm, m->flies, rc);
		cause_last(&cause, rc);
		engine_settle(m);
	}
	engine_come_back(m);
	if (rc)
		m->flies = NULL;
	for (int pe = 0; pe < m->nranks; pe++)
		side_pop(&m->sides[pe]);
	waited_update(m);
	if (rc)
		engine_break(m, 0, &cause);
}

/* Copies that do not end although everything is there: a driver queue may be stuck behind a waiting stream. */
static void engine_stuck(struct engine_meeting *m)
{
	struct text t = { .used = 0 };
	struct cause cause;

	text_add(&t, "%s: copies of copy engines are not done after %.*f s", m->flies,
		SECONDS((double)m->flies_ns / 1e9));
	cause_set(&cause, SPMT_ERR_TIMEOUT, m->flies, t.bytes);
	engine_break(m, 0, &cause);
}

/* For a meeting that is over. Copies in flight need nobody and end: until then no stream goes on. Returns ns until the next look; -1:
   none needed. */
static int64_t engine_finish(struct engine_meeting *m, int64_t now)
{
	if (m->flies && !engine_has_landed(m) && now - m->flies_since < m->flies_ns)
		return ENGINE_NEAR_NS;
	if (!m->cleared)
		engine_clear(m);
	return -1;
}

/* As a kernel tells it. */
static void side_tell(const struct engine_side *side, int rank, int odd, uint64_t seen)
{
	struct spmtd_record *r = &kernel_report_of(side->comm->signals)->differs;

	if (__atomic_load_n(&r->valid, __ATOMIC_ACQUIRE))
		return;
	r->code = SPMT_ERR_MISMATCH;
	r->pe = rank;
	r->peer = odd;
	r->expected = side->first->call.key;
	r->seen = seen;
	__atomic_store_n(&r->valid, 2, __ATOMIC_RELEASE);
}

/* Nothing is moved; all ranks are told, and go on. */
static void engine_pass(struct engine_meeting *m)
{
	bool breaks;

	for (int pe = 0; pe < m->nranks; pe++) {
		int odd = engine_odd(m, pe, &breaks);

		side_tell(&m->sides[pe], pe, odd, m->sides[odd].first->call.key);
	}
	for (int pe = 0; pe < m->nranks; pe++) {
		struct engine_side *side = &m->sides[pe];

		__atomic_store_n(&side->words->done, side->first->ticket, __ATOMIC_RELEASE);
		side_pop(side);
	}
	waited_update(m);
}

/* What becomes of ranks' calls that differ. False: they do not, or not all have come yet. */
static bool engine_differs(struct engine_meeting *m, bool all)
{
	struct cause cause;
	bool breaks;

	for (int rank = 0; rank < m->nranks; rank++) {
		int odd = m->sides[rank].first ? engine_odd(m, rank, &breaks) : -1;

		if (odd < 0 || (!breaks && !all))
			continue;
		if (!breaks) {
			engine_pass(m);
			return true;
		}
		say_passed(m, rank, odd, &cause);
		engine_break(m, rank, &cause);
		return true;
	}
	return false;
}

/* Under the lock, which it gives up while it calls. ns until the next look; 0: at once; -1: once it is rung for. */
static int64_t engine_look(struct engine_meeting *m)
{
	int64_t now = process_now();
	struct engine_seen seen;
	struct cause cause;

	if (m->flies && engine_has_landed(m))
		m->flies = NULL;
	if (m->over)
		return engine_finish(m, now);
	seen = engine_see(m, now);
	if (seen.stopped) {
		m->over = true;
		return 0;
	}
	if (m->flies && now - m->flies_since >= m->flies_ns) {
		engine_stuck(m);
		return 0;
	}
	if (engine_differs(m, seen.come == m->nranks))
		return 0;
	if (seen.come == m->nranks) {
		engine_fly(m);
		return 0;
	}
	if (seen.late >= 0) {
		say_late(m, seen.late, &cause);
		engine_break(m, seen.late, &cause);
		return 0;
	}
	if (seen.called == m->nranks)
		return ENGINE_NEAR_NS;
	return seen.called || m->flies ? ENGINE_FAR_NS : -1;
}

/* Of a thread that has found nothing to do `idle` times, since `since`. */
static bool engine_stays_awake(const struct engine_meeting *m, int64_t since, unsigned idle)
{
	if (m->backend->traits & DEVICE_HOST_ACCESS)
		return idle < ENGINE_YIELDS;
	return process_now() - since < ENGINE_AWAKE_NS;
}

static void *engine_main(void *arg)
{
	struct engine_meeting *m = arg;
	bool ending = false;
	int64_t since = 0;
	unsigned idle = 0;

	pthread_setname_np(pthread_self(), "spmt-engine");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	prctl(PR_SET_TIMERSLACK, ENGINE_SLACK_NS, 0, 0, 0);
	engine_help_begin(m);
	while (!ending) {
		uint32_t wakes = atomic_load(&m->wakes);
		int64_t ns;

		pthread_mutex_lock(&m->lock);
		ending = m->ending;
		ns = ending ? 0 : engine_look(m);
		pthread_mutex_unlock(&m->lock);
		idle = ns ? MIN_OF(idle + 1, 1u << 20) : 0;
		if (idle == 1)
			since = process_now();
		if (ns == ENGINE_NEAR_NS && engine_stays_awake(m, since, idle))
			sched_yield();
		else if (ns)
			futex_sleep(&m->wakes, wakes, ns);
	}
	engine_help_end(m);
	return NULL;
}

void engine_ring(struct engine_meeting *m)
{
	atomic_fetch_add(&m->wakes, 1);
	futex_wake_all(&m->wakes);
}

int engine_thread(struct engine_meeting *m)
{
	int err;

	if (m->running)
		return 0;
	err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD)
				       : process_thread(&m->thread, 0, engine_main, m);
	m->running = !err;
	return err ? fail_errno(err, "no thread that has copy engines move") : 0;
}
