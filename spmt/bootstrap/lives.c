/* SPDX-License-Identifier: MIT */
#include "lives.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct life_place {
	_Alignas(CACHE_LINE) _Atomic uint32_t word;
	_Atomic uint32_t
		seal[CACHE_LINE / sizeof(uint32_t) - 1]; /* says whether others have written here */
};
_Static_assert(sizeof(struct life_place) == CACHE_LINE, "a place is a cache line");

size_t lives_size(int processes)
{
	return (size_t)processes * sizeof(struct life_place);
}

/*
 * A robust mutex would keep the kernel's list, pointers, in the shared memory, and glibc would follow them when it is given back. The
 * list may lie anywhere: the kernel finds the word by its distance from the entry. Where there are no such lists (under
 * emulators) a death is not seen here.
 */
void lives_begin(struct life *life, void *lives, int process)
{
	struct life_place *place = (struct life_place *)lives + process;
	size_t size = sizeof(life->head);

	life->place = place;
	life->thread = (uint32_t)syscall(SYS_gettid);
	for (size_t i = 0; i < ARRAY_SIZE(place->seal); i++)
		atomic_store(&place->seal[i], ~life->thread);
	life->entry.next = &life->head.list;
	life->head.list.next = &life->entry;
	life->head.futex_offset = (long)((uintptr_t)&place->word - (uintptr_t)&life->entry);
	if (syscall(SYS_get_robust_list, 0, &life->before, &size))
		life->before = NULL;
	atomic_store(&place->word, life->thread);
	(void)syscall(SYS_set_robust_list, &life->head, sizeof(life->head));
}

void lives_end(struct life *life)
{
	if (!life->place)
		return;
	(void)syscall(SYS_set_robust_list, life->before, sizeof(life->head));
	atomic_store(&life->place->word, 0);
	life->place = NULL;
}

bool lives_on(const void *lives, int process)
{
	uint32_t word = atomic_load(&((const struct life_place *)lives)[process].word);

	return word && !(word & FUTEX_OWNER_DIED);
}

bool lives_intact(const struct life *life)
{
	const struct life_place *place = life->place;
	bool same = !place || atomic_load(&place->word) == life->thread;

	for (size_t i = 0; place && i < ARRAY_SIZE(place->seal); i++)
		same &= atomic_load(&place->seal[i]) == ~life->thread;
	return same;
}
