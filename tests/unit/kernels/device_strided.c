/* SPDX-License-Identifier: MIT */
/* Strided put and get of the device header, of all types, and halves in put, get, p and g. */
#include <criterion/criterion.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"
#include "tests/lib/typed_calls.h"

static struct views world;
static struct spmt_view me; /* rank 0 of 2 */
static struct spmtd_mem_peer peers[2];
static struct spmt_mem_view mem;

enum { HERE = 1024, THERE = 2048, BUFFER = 4096, BUFFER_SIZE = 2048 };

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static void open_world(void)
{
	cr_assert_eq(views_open(&world, 2, 8192, true), 0);
	me = view_of(&world, 0);
	mem = (struct spmt_mem_view){ .size = sizeof(mem), .npes = 2, .peers = peers };
	for (int pe = 0; pe < 2; pe++)
		peers[pe] =
			(struct spmtd_mem_peer){ (uint64_t)(uintptr_t)at(pe, BUFFER), BUFFER_SIZE };
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_strided, .init = open_world, .fini = close_world, .timeout = 60);

enum { MOST = 12, ROOM = MOST * 3 * 8 };

/* dst is what `n` elements of src make of `before`. */
static void check(const char *what, const char *dst, const char *src, size_t size, size_t n,
	size_t d, size_t s)
{
	char want[ROOM];

	memset(want, 0x55, sizeof(want));
	for (size_t i = 0; i < n; i++)
		memcpy(want + i * d * size, src + i * s * size, size);
	cr_assert_eq(memcmp(dst, want, sizeof(want)), 0, "%s of %zu elements, strides %zu, %zu",
		what, n, d, s);
}

#define EACH_FORM(name, T, by)                                                              \
	do {                                                                                \
		T *here = (T *)(void *)at(0, HERE), *there = (T *)(void *)at(0, THERE);     \
		const int64_t dn = (int64_t)d, sn = (int64_t)s;                             \
		memset(at(1, THERE), 0x55, ROOM);                                           \
		spmtd_##name##_iput##by(&me, there, here, dn, sn, n, 1);                    \
		check("iput" #by, at(1, THERE), at(0, HERE), sizeof(T), n, d, s);           \
		memset(at(1, BUFFER + 16), 0x55, ROOM);                                     \
		spmtd_mem_##name##_iput##by(&me, &mem, 16, here, dn, sn, n, 1);             \
		check("mem_iput" #by, at(1, BUFFER + 16), at(0, HERE), sizeof(T), n, d, s); \
		memset(there, 0x55, ROOM);                                                  \
		spmtd_##name##_iget##by(&me, there, here, dn, sn, n, 1);                    \
		check("iget" #by, at(0, THERE), at(1, HERE), sizeof(T), n, d, s);           \
		memcpy(at(1, BUFFER + 16), at(0, HERE), ROOM);                              \
		memset(there, 0x55, ROOM);                                                  \
		spmtd_mem_##name##_iget##by(&me, there, &mem, 16, dn, sn, n, 1);            \
		check("mem_iget" #by, at(0, THERE), at(0, HERE), sizeof(T), n, d, s);       \
	} while (0)
#define STRIDED_TEST(name, T)                                       \
	Test(device_strided, name)                                  \
	{                                                           \
		uint64_t puts_ = 0;                                 \
		for (int i = 0; i < ROOM; i++) {                    \
			at(0, HERE)[i] = (char)(i * 7 + 1);         \
			at(1, HERE)[i] = (char)(i * 5 + 3);         \
		}                                                   \
		for (size_t n = 0; n <= MOST; n += 4)               \
			for (size_t d = 1; d <= 3; d++)             \
				for (size_t s = 1; s <= 3; s++) {   \
					EACH_FORM(name, T, );       \
					EACH_FORM(name, T, _warp);  \
					EACH_FORM(name, T, _block); \
					puts_ += n ? 6 : 0;         \
				}                                   \
		cr_expect_eq(views_wakes(&world, 1), puts_);        \
	}
TYPES(STRIDED_TEST)
STRIDED_TEST(half, uint16_t)
STRIDED_TEST(bfloat16, uint16_t)

#define HALF_TEST(name)                                                                \
	Test(device_strided, copies_of_##name)                                         \
	{                                                                              \
		uint16_t src[37], *there = (uint16_t *)(void *)at(0, THERE), back[37]; \
		for (uint16_t i = 0; i < 37; i++)                                      \
			src[i] = (uint16_t)(i * 1777);                                 \
		spmtd_##name##_put(&me, there, src, 37, 1);                            \
		cr_expect_eq(memcmp(at(1, THERE), src, sizeof(src)), 0);               \
		spmtd_##name##_get_block(&me, back, there, 37, 1);                     \
		cr_expect_eq(memcmp(back, src, sizeof(src)), 0);                       \
		spmtd_mem_##name##_put_nbi_warp(&me, &mem, 8, src, 37, 1);             \
		cr_expect_eq(memcmp(at(1, BUFFER + 8), src, sizeof(src)), 0);          \
		spmtd_##name##_p(&me, there, 0x3c00, 1);                               \
		cr_expect_eq(spmtd_##name##_g(&me, there, 1), 0x3c00);                 \
		cr_expect_eq(spmtd_mem_##name##_g(&me, &mem, 8 + 2 * 3, 1), src[3]);   \
	}
HALF_TEST(half)
HALF_TEST(bfloat16)
