/* SPDX-License-Identifier: MIT */
#include "kept.h"

#include <errno.h>

#include "src/base/status.h"

/* When no device of the process is open, no kernel of ours waits for another, so a free now
   delays nobody. A thread that opens a device meanwhile waits here. */
static void count_opens(
	struct kept *kept, struct kept_opens *all, int step, void (*idle)(struct kept *kept))
{
	pthread_mutex_lock(&all->lock);
	all->n += step;
	if (!all->n)
		idle(kept);
	pthread_mutex_unlock(&all->lock);
}

int kept_open(struct kept *kept, struct kept_opens *all, int (*first)(struct kept *kept),
	void (*idle)(struct kept *kept))
{
	int rc = vendor_fault(FAULT_DEVICE, kept->backend, "open", kept->dev);

	if (rc < 0)
		return rc;
	count_opens(kept, all, 1, idle);
	pthread_mutex_lock(&kept->lock);
	if (!kept->opens) {
		rc = first(kept);
		kept->open = !rc;
	}
	if (!rc)
		kept->opens++;
	pthread_mutex_unlock(&kept->lock);
	if (rc < 0)
		count_opens(kept, all, -1, idle);
	return rc;
}

void kept_close(struct kept *kept, struct kept_opens *all, void (*idle)(struct kept *kept))
{
	bool was;

	pthread_mutex_lock(&kept->lock);
	was = kept->opens > 0;
	if (was && !--kept->opens)
		kept->open = false;
	pthread_mutex_unlock(&kept->lock);
	if (was)
		count_opens(kept, all, -1, idle);
}

int kept_load(struct kept *kept, int (*load)(struct kept *kept))
{
	const struct device_image *best[2];
	size_t n = vendor_pick(device_images, device_image_count, kept->arch, best), i;
	int rc = 0;

	for (i = 0; i < n; i++) {
		kept->image = best[i];
		rc = load(kept);
		if (!rc)
			break;
		kept->module = NULL;
	}
	return rc;
}

void kept_forget(struct kept *kept)
{
	kept->marker = 0;
	kept->stream = NULL;
	kept->module = NULL;
	kept->kernels.n = 0;
	pool_forget(&kept->pool);
}

static int leave_pool(struct kept *kept, const void *ptr,
	int (*how)(struct device_pool *pool, enum pool_kind kind, const void *ptr),
	const char *what)
{
	if (!ptr || !how(&kept->pool, POOL_PLAIN, ptr) || !how(&kept->pool, POOL_SYMMETRIC, ptr))
		return 0;
	return fail(-EINVAL, "%s: %s: %p is no memory of device %d", kept->backend, what, ptr,
		kept->dev);
}

int kept_free(struct kept *kept, const void *ptr)
{
	return leave_pool(kept, ptr, pool_free, "free");
}

int kept_retire(struct kept *kept, const void *ptr)
{
	return leave_pool(kept, ptr, pool_retire, "retire");
}

int kept_host_free(struct kept *kept, const void *host)
{
	if (!host || !pool_free(&kept->pool, POOL_PINNED, host))
		return 0;
	return fail(-EINVAL, "%s: host_free: %p is no pinned memory of device %d", kept->backend,
		host, kept->dev);
}
