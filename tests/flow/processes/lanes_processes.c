/* SPDX-License-Identifier: MIT */
/* Lanes whose ranks live in several processes of a node: one key is one lane in all of them, of worlds and of parts. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "spmt/comm/comm.h"
#include "spmt_device.h"
#include "tests/lib/device/device_streams.h"
#include "tests/lib/processes.h"

enum { KEY = 4242, LANES = 4, ROUNDS = 4 };

static void in_processes(const char *layout, int (*fn)(spmt_comm *comm, void *arg))
{
	struct processes p = { .layout = layout };

	NEEDS_LAYOUT(layout);
	RANKS_OK(processes_world(&p, fn, &p));
}

/* Symmetric words of the world: what is given, and what is got. */
static int words_make(spmt_comm *comm, size_t n, uint64_t **in, uint64_t **out)
{
	uint64_t mine = (uint64_t)spmt_rank(comm) + 1;

	REQUIRE_OK(spmt_calloc(comm, n, sizeof(uint64_t), (void **)in));
	REQUIRE_OK(spmt_calloc(comm, n, sizeof(uint64_t), (void **)out));
	for (size_t i = 0; i < n; i++)
		REQUIRE_OK(spmt_copy_in(comm, &(*in)[i], &mine, sizeof(mine)));
	return spmt_barrier(comm);
}

static int has_word(spmt_comm *comm, const uint64_t *word, uint64_t want)
{
	uint64_t seen;

	REQUIRE_OK(spmt_copy_out(comm, &seen, word, sizeof(seen)));
	REQUIRE_EQ(seen, want);
	return 0;
}

static int sum(spmt_comm *lane, uint64_t *out, const uint64_t *in)
{
	return spmt_all_reduce(lane, out, in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL);
}

static void count(void *arg, int code)
{
	_Atomic int *calls = arg;

	atomic_fetch_add(calls, code ? 1000 : 1);
}

/* ---- order ------------------------------------------------------------------------------------------------------------- */

/* Lanes of `of`, a comm of world ranks whose words add up to `all`; odd ranks call them the other way round. */
static int opposite_on(
	spmt_comm *comm, spmt_comm *of, uint64_t all, uint64_t *in, uint64_t *out, bool again)
{
	int me = spmt_rank(of);
	_Atomic int calls = 0;
	spmt_comm *lane[LANES], *same;

	for (int i = 0; i < LANES; i++)
		REQUIRE_OK(spmt_lane(of, (uint64_t)(me % 2 ? LANES - 1 - i : i),
			&lane[me % 2 ? LANES - 1 - i : i]));
	for (int k = 0; k < LANES * ROUNDS; k++) {
		int i = me % 2 ? LANES - 1 - k % LANES : k % LANES;

		REQUIRE_OK(sum(lane[i], &out[k / LANES * LANES + i], &in[i]));
		REQUIRE_OK(spmt_on_complete(lane[i], NULL, count, &calls));
	}
	for (int i = 0; i < LANES; i++)
		REQUIRE_OK(spmt_quiet(lane[i]));
	for (int k = 0; k < LANES * ROUNDS; k++)
		TRY(has_word(comm, &out[k], all));
	REQUIRE_EQ(atomic_load(&calls), LANES * ROUNDS);
	REQUIRE_OK(spmt_lane(of, 1, &same));
	REQUIRE(same == lane[1]);
	for (int i = 0; again && i < LANES; i++)
		REQUIRE_OK(spmt_finalize(lane[i]));
	return 0;
}

/* Keys of the world and of its parts are each their own; areas come back as they are. */
static int opposite(spmt_comm *comm, void *arg)
{
	uint64_t n = (uint64_t)spmt_nranks(comm), me = (uint64_t)spmt_rank(comm), half = 0;
	uint64_t *in, *out;
	spmt_comm *part;

	(void)arg;
	TRY(words_make(comm, LANES * ROUNDS, &in, &out));
	TRY(opposite_on(comm, comm, n * (n + 1) / 2, in, out, true));
	for (uint64_t r = me / (n / 2) * (n / 2); r < (me / (n / 2) + 1) * (n / 2); r++)
		half += r + 1;
	REQUIRE_OK(spmt_split(comm, me >= n / 2, -(int)me, &part));
	TRY(opposite_on(comm, part, half, in, out, true));
	TRY(opposite_on(comm, comm, n * (n + 1) / 2, in, out, true));
	TRY(opposite_on(comm, part, half, in, out, false)); /* these end with their comm */
	return spmt_finalize(part);
}

Test(lanes_processes, ranks_call_lanes_in_opposite_order)
{
	in_processes("0|1", opposite);
	in_processes("0,2|1,3", opposite);
	in_processes("0,1|2,3", opposite);
}

/* ---- what is refused --------------------------------------------------------------------------------------------------- */

static int refused(spmt_comm *comm, void *arg)
{
	uint64_t *in, *out, word = 1;
	spmt_comm *lane, *none;

	(void)arg;
	TRY(words_make(comm, 2, &in, &out));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_CODE(spmt_lane(lane, KEY, &none), -EINVAL);
	REQUIRE_CODE(spmt_lane(comm, KEY, NULL), -EINVAL);
	REQUIRE_CODE(sum(lane, &word, in), -EINVAL);
	REQUIRE_SAYS("dst ");
	REQUIRE_SAYS("is not in the heap: ranks of other processes reach nothing else");
	REQUIRE_CODE(sum(lane, out, &word), -EINVAL);
	REQUIRE_SAYS("src ");
	REQUIRE_CODE(spmt_fence(lane), SPMT_ERR_UNSUPPORTED);
	REQUIRE_OK(sum(lane, out, in)); /* nothing of it has broken anything */
	REQUIRE_OK(spmt_barrier(lane));
	return has_word(comm, out, 3);
}

Test(lanes_processes, what_other_processes_do_not_reach_is_refused)
{
	in_processes("0|1", refused);
}

/* ---- failures ---------------------------------------------------------------------------------------------------------- */

/* Rank 1 does not come until the others have given up; then the key names another lane, in all processes. */
static int late(spmt_comm *comm, void *arg)
{
	int me = spmt_rank(comm);
	spmt_comm *lane, *next, *beside;
	uint64_t *in, *out;

	(void)arg;
	TRY(words_make(comm, 2, &in, &out));
	REQUIRE_OK(spmt_lane(comm, 1, &beside));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, 100));
	if (me != 1) {
		REQUIRE_OK(sum(lane, out, in));
		REQUIRE_CODE(spmt_quiet(lane), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("lane 4242: ");
		REQUIRE_SAYS("1 of 3 ranks missing after");
		REQUIRE_SAYS(": 1");
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_CODE(spmt_status(lane), SPMT_ERR_TIMEOUT);
	REQUIRE_CODE(sum(lane, out, in), SPMT_ERR_BROKEN);
	REQUIRE_SAYS("lane 4242: ");
	TRY(has_word(comm, out, 0));
	REQUIRE_OK(spmt_lane(comm, KEY, &next));
	REQUIRE(next != lane);
	REQUIRE_OK(sum(next, out, in));
	REQUIRE_OK(spmt_quiet(next));
	TRY(has_word(comm, out, 6));
	REQUIRE_OK(sum(beside, &out[1], in));
	REQUIRE_OK(spmt_quiet(beside));
	TRY(has_word(comm, &out[1], 6));
	REQUIRE_OK(spmt_finalize(lane));
	REQUIRE_OK(spmt_status(comm));
	return spmt_barrier(next);
}

Test(lanes_processes, one_that_timed_out_is_replaced)
{
	in_processes("0|1|2", late);
	in_processes("0,2|1", late);
}

/* An abort ends what waits in other processes. */
static int aborted(spmt_comm *comm, void *arg)
{
	uint64_t *in, *out;
	spmt_comm *lane;

	(void)arg;
	TRY(words_make(comm, 1, &in, &out));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, 30000));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		REQUIRE_OK(sum(lane, out, in));
		REQUIRE_CODE(spmt_quiet(lane), -66);
	} else {
		sleep_ms(50);
		REQUIRE_OK(spmt_abort(lane, -66));
	}
	REQUIRE_CODE(spmt_status(lane), -66);
	REQUIRE_SAYS("aborted lane 4242 with code -66");
	TRY(has_word(comm, out, 0));
	return spmt_barrier(comm);
}

Test(lanes_processes, an_abort_is_heard_in_all_processes)
{
	in_processes("0|1,2", aborted);
}

/* What is queued on a lane ends with its world, or with its part. */
static int with_its_comm(spmt_comm *comm, void *arg)
{
	uint64_t *in, *out;
	spmt_comm *lane, *part;

	(void)arg;
	TRY(words_make(comm, 1, &in, &out));
	for (int whole = 0; whole < 2; whole++) {
		part = comm;
		if (!whole)
			REQUIRE_OK(spmt_split(comm, 0, 0, &part));
		REQUIRE_OK(spmt_lane(part, KEY, &lane));
		REQUIRE_OK(spmt_set_timeout(lane, 30000));
		if (spmt_rank(comm))
			REQUIRE_OK(sum(lane, out, in));
		REQUIRE_OK(spmt_barrier(comm));
		if (spmt_rank(comm) == 0)
			REQUIRE_OK(spmt_abort(part, -44));
		while (!spmt_status(part))
			sleep_ms(1);
		REQUIRE_CODE(spmt_status(lane), -44);
		REQUIRE(spmt_lane(part, KEY + 1, &lane) < 0);
		if (!whole)
			REQUIRE_OK(spmt_barrier(comm));
	}
	return 0;
}

Test(lanes_processes, a_lane_breaks_with_its_comm)
{
	in_processes("0|1", with_its_comm);
}

/* A process that breaks the part writes why, which all see, and goes through its lanes later. */
static int before_its_lanes(spmt_comm *comm, void *arg)
{
	uint64_t *in, *out;
	spmt_comm *lane, *part;
	struct cause cause;

	(void)arg;
	TRY(words_make(comm, 1, &in, &out));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_lane(part, KEY, &lane));
	REQUIRE_OK(spmt_status(lane));
	REQUIRE_OK(spmt_barrier(comm));
	cause_set(&cause, -44, NULL, "on purpose");
	if (spmt_rank(comm) == 0)
		REQUIRE(control_break(part->control, &cause));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_CODE(spmt_status(part), -44);
	REQUIRE_CODE(spmt_status(lane), -44);
	REQUIRE_SAYS("lane 4242: on purpose");
	REQUIRE_CODE(sum(lane, out, in), -44);
	return spmt_barrier(comm);
}

Test(lanes_processes, a_lane_is_no_better_than_its_comm)
{
	in_processes("0|1", before_its_lanes);
	in_processes("0,1", before_its_lanes);
}

/* Whoever has heard of the part, or of the world, by any call finds its lanes broken, too. */
static int after_its_comm(spmt_comm *comm, void *arg)
{
	uint64_t *in, *out;
	spmt_comm *of_world, *of_part, *part;
	struct cause cause;

	(void)arg;
	TRY(words_make(comm, 1, &in, &out));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_lane(part, KEY, &of_part));
	REQUIRE_OK(spmt_barrier(comm));
	cause_set(&cause, -44, NULL, "on purpose");
	if (spmt_rank(comm) == 0)
		REQUIRE(control_break(part->control, &cause));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_CODE(spmt_barrier(part), -44);
	REQUIRE_CODE(sum(of_part, out, in), -44);
	REQUIRE_SAYS("lane 4242: on purpose");
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_lane(part, KEY, &of_part));
	REQUIRE_OK(spmt_lane(comm, KEY, &of_world));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		REQUIRE(control_break(comm->control, &cause));
	REQUIRE_CODE(spmt_barrier(comm), -44);
	REQUIRE_CODE(sum(of_world, out, in), -44);
	REQUIRE_SAYS("lane 4242: its world is broken: on purpose");
	REQUIRE_CODE(sum(of_part, out, in), -44);
	return 0;
}

Test(lanes_processes, a_call_on_its_comm_tells_of_a_lane)
{
	in_processes("0|1", after_its_comm);
	in_processes("0,1", after_its_comm);
}

/* Rank 0 breaks the part, and knows nothing of the lane that the others are in. */
static int breaks_unseen(spmt_comm *comm, void *arg)
{
	uint64_t *in, *out;
	spmt_comm *lane, *part;

	(void)arg;
	TRY(words_make(comm, 1, &in, &out));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	if (spmt_rank(comm)) {
		REQUIRE_OK(spmt_lane(part, KEY, &lane));
		REQUIRE_OK(spmt_set_timeout(lane, 30000));
		REQUIRE_OK(sum(lane, out, in));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(spmt_abort(part, -44));
		return spmt_barrier(comm);
	}
	REQUIRE_CODE(spmt_quiet(lane), -44);
	REQUIRE_SAYS("lane 4242: ");
	REQUIRE_CODE(spmt_lane(part, KEY, &lane), -44);
	return spmt_barrier(comm);
}

Test(lanes_processes, a_part_breaks_lanes_of_other_processes_alone)
{
	in_processes("0|1", breaks_unseen);
	in_processes("0|1,2", breaks_unseen);
}

/* ---- the end while work goes on ---------------------------------------------------------------------------------------- */

/* What holds the stream up is not the lane's: the rank ends the lane nevertheless, and its key names another one. */
static int held(spmt_comm *comm, void *arg)
{
	struct latch latch = { .open = 0 }, *at = &latch;
	uint64_t *in, *out;
	spmt_comm *lane, *next;
	spmt_stream s;

	(void)arg;
	TRY(words_make(comm, 2, &in, &out));
	REQUIRE_OK(stream_make(comm, &s));
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_set_timeout(lane, 100));
	if (spmt_rank(comm) == 0) {
		REQUIRE_OK(stream_call(comm, s, latch_kernel, &at, sizeof(at)));
		REQUIRE_OK(spmt_all_reduce(lane, out, in, 1, SPMT_TYPE_U64, SPMT_OP_SUM, s));
		REQUIRE_CODE(spmt_finalize(lane), SPMT_ERR_TIMEOUT);
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		REQUIRE(sum(lane, out, in) < 0);
		REQUIRE_SAYS("lane 4242: rank 0 has ended it");
	}
	REQUIRE_OK(spmt_lane(comm, KEY, &next));
	REQUIRE(next != lane);
	REQUIRE_OK(sum(next, &out[1], in));
	REQUIRE_OK(spmt_quiet(next));
	TRY(has_word(comm, &out[1], 3));
	if (spmt_rank(comm) == 0)
		latch_release(&latch);
	REQUIRE(!latch.given_up);
	(void)stream_wait(comm, s);
	TRY(has_word(comm, out, 0));
	REQUIRE_OK(spmt_barrier(comm));
	return stream_end(comm, s);
}

Test(lanes_processes, one_that_ends_while_its_stream_is_held_up_is_replaced)
{
	in_processes("0|1", held);
}

/* ---- room -------------------------------------------------------------------------------------------------------------- */

/* Of a part: those that broke in one process are taken in the other, too. */
static int room(spmt_comm *comm, void *arg)
{
	int code = 0, n = 0;
	spmt_comm *part, *lane;

	(void)arg;
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	for (; spmt_rank(comm) == 0 && n < 100 && !code; n += !code) {
		code = spmt_lane(part, KEY, &lane);
		if (code)
			break;
		REQUIRE_OK(spmt_abort(lane, -5));
		REQUIRE_OK(spmt_finalize(lane));
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		REQUIRE_EQ(n, 32);
	REQUIRE_CODE(spmt_lane(part, KEY + 1, &lane), -ENOMEM);
	REQUIRE_SAYS("32 of a part of backend");
	REQUIRE_OK(spmt_lane(comm, KEY, &lane));
	REQUIRE_OK(spmt_barrier(lane));
	REQUIRE_OK(spmt_finalize(part));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	REQUIRE_OK(spmt_lane(part, KEY, &lane));
	return spmt_barrier(lane);
}

Test(lanes_processes, those_that_broke_take_room_everywhere)
{
	in_processes("0|1", room);
}
