/* SPDX-License-Identifier: MIT */
/* spmt-info --coll: the rows by which collectives are done, and which of them a call takes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/spmt.h"
#include "info.h"
#include "spmt/collective/collective.h"
#include "spmt/plan/rows/row.h"
#include "src/base/base.h"
#include "src/base/status.h"

#define WORD 4096
enum { NAME = 24, CHOICE = 68 }; /* columns */

static const char *const row_words[COLL_ROWS] = {
	[COLL_ROW_ll] = "one phase: data and flags together, through slots",
	[COLL_ROW_ll12] =
		"the same with a flag to 12 bytes, not on AMD's GPUs; an all_reduce in two such phases: who folds a part sends it on",
	[COLL_ROW_push2] =
		"sums in two phases: each folds a share that the others store to it, and stores it to all; blocks meet",
	[COLL_ROW_twoshot] = "each folds a share at its peers and stores it to all; blocks meet",
	[COLL_ROW_give] = "each stores to its peers; blocks meet",
	[COLL_ROW_pushed] = "one meeting, with which the data comes, through slots",
	[COLL_ROW_copy] = "each has copy queues copy from its peers; if SPMT_COLL names it",
	[COLL_ROW_direct] = "each loads from its peers; ranks meet before and after",
	[COLL_ROW_swap] = "pairs of ranks swap blocks in place; ranks meet before and after",
	[COLL_ROW_reduce] =
		"each folds a share at its peers and stores it to all; ranks meet before and after",
	[COLL_ROW_engine] =
		"copy engines copy from buffer to buffer, and no kernel runs; ranks of one process, outside graphs",
};

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
		rc = plan_row_prove(plan, kind, NULL);
	printf("  plan      %s: %s, %s of %d ranks, %u chunks of input, %u of scratch, %d blocks, %zu operations: %s\n",
		file, info.attr.name, coll_kinds[kind].call, info.attr.nranks,
		info.attr.input_chunks, info.attr.scratch_chunks, info.blocks, info.ops,
		rc ? status_sentence() : "right");
	spmt_plan_destroy(plan);
	return !rc;
}

/* One part of SPMT_COLL; *wanted: the row of the table that it names, left where it names none. */
static bool word_print(struct plan_rows_words *words, const char *word, int *wanted)
{
	const char *file;

	if (plan_rows_word(words, word, &file)) {
		printf("  refused: %s\n", status_sentence());
		return false;
	}
	if (file)
		return plan_print(file);
	if (!strcmp(word, PLAN_ROWS_ONLY)) {
		printf("  %s      calls that have plans of their kind and fit none fail\n", word);
		return true;
	}
	*wanted = coll_named(word);
	printf(*wanted >= 0 ? "  %-8s  where it fits\n" : "  %s: no algorithm\n", word);
	return *wanted >= 0;
}

/* What SPMT_COLL asks for, before the table; *wanted: the row that it names, or -1. */
static bool wished_print(const char *wish, char *word, int *wanted)
{
	struct plan_rows_words words = { .plans = 0 };
	bool right = true;

	printf("SPMT_COLL=%s\n", wish);
	while (plan_rows_part(&wish, word, WORD))
		right &= word_print(&words, word, wanted);
	if (plan_rows_words_end(&words)) {
		printf("  refused: %s\n", status_sentence());
		right = false;
	}
	return right;
}

/* ---- what calls take ----------------------------------------------------------------------------- */

static int row_of(struct coll_case c, uint64_t bytes)
{
	c.bytes = bytes;
	return coll_choose(&c);
}

/* The most grains that take the row which `from` takes: steps that double find some that do not, and halves the first of these. */
static uint64_t row_end(struct coll_case c, uint64_t from)
{
	uint64_t most = from, step = 1, half, end = UINT64_MAX;
	int row = row_of(c, from);

	while (most < end - step && row_of(c, most + step) == row) {
		most += step;
		step *= 2;
	}
	if (most >= end - step)
		return UINT64_MAX;
	while (step > 1) {
		half = step / 2;
		if (row_of(c, most + half) == row) {
			most += half;
			step -= half;
		} else {
			step = half;
		}
	}
	return most;
}

/* "ll up to 524288, twoshot" */
static void choice_write(char *text, size_t size, struct coll_case c)
{
	uint64_t from = 0, end;
	size_t used = 0;

	do {
		end = row_end(c, from);
		used += (size_t)snprintf(text + used, size - used, "%s%s", from ? ", " : "",
			coll_rows[row_of(c, from)].name);
		if (end != UINT64_MAX && used < size)
			used += (size_t)snprintf(text + used, size - used, " up to %" PRIu64, end);
		from = end + 1;
	} while (end != UINT64_MAX && used < size);
}

/* In a world of one process, whose ranks have a GPU each; parts have less room in slots, and lanes none. */
static struct coll_case case_of(int ranks, int kind, bool factors, bool on_cpu, int wanted)
{
	return (struct coll_case){ .kind = (enum kernel_collective_kind)kind,
		.on_cpu = on_cpu,
		.room = coll_slot_room(ranks, COLL_SLOTS, on_cpu, true, wanted),
		.whole = true,
		.wanted = wanted,
		.factors = factors,
		.sums = !factors,
		.staged = !on_cpu || wanted == COLL_ROW_push2,
		.meets = true,
		.apart = true,
		.engines = wanted == COLL_ROW_copy,
		.ranks = ranks };
}

static void kind_print(int ranks, int kind, bool factors, int wanted)
{
	char name[64], gpu[128] = "varied", cpu[128] = "varied";

	if (kind < COLL_KINDS) {
		choice_write(gpu, sizeof(gpu), case_of(ranks, kind, factors, false, wanted));
		choice_write(cpu, sizeof(cpu), case_of(ranks, kind, factors, true, wanted));
	}
	snprintf(name, sizeof(name), "%s%s", coll_kinds[kind].call + strlen("spmt_"),
		factors ? ", premul" : "");
	printf("  %-*s  %-*s  %s\n", NAME, name, CHOICE, gpu, cpu);
}

static void ranks_print(int ranks, int wanted)
{
	char name[32];

	snprintf(name, sizeof(name), "%d rank%s", ranks, ranks == 1 ? "" : "s");
	printf("  %-*s  %-*s  on CPUs\n", NAME, name, CHOICE, "on GPUs");
	for (int kind = 0; kind < COLL_CALLS; kind++)
		for (int factors = 0; factors <= (kind < COLL_KINDS && coll_kinds[kind].folds);
			factors++)
			kind_print(ranks, kind, factors, wanted);
}

bool coll_print(int ranks)
{
	static const int usual[] = { 2, 4, 8 };
	const char *wish = secure_getenv("SPMT_COLL");
	char *word = malloc(WORD);
	int wanted = -1;
	bool right = word && (!wish || !*wish || wished_print(wish, word, &wanted));

	free(word);
	printf("algorithms of collectives\n");
	for (int i = 0; i < COLL_ROWS; i++)
		printf("  %-8s  %s\n", coll_rows[i].name, row_words[i]);
	printf("  %-8s  counts differ by rank: each loads from its peers; ranks meet before and after; whatever SPMT_COLL names\n",
		"varied");
	printf("which a call of the world takes, by bytes of a block; engine in one process, each rank with a GPU of its own\n");
	for (size_t i = 0; i < (ranks ? 1 : ARRAY_SIZE(usual)); i++)
		ranks_print(ranks ? ranks : usual[i], wanted);
	return right;
}
