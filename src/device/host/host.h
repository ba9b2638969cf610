/* SPDX-License-Identifier: MIT */
/*
 * The host runtime: to the host backend what libamdhip64 and libcuda are to the others. Its calls behave like a vendor's:
 * they act for a device or the calling thread's current one, and a failure is returned and also left behind as the
 * thread's sticky error, which the next host_get_error() takes. The ops of backend_host never leave one.
 */
#ifndef SPMT_DEVICE_HOST_H_
#define SPMT_DEVICE_HOST_H_

#include "src/device/device.h"

#define HOST_DEVICES 4096 /* most ordinals there can be */

/* The calling thread's current device; 0 until set. */
int host_get_device(void);
/* Loads the backend if nobody has; -ENODEV: no such device. */
int host_set_device(int dev);

/* The sticky error, 0 if none; get clears it. */
int host_peek_error(void);
int host_get_error(void);

/* -EALREADY the second time; -EACCES where peer_check refuses. */
int host_peer_enable(int from, int to);
/* For tests: makes peer_check(from, to) refuse and takes back what was enabled, or lifts that. */
void host_forbid_peer(int from, int to, bool forbid);

/* The device of a live stream that was created; -1: it is none. */
int host_stream_device(device_stream handle);
/* Whether the stream with this id was destroyed and all its work has ended, which is waited for until the deadline. */
bool host_stream_gone(device_stream handle, uint64_t id, int64_t deadline);

/*
 * Whether what the event waits for now, or with event NULL the stream, is a copy, or a kernel of the library's that looks at this stop word: not
 * a user's, nor another comm's, nor another stream.
 */
bool host_ends(int dev, device_stream stream, device_event event, const uint32_t *stop);

/* The backend's copy, which does nothing if *stop is not 0 when its turn comes. */
int host_copy_unless(
	int dev, void *dst, const void *src, size_t n, device_stream handle, const uint32_t *stop);

/*
 * Called by a kernel that failed: synchronize returns this until there is new work; the first
 * failure counts. The stream goes on. host_stream_blamed: 0, or the code, with its sentence.
 */
void host_stream_blame(int code, const char *why);
int host_stream_blamed(int dev, device_stream handle);

/*
 * How many ns the calling thread will wait for a stream in all, where that is more than a synchronize with a timeout says: it may run work
 * of the library that takes no longer. 0: no more than it says.
 */
void host_patience(int64_t ns);

/* As the ops of the same name. */
int host_copy(int dev, void *dst, const void *src, size_t n, device_stream s);
int host_fill(int dev, void *dst, int byte, size_t n, device_stream s);
int host_launch(int dev, device_stream s, const struct kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size);

#endif
