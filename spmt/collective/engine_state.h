/* SPDX-License-Identifier: MIT */
/* Where the ranks of a comm meet for row `engine`, for the files that implement it. */
#ifndef SPMT_ENGINE_STATE_H
#define SPMT_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine.h"

#define ENGINE_FREE (1ull << 62)     /* no ticket: whoever waits goes on */
#define ENGINE_LAST_NS 10000000000ll /* then an engine is dead */
/* To wake up takes 20 us and more of each call, so its threads stay awake for as long as most copies take. */
#define ENGINE_AWAKE_NS 1500000
#define ENGINE_SLACK_NS 1000 /* a thread's timers are 50 us late else */

/* In pinned memory of the rank's device. */
struct engine_words {
	_Alignas(CACHE_LINE) uint64_t ready; /* the ticket that the rank's stream has come to */
	_Alignas(CACHE_LINE) uint64_t done;  /* the ticket up to which its parts are done */
};

/* A rank's part of a call. */
struct engine_part {
	struct engine_part *next;
	struct engine_call call;
	uint64_t nth;	    /* collective of the comm, of any row */
	uint64_t ticket;    /* of the rank's words */
	int64_t timeout_ns; /* < 0: none; from when its stream has come */
};

struct engine_side {
	_Alignas(CACHE_LINE) _Atomic uint64_t made; /* collectives so far */
	_Atomic uint64_t key;			    /* the last one's; 0: not told */
	spmt_comm *
		comm; /* NULL: the rank is not there, or has left. Guarded by the meeting's lock, as what follows */
	struct engine_part *first, **end;
	uint64_t flies; /* the ticket of its part that was moved last */
	int64_t since;	/* when its stream was seen at the first part; 0: it was not */
	/* The rank's own until it has deposited a part; from then on the thread's, until the rank leaves. */
	struct pinned *pinned;
	struct engine_words *words, *words_dev;
	device_stream out, own; /* of its device: what goes to others; the rest, and what is done */
	device_event sent;	/* what `out` holds */
	uint64_t tickets;	/* the rank's */
};

struct engine_meeting {
	struct engine_meeting
		*next; /* this paragraph: of the world, guarded by its lock, or constant */
	uint64_t id;   /* of the comm */
	int users, nranks;
	const struct backend *backend;

	_Atomic bool uneven; /* some collective was captured: how many there were tells nothing */
	_Atomic uint32_t wakes; /* rung for the thread */
	_Atomic bool waited;	/* some rank has a part here */

	struct engine_help *help; /* the thread's own; NULL: it has none */

	pthread_mutex_t lock; /* guards the rest; the world's is never taken under it */
	pthread_cond_t changed;
	pthread_t thread;
	bool running, ending;
	bool over;    /* broken, or a rank has left: nothing is queued any more */
	bool cleared; /* and all that waited goes on */
	bool away;    /* the thread is in calls, without the lock */
	/* The call whose copies are in flight: there is one at most, since each stream waits for its own. */
	const char *flies; /* NULL: none */
	int64_t flies_since,
		flies_ns; /* when it was queued, and what it may take: deadlines are for ranks that are late */
	struct engine_side sides[];
};

/* The meeting's thread. The sentence of a failure names no call. Under the lock. */
int engine_thread(struct engine_meeting *m);
/* It looks again. Any thread. */
void engine_ring(struct engine_meeting *m);
/* Queues what rank r gives to its `step`th next, the last of which is itself, of the call that all have come to. Without the lock; different
   ranks at once. */
int engine_send(const struct engine_meeting *m, int r, int step);

/* engine_help.c: the same of all ranks, by the meeting's thread. Where threads can be had, and CPUs for them, they help from the beginning to
   the end. */
int engine_send_all(struct engine_meeting *m);
void engine_help_begin(struct engine_meeting *m);
void engine_help_end(struct engine_meeting *m);

#endif
