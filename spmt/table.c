/* SPDX-License-Identifier: MIT */
/* Tables for kernels, and launching them. */
#include <errno.h>

#include "../src/mem.h"
#include "../src/status.h"
#include "rma.h"
#include "stream.h"

#define KERNEL_BLOCK 512

int table_open(spmt_comm *comm, size_t size, struct kernel_table *table)
{
	*table = (struct kernel_table){ .host = mem_aligned(CACHE_LINE, align_up(size, CACHE_LINE)),
		.size = size };
	if (!table->host)
		return fail(-ENOMEM, "rank %d: out of memory for a table of %zu bytes", comm->rank,
			size);
	if (comm_cpu_access(comm)) {
		table->dev = table->host;
		return 0;
	}
	return comm->backend->alloc(comm->dev, size, DEVICE_MEMORY_PLAIN, &table->dev);
}

int table_publish(spmt_comm *comm, const struct kernel_table *table)
{
	int rc;

	if (table->dev == table->host)
		return 0;
	rc = comm->backend->copy(comm->dev, table->dev, table->host, table->size, comm->stream);
	return rc ? rc : stream_drain(comm, "spmt_init");
}

void table_close(spmt_comm *comm, struct kernel_table *table)
{
	if (table->dev && table->dev != table->host)
		comm->backend->free(comm->dev, table->dev);
	mem_free(table->host);
	*table = (struct kernel_table){ .host = NULL };
}

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
