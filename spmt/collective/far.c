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
#include "src/kernels/fold/factor.h"
#include "src/kernels/fold/fold.h"

#define FAR_WORDS_NS 50000 /* between two looks at a broken comm */
#define SHARD_GRAIN 64	   /* elements */

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

/* Offset from the stage of `writer`'s slot in this round. */
static int64_t slot_at(const spmt_comm *comm, int writer)
{
	return far_half(comm) + (int64_t)((uint64_t)writer * slot_size(comm));
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

struct far_span far_span_of(const spmt_comm *comm, const struct far_call *c, int pe)
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
	return c->varied
		? coll_key(&(struct coll_same){ .kind = c->kind, .type = c->type, .count = count })
		: c->key;
}

static int part_send(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	int rc = 0;

	for (int i = 0; i < comm->nranks && !rc; i++) {
		int pe = (comm->rank + i) % comm->nranks;
		const struct far_span s = far_span_of(comm, c, pe);
		uint64_t n = part_of(part, s.src_count);

		if (n)
			rc = far_put(comm, pe, slot_at(comm, comm->rank),
				(const char *)c->src + (s.src_at + part->from) * c->size,
				n * c->size);
	}
	return rc;
}

static bool part_is_last(
	const spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	uint64_t most = c->spans ? 0 : c->count;

	for (int pe = 0; c->spans && pe < comm->nranks; pe++)
		most = MAX_OF(most, c->spans[pe].src_count);
	return most - MIN_OF(most, part->from) <= part->most;
}

/* Equal sums over all ranks: each pair has the same count on either side. Only the rank that gets sees where not. */
static void sums_make(const spmt_comm *comm, const struct far_call *c, struct far_hello *hello)
{
	uint64_t n = (uint64_t)comm->nranks, me = (uint64_t)comm->rank;

	for (uint64_t pe = 0; c->varied && pe < n; pe++) {
		hello->gives += coll_fold(coll_fold(1, me * n + pe), c->spans[pe].src_count);
		hello->gets += coll_fold(coll_fold(1, pe * n + me), c->spans[pe].dst_count);
	}
}

static struct far_hello hello_to(
	const spmt_comm *comm, const struct far_call *c, const struct far_part *part, int pe)
{
	struct far_hello hello = { .key = pair_key(c, far_span_of(comm, c, pe).src_count),
		.more = !part_is_last(comm, c, part),
		.factor = c->factor.bits };

	sums_make(comm, c, &hello);
	return hello;
}

/* All others learn that this rank has come, and with what. */
static int greet(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	struct far_hello hello = hello_to(comm, c, part, comm->rank);
	int rc = 0;

	for (int i = 1; i < comm->nranks && !rc; i++) {
		int pe = (comm->rank + i) % comm->nranks;

		hello.key = pair_key(c, far_span_of(comm, c, pe).src_count);
		rc = far_greet(comm, pe, &hello);
	}
	return rc;
}

/* Some other pair differs: its receiver says so, in this same round. */
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
			pair_key(c, far_span_of(comm, c, pe).dst_count) };

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
		rc = far_await(comm, c, pe, 0);
	waits_hide(comm, c);
	return rc ? rc : hellos_take(comm, c, more);
}

struct area_inbox *far_operands(const spmt_comm *comm)
{
	struct area_inbox *of = mem_calloc((size_t)comm->nranks, sizeof(*of) + PIECE_IN_SLOT);

	if (!of)
		fail_rank(
			-ENOMEM, comm->rank, "out of memory for what %d ranks give", comm->nranks);
	return of;
}

/* All ranks' have the same count, and go to the same place. */
static int part_fold(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	const struct far_span s = far_span_of(comm, c, comm->rank);
	struct area_inbox *slots = far_operands(comm);
	struct fold fold = { .inboxes = slots,
		.npes = comm->nranks,
		.bytes = part_of(part, s.dst_count) * c->size,
		.dst = (uintptr_t)c->dst + (s.dst_at + part->from) * c->size,
		.lanes = 1 };

	if (!slots)
		return -ENOMEM;
	fold.factors = (uintptr_t)(slots + comm->nranks);
	for (int pe = 0; pe < comm->nranks; pe++) {
		slots[pe].src = (uintptr_t)comm->stage + (uint64_t)slot_at(comm, pe);
		piece_send(fold.factors, (uint64_t)pe,
			far_told(comm, comm->far_state->round, pe)->hello.factor, flags_alike(0));
	}
	fold_run(&fold, c->type, c->op);
	mem_free(slots);
	return 0;
}

static int part_take(spmt_comm *comm, const struct far_call *c, const struct far_part *part)
{
	if (c->moves.folds)
		return part_of(part, far_span_of(comm, c, comm->rank).dst_count)
			? part_fold(comm, c, part)
			: 0;
	for (int pe = 0; pe < comm->nranks; pe++) {
		const struct far_span s = far_span_of(comm, c, pe);
		uint64_t n = part_of(part, s.dst_count);

		if (n)
			memcpy((char *)c->dst + (s.dst_at + part->from) * c->size,
				comm->stage + slot_at(comm, pe), n * c->size);
	}
	return 0;
}

static int part_run(
	spmt_comm *comm, const struct far_call *c, const struct far_part *part, bool *more)
{
	const struct far_hello hello = hello_to(comm, c, part, comm->rank);
	int rc;

	rc = far_begin_round(comm, &hello);
	if (!rc)
		rc = part_send(comm, c, part);
	if (!rc)
		rc = greet(comm, c, part);
	if (!rc)
		rc = await_all(comm, c, more);
	return rc ? rc : part_take(comm, c, part);
}

static int far_pairs(spmt_comm *comm, const struct far_call *c)
{
	struct far_part part = { .most = slot_size(comm) / c->size };
	bool more = true;
	int rc = 0;

	for (; more && !rc; part.from += part.most)
		rc = part_run(comm, c, &part, &more);
	return rc;
}

/* ---- by shards: each rank has one of the block for itself, then all get all ----------------------- */

/* Elements of a block that rank pe has, from *at on. */
static uint64_t shard_of(const spmt_comm *comm, const struct far_call *c, int pe, uint64_t *at)
{
	uint64_t n = (uint64_t)comm->nranks;
	uint64_t most = align_up((c->count + n - 1) / n, SHARD_GRAIN);

	*at = MIN_OF(c->count, (uint64_t)pe * most);
	return MIN_OF(most, c->count - *at);
}

/* The root has everybody's; of a fold all have. */
static void shards_spread(const spmt_comm *comm, const struct far_call *c, struct far_span *spans)
{
	uint64_t mine, n = shard_of(comm, c, comm->rank, &mine);

	for (int pe = 0; pe < comm->nranks; pe++) {
		struct far_span *s = &spans[pe];

		*s = (struct far_span){ .dst_at = mine };
		if (c->moves.folds || c->root == comm->rank)
			s->src_count = shard_of(comm, c, pe, &s->src_at);
		if (c->moves.folds || c->root == pe)
			s->dst_count = n;
	}
}

static void shards_gather(const spmt_comm *comm, const struct far_call *c, struct far_span *spans)
{
	for (int pe = 0; pe < comm->nranks; pe++) {
		spans[pe] = (struct far_span){ .src_count = 0 };
		spans[pe].dst_count = shard_of(comm, c, pe, &spans[pe].dst_at);
	}
}

static int far_shards(spmt_comm *comm, const struct far_call *c)
{
	struct far_span *spans = mem_calloc((size_t)comm->nranks, sizeof(*spans));
	struct far_call part = *c;
	int rc;

	if (!spans)
		return fail_rank(-ENOMEM, comm->rank, "out of memory for %d shards", comm->nranks);
	part.spans = spans;
	shards_spread(comm, c, spans);
	rc = far_pairs(comm, &part);
	shards_gather(comm, c, spans);
	part.src = (char *)c->dst + spans[comm->rank].dst_at * c->size;
	if (!rc)
		rc = far_ring(comm, &part);
	mem_free(spans);
	return rc;
}

static int far_all_gather(spmt_comm *comm, const struct far_call *c)
{
	struct far_call call = *c;
	int rc = far_tree(comm, c, true);

	if (rc)
		return rc;
	call.spans = mem_calloc((size_t)comm->nranks, sizeof(*call.spans));
	if (!call.spans)
		return fail_rank(-ENOMEM, comm->rank, "out of memory for %d ranks", comm->nranks);
	for (int pe = 0; pe < comm->nranks; pe++)
		call.spans[pe] = far_span_of(comm, c, pe);
	rc = far_ring(comm, &call);
	mem_free(call.spans);
	return rc;
}

/* ---- in the stream ------------------------------------------------------------------------------- */

/* By what all ranks know of the call, so that they choose alike; whoever made another is found in the first round of any. */
static int far_move(spmt_comm *comm, const struct far_call *c)
{
	if (c->varied)
		return far_pairs(comm, c);
	if (far_tree_fits(comm, c))
		return far_tree(comm, c, false);
	switch (c->kind) {
	case COLL_ALL_GATHER:
		return far_all_gather(comm, c);
	case COLL_ALL_REDUCE:
	case COLL_BROADCAST:
		return far_shards(comm, c);
	default:
		return far_pairs(comm, c);
	}
}

static int far_run(spmt_comm *comm, struct far_call *c)
{
	if (comm_is_broken(comm))
		return -ECANCELED;
	if (c->factor.at) {
		c->factor.bits = 0;
		memcpy(&c->factor.bits, (const void *)(uintptr_t)c->factor.at, c->size);
	}
	comm->far_state->begin = process_now();
	return far_move(comm, c);
}

/* Whoever failed alone breaks the comm: the others count on it. */
static void far_thread(void *arg)
{
	struct far_job *job = arg;
	spmt_comm *comm = job->comm;
	int rc;
	KEEPS_SENTENCE;

	rc = far_run(comm, &job->call);
	if (rc && !comm_is_broken(comm))
		rc = nodes_move_failed(comm, job->call.what, rc);
	if (rc && !comm_is_broken(comm))
		comm_break_last(comm, comm_failed(comm, job->call.what, rc));
	if (rc) {
		rc = comm_broken(comm, job->call.what);
		host_stream_blame(rc, status_sentence());
	}
	mem_free(job->call.spans);
	mem_free(job);
}

static void far_free(struct far *far)
{
	if (!far)
		return;
	mem_free(far->links);
	mem_free(far->noted);
	mem_free(far->node);
	mem_free(far);
}

static int far_open(spmt_comm *comm)
{
	struct far *far = mem_calloc(1, sizeof(*far));
	size_t bytes = (size_t)comm->nranks * sizeof(*far->links);

	if (far) {
		far->links = mem_aligned(CACHE_LINE, bytes);
		far->noted = mem_calloc((size_t)comm->nranks, sizeof(*far->noted));
	}
	if (!far || !far->links || !far->noted || far_nodes(comm, far)) {
		far_free(far);
		return fail_rank(-ENOMEM, comm->rank, "out of memory for %d links", comm->nranks);
	}
	for (int pe = 0; pe < comm->nranks; pe++)
		link_again(&far->links[pe], &comm->links[pe]);
	comm->far_state = far;
	return 0;
}

static int far_check(const spmt_comm *comm, const struct far_call *call)
{
	if (!comm_cpu_access(comm))
		return fail_rank(SPMT_ERR_UNSUPPORTED, comm->rank,
			"collectives between nodes are moved by the CPU, which does not reach memory of backend %s",
			comm->backend->name);
	if (!comm->stage || slot_size(comm) < call->size)
		return fail_rank(SPMT_ERR_UNSUPPORTED, comm->rank,
			"%d ranks are too many for collectives between nodes", comm->nranks);
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
		rc = fail_rank(-ENOMEM, comm->rank, "out of memory for a collective");
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
	far_free(far);
}
