/* SPDX-License-Identifier: MIT */
/*
 * A round by way of the nodes. What all ranks give has one place in each stage: node by node, and rank by rank in each. The ranks of
 * a node put theirs to their leader. In step d, leaders put what d nodes have given, the last of which is their own, to the leader d
 * nodes on: after log2(nodes) steps each has all. The others of its node read it there. Keys are compared wherever one rank tells
 * another that it has come, and nobody goes on behind one that differs: so a rank that ends the round knows that all ranks have made
 * the same call.
 */
#include <errno.h>
#include <string.h>

#include "far_state.h"
#include "src/base/base.h"
#include "src/base/mem.h"
#include "src/base/status.h"
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/fold.h"

#define TREE_GRAIN 16 /* each rank's begins at a multiple */
/* Bytes that all ranks give, up to which fewer messages are better than fewer bytes: .. */
#define TREE_MOST (512u << 10) /* .. where all of it, or a fold of it, goes to all ranks */
#define TREE_SOME \
	(64u << 10) /* .. where most of it is of no use to most ranks, or comes from one */

/* ---- where it lies ------------------------------------------------------------------------------- */

static bool tree_has_root(const struct far_call *c)
{
	return coll_kinds[c->kind].among == COLL_ROOT_TO_ALL;
}

/* Bytes that a rank that gives has; */
static uint64_t tree_data(const spmt_comm *comm, const struct far_call *c)
{
	return c->count * c->size * (c->moves.src_blocks ? (uint64_t)comm->nranks : 1);
}

/* and where its factor lies behind them. */
static uint64_t tree_factor_at(const spmt_comm *comm, const struct far_call *c)
{
	return align_up(tree_data(comm, c), sizeof(c->factor.bits));
}

static uint64_t tree_given(const spmt_comm *comm, const struct far_call *c)
{
	return c->op == COLL_PREMUL ? tree_factor_at(comm, c) + sizeof(c->factor.bits)
				    : tree_data(comm, c);
}

/* Offset in the half of what the rank gives that is number `at` in node order. */
static uint64_t tree_at(const spmt_comm *comm, const struct far_call *c, int at)
{
	const struct far *far = comm->far_state;
	uint64_t stride = align_up(tree_given(comm, c), TREE_GRAIN);

	if (!tree_has_root(c))
		return (uint64_t)at * stride;
	return at > far->before[far->node[c->root]] + far->nth[c->root] ? stride : 0;
}

static uint64_t tree_rank_at(const spmt_comm *comm, const struct far_call *c, int pe)
{
	const struct far *far = comm->far_state;

	return tree_at(comm, c, far->before[far->node[pe]] + far->nth[pe]);
}

bool far_tree_fits(const spmt_comm *comm, const struct far_call *c)
{
	bool some = tree_has_root(c) || c->moves.src_blocks;
	uint64_t ranks = tree_has_root(c) ? 1 : (uint64_t)comm->nranks;
	uint64_t most = MIN_OF(comm->stage_size, some ? TREE_SOME : TREE_MOST);

	return tree_given(comm, c) <= most &&
		ranks * align_up(tree_given(comm, c), TREE_GRAIN) <= most;
}

/* ---- giving -------------------------------------------------------------------------------------- */

static int tree_give(spmt_comm *comm, const struct far_call *c, int leader)
{
	bool gives = !tree_has_root(c) || c->root == comm->rank;
	int64_t at = far_half(comm) + (int64_t)tree_rank_at(comm, c, comm->rank);
	int rc = far_put(comm, leader, at, c->src, gives ? tree_data(comm, c) : 0);

	if (!rc && c->op == COLL_PREMUL)
		rc = far_put(comm, leader, at + (int64_t)tree_factor_at(comm, c), &c->factor.bits,
			sizeof(c->factor.bits));
	return rc;
}

/* What nodes [from, end) have given, of this leader's half to the same place of another's. */
static int tree_pass(spmt_comm *comm, const struct far_call *c, int to, int from, int end)
{
	const struct far *far = comm->far_state;
	uint64_t at = tree_at(comm, c, far->before[from]);
	int64_t place = far_half(comm) + (int64_t)at;

	return far_put(
		comm, to, place, comm->stage + place, tree_at(comm, c, far->before[end]) - at);
}

/* Of `n` nodes, this one the last; they are counted round. */
static int tree_pass_all(spmt_comm *comm, const struct far_call *c, int to, int n)
{
	const struct far *far = comm->far_state;
	int from = far->mine + 1 - n, rc;

	rc = tree_pass(comm, c, to, MAX_OF(from, 0), far->mine + 1);
	return rc || from >= 0 ? rc : tree_pass(comm, c, to, far->nodes + from, far->nodes);
}

/* ---- meeting ------------------------------------------------------------------------------------- */

/* Step d: to the leader d nodes on, from the one d nodes back. */
static int tree_leaders(spmt_comm *comm, const struct far_call *c, bool meet)
{
	const struct far_hello hello = { .key = c->key };
	const struct far *far = comm->far_state;
	int rc = 0;

	for (int d = 1; d < far->nodes && !rc; d *= 2) {
		int to = far_rank(far, (far->mine + d) % far->nodes, 0);
		int from = far_rank(far, (far->mine + far->nodes - d) % far->nodes, 0);

		if (!meet)
			rc = tree_pass_all(comm, c, to, MIN_OF(d, far->nodes - d));
		if (!rc)
			rc = far_greet(comm, to, &hello);
		if (!rc)
			rc = far_await_key(comm, c, from);
	}
	return rc;
}

static int tree_lead(spmt_comm *comm, const struct far_call *c, bool meet)
{
	const struct far_hello hello = { .key = c->key };
	const struct far *far = comm->far_state;
	int rc = 0, pe;

	for (int i = 1; !rc && (pe = far_rank(far, far->mine, i)) >= 0; i++)
		rc = far_await_key(comm, c, pe);
	if (!rc)
		rc = tree_leaders(comm, c, meet);
	for (int i = 1; !rc && (pe = far_rank(far, far->mine, i)) >= 0; i++)
		rc = far_greet(comm, pe, &hello);
	return rc;
}

/* ---- taking -------------------------------------------------------------------------------------- */

/* Where all that was given can be read: at the leader, or copied from there. */
static int tree_find(spmt_comm *comm, const struct far_call *c, int leader, const char **found)
{
	struct mover *mover = &comm->far_state->links[leader].movers[0];
	int64_t half = far_half(comm);
	uint64_t there = far_there(comm, mover->link, half);
	uint64_t n = tree_at(comm, c, comm->nranks);

	*found = comm->stage + half;
	if (leader == comm->rank || !n)
		return 0;
	if (!mover->link->base)
		return mover->ops->get(mover, comm->stage + half, there, n, MOVE_BLOCKING, NULL);
	*found = link_at(mover->link, there);
	return 0;
}

static int tree_fold(spmt_comm *comm, const struct far_call *c, const char *given, uint64_t own)
{
	struct area_inbox *parts = far_operands(comm);
	uint64_t factor = 0;
	struct fold fold = { .inboxes = parts,
		.npes = comm->nranks,
		.bytes = c->count * c->size,
		.dst = (uintptr_t)c->dst,
		.lanes = 1 };

	if (!parts)
		return -ENOMEM;
	fold.factors = (uintptr_t)(parts + comm->nranks);
	for (int pe = 0; pe < comm->nranks; pe++) {
		const char *of = given + tree_rank_at(comm, c, pe);

		parts[pe].src = (uintptr_t)of + own;
		if (c->op == COLL_PREMUL)
			memcpy(&factor, of + tree_factor_at(comm, c), sizeof(factor));
		piece_send(fold.factors, (uint64_t)pe, factor, flags_alike(0));
	}
	fold_run(&fold, c->type, c->op);
	mem_free(parts);
	return 0;
}

static int tree_take(spmt_comm *comm, const struct far_call *c, int leader)
{
	uint64_t own = c->moves.src_blocks ? (uint64_t)comm->rank * c->count * c->size : 0;
	const char *given;
	int rc;

	if (!c->moves.froms || !c->count)
		return 0;
	rc = tree_find(comm, c, leader, &given);
	if (rc)
		return rc;
	if (c->moves.folds)
		return tree_fold(comm, c, given, own);
	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct far_span s = far_span_of(comm, c, pe);

		if (s.dst_count)
			memcpy((char *)c->dst + s.dst_at * c->size,
				given + tree_rank_at(comm, c, pe) + own, s.dst_count * c->size);
	}
	return 0;
}

int far_tree(spmt_comm *comm, const struct far_call *c, bool meet)
{
	const struct far_hello hello = { .key = c->key };
	struct far *far = comm->far_state;
	int leader = far_rank(far, far->mine, 0), rc;

	rc = far_begin_round(comm, &hello);
	if (!rc && !meet)
		rc = tree_give(comm, c, leader);
	if (!rc && leader == comm->rank) {
		rc = tree_lead(comm, c, meet);
	} else if (!rc) {
		rc = far_greet(comm, leader, &hello);
		if (!rc)
			rc = far_await_key(comm, c, leader);
	}
	return rc || meet ? rc : tree_take(comm, c, leader);
}
