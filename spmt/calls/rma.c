/* SPDX-License-Identifier: MIT */
/* put and get, blocking, non-blocking, in streams, strided. */
#include "rma.h"
#include "misuse.h"
#include "spmt/comm/stream.h"

#include <errno.h>
#include <string.h>

#include "spmt/comm/broken.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"
#include "sync.h"
#include "view.h"

#define MOVE_BLOCKS 32u
#define MOVE_BLOCK_BYTES (16u << 10)

int local_judge(
	const spmt_comm *comm, const char *what, const char *name, const void *local, size_t n)
{
	const struct heap *heap = comm->heap;

	if (heap_offset(heap, local) >= heap->size) {
		if (n <= UINTPTR_MAX - (uintptr_t)local)
			return 0;
		return fail_call(-EINVAL, what,
			"rank %d: %s %p with %zu bytes wraps the address space", comm->rank, name,
			local, n);
	}
	if (!heap_holds(heap, local, n))
		return fail_call(-EINVAL, what,
			"rank %d: %s %p with %zu bytes begins in this rank's heap and goes beyond its end (offset %llu of %llu)",
			comm->rank, name, local, n, (unsigned long long)heap_offset(heap, local),
			(unsigned long long)atomic_load(&heap->committed));
	return n && comm_checked(comm) ? misuse_range(comm, what, name, local, n) : 0;
}

int rma_judge(const spmt_comm *comm, const struct call *call, const void *sym, const void *local,
	size_t n)
{
	const struct heap *heap = comm->heap;
	int rc = 0;

	if (!sym)
		return fail_call(-EINVAL, call->name, "rank %d: %s is NULL with %zu bytes",
			comm->rank, call->remote, n);
	if (!local)
		return fail_call(-EINVAL, call->name, "rank %d: %s is NULL with %zu bytes",
			comm->rank, call->local, n);
	if (!heap_holds(heap, sym, 0))
		return fail_call(-EINVAL, call->name,
			"rank %d: %s %p is not this rank's symmetric memory (heap %p, %llu bytes in use)",
			comm->rank, call->remote, sym, (void *)heap->base,
			(unsigned long long)atomic_load(&heap->committed));
	if (!heap_holds(heap, sym, n))
		return fail_call(-EINVAL, call->name,
			"rank %d: %s %p with %zu bytes goes beyond the heap's end (offset %llu of %llu)",
			comm->rank, call->remote, sym, n,
			(unsigned long long)heap_offset(heap, sym),
			(unsigned long long)atomic_load(&heap->committed));
	if (comm_checked(comm))
		rc = misuse_range(comm, call->name, call->remote, sym, n);
	return rc || local == sym ? rc : local_judge(comm, call->name, call->local, local, n);
}

void rma_trace_route(const spmt_comm *comm, size_t n, int pe, enum move_mode mode)
{
	struct link *link = &comm->links[pe];
	const struct route *route = &link->route;
	const struct mover *m = rma_mover(link, n, mode);
	bool second = route->nmovers > 1 && m == &link->movers[1];

	trace_route(map_name(route->map), mover_name(route->movers[second]));
}

void rma_trace(const spmt_comm *comm, size_t n, size_t times, int pe, enum move_mode mode)
{
	rma_trace_route(comm, n, pe, mode);
	trace_peer(pe, n * times);
}

int rma_peer(spmt_comm *comm, const struct call *call, int pe)
{
	int rc = comm_enter(comm, call->name);

	if (rc)
		return rc;
	return comm_has_pe(comm, pe) ? 0 : comm_refuse_pe(comm, call->name, pe);
}

/* Which mover a call takes also depends on its mode, which is unknown here: blocking calls report it again. */
int rma_closer(spmt_comm *comm, const struct call *call, const void *sym, const void *local,
	size_t n, int pe)
{
	int rc = rma_peer(comm, call, pe);

	if (rc)
		return rc;
	if (object_is_traced(&comm->head))
		rma_trace(comm, n, 1, pe, MOVE_STREAM);
	return n ? rma_judge(comm, call, sym, local, n) : 0;
}

int rma_failed(spmt_comm *comm, const char *what, int rc)
{
	return rc == -ECANCELED ? comm_broken(comm, what) : comm_failed(comm, what, rc);
}

/* ---- put, get ------------------------------------------------------------------------------ */

__attribute__((cold)) static int put_closer(spmt_comm *comm, const struct call *call, void *dst,
	const void *src, size_t size, int pe, enum move_mode mode)
{
	EXCLUSIVE(comm, call->name);
	int rc = rma_open(comm, call, dst, src, size, pe);

	if (!rc && object_is_traced(&comm->head))
		rma_trace_route(comm, size, pe, mode);
	return rc || !size ? rc
			   : rma_put(comm, call->name, rma_offset(comm, dst), src, size, pe, mode);
}

int spmt_put(spmt_comm *comm, void *dst, const void *src, size_t size, int pe)
{
	static const struct call call = { "spmt_put", "dst", "src" };

	if (LIKELY(rma_quick(comm, dst, src, size, pe)))
		return rma_put(
			comm, call.name, rma_offset(comm, dst), src, size, pe, MOVE_BLOCKING);
	return put_closer(comm, &call, dst, src, size, pe, MOVE_BLOCKING);
}

int spmt_put_nbi(spmt_comm *comm, void *dst, const void *src, size_t size, int pe)
{
	static const struct call call = { "spmt_put_nbi", "dst", "src" };

	if (LIKELY(rma_quick(comm, dst, src, size, pe)))
		return rma_put(comm, call.name, rma_offset(comm, dst), src, size, pe, MOVE_NBI);
	return put_closer(comm, &call, dst, src, size, pe, MOVE_NBI);
}

__attribute__((cold)) static int get_closer(spmt_comm *comm, const struct call *call, void *dst,
	const void *src, size_t size, int pe, enum move_mode mode)
{
	EXCLUSIVE(comm, call->name);
	int rc = rma_open(comm, call, src, dst, size, pe);

	if (!rc && object_is_traced(&comm->head))
		rma_trace_route(comm, size, pe, mode);
	return rc || !size ? rc
			   : rma_get(comm, call->name, dst, rma_offset(comm, src), size, pe, mode);
}

int spmt_get(spmt_comm *comm, void *dst, const void *src, size_t size, int pe)
{
	static const struct call call = { "spmt_get", "src", "dst" };

	if (LIKELY(rma_quick(comm, src, dst, size, pe)))
		return rma_get(
			comm, call.name, dst, rma_offset(comm, src), size, pe, MOVE_BLOCKING);
	return get_closer(comm, &call, dst, src, size, pe, MOVE_BLOCKING);
}

int spmt_get_nbi(spmt_comm *comm, void *dst, const void *src, size_t size, int pe)
{
	static const struct call call = { "spmt_get_nbi", "src", "dst" };

	if (LIKELY(rma_quick(comm, src, dst, size, pe)))
		return rma_get(comm, call.name, dst, rma_offset(comm, src), size, pe, MOVE_NBI);
	return get_closer(comm, &call, dst, src, size, pe, MOVE_NBI);
}

/* ---- in streams ---------------------------------------------------------------------------- */

static void ring(void *arg)
{
	wake_stored(arg);
}

static void ring_again(const void *args)
{
	wake_stored(*(struct wake_counter *const *)args);
}

static const struct kernel kernel_ring = { "ring", ring_again };

/* A call runs once, a kernel as often as its graph. */
static int ring_queue(spmt_comm *comm, int pe, device_stream stream)
{
	struct wake_counter *counter = comm->wake_counters[pe];

	if (LIKELY(!comm->backend->capturing(comm->dev, stream)))
		return comm->backend->call(comm->dev, stream, ring, counter);
	return kernel_queue(comm, &kernel_ring, &counter, sizeof(counter), stream);
}

/* On the host backend the stream's worker rings when the bytes are there. Where that cannot be queued, a wait finds out by
   itself: the bytes are on their way, and the call has not failed. */
void rma_stored_stream(spmt_comm *comm, int pe, device_stream stream)
{
	struct status_saved saved;

	if (!comm_cpu_access(comm))
		return;
	status_save(&saved);
	if (ring_queue(comm, pe, stream))
		status_restore(&saved);
}

/* Work queued behind a failing collective must not happen: a kernel sees the failure, a copy engine does not. After collectives that
   ended well there is nothing to see. */
static bool is_behind_collective(spmt_comm *comm, const struct link *link, uint64_t offset,
	const void *local, size_t n, const struct reserved *reserved)
{
	uintptr_t d = (uintptr_t)link_at(link, offset), s = (uintptr_t)local;
	bool behind;

	if (LIKELY(!comm->collectives) || !link->by_kernel)
		return false;
	if (!comm_cpu_access(comm) && (d - s < n || s - d < n)) /* to itself */
		return false;
	if (reserved->captured)
		return true;
	behind = comm->collective.set &&
		(mark_late(comm, &comm->collective) ||
			!comm->backend->event_query(comm->dev, comm->collective.event));
	comm->collectives = behind || comm->graphs;
	return behind;
}

static int move_by_kernel(
	spmt_comm *comm, struct kernel_copy_args *args, int pe, device_stream stream)
{
	uint64_t n = args->size;
	uint64_t blocks = MIN_OF(MOVE_BLOCKS, (uint64_t)MAX_OF(comm->units, 1));

	view_fill(comm, &args->view);
	link_count(&comm->links[pe], MOVER_STORE, n);
	return kernel_queue_wide(comm, &kernel_copy, args, sizeof(*args),
		(unsigned)MAX_OF(1u, MIN_OF(n / MOVE_BLOCK_BYTES, blocks)), stream);
}

static int put_queue(spmt_comm *comm, uint64_t offset, const void *src, size_t n, int pe,
	const struct reserved *reserved)
{
	struct link *link = &comm->links[pe];
	struct mover *m = rma_mover(link, n, MOVE_STREAM);
	device_stream stream = reserved->at.stream;
	int rc;

	if (is_behind_collective(comm, link, offset, src, n, reserved)) {
		struct kernel_copy_args args = { .dst = (uintptr_t)link_at(link, offset),
			.src = (uintptr_t)src,
			.size = n,
			.wake = pe };

		return move_by_kernel(comm, &args, pe, stream);
	}
	rc = m->ops->put(m, offset, src, n, MOVE_STREAM, stream);
	comm->pending |= link->pending;
	if (!rc)
		rma_stored_stream(comm, pe, stream);
	return rc;
}

static int get_queue(spmt_comm *comm, void *dst, uint64_t offset, size_t n, int pe,
	const struct reserved *reserved)
{
	struct link *link = &comm->links[pe];
	struct mover *m = rma_mover(link, n, MOVE_STREAM);
	device_stream stream = reserved->at.stream;
	int rc;

	if (is_behind_collective(comm, link, offset, dst, n, reserved)) {
		struct kernel_copy_args args = { .dst = (uintptr_t)dst,
			.src = (uintptr_t)link_at(link, offset),
			.size = n,
			.wake = -1 };

		return move_by_kernel(comm, &args, pe, stream);
	}
	rc = m->ops->get(m, dst, offset, n, MOVE_STREAM, stream);
	comm->pending |= link->pending;
	return rc;
}

int rma_put_stream(
	spmt_comm *comm, uint64_t offset, const void *src, size_t n, int pe, device_stream stream)
{
	HOLD_FOR_COPIES(comm, stream);
	struct reserved reserved;
	int rc = stream_reserve(comm, stream, &reserved);

	if (!rc)
		rc = put_queue(comm, offset, src, n, pe, &reserved);
	if (!rc)
		stream_note(comm, &reserved);
	return rc;
}

int rma_get_stream(
	spmt_comm *comm, void *dst, uint64_t offset, size_t n, int pe, device_stream stream)
{
	HOLD_FOR_COPIES(comm, stream);
	struct reserved reserved;
	int rc = stream_reserve(comm, stream, &reserved);

	if (!rc)
		rc = get_queue(comm, dst, offset, n, pe, &reserved);
	if (!rc)
		stream_note(comm, &reserved);
	return rc;
}

int spmt_put_on_stream(
	spmt_comm *comm, void *dst, const void *src, size_t size, int pe, spmt_stream stream)
{
	static const struct call call = { "spmt_put_on_stream", "dst", "src" };
	EXCLUSIVE(comm, __func__);
	int rc = rma_open(comm, &call, dst, src, size, pe);

	if (rc || !size)
		return rc;
	rc = rma_put_stream(comm, rma_offset(comm, dst), src, size, pe, stream_of(comm, stream));
	return comm_failed(comm, call.name, rc);
}

int spmt_get_on_stream(
	spmt_comm *comm, void *dst, const void *src, size_t size, int pe, spmt_stream stream)
{
	static const struct call call = { "spmt_get_on_stream", "src", "dst" };
	EXCLUSIVE(comm, __func__);
	int rc = rma_open(comm, &call, src, dst, size, pe);

	if (rc || !size)
		return rc;
	rc = rma_get_stream(comm, dst, rma_offset(comm, src), size, pe, stream_of(comm, stream));
	return comm_failed(comm, call.name, rc);
}

/* ---- put with signal ----------------------------------------------------------------------- */

/* What goes to pe's word behind the data. */
struct put_signal {
	uint64_t *sig, val;
	enum spmt_signal_op op;
	int pe;
};

/* call: of the data, then of the signal. */
static int put_signal_open(spmt_comm *comm, const struct call call[2], void *dst, const void *src,
	size_t size, const struct put_signal *s, enum move_mode mode)
{
	int rc = rma_open(comm, &call[0], dst, src, size, s->pe);

	if (!rc)
		rc = rma_open(comm, &call[1], s->sig, s->sig, sizeof(*s->sig), s->pe);
	if (!rc && size && object_is_traced(&comm->head))
		rma_trace_route(comm, size, s->pe, mode);
	return rc ? rc : signal_check(comm, call->name, s->sig, s->op);
}

/* Stream order alone puts data before its signal. The data is noted even if its signal could not be queued. */
static int put_signal_stream(spmt_comm *comm, void *dst, const void *src, size_t size,
	const struct put_signal *s, device_stream stream)
{
	HOLD_DEVICE(comm);
	struct reserved reserved;
	bool queued = false;
	int rc = stream_reserve(comm, stream, &reserved);

	if (!rc && size) {
		rc = put_queue(comm, rma_offset(comm, dst), src, size, s->pe, &reserved);
		queued = !rc;
	}
	if (!rc) {
		rc = signal_queue(comm, s->sig, s->val, s->op, s->pe, stream);
		queued |= !rc;
	}
	if (queued)
		stream_note(comm, &reserved);
	return rc;
}

/* What the device moves is queued with its signal and waited for once; even if the signal could not be queued, as src is the caller's
   again on return. Of a move over the network that fails the stream does not tell, but the link. */
static int put_signal_wait(spmt_comm *comm, struct link *link, int queued)
{
	struct move_wait wait = link_wait_of(link);
	struct status_saved cause;
	int rc;

	status_save(&cause);
	rc = stream_drain(comm, "spmt_put_signal");
	if (!rc && !link->base)
		rc = link_fence(link, &wait);
	if (queued) {
		status_restore(&cause);
		rc = queued;
	}
	return rc ? rma_failed(comm, "spmt_put_signal", rc) : 0;
}

int spmt_put_signal(spmt_comm *comm, void *dst, const void *src, size_t size, uint64_t *sig,
	uint64_t val, enum spmt_signal_op op, int pe)
{
	static const struct call call[] = { { "spmt_put_signal", "dst", "src" },
		{ "spmt_put_signal", "sig", "sig" } };
	EXCLUSIVE(comm, __func__);
	struct put_signal s = { sig, val, op, pe };
	struct mover *m;
	int rc = put_signal_open(comm, call, dst, src, size, &s, MOVE_BLOCKING);

	if (rc)
		return rc;
	if (!comm_cpu_access(comm) && size <= comm->links[pe].threshold)
		return put_signal_wait(comm, &comm->links[pe],
			put_signal_stream(comm, dst, src, size, &s, comm->stream));
	if (size) {
		m = rma_mover(&comm->links[pe], size, MOVE_BLOCKING);
		rc = m->ops->put(m, rma_offset(comm, dst), src, size, MOVE_BLOCKING, NULL);
		comm->pending |= m->link->pending;
		if (rc)
			rc = rma_failed(comm, call->name, rc);
	}
	return rc ? rc : signal_now(comm, call->name, sig, val, op, pe);
}

int spmt_put_signal_nbi(spmt_comm *comm, void *dst, const void *src, size_t size, uint64_t *sig,
	uint64_t val, enum spmt_signal_op op, int pe)
{
	static const struct call call[] = { { "spmt_put_signal_nbi", "dst", "src" },
		{ "spmt_put_signal_nbi", "sig", "sig" } };
	EXCLUSIVE(comm, __func__);
	struct put_signal s = { sig, val, op, pe };
	int rc = put_signal_open(comm, call, dst, src, size, &s, MOVE_NBI);

	if (rc)
		return rc;
	if (comm->links[pe].direct && size <= comm->links[pe].threshold) {
		if (size)
			rc = rma_put(comm, call->name, rma_offset(comm, dst), src, size, pe,
				MOVE_BLOCKING);
		return rc ? rc : signal_now(comm, call->name, sig, val, op, pe);
	}
	rc = put_signal_stream(comm, dst, src, size, &s, comm->stream);
	return comm_failed(comm, call->name, rc);
}

int spmt_put_signal_on_stream(spmt_comm *comm, void *dst, const void *src, size_t size,
	uint64_t *sig, uint64_t val, enum spmt_signal_op op, int pe, spmt_stream stream)
{
	static const struct call call[] = { { "spmt_put_signal_on_stream", "dst", "src" },
		{ "spmt_put_signal_on_stream", "sig", "sig" } };
	EXCLUSIVE(comm, __func__);
	struct put_signal s = { sig, val, op, pe };
	int rc = put_signal_open(comm, call, dst, src, size, &s, MOVE_STREAM);

	if (rc)
		return rc;
	rc = put_signal_stream(comm, dst, src, size, &s, stream_of(comm, stream));
	return comm_failed(comm, call->name, rc);
}

/* ---- strided ------------------------------------------------------------------------------- */

struct strided {
	size_t count, elem, remote_step, local_step; /* steps in bytes */
};

/* The bytes that `count` elements `step` apart span; false if that wraps. */
static bool span(size_t count, size_t elem, ptrdiff_t stride, size_t *step, size_t *bytes)
{
	*step = 0;
	if (count > 1 && __builtin_mul_overflow((size_t)stride, elem, step))
		return false;
	return !__builtin_mul_overflow(count - 1, *step, bytes) &&
		!__builtin_add_overflow(*bytes, elem, bytes);
}

/* Elements one by one; on GPUs queued together and drained once, even if one could not be queued: the local side is the caller's
   again on return. */
static enum move_mode strided_mode(const spmt_comm *comm, int pe)
{
	return comm->links[pe].direct ? MOVE_BLOCKING : MOVE_NBI;
}

/* remote_stride belongs to the symmetric side. s->count 0: nothing to do. */
static int strided_open(spmt_comm *comm, const struct call *call, const void *sym,
	const void *local, ptrdiff_t remote_stride, ptrdiff_t local_stride, int pe,
	struct strided *s)
{
	size_t bytes, local_bytes;
	int rc = rma_peer(comm, call, pe);

	if (rc)
		return rc;
	if (object_is_traced(&comm->head))
		rma_trace(comm, s->elem, s->count, pe, strided_mode(comm, pe));
	if (!s->elem)
		return fail_call(-EINVAL, call->name, "rank %d: elem_size is 0", comm->rank);
	if (remote_stride < 1 || local_stride < 1)
		return fail_call(-EINVAL, call->name,
			"rank %d: strides %td and %td: the least is 1", comm->rank, remote_stride,
			local_stride);
	if (!s->count)
		return 0;
	if (!span(s->count, s->elem, remote_stride, &s->remote_step, &bytes) ||
		!span(s->count, s->elem, local_stride, &s->local_step, &local_bytes))
		return fail_call(-EINVAL, call->name,
			"rank %d: %zu elements of %zu bytes at strides %td and %td wrap the address space",
			comm->rank, s->count, s->elem, remote_stride, local_stride);
	rc = local ? local_check(comm, call->name, call->local, local, local_bytes) : 0;
	if (rc)
		return rc;
	return rma_judge(comm, call, sym, local ? sym : NULL, bytes);
}

static int strided_end(spmt_comm *comm, const char *what, int pe, int rc)
{
	struct first_failure first;

	first.rc = 0;
	failure_note(&first, rc);
	failure_note(&first, comm->links[pe].direct ? 0 : quiet_all(comm, what));
	rma_stored(comm, pe);
	return failure_tell(&first);
}

int spmt_iput(spmt_comm *comm, void *dst, const void *src, ptrdiff_t dst_stride,
	ptrdiff_t src_stride, size_t count, size_t elem_size, int pe)
{
	static const struct call call = { "spmt_iput", "dst", "src" };
	EXCLUSIVE(comm, __func__);
	struct strided s = { .count = count, .elem = elem_size };
	const char *from = src;
	int rc = strided_open(comm, &call, dst, src, dst_stride, src_stride, pe, &s);

	if (rc || !count)
		return rc;
	for (size_t i = 0; i < count && !rc; i++)
		rc = rma_put(comm, call.name, rma_offset(comm, dst) + i * s.remote_step,
			from + i * s.local_step, elem_size, pe, strided_mode(comm, pe));
	return strided_end(comm, call.name, pe, rc);
}

int spmt_iget(spmt_comm *comm, void *dst, const void *src, ptrdiff_t dst_stride,
	ptrdiff_t src_stride, size_t count, size_t elem_size, int pe)
{
	static const struct call call = { "spmt_iget", "src", "dst" };
	EXCLUSIVE(comm, __func__);
	struct strided s = { .count = count, .elem = elem_size };
	char *to = dst;
	int rc = strided_open(comm, &call, src, dst, src_stride, dst_stride, pe, &s);

	if (rc || !count)
		return rc;
	for (size_t i = 0; i < count && !rc; i++)
		rc = rma_get(comm, call.name, to + i * s.local_step,
			rma_offset(comm, src) + i * s.remote_step, elem_size, pe,
			strided_mode(comm, pe));
	return strided_end(comm, call.name, pe, rc);
}
