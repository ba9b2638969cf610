/* SPDX-License-Identifier: MIT */
/* Map `rdma`: what the ranks told each other of their ports and their memory. */
#include "map.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hello.h"
#include "memory.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/* What this process has of one of its ranks. */
struct far_rank {
	struct nic *nic;
	struct region *heap;
};

/* ---- a rank's own side ---------------------------------------------------------------------- */

static void far_rank_close(struct far_rank *far)
{
	if (!far)
		return;
	if (far->heap)
		region_drop(far->nic, far->heap);
	if (far->nic)
		nic_drop(far->nic);
	mem_free(far);
}

static int far_rank_open(
	const struct backend *backend, int dev, struct rank_info *me, struct far_rank **out)
{
	struct status_saved why;
	struct far_rank *far;
	int rc;

	if (!(backend->traits & DEVICE_HOST_ACCESS))
		return fail(SPMT_ERR_UNSUPPORTED,
			"backend %s: memory that the CPU does not reach is not registered",
			backend->name);
	far = mem_calloc(1, sizeof(*far));
	if (!far)
		return fail(-ENOMEM, "out of memory for an RDMA device");
	rc = nic_get(dev, me, &far->nic);
	if (!rc)
		rc = region_add(far->nic, (void *)(uintptr_t)me->heap_base,
			(size_t)(me->heap_size + me->own_size), &far->heap);
	if (rc) {
		status_save(&why);
		far_rank_close(far);
		return fail_again(rc, &why);
	}
	me->nic.key = far->heap->mr->rkey;
	*out = far;
	return 0;
}

static int far_rank_share(struct far_rank *far, void *buf, size_t size, struct far_share *share)
{
	struct region *region;
	int rc = region_add(far->nic, buf, size, &region);

	if (rc)
		return rc;
	share->key = region->mr->rkey;
	share->held = region;
	return 0;
}

static void far_rank_unshare(struct far_rank *far, struct far_share *share)
{
	if (share->held)
		region_drop(far->nic, share->held);
	share->held = NULL;
}

/* ---- a peer's buffers ----------------------------------------------------------------------- */

static int far_learn(struct link *link, uint64_t offset, uint64_t size, uint64_t key)
{
	struct far_peer *peer = link->attached;
	struct far_buffer *b = mem_calloc(1, sizeof(*b));

	if (!b)
		return fail(-ENOMEM, "out of memory for a buffer of rank %d", link->pe);
	*b = (struct far_buffer){ .offset = offset, .size = size, .key = (uint32_t)key };
	pthread_mutex_lock(&peer->nic->lock);
	b->next = peer->buffers;
	peer->buffers = b;
	pthread_mutex_unlock(&peer->nic->lock);
	return 0;
}

static void far_forget(struct link *link, uint64_t offset, uint64_t size, uint64_t key)
{
	struct far_peer *peer = link->attached;
	struct far_buffer **at = &peer->buffers, *b;

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

int far_find(const struct far_peer *peer, uint64_t offset, size_t n, struct far_place *place)
{
	const struct far_buffer *b;

	place->at = peer->base + offset;
	place->key = peer->address.key;
	if (offset <= peer->size && n <= peer->size - offset)
		return 0;
	pthread_mutex_lock(&peer->nic->lock);
	for (b = peer->buffers; b; b = b->next)
		if (offset - b->offset <= b->size && n <= b->size - (offset - b->offset))
			break;
	if (b)
		place->key = b->key;
	pthread_mutex_unlock(&peer->nic->lock);
	return b ? 0
		 : fail(-EFAULT, "offset %llu with %zu bytes is in no memory that the peer shares",
			   (unsigned long long)offset, n);
}

/* ---- links ---------------------------------------------------------------------------------- */

int far_conn(const struct far_peer *peer, const struct verbs_wait *wait, struct conn **c)
{
	pthread_mutex_lock(&peer->nic->lock);
	*c = conn_get(peer->nic, &peer->address);
	pthread_mutex_unlock(&peer->nic->lock);
	return *c ? hello_meet(*c, wait) : -EIO;
}

static int rdma_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	struct far_peer *far;

	(void)backend;
	(void)dev;
	if (!link->far)
		return fail_rank(-EOPNOTSUPP, link->rank,
			"rdma to rank %d: this rank has registered no memory", peer->rank);
	if (peer->nic.ethernet != link->far->nic->place.ethernet)
		return fail_rank(-EHOSTUNREACH, link->rank,
			"rdma to rank %d: one of InfiniBand and Ethernet here, the other there (SPMT_RDMA_DEVICE)",
			peer->rank);
	far = mem_calloc(1, sizeof(*far));
	if (!far)
		return fail_rank(-ENOMEM, link->rank, "rdma to rank %d: out of memory", peer->rank);
	far->nic = link->far->nic;
	far->address = peer->nic;
	far->base = peer->heap_base;
	far->size = peer->heap_size + peer->own_size;
	link->attached = far;
	link->own = peer->own_base - peer->heap_base;
	return 0;
}

static void rdma_detach(struct link *link, const struct backend *backend, int dev)
{
	struct far_peer *far = link->attached;

	(void)backend;
	(void)dev;
	while (far && far->buffers) {
		struct far_buffer *b = far->buffers;

		far->buffers = b->next;
		mem_free(b);
	}
	mem_free(far);
	link->attached = NULL;
}

static const struct far_ops rdma_far = {
	.likely = verbs_likely,
	.open = far_rank_open,
	.close = far_rank_close,
	.share = far_rank_share,
	.unshare = far_rank_unshare,
	.learn = far_learn,
	.forget = far_forget,
};

/* Weak: a test puts another map in its place. */
const struct map_ops map_rdma __attribute__((
	weak)) = { .name = "rdma", .attach = rdma_attach, .detach = rdma_detach, .far = &rdma_far };
