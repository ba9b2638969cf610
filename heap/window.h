/* SPDX-License-Identifier: MIT */
/* The same part of several heaps under one address, which a switch reaches all of at once (device_multicast_ops). Owned by the world, and made where
   SPMT_MULTICAST=1 asks for it, nowhere else. */
#ifndef SPMT_WINDOW_H
#define SPMT_WINDOW_H

#include "heap.h"

struct heap_windows {
	pthread_mutex_t lock; /* guards the list, round driver calls as well; zeroed is unlocked */
	struct heap_window *first; /* each with a list of its heaps */
};

/* 0: these heaps can have windows, of whole units of *unit bytes. Else why not: SPMT_ERR_UNSUPPORTED, or what the driver says; heaps are
   named by their place in the list. Makes nothing. */
int heap_window_check(const struct heap *const *heaps, int n, size_t *unit);
/* Where kernels of all these heaps' devices reach bytes [offset, offset + bytes) of each, until the windows are closed; one that is there is
   given again, in whatever order the heaps are named. Any thread. A failure leaves nothing. */
int heap_window_open(struct heap_windows *windows, const struct heap *const *heaps, int n,
	uint64_t offset, uint64_t bytes, uint64_t *address);
/* Before the first of the heaps is closed, when no kernel runs any more. */
void heap_windows_close(struct heap_windows *windows);

#endif
