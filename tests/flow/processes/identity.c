/* SPDX-License-Identifier: MIT */
/* Who is who: lookups, guards, permuted and sliced and shared devices, foreign threads, and nobody's device changed. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"

#define CURRENT "what the thread has bound (tests/gpu: elsewhere has it for GPUs)"

/* ---- lookups ------------------------------------------------------------------------------------------------------ */

struct lookup {
	spmt_uid uid;
	const int *devices;
	int lowest; /* rank that device devices[0] names */
};

static int look_up(int index, void *arg)
{
	struct lookup *l = arg;
	struct spmt_attr attr = ranks_attr(index, 4, &l->uid);
	spmt_comm *comm;

	attr.device = l->devices ? l->devices[index] : -1;
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE(spmt_comm_by_rank(&l->uid, index) == comm);
	REQUIRE_EQ(spmt_device(comm), l->devices ? l->devices[index] : index);
	for (int r = 0; r < 4; r++) {
		spmt_comm *other = spmt_comm_by_rank(&l->uid, r);

		REQUIRE(other);
		REQUIRE_EQ(spmt_rank(other), r);
		REQUIRE(spmt_comm_by_device(&l->uid, l->devices ? l->devices[r] : r) ==
			(l->lowest < 0 ? other : spmt_comm_by_rank(&l->uid, l->lowest)));
	}
	REQUIRE(!spmt_comm_by_rank(&l->uid, 4));
	REQUIRE(!spmt_comm_by_rank(&l->uid, -1));
	REQUIRE(!spmt_comm_by_device(&l->uid, 7));
	REQUIRE(!spmt_comm_by_device(&l->uid, -1));
	REQUIRE(!spmt_comm_by_rank(NULL, 0));
	REQUIRE(!spmt_comm_by_device(NULL, 0));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_finalize(comm));
	REQUIRE(!spmt_comm_by_rank(&l->uid, index));
	return 0;
}

static void lookups(const int *devices, int lowest)
{
	struct lookup l = { .devices = devices, .lowest = lowest };
	spmt_uid other;

	if (devices ? !devices_fit(devices, 4) : ranks_here(4) < 4)
		return;
	cr_assert_eq(spmt_uid_create(&l.uid), 0);
	cr_assert_eq(spmt_uid_create(&other), 0);
	cr_expect_null(spmt_comm_by_rank(&l.uid, 0));
	RANKS_OK(ranks_threads(4, look_up, &l));
	cr_expect_null(spmt_comm_by_rank(&l.uid, 0));
	cr_expect_null(spmt_comm_by_device(&l.uid, 0));
	cr_expect_null(spmt_comm_by_rank(&other, 0));
}

Test(identity, lookups)
{
	static const int permuted[] = { 3, 1, 0, 2 }, sliced[] = { 2, 3, 4, 5 },
			 spread[] = { 6, 0, 4, 2 }, shared[] = { 5, 5, 5, 5 },
			 alone[] = { 0, 0, 0, 0 };

	lookups(NULL, -1);
	lookups(permuted, -1);
	lookups(sliced, -1);
	lookups(spread, -1);
	lookups(shared, 0);
	lookups(alone, 0);
}

/* ---- devices ------------------------------------------------------------------------------------------------------ */

static int exchange(spmt_comm *comm, void *arg)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm);
	uint64_t *words, one = 1;
	const int *devices = arg;

	REQUIRE_EQ(spmt_device(comm), devices[rank]);
	REQUIRE_OK(spmt_calloc(comm, (size_t)n + 1, sizeof(*words), (void **)&words));
	for (int pe = 0; pe < n; pe++) {
		uint64_t value = (uint64_t)rank * 100 + (uint64_t)pe;

		TRY(spmt_copy_in(comm, words + n, &value, sizeof(value)));
		REQUIRE_OK(spmt_put(comm, words + rank, words + n, sizeof(value), pe));
	}
	REQUIRE_OK(spmt_barrier(comm));
	for (int pe = 0; pe < n; pe++)
		TRY(sym_check_u64(comm, words + pe, (uint64_t)pe * 100 + (uint64_t)rank));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_set(comm, words, 0, sizeof(*words)));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, words, &one, NULL, NULL, 0));
	REQUIRE_OK(spmt_barrier(comm));
	if (rank == 0)
		TRY(sym_check_u64(comm, words, (uint64_t)n));
	return 0;
}

Test(identity, permuted_sliced_and_shared_devices)
{
	static int permuted[] = { 3, 1, 0, 2 }, sliced[] = { 4, 5, 6, 7 }, some[] = { 7, 0, 3, 2 },
		   shared[] = { 2, 2, 2, 2 }, mixed[] = { 1, 0, 1, 0 }, alone[] = { 0, 0, 0, 0 };
	int *maps[] = { permuted, sliced, some, shared, mixed, alone };

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
		if (devices_fit(maps[i], 4))
			RANKS_OK(ranks_run_on(4, NULL, maps[i], exchange, maps[i]));
}

/* ---- guard -------------------------------------------------------------------------------------------------------- */

static int guarded_failure(spmt_comm *comm)
{
	SPMT_GUARD(comm);
	return spmt_put(comm, NULL, NULL, 8, 99);
}

static int nest(spmt_comm *a, spmt_comm *b)
{
	REQUIRE_OK(spmt_host_set_device(5));
	{
		SPMT_GUARD(a);
		REQUIRE_EQ(spmt_host_get_device(), spmt_device(a));
		{
			SPMT_GUARD(b);
			REQUIRE_EQ(spmt_host_get_device(), spmt_device(b));
			REQUIRE_CODE(guarded_failure(a), -EINVAL);
			REQUIRE_EQ(spmt_host_get_device(), spmt_device(b));
			{
				SPMT_GUARD(NULL);
				REQUIRE_EQ(spmt_host_get_device(), spmt_device(b));
			}
		}
		REQUIRE_EQ(spmt_host_get_device(), spmt_device(a));
		REQUIRE_CODE(guarded_failure(b), -EINVAL);
		REQUIRE_EQ(spmt_host_get_device(), spmt_device(a));
	}
	REQUIRE_EQ(spmt_host_get_device(), 5);
	return 0;
}

static int guard_by_hand(spmt_comm *a, spmt_comm *gone)
{
	struct spmt_guard guard;

	spmt_guard_enter(a, &guard);
	REQUIRE_EQ(spmt_host_get_device(), spmt_device(a));
	spmt_guard_leave(&guard);
	REQUIRE_EQ(spmt_host_get_device(), 5);
	REQUIRE_OK(spmt_host_set_device(6));
	spmt_guard_leave(&guard);
	REQUIRE_EQ(spmt_host_get_device(), 6);
	spmt_guard_enter(gone, &guard);
	REQUIRE_EQ(spmt_host_get_device(), 6);
	spmt_guard_leave(&guard);
	REQUIRE_EQ(spmt_host_get_device(), 6);
	return 0;
}

static int finalize_one(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

Test(identity, guard_nests_and_restores)
{
	struct spmt_attr attrs[2] = { ranks_attr(0, 2, NULL), ranks_attr(1, 2, NULL) };
	spmt_comm *comms[2], *again;

	NEEDS_HOST(CURRENT);
	attrs[0].device = 3;
	attrs[1].device = 1;
	cr_assert_eq(spmt_init_all(2, attrs, comms), 0, "%s", spmt_last_error());
	RANKS_OK(nest(comms[0], comms[1]));
	cr_assert_eq(spmt_each(2, comms, finalize_one, NULL), 0);
	RANKS_OK(ranks_run(1, NULL, exchange, (int[]){ 0 }));
	cr_assert_eq(spmt_init_all(2, attrs, comms), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_host_set_device(5), 0);
	cr_assert_eq(spmt_each(2, comms, finalize_one, NULL), 0);
	attrs[0].nranks = 1;
	cr_assert_eq(spmt_init_all(1, attrs, &again), 0, "%s", spmt_last_error());
	RANKS_OK(guard_by_hand(again, comms[comms[0] == again]));
	cr_assert_eq(spmt_finalize(again), 0);
}

Test(identity, device_by_hand)
{
	NEEDS_HOST("spmt_host_set_device");
	cr_expect_eq(spmt_host_get_device(), 0);
	cr_expect_lt(spmt_host_set_device(8), 0);
	cr_expect_lt(spmt_host_set_device(-1), 0);
	cr_expect_eq(spmt_host_get_device(), 0);
	cr_expect_eq(spmt_host_set_device(7), 0);
	cr_expect_eq(spmt_host_get_device(), 7);
}

/* ---- nobody's device is touched ------------------------------------------------------------------------------------- */

static void count_kernel(void *args)
{
	uint64_t **counter = args;

	__atomic_fetch_add(*counter, 1, __ATOMIC_RELAXED);
}

struct spmt_calls {
	int rank, next, away;
	uint64_t *words, one;
	void *block;
	spmt_mem *mem;
	spmt_stream stream;
	char local[64];
};

#define SAME(call)                                           \
	do {                                                 \
		REQUIRE_OK(call);                            \
		REQUIRE_EQ(spmt_host_get_device(), c->away); \
	} while (0)
#define SAME_BAD(call)                                       \
	do {                                                 \
		REQUIRE((call) < 0);                         \
		REQUIRE_EQ(spmt_host_get_device(), c->away); \
	} while (0)

static int same_memory(spmt_comm *comm, struct spmt_calls *c)
{
	SAME(spmt_calloc(comm, 64, sizeof(*c->words), (void **)&c->words));
	SAME(spmt_malloc(comm, 300000, &c->block));
	SAME(spmt_free(comm, c->block));
	SAME(spmt_aligned_alloc(comm, 1 << 20, 300000, &c->block));
	SAME(spmt_register(comm, c->local, sizeof(c->local), &c->mem));
	SAME(spmt_mem_put(comm, c->mem, 8, c->words, 8, c->next));
	SAME(spmt_mem_get(comm, c->words, c->mem, 0, 8, c->next));
	SAME(spmt_barrier(comm));
	SAME(spmt_deregister(comm, c->mem));
	SAME(spmt_copy_in(comm, c->words, c->local, 8));
	SAME(spmt_copy_out(comm, c->local, c->words, 8));
	SAME_BAD(spmt_malloc(comm, SIZE_MAX, &c->block));
	SAME_BAD(spmt_aligned_alloc(comm, 3, 8, &c->block));
	SAME_BAD(spmt_free(comm, c->local));
	return 0;
}

static int same_moves(spmt_comm *comm, struct spmt_calls *c)
{
	uint64_t *sig = c->words + 8, seen;

	SAME(spmt_put(comm, c->words, c->words + 1, 8, c->next));
	SAME(spmt_put_nbi(comm, c->block, c->block, 300000, c->next));
	SAME(spmt_get(comm, c->words + 2, c->words + 3, 8, c->next));
	SAME(spmt_put_signal(comm, c->words, c->words + 1, 8, sig, 1, SPMT_SIGNAL_ADD, c->next));
	SAME(spmt_signal_wait(comm, sig, SPMT_CMP_GE, 1, &seen));
	SAME(spmt_atomic(
		comm, SPMT_AMO_ADD, SPMT_TYPE_U64, c->words + 4, &c->one, NULL, NULL, c->next));
	SAME(spmt_fence(comm));
	SAME(spmt_quiet(comm));
	SAME(spmt_barrier(comm));
	SAME(spmt_set_timeout(comm, 20));
	SAME_BAD(spmt_signal_wait(comm, sig, SPMT_CMP_GE, 1000, &seen));
	SAME(spmt_set_timeout(comm, 0));
	SAME_BAD(spmt_put(comm, c->words, c->words, 8, 1000));
	SAME_BAD(spmt_get(comm, c->words, c->local, 8, c->next));
	return 0;
}

static int same_streams(spmt_comm *comm, struct spmt_calls *c)
{
	uint64_t *counter = &c->one;

	SAME(spmt_host_stream_create(comm, &c->stream));
	SAME(spmt_host_launch(comm, c->stream, count_kernel, &counter, sizeof(counter)));
	SAME(spmt_put_on_stream(comm, c->words, c->words + 1, 8, c->next, c->stream));
	SAME(spmt_signal_on_stream(comm, c->words + 9, 1, SPMT_SIGNAL_ADD, c->next, c->stream));
	SAME(spmt_signal_wait_on_stream(comm, c->words + 9, SPMT_CMP_GE, 1, c->stream));
	SAME(spmt_barrier_on_stream(comm, c->stream));
	SAME(spmt_all_reduce(
		comm, c->words + 16, c->words + 16, 8, SPMT_TYPE_U64, SPMT_OP_SUM, c->stream));
	SAME(spmt_quiet_on_stream(comm, c->stream));
	SAME(spmt_host_stream_synchronize(c->stream));
	SAME(spmt_host_stream_destroy(c->stream));
	SAME(spmt_all_reduce(
		comm, c->words + 16, c->words + 16, 8, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	SAME(spmt_quiet(comm));
	SAME(spmt_barrier(comm));
	return 0;
}

static int same_device(int index, void *arg)
{
	struct spmt_attr attr = ranks_attr(index, 4, arg);
	struct spmt_calls calls = { .rank = index,
		.next = (index + 1) % 4,
		.away = 7 - index,
		.one = 1 },
			  *c = &calls;
	struct spmt_view view = { .size = sizeof(view) };
	struct spmt_route route = { .size = sizeof(route) };
	spmt_comm *comm;

	REQUIRE_OK(spmt_host_set_device(c->away));
	SAME(spmt_init(&attr, &comm));
	TRY(same_memory(comm, c));
	TRY(same_moves(comm, c));
	TRY(same_streams(comm, c));
	SAME(spmt_view_get(comm, &view));
	SAME(spmt_route(comm, c->next, &route));
	SAME(spmt_finalize(comm));
	attr.device = 1000;
	SAME_BAD(spmt_init(&attr, &comm));
	return 0;
}

Test(identity, the_threads_own_device_stays)
{
	spmt_uid uid;

	NEEDS_HOST(CURRENT);
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(4, same_device, &uid));
}

/* ---- a pool of foreign threads ---------------------------------------------------------------------------------------- */

enum { POOL = 6, PE = 4, JOBS = 400 };

struct object_pool {
	spmt_comm *comms[PE];
	spmt_uid uid;
	uint64_t *words;
	pthread_mutex_t turn[PE]; /* one call at a time on a comm */
	_Atomic int next;
};

/* Any thread takes any job for any rank, found by its device; threads sit on devices of their own. */
static int serve(int index, void *arg)
{
	struct object_pool *p = arg;
	uint64_t one = 1;

	REQUIRE_OK(on_host() ? spmt_host_set_device(7 - index) : 0);
	for (int job; (job = atomic_fetch_add(&p->next, 1)) < JOBS;) {
		int device = job % PE, pe = job / PE % PE;
		spmt_comm *comm = spmt_comm_by_device(&p->uid, device);
		int code;

		REQUIRE(comm);
		REQUIRE(comm == spmt_comm_by_rank(&p->uid, device));
		pthread_mutex_lock(&p->turn[device]);
		{
			SPMT_GUARD(comm);
			uint64_t *mine = spmt_ptr(p->comms[0], p->words, device);

			code = !on_host() || spmt_host_get_device() == device ? 0 : -ENODEV;
			if (!code)
				code = spmt_atomic(spmt_comm_by_rank(&p->uid, device), SPMT_AMO_ADD,
					SPMT_TYPE_U64, mine, &one, NULL, NULL, pe);
		}
		pthread_mutex_unlock(&p->turn[device]);
		REQUIRE_CODE(code, 0);
		REQUIRE(!on_host() || spmt_host_get_device() == 7 - index);
	}
	return 0;
}

static int make_words(spmt_comm *comm, void *arg)
{
	struct object_pool *p = arg;
	uint64_t *words;

	REQUIRE_OK(spmt_calloc(comm, 4, sizeof(*words), (void **)&words));
	if (spmt_rank(comm) == 0)
		p->words = words;
	return 0;
}

static int check_words(spmt_comm *comm, void *arg)
{
	struct object_pool *p = arg;

	TRY(sym_check_u64(comm, spmt_ptr(p->comms[0], p->words, spmt_rank(comm)), JOBS / PE));
	return spmt_finalize(comm);
}

Test(identity, a_pool_of_foreign_threads)
{
	struct object_pool p = { .next = 0 };
	struct spmt_attr attrs[PE];

	NEEDS_DEVICES(PE);
	cr_assert_eq(spmt_uid_create(&p.uid), 0);
	for (int i = 0; i < PE; i++) {
		attrs[i] = ranks_attr(i, PE, &p.uid);
		pthread_mutex_init(&p.turn[i], NULL);
	}
	cr_assert_eq(spmt_init_all(PE, attrs, p.comms), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_each(PE, p.comms, make_words, &p), 0, "%s", spmt_last_error());
	RANKS_OK(ranks_threads(POOL, serve, &p));
	cr_expect_eq(spmt_each(PE, p.comms, check_words, &p), 0, "%s", ranks_message());
}

/* ---- routes ------------------------------------------------------------------------------------------------------- */

static int routes(spmt_comm *comm, void *arg)
{
	struct spmt_route route = { .size = sizeof(route) };

	(void)arg;
	for (int pe = 0; pe < spmt_nranks(comm); pe++) {
		REQUIRE_OK(spmt_route(comm, pe, &route));
		REQUIRE_EQ(route.pe, pe);
		REQUIRE(strcmp(route.map, pe == spmt_rank(comm) ? "self" : "p2p") == 0);
		REQUIRE(strstr(route.movers, "store"));
		REQUIRE(route.reason[0]);
		REQUIRE_EQ(route.process, 0);
		REQUIRE_EQ(route.device, on_host() ? pe : device_of(pe));
	}
	/* As programs of the first release ask: what came later stays as it was. */
	route.size = offsetof(struct spmt_route, process);
	route.process = -7;
	REQUIRE_OK(spmt_route(comm, 0, &route));
	REQUIRE(route.process == -7 && route.size == offsetof(struct spmt_route, process));
	route.size--;
	REQUIRE_CODE(spmt_route(comm, 0, &route), -EINVAL);
	route.size = 0;
	REQUIRE_CODE(spmt_route(comm, 0, &route), -EINVAL);
	return 0;
}

Test(identity, routes_and_their_reasons)
{
	RANKS_OK(ranks_run(3, NULL, routes, NULL));
}
