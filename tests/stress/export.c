/* SPDX-License-Identifier: MIT */
/*
 * A heap of the host backend published to another process, growing while it is there. The child is
 * forked before the heap is made, so that all it knows of it comes over the socket.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/export.h"
#include "src/base/status.h"

#define MIB (1ull << 20)

enum { PATIENCE = 20000, ROUNDS = 5 };

/* What goes down: sizes first, then a piece each. fd as asked for by the piece. */
struct message {
	enum { OPEN, PIECE, LOOK } what;
	uint64_t size, own_size; /* OPEN */
	struct heap_piece piece; /* PIECE */
	uint64_t offset,
		seed; /* LOOK: 4 KiB there hold the pattern of seed; answer with seed + 1 */
};

static int say(const char *what)
{
	fprintf(stderr, "# %s: %s\n", what, status_sentence());
	return -1;
}

static void fill(char *at, uint64_t seed)
{
	for (uint64_t i = 0; i < 4096; i += 8) {
		uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u + i;

		memcpy(at + i, &word, sizeof(word));
	}
}

static bool filled(const char *at, uint64_t seed)
{
	char want[4096];

	fill(want, seed);
	return !memcmp(at, want, sizeof(want));
}

static int send_message(int sock, const struct message *m, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS } };
	struct message copy = *m;
	struct iovec iov = { &copy, sizeof(copy) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(copy) ? 0 : -1;
}

/* 1: a message; 0: the end; -1: failure, or nothing came in time. *fd: -1 or the receiver's to
   close. */
static int receive(int sock, struct message *m, int *fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };
	struct pollfd p = { sock, POLLIN, 0 };
	ssize_t n;

	*fd = -1;
	if (poll(&p, 1, PATIENCE) != 1)
		return -1;
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	if (n > 0 && CMSG_FIRSTHDR(&msg))
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*fd));
	return n == (ssize_t)sizeof(*m) ? 1 : n ? -1 : 0;
}

/* ---- the peer */

static int look(struct heap_import *in, const struct message *m)
{
	char *at = in->base + m->offset;

	if (!filled(at, m->seed))
		return say("wrong bytes");
	fill(at, m->seed + 1);
	return 0;
}

static int serve(int sock, const struct message *m, int fd, struct heap_import *in)
{
	char answer = 0;

	if (m->what == OPEN && heap_import_open(&backend_host, 1, m->size, m->own_size, in))
		return say("import");
	if (m->what == PIECE && heap_import_add(in, &m->piece, fd))
		return say("piece");
	if (m->what == LOOK && look(in, m))
		return -1;
	return send(sock, &answer, 1, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

static int peer(int sock)
{
	struct heap_import in = { 0 };
	struct message m;
	int rc = backend_host.load(), fd, got;

	if (!rc)
		rc = backend_host.open(1);
	if (rc)
		return say("load");
	while (!rc && (got = receive(sock, &m, &fd)) != 0) {
		rc = got < 0 ? -1 : serve(sock, &m, fd, &in);
		if (fd >= 0)
			close(fd);
	}
	heap_import_close(&in);
	backend_host.close(1);
	return rc;
}

/* ---- the owner */

static int ask(int sock, const struct message *m, int fd)
{
	struct pollfd p = { sock, POLLIN, 0 };
	char answer;

	if (send_message(sock, m, fd) || poll(&p, 1, PATIENCE) != 1)
		return -1;
	return recv(sock, &answer, 1, 0) == 1 ? 0 : -1;
}

static int ask_to_look(int sock, const struct heap *heap, uint64_t offset, uint64_t seed)
{
	struct message m = { .what = LOOK, .offset = offset, .seed = seed };

	fill(heap->base + offset, seed);
	if (ask(sock, &m, -1))
		return -1;
	return filled(heap->base + offset, seed + 1) ? 0 : -1;
}

static int publish(int sock, const struct heap *heap, struct heap_export *e, int *sent)
{
	if (heap_export_update(heap, e))
		return say("export");
	for (; *sent < e->n; ++*sent) {
		struct message m = { .what = PIECE, .piece = e->pieces[*sent] };

		if (ask(sock, &m, e->fds[*sent]))
			return -1;
	}
	return 0;
}

/* Each round makes the heap larger, looks at what is new and again at what is old, and at the
   own part. */
static int rounds(int sock, struct heap *heap, struct heap_export *e)
{
	struct message open = { .what = OPEN, .size = heap->size, .own_size = heap->own_size };
	uint64_t offset[ROUNDS];
	int sent = 0, rc = ask(sock, &open, -1);

	for (int i = 0; !rc && i < ROUNDS; i++) {
		rc = heap_alloc(heap, 5 * MIB, 4096, &offset[i]);
		if (!rc)
			rc = publish(sock, heap, e, &sent);
		for (int j = 0; !rc && j <= i; j++)
			rc = ask_to_look(
				sock, heap, offset[j] + 5 * MIB - 4096, (uint64_t)(10 * i + j));
		if (!rc)
			rc = ask_to_look(sock, heap, heap->size + heap->own_size - 4096, 77);
	}
	return rc;
}

static int own(int sock, bool growing)
{
	struct heap_range range = { 0 };
	struct heap heap = { 0 };
	struct heap_export e = { 0 };
	struct heap_config config = { .backend = &backend_host,
		.size = 32 * MIB,
		.own_size = 2 * MIB,
		.range = growing ? &range : NULL,
		.slice = 2 };
	int rc = backend_host.load();

	if (!rc)
		rc = backend_host.open(0);
	if (rc)
		return say("load");
	if (growing)
		rc = heap_range_open(&backend_host, 3, 34 * MIB, &range);
	if (!rc)
		rc = heap_open(&config, &heap);
	rc = rc ? say("heap") : rounds(sock, &heap, &e);
	if (!rc && (growing ? e.n < 4 : e.n != 1))
		rc = say("pieces");
	heap_export_close(&e);
	heap_close(&heap);
	heap_range_close(&range);
	backend_host.close(0);
	return rc;
}

static bool published(bool growing)
{
	int sock[2], status = -1, rc;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock))
		return false;
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sock[0]);
		_exit(peer(sock[1]) ? 1 : 0);
	}
	close(sock[1]);
	rc = own(sock[0], growing);
	close(sock[0]);
	if (child > 0)
		waitpid(child, &status, 0);
	return !rc && child > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(void)
{
	bool whole, growing;

	puts("1..2");
	fflush(stdout);
	whole = published(false);
	printf("%sok 1 - a static heap in another process\n", whole ? "" : "not ");
	fflush(stdout);
	growing = published(true);
	printf("%sok 2 - a heap that grows while it is published\n", growing ? "" : "not ");
	return !whole || !growing;
}
