/* SPDX-License-Identifier: MIT */
/*
 * What each rank has for all others, from node to node. There are as many rings as the smallest node has ranks: the i-th ranks of all
 * nodes form one, and carry what those ranks of their node have whose number is i modulo the number of rings. In each round a part goes
 * all the way: in step s a rank puts to the next node's rank what it got from the previous node's in step s - 1, each piece to its own
 * place, so that nothing is overwritten. Then a node's ranks read it from each other's stages.
 */
#include <string.h>

#include "far_state.h"
#include "spmt/comm/waits.h"
#include "src/base/base.h"

/* Bytes of a place: as many as one rank's part of a round. */
static uint64_t rings_room(const spmt_comm *comm)
{
	const struct far *far = comm->far_state;

	return comm->stage_size / (uint64_t)far->places[far->nodes] / CACHE_LINE * CACHE_LINE;
}

/* From the stage: of what pe has, at the ranks that carry it. */
static int64_t rings_at(const spmt_comm *comm, int pe)
{
	const struct far *far = comm->far_state;
	int place = far->places[far->node[pe]] + far->nth[pe] / far->rails;

	return far_half(comm) + (int64_t)((uint64_t)place * rings_room(comm));
}

/* The rank of this node that carries what pe has. */
static int rings_carrier(const struct far *far, int pe)
{
	return far_rank(far, far->mine, far->nth[pe] % far->rails);
}

static uint64_t rings_bytes(const struct far_call *c, int pe, uint64_t from, uint64_t most)
{
	uint64_t n = c->spans[pe].dst_count;

	return from < n ? MIN_OF(most, n - from) * c->size : 0;
}

/* A part: elements [from, from + most) of what each rank has. */
struct rings_part {
	const struct far_call *call;
	uint64_t from, most;
};

/* What this rank carries for the ranks of a node, to the same rank's of the next node. */
static int rings_pass(spmt_comm *comm, const struct rings_part *r, int node, int to)
{
	const struct far *far = comm->far_state;
	int rc = 0, pe;

	for (int nth = far->nth[comm->rank]; !rc && (pe = far_rank(far, node, nth)) >= 0;
		nth += far->rails) {
		int64_t at = rings_at(comm, pe);

		rc = far_put(
			comm, to, at, comm->stage + at, rings_bytes(r->call, pe, r->from, r->most));
	}
	return rc;
}

static int rings_steps(spmt_comm *comm, const struct rings_part *r)
{
	const struct far *far = comm->far_state;
	int n = far->nodes, nth = far->nth[comm->rank], rc = 0;
	int next = far_rank(far, (far->mine + 1) % n, nth);
	int last = far_rank(far, (far->mine + n - 1) % n, nth);

	for (int s = 1; s < n && !rc; s++) {
		rc = rings_pass(comm, r, (far->mine + n + 1 - s) % n, next);
		if (!rc)
			rc = far_greet_step(comm, next, (uint64_t)s);
		if (!rc)
			rc = far_await(comm, r->call, last, (uint64_t)s);
	}
	return rc;
}

/* First waits for those of its node that carry nothing and whose part it carries; tells all once it has everything. */
static int rings_carry(spmt_comm *comm, const struct rings_part *r)
{
	const struct far_hello hello = { .key = r->call->key };
	const struct far *far = comm->far_state;
	int rc = 0, pe;

	for (int nth = far->nth[comm->rank] + far->rails;
		!rc && (pe = far_rank(far, far->mine, nth)) >= 0; nth += far->rails)
		rc = far_await(comm, r->call, pe, 0);
	if (!rc)
		rc = rings_steps(comm, r);
	for (int nth = 0; !rc && (pe = far_rank(far, far->mine, nth)) >= 0; nth++)
		if (pe != comm->rank)
			rc = far_greet(comm, pe, &hello);
	return rc;
}

static int rings_take(spmt_comm *comm, const struct rings_part *r)
{
	const struct far_call *c = r->call;
	int rc = 0;

	for (int pe = 0; pe < comm->nranks && !rc; pe++) {
		uint64_t n = rings_bytes(c, pe, r->from, r->most);
		int carrier = rings_carrier(comm->far_state, pe);
		struct mover *mover = &comm->far_state->links[carrier].movers[0];
		char *dst = (char *)c->dst + (c->spans[pe].dst_at + r->from) * c->size;

		if (!n)
			continue;
		if (carrier == comm->rank)
			memcpy(dst, comm->stage + rings_at(comm, pe), n);
		else
			rc = mover->ops->get(mover, dst,
				far_there(comm, mover->link, rings_at(comm, pe)), n, MOVE_BLOCKING,
				NULL);
	}
	return rc;
}

static int rings_round(spmt_comm *comm, const struct rings_part *r)
{
	const struct far_hello hello = { .key = r->call->key };
	const struct far *far = comm->far_state;
	const struct far_call *c = r->call;
	int carrier, pe, rc;

	rc = far_begin_round(comm, &hello);
	carrier = rings_carrier(far, comm->rank);
	if (!rc)
		rc = far_put(comm, carrier, rings_at(comm, comm->rank),
			(const char *)c->src + r->from * c->size,
			rings_bytes(c, comm->rank, r->from, r->most));
	if (!rc)
		rc = carrier == comm->rank ? rings_carry(comm, r)
					   : far_greet(comm, carrier, &hello);
	for (int nth = 0; nth < far->rails && !rc; nth++) {
		pe = far_rank(far, far->mine, nth);
		if (pe != comm->rank)
			rc = far_await(comm, c, pe, 0);
	}
	waits_hide(comm, c);
	return rc ? rc : rings_take(comm, r);
}

int far_ring(spmt_comm *comm, const struct far_call *c)
{
	struct rings_part r = { .call = c, .most = rings_room(comm) / c->size };
	uint64_t most = 0;
	int rc = 0;

	for (int pe = 0; pe < comm->nranks; pe++)
		most = MAX_OF(most, c->spans[pe].dst_count);
	for (; r.from < most && !rc; r.from += r.most)
		rc = rings_round(comm, &r);
	return rc;
}
