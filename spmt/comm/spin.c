/* SPDX-License-Identifier: MIT */
/*
 * Spinning where there is a CPU for every rank. The scheduler may still leave two ranks on one
 * CPU for a second, because it hardly moves threads that alternate. Each would then spin its
 * whole time before the other could do what it waits for.
 */
#include <sched.h>

#include "comm.h"
#include "spin.h"
#include "src/base/futex.h"
#include "src/base/process.h"

#define SPIN_ALONE 4000ll     /* ns without a yield, which takes some 300 */
#define SPIN_PARTED 2000000ll /* ns from one sleep to the next, which takes some 60000 */

/* Was another rank last seen on this CPU? */
static bool spin_shared(const spmt_comm *comm)
{
	const struct control_row *rows = comm->control->rows;
	int cpu = sched_getcpu();

	for (int i = 0; i < comm->nranks; i++)
		if (i != comm->rank &&
			atomic_load_explicit(&rows[i].cpu, memory_order_relaxed) == cpu)
			return true;
	return false;
}

/* When a thread wakes, the scheduler looks for an idle CPU. If there is none, yields have to do. */
static void spin_part(spmt_comm *comm, int64_t now)
{
	_Atomic uint32_t nobody = 0;

	if (now - atomic_load_explicit(&comm->parted, memory_order_relaxed) < SPIN_PARTED) {
		sched_yield();
		return;
	}
	atomic_store_explicit(&comm->parted, now, memory_order_relaxed);
	futex_sleep(&nobody, 0, 1);
}

bool spin_on(spmt_comm *comm, int64_t *begin)
{
	int64_t now = process_now();

	if (!*begin) {
		*begin = now;
		spin_seen(comm);
		if (spin_shared(comm))
			spin_part(comm, now);
		return true;
	}
	if (now - *begin > comm->world->spin_ns)
		return false;
	if (now - *begin > SPIN_ALONE)
		sched_yield();
	return true;
}

void spin_seen(spmt_comm *comm)
{
	atomic_store_explicit(
		&comm->control->rows[comm->rank].cpu, sched_getcpu(), memory_order_relaxed);
}
