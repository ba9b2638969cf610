/* SPDX-License-Identifier: MIT */
/* Streams of a comm's device, on every backend: 0 or a code with a sentence. */
#ifndef TESTS_DEVICE_STREAMS_H
#define TESTS_DEVICE_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "latch.h"
#include "spmt.h"

int stream_make(spmt_comm *comm, spmt_stream *stream);
int stream_end(spmt_comm *comm, spmt_stream stream);
int stream_wait(spmt_comm *comm, spmt_stream stream); /* until all that is queued is done */
/* fn on the CPU, in stream order, with a copy of args. On the host backend that is a kernel. */
int stream_call(
	spmt_comm *comm, spmt_stream stream, void (*fn)(void *args), const void *args, size_t size);
/* A word of the device, in stream order. *seen is written when the stream has come so far, or sooner than that on return. */
int stream_store(spmt_comm *comm, spmt_stream stream, uint64_t *word, uint64_t value);
int stream_load(spmt_comm *comm, spmt_stream stream, const uint64_t *word, uint64_t *seen);
/* Memory of the host that copies in a stream go to while their caller goes on. */
int pinned_make(spmt_comm *comm, size_t size, void **memory);
int pinned_end(spmt_comm *comm, void *memory);

#endif
