/* SPDX-License-Identifier: MIT */
/*
 * A user-mode queue of a copy engine, as a backend hands it out: a ring of memory that the engine reads packets (packet.h) from, and
 * the words that it and its users tell each other progress by. transports/sdma/ring.h writes into it.
 */
#ifndef SPMT_SDMA_QUEUE_H
#define SPMT_SDMA_QUEUE_H

#include <stdatomic.h>

#include "packet.h"
#include "src/device/types.h"

/*
 * Positions are 64-bit numbers of bytes that only rise, at position & (size - 1) in the ring; at first all are one number, a
 * multiple of `size`. What lies from *read to the doorbell's value is the engine's.
 */
struct sdma_queue {
	struct sdma_format format;
	uint32_t *ring;
	uint64_t size;		 /* bytes, power of two */
	_Atomic uint64_t *read;	 /* up to where the engine has read; the engine writes it */
	_Atomic uint64_t *write; /* the same number as the doorbell's, in memory */
	_Atomic uint64_t
		*doorbell; /* where kernels store it, behind *write; then they call `rung` */
	void (*rung)(uint64_t queue); /* with the queue's address; NULL: the store is enough */
	_Atomic uint64_t *completed;  /* for packets at the end of what is submitted */
	bool signals;	   /* 64-bit atomics reach the memory of the device at the other end */
	_Atomic int error; /* 0, or why the engine has stopped for good, as far as it tells */
	char why[DEVICE_REASON];    /* the same in words; written before error */
	char engine[DEVICE_REASON]; /* which one serves it, in words */
};

/* A group of a backend (device.h), whose rules hold here, too. */
struct device_sdma_ops {
	/* What would serve copies that src issues to or from dst, in words, or, with a code, why nothing does; no sentence. Opens
	   nothing. */
	int (*check)(int src, int dst, char reason[DEVICE_REASON]);
	/* src is open, and stays so until close. The engine reaches what src reaches. */
	int (*open)(int src, int dst, struct sdma_queue **queue);
	/* Packets that the engine has not begun are dropped. It touches no memory when close returns. */
	void (*close)(struct sdma_queue *queue);
	/* Tells the engine of packets up to `end`, which is stored to *write first. One thread at a time. */
	void (*doorbell)(struct sdma_queue *queue, uint64_t end);
	/* False: memory that the device reaches only by the runtime's own copies. May say so by mistake. No sentence. */
	bool (*reaches)(int src, const void *ptr, size_t n);
};

#endif
