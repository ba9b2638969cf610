/* SPDX-License-Identifier: MIT */
#include "device_streams.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "clocks.h"
#include "spmt/comm/comm.h"
#include "src/base/status.h"
#include "src/device/device.h"

enum { WAIT_S = 20 };

static device_stream own(spmt_comm *comm, spmt_stream stream)
{
	return stream ? stream : comm->stream;
}

int stream_make(spmt_comm *comm, spmt_stream *stream)
{
	if (comm->backend == &backend_host)
		return spmt_host_stream_create(comm, stream);
	return comm->backend->stream_create(comm->dev, stream);
}

int stream_end(spmt_comm *comm, spmt_stream stream)
{
	if (comm->backend == &backend_host)
		return spmt_host_stream_destroy(stream);
	return comm->backend->stream_destroy(comm->dev, stream);
}

int stream_wait(spmt_comm *comm, spmt_stream stream)
{
	int rc;

	if (comm->backend == &backend_host)
		return spmt_host_stream_synchronize(stream);
	rc = comm->backend->stream_sync(
		comm->dev, own(comm, stream), (int64_t)WAIT_S * 1000000000, NULL);
	return rc == -ETIMEDOUT ? fail(rc, "a stream is not done after %d s", WAIT_S) : rc;
}

struct thunk {
	void (*fn)(void *args);
	_Alignas(16) unsigned char args[];
};

static void run_thunk(void *arg)
{
	struct thunk *t = arg;

	t->fn(t->args);
	free(t);
}

int stream_call(
	spmt_comm *comm, spmt_stream stream, void (*fn)(void *args), const void *args, size_t size)
{
	struct thunk *t;
	int rc;

	if (comm->backend == &backend_host)
		return spmt_host_launch(comm, stream, fn, args, size);
	t = malloc(sizeof(*t) + size);
	if (!t)
		return fail(-ENOMEM, "no memory for a call in a stream");
	t->fn = fn;
	if (size)
		memcpy(t->args, args, size);
	rc = comm->backend->call(comm->dev, own(comm, stream), run_thunk, t);
	if (rc < 0)
		free(t);
	return rc;
}

struct word {
	uint64_t *to;
	const uint64_t *from; /* NULL: the value */
	uint64_t value;
};

static void move_word(void *args)
{
	const struct word *w = args;
	uint64_t value = w->from ? __atomic_load_n(w->from, __ATOMIC_RELAXED) : w->value;

	__atomic_store_n(w->to, value, __ATOMIC_RELAXED);
}

int stream_store(spmt_comm *comm, spmt_stream stream, uint64_t *word, uint64_t value)
{
	struct word w = { .to = word, .value = value };
	size_t i;
	int rc = 0;

	if (comm->backend == &backend_host)
		return spmt_host_launch(comm, stream, move_word, &w, sizeof(w));
	/* The lowest byte last: who waits for a small number sees none on the way to it. */
	for (i = sizeof(value); i-- > 0 && !rc;)
		rc = comm->backend->fill(comm->dev, (char *)word + i,
			(int)(value >> (8 * i) & 0xff), 1, own(comm, stream));
	return rc;
}

int stream_load(spmt_comm *comm, spmt_stream stream, const uint64_t *word, uint64_t *seen)
{
	struct word w = { .to = seen, .from = word };

	if (comm->backend == &backend_host)
		return spmt_host_launch(comm, stream, move_word, &w, sizeof(w));
	return comm->backend->copy(comm->dev, seen, word, sizeof(*seen), own(comm, stream));
}

int pinned_make(spmt_comm *comm, size_t size, void **memory)
{
	void *device;

	return comm->backend->host_alloc(comm->dev, size, memory, &device);
}

int pinned_end(spmt_comm *comm, void *memory)
{
	return comm->backend->host_free(comm->dev, memory);
}
