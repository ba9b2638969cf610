/* SPDX-License-Identifier: MIT */
/*
 * The control block: what the ranks of a comm share to meet, to sleep and to break. Fixed layout,
 * no pointers, so that it may lie in memory shared by processes. Every counter only rises.
 *
 * A world's has a room behind it, in which the control blocks of comms split from it lie: processes
 * that share the one share them all.
 */
#ifndef SPMT_CONTROL_H
#define SPMT_CONTROL_H

#include <stdatomic.h>

#include "../src/status.h"
#include "bell.h"
#include "waits.h"

/* What a rank brings to a meeting. All of op and key must be equal on all ranks; a status that
   is not 0 fails the meeting. */
struct meet_record {
	uint32_t op; /* enum meet_op */
	int32_t status;
	uint64_t key[3];
	uint64_t payload[2]; /* for the others to read; not compared */
};

/* One rank's lines. Written by that rank alone, but for the bell. */
struct cell {
	_Alignas(CACHE_LINE) _Atomic uint64_t arrived; /* its last meeting */
	_Atomic int cpu;			       /* where it was then */
	struct meet_record record[2];		       /* by parity of the meeting */
	_Atomic uint32_t come;			       /* shrink.c: rounds that it has come to */
	_Atomic uint32_t left;			       /* has ended its comm, which was broken */
	struct bell bell;			       /* of worlds */
	_Alignas(CACHE_LINE) _Atomic int32_t pid;      /* of its process; 0: it has not come */
	_Atomic int32_t world_rank;
	struct waiting waits[WAITS_MOST]; /* of worlds: of all comms of the rank */
	_Alignas(CACHE_LINE) char sentence[2][STATUS_SENTENCE]; /* why record.status is not 0 */
};

#define GATE_BROKEN 1u

struct control {
	struct control_mark mark;
	/* Broken: the first to claim it writes code and sentence, then stop. */
	_Alignas(CACHE_LINE) _Atomic uint32_t stop;
	_Atomic uint32_t claimed;
	int32_t code;
	char sentence[STATUS_SENTENCE];
	/* Meetings: the last of the e-th to arrive moves the gate from 2(e-1) to 2e. Whoever
	   sets GATE_BROKEN instead has ended it for all: one word decides, so that all ranks
	   leave with the same result. */
	_Alignas(CACHE_LINE) _Atomic uint64_t arrived;
	_Alignas(CACHE_LINE) _Atomic uint64_t gate;
	_Atomic uint32_t verdict[2]; /* by parity: enum meet_verdict */
	_Atomic uint32_t gate_sleepers;
	uint32_t nranks;
	_Atomic uint32_t gone; /* split: ranks that have ended their comm */
	bool split;
	/* Shrinking: 0, or what was decided last, round << 32 | rank + 1 of whose votes count. */
	_Alignas(CACHE_LINE) _Atomic uint64_t decided;
	_Atomic uint32_t coming; /* rises when somebody comes, leaves or decides; sleepers' word */
	struct cell cells[];
};

/* A set of ranks, as words of a bitmap; every rank has one behind the cells, its votes. */
static inline size_t control_set(int nranks)
{
	return ((size_t)nranks + 63) / 64;
}

static inline _Atomic uint64_t *control_votes(struct control *control, int rank)
{
	int n = (int)control->nranks;

	return (_Atomic uint64_t *)(void *)&control->cells[n] + (size_t)rank * control_set(n);
}

static inline size_t control_size(int nranks)
{
	size_t n = (size_t)nranks;

	return sizeof(struct control) + n * sizeof(struct cell) +
		align_up(n * control_set(nranks) * sizeof(uint64_t), CACHE_LINE);
}

/* A world's, zeroed: from here on it can be met on, and read from outside. Any of its ranks, again and again. */
void control_begin(struct control *control, int nranks, uint64_t name);
/* A world's, with its room. */
size_t control_world_size(int nranks);
/* A block for a comm of nranks, zeroed but for nranks and split; NULL: the room is full. Any process. */
struct control *control_take(struct control *world, int nranks);
/* By the last of its ranks, or by who took it before anybody else has seen it. */
void control_give(struct control *world, struct control *control);

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

/* Breaks the comm once: the first cause counts, and gets true. Wakes who waits in a meeting, and at its
   bells. Any thread. */
bool control_break(struct control *control, int code, const char *sentence);

/* Waits for nobody: 0, or the code that broke the comm, with `what` and the original sentence
   recorded. */
int control_broken(struct control *control, const char *what);

#endif
