/* SPDX-License-Identifier: MIT */
#include "processes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machines.h"

enum { CHILD_S = 25, WARM = 3 };

/* What a child says of its end: where several fail, most are the victims of the first. */
struct said {
	int64_t at; /* CLOCK_MONOTONIC */
	char text[892];
};

/* A child ends by _exit, where LeakSanitizer does not look by itself. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

struct child {
	struct processes *p;
	int process, n, ranks[64];
	int (*fn)(int rank, void *arg);
	void *arg;
};

/* Calls the ranks of a layout in turn: the i-th belongs to process *process. */
static const char *layout_next(const char *at, int *rank, int *process)
{
	char *end;

	if (!*at)
		return NULL;
	if (*at == '|')
		++*process;
	at += *at == '|' || *at == ',';
	*rank = (int)strtol(at, &end, 10);
	return end;
}

int processes_widest(const char *layout)
{
	int widest = 1, here = 1;

	for (; *layout; layout++) {
		here = *layout == '|' ? 1 : here + (*layout == ',');
		widest = here > widest ? here : widest;
	}
	return widest;
}

int processes_of(const char *layout, int rank)
{
	int r, process = 0;

	for (const char *at = layout; (at = layout_next(at, &r, &process));)
		if (r == rank)
			return process;
	return -1;
}

int processes_position(const char *layout, int rank)
{
	int r, process = 0, home = processes_of(layout, rank), position = 0;

	for (const char *at = layout; (at = layout_next(at, &r, &process));)
		position += process == home && r < rank;
	return position;
}

void *processes_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* ---- a child --------------------------------------------------------------------------------------------------- */

/* Not in struct processes, which children and parent may share. */
static int self_number, self_cycle;

int processes_self(void)
{
	return self_number;
}

int processes_cycle(void)
{
	return self_cycle;
}

static int child_thread(int index, void *arg)
{
	struct child *c = arg;

	return c->fn(c->ranks[index], c->arg);
}

static const char *child_cycles(struct child *c)
{
	struct usage before = { 0 };
	const char *grown = NULL;

	for (self_cycle = 0; self_cycle < (c->p->cycles ? c->p->cycles : 1); self_cycle++) {
		if (self_cycle == WARM)
			before = usage_now();
		if (ranks_threads(c->n, child_thread, c))
			return ranks_message();
	}
	if (c->p->cycles > WARM)
		grown = usage_grown(&before, &c->p->slack);
	return grown;
}

/* Virtual machines are slow. */
static int child_seconds(const struct processes *p)
{
	return (p->seconds ? p->seconds : CHILD_S) * (machine_here() < 0 ? 1 : MACHINES_SLOW);
}

static _Noreturn void child_main(struct child *c, pid_t parent, int out)
{
	const struct rlimit files = { (rlim_t)c->p->files, (rlim_t)c->p->files };
	const char *bad;

	self_number = c->process;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(98);
	ranks_deadline(child_seconds(c->p));
	alarm((unsigned)(2 * child_seconds(c->p) + opening_s()));
	if (c->p->files)
		setrlimit(RLIMIT_NOFILE, &files);
	for (int fd = 0; c->p->bare && fd < 3; fd++)
		close(fd);
	bad = child_cycles(c);
	if (!bad && c->p->leaks && __lsan_do_recoverable_leak_check &&
		__lsan_do_recoverable_leak_check())
		bad = "LeakSanitizer has found a leak";
	if (bad) {
		struct said said = { ranks_failed_ns(), "" };

		snprintf(said.text, sizeof(said.text), "process %d: %s", c->process, bad);
		if (write(out, &said, sizeof(said)) != sizeof(said))
			_exit(97);
	}
	_exit(bad ? 1 : 0);
}

static int child_start(struct child *c)
{
	pid_t parent = getpid(), child;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0)
		child_main(c, parent, ends[1]);
	c->p->pid[c->process] = child;
	close(ends[1]);
	return ends[0];
}

/* ---- the parent ------------------------------------------------------------------------------------------------ */

/* Its status; a child that does not end is ended. */
static int child_wait(pid_t pid, int64_t until)
{
	int status = 0;
	pid_t got;

	while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
		if (now_ns() < until) {
			sleep_ms(1);
			continue;
		}
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return -1;
	}
	return got == pid ? status : -1;
}

static int child_judge(const struct processes *p, int process, int status, const char *said)
{
	if (status == -1)
		return ranks_fail("process %d of %s did not end", process, p->layout);
	if (*said)
		return ranks_fail("%s: %s", p->layout, said);
	if (p->killed >> process & 1)
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
			? 0
			: ranks_fail("process %d was not killed: status %#x", process,
				  (unsigned)status);
	return status ? ranks_fail("process %d of %s ended with status %#x", process, p->layout,
				(unsigned)status)
		      : 0;
}

static int children_end(struct processes *p, const int *fds)
{
	int seconds = 2 * child_seconds(p) + (p->seconds ? 5 : 10) + opening_s();
	int64_t until = now_ns() + seconds * (int64_t)1000000000;
	int64_t first = INT64_MAX;
	int code = 0;

	for (int i = 0; i < p->n; i++) {
		struct said said = { 0 };
		int status;
		ssize_t n;

		if (fds[i] < 0) /* the other machine's */
			continue;
		status = child_wait(p->pid[i], until);
		n = status == -1 ? 0 : read(fds[i], &said, sizeof(said));
		if (n < (ssize_t)sizeof(said))
			said = (struct said){ .at = INT64_MAX - 1 };
		if (said.at < first && child_judge(p, i, status, said.text)) {
			first = said.at;
			code = RANKS_FAILED;
		}
		close(fds[i]);
	}
	return code;
}

static int uids_make(struct processes *p)
{
	if (machine_here() >= 0)
		return machines_uids(p->uid, PROCESSES_CYCLES)
			? ranks_fail("no uids: %s", spmt_last_error())
			: 0;
	for (int i = 0; i < PROCESSES_CYCLES; i++)
		if (spmt_uid_create(&p->uid[i]))
			return ranks_fail("spmt_uid_create: %s", spmt_last_error());
	return 0;
}

int processes_run(struct processes *p, int (*fn)(int rank, void *arg), void *arg)
{
	struct child children[PROCESSES_MOST] = { 0 };
	int fds[PROCESSES_MOST], rank, process = 0, code = uids_make(p);

	p->nranks = 0;
	for (const char *at = p->layout; (at = layout_next(at, &rank, &process)); p->nranks++)
		children[process].ranks[children[process].n++] = rank;
	p->n = process + 1;
	calm_ns();
	fflush(NULL);
	for (int i = 0; i < p->n; i++) {
		children[i].p = p;
		children[i].process = i;
		children[i].fn = fn;
		children[i].arg = arg;
		fds[i] = is_of_this_machine(i) ? child_start(&children[i]) : -1;
	}
	if (p->watch)
		p->watch(p);
	rank = children_end(p, fds);
	return code ? code : rank;
}

/* ---- with a world ---------------------------------------------------------------------------------------------- */

struct world_job {
	struct processes *p;
	int (*fn)(spmt_comm *comm, void *arg);
	void *arg;
};

static int world_rank(int rank, void *arg)
{
	struct world_job *job = arg;
	struct spmt_attr attr = ranks_attr(rank, job->p->nranks, &job->p->uid[processes_cycle()]);
	spmt_comm *comm = NULL;
	int code;

	/* its process's next; where there are too few, shared ones */
	if (processes_widest(job->p->layout) <= devices_here())
		attr.device = -1;
	else
		attr.device = device_of(processes_position(job->p->layout, rank));
	attr.heap_size = 16u << 20;
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	code = job->fn(comm, job->arg);
	if (code)
		spmt_abort(comm, -ECANCELED);
	ranks_watch(NULL);
	ranks_at("spmt_finalize", 0);
	if (code)
		spmt_finalize(comm);
	else
		REQUIRE_OK(spmt_finalize(comm));
	return code;
}

int processes_world(struct processes *p, int (*fn)(spmt_comm *comm, void *arg), void *arg)
{
	struct world_job job = { p, fn, arg };

	return processes_run(p, world_rank, &job);
}

void processes_check(void)
{
	setenv("SPMT_CHECK", "1", 1);
}

int processes_checked(int (*fn)(spmt_comm *comm, void *arg))
{
	struct processes one = { .layout = "0,1,2" }, two = { .layout = "0,1|2" };
	int rc;

	processes_check();
	rc = processes_world(&one, fn, &one);
	return rc ? rc : processes_world(&two, fn, &two);
}
