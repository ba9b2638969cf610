/* SPDX-License-Identifier: MIT */
/* The rendezvous over TCP, byte by byte: it asks for the same proofs as at a unix socket, and the secret is in nothing that travels. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "party_world.h"
#include "raw_client.h"

static socklen_t tcp_name(const struct uid *uid, int i, struct sockaddr_storage *a)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(uid_port(uid, i)) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
		.sin6_port = htons(uid_port(uid, i)),
		.sin6_scope_id = uid->scope };

	memset(a, 0, sizeof(*a));
	memcpy(&in.sin_addr, uid->address, sizeof(in.sin_addr));
	memcpy(&in6.sin6_addr, uid->address, sizeof(in6.sin6_addr));
	if (uid->family == AF_INET)
		memcpy(a, &in, sizeof(in));
	else
		memcpy(a, &in6, sizeof(in6));
	return uid->family == AF_INET ? sizeof(in) : sizeof(in6);
}

/* At the port where the hub listens, which has to be the first that answers. */
static int knock_tcp(const struct uid *uid)
{
	struct timeval patience = { .tv_sec = 10 };

	for (int i = 0; i < UID_PORTS; i++) {
		struct sockaddr_storage a;
		socklen_t size = tcp_name(uid, i, &a);
		int fd = socket(uid->family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		if (!connect(fd, (struct sockaddr *)&a, size))
			return fd;
		close(fd);
	}
	cr_assert_fail("nobody listens");
	return -1;
}

/* No byte more, and an end. */
static void expect_end(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, 0);

	cr_expect(!n || (n < 0 && errno == ECONNRESET), "%zd, errno %d", n, errno);
	close(fd);
}

static void two_parties(const struct uid *uid, struct party *parties)
{
	open_ok(&parties[0], uid, 2);
	cr_assert_eq(party_open(&parties[1], uid, 2, true), 0, "%s", status_sentence());
	for (int i = 0; i < 2; i++)
		add_ok(&parties[i], i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 20000), 0, "%s", status_sentence());
	check_blobs(&parties[1], 2);
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
	cr_expect_eq(uid.family, AF_INET);
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
	cr_expect_eq(uid.family, AF_INET6);
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
	struct wire_challenge challenge = { 0 }, earlier;
	struct party parties[2];
	struct hello_frame f;
	struct uid uid, wrong;

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(&uid);
	wrong = uid;
	wrong.secret[31] ^= 1;
	open_ok(&parties[0], &uid, 2);
	for (int i = 0; i < 4; i++) {
		int fd = knock_tcp(&uid);

		earlier = challenge;
		read_challenge(fd, &challenge);
		f = good_hello(i ? &uid : &wrong, i == 1 ? &earlier : &challenge);
		if (i == 2)
			f.hello.nranks ^= 1;
		if (i == 3)
			f.hello.version++;
		say(fd, &f, sizeof(f));
		expect_end(fd);
	}
	cr_assert_eq(party_open(&parties[1], &uid, 2, true), 0, "%s", status_sentence());
	for (int i = 0; i < 2; i++)
		add_ok(&parties[i], i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 20000), 0, "%s", status_sentence());
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
	struct sockaddr_storage a;
	struct uid uid, shown;
	socklen_t size;
	int on = 1;

	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	uid_make(&uid);
	shown = uid;
	shown.port =
		(uint16_t)(UID_PORT_LEAST + (uid.port - UID_PORT_LEAST + 777) % UID_PORT_COUNT);
	tap.real = &uid;
	open_ok(&parties[0], &uid, 2);
	tap.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(tap.listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	size = tcp_name(&shown, 0, &a);
	if (bind(tap.listener, (struct sockaddr *)&a, size))
		cr_skip_test("somebody has the port");
	cr_assert_eq(listen(tap.listener, 4), 0);
	cr_assert_eq(pthread_create(&tap.thread, NULL, listen_in, &tap), 0);
	cr_assert_eq(party_open(&parties[1], &shown, 2, true), 0, "%s", status_sentence());
	for (int i = 0; i < 2; i++)
		add_ok(&parties[i], i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&parties[i], 20000), 0, "%s", status_sentence());
	check_blobs(&parties[1], 2);
	leave(parties, 2);
	pthread_join(tap.thread, NULL);
	close(tap.listener);
	cr_expect(holds(&tap, &(struct blob){ 1, 1 }, sizeof(struct blob)), "it did pass through");
	for (size_t i = 0; i + 8 <= sizeof(uid.secret); i++)
		cr_expect(!holds(&tap, uid.secret + i, 8));
	cr_expect(!holds(&tap, uid.id, sizeof(uid.id)));
}
