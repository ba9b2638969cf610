/* SPDX-License-Identifier: MIT */
/* What the device contract (device.h) is made of: plain data, and the groups of ops that a backend may lack, by the same rules. */
#ifndef SPMT_DEVICE_TYPES_H
#define SPMT_DEVICE_TYPES_H

#include "src/base/base.h"

typedef void *device_stream;
typedef void *device_event;

/* The vendor's default streams, on every backend; backends translate. Never created nor destroyed. */
#define DEVICE_STREAM_LEGACY ((device_stream)1)
#define DEVICE_STREAM_PER_THREAD ((device_stream)2)

#define DEVICE_REASON 128 /* bytes for a reason in words */

/* Traits: the CPU may load, store and do atomics on device memory at its own address; kernels access 16 aligned bytes at once. */
#define DEVICE_HOST_ACCESS 1u
#define DEVICE_WHOLE_UNITS 2u
#define DEVICE_OPEN_STREAMS 4u /* with handles: copies and events whatever is bound */

/* How long a wait that was stopped goes on for work that needs nobody. */
#define DEVICE_STOPPED_NS 500000000ll

struct device_desc {
	int ordinal;
	char name[64];
	char arch[32];		/* gfx942, sm_90, host */
	char pci[16];		/* 0000:1b:00.0, "" if there is none */
	unsigned char uuid[16]; /* zeros if there is none */
	uint64_t memory;	/* bytes */
	int units;		/* compute units or multiprocessors */
	int numa;		/* -1: unknown */
};

/* The calling thread's device state, put back by leave(). */
struct device_saved {
	int ordinal; /* -1: none was bound */
	int error;
	void *context;
};

enum device_memory {
	DEVICE_MEMORY_PLAIN,	/* private to the library and its kernels */
	DEVICE_MEMORY_SYMMETRIC /* peers' loads, stores and atomics see it while kernels run (AMD:
				   fine-grained or uncached) */
};

/* How a backend's memory is named to another process. Plain data; a descriptor travels beside it. */
struct device_export {
	uint32_t kind;		 /* enum device_export_kind */
	uint32_t size;		 /* bytes used in handle */
	uint64_t offset, length; /* of the exported range in the allocation the handle names */
	unsigned char handle[64];
};
enum device_export_kind { DEVICE_EXPORT_NONE, DEVICE_EXPORT_HANDLE, DEVICE_EXPORT_FD };

/* A kernel of the library: its name in the device images and, for the host backend, the same C function. args: one struct, copied at launch. */
struct kernel {
	const char *name;
	void (*host)(const void *args);
	bool bounded; /* the library's own: its waits have a deadline, and end with the world */
	bool early;   /* it waits by kernel_behind() for what is ahead of it in its stream */
	size_t viewed; /* this many leading bytes of its args are a view, whose addresses need no check */
	size_t given; /* up to this byte lie a caller's addresses; 0: to the end */
};

/* Virtual memory: reserve a range, commit parts of it. Ranges never move. Sizes and offsets are
   multiples of granularity. */
struct device_vmm_ops {
	/* SPMT_ERR_UNSUPPORTED: this device or its driver cannot, though the backend knows how; then none of
	   the others can either. */
	int (*granularity)(int dev, size_t *bytes);
	/* One range for all devices of the process. align: power of two. */
	int (*reserve)(size_t size, size_t align, void **base);
	int (*unreserve)(void *base, size_t size);
	/* Backs [ptr, ptr + size) with zeroed memory of `dev`, readable and writable by dev and
	   by the n devices of `peers`. */
	int (*commit)(int dev, void *ptr, size_t size, const int *peers, int n);
	/* Takes back one earlier commit or import, exactly. */
	int (*decommit)(int dev, void *ptr, size_t size);
	/* As commit, but with the memory that another process's export_memory() has named,
	   in->length bytes, for dev alone. ptr lies in a range of reserve(). fd stays the
	   caller's. */
	int (*import)(int dev, void *ptr, const struct device_export *in, int fd);
};

/*
 * Memory of several devices under one address, at which a switch repeats a kernel's stores for all of them, and folds what it loads. Such an
 * address is for a kernel's instructions of that kind alone (multimem of PTX). Called where a program has asked for it, by SPMT_MULTICAST=1,
 * and for open devices that are named once each.
 */
struct device_multicast_ops {
	/* What addresses and sizes are multiples of. SPMT_ERR_UNSUPPORTED: the driver or one of the devices cannot. Makes nothing. */
	int (*granularity)(const int *devs, int n, size_t *bytes);
	/* at[i]: of devs[i], where `size` bytes of commit() begin; one *address for all, until unbind, which comes before
	   the first decommit. */
	int (*bind)(const int *devs, char *const *at, int n, size_t size, void **address);
	int (*unbind)(void *address);
};

/* Naming memory to a device of another kind, a NIC. */
struct device_dmabuf_ops {
	/* *fd names memory in which [ptr, ptr + size) begins at *offset; the caller's to close. SPMT_ERR_UNSUPPORTED: this driver cannot. It
	   holds the memory until it is closed, with whatever was made of it. */
	int (*name)(int dev, void *ptr, size_t size, int *fd, uint64_t *offset);
};

/* Binds once, for all that a thread asks of dev from begin to end, what ops otherwise bind for themselves. begin false, then no end: impossible, or done already. */
struct device_hold_ops {
	bool (*begin)(int dev);
	void (*end)(int dev);
};

/* Words that streams store to and wait for by themselves, with no kernel. A word is eight bytes of the device's host_alloc, by its
   *device address, which the CPU may store to as well. Not in a capture. */
struct device_word_ops {
	/* 0; or a code: this device cannot, reason says why, no sentence. */
	int (*check)(int dev, char reason[DEVICE_REASON]);
	/* A stream for copies that no stream of usual priority holds up: drivers put many streams into few hardware queues, where
	   what waits for a word stops what was queued behind it. stream_destroy undoes it. */
	int (*stream_create)(int dev, device_stream *s);
	/* Behind what is queued in s, whose stores are seen by whoever sees the word. */
	int (*write)(int dev, device_stream s, void *word, uint64_t value);
	/* s goes on once the word, as a signed number, is not below value. */
	int (*wait)(int dev, device_stream s, void *word, uint64_t value);
};

/* Graphs that know whose work they hold, so that none runs after its user has ended. `user` is an address and no more. */
struct device_graph_ops {
	/* Of a stream that is being captured; else nothing. */
	int (*uses)(int dev, device_stream s, const void *user);
	/* No graph that holds user's work is launched any more. Waits for those that run until the deadline, a time of
	   process_now(); false: one goes on. No sentence. */
	bool (*settle)(const void *user, int64_t deadline);
	/* s waits for those that go on. */
	int (*join)(int dev, device_stream s, const void *user);
};

/* Naming memory to another process of the node. Never opened in the process that exported. */
struct device_ipc_ops {
	/* ptr lies in memory of alloc() or commit() or, where the driver can, of the user. *fd:
	   -1, or the caller's to close. */
	int (*export_memory)(int dev, void *ptr, size_t size, struct device_export *out, int *fd);
	/* fd stays the caller's. *ptr is where `offset` of the export begins. */
	int (*import_memory)(int dev, const struct device_export *in, int fd, void **ptr);
	int (*release)(int dev, void *ptr, const struct device_export *in);
};

#endif
