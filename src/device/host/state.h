/* SPDX-License-Identifier: MIT */
/* What the files device_host*.c share about devices, threads and memory. */
#ifndef SPMT_DEVICE_HOST_STATE_H_
#define SPMT_DEVICE_HOST_STATE_H_

#include <pthread.h>
#include <stdatomic.h>

#include "host.h"

#define HOST_WORDS (HOST_DEVICES / 64)
#define HOST_PAGE ((size_t)4096)

struct host_block;
struct host_graph;
struct host_slab;
struct host_stream;

/* Objects of one size that are reused and never unmapped, so that a stale handle can be told from a live one without
   touching memory that is gone. In a forked child the pool is empty and holds no handle of the parent's. */
struct host_pool {
	_Atomic(struct host_slab *) slabs;
	void *free; /* linked by their first word */
};

struct host_device {
	int opens;
	_Atomic(struct host_stream *) legacy;
	struct host_stream *own;	     /* its per-thread streams */
	_Atomic(struct host_stream *) spare; /* whose worker went to sleep last */
};

/* Blocks that do not overlap, by address. */
struct host_index {
	struct host_block **rows;
	size_t n, room;
	_Atomic uint64_t changes; /* of rows; no two processes have the same number */
};

/* In pages that a forked child sees as zeros: there nothing is loaded, open or allocated. */
struct host_state {
	_Atomic int known;    /* devices + 1; 0: not loaded */
	pthread_mutex_t lock; /* guards the members up to `devices`, and legacy's writes */
	int opened;	      /* sum of opens */
	bool keyed;
	pthread_key_t key; /* its destructor releases a thread's streams */
	struct host_pool streams, events, graphs, graph_users;
	struct host_graph *graph_list;
	uint64_t streams_made;
	struct host_device devices[HOST_DEVICES];
	pthread_rwlock_t memory; /* guards blocks and ranges; no other lock is taken under it */
	struct host_index blocks, ranges;
	_Atomic uint64_t enabled[HOST_DEVICES][HOST_WORDS]; /* [from] to */
	_Atomic uint64_t forbidden[HOST_DEVICES][HOST_WORDS];
};

/* host/host.c. host_state() is NULL before the first load. host_check: -ENODEV with a sentence if there is no `dev`. */
struct host_state *host_state(void);
int host_load(void);
int host_check(int dev, const char *op);
bool host_enabled(const struct host_state *st, int from, int to);
/* get and put under st->lock, holds and next without */
void *host_pool_get(struct host_pool *pool, size_t size);
void host_pool_put(struct host_pool *pool, void *object);
bool host_pool_holds(const struct host_pool *pool, const void *object, size_t size);
/* Each object that has ever been in the pool, in use or not, or zeros; the first after NULL, NULL behind the last. */
void *host_pool_next(const struct host_pool *pool, void *after, size_t size);

/* host/thread.c */
int host_enter(int dev, struct device_saved *saved);
void host_leave(const struct device_saved *saved);
void host_bind(int dev);     /* a worker's own device */
int host_raise(int code);    /* leaves code as the sticky error if it is negative; returns it */
const void *host_self(void); /* names the calling thread */
/* The stream whose work the calling thread runs; NULL: it is no worker. */
void host_serve(struct host_stream *s);
struct host_stream *host_serving(void);
/* The calling thread has left s asleep, as it will wait for s itself; NULL: for what it waits now. It can do so for one stream at a time,
   and what that one runs may need the others: the one before is woken. */
void host_rely(struct host_stream *s);
/* How long, in ns, the calling thread waits in a call with this timeout. */
int64_t host_patience_or(int64_t timeout_ns);
/* The calling thread, which serves none, is s's for one op. */
struct device_saved host_lend(struct host_stream *s);
void host_take_back(const struct device_saved *saved);
int host_watch(struct host_state *st); /* under st->lock: this thread's end releases its streams */

/* host/memory.c */
int host_mem_alloc(int dev, size_t size, enum device_memory kind, void **ptr);
int host_mem_free(int dev, void *ptr);
int host_pinned_alloc(int dev, size_t size, void **host, void **device);
int host_pinned_free(int dev, void *host);
/* 0 if dev may reach all of [ptr, ptr + n), else a code with a sentence in the name of `op`.
   *device: some of it is in the table. */
int host_reach(int dev, const void *ptr, size_t n, const char *op, bool *device);
/* A kernel's loads and stores cannot be caught, but what it is given can be looked at: -EACCES with a sentence if an aligned
   word of args is an address of memory that dev may not reach. */
int host_reach_args(int dev, const void *args, size_t size);
/* The same as host_reach when the work runs, for what was in the table when it was queued; no sentence. */
bool host_still(int dev, const void *ptr, size_t n);
/* Whether dev may reach all of it now; *device: some of it is in the table. No sentence. */
bool host_may_touch(int dev, const void *ptr, size_t n, bool *device);

/* host/vmm.c, host/ipc.c, host/sdma.c */
extern const struct device_vmm_ops host_vmm_ops;
extern const struct device_ipc_ops host_ipc_ops;
extern const struct device_sdma_ops host_sdma_ops;

#endif
