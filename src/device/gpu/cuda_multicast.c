/* SPDX-License-Identifier: MIT */
/* Multicast objects: a team of devices, memory of each bound to it, and one address for all. */
#include <errno.h>

#include "cuda.h"
#include "include/spmt.h"
#include "ops.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "vmm.h"

/* An unbind has to name what one bind named. */
struct cuda_part {
	struct cuda_part *next;
	int device; /* the driver's number */
	size_t at, size;
};

struct cuda_team {
	struct cuda_team *next;
	cu_memory handle;
	void *address; /* NULL: none is reserved yet */
	size_t size;
	bool mapped;
	int dev;		 /* in whose context it is mapped */
	struct cuda_part *parts; /* the last one bound first */
};

static bool team_calls(const struct cuda_api *api)
{
	return api->MulticastGranularity && api->MulticastCreate && api->MulticastAddDevice &&
		api->MulticastBindMem && api->MulticastUnbind;
}

/* 0: this device can be in a team; what a heap is made of it has to have, too. */
static int team_device_check(const struct gpu_bound *b)
{
	int rc = gpu_vmm_check(b, false, "multicast");

	if (rc)
		return rc;
	if (!team_calls(cuda_own(b->state)))
		return fail(SPMT_ERR_UNSUPPORTED, "cuda: multicast: this driver has none");
	if (!cuda_has(b, CU_ATTR_MULTICAST))
		return fail(SPMT_ERR_UNSUPPORTED,
			"cuda: multicast: device %d has none (it takes an NVSwitch)", b->dev);
	return 0;
}

static int team_granularity(const struct gpu_bound *b, int n, size_t *bytes)
{
	const struct cuda_multicast_prop prop = { .devices = (unsigned int)n,
		.size = (size_t)2 << 20 };
	size_t out = 0;
	int r = cuda_own(b->state)->MulticastGranularity(&out, &prop, CU_MULTICAST_MINIMUM);

	if (r != CU_OK)
		return gpu_fail(b->vendor, r, "granularity of multicast between %d devices", n);
	*bytes = out;
	return 0;
}

static int cuda_multicast_granularity(const int *devs, int n, size_t *bytes)
{
	struct gpu_bound b;
	int rc = 0;

	for (int i = 0; i < n && !rc; i++) {
		rc = gpu_bind_closed(&b, &cuda_vendor, devs[i], "multicast");
		if (rc)
			return rc;
		rc = team_device_check(&b);
		if (!rc && i == n - 1)
			rc = team_granularity(&b, n, bytes);
		gpu_unbind(&b);
	}
	return rc;
}

/* ---- a team ---------------------------------------------------------------------------------- */

/* All devices before any memory: until the last is there the driver lets nobody bind or map. */
static int team_create(const struct gpu_bound *b, const int *devs, int n, struct cuda_team *team)
{
	const struct cuda_multicast_prop prop = { .devices = (unsigned int)n, .size = team->size };
	const struct cuda_api *api = cuda_own(b->state);
	cu_memory handle = NULL;
	int r = api->MulticastCreate(&handle, &prop);

	if (r != CU_OK)
		return gpu_fail(
			b->vendor, r, "multicast of %zu bytes between %d devices", team->size, n);
	team->handle = handle;
	for (int i = 0; i < n; i++) {
		r = api->MulticastAddDevice(handle, b->state->devices[devs[i]].handle);
		if (r != CU_OK)
			return gpu_fail(b->vendor, r, "device %d in a multicast of %d", devs[i], n);
	}
	return 0;
}

/* As much from `at` on as lies in one commit. */
static int team_bind_part(
	const struct gpu_bound *b, struct cuda_team *team, const char *memory, size_t at)
{
	struct vendor_range range;
	struct cuda_part *part;
	size_t inside;
	int r;

	if (!vendor_range_find(&b->state->ranges, memory + at, &range) || range.dev != b->dev ||
		range.import)
		return fail(-EINVAL, "cuda: multicast: %p is no commit of device %d",
			(const void *)(memory + at), b->dev);
	part = mem_calloc(1, sizeof(*part));
	if (!part)
		return fail(-ENOMEM, "cuda: no memory for a part of a multicast");
	inside = (size_t)(memory + at - range.base);
	*part = (struct cuda_part){ .next = team->parts,
		.device = b->device->handle,
		.at = at,
		.size = MIN_OF(range.size - inside, team->size - at) };
	r = cuda_own(b->state)->MulticastBindMem(
		team->handle, at, gpu_memory_of(&range), inside, part->size, 0);
	if (r == CU_OK) {
		team->parts = part;
		return 0;
	}
	mem_free(part);
	return gpu_fail(b->vendor, r, "binding memory of device %d to a multicast", b->dev);
}

static int team_bind_device(struct cuda_team *team, int dev, const char *memory)
{
	struct gpu_bound b;
	size_t at = 0;
	int rc = gpu_bind_for(&b, &cuda_vendor, dev, FAULT_MEMORY, "multicast");

	if (rc)
		return rc;
	while (!rc && at < team->size) {
		rc = team_bind_part(&b, team, memory, at);
		if (!rc)
			at += team->parts->size;
	}
	gpu_unbind(&b);
	return rc;
}

static int team_access(
	const struct gpu_bound *b, const struct cuda_team *team, const int *devs, int n)
{
	struct gpu_memory_access *access = mem_calloc((size_t)n, sizeof(*access));
	int r;

	if (!access)
		return fail(-ENOMEM, "cuda: no memory for a list of %d devices", n);
	for (int i = 0; i < n; i++) {
		access[i].location.type = GPU_ON_DEVICE;
		access[i].location.id = b->state->devices[devs[i]].handle;
		access[i].flags = GPU_READ_WRITE;
	}
	r = b->calls->MemSetAccess(team->address, team->size, access, (size_t)n);
	mem_free(access);
	return r == CU_OK ? 0 : gpu_fail(b->vendor, r, "access of %d devices to a multicast", n);
}

static int team_map(const struct gpu_bound *b, struct cuda_team *team, const int *devs, int n)
{
	size_t align = 0;
	int r, rc = team_granularity(b, n, &align);

	if (!rc)
		rc = vendor_fault(FAULT_MAP, "cuda", "multicast", b->dev);
	if (rc)
		return rc;
	r = gpu_range_reserve(b, team->size, align, &team->address);
	if (r == CU_OK)
		r = b->calls->MemMap(team->address, team->size, 0, team->handle, 0);
	if (r != CU_OK)
		return gpu_fail(b->vendor, r, "mapping a multicast of %zu bytes", team->size);
	team->mapped = true;
	return team_access(b, team, devs, n);
}

/* Takes a team however far it got, whatever one step says; the first failure. */
static int team_undo(const struct gpu_bound *b, struct cuda_team *team)
{
	const struct vendor_range range = { .base = team->address, .size = team->size };
	int first = team->mapped ? gpu_range_unmap(b, &range) : CU_OK, r;

	r = team->address ? gpu_range_free(b, team->address, team->size) : CU_OK;
	first = first == CU_OK ? r : first;
	while (team->parts) {
		struct cuda_part *part = team->parts;

		team->parts = part->next;
		r = cuda_own(b->state)->MulticastUnbind(
			team->handle, part->device, part->at, part->size);
		first = first == CU_OK ? r : first;
		mem_free(part);
	}
	r = team->handle ? gpu_memory_release(b, team->handle) : CU_OK;
	first = first == CU_OK ? r : first;
	mem_free(team);
	return first == CU_OK ? 0 : gpu_fail(b->vendor, first, "taking back a multicast");
}

static void team_keep(struct cuda_state *state, struct cuda_team *team)
{
	pthread_mutex_lock(&state->teams_lock);
	team->next = state->teams;
	state->teams = team;
	pthread_mutex_unlock(&state->teams_lock);
}

static struct cuda_team *team_take(struct cuda_state *state, const void *address)
{
	struct cuda_team **at = &state->teams, *team;

	pthread_mutex_lock(&state->teams_lock);
	while (*at && (*at)->address != address)
		at = &(*at)->next;
	team = *at;
	if (team)
		*at = team->next;
	pthread_mutex_unlock(&state->teams_lock);
	return team;
}

static int cuda_multicast_bind(const int *devs, char *const *at, int n, size_t size, void **address)
{
	struct cuda_team *team = mem_calloc(1, sizeof(*team));
	struct gpu_bound b;
	int rc;

	if (!team)
		return fail(-ENOMEM, "cuda: no memory for a multicast");
	rc = gpu_bind(&b, &cuda_vendor, devs[0], "multicast");
	if (rc) {
		mem_free(team);
		return rc;
	}
	team->size = size;
	team->dev = devs[0];
	rc = team_create(&b, devs, n, team);
	for (int i = 0; i < n && !rc; i++)
		rc = team_bind_device(team, devs[i], at[i]);
	if (!rc)
		rc = team_map(&b, team, devs, n);
	if (!rc) {
		team_keep((struct cuda_state *)b.state, team);
		*address = team->address;
	} else {
		KEEPS_SENTENCE;
		team_undo(&b, team);
	}
	gpu_unbind(&b);
	return rc;
}

static int cuda_multicast_unbind(void *address)
{
	struct cuda_state *state = (struct cuda_state *)gpu_state(&cuda_vendor);
	struct cuda_team *team = state ? team_take(state, address) : NULL;
	struct gpu_bound b;
	int rc;

	if (!team)
		return fail(-EINVAL, "cuda: %p is no multicast", address);
	rc = gpu_bind(&b, &cuda_vendor, team->dev, "multicast");
	if (rc) {
		team_keep(state, team);
		return rc;
	}
	rc = team_undo(&b, team);
	gpu_unbind(&b);
	return rc;
}

const struct device_multicast_ops cuda_multicast_ops = {
	.granularity = cuda_multicast_granularity,
	.bind = cuda_multicast_bind,
	.unbind = cuda_multicast_unbind,
};
