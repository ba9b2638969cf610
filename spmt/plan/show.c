/* SPDX-License-Identifier: MIT */
/* Plans as text. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"
#include "src/base/mem.h"
#include "src/base/status.h"

void plan_print(struct plan_text *t, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	if (t->failed || n < 0)
		return;
	if (t->used + (size_t)n + 1 > t->room) {
		size_t room = MAX_OF(2 * t->room, t->used + (size_t)n + 4096);
		char *more = mem_calloc(1, room);

		t->failed = !more;
		if (!more)
			return;
		if (t->used)
			memcpy(more, t->bytes, t->used);
		mem_free(t->bytes);
		t->bytes = more;
		t->room = room;
	}
	va_start(args, fmt);
	vsnprintf(t->bytes + t->used, t->room - t->used, fmt, args);
	va_end(args);
	t->used += (size_t)n;
}

void plan_shape(const struct spmt_plan *plan, char *text, size_t room)
{
	const struct spmt_plan_attr *a = &plan->attr;
	char most[32] = "..";

	if (a->max_bytes)
		snprintf(most, sizeof(most), ".. %llu", (unsigned long long)a->max_bytes);
	snprintf(text, room,
		"%s (%.20s, %d ranks%s, %u input, %u output, %u scratch chunks, %llu %s bytes, %zu operations in %d blocks)",
		a->name, a->collective, a->nranks, a->in_place ? " in place" : "", a->input_chunks,
		a->output_chunks, a->scratch_chunks, (unsigned long long)a->min_bytes, most,
		plan->ops, plan->nblocks);
}

static void show_text(const struct spmt_plan *plan, struct plan_text *t)
{
	const struct spmt_plan_attr *a = &plan->attr;
	char words[256];

	plan_print(t,
		"%s: %s of %d ranks%s, chunks: %u input, %u output, %u scratch; %zu operations\n",
		a->name, a->collective, a->nranks, a->in_place ? " in place" : "", a->input_chunks,
		a->output_chunks, a->scratch_chunks, plan->ops);
	for (int r = 0; r < a->nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++) {
			plan_print(t, "rank %d block %d\n", r, b);
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++) {
				plan_op_words(
					&plan->ranks[r].blocks[b].ops[i], r, words, sizeof(words));
				plan_print(t, "\t%zu\t%s\n", i, words);
			}
		}
}

static int write_forms(const struct spmt_plan *plan, enum spmt_plan_form form, struct plan_text *t)
{
	switch (form) {
	case SPMT_PLAN_JSON:
		return plan_write_json(plan, t);
	case SPMT_PLAN_TEXT:
		show_text(plan, t);
		return 0;
	case SPMT_PLAN_SVG:
		plan_write_svg(plan, t);
		return 0;
	default:
		return fail_call(-EINVAL, "spmt_plan_write", "form %d is none", (int)form);
	}
}

int spmt_plan_write(
	const spmt_plan *plan, enum spmt_plan_form form, char *text, size_t room, size_t *need)
{
	struct plan_text t = { .used = 0 };
	int rc;

	if (!plan || !need || (room && !text))
		return fail_call(-EINVAL, "spmt_plan_write", "%s is NULL",
			!plan		? "plan"
				: !need ? "need"
					: "text");
	rc = write_forms(plan, form, &t);
	if (!rc && t.failed)
		rc = fail_call(-ENOMEM, "spmt_plan_write", "plan %s: no memory", plan->name);
	if (!rc)
		*need = t.used + 1;
	if (!rc && room < t.used + 1)
		rc = fail_call(-ERANGE, "spmt_plan_write", "plan %s takes %zu bytes, text has %zu",
			plan->name, t.used + 1, room);
	if (!rc)
		memcpy(text, t.bytes ? t.bytes : "", t.used + 1);
	mem_free(t.bytes);
	return rc;
}
