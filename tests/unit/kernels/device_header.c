/* SPDX-License-Identifier: MIT */
/* Every function of spmt_device.h on the host, on views made by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/typed_calls.h"

static struct views world;
static struct spmt_view me; /* rank 1 of 3 */

static void open_world(bool flat)
{
	cr_assert_eq(views_open(&world, 3, 65536, flat), 0);
	me = view_of(&world, 1);
}

static void close_world(void)
{
	views_close(&world);
}

static void open_table(void)
{
	open_world(false);
}

TestSuite(device_header, .init = open_table, .fini = close_world, .timeout = 60);

/* This rank's symmetric address, and pe's copy of it. */
static char *sym(size_t off)
{
	return views_heap(&world, 1) + off;
}

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static void scramble(void *p, size_t n, uint32_t seed)
{
	unsigned char *c = p;

	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		c[i] = (unsigned char)(seed >> 24);
	}
}

Test(device_header, who_and_where)
{
	int outside;

	for (int flat = 0; flat < 2; flat++) {
		close_world();
		open_world(flat);
		cr_expect_eq(spmtd_my_pe(&me), 1);
		cr_expect_eq(spmtd_n_pes(&me), 3);
		for (int pe = 0; pe < 3; pe++)
			cr_expect_eq(spmtd_ptr(&me, sym(100), pe), (void *)at(pe, 100));
		cr_expect_null(spmtd_ptr(&me, sym(0), -1));
		cr_expect_null(spmtd_ptr(&me, sym(0), 3));
		cr_expect_null(spmtd_ptr(&me, sym(world.heap), 0));
		cr_expect_null(spmtd_ptr(&me, sym(0) - 1, 0));
		cr_expect_null(spmtd_ptr(&me, &outside, 0));
		cr_expect_null(spmtd_mc_ptr(&me, sym(0)));
	}
	world.peers[2].base = 0;
	me.stride = 0;
	me.peers = world.peers;
	cr_expect_null(spmtd_ptr(&me, sym(0), 2), "a peer that cannot be reached");
}

/* ---- copies --------------------------------------------------------------------------------- */

static struct spmt_mem_view buffers(struct spmtd_mem_peer *peers)
{
	struct spmt_mem_view m;

	memset(&m, 0, sizeof(m));
	m.size = sizeof(m);
	m.pe = 1;
	m.npes = 3;
	m.peers = peers;
	for (int pe = 0; pe < 3; pe++) {
		peers[pe].base = (uint64_t)(uintptr_t)at(pe, 32768);
		peers[pe].size = 16384;
	}
	return m;
}

typedef void copy_fn(const struct spmt_view *, void *, const void *, size_t, int);
typedef void signal_fn(
	const struct spmt_view *, void *, const void *, size_t, uint64_t *, uint64_t, int, int);
typedef void mem_put_fn(
	const struct spmt_view *, const struct spmt_mem_view *, size_t, const void *, size_t, int);
typedef void mem_get_fn(
	const struct spmt_view *, void *, const struct spmt_mem_view *, size_t, size_t, int);
typedef void mem_signal_fn(const struct spmt_view *, const struct spmt_mem_view *, size_t,
	const void *, size_t, uint64_t *, uint64_t, int, int);

#define SIX(name)                                                                              \
	{                                                                                      \
		name, name##_warp, name##_block, name##_nbi, name##_nbi_warp, name##_nbi_block \
	}
static copy_fn *const puts_[6] = SIX(spmtd_putmem);
static copy_fn *const gets_[6] = SIX(spmtd_getmem);
static signal_fn *const put_signals[6] = SIX(spmtd_putmem_signal);
static mem_put_fn *const mem_puts[6] = SIX(spmtd_mem_putmem);
static mem_get_fn *const mem_gets[6] = SIX(spmtd_mem_getmem);
static mem_signal_fn *const mem_put_signals[6] = SIX(spmtd_mem_putmem_signal);

enum { ROOM = 400 };

static void check_copy(int form, bool put, size_t n, size_t d, size_t s)
{
	unsigned char want[ROOM], src[ROOM];
	char *to = put ? at(2, 1024) : sym(1024), *from = put ? sym(4096) : at(2, 4096);

	scramble(src, sizeof(src), (uint32_t)(n * 7919 + d * 31 + s));
	memset(want, 0xee, sizeof(want));
	memset(to, 0xee, ROOM);
	memcpy(from, src, ROOM);
	memcpy(want + d, src + s, n);
	if (put)
		puts_[form](&me, sym(1024) + d, from + s, n, 2);
	else
		gets_[form](&me, to + d, sym(4096) + s, n, 2);
	spmtd_quiet(&me);
	if (memcmp(to, want, ROOM))
		cr_assert_fail("form %d, %s of %zu bytes, to +%zu from +%zu", form,
			put ? "put" : "get", n, d, s);
}

Test(device_header, sizes_and_misalignments)
{
	for (size_t n = 0; n <= 300; n++)
		for (size_t d = 0; d < 18; d++)
			for (size_t s = 0; s < 18; s++) {
				int form = (int)((n + d + s) % 6);

				check_copy(form, true, n, d, s);
				check_copy(form, false, n, d, s);
			}
}

Test(device_header, overlap_to_self_is_memmove)
{
	unsigned char want[ROOM];

	for (size_t n = 1; n <= 128; n++)
		for (size_t d = 0; d < 20; d++) {
			scramble(sym(0), ROOM, (uint32_t)n);
			memcpy(want, sym(0), ROOM);
			memmove(want + d, want + 10, n);
			spmtd_putmem(&me, sym(0) + d, sym(0) + 10, n, 1);
			cr_assert_eq(memcmp(sym(0), want, ROOM), 0, "%zu to %zu", n, d);
		}
}

Test(device_header, a_put_wakes_once_and_nothing_wakes_nobody)
{
	char byte = 1;

	spmtd_putmem(&me, sym(0), &byte, 0, 2);
	cr_expect_eq(views_wakes(&world, 2), 0);
	spmtd_putmem(&me, NULL, NULL, 0, 2);
	spmtd_getmem(&me, NULL, NULL, 0, 2);
	cr_expect_eq(views_wakes(&world, 2), 0);
	spmtd_putmem(&me, sym(0), &byte, 1, 2);
	cr_expect_eq(views_wakes(&world, 2), 1);
	spmtd_putmem(&me, sym(0), sym(512), 100, 2);
	cr_expect_eq(views_wakes(&world, 2), 2);
	spmtd_putmem_signal(
		&me, sym(0), sym(512), 100, (uint64_t *)(void *)sym(1024), 1, SPMT_SIGNAL_SET, 2);
	cr_expect_eq(views_wakes(&world, 2), 3);
	spmtd_uint64_atomic_add(&me, (uint64_t *)(void *)sym(0), 1, 0);
	cr_expect_eq(views_wakes(&world, 0), 1);
	me.host = NULL;
	spmtd_putmem(&me, sym(0), &byte, 1, 2);
	cr_expect_eq(views_wakes(&world, 2), 3);
}

Test(device_header, signals_follow_their_data)
{
	struct spmtd_mem_peer peers[3];
	struct spmt_mem_view m = buffers(peers);
	uint64_t *sig = (uint64_t *)(void *)sym(0), *theirs = (uint64_t *)(void *)at(2, 0),
		 want = 0;

	for (int form = 0; form < 6; form++)
		for (size_t n = 0; n <= 64; n += 8) {
			scramble(sym(4096), 64, (uint32_t)(n + 1));
			memset(at(2, 8192), 0, 64);
			memset(at(2, 32768), 0, 64);
			put_signals[form](&me, sym(8192), sym(4096), n, sig, 5, SPMT_SIGNAL_ADD, 2);
			want += 5;
			cr_assert_eq(*theirs, want, "form %d, %zu bytes", form, n);
			cr_assert_eq(memcmp(at(2, 8192), sym(4096), n), 0);
			mem_put_signals[form](
				&me, &m, 0, sym(4096), n, sig, want + 7, SPMT_SIGNAL_SET, 2);
			want += 7;
			cr_assert_eq(*theirs, want);
			cr_assert_eq(memcmp(at(2, 32768), sym(4096), n), 0);
		}
	spmtd_signal_op(&me, sig, 9, SPMT_SIGNAL_SET, 1);
	cr_expect_eq(spmtd_signal_fetch(&me, sig), 9);
	spmtd_signal_op(&me, sig, 2, SPMT_SIGNAL_ADD, 1);
	cr_expect_eq(spmtd_signal_fetch(&me, sig), 11);
	cr_expect_eq(spmtd_signal_wait_until(&me, sig, SPMT_CMP_EQ, 11), 0);
	spmtd_signal_op_relaxed(&me, sig, 3, SPMT_SIGNAL_ADD, 1);
	cr_expect_eq(spmtd_signal_fetch_relaxed(&me, sig), 14);
	spmtd_signal_op_relaxed(&me, sig, 6, SPMT_SIGNAL_SET, 1);
	cr_expect_eq(spmtd_signal_fetch_relaxed(&me, sig), 6);
	cr_expect_eq(views_wakes(&world, 1), 4);
}

Test(device_header, registered_buffers)
{
	struct spmtd_mem_peer peers[3];
	struct spmt_mem_view m = buffers(peers);
	char back[300];

	for (int pe = 0; pe < 3; pe++)
		cr_expect_eq(spmtd_mem_ptr(&m, pe), (void *)at(pe, 32768));
	cr_expect_null(spmtd_mem_ptr(&m, -1));
	cr_expect_null(spmtd_mem_ptr(&m, 3));
	for (int form = 0; form < 6; form++)
		for (size_t off = 0; off < 20; off++)
			for (size_t n = 0; n < 280; n += 1 + off) {
				scramble(sym(0), 300, (uint32_t)(off + n));
				mem_puts[form](&me, &m, off, sym(3), n, 2);
				cr_assert_eq(memcmp(at(2, 32768 + off), sym(3), n), 0);
				memset(back, 0, sizeof(back));
				mem_gets[form](&me, back, &m, off, n, 2);
				cr_assert_eq(memcmp(back, sym(3), n), 0);
			}
}

/* ---- the 11 types --------------------------------------------------------------------------- */

#define PUT_GET(name, T, suffix)                                                                   \
	do {                                                                                       \
		scramble(sym(0), 37 * sizeof(T), 1 + sizeof(#suffix));                             \
		spmtd_##name##_put##suffix(                                                        \
			&me, (T *)(void *)sym(4096), (T *)(void *)sym(0), 37, 2);                  \
		cr_assert_eq(memcmp(at(2, 4096), sym(0), 37 * sizeof(T)), 0, #name #suffix);       \
		memset(sym(8192), 0, 64 * sizeof(T));                                              \
		spmtd_##name##_get##suffix(                                                        \
			&me, (T *)(void *)sym(8192), (T *)(void *)sym(4096), 37, 2);               \
		cr_assert_eq(memcmp(sym(8192), sym(0), 37 * sizeof(T)), 0, #name #suffix);         \
		cr_assert_eq(sym(8192)[37 * sizeof(T)], 0);                                        \
		spmtd_mem_##name##_put##suffix(&me, &m, 24, (T *)(void *)sym(0), 29, 0);           \
		cr_assert_eq(memcmp(at(0, 32768 + 24), sym(0), 29 * sizeof(T)), 0, #name #suffix); \
		memset(sym(8192), 0, 64 * sizeof(T));                                              \
		spmtd_mem_##name##_get##suffix(&me, (T *)(void *)sym(8192), &m, 24, 29, 0);        \
		cr_assert_eq(memcmp(sym(8192), sym(0), 29 * sizeof(T)), 0, #name #suffix);         \
	} while (0)
#define RMA_TEST(name, T)                                                            \
	Test(device_header, rma_##name)                                              \
	{                                                                            \
		struct spmtd_mem_peer peers[3];                                      \
		struct spmt_mem_view m = buffers(peers);                             \
                                                                                     \
		PUT_GET(name, T, );                                                  \
		PUT_GET(name, T, _warp);                                             \
		PUT_GET(name, T, _block);                                            \
		PUT_GET(name, T, _nbi);                                              \
		PUT_GET(name, T, _nbi_warp);                                         \
		PUT_GET(name, T, _nbi_block);                                        \
		spmtd_##name##_p(&me, (T *)(void *)sym(16), (T)77, 2);               \
		cr_expect_eq(*(T *)(void *)at(2, 16), (T)77);                        \
		cr_expect_eq(spmtd_##name##_g(&me, (T *)(void *)sym(16), 2), (T)77); \
		spmtd_mem_##name##_p(&me, &m, 48, (T)78, 2);                         \
		cr_expect_eq(*(T *)(void *)at(2, 32768 + 48), (T)78);                \
		cr_expect_eq(spmtd_mem_##name##_g(&me, &m, 48, 2), (T)78);           \
		cr_expect_eq(views_wakes(&world, 2), 6 + 2);                         \
	}
TYPES(RMA_TEST)

#define ATOMIC_TEST(name, T)                                                                    \
	Test(device_header, atomic_##name)                                                      \
	{                                                                                       \
		T *word = (T *)(void *)sym(24), *theirs = (T *)(void *)at(2, 24);               \
                                                                                                \
		memset(at(2, 0), 0x55, 64);                                                     \
		*theirs = (T)9;                                                                 \
		cr_expect_eq(spmtd_##name##_atomic_fetch(&me, word, 2), (T)9);                  \
		spmtd_##name##_atomic_set(&me, word, (T)20, 2);                                 \
		cr_expect_eq(*theirs, (T)20);                                                   \
		cr_expect_eq(spmtd_##name##_atomic_swap(&me, word, (T)30, 2), (T)20);           \
		cr_expect_eq(                                                                   \
			spmtd_##name##_atomic_compare_swap(&me, word, (T)29, (T)1, 2), (T)30);  \
		cr_expect_eq(                                                                   \
			spmtd_##name##_atomic_compare_swap(&me, word, (T)30, (T)40, 2), (T)30); \
		cr_expect_eq(*theirs, (T)40);                                                   \
		spmtd_##name##_atomic_inc(&me, word, 2);                                        \
		cr_expect_eq(spmtd_##name##_atomic_fetch_inc(&me, word, 2), (T)41);             \
		spmtd_##name##_atomic_add(&me, word, (T)8, 2);                                  \
		cr_expect_eq(spmtd_##name##_atomic_fetch_add(&me, word, (T)10, 2), (T)50);      \
		cr_expect_eq(*theirs, (T)60);                                                   \
		cr_expect_eq(at(2, 23)[0], 0x55);                                               \
		cr_expect_eq(at(2, 24 + sizeof(T))[0], 0x55);                                   \
		cr_expect_eq(views_wakes(&world, 2), 8);                                        \
	}
TYPES(ATOMIC_TEST)

#define BITWISE_TEST(name, T)                                                                  \
	Test(device_header, bitwise_##name)                                                    \
	{                                                                                      \
		T *word = (T *)(void *)sym(24), *theirs = (T *)(void *)at(2, 24);              \
                                                                                               \
		*theirs = (T)0x6c;                                                             \
		spmtd_##name##_atomic_and(&me, word, (T)0x3f, 2);                              \
		cr_expect_eq(*theirs, (T)0x2c);                                                \
		spmtd_##name##_atomic_or(&me, word, (T)0x41, 2);                               \
		cr_expect_eq(*theirs, (T)0x6d);                                                \
		spmtd_##name##_atomic_xor(&me, word, (T)0x0f, 2);                              \
		cr_expect_eq(*theirs, (T)0x62);                                                \
		cr_expect_eq(spmtd_##name##_atomic_fetch_and(&me, word, (T)0x70, 2), (T)0x62); \
		cr_expect_eq(spmtd_##name##_atomic_fetch_or(&me, word, (T)0x05, 2), (T)0x60);  \
		cr_expect_eq(spmtd_##name##_atomic_fetch_xor(&me, word, (T)0x01, 2), (T)0x65); \
		cr_expect_eq(*theirs, (T)0x64);                                                \
		*theirs = (T)-1; /* wraps */                                                   \
		cr_expect_eq(spmtd_##name##_atomic_fetch_add(&me, word, (T)3, 2), (T)-1);      \
		cr_expect_eq(*theirs, (T)2);                                                   \
	}
BITWISE_TEST(uint8, uint8_t)
BITWISE_TEST(int8, int8_t)
BITWISE_TEST(schar, signed char)
BITWISE_TEST(uint16, uint16_t)
BITWISE_TEST(int16, int16_t)
BITWISE_TEST(uint32, uint32_t)
BITWISE_TEST(int32, int32_t)
BITWISE_TEST(uint64, uint64_t)
BITWISE_TEST(int64, int64_t)

/* ---- waits ---------------------------------------------------------------------------------- */

#define HOLDS(name, x, cmp, y) spmtd_##name##_test(&me, (*word = (x), word), SPMT_CMP_##cmp, (y))
#define WAIT_TEST(name, T)                                                                         \
	Test(device_header, wait_##name)                                                           \
	{                                                                                          \
		T *word = (T *)(void *)sym(64);                                                    \
		int status[4] = { 0, 1, 0, 0 };                                                    \
		size_t index = 7, found = 7, indices[4];                                           \
                                                                                                   \
		cr_expect(HOLDS(name, 3, EQ, 3) && !HOLDS(name, 3, EQ, 4));                        \
		cr_expect(HOLDS(name, 3, NE, 4) && !HOLDS(name, 3, NE, 3));                        \
		cr_expect(HOLDS(name, 4, GT, 3) && !HOLDS(name, 3, GT, 3));                        \
		cr_expect(HOLDS(name, 3, GE, 3) && !HOLDS(name, 2, GE, 3));                        \
		cr_expect(HOLDS(name, 2, LT, 3) && !HOLDS(name, 3, LT, 3));                        \
		cr_expect(HOLDS(name, 3, LE, 3) && !HOLDS(name, 4, LE, 3));                        \
		/* all ones: below 0 if signed, the greatest if not */                             \
		if ((T)-1 < (T)1)                                                                  \
			cr_expect(HOLDS(name, (T)-1, LT, 0) && HOLDS(name, 0, GT, (T)-1));         \
		else                                                                               \
			cr_expect(HOLDS(name, (T)-1, GT, 1) && HOLDS(name, 0, LT, (T)-1));         \
		*word = 5;                                                                         \
		cr_expect_eq(spmtd_##name##_wait_until(&me, word, SPMT_CMP_GE, 5), 0);             \
		for (int i = 0; i < 4; i++)                                                        \
			word[i] = (T)i;                                                            \
		cr_expect_eq(spmtd_##name##_wait_until_any(                                        \
				     &me, word, 4, status, SPMT_CMP_GT, 0, &index),                \
			0);                                                                        \
		cr_expect(index == 2 || index == 3);                                               \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_any(&me, word, 4, NULL, SPMT_CMP_GT, 0, &index), \
			0);                                                                        \
		cr_expect(index >= 1 && index <= 3);                                               \
		cr_expect_eq(spmtd_##name##_wait_until_some(                                       \
				     &me, word, 4, status, SPMT_CMP_GT, 0, indices, &found),       \
			0);                                                                        \
		cr_expect(found == 2 && indices[0] == 2 && indices[1] == 3);                       \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_all(&me, word + 1, 3, NULL, SPMT_CMP_GT, 0), 0); \
		cr_expect_eq(                                                                      \
			spmtd_##name##_test_any(&me, word, 4, status, SPMT_CMP_EQ, 3, &index), 1); \
		cr_expect_eq(index, 3);                                                            \
		cr_expect_eq(                                                                      \
			spmtd_##name##_test_any(&me, word, 4, status, SPMT_CMP_EQ, 1, &index), 0); \
		cr_expect_eq(index, SIZE_MAX);                                                     \
		cr_expect_eq(spmtd_##name##_test_some(                                             \
				     &me, word, 4, status, SPMT_CMP_LE, 2, indices, &found),       \
			1);                                                                        \
		cr_expect(found == 2 && indices[0] == 0 && indices[1] == 2);                       \
		cr_expect_eq(spmtd_##name##_test_some(                                             \
				     &me, word, 4, NULL, SPMT_CMP_EQ, 9, indices, &found),         \
			0);                                                                        \
		cr_expect_eq(found, 0);                                                            \
		cr_expect_eq(spmtd_##name##_test_all(&me, word, 4, NULL, SPMT_CMP_LE, 3), 1);      \
		cr_expect_eq(spmtd_##name##_test_all(&me, word, 4, NULL, SPMT_CMP_LE, 2), 0);      \
		memset(status, -1, sizeof(status)); /* nothing is left in */                       \
		cr_expect_eq(spmtd_##name##_wait_until_any(                                        \
				     &me, word, 4, status, SPMT_CMP_EQ, 9, &index),                \
			0);                                                                        \
		cr_expect_eq(index, SIZE_MAX);                                                     \
		cr_expect_eq(spmtd_##name##_wait_until_some(                                       \
				     &me, word, 4, status, SPMT_CMP_EQ, 9, indices, &found),       \
			0);                                                                        \
		cr_expect_eq(found, 0);                                                            \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_all(&me, word, 4, status, SPMT_CMP_EQ, 9), 0);   \
		cr_expect_eq(spmtd_##name##_test_all(&me, word, 4, status, SPMT_CMP_EQ, 9), 1);    \
		me.timeout_ns = 2000000;                                                           \
		index = found = 7;                                                                 \
		*word = 1;                                                                         \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until(&me, word, SPMT_CMP_EQ, 2), SPMT_ERR_TIMEOUT);   \
		cr_expect_eq(                                                                      \
			spmtd_##name##_wait_until_any(&me, word, 1, NULL, SPMT_CMP_EQ, 2, &index), \
			SPMT_ERR_TIMEOUT);                                                         \
		cr_expect_eq(spmtd_##name##_wait_until_some(                                       \
				     &me, word, 1, NULL, SPMT_CMP_EQ, 2, indices, &found),         \
			SPMT_ERR_TIMEOUT);                                                         \
		cr_expect_eq(spmtd_##name##_wait_until_all(&me, word, 1, NULL, SPMT_CMP_EQ, 2),    \
			SPMT_ERR_TIMEOUT);                                                         \
		cr_expect(index == 7 && found == 7, "outputs of a wait that failed");              \
	}
TYPES(WAIT_TEST)

Test(device_header, wait_edges)
{
	int64_t *i64 = (int64_t *)(void *)sym(64);
	uint64_t *u64 = (uint64_t *)(void *)sym(64);
	int8_t *i8 = (int8_t *)sym(64);
	double *f64 = (double *)(void *)sym(64);

	*i64 = INT64_MIN;
	cr_expect(spmtd_int64_test(&me, i64, SPMT_CMP_LT, INT64_MAX));
	cr_expect(spmtd_uint64_test(&me, u64, SPMT_CMP_GT, INT64_MAX));
	*i8 = INT8_MIN;
	cr_expect(spmtd_int8_test(&me, i8, SPMT_CMP_LT, INT8_MAX));
	cr_expect(spmtd_uint8_test(&me, (uint8_t *)i8, SPMT_CMP_GT, INT8_MAX));
	*f64 = NAN;
	cr_expect(!spmtd_double_test(&me, f64, SPMT_CMP_EQ, NAN));
	cr_expect(spmtd_double_test(&me, f64, SPMT_CMP_NE, 0));
	*f64 = -0.0;
	cr_expect(spmtd_double_test(&me, f64, SPMT_CMP_EQ, 0));
}

Test(device_header, a_failed_wait_leaves_a_record)
{
	uint64_t *word = (uint64_t *)(void *)sym(64);
	struct spmtd_record *r = &world.records[1];

	*word = 41;
	me.timeout_ns = 1000000;
	cr_assert_eq(spmtd_signal_wait_until(&me, word, SPMT_CMP_EQ, 42), SPMTD_TIMEOUT);
	cr_expect_eq(r->valid, 2);
	cr_expect_eq(r->code, SPMT_ERR_TIMEOUT);
	cr_expect_eq(r->pe, 1);
	cr_expect_eq(r->peer, -1);
	cr_expect_eq(r->what, SPMTD_WHAT_SIGNAL);
	cr_expect_eq(r->address, (uint64_t)(uintptr_t)word);
	cr_expect_eq(r->expected, 42);
	cr_expect_eq(r->seen, 41);

	world.stop = 1;
	cr_expect_eq(spmtd_uint64_wait_until(&me, word, SPMT_CMP_EQ, 43), SPMTD_ABORTED);
	cr_expect_eq(r->code, SPMT_ERR_TIMEOUT, "the first one counts");
	cr_expect_eq(r->expected, 42);
	r->valid = 0;
	cr_expect_eq(spmtd_uint64_wait_until(&me, word, SPMT_CMP_EQ, 43), SPMTD_ABORTED);
	cr_expect_eq(r->valid, 2);
	cr_expect_eq(r->code, SPMT_ERR_ABORTED);
	cr_expect_eq(r->what, SPMTD_WHAT_WAIT);
	cr_expect_eq(me.own->recording, 0);
	me.host = NULL;
	cr_expect_eq(spmtd_uint64_wait_until(&me, word, SPMT_CMP_EQ, 43), SPMTD_ABORTED,
		"without callbacks");
	me.record = NULL;
	cr_expect_eq(spmtd_uint64_wait_until(&me, word, SPMT_CMP_EQ, 43), SPMTD_ABORTED);
}

Test(device_header, order_calls)
{
	spmtd_fence(&me);
	cr_expect_eq(spmtd_quiet(&me), 0);
	cr_expect_eq(spmtd_quiet_warp(&me), 0);
	cr_expect_eq(spmtd_quiet_block(&me), 0);
	cr_expect_eq((int)SPMTD_TIMEOUT, (int)SPMT_ERR_TIMEOUT);
	cr_expect_eq((int)SPMTD_ABORTED, (int)SPMT_ERR_ABORTED);
	cr_expect_eq((int)SPMTD_MISMATCH, (int)SPMT_ERR_MISMATCH);
}
