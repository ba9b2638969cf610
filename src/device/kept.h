/* SPDX-License-Identifier: MIT */
/* Opening devices, for the cuda and hip backends. A context costs 100 ms and more, and to release
   it, or to load or unload a module, waits for every kernel of the device: what the first open
   makes is kept for the life of the process, unless the application resets the device. */
#ifndef SPMT_DEVICE_KEPT_H
#define SPMT_DEVICE_KEPT_H

#include "pool.h"
#include "src/device/gpu/vendor.h"

#define KEPT_CLOSED ((size_t)64 << 20) /* bytes of a device that stay with us while none is open */

/* One a device. */
struct kept {
	const char *backend;
	int dev;
	pthread_mutex_t lock; /* guards opens, and what the first open makes or finds */
	int opens;
	bool open;
	uintptr_t marker; /* a buffer: after a reset it is not there any more; 0: nothing is kept */
	uint64_t number;  /* the driver's of the marker, given to no other buffer; 0: none */
	void *stream;	  /* for zeroing */
	const struct device_image *image; /* the one that is loaded, or was tried last */
	void *module;
	struct vendor_kernels kernels;
	struct device_pool pool;
	char arch[32];
};

/* One a backend. */
struct kept_opens {
	pthread_mutex_t lock; /* guards n, and is held round idle */
	int n;		      /* of all devices */
};

/*
 * first, under the device's lock, where it is not open: makes what is not there; a code with a
 * sentence. idle, where no device is open: gives back what is too much, of all devices.
 */
int kept_open(struct kept *kept, struct kept_opens *all, int (*first)(struct kept *kept),
	void (*idle)(struct kept *kept));
void kept_close(struct kept *kept, struct kept_opens *all, void (*idle)(struct kept *kept));

/* Loads the best image for the device, or the next: load makes module and kernels of kept->image.
   0, and no module, where there is no image. */
int kept_load(struct kept *kept, int (*load)(struct kept *kept));
/* All that is kept is gone. */
void kept_forget(struct kept *kept);

/* Memory from the pool, device or pinned, back to it; NULL is nothing. */
int kept_free(struct kept *kept, const void *ptr);
int kept_retire(struct kept *kept, const void *ptr);
int kept_host_free(struct kept *kept, const void *host);

#endif
