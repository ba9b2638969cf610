/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "broken.h"
#include "comm.h"
#include "record.h"
#include "spin.h"
#include "src/base/futex.h"
#include "src/base/process.h"
#include "src/base/tsan.h"
#include "src/kernels/coll/table.h"

/* What is compared in a meeting, in words: the function, and what its keys are called. */
static const struct {
	const char *name, *key[3];
} ops[] = {
	[MEET_INIT] = { "spmt_init", { "heap_size", "backend", "SPMT_CHECK" } },
	[MEET_OPENED] = { "spmt_init", { "SPMT_COLL", NULL, NULL } },
	[MEET_SHARED] = { "spmt_init", { NULL, NULL, NULL } },
	[MEET_SEEN] = { "spmt_init", { NULL, NULL, NULL } },
	[MEET_LINKED] = { "spmt_init", { NULL, NULL, NULL } },
	[MEET_SPLIT] = { "spmt_split", { NULL, NULL, NULL } },
	[MEET_SPLIT_MADE] = { "spmt_split", { NULL, NULL, NULL } },
	[MEET_SPLIT_LINKED] = { "spmt_split", { NULL, NULL, NULL } },
	[MEET_FINALIZE] = { "spmt_finalize", { NULL, NULL, NULL } },
	[MEET_BARRIER] = { "spmt_barrier", { NULL, NULL, NULL } },
	[MEET_SYNC] = { "spmt_sync", { NULL, NULL, NULL } },
	[MEET_MALLOC] = { "spmt_malloc", { "size", NULL, NULL } },
	[MEET_CALLOC] = { "spmt_calloc", { "count", "size", NULL } },
	[MEET_ALIGNED_ALLOC] = { "spmt_aligned_alloc", { "alignment", "size", NULL } },
	[MEET_FREE] = { "spmt_free", { "ptr (as an offset)", NULL, NULL } },
	[MEET_FREED] = { "spmt_free", { NULL, NULL, NULL } },
	[MEET_REGISTER] = { "spmt_register", { NULL, NULL, NULL } },
	[MEET_NAMED] = { "spmt_register", { NULL, NULL, NULL } },
	[MEET_RELEASED] = { "spmt_deregister", { NULL, NULL, NULL } },
	[MEET_DETACHED] = { "spmt_finalize", { NULL, NULL, NULL } },
	[MEET_DEREGISTER] = { "spmt_deregister", { "mem (by order of registration)", NULL, NULL } },
};

const char *meet_name(uint32_t op)
{
	return op < ARRAY_SIZE(ops) && ops[op].name ? ops[op].name : "an unknown function";
}

static const struct meet_record *brought(const struct control *control, int rank, uint64_t epoch)
{
	return &control->cells[rank].record[epoch & 1];
}

/* What the verdict was made of, of another process perhaps: loaded once. */
static struct meet_record taken(const spmt_comm *comm, int rank)
{
	const struct meet_record *r = brought(comm->control, rank, comm->epoch);

	return (struct meet_record){ .op = __atomic_load_n(&r->op, __ATOMIC_RELAXED),
		.status = __atomic_load_n(&r->status, __ATOMIC_RELAXED),
		.key = { __atomic_load_n(&r->key[0], __ATOMIC_RELAXED),
			__atomic_load_n(&r->key[1], __ATOMIC_RELAXED),
			__atomic_load_n(&r->key[2], __ATOMIC_RELAXED) } };
}

uint64_t meet_payload(const spmt_comm *comm, int rank, int i)
{
	return __atomic_load_n(
		&brought(comm->control, rank, comm->epoch)->payload[i], __ATOMIC_RELAXED);
}

/* The place of the sentence, which a rank that has failed alone has. */
void meet_attach(spmt_comm *comm, const void *data, size_t size)
{
	memcpy(comm->control->cells[comm->rank].sentence[(comm->epoch + 1) & 1], data, size);
}

const void *meet_attached(const spmt_comm *comm, int rank)
{
	return comm->control->cells[rank].sentence[comm->epoch & 1];
}

/* ---- the verdict, by the last to arrive ---------------------------------------------------- */

static bool same_call(const struct meet_record *a, const struct meet_record *b)
{
	return a->op == b->op && a->key[0] == b->key[0] && a->key[1] == b->key[1] &&
		a->key[2] == b->key[2];
}

/*
 * Another function is a difference; then a bad argument, whose sentence says more than the
 * difference that it makes; then other arguments, which are often why a rank failed; then the
 * failure.
 */
static enum meet_verdict judge_epoch(const struct control *control, int nranks, uint64_t epoch)
{
	const struct meet_record *first = brought(control, 0, epoch);
	bool differs = false, failed = false, invalid = false;

	for (int i = 0; i < nranks; i++) {
		const struct meet_record *r = brought(control, i, epoch);

		if (r->op != first->op)
			return MEET_DIFFERS;
		differs |= !same_call(first, r);
		failed |= r->status != 0;
		invalid |= r->status == -EINVAL;
	}
	if (invalid)
		return MEET_FAILED;
	return differs ? MEET_DIFFERS : failed ? MEET_FAILED : MEET_AGREED;
}

/* ---- words for what went wrong ------------------------------------------------------------- */

/* Which part of the call differs: -1 the function, else the key. */
static int differing_part(const struct meet_record *a, const struct meet_record *b)
{
	if (a->op != b->op)
		return -1;
	for (int k = 0; k < 3; k++)
		if (a->key[k] != b->key[k])
			return k;
	return -1;
}

static void add_part(struct text *t, const struct meet_record *r, int part)
{
	const struct backend *backend = part == 1 ? device_backend(r->key[part]) : NULL;

	if (part < 0)
		text_add(t, "%s", meet_name(r->op));
	else if (r->op == MEET_INIT && backend)
		text_add(t, "%s", backend->name);
	else if (r->op == MEET_FREE && r->key[part] == MEET_FREE_NULL)
		text_add(t, "NULL");
	else if (r->op == MEET_OPENED && r->key[part] <= COLL_ROWS)
		text_add(t, "%s", r->key[part] ? coll_rows[r->key[part] - 1].name : "unset");
	else
		text_add(t, "%llu", (unsigned long long)r->key[part]);
}

/* The rank whose call most ranks made; of several the lowest. */
static int common_rank(const spmt_comm *comm)
{
	const struct control *control = comm->control;
	int best = 0, most = 0;

	for (int i = 0; i < comm->nranks; i++) {
		int same = 0;

		for (int j = 0; j < comm->nranks; j++)
			same += same_call(
				brought(control, i, comm->epoch), brought(control, j, comm->epoch));
		if (same > most) {
			most = same;
			best = i;
		}
	}
	return best;
}

/* What the ranks passed there, in words. */
static const char *part_name(uint32_t op, int part)
{
	const char *name = part >= 0 && op < ARRAY_SIZE(ops) ? ops[op].key[part] : NULL;

	return part < 0 ? "the function called" : name ? name : "an argument";
}

/* "spmt_malloc: size differs: rank 3 passed 128, most ranks 64; differing: 3". False: nothing differs. */
static bool say_difference(const spmt_comm *comm, struct text *t)
{
	int usual = common_rank(comm), first = -1;
	const struct meet_record common = taken(comm, usual);

	for (int i = 0; i < comm->nranks; i++) {
		const struct meet_record odd = taken(comm, i);
		int part = differing_part(&common, &odd);

		if (same_call(&common, &odd))
			continue;
		if (first < 0) {
			text_add(t, "%s: %s differs: rank %d passed ", meet_name(common.op),
				part_name(common.op, part), i);
			add_part(t, &odd, part);
			text_add(t, ", rank %d passed ", usual);
			add_part(t, &common, part);
			text_add(t, "; differing from most ranks:");
		}
		text_add(t, "%s %d", first < 0 ? "" : ",", i);
		first = i;
	}
	return first >= 0;
}

static int report_difference(const spmt_comm *comm, const char *what)
{
	struct text t = { .used = 0 };

	return say_difference(comm, &t) ? fail_with(SPMT_ERR_MISMATCH, t.bytes)
					: comm_spoiled(comm, what);
}

static int report_failure(const spmt_comm *comm, const char *what)
{
	char sentence[STATUS_SENTENCE];

	for (int i = 0; i < comm->nranks; i++) {
		int status = taken(comm, i).status;

		if (!status)
			continue;
		memcpy(sentence, comm->control->cells[i].sentence[comm->epoch & 1],
			sizeof(sentence));
		sentence[sizeof(sentence) - 1] = '\0';
		return status < 0 ? fail_with(status, sentence) : comm_spoiled(comm, what);
	}
	return comm_spoiled(comm, what);
}

/* "spmt_barrier: rank 6 waits in spmt_signal_wait; 2 of 8 ranks missing after 5.0 s: 3, 6" */
static void list_missing(const spmt_comm *comm, int64_t waited_ns, struct text *t)
{
	const struct control *control = comm->control;
	struct waits_text waits = { .used = 0 };
	int64_t since = process_now() - waited_ns;
	int missing = 0;

	for (int i = 0; i < comm->nranks; i++) {
		if (atomic_load(&control->cells[i].arrived) >= comm->epoch)
			continue;
		missing++;
		waits_add(&waits, comm, i, since);
	}
	text_add(t,
		"%s: %s%d of %d ranks missing after %.1f s:", meet_name(taken(comm, comm->rank).op),
		waits_said(&waits), missing, comm->nranks, (double)waited_ns / 1e9);
	for (int i = 0, comma = 0; i < comm->nranks; i++)
		if (atomic_load(&control->cells[i].arrived) < comm->epoch)
			text_add(t, "%s %d", comma++ ? "," : "", i);
}

/* ---- meeting ------------------------------------------------------------------------------- */

enum { GATE_YIELDS = 32, GATE_LOOKS = 256, GATE_LOOK_NS = 20000000 };

/* The deadline has passed: ends the meeting for all, unless it was completed meanwhile. */
static void give_up(spmt_comm *comm, int64_t waited_ns)
{
	uint64_t open = 2 * (comm->epoch - 1);
	struct text t = { .used = 0 };

	list_missing(comm, waited_ns, &t);
	if (atomic_compare_exchange_strong(&comm->control->gate, &open, open | GATE_BROKEN))
		comm_break(comm, SPMT_ERR_TIMEOUT, t.bytes);
}

/* Sleeps until the gate moves from `open` or the deadline. */
static void gate_sleep(spmt_comm *comm, uint64_t open, int64_t begin)
{
	struct control *control = comm->control;
	int64_t limit = comm_timeout(comm);

	atomic_fetch_add(&control->gate_sleepers, 1);
	while (atomic_load(&control->gate) == open) {
		int64_t waited = process_now() - begin;
		int64_t left = limit < 0 ? -1 : limit * 1000000 - waited;

		if (limit >= 0 && left <= 0) {
			give_up(comm, waited);
			break;
		}
		waits_show(comm, &open,
			&(struct wait_for){ .name = meet_name(taken(comm, comm->rank).op),
				.since = begin,
				.epoch = comm->epoch });
		/* A kernel of a GPU wakes nobody. */
		if (!comm_cpu_access(comm)) {
			left = left < 0 ? GATE_LOOK_NS : MIN_OF(left, GATE_LOOK_NS);
			comm_look(comm);
		}
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
		const struct cell *c = &control->cells[i];

		if (atomic_load_explicit(&c->arrived, memory_order_relaxed) < comm->epoch &&
			atomic_load_explicit(&c->cpu, memory_order_relaxed) == cpu)
			return true;
	}
	return false;
}

/* Some microseconds: what the ranks of another CPU take to come one after the other. */
static void gate_look(const _Atomic uint64_t *gate, uint64_t open)
{
	for (int i = 0; i < GATE_LOOKS; i++) {
		if (atomic_load_explicit(gate, memory_order_acquire) != open)
			return;
		cpu_relax();
	}
}

/*
 * Gives the CPU to ranks that are still to come. When the last of this CPU's has come, yields would
 * only pass it round among those that wait; and as each yield costs a thread its turn later, ranks that
 * yield more often than others come late to the next meeting: so this one looks instead, for a while.
 */
static void gate_yield(const spmt_comm *comm, const _Atomic uint64_t *gate, uint64_t open)
{
	for (int i = 0; i < GATE_YIELDS; i++) {
		if (atomic_load_explicit(gate, memory_order_acquire) != open)
			return;
		if (i < GATE_YIELDS / 4 && !wanted_here(comm))
			gate_look(gate, open);
		else
			sched_yield();
	}
}

/* Until the gate is no longer `open`: spins where the ranks fit the CPUs, yields, then sleeps.
   Returns ns waited, roughly. */
static int64_t gate_wait(spmt_comm *comm, uint64_t open)
{
	_Atomic uint64_t *gate = &comm->control->gate;
	int64_t begin = 0;

	for (int i = 1; comm->world->spin_ns; i++) {
		if (atomic_load_explicit(gate, memory_order_acquire) != open)
			return begin ? process_now() - begin : 0;
		cpu_relax();
		if (i % SPIN_LOOKS == 0 && !spin_on(comm, &begin))
			break;
	}
	if (!begin)
		begin = process_now();
	gate_yield(comm, gate, open);
	if (atomic_load_explicit(gate, memory_order_acquire) == open)
		gate_sleep(comm, open, begin);
	return process_now() - begin;
}

static void gate_open(struct control *control, int nranks, uint64_t epoch)
{
	uint64_t open = 2 * (epoch - 1);

	atomic_store_explicit(&control->verdict[epoch & 1], judge_epoch(control, nranks, epoch),
		memory_order_relaxed);
	if (atomic_compare_exchange_strong(&control->gate, &open, 2 * epoch) &&
		atomic_load(&control->gate_sleepers))
		futex_wake_all(control_gate_word(control));
}

static void count_wait(spmt_comm *comm, int64_t ns)
{
	uint64_t waits = atomic_load_explicit(&comm->waits, memory_order_relaxed);

	atomic_store_explicit(&comm->waits, waits + 1, memory_order_relaxed);
	if ((uint64_t)ns > atomic_load_explicit(&comm->longest_ns, memory_order_relaxed))
		atomic_store_explicit(&comm->longest_ns, (uint64_t)ns, memory_order_relaxed);
}

/* What orders two ranks of this process may have happened in the process that opened the gate, where
   ThreadSanitizer does not look. The arrivals that led to it are here. */
static void gate_passed(const struct control *control, int nranks)
{
	for (int i = 0; SANITIZE_THREAD && i < nranks; i++)
		(void)atomic_load_explicit(&control->cells[i].arrived, memory_order_acquire);
}

int meet(spmt_comm *comm, const struct meet_record *mine)
{
	struct control *control = comm->control;
	struct cell *cell = &control->cells[comm->rank];
	uint64_t epoch = ++comm->epoch;

	cell->record[epoch & 1] = *mine;
	if (UNLIKELY(mine->status))
		memcpy(cell->sentence[epoch & 1], status_sentence(),
			strnlen(status_sentence(), STATUS_SENTENCE - 1) + 1);
	spin_seen(comm);
	tsan_release(&control->verdict[epoch & 1]);
	atomic_store_explicit(&cell->arrived, epoch, memory_order_release);
	if (atomic_fetch_add(&control->arrived, 1) + 1 == epoch * (uint64_t)comm->nranks)
		gate_open(control, comm->nranks, epoch);
	else
		count_wait(comm, gate_wait(comm, 2 * (epoch - 1)));
	/* It is open now, or open and then broken: the next meeting needs this rank. Else it is broken, or nobody's word. */
	if (UNLIKELY(atomic_load_explicit(&control->gate, memory_order_acquire) - 2 * epoch > 1))
		return comm_spoiled(comm, meet_name(mine->op));
	gate_passed(control, comm->nranks);
	tsan_acquire(&control->verdict[epoch & 1]);
	switch (atomic_load_explicit(&control->verdict[epoch & 1], memory_order_relaxed)) {
	case MEET_AGREED:
		return 0;
	case MEET_FAILED:
		return report_failure(comm, meet_name(mine->op));
	default:
		return report_difference(comm, meet_name(mine->op));
	}
}
