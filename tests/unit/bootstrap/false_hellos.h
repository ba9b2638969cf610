/* SPDX-License-Identifier: MIT */
/* Those who want into a world without being invited, by a unix socket or over TCP. */
#ifndef TESTS_FALSE_HELLOS_H
#define TESTS_FALSE_HELLOS_H

#include "raw_client.h"

/* No byte more, and an end. */
static inline void expect_end(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, 0);

	cr_expect(!n || (n < 0 && errno == ECONNRESET), "%zd, errno %d", n, errno);
	close(fd);
}

/*
 * Hellos that let nobody in, at whatever door: with another secret, to an earlier challenge, changed behind the proof, cut off, too
 * long, and one that was good when somebody else said it.
 */
static inline void try_to_get_in(const struct uid *uid, int (*door)(const struct uid *uid))
{
	enum {
		OTHER_SECRET,
		REPLAYED,
		CHANGED,
		OTHER_VERSION,
		SHORTER,
		LONGER,
		CUT_OFF,
		SEEN,
		WAYS
	};
	struct wire_challenge challenge = { 0 }, earlier;
	struct hello_frame f = { 0 }, seen = { 0 };
	struct uid wrong = *uid;

	wrong.secret[31] ^= 1;
	for (int way = 0; way < WAYS; way++) {
		unsigned char bytes[sizeof(f) + 8] = { 0 };
		int fd = door(uid);

		earlier = challenge;
		read_challenge(fd, &challenge);
		f = good_hello(way == OTHER_SECRET ? &wrong : uid,
			way == REPLAYED ? &earlier : &challenge);
		f.hello.nranks ^= way == CHANGED;
		f.hello.version += way == OTHER_VERSION;
		f.header.length -= way == SHORTER;
		f.header.length += way == LONGER ? 8 : 0;
		if (way == CUT_OFF)
			seen = f;
		memcpy(bytes, way == SEEN ? &seen : &f, sizeof(f));
		say(fd, bytes,
			way == CUT_OFF ? sizeof(f) - 1 : sizeof(f) + (way == LONGER ? 8 : 0));
		if (way == CUT_OFF)
			shutdown(fd, SHUT_WR);
		expect_end(fd);
	}
}

#endif
