/* SPDX-License-Identifier: MIT */
/* Registered buffers: any memory of a rank becomes usable by the others. Within a process the
   ranks exchange addresses; other processes map the memory (share.c). */
#include <errno.h>
#include <string.h>

#include "register.h"
#include "rma.h"
#include "share.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/stream.h"
#include "spmt/control/exclusive.h"
#include "spmt/proxy/fifo.h"
#include "src/base/fault.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "sync.h"
#include "view.h"

static void *_Atomic mem_pages;

static struct object_pool *mem_objects(void)
{
	return process_state(&mem_pages, sizeof(struct object_pool));
}

#define MEM_RANK                         \
	(sizeof(struct spmtd_mem_peer) + \
		sizeof(uint64_t)) /* of its table: where it is, and its offset */

static bool mem_live(const spmt_mem *mem)
{
	return mem && atomic_load_explicit(&mem->head.state, memory_order_acquire) == OBJECT_MEM;
}

/* What map rdma has to do for buffers over the link to pe; NULL: nothing. */
static const struct rdma_ops *mem_rdma(const spmt_comm *comm, int pe)
{
	return comm->links[pe].route.map == MAP_RDMA ? map_ops(MAP_RDMA)->rdma : NULL;
}

/* The NIC of this rank gets to know the buffer. */
static int mem_share(spmt_mem *mem, void *buf, size_t size)
{
	struct rdma_rank *rdma = mem->comm->slot->rdma;
	int rc = rdma && size ? map_ops(MAP_RDMA)->rdma->share(rdma, buf, size, &mem->rdma) : 0;

	return comm_failed(mem->comm, "spmt_register", rc);
}

static void mem_learn(spmt_mem *mem)
{
	spmt_comm *comm = mem->comm;

	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct rdma_ops *rdma = mem_rdma(comm, pe);
		struct rdma_buffer *far = &mem->far[pe];

		if (!rdma || !mem->peers[pe].size)
			continue;
		far->offset = mem->offsets[pe];
		far->size = mem->peers[pe].size;
		for (int i = 0; i < RDMA_RAILS; i++)
			far->keys[i] = meet_payload(comm, pe, 2 + i);
		rdma->learn(&comm->links[pe], far);
	}
}

static void mem_forget(spmt_mem *mem)
{
	spmt_comm *comm = mem->comm;

	for (int pe = 0; mem->peers && mem->far && pe < comm->nranks; pe++) {
		const struct rdma_ops *rdma = mem_rdma(comm, pe);

		if (rdma && mem->peers[pe].size)
			rdma->forget(&comm->links[pe], &mem->far[pe]);
	}
	if (mem->rdma.held[0])
		map_ops(MAP_RDMA)->rdma->unshare(comm->slot->rdma, &mem->rdma);
}

/* Takes any half-made buffer. */
void mem_destroy(spmt_mem *mem)
{
	if (!mem)
		return;
	fifo_mem_drop(mem->comm, &mem->posts);
	mem_forget(mem);
	mem_withdraw(mem);
	table_close(mem->comm, &mem->table);
	if (mem->shares)
		share_drop(mem->comm, mem->shares);
	mem_free(mem->shares);
	mem->shares = NULL;
	mem_free(mem->far);
	mem->far = NULL;
	if (mem->link) {
		pthread_mutex_lock(&mem->comm->slot->lock);
		*mem->link = mem->next;
		if (mem->next)
			mem->next->link = mem->link;
		pthread_mutex_unlock(&mem->comm->slot->lock);
	}
	object_give(mem_objects(), mem);
}

void mems_drop(spmt_comm *comm)
{
	while (comm->mems)
		mem_destroy(comm->mems);
}

/* Every rank has the same number of those that all have, so one rank reports. */
void mems_left(const spmt_comm *comm)
{
	unsigned long long n = 0, own = 0;
	const spmt_mem *last = NULL;

	for (const spmt_mem *mem = comm->mems; mem; mem = mem->next) {
		if (mem->offer) {
			own++;
			continue;
		}
		last = mem;
		n++;
	}
	if (own)
		log_line(LOG_CHECK,
			"spmt_finalize: rank %d: handles of spmt_register_local and spmt_mem_lookup that were never deregistered: %llu",
			comm->rank, own);
	if (n && !comm->rank)
		log_line(LOG_CHECK,
			"spmt_finalize: buffers that were never deregistered: %llu; the first: %zu bytes on rank 0 (spmt_register no. %llu)",
			n, (size_t)last->peers[0].size, (unsigned long long)last->name + 1);
}

/* Of what this rank has looked up of its own, the owner's handle tells: it may be gone. */
static const spmt_mem *mem_within(const spmt_comm *comm, const void *ptr, uint64_t n)
{
	const spmt_mem *mem = comm->mems;

	for (; mem; mem = mem->next) {
		const struct spmtd_mem_peer *own = &mem->peers[comm->rank];

		if (own->size && own->base - (uintptr_t)ptr < n && (!mem->offer || mem->offers))
			break;
	}
	return mem;
}

const spmt_mem *mems_within(const spmt_comm *comm, const void *ptr, uint64_t n)
{
	const spmt_mem *mem = NULL;
	spmt_comm *root = (spmt_comm *)(uintptr_t)comm;

	pthread_mutex_lock(&comm->slot->lock);
	while (root->parent)
		root = root->parent;
	for (spmt_comm *c = comm_tree_first(root); c && !mem;
		c = c != root ? comm_tree_next(c) : NULL)
		mem = mem_within(c, ptr, n);
	pthread_mutex_unlock(&comm->slot->lock);
	return mem;
}

/* Allocates what is kept for each rank. After the meeting nothing more is allocated, as one rank alone might lack it. */
static int mem_ranks(spmt_mem *mem, const char *what)
{
	spmt_comm *comm = mem->comm;
	bool shared = comm_spans_processes(comm);

	mem->far = mem_calloc((size_t)comm->nranks, sizeof(*mem->far));
	if (shared)
		mem->shares = mem_calloc((size_t)comm->nranks, sizeof(*mem->shares));
	if (mem->far && (mem->shares || !shared))
		return 0;
	return fail_call(
		-ENOMEM, what, "rank %d: out of memory for %d ranks", comm->rank, comm->nranks);
}

int mem_create(spmt_comm *comm, const char *what, spmt_mem **out)
{
	struct object_pool *pool = mem_objects();
	spmt_mem *mem =
		pool && !fault_here(FAULT_REGISTER) ? object_take(pool, sizeof(*mem)) : NULL;
	int rc;

	if (!mem)
		return fail_call(
			-ENOMEM, what, "rank %d: out of memory for a registration", comm->rank);
	mem->comm = comm;
	atomic_store_explicit(&mem->head.local, false, memory_order_relaxed);
	rc = table_open(comm, (size_t)comm->nranks * MEM_RANK, &mem->table);
	if (!rc)
		rc = mem_ranks(mem, what);
	if (rc) {
		rc = comm_failed(comm, what, rc);
		mem_destroy(mem);
		return rc;
	}
	memset(mem->table.host, 0, mem->table.size); /* another's may have been there */
	mem->peers = mem->table.host;
	mem->offsets = (uint64_t *)(void *)(mem->peers + comm->nranks);
	mem->posts = (struct fifo_mem){ .peers = mem->peers, .offsets = mem->offsets };
	*out = mem;
	return 0;
}

int register_check(
	const spmt_comm *comm, const char *what, const void *buf, size_t size, spmt_mem *const *mem)
{
	if (!mem)
		return fail_call(-EINVAL, what, "rank %d: mem is NULL", comm->rank);
	if (size && (!buf || (uintptr_t)buf + size < (uintptr_t)buf))
		return fail_call(-EINVAL, what, "rank %d: buf %p with %zu bytes is no buffer",
			comm->rank, buf, size);
	return size ? local_check(comm, what, "buf", buf, size) : 0;
}

/* Where this rank sees a buffer of pe's, in another process if it lies in the heap; 0: nowhere. */
static uint64_t mem_base(const spmt_comm *comm, int pe, uint64_t base, uint64_t size)
{
	const struct rank_info *info = &comm->world->infos[comm_world_rank(comm, pe)];
	uint64_t offset = base - info->heap_base;

	if (!comm->links[pe].base)
		return 0;
	if (comm_is_local(comm, pe))
		return base;
	if (offset > info->heap_size || size > info->heap_size - offset)
		return 0;
	return (uintptr_t)link_at(&comm->links[pe], offset);
}

/* As its link counts offsets: from where the buffer is seen if the map is loadable, else from its owner's addresses. */
static uint64_t mem_offset(const spmt_comm *comm, int pe, uint64_t base, uint64_t theirs)
{
	return comm->links[pe].base
		? link_offset(&comm->links[pe], base)
		: theirs - comm->world->infos[comm_world_rank(comm, pe)].heap_base;
}

/* Takes what the ranks brought to the meeting, and maps buffers of other processes. What a link reaches by no address keeps the owner's
   offset, also where it could be mapped. */
static int mem_fill(spmt_mem *mem)
{
	spmt_comm *comm = mem->comm;
	int rc;

	for (int pe = 0; pe < comm->nranks; pe++) {
		uint64_t theirs = meet_payload(comm, pe, 0), size = meet_payload(comm, pe, 1);
		uint64_t base = mem_base(comm, pe, theirs, size);

		mem->peers[pe] = (struct spmtd_mem_peer){ .size = size, .base = base };
		mem->offsets[pe] = mem_offset(comm, pe, base, theirs);
	}
	mem_learn(mem);
	if (!mem->shares)
		return 0;
	rc = share_accept(comm, mem->shares);
	for (int pe = 0; pe < comm->nranks && !rc; pe++) {
		uint64_t base = (uintptr_t)mem->shares[pe].base;

		if (!base || !comm->links[pe].base ||
			mem->peers[pe].size > mem->shares[pe].export.length)
			continue;
		mem->peers[pe].base = base;
		mem->offsets[pe] = mem_offset(comm, pe, base, 0);
	}
	return rc;
}

void mem_publish(spmt_mem *mem, uint64_t name)
{
	spmt_comm *comm = mem->comm;

	mem->name = name;
	mem->link = &comm->mems;
	pthread_mutex_lock(&comm->slot->lock);
	mem->next = comm->mems;
	if (mem->next)
		mem->next->link = &mem->next;
	comm->mems = mem;
	pthread_mutex_unlock(&comm->slot->lock);
	atomic_store_explicit(&mem->head.state, OBJECT_MEM, memory_order_release);
}

int spmt_register(spmt_comm *comm, void *buf, size_t size, spmt_mem **mem)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	struct meet_record record = { .op = MEET_REGISTER,
		.payload = { size ? (uintptr_t)buf : 0, size } };
	spmt_mem *m = NULL;
	int rc = comm_begin(comm, "spmt_register");

	if (rc)
		return rc;
	record.status = register_check(comm, "spmt_register", buf, size, mem);
	if (!record.status)
		record.status = mem_create(comm, "spmt_register", &m);
	if (!record.status)
		record.status = mem_share(m, buf, size);
	if (!record.status && m->shares)
		record.status = share_offer(comm, buf, size);
	for (int i = 0; m && i < RDMA_RAILS; i++)
		record.payload[2 + i] = m->rdma.keys[i];
	rc = meet(comm, &record);
	if (rc && m && m->shares)
		share_withdraw(comm);
	if (!rc)
		rc = mem_fill(m);
	if (!rc) {
		mem_publish(m, comm->registered++);
		*mem = m;
	} else {
		mem_destroy(m);
	}
	comm_unclaim(comm);
	return rc;
}

int mem_check(const spmt_comm *comm, const char *what, const spmt_mem *mem)
{
	if (!mem)
		return fail_call(-EINVAL, what, "rank %d: mem is NULL", comm->rank);
	if (!mem_live(mem))
		return fail_call(-EBADF, what, "rank %d: mem %p is not a registered buffer",
			comm->rank, (const void *)mem);
	if (mem->comm != comm)
		return fail_call(-EINVAL, what,
			"rank %d: mem %p was registered by rank %d or on another comm", comm->rank,
			(const void *)mem, mem->comm->rank);
	if (mem->offer && atomic_load(&mem->offer->gone))
		return fail_call(-EBADF, what, "rank %d: mem %p: rank %d has deregistered it",
			comm->rank, (const void *)mem, mem->offer->rank);
	return 0;
}

/* Whether it is, or was, of its rank alone: others do not come. */
static bool mem_is_local(const spmt_mem *mem)
{
	uint32_t state = mem ? atomic_load(&mem->head.state) : 0;

	return (state == OBJECT_MEM || state == OBJECT_FREE) &&
		atomic_load_explicit(&mem->head.local, memory_order_relaxed);
}

/* Of this rank alone: a handle that it has looked up also when the owner's is gone. */
static int deregister_local(spmt_comm *comm, spmt_mem *mem)
{
	int rc = mem_live(mem) && mem->comm == comm ? quiet_all(comm, "spmt_deregister")
						    : mem_check(comm, "spmt_deregister", mem);

	if (!rc)
		mem_destroy(mem);
	return rc;
}

int spmt_deregister(spmt_comm *comm, spmt_mem *mem)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	struct meet_record record = { .op = MEET_DEREGISTER };
	int rc = comm_begin(comm, "spmt_deregister");

	if (rc)
		return rc;
	if (mem_is_local(mem)) {
		rc = deregister_local(comm, mem);
		comm_unclaim(comm);
		return rc;
	}
	record.status = mem_check(comm, "spmt_deregister", mem);
	if (!record.status) {
		record.key[0] = mem->name;
		record.status = quiet_all(comm, "spmt_deregister");
	}
	rc = meet(comm, &record);
	if (!rc && mem->shares && share_any(comm, mem->shares)) {
		/* The owner may free the buffer when this returns: nobody has it mapped any more. */
		share_drop(comm, mem->shares);
		rc = meet(comm, &(struct meet_record){ .op = MEET_RELEASED });
	}
	if (!rc)
		mem_destroy(mem);
	comm_unclaim(comm);
	return rc;
}

static bool mem_has_pe(const char *what, const spmt_mem *mem, int pe)
{
	if (mem_live(mem) && comm_has_pe(mem->comm, pe) &&
		!(mem->offer && atomic_load(&mem->offer->gone)))
		return true;
	fail_call(-EINVAL, what, "mem %p is not a registered buffer, or has no rank %d",
		(const void *)mem, pe);
	return false;
}

void *spmt_mem_ptr(spmt_mem *mem, int pe)
{
	return mem_has_pe("spmt_mem_ptr", mem, pe) ? (void *)(uintptr_t)mem->peers[pe].base : NULL;
}

size_t spmt_mem_size(spmt_mem *mem, int pe)
{
	return mem_has_pe("spmt_mem_size", mem, pe) ? mem->peers[pe].size : 0;
}

/* ---- RMA ----------------------------------------------------------------------------------- */

/* As rma_open, for a range of pe's registered buffer, whose offset is mem_at. */
static int mem_open(spmt_comm *comm, const struct call *call, const spmt_mem *mem, size_t off,
	const void *local, size_t n, int pe, enum move_mode mode)
{
	int rc = rma_peer(comm, call, pe);

	if (!rc && object_is_traced(&comm->head))
		rma_trace(comm, n, 1, pe, mode);
	if (!rc)
		rc = mem_check(comm, call->name, mem);
	if (rc || !n)
		return rc;
	if (!local)
		return fail_call(-EINVAL, call->name, "rank %d: %s is NULL with %zu bytes",
			comm->rank, call->local, n);
	if (off > mem->peers[pe].size || n > mem->peers[pe].size - off)
		return fail_call(-EINVAL, call->name,
			"rank %d: offset %zu with %zu bytes goes beyond rank %d's buffer of %llu bytes",
			comm->rank, off, n, pe, (unsigned long long)mem->peers[pe].size);
	rc = local_check(comm, call->name, call->local, local, n);
	if (rc)
		return rc;
	return !mem->peers[pe].base && comm->links[pe].base
		? mem_refuse_far(comm, call->name, mem, pe)
		: 0;
}

static uint64_t mem_at(const spmt_mem *mem, int pe, size_t off)
{
	return mem->offsets[pe] + off;
}

int spmt_mem_put(
	spmt_comm *comm, spmt_mem *dst, size_t dst_off, const void *src, size_t size, int pe)
{
	static const struct call call = { "spmt_mem_put", "dst", "src" };
	EXCLUSIVE(comm, __func__);
	int rc = mem_open(comm, &call, dst, dst_off, src, size, pe, MOVE_BLOCKING);

	return rc || !size
		? rc
		: rma_put(comm, call.name, mem_at(dst, pe, dst_off), src, size, pe, MOVE_BLOCKING);
}

int spmt_mem_put_nbi(
	spmt_comm *comm, spmt_mem *dst, size_t dst_off, const void *src, size_t size, int pe)
{
	static const struct call call = { "spmt_mem_put_nbi", "dst", "src" };
	EXCLUSIVE(comm, __func__);
	int rc = mem_open(comm, &call, dst, dst_off, src, size, pe, MOVE_NBI);

	return rc || !size
		? rc
		: rma_put(comm, call.name, mem_at(dst, pe, dst_off), src, size, pe, MOVE_NBI);
}

int spmt_mem_put_on_stream(spmt_comm *comm, spmt_mem *dst, size_t dst_off, const void *src,
	size_t size, int pe, spmt_stream stream)
{
	static const struct call call = { "spmt_mem_put_on_stream", "dst", "src" };
	EXCLUSIVE(comm, __func__);
	int rc = mem_open(comm, &call, dst, dst_off, src, size, pe, MOVE_STREAM);

	if (rc || !size)
		return rc;
	rc = rma_put_stream(comm, mem_at(dst, pe, dst_off), src, size, pe, stream_of(comm, stream));
	return comm_failed(comm, call.name, rc);
}

int spmt_mem_get(spmt_comm *comm, void *dst, spmt_mem *src, size_t src_off, size_t size, int pe)
{
	static const struct call call = { "spmt_mem_get", "src", "dst" };
	EXCLUSIVE(comm, __func__);
	int rc = mem_open(comm, &call, src, src_off, dst, size, pe, MOVE_BLOCKING);

	return rc || !size
		? rc
		: rma_get(comm, call.name, dst, mem_at(src, pe, src_off), size, pe, MOVE_BLOCKING);
}

int spmt_mem_get_nbi(spmt_comm *comm, void *dst, spmt_mem *src, size_t src_off, size_t size, int pe)
{
	static const struct call call = { "spmt_mem_get_nbi", "src", "dst" };
	EXCLUSIVE(comm, __func__);
	int rc = mem_open(comm, &call, src, src_off, dst, size, pe, MOVE_NBI);

	return rc || !size
		? rc
		: rma_get(comm, call.name, dst, mem_at(src, pe, src_off), size, pe, MOVE_NBI);
}

int spmt_mem_get_on_stream(spmt_comm *comm, void *dst, spmt_mem *src, size_t src_off, size_t size,
	int pe, spmt_stream stream)
{
	static const struct call call = { "spmt_mem_get_on_stream", "src", "dst" };
	EXCLUSIVE(comm, __func__);
	int rc = mem_open(comm, &call, src, src_off, dst, size, pe, MOVE_STREAM);

	if (rc || !size)
		return rc;
	rc = rma_get_stream(comm, dst, mem_at(src, pe, src_off), size, pe, stream_of(comm, stream));
	return comm_failed(comm, call.name, rc);
}

/* The copy for kernels is made on the first request, because nothing that can fail may follow an agreement. */
int mem_parts(spmt_comm *comm, const char *what, spmt_mem *mem, struct mem_parts *parts)
{
	int rc = mem_check(comm, what, mem);

	if (!rc && !mem->published)
		rc = table_publish(comm, &mem->table);
	if (rc)
		return rc;
	mem->published = true;
	*parts = (struct mem_parts){
		.host = mem->peers, .dev = mem->table.dev, .offsets = mem->offsets
	};
	return 0;
}

int mem_refuse_far(const spmt_comm *comm, const char *what, const spmt_mem *mem, int pe)
{
	return fail_call(SPMT_ERR_UNSUPPORTED, what,
		"rank %d: rank %d's buffer, in another process, cannot be reached: %s", comm->rank,
		pe, mem->shares ? mem->shares[pe].why : "");
}

/* What kernels post to parts that have no address. */
static int mem_view_far(spmt_comm *comm, spmt_mem *mem, const struct spmt_mem_view *view,
	struct spmt_mem_view *whole)
{
	int rc;

	if (LIKELY(!comm->far.map))
		return 0;
	if (view->size < offsetof(struct spmt_mem_view, far) + sizeof(view->far))
		return view_too_old(comm, "spmt_mem_view_get");
	rc = comm_failed(comm, "spmt_mem_view_get", fifo_open(comm));
	if (rc)
		return rc;
	fifo_mem(comm, &mem->posts);
	whole->far = (const uint64_t *)(const void *)(whole->peers + comm->nranks);
	return 0;
}

int spmt_mem_view_get(spmt_comm *comm, spmt_mem *mem, struct spmt_mem_view *view)
{
	EXCLUSIVE(comm, __func__);
	struct spmt_mem_view whole = { .size = sizeof(whole), .abi = SPMT_VIEW_ABI };
	struct mem_parts parts;
	int rc = comm_enter(comm, "spmt_mem_view_get");

	if (!rc)
		rc = mem_check(comm, "spmt_mem_view_get", mem);
	if (rc)
		return rc;
	if (!view)
		return fail_call(-EINVAL, "spmt_mem_view_get", "rank %d: view is NULL", comm->rank);
	if (view->size < offsetof(struct spmt_mem_view, reserved))
		return fail_call(-EINVAL, "spmt_mem_view_get",
			"rank %d: view->size %u: set it to sizeof(struct spmt_mem_view)",
			comm->rank, view->size);
	rc = mem_parts(comm, "spmt_mem_view_get", mem, &parts);
	if (rc)
		return rc;
	whole.pe = comm->rank;
	whole.npes = comm->nranks;
	whole.peers = parts.dev;
	rc = mem_view_far(comm, mem, view, &whole);
	if (rc)
		return rc;
	whole.size = MIN_OF(view->size, (uint32_t)sizeof(whole));
	memcpy(view, &whole, whole.size);
	return 0;
}
