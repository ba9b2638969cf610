/* SPDX-License-Identifier: MIT */
/*
 * Wires from process to process. With SPMT_FAKE_WIRE, a folder, each process that opens a device listens there at a socket of the first
 * free number, with which the numbers of its queue pairs begin. What is posted to another process's pair goes there with its bytes; a
 * thread there carries it out, as if a pair beside had posted it, and answers with the status and what was read. A process that is gone
 * is a peer that does not answer. Nodes that are network namespaces are reached as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake_wire.h"
#include "transports/transport.h"

#define HOMES (1u << (24 - FAKE_HOME_SHIFT))
#define SILENT_S 20 /* then a peer is taken for dead */
#define LATER UINT32_MAX

struct far_ask {
	uint32_t qpn, type, n;
	bool goes; /* the bytes; else they come */
	unsigned char work[sizeof(struct fake_work)];
};
struct far_answer {
	uint32_t status, n;
};

static struct {
	uint32_t home;
	int listener, stop, set; /* the thread sleeps on the third */
	pthread_t thread;
	char folder[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* SPMT_FAKE_WIRE */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int to[HOMES]; /* 0: not connected; of the wire's thread alone */
} far_wire;

static void far_name(uint32_t home, struct sockaddr_un *name)
{
	*name = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (snprintf(name->sun_path, sizeof(name->sun_path), "%s/%u", far_wire.folder, home) >=
		(int)sizeof(name->sun_path))
		abort();
}

static bool far_read(int fd, void *at, size_t n)
{
	ssize_t some = 1;

	for (; n && (some > 0 || errno == EINTR); n -= some > 0 ? (size_t)some : 0) {
		some = recv(fd, at, n, MSG_WAITALL);
		if (!some)
			return false;
		at = (char *)at + (some > 0 ? some : 0);
	}
	return !n;
}

static bool far_write(int fd, const void *at, size_t n)
{
	ssize_t some = 1;

	for (; n && (some > 0 || errno == EINTR); n -= some > 0 ? (size_t)some : 0) {
		some = send(fd, at, n, MSG_NOSIGNAL);
		at = (const char *)at + (some > 0 ? some : 0);
	}
	return !n;
}

/* ---- asking --------------------------------------------------------------------------------- */

static int far_connect(uint32_t home)
{
	const struct timeval patience = { .tv_sec = SILENT_S };
	struct sockaddr_un name;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	far_name(home, &name);
	if (fd < 0)
		abort();
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (!connect(fd, (const struct sockaddr *)&name, sizeof(name)))
		return fd;
	close(fd);
	return 0;
}

/* The status; body: what goes, or what has come. */
static uint32_t far_ask(const struct far_ask *ask, char *body)
{
	uint32_t home = ask->qpn >> FAKE_HOME_SHIFT;
	int *fd = &far_wire.to[home];
	struct far_answer answer;

	if (!*fd)
		*fd = far_connect(home);
	if (*fd && far_write(*fd, ask, sizeof(*ask)) &&
		far_write(*fd, body, ask->goes ? ask->n : 0) &&
		far_read(*fd, &answer, sizeof(answer)) && answer.n <= ask->n &&
		far_read(*fd, body, answer.n))
		return answer.status;
	if (*fd)
		close(*fd);
	*fd = 0;
	return VERBS_WC_RETRY_EXC_ERR;
}

bool far_is(uint32_t qpn)
{
	return far_wire.home && qpn >> FAKE_HOME_SHIFT != far_wire.home;
}

bool far_carry(struct fake_qp *qp, uint32_t qpn, uint32_t *status)
{
	uint32_t n = qp->work->sge.length, opcode = qp->work->opcode;
	struct far_ask ask = { .qpn = qpn,
		.type = qp->pub.qp_type,
		.n = n,
		.goes = opcode == VERBS_WR_SEND || opcode == VERBS_WR_RDMA_WRITE };
	const char *near = n ? pair_source(qp) : "";
	char *body = malloc(n + 1);

	if (!body)
		abort();
	memcpy(ask.work, qp->work, sizeof(ask.work));
	*status = LOC_PROT_ERR;
	if (near) {
		if (ask.goes)
			memcpy(body, near, n);
		qp->busy = true;
		pthread_mutex_unlock(&wire.lock);
		*status = far_ask(&ask, body);
		pthread_mutex_lock(&wire.lock);
		qp->busy = false;
		pthread_cond_broadcast(&wire.changed);
		near = n ? pair_source(qp) : ""; /* it may have been given back */
	}
	if (!*status && !near)
		*status = LOC_PROT_ERR;
	if (!*status && !ask.goes)
		store_bytes((char *)(uintptr_t)near, body, n);
	free(body);
	wire.later |= *status == LATER;
	return *status != LATER;
}

/* ---- serving -------------------------------------------------------------------------------- */

/* ThreadSanitizer does not see through what other processes do, and no device's accesses either. */
void AnnotateIgnoreReadsBegin(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreReadsEnd(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreWritesBegin(const char *file, int line) __attribute__((weak));
void AnnotateIgnoreWritesEnd(const char *file, int line) __attribute__((weak));

static void far_round(struct fake_qp *qp)
{
	if (AnnotateIgnoreReadsBegin && AnnotateIgnoreWritesBegin) {
		AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
		AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
	}
	pair_round(qp);
	if (AnnotateIgnoreReadsEnd && AnnotateIgnoreWritesEnd) {
		AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
		AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	}
}

/* By a pair of nobody's beside the one that is meant. */
static uint32_t far_do(const struct far_ask *ask, char *body)
{
	struct verbs_wc ring[2] = { { 0 } };
	struct fake_cq cq = { .pub.cqe = 2, .ring = ring };
	struct verbs_pd pd = { 0 };
	struct fake_mr mr = {
		.pub = { .pd = &pd, .addr = body, .length = ask->n + 1 }, .access = ~0, .data = body
	};
	struct fake_qp qp = { .pub = { .pd = &pd,
				      .send_cq = &cq.pub,
				      .qp_type = ask->type,
				      .state = VERBS_QPS_RTS },
		.dest = ask->qpn };
	uint32_t i = 0;

	qp.work = calloc(1, sizeof(*qp.work));
	if (!qp.work)
		abort();
	memcpy(qp.work, ask->work, sizeof(ask->work));
	pthread_mutex_lock(&wire.lock);
	while (wire.regions[i])
		i++;
	wire.regions[i] = &mr;
	mr.pub.lkey = mr.pub.rkey = ++wire.keys << 16 | i;
	qp.work->next = NULL;
	qp.work->flags = VERBS_SEND_SIGNALED | (qp.work->flags & VERBS_SEND_SOLICITED);
	qp.work->sge = (struct verbs_sge){
		.addr = (uintptr_t)body, .length = ask->n, .lkey = mr.pub.lkey
	};
	far_round(&qp);
	wire.regions[i] = NULL;
	pair_empty(&qp);
	pthread_mutex_unlock(&wire.lock);
	return cq.tail ? ring[0].status : LATER;
}

/* False: the other end is gone. */
static bool far_serve(int fd)
{
	struct far_answer answer = { 0 };
	struct far_ask ask;
	char *body;
	bool there;

	if (!far_read(fd, &ask, sizeof(ask)) || ask.n > FAKE_MESSAGE)
		return false;
	body = calloc(1, ask.n + 1);
	if (!body)
		abort();
	there = far_read(fd, body, ask.goes ? ask.n : 0);
	if (there) {
		answer.status = far_do(&ask, body);
		answer.n = answer.status || ask.goes ? 0 : ask.n;
		there = far_write(fd, &answer, sizeof(answer)) && far_write(fd, body, answer.n);
	}
	free(body);
	return there;
}

static void far_watch(int fd)
{
	struct epoll_event on = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(far_wire.set, EPOLL_CTL_ADD, fd, &on))
		abort();
}

static void far_leave(int fds[HOMES], int *n, int fd)
{
	int i = 0;

	while (fds[i] != fd)
		i++;
	fds[i] = fds[--*n];
	epoll_ctl(far_wire.set, EPOLL_CTL_DEL, fd, NULL);
	close(fd);
}

/* As a device does, it goes on where RLIMIT_NOFILE is lowered. */
static void *far_run(void *arg)
{
	int fds[HOMES], n = 0, fd = -1; /* those who ask */

	(void)arg;
	while (fd != far_wire.stop) {
		struct epoll_event is;

		if (epoll_wait(far_wire.set, &is, 1, -1) < 1)
			continue;
		fd = is.data.fd;
		if (fd == far_wire.listener) {
			fds[n] = n + 1 < (int)HOMES ? accept4(fd, NULL, NULL, SOCK_CLOEXEC) : -1;
			if (fds[n] < 0)
				usleep(1000); /* who calls waits on */
			else
				far_watch(fds[n++]);
		} else if (fd != far_wire.stop && !far_serve(fd)) {
			far_leave(fds, &n, fd);
		}
	}
	while (n)
		close(fds[--n]);
	return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Whether the number is free, or was a process's that has been killed. */
static bool far_bind(uint32_t home)
{
	struct sockaddr_un name;
	int probe;

	far_name(home, &name);
	if (!bind(far_wire.listener, (const struct sockaddr *)&name, sizeof(name)))
		return true;
	probe = far_connect(home);
	if (probe) {
		close(probe);
		return false;
	}
	unlink(name.sun_path);
	return !bind(far_wire.listener, (const struct sockaddr *)&name, sizeof(name));
}

void far_start(void)
{
	const char *folder = getenv("SPMT_FAKE_WIRE");
	struct sockaddr_un name;
	uint32_t home = 1;
	int lock;

	if (!folder)
		return;
	if (snprintf(far_wire.folder, sizeof(far_wire.folder), "%s", folder) >=
		(int)sizeof(far_wire.folder))
		abort();
	mkdir(folder, 0777);
	lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	far_wire.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	far_wire.stop = eventfd(0, EFD_CLOEXEC);
	far_wire.set = epoll_create1(EPOLL_CLOEXEC);
	if (lock < 0 || flock(lock, LOCK_EX) || far_wire.listener < 0 || far_wire.stop < 0)
		abort();
	far_watch(far_wire.stop);
	far_watch(far_wire.listener);
	while (home < HOMES && !far_bind(home))
		home++;
	if (home == HOMES || listen(far_wire.listener, HOMES))
		abort();
	close(lock);
	far_name(home, &name);
	snprintf(far_wire.path, sizeof(far_wire.path), "%s", name.sun_path);
	far_wire.home = home;
	wire.numbers += (uint32_t)getpid();
	wire.base = home << FAKE_HOME_SHIFT;
	if (pthread_create(&far_wire.thread, NULL, far_run, NULL))
		abort();
}

void far_stop(void)
{
	uint64_t one = 1;

	if (!far_wire.home)
		return;
	unlink(far_wire.path);
	if (write(far_wire.stop, &one, sizeof(one)) < 0)
		abort();
	pthread_join(far_wire.thread, NULL);
	close(far_wire.listener);
	close(far_wire.stop);
	close(far_wire.set);
	for (uint32_t i = 0; i < HOMES; i++) {
		if (far_wire.to[i])
			close(far_wire.to[i]);
		far_wire.to[i] = 0;
	}
	far_wire.home = wire.base = 0;
}
