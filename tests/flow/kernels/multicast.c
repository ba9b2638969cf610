/* SPDX-License-Identifier: MIT */
/* Switch channels by a switch's multicast, over the stand-in for libcuda and a model of the switch's operations: what is asked for gives what each rank in
   turn gives; what cannot be is refused in words; and nothing of it is touched where nobody asks. Never on GPUs. */
#define SPMTD_MULTIMEM_MODEL 1
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "spmt_channel.h"
#include "tests/fakes/control.h"
#include "tests/lib/device/multimem_model.h"
#include "tests/lib/folds.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

enum { RANKS = 4, WORDS = 96, BYTES = WORDS * 8, MARGIN = 64, ROOM = BYTES + 2 * MARGIN };

static struct {
	int (*made)(const char *name);
	void (*fail)(const char *name, int nth, int result);
	void (*live)(struct fake_counts *out);
	int (*at)(const void *address, size_t n, char **parts);
} driver;

static void symbol(void *library, const char *name, void *out)
{
	void *address = dlsym(library, name);

	cr_assert_not_null(address, "%s", name);
	memcpy(out, &address, sizeof(address));
}

static void open_driver(void)
{
	void *library = dlopen(FAKES "/fake-cuda.so", RTLD_NOW | RTLD_LOCAL);

	cr_assert_not_null(library, "%s", dlerror());
	setenv("SPMT_BACKEND", "cuda", 1);
	setenv("SPMT_CUDA_LIB", FAKES "/fake-cuda.so", 1);
	setenv("SPMT_FAKE_DEVICES", "4", 1);
	setenv("SPMT_TEST_DEVICES", "4", 1);
	symbol(library, "fake_made", &driver.made);
	symbol(library, "fake_fail", &driver.fail);
	symbol(library, "fake_live", &driver.live);
	symbol(library, "fake_multicast_at", &driver.at);
	multimem_open(driver.at);
}

static void ask(void)
{
	open_driver();
	setenv("SPMT_MULTICAST", "1", 1);
}

TestSuite(multicast, .timeout = 240);

/* ---- what is folded --------------------------------------------------------------------------- */

enum { FORMS = 4, GROUP = 3 };

#define CALLS(name, T, op)                                                                        \
	static void name##_##op(const struct spmt_view *v, const struct spmt_switch *s, int form, \
		void *dst, size_t off, size_t count)                                              \
	{                                                                                         \
		if (form == 0)                                                                    \
			spmtd_switch_##name##_##op##_reduce(v, s, dst, off, count);               \
		else if (form == 1)                                                               \
			spmtd_switch_##name##_##op##_reduce_warp(v, s, dst, off, count);          \
		else if (form == 2)                                                               \
			spmtd_switch_##name##_##op##_reduce_block(v, s, dst, off, count);         \
		for (uint32_t i = 0; form == 3 && i < GROUP; i++)                                 \
			spmtd_switch_##name##_##op##_reduce_group(                                \
				v, s, dst, off, count, i, GROUP);                                 \
	}
#define OPS(X, TYPE, name, T, has)            \
	X(TYPE, name, T, sum, SUM, has)       \
	X(TYPE, name, T, prod, PROD, 0)       \
	X(TYPE, name, T, min, MIN, ((has)&2)) \
	X(TYPE, name, T, max, MAX, ((has)&2))
/* The last: 1 the switch has its sum, 2 min and max as well. */
#define ROWS(X)                           \
	OPS(X, U8, uint8, uint8_t, 0)     \
	OPS(X, I8, int8, int8_t, 0)       \
	OPS(X, I8, schar, signed char, 0) \
	OPS(X, U16, uint16, uint16_t, 0)  \
	OPS(X, I16, int16, int16_t, 0)    \
	OPS(X, U32, uint32, uint32_t, 3)  \
	OPS(X, I32, int32, int32_t, 3)    \
	OPS(X, U64, uint64, uint64_t, 3)  \
	OPS(X, I64, int64, int64_t, 3)    \
	OPS(X, F32, float, float, 1)      \
	OPS(X, F64, double, double, 1)    \
	OPS(X, F16, half, uint16_t, 3)    \
	OPS(X, BF16, bfloat16, uint16_t, 3)
#define CALL(TYPE, name, T, op, OP, has) CALLS(name, T, op)
ROWS(CALL)
static const struct row {
	enum spmt_type type;
	enum spmt_op op;
	bool has;
	void (*call)(
		const struct spmt_view *, const struct spmt_switch *, int, void *, size_t, size_t);
} rows[] = {
#define ROW(TYPE, name, T, op, OP, has) { SPMT_TYPE_##TYPE, SPMT_OP_##OP, (has) != 0, name##_##op },
	ROWS(ROW)
};

struct scene {
	struct spmt_view v;
	struct spmt_switch all, plain; /* plain: the same buffer, each rank in turn */
	char *own;
};

static int scene_open(spmt_comm *comm, size_t room, struct scene *x)
{
	void *block;

	x->v.size = sizeof(x->v);
	x->all.size = sizeof(x->all);
	REQUIRE_OK(spmt_calloc(comm, 1, room, &block));
	REQUIRE_OK(spmt_view_get(comm, &x->v));
	REQUIRE_OK(spmt_switch_get(comm, block, room, NULL, &x->all));
	x->own = block;
	x->plain = x->all;
	x->plain.multicast = 0;
	return 0;
}

/* Any bits of integers; of the others small whole numbers, never 0, so that no order of sums shows and no sign of zero. */
static void fill(const struct row *row, int rank, char *to)
{
	uint64_t seed = (uint64_t)rank * 131 + (uint64_t)row->type * 7 + (uint64_t)row->op + 1;

	for (size_t k = 0; k < BYTES / folds_width[row->type]; k++) {
		uint64_t x;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		x = row->type < SPMT_TYPE_F16
			? seed >> 3
			: folds_bits(row->type,
				  (double)(1 + (seed >> 40) % 20) * (seed >> 63 ? -1 : 1));
		memcpy(to + k * folds_width[row->type], &x, folds_width[row->type]);
	}
}

/* Both ways, byte for byte; by the switch where it has that, and nothing else lies askew. */
static int fold_once(const struct scene *x, const struct row *row, int form, size_t off,
	size_t askew, size_t count)
{
	char got[ROOM] __attribute__((aligned(16))), want[ROOM] __attribute__((aligned(16)));
	size_t width = folds_width[row->type], bytes = count * width;
	bool fast = row->has && off % 16 == 0 && askew % 16 == 0 && bytes >= 16;

	memset(got, 0x5a, sizeof(got));
	memset(want, 0x5a, sizeof(want));
	row->call(&x->v, &x->plain, form, want + askew, off, count);
	REQUIRE_EQ(multimem_loads(), 0);
	row->call(&x->v, &x->all, form, got + askew, off, count);
	REQUIRE(multimem_settled());
	REQUIRE_EQ(multimem_loads(), fast ? (int)(bytes / 16) : 0);
	if (memcmp(got, want, sizeof(got)) != 0)
		return ranks_fail("type %d, op %d, form %d, offset %zu, %zu elements: not the same",
			row->type, row->op, form, off, count);
	return 0;
}

static int fold_all(spmt_comm *comm, const struct scene *x, const struct row *row)
{
	static const size_t counts[] = { 0, 1, 5, 16, 37 };
	size_t width = folds_width[row->type];

	fill(row, spmt_rank(comm), x->own);
	REQUIRE_OK(spmt_barrier(comm));
	for (int form = 0; form < FORMS; form++)
		for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
			TRY(fold_once(x, row, form, 0, 0, counts[i]));
			TRY(fold_once(x, row, form, 32, 16, counts[i]));
			TRY(fold_once(x, row, form, width, 0, counts[i]));
			TRY(fold_once(x, row, form, 16, width, counts[i]));
		}
	/* shares of blocks of several lines */
	for (int form = 2; form < FORMS; form++)
		TRY(fold_once(x, row, form, 0, 0, BYTES / width));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int spread_once(
	spmt_comm *comm, const struct scene *x, int form, int from, size_t off, size_t n)
{
	char src[ROOM + 16] __attribute__((aligned(16))), *at = src + (n % 3 ? 0 : off % 16);

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (char)(i * 7 + n + off + (size_t)from + 1);
	memset(x->own, 0, ROOM);
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == from) {
		const struct spmt_switch *s = &x->all;
		bool fast = s->multicast && (off | (size_t)(at - src)) % 16 == 0 && n >= 16;

		if (form == 0)
			spmtd_switch_broadcast(&x->v, s, off, at, n);
		else if (form == 1)
			spmtd_switch_broadcast_warp(&x->v, s, off, at, n);
		else if (form == 2)
			spmtd_switch_broadcast_block(&x->v, s, off, at, n);
		for (uint32_t i = 0; form == 3 && i < GROUP; i++)
			spmtd_switch_broadcast_group(&x->v, s, off, at, n, i, GROUP);
		REQUIRE(multimem_settled());
		REQUIRE_EQ(multimem_stores(), fast ? (int)(n / 16) : 0);
	}
	REQUIRE_OK(spmt_barrier(comm));
	for (size_t i = 0; i < ROOM; i++)
		REQUIRE_EQ(x->own[i], i >= off && i < off + n ? at[i - off] : 0);
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int spread_all(spmt_comm *comm, const struct scene *x)
{
	static const size_t sizes[] = { 0, 8, 16, 33, 300, 512 };

	for (int form = 0; form < FORMS; form++)
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
			for (size_t off = 0; off <= 32; off += 8)
				TRY(spread_once(comm, x, form, (form + (int)i) % spmt_nranks(comm),
					off, sizes[i]));
	return 0;
}

/* From its own place in the buffer, as an all_reduce has it. */
static int in_place(spmt_comm *comm, const struct scene *x)
{
	uint64_t *words = (uint64_t *)(void *)x->own;
	int n = spmt_nranks(comm);

	for (int i = 0; i < WORDS; i++)
		words[i] = (uint64_t)spmt_rank(comm) * 1000 + (uint64_t)i;
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		spmtd_switch_uint64_sum_reduce_block(&x->v, &x->all, words, 0, WORDS);
		spmtd_switch_broadcast_block(&x->v, &x->all, 0, words, BYTES);
		REQUIRE(multimem_settled());
		REQUIRE_EQ(multimem_loads(), x->all.multicast ? BYTES / 16 : 0);
		REQUIRE_EQ(multimem_stores(), x->all.multicast ? BYTES / 16 : 0);
	}
	REQUIRE_OK(spmt_barrier(comm));
	for (int i = 0; i < WORDS; i++)
		REQUIRE_EQ(words[i], n * (n - 1) / 2 * 1000 + n * i);
	return 0;
}

static int everything(spmt_comm *comm, void *arg)
{
	struct scene x;
	int64_t has = -1;

	TRY(scene_open(comm, ROOM, &x));
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_MULTICAST, &has));
	REQUIRE_EQ(has, *(const bool *)arg && spmt_nranks(comm) > 1);
	REQUIRE_EQ(x.all.multicast != 0, has);
	REQUIRE_EQ(
		(uintptr_t)spmtd_switch_at_rank(&x.v, &x.all, spmt_rank(comm)), (uintptr_t)x.own);
	for (size_t i = 0; has && i < ARRAY_SIZE(rows); i++)
		TRY(fold_all(comm, &x, &rows[i]));
	TRY(spread_all(comm, &x));
	TRY(in_place(comm, &x));
	REQUIRE_OK(spmt_free(comm, x.own));
	return 0;
}

/* What is left of a world: no object, nothing bound, no address. */
static void left_nothing(void)
{
	struct fake_counts now;

	driver.live(&now);
	cr_expect_eq(now.physicals, 0, "%d pieces of memory or objects", now.physicals);
	cr_expect_eq(now.reservations, 0, "%d ranges of addresses", now.reservations);
}

Test(multicast, as_each_in_turn)
{
	static const bool asked = true;

	ask();
	for (int n = 1; n <= RANKS; n++)
		RANKS_OK(ranks_run(n, NULL, everything, (void *)(uintptr_t)&asked));
	cr_expect_eq(driver.made("cuMulticastCreate"), RANKS - 1, "one a world, none of one rank");
	left_nothing();
}

Test(multicast, not_where_nobody_asks)
{
	static const bool asked = false;

	open_driver();
	for (int i = 0; i < 2; i++) {
		RANKS_OK(ranks_run(RANKS, NULL, everything, (void *)(uintptr_t)&asked));
		setenv("SPMT_MULTICAST", "0", 1);
	}
	cr_expect_eq(driver.made("cuMulticastCreate"), 0);
	cr_expect_eq(driver.made("cuMulticastGetGranularity"), 0);
}

/* ---- heaps and parts -------------------------------------------------------------------------- */

/* The first half's ranks come first in the whole, too. */
static int halves(spmt_comm *comm, void *arg)
{
	spmt_comm *half;

	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) / 2, -spmt_rank(comm), &half));
	TRY(everything(half, arg));
	TRY(everything(comm, arg));
	TRY(everything(half, arg));
	REQUIRE_OK(spmt_finalize(half));
	return 0;
}

Test(multicast, of_parts_of_a_comm)
{
	static const bool asked = true;

	ask();
	RANKS_OK(ranks_run(RANKS, NULL, halves, (void *)(uintptr_t)&asked));
	cr_expect_eq(driver.made("cuMulticastCreate"), 3, "each half's, the whole's, none again");
	left_nothing();
}

/* A buffer over two commits, which lie otherwise in the heap of rank 1; buffers in one unit share one address. */
static int several_commits(spmt_comm *comm, void *arg)
{
	enum { LARGE = 5 << 20 };
	struct spmt_switch again = { .size = sizeof(again) };
	struct scene x;
	void *first, *own = NULL;
	uint64_t *words;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, (size_t)1 << 20, &first));
	REQUIRE_OK(spmt_malloc(comm, (size_t)3 << 20, &own));
	TRY(scene_open(comm, LARGE, &x));
	words = (uint64_t *)(void *)x.own;
	for (size_t i = 0; i < LARGE / 8; i++)
		words[i] = i * (uint64_t)(spmt_rank(comm) + 1);
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 2) {
		uint64_t *sum = malloc(LARGE);
		bool right = sum;

		if (sum)
			spmtd_switch_uint64_sum_reduce(&x.v, &x.all, sum, 0, LARGE / 8);
		for (size_t i = 0; right && i < LARGE / 8; i++)
			right = sum[i] == i * 10;
		free(sum);
		REQUIRE(right && multimem_settled());
		REQUIRE_EQ(multimem_loads(), LARGE / 16);
	}
	REQUIRE_OK(spmt_switch_get(comm, x.own + 4096, 64, NULL, &again));
	REQUIRE_EQ(again.multicast, x.all.multicast + 4096);
	return 0;
}

Test(multicast, of_buffers_over_several_commits)
{
	struct spmt_attr attr = {
		.size = sizeof(attr), .heap_size = (size_t)32 << 20, .device = -1
	};

	ask();
	RANKS_OK(ranks_run(RANKS, &attr, several_commits, NULL));
	cr_expect_eq(driver.made("cuMulticastCreate"), 1);
	cr_expect_gt(driver.made("cuMulticastBindMem"), RANKS, "several commits of each rank");
	left_nothing();
}

/* ---- what is refused -------------------------------------------------------------------------- */

static int refused(spmt_comm *comm, void *arg)
{
	struct spmt_switch s = { .size = sizeof(s), .bytes = 99 };
	int64_t has = 1;
	void *block;

	REQUIRE_OK(spmt_malloc(comm, 64, &block));
	REQUIRE_CODE(spmt_switch_get(comm, block, 64, NULL, &s), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("spmt_switch_get: rank");
	REQUIRE_SAYS("SPMT_MULTICAST=1: no multicast for this buffer");
	REQUIRE_SAYS(arg);
	REQUIRE_EQ(s.bytes, 99);
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_MULTICAST, &has));
	REQUIRE_EQ(has, 0);
	return spmt_status(comm);
}

static void made_none(void)
{
	cr_expect_eq(driver.made("cuMulticastCreate"), 0);
}

Test(multicast, not_of_ranks_that_share_a_device)
{
	static const int devices[] = { 0, 1, 0 };

	ask();
	RANKS_OK(ranks_run_on(3, NULL, devices, refused, "ranks 0 and 2 share device 0"));
	made_none();
}

Test(multicast, not_of_static_heaps)
{
	ask();
	setenv("SPMT_HEAP_MODE", "static", 1);
	RANKS_OK(ranks_run(2, NULL, refused, "SPMT_HEAP_MODE=vmm"));
	made_none();
}

Test(multicast, not_of_devices_without)
{
	ask();
	setenv("SPMT_FAKE_WITHOUT", "multicast", 1);
	setenv("SPMT_FAKE_OLD", "1", 1);
	RANKS_OK(ranks_run(3, NULL, refused, "device 1 has none"));
	made_none();
}

Test(multicast, not_of_other_backends)
{
	open_driver();
	setenv("SPMT_BACKEND", "host", 1);
	setenv("SPMT_MULTICAST", "1", 1);
	RANKS_OK(ranks_run(2, NULL, refused, "backend host has no multicast"));
}

Test(multicast, not_of_other_processes)
{
	struct processes p = { .layout = "0,2|1,3" };

	ask();
	RANKS_OK(processes_world(&p, refused, "is in another process"));
}

static int registered(spmt_comm *comm, void *arg)
{
	struct spmt_switch s = { .size = sizeof(s) };
	spmt_mem *mem;
	void *block;

	REQUIRE_OK(spmt_malloc(comm, 64, &block));
	REQUIRE_OK(spmt_register(comm, block, 64, &mem));
	REQUIRE_CODE(spmt_switch_get(comm, NULL, 0, mem, &s), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("of the symmetric heap alone");
	REQUIRE_OK(spmt_deregister(comm, mem));
	(void)arg;
	return 0;
}

Test(multicast, not_of_registered_buffers)
{
	ask();
	RANKS_OK(ranks_run(2, NULL, registered, NULL));
	made_none();
}

/* ---- a driver that fails ---------------------------------------------------------------------- */

struct failure {
	const char *name;
	int nth;
};

/* What rank 0 is refused leaves nothing bound: it has it the second time, and so have all. */
static int fails_once(spmt_comm *comm, void *arg)
{
	const struct failure *f = arg;
	struct spmt_switch s = { .size = sizeof(s) };
	void *block;

	REQUIRE_OK(spmt_malloc(comm, ROOM, &block));
	REQUIRE_OK(spmt_barrier(comm));
	if (!spmt_rank(comm)) {
		struct fake_counts before, after;
		int rc;

		driver.live(&before);
		driver.fail(f->name, f->nth, 999);
		rc = spmt_switch_get(comm, block, ROOM, NULL, &s);
		driver.fail("", 0, 0);
		driver.live(&after);
		REQUIRE_CODE(rc, -EIO);
		REQUIRE_SAYS("SPMT_MULTICAST=1: no multicast for this buffer: cuda");
		REQUIRE_EQ(after.physicals, before.physicals);
		REQUIRE_EQ(after.reservations, before.reservations);
		REQUIRE_EQ(after.blocks, before.blocks);
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_switch_get(comm, block, ROOM, NULL, &s));
	REQUIRE(s.multicast != 0);
	return 0;
}

Test(multicast, a_call_that_fails_leaves_nothing)
{
	static const struct failure failures[] = {
		{ "cuMulticastGetGranularity", 1 },
		{ "cuMulticastGetGranularity", 2 },
		{ "cuMulticastCreate", 1 },
		{ "cuMulticastAddDevice", 1 },
		{ "cuMulticastAddDevice", 3 },
		{ "cuMulticastBindMem", 1 },
		{ "cuMulticastBindMem", 3 },
		{ "cuMemAddressReserve", 1 },
		{ "cuMemMap", 1 },
		{ "cuMemSetAccess", 1 },
	};

	ask();
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		struct failure f = failures[i];
		int rc = ranks_run(3, NULL, fails_once, &f);

		cr_assert_eq(rc, 0, "%s, call %d: %s", f.name, f.nth, ranks_message());
		left_nothing();
	}
}
