/* SPDX-License-Identifier: MIT */
/*
 * verbs_rails BACKEND: moves in pieces that wait in a stream while another comm deregisters their buffer, over the stand-in for
 * libibverbs and, for memory that the CPU does not reach, for the driver. Both devices of a rank know the buffer until the
 * pieces are through, not longer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"
#include "tests/lib/transports/fake_nic.h"

enum { PAIR = 2, BIG = 256 << 10, DEVICES = 2, SALT = 3, MOVED = 9 };

static const struct spmt_attr attr = { .size = sizeof(attr), .heap_size = 4 << 20 };
static char own[PAIR][BIG];
static _Atomic bool reached, go;

static void stand(void *arg, int code)
{
	(void)arg;
	(void)code;
	reached = true;
	while (!go)
		sleep_ms(1);
}

struct scene {
	bool get, fails; /* one before it, so that nothing of it happens */
};

/* Behind what stands in the stream. */
static int queue_move(const struct scene *s, spmt_comm *comm, char *block)
{
	fill(own[0], BIG, s->get ? 0 : MOVED);
	REQUIRE_OK(spmt_on_complete(comm, NULL, stand, NULL));
	while (!reached)
		sleep_ms(1);
	if (s->fails)
		REQUIRE_OK(spmt_put_on_stream(comm, block, block, 1, 1, NULL));
	if (s->get)
		REQUIRE_OK(spmt_get_on_stream(comm, own[0], block, BIG, 1, NULL));
	else
		REQUIRE_OK(spmt_put_on_stream(comm, block, own[0], BIG, 1, NULL));
	return 0;
}

/* Rank 1's registrations go at once, rank 0's with the move. */
static int move_waits(const struct scene *s, spmt_comm *comm, spmt_comm *part, char *block)
{
	int rank = spmt_rank(comm), before;
	spmt_mem *mem;

	REQUIRE_OK(spmt_register(part, own[rank], BIG, &mem));
	REQUIRE_OK(spmt_barrier(part));
	before = fake.live();
	REQUIRE_OK(spmt_barrier(part));
	if (!rank)
		TRY(queue_move(s, comm, block));
	REQUIRE_OK(spmt_deregister(part, mem));
	REQUIRE_OK(spmt_barrier(part));
	if (rank)
		return 0;
	REQUIRE_EQ(fake.live(), before - DEVICES);
	if (s->fails)
		fake.break_work(1, VERBS_WC_REM_ACCESS_ERR);
	go = true;
	REQUIRE_EQ(spmt_quiet(comm), s->fails ? -EIO : 0);
	fake.break_work(0, 0);
	REQUIRE_EQ(fake.live(), before - 2 * DEVICES);
	return 0;
}

static int scene_rank(spmt_comm *comm, void *arg)
{
	const struct scene *s = arg;
	int rank = spmt_rank(comm), rc;
	spmt_comm *part;
	char *block;

	REQUIRE_OK(spmt_malloc(comm, 2 * BIG, (void **)&block));
	REQUIRE_OK(spmt_split(comm, 0, rank, &part));
	fill(own[rank], BIG, SALT + rank);
	/* they meet, by both devices, and rank 1 has what is to be fetched */
	REQUIRE_OK(spmt_put(comm, block, own[rank], BIG, rank));
	REQUIRE_OK(spmt_put(comm, block + BIG, block, BIG, !rank));
	REQUIRE_OK(spmt_barrier(comm));
	rc = move_waits(s, comm, part, block);
	go |= !rank;
	if (rc || s->fails)
		return rc;
	REQUIRE_OK(spmt_barrier(comm));
	if (!s->get)
		REQUIRE_OK(spmt_get(comm, own[rank], block, BIG, rank));
	if (rank != s->get)
		return filled_by("in pieces", own[rank], BIG, s->get ? SALT + 1 : MOVED);
	return 0;
}

static int play(const struct scene *s)
{
	static const int apart[PAIR] = { 0, 2 }; /* so that their first devices are the same */

	reached = go = false;
	TRY(ranks_run_on(PAIR, &attr, apart, scene_rank, (void *)(uintptr_t)s));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

static int put_waits(void)
{
	return play(&(struct scene){ .get = false });
}

static int get_waits(void)
{
	return play(&(struct scene){ .get = true });
}

static int not_done(void)
{
	return play(&(struct scene){ .fails = true });
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "a put in pieces whose buffer is deregistered meanwhile", put_waits },
		{ "a get in pieces", get_waits },
		{ "a put behind one that fails", not_done },
	};

	if (argc > 1) {
		setenv("SPMT_BACKEND", argv[1], 1);
		setenv("SPMT_CUDA_LIB", FAKES "/fake-cuda.so", 1);
		setenv("SPMT_FAKE_BLIND", "1", 1);
		setenv("SPMT_FAKE_DEVICES", "4", 1);
	}
	setenv("SPMT_RDMA_STRIPE", "4", 1);
	setenv("SPMT_RDMA_STRIPE_FROM", "64K", 1);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
