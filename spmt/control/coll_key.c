/* SPDX-License-Identifier: MIT */
#include "coll_key.h"

#include <stdbool.h>
#include <stdio.h>

#include "src/base/base.h"
#include "src/base/names.h"

/*
 * From the top: kind 3 bits, type 4, folded 1; then 56. Folded: a hash of the rest, where that does not fit, as a permute's table
 * never does. Else a reduction has op 3, count 53; a broadcast root 15, count 41; the others count 56.
 */
enum { KIND_AT = 61, TYPE_AT = 57, FOLDED_AT = 56, OP_AT = 53, ROOT_AT = 41 };

static uint64_t low(uint64_t x, int bits)
{
	return x & ((1ull << bits) - 1);
}

uint64_t coll_fold(uint64_t key, uint64_t value)
{
	key ^= value + 0x9e3779b97f4a7c15ull + (key << 6) + (key >> 2);
	key *= 0xbf58476d1ce4e5b9ull;
	return key ^ (key >> 31);
}

static bool reduces(uint64_t kind)
{
	return kind < COLL_KINDS && coll_kinds[kind].folds;
}

static bool has(uint64_t kind, enum coll_among among)
{
	return kind < COLL_KINDS && coll_kinds[kind].among == among;
}

/* Where the count ends and op or root begins. */
static int count_bits(uint64_t kind)
{
	return reduces(kind) ? OP_AT : has(kind, COLL_ROOT_TO_ALL) ? ROOT_AT : FOLDED_AT;
}

uint64_t coll_key(const struct coll_same *c)
{
	uint64_t kind = (uint64_t)c->kind, key = kind << KIND_AT | (uint64_t)c->type << TYPE_AT;
	uint64_t op = reduces(kind) ? (uint64_t)c->op : 0;
	uint64_t root = has(kind, COLL_ROOT_TO_ALL) ? (uint64_t)c->root : 0, rest = 0;
	int bits = count_bits(kind);

	if (!has(kind, COLL_ONE_TO_ONE) && low(c->count, bits) == c->count)
		return key | op << OP_AT | root << ROOT_AT | c->count;
	rest = coll_fold(rest, c->count);
	rest = coll_fold(rest, op);
	rest = coll_fold(rest, root);
	rest = coll_fold(rest, c->to);
	return key | 1ull << FOLDED_AT | low(rest, FOLDED_AT);
}

/* ---- in words ------------------------------------------------------------------------------------ */

static const char *kind_name(uint64_t key)
{
	uint64_t kind = key >> KIND_AT;

	return kind < COLL_KINDS ? coll_kinds[kind].call : "an unknown function";
}

/* Where one of the keys is folded. */
static const char *rest_name(uint64_t kind)
{
	return has(kind, COLL_ONE_TO_ONE)     ? "count or to"
		: has(kind, COLL_ROOT_TO_ALL) ? "count or root"
		: reduces(kind)		      ? "count or op"
					      : "count";
}

/* One argument as two ranks passed it; empty if that is not known. */
struct difference {
	const char *name;
	char passed[2][48];
};

static void rest_differs(const uint64_t key[2], uint64_t kind, struct difference *d)
{
	int bits = count_bits(kind);
	bool count = low(key[0], bits) != low(key[1], bits);

	d->name = count ? "count" : reduces(kind) ? "op" : "root";
	for (int i = 0; i < 2; i++) {
		uint64_t more = low(key[i], FOLDED_AT) >> bits;

		if (count)
			snprintf(d->passed[i], sizeof(d->passed[i]), "%llu",
				(unsigned long long)low(key[i], bits));
		else if (reduces(kind))
			snprintf(d->passed[i], sizeof(d->passed[i]), "%s", op_name(more));
		else
			snprintf(d->passed[i], sizeof(d->passed[i]), "%d", (int)more);
	}
}

static void find_difference(const uint64_t key[2], struct difference *d)
{
	uint64_t kind = key[0] >> KIND_AT;
	bool kinds = kind != key[1] >> KIND_AT;

	if (!kinds && low(key[0] >> TYPE_AT, 4) == low(key[1] >> TYPE_AT, 4)) {
		d->name = rest_name(kind);
		if (!((key[0] | key[1]) >> FOLDED_AT & 1))
			rest_differs(key, kind, d);
		return;
	}
	d->name = kinds ? "the function called" : "type";
	for (int i = 0; i < 2; i++)
		snprintf(d->passed[i], sizeof(d->passed[i]), "%s",
			kinds ? kind_name(key[i]) : type_name(low(key[i] >> TYPE_AT, 4)));
}

void coll_differ(char *text, size_t size, int a, uint64_t key_a, int b, uint64_t key_b)
{
	const uint64_t key[2] = { key_a, key_b };
	struct difference d = { .name = NULL };

	find_difference(key, &d);
	if (*d.passed[0])
		snprintf(text, size, "%s: %s differs: rank %d passed %s, rank %d passed %s",
			kind_name(key_b), d.name, a, d.passed[0], b, d.passed[1]);
	else
		snprintf(text, size, "%s: %s differs between rank %d and rank %d", kind_name(key_b),
			d.name, a, b);
}
