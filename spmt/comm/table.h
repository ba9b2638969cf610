/* SPDX-License-Identifier: MIT */
#ifndef SPMT_TABLE_H
#define SPMT_TABLE_H

#include "include/spmt.h"
#include "src/device/device.h"

/*
 * A small table that the host fills and kernels read: where the CPU and the device share memory one
 * table serves both, elsewhere kernels get a copy in device memory, which they read without
 * crossing the bus. table_publish may be called again after the host's part has changed.
 */
struct kernel_table {
	void *host, *dev;
	size_t size;
};
int table_open(spmt_comm *comm, size_t size, struct kernel_table *table);
int table_publish(spmt_comm *comm, struct kernel_table *table); /* sets dev */
void table_close(spmt_comm *comm, struct kernel_table *table);	/* zeroed: fine */

/*
 * Pinned memory of the comm for what a call brings back from the device: at least `size` bytes, until
 * the next call. One thread at a time, as all calls on a comm.
 */
struct pinned;
int scratch_room(spmt_comm *comm, size_t size);
void *scratch_host(const spmt_comm *comm);
void *scratch_dev(const spmt_comm *comm);

/* Pinned memory to keep: at least `size` bytes, as the last user left them. Closing NULL does nothing. */
int pinned_open(spmt_comm *comm, size_t size, struct pinned **pinned);
void *pinned_host(const struct pinned *pinned);
void *pinned_dev(const struct pinned *pinned);
void pinned_close(spmt_comm *comm, struct pinned *pinned);

/* n blocks, for the signals of n lanes (signals_open). */
int pinned_for_lanes(spmt_comm *comm, size_t n);

/* At finalize: the comm gives its signals and its scratch back. */
void pinned_return(spmt_comm *comm);

int signals_open(spmt_comm *comm);

/* One kernel on the stream, of one thread, noted for quiet. */
struct kernel;
int kernel_run(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	device_stream stream);
#define KERNEL_BLOCK 512 /* threads, the most there are */
#define KERNEL_WARP 32	 /* the fewest that run as one */
/* The same between the caller's stream_reserve and stream_note; and of `blocks` of KERNEL_BLOCK threads on GPUs (a block of one on
   the host backend). */
int kernel_queue(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	device_stream stream);
int kernel_queue_wide(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	unsigned blocks, device_stream stream);
/* The same of another shape: `blocks` blocks of at least `work` threads, as many as fit (on the host backend one of one). */
struct kernel_grid {
	unsigned blocks, threads;
};
struct kernel_grid kernel_grid_of(const spmt_comm *comm, unsigned blocks, uint64_t work);
int kernel_queue_grid(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	struct kernel_grid grid, device_stream stream);

struct slot;
/* Frees everything of the slot, whose device is still open. */
void tables_drop(struct slot *slot);

#endif
