/* SPDX-License-Identifier: MIT */
/*
 * The launcher's PMIx server, through libpmix: who this process is in its job, and how bytes get from
 * the job's first process to the others. Every call blocks as long as libpmix does; one at a time.
 */
#ifndef SPMT_BOOTSTRAP_PMIX_H
#define SPMT_BOOTSTRAP_PMIX_H

#include <stdatomic.h>

#include "abi_pmix.h"
#include "src/base/base.h"

struct pmix {
	struct pmix_api api;
	bool connected;
	pmix_proc_t self;
	int process, processes,
		local; /* local: the number of this process among the job's of this node */
	const char
		*_Atomic doing; /* the call in libpmix, for who does not wait for it; NULL: none */
};

/* Loads libpmix (`path`, NULL: where it usually is) and connects. Nothing is left to undo on failure, and it
   may be tried again. `pmix` is zeroed before the first try. */
int pmix_open(struct pmix *pmix, const char *path);

/* `size` bytes of process 0, for all: every process of the job calls it. timeout_ms is what the server is asked
   to keep (< 0: none); not all of them do. May be repeated after a failure, with the same bytes. */
int pmix_spread(struct pmix *pmix, void *bytes, size_t size, int64_t timeout_ms);

/* The server hears that this process ends in order. PMIx cannot be opened again in this process. */
void pmix_close(struct pmix *pmix);

#endif
