/* SPDX-License-Identifier: MIT */
/*
 * A plan on a comm: its table and scratch in one block of symmetric memory, and each run four kernels in a stream. The first says what
 * this rank calls; the second meets the others; the third compares, and runs; the last meets them again.
 */
#include <errno.h>
#include <string.h>

#include "run.h"
#include "spmt/calls/rma.h"
#include "spmt/calls/sync.h"
#include "spmt/calls/view.h"
#include "spmt/collective/collective.h"
#include "spmt/comm/broken.h"
#include "spmt/control/coll_key.h"
#include "spmt/control/exclusive.h"
#include "spmt/control/trace.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

/* ---- begin ------------------------------------------------------------------------------------ */

/* As long as the others wait for this rank: one of them that does so in vain breaks the world. */
static int begin_check(const spmt_comm *comm, const spmt_plan *plan, spmt_plan_open *const *open)
{
	static const char what[] = "spmt_plan_begin";
	const struct plan_limit limit = { control_stop_word(comm->control), INT64_MAX };
	int rc;

	if (!plan || !open)
		return fail_call(
			-EINVAL, what, "rank %d: %s is NULL", comm->rank, plan ? "open" : "plan");
	if (plan->attr.nranks != comm->nranks)
		return fail_call(-EINVAL, what, "rank %d: plan %s is for %d ranks, the comm has %d",
			comm->rank, plan->name, plan->attr.nranks, comm->nranks);
	if (!comm_cpu_access(comm) && plan->ranks[comm->rank].nblocks > comm->units)
		return fail_call(-EINVAL, what,
			"rank %d: plan %s has %d blocks, and %d are sure to run at once here",
			comm->rank, plan->name, plan->ranks[comm->rank].nblocks, comm->units);
	rc = plan_check(plan, &limit);
	/* What else it says is of the plan, and the same on all ranks. */
	return rc == -ENOMEM ? comm_failed(comm, what, rc) : rc;
}

int plan_open_on(spmt_comm *comm, const spmt_plan *plan, bool either, size_t max_bytes,
	struct spmt_plan_open *open)
{
	struct spmt_plan_open o = { .attr = plan->attr,
		.key = plan_fold_all(plan),
		.max_bytes = max_bytes,
		.blocks = plan->ranks[comm->rank].nblocks,
		.packets = plan_has_packets(plan),
		.scatters = !strcmp(plan->collective, "reducescatter") };
	int rc = plan_lay_out(plan, either, max_bytes, &o.layout);

	o.attr.name = o.attr.collective = NULL;
	if (!rc)
		*open = o;
	return rc;
}

static int begin_open(spmt_comm *comm, const spmt_plan *plan, size_t max_bytes,
	spmt_plan_open *const *open, struct spmt_plan_open **made)
{
	struct spmt_plan_open *o;
	int rc = begin_check(comm, plan, open);

	if (rc)
		return rc;
	o = mem_calloc(1, sizeof(*o));
	if (!o)
		return fail_call(-ENOMEM, "spmt_plan_begin", "rank %d: no memory", comm->rank);
	rc = plan_open_on(comm, plan, false, max_bytes, o);
	if (rc)
		mem_free(o);
	else
		*made = o;
	return rc;
}

/* All ranks have passed the same, and none has failed: one that has may have passed the same plan. */
static int begin_agree(spmt_comm *comm, const spmt_plan *plan, size_t max_bytes, int status)
{
	const struct meet_record record = { .op = MEET_PLAN,
		.status = status,
		.key = { plan ? plan_fold_shape(plan) : 0, plan ? plan_fold_all(plan) : 0,
			max_bytes } };
	char shape[MEET_PLAN_WORDS];

	if (!status) {
		plan_shape(plan, shape, sizeof(shape));
		meet_attach(comm, shape, strlen(shape) + 1);
	}
	return meet(comm, &record);
}

static int begin_table(spmt_comm *comm, const spmt_plan *plan, const struct spmt_plan_open *o)
{
	void *table = plan_table(plan, &o->layout, comm->rank);
	int rc = table ? spmt_copy_in(comm, o->at, table, o->layout.words)
		       : fail_call(-ENOMEM, "spmt_plan_begin", "rank %d: no memory", comm->rank);

	mem_free(table);
	if (object_is_traced(&comm->head))
		trace_forget();
	return rc;
}

/* Of a call that this one is made of. */
static int run_within(const char *what, int rc)
{
	return rc ? fail_call(rc, what, "%.400s", status_sentence()) : 0;
}

static int begin_claimed(
	spmt_comm *comm, const spmt_plan *plan, size_t max_bytes, spmt_plan_open **open)
{
	struct spmt_plan_open *o = NULL;
	void *at = NULL;
	int rc = view_whole(comm, "spmt_plan_begin");

	if (rc)
		return rc;
	rc = begin_open(comm, plan, max_bytes, open, &o);
	rc = begin_agree(comm, plan, max_bytes, rc);
	if (!rc)
		rc = run_within("spmt_plan_begin", symmetric_calloc(comm, 1, o->layout.size, &at));
	if (!rc) {
		o->at = at;
		rc = begin_table(comm, plan, o);
		rc = begin_agree(comm, plan, max_bytes, rc);
	}
	if (!rc) {
		o->number = comm->opens ? comm->opens->number + 1 : 1;
		o->next = comm->opens;
		comm->opens = o;
		*open = o;
		return 0;
	}
	KEEPS_SENTENCE;
	if (at && !comm_is_broken(comm))
		(void)symmetric_free(comm, at);
	mem_free(o);
	return rc;
}

/* Claimed from the check on: whoever else comes is refused at once, and does not wait for it. */
int spmt_plan_begin(spmt_comm *comm, const spmt_plan *plan, size_t max_bytes, spmt_plan_open **open)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	int rc = comm_begin(comm, "spmt_plan_begin");

	if (rc)
		return rc;
	rc = begin_claimed(comm, plan, max_bytes, open);
	comm_unclaim(comm);
	return rc;
}

/* ---- run -------------------------------------------------------------------------------------- */

static const char run_name[] = "spmt_plan_run";

static int run_refuse_size(const spmt_comm *comm, const struct plan_call *c, uint64_t chunks)
{
	const struct spmt_plan_attr *a = &c->open->attr;
	uint64_t bytes;

	if (__builtin_mul_overflow(c->count, type_size(c->type), &bytes) ||
		bytes > c->open->max_bytes)
		return fail_call(-EINVAL, run_name,
			"rank %d: count %zu of %s is more than the max_bytes %zu that the plan was begun with",
			comm->rank, c->count, type_name(c->type), c->open->max_bytes);
	if (bytes < a->min_bytes && !a->max_bytes)
		return fail_call(-EINVAL, run_name,
			"rank %d: %llu bytes are not in the plan's %llu and more", comm->rank,
			(unsigned long long)bytes, (unsigned long long)a->min_bytes);
	if (bytes < a->min_bytes || (a->max_bytes && bytes > a->max_bytes))
		return fail_call(-EINVAL, run_name,
			"rank %d: %llu bytes are not in the plan's %llu .. %llu", comm->rank,
			(unsigned long long)bytes, (unsigned long long)a->min_bytes,
			(unsigned long long)a->max_bytes);
	if (c->count % chunks)
		return fail_call(-EINVAL, run_name,
			"rank %d: count %zu is not a multiple of the plan's %llu chunks",
			comm->rank, c->count, (unsigned long long)chunks);
	if (c->open->packets && bytes / chunks % 8)
		return fail_call(-EINVAL, run_name,
			"rank %d: a chunk is %llu bytes; packets want multiples of 8", comm->rank,
			(unsigned long long)(bytes / chunks));
	return 0;
}

static int run_check_size(const spmt_comm *comm, struct plan_call *c)
{
	const struct spmt_plan_attr *a = &c->open->attr;
	uint64_t chunks = plan_parts(a);
	int rc;

	if ((unsigned)c->type > SPMT_TYPE_F64)
		return fail_call(-EINVAL, run_name, "rank %d: type %s (%d) is none of a plan's",
			comm->rank, type_name(c->type), (int)c->type);
	if ((int)c->op >= SPMT_OP_MADE)
		return fail_call(-EINVAL, run_name,
			"rank %d: op %#x is one of spmt_op_premul_create: a plan folds with no factors",
			comm->rank, (unsigned)c->op);
	if ((unsigned)c->op > SPMT_OP_XOR)
		return fail_call(-EINVAL, run_name, "rank %d: op %s (%d) is none of a plan's",
			comm->rank, op_name(c->op), (int)c->op);
	if (c->op >= SPMT_OP_AND && c->type >= SPMT_TYPE_F16)
		return fail_call(-EINVAL, run_name,
			"rank %d: type %s, op %s: and, or, xor are for integers", comm->rank,
			type_name(c->type), op_name(c->op));
	rc = run_refuse_size(comm, c, chunks);
	if (!rc)
		c->chunk = c->count * type_size(c->type) / chunks;
	return rc;
}

/* A buffer of so many chunks. */
static int run_check_buffer(spmt_comm *comm, const struct plan_call *c, const struct call *call,
	const void *ptr, uint32_t chunks)
{
	uint64_t bytes = chunks * c->chunk;
	int rc = !bytes || rma_quick(comm, ptr, ptr, bytes, comm->rank)
		? 0
		: rma_judge(comm, call, ptr, ptr, bytes);

	if (!rc && chunks && (uintptr_t)ptr % type_size(c->type))
		return fail_call(-EINVAL, run_name,
			"rank %d: %s %p is not aligned to its type (%zu bytes)", comm->rank,
			call->remote, ptr, type_size(c->type));
	return rc;
}

uintptr_t plan_in_place_at(const struct plan_call *c, int rank)
{
	const struct spmt_plan_attr *a = &c->open->attr;
	uint64_t own = (uint64_t)(uint32_t)rank * c->chunk;

	if (c->open->scatters)
		return (uintptr_t)c->dst - own * a->output_chunks;
	return (uintptr_t)c->dst +
		(a->output_chunks > a->input_chunks && a->input_chunks ? own * a->input_chunks : 0);
}

static int run_check(spmt_comm *comm, struct plan_call *c)
{
	static const struct call dst = { "spmt_plan_run", "dst", "dst" },
				 src = { "spmt_plan_run", "src", "src" };
	const struct spmt_plan_attr *a = &c->open->attr;
	int rc = run_check_size(comm, c);

	if (!rc && a->output_chunks)
		rc = run_check_buffer(comm, c, &dst, c->dst, a->output_chunks);
	if (!rc && a->input_chunks)
		rc = run_check_buffer(comm, c, &src, c->src, a->input_chunks);
	if (rc || !c->count || !a->input_chunks || !a->output_chunks)
		return rc;
	if (a->in_place && plan_in_place_at(c, comm->rank) != (uintptr_t)c->src)
		return fail_call(-EINVAL, run_name,
			"rank %d: the plan is in place: src is not where it lies in dst, or dst in src",
			comm->rank);
	if (!a->in_place &&
		((uintptr_t)c->dst - (uintptr_t)c->src < a->input_chunks * c->chunk ||
			(uintptr_t)c->src - (uintptr_t)c->dst < a->output_chunks * c->chunk))
		return fail_call(-EINVAL, run_name,
			"rank %d: dst %p and src %p overlap, and the plan is not in place",
			comm->rank, c->dst, c->src);
	return 0;
}

/* In place there is one buffer, which begins at the same place on all ranks. */
static void run_places(const struct plan_call *c, struct plan_given *args)
{
	const struct spmt_plan_attr *a = &c->open->attr;

	args->dst = (uint64_t)(uintptr_t)c->dst;
	args->src = (uint64_t)(uintptr_t)c->src;
	if (!a->in_place)
		return;
	if (a->output_chunks && !c->open->scatters)
		args->src = args->dst;
	else
		args->dst = args->src;
}

struct plan_given plan_given(const spmt_comm *comm, const struct plan_call *c)
{
	const struct spmt_plan_open *o = c->open;
	struct plan_given given = {
		.at = (uint64_t)(uintptr_t)o->at,
		.report = coll_report(comm),
		.steps = o->layout.steps,
		.places = o->layout.places,
		.words = o->layout.words,
		.scratch = o->layout.scratch,
		.packets = o->layout.packets,
		.chunk = c->chunk,
		.type = (int)c->type,
		.op = (int)c->op,
		.blocks = o->blocks,
	};

	run_places(c, &given);
	return given;
}

/* What has to be equal on all ranks. In place one buffer says where the other is. */
static void run_passes(
	const spmt_comm *comm, const struct plan_call *c, struct kernel_plan_args *args)
{
	const struct spmt_plan_attr *a = &c->open->attr;
	uint64_t base = (uintptr_t)comm->heap->base, *passed = args->passed;
	uint64_t key = c->open->key;
	bool any = c->count && (a->input_chunks || a->output_chunks);

	passed[PLAN_OPEN] = c->open->number;
	passed[PLAN_COUNT] = c->count;
	passed[PLAN_OP] = (uint64_t)c->op;
	/* of nothing any place will do, NULL on all ranks, too */
	if (any && (a->in_place ? !c->open->scatters : a->output_chunks > 0))
		passed[PLAN_DST] = args->plan.dst - base;
	if (any && (a->in_place ? c->open->scatters : a->input_chunks > 0))
		passed[PLAN_SRC] = args->plan.src - base;
	for (int i = 0; i < PLAN_ARGUMENTS; i++)
		key = coll_fold(key, passed[i]);
	args->key = coll_plan_key((int)c->type, key);
}

static int run_barrier_queue(spmt_comm *comm, device_stream stream)
{
	struct kernel_barrier_args args = { .report = coll_report(comm),
		.plan = 1,
		.alone = coll_is_alone(comm, &kernel_barrier) };

	view_fill(comm, &args.view);
	return kernel_queue_grid(comm, &kernel_barrier, &args, sizeof(args),
		kernel_grid_of(comm, 1, (uint64_t)comm->nranks), stream);
}

static int run_queue(spmt_comm *comm, const struct plan_call *c, device_stream stream)
{
	HOLD_DEVICE(comm);
	struct kernel_plan_args args = { .plan = plan_given(comm, c), .posts = 1 };
	const struct device_graph_ops *graph = comm->backend->graph;
	struct coll_in_stream in;
	int rc = coll_begin(comm, stream, &in);

	if (!rc && in.reserved.captured && graph)
		rc = graph->uses(comm->dev, stream, c->open);
	if (rc)
		return rc;
	view_fill(comm, &args.view);
	run_passes(comm, c, &args);
	rc = kernel_queue(comm, &kernel_plan, &args, sizeof(args), stream);
	in.queued = !rc;
	args.posts = 0;
	if (!rc)
		rc = run_barrier_queue(comm, stream);
	if (!rc)
		rc = kernel_queue_wide(comm, &kernel_plan, &args, sizeof(args),
			(unsigned)MAX_OF(c->open->blocks, 1), stream);
	if (!rc)
		rc = run_barrier_queue(comm, stream);
	/* The others would wait for what does not come. */
	if (rc && in.queued)
		comm_break_last(comm, rc);
	coll_end(comm, &in);
	return rc;
}

/* Where it is linked; NULL: it has ended, or is of another comm. What has ended is not looked at. */
static spmt_plan_open **open_link(spmt_comm *comm, const spmt_plan_open *open)
{
	spmt_plan_open **link = &comm->opens;

	while (*link && *link != open)
		link = &(*link)->next;
	return *link ? link : NULL;
}

static int open_check(spmt_comm *comm, const spmt_plan_open *open, const char *what)
{
	if (open && open_link(comm, open))
		return 0;
	return fail_call(-EINVAL, what, "rank %d: open is %s", comm->rank,
		open ? "of another comm, or has ended" : "NULL");
}

__attribute__((cold)) static void run_trace(const struct plan_call *c)
{
	trace_peer(-1, c->count * type_size(c->type));
	trace_algorithm("plan");
}

int spmt_plan_run(spmt_comm *comm, spmt_plan_open *open, void *dst, const void *src, size_t count,
	enum spmt_type type, enum spmt_op op, spmt_stream stream)
{
	EXCLUSIVE(comm, __func__);
	struct plan_call c = { open, dst, src, count, type, op, 0 };
	int rc = comm_begin(comm, run_name);

	if (rc)
		return rc;
	rc = open_check(comm, open, run_name);
	if (!rc)
		rc = run_check(comm, &c);
	if (!rc && object_is_traced(&comm->head))
		run_trace(&c);
	if (!rc)
		rc = run_queue(comm, &c, stream_of(comm, stream));
	rc = comm_failed(comm, run_name, rc);
	comm_unclaim(comm);
	return rc;
}

/* ---- end -------------------------------------------------------------------------------------- */

static void open_drop(spmt_comm *comm, spmt_plan_open *open)
{
	spmt_plan_open **link = open_link(comm, open);

	if (!link)
		return;
	*link = open->next;
	mem_free(open);
}

void plan_opens_drop(spmt_comm *comm)
{
	while (comm->opens)
		open_drop(comm, comm->opens);
}

/* Graphs that hold its runs are not launched any more, and those that were have ended; or the comm is broken, and its memory goes with the heap. */
static int end_graphs(spmt_comm *comm, const spmt_plan_open *open)
{
	const struct device_graph_ops *graph = comm->backend->graph;
	int64_t ms = comm_timeout(comm);
	int rc;

	if (!graph || graph->settle(open, ms < 0 ? INT64_MAX : process_now() + ms * 1000000))
		return 0;
	rc = fail_call(SPMT_ERR_TIMEOUT, "spmt_plan_end",
		"rank %d: a graph with a run of the plan still runs after %lld ms", comm->rank,
		(long long)ms);
	comm_break_last(comm, rc);
	return rc;
}

static int end_claimed(spmt_comm *comm, spmt_plan_open *open)
{
	int rc = comm_enter(comm, "spmt_plan_end");

	/* A broken comm: its memory goes with the heap. */
	if (rc) {
		open_drop(comm, open);
		return rc;
	}
	rc = open_check(comm, open, "spmt_plan_end");
	if (rc)
		return rc;
	rc = end_graphs(comm, open);
	if (!rc)
		rc = run_within("spmt_plan_end", symmetric_free(comm, open->at));
	/* else no rank has freed anything, and none drops it */
	if (!rc || rc == -EFAULT || comm_is_broken(comm))
		open_drop(comm, open);
	return rc;
}

/* Claimed in a broken comm, too: another thread may be running it. */
int spmt_plan_end(spmt_comm *comm, spmt_plan_open *open)
{
	UNCANCELLED;
	EXCLUSIVE(comm, __func__);
	int rc = comm_begin_any(comm, "spmt_plan_end");

	if (rc)
		return rc;
	rc = end_claimed(comm, open);
	comm_unclaim(comm);
	return rc;
}
