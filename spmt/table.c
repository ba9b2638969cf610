/* SPDX-License-Identifier: MIT */
/* Memory that calls and kernels share, and launching kernels. */
#include <errno.h>

#include "../src/mem.h"
#include "../src/status.h"
#include "rma.h"
#include "stream.h"

#define KERNEL_BLOCK 512

/*
 * A vendor's free waits for the whole device, kernels that wait for a peer included. So what a call
 * needs of device or pinned memory is kept until finalize and used again.
 */

/* ---- tables ---------------------------------------------------------------------------------- */

/* Lies in the host's part of a table that nobody uses. */
struct spare_table {
	struct spare_table *next;
	void *dev;
	size_t size;
};
_Static_assert(sizeof(struct spare_table) <= CACHE_LINE, "every table has room for it");

int table_open(spmt_comm *comm, size_t size, struct kernel_table *table)
{
	struct spare_table **at = &comm->spare_tables;

	*table = (struct kernel_table){ .size = size };
	while (*at && (*at)->size != size)
		at = &(*at)->next;
	if (*at) {
		table->host = *at;
		table->dev = (*at)->dev;
		*at = (*at)->next;
		return 0;
	}
	table->host = mem_aligned(CACHE_LINE, align_up(MAX_OF(size, 1u), CACHE_LINE));
	if (!table->host)
		return fail(-ENOMEM, "rank %d: out of memory for a table of %zu bytes", comm->rank,
			size);
	return 0;
}

int table_publish(spmt_comm *comm, struct kernel_table *table)
{
	int rc = 0;

	if (comm_cpu_access(comm)) {
		table->dev = table->host;
		return 0;
	}
	if (!table->dev)
		rc = comm->backend->alloc(comm->dev, table->size, DEVICE_MEMORY_PLAIN, &table->dev);
	if (!rc)
		rc = comm->backend->copy(
			comm->dev, table->dev, table->host, table->size, comm->stream);
	return rc ? rc : stream_drain(comm, "spmt_init");
}

void table_close(spmt_comm *comm, struct kernel_table *table)
{
	struct spare_table *spare = table->host;

	if (!spare)
		return;
	*spare = (struct spare_table){ .next = comm->spare_tables,
		.dev = table->dev == table->host ? NULL : table->dev,
		.size = table->size };
	comm->spare_tables = spare;
	*table = (struct kernel_table){ .host = NULL };
}

/* ---- scratch --------------------------------------------------------------------------------- */

struct scratch {
	struct scratch *older;
	void *dev;
	size_t size; /* behind this head */
};
#define SCRATCH_HEAD CACHE_LINE
#define SCRATCH_LEAST 4096u

int scratch_room(spmt_comm *comm, size_t size)
{
	size_t bytes = SCRATCH_LEAST;
	void *host, *dev;
	int rc;

	if (comm->scratches && comm->scratches->size >= size)
		return 0;
	while (bytes - SCRATCH_HEAD < size)
		bytes *= 2;
	rc = comm->backend->host_alloc(comm->dev, bytes, &host, &dev);
	if (rc)
		return rc;
	*(struct scratch *)host = (struct scratch){
		.older = comm->scratches, .dev = dev, .size = bytes - SCRATCH_HEAD
	};
	comm->scratches = host;
	return 0;
}

void *scratch_host(const spmt_comm *comm)
{
	return (char *)comm->scratches + SCRATCH_HEAD;
}

void *scratch_dev(const spmt_comm *comm)
{
	return (char *)comm->scratches->dev + SCRATCH_HEAD;
}

void tables_drop(spmt_comm *comm)
{
	while (comm->spare_tables) {
		struct spare_table *spare = comm->spare_tables;

		comm->spare_tables = spare->next;
		if (spare->dev)
			comm->backend->free(comm->dev, spare->dev);
		mem_free(spare);
	}
	while (comm->scratches) {
		struct scratch *scratch = comm->scratches;

		comm->scratches = scratch->older;
		comm->backend->host_free(comm->dev, scratch);
	}
}

/* ---- kernels --------------------------------------------------------------------------------- */

int kernel_run_wide(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	unsigned blocks, device_stream stream)
{
	bool host = comm_cpu_access(comm);
	int rc = comm->backend->launch(
		comm->dev, stream, kernel, host ? 1 : blocks, host ? 1 : KERNEL_BLOCK, args, size);

	return rc ? rc : stream_note(comm, stream);
}

int kernel_run(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	device_stream stream)
{
	int rc = comm->backend->launch(comm->dev, stream, kernel, 1, 1, args, size);

	return rc ? rc : stream_note(comm, stream);
}
