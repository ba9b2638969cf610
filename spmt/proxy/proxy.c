/* SPDX-License-Identifier: MIT */
#include "proxy.h"

#include <errno.h>
#include <sched.h>

#include "spmt/control/wake.h"
#include "src/base/fault.h"
#include "src/base/futex.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define PROXY_YIELDS 64	       /* rounds with nothing to do before it sleeps */
#define PROXY_SLEEP 1000000000 /* ns; who posts wakes it before */
#define PROXY_POLL 20000       /* ns, where nobody does; growing to .. */
#define PROXY_POLL_MOST 1000000

struct proxy {
	struct wake_counter wake; /* the thread's */
	pthread_mutex_t lock;	  /* guards the rest; zeroed is unlocked */
	pthread_cond_t changed;	  /* who waits for the thread: to leave a fifo, to end */
	pthread_t thread;
	bool running, ending;
	struct fifo *first;
	const struct fifo *serving; /* the thread is in it */
	uint64_t changes;	    /* of the list */
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* One round through all fifos. *polled: of some one nobody says when it has a post. */
static bool proxy_round(struct proxy *p, bool *polled)
{
	bool did = false;
	struct fifo *f;

	*polled = false;
	pthread_mutex_lock(&p->lock);
	for (f = p->first; f;) {
		uint64_t changes = p->changes;

		*polled |= f->polled;
		p->serving = f;
		pthread_mutex_unlock(&p->lock);
		did |= fifo_serve(f);
		pthread_mutex_lock(&p->lock);
		p->serving = NULL;
		if (p->changes == changes) {
			f = f->next;
			continue;
		}
		pthread_cond_broadcast(&p->changed);
		did = true; /* the rest is looked at in the next round */
		break;
	}
	pthread_mutex_unlock(&p->lock);
	return did;
}

static bool proxy_ends(struct proxy *p)
{
	bool ends;

	pthread_mutex_lock(&p->lock);
	ends = p->ending;
	pthread_mutex_unlock(&p->lock);
	return ends;
}

/* Between two rounds that found nothing. */
static void proxy_rest(struct proxy *p, unsigned idle, uint32_t *wakes, bool polled)
{
	unsigned grown = MIN_OF(idle - PROXY_YIELDS, 8u);

	if (idle < PROXY_YIELDS) {
		sched_yield();
		return;
	}
	if (idle == PROXY_YIELDS) { /* it counts as a sleeper, and looks once more */
		*wakes = atomic_load_explicit(&p->wake.wakes, memory_order_acquire);
		atomic_fetch_add(&p->wake.sleepers, 1);
#if !defined(__SANITIZE_THREAD__)
		atomic_thread_fence(memory_order_seq_cst);
#endif
		return;
	}
	futex_sleep(&p->wake.wakes, *wakes,
		polled ? MIN_OF((int64_t)PROXY_POLL << grown, PROXY_POLL_MOST) : PROXY_SLEEP);
	*wakes = atomic_load_explicit(&p->wake.wakes, memory_order_acquire);
}

static void *proxy_main(void *arg)
{
	struct proxy *p = arg;
	uint32_t wakes = 0;
	unsigned idle = 0;
	bool polled;

	pthread_setname_np(pthread_self(), "spmt-proxy");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	while (!proxy_ends(p)) {
		bool did = proxy_round(p, &polled);

		if (did && idle >= PROXY_YIELDS)
			atomic_fetch_sub(&p->wake.sleepers, 1);
		idle = did ? 0 : MIN_OF(idle + 1, 1u << 20);
		if (!did)
			proxy_rest(p, idle, &wakes, polled);
	}
	if (idle >= PROXY_YIELDS)
		atomic_fetch_sub(&p->wake.sleepers, 1);
	return NULL;
}

/* ---- who uses it ------------------------------------------------------------------------------- */

void proxy_wake(struct proxy *proxy)
{
	wake_stored(&proxy->wake);
}

static struct proxy *proxy_get(void)
{
	void *_Atomic *slot = world_proxy();

	return slot ? process_state(slot, sizeof(struct proxy)) : NULL;
}

/* Under the lock. */
static int proxy_start(struct proxy *p)
{
	int err;

	while (p->ending)
		pthread_cond_wait(&p->changed, &p->lock);
	if (p->running)
		return 0;
	err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD)
				       : process_thread(&p->thread, 0, proxy_main, p);
	p->running = !err;
	return err ? fail_errno(err, "no thread that does what kernels post") : 0;
}

int proxy_add(struct fifo *fifo)
{
	UNCANCELLED;
	struct proxy *p = proxy_get();
	int rc;

	if (!p)
		return fail(-ENOMEM, "out of memory for a thread that does what kernels post");
	pthread_mutex_lock(&p->lock);
	rc = proxy_start(p);
	if (!rc) {
		fifo->proxy = p;
		fifo->next = p->first;
		p->first = fifo;
		p->changes++;
	}
	pthread_mutex_unlock(&p->lock);
	if (!rc)
		proxy_wake(p);
	return rc;
}

/* Under the lock: the thread has nothing left to serve. */
static void proxy_end(struct proxy *p)
{
	p->ending = true;
	pthread_mutex_unlock(&p->lock);
	proxy_wake(p);
	pthread_join(p->thread, NULL);
	pthread_mutex_lock(&p->lock);
	p->running = p->ending = false;
	pthread_cond_broadcast(&p->changed);
}

void proxy_remove(struct fifo *fifo)
{
	struct proxy *p = fifo->proxy;
	struct fifo **at = &p->first;

	pthread_mutex_lock(&p->lock);
	while (*at != fifo)
		at = &(*at)->next;
	*at = fifo->next;
	p->changes++;
	while (p->serving == fifo)
		pthread_cond_wait(&p->changed, &p->lock);
	/* while this one waited another may have removed the last and ended it */
	if (!p->first && p->running && !p->ending)
		proxy_end(p);
	pthread_mutex_unlock(&p->lock);
}
