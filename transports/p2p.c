/* SPDX-License-Identifier: MIT */
/* Peers of the same address space: maps `self` and `p2p`, and mover `store`. */
#include <errno.h>
#include <string.h>

#include "../include/spmt.h"
#include "src/base/status.h"
#include "src/base/tsan.h"
#include "src/device/host/host.h"
#include "transport.h"

/* ---- maps */

static void adopt_bases(struct link *link, const struct rank_info *peer)
{
	link->base = (char *)(uintptr_t)peer->heap_base;
	link->own = peer->own_base - peer->heap_base;
}

static int self_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	(void)backend;
	(void)dev;
	adopt_bases(link, peer);
	return 0;
}

/* One direction: the peer enables its own. Whatever the driver's code is, here it means that this way is closed. */
static int p2p_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	int rc = dev == link->peer_dev ? 0 : backend->peer_enable(dev, link->peer_dev);

	if (rc)
		return fail_rank(-EACCES, link->rank,
			"p2p to rank %d refused: %s device %d may not reach device %d: %s",
			peer->rank, backend->name, dev, link->peer_dev, status_sentence());
	adopt_bases(link, peer);
	return 0;
}

/* Peer access stays: other worlds of the process may be using it, and no driver counts its users. */
static void p2p_detach(struct link *link, const struct backend *backend, int dev)
{
	(void)backend;
	(void)dev;
	link->base = NULL;
}

const struct map_ops map_self = { .name = "self", .attach = self_attach, .detach = p2p_detach };
const struct map_ops map_p2p = { .name = "p2p", .attach = p2p_attach, .detach = p2p_detach };

/* ---- bytes by the CPU */

static inline bool aligned(const void *ptr, size_t n)
{
	return !((uintptr_t)ptr & (n - 1));
}

/* A side that is not aligned has no atomic access on any CPU; the other still gets its own. */
#define WORD(bits)                                                                      \
	typedef uint##bits##_t __attribute__((may_alias)) word##bits;                   \
	static inline void store##bits(void *dst, const void *src)                      \
	{                                                                               \
		uint##bits##_t v;                                                       \
                                                                                        \
		if (LIKELY(aligned(src, sizeof(v))))                                    \
			v = __atomic_load_n((const word##bits *)src, __ATOMIC_ACQUIRE); \
		else                                                                    \
			memcpy(&v, src, sizeof(v));                                     \
		tsan_acquire(src);                                                      \
		tsan_release(dst);                                                      \
		if (LIKELY(aligned(dst, sizeof(v))))                                    \
			__atomic_store_n((word##bits *)dst, v, __ATOMIC_RELEASE);       \
		else                                                                    \
			memcpy(dst, &v, sizeof(v));                                     \
	}
WORD(8)
WORD(16)
WORD(32)
WORD(64)

/* memcpy where it is allowed: for large sizes memmove may choose another way, slower than what users compare a put with. It fences its own non-temporal stores. */
static void store_range(void *dst, const void *src, size_t n)
{
	uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;

	if (d - s >= n && s - d >= n)
		memcpy(dst, src, n);
	else
		memmove(dst, src, n);
}

static inline void move_bytes(void *dst, const void *src, size_t n)
{
	switch (n) {
	case 8:
		store64(dst, src);
		break;
	case 4:
		store32(dst, src);
		break;
	case 2:
		store16(dst, src);
		break;
	case 1:
		store8(dst, src);
		break;
	default:
		store_range(dst, src, n);
	}
}

void store_bytes(void *dst, const void *src, size_t n)
{
	move_bytes(dst, src, n);
}

/* ---- mover `store` */

static inline bool cpu_moves(const struct link *link)
{
	return link->backend->traits & DEVICE_HOST_ACCESS;
}

int link_stream_copy(
	const struct link *link, void *dst, const void *src, size_t n, device_stream stream)
{
	if (link->backend == &backend_host)
		return host_copy_unless(link->dev, dst, src, n, stream, link->heeded);
	return link->backend->copy(link->dev, dst, src, n, stream);
}

int link_wait_failed(const struct link *link, const char *what, int rc)
{
	int64_t ms = *link->timeout_ms;

	if (rc == -ECANCELED)
		return fail_rank(rc, link->rank, "%s: stopped while waiting for moves to rank %d",
			what, link->pe);
	if (rc == -ETIMEDOUT)
		return fail_rank(SPMT_ERR_TIMEOUT, link->rank,
			"%s: moves to rank %d are not done after %.*f s (SPMT_TIMEOUT_MS)", what,
			link->pe, SECONDS((double)ms / 1e3));
	return rc;
}

bool link_cut_short(int rc)
{
	return rc == SPMT_ERR_TIMEOUT || rc == -ECANCELED;
}

int link_quiet(struct link *link, struct move_wait *wait)
{
	struct first_failure first;
	bool pending = false;

	first.rc = 0;
	for (int i = 0; i < link->nmovers; i++) {
		struct mover *m = &link->movers[i];
		int one = m->ops->quiet(m, wait);

		pending |= link_cut_short(one);
		failure_note(&first, one);
	}
	link->pending = pending || link->goes_on;
	return failure_tell(&first);
}

int link_fence(struct link *link, struct move_wait *wait)
{
	int n = link->pending ? link->nmovers : 0, rc = 0;

	for (int i = 0; !rc && i < n; i++)
		rc = link->movers[i].ops->fence(&link->movers[i], wait);
	return rc;
}

/* The engine waits for no rank. */
static int store_wait(struct link *link, const char *what, struct move_wait *wait)
{
	int64_t left = process_left(move_wait_end(wait));
	int rc = device_drain(link->backend, link->dev, link->stream, left, link->stop);

	return link_wait_failed(link, what, rc);
}

/* The device moves the bytes, to keep a user's stream in order or because the CPU cannot reach the memory. A wait that was cut short
   leaves the move in flight, for quiet. */
static int store_queue(struct link *link, void *dst, const void *src, size_t n, enum move_mode mode,
	device_stream stream)
{
	struct move_wait wait = link_wait_of(link);
	bool pending;
	int rc = mode == MOVE_STREAM ? link_stream_copy(link, dst, src, n, stream)
				     : link->backend->copy(link->dev, dst, src, n, link->stream);

	if (rc)
		return rc;
	link_count(link, MOVER_STORE, n);
	if (mode == MOVE_STREAM)
		return 0;
	pending = link->pending;
	link->pending = true;
	if (mode == MOVE_NBI)
		return 0;
	rc = store_wait(link, "store", &wait);
	if (!link_cut_short(rc))
		link->pending = pending;
	return rc;
}

static inline int store_move(struct link *link, void *dst, const void *src, size_t n,
	enum move_mode mode, device_stream stream)
{
	if (UNLIKELY(mode == MOVE_STREAM || !cpu_moves(link)))
		return store_queue(link, dst, src, n, mode, stream);
	link_count(link, MOVER_STORE, n);
	move_bytes(dst, src, n);
	return 0;
}

static int store_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	return store_move(m->link, link_at(m->link, offset), local, n, mode, stream);
}

static int store_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	return store_move(m->link, local, link_at(m->link, offset), n, mode, stream);
}

static int store_cannot(const struct link *link, const char *what)
{
	return fail_rank(SPMT_ERR_UNSUPPORTED, link->rank,
		"%s to rank %d: the CPU does not reach its memory, or not in order of a stream",
		what, link->pe);
}

int store_signal(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream)
{
	uint64_t *word = (uint64_t *)(void *)link_at(m->link, offset);

	if (UNLIKELY(stream || !cpu_moves(m->link)))
		return store_cannot(m->link, "signal");
	tsan_release(word);
	if (op == SPMT_SIGNAL_SET)
		__atomic_store_n(word, value, __ATOMIC_RELEASE);
	else
		__atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
	link_count(m->link, MOVER_STORE, sizeof(value));
	return 0;
}

int store_atomic(struct mover *m, uint64_t offset, const struct amo *amo, uint64_t *old)
{
	char *word = link_at(m->link, offset);
	uint64_t was;

	if (UNLIKELY(!cpu_moves(m->link)))
		return store_cannot(m->link, "atomic");
	tsan_release(word);
	was = amo_do(word, amo);
	tsan_acquire(word);
	link_count(m->link, MOVER_STORE, amo->size);
	if (old)
		*old = was;
	return 0;
}

/* The CPU's stores are done when issued, and in order for whoever acquires a later release store: nothing to wait for. Queued
   copies are all in link->stream, whose quiet waits for those of the comm's other links too. */
static int store_fence(struct mover *m, struct move_wait *wait)
{
	struct link *link = m->link;

	return cpu_moves(link) || !link->pending ? 0 : store_wait(link, "fence", wait);
}

static int store_quiet(struct mover *m, struct move_wait *wait)
{
	struct link *link = m->link;

	return cpu_moves(link) || !link->pending ? 0 : store_wait(link, "quiet", wait);
}

static void store_close(struct mover *m)
{
	(void)m; /* keeps no state */
}

const struct mover_ops mover_store = {
	.name = "store",
	.put = store_put,
	.get = store_get,
	.signal = store_signal,
	.atomic = store_atomic,
	.fence = store_fence,
	.quiet = store_quiet,
	.close = store_close,
};
