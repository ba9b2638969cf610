/* SPDX-License-Identifier: MIT */
/* AMD through libamdhip64, versions 5 to 7: finding it, devices, the thread's state, peers. */
#include "hip_state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/process.h"
#include "src/base/status.h"

static struct {
	void *_Atomic slot;
	/* the runtime was initialised here or in the process that forked this one */
	bool _Atomic entered;
} hip;

#define X(field, symbol, args) { #symbol, offsetof(struct hip_api, field), false },
#define Y(field, symbol, args) { #symbol, offsetof(struct hip_api, field), true },
static const struct vendor_symbol hip_symbols[] = { HIP_REQUIRED(X) HIP_TEXTS(X) HIP_OPTIONAL(Y)
		HIP_PROPS(Y) };
#undef X
#undef Y

static const char *const hip_library_names[] = { "libamdhip64.so.7", "libamdhip64.so.6",
	"libamdhip64.so.5" };

static int hip_code_of(hip_result result)
{
	switch ((int)result) {
	case HIP_INVALID_VALUE:
	case HIP_INVALID_CONTEXT:
	case HIP_INVALID_HANDLE:
		return -EINVAL;
	case HIP_NO_MEMORY:
		return -ENOMEM;
	case HIP_NOT_INITIALIZED:
	case HIP_NO_DEVICE:
	case HIP_INVALID_DEVICE:
		return -ENODEV;
	case HIP_PEER_UNSUPPORTED:
		return -EACCES;
	case HIP_NOT_FOUND:
		return -ENOENT;
	case HIP_NOT_SUPPORTED:
		return -ENOTSUP;
	default:
		return -EIO;
	}
}

int hip_fail(hip_result result, const char *fmt, ...)
{
	const struct hip_state *state = atomic_load(&hip.slot);
	const char *name = NULL, *text = NULL;
	char words[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	if (state && state->api.GetErrorName) {
		name = state->api.GetErrorName(result);
		text = state->api.GetErrorString(result);
	}
	return fail(hip_code_of(result), "hip: %s: %s (%d): %s", words, name ? name : "error",
		(int)result, text ? text : "no text");
}

struct hip_state *hip_state(void)
{
	struct hip_state *state = atomic_load_explicit(&hip.slot, memory_order_acquire);

	if (LIKELY(state && state->loaded))
		return state;
	fail(-ENODEV,
		"hip: the runtime is not loaded in this process (a forked child has no devices)");
	return NULL;
}

struct hip_device *hip_device(int dev, const char *what)
{
	struct hip_state *state = hip_state();

	if (!state)
		return NULL;
	if (dev >= 0 && dev < state->count)
		return &state->devices[dev];
	fail(-ENODEV, "hip: %s: no device %d, there are %d", what, dev, state->count);
	return NULL;
}

/* ---- the thread's device and last error */

/*
 * Up to version 6 every call overwrites the thread's last error, with success too. What can be had
 * by a harmless wrong call is put back that way. Later versions keep an error until it is asked
 * for, and then only our own are cleared.
 */
static void put_back_error(const struct hip_api *api, hip_result want)
{
	if (LIKELY(api->PeekAtLastError() == want))
		return;
	api->GetLastError();
	if (want == HIP_INVALID_VALUE)
		api->GetDevice(NULL);
	else if (want == HIP_INVALID_DEVICE)
		api->SetDevice(-1);
}

/* While we are in the runtime: relaxed, because a capture that the application runs elsewhere must
   not be broken by our calls; and no cancellation, which its own system calls would take. */
static void capture_mode(const struct hip_api *api, hip_capture_mode *mode)
{
	if (api->CaptureMode && api->CaptureMode(mode) != HIP_OK)
		*mode = HIP_CAPTURE_RELAXED;
}

int hip_bind_closed(struct hip_bound *bound, int dev, const char *what)
{
	struct hip_device *d = hip_device(dev, what);
	const struct hip_api *api;
	hip_result r = HIP_OK;

	if (!d)
		return -ENODEV;
	bound->state = hip_state();
	bound->api = api = &bound->state->api;
	bound->device = d;
	bound->dev = dev;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &bound->cancel);
	bound->last = api->PeekAtLastError();
	if (api->GetDevice(&bound->was) != HIP_OK)
		bound->was = -1;
	if (bound->was != dev)
		r = api->SetDevice(dev);
	if (r != HIP_OK) {
		put_back_error(api, bound->last);
		pthread_setcancelstate(bound->cancel, NULL);
		return hip_fail(r, "%s: entering device %d", what, dev);
	}
	bound->mode = HIP_CAPTURE_RELAXED;
	capture_mode(api, &bound->mode);
	return 0;
}

int hip_bind(struct hip_bound *bound, int dev, const char *what)
{
	struct hip_device *d = hip_device(dev, what);

	if (!d)
		return -ENODEV;
	if (!d->kept.open)
		return fail(-EINVAL, "hip: %s: device %d is not open", what, dev);
	return hip_bind_closed(bound, dev, what);
}

int hip_bind_for(struct hip_bound *bound, int dev, enum fault_site site, const char *what)
{
	int rc = vendor_fault(site, "hip", what, dev);

	return rc < 0 ? rc : hip_bind(bound, dev, what);
}

int hip_bind_stream(struct hip_bound *bound, int dev, device_stream s, const char *what)
{
	if (!s)
		return fail(-EINVAL, "hip: %s: no stream given on device %d", what, dev);
	return hip_bind_for(bound, dev, FAULT_DEVICE, what);
}

void hip_unbind(const struct hip_bound *bound)
{
	hip_capture_mode mode = bound->mode;

	capture_mode(bound->api, &mode);
	if (bound->was >= 0 && bound->was != bound->dev)
		bound->api->SetDevice(bound->was);
	put_back_error(bound->api, bound->last);
	pthread_setcancelstate(bound->cancel, NULL);
}

int hip_done(const struct hip_bound *bound, hip_result result, const char *what)
{
	hip_unbind(bound);
	if (LIKELY(result == HIP_OK))
		return 0;
	return hip_fail(result, "%s on device %d", what, bound->dev);
}

static int hip_enter(int dev, struct device_saved *saved)
{
	struct device_saved out = { .ordinal = -1 };
	struct hip_device *d = hip_device(dev, "enter");
	const struct hip_api *api;
	hip_result r;

	if (!d)
		return -ENODEV;
	if (!d->kept.open)
		return fail(-EINVAL, "hip: enter: device %d is not open", dev);
	api = &hip_state()->api;
	out.error = (int)api->PeekAtLastError();
	if (api->GetDevice(&out.ordinal) != HIP_OK)
		out.ordinal = -1;
	r = api->SetDevice(dev);
	put_back_error(api, (hip_result)out.error);
	if (r != HIP_OK)
		return hip_fail(r, "entering device %d", dev);
	*saved = out;
	return 0;
}

/* The last error is then what came of the calls between enter and leave, which are not ours. */
static void hip_leave(const struct device_saved *saved)
{
	const struct hip_state *state = atomic_load(&hip.slot);
	hip_result last;

	if (!state || !state->loaded || saved->ordinal < 0)
		return;
	last = state->api.PeekAtLastError();
	state->api.SetDevice(saved->ordinal);
	put_back_error(&state->api, last);
}

/* ---- load */

static int find_runtime(struct hip_state *state)
{
	char reason[VENDOR_REASON];
	const char *missing;
	const struct env *env;
	void *library;
	int rc = env_get(&env);

	if (rc < 0)
		return rc;
	/* Not even loaded where there is no AMD driver: the runtime leaks a little a thread even
	   then. */
	if (!env->hip_lib && access("/dev/kfd", R_OK | W_OK))
		return fail_errno(
			errno, "hip: no devices: /dev/kfd (the driver amdgpu, the group render)");
	library =
		vendor_open(env->hip_lib, hip_library_names, ARRAY_SIZE(hip_library_names), reason);
	if (!library)
		return fail(-ENODEV, "hip: no HIP runtime (SPMT_HIP_LIB may name it): %s", reason);
	missing = vendor_bind(library, hip_symbols, ARRAY_SIZE(hip_symbols), &state->api);
	if (missing)
		return fail(-ENOSYS,
			"hip: the runtime is too old: it lacks %s (SPMT_HIP_LIB may name another)",
			missing);
	return 0;
}

/* The one field of the properties that no attribute gives; the struct and its symbol have
   changed with version 6. */
static void find_arch(const struct hip_api *api, int dev, char *arch, size_t size)
{
	char props[HIP_PROPS_SIZE] = "";
	size_t at = 0;

	if (api->GetPropsR0600 && api->GetPropsR0600(props, dev) == HIP_OK)
		at = HIP_ARCH_AT_R0600;
	else if (!api->GetPropsR0600 && api->GetProps && api->GetProps(props, dev) == HIP_OK)
		at = HIP_ARCH_AT_OLD;
	props[at + size - 1] = '\0';
	/* gfx942:sramecc+:xnack-: an image without features runs with any. */
	snprintf(arch, size, "%.*s", (int)strcspn(props + at, ":"), at ? props + at : "unknown");
}

static void hip_find_device(struct hip_state *state, int dev)
{
	struct hip_device *d = &state->devices[dev];

	d->kept.backend = "hip";
	d->kept.dev = dev;
	find_arch(&state->api, dev, d->kept.arch, sizeof(d->kept.arch));
	d->vmm = HIP_VMM_UNASKED;
}

static int hip_find_devices(struct hip_state *state)
{
	int count = 0, i;
	hip_result r;

	atomic_store(&hip.entered, true);
	state->entered = true;
	r = state->api.Init(0);
	if (r == HIP_OK)
		r = state->api.RuntimeGetVersion(&state->version);
	if (r == HIP_OK)
		r = state->api.GetDeviceCount(&count);
	if (r != HIP_OK)
		return hip_fail(r, "no devices: starting the runtime");
	if (count < 1)
		return fail(
			-ENODEV, "hip: no devices: the runtime finds none (HIP_VISIBLE_DEVICES)");
	state->devices = process_pages((size_t)count * sizeof(*state->devices));
	if (!state->devices)
		return fail(-ENOMEM, "hip: no memory for %d devices", count);
	for (i = 0; i < count; i++)
		hip_find_device(state, i);
	state->count = count;
	return 0;
}

/* The thread's last error is put back only where there was a runtime before: the first Init is
   the process's own start. */
static int hip_load_once(struct hip_state *state)
{
	int rc;

	if (state->loaded)
		return 0;
	if (state->verdict)
		return fail_with(state->verdict, state->sentence);
	if (atomic_load(&hip.entered) && !state->entered)
		rc = fail(-ENODEV, "hip: no devices in a process forked from one that uses them");
	else
		rc = find_runtime(state);
	if (!rc) {
		hip_result last = state->api.PeekAtLastError();

		rc = hip_find_devices(state);
		put_back_error(&state->api, last);
	}
	state->loaded = !rc;
	if (rc < 0 && rc != -ENOMEM) {
		state->verdict = rc;
		snprintf(state->sentence, sizeof(state->sentence), "%s", status_sentence());
	}
	return rc;
}

static int hip_load(void)
{
	struct hip_state *state = process_state(&hip.slot, sizeof(*state));
	int rc;

	if (!state)
		return fail(-ENOMEM, "hip: no memory for the backend's state");
	pthread_mutex_lock(&state->lock);
	rc = hip_load_once(state);
	pthread_mutex_unlock(&state->lock);
	return rc;
}

static int hip_count(int *n)
{
	const struct hip_state *state = hip_state();

	if (!state)
		return -ENODEV;
	*n = state->count;
	return 0;
}

/* Where the driver knows no number of the device its UUID is "XX", as that of any other such device;
   then its place on the bus, in lower case, tells it from the machine's others. */
static void find_uuid(const struct hip_api *api, struct device_desc *desc)
{
	hip_uuid uuid;

	memcpy(desc->uuid, desc->pci, sizeof(desc->uuid));
	if (api->DeviceGetUuid && api->DeviceGetUuid(&uuid, desc->ordinal) == HIP_OK &&
		memcmp(&uuid, "XX", sizeof("XX")))
		memcpy(desc->uuid, &uuid, sizeof(desc->uuid));
}

static int hip_describe(int dev, struct device_desc *desc)
{
	struct device_desc out = { .ordinal = dev, .numa = -1 };
	char pci[sizeof(out.pci)] = "";
	struct hip_bound b;
	size_t memory = 0;
	hip_result r;
	int rc = hip_bind_closed(&b, dev, "describe");

	if (rc < 0)
		return rc;
	r = b.api->DeviceGetName(out.name, (int)sizeof(out.name), dev);
	if (r == HIP_OK)
		r = b.api->DeviceTotalMem(&memory, dev);
	if (r == HIP_OK)
		r = b.api->DeviceGetAttribute(&out.units, HIP_ATTR_UNITS, dev);
	if (b.api->DeviceGetPCIBusId(pci, (int)sizeof(pci), dev) == HIP_OK)
		snprintf(out.pci, sizeof(out.pci), "%s", pci);
	vendor_lower(out.pci);
	find_uuid(b.api, &out);
	hip_unbind(&b);
	if (r != HIP_OK)
		return hip_fail(r, "asking about device %d", dev);
	out.memory = memory;
	memcpy(out.arch, b.device->kept.arch, sizeof(out.arch));
	if (out.pci[0])
		out.numa = vendor_numa(out.pci);
	*desc = out;
	return 0;
}

/* ---- peers */

static int hip_peer_check(int from, int to, char reason[DEVICE_REASON])
{
	const struct hip_state *state = atomic_load(&hip.slot);
	int can = 0, access = 0, atomics = 0;
	hip_result r, last;

	if (!state || !state->loaded || from < 0 || to < 0 || from >= state->count ||
		to >= state->count) {
		snprintf(reason, DEVICE_REASON, "no devices %d and %d", from, to);
		return -ENODEV;
	}
	if (from == to)
		return 0;
	last = state->api.PeekAtLastError();
	r = state->api.DeviceCanAccessPeer(&can, from, to);
	if (r == HIP_OK)
		r = state->api.DeviceGetP2PAttribute(&access, HIP_P2P_ACCESS, from, to);
	if (r == HIP_OK)
		r = state->api.DeviceGetP2PAttribute(&atomics, HIP_P2P_ATOMICS, from, to);
	put_back_error(&state->api, last);
	if (r == HIP_OK && can && access && atomics)
		return 0;
	if (r != HIP_OK)
		snprintf(reason, DEVICE_REASON, "the runtime cannot say (%d)", (int)r);
	else if (!can || !access)
		snprintf(reason, DEVICE_REASON, "the runtime grants device %d no access to %d",
			from, to);
	else
		snprintf(reason, DEVICE_REASON, "atomics of device %d do not reach %d", from, to);
	return r == HIP_OK ? -EACCES : hip_code_of(r);
}

static int hip_peer_enable(int from, int to)
{
	struct hip_bound b;
	hip_result r;
	int rc;

	if (!hip_device(to, "peer_enable"))
		return -ENODEV;
	if (from == to)
		return 0;
	rc = hip_bind_for(&b, from, FAULT_PEER, "peer_enable");
	if (rc < 0)
		return rc;
	r = b.api->DeviceEnablePeerAccess(to, 0);
	hip_unbind(&b);
	if (r == HIP_OK || r == HIP_PEER_ENABLED)
		return 0;
	return hip_fail(r, "access of device %d to %d", from, to);
}

const struct backend backend_hip = {
	.name = "hip",
	.traits = 0,
	.store_threshold = 1 << 20,
	.load = hip_load,
	.count = hip_count,
	.describe = hip_describe,
	.enter = hip_enter,
	.leave = hip_leave,
	.open = hip_open,
	.close = hip_close,
	.peer_check = hip_peer_check,
	.peer_enable = hip_peer_enable,
	.alloc = hip_alloc,
	.free = hip_free,
	.retire = hip_retire,
	.host_alloc = hip_host_alloc,
	.host_free = hip_host_free,
	.stream_create = hip_stream_create,
	.stream_destroy = hip_stream_destroy,
	.stream_query = hip_stream_query,
	.stream_sync = hip_stream_sync,
	.stream_id = hip_stream_id,
	.event_create = hip_event_create,
	.event_destroy = hip_event_destroy,
	.event_record = hip_event_record,
	.event_query = hip_event_query,
	.event_sync = hip_event_sync,
	.stream_wait_event = hip_stream_wait_event,
	.copy = hip_copy,
	.fill = hip_fill,
	.call = hip_call,
	.launch = hip_launch,
	.capturing = hip_capturing,
	.vmm = &hip_vmm_ops,
	.ipc = &hip_ipc_ops,
};
