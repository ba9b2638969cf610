/* SPDX-License-Identifier: MIT */
#define SPMTD_BULK_MODEL 1
#include "engine_model.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "spmt_device.h"
#include "tests/lib/folds.h"

const struct fold folds[ALL_FOLDS] = {
#define FOLD(TYPE, name, OP, op) { SPMTD_FOLD_##name##_##op##_, SPMT_TYPE_##TYPE, SPMT_OP_##OP },
	FOLDS(FOLD)
};

struct engine engine;

static bool now(void)
{
	engine.seed = engine.seed * 1664525u + 1013904223u;
	return engine.seed >> 31;
}

static void move_load(struct load *l)
{
	if (l->waiting && !l->moved && !engine.counting)
		memcpy((void *)(uintptr_t)l->stage, (const void *)(uintptr_t)l->src, l->n);
	l->moved = true;
}

static void read_store(struct store *s)
{
	if (!s->read && !engine.counting)
		memcpy(s->bytes, (const void *)(uintptr_t)s->stage, s->n);
	s->read = true;
}

void engine_fold_into(const struct fold *f, char *dst, const char *src, size_t n)
{
	size_t width = folds_width[f->type];

	for (size_t i = 0; i < n; i += width) {
		uint64_t in[2] = { 0 }, x;

		memcpy(&in[0], dst + i, width);
		memcpy(&in[1], src + i, width);
		x = folds_of(f->type, f->op, in, 2);
		memcpy(dst + i, &x, width);
	}
}

static void write_store(struct store *s)
{
	read_store(s);
	for (int i = 0; s->fold && !s->written && i < ALL_FOLDS; i++)
		if (folds[i].fold == s->fold)
			engine_fold_into(&folds[i], (char *)(uintptr_t)s->dst, s->bytes, s->n);
	if (!s->fold && !s->written && !engine.counting)
		memcpy((void *)(uintptr_t)s->dst, s->bytes, s->n);
	s->written = true;
}

static bool overlaps(uint64_t a, uint32_t n, uint64_t b, uint32_t m)
{
	return a < b + m && b < a + n;
}

static int bar_of(uint64_t at)
{
	for (int i = 0; i < BARS; i++)
		if (engine.bars[i].open && engine.bars[i].at == at)
			return i;
	return -1;
}

void spmtd_engine_open_(uint64_t bar)
{
	cr_assert_eq(bar % 8, 0);
	cr_assert_lt(bar_of(bar), 0, "opened twice");
	for (int i = 0; i < BARS; i++)
		if (!engine.bars[i].open) {
			memset(&engine.bars[i], 0, sizeof(engine.bars[i]));
			engine.bars[i].open = true;
			engine.bars[i].at = bar;
			engine.shared_fenced = false;
			return;
		}
	cr_assert_fail("more than %d barriers", BARS);
}

void spmtd_engine_close_(uint64_t bar)
{
	int i = bar_of(bar);

	cr_assert_geq(i, 0, "closed twice");
	cr_assert(!engine.bars[i].load.waiting, "a load is on its way");
	engine.bars[i].open = false;
}

void spmtd_engine_load_(uint64_t stage, uint64_t src, uint32_t n, uint64_t bar)
{
	int i = bar_of(bar);

	cr_assert_geq(i, 0, "no such barrier");
	cr_assert(engine.fenced && engine.shared_fenced, "not fenced");
	cr_assert(n && n % 16 == 0 && src % 16 == 0 && stage % 16 == 0);
	cr_assert(!engine.bars[i].load.waiting, "two loads in one phase");
	for (int k = 0; k < engine.nstores; k++)
		cr_assert(engine.stores[k].read ||
				!overlaps(stage, n, engine.stores[k].stage, engine.stores[k].n),
			"loaded over a stage that is read");
	cr_assert(!engine.counting || src == engine.next);
	engine.next = src + n;
	engine.loads++;
	engine.loaded_bytes += n;
	engine.bars[i].load = (struct load){ .stage = stage, .src = src, .n = n, .waiting = true };
	if (now())
		move_load(&engine.bars[i].load);
}

void spmtd_engine_loaded_(uint64_t bar, uint32_t parity)
{
	int i = bar_of(bar);

	cr_assert_geq(i, 0, "no such barrier");
	cr_assert(engine.bars[i].load.waiting, "nothing is on its way: this would wait for ever");
	cr_assert_eq(engine.bars[i].phase % 2, parity, "not the next phase");
	move_load(&engine.bars[i].load);
	engine.bars[i].load.waiting = false;
	engine.bars[i].phase++;
}

static void drop_written(void)
{
	int kept = 0;

	for (int k = 0; k < engine.nstores; k++)
		if (engine.stores[k].written)
			free(engine.stores[k].bytes);
		else
			engine.stores[kept++] = engine.stores[k];
	engine.nstores = kept;
}

static bool is_stage(uint64_t at)
{
	for (int i = 0; i < BARS; i++)
		if (engine.bars[i].open && engine.bars[i].phase && engine.bars[i].load.stage == at)
			return true;
	return false;
}

void spmtd_engine_store_(uint64_t dst, uint64_t stage, uint32_t n)
{
	struct store *s = &engine.stores[engine.nstores++];

	if (!is_stage(stage)) { /* each time: threads may have stored there since */
		cr_assert(engine.fenced && engine.caller_fenced, "not fenced");
		engine.caller_fenced = false;
	}

	cr_assert_leq(engine.nstores, STORES);
	cr_assert(n && n % 16 == 0 && dst % 16 == 0 && stage % 16 == 0);
	for (int i = 0; i < BARS; i++)
		cr_assert(!engine.bars[i].open || !engine.bars[i].load.waiting ||
				!overlaps(
					stage, n, engine.bars[i].load.stage, engine.bars[i].load.n),
			"stored before it has come");
	*s = (struct store){
		.dst = dst, .stage = stage, .n = n, .group = engine.group, .bytes = malloc(n)
	};
	cr_assert(s->bytes);
}

/* Declared for files that have SPMTD_MULTIMEM_MODEL, too. */
void spmtd_engine_spread_(uint64_t dst, uint64_t stage, uint32_t n);
void spmtd_engine_spread_(uint64_t dst, uint64_t stage, uint32_t n)
{
	cr_assert(engine.alias_fenced, "not fenced for aliases");
	engine.alias = true;
	engine.spreads++;
	for (int i = 0; i < engine.nbuffers; i++)
		spmtd_engine_store_(engine.buffers[i] + (dst - engine.multicast), stage, n);
}

void spmtd_engine_fold_(uint64_t dst, uint64_t stage, uint32_t n, int fold)
{
	cr_assert_gt(fold, 0);
	spmtd_engine_store_(dst, stage, n);
	engine.stores[engine.nstores - 1].fold = fold;
	engine.folds += n;
}

void spmtd_engine_group_(void)
{
	for (int k = 0; k < engine.nstores; k++) {
		if (now())
			read_store(&engine.stores[k]);
		if (engine.stores[k].read && now())
			write_store(&engine.stores[k]);
	}
	drop_written();
	engine.group++;
}

void spmtd_engine_read_(uint32_t but)
{
	cr_assert_leq(but, 3);
	for (int k = 0; k < engine.nstores; k++)
		if (engine.stores[k].group + but < engine.group)
			read_store(&engine.stores[k]);
}

void spmtd_engine_done_(void)
{
	for (int k = 0; k < engine.nstores; k++) {
		cr_assert_lt(engine.stores[k].group, engine.group, "a store in no group");
		write_store(&engine.stores[k]);
	}
	drop_written();
	engine.fenced = false;
}

void spmtd_engine_fence_(void)
{
	engine.fenced = true;
}

void spmtd_engine_fence_shared_(void)
{
	engine.caller_fenced = engine.shared_fenced; /* the first one behind open is for barriers */
	engine.shared_fenced = true;
}

int spmtd_engine_reaches_(uint64_t a)
{
	(void)a;
	return engine.reaches;
}
