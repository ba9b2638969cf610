/* SPDX-License-Identifier: MIT */
/* What all collectives begin and end with in a stream, and what of them is settled at init. */
#include <errno.h>
#include <string.h>

#include "collective.h"
#include "engine.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "src/base/env.h"
#include "src/base/status.h"
#include "src/kernels/area.h"
#include "src/kernels/coll/quads.h"
#include "src/kernels/kernels.h"

_Static_assert(
	COLL_MEETING <= AREA_BLOCKS && COLL_PUSHING <= AREA_BLOCKS, "each has words to meet by");

int coll_begin(spmt_comm *comm, device_stream stream, struct coll_in_stream *in)
{
	int rc;

	comm->collectives = true;
	*in = (struct coll_in_stream){ .stream = stream };
	rc = engine_begin(comm);
	if (rc)
		return rc;
	rc = stream_reserve_collective(comm, stream, &in->reserved);
	comm->graphs |= in->reserved.captured;
	return rc;
}

void coll_end(spmt_comm *comm, const struct coll_in_stream *in)
{
	if (!in->queued)
		return;
	stream_note(comm, &in->reserved);
	engine_end(comm, in->key, in->reserved.captured);
}

uint64_t coll_report(const spmt_comm *comm)
{
	return (uint64_t)(uintptr_t)kernel_report_of(comm->signals_dev);
}

/* A collective's kernel waits for late ranks, and one of those may wait for a kernel of another stream here: some units stay free for that. */
static uint64_t most_blocks(const spmt_comm *comm)
{
	const struct env *env = env_loaded();
	uint64_t units = (uint64_t)MAX_OF(comm->units, 1);

	return MIN_OF(units - units / 32, env ? (uint64_t)env->coll_blocks : 1);
}

/* Blocks of threads meet inside the kernel: few where few bytes move, never more than are sure to run at once. */
unsigned coll_grid(const spmt_comm *comm, uint64_t bytes, uint64_t grain, unsigned most)
{
	return (unsigned)MAX_OF(1u, MIN_OF(bytes / grain, MIN_OF(most, most_blocks(comm))));
}

bool coll_device_is_shared(const struct rank_info *a, const struct rank_info *b)
{
	static const unsigned char none[sizeof(a->uuid)];

	if (memcmp(a->host, b->host, sizeof(a->host)))
		return false;
	if (!memcmp(a->process, b->process, sizeof(a->process)) && a->settled == b->settled)
		return true;
	if (memcmp(a->uuid, none, sizeof(none)))
		return !memcmp(a->uuid, b->uuid, sizeof(a->uuid));
	return a->pci[0] && !memcmp(a->pci, b->pci, sizeof(a->pci));
}

bool coll_has_device(const spmt_comm *comm)
{
	bool parts;

	if (comm->parent || comm->lane || comm->sharers > 1 || !world_is_only(comm->world))
		return false;
	pthread_mutex_lock(&comm->slot->lock);
	parts = comm->children != NULL;
	pthread_mutex_unlock(&comm->slot->lock);
	return !parts;
}

bool coll_is_alone(const spmt_comm *comm, const struct kernel *kernel)
{
	return kernel->early && !comm_cpu_access(comm) && coll_has_device(comm);
}

/* One phase takes what its threads execute: more blocks than where those of a rank meet; a copy has half the threads in flight. */
static struct kernel_grid most_of(int row, bool folds)
{
	if (row == COLL_ROW_ll12)
		return (struct kernel_grid){ COLL_LL12_BLOCKS, COLL_LL12_THREADS };
	if (row == COLL_ROW_ll)
		return folds ? (struct kernel_grid){ COLL_LL_FOLDS, COLL_LL_THREADS }
			     : (struct kernel_grid){ COLL_LL_COPIES, COLL_LL_THREADS / 2 };
	if (row == COLL_ROW_push2)
		return (struct kernel_grid){ COLL_PUSHING, KERNEL_BLOCK };
	if (row == COLL_ROW_twoshot || row == COLL_ROW_give)
		return (struct kernel_grid){ COLL_MEETING, KERNEL_BLOCK };
	return (struct kernel_grid){ COLL_BLOCKS, KERNEL_BLOCK };
}

/*
 * Half of the units, which begin early (kernel_behind), or 0: more of them are faster. `through`: bytes that come through a rank. Of `push2`
 * all is under way at once then, two pieces of each block; measured between two alone.
 */
static unsigned half_of(const spmt_comm *comm, int row, uint64_t through)
{
	unsigned half = (unsigned)MAX_OF(comm->units, 1) / 2;
	uint64_t once = 2ull * half * 16 * coll_piece(comm->nranks) * (unsigned)comm->nranks;
	bool does = row == COLL_ROW_ll12
		? through <= COLL_LL12_HALF
		: row == COLL_ROW_push2 && comm->nranks == 2 && through <= once;

	return does && half >= COLL_HALF_LEAST ? half : 0;
}

/* The last threads announce the call, which takes as long as the others' work. */
#define COLL_TELLERS 32

/* Whole warps, and one more without data; each thread has a part of each rank's block. */
static uint64_t ll12_threads(uint64_t bytes, unsigned grid)
{
	uint64_t all = quads_of((bytes + 15) / 16) * QUAD, together = QUADS_WARP * (uint64_t)grid;

	return (MAX_OF((all + together - 1) / together, 1) + 1) * QUADS_WARP;
}

/* By slots no more threads than have something to do: few meet sooner. */
struct kernel_grid coll_shape(
	const spmt_comm *comm, int row, bool folds, uint64_t bytes, uint64_t blocks)
{
	struct kernel_grid most = most_of(row, folds);
	unsigned half = half_of(comm, row, bytes * blocks), grid;
	uint64_t units, work;

	if (half)
		most.blocks = MIN_OF(most.blocks, half);
	grid = coll_grid(comm, bytes * blocks, coll_rows[row].grain, most.blocks);
	if (grid > COLL_BLOCKS && !coll_has_device(comm))
		grid = COLL_BLOCKS;
	units = (bytes + 15) / 16 / grid + 1;
	work = row == COLL_ROW_ll12 ? ll12_threads(bytes, grid)
				    : (uint64_t)comm->nranks * (units + 1) + COLL_TELLERS;
	return kernel_grid_of(comm, grid,
		coll_rows[row].way == COLL_BY_SLOTS ? MIN_OF(work, most.threads) : most.threads);
}

uint32_t coll_room(const spmt_comm *comm, uint64_t most)
{
	return coll_slot_room(comm->nranks, most, comm_cpu_access(comm), coll_whole_units(comm),
		comm->coll_wanted);
}

bool coll_whole_units(const spmt_comm *comm)
{
	return comm->backend->traits & DEVICE_WHOLE_UNITS;
}

/* Bytes of its library area that a comm of one process has for row push2. */
uint64_t coll_stage_room(const spmt_comm *comm)
{
	bool on_cpu = comm_cpu_access(comm);

	if (comm->nranks < 2 || comm->nranks > COLL_BLOCKS_RANKS || comm_spans_processes(comm) ||
		(on_cpu && comm->coll_wanted != COLL_ROW_push2))
		return 0;
	return coll_stage_size(comm->nranks, on_cpu ? 1 : COLL_PUSHING);
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
