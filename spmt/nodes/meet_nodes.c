/* SPDX-License-Identifier: MIT */
/*
 * Meeting on several nodes: the ranks of a node come to the gate of their control block as they would alone. The last of them says
 * to the hub what all have brought; the hub decides. What the other nodes have brought comes back by the bootstrap's thread, which
 * fills their rows of the block and opens the gate. So a rank waits as in shared memory, and a meeting is two messages a node.
 *
 * A rank whose deadline passes asks the hub first: what is open there is open for all, else it shuts, and the answer tells who has
 * come elsewhere: each process has said for its node.
 *
 * Where movers reach the other nodes, and all have brought the same, they leave the hub alone (notes.h).
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "missing.h"
#include "notes.h"
#include "spmt/bootstrap/bootstrap.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define HUB_ANSWER_NS (3 * 1000000000ll) /* what a hub gets to say that a meeting is shut */
#define HUB_LOOK_NS 500000

/* What a rank has brought, or so many with nothing attached that have brought the same; `size` bytes attached follow. */
struct word_entry {
	uint32_t rank, count, size;
	uint32_t late; /* where a process is asked who has come: it only just has */
	struct meet_record record;
};

static struct nodes *nodes_of(const spmt_comm *comm)
{
	return comm->meeting_state;
}

/* ---- what this node's ranks have brought ------------------------------------------------------ */

struct packing {
	unsigned char *bytes; /* NULL: is only measured */
	size_t used;
	int ranks;
	bool asked;		/* who has come */
	struct word_entry last; /* not yet in bytes; count 0: none */
};

static void pack_flush(struct packing *p)
{
	if (!p->last.count)
		return;
	if (p->bytes)
		memcpy(p->bytes + p->used, &p->last, sizeof(p->last));
	p->used += sizeof(p->last);
	p->last.count = 0;
}

static void pack_rank(
	struct packing *p, const struct control_row *row, int rank, uint64_t epoch, bool late)
{
	const struct meet_record *record = &row->record[epoch & 1];
	uint32_t attached = atomic_load(&row->attached[epoch & 1]);
	uint32_t size = MIN_OF(attached, STATUS_SENTENCE);

	if (!size && p->last.count && !p->last.size &&
		p->last.rank + p->last.count == (uint32_t)rank && p->last.late == late &&
		!memcmp(&p->last.record, record, sizeof(*record))) {
		p->last.count++;
		return;
	}
	pack_flush(p);
	p->last = (struct word_entry){ (uint32_t)rank, 1, size, late, *record };
	if (!size)
		return;
	pack_flush(p);
	if (p->bytes)
		memcpy(p->bytes + p->used, row->sentence[epoch & 1], size);
	p->used += size;
}

static void pack_all(const spmt_comm *comm, struct packing *p, uint64_t epoch)
{
	for (int r = 0; r < comm->nranks; r++) {
		const struct control_row *row = &comm->control->rows[r];

		if (!meet_is_near(comm, r) || atomic_load(&row->arrived) < epoch)
			continue;
		pack_rank(p, row, r, epoch, p->asked && missing_late(comm, r));
		p->ranks++;
	}
	pack_flush(p);
}

static int word_say(
	const spmt_comm *comm, const struct bootstrap_word *word, const void *data, size_t size)
{
	const struct nodes *n = nodes_of(comm);
	struct bootstrap_word w = *word;

	w.comm = comm->id;
	w.part = (uint32_t)n->mine;
	w.parts = (uint32_t)n->n;
	return bootstrap_say(atomic_load(&comm->world->boot), &w, data, size);
}

static struct bootstrap_word word_now(const spmt_comm *comm, enum word_kind kind)
{
	return (struct bootstrap_word){ .kind = kind, .epoch = comm->epoch };
}

/* Those who come meanwhile may make it longer, so it is not measured first. */
static int say_brought(const spmt_comm *comm, struct bootstrap_word word)
{
	size_t most = (size_t)nodes_of(comm)->near * (sizeof(struct word_entry) + STATUS_SENTENCE);
	struct packing p = { .bytes = mem_calloc(1, most), .asked = word.kind == WORD_TOLD };
	int rc;

	if (!p.bytes)
		return fail(
			-ENOMEM, "out of memory for %zu bytes of a meeting between nodes", most);
	pack_all(comm, &p, word.epoch);
	word.code = p.ranks;
	rc = word_say(comm, &word, p.bytes, p.used);
	mem_free(p.bytes);
	return rc;
}

/* ---- what the other nodes' have ---------------------------------------------------------------- */

/* Takes the entry at *at into the rows of ranks of other nodes; false: it cannot be one. */
static bool entry_take(const spmt_comm *comm, uint64_t epoch, const unsigned char *bytes,
	size_t size, size_t *at, int *ranks)
{
	struct word_entry e;

	if (size - *at < sizeof(e))
		return false;
	memcpy(&e, bytes + *at, sizeof(e));
	*at += sizeof(e);
	if (e.rank >= (uint32_t)comm->nranks || e.count > (uint32_t)comm->nranks - e.rank ||
		e.size > STATUS_SENTENCE || e.size > size - *at)
		return false;
	for (uint32_t r = e.rank; r < e.rank + e.count; r++) {
		struct control_row *row = &comm->control->rows[r];

		if (meet_is_near(comm, (int)r))
			continue;
		row->record[epoch & 1] = e.record;
		row->sentence[epoch & 1][0] = '\0';
		memcpy(row->sentence[epoch & 1], bytes + *at, e.size);
		if (e.late)
			atomic_store(&row->late, epoch);
		atomic_store_explicit(&row->arrived, epoch, memory_order_release);
		++*ranks;
	}
	*at += e.size;
	return true;
}

static bool entries_take(
	const spmt_comm *comm, uint64_t epoch, const void *bytes, size_t size, int *ranks)
{
	size_t at = 0;

	*ranks = 0;
	while (at < size)
		if (!entry_take(comm, epoch, bytes, size, &at, ranks))
			return false;
	return true;
}

/* This node's ranks have written their rows before they came. */
static void near_seen(const spmt_comm *comm)
{
	for (int r = 0; r < comm->nranks; r++)
		if (meet_is_near(comm, r))
			(void)atomic_load_explicit(
				&comm->control->rows[r].arrived, memory_order_acquire);
}

/* Under the world's lock: comm cannot end. True: it contradicts itself. */
static bool word_take(
	const spmt_comm *comm, const struct bootstrap_word *w, const void *bytes, size_t size)
{
	struct control *control = comm->control;
	int ranks;

	if (w->kind == WORD_NOTED) {
		notes_opened(comm, w->epoch);
		return false;
	}
	if (w->kind == WORD_SILENT) {
		missing_silent(comm, w->epoch, (int)w->question);
		return false;
	}
	if (w->epoch && w->kind == WORD_SHUT &&
		atomic_load(&control->gate) == (2 * (w->epoch - 1) | GATE_BROKEN))
		atomic_store(&control->shut, w->epoch); /* for who asks nevertheless */
	if (!w->epoch || atomic_load(&control->gate) != 2 * (w->epoch - 1))
		return false; /* it has ended otherwise */
	if (!entries_take(comm, w->epoch, bytes, size, &ranks))
		return true;
	if (w->kind == WORD_SHUT) {
		atomic_store(&control->shut, w->epoch);
		return false;
	}
	if (ranks != comm->nranks - nodes_of(comm)->near)
		return true;
	near_seen(comm);
	gate_open(control, comm->nranks, w->epoch);
	return false;
}

static void break_heard(
	struct world *world, const struct bootstrap_word *w, const void *bytes, size_t size)
{
	struct cause cause = { .code = w->code, .call = w->call };

	memcpy(cause.sentence, bytes, MIN_OF(size, sizeof(cause.sentence) - 1));
	world_break_part(world, w->comm, &cause);
}

/* Under the world's lock: a comm of this process that is over the same ranks, NULL: it has none, or none yet. */
static spmt_comm *comm_named(const struct world *world, uint64_t id)
{
	spmt_comm *c = world->comms;

	while (c && (c->id != id || !c->meeting))
		c = c->next_here;
	return c;
}

/* Any process answers, so that the hub need not know which have ranks of the comm. */
static void question_heard(struct world *world, const struct bootstrap_word *w)
{
	struct bootstrap_word told = *w;
	const spmt_comm *c;
	KEEPS_SENTENCE;

	pthread_mutex_lock(&world->lock);
	c = comm_named(world, w->comm);
	told.kind = c && notes_asked(c, w->epoch) ? WORD_NOTED : WORD_TOLD;
	if (!c || told.kind == WORD_NOTED || say_brought(c, told)) {
		told.part = 0;
		told.parts = 1;
		told.code = 0;
		(void)bootstrap_say(atomic_load(&world->boot), &told, NULL, 0);
	}
	pthread_mutex_unlock(&world->lock);
}

static void meeting_heard(
	struct world *world, const struct bootstrap_word *w, const void *bytes, size_t size)
{
	struct cause cause;
	const spmt_comm *c;
	bool bad;

	pthread_mutex_lock(&world->lock);
	c = comm_named(world, w->comm);
	bad = c && word_take(c, w, bytes, size);
	pthread_mutex_unlock(&world->lock);
	if (!bad)
		return;
	cause_set(&cause, -EPROTO, NULL, "a meeting between nodes contradicts itself");
	world_break(world, &cause);
}

/* All ranks of this process, each for itself. */
static void joined_heard(
	struct world *world, const struct bootstrap_word *w, const void *bytes, size_t size)
{
	struct cause cause;
	bool good = true;

	pthread_mutex_lock(&world->lock);
	for (spmt_comm *c = world->comms; c; c = c->next_here)
		if (c->id == w->comm && c->meeting)
			good &= muster_heard(c, w, bytes, size);
	pthread_mutex_unlock(&world->lock);
	if (good)
		return;
	cause_set(&cause, -EPROTO, NULL, "who goes on of a broken comm contradicts itself");
	world_break(world, &cause);
}

static void nodes_heard(
	struct world *world, const struct bootstrap_word *w, const void *bytes, size_t size)
{
	switch (w->kind) {
	case WORD_BREAK:
		break_heard(world, w, bytes, size);
		break;
	case WORD_ASK:
		question_heard(world, w);
		break;
	case WORD_JOINED:
		joined_heard(world, w, bytes, size);
		break;
	case WORD_OPEN:
	case WORD_SHUT:
	case WORD_SILENT:
	case WORD_NOTED:
		meeting_heard(world, w, bytes, size);
		break;
	default: /* not for processes */
		break;
	}
}

/* ---- waiting ------------------------------------------------------------------------------------ */

/* Tells who has come here so far, once for each. A failure is for the deadline. */
static void nodes_look(spmt_comm *comm)
{
	struct control *control = comm->control;
	uint64_t there = atomic_load(&control->arrived), told = atomic_load(&control->told);

	if (nodes_of(comm)->n > 1 && there > told &&
		there < comm->epoch * (uint64_t)nodes_of(comm)->near &&
		atomic_compare_exchange_strong(&control->told, &told, there)) {
		KEEPS_SENTENCE;
		(void)say_brought(comm, word_now(comm, WORD_SOME));
	}
}

/* Asks the hub of this meeting, which has its time from now on. False: there is none. */
static bool hub_ask(spmt_comm *comm)
{
	struct nodes *n = nodes_of(comm);
	const struct bootstrap_word miss = word_now(comm, WORD_MISS);
	unsigned leaders = bootstrap_leaders(atomic_load(&comm->world->boot));

	if (word_say(comm, &miss, NULL, 0))
		return false;
	n->asked.epoch = comm->epoch;
	n->asked.leaders = leaders;
	n->asked.until = process_now() + HUB_ANSWER_NS;
	return true;
}

static void nodes_give_up(spmt_comm *comm)
{
	const struct timespec slice = { .tv_nsec = HUB_LOOK_NS };
	struct control *control = comm->control;
	struct status_saved saved;
	int64_t end;

	if (nodes_of(comm)->n < 2)
		return;
	missing_here(comm);
	status_save(&saved);
	end = hub_ask(comm) ? nodes_of(comm)->asked.until : 0;
	status_restore(&saved);
	while (atomic_load(&control->gate) == 2 * (comm->epoch - 1) &&
		atomic_load(&control->shut) < comm->epoch && process_now() < end)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
	if (atomic_load(&control->shut) < comm->epoch)
		missing_silent(
			comm, comm->epoch, bootstrap_leading(atomic_load(&comm->world->boot)));
}

/* What has failed may be a death, of which this process hears a moment later. */
static void notes_failed(spmt_comm *comm, int rc)
{
	const char *what = meet_name(comm->control->rows[comm->rank].record[comm->epoch & 1].op);
	KEEPS_SENTENCE;

	if (rc != -ECANCELED || !atomic_load(&comm->control->stop)) {
		rc = comm_failed(comm, what, nodes_move_failed(comm, what, rc));
		comm_break_last(comm, rc);
	}
}

static bool nodes_step(spmt_comm *comm)
{
	int rc;

	if (!notes_lead(comm))
		return false;
	rc = notes_go(comm);
	if (rc == NOTES_STAR)
		rc = say_brought(comm, word_now(comm, WORD_COME));
	if (rc < 0)
		notes_failed(comm, rc);
	return rc == NOTES_WAIT;
}

/*
 * The comm has broken while this node's notes were out: another node may have had them all, and have left the meeting. The hub asks all
 * who live, or the one that follows it, and its answer is the same for all. One that this rank has asked as its deadline passed, and that
 * has said nothing, has had its time.
 */
static void notes_lost(spmt_comm *comm)
{
	const struct timespec slice = { .tv_nsec = HUB_LOOK_NS };
	const struct nodes *n = nodes_of(comm);
	struct bootstrap *boot = atomic_load(&comm->world->boot);
	int64_t end = process_now() + HUB_ANSWER_NS;
	KEEPS_SENTENCE;

	while (notes_are_out(comm) && atomic_load(&comm->control->shut) < comm->epoch &&
		process_now() < end) {
		bool said = n->asked.epoch == comm->epoch &&
			n->asked.leaders == bootstrap_leaders(boot);
		int rc = bootstrap_leader(boot);

		if (rc && rc != -EAGAIN)
			break;
		if (!rc && said && process_now() >= n->asked.until)
			break;
		if (!rc && !said)
			(void)hub_ask(comm);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
	}
}

static const struct gate_hooks nodes_hooks = { nodes_step, nodes_look, nodes_give_up };

/* ---- the row ------------------------------------------------------------------------------------ */

static int nodes_open(spmt_comm *comm)
{
	struct nodes *n = mem_calloc(1, sizeof(*n));

	if (!n)
		return fail_rank(-ENOMEM, comm->rank, "out of memory to meet other nodes");
	nodes_count(comm, n);
	comm->meeting_state = n;
	return 0;
}

static void nodes_leave(spmt_comm *comm)
{
	const struct nodes *n = nodes_of(comm);
	const struct bootstrap_word w = { .comm = comm->id,
		.epoch = notes_last(comm),
		.kind = WORD_LEAVE,
		.part = (uint32_t)comm->rank,
		.parts = (uint32_t)comm->nranks,
		.question = (uint32_t)n->n };
	KEEPS_SENTENCE;

	if (n->n > 1) /* whoever does not hear it has left */
		(void)bootstrap_say(atomic_load(&comm->world->boot), &w, NULL, 0);
}

static void nodes_close(spmt_comm *comm)
{
	struct nodes *n = nodes_of(comm);
	KEEPS_SENTENCE;

	muster_drop(n);
	notes_drop(n->notes);
	comm->meeting_state = NULL;
	mem_free(n);
}

/* A world's break goes through the bootstrap, with those of all its parts. */
static void nodes_broke(spmt_comm *comm, const struct cause *cause)
{
	struct bootstrap_word w = {
		.comm = comm->id, .kind = WORD_BREAK, .code = cause->code, .call = cause->call
	};
	const struct control *world = atomic_load(&comm->world->control);
	size_t n = strnlen(cause->sentence, STATUS_SENTENCE - 1);
	KEEPS_SENTENCE;

	if (!comm->parent || nodes_of(comm)->n < 2 || atomic_load(&world->stop) || !n)
		return;
	(void)bootstrap_say(atomic_load(&comm->world->boot), &w, cause->sentence, n);
}

static void nodes_attach(spmt_comm *comm, const void *data, size_t size)
{
	meeting_shared.attach(comm, data, size);
	atomic_store(
		&comm->control->rows[comm->rank].attached[(comm->epoch + 1) & 1], (uint32_t)size);
}

/* Sockets, and sleeps until somebody answers, are cancellation points. */
static bool nodes_bring(spmt_comm *comm, const struct meet_record *mine)
{
	UNCANCELLED;
	struct nodes *n = nodes_of(comm);
	bool last;
	int rc;

	atomic_store(&comm->control->rows[comm->rank].attached[(comm->epoch + 1) & 1], 0);
	atomic_store_explicit(
		&comm->control->rows[comm->rank].since, process_now(), memory_order_relaxed);
	last = gate_arrive(comm, mine, n->near);
	if (notes_serve(comm)) {
		if (last && !notes_lead(comm) && atomic_load(&comm->control->gate_sleepers))
			futex_wake_all(control_gate_word(comm->control));
		return false;
	}
	if (!last)
		return false;
	if (n->n == 1) {
		gate_open(comm->control, comm->nranks, comm->epoch);
		return true;
	}
	rc = comm_failed(comm, meet_name(mine->op), say_brought(comm, word_now(comm, WORD_COME)));
	if (rc)
		comm_break_last(comm, rc);
	return false;
}

static int64_t nodes_wait(spmt_comm *comm)
{
	UNCANCELLED;
	int64_t waited = gate_wait(comm, &nodes_hooks);

	if (atomic_load(&comm->control->gate) == (2 * (comm->epoch - 1) | GATE_BROKEN) &&
		notes_are_out(comm))
		notes_lost(comm);
	return waited;
}

static enum meet_verdict nodes_verdict(const spmt_comm *comm)
{
	enum meet_verdict verdict = meeting_shared.verdict(comm);

	return verdict == MEET_BROKEN && notes_hold(comm) ? MEET_AGREED : verdict;
}

static struct brought nodes_brought(const spmt_comm *comm)
{
	return meeting_shared.brought(comm);
}

static const struct meeting_apart nodes_apart = {
	.open = nodes_open,
	.leave = nodes_leave,
	.close = nodes_close,
	.broke = nodes_broke,
	.heard = nodes_heard,
};

const struct meeting_ops meeting_nodes = {
	.name = "nodes",
	.apart = &nodes_apart,
	.attach = nodes_attach,
	.bring = nodes_bring,
	.wait = nodes_wait,
	.verdict = nodes_verdict,
	.standing = missing_standing,
	.brought = nodes_brought,
};
