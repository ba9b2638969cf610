/* SPDX-License-Identifier: MIT */
#include "made.h"

#include <errno.h>
#include <string.h>

const char made_names[] =
	"allreduce, allreduce-packets, allreduce-twoshot, allreduce-push, allgather, reducescatter, alltoall";

/* One block of a rank, which has a part of everything. */
struct making {
	spmt_plan *plan;
	int n, rank, block, blocks, rc;
	int piece, pieces; /* of the block's part */
};

/* Operation of this piece of this part; a plan of one block, and one piece, has no parts. */
static void add(struct making *m, int block, struct spmt_plan_op op)
{
	int parts = m->blocks * m->pieces;

	op.size = sizeof(op);
	op.slice = parts > 1 ? m->block * m->pieces + m->piece : 0;
	op.slices = parts > 1 ? parts : 0;
	if (!m->rc)
		m->rc = spmt_plan_add(m->plan, m->rank, block, &op);
}

static void move(struct making *m, enum spmt_plan_kind kind, int block, struct spmt_plan_chunk src,
	struct spmt_plan_chunk dst)
{
	struct spmt_plan_op op = { .kind = kind, .nsrc = 1, .ndst = 1 };

	op.src[0] = src;
	op.dst[0] = dst;
	add(m, block, op);
}

static void fold(struct making *m, enum spmt_plan_kind kind, struct spmt_plan_chunk dst,
	const struct spmt_plan_chunk *terms, int k)
{
	struct spmt_plan_op op = { .kind = kind, .nsrc = k, .ndst = 1 };

	op.dst[0] = dst;
	memcpy(op.src, terms, (size_t)k * sizeof(*terms));
	add(m, m->block, op);
}

/* By a channel a block. */
static void tell_all(struct making *m)
{
	for (int p = 1; p < m->n && !m->rc; p++)
		m->rc = spmt_plan_signal(
			m->plan, m->rank, m->block, (m->rank + p) % m->n, m->block);
}

static void wait_for_all(struct making *m)
{
	for (int p = 1; p < m->n && !m->rc; p++)
		m->rc = spmt_plan_wait(m->plan, m->rank, m->block, (m->rank + p) % m->n, m->block);
}

/* All ranks tell each other: every buffer is free, or filled. */
static void all_meet(struct making *m)
{
	tell_all(m);
	wait_for_all(m);
}

/* n terms to one chunk, SPMT_PLAN_TERMS at a time: then it is the first of the next ones. */
static void fold_all(struct making *m, enum spmt_plan_kind kind, struct spmt_plan_chunk out,
	const struct spmt_plan_chunk *terms, int n)
{
	struct spmt_plan_chunk some[SPMT_PLAN_TERMS] = { terms[0] };
	int at = 1;

	do {
		int k = 1;

		for (; k < SPMT_PLAN_TERMS && at < n; k++, at++)
			some[k] = terms[at];
		fold(m, kind, out, some, k);
		some[0] = out;
	} while (at < n);
}

/* Two ways to fold, and to put what comes of it. */
struct way {
	enum spmt_plan_kind fold, put;
};
static const struct way plain = { SPMT_PLAN_REDUCE, SPMT_PLAN_PUT },
			by_packets = { SPMT_PLAN_REDUCE_PACKETS, SPMT_PLAN_PUT_PACKETS };

/* A term a rank to dst[0], this one's, and from there to the others: at once, where that many are an operation's terms. */
static void fold_to_all(struct making *m, struct way way, const struct spmt_plan_chunk *dst,
	const struct spmt_plan_chunk *terms)
{
	struct spmt_plan_op op = { .kind = way.fold };

	for (int p = 0; p < m->n && m->n <= SPMT_PLAN_TERMS; p++) {
		op.src[op.nsrc++] = terms[p];
		op.dst[op.ndst++] = dst[p];
	}
	if (op.ndst)
		add(m, m->block, op);
	else
		fold_all(m, way.fold, dst[0], terms, m->n);
	for (int p = 1; p < m->n && !op.ndst; p++)
		move(m, way.put, m->block, dst[0], dst[p]);
}

/* This rank's chunk of all outputs, its own first. */
static void outputs(const struct making *m, struct spmt_plan_chunk *dst)
{
	for (int p = 0; p < m->n; p++)
		dst[p] = spmt_plan_output((m->rank + p) % m->n, (uint32_t)m->rank, 1);
}

/* This rank's chunk of all inputs, its own first. */
static void inputs(const struct making *m, struct spmt_plan_chunk *terms)
{
	for (int p = 0; p < m->n; p++)
		terms[p] = spmt_plan_input((m->rank + p) % m->n, (uint32_t)m->rank, 1);
}

static void make_all_reduce(struct making *m)
{
	struct spmt_plan_chunk terms[SPMT_PLAN_RANKS], dst[SPMT_PLAN_RANKS];

	inputs(m, terms);
	outputs(m, dst);
	fold_to_all(m, plain, dst, terms);
	all_meet(m);
}

static void make_reduce_scatter(struct making *m)
{
	struct spmt_plan_chunk terms[SPMT_PLAN_RANKS];

	inputs(m, terms);
	fold_all(m, SPMT_PLAN_REDUCE, spmt_plan_output(m->rank, 0, 1), terms, m->n);
}

/* Chunk p of everybody's comes to rank p, which folds it and stores it to all: one piece while the other is on its way. All ranks meet behind a run,
   block by block, which takes less than signals of the plan's own. */
static void make_all_reduce_push(struct making *m)
{
	struct spmt_plan_chunk terms[SPMT_PLAN_RANKS], dst[SPMT_PLAN_RANKS];

	outputs(m, dst);
	terms[0] = spmt_plan_input(m->rank, (uint32_t)m->rank, 1);
	for (int p = 1; p < m->n; p++)
		terms[p] = spmt_plan_scratch(m->rank, (uint32_t)p - 1, 1);
	m->pieces = 2;
	for (m->piece = 0; m->piece < m->pieces; m->piece++) {
		for (int p = 1; p < m->n; p++)
			move(m, SPMT_PLAN_PUT, m->block,
				spmt_plan_input(m->rank, (uint32_t)((m->rank + p) % m->n), 1),
				spmt_plan_scratch(
					(m->rank + p) % m->n, (uint32_t)(m->n - 1 - p), 1));
		tell_all(m);
	}
	for (m->piece = 0; m->piece < m->pieces; m->piece++) {
		wait_for_all(m);
		fold_to_all(m, plain, dst, terms);
	}
}

/* Everybody's data comes to everybody as packets: scratch chunk r is from rank r. */
static void make_all_reduce_packets(struct making *m)
{
	struct spmt_plan_chunk terms[SPMT_PLAN_RANKS];
	uint32_t own = (uint32_t)m->rank;

	terms[0] = spmt_plan_input(m->rank, 0, 1);
	for (int p = 1; p < m->n; p++) {
		int pe = (m->rank + p) % m->n;

		terms[p] = spmt_plan_scratch(m->rank, (uint32_t)pe, 1);
		move(m, SPMT_PLAN_PUT_PACKETS, m->block, terms[0], spmt_plan_scratch(pe, own, 1));
	}
	if (m->n > 1)
		fold_all(m, SPMT_PLAN_REDUCE_PACKETS, spmt_plan_output(m->rank, 0, 1), terms, m->n);
}

/* Chunk p of everybody's comes to rank p as packets, which folds it and sends it on to all as packets. Scratch chunk r is from rank r, chunk
   n + r what that one has folded. */
static void make_all_reduce_twoshot(struct making *m)
{
	struct spmt_plan_chunk terms[SPMT_PLAN_RANKS], dst[SPMT_PLAN_RANKS];
	uint32_t own = (uint32_t)m->rank, n = (uint32_t)m->n;

	terms[0] = spmt_plan_input(m->rank, own, 1);
	dst[0] = spmt_plan_output(m->rank, own, 1);
	for (int p = 1; p < m->n; p++) {
		int pe = (m->rank + p) % m->n;

		terms[p] = spmt_plan_scratch(m->rank, (uint32_t)pe, 1);
		dst[p] = spmt_plan_scratch(pe, n + own, 1);
		move(m, SPMT_PLAN_PUT_PACKETS, m->block, spmt_plan_input(m->rank, (uint32_t)pe, 1),
			spmt_plan_scratch(pe, own, 1));
	}
	if (m->n > 1)
		fold_to_all(m, by_packets, dst, terms);
	for (int p = 1; p < m->n; p++) {
		uint32_t pe = (uint32_t)((m->rank + p) % m->n);

		move(m, SPMT_PLAN_UNPACK_PACKETS, m->block, spmt_plan_scratch(m->rank, n + pe, 1),
			spmt_plan_output(m->rank, pe, 1));
	}
}

/* Each block of two puts to every other peer. */
static void make_puts(struct making *m, int gathers)
{
	uint32_t own = (uint32_t)m->rank;

	move(m, SPMT_PLAN_COPY, m->block, spmt_plan_input(m->rank, gathers ? 0 : own, 1),
		spmt_plan_output(m->rank, own, 1));
	for (int p = 1; p < m->n; p++) {
		int to = (m->rank + p) % m->n;

		move(m, SPMT_PLAN_PUT, m->blocks > 1 ? m->block : p % 2,
			spmt_plan_input(m->rank, gathers ? 0 : (uint32_t)to, 1),
			spmt_plan_output(to, own, 1));
	}
}

static void make_block(struct making *m, const char *name)
{
	if (!strcmp(name, "allreduce"))
		make_all_reduce(m);
	else if (!strcmp(name, "allreduce-packets"))
		make_all_reduce_packets(m);
	else if (!strcmp(name, "allreduce-twoshot"))
		make_all_reduce_twoshot(m);
	else if (!strcmp(name, "allreduce-push"))
		make_all_reduce_push(m);
	else if (!strcmp(name, "reducescatter"))
		make_reduce_scatter(m);
	else
		make_puts(m, !strcmp(name, "allgather"));
}

int made_plan_of(const char *name, int nranks, int blocks, spmt_plan **plan)
{
	uint32_t n = nranks > 0 ? (uint32_t)nranks : 0;
	int gathers = !strcmp(name, "allgather"), packets = !strcmp(name, "allreduce-packets");
	int push = !strcmp(name, "allreduce-push"), twoshot = !strcmp(name, "allreduce-twoshot");
	int reduces = packets || push || twoshot || !strcmp(name, "allreduce"),
	    scatters = !strcmp(name, "reducescatter"), rc;
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = name,
		.collective = reduces ? "allreduce" : name,
		.nranks = nranks,
		.in_place = reduces,
		.input_chunks = packets || gathers ? 1 : n,
		.output_chunks = packets || scatters ? 1 : n,
		.scratch_chunks = packets ? n
			: twoshot	  ? 2 * n
			: push && n	  ? n - 1
					  : 0 };

	if (!reduces && !gathers && !scatters && strcmp(name, "alltoall"))
		return -ENOENT;
	rc = spmt_plan_create(&attr, plan);
	for (int r = 0; r < nranks && !rc; r++)
		for (int b = 0; b < blocks && !rc; b++) {
			struct making m = { .plan = *plan,
				.n = nranks,
				.rank = r,
				.block = b,
				.blocks = blocks,
				.pieces = 1 };

			make_block(&m, name);
			rc = m.rc;
			if (rc)
				spmt_plan_destroy(*plan);
		}
	return rc;
}

int made_plan(const char *name, int nranks, spmt_plan **plan)
{
	return made_plan_of(name, nranks, 1, plan);
}

/* ---- what they do ----------------------------------------------------------------------------- */

uint32_t made_input(int rank, size_t i)
{
	return (uint32_t)(i * 2654435761u) ^ (uint32_t)(rank + 1) * 0x9e3779b9u;
}

static uint32_t sum_of(int nranks, size_t i)
{
	uint32_t sum = 0;

	for (int r = 0; r < nranks; r++)
		sum += made_input(r, i);
	return sum;
}

/* Whether input and output are as large as the collective's; in place of an allreduce one may be left out. */
static int shaped(const struct spmt_plan_attr *a)
{
	uint64_t n = (uint64_t)a->nranks, in = a->input_chunks, out = a->output_chunks;

	if (!in && !out)
		return 0;
	if (!strcmp(a->collective, "allreduce"))
		return in == out || (a->in_place && (!in || !out));
	if (!strcmp(a->collective, "allgather"))
		return in && out == in * n;
	if (!strcmp(a->collective, "reducescatter"))
		return out && in == out * n;
	return in == out && in % n == 0;
}

int made_right(const struct spmt_plan_attr *a, int rank, size_t elements, const uint32_t *out)
{
	size_t n = (size_t)a->nranks, part = elements / n, me = (size_t)rank;
	int wrong = 0;

	if (!shaped(a))
		return -1;
	if (!strcmp(a->collective, "allreduce"))
		for (size_t i = 0; i < elements; i++)
			wrong |= out[i] != sum_of(a->nranks, i);
	else if (!strcmp(a->collective, "reducescatter"))
		for (size_t i = 0; i < part; i++)
			wrong |= out[i] != sum_of(a->nranks, me * part + i);
	else if (!strcmp(a->collective, "allgather"))
		for (size_t i = 0; i < n * elements; i++)
			wrong |= out[i] != made_input((int)(i / elements), i % elements);
	else if (!strcmp(a->collective, "alltoall"))
		for (size_t i = 0; i < n * part; i++)
			wrong |= out[i] != made_input((int)(i / part), me * part + i % part);
	else
		return -1;
	return !wrong;
}
