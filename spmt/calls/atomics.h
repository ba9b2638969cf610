/* SPDX-License-Identifier: MIT */
/* The CPU's part of waits: one load, one comparison. */
#ifndef SPMT_ATOMICS_H
#define SPMT_ATOMICS_H

#include <stddef.h>
#include <stdint.h>

#include "include/spmt.h"
#include "src/base/names.h"

/* Types that a wait can compare: the integers, f32 and f64. */
int type_comparable(enum spmt_type type);

/* One acquire load of a word of the type, its bits in the low bytes; ptr is naturally aligned. */
uint64_t word_load(enum spmt_type type, const void *ptr);

/* a cmp b, both as bits of the type. A NaN compares as in C: only NE holds. */
int word_compare(enum spmt_type type, enum spmt_cmp cmp, uint64_t a, uint64_t b);

#endif
