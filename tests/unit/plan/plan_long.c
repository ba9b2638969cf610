/* SPDX-License-Identifier: MIT */
/* Plans that are long: to read or check them takes a second, not minutes. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt/plan/json.h"
#include "spmt/plan/plan.h"
#include "src/base/base.h"
#include "src/base/fault.h"
#include "src/base/process.h"
#include "two_ranks.h"

/* ---- reading ---------------------------------------------------------------------------------- */

/* The text of a plan, as it is written. */
struct written {
	FILE *f;
	char *text;
	size_t size;
};

static void begin_text(struct written *w)
{
	w->f = open_memstream(&w->text, &w->size);
	cr_assert_not_null(w->f);
}

static spmt_plan *read_text(struct written *w)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(fclose(w->f), 0);
	cr_assert_eq(spmt_plan_read(w->text, w->size, &plan), 0, "%s", spmt_last_error());
	free(w->text);
	return plan;
}

enum { MOST = 32000 }; /* channels or buffers of a GPU */

/* All ranks but 0, whose text follows. */
static void write_others(FILE *f)
{
	static const char sizes[] =
		"\"input_chunks\": 1, \"output_chunks\": 1, \"scratch_chunks\": 0";

	fprintf(f, "{\"name\": \"l\", \"collective\": \"l\", \"gpus\": [\n");
	for (int r = 1; r < SPMT_PLAN_RANKS; r++)
		fprintf(f, "{\"id\": %d, %s},\n", r, sizes);
	fprintf(f, "{\"id\": 0, %s,\n", sizes);
}

static int peer_of(int channel)
{
	return 1 + channel % (SPMT_PLAN_RANKS - 1);
}

/* Each signal names the last of many. */
Test(plan_long, channels, .timeout = 30)
{
	enum { SIGNALS = 200000 };
	struct spmt_plan_op op = { .size = sizeof(op) };
	struct written w;
	spmt_plan *plan;

	begin_text(&w);
	write_others(w.f);
	fprintf(w.f, "\"channels\": [{\"channel_type\": \"memory\", \"connected_to\": [");
	for (int i = 0; i < MOST; i++)
		fprintf(w.f, "%s%d", i ? "," : "", peer_of(i));
	fprintf(w.f, "]}],\n\"threadblocks\": [{\"id\": 0, \"channels\": [");
	fprintf(w.f, "{\"channel_type\": \"memory\", \"channel_ids\": [");
	for (int i = 0; i < MOST; i++)
		fprintf(w.f, "%s%d", i ? "," : "", i);
	fprintf(w.f, "]}],\n\"ops\": [{\"name\": \"signal\", \"channel_type\": \"memory\", ");
	fprintf(w.f, "\"channel_ids\": [");
	for (int i = 0; i < SIGNALS; i++)
		fprintf(w.f, "%s%d", i ? "," : "", MOST - 1);
	fprintf(w.f, "]}]}]}]}");
	plan = read_text(&w);
	cr_assert_eq(spmt_plan_get(plan, 0, 0, SIGNALS - 1, &op), 0, "%s", spmt_last_error());
	cr_expect_eq(op.peer, peer_of(MOST - 1));
	cr_expect_eq(op.index, (MOST - 1) / (SPMT_PLAN_RANKS - 1));
	spmt_plan_destroy(plan);
}

/* Likewise, in a list each. */
Test(plan_long, buffers, .timeout = 30)
{
	enum { PUTS = 100000, EACH = 10 };
	struct spmt_plan_op op = { .size = sizeof(op) };
	struct written w;
	spmt_plan *plan;

	begin_text(&w);
	write_others(w.f);
	fprintf(w.f, "\"remote_buffers\": [");
	for (int i = 0; i < MOST; i++)
		fprintf(w.f, "%s{\"rank\": %d, \"type\": \"o\"}", i ? "," : "", peer_of(i));
	fprintf(w.f, "],\n\"threadblocks\": [{\"id\": 0, \"remote_buffer_refs\": [");
	for (int i = 0; i < MOST / 2; i++)
		fprintf(w.f, "%s{\"access_channel_type\": \"memory\", \"remote_buffer_ids\": [%d]}",
			i ? "," : "", MOST - 1 - i);
	fprintf(w.f, "],\n\"ops\": [");
	for (int i = 0; i < PUTS; i += EACH) {
		fprintf(w.f, "%s{\"name\": \"put\", \"channel_type\": \"memory\", \"src_buff\": [",
			i ? "," : "");
		fprintf(w.f, "{\"type\": \"i\", \"index\": 0, \"size\": 1}], \"dst_buff\": [");
		for (int k = 0; k < EACH; k++)
			fprintf(w.f, "%s{\"buffer_id\": %d, \"index\": 0, \"size\": 1}",
				k ? "," : "", MOST / 2 - 1 - k);
		fprintf(w.f, "]}\n");
	}
	fprintf(w.f, "]}]}]}");
	plan = read_text(&w);
	for (int k = 0; k < EACH; k++) {
		cr_assert_eq(spmt_plan_get(plan, 0, 0, (size_t)(PUTS - EACH + k), &op), 0);
		cr_expect_eq(op.dst[0].rank, peer_of(MOST / 2 + k));
	}
	spmt_plan_destroy(plan);
}

/* A GPU's channels, a block's, and its references to buffers; an operation. What it says, NULL: it is right. */
Test(plan_long, what_no_operation_names_is_not_looked_at)
{
#define SIGNAL(n) "{\"name\": \"signal\", \"channel_type\": \"memory\", \"channel_ids\": [" #n "]}"
#define GET(n)                                                                                 \
	"{\"name\": \"get\", \"channel_type\": \"memory\", \"src_buff\": [{\"buffer_id\": " #n \
	", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 1}]}"
	static const struct {
		const char *op, *says;
	} cases[] = {
		{ SIGNAL(0), NULL },
		{ SIGNAL(1), NULL },
		{ SIGNAL(2), "line 3: connected_to[1] is no number from 0 to 255" },
		{ SIGNAL(3), "line 3: connected_to[1] is no number from 0 to 255" },
		{ SIGNAL(4), "line 3: connected_to[1] is no number from 0 to 255" },
		{ SIGNAL(5), "line 4: channel_ids[0] is no number" },
		{ SIGNAL(6), "line 6: the block has no such memory channel" },
		{ "{\"name\": \"wait\", \"channel_type\": \"port\", \"channel_ids\": [1]}",
			"line 6: the GPU has no port channel 9" },
		{ GET(0), NULL },
		{ GET(1), "line 5: access_channel_type is missing" },
		{ GET(2), "line 5: access_channel_type is missing" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		spmt_plan *plan = NULL;
		struct written w;

		begin_text(&w);
		fprintf(w.f, "{\"name\": \"l\", \"collective\": \"l\", \"gpus\": [");
		for (int r = SPMT_PLAN_RANKS - 1; r >= 0; r--)
			fprintf(w.f,
				"{\"id\": %d, \"input_chunks\": 1, \"output_chunks\": 1, \"scratch_chunks\": 0%s",
				r, r ? "}, " : ",\n");
		fprintf(w.f,
			"\"channels\": [{\"channel_type\": \"memory\", \"connected_to\": [7]}, {\"channel_type\": \"port\", \"connected_to\": [7]},\n"
			"{\"channel_type\": \"memory\", \"connected_to\": [7, 256, 7]}], \"remote_buffers\": [{\"rank\": 7, \"type\": \"o\"}],\n"
			"\"threadblocks\": [{\"id\": 0, \"channels\": [{\"channel_type\": \"memory\", \"channel_ids\": [0, 1, 2, 3, 9]}, {\"channel_type\": \"port\", \"channel_ids\": [0, 9]}, {\"channel_type\": \"memory\", \"channel_ids\": [-1]}],\n"
			"\"remote_buffer_refs\": [{\"access_channel_type\": \"memory\", \"remote_buffer_ids\": [0]}, {}, {\"access_channel_type\": \"memory\", \"remote_buffer_ids\": [0]}],\n"
			"\"ops\": [%s]}]}]}",
			cases[i].op);
		cr_assert_eq(fclose(w.f), 0);
		cr_expect_eq(spmt_plan_read(w.text, w.size, &plan), cases[i].says ? -EINVAL : 0,
			"%zu: %s", i, spmt_last_error());
		cr_expect(!cases[i].says || strstr(spmt_last_error(), cases[i].says), "%zu: %s", i,
			spmt_last_error());
		if (!cases[i].says)
			spmt_plan_destroy(plan);
		free(w.text);
	}
}

/* It is told before there is memory for them. */
Test(plan_long, more_values_than_a_plan_has)
{
	spmt_plan *plan = NULL;
	char *text = malloc(JSON_VALUES);

	cr_assert_not_null(text);
	memset(text, ',', JSON_VALUES);
	text[0] = '[';
	cr_assert_eq(spmt_plan_read(text, JSON_VALUES, &plan), -EINVAL);
	cr_assert(strstr(spmt_last_error(), "the text has more than 134217728 values"), "%s",
		spmt_last_error());
	free(text);
}

/* ---- checking --------------------------------------------------------------------------------- */

static spmt_plan *plan_of(uint32_t chunks)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "p",
		.collective = "c",
		.nranks = 1,
		.input_chunks = chunks,
		.output_chunks = chunks,
		.scratch_chunks = chunks };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	return plan;
}

static void put_each(spmt_plan *plan, uint32_t chunks)
{
	for (uint32_t i = chunks; i--;)
		cr_assert_eq(spmt_plan_put_packets(plan, 0, 0, spmt_plan_input(0, i, 1),
				     spmt_plan_scratch(0, i, 1)),
			0);
}

/* From the last one down, each time all of them are waited for. */
Test(plan_long, packets, .timeout = 30)
{
	enum { CHUNKS = 20000, TIMES = 300 };
	spmt_plan *plan = plan_of(CHUNKS);

	put_each(plan, CHUNKS);
	for (int i = 0; i < TIMES; i++)
		cr_assert_eq(spmt_plan_unpack_packets(plan, 0, 0, spmt_plan_scratch(0, 0, CHUNKS),
				     spmt_plan_output(0, 0, CHUNKS)),
			0);
	finds(plan, NULL);
}

/* All parts of one cut, of others not all, and some twice. */
Test(plan_long, parts_of_packets)
{
	enum { CHUNKS = 4, PARTS = 3 };

	for (int cut = 2; cut < 5; cut++) {
		spmt_plan *plan = plan_of(CHUNKS);

		for (int part = 0; part < PARTS; part++)
			add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, CHUNKS - 1),
				spmt_plan_scratch(0, 0, CHUNKS - 1), part % cut, cut);
		add_part(plan, 0, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(0, 1, 1),
			spmt_plan_output(0, 1, 1), 0, 0);
		finds(plan, cut == 3 ? NULL : cut == 2 ? "written twice" : "nobody puts there");
	}
}

Test(plan_long, trials, .timeout = 30)
{
	enum { CHUNKS = 300000 };
	spmt_plan *plan = plan_of(CHUNKS);
	unsigned char *in = calloc(CHUNKS, 1), *out = calloc(CHUNKS, 1);
	void *ins[] = { in }, *outs[] = { out };

	cr_assert(in && out);
	for (size_t i = 0; i < CHUNKS; i++)
		in[i] = (unsigned char)(i * 7);
	put_each(plan, CHUNKS);
	cr_assert_eq(spmt_plan_unpack_packets(plan, 0, 0, spmt_plan_scratch(0, 0, CHUNKS),
			     spmt_plan_output(0, 0, CHUNKS)),
		0);
	cr_expect_eq(spmt_plan_simulate(plan,
			     &(struct spmt_plan_trial){ .size = sizeof(struct spmt_plan_trial),
				     .out = outs,
				     .in = ins,
				     .count = CHUNKS,
				     .type = SPMT_TYPE_U8,
				     .op = SPMT_OP_SUM }),
		0, "%s", spmt_last_error());
	cr_expect(!memcmp(in, out, CHUNKS));
	spmt_plan_destroy(plan);
	free(in);
	free(out);
}

/* So many reductions of one chunk, which is all of their terms, by several blocks; into it, if there is one, else into one each. */
static spmt_plan *reductions(int blocks)
{
	enum { EACH = 7600 };
	spmt_plan *plan = plan_of(EACH);

	for (int i = 0; i < EACH; i++) {
		struct spmt_plan_chunk terms[SPMT_PLAN_TERMS];

		for (int k = 0; k < SPMT_PLAN_TERMS; k++)
			terms[k] = spmt_plan_output(0, 0, 1);
		cr_assert_eq(spmt_plan_reduce(plan, 0, i % blocks,
				     blocks == 1 ? terms[0] : spmt_plan_scratch(0, (uint32_t)i, 1),
				     terms, SPMT_PLAN_TERMS),
			0, "%s", spmt_last_error());
	}
	return plan;
}

Test(plan_long, a_chunk_that_is_read, .timeout = 15)
{
	finds(reductions(4), NULL);
}

/* One block is done with it before the other begins. */
Test(plan_long, a_chunk_of_two_blocks, .timeout = 15)
{
	enum { EACH = 32000 };
	struct spmt_plan_chunk chunk = spmt_plan_output(0, 0, 1);
	spmt_plan *plan = plan_of(1);

	for (int block = 0; block < 2; block++) {
		if (block)
			cr_assert_eq(spmt_plan_acquire(plan, 0, block, 0, 0), 0);
		for (int i = 0; i < EACH; i++)
			cr_assert_eq(spmt_plan_reduce(plan, 0, block, chunk, &chunk, 1), 0);
		if (!block)
			cr_assert_eq(spmt_plan_release(plan, 0, block, 0), 0);
	}
	finds(plan, NULL);
}

Test(plan_long, a_chunk_of_one_block, .timeout = 15)
{
	finds(reductions(1), NULL);
}

/* Where some are passed over, the two that race are still found: the only one that writes is the first of them, or the last. */
Test(plan_long, a_race_among_many)
{
	for (int last = 0; last < 2; last++) {
		spmt_plan *plan = plan_of(100);
		struct spmt_plan_chunk chunk = spmt_plan_output(0, 0, 1);

		for (int block = 0; block < 3; block++)
			for (uint32_t i = 0; i < 20; i++)
				cr_assert_eq(
					spmt_plan_copy(plan, 0, last ? block : 3 - block, chunk,
						spmt_plan_scratch(0, (uint32_t)block * 20 + i, 1)),
					0);
		cr_assert_eq(
			spmt_plan_copy(plan, 0, last ? 3 : 0, spmt_plan_input(0, 0, 1), chunk), 0);
		finds(plan, "race: rank 0 block ");
	}
}

/* Each of many blocks takes its packets from the one before, and the first from the last: whom each waits for is found once. */
Test(plan_long, a_deadlock_of_many_blocks, .timeout = 15)
{
	enum { N = 20, BLOCKS = 128, ALL = N * BLOCKS, EACH = SPMT_PLAN_TERMS - 1 };
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "round",
		.collective = "c",
		.nranks = N,
		.input_chunks = 1,
		.output_chunks = BLOCKS,
		.scratch_chunks = BLOCKS * EACH };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	for (int i = 0; i < ALL; i++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);
		int to = (i + ALL - 1) % ALL;

		op.nsrc = op.ndst = SPMT_PLAN_TERMS;
		op.src[0] = spmt_plan_input(i / BLOCKS, 0, 1);
		op.dst[0] = spmt_plan_output(i / BLOCKS, (uint32_t)(i % BLOCKS), 1);
		for (int k = 0; k < EACH; k++) {
			op.src[1 + k] =
				spmt_plan_scratch(i / BLOCKS, (uint32_t)(i % BLOCKS * EACH + k), 1);
			op.dst[1 + k] = spmt_plan_scratch(
				to / BLOCKS, (uint32_t)(to % BLOCKS * EACH + k), 1);
		}
		cr_assert_eq(spmt_plan_add(plan, i / BLOCKS, i % BLOCKS, &op), 0, "%s",
			spmt_last_error());
	}
	finds(plan, ", which wait for rank 19 block 127 op 0 (reduce packets ");
}

/* ---- others who wait for the verdict ------------------------------------------------------------- */

static void ends(spmt_plan *plan, const char *what, int64_t ns)
{
	uint32_t stop = 0;
	struct plan_limit limit = { &stop, process_now() + ns };

	cr_expect_eq(plan_check(plan, &limit), SPMT_ERR_TIMEOUT, "%s: %s", what, spmt_last_error());
	spmt_plan_destroy(plan);
}

/* More than some milliseconds each, without the verdict that there is behind it. */
Test(plan_long, a_check_ends_in_time, .timeout = 60)
{
	enum { STEPS = 200000, TURNS = 1000 };
	spmt_plan *plan = plan_of(1);
	struct spmt_plan_chunk own[SPMT_PLAN_TERMS];

	for (int i = 0; i < STEPS; i += 2) {
		cr_assert_eq(spmt_plan_release(plan, 0, 0, 0), 0);
		cr_assert_eq(spmt_plan_acquire(plan, 0, 0, 0, 0), 0);
	}
	cr_assert_eq(spmt_plan_acquire(plan, 0, 0, 1, 0), 0);
	ends(plan, "order", 2000000);
	plan = plan_of(1);
	for (int k = 0; k < SPMT_PLAN_TERMS; k++)
		own[k] = spmt_plan_output(0, 0, 1);
	for (int i = 0; i < 2 * TURNS; i++) {
		int block = i % 2;

		cr_assert_eq(spmt_plan_acquire(plan, 0, block, block, !block), 0);
		cr_assert_eq(spmt_plan_reduce(plan, 0, block, own[0], own, SPMT_PLAN_TERMS), 0);
		cr_assert_eq(spmt_plan_release(plan, 0, block, !block), 0);
	}
	ends(plan, "races", 2000000);
}

/* Few operations, each of which takes what several have written, many times, and of many blocks: it is not their number that takes long. */
Test(plan_long, a_step_ends_in_time)
{
	enum { N = 9, CHUNKS = 16, TIMES = 16 };
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "steps",
		.collective = "c",
		.nranks = N,
		.input_chunks = CHUNKS,
		.output_chunks = CHUNKS,
		.scratch_chunks = CHUNKS };
	struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	for (int r = 1; r < N; r++)
		cr_assert_eq(spmt_plan_copy(plan, r, SPMT_PLAN_BLOCKS - 1, spmt_plan_input(r, 0, 1),
				     spmt_plan_output(r, 0, 1)),
			0);
	put_each(plan, CHUNKS);
	op.nsrc = SPMT_PLAN_TERMS;
	op.ndst = 1;
	op.src[0] = spmt_plan_input(0, 0, CHUNKS);
	op.dst[0] = spmt_plan_output(0, 0, CHUNKS);
	for (int k = 1; k < SPMT_PLAN_TERMS; k++)
		op.src[k] = spmt_plan_scratch(0, 0, CHUNKS);
	for (int i = 0; i < TIMES; i++)
		cr_assert_eq(spmt_plan_add(plan, 0, SPMT_PLAN_BLOCKS - 1, &op), 0, "%s",
			spmt_last_error());
	ends(plan, "packets", 100000);
}

/* ---- many hops, on a small stack ---------------------------------------------------------------- */

enum { STACK = 64 << 10, CALLS = 16 << 10 }; /* the most that calls may use of it */

/* A sum in place that goes round as packets: rank 0 sends its own, each adds its own and sends that on, and another block of rank 0 stores the sum. */
static spmt_plan *circle(int n)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "circle",
		.collective = "reduce",
		.nranks = n,
		.in_place = 1,
		.input_chunks = 1,
		.output_chunks = 1,
		.scratch_chunks = 1 };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, 1),
		spmt_plan_scratch(1, 0, 1), 0, 0);
	for (int r = 1; r < n; r++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);

		op.nsrc = op.ndst = 2;
		op.src[0] = op.dst[0] = spmt_plan_input(r, 0, 1);
		op.src[1] = spmt_plan_scratch(r, 0, 1);
		op.dst[1] = spmt_plan_scratch((r + 1) % n, 0, 1);
		cr_assert_eq(spmt_plan_add(plan, r, 0, &op), 0, "%s", spmt_last_error());
	}
	add_part_to(plan, 0, 1, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(0, 0, 1),
		spmt_plan_input(0, 0, 1), 0, 0);
	return plan;
}

/* Without memory for one thing or another nothing is said of the plan. */
Test(plan_long, no_memory_is_no_verdict)
{
	spmt_plan *plan = circle(40);
	uint32_t own[40] = { 0 };
	void *at[40];
	struct spmt_plan_trial trial = { .size = sizeof(trial),
		.in = at,
		.out = at,
		.count = 1,
		.type = SPMT_TYPE_U32,
		.op = SPMT_OP_SUM };

	for (int r = 0; r < 40; r++)
		at[r] = &own[r];
	for (int simulates = 0; simulates < 2; simulates++)
		for (uint64_t n = 1, fired = 1; fired; n++) {
			int rc;

			fault_arm(1u << FAULT_ALLOC, n);
			rc = simulates ? spmt_plan_simulate(plan, &trial) : spmt_plan_check(plan);
			fired = fault_seen() >= n;
			fault_disarm();
			cr_assert_eq(rc, fired ? -ENOMEM : 0, "%d, %llu: %d, %s", simulates,
				(unsigned long long)n, rc, spmt_last_error());
			cr_assert(!fired || strstr(spmt_last_error(), "no memory"), "%s",
				spmt_last_error());
		}
	spmt_plan_destroy(plan);
}

struct small {
	spmt_plan *plan;
	int checked, simulated;
	uint32_t sum;
	char says[512];
};

static void *goes_round(void *arg)
{
	static uint32_t own[SPMT_PLAN_RANKS];
	static void *at[SPMT_PLAN_RANKS];
	struct small *s = arg;
	struct spmt_plan_trial trial = { .size = sizeof(trial),
		.in = at,
		.out = at,
		.count = 1,
		.type = SPMT_TYPE_U32,
		.op = SPMT_OP_SUM };

	for (int r = 0; r < SPMT_PLAN_RANKS; r++) {
		own[r] = 1;
		at[r] = &own[r];
	}
	s->checked = spmt_plan_check(s->plan);
	s->simulated = s->checked ? -1 : spmt_plan_simulate(s->plan, &trial);
	snprintf(s->says, sizeof(s->says), "%s", spmt_last_error());
	s->sum = own[0];
	return NULL;
}

Test(plan_long, a_sum_that_goes_round, .timeout = 15)
{
	static _Alignas(4096) unsigned char stack[STACK];
	static const int sizes[] = { 3, 128, SPMT_PLAN_RANKS };

	if (SANITIZE_ADDRESS || SANITIZE_THREAD)
		cr_skip_test("sanitizers need larger stacks");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct small s = { .plan = circle(sizes[i]) };
		pthread_attr_t attr;
		pthread_t thread;
		size_t left = 0;

		memset(stack, 0xa5, sizeof(stack));
		cr_assert_eq(pthread_attr_init(&attr), 0);
		cr_assert_eq(pthread_attr_setstack(&attr, stack, sizeof(stack)), 0);
		cr_assert_eq(pthread_create(&thread, &attr, goes_round, &s), 0);
		pthread_join(thread, NULL);
		pthread_attr_destroy(&attr);
		cr_expect_eq(s.checked, 0, "%d ranks: %s", sizes[i], s.says);
		cr_expect_eq(s.simulated, 0, "%d ranks: %s", sizes[i], s.says);
		cr_expect_eq(s.sum, (uint32_t)sizes[i]);
		while (left < STACK && stack[left] == 0xa5)
			left++;
		cr_expect_lt(STACK - left, CALLS, "%d ranks: %zu bytes of stack", sizes[i],
			STACK - left);
		spmt_plan_destroy(s.plan);
	}
}
