/* SPDX-License-Identifier: MIT */
/* Real processes that are killed, stopped, or end without a word. */
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "party_deaths.h"

/* ---- in the child -------------------------------------------------------------------------- */

static int exchange(struct party *p)
{
	int all[NRANKS], fds[NRANKS], mine = p->self + 7, bad = 0;
	int rc = bootstrap_exchange(p->b, &mine, sizeof(mine), p->self ? -1 : 0, all, fds, 5000);

	for (int i = 0; !rc && i < p->processes; i++)
		bad += all[i] != i + 7 || (i ? fds[i] != -1 : fds[i] < 0);
	return rc ? rc : bad;
}

/* As sandboxes do once a program has all that it needs. */
static int lower_files(int most)
{
	const struct rlimit files = { (rlim_t)most, (rlim_t)most };

	return setrlimit(RLIMIT_NOFILE, &files);
}

/* CPU time of the process, ms. */
static int busy_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (int)(ts.tv_sec * 1000 + ts.tv_nsec / 1000000);
}

int obey(struct party *p, const struct uid *uid, char command, struct answer *answer)
{
	switch (command) {
	case 'o':
		return party_open(p, uid, NRANKS, false);
	case 'A': /* as the process that brings rank 0, .. */
	case 'B':
	case 'C':
	case 'D':
		return party_open_as(p, uid, NRANKS, false, command - 'A');
	case 'w':
		return wait_for(p, 5000);
	case 'n':
		return atomic_load(&p->heard.times);
	case 'h':
		return hear(p, answer);
	case 'x':
		return exchange(p);
	case 'f':
		return leave_child();
	case 'j':
	case 'k':
	case 'l':
		return lower_files(command - 'j');
	case 'y':
		return add_within(p, 1, 300);
	case 'u':
		return busy_ms();
	case 'c':
		bootstrap_close(p->b);
		p->b = NULL;
		return 0;
	case 'e':
		_exit(0);
	default:
		return add(p, command - '0');
	}
}

/* ---- in the test --------------------------------------------------------------------------- */

/* Ranks 0, 1 and 2 + 3 in three processes, the first of them the hub. */
static void world(struct child c[3], const struct uid *uid)
{
	for (int i = 0; i < 3; i++)
		start(&c[i], uid);
	ask_ok(&c[0], "o0");
	ask_ok(&c[1], "o1");
	ask_ok(&c[2], "o23");
	all(c, 3, 'w');
}

Test(bootstrap_death, killed_once_complete)
{
	for (int victim = 0; victim < 3; victim++) {
		struct child c[3];
		struct uid uid;

		uid_make(&uid);
		world(c, &uid);
		end(&c[victim], SIGKILL);
		expect_told(c, 3, death_of[victim]);
		all(c, 3, 'c');
		for (int i = 0; i < 3; i++)
			end(&c[i], SIGTERM);
	}
}

Test(bootstrap_death, exit_without_a_word)
{
	for (int victim = 0; victim < 3; victim++) {
		struct child c[3];
		struct uid uid;

		uid_make(&uid);
		world(c, &uid);
		tell(&c[victim], 'e');
		end(&c[victim], 0);
		expect_told(c, 3, death_of[victim]);
		over(c, 3);
	}
}

/* The victim's child keeps the sockets open for seconds. */
Test(bootstrap_death, a_forked_child_does_not_hide_it)
{
	for (int victim = 0; victim < 3; victim++) {
		struct child c[3];
		struct uid uid;

		uid_make(&uid);
		world(c, &uid);
		ask_ok(&c[victim], "f");
		end(&c[victim], SIGKILL);
		expect_told(c, 3, death_of[victim]);
		over(c, 3);
	}
}

Test(bootstrap_death, a_forked_child_that_ends_harms_nobody)
{
	struct child c[3];
	struct uid uid;

	uid_make(&uid);
	world(c, &uid);
	for (int i = 0; i < 3; i++)
		ask_ok(&c[i], "f");
	sleep(5);
	all(c, 3, 'n');
	all(c, 3, 'x');
	all(c, 3, 'c');
	over(c, 3);
}

Test(bootstrap_death, killed_while_it_gathers)
{
	for (int victim = 0; victim < 3; victim++) {
		struct child c[3];
		struct uid uid;

		uid_make(&uid);
		for (int i = 0; i < 3; i++) {
			start(&c[i], &uid);
			ask_ok(&c[i], i == 0 ? "o0" : i == 1 ? "o1" : "o3");
		}
		for (int i = 0; i < 3; i++)
			if (i != victim)
				tell(&c[i], 'w');
		usleep(20000);
		end(&c[victim], SIGKILL);
		for (int i = 0; i < 3; i++)
			if (i != victim)
				cr_expect_eq(answer_of(&c[i]).rc, SPMT_ERR_PEER_DEAD);
		expect_told(c, 3,
			victim == 0	      ? "1 of 4 ranks died: 0"
				: victim == 1 ? "1 of 4 ranks died: 1"
					      : "1 of 4 ranks died: 3");
		over(c, 3);
	}
}

/* RLIMIT_NOFILE is 0, 1 or 2 by then, below what is open: all is heard as before, and nobody spins. */
Test(bootstrap_death, killed_where_no_descriptors_are_allowed)
{
	static const char limits[] = "jkl";

	for (int victim = 0; victim < 3; victim++) {
		struct child c[3];
		struct uid uid;

		uid_make(&uid);
		world(c, &uid);
		all(c, 3, 'x');
		all(c, 3, limits[victim]);
		end(&c[victim], SIGKILL);
		expect_told(c, 3, death_of[victim]);
		for (int i = 0; i < 3; i++) {
			int before = i == victim ? 0 : ask(&c[i], 'u').rc;

			if (i == victim)
				continue;
			sleep(1);
			cr_expect_lt(ask(&c[i], 'u').rc - before, 300, "ms of CPU in a second");
		}
		all(c, 3, 'c');
		over(c, 3);
	}
}

/* A process that brought no rank, nor said that it would, is not missed; another takes its place. */
Test(bootstrap_death, killed_before_its_first_rank)
{
	for (int victim = 1; victim < 3; victim++) {
		struct child c[4];
		struct uid uid;

		begin(c, 4, &uid);
		for (int i = 0; i < 3; i++)
			ask_ok(&c[i], "o");
		if (victim == 2)
			ask_ok(&c[0], "0");
		end(&c[victim], SIGKILL);
		if (victim != 2)
			ask_ok(&c[2], "2");
		ask_ok(&c[3], "o");
		ask_ok(&c[3], victim == 1 ? "13" : "23");
		if (victim == 1)
			ask_ok(&c[0], "0");
		if (victim == 2)
			ask_ok(&c[1], "1");
		all(c, 4, 'w');
		all(c, 4, 'n');
		all(c, 4, 'c');
		over(c, 4);
	}
}

/* It has connected to a hub that does not even run, and comes no further. */
Test(bootstrap_death, killed_once_connected)
{
	struct child c[3];
	struct uid uid;

	begin(c, 3, &uid);
	ask_ok(&c[0], "A0");
	ask_ok(&c[1], "B");
	stop(&c[0]);
	ask_ok(&c[2], "C");
	end(&c[2], SIGKILL);
	kill(c[0].pid, SIGCONT);
	expect_told(c, 3, "1 of 4 ranks died: 2");
	over(c, 3);
}

/* Said hello, but no rank; its child keeps the sockets open. */
Test(bootstrap_death, killed_once_let_in)
{
	struct child c[3];
	struct uid uid;

	begin(c, 3, &uid);
	ask_ok(&c[0], "A0");
	ask_ok(&c[1], "B1");
	ask_ok(&c[2], "C");
	usleep(20000);
	ask_ok(&c[2], "f");
	end(&c[2], SIGKILL);
	expect_told(c, 3, "1 of 4 ranks died: 2");
	over(c, 3);
}

/* A leave is no death, also where the hub has not even seen who leaves. */
Test(bootstrap_death, left_before_its_first_rank)
{
	struct child c[3];
	struct uid uid;

	begin(c, 3, &uid);
	ask_ok(&c[0], "A0");
	ask_ok(&c[1], "B1");
	stop(&c[0]);
	ask_ok(&c[2], "Cc");
	end(&c[2], SIGKILL);
	start(&c[2], &uid);
	ask_ok(&c[2], "C");
	kill(c[0].pid, SIGCONT);
	ask_ok(&c[2], "23");
	all(c, 3, 'w');
	all(c, 3, 'n');
	over(c, 3);
}

/* The hub, before it could say anything, or as much as a rank: who comes right after is told, too. */
Test(bootstrap_death, hub_killed_before_its_first_rank)
{
	for (int silent = 0; silent < 2; silent++) {
		char sentence[STATUS_SENTENCE];
		struct child c[4];
		struct uid uid;

		begin(c, 4, &uid);
		ask_ok(&c[0], "A");
		if (silent)
			stop(&c[0]);
		ask_ok(&c[1], "B");
		ask_ok(&c[2], "C");
		usleep(20000);
		snprintf(sentence, sizeof(sentence),
			"process %d, which led the rendezvous, died before it had said which of the 4 ranks are its",
			c[0].pid);
		end(&c[0], SIGKILL);
		usleep(20000);
		ask_ok(&c[3], "D");
		expect_told(c, 4, sentence);
		over(c, 4);
	}
}

/* Their hub is stopped meanwhile, and finds both at once. */
Test(bootstrap_death, two_at_once)
{
	struct child c[3];
	struct uid uid;

	uid_make(&uid);
	world(c, &uid);
	stop(&c[0]);
	end(&c[1], SIGKILL);
	end(&c[2], SIGKILL);
	kill(c[0].pid, SIGCONT);
	expect_told(c, 3, "3 of 4 ranks died: 1, 2, 3");
	end(&c[0], SIGKILL);
}

Test(bootstrap_death, survivors_form_a_new_world)
{
	struct child c[3];
	struct uid uid;

	uid_make(&uid);
	world(c, &uid);
	end(&c[0], SIGKILL);
	expect_told(c, 3, death_of[0]);
	all(c, 3, 'c');
	ask_ok(&c[1], "o01");
	ask_ok(&c[2], "o23");
	all(c, 3, 'w');
	all(c, 3, 'x');
	all(c, 3, 'n');
	over(c, 3);
}

Test(bootstrap_death, a_stop_is_none)
{
	struct child c[3];
	struct uid uid;

	begin(c, 3, &uid);
	ask_ok(&c[0], "o0");
	ask_ok(&c[1], "o1");
	/* the hub stops while somebody joins .. */
	stop(&c[0]);
	ask_ok(&c[2], "o");
	tell(&c[2], '2');
	sleep(3);
	kill(c[0].pid, SIGCONT);
	cr_expect_eq(answer_of(&c[2]).rc, 0);
	ask_ok(&c[2], "3");
	all(c, 3, 'w');
	/* .. and a member while the others exchange */
	stop(&c[1]);
	for (int i = 0; i < 3; i++)
		tell(&c[i], 'x');
	sleep(3);
	kill(c[1].pid, SIGCONT);
	for (int i = 0; i < 3; i++)
		cr_expect_eq(answer_of(&c[i]).rc, 0);
	all(c, 3, 'n');
	all(c, 3, 'c');
	over(c, 3);
}

/* Who waits for it does so as long as he said, whether he has been let in before or not. */
Test(bootstrap_death, a_stop_takes_no_longer_than_asked)
{
	for (int late = 0; late < 2; late++) {
		char sentence[STATUS_SENTENCE];
		struct answer answer;
		struct child c[2];
		struct uid uid;
		int64_t calm;

		begin(c, 2, &uid);
		ask_ok(&c[0], "o0");
		if (!late) {
			ask_ok(&c[1], "o");
			usleep(20000);
		}
		stop(&c[0]);
		if (late)
			ask_ok(&c[1], "o");
		calm = calm_ns();
		answer = ask(&c[1], 'y');
		cr_expect_eq(answer.rc, SPMT_ERR_TIMEOUT);
		cr_expect_lt(calm_ns() - calm, 1000 * MS);
		snprintf(sentence, sizeof(sentence),
			"spmt_init: rank 1: process %d, which leads the rendezvous, has not answered after ",
			c[0].pid);
		cr_expect(calm_says(answer.sentence, sentence, 0.3, " s"), "%s", answer.sentence);
		over(c, 2);
	}
}
