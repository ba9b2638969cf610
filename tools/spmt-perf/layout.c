/* SPDX-License-Identifier: MIT */
#include "layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 4096 };

static bool count_value(const char **at, int *value)
{
	char *end;
	long v;

	if (**at < '1' || **at > '9')
		return false;
	v = strtol(*at, &end, 10);
	*at = end;
	*value = (int)v;
	return v <= RANKS_MAX;
}

/* What follows a first number and 'x'. */
static bool equal_parts(const char *at, int n, struct layout *l)
{
	int each;

	if (n > PERF_PROCESSES || !count_value(&at, &each) || *at)
		return false;
	for (l->n = 0; l->n < n; l->n++)
		l->ranks[l->n] = each;
	return true;
}

bool layout_parse(const char *text, struct layout *l)
{
	const char *at = text;
	int n;

	*l = (struct layout){ .n = 0 };
	if (strlen(text) >= sizeof(l->text) || !count_value(&at, &n))
		return false;
	snprintf(l->text, sizeof(l->text), "%s", text);
	if (*at == 'x')
		return equal_parts(at + 1, n, l) && layout_nranks(l) <= RANKS_MAX;
	for (;;) {
		l->ranks[l->n++] = n;
		if (!*at)
			return layout_nranks(l) <= RANKS_MAX;
		if (*at++ != '+' || l->n == PERF_PROCESSES || !count_value(&at, &n))
			return false;
	}
}

void layout_one(int nranks, struct layout *l)
{
	*l = (struct layout){ .n = 1, .ranks = { nranks } };
	snprintf(l->text, sizeof(l->text), "1x%d", nranks);
}

int layout_nranks(const struct layout *l)
{
	return layout_first(l, l->n);
}

int layout_first(const struct layout *l, int process)
{
	int rank = 0;

	for (int p = 0; p < process; p++)
		rank += l->ranks[p];
	return rank;
}

int layout_most(const struct layout *l)
{
	int most = 0;

	for (int p = 0; p < l->n; p++)
		most = l->ranks[p] > most ? l->ranks[p] : most;
	return most;
}

int layout_rank(const struct layout *l, int position)
{
	int most = layout_most(l);

	if (l->n <= 1)
		return position;
	for (int turn = 0; turn < most; turn++)
		for (int p = 0; p < l->n; p++)
			if (turn < l->ranks[p] && position-- == 0)
				return layout_first(l, p) + turn;
	return -1;
}

int layout_position(const struct layout *l, int rank)
{
	int position = 0;

	while (layout_rank(l, position) != rank)
		position++;
	return position;
}
