/* SPDX-License-Identifier: MIT */
/*
 * When the hub goes: who says so, and, of a complete world over several nodes, who follows it, so that the others can agree on who goes
 * on. Each process listens, from its first hub on, at a port of its own, and all are told of it as ranks come; nobody is let in there
 * before. So a process that can be called lives, and one whose node refuses has died: the lowest that lives is the next hub, and the
 * others return to it. It has no part in any meeting: the world is broken.
 *
 * Nodes that do not reach each other any more follow two hubs, each with a set of its own of those who go on.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "heir.h"
#include "hub_state.h"
#include "spmt/address/interfaces.h"
#include "spmt/address/socket.h"
#include "spmt/address/tcp.h"
#include "src/base/mem.h"
#include "src/base/process.h"

#define END_NS \
	300000000ll /* a killed process closes its sockets so much earlier than it ends, at most */
#define SILENT_NS 5000000000ll	   /* what a process that can be called gets to become the hub */
#define COME_BACK_NS 10000000000ll /* .. and one that has not been heard of, to come to it */
#define CALL_LOOK_NS 20000000ll	   /* between two looks whether it can be called */
#define LEFT_NS 300000000ll	   /* what a process said before it left may still be on its way */

/* ---- who follows, at a process ---------------------------------------------------------------- */

static bool heir_listens(const struct client *c)
{
	return c->heir_fds[0] >= 0;
}

void heir_close(struct client *c)
{
	for (int i = 0; i < PLACE_ADDRESSES; i++) {
		if (c->heir_fds[i] >= 0)
			close(c->heir_fds[i]);
		c->heir_fds[i] = -1;
	}
	c->heir_port = 0;
}

/* Where other processes reach this one. False: nowhere. */
static bool heir_place(struct client *c)
{
	c->place = (struct uid_place){ 0 };
	if (c->remote)
		socket_address(c->conn.fd, true, &c->place.at[0]);
	else if (interfaces_here(&c->config->uid->place, &c->place))
		return false;
	return place_count(&c->place) > 0;
}

void heir_listen(struct client *c)
{
	KEEPS_SENTENCE;

	heir_close(c); /* another hub may see this process at another address */
	if (!uid_travels(c->config->uid) || c->local)
		return;
	if (!heir_place(c) || tcp_listen_anywhere(&c->place, &c->heir_port, c->heir_fds))
		c->heir_port = 0; /* another is the hub */
}

int heirs_make(struct client *c)
{
	c->gone = mem_calloc((size_t)c->processes, sizeof(*c->gone));
	if (!c->gone)
		return fail_call(
			-ENOMEM, "spmt_init", "out of memory for %d processes", c->processes);
	c->leader = -1;
	for (int r = 0; r < c->config->nranks; r++)
		if (c->owner[r] == HUB_SELF)
			c->leader = c->process[r];
	return 0;
}

void heir_pass_over(struct client *c)
{
	if (c->leader >= 0)
		c->gone[c->leader] = true;
}

/* The world was complete, and its hub has died. */
static void heirs_begin(struct client *c)
{
	heir_pass_over(c);
	if (!c->any_remote)
		return;
	client_postpone(c);
	c->deadline = process_now();
}

static const struct heir *heir_of(const struct client *c, int process)
{
	int r = 0;

	while (c->process[r] != process)
		r++;
	return &c->heirs[r];
}

/* CLIENT, or AGAIN. -ECONNREFUSED, without a sentence: nobody is there. */
static int heir_call(const struct heir *h, struct meeting *meeting)
{
	int fd, rc = tcp_call(&h->place, h->port, &fd);

	if (!rc && fd >= 0)
		*meeting = meeting_at(fd, 0, true);
	return rc || fd >= 0 || fd == -EAGAIN || fd == -EINTR || fd == -EADDRNOTAVAIL
		? rc
		: -ECONNREFUSED;
}

/* This process follows. */
static void heir_meets(struct client *c, struct meeting *meeting)
{
	meeting->kind = MEETING_HUB;
	memcpy(meeting->tcp, c->heir_fds, sizeof(meeting->tcp));
	memset(c->heir_fds, -1, sizeof(c->heir_fds));
}

int heirs_look(struct client *c, struct meeting *meeting)
{
	*meeting = MEETING_NONE;
	for (int p = 0; p < c->processes; p++) {
		const struct heir *h = heir_of(c, p);
		int rc;

		if (c->gone[p] || !h->port || (p == c->self && !heir_listens(c)))
			continue;
		if (p != c->leader)
			c->silent = process_now() + SILENT_NS;
		c->leader = p;
		if (p == c->self) {
			heir_meets(c, meeting);
			return 0;
		}
		rc = heir_call(h, meeting);
		if (rc != -ECONNREFUSED)
			return rc;
		heir_pass_over(c);
	}
	c->state = CLIENT_ALONE;
	return 0;
}

void heir_overdue(struct client *c)
{
	/* its kernel has answered */
	if (socket_is_connected(c->conn.fd) && process_now() < c->silent) {
		c->deadline = c->silent;
		return;
	}
	heir_pass_over(c);
	client_postpone(c);
}

void heir_return(struct client *c)
{
	const struct wire_return w = { (uint32_t)c->self, 0 };

	conn_send(&c->conn, WIRE_RETURN, &w, NULL, 0, -1);
	c->leaders++;
}

/* ---- who follows, at the hub ------------------------------------------------------------------- */

void hub_present(struct hub *hub, const struct member *m, const struct wire_rank *added)
{
	struct wire_rank *w = &hub->present[added->rank];

	*w = *added;
	w->member = m->id;
	w->remote = m->conn.remote;
	w->place = hub->place.at[0];
	if (m->conn.remote)
		socket_address(m->conn.fd, false, &w->place);
}

/* Of this node's addresses, at all of which its processes listen, other nodes may reach one only. */
struct wire_rank hub_present_to(const struct hub *hub, const struct member *to, int rank)
{
	struct wire_rank w = hub->present[rank];

	if (!w.remote && to->conn.remote)
		socket_address(to->conn.fd, true, &w.place);
	return w;
}

/* One that may still return; and whether it lives: its call is in nobody's hands there, and ends when it listens no more. */
struct missed {
	bool missed;
	int call;      /* -1: none */
	int64_t until; /* it is missed; INT64_MAX: as long as any is */
};

static void call_end(struct missed *m)
{
	if (m->call >= 0)
		close(m->call);
	m->call = -1;
}

static void missed_call(const struct client *c, int process, struct missed *m)
{
	const struct heir *h = heir_of(c, process);
	struct meeting meeting = MEETING_NONE;

	if (!m->missed || process == c->self || !h->port)
		return;
	if (heir_call(h, &meeting) == -ECONNREFUSED)
		m->missed = false;
	if (meeting.kind == MEETING_CLIENT)
		m->call = meeting.fd;
}

static struct missed *missed_make(const struct client *c)
{
	struct missed *all = mem_calloc((size_t)c->processes, sizeof(*all));

	KEEPS_SENTENCE;
	for (int p = 0; all && p < c->processes; p++) {
		all[p] = (struct missed){ !c->gone[p], -1, INT64_MAX };
		missed_call(c, p, &all[p]);
	}
	return all;
}

void hub_miss_none(struct hub *hub)
{
	for (int p = 0; hub->missed && p < hub->processes; p++)
		call_end(&hub->missed[p]);
	mem_free(hub->missed);
	hub->missed = NULL;
}

int hub_follow(const struct bootstrap_config *config, struct meeting *meeting, int self,
	const struct client *c, struct hub **out)
{
	struct missed *missed = missed_make(c);
	struct hub *hub;
	int rc;

	if (!missed) {
		meeting_close(meeting);
		close(self);
		return fail_call(
			-ENOMEM, "spmt_init", "out of memory for %d processes", c->processes);
	}
	rc = hub_make(config, meeting, self, &hub);
	if (rc) {
		hub_miss_none(&(struct hub){ .missed = missed, .processes = c->processes });
		return rc;
	}
	hub->missed = missed;
	hub->home = c->process;
	hub->processes = c->processes;
	hub->until = process_now() + COME_BACK_NS;
	hub->place = c->place;
	hub->cause = c->cause;
	hub->complete = hub->remote = true;
	*out = hub;
	return 0;
}

unsigned hub_return_type(const struct hub *hub, const struct member *m)
{
	return hub->missed && m->state == MEMBER_READY && m->process < 0 ? 1u << WIRE_RETURN : 0;
}

void hub_return(struct hub *hub, struct member *m, uint32_t process)
{
	if (process >= (uint32_t)hub->processes || !hub_misses(hub, process)) {
		m->state = MEMBER_GONE;
		return;
	}
	hub->missed[process].missed = false;
	call_end(&hub->missed[process]);
	m->process = (int)process;
	conn_watch(&m->conn);
	for (int r = 0; r < hub->config->nranks; r++)
		if (hub->home[r] == m->process) {
			hub->owner[r] = m->id;
			m->nranks++;
		}
	halls_ask(hub, m);
}

bool hub_misses(const struct hub *hub, uint32_t process)
{
	return hub->missed && hub->missed[process].missed;
}

bool hub_misses_any(const struct hub *hub)
{
	for (uint32_t p = 0; hub->missed && p < (uint32_t)hub->processes; p++)
		if (hub_misses(hub, p))
			return true;
	return false;
}

bool hub_misses_rank(const struct hub *hub, uint32_t rank)
{
	return hub->missed && hub_misses(hub, (uint32_t)hub->home[rank]);
}

/* Its node has answered that it is not there: then it has died. Or it was, and has gone since. */
static void call_look(struct missed *m, int64_t now)
{
	struct pollfd at = { .fd = m->call, .events = POLLOUT };
	socklen_t size = sizeof(int);
	int err = 0;

	if (m->call < 0 || poll(&at, 1, 0) <= 0 || !(at.revents & (POLLERR | POLLHUP)))
		return;
	if (getsockopt(m->call, SOL_SOCKET, SO_ERROR, &err, &size))
		err = 0;
	call_end(m);
	if (err == ECONNREFUSED)
		m->until = now;
	else if (!err || err == ECONNRESET || err == EPIPE)
		m->until = now + LEFT_NS;
}

void hub_miss_less(struct hub *hub, int64_t now)
{
	bool late = hub->missed && now >= hub->until;

	for (int p = 0; hub->missed && p < hub->processes; p++) {
		struct missed *m = &hub->missed[p];

		if (!m->missed)
			continue;
		call_look(m, now);
		if (now < m->until && !late)
			continue;
		m->missed = false;
		call_end(m);
		hub->called = 0;
	}
	if (late)
		hub->until = INT64_MAX;
}

int64_t hub_miss_until(const struct hub *hub, int64_t now)
{
	if (!hub->called)
		return now;
	for (int p = 0; hub->missed && p < hub->processes; p++)
		if (hub->missed[p].missed &&
			(hub->missed[p].call >= 0 || hub->missed[p].until != INT64_MAX))
			return now + CALL_LOOK_NS;
	return hub->missed ? hub->until : INT64_MAX;
}

/* ---- who says so --------------------------------------------------------------------------------- */

static bool of_hub(const void *ctx, int rank)
{
	return ((const struct client *)ctx)->owner[rank] == HUB_SELF;
}

#define NAMELESS \
	"process %d, which led the rendezvous, died before it had said which of the %d ranks are its"

/* "2 of 6 ranks died: 0, 1"; before its ranks have come, only the process can be named. */
static void say_death(const struct client *c, int process, char *sentence, size_t size)
{
	int n = 0, nranks = c->config->nranks;

	for (int r = 0; r < nranks; r++)
		n += of_hub(c, r);
	if (n) {
		snprintf(sentence, size, "%d of %d ranks died:", n, nranks);
		say_ranks(sentence, size, nranks, of_hub, c);
	} else {
		snprintf(sentence, size, NAMELESS, process, nranks);
	}
}

/* The hub's process ended without a goodbye. */
void hub_died(struct client *c)
{
	struct cause cause = { .code = SPMT_ERR_PEER_DEAD };

	say_death(c, socket_process(c->conn.fd), cause.sentence, sizeof(cause.sentence));
	if (!c->cause.code && c->local) {
		cause_set(&cause, -ENOMEM, "spmt_init",
			"spmt_init: out of memory or descriptors in the rendezvous");
		client_told(c, &cause);
	} else if (!c->cause.code && c->complete) {
		client_told(c, &cause);
	} else if (!c->cause.code && c->remote && c->state != CLIENT_READY) {
		client_postpone(c); /* nothing has shown that it was one */
		return;
	} else if (!c->cause.code) {
		client_postpone(c); /* to tell it those who come */
		client_break(c, &cause, false);
		return;
	}
	conn_close(&c->conn);
	c->state = CLIENT_ALONE;
	if (c->complete && !c->local)
		heirs_begin(c);
}

void former_forget(struct client *c)
{
	if (c->former.pidfd >= 0)
		close(c->former.pidfd);
	c->former = (struct former){ -1, 0, -1, INT64_MAX };
}

void hub_ping(struct hub *hub, int64_t now)
{
	if (now < hub->ping)
		return;
	hub->ping = now + PING_NS;
	for (struct member *m = hub->members; m; m = m->next) {
		conn_look(&m->conn, now);
		if (m->state == MEMBER_READY && hub->complete)
			conn_ping(&m->conn);
	}
}

/* The hub closed before it let this process in. Either it refused, or it died: then its process
   ends a moment later. */
void hub_silent(struct client *c)
{
	if (c->complete && c->conn.refused)
		heir_pass_over(c);
	former_forget(c);
	if (c->conn.pidfd >= 0)
		c->former = (struct former){ c->conn.pidfd, socket_process(c->conn.fd), -1,
			process_now() + END_NS };
	c->conn.pidfd = -1;
	client_postpone(c);
}

/* True: it has died. */
bool former_serve(struct client *c, const struct pollfd *set)
{
	struct cause cause = { .code = SPMT_ERR_PEER_DEAD };
	bool died = c->former.slot >= 0 && set[c->former.slot].revents;

	if (!died && process_now() < c->former.until)
		return false;
	if (died && !c->complete) {
		snprintf(cause.sentence, sizeof(cause.sentence), NAMELESS, c->former.process,
			c->config->nranks);
		client_break(c, &cause, false);
	}
	former_forget(c);
	return died;
}
