/* SPDX-License-Identifier: MIT */
/* Kernels whose peers have no address (tests/lib/transports/mail.h), as behind a NIC: what they put, get, signal and so on is posted to
   the host, by the calls that they use elsewhere. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt/comm/comm.h"
#include "spmt_channel.h"
#include "src/device/host/host.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/ranks.h"
#include "tests/lib/transports/mail.h"

#define LETTERS "letters do not leave the process, and are served by a CPU"

enum { RANKS = 3, WORDS = 64, BYTES = WORDS * 8, ROUNDS = 30 };

static void by_mail(void)
{
	setenv("SPMT_MAPS", "rdma", 1);
}
TestSuite(far_kernels, .init = by_mail);

struct args {
	struct spmt_view view;
	uint64_t *at;  /* symmetric: PLACES of WORDS words */
	uint64_t *sig; /* symmetric, 8 words */
	struct link *link;
	int *line, *code;
};
enum { OWN, CAME, GOT, WIDE, ALL, PLACES = ALL + 2 * RANKS };

static uint64_t *place(const struct args *a, int which)
{
	return a->at + (size_t)which * WORDS;
}

static void fill(uint64_t *words, uint64_t round, int pe)
{
	for (int i = 0; i < WORDS; i++)
		words[i] = word_of(round, pe, i);
}

static bool is_of(const uint64_t *words, uint64_t round, int pe)
{
	for (int i = 0; i < WORDS; i++)
		if (words[i] != word_of(round, pe, i))
			return false;
	return true;
}

/* ---- moving --------------------------------------------------------------------------------------------------------- */

/* Each way to bring a block to the next rank; the barrier says that it is there. */
static void puts_each(const struct args *a, int way, int next, int prev)
{
	const struct spmt_view *v = &a->view;
	uint64_t *own = place(a, OWN), *came = place(a, CAME);

	if (way == 0)
		spmtd_putmem(v, came, own, BYTES, next);
	else if (way == 1)
		spmtd_putmem_nbi_block(v, came, own, BYTES, next);
	else if (way == 2)
		spmtd_uint64_put_warp(v, came, own, WORDS, next);
	else if (way == 3)
		for (int i = 0; i < WORDS; i++)
			spmtd_uint64_p(v, came + i, own[i], next);
	else if (way == 4)
		spmtd_uint64_iput(v, came, own, 1, 1, WORDS, next);
	else
		spmtd_getmem_nbi(v, came, own, BYTES, prev);
}

static void gets_each(const struct args *a, int way, int from)
{
	const struct spmt_view *v = &a->view;
	uint64_t *own = place(a, OWN), *got = place(a, GOT);

	if (way == 0)
		spmtd_getmem(v, got, own, BYTES, from);
	else if (way == 1)
		spmtd_getmem_block(v, got, own, BYTES, from);
	else if (way == 2)
		spmtd_uint64_iget_warp(v, got, own, 1, 1, WORDS, from);
	else
		for (int i = 0; i < WORDS; i++)
			got[i] = spmtd_uint64_g(v, own + i, from);
}

static void moves(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), next = (me + 1) % RANKS, prev = (me + RANKS - 1) % RANKS;

	CHECK(!spmtd_ptr(v, a->at, next));
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		fill(place(a, OWN), round, me);
		CHECK(spmtd_barrier(v) == 0);
		puts_each(a, (int)(round % 6), next, prev);
		gets_each(a, (int)(round % 4), next);
		CHECK(is_of(place(a, GOT), round, next));
		CHECK((round % 2 ? spmtd_barrier_block(v) : spmtd_barrier_at(v, 3)) == 0);
		CHECK(is_of(place(a, CAME), round, prev));
	}
	*a->line = 0;
}

/* What is complete behind a bulk copy's quiet: the data is there, or may be stored over. */
static void bulk(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), next = (me + 1) % RANKS, prev = (me + RANKS - 1) % RANKS;
	_Alignas(128) unsigned char shared[4096];
	struct spmtd_bulk b;

	CHECK(spmtd_bulk_room(1024, 2) <= sizeof(shared));
	CHECK(spmtd_bulk_begin(&b, shared, 1024, 2) == 0);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		fill(place(a, OWN), round, me);
		CHECK(spmtd_barrier(v) == 0);
		spmtd_bulk_get_nbi(v, &b, place(a, GOT), place(a, OWN), BYTES, next);
		spmtd_bulk_quiet(&b);
		CHECK(is_of(place(a, GOT), round, next));
		CHECK(spmtd_barrier(v) == 0);
		if (round % 2)
			spmtd_bulk_put_nbi(v, &b, place(a, CAME), place(a, OWN), BYTES, next);
		else
			spmtd_bulk_put_many_nbi(
				v, &b, place(a, CAME), place(a, OWN), BYTES, &next, 1);
		spmtd_bulk_quiet(&b);
		fill(place(a, OWN), round + ROUNDS, me);
		CHECK(spmtd_barrier(v) == 0);
		CHECK(is_of(place(a, CAME), round, prev));
	}
	spmtd_bulk_end(&b);
	*a->line = 0;
}

/* Every type's size, and neighbours that stay as they are. */
static void types(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), next = (me + 1) % RANKS, prev = (me + RANKS - 1) % RANKS;
	unsigned char *bytes = (unsigned char *)place(a, WIDE);

	memset(bytes, 0xee, 64);
	CHECK(spmtd_barrier(v) == 0);
	spmtd_uint8_p(v, bytes + 1, (uint8_t)(me + 1), next);
	spmtd_uint16_p(v, (uint16_t *)(void *)(bytes + 4), (uint16_t)(me + 0x102), next);
	spmtd_int32_p(v, (int32_t *)(void *)(bytes + 8), -me - 1, next);
	spmtd_float_p(v, (float *)(void *)(bytes + 16), (float)me + 0.5f, next);
	spmtd_double_p(v, (double *)(void *)(bytes + 24), me + 0.25, next);
	CHECK(spmtd_barrier(v) == 0);
	CHECK(bytes[0] == 0xee && bytes[1] == prev + 1 && bytes[2] == 0xee && bytes[6] == 0xee);
	CHECK(bytes[12] == 0xee && bytes[20] == 0xee);
	CHECK(spmtd_uint8_g(v, bytes + 1, next) == me + 1);
	CHECK(spmtd_uint16_g(v, (uint16_t *)(void *)(bytes + 4), next) == me + 0x102);
	CHECK(spmtd_int32_g(v, (int32_t *)(void *)(bytes + 8), next) == -me - 1);
	CHECK(spmtd_float_g(v, (float *)(void *)(bytes + 16), next) * 2 == (float)(2 * me + 1));
	CHECK(spmtd_double_g(v, (double *)(void *)(bytes + 24), next) * 4 == 4 * me + 1);
	CHECK(spmtd_barrier(v) == 0);
	*a->line = 0;
}

/* ---- signals and order ---------------------------------------------------------------------------------------------- */

static void signals(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), next = (me + 1) % RANKS, prev = (me + RANKS - 1) % RANKS;

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		fill(place(a, OWN), i, me);
		if (i % 3 == 0) {
			spmtd_putmem_signal(v, place(a, CAME), place(a, OWN), BYTES, a->sig, i,
				SPMT_SIGNAL_SET, next);
		} else if (i % 3 == 1) {
			spmtd_putmem_signal_nbi_block(v, place(a, CAME), place(a, OWN), BYTES,
				a->sig, 1, SPMT_SIGNAL_ADD, next);
		} else {
			spmtd_putmem_nbi(v, place(a, CAME), place(a, OWN), BYTES, next);
			spmtd_fence(v);
			spmtd_uint64_p(v, a->sig, i, next);
		}
		CHECK(spmtd_signal_wait_until(v, a->sig, SPMT_CMP_EQ, i) == 0);
		CHECK(is_of(place(a, CAME), i, prev));
		CHECK(spmtd_quiet(v) == 0);
		spmtd_signal_op(v, a->sig + 1, 1, SPMT_SIGNAL_ADD, prev);
		CHECK(spmtd_signal_wait_until(v, a->sig + 1, SPMT_CMP_GE, i) == 0);
	}
	CHECK(spmtd_quiet_warp(v) == 0 && spmtd_quiet_block(v) == 0);
	spmtd_fence_warp(v);
	spmtd_fence_block(v);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK((i % 2 ? spmtd_sync(v) : spmtd_sync_at(v, 5)) == 0);
		spmtd_sync_arrive(v);
		CHECK(spmtd_sync_wait(v) == 0);
	}
	*a->line = 0;
}

static void packets(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), next = (me + 1) % RANKS, prev = (me + RANKS - 1) % RANKS;
	uint64_t value = 0;

	for (uint32_t i = 1; i <= 5; i++) {
		fill(place(a, OWN), i, me);
		spmtd_put_packets(v, place(a, ALL), place(a, OWN), BYTES, i, next);
		CHECK(spmtd_get_packets(v, place(a, GOT), place(a, ALL), BYTES, i) == 0);
		CHECK(is_of(place(a, GOT), i, prev));
		CHECK(spmtd_barrier(v) == 0); /* the same place again */
		for (uint32_t t = 0; t < 2; t++)
			spmtd_put_packets_each(
				v, place(a, ALL), place(a, OWN), BYTES, i + 100, next, t, 2);
		for (uint32_t t = 0; t < 2; t++)
			CHECK(spmtd_get_packets_each(
				      v, place(a, GOT), place(a, ALL), BYTES, i + 100, t, 2) == 0);
		CHECK(is_of(place(a, GOT), i, prev));
		spmtd_put_packet(v, place(a, WIDE), i + 7, i, next);
		CHECK(spmtd_get_packet(v, place(a, WIDE), i, &value) == 0 && value == i + 7);
		CHECK(spmtd_barrier(v) == 0);
	}
	*a->line = 0;
}

/* ---- atomics --------------------------------------------------------------------------------------------------------- */

/* All on rank 1's words. */
static void atomics(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	uint32_t *small = (uint32_t *)(void *)place(a, WIDE);
	float *real = (float *)(void *)(place(a, WIDE) + 8);
	uint16_t *halves = (uint16_t *)(void *)(place(a, WIDE) + 16);
	int me = spmtd_my_pe(v);
	uint64_t seen = 0, old;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		spmtd_uint64_atomic_add(v, a->sig, 3, 1);
		spmtd_uint64_atomic_inc(v, a->sig + 1, 1);
		old = spmtd_uint64_atomic_fetch_add(v, a->sig + 2, 1, 1);
		CHECK(i == 0 || old > seen);
		seen = old;
		spmtd_uint32_atomic_fetch_inc(v, small, 1);
		spmtd_float_atomic_add(v, real, 0.5f, 1);
		spmtd_half_atomic_add(v, halves, 0x3800, 1); /* 0.5 */
		(void)spmtd_bfloat16_atomic_fetch_inc(v, halves + 1, 1);
		spmtd_half_pair_atomic_add(v, (uint32_t *)(void *)(halves + 2), 0x40003c00, 1);
		do
			old = spmtd_uint64_atomic_fetch(v, a->sig + 3, 1);
		while (spmtd_uint64_atomic_compare_swap(v, a->sig + 3, old, old + 2, 1) != old);
		spmtd_uint64_atomic_or(v, a->sig + 4, (uint64_t)1 << me, 1);
		CHECK(spmtd_uint64_atomic_fetch_xor(v, a->sig + 4, (uint64_t)1 << me, 1) >> me & 1);
	}
	(void)spmtd_uint64_atomic_swap(v, a->sig + 5, (uint64_t)me + 5, 1);
	spmtd_uint32_atomic_set(v, small + 2 + me, (uint32_t)me + 40, 1);
	CHECK(spmtd_barrier(v) == 0);
	CHECK(spmtd_uint64_atomic_fetch(v, a->sig, 1) == 3 * RANKS * ROUNDS);
	CHECK(spmtd_uint64_atomic_fetch(v, a->sig + 1, 1) == RANKS * ROUNDS);
	CHECK(spmtd_uint64_g(v, a->sig + 2, 1) == RANKS * ROUNDS);
	CHECK(spmtd_uint64_g(v, a->sig + 3, 1) == 2 * RANKS * ROUNDS);
	CHECK(spmtd_uint64_g(v, a->sig + 4, 1) == 0);
	CHECK(spmtd_uint64_g(v, a->sig + 5, 1) - 5 < RANKS);
	CHECK(spmtd_uint32_g(v, small, 1) == RANKS * ROUNDS);
	CHECK(spmtd_uint32_g(v, small + 2 + me, 1) == (uint32_t)me + 40);
	CHECK(spmtd_float_g(v, real, 1) * 2 == (float)(RANKS * ROUNDS));
	CHECK(spmtd_half_g(v, halves, 1) == spmtd_half_nearest_(RANKS * ROUNDS / 2.0f));
	CHECK(spmtd_half_g(v, halves + 1, 1) == spmtd_bfloat16_nearest_(RANKS * ROUNDS));
	CHECK(spmtd_half_g(v, halves + 2, 1) == spmtd_half_nearest_(RANKS * ROUNDS));
	CHECK(spmtd_half_g(v, halves + 3, 1) == spmtd_half_nearest_(2 * RANKS * ROUNDS));
	CHECK(spmtd_barrier(v) == 0);
	*a->line = 0;
}

/* ---- collectives, bulk copies ---------------------------------------------------------------------------------------- */

static void together(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), next = (me + 1) % RANKS, others[2] = { next, (me + 2) % RANKS };
	struct spmtd_bulk b;

	fill(place(a, OWN), 4, me);
	CHECK(spmtd_all_gathermem_block(v, place(a, ALL), place(a, OWN), BYTES) == 0);
	for (int pe = 0; pe < RANKS; pe++)
		CHECK(is_of(place(a, ALL + pe), 4, pe));
	CHECK(spmtd_all_to_allmem(v, place(a, ALL + RANKS), place(a, ALL), BYTES) == 0);
	for (int pe = 0; pe < RANKS; pe++)
		CHECK(is_of(place(a, ALL + RANKS + pe), 4, me));
	CHECK(spmtd_broadcastmem_at(v, place(a, CAME), place(a, OWN), BYTES, 2, 1) == 0);
	CHECK(is_of(place(a, CAME), 4, 2));
	CHECK(spmtd_uint64_sum_all_reduce(v, place(a, CAME), place(a, OWN), WORDS) ==
		SPMTD_UNSUPPORTED);
	CHECK(spmtd_forward_packets(v, place(a, ALL), NULL, place(a, OWN), BYTES, 1, next) ==
		SPMTD_UNSUPPORTED);
	CHECK(spmtd_forward_packets_each(v, place(a, ALL), NULL, place(a, OWN), BYTES, 1, next, 0,
		      1) == SPMTD_UNSUPPORTED);
	CHECK(spmtd_bulk_begin(&b, NULL, 0, 0) <= 0);
	spmtd_bulk_get(v, &b, place(a, GOT), place(a, OWN), BYTES, next);
	CHECK(is_of(place(a, GOT), 4, next));
	CHECK(spmtd_barrier(v) == 0);
	fill(place(a, OWN), 5, me);
	spmtd_bulk_put_nbi(v, &b, place(a, CAME), place(a, OWN), BYTES, next);
	CHECK(spmtd_barrier(v) == 0);
	CHECK(is_of(place(a, CAME), 5, others[1]));
	spmtd_bulk_put_many(v, &b, place(a, ALL + me), place(a, OWN), BYTES, others, 2);
	CHECK(spmtd_barrier(v) == 0);
	CHECK(is_of(place(a, ALL + next), 5, next));
	spmtd_bulk_end(&b);
	*a->line = 0;
}

/* ---- running them ------------------------------------------------------------------------------------------------------ */

static int args_make(spmt_comm *comm, struct args *a)
{
	void *at, *sig;

	*a = (struct args){ .view.size = sizeof(a->view) };
	REQUIRE_OK(spmt_calloc(comm, PLACES, BYTES, &at));
	REQUIRE_OK(spmt_calloc(comm, 8, 8, &sig));
	a->at = at;
	a->sig = sig;
	REQUIRE_OK(spmt_view_get(comm, &a->view));
	return 0;
}

static int run_kernel(spmt_comm *comm, void (*kernel)(void *), struct args *a)
{
	int line = -1;

	a->line = &line;
	memset(a->sig, 0, 64);
	memset(a->at, 0, PLACES * (size_t)BYTES);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_host_launch(comm, NULL, kernel, a, sizeof(*a)));
	REQUIRE_OK(spmt_quiet(comm));
	return line ? ranks_fail("the kernel failed at line %d", line) : 0;
}

static int run_all(spmt_comm *comm, void *arg)
{
	static void (*const kernels[])(
		void *) = { moves, bulk, types, signals, packets, atomics, together };
	struct args a;

	(void)arg;
	TRY(args_make(comm, &a));
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		TRY(run_kernel(comm, kernels[i], &a));
	return spmt_barrier(comm);
}

Test(far_kernels, do_what_they_do_elsewhere)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(RANKS, NULL, run_all, NULL));
}

static int in_a_part(spmt_comm *comm, void *arg)
{
	spmt_comm *part;

	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) < RANKS ? 0 : 1, -spmt_rank(comm), &part));
	if (spmt_rank(comm) < RANKS)
		TRY(run_all(part, arg));
	REQUIRE_OK(spmt_finalize(part));
	return spmt_barrier(comm);
}

Test(far_kernels, in_a_part_of_a_comm)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(RANKS + 1, NULL, in_a_part, NULL));
}

/* ---- some peers far, some near ------------------------------------------------------------------------------------------ */

static void some(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v);

	CHECK(me == 0 ? !spmtd_ptr(v, a->at, 1) : spmtd_ptr(v, a->at, 1) != NULL);
	CHECK(spmtd_ptr(v, a->at, 2));
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		fill(place(a, OWN), i, me);
		for (int pe = 0; pe < RANKS; pe++)
			spmtd_putmem_signal_nbi(v, place(a, ALL + me), place(a, OWN), BYTES, a->sig,
				1, SPMT_SIGNAL_ADD, pe);
		CHECK(spmtd_signal_wait_until(v, a->sig, SPMT_CMP_GE, i * RANKS) == 0);
		for (int pe = 0; pe < RANKS; pe++)
			CHECK(is_of(place(a, ALL + pe), i, pe));
		CHECK(spmtd_barrier(v) == 0);
	}
	CHECK(spmtd_uint64_sum_all_reduce(v, place(a, CAME), place(a, OWN), WORDS) ==
		SPMTD_UNSUPPORTED);
	*a->line = 0;
}

static int run_some(spmt_comm *comm, void *arg)
{
	struct args a;

	(void)arg;
	TRY(args_make(comm, &a));
	return run_kernel(comm, some, &a);
}

Test(far_kernels, one_far_link)
{
	NEEDS_HOST(LETTERS);
	setenv("SPMT_MAPS", "p2p,rdma", 1);
	cr_assert_eq(backend_host.load(), 0);
	host_forbid_peer(0, 1, true);
	RANKS_OK(ranks_run(RANKS, NULL, run_some, NULL));
}

/* ---- what ends otherwise ------------------------------------------------------------------------------------------------ */

static void goes_beyond(void *args)
{
	struct args *a = args;

	spmtd_putmem(&a->view, (char *)a->at + a->view.heap_size, a->at, 8, 1);
	*a->code = spmtd_quiet(&a->view);
}

static void small_atomic(void *args)
{
	struct args *a = args;

	spmtd_uint16_atomic_add(&a->view, (uint16_t *)(void *)a->at, 1, 1);
	*a->code = spmtd_quiet(&a->view);
}

static void from_shared(void *args)
{
	struct args *a = args;
	struct spmtd_bulk b;

	(void)spmtd_bulk_begin(&b, NULL, 0, 0);
	spmtd_bulk_put_shared(&a->view, &b, a->at, a->sig, 16, 1);
	*a->code = spmtd_quiet(&a->view);
	spmtd_bulk_end(&b);
}

struct failing {
	void (*kernel)(void *);
	int code;
	const char *says;
};

/* All hear of it, those that wait in kernels as well. */
static int fails(spmt_comm *comm, void *arg)
{
	const struct failing *f = arg;
	struct args a;
	int code = 0;

	TRY(args_make(comm, &a));
	a.code = &code;
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		f->kernel(&a);
		REQUIRE_EQ(code, SPMTD_ABORTED);
	} else {
		REQUIRE_EQ(spmtd_signal_wait_until(&a.view, a.sig, SPMT_CMP_NE, 0), SPMTD_ABORTED);
	}
	REQUIRE_CODE(spmt_status(comm), f->code);
	REQUIRE_CODE(spmt_quiet(comm), f->code);
	REQUIRE_SAYS(f->says);
	return 0;
}

Test(far_kernels, a_failure_breaks_the_comm)
{
	static struct failing failing[] = {
		{ goes_beyond, -EINVAL, "a kernel's put: rank 0: offset" },
		{ small_atomic, SPMT_ERR_UNSUPPORTED, "which has no atomics of 2 bytes" },
		{ from_shared, SPMT_ERR_UNSUPPORTED, "bulk copies from shared memory" },
	};

	NEEDS_HOST(LETTERS);
	for (size_t i = 0; i < sizeof(failing) / sizeof(*failing); i++)
		RANKS_OK(ranks_run(RANKS, NULL, fails, &failing[i]));
}

/* What has been compiled with a header that knew no such peers gets no view. */
static int earlier(spmt_comm *comm, void *arg)
{
	struct spmt_view view = { .size = offsetof(struct spmt_view, fifo) };

	(void)arg;
	REQUIRE_CODE(spmt_view_get(comm, &view), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("by map rdma, which kernels compiled with SPMT_NEAR, or an earlier");
	view.size = sizeof(view);
	REQUIRE_OK(spmt_view_get(comm, &view));
	return 0;
}

Test(far_kernels, of_earlier_headers)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(2, NULL, earlier, NULL));
}
