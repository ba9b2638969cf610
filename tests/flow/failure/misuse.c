/* SPDX-License-Identifier: MIT */
/*
 * Collective calls that one rank gets wrong, in one process and over two: all get its code and a sentence that names it, outputs
 * are unwritten, the comm is whole. And comms that are gone: parts, what was registered on them, broken ones.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "spmt/comm/comm.h"
#include "tests/lib/processes.h"

enum { ODD = 2 };

static void everywhere(int (*fn)(spmt_comm *comm, void *arg))
{
	static const char *const layouts[] = { "0,1,2,3", "0,1|2,3" };

	for (int i = 0; i < 2; i++) {
		struct processes p = { .layout = layouts[i] };

		RANKS_OK(processes_world(&p, fn, &p));
	}
}

#define ALL(call, code, word)             \
	do {                              \
		REQUIRE_CODE(call, code); \
		REQUIRE_SAYS(word);       \
	} while (0)

/* ---- who is odd -----------------------------------------------------------------------------------------------------

   Most ranks are right. Of two against two the lower are, so that all ranks of all runs say the same. */
static int two_against_two(spmt_comm *world, void *arg)
{
	bool low = spmt_rank(world) < 2;
	void *block = NULL;

	(void)arg;
	ALL(spmt_malloc(world, low ? 64 : 128, &block), SPMT_ERR_MISMATCH,
		"rank 2 passed 128, rank 0 passed 64");
	REQUIRE_SAYS(": 2, 3");
	REQUIRE(!block);
	return spmt_barrier(world);
}

Test(misuse, two_against_two)
{
	everywhere(two_against_two);
}

/* ---- split ---------------------------------------------------------------------------------------------------------- */

static int split_wrong(spmt_comm *world, void *arg)
{
	spmt_comm *none = world, *part;
	int me = spmt_rank(world);
	bool odd = me == ODD;

	(void)arg;
	ALL(spmt_split(world, 0, 0, odd ? NULL : &none), -EINVAL, "rank 2: part is NULL");
	ALL(odd ? spmt_sync(world) : spmt_split(world, 0, 0, &none), SPMT_ERR_MISMATCH,
		"rank 2 passed spmt_sync");
	ALL(odd ? spmt_split(world, 0, 0, &none) : spmt_barrier(world), SPMT_ERR_MISMATCH,
		"rank 2 passed spmt_split");
	REQUIRE(none == world);
	REQUIRE_OK(spmt_status(world));
	/* any color and any key will do */
	REQUIRE_OK(spmt_split(world, odd ? INT_MIN : INT_MAX, me == 3 ? INT_MIN : INT_MAX, &part));
	REQUIRE((part == NULL) == odd);
	if (!odd)
		REQUIRE_EQ(spmt_rank(part), me == 3 ? 0 : me + 1);
	if (!odd)
		REQUIRE_OK(spmt_barrier(part));
	return 0;
}

Test(misuse, split)
{
	everywhere(split_wrong);
}

/* ---- collectives in streams ---------------------------------------------------------------------------------------------- */

enum way { COUNT, TYPE, OP, ROOT, FUNCTION, TO, WAYS };

static int stray(spmt_comm *comm, uint32_t *at, enum way way, bool odd)
{
	const int to[] = { 1, 0, 2, 3 }, other[] = { 0, 1, 3, 2 };

	switch (way) {
	case COUNT:
		return spmt_all_to_all(comm, at, at + 64, odd ? 5 : 4, SPMT_TYPE_U32, NULL);
	case TYPE:
		return spmt_all_gather(
			comm, at, at + 64, 4, odd ? SPMT_TYPE_BF16 : SPMT_TYPE_I16, NULL);
	case OP:
		return spmt_reduce_scatter(
			comm, at, at + 64, 4, SPMT_TYPE_I32, odd ? SPMT_OP_XOR : SPMT_OP_MIN, NULL);
	case ROOT:
		return spmt_broadcast(comm, at, at, 4, SPMT_TYPE_U32, odd ? 1 : 3, NULL);
	case FUNCTION:
		return odd ? spmt_broadcast(comm, at, at, 4, SPMT_TYPE_U32, 0, NULL)
			   : spmt_all_reduce(comm, at, at, 4, SPMT_TYPE_U32, SPMT_OP_SUM, NULL);
	default:
		return spmt_permute(comm, at, at + 64, 4, SPMT_TYPE_U32, odd ? other : to, NULL);
	}
}

/* Every rank is told what it passed itself, and what the one that differs did. */
static int strays(spmt_comm *world, void *arg)
{
	static const struct {
		const char *what, *usual, *odd;
	} said[WAYS] = { [COUNT] = { "spmt_all_to_all: count differs:", "4", "5" },
		[TYPE] = { "spmt_all_gather: type differs:", "i16", "bf16" },
		[OP] = { "spmt_reduce_scatter: op differs:", "min", "xor" },
		[ROOT] = { "spmt_broadcast: root differs:", "3", "1" },
		[FUNCTION] = { "the function called differs:", "spmt_all_reduce",
			"spmt_broadcast" },
		[TO] = { "spmt_permute: count or to differs between rank ", NULL, NULL } };
	int me = spmt_rank(world);
	uint32_t *at;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 128, sizeof(*at), (void **)&at));
	for (enum way way = 0; way < WAYS; way++) {
		char part[80] = "";

		if (said[way].odd)
			snprintf(part, sizeof(part), "rank %d passed %s", ODD, said[way].odd);
		REQUIRE_OK(stray(world, at, way, me == ODD));
		ALL(spmt_quiet(world), SPMT_ERR_MISMATCH, said[way].what);
		REQUIRE_SAYS(part);
		/* The odd one names whichever it saw. */
		if (said[way].usual && me == ODD)
			snprintf(part, sizeof(part), " passed %s", said[way].usual);
		else if (said[way].usual)
			snprintf(part, sizeof(part), "rank %d passed %s", me, said[way].usual);
		REQUIRE_SAYS(part);
		snprintf(part, sizeof(part), "spmt_quiet: rank %d: ", me);
		REQUIRE_SAYS(part);
		REQUIRE_OK(spmt_barrier(world));
	}
	return spmt_free(world, at);
}

Test(misuse, collectives_in_streams)
{
	everywhere(strays);
}

/* ---- two threads on one comm ----------------------------------------------------------------------------------------------- */

struct both {
	spmt_comm *comm; /* of rank 0 */
	_Atomic bool refused;
	_Atomic int inside; /* threads that were let in */
};

/* The other one is in its barrier until rank 1 has come, which waits for this one to be refused. */
static int refused_beside(spmt_comm *comm)
{
	static const char said[] = "rank 0: another thread is in spmt_barrier on this comm";
	spmt_comm *part;
	void *ptr = comm;

	ALL(spmt_sync(comm), -EBUSY, said);
	ALL(spmt_malloc(comm, 64, &ptr), -EBUSY, said);
	REQUIRE(ptr == comm);
	ALL(spmt_split(comm, 0, 0, &part), -EBUSY, said);
	REQUIRE_OK(spmt_status(comm));
	ALL(spmt_barrier_on_stream(comm, NULL), -EBUSY, said);
	ALL(spmt_finalize(comm), -EBUSY, said);
	ALL(spmt_finalize_all(1, &comm), -EBUSY, said);
	return 0;
}

static int one_of_both(int index, void *arg)
{
	struct both *b = arg;
	int code = spmt_barrier(b->comm);

	(void)index;
	if (!code) {
		atomic_fetch_add(&b->inside, 1);
		return 0;
	}
	if (code == -EBUSY)
		TRY(refused_beside(b->comm));
	atomic_store(&b->refused, true);
	REQUIRE_CODE(code, -EBUSY);
	return 0;
}

static int two_threads(spmt_comm *world, void *arg)
{
	struct both *b = arg;
	int64_t end = now_ns() + 5000000000;

	if (spmt_rank(world) == 0) {
		b->comm = world;
		TRY(ranks_threads(2, one_of_both, b));
		REQUIRE_EQ(atomic_load(&b->inside), 1);
	} else {
		while (!atomic_load(&b->refused) && now_ns() < end)
			sleep_ms(1);
		REQUIRE_OK(spmt_barrier(world));
	}
	return spmt_barrier(world);
}

Test(misuse, two_threads_in_collectives_of_one_comm)
{
	struct both b = { .comm = NULL };

	NEEDS_DEVICES(2);
	RANKS_OK(ranks_run(ranks_here(2), NULL, two_threads, &b));
}

/* ---- one thread in a part of what another ends ------------------------------------------------------------------------- */

struct pair {
	spmt_comm *comms[2], *parts[2];
	int code;
};

static int pair_split(spmt_comm *comm, void *arg)
{
	struct pair *p = arg;

	return spmt_split(comm, 0, 0, &p->parts[spmt_rank(comm)]);
}

static void *in_the_part(void *arg)
{
	struct pair *p = arg;

	p->code = spmt_barrier(p->parts[0]);
	return NULL;
}

static pthread_t enters_the_part(struct pair *p)
{
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, in_the_part, p), 0);
	for (int i = 0; i < 10000 && !atomic_load(&p->parts[0]->head.inside); i++)
		sleep_ms(1);
	return thread;
}

/* As on the comm itself: not while the other waits; and in a broken world behind it. */
Test(misuse, a_thread_in_a_part_of_what_ends)
{
	struct spmt_attr attrs[] = { ranks_attr(0, 2, NULL), ranks_attr(1, 2, NULL) };
	struct spmt_attr alone = ranks_attr(0, 1, NULL);
	spmt_comm *all[2];
	struct pair p;
	pthread_t thread;

	NEEDS_DEVICES(2);
	cr_assert_eq(spmt_init_all(2, attrs, p.comms), 0, "%s", spmt_last_error());
	cr_assert_eq(spmt_each(2, p.comms, pair_split, &p), 0, "%s", spmt_last_error());
	thread = enters_the_part(&p);
	cr_assert_eq(spmt_finalize(p.comms[0]), -EBUSY);
	cr_expect(strstr(spmt_last_error(), "is in spmt_barrier on a part or lane"), "%s",
		spmt_last_error());
	cr_assert_eq(spmt_init_all(1, &alone, all), 0, "%s", spmt_last_error());
	all[1] = p.comms[0];
	cr_expect_eq(spmt_finalize_all(2, all), -EBUSY);
	cr_expect_eq(spmt_status(all[0]), 0, "none is finalized: %s", spmt_last_error());
	cr_expect_eq(spmt_finalize(all[0]), 0);
	cr_expect_eq(spmt_barrier(p.parts[1]), 0, "%s", spmt_last_error());
	pthread_join(thread, NULL);
	cr_expect_eq(p.code, 0);
	thread = enters_the_part(&p);
	cr_expect_eq(spmt_abort(p.comms[0], -55), 0);
	cr_expect_eq(spmt_finalize(p.comms[1]), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_finalize(p.comms[0]), 0, "%s", spmt_last_error());
	pthread_join(thread, NULL);
	cr_expect_eq(p.code, -55);
}

static int never(spmt_comm *comm, void *arg)
{
	(void)comm;
	(void)arg;
	return 0;
}

/* That of a rank without a part, say. */
Test(misuse, each_of_a_comm_that_is_null)
{
	spmt_comm *comms[] = { NULL, NULL };
	struct spmt_attr attr = ranks_attr(0, 1, NULL);

	cr_assert_eq(spmt_init_all(1, &attr, comms), 0, "%s", spmt_last_error());
	cr_expect_eq(spmt_each(2, comms, never, NULL), -EINVAL);
	cr_expect(
		strstr(spmt_last_error(), "spmt_each: comms[1] is NULL"), "%s", spmt_last_error());
	cr_expect_eq(spmt_each_abort(2, comms, never, NULL), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "spmt_each_abort: comms[1] is NULL"), "%s",
		spmt_last_error());
	cr_expect_eq(spmt_finalize(comms[0]), 0);
	cr_expect_eq(spmt_each(1, comms, never, NULL), -EBADF);
	cr_expect(strstr(spmt_last_error(), "is finalized"), "%s", spmt_last_error());
	cr_expect_eq(spmt_each_abort(1, comms, never, NULL), -EBADF);
}

Test(misuse, each_of_a_comm_that_comes_twice)
{
	static const struct {
		const char *words;
		int (*each)(int n, spmt_comm *const *comms, int (*fn)(spmt_comm *comm, void *arg),
			void *arg);
	} calls[] = { { "spmt_each: comms[1] and comms[2] are the same", spmt_each },
		{ "spmt_each_abort: comms[1] and comms[2] are the same", spmt_each_abort } };
	struct spmt_attr attrs[] = { ranks_attr(0, 2, NULL), ranks_attr(1, 2, NULL) };
	spmt_comm *comms[3];

	NEEDS_DEVICES(2);
	cr_assert_eq(spmt_init_all(2, attrs, comms), 0, "%s", spmt_last_error());
	comms[2] = comms[1];
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		cr_expect_eq(calls[i].each(3, comms, never, NULL), -EINVAL);
		cr_expect(strstr(spmt_last_error(), calls[i].words), "%s", spmt_last_error());
	}
	cr_expect_eq(spmt_finalize_all(2, comms), 0, "%s", spmt_last_error());
}

/* ---- register --------------------------------------------------------------------------------------------------------- */

static int register_wrong(spmt_comm *world, void *arg)
{
	spmt_mem *mem = NULL, *kept;
	bool odd = spmt_rank(world) == ODD;
	void *end = (void *)(UINTPTR_MAX - 7); /* 16 bytes from here are none */
	char *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 1, 64, (void **)&block));
	ALL(spmt_register(world, block, 64, odd ? NULL : &mem), -EINVAL, "rank 2: mem is NULL");
	ALL(spmt_register(world, odd ? NULL : block, 64, &mem), -EINVAL, "rank 2: buf");
	ALL(spmt_register(world, odd ? end : block, 16, &mem), -EINVAL, "rank 2: buf");
	ALL(odd ? spmt_sync(world) : spmt_register(world, block, 64, &mem), SPMT_ERR_MISMATCH,
		"rank 2 passed spmt_sync");
	REQUIRE(!mem);
	REQUIRE_OK(spmt_register(world, block, 64, &mem));
	kept = mem;
	ALL(spmt_deregister(world, odd ? NULL : mem), -EINVAL,
		"spmt_deregister: rank 2: mem is NULL");
	ALL(odd ? spmt_sync(world) : spmt_deregister(world, mem), SPMT_ERR_MISMATCH,
		"rank 2 passed spmt_sync");
	REQUIRE(spmt_mem_ptr(kept, ODD)); /* still registered */
	REQUIRE_OK(spmt_deregister(world, kept));
	ALL(spmt_deregister(world, kept), -EBADF, "is not a registered buffer");
	return spmt_free(world, block);
}

Test(misuse, register_and_deregister)
{
	everywhere(register_wrong);
}

/* Rank 0 of a process of two registers memory that travels between processes, and is waited for; its other calls are refused
   meanwhile, and leave what it brings to the meeting as it was. */
struct beside {
	_Atomic int *refused; /* shared by the processes */
	spmt_comm *comm, *own;
	char *buf;
	spmt_mem *mem;
};

static int refused_calls(struct beside *b)
{
	static const char said[] = "rank 0: another thread is in spmt_register on this comm";
	void *ptr = b;
	spmt_mem *mem = NULL;
	spmt_comm *part;
	char local[8];

	ALL(spmt_register(b->comm, local, sizeof(local), &mem), -EBUSY, said);
	ALL(spmt_register(b->comm, b->buf, 64, &mem), -EBUSY, said);
	ALL(spmt_register(b->comm, NULL, 0, &mem), -EBUSY, said);
	ALL(spmt_malloc(b->comm, 1 << 16, &ptr), -EBUSY, said);
	ALL(spmt_split(b->comm, 0, 0, &part), -EBUSY, said);
	ALL(spmt_deregister(b->comm, NULL), -EBUSY, said);
	ALL(spmt_finalize(b->comm), -EBUSY, said);
	REQUIRE(ptr == b && !mem);
	return 0;
}

/* Thread 0 registers; thread 1 waits until it has been let in. */
static int registering(int index, void *arg)
{
	struct beside *b = arg;
	int64_t end = now_ns() + 5000000000;
	int rc = 0;

	if (!index)
		return spmt_register(b->comm, b->buf, 64, &b->mem);
	while (!atomic_load(&b->comm->head.inside) && now_ns() < end)
		sleep_ms(1);
	sleep_ms(20); /* so that it has brought what it brings */
	for (int i = 0; i < 2 && !rc; i++)
		rc = refused_calls(b);
	atomic_store(b->refused, 1);
	return rc;
}

static int other_worlds(struct beside *b)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);

	attr.device = spmt_device(b->comm);
	REQUIRE_OK(spmt_init(&attr, &b->own));
	REQUIRE_OK(spmt_malloc(b->own, 64, (void **)&b->buf));
	return spmt_copy_in(b->own, b->buf, "hello", 6);
}

static int register_beside(spmt_comm *world, void *arg)
{
	struct beside b = *(struct beside *)arg;
	int64_t end = now_ns() + 8000000000;
	/* Looking takes a descriptor: one rank of each process looks. */
	bool looks = spmt_rank(world) == 0 || spmt_rank(world) == spmt_nranks(world) - 1;
	struct usage before = { 0 };
	char got[6] = "";

	b.comm = world;
	if (looks)
		before = usage_now();
	REQUIRE_OK(spmt_barrier(world));
	if (spmt_rank(world) == 0) {
		TRY(other_worlds(&b));
		TRY(ranks_threads(2, registering, &b));
	} else {
		while (!atomic_load(b.refused) && now_ns() < end)
			sleep_ms(1);
		REQUIRE_OK(spmt_register(world, NULL, 0, &b.mem));
	}
	REQUIRE_OK(spmt_mem_get(world, got, b.mem, 0, sizeof(got), 0));
	REQUIRE(strcmp(got, "hello") == 0);
	REQUIRE_OK(spmt_deregister(world, b.mem));
	if (b.own)
		REQUIRE_OK(spmt_finalize(b.own));
	REQUIRE_OK(spmt_barrier(world));
	REQUIRE(!looks || usage_now().fds <= before.fds);
	return 0;
}

Test(misuse, a_refused_call_leaves_the_registration_that_it_met)
{
	static const char *const layouts[] = { "0|1", "0,1|2" };

	NEEDS_HOST("a driver may keep the heap of another world from the devices of this one");
	for (int i = 0; i < 2; i++) {
		struct processes p = { .layout = layouts[i] };
		struct beside b = { .refused = processes_shared(sizeof(int)) };

		cr_assert(b.refused != NULL);
		RANKS_OK(processes_world(&p, register_beside, &b));
	}
}

static int of_another_comm(spmt_comm *world, void *arg)
{
	spmt_mem *of_world, *of_part;
	spmt_comm *part;
	char *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 1, 64, (void **)&block));
	REQUIRE_OK(spmt_split(world, 0, 0, &part));
	REQUIRE_OK(spmt_register(world, block, 64, &of_world));
	REQUIRE_OK(spmt_register(part, block, 64, &of_part));
	ALL(spmt_deregister(part, of_world), -EINVAL, "another comm");
	ALL(spmt_deregister(world, of_part), -EINVAL, "another comm");
	REQUIRE_OK(spmt_deregister(part, of_part));
	return spmt_deregister(world, of_world);
}

Test(misuse, registered_on_another_comm)
{
	everywhere(of_another_comm);
}

/* ---- comms that are gone ------------------------------------------------------------------------------------------------ */

/* No call does anything with it. */
static int gone(spmt_comm *comm, char *block)
{
	spmt_comm *none = NULL;
	spmt_mem *mem = NULL;
	spmt_uid next;
	int64_t value = 77;
	int rank = -7, n = -7;
	void *ptr = NULL;

	ALL(spmt_finalize(comm), -EBADF, "spmt_finalize: comm ");
	ALL(spmt_split(comm, 0, 0, &none), -EBADF, "is finalized");
	ALL(spmt_shrink(comm, &next, &rank, &n), -EBADF, "is finalized");
	REQUIRE_CODE(spmt_barrier(comm), -EBADF);
	REQUIRE_CODE(spmt_malloc(comm, 8, &ptr), -EBADF);
	REQUIRE_CODE(spmt_free(comm, block), -EBADF);
	REQUIRE_CODE(spmt_register(comm, block, 8, &mem), -EBADF);
	REQUIRE_CODE(spmt_put(comm, block, &value, 8, 0), -EBADF);
	REQUIRE_CODE(spmt_quiet(comm), -EBADF);
	REQUIRE_CODE(spmt_query(comm, SPMT_CAP_IPC, &value), -EBADF);
	REQUIRE_CODE(spmt_status(comm), -EBADF);
	REQUIRE_CODE(spmt_abort(comm, -5), -EBADF);
	REQUIRE_CODE(spmt_set_timeout(comm, 5), -EBADF);
	REQUIRE_CODE(spmt_rank(comm), -EBADF);
	REQUIRE(!spmt_backend(comm) && !spmt_ptr(comm, block, 0));
	REQUIRE(!none && !mem && !ptr && value == 77 && rank == -7 && n == -7);
	return 0;
}

/* By its own end, by that of the part it was split from, and with what was registered on it. */
static int part_gone(spmt_comm *world, void *arg)
{
	char *block, byte = 1;
	spmt_comm *part, *sub;
	spmt_mem *mem;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 1, 64, (void **)&block));
	REQUIRE_OK(spmt_split(world, 0, 0, &part));
	REQUIRE_OK(spmt_split(part, 0, 0, &sub));
	REQUIRE_OK(spmt_register(sub, block, 64, &mem));
	REQUIRE_OK(spmt_finalize(part));
	TRY(gone(part, block));
	TRY(gone(sub, block));
	REQUIRE_CODE(spmt_mem_put(world, mem, 0, &byte, 1, 0), -EBADF);
	REQUIRE(!spmt_mem_ptr(mem, 0));
	REQUIRE_EQ(spmt_mem_size(mem, 0), 0);
	ALL(spmt_deregister(world, mem), -EBADF, "is not a registered buffer");
	REQUIRE_OK(spmt_status(world));
	REQUIRE_OK(spmt_barrier(world));
	return spmt_free(world, block);
}

Test(misuse, a_part_that_is_gone)
{
	everywhere(part_gone);
}

/* A broken part that went on elsewhere. */
static int shrunk_gone(spmt_comm *world, void *arg)
{
	spmt_comm *part;
	int rank = -1, n = -1;
	spmt_uid next;
	char *block;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 1, 64, (void **)&block));
	REQUIRE_OK(spmt_split(world, 0, 0, &part));
	ALL(spmt_shrink(part, &next, &rank, &n), -EINVAL, "the comm is whole");
	REQUIRE_OK(spmt_barrier(world));
	if (spmt_rank(world) == ODD)
		REQUIRE_OK(spmt_abort(part, -9));
	REQUIRE_CODE(spmt_barrier(part), -9);
	REQUIRE_CODE(spmt_split(part, 0, 0, &part), -9);
	ALL(spmt_shrink(part, NULL, &rank, &n), -EINVAL, "next is NULL");
	ALL(spmt_shrink(part, &next, NULL, &n), -EINVAL, "rank is NULL");
	ALL(spmt_shrink(part, &next, &rank, NULL), -EINVAL, "nranks is NULL");
	REQUIRE(rank == -1 && n == -1);
	REQUIRE_OK(spmt_shrink(part, &next, &rank, &n));
	REQUIRE(rank == spmt_rank(world) && n == 4);
	REQUIRE_OK(spmt_finalize(part));
	TRY(gone(part, block));
	REQUIRE_OK(spmt_status(world));
	return spmt_barrier(world);
}

Test(misuse, a_shrunk_comm_that_is_gone)
{
	everywhere(shrunk_gone);
}

/* They would wait for each other until the deadline. */
Test(misuse, attrs_of_several_worlds)
{
	struct spmt_attr attrs[2] = { ranks_attr(0, 2, NULL), ranks_attr(1, 2, NULL) };
	spmt_comm *comms[2];
	spmt_uid uids[2];

	cr_assert(!spmt_uid_create(&uids[0]) && !spmt_uid_create(&uids[1]));
	attrs[0].uid = &uids[0];
	cr_expect_eq(spmt_init_all(2, attrs, comms), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "attrs[1] has no uid"), "%s", spmt_last_error());
	attrs[1].uid = &uids[1];
	cr_expect_eq(spmt_init_all(2, attrs, comms), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "attrs[1].uid is not"), "%s", spmt_last_error());
}
