/* SPDX-License-Identifier: MIT */
#include "control.h"

#include <sched.h>
#include <string.h>

#include "../include/spmt.h"
#include "../src/process.h"
#include "futex.h"

#define CLAIM_NS (100 * 1000000ll)

/* The half of the gate that changes with every meeting. */
static const _Atomic uint32_t *gate_word(struct control *control)
{
	return (const _Atomic uint32_t *)(uintptr_t)&control->gate;
}

void bell_ring(struct bell *bell)
{
	atomic_fetch_add_explicit(&bell->rings, 1, memory_order_release);
	futex_wake_all(&bell->rings);
}

/* True for the one that is to write why. A process that died between its claim and its word is
   outwaited: the second to claim writes instead of it. */
static bool control_claim(struct control *control)
{
	uint32_t none = 0;

	if (atomic_compare_exchange_strong(&control->claimed, &none, 1))
		return true;
	for (int64_t begin = process_now(); !atomic_load(&control->stop); sched_yield())
		if (process_now() - begin > CLAIM_NS)
			return true;
	return false;
}

void control_break(struct control *control, int code, const char *sentence)
{
	if (!control_claim(control))
		return;
	control->code = code;
	strncpy(control->sentence, sentence, sizeof(control->sentence) - 1);
	atomic_store_explicit(&control->stop, 1, memory_order_release);
	atomic_fetch_or(&control->gate, GATE_BROKEN);
	futex_wake_all(gate_word(control));
	for (uint32_t i = 0; i < control->nranks; i++)
		bell_ring(&control->cells[i].bell);
}

int control_broken(struct control *control, const char *what)
{
	char sentence[STATUS_SENTENCE];

	/* The gate may be seen broken a moment before its breaker has written why. */
	while (!atomic_load_explicit(&control->stop, memory_order_acquire)) {
		if (!(atomic_load(&control->gate) & GATE_BROKEN))
			return 0;
		sched_yield();
	}
	memcpy(sentence, control->sentence, sizeof(sentence));
	if (strncmp(sentence, what, strlen(what)) == 0)
		return fail_with(control->code, sentence);
	return fail(control->code, "%s: the world is broken: %s", what, sentence);
}
