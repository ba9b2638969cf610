/* SPDX-License-Identifier: MIT */
/* A file's lists, of which operations call items by number: sorted once, as there may be as many operations as items. */
#ifndef SPMT_PLAN_LISTS_H
#define SPMT_PLAN_LISTS_H

#include "json.h"

struct plan_reader;

/* Where lists stand: under `key` of `of`, each in an object that says its type. Without names for these, the objects are what is called. */
struct read_where {
	const struct json_node *of;
	const char *key, *type, *items;
};

/* Items that operations call by their number among those of a type, which stand in several lists. */
struct read_list {
	const char *type;
	const struct json_node *in, *items; /* the object that has the list */
	uint32_t n, from;		    /* its items; those of its type before it */
	uint32_t at;			    /* where they begin */
};
struct read_lists {
	struct read_list *lists; /* by type, of one type as they stand */
	const struct json_node **items;
	size_t nlists, nitems;
	const struct json_node *untyped; /* the first object without a type */
};

/* What was there goes. What a failure leaves is taken by read_lists_free. */
int read_lists_fill(
	const struct plan_reader *r, const struct read_where *where, struct read_lists *x);
/* Item `nth` of the type, and its list; NULL: there are not so many. */
const struct json_node *read_lists_item(
	const struct read_lists *x, const char *type, uint64_t nth, const struct read_list **list);
void read_lists_free(struct read_lists *x);

#endif
