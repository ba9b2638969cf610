/* SPDX-License-Identifier: MIT */
/* CPUs, NUMA nodes and NICs as sysfs shows them, for builds without hwloc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"
#include "src/base/status.h"

enum { PATH = 512 };

/* The first line of a small file, "" if there is none. */
static void read_word(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);

	text[MAX_OF(n, 0)] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (fd >= 0)
		close(fd);
}

/* Of a list like 0-3,8: how many numbers. */
static uint64_t count_list(const char *list)
{
	uint64_t n = 0;

	while (*list >= '0' && *list <= '9') {
		char *end;
		unsigned long long low = strtoull(list, &end, 10), high = low;

		if (*end == '-')
			high = strtoull(end + 1, &end, 10);
		n += high >= low ? high - low + 1 : 0;
		list = end + (*end == ',');
	}
	return n;
}

static uint64_t node_memory(const char *path)
{
	char text[512], *at;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[MAX_OF(n, 0)] = '\0';
	at = strstr(text, "MemTotal:");
	return at ? strtoull(at + strlen("MemTotal:"), NULL, 10) << 10 : 0;
}

static int load_node(const char *sys, uint64_t node, struct topo *topo)
{
	struct topo_numa *numa = topo_add(&topo->numas, &topo->nnumas, sizeof(*numa));
	char path[PATH], list[256];

	if (!numa)
		return fail(-ENOMEM, "topology: no memory for a NUMA node");
	snprintf(path, sizeof(path), "%s/devices/system/node/node%" PRIu64 "/cpulist", sys, node);
	read_word(path, list, sizeof(list));
	numa->node = node;
	numa->cpus = count_list(list);
	snprintf(path, sizeof(path), "%s/devices/system/node/node%" PRIu64 "/meminfo", sys, node);
	numa->memory = node_memory(path);
	return 0;
}

static int nodes_in_sys(const char *sys, struct topo *topo)
{
	char path[PATH], list[256], *at = list;
	int rc = 0;

	snprintf(path, sizeof(path), "%s/devices/system/node/online", sys);
	read_word(path, list, sizeof(list));
	while (!rc && *at >= '0' && *at <= '9') {
		uint64_t node = strtoull(at, &at, 10), last = node;

		if (*at == '-')
			last = strtoull(at + 1, &at, 10);
		for (; !rc && node <= last && topo->nnumas < TOPO_MAX_NUMAS; node++)
			rc = load_node(sys, node, topo);
		at += *at == ',';
	}
	return rc;
}

static uint64_t read_numa(const char *path)
{
	char text[32];

	read_word(path, text, sizeof(text));
	return text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : TOPO_NO_NUMA;
}

uint64_t topo_gbits(const char *sys, const char *name, bool rdma)
{
	char path[PATH], text[64];

	snprintf(path, sizeof(path),
		rdma ? "%s/class/infiniband/%s/ports/1/rate" : "%s/class/net/%s/speed", sys, name);
	read_word(path, text, sizeof(text));
	if (text[0] < '0' || text[0] > '9')
		return 0;
	return strtoull(text, NULL, 10) / (rdma ? 1 : 1000);
}

/* Hexadecimal domain:bus:device.function */
static bool is_pci(const char *name)
{
	static const char after[] = { ':', ':', '.', '\0' };
	const char *at = name;
	size_t n;

	for (size_t i = 0; i < sizeof(after); i++) {
		n = strspn(at, "0123456789abcdefABCDEF");
		if (!n || at[n] != after[i])
			return false;
		at += n + 1;
	}
	return at - name <= TOPO_WORD;
}

/* Cuts a path down to the PCI device it lies in, virtio's for instance. Its address, or NULL. */
static const char *pci_address_above(char *path)
{
	for (char *name; (name = strrchr(path, '/')); *name = '\0') {
		if (is_pci(name + 1))
			return name + 1;
	}
	return NULL;
}

static int load_nic(const char *sys, const char *class, const char *name, struct topo *topo)
{
	struct topo_nic nic = { .rdma = !strcmp(class, "infiniband") };
	char path[PATH], device[PATH_MAX], numa[PATH_MAX + 16];
	const char *pci;

	snprintf(path, sizeof(path), "%s/class/%s/%s/device", sys, class, name);
	if (strlen(name) >= sizeof(nic.name) || topo->nnics == TOPO_MAX_NICS ||
		!realpath(path, device))
		return 0;
	pci = pci_address_above(device);
	if (!pci)
		return 0;
	memcpy(nic.name, name, strlen(name) + 1);
	memcpy(nic.pci, pci, strlen(pci) + 1);
	nic.gbits = topo_gbits(sys, name, nic.rdma);
	snprintf(numa, sizeof(numa), "%s/numa_node", device);
	nic.numa = read_numa(numa);
	return topo_add_nic(topo, &nic);
}

static int nics_in_sys(const char *sys, const char *class, struct topo *topo)
{
	char path[PATH];
	struct dirent **names;
	int n, rc = 0;

	snprintf(path, sizeof(path), "%s/class/%s", sys, class);
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (!rc && names[i]->d_name[0] != '.')
			rc = load_nic(sys, class, names[i]->d_name, topo);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return rc;
}

int topo_load_sys(const char *sys, struct topo *topo)
{
	char path[PATH], list[256];
	int rc;

	snprintf(path, sizeof(path), "%s/devices/system/cpu/online", sys);
	read_word(path, list, sizeof(list));
	topo->hosts[0].cpus = count_list(list);
	for (int i = 0; i < topo->ndevices; i++) {
		struct topo_device *d = &topo->devices[i];

		if (!d->pci[0] || d->numa != TOPO_NO_NUMA)
			continue;
		snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node", sys, d->pci);
		d->numa = read_numa(path);
	}
	rc = nodes_in_sys(sys, topo);
	if (!rc)
		rc = nics_in_sys(sys, "infiniband", topo);
	return rc ? rc : nics_in_sys(sys, "net", topo);
}
