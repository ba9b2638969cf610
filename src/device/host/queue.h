/* SPDX-License-Identifier: MIT */
/* What is put into streams of the host runtime: ops of the table in host/host.c. */
#ifndef SPMT_DEVICE_HOST_QUEUE_H_
#define SPMT_DEVICE_HOST_QUEUE_H_

#include "src/device/types.h"

/* n bytes now, which do not wrap, as memmove; an aligned word of 1, 2, 4 or 8 bytes by one access. */
void host_move(void *dst, const void *src, size_t n);
int host_queue_copy(int dev, void *dst, const void *src, size_t n, device_stream handle);
int host_queue_fill(int dev, void *dst, int byte, size_t n, device_stream handle);
int host_queue_call(int dev, device_stream handle, void (*fn)(void *arg), void *arg);
int host_word_write(int dev, device_stream handle, void *word, uint64_t value);
int host_word_wait(int dev, device_stream handle, void *word, uint64_t value);
int host_queue_launch(int dev, device_stream handle, const struct kernel *k, unsigned grid,
	unsigned block, const void *args, size_t size);

#endif
