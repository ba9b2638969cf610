/* SPDX-License-Identifier: MIT */
/*
 * The names of the rendezvous while others hold them: another user, who sees a name in use and takes it when it is given up; a forked child, which
 * keeps it; a process that died; a program of the same user that is no hub. Each world gathers as if they were not there.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "party_world.h"
#include "tests/lib/clocks.h"

#define NOBODY 65534
#define ANSWER_MS 1000 /* for a world that finds names held */

static socklen_t name_of(const struct uid *uid, unsigned number, struct sockaddr_un *a)
{
	char name[WIRE_NAME];

	wire_name(uid, -1, number, name);
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path + 1, name, strlen(name));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* A socket that has the name, -1: somebody else has. */
static int take(const struct uid *uid, unsigned number, int type)
{
	struct sockaddr_un a;
	socklen_t size = name_of(uid, number, &a);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&a, size)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* ---- who holds names ------------------------------------------------------------------------------------------------------- */

enum how { BOUND, LISTENING, FULL, DATAGRAM, GARBAGE, FALSE_HUB, FOLLOWING };

/* Listens, and lets nobody more in. */
static void fill_up(int fd, const struct uid *uid, unsigned number)
{
	struct sockaddr_un a;
	socklen_t size = name_of(uid, number, &a);
	int rc = listen(fd, 0);

	while (!rc) {
		int own = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

		rc = connect(own, (struct sockaddr *)&a, size);
	}
}

/* Speaks as a hub would, without the secret. */
static void answer_falsely(int listener, enum how how)
{
	struct {
		struct wire_header header;
		struct wire_challenge challenge;
		struct wire_header second;
		struct wire_welcome welcome;
	} said = { { sizeof(said.challenge), WIRE_CHALLENGE, 0 },
		{ .magic = WIRE_MAGIC, .version = WIRE_VERSION },
		{ sizeof(said.welcome), WIRE_WELCOME, 0 }, { .member = 1, .nranks = 2 } };
	int fd = accept(listener, NULL, NULL);
	char bytes[512];

	if (how == GARBAGE)
		memset(&said, 0x5a, sizeof(said));
	(void)!send(fd, &said, sizeof(said.header) + sizeof(said.challenge), MSG_NOSIGNAL);
	if (how == FALSE_HUB && read(fd, bytes, sizeof(bytes)) > 0)
		(void)!send(
			fd, &said.second, sizeof(said.second) + sizeof(said.welcome), MSG_NOSIGNAL);
	(void)!read(fd, bytes, sizeof(bytes));
	close(fd);
}

/* Takes each of the names as soon as it is seen in use and given up. */
static void follow(const struct uid *uid)
{
	enum { MOST = 64 };
	char names[MOST][WIRE_NAME], line[300];
	bool seen[MOST] = { false };

	for (unsigned i = 0; i < MOST; i++)
		wire_name(uid, -1, i, names[i]);
	for (;;) {
		FILE *f = fopen("/proc/net/unix", "re");

		while (f && fgets(line, sizeof(line), f))
			for (int i = 0; i < MOST; i++)
				seen[i] |= strstr(line, names[i]) != NULL;
		if (f)
			fclose(f);
		for (unsigned i = 0; i < MOST; i++) {
			int fd = seen[i] ? take(uid, i, SOCK_STREAM) : -1;

			if (fd >= 0 && i % 2)
				(void)!listen(fd, 1);
		}
		usleep(500);
	}
}

/* A process that holds the first n names, from when this has returned. */
struct holder {
	const struct uid *uid;
	unsigned n;
	enum how how;
	bool other_user;
	pid_t pid;
};

static void hold(const struct holder *h, int out)
{
	int fd = -1;

	for (unsigned i = 0; i < h->n; i++) {
		fd = take(h->uid, i, h->how == DATAGRAM ? SOCK_DGRAM : SOCK_STREAM);
		if (h->how == FULL)
			fill_up(fd, h->uid, i);
		else if (h->how != BOUND && h->how != DATAGRAM)
			(void)!listen(fd, 8);
	}
	if (write(out, "", 1) != 1)
		return;
	if (h->how == FOLLOWING)
		follow(h->uid);
	while (h->how == GARBAGE || h->how == FALSE_HUB)
		answer_falsely(fd, h->how);
	for (;;)
		pause();
}

static void holder_start(struct holder *h)
{
	int ends[2];
	char byte;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	h->pid = fork();
	cr_assert_geq(h->pid, 0);
	if (!h->pid) {
		if (h->other_user && (setgid(NOBODY) || setuid(NOBODY)))
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		hold(h, ends[1]);
		_exit(1);
	}
	close(ends[1]);
	cr_assert_eq(read(ends[0], &byte, 1), 1, "the names cannot be held");
	close(ends[0]);
}

static void ended(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Three parties, one after the other. */
static void gather(const struct uid *uid)
{
	int64_t begin = calm_ns();
	struct party parties[3];

	join(uid, parties, (int[]){ 1, 2, 1 }, 3, 4);
	check_world(parties, 3, 4);
	cr_expect_lt(calm_ns() - begin, ANSWER_MS * MS);
	leave(parties, 3);
}

/* ---- another user ---------------------------------------------------------------------------------------------------------- */

Test(bootstrap_names, held_by_another_user)
{
	if (geteuid())
		cr_skip_test("only root can become nobody");
	for (enum how how = BOUND; how <= DATAGRAM; how++) {
		struct holder h = { .n = 5, .how = how, .other_user = true };
		struct uid uid;

		uid_make(&uid);
		h.uid = &uid;
		holder_start(&h);
		for (int i = 0; i < 2; i++)
			gather(&uid);
		ended(h.pid);
	}
}

/* World after world of one uid: each name is gone once it has been used. */
Test(bootstrap_names, followed_by_another_user)
{
	struct uid uid;
	struct holder h = { .uid = &uid, .how = FOLLOWING, .other_user = true };

	if (geteuid())
		cr_skip_test("only root can become nobody");
	uid_make(&uid);
	holder_start(&h);
	for (int i = 0; i < 20; i++) {
		gather(&uid);
		usleep(5000); /* for the other to take what was left */
	}
	ended(h.pid);
}

/* Ranks of two users do not meet, and say why. */
Test(bootstrap_names, ranks_of_two_users)
{
	struct party party;
	struct uid uid;
	pid_t pid;
	int status;

	if (geteuid())
		cr_skip_test("only root can become nobody");
	uid_make(&uid);
	open_ok(&party, &uid, 2);
	add_ok(&party, 0);
	pid = fork();
	if (!pid) {
		int rc = setgid(NOBODY) || setuid(NOBODY) || party_open(&party, &uid, 2, false) ||
			add(&party, 1);

		if (rc || wait_for(&party, 100) != SPMT_ERR_TIMEOUT)
			_exit(1);
		_exit(!strstr(status_sentence(),
			"spmt_init: a process of user 0 has a name of the rendezvous, this one is of user 65534: 1 of 2 ranks missing"));
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
	cr_expect_eq(wait_for(&party, 100), SPMT_ERR_TIMEOUT);
	cr_expect(says(" s: 1"), "%s", status_sentence());
	leave(&party, 1);
}

/* ---- the same user --------------------------------------------------------------------------------------------------------- */

Test(bootstrap_names, held_by_a_program_that_is_no_hub)
{
	static const enum how hows[] = { BOUND, DATAGRAM, GARBAGE, FALSE_HUB };

	for (size_t i = 0; i < ARRAY_SIZE(hows); i++) {
		struct uid uid;
		struct holder h = { .uid = &uid, .n = 1, .how = hows[i] };

		uid_make(&uid);
		holder_start(&h);
		for (int k = 0; k < 3; k++)
			gather(&uid);
		ended(h.pid);
	}
}

/* A process leads, has a child that keeps all it had open, and ends: in good order, or killed. */
static pid_t leader_with_child(const struct uid *uid, bool killed)
{
	int ends[2];
	pid_t pid, child = 0;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (!pid) {
		struct party party;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (party_open_as(&party, uid, 4, false, 0) || add(&party, 0))
			_exit(1);
		child = (pid_t)syscall(
			SYS_clone, SIGCHLD, 0, 0, 0, 0); /* no handler of forks runs */
		if (!child)
			for (;;)
				pause();
		if (!killed)
			bootstrap_close(party.b);
		(void)!write(ends[1], &child, sizeof(child));
		for (;;)
			pause();
	}
	close(ends[1]);
	cr_assert_eq(read(ends[0], &child, sizeof(child)), (ssize_t)sizeof(child));
	close(ends[0]);
	if (killed)
		ended(pid);
	return child;
}

Test(bootstrap_names, kept_by_a_child)
{
	for (int killed = 0; killed < 2; killed++) {
		struct uid uid;
		pid_t child[2];

		uid_make(&uid);
		for (int i = 0; i < 2; i++)
			child[i] = leader_with_child(&uid, killed);
		for (int i = 0; i < 3; i++)
			gather(&uid);
		for (int i = 0; i < 2; i++)
			kill(child[i], SIGKILL);
	}
}

/* ---- two that lead --------------------------------------------------------------------------------------------------------- */

/* The first name was held when one began to lead, and is free when another comes. */
static void two_lead(const struct uid *uid, struct party parties[3])
{
	struct holder h = { .uid = uid, .n = 1, .how = BOUND };

	holder_start(&h);
	open_ok(&parties[0], uid, 3);
	add_ok(&parties[0], 0);
	ended(h.pid);
	open_ok(&parties[1], uid, 3);
}

Test(bootstrap_names, the_lowest_leads)
{
	for (int i = 0; i < 20; i++) {
		struct party parties[3];
		struct uid uid;
		int64_t begin;

		uid_make(&uid);
		two_lead(&uid, parties);
		begin = calm_ns();
		if (i % 2)
			add_ok(&parties[1], 1);
		open_ok(&parties[2], &uid, 3);
		add_ok(&parties[2], 2);
		if (i % 2 == 0)
			add_ok(&parties[1], 1);
		for (int k = 0; k < 3; k++)
			cr_assert_eq(wait_for(&parties[k], 10000), 0, "%s", status_sentence());
		check_world(parties, 3, 3);
		cr_expect_lt(calm_ns() - begin, ANSWER_MS * MS);
		leave(parties, 3);
	}
}

/* With members of its own, who follow. */
Test(bootstrap_names, members_follow)
{
	struct holder h = { .n = 3, .how = BOUND };
	struct party parties[6];
	struct uid uid;

	uid_make(&uid);
	h.uid = &uid;
	holder_start(&h);
	for (int i = 0; i < 4; i++) {
		open_ok(&parties[i], &uid, 6);
		add_ok(&parties[i], i);
	}
	ended(h.pid);
	for (int i = 4; i < 6; i++) {
		open_ok(&parties[i], &uid, 6);
		add_ok(&parties[i], i);
	}
	for (int i = 0; i < 6; i++)
		cr_assert_eq(wait_for(&parties[i], 10000), 0, "%s", status_sentence());
	check_world(parties, 6, 6);
	leave(parties, 6);
}

/* What has broken the world of the one is heard at the other. */
Test(bootstrap_names, a_break_goes_along)
{
	for (int by = 0; by < 2; by++) {
		struct party parties[3];
		struct uid uid;

		uid_make(&uid);
		two_lead(&uid, parties);
		bootstrap_break(parties[by].b, &(struct cause){ -EIO, 0, "on purpose" });
		cr_expect_eq(wait_for(&parties[1 - by], 10000), -EIO, "%s", status_sentence());
		cr_expect(says("on purpose"));
		for (int i = 0; i < 2; i++)
			bootstrap_close(parties[i].b);
	}
}

/* ---- at once --------------------------------------------------------------------------------------------------------------- */

struct start {
	_Atomic int ready, round;
	struct uid uid;
};

enum { STARTERS = 3 };

static int starts(struct start *s, int rank, int rounds)
{
	for (int i = 1; i <= rounds; i++) {
		struct party party;
		int rc;

		atomic_fetch_add(&s->ready, 1);
		while (atomic_load(&s->round) < i)
			;
		rc = party_open_as(&party, &s->uid, STARTERS, false, rank);
		if (!rc)
			rc = add(&party, rank);
		if (!rc)
			rc = wait_for(&party, 10000);
		if (rc) {
			dprintf(2, "round %d, rank %d: %d %s\n", i, rank, rc, status_sentence());
			return 1;
		}
		bootstrap_close(party.b);
	}
	return 0;
}

/* Processes that come in the same instant, to the same uid or to a new one. */
static void start_together(bool same)
{
	int rounds = getenv("SPMT_TEST_LONG") ? 1000 : 60, status;
	struct start *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[STARTERS];

	cr_assert_neq(s, MAP_FAILED);
	uid_make(&s->uid);
	for (int r = 0; r < STARTERS; r++) {
		pids[r] = fork();
		if (!pids[r]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			alarm(200);
			_exit(starts(s, r, rounds));
		}
	}
	for (int i = 1; i <= rounds; i++) {
		int64_t end = process_now() + 20000 * MS;

		while (atomic_load(&s->ready) < i * STARTERS && process_now() < end)
			usleep(20);
		if (!same)
			uid_make(&s->uid);
		atomic_store(&s->round, i);
	}
	for (int r = 0; r < STARTERS; r++) {
		cr_assert_eq(waitpid(pids[r], &status, 0), pids[r]);
		cr_expect_eq(status, 0);
	}
	munmap(s, sizeof(*s));
}

Test(bootstrap_names, start_in_the_same_instant, .timeout = 240)
{
	start_together(true);
	start_together(false);
}
