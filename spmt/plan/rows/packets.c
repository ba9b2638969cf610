/* SPDX-License-Identifier: MIT */
#include "packets.h"

#include <errno.h>

#include "spmt/comm/comm.h"
#include "src/base/mem.h"

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

static void find_of_rank(const struct packets_of *t, bool apart, struct row_packets *p)
{
	*p = (struct row_packets){ .is = apart && t->blocks > 0 && blocks_are_alike(t),
		.rank = t->rank };
	if (!p->is)
		return;
	p->chunks = t->steps[0].chunks;
	p->slices = t->steps[0].slices;
	p->made.steps = t->firsts[1].step;
	for (uint32_t i = 0; i < p->made.steps; i++) {
		const struct plan_step *s = &t->steps[i];

		p->made.step[i] = (struct plan_packets_step){ .kind = (uint8_t)s->kind,
			.ndst = (uint8_t)s->ndst,
			.n = (uint8_t)s->n,
			.first = (uint8_t)s->places,
			.meets = (uint8_t)s->meets };
		if (i == p->made.leads && step_leads(t, s))
			p->made.leads++;
	}
	for (uint32_t i = 0; i < t->firsts[1].place; i++) {
		const struct plan_step_place *from = &t->places[i];

		p->place[i] = (struct row_packets_place){ from->rank, from->space, from->index };
		p->is &= from->space != PLAN_SPACE_PACKETS || from->index % p->chunks == 0;
	}
}

static struct packets_of table_of(
	const spmt_plan *plan, const struct plan_layout *layout, const void *table, int rank)
{
	const char *at = table;

	return (struct packets_of){ .firsts = (const void *)at,
		.steps = (const void *)(at + layout->steps),
		.places = (const void *)(at + layout->places),
		.blocks = plan->ranks[rank].nblocks,
		.rank = rank };
}

/* A packet's place depends on those before it in its block's part of the chunks that a step moves: so all ranks cut these alike. */
int row_packets_find(const spmt_plan *plan, const struct plan_layout *layout, const void *table,
	int rank, struct row_packets *p)
{
	struct packets_of t = table_of(plan, layout, table, rank);
	struct row_packets other;

	find_of_rank(&t, layout->apart, p);
	for (int r = 0; r < plan->attr.nranks && p->is; r++) {
		void *of;

		if (r == rank)
			continue;
		of = plan_table(plan, layout, r);
		if (!of)
			return -ENOMEM;
		t = table_of(plan, layout, of, r);
		find_of_rank(&t, layout->apart, &other);
		p->is = other.is && other.chunks == p->chunks && other.slices == p->slices;
		mem_free(of);
	}
	return 0;
}

/* ---- where -------------------------------------------------------------------------------------- */

/* Of what each step moves, the last of which may be a part of one. */
static uint64_t lines_of(const struct row_packets *p, const struct plan_given *g)
{
	return (p->chunks * g->chunk + SPMTD_SHARE_LINE_ - 1) / SPMTD_SHARE_LINE_;
}

/* Packets of each step that a block has, the most. */
static uint64_t packets_in(const struct row_packets *p, const struct plan_given *g, uint32_t size)
{
	uint64_t bytes = p->chunks * g->chunk;

	if (p->slices > 1)
		bytes = (lines_of(p, g) + p->slices - 1) / p->slices * SPMTD_SHARE_LINE_;
	return plan_packets_of((uint32_t)bytes / 4, size);
}

struct plan_packets_way row_packets_way(const struct row_packets *p, const struct plan_given *g,
	unsigned threads, bool whole, size_t element)
{
	struct plan_packets_way way = { .brief = 1, .size = PLAN_PACKETS_NARROW };
	bool room;

	if (!p->is || p->chunks * g->chunk > INT32_MAX)
		return (struct plan_packets_way){ 0, 0 };
	if (packets_in(p, g, way.size) <= threads)
		return way;
	/* of 64 words of a block on wide packets have room where there are two bytes for each */
	room = lines_of(p, g) / p->slices > 3;
	return (struct plan_packets_way){ 0, plan_packets_size(whole && room, (uint32_t)element) };
}

/* What is narrow any plan's kernel finds, too, which copies, and takes data at any place. */
bool row_packets_fit(struct plan_packets_way way, const struct kernel_plan_row_args *row)
{
	uint64_t odd = (row->plan.dst | row->plan.src) % PLAN_PACKETS_NARROW;

	return way.size && row->from == row->to && (way.size == PLAN_PACKETS_WIDE || !odd);
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
	struct plan_packets_way way, const struct spmtd_peer *peers, unsigned threads,
	struct plan_packets *packets)
{
	const struct plan_packets_step *last = &p->made.step[p->made.steps - 1];
	uint64_t lines = lines_of(p, g), round = plan_packets_each(way) * (uint64_t)threads;

	*packets = p->made;
	packets->other = g->other_packets;
	packets->bytes = p->chunks * g->chunk;
	packets->odd = (g->dst | g->src) % 4 != 0;
	packets->rounds = (uint32_t)((packets_in(p, g, way.size) + round - 1) / round);
	packets->lines = (uint32_t)(lines / p->slices);
	packets->more = (uint32_t)(lines % p->slices);
	for (int i = 0; i < last->first + last->n; i++)
		packets->at[i] = place_at(p, g, peers, i);
}

/* Beside a thread for each packet those that hear what others call, in a warp of their own: they do not wait for packets first. */
struct kernel_grid row_packets_grid(const spmt_comm *comm, const struct row_packets *p,
	const struct plan_given *g, struct plan_packets_way way)
{
	uint64_t each = plan_packets_each(way);

	return kernel_grid_of(comm, p->slices,
		align_up((packets_in(p, g, way.size) + each - 1) / each, KERNEL_WARP) +
			(uint64_t)comm->nranks);
}
