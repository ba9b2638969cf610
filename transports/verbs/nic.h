/* SPDX-License-Identifier: MIT */
/*
 * An opened port: what all ranks of the process that use it share, opened by the first and closed by the last. A thread of its own
 * serves it; who waits for something polls as well.
 */
#ifndef SPMT_VERBS_NIC_H
#define SPMT_VERBS_NIC_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "choose.h"
#include "src/base/process.h"
#include "transports/route.h"

#define NIC_CHUNK ((size_t)16 << 10) /* bytes that bounce at once */
#define NIC_CHUNKS 128
#define NIC_HELLOS 64	 /* buffers for hellos that come */
#define NIC_GREETINGS 16 /* for those that go */
#define NIC_PLACE 192

struct cache;
struct pairing;
struct region;
struct stager;

struct nic {
	const struct verbs_api *api;
	struct verbs_place place;
	unsigned char endpoint[16]; /* names this opening; zeros: of nobody */
	struct nic *next;	    /* this and refs: guarded by the state's lock */
	int refs;

	struct verbs_pd *pd;
	struct verbs_channel *channel;
	struct verbs_cq *cq;
	struct verbs_qp *hello;
	pthread_t thread;
	bool running;
	int wake_fd, sleep_fd; /* the thread sleeps on the second */
	_Atomic bool closing;
	_Atomic bool gone;   /* the device is, and tells of nothing any more */
	struct cache *cache; /* cache.h; NULL: none */

	pthread_mutex_t kept_lock; /* guards these; nothing else is taken under it */
	struct region *kept;	   /* memory.h: retired, the oldest first */
	size_t kept_bytes;

	/* Counts up when something has come; those who sleep on it. */
	_Atomic uint32_t moved, sleepers;

	pthread_mutex_t lock;	/* guards all below, posting and polling */
	int cq_room, cq_used;	/* completions that it holds, that connections may have */
	struct pairing **conns; /* by number, which a completion bears; only grows */
	int nconns, pairing_room;
	struct pairing *owing;		  /* that have answers to send */
	struct stager *stager;		  /* stage.h; NULL: the CPU reaches all memory */
	uint32_t staged;		  /* keys of memory that the port does not know */
	struct region *regions, *dropped; /* memory.h; those that are still in use */
	struct verbs_mr *bounce, *words;  /* of the chunks, of the hellos */
	char *chunks, *hellos;
	int free_chunks[NIC_CHUNKS], nfree;
	uint32_t greeting; /* next to go, so many on their way */
	int greeted;
	uint32_t refused; /* datagrams that are no hellos, and what the last was */
	char refusal[64];
	const char *down; /* the port is: how that is known; NULL: it is not */
};

/* What a completion's number says. */
enum nic_kind { NIC_SENT, NIC_HEARD, NIC_GREETED, NIC_HELLO };
static inline uint64_t nic_number(enum nic_kind kind, uint32_t conn, uint32_t at)
{
	return (uint64_t)kind << 62 | (uint64_t)(conn & 0x3fffffff) << 32 | at;
}

/* What registrations and queue pairs allow besides. */
static inline unsigned nic_atomic_access(const struct nic *nic)
{
	return nic->place.device.atomic_cap == VERBS_ATOMIC_NONE ? 0 : VERBS_ACCESS_REMOTE_ATOMIC;
}

/* A rank's wait. One that need not wait does not read the clock, which is slow in some virtual machines. */
struct verbs_wait {
	int64_t ns;  /* from the first look at the clock on; negative: without end */
	int64_t end; /* of process_now(), from there on; INT64_MAX: none */
	const uint32_t *stop;
};
static inline int64_t verbs_wait_end(struct verbs_wait *wait)
{
	if (!wait->end)
		wait->end = wait->ns < 0 ? INT64_MAX : process_now() + wait->ns;
	return wait->end;
}
/* What it ends with where what it waits for goes on. */
static inline bool verbs_cut_short(int rc)
{
	return rc == -ETIMEDOUT || rc == -ECANCELED;
}
/* Of a comm's deadline. */
static inline int64_t verbs_wait_ns(int64_t ms)
{
	return ms < 0 ? -1 : MIN_OF(ms, TIMEOUT_MOST) * 1000000;
}

/* Takes the ports of `me`'s device, opening them if need be: *n of them, the first of which fills me->nic. */
int nic_get(int dev, struct rank_info *me, struct nic *nics[RDMA_RAILS], int *n);
void nic_drop(struct nic *nic);

/* Under the lock: takes what has come; the number of completions. */
int nic_poll(struct nic *nic);
/* Under the lock: something has come that no completion tells of. */
void nic_stir(struct nic *nic);
/* The thread looks after what it has to do in time. */
void nic_wake(const struct nic *nic);
/* Under the lock: polls, and has the thread wake with the next completion of any kind. */
void nic_look_out(struct nic *nic);
/* Under the lock: whether the port is down, by an event or by what it says now. */
bool nic_is_down(struct nic *nic);
/* Under the lock, into `text`: "mlx5_0 port 1 to mlx5_1 port 1", and whether ours is down. */
const char *nic_route_text(
	const struct nic *nic, const struct rank_nic *peer, char text[NIC_PLACE]);
/* Polls until done() says so, which is asked under the lock: 0, -ETIMEDOUT, -ECANCELED. Not under the lock. */
int nic_wait(struct nic *nic, bool (*done)(void *ctx), void *ctx, struct verbs_wait *wait);

#endif
