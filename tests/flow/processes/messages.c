/* SPDX-License-Identifier: MIT */
/* Peers that are reached by messages alone (tests/lib/transports/mail.h), as by a NIC. The suites of RMA, signals, atomics and waits run over
   it, too; here is what they do not see: what is in flight, and what such a peer is refused for. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "spmt/collective/far_state.h"
#include "spmt_device.h"
#include "src/device/host/host.h"
#include "tests/lib/ranks.h"
#include "tests/lib/transports/mail.h"

#define LETTERS "letters do not leave the process, and are served by a CPU"

static void by_mail(void)
{
	setenv("SPMT_MAPS", "rdma", 1);
}
TestSuite(messages, .init = by_mail);

/* ---- what a rank sees of such a link --------------------------------------------------------------------------------- */

static int is_named(spmt_comm *comm, void *arg)
{
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats = { .size = sizeof(stats) };
	int rank = spmt_rank(comm), peer = 1 - rank;
	uint64_t *word, old = 0, one = 1;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, 64, (void **)&word));
	REQUIRE_OK(spmt_route(comm, peer, &route));
	REQUIRE(!strcmp(route.map, "rdma") && !strcmp(route.movers, "verbs"));
	REQUIRE(!spmt_ptr(comm, word, peer));
	REQUIRE(spmt_ptr(comm, word, rank) == word);
	REQUIRE_OK(spmt_put(comm, word, &one, 8, peer));
	REQUIRE_OK(spmt_signal(comm, word + 1, 7, SPMT_SIGNAL_ADD, peer));
	REQUIRE_OK(spmt_atomic(
		comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, word + 1, &one, NULL, &old, peer));
	REQUIRE_EQ(old, 7);
	REQUIRE_OK(spmt_stats(comm, peer, &stats));
	REQUIRE(stats.verbs.ops == 3 && stats.verbs.bytes == 24);
	REQUIRE(stats.store.ops == 0 && stats.sdma.ops == 0);
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, word, 1));
	return sym_check_u64(comm, word + 1, 8);
}

Test(messages, a_link_tells_its_map_and_mover)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(2, NULL, is_named, NULL));
}

/* ---- in flight ------------------------------------------------------------------------------------------------------- */

/* Where a get that was given up may still write. */
static uint64_t seen;

/* What rank 0 leaves in flight, and what a call that has to wait for it says at the deadline. */
static int leave_in_flight(spmt_comm *comm, uint64_t *word)
{
	static const uint64_t two = 2;
	uint64_t one = 1;

	REQUIRE_OK(spmt_put(comm, word, &one, 8, 1));
	one = 99; /* it is ours again */
	REQUIRE_OK(spmt_put_nbi(comm, word + 1, &two, 8, 1));
	REQUIRE_OK(spmt_fence(comm));
	REQUIRE_OK(spmt_put_signal(comm, word + 2, &two, 8, word + 3, 4, SPMT_SIGNAL_SET, 1));
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word + 4, &two, NULL, NULL, 1));
	REQUIRE_EQ(mail_left(&comm->links[1]), 5);
	REQUIRE_OK(spmt_set_timeout(comm, 40));
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS("moves to rank 1 are not done");
	REQUIRE_CODE(spmt_get(comm, &seen, word, 8, 1), SPMT_ERR_TIMEOUT);
	return spmt_set_timeout(comm, 10000);
}

static int is_in_flight(spmt_comm *comm, void *arg)
{
	static const uint64_t want[] = { 1, 2, 2, 4, 2 };
	struct link *link = &comm->links[1];
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 8, 8, (void **)&word));
	if (spmt_rank(comm) == 0) {
		mail_hold(link);
		TRY(leave_in_flight(comm, word));
	}
	REQUIRE_OK(spmt_sync(comm)); /* which waits for no move */
	for (int i = 0; i < 5 && spmt_rank(comm) == 1; i++)
		TRY(sym_check_u64(comm, word + i, 0));
	REQUIRE_OK(spmt_sync(comm));
	if (spmt_rank(comm) == 0) {
		mail_release(link);
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_EQ(mail_left(link), 0);
	}
	REQUIRE_OK(spmt_sync(comm));
	for (int i = 0; i < 5 && spmt_rank(comm) == 1; i++)
		TRY(sym_check_u64(comm, word + i, want[i]));
	return spmt_barrier(comm);
}

Test(messages, quiet_waits_for_letters)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(2, NULL, is_in_flight, NULL));
}

/* Who waits for an answer hears that the world is broken. */
static int is_stopped(spmt_comm *comm, void *arg)
{
	uint64_t *word;
	int rc;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&word));
	if (spmt_rank(comm) == 0) {
		mail_hold(&comm->links[1]);
		REQUIRE_OK(spmt_sync(comm));
		rc = spmt_get(comm, &seen, word, 8, 1);
		mail_release(&comm->links[1]);
		REQUIRE_EQ(rc, SPMT_ERR_ABORTED);
		return 0;
	}
	REQUIRE_OK(spmt_sync(comm));
	sleep_ms(30);
	return spmt_abort(comm, -5);
}

Test(messages, an_abort_ends_a_get)
{
	NEEDS_HOST(LETTERS);
	ranks_run(2, NULL, is_stopped, NULL);
	cr_assert_null(strstr(ranks_message(), "rank 0"), "%s", ranks_message());
}

/* ---- registered buffers, parts ------------------------------------------------------------------------------------------ */

static int reaches_buffers(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), peer = 1 - rank;
	char *buf = calloc(1, 3000), back[3000];
	spmt_mem *mem;

	(void)arg;
	REQUIRE(buf);
	REQUIRE_OK(spmt_register(comm, buf, 3000, &mem));
	REQUIRE(!spmt_mem_ptr(mem, peer));
	REQUIRE(spmt_mem_ptr(mem, rank) == buf);
	REQUIRE_OK(spmt_mem_put(comm, mem, 5, "blocking", 8, peer));
	REQUIRE_OK(spmt_mem_put_nbi(comm, mem, 100, "nbi", 3, peer));
	REQUIRE_OK(spmt_mem_put_on_stream(comm, mem, 2996, "last", 4, peer, NULL));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE(!memcmp(buf + 5, "blocking", 8) && !memcmp(buf + 100, "nbi", 3) &&
		!memcmp(buf + 2996, "last", 4) && !buf[4] && !buf[13]);
	REQUIRE_OK(spmt_mem_get(comm, back, mem, 0, 3000, peer));
	REQUIRE(!memcmp(back, buf, 3000));
	REQUIRE_CODE(spmt_mem_put(comm, mem, 2996, "beyond", 6, peer), -EINVAL);
	REQUIRE_OK(spmt_deregister(comm, mem));
	free(buf);
	return 0;
}

Test(messages, reach_registered_buffers)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(2, NULL, reaches_buffers, NULL));
}

static int parts(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm);
	uint64_t *word, value = 100 + (uint64_t)rank;
	spmt_comm *part;

	(void)arg;
	REQUIRE_OK(spmt_split(comm, rank % 2, -rank, &part));
	REQUIRE_OK(spmt_calloc(part, 1, 8, (void **)&word));
	REQUIRE_OK(spmt_put(part, word, &value, 8, 1 - spmt_rank(part)));
	REQUIRE_OK(spmt_barrier(part));
	TRY(sym_check_u64(part, word, 100 + (uint64_t)(rank ^ 2)));
	REQUIRE_OK(spmt_finalize(part));
	return spmt_barrier(comm);
}

Test(messages, serve_parts)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(4, NULL, parts, NULL));
}

/* ---- how many it takes -------------------------------------------------------------------------------------------------- */

/* To others, by the movers that collectives have. */
static uint64_t letters_sent(const spmt_comm *comm)
{
	uint64_t n = 0;

	for (int pe = 0; pe < spmt_nranks(comm); pe++)
		if (pe != spmt_rank(comm))
			n += atomic_load(&comm->far_state->links[pe].ops[MOVER_VERBS]);
	return n;
}

static int last_letters(spmt_comm *comm, uint64_t *before, uint64_t *n)
{
	REQUIRE_OK(spmt_quiet(comm));
	*n = letters_sent(comm) - *before;
	*before += *n;
	return 0;
}

static uint64_t log2_of(int n)
{
	uint64_t steps = 0;

	while (1 << steps < n)
		steps++;
	return steps;
}

/* Each rank is a node. Each step is a key and a signal, before them in one or two pieces what has come so far. */
static int takes_few(spmt_comm *comm, void *arg)
{
	int n = spmt_nranks(comm);
	uint64_t *words, mine = (uint64_t)spmt_rank(comm) + 1, before = 0, sent, steps = log2_of(n);

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, (size_t)n + 2, 8, (void **)&words));
	REQUIRE_OK(spmt_copy_in(comm, words, &mine, sizeof(mine)));
	REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
	TRY(last_letters(comm, &before, &sent));
	REQUIRE_EQ(sent, 2 * steps);
	REQUIRE_OK(spmt_all_reduce(comm, words + 1, words, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	TRY(last_letters(comm, &before, &sent));
	REQUIRE(sent >= 3 * steps && sent <= 4 * steps);
	REQUIRE_OK(spmt_all_gather(comm, words + 2, words, 1, SPMT_TYPE_U64, NULL));
	TRY(last_letters(comm, &before, &sent));
	REQUIRE(sent >= 3 * steps && sent <= 4 * steps);
	TRY(sym_check_u64(comm, words + 1, (uint64_t)n * (uint64_t)(n + 1) / 2));
	for (int pe = 0; pe < n; pe++)
		TRY(sym_check_u64(comm, words + 2 + pe, (uint64_t)pe + 1));
	return spmt_barrier(comm);
}

static void few_of(int n)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);

	NEEDS_HOST(LETTERS);
	setenv("SPMT_HOST_DEVICES", "64", 1);
	attr.heap_size = 1u << 20;
	RANKS_OK(ranks_run(n, &attr, takes_few, NULL));
}

Test(messages, few_of_8_nodes)
{
	few_of(8);
}

Test(messages, few_of_11_nodes)
{
	few_of(11);
}

Test(messages, few_of_64_nodes)
{
	few_of(64);
}

/* ---- what cannot work -------------------------------------------------------------------------------------------------- */

#define FAR_SAYS "rank 0 reaches rank 1 by map rdma"

#define REFUSED(call)                                     \
	do {                                              \
		REQUIRE_CODE(call, SPMT_ERR_UNSUPPORTED); \
		REQUIRE_SAYS(FAR_SAYS);                   \
	} while (0)

/* Collectives are moved where there is room for that. */
static int collectives_move(spmt_comm *comm, uint64_t *words)
{
	uint64_t n = (uint64_t)spmt_nranks(comm), mine = (uint64_t)spmt_rank(comm) + 1;

	REQUIRE_OK(spmt_copy_in(comm, words + 4, &mine, sizeof(mine)));
	REQUIRE_OK(spmt_barrier_on_stream(comm, NULL));
	REQUIRE_OK(
		spmt_all_reduce(comm, words + 5, words + 4, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_broadcast(comm, words + 6, words + 4, 1, SPMT_TYPE_U64, 1, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(sym_check_u64(comm, words + 5, n * (n + 1) / 2));
	return sym_check_u64(comm, words + 6, 2);
}

static int refuses_collectives(spmt_comm *comm, uint64_t *word)
{
	REFUSED(spmt_all_reduce(comm, word, word, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REFUSED(spmt_broadcast(comm, word, word, 1, SPMT_TYPE_U64, 0, NULL));
	REFUSED(spmt_barrier_on_stream(comm, NULL));
	return 0;
}

/* no_room: not NULL: for collectives. */
static int refuses_kernels(spmt_comm *comm, void *no_room)
{
	struct spmt_view view = { .size = sizeof(view) };
	struct spmt_channel_attr attr = { .size = sizeof(attr) };
	struct spmt_channel channel = { .size = sizeof(channel) };
	struct spmt_switch sw = { .size = sizeof(sw) };
	uint64_t *word;
	spmt_mem *mem;

	REQUIRE_OK(spmt_calloc(comm, 8, 8, (void **)&word));
	REQUIRE_OK(spmt_register(comm, word, 64, &mem));
	TRY(no_room ? refuses_collectives(comm, word) : collectives_move(comm, word));
	REQUIRE_OK(spmt_view_get(comm, &view)); /* far_kernels.c has what it is good for */
	REFUSED(spmt_channel_get(comm, &attr, &channel));
	REFUSED(spmt_switch_get(comm, NULL, 0, mem, &sw));
	/* which leaves the comm as it was */
	REQUIRE_OK(spmt_signal_on_stream(
		comm, word, 1, SPMT_SIGNAL_SET, (spmt_rank(comm) + 1) % spmt_nranks(comm), NULL));
	REQUIRE_OK(spmt_signal_wait_on_stream(comm, word, SPMT_CMP_EQ, 1, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_deregister(comm, mem));
	return spmt_barrier(comm);
}

Test(messages, what_loads_and_stores_is_refused)
{
	NEEDS_HOST(LETTERS);
	RANKS_OK(ranks_run(3, NULL, refuses_kernels, NULL));
}

/* Of three ranks only the first reaches the second so: no rank waits in a collective for one that was refused, and a part
   without that link has its kernels. */
static int one_far_link(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm);
	spmt_comm *part;
	uint64_t *word;

	TRY(refuses_kernels(comm, arg));
	REQUIRE_OK(spmt_calloc(comm, 1, 8, (void **)&word));
	REQUIRE_OK(spmt_split(comm, rank == 0 ? -1 : 1, 0, &part));
	if (rank) {
		REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_SET, SPMT_TYPE_U64, word, &(uint64_t){ 5 },
			NULL, NULL, rank));
		REQUIRE_OK(spmt_all_reduce(part, word, word, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		REQUIRE_OK(spmt_quiet(part));
		TRY(sym_check_u64(comm, word, 10));
	}
	return spmt_barrier(comm);
}

Test(messages, one_far_link_is_known_to_all)
{
	NEEDS_HOST(LETTERS);
	setenv("SPMT_MAPS", "p2p,rdma", 1);
	cr_assert_eq(backend_host.load(), 0);
	host_forbid_peer(0, 1, true);
	RANKS_OK(ranks_run(3, NULL, one_far_link, (void *)1));
}
