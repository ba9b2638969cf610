/* SPDX-License-Identifier: MIT */
#include "guard.h"

int guard_enter(struct guard *g, const struct backend *backend, int dev)
{
	int rc;

	g->backend = NULL;
	rc = backend->enter(dev, &g->saved);
	if (!rc)
		g->backend = backend;
	return rc;
}

void guard_leave(struct guard *g)
{
	if (g->backend)
		g->backend->leave(&g->saved);
	g->backend = NULL;
}
