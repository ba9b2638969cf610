/* SPDX-License-Identifier: MIT */
#include "plans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/base.h"
#include "src/base/names.h"

/* Chunks of a phase: who writes, whether somebody reads. */
struct claims {
	int8_t writer[PLANS_RANKS][3][PLANS_CHUNKS]; /* thread + 1 */
	uint8_t readers
		[PLANS_RANKS][3]
		[PLANS_CHUNKS]; /* a set of threads' ranks and blocks, folded: 0 none, 255 several */
	bool packets[PLANS_RANKS][PLANS_CHUNKS]; /* of the whole plan */
};

struct making {
	spmt_plan *plan;
	uint64_t seed;
	int nranks, blocks, rc;
	struct claims claims;
	struct spmt_plan_chunk touched; /* what some thread has read or written in the last phase */
	int toucher;
};

static uint32_t below(struct making *m, uint32_t n)
{
	m->seed ^= m->seed << 13;
	m->seed ^= m->seed >> 7;
	m->seed ^= m->seed << 17;
	return (uint32_t)(m->seed >> 20) % n;
}

static void note(struct making *m, int rc)
{
	m->rc = m->rc ? m->rc : rc;
}

static int thread_of(int rank, int block)
{
	return 1 + rank * PLANS_BLOCKS + block;
}

/* ---- chunks that nobody else has ------------------------------------------------------------------ */

static bool may_read(const struct making *m, const struct spmt_plan_chunk *c, int thread)
{
	int8_t w = m->claims.writer[c->rank][c->buffer][c->index];

	return !w || w == thread;
}

static bool may_write(const struct making *m, const struct spmt_plan_chunk *c, int thread)
{
	uint8_t r = m->claims.readers[c->rank][c->buffer][c->index];

	return may_read(m, c, thread) && (!r || r == thread);
}

static void claim(struct making *m, const struct spmt_plan_chunk *c, int thread, bool writes)
{
	uint8_t *r = &m->claims.readers[c->rank][c->buffer][c->index];

	if (writes)
		m->claims.writer[c->rank][c->buffer][c->index] = (int8_t)thread;
	else
		*r = *r && *r != thread ? 255 : (uint8_t)thread;
	m->touched = *c;
	m->toucher = thread;
}

/* False: after some tries none was found. Inputs are read alone. */
static bool pick(struct making *m, int rank, int thread, bool writes, struct spmt_plan_chunk *c)
{
	for (int tries = 0; tries < 12; tries++) {
		*c = spmt_plan_chunk_(rank,
			(enum spmt_plan_buffer)(writes ? 1 + below(m, 2) : below(m, 3)),
			below(m, PLANS_CHUNKS), 1);
		if (writes ? may_write(m, c, thread) : may_read(m, c, thread))
			return true;
	}
	return false;
}

/* ---- operations ------------------------------------------------------------------------------- */

static int other_rank(struct making *m, int rank)
{
	return (int)((uint32_t)rank + 1 + below(m, (uint32_t)m->nranks - 1)) % m->nranks;
}

static bool same_chunk(const struct spmt_plan_chunk *a, const struct spmt_plan_chunk *b)
{
	return a->rank == b->rank && a->buffer == b->buffer && a->index == b->index;
}

static void add_move(struct making *m, int rank, int block)
{
	int thread = thread_of(rank, block), kind = m->nranks > 1 ? (int)below(m, 3) : 2;
	int from = kind == 1 ? other_rank(m, rank) : rank,
	    to = kind == 0 ? other_rank(m, rank) : rank;
	struct spmt_plan_chunk src, dst;

	if (!pick(m, from, thread, false, &src) || !pick(m, to, thread, true, &dst) ||
		same_chunk(&src, &dst))
		return;
	claim(m, &src, thread, false);
	claim(m, &dst, thread, true);
	note(m,
		kind == 0	    ? spmt_plan_put(m->plan, rank, block, src, dst)
			: kind == 1 ? spmt_plan_fetch(m->plan, rank, block, src, dst)
				    : spmt_plan_copy(m->plan, rank, block, src, dst));
}

static int fold_rank(struct making *m, int rank, uint32_t how)
{
	if (how < 2)
		return rank;
	return how < 4 ? other_rank(m, rank) : (int)below(m, (uint32_t)m->nranks);
}

static void add_reduce(struct making *m, int rank, int block)
{
	int thread = thread_of(rank, block);
	struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE);
	/* what execution plans have: all others here, or none; now and then, any */
	uint32_t how = m->nranks > 1 ? below(m, 5) : 0;

	op.nsrc = 2 + (int)below(m, 3);
	op.ndst = how ? 1 + (int)below(m, 2) : 1;
	for (int i = 0; i < op.nsrc; i++)
		if (!pick(m, i ? fold_rank(m, rank, how) : rank, thread, false, &op.src[i]))
			return;
	for (int i = 0; i < op.ndst; i++) {
		if (!pick(m, i ? fold_rank(m, rank, how ? MAX_OF(how, 3u) : 0) : rank, thread, true,
			    &op.dst[i]))
			return;
		for (int k = 0; k < op.nsrc; k++)
			if (same_chunk(&op.dst[i], &op.src[k]) && i)
				return;
		if (i && same_chunk(&op.dst[0], &op.dst[1]))
			return;
	}
	for (int i = 0; i < op.nsrc; i++)
		claim(m, &op.src[i], thread, false);
	for (int i = 0; i < op.ndst; i++)
		claim(m, &op.dst[i], thread, true);
	note(m, spmt_plan_add(m->plan, rank, block, &op));
}

/* Put to a place that had none in this plan; read there by some block, in this phase. */
static void add_packets(struct making *m, int rank, int block)
{
	int thread = thread_of(rank, block), to = (int)below(m, (uint32_t)m->nranks);
	int reader = (int)below(m, (uint32_t)m->blocks), read_by = thread_of(to, reader);
	struct spmt_plan_chunk src, own, dst,
		place = spmt_plan_scratch(to, below(m, PLANS_CHUNKS), 1);

	if (m->claims.packets[to][place.index] || !pick(m, rank, thread, false, &src))
		return;
	claim(m, &src, thread, false);
	m->claims.packets[to][place.index] = true;
	note(m, spmt_plan_put_packets(m->plan, rank, block, src, place));
	if (!pick(m, to, read_by, true, &dst))
		return;
	if (below(m, 2)) {
		claim(m, &dst, read_by, true);
		note(m, spmt_plan_unpack_packets(m->plan, to, reader, place, dst));
	} else if (pick(m, to, read_by, false, &own)) {
		const struct spmt_plan_chunk terms[] = { own, place };

		claim(m, &own, read_by, false);
		claim(m, &dst, read_by, true);
		note(m, spmt_plan_reduce_packets(m->plan, to, reader, dst, terms, 2));
	}
}

/* A chunk goes on from one block to the next, by a signal or a semaphore. */
static void add_hand_over(struct making *m, int rank, int block, int index)
{
	bool far = m->nranks > 1 && below(m, 2);
	int to = far ? other_rank(m, rank) : rank, next = (block + 1) % m->blocks;
	int thread = thread_of(rank, block), last = thread_of(to, next);
	struct spmt_plan_chunk src, middle, dst;

	if (thread == last || !pick(m, rank, thread, false, &src) ||
		!pick(m, to, thread, true, &middle) || same_chunk(&src, &middle))
		return;
	claim(m, &src, thread, false);
	claim(m, &middle, thread, true);
	note(m,
		far ? spmt_plan_put(m->plan, rank, block, src, middle)
		    : spmt_plan_copy(m->plan, rank, block, src, middle));
	note(m,
		far ? spmt_plan_signal(m->plan, rank, block, to, index)
		    : spmt_plan_release(m->plan, rank, block, index));
	note(m,
		far ? spmt_plan_wait(m->plan, to, next, rank, index)
		    : spmt_plan_acquire(m->plan, to, next, index, 0));
	if (!pick(m, to, last, true, &dst) || same_chunk(&dst, &middle))
		return;
	claim(m, &dst, last, true);
	note(m, spmt_plan_copy(m->plan, to, next, middle, dst));
	/* nobody else may touch the middle in this phase */
	m->claims.writer[to][middle.buffer][middle.index] = 127;
}

/* All blocks of all ranks: those of a rank by a barrier, ranks by their first blocks' signals. */
static void add_meeting(struct making *m)
{
	for (int r = 0; r < m->nranks; r++) {
		for (int b = 0; b < m->blocks; b++)
			note(m, spmt_plan_barrier(m->plan, r, b, 0, m->blocks));
		for (int p = 0; p < m->nranks; p++)
			if (p != r)
				note(m, spmt_plan_signal(m->plan, r, 0, p, 0));
		for (int p = 0; p < m->nranks; p++)
			if (p != r)
				note(m, spmt_plan_wait(m->plan, r, 0, p, 0));
		for (int b = 0; b < m->blocks; b++)
			note(m, spmt_plan_barrier(m->plan, r, b, 0, m->blocks));
	}
	memset(m->claims.writer, 0, sizeof(m->claims.writer));
	memset(m->claims.readers, 0, sizeof(m->claims.readers));
	m->toucher = 0;
}

static void add_phase(struct making *m, int phase)
{
	int n = 4 + (int)below(m, 12);

	for (int i = 0; i < n && !m->rc; i++) {
		int rank = (int)below(m, (uint32_t)m->nranks),
		    block = (int)below(m, (uint32_t)m->blocks);

		switch (below(m, 5)) {
		case 0:
		case 1:
			add_move(m, rank, block);
			break;
		case 2:
			add_reduce(m, rank, block);
			break;
		case 3:
			add_packets(m, rank, block);
			break;
		default:
			/* an index of its own: both ends are of one block each */
			if (1 + phase * 16 + i < SPMT_PLAN_INDICES)
				add_hand_over(m, rank, block, 1 + phase * 16 + i);
		}
	}
}

/* ---- faults ----------------------------------------------------------------------------------- */

const char *plans_says(enum plans_fault fault)
{
	static const char *const words[] = { NULL, "deadlock: ", "race: ", "nobody signals",
		"signals and" };

	return words[fault];
}

static void plant(struct making *m, enum plans_fault fault)
{
	int last = SPMT_PLAN_INDICES - 1, other = m->nranks - 1;
	struct spmt_plan_chunk src = spmt_plan_input(0, 0, 1);

	switch (fault) {
	case PLANS_DEADLOCK:
		note(m, spmt_plan_wait(m->plan, 0, 0, other, last));
		note(m, spmt_plan_signal(m->plan, 0, 0, other, last));
		note(m, spmt_plan_wait(m->plan, other, 0, 0, last));
		note(m, spmt_plan_signal(m->plan, other, 0, 0, last));
		break;
	case PLANS_RACE:
		/* behind the last meeting: one of rank 0 puts where one of the other rank copies from */
		note(m,
			spmt_plan_copy(m->plan, other, m->blocks - 1, spmt_plan_output(other, 2, 1),
				spmt_plan_output(other, 3, 1)));
		note(m,
			spmt_plan_put(
				m->plan, 0, 0, src, spmt_plan_output(other, 2 + below(m, 2), 1)));
		break;
	case PLANS_UNSIGNALLED:
		note(m, spmt_plan_wait(m->plan, 0, 0, other, last));
		break;
	case PLANS_UNAWAITED:
		note(m, spmt_plan_signal(m->plan, 0, 0, other, last));
		break;
	default:
		break;
	}
}

int plans_random(uint64_t seed, int ranks, int phases, enum plans_fault fault, spmt_plan **plan)
{
	struct making m = { .seed = seed * 0x9e3779b97f4a7c15ull + 0x1234567 };
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "random",
		.collective = "random",
		.input_chunks = PLANS_CHUNKS,
		.output_chunks = PLANS_CHUNKS,
		.scratch_chunks = PLANS_CHUNKS };
	int before = phases > 1 && fault ? 1 + (int)(seed % (uint64_t)phases) : phases;

	for (int i = 0; i < 8; i++)
		below(&m, 2);
	m.nranks = attr.nranks = (int)below(&m, (uint32_t)MAX_OF(ranks - 1, 1)) + 2;
	if (ranks == 1 || (!fault && below(&m, 8) == 0))
		m.nranks = attr.nranks = 1;
	m.blocks = 1 + (int)below(&m, PLANS_BLOCKS);
	m.rc = spmt_plan_create(&attr, &m.plan);
	for (int i = 0; i < phases && !m.rc; i++) {
		if (i == before)
			plant(&m, fault == PLANS_RACE ? PLANS_RIGHT : fault);
		add_phase(&m, i);
		add_meeting(&m);
	}
	if (before >= phases || fault == PLANS_RACE)
		plant(&m, fault);
	if (m.rc)
		spmt_plan_destroy(m.plan);
	else
		*plan = m.plan;
	return m.rc;
}

/* ---- simulated -------------------------------------------------------------------------------- */

void plans_input(enum spmt_type type, int rank, size_t count, void *in)
{
	size_t size = type_size(type);

	for (size_t i = 0; i < count; i++) {
		uint64_t x = (uint64_t)rank + 1 + i % 3, bits = x;
		float f = (float)x;
		double d = (double)x;

		if (type == SPMT_TYPE_F32 || type == SPMT_TYPE_BF16)
			memcpy(&bits, &f, sizeof(f));
		if (type == SPMT_TYPE_BF16)
			bits = (bits & 0xffffffffu) >> 16;
		if (type == SPMT_TYPE_F64)
			memcpy(&bits, &d, sizeof(d));
		if (type == SPMT_TYPE_F16) /* 1 to 8 */
			bits = x < 2	? 0x3c00
				: x < 4 ? 0x4000 + (x - 2) * 0x200
				: x < 8 ? 0x4400 + (x - 4) * 0x100
					: 0x4800;
		memcpy((unsigned char *)in + i * size, &bits, size);
	}
}

size_t plans_output(const spmt_plan *plan, enum spmt_type type, size_t chunk)
{
	struct spmt_plan_info info = { .size = sizeof(info) };

	return spmt_plan_about(plan, &info) ? 0 : info.attr.output_chunks * chunk * type_size(type);
}

int plans_simulate(const spmt_plan *plan, enum spmt_type type, enum spmt_op op, size_t chunk,
	uint64_t order, unsigned char *out)
{
	struct spmt_plan_info info = { .size = sizeof(info) };
	void *outs[SPMT_PLAN_RANKS], *ins[SPMT_PLAN_RANKS];
	size_t bytes = plans_output(plan, type, chunk), count;
	unsigned char *in;
	int rc = spmt_plan_about(plan, &info);

	if (rc)
		return rc;
	count = info.attr.input_chunks * chunk;
	in = calloc((size_t)info.attr.nranks, count * type_size(type) + 1);
	if (!in)
		return -ENOMEM;
	for (int r = 0; r < info.attr.nranks; r++) {
		ins[r] = in + (size_t)r * count * type_size(type);
		outs[r] = out + (size_t)r * bytes;
		plans_input(type, r, count, ins[r]);
	}
	memset(out, 0, bytes * (size_t)info.attr.nranks);
	rc = spmt_plan_simulate(plan,
		&(struct spmt_plan_trial){ .size = sizeof(struct spmt_plan_trial),
			.out = outs,
			.in = ins,
			.count = count,
			.type = type,
			.op = op,
			.seed = order });
	free(in);
	return rc;
}
