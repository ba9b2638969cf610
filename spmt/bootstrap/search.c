/* SPDX-License-Identifier: MIT */
#include "search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "spmt/address/interfaces.h"
#include "spmt/address/socket.h"
#include "spmt/address/tcp.h"
#include "src/base/status.h"
#include "wire.h"

#define BACKLOG 1024
#define NUMBERS \
	4096 /* names of the rendezvous: others can take one only after they have seen it in use */
#define OWN_NUMBERS 256 /* names of a member */
#define PATIENCE 4 /* looks at a name that does not answer, some 20 ms: by then its owner listens */

struct address {
	socklen_t size;
	union {
		struct sockaddr any;
		struct sockaddr_un un;
	} u;
};

static void unix_address(const struct uid *uid, int rank, unsigned number, struct address *a)
{
	char name[WIRE_NAME];

	wire_name(uid, rank, number, name);
	memset(a, 0, sizeof(*a));
	a->u.un.sun_family = AF_UNIX;
	/* a zero first: the abstract name space */
	memcpy(a->u.un.sun_path + 1, name, strlen(name));
	a->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

int search_rank(int fd, const struct uid *uid, int nranks)
{
	struct address theirs, made;
	const char *name = theirs.u.un.sun_path + 1, *dot;
	char *end = NULL;
	long rank, number;

	memset(&theirs, 0, sizeof(theirs));
	theirs.size = sizeof(theirs.u.un) - 1;
	if (getpeername(fd, &theirs.u.any, &theirs.size) || theirs.u.any.sa_family != AF_UNIX)
		return -1;
	dot = strchr(name, '.');
	rank = dot ? strtol(dot + 1, &end, 10) : -1;
	number = end && *end == '.' ? strtol(end + 1, NULL, 10) : -1;
	if (rank < 0 || rank >= nranks || number < 0 || number >= OWN_NUMBERS)
		return -1;
	unix_address(uid, (int)rank, (unsigned)number, &made);
	return theirs.size == made.size && !memcmp(&theirs.u.un, &made.u.un, made.size) ? (int)rank
											: -1;
}

/* ---- on this node -------------------------------------------------------------------------- */

struct meeting meeting_at(int fd, unsigned number, bool remote)
{
	struct meeting met = MEETING_NONE;

	met.kind = MEETING_CLIENT;
	met.fd = fd;
	met.number = number;
	met.remote = remote;
	return met;
}

void search_begin(struct search *search, const struct uid *uid, bool only_tcp, int rank)
{
	*search = (struct search){ uid, only_tcp, rank, .stranger = -1 };
}

void search_shun(struct search *s, unsigned number, int fd)
{
	unsigned at = s->shuns++ % ARRAY_SIZE(s->shunned);

	s->shunned[at].number = number;
	s->shunned[at].process = socket_process(fd);
}

static bool is_shunned(const struct search *s, unsigned number, int fd)
{
	for (unsigned i = 0; i < MIN_OF(s->shuns, ARRAY_SIZE(s->shunned)); i++)
		if (s->shunned[i].number == number && s->shunned[i].process == socket_process(fd))
			return true;
	return false;
}

/* Whether a connection leads to a live process of this user that may be the hub. */
static bool is_our_hub(struct search *s, unsigned number, int fd)
{
	uid_t user;

	if (!socket_is_own(fd, &user)) {
		s->stranger = user;
		return false;
	}
	return !socket_is_orphan(fd) && !is_shunned(s, number, fd);
}

/* Binds a name that tells the hub which rank this process brings, even if the process dies right
   after it connected. Takes the first free name: a forked child may still hold the socket of an
   earlier world. */
static void take_own_name(const struct search *s, int fd)
{
	int err = EADDRINUSE;

	for (unsigned i = 0; i < OWN_NUMBERS && s->rank >= 0 && err == EADDRINUSE; i++) {
		struct address own;

		unix_address(s->uid, s->rank, i, &own);
		err = bind(fd, &own.u.any, own.size) ? errno : 0;
	}
}

/* The result of connecting to a name that is in use. */
enum answer { ANSWERED, PASSED_OVER, NOT_YET };

/* A name that does not answer may belong to a hub that is starting or is busy; a stranger's
   socket may have another type or refuse us. */
static int answer_of(const struct search *s, int err)
{
	switch (err) {
	case ECONNREFUSED:
	case EAGAIN:
		return s->attempts < PATIENCE ? NOT_YET : PASSED_OVER;
	case EACCES:
	case EPERM:
	case EPROTOTYPE:
		return PASSED_OVER;
	default:
		return fail_call_errno(err, "spmt_init", "connecting to the rendezvous");
	}
}

/* An answer, or a negative code. */
static int call(struct search *s, unsigned number, struct meeting *meeting)
{
	int fd = socket_make(AF_UNIX), rc = PASSED_OVER;
	struct address a;

	if (fd < 0)
		return fd;
	unix_address(s->uid, -1, number, &a);
	take_own_name(s, fd);
	if (connect(fd, &a.u.any, a.size)) {
		rc = answer_of(s, errno);
	} else if (is_our_hub(s, number, fd)) {
		*meeting = meeting_at(fd, number, false);
		return ANSWERED;
	}
	close(fd);
	return rc;
}

int search_below(struct search *s, unsigned number, struct meeting *meeting)
{
	int rc = PASSED_OVER;

	*meeting = MEETING_NONE;
	for (unsigned i = 0; i < number && rc == PASSED_OVER; i++) {
		rc = call(s, i, meeting);
		rc = rc == NOT_YET ? PASSED_OVER : rc;
	}
	return MIN_OF(rc, 0);
}

static bool node_leads(const struct uid *uid, const struct uid_place *here)
{
	int n = place_count(here);

	return n == place_count(&uid->place) || (n && uid_is_from_here(uid));
}

/* This process has bound the name, so it leads if the hub is to be on this node at all. It does
   not listen yet; until that is settled others are refused and try again. Takes over fd. */
static int lead(const struct search *s, int fd, unsigned number, struct meeting *meeting)
{
	struct meeting met = MEETING_NONE;
	struct uid_place here;
	int rc = interfaces_here(&s->uid->place, &here);
	bool leads = !rc && node_leads(s->uid, &here);

	met.kind = MEETING_HUB;
	met.fd = fd;
	met.number = number;
	if (leads)
		rc = tcp_listen(&here, s->uid->port, met.tcp);
	if (leads && !rc && listen(fd, BACKLOG))
		rc = fail_call_errno(errno, "spmt_init", "listening at the rendezvous");
	if (!leads || rc)
		meeting_close(&met);
	if (rc)
		return rc;
	if (!leads)
		met.kind = MEETING_AWAY;
	met.place = here;
	*meeting = met;
	return 0;
}

/* The first name that is free, or where one of ours answers. */
static int look_here(struct search *s, int fd, struct meeting *meeting)
{
	int rc = PASSED_OVER;

	for (unsigned i = 0; i < NUMBERS && rc == PASSED_OVER; i++) {
		struct address a;

		unix_address(s->uid, -1, i, &a);
		if (!bind(fd, &a.u.any, a.size))
			return lead(s, fd, i, meeting);
		if (errno == EADDRINUSE)
			rc = call(s, i, meeting);
		else
			rc = fail_call_errno(errno, "spmt_init", "binding the rendezvous");
	}
	close(fd);
	return MIN_OF(rc, 0);
}

int search_look(struct search *s, struct meeting *meeting)
{
	int fd;

	*meeting = MEETING_NONE;
	s->stranger = -1;
	if (s->only_tcp) {
		meeting->kind = MEETING_AWAY;
		return 0;
	}
	fd = socket_make(AF_UNIX);
	return fd < 0 ? fd : look_here(s, fd, meeting);
}

/* Shut down first: a forked child may hold copies, and nobody should connect to those. */
void meeting_close(struct meeting *meeting)
{
	for (int i = -1; i < PLACE_ADDRESSES && meeting->kind != MEETING_AGAIN; i++) {
		int fd = i < 0 ? meeting->fd : meeting->tcp[i];

		if (fd < 0)
			continue;
		shutdown(fd, SHUT_RDWR);
		close(fd);
	}
	*meeting = MEETING_NONE;
}
