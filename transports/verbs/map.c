/* SPDX-License-Identifier: MIT */
/* Map `rdma`: what the ranks told each other of their ports and their memory. */
#include "map.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache.h"
#include "hello.h"
#include "memory.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "stage.h"

#define KEY_STAGED (1ull << 32)
enum { ATOMICS_AUTO, ATOMICS_BY_CPU, ATOMICS_BY_NIC }; /* SPMT_RDMA_ATOMICS */

/* ---- a rank's own side ---------------------------------------------------------------------- */

static void rdma_rank_close(struct rdma_rank *rdma)
{
	if (!rdma)
		return;
	if (rdma->heap)
		region_drop(rdma->nic, rdma->heap);
	if (rdma->stage)
		cache_forget(rdma->nic, rdma->stage);
	stage_close(rdma->nic, rdma->stage);
	if (rdma->nic)
		nic_drop(rdma->nic);
	mem_free(rdma);
}

static enum rdma_atomics rank_atomics(const struct nic *nic, const struct region *heap)
{
	const struct env *env = env_loaded();
	uint32_t cap = nic->place.device.atomic_cap;

	if (!env || heap->memory != RDMA_HOST || cap == VERBS_ATOMIC_NONE ||
		env->rdma_atomics == ATOMICS_BY_CPU)
		return RDMA_ATOMICS_CPU;
	if (cap == VERBS_ATOMIC_GLOB)
		return RDMA_ATOMICS_BOTH;
	return env->rdma_atomics == ATOMICS_BY_NIC ? RDMA_ATOMICS_NIC : RDMA_ATOMICS_CPU;
}

static int rdma_rank_open(
	const struct backend *backend, int dev, struct rank_info *me, struct rdma_rank **out)
{
	struct status_saved why;
	struct rdma_rank *rdma;
	int rc;

	rdma = mem_calloc(1, sizeof(*rdma));
	if (!rdma)
		return fail(-ENOMEM, "out of memory for an RDMA device");
	rc = nic_get(dev, me, &rdma->nic);
	if (!rc && !(backend->traits & DEVICE_HOST_ACCESS))
		rc = stage_open(rdma->nic, backend, dev, &rdma->stage);
	if (!rc)
		rc = region_add(rdma->nic, rdma->stage, (void *)(uintptr_t)me->heap_base,
			(size_t)(me->heap_size + me->own_size), &rdma->heap);
	if (rc) {
		status_save(&why);
		rdma_rank_close(rdma);
		return fail_again(rc, &why);
	}
	me->nic.key = rdma->heap->key;
	me->nic.memory = (uint8_t)rdma->heap->memory;
	me->nic.atomics = (uint8_t)rank_atomics(rdma->nic, rdma->heap);
	*out = rdma;
	return 0;
}

static int rdma_rank_share(struct rdma_rank *rdma, void *buf, size_t size, struct rdma_share *share)
{
	struct region *region;
	int rc = region_add(rdma->nic, rdma->stage, buf, size, &region);

	if (rc)
		return rc;
	share->key = region->key | (region->mr ? 0 : KEY_STAGED);
	share->held = region;
	return 0;
}

static void rdma_rank_unshare(struct rdma_rank *rdma, struct rdma_share *share)
{
	if (share->held)
		region_drop(rdma->nic, share->held);
	share->held = NULL;
}

/* ---- a peer's buffers ----------------------------------------------------------------------- */

static int rdma_learn(struct link *link, uint64_t offset, uint64_t size, uint64_t key)
{
	struct rdma_peer *peer = link->attached;
	struct rdma_buffer *b = mem_calloc(1, sizeof(*b));

	if (!b)
		return fail(-ENOMEM, "out of memory for a buffer of rank %d", link->pe);
	*b = (struct rdma_buffer){ .offset = offset,
		.size = size,
		.key = (uint32_t)key,
		.staged = (key & KEY_STAGED) != 0 };
	pthread_mutex_lock(&peer->nic->lock);
	b->next = peer->buffers;
	peer->buffers = b;
	pthread_mutex_unlock(&peer->nic->lock);
	return 0;
}

static void rdma_forget(struct link *link, uint64_t offset, uint64_t size, uint64_t key)
{
	struct rdma_peer *peer = link->attached;
	struct rdma_buffer **at = &peer->buffers, *b;

	pthread_mutex_lock(&peer->nic->lock);
	while (*at &&
		((*at)->offset != offset || (*at)->size != size || (*at)->key != (uint32_t)key))
		at = &(*at)->next;
	b = *at;
	if (b)
		*at = b->next;
	pthread_mutex_unlock(&peer->nic->lock);
	mem_free(b);
}

int rdma_find(const struct rdma_peer *peer, uint64_t offset, size_t n, struct rdma_place *place)
{
	const struct rdma_buffer *b;

	place->at = peer->base + offset;
	place->key = peer->address.key;
	place->staged = peer->address.memory == RDMA_BOUNCE;
	place->atomics = peer->address.atomics;
	if (offset <= peer->size && n <= peer->size - offset) {
		if (offset >= peer->own) /* where neighbours' CPUs write as well */
			place->atomics = RDMA_ATOMICS_CPU;
		return 0;
	}
	pthread_mutex_lock(&peer->nic->lock);
	for (b = peer->buffers; b; b = b->next)
		if (offset - b->offset <= b->size && n <= b->size - (offset - b->offset))
			break;
	if (b) {
		place->key = b->key;
		place->staged = b->staged;
	}
	pthread_mutex_unlock(&peer->nic->lock);
	return b ? 0
		 : fail(-EFAULT, "offset %llu with %zu bytes is in no memory that the peer shares",
			   (unsigned long long)offset, n);
}

/* ---- links ---------------------------------------------------------------------------------- */

struct verbs_wait link_patience(const struct link *link)
{
	return (struct verbs_wait){ .ns = verbs_wait_ns(*link->timeout_ms), .stop = link->stop };
}

int64_t rdma_stopped_end(const struct link *link, int64_t ns)
{
	struct rdma_rank *rdma = link->rdma;
	int64_t end;

	pthread_mutex_lock(&rdma->nic->lock);
	if (rdma->stopped != link->stop) {
		rdma->stopped = link->stop;
		rdma->stopped_end = process_now() + ns;
	}
	end = rdma->stopped_end;
	pthread_mutex_unlock(&rdma->nic->lock);
	return end;
}

int rdma_conn(const struct rdma_peer *peer, struct verbs_wait *wait, struct pairing **c)
{
	pthread_mutex_lock(&peer->nic->lock);
	*c = pairing_get(peer->nic, &peer->address);
	pthread_mutex_unlock(&peer->nic->lock);
	return *c ? hello_meet(*c, wait) : -EIO;
}

/* SPMT_RDMA_LAZY=0: what cannot be reached is found out at init. On failure nothing is attached. */
static int rdma_connect_now(struct link *link, struct rdma_peer *rdma)
{
	const struct env *env = env_loaded();
	struct verbs_wait wait = link_patience(link);
	struct pairing *c;
	int rc;

	if (!env || env->rdma_lazy)
		return 0;
	rc = rdma_conn(rdma, &wait, &c);
	if (!rc)
		return 0;
	if (rc == -ECANCELED)
		rc = link_wait_failed(link, "rdma", rc);
	else
		rc = fail_rank(
			rc, link->rank, "rdma to rank %d: %.360s", link->pe, status_sentence());
	mem_free(rdma);
	link->attached = NULL;
	return rc;
}

static int rdma_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	struct rdma_peer *rdma;

	(void)backend;
	(void)dev;
	if (!link->rdma)
		return fail_rank(-EOPNOTSUPP, link->rank,
			"rdma to rank %d: this rank has registered no memory", peer->rank);
	if (peer->nic.ethernet != link->rdma->nic->place.ethernet)
		return fail_rank(-EHOSTUNREACH, link->rank,
			"rdma to rank %d: one of InfiniBand and Ethernet here, the other there (SPMT_RDMA_DEVICE)",
			peer->rank);
	rdma = mem_calloc(1, sizeof(*rdma));
	if (!rdma)
		return fail_rank(-ENOMEM, link->rank, "rdma to rank %d: out of memory", peer->rank);
	rdma->nic = link->rdma->nic;
	rdma->address = peer->nic;
	rdma->base = peer->heap_base;
	rdma->size = peer->heap_size + peer->own_size;
	rdma->own = peer->own_base - peer->heap_base;
	link->attached = rdma;
	link->own = peer->own_base - peer->heap_base;
	return rdma_connect_now(link, rdma);
}

static void rdma_detach(struct link *link, const struct backend *backend, int dev)
{
	struct rdma_peer *rdma = link->attached;

	(void)backend;
	(void)dev;
	while (rdma && rdma->buffers) {
		struct rdma_buffer *b = rdma->buffers;

		rdma->buffers = b->next;
		mem_free(b);
	}
	mem_free(rdma);
	link->attached = NULL;
}

static const struct rdma_ops rdma_far = {
	.likely = verbs_likely,
	.open = rdma_rank_open,
	.close = rdma_rank_close,
	.share = rdma_rank_share,
	.unshare = rdma_rank_unshare,
	.learn = rdma_learn,
	.forget = rdma_forget,
};

/* Weak: a test puts another map in its place. */
const struct map_ops map_rdma __attribute__((weak)) = {
	.name = "rdma", .attach = rdma_attach, .detach = rdma_detach, .rdma = &rdma_far
};
