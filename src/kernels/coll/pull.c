/* SPDX-License-Identifier: MIT */
/*
 * As `direct`, but the blocks of a rank do not wait for each other: each meets the peers' blocks of its number before it loads, and after.
 * A peer that has come with one block has come; what its other blocks load is not this one's to wait for.
 */
#include "coll.h"

#if defined(__AMDGCN__) || defined(__NVPTX__)

KERNEL_BODY run_pull(const struct kernel_collective_args *args)
{
	struct coll c;
	int rc;

	coll_set(&c, args);
	if (!coll_open(&c))
		return;
	rc = coll_block_meets(&c);
	if (!rc)
		rc = coll_direct(&c);
	coll_block_parts(&c, rc);
}
KERNEL_TAKING(pull, struct kernel_collective_args)

#else

COLL_FN int coll_pull(const struct coll *c)
{
	return coll_direct(c);
}

#if !defined(COLL_ONE_UNIT)

static void pull_on_host(const void *args)
{
	kernel_collective.host(args);
}

KERNEL_ON_HOST(pull, pull_on_host, struct kernel_collective_args)

#endif
#endif
