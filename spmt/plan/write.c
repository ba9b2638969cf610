/* SPDX-License-Identifier: MIT */
/* Execution plans of MSCCL++, as read.c takes them. An operation of ours is one of theirs; between two of them stands a nop, which is
   where a block's threads meet there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "plan.h"
#include "src/base/status.h"

/* Of one rank: its channels, by peer and index, and its remote buffers, by rank and buffer, have numbers in this order. */
struct plan_writer {
	const struct spmt_plan *plan;
	struct plan_text *t;
	int channels[SPMT_PLAN_RANKS]; /* to this peer, so many */
	bool remote[SPMT_PLAN_RANKS][SPMT_PLAN_SCRATCH + 1];
	int initial[SPMT_PLAN_SEMAPHORES], semaphores;
	bool acquired[SPMT_PLAN_SEMAPHORES];
};

static int writer_note(struct plan_writer *w, int rank, const struct spmt_plan_op *op)
{
	if (plan_signals(op) || plan_waits(op))
		w->channels[op->peer] = MAX_OF(w->channels[op->peer], op->index + 1);
	if (plan_counts(op))
		w->semaphores = MAX_OF(w->semaphores, op->index + 1);
	if (op->kind == SPMT_PLAN_ACQUIRE && w->acquired[op->index] &&
		w->initial[op->index] != op->initial)
		return fail_call(-EINVAL, "spmt_plan_write",
			"plan %s, rank %d: semaphore %d begins with %d in one place, with %d in another: an execution plan has one",
			w->plan->name, rank, op->index, w->initial[op->index], op->initial);
	if (op->kind == SPMT_PLAN_ACQUIRE) {
		w->initial[op->index] = op->initial;
		w->acquired[op->index] = true;
	}
	for (int i = 0; i < op->nsrc; i++)
		if (op->src[i].rank != rank)
			w->remote[op->src[i].rank][op->src[i].buffer] = true;
	for (int i = 0; i < op->ndst; i++)
		if (op->dst[i].rank != rank)
			w->remote[op->dst[i].rank][op->dst[i].buffer] = true;
	return 0;
}

/* Both ends have as many channels, so that they pair as MSCCL++ pairs them. */
static int writer_open(struct plan_writer *w, const struct spmt_plan *plan, int rank)
{
	int rc = 0;

	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; !rc && i < plan->ranks[r].blocks[b].n; i++) {
				const struct spmt_plan_op *op = &plan->ranks[r].blocks[b].ops[i];

				if (r == rank)
					rc = writer_note(w, rank, op);
				else if ((plan_signals(op) || plan_waits(op)) && op->peer == rank)
					w->channels[r] = MAX_OF(w->channels[r], op->index + 1);
			}
	return rc;
}

static int number_of_channel(const struct plan_writer *w, int peer, int index)
{
	int n = index;

	for (int p = 0; p < peer; p++)
		n += w->channels[p];
	return n;
}

static int number_of_buffer(const struct plan_writer *w, const struct spmt_plan_chunk *c)
{
	int n = 0;

	for (int r = 0; r <= c->rank; r++)
		for (int b = 0; b <= SPMT_PLAN_SCRATCH; b++) {
			if (r == c->rank && b == (int)c->buffer)
				return n;
			n += w->remote[r][b];
		}
	return n;
}

/* "sep" before all but the first. */
static const char *write_sep(bool *first)
{
	const char *sep = *first ? "" : ", ";

	*first = false;
	return sep;
}

static void write_lists(struct plan_writer *w)
{
	bool first = true, any = false;

	plan_print(w->t, "      \"channels\": [");
	for (int p = 0; p < w->plan->attr.nranks; p++)
		any |= w->channels[p] > 0;
	if (any)
		plan_print(w->t, "{\"channel_type\": \"memory\", \"connected_to\": [");
	for (int p = 0; p < w->plan->attr.nranks; p++)
		for (int i = 0; i < w->channels[p]; i++)
			plan_print(w->t, "%s%d", write_sep(&first), p);
	plan_print(w->t, "%s],\n      \"remote_buffers\": [", any ? "]}" : "");
	first = true;
	for (int p = 0; p < w->plan->attr.nranks; p++)
		for (int b = 0; b <= SPMT_PLAN_SCRATCH; b++)
			if (w->remote[p][b])
				plan_print(w->t,
					"%s{\"rank\": %d, \"type\": \"%c\", \"access_channel_types\": [\"memory\"]}",
					write_sep(&first), p, "ios"[b]);
	plan_print(w->t, "],\n      \"semaphores\": [");
	first = true;
	for (int i = 0; i < w->semaphores; i++)
		plan_print(w->t, "%s{\"init_value\": %d}", write_sep(&first), w->initial[i]);
	plan_print(w->t, "],\n");
}

static void write_side(const struct plan_writer *w, int rank, const char *key,
	const struct spmt_plan_chunk *c, int n)
{
	bool first = true;

	plan_print(w->t, ", \"%s\": [", key);
	for (int i = 0; i < n; i++) {
		plan_print(w->t, "%s{", write_sep(&first));
		if (c[i].rank == rank)
			plan_print(w->t, "\"type\": \"%c\"", "ios"[c[i].buffer]);
		else
			plan_print(w->t, "\"buffer_id\": %d", number_of_buffer(w, &c[i]));
		plan_print(w->t, ", \"index\": %u, \"size\": %u}", c[i].index, c[i].count);
	}
	plan_print(w->t, "]");
}

static bool all_of(const struct spmt_plan_chunk *c, int n, int rank, bool here)
{
	for (int i = 0; i < n; i++)
		if ((c[i].rank == rank) != here)
			return false;
	return true;
}

/* Theirs read from one side, and write to other ranks alone behind the first. */
static const char *reduce_name(const struct spmt_plan_op *op, int rank)
{
	bool sends = op->ndst > 1;
	int own = 0;

	if (op->kind == SPMT_PLAN_REDUCE_PACKETS) {
		if (sends && op->dst[1].rank == rank)
			own = 1;
		if (!all_of(op->dst + 1 + own, op->ndst - 1 - own, rank, false))
			return NULL;
		sends = op->ndst > 1 + own;
		return own ? (sends ? "recspkt" : "recpkt") : sends ? "respkt" : "repkt";
	}
	if (!all_of(op->dst + 1, op->ndst - 1, rank, false))
		return NULL;
	if (op->nsrc > 1 && all_of(op->src + 1, op->nsrc - 1, rank, false))
		return sends ? "rres" : "rre";
	return all_of(op->src + 1, op->nsrc - 1, rank, true) ? (sends ? "res" : "re") : NULL;
}

static int write_op(const struct plan_writer *w, int rank, const struct spmt_plan_op *op)
{
	const char *name = plan_kinds[op->kind].json;
	bool far = false;

	if (plan_kinds[op->kind].folds)
		name = reduce_name(op, rank);
	if (op->kind == SPMT_PLAN_PUT_PACKETS && op->dst[0].rank == rank)
		name = "cpkt";
	if (!name) {
		char words[PLAN_WORDS];

		plan_op_words(op, rank, words, sizeof(words));
		return fail_call(-EINVAL, "spmt_plan_write",
			"plan %s, rank %d: %s has no form in an execution plan: make it of two operations, one that is local and one that is not",
			w->plan->name, rank, words);
	}
	plan_print(w->t, "{\"name\": \"%s\"", name);
	if (op->nsrc)
		write_side(w, rank, "src_buff", op->src, op->nsrc);
	if (op->ndst)
		write_side(w, rank, "dst_buff", op->dst, op->ndst);
	far = !all_of(op->src, op->nsrc, rank, true) || !all_of(op->dst, op->ndst, rank, true);
	if (plan_signals(op) || plan_waits(op))
		plan_print(
			w->t, ", \"channel_ids\": [%d]", number_of_channel(w, op->peer, op->index));
	if (far || plan_signals(op) || plan_waits(op))
		plan_print(w->t, ", \"channel_type\": \"memory\"");
	if (op->slices)
		plan_print(w->t, ", \"tbg_info\": {\"tb_id\": %d, \"tbg_size\": %d}", op->slice,
			op->slices);
	if (op->kind == SPMT_PLAN_BARRIER)
		plan_print(w->t, ", \"barrier_id\": %d, \"num_threadblocks\": %d", op->index,
			op->blocks);
	if (plan_counts(op))
		plan_print(w->t, ", \"semaphore_ids\": [%d]", op->index);
	if (plan_kinds[op->kind].folds)
		plan_print(w->t, ", \"reduce_op\": \"sum\"");
	plan_print(w->t, "}");
	return 0;
}

/* A block knows all of its rank's channels and buffers, by the same numbers. */
static void write_refs(const struct plan_writer *w)
{
	int n = number_of_channel(w, w->plan->attr.nranks, 0), buffers = 0;
	bool first = true;

	plan_print(w->t,
		"],\n         \"channels\": [{\"channel_type\": \"memory\", \"channel_ids\": [");
	for (int i = 0; i < n; i++)
		plan_print(w->t, "%s%d", write_sep(&first), i);
	plan_print(w->t,
		"]}],\n         \"remote_buffer_refs\": [{\"access_channel_type\": \"memory\", \"remote_buffer_ids\": [");
	first = true;
	for (int p = 0; p < w->plan->attr.nranks; p++)
		for (int b = 0; b <= SPMT_PLAN_SCRATCH; b++)
			if (w->remote[p][b])
				plan_print(w->t, "%s%d", write_sep(&first), buffers++);
	plan_print(w->t, "]}]}");
}

static int write_block(const struct plan_writer *w, int rank, int block)
{
	const struct plan_list *list = &w->plan->ranks[rank].blocks[block];
	int rc = 0;

	plan_print(w->t, "%s        {\"id\": %d, \"ops\": [", block ? ",\n" : "", block);
	for (size_t i = 0; !rc && i < list->n; i++) {
		plan_print(w->t, "%s\n          ", i ? ",\n          {\"name\": \"nop\"}," : "");
		rc = write_op(w, rank, &list->ops[i]);
	}
	write_refs(w);
	return rc;
}

static int write_rank(const struct spmt_plan *plan, int rank, struct plan_text *t)
{
	struct plan_writer w = { .plan = plan, .t = t };
	int rc = writer_open(&w, plan, rank);

	plan_print(t,
		"%s    {\"id\": %d, \"input_chunks\": %u, \"output_chunks\": %u, \"scratch_chunks\": %u,\n",
		rank ? ",\n" : "", rank, plan->attr.input_chunks, plan->attr.output_chunks,
		plan->attr.scratch_chunks);
	write_lists(&w);
	plan_print(t, "      \"threadblocks\": [\n");
	for (int b = 0; !rc && b < plan->ranks[rank].nblocks; b++)
		rc = write_block(&w, rank, b);
	plan_print(t, "]}");
	return rc;
}

static void write_string(struct plan_text *t, const char *text)
{
	for (; *text; text++)
		plan_print(t, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
}

int plan_write_json(const struct spmt_plan *plan, struct plan_text *t)
{
	const struct spmt_plan_attr *a = &plan->attr;
	int rc = 0;

	plan_print(t, "{\n  \"name\": \"");
	write_string(t, a->name);
	plan_print(t, "\", \"collective\": \"");
	write_string(t, a->collective);
	plan_print(t,
		"\", \"protocol\": \"%s\", \"inplace\": %s, \"reuse_resources\": false,\n"
		"  \"num_threads_per_block\": 1024, \"use_double_scratch_buffer\": %s, \"buffer_alignment\": 16,\n"
		"  \"min_message_size\": %llu, \"max_message_size\": %llu,\n  \"gpus\": [\n",
		plan_has_packets(plan) ? "LL" : "Simple", a->in_place ? "true" : "false",
		plan_has_packets(plan) ? "true" : "false", (unsigned long long)a->min_bytes,
		(unsigned long long)(a->max_bytes ? a->max_bytes : UINT64_MAX));
	for (int r = 0; !rc && r < a->nranks; r++)
		rc = write_rank(plan, r, t);
	plan_print(t, "]\n}\n");
	return rc;
}
