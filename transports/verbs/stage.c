/* SPDX-License-Identifier: MIT */
#include "stage.h"

#include <errno.h>

#include "src/base/fault.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"

#define STAGE_NS 30000000000ll /* that a copy of a chunk may take */

/* ---- what a device does ----------------------------------------------------------------------- */

static int device_wait(const struct stage *s)
{
	int rc = s->backend->stream_sync(s->dev, s->stream, STAGE_NS, NULL);

	return rc == -ETIMEDOUT ? fail(rc, "device %d has not moved a chunk in time", s->dev) : rc;
}

int device_move(const struct stage *s, void *dst, const void *src, size_t n)
{
	int rc = s->backend->copy(s->dev, dst, src, n, s->stream);

	return rc ? rc : device_wait(s);
}

int device_atomic(const struct stage *s, const struct ask_message *ask, uint64_t *old)
{
	struct kernel_atomic_args args = { .target = ask->at,
		.operand = ask->operand,
		.compare = ask->compare,
		.fetched = (uintptr_t)s->word_dev,
		.amo = (int32_t)ask->op,
		.type = ask->size == 4 ? SPMT_TYPE_U32 : SPMT_TYPE_U64,
		.pe = -1 };
	int rc = s->backend->launch(s->dev, s->stream, &kernel_atomic, 1, 1, &args, sizeof(args));

	if (!rc)
		rc = device_wait(s);
	if (!rc)
		*old = __atomic_load_n(s->word, __ATOMIC_ACQUIRE);
	return rc;
}

void stage_busy(struct nic *nic, const struct stage *stage, const struct region *region)
{
	nic->stager->busy = stage;
	nic->stager->region = region;
	pthread_mutex_unlock(&nic->lock);
}

void stage_done(struct nic *nic)
{
	pthread_mutex_lock(&nic->lock);
	nic->stager->busy = NULL;
	nic->stager->region = NULL;
	nic->stager->moving = NULL;
	pthread_cond_broadcast(&nic->stager->changed);
}

/* ---- this port's own moves -------------------------------------------------------------------- */

static void job_put(struct nic *nic, const struct stage_job *job)
{
	struct stager *st = nic->stager;
	struct stage_job *slot = &st->jobs[job->land.chunk];

	*slot = *job;
	if (st->first)
		st->last->next = slot;
	else
		st->first = slot;
	st->last = slot;
	pthread_cond_broadcast(&st->changed);
}

void stage_out(struct pairing *c, const struct landing *land, const struct rdma_place *far,
	const char *src, bool tells)
{
	c->held++;
	c->held_asks += far->staged;
	land->sender->held++;
	job_put(c->nic,
		&(struct stage_job){ .c = c,
			.land = *land,
			.far = *far,
			.src = src,
			.tells = tells,
			.asked = far->staged });
}

void stage_in(struct pairing *c, const struct landing *land, bool asked)
{
	job_put(c->nic, &(struct stage_job){ .c = c, .land = *land, .in = true, .asked = asked });
}

static void job_post(struct stage_job *job)
{
	struct pairing *c = job->c;
	struct leg leg = { .at = (uintptr_t)chunk_at(c->nic, job->land.chunk),
		.n = job->land.n,
		.lkey = c->nic->bounce->lkey,
		.rkey = c->nic->bounce->rkey };
	int rc = leg_post(c, &job->far, &leg, &job->land, true, job->tells);

	if (rc)
		landing_end(c, &job->land, rc, job->asked);
	else
		post_ring(c); /* where that fails, the connection has told of it */
}

/* What held room has it no longer. */
static void job_let_go(struct stage_job *job)
{
	if (job->in)
		return;
	job->c->held--;
	job->c->held_asks -= job->asked;
	job->land.sender->held--;
}

static void job_end(struct stage_job *job, int rc)
{
	struct landing land = job->land;

	job_let_go(job);
	if (!job->in && !rc && job->c->state == CONN_FAILED)
		rc = job->c->code;
	if (!job->in && !rc) {
		job_post(job);
		return;
	}
	if (rc == -ETIMEDOUT) /* the device may still be at it: the chunk is lost */
		land.chunk = -1;
	land.dst = NULL;
	landing_end(job->c, &land, rc, job->asked);
}

static bool job_step(struct nic *nic)
{
	struct stager *st = nic->stager;
	struct stage_job *job = st->first;
	char *chunk;
	int rc;

	if (!job)
		return false;
	st->first = job->next;
	if (job->land.sender->deaf) {
		job_end(job, -ECANCELED);
		nic_stir(nic);
		return true;
	}
	chunk = chunk_at(nic, job->land.chunk);
	st->moving = job->land.sender;
	stage_busy(nic, job->land.stage, NULL);
	rc = device_move(job->land.stage, job->in ? job->land.dst : chunk,
		job->in ? chunk : job->src, job->land.n);
	stage_done(nic);
	job_end(job, rc);
	nic_stir(nic);
	return true;
}

/* ---- the thread ------------------------------------------------------------------------------- */

static void *stager_run(void *arg)
{
	struct nic *nic = arg;
	bool some;

	pthread_mutex_lock(&nic->lock);
	while (!nic->stager->closing) {
		some = job_step(nic);
		some |= serve_step(nic);
		if (!some && !nic->stager->closing)
			pthread_cond_wait(&nic->stager->changed, &nic->lock);
	}
	pthread_mutex_unlock(&nic->lock);
	return NULL;
}

static void stager_free(struct nic *nic, struct stager *st)
{
	int rc = st->mr ? nic->api->dereg_mr(st->mr) : 0;

	if (rc)
		log_line(LOG_ERROR, "%s: ibv_dereg_mr: %d", nic->place.name, rc);
	pthread_cond_destroy(&st->changed);
	process_pages_free(st->chunks, STAGE_CHUNKS * NIC_CHUNK);
	mem_free(st);
}

static int stager_fill(struct nic *nic, struct stager *st)
{
	int rc = chunks_open(nic, STAGE_CHUNKS * NIC_CHUNK, &st->chunks, &st->mr);

	for (int i = 0; i < STAGE_CHUNKS; i++)
		st->free_chunks[st->nfree++] = i;
	if (rc)
		return rc;
	nic->stager = st;
	rc = fault_here(FAULT_THREAD) ? EAGAIN : process_thread(&st->thread, 0, stager_run, nic);
	if (!rc)
		return 0;
	nic->stager = NULL;
	return fail_errno(
		rc, "%s: no thread that moves what the CPU does not reach", nic->place.name);
}

/* Under the lock. */
static int stager_start(struct nic *nic)
{
	struct stager *st;
	int rc;

	if (nic->stager)
		return 0;
	st = mem_calloc(1, sizeof(*st));
	if (!st)
		return fail(-ENOMEM, "%s: out of memory for a stage", nic->place.name);
	pthread_cond_init(&st->changed, NULL);
	rc = stager_fill(nic, st);
	if (rc) {
		KEEPS_SENTENCE;
		stager_free(nic, st);
	}
	return rc;
}

void stager_stop(struct nic *nic)
{
	struct stager *st = nic->stager;

	if (!st)
		return;
	pthread_mutex_lock(&nic->lock);
	st->closing = true;
	pthread_cond_broadcast(&st->changed);
	pthread_mutex_unlock(&nic->lock);
	pthread_join(st->thread, NULL);
	while (st->first) {
		struct stage_job *job = st->first;

		st->first = job->next;
		job_end(job, -ECANCELED);
	}
	nic->stager = NULL;
	stager_free(nic, st);
}

void stage_wake(struct nic *nic)
{
	if (nic->stager)
		pthread_cond_broadcast(&nic->stager->changed);
}

bool stage_serves(const struct nic *nic)
{
	return nic->stager && nic->stager->serving;
}

void stage_part(const struct sender *sender)
{
	struct nic *nic = sender->conn->nic;

	while (nic->stager && nic->stager->moving == sender)
		pthread_cond_wait(&nic->stager->changed, &nic->lock);
}

void stage_leave(struct nic *nic, const struct region *region)
{
	while (nic->stager && nic->stager->region == region)
		pthread_cond_wait(&nic->stager->changed, &nic->lock);
}

/* ---- a rank's device -------------------------------------------------------------------------- */

static int stage_fill(struct stage *s)
{
	void *host;
	int rc = s->backend->stream_create(s->dev, &s->stream);

	if (rc)
		return rc;
	rc = s->backend->host_alloc(s->dev, sizeof(*s->word), &host, &s->word_dev);
	if (!rc)
		s->word = host;
	return rc;
}

static void stage_free(struct stage *s)
{
	int rc = s->word ? s->backend->host_free(s->dev, s->word) : 0;

	if (s->stream)
		rc |= s->backend->stream_destroy(s->dev, s->stream);
	if (rc)
		log_line(LOG_ERROR, "device %d: a stage is not given back (%d)", s->dev, rc);
	mem_free(s);
}

int stage_open(struct nic *nic, const struct backend *backend, int dev, struct stage **out)
{
	struct stage *s = mem_calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return fail(-ENOMEM, "%s: out of memory for a stage", nic->place.name);
	s->backend = backend;
	s->dev = dev;
	rc = stage_fill(s);
	if (!rc) {
		pthread_mutex_lock(&nic->lock);
		rc = stager_start(nic);
		pthread_mutex_unlock(&nic->lock);
	}
	if (!rc) {
		*out = s;
		return 0;
	}
	KEEPS_SENTENCE;
	stage_free(s);
	return rc;
}

/* Bytes that still come for its rank go nowhere. */
static void landings_forget(struct pairing *c, const struct stage *s)
{
	for (uint32_t i = c->head; i != c->tail; i++)
		if (c->sent[i % CONN_RING].land.stage == s)
			c->sent[i % CONN_RING].land.dst = NULL;
	for (uint64_t i = c->answered + 1; i <= c->asked; i++)
		if (c->asks[i % CONN_ASKS].land.stage == s)
			c->asks[i % CONN_ASKS].land.dst = NULL;
}

static void jobs_forget(struct stager *st, const struct stage *s)
{
	struct stage_job *job = st->first, *next;

	for (st->first = NULL; job; job = next) {
		next = job->next;
		job->next = NULL;
		if (job->land.stage == s) {
			job_end(job, -ECANCELED);
			continue;
		}
		if (st->first)
			st->last->next = job;
		else
			st->first = job;
		st->last = job;
	}
}

void stage_close(struct nic *nic, struct stage *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&nic->lock);
	for (int i = 0; i < nic->nconns; i++)
		landings_forget(nic->conns[i], s);
	jobs_forget(nic->stager, s);
	while (nic->stager->busy == s)
		pthread_cond_wait(&nic->stager->changed, &nic->lock);
	pthread_mutex_unlock(&nic->lock);
	stage_free(s);
}
