/* SPDX-License-Identifier: MIT */
/*
 * Who of the processes that share a memory still lives, told by the memory alone: nobody has to be
 * asked, the death of any of them is seen, and the kernel keeps it true. One robust mutex a process,
 * held by a thread that lives as long as its process takes part.
 */
#ifndef SPMT_LIVES_H
#define SPMT_LIVES_H

#include "../src/base.h"

size_t lives_size(int processes);
/* Zeroed memory, aligned to a cache line. By one thread: takes the place of its process until lives_end
   by the same thread, or until it ends. */
void lives_begin(void *lives, int process);
void lives_end(void *lives, int process);
/* Any thread of any process, once the other has begun. A false yes is possible while others ask, too; never
   a false no. */
bool lives_on(void *lives, int process);

#endif
