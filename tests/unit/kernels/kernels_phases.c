/* SPDX-License-Identifier: MIT */
/* `ll12`, whose all_reduce has two phases, and a copy one: one rank's kernel, with what another one sends put there by hand, of each phase or of none. */
#include "src/kernels/coll/ll/ll12_quad.h"

#include <criterion/criterion.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"

TestSuite(kernels_phases, .timeout = 100);

enum { EPOCH = 1, KEY = 9, EACH = 6, COUNT = 2 * EACH, UNTOUCHED = 77 };

/* Of rank 0, whose sum of COUNT words it is: half of them, three units, are its part. */
static const uint64_t given[COUNT] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
static const uint64_t first[EACH] = { 10, 20, 30, 40, 50, 60 };
static const uint64_t second[EACH] = { 77ull << 32, 88, 99, 110, 121, 132ull << 32 };

static uint64_t slot_at(const struct views *w, int pe, int writer, uint64_t shift)
{
	struct spmt_view v = view_of(w, pe);

	return area_slots(spmtd_at_(v.own), 2) + (2 * EPOCH + (uint64_t)writer) * 2 * VIEWS_ROOM +
		shift;
}

/* By rank 1, to rank 0; what it has folded lies behind what it gives to be. */
static void send(const struct views *w, uint64_t shift, const uint64_t *words)
{
	struct quad_pieces p;
	struct quad_part x;

	memcpy(&x, words, sizeof(x));
	p = part_pieces_of(&x, quad_flag(EPOCH));
	part_poke(slot_at(w, 0, 1, shift), &p);
}

static void greet(const struct views *w, uint64_t key)
{
	struct spmt_view v = view_of(w, 0);
	uint64_t flag = (uint64_t)area_flag(EPOCH) << 32;
	struct spmtd_unit_ u = { flag | (uint32_t)key, flag | key >> 32 };

	slot_poke(spmtd_at_(area_inbox(&v, 1)->hello[EPOCH & 1]), u);
}

/* What rank 0 has sent to rank 1. */
static bool sent(const struct views *w, uint64_t shift, const uint64_t *words)
{
	struct quad_pieces p = part_peek(slot_at(w, 1, 0, shift));
	struct quad_part x = part_data(&p);

	return part_is_whole(&p, quad_flag(EPOCH)) && memcmp(&x, words, sizeof(x)) == 0;
}

static bool is_folded_sent(const struct views *w)
{
	static const uint64_t folded[EACH] = { 11, 22, 33, 44, 55, 66 };

	return sent(w, VIEWS_ROOM, folded);
}

/* Of all_gather each rank has EACH words. */
static void run(
	const struct views *w, enum kernel_collective_kind kind, const uint64_t *src, uint64_t *dst)
{
	struct kernel_collective_args args = { .view = view_of(w, 0),
		.dst = (uint64_t)(uintptr_t)dst,
		.src = (uint64_t)(uintptr_t)src,
		.bytes = (kind == COLL_ALL_REDUCE ? COUNT : EACH) * sizeof(*src),
		.key = KEY,
		.algorithm = COLL_ROW_ll12,
		.type = SPMT_TYPE_U64,
		.moves = coll_moves(kind, 0, 2, 0, 0),
		.room = VIEWS_ROOM,
		.places = coll_places(2),
		.words = AREA_BLOCKS };

	args.share = coll_share(args.bytes, 2, 1, 1);
	kernel_collective.host(&args);
}

static void has_failed(struct views *w, int code, uint64_t at)
{
	/* calls that differ end, and break nothing */
	for (int pe = 0; pe < 2 && code != SPMT_ERR_MISMATCH; pe++) {
		struct spmt_view v = view_of(w, pe);

		cr_expect_eq((int32_t)area_of(&v)->error, code);
	}
	cr_expect_eq(w->records[0].code, code);
	cr_expect_eq(w->records[0].peer, 1);
	cr_expect_eq(w->records[0].address, at);
}

static bool is_untouched(const uint64_t *words, int n)
{
	for (int i = 0; i < n; i++)
		if (words[i] != UNTOUCHED)
			return false;
	return true;
}

static void fill(uint64_t *words)
{
	for (int i = 0; i < COUNT; i++)
		words[i] = UNTOUCHED;
}

static void opened(struct views *w, uint64_t timeout)
{
	cr_assert_eq(views_open(w, 2, 4096, true), 0);
	w->timeout_ns = timeout;
}

Test(kernels_phases, what_comes_in_both_is_the_sum)
{
	for (int in_place = 0; in_place < 2; in_place++) {
		uint64_t src[COUNT], dst[COUNT], *sum = in_place ? src : dst;
		struct spmt_view v;
		struct views w;

		memcpy(src, given, sizeof(src));
		opened(&w, 0);
		v = view_of(&w, 0);
		greet(&w, KEY);
		send(&w, 0, first);
		send(&w, VIEWS_ROOM, second);
		run(&w, COLL_ALL_REDUCE, src, sum);
		cr_expect_eq(area_of(&v)->error, 0);
		cr_expect_eq(area_of(&v)->coll_epoch, EPOCH);
		for (uint64_t i = 0; i < EACH; i++)
			cr_expect_eq(sum[i], 11 * (i + 1));
		cr_expect_eq(memcmp(sum + EACH, second, sizeof(second)), 0);
		cr_expect(sent(&w, 0, given + EACH), "rank 1's part");
		cr_expect(is_folded_sent(&w));
		views_close(&w);
	}
}

/* Of a rank that dies between them: its own part is there, and has been sent on, but that is no sum. */
Test(kernels_phases, who_sends_nothing_on_is_missed)
{
	uint64_t dst[COUNT];
	struct views w;

	fill(dst);
	opened(&w, 2000000);
	greet(&w, KEY);
	send(&w, 0, first);
	run(&w, COLL_ALL_REDUCE, given, dst);
	has_failed(&w, SPMT_ERR_TIMEOUT, slot_at(&w, 0, 1, VIEWS_ROOM));
	cr_expect(is_folded_sent(&w));
	cr_expect(is_untouched(dst + EACH, EACH));
	views_close(&w);
}

Test(kernels_phases, who_gives_nothing_is_missed)
{
	uint64_t dst[COUNT];
	struct views w;

	fill(dst);
	opened(&w, 2000000);
	greet(&w, KEY);
	send(&w, VIEWS_ROOM, second);
	run(&w, COLL_ALL_REDUCE, given, dst);
	has_failed(&w, SPMT_ERR_TIMEOUT, slot_at(&w, 0, 1, 0));
	cr_expect_not(is_folded_sent(&w));
	cr_expect(is_untouched(dst, COUNT));
	views_close(&w);
}

/* A piece's flag is the epoch's alone: what has come is stored once it is known what it is. */
static void stores_nothing(enum kernel_collective_kind kind, uint64_t key, int code)
{
	uint64_t dst[COUNT];
	struct spmt_view v;
	struct views w;

	fill(dst);
	opened(&w, 2000000);
	v = view_of(&w, 0);
	if (key)
		greet(&w, key);
	send(&w, 0, first);
	send(&w, VIEWS_ROOM, second);
	run(&w, kind, given, dst);
	has_failed(&w, code, spmtd_at_(area_inbox(&v, 1)->hello[EPOCH & 1]));
	cr_expect(is_untouched(dst, COUNT));
	views_close(&w);
}

Test(kernels_phases, who_says_nothing_is_missed)
{
	stores_nothing(COLL_ALL_REDUCE, 0, SPMT_ERR_TIMEOUT);
}

Test(kernels_phases, who_calls_something_else_is_told)
{
	stores_nothing(COLL_ALL_REDUCE, KEY + 1, SPMT_ERR_MISMATCH);
}

/* Three of four pieces are not taken for the fourth's. */
Test(kernels_phases, a_piece_that_lacks_is_missed)
{
	for (uint32_t lacks = 0; lacks < QUAD; lacks++) {
		uint64_t dst[COUNT];
		struct views w;

		fill(dst);
		opened(&w, 2000000);
		greet(&w, KEY);
		send(&w, 0, first);
		send(&w, VIEWS_ROOM, second);
		spmtd_poke64_(slot_at(&w, 0, 1, 0) + 16 * lacks + 8, 0);
		run(&w, COLL_ALL_REDUCE, given, dst);
		has_failed(&w, SPMT_ERR_TIMEOUT, slot_at(&w, 0, 1, 0));
		cr_expect(is_untouched(dst, COUNT));
		views_close(&w);
	}
}

/* A copy hears what the others call behind their data, and stores it behind that. */
Test(kernels_phases, a_copy_of_what_comes)
{
	uint64_t dst[COUNT];
	struct views w;

	fill(dst);
	opened(&w, 0);
	greet(&w, KEY);
	send(&w, 0, first);
	run(&w, COLL_ALL_GATHER, given, dst);
	cr_expect_eq(memcmp(dst, given, EACH * sizeof(*dst)), 0);
	cr_expect_eq(memcmp(dst + EACH, first, sizeof(first)), 0);
	cr_expect(sent(&w, 0, given));
	views_close(&w);
}

Test(kernels_phases, who_says_nothing_of_a_copy_is_missed)
{
	stores_nothing(COLL_ALL_GATHER, 0, SPMT_ERR_TIMEOUT);
}

Test(kernels_phases, who_copies_something_else_is_told)
{
	stores_nothing(COLL_ALL_GATHER, KEY + 1, SPMT_ERR_MISMATCH);
}

Test(kernels_phases, who_gives_nothing_to_a_copy_is_missed)
{
	uint64_t dst[COUNT];
	struct views w;

	fill(dst);
	opened(&w, 2000000);
	greet(&w, KEY);
	run(&w, COLL_ALL_GATHER, given, dst);
	has_failed(&w, SPMT_ERR_TIMEOUT, slot_at(&w, 0, 1, 0));
	cr_expect(is_untouched(dst, COUNT));
	views_close(&w);
}
