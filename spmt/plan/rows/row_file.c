/* SPDX-License-Identifier: MIT */
/* A file as a plan that stands for one of the library's collectives: its shape, and that it does what it says. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "row.h"
#include "spmt/control/coll_key.h"
#include "spmt/plan/lower.h"
#include "spmt/plan/simulate.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define ROW_FILE_MAX (64 << 20)
#define ROW_TRIAL_MAX (512u << 20) /* bytes of all ranks' buffers and scratch while one is tried */

static const char row_name[] = "SPMT_COLL";

/* ---- the file ------------------------------------------------------------------------------------ */

static int row_bytes(int fd, const char *file, size_t size, char **text)
{
	char *bytes = mem_calloc(size + 1, 1);
	ssize_t n = 1;
	size_t at = 0;

	if (!bytes)
		return fail_call(-ENOMEM, row_name, "%s: no memory for %zu bytes", file, size);
	while (at < size && n > 0) {
		n = read(fd, bytes + at, size - at);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			at += (size_t)n;
	}
	if (n >= 0 && at == size) {
		*text = bytes;
		return 0;
	}
	mem_free(bytes);
	return n < 0 ? fail_call_errno(errno, row_name, "%s", file)
		     : fail_call(-EIO, row_name, "%s became shorter while it was read", file);
}

static int row_text(const char *file, char **text, size_t *size)
{
	struct stat st;
	int fd = process_fd(open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK)), rc;

	if (fd < 0)
		return fail_call_errno(errno, row_name, "%s", file);
	if (fstat(fd, &st))
		rc = fail_call_errno(errno, row_name, "%s", file);
	else if (!S_ISREG(st.st_mode) || st.st_size > ROW_FILE_MAX)
		rc = fail_call(-EINVAL, row_name, "%s is no file of at most %d MiB", file,
			ROW_FILE_MAX >> 20);
	else
		rc = row_bytes(fd, file, (size_t)st.st_size, text);
	close(fd);
	*size = rc ? 0 : (size_t)st.st_size;
	return rc;
}

/* ---- its shape ----------------------------------------------------------------------------------- */

static const struct row_kind {
	const char *collective;
	enum kernel_collective_kind kind;
} row_kinds[] = { { "allreduce", COLL_ALL_REDUCE }, { "allgather", COLL_ALL_GATHER },
	{ "reducescatter", COLL_REDUCE_SCATTER }, { "alltoall", COLL_ALL_TO_ALL } };

static bool row_folds(const spmt_plan *plan)
{
	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++)
				if (plan_kinds[plan->ranks[r].blocks[b].ops[i].kind].folds)
					return true;
	return false;
}

/* Input and output are as large as the collective's. */
static bool row_shaped(const struct spmt_plan_attr *a, enum kernel_collective_kind kind)
{
	uint64_t n = (uint64_t)a->nranks, in = a->input_chunks, out = a->output_chunks;

	switch (kind) {
	case COLL_ALL_GATHER:
		return in && out == in * n;
	case COLL_REDUCE_SCATTER:
		return in && in == out * n;
	case COLL_ALL_TO_ALL:
		return in && in == out && in % n == 0;
	default: /* in place one of them may be left out */
		return (in && in == out) || (a->in_place && !in != !out);
	}
}

static int row_shape(const char *file, const spmt_plan *plan, enum kernel_collective_kind *kind)
{
	const struct spmt_plan_attr *a = &plan->attr;
	size_t i = 0;

	while (i < ARRAY_SIZE(row_kinds) && strcmp(row_kinds[i].collective, plan->collective) != 0)
		i++;
	if (i == ARRAY_SIZE(row_kinds))
		return fail_call(-EINVAL, row_name,
			"%s: collective \"%s\" is none of allreduce, allgather, reducescatter, alltoall",
			file, plan->collective);
	if (!row_shaped(a, row_kinds[i].kind))
		return fail_call(-EINVAL, row_name,
			"%s: %u chunks of input and %u of output are not those of an %s of %d ranks",
			file, a->input_chunks, a->output_chunks, plan->collective, a->nranks);
	if (!(COLL_FOLDS >> row_kinds[i].kind & 1) && row_folds(plan))
		return fail_call(-EINVAL, row_name, "%s: it reduces, which an %s does not", file,
			plan->collective);
	*kind = row_kinds[i].kind;
	return 0;
}

int plan_row_load(const char *file, spmt_plan **plan, enum kernel_collective_kind *kind)
{
	char *text = NULL;
	size_t size = 0;
	int rc = row_text(file, &text, &size);

	if (rc)
		return rc;
	rc = spmt_plan_read(text, size, plan);
	mem_free(text);
	if (rc)
		return fail_call(rc, row_name, "%s: %.400s", file, status_sentence());
	rc = row_shape(file, *plan, kind);
	if (rc)
		spmt_plan_destroy(*plan);
	return rc;
}

/* ---- what it does -------------------------------------------------------------------------------- */

/* A trial of it: all ranks' buffers; in place the larger one is both. */
struct row_trial {
	const spmt_plan *plan;
	enum kernel_collective_kind kind;
	const struct plan_order *order;
	const struct plan_limit *limit;
	struct plan_grid grid;
	size_t in, out; /* elements */
	uint32_t *elements;
	void **ins, **outs;
};

static uint32_t row_input(size_t rank, size_t i)
{
	uint64_t x = (rank << 40 ^ i) + 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return (uint32_t)(x >> 32);
}

static uint32_t row_folded(const struct row_trial *t, enum spmt_op op, size_t i)
{
	uint32_t all = row_input(0, i), x;

	for (size_t r = 1; r < (size_t)t->plan->attr.nranks; r++) {
		x = row_input(r, i);
		all = op == SPMT_OP_SUM ? all + x : MIN_OF(all, x);
	}
	return all;
}

/* Element i of rank's output. */
static uint32_t row_wanted(const struct row_trial *t, enum spmt_op op, size_t rank, size_t i)
{
	size_t each = t->out / (size_t)t->plan->attr.nranks;

	switch (t->kind) {
	case COLL_ALL_GATHER:
		return row_input(i / each, i % each);
	case COLL_ALL_TO_ALL:
		return row_input(i / each, rank * each + i % each);
	case COLL_REDUCE_SCATTER:
		return row_folded(t, op, rank * t->out + i);
	default:
		return row_folded(t, op, i);
	}
}

/* How a plan cuts what it moves: parts of the operation that is cut into most, and whether chunks are cut in several ways, or several at once. */
struct row_cuts {
	int most;
	bool vary;
};

static void row_cut(struct row_cuts *cuts, const struct spmt_plan_op *op)
{
	if (op->slices < 2)
		return;
	cuts->vary |= (cuts->most > 1 && op->slices != cuts->most) ||
		(op->nsrc && op->src[0].count > 1) || (op->ndst && op->dst[0].count > 1);
	cuts->most = MAX_OF(cuts->most, op->slices);
}

static struct row_cuts row_cuts_of(const spmt_plan *plan)
{
	struct row_cuts cuts = { .most = 1 };

	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++)
				row_cut(&cuts, &plan->ranks[r].blocks[b].ops[i]);
	return cuts;
}

/* Element i of all ranks' outputs; of an all_reduce they want the same. */
static int row_same(const struct row_trial *t, enum spmt_op op, size_t i)
{
	uint32_t wanted = 0;

	for (size_t r = 0; r < (size_t)t->plan->attr.nranks; r++) {
		if (r == 0 || t->kind != COLL_ALL_REDUCE)
			wanted = row_wanted(t, op, r, i);
		if (((const uint32_t *)t->outs[r])[i] != wanted)
			return fail(-EINVAL,
				"plan %s is no %s: of rank %zu's output, chunk %zu is something else",
				t->plan->name, t->plan->collective, r, i / t->grid.n);
	}
	return 0;
}

static int row_try(struct row_trial *t, enum spmt_op op)
{
	struct spmt_plan_trial trial = { .size = sizeof(trial),
		.out = t->outs,
		.in = t->ins,
		.count = t->in,
		.type = SPMT_TYPE_U32,
		.op = op };
	size_t n = (size_t)t->plan->attr.nranks;
	int rc;

	for (size_t r = 0; r < n; r++)
		for (size_t i = 0; i < t->in; i++)
			((uint32_t *)t->ins[r])[i] = row_input(r, i);
	rc = plan_simulate(t->order, &t->grid, &trial);
	for (size_t i = 0; !rc && i < t->out; i++)
		rc = row_same(t, op, i);
	return rc;
}

static int row_trial_open(struct row_trial *t, size_t chunk)
{
	int rc = plan_grid_open(&t->grid, t->order, chunk);
	const struct spmt_plan_attr *a = &t->plan->attr;
	size_t n = (size_t)a->nranks, apart, each, scratch, bytes;

	if (rc)
		return rc;
	t->in = a->input_chunks * t->grid.n;
	t->out = a->output_chunks * t->grid.n;
	if (t->kind == COLL_ALL_REDUCE)
		t->in = t->out = MAX_OF(t->in, t->out);
	apart = a->in_place ? 0 : t->in;
	each = apart + (a->in_place ? MAX_OF(t->in, t->out) : t->out);
	scratch = a->scratch_chunks * t->grid.n * (plan_has_packets(t->plan) ? 2 : 1);
	bytes = n * (each + scratch) * sizeof(uint32_t);
	if (bytes > ROW_TRIAL_MAX)
		return fail(-E2BIG,
			"plan %s: trying whether it is right takes %zu MiB, and %u are the most",
			t->plan->name, (bytes + (1 << 20) - 1) >> 20, ROW_TRIAL_MAX >> 20);
	t->elements = mem_calloc(n, each * sizeof(uint32_t));
	t->ins = mem_calloc(2 * n, sizeof(void *));
	if (!t->elements || !t->ins)
		return fail(-ENOMEM, "plan %s: no memory to try it", t->plan->name);
	t->outs = t->ins + n;
	for (size_t r = 0; r < n; r++) {
		uint32_t *at = t->elements + r * each;
		bool within = a->in_place;

		t->ins[r] = at + (within && t->kind == COLL_ALL_GATHER ? r * t->in : 0);
		t->outs[r] =
			at + apart + (within && t->kind == COLL_REDUCE_SCATTER ? r * t->out : 0);
	}
	return 0;
}

/* Of a sum each input has to come once, or the numbers differ; the least tells of scratch that nobody has written. */
static int row_prove_at(struct row_trial *t, size_t chunk)
{
	int rc = plan_goes_on(t->plan, t->limit);

	if (!rc)
		rc = row_trial_open(t, chunk);
	if (!rc)
		rc = row_try(t, SPMT_OP_SUM);
	if (!rc && COLL_FOLDS >> t->kind & 1)
		rc = row_try(t, SPMT_OP_MIN);
	plan_grid_close(&t->grid);
	mem_free(t->elements);
	mem_free(t->ins);
	t->elements = NULL;
	t->ins = NULL;
	return rc;
}

/*
 * Parts begin at lines, so what two ways of cutting leave between them shows where parts have several, and not the same number; or, where
 * a way is not that of chunks themselves, at some number of lines up to that and a last one that is none. What is cut in one way, a chunk
 * at a time, has all of its parts at every size or at none.
 */
static int row_prove_all(struct row_trial *t)
{
	struct row_cuts cuts = row_cuts_of(t->plan);
	size_t most = (size_t)(uint32_t)cuts.most;
	int rc = row_prove_at(t, 128 * most);

	if (!rc && most > 1)
		rc = row_prove_at(t, 128 * (2 * most + 1));
	for (size_t lines = 0; !rc && cuts.vary && lines <= 2 * most + 1; lines++)
		rc = row_prove_at(t, 128 * lines + 8);
	return rc;
}

int plan_row_prove(
	const spmt_plan *plan, enum kernel_collective_kind kind, const struct plan_limit *limit)
{
	struct plan_order order;
	struct row_trial t = { .plan = plan, .kind = kind, .order = &order, .limit = limit };
	int rc = plan_check(plan, limit);

	if (rc)
		return rc;
	rc = plan_order_open(&order, plan, 1);
	if (!rc)
		rc = row_prove_all(&t);
	plan_order_close(&order);
	return rc;
}

/* ---- in place and not ---------------------------------------------------------------------------- */

bool plan_row_writes_input(const spmt_plan *plan)
{
	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++) {
				const struct spmt_plan_op *op = &plan->ranks[r].blocks[b].ops[i];

				for (int d = 0; d < op->ndst; d++)
					if (op->dst[d].buffer == SPMT_PLAN_INPUT)
						return true;
			}
	return false;
}

/* In place a source of it and what it writes overlap, and are not the same: threads would store over what others are to load. */
static bool row_op_shifts(const spmt_plan *plan, const struct spmt_plan_op *op)
{
	for (int s = 0; s < op->nsrc; s++)
		for (int d = 0; d < op->ndst; d++) {
			struct spmt_plan_chunk from = plan_merged_in_place(plan, op->src[s]),
					       to = plan_merged_in_place(plan, op->dst[d]);

			if (plan_src_place(op, s) == plan_dst_place(op, d) &&
				from.rank == to.rank && from.buffer == to.buffer &&
				from.index != to.index && from.index < to.index + to.count &&
				to.index < from.index + from.count)
				return true;
		}
	return false;
}

static bool row_shifts(const spmt_plan *plan)
{
	for (int r = 0; r < plan->attr.nranks; r++)
		for (int b = 0; b < plan->ranks[r].nblocks; b++)
			for (size_t i = 0; i < plan->ranks[r].blocks[b].n; i++)
				if (row_op_shifts(plan, &plan->ranks[r].blocks[b].ops[i]))
					return true;
	return false;
}

/* What stops the proof is no verdict, which all ranks have to share. */
static int row_try_other(spmt_plan *plan, enum kernel_collective_kind kind,
	const struct plan_limit *limit, bool *either)
{
	const int was = plan->attr.in_place;
	struct status_saved before;
	int rc;

	status_save(&before);
	plan->attr.in_place = !was;
	rc = plan_row_prove(plan, kind, limit);
	plan->attr.in_place = was;
	if (rc == -ENOMEM || rc == -ECANCELED || rc == SPMT_ERR_TIMEOUT)
		return rc;
	status_restore(&before);
	*either = !rc;
	return 0;
}

static int row_find(spmt_plan *plan, enum kernel_collective_kind kind,
	const struct plan_limit *limit, struct plan_found *found, bool *either)
{
	const uint64_t key = coll_fold(plan_fold_all(plan), (uint64_t)kind);
	int rc;

	for (int i = 0; i < found->n; i++)
		if (found->at[i].key == key) {
			*either = found->at[i].either;
			return 0;
		}
	rc = row_try_other(plan, kind, limit, either);
	if (!rc && found->n < (int)ARRAY_SIZE(found->at))
		found->at[found->n++] = (struct plan_found_one){ key, *either };
	return rc;
}

/* What it reads as input and writes as output may then be one place or two, as the call has it. */
int plan_row_either(spmt_plan *plan, enum kernel_collective_kind kind,
	const struct plan_limit *limit, struct plan_found *found, bool *either)
{
	int rc;

	*either = false;
	if (!plan->attr.input_chunks || !plan->attr.output_chunks || plan_row_writes_input(plan) ||
		row_shifts(plan))
		return 0;
	pthread_mutex_lock(&found->lock);
	rc = row_find(plan, kind, limit, found, either);
	pthread_mutex_unlock(&found->lock);
	return rc;
}
