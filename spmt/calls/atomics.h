/* SPDX-License-Identifier: MIT */
/* The CPU's part of spmt_atomic and of waits: one atomic operation, one
   comparison. */
#ifndef SPMT_ATOMICS_H
#define SPMT_ATOMICS_H

#include <stddef.h>
#include <stdint.h>

#include "include/spmt.h"
#include "spmt/comm/names.h"

/* What the word at p held before; a is the operand. Integers in two's complement, floats as their bits: only fetch, set
   and swap reach here. */
uint32_t amo_32(uint32_t *p, enum spmt_amo amo, uint32_t a, uint32_t compare);
uint64_t amo_64(uint64_t *p, enum spmt_amo amo, uint64_t a, uint64_t compare);

/* Types that a wait can compare: the integers, f32 and f64. */
int type_comparable(enum spmt_type type);

/* One acquire load of a word of the type, its bits in the low bytes; ptr is naturally aligned. */
uint64_t word_load(enum spmt_type type, const void *ptr);

/* a cmp b, both as bits of the type. A NaN compares as in C: only NE holds. */
int word_compare(enum spmt_type type, enum spmt_cmp cmp, uint64_t a, uint64_t b);

#endif
