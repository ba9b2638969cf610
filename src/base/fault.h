/* SPDX-License-Identifier: MIT */
/*
 * Failing on purpose: at the nth request for a resource, the code behaves as if the system had
 * refused it. A sweep with n = 1, 2, .. until nothing fires visits every failure path.
 *
 * SPMT_FAULT=<site>:<n> (site or `any`) arms it at the first call; tests arm it directly. Fires
 * once. Thread-safe: the counter is one atomic. Costs one relaxed load while nothing is armed.
 */
#ifndef SPMT_FAULT_H
#define SPMT_FAULT_H

#include <stdatomic.h>

#include "base.h"

/* One line a site: name in SPMT_FAULT, errno that the asker reports. */
/* clang-format off */
#define FAULT_SITES(X)                                                                             \
	X(ALLOC, "alloc", ENOMEM)       /* process memory */                                       \
	X(MAP, "map", ENOMEM)           /* address ranges and mappings */                          \
	X(FD, "fd", EMFILE)             /* descriptors */                                          \
	X(THREAD, "thread", EAGAIN)     /* threads */                                              \
	X(DEVICE, "device", EIO)        /* streams, events, copies, launches of a backend */       \
	X(MEMORY, "memory", ENOMEM)     /* device memory */                                        \
	X(REGISTER, "register", ENOMEM) /* registrations, handles, exports */                      \
	X(PEER, "peer", EACCES)         /* enabling and attaching peers */
/* clang-format on */

enum fault_site {
#define X(id, name, err) FAULT_##id,
	FAULT_SITES(X)
#undef X
		FAULT_SITE_COUNT
};

#define FAULT_ANY ((1u << FAULT_SITE_COUNT) - 1)

/* The process's own. */
extern struct fault {
	atomic_uint sites; /* the armed sites; 0: none */
	atomic_uint_fast64_t at, seen;
	atomic_bool fired;
} fault;
static inline bool fault_armed(void)
{
	return UNLIKELY(atomic_load_explicit(&fault.sites, memory_order_relaxed));
}
bool fault_fires(enum fault_site site) __attribute__((cold));
/* True: behave as if this request had failed with fault_errno(site). */
static inline bool fault_here(enum fault_site site)
{
	return fault_armed() && fault_fires(site);
}
int fault_errno(enum fault_site site);

/* `sites` is a set of 1u << site; n counts from 1; 0 only counts. Replaces what was armed before. */
void fault_arm(unsigned sites, uint64_t n);
void fault_disarm(void);
/* How many requests the armed sites have seen since fault_arm(), and whether the fault has fired. */
uint64_t fault_seen(void);
bool fault_fired(void);

/* Parses "<site>:<n>" and arms nothing; -EINVAL with a sentence. */
int fault_parse(const char *text, unsigned *sites, uint64_t *n);

#endif
