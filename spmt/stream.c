/* SPDX-License-Identifier: MIT */
/*
 * Streams a comm has queued work in. quiet must cover that work and nothing the user queued behind
 * it, so every piece of work is followed by an event, one a stream, recorded anew each time.
 */
#include <errno.h>
#include <string.h>

#include "../src/mem.h"
#include "../src/status.h"
#include "comm.h"
#include "stream.h"

device_stream stream_of(const spmt_comm *comm, spmt_stream stream)
{
	return stream ? stream : comm->stream;
}

/* The entry of `stream`, or one that can be made its own: clean entries are taken over before
   the table grows. */
static struct used_stream *used_entry(spmt_comm *comm, device_stream stream)
{
	struct used_stream *clean = NULL, *grown;

	for (size_t i = 0; i < comm->nused; i++) {
		if (comm->used[i].stream == stream)
			return &comm->used[i];
		if (!comm->used[i].dirty)
			clean = &comm->used[i];
	}
	if (clean) {
		clean->stream = stream;
		return clean;
	}
	grown = mem_calloc(comm->nused + 4, sizeof(*grown));
	if (!grown)
		return NULL;
	if (comm->nused)
		memcpy(grown, comm->used, comm->nused * sizeof(*grown));
	mem_free(comm->used);
	comm->used = grown;
	grown[comm->nused].stream = stream;
	return &grown[comm->nused++];
}

int stream_note(spmt_comm *comm, device_stream stream)
{
	struct used_stream *used;
	int rc = 0;

	comm->streamed = true;
	if (stream == comm->stream) {
		comm->streamed_own = true;
		return 0;
	}
	used = used_entry(comm, stream);
	if (!used)
		return fail(-ENOMEM, "rank %d: out of memory for one more stream", comm->rank);
	if (!used->event)
		rc = comm->backend->event_create(comm->dev, &used->event);
	if (!rc)
		rc = comm->backend->event_record(comm->dev, used->event, stream);
	if (!rc)
		used->dirty = true;
	return rc;
}

/* stream_sync's two silent codes in words. */
static int sync_failed(spmt_comm *comm, const char *what, int rc)
{
	int64_t ms = comm_timeout(comm);

	if (rc == -ECANCELED)
		return control_broken(comm->control, what);
	if (rc == -ETIMEDOUT)
		return fail(SPMT_ERR_TIMEOUT,
			"%s: rank %d: work queued in its streams is not done after %lld.%lld s",
			what, comm->rank, (long long)(ms / 1000), (long long)(ms % 1000 / 100));
	return rc;
}

int stream_drain(spmt_comm *comm, const char *what)
{
	int64_t ms = comm_timeout(comm);
	int rc = comm->backend->stream_sync(comm->dev, comm->stream, ms < 0 ? -1 : ms * 1000000,
		control_stop_word(comm->control));

	return rc ? sync_failed(comm, what, rc) : 0;
}

/* A kernel that failed has left a record; it is read once. */
static int kernel_failure(spmt_comm *comm, const char *what)
{
	struct spmtd_record *r = &comm->slot->signals->record;
	int code, rank = comm->rank;

	if (__atomic_load_n(&r->valid, __ATOMIC_ACQUIRE) != 2)
		return 0;
	code = r->code;
	if (code == SPMT_ERR_MISMATCH)
		fail(code,
			"%s: rank %d: a collective was called differently by ranks (count, type, op, root or function): %d",
			what, rank, r->peer);
	else if (r->peer >= 0)
		fail(code,
			"%s: rank %d: a kernel waited for rank %d, expected %llu, saw %llu: 1 rank missing: %d",
			what, rank, r->peer, (unsigned long long)r->expected,
			(unsigned long long)r->seen, r->peer);
	else
		fail(code,
			"%s: rank %d: a kernel's wait for the word at %#llx ended: expected %llu, saw %llu",
			what, rank, (unsigned long long)r->address, (unsigned long long)r->expected,
			(unsigned long long)r->seen);
	__atomic_store_n(&r->valid, 0, __ATOMIC_RELEASE);
	return code;
}

int streams_join(spmt_comm *comm, device_stream stream)
{
	int rc = 0;

	for (size_t i = 0; i < comm->nused && !rc; i++)
		if (comm->used[i].dirty && comm->used[i].stream != stream)
			rc = comm->backend->stream_wait_event(
				comm->dev, stream, comm->used[i].event);
	return rc;
}

int streams_quiet(spmt_comm *comm, const char *what)
{
	int rc = streams_join(comm, comm->stream);

	for (size_t i = 0; i < comm->nused; i++)
		comm->used[i].dirty = false;
	if (!rc)
		rc = stream_drain(comm, what);
	comm->streamed = false;
	comm->streamed_own = false;
	return rc ? rc : kernel_failure(comm, what);
}

void streams_drop(spmt_comm *comm)
{
	for (size_t i = 0; i < comm->nused; i++)
		if (comm->used[i].event)
			comm->backend->event_destroy(comm->dev, comm->used[i].event);
	mem_free(comm->used);
	comm->used = NULL;
	comm->nused = 0;
	if (comm->collective)
		comm->backend->event_destroy(comm->dev, comm->collective);
	comm->collective = NULL;
}
