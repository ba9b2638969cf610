/* SPDX-License-Identifier: MIT */
/*
 * The machine that the stand-ins for libcuda and libamdhip64 have in common: GPUs of host memory,
 * with streams that are threads, peer access that must be granted, ranges backed on demand, and
 * memory that other processes can open. SPMT_FAKE_DEVICES (4) says how many; with SPMT_FAKE_BLIND=1
 * this machine's CPU does not reach their memory, as it does not a GPU's. Everything that has to be
 * given back is counted.
 */
#ifndef SPMT_TESTS_FAKE_H
#define SPMT_TESTS_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control.h"
#include "fake_stream.h"

/* Of the static kind: ThreadSanitizer takes the end of a loaded library's other kind for a race. */
#define THREAD _Thread_local __attribute__((tls_model("initial-exec")))

#define FAKE_DEVICES 16
#define FAKE_GRANULARITY ((size_t)2 << 20)

int fake_devices(void);
/* Older devices: SPMT_FAKE_WITHOUT lists what they lack (vmm), SPMT_FAKE_OLD which one it is; unset: all. */
bool fake_lacks(int dev, const char *what);
/* False in a child forked after the first call. */
bool fake_same_process(void);

/* ---- memory */

enum fake_kind { FAKE_HOST, FAKE_DEVICE, FAKE_MAPPED, FAKE_IMPORT };

struct fake_block {
	struct fake_block *next;
	enum fake_kind kind;
	int dev;
	char *base;
	size_t size;
	int fd;
	uint64_t number; /* given to no other block */
	int working;	 /* copies that touch it now */
	unsigned access; /* of mapped and imported memory: devices, a bit each */
	struct fake_physical *memory;
};

/* What a handle for another process says. */
struct fake_ipc {
	uint32_t magic;
	int pid, fd, dev;
	uint64_t size, number; /* unique, as a driver's are when an address comes again */
};

bool fake_block_new(int dev, size_t size, enum fake_kind kind, void **ptr);
/* False: ptr is no beginning of such a block. */
bool fake_block_free(const void *ptr, enum fake_kind kind);
/* Round what a stream does to memory. */
void fake_work(bool begins);
/* The same of what touches [ptr, ptr + n) alone: that is some pages, and all of 64 ranks are a million. */
void fake_work_at(bool begins, const void *ptr, size_t n);
/* The device's allocations, streams, events and modules are gone. */
void fake_reset(int dev);
bool fake_block_find(const void *ptr, struct fake_block *out);
/* A descriptor of the memory under [ptr, ptr + n), positioned where that begins; -1: none. */
int fake_dmabuf(const void *ptr, size_t n);
bool fake_ipc_name(const void *ptr, struct fake_ipc *out);
bool fake_ipc_open(const struct fake_ipc *name, int for_dev, void **ptr);

void fake_peer_enable(int from, int to);
bool fake_peer_enabled(int from, int to);
/* Whether dev may touch [ptr, ptr + n). Memory of nobody is the host's. */
bool fake_reaches(int dev, const void *ptr, size_t n);

/* Ranges backed on demand. False: a bad argument. */
struct fake_team; /* fake_multicast.c */
struct fake_physical {
	int dev, fd, refs;
	size_t size;
	bool shareable;
	struct fake_team *team; /* not NULL: a multicast object, and no memory: dev and fd are -1 */
};
struct fake_physical *fake_physical_of(struct fake_team *team, size_t size);
bool fake_reserve(size_t size, size_t align, void **ptr);
/* The same, so many bytes behind a multiple of align. */
bool fake_reserve_behind(size_t size, size_t align, size_t behind, void **ptr);
bool fake_unreserve(const void *ptr, size_t size);
bool fake_physical_new(int dev, size_t size, bool shareable, struct fake_physical **out);
bool fake_physical_import(int fd, struct fake_physical **out);
void fake_physical_retain(struct fake_physical *p);
void fake_physical_release(struct fake_physical *memory);
bool fake_map(void *ptr, size_t size, struct fake_physical *memory);
bool fake_unmap(void *ptr, size_t size);
bool fake_access(const void *ptr, size_t size, unsigned devices);

/*
 * Multicast objects. What is bound is found by fake_multicast_at alone: of loads and stores the address itself takes none, as PTX has it.
 * Without SPMT_MULTICAST=1 a team ends the program: nobody has asked for one.
 */
bool fake_team_new(int n, size_t size, struct fake_physical **out);
bool fake_team_add(struct fake_physical *p, int dev);
bool fake_team_whole(const struct fake_physical *p);
bool fake_team_bind(struct fake_physical *p, size_t at, struct fake_physical *memory, size_t offset,
	size_t size);
bool fake_team_unbind(struct fake_physical *p, int dev, size_t at, size_t size);
void fake_team_end(struct fake_team *team);
/* Where the memory is mapped; NULL: it is not. */
char *fake_physical_at(const struct fake_physical *memory);
/* What lies behind n bytes at `address`: one part a device; 0: not of each, or no device may use it. */
int fake_multicast_at(const void *address, size_t n, char *parts[FAKE_DEVICES]);

/* Modules. Loading and unloading wait for the device's work. */
struct fake_module;
struct fake_module *fake_module_new(int dev);
void fake_module_end(struct fake_module *m);
void fake_modules_end(int dev);
/* The function of a kernel of the library, or NULL. */
void (*fake_kernel_find(const char *name))(const void *args);
bool fake_launch(struct fake_stream *s, void *function, const void *args, size_t size);

/* 0, or the result to give instead of doing anything: what fake_fail armed. */
int fake_call(const char *name);

/* Counted by the library on top. */
extern struct fake_counts fake_count;
extern pthread_mutex_t fake_lock;

#endif
