/* SPDX-License-Identifier: MIT */
/* Ranks from one thread: a thread a rank, made and joined here. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "../src/fault.h"
#include "../src/mem.h"
#include "../src/status.h"
#include "comm.h"

/* n pieces of work at once; the first failure in time is kept with its sentence. */
struct crew {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t begin;
	enum { CREW_HIRING, CREW_GO, CREW_OFF } order;
	int code;
	char sentence[STATUS_SENTENCE];

	int (*work)(struct crew *crew, int i);
	int n;
	const struct spmt_attr *attrs;
	spmt_comm **comms;
	spmt_comm *const *given;
	int (*fn)(spmt_comm *comm, void *arg);
	void *arg;
};

struct worker {
	struct crew *crew;
	int index;
	pthread_t thread;
};

static void crew_failed(struct crew *crew, int code)
{
	pthread_mutex_lock(&crew->lock);
	if (!crew->code) {
		crew->code = code;
		memcpy(crew->sentence, status_sentence(), sizeof(crew->sentence));
	}
	pthread_mutex_unlock(&crew->lock);
}

/* Nobody begins until all threads are there: a rank that came alone would wait for the others
   until its deadline. */
static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct crew *crew = w->crew;
	int code, cancel;
	bool go;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	pthread_mutex_lock(&crew->lock);
	while (crew->order == CREW_HIRING)
		pthread_cond_wait(&crew->begin, &crew->lock);
	go = crew->order == CREW_GO;
	pthread_mutex_unlock(&crew->lock);
	pthread_setcancelstate(cancel, NULL);
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
			return fail_errno(err, "thread %d of %d cannot be made", *hired, crew->n);
	}
	return 0;
}

/* `ended` hears of a thread that was cancelled or left by pthread_exit: its rank is still in the
   world. */
static int crew_run(struct crew *crew, void (*ended)(struct crew *crew, int i))
{
	struct worker *workers = mem_calloc((size_t)crew->n, sizeof(*workers));
	int hired, rc;

	if (!workers)
		return fail(-ENOMEM, "out of memory for %d threads", crew->n);
	pthread_mutex_init(&crew->lock, NULL);
	pthread_cond_init(&crew->begin, NULL);
	rc = crew_hire(workers, crew, &hired);
	crew_order(crew, !rc);
	for (int i = 0; i < hired; i++) {
		pthread_join(workers[i].thread, NULL);
		if (!rc && ended)
			ended(crew, i);
	}
	pthread_cond_destroy(&crew->begin);
	pthread_mutex_destroy(&crew->lock);
	mem_free(workers);
	if (rc)
		return rc;
	return crew->code ? fail_with(crew->code, crew->sentence) : 0;
}

/* ---- spmt_run ------------------------------------------------------------------------------ */

static int run_rank(struct crew *crew, int i)
{
	struct spmt_attr attr = *crew->attrs;
	int rc, end;

	attr.rank = i;
	rc = spmt_init(&attr, &crew->comms[i]);
	if (rc)
		return rc;
	rc = crew->fn(crew->comms[i], crew->arg);
	if (rc) {
		crew_failed(crew, rc); /* first, before those that it wakes */
		spmt_abort(crew->comms[i], rc);
	}
	end = spmt_finalize(crew->comms[i]);
	crew->comms[i] = NULL;
	return rc ? rc : end;
}

/* A rank whose thread ended in the middle is taken out of its world, which the others have found
   broken. */
static void run_ended(struct crew *crew, int i)
{
	if (!crew->comms[i])
		return;
	fail(SPMT_ERR_PEER_DEAD, "spmt_run: the thread of 1 of %d ranks ended inside fn: %d",
		crew->n, i);
	crew_failed(crew, SPMT_ERR_PEER_DEAD);
	spmt_abort(crew->comms[i], SPMT_ERR_PEER_DEAD);
	spmt_finalize(crew->comms[i]);
	crew->comms[i] = NULL;
}

/* The attributes that the user left out, checked as init would. */
static int run_attr(
	int nranks, const struct spmt_attr *common, spmt_uid *uid, struct spmt_attr *attr)
{
	const struct spmt_attr init = SPMT_ATTR_INIT;
	int rc;

	*attr = init;
	if (common) {
		if (common->size < sizeof(*attr))
			return fail(-EINVAL,
				"spmt_run: common.size %zu is below %zu: begin with SPMT_ATTR_INIT",
				common->size, sizeof(*attr));
		for (size_t i = sizeof(*attr); i < common->size; i++)
			if (((const unsigned char *)common)[i])
				return fail(-EINVAL,
					"spmt_run: common.size %zu: byte %zu asks for something unknown",
					common->size, i);
		*attr = *common;
	}
	rc = spmt_uid_create(uid);
	if (rc)
		return rc;
	attr->size = sizeof(*attr);
	attr->nranks = nranks;
	attr->device = -1;
	attr->uid = uid;
	return 0;
}

int spmt_run(int nranks, const struct spmt_attr *common, int (*fn)(spmt_comm *comm, void *arg),
	void *arg)
{
	struct spmt_attr attr;
	struct crew crew = { .work = run_rank, .n = nranks, .attrs = &attr, .fn = fn, .arg = arg };
	spmt_uid uid;
	int rc;

	if (nranks < 1 || !fn)
		return fail(-EINVAL, "spmt_run: %s (nranks %d)",
			fn ? "a world has at least one rank" : "fn is NULL", nranks);
	rc = run_attr(nranks, common, &uid, &attr);
	if (rc)
		return rc;
	crew.comms = mem_calloc((size_t)nranks, sizeof(*crew.comms));
	if (!crew.comms)
		return fail(-ENOMEM, "spmt_run: out of memory for %d ranks", nranks);
	rc = crew_run(&crew, run_ended);
	mem_free(crew.comms);
	return rc;
}

/* ---- spmt_init_all, spmt_each -------------------------------------------------------------- */

static int init_rank(struct crew *crew, int i)
{
	return spmt_init(&crew->attrs[i], &crew->comms[i]);
}

/* uid NULL everywhere: a new world. Members of struct spmt_attr are read by its size, which init
   checks. */
static int own_world(int n, struct spmt_attr *attrs, spmt_uid *uid)
{
	int rc = 0;

	for (int i = 0; i < n; i++)
		if (attrs[i].uid)
			return 0;
	rc = spmt_uid_create(uid);
	for (int i = 0; !rc && i < n; i++)
		attrs[i].uid = uid;
	return rc;
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
	struct crew crew = { .work = init_rank, .n = n };
	struct spmt_attr *own = NULL;
	struct status_saved saved;
	spmt_uid uid;
	int rc;

	if (n < 1 || !attrs || !comms)
		return fail(-EINVAL, "spmt_init_all: %s (n %d)",
			n < 1 ? "n is below 1" : "attrs or comms is NULL", n);
	own = mem_calloc((size_t)n, sizeof(*own));
	crew.comms = mem_calloc((size_t)n, sizeof(*crew.comms));
	rc = own && crew.comms ? 0 : fail(-ENOMEM, "spmt_init_all: out of memory for %d ranks", n);
	if (!rc) {
		memcpy(own, attrs, (size_t)n * sizeof(*own));
		rc = own_world(n, own, &uid);
	}
	if (!rc) {
		crew.attrs = own;
		rc = crew_run(&crew, NULL);
		if (!rc)
			memcpy(comms, crew.comms, (size_t)n * sizeof(*comms));
	}
	if (rc && crew.comms) {
		status_save(&saved);
		undo_all(n, crew.comms);
		status_restore(&saved);
	}
	mem_free(crew.comms);
	mem_free(own);
	return rc;
}

static int each_rank(struct crew *crew, int i)
{
	return crew->fn(crew->given[i], crew->arg);
}

int spmt_each(int n, spmt_comm *const *comms, int (*fn)(spmt_comm *comm, void *arg), void *arg)
{
	struct crew crew = { .work = each_rank, .n = n, .given = comms, .fn = fn, .arg = arg };

	if (n < 1 || !comms || !fn)
		return fail(-EINVAL, "spmt_each: %s (n %d)",
			n < 1 ? "n is below 1" : "comms or fn is NULL", n);
	return crew_run(&crew, NULL);
}
