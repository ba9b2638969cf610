/* SPDX-License-Identifier: MIT */
/* A queue of a copy engine that kernels feed (include/spmt_device/sdma.h), and no one else: how they are told of it. */
#ifndef SPMT_KERNEL_QUEUE_H
#define SPMT_KERNEL_QUEUE_H

#include "include/spmt_device.h"
#include "src/device/sdma/queue.h"

/* Bytes of the words that say what is written, which kernels store to: device memory. */
size_t kernel_queue_room(const struct sdma_queue *q);
/* Of a queue that nothing was written to. `ends` is what that memory is to begin with, at `there` for kernels. */
void kernel_queue_fill(
	const struct sdma_queue *q, struct spmtd_sdma *entry, uint64_t *ends, uint64_t there);

/* What the engine has been told of by now: a position. Any thread. */
uint64_t kernel_queue_told(const struct sdma_queue *q);
/* Whether it is done: 1 yes, 0 not yet, or its code with its sentence if the engine has stopped before. Any thread. */
int kernel_queue_query(struct sdma_queue *q, uint64_t told);

#endif
