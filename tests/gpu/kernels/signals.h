/* SPDX-License-Identifier: MIT */
/* What the kernels of signals.c take. */
#ifndef TESTS_GPU_SIGNALS_H
#define TESTS_GPU_SIGNALS_H

#include "kernels.h"

/* ---- signals: rounds of data and its signal round a ring of ranks ---------------------------- */

enum signal_form {
	SIGNAL_SET_FORM,
	SIGNAL_ADD_FORM,
	SIGNAL_NBI_FORM,
	SIGNAL_FENCE_FORM, /* put, fence, signal */
	SIGNAL_QUIET_FORM, /* put_nbi, quiet, signal */
	SIGNAL_SDMA_FORM,  /* by copy engines, where kernels feed them: set */
	SIGNAL_SDMA_ADD_FORM,
	SIGNAL_FORMS
};

/* Each worker (thread, warp or block) has 2 slots of `words` words, a buffer, a signal and an
   acknowledgement of its own. */
struct signals_args {
	struct spmt_view view;
	uint64_t slots, buffers, sigs, acks, outcome;
	uint64_t words, rounds, done; /* rounds of earlier launches */
	int32_t to, from, scope, form;
};

/* ---- meetings: rounds of stores to all, a meeting, a look ------------------------------------ */

enum meet_form { MEET_BY_BARRIER, MEET_BY_SYNC, MEET_BY_HALVES, MEET_FORMS };

struct meetings_args {
	struct spmt_view view;
	uint64_t slots, outcome; /* 2 x npes words */
	uint64_t rounds, done;
	int32_t scope, form;
};

/* ---- the graph's step ------------------------------------------------------------------------ */

/* Checks the words that came, clears the signal, writes the next round's; the round is a word of
   the device. */
struct step_args {
	struct spmt_view view;
	uint64_t came, next, sig, round, outcome;
	uint64_t words;
	int32_t from;
};
static inline uint64_t step_value(int pe, uint64_t round, uint64_t i)
{
	return ((uint64_t)(uint32_t)pe << 48) + (round << 24) + i;
}

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
extern const struct test_kernel test_signals, test_meetings, test_step;
#endif

#endif
