/* SPDX-License-Identifier: MIT */
/* The rendezvous over TCP, byte by byte: it asks for the same proofs as at a unix socket, and the secret is in nothing that travels. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "false_hellos.h"
#include "party_world.h"
#include "spmt/bootstrap/state.h"
#include "tests/lib/clocks.h"

/* The first is there; the other comes from another node, with the uid that it was shown. */
static void two_meet(const struct uid *shown, struct party *parties)
{
	cr_assert_eq(party_open(&parties[1], shown, 2, true), 0, "%s", status_sentence());
	for (int i = 0; i < 2; i++)
		add_ok(&parties[i], i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 20000), 0, "%s", status_sentence());
	check_blobs(&parties[1], 2);
}

static void two_parties(const struct uid *uid, struct party *parties)
{
	open_ok(&parties[0], uid, 2);
	two_meet(uid, parties);
	leave(parties, 2);
}

static bool has_ipv6(void)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof(a));

	if (fd >= 0)
		close(fd);
	return has;
}

Test(bootstrap_tcp, a_subnet_of_ipv4)
{
	struct party parties[2];
	struct uid uid;

	setenv("SPMT_SOCKET_IFNAME", "nosuch0,127.0.0.0/8", 1);
	uid_make(&uid);
	cr_expect_eq(uid.place.at[0].family, AF_INET);
	two_parties(&uid, parties);
}

Test(bootstrap_tcp, a_subnet_of_ipv6)
{
	struct party parties[2];
	struct uid uid;

	if (!has_ipv6())
		cr_skip_test("no IPv6 here");
	setenv("SPMT_SOCKET_IFNAME", "::1/128", 1);
	uid_make(&uid);
	cr_expect_eq(uid.place.at[0].family, AF_INET6);
	two_parties(&uid, parties);
}

static void refused(const char *words)
{
	spmt_uid uid;

	setenv("SPMT_SOCKET_IFNAME", words, 1);
	cr_expect_eq(spmt_uid_create(&uid), -EINVAL, "%s", words);
	cr_expect(strstr(status_sentence(), "neither the name of an interface nor a subnet"));
}

/* The environment is read once a process. */
Test(bootstrap_tcp, too_many_bits)
{
	refused("10.1.0.0/33");
}

Test(bootstrap_tcp, too_many_bits_of_ipv6)
{
	refused("nosuch0,fd00::/129");
}

Test(bootstrap_tcp, no_address)
{
	refused("10.1/16");
}

Test(bootstrap_tcp, no_word)
{
	refused("nosuch0,");
}

Test(bootstrap_tcp, wrong_and_replayed_proofs)
{
	struct party parties[2];
	struct uid uid;

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(&uid);
	open_ok(&parties[0], &uid, 2);
	try_to_get_in(&uid, knock_tcp);
	two_meet(&uid, parties);
	leave(parties, 2);
}

/* ---- who listens in ---------------------------------------------------------------------------- */

struct tap {
	const struct uid *real; /* where the hub listens */
	int listener;
	pthread_t thread;
	unsigned char bytes[1 << 16];
	size_t n;
};

static bool pass(struct tap *tap, int from, int to)
{
	ssize_t n = recv(from, tap->bytes + tap->n, sizeof(tap->bytes) - tap->n, 0);

	if (n <= 0)
		return false;
	say(to, tap->bytes + tap->n, (size_t)n);
	tap->n += (size_t)n;
	return true;
}

static void *listen_in(void *arg)
{
	struct tap *tap = arg;
	int near = accept(tap->listener, NULL, NULL), far = knock_tcp(tap->real);
	struct pollfd fds[] = { { near, POLLIN, 0 }, { far, POLLIN, 0 } };

	for (bool goes_on = true; goes_on && poll(fds, 2, 20000) > 0;)
		for (int i = 0; i < 2; i++)
			if (fds[i].revents && !pass(tap, fds[i].fd, fds[!i].fd))
				goes_on = false;
	close(near);
	close(far);
	return NULL;
}

static bool holds(const struct tap *tap, const void *what, size_t n)
{
	return memmem(tap->bytes, tap->n, what, n) != NULL;
}

/* The client takes a port for the hub's at which all passes through. No eight bytes of the secret are among what it says or hears. */
Test(bootstrap_tcp, nothing_secret_in_clear)
{
	static struct tap tap;
	struct party parties[2];
	struct uid uid, shown;
	union place_name a;
	socklen_t size;
	int on = 1;

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(&uid);
	shown = uid;
	memset(shown.place.at + 1, 0, 2 * sizeof(shown.place.at[1]));
	shown.port = (uint16_t)(PLACE_PORT_LEAST +
		(uid.port - PLACE_PORT_LEAST + 777) % PLACE_PORT_COUNT);
	tap.real = &uid;
	open_ok(&parties[0], &uid, 2);
	tap.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(tap.listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	size = address_name(&shown.place.at[0], shown.port, &a);
	if (bind(tap.listener, &a.any, size))
		cr_skip_test("somebody has the port");
	cr_assert_eq(listen(tap.listener, 4), 0);
	cr_assert_eq(pthread_create(&tap.thread, NULL, listen_in, &tap), 0);
	two_meet(&shown, parties);
	leave(parties, 2);
	pthread_join(tap.thread, NULL);
	close(tap.listener);
	cr_expect(holds(&tap, &(struct blob){ 1, 1 }, sizeof(struct blob)), "it did pass through");
	for (size_t i = 0; i + 8 <= sizeof(uid.secret); i++)
		cr_expect(!holds(&tap, uid.secret + i, 8));
	cr_expect(!holds(&tap, uid.id, sizeof(uid.id)));
}

/* ---- several addresses -------------------------------------------------------------------------- */

/* 127.0.0.`last`, all of which are this node's. */
static struct place_address here(unsigned char last)
{
	return (struct place_address){ AF_INET, 0, { 127, 0, 0, last } };
}

static void uid_at(struct uid *uid, unsigned char first, unsigned char second)
{
	const struct uid_place place = { .at = { here(first), here(second) } };

	uid_make(uid);
	uid_move(uid, &place);
}

struct squatters {
	int fds[PLACE_PORTS], knocks[PLACE_PORTS][3];
};

/* Others have all ports of the uid's first address. full: nobody is let in any more, as where packets get lost. */
static void squat(const struct uid *uid, struct squatters *s, bool full)
{
	for (int i = 0; i < PLACE_PORTS; i++) {
		union place_name a;
		socklen_t size = address_name(&uid->place.at[0], place_port(uid->port, i), &a);

		s->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(s->fds[i], &a.any, size))
			cr_skip_test("somebody has the port");
		cr_assert_eq(listen(s->fds[i], full ? 0 : 64), 0);
		for (int k = 0; full && k < 3; k++) {
			s->knocks[i][k] =
				socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
			connect(s->knocks[i][k], &a.any, size);
		}
	}
}

static void squatters_leave(struct squatters *s, bool full)
{
	for (int i = 0; i < PLACE_PORTS; i++) {
		close(s->fds[i]);
		for (int k = 0; full && k < 3; k++)
			close(s->knocks[i][k]);
	}
}

static void meets_past(bool full)
{
	struct party parties[2];
	struct squatters s;
	struct uid uid;
	int64_t begin;

	uid_at(&uid, 2, 3);
	squat(&uid, &s, full);
	begin = calm_ns();
	two_parties(&uid, parties);
	/* the eight ports of an address alone would take 16 s */
	cr_expect_lt(calm_ns() - begin, 10000 * MS);
	squatters_leave(&s, full);
}

Test(bootstrap_tcp, first_address_answers_nothing)
{
	meets_past(true);
}

Test(bootstrap_tcp, first_address_is_a_silent_stranger)
{
	meets_past(false);
}

/* The hub knows one address, of which nobody listens at those that the other tries first. */
Test(bootstrap_tcp, first_addresses_refuse)
{
	struct party parties[2];
	struct uid uid, shown;

	uid_at(&uid, 1, 1);
	memset(&uid.place.at[1], 0, sizeof(uid.place.at[1]));
	shown = uid;
	shown.place = (struct uid_place){ .at = { here(4), here(5), here(1) } };
	open_ok(&parties[0], &uid, 2);
	two_meet(&shown, parties);
	leave(parties, 2);
}

/* An address for documents (RFC 5737), which has gone since the uid was made. */
static void uid_lost(struct uid *uid, bool made_here)
{
	const struct uid_place place = { .at = { here(6), { AF_INET, 0, { 192, 0, 2, 6 } } } };

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(uid);
	if (!made_here)
		uid_move(uid, &place);
	uid->place = place;
}

/* Where it was made it is led nevertheless; and who is there, too, is told where that one would lead after it. */
Test(bootstrap_tcp, an_address_that_has_gone)
{
	struct party parties[3];
	struct uid uid, derived;

	uid_lost(&uid, true);
	uid_derive(&uid, "1", 1, &derived);
	open_ok(&parties[0], &derived, 3);
	open_ok(&parties[1], &derived, 3);
	cr_assert_eq(party_open(&parties[2], &derived, 3, true), 0, "%s", status_sentence());
	for (int i = 0; i < 3; i++)
		add_ok(&parties[i], i);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(wait_for(&parties[i], 20000), 0, "%s", status_sentence());
	for (int i = 0; i < 3; i++) {
		const struct heir *heir = &parties[i].b->client.heirs[1];

		cr_expect_neq(heir->port, 0);
		cr_expect_eq(memcmp(&heir->place, &uid.place.at[0], sizeof(heir->place)), 0);
	}
	leave(parties, 3);
}

/* Nodes may have addresses in common. */
Test(bootstrap_tcp, an_address_that_another_node_has)
{
	struct party party;
	struct uid uid;

	uid_lost(&uid, false);
	open_ok(&party, &uid, 2);
	cr_expect_eq(add_within(&party, 1, 1000), SPMT_ERR_TIMEOUT);
	cr_expect(strstr(status_sentence(), "rank 1: nobody leads the rendezvous at 127.0.0.6 ("),
		"%s", status_sentence());
	cr_expect(
		says(" s; this node has 127.0.0.6 of these and not the rest, so it does not lead"),
		"%s", status_sentence());
	bootstrap_close(party.b);
}

Test(bootstrap_tcp, nobody_at_any_address)
{
	struct party party;
	struct uid uid;

	uid_at(&uid, 8, 9);
	cr_assert_eq(party_open(&party, &uid, 2, true), 0, "%s", status_sentence());
	cr_expect_eq(add_within(&party, 1, 2000), SPMT_ERR_TIMEOUT);
	cr_expect(
		strstr(status_sentence(),
			"rank 1: nobody leads the rendezvous at 127.0.0.8 (Connection refused), 127.0.0.9 (Connection refused) after "),
		"%s", status_sentence());
	bootstrap_close(party.b);
}
