/* SPDX-License-Identifier: MIT */
/* Finding devices, binding them, opening and closing, many times, from many threads, in a forked
   child. */
#include "conform.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"

static void *load_thread(void *arg)
{
	const struct backend *b = arg;

	return b->load() ? arg : NULL;
}

static int case_load(struct conform *c)
{
	pthread_t t[4];
	void *failed;
	int i, n = -1, bad = 0;
	union {
		const struct backend *in;
		void *arg;
	} b = { c->b };

	for (i = 0; i < 4; i++)
		CHECK(c, !pthread_create(&t[i], NULL, load_thread, b.arg));
	for (i = 0; i < 4; i++) {
		pthread_join(t[i], &failed);
		bad += failed != NULL;
	}
	CHECK(c, !bad);
	CHECK(c, !c->b->load());
	CHECK(c, !c->b->count(&n));
	CHECK(c, n == c->n && n > 0);
	return CONFORM_PASS;
}

static int case_describe(struct conform *c)
{
	struct device_desc d, first;
	int i;

	for (i = 0; i < c->n; i++) {
		memset(&d, 0xff, sizeof(d));
		CHECK(c, !c->b->describe(i, &d));
		CHECK(c, d.ordinal == i && d.memory > 0 && d.units > 0 && d.numa >= -1);
		CHECK(c,
			strnlen(d.name, sizeof(d.name)) &&
				strnlen(d.name, sizeof(d.name)) < sizeof(d.name));
		CHECK(c,
			strnlen(d.arch, sizeof(d.arch)) &&
				strnlen(d.arch, sizeof(d.arch)) < sizeof(d.arch));
		CHECK(c, strnlen(d.pci, sizeof(d.pci)) < sizeof(d.pci));
		if (i == 0)
			first = d;
		else if (d.pci[0])
			CHECK(c, strcmp(d.pci, first.pci));
	}
	return CONFORM_PASS;
}

static int case_bad_ordinals(struct conform *c)
{
	const int bad[] = { -1, -1000, c->n, 0x7fffffff };
	struct device_saved saved;
	struct device_desc desc;
	char reason[DEVICE_REASON];
	void *ptr = &saved;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		fail(-1, "nothing said");
		CHECK(c, c->b->open(bad[i]) < 0);
		CHECK(c, strcmp(status_sentence(), "nothing said"));
		CHECK(c, c->b->describe(bad[i], &desc) < 0);
		CHECK(c, c->b->enter(bad[i], &saved) < 0);
		CHECK(c, c->b->alloc(bad[i], 64, DEVICE_MEMORY_PLAIN, &ptr) < 0 && ptr == &saved);
		reason[0] = '\0';
		CHECK(c, c->b->peer_check(0, bad[i], reason) < 0 && reason[0]);
	}
	return CONFORM_PASS;
}

/* Which device is bound now, by asking enter; -2: it failed. */
static int bound_now(struct conform *c)
{
	struct device_saved saved;

	if (c->b->enter(0, &saved))
		return -2;
	c->b->leave(&saved);
	return saved.ordinal;
}

static int case_enter(struct conform *c)
{
	struct device_saved outer, inner;
	int other = c->n - 1, before;

	CHECK(c, !c->b->open(0) && !c->b->open(other));
	before = bound_now(c);
	CHECK(c, before != -2);
	CHECK(c, !c->b->enter(other, &outer));
	CHECK(c, bound_now(c) == other);
	CHECK(c, !c->b->enter(0, &inner));
	CHECK(c, bound_now(c) == 0);
	CHECK(c, c->b->enter(c->n, &inner) < 0);
	c->b->leave(&inner);
	CHECK(c, bound_now(c) == other);
	c->b->leave(&outer);
	CHECK(c, bound_now(c) == before);
	c->b->close(0);
	c->b->close(other);
	return CONFORM_PASS;
}

/* Whatever is done to one device while another is bound, the other stays bound, when it fails
   too. */
static int case_ops_bind_nothing(struct conform *c)
{
	int other = c->n - 1;
	struct device_saved saved;
	void *ptr = NULL, *host, *seen;
	device_stream s;
	device_event e;

	CHECK(c, !c->b->open(0) && !c->b->open(other));
	CHECK(c, !c->b->enter(other, &saved));
	CHECK(c, !c->b->alloc(0, 4096, DEVICE_MEMORY_SYMMETRIC, &ptr) && bound_now(c) == other);
	CHECK(c, !c->b->host_alloc(0, 4096, &host, &seen) && bound_now(c) == other);
	CHECK(c,
		!c->b->stream_create(0, &s) && !c->b->event_create(0, &e) && bound_now(c) == other);
	CHECK(c,
		!c->b->copy(0, ptr, host, 4096, s) && !c->b->event_record(0, e, s) &&
			bound_now(c) == other);
	CHECK(c,
		!c->b->stream_sync(0, s, -1, NULL) && c->b->event_query(0, e) == 1 &&
			bound_now(c) == other);
	fault_arm(FAULT_ANY, 1);
	CHECK(c, c->b->alloc(0, 4096, DEVICE_MEMORY_PLAIN, &host) < 0 && bound_now(c) == other);
	fault_arm(FAULT_ANY, 1);
	CHECK(c, c->b->copy(0, ptr, seen, 4096, s) < 0 && bound_now(c) == other);
	fault_disarm();
	CHECK(c,
		!c->b->event_destroy(0, e) && !c->b->stream_destroy(0, s) && bound_now(c) == other);
	CHECK(c, !c->b->host_free(0, seen) && !c->b->free(0, ptr) && bound_now(c) == other);
	c->b->leave(&saved);
	c->b->close(0);
	c->b->close(other);
	return CONFORM_PASS;
}

static int case_open_counts(struct conform *c)
{
	struct rig r;
	void *ptr;

	CHECK(c, !c->b->open(0) && !c->b->open(0));
	c->b->close(0);
	CHECK(c, !c->b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr) && !c->b->free(0, ptr));
	c->b->close(0);
	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	return rig_close(c, &r);
}

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static int open_close(struct conform *c, int dev)
{
	struct rig r;
	void *ptr;

	if (rig_open(c, dev, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(dev, 3 << 20, DEVICE_MEMORY_SYMMETRIC, &ptr));
	CHECK(c, !c->b->free(dev, ptr));
	return rig_close(c, &r);
}

/* 200 times, or as often as a minute allows where a context takes long to make. */
static int case_no_growth(struct conform *c)
{
	int64_t start = process_now();
	int i, fds = 0;

	for (i = 0; i < 200 && (i < 20 || process_now() - start < 60000000000); i++) {
		if (i == 2 * c->n)
			fds = count_fds();
		if (open_close(c, i % c->n))
			return CONFORM_FAIL;
	}
	CHECK(c, i <= 2 * c->n || count_fds() <= fds);
	return CONFORM_PASS;
}

struct worker {
	struct conform c;
	pthread_t thread;
	int dev, rc;
};

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	int i;

	for (i = 0; i < 5 && !w->rc; i++)
		w->rc = open_close(&w->c, w->dev);
	return NULL;
}

static int case_threads(struct conform *c)
{
	struct worker w[8];
	int i, n = 8, rc = CONFORM_PASS;

	for (i = 0; i < n; i++) {
		w[i] = (struct worker){ .c = *c, .dev = i % c->n };
		CHECK(c, !pthread_create(&w[i].thread, NULL, worker_run, &w[i]));
	}
	for (i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		if (w[i].rc) {
			memcpy(c->why, w[i].c.why, sizeof(c->why));
			rc = w[i].rc;
		}
	}
	return rc;
}

/* In a child nothing of the parent's may be touched: what is asked for fails, or on host memory
   may work anew. */
static int child_asks(const struct backend *b, void *ptr, device_stream s)
{
	struct device_saved saved;
	void *other = NULL;
	bool lives = !strcmp(b->name, "host");

	if (b->load() >= 0 && !lives)
		return 1;
	if (b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &other) >= 0 && !lives)
		return 2;
	if (!lives && (b->fill(0, ptr, 1, 64, s) >= 0 || b->stream_sync(0, s, 1000000, NULL) >= 0))
		return 3;
	if (b->enter(0, &saved) >= 0) {
		b->leave(&saved);
		return lives ? 0 : 4;
	}
	return status_sentence()[0] ? 0 : 5;
}

static int case_forked_child(struct conform *c)
{
	struct rig r;
	void *ptr;
	int status;
	pid_t child;

	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(0, 4096, DEVICE_MEMORY_PLAIN, &ptr));
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(10);
		_exit(child_asks(c->b, ptr, r.s));
	}
	CHECK(c, child > 0 && waitpid(child, &status, 0) == child);
	snprintf(c->why, sizeof(c->why), "the child's status is %#x", (unsigned)status);
	if (status)
		return CONFORM_FAIL;
	CHECK(c, !c->b->fill(0, ptr, 7, 4096, r.s) && rig_holds(c, &r, ptr, 4096, NULL, 7));
	CHECK(c, !c->b->free(0, ptr));
	return rig_close(c, &r);
}

const struct conform_case conform_life[] = {
	{ "load", case_load },
	{ "describe", case_describe },
	{ "bad_ordinals", case_bad_ordinals },
	{ "enter", case_enter },
	{ "ops_bind_nothing", case_ops_bind_nothing },
	{ "open_counts", case_open_counts },
	{ "no_growth", case_no_growth },
	{ "threads", case_threads },
	{ "forked_child", case_forked_child },
	{ NULL, NULL },
};
