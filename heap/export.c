/* SPDX-License-Identifier: MIT */
#include "export.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "include/spmt.h"
#include "src/base/mem.h"
#include "src/base/status.h"

/* A copy with room for `room`, of which the first n are kept. The old one is freed. NULL:
   nothing has changed. */
static void *grown(void *list, size_t n, size_t room, size_t each)
{
	void *more = mem_calloc(room, each);

	if (!more)
		return NULL;
	if (n)
		memcpy(more, list, n * each);
	mem_free(list);
	return more;
}

static int reserve_exports(struct heap_export *e, int n)
{
	int room = MAX_OF(n, 2 * e->room);
	struct heap_piece *pieces;
	int *fds;

	if (n <= e->room)
		return 0;
	pieces = grown(e->pieces, (size_t)e->n, (size_t)room, sizeof(*pieces));
	if (!pieces)
		return fail(-ENOMEM, "heap export: no memory for %d pieces", n);
	e->pieces = pieces;
	fds = grown(e->fds, (size_t)e->n, (size_t)room, sizeof(*fds));
	if (!fds)
		return fail(-ENOMEM, "heap export: no memory for %d descriptors", n);
	e->fds = fds;
	e->room = room;
	return 0;
}

int heap_export_update(const struct heap *heap, struct heap_export *e)
{
	const struct device_ipc_ops *ipc = heap->backend->ipc;
	int rc;

	if (!ipc)
		return fail(SPMT_ERR_UNSUPPORTED,
			"heap export: backend %s shares no memory with other processes",
			heap->backend->name);
	rc = reserve_exports(e, heap->nchunks);
	while (!rc && e->n < heap->nchunks) {
		struct heap_piece *p = &e->pieces[e->n];

		p->offset = heap->chunks[e->n].offset;
		p->length = heap->chunks[e->n].length;
		rc = ipc->export_memory(
			heap->dev, heap->base + p->offset, p->length, &p->export, &e->fds[e->n]);
		e->n += !rc;
	}
	return rc;
}

void heap_export_close(struct heap_export *e)
{
	for (int i = 0; i < e->n; i++) {
		if (e->fds[i] >= 0)
			close(e->fds[i]);
	}
	mem_free(e->pieces);
	mem_free(e->fds);
	*e = (struct heap_export){ 0 };
}

int heap_import_open(const struct backend *backend, int dev, uint64_t size, uint64_t own_size,
	struct heap_import *in)
{
	if (!size || size % HEAP_ROUND || own_size % HEAP_ROUND || size > HEAP_LIMIT ||
		own_size > HEAP_LIMIT)
		return fail(-EPROTO,
			"heap import: a heap of %" PRIu64 " + %" PRIu64 " bytes was announced",
			size, own_size);
	if (!backend->ipc)
		return fail(SPMT_ERR_UNSUPPORTED,
			"heap import: backend %s shares no memory with other processes",
			backend->name);
	*in = (struct heap_import){
		.backend = backend, .dev = dev, .size = size, .own_size = own_size
	};
	return 0;
}

static int check_piece(const struct heap_import *in, const struct heap_piece *p)
{
	uint64_t span = in->size + in->own_size;

	if (!p->length || p->offset > span || p->length > span - p->offset)
		return fail(-EPROTO,
			"heap import: a piece of %" PRIu64 " bytes at %" PRIu64
			" in a heap of %" PRIu64,
			p->length, p->offset, span);
	if (p->export.length != p->length || p->export.size > sizeof(p->export.handle))
		return fail(-EPROTO,
			"heap import: the piece at %" PRIu64 " has %" PRIu64
			" bytes, its export %" PRIu64 " and a handle of %" PRIu32,
			p->offset, p->length, p->export.length, p->export.size);
	for (int i = 0; i < in->n; i++) {
		const struct heap_piece *q = &in->pieces[i];

		if (p->offset < q->offset + q->length && q->offset < p->offset + p->length)
			return fail(-EPROTO,
				"heap import: pieces at %" PRIu64 " and %" PRIu64 " overlap",
				q->offset, p->offset);
	}
	return 0;
}

static int reserve_import(struct heap_import *in)
{
	const struct device_vmm_ops *vmm = in->backend->vmm;
	void *base;
	int rc;

	if (!vmm)
		return fail(SPMT_ERR_UNSUPPORTED,
			"heap import: backend %s cannot put a heap's pieces side by side",
			in->backend->name);
	rc = vmm->reserve(in->size + in->own_size, HEAP_ALIGN, &base);
	if (rc)
		return rc;
	in->base = base;
	in->reserved = true;
	return 0;
}

/* A heap that comes whole may lie wherever the driver puts it; parts need a range that holds
   them all. */
static int map_piece(struct heap_import *in, const struct heap_piece *p, int fd)
{
	void *base;
	int rc;

	if (p->length == in->size + in->own_size && !in->reserved) {
		rc = in->backend->ipc->import_memory(in->dev, &p->export, fd, &base);
		if (!rc)
			in->base = base;
		return rc;
	}
	rc = in->reserved ? 0 : reserve_import(in);
	return rc ? rc : in->backend->vmm->import(in->dev, in->base + p->offset, &p->export, fd);
}

int heap_import_add(struct heap_import *in, const struct heap_piece *piece, int fd)
{
	int room = in->room ? 2 * in->room : 4;
	struct heap_piece *pieces;
	int rc = check_piece(in, piece);

	if (rc)
		return rc;
	if (in->n == in->room) {
		pieces = grown(in->pieces, (size_t)in->n, (size_t)room, sizeof(*pieces));
		if (!pieces)
			return fail(-ENOMEM, "heap import: no memory for %d pieces", in->n + 1);
		in->pieces = pieces;
		in->room = room;
	}
	rc = map_piece(in, piece, fd);
	if (!rc)
		in->pieces[in->n++] = *piece;
	return rc;
}

void heap_import_close(struct heap_import *in)
{
	const struct backend *backend = in->backend;
	KEEPS_SENTENCE;

	for (int i = in->n; i-- > 0;) {
		const struct heap_piece *p = &in->pieces[i];

		if (in->reserved)
			backend->vmm->decommit(in->dev, in->base + p->offset, p->length);
		else
			backend->ipc->release(in->dev, in->base, &p->export);
	}
	if (in->reserved)
		backend->vmm->unreserve(in->base, in->size + in->own_size);
	mem_free(in->pieces);
	*in = (struct heap_import){ 0 };
}
