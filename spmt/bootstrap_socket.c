/* SPDX-License-Identifier: MIT */
#include "bootstrap_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "../src/fault.h"
#include "../src/process.h"
#include "../src/status.h"
#include "bootstrap_wire.h"

#define BACKLOG 128
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct address {
	socklen_t size;
	union {
		struct sockaddr any;
		struct sockaddr_un un;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} u;
};

static void unix_address(const struct uid *uid, int rank, struct address *a)
{
	char name[WIRE_NAME];

	wire_name(uid, rank, name);
	memset(a, 0, sizeof(*a));
	a->u.un.sun_family = AF_UNIX;
	/* a zero first: the abstract name space */
	memcpy(a->u.un.sun_path + 1, name, strlen(name));
	a->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static void tcp_address(const struct uid *uid, uint16_t port, struct address *a)
{
	memset(a, 0, sizeof(*a));
	if (uid->family == AF_INET) {
		a->u.in.sin_family = AF_INET;
		a->u.in.sin_port = htons(port);
		memcpy(&a->u.in.sin_addr, uid->address, sizeof(a->u.in.sin_addr));
		a->size = sizeof(a->u.in);
	} else {
		a->u.in6.sin6_family = AF_INET6;
		a->u.in6.sin6_port = htons(port);
		a->u.in6.sin6_scope_id = uid->scope;
		memcpy(&a->u.in6.sin6_addr, uid->address, sizeof(a->u.in6.sin6_addr));
		a->size = sizeof(a->u.in6);
	}
}

static int socket_make(int family)
{
	int fd;

	if (fault_here(FAULT_FD)) {
		errno = fault_errno(FAULT_FD);
		fd = -1;
	} else {
		fd = process_fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	}
	return fd < 0 ? fail_errno(errno, "spmt_init: a socket for the rendezvous") : fd;
}

int socket_pair(int fds[2])
{
	int err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0;

	if (!err && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds))
		err = errno;
	for (int i = 0; !err && i < 2; i++) {
		fds[i] = process_fd(fds[i]);
		if (fds[i] < 0) {
			err = errno;
			close(fds[1 - i]);
		}
	}
	return err ? fail_errno(err, "spmt_init: sockets for the rendezvous") : 0;
}

/* ---- who is at the other end --------------------------------------------------------------- */

static bool same_user(int fd, uid_t *user)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	*user = (uid_t)-1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size))
		return false;
	*user = cred.uid;
	return cred.uid == geteuid();
}

int socket_process(int fd)
{
	struct ucred cred;
	socklen_t size = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) || cred.pid < 0 ? 0 : cred.pid;
}

int socket_pidfd(int fd)
{
	int pid = socket_process(fd), pidfd;
	socklen_t size = sizeof(pidfd);

	if (!pid || pid == getpid() || fault_here(FAULT_FD))
		return -1;
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size))
		return process_fd(pidfd);
	return process_fd((int)syscall(SYS_pidfd_open, pid, 0));
}

int socket_rank(int fd, const struct uid *uid, int nranks)
{
	struct address theirs, made;
	const char *name = theirs.u.un.sun_path + 1, *dot;
	long rank;

	memset(&theirs, 0, sizeof(theirs));
	theirs.size = sizeof(theirs.u.un) - 1;
	if (getpeername(fd, &theirs.u.any, &theirs.size) || theirs.u.any.sa_family != AF_UNIX)
		return -1;
	dot = strchr(name, '.');
	rank = dot ? strtol(dot + 1, NULL, 10) : -1;
	if (rank < 0 || rank >= nranks)
		return -1;
	unix_address(uid, (int)rank, &made);
	return theirs.size == made.size && !memcmp(&theirs.u.un, &made.u.un, made.size) ? (int)rank
											: -1;
}

/* Notices a node that has gone without a word; a stopped process still answers, its kernel does. */
static void tcp_settle(int fd)
{
	const int on = 1, count = 5, lost_ms = 10000;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_ms, sizeof(lost_ms));
}

/* The kernel says that there is no descriptor before it looks whether anybody waits for one. Where it does not even poll one
   (RLIMIT_NOFILE 0), somebody may: who asks does so because of that. */
static int accept_failed(int listener, int err)
{
	struct pollfd at = { .fd = listener, .events = POLLIN };

	if (err != EMFILE && err != ENFILE && err != ENOMEM && err != ENOBUFS)
		return -EAGAIN;
	return poll(&at, 1, 0) ? -EMFILE : -EAGAIN;
}

int socket_accept(int listener, bool remote)
{
	uid_t user;
	int fd;

	if (fault_here(FAULT_FD))
		return -EMFILE;
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return accept_failed(listener, errno);
	fd = process_fd(fd);
	if (fd < 0)
		return -errno;
	if (remote) {
		tcp_settle(fd);
	} else if (!same_user(fd, &user)) {
		close(fd);
		return -EACCES;
	}
	return fd;
}

/* ---- meeting ------------------------------------------------------------------------------- */

static bool comes_back(int err)
{
	return err == ECONNREFUSED || err == EAGAIN || err == EINTR || err == ECONNRESET ||
		err == ETIMEDOUT || err == ENETUNREACH || err == EHOSTUNREACH ||
		err == EADDRNOTAVAIL;
}

/* Takes fd over. */
static int meet_connected(int fd, const struct address *a, bool remote, struct meeting *meeting)
{
	uid_t user;
	int rc = 0;

	if (connect(fd, &a->u.any, a->size) && errno != EINPROGRESS) {
		if (!comes_back(errno))
			rc = fail_errno(errno, "spmt_init: connecting to the rendezvous");
	} else if (remote) {
		tcp_settle(fd);
		*meeting = (struct meeting){ MEETING_CLIENT, fd, -1, true };
		return 0;
	} else if (same_user(fd, &user)) {
		*meeting = (struct meeting){ MEETING_CLIENT, fd, -1, false };
		return 0;
	} else {
		rc = fail(-EACCES,
			"spmt_init: the rendezvous is held by a process of user %u, this one is of user %u",
			(unsigned)user, (unsigned)geteuid());
	}
	close(fd);
	return rc;
}

/* 0, or -errno without a sentence. */
static int listen_at(int fd, const struct address *a)
{
	return bind(fd, &a->u.any, a->size) || listen(fd, BACKLOG) ? -errno : 0;
}

/* The port stays ours as long as the socket: none is probed and given back. -EADDRNOTAVAIL, without a
   sentence: the address is another node's. */
static int listen_tcp(const struct uid *uid, int *tcp)
{
	int rc = -EADDRINUSE;

	for (int i = 0; i < UID_PORTS && rc == -EADDRINUSE; i++) {
		int fd = socket_make(uid->family);
		struct address a;

		if (fd < 0)
			return fd;
		tcp_address(uid, uid_port(uid, i), &a);
		rc = listen_at(fd, &a);
		if (rc)
			close(fd);
		else
			*tcp = fd;
	}
	if (rc && rc != -EADDRNOTAVAIL)
		return fail_errno(-rc, "spmt_init: listening on ports %u .. (SPMT_SOCKET_IFNAME)",
			uid_port(uid, 0));
	return rc;
}

static int meet_tcp(const struct uid *uid, unsigned attempt, struct meeting *meeting)
{
	int fd = socket_make(uid->family);
	struct address a;

	if (fd < 0)
		return fd;
	tcp_address(uid, uid_port(uid, (int)(attempt % UID_PORTS)), &a);
	return meet_connected(fd, &a, true, meeting);
}

/* To the hub of this node, under the name that says who comes: whatever happens to this process from
   then on, the hub finds the connection, and the rank. Where the name is in use, by the socket of an
   earlier world or a forked child, it goes without. */
static int meet_named(
	int fd, const struct uid *uid, int rank, const struct address *hub, struct meeting *meeting)
{
	struct address own;

	if (rank >= 0) {
		unix_address(uid, rank, &own);
		(void)bind(fd, &own.u.any, own.size);
	}
	return meet_connected(fd, hub, false, meeting);
}

int socket_meet(
	const struct uid *uid, bool only_tcp, unsigned attempt, int rank, struct meeting *meeting)
{
	struct address a;
	int fd, tcp = -1, rc;

	*meeting = (struct meeting){ MEETING_AGAIN, -1, -1, false };
	if (only_tcp)
		return meet_tcp(uid, attempt, meeting);
	fd = socket_make(AF_UNIX);
	if (fd < 0)
		return fd;
	unix_address(uid, -1, &a);
	if (bind(fd, &a.u.any, a.size)) {
		if (errno == EADDRINUSE)
			return meet_named(fd, uid, rank, &a, meeting);
		rc = fail_errno(errno, "spmt_init: binding the rendezvous");
		close(fd);
		return rc;
	}
	/* Not listening yet: others of this node are refused, and try again, until it is known
	   whether the hub is here at all. */
	rc = uid->family ? listen_tcp(uid, &tcp) : 0;
	if (!rc && listen(fd, BACKLOG))
		rc = fail_errno(errno, "spmt_init: listening at the rendezvous");
	if (!rc) {
		*meeting = (struct meeting){ MEETING_HUB, fd, tcp, false };
		return 0;
	}
	close(fd);
	if (tcp >= 0)
		close(tcp);
	return rc == -EADDRNOTAVAIL ? meet_tcp(uid, attempt, meeting) : rc;
}

/* Shut down first: a forked child may hold copies, at which nobody is to knock in vain. */
void meeting_close(struct meeting *meeting)
{
	const int fds[] = { meeting->fd, meeting->tcp };

	for (size_t i = 0; i < ARRAY_SIZE(fds) && meeting->kind != MEETING_AGAIN; i++) {
		if (fds[i] < 0)
			continue;
		shutdown(fds[i], SHUT_RDWR);
		close(fds[i]);
	}
	*meeting = (struct meeting){ MEETING_AGAIN, -1, -1, false };
}

/* ---- memory ------------------------------------------------------------------------------- */

int memory_make(size_t size, int *out)
{
	int err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0;
	int fd = err ? -1
		     : process_fd(memfd_create("spmt-control", MFD_CLOEXEC | MFD_ALLOW_SEALING));

	if (fd >= 0 && !process_file_fits(size))
		err = EFBIG;
	if (!err &&
		(fd < 0 || ftruncate(fd, (off_t)size) ||
			fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)))
		err = errno;
	if (!err) {
		*out = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return fail_errno(err, "spmt_init: %zu bytes of memory to share (memfd%s)", size,
		err == EFBIG ? ", ulimit -f" : "");
}

/* Memory that could shrink under the mapping is none. */
int memory_map(int fd, size_t size, void **out)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	void *at = MAP_FAILED;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &stat) ||
		(uint64_t)stat.st_size != size)
		return fail(-EPROTO, "spmt_init: the memory to share is not what it should be");
	if (fault_here(FAULT_MAP))
		errno = fault_errno(FAULT_MAP);
	else
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return fail_errno(errno, "spmt_init: mapping %zu bytes of shared memory", size);
	*out = at;
	return 0;
}
