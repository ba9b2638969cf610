/* SPDX-License-Identifier: MIT */
/* Doing what a kernel has posted. */
#include <errno.h>

#include "fifo_state.h"
#include "src/base/status.h"

/* ---- moving ----------------------------------------------------------------------------------------- */

#define PACKET_WORD 8 /* bytes: data and flag */

/* What is posted cannot be. */
#define REFUSE(f, code, ...) ((f)->refused = true, fail((code), __VA_ARGS__))

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

/* The word is set, not added to: nobody else writes there. Where the CPU does not reach it a copy engine brings it, as a kernel would have to
   wait for the one that posted. */
static int post_set(struct fifo *f, int pe, uint64_t offset, uint64_t value)
{
	struct link *link = &f->links[pe];
	struct mover *m = &link->movers[0];
	struct move_wait wait = link_wait_of(link);
	int rc = link_fence(link, &wait);

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

/* The first failure. In a broken comm the others are waited for all the same. */
int post_quiet(struct fifo *fifo)
{
	struct move_wait wait = { .ms = comm_timeout(fifo->comm) };
	struct first_failure first;
	int n = fifo->comm->nranks;

	first.rc = 0;
	for (int pe = 0; pe < n && (!first.rc || comm_is_broken(fifo->comm)); pe++) {
		if (!fifo->links[pe].pending)
			continue;
		failure_note(&first, link_quiet(&fifo->links[pe], &wait));
		/* its waiters were woken before the bytes arrived */
		wake_stored(fifo->comm->wake_counters[pe]);
	}
	return failure_tell(&first);
}

/* ---- ports ------------------------------------------------------------------------------------------ */

static bool mem_gone(const struct fifo_mem *mem)
{
	return mem && mem->gone && atomic_load(mem->gone);
}

/* False: there is no such port. */
static bool port_find(struct fifo *f, int pe, uint32_t index, struct fifo_port *port)
{
	const struct fifo_ports *ports;
	bool known = false;

	pthread_mutex_lock(&f->lock);
	ports = f->ports[pe];
	if (ports && index < AREA_CHANNELS) {
		*port = ports->port[index];
		known = ports->known[index] && !mem_gone(port->mem);
	}
	pthread_mutex_unlock(&f->lock);
	return known;
}

/* Who sees a packet's flag has the data beside it. An engine or a NIC brings aligned words whole, but where CPUs copy only a
   move of one word promises that. */
static int post_words(
	struct fifo *f, int pe, unsigned kind, uint64_t offset, uint64_t from, uint64_t n)
{
	unsigned unit = kind & SPMTD_POST_PAIRS ? 2 * PACKET_WORD : PACKET_WORD;
	struct mover *m = &f->links[pe].movers[0];
	const char *local = (const char *)(uintptr_t)from;
	int rc = 0;

	if ((offset | from | n) % unit)
		return REFUSE(f, -EINVAL, "packets of %u bytes lie at multiples of that", unit);
	if (f->stream)
		return post_put(f, pe, offset, from, n);
	for (uint64_t at = 0; !rc && at < n; at += PACKET_WORD)
		rc = m->ops->put(m, offset + at, local + at, PACKET_WORD, MOVE_NBI, NULL);
	wake_stored(f->comm->wake_counters[pe]);
	return rc;
}

static int port_put(struct fifo *f, int pe, const struct fifo_port *port, unsigned kind,
	const struct spmtd_post *post)
{
	bool came = kind & SPMTD_POST_CAME;
	uint64_t local = came ? port->incoming : port->local;
	uint64_t local_size = came ? port->incoming_size : port->local_size;

	if (!post->size)
		return 0;
	if (!post_fits(post->to, post->size, port->remote_size))
		return REFUSE(f, -EINVAL,
			"offset %llu with %llu bytes goes beyond rank %d's buffer of %llu bytes",
			(unsigned long long)post->to, (unsigned long long)post->size, pe,
			(unsigned long long)port->remote_size);
	if (!post_fits(post->from, post->size, local_size))
		return REFUSE(f, -EINVAL,
			"offset %llu with %llu bytes goes beyond this rank's buffer of %llu bytes",
			(unsigned long long)post->from, (unsigned long long)post->size,
			(unsigned long long)local_size);
	if (kind & SPMTD_POST_PACKETS)
		return post_words(
			f, pe, kind, port->remote + post->to, local + post->from, post->size);
	return post_put(f, pe, port->remote + post->to, local + post->from, post->size);
}

static int port_do(
	struct fifo *f, int pe, uint32_t index, unsigned kind, const struct spmtd_post *post)
{
	struct fifo_port port;
	int rc = 0;

	if (!port_find(f, pe, index, &port))
		return REFUSE(f, -EINVAL,
			"there is no port %u to rank %d, or its buffer is no longer registered",
			index, pe);
	if (kind & SPMTD_POST_PUT)
		rc = port_put(f, pe, &port, kind, post);
	if (!rc && kind & SPMTD_POST_SIGNAL)
		rc = post_set(f, pe, port.there, ++f->ports[pe]->sent[index]);
	if (!rc && kind & SPMTD_POST_FLUSH)
		rc = post_quiet(f);
	return rc;
}

/* ---- to peers that have no address ------------------------------------------------------------------- */

static int heap_check(struct fifo *f, int pe, uint64_t offset, uint64_t n)
{
	uint64_t size = f->comm->heap->size;

	if (post_fits(offset, n, size))
		return 0;
	return REFUSE(f, -EINVAL,
		"offset %llu with %llu bytes goes beyond rank %d's heap of %llu bytes",
		(unsigned long long)offset, (unsigned long long)n, pe, (unsigned long long)size);
}

/* pe's part of the buffer that the post's first byte lies in; false: there is none. Of several one that it fits. */
static bool mem_find(struct fifo *f, int pe, uint64_t offset, uint64_t n,
	struct spmtd_mem_peer *part, uint64_t *at)
{
	bool found = false, fits = false;

	pthread_mutex_lock(&f->lock);
	for (const struct fifo_mem *m = f->mems; m && !fits; m = m->next) {
		uint64_t from = offset - m->offsets[pe];

		if (from >= m->peers[pe].size)
			continue;
		*part = m->peers[pe];
		*at = from;
		found = true;
		fits = post_fits(from, n, part->size);
	}
	pthread_mutex_unlock(&f->lock);
	return found;
}

static int mem_check_post(struct fifo *f, int pe, uint64_t offset, uint64_t n)
{
	struct spmtd_mem_peer part;
	uint64_t at;

	if (!mem_find(f, pe, offset, n, &part, &at))
		return REFUSE(f, -EINVAL,
			"%llu bytes that are in no buffer that rank %d has registered",
			(unsigned long long)n, pe);
	if (!post_fits(at, n, part.size))
		return REFUSE(f, -EINVAL,
			"offset %llu with %llu bytes goes beyond rank %d's buffer of %llu bytes",
			(unsigned long long)at, (unsigned long long)n, pe,
			(unsigned long long)part.size);
	if (!part.base && f->links[pe].base)
		return REFUSE(f, SPMT_ERR_UNSUPPORTED,
			"rank %d's buffer, in another process, cannot be reached", pe);
	return 0;
}

/* n bytes of the heap, or of a registered buffer. */
static int post_far_check(struct fifo *f, int pe, const struct spmtd_post *post, uint64_t n)
{
	return (post->head >> 1 & SPMTD_FAR_MEM ? mem_check_post : heap_check)(f, pe, post->to, n);
}

static int post_far_move(struct fifo *f, int pe, unsigned kind, const struct spmtd_post *post)
{
	bool gets = kind >= SPMTD_FAR_GET;
	bool nbi = kind == SPMTD_FAR_PUT_NBI || kind == SPMTD_FAR_GET_NBI;
	enum move_mode mode = nbi ? MOVE_NBI : MOVE_BLOCKING;
	struct mover *m = post_mover(&f->links[pe], post->size);
	void *local = (void *)(uintptr_t)post->from;
	int rc = post_far_check(f, pe, post, post->size);

	if (rc)
		return rc;
	if (gets)
		return m->ops->get(m, local, post->to, (size_t)post->size, mode, NULL);
	rc = m->ops->put(m, post->to, local, (size_t)post->size, mode, NULL);
	wake_stored(f->comm->wake_counters[pe]);
	return rc;
}

static struct mover *far_mover(struct fifo *f, int pe)
{
	return &f->links[pe].movers[0];
}

static bool far_value_size(uint64_t n)
{
	return n == 1 || n == 2 || n == 4 || n == 8;
}

static int far_value(struct fifo *f, int pe, const struct spmtd_post *post)
{
	struct mover *m = far_mover(f, pe);
	int rc = post_far_check(f, pe, post, post->size);

	if (!rc && !far_value_size(post->size))
		rc = REFUSE(f, -EINVAL, "%llu bytes are no value", (unsigned long long)post->size);
	if (rc)
		return rc;
	f->shared->value = post->from;
	rc = m->ops->put(m, post->to, &f->shared->value, (size_t)post->size, MOVE_BLOCKING, NULL);
	wake_stored(f->comm->wake_counters[pe]);
	return rc;
}

static int far_fetch(struct fifo *f, int pe, const struct spmtd_post *post)
{
	uint64_t cell = post->head >> 32;
	struct mover *m = far_mover(f, pe);
	int rc = post_far_check(f, pe, post, post->size);

	if (!rc && (!far_value_size(post->size) || cell >= SPMTD_CELLS))
		rc = REFUSE(f, -EINVAL, "%llu bytes are no value", (unsigned long long)post->size);
	if (rc)
		return rc;
	f->shared->cells[cell] = 0;
	return m->ops->get(
		m, &f->shared->cells[cell], post->to, (size_t)post->size, MOVE_BLOCKING, NULL);
}

static int far_signal(struct fifo *f, int pe, const struct spmtd_post *post)
{
	struct mover *m = far_mover(f, pe);
	struct move_wait wait = link_wait_of(m->link);
	enum spmt_signal_op op =
		post->head >> 32 == SPMT_SIGNAL_SET ? SPMT_SIGNAL_SET : SPMT_SIGNAL_ADD;
	uint64_t words = area_begin(0, f->comm->nranks), n = sizeof(uint64_t);
	int rc = 0;

	/* the words of a barrier are in the peer's library area */
	if (!post_fits(post->to - m->link->own, n, words))
		rc = post_far_check(f, pe, post, n);
	if (!rc)
		rc = link_fence(m->link, &wait);
	if (rc)
		return rc;
	rc = m->ops->signal(m, post->to, post->from, op, NULL);
	wake_stored(f->comm->wake_counters[pe]);
	return rc;
}

static int far_atomic(struct fifo *f, int pe, const struct spmtd_post *post)
{
	uint64_t arg = post->head >> 32, cell = arg >> 16, old = 0;
	struct amo amo = { .op = (enum spmt_amo)(arg & 0xff),
		.size = (size_t)(arg >> 8 & 0xff),
		.operand = post->from,
		.compare = post->size };
	struct mover *m = far_mover(f, pe);
	int rc = post_far_check(f, pe, post, amo.size);

	if (!rc && (amo.op > SPMT_AMO_FETCH_XOR || cell > SPMTD_CELLS))
		rc = REFUSE(f, -EINVAL, "there is no such atomic");
	if (!rc && amo.size != 4 && amo.size != 8)
		rc = REFUSE(f, SPMT_ERR_UNSUPPORTED,
			"rank %d is reached by map %s, which has no atomics of %zu bytes", pe,
			map_name(f->links[pe].route.map), amo.size);
	if (rc)
		return rc;
	rc = m->ops->atomic(m, post->to, &amo, cell ? &old : NULL);
	if (cell)
		__atomic_store_n(&f->shared->cells[cell - 1], old, __ATOMIC_RELAXED);
	wake_stored(f->comm->wake_counters[pe]);
	return rc;
}

/* ---- collectives by copy queues -------------------------------------------------------------------- */

/* Each peer's in a stream, so that several engines are at work. */
static int post_copy(struct fifo *f, int pe, const struct spmtd_post *post)
{
	const spmt_comm *comm = f->comm;
	device_stream stream = f->copies[pe % FIFO_COPIES];
	int rc;

	if (!stream)
		return REFUSE(f, -EINVAL, "there are no copy queues for collectives");
	rc = comm->backend->copy(comm->dev, (void *)(uintptr_t)post->from,
		(const void *)(uintptr_t)post->to, (size_t)post->size, stream);
	if (!rc)
		link_count(&f->links[pe], MOVER_SDMA, (size_t)post->size);
	return rc;
}

int post_copied(struct fifo *fifo)
{
	const spmt_comm *comm = fifo->comm;

	for (int i = 0; i < FIFO_COPIES; i++) {
		int rc = fifo->copies[i] ? comm->backend->stream_query(comm->dev, fifo->copies[i])
					 : 1;

		if (rc <= 0)
			return rc;
	}
	return 1;
}

/* ---- to peers that have no address, by all of them ---------------------------------------------------- */

static int far_fence(struct fifo *f)
{
	struct move_wait wait = { .ms = comm_timeout(f->comm) };
	int rc = 0;

	for (int pe = 0; !rc && pe < f->comm->nranks; pe++)
		rc = link_fence(&f->links[pe], &wait);
	return rc;
}

static int far_do(struct fifo *f, int pe, unsigned kind, const struct spmtd_post *post)
{
	switch (kind & ~(unsigned)SPMTD_FAR_MEM) {
	case SPMTD_FAR_PUT:
	case SPMTD_FAR_PUT_NBI:
	case SPMTD_FAR_GET:
	case SPMTD_FAR_GET_NBI:
		return post_far_move(f, pe, kind & ~(unsigned)SPMTD_FAR_MEM, post);
	case SPMTD_FAR_VALUE:
		return far_value(f, pe, post);
	case SPMTD_FAR_FETCH:
		return far_fetch(f, pe, post);
	case SPMTD_FAR_SIGNAL:
		return far_signal(f, pe, post);
	case SPMTD_FAR_ATOMIC:
		return far_atomic(f, pe, post);
	case SPMTD_FAR_FENCE:
		return far_fence(f);
	case SPMTD_FAR_QUIET:
		return post_quiet(f);
	case SPMTD_FAR_COPY:
		return post_copy(f, pe, post);
	default:
		return REFUSE(f, SPMT_ERR_UNSUPPORTED,
			"rank %d is reached by map %s: bulk copies from shared memory and bulk reductions do not go there",
			pe, map_name(f->links[pe].route.map));
	}
}

/* ---- all of them -------------------------------------------------------------------------------------- */

static const char *port_name(unsigned kind)
{
	static const char *const others[] = { [SPMTD_POST_PUT] = "spmtd_port_put",
		[SPMTD_POST_SIGNAL] = "spmtd_port_signal",
		[SPMTD_POST_FLUSH] = "spmtd_port_flush",
		[SPMTD_POST_PUT | SPMTD_POST_SIGNAL] = "spmtd_port_put_signal",
		[SPMTD_POST_PUT | SPMTD_POST_SIGNAL | SPMTD_POST_FLUSH] =
			"spmtd_port_put_signal_flush" };

	if (kind & SPMTD_POST_PACKETS)
		return kind & SPMTD_POST_CAME ? "spmtd_port_read_put_packets"
					      : "spmtd_port_put_packets";
	kind &= ~(unsigned)SPMTD_POST_PORT;
	return kind < ARRAY_SIZE(others) ? others[kind] : NULL;
}

static const char *post_name(unsigned kind)
{
	static const char *const far[] = { [SPMTD_FAR_PUT] = "a kernel's put",
		[SPMTD_FAR_PUT_NBI] = "a kernel's put",
		[SPMTD_FAR_GET] = "a kernel's get",
		[SPMTD_FAR_GET_NBI] = "a kernel's get",
		[SPMTD_FAR_VALUE] = "a kernel's put",
		[SPMTD_FAR_FETCH] = "a kernel's get",
		[SPMTD_FAR_SIGNAL] = "a kernel's signal",
		[SPMTD_FAR_ATOMIC] = "a kernel's atomic",
		[SPMTD_FAR_FENCE] = "a kernel's fence",
		[SPMTD_FAR_QUIET] = "a kernel's quiet",
		[SPMTD_FAR_REFUSED] = "a kernel's copy",
		[SPMTD_FAR_COPY] = "a collective's copy" };

	if (kind & SPMTD_POST_PORT)
		return port_name(kind);
	kind &= ~(unsigned)SPMTD_FAR_MEM;
	return kind < ARRAY_SIZE(far) ? far[kind] : NULL;
}

int post_do(struct fifo *fifo, const struct spmtd_post *post, const char **what)
{
	unsigned kind = post_kind(post);
	int pe = spmtd_post_peer_(post->head);
	const char *name = post_name(kind);

	*what = name ? name : "a kernel's post";
	if (!name || !comm_has_pe(fifo->comm, pe))
		return REFUSE(fifo, -EINVAL, "kind %u, rank %d of %d: there is no such post", kind,
			pe, fifo->comm->nranks);
	return kind & SPMTD_POST_PORT ? port_do(fifo, pe, (uint32_t)(post->head >> 32), kind, post)
				      : far_do(fifo, pe, kind, post);
}
