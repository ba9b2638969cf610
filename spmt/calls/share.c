/* SPDX-License-Identifier: MIT */
#include "share.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "spmt/bootstrap/bootstrap.h"
#include "spmt/comm/gather.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/* What a rank sends to all others with a registration. */
struct memory_offer {
	struct device_export export;
	char why[SHARE_WHY];
};
_Static_assert(sizeof(struct memory_offer) <= STATUS_SENTENCE, "an offer fits a meeting");

/* ---- naming ---------------------------------------------------------------------------------- */

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

int share_offer(spmt_comm *comm, void *buf, size_t size)
{
	const struct device_ipc_ops *ipc = comm->backend->ipc;
	struct memory_offer offer = { .export = { .kind = DEVICE_EXPORT_NONE } };
	struct status_saved saved;
	int fd = -1, rc = 0;

	status_save(&saved);
	if (size && !heap_holds(comm->heap, buf, size))
		rc = ipc->export_memory(comm->dev, buf, size, &offer.export, &fd);
	if (is_shortage(rc))
		return comm_failed(comm, "spmt_register", rc);
	/* Descriptors go through all processes of the world in turn. */
	if (!rc && fd >= 0 && comm->parent) {
		rc = fail(SPMT_ERR_UNSUPPORTED,
			"its memory is exported as a descriptor, which the world's own comm alone can pass on");
		drop_fd(&fd);
	}
	if (rc) {
		offer.export = (struct device_export){ .kind = DEVICE_EXPORT_NONE };
		snprintf(offer.why, sizeof(offer.why), "%.*s", SHARE_WHY - 1, status_sentence());
	}
	status_restore(&saved);
	if (!comm->parent)
		comm->slot->offered_fd = fd;
	meet_attach(comm, &offer, sizeof(offer));
	return 0;
}

void share_withdraw(spmt_comm *comm)
{
	if (!comm->parent)
		drop_fd(&comm->slot->offered_fd);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static bool by_descriptor(const spmt_comm *comm, const struct share *shares)
{
	for (int pe = 0; pe < comm->nranks; pe++)
		if (shares[pe].export.kind == DEVICE_EXPORT_FD)
			return true;
	return false;
}

/* A round of the processes, each with a descriptor of one of its ranks; got: one a process. */
struct fd_round {
	int32_t *ranks;
	int *got;
};

static int exchange_round(spmt_comm *comm, int rank, int processes, const struct fd_round *round)
{
	struct world *w = comm->world;
	int32_t mine = rank;
	int rc = bootstrap_exchange(gather_neighbours(w), &mine, sizeof(mine),
		rank < 0 ? -1 : w->slots[rank].offered_fd, round->ranks, round->got,
		comm_timeout(comm));

	for (int p = 0; !rc && p < processes; p++) {
		int from = round->ranks[p];

		if (from < 0 || from >= w->nranks || comm_is_local(comm, from) ||
			w->memory[from].buffer >= 0)
			drop_fd(&round->got[p]);
		else
			w->memory[from].buffer = round->got[p];
	}
	return rc;
}

/* As in gather_memory, one rank of each process sends and receives for all. */
static bool exchanges(const spmt_comm *comm)
{
	return gather_nth(comm, 0) == comm->rank;
}

/* The processes of this node; 0: there is no other. */
static int neighbours(const spmt_comm *comm)
{
	const struct bootstrap *boot = gather_neighbours(comm->world);
	int self;

	return boot ? bootstrap_processes(boot, &self) : 0;
}

static int round_make(const spmt_comm *comm, struct fd_round *round)
{
	int processes;

	if (!exchanges(comm))
		return 0;
	processes = neighbours(comm);
	round->ranks = mem_calloc((size_t)processes, sizeof(*round->ranks));
	round->got = mem_calloc((size_t)processes, sizeof(*round->got));
	if (!processes || (round->ranks && round->got))
		return 0;
	return fail_call(-ENOMEM, "spmt_register", "rank %d: out of memory for %d processes",
		comm->rank, processes);
}

static int exchange(spmt_comm *comm, const struct fd_round *round)
{
	int processes = neighbours(comm), rc = 0;

	for (int i = 0, n = gather_rounds(comm); processes && exchanges(comm) && i < n && !rc; i++)
		rc = exchange_round(comm, gather_nth(comm, i), processes, round);
	return rc;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static int map_one(spmt_comm *comm, int pe, struct share *s)
{
	struct status_saved saved;
	int rc;

	if (s->export.kind == DEVICE_EXPORT_NONE || comm_is_local(comm, pe) ||
		!comm_is_neighbour(comm, pe))
		return 0;
	status_save(&saved);
	rc = comm->backend->ipc->import_memory(comm->dev, &s->export,
		comm->world->memory[comm_world_rank(comm, pe)].buffer, &s->base);
	if (!rc)
		return 0;
	s->base = NULL;
	if (is_shortage(rc))
		return rc;
	snprintf(s->why, sizeof(s->why), "%.*s", SHARE_WHY - 1, status_sentence());
	status_restore(&saved);
	return 0;
}

static int map_all(spmt_comm *comm, struct share *shares)
{
	int rc = 0;

	for (int pe = 0; pe < comm->nranks && !rc; pe++)
		rc = map_one(comm, pe, &shares[pe]);
	return comm_failed(comm, "spmt_register", rc);
}

/* Descriptors stay open from one meeting to the next. */
static int pass_descriptors(spmt_comm *comm)
{
	struct meet_record record = { .op = MEET_NAMED };
	struct fd_round round = { NULL, NULL };
	int rc;

	/* An exchange waits for a rank of each other process, so no process may skip it. */
	record.status = round_make(comm, &round);
	rc = meet(comm, &record);
	if (!rc) {
		record.status = exchange(comm, &round);
		rc = meet(comm, &record);
	}
	mem_free(round.ranks);
	mem_free(round.got);
	share_withdraw(comm);
	return rc;
}

/* Some rank was short of something, so that all fail: nobody has a buffer mapped when its owner hears of that. */
static void unmap_all(spmt_comm *comm, struct share *shares)
{
	KEEPS_SENTENCE;

	share_drop(comm, shares);
	meet(comm, &(struct meet_record){ .op = MEET_NAMED });
}

int share_accept(spmt_comm *comm, struct share *shares)
{
	struct meet_record record = { .op = MEET_NAMED };
	bool descriptors;
	int rc;

	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct memory_offer *o = meet_attached(comm, pe);

		shares[pe].export = o->export;
		memcpy(shares[pe].why, o->why, sizeof(o->why));
		shares[pe].why[SHARE_WHY - 1] = '\0';
	}
	if (!share_any(comm, shares))
		return 0;
	descriptors = by_descriptor(comm, shares);
	rc = descriptors ? pass_descriptors(comm) : 0;
	if (!rc) {
		record.status = map_all(comm, shares);
		rc = meet(comm, &record);
		if (rc)
			unmap_all(comm, shares);
	}
	if (descriptors && gather_nth(comm, 0) == comm->rank)
		for (int pe = 0; pe < comm->nranks; pe++)
			drop_fd(&comm->world->memory[pe].buffer);
	return rc;
}

void share_drop(spmt_comm *comm, struct share *shares)
{
	KEEPS_SENTENCE;

	for (int pe = 0; pe < comm->nranks; pe++) {
		if (shares[pe].base)
			comm->backend->ipc->release(comm->dev, shares[pe].base, &shares[pe].export);
		shares[pe].base = NULL;
	}
}

bool share_any(const spmt_comm *comm, const struct share *shares)
{
	for (int pe = 0; pe < comm->nranks; pe++)
		if (shares[pe].export.kind != DEVICE_EXPORT_NONE)
			return true;
	return false;
}
