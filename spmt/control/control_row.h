/* SPDX-License-Identifier: MIT */
/* One rank's row of a control block (control.h). */
#ifndef SPMT_CONTROL_ROW_H
#define SPMT_CONTROL_ROW_H

#include <stdatomic.h>

#include "meeting.h"
#include "src/base/status.h"
#include "waiting.h"
#include "wake.h"

/* One rank's row. Only that rank writes it, except for the wake counter and what a deadline finds. */
struct control_row {
	_Alignas(CACHE_LINE) _Atomic uint64_t arrived; /* its last meeting */
	_Atomic int cpu;			       /* where it was then */
	struct meet_record record[2];		       /* by parity of the meeting */
	_Atomic uint32_t attached[2]; /* bytes of `sentence` that go with it to other nodes */
	_Atomic uint32_t come;	      /* shrink.c: rounds that it has come to */
	_Atomic uint32_t left;	      /* has ended its comm, which was broken */
	_Atomic int64_t since;	      /* when it came, to a meeting between nodes */
	/* The last meeting in which a deadline has found it so (spmt/nodes/missing.h). */
	_Atomic uint64_t missed, silent, late;
	struct wake_counter wake_counter;	  /* of worlds */
	_Alignas(CACHE_LINE) _Atomic int32_t pid; /* of its process; 0: it has not come */
	_Atomic int32_t world_rank;
	struct waiting waits[WAITS_MOST]; /* of worlds: of all comms of the rank */
	_Alignas(CACHE_LINE) char sentence[2][STATUS_SENTENCE]; /* why record.status is not 0 */
};

#endif
