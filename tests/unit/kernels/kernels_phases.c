/* SPDX-License-Identifier: MIT */
/* `ll2`, the all_reduce of two phases: one rank's kernel, with what another one sends put there by hand, of each phase or of none. */
#include "src/kernels/fold/slot_unit.h"

#include <criterion/criterion.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"

TestSuite(kernels_phases, .timeout = 100);

enum { EPOCH = 1, KEY = 9, EACH = 2, COUNT = 2 * EACH, UNTOUCHED = 77 };

/* Of rank 0, whose sum of COUNT words it is: half of them, a unit, are its part. */
static const uint64_t given[COUNT] = { 1, 2, 3, 4 };
static const union unit first = { .words = { 10, 20 } }, second = { .words = { 33, 44 } };

static uint64_t slot_at(const struct views *w, int pe, int writer, uint64_t shift)
{
	struct spmt_view v = view_of(w, pe);

	return area_slots(spmtd_at_(v.own), 2) + (2 * EPOCH + (uint64_t)writer) * 2 * VIEWS_ROOM +
		shift;
}

static uint64_t behind(void)
{
	return 2 * (uint64_t)slot_half(VIEWS_ROOM);
}

/* By rank 1, to rank 0. */
static void send(const struct views *w, uint64_t shift, union unit x)
{
	struct slot_flags flags = slot_flags(EPOCH, KEY);
	uint64_t slot = slot_at(w, 0, 1, shift);
	struct unit_place to = unit_place(slot, 0, unit_group(VIEWS_ROOM));

	piece_send(to.even, 0, x.words[0], flags.lo);
	piece_send(to.odd, 0, x.words[1], flags.hi);
}

/* What rank 0 has sent to rank 1. */
static bool sent(const struct views *w, uint64_t shift, uint64_t a, uint64_t b)
{
	struct slot_flags flags = slot_flags(EPOCH, KEY);
	struct slot_unit s =
		slot_unit_peek(unit_place(slot_at(w, 1, 0, shift), 0, unit_group(VIEWS_ROOM)));
	union unit u = slot_unit_data(&s);

	return slot_unit_is_whole(&s, &flags) && u.words[0] == a && u.words[1] == b;
}

static void run(const struct views *w, const uint64_t *src, uint64_t *dst)
{
	struct kernel_collective_args args = { .view = view_of(w, 0),
		.dst = (uint64_t)(uintptr_t)dst,
		.src = (uint64_t)(uintptr_t)src,
		.bytes = COUNT * sizeof(*src),
		.key = KEY,
		.algorithm = COLL_ROW_ll2,
		.type = SPMT_TYPE_U64,
		.moves = coll_moves(COLL_ALL_REDUCE, 0, 2, 0, 0),
		.room = VIEWS_ROOM,
		.places = coll_places(2),
		.words = AREA_BLOCKS };

	coll_by_parts(&args, 2);
	args.share = coll_share(args.bytes, 2, 1, 1);
	kernel_collective.host(&args);
}

static void has_missed(struct views *w, uint64_t at)
{
	for (int pe = 0; pe < 2; pe++) {
		struct spmt_view v = view_of(w, pe);

		cr_expect_eq((int32_t)area_of(&v)->error, SPMT_ERR_TIMEOUT);
	}
	cr_expect_eq(w->records[0].code, SPMT_ERR_TIMEOUT);
	cr_expect_eq(w->records[0].peer, 1);
	cr_expect_eq(w->records[0].address, at);
}

Test(kernels_phases, what_comes_in_both_is_the_sum)
{
	for (int in_place = 0; in_place < 2; in_place++) {
		uint64_t src[COUNT], dst[COUNT], *sum = in_place ? src : dst;
		struct spmt_view v;
		struct views w;

		memcpy(src, given, sizeof(src));
		cr_assert_eq(views_open(&w, 2, 4096, true), 0);
		v = view_of(&w, 0);
		send(&w, 0, first);
		send(&w, behind(), second);
		run(&w, src, sum);
		cr_expect_eq(area_of(&v)->error, 0);
		cr_expect_eq(area_of(&v)->coll_epoch, EPOCH);
		for (uint64_t i = 0; i < COUNT; i++)
			cr_expect_eq(sum[i], 11 * (i + 1));
		cr_expect(sent(&w, 0, 3, 4), "rank 1's part");
		cr_expect(sent(&w, behind(), 11, 22), "what is folded");
		views_close(&w);
	}
}

/* Of a rank that dies between them: its own part is there, and has been sent on, but that is no sum. */
Test(kernels_phases, who_sends_nothing_on_is_missed)
{
	uint64_t dst[COUNT] = { UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED };
	struct views w;

	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	w.timeout_ns = 2000000;
	send(&w, 0, first);
	run(&w, given, dst);
	has_missed(&w, slot_at(&w, 0, 1, behind()));
	cr_expect(sent(&w, behind(), 11, 22));
	cr_expect(dst[2] == UNTOUCHED && dst[3] == UNTOUCHED);
	views_close(&w);
}

/* Nothing is taken before all are known to have called the same. */
Test(kernels_phases, who_gives_nothing_is_missed)
{
	uint64_t dst[COUNT] = { UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED };
	struct views w;

	cr_assert_eq(views_open(&w, 2, 4096, true), 0);
	w.timeout_ns = 2000000;
	send(&w, behind(), second);
	run(&w, given, dst);
	has_missed(&w, slot_at(&w, 0, 1, 0));
	cr_expect(!sent(&w, behind(), 11, 22));
	for (int i = 0; i < COUNT; i++)
		cr_expect_eq(dst[i], UNTOUCHED);
	views_close(&w);
}
