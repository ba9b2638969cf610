/* SPDX-License-Identifier: MIT */
#include "window.h"

#include <errno.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/mem.h"
#include "src/base/status.h"

struct heap_window {
	struct heap_window *next;
	uint64_t offset, size; /* in every heap */
	void *address;
	int n;
	const struct heap *heaps[]; /* by address, so that no order of ranks counts */
};

static int apart_check(const struct heap *const *heaps, int n)
{
	for (int i = 0; i < n; i++) {
		if (!heaps[i]->range)
			return fail(SPMT_ERR_UNSUPPORTED,
				"the heaps are not committed on demand (SPMT_HEAP_MODE=vmm)");
		for (int k = 0; k < i; k++)
			if (heaps[k]->dev == heaps[i]->dev)
				return fail(SPMT_ERR_UNSUPPORTED, "ranks %d and %d share device %d",
					k, i, heaps[i]->dev);
	}
	return 0;
}

static int *devices_of(const struct heap *const *heaps, int n)
{
	int *devs = mem_calloc((size_t)n, sizeof(*devs));

	for (int i = 0; devs && i < n; i++)
		devs[i] = heaps[i]->dev;
	return devs;
}

static int no_window_memory(int n)
{
	return fail(-ENOMEM, "out of memory for a multicast of %d ranks", n);
}

int heap_window_check(const struct heap *const *heaps, int n, size_t *unit)
{
	const struct backend *backend = heaps[0]->backend;
	size_t bytes;
	int *devs, rc;

	if (!backend->multicast)
		return fail(SPMT_ERR_UNSUPPORTED, "backend %s has no multicast", backend->name);
	rc = apart_check(heaps, n);
	if (rc)
		return rc;
	devs = devices_of(heaps, n);
	if (!devs)
		return no_window_memory(n);
	rc = backend->multicast->granularity(devs, n, &bytes);
	mem_free(devs);
	if (rc)
		return rc;
	/* What heaps commit are multiples of that, at such addresses. */
	if (!is_power_of_two(bytes) || bytes > HEAP_ROUND)
		return fail(SPMT_ERR_UNSUPPORTED,
			"these devices bind units of %zu bytes, at most %llu will do", bytes,
			HEAP_ROUND);
	*unit = bytes;
	return 0;
}

/* ---- the list -------------------------------------------------------------------------------- */

static struct heap_window *window_make(
	const struct heap *const *heaps, int n, uint64_t offset, uint64_t size)
{
	struct heap_window *w = mem_calloc(1, sizeof(*w) + (size_t)n * sizeof(w->heaps[0]));

	if (!w)
		return NULL;
	*w = (struct heap_window){ .offset = offset, .size = size };
	for (int i = 0; i < n; i++) {
		int at = w->n++;

		for (; at && (uintptr_t)w->heaps[at - 1] > (uintptr_t)heaps[i]; at--)
			w->heaps[at] = w->heaps[at - 1];
		w->heaps[at] = heaps[i];
	}
	return w;
}

/* One that holds all of `want`. */
static const struct heap_window *window_find(
	const struct heap_windows *windows, const struct heap_window *want)
{
	for (const struct heap_window *w = windows->first; w; w = w->next)
		if (w->n == want->n && w->offset <= want->offset &&
			want->offset + want->size <= w->offset + w->size &&
			!memcmp(w->heaps, want->heaps, (size_t)w->n * sizeof(w->heaps[0])))
			return w;
	return NULL;
}

static int window_bind(struct heap_window *w)
{
	int *devs = devices_of(w->heaps, w->n);
	char **at = mem_calloc((size_t)w->n, sizeof(*at));
	int rc = devs && at ? 0 : no_window_memory(w->n);

	for (int i = 0; i < w->n && !rc; i++) {
		at[i] = w->heaps[i]->base + w->offset;
		if (!heap_holds(w->heaps[i], at[i], w->size))
			rc = fail(
				-EINVAL, "the heap of device %d has no memory there yet", devs[i]);
	}
	if (!rc)
		rc = w->heaps[0]->backend->multicast->bind(devs, at, w->n, w->size, &w->address);
	mem_free(devs);
	mem_free(at);
	return rc;
}

int heap_window_open(struct heap_windows *windows, const struct heap *const *heaps, int n,
	uint64_t offset, uint64_t bytes, uint64_t *address)
{
	const struct heap_window *found;
	struct heap_window *w;
	uint64_t first;
	size_t unit;
	int rc = heap_window_check(heaps, n, &unit);

	if (rc)
		return rc;
	first = offset & ~(uint64_t)(unit - 1);
	w = window_make(heaps, n, first, align_up(offset + bytes, unit) - first);
	if (!w)
		return no_window_memory(n);
	pthread_mutex_lock(&windows->lock);
	found = window_find(windows, w);
	if (!found) {
		rc = window_bind(w);
		if (!rc) {
			w->next = windows->first;
			windows->first = w;
			found = w;
			w = NULL;
		}
	}
	if (!rc)
		*address = (uintptr_t)found->address + (offset - found->offset);
	pthread_mutex_unlock(&windows->lock);
	mem_free(w);
	return rc;
}

void heap_windows_close(struct heap_windows *windows)
{
	while (windows->first) {
		struct heap_window *w = windows->first;

		windows->first = w->next;
		w->heaps[0]->backend->multicast->unbind(w->address);
		mem_free(w);
	}
}
