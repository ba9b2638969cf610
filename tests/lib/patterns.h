/* SPDX-License-Identifier: MIT */
/*
 * Buffers filled and compared by pattern. Symmetric ones are reached through spmt_copy_in and spmt_copy_out, so that a suite also runs
 * where the CPU cannot load from the heap. sym_*: 0, or a failure that ranks_message() tells.
 */
#ifndef TESTS_PATTERNS_H
#define TESTS_PATTERNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spmt.h"

void pattern_fill(void *p, size_t n, uint64_t seed);
size_t pattern_differs(
	const void *p, size_t n, uint64_t seed); /* first wrong byte, SIZE_MAX: none */
bool host_access(spmt_comm *comm);
int sym_fill(spmt_comm *comm, void *sym, size_t n, uint64_t seed);
int sym_check(spmt_comm *comm, const void *sym, size_t n, uint64_t seed);
int sym_set(spmt_comm *comm, void *sym, int byte, size_t n);
int sym_check_byte(spmt_comm *comm, const void *sym, int byte, size_t n);
int sym_check_u64(spmt_comm *comm, const uint64_t *sym, uint64_t want);

uint64_t random_next(uint64_t *state); /* *state != 0 */

#endif
