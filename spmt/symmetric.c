/* SPDX-License-Identifier: MIT */
/*
 * Symmetric memory. Every rank does its own arithmetic, then all agree; equal calls in equal order
 * give equal offsets, so what has to be agreed is only that the calls were equal and that nobody
 * ran out.
 */
#include <errno.h>

#include "../src/status.h"
#include "rma.h"
#include "stream.h"

static int block_clear(spmt_comm *comm, uint64_t offset, uint64_t size)
{
	int rc = comm->backend->fill(comm->dev, comm->heap->base + offset, 0, size, comm->stream);

	return rc ? rc : stream_drain(comm, "spmt_calloc");
}

/* Takes the block, agrees, and gives it back if the others could not or did something else. */
static int block_agree(
	spmt_comm *comm, struct meet_record *record, uint64_t size, uint64_t align, void **ptr)
{
	uint64_t offset;
	bool got = false;
	int rc;

	if (!record->status) {
		record->status = heap_alloc(comm->heap, size, align, &offset);
		got = !record->status;
	}
	if (got && record->op == MEET_CALLOC && size)
		record->status = block_clear(comm, offset, size);
	rc = meet(comm, record);
	if (!rc)
		*ptr = comm->heap->base + offset;
	else if (got)
		heap_free(comm->heap, offset);
	return rc;
}

/* A rank that passed no output still meets the others, who must not wait for it. */
static int output_check(const spmt_comm *comm, const char *what, void *const *ptr)
{
	return ptr ? 0 : fail(-EINVAL, "%s: rank %d: ptr is NULL", what, comm->rank);
}

int spmt_malloc(spmt_comm *comm, size_t size, void **ptr)
{
	struct meet_record record = { .op = MEET_MALLOC, .key = { size } };
	int rc = comm_enter(comm, "spmt_malloc");

	if (rc)
		return rc;
	record.status = output_check(comm, "spmt_malloc", ptr);
	return block_agree(comm, &record, size, ARENA_ALIGN, ptr);
}

int spmt_calloc(spmt_comm *comm, size_t count, size_t size, void **ptr)
{
	struct meet_record record = { .op = MEET_CALLOC, .key = { count, size } };
	uint64_t bytes = 0;
	int rc = comm_enter(comm, "spmt_calloc");

	if (rc)
		return rc;
	record.status = output_check(comm, "spmt_calloc", ptr);
	if (!record.status && __builtin_mul_overflow(count, size, &bytes))
		record.status = fail(-ENOMEM,
			"spmt_calloc: rank %d: %zu elements of %zu bytes wrap the address space",
			comm->rank, count, size);
	return block_agree(comm, &record, bytes, ARENA_ALIGN, ptr);
}

int spmt_aligned_alloc(spmt_comm *comm, size_t alignment, size_t size, void **ptr)
{
	struct meet_record record = { .op = MEET_ALIGNED_ALLOC, .key = { alignment, size } };
	int rc = comm_enter(comm, "spmt_aligned_alloc");

	if (rc)
		return rc;
	record.status = output_check(comm, "spmt_aligned_alloc", ptr);
	if (!record.status && (!is_power_of_two(alignment) || alignment > HEAP_ALIGN))
		record.status = fail(-EINVAL,
			"spmt_aligned_alloc: rank %d: alignment %zu is not a power of two up to %llu",
			comm->rank, alignment, (unsigned long long)HEAP_ALIGN);
	return block_agree(comm, &record, size, alignment, ptr);
}

static int free_check(const spmt_comm *comm, const void *ptr)
{
	uint64_t size;

	if (!ptr)
		return 0;
	if (!heap_holds(comm->heap, ptr, 0))
		return fail(-EINVAL,
			"spmt_free: rank %d: ptr %p is not this rank's symmetric memory",
			comm->rank, ptr);
	if (arena_size(comm->heap->arena, heap_offset(comm->heap, ptr), &size))
		return fail(-EINVAL,
			"spmt_free: rank %d: no block begins at ptr %p (offset %llu): freed before, or inside a block",
			comm->rank, ptr, (unsigned long long)heap_offset(comm->heap, ptr));
	return 0;
}

int spmt_free(spmt_comm *comm, void *ptr)
{
	struct meet_record record = { .op = MEET_FREE };
	int rc = comm_enter(comm, "spmt_free");

	if (rc)
		return rc;
	record.key[0] = ptr ? heap_offset(comm->heap, ptr) : UINT64_MAX;
	record.status = free_check(comm, ptr);
	/* What this rank has in flight may be on its way to the block. */
	if (!record.status)
		record.status = quiet_all(comm, "spmt_free");
	rc = meet(comm, &record);
	if (!rc && ptr)
		rc = heap_free(comm->heap, heap_offset(comm->heap, ptr));
	return rc;
}

void *spmt_ptr(spmt_comm *comm, const void *sym, int pe)
{
	char *remote;
	void *ptr;

	if (comm_visit(comm, "spmt_ptr"))
		return NULL;
	ptr = rma_open(comm, "spmt_ptr", "sym", sym, sym, 1, pe, &remote) || !comm->links[pe].base
		? NULL
		: remote;
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
static int own_rank(const spmt_comm *comm)
{
	return comm ? comm->rank : 0;
}

int spmt_copy_in(spmt_comm *comm, void *dst_sym, const void *host_src, size_t size)
{
	char *own;
	int rc = rma_open(
		comm, "spmt_copy_in", "dst_sym", dst_sym, host_src, size, own_rank(comm), &own);

	if (rc || !size)
		return rc;
	rc = copy_now(comm, dst_sym, host_src, size, "spmt_copy_in");
	rma_stored(comm, comm->rank);
	return rc;
}

int spmt_copy_out(spmt_comm *comm, void *host_dst, const void *src_sym, size_t size)
{
	char *own;
	int rc = rma_open(
		comm, "spmt_copy_out", "src_sym", src_sym, host_dst, size, own_rank(comm), &own);

	return rc || !size ? rc : copy_now(comm, host_dst, src_sym, size, "spmt_copy_out");
}
