/* SPDX-License-Identifier: MIT */
/* The checker: what is right passes, what is planted is found; and the simulator gives the same whatever the order. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/plan/plans.h"
#include "tests/lib/ranks.h"
#include "tools/spmt-plan/made.h"
#include "two_ranks.h"

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
	static const char *const names[] = { "allreduce", "allreduce-packets", "allreduce-twoshot",
		"allreduce-push", "allgather", "reducescatter", "alltoall" };

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

/* Of two ranks with six elements each way: where the two inputs begin, and the two outputs, in elements. */
static int trial_of(spmt_plan *plan, int32_t *memory, const size_t at[4])
{
	void *ins[] = { memory + at[0], memory + at[1] },
	     *outs[] = { memory + at[2], memory + at[3] };

	return spmt_plan_simulate(plan,
		&(struct spmt_plan_trial){ .size = sizeof(struct spmt_plan_trial),
			.out = outs,
			.in = ins,
			.count = 6,
			.type = SPMT_TYPE_I32,
			.op = SPMT_OP_SUM });
}

Test(plan_check, a_trial_of_a_type_or_op_that_is_none)
{
	spmt_plan *plan = empty_plan();
	struct spmt_plan_trial trial = { .size = sizeof(trial), .type = (enum spmt_type)77 };

	cr_expect_eq(spmt_plan_simulate(plan, &trial), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "type unknown (77)"), "%s", spmt_last_error());
	trial.type = SPMT_TYPE_I32;
	trial.op = (enum spmt_op)(SPMT_OP_MADE + 5);
	cr_expect_eq(spmt_plan_simulate(plan, &trial), -EINVAL);
	cr_expect(
		strstr(spmt_last_error(),
			"op 0x40000005 is one of spmt_op_premul_create: a plan folds with no factors"),
		"%s", spmt_last_error());
	spmt_plan_destroy(plan);
}

Test(plan_check, a_trial_has_each_buffer_apart)
{
	static const struct {
		size_t at[4];
		const char *says; /* NULL: it is right */
	} trials[] = { { { 0, 6, 12, 18 }, NULL },
		{ { 0, 6, 5, 18 }, "in[0] and out[0] of plan p overlap: " },
		{ { 0, 6, 0, 18 }, "in[0] and out[0] of plan p overlap: " },
		{ { 12, 6, 17, 23 }, "in[0] and out[0] of plan p overlap: " },
		{ { 0, 6, 12, 12 }, "out[0] and out[1] of plan p overlap: " },
		{ { 0, 0, 12, 18 }, "in[0] and in[1] of plan p overlap: " },
		{ { 0, 6, 12, 1 }, "in[0] and out[1] of plan p overlap: " } };
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "p",
		.collective = "allreduce",
		.nranks = 2,
		.input_chunks = 2,
		.output_chunks = 2 };
	int32_t memory[32] = { 0 };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
		cr_expect_eq(trial_of(plan, memory, trials[i].at), trials[i].says ? -EINVAL : 0,
			"%zu", i);
		cr_expect(!trials[i].says || strstr(spmt_last_error(), trials[i].says), "%zu: %s",
			i, spmt_last_error());
	}
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
		{ 2, "rank 0 block 0 op 0 (wait rank 1 by channel 0), which waits for rank 1 ",
			" (wait rank 0 by channel 0), which waits for the first" },
		{ 5, "rank 0 ", "), which waits for rank 4 block 0 op 0 (wait rank 0 " },
		{ 7, "rank 0 ",
			"rank 4 block 0 op 0 (wait rank 5 by channel 0), which waits for 1 other, which waits for rank 6 " },
		{ SPMT_PLAN_RANKS, "rank 0 ",
			", which waits for 250 others, which wait for rank 255 " }
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
