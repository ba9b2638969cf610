/* SPDX-License-Identifier: MIT */
/*
 * The table of live processes, in the memory that they share. Nobody has to be asked, every death
 * is seen, and the kernel keeps the table true. Each process has one word with the number of a
 * thread that lives as long as the process takes part; the kernel marks the word when the thread
 * ends. If a process overwrites the table, it may show a death that did not happen or hide one
 * that did, but nothing else goes wrong.
 */
#ifndef SPMT_LIVE_TABLE_H
#define SPMT_LIVE_TABLE_H

#include <linux/futex.h>
#include <stdatomic.h>

#include "src/base/base.h"

/* A process's own entry, in its own memory, from live_table_join to live_table_leave. */
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
