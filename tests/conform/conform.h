/* SPDX-License-Identifier: MIT */
/*
 * What src/device/device.h promises, as cases that run on any backend: virtual devices, stand-ins and
 * GPUs. Each case runs in a process that has loaded the backend, leaves nothing behind when it
 * passes, and says why when it does not.
 */
#ifndef SPMT_TESTS_CONFORM_H
#define SPMT_TESTS_CONFORM_H

#include "src/device/device.h"

struct conform {
	const struct backend *b;
	int n; /* devices */
	/* run as `child --import backend device`; NULL: no case needs one */
	const char *child;
	char why[600];
};

struct conform_case {
	const char *name;
	int (*run)(struct conform *c);
};

enum { CONFORM_PASS, CONFORM_FAIL, CONFORM_SKIP };

/* In order; NULL past the end. */
const struct conform_case *conform_case(size_t i);

/* NULL, or what is wrong with the table: a required member that is NULL, a group with holes.
   Nothing is called. */
const char *conform_table(const struct backend *b);

/* The importing process: the export comes over descriptor 3. Returns its exit status. */
int conform_import(const char *backend, int dev);

/* ---- for the cases */

int conform_fail(struct conform *c, const char *file, int line, const char *what);
int conform_skip(struct conform *c, const char *why);
#define CHECK(c, condition)                                                     \
	do {                                                                    \
		if (!(condition))                                               \
			return conform_fail(c, __FILE__, __LINE__, #condition); \
	} while (0)

/* A device that is open, with a stream and 1 MiB of pinned memory. */
struct rig {
	int dev;
	device_stream s;
	unsigned char *host;
	void *host_device;
};
#define RIG_HOST ((size_t)1 << 20)
int rig_open(struct conform *c, int dev, struct rig *r);
int rig_close(struct conform *c, struct rig *r);
/* True when [ptr, ptr + n) of the device, n up to RIG_HOST, could be read and is what `want`
   says; want NULL: all `byte`. */
bool rig_holds(
	struct conform *c, struct rig *r, const void *ptr, size_t n, const void *want, int byte);
/* Random, the same each run. */
void conform_noise(void *buf, size_t n, unsigned seed);
void conform_nap(long us);

/* The cases, by file. */
extern const struct conform_case conform_life[], conform_memory[], conform_streams[],
	conform_share[];

#endif
