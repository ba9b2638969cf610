/* SPDX-License-Identifier: MIT */
#include "queues.h"

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "transports/sdma/kernel_queue.h"

struct queues {
	struct kernel_table table; /* by rank, struct spmtd_sdma; behind them their words */
	bool any;
	struct sdma_queue *of[]; /* by rank; NULL: none */
};

/* The engine has to reach the heaps: asked of their library areas, as the rest may be committed later. */
static int queue_open(const spmt_comm *comm, int pe, struct sdma_queue **queue)
{
	const struct device_sdma_ops *ops = comm->backend->sdma;
	const struct link *link = &comm->links[pe], *self = &comm->links[comm->rank];

	if (!link->base)
		return fail(SPMT_ERR_UNSUPPORTED, "kernels have no address for its heap");
	if (!ops->reaches(comm->dev, link_at(link, link->own), sizeof(struct spmtd_own)) ||
		!ops->reaches(comm->dev, link_at(self, self->own), sizeof(struct spmtd_own)))
		return fail(SPMT_ERR_UNSUPPORTED, "the engine does not reach the heap");
	return ops->open(comm->dev, link->peer_dev, queue);
}

static void queues_make(const spmt_comm *comm, struct queues *q)
{
	for (int pe = 0; pe < comm->nranks; pe++) {
		if (pe == comm->rank)
			continue;
		if (!queue_open(comm, pe, &q->of[pe]))
			q->any = true;
		else
			log_line(LOG_INFO, "rank %d: kernels feed no copy engine for rank %d: %s",
				comm->rank, pe, status_sentence());
	}
}

/* Room for one after the other, each from a line of its own on. */
static int queues_publish(spmt_comm *comm, struct queues *q)
{
	size_t head = align_up((size_t)comm->nranks * sizeof(struct spmtd_sdma), CACHE_LINE);
	size_t size = head, at = head;
	struct spmtd_sdma *entries;
	int rc;

	for (int pe = 0; pe < comm->nranks; pe++)
		size += q->of[pe] ? align_up(kernel_queue_room(q->of[pe]), CACHE_LINE) : 0;
	rc = table_open(comm, size, &q->table);
	if (!rc)
		rc = table_publish(comm, &q->table); /* now it has its place */
	if (rc)
		return rc;
	entries = q->table.host;
	for (int pe = 0; pe < comm->nranks; pe++) {
		entries[pe] = (struct spmtd_sdma){ .ring = 0 };
		if (!q->of[pe])
			continue;
		kernel_queue_fill(q->of[pe], &entries[pe],
			(uint64_t *)(void *)((char *)q->table.host + at),
			(uintptr_t)q->table.dev + at);
		at += align_up(kernel_queue_room(q->of[pe]), CACHE_LINE);
	}
	return table_publish(comm, &q->table);
}

static void queues_free(spmt_comm *comm, struct queues *q)
{
	for (int pe = 0; pe < comm->nranks; pe++)
		if (q->of[pe])
			comm->backend->sdma->close(q->of[pe]);
	table_close(comm, &q->table);
	mem_free(q);
}

void queues_open(spmt_comm *comm)
{
	struct queues *q = NULL;
	const struct env *env;

	if (LIKELY(comm->queues || env_get(&env) || env->sdma != ENV_SDMA_QUEUES ||
		    !comm->backend->sdma))
		return;
	KEEPS_SENTENCE;
	q = mem_calloc(1, sizeof(*q) + (size_t)comm->nranks * sizeof(q->of[0]));
	if (q)
		queues_make(comm, q);
	if (q && q->any && queues_publish(comm, q)) {
		log_line(LOG_INFO, "rank %d: kernels feed no copy engine: %s", comm->rank,
			status_sentence());
		queues_free(comm, q);
		q = NULL;
	}
	comm->queues = q;
}

void queues_close(spmt_comm *comm)
{
	UNCANCELLED;
	struct queues *q = comm->queues;

	if (!q)
		return;
	comm->queues = NULL;
	queues_free(comm, q);
}

struct spmtd_sdma *queues_device(const spmt_comm *comm)
{
	return comm->queues ? comm->queues->table.dev : NULL;
}

uint64_t queues_told(const spmt_comm *comm, int pe)
{
	const struct sdma_queue *q = comm->queues->of[pe];

	return q ? kernel_queue_told(q) : 0;
}

int queues_query(spmt_comm *comm, int pe, uint64_t told)
{
	struct sdma_queue *q = comm->queues->of[pe];

	return q ? kernel_queue_query(q, told) : 1;
}
