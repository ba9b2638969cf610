/* SPDX-License-Identifier: MIT */
/*
 * Ranks of a test: n threads, one a rank, with a world or without, the first failure kept; a watchdog, so that no test hangs; and
 * checks that return instead of asserting, for asserts belong to the test's own thread. Comes with what such tests use: which backend
 * it is, clocks, rounds, patterns, streams, leaks.
 */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "clocks.h"
#include "device/backend_here.h"
#include "device/device_streams.h"
#include "patterns.h"
#include "rounds.h"
#include "spmt.h"
#include "usage.h"

/* ---- threads ------------------------------------------------------------------------------------------------------ */

enum { RANKS_FAILED = -30000 };

/*
 * fn(index, arg) on n threads; returns when all have. 0 or the first non-zero code; ranks_message() then says who, where and
 * why. Threads that are still running at the deadline are printed, their worlds aborted, and the process ends if that
 * does not free them. May be called from several threads.
 */
int ranks_threads(int n, int (*fn)(int index, void *arg), void *arg);
int ranks_threads_stack(int n, size_t stack, int (*fn)(int index, void *arg), void *arg);

/*
 * The same with a world: init, fn, finalize on each thread. A rank whose fn fails aborts the world. `common` may be NULL
 * (4 MiB of heap then); its rank, nranks, device and uid are set here. devices: one ordinal a rank, NULL: device_of() each.
 */
int ranks_run(int n, const struct spmt_attr *common, int (*fn)(spmt_comm *, void *), void *arg);
int ranks_run_on(int n, const struct spmt_attr *common, const int *devices,
	int (*fn)(spmt_comm *, void *), void *arg);

/* fn by ranks of even and odd number, each on a part of the comm; by all of them; and by the parts again. */
int ranks_halves(spmt_comm *comm, int (*fn)(spmt_comm *, void *), void *arg);

const char *ranks_message(void); /* of this thread's last ranks_* call */
int64_t ranks_failed_ns(void);	 /* when it failed, by CLOCK_MONOTONIC; 0: it did not */
void ranks_deadline(
	int seconds); /* of the watchdog, for this process; 60 at first, longer under sanitizers; opening_s() more */
struct spmt_attr ranks_attr(
	int rank, int nranks, const spmt_uid *uid); /* 4 MiB of heap, device_of(rank) */
void ranks_watch(spmt_comm *
		comm); /* a comm that this thread made itself and the watchdog may abort; NULL: none */

/* In a Criterion test's own thread. */
#define RANKS_OK(call) cr_assert_eq((call), 0, "%s", ranks_message())

/* ---- checks that return ------------------------------------------------------------------------------------------- */

void ranks_at(const char *file, int line); /* where this thread is, for the watchdog */
int ranks_fail(const char *fmt, ...)
	__attribute__((format(printf, 1, 2))); /* records, returns RANKS_FAILED */
int ranks_eq(const char *a_text, intmax_t a, const char *b_text, intmax_t b);
int ranks_code(const char *text, int code, int want);
int ranks_says(const char *word);

#define RANKS_TRY_(expr)                      \
	do {                                  \
		int ranks_code_;              \
		ranks_at(__FILE__, __LINE__); \
		ranks_code_ = (expr);         \
		if (ranks_code_)              \
			return ranks_code_;   \
	} while (0)
#define REQUIRE(cond) RANKS_TRY_((cond) ? 0 : ranks_fail("%s", #cond))
#define REQUIRE_EQ(a, b) RANKS_TRY_(ranks_eq(#a, (intmax_t)(a), #b, (intmax_t)(b)))
#define REQUIRE_CODE(call, to) RANKS_TRY_(ranks_code(#call, (call), (to)))
#define REQUIRE_OK(call) REQUIRE_CODE(call, 0)
#define REQUIRE_SAYS(word) RANKS_TRY_(ranks_says(word)) /* spmt_last_error() contains it */
#define TRY(call) RANKS_TRY_(call)			/* a helper that has recorded its failure */

#endif
