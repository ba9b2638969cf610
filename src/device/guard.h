/* SPDX-License-Identifier: MIT */
/* Scoped device guard over a backend: GUARD_DEVICE(backend, dev) binds dev until the scope ends,
   early returns included. */
#ifndef SPMT_GUARD_H
#define SPMT_GUARD_H

#include "device.h"

struct guard {
	const struct backend *backend; /* NULL: nothing to undo */
	struct device_saved saved;
};

/* On failure *g undoes nothing. */
int guard_enter(struct guard *g, const struct backend *backend, int dev);
/* Idempotent. */
void guard_leave(struct guard *g);

#endif
