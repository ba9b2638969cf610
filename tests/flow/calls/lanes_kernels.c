/* SPDX-License-Identifier: MIT */
/*
 * Lanes on whatever backend there is: on GPUs their ranks meet in kernels. Buffers are of the heap, so that kernels reach them. What
 * is true of the host backend alone is asked in lanes.c.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/every_call.h"
#include "tests/lib/ranks.h"

enum { KEY = 4242, WORDS = 3000 };

/* Symmetric words: what is given, and what is got. */
struct words {
	uint64_t *in, *out;
	size_t n;
};

static int words_make(spmt_comm *comm, struct words *w, size_t n)
{
	w->n = n;
	REQUIRE_OK(spmt_calloc(comm, n, sizeof(uint64_t), (void **)&w->in));
	return spmt_calloc(comm, n, sizeof(uint64_t), (void **)&w->out);
}

static int words_end(spmt_comm *comm, struct words *w)
{
	REQUIRE_OK(spmt_free(comm, w->in));
	return spmt_free(comm, w->out);
}

static int put_word(spmt_comm *comm, uint64_t *word, uint64_t value)
{
	return spmt_copy_in(comm, word, &value, sizeof(value));
}

static int has_word(spmt_comm *comm, const uint64_t *word, uint64_t want)
{
	uint64_t seen;

	REQUIRE_OK(spmt_copy_out(comm, &seen, word, sizeof(seen)));
	REQUIRE_EQ(seen, want);
	return 0;
}

static int sum(spmt_comm *lane, uint64_t *out, const uint64_t *in, spmt_stream stream)
{
	return spmt_all_reduce(lane, out, in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, stream);
}

static void count(void *arg, int code)
{
	_Atomic int *calls = arg; /* [0]: all, [1]: the last code that was not 0 */

	if (code)
		atomic_store(&calls[1], code);
	atomic_fetch_add(&calls[0], 1);
}

/* ---- what they are ------------------------------------------------------------------------------------------------- */

static int the_same(spmt_comm *comm, void *arg)
{
	struct spmt_view view = { .size = sizeof(view) };
	spmt_comm *lane, *again, *other, *part = NULL;
	void *p = NULL;

	(void)arg;
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_lane(comm, KEY, &again));
	REQUIRE_OK(spmt_lane(comm, KEY + 1, &other));
	REQUIRE(lane == again && lane != other && lane != comm);
	REQUIRE_EQ(spmt_rank(lane), spmt_rank(comm));
	REQUIRE_EQ(spmt_device(lane), spmt_device(comm));
	REQUIRE_OK(spmt_status(lane));
	REQUIRE_OK(spmt_quiet(lane));
	REQUIRE_CODE(spmt_lane(lane, KEY, &part), -EINVAL);
	REQUIRE_CODE(spmt_malloc(lane, 8, &p), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_split(lane, 0, 0, &part), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_view_get(lane, &view), SPMT_ERR_UNSUPPORTED);
	REQUIRE_CODE(spmt_fence(lane), SPMT_ERR_UNSUPPORTED);
	REQUIRE(!part && !p);
	REQUIRE_OK(spmt_finalize(other));
	REQUIRE_CODE(spmt_status(other), -EBADF);
	REQUIRE_OK(spmt_barrier(lane));
	REQUIRE_OK(spmt_finalize(lane));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_sync(lane));
	REQUIRE_OK(spmt_barrier_on_stream(lane, NULL));
	REQUIRE_OK(spmt_quiet(lane));
	return 0; /* it ends with its comm */
}

Test(lanes_kernels, one_key_names_one_lane)
{
	RANKS_OK(ranks_run(3, NULL, the_same, NULL));
}

/* ---- data ------------------------------------------------------------------------------------------------------------ */

static int wrong_elements(spmt_comm *comm, enum kernel_collective_kind kind, const uint64_t *dst,
	uint64_t *seen, size_t n)
{
	int ranks = spmt_nranks(comm), me = spmt_rank(comm);
	size_t all = n * (coll_kinds[kind].dst_blocks ? (size_t)ranks : 1);
	bool to_last = kind == COLL_GATHER || kind == COLL_REDUCE;

	if ((to_last && me != ranks - 1) || (kind == COLL_PERMUTE && me == ranks - 1))
		return 0; /* nothing comes there */
	REQUIRE_OK(spmt_copy_out(comm, seen, dst, all * sizeof(*seen)));
	for (size_t i = 0; i < all; i++)
		REQUIRE_EQ(seen[i], every_call_collected(kind, me, ranks, n, i));
	return 0;
}

/* Every kind, on the lane's own stream. */
static int every_kind(spmt_comm *comm, void *arg)
{
	static const size_t counts[] = { 1, 7, WORDS };
	int n = spmt_nranks(comm), me = spmt_rank(comm), to[8];
	uint64_t *host = calloc((size_t)n * WORDS, sizeof(*host));
	struct words w;
	spmt_comm *lane;

	(void)arg;
	REQUIRE(host);
	TRY(words_make(comm, &w, (size_t)n * WORDS));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	for (int i = 0; i < n; i++)
		to[i] = i - 1;
	for (int kind = 0; kind < COLL_KINDS; kind++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
			uint64_t *src = kind == COLL_EXCHANGE ? w.out : w.in;
			size_t bytes = (size_t)n * WORDS * sizeof(*host);

			for (size_t k = 0; k < (size_t)n * WORDS; k++)
				host[k] = every_call_given(me, k);
			REQUIRE_OK(spmt_copy_in(comm, src, host, bytes));
			REQUIRE_OK(every_call_collective(lane, (enum kernel_collective_kind)kind,
				w.out, src, counts[i], to));
			REQUIRE_OK(spmt_quiet(lane));
			TRY(wrong_elements(
				comm, (enum kernel_collective_kind)kind, w.out, host, counts[i]));
			REQUIRE_OK(spmt_barrier(comm)); /* before src is written again */
		}
	free(host);
	return words_end(comm, &w);
}

Test(lanes_kernels, collectives_move_what_they_move_on_any_comm)
{
	RANKS_OK(ranks_run(1, NULL, every_kind, NULL));
	RANKS_OK(ranks_run(3, NULL, every_kind, NULL));
}

/* ---- order ------------------------------------------------------------------------------------------------------------- */

enum { LANES = 6, ROUNDS = 5 };

/* Odd ranks call the lanes the other way round; `streams`: in streams of the user's instead of the lanes' own. */
static int opposite(spmt_comm *comm, void *streams)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	spmt_stream stream[LANES] = { NULL };
	_Atomic int calls[2] = { 0, 0 };
	spmt_comm *lane[LANES];
	struct words w;

	TRY(words_make(comm, &w, LANES * ROUNDS));
	for (int i = 0; i < LANES; i++) {
		REQUIRE_OK(spmt_lane(comm, (uint64_t)i, &lane[i]));
		if (streams)
			REQUIRE_OK(stream_make(comm, &stream[i]));
	}
	for (int i = 0; i < LANES * ROUNDS; i++)
		TRY(put_word(comm, &w.in[i], (uint64_t)(me + i)));
	for (int k = 0; k < LANES * ROUNDS; k++) {
		int i = me % 2 ? LANES - 1 - k % LANES : k % LANES, at = k / LANES * LANES + i;

		REQUIRE_OK(sum(lane[i], &w.out[at], &w.in[at], stream[i]));
		REQUIRE_OK(spmt_on_complete(lane[i], stream[i], count, calls));
	}
	for (int i = 0; i < LANES; i++)
		REQUIRE_OK(spmt_quiet(lane[i]));
	for (int i = 0; i < LANES * ROUNDS; i++)
		TRY(has_word(comm, &w.out[i], (uint64_t)(n * (n - 1) / 2 + n * i)));
	REQUIRE_EQ(atomic_load(calls), LANES * ROUNDS);
	REQUIRE_EQ(atomic_load(calls + 1), 0);
	for (int i = 0; i < LANES && streams; i++)
		REQUIRE_OK(stream_end(comm, stream[i]));
	return words_end(comm, &w);
}

Test(lanes_kernels, ranks_call_two_lanes_in_opposite_order)
{
	RANKS_OK(ranks_run(3, NULL, opposite, NULL));
	RANKS_OK(ranks_run(3, NULL, opposite, &(int){ 1 }));
}

/* ---- of parts ------------------------------------------------------------------------------------------------------------ */

/* Parts of odd and of even ranks, turned round, beside the world: one key is another lane in each, whose areas come and go. */
static int of_parts(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	spmt_comm *part, *lane[2], *whole;
	uint64_t odd[2] = { 0 };
	struct words w;

	(void)arg;
	TRY(words_make(comm, &w, 6));
	for (int r = 0; r < n; r++)
		odd[r % 2] += (uint64_t)r + 1;
	TRY(put_word(comm, w.in, (uint64_t)me + 1));
	REQUIRE_OK(spmt_split(comm, me % 2, -me, &part));
	for (int round = 0; round < 3; round++) {
		REQUIRE_OK(spmt_lane(comm, KEY, &whole));
		REQUIRE_OK(spmt_lane(part, KEY, &lane[0]));
		REQUIRE_OK(spmt_lane(part, KEY + 1, &lane[1]));
		REQUIRE(lane[0] != whole && lane[0] != lane[1]);
		REQUIRE_EQ(spmt_rank(lane[0]), spmt_rank(part));
		REQUIRE_OK(sum(lane[me < 2], &w.out[me < 2], w.in, NULL));
		REQUIRE_OK(sum(whole, &w.out[2], w.in, NULL));
		REQUIRE_OK(sum(lane[me >= 2], &w.out[me >= 2], w.in, NULL));
		REQUIRE_OK(spmt_all_gather(lane[0], &w.out[4], w.in, 1, SPMT_TYPE_U64, NULL));
		REQUIRE_OK(spmt_quiet(lane[0]));
		REQUIRE_OK(spmt_quiet(lane[1]));
		REQUIRE_OK(spmt_quiet(whole));
		TRY(has_word(comm, &w.out[2], odd[0] + odd[1]));
		for (int i = 0; i < 2; i++) {
			TRY(has_word(comm, &w.out[i], odd[me % 2]));
			TRY(has_word(comm, &w.out[4 + i], (uint64_t)(3 - 2 * i + me % 2)));
		}
		if (round == 1) {
			REQUIRE_OK(spmt_finalize(part)); /* with its lanes */
			REQUIRE_OK(spmt_split(comm, me % 2, -me, &part));
			continue;
		}
		for (int i = 0; i < 2; i++)
			REQUIRE_OK(spmt_finalize(lane[i]));
	}
	REQUIRE_OK(spmt_barrier(comm));
	return words_end(comm, &w);
}

Test(lanes_kernels, parts_have_lanes_of_their_own)
{
	RANKS_OK(ranks_run(4, NULL, of_parts, NULL));
}

/* Of a part fewer are kept, and those that break break alone. */
static int part_room(spmt_comm *comm, void *arg)
{
	spmt_comm *part, *lane;
	int code = 0, n = 0;

	(void)arg;
	for (int round = 0; round < 2; round++) {
		REQUIRE_OK(spmt_split(comm, 0, 0, &part));
		REQUIRE_OK(spmt_barrier(comm));
		for (n = 0, code = 0; spmt_rank(comm) == 0 && n < 40; n++) {
			code = spmt_lane(part, KEY, &lane);
			if (code)
				break;
			REQUIRE_OK(spmt_abort(lane, -5));
			REQUIRE_OK(spmt_finalize(lane));
		}
		if (code)
			REQUIRE_SAYS("32 of a part of backend");
		if (spmt_rank(comm) == 0)
			REQUIRE(on_host() ? !code : code == -ENOMEM && n == 32);
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_OK(spmt_barrier(part));
		REQUIRE_OK(spmt_finalize(part));
	}
	return 0;
}

Test(lanes_kernels, a_part_has_room_for_some)
{
	RANKS_OK(ranks_run(2, NULL, part_room, NULL));
}

/* ---- several threads of a rank ------------------------------------------------------------------------------------------ */

enum { THREADS = 3, TIMES = 40 };

struct thread {
	spmt_comm *lane;
	uint64_t *out, *in;
	pthread_t thread;
	int code;
};

static void *call_often(void *arg)
{
	struct thread *t = arg;

	for (int i = 0; i < TIMES && !t->code; i++)
		t->code = sum(t->lane, t->out, t->in, NULL);
	return NULL;
}

static int threads(spmt_comm *comm, void *arg)
{
	struct thread t[THREADS];
	struct words w;
	spmt_comm *lane;

	(void)arg;
	TRY(words_make(comm, &w, THREADS));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	TRY(put_word(comm, w.in, (uint64_t)spmt_rank(comm) + 1));
	for (int i = 0; i < THREADS; i++) {
		t[i] = (struct thread){ .lane = lane, .out = w.out, .in = w.in };
		REQUIRE_EQ(pthread_create(&t[i].thread, NULL, call_often, &t[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i].thread, NULL);
		REQUIRE_EQ(t[i].code, 0);
	}
	REQUIRE_OK(spmt_quiet(lane));
	TRY(has_word(comm, w.out, 3));
	return words_end(comm, &w);
}

Test(lanes_kernels, several_threads_call_on_one_lane)
{
	RANKS_OK(ranks_run(2, NULL, threads, NULL));
}

/* ---- failures ------------------------------------------------------------------------------------------------------------ */

/* When all are through with the lane of that key; and they go on when all have the next. */
static int next_lane(spmt_comm *comm, uint64_t key, spmt_comm **lane)
{
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_lane(comm, key, lane));
	return spmt_barrier(comm);
}

/* Rank 1 does not come, until the others have given up. */
static int late(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), code;
	_Atomic int calls[2] = { 0, 0 };
	spmt_comm *lane, *next, *beside;
	struct words w;

	(void)arg;
	TRY(words_make(comm, &w, 1));
	TRY(put_word(comm, w.in, 1));
	TRY(put_word(comm, w.out, 77));
	REQUIRE_OK(spmt_lane(comm, 1, &beside));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, 100));
	if (me != 1) {
		REQUIRE_OK(sum(lane, w.out, w.in, NULL));
		code = spmt_on_complete(lane, NULL, count, calls);
		REQUIRE(!code || code == SPMT_ERR_BROKEN);
		REQUIRE_CODE(spmt_quiet(lane), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("lane 4242: ");
		REQUIRE_SAYS("1 of 3 ranks missing after");
		REQUIRE_EQ(atomic_load(calls + 1), code ? 0 : SPMT_ERR_TIMEOUT);
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_CODE(spmt_status(lane), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("lane 4242: ");
	REQUIRE_CODE(sum(lane, w.out, w.in, NULL), SPMT_ERR_BROKEN);
	REQUIRE_SAYS("lane 4242: ");
	TRY(has_word(comm, w.out, 77));
	TRY(next_lane(comm, KEY, &next));
	REQUIRE(next != lane);
	REQUIRE_OK(sum(next, w.out, w.in, NULL));
	REQUIRE_OK(spmt_quiet(next));
	TRY(has_word(comm, w.out, 3));
	REQUIRE_OK(sum(beside, w.out, w.in, NULL));
	REQUIRE_OK(spmt_quiet(beside));
	REQUIRE_OK(spmt_finalize(lane));
	REQUIRE_OK(spmt_status(comm));
	REQUIRE_OK(spmt_barrier(next));
	return words_end(comm, &w);
}

Test(lanes_kernels, one_that_timed_out_is_replaced)
{
	RANKS_OK(ranks_run(3, NULL, late, NULL));
}

/* Calls that differ, and an abort, are heard by all that the lane has, and by nobody else. */
static int differ(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm), code;
	spmt_comm *lane, *beside;
	struct words w;

	(void)arg;
	TRY(words_make(comm, &w, 4));
	TRY(put_word(comm, w.in, 1));
	TRY(put_word(comm, w.out, 9));
	REQUIRE_OK(spmt_lane(comm, 1, &beside));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(
		spmt_all_reduce(lane, w.out, w.in, me ? 1 : 2, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_CODE(spmt_quiet(lane), SPMT_ERR_MISMATCH);
	REQUIRE_CODE(spmt_status(lane), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("lane 4242: ");
	REQUIRE_SAYS("count differs: rank");
	TRY(has_word(comm, w.out, 9));
	TRY(next_lane(comm, KEY, &lane));
	if (me) {
		code = sum(lane, w.out, w.in, NULL);
		code = code ? code : spmt_quiet(lane);
		REQUIRE(code == -66 || code == SPMT_ERR_BROKEN);
		REQUIRE_CODE(spmt_status(lane), -66);
		REQUIRE_SAYS("aborted lane 4242 with code -66");
	} else {
		REQUIRE_OK(spmt_abort(lane, -66));
	}
	TRY(has_word(comm, w.out, 9));
	REQUIRE_OK(sum(beside, w.out, w.in, NULL));
	REQUIRE_OK(spmt_quiet(beside));
	TRY(has_word(comm, w.out, 3));
	REQUIRE_OK(spmt_status(comm));
	return words_end(comm, &w);
}

Test(lanes_kernels, differences_and_aborts_break_one_lane_alone)
{
	RANKS_OK(ranks_run(3, NULL, differ, NULL));
}

/* A collective that waits for a rank ends when the world does. */
static int with_its_world(spmt_comm *comm, void *arg)
{
	struct words w;
	spmt_comm *lane;

	(void)arg;
	TRY(words_make(comm, &w, 1));
	TRY(put_word(comm, w.out, 9));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, -1));
	if (spmt_rank(comm))
		REQUIRE_OK(sum(lane, w.out, w.in, NULL));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		REQUIRE_OK(spmt_abort(comm, -44));
	else
		REQUIRE_CODE(spmt_quiet(lane), -44);
	while (!spmt_status(lane))
		sleep_ms(1);
	REQUIRE_CODE(spmt_status(lane), -44);
	REQUIRE(spmt_lane(comm, KEY + 1, &lane) < 0);
	return 0;
}

Test(lanes_kernels, a_lane_breaks_with_its_world)
{
	RANKS_OK(ranks_run(3, NULL, with_its_world, NULL));
}

/* ---- many -------------------------------------------------------------------------------------------------------------------- */

enum { AT_ONCE = 30, MANY = 1200 };

/* More lanes than there is room for at once, one after the other: on GPUs few at a time, as of more streams than a GPU has queues some
   wait for each other, and ranks may share one. */
static int many(spmt_comm *comm, void *arg)
{
	spmt_comm *lane[AT_ONCE];
	struct words w;
	int at_once = on_host() ? AT_ONCE : 2;

	(void)arg;
	TRY(words_make(comm, &w, AT_ONCE));
	TRY(put_word(comm, w.in, 1));
	for (uint64_t key = 0; key < MANY; key += (uint64_t)at_once) {
		for (int i = 0; i < at_once; i++) {
			REQUIRE_OK(spmt_lane(comm, key + (uint64_t)i, &lane[i]));
			REQUIRE_OK(sum(lane[i], &w.out[i], w.in, NULL));
		}
		for (int i = 0; i < at_once; i++)
			REQUIRE_OK(spmt_finalize(lane[i]));
	}
	for (int i = 0; i < at_once; i++)
		TRY(has_word(comm, &w.out[i], 2));
	return words_end(comm, &w);
}

Test(lanes_kernels, lanes_that_have_ended_make_room)
{
	RANKS_OK(ranks_run(2, NULL, many, NULL));
}

/* What breaks is not given back: the sentence says so, and nothing else is lost. */
static int all_broken(int index, void *arg)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_comm *comm, *lane;
	int code = 0;

	(void)index;
	(void)arg;
	REQUIRE_OK(spmt_init(&attr, &comm));
	for (int i = 0; i < 1100 && !code; i++) {
		code = spmt_lane(comm, KEY, &lane);
		if (!code) {
			REQUIRE_OK(spmt_abort(lane, -5));
			REQUIRE_OK(spmt_finalize(lane));
		}
	}
	REQUIRE_EQ(code, on_host() ? 0 : -ENOMEM);
	if (code)
		REQUIRE_SAYS("are alive or have broken: 1024 of a world of backend");
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_finalize(comm);
}

Test(lanes_kernels, those_that_broke_take_room)
{
	RANKS_OK(ranks_threads(1, all_broken, NULL));
}
