/* SPDX-License-Identifier: MIT */
/* Lines of the device header, by every caller, as virtual devices do them. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "spmt.h"
#include "tests/lib/device/plain_views.h"

enum { RANKS = 3, HEAP = 65536, DATA = 120, LINE = 128, MOST = 5 * DATA, ROOM = 5 * LINE };

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

TestSuite(device_lines, .init = open_world, .fini = close_world, .timeout = 60);

static char *at(int pe, size_t off)
{
	return views_heap(&world, pe) + off;
}

static void scramble(char *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		p[i] = (char)(seed >> 56);
	}
}

static const struct form {
	int (*put)(const struct spmt_view *, void *, const void *, size_t, uint64_t, int);
	int (*mem_put)(const struct spmt_view *, const struct spmt_mem_view *, size_t, const void *,
		size_t, uint64_t, int);
	int (*get)(const struct spmt_view *, void *, const void *, size_t, uint64_t);
	int (*forward)(
		const struct spmt_view *, void *, void *, const void *, size_t, uint64_t, int);
} forms[] = {
#define FORM(x)                                                                    \
	{                                                                          \
		spmtd_put_##x, spmtd_mem_put_##x, spmtd_get_##x, spmtd_forward_##x \
	}
	FORM(lines_warp),
	FORM(lines_block),
};
enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

/* What lies at `lines` are the n bytes of data with this flag, as documented, and nothing behind. */
static void check_lines(const char *lines, const char *data, size_t n, uint64_t flag)
{
	size_t room = (n + DATA - 1) / DATA * LINE;

	cr_assert_eq(spmtd_lines_room(n), room);
	for (size_t i = 0; i < room; i++) {
		size_t part = i % LINE, from = i / LINE * DATA + part;
		uint64_t word;

		if (part < DATA) {
			cr_assert_eq(lines[i], from < n ? data[from] : 0, "byte %zu, of %zu", i, n);
			continue;
		}
		memcpy(&word, lines + i, sizeof(word));
		cr_assert_eq(word, flag, "flag at %zu, of %zu", i, n);
		i += sizeof(word) - 1;
	}
	for (size_t i = room; i < room + LINE; i++)
		cr_assert_eq(lines[i], 0x55, "%zu bytes written behind the lines", n);
}

/* 0, 1, 119, 120, 121 and all others. */
Test(device_lines, sizes_and_misaligned_locals)
{
	char back[MOST + 64], src[MOST + 64];
	uint64_t flag = 1;

	for (const struct form *f = forms; f < forms + FORMS; f++)
		for (size_t n = 0; n <= MOST; n++, flag += 0x1000000000000001u) {
			size_t off = n % 9, to = n % 7;

			scramble(src, sizeof(src), flag);
			memset(at(2, 4096), 0x55, ROOM + LINE);
			memset(back, 0x55, sizeof(back));
			cr_assert_eq(f->put(&me, at(1, 4096), src + off, n, flag, 2), 0);
			check_lines(at(2, 4096), src + off, n, flag);
			cr_assert_eq(f->get(&me, back + to, at(2, 4096), n, flag), 0);
			cr_assert_eq(memcmp(back + to, src + off, n), 0, "%zu bytes", n);
			cr_assert_eq(back[to + n], 0x55);
			cr_assert(!to || back[to - 1] == 0x55);
		}
}

Test(device_lines, room_for_any_size)
{
	cr_expect_eq(spmtd_lines_room(0), 0);
	cr_expect_eq(spmtd_lines_room(1), 128);
	cr_expect_eq(spmtd_lines_room(120), 128);
	cr_expect_eq(spmtd_lines_room(121), 256);
	cr_expect_eq(spmtd_lines_room((size_t)120 << 40), (size_t)128 << 40);
	cr_expect_eq(spmtd_lines_whole(&me, 2), 0, "virtual devices store them in order");
}

Test(device_lines, a_put_wakes_and_nothing_wakes_nobody)
{
	uint64_t wakes = 0;
	char src[16] = "0123456789abcde", dst[16];

	for (const struct form *f = forms; f < forms + FORMS; f++) {
		cr_expect_eq(f->put(&me, at(1, 0), src, 0, 1, 2), 0);
		cr_expect_eq(views_wakes(&world, 2), wakes);
		cr_expect_eq(f->put(&me, at(1, 0), src, 16, 1, 2), 0);
		cr_expect_eq(views_wakes(&world, 2), ++wakes);
		cr_expect_eq(f->forward(&me, at(1, 128), dst, at(2, 0), 16, 1, 2), 0);
		cr_expect_eq(views_wakes(&world, 2), ++wakes);
	}
}

Test(device_lines, into_a_registered_buffer)
{
	struct spmtd_mem_peer peers[RANKS];
	uint64_t far[RANKS] = { 0 };
	struct spmt_mem_view m = { .size = sizeof(m), .pe = 1, .npes = RANKS, .peers = peers };
	char src[300];

	for (int pe = 0; pe < RANKS; pe++)
		peers[pe] = (struct spmtd_mem_peer){ (uint64_t)(uintptr_t)at(pe, 32768), 16384 };
	for (const struct form *f = forms; f < forms + FORMS; f++) {
		scramble(src, sizeof(src), (uint64_t)(f - forms));
		memset(at(0, 32768), 0x55, 1024);
		cr_expect_eq(f->mem_put(&me, &m, 128, src, sizeof(src), 77, 0), 0);
		check_lines(at(0, 32768 + 128), src, sizeof(src), 77);
		cr_expect_eq(*at(0, 32768 + 127), 0x55);
	}
	m.far = far;
	peers[0].base = 0;
	for (const struct form *f = forms; f < forms + FORMS; f++)
		cr_expect_eq(f->mem_put(&me, &m, 128, src, 300, 77, 0), SPMTD_UNSUPPORTED);
}

Test(device_lines, no_address_no_lines)
{
	uint64_t base = world.peers[2].base;
	char src[8] = { 0 };

	world.peers[2].base = 0;
	for (const struct form *f = forms; f < forms + FORMS; f++) {
		cr_expect_eq(f->put(&me, at(1, 0), src, 8, 1, 2), SPMTD_UNSUPPORTED);
		cr_expect_eq(f->forward(&me, at(1, 0), NULL, at(1, 0), 8, 1, 2), SPMTD_UNSUPPORTED);
	}
	world.peers[2].base = base;
	cr_expect_eq(views_wakes(&world, 2), 0);
}

/* Memory that nobody has put to has it. */
Test(device_lines, no_flag_of_0)
{
	char back[8] = { 0x55 };

	for (const struct form *f = forms; f < forms + FORMS; f++) {
		cr_expect_eq(f->get(&me, back, at(1, 4096), 8, 0), SPMTD_INVALID);
		cr_expect_eq(f->forward(&me, at(1, 0), back, at(1, 4096), 8, 0, 2), SPMTD_INVALID);
	}
	cr_expect_eq(back[0], 0x55);
	cr_expect_eq(views_wakes(&world, 2), 0);
}

Test(device_lines, forwarded)
{
	char src[MOST], here[MOST + 8];

	for (const struct form *f = forms; f < forms + FORMS; f++)
		for (size_t n = 0; n <= MOST; n += 17) {
			uint64_t flag = (9ull << 40) + n;

			scramble(src, sizeof(src), flag);
			memset(here, 0x55, sizeof(here));
			memset(at(2, 8192), 0x55, ROOM + LINE);
			memset(at(0, 8192), 0x55, ROOM + LINE);
			cr_expect_eq(f->put(&me, at(1, 4096), src, n, flag, 1), 0);
			cr_expect_eq(
				f->forward(&me, at(1, 8192), here + 3, at(1, 4096), n, flag, 2), 0);
			check_lines(at(2, 8192), src, n, flag);
			cr_expect_eq(memcmp(here + 3, src, n), 0);
			cr_expect_eq(here[3 + n], 0x55);
			cr_expect_eq(
				f->forward(&me, at(1, 8192), NULL, at(1, 4096), n, flag, 0), 0);
			check_lines(at(0, 8192), src, n, flag);
		}
}

/* Each byte of each flag counts, and nothing is taken or sent on before all flags are there. */
Test(device_lines, waits_for_each_flag_until_the_deadline)
{
	struct spmtd_record *r = &world.records[1];
	const uint64_t flag = 0x0102030405060708u;
	char src[300], dst[300];

	me.timeout_ns = 1000000;
	for (const struct form *f = forms; f < forms + FORMS; f++)
		for (size_t line = 0; line < 3; line++)
			for (size_t byte = 0; byte < 8; byte++) {
				size_t where = 4096 + line * LINE + DATA;
				uint64_t seen;

				scramble(src, sizeof(src), 3);
				memset(dst, 0x55, sizeof(dst));
				memset(at(2, 8192), 0x55, ROOM);
				cr_assert_eq(f->put(&me, at(1, 4096), src, 300, flag, 1), 0);
				*at(1, where + byte) = 0x77;
				memcpy(&seen, at(1, where), sizeof(seen));
				r->valid = 0;
				cr_assert_eq(
					f->get(&me, dst, at(1, 4096), 300, flag), SPMTD_TIMEOUT);
				cr_expect(r->valid == 2 && r->code == SPMT_ERR_TIMEOUT);
				cr_expect_eq(r->expected, flag);
				cr_expect_eq(r->seen, seen);
				cr_expect_eq(r->address, (uint64_t)(uintptr_t)at(1, where));
				if (byte)
					continue;
				cr_assert_eq(f->forward(&me, at(1, 8192), dst, at(1, 4096), 300,
						     flag, 2),
					SPMTD_TIMEOUT);
				cr_expect(*at(2, 8192) == 0x55 && *at(2, 8192 + DATA) == 0x55);
			}
}

Test(device_lines, an_abort_ends_a_wait)
{
	char dst[256];

	world.stop = 1;
	for (const struct form *f = forms; f < forms + FORMS; f++) {
		cr_expect_eq(f->get(&me, dst, at(1, 4096), 256, 7), SPMTD_ABORTED);
		cr_expect_eq(
			f->forward(&me, at(1, 8192), dst, at(1, 4096), 256, 7, 2), SPMTD_ABORTED);
		cr_expect_eq(f->get(&me, dst, at(1, 4096), 0, 7), 0, "nothing to wait for");
	}
	me.host = NULL;
	cr_expect_eq(
		forms[0].get(&me, dst, at(1, 4096), 64, 7), SPMTD_ABORTED, "without callbacks");
}

/* ---- rounds of all to all, by two buffers in turn ----------------------------------------------- */

enum { ROUNDS = 300, SIZE = 301 };

struct runner {
	pthread_t thread;
	int pe, wrong;
};

static void *rounds_of_all(void *arg)
{
	struct runner *r = arg;
	struct spmt_view v = view_of(&world, r->pe);
	char src[SIZE], want[SIZE], dst[SIZE];

	for (uint64_t round = 1; round <= ROUNDS && !r->wrong; round++) {
		const struct form *f = &forms[(round + (uint64_t)r->pe) % FORMS];
		size_t turn = (round & 1) * RANKS * ROOM;

		scramble(src, SIZE, round * RANKS + (uint64_t)r->pe);
		for (int pe = 0; pe < RANKS; pe++)
			r->wrong |= f->put(
				&v, at(r->pe, turn + (size_t)r->pe * ROOM), src, SIZE, round, pe);
		for (int pe = 0; pe < RANKS; pe++) {
			scramble(want, SIZE, round * RANKS + (uint64_t)pe);
			r->wrong |=
				f->get(&v, dst, at(r->pe, turn + (size_t)pe * ROOM), SIZE, round);
			r->wrong |= memcmp(dst, want, SIZE) != 0;
		}
	}
	return NULL;
}

Test(device_lines, rounds_of_all_to_all_by_two_buffers)
{
	struct runner runners[RANKS] = { 0 };

	for (int pe = 0; pe < RANKS; pe++) {
		runners[pe].pe = pe;
		cr_assert_eq(
			pthread_create(&runners[pe].thread, NULL, rounds_of_all, &runners[pe]), 0);
	}
	for (int pe = 0; pe < RANKS; pe++) {
		cr_assert_eq(pthread_join(runners[pe].thread, NULL), 0);
		cr_expect_eq(runners[pe].wrong, 0, "rank %d", pe);
	}
}
