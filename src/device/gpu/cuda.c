/* SPDX-License-Identifier: MIT */
/* NVIDIA through the driver API: finding it, devices, the thread's contexts, peers. */
#include "cuda_state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/process.h"
#include "src/base/status.h"

static struct {
	void *_Atomic slot;
	/* the driver was initialised here or in the process that forked this one */
	bool _Atomic entered;
} cuda;

#define X(field, symbol, args) { #symbol, offsetof(struct cuda_api, field), false },
#define Y(field, symbol, args) { #symbol, offsetof(struct cuda_api, field), true },
static const struct vendor_symbol cuda_symbols[] = { CUDA_REQUIRED(X) CUDA_OPTIONAL(Y) };
#undef X
#undef Y

static const char *const cuda_library_names[] = { "libcuda.so.1" };

static int cuda_code_of(cu_result result)
{
	switch ((int)result) {
	case CU_INVALID_VALUE:
	case CU_INVALID_CONTEXT:
	case CU_INVALID_HANDLE:
		return -EINVAL;
	case CU_NO_MEMORY:
		return -ENOMEM;
	case CU_NOT_INITIALIZED:
	case CU_NO_DEVICE:
	case CU_INVALID_DEVICE:
		return -ENODEV;
	case CU_PEER_UNSUPPORTED:
	case CU_TOO_MANY_PEERS:
	case CU_NOT_PERMITTED:
		return -EACCES;
	case CU_NOT_FOUND:
		return -ENOENT;
	case CU_NOT_SUPPORTED:
		return -ENOTSUP;
	default:
		return -EIO;
	}
}

int cuda_fail(cu_result result, const char *fmt, ...)
{
	const struct cuda_state *state = atomic_load(&cuda.slot);
	const char *name = NULL, *text = NULL;
	char words[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	if (state && state->api.GetErrorName) {
		state->api.GetErrorName(result, &name);
		state->api.GetErrorString(result, &text);
	}
	return fail(cuda_code_of(result), "cuda: %s: %s (%d): %s", words, name ? name : "error",
		(int)result, text ? text : "no text");
}

struct cuda_state *cuda_state(void)
{
	struct cuda_state *state = atomic_load_explicit(&cuda.slot, memory_order_acquire);

	if (LIKELY(state && state->loaded))
		return state;
	fail(-ENODEV,
		"cuda: the driver is not loaded in this process (a forked child has no devices)");
	return NULL;
}

struct cuda_device *cuda_device(int dev, const char *what)
{
	struct cuda_state *state = cuda_state();

	if (!state)
		return NULL;
	if (dev >= 0 && dev < state->count)
		return &state->devices[dev];
	fail(-ENODEV, "cuda: %s: no device %d, there are %d", what, dev, state->count);
	return NULL;
}

/* ---- load */

static int find_driver(struct cuda_state *state)
{
	char reason[VENDOR_REASON];
	const char *missing;
	const struct env *env;
	void *library;
	int rc = env_get(&env);

	if (rc < 0)
		return rc;
	library = vendor_open(
		env->cuda_lib, cuda_library_names, ARRAY_SIZE(cuda_library_names), reason);
	if (!library)
		return fail(
			-ENODEV, "cuda: no NVIDIA driver (SPMT_CUDA_LIB may name it): %s", reason);
	missing = vendor_bind(library, cuda_symbols, ARRAY_SIZE(cuda_symbols), &state->api);
	if (missing)
		return fail(-ENOSYS,
			"cuda: the driver is too old: it lacks %s (SPMT_CUDA_LIB may name another)",
			missing);
	return 0;
}

static int cuda_find_device(struct cuda_state *state, int dev)
{
	struct cuda_device *d = &state->devices[dev];
	int major = 0, minor = 0, vmm = 0, fds = 0;
	cu_result r = state->api.DeviceGet(&d->handle, dev);

	if (r == CU_OK)
		r = state->api.DeviceGetAttribute(&major, CU_ATTR_MAJOR, d->handle);
	if (r == CU_OK)
		r = state->api.DeviceGetAttribute(&minor, CU_ATTR_MINOR, d->handle);
	if (r != CU_OK)
		return cuda_fail(r, "asking about device %d", dev);
	/* Attributes younger than the driver are errors: the feature is not there. */
	if (state->api.DeviceGetAttribute(&vmm, CU_ATTR_VMM, d->handle) != CU_OK)
		vmm = 0;
	if (state->api.DeviceGetAttribute(&fds, CU_ATTR_FD, d->handle) != CU_OK)
		fds = 0;
	d->kept.backend = "cuda";
	d->kept.dev = dev;
	snprintf(d->kept.arch, sizeof(d->kept.arch), "sm_%d%d", major, minor);
	d->vmm = vmm && state->api.MemCreate && state->api.MemMap && state->api.MemSetAccess &&
		state->api.MemAddressReserve && state->api.MemAddressFree && state->api.MemUnmap &&
		state->api.MemRelease && state->api.MemGranularity;
	d->fds = fds && state->api.MemExport && state->api.MemImport;
	return 0;
}

static int cuda_find_devices(struct cuda_state *state)
{
	int count = 0, rc = 0, i;
	cu_result r;

	atomic_store(&cuda.entered, true);
	state->entered = true;
	r = state->api.Init(0);
	if (r == CU_OK)
		r = state->api.DeviceGetCount(&count);
	if (r != CU_OK)
		return cuda_fail(r, "no devices: starting the driver");
	if (count < 1)
		return fail(
			-ENODEV, "cuda: no devices: the driver finds none (CUDA_VISIBLE_DEVICES)");
	state->devices = process_pages((size_t)count * sizeof(*state->devices));
	if (!state->devices)
		return fail(-ENOMEM, "cuda: no memory for %d devices", count);
	for (i = 0; i < count && !rc; i++)
		rc = cuda_find_device(state, i);
	if (rc < 0) {
		process_pages_free(state->devices, (size_t)count * sizeof(*state->devices));
		state->devices = NULL;
		return rc;
	}
	state->count = count;
	return 0;
}

static int cuda_load_once(struct cuda_state *state)
{
	int rc;

	if (state->loaded)
		return 0;
	if (state->verdict)
		return fail_with(state->verdict, state->sentence);
	if (atomic_load(&cuda.entered) && !state->entered)
		rc = fail(-ENODEV, "cuda: no devices in a process forked from one that uses them");
	else
		rc = find_driver(state);
	if (!rc)
		rc = cuda_find_devices(state);
	state->loaded = !rc;
	if (rc < 0 && rc != -ENOMEM) {
		state->verdict = rc;
		snprintf(state->sentence, sizeof(state->sentence), "%s", status_sentence());
	}
	return rc;
}

static int cuda_load(void)
{
	struct cuda_state *state = process_state(&cuda.slot, sizeof(*state));
	int rc;

	if (!state)
		return fail(-ENOMEM, "cuda: no memory for the backend's state");
	pthread_mutex_lock(&state->lock);
	rc = cuda_load_once(state);
	pthread_mutex_unlock(&state->lock);
	return rc;
}

static int cuda_count(int *n)
{
	const struct cuda_state *state = cuda_state();

	if (!state)
		return -ENODEV;
	*n = state->count;
	return 0;
}

static int cuda_describe(int dev, struct device_desc *desc)
{
	struct cuda_device *d = cuda_device(dev, "describe");
	struct device_desc out = { .ordinal = dev, .numa = -1 };
	const struct cuda_api *api;
	size_t memory = 0;
	cu_uuid uuid;
	cu_result r;

	if (!d)
		return -ENODEV;
	api = &cuda_state()->api;
	r = api->DeviceGetName(out.name, (int)sizeof(out.name), d->handle);
	if (r == CU_OK)
		r = api->DeviceTotalMem(&memory, d->handle);
	if (r == CU_OK)
		r = api->DeviceGetAttribute(&out.units, CU_ATTR_UNITS, d->handle);
	if (r != CU_OK)
		return cuda_fail(r, "asking about device %d", dev);
	out.memory = memory;
	memcpy(out.arch, d->kept.arch, sizeof(out.arch));
	if (api->DeviceGetPCIBusId(out.pci, (int)sizeof(out.pci), d->handle) != CU_OK)
		out.pci[0] = '\0';
	if (api->DeviceGetUuid(&uuid, d->handle) == CU_OK)
		memcpy(out.uuid, &uuid, sizeof(out.uuid));
	vendor_lower(out.pci);
	if (out.pci[0])
		out.numa = vendor_numa(out.pci);
	*desc = out;
	return 0;
}

/* ---- the thread's context stack */

static void cuda_capture_mode(const struct cuda_api *api, cu_capture_mode *mode)
{
	if (api->CaptureMode && api->CaptureMode(mode) != CU_OK)
		*mode = CU_CAPTURE_RELAXED;
}

/* While we are in the driver: relaxed, because a capture that the application runs elsewhere must
   not be broken by our calls; and no cancellation, which the driver's own system calls would take. */
int cuda_bind_context(struct cuda_bound *bound, int dev, const char *what)
{
	const struct cuda_api *api;
	cu_result r;

	bound->state = cuda_state();
	api = bound->api = &bound->state->api;
	bound->device = &bound->state->devices[dev];
	bound->dev = dev;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &bound->cancel);
	r = api->CtxPush(bound->device->context);
	if (r != CU_OK) {
		pthread_setcancelstate(bound->cancel, NULL);
		return cuda_fail(r, "%s: entering device %d", what, dev);
	}
	bound->mode = CU_CAPTURE_RELAXED;
	cuda_capture_mode(api, &bound->mode);
	return 0;
}

int cuda_bind(struct cuda_bound *bound, int dev, const char *what)
{
	struct cuda_device *d = cuda_device(dev, what);

	if (!d)
		return -ENODEV;
	if (!d->kept.open)
		return fail(-EINVAL, "cuda: %s: device %d is not open", what, dev);
	return cuda_bind_context(bound, dev, what);
}

int cuda_bind_for(struct cuda_bound *bound, int dev, enum fault_site site, const char *what)
{
	int rc = vendor_fault(site, "cuda", what, dev);

	return rc < 0 ? rc : cuda_bind(bound, dev, what);
}

int cuda_bind_stream(struct cuda_bound *bound, int dev, device_stream s, const char *what)
{
	if (!s)
		return fail(-EINVAL, "cuda: %s: no stream given on device %d", what, dev);
	return cuda_bind_for(bound, dev, FAULT_DEVICE, what);
}

void cuda_unbind(const struct cuda_bound *bound)
{
	cu_capture_mode mode = bound->mode;
	cu_context context;

	cuda_capture_mode(bound->api, &mode);
	bound->api->CtxPop(&context);
	pthread_setcancelstate(bound->cancel, NULL);
}

int cuda_done(const struct cuda_bound *bound, cu_result result, const char *what)
{
	cuda_unbind(bound);
	if (LIKELY(result == CU_OK))
		return 0;
	return cuda_fail(result, "%s on device %d", what, bound->dev);
}

static int cuda_enter(int dev, struct device_saved *saved)
{
	struct device_saved out = { .ordinal = -1 };
	struct cuda_device *d = cuda_device(dev, "enter");
	const struct cuda_api *api;
	cu_context context = NULL;
	cu_device was;
	cu_result r;

	if (!d)
		return -ENODEV;
	if (!d->kept.open)
		return fail(-EINVAL, "cuda: enter: device %d is not open", dev);
	api = &cuda_state()->api;
	r = api->CtxGetCurrent(&context);
	if (r == CU_OK && context && api->CtxGetDevice(&was) == CU_OK)
		out.ordinal = (int)was;
	if (r == CU_OK)
		r = api->CtxPush(d->context);
	if (r != CU_OK)
		return cuda_fail(r, "entering device %d", dev);
	out.context = context;
	*saved = out;
	return 0;
}

/* What lies on top may be another context than enter's: whoever set it replaced ours, so the
   depth is right. */
static void cuda_leave(const struct device_saved *saved)
{
	const struct cuda_state *state = atomic_load(&cuda.slot);
	cu_context context;

	(void)saved;
	if (state && state->loaded)
		state->api.CtxPop(&context);
}

/* ---- peers */

static int cuda_peer_check(int from, int to, char reason[DEVICE_REASON])
{
	const struct cuda_state *state = atomic_load(&cuda.slot);
	int can = 0, access = 0, atomics = 0;
	cu_device a, b;
	cu_result r;

	if (!state || !state->loaded || from < 0 || to < 0 || from >= state->count ||
		to >= state->count) {
		snprintf(reason, DEVICE_REASON, "no devices %d and %d", from, to);
		return -ENODEV;
	}
	if (from == to)
		return 0;
	a = state->devices[from].handle;
	b = state->devices[to].handle;
	r = state->api.DeviceCanAccessPeer(&can, a, b);
	if (r == CU_OK)
		r = state->api.DeviceGetP2PAttribute(&access, CU_P2P_ACCESS, a, b);
	if (r == CU_OK)
		r = state->api.DeviceGetP2PAttribute(&atomics, CU_P2P_ATOMICS, a, b);
	if (r == CU_OK && can && access && atomics)
		return 0;
	if (r != CU_OK)
		snprintf(reason, DEVICE_REASON, "the driver cannot say (%d)", (int)r);
	else if (!can || !access)
		snprintf(reason, DEVICE_REASON, "the driver grants device %d no access to %d", from,
			to);
	else
		snprintf(reason, DEVICE_REASON, "atomics of device %d do not reach %d", from, to);
	return r == CU_OK ? -EACCES : cuda_code_of(r);
}

static int cuda_peer_enable(int from, int to)
{
	struct cuda_device *peer = cuda_device(to, "peer_enable");
	struct cuda_bound b;
	cu_result r;
	int rc;

	if (!peer)
		return -ENODEV;
	if (!peer->kept.open)
		return fail(-EINVAL, "cuda: peer_enable: device %d is not open", to);
	if (from == to)
		return 0;
	rc = cuda_bind_for(&b, from, FAULT_PEER, "peer_enable");
	if (rc < 0)
		return rc;
	r = b.api->CtxEnablePeerAccess(peer->context, 0);
	cuda_unbind(&b);
	if (r == CU_OK || r == CU_PEER_ENABLED)
		return 0;
	return cuda_fail(r, "access of device %d to %d", from, to);
}

const struct backend backend_cuda = {
	.name = "cuda",
	.traits = 0,
	.store_threshold = 1 << 20,
	.load = cuda_load,
	.count = cuda_count,
	.describe = cuda_describe,
	.enter = cuda_enter,
	.leave = cuda_leave,
	.open = cuda_open,
	.close = cuda_close,
	.peer_check = cuda_peer_check,
	.peer_enable = cuda_peer_enable,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.retire = cuda_retire,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_query = cuda_stream_query,
	.stream_sync = cuda_stream_sync,
	.stream_id = cuda_stream_id,
	.event_create = cuda_event_create,
	.event_destroy = cuda_event_destroy,
	.event_record = cuda_event_record,
	.event_query = cuda_event_query,
	.event_sync = cuda_event_sync,
	.stream_wait_event = cuda_stream_wait_event,
	.copy = cuda_copy,
	.fill = cuda_fill,
	.call = cuda_call,
	.launch = cuda_launch,
	.capturing = cuda_capturing,
	.vmm = &cuda_vmm_ops,
	.ipc = &cuda_ipc_ops,
};
