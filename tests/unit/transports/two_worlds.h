/* SPDX-License-Identifier: MIT */
/* Two sets of links over the same devices, as two worlds of a process have, for suites on mover sdma. */
#ifndef TESTS_TWO_WORLDS_H
#define TESTS_TWO_WORLDS_H

#include <criterion/criterion.h>

#include "src/base/status.h"
#include "tests/lib/device/latch.h"
#include "tests/lib/transports/device_links.h"
#include "transports/sdma/copy_queue.h"
#include "transports/sdma/sdma.h"

#define SIZE (1u << 20)

static struct links l, other;

static inline void open_links(struct links *set)
{
	cr_assert_eq(links_open(set, &backend_host, 3, SIZE), 0, "%s", status_sentence());
}

static inline void init(void)
{
	open_links(&l);
	open_links(&other);
}

static inline void fini(void)
{
	links_close(&other);
	links_close(&l);
}

static inline int put_nbi(struct link *link, void *remote, const void *local, size_t n)
{
	return links_put(links_sdma(link), remote, local, n, MOVE_NBI, NULL);
}

/* A first move, so that there is a copy queue; then its stream is held. */
static inline void hold_copy_queue(struct link *link, struct latch *latch)
{
	device_stream s;

	cr_assert_eq(put_nbi(link, link->base, "warm", 5), 0, "%s", status_sentence());
	cr_assert_eq(links_quiet(links_sdma(link)), 0, "%s", status_sentence());
	cr_assert_eq(sdma_stream(link, 0, &s), 0);
	cr_assert_eq(latch_hold(latch, link->backend, link->dev, s), 0);
}

#endif
