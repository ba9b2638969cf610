/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "read.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define READ_NOT_KNOWN UINT32_MAX

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

/* Of one type's items, up to the first that is no rank: what is behind that is refused where it is named. */
static void peers_count(struct plan_reader *r, size_t first, size_t last)
{
	const struct read_list *lists = r->peers.lists;
	uint32_t seen[SPMT_PLAN_RANKS] = { 0 };
	bool port = !strcmp(lists[first].type, "port"),
	     memory = !strcmp(lists[first].type, "memory"), known = true;
	size_t end = lists[last].at + lists[last].n;

	for (size_t i = lists[first].at; i < end; i++) {
		const struct json_node *n = r->peers.items[i];

		known = known && n->kind == JSON_NUMBER && n->integer &&
			n->number < (uint64_t)r->plan->attr.nranks;
		r->before[i] = known ? seen[n->number]++ : READ_NOT_KNOWN;
		if (known && (port || memory))
			r->connected[port][n->number]++;
	}
}

static int read_peers(struct plan_reader *r)
{
	const struct read_lists *x = &r->peers;

	mem_free(r->before);
	memset(r->connected, 0, sizeof(r->connected));
	r->before = mem_calloc(MAX_OF(x->nitems, 1u), sizeof(*r->before));
	if (!r->before)
		return fail_call(
			-ENOMEM, PLAN_READ, "line %u: no memory for its channels", r->gpu->line);
	for (size_t last, first = 0; first < x->nlists; first = last + 1) {
		last = first;
		while (last + 1 < x->nlists && x->lists[last + 1].from)
			last++;
		peers_count(r, first, last);
	}
	return 0;
}

int read_gpu_lists(struct plan_reader *r)
{
	const struct read_where peers = { r->gpu, "channels", "channel_type", "connected_to" },
				groups = { r->gpu, "channels", "channel_type", "rank_groups" },
				buffers = { r->gpu, "remote_buffers", NULL, NULL };
	int rc = read_lists_fill(r, &peers, &r->peers);

	if (!rc)
		rc = read_lists_fill(r, &groups, &r->groups);
	if (!rc)
		rc = read_lists_fill(r, &buffers, &r->buffers);
	return rc ? rc : read_peers(r);
}

int read_block_lists(struct plan_reader *r)
{
	const struct read_where channels = { r->threadblock, "channels", "channel_type",
		"channel_ids" },
				refs = { r->threadblock, "remote_buffer_refs",
					"access_channel_type", "remote_buffer_ids" };
	int rc = read_lists_fill(r, &channels, &r->channels);

	return rc ? rc : read_lists_fill(r, &refs, &r->refs);
}

void read_lists_close(struct plan_reader *r)
{
	read_lists_free(&r->peers);
	read_lists_free(&r->groups);
	read_lists_free(&r->buffers);
	read_lists_free(&r->channels);
	read_lists_free(&r->refs);
	mem_free(r->before);
	r->before = NULL;
}

bool read_is_type(const struct plan_reader *r, const struct json_node *of, const char *type)
{
	const struct json_node *n = json_member(&r->json, of, "channel_type");

	return n && n->kind == JSON_STRING && !strcmp(n->text, type);
}

int read_block_channel(const struct plan_reader *r, const struct json_node *op, const char *type,
	uint64_t nth, uint64_t *number)
{
	const struct read_list *l;
	const struct json_node *id = read_lists_item(&r->channels, type, nth, &l);

	*number = 0;
	if (!id)
		return read_wrong(
			op, "the block has no such %.*s channel", json_quoted(type), type);
	return read_element(id, "channel_ids", nth - l->from, UINT32_MAX, number);
}

/* Channel `last` is none: there are less, or one up to it has no rank. */
static int read_no_channel(
	const struct plan_reader *r, const struct json_node *op, const char *type, uint64_t last)
{
	uint64_t peer, most = (uint64_t)r->plan->attr.nranks - 1;
	const struct read_list *l;
	const struct json_node *n;
	int rc = 0;

	for (uint64_t i = 0; i <= last && !rc && (n = read_lists_item(&r->peers, type, i, &l)); i++)
		rc = read_element(n, "connected_to", i - l->from, most, &peer);
	return rc ? rc
		  : read_wrong(op, "the GPU has no %.*s channel %llu", json_quoted(type), type,
			    (unsigned long long)last);
}

int read_gpu_channel(const struct plan_reader *r, const struct json_node *op, const char *type,
	uint64_t number, int *peer, int *index)
{
	const struct read_list *l;
	const struct json_node *n = read_lists_item(&r->peers, type, number, &l);
	bool port = !strcmp(type, "port");
	uint32_t before = n ? r->before[l->at + (number - l->from)] : READ_NOT_KNOWN;
	uint64_t to;

	if (before == READ_NOT_KNOWN)
		return read_no_channel(r, op, type, number);
	to = n->number;
	if (before + r->connected[!port][to] >= SPMT_PLAN_INDICES)
		return read_wrong(op, "there are more than %d channels to rank %llu",
			SPMT_PLAN_INDICES, (unsigned long long)to);
	*peer = (int)to;
	*index = port ? SPMT_PLAN_INDICES - 1 - (int)before : (int)before;
	return 0;
}

/* ---- chunks ----------------------------------------------------------------------------------- */

/* What the block calls remote buffer `nth` for channels of this type. */
static int remote_buffer(const struct plan_reader *r, const struct json_node *op, uint64_t nth,
	struct spmt_plan_chunk *c)
{
	const struct read_lists *refs = &r->refs, *all = &r->buffers;
	const struct read_list *l;
	const struct json_node *id, *b;
	const char *type;
	uint64_t number = 0, rank;
	int rc = read_word(r, op, "channel_type", &type);

	if (rc)
		return rc;
	id = read_lists_item(refs, type, nth, &l);
	if (refs->untyped && (!id || refs->untyped < l->in))
		return read_word(r, refs->untyped, "access_channel_type", &type);
	if (id)
		rc = read_element(id, "remote_buffer_ids", nth - l->from, UINT32_MAX, &number);
	b = !rc && id && number < all->nlists ? all->lists[number].in : NULL;
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
	const struct read_list *l;
	const struct json_node *group;
	uint64_t number;
	int rc = read_block_channel(r, op, "switch", nth, &number);

	if (rc)
		return rc;
	group = read_lists_item(&r->groups, "switch", number, &l);
	if (!group)
		return read_wrong(op, "the GPU has no such switch channel");
	rc = read_buffer(
		r, l->in, json_member(&r->json, l->in, "buff") ? "buff" : "buffer_type", buffer);
	return rc ? rc : read_array(r, group, "ranks", ranks);
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
