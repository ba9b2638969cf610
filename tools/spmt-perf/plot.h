/* SPDX-License-Identifier: MIT */
/* Private to spmt-perf: pictures of figures, by gnuplot, and what every pair of ranks reaches. */
#ifndef SPMT_PERF_PLOT_H
#define SPMT_PERF_PLOT_H

#include "perf.h"

/* Before anything is measured: gnuplot is there and dir can be written, made if need be. False: a sentence is on stderr. */
bool plot_ready(const char *dir);
/* dir/<test>.svg of every test that has two sizes: over size, ours for each world, and the peers beside. False as above. */
bool plot_figures(const char *dir, const struct figure *figures, int n);
/* dir/matrix.svg: GB/s from row to column. */
bool plot_matrix(const char *dir, const double *rates, int n, size_t size);

/* Puts from every rank to every rank, one pair at a time; data is compared. Prints the table. An exit code. */
int perf_matrix(const struct options *opt, int nranks);

#endif
