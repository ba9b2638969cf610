/* SPDX-License-Identifier: MIT */
/*
 * Memory that the CPU does not reach: a device copies to and from chunks that the port knows, and does atomics. A thread of the port,
 * there from the first rank with such a device on, lets it do so; nobody else waits for a device under the lock.
 *
 * Where the port does not know a rank's memory either, peers ask for moves (ask.h): the thread fetches the bytes from the peer's
 * memory into chunks of its own and copies them on, or the other way round. Those chunks wait for no peer, so that two
 * ports that ask each other do not wait for ever.
 */
#ifndef SPMT_VERBS_STAGE_H
#define SPMT_VERBS_STAGE_H

#include "ask.h"
#include "memory.h"
#include "post.h"

/* A rank's device. */
struct stage {
	const struct backend *backend;
	int dev;
	device_stream stream;
	uint64_t *word; /* what an atomic found, pinned; and its address for kernels */
	void *word_dev;
};

/* For the rank; not under the lock. close: what is under way ends or does not happen. NULL is nothing. */
int stage_open(struct nic *nic, const struct backend *backend, int dev, struct stage **out);
void stage_close(struct nic *nic, struct stage *stage);
/* The port closes: no thread from here on. */
void stager_stop(struct nic *nic);

/* All of these under the lock. */

/* Copies src to the chunk of `land`, then posts it; room is held. */
void stage_out(struct pairing *c, const struct landing *land, const struct rdma_place *far,
	const char *src, bool tells);
/* Copies the chunk of `land` to where it goes, then ends it, as an ask or a move. */
void stage_in(struct pairing *c, const struct landing *land, bool asked);
/* Whether an ask is for the thread. */
bool stage_takes(const struct pairing *c, const struct ask_message *ask);
/* The next ask of the peer's, in order behind those before. */
void stage_serve(struct pairing *c, const struct ask_message *ask);
/* A work request of stage_serve's has ended. */
void stage_moved(struct pairing *c, const struct sent *sent, bool whole);
/* The connection has failed: what was asked is not done. */
void stage_wake(struct nic *nic);
/* Whether peers wait for moves or atomics of the thread's. */
bool stage_serves(const struct nic *nic);
/* The thread is at work for this sender no more; of one that is deaf it begins nothing. */
void stage_part(const struct sender *sender);
/* No device is at work in the region; no longer to be found. */
void stage_leave(struct nic *nic, const struct region *region);

/* ---- inside: between what this port moves (stage.c) and what peers ask for (serve.c) ------------ */

/* A copy between a rank's memory and a chunk of the port's. */
struct stage_job {
	struct stage_job *next;
	struct pairing *c;
	struct landing land;
	struct rdma_place far; /* out */
	const char *src;
	bool in, tells;
	bool asked; /* it ends an ask, or is one to be */
};

struct stager {
	pthread_t thread;
	pthread_cond_t changed; /* with the port's lock, which guards all below */
	bool closing;
	const struct stage *busy;	   /* the device at work now */
	const struct region *region;	   /* and where */
	const struct sender *moving;	   /* and for whom */
	struct stage_job jobs[NIC_CHUNKS]; /* one a chunk of the port's */
	struct stage_job *first, *last;
	struct pairing *serving; /* with asks to serve */
	char *chunks;
	struct verbs_mr *mr;
	int free_chunks[STAGE_CHUNKS], nfree;
};

/* By the device, waited for. Not under the lock. */
int device_move(const struct stage *s, void *dst, const void *src, size_t n);
int device_atomic(const struct stage *s, const struct ask_message *ask, uint64_t *old);
/* Round it: gives up the lock, and takes it again. */
void stage_busy(struct nic *nic, const struct stage *stage, const struct region *region);
void stage_done(struct nic *nic);

/* Each connection's turn; false: nothing can be done now. Under the lock. */
bool serve_step(struct nic *nic);

#endif
