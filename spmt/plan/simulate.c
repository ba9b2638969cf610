/* SPDX-License-Identifier: MIT */
/* What a plan does, on the CPU, in the calling thread: by its operations as they were added, not by the steps that kernels are given. */
#include <errno.h>
#include <string.h>

#include "simulate.h"
#include "src/base/mem.h"
#include "src/base/names.h"
#include "src/base/status.h"
#include "walk.h"
/* behind base.h, whose macros it does not touch */
#include "../../include/spmt_device.h"

static const char simulate_name[] = "spmt_plan_simulate";

struct simulation {
	const struct spmt_plan *plan;
	const struct spmt_plan_trial *trial;
	const struct plan_grid *grid; /* NULL: all bytes are there */
	size_t chunk;		      /* bytes */
	char *scratch, *packets;      /* of all ranks */
	char *sum;		      /* of one operation */
};

/* ---- one element ------------------------------------------------------------------------------ */

#define DEFINE_SIMULATED(name, T, W)                                                        \
	static void simulated_##name(                                                       \
		char *out, char *const *in, int n, size_t count, enum spmt_op op)           \
	{                                                                                   \
		for (size_t k = 0; k < count; k++) {                                        \
			T x;                                                                \
			W sum = 0;                                                          \
			for (int i = 0; i < n; i++) {                                       \
				memcpy(&x, in[i] + k * sizeof(x), sizeof(x));               \
				sum = i ? spmtd_##name##_join_(                             \
						  (int)op, sum, spmtd_##name##_widened_(x)) \
					: spmtd_##name##_widened_(x);                       \
			}                                                                   \
			x = spmtd_##name##_rounded_(sum);                                   \
			memcpy(out + k * sizeof(x), &x, sizeof(x));                         \
		}                                                                           \
	}
DEFINE_SIMULATED(int8, int8_t, int8_t)
DEFINE_SIMULATED(uint8, uint8_t, uint8_t)
DEFINE_SIMULATED(int16, int16_t, int16_t)
DEFINE_SIMULATED(uint16, uint16_t, uint16_t)
DEFINE_SIMULATED(int32, int32_t, int32_t)
DEFINE_SIMULATED(uint32, uint32_t, uint32_t)
DEFINE_SIMULATED(int64, int64_t, int64_t)
DEFINE_SIMULATED(uint64, uint64_t, uint64_t)
DEFINE_SIMULATED(half, uint16_t, float)
DEFINE_SIMULATED(bfloat16, uint16_t, float)
DEFINE_SIMULATED(float, float, float)
DEFINE_SIMULATED(double, double, double)

static void (*const simulated[SPMT_TYPE_F64 + 1])(
	char *out, char *const *in, int n, size_t count, enum spmt_op op) = {
	[SPMT_TYPE_I8] = simulated_int8,
	[SPMT_TYPE_U8] = simulated_uint8,
	[SPMT_TYPE_I16] = simulated_int16,
	[SPMT_TYPE_U16] = simulated_uint16,
	[SPMT_TYPE_I32] = simulated_int32,
	[SPMT_TYPE_U32] = simulated_uint32,
	[SPMT_TYPE_I64] = simulated_int64,
	[SPMT_TYPE_U64] = simulated_uint64,
	[SPMT_TYPE_F16] = simulated_half,
	[SPMT_TYPE_BF16] = simulated_bfloat16,
	[SPMT_TYPE_F32] = simulated_float,
	[SPMT_TYPE_F64] = simulated_double,
};

/* ---- one operation ---------------------------------------------------------------------------- */

static char *simulated_at(
	const struct simulation *s, struct spmt_plan_chunk c, enum plan_place place)
{
	const struct spmt_plan *plan = s->plan;
	size_t own = (size_t)c.rank * plan->attr.scratch_chunks * s->chunk, at = c.index * s->chunk;

	if (place == PLAN_PACKETS)
		return s->packets + own + at;
	if (c.buffer == SPMT_PLAN_SCRATCH)
		return s->scratch + own + at;
	return (char *)(c.buffer == SPMT_PLAN_INPUT ? s->trial->in : s->trial->out)[c.rank] + at;
}

/* As kernels cut it: lines of 128 bytes, the first parts one more. */
static struct spmtd_range_ simulated_part(const struct spmt_plan_op *op, size_t chunk)
{
	uint64_t bytes = op->src[0].count * (uint64_t)chunk;

	if (op->slices > 1)
		return spmtd_share_by_(bytes, (uint32_t)op->slice, (uint32_t)op->slices);
	return (struct spmtd_range_){ 0, bytes };
}

/* The place of a byte that lies so far behind the first one of an operation's chunks. */
static size_t simulated_byte(const struct simulation *s, uint64_t byte)
{
	const struct plan_grid *g = s->grid;

	if (!g)
		return (size_t)byte;
	return (size_t)(byte / g->bytes) * s->chunk +
		g->element[byte % g->bytes / PLAN_GRID_UNIT] * type_size(s->trial->type);
}

static void simulate_op(const struct simulation *s, const struct spmt_plan_op *op)
{
	char *in[SPMT_PLAN_TERMS];
	size_t from, to, size = type_size(s->trial->type);
	struct spmtd_range_ part;

	if (!plan_moves(op))
		return;
	part = simulated_part(op, s->grid ? s->grid->bytes : s->chunk);
	from = simulated_byte(s, part.from);
	to = simulated_byte(s, part.from + part.n);
	for (int i = 0; i < op->nsrc; i++)
		in[i] = simulated_at(s, op->src[i], plan_src_place(op, i)) + from;
	if (plan_kinds[op->kind].folds)
		simulated[s->trial->type](s->sum, in, op->nsrc, (to - from) / size, s->trial->op);
	else
		memcpy(s->sum, in[0], to - from);
	for (int i = 0; i < op->ndst; i++)
		memcpy(simulated_at(s, op->dst[i], plan_dst_place(op, i)) + from, s->sum,
			to - from);
}

/* ---- one after the other ---------------------------------------------------------------------- */

static uint64_t order_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* One operation of some thread that can go on, from a random one on. *done: there is none. */
static int order_some(struct plan_order *o, struct plan_walk *w, uint64_t *seed, bool *done)
{
	int n = w->nthreads, first = (int)(order_random(seed) % (uint64_t)MAX_OF(n, 1));
	bool left = false;
	char words[PLAN_WORDS];

	for (int i = 0; i < n; i++) {
		struct walk_thread *t = &w->threads[(first + i) % n];

		left |= walk_op(t) != NULL;
		if (!walk_op(t) || !walk_ready(w, t))
			continue;
		if (plan_moves(walk_op(t)))
			o->ops[o->n++] = walk_op(t);
		return walk_done(w, t, 0) ? 0 : fail_call(-ENOMEM, simulate_name, "no memory");
	}
	*done = true;
	for (int i = 0; left && i < n; i++) {
		const struct walk_thread *t = &w->threads[i];

		if (walk_op(t))
			return fail_call(-EDEADLK, simulate_name,
				"plan %s stands still: %s waits, and nothing else goes on",
				o->plan->name,
				plan_words(o->plan, t->rank, t->block, t->next, words));
	}
	return 0;
}

int plan_order_open(struct plan_order *o, const struct spmt_plan *plan, uint64_t seed)
{
	struct plan_walk walk;
	bool done = false;
	int rc;

	seed = seed * 0x9e3779b97f4a7c15ull | 1;
	*o = (struct plan_order){ plan, mem_calloc(MAX_OF(plan->ops, 1u), sizeof(*o->ops)), 0 };
	if (!o->ops)
		return fail_call(-ENOMEM, simulate_name,
			"plan %s: no memory for a list of its operations", plan->name);
	rc = walk_open(&walk, plan, simulate_name);
	while (!rc && !done)
		rc = order_some(o, &walk, &seed, &done);
	walk_close(&walk);
	return rc;
}

void plan_order_close(struct plan_order *o)
{
	mem_free(o->ops);
	o->ops = NULL;
}

/* ---- sizes ------------------------------------------------------------------------------------ */

int plan_grid_open(struct plan_grid *g, const struct plan_order *o, size_t bytes)
{
	uint32_t n = 0;

	*g = (struct plan_grid){ bytes, mem_calloc(bytes / PLAN_GRID_UNIT, sizeof(*g->element)),
		0 };
	if (!g->element)
		return fail_call(
			-ENOMEM, simulate_name, "plan %s: no memory to try it", o->plan->name);
	for (size_t i = 0; i < o->n; i++) {
		struct spmtd_range_ part = simulated_part(o->ops[i], bytes);

		g->element[part.from % bytes / PLAN_GRID_UNIT] = 1;
		g->element[(part.from + part.n) % bytes / PLAN_GRID_UNIT] = 1;
	}
	g->element[0] = 1;
	for (size_t i = 0; i < bytes / PLAN_GRID_UNIT; i++) {
		uint32_t begins = g->element[i];

		g->element[i] = n; /* of those that begin here none is the one of another number */
		n += begins;
	}
	g->n = n;
	return 0;
}

void plan_grid_close(struct plan_grid *g)
{
	mem_free(g->element);
	g->element = NULL;
}

/* ---- the caller's buffers ----------------------------------------------------------------------- */

/* In place there is one buffer: where both are said, the smaller lies in the larger at the rank's place. */
static int trial_places(const struct spmt_plan *plan, const struct spmt_plan_trial *t)
{
	const struct spmt_plan_attr *a = &plan->attr;
	size_t chunk = t->count / MAX_OF(a->input_chunks, 1u) * type_size(t->type);

	if (!a->in_place || !a->input_chunks || !a->output_chunks || !t->count)
		return 0;
	for (int r = 0; r < a->nranks; r++) {
		struct spmt_plan_chunk in = { r, SPMT_PLAN_INPUT, 0, 1 },
				       out = { r, SPMT_PLAN_OUTPUT, 0, 1 };
		size_t in_at = plan_merged(plan, in).index * chunk,
		       out_at = plan_merged(plan, out).index * chunk;

		if ((uintptr_t)t->in[r] - in_at != (uintptr_t)t->out[r] - out_at)
			return fail_call(-EINVAL, simulate_name,
				"plan %s is in place: in[%d] lies %zu bytes into the buffer and out[%d] %zu, and what is given are %p and %p",
				plan->name, r, in_at, r, out_at, t->in[r], t->out[r]);
	}
	return 0;
}

/* A rank's input or output; in place the one in which both lie. */
struct trial_buffer {
	uintptr_t at;
	size_t bytes;
	const char *name;
	int rank;
};

static size_t trial_chunk(const struct spmt_plan *plan, const struct spmt_plan_trial *t)
{
	return t->count / plan_parts(&plan->attr) * type_size(t->type);
}

/* What in[rank] and out[rank] are: one or two, or none of nothing. In place the smaller one lies in the other. */
static int trial_buffers(const struct spmt_plan *plan, const struct spmt_plan_trial *t, int rank,
	struct trial_buffer of[2])
{
	const struct spmt_plan_attr *a = &plan->attr;
	size_t chunk = trial_chunk(plan, t);
	bool one = a->in_place && a->input_chunks && a->output_chunks;
	int n = 0;

	if (a->input_chunks && !(one && a->output_chunks > a->input_chunks))
		of[n++] = (struct trial_buffer){ (uintptr_t)t->in[rank], a->input_chunks * chunk,
			"in", rank };
	if (a->output_chunks && !(one && n))
		of[n++] = (struct trial_buffer){ (uintptr_t)t->out[rank], a->output_chunks * chunk,
			"out", rank };
	return n;
}

static int trial_apart(
	const struct spmt_plan *plan, const struct trial_buffer *a, const struct trial_buffer *b)
{
	if (b->at - a->at >= a->bytes && a->at - b->at >= b->bytes)
		return 0;
	return fail_call(-EINVAL, simulate_name,
		"%s[%d] and %s[%d] of plan %s overlap: %p with %zu bytes, %p with %zu", a->name,
		a->rank, b->name, b->rank, plan->name, (void *)a->at, a->bytes, (void *)b->at,
		b->bytes);
}

/* Each rank has memory of its own, as where ranks run a plan; and there its input is none of its output, but in place. */
static int trial_overlaps(const struct spmt_plan *plan, const struct spmt_plan_trial *t)
{
	struct trial_buffer *all = mem_calloc(2 * (size_t)plan->attr.nranks, sizeof(*all));
	int n = 0, rc = 0;

	if (!all)
		return fail_call(-ENOMEM, simulate_name,
			"plan %s: no memory for a list of its buffers", plan->name);
	for (int r = 0; t->count && r < plan->attr.nranks; r++)
		n += trial_buffers(plan, t, r, all + n);
	for (int i = 0; i < n; i++)
		for (int k = 0; k < i && !rc; k++)
			rc = trial_apart(plan, &all[k], &all[i]);
	mem_free(all);
	return rc;
}

static int trial_check(const struct spmt_plan *plan, const struct spmt_plan_trial *t)
{
	const struct spmt_plan_attr *a = &plan->attr;
	uint32_t chunks = plan_parts(a);
	int rc;

	if ((int)t->op >= SPMT_OP_MADE)
		return fail_call(-EINVAL, simulate_name,
			"op %#x is one of spmt_op_premul_create: a plan folds with no factors",
			(unsigned)t->op);
	if ((unsigned)t->type > SPMT_TYPE_F64 || (unsigned)t->op > SPMT_OP_XOR ||
		(t->op >= SPMT_OP_AND && t->type >= SPMT_TYPE_F16))
		return fail_call(-EINVAL, simulate_name,
			"type %s (%d) with op %s (%d) is none of a plan's", type_name(t->type),
			(int)t->type, op_name(t->op), (int)t->op);
	if (t->count % chunks || t->count > SIZE_MAX / 16 / SPMT_PLAN_RANKS)
		return fail_call(-EINVAL, simulate_name,
			"count %zu is not a multiple of the plan's %u chunks, or wraps", t->count,
			chunks);
	if ((a->input_chunks && !t->in) || (a->output_chunks && !t->out))
		return fail_call(-EINVAL, simulate_name, "in or out is NULL");
	for (int r = 0; t->count && r < a->nranks; r++)
		if ((a->input_chunks && !t->in[r]) || (a->output_chunks && !t->out[r]))
			return fail_call(-EINVAL, simulate_name, "in[%d] or out[%d] is NULL", r, r);
	rc = trial_places(plan, t);
	return rc ? rc : trial_overlaps(plan, t);
}

int plan_simulate(const struct plan_order *o, const struct plan_grid *grid,
	const struct spmt_plan_trial *trial)
{
	const struct spmt_plan_attr *a = &o->plan->attr;
	struct simulation s = {
		.plan = o->plan, .trial = trial, .grid = grid, .chunk = trial_chunk(o->plan, trial)
	};
	size_t all = MAX_OF((size_t)a->nranks * a->scratch_chunks, 1u),
	       most = MAX_OF(MAX_OF(a->input_chunks, a->output_chunks), a->scratch_chunks),
	       each = MAX_OF(s.chunk, 1u);
	int rc = 0;

	s.scratch = mem_calloc(all, each);
	s.packets = mem_calloc(all, each);
	s.sum = mem_calloc(MAX_OF(most, 1u), each);
	if (!s.scratch || !s.packets || !s.sum)
		rc = fail_call(-ENOMEM, simulate_name, "plan %s: no memory for its scratch",
			o->plan->name);
	for (size_t i = 0; !rc && i < o->n; i++)
		simulate_op(&s, o->ops[i]);
	mem_free(s.sum);
	mem_free(s.packets);
	mem_free(s.scratch);
	return rc;
}

int spmt_plan_simulate(const spmt_plan *plan, const struct spmt_plan_trial *trial)
{
	struct spmt_plan_trial ours;
	struct plan_order order;
	int rc = plan ? plan_take(simulate_name, "trial", &ours, sizeof(ours), trial, sizeof(ours))
		      : fail_call(-EINVAL, simulate_name, "plan is NULL");

	if (!rc)
		rc = trial_check(plan, &ours);
	if (rc)
		return rc;
	rc = plan_order_open(&order, plan, ours.seed);
	if (!rc)
		rc = plan_simulate(&order, NULL, &ours);
	plan_order_close(&order);
	return rc;
}
