/* SPDX-License-Identifier: MIT */
#include "bind.h"

#include <errno.h>
#include <pthread.h>

#include "ops.h"
#include "src/base/status.h"

/* What this thread holds; its device is NULL: nothing. */
static _Thread_local struct gpu_bound gpu_held;

int gpu_last_error(const struct gpu_vendor *v, const struct gpu_state *state)
{
	return v->errors ? v->errors->peek(state) : GPU_OK;
}

void gpu_put_back_error(const struct gpu_vendor *v, const struct gpu_state *state, int want)
{
	if (v->errors)
		v->errors->put_back(state, want);
}

static void exchange_mode(const struct gpu_calls *calls, int *mode)
{
	if (calls->CaptureMode && calls->CaptureMode(mode) != GPU_OK)
		*mode = GPU_CAPTURE_RELAXED;
}

/* Inside, the capture mode is relaxed, because our calls must not break a capture that the application runs elsewhere; and no cancellation
   is taken in the driver's own system calls. */
static int go_inside(struct gpu_bound *b, const char *what)
{
	int r;

	b->last = gpu_last_error(b->vendor, b->state);
	r = b->vendor->push(b);
	if (r != GPU_OK) {
		gpu_put_back_error(b->vendor, b->state, b->last);
		pthread_setcancelstate(b->cancel, NULL);
		return gpu_fail(b->vendor, r, "%s: entering device %d", what, b->dev);
	}
	b->mode = GPU_CAPTURE_RELAXED;
	exchange_mode(b->calls, &b->mode);
	return 0;
}

static int bind_device(struct gpu_bound *b, struct gpu_device *d, bool inside, const char *what)
{
	b->vendor = d->vendor;
	b->state = gpu_state(d->vendor);
	b->calls = &b->state->calls;
	b->device = d;
	b->dev = d->kept.dev;
	b->inside = inside && gpu_held.device != d;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &b->cancel);
	return b->inside ? go_inside(b, what) : 0;
}

int gpu_bind_context(struct gpu_bound *b, const struct gpu_vendor *v, int dev, const char *what)
{
	struct gpu_device *d = gpu_device(v, dev, what);

	return d ? bind_device(b, d, true, what) : -ENODEV;
}

int gpu_bind_closed(struct gpu_bound *b, const struct gpu_vendor *v, int dev, const char *what)
{
	struct gpu_device *d = gpu_device(v, dev, what);

	return d ? bind_device(b, d, !v->contexts, what) : -ENODEV;
}

int gpu_bind(struct gpu_bound *b, const struct gpu_vendor *v, int dev, const char *what)
{
	struct gpu_device *d = gpu_device(v, dev, what);

	if (!d)
		return -ENODEV;
	if (!d->kept.open)
		return fail(-EINVAL, "%s: %s: device %d is not open", v->name, what, dev);
	return bind_device(b, d, true, what);
}

int gpu_bind_for(struct gpu_bound *b, const struct gpu_vendor *v, int dev, enum fault_site site,
	const char *what)
{
	int rc = vendor_fault(site, v->name, what, dev);

	return rc < 0 ? rc : gpu_bind(b, v, dev, what);
}

/* What this thread holds needs nothing to be put back. */
static bool is_held(struct gpu_bound *b, const struct gpu_vendor *v, int dev)
{
	if (!gpu_held.device || gpu_held.vendor != v || gpu_held.dev != dev)
		return false;
	*b = gpu_held;
	b->inside = false;
	b->cancel = PTHREAD_CANCEL_DISABLE;
	return true;
}

int gpu_bind_stream(
	struct gpu_bound *b, const struct gpu_vendor *v, int dev, device_stream s, const char *what)
{
	int rc;

	if (!s)
		return fail(-EINVAL, "%s: %s: no stream given on device %d", v->name, what, dev);
	rc = vendor_fault(FAULT_DEVICE, v->name, what, dev);
	return rc < 0 || is_held(b, v, dev) ? rc : gpu_bind(b, v, dev, what);
}

void gpu_unbind(const struct gpu_bound *b)
{
	int mode = b->mode;

	if (b->inside) {
		exchange_mode(b->calls, &mode);
		b->vendor->pop(b);
		gpu_put_back_error(b->vendor, b->state, b->last);
	}
	if (b->cancel != PTHREAD_CANCEL_DISABLE)
		pthread_setcancelstate(b->cancel, NULL);
}

int gpu_done(const struct gpu_bound *b, int result, const char *what)
{
	gpu_unbind(b);
	if (LIKELY(result == GPU_OK))
		return 0;
	return gpu_fail(b->vendor, result, "%s on device %d", what, b->dev);
}

/* Why it could not be bound is told by what binds it next. */
bool gpu_hold(const struct gpu_vendor *v, int dev)
{
	struct status_saved saved;
	struct gpu_bound b;

	if (gpu_held.device)
		return false;
	status_save(&saved);
	if (gpu_bind(&b, v, dev, "hold") < 0) {
		status_restore(&saved);
		return false;
	}
	gpu_held = b;
	return true;
}

void gpu_let_go(const struct gpu_vendor *v, int dev)
{
	struct gpu_bound b = gpu_held;

	(void)v;
	(void)dev;
	gpu_held.device = NULL;
	gpu_unbind(&b);
}

int gpu_enter(const struct gpu_vendor *v, int dev, struct device_saved *saved)
{
	struct device_saved out = { .ordinal = -1 };
	struct gpu_device *d = gpu_device(v, dev, "enter");
	const struct gpu_state *state;
	int r;

	if (!d)
		return -ENODEV;
	if (!d->kept.open)
		return fail(-EINVAL, "%s: enter: device %d is not open", v->name, dev);
	state = gpu_state(v);
	out.error = gpu_last_error(v, state);
	r = v->enter(state, d, &out);
	gpu_put_back_error(v, state, out.error);
	if (r != GPU_OK)
		return gpu_fail(v, r, "entering device %d", dev);
	*saved = out;
	return 0;
}

/* The last error is then what came of the calls between enter and leave, which are not ours. */
void gpu_leave(const struct gpu_vendor *v, const struct device_saved *saved)
{
	const struct gpu_state *state = atomic_load(&v->root->slot);
	int last;

	if (!state || !state->loaded)
		return;
	last = gpu_last_error(v, state);
	v->leave(state, saved);
	gpu_put_back_error(v, state, last);
}
