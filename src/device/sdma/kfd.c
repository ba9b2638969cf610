/* SPDX-License-Identifier: MIT */
#include "kfd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi_hsakmt.h"
#include "include/spmt.h"

#define KFD_MOST 1024 /* nodes, and links of a node */
#define KFD_PATH 512
#define KFD_PLACE 0xffffu  /* of a location */
#define KFD_FLAGS_VALID 1u /* of a link */
#define KFD_NO_ATOMICS 8u  /* of 64 bits */

/* Properties wanted of one file: a name and where its value goes. */
struct kfd_value {
	const char *name;
	uint64_t *value;
};

static int kfd_read(const char *path, const struct kfd_value *wanted, size_t n)
{
	FILE *file = fopen(path, "re");
	char line[256];

	if (!file)
		return -errno;
	for (size_t i = 0; i < n; i++)
		*wanted[i].value = 0;
	while (fgets(line, sizeof(line), file)) {
		char *space = strchr(line, ' ');

		if (!space)
			continue;
		*space = '\0';
		for (size_t i = 0; i < n; i++)
			if (!strcmp(line, wanted[i].name))
				*wanted[i].value = strtoull(space + 1, NULL, 10);
	}
	fclose(file);
	return 0;
}

/* One node: 0, or -ENOENT past the last one. */
struct kfd_facts {
	uint64_t cores, gfx, domain, location, engines, xgmi_engines;
};

static int kfd_node(const char *nodes, int node, struct kfd_facts *f)
{
	const struct kfd_value wanted[] = { { "cpu_cores_count", &f->cores },
		{ "gfx_target_version", &f->gfx }, { "domain", &f->domain },
		{ "location_id", &f->location }, { "num_sdma_engines", &f->engines },
		{ "num_sdma_xgmi_engines", &f->xgmi_engines } };
	char path[KFD_PATH];

	snprintf(path, sizeof(path), "%s/%d/properties", nodes, node);
	return kfd_read(path, wanted, ARRAY_SIZE(wanted));
}

/*
 * The driver's location is bus, device and function; 8, 5 and 3 bits. Of a device in parts each is a node, with its number above them,
 * which no place on the bus tells: all of them are at it.
 */
static bool kfd_is_at(const struct kfd_facts *f, const char *pci)
{
	uint64_t part[4]; /* domain, bus, device, function */
	char *end;

	for (int i = 0; i < 4; i++) {
		part[i] = strtoul(pci, &end, 16);
		if (end == pci || *end != "::."[i])
			return false;
		pci = end + 1;
	}
	return f->gfx && f->domain == part[0] &&
		(f->location & KFD_PLACE) == (part[1] << 8 | part[2] << 3 | part[3]);
}

static int kfd_find(const char *nodes, const char *pci, struct kfd_node *found, char reason[])
{
	struct kfd_facts f;
	int n = 0, rc = 0, node;

	for (node = 0; node < KFD_MOST && !(rc = kfd_node(nodes, node, &f)); node++) {
		if (!kfd_is_at(&f, pci))
			continue;
		n++;
		*found = (struct kfd_node){ .node = node,
			.gfx = (unsigned)f.gfx,
			.engines = (unsigned)f.engines,
			.xgmi_engines = (unsigned)f.xgmi_engines };
	}
	if (!node)
		snprintf(reason, DEVICE_REASON, "%.80s: %s", nodes, strerror(-rc));
	else if (n != 1)
		snprintf(reason, DEVICE_REASON, "the driver lists %d nodes at %.16s", n, pci);
	return n == 1 ? 0 : -ENODEV;
}

static int kfd_cpu(const char *nodes)
{
	struct kfd_facts f;

	for (int node = 0; node < KFD_MOST && !kfd_node(nodes, node, &f); node++)
		if (f.cores)
			return node;
	return -ENODEV;
}

/* 0 of a CPU. -EPERM: of a device that the cgroup keeps from this process. */
static int kfd_gpu_id(const char *nodes, int node, uint64_t *id)
{
	char path[KFD_PATH], line[32];
	FILE *file;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/%d/gpu_id", nodes, node);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	if (fgets(line, sizeof(line), file))
		*id = strtoull(line, NULL, 10);
	else
		rc = ferror(file) ? -errno : -EIO;
	fclose(file);
	return rc;
}

/*
 * Whether libhsakmt counts the node (its topology_sysfs_check_node_supported): 1, or 0 where it passes it over. A code: there is no such
 * node, or one for which it would count none at all.
 */
static int kfd_counts(const struct kfd_files *files, int node)
{
	uint64_t id = 0, minor = 0;
	const struct kfd_value wanted = { "drm_render_minor", &minor };
	char path[KFD_PATH];
	int rc = kfd_gpu_id(files->nodes, node, &id);

	if (rc)
		return rc == -EPERM ? 0 : rc;
	if (!id)
		return 1;
	snprintf(path, sizeof(path), "%s/%d/properties", files->nodes, node);
	rc = kfd_read(path, &wanted, 1);
	if (rc || !minor)
		return rc;
	snprintf(path, sizeof(path), "%s%u", files->render, (unsigned)minor);
	if (!access(path, R_OK | W_OK))
		return 1;
	return errno == ENOENT || errno == EPERM ? 0 : -errno;
}

/* libhsakmt's numbers of the engine's nodes: it counts in the driver's order. */
static int kfd_number(const struct kfd_files *files, struct kfd_engine *e, char reason[])
{
	struct kfd_node *wanted[] = { &e->src, &e->dst, &e->cpu };
	int rc = 0, node;

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		wanted[i]->number = -1;
	for (node = 0; node < KFD_MOST && (rc = kfd_counts(files, node)) >= 0; node++) {
		for (size_t i = 0; rc && i < ARRAY_SIZE(wanted); i++)
			if (wanted[i]->node == node)
				wanted[i]->number = (int)e->counted;
		e->counted += (unsigned)rc;
	}
	if (rc < 0 && rc != -ENOENT) {
		snprintf(reason, DEVICE_REASON, "%.80s/%d: %s", files->nodes, node, strerror(-rc));
		return rc;
	}
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (wanted[i]->number < 0) {
			snprintf(reason, DEVICE_REASON, "this process may not use node %d",
				wanted[i]->node);
			return -EACCES;
		}
	return 0;
}

struct kfd_link_facts {
	uint64_t type, to, flags, engines;
};

/* False: there is no such link. */
static bool kfd_link(const char *nodes, int from, int to, struct kfd_link_facts *f)
{
	const struct kfd_value wanted[] = { { "type", &f->type }, { "node_to", &f->to },
		{ "flags", &f->flags }, { "recommended_sdma_engine_id_mask", &f->engines } };
	char path[KFD_PATH];

	for (int i = 0; i < KFD_MOST; i++) {
		snprintf(path, sizeof(path), "%s/%d/io_links/%d/properties", nodes, from, i);
		if (kfd_read(path, wanted, ARRAY_SIZE(wanted)))
			break;
		if (f->to == (uint64_t)to)
			return true;
	}
	/* peers over the CPU's bus are listed apart by newer drivers */
	for (int i = 0; i < KFD_MOST; i++) {
		snprintf(path, sizeof(path), "%s/%d/p2p_links/%d/properties", nodes, from, i);
		if (kfd_read(path, wanted, ARRAY_SIZE(wanted)))
			break;
		if (f->to == (uint64_t)to)
			return true;
	}
	*f = (struct kfd_link_facts){ 0 };
	return false;
}

static bool kfd_link_atomics(const struct kfd_link_facts *f)
{
	return ~f->flags & (KFD_FLAGS_VALID | KFD_NO_ATOMICS);
}

/*
 * As ROCm's runtime has it: gfx90a and chips from gfx1030 on take 30 bits of length; some gfx9 want 256 bytes a submission; engines of
 * gfx1013 are not given to users.
 */
bool kfd_format(unsigned gfx, struct sdma_format *format)
{
	unsigned major = gfx / 10000;

	if (major < 9 || major > 12 || gfx == 100103)
		return false;
	*format = (struct sdma_format){
		.version = major == 9 ? SDMA_V4 : SDMA_V5, .count_bits = 22, .unit = 64
	};
	if (gfx == 90010 || gfx >= 100300)
		format->count_bits = 30;
	if (gfx <= 90004 || gfx == 90012)
		format->unit = 256;
	return true;
}

/* The format is set. */
static int kfd_refusal(struct kfd_engine *e, char reason[])
{
	if (e->cpu.node < 0)
		snprintf(reason, DEVICE_REASON, "the driver lists no node of a CPU");
	else if (!(e->src.engines + e->src.xgmi_engines))
		snprintf(reason, DEVICE_REASON, "node %d has no SDMA engines", e->src.node);
	else if (!kfd_format(e->src.gfx, &e->format))
		snprintf(reason, DEVICE_REASON, "the engines of target %u take no packets of ours",
			e->src.gfx);
	else
		return 0;
	return SPMT_ERR_UNSUPPORTED;
}

int kfd_engine(const struct kfd_files *files, const char *src, const char *dst,
	struct kfd_engine *engine, char reason[DEVICE_REASON])
{
	const char *nodes = files->nodes;
	struct kfd_engine e = { 0 };
	struct kfd_link_facts peer = { 0 }, home;
	bool there = false;
	int rc = kfd_find(nodes, src, &e.src, reason);

	if (!rc)
		rc = kfd_find(nodes, dst, &e.dst, reason);
	if (rc)
		return rc;
	e.cpu.node = kfd_cpu(nodes);
	rc = kfd_refusal(&e, reason);
	if (!rc)
		rc = kfd_number(files, &e, reason);
	if (rc)
		return rc;
	if (e.src.node != e.dst.node)
		there = kfd_link(nodes, e.src.node, e.dst.node, &peer);
	e.xgmi = peer.type == KMT_LINK_XGMI && e.src.xgmi_engines;
	e.engines = (uint32_t)peer.engines;
	e.format.atomics =
		kfd_link(nodes, e.src.node, e.cpu.node, &home) && kfd_link_atomics(&home);
	e.signals = e.src.node == e.dst.node || peer.type == KMT_LINK_XGMI ||
		(there && kfd_link_atomics(&peer));
	*engine = e;
	return 0;
}
