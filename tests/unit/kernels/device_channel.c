/* SPDX-License-Identifier: MIT */
/* Channels of the device header, in every form: signals, puts, gets, packets. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"

enum { HEAP = 65536, LOCAL = 1024, REMOTE = 16384, SIZE = 8192, MOST = 1000 };

static struct views world;
static struct spmt_view me;	 /* rank 1 of 3 */
static struct spmt_channel to;	 /* its channel to rank 2 */
static struct spmt_channel back; /* rank 2's to it */
static struct spmt_view peer;
static char before[3 * HEAP]; /* what the heaps have to be */

static void open_world(void)
{
	cr_assert_eq(views_open(&world, 3, HEAP, true), 0);
	me = view_of(&world, 1);
	peer = view_of(&world, 2);
	to = channel_of(&world, 1, 2, 5, LOCAL, REMOTE, SIZE);
	back = channel_of(&world, 2, 1, 5, LOCAL, REMOTE, SIZE);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_channel, .init = open_world, .fini = close_world, .timeout = 60);

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static void scramble_all(uint32_t seed)
{
	for (int pe = 0; pe < 3; pe++)
		for (size_t i = 0; i < HEAP; i++) {
			seed = seed * 1664525u + 1013904223u;
			before[(size_t)pe * HEAP + i] = (char)(seed >> 24);
		}
	for (int pe = 0; pe < 3; pe++)
		memcpy(at(pe, 0), before + (size_t)pe * HEAP, HEAP);
}

static void check_all(const char *what, size_t form, size_t n)
{
	for (int pe = 0; pe < 3; pe++)
		if (memcmp(at(pe, 0), before + (size_t)pe * HEAP, HEAP))
			for (size_t i = 0; i < HEAP; i++)
				cr_assert_eq(at(pe, 0)[i], before[(size_t)pe * HEAP + i],
					"%s, form %zu, %zu bytes: byte %zu of rank %d", what, form,
					n, i, pe);
}

/* ---- put and get ------------------------------------------------------------------------------ */

typedef void move_fn(const struct spmt_view *, const struct spmt_channel *, size_t, size_t, size_t);

#define GROUP(call, blocks)                                                                  \
	static void call##_##blocks(const struct spmt_view *v, const struct spmt_channel *c, \
		size_t dst, size_t src, size_t n)                                            \
	{                                                                                    \
		for (uint32_t i = blocks; i-- > 0;)                                          \
			spmtd_channel_##call##_group(v, c, dst, src, n, i, blocks);          \
		spmtd_channel_##call##_group(v, c, dst, src, n, blocks, blocks); /* none */  \
	}
GROUP(put, 1)
GROUP(put, 3)
GROUP(put, 7)
GROUP(get, 1)
GROUP(get, 3)
GROUP(get, 7)

static move_fn *const puts_of[] = { spmtd_channel_put, spmtd_channel_put_warp,
	spmtd_channel_put_block, spmtd_channel_put_signal, spmtd_channel_put_signal_warp,
	spmtd_channel_put_signal_block, put_1, put_3, put_7 };
static move_fn *const gets_of[] = { spmtd_channel_get, spmtd_channel_get_warp,
	spmtd_channel_get_block, get_1, get_3, get_7 };
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const size_t sizes[] = { 0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 127, 128, 129, 500, 512,
	MOST };

Test(device_channel, puts_at_offsets)
{
	for (size_t f = 0; f < COUNT(puts_of); f++)
		for (size_t k = 0; k < COUNT(sizes); k++) {
			size_t n = sizes[k], dst = 64 + k % 5, src = 128 + f % 3;

			scramble_all((uint32_t)(f * 100 + k));
			memcpy(before + 2 * HEAP + REMOTE + dst, before + HEAP + LOCAL + src, n);
			puts_of[f](&me, &to, dst, src, n);
			check_all("put", f, n);
		}
}

Test(device_channel, gets_at_offsets)
{
	for (size_t f = 0; f < COUNT(gets_of); f++)
		for (size_t k = 0; k < COUNT(sizes); k++) {
			size_t n = sizes[k], dst = 64 + k % 5, src = 128 + f % 3;

			scramble_all((uint32_t)(f * 100 + k));
			memcpy(before + HEAP + LOCAL + dst, before + 2 * HEAP + REMOTE + src, n);
			gets_of[f](&me, &to, dst, src, n);
			check_all("get", f, n);
		}
}

/* Shares of any number of blocks are all of it, once, and but the last of whole lines. */
Test(device_channel, shares_of_blocks)
{
	for (uint32_t blocks = 1; blocks < 9; blocks++)
		for (uint64_t n = 0; n < 3000; n += 37) {
			uint64_t at = 0;

			for (uint32_t i = 0; i < blocks; i++) {
				struct spmtd_range_ r = spmtd_share_by_(n, i, blocks);

				cr_assert(!r.n || r.from == at, "%u of %u", i, blocks);
				at += r.n;
				cr_assert(at == n || r.n % 128 == 0);
			}
			cr_assert_eq(at, n);
		}
	cr_assert_eq(spmtd_share_by_((uint64_t)5 << 40, 1, 2).n, (uint64_t)5 << 39);
}

Test(device_channel, a_put_wakes_and_nothing_wakes_nobody)
{
	for (size_t f = 0; f < 3; f++) {
		uint64_t wakes = views_wakes(&world, 2);

		puts_of[f](&me, &to, 0, 0, 0);
		cr_expect_eq(views_wakes(&world, 2), wakes);
		puts_of[f](&me, &to, 0, 0, 64);
		cr_expect_eq(views_wakes(&world, 2), wakes + 1);
	}
}

/* ---- signals ---------------------------------------------------------------------------------- */

typedef void signal_fn(const struct spmt_view *, const struct spmt_channel *, int);
typedef int wait_fn(const struct spmt_view *, const struct spmt_channel *, int);

static void signal_thread(const struct spmt_view *v, const struct spmt_channel *c, int sync)
{
	(void)sync;
	spmtd_channel_signal(v, c);
}

static void relaxed_thread(const struct spmt_view *v, const struct spmt_channel *c, int sync)
{
	(void)sync;
	spmtd_channel_signal_relaxed(v, c);
}

static int wait_thread(const struct spmt_view *v, const struct spmt_channel *c, int sync)
{
	(void)sync;
	return spmtd_channel_wait(v, c);
}

static int wait_relaxed_thread(const struct spmt_view *v, const struct spmt_channel *c, int sync)
{
	(void)sync;
	return spmtd_channel_wait_relaxed(v, c);
}

static signal_fn *const signals[] = { signal_thread, relaxed_thread, spmtd_channel_signal_warp,
	spmtd_channel_signal_block, spmtd_channel_signal_relaxed_warp,
	spmtd_channel_signal_relaxed_block };
static wait_fn *const waits[] = { wait_thread, wait_relaxed_thread, spmtd_channel_wait_warp,
	spmtd_channel_wait_block, spmtd_channel_wait_relaxed_warp,
	spmtd_channel_wait_relaxed_block };

static uint64_t word(uint64_t address)
{
	return *(const uint64_t *)(uintptr_t)address;
}

Test(device_channel, every_signal_ends_one_wait)
{
	uint64_t n = 0;

	for (size_t s = 0; s < COUNT(signals); s++)
		for (size_t w = 0; w < COUNT(waits); w++)
			for (int sync = SPMTD_DATA_SYNC_NONE; sync <= SPMTD_DATA_SYNC_BOTH;
				sync++) {
				uint64_t wakes = views_wakes(&world, 2);

				signals[s](&me, &to, sync);
				cr_assert_eq(word(back.arrived), ++n, "signal %zu", s);
				cr_assert_eq(views_wakes(&world, 2), wakes + 1);
				cr_assert_eq(waits[w](&peer, &back, sync), 0, "wait %zu", w);
				cr_assert_eq(word(back.expected), n);
			}
	cr_expect_eq(word(to.arrived), 0, "nothing came the other way");
	cr_expect_eq(word(to.expected), 0);
}

Test(device_channel, signals_are_counted)
{
	for (int i = 0; i < 5; i++)
		spmtd_channel_signal(&me, &to);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(spmtd_channel_wait(&peer, &back), 0);
	cr_assert_eq(spmtd_channel_poll(&peer, &back), 0);
}

Test(device_channel, polls)
{
	static int (*const polls[])(const struct spmt_view *, const struct spmt_channel *) = {
		spmtd_channel_poll, spmtd_channel_poll_warp, spmtd_channel_poll_block
	};

	for (size_t i = 0; i < COUNT(polls); i++) {
		cr_assert_eq(polls[i](&peer, &back), 0);
		spmtd_channel_signal(&me, &to);
		cr_assert_eq(polls[i](&peer, &back), 1);
		cr_assert_eq(polls[i](&peer, &back), 0);
	}
	cr_assert_eq(world.records[2].valid, 0, "a poll is no failure");
}

/* The counters wrap. */
Test(device_channel, counters_wrap)
{
	*(uint64_t *)(uintptr_t)back.arrived = *(uint64_t *)(uintptr_t)back.expected =
		UINT64_MAX - 2;
	for (int i = 0; i < 6; i++) {
		cr_assert_eq(spmtd_channel_poll(&peer, &back), 0);
		spmtd_channel_signal(&me, &to);
		cr_assert_eq(spmtd_channel_wait(&peer, &back), 0);
	}
	cr_assert_eq(word(back.expected), 3);
}

/* Channels of other indices, pairs and directions have words of their own. */
Test(device_channel, channels_are_apart)
{
	for (uint32_t index = 0; index < 64; index++)
		for (int other = 0; other < 3; other++) {
			struct spmt_channel c = channel_of(&world, 1, other, index, 0, 0, 0);

			spmtd_channel_signal(&me, &c);
		}
	for (int pe = 0; pe < 3; pe++)
		for (int other = 0; other < 3; other++)
			for (uint32_t index = 0; index < 64; index++) {
				struct spmt_channel c =
					channel_of(&world, pe, other, index, 0, 0, 0);

				cr_assert_eq(word(c.arrived), other == 1 ? 1 : 0);
				cr_assert_eq(word(c.expected), 0);
			}
}

/* A wait that fails leaves who was missing, and the next one is for the same signal. */
Test(device_channel, waits_until_the_deadline)
{
	const struct spmtd_record *r = &world.records[2];

	peer.timeout_ns = 1000000;
	for (size_t w = 0; w < COUNT(waits); w++) {
		world.records[2].valid = 0;
		cr_assert_eq(waits[w](&peer, &back, SPMTD_DATA_SYNC_BOTH), SPMTD_TIMEOUT);
		cr_assert(r->valid == 2 && r->code == SPMT_ERR_TIMEOUT && r->peer == 1);
		cr_assert_eq(r->what, SPMTD_WHAT_CHANNEL);
		cr_assert_eq(r->expected, w + 1);
		cr_assert_eq(r->seen, w);
		cr_assert_eq(r->address, back.arrived);
		spmtd_channel_signal(&me, &to);
		cr_assert_eq(waits[w](&peer, &back, SPMTD_DATA_SYNC_AFTER), 0);
	}
}

Test(device_channel, an_abort_ends_a_wait)
{
	world.stop = 1;
	for (size_t w = 0; w < COUNT(waits); w++)
		cr_assert_eq(waits[w](&peer, &back, SPMTD_DATA_SYNC_BOTH), SPMTD_ABORTED);
	peer.host = NULL;
	cr_assert_eq(spmtd_channel_wait(&peer, &back), SPMTD_ABORTED, "without callbacks");
	spmtd_channel_signal(&me, &to);
	cr_assert_eq(spmtd_channel_wait(&peer, &back), 0, "what has come has come");
}

static void *signal_late(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&world.records[0].valid, __ATOMIC_ACQUIRE))
		sched_yield();
	memset(at(1, LOCAL), 77, 64);
	spmtd_channel_put_signal(&me, &to, 0, 0, 64);
	return NULL;
}

Test(device_channel, a_late_peer)
{
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, signal_late, NULL), 0);
	cr_assert_eq(spmtd_channel_poll(&peer, &back), 0);
	__atomic_store_n(&world.records[0].valid, 1, __ATOMIC_RELEASE);
	cr_assert_eq(spmtd_channel_wait(&peer, &back), 0);
	for (int i = 0; i < 64; i++)
		cr_assert_eq(at(2, REMOTE)[i], 77);
	pthread_join(thread, NULL);
}

/* ---- packets ---------------------------------------------------------------------------------- */

typedef void put_packets_fn(
	const struct spmt_view *, const struct spmt_channel *, size_t, size_t, size_t, uint32_t);
typedef int get_packets_fn(
	const struct spmt_view *, const struct spmt_channel *, size_t, size_t, size_t, uint32_t);

#define PACKETS_BY_3(x, by)                                                                     \
	static void put_##x##_##by(const struct spmt_view *v, const struct spmt_channel *c,     \
		size_t dst, size_t src, size_t n, uint32_t flag)                                \
	{                                                                                       \
		for (uint32_t i = 0; i < 3; i++)                                                \
			spmtd_channel_put_##x##_##by(v, c, dst, src, n, flag, i, 3);            \
	}                                                                                       \
	static int unpack_##x##_##by(const struct spmt_view *v, const struct spmt_channel *c,   \
		size_t dst, size_t src, size_t n, uint32_t flag)                                \
	{                                                                                       \
		int rc = 0;                                                                     \
		for (uint32_t i = 0; i < 3 && !rc; i++)                                         \
			rc = spmtd_channel_unpack_##x##_##by(v, c, dst, src, n, flag, i, 3);    \
		return rc;                                                                      \
	}                                                                                       \
	static int read_put_##x##_##by(const struct spmt_view *v, const struct spmt_channel *c, \
		size_t dst, size_t src, size_t n, uint32_t flag)                                \
	{                                                                                       \
		int rc = 0;                                                                     \
		for (uint32_t i = 0; i < 3 && !rc; i++)                                         \
			rc = spmtd_channel_read_put_##x##_##by(v, c, dst, src, n, flag, i, 3);  \
		return rc;                                                                      \
	}
PACKETS_BY_3(packets, group)
PACKETS_BY_3(packets8, group)
PACKETS_BY_3(packets, each)
PACKETS_BY_3(packets8, each)

static const struct form {
	size_t bytes;
	put_packets_fn *put;
	get_packets_fn *unpack, *read_put;
} forms[] = {
#define FORM(bytes, x)                                                                             \
	{                                                                                          \
		bytes, spmtd_channel_put_##x, spmtd_channel_unpack_##x, spmtd_channel_read_put_##x \
	}
	FORM(8, packets),
	FORM(8, packets_warp),
	FORM(8, packets_block),
	FORM(4, packets8),
	FORM(4, packets8_warp),
	FORM(4, packets8_block),
	{ 8, put_packets_group, unpack_packets_group, read_put_packets_group },
	{ 4, put_packets8_group, unpack_packets8_group, read_put_packets8_group },
	{ 8, put_packets_each, unpack_packets_each, read_put_packets_each },
	{ 4, put_packets8_each, unpack_packets8_each, read_put_packets8_each },
};

static void expect_packets(int pe, size_t off, const char *data, size_t n, uint32_t flag)
{
	for (size_t i = 0; i < n; i += 4) {
		memcpy(before + (size_t)pe * HEAP + off + 2 * i, data + i, 4);
		memcpy(before + (size_t)pe * HEAP + off + 2 * i + 4, &flag, 4);
	}
}

/* From rank 1 to rank 2, which unpacks them and sends them on to rank 0. */
Test(device_channel, packets)
{
	struct spmt_channel onward = channel_of(&world, 2, 0, 9, LOCAL, REMOTE, SIZE);
	uint32_t flag = 1;

	for (const struct form *f = forms; f < forms + COUNT(forms); f++)
		for (size_t n = 0; n <= 640; n += n < 80 ? f->bytes : 56, flag += 0x10000001u) {
			const char *data = before + HEAP + LOCAL + 48;

			scramble_all(flag);
			expect_packets(2, REMOTE + 64, data, n, flag);
			f->put(&me, &to, 64, 48, n, flag);
			check_all("put_packets", (size_t)(f - forms), n);
			memcpy(before + 2 * HEAP + LOCAL + 16, data, n);
			cr_assert_eq(f->unpack(&peer, &back, 16, 64, n, flag), 0);
			check_all("unpack_packets", (size_t)(f - forms), n);
			expect_packets(0, REMOTE + 32, data, n, flag);
			cr_assert_eq(f->read_put(&peer, &onward, 32, 64, n, flag), 0);
			check_all("read_put_packets", (size_t)(f - forms), n);
		}
}

Test(device_channel, packets_that_do_not_come)
{
	memset(at(2, REMOTE), 0, 4096);
	for (const struct form *f = forms; f < forms + COUNT(forms); f++) {
		peer.timeout_ns = 1000000;
		f->put(&me, &to, 0, 0, 256, 7);
		memset(at(2, REMOTE + 508), 0, 4); /* the last flag */
		cr_assert_eq(f->unpack(&peer, &back, 0, 0, 256, 7), SPMTD_TIMEOUT);
		cr_assert_eq(f->read_put(&peer, &back, 0, 0, 256, 7), SPMTD_TIMEOUT);
		world.stop = 1;
		cr_assert_eq(f->unpack(&peer, &back, 0, 0, 256, 7), SPMTD_ABORTED);
		world.stop = 0;
	}
}
