/* SPDX-License-Identifier: MIT */
/* What a test tells and asks of the stand-in for libhsakmt, found by the name fake_hsakmt. */
#ifndef TESTS_FAKE_HSAKMT_H
#define TESTS_FAKE_HSAKMT_H

#include <stdatomic.h>

#include "src/device/sdma/packet.h"

struct fake_hsakmt {
	struct sdma_format format; /* that engines of new queues read */
	int open_status;
	/* Of the driver's nodes, two of CPUs, then the devices of the stand-in for libamdhip64, so that no node has its device's number.
	   The library counts those alone that the process may use. */
	unsigned counted;
	int hidden;	     /* the device whose node it passes over; -1: none */
	_Atomic int fail_at; /* the nth call from now on that makes something fails; 0: none */
	bool no_engine;	     /* a queue on an engine named is refused */
	bool no_queues;	     /* all are */
	_Atomic int memory, mapped, queues; /* that are there */
	_Atomic long packets;		    /* that engines have read, ever */
	/* of the last queue */
	unsigned node, type, engine;
	unsigned flags; /* of the last memory */
	uint64_t size;
	_Atomic unsigned asked; /* devices of whose engines there ever was a queue, by bit */
};

#endif
