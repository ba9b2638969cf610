/* SPDX-License-Identifier: MIT */
#include "packets.h"

#include "spmt/comm/comm.h"
#include "src/base/mem.h"

enum { PACKET = 8 }; /* bytes of data */

/* One rank's table. */
struct packets_of {
	const struct plan_first *firsts;
	const struct plan_step *steps;
	const struct plan_step_place *places;
	int blocks, rank;
};

/* ---- which are ---------------------------------------------------------------------------------- */

static bool step_is_of_packets(const struct plan_step *s)
{
	return s->kind == PLAN_STEP_PACK || s->kind == PLAN_STEP_UNPACK ||
		s->kind == PLAN_STEP_FORWARD || s->kind == PLAN_STEP_FOLD_PACKETS;
}

static bool places_are_alike(const struct plan_step_place *a, const struct plan_step_place *b)
{
	return a->rank == b->rank && a->space == b->space && a->index == b->index;
}

/* Step a of the first block, and b of another one, whose slice is its number. */
static bool steps_are_alike(const struct packets_of *t, const struct plan_step *a,
	const struct plan_step *b, uint32_t block)
{
	if (a->kind != b->kind || a->n != b->n || a->ndst != b->ndst || a->chunks != b->chunks ||
		a->slices != b->slices || a->slice != 0 || b->slice != block ||
		a->meets != b->meets)
		return false;
	for (uint32_t i = 0; i < a->n; i++)
		if (!places_are_alike(&t->places[a->places + i], &t->places[b->places + i]))
			return false;
	return true;
}

static bool blocks_are_alike(const struct packets_of *t)
{
	const struct plan_first *first = t->firsts;
	const struct plan_step *steps = t->steps;
	uint32_t n = first[1].step;

	for (uint32_t b = 0; b < (uint32_t)t->blocks; b++) {
		if (first[b + 1].step - first[b].step != n)
			return false;
		for (uint32_t i = 0; i < n; i++)
			if (!steps_are_alike(t, &steps[i], &steps[first[b].step + i], b))
				return false;
	}
	for (uint32_t i = 0; i < n; i++)
		if (!step_is_of_packets(&steps[i]) || steps[i].chunks != steps[0].chunks ||
			steps[i].slices != (uint32_t)t->blocks)
			return false;
	return n && n <= PLAN_PACKETS_STEPS && first[1].place <= PLAN_PACKETS_PLACES;
}

/* It sends what the rank was called with. */
static bool step_leads(const struct packets_of *t, const struct plan_step *s)
{
	const struct plan_step_place *from = &t->places[s->places + 1];

	return s->kind == PLAN_STEP_PACK && from->space <= PLAN_SPACE_OUTPUT &&
		(int)from->rank == t->rank;
}

void row_packets_find(const struct plan_layout *layout, const void *table, int blocks, int rank,
	struct row_packets *p)
{
	const char *at = table;
	const struct packets_of t = { .firsts = (const void *)at,
		.steps = (const void *)(at + layout->steps),
		.places = (const void *)(at + layout->places),
		.blocks = blocks,
		.rank = rank };

	*p = (struct row_packets){ .is = layout->apart && blocks > 0 && blocks_are_alike(&t),
		.rank = rank };
	if (!p->is)
		return;
	p->chunks = t.steps[0].chunks;
	p->slices = t.steps[0].slices;
	p->made.steps = t.firsts[1].step;
	for (uint32_t i = 0; i < p->made.steps; i++) {
		const struct plan_step *s = &t.steps[i];

		p->made.step[i] = (struct plan_packets_step){ .kind = (uint8_t)s->kind,
			.ndst = (uint8_t)s->ndst,
			.n = (uint8_t)s->n,
			.first = (uint8_t)s->places,
			.meets = (uint8_t)s->meets };
		if (i == p->made.leads && step_leads(&t, s))
			p->made.leads++;
	}
	for (uint32_t i = 0; i < t.firsts[1].place; i++) {
		const struct plan_step_place *from = &t.places[i];

		p->place[i] = (struct row_packets_place){ from->rank, from->space, from->index };
	}
}

/* ---- where -------------------------------------------------------------------------------------- */

/* Of what each step moves, the last of which may be a part of one. */
static uint64_t lines_of(const struct row_packets *p, const struct plan_given *g)
{
	return (p->chunks * g->chunk + SPMTD_SHARE_LINE_ - 1) / SPMTD_SHARE_LINE_;
}

/* The places of the threads' packets are aligned to 8 bytes, as chunks are. */
uint64_t row_packets_in(const struct row_packets *p, const struct plan_given *g)
{
	uint64_t packets;

	if (!p->is || (g->dst | g->src) % PACKET)
		return 0;
	if (p->slices == 1)
		packets = p->chunks * g->chunk / PACKET;
	else
		packets =
			(lines_of(p, g) + p->slices - 1) / p->slices * (SPMTD_SHARE_LINE_ / PACKET);
	return packets <= INT32_MAX ? packets : 0;
}

/* Of place i. */
static uint64_t place_at(const struct row_packets *p, const struct plan_given *g,
	const struct spmtd_peer *peers, int i)
{
	uint64_t at = p->place[i].index * g->chunk;

	switch (p->place[i].space) {
	case PLAN_SPACE_INPUT:
		return g->src + at;
	case PLAN_SPACE_OUTPUT:
		return g->dst + at;
	case PLAN_SPACE_SCRATCH:
		return g->at + g->scratch + at;
	default:
		return peers[p->place[i].rank].own + (g->at - peers[p->rank].own) + g->packets +
			2 * at;
	}
}

void row_packets_fill(const struct row_packets *p, const struct plan_given *g,
	const struct spmtd_peer *peers, unsigned threads, struct plan_packets *packets)
{
	const struct plan_packets_step *last = &p->made.step[p->made.steps - 1];
	uint64_t lines = lines_of(p, g), round = PLAN_PACKETS_EACH * (uint64_t)threads;

	*packets = p->made;
	packets->other = g->other;
	packets->bytes = p->chunks * g->chunk;
	packets->rounds = (uint32_t)((row_packets_in(p, g) + round - 1) / round);
	packets->lines = (uint32_t)(lines / p->slices);
	packets->more = (uint32_t)(lines % p->slices);
	for (int i = 0; i < last->first + last->n; i++)
		packets->at[i] = place_at(p, g, peers, i);
}

/* Beside a thread for each packet those that hear what others call, in a warp of their own: they do not wait for packets first. */
bool row_packets_run(const spmt_comm *comm, const struct row_packets *p,
	struct kernel_plan_packets_args *args, struct kernel_grid *grid)
{
	uint64_t packets = row_packets_in(p, &args->row.plan);

	if (!packets || comm_cpu_access(comm))
		return false;
	*grid = kernel_grid_of(
		comm, grid->blocks, align_up(packets, KERNEL_WARP) + (uint64_t)comm->nranks);
	row_packets_fill(p, &args->row.plan, comm->peers.host, grid->threads, &args->packets);
	return true;
}
