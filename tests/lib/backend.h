/* SPDX-License-Identifier: MIT */
/*
 * The backend under test: SPMT_BACKEND's, the host's where that is unset; and SPMT_TEST_DEVICES, how many devices it has. Both are
 * told, not asked for: a child forked after its parent has started a driver could not use it. A suite runs on every backend; what
 * a test needs of one that another lacks it says in words and is skipped there.
 */
#ifndef TESTS_BACKEND_H
#define TESTS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spmt.h"

bool on_host(void);
/* As many as anybody asks for on the host backend. */
int devices_here(void);
/* n, or as many as can have a device each. */
int ranks_here(int n);
/*
 * What opening devices may add to a deadline, in seconds; 0 on the host backend and stand-ins. A driver opens one at a time for
 * all processes of the machine, 0.6 s each on H200: 8 processes with 4 of them take 20 s, and as long again beside another suite.
 */
int opening_s(void);
/* For attr.device: -1 on the host backend, else one that the rank shares with others where there are fewer than ranks. */
int device_of(int rank);
/* Are all n of these there? */
bool devices_fit(const int *devices, int n);
/* Does device 0 back ranges on demand? A child asks. */
bool ranges_here(void);

/* In a Criterion test's own thread. */
#define NEEDS_HOST(what)                                          \
	do {                                                      \
		if (!on_host())                                   \
			cr_skip_test("host backend only: " what); \
	} while (0)
#define NEEDS_DEVICES(n)                                                                     \
	do {                                                                                 \
		if (devices_here() < (n))                                                    \
			cr_skip_test("needs %d devices, there are %d", (n), devices_here()); \
	} while (0)

#define NEEDS_RANGES()                                                                        \
	do {                                                                                  \
		if (!ranges_here())                                                           \
			cr_skip_test("this backend's devices back no ranges on demand here"); \
	} while (0)

/* ---- streams of the comm's device; 0 or a code with a sentence ---------------------------------------------------------------- */

int stream_make(spmt_comm *comm, spmt_stream *stream);
int stream_end(spmt_comm *comm, spmt_stream stream);
int stream_wait(spmt_comm *comm, spmt_stream stream); /* until all that is queued is done */
/* fn on the CPU, in stream order, with a copy of args. On the host backend that is a kernel. */
int stream_call(
	spmt_comm *comm, spmt_stream stream, void (*fn)(void *args), const void *args, size_t size);
/*
 * Holds a stream up from the call of latch_kernel(), whose args are a pointer to the latch, until latch_open(). That is false if the
 * latch was given up after 10 s: a call that should only have queued something waited for the stream. No clock decides.
 */
struct latch {
	_Atomic int open, given_up;
};
void latch_kernel(void *args);
void latch_pass(struct latch *latch); /* for kernels that do more than that */
bool latch_open(struct latch *latch);
/* A word of the device, in stream order. *seen is written when the stream has come so far, or sooner than that on return. */
int stream_store(spmt_comm *comm, spmt_stream stream, uint64_t *word, uint64_t value);
int stream_load(spmt_comm *comm, spmt_stream stream, const uint64_t *word, uint64_t *seen);

#endif
