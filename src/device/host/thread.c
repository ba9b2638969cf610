/* SPDX-License-Identifier: MIT */
/* What the host runtime keeps for a calling thread: its current device, its sticky error, its per-thread streams. */
#include <errno.h>

#include "src/base/fault.h"
#include "src/base/status.h"
#include "state.h"
#include "stream.h"

static _Thread_local struct {
	int device;
	int error;
	struct host_stream *serving;
	struct host_stream *relying; /* host_rely(): streams outlive those who point to them */
	int64_t patience;	     /* ns; 0: that of its calls */
} self;

const void *host_self(void)
{
	return &self;
}

int host_raise(int code)
{
	if (code < 0)
		self.error = code;
	return code;
}

int host_peek_error(void)
{
	return self.error;
}

int host_get_error(void)
{
	int error = self.error;

	self.error = 0;
	return error;
}

void host_bind(int dev)
{
	self.device = dev;
}

void host_serve(struct host_stream *s)
{
	self.serving = s;
}

struct host_stream *host_serving(void)
{
	return self.serving;
}

void host_rely(struct host_stream *s)
{
	struct host_stream *before = self.relying;

	self.relying = s;
	if (before && before != s)
		host_stream_rouse(before);
}

void host_patience(int64_t ns)
{
	self.patience = ns;
}

int64_t host_patience_or(int64_t timeout_ns)
{
	int64_t ns = self.patience ? self.patience : timeout_ns;

	return ns < 0 ? INT64_MAX : ns;
}

struct device_saved host_lend(struct host_stream *s)
{
	struct device_saved saved = { .ordinal = self.device, .error = self.error };

	self.device = s->dev;
	self.error = 0;
	self.serving = s;
	return saved;
}

void host_take_back(const struct device_saved *saved)
{
	host_leave(saved);
	self.serving = NULL;
}

int host_get_device(void)
{
	return self.device;
}

int host_set_device(int dev)
{
	int rc = host_load();

	if (!rc)
		rc = host_check(dev, "set_device");
	if (!rc)
		self.device = dev;
	return host_raise(rc);
}

int host_enter(int dev, struct device_saved *saved)
{
	int rc = host_check(dev, "enter");

	if (rc)
		return rc;
	if (fault_here(FAULT_DEVICE))
		return fail_errno(fault_errno(FAULT_DEVICE), "host: enter device %d", dev);
	*saved = (struct device_saved){ .ordinal = self.device, .error = self.error };
	self.device = dev;
	return 0;
}

void host_leave(const struct device_saved *saved)
{
	self.device = saved->ordinal;
	self.error = saved->error;
}

static void thread_end(void *owner)
{
	struct host_state *st = host_state();
	struct host_stream *list = NULL;
	int dev, n;

	if (!st)
		return;
	n = atomic_load(&st->known) - 1;
	pthread_mutex_lock(&st->lock);
	for (dev = 0; dev < n; dev++)
		host_stream_collect(st, dev, owner, &list);
	pthread_mutex_unlock(&st->lock);
	host_stream_end_all(list);
}

int host_watch(struct host_state *st)
{
	int err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD) : 0;

	if (!err && !st->keyed) {
		err = pthread_key_create(&st->key, thread_end);
		st->keyed = !err;
	}
	if (!err)
		err = pthread_setspecific(st->key, &self);
	return -err;
}
