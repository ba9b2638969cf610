/* SPDX-License-Identifier: MIT */
/*
 * Symmetric memory. Every rank does its own arithmetic, then all agree. In a world that was never
 * split, equal calls in equal order give equal offsets, and one meeting sees that they do. The ranks
 * of a split comm have allocated on other comms, too, each on others: where their offsets differ, all
 * look again from the greatest on, below which at least one of them has no room.
 */
#include <errno.h>

#include "misuse.h"
#include "rma.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "sync.h"

static int block_clear(spmt_comm *comm, uint64_t offset, uint64_t size)
{
	int rc = comm->backend->fill(comm->dev, comm->heap->base + offset, 0, size, comm->stream);

	return rc ? rc : stream_drain(comm, "spmt_calloc");
}

#define NO_BLOCK UINT64_MAX

/* Whether all ranks have brought the same offset; *greatest: the greatest of them. */
static bool offsets_agree(const spmt_comm *comm, uint64_t *greatest)
{
	uint64_t first = meet_payload(comm, 0, 0);
	bool same = true;

	*greatest = first;
	for (int pe = 1; pe < comm->nranks; pe++) {
		uint64_t offset = meet_payload(comm, pe, 0);

		same &= offset == first;
		*greatest = MAX_OF(*greatest, offset);
	}
	*greatest = MIN_OF(*greatest, comm->heap->size);
	return same;
}

static int block_take(spmt_comm *comm, const struct meet_record *record,
	const struct arena_want *want, uint64_t *offset)
{
	int rc = heap_take(comm->heap, want, offset);

	if (!rc && record->op == MEET_CALLOC && want->size)
		rc = block_clear(comm, *offset, want->size);
	if (!rc && comm_checked(comm))
		rc = misuse_fence(comm, meet_name(record->op), *offset);
	return comm_failed(comm, meet_name(record->op), rc);
}

/*
 * Comms of the same ranks that allocate concurrently obstruct each other with blocks taken but not yet
 * agreed on: each skips the other's, one ahead on some ranks and the other on others, up to the end of the
 * heap. So after some rounds a comm leaps, in its own way and farther each time; and once the end is
 * reached all search once more from the start, in turns without leaps, so that no gap is missed.
 */
#define SEEK_PATIENCE 6
#define SEEK_PASSES 4

struct seek {
	int round, pass;
	bool apart; /* ranks have brought different offsets */
};

static uint64_t seek_leap(const spmt_comm *comm, const struct seek *seek, uint64_t size)
{
	int times = MIN_OF(seek->round - SEEK_PATIENCE, 24);
	uint64_t step = size + ARENA_ALIGN, most = comm->heap->size / 2;
	uint64_t spread = step < most >> times ? step << times : most;

	return ((comm->id + (uint64_t)seek->round) * 0x9e3779b97f4a7c15u >> 16) % spread;
}

/* After a meeting: whether to look again and from where; the result is equal on all ranks. */
static bool seek_on(spmt_comm *comm, int rc, struct seek *seek, struct arena_want *want)
{
	uint64_t greatest;

	if (rc == -ENOMEM && seek->apart && ++seek->pass < SEEK_PASSES) {
		seek->round = 0;
		want->from = 0;
		return true;
	}
	if (rc || offsets_agree(comm, &greatest))
		return false;
	seek->apart = true;
	want->from = greatest;
	if (++seek->round > SEEK_PATIENCE && seek->pass % 2 == 0)
		want->from += seek_leap(comm, seek, want->size);
	return true;
}

/* Takes a block, agrees, and gives it back if the others could not or did something else. */
static int block_agree(
	spmt_comm *comm, struct meet_record *record, uint64_t size, uint64_t align, void **ptr)
{
	struct arena_want want = { .size = size, .align = align, .owner = comm->id };
	struct seek seek = { .round = 0 };
	uint64_t offset = NO_BLOCK;
	int rc;

	for (;;) {
		if (!record->status && offset == NO_BLOCK)
			record->status = block_take(comm, record, &want, &offset);
		record->payload[0] = offset;
		rc = meet(comm, record);
		if (!seek_on(comm, rc, &seek, &want))
			break;
		if (offset != NO_BLOCK && offset != want.from) {
			heap_free(comm->heap, offset);
			offset = NO_BLOCK;
		}
		record->status = 0;
	}
	if (!rc && comm_checked(comm))
		heap_named(comm->heap, offset, meet_name(record->op), ++comm->made);
	if (!rc)
		*ptr = comm->heap->base + offset;
	else if (offset != NO_BLOCK)
		heap_free(comm->heap, offset);
	return rc;
}

/* A rank that passed no output still meets the others, who must not wait for it. */
static int output_check(const spmt_comm *comm, const char *what, void *const *ptr)
{
	return ptr ? 0 : fail_call(-EINVAL, what, "rank %d: ptr is NULL", comm->rank);
}

int spmt_malloc(spmt_comm *comm, size_t size, void **ptr)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	struct meet_record record = { .op = MEET_MALLOC, .key = { size } };
	int rc = comm_begin(comm, "spmt_malloc");

	if (rc)
		return rc;
	record.status = output_check(comm, "spmt_malloc", ptr);
	rc = block_agree(comm, &record, size, ARENA_ALIGN, ptr);
	comm_unclaim(comm);
	return rc;
}

int symmetric_calloc(spmt_comm *comm, size_t count, size_t size, void **ptr)
{
	struct meet_record record = { .op = MEET_CALLOC, .key = { count, size } };
	uint64_t bytes = 0;

	record.status = output_check(comm, "spmt_calloc", ptr);
	if (!record.status && __builtin_mul_overflow(count, size, &bytes))
		record.status = fail_call(-ENOMEM, "spmt_calloc",
			"rank %d: %zu elements of %zu bytes wrap the address space", comm->rank,
			count, size);
	return block_agree(comm, &record, bytes, ARENA_ALIGN, ptr);
}

int spmt_calloc(spmt_comm *comm, size_t count, size_t size, void **ptr)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	int rc = comm_begin(comm, "spmt_calloc");

	if (rc)
		return rc;
	rc = symmetric_calloc(comm, count, size, ptr);
	comm_unclaim(comm);
	return rc;
}

int spmt_aligned_alloc(spmt_comm *comm, size_t alignment, size_t size, void **ptr)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	struct meet_record record = { .op = MEET_ALIGNED_ALLOC, .key = { alignment, size } };
	int rc = comm_begin(comm, "spmt_aligned_alloc");

	if (rc)
		return rc;
	record.status = output_check(comm, "spmt_aligned_alloc", ptr);
	if (!record.status && (!is_power_of_two(alignment) || alignment > HEAP_ALIGN))
		record.status = fail_call(-EINVAL, "spmt_aligned_alloc",
			"rank %d: alignment %zu is not a power of two up to %llu", comm->rank,
			alignment, (unsigned long long)HEAP_ALIGN);
	rc = block_agree(comm, &record, size, alignment, ptr);
	comm_unclaim(comm);
	return rc;
}

static int free_check(const spmt_comm *comm, const void *ptr)
{
	uint64_t owner;
	int rc;

	if (!ptr)
		return 0;
	if (!heap_holds(comm->heap, ptr, 0))
		return fail_call(-EINVAL, "spmt_free",
			"rank %d: ptr %p is not this rank's symmetric memory", comm->rank, ptr);
	if (comm_checked(comm) && (rc = misuse_free(comm, ptr)))
		return rc;
	if (heap_owner(comm->heap, heap_offset(comm->heap, ptr), &owner) || owner == HEAP_LIBRARY)
		return fail_call(-EINVAL, "spmt_free",
			"rank %d: no block begins at ptr %p (offset %llu): freed before, or inside a block",
			comm->rank, ptr, (unsigned long long)heap_offset(comm->heap, ptr));
	if (owner != comm->id)
		return fail_call(-EINVAL, "spmt_free",
			"rank %d: the block at ptr %p was allocated on another comm: free it there",
			comm->rank, ptr);
	return 0;
}

/* With SPMT_CHECK a second meeting tells all ranks what one has found. */
static int free_reported(spmt_comm *comm, const void *ptr)
{
	struct meet_record record = { .op = MEET_FREED };

	record.status = misuse_freed(comm, heap_offset(comm->heap, ptr));
	return meet(comm, &record);
}

int symmetric_free(spmt_comm *comm, void *ptr)
{
	struct meet_record record = { .op = MEET_FREE };
	int rc;

	record.key[0] = ptr ? heap_offset(comm->heap, ptr) : MEET_FREE_NULL;
	record.status = free_check(comm, ptr);
	/* Moves of this rank may still be on their way to the block. */
	if (!record.status)
		record.status = quiet_all(comm, "spmt_free");
	rc = meet(comm, &record);
	if (rc || !ptr)
		return rc;
	return comm_checked(comm) ? free_reported(comm, ptr)
				  : heap_free(comm->heap, heap_offset(comm->heap, ptr));
}

int spmt_free(spmt_comm *comm, void *ptr)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	int rc = comm_begin(comm, "spmt_free");

	if (rc)
		return rc;
	rc = symmetric_free(comm, ptr);
	comm_unclaim(comm);
	return rc;
}

/* May run beside any call, so it does not enter. */
static void *ptr_at(spmt_comm *comm, const void *sym, int pe)
{
	static const struct call call = { "spmt_ptr", "sym", "sym" };

	if (atomic_load_explicit(&comm->control->stop, memory_order_relaxed)) {
		comm_refuse(comm, call.name);
		return NULL;
	}
	if (!comm_has_pe(comm, pe)) {
		comm_refuse_pe(comm, call.name, pe);
		return NULL;
	}
	/* A block of no bytes has an address, too. */
	if (!sym || !heap_clear(comm->heap, sym, 1))
		if (rma_judge(comm, &call, sym, sym, comm_checked(comm) ? 0 : 1))
			return NULL;
	return comm->links[pe].base ? link_at(&comm->links[pe], rma_offset(comm, sym)) : NULL;
}

void *spmt_ptr(spmt_comm *comm, const void *sym, int pe)
{
	void *ptr;

	if (comm_visit(comm, "spmt_ptr"))
		return NULL;
	ptr = ptr_at(comm, sym, pe);
	comm_left(comm);
	return ptr;
}

/* ---- to and from host memory --------------------------------------------------------------- */

static int copy_now(spmt_comm *comm, void *dst, const void *src, size_t size, const char *what)
{
	int rc;

	if (comm_cpu_access(comm)) {
		store_bytes(dst, src, size);
		return 0;
	}
	rc = comm->backend->copy(comm->dev, dst, src, size, comm->stream);
	return comm_failed(comm, what, rc ? rc : stream_drain(comm, what));
}

/* Of a comm that is yet to be checked. */
static int rank_or_zero(const spmt_comm *comm)
{
	return comm ? comm->rank : 0;
}

int spmt_copy_in(spmt_comm *comm, void *dst_sym, const void *host_src, size_t size)
{
	static const struct call call = { "spmt_copy_in", "dst_sym", "host_src" };
	EXCLUSIVE(comm, __func__);
	int rc = rma_open(comm, &call, dst_sym, host_src, size, rank_or_zero(comm));

	if (rc || !size)
		return rc;
	rc = copy_now(comm, dst_sym, host_src, size, call.name);
	rma_stored(comm, comm->rank);
	return rc;
}

int spmt_copy_out(spmt_comm *comm, void *host_dst, const void *src_sym, size_t size)
{
	static const struct call call = { "spmt_copy_out", "src_sym", "host_dst" };
	EXCLUSIVE(comm, __func__);
	int rc = rma_open(comm, &call, src_sym, host_dst, size, rank_or_zero(comm));

	return rc || !size ? rc : copy_now(comm, host_dst, src_sym, size, call.name);
}
