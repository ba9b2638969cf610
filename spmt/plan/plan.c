/* SPDX-License-Identifier: MIT */
/* Plans being built: what an operation may be, and the words for it. */
#include "plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "spmt/control/coll_key.h"
#include "src/base/mem.h"
#include "src/base/status.h"

#define PLAN_CHUNKS_MAX (1u << 20)
#define PLAN_OPS_MAX (1u << 22)

/* clang-format off */
const struct plan_kind plan_kinds[] = {
	[SPMT_PLAN_PUT] = { .name = "put", .json = "put",
		.nsrc = 1, .first_src = PLAN_PLAIN,
		.ndst = 1, .first_dst = PLAN_PLAIN },
	[SPMT_PLAN_GET] = { .name = "get", .json = "get",
		.nsrc = 1, .first_src = PLAN_PLAIN,
		.ndst = 1, .first_dst = PLAN_PLAIN },
	[SPMT_PLAN_COPY] = { .name = "copy", .json = "copy",
		.nsrc = 1, .first_src = PLAN_PLAIN,
		.ndst = 1, .first_dst = PLAN_PLAIN },
	[SPMT_PLAN_REDUCE] = { .name = "reduce", .json = "re",
		.nsrc = 1, .more_src = true, .first_src = PLAN_PLAIN, .other_src = PLAN_PLAIN,
		.ndst = 1, .more_dst = true, .first_dst = PLAN_PLAIN, .other_dst = PLAN_PLAIN, .folds = true },
	[SPMT_PLAN_SIGNAL] = { .name = "signal", .json = "signal" },
	[SPMT_PLAN_WAIT] = { .name = "wait", .json = "wait" },
	[SPMT_PLAN_SIGNAL_RELAXED] = { .name = "relaxed signal", .json = "rlxsignal" },
	[SPMT_PLAN_WAIT_RELAXED] = { .name = "relaxed wait", .json = "rlxwait" },
	[SPMT_PLAN_PUT_PACKETS] = { .name = "put packets", .json = "ppkt",
		.nsrc = 1, .first_src = PLAN_PLAIN,
		.ndst = 1, .first_dst = PLAN_PACKETS },
	[SPMT_PLAN_UNPACK_PACKETS] = { .name = "unpack packets", .json = "upkt",
		.nsrc = 1, .first_src = PLAN_PACKETS,
		.ndst = 1, .first_dst = PLAN_PLAIN },
	[SPMT_PLAN_SEND_PACKETS_ON] = { .name = "send packets on", .json = "rppkt",
		.nsrc = 1, .first_src = PLAN_PACKETS,
		.ndst = 1, .more_dst = true, .first_dst = PLAN_PACKETS, .other_dst = PLAN_PACKETS },
	[SPMT_PLAN_REDUCE_PACKETS] = { .name = "reduce packets", .json = "repkt",
		.nsrc = 2, .more_src = true, .first_src = PLAN_PLAIN, .other_src = PLAN_PACKETS,
		.ndst = 1, .more_dst = true, .first_dst = PLAN_PLAIN, .other_dst = PLAN_PACKETS, .folds = true },
	[SPMT_PLAN_BARRIER] = { .name = "barrier", .json = "barrier" },
	[SPMT_PLAN_RELEASE] = { .name = "release", .json = "sem_release" },
	[SPMT_PLAN_ACQUIRE] = { .name = "acquire", .json = "sem_acquire" },
};
/* clang-format on */

int plan_take(const char *what, const char *name, void *ours, size_t size, const void *theirs,
	size_t least)
{
	const unsigned char *bytes = theirs;
	size_t given = 0;

	if (theirs)
		memcpy(&given, theirs, sizeof(given));
	if (!theirs || given < least || given > STRUCT_MOST)
		return fail_call(-EINVAL, what,
			"%s is NULL, or its size is not set to that of its struct", name);
	for (size_t i = size; i < given; i++)
		if (bytes[i])
			return fail_call(-EINVAL, what,
				"%s has members that this library does not know (byte %zu is not 0)",
				name, i);
	memset(ours, 0, size);
	memcpy(ours, theirs, MIN_OF(size, given));
	return 0;
}

static bool plan_named(const char *word, size_t room)
{
	size_t n = word ? strnlen(word, room) : 0;

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)word[i] < 0x20 || (unsigned char)word[i] >= 0x7f)
			return false;
	return n && n < room;
}

static bool plan_places_fit(const struct spmt_plan_attr *a)
{
	uint64_t in = a->input_chunks, out = a->output_chunks, n = (uint64_t)a->nranks;

	if (!a->in_place)
		return true;
	if (!strcmp(a->collective, "allgather"))
		return out == in * n;
	if (!strcmp(a->collective, "reducescatter"))
		return in == out * n;
	return in == out || !in || !out;
}

static int plan_attr_check(const struct spmt_plan_attr *a)
{
	static const char what[] = "spmt_plan_create";

	if (!plan_named(a->name, 64) || !plan_named(a->collective, 64))
		return fail_call(-EINVAL, what,
			"name and collective are words of 1 to 63 printing characters of ASCII");
	if (a->nranks < 1 || a->nranks > SPMT_PLAN_RANKS)
		return fail_call(-EINVAL, what, "plan %s: nranks %d is not in 1 .. %d", a->name,
			a->nranks, SPMT_PLAN_RANKS);
	if (a->input_chunks > PLAN_CHUNKS_MAX || a->output_chunks > PLAN_CHUNKS_MAX ||
		a->scratch_chunks > PLAN_CHUNKS_MAX)
		return fail_call(-EINVAL, what, "plan %s: a buffer has more than %u chunks",
			a->name, PLAN_CHUNKS_MAX);
	if (!plan_places_fit(a))
		return fail_call(-EINVAL, what,
			"plan %s: a %s of %d ranks in place cannot have %u chunks of input and %u of output",
			a->name, a->collective, a->nranks, a->input_chunks, a->output_chunks);
	if (a->max_bytes && a->min_bytes > a->max_bytes)
		return fail_call(-EINVAL, what, "plan %s: min_bytes %llu is above max_bytes %llu",
			a->name, (unsigned long long)a->min_bytes,
			(unsigned long long)a->max_bytes);
	return 0;
}

int spmt_plan_create(const struct spmt_plan_attr *attr, spmt_plan **plan)
{
	struct spmt_plan_attr ours;
	struct spmt_plan *made;
	int rc = plan_take("spmt_plan_create", "attr", &ours, sizeof(ours), attr,
		offsetof(struct spmt_plan_attr, max_bytes) + sizeof(ours.max_bytes));

	if (!rc && !plan)
		rc = fail_call(-EINVAL, "spmt_plan_create", "plan is NULL");
	if (!rc)
		rc = plan_attr_check(&ours);
	if (rc)
		return rc;
	made = mem_calloc(1, sizeof(*made));
	if (made)
		made->ranks = mem_calloc((size_t)ours.nranks, sizeof(*made->ranks));
	if (!made || !made->ranks) {
		mem_free(made);
		return fail_call(-ENOMEM, "spmt_plan_create", "plan %s: no memory", ours.name);
	}
	snprintf(made->name, sizeof(made->name), "%s", ours.name);
	snprintf(made->collective, sizeof(made->collective), "%s", ours.collective);
	made->attr = ours;
	made->attr.size = sizeof(ours);
	made->attr.in_place = ours.in_place != 0;
	made->attr.name = made->name;
	made->attr.collective = made->collective;
	*plan = made;
	return 0;
}

void spmt_plan_destroy(spmt_plan *plan)
{
	if (!plan)
		return;
	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			mem_free(plan->ranks[r].blocks[b].ops);
	mem_free(plan->ranks);
	mem_free(plan);
}

/* ---- chunks ----------------------------------------------------------------------------------- */

uint32_t plan_indices(const struct spmt_plan *plan, bool semaphores)
{
	int most = 0;

	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++)
				if (!plan_moves(&plan->ranks[r].blocks[b].ops[i]) &&
					plan_counts(&plan->ranks[r].blocks[b].ops[i]) == semaphores)
					most = MAX_OF(most, plan->ranks[r].blocks[b].ops[i].index);
	return (uint32_t)most + 1;
}

uint32_t plan_parts(const struct spmt_plan_attr *attr)
{
	return attr->input_chunks ? attr->input_chunks : MAX_OF(attr->output_chunks, 1u);
}

uint32_t plan_chunks(const struct spmt_plan *plan, enum spmt_plan_buffer buffer)
{
	return buffer == SPMT_PLAN_INPUT     ? plan->attr.input_chunks
		: buffer == SPMT_PLAN_OUTPUT ? plan->attr.output_chunks
					     : plan->attr.scratch_chunks;
}

struct spmt_plan_chunk plan_merged_in_place(const struct spmt_plan *plan, struct spmt_plan_chunk c)
{
	const struct spmt_plan_attr *a = &plan->attr;
	uint32_t rank = (uint32_t)c.rank;

	if (c.buffer == SPMT_PLAN_SCRATCH)
		return c;
	if (!strcmp(a->collective, "reducescatter")) {
		c.index += c.buffer == SPMT_PLAN_OUTPUT ? rank * a->output_chunks : 0;
		c.buffer = SPMT_PLAN_INPUT;
		return c;
	}
	if (!strcmp(a->collective, "allgather") && c.buffer == SPMT_PLAN_INPUT)
		c.index += rank * a->input_chunks;
	c.buffer = SPMT_PLAN_OUTPUT;
	return c;
}

struct spmt_plan_chunk plan_merged(const struct spmt_plan *plan, struct spmt_plan_chunk c)
{
	return plan->attr.in_place ? plan_merged_in_place(plan, c) : c;
}

bool plan_has_packets(const struct spmt_plan *plan)
{
	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++) {
				enum spmt_plan_kind kind = plan->ranks[r].blocks[b].ops[i].kind;

				if (plan_kinds[kind].first_src == PLAN_PACKETS ||
					plan_kinds[kind].first_dst == PLAN_PACKETS ||
					plan_kinds[kind].other_src == PLAN_PACKETS)
					return true;
			}
	return false;
}

/* ---- words ------------------------------------------------------------------------------------ */

static void chunk_words(
	const struct spmt_plan_chunk *c, int rank, bool packets, char *text, size_t room)
{
	char of[24] = "", many[16] = "";

	if (c->rank != rank)
		snprintf(of, sizeof(of), "rank %d ", c->rank);
	if (c->count != 1)
		snprintf(many, sizeof(many), "+%u", c->count);
	snprintf(text, room, "%s%c%u%s%s", of, "ios"[c->buffer], c -> index, many,
		packets ? " (packets)" : "");
}

/* Of many the first and last. */
static size_t terms_words(
	const struct spmt_plan_op *op, int rank, bool src, char *text, size_t room)
{
	const struct spmt_plan_chunk *c = src ? op->src : op->dst;
	int n = src ? op->nsrc : op->ndst;
	size_t used = 0;
	char one[72];

	for (int i = 0; i < n && used < room; i++) {
		bool many = n > 3 && i == 1, packets;

		i = many ? n - 1 : i;
		packets = (src ? plan_src_place(op, i) : plan_dst_place(op, i)) == PLAN_PACKETS;
		chunk_words(&c[i], rank, packets, one, sizeof(one));
		used += (size_t)snprintf(
			text + used, room - used, "%s%s%s", many ? " .." : "", i ? ", " : "", one);
	}
	return MIN_OF(used, room - 1);
}

void plan_op_words(const struct spmt_plan_op *op, int rank, char *text, size_t room)
{
	size_t used = (size_t)snprintf(text, room, "%s", plan_kinds[op->kind].name);

	if (plan_moves(op)) {
		text[used++] = ' ';
		used += terms_words(op, rank, true, text + used, room - used);
		if (used + 5 < room) {
			used += (size_t)snprintf(text + used, room - used, " to ");
			used += terms_words(op, rank, false, text + used, room - used);
		}
		if (op->slices && used < room)
			snprintf(
				text + used, room - used, ", part %d of %d", op->slice, op->slices);
	} else if (plan_signals(op) || plan_waits(op)) {
		snprintf(text + used, room - used, " rank %d by channel %d", op->peer, op->index);
	} else if (op->kind == SPMT_PLAN_BARRIER) {
		snprintf(text + used, room - used, " %d of %d blocks", op->index, op->blocks);
	} else {
		snprintf(text + used, room - used, " semaphore %d", op->index);
	}
}

const char *plan_words(
	const struct spmt_plan *plan, int rank, int block, size_t nth, char text[PLAN_WORDS])
{
	char op[PLAN_WORDS - 64];

	plan_op_words(&plan->ranks[rank].blocks[block].ops[nth], rank, op, sizeof(op));
	snprintf(text, PLAN_WORDS, "rank %d block %d op %zu (%s)", rank, block, nth, op);
	return text;
}

/* ---- adding ----------------------------------------------------------------------------------- */

/* Where an operation is to go, for the sentence that refuses it. */
struct plan_at {
	const struct spmt_plan *plan;
	const struct spmt_plan_op *op;
	int rank, block;
};

static int op_refuse(const struct plan_at *at, const char *fmt, ...) PRINTF(2, 3);
static int op_refuse(const struct plan_at *at, const char *fmt, ...)
{
	char why[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	return fail_call(-EINVAL, "spmt_plan_add", "plan %s, rank %d block %d, %s: %s",
		at->plan->name, at->rank, at->block, plan_kinds[at->op->kind].name, why);
}

static int chunk_check(const struct plan_at *at, const struct spmt_plan_chunk *c,
	enum plan_place place, const char *side, int i)
{
	static const char *const names[] = { "input", "output", "scratch" };
	uint32_t chunks;

	if ((unsigned)c->buffer > SPMT_PLAN_SCRATCH)
		return op_refuse(at, "%s[%d].buffer %d is none", side, i, (int)c->buffer);
	if (c->rank < 0 || c->rank >= at->plan->attr.nranks)
		return op_refuse(at, "%s[%d] is of rank %d, which is not in 0 .. %d", side, i,
			c->rank, at->plan->attr.nranks - 1);
	if (place == PLAN_PACKETS && c->buffer != SPMT_PLAN_SCRATCH)
		return op_refuse(at, "%s[%d] is packets, which lie in scratch, not in %s", side, i,
			names[c->buffer]);
	chunks = plan_chunks(at->plan, c->buffer);
	if (!c->count || c->count > chunks || c->index > chunks - c->count)
		return op_refuse(at, "%s[%d] is chunks %u + %u of %s, which has %u", side, i,
			c->index, c->count, names[c->buffer], chunks);
	if (c->count != at->op->src[0].count)
		return op_refuse(at, "%s[%d] is %u chunks, src[0] is %u", side, i, c->count,
			at->op->src[0].count);
	return 0;
}

/* Whose a chunk has to be. */
static int chunk_owner(const struct plan_at *at, const struct spmt_plan_chunk *c, bool own,
	const char *side, int i)
{
	if ((c->rank == at->rank) == own)
		return 0;
	return op_refuse(at, "%s[%d] is of rank %d, and has to be %s", side, i, c->rank,
		own ? "this rank's" : "another rank's");
}

static int owners_check(const struct plan_at *at)
{
	const struct spmt_plan_op *op = at->op;
	bool src_here = op->kind != SPMT_PLAN_GET;
	int rc = chunk_owner(at, &op->src[0], src_here, "src", 0);

	if (!rc && op->kind != SPMT_PLAN_PUT_PACKETS && op->kind != SPMT_PLAN_SEND_PACKETS_ON)
		rc = chunk_owner(at, &op->dst[0], op->kind != SPMT_PLAN_PUT, "dst", 0);
	for (int i = 1; !rc && i < op->nsrc && op->kind == SPMT_PLAN_REDUCE_PACKETS; i++)
		rc = chunk_owner(at, &op->src[i], true, "src", i);
	return rc;
}

static bool chunks_overlap(
	const struct plan_at *at, struct spmt_plan_chunk a, struct spmt_plan_chunk b, bool *same)
{
	a = plan_merged(at->plan, a);
	b = plan_merged(at->plan, b);
	*same = a.index == b.index;
	return a.rank == b.rank && a.buffer == b.buffer && a.index < b.index + b.count &&
		b.index < a.index + a.count;
}

/* A reduction may write where it reads: all is folded before it goes to others. Packets lie apart from what is beside them. */
static int overlap_check(const struct plan_at *at)
{
	const struct spmt_plan_op *op = at->op;
	bool same;

	for (int d = 0; d < op->ndst; d++) {
		enum plan_place to = plan_dst_place(op, d);

		for (int s = 0; s < op->nsrc; s++)
			if (to == plan_src_place(op, s) &&
				chunks_overlap(at, op->src[s], op->dst[d], &same) &&
				!(same && plan_kinds[op->kind].folds))
				return op_refuse(at, "src[%d] and dst[%d] overlap", s, d);
		for (int e = 0; e < d; e++)
			if (to == plan_dst_place(op, e) &&
				chunks_overlap(at, op->dst[e], op->dst[d], &same))
				return op_refuse(at, "dst[%d] and dst[%d] overlap", e, d);
	}
	return 0;
}

static int terms_check(const struct plan_at *at)
{
	const struct spmt_plan_op *op = at->op;
	const struct plan_kind *kind = &plan_kinds[op->kind];
	int rc = 0;

	if (op->nsrc < kind->nsrc || op->nsrc > (kind->more_src ? SPMT_PLAN_TERMS : kind->nsrc))
		return op_refuse(at, "nsrc is %d", op->nsrc);
	if (op->ndst < kind->ndst || op->ndst > (kind->more_dst ? SPMT_PLAN_TERMS : kind->ndst))
		return op_refuse(at, "ndst is %d", op->ndst);
	for (int i = 0; !rc && i < op->nsrc; i++)
		rc = chunk_check(at, &op->src[i], plan_src_place(op, i), "src", i);
	for (int i = 0; !rc && i < op->ndst; i++)
		rc = chunk_check(at, &op->dst[i], plan_dst_place(op, i), "dst", i);
	if (!rc && plan_moves(op))
		rc = owners_check(at);
	return rc ? rc : overlap_check(at);
}

static int op_check(const struct plan_at *at)
{
	const struct spmt_plan_op *op = at->op;
	bool named = !plan_moves(op);
	int indices = plan_counts(op) ? SPMT_PLAN_SEMAPHORES : SPMT_PLAN_INDICES;

	if (op->slices < 0 || op->slices > 1024 || op->slice < 0 ||
		op->slice >= MAX_OF(op->slices, 1))
		return op_refuse(at, "slice %d of %d is none", op->slice, op->slices);
	if (named && op->slices)
		return op_refuse(at, "it has no parts");
	if (named && (op->index < 0 || op->index >= indices))
		return op_refuse(at, "index %d is not in 0 .. %d", op->index, indices - 1);
	if ((plan_signals(op) || plan_waits(op)) &&
		(op->peer < 0 || op->peer >= at->plan->attr.nranks || op->peer == at->rank))
		return op_refuse(at, "peer %d is no other rank of 0 .. %d", op->peer,
			at->plan->attr.nranks - 1);
	if (op->kind == SPMT_PLAN_BARRIER && (op->blocks < 1 || op->blocks > SPMT_PLAN_BLOCKS))
		return op_refuse(at, "blocks %d is not in 1 .. %d", op->blocks, SPMT_PLAN_BLOCKS);
	if (op->initial < 0)
		return op_refuse(at, "initial %d is below 0", op->initial);
	return 0;
}

static int list_room(struct plan_list *list)
{
	size_t room = list->room ? 2 * list->room : 8;
	struct spmt_plan_op *ops;

	if (list->n < list->room)
		return 0;
	ops = mem_calloc(room, sizeof(*ops));
	if (!ops)
		return fail_call(-ENOMEM, "spmt_plan_add", "no memory for %zu operations", room);
	if (list->n)
		memcpy(ops, list->ops, list->n * sizeof(*ops));
	mem_free(list->ops);
	list->ops = ops;
	list->room = room;
	return 0;
}

int spmt_plan_add(spmt_plan *plan, int rank, int block, const struct spmt_plan_op *op)
{
	static const char what[] = "spmt_plan_add";
	struct spmt_plan_op ours;
	struct plan_rank *to;
	int rc = plan ? plan_take(what, "op", &ours, sizeof(ours), op, sizeof(ours))
		      : fail_call(-EINVAL, what, "plan is NULL");

	if (rc)
		return rc;
	if (rank < 0 || rank >= plan->attr.nranks)
		return fail_call(-EINVAL, what, "plan %s: rank %d is not in 0 .. %d", plan->name,
			rank, plan->attr.nranks - 1);
	if (block < 0 || block >= SPMT_PLAN_BLOCKS)
		return fail_call(-EINVAL, what, "plan %s: block %d is not in 0 .. %d", plan->name,
			block, SPMT_PLAN_BLOCKS - 1);
	if ((unsigned)ours.kind > SPMT_PLAN_ACQUIRE)
		return fail_call(
			-EINVAL, what, "plan %s: kind %d is none", plan->name, (int)ours.kind);
	if (plan->ops >= PLAN_OPS_MAX)
		return fail_call(-E2BIG, what,
			"plan %s has %u operations, as many as a plan may have", plan->name,
			PLAN_OPS_MAX);
	rc = terms_check(&(struct plan_at){ plan, &ours, rank, block });
	if (!rc)
		rc = op_check(&(struct plan_at){ plan, &ours, rank, block });
	to = &plan->ranks[rank];
	if (!rc)
		rc = list_room(&to->blocks[block]);
	if (rc)
		return rc;
	to->blocks[block].ops[to->blocks[block].n++] = ours;
	to->nblocks = MAX_OF(to->nblocks, block + 1);
	plan->nblocks = MAX_OF(plan->nblocks, to->nblocks);
	plan->ops++;
	return 0;
}

/* ---- looking ---------------------------------------------------------------------------------- */

int spmt_plan_about(const spmt_plan *plan, struct spmt_plan_info *info)
{
	struct spmt_plan_info whole = { 0 };

	if (!plan || !info || info->size < sizeof(whole))
		return fail_call(-EINVAL, "spmt_plan_about",
			"plan or info is NULL, or info->size is not sizeof(struct spmt_plan_info)");
	whole.size = sizeof(whole);
	whole.attr = plan->attr;
	whole.blocks = plan->nblocks;
	whole.ops = plan->ops;
	memcpy(info, &whole, sizeof(whole));
	return 0;
}

int spmt_plan_get(const spmt_plan *plan, int rank, int block, size_t nth, struct spmt_plan_op *op)
{
	const struct plan_list *list;

	if (!plan || !op || op->size < sizeof(*op))
		return fail_call(-EINVAL, "spmt_plan_get",
			"plan or op is NULL, or op->size is not sizeof(struct spmt_plan_op)");
	if (rank < 0 || rank >= plan->attr.nranks || block < 0 || block >= SPMT_PLAN_BLOCKS)
		return fail_call(-EINVAL, "spmt_plan_get", "plan %s has no rank %d block %d",
			plan->name, rank, block);
	list = &plan->ranks[rank].blocks[block];
	if (nth >= list->n)
		return fail_call(-ENOENT, "spmt_plan_get",
			"plan %s: rank %d block %d has %zu operations", plan->name, rank, block,
			list->n);
	*op = list->ops[nth];
	return 0;
}

static uint64_t fold_chunk(uint64_t key, const struct spmt_plan_chunk *c)
{
	key = coll_fold(key, (uint64_t)(uint32_t)c->rank << 32 | (uint32_t)c->buffer);
	return coll_fold(key, (uint64_t)c->index << 32 | c->count);
}

static uint64_t fold_op(uint64_t key, const struct spmt_plan_op *op)
{
	const int all[] = { (int)op->kind, op->peer, op->index, op->blocks, op->initial, op->slice,
		op->slices, op->nsrc, op->ndst };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		key = coll_fold(key, (uint64_t)(uint32_t)all[i]);
	for (int i = 0; i < op->nsrc; i++)
		key = fold_chunk(key, &op->src[i]);
	for (int i = 0; i < op->ndst; i++)
		key = fold_chunk(key, &op->dst[i]);
	return key;
}

uint64_t plan_fold_shape(const struct spmt_plan *plan)
{
	const struct spmt_plan_attr *a = &plan->attr;
	const uint64_t all[] = { (uint64_t)(uint32_t)a->nranks, (uint64_t)(uint32_t)a->in_place,
		a->input_chunks, a->output_chunks, a->scratch_chunks, a->min_bytes, a->max_bytes,
		plan->ops, (uint64_t)(uint32_t)plan->nblocks };
	uint64_t key = 1;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		key = coll_fold(key, all[i]);
	for (const char *p = a->collective; *p; p++)
		key = coll_fold(key, (uint64_t)(unsigned char)*p);
	return key;
}

uint64_t plan_fold_all(const struct spmt_plan *plan)
{
	uint64_t key = plan_fold_shape(plan);

	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++) {
			const struct plan_list *list = &plan->ranks[r].blocks[b];

			key = coll_fold(key, list->n);
			for (size_t i = 0; i < list->n; i++)
				key = fold_op(key, &list->ops[i]);
		}
	return key;
}
