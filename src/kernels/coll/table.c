/* SPDX-License-Identifier: MIT */
/* What the host asks of the table. */
#include "../../../include/spmt.h"
#include "quads.h"
#include "src/kernels/area_words.h"
#include "src/kernels/fold/slot_unit.h"
#include "src/kernels/kernels.h"

#include <stdio.h>
#include <string.h>

const struct coll_kind coll_kinds[COLL_CALLS] = {
	[COLL_BROADCAST] = { "spmt_broadcast", COLL_ROOT_TO_ALL, .in_place = true },
	[COLL_ALL_GATHER] = { "spmt_all_gather", .dst_blocks = true, .in_place = true },
	[COLL_ALL_TO_ALL] = { "spmt_all_to_all", .src_blocks = true, .dst_blocks = true },
	[COLL_PERMUTE] = { "spmt_permute", COLL_ONE_TO_ONE },
	[COLL_GATHER] = { "spmt_gather", COLL_ALL_TO_ROOT, .dst_blocks = true, .in_place = true,
		.breaks = true },
	[COLL_SCATTER] = { "spmt_scatter", COLL_ROOT_TO_ALL, .src_blocks = true, .in_place = true,
		.breaks = true },
	[COLL_EXCHANGE] = { "spmt_all_to_all in place", .src_blocks = true, .dst_blocks = true,
		.in_place = true, .breaks = true },
	[COLL_REDUCE_SCATTER] = { "spmt_reduce_scatter", .src_blocks = true, .folds = true,
		.in_place = true },
	[COLL_ALL_REDUCE] = { "spmt_all_reduce", .folds = true, .in_place = true },
	[COLL_REDUCE] = { "spmt_reduce", COLL_ALL_TO_ROOT, .folds = true, .in_place = true,
		.breaks = true },
	[COLL_ALL_GATHER_V] = { "spmt_all_gather_v", .dst_blocks = true, .breaks = true },
	[COLL_ALL_TO_ALL_V] = { "spmt_all_to_all_v", .src_blocks = true, .dst_blocks = true,
		.breaks = true },
};

struct coll_moves coll_moves(enum kernel_collective_kind kind, int pe, int npes, int root, int to)
{
	const struct coll_kind *k = &coll_kinds[kind];
	/* From this rank on: no two begin with the same. */
	struct coll_moves m = { pe, npes, pe, npes, k->src_blocks, k->dst_blocks, k->folds };

	if (k->among == COLL_ROOT_TO_ALL) {
		m.tos = pe == root ? npes : 0;
		m.from = root;
		m.froms = 1;
	}
	if (k->among == COLL_ALL_TO_ROOT) {
		m.to = root;
		m.tos = 1;
		m.froms = pe == root ? npes : 0;
	}
	if (k->among == COLL_ONE_TO_ONE) {
		m.to = to;
		m.tos = to >= 0;
		m.from = root;
		m.froms = root >= 0;
	}
	return m;
}

const struct coll_row coll_rows[COLL_ROWS] = {
#define X(name, kinds, way, gpu, cpu, grain) { #name, kinds, way, gpu, cpu, grain },
	COLL_TABLE(X) COLL_TABLE_HOST(X)
#undef X
};

/* Of those that fold: the factors come with coll_greet. */
static bool row_brings_factors(const struct coll_row *row)
{
	return row == &coll_rows[COLL_ROW_pushed] || row == &coll_rows[COLL_ROW_reduce] ||
		row == &coll_rows[COLL_ROW_twoshot];
}

static bool row_meets_by_block(const struct coll_row *row)
{
	return row == &coll_rows[COLL_ROW_push2] || row == &coll_rows[COLL_ROW_twoshot] ||
		row == &coll_rows[COLL_ROW_give];
}

static uint64_t case_ranks(const struct coll_case *c)
{
	return c->ranks > 1 ? (uint64_t)(uint32_t)c->ranks : 1;
}

/* An all_reduce has a rank's part in a slot twice, others a block once: where a word has a flag, that is half of a slot. */
static bool ll12_fits(const struct coll_case *c)
{
	uint64_t units = (c->bytes + 15) / 16, ranks = case_ranks(c);

	if (!c->whole || (coll_kinds[c->kind].folds && !c->sums))
		return false;
	if (c->kind == COLL_ALL_REDUCE)
		return quads_room((units + ranks - 1) / ranks) <= c->room;
	return quads_room(units) <= 2 * (uint64_t)c->room;
}

static bool row_fits(const struct coll_row *row, const struct coll_case *c)
{
	if (c->factors && !row_brings_factors(row))
		return false;
	if (row == &coll_rows[COLL_ROW_copy] && !c->engines)
		return false;
	if (row->way == COLL_BY_ENGINES && !c->meets)
		return false;
	if (row == &coll_rows[COLL_ROW_push2] &&
		(!c->sums || !c->staged || c->ranks < 2 || c->ranks > COLL_BLOCKS_RANKS))
		return false;
	if (row == &coll_rows[COLL_ROW_ll12])
		return row->kinds >> c->kind & 1 && ll12_fits(c);
	return row->kinds >> c->kind & 1 && (row->way != COLL_BY_SLOTS || c->bytes <= c->room);
}

/* Bytes of a block that are worth one phase: those that go to all others together count. */
static uint64_t row_most(const struct coll_row *row, bool on_cpu, int ranks)
{
	uint64_t most = on_cpu ? row->cpu : row->gpu, others;

	if (row != &coll_rows[COLL_ROW_ll] || on_cpu || ranks < 2)
		return most;
	others = COLL_LL_TOGETHER / (unsigned)(ranks - 1);
	return others > most ? others : most;
}

static bool row_takes(const struct coll_row *row, const struct coll_case *c)
{
	return row_fits(row, c) && c->bytes <= row_most(row, c->on_cpu, c->ranks);
}

/* Bytes of so many in all that are a block's. */
static uint64_t block_bytes(const struct coll_case *c, uint64_t all)
{
	const struct coll_kind *k = &coll_kinds[c->kind];
	uint64_t blocks = k->src_blocks || k->dst_blocks ? case_ranks(c) : 1;

	return (all + blocks - 1) / blocks;
}

/* Of a block: a permute sends all that it has, others of their blocks all but one. */
static uint64_t ll12_most(const struct coll_case *c)
{
	return c->kind == COLL_PERMUTE ? COLL_LL12_MOST / 2 - 1 : block_bytes(c, COLL_LL12_MOST);
}

static bool ll12_is_preferred(const struct coll_case *c)
{
	uint64_t least = c->kind == COLL_ALL_REDUCE ? COLL_LL12_TWICE : COLL_LL12_LEAST;
	uint64_t others = case_ranks(c) - 1;

	if (others && c->kind == COLL_PERMUTE)
		others = 1;
	return c->bytes * others > least && c->bytes <= ll12_most(c) &&
		c->ranks <= COLL_BLOCKS_RANKS;
}

static bool row_is_preferred(const struct coll_row *row, const struct coll_case *c)
{
	if (row == &coll_rows[COLL_ROW_push2] && c->bytes < block_bytes(c, COLL_PUSH2_LEAST))
		return false;
	if (row == &coll_rows[COLL_ROW_ll12] && !ll12_is_preferred(c))
		return false;
	if (row_meets_by_block(row) && c->ranks > COLL_BLOCKS_RANKS)
		return false;
	if (row == &coll_rows[COLL_ROW_twoshot] && c->kind == COLL_REDUCE)
		return false;
	/* `ll` brings no factors: what is small has its one meeting behind this row. */
	if (row == &coll_rows[COLL_ROW_twoshot] && c->factors &&
		row_takes(&coll_rows[COLL_ROW_pushed], c))
		return false;
	return row_takes(row, c);
}

static bool engine_is_preferred(const struct coll_case *c)
{
	return c->apart && !c->on_cpu && row_fits(&coll_rows[COLL_ROW_engine], c) &&
		c->bytes >= block_bytes(c, COLL_ENGINE_LEAST);
}

/* Every kind has a row for any size, which is the last one at the latest. */
int coll_choose(const struct coll_case *c)
{
	int row = 0;

	if (c->wanted >= 0 && row_fits(&coll_rows[c->wanted], c))
		return c->wanted;
	if (engine_is_preferred(c))
		return COLL_ROW_engine;
	while (row + 1 < COLL_KERNEL_ROWS && !row_is_preferred(&coll_rows[row], c))
		row++;
	return row;
}

struct coll_share coll_share(uint64_t bytes, int npes, uint32_t blocks, uint32_t threads)
{
	uint64_t units = (bytes + 15) / 16, n = (uint64_t)(uint32_t)npes;
	struct coll_share s = { .each = units / n,
		.over = (uint32_t)(units % n),
		.units = (uint32_t)((units + blocks - 1) / blocks),
		.blocks = (uint16_t)blocks,
		.threads = (uint16_t)threads };

	if (!s.units)
		return s;
	s.rows = threads / s.units;
	s.rest = threads % s.units;
	s.scale = (1u << 20) / s.units + 1; /* exact where n * units is below 2^20 */
	return s;
}

struct coll_places coll_places(int npes)
{
	return (struct coll_places){ (uint32_t)area_begin(0, npes), (uint32_t)area_slots(0, npes),
		0, 0 };
}

/* Bytes of a thread's unit, in a grid in which none has more than one: of whole units, or of the call's only one; 0: not so. */
uint16_t coll_brief(const struct kernel_collective_args *args, int npes, uint32_t threads)
{
	uint64_t at = args->src | args->dst, others = (uint64_t)(npes > 1 ? npes - 1 : 1);
	uint64_t piece = args->bytes % 16 ? args->bytes : 16;

	if (args->algorithm != COLL_ROW_ll || !args->bytes || args->share.units * others > threads)
		return 0;
	return (piece == 16 || piece == 8 || piece == 4) && at % piece == 0 ? (uint16_t)piece : 0;
}

bool coll_sums(int type, int op, int npes)
{
	bool means = type >= SPMT_TYPE_F16 && !(npes & (npes - 1));

	return type < SPMT_TYPE_F8E4M3 && (op == SPMT_OP_SUM || (op == SPMT_OP_AVG && means));
}

/* As measured between two and four; between more a rank has as much under way. */
uint32_t coll_piece(int npes)
{
	return npes <= 2 ? 4096 : npes <= 4 ? 2048 : 1024;
}

uint64_t coll_stage_size(int npes, uint32_t blocks)
{
	uint64_t n = (uint64_t)(uint32_t)npes;

	return n * AREA_BLOCKS * sizeof(uint64_t) +
		blocks * PUSH2_PIECES * (n - 1) * 16 * coll_piece(npes);
}

int coll_named(const char *name)
{
	for (int row = 0; row < COLL_ROWS; row++)
		if (!strcmp(coll_rows[row].name, name))
			return row;
	return -1;
}

void coll_names(char *text, size_t size)
{
	size_t used = 0;

	for (int row = 0; row < COLL_ROWS && used < size; row++)
		used += (size_t)snprintf(
			text + used, size - used, "%s%s", row ? ", " : "", coll_rows[row].name);
}

/* Of each rank's part of the most that goes in two phases, rounded as all are. */
static uint64_t ll12_room(int npes)
{
	uint64_t n = (uint64_t)(uint32_t)npes, room = quads_room((COLL_LL12_MOST / 16 + n - 1) / n);

	return (room + UNITS_TOGETHER - 1) / UNITS_TOGETHER * UNITS_TOGETHER;
}

uint32_t coll_slot_room(int npes, uint64_t most, bool on_cpu, bool whole, int wanted)
{
	uint64_t room = most / (2 * 2 * (uint64_t)(uint32_t)npes);
	uint64_t used = whole && (!on_cpu || wanted == COLL_ROW_ll12) ? ll12_room(npes) : 0;

	/* Whoever asks for slots gets them as large on CPUs. */
	if (wanted >= 0 && coll_rows[wanted].way == COLL_BY_SLOTS)
		on_cpu = false;
	for (int row = 0; row < COLL_ROWS; row++) {
		uint64_t bytes = row_most(&coll_rows[row], on_cpu, npes);

		if (coll_rows[row].way == COLL_BY_SLOTS && row != COLL_ROW_ll12 && bytes > used)
			used = bytes;
	}
	if (room > used)
		room = used;
	return (uint32_t)(room - room % (room < UNITS_TOGETHER ? 16 : UNITS_TOGETHER));
}
