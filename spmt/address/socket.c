/* SPDX-License-Identifier: MIT */
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* since Linux 6.15 */
#endif

static int stream_socket(int family)
{
	return process_fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/* Who is connected may know of this process's end by the connection alone, which no forked child shall keep. */
int socket_make(int family)
{
	int fd;

	if (fault_here(FAULT_FD)) {
		errno = fault_errno(FAULT_FD);
		fd = -1;
	} else {
		fd = process_own(stream_socket, family);
	}
	return fd < 0 ? fail_call_errno(errno, "spmt_init", "a socket for the rendezvous") : fd;
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
	return err ? fail_call_errno(err, "spmt_init", "sockets for the rendezvous") : 0;
}

/* ---- who is at the other end --------------------------------------------------------------- */

bool socket_is_own(int fd, uid_t *user)
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

/* Older kernels return EINVAL for a process that has ended. One of another PID namespace has no number here, but a pidfd. */
int socket_pidfd(int fd)
{
	int pid = socket_process(fd), pidfd;
	socklen_t size = sizeof(pidfd);

	if (pid == getpid() || fault_here(FAULT_FD))
		return -1;
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size))
		return process_fd(pidfd);
	if (errno == EINVAL || errno == ESRCH)
		return -ESRCH;
	if (!pid)
		return -1;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pidfd < 0 && errno == ESRCH ? -ESRCH : process_fd(pidfd);
}

bool socket_is_orphan(int fd)
{
	struct pollfd at = { .fd = socket_pidfd(fd), .events = POLLIN };
	bool ended = at.fd < 0 ? at.fd == -ESRCH : poll(&at, 1, 0) > 0;

	if (at.fd >= 0)
		close(at.fd);
	return ended;
}

/* Has the other node's kernel answer within seconds where nothing moves. Who judges is conn_look(): what the kernel itself would end takes longer. */
void socket_settle(int fd)
{
	const int on = 1, most = 127;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &most, sizeof(most));
}

void socket_hurry(int fd, int ms)
{
	ms = MIN_OF(MAX_OF(ms, 1000), 120000);
	setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &ms, sizeof(ms));
}

/* A window that stays shut is no silence while probes of it are answered; a limit by TCP_USER_TIMEOUT takes it for one. What has been
   sent again since, and answered, may still not be acknowledged. */
bool socket_owes(int fd, int64_t *ns)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
		return false;
	*ns = info.tcpi_last_ack_recv * 1000000ll;
	return info.tcpi_probes > 1 ||
		(info.tcpi_unacked && info.tcpi_last_data_sent < info.tcpi_last_ack_recv);
}

/* The kernel says that there is no descriptor before it looks whether anybody waits for one. Where it does not even poll one
   (RLIMIT_NOFILE 0), somebody may: who asks does so because of that. */
static int accept_failed(int listener, int err)
{
	struct pollfd at = { .fd = listener, .events = POLLIN };

	if (err != EMFILE && err != ENFILE && err != ENOMEM && err != ENOBUFS)
		return EAGAIN;
	return poll(&at, 1, 0) ? EMFILE : EAGAIN;
}

static int call_of(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		errno = accept_failed(listener, errno);
	return process_fd(fd);
}

int socket_accept(int listener, bool remote)
{
	uid_t user;
	int fd;

	if (fault_here(FAULT_FD))
		return -EMFILE;
	fd = process_own(call_of, listener);
	if (fd < 0)
		return errno == ENOMEM ? -EMFILE : -errno;
	if (remote) {
		socket_settle(fd);
	} else if (!socket_is_own(fd, &user)) {
		close(fd);
		return -EACCES;
	}
	return fd;
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
	return fail_call_errno(err, "spmt_init", "%zu bytes of memory to share (memfd%s)", size,
		err == EFBIG ? ", ulimit -f" : "");
}

/* Memory that could shrink under the mapping is refused. */
int memory_map(int fd, size_t size, void **out)
{
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);
	void *at = MAP_FAILED;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &stat) ||
		(uint64_t)stat.st_size != size)
		return fail_call(
			-EPROTO, "spmt_init", "the memory to share is not what it should be");
	if (fault_here(FAULT_MAP))
		errno = fault_errno(FAULT_MAP);
	else
		at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return fail_call_errno(
			errno, "spmt_init", "mapping %zu bytes of shared memory", size);
	*out = at;
	return 0;
}

void socket_address(int fd, bool here, struct place_address *address)
{
	union place_name name = { .any.sa_family = AF_UNSPEC };
	socklen_t size = sizeof(name);

	*address = (struct place_address){ .family = 0 };
	if (!(here ? getsockname(fd, &name.any, &size) : getpeername(fd, &name.any, &size)))
		address_of(&name.any, address);
}

bool socket_is_connected(int fd)
{
	union place_name name;
	socklen_t size = sizeof(name);

	return !getpeername(fd, &name.any, &size);
}
