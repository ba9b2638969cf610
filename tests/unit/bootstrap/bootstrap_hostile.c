/* SPDX-License-Identifier: MIT */
/* Strangers at the rendezvous, and what there is over TCP. Each test ends with a world that is well. */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "false_hellos.h"
#include "party_world.h"
#include "tests/lib/clocks.h"

/* The challenge is all that a stranger ever gets. */
static void expect_dropped(int fd)
{
	char bytes[4096];
	size_t got = 0;
	ssize_t n;

	do {
		n = read(fd, bytes, sizeof(bytes));
		got += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	cr_expect(!n || errno == ECONNRESET, "still there: errno %d", errno);
	cr_expect_leq(got, sizeof(struct wire_header) + sizeof(struct wire_challenge));
	close(fd);
}

/* The world goes on, at once. */
static void finish(struct party *parties, int n, const struct uid *uid, bool only_tcp)
{
	int64_t begin = calm_ns();

	for (int i = 1; i < n; i++) {
		cr_assert_eq(party_open(&parties[i], uid, n, only_tcp), 0, "%s", status_sentence());
		add_ok(&parties[i], i);
	}
	add_ok(&parties[0], 0);
	for (int i = 0; i < n; i++)
		cr_assert_eq(wait_for(&parties[i], 10000), 0, "%s", status_sentence());
	cr_expect_lt(calm_ns() - begin, 1000 * MS);
	for (int i = 0; i < n; i++) {
		check_blobs(&parties[i], n);
		cr_expect_eq(parties[i].heard.times, 0);
		bootstrap_close(parties[i].b);
	}
}

Test(bootstrap_hostile, garbage)
{
	struct party parties[2];
	unsigned seed = 1;
	struct uid uid;

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	for (int i = 0; i < 200; i++) {
		int fd = knock(&uid);
		unsigned char bytes[512];
		struct wire_header h = { UINT32_MAX, (uint16_t)(i % 16), 0 };

		cr_assert_geq(fd, 0);
		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (unsigned char)(seed = seed * 1103515245 + 12345) >> 3;
		if (i & 1)
			memcpy(bytes, &h, sizeof(h));
		say(fd, bytes, sizeof(bytes));
		expect_dropped(fd);
	}
	finish(parties, 2, &uid, false);
}

/* Names like those by which a hub knows its members, made without the secret, in vain or for no rank. */
Test(bootstrap_hostile, false_names)
{
	struct party parties[2];
	struct uid uid, other;
	char names[6][WIRE_NAME];

	uid_make(&uid);
	uid_make(&other);
	wire_name(&other, 1, 0, names[0]);
	wire_name(&uid, -1, 0, names[1]);
	memcpy(names[1] + strlen(names[1]), ".1", 3);
	wire_name(&uid, 2, 0, names[2]);
	wire_name(&uid, 1, 0, names[3]);
	memcpy(names[3] + strlen(names[3]), "x", 2);
	wire_name(&uid, 1, 0, names[4]);
	*strchr(names[4], '.') = 0;
	strcpy(names[5], ".");
	open_ok(&parties[0], &uid, 2);
	for (int i = 0; i < 6; i++) {
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		memcpy(a.sun_path + 1, names[i], strlen(names[i]));
		cr_assert_eq(bind(fd, (struct sockaddr *)&a,
				     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
					     strlen(names[i]))),
			0);
		cr_assert_eq(connect(fd, (struct sockaddr *)&a, unix_name(&uid, &a)), 0);
		close(fd);
	}
	usleep(20000);
	finish(parties, 2, &uid, false);
}

Test(bootstrap_hostile, wrong_and_replayed_proofs)
{
	struct party parties[2];
	struct uid uid;

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	try_to_get_in(&uid, knock);
	finish(parties, 2, &uid, false);
}

/* One who has the secret breaks the rules afterwards: it is gone, and brought no rank. */
Test(bootstrap_hostile, member_that_talks_nonsense)
{
	static const struct wire_header headers[] = { { UINT32_MAX, WIRE_ADD, 0 },
		{ sizeof(struct wire_rank) + 1, WIRE_ADD, 0 }, { 0, WIRE_HELLO, 0 },
		{ 0, WIRE_BYE, 1 }, { WIRE_DATA + 100, WIRE_EXCHANGE, 0 }, { 8, WIRE_EXCHANGE, 0 },
		{ 8, WIRE_COMPLETE, 0 }, { 9, 77, 0 } };
	struct party parties[2];
	struct uid uid;

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		struct wire_challenge challenge;
		unsigned char bytes[64] = { 0 },
			      welcome[sizeof(struct wire_header) + sizeof(struct wire_welcome)];
		struct hello_frame f;
		int fd = knock(&uid);

		read_challenge(fd, &challenge);
		f = good_hello(&uid, &challenge);
		say(fd, &f, sizeof(f));
		cr_assert_eq(
			recv(fd, welcome, sizeof(welcome), MSG_WAITALL), (ssize_t)sizeof(welcome));
		memcpy(bytes, &headers[i], sizeof(headers[i]));
		say(fd, bytes, sizeof(bytes));
		expect_dropped(fd);
	}
	finish(parties, 2, &uid, false);
}

/* Those who say nothing, or half of it, are sent away after two seconds and hold up nobody. */
Test(bootstrap_hostile, half_open)
{
	struct party parties[2];
	struct uid uid;
	int fds[20];
	int64_t begin = process_now(), calm = calm_ns();

	uid_make(&uid);
	open_ok(&parties[0], &uid, 3);
	for (int i = 0; i < 20; i++) {
		struct wire_header h = { sizeof(struct wire_hello), WIRE_HELLO, 0 };

		fds[i] = knock(&uid);
		say(fds[i], &h, (size_t)i % (sizeof(h) + 1));
	}
	open_ok(&parties[1], &uid, 3);
	add_ok(&parties[1], 1);
	cr_expect_lt(calm_ns() - calm, 1000 * MS);
	for (int i = 0; i < 20; i++)
		expect_dropped(fds[i]);
	cr_expect_gt(process_now() - begin, 1500 * MS);
	cr_expect_lt(calm_ns() - calm, 3500 * MS);
	add_ok(&parties[0], 0);
	add_ok(&parties[0], 2);
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(wait_for(&parties[i], 10000), 0);
		bootstrap_close(parties[i].b);
	}
}

Test(bootstrap_hostile, flood)
{
	struct party parties[3];
	struct uid uid;
	int fds[500];

	uid_make(&uid);
	open_ok(&parties[0], &uid, 3);
	for (int i = 0; i < 500; i++)
		fds[i] = knock(&uid);
	cr_expect_lt(links_count("fd"), 500 + 150, "the hub keeps few of them");
	finish(parties, 3, &uid, false);
	for (int i = 0; i < 500; i++)
		close(fds[i]);
}

/* The hub runs out of descriptors, and gets them back from those who have proved nothing. */
Test(bootstrap_hostile, flood_with_few_descriptors)
{
	struct rlimit limit, few;
	struct party parties[3];
	struct uid uid;
	pid_t pid;
	int ready[2];
	char byte;

	uid_make(&uid);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = 48;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	open_ok(&parties[0], &uid, 3);
	cr_assert_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_NOFILE, &limit);
		for (int i = 0; i < 300; i++)
			knock(&uid);
		_exit(write(ready[1], "", 1) != 1 || sleep(30));
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	finish(parties, 3, &uid, false);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* No descriptors are allowed at all any more, as in sandboxes: the hub cannot even look who is at the door, and does not spin over it. */
Test(bootstrap_hostile, no_descriptors)
{
	struct timespec before, after;
	struct rlimit limit, none;
	struct party party;
	struct uid uid;
	pid_t pid;
	int rc;

	uid_make(&uid);
	open_ok(&party, &uid, 3);
	add_ok(&party, 0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none); /* no asserts from here on: they take descriptors */
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_NOFILE, &limit);
		_exit(knock(&uid) < 0 || sleep(30));
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	rc = wait_for(&party, 10000);
	sleep(1);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	setrlimit(RLIMIT_NOFILE, &limit);
	cr_expect_eq(rc, -EMFILE);
	cr_expect(strstr(status_sentence(), "out of memory or descriptors (ulimit -n)"));
	cr_expect_lt((after.tv_sec - before.tv_sec) * 1000 * MS + after.tv_nsec - before.tv_nsec,
		300 * MS);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	bootstrap_close(party.b);
}

/* Runs f as the user nobody; its result is the exit status. */
static int as_nobody(int (*f)(const struct uid *uid), const struct uid *uid)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(setgid(65534) || setuid(65534) ? 99 : f(uid));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* With the uid in hand, even. */
static int knock_as_other(const struct uid *uid)
{
	int fd = knock(uid);
	char byte;

	return fd < 0 ? 1 : recv(fd, &byte, 1, 0) == 0 ? 0 : 2;
}

Test(bootstrap_hostile, another_user)
{
	struct party parties[2];
	struct uid uid;

	if (geteuid())
		cr_skip_test("only root can become nobody");
	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	cr_expect_eq(as_nobody(knock_as_other, &uid), 0);
	finish(parties, 2, &uid, false);
}

/* ---- TCP ----------------------------------------------------------------------------------- */

Test(bootstrap_hostile, no_tcp_unless_asked)
{
	const struct uid_place none = { 0 };
	struct uid uid;

	uid_make(&uid);
	cr_expect_not(uid_travels(&uid));
	cr_expect_eq(memcmp(&uid.place, &none, sizeof(none)), 0);
}

Test(bootstrap_hostile, no_such_interface)
{
	spmt_uid uid;

	setenv("SPMT_SOCKET_IFNAME", "nosuch0", 1);
	cr_expect_eq(spmt_uid_create(&uid), -ENODEV);
	cr_expect(
		strstr(status_sentence(),
			"SPMT_SOCKET_IFNAME=nosuch0: no interface of that name or subnet is up and has an address that other nodes can use; there are: "),
		"%s", status_sentence());
}

Test(bootstrap_hostile, tcp)
{
	struct party parties[3];
	char out[3 * 4];
	struct uid uid;
	int fds[3];

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(&uid);
	cr_expect_eq(uid.place.at[0].family, AF_INET);
	open_ok(&parties[0], &uid, 2);
	for (int i = 0; i < PLACE_PORTS; i++) {
		union place_name a;
		socklen_t size = address_name(&uid.place.at[0], place_port(uid.port, i), &a);
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (!connect(fd, &a.any, size)) {
			say(fd, "GET / HTTP/1.1\r\n\r\n", 18);
			expect_dropped(fd);
		} else {
			close(fd);
			cr_expect_neq(i, 0);
		}
	}
	cr_assert_eq(party_open(&parties[1], &uid, 2, true), 0);
	add_ok(&parties[0], 0);
	add_ok(&parties[1], 1);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 5000), 0, "%s", status_sentence());
	check_blobs(&parties[1], 2);
	cr_expect_null(parties[1].control, "memory does not travel");
	cr_expect_eq(
		bootstrap_exchange(parties[0].b, "", 1, 0, out, fds, 1000), SPMT_ERR_UNSUPPORTED);
	for (int i = 0; i < 2; i++)
		bootstrap_close(parties[i].b);
	uid_make(&uid);
	open_ok(&parties[0], &uid, 3);
	finish(parties, 3, &uid, true);
}

/* Others sit at the first ports, one silent, one talkative: neither is taken for the hub. */
Test(bootstrap_hostile, ports_in_use)
{
	struct party parties[2];
	union place_name a;
	socklen_t size;
	struct uid uid;
	int fds[2];

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(&uid);
	for (int i = 0; i < 2; i++) {
		size = address_name(&uid.place.at[0], place_port(uid.port, i), &a);
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(fds[i], &a.any, size)) /* of another world on this machine */
			cr_skip_test("somebody has port %d", place_port(uid.port, i));
		cr_assert_eq(listen(fds[i], 8), 0);
	}
	open_ok(&parties[0], &uid, 2);
	cr_assert_eq(party_open(&parties[1], &uid, 2, true), 0);
	add_ok(&parties[0], 0);
	add_ok(&parties[1], 1);
	for (int i = 0; i < 2; i++)
		cr_expect_eq(wait_for(&parties[i], 9000), 0, "%s", status_sentence());
	for (int i = 0; i < 2; i++) {
		bootstrap_close(parties[i].b);
		close(fds[i]);
	}
}
