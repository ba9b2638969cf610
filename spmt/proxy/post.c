/* SPDX-License-Identifier: MIT */
/* Doing what a kernel has posted. */
#include <errno.h>

#include "fifo_state.h"
#include "src/base/status.h"

/* ---- moving ----------------------------------------------------------------------------------------- */

/* What is far too large for a device is found here, before a driver or a NIC is asked. */
static bool post_fits(uint64_t at, uint64_t n, uint64_t size)
{
	return n <= size && at <= size - n;
}

static struct mover *post_mover(struct link *link, uint64_t n)
{
	return &link->movers[n > link->threshold ? link->nmovers - 1 : 0];
}

static int post_put(struct fifo *f, int pe, uint64_t offset, uint64_t from, uint64_t n)
{
	struct mover *m = post_mover(&f->links[pe], n);
	const void *local = (const void *)(uintptr_t)from;
	int rc = m->ops->put(m, offset, local, (size_t)n, MOVE_NBI, NULL);

	wake_stored(f->comm->wake_counters[pe]);
	return rc;
}

static int post_fence(struct link *link)
{
	int rc = 0;

	for (int i = 0; link->pending && !rc && i < link->nmovers; i++)
		rc = link->movers[i].ops->fence(&link->movers[i]);
	return rc;
}

/* The word is set, not added to: nobody else writes there. Where the CPU does not reach it a copy engine brings it, as a kernel would have to
   wait for the one that posted. */
static int post_set(struct fifo *f, int pe, uint64_t offset, uint64_t value)
{
	struct link *link = &f->links[pe];
	struct mover *m = &link->movers[0];
	int rc = post_fence(link);

	if (rc)
		return rc;
	if (f->stream && link->base) {
		f->shared->value = value;
		rc = m->ops->put(m, offset, &f->shared->value, sizeof(value), MOVE_BLOCKING, NULL);
	} else {
		rc = m->ops->signal(m, offset, value, SPMT_SIGNAL_SET, NULL);
	}
	wake_stored(f->comm->wake_counters[pe]);
	return rc;
}

static int post_link_quiet(struct link *link)
{
	struct status_saved first;
	int rc = 0;

	for (int i = 0; i < link->nmovers; i++) {
		int one = link->movers[i].ops->quiet(&link->movers[i]);

		if (one && !rc) {
			rc = one;
			status_save(&first);
		}
	}
	link->pending = false;
	if (rc)
		status_restore(&first);
	return rc;
}

int post_quiet(struct fifo *fifo)
{
	int rc = 0;

	for (int pe = 0; !rc && pe < fifo->comm->nranks; pe++) {
		if (!fifo->links[pe].pending)
			continue;
		rc = post_link_quiet(&fifo->links[pe]);
		/* its waiters were woken before the bytes arrived */
		wake_stored(fifo->comm->wake_counters[pe]);
	}
	return rc;
}

/* ---- ports ------------------------------------------------------------------------------------------ */

/* False: there is no such port. */
static bool port_find(struct fifo *f, int pe, uint32_t index, struct fifo_port *port)
{
	const struct fifo_ports *ports;
	bool known = false;

	pthread_mutex_lock(&f->lock);
	ports = f->ports[pe];
	if (ports && index < AREA_CHANNELS) {
		known = ports->known[index];
		*port = ports->port[index];
	}
	pthread_mutex_unlock(&f->lock);
	return known;
}

static int port_put(
	struct fifo *f, int pe, const struct fifo_port *port, const struct spmtd_post *post)
{
	if (!post->size)
		return 0;
	if (!post_fits(post->to, post->size, port->remote_size))
		return fail(-EINVAL,
			"offset %llu with %llu bytes goes beyond rank %d's buffer of %llu bytes",
			(unsigned long long)post->to, (unsigned long long)post->size, pe,
			(unsigned long long)port->remote_size);
	if (!post_fits(post->from, post->size, port->local_size))
		return fail(-EINVAL,
			"offset %llu with %llu bytes goes beyond this rank's buffer of %llu bytes",
			(unsigned long long)post->from, (unsigned long long)post->size,
			(unsigned long long)port->local_size);
	return post_put(f, pe, port->remote + post->to, port->local + post->from, post->size);
}

static int port_do(
	struct fifo *f, int pe, uint32_t index, unsigned kind, const struct spmtd_post *post)
{
	struct fifo_port port;
	int rc = 0;

	if (!port_find(f, pe, index, &port))
		return fail(-EINVAL, "there is no port %u to rank %d", index, pe);
	if (kind & SPMTD_POST_PUT)
		rc = port_put(f, pe, &port, post);
	if (!rc && kind & SPMTD_POST_SIGNAL)
		rc = post_set(f, pe, port.there, ++f->ports[pe]->sent[index]);
	if (!rc && kind & SPMTD_POST_FLUSH)
		rc = post_quiet(f);
	return rc;
}

int post_do(struct fifo *fifo, const struct spmtd_post *post, const char **what)
{
	unsigned kind = (unsigned)(post->head >> 1 & 0x7f);
	int pe = spmtd_post_peer_(post->head);

	if (!comm_has_pe(fifo->comm, pe) || !(kind & SPMTD_POST_PORT)) {
		*what = "a kernel's post";
		return fail(-EINVAL, "kind %u, rank %d of %d: there is no such post", kind, pe,
			fifo->comm->nranks);
	}
	*what = kind & SPMTD_POST_PUT	   ? "spmtd_port_put"
		: kind & SPMTD_POST_SIGNAL ? "spmtd_port_signal"
					   : "spmtd_port_flush";
	return port_do(fifo, pe, (uint32_t)(post->head >> 32), kind, post);
}
