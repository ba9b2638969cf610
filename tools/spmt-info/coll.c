/* SPDX-License-Identifier: MIT */
/* spmt-info --coll: the rows by which collectives are done. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/spmt.h"
#include "info.h"
#include "spmt/plan/row.h"
#include "src/base/status.h"

#define WORD 4096

static void limit_print(uint64_t bytes)
{
	if (bytes == UINT64_MAX)
		printf("  %10s", "any");
	else
		printf("  %10" PRIu64, bytes);
}

static void row_print(const struct coll_row *row)
{
	printf("  %-8s  %-5s", row->name, row->way == COLL_BY_SLOTS ? "slots" : "peers");
	limit_print(row->gpu);
	limit_print(row->cpu);
	printf(" ");
	for (int kind = 0; kind < COLL_KINDS; kind++)
		if (row->kinds >> kind & 1)
			printf(" %s", coll_kinds[kind].call + strlen("spmt_"));
	printf("\n");
}

/* False: it cannot be a row. */
static bool plan_print(const char *file)
{
	struct spmt_plan_info info = { .size = sizeof(info) };
	enum kernel_collective_kind kind;
	spmt_plan *plan;
	int rc = plan_row_load(file, &plan, &kind);

	if (rc) {
		printf("  plan      %s: refused: %s\n", file, status_sentence());
		return false;
	}
	rc = spmt_plan_about(plan, &info);
	if (!rc)
		rc = plan_row_prove(plan, kind);
	printf("  plan      %s: %s, %s of %d ranks, %u chunks of input, %u of scratch, %d blocks, %zu operations: %s\n",
		file, info.attr.name, coll_kinds[kind].call, info.attr.nranks,
		info.attr.input_chunks, info.attr.scratch_chunks, info.blocks, info.ops,
		rc ? status_sentence() : "right");
	spmt_plan_destroy(plan);
	return !rc;
}

/* What SPMT_COLL asks for, before the table. */
static bool wished_print(const char *wish, char *word)
{
	bool right = true;

	printf("SPMT_COLL=%s\n", wish);
	while (plan_rows_part(&wish, word, WORD)) {
		if (!strncmp(word, PLAN_ROW_PREFIX, strlen(PLAN_ROW_PREFIX)))
			right &= plan_print(word + strlen(PLAN_ROW_PREFIX));
		else if (!strcmp(word, PLAN_ROWS_ONLY))
			printf("  %s      calls that have plans of their kind and fit none fail\n",
				word);
		else if (coll_named(word) >= 0)
			printf("  %-8s  where it fits\n", word);
		else {
			printf("  %s: no algorithm\n", word);
			right = false;
		}
	}
	return right;
}

bool coll_print(void)
{
	const char *wish = secure_getenv("SPMT_COLL");
	char *word = malloc(WORD);
	bool right = word && (!wish || !*wish || wished_print(wish, word));

	free(word);
	printf("algorithms of collectives, in order of preference\n"
	       "  %-8s  %-5s  %10s  %10s  %s\n",
		"name", "by", "GPU up to", "CPU up to", "kinds (bytes of a block)");
	for (int i = 0; i < COLL_ROWS; i++)
		row_print(&coll_rows[i]);
	return right;
}
