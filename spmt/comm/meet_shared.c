/* SPDX-License-Identifier: MIT */
/*
 * Meeting in shared memory, of one process or of several of a node: every rank writes its record into its own row, the last to arrive
 * reads all of them and moves the gate.
 */
#include <sched.h>
#include <string.h>

#include "comm.h"
#include "record.h"
#include "spin.h"
#include "src/base/futex.h"
#include "src/base/process.h"
#include "src/base/tsan.h"
#include "waits.h"

static struct brought brought_to(const struct control *control, uint64_t epoch)
{
	const struct control_row *first = &control->rows[0];

	return (struct brought){ &first->record[epoch & 1], first->sentence[epoch & 1],
		sizeof(*first) };
}

static struct brought shared_brought(const spmt_comm *comm)
{
	return brought_to(comm->control, comm->epoch);
}

static struct control_row *own_cell(const spmt_comm *comm)
{
	return &comm->control->rows[comm->rank];
}

static const struct meet_record *own_record(const spmt_comm *comm)
{
	return &own_cell(comm)->record[comm->epoch & 1];
}

/* Uses the sentence's place, which only a failed rank needs. */
static void shared_attach(spmt_comm *comm, const void *data, size_t size)
{
	memcpy(own_cell(comm)->sentence[(comm->epoch + 1) & 1], data, size);
}

static enum meet_standing shared_standing(const spmt_comm *comm, int rank)
{
	return atomic_load(&comm->control->rows[rank].arrived) >= comm->epoch ? MEET_COME
									      : MEET_MISSING;
}

/* ---- the gate ------------------------------------------------------------------------------ */

enum {
	GATE_YIELDS = 32,
	GATE_LOOKS = 256,
	GATE_LOOK_NS = 20000000,
	STEP_NS = 50000,
	STEP_MOST = 1000000
};

static bool all_near(const spmt_comm *comm)
{
	for (int r = 0; r < comm->nranks; r++)
		if (!meet_is_near(comm, r))
			return false;
	return true;
}

/* The deadline has passed: ends the meeting for all, unless it was completed meanwhile. The last to come may just be about to open it,
   or stopped there. */
static void give_up(spmt_comm *comm, int64_t waited_ns)
{
	uint64_t open = 2 * (comm->epoch - 1);
	struct cause cause;

	if (!meet_missed(comm, waited_ns, &cause) && all_near(comm))
		gate_open(comm->control, comm->nranks, comm->epoch);
	else if (atomic_compare_exchange_strong(&comm->control->gate, &open, open | GATE_BROKEN))
		comm_break(comm, &cause);
}

/* How much of `left` to sleep; what the hooks wait for wakes nobody. */
static int64_t gate_hooked(
	spmt_comm *comm, const struct gate_hooks *hooks, int64_t waited, int64_t left)
{
	int64_t most = GATE_LOOK_NS;

	if (hooks->step(comm))
		most = MIN_OF(MAX_OF(waited / 8, STEP_NS), STEP_MOST);
	if (waited > GATE_LOOK_NS)
		hooks->look(comm);
	return left < 0 ? most : MIN_OF(left, most);
}

/* Sleeps until the gate moves from `open` or the deadline. */
static void gate_sleep(
	spmt_comm *comm, uint64_t open, int64_t begin, const struct gate_hooks *hooks)
{
	struct control *control = comm->control;
	int64_t limit = comm_timeout(comm);

	atomic_fetch_add(&control->gate_sleepers, 1);
	while (atomic_load(&control->gate) == open) {
		int64_t waited = process_now() - begin;
		int64_t left = limit < 0 ? -1 : limit * 1000000 - waited;

		if (limit >= 0 && left <= 0) {
			if (hooks)
				hooks->give_up(comm);
			give_up(comm, waited);
			break;
		}
		waits_show(comm, &open,
			&(struct wait_for){ .name = meet_name(own_record(comm)->op),
				.since = begin,
				.epoch = comm->epoch });
		/* A kernel of a GPU wakes nobody. */
		if (!comm_cpu_access(comm)) {
			left = left < 0 ? GATE_LOOK_NS : MIN_OF(left, GATE_LOOK_NS);
			comm_look(comm);
		}
		if (hooks)
			left = gate_hooked(comm, hooks, waited, left);
		futex_sleep(control_gate_word(control), (uint32_t)open, left);
	}
	waits_hide(comm, &open);
	atomic_fetch_sub(&control->gate_sleepers, 1);
}

/* Ranks outnumber CPUs: may one that is missing need this CPU? Not if all were last seen on others. */
static bool wanted_here(const spmt_comm *comm)
{
	const struct control *control = comm->control;
	uint64_t there = atomic_load_explicit(&control->arrived, memory_order_relaxed);
	int cpu;

	if (comm->epoch * (uint64_t)comm->nranks - there > (uint64_t)comm->world->cpus)
		return true;
	cpu = sched_getcpu();
	for (int i = 0; i < comm->nranks; i++) {
		const struct control_row *c = &control->rows[i];

		if (atomic_load_explicit(&c->arrived, memory_order_relaxed) < comm->epoch &&
			atomic_load_explicit(&c->cpu, memory_order_relaxed) == cpu)
			return true;
	}
	return false;
}

/* A few microseconds: the time in which ranks of another CPU come one after the other. */
static void gate_look(const _Atomic uint64_t *gate, uint64_t open)
{
	for (int i = 0; i < GATE_LOOKS; i++) {
		if (atomic_load_explicit(gate, memory_order_acquire) != open)
			return;
		cpu_relax();
	}
}

/*
 * Gives the CPU to ranks that are still to come. Once the last rank of this CPU has come, yields would
 * only pass the CPU round among waiters; and as each yield costs a thread a later turn, ranks that yield
 * more often than others come late to the next meeting: so this one polls instead, for a while.
 */
static void gate_yield(spmt_comm *comm, const _Atomic uint64_t *gate, uint64_t open,
	const struct gate_hooks *hooks)
{
	for (int i = 0; i < GATE_YIELDS; i++) {
		if (atomic_load_explicit(gate, memory_order_acquire) != open)
			return;
		if (!(hooks && hooks->step(comm)) && i < GATE_YIELDS / 4 && !wanted_here(comm))
			gate_look(gate, open);
		else
			sched_yield();
	}
}

/* Until the gate opens: spins where the ranks fit the CPUs, yields, then sleeps.
   Returns ns waited, roughly. */
int64_t gate_wait(spmt_comm *comm, const struct gate_hooks *hooks)
{
	_Atomic uint64_t *gate = &comm->control->gate;
	uint64_t open = 2 * (comm->epoch - 1);
	int64_t begin = 0;

	for (int i = 1; comm->world->spin_ns; i++) {
		if (atomic_load_explicit(gate, memory_order_acquire) != open)
			return begin ? process_now() - begin : 0;
		cpu_relax();
		if (i % SPIN_LOOKS)
			continue;
		if (hooks)
			hooks->step(comm);
		if (!spin_on(comm, &begin))
			break;
	}
	if (!begin)
		begin = process_now();
	gate_yield(comm, gate, open, hooks);
	if (atomic_load_explicit(gate, memory_order_acquire) == open)
		gate_sleep(comm, open, begin, hooks);
	return process_now() - begin;
}

void gate_open(struct control *control, int nranks, uint64_t epoch)
{
	const struct brought all = brought_to(control, epoch);
	uint64_t open = 2 * (epoch - 1);

	atomic_store_explicit(
		&control->verdict[epoch & 1], meet_judge(&all, nranks), memory_order_relaxed);
	if (atomic_compare_exchange_strong(&control->gate, &open, 2 * epoch) &&
		atomic_load(&control->gate_sleepers))
		futex_wake_all(control_gate_word(control));
}

/* What orders two ranks of this process may have happened in the process that opened the gate, where
   ThreadSanitizer does not look. The arrivals that led to it are here. */
static void gate_passed(const struct control *control, int nranks)
{
	for (int i = 0; SANITIZE_THREAD && i < nranks; i++)
		(void)atomic_load_explicit(&control->rows[i].arrived, memory_order_acquire);
}

/* ---- the row ------------------------------------------------------------------------------- */

bool gate_arrive(spmt_comm *comm, const struct meet_record *mine, int n)
{
	struct control *control = comm->control;
	struct control_row *row = own_cell(comm);
	uint64_t epoch = comm->epoch;

	row->record[epoch & 1] = *mine;
	spin_seen(comm);
	tsan_release(&control->verdict[epoch & 1]);
	atomic_store_explicit(&row->arrived, epoch, memory_order_release);
	return atomic_fetch_add(&control->arrived, 1) + 1 == epoch * (uint64_t)n;
}

static bool shared_bring(spmt_comm *comm, const struct meet_record *mine)
{
	if (!gate_arrive(comm, mine, comm->nranks))
		return false;
	gate_open(comm->control, comm->nranks, comm->epoch);
	return true;
}

static int64_t shared_wait(spmt_comm *comm)
{
	return gate_wait(comm, NULL);
}

static enum meet_verdict shared_verdict(const spmt_comm *comm)
{
	struct control *control = comm->control;
	uint64_t epoch = comm->epoch;

	/* The gate is open, or was opened and then broken: the next meeting needs this rank. Else it is broken, or garbage. */
	if (UNLIKELY(atomic_load_explicit(&control->gate, memory_order_acquire) - 2 * epoch > 1))
		return MEET_BROKEN;
	gate_passed(control, comm->nranks);
	tsan_acquire(&control->verdict[epoch & 1]);
	return (enum meet_verdict)atomic_load_explicit(
		&control->verdict[epoch & 1], memory_order_relaxed);
}

const struct meeting_ops meeting_shared = {
	.name = "shared memory",
	.attach = shared_attach,
	.bring = shared_bring,
	.wait = shared_wait,
	.verdict = shared_verdict,
	.standing = shared_standing,
	.brought = shared_brought,
};
