/* SPDX-License-Identifier: MIT */
/* The fields of a recording, and its writer. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fields.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define FIELD(type, member) offsetof(struct type, member), sizeof(((struct type *)NULL)->member)

const struct topo_field topo_host_fields[2] = {
	{ "host", FIELD(topo_host, name), 0, TOPO_TEXT, true },
	{ "cpus", FIELD(topo_host, cpus), 0, TOPO_NUMBER, true },
};
const struct topo_field topo_numa_fields[3] = {
	{ "numa", FIELD(topo_numa, node), 0, TOPO_NUMBER, true },
	{ "cpus", FIELD(topo_numa, cpus), 0, TOPO_NUMBER, false },
	{ "memory", FIELD(topo_numa, memory), 0, TOPO_SIZE, false },
};
const struct topo_field topo_device_fields[12] = {
	{ "device", FIELD(topo_device, index), TOPO_UNSET, TOPO_NUMBER, true },
	{ "backend", FIELD(topo_device, backend), 0, TOPO_TEXT, true },
	{ "ordinal", FIELD(topo_device, ordinal), TOPO_UNSET, TOPO_NUMBER, false },
	{ "name", FIELD(topo_device, name), 0, TOPO_TEXT, false },
	{ "arch", FIELD(topo_device, arch), 0, TOPO_TEXT, false },
	{ "pci", FIELD(topo_device, pci), 0, TOPO_TEXT, false },
	{ "numa", FIELD(topo_device, numa), TOPO_NO_NUMA, TOPO_NUMBER, false },
	{ "memory", FIELD(topo_device, memory), 0, TOPO_SIZE, false },
	{ "units", FIELD(topo_device, units), 0, TOPO_NUMBER, false },
	{ "threshold", FIELD(topo_device, threshold), TOPO_UNSET, TOPO_SIZE, false },
	{ "uuid", FIELD(topo_device, uuid), 0, TOPO_UUID, false },
	{ "ipc", FIELD(topo_device, ipc), 0, TOPO_YES, false },
};
const struct topo_field topo_nic_fields[5] = {
	{ "nic", FIELD(topo_nic, name), 0, TOPO_TEXT, true },
	{ "pci", FIELD(topo_nic, pci), 0, TOPO_TEXT, false },
	{ "numa", FIELD(topo_nic, numa), TOPO_NO_NUMA, TOPO_NUMBER, false },
	{ "gbits", FIELD(topo_nic, gbits), 0, TOPO_NUMBER, false },
	{ "rdma", FIELD(topo_nic, rdma), 0, TOPO_YES, false },
};
const struct topo_field topo_peers_fields[4] = {
	{ "peers", FIELD(topo_peers, from), 0, TOPO_RANGE, true },
	{ "to", FIELD(topo_peers, to), 0, TOPO_RANGE, true },
	{ "link", FIELD(topo_peers, link), TOPO_UNSET, TOPO_LINK, true },
	{ "refused", FIELD(topo_peers, reason), 0, TOPO_TEXT, false },
};
const struct topo_field topo_ranks_fields[4] = {
	{ "ranks", FIELD(topo_ranks, ranks), 0, TOPO_RANGE, true },
	{ "devices", FIELD(topo_ranks, devices), 0, TOPO_RANGE, true },
	{ "on", FIELD(topo_ranks, on), 0, TOPO_NUMBER, false },
	{ "process", FIELD(topo_ranks, process), 0, TOPO_NUMBER, false },
};

const char topo_suffixes[5] = "KMGT";

bool topo_is_number(enum topo_kind kind)
{
	return kind == TOPO_NUMBER || kind == TOPO_SIZE || kind == TOPO_LINK || kind == TOPO_YES;
}

int topo_host_devices(const struct topo *topo, uint64_t host, int *n)
{
	int first = 0;

	while (first < topo->ndevices && (uint64_t)topo->devices[first].host != host)
		first++;
	for (*n = 0; first + *n < topo->ndevices; ++*n) {
		if ((uint64_t)topo->devices[first + *n].host != host)
			break;
	}
	return first;
}

struct out {
	char *text; /* NULL: only counts */
	size_t used, size;
};

static void put(struct out *o, const char *fmt, ...) PRINTF(2, 3);
static void put(struct out *o, const char *fmt, ...)
{
	size_t room = o->text ? o->size - o->used : 0;
	va_list args;

	va_start(args, fmt);
	o->used += (size_t)vsnprintf(o->text ? o->text + o->used : NULL, room, fmt, args);
	va_end(args);
}

/* What the reader takes between quotes. */
static bool is_text(char c)
{
	return ((unsigned char)c >= ' ' || c == '\t') && c != '"';
}

/* What a driver calls its device may hold anything. */
static void put_text(struct out *o, const char *text)
{
	bool quoted = strpbrk(text, " \t#") || !*text;

	put(o, quoted ? "\"" : "");
	for (; *text; text++)
		put(o, "%c", is_text(*text) ? *text : '?');
	put(o, quoted ? "\"" : "");
}

static void put_size(struct out *o, uint64_t v)
{
	int k = 0;

	while (v && k < 4 && v % 1024 == 0) {
		v /= 1024;
		k++;
	}
	put(o, "%" PRIu64, v);
	if (k)
		put(o, "%c", topo_suffixes[k - 1]);
}

/* Ranges are written from the host's device 0. */
static void put_range(struct out *o, const int range[2], int first)
{
	put(o, "%d", range[0] - first);
	if (range[1] > range[0])
		put(o, "-%d", range[1] - first);
}

static bool is_default_value(const struct topo_field *f, const void *member)
{
	static const char zeros[TOPO_NAME];
	uint64_t v;

	if (f->kind == TOPO_TEXT)
		return !*(const char *)member;
	if (f->kind == TOPO_UUID)
		return !memcmp(member, zeros, f->size);
	if (f->kind == TOPO_RANGE)
		return false;
	memcpy(&v, member, sizeof(v));
	return v == f->def;
}

static void put_field(struct out *o, const struct topo_field *f, const void *member, int first)
{
	const unsigned char *bytes = member;
	uint64_t v = 0;

	put(o, "%s ", f->key);
	if (topo_is_number(f->kind))
		memcpy(&v, member, sizeof(v));
	if (f->kind == TOPO_TEXT)
		put_text(o, member);
	else if (f->kind == TOPO_RANGE)
		put_range(o, member, first);
	else if (f->kind == TOPO_SIZE)
		put_size(o, v);
	else if (f->kind == TOPO_NUMBER)
		put(o, "%" PRIu64, v);
	else if (f->kind == TOPO_YES)
		put(o, "yes");
	else if (f->kind == TOPO_LINK)
		put(o, "%s", topo_link_name((enum topo_link)v));
	for (size_t i = 0; f->kind == TOPO_UUID && i < f->size; i++)
		put(o, "%02x", bytes[i]);
}

static void put_item(
	struct out *o, const struct topo_field *fields, size_t n, const void *item, int first)
{
	for (size_t i = 0; i < n; i++) {
		const void *member = (const char *)item + fields[i].offset;

		if (!fields[i].required && is_default_value(&fields[i], member))
			continue;
		put(o, i ? " " : "");
		put_field(o, &fields[i], member, first);
	}
	put(o, "\n");
}

#define PUT_ITEM(o, fields, item, first) \
	put_item((o), (fields), ARRAY_SIZE(fields), (item), (first))

static void put_host(struct out *o, const struct topo *t, int host)
{
	int n, first = topo_host_devices(t, (uint64_t)host, &n);

	PUT_ITEM(o, topo_host_fields, &t->hosts[host], 0);
	for (int i = 0; i < t->nnumas; i++) {
		if (t->numas[i].host == host)
			PUT_ITEM(o, topo_numa_fields, &t->numas[i], 0);
	}
	for (int i = 0; i < n; i++)
		PUT_ITEM(o, topo_device_fields, &t->devices[first + i], 0);
	for (int i = 0; i < t->nnics; i++) {
		if (t->nics[i].host == host)
			PUT_ITEM(o, topo_nic_fields, &t->nics[i], 0);
	}
	for (int i = 0; i < t->npeers; i++) {
		if (t->devices[t->peers[i].from[0]].host == host)
			PUT_ITEM(o, topo_peers_fields, &t->peers[i], first);
	}
}

/* Ranks of one process on devices in a row are one line. */
static int put_ranks(struct out *o, const struct topo *t, int begin)
{
	const struct topo_rank *r = &t->ranks[begin];
	int host = t->devices[r->device].host, n = 1, have,
	    first = topo_host_devices(t, (uint64_t)host, &have);
	struct topo_ranks line;

	while (begin + n < t->nranks && r[n].process == r->process &&
		r[n].device == r->device + n && t->devices[r[n].device].host == host)
		n++;
	line = (struct topo_ranks){ .ranks = { begin, begin + n - 1 },
		.devices = { r->device - first, r->device - first + n - 1 },
		.on = (uint64_t)host,
		.process = r->process };
	PUT_ITEM(o, topo_ranks_fields, &line, 0);
	return begin + n;
}

static void put_topo(struct out *o, const struct topo *t)
{
	put(o, "spmt-topo %d\n", TOPO_VERSION);
	for (int i = 0; i < t->nhosts; i++)
		put_host(o, t, i);
	for (int i = 0; i < t->nranks;)
		i = put_ranks(o, t, i);
}

int topo_format(const struct topo *topo, char **text)
{
	struct out o = { 0 };

	put_topo(&o, topo);
	o.size = o.used + 1;
	o.used = 0;
	o.text = mem_calloc(1, o.size);
	if (!o.text)
		return fail(-ENOMEM, "no memory for a recording of %zu bytes", o.size);
	put_topo(&o, topo);
	*text = o.text;
	return 0;
}
