/* SPDX-License-Identifier: MIT */
/* How the ranks of a world are spread over processes: "2x4" is two of four ranks, "1+3+4" three processes. */
#ifndef SPMT_PERF_LAYOUT_H
#define SPMT_PERF_LAYOUT_H

#include <stdbool.h>

#include "figure.h"

enum { PERF_PROCESSES = 64 };

struct layout {
	char text[PERF_TEXT];
	int n; /* processes; 0: all ranks are in this one */
	int ranks[PERF_PROCESSES];
};

bool layout_parse(const char *text, struct layout *l);
/* n ranks in one process that is not this one. */
void layout_one(int nranks, struct layout *l);
int layout_nranks(const struct layout *l);
/* The lowest rank of a process. */
int layout_first(const struct layout *l, int process);
int layout_most(const struct layout *l); /* ranks of the largest process */

/*
 * All ranks in the order in which tests pair them: one of each process in turn, so that neighbours live in different
 * processes as long as there are such. Of one process: as they are numbered.
 */
int layout_rank(const struct layout *l, int position);
int layout_position(const struct layout *l, int rank);

#endif
