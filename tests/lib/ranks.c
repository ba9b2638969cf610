/* SPDX-License-Identifier: MIT */
#include "ranks.h"

#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "machines.h"

struct crew;

struct member {
	struct crew *crew;
	int index;
	pthread_t thread;
	_Atomic(const char *) file;
	_Atomic int line;
	_Atomic bool done;
	_Atomic(spmt_comm *) comm;
};

struct crew {
	int n, finished;
	int seconds; /* deadline; the environment tells, which the threads may write */
	int (*fn)(int index, void *arg);
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int code; /* the first failure */
	int64_t failed_ns;
	char message[768];
	struct member *members;
};

static struct {
	_Atomic int deadline; /* seconds, 0: default */
} config;

static _Thread_local struct {
	struct member *member; /* of the crew this thread belongs to */
	char message[768];
	int64_t failed_ns;
} self;

/* ---- threads ------------------------------------------------------------------------------------------------------ */

void ranks_deadline(int seconds)
{
	atomic_store(&config.deadline, seconds);
}

static int deadline_s(void)
{
	int s = atomic_load(&config.deadline);

	return (s				    ? s
			       : machine_here() < 0 ? 60
						    : 60 * MACHINES_SLOW) *
		(SANITIZED ? 4 : 1) +
		opening_s();
}

const char *ranks_message(void)
{
	return self.message;
}

int64_t ranks_failed_ns(void)
{
	return self.failed_ns;
}

void ranks_at(const char *file, int line)
{
	struct member *m = self.member;

	if (!m)
		return;
	atomic_store_explicit(&m->file, file, memory_order_relaxed);
	atomic_store_explicit(&m->line, line, memory_order_relaxed);
}

void ranks_watch(spmt_comm *comm)
{
	if (self.member)
		atomic_store(&self.member->comm, comm);
}

/* The first failure of the crew counts, be it from a check or a code that a function returned. */
static void crew_failed(struct crew *c, int code, const char *message)
{
	pthread_mutex_lock(&c->lock);
	if (!c->code) {
		c->code = code;
		c->failed_ns = now_ns();
		snprintf(c->message, sizeof(c->message), "%s", message);
	}
	pthread_mutex_unlock(&c->lock);
}

int ranks_fail(const char *fmt, ...)
{
	struct member *m = self.member;
	char text[512], line[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!m) {
		snprintf(self.message, sizeof(self.message), "%s", text);
		return RANKS_FAILED;
	}
	snprintf(line, sizeof(line), "thread %d, %s:%d: %s", m->index, atomic_load(&m->file),
		atomic_load(&m->line), text);
	crew_failed(m->crew, RANKS_FAILED, line);
	return RANKS_FAILED;
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	struct crew *c = m->crew;
	char line[700];
	int code;

	self.member = m;
	code = c->fn(m->index, c->arg);
	self.member = NULL;
	if (code) {
		snprintf(line, sizeof(line), "thread %d returned %d: %s", m->index, code,
			spmt_last_error());
		crew_failed(c, code, line);
	}
	pthread_mutex_lock(&c->lock);
	atomic_store(&m->done, true);
	c->finished++;
	pthread_cond_signal(&c->changed);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* With c->lock held: true when `finished` reached `n` in time. */
static bool crew_wait(struct crew *c, int n, int seconds)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += seconds;
	while (c->finished < n)
		if (pthread_cond_timedwait(&c->changed, &c->lock, &until) == ETIMEDOUT)
			return c->finished >= n;
	return true;
}

static void crew_stuck(struct crew *c, int started)
{
	for (int i = 0; i < started; i++) {
		struct member *m = &c->members[i];

		if (atomic_load(&m->done))
			continue;
		fprintf(stderr, "# stuck: thread %d of %d at %s:%d\n", i, started,
			atomic_load(&m->file), atomic_load(&m->line));
		if (atomic_load(&m->comm))
			spmt_abort(atomic_load(&m->comm), -ECANCELED);
	}
}

static void crew_join(struct crew *c, int started)
{
	bool done;

	pthread_mutex_lock(&c->lock);
	done = crew_wait(c, started, c->seconds);
	if (!done) {
		if (!c->code)
			snprintf(c->message, sizeof(c->message), "watchdog: stuck after %d s",
				c->seconds);
		c->code = c->code ? c->code : RANKS_FAILED;
		crew_stuck(c, started);
		done = crew_wait(c, started, 10);
	}
	pthread_mutex_unlock(&c->lock);
	if (!done) {
		fprintf(stderr, "# %s\n# giving up: an abort did not free the threads\n",
			c->message);
		_exit(99);
	}
	for (int i = 0; i < started; i++)
		pthread_join(c->members[i].thread, NULL);
}

static int crew_start(struct crew *c, size_t stack)
{
	pthread_attr_t attr;
	int i;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack);
	for (i = 0; i < c->n; i++) {
		c->members[i].crew = c;
		c->members[i].index = i;
		atomic_store(&c->members[i].file, "start");
		if (pthread_create(&c->members[i].thread, &attr, member_main, &c->members[i])) {
			crew_failed(c, RANKS_FAILED, "pthread_create failed");
			break;
		}
	}
	pthread_attr_destroy(&attr);
	return i;
}

int ranks_threads_stack(int n, size_t stack, int (*fn)(int index, void *arg), void *arg)
{
	struct crew c = {
		.n = n,
		.seconds = deadline_s(),
		.fn = fn,
		.arg = arg,
		.lock = PTHREAD_MUTEX_INITIALIZER,
	};
	pthread_condattr_t clock;

	c.members = calloc((size_t)n, sizeof(*c.members));
	if (!c.members)
		abort();
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&c.changed, &clock);
	pthread_condattr_destroy(&clock);
	crew_join(&c, crew_start(&c, stack));
	pthread_cond_destroy(&c.changed);
	free(c.members);
	snprintf(self.message, sizeof(self.message), "%s", c.code ? c.message : "");
	self.failed_ns = c.code ? c.failed_ns : 0;
	return c.code;
}

int ranks_threads(int n, int (*fn)(int index, void *arg), void *arg)
{
	return ranks_threads_stack(n, SANITIZED ? 8u << 20 : 256u << 10, fn, arg);
}

/* ---- ranks -------------------------------------------------------------------------------------------------------- */

struct world {
	struct spmt_attr attr;
	const int *devices;
	bool shared; /* by two machines */
	int (*fn)(spmt_comm *, void *);
	void *arg;
};

struct spmt_attr ranks_attr(int rank, int nranks, const spmt_uid *uid)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.rank = rank;
	attr.nranks = nranks;
	attr.uid = uid;
	attr.device = device_of(rank);
	attr.heap_size = 4u << 20;
	return attr;
}

/* index: of the thread; where two machines share the ranks, each has every other one. */
static int world_main(int index, void *arg)
{
	struct world *w = arg;
	struct spmt_attr attr = w->attr;
	spmt_comm *comm = NULL;
	int code, end;
	int rank = w->shared ? 2 * index + machine_here() : index;
	bool broken;

	attr.rank = rank;
	attr.device = w->devices ? w->devices[rank] : device_of(rank);
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	code = w->fn(comm, w->arg);
	if (code)
		spmt_abort(comm, -ECANCELED);
	broken = spmt_status(comm) != 0;
	ranks_watch(NULL);
	ranks_at("spmt_finalize", 0);
	end = spmt_finalize(comm);
	if (!code && !broken)
		REQUIRE_CODE(end, 0);
	return code;
}

int ranks_run_on(int n, const struct spmt_attr *common, const int *devices,
	int (*fn)(spmt_comm *, void *), void *arg)
{
	struct world w = {
		.devices = devices, .shared = n > 1 && machine_here() >= 0, .fn = fn, .arg = arg
	};
	spmt_uid uid;
	int here = w.shared ? (n + 1 - machine_here()) / 2 : n;
	int code = w.shared ? machines_uids(&uid, 1) : spmt_uid_create(&uid);

	if (code)
		return ranks_fail("no uid: %d: %s", code, spmt_last_error());
	w.attr = common ? *common : ranks_attr(0, n, &uid);
	w.attr.nranks = n;
	w.attr.uid = &uid;
	return ranks_threads(here, world_main, &w);
}

int ranks_run(int n, const struct spmt_attr *common, int (*fn)(spmt_comm *, void *), void *arg)
{
	return ranks_run_on(n, common, NULL, fn, arg);
}

int ranks_halves(spmt_comm *comm, int (*fn)(spmt_comm *, void *), void *arg)
{
	spmt_comm *half;

	REQUIRE_OK(spmt_split(comm, spmt_rank(comm) % 2, 0, &half));
	TRY(fn(half, arg));
	TRY(fn(comm, arg));
	TRY(fn(half, arg));
	REQUIRE_OK(spmt_finalize(half));
	return 0;
}

/* ---- checks ------------------------------------------------------------------------------------------------------- */

int ranks_eq(const char *a_text, intmax_t a, const char *b_text, intmax_t b)
{
	if (a == b)
		return 0;
	return ranks_fail("%s (%jd) == %s (%jd)", a_text, a, b_text, b);
}

int ranks_code(const char *text, int code, int want)
{
	if (code == want)
		return 0;
	return ranks_fail(
		"%s gave %d, not %d: %s", text, code, want, code < 0 ? spmt_last_error() : "");
}

int ranks_says(const char *word)
{
	if (strstr(spmt_last_error(), word))
		return 0;
	return ranks_fail("no \"%s\" in \"%s\"", word, spmt_last_error());
}
