/* SPDX-License-Identifier: MIT */
/* The checker: what is right passes, what is planted is found; and the simulator gives the same whatever the order. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/plan/plans.h"
#include "tests/lib/ranks.h"
#include "tools/spmt-plan/made.h"

static spmt_plan *random_plan(uint64_t seed, enum plans_fault fault)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(plans_random(seed, PLANS_RANKS, 3, fault, &plan), 0, "seed %llu: %s",
		(unsigned long long)seed, spmt_last_error());
	return plan;
}

Test(plan_check, nothing_is_found_in_what_is_right)
{
	for (uint64_t seed = 0; seed < test_count(1000, 20000); seed++) {
		spmt_plan *plan = random_plan(seed, PLANS_RIGHT);

		cr_assert_eq(spmt_plan_check(plan), 0, "seed %llu: %s", (unsigned long long)seed,
			spmt_last_error());
		spmt_plan_destroy(plan);
	}
}

/* The library's own, of 1 to 24 ranks; and they do what they say. */
Test(plan_check, nothing_is_found_in_the_librarys_own)
{
	static const char *const names[] = { "allreduce", "allreduce-packets", "allgather",
		"reducescatter", "alltoall" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		for (int n = 1; n <= (int)test_count(24, 64); n++) {
			struct spmt_plan_info info = { .size = sizeof(info) };
			enum { PART = 4 };
			spmt_plan *plan = NULL;
			size_t count = (size_t)n * PART, most = count * (size_t)n;
			uint32_t *memory = calloc(2 * (size_t)n, most * sizeof(*memory));
			void *ins[64], *outs[64];

			cr_assert_not_null(memory);
			cr_assert_eq(made_plan(names[i], n, &plan), 0);
			cr_assert_eq(spmt_plan_check(plan), 0, "%s", spmt_last_error());
			cr_assert_eq(spmt_plan_about(plan, &info), 0);
			for (int r = 0; r < n; r++) {
				uint32_t *own = memory + 2 * (size_t)r * most;

				ins[r] = own;
				outs[r] = info.attr.in_place ? own : own + most;
				for (size_t k = 0; k < count; k++)
					own[k] = made_input(r, k);
			}
			cr_assert_eq(spmt_plan_simulate(plan,
					     &(struct spmt_plan_trial){
						     .size = sizeof(struct spmt_plan_trial),
						     .out = outs,
						     .in = ins,
						     .count = count,
						     .type = SPMT_TYPE_U32,
						     .op = SPMT_OP_SUM,
						     .seed = (uint64_t)n }),
				0, "%s", spmt_last_error());
			for (int r = 0; r < n; r++)
				cr_assert_eq(made_right(&info.attr, r, count, outs[r]), 1,
					"%s of %d ranks, rank %d", names[i], n, r);
			spmt_plan_destroy(plan);
			free(memory);
		}
}

Test(plan_check, what_is_planted_is_found)
{
	for (int fault = 1; fault < PLANS_FAULTS; fault++)
		for (uint64_t seed = 0; seed < test_count(1000, 5000); seed++) {
			spmt_plan *plan = random_plan(seed, (enum plans_fault)fault);

			cr_assert_eq(spmt_plan_check(plan), -EINVAL, "fault %d seed %llu", fault,
				(unsigned long long)seed);
			cr_assert(strstr(spmt_last_error(), plans_says((enum plans_fault)fault)),
				"fault %d seed %llu: %s", fault, (unsigned long long)seed,
				spmt_last_error());
			spmt_plan_destroy(plan);
		}
}

Test(plan_check, the_order_of_blocks_changes_nothing)
{
	for (uint64_t seed = 0; seed < test_count(1000, 5000); seed++) {
		spmt_plan *plan = random_plan(seed, PLANS_RIGHT);
		size_t bytes = plans_output(plan, SPMT_TYPE_I32, 4) * PLANS_RANKS;
		unsigned char *a = calloc(2, bytes), *b = a + bytes;

		cr_assert_not_null(a);
		for (uint64_t order = 1; order < 4; order++) {
			cr_assert_eq(plans_simulate(plan, SPMT_TYPE_I32, SPMT_OP_SUM, 4, order,
					     order == 1 ? a : b),
				0, "%s", spmt_last_error());
			cr_assert(order == 1 || !memcmp(a, b, bytes), "seed %llu",
				(unsigned long long)seed);
		}
		free(a);
		spmt_plan_destroy(plan);
	}
}

/* In place there is one buffer, and the smaller lies in it at the rank's place: elsewhere it would be left as it is. */
Test(plan_check, a_trial_in_place_has_one_buffer)
{
	static const struct {
		const char *collective;
		uint32_t in, out;
		size_t in_at, out_at; /* of rank 1, elements */
	} kinds[] = { { "allreduce", 2, 2, 0, 0 }, { "allgather", 1, 2, 3, 0 },
		{ "reducescatter", 2, 1, 0, 3 } };
	int32_t memory[2][7] = { { 0 } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct spmt_plan_attr attr = { .size = sizeof(attr),
			.name = "p",
			.collective = kinds[i].collective,
			.nranks = 2,
			.in_place = 1,
			.input_chunks = kinds[i].in,
			.output_chunks = kinds[i].out };
		void *ins[] = { memory[0], memory[1] + kinds[i].in_at },
		     *outs[] = { memory[0], memory[1] + kinds[i].out_at };
		struct spmt_plan_trial trial = { .size = sizeof(trial),
			.out = outs,
			.in = ins,
			.count = kinds[i].in * (size_t)3,
			.type = SPMT_TYPE_I32,
			.op = SPMT_OP_SUM };
		spmt_plan *plan = NULL;

		cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
		cr_expect_eq(spmt_plan_simulate(plan, &trial), 0, "%s", spmt_last_error());
		ins[1] = memory[1] + kinds[i].in_at + 1;
		cr_expect_eq(spmt_plan_simulate(plan, &trial), -EINVAL, "%s", kinds[i].collective);
		cr_expect(strstr(spmt_last_error(), "plan p is in place: in[1] lies "), "%s",
			spmt_last_error());
		trial.count = 0;
		cr_expect_eq(spmt_plan_simulate(plan, &trial), 0, "%s", spmt_last_error());
		spmt_plan_destroy(plan);
	}
}

/* Two ranks, one block each, six chunks. */
static spmt_plan *empty_plan(void)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "p",
					 .collective = "c",
					 .nranks = 2,
					 .input_chunks = 6,
					 .output_chunks = 6,
					 .scratch_chunks = 6 },
			&plan),
		0);
	return plan;
}

static void finds(spmt_plan *plan, const char *words)
{
	int rc = spmt_plan_check(plan);

	cr_assert_eq(rc, words ? -EINVAL : 0, "%d: %s", rc, spmt_last_error());
	cr_assert(!words || strstr(spmt_last_error(), words), "%s", spmt_last_error());
	spmt_plan_destroy(plan);
}

Test(plan_check, a_signal_orders_and_a_relaxed_one_does_not)
{
	for (int relaxed = 0; relaxed < 2; relaxed++) {
		spmt_plan *plan = empty_plan();
		struct spmt_plan_op op =
			spmt_plan_op_(relaxed ? SPMT_PLAN_SIGNAL_RELAXED : SPMT_PLAN_SIGNAL);

		cr_assert_eq(spmt_plan_put(plan, 0, 0, spmt_plan_input(0, 0, 2),
				     spmt_plan_scratch(1, 0, 2)),
			0);
		op.peer = 1;
		cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0);
		cr_assert_eq(spmt_plan_wait(plan, 1, 0, 0, 0), 0);
		cr_assert_eq(spmt_plan_copy(plan, 1, 0, spmt_plan_scratch(1, 1, 1),
				     spmt_plan_output(1, 0, 1)),
			0);
		finds(plan, relaxed ? "race: " : NULL);
	}
}

/* From rank 0 to rank 1. */
static void puts_packets(spmt_plan *plan)
{
	cr_assert_eq(spmt_plan_put_packets(
			     plan, 0, 0, spmt_plan_input(0, 0, 1), spmt_plan_scratch(1, 0, 1)),
		0);
}

static void unpacks(spmt_plan *plan)
{
	cr_assert_eq(spmt_plan_unpack_packets(
			     plan, 1, 0, spmt_plan_scratch(1, 0, 1), spmt_plan_output(1, 0, 1)),
		0);
}

Test(plan_check, packets_are_written_once_and_order_their_readers)
{
	for (int twice = 0; twice < 2; twice++) {
		spmt_plan *plan = empty_plan();

		for (int i = 0; i <= twice; i++)
			puts_packets(plan);
		unpacks(plan);
		finds(plan, twice ? "written twice" : NULL);
	}
	spmt_plan *plan = empty_plan();

	unpacks(plan);
	finds(plan, "waits for what nobody puts there");
}

/* What a block has stored before it puts packets may come later than they do; what it has read is over. */
Test(plan_check, packets_are_no_fence)
{
	enum { READ_BEHIND, WRITTEN_BEHIND, SIGNALLED, ONLY_READ, CASES };
	const struct spmt_plan_chunk told = spmt_plan_output(1, 5, 1),
				     own = spmt_plan_output(1, 4, 1);

	for (int i = 0; i < CASES; i++) {
		spmt_plan *plan = empty_plan();

		cr_assert_eq(i == ONLY_READ
				? spmt_plan_fetch(plan, 0, 0, told, spmt_plan_output(0, 5, 1))
				: spmt_plan_put(plan, 0, 0, spmt_plan_input(0, 5, 1), told),
			0);
		puts_packets(plan);
		unpacks(plan);
		if (i == SIGNALLED) {
			cr_assert_eq(spmt_plan_signal(plan, 0, 0, 1, 0), 0);
			cr_assert_eq(spmt_plan_wait(plan, 1, 0, 0, 0), 0);
		}
		cr_assert_eq(i == READ_BEHIND || i == SIGNALLED
				? spmt_plan_copy(plan, 1, 0, told, own)
				: spmt_plan_copy(plan, 1, 0, own, told),
			0);
		finds(plan, i == READ_BEHIND || i == WRITTEN_BEHIND ? "race: " : NULL);
	}
}

/* A rank folds a chunk to itself and, as packets, to another one, which then wants to read it there. */
Test(plan_check, what_is_folded_comes_behind_its_packets)
{
	for (int signal = 0; signal < 2; signal++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);
		spmt_plan *plan = empty_plan();

		cr_assert_eq(spmt_plan_put_packets(plan, 1, 0, spmt_plan_input(1, 0, 1),
				     spmt_plan_scratch(0, 0, 1)),
			0);
		op.nsrc = op.ndst = 2;
		op.src[0] = spmt_plan_input(0, 0, 1);
		op.src[1] = spmt_plan_scratch(0, 0, 1);
		op.dst[0] = spmt_plan_output(0, 0, 1);
		op.dst[1] = spmt_plan_scratch(1, 1, 1);
		cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0, "%s", spmt_last_error());
		cr_assert_eq(spmt_plan_unpack_packets(plan, 1, 0, spmt_plan_scratch(1, 1, 1),
				     spmt_plan_output(1, 0, 1)),
			0);
		if (signal) {
			cr_assert_eq(spmt_plan_signal(plan, 0, 0, 1, 0), 0);
			cr_assert_eq(spmt_plan_wait(plan, 1, 0, 0, 0), 0);
		}
		cr_assert_eq(spmt_plan_fetch(plan, 1, 0, spmt_plan_output(0, 0, 1),
				     spmt_plan_output(1, 1, 1)),
			0);
		finds(plan, signal ? NULL : "race: ");
	}
}

Test(plan_check, barriers_and_semaphores)
{
	spmt_plan *plan = empty_plan();

	cr_assert_eq(spmt_plan_barrier(plan, 0, 0, 3, 2), 0);
	finds(plan, "barrier 3 is of 2 blocks, and 1 have it");
	plan = empty_plan();
	cr_assert_eq(spmt_plan_barrier(plan, 0, 0, 0, 2), 0);
	cr_assert_eq(spmt_plan_barrier(plan, 0, 0, 0, 2), 0);
	cr_assert_eq(spmt_plan_barrier(plan, 0, 1, 0, 2), 0);
	finds(plan, "waits for what nobody comes for");
	plan = empty_plan();
	cr_assert_eq(spmt_plan_acquire(plan, 0, 0, 1, 0), 0);
	finds(plan, "waits for what nobody releases");
	plan = empty_plan();
	cr_assert_eq(spmt_plan_acquire(plan, 0, 0, 1, 1), 0);
	finds(plan, "0 releases and 1 acquires");
	plan = empty_plan();
	cr_assert_eq(spmt_plan_acquire(plan, 0, 0, 1, 1), 0);
	cr_assert_eq(spmt_plan_release(plan, 0, 1, 1), 0);
	finds(plan, NULL);
	plan = empty_plan();
	for (int i = 1; i >= 0; i--) {
		cr_assert_eq(spmt_plan_release(plan, 0, 1, 1), 0);
		cr_assert_eq(spmt_plan_acquire(plan, 0, 0, 1, i), 0);
	}
	finds(plan, "semaphore 1 begins with 1 in one place, with 0 in another");
	plan = empty_plan();
	for (int block = 0; block < 2; block++)
		cr_assert_eq(spmt_plan_signal(plan, 0, block, 1, 0), 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(spmt_plan_wait(plan, 1, 0, 0, 0), 0);
	finds(plan, "rank 0 block 0 does that, too");
}

/* Each waits for the next: however many they are, the first and the last are told. */
Test(plan_check, long_cycles)
{
	static const struct {
		int n;
		const char *first, *others;
	} cycles[] = {
		{ 2, "rank 1 block 0 op 0 (wait rank 0 by channel 0), which waits for rank 0 ",
			" (wait rank 1 by channel 0), which waits for the first" },
		{ 5, "rank 1 ", "), which waits for rank 0 block 0 op 0 (wait rank 1 " },
		{ 7, "rank 1 ",
			"rank 5 block 0 op 0 (wait rank 6 by channel 0), which waits for 1 other, which waits for rank 0 " },
		{ SPMT_PLAN_RANKS, "rank 1 ",
			", which waits for 250 others, which wait for rank 0 " }
	};

	for (size_t i = 0; i < sizeof(cycles) / sizeof(cycles[0]); i++) {
		spmt_plan *plan = NULL;
		const char *says;
		int n = cycles[i].n;

		cr_assert_eq(
			spmt_plan_create(
				&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					.name = "ring",
					.collective = "c",
					.nranks = n,
					.input_chunks = 1 },
				&plan),
			0);
		for (int r = 0; r < n; r++) {
			cr_assert_eq(spmt_plan_wait(plan, r, 0, (r + 1) % n, 0), 0);
			cr_assert_eq(spmt_plan_signal(plan, r, 0, (r + n - 1) % n, 0), 0);
		}
		cr_assert_eq(spmt_plan_check(plan), -EINVAL);
		says = spmt_last_error();
		cr_expect(strstr(says, "plan ring: deadlock: rank "), "%s", says);
		cr_expect(strstr(says, "), which waits for the first"), "%s", says);
		cr_expect(strstr(says, cycles[i].first), "%s", says);
		cr_expect(strstr(says, cycles[i].others), "%s", says);
		spmt_plan_destroy(plan);
	}
}

/* Parts of one range are apart; of a range cut otherwise they need not be. */
Test(plan_check, parts)
{
	for (int how = 0; how < 3; how++) {
		spmt_plan *plan = empty_plan();

		for (int block = 0; block < 2; block++) {
			struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_COPY);

			op.nsrc = op.ndst = 1;
			op.src[0] = spmt_plan_input(0, 0, 2);
			op.dst[0] = spmt_plan_output(0, how == 2 ? (uint32_t)block : 0, 2);
			op.slices = 2;
			op.slice = how ? block : 0;
			cr_assert_eq(spmt_plan_add(plan, 0, block, &op), 0);
		}
		finds(plan, how == 1 ? NULL : "race: ");
	}
}

static void add_part_to(spmt_plan *plan, int rank, int block, enum spmt_plan_kind kind,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst, int slice, int slices)
{
	struct spmt_plan_op op = spmt_plan_op_(kind);

	op.nsrc = op.ndst = 1;
	op.src[0] = src;
	op.dst[0] = dst;
	op.slice = slice;
	op.slices = slices;
	cr_assert_eq(spmt_plan_add(plan, rank, block, &op), 0, "%s", spmt_last_error());
}

static void add_part(spmt_plan *plan, int rank, enum spmt_plan_kind kind,
	struct spmt_plan_chunk src, struct spmt_plan_chunk dst, int slice, int slices)
{
	add_part_to(plan, rank, 0, kind, src, dst, slice, slices);
}

/* Where a part ends depends on the chunks' size: a part of two chunks may have some of both. How the first and second packets are put, and
   how they are read: by chunks, in halves, as a whole. Between the first and the second one the reader is asked. */
Test(plan_check, packets_in_parts)
{
	enum { CHUNKS, HALVES, WHOLE };
	static const struct {
		int put, read;
		const char *words;
	} cases[] = { { CHUNKS, CHUNKS, NULL }, { HALVES, HALVES, NULL },
		{ CHUNKS, HALVES, "deadlock" }, { HALVES, CHUNKS, "deadlock" },
		{ CHUNKS, WHOLE, "deadlock" }, { HALVES, WHOLE, "deadlock" } };

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		spmt_plan *plan = empty_plan();

		for (uint32_t i = 0; i < 2; i++) {
			bool halves = cases[c].put == HALVES;
			uint32_t at = halves ? 0 : i, n = halves ? 2 : 1;

			add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, at, n),
				spmt_plan_scratch(1, at, n), halves ? (int)i : 0, halves ? 2 : 0);
			if (!i)
				cr_assert_eq(spmt_plan_wait(plan, 0, 0, 1, 0), 0);
			halves = cases[c].read == HALVES;
			at = halves || cases[c].read == WHOLE ? 0 : i;
			n = halves || cases[c].read == WHOLE ? 2 : 1;
			add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(1, at, n),
				spmt_plan_output(1, at, n), halves ? (int)i : 0, halves ? 2 : 0);
			if (!i)
				cr_assert_eq(spmt_plan_signal(plan, 1, 0, 0, 0), 0);
		}
		finds(plan, cases[c].words);
	}
}

/* Of small chunks all parts but the first are empty, and who reads one waits for nobody. */
Test(plan_check, an_empty_part_orders_nothing)
{
	for (int slice = 0; slice < 2; slice++) {
		spmt_plan *plan = empty_plan();

		cr_assert_eq(spmt_plan_fetch(plan, 0, 0, spmt_plan_output(1, 5, 1),
				     spmt_plan_output(0, 5, 1)),
			0);
		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, 1),
			spmt_plan_scratch(1, 0, 1), slice, 2);
		add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(1, 0, 1),
			spmt_plan_output(1, 0, 1), slice, 2);
		cr_assert_eq(spmt_plan_copy(plan, 1, 0, spmt_plan_output(1, 4, 1),
				     spmt_plan_output(1, 5, 1)),
			0);
		finds(plan, slice ? "race: " : NULL);
	}
}

/* Where one part has bytes, so have all that begin no later in as many chunks, and these order it. */
Test(plan_check, a_part_that_has_bytes_orders_others)
{
	static const struct {
		int slice; /* of 4, of the packets */
		uint32_t chunks;
		const char *words;
	} cases[] = { { 0, 1, NULL }, { 1, 1, NULL }, { 2, 1, "race: " }, { 2, 2, NULL },
		{ 3, 2, "race: " } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		spmt_plan *plan = empty_plan();
		uint32_t n = cases[i].chunks;

		add_part(plan, 0, SPMT_PLAN_GET, spmt_plan_output(1, 5, 1),
			spmt_plan_output(0, 5, 1), 1, 2);
		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, n),
			spmt_plan_scratch(1, 0, n), cases[i].slice, 4);
		add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(1, 0, n),
			spmt_plan_output(1, 0, n), cases[i].slice, 4);
		add_part(plan, 1, SPMT_PLAN_COPY, spmt_plan_output(1, 4, 1),
			spmt_plan_output(1, 5, 1), 1, 2);
		finds(plan, cases[i].words);
	}
}

/* A chunk goes as packets to another rank and back over itself, cut into so many parts each time (0: whole), a block each. Every byte comes
   back behind its going, however the parts lie. */
Test(plan_check, packets_that_come_back)
{
	static const int cuts[][3] = { { 2, 2, 2 }, { 0, 2, 2 }, { 2, 0, 0 }, { 2, 2, 0 },
		{ 4, 20, 20 }, { 4, 4, 20 }, { 3, 2, 2 } };

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		spmt_plan *plan = empty_plan();
		const struct spmt_plan_chunk own = spmt_plan_input(0, 0, 1),
					     there = spmt_plan_scratch(1, 0, 1),
					     here = spmt_plan_scratch(0, 1, 1);

		for (int k = 0; k < (cuts[i][0] ? cuts[i][0] : 1); k++)
			add_part_to(plan, 0, k, SPMT_PLAN_PUT_PACKETS, own, there, k, cuts[i][0]);
		for (int k = 0; k < (cuts[i][1] ? cuts[i][1] : 1); k++)
			add_part_to(
				plan, 1, k, SPMT_PLAN_SEND_PACKETS_ON, there, here, k, cuts[i][1]);
		for (int k = 0; k < (cuts[i][2] ? cuts[i][2] : 1); k++)
			add_part_to(
				plan, 0, 8 + k, SPMT_PLAN_UNPACK_PACKETS, here, own, k, cuts[i][2]);
		finds(plan, NULL);
	}
}

/* Longer than the room for them: the words of an operation end there, wherever that is. */
Test(plan_check, long_words)
{
	static const uint32_t at[] = { 1, 10, 100, 1000, 10000, 100000, 1000000 };
	struct spmt_plan_attr a = { .size = sizeof(a),
		.name = "p",
		.collective = "c",
		.nranks = SPMT_PLAN_RANKS,
		.input_chunks = 1u << 20,
		.output_chunks = 1u << 20,
		.scratch_chunks = 1u << 20 };
	const uint32_t n = 12345;

	for (int i = 0; i < 7 * 7; i++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);
		spmt_plan *plan = NULL;

		cr_assert_eq(spmt_plan_create(&a, &plan), 0);
		op.nsrc = 3;
		op.ndst = 4;
		op.src[0] = spmt_plan_input(0, at[6], n);
		op.src[1] = op.src[2] = spmt_plan_scratch(0, at[i % 7], n);
		op.dst[0] = spmt_plan_output(0, at[i / 7], n);
		for (int k = 1; k < 4; k++)
			op.dst[k] = spmt_plan_scratch(200 + k, at[i / 7], n);
		cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0, "%s", spmt_last_error());
		finds(plan, "waits for what nobody puts there");
	}
}

/* A barrier is looked at once, not at each of its operations. */
Test(plan_check, many_barriers, .timeout = 60)
{
	spmt_plan *plan = empty_plan();

	for (int i = 0; i < 300000; i++)
		cr_assert_eq(spmt_plan_barrier(plan, 0, 0, i % SPMT_PLAN_INDICES, 1), 0);
	finds(plan, NULL);
}
