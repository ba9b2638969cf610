/* SPDX-License-Identifier: MIT */
/*
 * No lock in the lookups, instruction by instruction: with the processor's trap flag set a signal comes before each one, and whoever
 * takes a lock or sleeps on one cannot do without an atomic read-modify-write or a system call. x86-64 alone.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "tests/lib/ranks.h"

#if !defined(__x86_64__) || SANITIZED
Test(lookups, take_no_lock)
{
	cr_skip_test("reads the instructions of x86-64, and not those of sanitizers");
}
#else

enum { RANKS = 4, STEPS_MOST = 4000, TRAP_FLAG = 0x100 };

static struct {
	long steps, atomics, calls; /* system calls */
} seen;

/* Prefixes, then the opcode. An exchange with memory is atomic without a prefix, too. */
static void look_at(const unsigned char *at)
{
	bool lock = false;

	for (; *at && strchr("\xf0\xf2\xf3\x2e\x36\x3e\x26\x64\x65\x66\x67", *at); at++)
		lock |= *at == 0xf0;
	if ((*at & 0xf0) == 0x40) /* REX */
		at++;
	seen.atomics += lock || ((*at == 0x86 || *at == 0x87) && at[1] < 0xc0);
	seen.calls +=
		(*at == 0x0f && (at[1] == 0x05 || at[1] == 0x34)) || (*at == 0xcd && at[1] == 0x80);
	seen.steps++;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *at = context;

	(void)signal;
	(void)info;
	look_at((const unsigned char *)at->uc_mcontext.gregs[REG_RIP]);
}

/* The flag keeps its value across calls and returns; the signal's handler runs without it. */
static void steps_begin(void)
{
	memset(&seen, 0, sizeof(seen));
	__builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | TRAP_FLAG);
}

static void steps_end(void)
{
	__builtin_ia32_writeeflags_u64(
		__builtin_ia32_readeflags_u64() & ~(unsigned long long)TRAP_FLAG);
}

/* ---- that it sees locks ------------------------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;

static void with_mutex(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}

static void with_rwlock(void)
{
	pthread_rwlock_rdlock(&rwlock);
	pthread_rwlock_unlock(&rwlock);
}

static void with_spin(void)
{
	pthread_spin_lock(&spin);
	pthread_spin_unlock(&spin);
}

static void with_exchange(void)
{
	static int word;

	while (__atomic_exchange_n(&word, 1, __ATOMIC_ACQUIRE))
		;
	__atomic_store_n(&word, 0, __ATOMIC_RELEASE);
}

static void with_call(void)
{
	sched_yield();
}

static int sees(const char *what, void (*lock)(void))
{
	lock(); /* its address is looked up at the first call */
	steps_begin();
	lock();
	steps_end();
	REQUIRE(seen.steps > 2);
	if (!seen.atomics && !seen.calls)
		return ranks_fail("%s was not seen in %ld steps", what, seen.steps);
	return 0;
}

static int sees_locks(void)
{
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	TRY(sees("a mutex", with_mutex));
	TRY(sees("a lock for readers", with_rwlock));
	TRY(sees("a spin lock", with_spin));
	TRY(sees("an exchange", with_exchange));
	TRY(sees("a system call", with_call));
	return 0;
}

/* ---- lookups ------------------------------------------------------------------------------------------------------ */

struct worlds {
	spmt_uid live, other, zero;
};

static int look(const spmt_uid *uid, int number, bool found)
{
	spmt_comm *by_rank, *by_device;

	steps_begin();
	by_rank = spmt_comm_by_rank(uid, number);
	by_device = spmt_comm_by_device(uid, number);
	steps_end();
	REQUIRE_EQ(by_rank != NULL, found);
	REQUIRE_EQ(by_device != NULL, found);
	if (seen.steps < 10 || seen.steps > STEPS_MOST || seen.atomics || seen.calls)
		return ranks_fail("lookup of %d: %ld steps, %ld atomic, %ld system calls", number,
			seen.steps, seen.atomics, seen.calls);
	return 0;
}

static int look_up(spmt_comm *comm, void *arg)
{
	const struct worlds *w = arg;

	/* Several threads are here, so that nothing goes without its lock for being alone. */
	if (spmt_rank(comm) == 0) {
		TRY(sees_locks());
		for (int i = 0; i < RANKS; i++)
			TRY(look(&w->live, i, true));
		TRY(look(&w->live, RANKS, false));
		TRY(look(&w->live, -1, false));
		TRY(look(&w->other, 0, false));
		TRY(look(&w->zero, 0, false));
		TRY(look(NULL, 0, false));
	}
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int in_world(int index, void *arg)
{
	const struct worlds *w = arg;
	struct spmt_attr attr = ranks_attr(index, RANKS, &w->live);
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	TRY(look_up(comm, arg));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int nothing(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_barrier(comm);
}

Test(lookups, take_no_lock)
{
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	struct worlds w = { 0 };

	NEEDS_DEVICES(RANKS);
	cr_assert_eq(sigaction(SIGTRAP, &action, NULL), 0);
	cr_assert_eq(spmt_uid_create(&w.live), 0);
	cr_assert_eq(spmt_uid_create(&w.other), 0);
	RANKS_OK(ranks_run(2, NULL, nothing, NULL)); /* a world that was, in the table's chain */
	RANKS_OK(ranks_threads(RANKS, in_world, &w));
}
#endif
