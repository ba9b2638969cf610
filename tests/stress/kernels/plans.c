/* SPDX-License-Identifier: MIT */
/* Plans on many threads: random ones one after the other on a world, as the simulator has them; for ThreadSanitizer, which sees whether
   what a plan orders is ordered. */
#include <stdlib.h>

#include "tests/lib/plan/plans.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { CHUNK = 24 };

struct round_of {
	const spmt_plan *plan;
	unsigned char *out;
};

/* The same again gives the same: what runs leave in scratch, counters and packets is no part of the next. */
static int run_rounds(spmt_comm *comm, void *arg)
{
	const struct round_of *r = arg;
	size_t bytes = plans_output(r->plan, SPMT_TYPE_I32, CHUNK), count = PLANS_CHUNKS * CHUNK;
	int32_t local[PLANS_CHUNKS * CHUNK], *in;
	unsigned char none[PLANS_CHUNKS * CHUNK * 4] = { 0 };
	spmt_plan_open *open;
	void *dst;

	REQUIRE_OK(spmt_malloc(comm, sizeof(local), (void **)&in));
	REQUIRE_OK(spmt_malloc(comm, bytes, &dst));
	plans_input(SPMT_TYPE_I32, spmt_rank(comm), count, local);
	REQUIRE_OK(spmt_copy_in(comm, in, local, sizeof(local)));
	REQUIRE_OK(spmt_plan_begin(comm, r->plan, sizeof(local), &open));
	/* behind each other in the stream, nobody waiting */
	for (int i = 0; i < 3; i++)
		REQUIRE_OK(spmt_plan_run(
			comm, open, dst, in, count, SPMT_TYPE_I32, SPMT_OP_MAX, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_plan_end(comm, open));
	REQUIRE_OK(spmt_plan_begin(comm, r->plan, sizeof(local), &open));
	REQUIRE_OK(spmt_copy_in(comm, dst, none, bytes));
	REQUIRE_OK(spmt_sync(comm));
	REQUIRE_OK(spmt_plan_run(comm, open, dst, in, count, SPMT_TYPE_I32, SPMT_OP_MAX, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_copy_out(comm, none, dst, bytes));
	REQUIRE(!memcmp(none, r->out + (size_t)spmt_rank(comm) * bytes, bytes));
	REQUIRE_OK(spmt_plan_end(comm, open));
	REQUIRE_OK(spmt_free(comm, dst));
	return spmt_free(comm, in);
}

static int random_plans(void)
{
	for (uint64_t seed = 0; seed < test_count(60, 2000); seed++) {
		struct spmt_plan_info info = { .size = sizeof(info) };
		spmt_plan *plan;
		struct round_of r;

		REQUIRE_OK(plans_random(1000 + seed, PLANS_RANKS, 2, PLANS_RIGHT, &plan));
		REQUIRE_OK(spmt_plan_about(plan, &info));
		r.plan = plan;
		r.out = calloc((size_t)info.attr.nranks, plans_output(plan, SPMT_TYPE_I32, CHUNK));
		REQUIRE(r.out);
		REQUIRE_OK(plans_simulate(plan, SPMT_TYPE_I32, SPMT_OP_MAX, CHUNK, 1, r.out));
		TRY(ranks_run(info.attr.nranks, NULL, run_rounds, &r));
		free(r.out);
		spmt_plan_destroy(plan);
	}
	return 0;
}

/* One plan, checked, simulated and written by several threads at once. */
struct shared {
	const spmt_plan *plan;
	unsigned char want[PLANS_RANKS * PLANS_CHUNKS * CHUNK * 4];
};

static int look_at(int index, void *arg)
{
	const struct shared *s = arg;
	unsigned char out[sizeof(s->want)];
	size_t need = 0;

	REQUIRE_OK(spmt_plan_check(s->plan));
	REQUIRE_OK(
		plans_simulate(s->plan, SPMT_TYPE_I32, SPMT_OP_SUM, CHUNK, (uint64_t)index, out));
	REQUIRE(!memcmp(out, s->want, plans_output(s->plan, SPMT_TYPE_I32, CHUNK)));
	REQUIRE_CODE(spmt_plan_write(s->plan, SPMT_PLAN_SVG, NULL, 0, &need), -ERANGE);
	return 0;
}

static int looked_at_at_once(void)
{
	for (uint64_t seed = 0; seed < test_count(10, 300); seed++) {
		struct shared s;
		spmt_plan *plan;

		REQUIRE_OK(plans_random(seed, PLANS_RANKS, 3, PLANS_RIGHT, &plan));
		s.plan = plan;
		REQUIRE_OK(plans_simulate(plan, SPMT_TYPE_I32, SPMT_OP_SUM, CHUNK, 9, s.want));
		TRY(ranks_threads(4, look_at, &s));
		spmt_plan_destroy(plan);
	}
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "random plans", random_plans },
		{ "one plan looked at by many", looked_at_at_once } };

	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
