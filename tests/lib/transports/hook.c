/* SPDX-License-Identifier: MIT */
#include "hook.h"

#include <errno.h>
#include <time.h>

#include "src/base/log.h"
#include "src/base/mem.h"
#include "src/base/status.h"

enum { SMALL, LARGE };
enum { PUTS, GETS, BYTES, FENCES, QUIETS, FAILURES, COUNTS };

struct hook {
	struct hook_config config;
	const struct mover_ops *inner[2];
	bool direct;			 /* the link's own */
	uint64_t moves;			 /* seen so far */
	_Atomic uint64_t counts[COUNTS]; /* written by the link's thread, read by any */
};

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
static int before(struct link *link, int which, const char *name, uint64_t n)
{
	struct hook *hook = link->hook;
	const struct hook_config *c = &hook->config;

	if (c->trace)
		log_line(LOG_INFO, "rank %d: %s %s of %llu bytes, rank %d", link->rank,
			hook->inner[which]->name, name, (unsigned long long)n, link->pe);
	pause_us(c->delay_us);
	if (++hook->moves != c->fail_at)
		return 0;
	return fail(c->fail_code ? c->fail_code : -EIO,
		"%s of %llu bytes from rank %d to rank %d: failed by a hook, as asked", name,
		(unsigned long long)n, link->rank, link->pe);
}

static int hook_move(struct link *link, int which, int what, void *dst, const void *src, size_t n,
	enum move_mode mode, device_stream stream)
{
	struct hook *hook = link->hook;
	const struct mover_ops *inner = hook->inner[which];
	int rc = before(link, which, what == PUTS ? "put" : "get", n);

	hook_count(hook, what, 1);
	hook_count(hook, BYTES, n);
	if (!rc)
		rc = (what == PUTS ? inner->put : inner->get)(link, dst, src, n, mode, stream);
	return result(hook, rc);
}

static int small_put(struct link *link, void *remote, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	return hook_move(link, SMALL, PUTS, remote, local, n, mode, stream);
}

static int small_get(struct link *link, void *local, const void *remote, size_t n,
	enum move_mode mode, device_stream stream)
{
	return hook_move(link, SMALL, GETS, local, remote, n, mode, stream);
}

static int large_put(struct link *link, void *remote, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	return hook_move(link, LARGE, PUTS, remote, local, n, mode, stream);
}

static int large_get(struct link *link, void *local, const void *remote, size_t n,
	enum move_mode mode, device_stream stream)
{
	return hook_move(link, LARGE, GETS, local, remote, n, mode, stream);
}

static int hook_complete(struct link *link, int which, int what)
{
	struct hook *hook = link->hook;
	const struct mover_ops *inner = hook->inner[which];

	if (hook->config.trace)
		log_line(LOG_INFO, "rank %d: %s %s, rank %d", link->rank, inner->name,
			what == FENCES ? "fence" : "quiet", link->pe);
	hook_count(hook, what, 1);
	return result(hook, (what == FENCES ? inner->fence : inner->quiet)(link));
}

static int small_fence(struct link *link)
{
	return hook_complete(link, SMALL, FENCES);
}

static int small_quiet(struct link *link)
{
	return hook_complete(link, SMALL, QUIETS);
}

static int large_fence(struct link *link)
{
	return hook_complete(link, LARGE, FENCES);
}

static int large_quiet(struct link *link)
{
	return hook_complete(link, LARGE, QUIETS);
}

/* The caller closes whatever small and large are when it looks: after the unwrapping it may see one table or two. */
static void hook_close(struct link *link)
{
	hook_unwrap(link);
	link->small->close(link);
	if (link->large != link->small)
		link->large->close(link);
}

static const struct mover_ops hook_small = {
	.name = "hook",
	.put = small_put,
	.get = small_get,
	.fence = small_fence,
	.quiet = small_quiet,
	.close = hook_close,
};
static const struct mover_ops hook_large = {
	.name = "hook",
	.put = large_put,
	.get = large_get,
	.fence = large_fence,
	.quiet = large_quiet,
	.close = hook_close,
};

int hook_wrap(struct link *link, const struct hook_config *config)
{
	struct hook *hook;

	if (link->hook)
		return fail(-EALREADY, "hook: the link of rank %d to rank %d is wrapped",
			link->rank, link->pe);
	if (config->fail_code > 0)
		return fail(-EINVAL, "hook: fail_code %d is positive", config->fail_code);
	hook = mem_calloc(1, sizeof(*hook));
	if (!hook)
		return fail(-ENOMEM, "hook: no memory to wrap a link");
	hook->config = *config;
	hook->inner[SMALL] = link->small;
	hook->inner[LARGE] = link->large;
	hook->direct = link->direct;
	link->direct = false;
	link->hook = hook;
	link->large = link->large == link->small ? &hook_small : &hook_large;
	link->small = &hook_small;
	return 0;
}

void hook_counts(const struct link *link, struct hook_counts *counts)
{
	uint64_t v[COUNTS] = { 0 };
	struct hook *hook = link->hook;

	for (int i = 0; hook && i < COUNTS; i++)
		v[i] = atomic_load_explicit(&hook->counts[i], memory_order_relaxed);
	*counts = (struct hook_counts){ .puts = v[PUTS],
		.gets = v[GETS],
		.bytes = v[BYTES],
		.fences = v[FENCES],
		.quiets = v[QUIETS],
		.failures = v[FAILURES] };
}

/* large may have become small in between: a mover that fell back. */
void hook_unwrap(struct link *link)
{
	struct hook *hook = link->hook;

	if (!hook)
		return;
	link->large = link->large == &hook_large ? hook->inner[LARGE] : hook->inner[SMALL];
	link->small = hook->inner[SMALL];
	link->direct = hook->direct;
	link->hook = NULL;
	mem_free(hook);
}
