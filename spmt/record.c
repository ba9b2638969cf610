/* SPDX-License-Identifier: MIT */
/* Reading what a failed kernel has left in its rank's record. */
#include "record.h"

#include <stddef.h>
#include <stdio.h>

#include "../src/process.h"
#include "../src/status.h"
#include "coll_key.h"
#include "steps.h"

/* A word of this rank's own part, `unknown` where it cannot be had. By way of memory that lives as long as the comm: in a broken
   world the copy may outlast the call. */
static uint64_t read_own_word(spmt_comm *comm, const char *word, uint64_t unknown)
{
	struct link *self = &comm->links[comm->rank];
	uint64_t *seen;

	if (comm_cpu_access(comm))
		return __atomic_load_n((const uint64_t *)(const void *)word, __ATOMIC_ACQUIRE);
	if (scratch_room(comm, sizeof(*seen)))
		return unknown;
	seen = scratch_host(comm);
	*seen = unknown;
	if (self->small->get(self, seen, word, sizeof(*seen), MOVE_BLOCKING, NULL))
		return unknown;
	return *seen;
}

static bool peer_missing(spmt_comm *comm, int pe, const struct spmtd_record *r)
{
	const char *box = comm->links[comm->rank].own + sizeof(struct spmtd_own) +
		(size_t)pe * sizeof(struct spmtd_inbox);
	uint64_t flag = spmtd_flag_(r->expected);

	if (pe == comm->rank)
		return false;
	if (r->what == SPMTD_WHAT_COLLECTIVE)
		return read_own_word(comm,
			       box + offsetof(struct spmtd_inbox, hello[r->expected & 1]),
			       flag << 32) >>
			32 !=
			flag;
	return (int64_t)(read_own_word(
				 comm, box + offsetof(struct spmtd_inbox, sync), r->expected) -
		       r->expected) < 0;
}

/* "spmt_quiet: rank 0: a collective was waited for; 2 of 8 ranks missing after 5.0 s: 3, 6" */
static int fail_missing(spmt_comm *comm, const char *what, const struct spmtd_record *r, int code)
{
	struct waits_text waits = { .used = 0 };
	char list[256] = "";
	size_t used = 0;
	int missing = 0;
	int64_t ms = comm_timeout(comm), since = process_now() - ms * 1000000;

	for (int pe = 0; pe < comm->nranks; pe++) {
		int n;

		if (!peer_missing(comm, pe, r))
			continue;
		n = snprintf(list + used, sizeof(list) - used, "%s%d", missing++ ? ", " : "", pe);
		used = MIN_OF(used + (size_t)MAX_OF(n, 0), sizeof(list) - 1);
		waits_add(&waits, comm, pe, since);
	}
	if (!missing) /* it has come meanwhile */
		missing = snprintf(list, sizeof(list), "%d", r->peer) > 0;
	return fail(code,
		"%s: rank %d: a %s in a stream: %s%d of %d ranks missing after %.1f s: %s", what,
		comm->rank, r->what == SPMTD_WHAT_COLLECTIVE ? "collective" : "barrier",
		waits_said(&waits), missing, comm->nranks, (double)ms / 1e3, list);
}

static bool is_collective(const struct spmtd_record *r)
{
	return r->what == SPMTD_WHAT_SYNC || r->what == SPMTD_WHAT_BARRIER ||
		r->what == SPMTD_WHAT_COLLECTIVE;
}

static int say(spmt_comm *comm, const char *what, const struct spmtd_record *r)
{
	char difference[192];

	if (r->code == SPMT_ERR_MISMATCH) {
		coll_differ(
			difference, sizeof(difference), r->peer, r->seen, comm->rank, r->expected);
		return fail(r->code, "%s: rank %d: %s", what, comm->rank, difference);
	}
	if (r->code == SPMT_ERR_TIMEOUT && is_collective(r))
		return fail_missing(comm, what, r, r->code);
	return fail(r->code, "%s: rank %d: %s the word at %#llx ended: expected %llu, saw %llu",
		what, comm->rank,
		r->what == SPMTD_WHAT_ON_STREAM ? "spmt_signal_wait_on_stream on"
						: "a kernel's wait for",
		(unsigned long long)r->address, (unsigned long long)r->expected,
		(unsigned long long)r->seen);
}

/* The code with which a collective or barrier of the library has failed in a stream, once; else 0. A user's kernel may try its
   barrier again. */
static int meeting_failed(spmt_comm *comm)
{
	struct link *self = &comm->links[comm->rank];
	char *word = self->own + offsetof(struct spmtd_own, error);
	static const uint64_t none;
	int code = (int)(int64_t)read_own_word(comm, word, 0);

	if (code)
		self->small->put(self, word, &none, sizeof(none), MOVE_BLOCKING, NULL);
	return code;
}

/* The world breaks, also where the record is of another wait, which ended before. */
static void meeting_breaks(spmt_comm *comm, const struct spmtd_record *r)
{
	char before[STATUS_SENTENCE];

	if (is_collective(r)) {
		comm_break(comm, SPMT_ERR_TIMEOUT, status_sentence());
		return;
	}
	snprintf(before, sizeof(before), "%s", status_sentence());
	fail(SPMT_ERR_TIMEOUT, "%s; then a barrier or collective in a stream timed out", before);
	comm_break(comm, SPMT_ERR_TIMEOUT, status_sentence());
}

int kernel_failure(spmt_comm *comm, const char *what)
{
	struct spmtd_record *r = &comm->signals->record, now;
	int code;

	if (__atomic_load_n(&r->valid, __ATOMIC_ACQUIRE) != 2)
		return 0;
	now = *r;
	__atomic_store_n(&r->valid, 0, __ATOMIC_RELEASE);
	code = say(comm, what, &now);
	if (meeting_failed(comm) == SPMT_ERR_TIMEOUT)
		meeting_breaks(comm, &now);
	return code;
}
