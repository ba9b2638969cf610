/* SPDX-License-Identifier: MIT */
/* One call of a program: what its attributes say, and one execution's buffers. */
#ifndef SPMT_XLA_SITE_H
#define SPMT_XLA_SITE_H

#include <spmt.h>
#include <stdbool.h>
#include <stdint.h>

#include "bindings/jax/ffi.h"

enum kind {
	KIND_ALL_REDUCE,
	KIND_PERMUTE,
	KIND_BROADCAST,
	KIND_ALL_GATHER,
	KIND_ALL_TO_ALL,
	KIND_REDUCE_SCATTER,
	KIND_BARRIER,
	KIND_RAGGED,
	KIND_PUT,
	KIND_GET,
	KINDS
};

enum { SITE_RANKS_MAX = 1024, RAGGED_TABLES = 4 };

/* Made when a program is compiled, once a call in it; XLA keeps it and frees it by site_free. */
struct site {
	uint64_t id; /* of this process; the same on every device */
	int64_t world;
	int64_t op, root;
	int *to, nto;	/* permute, put: whom a rank's data goes to; -1: nobody */
	int *of, nof;	/* get: whose a rank gets; -1: nobody's */
	int64_t *start; /* put, get: at which row of the other's, an entry a rank */
	int nstart;
};

struct call {
	enum kind kind;
	const void *src;
	void *dst;
	size_t count; /* as the library's collective takes it, of type */
	enum spmt_type type;
	size_t bytes;	    /* of dst */
	const void *before; /* what dst holds where nothing comes; NULL: zeros */
	/* ragged_all_to_all, put and get alone: rows of how many bytes src and dst have; and of the first tables of an entry a rank */
	size_t row, rows_in, rows_out;
	int64_t *tables; /* input offsets, sizes to send, output offsets, sizes to receive */
};

extern const char *const kind_names[KINDS];

/* Reads the attributes. NULL, or an error of XLA's. */
struct ffi_error *site_read(struct ffi_frame *frame, struct site *site);
void site_free(void *site);
/* What the attributes have to be for this kind in a world of nranks, and the buffers. */
struct ffi_error *call_read(struct ffi_frame *frame, enum kind kind, const struct site *site,
	int nranks, struct call *call);

/* Queues the call of the library that it is; ragged_all_to_all is none. In dst is what was before. */
int call_issue(
	const struct call *call, const struct site *site, spmt_comm *comm, spmt_stream stream);

struct ffi_error *error_make(const struct ffi_api *api, enum ffi_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The code of XLA's that a code of the library is. */
enum ffi_code code_of(int code);

#endif
