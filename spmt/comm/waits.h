/* SPDX-License-Identifier: MIT */
/*
 * The calls in which the ranks of a world wait, for others to read: a rank whose deadline passes,
 * in any process, and spmt-info --waits. It lies in the world's control block, so it has no
 * pointers; a wait shows it when it goes to sleep, never before. What other processes wrote may
 * be anything: readers take it as text and numbers, never as a place.
 */
#ifndef SPMT_WAITS_H
#define SPMT_WAITS_H

#include <stdatomic.h>

#include "include/spmt.h"
#include "src/base/base.h"

enum { WAITS_MOST = 4, WAITS_NAME = 32 };
enum { WAIT_WORD = 1, WAIT_KERNEL = 2, WAIT_GATHER = 4 };

/* How a reader from outside knows the head of a world's control block: its first bytes. */
#define CONTROL_MAGIC 0x6c727463746d7073u /* "spmtctrl" */
#define CONTROL_VERSION 1u

struct control_mark {
	_Atomic uint64_t magic; /* written last */
	uint32_t version, row;	/* its size */
	uint64_t name;		/* of the world */
	_Atomic uint32_t moved; /* the ranks meet on another block, which processes share */
};

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

/* What is waited for. */
struct wait_for {
	const char *name;
	int64_t since;
	uint64_t epoch; /* of a meeting */
	bool kernel;	/* not the rank's own thread */
	bool gather;	/* for ranks that have not come to the world */
	bool word;	/* the rest is known */
	enum spmt_type type;
	enum spmt_cmp cmp;
	uint64_t offset, value, seen;
};

/* A copy of one, whole. */
struct wait_seen {
	char name[WAITS_NAME];
	uint64_t part, epoch, offset, value, seen;
	uint32_t kind;
	int64_t since, until;
};

/* The rank enters its process and number in its comm's control block, for readers. */
void waits_join(spmt_comm *comm);

/* Called before each sleep of a wait; `owner` is an address that identifies the wait. The first
   call shows it, later ones update the value seen. A rank that waits in more calls than there are
   places shows the first ones. */
void waits_show(spmt_comm *comm, const void *owner, const struct wait_for *wait);
/* The wait has ended, shown or not; and likewise by its deadline, which is remembered until the place is needed. */
void waits_hide(spmt_comm *comm, const void *owner);
void waits_give_up(spmt_comm *comm, const void *owner);

/* False: there is none, or it changed meanwhile. */
bool waiting_read(const struct waiting *waiting, struct wait_seen *seen);

/* Who waits in what, to stand before what follows from it: "rank 1 waits in spmt_signal_wait, rank 2 gave up in spmt_quiet; ". */
struct waits_text {
	char bytes[224];
	size_t used;
};
/* Adds rank pe of comm, if it waits or has given up since then. */
void waits_add(struct waits_text *text, const spmt_comm *comm, int pe, int64_t since);
const char *waits_said(struct waits_text *text);

#endif
