/* SPDX-License-Identifier: MIT */
/* Ops that users make, pre-multiplied sums: how long they live, what is refused, and where they are taken; flow-kinds has their results. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "src/kernels/coll/table.h"
#include "tests/lib/processes.h"

enum { MANY = 3000, OPS_MOST = 256 };

/* What comes of all ranks' i + rank, times their 2 + rank + more. */
static uint64_t sum_of(int n, size_t i, uint64_t more)
{
	uint64_t sum = 0;

	for (uint64_t r = 0; r < (uint64_t)n; r++)
		sum += (i + r) * (2 + r + more);
	return sum;
}

struct words {
	uint64_t *dst, *src, *factor; /* symmetric */
};

static int words_open(spmt_comm *comm, struct words *w)
{
	uint64_t factor = 2 + (uint64_t)spmt_rank(comm), *given = calloc(MANY, sizeof(*given));

	REQUIRE(given);
	for (size_t i = 0; i < MANY; i++)
		given[i] = i + (uint64_t)spmt_rank(comm);
	REQUIRE_OK(spmt_calloc(comm, MANY, 8, (void **)&w->dst));
	REQUIRE_OK(spmt_calloc(comm, MANY, 8, (void **)&w->src));
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&w->factor));
	REQUIRE_OK(spmt_copy_in(comm, w->src, given, MANY * 8));
	REQUIRE_OK(spmt_copy_in(comm, w->factor, &factor, 8));
	free(given);
	return 0;
}

static int right(spmt_comm *comm, const struct words *w, size_t count, uint64_t more)
{
	uint64_t *came = calloc(count, sizeof(*came));
	size_t wrong = 0;

	REQUIRE(came);
	REQUIRE_OK(spmt_copy_out(comm, came, w->dst, count * 8));
	for (size_t i = 0; i < count; i++)
		wrong += came[i] != sum_of(spmt_nranks(comm), i, more);
	free(came);
	REQUIRE_EQ(wrong, 0);
	return 0;
}

static int premul(spmt_comm *comm, const struct words *w, bool on_device, enum spmt_op *op)
{
	uint64_t factor = 2 + (uint64_t)spmt_rank(comm);

	return on_device
		? spmt_op_premul_create(comm, SPMT_TYPE_U64, w->factor, SPMT_SCALAR_DEVICE, op)
		: spmt_op_premul_create(comm, SPMT_TYPE_U64, &factor, SPMT_SCALAR_HOST, op);
}

/* ---- by every algorithm, in one process and in several -------------------------------------------------------------------- */

static int sums(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 1, 5, 8, 500, MANY };
	struct words w;
	enum spmt_op op;

	(void)arg;
	TRY(words_open(comm, &w));
	for (size_t i = 0; i < 10; i++) {
		REQUIRE_OK(premul(comm, &w, i % 2, &op));
		REQUIRE_OK(spmt_all_reduce(
			comm, w.dst, w.src, counts[i / 2], SPMT_TYPE_U64, op, NULL));
		REQUIRE_OK(spmt_op_destroy(comm, op));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(right(comm, &w, counts[i / 2], 0));
	}
	return spmt_barrier(comm);
}

static void by_each_row(const char *layout)
{
	NEEDS_LAYOUT(layout);
	for (int row = 0; row < COLL_ROWS; row++) {
		struct processes p = { .layout = layout };

		setenv("SPMT_COLL", coll_rows[row].name, 1);
		RANKS_OK(processes_world(&p, sums, NULL));
	}
}

Test(premul, by_each_row)
{
	by_each_row("0,1,2");
}

Test(premul, by_each_row_over_processes)
{
	by_each_row("0,2|1");
}

Test(premul, rows_that_bring_no_factors_are_passed_over)
{
	for (int row = 0; row < COLL_ROWS; row++) {
		struct coll_case c = { .kind = COLL_ALL_REDUCE,
			.bytes = 8,
			.room = 4096,
			.wanted = row,
			.factors = true };
		int chosen = coll_choose(&c);

		cr_expect(chosen == COLL_ROW_pushed || chosen == COLL_ROW_reduce ||
				chosen == COLL_ROW_twoshot,
			"%s", coll_rows[chosen].name);
	}
}

/* ---- in lanes ----------------------------------------------------------------------------------------------------------------- */

static int in_a_lane(spmt_comm *comm, void *arg)
{
	struct words w;
	spmt_comm *lane;
	enum spmt_op op, own;

	(void)arg;
	TRY(words_open(comm, &w));
	REQUIRE_OK(spmt_lane(comm, 7, &lane));
	for (int i = 0; i < 2; i++) {
		REQUIRE_OK(premul(lane, &w, i, &op));
		REQUIRE_OK(spmt_all_reduce(lane, w.dst, w.src, MANY, SPMT_TYPE_U64, op, NULL));
		REQUIRE_OK(spmt_op_destroy(lane, op));
		REQUIRE_OK(spmt_quiet(lane));
		TRY(right(comm, &w, MANY, 0));
		REQUIRE_OK(spmt_barrier(lane));
	}
	REQUIRE_OK(premul(comm, &w, false, &own));
	REQUIRE_CODE(spmt_all_reduce(lane, w.dst, w.src, 1, SPMT_TYPE_U64, own, NULL), -EINVAL);
	REQUIRE_SAYS("was not made for this comm, or is destroyed");
	return spmt_barrier(comm);
}

Test(premul, in_a_lane)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(3, NULL, in_a_lane, NULL));
}

/* All but the last rank wait in sums on lanes while one beside them is multiplied. */
static int beside_lanes(spmt_comm *comm, void *arg)
{
	enum { LANES = 16 };
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	spmt_comm *lane[LANES];
	uint64_t *out, seen[LANES];
	struct words w;
	enum spmt_op op;

	(void)arg;
	TRY(words_open(comm, &w));
	REQUIRE_OK(spmt_calloc(comm, LANES, 8, (void **)&out));
	for (int i = 0; i < LANES; i++) {
		REQUIRE_OK(spmt_lane(comm, (uint64_t)i, &lane[i]));
		REQUIRE_OK(spmt_barrier(comm)); /* so that they lie in this order */
	}
	for (int half = 0; half < 2; half++) {
		for (int i = 1; i < LANES && half == (me == n - 1); i++)
			REQUIRE_OK(spmt_all_reduce(
				lane[i], &out[i], &w.src[1], 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_barrier(comm));
		if (half)
			break;
		for (int i = 0; i < 2; i++) {
			REQUIRE_OK(premul(lane[0], &w, i, &op));
			REQUIRE_OK(spmt_all_reduce(
				lane[0], w.dst, w.src, MANY, SPMT_TYPE_U64, op, NULL));
			REQUIRE_OK(spmt_op_destroy(lane[0], op));
			REQUIRE_OK(spmt_quiet(lane[0]));
			TRY(right(comm, &w, MANY, 0));
			REQUIRE_OK(spmt_barrier(comm));
		}
	}
	for (int i = 1; i < LANES; i++)
		REQUIRE_OK(spmt_quiet(lane[i]));
	REQUIRE_OK(spmt_copy_out(comm, seen, out, sizeof(seen)));
	for (int i = 1; i < LANES; i++)
		REQUIRE_EQ(seen[i], (uint64_t)(n + n * (n - 1) / 2));
	return spmt_barrier(comm);
}

Test(premul, beside_lanes_of_processes)
{
	static const char *const layouts[] = { "0|1", "0,2|1", "0,2|1,3", "0,2,4|1,3,5" };

	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		struct processes p = { .layout = layouts[i] };

		NEEDS_LAYOUT(layouts[i]);
		RANKS_OK(processes_world(&p, beside_lanes, NULL));
	}
}

/* ---- in graphs ---------------------------------------------------------------------------------------------------------------- */

struct change {
	uint64_t *factor, by;
};

static void change(void *args)
{
	const struct change *c = args;

	*c->factor += c->by;
}

/* The device's scalar is read by each launch. The op is gone by then. */
static int in_a_graph(spmt_comm *comm, void *arg)
{
	struct words w;
	spmt_host_graph *graph;
	spmt_stream stream;
	enum spmt_op op;

	(void)arg;
	TRY(words_open(comm, &w));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(premul(comm, &w, true, &op));
	REQUIRE_OK(spmt_host_graph_begin(stream));
	REQUIRE_OK(spmt_all_reduce(comm, w.dst, w.src, MANY, SPMT_TYPE_U64, op, stream));
	REQUIRE_OK(spmt_host_launch(
		comm, stream, change, &(struct change){ w.factor, 5 }, sizeof(struct change)));
	REQUIRE_OK(spmt_host_graph_end(stream, &graph));
	REQUIRE_OK(spmt_op_destroy(comm, op));
	for (uint64_t i = 0; i < 20; i++) {
		REQUIRE_OK(spmt_host_graph_launch(graph, stream));
		REQUIRE_OK(spmt_host_stream_synchronize(stream));
		TRY(right(comm, &w, MANY, 5 * i));
	}
	REQUIRE_OK(spmt_host_graph_destroy(graph));
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_host_stream_destroy(stream);
}

Test(premul, in_a_graph)
{
	NEEDS_HOST("its graphs");
	RANKS_OK(ranks_run(3, NULL, in_a_graph, NULL));
}

/* ---- what is refused ------------------------------------------------------------------------------------------------------------ */

#define BAD(call, word)                        \
	do {                                   \
		REQUIRE_CODE((call), -EINVAL); \
		REQUIRE_SAYS(word);            \
	} while (0)

static int refused(spmt_comm *comm, void *arg)
{
	static _Atomic int others[2];
	struct words w;
	int64_t heap;
	enum spmt_op op = SPMT_OP_XOR, gone, ops[OPS_MOST];
	double x = 1;
	char *odd;

	(void)arg;
	TRY(words_open(comm, &w));
	odd = (char *)w.factor + 1;
	BAD(spmt_op_premul_create(NULL, SPMT_TYPE_F64, &x, SPMT_SCALAR_HOST, &op), "comm is NULL");
	BAD(spmt_op_premul_create(comm, SPMT_TYPE_F64, &x, SPMT_SCALAR_HOST, NULL), "op is NULL");
	BAD(spmt_op_premul_create(comm, SPMT_TYPE_F64, NULL, SPMT_SCALAR_HOST, &op),
		"scalar is NULL");
	BAD(spmt_op_premul_create(comm, (enum spmt_type)14, &x, SPMT_SCALAR_HOST, &op),
		"unknown type 14");
	BAD(spmt_op_premul_create(comm, SPMT_TYPE_F64, &x, (enum spmt_scalar)2, &op), "where is 2");
	BAD(spmt_op_premul_create(comm, SPMT_TYPE_U16, odd, SPMT_SCALAR_DEVICE, &op),
		"is not aligned");
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &heap));
	BAD(spmt_op_premul_create(
		    comm, SPMT_TYPE_F64, (char *)w.factor + heap / 2, SPMT_SCALAR_DEVICE, &op),
		"scalar");
	REQUIRE_EQ(op, SPMT_OP_XOR);
	REQUIRE_OK(spmt_op_premul_create(comm, SPMT_TYPE_F64, &x, SPMT_SCALAR_HOST, &op));
	BAD(spmt_all_reduce(comm, w.dst, w.src, 1, SPMT_TYPE_F32, op, NULL),
		"the op was made for type f64, not f32");
	BAD(spmt_op_destroy(comm, SPMT_OP_AVG), "op avg is not one that was made");
	BAD(spmt_op_destroy(comm, (enum spmt_op)8), "unknown op 8");
	BAD(spmt_op_destroy(comm, SPMT_OP_MADE), "not made for this comm, or is destroyed");
	gone = op;
	REQUIRE_OK(spmt_op_destroy(comm, op));
	BAD(spmt_op_destroy(comm, gone), "destroyed");
	BAD(spmt_all_reduce(comm, w.dst, w.src, 1, SPMT_TYPE_F64, gone, NULL), "destroyed");
	REQUIRE_OK(spmt_op_premul_create(comm, SPMT_TYPE_F64, &x, SPMT_SCALAR_HOST, &op));
	REQUIRE(op != gone);
	BAD(spmt_reduce(comm, w.dst, w.src, 1, SPMT_TYPE_F64, gone, 0, NULL), "destroyed");
	REQUIRE_OK(spmt_op_destroy(comm, op));
	for (int i = 0; i < OPS_MOST; i++)
		REQUIRE_OK(premul(comm, &w, false, &ops[i]));
	REQUIRE_CODE(premul(comm, &w, false, &op), -ENOSPC);
	REQUIRE_SAYS("256 ops are there");
	others[spmt_rank(comm)] = (int)ops[0];
	REQUIRE_OK(spmt_barrier(comm));
	BAD(spmt_op_destroy(comm, (enum spmt_op)others[!spmt_rank(comm)]),
		"not made for this comm");
	REQUIRE_OK(spmt_all_reduce(comm, w.dst, w.src, 9, SPMT_TYPE_U64, ops[OPS_MOST - 1], NULL));
	REQUIRE_OK(spmt_quiet(comm));
	return right(comm, &w, 9, 0); /* finalize forgets the ops */
}

Test(premul, bad_input)
{
	RANKS_OK(ranks_run(2, NULL, refused, NULL));
}

/* An op of one comm of a rank on the others, which have made as many. */
static int of_another_comm(spmt_comm *comm, void *arg)
{
	enum { COMMS = 4 };
	spmt_comm *comms[COMMS] = { comm };
	enum spmt_op ops[COMMS];
	struct words w;

	(void)arg;
	TRY(words_open(comm, &w));
	REQUIRE_OK(spmt_split(comm, 0, 0, &comms[1]));
	REQUIRE_OK(spmt_split(comm, 0, 0, &comms[2]));
	REQUIRE_OK(spmt_lane(comm, 5, &comms[3]));
	for (int i = 0; i < COMMS; i++)
		REQUIRE_OK(premul(comms[i], &w, false, &ops[i]));
	for (int i = 0; i < COMMS * COMMS; i++) {
		spmt_comm *on = comms[i / COMMS];

		if (i / COMMS == i % COMMS)
			continue;
		BAD(spmt_all_reduce(on, w.dst, w.src, 1, SPMT_TYPE_U64, ops[i % COMMS], NULL),
			"not made for this comm");
		BAD(spmt_op_destroy(on, ops[i % COMMS]), "not made for this comm");
	}
	return spmt_barrier(comm);
}

Test(premul, of_another_comm)
{
	NEEDS_HOST("lanes");
	RANKS_OK(ranks_run(2, NULL, of_another_comm, NULL));
}

/* stale: of an earlier world, one a rank; 0: this is the first. */
static int destroyed_long_ago(spmt_comm *comm, void *arg)
{
	enum spmt_op *stale = (enum spmt_op *)arg + spmt_rank(comm), gone, op;
	struct words w;

	TRY(words_open(comm, &w));
	REQUIRE_OK(premul(comm, &w, false, &gone));
	if (*stale)
		BAD(spmt_all_reduce(comm, w.dst, w.src, 1, SPMT_TYPE_U64, *stale, NULL),
			"not made for this comm");
	*stale = gone;
	REQUIRE_OK(spmt_op_destroy(comm, gone));
	for (int i = 0; i < 2 * OPS_MOST * OPS_MOST; i++) {
		REQUIRE_OK(premul(comm, &w, false, &op));
		REQUIRE(op > SPMT_OP_MADE && op != gone);
		REQUIRE_OK(spmt_op_destroy(comm, op));
	}
	REQUIRE_OK(premul(comm, &w, false, &op));
	BAD(spmt_all_reduce(comm, w.dst, w.src, 1, SPMT_TYPE_U64, gone, NULL), "destroyed");
	return spmt_barrier(comm);
}

Test(premul, destroyed_long_ago)
{
	enum spmt_op stale[2] = { 0 };

	for (int world = 0; world < 2; world++)
		RANKS_OK(ranks_run(2, NULL, destroyed_long_ago, stale));
}

/* That the op is one of these has to match; of two rows, as a small and a large call take. */
static int differs(spmt_comm *comm, void *arg)
{
	struct words w;
	enum spmt_op op;

	(void)arg;
	TRY(words_open(comm, &w));
	REQUIRE_OK(premul(comm, &w, false, &op));
	for (size_t count = 1; count <= MANY; count += MANY - 1) {
		REQUIRE_OK(spmt_all_reduce(comm, w.dst, w.src, count, SPMT_TYPE_U64,
			spmt_rank(comm) == 1 ? SPMT_OP_SUM : op, NULL));
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
		REQUIRE_SAYS("op differs");
		REQUIRE_SAYS("premul");
		REQUIRE_OK(spmt_all_reduce(comm, w.dst, w.src, count, SPMT_TYPE_U64, op, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(right(comm, &w, count, 0));
	}
	return spmt_barrier(comm);
}

Test(premul, ops_that_differ)
{
	RANKS_OK(ranks_run(3, NULL, differs, NULL));
}
