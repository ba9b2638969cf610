/* SPDX-License-Identifier: MIT */
/* A file's lists, of which operations call items by number. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "read.h"
#include "src/base/mem.h"
#include "src/base/status.h"

static int list_within(const struct plan_reader *r, const struct read_where *where,
	const struct json_node *in, const struct json_node **list)
{
	*list = NULL;
	return where->items ? read_array(r, in, where->items, list) : 0;
}

/* How many lists and items there are together. */
static int lists_count(
	const struct plan_reader *r, const struct read_where *where, size_t *nlists, size_t *nitems)
{
	uint64_t most =
		SPMT_PLAN_INDICES * ((uint64_t)r->plan->attr.nranks + 2) + SPMT_PLAN_SEMAPHORES;
	const struct json_node *lists, *list;
	int rc = read_array(r, where->of, where->key, &lists);

	*nlists = *nitems = 0;
	for (const struct json_node *l = rc ? NULL : json_first(&r->json, lists); !rc && l;
		l = json_next(&r->json, l)) {
		rc = list_within(r, where, l, &list);
		*nlists += 1;
		*nitems += list ? list->items : 0;
		if (!rc && *nlists + *nitems > most)
			return read_wrong(l, "%s: more than %llu for %d ranks",
				where->items ? where->items : where->key, (unsigned long long)most,
				r->plan->attr.nranks);
	}
	return rc;
}

static int list_order(const void *x, const void *y)
{
	const struct read_list *a = x, *b = y;
	int order = strcmp(a->type, b->type);

	return order ? order : (a->in > b->in) - (a->in < b->in);
}

void read_lists_free(struct read_lists *x)
{
	mem_free(x->lists);
	mem_free(x->items);
	*x = (struct read_lists){ .nlists = 0 };
}

static int lists_open(
	const struct json_node *of, size_t nlists, size_t nitems, struct read_lists *x)
{
	read_lists_free(x);
	x->lists = mem_calloc(MAX_OF(nlists, 1u), sizeof(*x->lists));
	x->items = mem_calloc(MAX_OF(nitems, 1u), sizeof(*x->items));
	return x->lists && x->items
		? 0
		: fail_call(-ENOMEM, PLAN_READ, "line %u: no memory for its lists", of->line);
}

/* In their order, which is that of the objects that have them. */
static void lists_sort(const struct plan_reader *r, struct read_lists *x)
{
	qsort(x->lists, x->nlists, sizeof(*x->lists), list_order);
	for (size_t i = 0; i < x->nlists; i++) {
		struct read_list *l = &x->lists[i];

		l->at = (uint32_t)x->nitems;
		l->from = i && !strcmp(l[-1].type, l->type) ? l[-1].from + l[-1].n : 0;
		for (const struct json_node *n = l->n ? json_first(&r->json, l->items) : NULL; n;
			n = json_next(&r->json, n))
			x->items[x->nitems++] = n;
	}
}

int read_lists_fill(
	const struct plan_reader *r, const struct read_where *where, struct read_lists *x)
{
	const struct json_node *lists;
	size_t nlists, nitems;
	int rc = lists_count(r, where, &nlists, &nitems);

	if (!rc)
		rc = lists_open(where->of, nlists, nitems, x);
	if (!rc)
		rc = read_array(r, where->of, where->key, &lists);
	for (const struct json_node *l = rc ? NULL : json_first(&r->json, lists); !rc && l;
		l = json_next(&r->json, l)) {
		const struct json_node *type =
			where->type ? json_member(&r->json, l, where->type) : NULL;
		struct read_list one = { .type = where->type ? NULL : "", .in = l };

		if (type && type->kind == JSON_STRING)
			one.type = type->text;
		if (!one.type && !x->untyped)
			x->untyped = l;
		rc = list_within(r, where, l, &one.items);
		one.n = one.items ? one.items->items : 0;
		if (one.type && (one.n || !where->items))
			x->lists[x->nlists++] = one;
	}
	if (!rc)
		lists_sort(r, x);
	return rc;
}

const struct json_node *read_lists_item(
	const struct read_lists *x, const char *type, uint64_t nth, const struct read_list **list)
{
	size_t from = 0, to = x->nlists;

	while (from < to) {
		size_t middle = from + (to - from) / 2;
		const struct read_list *l = &x->lists[middle];
		int order = strcmp(l->type, type);

		if (order < 0 || (!order && l->from <= nth))
			from = middle + 1;
		else
			to = middle;
	}
	*list = from ? &x->lists[from - 1] : NULL;
	if (!*list || strcmp((*list)->type, type) || nth - (*list)->from >= (*list)->n)
		return NULL;
	return x->items[(*list)->at + (nth - (*list)->from)];
}
