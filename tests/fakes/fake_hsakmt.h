/* SPDX-License-Identifier: MIT */
/* What a test tells and asks of the stand-in for libhsakmt, found by the name fake_hsakmt. */
#ifndef TESTS_FAKE_HSAKMT_H
#define TESTS_FAKE_HSAKMT_H

#include <stdatomic.h>

#include "src/device/sdma/packet.h"

/* The driver lists two nodes of CPUs, then the devices of the stand-in for libamdhip64: so that no node has its device's number. */
static inline int fake_device_at(int node)
{
	return node - 2;
}

struct fake_hsakmt {
	struct sdma_format format; /* that engines of new queues read */
	int open_status;
	_Atomic int fail_at; /* the nth call from now on that makes something fails; 0: none */
	bool no_engine;	     /* a queue on an engine named is refused */
	bool no_queues;	     /* all are */
	_Atomic int memory, mapped, queues; /* that are there */
	_Atomic long packets;		    /* that engines have read, ever */
	/* of the last queue */
	unsigned node, type, engine;
	unsigned flags; /* of the last memory */
	uint64_t size;
};

#endif
