/* SPDX-License-Identifier: MIT */
/* NVIDIA: opening devices. */
#include <errno.h>

#include "cuda_state.h"
#include "src/base/status.h"

/* Loaded now, all of them: a driver that loads a kernel at its first launch may wait for the
   device to be idle. */
static int cuda_find_kernel(void *ctx, const char *name, void **handle)
{
	const struct cuda_api *api = &cuda_state()->api;
	const struct kept *k = ctx;
	cu_result r = api->ModuleGetFunction(handle, k->module, name);

	if (r == CU_OK && api->FuncLoad)
		r = api->FuncLoad(*handle);
	return r == CU_OK ? 0
			  : cuda_fail(r, "kernel '%s' of the image for %s", name, k->image->arch);
}

/* The context is current, as in what follows. */
static int cuda_load_image(struct kept *k)
{
	const struct cuda_api *api = &cuda_state()->api;
	cu_result r = api->ModuleLoadData(&k->module, k->image->data);
	int rc;

	if (r != CU_OK)
		return cuda_fail(r, "loading the %s image of %s on %s", k->image->kind,
			k->image->arch, k->arch);
	rc = vendor_kernels_find(&k->kernels, cuda_find_kernel, k);
	if (rc < 0)
		api->ModuleUnload(k->module);
	return rc;
}

static int cuda_mark(struct kept *k, const struct cuda_api *api)
{
	cu_pointer marker = 0;
	cu_result r = api->MemAlloc(&marker, 256);

	k->marker = marker;
	k->number = 0;
	if (r == CU_OK && api->PointerGetAttribute)
		r = api->PointerGetAttribute(&k->number, CU_BUFFER_ID, marker);
	return r == CU_OK ? 0 : cuda_fail(r, "marking the context of device %d", k->dev);
}

static void cuda_unmake(struct kept *k, const struct cuda_api *api)
{
	if (k->module)
		api->ModuleUnload(k->module);
	if (k->stream)
		api->StreamDestroy(k->stream);
	if (k->marker)
		api->MemFree(k->marker);
	kept_forget(k);
}

static int cuda_make(struct kept *k, const struct cuda_api *api)
{
	cu_result r = api->StreamCreate(&k->stream, CU_NON_BLOCKING);
	int rc = r == CU_OK ? 0 : cuda_fail(r, "making a stream on device %d", k->dev);

	if (!rc)
		rc = kept_load(k, cuda_load_image);
	if (!rc)
		rc = cuda_mark(k, api);
	if (rc < 0)
		cuda_unmake(k, api);
	return rc;
}

/* After a reset nothing of what we had may be named to the driver again. */
static bool cuda_still_there(const struct kept *k, const struct cuda_api *api)
{
	uint64_t number = 0;

	if (!k->marker || !k->number)
		return k->marker != 0;
	return api->PointerGetAttribute(&number, CU_BUFFER_ID, k->marker) == CU_OK &&
		number == k->number;
}

static int cuda_open_first(struct kept *k)
{
	const struct cuda_api *api = &cuda_state()->api;
	struct cuda_device *d = cuda_device(k->dev, "open");
	struct cuda_bound b;
	cu_result r;
	int rc;

	if (cuda_still_there(k, api))
		return 0;
	r = api->PrimaryRetain(&d->context, d->handle);
	if (r != CU_OK)
		return cuda_fail(r, "opening device %d", k->dev);
	if (k->marker) /* a reset leaves the count as it was */
		api->PrimaryRelease(d->handle);
	kept_forget(k);
	rc = cuda_bind_context(&b, k->dev, "open");
	if (!rc) {
		rc = cuda_make(k, api);
		cuda_unbind(&b);
	}
	if (rc < 0)
		api->PrimaryRelease(d->handle);
	return rc;
}

static void cuda_give_back(void)
{
	struct cuda_state *state = cuda_state();
	struct cuda_bound b;
	int dev;

	for (dev = 0; dev < state->count; dev++) {
		struct kept *k = &state->devices[dev].kept;

		if (!cuda_still_there(k, &state->api) || cuda_bind_context(&b, dev, "close") < 0)
			continue;
		pool_trim(&k->pool, &cuda_memory, &b, KEPT_CLOSED);
		cuda_unbind(&b);
	}
}

int cuda_open(int dev)
{
	struct cuda_device *d = cuda_device(dev, "open");

	return d ? kept_open(&d->kept, &cuda_state()->opens, cuda_open_first, cuda_give_back)
		 : -ENODEV;
}

void cuda_close(int dev)
{
	struct cuda_device *d = cuda_device(dev, "close");

	if (d)
		kept_close(&d->kept, &cuda_state()->opens, cuda_give_back);
}
