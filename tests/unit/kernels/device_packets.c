/* SPDX-License-Identifier: MIT */
/* Packets of the device header, in every form. */
#include <criterion/criterion.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"

static struct views world;
static struct spmt_view me; /* rank 1 of 3 */

static void open_world(void)
{
	cr_assert_eq(views_open(&world, 3, 65536, false), 0);
	me = view_of(&world, 1);
}

static void close_world(void)
{
	views_close(&world);
}

TestSuite(device_packets, .init = open_world, .fini = close_world, .timeout = 60);

static char *sym(size_t off)
{
	return views_heap(&world, 1) + off;
}

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static void scramble(char *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		p[i] = (char)(seed >> 24);
	}
}

typedef void put_fn(const struct spmt_view *, void *, const void *, size_t, uint32_t, int);
typedef void mem_put_fn(const struct spmt_view *, const struct spmt_mem_view *, size_t,
	const void *, size_t, uint32_t, int);
typedef int get_fn(const struct spmt_view *, void *, const void *, size_t, uint32_t);
typedef int forward_fn(
	const struct spmt_view *, void *, void *, const void *, size_t, uint32_t, int);

/* By three that each move their own, one after the other. */
enum { THREADS = 3 };

#define EACH(x)                                                                                    \
	static void put_##x##_by_3(const struct spmt_view *v, void *dst, const void *src,          \
		size_t n, uint32_t flag, int pe)                                                   \
	{                                                                                          \
		for (uint32_t i = 0; i < THREADS; i++)                                             \
			spmtd_put_##x##_each(v, dst, src, n, flag, pe, i, THREADS);                \
	}                                                                                          \
	static void mem_put_##x##_by_3(const struct spmt_view *v, const struct spmt_mem_view *m,   \
		size_t off, const void *src, size_t n, uint32_t flag, int pe)                      \
	{                                                                                          \
		for (uint32_t i = 0; i < THREADS; i++)                                             \
			spmtd_mem_put_##x##_each(v, m, off, src, n, flag, pe, i, THREADS);         \
	}                                                                                          \
	static int get_##x##_by_3(                                                                 \
		const struct spmt_view *v, void *dst, const void *src, size_t n, uint32_t flag)    \
	{                                                                                          \
		int rc = 0;                                                                        \
		for (uint32_t i = 0; i < THREADS && !rc; i++)                                      \
			rc = spmtd_get_##x##_each(v, dst, src, n, flag, i, THREADS);               \
		return rc;                                                                         \
	}                                                                                          \
	static int forward_##x##_by_3(const struct spmt_view *v, void *onto, void *dst,            \
		const void *src, size_t n, uint32_t flag, int pe)                                  \
	{                                                                                          \
		int rc = 0;                                                                        \
		for (uint32_t i = 0; i < THREADS && !rc; i++)                                      \
			rc = spmtd_forward_##x##_each(v, onto, dst, src, n, flag, pe, i, THREADS); \
		return rc;                                                                         \
	}
EACH(packets)
EACH(packets8)

/* A format: its packets' data in bytes, and by whom. */
static const struct form {
	size_t bytes, workers;
	put_fn *put;
	mem_put_fn *mem_put;
	get_fn *get;
	forward_fn *forward;
} forms[] = {
#define FORM(bytes, x)                                                                       \
	{                                                                                    \
		bytes, 1, spmtd_put_##x, spmtd_mem_put_##x, spmtd_get_##x, spmtd_forward_##x \
	}
	FORM(8, packets),
	FORM(8, packets_warp),
	FORM(8, packets_block),
	FORM(4, packets8),
	FORM(4, packets8_warp),
	FORM(4, packets8_block),
	{ 8, THREADS, put_packets_by_3, mem_put_packets_by_3, get_packets_by_3,
		forward_packets_by_3 },
	{ 4, THREADS, put_packets8_by_3, mem_put_packets8_by_3, get_packets8_by_3,
		forward_packets8_by_3 },
};
enum { FORMS = sizeof(forms) / sizeof(forms[0]), MOST = 640 };

/* What lies at `packets` are the n bytes of data with this flag, as documented, zeros to the end of the last packet, and nothing behind. */
static void check_packets(
	const char *packets, const char *data, size_t n, uint32_t flag, size_t bytes)
{
	size_t whole = (n + bytes - 1) / bytes * bytes;

	for (size_t i = 0; i < whole; i += 4) {
		uint32_t word[2], want = 0;

		memcpy(word, packets + 2 * i, sizeof(word));
		if (i < n)
			memcpy(&want, data + i, n - i < 4 ? n - i : 4);
		cr_assert_eq(word[0], want, "data at %zu of %zu", i, n);
		cr_assert_eq(word[1], flag, "flag at %zu of %zu, format %zu", i, n, bytes);
	}
	for (size_t i = 2 * whole; i < 2 * whole + 64; i++)
		cr_assert_eq(packets[i], 0x55, "%zu bytes written behind the packets", n);
}

Test(device_packets, sizes_and_misaligned_locals)
{
	char back[MOST + 64], src[MOST + 64];
	uint32_t flag = 1;

	for (const struct form *f = forms; f < forms + FORMS; f++)
		for (size_t n = 0; n <= MOST; n += n < 70 ? 1 : f->bytes, flag += 0x10000001u) {
			size_t off = flag % 9;

			scramble(src, sizeof(src), flag);
			memset(at(2, 4096), 0x55, 2 * MOST + 64);
			memset(back, 0x55, sizeof(back));
			f->put(&me, sym(4096), src + off, n, flag, 2);
			check_packets(at(2, 4096), src + off, n, flag, f->bytes);
			cr_assert_eq(f->get(&me, back + off, at(2, 4096), n, flag), 0);
			cr_assert_eq(memcmp(back + off, src + off, n), 0);
			cr_assert_eq(back[off + n], 0x55);
			cr_assert(!off || back[off - 1] == 0x55);
		}
}

/* Every third packet, from its index on: what the other two are to move is as it was. */
Test(device_packets, each_moves_its_own)
{
	char src[56], back[56];
	uint32_t word[2];

	scramble(src, sizeof(src), 1);
	for (uint32_t index = 0; index < THREADS; index++) {
		memset(at(2, 4096), 0x55, 256);
		memset(back, 0x55, sizeof(back));
		spmtd_put_packets_each(&me, sym(4096), src, sizeof(src), 9, 2, index, THREADS);
		for (size_t i = 0; i < 7; i++) {
			memcpy(word, at(2, 4096 + 16 * i), 8);
			cr_expect_eq(word[1], i % THREADS == index ? 9 : 0x55555555u);
		}
		cr_expect_eq(
			spmtd_get_packets_each(&me, back, at(2, 4096), 56, 9, index, THREADS), 0);
		for (size_t i = 0; i < 7; i++)
			cr_expect_eq(back[8 * i], i % THREADS == index ? src[8 * i] : 0x55);
	}
}

Test(device_packets, an_index_that_none_of_the_threads_has)
{
	static const uint32_t wrong[][2] = { { 0, 0 }, { 3, 3 }, { UINT32_MAX, 3 } };
	char src[64] = { 1 }, back[64];

	memset(at(2, 4096), 0x55, 256);
	memset(back, 0x55, sizeof(back));
	for (size_t k = 0; k < sizeof(wrong) / sizeof(*wrong); k++) {
		uint32_t index = wrong[k][0], threads = wrong[k][1];

		spmtd_put_packets_each(&me, sym(4096), src, 64, 9, 2, index, threads);
		cr_expect_eq(*at(2, 4096), 0x55);
		cr_expect_eq(spmtd_get_packets_each(&me, back, at(2, 4096), 64, 9, index, threads),
			SPMTD_INVALID);
		cr_expect_eq(spmtd_forward_packets_each(
				     &me, sym(4096), back, at(2, 4096), 64, 9, 2, index, threads),
			SPMTD_INVALID);
	}
	cr_expect_eq(back[0], 0x55);
	cr_expect_eq(spmtd_get_packets_each(&me, back, at(2, 4096), 64, 0, 0, 1), SPMTD_INVALID);
}

/* Memory that nobody has put to has it. */
Test(device_packets, no_flag_of_0)
{
	char back[16] = { 0x55 };
	uint64_t x = 7;

	for (const struct form *f = forms; f < forms + FORMS; f++) {
		cr_assert_eq(f->get(&me, back, sym(4096), 16, 0), SPMTD_INVALID);
		cr_assert_eq(f->forward(&me, sym(0), back, sym(4096), 16, 0, 2), SPMTD_INVALID);
	}
	cr_assert_eq(spmtd_get_packet(&me, sym(4096), 0, &x), SPMTD_INVALID);
	cr_assert_eq(x, 7);
	cr_assert_eq(back[0], 0x55);
}

Test(device_packets, a_put_wakes_and_nothing_wakes_nobody)
{
	uint64_t wakes = 0;
	char src[16] = "0123456789abcde";

	for (const struct form *f = forms; f < forms + FORMS; f++) {
		f->put(&me, sym(0), src, 0, 1, 2);
		cr_expect_eq(views_wakes(&world, 2), wakes);
		f->put(&me, sym(0), src, 16, 1, 2);
		wakes += f->workers < 16 / f->bytes ? f->workers : 16 / f->bytes;
		cr_expect_eq(views_wakes(&world, 2), wakes);
	}
	spmtd_put_packet(&me, sym(0), 1, 1, 2);
	spmtd_put_packet8(&me, sym(0), 1, 1, 2);
	cr_expect_eq(views_wakes(&world, 2), wakes + 2);
}

Test(device_packets, into_a_registered_buffer)
{
	struct spmtd_mem_peer peers[3];
	struct spmt_mem_view m = { .size = sizeof(m), .pe = 1, .npes = 3, .peers = peers };
	char src[128];

	for (int pe = 0; pe < 3; pe++)
		peers[pe] = (struct spmtd_mem_peer){ (uint64_t)(uintptr_t)at(pe, 32768), 16384 };
	for (const struct form *f = forms; f < forms + FORMS; f++) {
		scramble(src, sizeof(src), (uint32_t)(f - forms));
		memset(at(0, 32768), 0x55, 1024);
		f->mem_put(&me, &m, 48, src, sizeof(src), 77, 0);
		check_packets(at(0, 32768 + 48), src, sizeof(src), 77, f->bytes);
		cr_expect_eq(*at(0, 32768 + 47), 0x55);
	}
}

Test(device_packets, one_by_value)
{
	struct spmt_view peer = view_of(&world, 2);
	uint64_t wide = 0;
	uint32_t narrow = 0;

	spmtd_put_packet(&me, sym(64), 0x0123456789abcdefu, UINT32_MAX, 2);
	cr_expect_eq(spmtd_get_packet(&peer, at(2, 64), UINT32_MAX, &wide), 0);
	cr_expect_eq(wide, 0x0123456789abcdefu);
	spmtd_put_packet8(&me, sym(64), 0x89abcdefu, 5, 2);
	cr_expect_eq(spmtd_get_packet8(&peer, at(2, 64), 5, &narrow), 0);
	cr_expect_eq(narrow, 0x89abcdefu);
	peer.timeout_ns = 1000000;
	cr_expect_eq(spmtd_get_packet8(&peer, at(2, 64), 6, &narrow), SPMTD_TIMEOUT);
	cr_expect_eq(spmtd_get_packet(&peer, at(2, 64), 6, &wide), SPMTD_TIMEOUT);
	cr_expect(wide == 0x0123456789abcdefu && narrow == 0x89abcdefu, "unwritten");
}

Test(device_packets, forwarded)
{
	char src[256], here[256];

	for (const struct form *f = forms; f < forms + FORMS; f++) {
		uint32_t flag = 9 + (uint32_t)(f - forms);

		scramble(src, sizeof(src), flag);
		f->put(&me, sym(4096), src, sizeof(src), flag, 1);
		memset(at(2, 8192), 0x55, 1024);
		cr_expect_eq(f->forward(&me, sym(8192), here, sym(4096), sizeof(src), flag, 2), 0);
		check_packets(at(2, 8192), src, sizeof(src), flag, f->bytes);
		cr_expect_eq(memcmp(here, src, sizeof(src)), 0);
		memset(at(0, 8192), 0x55, 1024);
		cr_expect_eq(f->forward(&me, sym(8192), NULL, sym(4096), 64, flag, 0), 0);
		check_packets(at(0, 8192), src, 64, flag, f->bytes);
	}
}

/* Half a packet is none; and what came before one that is missing may be there, nothing behind it. */
Test(device_packets, waits_for_each_half_until_the_deadline)
{
	struct spmtd_record *r = &world.records[1];
	char src[64], dst[64];

	me.timeout_ns = 1000000;
	for (const struct form *f = forms; f < forms + FORMS; f++)
		for (size_t half = 4; half < 2 * sizeof(src); half += 8) {
			scramble(src, sizeof(src), 3);
			f->put(&me, sym(4096), src, sizeof(src), 7, 1);
			memset(sym(4096 + half), 0, 4); /* one flag */
			r->valid = 0;
			cr_assert_eq(f->get(&me, dst, sym(4096), sizeof(src), 7), SPMTD_TIMEOUT,
				"format %zu, flag at %zu", f->bytes, half);
			cr_expect(r->valid == 2 && r->code == SPMT_ERR_TIMEOUT);
			cr_expect_eq(r->expected, 7);
			cr_expect_eq(r->seen, 0);
			cr_expect_eq(r->address,
				(uint64_t)(uintptr_t)sym(
					4096 + half / (2 * f->bytes) * (2 * f->bytes)));
		}
}

Test(device_packets, an_abort_ends_a_wait)
{
	char dst[64];

	memset(sym(4096), 0, 128);
	world.stop = 1;
	for (const struct form *f = forms; f < forms + FORMS; f++) {
		cr_expect_eq(f->get(&me, dst, sym(4096), 64, 7), SPMTD_ABORTED);
		cr_expect_eq(f->forward(&me, sym(8192), dst, sym(4096), 64, 7, 2), SPMTD_ABORTED);
		cr_expect_eq(f->get(&me, dst, sym(4096), 0, 7), 0, "nothing to wait for");
	}
	me.host = NULL;
	cr_expect_eq(forms[0].get(&me, dst, sym(4096), 64, 7), SPMTD_ABORTED, "without callbacks");
}

/* A wait has one clock for all of its packets: however many looks those before it have taken, the next one's asks it in time. */
Test(device_packets, an_abort_ends_what_has_waited_before, .timeout = 10)
{
	struct spmtd_packets_ p = spmtd_packets_of_(
		0, (uint64_t)(uintptr_t)sym(4096), 8, 7, spmtd_worker_at_(0, 1), 8);

	memset(sym(4096), 0, 128);
	world.stop = 1;
	me.host = NULL;
	for (uint32_t before = 0; before < 2 * SPMTD_CLOCK_EVERY_; before++) {
		struct spmtd_unit_ u[SPMTD_PACKETS_];
		struct spmtd_waiter_ w;

		spmtd_wait_begin_(&w);
		w.polls = before;
		cr_assert_eq(spmtd_packets_await_(&me, &w, &p, 1, u), SPMTD_ABORTED,
			"behind %u looks", before);
		cr_assert(w.polls - before <= SPMTD_CLOCK_EVERY_, "%u, behind %u", w.polls, before);
	}
}
