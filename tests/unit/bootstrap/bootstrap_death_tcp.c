/* SPDX-License-Identifier: MIT */
/* As in bootstrap_death.c, of processes that have found each other over TCP, as those of other nodes do: what tells of a death is the
   connection alone. */
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "party_deaths.h"

extern char **environ;

/* ---- in the child -------------------------------------------------------------------------- */

/* A program that runs on is no copy: descriptors close on exec. */
static int leave_program(void)
{
	char *words[] = { "sleep", "4", NULL };
	pid_t pid;

	return posix_spawnp(&pid, "sleep", NULL, NULL, words, environ);
}

/* A forked child that has a world of its own, over TCP as well, and then stays for a while. */
static int leave_world(void)
{
	struct party p;
	struct uid uid;
	pid_t pid = fork();

	if (pid)
		return pid < 0;
	prctl(PR_SET_PDEATHSIG, 0);
	uid_make(&uid);
	if (!party_open(&p, &uid, 1, false) && !add(&p, 0) && !wait_for(&p, 5000))
		sleep(4);
	_exit(0);
}

int obey(struct party *p, const struct uid *uid, char command, struct answer *answer)
{
	switch (command) {
	case 'o':
		return party_open(p, uid, NRANKS, false);
	case 't':
		return party_open(p, uid, NRANKS, true);
	case 'w':
		return wait_for(p, 5000);
	case 'h':
		return hear(p, answer);
	case 'f':
		return leave_child();
	case 'p':
		return leave_program();
	case 'q':
		return leave_world();
	case 'c':
		bootstrap_close(p->b);
		p->b = NULL;
		return 0;
	default:
		return add(p, command - '0');
	}
}

/* ---- in the test --------------------------------------------------------------------------- */

/* Ranks 0, 1 and 2 + 3, the first of them the hub. The victim does `before`, and dies. */
static void dies(int victim, const char *before)
{
	struct child c[3];
	struct uid uid;

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	begin(c, 3, &uid);
	ask_ok(&c[0], "o0");
	ask_ok(&c[1], "t1");
	ask_ok(&c[2], "t23");
	all(c, 3, 'w');
	ask_ok(&c[victim], before);
	end(&c[victim], SIGKILL);
	expect_told(c, 3, death_of[victim]);
	all(c, 3, 'c');
	over(c, 3);
}

Test(bootstrap_death_tcp, killed_once_complete)
{
	for (int victim = 0; victim < 3; victim++)
		dies(victim, "");
}

Test(bootstrap_death_tcp, a_forked_child_does_not_hide_it)
{
	for (int victim = 0; victim < 3; victim++)
		dies(victim, "f");
}

Test(bootstrap_death_tcp, what_it_has_left_behind_does_not_hide_it)
{
	dies(0, "fpq");
	dies(1, "pqf");
}
