/* SPDX-License-Identifier: MIT */
#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/env.h"
#include "src/base/status.h"
#include "src/kernels/images.h"

static const struct backend *const backends[] = { &backend_hip, &backend_cuda, &backend_host };

const struct backend *device_backend(size_t i)
{
	return i < ARRAY_SIZE(backends) ? backends[i] : NULL;
}

static int select_named(const char *name, const struct backend **backend)
{
	size_t i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(backends); i++) {
		if (strcmp(backends[i]->name, name))
			continue;
		rc = backends[i]->load();
		if (!rc)
			*backend = backends[i];
		return rc;
	}
	return fail(-EINVAL,
		"there is no backend \"%s\": hip, cuda and host are possible (SPMT_BACKEND)", name);
}

/* Appends why `b` was passed over, cut so that the rows behind it have room. */
static void note_passed_over(char *text, size_t size, const struct backend *b, int rc)
{
	size_t used = strlen(text);
	size_t share = size / ARRAY_SIZE(backends);

	if (rc)
		snprintf(text + used, MIN_OF(size - used, share), "; %s: %s", b->name,
			status_sentence());
	else
		snprintf(text + used, MIN_OF(size - used, share), "; %s: 0 devices", b->name);
}

bool device_lacks_images(const struct backend *b)
{
	return !device_image_count && !(b->traits & DEVICE_HOST_ACCESS);
}

static int select_first(const struct backend **backend)
{
	char text[STATUS_SENTENCE - 64] = "";
	size_t i;

	for (i = 0; i < ARRAY_SIZE(backends); i++) {
		int n = 0;
		int rc = backends[i]->load();

		if (!rc)
			rc = backends[i]->count(&n);
		if (!rc && n > 0 && device_lacks_images(backends[i]))
			rc = fail(SPMT_ERR_UNSUPPORTED,
				"built without device images (clang-19 and lld-19 make them)");
		if (!rc && n > 0) {
			*backend = backends[i];
			return 0;
		}
		/* it may pass, and the GPUs are there all the same */
		if (is_shortage(rc))
			return rc;
		note_passed_over(text, sizeof(text), backends[i], rc);
	}
	return fail(-ENODEV, "no backend has a device%s (SPMT_HOST_DEVICES)", text);
}

int device_select(const char *name, const struct backend **backend)
{
	const struct env *env;
	int rc;

	if (!name) {
		rc = env_get(&env);
		if (rc)
			return rc;
		name = env->backend;
	}
	return name ? select_named(name, backend) : select_first(backend);
}

int device_drain(
	const struct backend *b, int dev, device_stream s, int64_t timeout_ns, const uint32_t *stop)
{
	int rc = b->stream_sync(dev, s, timeout_ns, stop);

	if (rc == -ECANCELED)
		b->stream_sync(dev, s, DEVICE_STOPPED_NS, NULL);
	return rc;
}
