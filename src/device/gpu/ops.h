/* SPDX-License-Identifier: MIT */
/* The operations of device.h over a vendor, and the const table of a vendor's backend. */
#ifndef SPMT_GPU_OPS_H
#define SPMT_GPU_OPS_H

#include "gpu.h"

/* X(type, operation, parameters, arguments): each is gpu_<operation>(vendor, parameters). */
#define GPU_OPS(X)                                                                                \
	X(int, count, (int *n), (n))                                                              \
	X(int, describe, (int dev, struct device_desc *desc), (dev, desc))                        \
	X(int, enter, (int dev, struct device_saved *saved), (dev, saved))                        \
	X(int, open, (int dev), (dev))                                                            \
	X(int, peer_check, (int from, int to, char reason[DEVICE_REASON]), (from, to, reason))    \
	X(int, peer_enable, (int from, int to), (from, to))                                       \
	X(int, alloc, (int dev, size_t size, enum device_memory kind, void **ptr),                \
		(dev, size, kind, ptr))                                                           \
	X(int, free, (int dev, void *ptr), (dev, ptr))                                            \
	X(int, retire, (int dev, void *ptr), (dev, ptr))                                          \
	X(int, host_alloc, (int dev, size_t size, void **host, void **device),                    \
		(dev, size, host, device))                                                        \
	X(int, host_free, (int dev, void *host), (dev, host))                                     \
	X(int, stream_create, (int dev, device_stream *s), (dev, s))                              \
	X(int, stream_destroy, (int dev, device_stream s), (dev, s))                              \
	X(int, stream_query, (int dev, device_stream s), (dev, s))                                \
	X(int, stream_sync, (int dev, device_stream s, int64_t timeout_ns, const uint32_t *stop), \
		(dev, s, timeout_ns, stop))                                                       \
	X(int, event_create, (int dev, device_event *e), (dev, e))                                \
	X(int, event_destroy, (int dev, device_event e), (dev, e))                                \
	X(int, event_record, (int dev, device_event e, device_stream s), (dev, e, s))             \
	X(int, event_query, (int dev, device_event e), (dev, e))                                  \
	X(int, event_sync, (int dev, device_event e, int64_t timeout_ns, const uint32_t *stop),   \
		(dev, e, timeout_ns, stop))                                                       \
	X(int, stream_wait_event, (int dev, device_stream s, device_event e), (dev, s, e))        \
	X(int, copy, (int dev, void *dst, const void *src, size_t n, device_stream s),            \
		(dev, dst, src, n, s))                                                            \
	X(int, fill, (int dev, void *dst, int byte, size_t n, device_stream s),                   \
		(dev, dst, byte, n, s))                                                           \
	X(int, call, (int dev, device_stream s, void (*fn)(void *arg), void *arg),                \
		(dev, s, fn, arg))                                                                \
	X(int, launch,                                                                            \
		(int dev, device_stream s, const struct kernel *k, unsigned grid, unsigned block, \
			const void *args, size_t size),                                           \
		(dev, s, k, grid, block, args, size))                                             \
	X(int, granularity, (int dev, size_t *bytes), (dev, bytes))                               \
	X(int, reserve, (size_t size, size_t align, void **base), (size, align, base))            \
	X(int, unreserve, (void *base, size_t size), (base, size))                                \
	X(int, commit, (int dev, void *ptr, size_t size, const int *peers, int n),                \
		(dev, ptr, size, peers, n))                                                       \
	X(int, decommit, (int dev, void *ptr, size_t size), (dev, ptr, size))                     \
	X(int, import_at, (int dev, void *ptr, const struct device_export *in, int fd),           \
		(dev, ptr, in, fd))                                                               \
	X(int, export, (int dev, void *ptr, size_t size, struct device_export *out, int *fd),     \
		(dev, ptr, size, out, fd))                                                        \
	X(int, import, (int dev, const struct device_export *in, int fd, void **ptr),             \
		(dev, in, fd, ptr))                                                               \
	X(int, release, (int dev, void *ptr, const struct device_export *in), (dev, ptr, in))     \
	X(int, dmabuf, (int dev, void *ptr, size_t size, int *fd, uint64_t *offset),              \
		(dev, ptr, size, fd, offset))                                                     \
	X(int, words_check, (int dev, char reason[DEVICE_REASON]), (dev, reason))                 \
	X(int, words_stream, (int dev, device_stream *s), (dev, s))                               \
	X(int, word_write, (int dev, device_stream s, void *word, uint64_t value),                \
		(dev, s, word, value))                                                            \
	X(int, word_wait, (int dev, device_stream s, void *word, uint64_t value),                 \
		(dev, s, word, value))                                                            \
	X(uint64_t, stream_id, (int dev, device_stream s), (dev, s))                              \
	X(bool, capturing, (int dev, device_stream s), (dev, s))                                  \
	X(bool, hold, (int dev), (dev))

/* Those that return nothing. */
#define GPU_VOID_OPS(X)                              \
	X(leave, const struct device_saved *, saved) \
	X(close, int, dev)                           \
	X(let_go, int, dev)

#define GPU_BARE(...) __VA_ARGS__

int gpu_load(const struct gpu_vendor *v);
#define X(type, op, params, args) type gpu_##op(const struct gpu_vendor *v, GPU_BARE params);
GPU_OPS(X)
#undef X
#define X(op, type, arg) void gpu_##op(const struct gpu_vendor *v, type arg);
GPU_VOID_OPS(X)
#undef X

/*
 * In cuda.c and hip.c: GPU_OPS(X) with X(...) as DEFINE_GPU_OP(cuda, ...) makes the static functions
 * cuda_<operation>, which pass cuda_vendor on; likewise GPU_VOID_OPS. The tables name them.
 */
#define DEFINE_GPU_OP(vendor, type, op, params, args)             \
	static type vendor##_##op params                          \
	{                                                         \
		return gpu_##op(&vendor##_vendor, GPU_BARE args); \
	}
#define DEFINE_GPU_VOID_OP(vendor, op, type, arg) \
	static void vendor##_##op(type arg)       \
	{                                         \
		gpu_##op(&vendor##_vendor, arg);  \
	}

#define GPU_VMM_OPS(vendor)                                                       \
	{                                                                         \
		.granularity = vendor##_granularity, .reserve = vendor##_reserve, \
		.unreserve = vendor##_unreserve, .commit = vendor##_commit,       \
		.decommit = vendor##_decommit, .import = vendor##_import_at       \
	}
#define GPU_DMABUF_OPS(vendor)          \
	{                               \
		.name = vendor##_dmabuf \
	}
#define GPU_WORD_OPS(vendor)                                                           \
	{                                                                              \
		.check = vendor##_words_check, .stream_create = vendor##_words_stream, \
		.write = vendor##_word_write, .wait = vendor##_word_wait               \
	}
#define GPU_HOLD_OPS(vendor)                                   \
	{                                                      \
		.begin = vendor##_hold, .end = vendor##_let_go \
	}
#define GPU_IPC_OPS(vendor)                                                         \
	{                                                                           \
		.export_memory = vendor##_export, .import_memory = vendor##_import, \
		.release = vendor##_release                                         \
	}
/* What a struct backend has but for its name, load and groups. */
#define GPU_TABLE(vendor)                                                                   \
	.count = vendor##_count, .describe = vendor##_describe, .enter = vendor##_enter,    \
	.leave = vendor##_leave, .open = vendor##_open, .close = vendor##_close,            \
	.peer_check = vendor##_peer_check, .peer_enable = vendor##_peer_enable,             \
	.alloc = vendor##_alloc, .free = vendor##_free, .retire = vendor##_retire,          \
	.host_alloc = vendor##_host_alloc, .host_free = vendor##_host_free,                 \
	.stream_create = vendor##_stream_create, .stream_destroy = vendor##_stream_destroy, \
	.stream_query = vendor##_stream_query, .stream_sync = vendor##_stream_sync,         \
	.stream_id = vendor##_stream_id, .event_create = vendor##_event_create,             \
	.event_destroy = vendor##_event_destroy, .event_record = vendor##_event_record,     \
	.event_query = vendor##_event_query, .event_sync = vendor##_event_sync,             \
	.stream_wait_event = vendor##_stream_wait_event, .copy = vendor##_copy,             \
	.fill = vendor##_fill, .call = vendor##_call, .launch = vendor##_launch,            \
	.capturing = vendor##_capturing

#endif
