/* SPDX-License-Identifier: MIT */
/* The life of copy queues: last users, refusals, threads that meet, forks. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "two_worlds.h"

/* ---- life */

Test(copy_queue, nothing_is_left_after_the_last_user, .init = init, .fini = fini)
{
	int tasks = links_count("task"), fds = links_count("fd");

	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 9; i++) {
			cr_assert_eq(put_nbi(&l.links[i], l.links[i].base, "abc", 4), 0);
			cr_assert_eq(put_nbi(&other.links[i], other.links[i].base, "abc", 4), 0);
		}
		cr_assert_eq(copy_queues_live(), 9);
		cr_assert_gt(links_count("task"), tasks);
		for (int i = 0; i < 9; i++) {
			mover_sdma.close(links_sdma(&l.links[i]));
			mover_sdma.close(links_sdma(&other.links[i]));
		}
		cr_assert_eq(copy_queues_live(), 0);
	}
	cr_assert_eq(links_count_down("task", tasks), tasks);
	cr_assert_eq(links_count("fd"), fds);
}

static void *release_later(void *latch)
{
	usleep(50000);
	latch_release(latch);
	return NULL;
}

Test(copy_queue, close_waits_even_in_a_broken_world, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct latch latch;
	pthread_t thread;

	hold_copy_queue(link, &latch);
	cr_assert_eq(put_nbi(link, link->base + 64, "drained", 8), 0);
	__atomic_store_n(&l.stop, 1, __ATOMIC_RELEASE);
	cr_assert_eq(pthread_create(&thread, NULL, release_later, &latch), 0);
	mover_sdma.close(links_sdma(link));
	cr_assert_str_eq(link->base + 64, "drained");
	cr_assert_eq(copy_queues_live(), 0);
	pthread_join(thread, NULL);
}

Test(copy_queue, without_a_channel_the_store_mover_does_it, .init = init, .fini = fini)
{
	struct link *link = links_at(&l, 0, 1);
	struct route route;

	link_route(link, &route);
	cr_assert_eq(route.nmovers, 2);
	fail(-EBADF, "an older sentence");
	fault_arm(1u << FAULT_DEVICE, 1);
	cr_assert_eq(put_nbi(link, link->base, "by store", 9), 0);
	cr_assert(fault_fired());
	fault_disarm();
	cr_assert_str_eq(status_sentence(), "an older sentence");
	cr_assert_str_eq(link->base, "by store");
	cr_assert_eq(link->movers[0].ops, &mover_store);
	cr_assert_eq(link->movers[1].ops, &mover_store);
	cr_assert_eq(link->ops[MOVER_STORE], 1);
	cr_assert_eq(copy_queues_live(), 0);
	link_route(link, &route);
	cr_assert_eq(route.nmovers, 1);
	cr_assert_eq(route.movers[0], MOVER_STORE);
	cr_assert_not_null(strstr(route.reason, "a test wants it; sdma: host: stream_create"), "%s",
		route.reason);
}

/* Everything that a move asks for is refused in turn: it fails, or its bytes arrive. */
Test(copy_queue, fault_sweep, .init = init, .fini = fini)
{
	bool fired = true;
	int n = 0, denied = 0;

	while (fired) {
		struct link link = *links_at(&l, 0, 1);
		int put, quiet;

		links_sdma(&link)->link = &link;
		memset(link.base, 0, 64);
		fault_arm(FAULT_ANY, (uint64_t)++n);
		put = put_nbi(&link, link.base, "swept", 6);
		quiet = links_quiet(links_sdma(&link));
		fired = fault_fired();
		fault_disarm();
		cr_assert_eq(quiet, 0, "request %d: %s", n, status_sentence());
		cr_assert_str_eq(link.base, put ? "" : "swept", "request %d", n);
		denied += put != 0;
		mover_sdma.close(links_sdma(&link));
		cr_assert_eq(copy_queues_live(), 0, "request %d", n);
	}
	cr_assert_gt(n, 8, "the sweep saw %d requests", n);
	cr_assert_gt(denied, 0);
}

/* ---- threads and forks */

struct race {
	pthread_barrier_t start;
	struct link links[8];
	_Atomic int next;
};

static void *racer(void *arg)
{
	struct race *race = arg;
	int i = atomic_fetch_add(&race->next, 1);
	struct link *link = &race->links[i];
	intptr_t rc;

	pthread_barrier_wait(&race->start);
	rc = put_nbi(link, link->base + i * 8, "raced", 6);
	return (void *)(rc ? rc : links_quiet(links_sdma(link)));
}

Test(copy_queue, eight_threads_make_one_channel, .init = init, .fini = fini)
{
	for (int round = 0; round < 50; round++) {
		struct race race = { .next = 0 };
		pthread_t threads[8];
		device_stream s, first = NULL;

		pthread_barrier_init(&race.start, NULL, 8);
		for (int i = 0; i < 8; i++)
			race.links[i] = *links_at(i & 1 ? &l : &other, 0, 1);
		for (int i = 0; i < 8; i++)
			cr_assert_eq(pthread_create(&threads[i], NULL, racer, &race), 0);
		for (int i = 0; i < 8; i++) {
			void *rc;

			pthread_join(threads[i], &rc);
			cr_assert_null(rc);
		}
		for (int i = 0; i < 8; i++) {
			cr_assert_str_eq(race.links[i].base + i * 8, "raced");
			cr_assert_eq(sdma_stream(&race.links[i], 0, &s), 0);
			first = i ? first : s;
			cr_assert_eq(s, first);
		}
		cr_assert_eq(copy_queues_live(), 1);
		for (int i = 0; i < 8; i++)
			mover_sdma.close(links_sdma(&race.links[i]));
		cr_assert_eq(copy_queues_live(), 0);
		pthread_barrier_destroy(&race.start);
	}
}

/* Driver calls on what the parent owns; a vendor's runtime would not see that they are stale. */
static int strays;

static int stray_event(int dev, device_event e)
{
	strays++;
	return backend_host.event_destroy(dev, e);
}

static int stray_query(int dev, device_event e)
{
	strays++;
	return backend_host.event_query(dev, e);
}

static int stray_stream(int dev, device_stream s)
{
	strays++;
	return backend_host.stream_destroy(dev, s);
}

/* In the child: lets go of what it inherited, and makes a copy queue of its own. 0, or the step that failed. */
static int child(void)
{
	struct links own;
	struct link *link;

	if (copy_queues_live())
		return 1;
	strays = 0;
	mover_sdma.close(links_sdma(links_at(&l, 0, 1)));
	if (strays)
		return 7;
	if (links_open(&own, &backend_host, 2, SIZE))
		return 2;
	link = links_at(&own, 0, 1);
	if (put_nbi(link, link->base, "child", 6) || copy_queues_live() != 1)
		return 3;
	if (links_quiet(links_sdma(link)) || strcmp(link->base, "child"))
		return 4;
	mover_sdma.close(links_sdma(links_at(&l, 1, 0)));
	if (copy_queues_live() != 1 || strays)
		return 5;
	links_close(&own);
	return copy_queues_live() ? 6 : 0;
}

Test(copy_queue, a_forked_child_starts_anew)
{
	struct backend watched = backend_host;
	struct link *link, *back;
	struct latch latch;
	int status;
	pid_t pid;

	watched.event_destroy = stray_event;
	watched.event_query = stray_query;
	watched.stream_destroy = stray_stream;
	cr_assert_eq(links_open(&l, &watched, 2, SIZE), 0, "%s", status_sentence());
	link = links_at(&l, 0, 1);
	back = links_at(&l, 1, 0);

	cr_assert_eq(put_nbi(back, back->base, "x", 2), 0);
	cr_assert_eq(links_quiet(links_sdma(back)), 0);
	hold_copy_queue(link, &latch);
	cr_assert_eq(put_nbi(link, link->base + 64, "parent", 7), 0);
	pid = fork();
	if (!pid)
		_exit(child());
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status));
	cr_assert_eq(WEXITSTATUS(status), 0, "step %d", WEXITSTATUS(status));
	latch_release(&latch);
	cr_assert_eq(links_quiet(links_sdma(link)), 0);
	cr_assert_str_eq(link->base + 64, "parent");
	cr_assert_eq(copy_queues_live(), 2);
	links_close(&l);
	cr_assert_eq(copy_queues_live(), 0);
	cr_assert_gt(strays, 0, "the parent gives back what it has");
}
