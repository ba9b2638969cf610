/* SPDX-License-Identifier: MIT */
#include "kfd_nodes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "/sys/class/kfd/kfd/topology/nodes/"
#define RENDER "/dev/dri/renderD"

struct kfd_nodes kfd_nodes = { .hidden = -1, .empty = -1, .unlisted = -1 };

enum { CPUS = 2, XGMI = 11, PCIE = 2, TEXT = 512 };

static int devices(void)
{
	const char *text = getenv("SPMT_FAKE_DEVICES");

	return text ? atoi(text) : 4;
}

/* The places that the stand-in for libamdhip64 tells. A part of a device has its number above them. */
static int node_text(char *text, int node)
{
	int n = devices(), dev = node - CPUS, part = 0;

	if (node < CPUS)
		return snprintf(
			text, TEXT, "cpu_cores_count 64\nsimd_count 0\ngfx_target_version 0\n");
	if (kfd_nodes.parts && dev >= n) {
		part = dev - n + 1;
		dev = part < kfd_nodes.parts ? 0 : n;
	}
	if (dev >= n)
		return -1;
	return snprintf(text, TEXT,
		"cpu_cores_count 0\nsimd_count 304\nlocation_id %u\ndomain 0\nnum_sdma_engines %d\nnum_sdma_xgmi_engines %d\ngfx_target_version 90402\ndrm_render_minor %d\n",
		dev == kfd_nodes.unlisted ? 0 : (unsigned)part << 28 | (unsigned)(0xfa + dev) << 8,
		dev == kfd_nodes.empty ? 0 : 2, dev == kfd_nodes.empty ? 0 : 14, 128 + node);
}

static int gpu_id_text(char *text, int node)
{
	return node_text(text, node) < 0
		? -1
		: snprintf(text, TEXT, "%d\n", node < CPUS ? 0 : 1000 + node);
}

static int link_text(char *text, int from, int to, int type)
{
	return snprintf(text, TEXT, "type %d\nnode_from %d\nnode_to %d\nflags 1\n%s", type, from,
		to, type == XGMI ? "recommended_sdma_engine_id_mask 40\n" : "");
}

/* A device is linked with one CPU and all other devices; with the other CPU through the first one. */
static int io_link_text(char *text, int node, int i)
{
	int to = i ? CPUS + i - 1 : node % CPUS;

	if (i && to >= node)
		to++;
	if (node < CPUS || to >= CPUS + devices())
		return -1;
	return link_text(text, node, to, i ? XGMI : PCIE);
}

/* glibc has it by two names, and gives the second one where offsets have 64 bits. */
FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

/* A file of a device that is not the process's opens all the same. */
static ssize_t no_read(void *cookie, char *at, size_t n)
{
	(void)cookie;
	(void)at;
	(void)n;
	errno = EPERM;
	return -1;
}

static FILE *kfd_file(const char *path)
{
	char kind[16] = "", text[TEXT];
	int node = -1, i = 0, n = -1;
	FILE *file;

	if (sscanf(path, "%d/%15[a-z0-9_]/%d/properties", &node, kind, &i) == 3) {
		if (!strcmp(kind, "io_links"))
			n = io_link_text(text, node, i);
		else if (!strcmp(kind, "p2p_links") && !i)
			n = link_text(text, node, 1 - node % CPUS, PCIE);
	} else if (!strcmp(kind, "properties")) {
		n = node_text(text, node);
	} else if (!strcmp(kind, "gpu_id")) {
		n = gpu_id_text(text, node);
	}
	if (n < 0 || kfd_nodes.none) {
		errno = ENOENT;
		return NULL;
	}
	if (kfd_nodes.hidden >= 0 && node == CPUS + kfd_nodes.hidden)
		return fopencookie(NULL, "r", (cookie_io_functions_t){ .read = no_read });
	file = fmemopen(NULL, (size_t)n + 1, "w+");
	if (file) {
		fputs(text, file);
		rewind(file);
	}
	return file;
}

FILE *__wrap_fopen64(const char *path, const char *mode)
{
	size_t n = strlen(FOLDER);

	return strncmp(path, FOLDER, n) ? __real_fopen64(path, mode) : kfd_file(path + n);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
	return __wrap_fopen64(path, mode);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);

int __wrap_access(const char *path, int mode)
{
	return strncmp(path, RENDER, strlen(RENDER)) ? __real_access(path, mode) : 0;
}
