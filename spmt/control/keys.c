/* SPDX-License-Identifier: MIT */
#include "keys.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "src/base/process.h"

#define CLAIM_YIELDS 16
#define CLAIM_PAUSE_NS 50000
#define LEAVE_NS (1000 * 1000000ll) /* then the row is lost */

struct keys_row {
	_Alignas(CACHE_LINE) _Atomic uint32_t users; /* processes; 0: none has it */
	_Atomic uint32_t taken; /* it names the area of a lane, or of one that broke */
	_Atomic uint64_t comm, key;
	_Atomic uint32_t area;
};

/* Behind the rows: a control block each. */
struct keys {
	_Alignas(CACHE_LINE) _Atomic uint32_t claimed;
	struct keys_row rows[KEYS_ROWS];
};

static size_t block_size(void)
{
	return align_up(sizeof(struct control), CACHE_LINE);
}

size_t keys_size(void)
{
	return sizeof(struct keys) + KEYS_ROWS * block_size();
}

static struct control *block_of(struct keys *keys, int row)
{
	return (struct control *)(void *)((char *)(keys + 1) +
		(size_t)(unsigned)row * block_size());
}

/* ---- the claim --------------------------------------------------------------------------------- */

static int keys_claim(struct keys *keys, int64_t most_ns, const uint32_t *stop)
{
	const struct timespec pause = { .tv_nsec = CLAIM_PAUSE_NS };
	int64_t begin = 0;
	uint32_t none = 0;

	for (int n = 0; !atomic_compare_exchange_strong(&keys->claimed, &none, 1); n++, none = 0) {
		if (__atomic_load_n(stop, __ATOMIC_ACQUIRE))
			return -ECANCELED;
		if (!begin)
			begin = process_now();
		else if (most_ns >= 0 && process_now() - begin > most_ns)
			return -ETIMEDOUT;
		if (n < CLAIM_YIELDS)
			sched_yield();
		else
			nanosleep(&pause, NULL);
	}
	return 0;
}

static void keys_unclaim(struct keys *keys)
{
	atomic_store(&keys->claimed, 0);
}

/* ---- rows, in the claim -------------------------------------------------------------------------- */

static bool row_is_of(const struct keys_row *row, uint64_t comm)
{
	return atomic_load(&row->taken) && atomic_load(&row->comm) == comm;
}

static bool row_names(struct keys *keys, int i, const struct keys_want *want)
{
	const struct keys_row *row = &keys->rows[i];

	return row_is_of(row, want->comm) && atomic_load(&row->users) &&
		atomic_load(&row->key) == want->key && !atomic_load(&block_of(keys, i)->stop);
}

/* The first area that no row of the comm names; -1: there is none. */
static int area_find(const struct keys *keys, const struct keys_want *want)
{
	uint64_t taken[KEYS_ROWS / 64] = { 0 };
	int i = 0;

	for (int k = 0; k < KEYS_ROWS; k++) {
		uint32_t area = atomic_load(&keys->rows[k].area);

		if (row_is_of(&keys->rows[k], want->comm) && area < KEYS_ROWS)
			taken[area / 64] |= 1ull << area % 64;
	}
	while (i < want->areas && taken[i / 64] >> i % 64 & 1)
		i++;
	return i < want->areas ? i : -1;
}

static int keys_row_make(struct keys *keys, const struct keys_want *want, struct keys_place *place)
{
	int i = 0, area = area_find(keys, want);

	while (i < KEYS_ROWS && atomic_load(&keys->rows[i].taken))
		i++;
	if (area < 0 || i == KEYS_ROWS)
		return -ENOMEM;
	memset(block_of(keys, i), 0, block_size());
	atomic_store(&keys->rows[i].comm, want->comm);
	atomic_store(&keys->rows[i].key, want->key);
	atomic_store(&keys->rows[i].area, (uint32_t)area);
	atomic_store(&keys->rows[i].users, 1);
	atomic_store(&keys->rows[i].taken, 1);
	*place = (struct keys_place){ i, area, block_of(keys, i) };
	return 0;
}

static int row_take(
	struct keys *keys, int i, const struct keys_want *want, struct keys_place *place)
{
	uint32_t area = atomic_load(&keys->rows[i].area);

	if (area >= (uint32_t)want->areas)
		return -EIO;
	atomic_fetch_add(&keys->rows[i].users, 1);
	*place = (struct keys_place){ i, (int)area, block_of(keys, i) };
	return 0;
}

int keys_enter(struct keys *keys, const struct keys_want *want, struct keys_place *place)
{
	int i = 0, rc = keys_claim(keys, want->most_ns, want->stop);

	if (rc)
		return rc;
	while (i < KEYS_ROWS && !row_names(keys, i, want))
		i++;
	rc = i < KEYS_ROWS ? row_take(keys, i, want, place) : keys_row_make(keys, want, place);
	keys_unclaim(keys);
	return rc;
}

void keys_leave(struct keys *keys, int i, const uint32_t *stop)
{
	struct keys_row *row = &keys->rows[i];

	if (keys_claim(keys, LEAVE_NS, stop))
		return;
	if (atomic_fetch_sub(&row->users, 1) == 1 && !atomic_load(&block_of(keys, i)->stop))
		atomic_store(&row->taken, 0);
	keys_unclaim(keys);
}

void keys_cause(uint64_t key, const struct cause *comms, struct cause *cause)
{
	struct text text = { .used = 0 };

	text_add(&text, "lane %llu: %.450s", (unsigned long long)key, comms->sentence);
	cause_follow(cause, comms, text.bytes);
}

/* Who makes a row after this has claimed behind it, and finds the comm broken. */
void keys_break(struct keys *keys, uint64_t comm, const struct cause *cause, const uint32_t *stop)
{
	struct cause inherited;

	if (keys_claim(keys, LEAVE_NS, stop))
		return;
	for (int i = 0; i < KEYS_ROWS; i++) {
		const struct keys_row *row = &keys->rows[i];

		if (!row_is_of(row, comm) || !atomic_load(&row->users) ||
			atomic_load(&block_of(keys, i)->stop))
			continue;
		keys_cause(atomic_load(&row->key), cause, &inherited);
		control_break(block_of(keys, i), &inherited);
	}
	keys_unclaim(keys);
}

void keys_forget(struct keys *keys, uint64_t comm, const uint32_t *stop)
{
	if (keys_claim(keys, LEAVE_NS, stop))
		return;
	for (int i = 0; i < KEYS_ROWS; i++)
		if (row_is_of(&keys->rows[i], comm))
			atomic_store(&keys->rows[i].taken, 0);
	keys_unclaim(keys);
}
