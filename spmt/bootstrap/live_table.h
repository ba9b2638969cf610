/* SPDX-License-Identifier: MIT */
/*
 * Who of the processes that share a memory still lives, told by the memory alone: nobody has to be
 * asked, the death of any of them is seen, and the kernel keeps it true. One word a process, which
 * holds the number of a thread that lives as long as its process takes part; the kernel marks it when
 * the thread has ended. Nothing that the others write there is followed: what they have overwritten
 * may tell of a death that is none, or of none that is one.
 */
#ifndef SPMT_LIVE_TABLE_H
#define SPMT_LIVE_TABLE_H

#include <linux/futex.h>
#include <stdatomic.h>

#include "src/base/base.h"

/* Of one process, in memory of its own, from live_table_join to live_table_leave. */
struct live_process {
	struct robust_list_head head, *before; /* what the kernel knows of the thread */
	struct robust_list entry;
	struct live_line *line; /* in the memory; NULL: has not begun */
	uint32_t thread;
};

size_t live_table_size(int processes);
/* Zeroed memory, aligned to a cache line. By one thread: takes the place of its process until live_table_leave
   by the same thread, or until it ends. That thread holds no robust mutex. */
void live_table_join(struct live_process *live, void *table, int process);
void live_table_leave(struct live_process *live);
/* Any thread of any process, once the other has begun. */
bool live_table_has(const void *table, int process);
/* Whether the memory still says what this process wrote. */
bool live_table_intact(const struct live_process *live);

#endif
