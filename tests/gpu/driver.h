/* SPDX-License-Identifier: MIT */
/*
 * What the GPU tests need of a vendor's driver beside the backend's ops: modules of their own,
 * launches, graphs, free memory, the thread's current device. All return 0 or the driver's number.
 */
#ifndef TESTS_GPU_DRIVER_H
#define TESTS_GPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "src/device/device.h"

/* Loads the backend's driver again, its contexts of the devices in a mask and the kernels' modules,
   for the life of the process. False with a reason. For the host backend there is nothing to do. */
bool driver_open(const struct backend *b, unsigned devices,
	const struct test_kernel *const *kernels, const char **reason);

int driver_launch(int dev, const struct test_kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size, device_stream s);

bool driver_graphs(void);
/* Which calls of which threads a capture forbids; the drivers' numbers. */
enum driver_capture { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };
int driver_capture_begin(int dev, device_stream s, enum driver_capture mode);
int driver_capture_end(int dev, device_stream s, void **graph);
int driver_graph_make(int dev, void *graph, void **exec); /* the graph is gone */
int driver_graph_launch(int dev, void *exec, device_stream s);
int driver_graph_destroy(int dev, void *exec);

int driver_memory(int dev, size_t *unused); /* bytes */

int driver_current(void);	  /* the thread's device, -1: none */
int driver_make_current(int dev); /* for good; -1: none, where there can be none */

/* What no call of the library may change of the calling thread. */
struct driver_thread {
	int device; /* as driver_current */
	int error;  /* the last one, left there for who asks; CUDA's driver has none */
	int depth;
	void *contexts[8]; /* CUDA: from the top down */
};
/* The stack is read by taking it down, and built again. */
int driver_thread(struct driver_thread *t);
int driver_push(int dev); /* CUDA: its context, on top of the thread's; else nothing */
/* Leaves the nth kind of error that the library keeps; from DRIVER_FRAIL on those that it keeps where no call of the runtime
   fails inside it, which HIP has from version 7 on. False: there are no more. */
enum { DRIVER_FRAIL = 2 };
bool driver_raise(int nth);
void driver_clear(void); /* no error, no context pushed */

#endif
