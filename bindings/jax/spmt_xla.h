/* SPDX-License-Identifier: MIT */
/*
 * libspmt_xla: collectives of libspmt as custom calls of XLA, for JAX programs that drive all devices from one process.
 *
 * A world is what the calls of one or more axes of a mesh run in: groups of devices, each of which is a world of libspmt's.
 * Handlers (spmt_xla_<kind> and spmt_xla_instantiate) are registered with XLA under any name, for cpu, CUDA or ROCM; every
 * call site names its world by an attribute. spmt_xla_<kind>_graph is the same handler, which lets XLA put the call into command
 * buffers (graphs).
 *
 *   handler          attributes beside `world`   argument -> result, in elements
 *   all_reduce       op (enum spmt_op)           n -> n
 *   permute          to (an entry a rank)        n -> n; where nothing comes: zeros, on a GPU anything; with a second argument: that
 *   broadcast        root                        n -> n
 *   all_gather                                   n -> ranks * n
 *   all_to_all                                   ranks * n -> ranks * n
 *   reduce_scatter   op                          ranks * n -> n
 *   barrier                                      n -> n, a copy of its own
 *   ragged_all_to_all                            operand, output and four tables of an entry a rank -> output; not on GPUs
 *   put              to, start (an entry a rank) array, rows -> array, in which the rows of each rank i with to[i] == this rank
 *                                                are from row start[i] on; no row is written by two
 *   get              of, start (an entry a rank) array, rows before -> rows, those of rank of[i] from row start[i] on
 *
 * to, of: -1 is nobody. Rows: along the first dimension. On GPUs the result takes over the buffer of what it holds before (the second argument of permute
 * and get, the first of put).
 * Attributes are i64, or arrays of them. A wrong one, and a wrong number, type or size of buffers, is INVALID_ARGUMENT.
 */
#ifndef SPMT_XLA_H
#define SPMT_XLA_H

#include <stddef.h>
#include <stdint.h>

#define SPMT_XLA_API __attribute__((visibility("default")))

struct spmt_xla_attr {
	size_t size;		/* sizeof(struct spmt_xla_attr) */
	int64_t id;		/* what call sites say; none that is open has it */
	int groups, nranks;	/* how many groups, how many devices each */
	const int32_t *devices; /* XLA's ordinals, group by group, in order of rank; none twice */
	const char *backend;	/* "host", "cuda", "hip" */
	size_t heap_size;	/* as spmt_attr's */
	int64_t timeout_ms;	/* how long a call waits for the other devices; 0: 10,000 */
	int streams; /* not 0: backend "host" works in streams, too, as GPUs do: XLA has to have one of spmt_host_stream_create */
};

/* 0 or a negative code of spmt.h, and a sentence. Any thread. */
SPMT_XLA_API int spmt_xla_open(const struct spmt_xla_attr *attr);
/* Ends the calls that wait for a device, lets those that move data end, and forgets the world: what calls it later gets
   FAILED_PRECONDITION. */
SPMT_XLA_API int spmt_xla_close(int64_t id);
/* 0, or why a call in a stream has failed, which nothing was told yet: the next call tells it. */
SPMT_XLA_API int spmt_xla_status(int64_t id);
/* This thread's last failure of the three, "" if there was none. */
SPMT_XLA_API const char *spmt_xla_last_error(void);
/* Makes the n-th movement of data from now on fail, as a device might: for tests. 0: none. */
SPMT_XLA_API void spmt_xla_inject(int n);

#endif
