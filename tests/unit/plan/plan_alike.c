/* SPDX-License-Identifier: MIT */
/* Plans of packets whose blocks do the same: which are, and how their packets are. */
#include "two_ranks.h"

#include "spmt/plan/rows/packets.h"
#include "src/base/mem.h"

enum { CHUNK = 64 << 10 };

struct sides {
	uint32_t chunks; /* of each step */
	uint32_t from;	 /* the first of them, among packets */
	int blocks;
};

/* A rank gives its input to the other, and takes the other's. */
static void gives_and_takes(spmt_plan *plan, int rank, struct sides mine, struct sides theirs)
{
	for (int b = 0; b < mine.blocks; b++) {
		int slices = mine.blocks > 1 ? mine.blocks : 0;

		for (uint32_t at = 0; at < 2; at += mine.chunks)
			add_part_to(plan, rank, b, SPMT_PLAN_PUT_PACKETS,
				spmt_plan_input(rank, at, mine.chunks),
				spmt_plan_scratch(1 - rank, theirs.from + at, mine.chunks), b,
				slices);
		for (uint32_t at = 0; at < 2; at += mine.chunks)
			add_part_to(plan, rank, b, SPMT_PLAN_UNPACK_PACKETS,
				spmt_plan_scratch(rank, mine.from + at, mine.chunks),
				spmt_plan_output(rank, at, mine.chunks), b, slices);
	}
}

static void finds_for(
	const spmt_plan *plan, const struct plan_layout *layout, int rank, struct row_packets *p)
{
	void *table = plan_table(plan, layout, rank);

	cr_assert(table);
	cr_assert_eq(row_packets_find(plan, layout, table, rank, p), 0);
	mem_free(table);
}

/* Whether both ranks take it so, by the packets of either. */
static bool are_alike(struct sides a, struct sides b, struct row_packets *p)
{
	struct plan_layout layout;
	struct row_packets other;
	spmt_plan *plan = empty_plan();

	gives_and_takes(plan, 0, a, b);
	gives_and_takes(plan, 1, b, a);
	cr_assert_eq(spmt_plan_check(plan), 0, "%s", spmt_last_error());
	cr_assert_eq(plan_lay_out(plan, false, 6 * (uint64_t)CHUNK, &layout), 0);
	finds_for(plan, &layout, 0, p);
	finds_for(plan, &layout, 1, &other);
	cr_assert_eq(p->is, other.is);
	spmt_plan_destroy(plan);
	return p->is;
}

Test(plan_alike, on_all_ranks)
{
	const struct sides whole = { 2, 0, 2 }, cut = { 1, 0, 2 }, fewer = { 2, 0, 1 },
			   apart = { 2, 1, 2 }, behind = { 2, 2, 2 };
	struct row_packets p;

	cr_assert(are_alike(whole, whole, &p));
	cr_assert(are_alike(cut, cut, &p));
	cr_assert(are_alike(whole, behind, &p));
	cr_assert_not(are_alike(whole, cut, &p), "steps of other sizes");
	cr_assert_not(are_alike(cut, whole, &p), "steps of other sizes");
	cr_assert_not(are_alike(whole, fewer, &p), "in other parts");
	cr_assert_not(are_alike(whole, apart, &p), "at a place between two steps'");
}

Test(plan_alike, in_brief_narrow_and_wide)
{
	const struct sides whole = { 2, 0, 2 };
	struct plan_given g = { .chunk = 0 };
	struct row_packets p;
	struct plan_packets_way way;

	cr_assert(are_alike(whole, whole, &p));
	for (g.chunk = 8; g.chunk <= CHUNK; g.chunk += 8) {
		/* the larger one of two blocks' parts of two chunks, in lines */
		uint64_t lines = (2 * g.chunk + 127) / 128, most = (lines + 1) / 2 * 128;

		way = row_packets_way(&p, &g, 512, true, 4);
		cr_assert_eq(way.brief, most / 8 <= 512, "%zu", (size_t)g.chunk);
		cr_assert_eq(way.size, way.brief ? 8 : 12, "%zu", (size_t)g.chunk);
		cr_assert_eq(row_packets_way(&p, &g, 512, false, 4).size, 8);
		cr_assert_eq(row_packets_way(&p, &g, 512, true, 8).size, 8);
	}
	g.chunk = 3 * 128;
	cr_assert_eq(row_packets_way(&p, &g, 1, true, 4).size, 8, "a block has little");
	g.chunk = 4 * 128;
	cr_assert_eq(row_packets_way(&p, &g, 1, true, 4).size, 12);
	p.is = false;
	cr_assert_eq(row_packets_way(&p, &g, 512, true, 4).size, 0);
}

/* Each word is in one packet, and these have room where twice as many bytes have. */
Test(plan_alike, wide_packets_have_each_word_once)
{
	static unsigned char seen[2048];

	for (uint32_t words = 2; words <= 2048; words += 2) {
		uint32_t n = plan_packets_of(words, PLAN_PACKETS_WIDE);

		memset(seen, 0, words);
		for (uint32_t k = 0; k < n; k++) {
			uint32_t has = plan_packets_words(k, words);

			cr_assert(has >= 1 && has <= 3);
			for (uint32_t i = 0; i < has; i++) {
				uint32_t at = plan_packets_first(k) + 32 * i;

				cr_assert_lt(at, words);
				cr_assert_eq(seen[at]++, 0, "%u of %u", at, words);
			}
		}
		cr_assert_eq(plan_packets_words(n, words), 0);
		for (uint32_t i = 0; i < words; i++)
			cr_assert_eq(seen[i], 1, "%u of %u", i, words);
		cr_assert(words < 96 || 16 * n <= 8 * words);
	}
}
