/* SPDX-License-Identifier: MIT */
#include "launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the others get to end by themselves once a process has failed: they hear of it within a second. */
enum { GRACE_MS = 5000, LOOK_MS = 1000 };

struct crew {
	const struct options *opt;
	void (*emit)(void *ctx, const struct figure *f);
	void *ctx;
	pid_t pid[PERF_PROCESSES];
	struct pollfd fds[PERF_PROCESSES]; /* fd -1: it has ended */
	int64_t stopped[PERF_PROCESSES];   /* since when; 0: it runs */
	int64_t patience; /* with one that is stopped, milliseconds, but GRACE_MS; < 0: for ever */
	int alive, ready, code;
	int64_t failed; /* when the first did; 0: none has */
	int64_t start, begin, end;
};

/* ---- starting */

static int start_one(struct crew *c, int index, int fd)
{
	char text[16];
	char *argv[] = { (char[]){ "spmt-perf" }, (char[]){ "--member" }, text, NULL };
	posix_spawn_file_actions_t actions;
	int err;

	snprintf(text, sizeof(text), "%d", fd);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, fd); /* which keeps it open there */
	err = posix_spawn(&c->pid[index], "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return err;
}

static int start(struct crew *c, int index)
{
	struct job job = { .opt = *c->opt, .index = index, .parent = getpid() };
	int ends[2], err;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return errno;
	err = start_one(c, index, ends[1]);
	close(ends[1]);
	if (err) {
		close(ends[0]);
		return err;
	}
	c->fds[index] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	c->alive++;
	job.opt.json = NULL;
	send(ends[0], &job, sizeof(job), MSG_NOSIGNAL);
	return 0;
}

/* ---- listening */

/* Whoever waits for a uid waits in vain, and ends. */
static void crew_failed(struct crew *c)
{
	c->code = PERF_EXIT_WRONG;
	if (c->failed)
		return;
	c->failed = perf_now();
	for (int i = 0; i < c->opt->layout.n; i++)
		if (c->fds[i].fd >= 0)
			shutdown(c->fds[i].fd, SHUT_WR);
}

static void ended(struct crew *c, int index)
{
	const char *layout = c->opt->layout.text;
	int status = 0;

	close(c->fds[index].fd);
	c->fds[index].fd = -1;
	c->alive--;
	while (waitpid(c->pid[index], &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		fprintf(stderr, "spmt-perf: process %d of %s was ended by signal %d (%s)\n", index,
			layout, WTERMSIG(status), strsignal(WTERMSIG(status)));
	if (status)
		crew_failed(c);
}

static void tell_uid(struct crew *c)
{
	spmt_uid uid;

	c->ready = 0;
	if (spmt_uid_create(&uid)) {
		fprintf(stderr, "spmt-perf: %s\n", spmt_last_error());
		crew_failed(c);
		return;
	}
	for (int i = 0; i < c->opt->layout.n; i++)
		if (c->fds[i].fd >= 0)
			send(c->fds[i].fd, &uid, sizeof(uid), MSG_NOSIGNAL);
}

static void hear(struct crew *c, int index)
{
	struct said said;
	ssize_t n = recv(c->fds[index].fd, &said, sizeof(said), 0);

	if (n != (ssize_t)sizeof(said)) {
		if (n >= 0 || errno != EINTR)
			ended(c, index);
		return;
	}
	switch (said.kind) {
	case SAID_FIGURE:
		c->emit(c->ctx, &said.figure);
		break;
	case SAID_INIT:
		c->begin = said.begin < c->begin ? said.begin : c->begin;
		c->end = said.end > c->end ? said.end : c->end;
		break;
	case SAID_READY:
		if (++c->ready == c->opt->layout.n && !c->failed)
			tell_uid(c);
	}
}

/* A deadline of the library's: behind it the others say what they miss. But they need not be in a call of it: they may wait for a uid, or be
   stopped as well. */
static int64_t patience(void)
{
	const char *given = getenv("SPMT_TIMEOUT_MS");

	return given && *given ? strtoll(given, NULL, 10) : 10000;
}

/* One that only takes long runs. */
static void look_at(struct crew *c, int index)
{
	siginfo_t info = { 0 };
	int64_t ms;

	if (waitid(P_PID, (id_t)c->pid[index], &info, WSTOPPED | WNOHANG | WNOWAIT) ||
		!info.si_pid) {
		c->stopped[index] = 0;
		return;
	}
	if (!c->stopped[index])
		c->stopped[index] = perf_now();
	ms = (perf_now() - c->stopped[index]) / 1000000;
	if (c->failed || c->patience < 0 || ms - GRACE_MS <= c->patience)
		return;
	fprintf(stderr, "spmt-perf: process %d of %s has been stopped for %.1f s\n", index,
		c->opt->layout.text, (double)ms / 1e3);
	crew_failed(c);
}

static void crew_kill(const struct crew *c)
{
	for (int i = 0; i < c->opt->layout.n; i++)
		if (c->fds[i].fd >= 0)
			kill(c->pid[i], SIGKILL);
}

static void listen_to(struct crew *c)
{
	while (c->alive) {
		int got = poll(c->fds, (nfds_t)c->opt->layout.n, c->failed ? 100 : LOOK_MS);

		for (int i = 0; got > 0 && i < c->opt->layout.n; i++)
			if (c->fds[i].fd >= 0 && c->fds[i].revents)
				hear(c, i);
		for (int i = 0; i < c->opt->layout.n; i++)
			if (c->fds[i].fd >= 0)
				look_at(c, i);
		if (c->failed && perf_now() - c->failed > GRACE_MS * (int64_t)1000000)
			crew_kill(c);
	}
}

static int crew_work(struct crew *c)
{
	int err = 0;

	fflush(NULL);
	for (int i = 0; i < PERF_PROCESSES; i++)
		c->fds[i] = (struct pollfd){ .fd = -1 };
	c->start = perf_now();
	c->begin = INT64_MAX;
	c->patience = patience();
	for (int i = 0; i < c->opt->layout.n && !err; i++)
		err = start(c, i);
	if (err) {
		fprintf(stderr, "spmt-perf: a process of %s: %s\n", c->opt->layout.text,
			strerror(err));
		crew_failed(c);
	}
	listen_to(c);
	return c->code;
}

/* ---- what is to be done */

int launch(const struct options *opt, void (*emit)(void *ctx, const struct figure *f), void *ctx)
{
	struct crew c = { .opt = opt, .emit = emit, .ctx = ctx };

	return crew_work(&c);
}

static void init_emit(const struct options *opt, const char *test, double *ns,
	void (*emit)(void *ctx, const struct figure *f), void *ctx)
{
	struct figure f = { .ranks = layout_nranks(&opt->layout), .unit = UNIT_MS };

	snprintf(f.test, sizeof(f.test), "%s", test);
	snprintf(f.layout, sizeof(f.layout), "%s", opt->layout.text);
	for (int i = 0; i < opt->rounds; i++)
		ns[i] = perf_convert(UNIT_MS, ns[i], 0, 0);
	perf_spread(ns, opt->rounds, &f.ours);
	emit(ctx, &f);
}

int launch_init(
	const struct options *opt, void (*emit)(void *ctx, const struct figure *f), void *ctx)
{
	double init[PERF_ROUNDS_MAX], started[PERF_ROUNDS_MAX];
	struct options one = *opt;
	int code = 0;

	snprintf(one.tests, sizeof(one.tests), "%s", perf_init_name);
	for (int i = 0; i < opt->rounds && !code; i++) {
		struct crew c = { .opt = &one };

		code = crew_work(&c);
		init[i] = (double)(c.end - c.begin);
		started[i] = (double)(c.end - c.start);
	}
	if (code)
		return code;
	init_emit(opt, perf_init_name, init, emit, ctx);
	init_emit(opt, "start", started, emit, ctx);
	return 0;
}
