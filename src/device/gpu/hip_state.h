/* SPDX-License-Identifier: MIT */
/* Shared by device_hip*.c and nobody else. */
#ifndef SPMT_DEVICE_HIP_H
#define SPMT_DEVICE_HIP_H

#include "abi_hip_calls.h"
#include "src/device/kept.h"

enum hip_vmm { HIP_VMM_UNASKED, HIP_VMM_YES, HIP_VMM_NO };

struct hip_device {
	struct kept kept;
	enum hip_vmm vmm; /* under the state's vmm_lock */
};

/* Zeros in a forked child: nothing is loaded there. */
struct hip_state {
	pthread_mutex_t lock; /* guards loading */
	bool entered;	      /* Init was called in this process */
	bool loaded;
	int verdict; /* why not, for good */
	char sentence[256];
	struct hip_api api;
	int version; /* of the runtime, as HIP_VERSION_OF */
	int count;
	struct hip_device *devices;
	struct kept_opens opens;
	/* round every call that changes mappings: ROCr's are not safe against each other */
	pthread_mutex_t vmm_lock;
	/* held from the look-up of an import to its record, driver calls included */
	pthread_mutex_t import_lock;
	struct vendor_ranges ranges;
	struct vendor_ranges padded; /* reservations with room for their alignment */
};

/* A device made current, and what the thread had. */
struct hip_bound {
	struct hip_state *state;
	const struct hip_api *api;
	struct hip_device *device;
	int dev;
	int was;	 /* -1: unknown */
	hip_result last; /* the thread's last error before us */
	hip_capture_mode mode;
	int cancel; /* the thread's own state */
};

/* NULL with a sentence where load() has not succeeded in this process. */
struct hip_state *hip_state(void);
/* The device, open or not; NULL with a sentence for an ordinal that there is not. */
struct hip_device *hip_device(int dev, const char *what);

/* The code for a result, which is not HIP_OK, and the sentence: the words given, then the
   runtime's. */
int hip_fail(hip_result result, const char *fmt, ...) PRINTF(2, 3) __attribute__((cold));

/* Makes a device current, which need not be open. Failure changes nothing. */
int hip_bind_closed(struct hip_bound *bound, int dev, const char *what);
/* An open one; after a fault site; with a stream that is none of ours checked as far as it can
   be. */
int hip_bind(struct hip_bound *bound, int dev, const char *what);
int hip_bind_for(struct hip_bound *bound, int dev, enum fault_site site, const char *what);
int hip_bind_stream(struct hip_bound *bound, int dev, device_stream s, const char *what);
/* Puts back device and last error. */
void hip_unbind(const struct hip_bound *bound);
/* The same, and makes a code of the result. */
int hip_done(const struct hip_bound *bound, hip_result result, const char *what);

/* Zeroes memory of the bound device and waits for that alone. */
int hip_zero(const struct hip_bound *bound, void *ptr, size_t size);

/* gpu/hip_open.c */
int hip_open(int dev);
void hip_close(int dev);

/* gpu/hip_alloc.c */
extern const struct pool_source hip_memory_source; /* ctx: the bound device */
int hip_alloc(int dev, size_t size, enum device_memory kind, void **ptr);
int hip_free(int dev, void *ptr);
int hip_retire(int dev, void *ptr);
int hip_host_alloc(int dev, size_t size, void **host, void **device);
int hip_host_free(int dev, void *host);

/* gpu/hip_memory.c */
int hip_import_at(
	int dev, void *ptr, const struct device_export *in, int fd); /* of the vmm group */
extern const struct device_vmm_ops hip_vmm_ops;
extern const struct device_ipc_ops hip_ipc_ops;

/* gpu/hip_stream.c */
int hip_stream_create(int dev, device_stream *s);
int hip_stream_destroy(int dev, device_stream s);
int hip_stream_query(int dev, device_stream s);
int hip_stream_sync(int dev, device_stream s, int64_t timeout_ns, const uint32_t *stop);
uint64_t hip_stream_id(int dev, device_stream s);
int hip_event_create(int dev, device_event *e);
int hip_event_destroy(int dev, device_event e);
int hip_event_record(int dev, device_event e, device_stream s);
int hip_event_query(int dev, device_event e);
int hip_event_sync(int dev, device_event e, int64_t timeout_ns, const uint32_t *stop);
int hip_stream_wait_event(int dev, device_stream s, device_event e);
int hip_copy(int dev, void *dst, const void *src, size_t n, device_stream s);
int hip_fill(int dev, void *dst, int byte, size_t n, device_stream s);
int hip_call(int dev, device_stream s, void (*fn)(void *arg), void *arg);
int hip_launch(int dev, device_stream s, const struct kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size);
bool hip_capturing(int dev, device_stream s);

#endif
