/* SPDX-License-Identifier: MIT */
#include "hook.h"

#include <errno.h>
#include <time.h>

#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/status.h"

enum { PUTS, GETS, BYTES, FENCES, QUIETS, FAILURES, COUNTS };

struct hook {
	struct hook_config config;
	struct mover inner[2];		 /* the link's own, of which the first nmovers count */
	bool direct, by_kernel;		 /* the link's own */
	uint64_t moves;			 /* seen so far */
	_Atomic uint64_t counts[COUNTS]; /* written by the link's thread, read by any */
};

static const struct mover_ops hook_ops;

/* NULL: it is not wrapped. */
static struct hook *hook_of(const struct link *link)
{
	return link->movers[0].ops == &hook_ops ? link->movers[0].state : NULL;
}

/* What m wraps. */
static struct mover *hook_inner(const struct mover *m)
{
	struct hook *hook = m->state;

	return &hook->inner[m - m->link->movers];
}

static void hook_count(struct hook *hook, int what, uint64_t n)
{
	uint64_t v = atomic_load_explicit(&hook->counts[what], memory_order_relaxed);

	atomic_store_explicit(&hook->counts[what], v + n, memory_order_relaxed);
}

static void pause_us(unsigned us)
{
	struct timespec left = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };

	while (us && clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		continue;
}

static int result(struct hook *hook, int rc)
{
	if (rc)
		hook_count(hook, FAILURES, 1);
	return rc;
}

/* What goes before a put or get; negative: it fails here. */
static int before(const struct mover *m, const char *name, uint64_t n)
{
	struct hook *hook = m->state;
	const struct hook_config *c = &hook->config;

	if (c->trace)
		log_line(LOG_INFO, "rank %d: %s %s of %llu bytes, rank %d", m->link->rank,
			hook_inner(m)->ops->name, name, (unsigned long long)n, m->link->pe);
	pause_us(c->delay_us);
	if (++hook->moves != c->fail_at)
		return 0;
	return fail(c->fail_code ? c->fail_code : -EIO,
		"%s of %llu bytes from rank %d to rank %d: failed by a hook, as asked", name,
		(unsigned long long)n, m->link->rank, m->link->pe);
}

static int hook_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	struct mover *inner = hook_inner(m);
	int rc = before(m, "put", n);

	hook_count(m->state, PUTS, 1);
	hook_count(m->state, BYTES, n);
	if (!rc)
		rc = inner->ops->put(inner, offset, local, n, mode, stream);
	return result(m->state, rc);
}

static int hook_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	struct mover *inner = hook_inner(m);
	int rc = before(m, "get", n);

	hook_count(m->state, GETS, 1);
	hook_count(m->state, BYTES, n);
	if (!rc)
		rc = inner->ops->get(inner, local, offset, n, mode, stream);
	return result(m->state, rc);
}

static int hook_signal(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream)
{
	struct mover *inner = hook_inner(m);

	return result(m->state, inner->ops->signal(inner, offset, value, op, stream));
}

static int hook_atomic(struct mover *m, uint64_t offset, const struct amo *amo, uint64_t *old)
{
	struct mover *inner = hook_inner(m);

	return result(m->state, inner->ops->atomic(inner, offset, amo, old));
}

static void hook_completes(const struct mover *m, int what)
{
	struct hook *hook = m->state;

	if (hook->config.trace)
		log_line(LOG_INFO, "rank %d: %s %s, rank %d", m->link->rank,
			hook_inner(m)->ops->name, what == FENCES ? "fence" : "quiet", m->link->pe);
	hook_count(hook, what, 1);
}

static int hook_fence(struct mover *m, struct move_wait *wait)
{
	struct mover *inner = hook_inner(m);

	hook_completes(m, FENCES);
	return result(m->state, inner->ops->fence(inner, wait));
}

static int hook_quiet(struct mover *m, struct move_wait *wait)
{
	struct mover *inner = hook_inner(m);

	hook_completes(m, QUIETS);
	return result(m->state, inner->ops->quiet(inner, wait));
}

/* Of the first of two: the caller finds the second unwrapped. */
static void hook_close(struct mover *m)
{
	hook_unwrap(m->link);
	m->ops->close(m);
}

static const struct mover_ops hook_ops = {
	.name = "hook",
	.put = hook_put,
	.get = hook_get,
	.signal = hook_signal,
	.atomic = hook_atomic,
	.fence = hook_fence,
	.quiet = hook_quiet,
	.close = hook_close,
};

int hook_wrap(struct link *link, const struct hook_config *config)
{
	struct hook *hook;

	if (hook_of(link))
		return fail(-EALREADY, "hook: the link of rank %d to rank %d is wrapped",
			link->rank, link->pe);
	if (config->fail_code > 0)
		return fail(-EINVAL, "hook: fail_code %d is positive", config->fail_code);
	hook = mem_calloc(1, sizeof(*hook));
	if (!hook)
		return fail(-ENOMEM, "hook: no memory to wrap a link");
	hook->config = *config;
	hook->direct = link->direct;
	hook->by_kernel = link->by_kernel;
	link->direct = link->by_kernel = false;
	for (int i = 0; i < link->nmovers; i++) {
		hook->inner[i] = link->movers[i];
		link->movers[i].ops = &hook_ops;
		link->movers[i].state = hook;
	}
	return 0;
}

void hook_counts(const struct link *link, struct hook_counts *counts)
{
	uint64_t v[COUNTS] = { 0 };
	struct hook *hook = hook_of(link);

	for (int i = 0; hook && i < COUNTS; i++)
		v[i] = atomic_load_explicit(&hook->counts[i], memory_order_relaxed);
	*counts = (struct hook_counts){ .puts = v[PUTS],
		.gets = v[GETS],
		.bytes = v[BYTES],
		.fences = v[FENCES],
		.quiets = v[QUIETS],
		.failures = v[FAILURES] };
}

void hook_unwrap(struct link *link)
{
	struct hook *hook = hook_of(link);

	if (!hook)
		return;
	for (int i = 0; i < link->nmovers; i++)
		link->movers[i] = hook->inner[i];
	link->direct = hook->direct;
	link->by_kernel = hook->by_kernel;
	mem_free(hook);
}
