/* SPDX-License-Identifier: MIT */
/* Map `ipc`: the heap of a rank in another process of the node, mapped here once a link. */
#include "ipc.h"

#include <errno.h>

#include "src/base/mem.h"
#include "src/base/status.h"
#include "transport.h"

static int ipc_open(const struct link *link, const struct backend *backend, int dev,
	const struct rank_info *peer, struct heap_import *in)
{
	int rc = heap_import_open(backend, dev, peer->heap_size, peer->own_size, in);

	return rc ? rc : heap_import_add(in, &link->memory->piece, link->memory->fd);
}

static int ipc_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	struct heap_import *in;
	int rc;

	if (!backend->ipc || !link->memory)
		return fail_rank(SPMT_ERR_UNSUPPORTED, link->rank,
			"ipc to rank %d: backend %s did not name its memory to this process",
			peer->rank, backend->name);
	in = mem_calloc(1, sizeof(*in));
	if (!in)
		return fail_rank(-ENOMEM, link->rank, "ipc to rank %d: out of memory", peer->rank);
	rc = ipc_open(link, backend, dev, peer, in);
	if (rc) {
		heap_import_close(in);
		mem_free(in);
		return rc;
	}
	link->attached = in;
	link->base = in->base;
	link->own = peer->heap_size;
	return 0;
}

static void ipc_detach(struct link *link, const struct backend *backend, int dev)
{
	(void)backend;
	(void)dev;
	if (link->attached)
		heap_import_close(link->attached);
	mem_free(link->attached);
	link->attached = NULL;
	link->base = NULL;
}

const struct map_ops map_ipc = { .name = "ipc", .attach = ipc_attach, .detach = ipc_detach };
