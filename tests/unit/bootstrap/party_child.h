/* SPDX-License-Identifier: MIT */
/* Real processes, each with a party, that do as they are told through pipes, and assert nothing themselves. */
#ifndef TESTS_PARTY_CHILD_H
#define TESTS_PARTY_CHILD_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "party.h"

#define NRANKS 4

struct child {
	pid_t pid;
	int to, from;
};

struct answer {
	int rc;
	char sentence[STATUS_SENTENCE];
};

/* The suite's: in the child, what a command makes it do. */
int obey(struct party *p, const struct uid *uid, char command, struct answer *answer);

/* ---- in the child -------------------------------------------------------------------------- */

static inline int hear(struct party *p, struct answer *answer)
{
	for (int i = 0; i < 3000 && !atomic_load(&p->heard.times); i++)
		usleep(1000);
	memcpy(answer->sentence, p->heard.sentence, sizeof(answer->sentence));
	return atomic_load(&p->heard.times) == 1 ? p->heard.code : p->heard.times;
}

/* Leaves somebody behind who has copies of all descriptors. */
static inline int leave_child(void)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, 0);
		sleep(4);
		_exit(0);
	}
	return pid < 0;
}

static inline void child_main(int from, int to, const struct uid *uid)
{
	struct party p = { 0 };
	char command;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &command, 1) == 1) {
		struct answer answer = { 0 };

		answer.rc = obey(&p, uid, command, &answer);
		if (!answer.sentence[0])
			strcpy(answer.sentence, status_sentence());
		if (write(to, &answer, sizeof(answer)) != sizeof(answer))
			break;
	}
	_exit(1);
}

/* ---- in the test --------------------------------------------------------------------------- */

static inline void start(struct child *c, const struct uid *uid)
{
	int down[2], up[2];

	cr_assert_eq(pipe2(down, O_CLOEXEC) | pipe2(up, O_CLOEXEC), 0);
	c->pid = fork();
	cr_assert_geq(c->pid, 0);
	if (!c->pid) {
		close(down[1]);
		close(up[0]);
		child_main(down[0], up[1], uid);
	}
	close(down[0]);
	close(up[1]);
	c->to = down[1];
	c->from = up[0];
}

static inline void tell(const struct child *c, char command)
{
	cr_assert_eq(write(c->to, &command, 1), 1);
}

static inline struct answer answer_of(const struct child *c)
{
	struct answer answer = { .rc = -1 };

	cr_assert_eq(read(c->from, &answer, sizeof(answer)), (ssize_t)sizeof(answer));
	return answer;
}

static inline struct answer ask(const struct child *c, char command)
{
	tell(c, command);
	return answer_of(c);
}

static inline void ask_ok(const struct child *c, const char *commands)
{
	for (; *commands; commands++) {
		struct answer answer = ask(c, *commands);

		cr_assert_eq(answer.rc, 0, "%c: %d %s", *commands, answer.rc, answer.sentence);
	}
}

static inline void end(struct child *c, int signal)
{
	if (c->pid <= 0)
		return;
	kill(c->pid, signal);
	waitpid(c->pid, NULL, 0);
	close(c->to);
	close(c->from);
	c->pid = 0;
}

/* The first n processes of a world that is named now. */
static inline void begin(struct child *c, int n, struct uid *uid)
{
	uid_make(uid);
	for (int i = 0; i < n; i++)
		start(&c[i], uid);
}

static inline void over(struct child *c, int n)
{
	for (int i = 0; i < n; i++)
		end(&c[i], SIGKILL);
}

#endif
