/* SPDX-License-Identifier: MIT */
#include "fifo_state.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "proxy.h"
#include "spmt/comm/record.h"
#include "spmt/nodes/nodes.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/base/tsan.h"

#define FIFO_PLACES (1u << FIFO_SHIFT)
#define FIFO_BATCH 64		   /* posts before the next rank has its turn */
#define FIFO_LAST_NS 10000000000ll /* then an engine is dead */
_Static_assert(sizeof(struct spmtd_post) == 32, "a descriptor is 32 bytes");
_Static_assert(sizeof(struct fifo_shared) % CACHE_LINE == 0, "places are not split by lines");

/* ---- making it --------------------------------------------------------------------------------- */

/* The same peers by the same maps, with movers of their own: as the link has them, so that the last one is the engine. */
static void fifo_link(struct fifo *f, int pe)
{
	const struct link *from = &f->comm->links[pe];
	struct link *link = &f->links[pe];

	link_again(link, from);
	link->threshold = from->threshold;
	link->nmovers = from->nmovers;
	for (int i = 0; i < from->nmovers; i++)
		link->movers[i] = (struct mover){ .ops = from->movers[i].ops, .link = link };
	if (f->stream)
		link->stream = f->stream;
}

static int fifo_table(struct fifo *f)
{
	spmt_comm *comm = f->comm;
	struct link *self = &comm->links[comm->rank];
	struct fifo_shared *dev = pinned_dev(f->pinned);
	struct spmtd_fifo *table;
	int rc = table_open(comm, sizeof(*table), &f->table);

	if (rc)
		return rc;
	table = f->table.host;
	*table = (struct spmtd_fifo){
		.ring = (uintptr_t)(dev + 1),
		.taken = (uintptr_t)&dev->taken,
		.shift = FIFO_SHIFT,
		.pe = comm->rank,
		.own = (struct spmtd_own *)(void *)link_at(self, self->own),
		.stop = &comm->stop_word->dev->stop,
		.record = &comm->signals_dev->record,
		.host = comm_cpu_access(comm) ? &comm->host.ops : NULL,
		.cells = (uintptr_t)dev->cells,
	};
	return table_publish(comm, &f->table);
}

static int fifo_memory(struct fifo *f)
{
	size_t size = sizeof(*f->shared) + FIFO_PLACES * sizeof(*f->ring);
	int rc = pinned_open(f->comm, size, &f->pinned);

	if (rc)
		return rc;
	f->shared = pinned_host(f->pinned);
	f->ring = (struct spmtd_post *)(void *)(f->shared + 1);
	memset(f->shared, 0, size);
	return fifo_table(f);
}

/* They need no rank. */
static void fifo_end_copies(struct fifo *f)
{
	const struct backend *b = f->comm->backend;
	int dev = f->comm->dev;

	for (int i = 0; i < FIFO_COPIES; i++) {
		if (!f->copies[i])
			continue;
		if (b->stream_sync(dev, f->copies[i], FIFO_LAST_NS, NULL))
			log_line(LOG_ERROR,
				"rank %d: a collective's copies are in flight at the end",
				f->comm->rank);
		b->stream_destroy(dev, f->copies[i]);
	}
}

bool coll_copies(const spmt_comm *comm)
{
	return comm->coll_wanted == (int)COLL_ROW_copy; /* never a lane's, which has no kernels */
}

static int fifo_copies(struct fifo *f)
{
	spmt_comm *comm = f->comm;
	int rc = 0;

	for (int i = 0; coll_copies(comm) && i < FIFO_COPIES && !rc; i++) {
		device_stream s;

		rc = comm->backend->stream_create(comm->dev, &s);
		if (!rc)
			f->copies[i] = s;
	}
	return rc;
}

static void fifo_free(struct fifo *f)
{
	spmt_comm *comm = f->comm;

	for (int pe = 0; f->links && pe < comm->nranks; pe++)
		for (int i = 0; i < f->links[pe].nmovers; i++)
			f->links[pe].movers[i].ops->close(&f->links[pe].movers[i]);
	for (int pe = 0; f->ports && pe < comm->nranks; pe++)
		mem_free(f->ports[pe]);
	mem_free(f->links);
	mem_free(f->ports);
	if (f->stream)
		comm->backend->stream_destroy(comm->dev, f->stream);
	fifo_end_copies(f);
	table_close(comm, &f->table);
	pinned_close(comm, f->pinned);
	pthread_mutex_destroy(&f->lock);
	mem_free(f);
}

static int fifo_make(spmt_comm *comm, struct fifo **out)
{
	size_t n = (size_t)comm->nranks;
	struct fifo *f = mem_calloc(1, sizeof(*f));
	int rc = 0;

	if (!f)
		return fail_rank(-ENOMEM, comm->rank, "out of memory for what kernels post");
	*out = f;
	f->comm = comm;
	pthread_mutex_init(&f->lock, NULL);
	f->polled = !comm_cpu_access(comm);
	f->links = mem_aligned(CACHE_LINE, n * sizeof(*f->links));
	f->ports = mem_calloc(n, sizeof(struct fifo_ports *));
	if (!f->links || !f->ports)
		return fail_rank(-ENOMEM, comm->rank, "out of memory for %d links", comm->nranks);
	/* a kernel may wait in the comm's own one for what it has posted */
	if (f->polled)
		rc = comm->backend->stream_create(comm->dev, &f->stream);
	if (!rc)
		rc = fifo_copies(f);
	for (int pe = 0; !rc && pe < comm->nranks; pe++)
		fifo_link(f, pe);
	return rc ? rc : fifo_memory(f);
}

int fifo_open(spmt_comm *comm)
{
	struct fifo *f = NULL;
	int rc;

	if (comm->fifo)
		return 0;
	rc = fifo_make(comm, &f);
	if (!rc)
		rc = proxy_add(f);
	if (!rc) {
		comm->fifo = f;
		return 0;
	}
	KEEPS_SENTENCE;
	if (f)
		fifo_free(f);
	return rc;
}

void fifo_close(spmt_comm *comm)
{
	UNCANCELLED;
	struct fifo *f = comm->fifo;

	if (!f)
		return;
	proxy_remove(f);
	comm->fifo = NULL;
	fifo_free(f);
}

uint64_t fifo_device(const struct fifo *fifo)
{
	return (uintptr_t)fifo->table.dev;
}

/* ---- ports --------------------------------------------------------------------------------------- */

int fifo_port(spmt_comm *comm, int peer, uint32_t index, const struct fifo_port *port)
{
	struct fifo *f = comm->fifo;
	struct fifo_ports *ports;

	pthread_mutex_lock(&f->lock);
	ports = f->ports[peer];
	if (!ports)
		ports = f->ports[peer] = mem_calloc(1, sizeof(*ports));
	if (ports) {
		ports->port[index] = *port;
		ports->known[index] = true;
	}
	pthread_mutex_unlock(&f->lock);
	return ports ? 0
		     : fail_rank(-ENOMEM, comm->rank, "out of memory for ports to rank %d", peer);
}

/* ---- registered buffers -------------------------------------------------------------------------- */

void fifo_mem(spmt_comm *comm, struct fifo_mem *mem)
{
	struct fifo *f = comm->fifo;

	pthread_mutex_lock(&f->lock);
	if (!mem->known) {
		mem->next = f->mems;
		f->mems = mem;
		mem->known = true;
	}
	pthread_mutex_unlock(&f->lock);
}

static void ports_end(struct fifo *f, const struct fifo_mem *mem)
{
	for (int pe = 0; pe < f->comm->nranks; pe++)
		for (uint32_t i = 0; f->ports[pe] && i < AREA_CHANNELS; i++)
			if (f->ports[pe]->port[i].mem == mem)
				f->ports[pe]->known[i] = false;
}

void fifo_mem_drop(spmt_comm *comm, struct fifo_mem *mem)
{
	struct fifo *f = comm->fifo;
	struct fifo_mem **at;

	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	ports_end(f, mem);
	for (at = &f->mems; *at && *at != mem; at = &(*at)->next)
		continue;
	if (*at)
		*at = mem->next;
	mem->known = false;
	pthread_mutex_unlock(&f->lock);
}

/* ---- the rank's side ------------------------------------------------------------------------------- */

uint64_t fifo_ask(struct fifo *fifo)
{
	uint64_t asked = atomic_fetch_add(&fifo->asked, 1) + 1;

	proxy_wake(fifo->proxy);
	return asked;
}

bool fifo_answered(const struct fifo *fifo, uint64_t asked)
{
	if (atomic_load_explicit(&fifo->answered, memory_order_acquire) < asked)
		return false;
	tsan_acquire(&fifo->answered);
	return true;
}

void fifo_settle(struct fifo *fifo)
{
	const spmt_comm *comm = fifo->comm;

	for (int i = 0; i < FIFO_COPIES; i++)
		if (fifo->copies[i])
			(void)comm->backend->stream_sync(
				comm->dev, fifo->copies[i], DEVICE_STOPPED_NS, NULL);
	(void)post_quiet(fifo);
}

void fifo_posted(const struct spmt_view *v)
{
	const struct comm_host *host = (const struct comm_host *)(const void *)v->host;

	proxy_wake(host->comm->fifo->proxy);
}

/* ---- the proxy's side ------------------------------------------------------------------------------ */

/* A NIC's moves fail as well where a process has died of which nobody has heard yet. This thread serves all comms, so no other failure waits
   for that. */
static bool fifo_may_miss_one(const struct fifo *f)
{
	int pe = 0;

	while (pe < f->comm->nranks && f->links[pe].route.map != MAP_RDMA)
		pe++;
	return pe < f->comm->nranks;
}

void fifo_failed(struct fifo *fifo, const char *what, int rc)
{
	spmt_comm *comm = fifo->comm;
	bool refused = fifo->refused;

	fifo->refused = false;
	if (!comm_is_broken(comm) && !refused && fifo_may_miss_one(fifo))
		rc = nodes_move_failed(comm, what, rc);
	if (!comm_is_broken(comm))
		comm_break_last(comm, comm_failed(comm, what, rc));
}

/* False: it is not there yet. */
static bool fifo_next(const struct fifo *f, struct spmtd_post *post)
{
	struct spmtd_post *place = &f->ring[f->done & (FIFO_PLACES - 1)];
	uint64_t head = __atomic_load_n(&place->head, __ATOMIC_ACQUIRE);

	if ((head & 1) == (f->done >> FIFO_SHIFT & 1))
		return false;
	tsan_acquire(&place->head);
	post->head = head;
	post->to = __atomic_load_n(&place->to, __ATOMIC_RELAXED);
	post->from = __atomic_load_n(&place->from, __ATOMIC_RELAXED);
	post->size = __atomic_load_n(&place->size, __ATOMIC_RELAXED);
	return true;
}

static void fifo_stored(const struct fifo *f)
{
	wake_stored(f->comm->wake_counters[f->comm->rank]);
}

/* False: it has to wait. */
static bool fifo_take(struct fifo *f, const struct spmtd_post *post)
{
	const char *what = "what a kernel posted";
	bool copied = post_kind(post) == SPMTD_FAR_COPIED;
	int done = copied ? post_copied(f) : 1;
	bool dropped = comm_is_broken(f->comm);
	int rc = done < 0 ? done : dropped || copied ? 0 : post_do(f, post, &what);

	if (!done)
		return false;
	if (rc)
		fifo_failed(f, what, rc);
	if (dropped || rc)
		comm_stop(
			f->comm); /* a kernel that waits for this post looks at that when it is taken */
	f->done++;
	tsan_release(&f->shared->taken);
	__atomic_store_n(&f->shared->taken, f->done, __ATOMIC_RELEASE);
	fifo_stored(f);
	return true;
}

bool fifo_serve(struct fifo *fifo)
{
	uint64_t asked = atomic_load_explicit(&fifo->asked, memory_order_acquire);
	struct spmtd_post post;
	int n = 0, rc;

	while (n < FIFO_BATCH && fifo_next(fifo, &post)) {
		if (!fifo_take(fifo, &post)) {
			sched_yield(); /* the other ranks have their turn, and then again this one */
			return true;
		}
		n++;
	}
	if (n == FIFO_BATCH || asked == atomic_load(&fifo->answered))
		return n != 0;
	rc = comm_is_broken(fifo->comm) ? 0 : post_quiet(fifo);
	if (rc)
		fifo_failed(fifo, "what kernels posted", rc);
	tsan_release(&fifo->answered);
	atomic_store_explicit(&fifo->answered, asked, memory_order_release);
	fifo_stored(fifo);
	return true;
}
