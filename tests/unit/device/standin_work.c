/* SPDX-License-Identifier: MIT */
#include "standin_work.h"

#include <unistd.h>

#include "src/kernels/kernels.h"

static void nothing(void *arg)
{
	(void)arg;
}

/* One commit, mapped a second time and imported: the whole of it goes by descriptor. */
static int work_in_ranges(const struct backend *b, struct standin_scene *x)
{
	int failed = 0, peers[] = { 1 };

	if (b->vmm->granularity(0, &x->g) || b->vmm->reserve(2 * x->g, x->g, &x->base))
		return 0;
	x->committed = !b->vmm->commit(0, x->base, x->g, peers, 1);
	if (!x->committed)
		return 1;
	x->exported = !b->ipc->export_memory(0, x->base, x->g, &x->range, &x->fd);
	if (!x->exported)
		return 1;
	x->mapped = !b->vmm->import(0, (char *)x->base + x->g, &x->range, x->fd);
	failed += !x->mapped;
	failed += b->ipc->import_memory(0, &x->range, x->fd, &x->import) < 0;
	return failed;
}

/* No process imports what it has exported. */
static int work_with_names(const struct backend *b, struct standin_scene *x)
{
	struct device_export name = { .kind = DEVICE_EXPORT_NONE };
	int failed = 0, fd = -1;
	void *ptr;

	failed += b->ipc->export_memory(0, x->symmetric, 5000, &name, &fd) < 0;
	failed += b->ipc->export_memory(0, x, sizeof(*x), &name, &fd) >= 0;
	failed += b->ipc->import_memory(0, &name, -1, &ptr) >= 0;
	failed += b->vmm->import(0, x->symmetric, &name, -1) >= 0;
	failed += b->ipc->release(0, x->symmetric, &name) >= 0;
	failed += b->vmm->decommit(0, x->symmetric, 5000) >= 0;
	return failed;
}

static int work_in_kernels(const struct backend *b, const struct standin_scene *x)
{
	struct kernel_copy_args args = {
		.wake = -1, .size = 64, .dst = (uintptr_t)x->symmetric, .src = (uintptr_t)x->plain
	};
	const struct kernel unknown = { .name = "unknown" };
	int failed = 0;

	failed += b->launch(0, x->s, &kernel_copy, 1, 32, &args, sizeof(args)) < 0;
	failed += b->launch(0, x->s, &kernel_copy, 0, 32, &args, sizeof(args)) >= 0;
	failed += b->launch(0, x->s, &unknown, 1, 32, &args, sizeof(args)) >= 0;
	return failed;
}

static int work_in_stream(const struct backend *b, const struct standin_scene *x)
{
	int failed = 0;

	failed += b->fill(0, x->plain, 1, 5000, x->s) < 0;
	failed += b->copy(0, x->symmetric, x->plain, 5000, x->s) < 0;
	failed += b->copy(0, (char *)x->plain + 8, x->plain, 4000, x->s) < 0;
	failed += work_in_kernels(b, x);
	failed += b->event_record(0, x->e, x->s) < 0;
	failed += b->stream_wait_event(0, x->s, x->e) < 0;
	failed += b->call(0, x->s, nothing, NULL) < 0;
	failed += b->stream_query(0, x->s) < 0;
	failed += b->stream_sync(0, x->s, 1000000000, NULL) < 0;
	failed += b->event_query(0, x->e) < 0;
	b->capturing(0, x->s);
	return failed;
}

int standin_work(const struct backend *b, struct standin_scene *x)
{
	struct device_saved saved;
	char reason[DEVICE_REASON];
	struct device_desc desc;
	int failed = 0;

	failed += b->describe(0, &desc) < 0;
	failed += !(x->opened[0] = !b->open(0));
	failed += !(x->opened[1] = !b->open(1));
	failed += b->peer_check(0, 1, reason) < 0;
	failed += b->peer_enable(0, 1) < 0;
	if (!b->enter(0, &saved))
		b->leave(&saved);
	else
		failed++;
	failed += b->alloc(0, 5000, DEVICE_MEMORY_PLAIN, &x->plain) < 0;
	failed += b->alloc(0, 5000, DEVICE_MEMORY_SYMMETRIC, &x->symmetric) < 0;
	failed += b->alloc(0, 5000, DEVICE_MEMORY_SYMMETRIC, &x->retired) < 0;
	failed += b->host_alloc(0, 5000, &x->host, &x->seen) < 0;
	failed += b->stream_create(0, &x->s) < 0;
	failed += b->event_create(0, &x->e) < 0;
	failed += work_in_ranges(b, x);
	if (x->symmetric)
		failed += work_with_names(b, x);
	if (x->s && x->e && x->plain && x->symmetric)
		failed += work_in_stream(b, x);
	return failed;
}

static int undo_ranges(const struct backend *b, const struct standin_scene *x)
{
	int failed = 0;

	if (x->import)
		failed += b->ipc->release(0, x->import, &x->range) < 0;
	if (x->mapped)
		failed += b->vmm->decommit(0, (char *)x->base + x->g, x->g) < 0;
	if (x->committed)
		failed += b->vmm->decommit(0, x->base, x->g) < 0;
	if (x->base)
		failed += b->vmm->unreserve(x->base, 2 * x->g) < 0;
	if (x->exported)
		failed += close(x->fd) < 0;
	return failed;
}

int standin_undo(const struct backend *b, const struct standin_scene *x)
{
	int failed = 0;

	if (x->s)
		failed += b->stream_sync(0, x->s, 1000000000, NULL) < 0;
	failed += undo_ranges(b, x);
	if (x->e)
		failed += b->event_destroy(0, x->e) < 0;
	if (x->s)
		failed += b->stream_destroy(0, x->s) < 0;
	if (x->host)
		failed += b->host_free(0, x->host) < 0;
	if (x->retired)
		failed += b->retire(0, x->retired) < 0;
	if (x->symmetric)
		failed += b->free(0, x->symmetric) < 0;
	if (x->plain)
		failed += b->free(0, x->plain) < 0;
	if (x->opened[1])
		b->close(1);
	if (x->opened[0])
		b->close(0);
	return failed;
}
