/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/control/exclusive.h"
#include "spmt/proxy/fifo.h"
#include "spmt/proxy/queues.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "src/kernels/area.h"
#include "view.h"
#include "wait.h"

static uint64_t flat_stride(const spmt_comm *comm)
{
	return comm->nranks > 1 ? (uintptr_t)comm->links[1].base - (uintptr_t)comm->links[0].base
				: comm->world->range.stride;
}

/* If heaps lie in one range, some comms need no table, because peer addresses are computed. This
   must hold for every peer and its library area, as kernels do not check. Never with ranks of
   other processes, however their heaps came to lie here: those see this rank's elsewhere, which
   only the table tells. */
static bool flat_for_all(const spmt_comm *comm)
{
	const struct link *first = &comm->links[0];

	if (comm->world->range_state != 1 || comm_spans_processes(comm) ||
		(int64_t)flat_stride(comm) <= 0)
		return false;
	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct link *link = &comm->links[pe];

		if (!link->base || link->base != link_at(first, (uint64_t)pe * flat_stride(comm)) ||
			link->own != first->own)
			return false;
	}
	return true;
}

void view_fill(spmt_comm *comm, struct spmt_view *view)
{
	int64_t timeout_ms = comm_timeout(comm);
	uint64_t timeout_ns = (uint64_t)timeout_ms * 1000000;

	*view = (struct spmt_view){
		.size = sizeof(*view),
		.abi = SPMT_VIEW_ABI,
		.pe = comm->rank,
		.npes = comm->nranks,
		.base = (uint64_t)(uintptr_t)comm->heap->base,
		.heap_size = comm->heap->size,
		.peers = comm->peers.dev,
		.own = (struct spmtd_own *)(void *)comm_own(comm),
		.stop = &comm->stop_word->dev->stop,
		.record = &comm->signals_dev->record,
		/* 0 would mean none */
		.timeout_ns = timeout_ms < 0 ? 0 : MAX_OF(timeout_ns, 1),
		.host = comm_cpu_access(comm) ? &comm->host.ops : NULL,
		.sessions = area_sessions(0, comm->nranks),
		.nsessions = AREA_SESSIONS,
		.sdma = queues_device(comm),
	};
	if (comm->flat) {
		view->flat = (uint64_t)(uintptr_t)comm->links[0].base;
		view->stride = flat_stride(comm);
	}
}

bool view_multicast_wanted(void)
{
	const struct env *env = env_loaded();

	return env && env->multicast;
}

int view_multicast(spmt_comm *comm, uint64_t offset, uint64_t bytes, uint64_t *address)
{
	const struct heap **heaps;
	size_t unit;
	int rc;

	for (int pe = 0; pe < comm->nranks; pe++)
		if (!comm_is_local(comm, pe))
			return fail(SPMT_ERR_UNSUPPORTED, "rank %d is in another process", pe);
	heaps = mem_calloc((size_t)comm->nranks, sizeof(*heaps));
	if (!heaps)
		return fail(-ENOMEM, "out of memory for a list of %d heaps", comm->nranks);
	for (int pe = 0; pe < comm->nranks; pe++)
		heaps[pe] = &comm->world->slots[comm_world_rank(comm, pe)].heap;
	rc = address ? heap_window_open(
			       &comm->world->windows, heaps, comm->nranks, offset, bytes, address)
		     : heap_window_check(heaps, comm->nranks, &unit);
	mem_free(heaps);
	return rc;
}

int view_whole(const spmt_comm *comm, const char *what)
{
	const struct far_link *far = &comm->far;

	if (LIKELY(!far->map))
		return 0;
	return fail_call(SPMT_ERR_UNSUPPORTED, what,
		"rank %d: kernels cannot work here: rank %d reaches rank %d by map %s, through which no kernel loads or stores",
		comm->rank, far->rank, far->peer, map_name(far->map));
}

int view_too_old(const spmt_comm *comm, const char *what)
{
	return fail_call(SPMT_ERR_UNSUPPORTED, what,
		"rank %d: rank %d reaches rank %d by map %s, which kernels compiled with SPMT_NEAR, or an earlier spmt_device.h, do not know",
		comm->rank, comm->far.rank, comm->far.peer, map_name(comm->far.map));
}

void view_prepare(spmt_comm *comm)
{
	comm->flat = flat_for_all(comm);
	comm->host.ops = wait_callbacks;
	comm->host.comm = comm;
	/* On GPUs kernels cannot break the comm themselves. */
	comm->raised =
		comm_cpu_access(comm) ? control_stop_word(comm->control) : &comm->stop_word->stop;
	for (int pe = 0; comm->links && pe < comm->nranks; pe++)
		comm->links[pe].heeded = &comm->stop_word->stop;
}

/* What kernels post by, where they do not reach some peer themselves. */
static int view_far(spmt_comm *comm, const struct spmt_view *view)
{
	if (LIKELY(!comm->far.map))
		return 0;
	/* these would take an offset for an address */
	if (view->size < offsetof(struct spmt_view, fifo) + sizeof(view->fifo))
		return view_too_old(comm, "spmt_view_get");
	return comm_failed(comm, "spmt_view_get", fifo_open(comm));
}

int spmt_view_get(spmt_comm *comm, struct spmt_view *view)
{
	EXCLUSIVE(comm, __func__);
	struct spmt_view whole;
	int rc = comm_enter(comm, "spmt_view_get");

	if (rc)
		return rc;
	if (!view)
		return fail_call(-EINVAL, "spmt_view_get", "rank %d: view is NULL", comm->rank);
	if (view->size < offsetof(struct spmt_view, sessions))
		return fail_call(-EINVAL, "spmt_view_get",
			"rank %d: view->size %u: set it to sizeof(struct spmt_view)", comm->rank,
			view->size);
	rc = view_far(comm, view);
	if (rc)
		return rc;
	queues_open(comm);
	view_fill(comm, &whole);
	whole.fifo = comm->far.map ? spmtd_to_(fifo_device(comm->fifo)) : NULL;
	whole.size = MIN_OF(view->size, (uint32_t)sizeof(whole));
	memcpy(view, &whole, whole.size);
	return 0;
}
