/* SPDX-License-Identifier: MIT */
/* Listening at a row of ports: who else may have them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spmt/address/socket.h"
#include "spmt/address/tcp.h"
#include "src/base/status.h"

static const struct place_address four = { AF_INET, 0, { 127, 0, 0, 77 } };
static const struct place_address six = { AF_INET6, 0, { [15] = 1 } };

/* Another row for each process, as these run beside each other. */
static uint16_t first_port(void)
{
	return (uint16_t)(PLACE_PORT_LEAST + (unsigned)getpid() * 13 % PLACE_PORT_COUNT);
}

static uint16_t port_of(int fd)
{
	union place_name name = { .any.sa_family = AF_UNSPEC };
	socklen_t size = sizeof(name);

	cr_assert_eq(getsockname(fd, &name.any, &size), 0);
	return ntohs(name.any.sa_family == AF_INET ? name.in.sin_port : name.in6.sin6_port);
}

static void listen_ok(const struct uid_place *place, int fds[PLACE_ADDRESSES])
{
	cr_assert_eq(tcp_listen(place, first_port(), fds), 0, "%s", status_sentence());
}

static void close_both(int fds[PLACE_ADDRESSES])
{
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* The end that hangs up first is the listener's, whose kernel keeps the port. */
static void call_and_hang_up(int listener, const struct place_address *address)
{
	union place_name name;
	socklen_t size = address_name(address, port_of(listener), &name);
	int far = socket(address->family, SOCK_STREAM | SOCK_CLOEXEC, 0), near;
	char byte;

	cr_assert_eq(connect(far, &name.any, size), 0);
	near = accept(listener, NULL, NULL);
	cr_assert_geq(near, 0);
	close(near);
	cr_assert_eq(read(far, &byte, 1), 0);
	close(far);
}

static void has_its_port_again(const struct place_address *address)
{
	const struct uid_place place = { .at = { *address } };
	uint16_t port;
	int fds[PLACE_ADDRESSES];

	listen_ok(&place, fds);
	port = port_of(fds[0]);
	call_and_hang_up(fds[0], address);
	close(fds[0]);
	listen_ok(&place, fds);
	cr_expect_eq(port_of(fds[0]), port);
	close(fds[0]);
}

Test(tcp, a_port_of_connections_that_have_ended)
{
	has_its_port_again(&four);
	if (tcp_can_have(&six))
		has_its_port_again(&six);
}

/* Nobody who listens loses a port, nor part of its calls, to another that does. */
Test(tcp, a_port_at_which_somebody_listens)
{
	const struct uid_place place = { .at = { four, six } };
	int n = tcp_can_have(&six) ? 2 : 1, fds[PLACE_PORTS + 1][PLACE_ADDRESSES];
	const struct uid_place had = { .at = { four, n == 2 ? six : place.at[2] } };

	for (int i = 0; i < PLACE_PORTS; i++) {
		listen_ok(&had, fds[i]);
		for (int k = 0; k < i; k++)
			for (int a = 0; a < n; a++)
				cr_expect_neq(port_of(fds[k][a]), port_of(fds[i][a]));
	}
	cr_expect_eq(tcp_listen(&had, first_port(), fds[PLACE_PORTS]), -EADDRINUSE);
	cr_expect(strstr(status_sentence(), "listening on ports "), "%s", status_sentence());
	for (int i = 0; i < PLACE_PORTS; i++)
		close_both(fds[i]);
}

/* The port of a call that goes on is its caller's. */
Test(tcp, a_port_from_which_somebody_calls)
{
	const struct uid_place place = { .at = { four } };
	int fds[PLACE_ADDRESSES], more[PLACE_ADDRESSES], caller;
	union place_name name;
	uint16_t port;
	socklen_t size;

	listen_ok(&place, fds);
	port = port_of(fds[0]);
	listen_ok(&place, more);
	close(fds[0]);
	caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size = address_name(&four, port, &name);
	cr_assert_eq(bind(caller, &name.any, size), 0);
	size = address_name(&four, port_of(more[0]), &name);
	cr_assert_eq(connect(caller, &name.any, size), 0);
	listen_ok(&place, fds);
	cr_expect_neq(port_of(fds[0]), port);
	close(caller);
	close(fds[0]);
	close(more[0]);
}
