/* SPDX-License-Identifier: MIT */
#include "waits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm.h"
#include "src/base/process.h"

/* The world's control block, as far as this rank knows: while the world is gathered its ranks are on that of their process. */
static struct control *waits_home(const spmt_comm *comm)
{
	return comm->parent ? atomic_load(&comm->world->control) : comm->control;
}

static struct waiting *waits_of(const spmt_comm *comm, int pe)
{
	return waits_home(comm)->rows[comm_world_rank(comm, pe)].waits;
}

void waits_join(spmt_comm *comm)
{
	struct control_row *row = &comm->control->rows[comm->rank];

	atomic_store_explicit(
		&row->world_rank, comm_world_rank(comm, comm->rank), memory_order_relaxed);
	atomic_store_explicit(&row->pid, (int32_t)getpid(), memory_order_release);
}

/* ---- writing ------------------------------------------------------------------------------- */

static struct waiting *waits_owned(const spmt_comm *comm, const void *owner)
{
	struct waiting *waits = waits_of(comm, comm->rank);

	for (int i = 0; i < WAITS_MOST; i++)
		if (atomic_load_explicit(&waits[i].owner, memory_order_relaxed) ==
			(uint64_t)(uintptr_t)owner)
			return &waits[i];
	return NULL;
}

/* True: this thread may write the place. Ended waits are overwritten. */
static bool waits_claim(struct waiting *w)
{
	uint32_t state = atomic_load_explicit(&w->state, memory_order_relaxed), phase;

	phase = state % WAIT_PHASES;
	if (phase == WAIT_WRITTEN ||
		(phase == WAIT_SHOWN && !atomic_load_explicit(&w->until, memory_order_acquire)))
		return false;
	return atomic_compare_exchange_strong_explicit(&w->state, &state,
		state - phase + (phase == WAIT_SHOWN ? WAIT_PHASES : 0) + WAIT_WRITTEN,
		memory_order_acquire, memory_order_relaxed);
}

static void word_put(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static void waits_fill(struct waiting *w, const spmt_comm *comm, const struct wait_for *wait)
{
	uint64_t name[WAITS_NAME / 8] = { 0 };
	size_t part = (size_t)((const char *)comm->control - (const char *)waits_home(comm));

	memcpy(name, wait->name, strnlen(wait->name, WAITS_NAME - 1));
	for (size_t i = 0; i < ARRAY_SIZE(name); i++)
		word_put(&w->name[i], name[i]);
	word_put(&w->part, part);
	word_put(&w->epoch, wait->epoch);
	word_put(&w->offset, wait->offset);
	word_put(&w->value, wait->value);
	word_put(&w->seen, wait->seen);
	atomic_store_explicit(&w->kind,
		(wait->word ? WAIT_WORD | (uint32_t)wait->type << 8 | (uint32_t)wait->cmp << 16
			    : 0) |
			(wait->kernel ? WAIT_KERNEL : 0) | (wait->gather ? WAIT_GATHER : 0),
		memory_order_relaxed);
	atomic_store_explicit(&w->since, wait->since, memory_order_relaxed);
	atomic_store_explicit(&w->until, 0, memory_order_relaxed);
}

void waits_show(spmt_comm *comm, const void *owner, const struct wait_for *wait)
{
	struct waiting *waits = waits_of(comm, comm->rank), *mine = waits_owned(comm, owner);

	if (mine) {
		word_put(&mine->seen, wait->seen);
		return;
	}
	for (int i = 0; i < WAITS_MOST; i++) {
		if (!waits_claim(&waits[i]))
			continue;
		waits_fill(&waits[i], comm, wait);
		word_put(&waits[i].owner, (uint64_t)(uintptr_t)owner);
		atomic_fetch_add_explicit(
			&waits[i].state, WAIT_SHOWN - WAIT_WRITTEN, memory_order_release);
		return;
	}
}

void waits_hide(spmt_comm *comm, const void *owner)
{
	struct waiting *mine = waits_owned(comm, owner);

	if (!mine)
		return;
	word_put(&mine->owner, 0);
	atomic_fetch_add_explicit(&mine->state, WAIT_PHASES - WAIT_SHOWN, memory_order_release);
}

void waits_give_up(spmt_comm *comm, const void *owner)
{
	struct waiting *mine = waits_owned(comm, owner);

	if (!mine)
		return;
	word_put(&mine->owner, 0);
	atomic_store_explicit(&mine->until, process_now(), memory_order_release);
}

static _Thread_local struct {
	spmt_comm *comm;
	const struct wait_for *wait;
	bool shown;
} waits_call;

void waits_call_begin(spmt_comm *comm, const struct wait_for *wait)
{
	waits_call.comm = comm;
	waits_call.wait = wait;
}

void waits_call_show(int64_t since)
{
	struct wait_for wait;

	if (!waits_call.wait)
		return;
	wait = *waits_call.wait;
	wait.since = wait.since ? wait.since : since;
	waits_show(waits_call.comm, waits_call.wait, &wait);
	waits_call.shown = true;
}

void waits_call_end(void)
{
	if (waits_call.shown)
		waits_hide(waits_call.comm, waits_call.wait);
	waits_call.wait = NULL;
	waits_call.shown = false;
}

/* ---- reading ------------------------------------------------------------------------------- */

PRINTF(2, 3) static void waits_text_add(struct waits_text *t, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->bytes + t->used, sizeof(t->bytes) - t->used, fmt, args);
	va_end(args);
	t->used = MIN_OF(t->used + (size_t)MAX_OF(n, 0), sizeof(t->bytes) - 1);
}

/* Prefers waits that go on to those given up, the thread's own to a kernel's, then the later one. */
static int64_t wait_weight(const struct wait_seen *s)
{
	return s->until ? s->until : s->kind & WAIT_KERNEL ? INT64_MAX - 1 : INT64_MAX;
}

static bool wait_heaviest(const spmt_comm *comm, int pe, int64_t since, struct wait_seen *seen)
{
	const struct waiting *waits = waits_of(comm, pe);
	struct wait_seen one;
	bool found = false;

	for (int i = 0; i < WAITS_MOST; i++) {
		if (!waiting_read(&waits[i], &one) || (one.until && one.until < since))
			continue;
		if (!found || wait_weight(&one) > wait_weight(seen))
			*seen = one;
		found = true;
	}
	return found;
}

/* Leaves room for what follows the names of ranks. */
#define WAITS_ROOM_FOR_ONE 96

void waits_add(struct waits_text *text, const spmt_comm *comm, int pe, int64_t since)
{
	size_t part = (size_t)((const char *)comm->control - (const char *)waits_home(comm));
	struct wait_seen seen;

	if (text->used + WAITS_ROOM_FOR_ONE > sizeof(text->bytes) ||
		!wait_heaviest(comm, pe, since, &seen))
		return;
	waits_text_add(text, "%srank %d %s in %s%s", text->used ? ", " : "", pe,
		seen.until ? "gave up" : "waits", seen.name,
		seen.part != part ? " of another comm" : "");
}

const char *waits_said(struct waits_text *text)
{
	if (text->used)
		waits_text_add(text, "; ");
	return text->bytes;
}
