/* SPDX-License-Identifier: MIT */
/* Moves of a room in which all ranks are, by the thread that is there: cheaper than waking others while they are small. */
#include "bindings/jax/move.h"

#include <stdio.h>
#include <string.h>

enum { SMALL_BYTES = 2 << 20 };

bool move_is_here(const struct room *room)
{
	const struct call *call = &room->members[0].call;
	size_t n = (size_t)room->world->nranks;

	switch (call->kind) {
	case KIND_BARRIER:
	case KIND_RAGGED:
		return true; /* the library has no such call */
	case KIND_ALL_REDUCE:
	case KIND_REDUCE_SCATTER:
		return call->bytes == 0; /* the library knows types */
	default:
		return (call->kind == KIND_PUT ? call->count : call->bytes) * n <= SMALL_BYTES;
	}
}

static void copy(void *dst, const void *src, size_t size)
{
	if (size)
		memcpy(dst, src, size);
}

static void move_rank(const struct room *room, size_t rank, size_t n)
{
	const struct call *call = &room->members[rank].call;
	char *dst = call->dst;

	switch (call->kind) {
	case KIND_PERMUTE:
		if (room->site->to[rank] >= 0)
			copy(room->members[room->site->to[rank]].call.dst, call->src, call->bytes);
		break;
	case KIND_BROADCAST:
		copy(dst, room->members[room->site->root].call.src, call->bytes);
		break;
	case KIND_ALL_GATHER:
		for (size_t i = 0; i < n; i++)
			copy(dst + i * call->count, room->members[i].call.src, call->count);
		break;
	case KIND_ALL_TO_ALL:
		for (size_t i = 0; i < n; i++)
			copy(dst + i * call->count,
				(const char *)room->members[i].call.src + rank * call->count,
				call->count);
		break;
	case KIND_BARRIER:
		copy(dst, call->src, call->bytes);
		break;
	case KIND_PUT:
		if (room->site->to[rank] >= 0)
			copy((char *)room->members[room->site->to[rank]].call.dst +
					(size_t)room->site->start[rank] * call->row,
				call->src, call->count);
		break;
	case KIND_GET:
		if (room->site->of[rank] >= 0)
			copy(dst,
				(const char *)room->members[room->site->of[rank]].call.src +
					(size_t)room->site->start[rank] * call->row,
				call->count);
		break;
	default:
		break;
	}
}

/* ---- ragged_all_to_all */

static bool inside(int64_t offset, int64_t size, size_t rows)
{
	return offset >= 0 && size >= 0 && (uint64_t)offset <= rows &&
		(uint64_t)size <= rows - (uint64_t)offset;
}

/* Whether what rank `from` sends to rank `to` lies in both arrays, and is as much as `to` expects. */
static bool ragged_fits(struct room *room, size_t from, size_t to, size_t n)
{
	const struct call *src = &room->members[from].call, *dst = &room->members[to].call;
	int64_t at = src->tables[to], size = src->tables[n + to], into = src->tables[2 * n + to],
		wanted = dst->tables[3 * n + from];

	if (size == wanted && inside(at, size, src->rows_in) && inside(into, size, dst->rows_out))
		return true;
	room->code = FFI_INVALID_ARGUMENT;
	snprintf(room->why, sizeof(room->why),
		"spmt ragged_all_to_all: device %d sends %lld of %zu rows from row %lld to row %lld of %zu of device %d, which expects %lld",
		xla_world_device(room->world, room->group, (int)from), (long long)size,
		src->rows_in, (long long)at, (long long)into, dst->rows_out,
		xla_world_device(room->world, room->group, (int)to), (long long)wanted);
	return false;
}

static void move_ragged(struct room *room, size_t n)
{
	for (size_t from = 0; from < n; from++)
		for (size_t to = 0; to < n; to++)
			if (!ragged_fits(room, from, to, n))
				return;
	for (size_t to = 0; to < n; to++)
		copy(room->members[to].call.dst, room->members[to].call.before,
			room->members[to].call.bytes);
	for (size_t from = 0; from < n; from++)
		for (size_t to = 0; to < n; to++) {
			const struct call *src = &room->members[from].call,
					  *dst = &room->members[to].call;

			copy((char *)dst->dst + (size_t)src->tables[2 * n + to] * dst->row,
				(const char *)src->src + (size_t)src->tables[to] * src->row,
				(size_t)src->tables[n + to] * src->row);
		}
}

void move_prepare(const struct room *room)
{
	int n = room->world->nranks;

	for (int rank = 0; rank < n; rank++) {
		const struct call *call = &room->members[rank].call;

		if (call->before && call->before != call->dst && call->kind != KIND_RAGGED)
			copy(call->dst, call->before, call->bytes);
	}
	if (room->members[0].call.kind != KIND_PERMUTE || room->members[0].call.before)
		return;
	for (int rank = 0; rank < n; rank++) {
		const struct call *call = &room->members[rank].call;
		int from = 0;

		while (from < n && room->site->to[from] != rank)
			from++;
		if (from == n && call->bytes)
			memset(call->dst, 0, call->bytes);
	}
}

void move_here(struct room *room)
{
	size_t n = (size_t)room->world->nranks;

	if (room->members[0].call.kind == KIND_RAGGED)
		move_ragged(room, n);
	else
		for (size_t rank = 0; rank < n; rank++)
			move_rank(room, rank, n);
}
