/* SPDX-License-Identifier: MIT */
/* Shared by device_cuda*.c and nobody else. */
#ifndef SPMT_DEVICE_CUDA_H
#define SPMT_DEVICE_CUDA_H

#include "abi_cuda_calls.h"
#include "src/device/kept.h"

struct cuda_device {
	struct kept kept;
	cu_device handle;
	cu_context context; /* the primary one, kept too */
	bool vmm, fds;
};

/* Zeros in a forked child: nothing is loaded there. */
struct cuda_state {
	pthread_mutex_t lock; /* guards loading */
	bool entered;	      /* Init was called in this process */
	bool loaded;
	int verdict; /* why not, for good */
	char sentence[256];
	struct cuda_api api;
	int count;
	struct cuda_device *devices;
	struct kept_opens opens;
	/* held from the look-up of an import to its record, driver calls included */
	pthread_mutex_t import_lock;
	struct vendor_ranges ranges;
};

static inline void *cuda_pointer(cu_pointer ptr)
{
	return (void *)(uintptr_t)ptr;
}

/* A device's context on top of the thread's stack. */
struct cuda_bound {
	struct cuda_state *state;
	const struct cuda_api *api;
	struct cuda_device *device;
	int dev;
	cu_capture_mode mode; /* the thread's own, as is cancel */
	int cancel;
};

/* NULL with a sentence where load() has not succeeded in this process. */
struct cuda_state *cuda_state(void);
/* The device, open or not; NULL with a sentence for an ordinal that there is not. */
struct cuda_device *cuda_device(int dev, const char *what);

/* The code for a driver's result, which is not CU_OK, and the sentence: the words given, then
   the driver's. */
int cuda_fail(cu_result result, const char *fmt, ...) PRINTF(2, 3) __attribute__((cold));

/* Pushes the context of a device; of an open one. Failure leaves the stack alone. */
int cuda_bind_context(struct cuda_bound *bound, int dev, const char *what);
int cuda_bind(struct cuda_bound *bound, int dev, const char *what);
/* The same after a fault site, and with a stream that is none of ours checked as far as it can
   be. */
int cuda_bind_for(struct cuda_bound *bound, int dev, enum fault_site site, const char *what);
int cuda_bind_stream(struct cuda_bound *bound, int dev, device_stream s, const char *what);
/* Pops. */
void cuda_unbind(const struct cuda_bound *bound);
/* Pops, and makes a code of the result. */
int cuda_done(const struct cuda_bound *bound, cu_result result, const char *what);

/* Zeroes memory of the bound device and waits for that alone. */
int cuda_zero(const struct cuda_bound *bound, cu_pointer ptr, size_t size);

/* gpu/cuda_open.c */
int cuda_open(int dev);
void cuda_close(int dev);

/* gpu/cuda_alloc.c */
extern const struct pool_source cuda_memory; /* ctx: the bound device */
int cuda_alloc(int dev, size_t size, enum device_memory kind, void **ptr);
int cuda_free(int dev, void *ptr);
int cuda_retire(int dev, void *ptr);
int cuda_host_alloc(int dev, size_t size, void **host, void **device);
int cuda_host_free(int dev, void *host);

/* gpu/cuda_memory.c */
extern const struct device_vmm_ops cuda_vmm_ops;
extern const struct device_ipc_ops cuda_ipc_ops;

/* gpu/cuda_stream.c */
int cuda_stream_create(int dev, device_stream *s);
int cuda_stream_destroy(int dev, device_stream s);
int cuda_stream_query(int dev, device_stream s);
int cuda_stream_sync(int dev, device_stream s, int64_t timeout_ns, const uint32_t *stop);
uint64_t cuda_stream_id(int dev, device_stream s);
int cuda_event_create(int dev, device_event *e);
int cuda_event_destroy(int dev, device_event e);
int cuda_event_record(int dev, device_event e, device_stream s);
int cuda_event_query(int dev, device_event e);
int cuda_event_sync(int dev, device_event e, int64_t timeout_ns, const uint32_t *stop);
int cuda_stream_wait_event(int dev, device_stream s, device_event e);
int cuda_copy(int dev, void *dst, const void *src, size_t n, device_stream s);
int cuda_fill(int dev, void *dst, int byte, size_t n, device_stream s);
int cuda_call(int dev, device_stream s, void (*fn)(void *arg), void *arg);
int cuda_launch(int dev, device_stream s, const struct kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size);
bool cuda_capturing(int dev, device_stream s);

#endif
