/* SPDX-License-Identifier: MIT */
/*
 * The part of XLA's FFI that these handlers use, by our own names: structs of plain data that XLA passes, and functions that it
 * lends. tests/jax/header.c asserts every offset, size and number against XLA's header where that is installed.
 *
 * Every struct begins with its own size. XLA only appends: a member of what XLA passes may be read where that size reaches past
 * it (FFI_HAS), and XLA does the same with what we pass.
 */
#ifndef SPMT_XLA_FFI_H
#define SPMT_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

#define FFI_HAS(pointer, member)        \
	((pointer)->head.struct_size >= \
		offsetof(__typeof__(*(pointer)), member) + sizeof((pointer)->member))

struct ffi_error;
struct ffi_future;
struct ffi_context;

struct ffi_extension {
	size_t struct_size;
	int type; /* FFI_EXTENSION_METADATA */
	struct ffi_extension *next;
};

struct ffi_head {
	size_t struct_size;
	struct ffi_extension *extension_start;
};

enum { FFI_EXTENSION_METADATA = 1 };
enum { FFI_VERSION_MAJOR = 0, FFI_VERSION_MINOR = 3 };

struct ffi_version {
	struct ffi_head head;
	int major, minor;
};

enum ffi_code {
	FFI_OK = 0,
	FFI_INVALID_ARGUMENT = 3,
	FFI_DEADLINE_EXCEEDED = 4,
	FFI_RESOURCE_EXHAUSTED = 8,
	FFI_FAILED_PRECONDITION = 9,
	FFI_ABORTED = 10,
	FFI_UNIMPLEMENTED = 12,
	FFI_INTERNAL = 13
};

enum ffi_dtype {
	FFI_PRED = 1,
	FFI_S8 = 2,
	FFI_S16 = 3,
	FFI_S32 = 4,
	FFI_S64 = 5,
	FFI_U8 = 6,
	FFI_U16 = 7,
	FFI_U32 = 8,
	FFI_U64 = 9,
	FFI_F16 = 10,
	FFI_F32 = 11,
	FFI_F64 = 12,
	FFI_C64 = 15,
	FFI_BF16 = 16,
	FFI_TOKEN = 17,
	FFI_C128 = 18,
	FFI_F8E5M2 = 19,
	FFI_F8E4M3FN = 20,
	FFI_S4 = 21,
	FFI_U4 = 22,
	FFI_F8E4M3B11FNUZ = 23,
	FFI_F8E5M2FNUZ = 24,
	FFI_F8E4M3FNUZ = 25,
	FFI_S2 = 26,
	FFI_U2 = 27,
	FFI_F8E4M3 = 28,
	FFI_F8E3M4 = 29,
	FFI_S1 = 30,
	FFI_U1 = 31,
	FFI_F4E2M1FN = 32,
	FFI_F8E8M0FNU = 33
};

struct ffi_buffer {
	struct ffi_head head;
	int dtype;
	void *data;
	int64_t rank;
	int64_t *dims;
};

enum { FFI_BUFFER = 1 };			  /* of arguments and results */
enum { FFI_ATTR_ARRAY = 1, FFI_ATTR_SCALAR = 3 }; /* of attributes */

struct ffi_args { /* and results */
	struct ffi_head head;
	int64_t size;
	int *types;
	void **args;
};

struct ffi_span {
	const char *ptr;
	size_t len;
};

struct ffi_scalar {
	int dtype;
	void *value;
};

struct ffi_array {
	int dtype;
	size_t size;
	void *data;
};

struct ffi_attrs { /* sorted by name */
	struct ffi_head head;
	int64_t size;
	int *types;
	struct ffi_span **names;
	void **attrs;
};

enum ffi_stage { FFI_INSTANTIATE = 0, FFI_EXECUTE = 3 };
enum ffi_trait { FFI_IN_COMMAND_BUFFERS = 1 };

struct ffi_frame {
	struct ffi_head head;
	const struct ffi_api *api;
	struct ffi_context *ctx;
	int stage;
	struct ffi_args args, rets;
	struct ffi_attrs attrs;
	struct ffi_future *future; /* to be set; XLA's struct_size does not count it */
};

typedef struct ffi_error *ffi_handler(struct ffi_frame *frame);

struct ffi_type_id {
	int64_t id;
};

struct ffi_type_info {
	struct ffi_head head;
	void (*deleter)(void *object);
};

struct ffi_metadata {
	size_t struct_size;
	struct ffi_version version;
	uint32_t traits;
	struct ffi_type_id state_type;
};

struct ffi_metadata_extension {
	struct ffi_extension base;
	struct ffi_metadata *metadata;
};

/* ---- the arguments of XLA's functions */

struct ffi_error_create {
	struct ffi_head head;
	const char *message;
	int code;
};
struct ffi_error_message {
	struct ffi_head head;
	struct ffi_error *error;
	const char *message; /* out */
};
struct ffi_error_destroy {
	struct ffi_head head;
	struct ffi_error *error;
};
struct ffi_stream_get {
	struct ffi_head head;
	struct ffi_context *ctx;
	void *stream; /* out */
};
struct ffi_type_register {
	struct ffi_head head;
	struct ffi_span name;
	struct ffi_type_id *type_id; /* in: 0; out */
	const struct ffi_type_info *info;
};
struct ffi_state { /* of set and get */
	struct ffi_head head;
	struct ffi_context *ctx;
	int stage;
	struct ffi_type_id *type_id;
	void *state; /* in of set, out of get */
};
struct ffi_schedule {
	struct ffi_head head;
	struct ffi_context *ctx;
	void (*task)(void *data);
	void *data;
};
struct ffi_future_create {
	struct ffi_head head;
	struct ffi_future *future; /* out */
};
struct ffi_future_available {
	struct ffi_head head;
	struct ffi_future *future;
};
struct ffi_future_error {
	struct ffi_head head;
	struct ffi_future *future;
	struct ffi_error *error; /* XLA's from then on */
};
struct ffi_run_id {
	struct ffi_head head;
	struct ffi_context *ctx;
	int64_t run_id; /* out */
};
struct ffi_ordinal {
	struct ffi_head head;
	struct ffi_context *ctx;
	int32_t ordinal; /* out */
};

struct ffi_api {
	struct ffi_head head;
	struct ffi_version version;
	const void *internal;
	struct ffi_error *(*error_create)(struct ffi_error_create *);
	void (*error_message)(struct ffi_error_message *);
	void (*error_destroy)(struct ffi_error_destroy *);
	void *handler_register;
	struct ffi_error *(*stream_get)(struct ffi_stream_get *);
	struct ffi_error *(*type_register)(struct ffi_type_register *);
	void *context_get;
	struct ffi_error *(*state_set)(struct ffi_state *);
	struct ffi_error *(*state_get)(struct ffi_state *);
	void *memory_allocate, *memory_free;
	struct ffi_error *(*schedule)(struct ffi_schedule *);
	void *num_threads;
	struct ffi_error *(*future_create)(struct ffi_future_create *);
	struct ffi_error *(*future_available)(struct ffi_future_available *);
	struct ffi_error *(*future_error)(struct ffi_future_error *);
	struct ffi_error *(*run_id_get)(struct ffi_run_id *);
	struct ffi_error *(*ordinal_get)(struct ffi_ordinal *);
};

#endif
