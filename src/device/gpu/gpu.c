/* SPDX-License-Identifier: MIT */
/* Loading a vendor's library, its devices and their peers. */
#include "gpu.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bind.h"
#include "include/spmt.h"
#include "ops.h"
#include "src/base/process.h"
#include "src/base/status.h"

static int gpu_code_of(int result)
{
	switch (result) {
	case GPU_INVALID_VALUE:
	case GPU_INVALID_CONTEXT:
	case GPU_INVALID_HANDLE:
		return -EINVAL;
	case GPU_NO_MEMORY:
		return -ENOMEM;
	case GPU_NOT_INITIALIZED:
	case GPU_NO_DEVICE:
	case GPU_INVALID_DEVICE:
		return -ENODEV;
	case GPU_PEER_UNSUPPORTED:
	case GPU_TOO_MANY_PEERS:
	case GPU_NOT_PERMITTED:
		return -EACCES;
	case GPU_NOT_FOUND:
		return -ENOENT;
	case GPU_NOT_SUPPORTED:
		return SPMT_ERR_UNSUPPORTED;
	default:
		return -EIO;
	}
}

int gpu_fail(const struct gpu_vendor *v, int result, const char *fmt, ...)
{
	const struct gpu_state *state = atomic_load(&v->root->slot);
	const char *name = NULL, *text = NULL;
	char words[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	if (state)
		v->texts(state, result, &name, &text);
	return fail(gpu_code_of(result), "%s: %s: %s (%d): %s", v->name, words,
		name ? name : "error", result, text ? text : "no text");
}

struct gpu_state *gpu_unloaded(const struct gpu_vendor *v)
{
	fail(-ENODEV, "%s: the %s is not loaded in this process (a forked child has no devices)",
		v->name, v->kind);
	return NULL;
}

struct gpu_device *gpu_device(const struct gpu_vendor *v, int dev, const char *what)
{
	struct gpu_state *state = gpu_state(v);

	if (!state)
		return NULL;
	if (dev >= 0 && dev < state->count)
		return &state->devices[dev];
	fail(-ENODEV, "%s: %s: no device %d, there are %d", v->name, what, dev, state->count);
	return NULL;
}

/* ---- load */

int gpu_bind_library(const struct gpu_vendor *v, const char *path, void *api)
{
	char reason[VENDOR_REASON];
	const char *missing;
	void *library;
	int rc = vendor_open(path, v->libraries, v->library_count, reason, &library);

	if (is_shortage(rc))
		return fail(rc, "%s: no memory or descriptors for the %s: %s", v->name, v->kind,
			reason);
	if (rc < 0)
		return fail(-ENODEV, "%s: no %s (%s may name it): %s", v->name, v->product,
			v->variable, reason);
	missing = vendor_bind(library, v->symbols, v->symbol_count, api);
	if (missing)
		return fail(-ENOSYS, "%s: the %s is too old: it lacks %s (%s may name another)",
			v->name, v->kind, missing, v->variable);
	return 0;
}

static int find_device(const struct gpu_vendor *v, struct gpu_state *state, int dev)
{
	struct gpu_device *d = &state->devices[dev];
	int r;

	d->vendor = v;
	d->kept.backend = v->name;
	d->kept.dev = dev;
	r = v->find_device(state, d);
	if (r == GPU_OK)
		r = state->calls.DeviceGetAttribute(&d->units, v->attr_units, d->handle);
	return r == GPU_OK ? 0 : gpu_fail(v, r, "asking about device %d", dev);
}

static int find_devices(const struct gpu_vendor *v, struct gpu_state *state)
{
	int count = 0, rc = 0, r, i;

	atomic_store(&v->root->entered, true);
	state->entered = true;
	r = v->start(state, &count);
	if (r != GPU_OK) {
		rc = vendor_lacks_fd();
		return rc ? fail_errno(-rc, "%s: starting the %s", v->name, v->kind)
			  : gpu_fail(v, r, "no devices: starting the %s", v->kind);
	}
	if (count < 1)
		return fail(-ENODEV, "%s: no devices: the %s finds none (%s)", v->name, v->kind,
			v->visible);
	state->devices = process_pages((size_t)count * sizeof(*state->devices));
	if (!state->devices)
		return fail(-ENOMEM, "%s: no memory for %d devices", v->name, count);
	for (i = 0; i < count && !rc; i++)
		rc = find_device(v, state, i);
	if (rc < 0) {
		process_pages_free(state->devices, (size_t)count * sizeof(*state->devices));
		state->devices = NULL;
		return rc;
	}
	state->count = count;
	return 0;
}

/* The thread's last error is put back only where there was a runtime before: the first Init is
   the process's own start. */
static int load_once(const struct gpu_vendor *v, struct gpu_state *state)
{
	int rc;

	if (state->loaded)
		return 0;
	if (state->verdict)
		return fail_with(state->verdict, state->sentence);
	if (atomic_load(&v->root->entered) && !state->entered)
		rc = fail(-ENODEV, "%s: no devices in a process forked from one that uses them",
			v->name);
	else
		rc = v->find(state);
	if (!rc) {
		int last = gpu_last_error(v, state);

		rc = find_devices(v, state);
		gpu_put_back_error(v, state, last);
	}
	state->loaded = !rc;
	/* What the driver itself has said stays; a library may be there the next time. */
	if (rc < 0 && state->entered && !is_shortage(rc)) {
		state->verdict = rc;
		snprintf(state->sentence, sizeof(state->sentence), "%s", status_sentence());
	}
	return rc;
}

int gpu_load(const struct gpu_vendor *v)
{
	struct gpu_state *state = process_state(&v->root->slot, v->state_size);
	int rc;

	if (!state)
		return fail(-ENOMEM, "%s: no memory for the backend's state", v->name);
	pthread_mutex_lock(&state->lock);
	rc = load_once(v, state);
	pthread_mutex_unlock(&state->lock);
	return rc;
}

int gpu_count(const struct gpu_vendor *v, int *n)
{
	const struct gpu_state *state = gpu_state(v);

	if (!state)
		return -ENODEV;
	*n = state->count;
	return 0;
}

/* Where a driver knows no number of the device it is "XX", as that of any other such device; then
   its place on the bus, in lower case, tells it from the machine's others. */
static void find_uuid(const struct gpu_bound *b, struct device_desc *desc)
{
	const bool may_lack = b->vendor->uuid_may_lack;
	struct gpu_uuid uuid;

	if (may_lack)
		memcpy(desc->uuid, desc->pci, sizeof(desc->uuid));
	if (b->calls->DeviceGetUuid &&
		b->calls->DeviceGetUuid(&uuid, b->device->handle) == GPU_OK &&
		!(may_lack && !memcmp(&uuid, "XX", sizeof("XX"))))
		memcpy(desc->uuid, &uuid, sizeof(desc->uuid));
}

int gpu_describe(const struct gpu_vendor *v, int dev, struct device_desc *desc)
{
	struct device_desc out = { .ordinal = dev, .numa = -1 };
	char pci[sizeof(out.pci)] = "";
	struct gpu_bound b;
	size_t memory = 0;
	int handle, r, rc = gpu_bind_closed(&b, v, dev, "describe");

	if (rc < 0)
		return rc;
	handle = b.device->handle;
	r = b.calls->DeviceGetName(out.name, (int)sizeof(out.name), handle);
	if (r == GPU_OK)
		r = b.calls->DeviceTotalMem(&memory, handle);
	if (b.calls->DeviceGetPCIBusId(pci, (int)sizeof(pci), handle) == GPU_OK)
		snprintf(out.pci, sizeof(out.pci), "%s", pci);
	vendor_lower(out.pci);
	find_uuid(&b, &out);
	gpu_unbind(&b);
	if (r != GPU_OK)
		return gpu_fail(v, r, "asking about device %d", dev);
	out.units = b.device->units;
	out.memory = memory;
	memcpy(out.arch, b.device->kept.arch, sizeof(out.arch));
	if (out.pci[0])
		out.numa = vendor_numa(out.pci);
	*desc = out;
	return 0;
}

/* ---- peers */

struct peer_answers {
	int can, access, atomics;
};

static int ask_peer(const struct gpu_vendor *v, const struct gpu_state *state, int from, int to,
	struct peer_answers *out)
{
	const struct gpu_calls *calls = &state->calls;
	int a = state->devices[from].handle, b = state->devices[to].handle;
	int last = gpu_last_error(v, state), r;

	r = calls->DeviceCanAccessPeer(&out->can, a, b);
	if (r == GPU_OK)
		r = calls->DeviceGetP2PAttribute(&out->access, v->p2p_access, a, b);
	if (r == GPU_OK)
		r = calls->DeviceGetP2PAttribute(&out->atomics, v->p2p_atomics, a, b);
	gpu_put_back_error(v, state, last);
	return r;
}

int gpu_peer_check(const struct gpu_vendor *v, int from, int to, char reason[DEVICE_REASON])
{
	const struct gpu_state *state = atomic_load(&v->root->slot);
	struct peer_answers answers = { 0 };
	int r;

	if (!state || !state->loaded || from < 0 || to < 0 || from >= state->count ||
		to >= state->count) {
		snprintf(reason, DEVICE_REASON, "no devices %d and %d", from, to);
		return -ENODEV;
	}
	if (from == to)
		return 0;
	r = ask_peer(v, state, from, to, &answers);
	if (r == GPU_OK && answers.can && answers.access && answers.atomics)
		return 0;
	if (r != GPU_OK)
		snprintf(reason, DEVICE_REASON, "the %s cannot say (%d)", v->kind, r);
	else if (!answers.can || !answers.access)
		snprintf(reason, DEVICE_REASON, "the %s grants device %d no access to %d", v->kind,
			from, to);
	else
		snprintf(reason, DEVICE_REASON, "atomics of device %d do not reach %d", from, to);
	return r == GPU_OK ? -EACCES : gpu_code_of(r);
}

int gpu_peer_enable(const struct gpu_vendor *v, int from, int to)
{
	const struct gpu_device *peer = gpu_device(v, to, "peer_enable");
	struct gpu_bound b;
	int r, rc;

	if (!peer)
		return -ENODEV;
	if (v->contexts && !peer->kept.open)
		return fail(-EINVAL, "%s: peer_enable: device %d is not open", v->name, to);
	if (from == to)
		return 0;
	rc = gpu_bind_for(&b, v, from, FAULT_PEER, "peer_enable");
	if (rc < 0)
		return rc;
	r = v->peer_enable(&b, peer);
	gpu_unbind(&b);
	if (r == GPU_OK || r == GPU_PEER_ENABLED)
		return 0;
	return gpu_fail(v, r, "access of device %d to %d", from, to);
}
