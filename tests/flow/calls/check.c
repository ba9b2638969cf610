/* SPDX-License-Identifier: MIT */
/* SPMT_CHECK: calls that are wrong about memory and threads are named, in one process and over two, and nothing of them happens. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/processes.h"

/* ---- every call with a range ---------------------------------------------------------------------------------------- */

enum { BLOCK = 48, REGISTERED = 64 };

struct ranges {
	spmt_comm *comm;
	int rank, pe;
	char *before, *block, *behind; /* symmetric; BLOCK bytes each */
	char *good;		       /* symmetric, 4 KiB */
	spmt_mem *mem;
	char local[4096];
};

/* call, made with `at`, is refused and says why. */
static int refused(struct ranges *r, const char *text, int code, const char *why)
{
	char name[64];

	snprintf(name, sizeof(name), "%.*s: rank %d:", (int)strcspn(text, "("), text, r->rank);
	if (code != -EINVAL || !strstr(spmt_last_error(), name) || !strstr(spmt_last_error(), why))
		return ranks_fail("%s gave %d; no \"%s\" or \"%s\" in: %s", text, code, name, why,
			code < 0 ? spmt_last_error() : "");
	return 0;
}

#define REFUSED(call) TRY(refused(r, #call, (call), why))

/* 32 bytes at `at` are not all there; 8 at `word` are not. */
static int remote_sides(struct ranges *r, char *at, uint64_t *word, const char *why)
{
	spmt_comm *comm = r->comm;
	uint64_t one = 1, got;

	REFUSED(spmt_put(comm, at, r->local, 32, r->pe));
	REFUSED(spmt_put_nbi(comm, at, r->local, 32, r->pe));
	REFUSED(spmt_put_on_stream(comm, at, r->local, 32, r->pe, NULL));
	REFUSED(spmt_get(comm, r->local, at, 32, r->pe));
	REFUSED(spmt_get_nbi(comm, r->local, at, 32, r->pe));
	REFUSED(spmt_get_on_stream(comm, r->local, at, 32, r->pe, NULL));
	REFUSED(spmt_iput(comm, at, r->local, 3, 1, 4, 4, r->pe)); /* its last ends at 40 */
	REFUSED(spmt_iget(comm, r->local, at, 1, 3, 4, 4, r->pe));
	REFUSED(spmt_copy_in(comm, at, r->local, 32));
	REFUSED(spmt_copy_out(comm, r->local, at, 32));
	REFUSED(spmt_put_signal(
		comm, at, r->local, 32, (uint64_t *)(void *)r->good, 1, SPMT_SIGNAL_ADD, r->pe));
	REFUSED(spmt_put_signal(comm, r->good + 64, r->local, 32, word, 1, SPMT_SIGNAL_ADD, r->pe));
	REFUSED(spmt_put_signal_nbi(
		comm, r->good + 64, r->local, 32, word, 1, SPMT_SIGNAL_ADD, r->pe));
	REFUSED(spmt_put_signal_on_stream(
		comm, r->good + 64, r->local, 32, word, 1, SPMT_SIGNAL_ADD, r->pe, NULL));
	REFUSED(spmt_signal(comm, word, 1, SPMT_SIGNAL_SET, r->pe));
	REFUSED(spmt_signal_on_stream(comm, word, 1, SPMT_SIGNAL_SET, r->pe, NULL));
	REFUSED(spmt_signal_fetch(comm, word, &got));
	REFUSED(spmt_signal_wait(comm, word, SPMT_CMP_GE, 0, &got));
	REFUSED(spmt_signal_wait_on_stream(comm, word, SPMT_CMP_GE, 0, NULL));
	REFUSED(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, r->pe));
	return 0;
}

static int waits(struct ranges *r, char *at, uint64_t *word, const char *why)
{
	spmt_comm *comm = r->comm;
	const uint64_t zero = 0;
	size_t index, found, indices[8];
	int result;

	REFUSED(spmt_wait_until(comm, SPMT_TYPE_U64, word, SPMT_CMP_GE, &zero));
	REFUSED(spmt_test(comm, SPMT_TYPE_U64, word, SPMT_CMP_GE, &zero, &result));
	REFUSED(spmt_wait_until_any(comm, SPMT_TYPE_U64, at, 4, NULL, SPMT_CMP_GE, &zero, &index));
	REFUSED(spmt_wait_until_some(
		comm, SPMT_TYPE_U64, at, 4, NULL, SPMT_CMP_GE, &zero, indices, &found));
	REFUSED(spmt_wait_until_all(comm, SPMT_TYPE_U64, at, 4, NULL, SPMT_CMP_GE, &zero));
	REFUSED(spmt_test_any(comm, SPMT_TYPE_U64, at, 4, NULL, SPMT_CMP_GE, &zero, &index));
	REFUSED(spmt_test_some(
		comm, SPMT_TYPE_U64, at, 4, NULL, SPMT_CMP_GE, &zero, indices, &found));
	REFUSED(spmt_test_all(comm, SPMT_TYPE_U64, at, 4, NULL, SPMT_CMP_GE, &zero, &result));
	return 0;
}

/* The local side, where it is the heap's; nobody waits for a collective that is refused. */
static int local_sides(struct ranges *r, char *at, const char *why)
{
	spmt_comm *comm = r->comm;
	int to[] = { 1, 2, 0 };

	REFUSED(spmt_put(comm, r->good, at, 32, r->pe));
	REFUSED(spmt_get(comm, at, r->good, 32, r->pe));
	REFUSED(spmt_iget(comm, at, r->good, 3, 1, 4, 4, r->pe));
	REFUSED(spmt_mem_put(comm, r->mem, 0, at, 32, r->pe));
	REFUSED(spmt_mem_get_nbi(comm, at, r->mem, 0, 32, r->pe));
	REFUSED(spmt_mem_put_on_stream(comm, r->mem, 0, at, 32, r->pe, NULL));
	REFUSED(spmt_all_reduce(comm, at, r->good, 8, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
	REFUSED(spmt_all_reduce(comm, r->good, at, 8, SPMT_TYPE_U32, SPMT_OP_SUM, NULL));
	REFUSED(spmt_broadcast(comm, at, at, 8, SPMT_TYPE_U32, r->rank, NULL));
	REFUSED(spmt_all_gather(comm, at, r->good, 8, SPMT_TYPE_U32, NULL));
	REFUSED(spmt_all_to_all(comm, r->good, at, 8, SPMT_TYPE_U32, NULL));
	REFUSED(spmt_permute(comm, r->good, at, 8, SPMT_TYPE_U32, to, NULL));
	REFUSED(spmt_reduce_scatter(comm, r->good, at, 8, SPMT_TYPE_U32, SPMT_OP_MAX, NULL));
	return 0;
}

static int begin(spmt_comm *comm, struct ranges *r)
{
	memset(r, 0, sizeof(*r));
	r->comm = comm;
	r->rank = spmt_rank(comm);
	r->pe = (r->rank + 1) % spmt_nranks(comm);
	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&r->before));
	REQUIRE_OK(spmt_calloc(comm, BLOCK / 8, 8, (void **)&r->block));
	REQUIRE_OK(spmt_malloc(comm, BLOCK, (void **)&r->behind));
	REQUIRE_OK(spmt_aligned_alloc(comm, 256, 4096, (void **)&r->good));
	REQUIRE_OK(spmt_register(comm, r->good + 1024, REGISTERED, &r->mem));
	TRY(sym_fill(comm, r->before, BLOCK, 1));
	TRY(sym_fill(comm, r->block, BLOCK, 2));
	TRY(sym_fill(comm, r->behind, BLOCK, 3));
	TRY(sym_fill(comm, r->good, 4096, 4));
	return 0;
}

/* A block and a buffer in it may be of two comms of the rank. */
static int registered_on_a_part(struct ranges *r)
{
	spmt_comm *part;
	spmt_mem *mem;
	void *block;

	REQUIRE_OK(spmt_split(r->comm, 0, 0, &part));
	REQUIRE_OK(spmt_register(part, r->good + 1024, REGISTERED, &mem));
	REQUIRE_CODE(spmt_free(r->comm, r->good), -EINVAL);
	REQUIRE_SAYS("lies a buffer that is still registered");
	REQUIRE_OK(spmt_deregister(part, mem));
	REQUIRE_OK(spmt_malloc(part, REGISTERED, &block));
	REQUIRE_OK(spmt_register(r->comm, block, REGISTERED, &mem));
	REQUIRE_CODE(spmt_free(part, block), -EINVAL);
	REQUIRE_OK(spmt_deregister(r->comm, mem));
	REQUIRE_OK(spmt_free(part, block));
	return spmt_finalize(part);
}

/* What was refused has not happened, on any rank; the red zones that spmt_free looks at included. */
static int end(struct ranges *r)
{
	spmt_comm *comm = r->comm;

	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check(comm, r->before, BLOCK, 1));
	TRY(sym_check(comm, r->good, 4096, 4));
	TRY(sym_check(comm, r->behind, BLOCK, 3));
	REQUIRE_CODE(spmt_free(comm, r->good), -EINVAL);
	REQUIRE_SAYS("lies a buffer that is still registered (spmt_register no. 1)");
	REQUIRE_OK(spmt_deregister(comm, r->mem));
	TRY(registered_on_a_part(r));
	REQUIRE_OK(spmt_free(comm, r->before));
	REQUIRE_OK(spmt_free(comm, r->good));
	return spmt_free(comm, r->behind);
}

static int past_the_end(spmt_comm *comm, void *arg)
{
	static const char
		over[] = "goes 8 bytes past the end of the block of 48 bytes (spmt_calloc no. 2)",
		beyond[] =
			"begins 0 bytes past the end of the block of 48 bytes (spmt_calloc no. 2)";
	struct ranges r;
	spmt_mem *none;

	(void)arg;
	TRY(begin(comm, &r));
	TRY(remote_sides(&r, r.block + 24, (uint64_t *)(void *)(r.block + BLOCK),
		"past the end of the block of 48 bytes (spmt_calloc no. 2)"));
	TRY(waits(&r, r.block + 24, (uint64_t *)(void *)(r.block + BLOCK),
		"past the end of the block of 48 bytes (spmt_calloc no. 2)"));
	TRY(local_sides(
		&r, r.block + 24, "past the end of the block of 48 bytes (spmt_calloc no. 2)"));
	REQUIRE_CODE(spmt_put(comm, r.block + 24, r.local, 32, r.pe), -EINVAL);
	REQUIRE_SAYS(over);
	REQUIRE_CODE(
		spmt_signal(comm, (void *)(r.block + BLOCK), 1, SPMT_SIGNAL_ADD, r.pe), -EINVAL);
	REQUIRE_SAYS(beyond);
	REQUIRE_CODE(spmt_register(comm, r.block, BLOCK + 1, &none), -EINVAL);
	REQUIRE_SAYS("goes 1 bytes past the end");
	/* what is right is as it was, to the last byte */
	REQUIRE_OK(spmt_put(comm, r.block, r.local, BLOCK, r.pe));
	REQUIRE_OK(spmt_put(comm, r.block + BLOCK - 1, r.local, 1, r.pe));
	REQUIRE_OK(spmt_put(comm, r.block + BLOCK, r.local, 0, r.pe));
	REQUIRE_OK(spmt_iput(comm, r.block, r.local, 3, 1, 4, 4, r.pe));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_free(comm, r.block));
	return end(&r);
}

Test(check, past_the_end)
{
	CHECKED_OK(past_the_end);
}

static int freed(spmt_comm *comm, void *arg)
{
	static const char why[] =
		"lies in the block of 48 bytes (spmt_calloc no. 2), which was freed (spmt_free no. 1)";
	struct ranges r;

	(void)arg;
	TRY(begin(comm, &r));
	REQUIRE_OK(spmt_free(comm, r.block));
	TRY(remote_sides(&r, r.block + 8, (uint64_t *)(void *)r.block, why));
	TRY(waits(&r, r.block + 8, (uint64_t *)(void *)r.block, why));
	TRY(local_sides(&r, r.block + 8, why));
	REQUIRE(!spmt_ptr(comm, r.block, r.pe));
	REQUIRE_SAYS(why);
	/* all ranks free it again */
	REQUIRE_CODE(spmt_free(comm, r.block), -EINVAL);
	REQUIRE_SAYS(
		"lies in the block of 48 bytes (spmt_calloc no. 2), which was freed before (spmt_free no. 1)");
	REQUIRE_CODE(spmt_free(comm, r.behind + 16), -EINVAL);
	REQUIRE_SAYS(
		"is no block's begin, but 16 bytes into the block of 48 bytes (spmt_malloc no. 3)");
	return end(&r);
}

Test(check, freed)
{
	CHECKED_OK(freed);
}

/* Before a block, far from any, and blocks of no bytes, which have an address. */
static int in_no_block(spmt_comm *comm, void *arg)
{
	struct ranges r;
	void *empty;

	(void)arg;
	TRY(begin(comm, &r));
	TRY(remote_sides(&r, r.block - 8, (uint64_t *)(void *)(r.block - 8),
		"begins 8 bytes before the block of 48 bytes (spmt_calloc no. 2)"));
	TRY(local_sides(&r, r.block - 8,
		"begins 8 bytes before the block of 48 bytes (spmt_calloc no. 2)"));
	REQUIRE_CODE(spmt_put(comm, r.good + (1 << 20), r.local, 8, r.pe), -EINVAL);
	REQUIRE_SAYS("lies in no block");
	REQUIRE_OK(spmt_malloc(comm, 0, &empty));
	REQUIRE(!host_access(comm) || spmt_ptr(comm, empty, r.pe));
	REQUIRE_OK(spmt_put(comm, empty, r.local, 0, r.pe));
	REQUIRE_CODE(spmt_put(comm, empty, r.local, 1, r.pe), -EINVAL);
	REQUIRE_SAYS("past the end of the block of 0 bytes (spmt_malloc no. 5)");
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_free(comm, empty));
	REQUIRE_OK(spmt_free(comm, r.block));
	return end(&r);
}

Test(check, in_no_block)
{
	CHECKED_OK(in_no_block);
}

/* ---- two threads on one comm ---------------------------------------------------------------------------------------------------- */

struct beside {
	spmt_comm *comm;
	uint64_t *words;
	_Atomic int code, done, returned;
	char said[256]; /* of the call that waits, once it has returned */
};

static void *waiting(void *arg)
{
	struct beside *b = arg;
	int code;

	do /* it may come while the other is in its put */
		code = spmt_signal_wait(b->comm, b->words, SPMT_CMP_EQ, 7, NULL);
	while (code == -EBUSY);
	snprintf(b->said, sizeof(b->said), "%s", code < 0 ? spmt_last_error() : "");
	atomic_store(&b->code, code);
	atomic_store(&b->returned, 1);
	return NULL;
}

#define BUSY(call)                                                                          \
	do {                                                                                \
		REQUIRE_CODE(call, -EBUSY);                                                 \
		REQUIRE_SAYS("rank 0: another thread is in spmt_signal_wait on this comm"); \
	} while (0)

/* Until the other thread is in its call. */
static int until_inside(struct beside *b)
{
	char local[8] = "";
	int code;

	while (!(code = spmt_put(b->comm, b->words + 1, local, 8, 0)))
		if (atomic_load(&b->returned))
			return ranks_fail(
				"spmt_signal_wait gave %d: %s", atomic_load(&b->code), b->said);
	REQUIRE_EQ(code, -EBUSY);
	return 0;
}

static int refused_beside(struct beside *b)
{
	spmt_comm *comm = b->comm, *part;
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats = { .size = sizeof(stats) };
	uint64_t *words = b->words, got;
	char local[8] = "";
	void *ptr;

	BUSY(spmt_put(comm, words + 1, local, 8, 1));
	BUSY(spmt_get_nbi(comm, local, words + 1, 8, 1));
	BUSY(spmt_signal(comm, words + 1, 1, SPMT_SIGNAL_ADD, 1));
	BUSY(spmt_signal_fetch(comm, words + 1, &got));
	BUSY(spmt_quiet(comm));
	BUSY(spmt_fence(comm));
	BUSY(spmt_barrier(comm));
	BUSY(spmt_malloc(comm, 8, &ptr));
	BUSY(spmt_free(comm, words));
	BUSY(spmt_split(comm, 0, 0, &part));
	BUSY(spmt_all_reduce(comm, words + 1, words + 1, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	BUSY(spmt_finalize(comm));
	/* these may */
	REQUIRE_OK(spmt_status(comm));
	REQUIRE_EQ(spmt_rank(comm), 0);
	REQUIRE_EQ(spmt_nranks(comm), 2);
	REQUIRE(spmt_backend(comm));
	REQUIRE_OK(spmt_route(comm, 1, &route));
	REQUIRE_OK(spmt_stats(comm, -1, &stats));
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE(!host_access(comm) || spmt_ptr(comm, words, 1));
	return 0;
}

static int two_threads(spmt_comm *comm, void *arg)
{
	struct beside *b = arg;
	uint64_t *words;
	pthread_t thread;
	int code = 0;

	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(*words), (void **)&words));
	if (spmt_rank(comm)) {
		while (!atomic_load(&b->done) && !spmt_status(comm))
			sleep_ms(1);
		REQUIRE_OK(spmt_signal(comm, words, 7, SPMT_SIGNAL_SET, 0));
		REQUIRE_OK(spmt_barrier(comm));
		return spmt_free(comm, words);
	}
	b->comm = comm;
	b->words = words;
	REQUIRE_EQ(pthread_create(&thread, NULL, waiting, b), 0);
	code = until_inside(b);
	if (!code)
		code = refused_beside(b);
	if (code)
		spmt_abort(comm, -ECANCELED);
	atomic_store(&b->done, 1);
	pthread_join(thread, NULL);
	TRY(code);
	REQUIRE_EQ(atomic_load(&b->code), 0); /* it was not harmed */
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_free(comm, words);
}

Test(check, two_threads)
{
	struct beside b = { .code = 1 };

	processes_check();
	NEEDS_DEVICES(2);
	RANKS_OK(ranks_run(2, NULL, two_threads, &b));
}

/* A call that comes just as another thread's ends is refused, or has the comm: it never runs beside others unmarked. */
enum { TURNS = 200 };

struct turns {
	struct beside beside;
	_Atomic int begun, inside,
		left; /* the turn whose puts begin; in which the other thread waits; which it has left */
};

static void *waiting_in_turns(void *arg)
{
	struct turns *t = arg;
	struct beside *b = &t->beside;
	int code = 0;

	for (int turn = 1; turn <= TURNS && !code; turn++) {
		while (atomic_load(&t->begun) < turn)
			;
		do
			code = spmt_signal_wait(
				b->comm, b->words, SPMT_CMP_EQ, (uint64_t)turn, NULL);
		while (code == -EBUSY);
		atomic_store(&t->left, turn);
	}
	snprintf(b->said, sizeof(b->said), "%s", code < 0 ? spmt_last_error() : "");
	atomic_store(&b->code, code);
	atomic_store(&b->returned, 1);
	return NULL;
}

static int look_each_turn(struct turns *t)
{
	for (int turn = 1; turn <= TURNS; turn++) {
		atomic_store(&t->begun, turn);
		TRY(until_inside(&t->beside));
		atomic_store(&t->inside, turn);
		while (atomic_load(&t->left) < turn && !atomic_load(&t->beside.returned))
			sched_yield();
	}
	return 0;
}

static int in_turns(spmt_comm *comm, void *arg)
{
	struct turns *t = arg;
	uint64_t *words;
	pthread_t thread;
	int code;

	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(*words), (void **)&words));
	for (int turn = 1; spmt_rank(comm) && turn <= TURNS; turn++) {
		while (atomic_load(&t->inside) < turn && !spmt_status(comm))
			sched_yield();
		REQUIRE_OK(spmt_signal(comm, words, (uint64_t)turn, SPMT_SIGNAL_SET, 0));
	}
	if (!spmt_rank(comm)) {
		t->beside.comm = comm;
		t->beside.words = words;
		REQUIRE_EQ(pthread_create(&thread, NULL, waiting_in_turns, t), 0);
		code = look_each_turn(t);
		if (code)
			spmt_abort(comm, -ECANCELED);
		atomic_store(&t->begun, TURNS);
		pthread_join(thread, NULL);
		TRY(code);
		REQUIRE_EQ(atomic_load(&t->beside.code), 0);
	}
	REQUIRE_OK(spmt_barrier(comm));
	return spmt_free(comm, words);
}

Test(check, in_turns)
{
	struct turns t = { .beside = { .code = 1 } };

	processes_check();
	NEEDS_DEVICES(2);
	RANKS_OK(ranks_run(2, NULL, in_turns, &t));
}

/* ---- not everywhere --------------------------------------------------------------------------------------------------- */

static int differs(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, 2, &p->uid[0]);
	spmt_comm *comm;

	setenv("SPMT_CHECK", rank ? "1" : "0", 1);
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("SPMT_CHECK differs: rank 1 passed 1, rank 0 passed 0");
	return 0;
}

Test(check, not_on_all_ranks)
{
	struct processes p = { .layout = "0|1" };

	RANKS_OK(processes_run(&p, differs, &p));
}
