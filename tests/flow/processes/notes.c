/* SPDX-License-Identifier: MIT */
/*
 * Meetings of nodes, each of which a process is (tests/lib/transports/parcel.h): by notes, of which each leader sends ceil(log2(nodes)),
 * and of which the hub hears nothing; and what comes of a meeting whose notes are lost, whoever dies in it: the same for all.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spmt/bootstrap/bootstrap.h"
#include "spmt/comm/comm.h"
#include "spmt/nodes/notes.h"
#include "tests/lib/processes.h"
#include "transports/transport.h"

enum {
	MOST = 8,
	MEETINGS = 12,
	LATE_MS = 700,
	TRIES = SANITIZED ? 8 : 24,
	KILLED_AFTER_US = 20000
};

/* Words to the hub of meetings, but for those of ranks that wait for others of their node, by this process. */
static _Atomic int said;

int __real_bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size);
int __wrap_bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size);
int __wrap_bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size)
{
	atomic_fetch_add(&said, word->kind != WORD_SOME);
	return __real_bootstrap_say(b, word, data, size);
}

/* This leader breaks its world, here alone, before it begins to send notes, and waits until its neighbour has left. */
static _Atomic(spmt_comm *) late;
static _Atomic int left;

int __real_notes_go(spmt_comm *comm);
int __wrap_notes_go(spmt_comm *comm);
int __wrap_notes_go(spmt_comm *comm)
{
	const struct nodes *n = comm->meeting_state;
	struct cause cause;

	if (comm == atomic_load(&late) &&
		atomic_load(&comm->control->arrived) == comm->epoch * (uint64_t)n->near) {
		atomic_store(&late, NULL);
		cause_set(&cause, -77, NULL, "a test");
		world_break_here(comm->world, &cause);
		for (int i = 0; i < 20000 && !atomic_load(&left); i++)
			usleep(500);
	}
	return __real_notes_go(comm);
}

/* Shared by the processes. */
struct scene {
	_Atomic int passed[MOST]; /* by rank: barriers that it has left with 0 */
	_Atomic int code[MOST];	  /* .. and what the next said */
	_Atomic int ready, heard;
	bool hub;	  /* who dies is it */
	int survivors;	  /* ranks */
	int victim, us;	  /* its process, and when it is killed */
	int loser, round; /* the rank whose note of that round is lost */
	bool dies;	  /* .. and which then kills its process */
};

static const struct notes *notes_of(const spmt_comm *comm)
{
	const struct nodes *n = comm->meeting_state;

	return n->notes;
}

/* ---- how many ------------------------------------------------------------------------------------------------------------ */

static uint64_t sent(const spmt_comm *comm)
{
	const struct notes *t = notes_of(comm);
	uint64_t n = 0;

	for (int k = 0; t->links && k < t->rounds; k++)
		for (int m = 0; m < LINK_MOVERS; m++)
			n += atomic_load(&t->links[k].ops[m]);
	return n;
}

static int log2_of(int n)
{
	int bits = 0;

	while (1 << bits < n)
		bits++;
	return bits;
}

static int counts(spmt_comm *comm, void *arg)
{
	const struct nodes *n = comm->meeting_state;
	struct scene *s = arg;
	uint64_t before;
	int words;
	void *block;

	REQUIRE(n->notes && n->notes->on);
	REQUIRE_OK(spmt_barrier(comm));
	before = sent(comm);
	words = atomic_load(&said);
	for (int i = 0; i < MEETINGS; i++) {
		/* nobody passes before all have come */
		atomic_store(&s->passed[comm->rank], i);
		REQUIRE_OK(spmt_barrier(comm));
		for (int r = 0; r < comm->nranks; r++)
			REQUIRE(atomic_load(&s->passed[r]) >= i);
	}
	/* a note is a record and the word behind it */
	REQUIRE_EQ(sent(comm) - before,
		notes_lead(comm) ? 2 * (uint64_t)(log2_of(n->n) * MEETINGS) : 0);
	REQUIRE_EQ(atomic_load(&said), words);
	REQUIRE_OK(spmt_malloc(comm, 64, &block));
	REQUIRE_EQ(atomic_load(&said), words);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_CODE(spmt_malloc(comm, comm->rank ? 64 : 128, &block), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("spmt_malloc: size differs: rank 0 passed 128, rank 1 passed 64");
	REQUIRE(atomic_load(&said) > words || !notes_lead(comm) || n->near > 1);
	return 0;
}

static void in_layout(const char *layout, int (*fn)(spmt_comm *comm, void *arg))
{
	struct processes p = { .layout = layout };
	struct scene *s = processes_shared(sizeof(*s));

	NEEDS_LAYOUT(layout);
	cr_assert_not_null(s);
	RANKS_OK(processes_world(&p, fn, s));
}

Test(notes, as_many_as_rounds)
{
	in_layout("0|1,2", counts);
	in_layout("0,1|2|3", counts);
	in_layout("0|1|2|3|4", counts);
	in_layout("0|1|2|3|4|5|6|7", counts);
}

/* ---- what is lost -------------------------------------------------------------------------------------------------------- */

static int put_nothing(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	(void)m, (void)offset, (void)local, (void)n, (void)mode, (void)stream;
	return 0;
}

static int signal_nothing(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream)
{
	(void)m, (void)offset, (void)value, (void)op, (void)stream;
	return 0;
}

/* From here on this rank's notes of a round do not arrive. */
static void lose(const spmt_comm *comm, int round)
{
	static struct mover_ops deaf;
	struct mover *m = &notes_of(comm)->links[round].movers[0];

	deaf = *m->ops;
	deaf.put = put_nothing;
	deaf.signal = signal_nothing;
	m->ops = &deaf;
}

static int init(spmt_comm **comm, const struct processes *p, int rank)
{
	struct spmt_attr attr = ranks_attr(rank, p->nranks, &p->uid[0]);

	attr.timeout_ms = 20000;
	REQUIRE_OK(spmt_init(&attr, comm));
	ranks_watch(*comm);
	return 0;
}

struct play {
	struct processes p;
	struct scene *s;
};

static struct play play_make(const char *layout)
{
	struct play play = { .p = { .layout = layout } };

	play.s = processes_shared(sizeof(*play.s));
	cr_assert_not_null(play.s);
	play.p.shared = play.s;
	return play;
}

/* Barriers until one fails. */
static int barriers(spmt_comm *comm, struct scene *s)
{
	int rc = 0;

	while (!(rc = spmt_barrier(comm)))
		atomic_fetch_add(&s->passed[comm->rank], 1);
	atomic_store(&s->code[comm->rank], rc);
	return 0;
}

/* Whoever ends its comm when the hub has died can be asked by nobody: so not before all have heard. */
static void together(const struct play *play)
{
	struct scene *s = play->s;

	atomic_fetch_add(&s->heard, 1);
	for (int i = 0; s->hub && i < 20000 && atomic_load(&s->heard) < s->survivors; i++)
		usleep(500);
}

/* The meeting is open at a survivor once that has left it: not before does this process die. */
static void dies_after(struct scene *s, int rank)
{
	for (int i = 0; i < 20000 && !atomic_load(&s->passed[rank]); i++)
		usleep(500);
	kill(getpid(), SIGKILL);
}

/* Of three nodes the last misses a note of the first, which the second does not need. */
static int loses(int rank, void *arg)
{
	struct play *play = arg;
	struct scene *s = play->s;
	spmt_comm *comm;

	TRY(init(&comm, &play->p, rank));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank == s->loser)
		lose(comm, s->round);
	if (rank == 2 && !s->dies)
		REQUIRE_OK(spmt_set_timeout(comm, LATE_MS));
	if (rank == s->loser && s->dies) {
		REQUIRE_OK(spmt_barrier(comm));
		dies_after(s, 1);
	}
	REQUIRE_OK(spmt_barrier(comm));
	atomic_store(&s->passed[rank], 1);
	if (s->dies) {
		REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_PEER_DEAD);
	} else if (rank == s->loser) {
		/* whose next notes are lost as well */
		REQUIRE_OK(spmt_barrier(comm));
	} else {
		REQUIRE_OK(spmt_barrier(comm));
	}
	together(play);
	ranks_watch(NULL);
	(void)spmt_finalize(comm);
	return 0;
}

/* Open for one, open for all: its deadline passes, and the hub finds out. */
Test(notes, a_lost_one_is_asked_for)
{
	struct play play = play_make("0|1|2");

	play.s->loser = 0;
	play.s->round = 1;
	RANKS_OK(processes_run(&play.p, loses, &play));
}

/* The next meeting is frozen at one node, as if somebody had asked for it: no note opens it, for anybody. */
static int freezes(spmt_comm *comm, void *arg)
{
	bool open, next;

	(void)arg;
	REQUIRE_OK(spmt_barrier(comm));
	if (!comm->rank) {
		pthread_mutex_lock(&comm->world->lock);
		open = notes_asked(comm, comm->epoch);
		next = notes_asked(comm, comm->epoch + 1);
		pthread_mutex_unlock(&comm->world->lock);
		REQUIRE(open && !next);
	}
	REQUIRE_OK(spmt_set_timeout(comm, LATE_MS));
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
	return 0;
}

Test(notes, frozen_where_it_was_asked_for)
{
	in_layout("0|1,2|3", freezes);
}

/*
 * A meeting that the hub is just opening, all rows filled, breaks; and somebody has left it elsewhere, and asks of the next: it is not one
 * that notes hold open. One that they hold is, also while who opened it has done no more.
 */
static int holds(spmt_comm *comm, void *arg)
{
	struct control *real = comm->control, *made = calloc(1, control_size(comm->nranks));
	uint64_t epoch = comm->epoch + 1;
	bool hubs, held, open;

	(void)arg;
	REQUIRE(made);
	memcpy(made, real, control_size(comm->nranks));
	comm->control = made;
	comm->epoch = epoch;
	atomic_store(&made->gate, 2 * (epoch - 1) | GATE_BROKEN);
	for (int r = 0; r < comm->nranks; r++)
		atomic_store(&made->rows[r].arrived, epoch);
	pthread_mutex_lock(&comm->world->lock);
	atomic_store(&made->noted, 4 * epoch + NOTED_STAR);
	REQUIRE(!notes_asked(comm, epoch + 1));
	pthread_mutex_unlock(&comm->world->lock);
	hubs = notes_hold(comm);
	for (int r = 0; r < comm->nranks; r++)
		if (r != comm->rank)
			atomic_store(&made->rows[r].arrived, epoch - 1);
	atomic_store(&made->noted, 4 * epoch + NOTED_OPEN);
	held = notes_hold(comm);
	atomic_store(&made->held, 0);
	pthread_mutex_lock(&comm->world->lock);
	open = !notes_asked(comm, epoch + 1);
	pthread_mutex_unlock(&comm->world->lock);
	open &= notes_hold(comm);
	comm->epoch = epoch - 1;
	comm->control = real;
	free(made);
	REQUIRE(!hubs && held && open);
	return 0;
}

Test(notes, held_open_by_notes_alone)
{
	in_layout("0|1|2", holds);
}

/* A rank that leaves a broken meeting before its node's notes are out has asked nobody: none goes out behind it. */
static int breaks_before(spmt_comm *comm, void *arg)
{
	(void)arg;
	REQUIRE_OK(spmt_barrier(comm));
	if (!comm->rank)
		atomic_store(&late, comm);
	if (comm->rank == 2) {
		REQUIRE(spmt_barrier(comm) < 0);
		return 0;
	}
	REQUIRE_CODE(spmt_barrier(comm), -77);
	atomic_store(&left, comm->rank);
	return 0;
}

Test(notes, none_goes_out_behind_who_has_left)
{
	in_layout("0,1|2", breaks_before);
}

/* The hub dies when some have left the meeting: the one that follows it finds out. */
Test(notes, the_hub_dies_when_some_have_left)
{
	struct play play = play_make("0|1|2");

	play.s->loser = 0;
	play.s->round = 1;
	play.s->dies = play.s->hub = true;
	play.s->survivors = 2;
	play.p.killed = 1;
	RANKS_OK(processes_run(&play.p, loses, &play));
}

/* So does a node that is not the hub. */
static int last_loses(int rank, void *arg)
{
	struct play *play = arg;
	spmt_comm *comm;

	TRY(init(&comm, &play->p, rank));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank == 2) {
		lose(comm, 1); /* to 1 */
		REQUIRE_OK(spmt_barrier(comm));
		dies_after(play->s, 0);
	}
	REQUIRE_OK(spmt_barrier(comm));
	atomic_store(&play->s->passed[rank], 1);
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_PEER_DEAD);
	ranks_watch(NULL);
	(void)spmt_finalize(comm);
	return 0;
}

Test(notes, a_node_dies_when_some_have_left)
{
	struct play play = play_make("0|1|2");

	play.p.killed = 1u << 2;
	RANKS_OK(processes_run(&play.p, last_loses, &play));
}

/* ---- at any moment --------------------------------------------------------------------------------------------------------- */

static int until_death(int rank, void *arg)
{
	struct play *play = arg;
	spmt_comm *comm;

	TRY(init(&comm, &play->p, rank));
	atomic_fetch_add(&play->s->ready, 1);
	TRY(barriers(comm, play->s));
	together(play);
	ranks_watch(NULL);
	(void)spmt_finalize(comm);
	return 0;
}

static void kills(struct processes *p)
{
	struct scene *s = p->shared;

	for (int i = 0; i < 20000 && atomic_load(&s->ready) < p->nranks; i++)
		usleep(500);
	usleep((useconds_t)s->us);
	kill(p->pid[s->victim], SIGKILL);
}

static void survivors_agree(const struct play *play)
{
	const struct scene *s = play->s;
	int like = -1;

	for (int r = 0; r < play->p.nranks; r++) {
		if (processes_of(play->p.layout, r) == s->victim)
			continue;
		if (like < 0)
			like = r;
		cr_assert_eq(atomic_load(&s->code[r]), SPMT_ERR_PEER_DEAD, "rank %d: code %d", r,
			atomic_load(&s->code[r]));
		cr_assert_eq(atomic_load(&s->passed[r]), atomic_load(&s->passed[like]),
			"process %d killed after %d us: rank %d left %d meetings, rank %d %d",
			s->victim, s->us, r, atomic_load(&s->passed[r]), like,
			atomic_load(&s->passed[like]));
	}
}

Test(notes, all_who_live_have_left_the_same_meetings)
{
	uint64_t seed = 17;

	for (int i = 0; i < TRIES; i++) {
		struct play play = play_make(i & 2 ? "0,1|2|3,4" : "0|1|2|3|4");

		play.s->victim = i & 1 ? (int)(random_next(&seed) % 3) : 0;
		play.s->hub = !play.s->victim;
		for (int r = 0; r < 5; r++)
			play.s->survivors += processes_of(play.p.layout, r) != play.s->victim;
		play.s->us = (int)(random_next(&seed) % KILLED_AFTER_US);
		play.p.killed = 1u << play.s->victim;
		play.p.watch = kills;
		RANKS_OK(processes_run(&play.p, until_death, &play));
		survivors_agree(&play);
	}
}

static int aborts(int rank, void *arg)
{
	struct play *play = arg;
	spmt_comm *comm;

	TRY(init(&comm, &play->p, rank));
	for (int i = 0; rank == 1 && i < MEETINGS; i++) {
		REQUIRE_OK(spmt_barrier(comm));
		atomic_fetch_add(&play->s->passed[rank], 1);
	}
	if (rank == 1)
		spmt_abort(comm, -77);
	TRY(barriers(comm, play->s));
	REQUIRE_EQ(atomic_load(&play->s->passed[rank]), MEETINGS);
	REQUIRE_EQ(atomic_load(&play->s->code[rank]), -77);
	ranks_watch(NULL);
	(void)spmt_finalize(comm);
	return 0;
}

Test(notes, an_abort_ends_a_meeting_for_all)
{
	struct play play = play_make("0|1,2|3");

	RANKS_OK(processes_run(&play.p, aborts, &play));
}

/* ---- who could be called, and has gone since ------------------------------------------------------------------------------- */

enum {
	LATER_US = 300000,
	GONE_AFTER_US = 1000000,
	SOON_MS = 5000
}; /* of 10 s, which one that may come is waited for */

static int goes_on(int rank, void *arg)
{
	struct play *play = arg;
	spmt_comm *comm;
	spmt_uid next;
	int64_t begin;
	int now, n;

	if (rank == 2)
		usleep(LATER_US); /* who comes first of the two follows the hub */
	TRY(init(&comm, &play->p, rank));
	REQUIRE_OK(spmt_barrier(comm));
	atomic_fetch_add(&play->s->ready, 1);
	while (rank != 1)
		usleep(1000);
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_PEER_DEAD);
	begin = calm_ns();
	REQUIRE_OK(spmt_shrink(comm, &next, &now, &n));
	REQUIRE(now == 0 && n == 1);
	REQUIRE(calm_ns() - begin < SOON_MS * 1000000ll);
	ranks_watch(NULL);
	(void)spmt_finalize(comm);
	return 0;
}

/* The last node's kernel answers calls as long as the process is stopped. */
static void goes(struct processes *p)
{
	struct scene *s = p->shared;

	for (int i = 0; i < 20000 && atomic_load(&s->ready) < p->nranks; i++)
		usleep(500);
	kill(p->pid[2], SIGSTOP);
	waitpid(p->pid[2], NULL, WUNTRACED); /* all of its threads */
	kill(p->pid[0], SIGKILL);
	usleep(GONE_AFTER_US);
	kill(p->pid[2], SIGKILL);
}

Test(notes, who_was_called_and_died_is_not_waited_for)
{
	struct play play = play_make("0|1|2");

	play.p.killed = 1u << 0 | 1u << 2;
	play.p.watch = goes;
	RANKS_OK(processes_run(&play.p, goes_on, &play));
}
