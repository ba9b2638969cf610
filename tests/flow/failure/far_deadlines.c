/* SPDX-License-Identifier: MIT */
/* Kernels whose peers have no address (tests/lib/transports/mail.h) and take no letters for a while: what ends at the deadline, what is told of
   it, and that all goes on behind it. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt/comm/comm.h"
#include "spmt_device.h"
#include "tests/lib/ranks.h"
#include "tests/lib/transports/mail.h"

#define LETTERS "letters do not leave the process, and are served by a CPU"

enum { ROOM = 8192, PLACES = 1 << 9 };

struct args {
	struct spmt_view view, hasty; /* hasty: with a deadline of a ms */
	char *at;		      /* symmetric, ROOM bytes */
	uint64_t *sig;		      /* symmetric, 8 words */
};

static int args_make(spmt_comm *comm, struct args *a)
{
	void *at, *sig;

	*a = (struct args){ .view.size = sizeof(a->view) };
	REQUIRE_OK(spmt_calloc(comm, 1, ROOM, &at));
	REQUIRE_OK(spmt_calloc(comm, 8, 8, &sig));
	a->at = at;
	a->sig = sig;
	REQUIRE_OK(spmt_view_get(comm, &a->view));
	a->hasty = a->view;
	a->hasty.timeout_ns = 1000000;
	return spmt_barrier(comm);
}

static void by_mail(void)
{
	setenv("SPMT_MAPS", "rdma", 1);
}
TestSuite(far_deadlines, .init = by_mail);

/* ---- a full ring -------------------------------------------------------------------------------------------------- */

/* The peer takes no letters: a quiet holds the host's thread up, and then the ring gets full. */
static void fill_ring(spmt_comm *comm, const struct args *a, int *code)
{
	mail_hold(&comm->links[1]);
	spmtd_uint64_p(&a->view, a->sig, 1, 1);
	*code = spmtd_quiet(&a->hasty);
	for (int i = 0; i < PLACES + 88; i++)
		spmtd_signal_op(&a->hasty, a->sig + 1, 1, SPMT_SIGNAL_ADD, 1);
}

static int is_held(spmt_comm *comm, void *arg)
{
	struct args a;
	int code = 0;

	(void)arg;
	TRY(args_make(comm, &a));
	if (spmt_rank(comm) == 0) {
		fill_ring(comm, &a, &code);
		REQUIRE_EQ(code, SPMTD_TIMEOUT);
		mail_release(&comm->links[1]);
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("rank 0: a kernel waited for the host to take its post 2");
		/* which is told once; and what was not posted, by the kernel's next quiet */
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(spmtd_quiet(&a.view), SPMTD_TIMEOUT);
		REQUIRE_EQ(spmtd_quiet(&a.view), 0);
	}
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 1)
		REQUIRE(a.sig[0] == 1 && a.sig[1] >= PLACES - 12 && a.sig[1] < PLACES + 88);
	return 0;
}

Test(far_deadlines, a_full_ring)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(2, NULL, is_held, NULL));
}

/* Nobody hears of rank 0's first arrival. Its second one tells of both. */
static int arrives_unheard(spmt_comm *comm, void *arg)
{
	struct args a;
	int code;

	(void)arg;
	TRY(args_make(comm, &a));
	if (spmt_rank(comm) == 0) {
		fill_ring(comm, &a, &code);
		spmtd_sync_arrive(&a.hasty);
		spmtd_sync_arrive_at(&a.hasty, 5);
		mail_release(&comm->links[1]);
		REQUIRE_EQ(spmtd_sync_wait(&a.view), 0);
		REQUIRE_EQ(spmtd_sync_wait_at(&a.view, 5), 0);
		REQUIRE_EQ(spmtd_quiet(&a.view), SPMTD_TIMEOUT);
	} else {
		spmtd_sync_arrive(&a.view);
		spmtd_sync_arrive_at(&a.view, 5);
		REQUIRE_EQ(spmtd_sync_wait(&a.hasty), SPMTD_TIMEOUT);
		REQUIRE_EQ(spmtd_sync_wait_at(&a.hasty, 5), SPMTD_TIMEOUT);
	}
	for (int i = 0; i < 3; i++) {
		REQUIRE_EQ(spmtd_sync_at(&a.view, 5), 0);
		REQUIRE_EQ(spmtd_barrier(&a.view), 0);
	}
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	return spmt_barrier(comm);
}

Test(far_deadlines, a_sync_makes_up_for_an_arrival_that_found_no_place)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(2, NULL, arrives_unheard, NULL));
}

/* ---- calls that end before they are done ---------------------------------------------------------------------------- */

static void fetches(const struct args *a)
{
	(void)spmtd_uint64_g(&a->hasty, a->sig, 1);
}

static void fetches_by_atomic(const struct args *a)
{
	(void)spmtd_uint64_atomic_fetch_add(&a->hasty, a->sig, 1, 1);
}

static void gets(const struct args *a)
{
	spmtd_getmem(&a->hasty, a->at, a->at, 64, 1);
}

/* More than goes into a letter. */
static void puts_many(const struct args *a)
{
	spmtd_putmem(&a->hasty, a->at, a->at, ROOM, 1);
}

/* So often that more fetches are among them than the host has cells for. */
static int is_late(spmt_comm *comm, void *arg)
{
	static void (*const calls[])(
		const struct args *) = { fetches, fetches_by_atomic, gets, puts_many };
	struct args a;

	(void)arg;
	TRY(args_make(comm, &a));
	a.sig[1] = 7;
	REQUIRE_OK(spmt_barrier(comm));
	for (uint32_t i = 0; spmt_rank(comm) == 0 && i < 2 * SPMTD_CELLS + 4; i++) {
		mail_hold(&comm->links[1]);
		calls[i % 4](&a);
		mail_release(&comm->links[1]);
		REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
		REQUIRE_EQ(spmtd_quiet(&a.view), SPMTD_TIMEOUT);
		REQUIRE_EQ(spmtd_quiet(&a.view), 0);
	}
	REQUIRE_EQ(spmtd_uint64_g(&a.view, a.sig + 1, 1 - spmt_rank(comm)), 7);
	return spmt_barrier(comm);
}

Test(far_deadlines, a_quiet_tells_of_calls_that_ended_before_they_were_done)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(2, NULL, is_late, NULL));
}
