/* SPDX-License-Identifier: MIT */
#include "control.h"

#include <sched.h>
#include <string.h>

#include "keys.h"
#include "src/base/futex.h"
#include "src/base/process.h"
#include "src/base/tsan.h"

#define CLAIM_NS (100 * 1000000ll)

void wake_sleepers(struct wake_counter *counter)
{
	atomic_fetch_add_explicit(&counter->wakes, 1, memory_order_release);
	futex_wake_all(&counter->wakes);
}

/* Which word is the caller's to write; -1: another's is there. One that was stopped between its claim and its word, or has died there, is
   outwaited by the next, and may still write: into a word of its own. Only the last is shared, by all that follow. */
static int control_claim(struct control *control)
{
	uint32_t claims = 0;

	if (atomic_compare_exchange_strong(&control->claimed, &claims, 1))
		return 0;
	for (int64_t begin = process_now(); !atomic_load(&control->stop); sched_yield()) {
		if (process_now() - begin <= CLAIM_NS)
			continue;
		if (atomic_compare_exchange_strong(&control->claimed, &claims, claims + 1))
			return (int)MIN_OF(claims, CONTROL_WORDS - 1);
		begin = process_now(); /* another has outwaited it */
	}
	return -1;
}

/* FNV-1a over all of it. */
static uint32_t check_of(const struct cause *cause)
{
	const unsigned char *at = (const unsigned char *)cause;
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < sizeof(*cause); i++)
		h = (h ^ at[i]) * 16777619u;
	return h;
}

/* True: the word is the first to be named. */
static bool control_say(struct control *control, int word, const struct cause *cause)
{
	uint32_t none = 0;

	control->words[word].cause = *cause;
	control->words[word].check = check_of(cause);
	tsan_release(&control->stop);
	return atomic_compare_exchange_strong(&control->stop, &none, (uint32_t)word + 1);
}

bool control_break(struct control *control, const struct cause *cause)
{
	int word = control_claim(control);
	bool first = word >= 0 && control_say(control, word, cause);

	/* Also where another is first: what looks like one may be anything. */
	atomic_fetch_or(&control->gate, GATE_BROKEN);
	futex_wake_all(control_gate_word(control));
	return first;
}

enum control_state control_state(struct control *control, struct cause *cause)
{
	uint32_t stop = atomic_load_explicit(&control->stop, memory_order_acquire);
	const struct control_word *word;

	if (!stop && !(atomic_load(&control->gate) & GATE_BROKEN))
		return CONTROL_WHOLE;
	stop = atomic_load_explicit(&control->stop, memory_order_acquire);
	if (!stop)
		return CONTROL_SPOILED;
	tsan_acquire(&control->stop);
	word = control_word_named(control, stop);
	memcpy(cause, &word->cause, sizeof(*cause));
	/* The compiler may not look at the shared one again. */
	__asm__ volatile("" : : "r"(cause) : "memory");
	return word->check == check_of(cause) && cause->code < 0 &&
			memchr(cause->sentence, 0, sizeof(cause->sentence))
		? CONTROL_BROKEN
		: CONTROL_SPOILED;
}

void control_leave(struct control *control, int rank)
{
	atomic_store(&control->rows[rank].left, 1);
	atomic_fetch_add(&control->coming, 1);
	futex_wake_all(&control->coming);
}

void control_begin(struct control *control, int nranks, uint64_t name)
{
	control->nranks = (uint32_t)nranks;
	control->mark.version = CONTROL_VERSION;
	control->mark.row = sizeof(struct control_row);
	control->mark.name = name;
	atomic_store_explicit(&control->mark.magic, CONTROL_MAGIC, memory_order_release);
}

/* ---- room for comms split from a world ------------------------------------------------------- */

/* The room has units, each with a byte that says whether it is taken. A whole world's comm fits
   ROOM_TIMES times; memory that nobody has touched costs nothing. */
#define ROOM_UNIT 1024u
#define ROOM_TIMES 64u

struct room {
	_Atomic unsigned char *taken;
	char *units;
	size_t n;
};

static size_t units_of(int nranks)
{
	return (control_size(nranks) + ROOM_UNIT - 1) / ROOM_UNIT;
}

static struct room room_of(struct control *world, int world_ranks)
{
	size_t n = ROOM_TIMES * units_of(world_ranks);
	char *begin = (char *)world + control_size(world_ranks);

	return (struct room){ (_Atomic unsigned char *)begin, begin + align_up(n, CACHE_LINE), n };
}

static size_t room_end(int nranks)
{
	size_t n = ROOM_TIMES * units_of(nranks);

	return control_size(nranks) + align_up(n, CACHE_LINE) + n * ROOM_UNIT;
}

size_t control_world_size(int nranks)
{
	return align_up(room_end(nranks), CACHE_LINE) + keys_size();
}

struct keys *control_keys(struct control *world, int world_ranks)
{
	return (struct keys *)(void *)((char *)world + align_up(room_end(world_ranks), CACHE_LINE));
}

static void release_units(_Atomic unsigned char *taken, size_t n)
{
	for (size_t i = 0; i < n; i++)
		atomic_store_explicit(&taken[i], 0, memory_order_release);
}

/* Claims n units in a row, or none; returns how many were free. */
static size_t claim_units(_Atomic unsigned char *taken, size_t n)
{
	size_t got = 0;
	unsigned char none = 0;

	while (got < n && atomic_compare_exchange_strong(&taken[got], &none, 1))
		got++;
	if (got < n)
		release_units(taken, got);
	return got;
}

struct control *control_take(struct control *world, int world_ranks, int nranks)
{
	struct room room = room_of(world, world_ranks);
	size_t want = units_of(nranks), got;

	for (size_t at = 0; at + want <= room.n; at += got + 1) {
		struct control *control = (void *)(room.units + at * ROOM_UNIT);

		got = claim_units(room.taken + at, want);
		if (got < want)
			continue;
		memset(control, 0, control_size(nranks));
		control->nranks = (uint32_t)nranks;
		return control;
	}
	return NULL;
}

void control_give(struct control *world, int world_ranks, struct control *control, int nranks)
{
	struct room room = room_of(world, world_ranks);
	size_t at = (size_t)((char *)control - room.units) / ROOM_UNIT;

	release_units(room.taken + at, units_of(nranks));
}

uint64_t control_offset(const struct control *world, const struct control *control)
{
	return (uint64_t)((const char *)control - (const char *)world);
}

struct control *control_at(struct control *world, int world_ranks, uint64_t offset, int nranks)
{
	struct room room = room_of(world, world_ranks);
	uint64_t first = (uint64_t)(room.units - (char *)world), at = (offset - first) / ROOM_UNIT;

	if (offset < first || (offset - first) % ROOM_UNIT || at > room.n ||
		units_of(nranks) > room.n - at)
		return NULL;
	return (void *)(room.units + at * ROOM_UNIT);
}
