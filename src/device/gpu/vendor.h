/* SPDX-License-Identifier: MIT */
/* What the cuda and hip backends share: finding a runtime and its symbols, images, kernel
   tables, polling, records of mappings. */
#ifndef SPMT_DEVICE_VENDOR_H
#define SPMT_DEVICE_VENDOR_H

#include <pthread.h>

#include "src/base/fault.h"
#include "src/device/device.h"
#include "src/kernels/images.h"

/* ---- the runtime */

struct vendor_symbol {
	const char *name;
	size_t offset; /* of the function pointer in the table */
	bool optional;
};

/*
 * Opens the first of `names`, or `path` alone if it is not NULL, for the life of the process; what
 * the application has loaded already is taken first. A path that is there and no regular file is
 * not opened. -ENOENT, or what was short: reason, of VENDOR_REASON bytes, says why the last one
 * tried is none. No sentence.
 */
#define VENDOR_REASON 256
int vendor_open(const char *path, const char *const *names, size_t n, char reason[VENDOR_REASON],
	void **library);
/* Fills `table`. NULL, or the name of a required symbol that is missing. Optional ones that are
   missing become NULL. */
const char *vendor_bind(void *library, const struct vendor_symbol *symbols, size_t n, void *table);

/* 0, or the code of a failure on purpose, recorded with the words given. */
int vendor_faulted(enum fault_site site, const char *backend, const char *what, int dev)
	__attribute__((cold));
static inline int vendor_fault(enum fault_site site, const char *backend, const char *what, int dev)
{
	return LIKELY(!fault_here(site)) ? 0 : vendor_faulted(site, backend, what, dev);
}
/* What export gives of a descriptor that the driver has made: see process_fd(). */
int vendor_export_fd(const char *backend, int dev, int made, int *fd);
/* Of what a driver has not done: -EMFILE or -ENFILE where there is no descriptor to be had, which drivers
   tell by codes that they have for much else. 0: that is not why. No sentence. */
int vendor_lacks_fd(void);

/* ---- images and kernels */

/*
 * The images that may serve `arch`, best first: one of exactly this target, then the newest PTX not
 * above it. Pure. How many were written to best[], 0 to 2.
 */
size_t vendor_pick(const struct device_image *images, size_t n, const char *arch,
	const struct device_image *best[2]);
/* "gfx90a, gfx942" for sentences. */
void vendor_archs(const struct device_image *images, size_t n, char *text, size_t size);

/* Handles of the library's kernels in one loaded module. */
struct vendor_kernels {
	size_t n; /* 0: nothing is loaded */
	void *handle[136];
};
/* Asks `find` for every kernel of the library. On failure *kernels is unwritten. */
int vendor_kernels_find(struct vendor_kernels *kernels, bool whole_units,
	int (*find)(void *ctx, const char *name, void **handle), void *ctx);
/* The handle, or NULL with a sentence and *code. */
void *vendor_kernel(const struct vendor_kernels *kernels, const struct kernel *k,
	const char *backend, const char *arch, int *code);

/* ---- waiting */

/*
 * Polls until query() is not 0: spins a few microseconds, yields, then sleeps in slices that grow
 * with the time waited. 0 when it says 1; its negative code; -ETIMEDOUT or -ECANCELED without a
 * sentence.
 */
int vendor_wait(int (*query)(void *ctx), void *ctx, int64_t timeout_ns, const uint32_t *stop);

/* ---- copies */

/*
 * Runs copy() over [src, src + n) in pieces that do not overlap their destination, in the order
 * memmove needs. -E2BIG: it would take more than 64 pieces, nothing done.
 */
int vendor_overlap(void *dst, const void *src, size_t n,
	int (*copy)(void *ctx, void *dst, const void *src, size_t n), void *ctx);
static inline bool vendor_overlaps(const void *dst, const void *src, size_t n)
{
	uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;

	return d != s && (d > s ? d - s : s - d) < n;
}

/* ---- mappings: commits and imports, so that the undo takes back exactly what was done */

struct vendor_range {
	struct vendor_range *next;
	char *base;
	size_t size;
	int dev;
	unsigned refs;
	bool import;
	uint64_t handle;       /* the driver's, 0: none */
	unsigned char key[64]; /* imports by handle: what was opened */
};
struct vendor_ranges {
	pthread_mutex_t lock; /* guards the list; never held round a driver call */
	struct vendor_range *first;
};
/* -ENOMEM with a sentence. The list keeps a copy. */
int vendor_range_add(struct vendor_ranges *ranges, const struct vendor_range *range);
/* True: *out is a copy of the record that holds ptr. */
bool vendor_range_find(struct vendor_ranges *ranges, const void *ptr, struct vendor_range *out);
/* An import of the same key on the same device gets one more reference: its base, else NULL. */
void *vendor_range_share(struct vendor_ranges *ranges, int dev, const unsigned char key[64]);
/* Drops a reference to the record of exactly this base, device and kind. True when that was the
   last one and *out is it. A record of another size (0: any) is not touched. *found tells
   whether there was one. */
bool vendor_range_drop(struct vendor_ranges *ranges, const void *base, size_t size, int dev,
	bool import, struct vendor_range *out, bool *found);

/* ---- facts */

/* The node of a PCI device, lower case as sysfs has it; -1: unknown. */
int vendor_numa(const char *pci);
void vendor_lower(char *text);

#endif
