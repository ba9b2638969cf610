/* SPDX-License-Identifier: MIT */
#include "far_state.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "spmt/comm/broken.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/waits.h"
#include "spmt/control/coll_key.h"
#include "spmt/nodes/nodes.h"
#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"
#include "src/kernels/coll/fold.h"

#define FAR_WORDS_NS 50000 /* between two looks at a broken comm */

struct far_job {
	spmt_comm *comm;
	struct far_call call;
};

bool far_possible(const spmt_comm *comm)
{
	const struct env *env;

	if (comm_spans_processes(comm))
		return true;
	return !env_get(&env) && env->maps && map_ops(MAP_RDMA) &&
		env_list_rank(env->maps, map_name(MAP_P2P), 0) < 0;
}

uint64_t far_head(int nranks)
{
	return align_up(2 * (uint64_t)nranks * sizeof(struct far_word), CACHE_LINE);
}

/* ---- places ------------------------------------------------------------------------------------ */

static uint64_t slot_size(const spmt_comm *comm)
{
	return comm->stage_size / (uint64_t)comm->nranks / CACHE_LINE * CACHE_LINE;
}

/* From the stage: of the slot that `writer` has in a round. */
static int64_t slot_at(const spmt_comm *comm, uint64_t round, int writer)
{
	return (int64_t)((round & 1) * comm->stage_size + (uint64_t)writer * slot_size(comm));
}

/* ---- a round ----------------------------------------------------------------------------------- */

/* Of every block elements [from, from + most), as far as there are any. */
struct far_part {
	uint64_t from, most;
};

static uint64_t part_of(const struct far_part *part, uint64_t count)
{
	return part->from < count ? MIN_OF(part->most, count - part->from) : 0;
}

/* Is pe one of the n ranks from `first` on? */
static bool in_round(int pe, int first, int n, int npes)
{
	return n && (pe - first + npes) % npes < n;
}

static struct far_span span_of(const spmt_comm *comm, const struct far_call *c, int pe)
{
	const struct coll_moves *m = &c->moves;
	uint64_t at = (uint64_t)pe * c->count;

	if (c->spans)
		return c->spans[pe];
	return (struct far_span){ .src_at = m->src_blocks ? at : 0,
		.src_count = in_round(pe, m->to, m->tos, comm->nranks) ? c->count : 0,
		.dst_at = m->dst_blocks ? at : 0,
		.dst_count = in_round(pe, m->from, m->froms, comm->nranks) ? c->count : 0 };
}

/* What a pair has to agree on, `count` elements of its own included. */
static uint64_t pair_key(const struct far_call *c, uint64_t count)
{
	return c->spans
		? coll_key(&(struct coll_same){ .kind = c->kind, .type = c->type, .count = count })
		: c->key;
}

static int part_send(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	struct far *far = comm->far_state;
	int rc = 0;

	for (int i = 0; i < comm->nranks && !rc; i++) {
		int pe = (comm->rank + i) % comm->nranks;
		struct mover *mover = &far->links[pe].movers[0];
		const struct far_span s = span_of(comm, c, pe);
		uint64_t n = part_of(part, s.src_count);

		if (!n)
			continue;
		rc = mover->ops->put(mover,
			far_there(comm, mover->link, slot_at(comm, far->round, comm->rank)),
			(const char *)c->src + (s.src_at + part->from) * c->size, n * c->size,
			MOVE_BLOCKING, NULL);
	}
	return rc;
}

static bool part_is_last(
	const spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	uint64_t most = c->count;

	for (int pe = 0; c->spans && pe < comm->nranks; pe++)
		most = MAX_OF(most, c->spans[pe].src_count);
	return most - MIN_OF(most, part->from) <= part->most;
}

/* Equal sums over all ranks: each pair has the same count on either side. Only the rank that gets sees where not. */
static void sums_make(const spmt_comm *comm, const struct far_call *c, struct far_hello *hello)
{
	uint64_t n = (uint64_t)comm->nranks, me = (uint64_t)comm->rank;

	for (uint64_t pe = 0; c->spans && pe < n; pe++) {
		hello->gives += coll_fold(coll_fold(1, me * n + pe), c->spans[pe].src_count);
		hello->gets += coll_fold(coll_fold(1, pe * n + me), c->spans[pe].dst_count);
	}
}

/* All others learn that this rank has come, and with what. */
static int greet(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	struct far_hello hello = { .more = !part_is_last(comm, c, part) };
	int rc = 0;

	sums_make(comm, c, &hello);
	for (int i = 0; i < comm->nranks && !rc; i++) {
		int pe = (comm->rank + i) % comm->nranks;

		hello.key = pair_key(c, span_of(comm, c, pe).src_count);
		rc = far_greet(comm, pe, &hello);
	}
	return rc;
}

/* Some other pair differs: who gets there says so, in this same round. */
static int await_words(spmt_comm *comm, const struct far_call *c)
{
	const struct timespec slice = { .tv_nsec = FAR_WORDS_NS };
	const struct far *far = comm->far_state;
	struct cause cause;

	while (!atomic_load_explicit(&comm->control->stop, memory_order_acquire)) {
		int64_t limit = comm_timeout(comm);

		if (limit >= 0 && process_now() - far->begin >= limit * 1000000) {
			cause_set(&cause, SPMT_ERR_MISMATCH, c->what,
				"what some ranks send and others get differs");
			comm_break(comm, &cause);
		}
		clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
	}
	return -ECANCELED;
}

/* *more: somebody's data does not end with this round. */
static int hellos_take(spmt_comm *comm, const struct far_call *c, bool *more)
{
	const struct far *far = comm->far_state;
	uint64_t gives = 0, gets = 0;

	*more = false;
	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct far_hello *hello = &far_told(comm, far->round, pe)->hello;
		const uint64_t key[2] = { __atomic_load_n(&hello->key, __ATOMIC_RELAXED),
			pair_key(c, span_of(comm, c, pe).dst_count) };

		*more |= __atomic_load_n(&hello->more, __ATOMIC_RELAXED) != 0;
		gives += __atomic_load_n(&hello->gives, __ATOMIC_RELAXED);
		gets += __atomic_load_n(&hello->gets, __ATOMIC_RELAXED);
		if (key[0] == key[1])
			continue;
		return far_mismatch(comm, c, pe, key);
	}
	return gives == gets ? 0 : await_words(comm, c);
}

/* ---- all with all -------------------------------------------------------------------------------- */

static int await_all(spmt_comm *comm, const struct far_call *c, bool *more)
{
	int rc = 0;

	for (int pe = 0; pe < comm->nranks && !rc; pe++)
		rc = far_await(comm, c, pe);
	waits_hide(comm, c);
	return rc ? rc : hellos_take(comm, c, more);
}

static int part_fold(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	const struct far *far = comm->far_state;
	struct area_inbox *slots = mem_calloc((size_t)comm->nranks, sizeof(*slots));
	struct fold fold = { .inboxes = slots,
		.npes = comm->nranks,
		.bytes = part_of(part, c->count) * c->size,
		.dst = (uintptr_t)c->dst + part->from * c->size,
		.lanes = 1 };

	if (!slots)
		return fail(
			-ENOMEM, "rank %d: out of memory for %d slots", comm->rank, comm->nranks);
	for (int pe = 0; pe < comm->nranks; pe++)
		slots[pe].src = (uintptr_t)comm->stage + (uint64_t)slot_at(comm, far->round, pe);
	fold_run(&fold, c->type, c->op);
	mem_free(slots);
	return 0;
}

static int part_take(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	const struct far *far = comm->far_state;
	const struct coll_moves *m = &c->moves;

	if (m->folds)
		return m->froms && part_of(part, c->count) ? part_fold(comm, c, part) : 0;
	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct far_span s = span_of(comm, c, pe);
		uint64_t n = part_of(part, s.dst_count);

		if (n)
			memcpy((char *)c->dst + (s.dst_at + part->from) * c->size,
				comm->stage + slot_at(comm, far->round, pe), n * c->size);
	}
	return 0;
}

static int part_run(
	spmt_comm *comm, const struct far_call *c, const struct far_part *part, bool *more)
{
	struct far *far = comm->far_state;
	int rc;

	far->round++;
	rc = part_send(comm, c, part);
	if (!rc)
		rc = greet(comm, c, part);
	if (!rc)
		rc = await_all(comm, c, more);
	return rc ? rc : part_take(comm, c, part);
}

/* ---- in the stream ------------------------------------------------------------------------------- */

static int far_run(spmt_comm *comm, const struct far_call *c)
{
	struct far *far = comm->far_state;
	struct far_part part = { .most = slot_size(comm) / c->size };
	bool more = true;
	int rc = 0;

	if (comm_is_broken(comm))
		return -ECANCELED;
	far->begin = process_now();
	if (c->key == FAR_BARRIER)
		return far_barrier(comm, c);
	for (; more && !rc; part.from += part.most)
		rc = part_run(comm, c, &part, &more);
	return rc;
}

/* Whoever failed alone breaks the comm: the others count on it. */
static void far_thread(void *arg)
{
	struct far_job *job = arg;
	spmt_comm *comm = job->comm;
	struct status_saved saved;
	int rc;

	status_save(&saved);
	rc = far_run(comm, &job->call);
	if (rc && !comm_is_broken(comm))
		rc = nodes_move_failed(comm, job->call.what, rc);
	if (rc && !comm_is_broken(comm))
		comm_break_last(comm, comm_failed(comm, job->call.what, rc));
	if (rc) {
		rc = comm_broken(comm, job->call.what);
		host_stream_blame(rc, status_sentence());
	}
	status_restore(&saved);
	mem_free(job->call.spans);
	mem_free(job);
}

static int far_open(spmt_comm *comm)
{
	struct far *far = mem_calloc(1, sizeof(*far));
	size_t bytes = (size_t)comm->nranks * sizeof(*far->links);

	if (far) {
		far->links = mem_aligned(CACHE_LINE, bytes);
		far->leaders = mem_calloc((size_t)comm->nranks, sizeof(*far->leaders));
	}
	if (!far || !far->links || !far->leaders) {
		if (far) {
			mem_free(far->links);
			mem_free(far->leaders);
		}
		mem_free(far);
		return fail(
			-ENOMEM, "rank %d: out of memory for %d links", comm->rank, comm->nranks);
	}
	for (int pe = 0; pe < comm->nranks; pe++) {
		link_again(&far->links[pe], &comm->links[pe]);
	}
	far_leaders(comm, far);
	comm->far_state = far;
	return 0;
}

static int far_check(const spmt_comm *comm, const struct far_call *call)
{
	if (!comm_cpu_access(comm))
		return fail(SPMT_ERR_UNSUPPORTED,
			"rank %d: collectives between nodes are moved by the CPU, which does not reach memory of backend %s",
			comm->rank, comm->backend->name);
	if (!comm->stage || slot_size(comm) < call->size)
		return fail(SPMT_ERR_UNSUPPORTED,
			"rank %d: %d ranks are too many for collectives between nodes", comm->rank,
			comm->nranks);
	return 0;
}

int far_queue(spmt_comm *comm, const struct far_call *call, device_stream stream)
{
	struct far_job *job = NULL;
	int rc = far_check(comm, call);

	if (!rc && !comm->far_state)
		rc = far_open(comm);
	if (!rc)
		job = mem_calloc(1, sizeof(*job));
	if (!rc && !job)
		rc = fail(-ENOMEM, "rank %d: out of memory for a collective", comm->rank);
	if (!rc) {
		*job = (struct far_job){ comm, *call };
		rc = comm->backend->call(comm->dev, stream, far_thread, job);
	}
	if (rc) {
		mem_free(call->spans);
		mem_free(job);
	}
	return rc;
}

void far_drop(spmt_comm *comm)
{
	struct far *far = comm->far_state;

	if (!far)
		return;
	comm->far_state = NULL;
	for (int pe = 0; pe < comm->nranks; pe++)
		far->links[pe].movers[0].ops->close(&far->links[pe].movers[0]);
	mem_free(far->links);
	mem_free(far->leaders);
	mem_free(far);
}
