/* SPDX-License-Identifier: MIT */
/* Any bytes as an execution plan. What is read can be checked, shown, simulated; and what is written of it is read as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "spmt_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *written(const spmt_plan *plan, enum spmt_plan_form form, size_t *need)
{
	char *text;

	*need = 0;
	if (spmt_plan_write(plan, form, NULL, 0, need) && !*need)
		return NULL;
	text = malloc(*need);
	if (text && spmt_plan_write(plan, form, text, *need, need))
		abort();
	return text;
}

static void again(const spmt_plan *plan)
{
	spmt_plan *same;
	size_t n, m;
	char *text = written(plan, SPMT_PLAN_JSON, &n), *second;

	if (!text)
		return;
	if (spmt_plan_read(
		    text, n - 1, &same)) { /* channels of both types may be more than of one */
		free(text);
		return;
	}
	second = written(same, SPMT_PLAN_JSON, &m);
	if (!second || n != m || memcmp(text, second, n))
		abort();
	spmt_plan_destroy(same);
	free(second);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct spmt_plan_info info = { .size = sizeof(info) };
	spmt_plan *plan;
	size_t n;

	if (spmt_plan_read((const char *)data, size, &plan)) {
		if (!*spmt_last_error())
			abort();
		return 0;
	}
	if (spmt_plan_about(plan, &info))
		abort();
	if (info.attr.nranks <= 8) {
		(void)spmt_plan_check(plan); /* either way */
		free(written(plan, SPMT_PLAN_TEXT, &n));
		free(written(plan, SPMT_PLAN_SVG, &n));
		again(plan);
	}
	spmt_plan_destroy(plan);
	return 0;
}
