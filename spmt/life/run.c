/* SPDX-License-Identifier: MIT */
/* Ranks from one thread: creates and joins a thread for each rank. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "claim.h"
#include "spmt/calls/keyed.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/job/launch.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

/* Runs n pieces of work at once; the first failure is kept with its sentence. */
struct crew {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t begin;
	enum { CREW_HIRING, CREW_GO, CREW_OFF } order;
	struct cause cause; /* its code: 0 while nothing has failed */

	int (*work)(struct crew *crew, int i);
	int n;
	const struct spmt_attr *attrs;
	spmt_comm **comms;
	spmt_comm *const *given;
	int (*fn)(spmt_comm *comm, void *arg);
	void *arg;
	const char *what;
	struct uid uid;	     /* of the world that the crew makes */
	struct world *world; /* held until all have tried */
};

struct worker {
	struct crew *crew;
	int index;
	pthread_t thread;
};

static void crew_failed(struct crew *crew, int code)
{
	pthread_mutex_lock(&crew->lock);
	if (!crew->cause.code)
		cause_last(&crew->cause, code);
	pthread_mutex_unlock(&crew->lock);
}

/* The thread was cancelled, or called pthread_exit, inside fn. The others are told at once,
   because they may wait for its rank without a deadline. */
static void worker_gone(void *arg)
{
	const struct worker *w = arg;
	struct crew *crew = w->crew;
	spmt_comm *comm = crew->given[w->index];
	struct cause cause;

	fail_call(SPMT_ERR_PEER_DEAD, crew->what, "the thread of 1 of %d ranks ended inside fn: %d",
		crew->n, comm ? comm->rank : w->index);
	cause_last(&cause, SPMT_ERR_PEER_DEAD); /* the crew's may be another thread's */
	crew_failed(crew, SPMT_ERR_PEER_DEAD);
	if (comm && !comm_enter_any(comm, crew->what)) {
		comm_break(comm, &cause);
		if (!comm->lane)
			control_leave(comm->control, comm->rank);
	}
}

/* A code of fn's own has no sentence; that of an earlier failure, with another code, may have to do with it. */
static int worker_told(const struct crew *crew, int i, int rc)
{
	const char *last = status_sentence(), *before = *last ? "; before that: " : "";

	if (!rc || status_last_code() == rc)
		return rc;
	if (crew->comms)
		return fail_call(
			rc, crew->what, "rank %d: fn returned %d%s%s", i, rc, before, last);
	return fail_call(rc, crew->what, "fn returned %d for comms[%d]%s%s", rc, i, before, last);
}

/* Calls the user's fn, the only part that can be cancelled. */
static int worker_call(struct crew *crew, int i)
{
	struct worker w = { .crew = crew, .index = i };
	int rc;

	pthread_cleanup_push(worker_gone, &w);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	rc = crew->fn(crew->given[i], crew->arg);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cleanup_pop(0);
	return worker_told(crew, i, rc);
}

/* Nobody begins until all threads exist: a single rank would wait for the others until its
   deadline. */
static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct crew *crew = w->crew;
	int code;
	bool go;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_mutex_lock(&crew->lock);
	while (crew->order == CREW_HIRING)
		pthread_cond_wait(&crew->begin, &crew->lock);
	go = crew->order == CREW_GO;
	pthread_mutex_unlock(&crew->lock);
	if (!go)
		return NULL;
	code = crew->work(crew, w->index);
	if (code)
		crew_failed(crew, code);
	return NULL;
}

static void crew_order(struct crew *crew, bool go)
{
	pthread_mutex_lock(&crew->lock);
	crew->order = go ? CREW_GO : CREW_OFF;
	pthread_cond_broadcast(&crew->begin);
	pthread_mutex_unlock(&crew->lock);
}

static int crew_hire(struct worker *workers, struct crew *crew, int *hired)
{
	for (*hired = 0; *hired < crew->n; ++*hired) {
		struct worker *w = &workers[*hired];
		int err;

		w->crew = crew;
		w->index = *hired;
		err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD)
					       : pthread_create(&w->thread, NULL, worker_main, w);
		if (err)
			return fail_call_errno(
				err, crew->what, "thread %d of %d cannot be made", *hired, crew->n);
	}
	return 0;
}

/* `left` is called for every thread that has ended. The crew lives on the caller's stack: the
   caller is not cancelled. */
static int crew_run(struct crew *crew, void (*left)(struct crew *crew, int i))
{
	struct worker *workers = mem_calloc((size_t)crew->n, sizeof(*workers));
	int hired, rc;

	if (!workers)
		return fail_call(-ENOMEM, crew->what, "out of memory for %d threads", crew->n);
	pthread_mutex_init(&crew->lock, NULL);
	pthread_cond_init(&crew->begin, NULL);
	rc = crew_hire(workers, crew, &hired);
	crew_order(crew, !rc);
	for (int i = 0; i < hired; i++) {
		pthread_join(workers[i].thread, NULL);
		if (!rc && left)
			left(crew, i);
	}
	pthread_cond_destroy(&crew->begin);
	pthread_mutex_destroy(&crew->lock);
	mem_free(workers);
	if (rc)
		return rc;
	return crew->cause.code ? fail_cause(&crew->cause) : 0;
}

/* ---- making ranks -------------------------------------------------------------------------- */

static int crew_hold(struct crew *crew, const spmt_uid *uid, int nranks)
{
	int rc = uid_read(crew->what, uid, &crew->uid);

	return rc ? rc : world_hold(crew->what, &crew->uid, nranks, &crew->world);
}

/* A rank may fail before it names the world that it was to join. */
static int crew_init(struct crew *crew, int i, const struct spmt_attr *attr)
{
	int rc = spmt_init(attr, &crew->comms[i]);

	if (rc && crew->world)
		world_post_failure(&crew->uid, rc);
	return rc;
}

/* ---- spmt_run ------------------------------------------------------------------------------ */

static int run_rank(struct crew *crew, int i)
{
	struct spmt_attr attr = *crew->attrs;
	int rc, end;

	attr.rank = i;
	rc = crew_init(crew, i, &attr);
	if (rc)
		return rc;
	rc = worker_call(crew, i);
	if (rc) {
		crew_failed(crew, rc); /* first, before those that it wakes */
		spmt_abort(crew->comms[i], rc);
	}
	end = spmt_finalize(crew->comms[i]);
	crew->comms[i] = NULL;
	return rc ? rc : end;
}

/* A rank whose thread ended inside fn is taken out of its world, which is broken by now. */
static void run_left(struct crew *crew, int i)
{
	if (crew->comms[i])
		spmt_finalize(crew->comms[i]);
	crew->comms[i] = NULL;
}

static int run_attr(
	int nranks, const struct spmt_attr *common, spmt_uid *uid, struct spmt_attr *attr)
{
	const struct spmt_attr init = SPMT_ATTR_INIT;
	int rc;

	*attr = init;
	rc = common ? attr_take("spmt_run", "common", common, attr) : 0;
	if (!rc)
		rc = uid_create("spmt_run", uid);
	if (rc)
		return rc;
	attr->nranks = nranks;
	attr->device = -1;
	attr->uid = uid;
	return 0;
}

int spmt_run(int nranks, const struct spmt_attr *common, int (*fn)(spmt_comm *comm, void *arg),
	void *arg)
{
	UNCANCELLED;
	struct spmt_attr attr;
	struct crew crew = { .work = run_rank,
		.n = nranks,
		.attrs = &attr,
		.fn = fn,
		.arg = arg,
		.what = "spmt_run" };
	spmt_uid uid;
	int rc;

	if (nranks < 1 || !fn)
		return fail_call(-EINVAL, "spmt_run", "%s (nranks %d)",
			fn ? "a world has at least one rank" : "fn is NULL", nranks);
	if (nranks > RANKS_MOST)
		return fail_call(-EINVAL, "spmt_run", "nranks %d: a world has at most %d ranks",
			nranks, RANKS_MOST);
	rc = run_attr(nranks, common, &uid, &attr);
	if (rc)
		return rc;
	crew.comms = mem_calloc((size_t)nranks, sizeof(*crew.comms));
	if (!crew.comms)
		return fail_call(-ENOMEM, "spmt_run", "out of memory for %d ranks", nranks);
	crew.given = crew.comms;
	rc = crew_hold(&crew, &uid, nranks);
	if (!rc)
		rc = crew_run(&crew, run_left);
	world_release(crew.world);
	mem_free(crew.comms);
	return rc;
}

/* ---- spmt_init_all, spmt_each -------------------------------------------------------------- */

static int init_rank(struct crew *crew, int i)
{
	return crew_init(crew, i, &crew->attrs[i]);
}

/* The size of the first is the stride of all: a program built with a later header has larger
   ones. */
static int attrs_take(int n, const struct spmt_attr *attrs, struct spmt_attr *own)
{
	const char *at = (const char *)attrs;
	size_t step = attrs->size;
	int rc = 0;

	for (int i = 0; i < n && !rc; i++, at += step) {
		const struct spmt_attr *given = (const struct spmt_attr *)(const void *)at;
		char name[24];

		snprintf(name, sizeof(name), "attrs[%d]", i);
		if (given->size != step)
			rc = fail_call(-EINVAL, "spmt_init_all",
				"attrs[%d].size is %zu, attrs[0].size is %zu", i, given->size,
				step);
		else
			rc = attr_take("spmt_init_all", name, given, &own[i]);
	}
	return rc;
}

/* Ranks of another world would be waited for until the deadline. */
static int one_world(int n, const struct spmt_attr *attrs)
{
	const bool named = attrs[0].uid || attrs[0].bootstrap;
	int first = -1;

	for (int i = 0; i < n; i++) {
		const struct spmt_attr *a = &attrs[i];

		if ((a->uid || a->bootstrap) != named)
			return fail_call(-EINVAL, "spmt_init_all",
				"attrs[%d] has %s, attrs[0] %s: they are ranks of one world", i,
				named ? "no uid" : "a uid or a bootstrap",
				named ? "one or a bootstrap" : "none");
		if (a->uid && first >= 0 && memcmp(a->uid, attrs[first].uid, sizeof(*a->uid)))
			return fail_call(-EINVAL, "spmt_init_all",
				"attrs[%d].uid is not that of attrs[%d]: they are ranks of one world",
				i, first);
		if (a->uid && first < 0)
			first = i;
	}
	return 0;
}

/* No uid was given, and there are no other ranks: makes a new world. */
static int own_world(int n, struct spmt_attr *attrs, spmt_uid *uid)
{
	int above = -1, rc = one_world(n, attrs);

	if (rc || attrs[0].uid || attrs[0].bootstrap)
		return rc;
	for (int i = n - 1; i >= 0; i--)
		above = attrs[i].nranks > n ? i : above;
	if (above >= 0 && launch_in_job())
		return 0;
	if (above >= 0)
		return fail_call(-EINVAL, "spmt_init_all",
			"attrs[%d].nranks is %d, n is %d: a world with ranks elsewhere needs uid or bootstrap in attrs, or mpirun or srun --mpi=pmix to start the processes, or SPMT_UID and SPMT_PROCESS to name a job",
			above, attrs[above].nranks, n);
	rc = uid_create("spmt_init_all", uid);
	for (int i = 0; !rc && i < n; i++)
		attrs[i].uid = uid;
	return rc;
}

/* Holds the world if all attrs name the same number of ranks; otherwise the ranks find out by
   themselves. */
static int attrs_hold(struct crew *crew, int n, const struct spmt_attr *attrs)
{
	if (attrs[0].nranks < 1 || attrs[0].nranks > RANKS_MOST || !attrs[0].uid)
		return 0;
	for (int i = 1; i < n; i++)
		if (attrs[i].nranks != attrs[0].nranks)
			return 0;
	return crew_hold(crew, attrs[0].uid, attrs[0].nranks);
}

static void undo_all(int n, spmt_comm **comms)
{
	for (int i = 0; i < n; i++)
		if (comms[i])
			spmt_abort(comms[i], SPMT_ERR_ABORTED);
	for (int i = 0; i < n; i++)
		if (comms[i])
			spmt_finalize(comms[i]);
}

int spmt_init_all(int n, const struct spmt_attr *attrs, spmt_comm **comms)
{
	UNCANCELLED;
	struct crew crew = { .work = init_rank, .n = n, .what = "spmt_init_all" };
	struct spmt_attr *own = NULL;
	spmt_uid uid;
	int rc;

	if (n < 1 || !attrs || !comms)
		return fail_call(-EINVAL, "spmt_init_all", "%s (n %d)",
			n < 1 ? "n is below 1" : "attrs or comms is NULL", n);
	own = mem_calloc((size_t)n, sizeof(*own));
	crew.comms = mem_calloc((size_t)n, sizeof(*crew.comms));
	rc = own && crew.comms
		? 0
		: fail_call(-ENOMEM, "spmt_init_all", "out of memory for %d ranks", n);
	if (!rc)
		rc = attrs_take(n, attrs, own);
	if (!rc)
		rc = own_world(n, own, &uid);
	if (!rc)
		rc = attrs_hold(&crew, n, own);
	if (!rc) {
		crew.attrs = own;
		rc = crew_run(&crew, NULL);
		if (!rc)
			memcpy(comms, crew.comms, (size_t)n * sizeof(*comms));
	}
	if (rc && crew.comms) {
		KEEPS_SENTENCE;
		undo_all(n, crew.comms);
	}
	world_release(crew.world);
	mem_free(crew.comms);
	mem_free(own);
	return rc;
}

/* Two threads would be in the one comm, which has one at a time. */
static int check_twice(const char *what, int i, spmt_comm *const *comms)
{
	for (int j = 0; j < i; j++)
		if (comms[j] == comms[i])
			return fail_call(
				-EINVAL, what, "comms[%d] and comms[%d] are the same", j, i);
	return 0;
}

/* Before any thread is made, as the others would wait for who has failed. A rank that has no part (spmt_split) is left out. */
static int each_check(const struct crew *crew)
{
	int rc = 0;

	if (crew->n < 1 || !crew->given || !crew->fn)
		return fail_call(-EINVAL, crew->what, "%s (n %d)",
			crew->n < 1 ? "n is below 1" : "comms or fn is NULL", crew->n);
	for (int i = 0; i < crew->n && !rc; i++) {
		rc = crew->given[i] ? comm_enter_any(crew->given[i], crew->what)
				    : fail_call(-EINVAL, crew->what, "comms[%d] is NULL", i);
		if (!rc)
			rc = check_twice(crew->what, i, crew->given);
	}
	return rc;
}

int spmt_each(int n, spmt_comm *const *comms, int (*fn)(spmt_comm *comm, void *arg), void *arg)
{
	UNCANCELLED;
	struct crew crew = { .work = worker_call,
		.n = n,
		.given = comms,
		.fn = fn,
		.arg = arg,
		.what = "spmt_each" };
	int rc = each_check(&crew);

	return rc ? rc : crew_run(&crew, NULL);
}

/* ---- spmt_each_abort, spmt_finalize_all ------------------------------------------------------------ */

static int abort_call(struct crew *crew, int i)
{
	int rc = worker_call(crew, i);

	if (rc) {
		crew_failed(crew, rc); /* first, before those that it wakes */
		spmt_abort(crew->given[i], rc);
	}
	return rc;
}

int spmt_each_abort(
	int n, spmt_comm *const *comms, int (*fn)(spmt_comm *comm, void *arg), void *arg)
{
	UNCANCELLED;
	struct crew crew = { .work = abort_call,
		.n = n,
		.given = comms,
		.fn = fn,
		.arg = arg,
		.what = "spmt_each_abort" };
	int rc = each_check(&crew);

	return rc ? rc : crew_run(&crew, NULL);
}

static int finalize_call(struct crew *crew, int i)
{
	return spmt_finalize(crew->given[i]);
}

/* Two threads would end the one, of which nobody may be in a call when the other ends. */
static int finalize_apart(int n, spmt_comm *const *comms)
{
	for (int i = 0; i < n; i++)
		for (const spmt_comm *c = comms[i]->parent; c; c = c->parent)
			for (int j = 0; j < n; j++)
				if (comms[j] == c)
					return fail_call(-EINVAL, "spmt_finalize_all",
						"comms[%d] is a part or lane of comms[%d], with which it ends",
						i, j);
	return 0;
}

static const char ends_all[] = "spmt_finalize_all";

static int end_look(spmt_comm *const *comms, int i)
{
	int rc = comm_not_inside(comms[i], ends_all);

	if (!rc)
		rc = check_twice(ends_all, i, comms);
	return rc ? rc : claim_look(comms[i], ends_all);
}

static int end_claim(spmt_comm *const *comms, int i)
{
	int rc = claim_tree(comms[i], ends_all);

	if (!rc)
		claim_drop(comms[i]);
	return rc;
}

static int ends_check(int n, spmt_comm *const *comms, int (*check)(spmt_comm *const *comms, int i))
{
	for (int i = 0; i < n; i++) {
		int rc = comms[i] ? comm_visit(comms[i], ends_all)
				  : fail_call(-EINVAL, ends_all, "comms[%d] is NULL", i);

		if (rc)
			return rc;
		rc = check(comms, i);
		comm_left(comms[i]);
		if (rc)
			return rc;
	}
	return 0;
}

/* The others would wait for one that cannot be finalized. A claim refuses other threads' calls, so that none is made where a look is
   enough to refuse this one. */
static int finalize_check(int n, spmt_comm *const *comms)
{
	int rc = ends_check(n, comms, end_look);

	if (!rc)
		rc = finalize_apart(n, comms);
	return rc ? rc : ends_check(n, comms, end_claim);
}

int spmt_finalize_all(int n, spmt_comm *const *comms)
{
	UNCANCELLED;
	struct crew crew = {
		.work = finalize_call, .n = n, .given = comms, .what = "spmt_finalize_all"
	};
	int rc;

	if (n < 1 || !comms)
		return fail_call(-EINVAL, "spmt_finalize_all", "%s (n %d)",
			n < 1 ? "n is below 1" : "comms is NULL", n);
	rc = finalize_check(n, comms);
	return rc ? rc : crew_run(&crew, NULL);
}
