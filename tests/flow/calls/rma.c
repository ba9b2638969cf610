/* SPDX-License-Identifier: MIT */
/* Puts, gets and signals: every small size at every misalignment, all flavours, both sides, order and completion. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/lib/ranks.h"

enum { SMALL = 258, ROOM = 512, LARGE = 3 << 20 };

/* ---- flavours: one body for all -------------------------------------------------------------------------------------- */

enum flavour { BLOCKING, NBI, ON_NULL, ON_LEGACY, ON_THREAD, ON_STREAM, FLAVOURS };

static const char *const flavour_names[] = { "blocking", "nbi", "NULL", "legacy", "per thread",
	"host" };

struct way {
	enum flavour flavour;
	spmt_stream stream;
};

static int way_open(spmt_comm *comm, enum flavour flavour, struct way *w)
{
	w->flavour = flavour;
	w->stream = flavour == ON_LEGACY ? SPMT_STREAM_LEGACY
		: flavour == ON_THREAD	 ? SPMT_STREAM_PER_THREAD
					 : NULL;
	if (flavour == ON_STREAM)
		REQUIRE_OK(stream_make(comm, &w->stream));
	return 0;
}

static int way_close(spmt_comm *comm, struct way *w)
{
	if (w->flavour == ON_STREAM)
		REQUIRE_OK(stream_end(comm, w->stream));
	return 0;
}

static int put_by(
	spmt_comm *comm, const struct way *w, void *dst, const void *src, size_t n, int pe)
{
	if (w->flavour == BLOCKING)
		return spmt_put(comm, dst, src, n, pe);
	if (w->flavour == NBI)
		return spmt_put_nbi(comm, dst, src, n, pe);
	return spmt_put_on_stream(comm, dst, src, n, pe, w->stream);
}

static int get_by(
	spmt_comm *comm, const struct way *w, void *dst, const void *src, size_t n, int pe)
{
	if (w->flavour == BLOCKING)
		return spmt_get(comm, dst, src, n, pe);
	if (w->flavour == NBI)
		return spmt_get_nbi(comm, dst, src, n, pe);
	return spmt_get_on_stream(comm, dst, src, n, pe, w->stream);
}

static int put_signal_by(spmt_comm *comm, const struct way *w, void *dst, const void *src, size_t n,
	uint64_t *sig, uint64_t val, int pe)
{
	if (w->flavour == BLOCKING)
		return spmt_put_signal(comm, dst, src, n, sig, val, SPMT_SIGNAL_ADD, pe);
	if (w->flavour == NBI)
		return spmt_put_signal_nbi(comm, dst, src, n, sig, val, SPMT_SIGNAL_ADD, pe);
	return spmt_put_signal_on_stream(
		comm, dst, src, n, sig, val, SPMT_SIGNAL_ADD, pe, w->stream);
}

/* ---- all small sizes at all misalignments ------------------------------------------------------------------------------ */

struct small {
	unsigned char *dst, *src; /* symmetric */
	unsigned char seen[ROOM], want[ROOM];
};

static int small_put(
	spmt_comm *comm, const struct way *w, struct small *s, size_t n, size_t to, size_t from)
{
	int me = spmt_rank(comm), pe = 1 - me;

	memset(s->want, 0xee, ROOM);
	REQUIRE_OK(spmt_copy_in(comm, s->dst, s->want, ROOM));
	REQUIRE_OK(spmt_sync(comm));
	REQUIRE_OK(put_by(comm, w, s->dst + to, s->src + from, n, pe));
	REQUIRE_OK(spmt_barrier(comm));
	pattern_fill(s->seen, ROOM, (uint64_t)pe);
	memcpy(s->want + to, s->seen + from, n);
	REQUIRE_OK(spmt_copy_out(comm, s->seen, s->dst, ROOM));
	if (memcmp(s->seen, s->want, ROOM))
		return ranks_fail("put %s of %zu bytes to +%zu from +%zu",
			flavour_names[w->flavour], n, to, from);
	return 0;
}

static int small_get(
	spmt_comm *comm, const struct way *w, struct small *s, size_t n, size_t to, size_t from)
{
	memset(s->want, 0xee, ROOM);
	REQUIRE_OK(spmt_copy_in(comm, s->dst, s->want, ROOM));
	REQUIRE_OK(get_by(comm, w, s->dst + to, s->src + from, n, 1 - spmt_rank(comm)));
	if (w->flavour != BLOCKING)
		REQUIRE_OK(spmt_quiet(comm));
	pattern_fill(s->seen, ROOM, (uint64_t)(1 - spmt_rank(comm)));
	memcpy(s->want + to, s->seen + from, n);
	REQUIRE_OK(spmt_copy_out(comm, s->seen, s->dst, ROOM));
	if (memcmp(s->seen, s->want, ROOM))
		return ranks_fail("get %s of %zu bytes to +%zu from +%zu",
			flavour_names[w->flavour], n, to, from);
	return 0;
}

/* Blocking forms see every (size, misalignment of either side); the queued ones, which cost more, every size at some. */
static int small_sizes(spmt_comm *comm, void *arg)
{
	enum flavour flavour = *(enum flavour *)arg;
	size_t step = flavour == BLOCKING ? 1 : flavour == NBI ? 5 : test_long() ? 7 : 13;
	struct small *s = malloc(sizeof(*s));
	struct way w;
	char *block;

	REQUIRE(s);
	TRY(way_open(comm, flavour, &w));
	REQUIRE_OK(spmt_aligned_alloc(comm, 64, 2 * ROOM, (void **)&block));
	s->dst = (unsigned char *)block;
	s->src = s->dst + ROOM;
	TRY(sym_fill(comm, s->src, ROOM, (uint64_t)spmt_rank(comm)));
	REQUIRE_OK(spmt_barrier(comm));
	for (size_t n = 0, k = 0; n < SMALL; n++)
		for (size_t shift = 0; shift < 64; shift++, k++) {
			if (k % step)
				continue;
			TRY(small_put(comm, &w, s, n, 64 + shift % 16, 64 + shift / 16 * 5));
			TRY(small_get(comm, &w, s, n, 64 + shift / 16 * 3, 64 + shift % 16));
		}
	free(s);
	return way_close(comm, &w);
}

Test(rma, small_sizes_blocking)
{
	RANKS_OK(ranks_run(2, NULL, small_sizes, &(enum flavour){ BLOCKING }));
}

Test(rma, small_sizes_nbi)
{
	RANKS_OK(ranks_run(2, NULL, small_sizes, &(enum flavour){ NBI }));
}

Test(rma, small_sizes_on_streams)
{
	for (enum flavour f = ON_NULL; f < FLAVOURS; f++)
		RANKS_OK(ranks_run(2, NULL, small_sizes, &f));
}

/* ---- sizes round every threshold ---------------------------------------------------------------------------------------- */

static int one_large(spmt_comm *comm, const struct way *w, char *dst, char *src, size_t n)
{
	int me = spmt_rank(comm), last = (me + spmt_nranks(comm) - 1) % spmt_nranks(comm);
	int next = (me + 1) % spmt_nranks(comm);
	uint64_t seed = n * 7 + (uint64_t)me;

	TRY(sym_fill(comm, src, n, seed));
	TRY(sym_set(comm, dst, 0x33, n + 8));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(put_by(comm, w, dst, src, n, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check(comm, dst, n, n * 7 + (uint64_t)last));
	TRY(sym_check_byte(comm, dst + n, 0x33, 8));
	TRY(sym_set(comm, dst, 0x44, n + 8));
	REQUIRE_OK(get_by(comm, w, dst, src, n, next));
	if (w->flavour != BLOCKING)
		REQUIRE_OK(spmt_quiet(comm));
	TRY(sym_check(comm, dst, n, n * 7 + (uint64_t)next));
	TRY(sym_check_byte(comm, dst + n, 0x44, 8));
	return spmt_barrier(comm);
}

static int large_sizes(spmt_comm *comm, void *arg)
{
	static const size_t sizes[] = { 1023, 4096, 4097, 65535, 65536, 65537, 262145, 1048576,
		1048583, LARGE };
	char *block;
	struct way w;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 2 * LARGE + 64, (void **)&block));
	for (enum flavour f = 0; f < FLAVOURS; f++) {
		TRY(way_open(comm, f, &w));
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			TRY(one_large(
				comm, &w, block + i % 2, block + LARGE + 16 + i % 3, sizes[i]));
		TRY(way_close(comm, &w));
	}
	return 0;
}

Test(rma, large_sizes_every_way)
{
	struct spmt_attr attr = ranks_attr(0, 3, NULL);

	attr.heap_size = 16u << 20;
	RANKS_OK(ranks_run(3, &attr, large_sizes, NULL));
}

/* More than an int holds. What nobody has written costs the source nothing; the target's pages are the price. */
static int huge(spmt_comm *comm, void *arg)
{
	size_t size = ((size_t)4 << 30) + 12345,
	       places[] = { 0, ((size_t)1 << 32) - 32, size - 64 };
	char *at,
		*src = mmap(NULL, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	(void)arg;
	REQUIRE(src != MAP_FAILED);
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&at));
	for (int i = 0; i < 3; i++)
		pattern_fill(src + places[i], 64, (uint64_t)i);
	if (spmt_rank(comm) == 0)
		REQUIRE_OK(spmt_put(comm, at, host_access(comm) ? src : at, size, 1));
	REQUIRE_OK(spmt_barrier(comm));
	for (int i = 0; i < 3 && spmt_rank(comm) == 1 && host_access(comm); i++)
		TRY(sym_check(comm, at + places[i], 64, (uint64_t)i));
	munmap(src, size);
	return 0;
}

Test(rma, above_4_gib)
{
	struct spmt_attr attr = ranks_attr(0, 2, NULL);

	if (!test_long() || SANITIZED || memory_free() < (uint64_t)8 << 30)
		cr_skip_test("needs SPMT_TEST_LONG=1 and 8 GiB of free memory");
	attr.heap_size = (size_t)5 << 30;
	attr.timeout_ms = 50000;
	RANKS_OK(ranks_run(2, &attr, huge, NULL));
}

/* ---- self -------------------------------------------------------------------------------------------------------------- */

static int overlap_by(spmt_comm *comm, const struct way *w, char *at, size_t n, ptrdiff_t shift)
{
	size_t room = n + 256;
	char *model = malloc(room), *seen = malloc(room), *base = at + 128;
	int me = spmt_rank(comm), code;

	REQUIRE(model && seen);
	for (int get = 0; get < 2; get++) {
		TRY(sym_fill(comm, at, room, n));
		pattern_fill(model, room, n);
		memmove(model + 128 + shift, model + 128, n);
		code = get ? get_by(comm, w, base + shift, base, n, me)
			   : put_by(comm, w, base + shift, base, n, me);
		REQUIRE_CODE(code, 0);
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_copy_out(comm, seen, at, room));
		REQUIRE(memcmp(seen, model, room) == 0);
	}
	free(model);
	free(seen);
	return 0;
}

static int overlaps(spmt_comm *comm, void *arg)
{
	static const ptrdiff_t shifts[] = { 0, 1, -1, 7, -8, 16, -16, 63, -100, 127 };
	static const size_t sizes[] = { 1, 8, 64, 200, 5000, 200000 };
	struct way w;
	char *at;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 200256, (void **)&at));
	for (enum flavour f = 0; f < FLAVOURS; f++) {
		TRY(way_open(comm, f, &w));
		for (size_t i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++)
			for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
				TRY(overlap_by(comm, &w, at, sizes[k], shifts[i]));
		TRY(way_close(comm, &w));
	}
	return 0;
}

Test(rma, overlap_to_self)
{
	RANKS_OK(ranks_run(2, NULL, overlaps, NULL));
}

/* ---- one access is one access --------------------------------------------------------------------------------------------- */

/* Rank 0 puts words of equal bytes; rank 1 gets them and must never see two values mixed. */
static int whole_words(spmt_comm *comm, void *arg)
{
	size_t n = *(size_t *)arg;
	uint64_t *words, seen, value;

	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	for (uint64_t i = 0; i < test_count(40000, 800000); i++) {
		value = i % 2 ? 0 : ~(uint64_t)0;
		if (spmt_rank(comm) == 0) {
			memcpy(&seen, &value, n);
			REQUIRE_OK(spmt_put(comm, words, &seen, n, 1));
			continue;
		}
		seen = 0;
		REQUIRE_OK(spmt_get(comm, &seen, words, n, 1));
		value = n == 8 ? ~(uint64_t)0 : ((uint64_t)1 << n * 8) - 1;
		REQUIRE(seen == 0 || seen == value);
	}
	return 0;
}

Test(rma, aligned_words_are_whole)
{
	for (size_t n = 1; n <= 8; n *= 2)
		RANKS_OK(ranks_run(2, NULL, whole_words, &n));
}

static int flag_after_data(spmt_comm *comm, void *arg)
{
	uint64_t *words, copy[32];
	size_t rounds = test_count(20000, 200000);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 64, sizeof(*words), (void **)&words));
	for (uint64_t i = 1; i <= rounds; i++) {
		if (spmt_rank(comm) == 0) {
			for (int k = 0; k < 31; k++)
				copy[k] = i;
			REQUIRE_OK(spmt_put(comm, words, copy, 31 * 8, 1));
			REQUIRE_OK(spmt_fence(comm));
			REQUIRE_OK(spmt_put(comm, words + 40, &i, 8, 1));
			REQUIRE_OK(spmt_signal_wait(comm, words + 41, SPMT_CMP_GE, i, NULL));
			continue;
		}
		REQUIRE_OK(spmt_wait_until(comm, SPMT_TYPE_U64, words + 40, SPMT_CMP_EQ, &i));
		REQUIRE_OK(spmt_copy_out(comm, copy, words, 31 * 8));
		for (int k = 0; k < 31; k++)
			REQUIRE_EQ(copy[k], i);
		REQUIRE_OK(spmt_signal(comm, words + 41, 1, SPMT_SIGNAL_ADD, 0));
	}
	return 0;
}

Test(rma, a_flag_may_be_put)
{
	RANKS_OK(ranks_run(2, NULL, flag_after_data, NULL));
}

/* ---- put with signal ------------------------------------------------------------------------------------------------------- */

struct ping {
	size_t size, rounds;
	enum flavour flavour;
};

/* Each side fills, sends, waits for the other's data: a signal that overtakes its data shows an old round's bytes. */
static int ping_pong(spmt_comm *comm, void *arg)
{
	const struct ping *p = arg;
	int pe = 1 - spmt_rank(comm);
	char *dst, *src;
	uint64_t *sig, seen;
	struct way w;

	TRY(way_open(comm, p->flavour, &w));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*sig), (void **)&sig));
	REQUIRE_OK(spmt_malloc(comm, p->size + 1, (void **)&dst));
	REQUIRE_OK(spmt_malloc(comm, p->size + 1, (void **)&src));
	for (uint64_t i = 1; i <= p->rounds; i++) {
		TRY(sym_fill(comm, src, p->size, i * 2 + (uint64_t)pe));
		REQUIRE_OK(put_signal_by(comm, &w, dst, src, p->size, sig, 1, pe));
		REQUIRE_OK(spmt_signal_wait(comm, sig, SPMT_CMP_GE, i, &seen));
		REQUIRE_EQ(seen, i);
		TRY(sym_check(comm, dst, p->size, i * 2 + (uint64_t)spmt_rank(comm)));
		if (w.flavour != BLOCKING)
			REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_sync(comm));
	}
	return way_close(comm, &w);
}

Test(rma, signal_after_data)
{
	struct ping p = { 0 };
	static const size_t sizes[] = { 0, 1, 8, 100, 5000, 300000 };

	for (p.flavour = 0; p.flavour < FLAVOURS; p.flavour++)
		for (size_t i = 0; i < 6; i++) {
			p.size = sizes[i];
			p.rounds = p.size > 100000 ? 20 : test_count(p.flavour ? 200 : 1500, 1500);
			RANKS_OK(ranks_run(2, NULL, ping_pong, &p));
		}
}

static int nothing_but_signals(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), next = (spmt_rank(comm) + 1) % n;
	char *wild = (char *)(uintptr_t)0xdead0000;
	struct way w;
	uint64_t *sig = arg;

	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*sig), (void **)&sig));
	for (enum flavour f = 0; f < FLAVOURS; f++) {
		TRY(way_open(comm, f, &w));
		REQUIRE_OK(put_by(comm, &w, NULL, NULL, 0, next));
		REQUIRE_OK(put_by(comm, &w, wild, wild, 0, next));
		REQUIRE_OK(get_by(comm, &w, wild, NULL, 0, next));
		REQUIRE_OK(put_signal_by(comm, &w, NULL, NULL, 0, sig, 1, next));
		REQUIRE_OK(put_signal_by(comm, &w, wild, wild, 0, sig, 1, next));
		REQUIRE_OK(spmt_signal_wait(comm, sig, SPMT_CMP_GE, 2 * (uint64_t)f + 2, NULL));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(way_close(comm, &w));
	}
	REQUIRE_OK(spmt_iput(comm, wild, wild, 1, 1, 0, 8, next));
	REQUIRE_OK(spmt_iget(comm, wild, wild, 1, 1, 0, 8, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, sig, 2 * FLAVOURS));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_signal(comm, sig, 77, SPMT_SIGNAL_SET, next));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, sig, 77));
	return spmt_barrier(comm);
}

Test(rma, no_bytes_still_signal)
{
	RANKS_OK(ranks_run(3, NULL, nothing_but_signals, NULL));
}

/* ---- strides ---------------------------------------------------------------------------------------------------------------- */

struct stride {
	ptrdiff_t dst, src;
	size_t count, elem;
};

static int one_stride(spmt_comm *comm, const struct stride *s, char *dst, char *src, bool get)
{
	int me = spmt_rank(comm), pe = 1 - me;
	unsigned char *from = malloc(8192), *want = malloc(8192), *seen = malloc(8192);
	int code;

	REQUIRE(from && want && seen);
	pattern_fill(from, 8192, (uint64_t)pe);
	memset(want, 0x55, 8192);
	for (size_t i = 0; i < s->count; i++)
		memcpy(want + i * (size_t)s->dst * s->elem, from + i * (size_t)s->src * s->elem,
			s->elem);
	TRY(sym_fill(comm, src, 8192, (uint64_t)me));
	TRY(sym_set(comm, dst, 0x55, 8192));
	REQUIRE_OK(spmt_barrier(comm));
	code = get ? spmt_iget(comm, dst, src, s->dst, s->src, s->count, s->elem, pe)
		   : spmt_iput(comm, dst, src, s->dst, s->src, s->count, s->elem, pe);
	REQUIRE_CODE(code, 0);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_copy_out(comm, seen, dst, 8192));
	if (memcmp(seen, want, 8192))
		code = ranks_fail("%s: strides %td %td, %zu of %zu bytes", get ? "iget" : "iput",
			s->dst, s->src, s->count, s->elem);
	free(from);
	free(want);
	free(seen);
	return code;
}

static int strides(spmt_comm *comm, void *arg)
{
	static const struct stride good[] = { { 1, 1, 10, 8 }, { 2, 1, 100, 8 }, { 1, 3, 100, 4 },
		{ 5, 7, 50, 2 }, { 3, 2, 33, 1 }, { 2, 2, 20, 16 }, { 3, 1, 17, 3 },
		{ 1, 2, 5, 300 }, { 9, 9, 1, 8 }, { 1, 1, 1024, 8 }, { 1, 1, 0, 8 } };
	static const struct stride bad[] = { { 0, 1, 2, 8 }, { 1, 0, 2, 8 }, { -1, 1, 2, 8 },
		{ 1, -3, 2, 8 }, { 1, 1, 2, 0 }, { PTRDIFF_MAX, 1, 2, 8 }, { 1, PTRDIFF_MAX, 2, 8 },
		{ 1, 1, SIZE_MAX, 8 }, { 1, 1, 2, SIZE_MAX } };
	char *dst, *src;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, 8192, (void **)&dst));
	REQUIRE_OK(spmt_malloc(comm, 8192, (void **)&src));
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		for (int get = 0; get < 2; get++)
			TRY(one_stride(comm, &good[i], dst, src, get));
	TRY(sym_set(comm, dst, 0x66, 8192));
	REQUIRE_OK(spmt_barrier(comm));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct stride *b = &bad[i];

		REQUIRE_CODE(
			spmt_iput(comm, dst, src, b->dst, b->src, b->count, b->elem, 0), -EINVAL);
		REQUIRE_CODE(
			spmt_iget(comm, dst, src, b->dst, b->src, b->count, b->elem, 0), -EINVAL);
	}
	REQUIRE_OK(spmt_barrier(comm));
	return sym_check_byte(comm, dst, 0x66, 8192);
}

Test(rma, strides)
{
	RANKS_OK(ranks_run(2, NULL, strides, NULL));
}

/* ---- nbi and quiet ------------------------------------------------------------------------------------------------------------ */

/* At its end the latch is open by 2. */
static void slow_kernel(void *args)
{
	struct latch *latch = *(struct latch **)args;

	latch_pass(latch);
	sleep_ms(20);
	atomic_store(&latch->open, 2);
}

/* The comm's own stream is held up by a kernel: what is queued behind it comes back all the same. */
static int nbi_returns_first(spmt_comm *comm, void *arg)
{
	int pe = 1 - spmt_rank(comm);
	size_t size = 2u << 20;
	char *dst, *src;
	struct latch latch = { 0 }, *at = &latch;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&dst));
	REQUIRE_OK(spmt_malloc(comm, size, (void **)&src));
	TRY(sym_fill(comm, src, size, (uint64_t)pe));
	TRY(sym_set(comm, dst, 0, size));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(stream_call(comm, NULL, slow_kernel, &at, sizeof(at)));
	REQUIRE_OK(spmt_put_on_stream(comm, dst, src, size, pe, NULL));
	REQUIRE(latch_open(&latch));
	REQUIRE_OK(spmt_put_nbi(comm, dst, src, size, pe));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(atomic_load(&latch.open), 2);
	REQUIRE_OK(spmt_barrier(comm));
	return sym_check(comm, dst, size, (uint64_t)spmt_rank(comm));
}

Test(rma, queued_work_does_not_block_and_quiet_waits_for_it)
{
	struct spmt_attr attr = ranks_attr(0, 2, NULL);

	attr.heap_size = 8u << 20;
	RANKS_OK(ranks_run(2, &attr, nbi_returns_first, NULL));
}

static int one_quiet(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), me = spmt_rank(comm);
	size_t part = 100000;
	char *dst, *src;

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, part * (size_t)n, (void **)&dst));
	REQUIRE_OK(spmt_malloc(comm, part, (void **)&src));
	TRY(sym_fill(comm, src, part, (uint64_t)me));
	REQUIRE_OK(spmt_barrier(comm));
	for (int k = 0; k < n; k++)
		for (size_t at = 0; at < part; at += 10000)
			REQUIRE_OK(spmt_put_nbi(
				comm, dst + (size_t)me * part + at, src + at, 10000, (me + k) % n));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_sync(comm));
	for (int k = 0; k < n; k++)
		TRY(sym_check(comm, dst + (size_t)k * part, part, (uint64_t)k));
	return spmt_barrier(comm);
}

Test(rma, one_quiet_completes_all)
{
	RANKS_OK(ranks_run(8, NULL, one_quiet, NULL));
}

static int copies(spmt_comm *comm, void *arg)
{
	char host[300], *at = arg;

	REQUIRE_OK(spmt_calloc(comm, 1, 1000, (void **)&at));
	pattern_fill(host, sizeof(host), 5);
	REQUIRE_OK(spmt_copy_in(comm, at + 3, host, sizeof(host)));
	memset(host, 0, sizeof(host));
	REQUIRE_OK(spmt_copy_out(comm, host, at + 3, sizeof(host)));
	REQUIRE_EQ(pattern_differs(host, sizeof(host), 5), SIZE_MAX);
	TRY(sym_check_byte(comm, at, 0, 3));
	TRY(sym_check_byte(comm, at + 303, 0, 600));
	REQUIRE_CODE(spmt_copy_in(comm, host, host, 8), -EINVAL);
	REQUIRE_CODE(spmt_copy_out(comm, host, host, 8), -EINVAL);
	return spmt_copy_in(comm, NULL, NULL, 0);
}

Test(rma, copies_in_and_out)
{
	RANKS_OK(ranks_run(2, NULL, copies, NULL));
}
