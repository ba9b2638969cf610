/* SPDX-License-Identifier: MIT */
/* What fails in a stream is told: by status and the next call on every rank, by quiet and synchronize; nothing queued behind it
   happens, and no buffer is touched that has been given back. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "spmt/comm/record.h"
#include "spmt/control/coll_key.h"
#include "spmt_device.h"
#include "tests/lib/processes.h"

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, ALL_TO_ALL, BARRIER, KINDS };

static const char *const names[] = { "spmt_all_reduce", "spmt_all_gather", "spmt_reduce_scatter",
	"spmt_broadcast", "spmt_all_to_all", "a barrier" };
static const size_t counts[] = { 8, 3000, 70000 };

/* Buffers are of this process, which a GPU need not reach; a stand-in does. */
#define NEEDS_PLAIN_MEMORY()                             \
	do {                                             \
		if (!on_host() && opening_s())           \
			cr_skip_test("tests/gpu: told"); \
	} while (0)

static int call(spmt_comm *comm, enum kind kind, uint32_t *dst, const uint32_t *src, size_t n,
	spmt_stream s)
{
	switch (kind) {
	case ALL_REDUCE:
		return spmt_all_reduce(comm, dst, src, n, SPMT_TYPE_U32, SPMT_OP_SUM, s);
	case ALL_GATHER:
		return spmt_all_gather(comm, dst, src, n, SPMT_TYPE_U32, s);
	case REDUCE_SCATTER:
		return spmt_reduce_scatter(comm, dst, src, n, SPMT_TYPE_U32, SPMT_OP_SUM, s);
	case BROADCAST:
		return spmt_broadcast(comm, dst, src, n, SPMT_TYPE_U32, 0, s);
	case ALL_TO_ALL:
		return spmt_all_to_all(comm, dst, src, n, SPMT_TYPE_U32, s);
	default:
		return spmt_barrier_on_stream(comm, s);
	}
}

/* Elements of dst, and what lies there after a call in which rank r gave r + 1 everywhere. */
static size_t results(enum kind kind, size_t n, int ranks)
{
	return kind == BARRIER				   ? 0
		: kind == ALL_GATHER || kind == ALL_TO_ALL ? n * (size_t)ranks
							   : n;
}

static uint32_t result(enum kind kind, size_t i, size_t n, int ranks)
{
	if (kind == ALL_GATHER || kind == ALL_TO_ALL)
		return (uint32_t)(i / n) + 1;
	return kind == BROADCAST ? 1 : (uint32_t)(ranks * (ranks + 1) / 2);
}

struct buffers {
	uint32_t *dst, *src;
	size_t bytes; /* of each */
};

static int buffers_make(struct buffers *b, size_t n, int ranks, int rank)
{
	b->bytes = n * (size_t)ranks * sizeof(uint32_t);
	b->dst = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	b->src = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(b->dst != MAP_FAILED && b->src != MAP_FAILED);
	for (size_t i = 0; i < n * (size_t)ranks; i++) {
		b->src[i] = (uint32_t)rank + 1;
		b->dst[i] = 77;
	}
	return 0;
}

static void buffers_end(struct buffers *b)
{
	munmap(b->dst, b->bytes);
	munmap(b->src, b->bytes);
}

/* times: what all ranks gave, as a multiple of what buffers_make() leaves. */
static size_t wrong_times(
	const struct buffers *b, enum kind kind, size_t n, int ranks, uint32_t times)
{
	size_t bad = 0;

	for (size_t i = 0; i < results(kind, n, ranks); i++)
		bad += b->dst[i] != times * result(kind, i, n, ranks);
	return bad;
}

static size_t wrong(const struct buffers *b, enum kind kind, size_t n, int ranks)
{
	return wrong_times(b, kind, n, ranks, 1);
}

static int untouched(const struct buffers *b)
{
	for (size_t i = 0; i < b->bytes / sizeof(*b->dst); i++)
		REQUIRE_EQ(b->dst[i], 77);
	return 0;
}

/* ---- ranks that never join ------------------------------------------------------------------------------------------------ */

struct scene {
	struct processes p;
	enum kind kind;
	size_t count;
	_Atomic int told, ready;
	struct latch latch;
};

static void until(_Atomic int *what, int n)
{
	for (int64_t begin = now_ns(); atomic_load(what) < n && now_ns() - begin < 20000000000;)
		sleep_ms(1);
}

/* Whoever asks first hears why; others later hear that it broke. */
static int hears(spmt_comm *comm, const struct scene *s, struct buffers *b, spmt_stream stream)
{
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS(names[s->kind]);
	REQUIRE_SAYS("ranks missing after");
	REQUIRE_CODE(call(comm, s->kind, b->dst, b->src, s->count, stream), SPMT_ERR_BROKEN);
	REQUIRE_SAYS("ranks missing after");
	REQUIRE(spmt_quiet(comm) < 0);
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_BROKEN);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	return 0;
}

/* Behind the collective: a put and a signal to the last rank. */
static int early(spmt_comm *comm, struct scene *s, struct buffers *b, spmt_stream stream)
{
	int last = spmt_nranks(comm) - 1;
	char *block;
	int code;

	REQUIRE_OK(spmt_calloc(comm, 1, 100008, (void **)&block));
	REQUIRE_OK(spmt_set_timeout(comm, 300));
	REQUIRE_OK(call(comm, s->kind, b->dst, b->src, s->count, stream));
	REQUIRE_OK(spmt_put_on_stream(comm, block, b->src, 8, last, stream));
	REQUIRE_OK(spmt_put_on_stream(comm, block + 8, b->src, s->count * 4, last, stream));
	REQUIRE_OK(spmt_signal_on_stream(
		comm, (uint64_t *)(void *)(block + 100000), 1, SPMT_SIGNAL_ADD, last, stream));
	code = stream_wait(comm, stream);
	if (on_host()) {
		REQUIRE_CODE(code, SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("ranks missing after");
		REQUIRE_CODE(stream_wait(comm, stream), SPMT_ERR_TIMEOUT);
	}
	TRY(hears(comm, s, b, stream));
	memset(b->src, 0, b->bytes);
	atomic_fetch_add(&s->told, 1);
	return 0;
}

static int late(spmt_comm *comm, struct scene *s, struct buffers *b, spmt_stream stream, int early)
{
	const uint64_t *block;
	char *sym;

	REQUIRE_OK(spmt_calloc(comm, 1, 100008, (void **)&sym));
	until(&s->told, early);
	TRY(hears(comm, s, b, stream));
	if (on_host())
		REQUIRE_OK(stream_wait(comm, stream)); /* nothing has been queued */
	TRY(untouched(b));
	block = (const uint64_t *)(const void *)sym;
	for (size_t i = 0; on_host() && i < 100008 / sizeof(*block); i++)
		REQUIRE_EQ(block[i], 0);
	return 0;
}

static int half_join(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	int n = spmt_nranks(comm), rank = spmt_rank(comm), half = (n + 1) / 2;
	struct buffers b;
	spmt_stream stream;

	TRY(buffers_make(&b, s->count, n, rank));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(rank < half ? early(comm, s, &b, stream) : late(comm, s, &b, stream, half));
	atomic_fetch_add(&s->ready, 1);
	until(&s->ready, n);
	REQUIRE_OK(stream_end(comm, stream));
	buffers_end(&b);
	return 0;
}

static struct scene *scene_make(void)
{
	struct scene *s = processes_shared(sizeof(*s));

	cr_assert_not_null(s);
	return s;
}

static void scene_set(struct scene *s, enum kind kind, size_t count)
{
	*s = (struct scene){ .p.layout = s->p.layout, .kind = kind, .count = count };
}

Test(told, a_collective_that_half_of_the_ranks_never_join)
{
	struct scene *s = scene_make();

	NEEDS_PLAIN_MEMORY();
	for (enum kind kind = 0; kind < KINDS; kind++) {
		for (int i = 0; i < 2; i++) {
			scene_set(s, kind, counts[i]);
			RANKS_OK(ranks_run(ranks_here(i ? 3 : 8), NULL, half_join, s));
		}
	}
}

Test(told, the_same_over_processes)
{
	struct scene *s = scene_make();

	NEEDS_PLAIN_MEMORY();
	s->p.layout = "0,2|1,3";
	NEEDS_LAYOUT(s->p.layout);
	for (enum kind kind = 0; kind < KINDS; kind += 2) {
		for (int i = 0; i < 2; i++) {
			scene_set(s, kind, counts[(size_t)i]);
			RANKS_OK(processes_world(&s->p, half_join, s));
		}
	}
	scene_set(s, BARRIER, 8);
	RANKS_OK(processes_world(&s->p, half_join, s));
}

/* ---- a rank that comes when another has given up -------------------------------------------------------------------------------- */

/* The last rank's collective is held up until rank 0, whose deadline is the shortest, has given its buffers back. */
static int held(spmt_comm *comm, void *arg)
{
	struct scene *s = arg;
	int n = spmt_nranks(comm), rank = spmt_rank(comm), code;
	struct latch *latch = &s->latch;
	struct buffers b;
	spmt_stream stream;

	TRY(buffers_make(&b, s->count, n, rank));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_set_timeout(comm, rank ? 20000 : 300));
	if (rank == n - 1)
		REQUIRE_OK(stream_call(comm, stream, latch_kernel, &latch, sizeof(latch)));
	/* A call that comes behind the deadline is refused. */
	if (rank == 0)
		until(&s->ready, n - 1);
	REQUIRE_OK(call(comm, s->kind, b.dst, b.src, s->count, stream));
	if (rank)
		atomic_fetch_add(&s->ready, 1);
	until(&s->ready, n - 1);
	code = spmt_quiet(comm);
	if (!code)
		REQUIRE_EQ(wrong(&b, s->kind, s->count, n), 0);
	if (rank == 0) {
		REQUIRE_CODE(code, SPMT_ERR_TIMEOUT);
		buffers_end(&b);
		REQUIRE(latch_open(latch));
	}
	atomic_fetch_add(&s->told, 1);
	until(&s->told, n);
	REQUIRE(spmt_status(comm) < 0);
	code = stream_wait(comm, stream);
	REQUIRE(code || !on_host());
	if (rank == n - 1)
		TRY(untouched(&b));
	REQUIRE_OK(stream_end(comm, stream));
	atomic_fetch_add(&s->ready, 1);
	until(&s->ready, n - 1 + n);
	if (rank)
		buffers_end(&b);
	return 0;
}

Test(told, a_rank_that_comes_when_another_has_given_up)
{
	struct scene *s = scene_make();

	NEEDS_PLAIN_MEMORY();
	for (enum kind kind = 0; kind < KINDS; kind++) {
		for (int i = 0; i < 2; i++) {
			scene_set(s, kind, counts[i]);
			RANKS_OK(ranks_run(3, NULL, held, s));
		}
	}
}

Test(told, and_over_processes)
{
	struct scene *s = scene_make();

	NEEDS_PLAIN_MEMORY();
	s->p.layout = "0|1,2";
	NEEDS_LAYOUT(s->p.layout);
	for (enum kind kind = 0; kind < KINDS; kind++) {
		scene_set(s, kind, counts[kind % 2]);
		RANKS_OK(processes_world(&s->p, held, s));
	}
}

/* ---- calls that differ ------------------------------------------------------------------------------------------------------------ */

/* On every way at once; then calls that agree. Their counts: parts through a stage, one part, pushed. */
static int differ(spmt_comm *comm, void *arg)
{
	static const size_t odd[] = { 600000, 1000, 8, 1, 0, 900001 },
			    even[] = { 300000, 300000, 9, 300000, 8, 900000 };
	int n = spmt_nranks(comm), rank = spmt_rank(comm);
	struct buffers b, c;
	spmt_stream stream;

	(void)arg;
	TRY(buffers_make(&b, 1000000, n, rank));
	REQUIRE_OK(stream_make(comm, &stream));
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		spmt_stream at = i % 2 ? stream : NULL;

		REQUIRE_OK(call(comm, ALL_REDUCE, b.dst, b.src, rank == 1 ? odd[i] : even[i], at));
		if (at && on_host()) {
			REQUIRE_CODE(stream_wait(comm, at), SPMT_ERR_MISMATCH);
			REQUIRE_SAYS("count differs");
			REQUIRE_CODE(spmt_status(comm), SPMT_ERR_MISMATCH);
			REQUIRE_SAYS("count differs");
		}
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
		REQUIRE_SAYS("count differs");
		REQUIRE_OK(spmt_status(comm));
		TRY(untouched(&b));
		for (enum kind kind = 0; kind < BARRIER; kind++) {
			size_t count = counts[(i + (size_t)kind) % 3];

			TRY(buffers_make(&c, count, n, rank));
			REQUIRE_OK(call(comm, kind, c.dst, c.src, count, at));
			REQUIRE_OK(spmt_quiet(comm));
			REQUIRE_EQ(wrong(&c, kind, count, n), 0);
			REQUIRE_OK(spmt_barrier(comm));
			buffers_end(&c);
		}
	}
	REQUIRE_OK(stream_wait(comm, stream));
	REQUIRE_OK(stream_end(comm, stream));
	buffers_end(&b);
	return 0;
}

Test(told, calls_that_differ_and_the_next_are_right)
{
	NEEDS_PLAIN_MEMORY();
	RANKS_OK(ranks_run(3, NULL, differ, NULL));
}

Test(told, calls_that_differ_over_processes)
{
	struct processes p = { .layout = "0|1" };

	NEEDS_PLAIN_MEMORY();
	RANKS_OK(processes_world(&p, differ, NULL));
	p.layout = "0,2|1";
	NEEDS_LAYOUT(p.layout);
	RANKS_OK(processes_world(&p, differ, NULL));
}

/* ---- two streams over processes ---------------------------------------------------------------------------------------------------- */

enum { TURNS = 6, CALLS = 4 };

static int two_streams(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm), rank = spmt_rank(comm);
	spmt_stream streams[3] = { NULL };
	struct buffers b[CALLS];

	(void)arg;
	REQUIRE_OK(stream_make(comm, &streams[1]));
	REQUIRE_OK(stream_make(comm, &streams[2]));
	for (int turn = 0; turn < TURNS; turn++) {
		size_t count = turn % 2 ? 40001 : 200000;

		for (int i = 0; i < CALLS; i++) {
			TRY(buffers_make(&b[i], count, n, rank));
			for (size_t k = 0; k < count * (size_t)n; k++)
				b[i].src[k] *= (uint32_t)(1000 * i + turn + 1);
		}
		for (int i = 0; i < CALLS; i++)
			REQUIRE_OK(call(comm, (enum kind)((turn + i) % BARRIER), b[i].dst, b[i].src,
				count, streams[(turn + i) % 3]));
		REQUIRE_OK(spmt_quiet(comm));
		for (int i = 0; i < CALLS; i++) {
			REQUIRE_EQ(wrong_times(&b[i], (enum kind)((turn + i) % BARRIER), count, n,
					   (uint32_t)(1000 * i + turn + 1)),
				0);
			buffers_end(&b[i]);
		}
		REQUIRE_OK(spmt_barrier(comm));
	}
	REQUIRE_OK(stream_end(comm, streams[1]));
	return stream_end(comm, streams[2]);
}

Test(told, one_stage_serves_many_streams)
{
	struct processes p = { .layout = "0|1" };

	NEEDS_PLAIN_MEMORY();
	RANKS_OK(processes_world(&p, two_streams, NULL));
}

/* ---- copies in flight ------------------------------------------------------------------------------------------------------------ */

/* What a quiet that failed has left is nobody's: neither read nor written. */
static int copies(spmt_comm *comm, void *arg)
{
	size_t size = (size_t)64 << 20;
	_Atomic int *done = arg;
	unsigned char *block, *src, *there;

	REQUIRE_OK(spmt_malloc(comm, size, (void **)&block));
	memset(block, 0, size);
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		src = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		REQUIRE(src != MAP_FAILED);
		there = spmt_ptr(comm, block, 1);
		memset(src, 1, size);
		for (int i = 0; i < 12; i++) /* a second's work */
			REQUIRE_OK(spmt_put_nbi(comm, block, src, size, 1));
		REQUIRE_OK(spmt_abort(comm, -55));
		REQUIRE_CODE(spmt_quiet(comm), -55);
		munmap(src, size);
		for (size_t i = 0; i < size; i += 4096)
			REQUIRE_EQ(there[i], 1);
		atomic_store(done, 1);
	}
	until(done, 1);
	return 0;
}

Test(told, quiet_waits_for_the_copy_engine_in_a_broken_world)
{
	struct spmt_attr attr = ranks_attr(0, 2, NULL);
	_Atomic int done = 0;

	NEEDS_HOST("the CPU looks at a peer's memory");
	attr.heap_size = (size_t)68 << 20;
	RANKS_OK(ranks_run(2, &attr, copies, &done));
}

/* ---- waits of a user's kernel --------------------------------------------------------------------------------------------------- */

struct wait {
	struct spmt_view view;
	uint64_t *word;
};

static void wait_in_vain(void *args)
{
	struct wait *w = args;

	spmtd_signal_wait_until(&w->view, w->word, SPMT_CMP_EQ, 4711);
}

/* In a stream that the library knows nothing of. */
static int unknown_stream(spmt_comm *comm, void *arg)
{
	struct wait w = { .view.size = sizeof(w.view) };
	spmt_stream stream;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*w.word), (void **)&w.word));
	REQUIRE_OK(stream_make(comm, &stream));
	REQUIRE_OK(spmt_set_timeout(comm, 100));
	REQUIRE_OK(spmt_view_get(comm, &w.view));
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	for (int way = 0; way < 2; way++) {
		REQUIRE_OK(spmt_host_launch(comm, stream, wait_in_vain, &w, sizeof(w)));
		REQUIRE_OK(stream_wait(comm, stream));
		REQUIRE_OK(spmt_status(comm)); /* the world is whole, */
		REQUIRE_SAYS("4711");	       /* and the sentence is there */
		REQUIRE_CODE(way ? spmt_barrier(comm) : spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("a kernel's wait for the word at ");
		REQUIRE_SAYS("4711");
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_barrier(comm));
	}
	return stream_end(comm, stream);
}

Test(told, a_kernels_wait_in_any_stream)
{
	NEEDS_HOST("spmt_host_launch");
	RANKS_OK(ranks_run(2, NULL, unknown_stream, NULL));
}

static void until_told(void *args)
{
	while (!__atomic_load_n(*(int **)args, __ATOMIC_ACQUIRE))
		sleep_ms(1);
}

/* Quiet gives kernels that keep the deadline an eighth of it and 0.4 s to tell what they have waited for, and says how long that was. */
static int goes_on(spmt_comm *comm, void *arg)
{
	int over = 0, *at = &over, rc;

	(void)arg;
	REQUIRE_OK(spmt_set_timeout(comm, 100));
	REQUIRE_OK(spmt_host_launch(comm, NULL, until_told, &at, sizeof(at)));
	rc = spmt_barrier(comm);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	REQUIRE_CODE(rc, SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("is not done after 0.5 s");
	REQUIRE_OK(spmt_status(comm));
	return spmt_barrier(comm);
}

Test(told, a_quiet_says_how_long_it_has_waited)
{
	NEEDS_HOST("spmt_host_launch");
	RANKS_OK(ranks_run(1, NULL, goes_on, NULL));
}

/* ---- between what a kernel tells and the stop word that it raises then ------------------------------------------------------------------ */

static uint64_t reduce_key(uint64_t count)
{
	return coll_key(&(struct coll_same){
		.kind = COLL_REDUCE, .type = SPMT_TYPE_U32, .op = SPMT_OP_SUM, .count = count });
}

/* As a kernel does whose call differs in a way that breaks the comm. */
static int told_early(spmt_comm *comm, void *arg)
{
	struct spmtd_record *r = &kernel_report_of(comm->signals)->differs;

	(void)arg;
	*r = (struct spmtd_record){
		.code = SPMT_ERR_MISMATCH, .expected = reduce_key(64), .seen = reduce_key(65)
	};
	__atomic_store_n(&r->valid, 2, __ATOMIC_RELEASE);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("count differs");
	__atomic_store_n(&comm->stop_word->stop, 1, __ATOMIC_RELEASE);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("count differs");
	return 0;
}

Test(told, a_difference_that_is_about_to_break_the_world)
{
	RANKS_OK(ranks_run(1, NULL, told_early, NULL));
}

/* Rank *arg has told all, the other of the first two, which waited for rank 2 as well, not yet. */
static int half_told(spmt_comm *comm, void *arg)
{
	struct kernel_report *t = kernel_report_of(comm->signals);
	int rank = spmt_rank(comm), whole = *(const int *)arg;

	if (rank < 2) {
		t->broke.code = SPMT_ERR_TIMEOUT;
		t->broke.what = SPMTD_WHAT_BARRIER;
		__atomic_store_n(&t->broke.valid, 2, __ATOMIC_RELEASE);
	}
	if (rank == whole) {
		((unsigned char *)(t + 1))[2] = 1;
		__atomic_store_n(&t->told, 1, __ATOMIC_RELEASE);
	}
	REQUIRE_OK(spmt_sync(comm));
	if (rank == whole)
		__atomic_store_n(&comm->stop_word->stop, 1, __ATOMIC_RELEASE);
	while (!spmt_status(comm))
		sleep_ms(1);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_TIMEOUT);
	/* Between the two may stand that rank 2 waits in spmt_sync, which it may not have left. */
	REQUIRE_SAYS(whole ? "rank 1: a barrier in a stream: " : "rank 0: a barrier in a stream: ");
	REQUIRE_SAYS("1 of 3 ranks missing");
	REQUIRE_SAYS(": 2");
	return 0;
}

Test(told, by_one_rank_while_another_still_notes_who_is_missing)
{
	for (int whole = 0; whole < 2; whole++)
		RANKS_OK(ranks_run(3, NULL, half_told, &whole));
}
