/* SPDX-License-Identifier: MIT */
/* What a plan cannot have is refused, with a sentence. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "spmt_plan.h"

static spmt_plan *plan;

static void make_plan(void)
{
	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "p",
					 .collective = "c",
					 .nranks = 2,
					 .input_chunks = 4,
					 .output_chunks = 3,
					 .scratch_chunks = 2 },
			&plan),
		0);
}

static void drop_plan(void)
{
	spmt_plan_destroy(plan);
}

#define REFUSED(call, words)                                                          \
	do {                                                                          \
		cr_assert_eq((call), -EINVAL, #call);                                 \
		cr_assert(strstr(spmt_last_error(), words), "%s", spmt_last_error()); \
	} while (0)
#define IN spmt_plan_input
#define OUT spmt_plan_output
#define SCRATCH spmt_plan_scratch

TestSuite(plan_add, .init = make_plan, .fini = drop_plan);

Test(plan_add, chunks)
{
	REFUSED(spmt_plan_put(plan, 0, 0, IN(0, 0, 1), OUT(0, 0, 1)), "has to be another rank's");
	REFUSED(spmt_plan_put(plan, 0, 0, IN(1, 0, 1), OUT(1, 0, 1)), "has to be this rank's");
	REFUSED(spmt_plan_fetch(plan, 0, 0, IN(0, 0, 1), OUT(0, 0, 1)), "has to be another rank's");
	REFUSED(spmt_plan_copy(plan, 0, 0, IN(0, 0, 1), OUT(1, 0, 1)), "has to be this rank's");
	REFUSED(spmt_plan_put(plan, 0, 0, IN(0, 0, 2), OUT(1, 0, 1)),
		"dst[0] is 1 chunks, src[0] is 2");
	REFUSED(spmt_plan_put(plan, 0, 0, IN(0, 4, 1), OUT(1, 0, 1)), "of input, which has 4");
	REFUSED(spmt_plan_put(plan, 0, 0, IN(0, 0, 1), OUT(1, 3, 1)), "of output, which has 3");
	REFUSED(spmt_plan_put(plan, 0, 0, IN(0, UINT32_MAX, 2), OUT(1, 0, 2)), "of input");
	REFUSED(spmt_plan_put(plan, 0, 0, IN(0, 0, 0), OUT(1, 0, 0)), "of input");
	REFUSED(spmt_plan_put(plan, 0, 0, IN(0, 0, 1), OUT(2, 0, 1)), "not in 0 .. 1");
	REFUSED(spmt_plan_copy(plan, 0, 0, OUT(0, 0, 2), OUT(0, 1, 2)), "overlap");
	REFUSED(spmt_plan_put_packets(plan, 0, 0, IN(0, 0, 1), OUT(1, 0, 1)),
		"packets, which lie in scratch");
	REFUSED(spmt_plan_unpack_packets(plan, 0, 0, IN(0, 0, 1), OUT(0, 0, 1)),
		"packets, which lie in scratch");
	REFUSED(spmt_plan_unpack_packets(plan, 0, 0, SCRATCH(1, 0, 1), OUT(0, 0, 1)),
		"has to be this rank's");
	cr_assert_eq(spmt_plan_put(plan, 0, 0, IN(0, 0, 3), OUT(1, 0, 3)), 0);
}

Test(plan_add, places)
{
	REFUSED(spmt_plan_signal(plan, 2, 0, 1, 0), "rank 2 is not in 0 .. 1");
	REFUSED(spmt_plan_signal(plan, 0, SPMT_PLAN_BLOCKS, 1, 0), "block 128");
	REFUSED(spmt_plan_signal(plan, 0, -1, 1, 0), "block -1");
	REFUSED(spmt_plan_signal(plan, 0, 0, 0, 0), "peer 0");
	REFUSED(spmt_plan_wait(plan, 0, 0, 2, 0), "peer 2");
	REFUSED(spmt_plan_wait(plan, 0, 0, 1, SPMT_PLAN_INDICES), "index 128");
	REFUSED(spmt_plan_release(plan, 0, 0, SPMT_PLAN_SEMAPHORES), "index 256");
	REFUSED(spmt_plan_barrier(plan, 0, 0, 0, 0), "blocks 0");
	REFUSED(spmt_plan_acquire(plan, 0, 0, 0, -1), "initial -1");
	REFUSED(spmt_plan_signal(NULL, 0, 0, 1, 0), "plan is NULL");
}

Test(plan_add, terms)
{
	struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE);
	const struct spmt_plan_chunk terms[SPMT_PLAN_TERMS + 1] = { IN(0, 0, 1), IN(1, 0, 1),
		SCRATCH(1, 0, 1) };

	cr_assert_eq(spmt_plan_reduce(plan, 0, 0, OUT(0, 0, 1), terms, 3), 0);
	cr_assert_eq(spmt_plan_reduce(plan, 0, 0, IN(0, 0, 1), terms, 2), 0);
	REFUSED(spmt_plan_reduce(plan, 1, 0, OUT(1, 0, 1), terms, 3), "src[0] is of rank 0");
	REFUSED(spmt_plan_reduce(plan, 0, 0, OUT(0, 0, 1), terms, 17), "nsrc is 17");
	REFUSED(spmt_plan_reduce_packets(plan, 0, 0, OUT(0, 0, 1), terms, 2),
		"packets, which lie in scratch");
	op.kind = (enum spmt_plan_kind)99;
	REFUSED(spmt_plan_add(plan, 0, 0, &op), "kind 99");
	op.kind = SPMT_PLAN_SIGNAL;
	op.peer = 1;
	op.slices = 2;
	REFUSED(spmt_plan_add(plan, 0, 0, &op), "it has no parts");
	op.size = 8;
	REFUSED(spmt_plan_add(plan, 0, 0, &op), "size");
	op.size = SIZE_MAX / 2;
	REFUSED(spmt_plan_add(plan, 0, 0, &op), "its size is not set");
}

Test(plan_add, attributes)
{
	struct spmt_plan_attr a = { .size = sizeof(a),
		.name = "n",
		.collective = "allgather",
		.nranks = 2,
		.in_place = 1,
		.input_chunks = 2,
		.output_chunks = 2 };
	spmt_plan *none = NULL;

	REFUSED(spmt_plan_create(&a, &none), "in place cannot have 2 chunks");
	a.output_chunks = 4;
	a.nranks = 0;
	REFUSED(spmt_plan_create(&a, &none), "nranks 0");
	a.nranks = 2;
	a.name = "";
	REFUSED(spmt_plan_create(&a, &none), "name and collective");
	REFUSED(spmt_plan_create(NULL, &none), "attr is NULL");
	cr_assert_null(none);
	spmt_plan_destroy(NULL);
}
