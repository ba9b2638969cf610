/* SPDX-License-Identifier: MIT */
/* What all collectives begin and end with in a stream, and what of them is settled at init. */
#include <errno.h>

#include "collective.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/record.h"
#include "src/base/status.h"
#include "src/kernels/area.h"
#include "src/kernels/kernels.h"

_Static_assert(COLL_BLOCKS <= AREA_BLOCKS, "each has words to meet by");

int coll_begin(spmt_comm *comm, device_stream stream, struct coll_in_stream *in)
{
	int rc;

	comm->collectives = true;
	*in = (struct coll_in_stream){ .stream = stream };
	rc = stream_reserve_collective(comm, stream, &in->reserved);
	comm->graphs |= in->reserved.captured;
	return rc;
}

void coll_end(spmt_comm *comm, const struct coll_in_stream *in)
{
	if (in->queued)
		stream_note(comm, &in->reserved);
}

uint64_t coll_report(const spmt_comm *comm)
{
	return (uint64_t)(uintptr_t)kernel_report_of(comm->signals_dev);
}

/* Blocks of threads meet inside the kernel: few where few bytes move, never more than are sure to run at once. */
unsigned coll_grid(const spmt_comm *comm, uint64_t bytes, uint64_t grain, unsigned most)
{
	uint64_t units = (uint64_t)MAX_OF(comm->units, 1);

	return (unsigned)MAX_OF(1u, MIN_OF(bytes / grain, MIN_OF(most, units)));
}

/* Whoever asks for slots gets them as large on CPUs. */
uint32_t coll_room(const spmt_comm *comm, uint64_t most)
{
	bool asked = comm->coll_wanted >= 0 && coll_rows[comm->coll_wanted].way == COLL_BY_SLOTS;

	return coll_slot_room(comm->nranks, most, comm_cpu_access(comm) && !asked);
}

int coll_wish(spmt_comm *comm, const char *name)
{
	char names[256];

	comm->coll_wanted = name ? coll_named(name) : -1;
	if (!name || comm->coll_wanted >= 0)
		return 0;
	coll_names(names, sizeof(names));
	return fail_call(-EINVAL, "spmt_init",
		"rank %d: SPMT_COLL=%s is no algorithm of collectives; there are: %s, plan:FILE",
		comm->rank, name, names);
}
