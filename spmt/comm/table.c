/* SPDX-License-Identifier: MIT */
/* Memory that calls and kernels share, and launching kernels. */
#include <errno.h>
#include <string.h>

#include "record.h"
#include "spmt/comm/comm.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"
#include "stream.h"

/*
 * A vendor's free waits for the whole device, including kernels that wait for a peer. So the slot
 * keeps the device and pinned memory of calls until the world ends, and the next comm of the rank
 * that asks reuses it.
 */

/* ---- tables ---------------------------------------------------------------------------------- */

/* Lies in the host's part of a table that nobody uses. */
struct spare_table {
	struct spare_table *next;
	void *dev;
	size_t size;
};
_Static_assert(sizeof(struct spare_table) <= CACHE_LINE, "every table has room for it");

static struct spare_table *spare_take(struct slot *slot, size_t size)
{
	struct spare_table **at = &slot->tables, *spare;

	pthread_mutex_lock(&slot->lock);
	while (*at && (*at)->size != size)
		at = &(*at)->next;
	spare = *at;
	if (spare)
		*at = spare->next;
	pthread_mutex_unlock(&slot->lock);
	return spare;
}

int table_open(spmt_comm *comm, size_t size, struct kernel_table *table)
{
	struct spare_table *spare = spare_take(comm->slot, size);

	*table = (struct kernel_table){ .size = size };
	if (spare) {
		table->host = spare;
		table->dev = spare->dev;
		return 0;
	}
	table->host = mem_aligned(CACHE_LINE, align_up(MAX_OF(size, 1u), CACHE_LINE));
	if (!table->host)
		return fail(-ENOMEM, "out of memory for a table of %zu bytes", size);
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
	struct slot *slot = comm->slot;

	if (!spare)
		return;
	pthread_mutex_lock(&slot->lock);
	*spare = (struct spare_table){ .next = slot->tables,
		.dev = table->dev == table->host ? NULL : table->dev,
		.size = table->size };
	slot->tables = spare;
	pthread_mutex_unlock(&slot->lock);
	*table = (struct kernel_table){ .host = NULL };
}

/* ---- pinned memory --------------------------------------------------------------------------- */

/* The head of a block. The slot's lock guards what changes. */
struct pinned {
	struct pinned *next; /* of the slot */
	void *dev;
	size_t size; /* behind this head */
	bool spare;
	bool lane; /* for lanes alone */
	bool part; /* of another block, behind it in the list: that is freed */
};
#define PINNED_HEAD CACHE_LINE
#define PINNED_LEAST 4096u
_Static_assert(sizeof(struct pinned) <= PINNED_HEAD, "a block has room for its head");

static struct pinned *pinned_spare(struct slot *slot, size_t size, bool lane)
{
	struct pinned *p;

	pthread_mutex_lock(&slot->lock);
	p = slot->pinned;
	while (p && (!p->spare || p->lane != lane || p->size < size))
		p = p->next;
	if (p)
		p->spare = false;
	pthread_mutex_unlock(&slot->lock);
	return p;
}

static int pinned_take(spmt_comm *comm, size_t size, struct pinned **out)
{
	struct slot *slot = comm->slot;
	struct pinned *p = pinned_spare(slot, size, comm->lane);
	size_t bytes = PINNED_LEAST;
	void *host, *dev;
	int rc;

	if (p) {
		*out = p;
		return 0;
	}
	while (bytes - PINNED_HEAD < size)
		bytes *= 2;
	rc = comm->backend->host_alloc(comm->dev, bytes, &host, &dev);
	if (rc)
		return rc;
	p = host;
	*p = (struct pinned){ .dev = dev, .size = bytes - PINNED_HEAD };
	pthread_mutex_lock(&slot->lock);
	p->next = slot->pinned;
	slot->pinned = p;
	pthread_mutex_unlock(&slot->lock);
	*out = p;
	return 0;
}

static size_t signals_size(const spmt_comm *comm)
{
	return sizeof(struct signals) + sizeof(struct kernel_report) + (size_t)comm->nranks;
}

int pinned_for_lanes(spmt_comm *comm, size_t n)
{
	size_t size = align_up(signals_size(comm), CACHE_LINE), step = PINNED_HEAD + size;
	struct slot *slot = comm->slot;
	char *host, *dev;
	int rc = comm->backend->host_alloc(comm->dev, n * step, (void **)&host, (void **)&dev);

	if (rc)
		return rc;
	pthread_mutex_lock(&slot->lock);
	for (size_t i = 0; i < n; i++) {
		struct pinned *p = (struct pinned *)(void *)(host + i * step);

		*p = (struct pinned){ .next = slot->pinned,
			.dev = dev + i * step,
			.size = size,
			.spare = true,
			.lane = true,
			.part = i != 0 };
		slot->pinned = p;
	}
	pthread_mutex_unlock(&slot->lock);
	return 0;
}

static void pinned_give(struct slot *slot, struct pinned *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&slot->lock);
	p->spare = true;
	pthread_mutex_unlock(&slot->lock);
}

int pinned_open(spmt_comm *comm, size_t size, struct pinned **pinned)
{
	return pinned_take(comm, size, pinned);
}

void *pinned_host(const struct pinned *pinned)
{
	return (char *)(uintptr_t)pinned + PINNED_HEAD;
}

void *pinned_dev(const struct pinned *pinned)
{
	return (char *)pinned->dev + PINNED_HEAD;
}

void pinned_close(spmt_comm *comm, struct pinned *pinned)
{
	pinned_give(comm->slot, pinned);
}

/* The smaller block stays taken: a kernel that outlived its call may still write there. */
int scratch_room(spmt_comm *comm, size_t size)
{
	return comm->scratch && comm->scratch->size >= size
		? 0
		: pinned_take(comm, size, &comm->scratch);
}

void *scratch_host(const spmt_comm *comm)
{
	return pinned_host(comm->scratch);
}

void *scratch_dev(const spmt_comm *comm)
{
	return pinned_dev(comm->scratch);
}

void comm_stop(const spmt_comm *comm)
{
	struct stop_word *stop_word = __atomic_load_n(&comm->stop_word, __ATOMIC_ACQUIRE);

	if (stop_word)
		__atomic_store_n(&stop_word->stop, 1, __ATOMIC_RELEASE);
}

/* Under the world's lock. */
static int stop_word_make(spmt_comm *comm, struct stop_word **stop_word)
{
	struct world *w = comm->world;
	struct pinned *p;
	int rc = pinned_take(comm, sizeof(**stop_word), &p);

	if (rc)
		return rc;
	*stop_word = (struct stop_word *)(void *)((char *)p + PINNED_HEAD);
	**stop_word = (struct stop_word){ .next = w->stop_words,
		.dev = (struct stop_word *)(void *)((char *)p->dev + PINNED_HEAD),
		.id = comm->id,
		.slot = comm->slot };
	w->stop_words = *stop_word;
	return 0;
}

static int stop_word_open(spmt_comm *comm)
{
	struct world *w = comm->world;
	struct stop_word *stop_word;
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	for (stop_word = w->stop_words; stop_word && stop_word->id != comm->id;)
		stop_word = stop_word->next;
	if (!stop_word)
		rc = stop_word_make(comm, &stop_word);
	if (!rc) {
		stop_word->refs++;
		__atomic_store_n(&comm->stop_word, stop_word, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}

static void stop_word_close(spmt_comm *comm)
{
	struct world *w = comm->world;
	struct stop_word *stop_word = comm->stop_word, **at = &w->stop_words;
	bool last;

	if (!stop_word)
		return;
	comm->stop_word = NULL;
	pthread_mutex_lock(&w->lock);
	last = !--stop_word->refs;
	while (last && *at != stop_word)
		at = &(*at)->next;
	if (last)
		*at = stop_word->next;
	pthread_mutex_unlock(&w->lock);
	if (last)
		pinned_give(stop_word->slot, (void *)((char *)stop_word - PINNED_HEAD));
}

int signals_open(spmt_comm *comm)
{
	size_t size = signals_size(comm);
	struct pinned *p;
	struct signals *signals;
	int rc = pinned_take(comm, size, &p);

	if (rc)
		return rc;
	signals = (struct signals *)(void *)((char *)p + PINNED_HEAD);
	memset(signals, 0, size);
	comm->signals_dev = (struct signals *)(void *)((char *)p->dev + PINNED_HEAD);
	__atomic_store_n(&comm->signals, signals, __ATOMIC_RELEASE);
	return stop_word_open(comm);
}

void pinned_return(spmt_comm *comm)
{
	if (comm->signals)
		pinned_give(comm->slot, (void *)((char *)comm->signals - PINNED_HEAD));
	pinned_give(comm->slot, comm->scratch);
	stop_word_close(comm);
	comm->signals = NULL;
	comm->scratch = NULL;
}

void tables_drop(struct slot *slot)
{
	while (slot->tables) {
		struct spare_table *spare = slot->tables;

		slot->tables = spare->next;
		if (spare->dev)
			slot->backend->free(slot->dev, spare->dev);
		mem_free(spare);
	}
	while (slot->pinned) {
		struct pinned *p = slot->pinned;

		slot->pinned = p->next;
		if (!p->part)
			slot->backend->host_free(slot->dev, p);
	}
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Few threads meet sooner than many. */
struct kernel_grid kernel_grid_of(const spmt_comm *comm, unsigned blocks, uint64_t work)
{
	if (comm_cpu_access(comm))
		return (struct kernel_grid){ 1, 1 };
	return (struct kernel_grid){ blocks,
		(unsigned)align_up(MIN_OF(MAX_OF(work, 1u), KERNEL_BLOCK), KERNEL_WARP) };
}

int kernel_queue_grid(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	struct kernel_grid grid, device_stream stream)
{
	return comm->backend->launch(
		comm->dev, stream, kernel, grid.blocks, grid.threads, args, size);
}

int kernel_queue_wide(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	unsigned blocks, device_stream stream)
{
	return kernel_queue_grid(
		comm, kernel, args, size, kernel_grid_of(comm, blocks, KERNEL_BLOCK), stream);
}

int kernel_queue(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	device_stream stream)
{
	return comm->backend->launch(comm->dev, stream, kernel, 1, 1, args, size);
}

int kernel_run(spmt_comm *comm, const struct kernel *kernel, const void *args, size_t size,
	device_stream stream)
{
	HOLD_DEVICE(comm);
	struct reserved reserved;
	int rc = stream_reserve(comm, stream, &reserved);

	if (!rc)
		rc = kernel_queue(comm, kernel, args, size, stream);
	if (!rc)
		stream_note(comm, &reserved);
	return rc;
}
