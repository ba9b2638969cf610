/* SPDX-License-Identifier: MIT */
/*
 * Threads that help the one of row `engine`: to queue a copy takes the host two microseconds and more, and all ranks' copies are to begin at
 * once. Each queues one rank's while the thread that has found all ranks there queues rank 0's and waits for them. They stay awake as long as
 * that one does, so they are there only where CPUs are plenty; without them, and while one of them sleeps, it queues all by itself.
 */
#include <sched.h>
#include <sys/prctl.h>

#include "engine_state.h"
#include "src/base/futex.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define HELP_CPUS 4 /* a rank, at least */

struct engine_helper {
	_Alignas(CACHE_LINE) _Atomic uint32_t done; /* the turn up to which it has helped */
	struct engine_meeting *m;
	pthread_t thread;
	int rank, rc;
	struct status_saved failure; /* of rc */
};

struct engine_help {
	_Alignas(CACHE_LINE) _Atomic uint32_t turn;
	_Atomic uint32_t asleep;
	_Atomic bool ending;
	int n;
	struct engine_helper helpers[];
};

/* ---- a helper ---------------------------------------------------------------------------------------------- */

/* All that a rank gives. */
static int send_rank(const struct engine_meeting *m, int r)
{
	int rc = 0;

	for (int step = 1; step <= m->nranks && !rc; step++)
		rc = engine_send(m, r, step);
	return rc;
}

static void help_once(struct engine_helper *h, uint32_t turn)
{
	h->rc = send_rank(h->m, h->rank);
	if (h->rc)
		status_save(&h->failure);
	atomic_store_explicit(&h->done, turn, memory_order_release);
}

/* Until there is a turn or somebody rings; whoever gives a turn sees who sleeps, or is seen. */
static void help_sleep(struct engine_help *help, struct engine_meeting *m, uint32_t seen)
{
	uint32_t wakes = atomic_load(&m->wakes);

	atomic_fetch_add(&help->asleep, 1);
	if (atomic_load(&help->turn) == seen && !atomic_load(&help->ending))
		futex_sleep(&m->wakes, wakes, -1);
	atomic_fetch_sub(&help->asleep, 1);
}

static void *help_main(void *arg)
{
	struct engine_helper *h = arg;
	struct engine_help *help = h->m->help;
	uint32_t seen = 0;
	int64_t since = process_now();

	pthread_setname_np(pthread_self(), "spmt-engine-of");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	prctl(PR_SET_TIMERSLACK, ENGINE_SLACK_NS, 0, 0, 0);
	while (!atomic_load(&help->ending)) {
		uint32_t turn = atomic_load_explicit(&help->turn, memory_order_acquire);

		if (turn != seen) {
			help_once(h, turn);
			seen = turn;
			since = process_now();
		} else if (process_now() - since < ENGINE_AWAKE_NS) {
			sched_yield();
		} else {
			help_sleep(help, h->m, seen);
			since = process_now();
		}
	}
	return NULL;
}

/* ---- whom they help ------------------------------------------------------------------------------------------ */

void engine_help_begin(struct engine_meeting *m)
{
	size_t n = (size_t)m->nranks - 1;
	struct engine_help *help;

	if (m->backend->traits & DEVICE_HOST_ACCESS || process_cpus() < HELP_CPUS * m->nranks)
		return;
	help = mem_aligned(
		CACHE_LINE, align_up(sizeof(*help) + n * sizeof(*help->helpers), CACHE_LINE));
	if (!help)
		return;
	m->help = help;
	for (; help->n < (int)n; help->n++) {
		struct engine_helper *h = &help->helpers[help->n];

		h->m = m;
		h->rank = help->n + 1;
		if (process_thread(&h->thread, 0, help_main, h))
			break;
	}
}

/* Of ranks from `first` on, by this thread alone: of each to another one, then to the next. */
static int send_alone(const struct engine_meeting *m, int first)
{
	int rc = 0;

	for (int step = 1; step <= m->nranks && !rc; step++)
		for (int r = first; r < m->nranks && !rc; r++)
			rc = engine_send(m, r, step);
	return rc;
}

/* The first failure in the order of ranks. */
int engine_send_all(struct engine_meeting *m)
{
	struct engine_help *help = m->help;
	uint32_t turn;
	int rc;

	if (!help || !help->n || atomic_load(&help->asleep))
		return send_alone(m, 0);
	turn = atomic_fetch_add(&help->turn, 1) + 1;
	if (atomic_load(&help->asleep))
		engine_ring(m);
	rc = send_rank(m, 0);
	for (int i = 0; i < help->n; i++) {
		struct engine_helper *h = &help->helpers[i];

		for (unsigned polls = 1;
			atomic_load_explicit(&h->done, memory_order_acquire) != turn; polls++)
			if (polls % 1024)
				cpu_relax();
			else
				sched_yield();
		if (h->rc && !rc) {
			rc = h->rc;
			status_restore(&h->failure);
		}
	}
	return rc ? rc : send_alone(m, help->n + 1);
}

void engine_help_end(struct engine_meeting *m)
{
	struct engine_help *help = m->help;

	if (!help)
		return;
	atomic_store(&help->ending, true);
	engine_ring(m);
	for (int i = 0; i < help->n; i++)
		pthread_join(help->helpers[i].thread, NULL);
	mem_free(help);
	m->help = NULL;
}
