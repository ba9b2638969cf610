/* SPDX-License-Identifier: MIT */
/* Execution plans: what is written is read as the same; all that the format has is read; and what it does not have is refused by line. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmt/plan/json.h"
#include "tests/lib/plan/plans.h"
#include "tests/lib/ranks.h"

static char *write_plan(const spmt_plan *plan, enum spmt_plan_form form)
{
	size_t need = 0;
	char *text;

	if (spmt_plan_write(plan, form, NULL, 0, &need) != -ERANGE)
		return NULL;
	text = malloc(need);
	cr_assert_not_null(text);
	cr_assert_eq(spmt_plan_write(plan, form, text, need, &need), 0, "%s", spmt_last_error());
	cr_assert_eq(strlen(text) + 1, need);
	return text;
}

static bool same_plans(const spmt_plan *a, const spmt_plan *b)
{
	char *x = write_plan(a, SPMT_PLAN_TEXT), *y = write_plan(b, SPMT_PLAN_TEXT);
	bool same = !strcmp(x, y);

	free(x);
	free(y);
	return same;
}

Test(plan_json, what_is_written_is_read_as_the_same)
{
	size_t read = 0;

	for (uint64_t seed = 0; seed < test_count(150, 5000); seed++) {
		spmt_plan *plan = NULL, *again = NULL;
		char *text;

		cr_assert_eq(plans_random(seed, PLANS_RANKS, 2, PLANS_RIGHT, &plan), 0);
		text = write_plan(plan, SPMT_PLAN_JSON);
		if (text) { /* a reduction of chunks here and there has no form */
			cr_assert_eq(spmt_plan_read(text, strlen(text), &again), 0, "seed %llu: %s",
				(unsigned long long)seed, spmt_last_error());
			cr_assert(same_plans(plan, again), "seed %llu", (unsigned long long)seed);
			cr_assert_eq(spmt_plan_check(again), 0, "%s", spmt_last_error());
			spmt_plan_destroy(again);
			read++;
		}
		free(text);
		spmt_plan_destroy(plan);
	}
	cr_assert_gt(read, 10);
}

/* Two GPUs of one block each, with one channel and the other's three buffers; the operations of both, and what else a GPU has. */
static int read_plan(
	const char *head, const char *gpu, const char *ops0, const char *ops1, spmt_plan **plan)
{
	static const char form[] =
		"{\"name\": \"t\", \"collective\": \"allreduce\", \"protocol\": \"LL\", %s\n\"gpus\": [\n%s,\n%s]}";
	static const char one[] =
		"{\"id\": %d, \"input_chunks\": 4, \"output_chunks\": 4, \"scratch_chunks\": 4, %s %s"
		"\"remote_buffers\": [{\"rank\": %d, \"type\": \"i\", \"access_channel_types\": [\"memory\", \"port\"]},"
		"{\"rank\": %d, \"type\": \"o\", \"access_channel_types\": [\"memory\"]}, {\"rank\": %d, \"type\": \"s\", \"access_channel_types\": [\"memory\"]}],"
		"\"threadblocks\": [{\"id\": 0, \"ops\": [%s], \"channels\": [{\"channel_type\": \"memory\", \"channel_ids\": [1]},"
		"{\"channel_type\": \"port\", \"channel_ids\": [0]}, {\"channel_type\": \"switch\", \"channel_ids\": [0, 1]}],"
		"\"remote_buffer_refs\": [{\"access_channel_type\": \"memory\", \"remote_buffer_ids\": [2, 1]}, {\"access_channel_type\": \"port\", \"remote_buffer_ids\": [2]}]}]}";
	/* unless the GPU has others */
	static const char channels[] =
		"\"channels\": [{\"channel_type\": \"memory\", \"connected_to\": [%d, %d]}, {\"channel_type\": \"port\", \"connected_to\": [%d]},"
		" {\"channel_type\": \"switch\", \"buff\": \"o\", \"rank_groups\": [{\"size\": 4, \"ranks\": [0, 1]}]},"
		" {\"channel_type\": \"switch\", \"buffer_type\": \"s\", \"rank_groups\": [{\"size\": 2, \"ranks\": [0, 1]}]}],";
	char own[sizeof(channels)] = "";
	char *text = malloc(16384), *gpus[2] = { malloc(8192), malloc(8192) };
	const char *ops[] = { ops0, ops1 };
	int rc;

	cr_assert(text && gpus[0] && gpus[1]);
	for (int i = 0; i < 2; i++) {
		if (!strstr(gpu, "\"channels\""))
			snprintf(own, sizeof(own), channels, 1 - i, 1 - i, 1 - i);
		snprintf(gpus[i], 8192, one, i, gpu, own, 1 - i, 1 - i, 1 - i, ops[i]);
	}
	snprintf(text, 16384, form, head, gpus[0], gpus[1]);
	rc = spmt_plan_read(text, strlen(text), plan);
	free(gpus[0]);
	free(gpus[1]);
	free(text);
	return rc;
}

/* Each operation of the format, and the line of SPMT_PLAN_TEXT that it becomes, or lines. */
static const struct {
	const char *op, *words;
} forms[] = {
	{ "{\"name\": \"nop\"}, {\"name\": \"flush\"}", "; 0 operations" },
	{ "{\"name\": \"signal\", \"channel_ids\": [0], \"channel_type\": \"memory\"}",
		"signal rank 1 by channel 1" },
	{ "{\"name\": \"wait\", \"channel_ids\": [0], \"channel_type\": \"port\"}",
		"wait rank 1 by channel 127" },
	{ "{\"name\": \"rlxsignal\", \"channel_ids\": [0, 0], \"channel_type\": \"memory\"}",
		"relaxed signal rank 1 by channel 1\n\t1\trelaxed signal rank 1 by channel 1" },
	{ "{\"name\": \"rlxwait\", \"channel_ids\": [0], \"channel_type\": \"memory\"}",
		"relaxed wait rank 1 by channel 1" },
	{ "{\"name\": \"put\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"i\", \"index\": 1, \"size\": 2}], \"dst_buff\": [{\"buffer_id\": 0, \"index\": 2, \"size\": 2}]}",
		"put i1+2 to rank 1 s2+2" },
	{ "{\"name\": \"pws\", \"channel_type\": \"port\", \"channel_ids\": [0], \"src_buff\": [{\"type\": \"i\", \"index\": 1, \"size\": 1}], \"dst_buff\": [{\"buffer_id\": 0, \"index\": 2, \"size\": 1}]}",
		"put i1 to rank 1 s2\n\t1\tsignal rank 1 by channel 127" },
	{ "{\"name\": \"pwsf\", \"channel_type\": \"port\", \"channel_ids\": [0], \"src_buff\": [{\"type\": \"i\", \"index\": 1, \"size\": 1}], \"dst_buff\": [{\"buffer_id\": 0, \"index\": 2, \"size\": 1}]}",
		"put i1 to rank 1 s2\n\t1\tsignal rank 1 by channel 127" },
	{ "{\"name\": \"get\", \"channel_type\": \"memory\", \"src_buff\": [{\"buffer_id\": 1, \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"s\", \"index\": 3, \"size\": 1}]}",
		"get rank 1 o0 to s3" },
	{ "{\"name\": \"copy\", \"src_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"s\", \"index\": 3, \"size\": 1}], \"tbg_info\": {\"tb_id\": 1, \"tbg_size\": 2}}",
		"copy i0 to s3, part 1 of 2" },
	{ "{\"name\": \"re\", \"src_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 1}, {\"type\": \"s\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"o\", \"index\": 3, \"size\": 1}], \"reduce_op\": \"sum\"}",
		"reduce i0, s0 to o3" },
	{ "{\"name\": \"rres\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 1}, {\"buffer_id\": 0, \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"o\", \"index\": 3, \"size\": 1}, {\"buffer_id\": 1, \"index\": 3, \"size\": 1}]}",
		"reduce i0, rank 1 s0 to o3, rank 1 o3" },
	{ "{\"name\": \"glres\", \"channel_type\": \"switch\", \"src_buff\": [{\"switch_channel_id\": 0, \"index\": 1, \"size\": 1}], \"dst_buff\": [{\"switch_channel_id\": 0, \"index\": 1, \"size\": 1}]}",
		"reduce o1, rank 1 o1 to o1, rank 1 o1" },
	{ "{\"name\": \"gstore\", \"channel_type\": \"switch\", \"src_buff\": [{\"type\": \"i\", \"index\": 1, \"size\": 1}], \"dst_buff\": [{\"switch_channel_id\": 0, \"index\": 1, \"size\": 1}]}",
		"copy i1 to o1\n\t1\tput i1 to rank 1 o1" },
	{ "{\"name\": \"gstorepkt\", \"channel_type\": \"switch\", \"src_buff\": [{\"rank\": 0, \"type\": \"s\", \"index\": 1, \"size\": 1}], \"dst_buff\": [{\"switch_channel_id\": 1, \"index\": 1, \"size\": 1}]}",
		"send packets on s1 (packets) to rank 1 s1 (packets)" },
	{ "{\"name\": \"gstorepkt\", \"channel_type\": \"switch\", \"src_buff\": [{\"rank\": 0, \"type\": \"s\", \"index\": 1, \"size\": 1}], \"dst_buff\": [{\"switch_channel_id\": 1, \"index\": 2, \"size\": 1}]}",
		"send packets on s1 (packets) to s2 (packets), rank 1 s2 (packets)" },
	{ "{\"name\": \"glre\", \"buffer_type\": \"o\", \"buffer_offset\": 2, \"size\": 1, \"dst_chunk\": {\"rank\": 0, \"type\": \"s\", \"index\": 3, \"size\": 1}, \"channel_ids\": [0], \"channel_type\": \"switch\", \"reduce_op\": \"sum\"}",
		"reduce o2, rank 1 o2 to s3" },
	{ "{\"name\": \"ppkt\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"buffer_id\": 0, \"index\": 3, \"size\": 1}]}",
		"put packets i0 to rank 1 s3 (packets)" },
	{ "{\"name\": \"ppkt\", \"channel_type\": \"port\", \"channel_ids\": [0], \"src_buff\": [{\"type\": \"s\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"buffer_id\": 0, \"index\": 3, \"size\": 1}]}",
		"send packets on s0 (packets) to rank 1 s3 (packets)" },
	{ "{\"name\": \"cpkt\", \"src_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"s\", \"index\": 3, \"size\": 1}]}",
		"put packets i0 to s3 (packets)" },
	{ "{\"name\": \"upkt\", \"src_buff\": [{\"type\": \"s\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"o\", \"index\": 3, \"size\": 1}]}",
		"unpack packets s0 (packets) to o3" },
	{ "{\"name\": \"rppkt\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"s\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"buffer_id\": 0, \"index\": 3, \"size\": 1}]}",
		"send packets on s0 (packets) to rank 1 s3 (packets)" },
	{ "{\"name\": \"recspkt\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 1}, {\"type\": \"s\", \"index\": 1, \"size\": 1}], \"dst_buff\": [{\"type\": \"o\", \"index\": 0, \"size\": 1}, {\"type\": \"s\", \"index\": 2, \"size\": 1}, {\"buffer_id\": 0, \"index\": 3, \"size\": 1}]}",
		"reduce packets i0, s1 (packets) to o0, s2 (packets), rank 1 s3 (packets)" },
	{ "{\"name\": \"barrier\", \"barrier_id\": 2, \"num_threadblocks\": 1}",
		"barrier 2 of 1 blocks" },
	{ "{\"name\": \"sem_release\", \"semaphore_ids\": [1]}, {\"name\": \"sem_acquire\", \"semaphore_ids\": [1]}",
		"release semaphore 1\n\t1\tacquire semaphore 1" },
	{ "{\"name\": \"pipeline\", \"iter_context\": {\"unit_size\": 1024, \"num_chunks\": 1}, \"ops\": [{\"name\": \"nop\"}, {\"name\": \"barrier\", \"barrier_id\": 0, \"num_threadblocks\": 1}]}", "barrier 0 of 1 blocks" },
};

Test(plan_json, each_operation_of_the_format)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		spmt_plan *plan = NULL;
		int rc = read_plan("\"inplace\": false,",
			"\"semaphores\": [{\"init_value\": 0}, {\"init_value\": 3}],", forms[i].op,
			"", &plan);
		char *text;

		cr_assert_eq(rc, 0, "%s: %s", forms[i].op, spmt_last_error());
		text = write_plan(plan, SPMT_PLAN_TEXT);
		cr_assert(strstr(text, forms[i].words), "%s: %s", forms[i].op, text);
		free(text);
		spmt_plan_destroy(plan);
	}
}

#define SWITCHED(group)                                                                            \
	"\"channels\": [{\"channel_type\": \"switch\", \"buff\": \"o\",\n\"rank_groups\": [" group \
	"]}],\n"
#define STORE                                                                                                                \
	"{\"name\": \"gstore\", \"channel_type\": \"switch\", \"src_buff\": [{\"type\": \"i\", \"index\": 1, \"size\": 1}]," \
	"\"dst_buff\": [{\"switch_channel_id\": 0, \"index\": 1, \"size\": 1}]}"

Test(plan_json, what_is_wrong_is_told_by_its_line)
{
	static const struct {
		const char *head, *gpu, *op, *words;
	} wrong[] = {
		{ "", "", "{\"name\": \"dance\"}", "line 3: an operation dance" },
		{ "", "", "{}", "name is missing" },
		{ "\"inplace\": 3,", "", "", "line 1: inplace" },
		{ "\"min_message_size\": -1,", "", "", "min_message_size" },
		{ "", "",
			"{\"name\": \"signal\", \"channel_ids\": [1], \"channel_type\": \"memory\"}",
			"no such memory channel" },
		{ "", "",
			"{\"name\": \"signal\", \"channel_ids\": [0.5], \"channel_type\": \"memory\"}",
			"channel_ids[0]" },
		{ "", "", "{\"name\": \"wait\", \"channel_type\": \"memory\"}",
			"channel_ids is missing" },
		{ "", "", "{\"name\": \"sem_release\"}", "semaphore_ids is missing" },
		{ "", "", "{\"name\": \"put\", \"src_buff\": [], \"dst_buff\": []}", "0 buffers" },
		{ "", "",
			"{\"name\": \"put\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"q\", \"index\": 0, \"size\": 1}]}",
			"none of i, o and s" },
		{ "", "",
			"{\"name\": \"put\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"i\", \"index\": 4, \"size\": 1}], \"dst_buff\": [{\"buffer_id\": 0, \"index\": 0, \"size\": 1}]}",
			"of input, which has 4" },
		{ "", "",
			"{\"name\": \"get\", \"channel_type\": \"memory\", \"src_buff\": [{\"buffer_id\": 9, \"index\": 0, \"size\": 1}]}",
			"no such remote buffer" },
		{ "", "", "{\"name\": \"sem_acquire\", \"semaphore_ids\": [0]}", "no semaphore 0" },
		{ "", "", "{\"name\": \"barrier\", \"barrier_id\": 0}",
			"num_threadblocks is missing" },
		{ "", SWITCHED("{\"ranks\": [1]}"), STORE,
			"line 4: rank 0 uses the switch channel, and is not in its group" },
		{ "", SWITCHED("{\"ranks\": []}"), STORE,
			"line 4: the switch channel's group has no ranks" },
		{ "", SWITCHED("{}"), STORE, "line 5: the switch channel's group has no ranks" },
		{ "", SWITCHED("{\"ranks\": [0, 0]}"), STORE, "has rank 0 twice" },
		{ "", SWITCHED("{\"ranks\": [0, 1, 1]}"), STORE, "has 3 ranks, the plan 2" },
		{ "", SWITCHED("{\"ranks\": [0, 2]}"), STORE, "ranks[1] is no number from 0 to 1" },
		{ "\"min_message_size\": 8, \"max_message_size\": 4,", "", "",
			"line 1: spmt_plan_create: plan t: min_bytes 8 is above max_bytes 4" },
		{ "", "", "{\"name\": \"glre\"}", "line 3: buffer_offset is missing" },
		{ "", "", "{\"name\": \"glre\", \"buffer_offset\": 0, \"size\": 1}",
			"there is no channel_ids[0]" },
		{ "", "",
			"{\"name\": \"glre\", \"buffer_offset\": 0, \"size\": 1, \"channel_ids\": [0]}",
			"dst_chunk is missing" },
		{ "", "",
			"{\"name\": \"glre\", \"buffer_offset\": 0, \"size\": 1, \"channel_ids\": [0, 1], \"dst_chunk\": {}}",
			"channel_ids has more than one" },
		{ "", "",
			"{\"name\": \"rppkt\", \"channel_type\": \"memory\", \"src_buff\": [{\"type\": \"s\", \"index\": 0, \"size\": 1}], \"dst_buff\": [{\"type\": \"s\", \"index\": 0, \"size\": 1}]}",
			"src[0] and dst[0] overlap" },
		{ "", "",
			"{\"name\": \"glre\", \"buffer_offset\": 0, \"size\": 1, \"channel_ids\": [0], \"dst_chunk\": {\"rank\": 1, \"type\": \"s\", \"index\": 0, \"size\": 1}}",
			"rank 1 has a chunk in an operation of rank 0" },
		{ "", "", "{\"name\": \"gstorepkt\"}", "nsrc is 0" },
		{ "", "",
			"{\"name\": \"pipeline\", \"ops\": [{\"name\": \"pipeline\", \"ops\": []}]}",
			"pipeline" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		spmt_plan *plan = NULL;
		int rc = read_plan(wrong[i].head, wrong[i].gpu, wrong[i].op, "", &plan);

		cr_assert_eq(rc, -EINVAL, "%s", wrong[i].words);
		cr_assert(strstr(spmt_last_error(), wrong[i].words), "%s: %s", wrong[i].words,
			spmt_last_error());
	}
}

Test(plan_json, an_id_that_stands_twice)
{
	static const char text[] =
		"{\"name\": \"t\", \"collective\": \"c\", \"gpus\": [\n"
		"{\"id\": 0, \"input_chunks\": 1, \"output_chunks\": 1, \"scratch_chunks\": 0},\n"
		"{\"id\": 0, \"input_chunks\": 1, \"output_chunks\": 1, \"scratch_chunks\": 0}]}";
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_read(text, strlen(text), &plan), -EINVAL);
	cr_assert(strstr(spmt_last_error(), "line 3: id 0 is a duplicate: line 2 has it"), "%s",
		spmt_last_error());
}

/* "0,0,.. ,0", `more` zeros behind the first. */
static char *zeros(size_t more)
{
	char *ids = calloc(2, more + 2);

	cr_assert_not_null(ids);
	ids[0] = '0';
	for (size_t i = 0; i < more; i++)
		memcpy(ids + 1 + 2 * i, ",0", 2);
	return ids;
}

static int read_one(const char *gpu, const char *op, spmt_plan **plan)
{
	static const char form[] =
		"{\"name\": \"l\", \"collective\": \"l\", \"gpus\": ["
		"{\"id\": 0, \"input_chunks\": 1, \"output_chunks\": 1, \"scratch_chunks\": 0, \"semaphores\": [{\"init_value\": 0}], \"channels\": [%s], "
		"\"threadblocks\": [{\"id\": 0, \"channels\": [{\"channel_type\": \"memory\", \"channel_ids\": [0]}], \"ops\": [%s]}]},"
		"{\"id\": 1, \"input_chunks\": 1, \"output_chunks\": 1, \"scratch_chunks\": 0}]}";
	size_t room = strlen(gpu) + strlen(op) + sizeof(form);
	char *text = malloc(room);
	int rc;

	cr_assert_not_null(text);
	snprintf(text, room, form, gpu, op);
	rc = spmt_plan_read(text, strlen(text), plan);
	free(text);
	return rc;
}

/* A list is gone through once. */
Test(plan_json, long_lists, .timeout = 60)
{
	static const char *const ops[] = {
		"{\"name\": \"signal\", \"channel_type\": \"memory\", \"channel_ids\": [%s]}",
		"{\"name\": \"sem_release\", \"semaphore_ids\": [%s]}"
	};
	const size_t more = 500000;
	char *ids = zeros(more), *op = malloc(2 * more + 128);

	cr_assert_not_null(op);
	for (size_t i = 0; i < 2; i++) {
		struct spmt_plan_info info = { .size = sizeof(info) };
		spmt_plan *plan = NULL;

		snprintf(op, 2 * more + 128, ops[i], ids);
		cr_assert_eq(read_one("{\"channel_type\": \"memory\", \"connected_to\": [1]}", op,
				     &plan),
			0, "%s", spmt_last_error());
		cr_assert_eq(spmt_plan_about(plan, &info), 0);
		cr_assert_eq(info.ops, more + 1);
		spmt_plan_destroy(plan);
	}
	free(ids);
	free(op);
}

/* Those that each operation looks through are short. */
Test(plan_json, lists_that_are_longer_than_a_plan_needs)
{
	static const char *const lists[] = {
		"{\"channel_type\": \"memory\", \"connected_to\": [%s]}",
		"{\"channel_type\": \"switch\", \"connected_to\": [%s]}",
	};
	char *ids = zeros(5000), text[10240];

	for (size_t i = 0; i < 2; i++) {
		spmt_plan *plan = NULL;

		snprintf(text, sizeof(text), lists[i], ids);
		cr_assert_eq(read_one(text, "{\"name\": \"nop\"}", &plan), -EINVAL);
		cr_assert(strstr(spmt_last_error(),
				  "line 1: connected_to: more than 768 for 2 ranks"),
			"%s", spmt_last_error());
	}
	free(ids);
}

Test(plan_json, what_is_no_json)
{
	static const char *const texts[] = { "", "{", "[1,", "{\"a\" 1}", "{\"a\": 01}",
		"{\"a\": tru}", "{\"a\": \"\n\"}", "{\"a\": \"\\x\"}", "{\"a\": \"\\u12g4\"}",
		"{\"a\": \"\\ud83d\"}", "{\"a\": \"\\ud83d\\u0041\"}",
		"{\"a\": \"\\ude00\\ud83d\"}", "{\"a\": \"\\ud83d\\u\"}", "{} {}", "{\"a\": 1.}",
		"{\"a\": 1e}", "nul", "\"", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[" };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		spmt_plan *plan = NULL;

		cr_assert_eq(
			spmt_plan_read(texts[i], strlen(texts[i]), &plan), -EINVAL, "%s", texts[i]);
		cr_assert(strstr(spmt_last_error(), "line "), "%s", spmt_last_error());
	}
}

/* Readers of JSON differ in which of two they take. */
Test(plan_json, a_name_that_stands_twice)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(
		read_plan("\"version\": 1,\n\"collective\": \"x\",", "", "", "", &plan), -EINVAL);
	cr_assert(strstr(spmt_last_error(), "line 2: collective is there twice"), "%s",
		spmt_last_error());
}

/* No address is made of it, which UndefinedBehaviorSanitizer would see. */
Test(plan_json, a_size_that_wraps)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_read("{}", SIZE_MAX, &plan), -ENOMEM);
	cr_assert(strstr(spmt_last_error(), "no memory for"), "%s", spmt_last_error());
}

/* Each has its place, whatever it is and where it stands. */
Test(plan_json, as_many_values_as_there_are)
{
	static const struct {
		const char *text;
		uint32_t n;
	} texts[] = { { "0", 1 }, { " {}", 1 }, { "[[],[[]],{\"a,[\": 1}]", 6 },
		{ "[true,null,\"[,{\",-1.5e3]", 5 }, { "{\"a\":{\"b\":[1,2]},\"c\":0}", 6 } };

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct json json;

		cr_assert_eq(json_open(&json, "a test", texts[i].text, strlen(texts[i].text)), 0);
		cr_expect_eq(json.n, 1 + texts[i].n, "%s: %u", texts[i].text, json.n);
		json_close(&json);
	}
}

/* The checker refuses it, which one count in the text would hide. */
Test(plan_json, a_semaphore_of_two_counts)
{
	spmt_plan *plan = NULL;
	size_t need = 0;

	cr_assert_eq(read_plan("", "", "", "", &plan), 0, "%s", spmt_last_error());
	for (int i = 0; i < 2; i++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_ACQUIRE);

		op.index = 1;
		op.initial = i;
		cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0, "%s", spmt_last_error());
	}
	cr_assert_eq(spmt_plan_write(plan, SPMT_PLAN_JSON, NULL, 0, &need), -EINVAL);
	cr_assert(strstr(spmt_last_error(), "semaphore 1 begins with 0 in one place, with 1"), "%s",
		spmt_last_error());
	spmt_plan_destroy(plan);
}

Test(plan_json, pictures)
{
	spmt_plan *plan = NULL;
	char *text;

	cr_assert_eq(plans_random(3, PLANS_RANKS, 2, PLANS_RIGHT, &plan), 0);
	text = write_plan(plan, SPMT_PLAN_SVG);
	cr_assert_eq(strncmp(text, "<svg ", 5), 0);
	cr_assert(strstr(text, "</svg>\n"));
	cr_assert(strstr(text, "marker-end"));
	free(text);
	spmt_plan_destroy(plan);
}

Test(plan_json, pictures_of_any_name)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "]]><&\"'",
		.collective = "custom",
		.nranks = 1,
		.input_chunks = 1,
		.output_chunks = 1 };
	spmt_plan *plan = NULL;
	char *text;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0, "%s", spmt_last_error());
	cr_assert_eq(
		spmt_plan_copy(plan, 0, 0, spmt_plan_input(0, 0, 1), spmt_plan_output(0, 0, 1)), 0);
	text = write_plan(plan, SPMT_PLAN_SVG);
	cr_assert(strstr(text, "]]&gt;&lt;&amp;"));
	cr_assert_null(strstr(text, "]]>"));
	free(text);
	spmt_plan_destroy(plan);
}

static size_t boxes(const char *text, const char *colour)
{
	size_t n = 0;

	for (; (text = strstr(text, colour)); text++)
		n++;
	return n;
}

/* Nobody signals: rank 0 copies once, and waits for ever before it would copy again. */
Test(plan_json, pictures_of_plans_that_stand_still)
{
	spmt_plan *plan = NULL;
	char *text;

	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "still",
					 .collective = "c",
					 .nranks = 2,
					 .input_chunks = 1,
					 .output_chunks = 1 },
			&plan),
		0);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(spmt_plan_copy(plan, 0, 0, spmt_plan_input(0, 0, 1),
				     spmt_plan_output(0, 0, 1)),
			0);
		cr_assert_eq(spmt_plan_wait(plan, 0, 0, 1, i), 0);
	}
	cr_assert_eq(
		spmt_plan_put(plan, 1, 0, spmt_plan_input(1, 0, 1), spmt_plan_output(0, 0, 1)), 0);
	text = write_plan(plan, SPMT_PLAN_SVG);
	cr_expect_eq(boxes(text, "#f2a7a0"), 3);
	cr_expect_eq(boxes(text, "#d6e4f7"), 2);
	cr_expect(strstr(text, "rank 0 block 0 op 3: wait rank 1 by channel 1"));
	cr_expect(strstr(text, "The plan stands still"));
	cr_expect(!strstr(text, "left out"));
	free(text);
	spmt_plan_destroy(plan);
}

Test(plan_json, pictures_that_are_too_long)
{
	spmt_plan *plan = NULL;
	char *text;

	cr_assert_eq(
		spmt_plan_create(&(struct spmt_plan_attr){ .size = sizeof(struct spmt_plan_attr),
					 .name = "long",
					 .collective = "c",
					 .nranks = 1,
					 .input_chunks = 1 },
			&plan),
		0);
	for (int i = 0; i < 4007; i++)
		cr_assert_eq(spmt_plan_barrier(plan, 0, 0, 0, 1), 0);
	text = write_plan(plan, SPMT_PLAN_SVG);
	cr_expect(strstr(text, ">7 operations are left out: a picture has at most 4000 rows.<"));
	cr_expect(!strstr(text, "stands still"));
	free(text);
	spmt_plan_destroy(plan);
}
