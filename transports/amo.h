/* SPDX-License-Identifier: MIT */
/* One atomic operation by the CPU. */
#ifndef SPMT_AMO_H
#define SPMT_AMO_H

#include <stddef.h>
#include <stdint.h>

#include "../include/spmt.h"

struct amo {
	enum spmt_amo op;
	size_t size;		   /* 4 or 8 */
	uint64_t operand, compare; /* in the low bytes */
};

/* What the aligned word held before, in the low bytes; of a set it is 0. Integers in two's complement, floats as their bits:
   only fetch, set and swap reach here. */
uint64_t amo_do(void *word, const struct amo *amo);

#endif
