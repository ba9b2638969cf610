/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "../src/status.h"
#include "steps.h"

/* A flat range needs no table: peer addresses are computed. It must hold for every peer, as
   kernels do not look. */
static bool flat_for_all(const spmt_comm *comm)
{
	const struct heap_range *range = &comm->world->range;

	if (comm->world->range_state != 1)
		return false;
	for (int pe = 0; pe < comm->nranks; pe++)
		if (comm->links[pe].base != range->base + (uint64_t)pe * range->stride)
			return false;
	return true;
}

void view_fill(spmt_comm *comm, struct spmt_view *view)
{
	int64_t timeout_ms = comm_timeout(comm);

	*view = (struct spmt_view){
		.size = sizeof(*view),
		.abi = SPMT_VIEW_ABI,
		.pe = comm->rank,
		.npes = comm->nranks,
		.base = (uint64_t)(uintptr_t)comm->heap->base,
		.heap_size = comm->heap->size,
		.peers = comm->peers.dev,
		.own = (struct spmtd_own *)(void *)comm->heap->own,
		.stop = &comm->signals_dev->stop,
		.record = &comm->signals_dev->record,
		.timeout_ns = timeout_ms < 0 ? 0 : (uint64_t)timeout_ms * 1000000,
		.host = comm_cpu_access(comm) ? &comm->host.ops : NULL,
	};
	if (comm->flat) {
		view->flat = (uint64_t)(uintptr_t)comm->world->range.base;
		view->stride = comm->world->range.stride;
	}
}

void view_prepare(spmt_comm *comm)
{
	comm->flat = flat_for_all(comm);
	comm->host.ops = wait_callbacks;
	comm->host.comm = comm;
}

int spmt_view_get(spmt_comm *comm, struct spmt_view *view)
{
	struct spmt_view whole;
	int rc = comm_enter(comm, "spmt_view_get");

	if (rc)
		return rc;
	if (!view)
		return fail(-EINVAL, "spmt_view_get: rank %d: view is NULL", comm->rank);
	if (view->size < offsetof(struct spmt_view, reserved))
		return fail(-EINVAL,
			"spmt_view_get: rank %d: view->size %u: set it to sizeof(struct spmt_view)",
			comm->rank, view->size);
	view_fill(comm, &whole);
	whole.size = MIN_OF(view->size, (uint32_t)sizeof(whole));
	memcpy(view, &whole, whole.size);
	return 0;
}
