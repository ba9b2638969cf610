/* SPDX-License-Identifier: MIT */
/* libibverbs, opened at run time for the life of the process, and what this process has open of it. */
#ifndef SPMT_VERBS_API_H
#define SPMT_VERBS_API_H

#include <stdbool.h>

#include "abi/abi_verbs.h"

struct cache;
struct nic;

/* In pages that a forked child sees as zeros. */
struct verbs_state {
	pthread_mutex_t lock; /* guards all of it, and the opening and closing of ports */
	bool bound;
	struct verbs_api api; /* once bound: constant */
	struct nic *nics;
	pthread_mutex_t caches_lock; /* guards the list of them alone */
	struct cache *caches;
};

/* NULL: no memory. */
struct verbs_state *verbs_state(void);

/* Whether it is worth while to look: a device, or a library that the user names. Opens nothing. */
bool verbs_likely(void);

/* Under the state's lock. A failure, with its sentence, is tried again the next time. */
int verbs_bind(struct verbs_state *state);

#endif
