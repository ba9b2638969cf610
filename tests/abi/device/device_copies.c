/* SPDX-License-Identifier: MIT */
/*
 * The header's copies and small atomics as devices compile them, run here, lane by lane, over a machine of the test's own, whose
 * loads and stores check: nothing outside the range is touched, nothing is misaligned, every byte is written once, and the
 * middle goes 16 bytes at a time.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In the place of these parts. */
#define SPMTD_TARGET_H
#define SPMTD_AMDGCN_H
#define SPMTD_NVPTX_H
#define SPMTD_VIEW_H
#define SPMTD_FN static inline
#define SPMTD_LONG static
#define SPMTD_RARE static
#define SPMTD_UNROLL
#define SPMTD_BEGIN
#define SPMTD_END

#define SPMTD_ROLLED

struct spmtd_unit_ {
	uint64_t a, b;
};

enum { SPMTD_THREAD_, SPMTD_WARP_, SPMTD_BLOCK_ };

/* The longest copy is 17 units by each of 1024 lanes; 64 bytes of nothing on either side. */
#define ROOM (17 * 1024 * 16 + 64 + 96)

static struct {
	unsigned char src[ROOM], dst[ROOM];
	unsigned char written[ROOM];
	uint64_t from, to, n;	  /* the copy under way */
	uint64_t accesses, units; /* stores: all, and of 16 bytes */
	const char *wrong;
} space __attribute__((aligned(64)));

static void touch(uint64_t a, uint64_t size, uint64_t begin, const char *what)
{
	if (a % size)
		space.wrong = "misaligned";
	if (a < begin || a + size > begin + space.n)
		space.wrong = what;
}

static void loaded(uint64_t a, void *x, uint64_t size)
{
	touch(a, size, space.from, "a load outside the range");
	if (!space.wrong)
		memcpy(x, (const void *)(uintptr_t)a, size);
	else
		memset(x, 0, size);
}

static void stored(uint64_t a, const void *x, uint64_t size)
{
	touch(a, size, space.to, "a store outside the range");
	if (space.wrong)
		return;
	memcpy((void *)(uintptr_t)a, x, size);
	for (uint64_t i = 0; i < size; i++)
		if (space.written[a - (uint64_t)(uintptr_t)space.dst + i]++)
			space.wrong = "a byte is written twice";
	space.accesses++;
	space.units += size == 16;
}

#define SHIM(bits, type)                                             \
	static inline type spmtd_load##bits##_(uint64_t a)           \
	{                                                            \
		type x;                                              \
		loaded(a, &x, sizeof(x));                            \
		return x;                                            \
	}                                                            \
	static inline type spmtd_gload##bits##_(uint64_t a)          \
	{                                                            \
		return spmtd_load##bits##_(a);                       \
	}                                                            \
	static inline void spmtd_store##bits##_(uint64_t a, type x)  \
	{                                                            \
		stored(a, &x, sizeof(x));                            \
	}                                                            \
	static inline void spmtd_gstore##bits##_(uint64_t a, type x) \
	{                                                            \
		stored(a, &x, sizeof(x));                            \
	}                                                            \
	static inline type spmtd_peek##bits##_(uint64_t a)           \
	{                                                            \
		return spmtd_load##bits##_(a);                       \
	}                                                            \
	static inline void spmtd_poke##bits##_(uint64_t a, type x)   \
	{                                                            \
		stored(a, &x, sizeof(x));                            \
	}
SHIM(8, uint8_t)
SHIM(16, uint16_t)
SHIM(32, uint32_t)
SHIM(64, uint64_t)
SHIM(16b, struct spmtd_unit_)

static uint32_t lane_now, lanes_now;

static inline uint32_t spmtd_lane_(int scope)
{
	(void)scope;
	return lane_now;
}

static inline uint32_t spmtd_lanes_(int scope)
{
	(void)scope;
	return lanes_now;
}

#include "spmt_device/copy.h"

static uint32_t words[4];
static uint32_t interference; /* this many compare-and-swaps meet another thread's */

#undef spmtd_peek32_
static uint32_t word_peek(uint64_t a)
{
	return *(const uint32_t *)(uintptr_t)a;
}

static uint32_t word_cas(uint64_t a, uint32_t compare, uint32_t x)
{
	uint32_t *word = (uint32_t *)(uintptr_t)a, old;

	if (interference) {
		interference--;
		*word ^= 0xff000000u; /* the neighbour in the top byte */
	}
	old = *word;
	if (old == compare)
		*word = x;
	return old;
}
#define spmtd_peek32_ word_peek
#define spmtd_cas32_ word_cas
#include "spmt_device/narrow.h"

static int tests, failures;

static void report(const char *name, const char *wrong)
{
	printf("%sok %d - %s\n", wrong ? "not " : "", ++tests, name);
	if (wrong)
		printf("# %s\n", wrong);
	failures += wrong != NULL;
}

/* way 0 .. 2: bulk copies; 3 and 4: put and get with their single accesses; 5: put by the block's warps that have a part. */
static void run(int way, uint64_t d, uint64_t s, uint64_t n, uint32_t lanes)
{
	uint64_t dst = (uint64_t)(uintptr_t)space.dst + 64 + d,
		 src = (uint64_t)(uintptr_t)space.src + 64 + s;
	uint32_t alone;

	memset(space.dst, 0, n + 128);
	memset(space.written, 0, n + 128);
	space.to = dst;
	space.from = src;
	space.n = n;
	space.accesses = space.units = 0;
	lanes_now = lanes;
	alone = 0;
	for (lane_now = 0; lane_now < lanes; lane_now++) {
		if (way == 3)
			spmtd_copy_put_(dst, src, n, 0);
		else if (way == 4)
			spmtd_copy_get_(dst, src, n, 0);
		else if (way == 5 && spmtd_has_part_(n, SPMTD_BLOCK_))
			spmtd_quick_put_(dst, src, n, SPMTD_BLOCK_);
		else if (way == 5)
			alone += lane_now < 32 || lane_now * UINT64_C(16) < n;
		else if (way == 0)
			spmtd_bulk_put_(dst, src, n, lane_now, lanes);
		else if (way == 1)
			spmtd_bulk_get_(dst, src, n, lane_now, lanes);
		else
			spmtd_bulk_raw_(dst, src, n, lane_now, lanes);
	}
	if (!space.wrong && memcmp(space.dst + 64 + d, space.src + 64 + s, n))
		space.wrong = "wrong bytes";
	for (uint64_t i = 0; i < n && !space.wrong; i++)
		if (!space.written[64 + d + i])
			space.wrong = "a byte is not written";
	if (!space.wrong && n && alone)
		space.wrong = "a lane that has a part is let go";
	/* Ends are at most 15 bytes alike, 31 on either side if not. */
	if (!space.wrong && n >= 16 && (way < 3 || way == 5) &&
		space.units < ((d ^ s) & 15 ? (n - (n < 62 ? n : 62)) / 16 : (n - 15) / 16))
		space.wrong = "the middle is not moved 16 bytes at a time";
	if (!space.wrong && way >= 3 && n && n <= 8 && !(n & (n - 1)) &&
		!((way == 4 ? s : d) % n) && space.accesses != 1 && !(way == 4 && d % n))
		space.wrong = "a single access is not one";
}

static char text[256];

/* One copy; returns what was wrong with it, NULL if nothing. */
static const char *copy(int way, uint64_t n, uint64_t d, uint64_t s, uint32_t lanes)
{
	space.wrong = NULL;
	run(way, d, s, n, lanes);
	if (!space.wrong)
		return NULL;
	snprintf(text, sizeof(text), "%s: %d bytes, +%d from +%d, %d lanes", space.wrong, (int)n,
		(int)d, (int)s, (int)lanes);
	return text;
}

/* Every length of a few rounds by few lanes. */
static const char *few(int way)
{
	static const uint32_t lanes[] = { 1, 3, 20, 32, 64, 96 };
	const char *wrong = NULL;

	for (uint64_t n = 0; n <= 330 && !wrong; n++)
		for (uint64_t d = 0; d < 17 && !wrong; d++)
			for (uint64_t s = 0; s < 17 && !wrong; s++)
				wrong = copy(way, n, d, s, lanes[(n + d * 5 + s * 3) % 6]);
	return wrong;
}

/* Of whole warps, and on either side of the number of lanes from which puts go in shorter rounds: a unit less than, as
   many as, and a unit more than whole, half and broken rounds have; aligned, and misaligned alike
   and differently. */
static const char *many(int way)
{
	static const uint32_t lanes[] = { 32, 64, 96, 511, 512, 1024 };
	static const uint64_t each[] = { 0, 1, 3, 4, 5, 7, 8, 9, 12, 13, 16 };
	static const uint64_t at[][3] = { /* dst, src, bytes more */
		{ 0, 0, 0 }, { 9, 9, 11 }, { 15, 15, 1 }, { 4, 12, 0 }, { 1, 0, 15 }, { 0, 7, 6 }
	};
	const char *wrong = NULL;

	for (int l = 0; l < 6; l++)
		for (int e = 0; e < 11; e++)
			for (int more = e ? -1 : 0; more <= 1; more++)
				for (int i = 0; i < 6 && !wrong; i++) {
					uint64_t n = each[e] * lanes[l] + (uint64_t)(int64_t)more;

					wrong = copy(way, n * 16 + at[i][2], at[i][0], at[i][1],
						lanes[l]);
				}
	return wrong;
}

/* A block's warps with and without a part: bytes round the border of each of the first and last ones, by a full block and by one
   whose last warp is short. */
static const char *borders(int way)
{
	static const uint64_t warps[] = { 1, 2, 3, 31, 32, 33 };
	static const uint32_t lanes[] = { 1024, 1000 };
	const char *wrong = NULL;

	for (int w = 0; w < 6; w++)
		for (uint64_t n = warps[w] * 512 - 34; n <= warps[w] * 512 + 34; n++)
			for (uint64_t d = 0; d < 16 && !wrong; d++)
				wrong = copy(way, n, d, n % 3 ? d : n * 7 % 16, lanes[d % 2]);
	return wrong;
}

static void copies(const char *name, int way)
{
	const char *wrong = few(way);

	if (!wrong)
		wrong = many(way);
	report(name, wrong ? wrong : borders(way));
}

static const char *parts(void)
{
	uint64_t at = (uint64_t)(uintptr_t)words;

	words[0] = 0x11223344u;
	words[1] = 0x55667788u;
	if (spmtd_add8_(at + 1, 0xff) != 0x33 || words[0] != 0x11223244u)
		return "add8";
	if (spmtd_add16_(at + 2, 0xf000) != 0x1122 || words[0] != 0x01223244u)
		return "add16";
	if (spmtd_cas8_(at + 4, 0x87, 1) != 0x88 || words[1] != 0x55667788u)
		return "cas8 that differs";
	if (spmtd_cas8_(at + 4, 0x88, 1) != 0x88 || words[1] != 0x55667701u)
		return "cas8";
	if (spmtd_cas16_(at + 6, 0x5566, 0xabcd) != 0x5566 || words[1] != 0xabcd7701u)
		return "cas16";
	if (spmtd_swap8_(at + 5, 0x12) != 0x77 || spmtd_swap16_(at + 4, 0x3456) != 0x1201 ||
		words[1] != 0xabcd3456u)
		return "swap";
	if (spmtd_and8_(at, 0x0f) != 0x44 || spmtd_or8_(at, 0xf0) != 0x04 ||
		spmtd_xor8_(at, 0xff) != 0xf4)
		return "bits of 8";
	if (spmtd_and16_(at, 0xff00) != 0x320b || spmtd_or16_(at, 0x0001) != 0x3200 ||
		spmtd_xor16_(at, 0x1111) != 0x3201)
		return "bits of 16";
	words[2] = 5;
	interference = 3;
	if (spmtd_add8_(at + 8, 3) != 5 || words[2] != 0xff000008u)
		return "a compare-and-swap that met another";
	return NULL;
}

int main(void)
{
	for (size_t i = 0; i < sizeof(space.src); i++)
		/* No round's length apart, a multiple of 16 KiB, are bytes alike. */
		space.src[i] = (unsigned char)((uint32_t)i * 2654435761u >> 24);
	puts("1..7");
	copies("bulk put", 0);
	copies("bulk get", 1);
	copies("bulk copy of device memory", 2);
	copies("put with single accesses", 3);
	copies("get with single accesses", 4);
	copies("put by a block", 5);
	report("8- and 16-bit atomics by compare-and-swap", parts());
	return failures != 0;
}
