/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

bool member_open(struct member *m, int fd)
{
	m->fd = fd;
	if (recv(fd, &m->job, sizeof(m->job), 0) != (ssize_t)sizeof(m->job))
		return false;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	return getppid() == m->job.parent;
}

/* What the parent does not hear it will miss: then it says so. */
static void say(const struct member *m, const struct said *said)
{
	send(m->fd, said, sizeof(*said), MSG_NOSIGNAL);
}

void member_emit(void *member, const struct figure *f)
{
	say(member, &(struct said){ .kind = SAID_FIGURE, .figure = *f });
}

/* The parent is silent where another process has failed, which has been said there. */
static void next_uid(const struct member *m, spmt_uid *uid)
{
	say(m, &(struct said){ .kind = SAID_READY });
	if (recv(m->fd, uid, sizeof(*uid), 0) != (ssize_t)sizeof(*uid))
		exit(PERF_EXIT_WRONG);
}

static int finalize(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

static int init_ranks(struct member *m, const struct spmt_attr *common, spmt_comm **comms)
{
	const struct layout *layout = &m->job.opt.layout;
	int n = layout->ranks[m->job.index];
	struct spmt_attr *attrs = calloc((size_t)n, sizeof(*attrs));
	struct said said = { .kind = SAID_INIT };
	spmt_uid uid;
	int rc;

	if (!attrs)
		return -ENOMEM;
	next_uid(m, &uid);
	for (int i = 0; i < n; i++) {
		attrs[i] = *common;
		attrs[i].rank = layout_first(layout, m->job.index) + i;
		attrs[i].nranks = layout_nranks(layout);
		attrs[i].uid = &uid;
	}
	said.begin = perf_now();
	rc = spmt_init_all(n, attrs, comms);
	said.end = perf_now();
	if (!rc)
		say(m, &said);
	free(attrs);
	return rc;
}

int member_run(
	struct member *m, const struct spmt_attr *common, int (*fn)(spmt_comm *, void *), void *arg)
{
	int n = m->job.opt.layout.ranks[m->job.index], rc, end;
	spmt_comm **comms = calloc((size_t)n, sizeof(spmt_comm *));

	rc = comms ? init_ranks(m, common, comms) : -ENOMEM;
	if (rc) {
		free(comms);
		return rc;
	}
	rc = fn ? spmt_each(n, comms, fn, arg) : 0;
	if (rc) {
		fprintf(stderr, "spmt-perf: process %d: %s\n", m->job.index, spmt_last_error());
		spmt_abort(comms[0], rc);
	}
	end = spmt_each(n, comms, finalize, NULL);
	free(comms);
	return rc ? rc : end;
}

int member_init(struct member *m)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int rc;

	attr.backend = m->job.opt.backend[0] ? m->job.opt.backend : NULL;
	rc = member_run(m, &attr, NULL, NULL);
	if (rc)
		fprintf(stderr, "spmt-perf: init in process %d: %s: %s\n", m->job.index,
			spmt_strerror(rc), spmt_last_error());
	return rc ? PERF_EXIT_WRONG : 0;
}
