/* SPDX-License-Identifier: MIT */
#include "bindings/jax/world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bindings/jax/device.h"
#include "bindings/jax/room.h"
#include "bindings/jax/spmt_xla.h"
#include "bindings/jax/work.h"

#define TIMEOUT_MS 10000
#define TIMEOUT_MAX_MS 1000000000000 /* 31 years: nanoseconds from now have to be of 64 bits */

static struct {
	pthread_mutex_t lock; /* guards all of it, and refs of worlds */
	pthread_cond_t fewer; /* refs of a closed world */
	bool opened;	      /* once: fewer is there */
	struct world *first;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local char last_error[256];

static int failed(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int failed(int code, const char *fmt, ...)
{
	va_list list;

	va_start(list, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, list);
	va_end(list);
	return code;
}

const char *spmt_xla_last_error(void)
{
	return last_error;
}

/* ---- comms of a group */

static void group_leave(struct group *group, int nranks)
{
	if (group->comms)
		spmt_finalize_all(nranks, group->comms);
	free(group->comms);
	group->comms = NULL;
}

int xla_world_join(const struct world *world, int group, spmt_comm **comms)
{
	struct spmt_attr *attrs = calloc((size_t)world->nranks, sizeof(*attrs));
	int rc = 0, count = 1;

	if (!attrs)
		return -ENOMEM;
	if (world->host)
		rc = spmt_device_count(world->backend, &count);
	if (count < 1)
		count = 1; /* init says that there is none */
	for (int i = 0; i < world->nranks; i++) {
		attrs[i] = (struct spmt_attr)SPMT_ATTR_INIT;
		attrs[i].rank = i;
		attrs[i].nranks = world->nranks;
		attrs[i].backend = world->backend;
		attrs[i].heap_size = world->heap_size;
		attrs[i].timeout_ms = world->timeout_ms;
		/* XLA has as many devices of the CPU as it was asked for, which share those of the library. */
		attrs[i].device = world->host ? i % count : xla_world_device(world, group, i);
	}
	if (!rc)
		rc = spmt_init_all(world->nranks, attrs, comms);
	free(attrs);
	return rc;
}

static int group_join(const struct world *world, int group)
{
	spmt_comm **comms = calloc((size_t)world->nranks, sizeof(spmt_comm *));
	int rc = comms ? xla_world_join(world, group, comms) : -ENOMEM;

	if (!rc)
		world->groups[group].comms = comms;
	else
		free(comms);
	return rc;
}

int xla_world_renew(struct world *world, int group)
{
	struct group *g = &world->groups[group];
	int rc = 0;

	if (!g->comms || atomic_load(&g->broken)) {
		group_leave(g, world->nranks);
		rc = group_join(world, group);
		if (!rc)
			atomic_store(&g->broken, false);
	}
	return rc;
}

/* ---- worlds */

static void xla_world_free(struct world *world)
{
	for (int i = 0; world->groups && i < world->ngroups; i++) {
		group_leave(&world->groups[i], world->nranks);
		crew_leave(world->groups[i].crew, world->nranks);
		free(world->groups[i].turns);
		pthread_mutex_destroy(&world->groups[i].issue);
		pthread_cond_destroy(&world->groups[i].renewed);
	}
	free(world->groups);
	free(world->devices);
	free(world);
}

struct world *xla_world_get(int64_t id)
{
	struct world *world;

	pthread_mutex_lock(&table.lock);
	for (world = table.first; world && world->id != id; world = world->next)
		;
	if (world)
		world->refs++;
	pthread_mutex_unlock(&table.lock);
	return world;
}

void xla_world_hold(struct world *world)
{
	pthread_mutex_lock(&table.lock);
	world->refs++;
	pthread_mutex_unlock(&table.lock);
}

/* Finalizing waits for threads: on a worker, as a call may end on a thread of XLA's or of a stream. */
static void xla_world_end(void *world)
{
	xla_world_free(world);
}

void xla_world_put(struct world *world)
{
	bool last;

	pthread_mutex_lock(&table.lock);
	last = --world->refs == 0;
	if (atomic_load(&world->closed))
		pthread_cond_broadcast(&table.fewer);
	pthread_mutex_unlock(&table.lock);
	if (last)
		work_later(&world->work, xla_world_end, world);
}

int xla_world_place(const struct world *world, int32_t device, int *rank)
{
	for (int i = 0; i < world->ngroups * world->nranks; i++)
		if (world->devices[i] == device) {
			*rank = i % world->nranks;
			return i / world->nranks;
		}
	return -1;
}

int32_t xla_world_device(const struct world *world, int group, int rank)
{
	return world->devices[group * world->nranks + rank];
}

static int attr_check(const struct spmt_xla_attr *attr)
{
	int n;

	if (!attr || attr->size < offsetof(struct spmt_xla_attr, streams))
		return failed(-EINVAL, "spmt_xla_open: attr is NULL, or its size is not set");
	if (attr->groups < 1 || attr->nranks < 1 || attr->nranks > SITE_RANKS_MAX ||
		attr->groups > SITE_RANKS_MAX)
		return failed(-EINVAL,
			"spmt_xla_open: %d groups of %d devices: a world has 1 to %d groups of 1 to %d each",
			attr->groups, attr->nranks, SITE_RANKS_MAX, SITE_RANKS_MAX);
	if (!attr->devices)
		return failed(-EINVAL, "spmt_xla_open: attr.devices is NULL");
	if (!attr->backend || strlen(attr->backend) >= sizeof(((struct world *)NULL)->backend))
		return failed(-EINVAL, "spmt_xla_open: no backend");
	n = attr->groups * attr->nranks;
	for (int i = 0; i < n; i++)
		for (int k = i + 1; k < n; k++)
			if (attr->devices[i] == attr->devices[k])
				return failed(-EINVAL, "spmt_xla_open: device %d is there twice",
					attr->devices[i]);
	return 0;
}

static struct world *xla_world_new(const struct spmt_xla_attr *attr)
{
	size_t n = (size_t)attr->groups * (size_t)attr->nranks;
	struct world *world = calloc(1, sizeof(*world));

	if (!world)
		return NULL;
	world->devices = malloc(n * sizeof(*world->devices));
	world->groups = calloc((size_t)attr->groups, sizeof(*world->groups));
	world->id = attr->id;
	world->timeout_ms = attr->timeout_ms > TIMEOUT_MAX_MS ? TIMEOUT_MAX_MS
		: attr->timeout_ms > 0			      ? attr->timeout_ms
							      : TIMEOUT_MS;
	world->nranks = attr->nranks;
	world->heap_size = attr->heap_size;
	world->refs = 1;
	snprintf(world->backend, sizeof(world->backend), "%s", attr->backend);
	world->host = !strcmp(attr->backend, "host");
	world->streams = !world->host || (attr->size >= sizeof(*attr) && attr->streams);
	if (!world->devices || !world->groups) {
		xla_world_free(world);
		return NULL;
	}
	memcpy(world->devices, attr->devices, n * sizeof(*world->devices));
	for (world->ngroups = 0; world->ngroups < attr->groups; world->ngroups++) {
		pthread_mutex_init(&world->groups[world->ngroups].issue, NULL);
		pthread_cond_init(&world->groups[world->ngroups].renewed, NULL);
	}
	return world;
}

/* Unless the name is taken. */
static int table_add(struct world *world)
{
	struct world *w;

	pthread_mutex_lock(&table.lock);
	if (!table.opened)
		work_cond(&table.fewer);
	table.opened = true;
	for (w = table.first; w && w->id != world->id; w = w->next)
		;
	if (!w) {
		world->next = table.first;
		table.first = world;
	}
	pthread_mutex_unlock(&table.lock);
	return w ? failed(-EEXIST, "spmt_xla_open: a world %lld is open", (long long)world->id) : 0;
}

int spmt_xla_open(const struct spmt_xla_attr *attr)
{
	int rc = attr_check(attr);
	struct world *world;

	if (rc)
		return rc;
	world = xla_world_new(attr);
	if (!world)
		return failed(-ENOMEM, "spmt_xla_open: no memory");
	rc = room_start(world->timeout_ms);
	if (rc)
		failed(rc, "spmt_xla_open: no threads for calls to end on");
	for (int i = 0; !rc && i < world->ngroups; i++) {
		rc = world->streams ? crew_join(world, i) : group_join(world, i);
		if (rc)
			failed(rc, "%s", spmt_last_error());
	}
	if (!rc)
		rc = table_add(world);
	if (rc)
		xla_world_free(world);
	return rc;
}

/* Until no call is under way any more; the library's deadlines bound that. Else the last of them frees the world. */
static void xla_world_wait(struct world *world)
{
	struct timespec until;
	bool alone;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += 2 * world->timeout_ms / 1000 + 1;
	pthread_mutex_lock(&table.lock);
	while (world->refs > 1 && !pthread_cond_timedwait(&table.fewer, &table.lock, &until))
		;
	alone = --world->refs == 0;
	pthread_mutex_unlock(&table.lock);
	if (alone)
		xla_world_free(world);
}

int spmt_xla_status(int64_t id)
{
	struct world *world = xla_world_get(id);
	char why[256];
	int rc = 0;

	if (!world)
		return failed(-EBADF, "spmt_xla_status: no world %lld is open", (long long)id);
	for (int i = 0; world->streams && !rc && i < world->ngroups; i++)
		rc = device_status(world, i, why, sizeof(why));
	if (rc)
		failed(rc, "%s", why);
	xla_world_put(world);
	return rc;
}

int spmt_xla_close(int64_t id)
{
	struct world **at, *world;

	pthread_mutex_lock(&table.lock);
	for (at = &table.first; *at && (*at)->id != id; at = &(*at)->next)
		;
	world = *at;
	if (world) {
		*at = world->next;
		atomic_store(&world->closed, true);
	}
	pthread_mutex_unlock(&table.lock);
	if (!world)
		return failed(-EBADF, "spmt_xla_close: no world %lld is open", (long long)id);
	room_close(world);
	xla_world_wait(world);
	return 0;
}
