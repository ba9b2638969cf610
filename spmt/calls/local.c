/* SPDX-License-Identifier: MIT */
/* Buffers that one rank registers by itself, under a key, and that ranks of its process look up: without a meeting, so that a
   framework's handler may, which no other rank's has to wait for. */
#include <errno.h>

#include "register.h"
#include "spmt/comm/gather.h"
#include "spmt/control/exclusive.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

void mem_withdraw(spmt_mem *mem)
{
	struct offer *offer = mem->offer;

	if (!offer)
		return;
	if (mem->offers)
		offers_remove(&mem->comm->world->offers, offer);
	offer_unref(offer);
	mem->offer = NULL;
}

static struct offer *offer_new(const spmt_comm *comm, uint64_t key, const void *buf, size_t size)
{
	struct offer *offer = mem_calloc(1, sizeof(*offer));

	if (!offer)
		return NULL;
	offer->comm = comm->id;
	offer->key = key;
	offer->rank = comm->rank;
	offer->base = size ? (uintptr_t)buf : 0;
	offer->size = size;
	atomic_store(&offer->refs, 1);
	return offer;
}

/* From here on the buffer holds the offer, and is of the offer's rank alone. */
static void mem_take_offer(spmt_mem *mem, struct offer *offer)
{
	const struct link *link = &mem->comm->links[offer->rank];

	mem->offer = offer;
	mem->posts.gone = &offer->gone;
	atomic_store_explicit(&mem->head.local, true, memory_order_relaxed);
	mem->peers[offer->rank] =
		(struct spmtd_mem_peer){ .base = offer->base, .size = offer->size };
	mem->offsets[offer->rank] = link_offset(link, offer->base);
}

int spmt_register_local(spmt_comm *comm, uint64_t key, void *buf, size_t size, spmt_mem **mem)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_register_local";
	struct offer *offer;
	spmt_mem *m;
	int rc = comm_enter(comm, what);

	if (!rc)
		rc = register_check(comm, what, buf, size, mem);
	if (!rc)
		rc = mem_create(comm, what, &m);
	if (rc)
		return rc;
	offer = offer_new(comm, key, buf, size);
	if (!offer) {
		mem_destroy(m);
		return fail_call(
			-ENOMEM, what, "rank %d: out of memory for a registration", comm->rank);
	}
	mem_take_offer(m, offer);
	if (!offers_add(&comm->world->offers, offer)) {
		mem_destroy(m);
		return fail_call(-EEXIST, what,
			"rank %d: a buffer is registered under key %llu, and not deregistered",
			comm->rank, (unsigned long long)key);
	}
	m->offers = true;
	mem_publish(m, comm->offered++);
	*mem = m;
	return 0;
}

static int lookup_check(const spmt_comm *comm, const char *what, int pe, spmt_mem *const *mem)
{
	if (!comm_has_pe(comm, pe))
		return comm_refuse_pe(comm, what, pe);
	if (!mem)
		return fail_call(-EINVAL, what, "rank %d: mem is NULL", comm->rank);
	if (!comm_is_local(comm, pe))
		return fail_call(SPMT_ERR_UNSUPPORTED, what,
			"rank %d: rank %d is in another process, whose buffers spmt_register makes known",
			comm->rank, pe);
	if (!comm->links[pe].base)
		return fail_call(SPMT_ERR_UNSUPPORTED, what,
			"rank %d: rank %d's memory is reached by a NIC, which spmt_register tells of it",
			comm->rank, pe);
	return 0;
}

int spmt_mem_lookup(spmt_comm *comm, int pe, uint64_t key, spmt_mem **mem)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	static const char what[] = "spmt_mem_lookup";
	struct offer *offer;
	spmt_mem *m;
	int rc = comm_enter(comm, what);

	if (!rc)
		rc = lookup_check(comm, what, pe, mem);
	if (rc)
		return rc;
	offer = offers_find(&comm->world->offers, comm->id, pe, key);
	if (!offer)
		return fail_call(-ENOENT, what, "rank %d: rank %d has no buffer under key %llu now",
			comm->rank, pe, (unsigned long long)key);
	rc = mem_create(comm, what, &m);
	if (rc) {
		offer_unref(offer);
		return rc;
	}
	mem_take_offer(m, offer);
	mem_publish(m, comm->offered++);
	*mem = m;
	return 0;
}
