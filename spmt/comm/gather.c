/* SPDX-License-Identifier: MIT */
/*
 * How the ranks of a world find each other, before they can meet.
 *
 * The first rank of a process connects to the rendezvous if there is one, and otherwise takes its
 * place, so that from then on others find this process and notice its death. Ranks of one process
 * need no more than that: the last of them to come says that all are here. Where others are found, or
 * some are missed after a moment, all ranks of this process, those that come later too, go through
 * the bootstrap.
 */
#include "gather.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "broken.h"
#include "comm.h"
#include "spmt/bootstrap/bootstrap.h"
#include "spmt/bootstrap/wire.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/base/tsan.h"
#include "waits.h"

_Static_assert(sizeof(struct rank_info) <= BOOTSTRAP_BLOB, "a rank's info fits its blob");

#define POST_MS 100		 /* how long a failure is kept for those who come */
#define ALONE_NS (2 * 1000000ll) /* how long a rank waits for its own process's ranks alone */
#define LOOKS 20		 /* at a rendezvous still being set up, before that wait */

/* States of world->gathering, which tells the ranks of this process how they find the others.
   Written under the world's lock. */
enum { GATHER_LOOKING, GATHER_OPEN, GATHER_HERE, GATHER_CALLING, GATHER_BOOT };

static void gathering_set(struct world *w, uint32_t state)
{
	atomic_store_explicit(&w->gathering, state, memory_order_release);
	futex_wake_all(&w->gathering);
}

static struct meeting take_meeting(struct world *w)
{
	struct meeting met = w->met;

	w->met = MEETING_NONE;
	return met;
}

/* True for the one rank that has to open the bootstrap, with what has been found so far. */
static bool gathering_lead(struct world *w, struct meeting *met)
{
	bool lead;

	pthread_mutex_lock(&w->lock);
	lead = atomic_load(&w->gathering) == GATHER_OPEN;
	if (lead) {
		gathering_set(w, GATHER_CALLING);
		*met = take_meeting(w);
	}
	pthread_mutex_unlock(&w->lock);
	return lead;
}

/* If this fails, the bootstrap tries again and reports the reason. */
static void meet_processes(const spmt_comm *comm, struct meeting *met)
{
	struct search search;
	int looks = 0;
	KEEPS_SENTENCE;

	search_begin(&search, &comm->world->uid, false, comm->rank);
	while (!search_look(&search, met) && met->kind == MEETING_AGAIN && ++looks < LOOKS)
		sched_yield();
}

/* If all ranks are in this process, nobody needs to look elsewhere. */
static void gathering_check(struct world *w)
{
	if (w->arrived < w->nranks || atomic_load(&w->gathering) != GATHER_OPEN)
		return;
	meeting_close(&w->met);
	gathering_set(w, GATHER_HERE);
}

/* True for the one rank that has to open the bootstrap at once: the first of a process that finds
   others. */
static bool gathering_arrive(const spmt_comm *comm, struct meeting *met)
{
	struct world *w = comm->world;
	bool first, others;

	pthread_mutex_lock(&w->lock);
	first = !w->arrived++;
	gathering_check(w);
	pthread_mutex_unlock(&w->lock);
	if (!first)
		return false;
	*met = MEETING_NONE;
	if (w->nranks > 1)
		meet_processes(comm, met);
	others = met->kind == MEETING_CLIENT || met->kind == MEETING_AWAY;
	pthread_mutex_lock(&w->lock);
	if (!others)
		w->met = *met;
	/* wakes nobody: those already asleep would wait just as long */
	atomic_store(&w->gathering, others ? GATHER_CALLING : GATHER_OPEN);
	gathering_check(w);
	pthread_mutex_unlock(&w->lock);
	return others;
}

static void on_broken(void *ctx, const struct cause *cause)
{
	world_break_here(ctx, cause);
}

static void on_word(void *ctx, const struct bootstrap_word *word, const void *data, size_t size)
{
	struct world *w = ctx;
	const struct meeting_apart *apart = atomic_load(&w->meeting)->apart;

	if (apart && apart->heard)
		apart->heard(w, word, data, size);
}

/* met: as bootstrap_open(). */
static void post(const struct uid *uid, int nranks, int code, struct meeting *met)
{
	/* A report with a different size from the world's is accepted too. */
	int size = nranks < 1 || nranks > RANKS_MOST ? 1 : nranks;
	struct bootstrap_config config = {
		.uid = uid,
		.nranks = size,
		.rank = -1,
		.blob_size = sizeof(struct rank_info),
		.control_size = control_world_size(size),
		.reports = true,
	};
	struct bootstrap *boot;
	struct cause cause;
	KEEPS_SENTENCE;

	cause_last(&cause, code);
	if (!bootstrap_open(&config, met, &boot)) {
		bootstrap_break(boot, &cause);
		bootstrap_spread(boot, POST_MS);
		bootstrap_close(boot);
	}
}

void gather_post(const struct uid *uid, int nranks, int code)
{
	if (nranks != 1)
		post(uid, nranks, code, NULL);
}

static int call_others(spmt_comm *comm, struct meeting *met)
{
	struct world *w = comm->world;
	struct bootstrap_config config = {
		.uid = &w->uid,
		.nranks = w->nranks,
		.rank = comm->rank,
		.blob_size = sizeof(struct rank_info),
		.control_size = control_world_size(w->nranks),
		.broken = on_broken,
		.heard = on_word,
		.ctx = w,
	};
	struct bootstrap *boot;
	struct cause cause;
	int rc = bootstrap_open(&config, met, &boot);

	if (rc) {
		comm_break_last(comm, rc);
		gather_post(&w->uid, w->nranks, rc); /* what was short may not be any more */
		return rc;
	}
	atomic_store(&w->boot, boot);
	/* A later break sees boot; an earlier one is seen below. */
	if (control_state(w->local, &cause) == CONTROL_BROKEN)
		bootstrap_break(boot, &cause);
	gathering_set(w, GATHER_BOOT);
	return 0;
}

/* The world broke here before this process contacted others: tells those who found it first. */
static int broken_early(spmt_comm *comm)
{
	struct world *w = comm->world;
	int rc = world_broken(w, comm->control, "spmt_init", 0);
	struct meeting met;

	pthread_mutex_lock(&w->lock);
	met = take_meeting(w);
	pthread_mutex_unlock(&w->lock);
	if (met.kind != MEETING_AGAIN)
		post(&w->uid, w->nranks, rc, &met);
	return rc;
}

int gather_begin(spmt_comm *comm)
{
	struct world *w = comm->world;
	struct meeting met;
	int64_t begin = process_now();
	int rc = gathering_arrive(comm, &met) ? call_others(comm, &met) : 0;

	while (!rc) {
		uint32_t state = atomic_load_explicit(&w->gathering, memory_order_acquire);

		if (state == GATHER_HERE || state == GATHER_BOOT)
			return 0;
		if (atomic_load(&comm->control->stop))
			return broken_early(comm);
		if (state != GATHER_OPEN || process_now() - begin < ALONE_NS)
			futex_sleep(&w->gathering, state, ALONE_NS);
		else if (gathering_lead(w, &met))
			rc = call_others(comm, &met);
	}
	return rc;
}

void world_adopt(struct world *w, struct control *control)
{
	struct cause cause;

	control_begin(control, w->nranks, world_label(w));
	atomic_store(&w->local->mark.moved, 1);
	atomic_store(&w->control, control);
	/* A later break sees the new block; an earlier one is seen below. */
	if (control_state(w->local, &cause) == CONTROL_BROKEN)
		control_break(control, &cause);
}

/* Nodes are numbered by their first ranks. Ranks that found each other over TCP are on two nodes, whatever they say. NULL with rc 0:
   there is only one. */
static int nodes_number(const struct world *w, const struct bootstrap *boot,
	const struct rank_info *infos, int **out)
{
	int *node = mem_calloc((size_t)w->nranks, sizeof(*node)), nodes = 0;

	if (!node)
		return fail_call(
			-ENOMEM, "spmt_init", "out of memory for a world of %d ranks", w->nranks);
	for (int r = 0; r < w->nranks; r++) {
		int first = 0;

		while (first < r &&
			(bootstrap_apart(boot, first, r) ||
				memcmp(infos[first].host, infos[r].host, sizeof(infos[r].host)) !=
					0))
			first++;
		node[r] = first;
		nodes += first == r;
	}
	if (nodes > 1) {
		*out = node;
		return 0;
	}
	mem_free(node);
	*out = NULL;
	return 0;
}

/* The first rank of this process to learn that all are there takes over what they published. With several nodes each gets its
   own control block; until it has one, each process does. */
static int adopt_world(struct world *w, const struct bootstrap *boot, const void *blobs,
	const int *process, struct control *control)
{
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	if (!w->process)
		rc = nodes_number(w, boot, blobs, &w->node);
	if (!w->process && !rc) {
		memcpy(w->infos, blobs, (size_t)w->nranks * sizeof(*w->infos));
		w->process = process;
		tsan_elsewhere();
		if (!w->node && !atomic_load(&w->meeting)->apart)
			world_adopt(w, control);
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static int gather_processes(spmt_comm *comm)
{
	struct world *w = comm->world;
	struct bootstrap *boot = atomic_load_explicit(&w->boot, memory_order_acquire);
	const void *blobs;
	const int *process;
	void *control;
	struct patience patience = { process_now(), comm_timeout(comm) };
	int rc = bootstrap_add(boot, comm->rank, &w->infos[comm->rank], &patience);

	waits_show(comm, &control,
		&(struct wait_for){ .name = "spmt_init", .since = process_now(), .gather = true });
	if (!rc)
		rc = bootstrap_wait(boot, &patience, &blobs, &process, &control);
	waits_hide(comm, &control);
	if (rc) {
		/* The rendezvous reports its processes and does not know the call. */
		if (rc == SPMT_ERR_PEER_DEAD && !status_names(NULL))
			fail_call(rc, "spmt_init", "%s", status_sentence());
		comm_break_last(comm, rc);
		/* Ranks that come now hear why, and do not wait for this process in vain. */
		if (rc != SPMT_ERR_TIMEOUT)
			bootstrap_spread(boot, POST_MS);
		return rc;
	}
	rc = adopt_world(w, boot, blobs, process, control);
	if (rc) {
		comm_break_last(comm, rc);
		return rc;
	}
	comm_settle(comm);
	return 0;
}

void comm_settle(spmt_comm *comm)
{
	comm->control = atomic_load_explicit(&comm->world->control, memory_order_acquire);
	waits_join(comm);
}

int gather(spmt_comm *comm)
{
	return atomic_load_explicit(&comm->world->boot, memory_order_acquire)
		? gather_processes(comm)
		: 0;
}

int gather_meet(spmt_comm *comm)
{
	int rc = comm_failed(comm, "spmt_init", meet_open(comm));

	if (rc)
		comm_break_last(comm, rc);
	return rc;
}

void gather_give_up(const spmt_comm *comm)
{
	struct bootstrap *boot = atomic_load_explicit(&comm->world->boot, memory_order_acquire);

	if (boot)
		bootstrap_spread(boot, POST_MS);
}

bool comm_is_local(const spmt_comm *comm, int rank)
{
	const int *process = comm->world->process;

	return !process ||
		process[comm_world_rank(comm, rank)] == process[comm_world_rank(comm, comm->rank)];
}

bool comm_is_neighbour(const spmt_comm *comm, int rank)
{
	const int *node = comm->world->node;

	return !node ||
		node[comm_world_rank(comm, rank)] == node[comm_world_rank(comm, comm->rank)];
}

bool comm_spans_processes(const spmt_comm *comm)
{
	for (int r = 0; r < comm->nranks; r++)
		if (!comm_is_local(comm, r))
			return true;
	return false;
}

/* ---- memory of other processes --------------------------------------------------------------- */

/* What a process publishes of one of its heaps; a round of the exchange carries one. */
struct heap_offer {
	int32_t rank;	       /* -1: this process has no more */
	struct rank_info info; /* as it is now that the device and the heap are open */
	struct heap_piece piece;
};

int gather_nth(const spmt_comm *comm, int i)
{
	for (int r = 0; r < comm->nranks; r++)
		if (comm_is_local(comm, r) && i-- == 0)
			return r;
	return -1;
}

int gather_rounds(const spmt_comm *comm)
{
	const int *process = comm->world->process;
	int most = 0;

	for (int r = 0; r < comm->nranks; r++) {
		int n = 0;

		for (int j = 0; j < comm->nranks; j++)
			n += process[j] == process[r];
		most = MAX_OF(most, n);
	}
	return most;
}

static int offer_make(struct world *w, int rank, struct heap_offer *offer, int *fd)
{
	struct slot *slot;
	int rc;

	offer->rank = rank;
	*fd = -1;
	if (rank < 0)
		return 0;
	slot = &w->slots[rank];
	rc = heap_export_update(&slot->heap, &slot->export);
	if (rc)
		return rc;
	if (slot->export.n != 1)
		return fail_call(SPMT_ERR_UNSUPPORTED, "spmt_init",
			"rank %d: a heap in %d pieces cannot be shared with other processes (SPMT_HEAP_MODE=static)",
			rank, slot->export.n);
	offer->info = w->infos[rank];
	offer->piece = slot->export.pieces[0];
	*fd = slot->export.fds[0];
	return 0;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void offer_keep(struct world *w, const struct heap_offer *offer, int fd)
{
	struct ipc_memory *memory;

	if (offer->rank < 0 || offer->rank >= w->nranks || w->memory[offer->rank].known) {
		close_fd(fd);
		return;
	}
	w->infos[offer->rank] = offer->info;
	memory = &w->memory[offer->rank];
	*memory =
		(struct ipc_memory){ .piece = offer->piece, .fd = fd, .known = true, .buffer = -1 };
}

/* A round among the processes that boot connects. */
struct offer_round {
	struct bootstrap *boot;
	int processes;
	bool memory; /* they share a node: heaps are named as well */
	struct heap_offer *offers;
	int *fds;
};

static int offer_round(spmt_comm *comm, int i, const struct offer_round *round)
{
	struct world *w = comm->world;
	struct heap_offer mine = { .rank = gather_nth(comm, i) };
	int fd = -1, rc = round->memory ? offer_make(w, mine.rank, &mine, &fd) : 0;

	if (mine.rank >= 0)
		mine.info = w->infos[mine.rank];
	if (!rc)
		rc = bootstrap_exchange(round->boot, &mine, sizeof(mine), fd, round->offers,
			round->fds, comm_timeout(comm));
	for (int p = 0; !rc && p < round->processes; p++) {
		int rank = round->offers[p].rank;

		if (round->memory)
			offer_keep(w, &round->offers[p], round->fds[p]);
		else if (rank >= 0 && rank < w->nranks && rank != mine.rank)
			w->infos[rank] = round->offers[p].info;
	}
	return rc;
}

static int offer_rounds(spmt_comm *comm, struct bootstrap *boot, bool memory)
{
	struct offer_round round = { .boot = boot, .memory = memory };
	int self, rc = 0;

	round.processes = bootstrap_processes(boot, &self);
	round.offers = mem_calloc((size_t)round.processes, sizeof(*round.offers));
	round.fds = mem_calloc((size_t)round.processes, sizeof(*round.fds));
	if (!round.offers || !round.fds)
		rc = fail_call(-ENOMEM, "spmt_init",
			"rank %d: out of memory for the heaps of %d processes", comm->rank,
			round.processes);
	for (int i = 0, n = gather_rounds(comm); i < n && !rc; i++)
		rc = offer_round(comm, i, &round);
	mem_free(round.offers);
	mem_free(round.fds);
	return rc;
}

int gather_memory(spmt_comm *comm)
{
	struct world *w = comm->world;
	int rc = 0;

	if (gather_nth(comm, 0) != comm->rank)
		return 0;
	w->memory = mem_calloc((size_t)w->nranks, sizeof(*w->memory));
	if (!w->memory)
		return fail_call(-ENOMEM, "spmt_init",
			"rank %d: out of memory for the heaps of %d ranks", comm->rank, w->nranks);
	for (int r = 0; r < w->nranks; r++)
		w->memory[r].buffer = -1;
	if (!w->node)
		return offer_rounds(comm, w->boot, true);
	rc = offer_rounds(comm, w->boot, false);
	return rc || !w->node_boot ? rc : offer_rounds(comm, w->node_boot, true);
}

struct bootstrap *gather_neighbours(const struct world *w)
{
	return w->node ? w->node_boot : atomic_load(&w->boot);
}

static bool is_first_of_process(const struct world *w, int rank)
{
	for (int r = 0; r < rank; r++)
		if (w->process[r] == w->process[rank])
			return false;
	return true;
}

bool comm_is_alive(const spmt_comm *comm, int rank)
{
	const struct world *w = comm->world;
	struct bootstrap *boot = gather_neighbours(w);
	int home = w->process ? w->process[comm_world_rank(comm, rank)] : 0, before = 0;

	if (!boot)
		return true;
	if (!w->node)
		return bootstrap_is_alive(boot, home);
	for (int r = 0; r < w->nranks; r++)
		if (w->node[r] == w->node[comm_world_rank(comm, rank)] && w->process[r] < home &&
			is_first_of_process(w, r))
			before++;
	return bootstrap_is_alive(boot, w->node_process[before]);
}

void gather_close(struct world *w)
{
	bootstrap_close(w->boot);
	bootstrap_close(w->node_boot);
	for (int r = 0; w->memory && r < w->nranks; r++)
		if (w->memory[r].known)
			close_fd(w->memory[r].fd);
	mem_free(w->memory);
	w->boot = NULL;
	mem_free(w->node);
	w->node_boot = NULL;
	w->node_process = NULL;
	w->node = NULL;
	w->memory = NULL;
	w->process = NULL;
}
