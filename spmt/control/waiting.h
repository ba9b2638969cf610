/* SPDX-License-Identifier: MIT */
/*
 * One wait of a rank as it lies in a control block, without pointers. What other processes wrote may be anything: readers take
 * it as text and numbers, never as a place.
 */
#ifndef SPMT_WAITING_H
#define SPMT_WAITING_H

#include <stdatomic.h>

#include "src/base/base.h"

enum { WAITS_MOST = 4, WAITS_NAME = 32 };
enum { WAIT_WORD = 1, WAIT_KERNEL = 2, WAIT_GATHER = 4 };

/* How a reader from outside knows the head of a world's control block: its first bytes. */
#define CONTROL_MAGIC 0x6c727463746d7073u /* "spmtctrl" */
#define CONTROL_VERSION 2u

struct control_mark {
	_Atomic uint64_t magic; /* written last */
	uint32_t version, row;	/* its size */
	uint64_t name;		/* of the world */
	_Atomic uint32_t moved; /* the ranks meet on another block, which processes share */
};

/* What the state of a wait is, above a multiple of WAIT_PHASES. */
enum { WAIT_FREE, WAIT_WRITTEN, WAIT_SHOWN, WAIT_PHASES = 4 };

/* One wait. Its state is 4n while it is free, 4n + 1 while it is written, 4n + 2 while it is shown. */
struct waiting {
	_Atomic uint32_t state;
	_Atomic uint32_t kind;	/* WAIT_ flags, with type << 8 | compare << 16 of a word */
	_Atomic uint64_t owner; /* tells the waits of its rank apart; 0: it has ended */
	_Atomic uint64_t part;	/* how far its comm's control block is behind the world's, bytes */
	_Atomic uint64_t epoch; /* not 0: for the others to come to this meeting */
	_Atomic int64_t since;	/* CLOCK_MONOTONIC, ns */
	_Atomic int64_t until;	/* not 0: when its deadline ended it */
	_Atomic uint64_t offset, value, seen;  /* of the word: in the heap; wanted; last read */
	_Atomic uint64_t name[WAITS_NAME / 8]; /* the call, as text */
};

/* A copy of one, whole. */
struct wait_seen {
	char name[WAITS_NAME];
	uint64_t part, epoch, offset, value, seen;
	uint32_t kind;
	int64_t since, until;
};

/* False: there is none, or it changed meanwhile. */
bool waiting_read(const struct waiting *waiting, struct wait_seen *seen);

#endif
