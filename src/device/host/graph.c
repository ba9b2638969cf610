/* SPDX-License-Identifier: MIT */
/*
 * A graph is a tape: the ops that were pushed, one behind the other in one block. A launch copies the block, for kernels may write
 * to their arguments, so that a graph may be destroyed while it runs.
 */
#include "graph.h"

#include <errno.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "stream.h"

#define GRAPH_ALIGN ((size_t)16)

struct graph_user {
	struct graph_user *next;
	const void *user;
};

struct host_graph {
	struct host_graph *next; /* in the pool or, under the state's lock, in the list of graphs */
	_Atomic bool live, capturing;
	int dev;
	struct host_op *head,
		**tail; /* this paragraph: under the stream's lock while it is captured, then constant */
	unsigned char *tape;
	size_t size;

	pthread_mutex_t
		lock; /* guards the rest, and tape; before locks of streams, behind the state's */
	struct graph_user *users;   /* they outlive a graph that is destroyed while it runs */
	bool orphan;		    /* one of them has ended */
	struct host_stream *stream; /* of the last launch; NULL: none */
	uint64_t ticket;
};

static size_t graph_op_size(const struct host_op *op)
{
	return align_up(sizeof(*op) + op->extra, GRAPH_ALIGN);
}

/* ---- objects ------------------------------------------------------------------------------- */

/* Under g->lock. */
static bool graph_runs(const struct host_graph *g)
{
	return g->stream && !host_stream_served(g->stream, g->ticket);
}

/* Under g->lock, or of one that nobody else knows. */
static void graph_empty(struct host_graph *g)
{
	struct host_op *op;

	while ((op = g->head)) {
		g->head = op->next;
		mem_free(op);
	}
	mem_free(g->tape);
	g->tape = NULL;
}

/* Under the state's lock. */
static bool graph_is_over(struct host_state *st, struct host_graph *g)
{
	struct graph_user *u;
	bool over;

	if (atomic_load(&g->live))
		return false;
	pthread_mutex_lock(&g->lock);
	over = !graph_runs(g);
	while (over && (u = g->users)) {
		g->users = u->next;
		host_pool_put(&st->graph_users, u);
	}
	pthread_mutex_unlock(&g->lock);
	return over;
}

/* Gives back what was destroyed and runs no more. Under the state's lock. */
static void graphs_sweep(struct host_state *st)
{
	struct host_graph **at = &st->graph_list, *g;

	while ((g = *at)) {
		if (!graph_is_over(st, g)) {
			at = &g->next;
			continue;
		}
		*at = g->next;
		host_pool_put(&st->graphs, g);
	}
}

static struct host_graph *graph_new(int dev)
{
	struct host_state *st = host_state();
	struct host_graph *g;

	pthread_mutex_lock(&st->lock);
	graphs_sweep(st);
	g = host_pool_get(&st->graphs, sizeof(*g));
	if (g) {
		pthread_mutex_lock(&g->lock);
		g->dev = dev;
		g->head = NULL;
		g->tail = &g->head;
		g->tape = NULL;
		g->size = 0;
		g->users = NULL;
		g->orphan = false;
		g->stream = NULL;
		pthread_mutex_unlock(&g->lock);
		g->next = st->graph_list;
		st->graph_list = g;
		atomic_store(&g->capturing, true);
		atomic_store(&g->live, true);
	}
	pthread_mutex_unlock(&st->lock);
	return g;
}

/* False: it was no more. */
static bool graph_drop(struct host_graph *g)
{
	struct host_state *st = host_state();
	bool live;

	pthread_mutex_lock(&st->lock);
	live = atomic_exchange(&g->live, false);
	if (live) {
		pthread_mutex_lock(&g->lock);
		graph_empty(g);
		pthread_mutex_unlock(&g->lock);
	}
	graphs_sweep(st);
	pthread_mutex_unlock(&st->lock);
	return live;
}

static bool graph_is_live(const struct host_graph *g)
{
	struct host_state *st = host_state();

	return st && host_pool_holds(&st->graphs, g, sizeof(*g)) && atomic_load(&g->live) &&
		!atomic_load(&g->capturing);
}

static int graph_unknown(const struct host_graph *g, const char *op)
{
	return fail(-EBADF, "host: %s: %p is not a live graph", op, (const void *)g);
}

/* ---- capture ------------------------------------------------------------------------------- */

bool host_graph_capturing(int dev, device_stream stream)
{
	struct host_stream *s = stream;

	if (stream == DEVICE_STREAM_LEGACY || stream == DEVICE_STREAM_PER_THREAD)
		return false;
	return host_stream_device(stream) == dev && atomic_load(&s->capture);
}

int host_graph_begin(int dev, device_stream stream)
{
	int rc;
	struct host_stream *s = host_stream_find(dev, stream, "graph_begin", &rc);
	struct host_graph *g, *was = NULL;
	bool live;

	if (!s)
		return rc;
	if (fault_here(FAULT_DEVICE))
		return fail_errno(fault_errno(FAULT_DEVICE), "host: graph_begin on device %d", dev);
	g = graph_new(dev);
	if (!g)
		return fail(-ENOMEM, "host: graph_begin on device %d: no memory for a graph", dev);
	pthread_mutex_lock(&s->lock);
	live = atomic_load(&s->live);
	if (live)
		was = atomic_load(&s->capture);
	if (live && !was)
		atomic_store(&s->capture, g);
	pthread_mutex_unlock(&s->lock);
	if (live && !was)
		return 0;
	graph_drop(g);
	return fail(was ? -EBUSY : -EINVAL, "host: graph_begin on device %d: the stream %s", dev,
		was ? "is being captured already" : "was destroyed");
}

int host_graph_keep(struct host_graph *g, struct host_op *op)
{
	if (op->once)
		return SPMT_ERR_UNSUPPORTED;
	op->next = NULL;
	*g->tail = op;
	g->tail = &op->next;
	g->size += graph_op_size(op);
	return 0;
}

/* The ops become the tape. Under g->lock. */
static int graph_write(struct host_graph *g)
{
	unsigned char *at = mem_aligned(CACHE_LINE, align_up(MAX_OF(g->size, 1), CACHE_LINE));
	struct host_op *op;

	if (!at)
		return -ENOMEM;
	g->tape = at;
	while ((op = g->head)) {
		memcpy(at, op, sizeof(*op) + op->extra);
		at += graph_op_size(op);
		g->head = op->next;
		mem_free(op);
	}
	return 0;
}

int host_graph_end(int dev, device_stream stream, struct host_graph **graph)
{
	int rc;
	struct host_stream *s = host_stream_find(dev, stream, "graph_end", &rc);
	struct host_graph *g;
	bool orphan = false;

	if (!s)
		return rc;
	pthread_mutex_lock(&s->lock);
	g = atomic_exchange(&s->capture, NULL);
	pthread_mutex_unlock(&s->lock);
	if (!g)
		return fail(-EINVAL,
			"host: graph_end on device %d: the stream is not being captured", dev);
	pthread_mutex_lock(&g->lock);
	orphan = g->orphan;
	rc = orphan ? -EBADF : graph_write(g);
	pthread_mutex_unlock(&g->lock);
	if (!rc) {
		atomic_store(&g->capturing, false);
		*graph = g;
		return 0;
	}
	graph_drop(g);
	return fail(rc, "host: graph_end on device %d: %s", dev,
		orphan ? "a comm or plan whose work was captured has ended"
		       : "no memory for what was captured");
}

void host_graph_abandon(struct host_graph *g)
{
	if (g)
		graph_drop(g);
}

/* ---- launches ------------------------------------------------------------------------------ */

/* As a stream works off its ops: none behind one that fails, and each on a thread that is as new. */
static int run_graph(const struct host_op *graph)
{
	size_t at = 0;
	int rc = 0;

	while (at < graph->extra && !rc) {
		const struct host_op *op = (const void *)(graph->args + at);

		host_bind(op->dev);
		(void)host_get_error();
		rc = op->run(op);
		at += graph_op_size(op);
	}
	return rc;
}

/* Unlike what waits for an event this runs whether or not the launch before has failed: that is told in its own stream. */
static int run_behind(const struct host_op *op)
{
	host_stream_await(op->after.stream, op->after.ticket, -1, NULL);
	return 0;
}

/* s waits for the graph's last launch. Under g->lock. */
static int graph_behind(const struct host_graph *g, struct host_stream *s)
{
	struct host_op *op;
	int rc;

	if (!graph_runs(g) || g->stream == s)
		return 0;
	op = host_op_new(s, run_behind, 0);
	if (!op)
		return fail(
			-ENOMEM, "host: graph_launch on device %d: no memory to queue it", s->dev);
	op->once = true;
	op->after.stream = g->stream;
	op->after.ticket = g->ticket;
	rc = host_stream_push(op, "graph_launch", NULL);
	if (rc)
		mem_free(op);
	return rc;
}

/* Under g->lock. */
static int graph_push(struct host_graph *g, struct host_stream *s)
{
	struct host_op *op = host_op_new(s, run_graph, g->size);
	uint64_t ticket;
	int rc;

	if (!op)
		return fail(
			-ENOMEM, "host: graph_launch on device %d: no memory to queue it", s->dev);
	op->once = true;
	memcpy(op->args, g->tape, g->size);
	rc = graph_behind(g, s);
	if (!rc)
		rc = host_stream_push(op, "graph_launch", &ticket);
	if (rc) {
		mem_free(op);
		return rc;
	}
	g->stream = s;
	g->ticket = ticket;
	return 0;
}

int host_graph_launch(int dev, struct host_graph *g, device_stream stream)
{
	struct host_stream *s;
	int rc;

	if (!graph_is_live(g))
		return graph_unknown(g, "graph_launch");
	s = host_stream_find(dev, stream, "graph_launch", &rc);
	if (!s)
		return rc;
	if (fault_here(FAULT_DEVICE))
		return fail_errno(
			fault_errno(FAULT_DEVICE), "host: graph_launch on device %d", dev);
	pthread_mutex_lock(&g->lock);
	if (!graph_is_live(g))
		rc = graph_unknown(g, "graph_launch");
	else if (g->dev != dev)
		rc = fail(-EINVAL, "host: graph_launch on device %d: the graph is one of device %d",
			dev, g->dev);
	else if (g->orphan)
		rc = fail(-EBADF,
			"host: graph_launch on device %d: a comm or plan whose work the graph holds has ended",
			dev);
	else
		rc = graph_push(g, s);
	pthread_mutex_unlock(&g->lock);
	return rc;
}

int host_graph_destroy(struct host_graph *g)
{
	return graph_is_live(g) && graph_drop(g) ? 0 : graph_unknown(g, "graph_destroy");
}

/* ---- what graphs use ------------------------------------------------------------------------- */

static int graph_uses(int dev, device_stream stream, const void *user)
{
	int rc;
	struct host_stream *s = host_stream_find(dev, stream, "graph_uses", &rc);
	struct host_graph *g = s ? atomic_load(&s->capture) : NULL;
	struct host_state *st = host_state();
	struct graph_user *u;

	if (!g)
		return rc;
	pthread_mutex_lock(&st->lock);
	pthread_mutex_lock(&g->lock);
	for (u = g->users; u && u->user != user;)
		u = u->next;
	if (!u) {
		u = host_pool_get(&st->graph_users, sizeof(*u));
		if (u) {
			*u = (struct graph_user){ g->users, user };
			g->users = u;
		}
	}
	pthread_mutex_unlock(&g->lock);
	pthread_mutex_unlock(&st->lock);
	return u ? 0
		 : fail(-ENOMEM, "host: no memory to capture work of device %d into a graph", dev);
}

/* Under g->lock. */
static bool graph_has(const struct host_graph *g, const void *user)
{
	const struct graph_user *u = g->users;

	while (u && u->user != user)
		u = u->next;
	return u;
}

/* The launches that go on of all that use it: of the first, where it is, or with `join` that stream waits for each. */
static int graphs_running(
	const void *user, struct host_stream *join, struct host_stream **stream, uint64_t *ticket)
{
	struct host_state *st = host_state();
	int rc = 0;

	*stream = NULL;
	pthread_mutex_lock(&st->lock);
	graphs_sweep(st);
	for (struct host_graph *g = st->graph_list; g && !rc && !*stream; g = g->next) {
		pthread_mutex_lock(&g->lock);
		if (graph_has(g, user)) {
			g->orphan = true;
			if (join) {
				rc = graph_behind(g, join);
			} else if (graph_runs(g)) {
				*stream = g->stream;
				*ticket = g->ticket;
			}
		}
		pthread_mutex_unlock(&g->lock);
	}
	pthread_mutex_unlock(&st->lock);
	return rc;
}

static bool graph_settle(const void *user, int64_t deadline)
{
	struct host_stream *s;
	uint64_t ticket;

	for (;;) {
		graphs_running(user, NULL, &s, &ticket);
		if (!s)
			return true;
		if (host_stream_await(s, ticket, process_left(deadline), NULL))
			return false;
	}
}

static int graph_join(int dev, device_stream stream, const void *user)
{
	struct host_stream *s, *none;
	uint64_t ticket;
	int rc;

	s = host_stream_find(dev, stream, "graph_join", &rc);
	return s ? graphs_running(user, s, &none, &ticket) : rc;
}

const struct device_graph_ops host_graph_ops = {
	.uses = graph_uses,
	.settle = graph_settle,
	.join = graph_join,
};
