/* SPDX-License-Identifier: MIT */
/* What the kernels of port.c take. */
#ifndef TESTS_GPU_PORTS_H
#define TESTS_GPU_PORTS_H

#include "kernels.h"

/* Word i of what a rank sends in a round. */
static inline uint64_t ports_word(uint64_t round, int pe, uint64_t i)
{
	return round * 0x9e3779b97f4a7c15ull + (uint64_t)(uint32_t)pe * 1000003 + i;
}

/* ---- round a ring, each worker by two ports of its own ------------------------------------------ */

enum { PORTS_WORKERS = 32 };

/* A worker's place in either buffer, in units of its `words` words. */
enum ports_part {
	PORTS_OWN,	  /* of `local`: what it sends */
	PORTS_CAME,	  /* of `remote`: the previous rank's words by a put */
	PORTS_VIA,	  /* of `local`: packets of what it sends; packets take two units */
	PORTS_FIRST = 4,  /* of `remote`: the previous rank's packets */
	PORTS_SECOND = 6, /* of `remote`: those of the one before that, which have been sent on */
	PORTS_GOT_FIRST = 8, /* of `local`: their words */
	PORTS_GOT_SECOND,
	PORTS_PARTS
};

struct ports_args {
	struct spmt_view view;
	uint64_t
		ports; /* struct spmt_port: a worker's to the next rank and to the previous one, side by side */
	uint64_t local, remote; /* of this rank; may be one */
	uint64_t outcome;
	uint64_t words, rounds, done; /* rounds of earlier launches */
	int32_t scope;
};

/* ---- more posts than the ring has places -------------------------------------------------------- */

enum { FLOOD_PORTS = 4 };

/* Each word of `own` is a put and a signal of one thread; `full` counts those that found no place. */
struct flood_args {
	struct spmt_view view;
	struct spmt_port next[FLOOD_PORTS], prev[FLOOD_PORTS];
	uint64_t own, came, outcome, full;
	uint64_t words, round;
	int32_t scope; /* who waits */
};

/* ---- a signal there and back, by one thread of each of two ranks -------------------------------- */

struct port_pingpong_args {
	struct spmt_view view;
	struct spmt_port other;
	uint64_t outcome, rounds;
	uint64_t bytes; /* put before each signal */
};

/* ---- one call ----------------------------------------------------------------------------------- */

enum port_call_kind {
	CALL_WAIT,
	CALL_POLL,
	CALL_UNPACK,
	CALL_UNPACK8,
	CALL_READ_PUT,
	CALL_READ_PUT8,
	CALL_SIGNAL, /* the posts with a flush */
	CALL_PACKETS,
	CALL_PACKETS8,
	CALL_BEYOND, /* a put to the last 8 bytes of the peer's buffer that has 16 */
	CALLS_OF_PORTS
};

/* By the first thread, warp or block, each thread of which must get `want`. Packets come, and lie on their way, at the buffer's beginning. */
struct port_call_args {
	struct spmt_view view;
	struct spmt_port port;
	uint64_t data, outcome; /* data: `size` bytes of the device, to be sent or received */
	uint64_t size;
	uint32_t flag;
	int32_t kind, scope, want;
};

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_ports, test_flood, test_port_pingpong, test_port_call;
#endif

#endif
