/* SPDX-License-Identifier: MIT */
/* Kernels of the host backend use all of spmt_device.h on a view, and find what the host calls find. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/ranks.h"
#include "tests/lib/typed_calls.h"

enum { ROOM = 1 << 16, HALF = ROOM / 2, N = 16 };

#define KERNELS "kernels that are C functions (tests/gpu has them as images)"

/* What every kernel gets. A kernel reports the line that went wrong; it runs on a thread of the runtime. */
struct args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	char *at;      /* symmetric, ROOM bytes */
	uint64_t *sig; /* symmetric, 16 words */
	int *line;
	int code;
};

/* Once, and not in each of the typed kernels, which take a minute to compile with them. */
static __attribute__((noinline)) int met(const struct spmt_view *v)
{
	return spmtd_barrier(v);
}

static __attribute__((noinline)) int quieted(const struct spmt_view *v)
{
	return spmtd_quiet(v);
}

/* ---- typed calls: each of 11 types, each flavour ------------------------------------------------------------------------------ */

/* Element i of pe's pattern, exact in every type. */
#define VALUE(T, pe, i) ((T)(((pe)*37 + (int)(i)*5) % 100))

#define FLAVOURS(X, name, T)  \
	X(name, T, )          \
	X(name, T, _warp)     \
	X(name, T, _block)    \
	X(name, T, _nbi)      \
	X(name, T, _nbi_warp) \
	X(name, T, _nbi_block)

/* Layout of `at` by element: 0 .. N own pattern, N .. 2N put into by the peer, 2N .. 3N got; in mem from byte 0 and HALF on. */
#define MOVE(name, T, suffix)                                                         \
	for (int i = 0; i < N; i++) {                                                 \
		spmtd_##name##_p(v, own + N + i, (T)99, me);                          \
		spmtd_mem_##name##_p(v, m, HALF + (size_t)i * sizeof(T), (T)98, me);  \
	}                                                                             \
	CHECK(met(v) == 0);                                                           \
	spmtd_##name##_put##suffix(v, own + N, own, N, pe);                           \
	spmtd_mem_##name##_put##suffix(v, m, HALF, own, N, pe);                       \
	spmtd_##name##_get##suffix(v, own + 2 * N, own, N, pe);                       \
	spmtd_mem_##name##_get##suffix(v, own + 3 * N, m, 0, N, pe);                  \
	CHECK(quieted(v) == 0);                                                       \
	CHECK(met(v) == 0);                                                           \
	for (int i = 0; i < N; i++) {                                                 \
		CHECK(own[N + i] == VALUE(T, pe, i));                                 \
		CHECK(own[2 * N + i] == VALUE(T, pe, i));                             \
		CHECK(own[3 * N + i] == VALUE(T, pe, i));                             \
		CHECK(spmtd_mem_##name##_g(v, m, HALF + (size_t)i * sizeof(T), me) == \
			VALUE(T, pe, i));                                             \
	}                                                                             \
	CHECK(met(v) == 0);

#define MOVES(name, T)                                                                          \
	static void moves_##name(void *args)                                                    \
	{                                                                                       \
		struct args *a = args;                                                          \
		const struct spmt_view *v = &a->view;                                           \
		const struct spmt_mem_view *m = &a->mem;                                        \
		int me = spmtd_my_pe(v), pe = 1 - me;                                           \
		T *own = (T *)(void *)a->at;                                                    \
                                                                                                \
		for (int i = 0; i < N; i++) {                                                   \
			own[i] = VALUE(T, me, i);                                               \
			spmtd_mem_##name##_p(v, m, (size_t)i * sizeof(T), VALUE(T, me, i), me); \
		}                                                                               \
		FLAVOURS(MOVE, name, T)                                                         \
		for (int i = 0; i < N; i++) {                                                   \
			CHECK(spmtd_##name##_g(v, own + i, pe) == VALUE(T, pe, i));             \
			CHECK(spmtd_mem_##name##_g(v, m, (size_t)i * sizeof(T), pe) ==          \
				VALUE(T, pe, i));                                               \
		}                                                                               \
		*a->line = 0;                                                                   \
	}

/* Both ranks act on rank 0's words; each adds 50 times 1, or sets and clears a bit of its own. */
#define ATOMICS(name, T)                                                             \
	static void atomics_##name(void *args)                                       \
	{                                                                            \
		struct args *a = args;                                               \
		const struct spmt_view *v = &a->view;                                \
		int me = spmtd_my_pe(v);                                             \
		T *w = (T *)(void *)a->at, old;                                      \
                                                                                     \
		for (int i = 0; i < 8; i++)                                          \
			spmtd_##name##_atomic_set(v, w + i, (T)0, me);               \
		CHECK(met(v) == 0);                                                  \
		for (int i = 0; i < 25; i++) {                                       \
			spmtd_##name##_atomic_inc(v, w, 0);                          \
			spmtd_##name##_atomic_add(v, w + 1, (T)1, 0);                \
			(void)spmtd_##name##_atomic_fetch_inc(v, w + 2, 0);          \
			(void)spmtd_##name##_atomic_fetch_add(v, w + 3, (T)2, 0);    \
			do                                                           \
				old = spmtd_##name##_atomic_fetch(v, w + 4, 0);      \
			while (spmtd_##name##_atomic_compare_swap(                   \
				       v, w + 4, old, (T)(old + (T)1), 0) != old);   \
			old = spmtd_##name##_atomic_swap(v, w + 5, (T)(10 + me), 0); \
			CHECK(old == (T)0 || old == (T)10 || old == (T)11);          \
		}                                                                    \
		CHECK(met(v) == 0);                                                  \
		CHECK(spmtd_##name##_atomic_fetch(v, w, 0) == (T)50);                \
		CHECK(spmtd_##name##_g(v, w + 1, 0) == (T)50);                       \
		CHECK(spmtd_##name##_g(v, w + 2, 0) == (T)50);                       \
		CHECK(spmtd_##name##_g(v, w + 3, 0) == (T)100);                      \
		CHECK(spmtd_##name##_g(v, w + 4, 0) == (T)50);                       \
		CHECK(met(v) == 0);                                                  \
		*a->line = 0;                                                        \
	}

#define BITS(name, T)                                                                   \
	static void bits_##name(void *args)                                             \
	{                                                                               \
		struct args *a = args;                                                  \
		const struct spmt_view *v = &a->view;                                   \
		int me = spmtd_my_pe(v);                                                \
		T *w = (T *)(void *)a->at, mine = (T)(1 << me), off = (T)~mine;         \
                                                                                        \
		spmtd_##name##_atomic_set(v, w, (T)0x40, me);                           \
		CHECK(met(v) == 0);                                                     \
		for (int i = 0; i < 51; i++) {                                          \
			CHECK(!(spmtd_##name##_atomic_fetch_or(v, w, mine, 0) & mine)); \
			CHECK(spmtd_##name##_atomic_fetch_and(v, w, off, 0) & mine);    \
			spmtd_##name##_atomic_or(v, w, mine, 0);                        \
			CHECK(spmtd_##name##_atomic_fetch_xor(v, w, mine, 0) & mine);   \
			spmtd_##name##_atomic_xor(v, w, mine, 0);                       \
			spmtd_##name##_atomic_and(v, w, off, 0);                        \
		}                                                                       \
		CHECK(met(v) == 0);                                                     \
		CHECK(spmtd_##name##_atomic_fetch(v, w, 0) == (T)0x40);                 \
		CHECK(met(v) == 0);                                                     \
		*a->line = 0;                                                           \
	}

/* The peer raises four words one by one; every form of wait and test sees it. */
#define WAITS(name, T)                                                                             \
	static void waits_##name(void *args)                                                       \
	{                                                                                          \
		struct args *a = args;                                                             \
		const struct spmt_view *v = &a->view;                                              \
		int me = spmtd_my_pe(v), pe = 1 - me, status[4] = { 0, 1, 0, 1 };                  \
		T *w = (T *)(void *)a->at;                                                         \
		size_t index = 77, list[4], found = 77;                                            \
                                                                                                   \
		for (int i = 0; i < 4; i++)                                                        \
			spmtd_##name##_p(v, w + i, (T)0, me);                                      \
		CHECK(met(v) == 0);                                                                \
		CHECK(spmtd_##name##_test(v, w, SPMT_CMP_EQ, (T)0));                               \
		CHECK(!spmtd_##name##_test_any(v, w, 4, NULL, SPMT_CMP_GT, (T)0, &index));         \
		CHECK(index == SIZE_MAX);                                                          \
		CHECK(!spmtd_##name##_test_some(v, w, 4, NULL, SPMT_CMP_NE, (T)0, list, &found));  \
		CHECK(found == 0);                                                                 \
		CHECK(!spmtd_##name##_test_all(v, w, 4, NULL, SPMT_CMP_GE, (T)1));                 \
		CHECK(met(v) == 0);                                                                \
		spmtd_##name##_p(v, w + 2, (T)7, pe);                                              \
		CHECK(spmtd_##name##_wait_until(v, w + 2, SPMT_CMP_EQ, (T)7) == 0);                \
		CHECK(spmtd_##name##_wait_until_any(v, w, 3, NULL, SPMT_CMP_GT, (T)6, &index) ==   \
			0);                                                                        \
		CHECK(index == 2 || index == 0);                                                   \
		spmtd_##name##_p(v, w, (T)7, pe);                                                  \
		CHECK(spmtd_##name##_wait_until_all(v, w, 4, status, SPMT_CMP_GE, (T)7) == 0);     \
		CHECK(spmtd_##name##_wait_until_some(                                              \
			      v, w, 4, status, SPMT_CMP_EQ, (T)7, list, &found) == 0);             \
		CHECK(found == 2 && list[0] + list[1] == 2);                                       \
		CHECK(spmtd_##name##_test_all(v, w, 4, status, SPMT_CMP_LE, (T)7));                \
		status[0] = status[2] = 1;                                                         \
		CHECK(spmtd_##name##_wait_until_any(v, w, 4, status, SPMT_CMP_LT, (T)0, &index) == \
			0);                                                                        \
		CHECK(index == SIZE_MAX);                                                          \
		CHECK(spmtd_##name##_wait_until_all(v, w, 4, status, SPMT_CMP_LT, (T)0) == 0);     \
		CHECK(met(v) == 0);                                                                \
		*a->line = 0;                                                                      \
	}

TYPES(MOVES)
TYPES(ATOMICS)
INTEGERS(BITS)
TYPES(WAITS)

/* ---- bytes and signals ----------------------------------------------------------------------------------------------------------- */

static unsigned char byte_of(int pe, size_t i)
{
	return (unsigned char)(pe * 101 + (int)i * 7 + 3);
}

static bool is_from(const char *p, size_t n, int pe, size_t first)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] != byte_of(pe, first + i))
			return false;
	return true;
}

/* Sizes 0 .. 67 at shifted places: by heap, by registered buffer, with and without a signal. */
#define BYTES(name, T, suffix)                                                                     \
	for (size_t n = 0; n < 68; n += n < 20 ? 1 : 7) {                                          \
		size_t to = 1032 + n % 8, from = n % 5;                                            \
                                                                                                   \
		memset(a->at + 1024, 0xee, 512);                                                   \
		CHECK(met(v) == 0);                                                                \
		spmtd_putmem##suffix(v, a->at + to, a->at + from, n, pe);                          \
		spmtd_mem_putmem##suffix(v, m, to + 128, a->at + from, n, pe);                     \
		spmtd_getmem##suffix(v, a->at + to + 256, a->at + from, n, pe);                    \
		spmtd_mem_getmem##suffix(v, a->at + to + 384, m, from, n, pe);                     \
		CHECK(met(v) == 0);                                                                \
		for (int k = 0; k < 4; k++) {                                                      \
			CHECK(is_from(a->at + to + k * 128, n, pe, from));                         \
			CHECK(a->at[to + (size_t)k * 128 + n] == (char)0xee);                      \
			CHECK(a->at[to + (size_t)k * 128 - 1] == (char)0xee);                      \
		}                                                                                  \
		memset(a->at + 1024, 0xdd, 512);                                                   \
		CHECK(spmtd_sync(v) == 0);                                                         \
		spmtd_putmem_signal##suffix(                                                       \
			v, a->at + to, a->at + from, n, a->sig, 1, SPMT_SIGNAL_ADD, pe);           \
		spmtd_mem_putmem_signal##suffix(                                                   \
			v, m, to + 128, a->at + from, n, a->sig + 1, ++seen, SPMT_SIGNAL_SET, pe); \
		CHECK(spmtd_signal_wait_until(v, a->sig, SPMT_CMP_GE, seen) == 0);                 \
		CHECK(is_from(a->at + to, n, pe, from));                                           \
		CHECK(spmtd_signal_wait_until(v, a->sig + 1, SPMT_CMP_EQ, seen) == 0);             \
		CHECK(is_from(a->at + to + 128, n, pe, from));                                     \
		CHECK(spmtd_signal_fetch(v, a->sig) == seen);                                      \
		CHECK(met(v) == 0);                                                                \
	}

static void bytes(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	const struct spmt_mem_view *m = &a->mem;
	int me = spmtd_my_pe(v), pe = 1 - me;
	uint64_t seen = 0;

	for (size_t i = 0; i < 512; i++)
		a->at[i] = (char)byte_of(me, i);
	FLAVOURS(BYTES, , )
	*a->line = 0;
}

static void pointers_and_order(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), pe = 1 - me;

	CHECK(spmtd_n_pes(v) == 2 && (me == 0 || me == 1));
	CHECK(spmtd_ptr(v, a->at, me) == (void *)a->at);
	CHECK(spmtd_ptr(v, a->at, pe) && spmtd_ptr(v, a->at, pe) != (void *)a->at);
	CHECK(!spmtd_ptr(v, a->at, 2) && !spmtd_ptr(v, a->at, -1) && !spmtd_ptr(v, args, me));
	CHECK(spmtd_mem_ptr(&a->mem, me) == (void *)a->at &&
		spmtd_mem_ptr(&a->mem, pe) == spmtd_ptr(v, a->at, pe));
	CHECK(!spmtd_mem_ptr(&a->mem, 2) && !spmtd_mem_ptr(&a->mem, -1));
	CHECK(!spmtd_mc_ptr(v, a->at));
	for (uint64_t i = 1; i < 200; i++) {
		spmtd_uint64_p(v, (uint64_t *)(void *)a->at, i, pe);
		spmtd_fence(v);
		spmtd_signal_op(v, a->sig + 4, i, SPMT_SIGNAL_SET, pe);
		CHECK(spmtd_signal_wait_until(v, a->sig + 4, SPMT_CMP_EQ, i) == 0);
		CHECK(*(uint64_t *)(void *)a->at == i);
		CHECK(spmtd_quiet(v) == 0);
		CHECK((i % 3 == 0		   ? spmtd_sync(v)
				      : i % 3 == 1 ? spmtd_sync_warp(v)
						   : spmtd_sync_block(v)) == 0);
	}
	spmtd_fence_warp(v);
	spmtd_fence_block(v);
	CHECK(spmtd_quiet_warp(v) == 0 && spmtd_quiet_block(v) == 0);
	CHECK(spmtd_barrier_warp(v) == 0 && spmtd_barrier_block(v) == 0);
	for (int i = 0; i < 50; i++) {
		spmtd_uint64_p(v, a->sig + 5, (uint64_t)i, pe);
		CHECK(spmtd_quiet(v) == 0);
		spmtd_sync_arrive(v);
		CHECK(spmtd_sync_wait(v) == 0);
		CHECK(spmtd_signal_fetch(v, a->sig + 5) == (uint64_t)i);
		CHECK(spmtd_sync(v) == 0);
	}
	*a->line = 0;
}

/* ---- launching them --------------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*kernel)(void *);
} kernels[] = {
#define ROW(kind, name) { #kind " " #name, kind##_##name },
#define MOVES_ROW(name, T) ROW(moves, name)
#define ATOMICS_ROW(name, T) ROW(atomics, name)
#define BITS_ROW(name, T) ROW(bits, name)
#define WAITS_ROW(name, T) ROW(waits, name)
	TYPES(MOVES_ROW) TYPES(ATOMICS_ROW) INTEGERS(BITS_ROW) TYPES(WAITS_ROW){ "bytes", bytes },
	{ "pointers and order", pointers_and_order }
};

static int prepare(spmt_comm *comm, struct args *a, int *line, spmt_mem **mem)
{
	memset(a, 0, sizeof(*a));
	REQUIRE_OK(spmt_malloc(comm, ROOM, (void **)&a->at));
	REQUIRE_OK(spmt_calloc(comm, 16, sizeof(*a->sig), (void **)&a->sig));
	REQUIRE_OK(spmt_register(comm, a->at, ROOM, mem));
	a->view.size = sizeof(a->view);
	a->mem.size = sizeof(a->mem);
	REQUIRE_OK(spmt_view_get(comm, &a->view));
	REQUIRE_OK(spmt_mem_view_get(comm, *mem, &a->mem));
	a->line = line;
	return 0;
}

static int launch_all(spmt_comm *comm, void *arg)
{
	/* Outlives a rank that gives up while its kernel runs. */
	static int lines[2];
	int *line = &lines[spmt_rank(comm)];
	struct args a;
	spmt_mem *mem;

	(void)arg;
	TRY(prepare(comm, &a, line, &mem));
	TRY(sym_set(comm, a.at, 0, ROOM));
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		/* The typed kernels keep bytes of mem and of at apart: `at` moves behind what mem's offsets reach. */
		struct args b = a;

		b.at += strncmp(kernels[i].name, "moves", 5) == 0 ? HALF + 4096 : 0;
		*line = -1;
		REQUIRE_OK(spmt_host_launch(comm, NULL, kernels[i].kernel, &b, sizeof(b)));
		REQUIRE_OK(spmt_quiet(comm));
		if (*line)
			return ranks_fail(
				"kernel \"%s\" failed at device.c:%d", kernels[i].name, *line);
		REQUIRE_OK(spmt_barrier(comm));
	}
	REQUIRE_OK(spmt_deregister(comm, mem));
	return 0;
}

Test(device, every_name_of_the_header)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(2, NULL, launch_all, NULL));
}

/* ---- with the host ------------------------------------------------------------------------------------------------------------------ */

/* A kernel and the host call on the same words: one history. */
static void half_of_it(void *args)
{
	struct args *a = args;

	for (int i = 0; i < 1000; i++) {
		spmtd_uint64_atomic_inc(&a->view, a->sig, 0);
		spmtd_int32_atomic_add(&a->view, (int32_t *)(void *)(a->sig + 1), 3, 1);
		spmtd_signal_op(&a->view, a->sig + 2, 2, SPMT_SIGNAL_ADD, 1);
	}
	*a->line = 0;
}

static int mixed_with_host(spmt_comm *comm, void *arg)
{
	struct args a;
	spmt_mem *mem;
	int line = -1;
	int32_t three = 3;

	(void)arg;
	TRY(prepare(comm, &a, &line, &mem));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_host_launch(comm, NULL, half_of_it, &a, sizeof(a)));
	for (int i = 0; i < 1000; i++) {
		REQUIRE_OK(
			spmt_atomic(comm, SPMT_AMO_INC, SPMT_TYPE_U64, a.sig, NULL, NULL, NULL, 0));
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_ADD, SPMT_TYPE_I32, a.sig + 1, &three, NULL, NULL, 1));
		REQUIRE_OK(spmt_signal(comm, a.sig + 2, 2, SPMT_SIGNAL_ADD, 1));
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_EQ(line, 0);
	if (spmt_rank(comm) == 0)
		TRY(sym_check_u64(comm, a.sig, 4000));
	if (spmt_rank(comm) == 1) {
		TRY(sym_check_u64(comm, a.sig + 1, 12000));
		TRY(sym_check_u64(comm, a.sig + 2, 8000));
	}
	return spmt_barrier(comm);
}

Test(device, one_history_with_the_host)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(2, NULL, mixed_with_host, NULL));
}

static void answer(void *args)
{
	struct args *a = args;
	int pe = 1 - spmtd_my_pe(&a->view);

	a->code = spmtd_signal_wait_until(&a->view, a->sig, SPMT_CMP_GE, 1);
	spmtd_signal_op(&a->view, a->sig + 1, 5, SPMT_SIGNAL_SET, pe);
	*a->line = a->code;
}

/* A host wait is ended by a kernel's signal, a kernel's wait by the host's. */
static int call_and_answer(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), line = -1;
	struct args a;
	spmt_mem *mem;

	(void)arg;
	TRY(prepare(comm, &a, &line, &mem));
	for (int i = 0; i < 20; i++) {
		REQUIRE_OK(spmt_barrier(comm));
		if (rank == 1)
			REQUIRE_OK(spmt_host_launch(comm, NULL, answer, &a, sizeof(a)));
		sleep_ms(rank ? 0 : 3);
		if (rank == 0) {
			REQUIRE_OK(spmt_signal(comm, a.sig, 1, SPMT_SIGNAL_ADD, 1));
			REQUIRE_OK(spmt_signal_wait(comm, a.sig + 1, SPMT_CMP_EQ, 5, NULL));
			REQUIRE_OK(spmt_copy_in(comm, a.sig + 1, &(uint64_t){ 0 }, 8));
		}
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(line, rank ? 0 : -1);
	}
	return spmt_barrier(comm);
}

Test(device, host_and_kernels_wake_each_other)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(2, NULL, call_and_answer, NULL));
}

static void give_up(void *args)
{
	struct args *a = args;

	*a->line = spmtd_signal_wait_until(&a->view, a->sig, SPMT_CMP_EQ, 4242);
}

/* A kernel's wait ends at the deadline and leaves a record: the next quiet says so, and the world goes on. */
static int deadline(spmt_comm *comm, void *arg)
{
	struct args a;
	spmt_mem *mem;
	int line = -1;

	(void)arg;
	TRY(prepare(comm, &a, &line, &mem));
	REQUIRE_OK(spmt_set_timeout(comm, 80));
	REQUIRE_OK(spmt_view_get(comm, &a.view));
	REQUIRE_OK(spmt_host_launch(comm, NULL, give_up, &a, sizeof(a)));
	sleep_ms(150);
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_EQ(line, SPMTD_TIMEOUT);
	REQUIRE_SAYS("a kernel's wait for the word at ");
	REQUIRE_SAYS("4242");
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(spmt_status(comm), 0);
	return spmt_barrier(comm);
}

Test(device, a_kernels_deadline_leaves_a_record)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(2, NULL, deadline, NULL));
}

/* So does a wait that the library has queued, which is not called a kernel. */
static int queued(spmt_comm *comm, void *arg)
{
	uint64_t *sig;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*sig), (void **)&sig));
	REQUIRE_OK(spmt_set_timeout(comm, 80));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, sig, SPMT_CMP_EQ, 4242, NULL));
	sleep_ms(150);
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("spmt_signal_wait_on_stream on the word at ");
	REQUIRE_SAYS("ended: expected 4242, saw 0");
	REQUIRE_EQ(spmt_status(comm), 0);
	return spmt_barrier(comm);
}

Test(device, a_queued_waits_deadline_names_its_call)
{
	RANKS_OK(ranks_run(ranks_here(2), NULL, queued, NULL));
}

/* The record is the first wait's, of a user's kernel; the barrier of the library behind it breaks the world all the same. */
static int deadline_and_barrier(spmt_comm *comm, void *arg)
{
	struct args a;
	spmt_mem *mem;
	int line = -1;

	(void)arg;
	TRY(prepare(comm, &a, &line, &mem));
	if (spmt_rank(comm) == 1) {
		REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("4242");
		REQUIRE_SAYS("; then rank 0: a barrier in a stream: ");
		REQUIRE_SAYS("1 of 2 ranks missing after ");
		return 0;
	}
	REQUIRE_OK(spmt_set_timeout(comm, 80));
	REQUIRE_OK(spmt_view_get(comm, &a.view));
	REQUIRE_OK(spmt_host_launch(comm, NULL, give_up, &a, sizeof(a)));
	REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
	sleep_ms(400);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("4242");
	REQUIRE_EQ(spmt_status(comm), SPMT_ERR_TIMEOUT);
	return 0;
}

Test(device, a_barrier_fails_behind_a_kernel_that_failed)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(2, NULL, deadline_and_barrier, NULL));
}

/* An older caller's view: no byte behind its size is written. */
static int small_view(spmt_comm *comm, void *arg)
{
	union {
		struct spmt_view view;
		unsigned char bytes[sizeof(struct spmt_view) + 64];
	} u;

	(void)arg;
	REQUIRE(sizeof(struct spmt_view) <= 256);
	memset(u.bytes, 0x77, sizeof(u.bytes));
	u.view.size = sizeof(struct spmt_view) - 32;
	REQUIRE_OK(spmt_view_get(comm, &u.view));
	REQUIRE_EQ(u.view.size, sizeof(struct spmt_view) - 32);
	REQUIRE_EQ(u.view.abi, SPMT_VIEW_ABI);
	for (size_t i = u.view.size; i < sizeof(u.bytes); i++)
		REQUIRE_EQ(u.bytes[i], 0x77);
	u.view.size = sizeof(u.bytes);
	REQUIRE_OK(spmt_view_get(comm, &u.view));
	for (size_t i = sizeof(struct spmt_view); i < sizeof(u.bytes); i++)
		REQUIRE(u.bytes[i] == 0x77 || u.bytes[i] == 0);
	return 0;
}

Test(device, a_view_is_as_large_as_the_caller_says)
{
	RANKS_OK(ranks_run(2, NULL, small_view, NULL));
}
