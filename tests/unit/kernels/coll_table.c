/* SPDX-License-Identifier: MIT */
/* The table of collective algorithms: which is chosen for what. tests/unit/kernels.c runs them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "src/kernels/kernels.h"

static const uint64_t sizes[] = { 0, 1, 64, 65, 4096, 64u << 10, (64u << 10) + 1, COLL_LL_MOST,
	COLL_LL_MOST + 1, 1ull << 40 };

/* Three units of 16 bytes take four pieces. A slot has twice its room; of an all_reduce it has a rank's part twice. */
static bool fits_in_quads(const struct coll_case *c)
{
	uint64_t ranks = (uint64_t)c->ranks, units = (c->bytes + 15) / 16;

	if (!c->whole || (coll_kinds[c->kind].folds && !c->sums))
		return false;
	if (c->kind != COLL_ALL_REDUCE)
		return (units + 2) / 3 <= c->room / 32;
	return ((units + ranks - 1) / ranks + 2) / 3 <= c->room / 64;
}

static bool does(int row, const struct coll_case *c)
{
	if (row == COLL_ROW_copy && !c->engines)
		return false;
	if (coll_rows[row].way == COLL_BY_ENGINES && !c->meets)
		return false;
	if (row == COLL_ROW_push2 &&
		(!c->sums || !c->staged || c->ranks < 2 || c->ranks > COLL_BLOCKS_RANKS))
		return false;
	if (row == COLL_ROW_ll12 && !fits_in_quads(c))
		return false;
	return coll_rows[row].kinds >> c->kind & 1 &&
		(row == COLL_ROW_ll12 || coll_rows[row].way != COLL_BY_SLOTS ||
			c->bytes <= c->room);
}

static bool has_blocks(enum kernel_collective_kind kind)
{
	return coll_kinds[kind].src_blocks || coll_kinds[kind].dst_blocks;
}

/* Few ranks' all_reduce alone folds by blocks that meet. */
static bool prefers(int row, const struct coll_case *c)
{
	if (row == COLL_ROW_engine)
		return does(row, c) && c->apart && !c->on_cpu && c->bytes >= COLL_ENGINE_LEAST;
	if (row == COLL_ROW_push2 &&
		c->bytes * (c->kind == COLL_ALL_REDUCE ? 1 : (uint64_t)c->ranks) < COLL_PUSH2_LEAST)
		return false;
	if (row == COLL_ROW_ll12 &&
		(c->bytes * (c->kind == COLL_PERMUTE ? c->ranks > 1 : (uint64_t)c->ranks - 1) <=
				(c->kind == COLL_ALL_REDUCE ? COLL_LL12_TWICE : COLL_LL12_LEAST) ||
			c->ranks > COLL_BLOCKS_RANKS ||
			(c->bytes - 1) * (has_blocks(c->kind) ? (uint64_t)c->ranks : 1) >=
				COLL_LL12_MOST ||
			(c->kind == COLL_PERMUTE && c->bytes >= COLL_LL12_MOST / 2)))
		return false;
	if ((row == COLL_ROW_twoshot || row == COLL_ROW_give) && c->ranks > COLL_BLOCKS_RANKS)
		return false;
	if (row == COLL_ROW_twoshot && c->kind == COLL_REDUCE)
		return false;
	return does(row, c) && c->bytes <= (c->on_cpu ? coll_rows[row].cpu : coll_rows[row].gpu);
}

/* fn(case) for each kind, size, room and place. */
static void for_each_case(void (*fn)(struct coll_case c))
{
	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			for (int place = 0; place < 512; place++)
				fn((struct coll_case){ .kind = (enum kernel_collective_kind)kind,
					.bytes = sizes[i],
					.on_cpu = place & 1,
					.room = place & 2 ? 64u << 10 : 48,
					.engines = place & 4,
					.meets = place & 16,
					.apart = place & 16 && place & 32,
					.sums = place & 64,
					.whole = place & 128,
					.staged = place & 256,
					.ranks = place & 8 ? COLL_BLOCKS_RANKS
							   : COLL_BLOCKS_RANKS + 1,
					.wanted = -1 });
}

static void is_first_that_fits(struct coll_case c)
{
	int row = coll_choose(&c);

	cr_assert(row >= 0 && row < COLL_ROWS);
	cr_expect(does(row, &c), "kind %d, %llu bytes: %s", (int)c.kind,
		(unsigned long long)c.bytes, coll_rows[row].name);
	if (row == COLL_ROW_engine) {
		cr_expect(prefers(row, &c));
		return;
	}
	cr_expect_not(prefers(COLL_ROW_engine, &c));
	cr_expect_leq(c.bytes, c.on_cpu ? coll_rows[row].cpu : coll_rows[row].gpu);
	for (int before = 0; before < row; before++)
		cr_expect(!prefers(before, &c), "%s comes before %s", coll_rows[before].name,
			coll_rows[row].name);
}

Test(coll_table, every_call_has_a_row)
{
	for_each_case(is_first_that_fits);
}

static void is_wanted_where_it_fits(struct coll_case c)
{
	int otherwise = coll_choose(&c);

	for (int row = 0; row < COLL_ROWS; row++) {
		c.wanted = row;
		cr_expect_eq(coll_choose(&c), does(row, &c) ? row : otherwise);
	}
}

Test(coll_table, a_wish_is_granted_where_it_fits)
{
	for_each_case(is_wanted_where_it_fits);
}

/* So much and no more. */
static void fills_a_slot(struct coll_case c)
{
	cr_expect_eq(
		coll_choose(&c), COLL_ROW_ll12, "%d, %d ranks, %u", (int)c.kind, c.ranks, c.room);
	c.bytes += 16;
	cr_expect_neq(
		coll_choose(&c), COLL_ROW_ll12, "%d, %d ranks, %u", (int)c.kind, c.ranks, c.room);
	c.bytes -= 24;
	cr_expect_eq(coll_choose(&c), COLL_ROW_ll12);
	c.whole = false;
	cr_expect_neq(coll_choose(&c), COLL_ROW_ll12);
	c.whole = true;
	c.sums = false;
	cr_expect_eq(coll_choose(&c) == COLL_ROW_ll12, !coll_kinds[c.kind].folds);
}

Test(coll_table, three_quarters_of_a_slot_are_data)
{
	static const uint32_t rooms[] = { 64, 96, 128, 1024, 1536, 2048 };
	static const uint64_t quads[] = { 1, 1, 2, 16, 24, 32 };

	for (int ranks = 1; ranks <= 9; ranks++)
		for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
			struct coll_case c = { .kind = COLL_ALL_REDUCE,
				.bytes = 48 * quads[i] * (uint64_t)ranks,
				.room = rooms[i],
				.whole = true,
				.sums = true,
				.ranks = ranks,
				.wanted = COLL_ROW_ll12 };

			fills_a_slot(c);
			c.bytes = 48 * (rooms[i] / 32);
			c.kind = COLL_REDUCE_SCATTER;
			fills_a_slot(c);
			c.kind = COLL_ALL_GATHER;
			fills_a_slot(c);
		}
}

/* Up to where is measured: on GPUs loads from peers are faster above, on CPUs nearly always. */
Test(coll_table, small_ones_come_in_one_phase)
{
	struct coll_case c = { .room = COLL_LL_MOST, .ranks = 1, .wanted = -1 };

	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (int cpu = 0; cpu < 2; cpu++) {
			c.kind = (enum kernel_collective_kind)kind;
			c.on_cpu = cpu;
			c.bytes = cpu ? 64 : COLL_LL_MOST;
			cr_expect_eq(coll_choose(&c), COLL_ROW_ll);
			c.bytes++;
			cr_expect_eq(coll_way(coll_choose(&c)), COLL_AT_PEERS);
		}
}

/* On GPUs one phase is also worth what goes to all others together, so that two ranks send each other more so than many. */
Test(coll_table, few_ranks_come_in_one_phase_with_more)
{
	for (int ranks = 1; ranks <= 64; ranks++) {
		uint64_t others = ranks > 1 ? COLL_LL_TOGETHER / (unsigned)(ranks - 1) : 0;
		uint64_t most = others > COLL_LL_MOST ? others : COLL_LL_MOST;
		struct coll_case c = { .kind = COLL_ALL_GATHER,
			.bytes = most,
			.room = COLL_LL_TOGETHER,
			.ranks = ranks,
			.wanted = -1 };

		cr_expect_eq(coll_choose(&c), COLL_ROW_ll, "%d ranks", ranks);
		c.bytes++;
		cr_expect_eq(coll_choose(&c),
			ranks <= COLL_BLOCKS_RANKS ? COLL_ROW_give : COLL_ROW_direct);
		c.bytes--;
		c.on_cpu = true;
		cr_expect_eq(coll_choose(&c), COLL_ROW_direct);
	}
}

/* Between GPUs of their own, where all blocks of a rank are so many bytes; by its name of any size, and on a GPU that ranks share. */
Test(coll_table, large_ones_need_no_kernel)
{
	for (int kind = 0; kind < COLL_KINDS; kind++) {
		bool blocks = coll_kinds[kind].src_blocks || coll_kinds[kind].dst_blocks;
		bool moves = kind != COLL_EXCHANGE && !coll_kinds[kind].folds;
		struct coll_case c = { .kind = (enum kernel_collective_kind)kind,
			.bytes = COLL_ENGINE_LEAST / (blocks ? 4 : 1),
			.room = COLL_LL_MOST,
			.ranks = 4,
			.meets = true,
			.apart = true,
			.wanted = -1 };

		cr_expect_eq(coll_choose(&c) == COLL_ROW_engine, moves, "kind %d", kind);
		c.bytes--;
		cr_expect_neq(coll_choose(&c), COLL_ROW_engine);
		c.wanted = COLL_ROW_engine;
		c.apart = false;
		cr_expect_eq(coll_choose(&c) == COLL_ROW_engine, moves);
		c.wanted = -1;
		c.bytes++;
		cr_expect_neq(coll_choose(&c), COLL_ROW_engine);
		c.apart = c.on_cpu = true;
		cr_expect_neq(coll_choose(&c), COLL_ROW_engine);
		c.on_cpu = c.meets = false;
		cr_expect_neq(coll_choose(&c), COLL_ROW_engine);
	}
}

/* By default an all_reduce or reduce_scatter of few ranks on GPUs, up to so many bytes; its name takes it for any fold. */
Test(coll_table, blocks_meet_in_a_large_sum)
{
	for (int kind = COLL_REDUCE_SCATTER; kind <= COLL_REDUCE; kind++)
		for (int ranks = 1; ranks <= 9; ranks++)
			for (uint64_t bytes = COLL_LL_MOST; bytes; bytes <<= 8) {
				struct coll_case c = { .kind = (enum kernel_collective_kind)kind,
					.bytes = bytes + 1,
					.room = COLL_LL_MOST,
					.ranks = ranks,
					.wanted = -1 };
				bool few = ranks <= 8 && bytes < coll_rows[COLL_ROW_twoshot].gpu;

				cr_expect_eq(coll_choose(&c),
					kind != COLL_REDUCE && few ? COLL_ROW_twoshot
								   : COLL_ROW_reduce);
				c.on_cpu = true;
				cr_expect_eq(coll_choose(&c), COLL_ROW_reduce);
				c.wanted = COLL_ROW_twoshot;
				cr_expect_eq(coll_choose(&c), COLL_ROW_twoshot);
				c.factors = true;
				cr_expect_eq(coll_choose(&c), COLL_ROW_twoshot);
			}
}

/* Factors do not come with `ll`: up to what it prefers `pushed` has one meeting, too. */
Test(coll_table, small_sums_with_factors_are_pushed)
{
	for (int kind = COLL_REDUCE_SCATTER; kind <= COLL_REDUCE; kind++)
		for (int place = 0; place < 4; place++) {
			const struct coll_row *pushed = &coll_rows[COLL_ROW_pushed];
			struct coll_case c = { .kind = (enum kernel_collective_kind)kind,
				.on_cpu = place & 1,
				.room = COLL_LL_MOST,
				.ranks = place & 2 ? COLL_BLOCKS_RANKS : COLL_BLOCKS_RANKS + 1,
				.factors = true,
				.wanted = -1 };
			uint64_t most = c.on_cpu ? pushed->cpu : pushed->gpu;

			for (; c.bytes <= most; c.bytes += most / 4)
				cr_expect_eq(coll_choose(&c), COLL_ROW_pushed);
			c.bytes = most + 1;
			cr_expect_eq(coll_way(coll_choose(&c)), COLL_AT_PEERS);
			c.bytes = most;
			c.room = (uint32_t)most - 16;
			cr_expect_eq(coll_way(coll_choose(&c)), COLL_AT_PEERS);
		}
}

Test(coll_table, room_of_slots)
{
	cr_expect_eq(coll_slot_room(2, 8u << 20, false, false, -1), COLL_LL_TOGETHER);
	cr_expect_eq(
		coll_slot_room(4, 8u << 20, false, false, -1), COLL_LL_TOGETHER / 3 / 512 * 512);
	cr_expect_eq(coll_slot_room(9, 8u << 20, false, false, -1), COLL_LL_MOST);
	cr_expect_eq(coll_slot_room(64, 64u << 10, false, false, -1), 256);
	cr_expect_eq(coll_slot_room(100, 64u << 10, false, false, -1), 160);
	cr_expect_eq(coll_slot_room(4, 1u << 20, false, false, -1), 64u << 10);
	cr_expect_eq(coll_slot_room(8, 1u << 20, false, false, -1), 32u << 10);
	cr_expect_eq(coll_slot_room(7, 1u << 20, false, false, -1) % 16, 0);
	cr_expect_eq(coll_slot_room(8, 1u << 20, true, false, -1), 64);
	cr_expect_eq(coll_slot_room(8, 8u << 20, true, false, COLL_ROW_ll),
		coll_slot_room(8, 8u << 20, false, false, -1));
	cr_expect_eq(coll_slot_room(8, 8u << 20, true, false, COLL_ROW_direct), 64);
	cr_expect_eq(coll_slot_room(32768, 1u << 20, true, false, -1), 0);
}

Test(coll_table, large_permutes_are_given)
{
	struct coll_case c = { .kind = COLL_PERMUTE,
		.bytes = COLL_LL12_MOST / 2 - 1,
		.room = COLL_LL12_MOST,
		.whole = true,
		.ranks = 2,
		.wanted = -1 };

	cr_expect_eq(coll_choose(&c), COLL_ROW_ll12);
	c.bytes++;
	cr_expect_eq(coll_choose(&c), COLL_ROW_give);
	c.kind = COLL_ALL_TO_ALL;
	cr_expect_eq(coll_choose(&c), COLL_ROW_ll12);
}

/* Slots have room for what is preferred; on CPUs for whoever asks. */
Test(coll_table, slots_have_room_for_quads)
{
	for (int ranks = 2; ranks <= COLL_BLOCKS_RANKS; ranks++)
		for (int on_cpu = 0; on_cpu <= 1; on_cpu++) {
			int wanted = on_cpu ? COLL_ROW_ll12 : -1;
			uint32_t room = coll_slot_room(ranks, 24u << 20, on_cpu, true, wanted);
			struct coll_case c = { .kind = COLL_ALL_REDUCE,
				.on_cpu = on_cpu,
				.bytes = COLL_LL12_MOST,
				.room = room,
				.whole = true,
				.sums = true,
				.ranks = ranks,
				.wanted = wanted };

			cr_expect_eq(coll_choose(&c), COLL_ROW_ll12, "%d ranks", ranks);
			cr_expect_leq(room, (24u << 20) / (4 * (unsigned)ranks));
		}
	cr_expect_eq(coll_slot_room(8, 24u << 20, true, true, -1), 64);
}

/* A thread's way through the units of a block for each rank, as kernels go it. */
static void is_walked(uint64_t bytes, uint32_t blocks, uint32_t threads, uint32_t ranks)
{
	struct coll_share s = coll_share(bytes, (int)ranks, blocks, threads);
	uint64_t units = (bytes + 15) / 16;

	cr_expect_geq((uint64_t)s.units * blocks, units);
	cr_expect_eq(s.each * ranks + s.over, units);
	cr_expect_lt(s.over, ranks);
	for (uint32_t tid = 0; tid < threads && s.units; tid++) {
		uint32_t nth = 0, k = tid, i = tid;

		if (k >= s.units) {
			nth = (uint32_t)((uint64_t)k * s.scale >> 20);
			k -= nth * s.units;
		}
		for (; nth < ranks; i += threads) {
			cr_assert_eq(
				nth * s.units + k, i, "%u units, %u threads", s.units, threads);
			cr_assert_lt(k, s.units);
			nth += s.rows;
			k += s.rest;
			if (k >= s.units) {
				k -= s.units;
				nth++;
			}
		}
	}
}

Test(coll_table, shares)
{
	static const uint64_t bytes[] = { 0, 1, 16, 17, 240, 8176, 8192, 8208, COLL_LL_MOST };
	static const uint32_t threads[] = { 1, 32, 96, 512 };

	for (size_t b = 0; b < sizeof(bytes) / sizeof(*bytes); b++)
		for (size_t t = 0; t < sizeof(threads) / sizeof(*threads); t++)
			for (uint32_t blocks = 1; blocks <= 32; blocks += 31)
				for (uint32_t ranks = 1; ranks <= 9; ranks += 4)
					is_walked(bytes[b], blocks, threads[t], ranks);
}

Test(coll_table, names)
{
	char text[256], begin[64];

	for (int row = 0; row < COLL_ROWS; row++)
		cr_expect_eq(coll_named(coll_rows[row].name), row);
	cr_expect_eq(coll_named("push"), -1);
	cr_expect_eq(coll_named(""), -1);
	snprintf(begin, sizeof(begin), "%s, %s", coll_rows[0].name, coll_rows[1].name);
	coll_names(text, sizeof(text));
	cr_expect_eq(strncmp(text, begin, strlen(begin)), 0, "%s", text);
	coll_names(text, strlen(begin));
	begin[strlen(begin) - 1] = '\0';
	cr_expect_str_eq(text, begin);
}

/* Each gives where the other gets. */
Test(coll_table, moves_match)
{
	enum { N = 5 };
	static const int to[N] = { 2, -1, 0, 3, 4 };

	for (int kind = 0; kind < COLL_KINDS; kind++) {
		struct coll_moves m[N];
		int gives[N][N] = { { 0 } };

		for (int pe = 0; pe < N; pe++) {
			int root = 3;

			if (kind == COLL_PERMUTE) {
				root = -1;
				for (int i = 0; i < N; i++)
					root = to[i] == pe ? i : root;
			}
			m[pe] = coll_moves((enum kernel_collective_kind)kind, pe, N, root, to[pe]);
			for (int i = 0; i < m[pe].tos; i++)
				gives[pe][(m[pe].to + i) % N]++;
			for (int i = 0; i < m[pe].froms; i++)
				gives[(m[pe].from + i) % N][pe]--;
		}
		for (int i = 0; i < N * N; i++)
			cr_expect_eq(
				gives[i / N][i % N], 0, "kind %d: %d to %d", kind, i / N, i % N);
	}
}

/* One whole unit, or one word, of each thread, where all are aligned. */
Test(coll_table, brief_calls)
{
	struct kernel_collective_args args = {
		.algorithm = COLL_ROW_ll, .bytes = 160, .dst = 4096, .src = 8192
	};

	args.share = coll_share(args.bytes, 3, 1, 20);
	cr_expect_eq(coll_brief(&args, 3, 20), 16);
	cr_expect_eq(coll_brief(&args, 3, 19), 0, "ten units of two others are more than 19");
	cr_expect_eq(coll_brief(&args, 2, 10), 16);
	cr_expect_eq(coll_brief(&args, 1, 10), 16);
	args.src += 8;
	cr_expect_eq(coll_brief(&args, 2, 10), 0, "src is not aligned");
	for (uint64_t bytes = 0; bytes < 16; bytes++) {
		args.bytes = bytes;
		args.share = coll_share(bytes, 2, 1, 32);
		cr_expect_eq(coll_brief(&args, 2, 32), bytes == 4 || bytes == 8 ? bytes : 0);
	}
	args.bytes = 8;
	args.src += 4;
	cr_expect_eq(coll_brief(&args, 2, 32), 0, "src is not aligned to 8");
	args.algorithm = COLL_ROW_pushed;
	args.src = args.dst;
	cr_expect_eq(coll_brief(&args, 2, 32), 0);
}
