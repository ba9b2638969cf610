/* SPDX-License-Identifier: MIT */
#include "peers.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

static void *word_at(struct rank *r, int which, int pe)
{
	return spmt_ptr(r->comm, perf_word(r, which), pe);
}

/* The compiler must do the copy each time. */
static void copy_once(void *dst, const void *src, size_t size)
{
	memcpy(dst, src, size);
	__asm__ volatile("" : : "r"(dst), "r"(src) : "memory");
}

int peer_memcpy_out(struct rank *r, size_t size, uint64_t iters)
{
	void *dst = spmt_ptr(r->comm, r->dst, r->peer);

	for (uint64_t i = 0; r->role == ROLE_SENDER && i < iters; i++)
		copy_once(dst, r->src, size);
	return 0;
}

int peer_memcpy_in(struct rank *r, size_t size, uint64_t iters)
{
	const void *src = spmt_ptr(r->comm, r->src, r->peer);

	for (uint64_t i = 0; r->role == ROLE_SENDER && i < iters; i++)
		copy_once(r->dst, src, size);
	return 0;
}

int peer_store(struct rank *r, size_t size, uint64_t iters)
{
	uint64_t *dst = spmt_ptr(r->comm, r->dst, r->peer);

	(void)size;
	for (uint64_t i = 0; r->role == ROLE_SENDER && i < iters; i++) {
		__atomic_store_n(dst, i, __ATOMIC_RELAXED);
		__asm__ volatile("" : : : "memory");
	}
	return 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* Spins; where two ranks share a CPU it lets the other run. A rank that failed never answers: ends after 20 s. */
static int spin_until(const uint64_t *word, uint64_t value)
{
	enum { SPINS = 20000 };
	int64_t deadline = 0;

	for (unsigned n = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) < value; n++) {
		relax();
		if (n % SPINS)
			continue;
		sched_yield();
		if (!deadline)
			deadline = perf_now() + 20000000000;
		else if (perf_now() > deadline)
			return -ETIMEDOUT;
	}
	return 0;
}

int peer_pingpong(struct rank *r, size_t size, uint64_t iters)
{
	uint64_t *mine, *theirs;
	void *dst;
	int rc = 0;

	if (r->role == ROLE_IDLE)
		return 0;
	mine = word_at(r, WORD_PINGPONG, r->rank);
	theirs = word_at(r, WORD_PINGPONG, r->peer);
	dst = spmt_ptr(r->comm, r->dst, r->peer);
	for (uint64_t i = 0; i < iters && !rc; i++) {
		uint64_t value = ++r->peer_epoch;

		if (r->role == ROLE_RECEIVER)
			rc = spin_until(mine, value);
		copy_once(dst, r->src, size);
		__atomic_store_n(theirs, value, __ATOMIC_RELEASE);
		if (r->role == ROLE_SENDER && !rc)
			rc = spin_until(mine, value);
	}
	return rc;
}

int peer_fetch_add(struct rank *r, size_t size, uint64_t iters)
{
	uint64_t *target = word_at(r, WORD_ADD, r->peer);

	(void)size;
	for (uint64_t i = 0; r->role == ROLE_SENDER && i < iters; i++)
		__atomic_fetch_add(target, 1, __ATOMIC_SEQ_CST);
	return 0;
}

_Static_assert(sizeof(pthread_barrier_t) <= PERF_WORD, "a barrier fits its word");

int peer_barrier_open(struct rank *r)
{
	int shared = r->run->member ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE, err;
	pthread_barrierattr_t attr;

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, shared);
	err = pthread_barrier_init(word_at(r, WORD_BARRIER, 0), &attr, (unsigned)r->run->nranks);
	pthread_barrierattr_destroy(&attr);
	return -err;
}

void peer_barrier_close(struct rank *r)
{
	pthread_barrier_destroy(word_at(r, WORD_BARRIER, 0));
}

int peer_barrier(struct rank *r, size_t size, uint64_t iters)
{
	pthread_barrier_t *barrier = word_at(r, WORD_BARRIER, 0);

	(void)size;
	for (uint64_t i = 0; i < iters; i++)
		pthread_barrier_wait(barrier);
	return 0;
}

int peer_share(struct rank *r, size_t size, uint64_t iters)
{
	size_t n = (size_t)r->run->nranks, words = size / sizeof(uint64_t);
	size_t from = words * (size_t)r->rank / n * sizeof(uint64_t);
	size_t to = words * ((size_t)r->rank + 1) / n * sizeof(uint64_t);
	pthread_barrier_t *barrier = word_at(r, WORD_BARRIER, 0);

	for (uint64_t i = 0; i < iters; i++) {
		for (int at = 0; at < r->run->nranks; at++) {
			int pe = (r->rank + at) % r->run->nranks;
			char *dst = spmt_ptr(r->comm, r->dst, pe),
			     *src = spmt_ptr(r->comm, r->src, pe);

			copy_once(dst + from, src + from, to - from);
		}
		pthread_barrier_wait(barrier);
	}
	return 0;
}
