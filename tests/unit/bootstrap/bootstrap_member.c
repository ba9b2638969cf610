/* SPDX-License-Identifier: MIT */
/* What those who have the secret say out of turn: it harms nobody else, or is told as their end. */
#include "party_world.h"
#include "raw_client.h"
#include "spmt/bootstrap/hub.h"

/* One who has the secret and is let in, as a world of nranks; it reads what it is sent itself. -1: it was sent away. */
static int let_in(const struct uid *uid, uint32_t nranks)
{
	unsigned char welcome[sizeof(struct wire_header) + sizeof(struct wire_welcome)];
	struct wire_challenge challenge;
	struct hello_frame f;
	int fd = knock(uid);

	cr_assert_geq(fd, 0);
	read_challenge(fd, &challenge);
	f = good_hello(uid, &challenge);
	f.hello.nranks = nranks;
	wire_prove_hello(uid, &challenge, &f.hello, f.hello.proof);
	say(fd, &f, sizeof(f));
	if (recv(fd, welcome, sizeof(welcome), MSG_WAITALL) == (ssize_t)sizeof(welcome))
		return fd;
	close(fd);
	return -1;
}

static void say_add(int fd, uint32_t rank)
{
	struct wire_rank w = { rank, 0 };
	struct blob blob = { (int)rank, (int)(rank * rank) };

	say_frame(fd, WIRE_ADD, &w, &blob, sizeof(blob));
}

/* Whatever still comes, until the hub hangs up. */
static void expect_hung_up(int fd)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(fd, bytes, sizeof(bytes))) > 0) {
	}
	cr_assert(!n || errno == ECONNRESET, "still there: errno %d", errno);
	close(fd);
}

/* The world of two that parties[0] has opened comes about all the same. */
static void join_rest(struct party *parties, const struct uid *uid)
{
	open_ok(&parties[1], uid, 2);
	for (int i = 0; i < 2; i++)
		add_ok(&parties[i], i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 10000), 0, "%s", status_sentence());
	check_world(parties, 2, 2);
	leave(parties, 2);
}

/* There is no rank 2 of 2, which the hub would note behind its tables. */
Test(bootstrap_member, member_of_a_rank_beyond_the_world)
{
	static const uint32_t ranks[] = { 2, 3, 1000, UINT32_MAX };
	struct party parties[2];
	struct uid uid;

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	for (size_t i = 0; i < ARRAY_SIZE(ranks); i++) {
		int fd = let_in(&uid, 2);

		cr_assert_geq(fd, 0);
		say_add(fd, ranks[i]);
		expect_hung_up(fd);
	}
	join_rest(parties, &uid);
}

/* A round of an exchange twice, or one that is not its turn: the others do not take it for the one they are in. */
Test(bootstrap_member, member_that_repeats_or_skips_a_round)
{
	static const struct {
		uint32_t rounds[3];
		int good; /* as many of them are in order */
	} rows[] = { { { 1, 1 }, 1 }, { { 2 }, 0 }, { { 1, 3 }, 1 }, { { 0 }, 0 },
		{ { 1, 2, 1 }, 2 } };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct party party;
		struct uid uid;
		int fd;

		uid_make(&uid);
		open_ok(&party, &uid, 2);
		add_ok(&party, 0);
		fd = let_in(&uid, 2);
		cr_assert_geq(fd, 0);
		say_add(fd, 1);
		cr_assert_eq(wait_for(&party, 10000), 0, "%s", status_sentence());
		for (int k = 0; k <= rows[i].good; k++) {
			struct wire_data w = { rows[i].rounds[k], 0 };

			say_frame(fd, WIRE_EXCHANGE, &w, "x", 1);
		}
		for (int k = 0; k < rows[i].good; k++) {
			char out[2];
			int fds[2], rc = bootstrap_exchange(party.b, "y", 1, -1, out, fds, 5000);

			/* which of the two is first heard of is not said */
			cr_expect(rc == SPMT_ERR_PEER_DEAD || (!rc && memchr(out, 'x', 2)),
				"row %zu, %d: %d %s", i, k, rc, status_sentence());
		}
		expect_hung_up(fd);
		cr_expect(hears(&party), "row %zu", i);
		cr_expect_eq(party.heard.code, SPMT_ERR_PEER_DEAD);
		bootstrap_close(party.b);
	}
}

/* One of another shape may break a world that gathers; one that has gathered is not its business. */
Test(bootstrap_member, guest_that_breaks_a_complete_world)
{
	struct wire_break w = { -EIO, 0 };
	struct party parties[2];
	char out[2];
	struct uid uid;
	int guest, fds[2];

	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	guest = let_in(&uid, 3);
	cr_assert_geq(guest, 0);
	open_ok(&parties[1], &uid, 2);
	for (int i = 0; i < 2; i++)
		add_ok(&parties[i], i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 10000), 0, "%s", status_sentence());
	say_frame(guest, WIRE_BREAK, &w, "no business", 11);
	say_frame(guest, WIRE_BYE, NULL, NULL, 0);
	expect_hung_up(guest); /* so it has been heard */
	cr_expect_eq(bootstrap_exchange(parties[0].b, "y", 1, -1, out, fds, 50), SPMT_ERR_TIMEOUT);
	for (int i = 0; i < 2; i++)
		cr_expect_eq(wait_for(&parties[i], 0), 0, "%s", status_sentence());
	leave(parties, 2);
}

/* As many strangers as may be there, then one who has the secret, then more strangers: it is not the newest who has to go. */
Test(bootstrap_member, member_that_comes_in_a_flood)
{
	enum { BEHIND = 8 };
	struct party party;
	struct wire_challenge challenge;
	struct hello_frame f;
	unsigned char welcome[sizeof(struct wire_header) + sizeof(struct wire_welcome)];
	int before[HUB_STRANGERS], behind[BEHIND], fd;
	struct uid uid;

	uid_make(&uid);
	open_ok(&party, &uid, 2);
	for (int i = 0; i < HUB_STRANGERS; i++)
		before[i] = knock(&uid);
	fd = knock(&uid);
	for (int i = 0; i < BEHIND; i++)
		behind[i] = knock(&uid);
	/* In order: who has its challenge has been let in, and who had to go for it is gone. */
	read_challenge(behind[BEHIND - 1], &challenge);
	read_challenge(fd, &challenge);
	f = good_hello(&uid, &challenge);
	say(fd, &f, sizeof(f));
	cr_assert_eq(recv(fd, welcome, sizeof(welcome), MSG_WAITALL), (ssize_t)sizeof(welcome));
	say_add(fd, 1);
	add_ok(&party, 0);
	cr_expect_eq(wait_for(&party, 10000), 0, "%s", status_sentence());
	bootstrap_close(party.b);
	for (int i = 0; i < HUB_STRANGERS; i++)
		close(before[i]);
	for (int i = 0; i < BEHIND; i++)
		close(behind[i]);
	close(fd);
}
