/* SPDX-License-Identifier: MIT */
#include "choose.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define GIDS_MOST 1024
#define NICS_MOST 64
#define SYS_PATH 512

/* One that may be taken. */
struct verbs_found {
	struct verbs_device *device;
	int port;  /* asked for; 0: the first that is active */
	int steps; /* from the rank's device in the machine's tree */
};

/* "1" of "1,mlx5_1"; -1: that is no port, and none has its number. */
static int port_named(const char *text)
{
	size_t n = strcspn(text, ",");
	long port = n && n <= 3 && strspn(text, "0123456789") >= n ? strtol(text, NULL, 10) : 0;

	return port >= 1 && port <= UINT8_MAX ? (int)port : -1;
}

bool verbs_listed(const char **list, const char *name, int *port)
{
	const char *at = *list;
	size_t n = strlen(name);
	bool is = !at;

	*port = 0;
	for (*list = at ? at : ""; **list && !is;) {
		at = *list;
		*list += strcspn(at, ",");
		*list += **list == ',';
		is = !strncmp(at, name, n) && strchr(",:", at[n]);
	}
	if (is && at && at[n] == ':')
		*port = port_named(at + n + 1);
	return is;
}

int verbs_gid_rank(const union verbs_gid *gid, bool v2)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	bool local = gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;

	if (!gid->words[0] && !gid->words[1])
		return 0;
	return 1 + (v2 ? 4 : 0) + (memcmp(gid->raw, mapped, sizeof(mapped)) ? !local : 2);
}

/* ---- GIDs ----------------------------------------------------------------------------------- */

/* 0: there is none of this index that could be used. */
static int gid_read(
	const struct verbs_api *api, struct verbs_place *p, int index, union verbs_gid *gid)
{
	struct verbs_gid_entry entry = { .gid_type = 0 };
	uint8_t port = p->port;

	if (api->query_gid_ex) {
		if (api->query_gid_ex(p->ctx, port, (uint32_t)index, &entry, 0, sizeof(entry)))
			return 0;
		*gid = entry.gid;
		return verbs_gid_rank(gid, entry.gid_type == VERBS_GID_TYPE_ROCE_V2);
	}
	return api->query_gid(p->ctx, port, index, gid) ? 0 : verbs_gid_rank(gid, true);
}

static int choose_gid(const struct verbs_api *api, struct verbs_place *p, int64_t asked)
{
	int n = MIN_OF(p->attr.gid_tbl_len, GIDS_MOST), best = 0;
	union verbs_gid gid;

	p->gid_index = -1;
	for (int i = 0; i < n; i++) {
		int rank = asked < 0 || asked == i ? gid_read(api, p, i, &gid) : 0;

		if (rank <= best)
			continue;
		best = rank;
		p->gid = gid;
		p->gid_index = i;
	}
	if (best || (asked < 0 && !p->ethernet))
		return 0;
	if (asked >= 0)
		return fail(-ENODEV, "%s port %d has no GID %lld (SPMT_RDMA_GID), of %d", p->name,
			p->port, (long long)asked, n);
	return fail(-ENODEV, "%s port %d has no GID: its network interface has no address", p->name,
		p->port);
}

/* ---- ports ---------------------------------------------------------------------------------- */

static bool port_active(const struct verbs_api *api, struct verbs_place *p, int port)
{
	memset(&p->attr, 0, sizeof(p->attr));
	return !api->query_port(p->ctx, (uint8_t)port, (struct verbs_port_old *)&p->attr) &&
		p->attr.state == VERBS_PORT_ACTIVE;
}

/* Its active port, the one asked for or the first; 0: none. */
static int find_port(const struct verbs_api *api, struct verbs_place *p, int asked)
{
	for (int port = 1; port <= p->device.phys_port_cnt; port++)
		if ((!asked || asked == port) && port_active(api, p, port))
			return port;
	return 0;
}

static int place_fill(const struct verbs_api *api, const struct verbs_found *found, int64_t gid,
	struct verbs_place *p)
{
	int rc = api->query_device(p->ctx, &p->device);

	if (rc)
		return fail_errno(rc, "%s: ibv_query_device", p->name);
	p->port = (uint8_t)find_port(api, p, found->port);
	if (!p->port)
		return fail(-ENODEV, "%s has no active port%s", p->name,
			found->port ? " of the number asked for (SPMT_RDMA_DEVICE)" : "");
	p->ethernet = p->attr.link_layer == VERBS_LINK_LAYER_ETHERNET;
	return choose_gid(api, p, gid);
}

static int place_open(const struct verbs_api *api, const struct verbs_found *found, int64_t gid,
	struct verbs_place *p)
{
	int rc;

	*p = (struct verbs_place){ .gid_index = -1 };
	snprintf(p->name, sizeof(p->name), "%s", api->device_name(found->device));
	p->ctx = api->open_device(found->device);
	if (!p->ctx)
		return fail_errno(errno, "%s: ibv_open_device", p->name);
	rc = place_fill(api, found, gid, p);
	if (rc)
		api->close_device(p->ctx);
	return rc;
}

/* ---- nearness ------------------------------------------------------------------------------- */

#define STEPS_OF_NODE 64  /* no bridge in common, but the NUMA node; a path has fewer */
#define STEPS_OF_HOST 128 /* not even that, or nobody says */

/* Where the link `sys`/FORMAT leads. */
static bool sys_path(const char *sys, const char *format, const char *name, char path[SYS_PATH])
{
	char link[SYS_PATH];
	size_t n = (size_t)snprintf(link, sizeof(link), "%.256s", sys);
	char *real;

	snprintf(link + n, sizeof(link) - n, format, name);
	real = realpath(link, NULL);
	snprintf(path, SYS_PATH, "%s", real ? real : "");
	free(real); /* realpath's own */
	return real != NULL;
}

/* A number in a file of a device; -1: it does not say. */
static long sys_number(const char *device, const char *file)
{
	char path[SYS_PATH + 32], text[32] = "";
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", device, file);
	f = fopen(path, "re");
	if (f && fgets(text, sizeof(text), f))
		n = strtol(text, NULL, 0);
	if (f)
		fclose(f);
	return n;
}

/* Bytes of a device's path up to its host bridge, "/sys/devices/pci0000:15". */
static size_t to_bridge(const char *path)
{
	const char *at = strstr(path, "/devices/");

	at = at ? at + strlen("/devices/") : path;
	return (size_t)(at - path) + strcspn(at, "/");
}

int verbs_steps(const char *sys, const char *pci, const char *name)
{
	char a[SYS_PATH], b[SYS_PATH];
	size_t bridge, same = 0;
	int steps = 0;
	long node;

	if (!pci[0] || !sys_path(sys, "/bus/pci/devices/%.32s", pci, a) ||
		!sys_path(sys, "/class/infiniband/%.64s/device", name, b))
		return INT16_MAX;
	bridge = to_bridge(a);
	node = sys_number(a, "numa_node");
	if (bridge != to_bridge(b) || memcmp(a, b, bridge) != 0)
		return node >= 0 && node == sys_number(b, "numa_node") ? STEPS_OF_NODE
								       : STEPS_OF_HOST;
	while (a[same] && a[same] == b[same])
		same++;
	for (const char *at = a + same; *at; at++)
		steps += *at == '/';
	for (const char *at = b + same; *at; at++)
		steps += *at == '/';
	return MIN_OF(steps, STEPS_OF_NODE - 1);
}

/* "0-3,8,10-11" */
static bool list_take(const char *list, cpu_set_t *cpus)
{
	CPU_ZERO(cpus);
	for (char *end; *list && *list != '\n'; list = *end == ',' ? end + 1 : end) {
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (end == list)
			return false;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		if (!strchr(",\n", *end))
			return false;
		for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
			CPU_SET(cpu, cpus);
	}
	return CPU_COUNT(cpus) > 0;
}

bool verbs_cpus(const char *sys, const char *name, cpu_set_t *cpus)
{
	char path[SYS_PATH], list[4096] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%.256s/class/infiniband/%.64s/device/local_cpulist", sys,
		name);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(list, sizeof(list), f))
		list[0] = '\0';
	fclose(f);
	return list_take(list, cpus);
}

int verbs_turn(const char *sys, const char *pci, int dev)
{
	char own[SYS_PATH], other[SYS_PATH];
	const struct dirent *entry;
	long vendor, class;
	int before = 0;
	DIR *devices;

	snprintf(other, sizeof(other), "%.256s/bus/pci/devices", sys);
	if (!pci[0] || !sys_path(sys, "/bus/pci/devices/%.32s", pci, own))
		return dev;
	devices = opendir(other);
	if (!devices)
		return dev;
	vendor = sys_number(own, "vendor");
	class = sys_number(own, "class");
	while ((entry = readdir(devices)))
		before += entry->d_name[0] != '.' && strcmp(entry->d_name, pci) < 0 &&
			sys_path(sys, "/bus/pci/devices/%.32s", entry->d_name, other) &&
			sys_number(other, "class") == class &&
			sys_number(other, "vendor") == vendor;
	closedir(devices);
	return before;
}

/* ---- the choice ----------------------------------------------------------------------------- */

static void find_one(struct verbs_found *found, int *n, const struct verbs_found *one)
{
	int at = *n;

	if (*n == NICS_MOST)
		return;
	for (; at > 0 && found[at - 1].steps > one->steps; at--)
		found[at] = found[at - 1];
	found[at] = *one;
	++*n;
}

/* Those of the list that are allowed, the nearest first; equal ones in the order they came. Of a device with several ports each that is
   named. */
static int find_all(const struct verbs_api *api, struct verbs_device **list, int n,
	const char *wish, const char *pci, struct verbs_found *found)
{
	int count = 0;

	for (int i = 0; i < n; i++) {
		const char *name = api->device_name(list[i]), *rest = wish;
		struct verbs_found one = { .device = list[i],
			.steps = verbs_steps(VERBS_SYS, pci, name) };

		while (verbs_listed(&rest, name, &one.port))
			find_one(found, &count, &one);
	}
	return count;
}

int verbs_first(int turn, int each, int near)
{
	int a = each, b = near;

	if (near <= 1)
		return 0;
	while (b) { /* their greatest common divisor */
		int rest = a % b;

		a = b;
		b = rest;
	}
	return (int)(((int64_t)turn * each + (a > 1 ? turn / (near / a) : 0)) % near);
}

/* Each group that is as near begins where it is the turn-th's part. */
static void take_turns(struct verbs_found *found, int n, int turn, int most)
{
	struct verbs_found near[NICS_MOST];
	int end;

	for (int begin = 0; begin < n; begin = end) {
		int size, first;

		for (end = begin; end < n && found[end].steps == found[begin].steps; end++)
			near[end - begin] = found[end];
		size = end - begin;
		first = verbs_first(turn, MIN_OF(MAX_OF(most - begin, 1), size), size);
		for (int i = 0; i < size; i++)
			found[begin + i] = near[(first + i) % size];
	}
}

/* A port that is named twice is taken once; and others only where they reach what the first does. */
static bool place_serves(const struct verbs_place *places, int n)
{
	const struct verbs_place *p = &places[n];

	for (int i = 0; i < n; i++)
		if (!strcmp(places[i].name, p->name) && places[i].port == p->port)
			return false;
	return p->ethernet == places[0].ethernet;
}

/* The first `most` that can be opened and serve. */
static int open_some(const struct verbs_api *api, const struct verbs_found *found, int n, int most,
	int64_t gid, struct verbs_place *places, int *count)
{
	struct status_saved saved, why;
	int rc = 0;

	status_save(&saved);
	*count = 0;
	for (int i = 0; i < n && *count < most; i++) {
		int one = place_open(api, &found[i], gid, &places[*count]);

		if (!one && !place_serves(places, *count))
			api->close_device(places[*count].ctx);
		else if (!one)
			++*count;
		else if (!rc) {
			rc = one;
			status_save(&why);
		}
		if (one)
			log_line(LOG_INFO, "an RDMA device is left out: %s", status_sentence());
	}
	if (!*count)
		return fail_again(rc, &why);
	status_restore(&saved);
	return 0;
}

int verbs_choose(const struct verbs_api *api, int dev, const char *pci, int most,
	struct verbs_place *places, int *n)
{
	struct verbs_found found[NICS_MOST];
	struct verbs_device **list;
	const struct env *env;
	int all = 0, count, rc = env_get(&env);

	if (rc)
		return rc;
	list = api->get_device_list(&all);
	if (!list)
		return fail_errno(errno, "ibv_get_device_list");
	count = find_all(api, list, all, env->rdma_device, pci, found);
	take_turns(found, count, verbs_turn(VERBS_SYS, pci, MAX_OF(dev, 0)), most);
	if (count)
		rc = open_some(api, found, count, most, env->rdma_gid, places, n);
	else if (all)
		rc = fail(-ENODEV, "SPMT_RDMA_DEVICE=%s names none of %d devices, the first is %s",
			env->rdma_device, all, api->device_name(list[0]));
	else
		rc = fail(-ENODEV, "there is no RDMA device");
	api->free_device_list(list);
	return rc;
}
