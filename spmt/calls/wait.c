/* SPDX-License-Identifier: MIT */
/* Waiting for words in a rank's memory. Stores through the library wake the rank; nobody
   wakes it for other stores, so a sleep lasts 1 ms, growing to 4: such a store must be seen within 5, and
   waking up takes time too. */
#include <sched.h>
#include <time.h>

#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/comm/spin.h"
#include "spmt/comm/waits.h"
#include "spmt/proxy/fifo.h"
#include "src/base/futex.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"
#include "wait.h"

/* spmtd_pause.n tells the phase: below YIELD spinning, then yields, then one announced look,
   then sleeps. */
#define WAIT_YIELD (1u << 20)
/* On an idle CPU some 30 us: longer than it takes to wake a sleeper. With fewer, two ranks that answer
   each other fell asleep in turn, each while the other was being woken. */
#define WAIT_YIELDS 64
#define WAIT_ANNOUNCE (WAIT_YIELD + WAIT_YIELDS)
/* A look at memory that the CPU does not reach may take milliseconds: the wait is shown to others before so many of them. */
#define WAIT_YIELDING 5000000ll
#define WAIT_SLEEP (WAIT_ANNOUNCE + 1)
#define WAIT_SLICE 1000000ll
#define WAIT_SLICES 4u

static struct wake_counter *own_wake_counter(const spmt_comm *comm)
{
	return comm->wake_counters[comm->rank];
}

static int wait_spin(spmt_comm *comm, struct spmtd_pause *p)
{
	cpu_relax();
	if (p->n % SPIN_LOOKS == 0 && !spin_on(comm, &p->begin))
		p->n = WAIT_YIELD;
	return 0;
}

/* From here on the rank counts as a sleeper; the caller looks once more before it sleeps. */
static int wait_announce(spmt_comm *comm, struct spmtd_pause *p)
{
	struct wake_counter *counter = own_wake_counter(comm);

	p->wakes = atomic_load_explicit(&counter->wakes, memory_order_acquire);
	atomic_fetch_add(&counter->sleepers, 1);
#if !defined(__SANITIZE_THREAD__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
	return 0;
}

/* In ns, -1: none. A kernel keeps that of its view, as it does on GPUs, whatever has been set since. */
static int64_t wait_limit(const spmt_comm *comm, const struct spmt_view *kernel)
{
	int64_t ms = comm_timeout(comm);

	if (kernel)
		return kernel->timeout_ns ? (int64_t)kernel->timeout_ns : -1;
	return ms < 0 ? -1 : ms * 1000000;
}

static int wait_sleep(
	spmt_comm *comm, struct spmtd_pause *p, int64_t limit, const struct wait_for *wait)
{
	struct wait_for shown = *wait;
	struct wake_counter *counter = own_wake_counter(comm);
	int64_t slice = WAIT_SLICE * MIN_OF(p->n - WAIT_SLEEP, WAIT_SLICES);
	uint32_t wakes;

	shown.since = p->begin;
	if (wait->kernel)
		waits_call_show(p->begin);
	if (limit >= 0) {
		int64_t left = limit - (process_now() - p->begin);

		if (left <= 0) {
			waits_show(comm, p, &shown);
			waits_give_up(comm, p);
			return SPMT_ERR_TIMEOUT;
		}
		slice = MIN_OF(slice, left);
	}
	waits_show(comm, p, &shown);
	futex_sleep(&counter->wakes, p->wakes, slice);
	wakes = atomic_load_explicit(&counter->wakes, memory_order_acquire);
	if (wakes != p->wakes) /* stores are coming in: short slices again */
		p->n = WAIT_SLEEP;
	p->wakes = wakes;
	return 0;
}

/* Called in a world that was whole; if it breaks, the caller reports the cause. */
static int pause_for(spmt_comm *comm, struct spmtd_pause *p, const struct wait_for *wait,
	const struct spmt_view *kernel)
{
	if (!p->n) {
		p->begin = comm->world->spin_ns ? 0 : process_now();
		p->n = comm->world->spin_ns ? 0 : WAIT_YIELD;
	}
	p->n++;
	if (p->n <= WAIT_YIELD)
		return wait_spin(comm, p);
	if (p->n < WAIT_ANNOUNCE && process_now() - p->begin > WAIT_YIELDING)
		p->n = WAIT_ANNOUNCE;
	if (p->n <= WAIT_ANNOUNCE) {
		sched_yield();
		return 0;
	}
	if (p->n == WAIT_SLEEP)
		return wait_announce(comm, p);
	return wait_sleep(comm, p, wait_limit(comm, kernel), wait);
}

int wait_pause(spmt_comm *comm, struct spmtd_pause *p, const struct wait_for *wait)
{
	if (UNLIKELY(comm_is_broken(comm)))
		return comm_broken(comm, wait->name);
	return pause_for(comm, p, wait, NULL);
}

void wait_end(spmt_comm *comm, struct spmtd_pause *p)
{
	uint64_t ns;

	if (!p->n)
		return;
	if (p->n >= WAIT_SLEEP) {
		atomic_fetch_sub(&own_wake_counter(comm)->sleepers, 1);
		waits_hide(comm, p);
	}
	ns = p->begin ? (uint64_t)(process_now() - p->begin) : 0;
	atomic_fetch_add_explicit(&comm->waits, 1, memory_order_relaxed);
	if (ns > atomic_load_explicit(&comm->longest_ns, memory_order_relaxed))
		atomic_store_explicit(&comm->longest_ns, ns, memory_order_relaxed);
}

/* ---- the same for kernels on the host backend ---------------------------------------------- */

static spmt_comm *comm_of(const struct spmt_view *v)
{
	return ((const struct comm_host *)(const void *)v->host)->comm;
}

/* A kernel leaves a record and no sentence. */
static int kernel_pause(const struct spmt_view *v, struct spmtd_pause *p)
{
	static const struct wait_for wait = { .name = "a kernel", .kernel = true };
	spmt_comm *comm = comm_of(v);

	if (atomic_load_explicit(&comm->control->stop, memory_order_acquire))
		return SPMT_ERR_ABORTED;
	return pause_for(comm, p, &wait, v);
}

static void kernel_resume(const struct spmt_view *v, struct spmtd_pause *p)
{
	wait_end(comm_of(v), p);
}

static void kernel_wake(const struct spmt_view *v, int32_t pe)
{
	wake_stored(comm_of(v)->wake_counters[pe]);
}

/* Records the sentence for whoever synchronises with the stream. On the host backend the world
   breaks at once. */
static void kernel_has_ended(const struct spmt_view *v, int code)
{
	static const char what[] = "work in a stream";
	spmt_comm *comm = comm_of(v);
	int rc;
	KEEPS_SENTENCE;

	comm_look(comm);
	rc = comm_is_broken(comm) ? comm_broken(comm, what) : kernel_looks(comm, what);
	host_stream_blame(rc ? rc : code, status_sentence());
}

#define PEER_LINGER_NS 10000000000ll /* then the peer's process is dead */
#define PEER_DEAD_NS 100000000ll /* .. as it is known to be: its threads may run on for a moment */

static int kernel_pause_broken(const struct spmt_view *v, struct spmtd_pause *p)
{
	struct timespec slice = { .tv_nsec = 100000 };
	const spmt_comm *comm = comm_of(v);
	int64_t most =
		p->wakes && !comm_is_alive(comm, (int)p->wakes - 1) ? PEER_DEAD_NS : PEER_LINGER_NS;

	if (!p->n++)
		p->begin = process_now();
	if (p->n < WAIT_YIELDS)
		sched_yield();
	else
		nanosleep(&slice, NULL);
	return process_now() - p->begin > most;
}

const struct spmtd_host wait_callbacks = {
	.pause = kernel_pause,
	.resume = kernel_resume,
	.wake = kernel_wake,
	.ended = kernel_has_ended,
	.pause_broken = kernel_pause_broken,
	.posted = fifo_posted,
};
