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
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "stage.h"

#define KEY_STAGED (1ull << 32)			       /* the first device does not know it */
#define KEY_KNOWN (1ull << 33)			       /* a further one does */
enum { ATOMICS_AUTO, ATOMICS_BY_CPU, ATOMICS_BY_NIC }; /* SPMT_RDMA_ATOMICS */

/* ---- a rank's own side ---------------------------------------------------------------------- */

/*
 * Of a broken world peers may still move bytes to and from the heap. Without its registration that would end the connection, of other worlds,
 * too. So the device knows a heap of the host's for a while: it holds the pages, which are nobody's any more once they are unmapped,
 * and what still comes goes there. Memory of a GPU it must not: a driver gives the same memory to who allocates next, or takes it from
 * under the device; and so do users with buffers of theirs (rdma_rank_unshare): what came late would be written into something else. There the
 * connection ends.
 */
static void heap_drop(struct nic *nic, struct region *heap, bool broken)
{
	if (!heap)
		return;
	if (broken && heap->memory == RDMA_HOST)
		region_retire(nic, heap);
	else
		region_drop(nic, heap);
}

static void rail_close(const struct rdma_rail *rail, bool broken)
{
	heap_drop(rail->nic, rail->heap, broken);
	nic_drop(rail->nic);
}

static void rdma_rank_close(struct rdma_rank *rdma, bool broken)
{
	if (!rdma)
		return;
	while (rdma->nrails)
		rail_close(&rdma->rails[--rdma->nrails], broken);
	heap_drop(rdma->nic, rdma->heap, broken);
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

/* What the others are told of a further device. */
static void rail_say(const struct rdma_rail *rail, struct rank_rail *said)
{
	struct rank_nic address;

	hello_address(rail->nic, &address);
	*said = (struct rank_rail){ .qpn = address.qpn,
		.qkey = address.qkey,
		.key = rail->heap->key,
		.lid = address.lid,
		.mtu = address.mtu,
		.ethernet = address.ethernet,
		.port = address.port };
	memcpy(said->device, address.device, sizeof(address.device));
	memcpy(said->endpoint, address.endpoint, sizeof(said->endpoint));
	memcpy(said->gid, address.gid, sizeof(said->gid));
}

/* Takes over the port. One that does not know the heap is left out. */
static void rail_open(struct rdma_rank *rdma, struct nic *nic, struct rank_info *me)
{
	struct rdma_rail rail = { .nic = nic };
	int rc;
	KEEPS_SENTENCE;

	rc = region_add(nic, rdma->stage, (void *)(uintptr_t)me->heap_base,
		(size_t)(me->heap_size + me->own_size), &rail.heap);
	if (rc || !rail.heap->mr) {
		log_line(LOG_INFO,
			"rank %d does without %s port %d, which does not know its heap%s%s",
			me->rank, nic->place.name, nic->place.port, rc ? ": " : "",
			rc ? status_sentence() : "");
		rail_close(&rail, false);
	} else {
		log_line(LOG_INFO, "rank %d: large moves also by %s port %d", me->rank,
			nic->place.name, nic->place.port);
		rail_say(&rail, &me->nic.rail[rdma->nrails]);
		rdma->rails[rdma->nrails++] = rail;
		me->nic.rails = (uint8_t)rdma->nrails;
	}
}

static int rdma_rank_open(
	const struct backend *backend, int dev, struct rank_info *me, struct rdma_rank **out)
{
	struct nic *nics[RDMA_RAILS];
	struct rdma_rank *rdma;
	int rc, n = 0;

	rdma = mem_calloc(1, sizeof(*rdma));
	if (!rdma)
		return fail(-ENOMEM, "out of memory for an RDMA device");
	rc = nic_get(dev, me, nics, &n);
	if (!rc)
		rdma->nic = nics[0];
	if (!rc && !(backend->traits & DEVICE_HOST_ACCESS))
		rc = stage_open(rdma->nic, backend, dev, &rdma->stage);
	if (!rc)
		rc = region_add(rdma->nic, rdma->stage, (void *)(uintptr_t)me->heap_base,
			(size_t)(me->heap_size + me->own_size), &rdma->heap);
	if (rc) {
		KEEPS_SENTENCE;
		while (n > 1)
			nic_drop(nics[--n]);
		rdma_rank_close(rdma, false);
		return rc;
	}
	rdma->failures = me->nic.failures;
	me->nic.key = rdma->heap->key;
	me->nic.memory = (uint8_t)rdma->heap->memory;
	me->nic.atomics = (uint8_t)rank_atomics(rdma->nic, rdma->heap);
	for (int i = 1; i < n; i++)
		rail_open(rdma, nics[i], me);
	*out = rdma;
	return 0;
}

/* At once, also in a broken world: the user may have the memory back, and nothing is to be written there any more. */
static void rdma_rank_unshare(struct rdma_rank *rdma, struct rdma_share *share)
{
	for (int i = 0; i < RDMA_RAILS; i++) {
		if (share->held[i])
			region_drop(i ? rdma->rails[i - 1].nic : rdma->nic, share->held[i]);
		share->held[i] = NULL;
	}
}

static uint64_t key_flags(int rail, const struct region *region)
{
	if (rail)
		return region->mr ? KEY_KNOWN : 0;
	return region->mr ? 0 : KEY_STAGED;
}

/* A further device that cannot is left out: its key is not known, and moves of the buffer stay whole. */
static int rdma_rank_share(struct rdma_rank *rdma, void *buf, size_t size, struct rdma_share *share)
{
	struct status_saved saved;

	status_save(&saved);
	for (int i = 0; i <= rdma->nrails; i++) {
		struct nic *nic = i ? rdma->rails[i - 1].nic : rdma->nic;
		struct region *region;
		int rc = region_add(nic, rdma->stage, buf, size, &region);

		if (rc && !i)
			return rc;
		if (rc) {
			log_line(LOG_INFO, "%s port %d does without the %zu bytes at %p: %s",
				nic->place.name, nic->place.port, size, buf, status_sentence());
			status_restore(&saved);
			continue;
		}
		share->held[i] = region;
		share->keys[i] = region->key | key_flags(i, region);
	}
	return 0;
}

/* ---- a peer's buffers ----------------------------------------------------------------------- */

static void rdma_learn(struct link *link, struct rdma_buffer *buffer)
{
	struct rdma_peer *peer = link->attached;

	pthread_mutex_lock(&peer->nic->lock);
	buffer->next = peer->buffers;
	peer->buffers = buffer;
	pthread_mutex_unlock(&peer->nic->lock);
}

static void rdma_forget(struct link *link, struct rdma_buffer *buffer)
{
	struct rdma_peer *peer = link->attached;
	struct rdma_buffer **at = &peer->buffers;

	pthread_mutex_lock(&peer->nic->lock);
	while (*at && *at != buffer)
		at = &(*at)->next;
	if (*at)
		*at = buffer->next;
	pthread_mutex_unlock(&peer->nic->lock);
}

bool rdma_known(
	const struct rdma_peer *peer, int lane, uint64_t offset, size_t n, struct rdma_place *place)
{
	int rail = peer->lanes[lane].rail;
	const struct rdma_buffer *b;
	bool known;

	place->at = peer->base + offset;
	place->key = rail ? peer->address.rail[rail - 1].key : peer->address.key;
	place->staged = peer->address.memory == RDMA_BOUNCE;
	place->atomics = peer->address.atomics;
	if (offset <= peer->size && n <= peer->size - offset) {
		if (offset >= peer->own) /* where neighbours' CPUs write as well */
			place->atomics = RDMA_ATOMICS_CPU;
		return true;
	}
	pthread_mutex_lock(&peer->nic->lock);
	for (b = peer->buffers; b; b = b->next)
		if (offset - b->offset <= b->size && n <= b->size - (offset - b->offset))
			break;
	if (b) {
		place->key = (uint32_t)b->keys[rail];
		place->staged = (b->keys[0] & KEY_STAGED) != 0;
	}
	known = b && (!rail || b->keys[rail] & KEY_KNOWN);
	pthread_mutex_unlock(&peer->nic->lock);
	return known;
}

int rdma_find(const struct rdma_peer *peer, uint64_t offset, size_t n, struct rdma_place *place)
{
	return rdma_known(peer, 0, offset, n, place)
		? 0
		: fail(-EFAULT, "offset %llu with %zu bytes is in no memory that the peer shares",
			  (unsigned long long)offset, n);
}

/* ---- links ---------------------------------------------------------------------------------- */

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

void rdma_begins(const struct link *link)
{
	struct rdma_rank *rdma = link->rdma;

	if (__atomic_load_n(link->stop, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&rdma->nic->lock);
	if (rdma->stopped == link->stop)
		rdma->stopped = NULL;
	pthread_mutex_unlock(&rdma->nic->lock);
}

/* How the peer's device of a lane is addressed. */
static void lane_address(const struct rdma_peer *peer, int lane, struct rank_nic *address)
{
	int rail = peer->lanes[lane].rail;
	const struct rank_rail *said;

	*address = peer->address;
	if (!rail)
		return;
	said = &peer->address.rail[rail - 1];
	memcpy(address->endpoint, said->endpoint, sizeof(address->endpoint));
	memcpy(address->gid, said->gid, sizeof(address->gid));
	address->qpn = said->qpn;
	address->qkey = said->qkey;
	address->lid = said->lid;
	address->mtu = said->mtu;
	address->port = said->port;
	memcpy(address->device, said->device, sizeof(address->device));
}

/* Drivers make queue pairs and registrations by calls that are cancellation points. */
int rdma_conn(const struct rdma_peer *peer, int lane, struct verbs_wait *wait, struct pairing **c)
{
	UNCANCELLED;
	struct nic *nic = peer->lanes[lane].nic;
	struct rank_nic address;

	lane_address(peer, lane, &address);
	pthread_mutex_lock(&nic->lock);
	*c = pairing_get(nic, peer->failures, &address, peer->nth);
	pthread_mutex_unlock(&nic->lock);
	return *c ? hello_meet(*c, wait) : status_last_code();
}

/* SPMT_RDMA_LAZY=0: what cannot be reached is found out at init. On failure nothing is attached. */
static int rdma_connect_now(struct link *link, struct rdma_peer *rdma)
{
	const struct env *env = env_loaded();
	struct verbs_wait wait = link_patience(link);
	struct pairing *c;
	int rc = 0;

	if (!env || env->rdma_lazy)
		return 0;
	for (int i = 0; i < rdma->nlanes && !rc; i++)
		rc = rdma_conn(rdma, i, &wait, &c);
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

/* The i-th device here with the i-th there; where one end has fewer, it begins anew with its first. */
static void lanes_fill(const struct rdma_rank *own, struct rdma_peer *peer)
{
	int here = 1 + own->nrails, there = 1 + MIN_OF(peer->address.rails, RDMA_RAILS - 1);

	peer->nlanes = MAX_OF(here, there);
	for (int i = 0; i < peer->nlanes; i++) {
		peer->lanes[i].nic = i % here ? own->rails[i % here - 1].nic : own->nic;
		peer->lanes[i].rail = i % there;
	}
}

/* The same at both ends, where they have as many; by a hash, as ports are dealt out by rank, too. */
static int conn_nth(int rank, int pe)
{
	const struct env *env = env_loaded();
	uint32_t pair = (uint32_t)MIN_OF(rank, pe) << 16 ^ (uint32_t)MAX_OF(rank, pe);

	return env ? (int)((pair * 0x9e3779b1u >> 16) % (uint32_t)env->rdma_connections) : 0;
}

static int rdma_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	struct rdma_peer *rdma;

	(void)backend;
	(void)dev;
	if (!link->rdma)
		return fail_rank(SPMT_ERR_UNSUPPORTED, link->rank,
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
	rdma->failures = link->rdma->failures;
	rdma->nth = conn_nth(link->rank, peer->rank);
	rdma->base = peer->heap_base;
	rdma->size = peer->heap_size + peer->own_size;
	rdma->own = peer->own_base - peer->heap_base;
	lanes_fill(link->rdma, rdma);
	link->attached = rdma;
	link->own = peer->own_base - peer->heap_base;
	return rdma_connect_now(link, rdma);
}

static void rdma_detach(struct link *link, const struct backend *backend, int dev)
{
	(void)backend;
	(void)dev;
	mem_free(link->attached);
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
