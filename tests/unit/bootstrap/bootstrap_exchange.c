/* SPDX-License-Identifier: MIT */
/* Exchanges among processes, and every resource of a rendezvous refused once. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "party_world.h"
#include "src/base/fault.h"
#include "tests/lib/clocks.h"

/* ---- exchange ------------------------------------------------------------------------------ */

struct exchanger {
	struct party *party;
	int rounds, bad;
	size_t size;
	bool fds;
};

static int memory_of(int value)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	if (pwrite(fd, &value, sizeof(value), 0) != sizeof(value))
		return -1;
	return fd;
}

static int value_of(int fd)
{
	int value = -1;

	if (fd >= 0 && pread(fd, &value, sizeof(value), 0) == sizeof(value))
		close(fd);
	return value;
}

static int exchange_once(struct exchanger *e, int round, unsigned char *in, unsigned char *out)
{
	struct party *p = e->party;
	int fds[8], rc,
		bad = 0,
		mine = e->fds && (round + p->self) % 3 ? memory_of(round * 10 + p->self) : -1;

	memset(in, p->self + round, e->size);
	rc = bootstrap_exchange(p->b, in, e->size, mine, out, fds, 5000);
	if (mine >= 0)
		close(mine);
	for (int i = 0; !rc && i < p->processes; i++) {
		bool sent = e->fds && (round + i) % 3;

		for (size_t k = 0; k < e->size; k++)
			bad += out[(size_t)i * e->size + k] != (unsigned char)(i + round);
		bad += sent ? value_of(fds[i]) != round * 10 + i : fds[i] != -1;
	}
	return bad + (rc != 0);
}

static void *exchange_many(void *arg)
{
	struct exchanger *e = arg;
	unsigned char *in = malloc(e->size + 1), *out = malloc(8 * e->size + 1);

	for (int i = 0; i < e->rounds && !e->bad; i++)
		e->bad += exchange_once(e, i, in, out);
	free(in);
	free(out);
	return NULL;
}

static void exchange_all(struct party *parties, int n, int rounds, size_t size, bool fds)
{
	struct exchanger e[8];
	pthread_t threads[8];

	for (int i = 0; i < n; i++) {
		e[i] = (struct exchanger){ &parties[i], rounds, 0, size, fds };
		cr_assert_eq(pthread_create(&threads[i], NULL, exchange_many, &e[i]), 0);
	}
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < n; i++)
		cr_expect_eq(e[i].bad, 0, "process %d of %d, %zu bytes", i, n, size);
}

Test(bootstrap_exchange, exchange)
{
	static const int counts[] = { 1, 2, 5 };
	int before = links_count("fd");

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		struct party parties[5];
		struct uid uid;
		int n = counts[i];

		uid_make(&uid);
		join(&uid, parties, (int[]){ 1, 1, 1, 1, 1 }, n, n);
		exchange_all(parties, n, 30, 200, true);
		exchange_all(parties, n, 3, 0, true);
		exchange_all(parties, n, 3, WIRE_DATA, true);
		leave(parties, n);
	}
	cr_expect_eq(links_count("fd"), before);
}

Test(bootstrap_exchange, exchange_that_cannot_be)
{
	struct party parties[2];
	struct uid uid;
	char out[2];
	int fds[2];

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	add_ok(&parties[0], 0);
	cr_expect_eq(bootstrap_exchange(parties[0].b, "", 1, -1, out, fds, 10), -EINVAL);
	open_ok(&parties[1], &uid, 2);
	add_ok(&parties[1], 1);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 5000), 0);
	cr_expect_eq(
		bootstrap_exchange(parties[0].b, "", WIRE_DATA + 1, -1, out, fds, 10), -EINVAL);
	cr_expect_eq(bootstrap_exchange(parties[0].b, "", 1, -1, out, fds, 100), SPMT_ERR_TIMEOUT);
	cr_expect(calm_says(status_sentence(), "1 of 2 ranks missing in an exchange after ", 0.1,
			  " s: 1"),
		"%s", status_sentence());
	cr_expect_eq(bootstrap_exchange(parties[0].b, "", 1, -1, out, fds, 10), -EINVAL);
	leave(parties, 2);
}

static void *exchange_a_byte(void *arg)
{
	struct party *p = arg;
	char out[2];
	int fds[2], rc = bootstrap_exchange(p->b, "", 1, -1, out, fds, 5000);

	for (int i = 0; !rc && i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return (void *)(intptr_t)rc;
}

Test(bootstrap_exchange, exchange_of_two_sizes)
{
	struct party parties[2];
	pthread_t thread;
	struct uid uid;
	char out[4];
	int fds[2];
	void *rc;

	uid_make(&uid);
	join(&uid, parties, (int[]){ 1, 1 }, 2, 2);
	cr_assert_eq(pthread_create(&thread, NULL, exchange_a_byte, &parties[1]), 0);
	cr_expect_eq(
		bootstrap_exchange(parties[0].b, "a", 2, -1, out, fds, 5000), SPMT_ERR_MISMATCH);
	cr_expect(says("on ranks: 1"));
	pthread_join(thread, &rc);
	cr_expect_eq((intptr_t)rc, SPMT_ERR_MISMATCH);
	leave(parties, 2);
}

Test(bootstrap_exchange, few_descriptors)
{
	struct rlimit limit = { 64, 64 };
	struct party parties[5];
	struct uid uid;

	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	uid_make(&uid);
	join(&uid, parties, (int[]){ 1, 1, 1, 1, 1 }, 5, 5);
	exchange_all(parties, 5, 20, 100, true);
	leave(parties, 5);
}

/* ---- failures ------------------------------------------------------------------------------ */

/* A life of two processes; any failure is an error, never a hang. */
static int live(const struct uid *uid)
{
	struct party parties[2];
	int rc = party_open(&parties[0], uid, 2, false), rc2 = -1;
	char out[2] = { 0 };
	int fds[2];

	if (rc)
		return rc;
	rc2 = party_open(&parties[1], uid, 2, false);
	for (int i = 0; !rc && !rc2 && i < 2; i++)
		rc = add(&parties[i], i);
	for (int i = 0; !rc && !rc2 && i < 2; i++)
		rc = wait_for(&parties[i], 5000);
	if (!rc && !rc2) {
		pthread_t thread;
		void *other;

		cr_assert_eq(pthread_create(&thread, NULL, exchange_a_byte, &parties[1]), 0);
		rc = bootstrap_exchange(parties[0].b, "", 1, 0, out, fds, 5000);
		pthread_join(thread, &other);
		if (!rc)
			close(fds[parties[0].self]);
		rc = rc ? rc : (int)(intptr_t)other;
	}
	bootstrap_close(parties[0].b);
	if (!rc2)
		bootstrap_close(parties[1].b);
	return rc ? rc : rc2;
}

Test(bootstrap_exchange, every_failure, .timeout = 120)
{
	int before = links_count("fd"), failed = 0;
	bool fired = true;
	uint64_t n;

	for (n = 1; fired; n++) {
		int64_t begin = calm_ns();
		struct uid uid;
		int rc;

		uid_make(&uid);
		fault_arm(FAULT_ANY, n);
		rc = live(&uid);
		fired = fault_fired();
		fault_disarm();
		cr_assert(fired || !rc, "%lu: %d %s", n, rc, status_sentence());
		cr_expect_neq(rc, SPMT_ERR_TIMEOUT, "%lu: %s", n, status_sentence());
		cr_expect(!rc || *status_sentence());
		cr_expect_lt(calm_ns() - begin, 4000 * MS, "%lu", n);
		cr_assert_eq(links_count("fd"), before, "%lu", n);
		failed += rc != 0;
	}
	cr_expect_gt(n, 30, "%lu", n);
	cr_expect_gt(failed, 20);
	cr_expect_eq(live(&(struct uid){ .id = { 1, n }, .secret = { 1 } }), 0);
}
