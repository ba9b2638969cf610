/* SPDX-License-Identifier: MIT */
/*
 * Execution plans of MSCCL++ 0.8 and 0.9, as their DSL writes them. What is another matter here:
 *	- `nop` and `flush` are dropped: an operation begins when the last one of its block is done;
 *	- operations on several buffers or channels become one each, in order;
 *	- a pipeline is gone through once, for all of its chunks: scratch here is as large as they are;
 *	- port channels are channels like the others, switch channels their ranks one by one;
 *	- the op is that of the run, whatever reduce_op says.
 */
#include <errno.h>
#include <string.h>

#include "read.h"
#include "src/base/status.h"

/* What another call refuses of what stands there. */
static int read_refused(const struct json_node *at, int rc)
{
	return rc == -EINVAL ? read_wrong(at, "%s", status_sentence()) : rc;
}

/* ---- operations ------------------------------------------------------------------------------- */

static int read_add(
	const struct plan_reader *r, const struct json_node *at, struct spmt_plan_op *op)
{
	op->size = sizeof(*op);
	return read_refused(at, spmt_plan_add(r->plan, r->rank, r->block, op));
}

/* To or from what the block calls channel `id`. */
static int read_signal_by(const struct plan_reader *r, const struct json_node *op,
	enum spmt_plan_kind kind, const char *type, uint64_t id)
{
	struct spmt_plan_op one = { .kind = kind };
	uint64_t number;
	int rc = read_block_channel(r, op, type, id, &number);

	if (!rc)
		rc = read_gpu_channel(r, op, type, number, &one.peer, &one.index);
	return rc ? rc : read_add(r, op, &one);
}

/* To or from the op's channel `nth`. */
static int read_signal(const struct plan_reader *r, const struct json_node *op,
	enum spmt_plan_kind kind, uint64_t nth)
{
	const char *type;
	const struct json_node *ids;
	uint64_t id;
	int rc = read_word(r, op, "channel_type", &type);

	if (!rc)
		rc = read_array(r, op, "channel_ids", &ids);
	if (!rc)
		rc = read_item(r, op, ids, "channel_ids", nth, UINT32_MAX, &id);
	return rc ? rc : read_signal_by(r, op, kind, type, id);
}

static int read_signals(
	const struct plan_reader *r, const struct json_node *op, enum spmt_plan_kind kind)
{
	const char *type;
	const struct json_node *ids = NULL;
	uint64_t id, i = 0;
	int rc = read_word(r, op, "channel_type", &type);

	if (!rc)
		rc = read_array(r, op, "channel_ids", &ids);
	if (!rc && !ids)
		return read_wrong(op, "channel_ids is missing");
	for (const struct json_node *n = json_first(&r->json, ids); !rc && n;
		n = json_next(&r->json, n)) {
		rc = read_element(n, "channel_ids", i++, UINT32_MAX, &id);
		if (!rc)
			rc = read_signal_by(r, op, kind, type, id);
	}
	return rc;
}

static int read_part(
	const struct plan_reader *r, const struct json_node *op, struct spmt_plan_op *one)
{
	const struct json_node *info = json_member(&r->json, op, "tbg_info");
	uint64_t slice, slices;
	int rc;

	if (!info)
		return 0;
	rc = read_number(r, info, "tb_id", 1023, READ_MUST, &slice);
	if (!rc)
		rc = read_number(r, info, "tbg_size", 1024, READ_MUST, &slices);
	if (rc)
		return rc;
	one->slice = (int)slice;
	one->slices = (int)slices;
	return 0;
}

static bool same_chunk(const struct spmt_plan_chunk *a, const struct spmt_plan_chunk *b)
{
	return a->rank == b->rank && a->buffer == b->buffer && a->index == b->index &&
		a->count == b->count;
}

/* src[i] to dst[i]; of one src all of dst. */
static int read_pairs(const struct plan_reader *r, const struct json_node *op,
	enum spmt_plan_kind kind, bool signals)
{
	struct read_side src, dst;
	int rc = read_sides(r, op, &src, &dst);

	if (!rc && (!src.n || !dst.n || (src.n != dst.n && src.n != 1)))
		return read_wrong(op, "%d buffers in src_buff, %d in dst_buff", src.n, dst.n);
	for (int i = 0; !rc && i < dst.n; i++) {
		struct spmt_plan_op one = { .kind = kind, .nsrc = 1, .ndst = 1 };

		one.src[0] = src.c[src.n == 1 ? 0 : i];
		one.dst[0] = dst.c[i];
		if (kind == SPMT_PLAN_PUT && one.dst[0].rank == r->rank) { /* of a switch */
			one.kind = SPMT_PLAN_COPY;
			if (same_chunk(&one.dst[0], &one.src[0]))
				continue;
		}
		rc = read_part(r, op, &one);
		if (!rc)
			rc = read_add(r, op, &one);
		if (!rc && signals)
			rc = read_signal(r, op, SPMT_PLAN_SIGNAL, (uint64_t)i);
	}
	return rc;
}

/* How an operation of this name is read. */
enum read_how {
	READ_NOTHING,
	READ_PAIRS,
	READ_PAIRS_AND_SIGNALS,
	READ_TERMS,
	READ_GROUP_LOAD,
	READ_GROUP_STORE,
	READ_SIGNALS,
	READ_SEMAPHORES,
	READ_BARRIER,
	READ_PIPELINE
};

static int read_terms(const struct plan_reader *r, const struct json_node *op, enum read_how how,
	enum spmt_plan_kind kind)
{
	struct spmt_plan_op one = { .kind = kind };
	struct read_side src, dst;
	int rc = (how == READ_GROUP_LOAD ? read_group_sides : read_sides)(r, op, &src, &dst);

	if (!rc)
		rc = read_part(r, op, &one);
	if (rc)
		return rc;
	one.nsrc = src.n;
	memcpy(one.src, src.c, sizeof(one.src[0]) * (size_t)src.n);
	for (int i = 0; i < dst.n; i++) /* a switch stores to where they are, too */
		if (how != READ_GROUP_STORE || !src.n || !same_chunk(&dst.c[i], &src.c[0]))
			one.dst[one.ndst++] = dst.c[i];
	return dst.n && !one.ndst ? 0 : read_add(r, op, &one);
}

static int read_semaphores(
	const struct plan_reader *r, const struct json_node *op, enum spmt_plan_kind kind)
{
	const struct json_node *ids, *all = NULL;
	uint64_t id, initial = 0, i = 0;
	int rc = read_array(r, op, "semaphore_ids", &ids);

	if (!rc && !ids)
		return read_wrong(op, "semaphore_ids is missing");
	if (!rc)
		rc = read_array(r, r->gpu, "semaphores", &all);
	for (const struct json_node *s, *n = json_first(&r->json, ids); !rc && n;
		n = json_next(&r->json, n)) {
		rc = read_element(n, "semaphore_ids", i++, SPMT_PLAN_SEMAPHORES - 1, &id);
		s = rc ? NULL : json_item(&r->json, all, id);
		if (!rc && !s)
			return read_wrong(
				op, "the GPU has no semaphore %llu", (unsigned long long)id);
		if (!rc)
			rc = read_number(r, s, "init_value", INT32_MAX, READ_MUST, &initial);
		if (!rc)
			rc = read_add(r, op,
				&(struct spmt_plan_op){ .kind = kind,
					.index = (int)id,
					.initial = kind == SPMT_PLAN_ACQUIRE ? (int)initial : 0 });
	}
	return rc;
}

static int read_barrier(const struct plan_reader *r, const struct json_node *op)
{
	uint64_t index, blocks;
	int rc = read_number(r, op, "barrier_id", SPMT_PLAN_INDICES - 1, READ_MUST, &index);

	if (!rc)
		rc = read_number(r, op, "num_threadblocks", SPMT_PLAN_BLOCKS, READ_MUST, &blocks);
	return rc ? rc
		  : read_add(r, op,
			    &(struct spmt_plan_op){ .kind = SPMT_PLAN_BARRIER,
				    .index = (int)index,
				    .blocks = (int)blocks });
}

static const struct {
	const char *name;
	enum read_how how;
	enum spmt_plan_kind kind;
} read_ops[] = {
	{ "nop", READ_NOTHING, SPMT_PLAN_COPY },
	{ "flush", READ_NOTHING, SPMT_PLAN_COPY },
	{ "put", READ_PAIRS, SPMT_PLAN_PUT },
	{ "pws", READ_PAIRS_AND_SIGNALS, SPMT_PLAN_PUT },
	{ "pwsf", READ_PAIRS_AND_SIGNALS, SPMT_PLAN_PUT },
	{ "get", READ_PAIRS, SPMT_PLAN_GET },
	{ "copy", READ_PAIRS, SPMT_PLAN_COPY },
	{ "re", READ_TERMS, SPMT_PLAN_REDUCE },
	{ "res", READ_TERMS, SPMT_PLAN_REDUCE },
	{ "rre", READ_TERMS, SPMT_PLAN_REDUCE },
	{ "rres", READ_TERMS, SPMT_PLAN_REDUCE },
	{ "glre", READ_GROUP_LOAD, SPMT_PLAN_REDUCE },
	{ "glres", READ_TERMS, SPMT_PLAN_REDUCE },
	{ "gstore", READ_PAIRS, SPMT_PLAN_PUT },
	{ "gstorepkt", READ_GROUP_STORE, SPMT_PLAN_SEND_PACKETS_ON },
	{ "ppkt", READ_PAIRS, SPMT_PLAN_PUT_PACKETS },
	{ "cpkt", READ_PAIRS, SPMT_PLAN_PUT_PACKETS },
	{ "upkt", READ_PAIRS, SPMT_PLAN_UNPACK_PACKETS },
	{ "rppkt", READ_TERMS, SPMT_PLAN_SEND_PACKETS_ON },
	{ "repkt", READ_TERMS, SPMT_PLAN_REDUCE_PACKETS },
	{ "respkt", READ_TERMS, SPMT_PLAN_REDUCE_PACKETS },
	{ "recpkt", READ_TERMS, SPMT_PLAN_REDUCE_PACKETS },
	{ "recspkt", READ_TERMS, SPMT_PLAN_REDUCE_PACKETS },
	{ "signal", READ_SIGNALS, SPMT_PLAN_SIGNAL },
	{ "wait", READ_SIGNALS, SPMT_PLAN_WAIT },
	{ "rlxsignal", READ_SIGNALS, SPMT_PLAN_SIGNAL_RELAXED },
	{ "rlxwait", READ_SIGNALS, SPMT_PLAN_WAIT_RELAXED },
	{ "sem_release", READ_SEMAPHORES, SPMT_PLAN_RELEASE },
	{ "sem_acquire", READ_SEMAPHORES, SPMT_PLAN_ACQUIRE },
	{ "barrier", READ_BARRIER, SPMT_PLAN_BARRIER },
	{ "pipeline", READ_PIPELINE, SPMT_PLAN_COPY },
};

static int read_ops_of(const struct plan_reader *r, const struct json_node *of, bool in_pipeline);

static int read_op(const struct plan_reader *r, const struct json_node *op, bool in_pipeline)
{
	const char *name;
	size_t i = 0;
	int rc = read_word(r, op, "name", &name);

	if (rc)
		return rc;
	while (i < ARRAY_SIZE(read_ops) && strcmp(read_ops[i].name, name))
		i++;
	if (i == ARRAY_SIZE(read_ops) || (in_pipeline && read_ops[i].how == READ_PIPELINE))
		return read_wrong(op, "an operation %.*s is none of those that plans have here",
			json_quoted(name), name);
	switch (read_ops[i].how) {
	case READ_PAIRS:
		/* through a port the packets are there already, and are sent as they are */
		if (!strcmp(name, "ppkt") && read_is_type(r, op, "port"))
			return read_pairs(r, op, SPMT_PLAN_SEND_PACKETS_ON, false);
		return read_pairs(r, op, read_ops[i].kind, false);
	case READ_PAIRS_AND_SIGNALS:
		return read_pairs(r, op, read_ops[i].kind, true);
	case READ_TERMS:
	case READ_GROUP_LOAD:
	case READ_GROUP_STORE:
		return read_terms(r, op, read_ops[i].how, read_ops[i].kind);
	case READ_SIGNALS:
		return read_signals(r, op, read_ops[i].kind);
	case READ_SEMAPHORES:
		return read_semaphores(r, op, read_ops[i].kind);
	case READ_BARRIER:
		return read_barrier(r, op);
	case READ_PIPELINE:
		return read_ops_of(r, op, true);
	default:
		return 0;
	}
}

static int read_ops_of(const struct plan_reader *r, const struct json_node *of, bool in_pipeline)
{
	const struct json_node *ops;
	int rc = read_array(r, of, "ops", &ops);

	for (const struct json_node *op = rc ? NULL : json_first(&r->json, ops); !rc && op;
		op = json_next(&r->json, op))
		rc = read_op(r, op, in_pipeline);
	return rc;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* Of a list as long as that without the id: what is there instead, if it is twice. */
static int read_missing(const struct plan_reader *r, const struct json_node *of,
	const struct json_node *list, uint64_t id)
{
	for (const struct json_node *n = json_first(&r->json, list); n; n = json_next(&r->json, n))
		for (const struct json_node *m = json_next(&r->json, n); m;
			m = json_next(&r->json, m))
			if (json_member(&r->json, n, "id")->number ==
				json_member(&r->json, m, "id")->number)
				return read_wrong(m, "id %llu is a duplicate: line %u has it",
					(unsigned long long)json_member(&r->json, m, "id")->number,
					n->line);
	return read_wrong(of, "none of the %u has id %llu", list->items, (unsigned long long)id);
}

/* Of a list whose items have an id: the one with this. */
static int read_by_id(const struct plan_reader *r, const struct json_node *of,
	const struct json_node *list, uint64_t id, const struct json_node **item)
{
	for (const struct json_node *n = json_first(&r->json, list); n;
		n = json_next(&r->json, n)) {
		uint64_t own;
		int rc = read_number(r, n, "id", UINT32_MAX, READ_MUST, &own);

		if (rc)
			return rc;
		if (own == id) {
			*item = n;
			return 0;
		}
	}
	return read_missing(r, of, list, id);
}

static int read_gpu(struct plan_reader *r)
{
	const struct json_node *blocks;
	int rc = read_by_id(r, r->gpus, r->gpus, (uint64_t)r->rank, &r->gpu);

	if (!rc)
		rc = read_gpu_lists(r);
	if (!rc)
		rc = read_array(r, r->gpu, "threadblocks", &blocks);
	if (!rc && blocks && blocks->items > SPMT_PLAN_BLOCKS)
		return read_wrong(blocks, "more than %d threadblocks", SPMT_PLAN_BLOCKS);
	for (r->block = 0; !rc && blocks && r->block < (int)blocks->items; r->block++) {
		rc = read_by_id(r, blocks, blocks, (uint64_t)r->block, &r->threadblock);
		if (!rc)
			rc = read_block_lists(r);
		if (!rc)
			rc = read_ops_of(r, r->threadblock, false);
	}
	return rc;
}

/* Chunks of a buffer: of input and output as many on all GPUs, of scratch those of the one that has most. */
static int read_chunks(const struct plan_reader *r, const char *key, bool same, uint32_t *chunks)
{
	uint64_t most = 0, n;
	bool first = true;

	for (const struct json_node *g = json_first(&r->json, r->gpus); g;
		g = json_next(&r->json, g), first = false) {
		int rc = read_number(r, g, key, UINT32_MAX, READ_MUST, &n);

		if (rc)
			return rc;
		if (same && !first && n != most)
			return read_wrong(g, "%s is %llu here, and %llu on the GPU before", key,
				(unsigned long long)n, (unsigned long long)most);
		most = MAX_OF(most, n);
	}
	*chunks = (uint32_t)most;
	return 0;
}

static int read_attr(struct plan_reader *r, const struct json_node *root, struct spmt_plan_attr *a)
{
	uint64_t in_place;
	const struct json_node *place = json_member(&r->json, root, "inplace");
	int rc = read_word(r, root, "name", &a->name);

	if (!rc)
		rc = read_word(r, root, "collective", &a->collective);
	if (!rc && place && place->kind != JSON_BOOL)
		rc = read_wrong(place, "inplace is neither true nor false");
	in_place = place ? place->number : 0;
	if (!rc)
		rc = read_number(r, root, "min_message_size", UINT64_MAX - 1, 0, &a->min_bytes);
	if (!rc && json_member(&r->json, root, "max_message_size")) {
		const struct json_node *n = json_member(&r->json, root, "max_message_size");

		if (n->kind != JSON_NUMBER || !n->integer)
			return read_wrong(n, "max_message_size is no number");
		a->max_bytes = n->number == UINT64_MAX ? 0 : n->number;
	}
	if (!rc)
		rc = read_array(r, root, "gpus", &r->gpus);
	if (!rc && (!r->gpus || !r->gpus->items || r->gpus->items > SPMT_PLAN_RANKS))
		rc = read_wrong(root, "gpus is no list of 1 to %d", SPMT_PLAN_RANKS);
	if (!rc)
		rc = read_chunks(r, "input_chunks", true, &a->input_chunks);
	if (!rc)
		rc = read_chunks(r, "output_chunks", true, &a->output_chunks);
	if (!rc)
		rc = read_chunks(r, "scratch_chunks", false, &a->scratch_chunks);
	a->nranks = rc ? 0 : (int)r->gpus->items;
	a->in_place = in_place != 0;
	return rc;
}

int spmt_plan_read(const char *text, size_t size, spmt_plan **plan)
{
	struct spmt_plan_attr attr = { .size = sizeof(attr) };
	struct plan_reader r = { .rank = 0 };
	int rc;

	if (!text || !plan)
		return fail_call(-EINVAL, PLAN_READ, "%s is NULL", text ? "plan" : "text");
	rc = json_open(&r.json, PLAN_READ, text, size);
	if (!rc)
		rc = read_attr(&r, &r.json.nodes[1], &attr);
	if (!rc)
		rc = read_refused(&r.json.nodes[1], spmt_plan_create(&attr, &r.plan));
	for (; !rc && r.rank < attr.nranks; r.rank++)
		rc = read_gpu(&r);
	read_lists_close(&r);
	json_close(&r.json);
	if (rc)
		spmt_plan_destroy(r.plan);
	else
		*plan = r.plan;
	return rc;
}
