/* SPDX-License-Identifier: MIT */
#include "plain_views.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/kernels/area.h"

static int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static const struct views *world_of(const struct spmt_view *v)
{
	return (const struct views *)(const void *)v->host;
}

static int pause_here(const struct spmt_view *v, struct spmtd_pause *p)
{
	if (__atomic_load_n(&world_of(v)->stop, __ATOMIC_ACQUIRE))
		return SPMTD_ABORTED;
	if (!p->n++)
		p->begin = clock_ns();
	if (v->timeout_ns && clock_ns() - p->begin > (int64_t)v->timeout_ns)
		return SPMTD_TIMEOUT;
	sched_yield();
	return 0;
}

static void resume_here(const struct spmt_view *v, struct spmtd_pause *p)
{
	(void)v;
	p->n = 0;
}

static void wake_here(const struct spmt_view *v, int32_t pe)
{
	__atomic_fetch_add(&world_of(v)->wakes[pe], 1, __ATOMIC_RELAXED);
}

int views_open(struct views *w, int n, size_t heap, bool flat)
{
	size_t own = area_size(n, VIEWS_ROOM) + VIEWS_STAGE;

	memset(w, 0, sizeof(*w));
	w->ops.pause = pause_here;
	w->ops.resume = resume_here;
	w->ops.wake = wake_here;
	w->n = n;
	w->flat = flat;
	w->heap = (heap + 63) / 64 * 64;
	w->stride = (w->heap + own + 4095) / 4096 * 4096;
	w->timeout_ns = 10000000000ull;
	w->memory = aligned_alloc(4096, (size_t)n * w->stride);
	w->peers = calloc((size_t)n, sizeof(*w->peers));
	w->records = calloc((size_t)n, sizeof(*w->records));
	w->wakes = calloc((size_t)n, sizeof(*w->wakes));
	if (!w->memory || !w->peers || !w->records || !w->wakes) {
		views_close(w);
		return -1;
	}
	memset(w->memory, 0, (size_t)n * w->stride);
	for (int pe = 0; pe < n; pe++) {
		w->peers[pe].base = (uint64_t)(uintptr_t)views_heap(w, pe);
		w->peers[pe].own = w->peers[pe].base + w->heap;
	}
	return 0;
}

void views_close(struct views *w)
{
	free(w->memory);
	free(w->peers);
	free(w->records);
	free(w->wakes);
	memset(w, 0, sizeof(*w));
}

char *views_heap(const struct views *w, int pe)
{
	return w->memory + (size_t)pe * w->stride;
}

uint64_t views_wakes(const struct views *w, int pe)
{
	return __atomic_load_n(&w->wakes[pe], __ATOMIC_RELAXED);
}

struct spmt_view view_of(const struct views *w, int pe)
{
	struct spmt_view v;

	memset(&v, 0, sizeof(v));
	v.size = sizeof(v);
	v.abi = SPMT_VIEW_ABI;
	v.pe = pe;
	v.npes = w->n;
	v.base = (uint64_t)(uintptr_t)views_heap(w, pe);
	v.heap_size = w->heap;
	if (w->flat) {
		v.flat = (uint64_t)(uintptr_t)w->memory;
		v.stride = w->stride;
	} else {
		v.peers = w->peers;
	}
	v.own = (struct spmtd_own *)(void *)(views_heap(w, pe) + w->heap);
	v.stop = &w->stop;
	v.record = &w->records[pe];
	v.timeout_ns = w->timeout_ns;
	v.host = &w->ops;
	v.sessions = area_sessions(0, w->n);
	v.nsessions = AREA_SESSIONS;
	return v;
}

struct spmt_channel channel_of(const struct views *w, int pe, int peer, uint32_t index,
	size_t local, size_t remote, size_t n)
{
	uint64_t here = (uint64_t)(uintptr_t)views_heap(w, pe);
	uint64_t there = (uint64_t)(uintptr_t)views_heap(w, peer);

	return (struct spmt_channel){
		.size = sizeof(struct spmt_channel),
		.abi = SPMT_VIEW_ABI,
		.pe = pe,
		.peer = peer,
		.local = here + local,
		.local_size = n,
		.remote = there + remote,
		.remote_size = n,
		.incoming = here + remote,
		.arrived = area_arrived(here + w->heap, w->n, peer, index),
		.expected = area_expected(here + w->heap, w->n, peer, index),
		.there = area_arrived(there + w->heap, w->n, pe, index),
	};
}

struct spmt_switch switch_of(const struct views *w, int pe, size_t off, size_t n)
{
	struct spmt_view v = view_of(w, pe);

	return (struct spmt_switch){
		.size = sizeof(struct spmt_switch),
		.abi = SPMT_VIEW_ABI,
		.pe = pe,
		.npes = w->n,
		.bytes = n,
		.offset = off,
		.flat = v.flat,
		.stride = v.stride,
		.peers = v.peers,
	};
}

struct coll_places views_places(int n, uint32_t piece)
{
	struct coll_places places = coll_places(n);

	places.stage = (uint32_t)area_size(n, VIEWS_ROOM);
	places.piece = piece;
	return places;
}
