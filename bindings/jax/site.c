/* SPDX-License-Identifier: MIT */
#include "bindings/jax/site.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/jax/type.h"

const char *const kind_names[KINDS] = {
	[KIND_ALL_REDUCE] = "all_reduce",
	[KIND_PERMUTE] = "permute",
	[KIND_BROADCAST] = "broadcast",
	[KIND_ALL_GATHER] = "all_gather",
	[KIND_ALL_TO_ALL] = "all_to_all",
	[KIND_REDUCE_SCATTER] = "reduce_scatter",
	[KIND_BARRIER] = "barrier",
	[KIND_RAGGED] = "ragged_all_to_all",
	[KIND_PUT] = "put",
	[KIND_GET] = "get",
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

/* An array of i64 with an entry a rank; n 0: there is none. */
static struct ffi_error *read_table(
	struct ffi_frame *frame, const char *name, int64_t **table, int *n)
{
	const struct ffi_array *array = attr_find(&frame->attrs, name, FFI_ATTR_ARRAY);

	*table = NULL;
	*n = 0;
	if (!array)
		return NULL;
	if (array->dtype != FFI_S64 || array->size == 0 || array->size > SITE_RANKS_MAX)
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt: attribute %s is an i64 for each rank, at most %d, not an array of %zu elements of type %s",
			name, SITE_RANKS_MAX, array->size, xla_type_name(array->dtype));
	*table = malloc(array->size * sizeof(**table));
	if (!*table)
		return error_make(frame->api, FFI_RESOURCE_EXHAUSTED,
			"spmt: no memory for attribute %s", name);
	*n = (int)array->size;
	memcpy(*table, array->data, array->size * sizeof(**table));
	return NULL;
}

/* The same of ranks: -1 is none, -2 is neither. */
static struct ffi_error *read_ranks(struct ffi_frame *frame, const char *name, int **ranks, int *n)
{
	int64_t *table;
	struct ffi_error *error = read_table(frame, name, &table, n);

	if (error || !*n)
		return error;
	*ranks = malloc((size_t)*n * sizeof(**ranks));
	for (int i = 0; *ranks && i < *n; i++)
		(*ranks)[i] = table[i] < -1 || table[i] >= *n ? -2 : (int)table[i];
	free(table);
	return *ranks ? NULL
		      : error_make(frame->api, FFI_RESOURCE_EXHAUSTED,
				"spmt: no memory for attribute %s", name);
}

struct ffi_error *site_read(struct ffi_frame *frame, struct site *site)
{
	struct ffi_error *error;

	if (!attr_i64(&frame->attrs, "world", &site->world))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt: the call has no attribute world of type i64");
	if (!attr_i64(&frame->attrs, "op", &site->op))
		site->op = -1;
	if (!attr_i64(&frame->attrs, "root", &site->root))
		site->root = -1;
	error = read_ranks(frame, "to", &site->to, &site->nto);
	if (!error)
		error = read_ranks(frame, "of", &site->of, &site->nof);
	if (!error)
		error = read_table(frame, "start", &site->start, &site->nstart);
	return error;
}

void site_free(void *site)
{
	struct site *s = site;

	if (!s)
		return;
	free(s->to);
	free(s->of);
	free(s->start);
	free(s);
}

/* ---- what it has to be */

/* An attribute that has a rank for each rank. */
static struct ffi_error *check_ranks(
	const struct ffi_api *api, enum kind kind, const struct site *site, int nranks)
{
	const char *name = kind == KIND_GET ? "of" : "to";
	const int *ranks = kind == KIND_GET ? site->of : site->to;
	int n = kind == KIND_GET ? site->nof : site->nto;

	if (!ranks || n != nranks)
		return error_make(api, FFI_INVALID_ARGUMENT,
			"spmt %s: attribute %s has %d entries for %d devices", kind_names[kind],
			name, n, nranks);
	for (int i = 0; i < nranks; i++)
		if (ranks[i] < -1)
			return error_make(api, FFI_INVALID_ARGUMENT,
				"spmt %s: %s[%d] is no rank of 0 .. %d, nor -1", kind_names[kind],
				name, i, nranks - 1);
	if (kind != KIND_PERMUTE && (!site->start || site->nstart != nranks))
		return error_make(api, FFI_INVALID_ARGUMENT,
			"spmt %s: attribute start has %d entries for %d devices", kind_names[kind],
			site->nstart, nranks);
	return NULL;
}

static struct ffi_error *check_permute(
	const struct ffi_api *api, const struct site *site, int nranks)
{
	bool taken[SITE_RANKS_MAX] = { false };
	struct ffi_error *error = check_ranks(api, KIND_PERMUTE, site, nranks);

	if (error)
		return error;
	for (int i = 0; i < nranks; i++) {
		int to = site->to[i];

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
		return check_permute(api, site, nranks);
	if (kind == KIND_PUT || kind == KIND_GET)
		return check_ranks(api, kind, site, nranks);
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

/* How many arguments. A permute's second one, and that of get, is what dst holds before. */
static bool takes(enum kind kind, int64_t args)
{
	if (kind == KIND_RAGGED)
		return args == 2 + RAGGED_TABLES;
	if (kind == KIND_PUT || kind == KIND_GET)
		return args == 2;
	return args == 1 || (kind == KIND_PERMUTE && args == 2);
}

static const char *takes_text(enum kind kind)
{
	return kind == KIND_RAGGED		       ? "6 arguments"
		: kind == KIND_PUT || kind == KIND_GET ? "2 arguments"
		: kind == KIND_PERMUTE		       ? "1 argument, or 2,"
						       : "1 argument";
}

static struct ffi_error *check_counts(
	const struct ffi_frame *frame, enum kind kind, const char *name)
{
	for (int64_t i = 0; i < frame->args.size; i++)
		if (frame->args.types[i] != FFI_BUFFER)
			return error_make(frame->api, FFI_INVALID_ARGUMENT,
				"spmt %s: argument %lld is no buffer", name, (long long)i);
	if (!takes(kind, frame->args.size) || frame->rets.size != 1 ||
		frame->rets.types[0] != FFI_BUFFER)
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s takes %s and has one result, not %lld and %lld", name,
			takes_text(kind), (long long)frame->args.size, (long long)frame->rets.size);
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

/* ---- put and get */

static struct ffi_error *read_before(struct ffi_frame *frame, const char *name,
	const struct ffi_buffer *before, struct call *call)
{
	const struct ffi_buffer *ret = frame->rets.args[0];

	if (before->dtype != ret->dtype || elements(before) != elements(ret))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s: what the result holds before is another type or size than that",
			name);
	call->before = before->data;
	return NULL;
}

/* Rows of dst and of what moves: arrays that differ in the first dimension alone. */
static bool rows_match(const struct ffi_buffer *a, const struct ffi_buffer *b)
{
	bool match = a->rank >= 1 && a->rank == b->rank && a->dtype == b->dtype;

	for (int64_t i = 1; match && i < a->rank; i++)
		match = a->dims[i] == b->dims[i];
	return match;
}

/* The rows of each rank lie in the other's array; put: no row of which comes from two. */
static struct ffi_error *check_starts(
	const struct ffi_api *api, enum kind kind, const struct site *site, const struct call *call)
{
	const int *ranks = kind == KIND_PUT ? site->to : site->of;
	int64_t n = (int64_t)(kind == KIND_PUT ? call->rows_in : call->rows_out),
		all = (int64_t)(kind == KIND_PUT ? call->rows_out : call->rows_in);

	for (int i = 0; i < site->nstart; i++) {
		int64_t at = site->start[i];

		if (ranks[i] < 0)
			continue;
		if (at < 0 || n > all || at > all - n)
			return error_make(api, FFI_INVALID_ARGUMENT,
				"spmt %s: rank %d: %lld rows from row %lld on are not in an array of %lld",
				kind_names[kind], i, (long long)n, (long long)at, (long long)all);
		for (int k = 0; k < i && kind == KIND_PUT && n; k++)
			if (ranks[k] == ranks[i] && site->start[k] < at + n &&
				at < site->start[k] + n)
				return error_make(api, FFI_INVALID_ARGUMENT,
					"spmt put: ranks %d and %d write the same rows of rank %d",
					k, i, ranks[i]);
	}
	return NULL;
}

/* put: array, rows -> array; get: array, rows before -> rows */
static struct ffi_error *read_slice(struct ffi_frame *frame, enum kind kind,
	const struct site *site, const struct xla_type *type, struct call *call)
{
	struct ffi_buffer *const *args = (struct ffi_buffer *const *)frame->args.args;
	const struct ffi_buffer *src = args[kind == KIND_PUT], *dst = frame->rets.args[0];
	struct ffi_error *error =
		read_before(frame, kind_names[kind], args[kind == KIND_GET], call);

	if (error)
		return error;
	if (!rows_match(src, dst))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s: argument and result are not arrays of the same rows",
			kind_names[kind]);
	call->src = src->data;
	call->rows_in = (size_t)src->dims[0];
	call->rows_out = (size_t)dst->dims[0];
	call->row = type->size;
	for (int64_t i = 1; i < dst->rank; i++)
		call->row *= (size_t)dst->dims[i];
	call->count = call->row * (kind == KIND_PUT ? call->rows_in : call->rows_out);
	call->type = SPMT_TYPE_U8;
	return check_starts(frame->api, kind, site, call);
}

struct ffi_error *call_read(struct ffi_frame *frame, enum kind kind, const struct site *site,
	int nranks, struct call *call)
{
	const char *name = kind_names[kind];
	struct ffi_error *error = check_counts(frame, kind, name);
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
	type = xla_type_of(in->dtype);
	if (!type || in->dtype != out->dtype)
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s: types %s and %s of argument and result %s", name,
			xla_type_name(in->dtype), xla_type_name(out->dtype),
			type ? "differ" : "are not supported");
	if (sum && !reduces(type, in->dtype, site->op))
		return error_make(frame->api, FFI_INVALID_ARGUMENT, "spmt %s: type %s has no op %s",
			name, type->name, xla_op_name(site->op));
	call->kind = kind;
	call->src = in->data;
	call->dst = out->data;
	call->bytes = elements(out) * type->size;
	if (kind == KIND_RAGGED)
		return read_ragged(frame, nranks, type, call);
	if (kind == KIND_PUT || kind == KIND_GET)
		return read_slice(frame, kind, site, type, call);
	if (frame->args.size == 2) {
		error = read_before(frame, name, frame->args.args[1], call);
		if (error)
			return error;
	}
	if (!sizes_match(kind, elements(in), elements(out), (size_t)nranks, &call->count))
		return error_make(frame->api, FFI_INVALID_ARGUMENT,
			"spmt %s: %zu elements to %zu do not fit %d devices", name, elements(in),
			elements(out), nranks);
	call->type = sum ? (enum spmt_type)type->type : SPMT_TYPE_U8;
	call->count *= sum ? (size_t)type->parts : type->size;
	return NULL;
}
