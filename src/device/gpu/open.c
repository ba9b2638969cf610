/* SPDX-License-Identifier: MIT */
/* Opening devices. */
#include <errno.h>
#include <string.h>

#include "bind.h"
#include "ops.h"
#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/status.h"

static struct gpu_device *device_of(struct kept *k)
{
	return (struct gpu_device *)k;
}
_Static_assert(offsetof(struct gpu_device, kept) == 0, "device_of()");

/* Loaded now, all of them: a driver that loads a kernel at its first launch may wait for the
   device to be idle. */
static int find_kernel(void *ctx, const char *name, void **handle)
{
	const struct gpu_vendor *v = device_of(ctx)->vendor;
	const struct gpu_calls *calls = &gpu_state(v)->calls;
	const struct kept *k = ctx;
	int r = calls->ModuleGetFunction(handle, k->module, name);

	if (r == GPU_OK && calls->FuncLoad)
		r = calls->FuncLoad(*handle);
	return r == GPU_OK
		? 0
		: gpu_fail(v, r, "kernel '%s' of the image for %s", name, k->image->arch);
}

#define SLOW_NS 2000000000ll

/* Of text the driver compiles all kernels, or has kept what it compiled before: who waits for that is told why. */
static int load_module(struct kept *k, const struct gpu_calls *calls)
{
	int64_t begin = process_now(), took;
	int r = calls->ModuleLoadData(&k->module, k->image->data);

	took = process_now() - begin;
	if (r == GPU_OK && took > SLOW_NS && !strcmp(k->image->kind, "ptx"))
		log_line(LOG_WARN,
			"device %d: the driver took %.1f s to compile the kernels, as this library was built without ptxas for %s; where it keeps what it compiles, once",
			k->dev, (double)took / 1e9, k->arch);
	return r;
}

/* The device is current, as in what follows. */
static int load_image(struct kept *k)
{
	const struct gpu_vendor *v = device_of(k)->vendor;
	const struct gpu_calls *calls = &gpu_state(v)->calls;
	int rc, r = load_module(k, calls);

	if (r != GPU_OK)
		return gpu_fail(v, r, "loading the %s image of %s on %s", k->image->kind,
			k->image->arch, k->arch);
	rc = vendor_kernels_find(&k->kernels, v->whole_units, find_kernel, k);
	if (rc < 0)
		calls->ModuleUnload(k->module);
	return rc;
}

/* A driver that does not number buffers tells of no reset. */
static int mark_context(const struct gpu_bound *b, struct kept *k)
{
	void *marker = NULL;
	int r = b->calls->MemAlloc(&marker, 256);

	k->marker = (uintptr_t)marker;
	k->number = 0;
	if (r == GPU_OK && b->calls->PointerGetAttribute)
		r = b->calls->PointerGetAttribute(&k->number, GPU_BUFFER_ID, marker);
	if (marker && (r == GPU_INVALID_VALUE || r == GPU_NOT_SUPPORTED))
		r = GPU_OK;
	return r == GPU_OK ? 0 : gpu_fail(b->vendor, r, "marking device %d", k->dev);
}

static void unmake_kept(const struct gpu_bound *b, struct kept *k)
{
	if (k->module)
		b->calls->ModuleUnload(k->module);
	if (k->stream)
		b->calls->StreamDestroy(k->stream);
	if (k->marker)
		b->calls->MemFree((void *)k->marker);
	kept_forget(k);
}

static int make_kept(const struct gpu_vendor *v, struct kept *k)
{
	struct gpu_bound b;
	int r, rc = gpu_bind_context(&b, v, k->dev, "open");

	if (rc < 0)
		return rc;
	r = b.calls->StreamCreate(&k->stream, GPU_NON_BLOCKING);
	if (r != GPU_OK)
		rc = gpu_fail(v, r, "making a stream on device %d", k->dev);
	if (!rc)
		rc = kept_load(k, load_image);
	if (!rc)
		rc = mark_context(&b, k);
	if (rc < 0)
		unmake_kept(&b, k);
	gpu_unbind(&b);
	return rc;
}

/* 1: what was made for the device is still there; 0: it is not. After a reset nothing of that may
   be named to the driver again. */
static int still_there(const struct gpu_vendor *v, const struct kept *k)
{
	uint64_t number = 0;
	struct gpu_bound b;
	int rc;

	if (!k->marker || !k->number)
		return k->marker != 0;
	rc = gpu_bind_closed(&b, v, k->dev, "open");
	if (rc < 0)
		return rc;
	rc = b.calls->PointerGetAttribute(&number, GPU_BUFFER_ID, (void *)k->marker) == GPU_OK &&
		number == k->number;
	gpu_unbind(&b);
	return rc;
}

static int open_first(struct kept *k)
{
	struct gpu_device *d = device_of(k);
	const struct gpu_contexts *contexts = d->vendor->contexts;
	int r, rc = still_there(d->vendor, k);

	if (rc)
		return rc < 0 ? rc : 0;
	if (contexts) {
		r = contexts->retain(d);
		if (r != GPU_OK)
			return gpu_fail(d->vendor, r, "opening device %d", k->dev);
		if (k->marker) /* a reset leaves the count as it was */
			contexts->release(d);
	}
	kept_forget(k);
	rc = make_kept(d->vendor, k);
	if (rc < 0 && contexts)
		contexts->release(d);
	return rc;
}

static void give_back(struct kept *any)
{
	const struct gpu_vendor *v = device_of(any)->vendor;
	struct gpu_state *state = gpu_state(v);
	struct gpu_bound b;
	int dev;

	for (dev = 0; dev < state->count; dev++) {
		struct kept *k = &state->devices[dev].kept;

		if (still_there(v, k) <= 0 || gpu_bind_context(&b, v, dev, "close") < 0)
			continue;
		pool_trim(&k->pool, &gpu_memory, &b, KEPT_CLOSED);
		gpu_unbind(&b);
	}
}

int gpu_open(const struct gpu_vendor *v, int dev)
{
	struct gpu_device *d = gpu_device(v, dev, "open");

	return d ? kept_open(&d->kept, &gpu_state(v)->opens, open_first, give_back) : -ENODEV;
}

void gpu_close(const struct gpu_vendor *v, int dev)
{
	struct gpu_device *d = gpu_device(v, dev, "close");

	if (d)
		kept_close(&d->kept, &gpu_state(v)->opens, give_back);
}
