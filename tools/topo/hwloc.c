/* SPDX-License-Identifier: MIT */
/* CPUs, NUMA nodes and NICs as hwloc sees them. */
#include "load.h"

#if SPMT_HAVE_HWLOC
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>

#include "src/base/status.h"

/* Most of these start a vendor's runtime in this process, in ways that our own backends avoid.
   pci is libpciaccess, which leaks; without it hwloc reads the same from sysfs. */
static const char *const left_out_components[] = { "cuda", "gl", "levelzero", "nvml", "opencl",
	"pci", "rsmi" };

static uint64_t numa_of(hwloc_topology_t t, hwloc_obj_t obj)
{
	hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(t, obj);
	int nodes = place && place->nodeset ? hwloc_bitmap_weight(place->nodeset) : 0;

	return nodes == 1 ? (uint64_t)hwloc_bitmap_first(place->nodeset) : TOPO_NO_NUMA;
}

static int nodes_by_hwloc(hwloc_topology_t t, struct topo *topo)
{
	for (hwloc_obj_t obj = NULL;
		(obj = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, obj));) {
		struct topo_numa *numa = topo_add(&topo->numas, &topo->nnumas, sizeof(*numa));

		if (!numa)
			return fail(-ENOMEM, "topology: no memory for a NUMA node");
		numa->node = obj->os_index;
		numa->cpus = (uint64_t)hwloc_bitmap_weight(obj->cpuset);
		numa->memory = obj->attr->numanode.local_memory;
	}
	return 0;
}

/* The PCI device above an operating system's device, NULL for virtual ones. */
static hwloc_obj_t pci_object_above(hwloc_obj_t obj)
{
	while (obj && obj->type != HWLOC_OBJ_PCI_DEVICE)
		obj = obj->parent;
	return obj;
}

static void print_pci(hwloc_obj_t pci, char text[TOPO_WORD])
{
	const struct hwloc_pcidev_attr_s *at = &pci->attr->pcidev;

	snprintf(text, TOPO_WORD, "%04x:%02x:%02x.%01x", at->domain & 0xffffu, (unsigned)at->bus,
		(unsigned)at->dev, (unsigned)at->func);
}

static int nics_by_hwloc(hwloc_topology_t t, hwloc_obj_osdev_type_t type, struct topo *topo)
{
	int rc = 0;

	for (hwloc_obj_t obj = NULL; !rc && (obj = hwloc_get_next_osdev(t, obj));) {
		struct topo_nic nic = { .rdma = type == HWLOC_OBJ_OSDEV_OPENFABRICS };
		hwloc_obj_t pci = pci_object_above(obj);

		if (obj->attr->osdev.type != type || !pci || !obj->name ||
			strlen(obj->name) >= sizeof(nic.name))
			continue;
		memcpy(nic.name, obj->name, strlen(obj->name) + 1);
		print_pci(pci, nic.pci);
		nic.numa = numa_of(t, pci);
		nic.gbits = topo_gbits("/sys", nic.name, nic.rdma);
		rc = topo_add_nic(topo, &nic);
	}
	return rc;
}

static void place_devices(hwloc_topology_t t, struct topo *topo)
{
	for (int i = 0; i < topo->ndevices; i++) {
		struct topo_device *d = &topo->devices[i];
		hwloc_obj_t pci = d->pci[0] ? hwloc_get_pcidev_by_busidstring(t, d->pci) : NULL;

		if (pci && d->numa == TOPO_NO_NUMA)
			d->numa = numa_of(t, pci);
	}
}

/* hwloc may bind the calling thread to one CPU after another to look at each, unless told not
   to. */
static int open_hwloc(hwloc_topology_t *t)
{
	if (hwloc_topology_init(t))
		return -EIO;
	hwloc_topology_set_flags(*t, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
	hwloc_topology_set_io_types_filter(*t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	for (size_t i = 0; i < ARRAY_SIZE(left_out_components); i++)
		hwloc_topology_set_components(
			*t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, left_out_components[i]);
	if (!hwloc_topology_load(*t))
		return 0;
	hwloc_topology_destroy(*t);
	return -EIO;
}

int topo_load_hwloc(struct topo *topo)
{
	hwloc_topology_t t;
	int rc = open_hwloc(&t);

	if (rc)
		return fail(rc, "topology: hwloc cannot load it");
	topo->hosts[0].cpus = (uint64_t)MAX_OF(hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU), 0);
	place_devices(t, topo);
	rc = nodes_by_hwloc(t, topo);
	if (!rc)
		rc = nics_by_hwloc(t, HWLOC_OBJ_OSDEV_OPENFABRICS, topo);
	if (!rc)
		rc = nics_by_hwloc(t, HWLOC_OBJ_OSDEV_NETWORK, topo);
	hwloc_topology_destroy(t);
	return rc;
}
#endif
