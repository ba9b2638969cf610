/* SPDX-License-Identifier: MIT */
/* Memory named to another process, which is another program started anew. */
#include "conform.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/spmt.h"
#include "src/base/status.h"

#define SIZE ((size_t)300000)
#define CHANNEL 3

/* An export on its way, and whether a descriptor comes with it. */
struct parcel {
	struct device_export name;
	int has_fd;
};

static bool send_parcel(int to, const struct device_export *name, int fd)
{
	struct parcel parcel = { .name = *name, .has_fd = fd >= 0 };
	struct iovec iov = { &parcel, sizeof(parcel) };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = "" };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	return sendmsg(to, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(parcel);
}

static bool receive_parcel(int from, struct device_export *name, int *fd)
{
	struct parcel parcel;
	struct iovec iov = { &parcel, sizeof(parcel) };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .room = "" };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control) };

	if (recvmsg(from, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(parcel))
		return false;
	*name = parcel.name;
	*fd = -1;
	if (parcel.has_fd && msg.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(&control.head), sizeof(*fd));
	return parcel.has_fd == (*fd >= 0);
}

/* The other process: sees the pattern and leaves its own. Asked for twice, an import lives until
   it is released twice. */
static int use_import(struct conform *c, struct rig *r, const struct device_export *name, int fd)
{
	static unsigned char want[SIZE];
	void *ptr, *again;

	conform_noise(want, SIZE, 1);
	CHECK(c, !c->b->ipc->import_memory(r->dev, name, fd, &ptr));
	CHECK(c, rig_holds(c, r, ptr, SIZE, want, 0));
	CHECK(c, !c->b->ipc->import_memory(r->dev, name, fd, &again));
	CHECK(c, !c->b->ipc->release(r->dev, ptr, name));
	CHECK(c, rig_holds(c, r, again, SIZE, want, 0));
	conform_noise(want, SIZE, 2);
	CHECK(c,
		!c->b->copy(r->dev, again, want, SIZE, r->s) &&
			!c->b->stream_sync(r->dev, r->s, -1, NULL));
	CHECK(c, !c->b->ipc->release(r->dev, again, name));
	CHECK(c, c->b->ipc->release(r->dev, again, name) < 0);
	return CONFORM_PASS;
}

/* The same, into a range of the importer's own, which holds commits too. */
static int use_import_at(struct conform *c, struct rig *r, const struct device_export *name, int fd)
{
	static unsigned char want[SIZE];
	size_t n = name->length;
	void *base;
	char *at;

	CHECK(c, !c->b->vmm->reserve(4 * n, (size_t)8 << 20, &base));
	at = (char *)base + n;
	CHECK(c, !c->b->vmm->commit(r->dev, base, n, NULL, 0));
	CHECK(c, !c->b->vmm->import(r->dev, at, name, fd));
	CHECK(c, c->b->vmm->import(r->dev, at, name, fd) < 0);
	conform_noise(want, SIZE, 1);
	CHECK(c, rig_holds(c, r, at, SIZE, want, 0) && rig_holds(c, r, base, SIZE, NULL, 0));
	conform_noise(want, SIZE, 2);
	CHECK(c,
		!c->b->copy(r->dev, at, want, SIZE, r->s) &&
			!c->b->stream_sync(r->dev, r->s, -1, NULL));
	CHECK(c, !c->b->vmm->decommit(r->dev, at, n) && c->b->vmm->decommit(r->dev, at, n) < 0);
	CHECK(c, !c->b->vmm->decommit(r->dev, base, n) && !c->b->vmm->unreserve(base, 4 * n));
	return CONFORM_PASS;
}

static int import_one(struct conform *c, int dev)
{
	struct device_export name, wrong;
	struct rig r;
	void *ptr = c;
	int fd;

	CHECK(c, receive_parcel(CHANNEL, &name, &fd));
	if (rig_open(c, dev, &r))
		return CONFORM_FAIL;
	wrong = name;
	wrong.kind = DEVICE_EXPORT_NONE;
	CHECK(c, c->b->ipc->import_memory(dev, &wrong, fd, &ptr) < 0 && ptr == c);
	if (name.length == SIZE ? use_import(c, &r, &name, fd) : use_import_at(c, &r, &name, fd))
		return CONFORM_FAIL;
	if (fd >= 0)
		close(fd);
	return rig_close(c, &r);
}

int conform_import(const char *backend, int dev)
{
	const struct backend *all[] = { &backend_hip, &backend_cuda, &backend_host };
	struct conform c = { .why = "no such backend" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		if (!strcmp(all[i]->name, backend))
			c.b = all[i];
	}
	if (!c.b || c.b->load() || c.b->count(&c.n) || import_one(&c, dev)) {
		fprintf(stderr, "import: %s\n", c.why);
		return 1;
	}
	return 0;
}

static pid_t start_child(const struct conform *c, int dev, int channel)
{
	char number[16];
	pid_t child;

	snprintf(number, sizeof(number), "%d", dev);
	child = fork();
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(60);
	if (channel != CHANNEL)
		dup2(channel, CHANNEL);
	execl(c->child, c->child, "--import", c->b->name, number, (char *)NULL);
	_exit(127);
}

/* n bytes at ptr, the first SIZE of them noise 1, come back with noise 2. */
static int lend(struct conform *c, struct rig *r, char *ptr, size_t n, int to)
{
	static unsigned char noise[SIZE];
	struct device_export name;
	int pair[2], fd, status;
	pid_t child;

	conform_noise(noise, SIZE, 1);
	CHECK(c, !c->b->copy(0, ptr, noise, SIZE, r->s) && !c->b->stream_sync(0, r->s, -1, NULL));
	CHECK(c, !c->b->ipc->export_memory(0, ptr, n, &name, &fd));
	CHECK(c,
		name.length == n && name.size <= sizeof(name.handle) &&
			(name.kind == DEVICE_EXPORT_FD) == (fd >= 0));
	CHECK(c, !socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	child = start_child(c, to, pair[1]);
	CHECK(c, child > 0);
	close(pair[1]);
	CHECK(c, send_parcel(pair[0], &name, fd));
	if (fd >= 0)
		close(fd);
	CHECK(c, waitpid(child, &status, 0) == child);
	close(pair[0]);
	CHECK(c, !status);
	conform_noise(noise, SIZE, 2);
	CHECK(c, rig_holds(c, r, ptr, SIZE, noise, 0));
	return CONFORM_PASS;
}

static int case_ipc_alloc(struct conform *c)
{
	struct rig r;
	void *ptr;

	if (!c->b->ipc || !c->child)
		return conform_skip(c, "no such group");
	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(0, 4 << 20, DEVICE_MEMORY_SYMMETRIC, &ptr));
	if (lend(c, &r, ptr, SIZE, 0) || lend(c, &r, (char *)ptr + 77777, SIZE, c->n - 1))
		return CONFORM_FAIL;
	CHECK(c, !c->b->free(0, ptr));
	return rig_close(c, &r);
}

static int case_ipc_vmm(struct conform *c)
{
	struct rig r;
	struct device_export name;
	size_t unit, g;
	void *base;
	int fd = -7;

	if (!c->b->ipc || !c->child || !c->b->vmm)
		return conform_skip(c, "no such group");
	if (c->b->vmm->granularity(0, &unit) == SPMT_ERR_UNSUPPORTED)
		return conform_skip(c, status_sentence());
	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	g = align_up(SIZE + 1, unit);
	CHECK(c, !c->b->vmm->reserve(4 * g, unit, &base));
	CHECK(c, !c->b->vmm->commit(0, (char *)base + g, g, NULL, 0));
	if (lend(c, &r, (char *)base + g, SIZE, 0) ||
		lend(c, &r, (char *)base + 2 * g - SIZE, SIZE, c->n - 1))
		return CONFORM_FAIL;
	if (lend(c, &r, (char *)base + g, g, 0) || lend(c, &r, (char *)base + g, g, c->n - 1))
		return CONFORM_FAIL;
	CHECK(c,
		c->b->ipc->export_memory(0, (char *)base + 2 * g - 64, 128, &name, &fd) < 0 &&
			fd == -7);
	CHECK(c,
		!c->b->vmm->decommit(0, (char *)base + g, g) && !c->b->vmm->unreserve(base, 4 * g));
	return rig_close(c, &r);
}

static int case_ipc_foreign(struct conform *c)
{
	struct device_export name;
	int on_stack = 0, fd = -7;

	if (!c->b->ipc)
		return conform_skip(c, "no such group");
	CHECK(c, !c->b->open(0));
	fail(-1, "nothing said");
	CHECK(c,
		c->b->ipc->export_memory(0, &on_stack, sizeof(on_stack), &name, &fd) < 0 &&
			fd == -7);
	CHECK(c, strcmp(status_sentence(), "nothing said"));
	c->b->close(0);
	return CONFORM_PASS;
}

const struct conform_case conform_share[] = {
	{ "ipc_alloc", case_ipc_alloc },
	{ "ipc_vmm", case_ipc_vmm },
	{ "ipc_foreign", case_ipc_foreign },
	{ NULL, NULL },
};
