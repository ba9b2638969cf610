/* SPDX-License-Identifier: MIT */
/* JSON (RFC 8259) as a tree. Numbers are kept where they are integers of 64 bits, strings with their escapes undone. */
#ifndef SPMT_PLAN_JSON_H
#define SPMT_PLAN_JSON_H

#include "src/base/base.h"

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_node {
	enum json_kind kind;
	unsigned line;	      /* from 1 */
	const char *key;      /* of a member, else NULL */
	const char *text;     /* of a string */
	uint64_t number;      /* of a bool 0 or 1 */
	bool integer;	      /* number is one that is not below 0 and fits */
	uint32_t items;	      /* of an array or object */
	uint32_t first, next; /* 0: none */
};

struct json {
	struct json_node *nodes; /* [0] is not used, [1] is the root */
	uint32_t n;
	char *strings;
};

/* Of a text; more than the longest plan has, unless its operations have many chunks. A node is 48 bytes. */
#define JSON_VALUES (1u << 27)
/* -EINVAL and a sentence with `what` and, but for what has too many values, the line; -ENOMEM. json_close takes one that failed. */
int json_open(struct json *json, const char *what, const char *text, size_t size);
void json_close(struct json *json);

static inline const struct json_node *json_first(const struct json *j, const struct json_node *n)
{
	return n && n->first ? &j->nodes[n->first] : NULL;
}

static inline const struct json_node *json_next(const struct json *j, const struct json_node *n)
{
	return n->next ? &j->nodes[n->next] : NULL;
}

/* How many bytes of a string a sentence quotes, by "%.*s": 32 at most, and whole characters. */
int json_quoted(const char *text);
/* NULL: it is no object, or has no such member; of one that stands twice the first. */
const struct json_node *json_member(
	const struct json *j, const struct json_node *object, const char *key);
/* NULL: it is no array, or shorter. */
const struct json_node *json_item(
	const struct json *j, const struct json_node *array, uint64_t nth);

#endif
