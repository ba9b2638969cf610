/* SPDX-License-Identifier: MIT */
/*
 * User-mode queues of AMD's SDMA engines, made by libhsakmt. It is taken as the process has it, so that HIP's runtime, where it uses
 * the same one, and these queues share what the driver knows of the process.
 */
#ifndef SPMT_SDMA_KMT_H
#define SPMT_SDMA_KMT_H

#include "kfd.h"
#include "queue.h"

/* Loads libhsakmt (SPMT_HSAKMT_LIB), once a process: 0, or a code with a sentence, the same each time. Any thread. */
int kmt_load(void);

/* After kmt_load(). A code and why not, no sentence: libhsakmt does not count as many nodes as the engine's numbers are of. */
int kmt_check(const struct kfd_engine *engine, char reason[DEVICE_REASON]);
/* After kmt_load(). As the ops of device_sdma_ops. */
int kmt_open(const struct kfd_engine *engine, struct sdma_queue **queue);
void kmt_close(struct sdma_queue *queue);
void kmt_doorbell(struct sdma_queue *queue, uint64_t end);

/* In words. */
void kmt_describe(const struct kfd_engine *engine, char text[DEVICE_REASON]);

#endif
