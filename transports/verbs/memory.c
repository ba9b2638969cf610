/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include <errno.h>

#include "hello.h"
#include "src/base/fault.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define PAGE 4096

/* For the port alone: no peer has a key. */
static int own_open(struct nic *nic, size_t size, char **at, struct verbs_mr **mr)
{
	*at = mem_aligned(PAGE, size);
	if (!*at)
		return fail(
			-ENOMEM, "%s: no memory for %zu bytes of buffers", nic->place.name, size);
	*mr = fault_here(FAULT_REGISTER)
		? (errno = ENOMEM, NULL)
		: nic->api->reg_mr(nic->pd, *at, size, VERBS_ACCESS_LOCAL_WRITE);
	if (!*mr)
		return fail_errno(errno,
			"%s: ibv_reg_mr of %zu bytes of buffers (limits of locked memory: ulimit -l)",
			nic->place.name, size);
	return 0;
}

int memory_open(struct nic *nic)
{
	int rc = own_open(nic, NIC_CHUNKS * NIC_CHUNK, &nic->chunks, &nic->bounce);

	if (rc)
		return rc;
	for (int i = 0; i < NIC_CHUNKS; i++)
		nic->free_chunks[nic->nfree++] = NIC_CHUNKS - 1 - i;
	return own_open(nic, HELLO_BYTES, &nic->hellos, &nic->words);
}

static void mr_drop(struct nic *nic, struct verbs_mr *mr)
{
	int rc = mr ? nic->api->dereg_mr(mr) : 0;

	if (rc)
		log_line(LOG_ERROR, "%s: ibv_dereg_mr: %d", nic->place.name, rc);
}

void memory_close(struct nic *nic)
{
	mr_drop(nic, nic->bounce);
	mr_drop(nic, nic->words);
	mem_free(nic->chunks);
	mem_free(nic->hellos);
}

int region_add(struct nic *nic, void *base, size_t size, struct region **out)
{
	struct region *r = mem_calloc(1, sizeof(*r));

	if (!r)
		return fail(-ENOMEM, "%s: out of memory for a registration", nic->place.name);
	r->base = base;
	r->size = size;
	r->mr = fault_here(FAULT_REGISTER)
		? (errno = ENOMEM, NULL)
		: nic->api->reg_mr(nic->pd, base, size,
			  VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE |
				  VERBS_ACCESS_REMOTE_READ);
	if (!r->mr) {
		int err = errno;

		mem_free(r);
		return fail_errno(err,
			"%s: ibv_reg_mr of %zu bytes (limits of locked memory: ulimit -l)",
			nic->place.name, size);
	}
	pthread_mutex_lock(&nic->lock);
	r->next = nic->regions;
	nic->regions = r;
	pthread_mutex_unlock(&nic->lock);
	*out = r;
	return 0;
}

void region_drop(struct nic *nic, struct region *region)
{
	struct region **at = &nic->regions;

	pthread_mutex_lock(&nic->lock);
	while (*at != region)
		at = &(*at)->next;
	*at = region->next;
	pthread_mutex_unlock(&nic->lock);
	mr_drop(nic, region->mr);
	mem_free(region);
}

static bool region_holds(const struct region *r, uint64_t at, size_t n)
{
	uint64_t offset = at - (uintptr_t)r->base;

	return offset <= r->size && n <= r->size - offset;
}

const struct region *region_of(const struct nic *nic, const void *at, size_t n)
{
	const struct region *r = nic->regions;

	while (r && !region_holds(r, (uintptr_t)at, n))
		r = r->next;
	return r;
}

const struct region *region_keyed(const struct nic *nic, uint32_t key, uint64_t at, size_t n)
{
	const struct region *r = nic->regions;

	while (r && (r->mr->rkey != key || !region_holds(r, at, n)))
		r = r->next;
	return r;
}

int chunk_take(struct nic *nic)
{
	return nic->nfree ? nic->free_chunks[--nic->nfree] : -1;
}

void chunk_give(struct nic *nic, int chunk)
{
	if (chunk >= 0)
		nic->free_chunks[nic->nfree++] = chunk;
}
