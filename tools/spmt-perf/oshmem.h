/* SPDX-License-Identifier: MIT */
/* Private to spmt-perf: the figures of Open MPI's OSHMEM beside those of a layout. */
#ifndef SPMT_PERF_OSHMEM_H
#define SPMT_PERF_OSHMEM_H

#include "figure.h"

/* Runs the same tests with `ranks` processes of OSHMEM and prints a row for each that is among the figures; a sentence where it
   cannot. Takes up to two minutes. */
void oshmem_print(const struct figure *figures, int n, int ranks);

#endif
