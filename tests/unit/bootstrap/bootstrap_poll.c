/* SPDX-License-Identifier: MIT */
/* Waiting for a set of descriptors, above the limit of them, too. */
#include <criterion/criterion.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "spmt/bootstrap/state.h"
#include "src/base/process.h"

#define MANY 300
#define LIMIT 1000
#define MS 1000000ll

/* Criterion's own asserts take descriptors: none between a low limit and this. */
static void limit_set(int most)
{
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = (rlim_t)most;
	setrlimit(RLIMIT_NOFILE, &files);
}

static void set_make(struct poller *p)
{
	cr_assert_eq(poller_open(p), 0);
	cr_assert(poller_room(p, MANY));
	for (int i = 0; i < MANY; i++) {
		p->set[i] = (struct pollfd){ .fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN };
		cr_assert_geq(p->set[i].fd, 0);
	}
}

static void set_drop(struct poller *p)
{
	for (int i = 0; i < MANY; i++)
		if (p->set[i].fd >= 0)
			close(p->set[i].fd);
	poller_close(p);
}

static int ready(struct poller *p, int timeout_ms)
{
	int n = 0;

	poller_wait(p, MANY, timeout_ms);
	for (int i = 0; i < MANY; i++)
		n += p->set[i].revents == POLLIN;
	return n;
}

static void post(const struct poller *p, int i)
{
	(void)eventfd_write(p->set[i].fd, 1);
}

Test(bootstrap_poll, finds_what_is_ready)
{
	static const int limits[] = { LIMIT, MANY + 1, MANY - 1, 3, 0 };

	limit_set(LIMIT);
	for (size_t l = 0; l < ARRAY_SIZE(limits); l++) {
		struct poller p;
		int64_t begin;
		int none, late, last, all;
		bool right;

		set_make(&p);
		limit_set(limits[l]);
		none = ready(&p, 0);
		begin = process_now();
		late = ready(&p, 30);
		begin = process_now() - begin;
		post(&p, MANY - 1);
		last = ready(&p, -1);
		right = p.set[MANY - 1].revents == POLLIN;
		for (int i = 0; i < MANY - 1; i++)
			post(&p, i);
		all = ready(&p, -1);
		set_drop(&p);
		limit_set(LIMIT);
		cr_expect_eq(none, 0);
		cr_expect_eq(late, 0);
		cr_expect_geq(begin, 29 * MS);
		cr_expect_eq(last, 1);
		cr_expect(right);
		cr_expect_eq(all, MANY, "limit %d: %d", limits[l], all);
	}
}

/* What has been closed here, and lives on in a copy, as forked children have it, is forgotten. */
Test(bootstrap_poll, forgets_what_is_gone)
{
	int copy, none, one, after;
	struct poller p;

	limit_set(LIMIT);
	set_make(&p);
	copy = dup(p.set[7].fd);
	cr_assert_geq(copy, 0);
	limit_set(3);
	none = ready(&p, 0);
	post(&p, 7);
	one = ready(&p, -1);
	close(p.set[7].fd);
	/* the last of the others takes its place in the set, and nothing that place */
	p.set[7].fd = p.set[MANY - 1].fd;
	p.set[MANY - 1].fd = -1;
	poller_wait(&p, MANY - 1, 30);
	after = 0;
	for (int i = 0; i < MANY - 1; i++)
		after += p.set[i].revents != 0;
	close(copy);
	set_drop(&p);
	limit_set(LIMIT);
	cr_expect_eq(none, 0);
	cr_expect_eq(one, 1);
	cr_expect_eq(after, 0);
}

/* A set that cannot be watched at all is no reason to spin. */
Test(bootstrap_poll, naps_where_nothing_can_be_had)
{
	int64_t begin, naps, none;
	struct poller p;
	int found = 0;

	limit_set(LIMIT);
	set_make(&p);
	limit_set(3);
	close(p.epoll);
	p.epoll = -1;
	begin = process_now();
	for (int i = 0; i < 10; i++)
		found += ready(&p, -1);
	naps = process_now() - begin;
	begin = process_now();
	found += ready(&p, 0);
	none = process_now() - begin;
	set_drop(&p);
	limit_set(LIMIT);
	cr_expect_eq(found, 0);
	cr_expect_geq(naps, 90 * MS);
	cr_expect_lt(none, 5000 * MS);
}
