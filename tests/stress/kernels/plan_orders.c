/* SPDX-License-Identifier: MIT */
/*
 * The kernel that runs plans as rows, in blocks of several threads as on GPUs, over a model of what their memory promises (order_model.h): of
 * any two accesses to a byte, one of them a store, it is known which comes first, however fast the threads are. Plans are made at random,
 * the library's own, or of files; in place and not; several calls follow each other, to which a rank may come late.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This program's own kernels, beside the library's. */
#define kernel_collective order_collective
#define kernel_collective_v order_collective_v
#define kernel_stage order_stage
#define kernel_plan order_plan
#define kernel_plan_row order_plan_row
#define COLL_ONE_UNIT
#define PLAN_IN_BLOCKS 1
#define PLAN_KEPT 96u /* which some lists exceed */
#define plan_kept (order_self.shared)
#include "tests/lib/device/order_machine.h"

#include "spmt/plan/lower.h"
#include "spmt/plan/rows/row.h"
#include "spmt/plan/rows/row_fit.h"
#include "src/base/mem.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/plan/plans.h"
#include "tests/lib/plan/row_plans.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tools/spmt-plan/made.h"

#include "src/kernels/coll/coll.c"
#include "src/kernels/coll/copy.c"
#include "src/kernels/coll/direct.c"
#include "src/kernels/coll/give.c"
#include "src/kernels/coll/ll/ll.c"
#include "src/kernels/coll/ll/ll12.c"
#include "src/kernels/coll/meet.c"
#include "src/kernels/coll/push2.c"
#include "src/kernels/coll/pushed.c"
#include "src/kernels/coll/reduce.c"
#include "src/kernels/coll/swap.c"
#include "src/kernels/coll/twoshot.c"
#include "src/kernels/coll/varied.c"
#include "src/kernels/plan.c"
#include "src/kernels/plan_packets.c"
#include "src/kernels/plan_row.c"

enum {
	RANKS = 4,
	CALLS = 5,
	MOST = 512, /* bytes of a chunk */
	CHUNKS = 4  /* of the plans that are made here */
};

/* ---- a plan with its memory ------------------------------------------------------------------------------------------------------ */

/* A call's buffers: where `in` and `out` are, and what they hold. */
struct call {
	size_t chunk;
	bool whole; /* packets are wide, if there are enough */
	bool in_place[RANKS];
	unsigned char *wanted[RANKS]; /* what is to lie at out; NULL: not known */
};

static struct scene {
	const spmt_plan *plan;
	struct spmt_plan_attr attr;
	struct plan_layout layout;
	bool either, defined; /* defined: the outputs of later calls are, too */
	struct row_sets sets;
	uint64_t buffers[2]; /* offsets in the heaps, where the plan's memory begins */
	struct views views;
	struct row_packets packets[RANKS];
	struct call calls[CALLS];
	int wrong; /* 1 + the call whose result was */
} scene;

static uint64_t number(uint64_t x)
{
	x = (x + 1) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return x >> 33;
}

static unsigned char given(int call, int rank, size_t i)
{
	return (unsigned char)number((uint64_t)call * 1000003 + (uint64_t)rank * 7919 + i);
}

static size_t in_bytes(const struct call *c)
{
	return scene.attr.input_chunks * c->chunk;
}

static size_t out_bytes(const struct call *c)
{
	return scene.attr.output_chunks * c->chunk;
}

/* Where a call has them, in the memory of a rank: one buffer, or two. */
static uint64_t in_of(const struct call *c, int rank)
{
	uint64_t heap = spmtd_at_(views_heap(&scene.views, rank));

	if (!c->in_place[rank])
		return heap + scene.buffers[0];
	return heap + scene.buffers[1] +
		(strcmp(scene.attr.collective, "allgather") ? 0 : (uint64_t)rank * in_bytes(c));
}

static uint64_t out_of(const struct call *c, int rank)
{
	uint64_t heap = spmtd_at_(views_heap(&scene.views, rank)) + scene.buffers[1];

	if (!c->in_place[rank] || strcmp(scene.attr.collective, "reducescatter") != 0)
		return heap;
	return heap + (uint64_t)rank * out_bytes(c);
}

/* As spmt/plan/rows has it. */
static void give(const struct call *c, int rank, struct kernel_plan_row_args *args)
{
	uint64_t heap = spmtd_at_(views_heap(&scene.views, rank));
	uint64_t src = in_of(c, rank), dst = out_of(c, rank);
	bool scatters = !strcmp(scene.attr.collective, "reducescatter");

	args->from = args->to = src;
	args->bytes = in_bytes(c);
	if (scene.attr.in_place && !c->in_place[rank]) {
		args->to = dst +
			(strcmp(scene.attr.collective, "allgather") ? 0
								    : (uint64_t)rank * in_bytes(c));
		if (scatters)
			args->to = heap + scene.sets.end;
	}
	if (!scene.attr.in_place && !scene.either && c->in_place[rank])
		args->to = heap + scene.sets.end;
	if (!scene.attr.in_place)
		src = args->to;
	else if (scatters)
		src = dst = args->to;
	else
		src = dst;
	args->plan = (struct plan_given){ .at = heap,
		.dst = dst,
		.src = src,
		.steps = scene.layout.steps,
		.places = scene.layout.places,
		.words = scene.layout.words,
		.scratch = scene.layout.scratch,
		.packets = scene.layout.packets,
		.other_packets = scene.sets.other_packets,
		.other_scratch = scene.sets.other_scratch,
		.chunk = c->chunk,
		.type = SPMT_TYPE_U8,
		.op = SPMT_OP_SUM,
		.blocks = scene.plan->ranks[rank].nblocks,
		.row = 1 };
	args->apart = scene.layout.apart;
	args->closed = scene.layout.closed;
}

/* Of packets whose places depend on their size all ranks have the same; none copies its input first then, as row.c has that done before. */
static bool may_be_wide(const struct call *c)
{
	struct kernel_plan_row_args args = { .from = 0 };

	for (int r = 0; r < scene.attr.nranks && args.from == args.to; r++)
		give(c, r, &args);
	return args.from == args.to;
}

static void call_kernel(const struct call *c, int rank, uint64_t key)
{
	struct kernel_plan_packets_args all = {
		.row = { .same = { .view = view_of(&scene.views, rank),
				 .room = VIEWS_ROOM,
				 .places = coll_places(scene.attr.nranks),
				 .words = AREA_BLOCKS } }
	};
	struct kernel_plan_row_args *args = &all.row;
	const struct row_packets *p = &scene.packets[rank];
	struct plan_packets_way way;

	give(c, rank, args);
	args->same.dst = args->plan.dst;
	args->same.src = args->plan.src;
	args->same.key = key;
	args->same.type = args->plan.type;
	args->same.op = args->plan.op;
	args->same.view.timeout_ns = 0;
	way = row_packets_way(p, &args->plan, spmtd_threads_(), c->whole, 1);
	if (!row_packets_fit(way, args)) {
		kernel_plan_row.host(args);
		return;
	}
	row_packets_fill(p, &args->plan, way, scene.views.peers, spmtd_threads_(), &all.packets);
	run_plan_packets(&all, true, way);
}

/* What the rank's stream does before a call, and behind it. */
static void fill(int nth, int rank)
{
	const struct call *c = &scene.calls[nth];

	for (size_t i = 0; i < out_bytes(c); i++) {
		unsigned char x = 0;

		order_store(out_of(c, rank) + i, &x, 1, ORDER_WEAK);
	}
	for (size_t i = 0; i < in_bytes(c); i++) {
		unsigned char x = given(nth, rank, i);

		order_store(in_of(c, rank) + i, &x, 1, ORDER_WEAK);
	}
}

static void compare(int nth, int rank)
{
	const struct call *c = &scene.calls[nth];

	for (size_t i = 0; c->wanted[rank] && i < out_bytes(c); i++) {
		unsigned char x;

		order_load(out_of(c, rank) + i, &x, 1, ORDER_WEAK);
		if (x != c->wanted[rank][i] && !scene.wrong)
			scene.wrong = nth + 1;
	}
}

static void thread(void *arg)
{
	int rank = (int)order_self.rank;
	bool first = !order_self.tid && !order_self.block;

	(void)arg;
	for (int i = 0; i < CALLS; i++) {
		if (first)
			fill(i, rank);
		order_kernel_ends();
		call_kernel(&scene.calls[i], rank, (uint64_t)i);
		order_kernel_ends();
		if (first)
			compare(i, rank);
	}
}

/* ---- what is wanted -------------------------------------------------------------------------------------------------------------- */

static int want(int nth)
{
	struct call *c = &scene.calls[nth];
	size_t in = in_bytes(c), out = out_bytes(c), n = (size_t)scene.attr.nranks;
	bool one = scene.attr.in_place;
	unsigned char *ins[RANKS], *outs[RANKS];

	for (size_t r = 0; r < n; r++) {
		unsigned char *at = calloc(1, in + out + 1);

		REQUIRE(at);
		outs[r] =
			at + (one && !strcmp(scene.attr.collective, "reducescatter") ? r * out : 0);
		ins[r] = one ? at + (strcmp(scene.attr.collective, "allgather") ? 0 : r * in)
			     : at + out;
		for (size_t i = 0; i < in; i++)
			ins[r][i] = given(nth, (int)r, i);
		c->wanted[r] = at;
	}
	REQUIRE_OK(spmt_plan_simulate(scene.plan,
		&(struct spmt_plan_trial){ .size = sizeof(struct spmt_plan_trial),
			.out = (void *const *)outs,
			.in = (void *const *)ins,
			.count = in ? in : out,
			.type = SPMT_TYPE_U8,
			.op = SPMT_OP_SUM,
			.seed = (uint64_t)nth + 1 }));
	for (size_t r = 0; r < n; r++)
		memmove(c->wanted[r], outs[r], out);
	return 0;
}

/* ---- one plan ------------------------------------------------------------------------------------------------------------------- */

static int open_scene(uint64_t seed)
{
	static const size_t sizes[] = { 8, 16, 24, 136, 264, MOST };
	const struct spmt_plan_attr *a = &scene.attr;
	uint64_t end = 0;

	REQUIRE_OK(plan_lay_out(
		scene.plan, scene.either, plan_parts(a) * (size_t)MOST, &scene.layout));
	scene.sets = row_sets(&scene.layout, scene.layout.leads);
	scene.buffers[0] = align_up(scene.sets.end + a->input_chunks * (size_t)MOST, 128);
	scene.buffers[1] = align_up(scene.buffers[0] + a->input_chunks * (size_t)MOST + 16, 128);
	scene.buffers[0] += number(seed + 3) % 17;
	scene.buffers[1] += number(seed + 4) % 17;
	end = scene.buffers[1] + MAX_OF(a->input_chunks, a->output_chunks) * (size_t)MOST;
	REQUIRE_EQ(views_open(&scene.views, a->nranks, end, true), 0);
	for (int r = 0; r < a->nranks; r++) {
		void *table = plan_table(scene.plan, &scene.layout, r);

		REQUIRE(table);
		memcpy(views_heap(&scene.views, r), table, scene.layout.words);
		REQUIRE_OK(
			row_packets_find(scene.plan, &scene.layout, table, r, &scene.packets[r]));
		mem_free(table);
	}
	for (int i = 0; i < CALLS; i++) {
		struct call *c = &scene.calls[i];

		*c = (struct call){
			.chunk = sizes[number(seed * 8 + (uint64_t)i) % ARRAY_SIZE(sizes)]
		};
		for (int r = 0; r < a->nranks; r++)
			c->in_place[r] = a->input_chunks && a->output_chunks && scene.defined &&
				number(seed * 64 + (uint64_t)(i * RANKS + r)) % 2;
		c->whole = may_be_wide(c) && (number(seed * 32 + (uint64_t)i) % 2);
		if (!i || scene.defined)
			TRY(want(i));
	}
	return 0;
}

static void close_scene(void)
{
	for (int i = 0; i < CALLS; i++)
		for (int r = 0; r < RANKS; r++)
			free(scene.calls[i].wanted[r]);
	views_close(&scene.views);
	memset(&scene, 0, sizeof(scene));
}

static enum kernel_collective_kind kind_of(const spmt_plan *plan)
{
	const char *name = plan->attr.collective;

	return !strcmp(name, "allgather")	 ? COLL_ALL_GATHER
		: !strcmp(name, "alltoall")	 ? COLL_ALL_TO_ALL
		: !strcmp(name, "reducescatter") ? COLL_REDUCE_SCATTER
						 : COLL_ALL_REDUCE;
}

/* In blocks of 1 to 4 threads. defined: it is a collective. The plan is destroyed. */
static int runs(spmt_plan *plan, bool defined, uint64_t seed, const char *name)
{
	struct order_grid grid = { .seed = seed, .threads = 1 + (uint32_t)(number(seed) % 4) };
	struct plan_found none = { 0 };
	const char *wrong;
	int result;

	REQUIRE_OK(spmt_plan_check(plan));
	scene.plan = plan;
	scene.defined = defined, scene.either = false;
	if (defined) {
		REQUIRE_OK(plan_row_either(plan, kind_of(plan), NULL, &none, &scene.either));
		plan->attr.in_place &= !scene.either;
	}
	scene.attr = plan->attr;
	TRY(open_scene(seed));
	grid.ranks = scene.attr.nranks;
	grid.slow = number(seed + 1) % 2 ? (int)(number(seed + 2) % (uint64_t)grid.ranks) : -1;
	for (int r = 0; r < grid.ranks; r++)
		grid.blocks[r] = (uint32_t)MAX_OF(plan->ranks[r].nblocks, 1);
	order_open(scene.views.memory, scene.views.stride * (size_t)grid.ranks);
	order_run(&grid, thread, NULL);
	wrong = order_wrong();
	result = scene.wrong;
	order_close();
	close_scene();
	spmt_plan_destroy(plan);
	if (wrong)
		return ranks_fail("%s, seed %llu: %s", name, (unsigned long long)seed, wrong);
	if (result)
		return ranks_fail("%s, seed %llu: a wrong result of call %d", name,
			(unsigned long long)seed, result - 1);
	return 0;
}

/* ---- plans ---------------------------------------------------------------------------------------------------------------------- */

static int at_random(void)
{
	for (uint64_t seed = 0; seed < test_count(100, 2000); seed++) {
		spmt_plan *plan = NULL;

		REQUIRE_OK(plans_random(seed, RANKS, 2, PLANS_RIGHT, &plan));
		TRY(runs(plan, false, seed, "at random"));
	}
	return 0;
}

static int all_reduces_at_random(void)
{
	for (uint64_t seed = 0; seed < test_count(100, 2000); seed++) {
		spmt_plan *plan = NULL;

		REQUIRE_OK(row_plans_random(seed, 2 + (int)(seed % 3), seed % 2, &plan));
		TRY(runs(plan, true, seed, "all_reduce at random"));
	}
	return 0;
}

static int packets_alone(void)
{
	for (uint64_t seed = 0; seed < test_count(200, 4000); seed++) {
		spmt_plan *plan = NULL;

		REQUIRE_OK(row_plans_packets(seed, 2 + (int)(seed % 3), &plan));
		TRY(runs(plan, true, seed, "packets alone"));
	}
	return 0;
}

/* Of 2 to 4 ranks of 1 to 3 blocks. */
static int the_librarys_own(void)
{
	static const char *const names[] = { "allreduce", "allreduce-packets", "allreduce-twoshot",
		"allreduce-push", "allgather", "reducescatter", "alltoall" };
	enum { NAMES = sizeof(names) / sizeof(names[0]), SHAPES = 3 * NAMES };

	for (uint64_t seed = 0; seed < test_count(3, 30) * SHAPES; seed++) {
		const char *name = names[seed % NAMES];
		spmt_plan *plan = NULL;

		REQUIRE_OK(made_plan_of(
			name, 2 + (int)(seed / NAMES % 3), 1 + (int)(seed / SHAPES % 3), &plan));
		TRY(runs(plan, true, seed, name));
	}
	return 0;
}

static int file_of(const char *name, spmt_plan **plan)
{
	const char *source = getenv("SPMT_SOURCE");
	enum kernel_collective_kind kind;
	char file[1024];

	snprintf(
		file, sizeof(file), "%s/tests/fixtures/plans/%s.json", source ? source : ".", name);
	REQUIRE_OK(plan_row_load(file, plan, &kind));
	return 0;
}

/* As the language of execution plans writes them. */
static int of_files(void)
{
	static const char *const names[] = { "allgather-packet-groups", "allgather-port",
		"allreduce-packet-groups", "allreduce-packets", "allreduce-signals",
		"allreduce-switch" };

	for (uint64_t seed = 0; seed < test_count(3, 30) * ARRAY_SIZE(names); seed++) {
		const char *name = names[seed % ARRAY_SIZE(names)];
		spmt_plan *plan = NULL;

		TRY(file_of(name, &plan));
		TRY(runs(plan, true, seed, name));
	}
	return 0;
}

static int create(const char *name, int nranks, uint32_t scratch, spmt_plan **plan)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = name,
		.collective = name,
		.nranks = nranks,
		.input_chunks = CHUNKS,
		.output_chunks = CHUNKS,
		.scratch_chunks = scratch };

	return spmt_plan_create(&attr, plan);
}

/* ---- what is easily overlooked --------------------------------------------------------------------------------------------------- */

/* An all_reduce that is right in place and not: it keeps a part of its input, and then stores the result. */
static int keeps_and_stores(spmt_plan *plan, int r)
{
	const struct spmt_plan_chunk terms[] = { spmt_plan_input(r, 0, CHUNKS),
		spmt_plan_scratch(r, 0, CHUNKS) };
	int p = 1 - r;

	REQUIRE_OK(spmt_plan_put(plan, r, 0, terms[0], spmt_plan_scratch(p, 0, CHUNKS)));
	REQUIRE_OK(spmt_plan_signal(plan, r, 0, p, 0));
	REQUIRE_OK(spmt_plan_wait(plan, r, 0, p, 0));
	REQUIRE_OK(spmt_plan_copy(
		plan, r, 0, spmt_plan_input(r, 1, 2), spmt_plan_scratch(r, CHUNKS, 2)));
	return spmt_plan_reduce(plan, r, 0, spmt_plan_output(r, 0, CHUNKS), terms, 2);
}

static int one_buffer(void)
{
	for (uint64_t seed = 0; seed < test_count(20, 200); seed++) {
		spmt_plan *plan = NULL;

		REQUIRE_OK(create("allreduce", 2, CHUNKS + 2, &plan));
		for (int r = 0; r < 2; r++)
			REQUIRE_OK(keeps_and_stores(plan, r));
		TRY(runs(plan, true, seed, "one buffer"));
	}
	return 0;
}

/* Likewise; but its output is where its input moves by a chunk: in place a copy's sides overlap. */
static int moves_by_a_chunk(spmt_plan *plan, int r)
{
	const int p = 1 - r;
	const uint32_t last = CHUNKS - 1, own = 0, theirs = CHUNKS;
	struct spmt_plan_chunk terms[] = { spmt_plan_scratch(r, own, CHUNKS),
		spmt_plan_scratch(r, theirs, CHUNKS) };

	REQUIRE_OK(spmt_plan_copy(
		plan, r, 0, spmt_plan_input(r, last, 1), spmt_plan_scratch(r, own + last, 1)));
	REQUIRE_OK(spmt_plan_copy(
		plan, r, 0, spmt_plan_input(r, 0, last), spmt_plan_output(r, 1, last)));
	REQUIRE_OK(spmt_plan_copy(
		plan, r, 0, spmt_plan_output(r, 1, last), spmt_plan_scratch(r, own, last)));
	REQUIRE_OK(spmt_plan_put(plan, r, 0, terms[0], spmt_plan_scratch(p, theirs, CHUNKS)));
	REQUIRE_OK(spmt_plan_signal(plan, r, 0, p, 0));
	REQUIRE_OK(spmt_plan_wait(plan, r, 0, p, 0));
	return spmt_plan_reduce(plan, r, 0, spmt_plan_output(r, 0, CHUNKS), terms, 2);
}

static int sides_that_overlap(void)
{
	for (uint64_t seed = 0; seed < test_count(20, 200); seed++) {
		spmt_plan *plan = NULL;

		REQUIRE_OK(create("allreduce", 2, 2 * CHUNKS, &plan));
		for (int r = 0; r < 2; r++)
			REQUIRE_OK(moves_by_a_chunk(plan, r));
		TRY(runs(plan, true, seed, "sides that overlap"));
	}
	return 0;
}

/* Who gets the packets may store over what was loaded before they were sent, even by threads that had none to send. */
static int folds_that_send(void)
{
	for (uint64_t seed = 0; seed < test_count(20, 200); seed++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);
		spmt_plan *plan = NULL;

		op.nsrc = op.ndst = 2;
		op.src[0] = spmt_plan_input(0, 0, 1);
		op.src[1] = spmt_plan_scratch(0, 0, 1);
		op.dst[0] = spmt_plan_output(0, 0, 1);
		op.dst[1] = spmt_plan_scratch(1, 0, 1);
		REQUIRE_OK(create("sends", 2, CHUNKS + 2, &plan));
		REQUIRE_OK(spmt_plan_put_packets(
			plan, 1, 0, spmt_plan_input(1, 0, 1), spmt_plan_scratch(0, 0, 1)));
		REQUIRE_OK(spmt_plan_fetch(
			plan, 0, 0, spmt_plan_output(1, 0, 3), spmt_plan_output(0, 1, 3)));
		REQUIRE_OK(spmt_plan_add(plan, 0, 0, &op));
		REQUIRE_OK(spmt_plan_unpack_packets(
			plan, 1, 0, spmt_plan_scratch(1, 0, 1), spmt_plan_output(1, 3, 1)));
		REQUIRE_OK(spmt_plan_copy(
			plan, 1, 0, spmt_plan_input(1, 0, 3), spmt_plan_output(1, 0, 3)));
		TRY(runs(plan, false, seed, "folds that send"));
	}
	return 0;
}

/* What a thread has taken goes on by another one, as it lies elsewhere in what is sent. */
static int packets_of_chunks_that_overlap(void)
{
	for (uint64_t seed = 0; seed < test_count(40, 400); seed++) {
		spmt_plan *plan = NULL;

		REQUIRE_OK(create("sends", 2, CHUNKS + 2, &plan));
		for (int r = 0; r < 2; r++) {
			REQUIRE_OK(spmt_plan_put_packets(plan, r, 0, spmt_plan_input(r, 0, 2),
				spmt_plan_scratch(1 - r, 0, 2)));
			REQUIRE_OK(spmt_plan_unpack_packets(
				plan, r, 0, spmt_plan_scratch(r, 0, 2), spmt_plan_output(r, 0, 2)));
			REQUIRE_OK(spmt_plan_put_packets(plan, r, 0, spmt_plan_output(r, 1, 2),
				spmt_plan_scratch(1 - r, 2, 2)));
			REQUIRE_OK(spmt_plan_unpack_packets(
				plan, r, 0, spmt_plan_scratch(r, 2, 2), spmt_plan_output(r, 2, 2)));
		}
		TRY(runs(plan, false, seed, "chunks that overlap"));
	}
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = { { "at_random", at_random },
		{ "all_reduces_at_random", all_reduces_at_random },
		{ "packets_alone", packets_alone }, { "the_librarys_own", the_librarys_own },
		{ "of_files", of_files }, { "one_buffer", one_buffer },
		{ "sides_that_overlap", sides_that_overlap },
		{ "folds_that_send", folds_that_send },
		{ "packets_of_chunks_that_overlap", packets_of_chunks_that_overlap } };

	return tap_run(cases, ARRAY_SIZE(cases));
}
