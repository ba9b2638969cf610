/* SPDX-License-Identifier: MIT */
/* What a test tells and asks of the stand-in for libhsakmt, found by the name fake_hsakmt. */
#ifndef TESTS_FAKE_HSAKMT_H
#define TESTS_FAKE_HSAKMT_H

#include "src/device/sdma/packet.h"

struct fake_hsakmt {
	struct sdma_format format; /* that engines of new queues read */
	int open_status,
		fail_at; /* fail_at: the nth call from now on that makes something fails; 0: none */
	bool no_engine;	 /* a queue on an engine named is refused */
	int memory, mapped, queues; /* that are there */
	/* of the last queue */
	unsigned node, type, engine;
	unsigned flags; /* of the last memory */
	uint64_t size;
};

#endif
