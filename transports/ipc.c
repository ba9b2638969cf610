/* SPDX-License-Identifier: MIT */
/* Map `ipc`: the heap of a rank in another process of the node. */
#include <errno.h>

#include "../src/status.h"
#include "transport.h"

/* What a rank publishes of its heap to other processes is not part of rank_info yet, so there is nothing to import. */
static int ipc_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	(void)dev;
	if (!backend->ipc)
		return fail(-EOPNOTSUPP,
			"rank %d: ipc to rank %d: backend %s cannot name memory to another process",
			link->rank, peer->rank, backend->name);
	return fail(-EOPNOTSUPP,
		"rank %d: ipc to rank %d: this version does not link ranks of different processes",
		link->rank, peer->rank);
}

static void ipc_detach(struct link *link, const struct backend *backend, int dev)
{
	(void)backend;
	(void)dev;
	link->base = NULL;
	link->own = NULL;
}

const struct map_ops map_ipc = { .name = "ipc", .attach = ipc_attach, .detach = ipc_detach };
