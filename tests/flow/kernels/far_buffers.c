/* SPDX-License-Identifier: MIT */
/* Registered buffers of peers: kernels put to and get from them by the same calls whether they have an address or, as with SPMT_MAPS=rdma
   and on other nodes, none. Sizes and places differ from rank to rank. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt/comm/comm.h"
#include "spmt_channel.h"
#include "src/device/host/host.h"
#include "tests/lib/device/kernel_checks.h"
#include "tests/lib/processes.h"
#include "tests/lib/ranks.h"

#define KERNELS "kernels that are C functions (tests/gpu has them as images)"

enum { RANKS = 3, WORDS = 32, BYTES = WORDS * 8, ROUNDS = 24 };
/* Words of every buffer: its own, what comes, packets, and past them a rank's more of another number. */
enum { OWN = 0, CAME = WORDS, PACKETS = 2 * WORDS, LAST = 4 * WORDS, MOST = LAST + 8 * RANKS };

/* Peers of this process have no address. */
static bool all_far(void)
{
	const char *maps = getenv("SPMT_MAPS");

	return maps && strcmp(maps, "rdma") == 0;
}

#define NEEDS_FAR()                                                  \
	do {                                                         \
		NEEDS_HOST(KERNELS);                                 \
		if (!all_far())                                      \
			cr_skip_test("SPMT_MAPS is not rdma alone"); \
	} while (0)

struct args {
	struct spmt_view view;
	struct spmt_mem_view mem;
	uint64_t *own; /* this rank's buffer */
	uint64_t *sig; /* symmetric */
	int *line;
};

static bool is_of(const uint64_t *words, uint64_t round, int pe)
{
	for (int i = 0; i < WORDS; i++)
		if (words[i] != word_of(round, pe, i))
			return false;
	return true;
}

/* ---- every way there and back ----------------------------------------------------------------------------- */

static void put_each(const struct args *a, uint64_t way, int next)
{
	const struct spmt_view *v = &a->view;
	const struct spmt_mem_view *m = &a->mem;

	if (way == 0)
		spmtd_mem_putmem(v, m, CAME * 8, a->own, BYTES, next);
	else if (way == 1)
		spmtd_mem_putmem_nbi_block(v, m, CAME * 8, a->own, BYTES, next);
	else if (way == 2)
		spmtd_mem_uint64_put_warp(v, m, CAME * 8, a->own, WORDS, next);
	else if (way == 3)
		spmtd_mem_uint64_iput(v, m, CAME * 8, a->own, 1, 1, WORDS, next);
	else
		for (size_t i = 0; i < WORDS; i++)
			spmtd_mem_uint64_p(v, m, (CAME + i) * 8, a->own[i], next);
}

static void get_each(const struct args *a, uint64_t *got, uint64_t way, int from)
{
	const struct spmt_view *v = &a->view;
	const struct spmt_mem_view *m = &a->mem;

	if (way == 0)
		spmtd_mem_getmem_block(v, got, m, OWN, BYTES, from);
	else if (way == 1)
		spmtd_mem_int64_get(v, (int64_t *)got, m, OWN, WORDS, from);
	else if (way == 2)
		spmtd_mem_uint64_iget_warp(v, got, m, OWN, 1, 1, WORDS, from);
	else
		for (size_t i = 0; i < WORDS; i++)
			got[i] = spmtd_mem_uint64_g(v, m, (OWN + i) * 8, from);
}

static void moves(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = v->pe, next = (me + 1) % RANKS, prev = (me + RANKS - 1) % RANKS;
	uint64_t got[WORDS];

	CHECK(!spmtd_mem_ptr(&a->mem, next) || !all_far());
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < WORDS; i++)
			a->own[i] = word_of(round, me, i);
		CHECK(spmtd_barrier(v) == 0);
		put_each(a, round % 5, next);
		get_each(a, got, round % 4, next);
		CHECK(is_of(got, round, next));
		CHECK(spmtd_barrier(v) == 0);
		CHECK(is_of(a->own + CAME, round, prev));
	}
	CHECK(spmtd_barrier(v) == 0);
}

static void signals(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = v->pe, next = (me + 1) % RANKS, prev = (me + RANKS - 1) % RANKS;
	uint64_t got[WORDS];

	for (uint64_t round = 1; round <= ROUNDS; round++) {
		for (int i = 0; i < WORDS; i++)
			a->own[i] = word_of(round, me, i);
		if (round % 2)
			spmtd_mem_putmem_signal(v, &a->mem, CAME * 8, a->own, BYTES, a->sig, round,
				SPMT_SIGNAL_SET, next);
		else
			spmtd_mem_putmem_signal_nbi_warp(v, &a->mem, CAME * 8, a->own, BYTES,
				a->sig, 1, SPMT_SIGNAL_ADD, next);
		CHECK(spmtd_signal_wait_until(v, a->sig, SPMT_CMP_EQ, round) == 0);
		CHECK(is_of(a->own + CAME, round, prev));
		spmtd_mem_put_packets(
			v, &a->mem, PACKETS * 8, a->own, BYTES, (uint32_t)round, next);
		CHECK(spmtd_get_packets(v, got, a->own + PACKETS, BYTES, (uint32_t)round) == 0);
		CHECK(is_of(got, round, prev));
		/* the last word that a rank has: others' buffers end elsewhere */
		spmtd_mem_uint32_p(
			v, &a->mem, (size_t)(LAST + 8 * (next + 1)) * 8 - 4, (uint32_t)round, next);
		CHECK(spmtd_barrier(v) == 0);
		CHECK(a->own[LAST + 8 * (me + 1) - 1] == round << 32);
		CHECK(spmtd_barrier(v) == 0);
	}
}

/* ---- running them ----------------------------------------------------------------------------------------- */

static size_t size_of(int pe)
{
	return (size_t)(LAST + 8 * (pe + 1)) * 8;
}

static int run_kernel(spmt_comm *comm, void (*kernel)(void *), struct args *a)
{
	int line = 0;

	a->line = &line;
	REQUIRE_OK(spmt_host_launch(comm, NULL, kernel, a, sizeof(*a)));
	REQUIRE_OK(spmt_quiet(comm));
	return line ? ranks_fail("the kernel failed at line %d", line) : 0;
}

static int args_make(spmt_comm *comm, struct args *a, spmt_mem **mem)
{
	void *sig;

	REQUIRE_OK(spmt_calloc(comm, 1, 8, &sig));
	REQUIRE_OK(spmt_register(comm, a->own, size_of(spmt_rank(comm)), mem));
	a->sig = sig;
	a->view.size = sizeof(a->view);
	a->mem.size = sizeof(a->mem);
	REQUIRE_OK(spmt_view_get(comm, &a->view));
	REQUIRE_OK(spmt_mem_view_get(comm, *mem, &a->mem));
	return 0;
}

/* Twice, as a buffer that is gone makes room for the next. */
static int run_both(spmt_comm *comm, void *arg)
{
	uint64_t own[MOST] = { 0 };
	struct args a = { .own = own };
	spmt_mem *mem;

	(void)arg;
	for (int i = 0; i < 2; i++) {
		memset(own, 0, sizeof(own));
		TRY(args_make(comm, &a, &mem));
		TRY(run_kernel(comm, moves, &a));
		TRY(run_kernel(comm, signals, &a));
		REQUIRE_OK(spmt_mem_view_get(comm, mem, &a.mem)); /* as often as one likes */
		REQUIRE_OK(spmt_deregister(comm, mem));
		REQUIRE_OK(spmt_free(comm, a.sig));
	}
	return 0;
}

Test(far_buffers, do_what_they_do_elsewhere)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS, NULL, run_both, NULL));
}

/* Memory that other processes of a node can map, so that they need no NIC. */
static int in_processes(spmt_comm *comm, void *arg)
{
	struct args a = { .line = NULL };
	spmt_mem *mem;
	void *own;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, MOST, 8, &own));
	a.own = own;
	TRY(args_make(comm, &a, &mem));
	TRY(run_kernel(comm, moves, &a));
	TRY(run_kernel(comm, signals, &a));
	REQUIRE_OK(spmt_deregister(comm, mem));
	return 0;
}

Test(far_buffers, between_processes)
{
	struct processes p = { .layout = "0,2|1" };

	NEEDS_HOST(KERNELS);
	if (all_far())
		cr_skip_test("letters do not leave the process");
	RANKS_OK(processes_world(&p, in_processes, NULL));
}

static int in_halves(spmt_comm *comm, void *arg)
{
	spmt_comm *part;

	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) < RANKS ? 0 : 1, -spmt_rank(comm), &part));
	if (spmt_rank(comm) < RANKS)
		TRY(run_both(part, arg));
	REQUIRE_OK(spmt_finalize(part));
	return spmt_barrier(comm);
}

Test(far_buffers, in_a_part_of_a_comm)
{
	NEEDS_HOST(KERNELS);
	RANKS_OK(ranks_run(RANKS + 1, NULL, in_halves, NULL));
}

/* ---- some peers far, some near ---------------------------------------------------------------------------- */

static void some(void *args)
{
	struct args *a = args;
	const struct spmt_view *v = &a->view;
	int me = v->pe;

	CHECK(!spmtd_mem_ptr(&a->mem, 1) == (me == 0));
	CHECK(spmtd_mem_ptr(&a->mem, 2));
	a->own[OWN] = word_of(1, me, 0);
	CHECK(spmtd_barrier(v) == 0);
	for (int pe = 0; pe < RANKS; pe++) {
		spmtd_mem_uint64_put_nbi(v, &a->mem, (size_t)(CAME + me) * 8, a->own, 1, pe);
		CHECK(spmtd_mem_uint64_g(v, &a->mem, OWN, pe) == word_of(1, pe, 0));
	}
	CHECK(spmtd_barrier(v) == 0);
	for (int pe = 0; pe < RANKS; pe++)
		CHECK(a->own[CAME + pe] == word_of(1, pe, 0));
	CHECK(spmtd_barrier(v) == 0);
}

static int run_some(spmt_comm *comm, void *arg)
{
	uint64_t own[MOST] = { 0 };
	struct args a = { .own = own };
	spmt_mem *mem;

	(void)arg;
	TRY(args_make(comm, &a, &mem));
	TRY(run_kernel(comm, some, &a));
	REQUIRE_OK(spmt_deregister(comm, mem));
	return 0;
}

Test(far_buffers, one_far_link)
{
	NEEDS_FAR();
	setenv("SPMT_MAPS", "p2p,rdma", 1);
	cr_assert_eq(backend_host.load(), 0);
	host_forbid_peer(0, 1, true);
	RANKS_OK(ranks_run(RANKS, NULL, run_some, NULL));
}

/* ---- what ends otherwise ---------------------------------------------------------------------------------- */

struct wrong {
	size_t off, n;
	bool gone;
	const char *says;
};

/* All hear of it. */
static int goes_wrong(spmt_comm *comm, void *arg)
{
	const struct wrong *w = arg;
	uint64_t own[MOST] = { 0 };
	struct spmtd_mem_peer peers[RANKS];
	struct args a = { .own = own };
	uint64_t far[RANKS];
	spmt_mem *mem;

	TRY(args_make(comm, &a, &mem));
	/* what a kernel would have that outlives the buffer */
	memcpy(peers, a.mem.peers, sizeof(peers));
	memcpy(far, a.mem.far, sizeof(far));
	a.mem.peers = peers;
	a.mem.far = far;
	if (w->gone)
		REQUIRE_OK(spmt_deregister(comm, mem));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0) {
		spmtd_mem_putmem(&a.view, &a.mem, w->off, own, w->n, 1);
		REQUIRE_EQ(spmtd_quiet(&a.view), SPMTD_ABORTED);
	} else {
		REQUIRE_EQ(spmtd_signal_wait_until(&a.view, a.sig, SPMT_CMP_NE, 0), SPMTD_ABORTED);
	}
	REQUIRE_CODE(spmt_status(comm), -EINVAL);
	REQUIRE_CODE(spmt_quiet(comm), -EINVAL);
	REQUIRE_SAYS("a kernel's put: rank 0: ");
	REQUIRE_SAYS(w->says);
	return 0;
}

Test(far_buffers, a_post_that_does_not_fit_breaks_the_comm)
{
	static struct wrong wrong[] = {
		{ 1016, 200, false,
			"offset 1016 with 200 bytes goes beyond rank 1's buffer of 1152" },
		{ 1152, 1, false, "1 bytes that are in no buffer that rank 1 has registered" },
		{ SIZE_MAX - 63, 8, false, "8 bytes that are in no buffer" },
		{ 0, 8, true, "8 bytes that are in no buffer" },
	};

	NEEDS_FAR();
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		RANKS_OK(ranks_run(RANKS, NULL, goes_wrong, &wrong[i]));
}

/* Kernels of an earlier header would take an offset for an address. */
static int of_old(spmt_comm *comm, void *arg)
{
	uint64_t own[MOST] = { 0 };
	struct args a = { .own = own };
	spmt_mem *mem;

	(void)arg;
	TRY(args_make(comm, &a, &mem));
	a.mem.size = offsetof(struct spmt_mem_view, far);
	REQUIRE_CODE(spmt_mem_view_get(comm, mem, &a.mem), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("spmt_mem_view_get: ");
	REQUIRE_SAYS("compiled with SPMT_NEAR, or an earlier spmt_device.h");
	return spmt_barrier(comm);
}

Test(far_buffers, of_earlier_headers)
{
	NEEDS_FAR();
	RANKS_OK(ranks_run(2, NULL, of_old, NULL));
}
