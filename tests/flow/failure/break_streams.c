/* SPDX-License-Identifier: MIT */
/* What lies in users' streams as a world breaks: signals and their data, and work of worlds that are whole. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "spmt.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

/* ---- a signal never comes without its data ----------------------------------------------------------------------- */

enum { SIGNALS = 4000, RUNS = 3, STEP_NS = 50000 };

struct breaks {
	struct processes p;
	_Atomic int *begun; /* worlds whose signals flow */
};

static int signals_flow(spmt_comm *comm, const struct breaks *b, uint64_t *data)
{
	static uint64_t values[SIGNALS];
	spmt_stream stream;
	int rc = 0;

	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	atomic_fetch_add(b->begun, 1);
	for (int i = 0; i < SIGNALS && !rc; i++) {
		values[i] = (uint64_t)i + 1;
		rc = spmt_put_signal_on_stream(comm, &data[0], &values[i], sizeof(*data), &data[1],
			values[i], SPMT_SIGNAL_SET, 0, stream);
	}
	(void)spmt_host_stream_synchronize(stream);
	REQUIRE(data[0] >= data[1]);
	return spmt_host_stream_destroy(stream);
}

/* This process hears of it at some moment, between a put and its signal, too. */
static int breaks_meanwhile(int rank, void *arg)
{
	struct breaks *b = arg;
	const struct timespec later = { .tv_nsec = processes_cycle() * STEP_NS };
	struct spmt_attr attr = ranks_attr(rank, 2, &b->p.uid[processes_cycle()]);
	spmt_comm *comm;
	void *data;
	int rc = 0;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(uint64_t), &data));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank) {
		while (atomic_load(b->begun) <= processes_cycle())
			;
		nanosleep(&later, NULL);
		REQUIRE_OK(spmt_abort(comm, -EIO));
	} else {
		rc = signals_flow(comm, b, data);
	}
	(void)spmt_finalize(comm);
	return rc;
}

Test(break_streams, no_signal_without_its_data)
{
	NEEDS_HOST("streams are the library's");
	for (int i = 0; i < RUNS; i++) {
		struct breaks b = { .p = { .layout = "0|1", .cycles = PROCESSES_CYCLES } };

		b.p.slack = (struct usage){ .fds = 9, .threads = 9, .maps = 99, .rss_kib = 99999 };
		b.begun = processes_shared(sizeof(*b.begun));
		cr_assert(b.begun);
		RANKS_OK(processes_run(&b.p, breaks_meanwhile, &b));
	}
}

/* ---- what does not end with the world is not waited for for long -------------------------------------------------- */

enum { PARTS = 3, SHORT_MS = 4000 };

struct other {
	spmt_uid uid;
	_Atomic bool over; /* what it waits for has been seen */
};

static int sum(spmt_comm *comm, spmt_stream stream)
{
	static int32_t in[2], out[2];
	int rank = spmt_rank(comm);

	return spmt_all_reduce(comm, &out[rank], &in[rank], 1, SPMT_TYPE_I32, SPMT_OP_SUM, stream);
}

/* A put of `comm` in a stream behind what another world's late rank holds up. */
static int put_behind(spmt_comm *comm, spmt_stream stream)
{
	static uint64_t word;
	void *to;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(word), &to));
	REQUIRE_OK(spmt_put_on_stream(comm, to, &word, sizeof(word), 0, stream));
	return 0;
}

static int ends_behind(spmt_comm *other)
{
	spmt_comm *comm, *part;
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	spmt_stream stream;
	int64_t begin;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	REQUIRE_OK(sum(other, stream));
	REQUIRE_OK(put_behind(comm, stream));
	for (int i = 0; i < PARTS; i++) {
		REQUIRE_OK(spmt_split(comm, 0, 0, &part));
		TRY(put_behind(part, stream));
	}
	REQUIRE_OK(spmt_abort(comm, -EIO));
	begin = calm_ns();
	REQUIRE_CODE(spmt_quiet(comm), -EIO);
	(void)spmt_finalize(comm);
	REQUIRE(calm_ns() - begin < SHORT_MS * 1000000ll);
	return spmt_host_stream_destroy(stream);
}

static int in_two_worlds(int rank, void *arg)
{
	struct other *o = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &o->uid);
	spmt_comm *comm;
	int rc = 0;

	REQUIRE_OK(spmt_init(&attr, &comm));
	if (rank) {
		while (!atomic_load(&o->over))
			sleep_ms(1);
		rc = sum(comm, NULL);
	} else {
		rc = ends_behind(comm);
		atomic_store(&o->over, true);
	}
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_finalize(comm));
	return rc;
}

Test(break_streams, another_worlds_kernel_is_not_waited_for)
{
	struct other o = { .over = false };

	NEEDS_HOST("streams are the library's");
	cr_assert(!spmt_uid_create(&o.uid));
	RANKS_OK(ranks_threads(2, in_two_worlds, &o));
}
