/* SPDX-License-Identifier: MIT */
/*
 * SPMT_TRACE=file: a line for each call on a comm, for chrome://tracing and Perfetto. Each thread keeps its last TRACE_EVENTS calls in a
 * ring; finalize writes all rings of the process behind what the file holds, which is whole JSON whenever nobody writes.
 *
 * A comm that is traced lets its calls take the slow way (exclusive.h), so that those of others pay nothing.
 */
#ifndef SPMT_TRACE_H
#define SPMT_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#define TRACE_EVENTS 16384
#define TRACE_NAMED 256 /* ranks whose first calls a thread has made, and does not keep */

struct trace_event {
	const char *name; /* strings live as long as the process; NULL: nothing to say */
	const char *map, *mover, *algorithm;
	int64_t begin, end; /* of process_now() */
	uint64_t bytes;
	const void *stream; /* NULL: none; TRACE_OWN: the comm's */
	int rank;	    /* of the world */
	int of, nranks;	    /* of the comm */
	int peer;	    /* -1: none */
	int tid;
	bool init; /* the first of its rank */
};

#define TRACE_OWN ((const void *)(uintptr_t)-1)

/* At init, if the variable is set: the file can be written, and the process of rank 0 has begun it anew. Or a code with a sentence. Nobody
   waits longer than timeout_ms for another process that writes, negative: for ever. */
int trace_open(const char *path, int rank, int64_t timeout_ms);
bool trace_is_on(void);
/* Writes what the process has; a file that takes it no more is named in the log. */
void trace_flush(void);

/* A call begins on this thread; false: it is inside another that is traced, or there is no memory. */
bool trace_begin(const void *owner, const char *name, int rank, int of, int nranks);
void trace_end(const void *owner); /* the call of trace_begin(), if it is this owner's */
/* One that has ended. */
void trace_span(const struct trace_event *event);

/* Of the call that this thread is in, if any. Bytes add up. */
void trace_peer(int peer, uint64_t bytes) __attribute__((cold));
void trace_route(const char *map, const char *mover) __attribute__((cold));
void trace_algorithm(const char *algorithm) __attribute__((cold));
void trace_stream(const void *stream) __attribute__((cold));
/* It has neither peer nor route nor bytes, whatever calls in it have said. */
void trace_forget(void) __attribute__((cold));

/* trace_file.c: none takes a lock of this process, and all lock the file, for which they wait until `end`, of process_now(). A code
   without a sentence; *why: a literal or strerror's. */
int trace_file_begin(const char *path, bool anew, int64_t end, const char **why);
int trace_file_append(
	const char *path, const char *text, unsigned long size, int64_t end, const char **why);

#endif
