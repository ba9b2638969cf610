/* SPDX-License-Identifier: MIT */
#include "tcp.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "socket.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define TCP_BACKLOG 1024
#define ANYWHERE 16 /* ports that are tried */

bool tcp_can_have(const struct place_address *address)
{
	int fd = process_fd(socket(address->family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	union place_name name;
	socklen_t size = address_name(address, 0, &name);
	bool here = fd >= 0 && !bind(fd, &name.any, size);

	if (fd >= 0)
		close(fd);
	return here;
}

/* 0, or -errno without a sentence. */
static int listen_at(int fd, const struct place_address *address, uint16_t port)
{
	union place_name name;
	socklen_t size = address_name(address, port, &name);

	return bind(fd, &name.any, size) || listen(fd, TCP_BACKLOG) ? -errno : 0;
}

/* Connections of a world that has ended hold its port for a minute; a later world of the same uid may have it nevertheless. Of two that
   bind it only one listens. */
static void share_with_ended(int fd)
{
	const int on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

/* At one address. Only what socket_make says has a sentence: `said`. */
static int listen_one(const struct place_address *address, uint16_t port, int *out, bool *said)
{
	int rc = -EADDRINUSE;

	for (int i = 0; i < PLACE_PORTS && rc == -EADDRINUSE; i++) {
		int fd = socket_make(address->family);

		if (fd < 0) {
			*said = true;
			return fd;
		}
		share_with_ended(fd);
		rc = listen_at(fd, address, place_port(port, i));
		if (rc)
			close(fd);
		else
			*out = fd;
	}
	return rc;
}

static void close_all(int fds[PLACE_ADDRESSES])
{
	for (int i = 0; i < PLACE_ADDRESSES; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

int tcp_listen(const struct uid_place *place, uint16_t port, int fds[PLACE_ADDRESSES])
{
	int n = place_count(place), rc = 0, left_out = 0, listening = 0;
	bool said = false;

	for (int i = 0; i < PLACE_ADDRESSES; i++)
		fds[i] = -1;
	for (int i = 0; i < n && !rc; i++) {
		rc = listen_one(&place->at[i], port, &fds[i], &said);
		listening += !rc;
		if (rc == -EADDRINUSE || rc == -EADDRNOTAVAIL) {
			left_out = rc;
			rc = 0;
		}
	}
	if (!rc && !listening)
		rc = left_out;
	if (!rc)
		return 0;
	close_all(fds);
	return said ? rc
		    : fail_call_errno(-rc, "spmt_init",
			      "listening on ports %u .. (SPMT_SOCKET_IFNAME)", port);
}

/* The port 0: any. Returns the socket, or -errno without a sentence. */
static int listen_there(const struct place_address *address, uint16_t *port)
{
	union place_name name;
	socklen_t size = sizeof(name);
	int rc, fd = socket_make(address->family);

	if (fd < 0)
		return fd;
	rc = listen_at(fd, address, *port);
	if (!rc && getsockname(fd, &name.any, &size))
		rc = -errno;
	if (rc) {
		close(fd);
		return rc;
	}
	*port = ntohs(address->family == AF_INET ? name.in.sin_port : name.in6.sin6_port);
	return fd;
}

int tcp_listen_anywhere(const struct uid_place *place, uint16_t *port, int fds[PLACE_ADDRESSES])
{
	int n = place_count(place), rc = -EADDRINUSE;

	for (int i = 0; i < PLACE_ADDRESSES; i++)
		fds[i] = -1;
	/* What is free at the first address may be taken at another. */
	for (int tries = 0; tries < ANYWHERE && rc == -EADDRINUSE; tries++) {
		rc = 0;
		*port = 0;
		for (int i = 0; i < n && !rc; i++) {
			fds[i] = listen_there(&place->at[i], port);
			rc = MIN_OF(fds[i], 0);
		}
		if (rc)
			close_all(fds);
	}
	if (rc)
		return fail_call_errno(-rc, "spmt_init", "listening for those who go on");
	return 0;
}

int tcp_call(const struct place_address *address, uint16_t port, int *out)
{
	union place_name name;
	socklen_t size = address_name(address, port, &name);
	int fd = socket_make(address->family), err;

	*out = fd;
	if (fd < 0)
		return fd == -EAFNOSUPPORT ? 0 : fd;
	if (!connect(fd, &name.any, size) || errno == EINPROGRESS) {
		socket_settle(fd);
		return 0;
	}
	err = errno;
	close(fd);
	*out = -err;
	return 0;
}
