/* SPDX-License-Identifier: MIT */
/*
 * The thread that does what kernels post: one a process, for the fifos of all comms in it. It is there as long as there is a fifo. While
 * there is nothing to do it sleeps; posts of virtual devices wake it. Those of GPUs cannot, so that it looks for them again and again, less
 * often the longer none has come.
 */
#ifndef SPMT_PROXY_H
#define SPMT_PROXY_H

#include "fifo_state.h"

/* Serves fifo from here on. A failure has a sentence that names no call. */
int proxy_add(struct fifo *fifo);
/* When it returns nobody is in the fifo. Not by the thread itself. */
void proxy_remove(struct fifo *fifo);
/* There is something to do. Any thread, a kernel's included; never blocks. */
void proxy_wake(struct proxy *proxy);

#endif
