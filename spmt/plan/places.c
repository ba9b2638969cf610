/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "read.h"
#include "src/base/status.h"

int read_wrong(const struct json_node *at, const char *fmt, ...)
{
	char why[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	return fail_call(-EINVAL, PLAN_READ, "line %u: %s", at->line, why);
}

/* ---- members ---------------------------------------------------------------------------------- */

int read_number(const struct plan_reader *r, const struct json_node *of, const char *key,
	uint64_t most, uint64_t missing, uint64_t *number)
{
	const struct json_node *n = json_member(&r->json, of, key);

	*number = 0;
	if (!n && missing > most)
		return read_wrong(of, "%s is missing", key);
	if (n && (n->kind != JSON_NUMBER || !n->integer || n->number > most))
		return read_wrong(
			n, "%s is no number from 0 to %llu", key, (unsigned long long)most);
	*number = n ? n->number : missing;
	return 0;
}

int read_word(
	const struct plan_reader *r, const struct json_node *of, const char *key, const char **word)
{
	const struct json_node *n = json_member(&r->json, of, key);

	*word = "";
	if (!n || n->kind != JSON_STRING)
		return read_wrong(n ? n : of, "%s is %s", key, n ? "no string" : "missing");
	*word = n->text;
	return 0;
}

int read_array(const struct plan_reader *r, const struct json_node *of, const char *key,
	const struct json_node **array)
{
	const struct json_node *n = json_member(&r->json, of, key);

	*array = NULL;
	if (n && n->kind != JSON_ARRAY)
		return read_wrong(n, "%s is no array", key);
	*array = n;
	return 0;
}

int read_element(
	const struct json_node *n, const char *key, uint64_t nth, uint64_t most, uint64_t *number)
{
	*number = 0;
	if (n->kind != JSON_NUMBER || !n->integer || n->number > most)
		return read_wrong(n, "%s[%llu] is no number from 0 to %llu", key,
			(unsigned long long)nth, (unsigned long long)most);
	*number = n->number;
	return 0;
}

int read_item(const struct plan_reader *r, const struct json_node *of,
	const struct json_node *array, const char *key, uint64_t nth, uint64_t most,
	uint64_t *number)
{
	const struct json_node *n = json_item(&r->json, array, nth);

	*number = 0;
	if (!n)
		return read_wrong(
			array ? array : of, "there is no %s[%llu]", key, (unsigned long long)nth);
	return read_element(n, key, nth, most, number);
}

static int read_buffer(const struct plan_reader *r, const struct json_node *of, const char *key,
	enum spmt_plan_buffer *buffer)
{
	const char *word;
	int rc = read_word(r, of, key, &word);

	if (rc)
		return rc;
	if (!word[0] || word[1] || !strchr("ios", word[0]))
		return read_wrong(of, "%s is none of i, o and s", key);
	*buffer = word[0] == 'i' ? SPMT_PLAN_INPUT
		: word[0] == 'o' ? SPMT_PLAN_OUTPUT
				 : SPMT_PLAN_SCRATCH;
	return 0;
}

/* ---- channels --------------------------------------------------------------------------------- */

/* The lists behind `key` in all of `lists`, with these, together. */
static int read_lists(
	const struct plan_reader *r, const struct json_node *of, const char *key, const char *inner)
{
	uint64_t n = 0,
		 most = SPMT_PLAN_INDICES * ((uint64_t)r->plan->attr.nranks + 2) +
		SPMT_PLAN_SEMAPHORES;
	const struct json_node *lists, *list = NULL;
	int rc = read_array(r, of, key, &lists);

	for (const struct json_node *l = rc ? NULL : json_first(&r->json, lists); !rc && l;
		l = json_next(&r->json, l)) {
		if (inner)
			rc = read_array(r, l, inner, &list);
		n += 1 + (list ? list->items : 0);
		if (!rc && n > most)
			return read_wrong(l, "%s: more than %llu for %d ranks", inner ? inner : key,
				(unsigned long long)most, r->plan->attr.nranks);
	}
	return rc;
}

int read_gpu_lists(const struct plan_reader *r)
{
	int rc = read_lists(r, r->gpu, "channels", "connected_to");

	if (!rc)
		rc = read_lists(r, r->gpu, "channels", "rank_groups");
	return rc ? rc : read_lists(r, r->gpu, "remote_buffers", NULL);
}

int read_block_lists(const struct plan_reader *r)
{
	int rc = read_lists(r, r->threadblock, "channels", "channel_ids");

	return rc ? rc : read_lists(r, r->threadblock, "remote_buffer_refs", "remote_buffer_ids");
}

bool read_is_type(const struct plan_reader *r, const struct json_node *of, const char *type)
{
	const struct json_node *n = json_member(&r->json, of, "channel_type");

	return n && n->kind == JSON_STRING && !strcmp(n->text, type);
}

int read_block_channel(const struct plan_reader *r, const struct json_node *op, const char *type,
	uint64_t nth, uint64_t *number)
{
	const struct json_node *lists, *ids;
	int rc = read_array(r, r->threadblock, "channels", &lists);

	for (const struct json_node *l = json_first(&r->json, lists); !rc && l;
		l = json_next(&r->json, l)) {
		if (!read_is_type(r, l, type))
			continue;
		rc = read_array(r, l, "channel_ids", &ids);
		if (!rc && ids && nth < ids->items)
			return read_item(r, l, ids, "channel_ids", nth, UINT32_MAX, number);
		nth -= !rc && ids ? ids->items : 0;
	}
	return rc ? rc : read_wrong(op, "the block has no such %s channel", type);
}

/* How many channels of the type a GPU has to a peer. */
static uint64_t connected(const struct plan_reader *r, const char *type, uint64_t to)
{
	uint64_t n = 0;

	for (const struct json_node *l =
			json_first(&r->json, json_member(&r->json, r->gpu, "channels"));
		l; l = json_next(&r->json, l)) {
		const struct json_node *peers = json_member(&r->json, l, "connected_to");

		for (const struct json_node *p = json_first(&r->json, peers);
			p && read_is_type(r, l, type); p = json_next(&r->json, p))
			n += p->number == to;
	}
	return n;
}

int read_gpu_channel(const struct plan_reader *r, const struct json_node *op, const char *type,
	uint64_t number, int *peer, int *index)
{
	uint64_t n = (uint64_t)r->plan->attr.nranks - 1, to = 0, at = number;
	const struct json_node *lists, *peers;
	uint64_t before[SPMT_PLAN_RANKS] = { 0 };
	bool port = !strcmp(type, "port");
	int rc = read_array(r, r->gpu, "channels", &lists);
	bool found = false;

	for (const struct json_node *l = json_first(&r->json, lists); !rc && !found && l;
		l = json_next(&r->json, l)) {
		if (!read_is_type(r, l, type))
			continue;
		rc = read_array(r, l, "connected_to", &peers);
		const struct json_node *p = rc ? NULL : json_first(&r->json, peers);

		for (uint64_t i = 0; !rc && !found && p; p = json_next(&r->json, p)) {
			rc = read_element(p, "connected_to", i++, n, &to);
			found = !rc && at-- == 0;
			before[rc ? 0 : to] += !found;
		}
	}
	if (rc)
		return rc;
	if (!found)
		return read_wrong(
			op, "the GPU has no %s channel %llu", type, (unsigned long long)number);
	if (before[to] + connected(r, port ? "memory" : "port", to) >= SPMT_PLAN_INDICES)
		return read_wrong(op, "there are more than %d channels to rank %llu",
			SPMT_PLAN_INDICES, (unsigned long long)to);
	*peer = (int)to;
	*index = port ? SPMT_PLAN_INDICES - 1 - (int)before[to] : (int)before[to];
	return 0;
}

/* ---- chunks ----------------------------------------------------------------------------------- */

/* What the block calls remote buffer `nth` for channels of this type. */
static int remote_buffer(const struct plan_reader *r, const struct json_node *op, uint64_t nth,
	struct spmt_plan_chunk *c)
{
	const struct json_node *refs, *ids, *buffers, *b;
	const char *type, *of;
	uint64_t number = 0, rank;
	int rc = read_array(r, r->threadblock, "remote_buffer_refs", &refs);
	bool found = false;

	if (!rc)
		rc = read_word(r, op, "channel_type", &type);
	for (const struct json_node *l = json_first(&r->json, refs); !rc && !found && l;
		l = json_next(&r->json, l)) {
		rc = read_word(r, l, "access_channel_type", &of);
		if (rc || strcmp(of, type))
			continue;
		rc = read_array(r, l, "remote_buffer_ids", &ids);
		found = !rc && ids && nth < ids->items;
		if (found)
			rc = read_item(r, l, ids, "remote_buffer_ids", nth, UINT32_MAX, &number);
		else
			nth -= !rc && ids ? ids->items : 0;
	}
	if (!rc)
		rc = read_array(r, r->gpu, "remote_buffers", &buffers);
	b = rc || !found ? NULL : json_item(&r->json, buffers, number);
	if (!rc && !b)
		return read_wrong(op, "the block has no such remote buffer");
	if (!rc)
		rc = read_buffer(r, b, "type", &c->buffer);
	if (!rc)
		rc = read_number(
			r, b, "rank", (uint64_t)r->plan->attr.nranks - 1, READ_MUST, &rank);
	if (!rc)
		c->rank = (int)rank;
	return rc;
}

/* A switch channel of the block: its buffer, and the ranks that have it. */
static int switch_group(const struct plan_reader *r, const struct json_node *op, uint64_t nth,
	enum spmt_plan_buffer *buffer, const struct json_node **ranks)
{
	const struct json_node *lists, *groups;
	uint64_t number;
	int rc = read_block_channel(r, op, "switch", nth, &number);

	if (!rc)
		rc = read_array(r, r->gpu, "channels", &lists);
	for (const struct json_node *l = rc ? NULL : json_first(&r->json, lists); !rc && l;
		l = json_next(&r->json, l)) {
		if (!read_is_type(r, l, "switch"))
			continue;
		rc = read_array(r, l, "rank_groups", &groups);
		if (!rc && groups && number < groups->items) {
			rc = read_buffer(r, l,
				json_member(&r->json, l, "buff") ? "buff" : "buffer_type", buffer);
			return rc ? rc
				  : read_array(
					    r, json_item(&r->json, groups, number), "ranks", ranks);
		}
		number -= !rc && groups ? groups->items : 0;
	}
	return rc ? rc : read_wrong(op, "the GPU has no such switch channel");
}

static int side_add(
	const struct json_node *at, struct read_side *s, const struct spmt_plan_chunk *c)
{
	if (s->n == SPMT_PLAN_TERMS)
		return read_wrong(at, "more than %d buffers", SPMT_PLAN_TERMS);
	s->c[s->n++] = *c;
	return 0;
}

/* Each rank of a group once, and this one among them: a group that lacks it would be another operation here than for the others. */
static int switch_ranks(const struct plan_reader *r, const struct json_node *op,
	const struct json_node *ranks, bool *has)
{
	uint64_t rank, i = 0;
	int n = r->plan->attr.nranks;

	if (!ranks || !ranks->items)
		return read_wrong(ranks ? ranks : op, "the switch channel's group has no ranks");
	if (ranks->items > (uint32_t)n)
		return read_wrong(ranks, "the switch channel's group has %u ranks, the plan %d",
			ranks->items, n);
	for (const struct json_node *at = json_first(&r->json, ranks); at;
		at = json_next(&r->json, at)) {
		int rc = read_element(at, "ranks", i++, (uint64_t)n - 1, &rank);

		if (rc)
			return rc;
		if (has[rank])
			return read_wrong(
				at, "the switch channel's group has rank %d twice", (int)rank);
		has[rank] = true;
	}
	return has[r->rank]
		? 0
		: read_wrong(ranks, "rank %d uses the switch channel, and is not in its group",
			  r->rank);
}

static int read_switched(const struct plan_reader *r, const struct json_node *op,
	const struct json_node *buff, uint64_t nth, struct spmt_plan_chunk c, struct read_side *s)
{
	const struct json_node *ranks = NULL;
	bool has[SPMT_PLAN_RANKS] = { false };
	int rc = switch_group(r, op, nth, &c.buffer, &ranks);

	if (!rc)
		rc = switch_ranks(r, op, ranks, has);
	c.rank = r->rank;
	if (!rc)
		rc = side_add(buff, s, &c);
	for (const struct json_node *n = rc ? NULL : json_first(&r->json, ranks); !rc && n;
		n = json_next(&r->json, n)) {
		c.rank = (int)n->number;
		if (c.rank != r->rank)
			rc = side_add(buff, s, &c);
	}
	return rc;
}

static int read_chunk(const struct plan_reader *r, const struct json_node *op,
	const struct json_node *buff, struct read_side *s)
{
	struct spmt_plan_chunk c = { .rank = r->rank };
	uint64_t index, count, id;
	int rc = read_number(r, buff, "index", UINT32_MAX, READ_MUST, &index);

	if (!rc)
		rc = read_number(r, buff, "size", UINT32_MAX, READ_MUST, &count);
	if (!rc)
		rc = read_number(r, buff, "rank", UINT32_MAX, (uint64_t)r->rank, &id);
	if (rc)
		return rc;
	if (id != (uint64_t)r->rank)
		return read_wrong(buff, "rank %llu has a chunk in an operation of rank %d",
			(unsigned long long)id, r->rank);
	c.index = (uint32_t)index;
	c.count = (uint32_t)count;
	if (json_member(&r->json, buff, "switch_channel_id")) {
		rc = read_number(r, buff, "switch_channel_id", UINT32_MAX, READ_MUST, &id);
		return rc ? rc : read_switched(r, op, buff, id, c, s);
	}
	if (json_member(&r->json, buff, "buffer_id")) {
		rc = read_number(r, buff, "buffer_id", UINT32_MAX, READ_MUST, &id);
		if (!rc)
			rc = remote_buffer(r, op, id, &c);
	} else {
		rc = read_buffer(r, buff, "type", &c.buffer);
	}
	return rc ? rc : side_add(buff, s, &c);
}

static int read_side(const struct plan_reader *r, const struct json_node *op, const char *key,
	struct read_side *s)
{
	const struct json_node *array;
	int rc = read_array(r, op, key, &array);

	s->n = 0;
	for (const struct json_node *b = json_first(&r->json, array); !rc && b;
		b = json_next(&r->json, b))
		rc = read_chunk(r, op, b, s);
	return rc;
}

int read_sides(const struct plan_reader *r, const struct json_node *op, struct read_side *src,
	struct read_side *dst)
{
	int rc = read_side(r, op, "src_buff", src);

	return rc ? rc : read_side(r, op, "dst_buff", dst);
}

int read_group_sides(const struct plan_reader *r, const struct json_node *op, struct read_side *src,
	struct read_side *dst)
{
	struct spmt_plan_chunk c = { .rank = r->rank };
	const struct json_node *ids, *to = json_member(&r->json, op, "dst_chunk");
	uint64_t index, count, id;
	int rc = read_number(r, op, "buffer_offset", UINT32_MAX, READ_MUST, &index);

	src->n = dst->n = 0;
	if (!rc)
		rc = read_number(r, op, "size", UINT32_MAX, READ_MUST, &count);
	if (!rc)
		rc = read_array(r, op, "channel_ids", &ids);
	if (!rc)
		rc = read_item(r, op, ids, "channel_ids", 0, UINT32_MAX, &id);
	if (rc)
		return rc;
	if (ids->items > 1 || !to)
		return read_wrong(
			op, "%s", to ? "channel_ids has more than one" : "dst_chunk is missing");
	c.index = (uint32_t)index;
	c.count = (uint32_t)count;
	rc = read_switched(r, op, op, id, c, src);
	return rc ? rc : read_chunk(r, op, to, dst);
}
