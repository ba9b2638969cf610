/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "broken.h"
#include "comm.h"
#include "gather.h"
#include "src/base/process.h"
#include "src/kernels/coll/table.h"
#include "waits.h"

/* What is compared in a meeting, in words: the function, and what its keys are called. */
static const struct {
	const char *name, *key[3];
} ops[] = {
	[MEET_INIT] = { "spmt_init", { "heap_size", "backend", "SPMT_CHECK" } },
	[MEET_OPENED] = { "spmt_init", { "SPMT_COLL", "SPMT_COLL's plans (folded)", NULL } },
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
	[MEET_PLAN] = { "spmt_plan_begin",
		{ "plan", "an operation of the plan (spmt_plan_write shows them)", "max_bytes" } },
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

/* A record behind the verdict, perhaps another process's: loaded once. */
static struct meet_record taken(const spmt_comm *comm, int rank)
{
	const struct brought all = comm->meeting->brought(comm);
	const struct meet_record *r = brought_record(&all, rank);

	return (struct meet_record){ .op = __atomic_load_n(&r->op, __ATOMIC_RELAXED),
		.status = __atomic_load_n(&r->status, __ATOMIC_RELAXED),
		.key = { __atomic_load_n(&r->key[0], __ATOMIC_RELAXED),
			__atomic_load_n(&r->key[1], __ATOMIC_RELAXED),
			__atomic_load_n(&r->key[2], __ATOMIC_RELAXED) } };
}

uint64_t meet_payload(const spmt_comm *comm, int rank, int i)
{
	const struct brought all = comm->meeting->brought(comm);

	return __atomic_load_n(&brought_record(&all, rank)->payload[i], __ATOMIC_RELAXED);
}

void meet_attach(spmt_comm *comm, const void *data, size_t size)
{
	comm->meeting->attach(comm, data, size);
}

const void *meet_attached(const spmt_comm *comm, int rank)
{
	const struct brought all = comm->meeting->brought(comm);

	return all.attached + (size_t)rank * all.stride;
}

/* ---- the verdict ---------------------------------------------------------------------------- */

static bool same_call(const struct meet_record *a, const struct meet_record *b)
{
	return a->op == b->op && a->key[0] == b->key[0] && a->key[1] == b->key[1] &&
		a->key[2] == b->key[2];
}

/*
 * In this order: different functions; a bad argument, whose sentence says more than the
 * difference it causes; different arguments, which are often why a rank failed; the failure.
 */
enum meet_verdict meet_judge(const struct brought *all, int nranks)
{
	const struct meet_record *first = all->records;
	bool differs = false, failed = false, invalid = false;

	for (int i = 0; i < nranks; i++) {
		const struct meet_record *r = brought_record(all, i);

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

/* Perhaps another process's, which may be writing it. */
static const char *attached_words(const spmt_comm *comm, int rank, char plan[MEET_PLAN_WORDS])
{
	memcpy(plan, meet_attached(comm, rank), MEET_PLAN_WORDS);
	plan[MEET_PLAN_WORDS - 1] = '\0';
	return plan;
}

static void add_part(
	const spmt_comm *comm, int rank, const struct meet_record *r, int part, struct text *t)
{
	const struct backend *backend = part == 1 ? device_backend(r->key[part]) : NULL;
	char plan[MEET_PLAN_WORDS] = "";

	if (part < 0)
		text_add(t, "%s", meet_name(r->op));
	else if (r->op == MEET_INIT && backend)
		text_add(t, "%s", backend->name);
	else if (r->op == MEET_FREE && r->key[part] == MEET_FREE_NULL)
		text_add(t, "NULL");
	else if (r->op == MEET_PLAN && part < 2 && r->status)
		text_add(t, "none that could be begun");
	else if (r->op == MEET_PLAN && part < 2)
		text_add(t, "%s", attached_words(comm, rank, plan));
	else if (r->op == MEET_OPENED && part == 1)
		text_add(t, r->key[part] ? "%016llx" : "none", (unsigned long long)r->key[part]);
	else if (r->op == MEET_OPENED && r->key[part] <= COLL_ROWS)
		text_add(t, "%s", r->key[part] ? coll_rows[r->key[part] - 1].name : "no algorithm");
	else
		text_add(t, "%llu", (unsigned long long)r->key[part]);
}

/* The rank whose call is the most common; the lowest of several. */
static int common_rank(const spmt_comm *comm)
{
	const struct brought all = comm->meeting->brought(comm);
	int best = 0, most = 0;

	for (int i = 0; i < comm->nranks; i++) {
		int same = 0;

		for (int j = 0; j < comm->nranks; j++)
			same += same_call(brought_record(&all, i), brought_record(&all, j));
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
			add_part(comm, i, &odd, part, t);
			text_add(t, ", rank %d passed ", usual);
			add_part(comm, usual, &common, part, t);
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

	return say_difference(comm, &t) ? fail_with_call(SPMT_ERR_MISMATCH, what, t.bytes)
					: comm_spoiled(comm, what);
}

static bool one_finalizes(const spmt_comm *comm)
{
	const struct brought all = comm->meeting->brought(comm);

	for (int i = 0; i < comm->nranks; i++)
		if (brought_record(&all, i)->op == MEET_FINALIZE)
			return true;
	return false;
}

static int report_failure(const spmt_comm *comm, const char *what)
{
	char sentence[STATUS_SENTENCE];

	for (int i = 0; i < comm->nranks; i++) {
		int status = taken(comm, i).status;

		if (!status)
			continue;
		memcpy(sentence, meet_attached(comm, i), sizeof(sentence));
		sentence[sizeof(sentence) - 1] = '\0';
		return status < 0 ? fail_with_call(status, what, sentence)
				  : comm_spoiled(comm, what);
	}
	return comm_spoiled(comm, what);
}

/* Those who stand alike: how many, and " 3, 6". */
struct alike {
	int n;
	struct text ranks;
};

/* Each is asked once, as more may come meanwhile. */
static void stand_alike(const spmt_comm *comm, struct alike all[MEET_STANDINGS],
	struct waits_text *waits, int64_t since)
{
	for (int i = 0; i < MEET_STANDINGS; i++)
		all[i] = (struct alike){ .n = 0 };
	for (int i = 0; i < comm->nranks; i++) {
		enum meet_standing standing = comm->meeting->standing(comm, i);
		struct alike *a = &all[standing];

		if (standing == MEET_MISSING)
			waits_add(waits, comm, i, since);
		text_add(&a->ranks, "%s %d", a->n++ ? "," : "", i);
	}
}

#define NOT_TOLD "the process that leads the rendezvous has not told of others"

/* Nobody is known to be missing. */
static void say_unmet(
	const struct alike all[MEET_STANDINGS], int nranks, double seconds, struct text *t)
{
	const struct alike *silent = &all[MEET_SILENT], *late = &all[MEET_LATE],
			   *leads = &all[MEET_LEADS];

	if (leads->n)
		text_add(t,
			"no rank of this node is missing after %.*f s, and the process that leads the rendezvous, that of these ranks, has not told of others:%s",
			SECONDS(seconds), leads->ranks.bytes);
	else if (all[MEET_UNKNOWN].n)
		text_add(t, "no rank of this node is missing after %.*f s, and " NOT_TOLD,
			SECONDS(seconds));
	else if (silent->n)
		text_add(t,
			"all %d ranks have come, but after %.*f s the processes of these do not answer:%s",
			nranks, SECONDS(seconds), silent->ranks.bytes);
	else if (late->n)
		text_add(t, "all %d ranks have come, not all within %.*f s, the last:%s", nranks,
			SECONDS(seconds), late->ranks.bytes);
	else
		text_add(t, "all %d ranks have come, too late to meet within %.*f s", nranks,
			SECONDS(seconds));
}

/* "spmt_barrier: rank 6 waits in spmt_signal_wait; 2 of 8 ranks missing after 5.0 s: 3, 6" */
bool meet_missed(const spmt_comm *comm, int64_t waited_ns, struct cause *cause)
{
	const char *call = meet_name(taken(comm, comm->rank).op);
	struct text t = { .used = 0 };
	struct waits_text waits = { .used = 0 };
	double seconds = (double)waited_ns / 1e9;
	struct alike all[MEET_STANDINGS];
	const struct alike *missing = &all[MEET_MISSING];

	stand_alike(comm, all, &waits, process_now() - waited_ns);
	text_add(&t, "%s: ", call);
	if (missing->n)
		text_add(&t, "%s%d of %d ranks missing after %.*f s%s:%s", waits_said(&waits),
			missing->n, comm->nranks, SECONDS(seconds),
			all[MEET_UNKNOWN].n + all[MEET_LEADS].n ? " on this node, and " NOT_TOLD
								: "",
			missing->ranks.bytes);
	else
		say_unmet(all, comm->nranks, seconds, &t);
	cause_set(cause, SPMT_ERR_TIMEOUT, call, t.bytes);
	return all[MEET_COME].n < comm->nranks;
}

/* ---- meeting ------------------------------------------------------------------------------- */

int meet_open(spmt_comm *comm)
{
	struct world *w = comm->world;
	const struct meeting_ops *row = atomic_load(&w->meeting);
	int rc = row->apart ? row->apart->open(comm) : 0;

	if (rc)
		return rc;
	pthread_mutex_lock(&w->lock);
	comm->meeting = row;
	pthread_mutex_unlock(&w->lock);
	return 0;
}

void meet_close(spmt_comm *comm)
{
	const struct meeting_ops *row = comm->meeting;

	if (!row)
		return;
	pthread_mutex_lock(&comm->world->lock);
	if (row->apart && row->apart->leave)
		row->apart->leave(comm);
	comm->meeting = NULL;
	pthread_mutex_unlock(&comm->world->lock);
	if (row->apart)
		row->apart->close(comm);
}

void meet_broke(spmt_comm *comm, const struct cause *cause)
{
	if (comm->meeting && comm->meeting->apart)
		comm->meeting->apart->broke(comm, cause);
}

bool meet_is_near(const spmt_comm *comm, int rank)
{
	return !atomic_load(&comm->world->meeting)->apart || comm_is_local(comm, rank) ||
		(comm->world->node && comm_is_neighbour(comm, rank));
}

static void count_wait(spmt_comm *comm, int64_t ns)
{
	uint64_t waits = atomic_load_explicit(&comm->waits, memory_order_relaxed);

	atomic_store_explicit(&comm->waits, waits + 1, memory_order_relaxed);
	if ((uint64_t)ns > atomic_load_explicit(&comm->longest_ns, memory_order_relaxed))
		atomic_store_explicit(&comm->longest_ns, (uint64_t)ns, memory_order_relaxed);
}

int meet(spmt_comm *comm, const struct meet_record *mine)
{
	const struct meeting_ops *row = comm->meeting;
	int rc;

	if (UNLIKELY(mine->status))
		row->attach(comm, status_sentence(),
			strnlen(status_sentence(), STATUS_SENTENCE - 1) + 1);
	comm->epoch++;
	if (!row->bring(comm, mine))
		count_wait(comm, row->wait(comm));
	switch (row->verdict(comm)) {
	case MEET_AGREED:
		return 0;
	case MEET_FAILED:
		return report_failure(comm, meet_name(mine->op));
	case MEET_BROKEN:
		return comm_spoiled(comm, meet_name(mine->op));
	default:
		rc = report_difference(comm, meet_name(mine->op));
		/* it breaks what it leaves behind: the next call here knows, too */
		if (one_finalizes(comm))
			comm_break_last(comm, rc);
		return rc;
	}
}
