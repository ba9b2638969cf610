/* SPDX-License-Identifier: MIT */
#include "parcel.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "spmt/bootstrap/search.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"
#include "tests/lib/processes.h"
#include "transports/transport.h"

enum { SLICE_MS = 5, RETRY_MS = 3000, PART = 65536 };

enum what { PUT = 1, GET, AMO };

struct request {
	uint64_t address, n;
	uint32_t what, zero;
	struct amo amo;
};

/* Where a process is to be found: in the directory SPMT_TEST_PARCELS, which other network namespaces see, or by an abstract name. */
static socklen_t name_of(const unsigned char process[16], struct sockaddr_un *name)
{
	const char *dir = getenv("SPMT_TEST_PARCELS");
	char hex[33];

	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", process[i]);
	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	if (dir)
		snprintf(name->sun_path, sizeof(name->sun_path), "%.60s/%s", dir, hex);
	else
		snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1, "spmt-parcel-%s", hex);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
		(dir ? strlen(name->sun_path) + 1 : 1 + strlen(name->sun_path + 1)));
}

/* ---- the owner ------------------------------------------------------------------------------ */

static bool read_all(int fd, void *to, size_t n)
{
	char *at = to;

	while (n) {
		ssize_t got = recv(fd, at, n, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		n -= (size_t)got;
	}
	return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
	const char *at = from;

	while (n) {
		ssize_t got = send(fd, at, n, MSG_NOSIGNAL);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		n -= (size_t)got;
	}
	return true;
}

/* Between this process's own memory and a buffer, by the kernel: a peer that is late may ask for what is unmapped by now, which
   a NIC refuses. */
static bool copy(uint64_t address, void *buffer, size_t n, bool in)
{
	struct iovec theirs = { (void *)(uintptr_t)address, n }, ours = { buffer, n };
	ssize_t done = in ? process_vm_writev(getpid(), &ours, 1, &theirs, 1, 0)
			  : process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0);

	return done == (ssize_t)n;
}

static bool serve_bytes(int fd, const struct request *r)
{
	uint64_t done = 0;
	char part[PART];

	for (uint64_t at = 0, n; at < r->n; at += n) {
		n = r->n - at < sizeof(part) ? r->n - at : sizeof(part);
		if (r->what == PUT
				? !read_all(fd, part, n) || !copy(r->address + at, part, n, true)
				: !copy(r->address + at, part, n, false) || !write_all(fd, part, n))
			return false;
	}
	return r->what == GET || write_all(fd, &done, sizeof(done));
}

/* The kernel has no atomics for that; but this process may unmap the word at any moment, just before it is touched, too. */
static __thread sigjmp_buf *touching;
static struct sigaction others[2];

static void touched(int sig)
{
	if (touching)
		siglongjmp(*touching, 1);
	sigaction(
		sig, &others[sig == SIGBUS], NULL); /* whoever it was tries again, and finds that */
}

static void touch_begin(void)
{
	struct sigaction action = { .sa_handler = touched };

	if (sigaction(SIGSEGV, &action, &others[0]) || sigaction(SIGBUS, &action, &others[1]))
		abort();
}

static bool serve_word(int fd, const struct request *r)
{
	sigjmp_buf gone;
	uint64_t word;

	if (sigsetjmp(gone, 1)) {
		touching = NULL;
		return false;
	}
	touching = &gone;
	word = amo_do((void *)(uintptr_t)r->address, &r->amo);
	touching = NULL;
	return write_all(fd, &word, sizeof(word));
}

static bool serve(int fd, const struct request *r)
{
	return r->what == AMO ? serve_word(fd, r) : serve_bytes(fd, r);
}

static void *serve_all(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct request r;

	while (read_all(fd, &r, sizeof(r)) && serve(fd, &r))
		continue;
	close(fd);
	return NULL;
}

static void *accept_all(void *arg)
{
	int listener = (int)(intptr_t)arg;

	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		pthread_t thread;

		if (fd < 0)
			continue;
		if (process_thread(&thread, 0, serve_all, (void *)(intptr_t)fd))
			close(fd);
		else
			pthread_detach(thread);
	}
	return arg;
}

static void owner_start(void)
{
	unsigned char process[16];
	struct sockaddr_un name;
	socklen_t size;
	pthread_t thread;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || process_nonce(process))
		abort();
	touch_begin();
	size = name_of(process, &name);
	if (bind(fd, (struct sockaddr *)&name, size) || listen(fd, 256) ||
		process_thread(&thread, 0, accept_all, (void *)(intptr_t)fd))
		abort();
	pthread_detach(thread);
}

/* ---- simulated nodes ------------------------------------------------------------------------- */

static int node_here(void)
{
	const char *nodes = getenv("SPMT_TEST_NODES");
	int process = processes_self();

	if (!nodes)
		return process;
	return process < (int)strlen(nodes) ? nodes[process] - '0' : 0;
}

int __real_process_host(unsigned char host[16]);
int __wrap_process_host(unsigned char host[16]);
void __real_search_begin(struct search *search, const struct uid *uid, bool only_tcp, int rank);
void __wrap_search_begin(struct search *search, const struct uid *uid, bool only_tcp, int rank);

static pthread_once_t owner_once = PTHREAD_ONCE_INIT;

int __wrap_process_host(unsigned char host[16])
{
	int rc = __real_process_host(host);

	host[0] = (unsigned char)(host[0] + node_here());
	return rc;
}

int __real_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size);

/* 127.0.0.1 is the first node, as is ::1, which is the only one. */
static in_addr_t address_here(void)
{
	return htonl(INADDR_LOOPBACK + (in_addr_t)node_here());
}

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr = { address_here() } };

	if (to->sa_family == AF_INET6 && node_here()) {
		errno = ENETUNREACH;
		return -1;
	}
	if (to->sa_family == AF_INET && node_here() &&
		bind(fd, (const struct sockaddr *)&own, sizeof(own)))
		return -1;
	return __real_connect(fd, to, size);
}

/* Is a world to be found on this node? */
static bool is_here(const struct uid *uid)
{
	const struct place_address *first = &uid->place.at[0];
	in_addr_t address = address_here();

	return first->bytes[0] != 127 || !memcmp(first->bytes, &address, sizeof(address));
}

/* Before a rank tells the others of itself: whoever they write to is there. SPMT_TEST_ENDS_AT_NODE: this process is killed when it would
   look for the others of its node. */
void __wrap_search_begin(struct search *search, const struct uid *uid, bool only_tcp, int rank)
{
	pthread_once(&owner_once, owner_start);
	if (!uid_travels(uid) && getenv("SPMT_TEST_ENDS_AT_NODE"))
		kill(getpid(), SIGKILL);
	__real_search_begin(search, uid, only_tcp || (uid_travels(uid) && !is_here(uid)), rank);
}

/* ---- the map -------------------------------------------------------------------------------- */

struct peer {
	uint64_t heap;
	unsigned char process[16];
};

static int parcel_attach(
	struct link *link, const struct backend *backend, int dev, const struct rank_info *peer)
{
	struct peer *p = mem_calloc(1, sizeof(*p));

	(void)backend;
	(void)dev;
	if (!p)
		return fail(
			-ENOMEM, "rank %d: parcels to rank %d: no memory", link->rank, peer->rank);
	p->heap = peer->heap_base;
	memcpy(p->process, peer->process, sizeof(p->process));
	link->attached = p;
	link->own = peer->own_base - peer->heap_base;
	return 0;
}

static void parcel_detach(struct link *link, const struct backend *backend, int dev)
{
	(void)backend;
	(void)dev;
	mem_free(link->attached);
	link->attached = NULL;
}

const struct map_ops map_rdma = {
	.name = "rdma", .attach = parcel_attach, .detach = parcel_detach
};

/* ---- a mover --------------------------------------------------------------------------------- */

struct sender {
	pthread_mutex_t lock; /* a stream's thread may move as well */
	int fd;		      /* -1: not connected; -2: cut short, of no more use */
};

static struct sender *sender_of(struct mover *m)
{
	struct sender *s = m->state;

	if (s)
		return s;
	s = mem_calloc(1, sizeof(*s));
	if (!s) {
		fail(-ENOMEM, "rank %d: no memory for parcels", m->link->rank);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	s->fd = -1;
	m->state = s;
	return s;
}

static int sender_connect(struct sender *s, const struct link *link)
{
	const struct peer *p = link->attached;
	struct sockaddr_un name;
	socklen_t size = name_of(p->process, &name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&name, size)) {
		int err = errno;

		close(fd);
		return -err;
	}
	s->fd = fd;
	return 0;
}

/* Until something can be read: 0, -ETIMEDOUT, -ECANCELED. */
static int answer_wait(const struct link *link, int fd, bool in_stream)
{
	int64_t begin = process_now(), ms = atomic_load(link->timeout_ms);
	struct pollfd at = { .fd = fd, .events = POLLIN };

	while (poll(&at, 1, SLICE_MS) <= 0) {
		if (__atomic_load_n(link->stop, __ATOMIC_ACQUIRE))
			return -ECANCELED;
		if (!in_stream && ms >= 0 && process_now() - begin >= ms * 1000000)
			return -ETIMEDOUT;
	}
	return 0;
}

static int ask(struct mover *m, const struct request *r, const void *data, void *answer, size_t n,
	bool in_stream)
{
	struct sender *s = m->state;
	int rc = 0;

	if (s->fd == -1)
		rc = sender_connect(s, m->link);
	if (!rc && s->fd < 0)
		rc = -EPIPE;
	if (!rc &&
		(!write_all(s->fd, r, sizeof(*r)) ||
			(r->what == PUT && !write_all(s->fd, data, r->n))))
		rc = -EPIPE;
	if (!rc)
		rc = answer_wait(m->link, s->fd, in_stream);
	if (!rc && !read_all(s->fd, answer, n))
		rc = -EPIPE;
	if (rc && s->fd >= 0) {
		close(s->fd);
		s->fd = -2;
	}
	return rc;
}

/* A NIC would try again for a while: whether the world has been found broken meanwhile. */
static bool retry(const struct link *link)
{
	const struct timespec slice = { .tv_nsec = 1000000 };

	for (int i = 0; i < RETRY_MS && !__atomic_load_n(link->stop, __ATOMIC_ACQUIRE); i++)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &slice, NULL);
	return __atomic_load_n(link->stop, __ATOMIC_ACQUIRE);
}

static int deliver(struct mover *m, const struct request *r, const void *data, void *answer,
	size_t n, bool in_stream)
{
	UNCANCELLED; /* as a NIC's moves are */
	struct sender *s = m->state;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = ask(m, r, data, answer, n, in_stream);
	pthread_mutex_unlock(&s->lock);
	if (rc && rc != -ETIMEDOUT)
		rc = retry(m->link) ? -ECANCELED : rc;
	if (rc == -ECANCELED || rc == -ETIMEDOUT)
		return link_wait_failed(m->link, "parcel", rc);
	return rc ? fail(SPMT_ERR_PEER_DEAD, "rank %d: rank %d takes no parcels (%s)",
			    m->link->rank, m->link->pe, strerror(-rc))
		  : 0;
}

/* In a stream. */
struct later {
	struct mover *m;
	struct request request;
	const void *from;
	void *to;
};

static void deliver_later(void *arg)
{
	struct later *l = arg;
	bool get = l->request.what == GET;
	uint64_t word;
	int rc = -ECANCELED; /* what is queued behind a failure does not happen */

	if (!__atomic_load_n(l->m->link->stop, __ATOMIC_ACQUIRE))
		rc = deliver(l->m, &l->request, l->from, get ? l->to : &word,
			get ? l->request.n : sizeof(word), true);
	if (rc)
		host_stream_blame(rc, "a parcel did not arrive");
	mem_free(l);
}

static int move(struct mover *m, const struct request *r, const void *from, void *to,
	enum move_mode mode, device_stream stream)
{
	uint64_t word;
	struct later *l;
	int rc;

	if (!sender_of(m))
		return -ENOMEM;
	link_count(m->link, MOVER_VERBS, r->what == AMO ? r->amo.size : r->n);
	if (mode != MOVE_STREAM)
		return deliver(
			m, r, from, to ? to : &word, r->what == GET ? r->n : sizeof(word), false);
	l = mem_calloc(1, sizeof(*l));
	if (!l)
		return fail(-ENOMEM, "rank %d: no memory for a parcel", m->link->rank);
	*l = (struct later){ m, *r, from, to };
	rc = m->link->backend->call(m->link->dev, stream, deliver_later, l);
	if (rc)
		mem_free(l);
	return rc;
}

static uint64_t place(const struct mover *m, uint64_t offset)
{
	return ((const struct peer *)m->link->attached)->heap + offset;
}

static int parcel_put(struct mover *m, uint64_t offset, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	const struct request r = { .address = place(m, offset), .n = n, .what = PUT };

	return move(m, &r, local, NULL, mode, stream);
}

static int parcel_get(struct mover *m, void *local, uint64_t offset, size_t n, enum move_mode mode,
	device_stream stream)
{
	const struct request r = { .address = place(m, offset), .n = n, .what = GET };

	return move(m, &r, NULL, local, mode, stream);
}

static int parcel_signal(struct mover *m, uint64_t offset, uint64_t value, enum spmt_signal_op op,
	device_stream stream)
{
	const struct request r = { .address = place(m, offset),
		.what = AMO,
		.amo = { .op = op == SPMT_SIGNAL_SET ? SPMT_AMO_SET : SPMT_AMO_ADD,
			.size = sizeof(value),
			.operand = value } };

	return move(m, &r, NULL, NULL, stream ? MOVE_STREAM : MOVE_BLOCKING, stream);
}

static int parcel_atomic(struct mover *m, uint64_t offset, const struct amo *amo, uint64_t *old)
{
	const struct request r = { .address = place(m, offset), .what = AMO, .amo = *amo };

	return move(m, &r, NULL, old, MOVE_BLOCKING, NULL);
}

static int parcel_order(struct mover *m, struct move_wait *wait)
{
	(void)m;
	(void)wait;
	return 0;
}

static void parcel_close(struct mover *m)
{
	struct sender *s = m->state;

	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	pthread_mutex_destroy(&s->lock);
	mem_free(s);
	m->state = NULL;
}

const struct mover_ops mover_verbs = {
	.name = "verbs",
	.put = parcel_put,
	.get = parcel_get,
	.signal = parcel_signal,
	.atomic = parcel_atomic,
	.fence = parcel_order,
	.quiet = parcel_order,
	.close = parcel_close,
};
