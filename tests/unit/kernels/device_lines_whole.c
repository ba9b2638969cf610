/* SPDX-License-Identifier: MIT */
/*
 * Lines as warps of NVIDIA GPUs put and get them, lane by lane, here: which lane has which bytes of which line. That a warp's stores to a
 * line stay together only a GPU shows; a lane that waits asks for itself.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "spmt_device/copy.h"
#include "spmt_device/fifo.h"
#include "spmt_device/wait.h"

static uint32_t own_lane, own_lanes;

#define SPMTD_LINES_WHOLE 1
#define spmtd_lane_(scope) ((void)(scope), own_lane)
#define spmtd_lanes_(scope) ((void)(scope), own_lanes)
#include "spmt_device/packet.h"
#undef spmtd_lane_
#undef spmtd_lanes_
#include "tests/lib/device/plain_views.h"

enum {
	RANKS = 3,
	HEAP = 65536,
	DATA = 120,
	LINE = 128,
	MANY = 67 * DATA,
	HERE = 16384,
	THERE = 32768,
	ROOM = 70 * LINE
};

static struct views world;
static struct spmt_view me; /* rank 1 of 3 */

static void open_world(void)
{
	cr_assert_eq(views_open(&world, RANKS, HEAP, false), 0);
	me = view_of(&world, 1);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_lines_whole, .init = open_world, .fini = close_world, .timeout = 60);

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static char src[MANY + 64], got[MANY + 64];

static void scramble(uint64_t seed)
{
	for (size_t i = 0; i < sizeof(src); i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		src[i] = (char)(seed >> 56);
	}
}

/* In an order that the seed chooses; every lane gives 0. 7 divides no number of lanes. */
static void by_all(uint32_t lanes, uint32_t seed, int (*call)(size_t n, uint64_t flag), size_t n,
	uint64_t flag)
{
	own_lanes = lanes;
	for (uint32_t i = 0; i < lanes; i++) {
		own_lane = (i * 7 + seed) % lanes;
		cr_assert_eq(call(n, flag), 0, "lane %u of %u, %zu bytes", own_lane, lanes, n);
	}
}

static int put(size_t n, uint64_t flag)
{
	return spmtd_put_lines_warp(&me, at(1, HERE), src + n % 9, n, flag, 2);
}

static int forward(size_t n, uint64_t flag)
{
	return spmtd_forward_lines_block(
		&me, at(1, THERE), n % 2 ? got + n % 5 : NULL, at(2, HERE), n, flag, 0);
}

static int get(size_t n, uint64_t flag)
{
	return spmtd_get_lines_block(&me, got + n % 5, at(2, HERE), n, flag);
}

static void check_lines(const char *lines, size_t n, uint64_t flag)
{
	size_t room = spmtd_lines_room(n);

	for (size_t i = 0; i < room; i++) {
		size_t part = i % LINE, from = i / LINE * DATA + part;

		if (part < DATA)
			cr_assert_eq(lines[i], from < n ? src[n % 9 + from] : 0, "byte %zu, of %zu",
				i, n);
		else if (part == DATA)
			cr_assert(!memcmp(lines + i, &flag, sizeof(flag)), "flag at %zu, of %zu", i,
				n);
	}
	for (size_t i = room; i < room + LINE; i++)
		cr_assert_eq(lines[i], 0x55, "%zu bytes written behind the lines", n);
}

static void check_got(size_t n)
{
	cr_assert(!memcmp(got + n % 5, src + n % 9, n), "%zu bytes", n);
	cr_assert_eq(got[n % 5 + n], 0x55);
	cr_assert(!(n % 5) || got[n % 5 - 1] == 0x55);
}

/* From 8 lanes on lines go whole; lanes that make no whole line have none. */
Test(device_lines_whole, every_size_by_every_number_of_lanes)
{
	static const uint32_t lanes[] = { 8, 13, 16, 20, 32, 64, 256, 1024 };
	uint64_t flag = 1;

	for (size_t k = 0; k < sizeof(lanes) / sizeof(lanes[0]); k++)
		for (size_t n = 0; n <= MANY;
			n += n < 5 * DATA ? 1 : 349, flag += 0x1000000000000001u) {
			uint32_t seed = (uint32_t)flag % lanes[k];

			if (lanes[k] > 32 && n % 3)
				continue;
			scramble(flag);
			memset(at(2, HERE), 0x55, ROOM);
			memset(at(0, THERE), 0x55, ROOM);
			memset(got, 0x55, sizeof(got));
			by_all(lanes[k], seed, put, n, flag);
			check_lines(at(2, HERE), n, flag);
			by_all(lanes[k], seed, get, n, flag);
			check_got(n);
			memset(got, 0x55, sizeof(got));
			by_all(lanes[k], seed, forward, n, flag);
			check_lines(at(0, THERE), n, flag);
			if (n % 2)
				check_got(n);
		}
}

/* The flag's lane alone sees that a line is missing, and says which. */
Test(device_lines_whole, a_missing_line_is_told_by_its_flags_lane)
{
	struct spmtd_record *r = &world.records[1];
	const size_t n = 21 * DATA + 5;

	me.timeout_ns = 1000000;
	scramble(5);
	by_all(32, 0, put, n, 7);
	for (size_t line = 0; line < 22; line++) {
		size_t where = HERE + line * LINE + DATA;

		*at(2, where) = 6;
		own_lanes = 32;
		for (own_lane = 0; own_lane < 32; own_lane++) {
			bool its = own_lane == line % 4 * 8 + 7;

			r->valid = 0;
			cr_assert_eq(get(n, 7), its ? SPMTD_TIMEOUT : 0, "line %zu, lane %u", line,
				own_lane);
			cr_assert_eq(r->valid != 0, its);
			if (its)
				cr_expect(r->expected == 7 && r->seen == 6 &&
					r->address == (uint64_t)(uintptr_t)at(2, where));
		}
		*at(2, where) = 7;
	}
	world.stop = 1;
	*at(2, HERE + DATA) = 6;
	own_lane = 7;
	cr_expect_eq(get(n, 7), SPMTD_ABORTED);
}

Test(device_lines_whole, is_said)
{
	uint64_t base = world.peers[2].base;

	cr_expect_eq(spmtd_lines_whole(&me, 2), 1);
	world.peers[2].base = 0;
	cr_expect_eq(spmtd_lines_whole(&me, 2), 0);
	world.peers[2].base = base;
}
