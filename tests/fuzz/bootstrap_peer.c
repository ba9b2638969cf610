/* SPDX-License-Identifier: MIT */
/*
 * A hub with two members, or a process with a hub, whose other ends have proved that they know the
 * secret and then say anything. Nothing crashes, leaks or spins, and what comes back is well-formed.
 * Input: a byte that chooses, then pieces of: who (bit 7: a descriptor goes along), length, bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spmt/bootstrap/client.h"
#include "spmt/bootstrap/hub.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SAY_ALL (~0u)

static const struct uid uid = { .id = { 1, 2 }, .secret = "known to all who play here" };
static const struct bootstrap_config config = {
	.uid = &uid, .nranks = 3, .blob_size = 4, .control_size = 4096
};
static const struct wire_rules any = { SAY_ALL, 3, 4 };

static void need(bool promise)
{
	if (!promise)
		abort();
}

/* ---- the other end ------------------------------------------------------------------------- */

static void say(int fd, const void *bytes, size_t n, int with)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} room = { 0 };
	struct iovec iov;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	void *copy = malloc(n + !n);

	need(copy);
	memcpy(copy, bytes, n);
	iov = (struct iovec){ copy, n };
	if (with >= 0) {
		m.msg_control = room.bytes;
		m.msg_controllen = sizeof(room.bytes);
		room.header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		memcpy(CMSG_DATA(&room.header), &with, sizeof(with));
	}
	if (n && sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		n = 0; /* hung up on, as may be */
	free(copy);
}

static void say_frame(int fd, enum wire_type type, const void *fixed)
{
	unsigned char bytes[256];
	struct wire_header h = { (uint32_t)wire_fixed(type), (uint16_t)type, 0 };

	memcpy(bytes, &h, sizeof(h));
	memcpy(bytes + sizeof(h), fixed, h.length);
	say(fd, bytes, sizeof(h) + h.length, -1);
}

/* Everything there is to read, each frame well-formed; the first one's type and contents. */
static bool hear_all(int fd, struct wire_message *first)
{
	static unsigned char bytes[1 << 18];
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	int64_t at = 0, got = 0;

	while (n > 0 && at < n) {
		struct wire_message m;

		got = wire_parse(&any, bytes + at, (size_t)(n - at), &m);
		need(got > 0);
		if (!at)
			*first = m;
		at += got;
	}
	return n > 0;
}

static void play(const uint8_t *data, size_t size, const int *ends, int nends,
	void (*serve)(void *), void *ctx)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	while (size >= 2) {
		int end = ends[(data[0] & 127) % nends];
		size_t n = data[1] < size - 2 ? data[1] : size - 2;
		struct wire_message m;

		say(end, data + 2, n, data[0] & 128 ? fd : -1);
		serve(ctx);
		for (int i = 0; i < nends; i++)
			hear_all(ends[i], &m);
		data += 2 + n;
		size -= 2 + n;
	}
	close(fd);
}

/* ---- a hub --------------------------------------------------------------------------------- */

static void serve_hub(void *ctx)
{
	struct pollfd set[32];
	int64_t until = INT64_MAX;

	for (int i = 0; i < 3; i++) {
		size_t n = hub_poll(ctx, set, 0, ARRAY_SIZE(set), &until);

		need(n <= hub_wants(ctx));
		poll(set, (nfds_t)n, 0);
		hub_serve(ctx, set);
	}
}

static void greet_hub(int end, struct hub *hub)
{
	struct wire_message m;
	struct wire_hello hello = { .magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.nranks = 3,
		.blob_size = 4,
		.control_size = 4096 };

	serve_hub(hub);
	need(hear_all(end, &m) && m.type == WIRE_CHALLENGE);
	wire_prove_hello(&uid, &m.u.challenge, &hello, hello.proof);
	say_frame(end, WIRE_HELLO, &hello);
	serve_hub(hub);
	need(hear_all(end, &m) && m.type == WIRE_WELCOME && !m.u.welcome.code);
}

static void fuzz_hub(const uint8_t *data, size_t size)
{
	struct sockaddr any_name = { .sa_family = AF_UNIX };
	struct sockaddr_storage name;
	socklen_t n = sizeof(name);
	struct meeting meeting = MEETING_NONE;
	struct hub *hub;
	int pair[2], ends[2];

	meeting.kind = MEETING_HUB;
	meeting.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	/* a name of the system's choice */
	need(!bind(meeting.fd, &any_name, sizeof(any_name.sa_family)) && !listen(meeting.fd, 4));
	need(!getsockname(meeting.fd, (struct sockaddr *)&name, &n));
	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	need(!hub_open(&config, &meeting, pair[0], &hub));
	ends[0] = pair[1];
	ends[1] = socket(AF_UNIX, SOCK_STREAM, 0);
	need(!connect(ends[1], (struct sockaddr *)&name, n));
	for (int i = 0; i < 2; i++)
		greet_hub(ends[i], hub);
	play(data, size, ends, 2, serve_hub, hub);
	close(ends[0]);
	serve_hub(hub);
	hub_close(hub);
	close(ends[1]);
}

/* ---- a process ----------------------------------------------------------------------------- */

static void serve_client(void *ctx)
{
	struct client *c = ctx;
	struct pollfd set[4];

	for (int i = 0; i < 3; i++) {
		size_t n = conn_poll(&c->conn, set, 0, ARRAY_SIZE(set));

		poll(set, (nfds_t)n, 0);
		client_serve(c, set);
		need(c->cause.code <= 0 && (!c->cause.code || *c->cause.sentence));
		need(!c->complete || (c->processes > 0 && c->self < c->processes));
		for (int r = 0; r < 3 && c->complete; r++)
			need(c->process[r] < c->processes);
	}
}

static void fuzz_client(const uint8_t *data, size_t size, bool remote)
{
	struct wire_challenge challenge = { .magic = WIRE_MAGIC, .version = WIRE_VERSION };
	struct wire_welcome welcome = { .member = 1, .nranks = 3, .blob_size = 4 };
	struct wire_message m;
	struct meeting met;
	struct client c;
	int pair[2];

	need(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	need(!client_open(&c, &config));
	met = meeting_at(pair[0], 0, remote);
	client_connect(&c, &met);
	client_claim(&c, 1);
	say_frame(pair[1], WIRE_CHALLENGE, &challenge);
	serve_client(&c);
	need(hear_all(pair[1], &m) && m.type == WIRE_HELLO);
	wire_prove_welcome(&uid, &m.u.hello, &welcome, welcome.proof);
	say_frame(pair[1], WIRE_WELCOME, &welcome);
	serve_client(&c);
	need(hear_all(pair[1], &m) && m.type == WIRE_ADD && c.state == CLIENT_READY);
	play(data, size, &pair[1], 1, serve_client, &c);
	close(pair[1]);
	serve_client(&c);
	client_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] & 1)
		fuzz_hub(data + 1, size - 1);
	else
		fuzz_client(data + 1, size - 1, data[0] & 2);
	return 0;
}
