/* SPDX-License-Identifier: MIT */
#include "bindings/jax/site.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kind_names[KINDS] = {
	[KIND_ALL_REDUCE] = "all_reduce",
	[KIND_PERMUTE] = "permute",
	[KIND_BROADCAST] = "broadcast",
	[KIND_ALL_GATHER] = "all_gather",
	[KIND_ALL_TO_ALL] = "all_to_all",
	[KIND_REDUCE_SCATTER] = "reduce_scatter",
	[KIND_BARRIER] = "barrier",
	[KIND_RAGGED] = "ragged_all_to_all",
};

struct ffi_error *error_make(const struct ffi_api *api, enum ffi_code code, const char *fmt, ...)
{
	char text[512];
	struct ffi_error_create args = { { sizeof(args), NULL }, text, (int)code };
	va_list list;

	va_start(list, fmt);
	vsnprintf(text, sizeof(text), fmt, list);
	va_end(list);
	return api->error_create(&args);
}

enum ffi_code code_of(int code)
{
	switch (code) {
	case 0:
		return FFI_OK;
	case SPMT_ERR_TIMEOUT:
		return FFI_DEADLINE_EXCEEDED;
	case SPMT_ERR_ABORTED:
	case SPMT_ERR_PEER_DEAD:
	case SPMT_ERR_BROKEN:
		return FFI_ABORTED;
	case SPMT_ERR_UNSUPPORTED:
		return FFI_UNIMPLEMENTED;
	case SPMT_ERR_FORKED:
	case -EBADF:
		return FFI_FAILED_PRECONDITION;
	case SPMT_ERR_MISMATCH:
	case -EINVAL:
		return FFI_INVALID_ARGUMENT;
	case -ENOMEM:
	case -EAGAIN:
	case -EMFILE:
		return FFI_RESOURCE_EXHAUSTED;
	default:
		return FFI_INTERNAL;
	}
}

/* ---- attributes */

/* The attribute of that name if it is of that type; NULL. */
static const void *attr_find(const struct ffi_attrs *attrs, const char *name, int type)
{
	for (int64_t i = 0; i < attrs->size; i++) {
		const struct ffi_span *span = attrs->names[i];

		if (span->len == strlen(name) && !memcmp(span->ptr, name, span->len))
			return attrs->types[i] == type ? attrs->attrs[i] : NULL;
	}
	return NULL;
}

static bool attr_i64(const struct ffi_attrs *attrs, const char *name, int64_t *value)
{
	const struct ffi_scalar *scalar = attr_find(attrs, name, FFI_ATTR_SCALAR);

	if (!scalar || scalar->dtype != FFI_S64)
		return false;
	memcpy(value, scalar->value, sizeof(*value));
	return true;
}

static struct ffi_error *read_to(struct ffi_frame *frame, struct site *site)
{
	const struct ffi_array *array = attr_find(&frame->attrs, "to", FFI_ATTR_ARRAY);

	if (!array)
		return NULL;
	if (array->dtype != FFI_S64 || array->size == 0 || array->size > SITE_RANKS_MAX)
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt: attribute to is an i64 for each rank, at most %d, not an array of %zu elements of XLA's type %d",
			SITE_RANKS_MAX, array->size, array->dtype);
	site->to = malloc(array->size * sizeof(*site->to));
	if (!site->to)
		return error_make(
			frame->api, FFI_RESOURCE_EXHAUSTED, "spmt: no memory for attribute to");
	site->nto = (int)array->size;
	for (int i = 0; i < site->nto; i++) {
		int64_t value;

		memcpy(&value, (const char *)array->data + (size_t)i * sizeof(value),
			sizeof(value));
		site->to[i] = value < -1 || value >= site->nto ? -2 : (int)value;
	}
	return NULL;
}

struct ffi_error *site_read(struct ffi_frame *frame, struct site *site)
{
	if (!attr_i64(&frame->attrs, "world", &site->world))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt: the call has no attribute world of type i64");
	if (!attr_i64(&frame->attrs, "op", &site->op))
		site->op = -1;
	if (!attr_i64(&frame->attrs, "root", &site->root))
		site->root = -1;
	return read_to(frame, site);
}

void site_free(void *site)
{
	if (!site)
		return;
	free(((struct site *)site)->to);
	free(site);
}

/* ---- what it has to be */

static struct ffi_error *check_to(const struct ffi_api *api, const struct site *site, int nranks)
{
	bool taken[SITE_RANKS_MAX] = { false };

	if (!site->to || site->nto != nranks)
		return error_make(api, FFI_INVALID_ARGUMENT,
			"spmt permute: attribute to has %d entries for %d devices", site->nto,
			nranks);
	for (int i = 0; i < nranks; i++) {
		int to = site->to[i];

		if (to < -1 || to >= nranks)
			return error_make(api, FFI_INVALID_ARGUMENT,
				"spmt permute: to[%d] is no rank of 0 .. %d, nor -1", i,
				nranks - 1);
		if (to >= 0 && taken[to])
			return error_make(api, FFI_INVALID_ARGUMENT,
				"spmt permute: rank %d is a target twice", to);
		if (to >= 0)
			taken[to] = true;
	}
	return NULL;
}

static struct ffi_error *check_site(
	const struct ffi_api *api, enum kind kind, const struct site *site, int nranks)
{
	if (kind == KIND_PERMUTE)
		return check_to(api, site, nranks);
	if (kind == KIND_BROADCAST && (site->root < 0 || site->root >= nranks))
		return error_make(api, FFI_INVALID_ARGUMENT,
			"spmt broadcast: attribute root is %lld, the ranks are 0 .. %d",
			(long long)site->root, nranks - 1);
	if ((kind == KIND_ALL_REDUCE || kind == KIND_REDUCE_SCATTER) &&
		(site->op < SPMT_OP_SUM || site->op > SPMT_OP_XOR))
		return error_make(api, FFI_INVALID_ARGUMENT,
			"spmt %s: attribute op is %lld, none of enum spmt_op", kind_names[kind],
			(long long)site->op);
	return NULL;
}

/* An XLA type: its size, and as what the library reduces it. */
struct xla_type {
	const char *name;
	size_t size;
	int type, parts; /* parts elements of type are one; 0: it cannot be reduced */
};

static const struct xla_type xla_types[] = {
	[FFI_PRED] = { "pred", 1, SPMT_TYPE_U8, 1 },
	[FFI_S8] = { "s8", 1, SPMT_TYPE_I8, 1 },
	[FFI_S16] = { "s16", 2, SPMT_TYPE_I16, 1 },
	[FFI_S32] = { "s32", 4, SPMT_TYPE_I32, 1 },
	[FFI_S64] = { "s64", 8, SPMT_TYPE_I64, 1 },
	[FFI_U8] = { "u8", 1, SPMT_TYPE_U8, 1 },
	[FFI_U16] = { "u16", 2, SPMT_TYPE_U16, 1 },
	[FFI_U32] = { "u32", 4, SPMT_TYPE_U32, 1 },
	[FFI_U64] = { "u64", 8, SPMT_TYPE_U64, 1 },
	[FFI_F16] = { "f16", 2, SPMT_TYPE_F16, 1 },
	[FFI_F32] = { "f32", 4, SPMT_TYPE_F32, 1 },
	[FFI_F64] = { "f64", 8, SPMT_TYPE_F64, 1 },
	[FFI_C64] = { "c64", 8, SPMT_TYPE_F32, 2 },
	[FFI_BF16] = { "bf16", 2, SPMT_TYPE_BF16, 1 },
	[FFI_C128] = { "c128", 16, SPMT_TYPE_F64, 2 },
	[FFI_F8E5M2] = { "f8e5m2", 1, 0, 0 },
	[FFI_F8E4M3FN] = { "f8e4m3fn", 1, 0, 0 },
	[FFI_F8E4M3B11FNUZ] = { "f8e4m3b11fnuz", 1, 0, 0 },
	[FFI_F8E5M2FNUZ] = { "f8e5m2fnuz", 1, 0, 0 },
	[FFI_F8E4M3FNUZ] = { "f8e4m3fnuz", 1, 0, 0 },
	[FFI_F8E4M3] = { "f8e4m3", 1, 0, 0 },
	[FFI_F8E3M4] = { "f8e3m4", 1, 0, 0 },
	[FFI_F8E8M0FNU] = { "f8e8m0fnu", 1, 0, 0 },
};

static const struct xla_type *type_of(int dtype)
{
	size_t n = sizeof(xla_types) / sizeof(xla_types[0]);

	return dtype >= 0 && (size_t)dtype < n && xla_types[dtype].size ? &xla_types[dtype] : NULL;
}

static size_t elements(const struct ffi_buffer *buffer)
{
	size_t n = 1;

	for (int64_t i = 0; i < buffer->rank; i++)
		n *= (size_t)buffer->dims[i];
	return n;
}

/* Whether op is one that elements of the type have. Bytes of pred are 0 or 1: a sum of them might be neither. */
static bool reduces(const struct xla_type *type, int dtype, int64_t op)
{
	bool bits = op == SPMT_OP_AND || op == SPMT_OP_OR || op == SPMT_OP_XOR;

	if (!type->parts)
		return false;
	if (type->parts == 2)
		return op == SPMT_OP_SUM;
	if (dtype == FFI_PRED)
		return op != SPMT_OP_SUM;
	return !bits || type->type <= SPMT_TYPE_U64;
}

static struct ffi_error *check_counts(
	const struct ffi_frame *frame, enum kind kind, const char *name, int64_t args)
{
	for (int64_t i = 0; i < frame->args.size; i++)
		if (frame->args.types[i] != FFI_BUFFER)
			return error_make(frame->api, FFI_INVALID_ARGUMENT,
				"spmt %s: argument %lld is no buffer", name, (long long)i);
	if (frame->args.size != args || frame->rets.size != 1 || frame->rets.types[0] != FFI_BUFFER)
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s takes %lld argument%s and has one result, not %lld and %lld",
			kind_names[kind], (long long)args, args == 1 ? "" : "s",
			(long long)frame->args.size, (long long)frame->rets.size);
	return NULL;
}

/* How many elements of a result for how many of an argument, and the library's count. */
static bool sizes_match(enum kind kind, size_t in, size_t out, size_t nranks, size_t *count)
{
	*count = kind == KIND_REDUCE_SCATTER ? out : kind == KIND_ALL_TO_ALL ? in / nranks : in;
	switch (kind) {
	case KIND_ALL_GATHER:
		return out == in * nranks;
	case KIND_REDUCE_SCATTER:
		return in == out * nranks;
	case KIND_ALL_TO_ALL:
		return in == out && in % nranks == 0;
	default:
		return in == out;
	}
}

static struct ffi_error *read_ragged(
	struct ffi_frame *frame, int nranks, const struct xla_type *type, struct call *call)
{
	struct ffi_buffer *const *args = (struct ffi_buffer *const *)frame->args.args;
	const struct ffi_buffer *ret = frame->rets.args[0];
	size_t n = (size_t)nranks;

	if (args[0]->rank < 1 || args[1]->rank != args[0]->rank ||
		args[1]->dtype != args[0]->dtype || elements(args[1]) != elements(ret))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt ragged_all_to_all: operand, output and result are arrays of rows of one type, and output is as large as the result");
	call->rows_in = (size_t)args[0]->dims[0];
	call->rows_out = (size_t)args[1]->dims[0];
	call->row = type->size;
	for (int64_t i = 1; i < args[0]->rank; i++) {
		if (args[0]->dims[i] != args[1]->dims[i])
			return error_make(frame->api, FFI_INVALID_ARGUMENT,
				"spmt ragged_all_to_all: rows of operand and output differ");
		call->row *= (size_t)args[0]->dims[i];
	}
	call->before = args[1]->data;
	for (size_t t = 0; t < RAGGED_TABLES; t++)
		if ((args[t + 2]->dtype != FFI_S32 && args[t + 2]->dtype != FFI_S64) ||
			elements(args[t + 2]) != n)
			return error_make(frame->api, FFI_INVALID_ARGUMENT,
				"spmt ragged_all_to_all: argument %zu is a table of %d entries, s32 or s64",
				t + 2, nranks);
	call->tables = malloc(RAGGED_TABLES * n * sizeof(*call->tables));
	if (!call->tables)
		return error_make(frame->api, FFI_RESOURCE_EXHAUSTED,
			"spmt ragged_all_to_all: no memory for its tables");
	for (size_t t = 0; t < RAGGED_TABLES; t++)
		for (size_t i = 0; i < n; i++)
			call->tables[t * n + i] = args[t + 2]->dtype == FFI_S32
				? ((const int32_t *)args[t + 2]->data)[i]
				: ((const int64_t *)args[t + 2]->data)[i];
	return NULL;
}

struct ffi_error *call_read(struct ffi_frame *frame, enum kind kind, const struct site *site,
	int nranks, struct call *call)
{
	const char *name = kind_names[kind];
	struct ffi_error *error =
		check_counts(frame, kind, name, kind == KIND_RAGGED ? 2 + RAGGED_TABLES : 1);
	const struct ffi_buffer *in, *out;
	const struct xla_type *type;
	bool sum = kind == KIND_ALL_REDUCE || kind == KIND_REDUCE_SCATTER;

	memset(call, 0, sizeof(*call));
	if (!error)
		error = check_site(frame->api, kind, site, nranks);
	if (error)
		return error;
	in = frame->args.args[0];
	out = frame->rets.args[0];
	type = type_of(in->dtype);
	if (!type || in->dtype != out->dtype)
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s: XLA's types %d and %d of argument and result %s", name, in->dtype,
			out->dtype, type ? "differ" : "are not supported");
	if (sum && !reduces(type, in->dtype, site->op))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s: type %s has no op %lld", name, type->name, (long long)site->op);
	call->kind = kind;
	call->src = in->data;
	call->dst = out->data;
	call->bytes = elements(out) * type->size;
	if (kind == KIND_RAGGED)
		return read_ragged(frame, nranks, type, call);
	if (!sizes_match(kind, elements(in), elements(out), (size_t)nranks, &call->count))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s: %zu elements to %zu do not fit %d devices", name, elements(in),
			elements(out), nranks);
	call->type = sum ? (enum spmt_type)type->type : SPMT_TYPE_U8;
	call->count *= sum ? (size_t)type->parts : type->size;
	return NULL;
}

int call_issue(
	const struct call *call, const struct site *site, spmt_comm *comm, spmt_stream stream)
{
	switch (call->kind) {
	case KIND_ALL_REDUCE:
		return spmt_all_reduce(comm, call->dst, call->src, call->count, call->type,
			(enum spmt_op)site->op, stream);
	case KIND_REDUCE_SCATTER:
		return spmt_reduce_scatter(comm, call->dst, call->src, call->count, call->type,
			(enum spmt_op)site->op, stream);
	case KIND_PERMUTE:
		return spmt_permute(
			comm, call->dst, call->src, call->count, call->type, site->to, stream);
	case KIND_BROADCAST:
		return spmt_broadcast(comm, call->dst, call->src, call->count, call->type,
			(int)site->root, stream);
	case KIND_ALL_GATHER:
		return spmt_all_gather(comm, call->dst, call->src, call->count, call->type, stream);
	case KIND_ALL_TO_ALL:
		return spmt_all_to_all(comm, call->dst, call->src, call->count, call->type, stream);
	default:
		return SPMT_ERR_UNSUPPORTED;
	}
}
