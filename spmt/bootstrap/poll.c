/* SPDX-License-Identifier: MIT */
#include "state.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define ROOM_LEAST 16
#define NAP_MS 10
#define EVENTS 64

bool poller_room(struct poller *p, size_t n)
{
	struct pollfd *set;

	if (n <= p->room)
		return true;
	set = mem_calloc(2 * n, sizeof(*set));
	if (!set)
		return false;
	mem_free(p->set);
	p->set = set;
	p->room = 2 * n;
	return true;
}

int poller_open(struct poller *p)
{
	int err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0;

	*p = (struct poller){ .epoll = -1 };
	if (!poller_room(p, ROOM_LEAST))
		return fail_call(-ENOMEM, "spmt_init", "out of memory for a rendezvous");
	if (!err)
		p->epoll = process_fd(epoll_create1(EPOLL_CLOEXEC));
	return p->epoll >= 0
		? 0
		: fail_call_errno(err ? err : errno, "spmt_init", "epoll for the rendezvous");
}

void poller_close(struct poller *p)
{
	if (p->epoll >= 0)
		close(p->epoll);
	mem_free(p->set);
	*p = (struct poller){ .epoll = -1 };
}

/* ---- where poll() refuses the set ---------------------------------------------------------- */

/* Returns how many of the n are registered: all, unless the kernel is short of something. */
static size_t watch(const struct poller *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct pollfd *at = &p->set[i];
		struct epoll_event e = { .events = (uint32_t)at->events, .data.u64 = i };

		if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, at->fd, &e))
			return i;
	}
	return n;
}

/* Removed now and not on close, because a forked child may hold a copy open. */
static void unwatch(const struct poller *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		epoll_ctl(p->epoll, EPOLL_CTL_DEL, p->set[i].fd, NULL);
}

/* The kernel reports ready descriptors in rotation. */
static int collect(struct poller *p, size_t n, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	int got = EVENTS;

	for (size_t seen = 0; got == EVENTS && seen < n + EVENTS; seen += EVENTS) {
		got = epoll_wait(p->epoll, events, EVENTS, seen ? 0 : timeout_ms);
		for (int i = 0; i < got; i++)
			p->set[events[i].data.u64].revents = (short)events[i].events;
	}
	return got;
}

/* poll() obeys the limit of descriptors, epoll does not. Sandboxes lower that limit to what is
   open, or to nothing, once a program has what it needs. */
static int wait_unlimited(struct poller *p, size_t n, int timeout_ms)
{
	size_t watched = watch(p, n);
	int got = watched == n ? collect(p, n, timeout_ms) : -1;

	unwatch(p, watched);
	return got;
}

static void nap(int timeout_ms)
{
	int ms = timeout_ms < 0 ? NAP_MS : MIN_OF(timeout_ms, NAP_MS);
	struct timespec ts = { .tv_nsec = ms * 1000000l };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

void poller_wait(struct poller *p, size_t n, int timeout_ms)
{
	int got = poll(p->set, n, timeout_ms);

	if (got >= 0)
		return;
	for (size_t i = 0; i < n; i++)
		p->set[i].revents = 0;
	if (errno == EINTR)
		return;
	if (wait_unlimited(p, n, timeout_ms) < 0 && errno != EINTR)
		nap(timeout_ms);
}
