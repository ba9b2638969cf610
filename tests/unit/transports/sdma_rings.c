/* SPDX-License-Identifier: MIT */
/* Packets of AMD's engines word by word, what the engine of software refuses, and a ring whose engine goes on only when told. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fault.h"
#include "src/base/status.h"
#include "src/device/sdma/engine.h"
#include "tests/lib/patterns.h"
#include "transports/sdma/ring.h"

enum { RING = 4096 };

/* ---- a queue served by hand */

static struct hand {
	struct sdma_queue queue;
	struct sdma_engine engine;
	_Alignas(64) uint32_t ring[RING / 4];
	_Atomic uint64_t read, write, completed, bell;
	const char *beyond; /* memory that the device does not reach */
	int rings;
} hand;

static const struct sdma_format formats[] = {
	{ SDMA_V4, 22, 64, true },
	{ SDMA_V4, 22, 256, false },
	{ SDMA_V5, 30, 64, true },
	{ SDMA_V5, 22, 64, false },
};

static bool hand_reach(int dev, const void *ptr, size_t n)
{
	return dev == 3 &&
		!(hand.beyond >= (const char *)ptr && hand.beyond < (const char *)ptr + n);
}

static void hand_move(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
}

static void hand_reset(const struct sdma_format *f)
{
	memset(&hand, 0, sizeof(hand));
	hand.queue = (struct sdma_queue){ .format = *f, .ring = hand.ring, .size = RING };
	hand.queue.read = &hand.read;
	hand.queue.write = &hand.write;
	hand.queue.completed = &hand.completed;
	strcpy(hand.queue.engine, "by hand");
	hand.engine = (struct sdma_engine){ &hand.queue, 3, hand_reach, hand_move };
	hand.read = hand.write = hand.completed = hand.bell = 0 - 2 * (uint64_t)RING;
}

static int hand_check(int src, int dst, char reason[DEVICE_REASON])
{
	(void)src;
	(void)dst;
	reason[0] = '\0';
	return 0;
}

static int hand_open(int src, int dst, struct sdma_queue **queue)
{
	(void)src;
	(void)dst;
	*queue = &hand.queue;
	return 0;
}

static void hand_close(struct sdma_queue *queue)
{
	(void)queue;
}

static void hand_doorbell(struct sdma_queue *queue, uint64_t end)
{
	(void)queue;
	hand.write = end;
	hand.bell = end;
	hand.rings++;
}

static bool hand_reaches(int src, const void *ptr, size_t n)
{
	(void)src;
	return hand_reach(3, ptr, n);
}

static const struct device_sdma_ops hand_ops = { hand_check, hand_open, hand_close, hand_doorbell,
	hand_reaches };
static struct backend hand_backend = { .name = "hand", .sdma = &hand_ops };

/* One packet, told up to `end`. */
static int step(uint64_t end)
{
	hand.write = end;
	return sdma_engine_step(&hand.engine, end);
}

/* Serves what was told; how many packets. */
static int hand_serve(void)
{
	int n = 0, rc;

	while ((rc = sdma_engine_step(&hand.engine, hand.bell)) > 0)
		n++;
	cr_expect_eq(rc, 0, "%s", hand.queue.why);
	return n;
}

/* ---- words: of vega10_sdma_pkt_open.h, navi10_sdma_pkt_open.h, sdma_registers.h, put together by hand */

#define FAR ((void *)0x7f1122334454)
#define NEAR ((const void *)0x7e5566778899)

Test(sdma_rings, a_copy_word_by_word)
{
	const uint32_t want[] = { 0x00000001, 0x003fffdf, 0, 0x66778899, 0x00007e55, 0x22334454,
		0x00007f11 };
	uint32_t got[8] = { 0 };

	cr_assert_eq(sdma_copy_most(&formats[0]), 0x3fffe0);
	cr_assert_eq(sdma_copy_most(&formats[2]), 0x3fffffe0);
	cr_assert_eq(sdma_put_copy(got, FAR, NEAR, 0x3fffe0), got + 7);
	cr_assert_arr_eq(got, want, sizeof(want));
	cr_assert_eq(sdma_put_copy(got, FAR, NEAR, 1), got + 7);
	cr_assert_eq(got[1], 0);
	cr_assert_eq(sdma_copies(&formats[0], 0x3fffe0), 1);
	cr_assert_eq(sdma_copies(&formats[0], 0x3fffe1), 2);
}

Test(sdma_rings, a_fence_word_by_word)
{
	const uint32_t four[] = { 0x00000005, 0x22334454, 0x00007f11, 0xcafe0123 };
	const uint32_t five[] = { 0x00030005, 0x22334454, 0x00007f11, 0xcafe0123 };
	uint32_t got[4];

	cr_assert_eq(sdma_put_fence(&formats[0], got, FAR, 0xcafe0123), got + 4);
	cr_assert_arr_eq(got, four, sizeof(four));
	cr_assert_eq(sdma_put_fence(&formats[2], got, FAR, 0xcafe0123), got + 4);
	cr_assert_arr_eq(got, five, sizeof(five));
}

Test(sdma_rings, other_packets_word_by_word)
{
	const uint32_t add[] = { 0x5e00000a, 0x22334454, 0x00007f11, 0x89abcdef, 0x01234567, 0, 0,
		0 };
	const uint32_t poll[] = { 0xb0000008, 0x22334454, 0x00007f11, 7, 0xff, 0x0fff0004 };
	const uint32_t drop[] = { 0x00000111, 0, 0xc3c00000, 0, 0 };
	const uint32_t keep[] = { 0x00000111, 0, 0x80400000, 0, 0 };
	const uint32_t nop[] = { 0x00020000, 0, 0 };
	uint32_t got[8];

	cr_assert_eq(sdma_put_add(got, FAR, 0x0123456789abcdef), got + 8);
	cr_assert_arr_eq(got, add, sizeof(add));
	cr_assert_eq(sdma_put_poll(got, FAR, SDMA_EQUAL, 7, 0xff), got + 6);
	cr_assert_arr_eq(got, poll, sizeof(poll));
	cr_assert_eq(sdma_put_cache(got, true), got + 5);
	cr_assert_arr_eq(got, drop, sizeof(drop));
	cr_assert_eq(sdma_put_cache(got, false), got + 5);
	cr_assert_arr_eq(got, keep, sizeof(keep));
	cr_assert_eq(sdma_put_nop(got, 3), got + 3);
	cr_assert_arr_eq(got, nop, sizeof(nop));
	cr_assert_eq(sdma_put_nop(got, 0), got);
}

Test(sdma_rings, more_nothing_than_one_packet_holds)
{
	size_t n = 3 * SDMA_NOP_MOST + 5, seen = 0;
	uint32_t *words = malloc(n * sizeof(*words));

	memset(words, 0xff, n * sizeof(*words));
	cr_assert_eq(sdma_put_nop(words, n), words + n);
	while (seen < n)
		seen += 1 + (words[seen] >> 16);
	cr_assert_eq(seen, n);
	free(words);
}

/* ---- what the engine refuses */

/* The first packet of a fresh ring, told in `words` words rounded up to a unit. */
static int judge(const struct sdma_format *f, const uint32_t *packet, size_t words)
{
	hand_reset(f);
	memcpy(hand.ring, packet, words * sizeof(*packet));
	return step(hand.read + align_up(words * 4, f->unit));
}

static void refused(
	const struct sdma_format *f, const uint32_t *packet, size_t words, const char *why)
{
	uint64_t read;

	cr_expect_eq(judge(f, packet, words), -EIO, "%s", why);
	read = hand.read;
	cr_expect_not_null(strstr(hand.queue.why, why), "%s: %s", why, hand.queue.why);
	cr_expect_eq(hand.queue.error, -EIO);
	cr_expect_eq(step(read + 64), -EIO, "it stays so");
	cr_expect_eq(hand.read, read);
}

Test(sdma_rings, the_engine_refuses_copies)
{
	static char from[256], to[256];
	uint32_t p[8];

	sdma_put_copy(p, to, from, 256);
	cr_assert_eq(judge(&formats[0], p, 7), 1);
	p[1] = 0x3fffe0;
	refused(&formats[0], p, 7, "at most 4194272 are moved at once");
	p[1] = 0x400000;
	refused(&formats[3], p, 7, "at most");
	p[1] = 255;
	p[0] |= 1u << 27; /* to two places */
	refused(&formats[0], p, 7, "bits 0x8000000 are not known");
	p[0] = 0x401;
	refused(&formats[0], p, 7, "operation 1, 4 is unknown");
	sdma_put_copy(p, to, from, 256);
	p[2] = 1 << 16;
	refused(&formats[0], p, 7, "parameters 0x10000");
	sdma_put_copy(p, from + 16, from, 17);
	refused(&formats[0], p, 7, "overlap");
	sdma_put_copy(p, from, from + 16, 17);
	refused(&formats[0], p, 7, "overlap");
	sdma_put_copy(p, to, NULL, 8);
	refused(&formats[0], p, 7, "are no memory");
	sdma_put_copy(p, (void *)((uintptr_t)1 << 47), from, 8);
	refused(&formats[0], p, 7, "are no memory");
}

Test(sdma_rings, the_engine_refuses_words)
{
	static _Alignas(8) uint32_t words[4];
	uint32_t p[8];

	sdma_put_fence(&formats[0], p, (char *)words + 2, 1);
	refused(&formats[0], p, 4, "is not a multiple of 4");
	sdma_put_fence(&formats[2], p, words, 1);
	refused(&formats[0], p, 4, "bits 0x30000 are not known");
	sdma_put_add(p, words + 1, 1);
	refused(&formats[0], p, 8, "is not a multiple of 8");
	sdma_put_add(p, words, 1);
	p[0] ^= 1u << 25;
	refused(&formats[0], p, 8, "atomic operation 46 is not done");
	sdma_put_add(p, words, 1);
	p[5] = 1;
	refused(&formats[0], p, 8, "compares nothing");
	sdma_put_poll(p, words, SDMA_EQUAL, 1, ~0u);
	p[0] &= ~SDMA_POLL_MEMORY;
	refused(&formats[0], p, 6, "only words of memory");
	sdma_put_poll(p, words, SDMA_EQUAL, 1, ~0u);
	p[5] = 4;
	refused(&formats[0], p, 6, "gives up");
	sdma_put_cache(p, true);
	refused(&formats[0], p, 5, "caches are SDMA 5's");
	p[1] = 128;
	refused(&formats[2], p, 5, "all addresses");
	p[0] = 2;
	refused(&formats[2], p, 1, "operation 2 is unknown");
	p[0] = 0x80000000;
	refused(&formats[2], p, 1, "not known");
}

Test(sdma_rings, the_engine_refuses_what_is_torn)
{
	uint32_t p[16] = { 0 };

	p[0] = 16u << SDMA_NOP_SHIFT;
	refused(&formats[0], p, 16, "17 words, of which 16 are there");
	hand_reset(&formats[0]);
	cr_assert_eq(step(hand.read + 60), -EIO);
	cr_assert_not_null(strstr(hand.queue.why, "the doorbell says"), "%s", hand.queue.why);
	hand_reset(&formats[0]);
	cr_assert_eq(step(hand.read - 64), -EIO, "backwards");
	hand_reset(&formats[0]);
	cr_assert_eq(sdma_engine_step(&hand.engine, hand.read + 64), -EIO);
	cr_assert_not_null(
		strstr(hand.queue.why, "before the write pointer does"), "%s", hand.queue.why);
	hand_reset(&formats[0]);
	hand.read += RING - 64;
	sdma_put_nop(hand.ring + RING / 4 - 16, 15);
	cr_assert_eq(step(hand.read + 128), 1);
	hand.ring[RING / 4 - 1] = 1u << SDMA_NOP_SHIFT;
	cr_assert_eq(step(hand.read + 68), -EIO, "over the ring's end");
	cr_assert_not_null(strstr(hand.queue.why, "2 words, of which 1"), "%s", hand.queue.why);
}

Test(sdma_rings, the_engine_refuses_what_it_does_not_reach)
{
	static char from[64], to[64];
	uint32_t p[8];

	for (int i = 0; i < 2; i++) {
		hand_reset(&formats[0]);
		sdma_put_copy(hand.ring, to, from, 64);
		hand.beyond = i ? to + 63 : from;
		cr_assert_eq(step(hand.read + 64), -EIO);
		cr_assert_not_null(strstr(hand.queue.why, "device 3 does not reach 64 bytes"), "%s",
			hand.queue.why);
	}
	sdma_put_copy(p, to, from, 64);
	cr_assert_eq(judge(&formats[0], p, 7), 1);
}

Test(sdma_rings, a_poll_holds_up_what_is_behind)
{
	static _Atomic uint32_t word;
	static const struct {
		enum sdma_compare how;
		uint32_t no, yes;
	} cases[] = {
		{ SDMA_LESS, 7, 6 },
		{ SDMA_LESS_EQUAL, 8, 7 },
		{ SDMA_EQUAL, 0, 7 },
		{ SDMA_NOT_EQUAL, 7, 8 },
		{ SDMA_GREATER_EQUAL, 6, 7 },
		{ SDMA_GREATER, 7, 0xf8 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		hand_reset(&formats[0]);
		word = cases[i].no | 0xff00;
		sdma_put_poll(hand.ring, (const void *)(uintptr_t)&word, cases[i].how, 7, 0xff);
		sdma_put_nop(hand.ring + 6, 10);
		cr_assert_eq(step(hand.read + 64), 0, "case %zu", i);
		word = cases[i].yes | 0x1200;
		cr_assert_eq(step(hand.read + 64), 1, "case %zu", i);
	}
}

/* ---- the ring */

static struct sdma_ring *ring;

static void open_ring(const struct sdma_format *f)
{
	hand_reset(f);
	cr_assert_eq(sdma_ring_open(&hand_backend, 0, 1, &ring), 0, "%s", status_sentence());
}

static int copy(void *dst, const void *src, size_t n, struct sdma_span *span)
{
	return sdma_ring_copy(ring, dst, src, n, 0, NULL, span);
}

Test(sdma_rings, a_ticket_is_done_when_the_engine_says_so)
{
	static char from[100], to[100];

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		struct sdma_span span, next;

		open_ring(&formats[i]);
		memset(from, (int)i + 1, sizeof(from));
		cr_assert_eq(copy(to, from, 100, &span), 0);
		cr_assert_eq(copy(to, from, 99, &next), 0);
		cr_assert_eq(hand.rings, 2);
		cr_assert_eq(next.begin, span.end);
		cr_assert_eq((span.end - span.begin) % formats[i].unit, 0);
		cr_assert_eq(sdma_ring_query(ring, span.end), 0);
		cr_assert_eq(sdma_engine_step(&hand.engine, hand.bell), 1);
		cr_assert_eq(sdma_ring_query(ring, span.end), 0, "packet by packet");
		hand_serve();
		cr_assert_eq(sdma_ring_query(ring, span.end), 1);
		cr_assert_eq(sdma_ring_query(ring, next.end), 1);
		cr_assert_eq(sdma_ring_query(ring, next.end + 1), 0);
		cr_assert_arr_eq(to, from, 100);
		sdma_ring_close(ring);
	}
}

Test(sdma_rings, a_full_ring_is_waited_for_until_the_deadline)
{
	static char from[64], to[64];

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		struct sdma_span span = { 0 }, last = { 0 };
		uint32_t stop = 1;
		int n = 0;

		open_ring(&formats[i]);
		while (!copy(to, from, 64, &span))
			n++;
		cr_assert_eq(copy(to, from, 64, &last), -ETIMEDOUT);
		cr_assert_eq(sdma_ring_copy(ring, to, from, 64, -1, &stop, &last), -ECANCELED);
		cr_assert_eq(last.end, 0, "nothing was submitted");
		cr_assert_eq(n, RING / (int)(span.end - span.begin) - 1, "%d of %d", n,
			(int)(span.end - span.begin));
		cr_assert_lt(hand.bell - hand.read, RING);
		hand_serve();
		cr_assert_eq(sdma_ring_query(ring, span.end), 1);
		cr_assert_eq(copy(to, from, 64, &span), 0);
		sdma_ring_close(ring);
	}
}

Test(sdma_rings, copies_of_every_size_go_round_the_ring)
{
	static unsigned char from[9000], to[9000];
	uint64_t seed = 5;

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		uint64_t begin;

		open_ring(&formats[i]);
		begin = hand.bell;
		for (int k = 0; k < 600; k++) {
			size_t n = 1 + random_next(&seed) % 9000;
			struct sdma_span span;

			pattern_fill(from, n, (uint64_t)k);
			memset(to, 0, sizeof(to));
			cr_assert_eq(copy(to, from, n, &span), 0);
			hand_serve();
			cr_assert_eq(sdma_ring_query(ring, span.end), 1);
			cr_assert_eq(pattern_differs(to, n, (uint64_t)k), SIZE_MAX);
		}
		cr_assert_gt(hand.bell - begin, 8 * RING, "it went round");
		cr_assert_lt(hand.bell, begin, "the numbers wrapped");
		sdma_ring_close(ring);
	}
}

/* A move in pieces: none is too long, none is left out. Nothing is read: the engine is asked for its packets alone. */
static size_t moved;

static void count_move(void *dst, const void *src, size_t n)
{
	(void)src;
	cr_assert_eq((uintptr_t)dst, 0x100000000 + moved);
	moved += n;
}

Test(sdma_rings, a_long_copy_is_cut_in_pieces)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		size_t sizes[] = { sdma_copy_most(&formats[i]) + 1, 0, 0 };

		open_ring(&formats[i]);
		hand.engine.move = count_move;
		sizes[1] = ring->most;
		sizes[2] = ring->most - 1;
		for (int k = 0; k < 3 && ring->most < (size_t)1 << 34; k++) {
			struct sdma_span span;

			moved = 0;
			cr_assert_eq(
				copy((void *)0x100000000, (void *)0x10000000000, sizes[k], &span),
				0);
			cr_assert_leq(span.end - span.begin, RING / 2);
			hand_serve();
			cr_assert_eq(moved, sizes[k]);
			cr_assert_eq(sdma_ring_query(ring, span.end), 1);
		}
		sdma_ring_close(ring);
	}
}

Test(sdma_rings, an_engine_that_stops_is_told_to_whom_it_concerns)
{
	static char from[64], to[64], bad[64];
	struct sdma_span before, culprit, behind;

	open_ring(&formats[1]);
	hand.beyond = bad;
	cr_assert_eq(copy(to, from, 64, &before), 0);
	cr_assert_eq(copy(bad, from, 64, &culprit), 0);
	cr_assert_eq(copy(to, from, 64, &behind), 0);
	while (sdma_engine_step(&hand.engine, hand.bell) > 0)
		;
	cr_assert_eq(sdma_ring_query(ring, before.end), 1);
	cr_assert_eq(sdma_ring_query(ring, culprit.end), -EIO);
	cr_assert_not_null(strstr(status_sentence(), "by hand: packet 0x00000001 at byte"), "%s",
		status_sentence());
	cr_assert_eq(sdma_ring_query(ring, behind.end), -EIO);
	cr_assert_not(sdma_ring_culprit(ring, &before));
	cr_assert(sdma_ring_culprit(ring, &culprit));
	cr_assert_not(sdma_ring_culprit(ring, &behind));
	cr_assert_eq(copy(to, from, 64, &before), -EIO, "it takes no more");
	sdma_ring_close(ring);
}

Test(sdma_rings, what_a_ring_needs_is_refused_in_turn)
{
	bool fired = true;
	int n = 0;

	cr_assert_eq(backend_host.load(), 0);
	while (fired) {
		int rc;

		ring = NULL;
		fault_arm(FAULT_ANY, (uint64_t)++n);
		rc = sdma_ring_open(&backend_host, 0, 1, &ring);
		fired = fault_fired();
		fault_disarm();
		cr_assert_eq(!rc, !fired, "request %d: %d", n, rc);
		sdma_ring_close(ring);
	}
	cr_assert_gt(n, 4);
}
