/* SPDX-License-Identifier: MIT */
#include "connection.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spmt/address/socket.h"
#include "src/base/env.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"

#define ROOM 4096
#define LOST_NS 10000000000ll
/* What counts of the time between two looks: for the rest this process may not have run. A single look may have met what was sent just before. */
#define LOOK_MOST (2 * PING_NS)
#define TICK_NS 10000000ll /* of the slowest kernel */
#define UNHEARD 100	   /* pings: then keep-alive goes on alone, so that no buffer fills */

struct packet {
	struct packet *next;
	size_t size, sent;
	int fd; /* goes with the first byte; owned once the packet waits */
	unsigned char bytes[];
};

void conn_open(struct conn *conn, int fd, int pidfd, bool remote)
{
	*conn = (struct conn){ .fd = fd,
		.pidfd = pidfd,
		.remote = remote,
		.looked = process_now(),
		.lost = LOST_NS,
		.slot = -1,
		.pid_slot = -1 };
}

static void packet_free(struct packet *p, bool close_fd)
{
	if (close_fd && p->fd >= 0)
		close(p->fd);
	mem_free(p);
}

static void packets_drop(struct conn *conn)
{
	while (conn->first) {
		struct packet *p = conn->first;

		conn->first = p->next;
		packet_free(p, true);
	}
	conn->last = NULL;
}

/* Drops what has not been sent. */
static void conn_mute(struct conn *conn)
{
	conn->deaf = true;
	packets_drop(conn);
}

/* Drops queued frames, so that the report of the failure does not wait behind them. A frame that
   has begun must be completed. */
static void conn_clear(struct conn *conn)
{
	struct packet *begun = conn->first->sent ? conn->first : NULL;

	if (begun)
		conn->first = begun->next;
	packets_drop(conn);
	conn->first = conn->last = begun;
	if (begun)
		begun->next = NULL;
}

void conn_close(struct conn *conn)
{
	conn_mute(conn);
	for (int i = 0; i < conn->nfds; i++)
		close(conn->fds[i]);
	if (conn->fd >= 0)
		close(conn->fd);
	if (conn->fd >= 0 && conn->pidfd >= 0)
		close(conn->pidfd);
	mem_free(conn->in);
	conn_open(conn, -1, -1, false);
}

/* ---- out ----------------------------------------------------------------------------------- */

union fd_room {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(CONN_FDS * sizeof(int))];
};

static void attach_fd(struct msghdr *m, union fd_room *room, int fd)
{
	struct cmsghdr *c = &room->header;

	memset(room, 0, sizeof(*room));
	m->msg_control = room->bytes;
	m->msg_controllen = CMSG_SPACE(sizeof(fd));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
}

/* Returns the bytes sent; 0: none now; -1: the connection has ended. */
static ssize_t packet_send(struct conn *conn, struct packet *p)
{
	struct iovec iov = { p->bytes + p->sent, p->size - p->sent };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	union fd_room room;
	ssize_t n;

	if (p->fd >= 0 && !p->sent)
		attach_fd(&m, &room, p->fd);
	do {
		n = sendmsg(conn->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	conn->later = errno == ETOOMANYREFS || errno == ENOBUFS || errno == ENOMEM;
	return conn->later || errno == EAGAIN || errno == ENOTCONN ? 0 : -1;
}

/* `fresh`: the packet was just queued, and its descriptor still belongs to the caller. */
static void flush(struct conn *conn, const struct packet *fresh)
{
	conn->later = false;
	while (conn->first) {
		struct packet *p = conn->first;
		ssize_t n = packet_send(conn, p);

		if (n < 0) {
			if (fresh)
				conn->last->fd = -1;
			conn_mute(conn);
			return;
		}
		p->sent += (size_t)n;
		if (p->sent < p->size)
			return;
		conn->first = p->next;
		if (!conn->first)
			conn->last = NULL;
		packet_free(p, p != fresh);
	}
}

void conn_flush(struct conn *conn)
{
	if (conn->first)
		flush(conn, NULL);
}

static struct packet *packet_make(
	enum wire_type type, const void *fixed, const void *tail, size_t tail_size, int fd)
{
	size_t size = wire_fixed(type);
	struct wire_header h = { (uint32_t)(size + tail_size), (uint16_t)type, fd >= 0 };
	struct packet *p = mem_calloc(1, sizeof(*p) + sizeof(h) + h.length);

	if (!p)
		return NULL;
	p->size = sizeof(h) + h.length;
	p->fd = fd;
	memcpy(p->bytes, &h, sizeof(h));
	if (fixed)
		memcpy(p->bytes + sizeof(h), fixed, size);
	if (tail_size)
		memcpy(p->bytes + sizeof(h) + size, tail, tail_size);
	return p;
}

/* A packet that has to wait keeps its own copy of the descriptor. */
static int packet_keep(struct packet *p)
{
	if (p->fd < 0 || p->sent) {
		p->fd = -1;
		return 0;
	}
	p->fd = fault_here(FAULT_FD) ? -1 : process_fd(fcntl(p->fd, F_DUPFD_CLOEXEC, 0));
	return p->fd < 0 ? -EMFILE : 0;
}

void conn_send(struct conn *conn, enum wire_type type, const void *fixed, const void *tail,
	size_t tail_size, int fd)
{
	struct packet *p;

	if (conn->fd < 0 || conn->deaf || conn->error)
		return;
	p = packet_make(type, fixed, tail, tail_size, fd);
	if (!p) {
		conn->error = -ENOMEM;
		return;
	}
	if (conn->last)
		conn->last->next = p;
	else
		conn->first = p;
	conn->last = p;
	flush(conn, p);
	if (conn->last)
		conn->error = packet_keep(conn->last);
	if (conn->error)
		conn_clear(conn);
}

void conn_ping(struct conn *conn)
{
	if (!conn->remote || conn->first || conn->unheard >= UNHEARD)
		return;
	conn->unheard++;
	conn_send(conn, WIRE_PING, NULL, NULL, 0, -1);
}

void conn_watch(struct conn *conn)
{
	const struct env *env;

	if (!conn->remote || env_get(&env))
		return;
	conn->lost = MAX_OF(env->socket_lost * 1000000, LOOK_MOST);
	socket_hurry(conn->fd, (int)env->socket_lost);
}

void conn_look(struct conn *conn, int64_t now)
{
	int64_t ago, past = now - conn->looked;

	if (!conn->remote || conn->fd < 0 || conn->ended)
		return;
	if (!socket_owes(conn->fd, &ago) || ago < past - TICK_NS)
		conn->silent = 0;
	else
		conn->silent += MIN_OF(past, LOOK_MOST);
	conn->looked = now;
	conn->ended = conn->refused = conn->silent >= conn->lost;
}

/* ---- in ------------------------------------------------------------------------------------ */

static void take_fd(struct conn *conn, int fd)
{
	fd = process_fd(fd);
	if (fd < 0) {
		conn->no_fd = true;
	} else if (fault_here(FAULT_FD)) {
		close(fd);
		conn->no_fd = true;
	} else if (conn->nfds == CONN_FDS) {
		close(fd);
		conn->error = -EPROTO;
	} else {
		conn->fds[conn->nfds++] = fd;
	}
}

static void take_fds(struct conn *conn, struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			take_fd(conn, fd);
		}
	}
	if (m->msg_flags & MSG_CTRUNC)
		conn->no_fd = true;
}

/* Moves the frame that has begun to the front and makes room for the rest. Its length has been
   checked. */
static bool make_room(struct conn *conn, const struct wire_rules *rules)
{
	size_t have = conn->used - conn->at;
	int64_t size = have ? wire_size(rules, conn->in + conn->at, have) : 0;
	size_t want = MAX_OF(size > 0 ? (size_t)size : 0, ROOM);
	unsigned char *in;

	if (conn->at)
		memmove(conn->in, conn->in + conn->at, conn->used - conn->at);
	conn->used -= conn->at;
	conn->at = 0;
	if (conn->room >= want)
		return conn->room > conn->used;
	in = mem_calloc(1, want);
	if (!in) {
		conn->error = -ENOMEM;
		return false;
	}
	if (conn->used)
		memcpy(in, conn->in, conn->used);
	mem_free(conn->in);
	conn->in = in;
	conn->room = want;
	return true;
}

bool conn_receive(struct conn *conn, const struct wire_rules *rules)
{
	struct iovec iov;
	union fd_room room;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (conn->fd < 0 || conn->ended || conn->error || !make_room(conn, rules))
		return false;
	iov = (struct iovec){ conn->in + conn->used, conn->room - conn->used };
	m.msg_control = room.bytes;
	m.msg_controllen = sizeof(room.bytes);
	do {
		n = recvmsg(conn->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n > 0) {
		take_fds(conn, &m);
		conn->unheard = 0;
		conn->used += (size_t)n;
		return true;
	}
	if (!n || (errno != EAGAIN && errno != ENOMEM && errno != ENOBUFS))
		conn->ended = true;
	conn->refused = n < 0 &&
		(errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH ||
			errno == ETIMEDOUT);
	return false;
}

static int pop_fd(struct conn *conn, int *fd)
{
	if (!conn->nfds)
		return conn->no_fd ? -EMFILE : -EPROTO;
	*fd = conn->fds[0];
	memmove(conn->fds, conn->fds + 1, (size_t)--conn->nfds * sizeof(*conn->fds));
	return 0;
}

int conn_next(
	struct conn *conn, const struct wire_rules *rules, struct wire_message *message, int *fd)
{
	int64_t n;

	if (conn->error)
		return conn->error;
	if (conn->fd < 0 || conn->at == conn->used)
		return 0;
	n = wire_parse(rules, conn->in + conn->at, conn->used - conn->at, message);
	if (n <= 0)
		return (int)n;
	conn->at += (size_t)n;
	*fd = -1;
	if (message->has_fd)
		conn->error = pop_fd(conn, fd);
	return conn->error ? conn->error : 1;
}

/* ---- poll ---------------------------------------------------------------------------------- */

size_t conn_poll(struct conn *conn, struct pollfd *set, size_t n, size_t most)
{
	conn->slot = conn->pid_slot = -1;
	if (conn->fd < 0 || n + 2 > most)
		return n;
	if (!conn->ended) {
		conn->slot = (int)n;
		set[n++] = (struct pollfd){ .fd = conn->fd,
			.events = (short)(POLLIN | (conn->first && !conn->later ? POLLOUT : 0)) };
	}
	if (conn->pidfd >= 0) {
		conn->pid_slot = (int)n;
		set[n++] = (struct pollfd){ .fd = conn->pidfd, .events = POLLIN };
	}
	return n;
}

bool conn_readable(const struct conn *conn, const struct pollfd *set)
{
	return conn->slot >= 0 && set[conn->slot].revents;
}

bool conn_orphaned(const struct conn *conn, const struct pollfd *set)
{
	return conn->pid_slot >= 0 && set[conn->pid_slot].revents;
}
