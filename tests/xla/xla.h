/* SPDX-License-Identifier: MIT */
/*
 * What stands in for XLA: its table of functions, and a pool of threads that runs programs, a device each, which are calls of
 * handlers one behind another. A future that completes goes on with its program there and then, as XLA does.
 */
#ifndef TESTS_XLA_H
#define TESTS_XLA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bindings/jax/ffi.h"
#include "bindings/jax/spmt_xla.h"

ffi_handler spmt_xla_instantiate, spmt_xla_all_reduce, spmt_xla_permute, spmt_xla_broadcast,
	spmt_xla_all_gather, spmt_xla_all_to_all, spmt_xla_reduce_scatter, spmt_xla_barrier,
	spmt_xla_ragged_all_to_all, spmt_xla_put, spmt_xla_get;
ffi_handler spmt_xla_all_reduce_graph, spmt_xla_permute_graph, spmt_xla_broadcast_graph,
	spmt_xla_all_gather_graph, spmt_xla_all_to_all_graph, spmt_xla_reduce_scatter_graph,
	spmt_xla_barrier_graph, spmt_xla_ragged_all_to_all_graph, spmt_xla_put_graph,
	spmt_xla_get_graph;

enum { XLA_BUFFERS = 7, XLA_ATTRS = 6 };

/* A call site: what instantiate made of its attributes. */
struct xla_site {
	ffi_handler *handler;
	void *state;
};

struct xla_array {
	int dtype;
	void *data;
	int64_t n; /* elements, in one dimension; cols > 0: rows of so many */
	int64_t cols;
};

/* One execution of a call on a device. */
struct xla_call {
	const struct xla_site *site;
	int device;
	int64_t run;
	struct xla_array args[XLA_BUFFERS - 1], ret;
	int nargs;
	void *stream; /* of the device; NULL: its default one */
};

/* The code of XLA's, and the sentence, which is this thread's until its next call here. */
int xla_metadata(ffi_handler *handler, uint32_t traits);
/* Attributes: 0 is none; op, root -1: none. */
int xla_instantiate(struct xla_site *site, ffi_handler *handler, int64_t world, int64_t op,
	int64_t root, const int64_t *to, size_t nto);
/* Of put and get: `ranks` is attribute `name`; NULL: none. */
int xla_instantiate_slice(struct xla_site *site, ffi_handler *handler, int64_t world,
	const char *name, const int64_t *ranks, const int64_t *start, size_t n);
void xla_forget(struct xla_site *site);
/* Calls the handler and calls done(arg, code, sentence) when it has ended, on whichever thread that is. True: it had on return. */
bool xla_execute(const struct xla_call *call,
	void (*done)(void *arg, int code, const char *sentence), void *arg);
/* The same, waiting for the end. */
int xla_wait(const struct xla_call *call);
const char *xla_sentence(void);

/* n threads, which run fn(arg) of what xla_pool_run was given. */
void xla_pool(int n);
void xla_pool_run(void (*fn)(void *arg), void *arg);
void xla_pool_end(void); /* when all is done */

#endif
