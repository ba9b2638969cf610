/* SPDX-License-Identifier: MIT */
/*
 * The calls in which the ranks of a world wait, for others to read: a rank whose deadline passes,
 * in any process, and spmt-info --waits. It lies in the world's control block, so it has no
 * pointers; a wait shows it when it goes to sleep, never before. What other processes wrote may
 * be anything: readers take it as text and numbers, never as a place.
 */
#ifndef SPMT_WAITS_H
#define SPMT_WAITS_H

#include "include/spmt.h"
#include "spmt/control/waiting.h"

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

/* The rank enters its process and number in its comm's control block, for readers. */
void waits_join(spmt_comm *comm);

/* Called before each sleep of a wait; `owner` is an address that identifies the wait. The first
   call shows it, later ones update the value seen. A rank that waits in more calls than there are
   places shows the first ones. */
void waits_show(spmt_comm *comm, const void *owner, const struct wait_for *wait);
/* The wait has ended, shown or not; and likewise by its deadline, which is remembered until the place is needed. */
void waits_hide(spmt_comm *comm, const void *owner);
void waits_give_up(spmt_comm *comm, const void *owner);

/* A call of this thread that may run a stream's work instead of its worker. That work shows the call when it goes to sleep (a no-op where a
   worker runs it), or the call shows itself; its end hides it. since: used if the call gives none. */
void waits_call_begin(spmt_comm *comm, const struct wait_for *wait);
void waits_call_show(int64_t since);
void waits_call_end(void);

/* Who waits in what, to stand before what follows from it: "rank 1 waits in spmt_signal_wait, rank 2 gave up in spmt_quiet; ". */
struct waits_text {
	char bytes[224];
	size_t used;
};
/* Adds rank pe of comm, if it waits or has given up since then. */
void waits_add(struct waits_text *text, const spmt_comm *comm, int pe, int64_t since);
const char *waits_said(struct waits_text *text);

#endif
