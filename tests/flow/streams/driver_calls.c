/* SPDX-License-Identifier: MIT */
/*
 * How many calls of the driver one call of ours on a stream makes, over the stand-ins (SPMT_BACKEND and its SPMT_*_LIB name one): each
 * of them costs a framework that enqueues thousands of calls a second. A rank alone, so that nobody else calls the driver meanwhile.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/lib/ranks.h"

TestSuite(driver_calls, .timeout = 120);

enum { WORDS = 16, SIZE = WORDS * 8, TIMES = 8 };

struct scene {
	spmt_comm *comm;
	uint64_t *dst, *src, *sig; /* symmetric */
	spmt_stream stream;
	int (*made)(const char *name);
	bool hip;
};

static int do_put(struct scene *s)
{
	return spmt_put_on_stream(s->comm, s->dst, s->src, SIZE, 0, s->stream);
}

static int do_get(struct scene *s)
{
	return spmt_get_on_stream(s->comm, s->dst, s->src, SIZE, 0, s->stream);
}

static int do_signal(struct scene *s)
{
	return spmt_signal_on_stream(s->comm, s->sig, 1, SPMT_SIGNAL_ADD, 0, s->stream);
}

static int do_put_signal(struct scene *s)
{
	return spmt_put_signal_on_stream(
		s->comm, s->dst, s->src, SIZE, s->sig, 1, SPMT_SIGNAL_ADD, 0, s->stream);
}

static int do_wait(struct scene *s)
{
	return spmt_signal_wait_on_stream(s->comm, s->sig, SPMT_CMP_GE, 0, s->stream);
}

static int do_barrier(struct scene *s)
{
	return spmt_barrier_on_stream(s->comm, s->stream);
}

static int do_reduce(struct scene *s)
{
	return spmt_all_reduce(
		s->comm, s->dst, s->src, WORDS, SPMT_TYPE_U64, SPMT_OP_SUM, s->stream);
}

static int do_gather(struct scene *s)
{
	return spmt_all_gather(s->comm, s->dst, s->src, WORDS, SPMT_TYPE_U64, s->stream);
}

static int do_quiet(struct scene *s)
{
	return spmt_quiet_on_stream(s->comm, s->stream);
}

/* The most of CUDA's, of HIP's, and of those that record an event, which is work for the device. In the stream of a user; in one that is
   registered; in the comm's own. HIP does not say which stream a handle means, so that each call waits for the one before. */
static const struct row {
	const char *name;
	int (*call)(struct scene *s);
	struct most {
		int cuda, hip, records;
	} user, kept, own;
} rows[] = {
	{ "put", do_put, { 4, 7, 1 }, { 2, 5, 0 }, { 1, 4, 0 } },
	{ "get", do_get, { 4, 7, 1 }, { 2, 5, 0 }, { 1, 4, 0 } },
	{ "signal", do_signal, { 7, 7, 1 }, { 5, 5, 0 }, { 4, 4, 0 } },
	{ "put and signal", do_put_signal, { 8, 8, 1 }, { 6, 6, 0 }, { 5, 5, 0 } },
	{ "wait", do_wait, { 7, 7, 1 }, { 5, 5, 0 }, { 4, 4, 0 } },
	{ "barrier", do_barrier, { 7, 7, 1 }, { 5, 5, 0 }, { 4, 4, 0 } },
	{ "all_reduce", do_reduce, { 7, 7, 1 }, { 5, 5, 0 }, { 4, 4, 0 } },
	{ "all_gather", do_gather, { 7, 7, 1 }, { 5, 5, 0 }, { 4, 4, 0 } },
	{ "quiet", do_quiet, { 4, 6, 1 }, { 1, 4, 0 }, { 0, 0, 0 } },
};

static int count_one(
	struct scene *s, const struct row *row, const char *where, const struct most *most)
{
	const char *record = s->hip ? "hipEventRecord" : "cuEventRecord";
	int all, records;

	/* what is made once a stream, and what an earlier call has left to be asked */
	REQUIRE_OK(row->call(s));
	REQUIRE_OK(spmt_quiet(s->comm));
	REQUIRE_OK(row->call(s));
	all = s->made(NULL);
	records = s->made(record);
	for (int i = 0; i < TIMES; i++)
		REQUIRE_OK(row->call(s));
	all = s->made(NULL) - all;
	records = s->made(record) - records;
	if (all > TIMES * (s->hip ? most->hip : most->cuda) || records > TIMES * most->records)
		return ranks_fail("%s, %s stream: %d calls, %d of them record, of %d times",
			row->name, where, all, records, TIMES);
	return spmt_quiet(s->comm);
}

static int count_all(spmt_comm *comm, void *arg)
{
	struct scene s = *(struct scene *)arg;
	spmt_stream user;
	SPMT_GUARD(comm); /* as a framework's thread has its device bound */

	s.comm = comm;
	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.dst));
	REQUIRE_OK(spmt_calloc(comm, 1, SIZE, (void **)&s.src));
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&s.sig));
	REQUIRE_OK(stream_make(comm, &user));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		s.stream = user;
		TRY(count_one(&s, &rows[i], "a user's", &rows[i].user));
		REQUIRE_OK(spmt_stream_register(comm, user));
		TRY(count_one(&s, &rows[i], "a registered", &rows[i].kept));
		REQUIRE_OK(spmt_stream_deregister(comm, user));
		s.stream = NULL;
		TRY(count_one(&s, &rows[i], "its own", &rows[i].own));
	}
	return stream_end(comm, user);
}

Test(driver_calls, one_call_on_a_stream_makes_few)
{
	struct scene s = { .hip = !strcmp(getenv("SPMT_BACKEND"), "hip") };
	void *library =
		dlopen(getenv(s.hip ? "SPMT_HIP_LIB" : "SPMT_CUDA_LIB"), RTLD_NOW | RTLD_LOCAL);
	void *address;

	cr_assert_not_null(library);
	address = dlsym(library, "fake_made");
	cr_assert_not_null(address);
	memcpy(&s.made, &address, sizeof(address));
	RANKS_OK(ranks_run(1, NULL, count_all, &s));
}
