/* SPDX-License-Identifier: MIT */
#include "coll_key.h"

#include <stdio.h>

#include "src/base/base.h"
#include "src/base/names.h"

/*
 * From the top: breaks 1 bit, kind 4, type 4, folded 1; then 54. Folded: a hash of the rest, where that does not fit, as a permute's table
 * never does. Else from the top, where the kind has them, op 4, root 15; then the count.
 */
enum { KIND_AT = 59, TYPE_AT = 55, FOLDED_AT = 54, OP_BITS = 4, ROOT_BITS = 15 };
enum { KIND_PLAN = 15 }; /* as a kind, none of the table's */
_Static_assert((int)COLL_CALLS <= (int)KIND_PLAN, "no kind of the table's");
_Static_assert(PLAN_VALUE_BITS + 3 == FOLDED_AT && PLAN_ARGUMENTS <= 8, "as plan_shown() packs");

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
	return kind < COLL_CALLS && coll_kinds[kind].folds;
}

static bool has(uint64_t kind, enum coll_among among)
{
	return kind < COLL_CALLS && coll_kinds[kind].among == among;
}

static bool has_root(uint64_t kind)
{
	return has(kind, COLL_ROOT_TO_ALL) || has(kind, COLL_ALL_TO_ROOT);
}

/* Where the count ends and the root begins, and the op. */
static int count_bits(uint64_t kind)
{
	return FOLDED_AT - (reduces(kind) ? OP_BITS : 0) - (has_root(kind) ? ROOT_BITS : 0);
}

static int op_at(uint64_t kind)
{
	return count_bits(kind) + (has_root(kind) ? ROOT_BITS : 0);
}

uint64_t coll_key(const struct coll_same *c)
{
	uint64_t breaks = coll_kinds[c->kind].breaks ? COLL_KEY_BREAKS : 0;
	uint64_t kind = (uint64_t)c->kind;
	uint64_t key = breaks | kind << KIND_AT | (uint64_t)c->type << TYPE_AT;
	uint64_t op = reduces(kind) ? (uint64_t)c->op : 0;
	uint64_t root = has_root(kind) ? (uint64_t)c->root : 0, rest = 0;
	int bits = count_bits(kind);

	if (!has(kind, COLL_ONE_TO_ONE) && low(c->count, bits) == c->count)
		return key | op << op_at(kind) | root << bits | c->count;
	rest = coll_fold(rest, c->count);
	rest = coll_fold(rest, op);
	rest = coll_fold(rest, root);
	rest = coll_fold(rest, c->to);
	return key | 1ull << FOLDED_AT | low(rest, FOLDED_AT);
}

uint64_t coll_plan_key(int type, uint64_t rest)
{
	return (uint64_t)KIND_PLAN << KIND_AT | (uint64_t)type << TYPE_AT | 1ull << FOLDED_AT |
		low(rest, FOLDED_AT);
}

static uint64_t kind_of(uint64_t key)
{
	return low(key, 63) >> KIND_AT;
}

/* ---- in words ------------------------------------------------------------------------------------ */

const char *coll_key_call(uint64_t key)
{
	uint64_t kind = kind_of(key);

	if (kind == KIND_PLAN)
		return "spmt_plan_run";
	return kind < COLL_CALLS ? coll_kinds[kind].call : "an unknown function";
}

/* Where one of the keys is folded. */
static const char *rest_name(uint64_t kind)
{
	if (kind == KIND_PLAN)
		return "plan, dst, src, count or op";
	return has(kind, COLL_ONE_TO_ONE)	  ? "count or to"
		: has_root(kind) && reduces(kind) ? "count, op or root"
		: has_root(kind)		  ? "count or root"
		: reduces(kind)			  ? "count or op"
						  : "count";
}

/* One argument as two ranks passed it; empty if that is not known. */
struct difference {
	const char *name;
	bool pair; /* it is what the first sends the second */
	char passed[2][48];
};

static void rest_differs(const uint64_t key[2], uint64_t kind, struct difference *d)
{
	int bits = count_bits(kind), op = op_at(kind);
	bool count = low(key[0], bits) != low(key[1], bits);
	bool root = !count && low(key[0], op) != low(key[1], op);

	d->pair = count && kind >= COLL_KINDS && kind < COLL_CALLS;
	d->name = count ? "count" : root ? "root" : "op";
	for (int i = 0; i < 2; i++) {
		uint64_t rest = low(key[i], FOLDED_AT);

		if (count || root)
			snprintf(d->passed[i], sizeof(d->passed[i]), "%llu",
				(unsigned long long)(count ? low(rest, bits)
							   : low(rest, op) >> bits));
		else
			snprintf(d->passed[i], sizeof(d->passed[i]), "%s", op_name(rest >> op));
	}
}

/* One argument of a run, as plan_shown() has it; 0 as open: it runs none that this plan could tell. */
static void argument_differs(const uint64_t key[2], struct difference *d)
{
	static const char *const names[PLAN_ARGUMENTS] = { "open (by order of spmt_plan_begin)",
		"count", "op", "dst (as an offset)", "src (as an offset)" };
	uint64_t nth = low(key[0], FOLDED_AT) >> PLAN_VALUE_BITS;

	if (nth != low(key[1], FOLDED_AT) >> PLAN_VALUE_BITS || nth >= PLAN_ARGUMENTS)
		return;
	d->name = names[nth];
	for (int i = 0; i < 2; i++) {
		uint64_t value = low(key[i], PLAN_VALUE_BITS);

		if (nth == PLAN_OP)
			snprintf(d->passed[i], sizeof(d->passed[i]), "%s", op_name(value));
		else if (nth == PLAN_OPEN && !value)
			snprintf(
				d->passed[i], sizeof(d->passed[i]), "another or made another call");
		else
			snprintf(d->passed[i], sizeof(d->passed[i]), "%llu",
				(unsigned long long)value);
	}
}

static void find_difference(const uint64_t key[2], struct difference *d)
{
	uint64_t kind = kind_of(key[0]);
	bool kinds = kind != kind_of(key[1]);

	if (!kinds && low(key[0] >> TYPE_AT, 4) == low(key[1] >> TYPE_AT, 4)) {
		d->name = rest_name(kind);
		if ((key[0] | key[1]) >> FOLDED_AT & 1)
			return;
		if (kind == KIND_PLAN)
			argument_differs(key, d);
		else
			rest_differs(key, kind, d);
		return;
	}
	d->name = kinds ? "the function called" : "type";
	for (int i = 0; i < 2; i++)
		snprintf(d->passed[i], sizeof(d->passed[i]), "%s",
			kinds ? coll_key_call(key[i]) : type_name(low(key[i] >> TYPE_AT, 4)));
}

void coll_differ(char *text, size_t size, int a, uint64_t key_a, int b, uint64_t key_b)
{
	const uint64_t key[2] = { key_a, key_b };
	struct difference d = { .name = NULL };

	find_difference(key, &d);
	if (d.pair)
		snprintf(text, size,
			"%s: what rank %d sends rank %d differs: rank %d passed %s, rank %d passed %s",
			coll_key_call(key_b), a, b, a, d.passed[0], b, d.passed[1]);
	else if (*d.passed[0])
		snprintf(text, size, "%s: %s differs: rank %d passed %s, rank %d passed %s",
			coll_key_call(key_b), d.name, a, d.passed[0], b, d.passed[1]);
	else
		snprintf(text, size, "%s: %s differs between rank %d and rank %d",
			coll_key_call(key_b), d.name, a, b);
}
