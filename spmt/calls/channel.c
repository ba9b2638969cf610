/* SPDX-License-Identifier: MIT */
/* Channels, ports and switch channels of kernels: addresses of buffers, and of words that every library area has. */
#include <errno.h>
#include <string.h>

#include "register.h"
#include "rma.h"
#include "spmt/control/exclusive.h"
#include "spmt/proxy/fifo.h"
#include "src/base/status.h"
#include "src/kernels/area.h"
#include "view.h"

#define CHANNEL_ATTR_FIRST (offsetof(struct spmt_channel_attr, local_size) + sizeof(size_t))

static int attr_size_check(
	const spmt_comm *comm, const char *what, const struct spmt_channel_attr *attr)
{
	const unsigned char *tail = (const unsigned char *)attr;

	if (!attr)
		return fail_call(-EINVAL, what, "rank %d: attr is NULL", comm->rank);
	if (attr->size < CHANNEL_ATTR_FIRST || attr->size > STRUCT_MOST)
		return fail_call(-EINVAL, what,
			"rank %d: attr.size %zu: set it to sizeof(struct spmt_channel_attr)",
			comm->rank, attr->size);
	for (size_t i = sizeof(*attr); i < attr->size; i++)
		if (tail[i])
			return fail_call(-EINVAL, what,
				"rank %d: attr has members that this library does not know (byte %zu is not 0)",
				comm->rank, i);
	return 0;
}

static int channel_attr_check(
	spmt_comm *comm, const char *what, const struct spmt_channel_attr *attr)
{
	int rc = attr_size_check(comm, what, attr);

	if (rc)
		return rc;
	if (!comm_has_pe(comm, attr->peer))
		return comm_refuse_pe(comm, what, attr->peer);
	if (attr->index < 0 || (uint32_t)attr->index >= AREA_CHANNELS)
		return fail_call(-EINVAL, what,
			"rank %d: attr.index %d is not one of the %u channels to a peer, 0 to %u",
			comm->rank, attr->index, AREA_CHANNELS, AREA_CHANNELS - 1);
	if (attr->mem && (attr->remote || attr->remote_size))
		return fail_call(-EINVAL, what, "rank %d: attr.mem and attr.remote are both given",
			comm->rank);
	/* kernels do not look at sizes: one that was forgotten would be found out by nobody */
	if ((attr->remote && !attr->remote_size) || (attr->local && !attr->local_size))
		return fail_call(-EINVAL, what, "rank %d: attr.%s has 0 bytes", comm->rank,
			attr->remote && !attr->remote_size ? "remote" : "local");
	return 0;
}

/* A buffer of the heap: where it is at the peer and here. */
static int channel_symmetric(
	spmt_comm *comm, const struct spmt_channel_attr *attr, struct spmt_channel *c)
{
	static const struct call call = { "spmt_channel_get", "attr.remote", "attr.remote" };
	int rc = rma_open(comm, &call, attr->remote, attr->remote, attr->remote_size, attr->peer);

	if (rc || !attr->remote_size)
		return rc;
	c->remote = (uintptr_t)link_at(&comm->links[attr->peer], rma_offset(comm, attr->remote));
	c->incoming = c->local = (uintptr_t)attr->remote;
	c->remote_size = c->local_size = attr->remote_size;
	return 0;
}

static int channel_registered(
	spmt_comm *comm, const struct spmt_channel_attr *attr, struct spmt_channel *c)
{
	const struct spmtd_mem_peer *theirs, *own;
	struct mem_parts parts;
	int rc = mem_parts(comm, "spmt_channel_get", attr->mem, &parts);

	if (rc)
		return rc;
	theirs = &parts.host[attr->peer];
	own = &parts.host[comm->rank];
	if (theirs->size && !theirs->base)
		return mem_refuse_far(comm, "spmt_channel_get", attr->mem, attr->peer);
	c->remote = theirs->base;
	c->remote_size = theirs->size;
	c->incoming = c->local = own->base;
	c->local_size = own->size;
	return 0;
}

static int channel_local(const spmt_comm *comm, const char *what,
	const struct spmt_channel_attr *attr, uint64_t *local, uint64_t *local_size)
{
	int rc = 0;

	if (!attr->local && !attr->local_size)
		return 0;
	if (!attr->local)
		return fail_call(-EINVAL, what, "rank %d: attr.local is NULL with %zu bytes",
			comm->rank, attr->local_size);
	rc = local_check(comm, what, "attr.local", attr->local, attr->local_size);
	*local = (uintptr_t)attr->local;
	*local_size = attr->local_size;
	return rc;
}

static int channel_room_check(const spmt_comm *comm, const struct spmt_channel *channel)
{
	if (!channel)
		return fail_call(
			-EINVAL, "spmt_channel_get", "rank %d: channel is NULL", comm->rank);
	if (channel->size < offsetof(struct spmt_channel, reserved))
		return fail_call(-EINVAL, "spmt_channel_get",
			"rank %d: channel->size %u: set it to sizeof(struct spmt_channel)",
			comm->rank, channel->size);
	return 0;
}

static void channel_words(const spmt_comm *comm, int peer, uint32_t index, struct spmt_channel *c)
{
	const struct link *link = &comm->links[peer];
	uint64_t own = (uintptr_t)comm_own(comm), there = (uintptr_t)link_at(link, link->own);

	c->arrived = area_arrived(own, comm->nranks, peer, index);
	c->expected = area_expected(own, comm->nranks, peer, index);
	c->there = area_arrived(there, comm->nranks, comm->rank, index);
}

int spmt_channel_get(
	spmt_comm *comm, const struct spmt_channel_attr *attr, struct spmt_channel *channel)
{
	EXCLUSIVE(comm, __func__);
	struct spmt_channel whole = { .abi = SPMT_VIEW_ABI };
	int rc = comm_enter(comm, "spmt_channel_get");

	if (!rc)
		rc = view_whole(comm, "spmt_channel_get");
	if (!rc)
		rc = channel_attr_check(comm, "spmt_channel_get", attr);
	if (!rc)
		rc = channel_room_check(comm, channel);
	if (!rc)
		rc = attr->mem ? channel_registered(comm, attr, &whole)
			       : channel_symmetric(comm, attr, &whole);
	if (!rc)
		rc = channel_local(comm, "spmt_channel_get", attr, &whole.local, &whole.local_size);
	if (rc)
		return rc;
	whole.pe = comm->rank;
	whole.peer = attr->peer;
	channel_words(comm, attr->peer, (uint32_t)attr->index, &whole);
	whole.size = MIN_OF(channel->size, (uint32_t)sizeof(whole));
	memcpy(channel, &whole, whole.size);
	return 0;
}

/* ---- ports ------------------------------------------------------------------------------------ */

static int port_registered(
	spmt_comm *comm, const struct spmt_channel_attr *attr, struct fifo_port *port)
{
	struct mem_parts parts;
	int rc = mem_parts(comm, "spmt_port_get", attr->mem, &parts);

	if (rc)
		return rc;
	if (parts.host[attr->peer].size && !parts.host[attr->peer].base &&
		comm->links[attr->peer].base)
		return mem_refuse_far(comm, "spmt_port_get", attr->mem, attr->peer);
	port->mem = &attr->mem->posts;
	port->remote = parts.offsets[attr->peer];
	port->remote_size = parts.host[attr->peer].size;
	port->incoming = port->local = parts.host[comm->rank].base;
	port->incoming_size = port->local_size = parts.host[comm->rank].size;
	return 0;
}

static int port_symmetric(
	spmt_comm *comm, const struct spmt_channel_attr *attr, struct fifo_port *port)
{
	static const struct call call = { "spmt_port_get", "attr.remote", "attr.remote" };
	int rc = rma_open(comm, &call, attr->remote, attr->remote, attr->remote_size, attr->peer);

	if (rc || !attr->remote_size)
		return rc;
	port->remote = rma_offset(comm, attr->remote);
	port->incoming = port->local = (uintptr_t)attr->remote;
	port->remote_size = port->incoming_size = port->local_size = attr->remote_size;
	return 0;
}

static int port_check(
	spmt_comm *comm, const struct spmt_channel_attr *attr, const struct spmt_port *port)
{
	int rc = channel_attr_check(comm, "spmt_port_get", attr);

	if (rc)
		return rc;
	if (!port)
		return fail_call(-EINVAL, "spmt_port_get", "rank %d: port is NULL", comm->rank);
	if (port->size < offsetof(struct spmt_port, reserved))
		return fail_call(-EINVAL, "spmt_port_get",
			"rank %d: port->size %u: set it to sizeof(struct spmt_port)", comm->rank,
			port->size);
	return 0;
}

/* What the host is to know of it, and the fifo. */
static int port_open(spmt_comm *comm, const struct spmt_channel_attr *attr, struct fifo_port *port)
{
	uint32_t index = (uint32_t)attr->index;
	int rc = attr->mem ? port_registered(comm, attr, port) : port_symmetric(comm, attr, port);

	if (!rc)
		rc = channel_local(comm, "spmt_port_get", attr, &port->local, &port->local_size);
	if (rc)
		return rc;
	port->there =
		area_port_arrived(comm->links[attr->peer].own, comm->nranks, comm->rank, index);
	rc = fifo_open(comm);
	if (!rc)
		rc = fifo_port(comm, attr->peer, index, port);
	return comm_failed(comm, "spmt_port_get", rc);
}

int spmt_port_get(spmt_comm *comm, const struct spmt_channel_attr *attr, struct spmt_port *port)
{
	EXCLUSIVE(comm, __func__);
	struct fifo_port known = { .local = 0 };
	struct spmt_port whole = { .abi = SPMT_VIEW_ABI };
	uint64_t own;
	int rc = comm_enter(comm, "spmt_port_get");

	if (!rc)
		rc = port_check(comm, attr, port);
	if (!rc)
		rc = port_open(comm, attr, &known);
	if (rc)
		return rc;
	own = (uintptr_t)comm_own(comm);
	whole.pe = comm->rank;
	whole.peer = attr->peer;
	whole.fifo = fifo_device(comm->fifo);
	whole.index = (uint32_t)attr->index;
	whole.local_size = known.local_size;
	whole.remote_size = known.remote_size;
	whole.local = known.local;
	whole.incoming = known.incoming;
	whole.incoming_size = known.incoming_size;
	whole.arrived = area_port_arrived(own, comm->nranks, attr->peer, whole.index);
	whole.expected = area_port_expected(own, comm->nranks, attr->peer, whole.index);
	whole.size = MIN_OF(port->size, (uint32_t)sizeof(whole));
	memcpy(port, &whole, whole.size);
	return 0;
}

/* ---- switch channels ------------------------------------------------------------------------- */

static int switch_registered(spmt_comm *comm, spmt_mem *mem, struct spmt_switch *s)
{
	struct mem_parts parts;
	int rc = mem_parts(comm, "spmt_switch_get", mem, &parts);

	if (rc)
		return rc;
	s->bytes = UINT64_MAX;
	for (int pe = 0; pe < comm->nranks; pe++) {
		if (!parts.host[pe].size) /* kernels go to every rank, and do not look at sizes */
			return fail_call(-EINVAL, "spmt_switch_get",
				"rank %d: rank %d has no part of mem", comm->rank, pe);
		if (!parts.host[pe].base)
			return mem_refuse_far(comm, "spmt_switch_get", mem, pe);
		s->bytes = MIN_OF(s->bytes, parts.host[pe].size);
	}
	s->parts = parts.dev;
	return 0;
}

static int switch_symmetric(spmt_comm *comm, const void *sym, size_t bytes, struct spmt_switch *s)
{
	static const struct call call = { "spmt_switch_get", "sym", "sym" };
	struct spmt_view view;
	int rc = rma_open(comm, &call, sym, sym, bytes, comm->rank);

	if (rc)
		return rc;
	if (!bytes)
		return fail_call(-EINVAL, "spmt_switch_get",
			sym ? "rank %d: sym has 0 bytes"
			    : "rank %d: neither symmetric memory nor a registered buffer is given",
			comm->rank);
	view_fill(comm, &view);
	s->bytes = bytes;
	s->offset = rma_offset(comm, sym);
	s->flat = view.flat;
	s->stride = view.stride;
	s->peers = view.peers;
	return 0;
}

/* What is asked for is had, or refused: never another way that nobody sees. */
static int switch_multicast(spmt_comm *comm, const spmt_mem *mem, struct spmt_switch *s)
{
	int rc;

	if (LIKELY(!view_multicast_wanted()) || comm->nranks == 1)
		return 0;
	rc = mem ? fail(SPMT_ERR_UNSUPPORTED, "it is of the symmetric heap alone")
		 : view_multicast(comm, s->offset, s->bytes, &s->multicast);
	if (!rc)
		return 0;
	return fail_call(rc, "spmt_switch_get",
		"rank %d: SPMT_MULTICAST=1: no multicast for this buffer: %.300s; without the variable loads and stores go to each rank in turn",
		comm->rank, status_sentence());
}

int spmt_switch_get(
	spmt_comm *comm, const void *sym, size_t bytes, spmt_mem *mem, struct spmt_switch *sw)
{
	EXCLUSIVE(comm, __func__);
	struct spmt_switch whole = { .abi = SPMT_VIEW_ABI };
	int rc = comm_enter(comm, "spmt_switch_get");

	if (!rc)
		rc = view_whole(comm, "spmt_switch_get");
	if (rc)
		return rc;
	if (!sw)
		return fail_call(-EINVAL, "spmt_switch_get", "rank %d: sw is NULL", comm->rank);
	if (sw->size < offsetof(struct spmt_switch, reserved))
		return fail_call(-EINVAL, "spmt_switch_get",
			"rank %d: sw->size %u: set it to sizeof(struct spmt_switch)", comm->rank,
			sw->size);
	if (mem && (sym || bytes))
		return fail_call(-EINVAL, "spmt_switch_get", "rank %d: mem and sym are both given",
			comm->rank);
	rc = mem ? switch_registered(comm, mem, &whole)
		 : switch_symmetric(comm, sym, bytes, &whole);
	if (!rc)
		rc = switch_multicast(comm, mem, &whole);
	if (rc)
		return rc;
	whole.pe = comm->rank;
	whole.npes = comm->nranks;
	whole.size = MIN_OF(sw->size, (uint32_t)sizeof(whole));
	memcpy(sw, &whole, whole.size);
	return 0;
}
