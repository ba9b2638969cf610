/* SPDX-License-Identifier: MIT */
/*
 * A switch's operations over a stand-in's multicast objects, for files that define SPMTD_MULTIMEM_MODEL. Loads and stores go to what the stand-in says
 * is bound behind an address, and end the program where that is not memory of every device, or where no fence came before. Sums are made
 * from the last device to the first: other than a kernel that goes to each rank in turn.
 */
#ifndef TESTS_MULTIMEM_MODEL_H
#define TESTS_MULTIMEM_MODEL_H

#include <stdbool.h>
#include <stddef.h>

enum { MULTIMEM_DEVICES = 16 };

/* Finds what lies behind an address, as tests/fakes/fake.h has fake_multicast_at. Before any other call. */
void multimem_open(int (*at)(const void *address, size_t n, char **parts));
/* Of the calling thread since it last asked: operations, and whether the last was followed by a fence. Later ones need a fence of
   their own. */
int multimem_loads(void);
int multimem_stores(void);
bool multimem_settled(void);

#endif
