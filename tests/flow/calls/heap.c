/* SPDX-License-Identifier: MIT */
/* The symmetric heap against a model, in both modes; what ranks do differently is named and leaves the heap usable. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/lib/ranks.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

/* Each test is a process of its own, and the environment is read at the first call. */
static void use_mode(const char *mode)
{
	setenv("SPMT_HEAP_MODE", mode, 1);
}

static int run(int n, size_t heap, int (*fn)(spmt_comm *, void *), void *arg)
{
	struct spmt_attr attr = ranks_attr(0, n, NULL);

	attr.heap_size = heap;
	return ranks_run(n, &attr, fn, arg);
}

#define BOTH_MODES(name, n, bytes, fn)             \
	Test(heap, name##_static)                  \
	{                                          \
		use_mode("static");                \
		RANKS_OK(run(n, bytes, fn, NULL)); \
	}                                          \
	Test(heap, name##_vmm)                     \
	{                                          \
		NEEDS_RANGES();                    \
		use_mode("vmm");                   \
		RANKS_OK(run(n, bytes, fn, NULL)); \
	}

/* ---- random work against a model -------------------------------------------------------------------------------------- */

enum { LIVE = 96, EDGE = 256 };

struct block {
	char *at;
	size_t size;
	uint64_t seed;
};

struct model {
	struct block blocks[LIVE];
	size_t live;
	uint64_t state, trace; /* trace: what this rank got, folded; equal on all ranks */
	char *anchor;
};

static int model_check(spmt_comm *comm, const struct block *b)
{
	size_t edge = b->size < EDGE ? b->size : EDGE;

	TRY(sym_check(comm, b->at, edge, b->seed));
	TRY(sym_check(comm, b->at + b->size - edge, edge, edge == b->size ? b->seed : ~b->seed));
	return 0;
}

static int model_add(spmt_comm *comm, struct model *m, char *at, size_t size)
{
	size_t edge = size < EDGE ? size : EDGE;
	struct block *b = &m->blocks[m->live];

	for (size_t i = 0; i < m->live; i++)
		REQUIRE(at + size <= m->blocks[i].at || m->blocks[i].at + m->blocks[i].size <= at);
	*b = (struct block){ .at = at, .size = size, .seed = m->state };
	TRY(sym_fill(comm, at + size - edge, edge, ~b->seed));
	TRY(sym_fill(comm, at, edge, b->seed));
	m->live++;
	m->trace = m->trace * 31 + (uint64_t)(at - m->anchor);
	return 0;
}

static int model_alloc(spmt_comm *comm, struct model *m)
{
	uint64_t kind = random_next(&m->state) % 3, shift = random_next(&m->state) % 18;
	size_t size = 1 + random_next(&m->state) % ((size_t)1 << shift);
	size_t align = (size_t)1 << random_next(&m->state) % 17;
	char *at = NULL;
	int code;

	size = size > EDGE && size < 2 * EDGE ? 2 * EDGE : size;
	if (kind == 0)
		code = spmt_malloc(comm, size, (void **)&at);
	else if (kind == 1)
		code = spmt_calloc(comm, size, 1, (void **)&at);
	else
		code = spmt_aligned_alloc(comm, align, size, (void **)&at);
	REQUIRE_CODE(code, 0);
	if (kind == 1)
		TRY(sym_check_byte(comm, at, 0, size));
	if (kind == 2)
		REQUIRE_EQ((uintptr_t)at % align, 0);
	return model_add(comm, m, at, size);
}

static int model_free(spmt_comm *comm, struct model *m, size_t i)
{
	TRY(model_check(comm, &m->blocks[i]));
	REQUIRE_OK(spmt_free(comm, m->blocks[i].at));
	m->blocks[i] = m->blocks[--m->live];
	return 0;
}

static int random_work(spmt_comm *comm, void *arg)
{
	struct model m = { .state = 0x5eed };
	size_t ops = test_count(10000, 100000);
	uint64_t *traces;
	int n = spmt_nranks(comm), rank = spmt_rank(comm);

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, (size_t)n * sizeof(*traces), (void **)&traces));
	m.anchor = (char *)traces;
	for (size_t i = 0; i < ops; i++)
		if (m.live == LIVE || (m.live && random_next(&m.state) % 2))
			TRY(model_free(comm, &m, random_next(&m.state) % m.live));
		else
			TRY(model_alloc(comm, &m));
	while (m.live)
		TRY(model_free(comm, &m, m.live - 1));
	REQUIRE_OK(spmt_copy_in(comm, traces + rank, &m.trace, sizeof(m.trace)));
	for (int pe = 0; pe < n; pe++)
		REQUIRE_OK(spmt_put(comm, traces + rank, traces + rank, sizeof(*traces), pe));
	REQUIRE_OK(spmt_barrier(comm));
	for (int pe = 0; pe < n; pe++)
		TRY(sym_check_u64(comm, traces + pe, m.trace));
	return 0;
}
BOTH_MODES(random_work, 8, 32 * MIB, random_work)

/* ---- alignment and size ------------------------------------------------------------------------------------------------ */

static int alignments(spmt_comm *comm, void *arg)
{
	static const size_t bad[] = { 0, 3, 48, 16 * MIB, SIZE_MAX, (size_t)1 << 63 };
	void *small, *at, *none = &at;

	(void)arg;
	for (size_t align = 1; align <= 8 * MIB; align *= 2) {
		REQUIRE_OK(spmt_malloc(comm, 1, &small));
		REQUIRE_OK(spmt_aligned_alloc(comm, align, align / 2 + 1, &at));
		for (int pe = 0; pe < spmt_nranks(comm) && host_access(comm); pe++) {
			REQUIRE(spmt_ptr(comm, at, pe));
			REQUIRE_EQ((uintptr_t)spmt_ptr(comm, at, pe) % align, 0);
		}
		REQUIRE_EQ((uintptr_t)at % align, 0);
		REQUIRE_OK(spmt_free(comm, at));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		at = none;
		REQUIRE_CODE(spmt_aligned_alloc(comm, bad[i], 64, &at), -EINVAL);
		REQUIRE_SAYS("spmt_aligned_alloc");
		REQUIRE(at == none);
	}
	return 0;
}
BOTH_MODES(alignments, 5, 64 * MIB, alignments)

/* The heap is sparse: pages that nobody touches cost nothing. */
static int above_4_gib(spmt_comm *comm, void *arg)
{
	size_t size = 5 * GIB + 4097;
	char *at, *second;
	int next = (spmt_rank(comm) + 1) % spmt_nranks(comm);

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&at));
	REQUIRE_OK(spmt_malloc(comm, 4096, (void **)&second));
	REQUIRE(second >= at + size || second + 4096 <= at);
	TRY(sym_fill(comm, at, 4096, (uint64_t)spmt_rank(comm)));
	REQUIRE_OK(spmt_put(comm, at + size - 4096, at, 4096, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check(comm, at + size - 4096, 4096, (uint64_t)((spmt_rank(comm) + 1) % 2)));
	REQUIRE_CODE(spmt_put(comm, at + size - 4096, at, (size_t)3 * GIB, next), -EINVAL);
	REQUIRE_OK(spmt_free(comm, at));
	return 0;
}

static void above_4_gib_in(const char *mode)
{
	if (!on_host() && getenv("SPMT_FAKE_DEVICES"))
		cr_skip_test("a stand-in's memory is this machine's, zeroed");
	use_mode(mode);
	RANKS_OK(run(2, 6 * GIB, above_4_gib, NULL));
}

Test(heap, above_4_gib_static)
{
	above_4_gib_in("static");
}

Test(heap, above_4_gib_vmm)
{
	NEEDS_RANGES();
	above_4_gib_in("vmm");
}

static int all_of_it(spmt_comm *comm, void *arg)
{
	size_t got = 0, again = 0;
	int64_t heap = 0;
	void *at, *first = NULL;
	int code;

	(void)arg;
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &heap));
	REQUIRE(heap >= (int64_t)(16 * MIB) && heap <= (int64_t)(18 * MIB));
	while (!(code = spmt_malloc(comm, 64 * KIB, &at))) {
		first = first ? first : at;
		got += 64 * KIB;
		TRY(sym_set(comm, at, 0x77, 64 * KIB));
		REQUIRE(got <= 18 * MIB);
	}
	REQUIRE_CODE(code, -ENOMEM);
	REQUIRE_SAYS("attr.heap_size");
	REQUIRE(got * 10 >= 16 * MIB * 9);
	REQUIRE_OK(spmt_free(comm, first));
	while (!spmt_malloc(comm, 64 * KIB, &at))
		again++;
	REQUIRE_EQ(again, 1);
	REQUIRE_CODE(spmt_malloc(comm, SIZE_MAX, &at), -ENOMEM);
	REQUIRE_CODE(spmt_malloc(comm, SIZE_MAX - 15, &at), -ENOMEM);
	return spmt_barrier(comm);
}
BOTH_MODES(all_of_it, 4, 16 * MIB, all_of_it)

static int small_things(spmt_comm *comm, void *arg)
{
	void *a, *b, *none = &a, *at = none;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 0, &a));
	REQUIRE_OK(spmt_malloc(comm, 0, &b));
	REQUIRE(a && b && a != b);
	REQUIRE_OK(spmt_free(comm, a));
	REQUIRE_OK(spmt_free(comm, b));
	REQUIRE_OK(spmt_calloc(comm, 0, 8, &a));
	REQUIRE_OK(spmt_free(comm, a));
	REQUIRE_OK(spmt_free(comm, NULL));
	REQUIRE(spmt_calloc(comm, SIZE_MAX / 2, 3, &at) < 0);
	REQUIRE(spmt_calloc(comm, (size_t)1 << 32, (size_t)1 << 32, &at) < 0);
	REQUIRE(at == none);
	REQUIRE_OK(spmt_calloc(comm, 1000, 7, &a));
	TRY(sym_check_byte(comm, a, 0, 7000));
	return 0;
}
BOTH_MODES(small_things, 3, 4 * MIB, small_things)

/* ---- ranks that differ -------------------------------------------------------------------------------------------------- */

enum { ODD = 5 };

static int usable(spmt_comm *comm)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm);
	uint64_t *word;

	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_signal(comm, word, (uint64_t)rank + 1, SPMT_SIGNAL_SET, (rank + 1) % n));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, word, (uint64_t)((rank + n - 1) % n) + 1));
	REQUIRE_OK(spmt_free(comm, word));
	REQUIRE_EQ(spmt_status(comm), 0);
	return 0;
}

/* Rank 5 is the odd one, and no size, count or code in the sentences holds a 5. */
static int named(spmt_comm *comm, int code, const char *call)
{
	REQUIRE_CODE(code, SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("5");
	REQUIRE_SAYS(call);
	return usable(comm);
}

static int asymmetric(spmt_comm *comm, void *arg)
{
	bool odd = spmt_rank(comm) == ODD;
	void *a, *b, *none = &a, *at = none;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 64, &a));
	REQUIRE_OK(spmt_malloc(comm, 64, &b));
	TRY(named(comm, spmt_malloc(comm, odd ? 128 : 64, &at), "spmt_malloc"));
	TRY(named(comm, spmt_calloc(comm, odd ? 128 : 64, 1, &at), "spmt_calloc"));
	TRY(named(comm, spmt_aligned_alloc(comm, odd ? 128 : 64, 64, &at), "spmt_aligned_alloc"));
	TRY(named(comm, odd ? spmt_calloc(comm, 1, 64, &at) : spmt_malloc(comm, 64, &at), "spmt_"));
	TRY(named(comm, spmt_free(comm, odd ? b : a), "spmt_free"));
	TRY(named(comm, odd ? spmt_free(comm, a) : spmt_malloc(comm, 64, &at), "spmt_"));
	TRY(named(comm, odd ? spmt_barrier(comm) : spmt_malloc(comm, 64, &at), "spmt_"));
	TRY(named(comm, spmt_free(comm, odd ? NULL : a), "spmt_free"));
	REQUIRE_SAYS("passed NULL,");
	REQUIRE(at == none);
	REQUIRE_OK(spmt_free(comm, a));
	REQUIRE_OK(spmt_free(comm, b));
	return 0;
}
BOTH_MODES(asymmetric, 8, 4 * MIB, asymmetric)

/* A rank's bad argument is everybody's error: the code is the same on all, and it says whose argument it was. */
static int one_bad_free(spmt_comm *comm, void *arg)
{
	bool odd = spmt_rank(comm) == ODD;
	char *a, local;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 64, (void **)&a));
	REQUIRE(spmt_free(comm, odd ? a + 8 : a) < 0);
	TRY(usable(comm));
	REQUIRE(spmt_free(comm, odd ? &local : a) < 0);
	TRY(usable(comm));
	REQUIRE_CODE(spmt_free(comm, a + 8), -EINVAL);
	REQUIRE_CODE(spmt_free(comm, &local), -EINVAL);
	if (host_access(comm))
		REQUIRE_CODE(spmt_free(comm,
				     spmt_ptr(comm, a, (spmt_rank(comm) + 1) % spmt_nranks(comm))),
			-EINVAL);
	REQUIRE_OK(spmt_free(comm, a));
	REQUIRE_CODE(spmt_free(comm, a), -EINVAL);
	REQUIRE_SAYS("spmt_free");
	return usable(comm);
}
BOTH_MODES(bad_frees, 8, 4 * MIB, one_bad_free)

/* ---- registered buffers --------------------------------------------------------------------------------------------------- */

struct mine {
	char *buf;
	size_t size;
	char stack[3000];
};

/* Rank 0 a stack buffer, 1 malloc, 2 mmap, 3 nothing. */
static int make_buffer(struct mine *m, int rank)
{
	m->size = rank == 0 ? sizeof(m->stack) : rank == 1 ? 70001 : rank == 2 ? 3 * MIB : 0;
	m->buf = NULL;
	if (rank == 0)
		m->buf = m->stack;
	if (rank == 1)
		m->buf = malloc(m->size);
	if (rank == 2)
		m->buf = mmap(
			NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(rank == 3 || (m->buf && m->buf != MAP_FAILED));
	if (m->size)
		pattern_fill(m->buf, m->size, (uint64_t)rank);
	return 0;
}

static void drop_buffer(struct mine *m, int rank)
{
	if (rank == 1)
		free(m->buf);
	if (rank == 2)
		munmap(m->buf, m->size);
}

static const size_t sizes[] = { 3000, 70001, 3 * MIB, 0 };

/* Everybody reads everybody's buffer, whole and in parts. */
static int read_buffers(spmt_comm *comm, spmt_mem *mem)
{
	char *copy = malloc(3 * MIB);

	REQUIRE(copy);
	for (int pe = 0; pe < 4; pe++) {
		REQUIRE_EQ(spmt_mem_size(mem, pe), sizes[pe]);
		REQUIRE((spmt_mem_ptr(mem, pe) != NULL) == (sizes[pe] != 0));
		REQUIRE_OK(spmt_mem_get(comm, copy, mem, 0, sizes[pe], pe));
		REQUIRE_EQ(pattern_differs(copy, sizes[pe], (uint64_t)pe), SIZE_MAX);
		if (!sizes[pe])
			continue;
		memset(copy, 0, sizes[pe]);
		REQUIRE_OK(spmt_mem_get_nbi(comm, copy, mem, 0, sizes[pe], pe));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(pattern_differs(copy, sizes[pe], (uint64_t)pe), SIZE_MAX);
		REQUIRE_OK(spmt_mem_get_on_stream(comm, copy + 8, mem, 64, 2000, pe, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(pattern_differs(copy + 8, 2000, (uint64_t)pe + 8), SIZE_MAX);
		REQUIRE(memcmp(spmt_mem_ptr(mem, pe), copy, 8) == 0);
	}
	free(copy);
	return 0;
}

/* Rank r writes its own 8 bytes at offset 8 (r + 1), by three forms. */
static int write_buffers(spmt_comm *comm, spmt_mem *mem, struct mine *m)
{
	int rank = spmt_rank(comm);
	uint64_t value[3];

	for (int pe = 0; pe < 3; pe++) {
		size_t off = (size_t)(rank + 1) * 8;

		for (int i = 0; i < 3; i++)
			value[i] = (uint64_t)(rank * 10 + pe) * 1000 + (uint64_t)i;
		REQUIRE_OK(spmt_mem_put(comm, mem, off, &value[0], 8, pe));
		REQUIRE_OK(spmt_mem_put_nbi(comm, mem, off + 64, &value[1], 8, pe));
		REQUIRE_OK(spmt_mem_put_on_stream(comm, mem, off + 128, &value[2], 8, pe, NULL));
		REQUIRE_OK(spmt_quiet(comm));
	}
	REQUIRE_OK(spmt_barrier(comm));
	for (int r = 0; rank < 3 && r < 4; r++)
		for (int i = 0; i < 3; i++) {
			memcpy(value, m->buf + (r + 1) * 8 + i * 64, 8);
			REQUIRE_EQ(value[0], (r * 10 + rank) * 1000 + i);
		}
	return 0;
}

static int bad_ranges(spmt_comm *comm, spmt_mem *mem)
{
	char byte[16] = { 0 };

	REQUIRE_CODE(spmt_mem_put(comm, mem, 2993, byte, 8, 0), -EINVAL);
	REQUIRE_SAYS("spmt_mem_put");
	REQUIRE_CODE(spmt_mem_put(comm, mem, SIZE_MAX - 3, byte, 8, 0), -EINVAL);
	REQUIRE_CODE(spmt_mem_put(comm, mem, 8, byte, SIZE_MAX - 3, 0), -EINVAL);
	REQUIRE_CODE(spmt_mem_get(comm, byte, mem, 3000, 1, 0), -EINVAL);
	REQUIRE_CODE(spmt_mem_put_nbi(comm, mem, 0, byte, 1, 3), -EINVAL);
	REQUIRE_CODE(spmt_mem_get_nbi(comm, byte, mem, 70001, 1, 1), -EINVAL);
	REQUIRE_CODE(spmt_mem_put_on_stream(comm, mem, 2999, byte, 2, 0, NULL), -EINVAL);
	REQUIRE_CODE(spmt_mem_get_on_stream(comm, byte, mem, 2999, 2, 0, NULL), -EINVAL);
	REQUIRE_CODE(spmt_mem_put(comm, mem, 0, byte, 1, 4), -EINVAL);
	REQUIRE_SAYS("4");
	REQUIRE_CODE(spmt_mem_get(comm, byte, mem, 0, 1, -1), -EINVAL);
	REQUIRE_OK(spmt_mem_put(comm, mem, 3000, byte, 0, 0));
	REQUIRE(!spmt_mem_ptr(mem, 4));
	REQUIRE(!spmt_mem_ptr(mem, -1));
	REQUIRE_EQ(spmt_mem_size(mem, 4), 0);
	return 0;
}

static int registered(spmt_comm *comm, void *arg)
{
	struct mine m;
	spmt_mem *mem = NULL, *second = NULL;
	int rank = spmt_rank(comm);
	char byte = 0;

	(void)arg;
	TRY(make_buffer(&m, rank));
	REQUIRE_OK(spmt_register(comm, m.buf, m.size, &mem));
	REQUIRE_OK(spmt_register(comm, m.buf, m.size, &second));
	TRY(read_buffers(comm, mem));
	TRY(bad_ranges(comm, mem));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(write_buffers(comm, second, &m));
	REQUIRE_OK(spmt_deregister(comm, mem));
	REQUIRE_CODE(spmt_mem_put(comm, mem, 0, &byte, 1, 0), -EBADF);
	REQUIRE_CODE(spmt_mem_get(comm, &byte, mem, 0, 1, 0), -EBADF);
	REQUIRE(!spmt_mem_ptr(mem, 0));
	REQUIRE_OK(spmt_mem_get(comm, &byte, second, 0, 1, 0));
	REQUIRE_OK(spmt_deregister(comm, second));
	REQUIRE(spmt_deregister(comm, second) < 0);
	REQUIRE_CODE(spmt_register(comm, NULL, 8, &mem), -EINVAL);
	drop_buffer(&m, rank);
	return usable(comm);
}

Test(heap, registered_buffers)
{
	RANKS_OK(ranks_run(4, NULL, registered, NULL));
}

static int many_registrations(spmt_comm *comm, void *arg)
{
	static char shared[4][64];
	spmt_mem *mems[50];

	(void)arg;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 50; i++)
			REQUIRE_OK(spmt_register(comm, shared[spmt_rank(comm)], 64, &mems[i]));
		for (int i = 49; i >= 0; i--)
			REQUIRE_OK(spmt_deregister(comm, mems[i]));
	}
	REQUIRE_OK(spmt_register(comm, shared[spmt_rank(comm)], 64, &mems[0]));
	return 0;
}

Test(heap, many_registrations_leave_nothing)
{
	struct usage before, slack = { .maps = 64, .rss_kib = 4096 };
	const char *grown;

	RANKS_OK(ranks_run(4, NULL, many_registrations, NULL));
	before = usage_now();
	for (int i = 0; i < 5; i++)
		RANKS_OK(ranks_run(4, NULL, many_registrations, NULL));
	grown = usage_grown(&before, &slack);
	cr_expect_null(grown, "%s", grown);
}

static int crossed(spmt_comm *comm, void *arg)
{
	spmt_mem *a, *b;
	char byte[2] = { 0 };
	bool odd = spmt_rank(comm) == ODD;

	(void)arg;
	REQUIRE_OK(spmt_register(comm, &byte[0], 1, &a));
	REQUIRE_OK(spmt_register(comm, &byte[1], 1, &b));
	TRY(named(comm, spmt_deregister(comm, odd ? b : a), "spmt_deregister"));
	REQUIRE_OK(spmt_deregister(comm, a));
	REQUIRE_OK(spmt_deregister(comm, b));
	return 0;
}

Test(heap, deregister_in_another_order)
{
	RANKS_OK(ranks_run(8, NULL, crossed, NULL));
}
