/* SPDX-License-Identifier: MIT */
/* Private to spmt-info: a route matrix, made of a live world or of a recorded machine, and how it is printed. */
#ifndef SPMT_INFO_H
#define SPMT_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spmt.h"

enum { MATRIX_MAX = 512 }; /* ranks */

struct matrix {
	int n;
	struct spmt_route *routes; /* n * n: row is the rank that asks */
	int *pids;		   /* n: of the rank's process; 0: not known */
};

int matrix_make(int n, struct matrix *m);
void matrix_free(struct matrix *m);
struct spmt_route *matrix_at(struct matrix *m, int rank, int pe);

/* spmt-info-routes.c: a code a pair, then what each code stands for. False: out of memory. */
bool matrix_print(struct matrix *m);
/* Routes of a world of n ranks, made for the question; n 0: one rank a device. Code of the library. */
int matrix_live(int n, struct matrix *m);

/* spmt-info-file.c: prints the matrix of every world in a file that SPMT_ROUTES made. Code of the library. */
int routes_file_print(const char *path);

/* spmt-info-coll.c: how collectives are done among so many ranks, 0: among the usual numbers, and the plans that SPMT_COLL names. False:
   one of these is refused. */
bool coll_print(int ranks);

/* spmt-info-waits.c: who waits where for whom in the worlds of a running process, which it only reads. Code of the library. */
int waits_print(int pid);

#endif
