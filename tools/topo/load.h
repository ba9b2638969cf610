/* SPDX-License-Identifier: MIT */
/* The sources of what topo_get() knows of the machine beside its devices. Each fills in what it
   finds in a topo of one host. */
#ifndef SPMT_TOPO_LOAD_H
#define SPMT_TOPO_LOAD_H

#include "fields.h"

/* CPUs, NUMA nodes, NICs, and the NUMA node of each device with a PCI address. -ENOMEM, or -EIO:
   ask the other source. */
#if SPMT_HAVE_HWLOC
int topo_load_hwloc(struct topo *topo);
#endif
/* `sys` is where sysfs is mounted: /sys, or a copy of parts of it. What is not there is left
   out. */
int topo_load_sys(const char *sys, struct topo *topo);

/* Of a NIC by name, from sysfs: an InfiniBand device if rdma, else a network interface. 0:
   unknown. */
uint64_t topo_gbits(const char *sys, const char *name, bool rdma);

/* A NIC unless one with its PCI address is listed. RDMA devices come first, so that their
   interfaces are not listed too. */
int topo_add_nic(struct topo *topo, const struct topo_nic *nic);

/* Devices of every backend that loads, and what each pair of one backend can do. */
int topo_load_devices(struct topo *topo);

#endif
