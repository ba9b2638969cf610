/* SPDX-License-Identifier: MIT */
/* The table by which processes agree on lanes: what it gives, what it takes back, and that nothing in it is trusted. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>

#include "spmt/control/keys.h"
#include "src/base/mem.h"

static const uint32_t go_on = 0, stopped = 1;

static struct keys *table(void)
{
	struct keys *keys = mem_aligned(CACHE_LINE, keys_size());

	cr_assert(keys);
	memset(keys, 0, keys_size());
	return keys;
}

static int enter(
	struct keys *keys, uint64_t comm, uint64_t key, int areas, struct keys_place *place)
{
	return keys_enter(keys,
		&(struct keys_want){ .comm = comm,
			.key = key,
			.areas = areas,
			.most_ns = 20000000,
			.stop = &go_on },
		place);
}

static void break_it(const struct keys_place *place)
{
	struct cause cause;

	cause_set(&cause, -5, NULL, "broken");
	cr_assert(control_break(place->control, &cause));
}

Test(keys, a_key_is_one_row_and_one_area_of_its_comm)
{
	struct keys *keys = table();
	struct keys_place a, b, c, d;

	cr_assert_eq(enter(keys, 7, 1, 4, &a), 0);
	cr_assert_eq(enter(keys, 7, 1, 4, &b), 0);
	cr_assert_eq(enter(keys, 7, 2, 4, &c), 0);
	cr_assert_eq(enter(keys, 8, 1, 4, &d), 0);
	cr_assert(a.row == b.row && a.area == b.area && a.control == b.control);
	cr_assert(a.row != c.row && a.area != c.area && a.control != c.control);
	cr_assert(d.row != a.row && d.area == 0, "another comm's areas are its own");
	keys_leave(keys, a.row, &go_on);
	cr_assert_eq(enter(keys, 7, 3, 4, &d), 0);
	cr_assert_neq(d.area, b.area, "one process has it still");
	keys_leave(keys, b.row, &go_on);
	cr_assert_eq(enter(keys, 7, 4, 4, &d), 0);
	cr_assert_eq(d.area, b.area, "nobody has it");
	mem_free(keys);
}

Test(keys, what_broke_is_replaced_and_keeps_its_area)
{
	struct keys *keys = table();
	struct keys_place a, b;

	cr_assert_eq(enter(keys, 7, 1, 2, &a), 0);
	break_it(&a);
	cr_assert_eq(enter(keys, 7, 1, 2, &b), 0);
	cr_assert(a.row != b.row && a.area != b.area);
	keys_leave(keys, a.row, &go_on);
	cr_assert_eq(enter(keys, 7, 2, 2, &a), -ENOMEM);
	cr_assert_eq(enter(keys, 9, 2, 2, &a), 0, "another comm has room");
	keys_forget(keys, 7, &go_on);
	cr_assert_eq(enter(keys, 7, 2, 2, &a), 0);
	cr_assert_eq(enter(keys, 7, 3, 2, &b), 0);
	cr_assert_eq(enter(keys, 7, 2, 2, &b), 0, "the same");
	cr_assert_eq(a.row, b.row);
	mem_free(keys);
}

Test(keys, a_comm_that_breaks_breaks_its_lanes_whoever_has_them)
{
	struct keys *keys = table();
	struct keys_place a, b, other, ended, again;
	struct cause cause, why;

	cr_assert_eq(enter(keys, 7, 11, 4, &a), 0);
	cr_assert_eq(enter(keys, 7, 12, 4, &b), 0);
	cr_assert_eq(enter(keys, 7, 13, 4, &ended), 0);
	cr_assert_eq(enter(keys, 8, 11, 4, &other), 0);
	break_it(&b);
	keys_leave(keys, ended.row, &go_on);
	cause_set(&cause, -44, NULL, "gone");
	keys_break(keys, 7, &cause, &go_on);
	cr_assert_eq(control_state(a.control, &why), CONTROL_BROKEN);
	cr_assert_eq(why.code, -44);
	cr_assert_str_eq(why.sentence, "lane 11: gone");
	cr_assert_eq(control_state(b.control, &why), CONTROL_BROKEN);
	cr_assert_eq(why.code, -5, "the first cause counts");
	cr_assert_eq(control_state(other.control, &why), CONTROL_WHOLE);
	cr_assert_eq(control_state(ended.control, &why), CONTROL_WHOLE);
	cr_assert_eq(enter(keys, 7, 11, 4, &again), 0);
	cr_assert_neq(again.row, a.row);
	keys_break(keys, 7, &cause, &stopped); /* it waits for no claim then */
	mem_free(keys);
}

Test(keys, all_rows)
{
	struct keys *keys = table();
	struct keys_place a;

	for (uint64_t i = 0; i < KEYS_ROWS; i++)
		cr_assert_eq(enter(keys, i / 512, i, KEYS_ROWS, &a), 0);
	cr_assert_eq(enter(keys, 0, 3, KEYS_ROWS, &a), 0);
	cr_assert_eq(enter(keys, 99, 3, KEYS_ROWS, &a), -ENOMEM);
	mem_free(keys);
}

/* Whatever stands there, what is returned lies within the table and the comm's areas, or is an error in time. */
Test(keys, overwritten)
{
	struct keys *keys = table();
	struct keys_place a;
	unsigned char *bytes = (unsigned char *)keys;

	cr_assert_eq(enter(keys, 7, 1, 4, &a), 0);
	memset(keys, 0xff, keys_size());
	cr_assert_eq(enter(keys, 7, 1, 4, &a), -ETIMEDOUT);
	cr_assert_eq(
		keys_enter(keys, &(struct keys_want){ 7, 1, 4, -1, &stopped }, &a), -ECANCELED);
	keys_leave(keys, 0, &stopped);
	keys_forget(keys, 7, &stopped);
	srand(5);
	for (int n = 0; n < 300; n++) {
		int rc;

		memset(keys, 0, keys_size());
		cr_assert_eq(enter(keys, 7, 1, 4, &a), 0);
		for (int i = 0; i < 40; i++)
			bytes[CACHE_LINE + (size_t)rand() % (4 * CACHE_LINE)] =
				(unsigned char)rand();
		rc = enter(keys, 7, 1, 4, &a);
		cr_assert(rc == 0 || rc == -EIO || rc == -ENOMEM, "%d", rc);
		if (!rc)
			cr_assert(a.row >= 0 && a.row < KEYS_ROWS && a.area >= 0 && a.area < 4 &&
				(char *)a.control > (char *)keys &&
				(char *)(a.control + 1) <= (char *)keys + keys_size());
	}
	memset(keys, 0, keys_size());
	cr_assert_eq(enter(keys, 7, 1, 4, &a), 0);
	cr_assert_eq(enter(keys, 7, 2, 4, &a), 0);
	cr_assert_eq(enter(keys, 7, 2, 1, &a), -EIO, "an area that the comm has not");
	mem_free(keys);
}
