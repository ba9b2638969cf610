/* SPDX-License-Identifier: MIT */
/*
 * The control block: what the ranks of a comm share to meet, to sleep and to break. Fixed layout,
 * no pointers, so that it may lie in memory shared by processes. Every counter only rises.
 *
 * A process that goes wrong may overwrite all of it before it dies. So nothing that others have written is taken for a count, an
 * index, an address or a text before it has been loaded once and checked; how many ranks there are each comm knows by itself.
 *
 * A world's has a room behind it, in which the control blocks of comms split from it lie, and the table of their lanes (keys.h):
 * processes that share the one share them all.
 */
#ifndef SPMT_CONTROL_H
#define SPMT_CONTROL_H

#include <stdatomic.h>

#include "control_row.h"
#include "src/base/status.h"

#define GATE_BROKEN 1u
#define CONTROL_WORDS 2u

struct keys;

/* Why it is broken; `check` is the cause's. */
struct control_word {
	struct cause cause;
	uint32_t check;
};

struct control {
	struct control_mark mark;
	/* Broken: the first to claim it writes code and sentence, then stop: the number of that word, from 1 on. Whoever claims it
	   after a claimant was stopped has its own word; the word named first counts. */
	_Alignas(CACHE_LINE) _Atomic uint32_t stop;
	_Atomic uint32_t claimed; /* how many times */
	struct control_word words[CONTROL_WORDS];
	/* Meetings: the last of the e-th to arrive moves the gate from 2(e-1) to 2e. Whoever
	   sets GATE_BROKEN instead has ended it for all: one word decides, so that all ranks
	   leave with the same result. */
	_Alignas(CACHE_LINE) _Atomic uint64_t arrived;
	_Alignas(CACHE_LINE) _Atomic uint64_t gate;
	_Atomic uint32_t verdict[2]; /* by parity: enum meet_verdict */
	_Atomic uint32_t gate_sleepers;
	_Atomic uint32_t gone; /* split: ranks that have ended their comm */
	/* Ranks on several nodes, each of which has such a block: how many arrivals here the others have been told of, and the last
	   meeting that is known not to open. */
	_Atomic uint64_t told, shut;
	_Atomic uint64_t noted, held; /* spmt/nodes/notes.h */
	uint32_t nranks;	      /* for readers from outside (waits.h) alone */
	/* Shrinking: 0, or the last decision: round << 32 | 1 + the rank whose votes count. */
	_Alignas(CACHE_LINE) _Atomic uint64_t decided;
	_Atomic uint32_t coming; /* rises when somebody comes, leaves or decides; sleepers' word */
	struct control_row rows[];
};

/* A set of ranks, as words of a bitmap; every rank has one behind the rows, its votes. */
static inline size_t control_set(int nranks)
{
	return ((size_t)nranks + 63) / 64;
}

static inline _Atomic uint64_t *control_votes(struct control *control, int rank, int nranks)
{
	return (_Atomic uint64_t *)(void *)&control->rows[nranks] +
		(size_t)rank * control_set(nranks);
}

static inline size_t control_size(int nranks)
{
	size_t n = (size_t)nranks;

	return sizeof(struct control) + n * sizeof(struct control_row) +
		align_up(n * control_set(nranks) * sizeof(uint64_t), CACHE_LINE);
}

/* A world's, zeroed: from here on it can be met on, and read from outside. Any of its ranks, again and again. */
void control_begin(struct control *control, int nranks, uint64_t name);
/* A world's, with its room. */
size_t control_world_size(int nranks);
/* Behind the room: the table of lanes, keys_size() bytes. */
struct keys *control_keys(struct control *world, int world_ranks);
/* A zeroed block, but for nranks, for a comm in the room of a world's; NULL: the room is full. Any process. */
struct control *control_take(struct control *world, int world_ranks, int nranks);
/* By the last of its ranks, or by who took it before anybody else has seen it. */
void control_give(struct control *world, int world_ranks, struct control *control, int nranks);
/* Where it is, for other processes; and back, NULL: there can be no block of that size. */
uint64_t control_offset(const struct control *world, const struct control *control);
struct control *control_at(struct control *world, int world_ranks, uint64_t offset, int nranks);

/* A rank of a broken comm will not come to a shrink any more. */
void control_leave(struct control *control, int rank);

/* The half of the gate that changes with every meeting. */
static inline const _Atomic uint32_t *control_gate_word(const struct control *control)
{
	return (const _Atomic uint32_t *)(uintptr_t)&control->gate;
}

/* The stop word as the layers below take it: a plain word that they poll. */
static inline const uint32_t *control_stop_word(const struct control *control)
{
	return (const uint32_t *)(uintptr_t)&control->stop;
}

/* Breaks the comm once: the first cause counts, and gets true. Wakes who waits in a meeting. Any thread. */
bool control_break(struct control *control, const struct cause *cause);

/* Where stop is set: the word that it names, if it is not overwritten. */
static inline const struct control_word *control_word_named(
	const struct control *control, uint32_t stop)
{
	return &control->words[(stop - 1) % CONTROL_WORDS];
}

/* Of a broken block that no other process has. */
static inline const struct cause *control_cause(const struct control *control)
{
	return &control_word_named(control, atomic_load(&control->stop))->cause;
}

/* SPOILED: it says that it is broken, but not why: the one who broke it is just writing that, or it has been overwritten. */
enum control_state { CONTROL_WHOLE, CONTROL_BROKEN, CONTROL_SPOILED };
/* *cause: of BROKEN. */
enum control_state control_state(struct control *control, struct cause *cause);

#endif
