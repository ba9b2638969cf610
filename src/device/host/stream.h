/* SPDX-License-Identifier: MIT */
/* Streams of the host runtime: queues (host/stream.c), what is put into them (host/queue.c), who works them off (host/worker.c). */
#ifndef SPMT_DEVICE_HOST_STREAM_H_
#define SPMT_DEVICE_HOST_STREAM_H_

#include "graph.h"
#include "state.h"

/* One piece of queued work. `run` is called on the stream's worker: 0, or a code that fails the stream. */
struct host_op {
	struct host_op *next;
	int (*run)(const struct host_op *op);
	int dev;
	struct host_stream *stream; /* where it goes */
	bool always;		    /* it runs in a stream that has failed, too */
	bool once;		    /* it cannot be replayed */
	const void *
		until; /* HOST_ENDS, HOST_STAYS or a stop word that it looks at; NULL: HOST_STAYS */
	int64_t bound; /* ns that its waits take at most: who waits as long may run it itself; 0: nobody may */
	size_t extra; /* bytes of args */
	union {
		struct {
			void *dst;
			const void *src;
			size_t n;
			int byte;
			const uint32_t *stop;	     /* of a copy; may be NULL */
			bool dst_device, src_device; /* was in the table of memory when queued */
		} move;
		struct {
			void (*fn)(void *arg);
			void *arg;
		} call;
		struct {
			uint64_t *at;
			uint64_t value;
		} word;
		void (*kernel)(const void *args);
		struct {
			struct host_stream *stream;
			uint64_t ticket;
		} after;
	};
	_Alignas(16) unsigned char args[];
};

#define HOST_WHY 384
#define HOST_ENDS ((const void *)1)  /* by itself, as a copy does */
#define HOST_STAYS ((const void *)2) /* for as long as it takes a user */

/*
 * A ticket is the number of ops queued so far; it has been served when `done` has reached it. Both counters rise for as long
 * as the process lives, over all the lives of the object, so a ticket stays meaningful after its stream is destroyed.
 */
struct host_stream {
	struct host_stream *next; /* in the pool or, under the state's lock, in its device's list */
	int dev;
	const void *owner; /* the thread of a per-thread stream */

	pthread_mutex_t lock; /* guards this paragraph and the writes of live and queued */
	struct host_op *head, **tail;
	pthread_t thread;
	struct host_worker *worker; /* NULL: none, or it has not begun */
	bool idle, closing, joined;
	bool helped;	     /* a thread that waits runs an op, so that the worker may not */
	_Atomic bool relied; /* .. ran the last one: the worker is not woken, but looks by itself */
	uint32_t slept;	     /* wakes, when the worker last went to sleep */
	_Atomic bool threaded; /* thread is its worker's; written under the lock */

	_Atomic bool live;
	_Atomic(struct host_graph *) capture; /* what is pushed goes there; under the lock */
	_Atomic uint64_t id;
	_Atomic int error; /* why it failed, and at which ticket */
	_Atomic uint64_t failed;
	/* the same for this object's last earlier stream that failed, and its last ticket */
	_Atomic int past_error;
	_Atomic uint64_t past_failed, past_last;
	struct host_blame {
		int code; /* 0: none */
		bool told;
		char why[HOST_WHY];
	} blame;		  /* under the lock */
	_Atomic(const void *) at; /* `until` of what is being run, or NULL; written before `done` */
	_Atomic uint64_t queued, done;
	_Atomic uint32_t wakes;	  /* rung for the worker */
	_Atomic uint32_t wake;	  /* rung for those who wait for `done` */
	_Atomic uint32_t waiters; /* of whom so many sleep */
};

/* The live stream that `handle` names for dev; the default streams are made here. NULL: *rc has why, with a sentence in the
   name of `op`. */
struct host_stream *host_stream_find(int dev, device_stream handle, const char *op, int *rc);
/* An op for s with `extra` bytes of args; NULL: no memory. Taken over by a push that succeeds. */
struct host_op *host_op_new(
	struct host_stream *s, int (*run)(const struct host_op *op), size_t extra);
/* Appends op, starting the worker if there is none, or to the graph that is captured. On failure op is still the caller's.
   ticket: its own, or NULL. */
int host_stream_push(struct host_op *op, const char *name, uint64_t *ticket);
/* Sleeps until the ticket is served: 0, -ETIMEDOUT, -ECANCELED, no sentence. */
int host_stream_await(
	struct host_stream *s, uint64_t ticket, int64_t timeout_ns, const uint32_t *stop);
/* 1 served, 0 not yet, or the code the stream failed with at this ticket or before it. No sentence. */
int host_stream_served(const struct host_stream *s, uint64_t ticket);
/* The sentence for such a code, which is returned. */
int host_stream_failed(int dev, int code);
/* Rings for the worker. Under s->lock. */
void host_stream_ring(struct host_stream *s);
/* Drops a failure once it has been reported. Under s->lock. */
static inline void host_stream_absolve(struct host_stream *s)
{
	if (s->blame.told)
		s->blame.code = s->blame.told = 0;
}
/* Back to the pool, once neither a worker nor a call uses it. */
void host_stream_put(struct host_stream *s);
/* Accepts no more work; what is queued still runs. Joins a worker with nothing left to do, leaves
   a busy one to itself. */
int host_stream_end(struct host_stream *s);

/* Under the state's lock: unlinks dev's default streams (owner NULL: all of them, else that thread's own) into *list. */
void host_stream_collect(
	struct host_state *st, int dev, const void *owner, struct host_stream **list);
void host_stream_end_all(struct host_stream *list);

/* host/worker.c. Gives s a thread, another stream's that has run dry or a new one. Under s->lock: 0 or -errno, no sentence. */
int host_worker_start(struct host_stream *s);
/* Runs what lies in s up to this ticket, as far as the calling thread may, which has so many ns; wakes the worker for the rest. Only for a
   wait for one named stream: one thread serving several streams would put them in an order that the program has not asked for, which hides its races
   from ThreadSanitizer. */
void host_stream_help(struct host_stream *s, uint64_t ticket, int64_t patience);
/* Wakes the worker if it relies on somebody else. */
void host_stream_rouse(struct host_stream *s);
/* No condition variable: waiting for one is a cancellation point. ns < 0: for ever. */
void host_sleep_on(_Atomic uint32_t *word, uint32_t seen, int64_t ns);
void host_wake_all(_Atomic uint32_t *word);

int host_stream_create(int dev, device_stream *s);
int host_stream_destroy(int dev, device_stream handle);
int host_stream_query(int dev, device_stream handle);
int host_stream_sync(int dev, device_stream handle, int64_t timeout_ns, const uint32_t *stop);
uint64_t host_stream_id(int dev, device_stream handle);

int host_event_create(int dev, device_event *out);
int host_event_destroy(int dev, device_event handle);
int host_event_record(int dev, device_event handle, device_stream stream);
int host_event_query(int dev, device_event handle);
int host_event_sync(int dev, device_event handle, int64_t timeout_ns, const uint32_t *stop);
int host_stream_wait_event(int dev, device_stream stream, device_event handle);

#endif
