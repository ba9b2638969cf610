/* SPDX-License-Identifier: MIT */
/* Mover sdma: asynchrony, sharing, whose failure is whose, deadlines. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt.h"
#include "src/base/fault.h"
#include "two_worlds.h"

enum { MOST = 257, PAD = 8, ROOM = MOST + 2 * PAD };

static int get_nbi(struct link *link, void *local, const void *remote, size_t n)
{
	return links_get(links_sdma(link), local, remote, n, MOVE_NBI, NULL);
}

/* ---- bytes */

static void round_trip(enum move_mode mode, size_t n, size_t dst_off, size_t src_off)
{
	struct link *link = links_at(&l, 0, 1);
	unsigned char *far = (unsigned char *)link->base, *near = (unsigned char *)l.mem[0];
	unsigned char want[ROOM];

	for (size_t i = 0; i < ROOM; i++)
		near[i] = (unsigned char)(i * 5 + n);
	memset(far, 0xA5, ROOM);
	memset(want, 0xA5, ROOM);
	memcpy(want + dst_off, near + src_off, n);
	cr_assert_eq(links_put(links_sdma(link), far + dst_off, near + src_off, n, mode, NULL), 0);
	cr_assert_eq(mode == MOVE_NBI ? links_quiet(links_sdma(link)) : 0, 0);
	cr_assert_arr_eq(far, want, ROOM, "put %zu, %zu, %zu", n, dst_off, src_off);

	memset(near, 0x5A, ROOM);
	memset(want, 0x5A, ROOM);
	memcpy(want + src_off, far + dst_off, n);
	cr_assert_eq(links_get(links_sdma(link), near + src_off, far + dst_off, n, mode, NULL), 0);
	cr_assert_eq(mode == MOVE_NBI ? links_quiet(links_sdma(link)) : 0, 0);
	cr_assert_arr_eq(near, want, ROOM, "get %zu, %zu, %zu", n, dst_off, src_off);
}

Test(sdma, all_sizes_and_misalignments, .init = init, .fini = fini)
{
	for (size_t n = 1; n <= MOST; n++) {
		round_trip(MOVE_NBI, n, n % PAD, 0);
		round_trip(MOVE_NBI, n, 3, n % PAD);
		round_trip(MOVE_BLOCKING, n, n % 5, n % PAD);
	}
	cr_assert_eq(links_at(&l, 0, 1)->ops[MOVER_SDMA], 6ull * MOST);
	cr_assert_eq(links_at(&l, 0, 1)->ops[MOVER_STORE], 0);
}

Test(sdma, overlap_to_self_is_memmove, .init = init, .fini = fini)
{
	struct link *self = links_at(&l, 1, 1);
	char *mem = self->base, *model = malloc(SIZE);

	for (size_t shift = 1; shift < 70000; shift = shift * 4 + 1) {
		for (size_t i = 0; i < SIZE; i++)
			model[i] = mem[i] = (char)(i * 13 >> 4);
		memmove(model + shift, model, SIZE - shift);
		memmove(model, model + shift / 2, SIZE - shift);
		cr_assert_eq(put_nbi(self, mem + shift, mem, SIZE - shift), 0);
		cr_assert_eq(links_fence(links_sdma(self)), 0);
		cr_assert_eq(get_nbi(self, mem, mem + shift / 2, SIZE - shift), 0);
		cr_assert_eq(links_quiet(links_sdma(self)), 0);
		cr_assert_eq(memcmp(mem, model, SIZE), 0, "shift %zu", shift);
	}
	free(model);
}

/* ---- asynchrony */

Test(sdma, nbi_returns_before_the_bytes_have_moved, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1), *beside = links_at(&l, 0, 2);
	char *near = l.mem[0];
	struct latch latch;

	hold_copy_queue(link, &latch);
	memset(near, 7, 2 * 4096);
	cr_assert_eq(put_nbi(link, link->base + 4096, near, 4096), 0);
	cr_assert_eq(get_nbi(link, near + 8192, link->base, 5), 0);
	cr_assert(link->pending);
	cr_assert_eq(sdma_pending(link), 2);
	/* Moves that wait for nothing are done meanwhile. */
	cr_assert_eq(put_nbi(beside, beside->base, near, 4096), 0);
	cr_assert_eq(links_quiet(links_sdma(beside)), 0);
	cr_assert_eq(memcmp(beside->base, near, 4096), 0);
	cr_assert_eq(link->base[4096], 0);
	cr_assert_eq(near[8192], 0);
	latch_release(&latch);
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	cr_assert_eq(sdma_pending(link), 0);
	cr_assert_eq(memcmp(link->base + 4096, near, 4096), 0);
	cr_assert_str_eq(near + 8192, "warm");
}

Test(sdma, four_thousand_moves_in_flight, .init = init, .fini = fini)
{
	enum { MOVES = 4000 };
	struct link *link = links_at(&l, 0, 1);
	uint32_t *near = (uint32_t *)(void *)l.mem[0], *far = (uint32_t *)(void *)link->base;
	struct latch latch;

	hold_copy_queue(link, &latch);
	for (uint32_t i = 0; i < MOVES; i++) {
		near[i] = i + 1;
		cr_assert_eq(put_nbi(link, far + MOVES - 1 - i, near + i, 4), 0);
	}
	cr_assert_eq(sdma_pending(link), MOVES);
	cr_assert_eq(far[17], 0);
	latch_release(&latch);
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	for (uint32_t i = 0; i < MOVES; i++)
		cr_assert_eq(far[MOVES - 1 - i], i + 1);
}

Test(sdma, blocking_is_submit_and_wait, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct latch latch;

	hold_copy_queue(link, &latch);
	link->pending = false;
	l.timeout_ms = 30;
	cr_assert_eq(links_put(links_sdma(link), link->base + 64, "x", 2, MOVE_BLOCKING, NULL),
		SPMT_ERR_TIMEOUT);
	cr_assert(link->pending, "what may still move is left to quiet");
	latch_release(&latch);
	l.timeout_ms = 10000;
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	link->pending = false;
	cr_assert_eq(
		links_put(links_sdma(link), link->base + 128, "done", 5, MOVE_BLOCKING, NULL), 0);
	cr_assert_str_eq(link->base + 128, "done");
	cr_assert_not(link->pending);
}

Test(sdma, a_stream_move_uses_the_callers_stream, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1), *beside = links_at(&l, 0, 2);
	device_stream own;
	struct latch latch;

	cr_assert_eq(latch_hold(&latch, &backend_host, 0, link->stream), 0);
	cr_assert_eq(
		links_put(links_sdma(link), link->base, "user", 5, MOVE_STREAM, link->stream), 0);
	cr_assert_eq(sdma_stream(link, 0, &own), -ENOENT, "no copy queue was needed");
	cr_assert_eq(
		links_put(links_sdma(beside), beside->base, "user", 5, MOVE_BLOCKING, NULL), 0);
	cr_assert_str_eq(beside->base, "user");
	cr_assert_eq(link->base[0], 0);
	latch_release(&latch);
	cr_assert_eq(backend_host.stream_sync(0, link->stream, -1, NULL), 0);
	cr_assert_str_eq(link->base, "user");
	cr_assert_eq(link->ops[MOVER_SDMA], 1);
}

Test(sdma, fence_waits_for_the_links_own_moves, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct latch latch;

	hold_copy_queue(link, &latch);
	cr_assert_eq(put_nbi(link, link->base + 64, "fenced", 7), 0);
	l.timeout_ms = 30;
	cr_assert_eq(links_fence(links_sdma(link)), SPMT_ERR_TIMEOUT);
	latch_release(&latch);
	l.timeout_ms = 10000;
	cr_assert_eq(links_fence(links_sdma(link)), 0);
	cr_assert_str_eq(link->base + 64, "fenced");
}

static void *release_later(void *arg)
{
	usleep(50000);
	latch_release(arg);
	return NULL;
}

Test(sdma, quiet_ends_at_its_deadline_but_not_at_the_stop_word, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct latch latch;
	pthread_t thread;

	hold_copy_queue(link, &latch);
	cr_assert_eq(put_nbi(link, link->base + 64, "slow", 5), 0);
	l.timeout_ms = 30;
	cr_assert_eq(links_quiet(links_sdma(link)), SPMT_ERR_TIMEOUT);
	cr_assert_not_null(strstr(status_sentence(), "rank 1"), "%s", status_sentence());
	cr_assert_not_null(strstr(status_sentence(), "SPMT_TIMEOUT_MS"), "%s", status_sentence());
	cr_assert_eq(sdma_pending(link), 1, "the move is not forgotten");
	l.timeout_ms = -1;
	__atomic_store_n(&l.stop, 1, __ATOMIC_RELEASE);
	cr_assert_eq(pthread_create(&thread, NULL, release_later, &latch), 0);
	cr_assert_eq(links_quiet(links_sdma(link)), 0, "the engine goes on in a broken world");
	cr_assert_str_eq(link->base + 64, "slow");
	cr_assert_eq(sdma_pending(link), 0);
	pthread_join(thread, NULL);
}

/* ---- sharing */

Test(sdma, links_of_one_pair_share_a_channel, .init = init, .fini = fini)
{
	struct link *a = links_at(&l, 0, 1), *b = links_at(&other, 0, 1);
	struct link *back = links_at(&l, 1, 0);
	device_stream sa, sb, sc;

	cr_assert_eq(copy_queues_live(), 0);
	cr_assert_eq(put_nbi(a, a->base, "a", 2), 0);
	cr_assert_eq(put_nbi(b, b->base, "b", 2), 0);
	cr_assert_eq(get_nbi(back, l.mem[1] + 64, back->base, 2), 0);
	cr_assert_eq(sdma_stream(a, 0, &sa), 0);
	cr_assert_eq(sdma_stream(b, 0, &sb), 0);
	cr_assert_eq(sdma_stream(back, 0, &sc), 0);
	cr_assert_eq(sa, sb);
	cr_assert_neq(sa, sc);
	cr_assert_eq(copy_queues_live(), 2);
	mover_sdma.close(links_sdma(a));
	mover_sdma.close(links_sdma(a));
	cr_assert_eq(copy_queues_live(), 2);
	cr_assert_eq(links_quiet(links_sdma(b)), 0);
	cr_assert_str_eq(b->base, "b");
	mover_sdma.close(links_sdma(b));
	cr_assert_eq(copy_queues_live(), 1);
}

Test(sdma, quiet_waits_for_nobody_elses_moves, .init = init, .fini = fini)
{
	struct link *a = links_at(&l, 0, 1), *b = links_at(&other, 0, 1);
	struct latch first, second;
	device_stream s;

	hold_copy_queue(a, &first);
	cr_assert_eq(put_nbi(a, a->base + 64, "mine", 5), 0);
	cr_assert_eq(sdma_stream(a, 0, &s), 0);
	second = (struct latch){ .open = 0 };
	latch_release(&first);
	cr_assert_eq(latch_hold(&second, &backend_host, 0, s), 0);
	cr_assert_eq(put_nbi(b, b->base + 64, "theirs", 7), 0);
	cr_assert_eq(links_quiet(links_sdma(a)), 0);
	cr_assert_str_eq(a->base + 64, "mine");
	cr_assert_eq(sdma_pending(b), 1);
	cr_assert_eq(b->base[64], 0);
	latch_release(&second);
	cr_assert_eq(links_quiet(links_sdma(b)), 0);
	cr_assert_str_eq(b->base + 64, "theirs");
}

Test(sdma, spmt_channels_spreads_moves_over_streams, .fini = fini)
{
	struct link *link;
	device_stream s[5];
	struct latch latch;

	setenv("SPMT_CHANNELS", "4", 1);
	init();
	link = links_at(&l, 0, 1);
	hold_copy_queue(link, &latch);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(sdma_stream(link, i, &s[i]), 0);
	cr_assert_eq(sdma_stream(link, 4, &s[4]), -ENOENT);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(put_nbi(link, link->base + 64 + i, "x", 1), 0);
	for (int i = 0; i < 4; i++)
		cr_assert(i == 0 || s[i] != s[i - 1]);
	for (int i = 1; i < 4; i++)
		cr_assert_eq(backend_host.stream_sync(0, s[i], -1, NULL), 0);
	cr_assert_eq(memchr(link->base + 64, 0, 4) != NULL, 1, "one is held");
	latch_release(&latch);
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	cr_assert_arr_eq(link->base + 64, "xxxx", 4);
}

/* ---- whose failure */

/* a's move goes to memory that is freed while the move is queued; b's moves lie before and behind it in the same stream. */
Test(sdma, a_failure_is_told_once_and_to_its_own_link, .init = init, .fini = fini)
{
	struct link *a = links_at(&l, 0, 1), *b = links_at(&other, 0, 1);
	device_stream dead, fresh;
	struct latch latch;
	void *gone;

	cr_assert_eq(backend_host.alloc(1, 4096, DEVICE_MEMORY_PLAIN, &gone), 0);
	hold_copy_queue(a, &latch);
	cr_assert_eq(sdma_stream(a, 0, &dead), 0);
	cr_assert_eq(put_nbi(b, b->base + 64, "before", 7), 0);
	cr_assert_eq(put_nbi(a, a->base + 64, "first", 6), 0);
	cr_assert_eq(put_nbi(a, gone, "lost", 5), 0);
	cr_assert_eq(put_nbi(a, a->base + 128, "last", 5), 0);
	cr_assert_eq(put_nbi(b, b->base + 128, "behind", 7), 0);
	cr_assert_eq(backend_host.free(1, gone), 0);
	latch_release(&latch);

	cr_assert_eq(links_quiet(links_sdma(b)), 0, "%s", status_sentence());
	cr_assert_str_eq(b->base + 64, "before");
	cr_assert_str_eq(b->base + 128, "behind");
	cr_assert_lt(links_fence(links_sdma(a)), 0, "no signal may follow");
	cr_assert_lt(links_quiet(links_sdma(a)), 0);
	cr_assert_not_null(strstr(status_sentence(), "copy of 5 bytes"), "%s", status_sentence());
	cr_assert_eq(links_quiet(links_sdma(a)), 0, "once");
	cr_assert_str_eq(a->base + 64, "first");
	cr_assert_str_eq(a->base + 128, "last");
	cr_assert_eq(links_quiet(links_sdma(b)), 0);

	cr_assert_eq(sdma_stream(a, 0, &fresh), 0);
	cr_assert_neq(fresh, dead, "a failed stream is replaced");
	cr_assert_eq(put_nbi(a, a->base + 192, "again", 6), 0);
	cr_assert_eq(put_nbi(b, b->base + 192, "again", 6), 0);
	cr_assert_eq(links_quiet(links_sdma(a)), 0);
	cr_assert_eq(links_quiet(links_sdma(b)), 0);
	cr_assert_str_eq(a->base + 192, "again");
	cr_assert_str_eq(b->base + 192, "again");
	cr_assert_eq(backend_host.stream_query(0, fresh), 1);
	cr_assert_eq(copy_queues_live(), 1);
}

/* Moves of a link that has its copy queue to itself, where the one numbered `lost` goes to memory that is freed while it is queued.
   All others have to arrive, each in its own place. */
static void lose_one(uint32_t moves, uint32_t lost)
{
	struct link *a = links_at(&l, 0, 1);
	uint32_t *near = (uint32_t *)(void *)l.mem[0], *far = (uint32_t *)(void *)a->base;
	struct latch latch;
	void *gone;

	cr_assert_eq(backend_host.alloc(1, 4096, DEVICE_MEMORY_PLAIN, &gone), 0);
	hold_copy_queue(a, &latch);
	for (uint32_t i = 0; i < moves; i++) {
		near[i] = i + 1;
		far[moves - 1 - i] = 0;
		cr_assert_eq(put_nbi(a, i == lost ? gone : far + moves - 1 - i, near + i, 4), 0);
	}
	cr_assert_eq(sdma_pending(a), moves);
	cr_assert_eq(backend_host.free(1, gone), 0);
	latch_release(&latch);
	cr_assert_lt(links_quiet(links_sdma(a)), 0);
	cr_assert_not_null(strstr(status_sentence(), "copy of 4 bytes"), "%s", status_sentence());
	cr_assert_eq(links_quiet(links_sdma(a)), 0, "once");
	for (uint32_t i = 0; i < moves; i++)
		cr_assert_eq(far[moves - 1 - i], i == lost ? 0 : i + 1, "move %u of %u", i, moves);
}

Test(sdma, what_is_queued_behind_a_failure_is_done_again, .init = init, .fini = fini)
{
	lose_one(3, 1);
	lose_one(3, 0);
}

/* More than the link remembers at first. */
Test(sdma, a_failure_among_many_moves, .init = init, .fini = fini)
{
	lose_one(40, 20);
	lose_one(200, 3);
}

/* On a stream that another link has brought down, moves are accepted, and blocking ones are told apart as well. */
Test(sdma, a_failed_stream_serves_the_others_on, .init = init, .fini = fini)
{
	struct link *a = links_at(&l, 0, 1), *b = links_at(&other, 0, 1);
	struct latch latch;
	device_stream s;
	void *gone;

	cr_assert_eq(backend_host.alloc(1, 4096, DEVICE_MEMORY_PLAIN, &gone), 0);
	hold_copy_queue(a, &latch);
	cr_assert_eq(sdma_stream(a, 0, &s), 0);
	cr_assert_eq(put_nbi(a, gone, "lost", 5), 0);
	cr_assert_eq(backend_host.free(1, gone), 0);
	latch_release(&latch);
	cr_assert_lt(backend_host.stream_sync(0, s, -1, NULL), 0, "the stream has failed");
	cr_assert_eq(links_put(links_sdma(b), b->base, "block", 6, MOVE_BLOCKING, NULL), 0);
	cr_assert_str_eq(b->base, "block");
	cr_assert_eq(links_put(links_sdma(a), a->base, "mine", 5, MOVE_BLOCKING, NULL), 0,
		"not this one");
	cr_assert_str_eq(a->base, "mine");
	cr_assert_lt(links_quiet(links_sdma(a)), 0);
	cr_assert_eq(links_quiet(links_sdma(a)), 0);
	cr_assert_eq(links_quiet(links_sdma(b)), 0);
}

Test(sdma, a_move_that_is_refused_is_not_left_to_quiet, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);

	cr_assert_eq(put_nbi(link, link->base, "warm", 5), 0);
	for (uint64_t i = 0; i < 2; i++) {
		fault_arm(1u << FAULT_DEVICE, 1);
		cr_assert_eq(links_put(links_sdma(link), link->base + 64, "no", 3,
				     i ? MOVE_BLOCKING : MOVE_NBI, NULL),
			-EIO);
		fault_disarm();
	}
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	cr_assert_eq(link->base[64], 0);
	cr_assert_eq(link->ops[MOVER_SDMA], 1);
}
