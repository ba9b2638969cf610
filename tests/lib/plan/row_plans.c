/* SPDX-License-Identifier: MIT */
#include "row_plans.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum way { WAY_PACKETS, WAY_SLICED, WAY_PUT, WAY_LOAD, WAYS };

/* One chunk of the all_reduce. */
struct shared {
	enum way in, out;
	int owner;
	int by[ROW_PLANS_RANKS]; /* the block of each rank that gives it, of the owner that folds it */
	int taken[ROW_PLANS_RANKS]; /* and that takes the result */
};

struct made {
	spmt_plan *plan;
	uint64_t seed;
	int nranks, nblocks[ROW_PLANS_RANKS], least, rc;
	uint32_t chunks;
	struct shared shared[ROW_PLANS_CHUNKS];
};

static uint32_t below(struct made *m, uint32_t n)
{
	m->seed ^= m->seed << 13;
	m->seed ^= m->seed >> 7;
	m->seed ^= m->seed << 17;
	return (uint32_t)(m->seed >> 20) % n;
}

static void note(struct made *m, int rc)
{
	m->rc = m->rc ? m->rc : rc;
}

/* Scratch of a chunk at a rank, a place for each rank's; the same numbers are packets. */
static struct spmt_plan_chunk place(const struct made *m, int at, uint32_t k, int from)
{
	return spmt_plan_scratch(at, k * (uint32_t)m->nranks + (uint32_t)from, 1);
}

/* Slice `slice` of `slices`; 0, 0: the whole. */
static void put_packets(struct made *m, int rank, int block, struct spmt_plan_chunk src,
	struct spmt_plan_chunk dst, int slice, int slices)
{
	struct spmt_plan_op op = { .size = sizeof(op),
		.kind = SPMT_PLAN_PUT_PACKETS,
		.slice = slice,
		.slices = slices,
		.nsrc = 1,
		.ndst = 1 };

	op.src[0] = src;
	op.dst[0] = dst;
	note(m, spmt_plan_add(m->plan, rank, block, &op));
}

static void fold(
	struct made *m, int rank, int block, uint32_t k, enum way way, int slice, int slices)
{
	struct spmt_plan_op op = { .size = sizeof(op),
		.kind = way == WAY_PACKETS || way == WAY_SLICED ? SPMT_PLAN_REDUCE_PACKETS
								: SPMT_PLAN_REDUCE,
		.slice = slice,
		.slices = slices,
		.nsrc = m->nranks,
		.ndst = 1 };

	op.dst[0] = spmt_plan_output(rank, k, 1);
	op.src[0] = spmt_plan_input(rank, k, 1);
	for (int i = 1; i < m->nranks; i++) {
		int p = (rank + i) % m->nranks;

		op.src[i] = way == WAY_LOAD ? spmt_plan_input(p, k, 1) : place(m, rank, k, p);
	}
	note(m, spmt_plan_add(m->plan, rank, block, &op));
}

/* ---- three steps of each chunk, of which the second waits for the first alone, the third for the second --------------------- */

static void gives(struct made *m, uint32_t k, int rank)
{
	const struct shared *s = &m->shared[k];
	struct spmt_plan_chunk src = spmt_plan_input(rank, k, 1);

	for (int b = 0; s->in == WAY_SLICED && b < m->least; b++)
		for (int i = 1; i < m->nranks; i++) {
			int p = (rank + i) % m->nranks;

			put_packets(m, rank, b, src, place(m, p, k, rank), b, m->least);
		}
	if (rank == s->owner)
		return;
	if (s->in == WAY_PACKETS)
		put_packets(m, rank, s->by[rank], src, place(m, s->owner, k, rank), 0, 0);
	if (s->in == WAY_PUT) {
		note(m,
			spmt_plan_put(
				m->plan, rank, s->by[rank], src, place(m, s->owner, k, rank)));
		note(m, spmt_plan_signal(m->plan, rank, s->by[rank], s->owner, (int)k));
	}
}

static void folds(struct made *m, uint32_t k)
{
	const struct shared *s = &m->shared[k];
	int o = s->owner, block = s->by[o];
	struct spmt_plan_chunk sum = spmt_plan_output(o, k, 1);

	for (int i = 1; s->in == WAY_PUT && i < m->nranks; i++)
		note(m, spmt_plan_wait(m->plan, o, block, (o + i) % m->nranks, (int)k));
	fold(m, o, block, k, s->in, 0, 0);
	for (int i = 1; i < m->nranks; i++) {
		int p = (o + i) % m->nranks;

		if (s->out == WAY_PACKETS)
			put_packets(m, o, block, sum, place(m, p, k, o), 0, 0);
		if (s->out == WAY_PUT)
			note(m, spmt_plan_put(m->plan, o, block, sum, spmt_plan_output(p, k, 1)));
		if (s->out == WAY_LOAD)
			note(m, spmt_plan_signal(m->plan, o, block, p, (int)k + ROW_PLANS_CHUNKS));
	}
}

static void takes(struct made *m, uint32_t k, int rank)
{
	const struct shared *s = &m->shared[k];
	struct spmt_plan_chunk dst = spmt_plan_output(rank, k, 1);

	for (int b = 0; s->in == WAY_SLICED && b < m->least; b++)
		fold(m, rank, b, k, WAY_SLICED, b, m->least);
	if (rank == s->owner || s->in == WAY_SLICED)
		return;
	if (s->out == WAY_PACKETS)
		note(m,
			spmt_plan_unpack_packets(
				m->plan, rank, s->taken[rank], place(m, rank, k, s->owner), dst));
	if (s->out == WAY_LOAD) {
		note(m,
			spmt_plan_wait(m->plan, rank, s->taken[rank], s->owner,
				(int)k + ROW_PLANS_CHUNKS));
		note(m,
			spmt_plan_fetch(m->plan, rank, s->taken[rank],
				spmt_plan_output(s->owner, k, 1), dst));
	}
}

static void draw(struct made *m, bool apart)
{
	m->least = ROW_PLANS_BLOCKS;
	for (int r = 0; r < m->nranks; r++) {
		m->nblocks[r] = 1 + (int)below(m, ROW_PLANS_BLOCKS);
		m->least = m->least < m->nblocks[r] ? m->least : m->nblocks[r];
	}
	for (uint32_t k = 0; k < m->chunks; k++) {
		struct shared *s = &m->shared[k];

		s->in = (enum way)below(m, apart ? 2 : WAYS);
		s->out = (enum way)below(m, apart ? 1 : WAYS);
		s->out = s->out == WAY_SLICED ? WAY_PACKETS : s->out;
		s->owner = (int)below(m, (uint32_t)m->nranks);
		for (int r = 0; r < m->nranks; r++) {
			s->by[r] = (int)below(m, (uint32_t)m->nblocks[r]);
			s->taken[r] = (int)below(m, (uint32_t)m->nblocks[r]);
		}
	}
}

int row_plans_random(uint64_t seed, int nranks, bool apart, spmt_plan **plan)
{
	struct made m = { .seed = (seed + 1) * 0x9e3779b97f4a7c15u, .nranks = nranks };
	struct spmt_plan_attr attr = {
		.size = sizeof(attr), .name = "random", .collective = "allreduce", .nranks = nranks
	};
	int rc;

	for (int i = 0; i < 5; i++)
		(void)below(&m, 2);
	m.chunks = 1 + below(&m, ROW_PLANS_CHUNKS);
	attr.in_place = (int)below(&m, 2);
	attr.input_chunks = attr.output_chunks = m.chunks;
	attr.scratch_chunks = m.chunks * (uint32_t)nranks;
	attr.max_bytes = seed / 3 % 2 ? ROW_PLANS_BYTES : 0;
	draw(&m, apart);
	rc = spmt_plan_create(&attr, &m.plan);
	if (rc)
		return rc;
	for (uint32_t k = 0; k < m.chunks; k++)
		for (int r = 0; r < nranks; r++)
			gives(&m, k, r);
	for (uint32_t k = 0; k < m.chunks; k++)
		if (m.shared[k].in != WAY_SLICED)
			folds(&m, k);
	for (uint32_t k = 0; k < m.chunks; k++)
		for (int r = 0; r < nranks; r++)
			takes(&m, k, r);
	if (m.rc)
		spmt_plan_destroy(m.plan);
	else
		*plan = m.plan;
	return m.rc;
}

/* ---- packets alone, all blocks alike --------------------------------------------------------------------------------------------- */

struct alike {
	struct made *m;
	int rank, block, blocks;
};

static struct spmt_plan_op alike_op(const struct alike *a, enum spmt_plan_kind kind)
{
	return (struct spmt_plan_op){ .size = sizeof(struct spmt_plan_op),
		.kind = kind,
		.slice = a->blocks > 1 ? a->block : 0,
		.slices = a->blocks > 1 ? a->blocks : 0,
		.nsrc = 1,
		.ndst = 1 };
}

static void alike_move(const struct alike *a, enum spmt_plan_kind kind, struct spmt_plan_chunk src,
	struct spmt_plan_chunk dst)
{
	struct spmt_plan_op op = alike_op(a, kind);

	op.src[0] = src;
	op.dst[0] = dst;
	note(a->m, spmt_plan_add(a->m->plan, a->rank, a->block, &op));
}

/* onward: to so many ranks behind this one as packets, too. */
static void alike_fold(const struct alike *a, uint32_t k, int onward)
{
	const struct made *m = a->m;
	struct spmt_plan_op op = alike_op(a, SPMT_PLAN_REDUCE_PACKETS);

	op.dst[0] = spmt_plan_output(a->rank, k, 1);
	for (; op.ndst <= onward; op.ndst++)
		op.dst[op.ndst] = place(m, (a->rank + op.ndst) % m->nranks, k, a->rank);
	op.src[0] = spmt_plan_input(a->rank, k, 1);
	for (; op.nsrc < m->nranks; op.nsrc++)
		op.src[op.nsrc] = place(m, a->rank, k, (a->rank + op.nsrc) % m->nranks);
	note(a->m, spmt_plan_add(m->plan, a->rank, a->block, &op));
}

static void alike_gives(const struct alike *a, uint32_t k, bool to_all)
{
	const struct made *m = a->m;
	int owner = (int)k % m->nranks;

	for (int i = 1; i < m->nranks; i++) {
		int p = (a->rank + i) % m->nranks;

		if (to_all || p == owner)
			alike_move(a, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(a->rank, k, 1),
				place(m, p, k, a->rank));
	}
}

/* From the owner, or by the ranks between: each takes it, and sends it on. */
static void alike_takes(const struct alike *a, uint32_t k, bool ring)
{
	const struct made *m = a->m;
	int owner = (int)k % m->nranks, next = (a->rank + 1) % m->nranks;
	struct spmt_plan_chunk from = place(m, a->rank, k, owner);

	if (a->rank == owner)
		return;
	if (ring && next != owner)
		alike_move(a, SPMT_PLAN_SEND_PACKETS_ON, from, place(m, next, k, owner));
	alike_move(a, SPMT_PLAN_UNPACK_PACKETS, from, spmt_plan_output(a->rank, k, 1));
}

/* From chunk `first` on. */
static void alike_block(const struct alike *a, bool to_all, bool ring, uint32_t first)
{
	const struct made *m = a->m;

	for (uint32_t i = 0; i < m->chunks; i++)
		alike_gives(a, (first + i) % m->chunks, to_all);
	for (uint32_t i = 0; i < m->chunks; i++) {
		uint32_t k = (first + i) % m->chunks;

		if (to_all || a->rank == (int)k % m->nranks)
			alike_fold(a, k, to_all ? 0 : ring ? 1 : m->nranks - 1);
	}
	for (uint32_t i = 0; i < m->chunks && !to_all; i++)
		alike_takes(a, (first + i) % m->chunks, ring);
}

int row_plans_packets(uint64_t seed, int nranks, spmt_plan **plan)
{
	struct made m = { .seed = (seed + 1) * 0x9e3779b97f4a7c15u, .nranks = nranks };
	struct spmt_plan_attr attr = {
		.size = sizeof(attr), .name = "alike", .collective = "allreduce", .nranks = nranks
	};
	int blocks, way, apart, rc;

	for (int i = 0; i < 5; i++)
		(void)below(&m, 2);
	blocks = 1 + (int)below(&m, ROW_PLANS_BLOCKS);
	way = (int)below(&m, 3);
	m.chunks = way ? (uint32_t)nranks : 1 + below(&m, 2);
	attr.in_place = (int)below(&m, 2);
	attr.input_chunks = attr.output_chunks = m.chunks;
	attr.scratch_chunks = m.chunks * (uint32_t)nranks;
	apart = below(&m, 4) == 0;
	rc = spmt_plan_create(&attr, &m.plan);
	if (rc)
		return rc;
	for (int r = 0; r < nranks; r++)
		for (int b = 0; b < blocks; b++)
			alike_block(&(struct alike){ &m, r, b, blocks }, !way, way == 2,
				apart ? (uint32_t)b : 0);
	if (m.rc)
		spmt_plan_destroy(m.plan);
	else
		*plan = m.plan;
	return m.rc;
}

int row_plans_file(const spmt_plan *plan, char name[ROW_PLANS_NAME])
{
	size_t need = 0;
	int rc = spmt_plan_write(plan, SPMT_PLAN_JSON, NULL, 0, &need), fd;
	char *text = rc == -ERANGE ? malloc(need) : NULL;

	if (!text)
		return rc == -ERANGE ? -ENOMEM : rc;
	rc = spmt_plan_write(plan, SPMT_PLAN_JSON, text, need, &need);
	fd = memfd_create("plan", 0);
	if (!rc && (fd < 0 || write(fd, text, need - 1) != (ssize_t)need - 1))
		rc = -errno;
	free(text);
	snprintf(name, ROW_PLANS_NAME, "/proc/self/fd/%d", fd);
	return rc;
}
