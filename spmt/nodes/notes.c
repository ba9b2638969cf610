/* SPDX-License-Identifier: MIT */
#include "notes.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "spmt/comm/comm.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "transports/transport.h"

#define NOTE_DIFFERS 1u

static struct notes *notes_of(const spmt_comm *comm)
{
	const struct nodes *n = comm->meeting_state;

	return n->notes;
}

static size_t slot_of(uint64_t epoch, int round)
{
	return (epoch & 1) * NOTES_ROUNDS + (size_t)round;
}

/* ---- making them ------------------------------------------------------------------------------ */

uint64_t nodes_notes_room(void)
{
	return 2 * NOTES_ROUNDS * sizeof(struct note);
}

static bool leads(const spmt_comm *comm, int rank)
{
	int r = 0;

	while (comm->world->node[comm_world_rank(comm, r)] !=
		comm->world->node[comm_world_rank(comm, rank)])
		r++;
	return r == rank;
}

/* The rank that leads the node which comes `behind` nodes after this one. */
static int leader_behind(const spmt_comm *comm, int behind)
{
	const struct nodes *n = comm->meeting_state;
	int wanted = (n->mine + behind) % n->n, rank = 0;

	for (int node = 0;; rank++)
		if (leads(comm, rank) && node++ == wanted)
			return rank;
}

static int rounds_of(int nodes)
{
	int rounds = 0;

	while (1 << rounds < nodes)
		rounds++;
	return rounds;
}

/* Links of their own, as those of the comm are for the user's moves. */
static int links_make(spmt_comm *comm, struct notes *t)
{
	size_t bytes = (size_t)t->rounds * sizeof(*t->links);

	t->links = mem_aligned(CACHE_LINE, bytes);
	if (!t->links)
		return -ENOMEM;
	memset(t->links, 0, bytes);
	for (int k = 0; k < t->rounds; k++)
		link_again(&t->links[k], &comm->links[leader_behind(comm, 1 << k)]);
	return 0;
}

void nodes_notes_offer(spmt_comm *comm, char *slots, struct meet_record *record)
{
	struct nodes *n = comm->meeting_state;
	const char *area = comm->parent ? comm->heap->base + comm->area : comm->heap->own;
	struct notes *t;

	if (comm->meeting != &meeting_nodes || n->n < 2 || rounds_of(n->n) > NOTES_ROUNDS ||
		!comm_cpu_access(comm))
		return;
	t = mem_calloc(1, sizeof(*t));
	if (!t)
		return; /* then by the hub alone, all of them */
	t->lead = leader_behind(comm, 0);
	t->rounds = rounds_of(n->n);
	t->slots = (struct note *)(void *)slots;
	t->at = (uint64_t)(slots - area);
	if (t->lead == comm->rank && links_make(comm, t)) {
		mem_free(t);
		return;
	}
	n->notes = t;
	record->payload[2] = 1;
}

void nodes_notes_begin(spmt_comm *comm, const spmt_comm *met, const int *numbers)
{
	struct nodes *n = comm->meeting_state;
	bool all = comm->meeting == &meeting_nodes;

	for (int r = 0; r < comm->nranks && all; r++)
		all = meet_payload(met, numbers ? numbers[r] : r, 2) == 1;
	if (all)
		n->notes->on = true;
	else if (comm->meeting == &meeting_nodes)
		nodes_notes_end(comm);
}

void notes_drop(struct notes *t)
{
	if (!t)
		return;
	for (int k = 0; t->links && k < t->rounds; k++)
		t->links[k].movers[0].ops->close(&t->links[k].movers[0]);
	mem_free(t->links);
	mem_free(t);
}

void nodes_notes_end(spmt_comm *comm)
{
	struct nodes *n = comm->meeting == &meeting_nodes ? comm->meeting_state : NULL;
	struct notes *t = n ? n->notes : NULL;

	if (!n)
		return;
	n->notes = NULL;
	notes_drop(t);
}

bool notes_serve(const spmt_comm *comm)
{
	const struct notes *t = notes_of(comm);

	/* the last of them: nobody reaches the others' memory any more */
	return t && t->on &&
		comm->control->rows[comm->rank].record[comm->epoch & 1].op != MEET_DETACHED;
}

bool notes_lead(const spmt_comm *comm)
{
	return notes_serve(comm) && notes_of(comm)->lead == comm->rank;
}

/* ---- the state ---------------------------------------------------------------------------------- */

static uint64_t noted(uint64_t epoch, enum noted state)
{
	return 4 * epoch + state;
}

static bool noted_move(struct control *control, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong(&control->noted, &from, to);
}

/* All ranks of other nodes have brought what those of this one have. */
static void rows_fill(const spmt_comm *comm, uint64_t epoch)
{
	struct control_row *rows = comm->control->rows;
	const struct meet_record *record = NULL;

	for (int r = 0; r < comm->nranks; r++)
		if (meet_is_near(comm, r)) {
			(void)atomic_load_explicit(&rows[r].arrived, memory_order_acquire);
			record = &rows[r].record[epoch & 1];
		}
	for (int r = 0; r < comm->nranks && record; r++) {
		if (meet_is_near(comm, r))
			continue;
		rows[r].record[epoch & 1] = *record;
		rows[r].sentence[epoch & 1][0] = '\0';
		atomic_store_explicit(&rows[r].arrived, epoch, memory_order_release);
	}
}

/* What follows from OPEN, before the state goes on from there: who opened it may be stopped, or dead, before it has come to that.
   Anybody who finds it open does the same. */
static void notes_settle(const spmt_comm *comm, uint64_t epoch)
{
	if (atomic_load(&comm->control->held) == epoch)
		return;
	rows_fill(comm, epoch);
	atomic_store(&comm->control->held, epoch);
}

static bool notes_open(const spmt_comm *comm, uint64_t epoch, uint64_t from)
{
	if (!noted_move(comm->control, from, noted(epoch, NOTED_OPEN)))
		return false;
	notes_settle(comm, epoch);
	gate_open(comm->control, comm->nranks, epoch);
	return true;
}

void notes_opened(const spmt_comm *comm, uint64_t epoch)
{
	/* From one state to the next: it may be frozen meanwhile. */
	if (!notes_open(comm, epoch, noted(epoch, NOTED_OUT)))
		(void)notes_open(comm, epoch, noted(epoch, NOTED_FROZEN));
}

bool notes_asked(const spmt_comm *comm, uint64_t epoch)
{
	struct control *control = comm->control;
	uint64_t now;

	for (;;) {
		/* Who asks has left the meeting before. */
		if (epoch > 1)
			notes_opened(comm, epoch - 1);
		now = atomic_load(&control->noted);
		if (now >= noted(epoch, NOTED_OPEN))
			return true;
		if (now > noted(epoch, NOTED_OUT))
			return false;
		if (now == noted(epoch - 1, NOTED_OPEN))
			notes_settle(comm, epoch - 1);
		if (noted_move(control, now, noted(epoch, NOTED_FROZEN)))
			return false;
	}
}

uint64_t notes_last(const spmt_comm *comm)
{
	uint64_t now = atomic_load(&comm->control->noted);

	return now % 4 == NOTED_OPEN ? now / 4 : MAX_OF(now / 4, 1) - 1;
}

bool notes_are_out(const spmt_comm *comm)
{
	uint64_t now = atomic_load(&comm->control->noted);

	return now == noted(comm->epoch, NOTED_OUT) || now == noted(comm->epoch, NOTED_FROZEN);
}

/*
 * Not by the state alone, nor by who has come: somebody may have asked of the next meeting already, and a meeting that the hub opens
 * fills the rows before it opens the gate. If a break comes between, it stays broken here, as if the break had come first.
 */
bool notes_hold(const spmt_comm *comm)
{
	if (atomic_load(&comm->control->noted) == noted(comm->epoch, NOTED_OPEN)) {
		pthread_mutex_lock(&comm->world->lock);
		notes_settle(comm, comm->epoch);
		pthread_mutex_unlock(&comm->world->lock);
	}
	return atomic_load(&comm->control->held) == comm->epoch;
}

/* ---- a meeting --------------------------------------------------------------------------------- */

/* Finalize's last words go by the hub: whoever has left it takes down what the notes of others would land in. */
static bool near_differ(const spmt_comm *comm)
{
	const struct control_row *own = &comm->control->rows[comm->rank];
	uint64_t parity = comm->epoch & 1;

	if (own->record[parity].op == MEET_FINALIZE)
		return true;
	for (int r = 0; r < comm->nranks; r++) {
		const struct control_row *row = &comm->control->rows[r];

		if (!meet_is_near(comm, r))
			continue;
		(void)atomic_load_explicit(&row->arrived, memory_order_acquire);
		if (atomic_load(&row->attached[parity]) || row->record[parity].status ||
			memcmp(&row->record[parity], &own->record[parity],
				sizeof(own->record[parity])) != 0)
			return true;
	}
	return false;
}

static int note_send(struct notes *t, int round)
{
	struct mover *mover = &t->links[round].movers[0];
	uint64_t place =
		t->links[round].own + t->at + slot_of(t->epoch, round) * sizeof(struct note);
	uint64_t word = t->epoch << 1 | (t->differs ? NOTE_DIFFERS : 0);
	int rc = mover->ops->put(
		mover, place, &t->out.record, sizeof(t->out.record), MOVE_BLOCKING, NULL);

	return rc ? rc
		  : mover->ops->signal(mover, place + offsetof(struct note, word), word,
			    SPMT_SIGNAL_SET, NULL);
}

static int notes_begin(spmt_comm *comm, struct notes *t)
{
	uint64_t now = atomic_load(&comm->control->noted), out = noted(comm->epoch, NOTED_OUT);

	t->epoch = comm->epoch;
	t->round = 0;
	/* It may be frozen before all of this node have come. */
	t->ended = now >= out || !noted_move(comm->control, now, out);
	/* Who has found the gate broken before that has left, and asked nobody: then no note goes out. */
	if (!t->ended && (atomic_load(&comm->control->gate) & GATE_BROKEN)) {
		t->ended = true;
		(void)noted_move(comm->control, out, noted(comm->epoch, NOTED_STAR));
	}
	if (t->ended)
		return 0;
	t->differs = near_differ(comm);
	t->out.record = comm->control->rows[comm->rank].record[comm->epoch & 1];
	return note_send(t, 0);
}

/* True: the note of this round has come. */
static bool note_take(struct notes *t)
{
	const struct note *in = &t->slots[slot_of(t->epoch, t->round)];
	uint64_t word = __atomic_load_n(&in->word, __ATOMIC_ACQUIRE);

	if (t->differs)
		return true; /* what they say changes nothing any more, and the next nodes need not wait for it */
	if (word >> 1 != t->epoch)
		return false;
	t->differs = (word & NOTE_DIFFERS) ||
		memcmp(&in->record, &t->out.record, sizeof(in->record)) != 0;
	return true;
}

/* Nothing of it may land later, when the others have left the meeting. */
static int notes_quiet(struct notes *t)
{
	struct move_wait wait = link_wait_of(&t->links[0]);
	int rc = 0;

	for (int k = 0; k < t->rounds && !rc; k++)
		rc = t->links[k].movers[0].ops->quiet(&t->links[k].movers[0], &wait);
	return rc;
}

static int notes_end_star(spmt_comm *comm, struct notes *t)
{
	int rc = notes_quiet(t);

	if (rc)
		return rc;
	return noted_move(comm->control, noted(t->epoch, NOTED_OUT), noted(t->epoch, NOTED_STAR))
		? NOTES_STAR
		: NOTES_DONE;
}

int notes_go(spmt_comm *comm)
{
	struct notes *t = notes_of(comm);
	const struct nodes *n = comm->meeting_state;
	int rc = 0;

	if (t->epoch != comm->epoch) {
		if (atomic_load(&comm->control->arrived) < comm->epoch * (uint64_t)n->near)
			return NOTES_WAIT;
		rc = notes_begin(comm, t);
	}
	while (!rc && !t->ended) {
		if (!note_take(t))
			return NOTES_WAIT;
		t->ended = ++t->round == t->rounds;
		if (!t->ended)
			rc = note_send(t, t->round);
		else if (t->differs)
			return notes_end_star(comm, t);
		else {
			pthread_mutex_lock(&comm->world->lock);
			(void)notes_open(comm, t->epoch, noted(t->epoch, NOTED_OUT));
			pthread_mutex_unlock(&comm->world->lock);
		}
	}
	t->ended |= rc != 0;
	return rc ? rc : NOTES_DONE;
}
