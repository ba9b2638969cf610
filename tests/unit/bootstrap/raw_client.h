/* SPDX-License-Identifier: MIT */
/* A connection to a rendezvous without the library's client: what strangers and members say, byte by byte. */
#ifndef TESTS_RAW_CLIENT_H
#define TESTS_RAW_CLIENT_H

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "party.h"

static inline socklen_t unix_name(const struct uid *uid, struct sockaddr_un *a)
{
	char name[WIRE_NAME];

	wire_name(uid, -1, 0, name);
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path + 1, name, strlen(name));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static inline int knock(const struct uid *uid)
{
	struct timeval patience = { .tv_sec = 4 };
	struct sockaddr_un a;
	socklen_t size = unix_name(uid, &a);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&a, size)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* At the port where the hub listens at its first address, which has to be the first that answers. */
static inline int knock_tcp(const struct uid *uid)
{
	struct timeval patience = { .tv_sec = 10 };

	for (int i = 0; i < PLACE_PORTS; i++) {
		union place_name a;
		socklen_t size = address_name(&uid->place.at[0], place_port(uid->port, i), &a);
		int fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		if (!connect(fd, &a.any, size))
			return fd;
		close(fd);
	}
	cr_assert_fail("nobody listens");
	return -1;
}

static inline void say(int fd, const void *bytes, size_t n)
{
	/* the hub may have hung up already */
	cr_expect(send(fd, bytes, n, MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET);
}

static inline void say_frame(
	int fd, enum wire_type type, const void *fixed, const void *tail, size_t n)
{
	struct wire_header h = { (uint32_t)(wire_fixed(type) + n), (uint16_t)type, 0 };
	unsigned char bytes[512];

	memcpy(bytes, &h, sizeof(h));
	if (fixed)
		memcpy(bytes + sizeof(h), fixed, wire_fixed(type));
	if (n)
		memcpy(bytes + sizeof(h) + wire_fixed(type), tail, n);
	say(fd, bytes, sizeof(h) + wire_fixed(type) + n);
}

static inline void read_challenge(int fd, struct wire_challenge *challenge)
{
	struct {
		struct wire_header header;
		struct wire_challenge challenge;
	} frame;

	cr_assert_eq(recv(fd, &frame, sizeof(frame), MSG_WAITALL), (ssize_t)sizeof(frame));
	cr_assert_eq(frame.header.type, WIRE_CHALLENGE);
	*challenge = frame.challenge;
}

struct hello_frame {
	struct wire_header header;
	struct wire_hello hello;
};

static inline struct hello_frame good_hello(
	const struct uid *uid, const struct wire_challenge *challenge)
{
	struct hello_frame f = { { sizeof(f.hello), WIRE_HELLO, 0 },
		{ .magic = WIRE_MAGIC,
			.version = WIRE_VERSION,
			.nranks = 2,
			.blob_size = sizeof(struct blob),
			.control_size = 8192 } };

	wire_prove_hello(uid, challenge, &f.hello, f.hello.proof);
	return f;
}

#endif
