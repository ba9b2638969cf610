/* SPDX-License-Identifier: MIT */
/* What SPMT_COLL may name: the words alone, for spmt_init and for spmt-info. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "row.h"
#include "src/base/status.h"

static const char words_name[] = "SPMT_COLL";

bool plan_rows_part(const char **wish, char *word, size_t room)
{
	size_t n = *wish ? strcspn(*wish, ",") : 0;

	if (!*wish)
		return false;
	snprintf(word, room, "%.*s", (int)MIN_OF(n, room), *wish);
	*wish = (*wish)[n] ? *wish + n + 1 : NULL;
	return true;
}

static int words_plan(struct plan_rows_words *w, const char *word, const char **file)
{
	*file = word + strlen(PLAN_ROW_PREFIX);
	if (!**file)
		return fail_call(-EINVAL, words_name, "no file behind " PLAN_ROW_PREFIX);
	if (w->plans == PLAN_ROWS_MOST)
		return fail_call(-EINVAL, words_name, "more than %d plans", PLAN_ROWS_MOST);
	w->plans++;
	return 0;
}

int plan_rows_word(struct plan_rows_words *w, const char *word, const char **file)
{
	*file = NULL;
	if (!strncmp(word, PLAN_ROW_PREFIX, strlen(PLAN_ROW_PREFIX)))
		return words_plan(w, word, file);
	if (!strcmp(word, PLAN_ROWS_ONLY)) {
		w->only = true;
		return 0;
	}
	if (!*word)
		return fail_call(-EINVAL, words_name, "a name is missing beside a comma");
	if (*w->row)
		return fail_call(-EINVAL, words_name,
			"two algorithms, %.64s and %.64s: one beside plans", w->row, word);
	snprintf(w->row, sizeof(w->row), "%s", word);
	return 0;
}

int plan_rows_words_end(const struct plan_rows_words *w)
{
	if (!w->only || w->plans)
		return 0;
	return fail_call(
		-EINVAL, words_name, PLAN_ROWS_ONLY " is for plans, and there is none beside it");
}
