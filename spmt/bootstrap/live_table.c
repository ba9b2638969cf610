/* SPDX-License-Identifier: MIT */
#include "live_table.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct live_line {
	_Alignas(CACHE_LINE) _Atomic uint32_t word;
	_Atomic uint32_t
		seal[CACHE_LINE / sizeof(uint32_t) - 1]; /* says whether others have written here */
};
_Static_assert(sizeof(struct live_line) == CACHE_LINE, "a line is a cache line");

size_t live_table_size(int processes)
{
	return (size_t)processes * sizeof(struct live_line);
}

/*
 * A robust mutex would keep the kernel's list of pointers in the shared memory, and glibc would
 * follow them later. The list may lie anywhere: the kernel finds the word by its distance from
 * the entry. Emulators have no such lists; there, deaths are not seen here.
 */
void live_table_join(struct live_process *live, void *table, int process)
{
	struct live_line *line = (struct live_line *)table + process;
	size_t size = sizeof(live->head);

	live->line = line;
	live->thread = (uint32_t)syscall(SYS_gettid);
	for (size_t i = 0; i < ARRAY_SIZE(line->seal); i++)
		atomic_store(&line->seal[i], ~live->thread);
	live->entry.next = &live->head.list;
	live->head.list.next = &live->entry;
	live->head.futex_offset = (long)((uintptr_t)&line->word - (uintptr_t)&live->entry);
	if (syscall(SYS_get_robust_list, 0, &live->before, &size))
		live->before = NULL;
	atomic_store(&line->word, live->thread);
	(void)syscall(SYS_set_robust_list, &live->head, sizeof(live->head));
}

void live_table_leave(struct live_process *live)
{
	if (!live->line)
		return;
	(void)syscall(SYS_set_robust_list, live->before, sizeof(live->head));
	atomic_store(&live->line->word, 0);
	live->line = NULL;
}

bool live_table_has(const void *table, int process)
{
	uint32_t word = atomic_load(&((const struct live_line *)table)[process].word);

	return word && !(word & FUTEX_OWNER_DIED);
}

bool live_table_intact(const struct live_process *live)
{
	const struct live_line *line = live->line;
	bool same = !line || atomic_load(&line->word) == live->thread;

	for (size_t i = 0; line && i < ARRAY_SIZE(line->seal); i++)
		same &= atomic_load(&line->seal[i]) == ~live->thread;
	return same;
}
