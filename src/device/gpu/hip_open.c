/* SPDX-License-Identifier: MIT */
/* AMD: opening devices. */
#include <errno.h>

#include "hip_state.h"
#include "src/base/status.h"

static int hip_find_kernel(void *ctx, const char *name, void **handle)
{
	const struct kept *k = ctx;
	hip_result r = hip_state()->api.ModuleGetFunction(handle, k->module, name);

	return r == HIP_OK ? 0
			   : hip_fail(r, "kernel '%s' of the image for %s", name, k->image->arch);
}

/* The device is current, as in what follows. */
static int hip_load_image(struct kept *k)
{
	const struct hip_api *api = &hip_state()->api;
	hip_result r = api->ModuleLoadData(&k->module, k->image->data);
	int rc;

	if (r != HIP_OK)
		return hip_fail(r, "loading the %s image of %s on %s", k->image->kind,
			k->image->arch, k->arch);
	rc = vendor_kernels_find(&k->kernels, hip_find_kernel, k);
	if (rc < 0)
		api->ModuleUnload(k->module);
	return rc;
}

/* A runtime that does not number buffers tells of no reset. */
static int hip_mark(struct kept *k, const struct hip_api *api)
{
	void *marker = NULL;
	hip_result r = api->Malloc(&marker, 256);

	k->marker = (uintptr_t)marker;
	k->number = 0;
	if (r == HIP_OK && api->PointerGetAttribute)
		r = api->PointerGetAttribute(&k->number, HIP_BUFFER_ID, marker);
	if (marker && (r == HIP_INVALID_VALUE || r == HIP_NOT_SUPPORTED))
		r = HIP_OK;
	return r == HIP_OK ? 0 : hip_fail(r, "marking device %d", k->dev);
}

static void hip_unmake(struct kept *k, const struct hip_api *api)
{
	if (k->module)
		api->ModuleUnload(k->module);
	if (k->stream)
		api->StreamDestroy(k->stream);
	if (k->marker)
		api->Free((void *)k->marker);
	kept_forget(k);
}

static int hip_make(struct kept *k, const struct hip_api *api)
{
	hip_result r = api->StreamCreateWithFlags(&k->stream, HIP_NON_BLOCKING);
	int rc = r == HIP_OK ? 0 : hip_fail(r, "opening device %d", k->dev);

	if (!rc)
		rc = kept_load(k, hip_load_image);
	if (!rc)
		rc = hip_mark(k, api);
	if (rc < 0)
		hip_unmake(k, api);
	return rc;
}

/* After a reset nothing of what we had may be named to the runtime again. */
static bool hip_still_there(const struct kept *k, const struct hip_api *api)
{
	uint64_t number = 0;

	if (!k->marker || !k->number)
		return k->marker != 0;
	return api->PointerGetAttribute(&number, HIP_BUFFER_ID, (void *)k->marker) == HIP_OK &&
		number == k->number;
}

static int hip_open_first(struct kept *k)
{
	struct hip_bound b;
	int rc = hip_bind_closed(&b, k->dev, "open");

	if (rc < 0)
		return rc;
	if (!hip_still_there(k, b.api)) {
		kept_forget(k);
		rc = hip_make(k, b.api);
	}
	hip_unbind(&b);
	return rc;
}

static void hip_give_back(void)
{
	struct hip_state *state = hip_state();
	struct hip_bound b;
	int dev;

	for (dev = 0; dev < state->count; dev++) {
		struct kept *k = &state->devices[dev].kept;

		if (!k->marker || hip_bind_closed(&b, dev, "close") < 0)
			continue;
		if (hip_still_there(k, b.api))
			pool_trim(&k->pool, &hip_memory_source, &b, KEPT_CLOSED);
		hip_unbind(&b);
	}
}

int hip_open(int dev)
{
	struct hip_device *d = hip_device(dev, "open");

	return d ? kept_open(&d->kept, &hip_state()->opens, hip_open_first, hip_give_back)
		 : -ENODEV;
}

void hip_close(int dev)
{
	struct hip_device *d = hip_device(dev, "close");

	if (d)
		kept_close(&d->kept, &hip_state()->opens, hip_give_back);
}
