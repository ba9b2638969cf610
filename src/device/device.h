/* SPDX-License-Identifier: MIT */
/*
 * The device contract: one const table a backend (hip, cuda, host), listed in device.c in order of
 * preference.
 *
 * Rules for every op unless its comment says otherwise
 *   who calls     any thread, several at once, for the same device too; the library holds no lock
 *                 of its own round a call
 *   device        named by ordinal; an op binds what it needs and leaves the caller's current
 *                 device, context stack and sticky error as it found them, on failure too
 *   blocking      may take a driver lock; never waits for work in a stream
 *   ownership     what an op hands out belongs to the caller until the matching undo op; undo ops
 *                 take back exactly what was handed out and may not fail in a way that leaks (they
 *                 return a code for the log)
 *   failure       negative code, sentence recorded with fail(); outputs unwritten, nothing changed
 *
 * Required ops are never NULL. What a backend may lack is a group, NULL as a whole; groups have no
 * NULL members.
 */
#ifndef SPMT_DEVICE_H_
#define SPMT_DEVICE_H_

#include "sdma/queue.h"
#include "types.h"

struct backend {
	const char *name;
	uint32_t traits;	  /* DEVICE_HOST_ACCESS, .. */
	uint64_t store_threshold; /* bytes up to which stores beat the copy engine, host calls */

	/* Finds the runtime, once a process; 0 or a code whose sentence says why there is none.
	   Idempotent, any thread. The other ops are called after it has succeeded. */
	int (*load)(void);
	int (*count)(int *n);
	int (*describe)(int dev, struct device_desc *desc);

	/* Binds dev to the calling thread; leave() on the same thread, in reverse order. enter()
	   fails without a trace. */
	int (*enter)(int dev, struct device_saved *saved);
	void (*leave)(const struct device_saved *saved);

	/* Prepares a device (context, kernels), counted: each open is undone by one close. Takes 100 ms and more the first time, and
	   then waits for the device's kernels; what it has made stays until the process ends, so that later ones do not. An
	   application may reset a device that is not open: the next open makes all anew. Streams and what is queued in them
	   need an open device. */
	int (*open)(int dev);
	void (*close)(int dev);

	/* 0: from's kernels and copies may reach to's memory once enabled, or from == to. Else a code, a reason, no sentence. */
	int (*peer_check)(int from, int to, char reason[DEVICE_REASON]);
	/* Idempotent ("already enabled" is success and leaves no sticky error). Lasts until the
	   process ends. */
	int (*peer_enable)(int from, int to);

	/* Device memory. Zeroed before alloc returns. Alignment: at least 256. free never waits
	   for kernels: where the driver's would, the block is kept for the next alloc, and given
	   back when no device is open (64 MiB a device stay) or the driver has nothing left, where
	   alone alloc, and commit, may wait. So nothing may use a block any more that is freed.
	   What other processes may still use is retired: no alloc gives it again. */
	int (*alloc)(int dev, size_t size, enum device_memory kind, void **ptr);
	int (*free)(int dev, void *ptr);
	int (*retire)(int dev, void *ptr);
	/* Pinned memory for dev's kernels, likewise: *host for the CPU, *device for kernels. */
	int (*host_alloc)(int dev, size_t size, void **host, void **device);
	int (*host_free)(int dev, void *host);

	/* Streams do not synchronise with the legacy stream. destroy waits for nothing; queued
	   work still runs. */
	int (*stream_create)(int dev, device_stream *s);
	int (*stream_destroy)(int dev, device_stream s);
	/* 1 all done, 0 busy, negative: the stream's failure. */
	int (*stream_query)(int dev, device_stream s);
	/* Waits until all work queued so far is done. timeout_ns < 0: none. *stop != 0 ends the
	   wait (stop may be NULL). -ETIMEDOUT or -ECANCELED without a sentence. Blocks. */
	int (*stream_sync)(int dev, device_stream s, int64_t timeout_ns, const uint32_t *stop);
	/* A number that no other stream of the process has or ever had, while a handle may be reused once its stream is destroyed; for
	   the per-thread stream, the calling thread's. 0: unknown here. No sentence. */
	uint64_t (*stream_id)(int dev, device_stream s);

	int (*event_create)(int dev, device_event *e);
	int (*event_destroy)(int dev, device_event e);
	int (*event_record)(int dev, device_event e, device_stream s);
	int (*event_query)(int dev, device_event e); /* as stream_query */
	/* As stream_sync, for what was queued before the last record. The stream may be gone. */
	int (*event_sync)(int dev, device_event e, int64_t timeout_ns, const uint32_t *stop);
	int (*stream_wait_event)(int dev, device_stream s, device_event e);

	/* In stream order, asynchronous to the caller. Any addresses dev can reach, host memory
	   included (it must stay valid and unchanged until done). Overlap: as memmove within one
	   device. */
	int (*copy)(int dev, void *dst, const void *src, size_t n, device_stream s);
	int (*fill)(int dev, void *dst, int byte, size_t n, device_stream s);
	/* fn(arg) on a thread of the runtime, in stream order; fn makes no device call. On the host also in a stream that has
	   failed. */
	int (*call)(int dev, device_stream s, void (*fn)(void *arg), void *arg);
	/* One kernel, args copied before return. grid and block in one dimension. */
	int (*launch)(int dev, device_stream s, const struct kernel *k, unsigned grid,
		unsigned block, const void *args, size_t size);
	/* True while s is being captured into a graph. */
	bool (*capturing)(int dev, device_stream s);

	const struct device_vmm_ops *vmm;
	const struct device_ipc_ops *ipc;
	const struct device_sdma_ops *sdma;
	const struct device_dmabuf_ops *dmabuf;
	const struct device_word_ops *words;
	const struct device_hold_ops *hold;   /* NULL: no op has anything to bind */
	const struct device_graph_ops *graph; /* NULL: graphs are their owner's alone */
	const struct device_multicast_ops *multicast;
};

extern const struct backend backend_hip, backend_cuda, backend_host;

/* Row i in order of preference, NULL past the end. Loads nothing. */
const struct backend *device_backend(size_t i);

/* No kernels for its devices were built: it copies, and says so where a kernel is needed. */
bool device_lacks_images(const struct backend *b);

/* The one named, or for NULL by SPMT_BACKEND, or else the first with devices and images; or a sentence why none will do. */
int device_select(const char *name, const struct backend **backend);

/* stream_sync that, stopped, waits half a second more for work that needs nobody, so that its buffers are written to no more. */
int device_drain(const struct backend *b, int dev, device_stream s, int64_t timeout_ns,
	const uint32_t *stop);

#endif
