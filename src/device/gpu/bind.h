/* SPDX-License-Identifier: MIT */
/* A device made the calling thread's, round what the library does with it. */
#ifndef SPMT_GPU_BIND_H
#define SPMT_GPU_BIND_H

#include "gpu.h"

/* A device made current, and what the thread had. */
struct gpu_bound {
	const struct gpu_vendor *vendor;
	struct gpu_state *state;
	const struct gpu_calls *calls;
	struct gpu_device *device;
	int dev;
	bool inside; /* false: a question that needs no context, or the thread holds the device */
	bool pushed; /* of a vendor with contexts: another one was current, or none */
	int was;     /* of a vendor without contexts; -1: unknown */
	int last;    /* the thread's last error before us */
	int mode;    /* the thread's own, as is cancel */
	int cancel;
};

/* Makes a device current, whose context there is; failure changes nothing. */
int gpu_bind_context(struct gpu_bound *b, const struct gpu_vendor *v, int dev, const char *what);
/* For a question about a device that need not be open. */
int gpu_bind_closed(struct gpu_bound *b, const struct gpu_vendor *v, int dev, const char *what);
/* An open one; after a fault site; with a stream, checked as far as it can be. */
int gpu_bind(struct gpu_bound *b, const struct gpu_vendor *v, int dev, const char *what);
int gpu_bind_for(struct gpu_bound *b, const struct gpu_vendor *v, int dev, enum fault_site site,
	const char *what);
int gpu_bind_stream(struct gpu_bound *b, const struct gpu_vendor *v, int dev, device_stream s,
	const char *what);
/* A stream that says of itself what it is, in whatever context, and takes work while another thread captures: not a default one, which is the
   current context's. */
static inline bool gpu_stream_speaks(const struct gpu_vendor *v, device_stream s)
{
	return v->streams_know && (uintptr_t)s > (uintptr_t)DEVICE_STREAM_PER_THREAD;
}
/* By what copies and events are called in such a stream, whatever context is current. NULL: the device has to be bound for them. It is bound also where
   such a call has failed, which may be for the context; the call that is made then tells why it fails. */
static inline const struct gpu_state *gpu_unbound(
	const struct gpu_vendor *v, int dev, device_stream s)
{
	const struct gpu_state *state = atomic_load_explicit(&v->root->slot, memory_order_acquire);

	if (!gpu_stream_speaks(v, s) || fault_armed() || !state || !state->loaded || dev < 0 ||
		dev >= state->count || !state->devices[dev].kept.open)
		return NULL;
	return state;
}
/* The device stays bound for the calling thread, so that what binds it until gpu_let_go() asks the driver nothing for that. False:
   it is not held, or was already, and nothing is to be let go. */
bool gpu_hold(const struct gpu_vendor *v, int dev);
void gpu_let_go(const struct gpu_vendor *v, int dev);
/* Puts back what the thread had. */
void gpu_unbind(const struct gpu_bound *b);
/* The same, and makes a code of the result. */
int gpu_done(const struct gpu_bound *b, int result, const char *what);

/* Zeroes memory of the bound device and waits for that alone (stream.c). */
int gpu_zero(const struct gpu_bound *b, void *ptr, size_t size);
extern const struct pool_source gpu_memory; /* ctx: the bound device (memory.c) */

/* The thread's last error, and back: nothing where no call leaves one. */
int gpu_last_error(const struct gpu_vendor *v, const struct gpu_state *state);
void gpu_put_back_error(const struct gpu_vendor *v, const struct gpu_state *state, int want);

#endif
