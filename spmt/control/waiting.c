/* SPDX-License-Identifier: MIT */
#include "waiting.h"

#include <string.h>

static uint64_t word_get(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

bool waiting_read(const struct waiting *waiting, struct wait_seen *seen)
{
	uint32_t state = atomic_load_explicit(&waiting->state, memory_order_acquire);
	uint64_t name[WAITS_NAME / 8];

	if (state % WAIT_PHASES != WAIT_SHOWN)
		return false;
	*seen = (struct wait_seen){ .part = word_get(&waiting->part),
		.epoch = word_get(&waiting->epoch),
		.kind = atomic_load_explicit(&waiting->kind, memory_order_acquire),
		.offset = word_get(&waiting->offset),
		.value = word_get(&waiting->value),
		.seen = word_get(&waiting->seen),
		.since = atomic_load_explicit(&waiting->since, memory_order_acquire),
		.until = atomic_load_explicit(&waiting->until, memory_order_acquire) };
	for (size_t i = 0; i < ARRAY_SIZE(name); i++)
		name[i] = word_get(&waiting->name[i]);
	if (atomic_load_explicit(&waiting->state, memory_order_relaxed) != state)
		return false;
	memcpy(seen->name, name, sizeof(seen->name));
	seen->name[WAITS_NAME - 1] = '\0';
	for (char *c = seen->name; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return *seen->name;
}
