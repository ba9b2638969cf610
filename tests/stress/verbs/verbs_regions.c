/* SPDX-License-Identifier: MIT */
/*
 * A buffer that two comms use: one has registered it, moves of the other are in flight from or to it when the first one deregisters it.
 * They end well, and the device knows the buffer until then, not longer. What ports have registered of their own is no child's. Two ranks
 * as threads, over the stand-in for libibverbs, each with a device of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spmt/comm/comm.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"
#include "tests/lib/transports/fake_nic.h"
#include "transports/verbs/ask.h"
#include "transports/verbs/hello.h"
#include "transports/verbs/map.h"

enum { RANKS = 2, SIZE = 1 << 20, PIECES = 4, PIECE = SIZE / PIECES, SALT = 7, BOUNCED = 4096 };

/* What rank 0 has in flight as the part deregisters its buffer. */
struct scene {
	bool get;
	uint32_t status; /* with which the last of it ends; 0: it does not fail */
};

static int post(const struct scene *s, spmt_comm *comm, char *block, char *own)
{
	for (size_t at = 0; at < SIZE; at += PIECE)
		if (s->get)
			REQUIRE_OK(spmt_get_nbi(comm, own + at, block + at, PIECE, 1));
		else
			REQUIRE_OK(spmt_put_nbi(comm, block + at, own + at, PIECE, 1));
	return 0;
}

/* Of a world whose ranks have met, and a part of both. */
static int deregister_rank(
	const struct scene *s, spmt_comm *comm, spmt_comm *part, char *block, char *own)
{
	int rank = spmt_rank(comm), before = 0;
	spmt_mem *mem;

	REQUIRE_OK(spmt_register(part, own, SIZE, &mem));
	REQUIRE_OK(spmt_barrier(part));
	if (!rank) {
		before = fake.live();
		fake.hold(1);
		if (s->status)
			fake.break_work(PIECES, s->status);
		TRY(post(s, comm, block, own));
	}
	REQUIRE_OK(spmt_deregister(part, mem));
	REQUIRE_OK(spmt_barrier(part));
	if (!rank) {
		REQUIRE_EQ(fake.live(), before - 1); /* the peer's, which nothing uses */
		fake.hold(0);
		REQUIRE_EQ(spmt_quiet(comm), s->status ? -EIO : 0);
		fake.break_work(0, 0);
		REQUIRE_EQ(fake.live(), before - 2);
	}
	return s->status ? 0 : spmt_barrier(comm);
}

static int scene_rank(spmt_comm *comm, void *arg)
{
	const struct scene *s = arg;
	int rank = spmt_rank(comm), rc;
	char *block, *own = malloc(SIZE);
	spmt_comm *part;

	REQUIRE(own != NULL);
	REQUIRE_OK(spmt_malloc(comm, SIZE + 1, (void **)&block));
	REQUIRE_OK(spmt_split(comm, 0, 0, &part));
	fill(s->get ? block : own, SIZE, SALT + rank);
	REQUIRE_OK(spmt_put(comm, block + SIZE, block, 1, !rank)); /* they meet */
	REQUIRE_OK(spmt_barrier(comm));
	rc = deregister_rank(s, comm, part, block, own);
	if (!rank)
		fake.hold(0);
	if (!rc && !s->status && rank == (s->get ? 0 : 1))
		rc = filled(s->get ? own : block, SIZE, SALT + (s->get ? 1 : 0));
	free(own);
	return rc;
}

static int play(const struct scene *s)
{
	struct spmt_attr a = { .size = sizeof(a), .heap_size = 8 << 20 };

	TRY(ranks_run(RANKS, &a, scene_rank, (void *)(uintptr_t)s));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

static int puts_in_flight(void)
{
	return play(&(struct scene){ .get = false });
}

static int gets_in_flight(void)
{
	return play(&(struct scene){ .get = true });
}

static int puts_that_fail(void)
{
	return play(&(struct scene){ .status = VERBS_WC_REM_ACCESS_ERR });
}

/* ---- the port's own --------------------------------------------------------------------------- */

static bool is_zeros(const char *at, size_t n)
{
	return !at[0] && !memcmp(at, at + 1, n - 1);
}

/* A child shares none of it, not even until the next write: on kernels that do not copy pinned pages in fork(), that write would part the
   port from what its device has. */
static int apart_from_children(const char *at, size_t n)
{
	int status;
	pid_t pid;

	REQUIRE(!is_zeros(at, n));
	pid = fork();
	if (!pid)
		_exit(!is_zeros(at, n));
	REQUIRE(pid > 0);
	REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	REQUIRE_EQ(status, 0);
	return 0;
}

static int forks_rank(spmt_comm *comm, void *arg)
{
	static char bytes[BOUNCED];
	uint64_t *words;
	struct nic *nic;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, BOUNCED / sizeof(*words), sizeof(*words), (void **)&words));
	if (!spmt_rank(comm)) {
		memset(bytes, SALT, sizeof(bytes));
		REQUIRE_OK(spmt_put(comm, words, bytes, sizeof(bytes), 1));
		REQUIRE_OK(spmt_signal(comm, words, 1, SPMT_SIGNAL_ADD, 1));
		REQUIRE_OK(spmt_quiet(comm));
		nic = comm->slot->rdma->nic;
		TRY(apart_from_children(nic->chunks, NIC_CHUNKS * NIC_CHUNK));
		TRY(apart_from_children(nic->hellos, HELLO_BYTES));
		TRY(apart_from_children(nic->conns[0]->messages, ASK_ROOM));
	}
	return spmt_barrier(comm);
}

static int forks(void)
{
	TRY(ranks_run(RANKS, NULL, forks_rank, NULL));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "puts from a buffer that another comm deregisters", puts_in_flight },
		{ "gets to it", gets_in_flight },
		{ "puts that fail", puts_that_fail },
		{ "the port's own memory and forked children", forks },
	};

	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
