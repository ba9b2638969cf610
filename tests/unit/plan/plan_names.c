/* SPDX-License-Identifier: MIT */
/* Names in execution plans: which are the same, and what sentences quote of them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "spmt/plan/json.h"
#include "spmt_plan.h"

/* A plan of one operation. */
static int read_op(const char *op)
{
	spmt_plan *plan = NULL;
	char text[512];
	int n = snprintf(text, sizeof(text),
		"{\"name\": \"t\", \"collective\": \"c\", \"gpus\": [{\"id\": 0, \"input_chunks\": 1, \"output_chunks\": 1,"
		" \"scratch_chunks\": 0, \"threadblocks\": [{\"id\": 0, \"ops\": [%s]}]}]}",
		op);
	int rc = spmt_plan_read(text, (size_t)n, &plan);

	spmt_plan_destroy(plan);
	return rc;
}

/* Written by escapes and not. Controls, of which none is shown, are the only ones that look alike. */
Test(plan_names, names_of_any_letters)
{
	static const char *const pairs[][2] = { { "\\u00e9", "\xc3\xa9" }, { "\\u009b", "?" },
		{ "\\u00a0", "\xc2\xa0" }, { "\\u07ff", "\xdf\xbf" }, { "\\u0800", "\xe0\xa0\x80" },
		{ "\\u20ac", "\xe2\x82\xac" }, { "\\uffff", "\xef\xbf\xbf" },
		{ "\\uD83D\\uDE00", "\xf0\x9f\x98\x80" }, { "\\udbff\\udfff", "\xf4\x8f\xbf\xbf" },
		{ "\\u0041", "A" } };
	char text[64], word[64];

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		for (size_t k = 0; k < sizeof(pairs) / sizeof(pairs[0]); k++) {
			struct json json;
			int n = snprintf(text, sizeof(text), "{\"%s\": 1, \"%s\": 2}", pairs[i][0],
				pairs[k][1]);

			snprintf(word, sizeof(word), "%s is there twice", pairs[i][1]);
			cr_assert_eq(json_open(&json, "a test", text, (size_t)n),
				i == k ? -EINVAL : 0, "%s", text);
			if (i == k)
				cr_assert(strstr(spmt_last_error(), word), "%s", spmt_last_error());
			json_close(&json);
		}
}

/* A plan's own is ASCII, whichever way it is written. */
Test(plan_names, names_of_plans)
{
	static const char *const names[] = { "\\u00e9", "\xc3\xa9", "e" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		spmt_plan *plan = NULL;
		char text[256];
		int n = snprintf(text, sizeof(text),
			"{\"name\": \"%s\", \"collective\": \"x\", \"protocol\": \"LL\", \"gpus\": [{\"id\": 0, \"input_chunks\": 1,"
			" \"output_chunks\": 1, \"scratch_chunks\": 0, \"threadblocks\": []}]}",
			names[i]);

		cr_assert_eq(spmt_plan_read(text, (size_t)n, &plan), i < 2 ? -EINVAL : 0, "%s",
			spmt_last_error());
		if (i < 2)
			cr_assert(strstr(spmt_last_error(), "ASCII"), "%s", spmt_last_error());
		else
			spmt_plan_destroy(plan);
	}
}

/* Editors begin a file so. */
Test(plan_names, a_mark_of_utf8)
{
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_read("\xef\xbb\xbf{\"name\": 3}", 14, &plan), -EINVAL);
	cr_assert(strstr(spmt_last_error(), "line 1: name is no string"), "%s", spmt_last_error());
}

/* What is quoted in a sentence reaches terminals. */
Test(plan_names, no_control_is_quoted)
{
	static const char *const names[][2] = { { "x\\u001b[31m\\b", "x?[31m? is" },
		{ "x\\u007f\\u009b", "x?? is" }, { "x\x7f\xc2\x80\xc2\x9b\xc2\x9f", "x???? is" },
		{ "x\xc2\xa0\xc3\x9b", "x\xc2\xa0\xc3\x9b is" },
		/* bytes that begin no character: alone, cut off, longer than they need be, halves, beyond the last */
		{ "x\x9b\x80\xff", "x??\? is" }, { "x\xe2\x82!\xc3", "x?\?!? is" },
		{ "x\xc0\xaf\xe0\x9f\xbf", "x????? is" }, { "x\xed\xa0\x80", "x??\? is" },
		{ "x\xf4\x90\x80\x80\xf8", "x????? is" },
		{ "x\xf0\x9f\x98\x80\xef\xbf\xbf", "x\xf0\x9f\x98\x80\xef\xbf\xbf is" } };
	char op[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(op, sizeof(op), "{\"name\": \"%s\"}", names[i][0]);
		cr_assert_eq(read_op(op), -EINVAL);
		cr_assert(strstr(spmt_last_error(), names[i][1]), "%s", spmt_last_error());
	}
}

/* A long one ends behind a character. */
Test(plan_names, no_half_is_quoted)
{
#define FIVE "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
#define FIFTEEN FIVE FIVE FIVE
	cr_assert_eq(read_op("{\"name\": \"x" FIFTEEN FIVE "\"}"), -EINVAL);
	cr_assert(strstr(spmt_last_error(), "x" FIFTEEN " is none"), "%s", spmt_last_error());
	cr_assert_eq(read_op("{\"xy" FIFTEEN FIVE "\": 1, \"xy" FIFTEEN FIVE "\": 1}"), -EINVAL);
	cr_assert(
		strstr(spmt_last_error(), "xy" FIFTEEN " is there twice"), "%s", spmt_last_error());
}
