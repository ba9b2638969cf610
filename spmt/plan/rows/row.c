/* SPDX-License-Identifier: MIT */
/* SPMT_COLL as a list, and plans among the rows: which one takes a call, and what is queued for it. */
#include "row.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "row_fit.h"
#include "spmt/calls/view.h"
#include "spmt/comm/broken.h"
#include "spmt/comm/table.h"
#include "spmt/control/coll_key.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/names.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/area_words.h"
#include "src/kernels/plan_row.h"

#define ROW_GRAIN (16u << 10) /* bytes for each thread block of a copy */
#define ROW_WORD 4096	      /* a file's name */

struct plan_rows {
	struct coll_plans calls; /* first */
	bool only;
	int n;
	uint64_t size, key;
	struct plan_limit
		limit; /* of all proofs together: the others are to hear of it before they have waited too long */
	struct coll_plan plans[PLAN_ROWS_MOST];
	/* of a world: all that SPMT_COLL names, for its parts too */
	int nfiles;
	struct row_file {
		spmt_plan *plan;
		enum kernel_collective_kind kind;
		bool either;
	} files[PLAN_ROWS_MOST];
};

static struct plan_rows *rows_of(const spmt_comm *comm)
{
	return (struct plan_rows *)(void *)comm->plans;
}

/* ---- which fits ---------------------------------------------------------------------------------- */

static bool row_is_for(const struct coll_plan *p, enum kernel_collective_kind kind)
{
	return p->kind == (kind == COLL_EXCHANGE ? COLL_ALL_TO_ALL : kind);
}

/* Equal on all ranks: of what they compare, and of what is the same everywhere. A plan is for some number of elements. */
static int row_choose(
	spmt_comm *comm, const struct coll_planned *call, const struct coll_plan **plan)
{
	const struct plan_rows *rows = rows_of(comm);
	const struct coll_plan *last = NULL;
	char why[128] = "";

	*plan = NULL;
	if (!call->count)
		return 0;
	for (int i = 0; i < rows->n; i++) {
		const struct coll_plan *p = &rows->plans[i];

		if (!row_is_for(p, call->kind))
			continue;
		last = p;
		if (row_misfit(comm, p, call) == ROW_FITS) {
			*plan = p;
			return 0;
		}
	}
	if (!rows->only || !last)
		return 0;
	row_misfit_words(comm, last, call, why, sizeof(why));
	return fail_call(-EINVAL, call->what,
		"rank %d: SPMT_COLL wants plans only, and none fits: plan %s: %s", comm->rank,
		last->name, why);
}

/* ---- what is queued ------------------------------------------------------------------------------ */

/* behind: the result, unless the calls differed; else an input. */
static int row_copy(spmt_comm *comm, uint64_t dst, uint64_t src, uint64_t bytes, int behind,
	struct coll_in_stream *in)
{
	struct kernel_stage_args args = { .dst = dst,
		.dst_step = bytes,
		.src = src,
		.src_step = bytes,
		.blocks = 1,
		.bytes = bytes,
		.behind = behind };
	int rc;

	view_fill(comm, &args.view);
	rc = kernel_queue_wide(comm, &kernel_stage, &args, sizeof(args),
		coll_grid(comm, bytes, ROW_GRAIN, COLL_BLOCKS), in->stream);
	in->queued |= !rc;
	return rc;
}

/* Where the plan finds its input, and where it is to lie there first. */
struct row_ways {
	struct plan_call call; /* as the plan runs it */
	uint64_t from, to;     /* a copy of the input, by the plan's kernel; equal: none */
	uint64_t back;	       /* a copy of the result behind it, to the call's dst; 0: none */
	uint64_t in, out;      /* bytes */
};

/* Where the input is when the plan runs. */
enum row_input {
	ROW_AT_SRC,	      /* where the call has it */
	ROW_AT_DST,	      /* copied to its place in dst */
	ROW_AT_SPARE,	      /* copied to the plan's own memory */
	ROW_AT_SPARE_AND_BACK /* likewise, and the result from there to dst */
};

/* at: its place in dst, of a plan in place. */
static enum row_input row_input_for(
	const struct coll_plan *p, const struct row_ways *w, uintptr_t at)
{
	uintptr_t dst = (uintptr_t)w->call.dst, src = (uintptr_t)w->call.src;

	if (p->either)
		return ROW_AT_SRC;
	if (p->open.attr.in_place && at != src)
		return p->open.scatters ? ROW_AT_SPARE_AND_BACK : ROW_AT_DST;
	if (p->open.attr.in_place)
		return p->open.scatters && p->writes ? ROW_AT_SPARE_AND_BACK : ROW_AT_SRC;
	if (p->writes || dst - src < w->in || src - dst < w->out)
		return ROW_AT_SPARE;
	return ROW_AT_SRC;
}

static struct row_ways row_ways(
	const spmt_comm *comm, const struct coll_plan *p, const struct coll_planned *c)
{
	const struct spmt_plan_attr *a = &p->open.attr;
	uint64_t bytes = row_input_bytes(p, c);
	uint64_t chunk = bytes / plan_parts(a);
	struct row_ways w = { .call = { &p->open, c->dst, c->src, c->count, c->type, c->op, chunk },
		.in = bytes,
		.out = chunk * a->output_chunks };
	uintptr_t at = plan_in_place_at(&w.call, comm->rank);
	enum row_input input = row_input_for(p, &w, at);

	w.from = w.to = (uintptr_t)c->src;
	switch (input) {
	case ROW_AT_SRC:
		break;
	case ROW_AT_DST:
		w.call.src = c->dst;
		w.to = at;
		break;
	case ROW_AT_SPARE:
	case ROW_AT_SPARE_AND_BACK:
		w.call.src = p->own + p->spare;
		w.to = (uintptr_t)w.call.src;
		break;
	}
	if (input == ROW_AT_SPARE_AND_BACK)
		w.back = w.to + (uint64_t)(uint32_t)comm->rank * w.out;
	return w;
}

/* A thread for each packet, or as many as copy: few meet sooner. */
static uint64_t row_threads(const spmt_comm *comm, const struct row_ways *w)
{
	const struct spmt_plan_open *o = w->call.open;
	uint64_t units = o->layout.widest * w->call.chunk / 8;

	if (w->from != w->to)
		units = MAX_OF(units, w->in / 16 / (uint64_t)MAX_OF(o->blocks, 1));
	return MAX_OF(units, 2 * (uint64_t)comm->nranks);
}

/* What a rank calls, but for its packets. */
static void row_fill(spmt_comm *comm, const struct coll_plan *p, const struct coll_planned *c,
	const struct row_ways *w, const struct coll_in_stream *in, struct kernel_plan_row_args *row)
{
	*row = (struct kernel_plan_row_args){
		.plan = plan_given(comm, &w->call),
		.from = w->from,
		.to = w->to,
		.bytes = w->in,
		.apart = p->open.layout.apart,
		.closed = p->open.layout.closed,
	};
	row->plan.row = 1;
	row->plan.other_packets = p->sets.other_packets;
	row->plan.other_scratch = p->sets.other_scratch;
	row->same = (struct kernel_collective_args){ .dst = row->plan.dst,
		.src = row->plan.src,
		.key = c->key,
		.report = row->plan.report,
		.type = (int)c->type,
		.op = (int)c->op,
		.room = comm->slot_room,
		.places = coll_places(comm->nranks),
		.part = c->part,
		.captured = in->reserved.captured,
		.words = AREA_BLOCKS,
		.alone = coll_is_alone(comm, &kernel_plan_row) };
	view_fill(comm, &row->same.view);
}

_Static_assert(4 * SPMTD_SHARE_LINE_ <= KERNEL_BLOCK * PLAN_PACKETS_NARROW,
	"what is not in brief has room for wide packets, for which its kernel is made");

static struct plan_packets_way row_way(
	const spmt_comm *comm, const struct coll_plan *p, const struct plan_given *g)
{
	bool folds = coll_kinds[p->kind].folds;

	if (comm_cpu_access(comm))
		return (struct plan_packets_way){ 0, 0 };
	return row_packets_way(&p->packets, g, KERNEL_BLOCK, coll_whole_units(comm),
		folds ? type_size((enum spmt_type)g->type) : 1);
}

static int row_run(spmt_comm *comm, const struct coll_plan *p, const struct coll_planned *c,
	const struct row_ways *w, struct coll_in_stream *in)
{
	struct kernel_plan_packets_args args;
	struct kernel_plan_row_args *row = &args.row;
	struct plan_packets_way way;
	struct kernel_grid grid;
	int rc = 0;

	row_fill(comm, p, c, w, in, row);
	way = row_way(comm, p, &row->plan);
	if (way.size == PLAN_PACKETS_WIDE && row->from != row->to) {
		rc = row_copy(comm, row->to, row->from, row->bytes, 0, in);
		row->from = row->to;
	}
	if (rc)
		return rc;
	if (row_packets_fit(way, row)) {
		grid = row_packets_grid(comm, &p->packets, &row->plan, way);
		row_packets_fill(&p->packets, &row->plan, way, comm->peers.host, grid.threads,
			&args.packets);
		rc = kernel_queue_grid(comm,
			kernel_of_plan_packets(
				row->plan.type, coll_kinds[p->kind].folds, way.brief),
			&args, sizeof(args), grid, in->stream);
	} else {
		grid = kernel_grid_of(
			comm, (unsigned)MAX_OF(p->open.blocks, 1), row_threads(comm, w));
		rc = kernel_queue_grid(comm, &kernel_plan_row, row, sizeof(*row), grid, in->stream);
	}
	in->queued |= !rc;
	in->met |= !rc;
	if (!rc && w->back)
		rc = row_copy(comm, (uint64_t)(uintptr_t)w->call.dst, w->back, w->out, 1, in);
	return rc;
}

static int row_queue(spmt_comm *comm, const struct coll_plan *plan, const struct coll_planned *call,
	struct coll_in_stream *in)
{
	struct row_ways ways = row_ways(comm, plan, call);
	int rc = row_run(comm, plan, call, &ways, in);

	/* The others have met this rank and would take its part as complete. */
	if (rc && in->met)
		comm_break_last(comm, rc);
	return rc;
}

static int row_make_of(
	spmt_comm *comm, const struct row_file *f, struct coll_plan *p, uint64_t *size)
{
	p->kind = f->kind;
	p->either = f->either;
	return row_make(comm, f->plan, p, size);
}

static void row_log(const spmt_comm *comm, const struct coll_plan *p, const char *file)
{
	if (comm->rank == 0)
		log_line(LOG_INFO, "SPMT_COLL: plan %s (%s): %s of %llu to %llu bytes, %u chunks",
			p->name, file, coll_kinds[p->kind].call,
			(unsigned long long)p->open.attr.min_bytes, (unsigned long long)p->most,
			p->open.attr.input_chunks);
}

/* Rank 0 proves it for all, who compare theirs with it; but whether it needs a copy of inputs each finds out. */
static int row_prove(
	const spmt_comm *comm, const struct plan_limit *limit, const char *file, struct row_file *f)
{
	int rc = comm->rank == 0 ? plan_row_prove(f->plan, f->kind, limit) : 0;

	if (!rc)
		rc = plan_row_either(f->plan, f->kind, limit, &comm->world->plans, &f->either);
	if (!rc) {
		f->plan->attr.in_place &= !f->either;
		return 0;
	}
	return fail_call(rc, "SPMT_COLL", "%s: %.400s", file, status_sentence());
}

/* One that is for another number of ranks is none of this world's; but for fewer it may be one of its parts'. */
static int row_other(const spmt_comm *comm, const struct plan_rows *rows, const char *file,
	const spmt_plan *plan)
{
	bool fewer = plan->attr.nranks < comm->nranks;

	if (rows->only)
		return fail_call(-EINVAL, "SPMT_COLL",
			"%s: plan %s is for %d ranks, the world has %d", file, plan->name,
			plan->attr.nranks, comm->nranks);
	if (comm->rank == 0)
		log_line(LOG_INFO, "SPMT_COLL: plan %s (%s) is for %d ranks, the world has %d: %s",
			plan->name, file, plan->attr.nranks, comm->nranks,
			fewer ? "taken by parts alone" : "not taken");
	return 0;
}

static int row_add(spmt_comm *comm, struct plan_rows *rows, const char *file)
{
	struct row_file *f = &rows->files[rows->nfiles];
	struct coll_plan *p = &rows->plans[rows->n];
	int n, rc = plan_row_load(file, &f->plan, &f->kind);

	if (rc)
		return rc;
	rows->nfiles++; /* from here on plan_rows_close destroys it */
	n = f->plan->attr.nranks;
	if (n != comm->nranks)
		rc = row_other(comm, rows, file, f->plan);
	if (!rc && n <= comm->nranks) {
		rows->key = coll_fold(rows->key, plan_fold_all(f->plan));
		rc = row_prove(comm, &rows->limit, file, f);
	}
	if (!rc && n == comm->nranks)
		rc = row_make_of(comm, f, p, &rows->size);
	if (!rc && n == comm->nranks) {
		rows->n++;
		row_log(comm, p, file);
	}
	return rc;
}

static bool rows_only(const char *wish, char *word)
{
	while (plan_rows_part(&wish, word, ROW_WORD))
		if (!strcmp(word, PLAN_ROWS_ONLY))
			return true;
	return false;
}

static int rows_read(spmt_comm *comm, struct plan_rows *rows, const char *wish, char *word)
{
	struct plan_rows_words words = { .plans = 0 };
	int64_t ms = comm_timeout(comm);
	int rc = 0;

	rows->only = rows_only(wish, word);
	rows->limit = (struct plan_limit){ control_stop_word(comm->control),
		ms > 0 ? process_now() + ms * 1000000 / 4 * 3 : INT64_MAX };
	while (!rc && plan_rows_part(&wish, word, ROW_WORD)) {
		const char *file = NULL;

		rc = plan_rows_word(&words, word, &file);
		if (!rc && file)
			rc = row_add(comm, rows, file);
	}
	if (!rc)
		rc = plan_rows_words_end(&words);
	return rc ? rc : coll_wish(comm, *words.row ? words.row : NULL);
}

int plan_rows_read(spmt_comm *comm, const char *wish)
{
	struct plan_rows *rows;
	char *word;
	int rc;

	if (!wish || (!strpbrk(wish, ",:") && strcmp(wish, PLAN_ROWS_ONLY)))
		return coll_wish(comm, wish);
	rows = mem_calloc(1, sizeof(*rows));
	word = mem_calloc(1, ROW_WORD);
	rc = rows && word ? rows_read(comm, rows, wish, word)
			  : fail_call(-ENOMEM, "SPMT_COLL", "no memory for its plans");
	mem_free(word);
	comm->plans = rows ? &rows->calls : NULL;
	if (rows)
		rows->calls = (struct coll_plans){ row_choose, row_grain, row_queue };
	if (rc || !rows->nfiles) {
		plan_rows_close(comm);
		return rc ? comm_failed(comm, "spmt_init", rc) : 0;
	}
	return 0;
}

/* ---- parts --------------------------------------------------------------------------------------- */

/* What has no room there is not taken; but `only` wants it. */
static int row_split(spmt_comm *part, struct plan_rows *rows, const struct row_file *f)
{
	struct coll_plan *p = &rows->plans[rows->n];
	struct status_saved before;
	int rc;

	status_save(&before);
	rc = row_make_of(part, f, p, &rows->size);
	if (!rc) {
		rows->n++;
		return 0;
	}
	if (rc != -EINVAL || rows->only)
		return rc;
	if (part->rank == 0)
		log_line(LOG_INFO, "a part of %d ranks does not take it: %s", part->nranks,
			status_sentence());
	status_restore(&before);
	return 0;
}

int plan_rows_split(spmt_comm *part)
{
	const spmt_comm *world = part;
	const struct plan_rows *from;
	struct plan_rows *rows;
	int rc = 0;

	while (world->parent)
		world = world->parent;
	if (!world->plans)
		return 0;
	from = rows_of(world);
	rows = mem_calloc(1, sizeof(*rows));
	if (!rows)
		return fail_call(-ENOMEM, "SPMT_COLL", "no memory for its plans");
	rows->calls = (struct coll_plans){ row_choose, row_grain, row_queue };
	rows->only = from->only;
	part->plans = &rows->calls;
	for (int i = 0; !rc && i < from->nfiles; i++)
		if (from->files[i].plan->attr.nranks == part->nranks)
			rc = row_split(part, rows, &from->files[i]);
	if (!rc && !rows->n)
		plan_rows_close(part);
	return rc;
}

/* ---- its memory ---------------------------------------------------------------------------------- */

uint64_t plan_rows_size(const spmt_comm *comm)
{
	return comm->plans ? rows_of(comm)->size : 0;
}

uint64_t plan_rows_key(const spmt_comm *comm)
{
	return comm->plans ? coll_fold(rows_of(comm)->key, rows_of(comm)->only) : 0;
}

static int row_open(spmt_comm *comm, struct coll_plan *p, char *own, uint64_t at)
{
	const struct plan_layout *l = &p->open.layout;
	int rc = 0;

	p->own = own;
	p->at += at;
	p->spare += at;
	p->open.at = own + p->at;
	if (comm_cpu_access(comm))
		memcpy(p->open.at, p->table, l->words);
	else
		rc = comm->backend->copy(comm->dev, p->open.at, p->table, l->words, comm->stream);
	if (!rc && !comm_cpu_access(comm))
		rc = stream_drain(comm, "spmt_init");
	return rc;
}

int plan_rows_open(spmt_comm *comm, char *own, uint64_t at)
{
	struct plan_rows *rows = comm->plans ? rows_of(comm) : NULL;
	int rc = 0;

	for (int i = 0; rows && i < rows->n && !rc; i++)
		rc = row_open(comm, &rows->plans[i], own, at);
	return rc;
}

int plan_rows_fit(const spmt_comm *comm)
{
	const struct plan_rows *rows = comm->plans ? rows_of(comm) : NULL;

	for (int i = 0; rows && i < rows->n && !comm_cpu_access(comm); i++)
		if (rows->plans[i].open.blocks > comm->units)
			return fail_call(-EINVAL, "SPMT_COLL",
				"plan %s has %d blocks, and %d are sure to run at once here",
				rows->plans[i].name, rows->plans[i].open.blocks, comm->units);
	return 0;
}

void plan_rows_close(spmt_comm *comm)
{
	struct plan_rows *rows = comm->plans ? rows_of(comm) : NULL;

	for (int i = 0; rows && i < PLAN_ROWS_MOST; i++)
		mem_free(rows->plans[i].table);
	for (int i = 0; rows && i < rows->nfiles; i++)
		spmt_plan_destroy(rows->files[i].plan);
	mem_free(rows);
	comm->plans = NULL;
}
