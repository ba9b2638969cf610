/* SPDX-License-Identifier: MIT */
#include "hub.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client.h"
#include "hub_state.h"
#include "spmt/address/socket.h"
#include "src/base/blake2s.h"
#include "src/base/mem.h"
#include "src/base/process.h"

#define PAUSE_NS 50000000ll    /* without descriptors, before the listeners are looked at again */
#define CRAMPED_NS 500000000ll /* the same, before the world fails of it */
#define RETRY_NS 5000000ll     /* the kernel was short of something */
#define GOODBYE_NS 200000000ll /* longest that a goodbye may wait for a peer that does not read */

/* ---- to all -------------------------------------------------------------------------------- */

static void hub_send_all(
	struct hub *hub, enum wire_type type, const void *fixed, const void *tail, size_t tail_size)
{
	for (struct member *m = hub->members; m; m = m->next)
		if (m->state == MEMBER_READY)
			conn_send(&m->conn, type, fixed, tail, tail_size, -1);
}

static void hub_send_break(struct hub *hub, struct member *m)
{
	struct wire_break w = { hub->cause.code, hub->cause.call };

	conn_send(&m->conn, WIRE_BREAK, &w, hub->cause.sentence, strlen(hub->cause.sentence), -1);
}

/* The first word counts. */
void hub_break(struct hub *hub, const struct cause *cause, const struct member *from)
{
	if (hub->cause.code)
		return;
	hub->cause = *cause;
	for (struct member *m = hub->members; m; m = m->next)
		if (m != from && (m->state == MEMBER_READY || m->state == MEMBER_GUEST))
			hub_send_break(hub, m);
}

static void hub_cramp(struct hub *hub, int code)
{
	struct cause cause;

	cause_set(&cause, code, "spmt_init",
		"spmt_init: the process that leads the rendezvous is out of memory or descriptors (ulimit -n)");
	hub_break(hub, &cause, NULL);
}

static void send_present(struct hub *hub, struct member *m, int rank)
{
	size_t size = hub->config->blob_size;
	struct wire_rank w = hub_present_to(hub, m, rank);

	conn_send(&m->conn, WIRE_PRESENT, &w, hub->blobs + (size_t)rank * size, size, -1);
}

/* ---- members ------------------------------------------------------------------------------- */

/* Takes fd over. */
static struct member *member_add(struct hub *hub, int fd, bool remote, int rank)
{
	struct member *m = mem_calloc(1, sizeof(*m));
	int rc = m ? process_random(m->challenge.nonce, sizeof(m->challenge.nonce)) : -ENOMEM;

	if (rc) {
		mem_free(m);
		close(fd);
		return NULL;
	}
	conn_open(&m->conn, fd, rank < 0 ? -1 : socket_pidfd(fd), remote);
	m->id = hub->next_id++;
	m->process = -1;
	m->rank = rank;
	m->deadline = process_now() + HUB_PATIENCE_NS;
	m->challenge.magic = WIRE_MAGIC;
	m->challenge.version = WIRE_VERSION;
	m->next = hub->members;
	hub->members = m;
	hub->nmembers++;
	conn_send(&m->conn, WIRE_CHALLENGE, &m->challenge, NULL, 0, -1);
	return m;
}

/* Marks its ranks as missing again. */
static void member_withdraw(struct hub *hub, struct member *m)
{
	for (int r = 0; r < hub->config->nranks && !hub->complete; r++) {
		struct wire_rank w = { .rank = (uint32_t)r };

		if (hub->owner[r] != (int64_t)m->id)
			continue;
		hub->owner[r] = -1;
		hub->npresent--;
		hub_send_all(hub, WIRE_ABSENT, &w, NULL, 0);
	}
}

/* True for a connection that has proved nothing yet; it may be dropped. */
static bool is_stranger(const struct member *m)
{
	return m->state == MEMBER_STRANGER && m->id != HUB_SELF && m->rank < 0;
}

/* A member that has added no rank yet is known by the rank in its socket's name. */
static void member_died(struct hub *hub, struct member *m)
{
	for (int r = 0; r < hub->config->nranks && m->state == MEMBER_READY; r++)
		if (hub->owner[r] == (int64_t)m->id)
			hub->dead[r] = m->died = true;
	if (m->rank >= 0 && m->state != MEMBER_GUEST && hub->owner[m->rank] < 0)
		hub->dead[m->rank] = true;
	m->state = MEMBER_GONE;
}

static void member_left(struct hub *hub, struct member *m)
{
	m->state = MEMBER_GONE;
	member_withdraw(hub, m);
}

static void drop_gone(struct hub *hub)
{
	for (struct member **at = &hub->members, *m; (m = *at);) {
		if (m->state != MEMBER_GONE) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		hub->nmembers--;
		hub->pause = 0; /* there is room */
		conn_close(&m->conn);
		mem_free(m);
	}
}

/* ---- completion ---------------------------------------------------------------------------- */

/* Numbers processes in the order of their ids, as the clients do. */
static int hub_number(struct hub *hub)
{
	int n = 0;

	for (uint32_t id = 0; id < hub->next_id; id++) {
		struct member *m = hub->members;

		while (m && (m->id != id || !m->nranks))
			m = m->next;
		if (!m)
			continue;
		m->process = n++;
		hub->remote |= m->conn.remote;
	}
	return n;
}

static void hub_complete(struct hub *hub)
{
	struct wire_complete w = { (uint32_t)hub_number(hub), 0 };

	hub->complete = true;
	w.remote = hub->remote;
	meeting_close(&hub->listeners);
	for (struct member *m = hub->members; m; m = m->next) {
		conn_watch(&m->conn);
		if (m->process >= 0)
			conn_send(&m->conn, WIRE_COMPLETE, &w, NULL, 0,
				m->conn.remote ? -1 : hub->control);
		else if (m->state == MEMBER_STRANGER)
			m->state = MEMBER_GONE;
	}
	if (hub->control >= 0)
		close(hub->control);
	hub->control = -1;
}

/* ---- what members say ---------------------------------------------------------------------- */

static void on_hello(struct hub *hub, struct member *m, const struct wire_hello *hello)
{
	const struct bootstrap_config *c = hub->config;
	struct wire_welcome w = { 0, m->id, (uint32_t)c->nranks, 0, c->blob_size, c->control_size,
		{ 0 } };
	unsigned char proof[WIRE_PROOF];

	wire_prove_hello(c->uid, &m->challenge, hello, proof);
	if (!equal_secrets(proof, hello->proof, sizeof(proof)) || hello->magic != WIRE_MAGIC ||
		hello->version != WIRE_VERSION) {
		m->state = MEMBER_GONE;
		return;
	}
	if (hello->nranks != w.nranks || hello->blob_size != w.blob_size ||
		hello->control_size != w.control_size)
		w.code = SPMT_ERR_MISMATCH;
	wire_prove_welcome(c->uid, hello, &w, w.proof);
	conn_send(&m->conn, WIRE_WELCOME, &w, NULL, 0, -1);
	if (m->conn.error) /* it hears the reason first; check() drops it */
		return;
	m->state = w.code ? MEMBER_GUEST : MEMBER_READY;
	if (!w.code && !m->conn.remote && m->conn.pidfd < 0)
		m->conn.pidfd = socket_pidfd(m->conn.fd);
	for (int r = 0; r < c->nranks && !w.code && !hub->complete; r++)
		if (hub->owner[r] >= 0)
			send_present(hub, m, r);
	if (hub->cause.code)
		hub_send_break(hub, m);
}

static void on_add(struct hub *hub, struct member *m, const struct wire_message *msg)
{
	int rank = (int)msg->u.rank.rank;
	struct wire_verdict verdict = { msg->u.rank.rank, 0 };

	if (hub->owner[rank] >= 0 || hub->complete) {
		verdict.code = -EEXIST;
	} else {
		hub->owner[rank] = m->id;
		hub_present(hub, m, &msg->u.rank);
		m->nranks++;
		hub->npresent++;
		memcpy(hub->blobs + (size_t)rank * msg->tail_size, msg->tail, msg->tail_size);
		for (struct member *to = hub->members; to; to = to->next)
			if (to->state == MEMBER_READY)
				send_present(hub, to, rank);
	}
	conn_send(&m->conn, WIRE_VERDICT, &verdict, NULL, 0, -1);
	if (hub->npresent == hub->config->nranks && !hub->complete)
		hub_complete(hub);
}

static void on_exchange(struct hub *hub, struct member *m, const struct wire_message *msg, int fd)
{
	struct wire_data w = { msg->u.data.round, (uint32_t)m->process };

	if (m->process < 0 || w.round != m->round + 1) {
		member_died(hub, m);
		return;
	}
	m->round++;
	for (struct member *to = hub->members; to; to = to->next)
		if (to->state == MEMBER_READY && to->process >= 0)
			conn_send(&to->conn, WIRE_RELAY, &w, msg->tail, msg->tail_size,
				to->conn.remote ? -1 : fd);
}

static void hub_dispatch(struct hub *hub, struct member *m, const struct wire_message *msg, int fd)
{
	struct cause cause;

	switch (msg->type) {
	case WIRE_HELLO:
		on_hello(hub, m, &msg->u.hello);
		break;
	case WIRE_ADD:
		on_add(hub, m, msg);
		break;
	case WIRE_EXCHANGE:
		on_exchange(hub, m, msg, fd);
		break;
	case WIRE_BREAK:
		if (m->state == MEMBER_GUEST && hub->complete)
			break;
		wire_cause(msg, &cause);
		hub_break(hub, &cause, m);
		break;
	case WIRE_WORD:
		if (hub->complete && m->process >= 0 && hall_hear(hub, m, msg))
			hub_cramp(hub, -ENOMEM);
		break;
	case WIRE_PING:
		break;
	case WIRE_RETURN:
		hub_return(hub, m, msg->u.back.process);
		break;
	default: /* WIRE_BYE: wire_parse lets nothing else through */
		member_left(hub, m);
	}
}

static struct wire_rules hub_rules(const struct hub *hub, const struct member *m)
{
	static const unsigned types[MEMBER_GONE + 1] = {
		[MEMBER_STRANGER] = 1u << WIRE_HELLO | 1u << WIRE_BYE,
		[MEMBER_READY] = 1u << WIRE_ADD | 1u << WIRE_EXCHANGE | 1u << WIRE_BREAK |
			1u << WIRE_BYE | 1u << WIRE_WORD | 1u << WIRE_PING,
		[MEMBER_GUEST] = 1u << WIRE_BREAK | 1u << WIRE_BYE | 1u << WIRE_PING,
	};

	return (struct wire_rules){ types[m->state] | hub_return_type(hub, m), hub->config->nranks,
		hub->config->blob_size };
}

/* Handles what m has sent. A stranger gets one read a pass, so that it cannot hold us up. */
static void member_read(struct hub *hub, struct member *m)
{
	bool more = true;

	while (more && m->state != MEMBER_GONE) {
		struct wire_rules rules = hub_rules(hub, m);
		struct wire_message msg;
		int fd, rc;

		more = conn_receive(&m->conn, &rules) && m->state != MEMBER_STRANGER;
		while ((rc = conn_next(&m->conn, &rules, &msg, &fd)) > 0) {
			hub_dispatch(hub, m, &msg, fd);
			if (fd >= 0)
				close(fd);
			rules = hub_rules(hub, m);
		}
		/* This process may be short of something: check() reports it. */
		if (rc == -EPROTO && m->state != MEMBER_GONE)
			member_died(hub, m);
	}
	if (m->conn.ended && m->state != MEMBER_GONE)
		member_died(hub, m);
}

/* ---- listening ----------------------------------------------------------------------------- */

/* Drops the oldest of too many strangers: a flood must keep no member out. False: none. */
static bool send_stranger_away(struct hub *hub, int most)
{
	struct member *oldest = NULL;
	int n = 0;

	for (struct member *m = hub->members; m; m = m->next) {
		if (!is_stranger(m))
			continue;
		oldest = m; /* newest first */
		n++;
	}
	if (n < most || !oldest)
		return n < most;
	oldest->state = MEMBER_GONE;
	drop_gone(hub);
	return true;
}

/* A process cannot connect. If that lasts, the world breaks, so that all learn why. */
static void no_room(struct hub *hub)
{
	int64_t now = process_now();

	hub->pause = now + PAUSE_NS;
	hub->full = hub->full ? hub->full : now;
	if (now - hub->full >= CRAMPED_NS)
		hub_cramp(hub, -EMFILE);
}

static void welcome_all(struct hub *hub, int listener, bool remote)
{
	for (int i = 0; i < HUB_STRANGERS; i++) {
		int fd = socket_accept(listener, remote);

		hub->full = fd == -EMFILE ? hub->full : 0;
		if (fd == -EAGAIN)
			return;
		if (fd == -EMFILE && !send_stranger_away(hub, 0)) {
			no_room(hub);
			return;
		}
		if (fd < 0)
			continue;
		send_stranger_away(hub, hub->strangers);
		member_add(hub, fd, remote,
			remote ? -1 : search_rank(fd, hub->config->uid, hub->config->nranks));
	}
}

/* ---- a pass -------------------------------------------------------------------------------- */

static bool is_dead(const void *ctx, int rank)
{
	return ((const struct hub *)ctx)->dead[rank];
}

/* Reports all deaths that one pass has found in one sentence. */
static void hub_report_deaths(struct hub *hub)
{
	struct cause cause = { .code = SPMT_ERR_PEER_DEAD };
	int n = 0, nranks = hub->config->nranks;

	for (int r = 0; r < nranks; r++)
		n += hub->dead[r];
	for (struct member *m = hub->members; m; m = m->next)
		if (m->died)
			member_withdraw(hub, m);
	if (n) {
		snprintf(cause.sentence, sizeof(cause.sentence), "%d of %d ranks died:", n, nranks);
		say_ranks(cause.sentence, sizeof(cause.sentence), nranks, is_dead, hub);
		hub_break(hub, &cause, NULL);
		memset(hub->dead, 0, (size_t)nranks);
	}
}

static void check(struct hub *hub, struct member *m, int64_t now)
{
	if ((m->state == MEMBER_STRANGER && m->conn.error) ||
		(is_stranger(m) && now >= m->deadline))
		m->state = MEMBER_GONE;
	if (m->conn.error && (m->state == MEMBER_READY || m->state == MEMBER_GUEST)) {
		int code = m->conn.error;

		m->conn.error = 0;   /* so that it hears of it, if that is possible */
		if (hub->cause.code) /* broken before, of which this one could not be told */
			hub_send_break(hub, m);
		hub_cramp(hub, code);
		m->state = MEMBER_GONE;
	}
}

void hub_serve(struct hub *hub, const struct pollfd *set)
{
	int64_t now = process_now();

	for (struct member *m = hub->members; m; m = m->next) {
		conn_flush(&m->conn);
		/* A forked child may hold the socket open, so the process itself is watched as
		   well. Its last frames are still read. */
		if (conn_readable(&m->conn, set) || conn_orphaned(&m->conn, set) || m->conn.ended)
			member_read(hub, m);
		if (conn_orphaned(&m->conn, set) && m->state != MEMBER_GONE)
			member_died(hub, m);
	}
	hub_report_deaths(hub);
	for (struct member *m = hub->members; m; m = m->next)
		check(hub, m, now);
	drop_gone(hub);
	halls_look(hub, now);
	hub_miss_less(hub, now);
	rolls_look(hub);
	hub_ping(hub, now);
	if (hub->listeners.fd >= 0 && hub->listen_slot >= 0 && set[hub->listen_slot].revents)
		welcome_all(hub, hub->listeners.fd, false);
	for (int i = 0; i < PLACE_ADDRESSES; i++)
		if (hub->listeners.tcp[i] >= 0 && hub->tcp_slots[i] >= 0 &&
			set[hub->tcp_slots[i]].revents)
			welcome_all(hub, hub->listeners.tcp[i], true);
}

bool hub_gathers(const struct hub *hub)
{
	return !hub->complete;
}

bool hub_cramped(const struct hub *hub)
{
	return hub->full != 0;
}

size_t hub_wants(const struct hub *hub)
{
	return 2 * hub->nmembers + 1 + PLACE_ADDRESSES;
}

static size_t listener_poll(int fd, int *slot, struct pollfd *set, size_t n, size_t most)
{
	*slot = -1;
	if (fd < 0 || n >= most)
		return n;
	*slot = (int)n;
	set[n] = (struct pollfd){ .fd = fd, .events = POLLIN };
	return n + 1;
}

size_t hub_poll(struct hub *hub, struct pollfd *set, size_t n, size_t most, int64_t *until)
{
	int64_t now = process_now();
	bool open = now >= hub->pause;

	*until = MIN_OF(*until, hub_miss_until(hub, now));
	n = listener_poll(open ? hub->listeners.fd : -1, &hub->listen_slot, set, n, most);
	for (int i = 0; i < PLACE_ADDRESSES; i++)
		n = listener_poll(
			open ? hub->listeners.tcp[i] : -1, &hub->tcp_slots[i], set, n, most);
	if (!open)
		*until = MIN_OF(*until, hub->pause);
	for (struct member *m = hub->members; m; m = m->next) {
		n = conn_poll(&m->conn, set, n, most);
		if (is_stranger(m))
			*until = MIN_OF(*until, m->deadline);
		if (m->conn.remote)
			*until = MIN_OF(*until, hub->ping);
		if (m->conn.later || m->conn.error || m->conn.ended)
			*until = MIN_OF(
				*until, now + (m->conn.error || m->conn.ended ? 0 : RETRY_NS));
	}
	return n;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* A flood must not take the descriptors that the program needs. */
static int strangers_at_most(void)
{
	struct rlimit limit = { HUB_STRANGERS * 8, 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	return (int)MAX_OF(4, MIN_OF(HUB_STRANGERS, limit.rlim_cur / 8));
}

int hub_make(
	const struct bootstrap_config *config, struct meeting *meeting, int self, struct hub **out)
{
	size_t n = (size_t)config->nranks;
	struct hub *hub = mem_calloc(1, sizeof(*hub));
	int rc = -ENOMEM;

	if (!hub) {
		meeting_close(meeting);
		close(self);
		return fail_call(rc, "spmt_init", "out of memory for a rendezvous of %zu ranks", n);
	}
	hub->config = config;
	hub->listeners = *meeting;
	hub->control = -1;
	hub->strangers = strangers_at_most();
	hub->owner = mem_calloc(n, sizeof(*hub->owner));
	hub->dead = mem_calloc(n, sizeof(*hub->dead));
	hub->present = mem_calloc(n, sizeof(*hub->present));
	hub->blobs = mem_calloc(n, MAX_OF(config->blob_size, 1));
	for (size_t r = 0; hub->owner && r < n; r++)
		hub->owner[r] = -1;
	hub->place = meeting->place;
	if (!hub->owner || !hub->dead || !hub->present || !hub->blobs)
		close(self);
	else if (member_add(hub, self, false, -1))
		rc = 0;
	if (!rc) {
		*out = hub;
		return 0;
	}
	hub_close(hub);
	return fail_call(rc, "spmt_init", "out of memory for a rendezvous of %zu ranks", n);
}

int hub_open(
	const struct bootstrap_config *config, struct meeting *meeting, int self, struct hub **out)
{
	struct hub *hub = NULL;
	int rc = hub_make(config, meeting, self, &hub);

	if (!rc && config->control_size && !config->reports)
		rc = memory_make(client_memory(config), &hub->control);
	if (rc)
		hub_close(hub);
	else
		*out = hub;
	return rc;
}

/* Waits until nothing is queued, or the time is up. */
static void hub_goodbye(struct hub *hub)
{
	int64_t end = process_now() + GOODBYE_NS;
	bool waiting = true, silent = rolls_need_a_hub(hub);

	for (struct member *m = hub->members; m; m = m->next)
		if (!is_stranger(m) && !silent)
			conn_send(&m->conn, WIRE_BYE, NULL, NULL, 0, -1);
	while (waiting && process_now() < end) {
		waiting = false;
		for (struct member *m = hub->members; m; m = m->next) {
			conn_flush(&m->conn);
			waiting |= m->conn.first != NULL;
		}
		if (waiting)
			poll(NULL, 0, 1);
	}
}

void hub_close(struct hub *hub)
{
	if (!hub)
		return;
	meeting_close(&hub->listeners);
	hub_goodbye(hub);
	for (struct member *m = hub->members; m; m = m->next)
		m->state = MEMBER_GONE;
	drop_gone(hub);
	if (hub->control >= 0)
		close(hub->control);
	halls_drop(hub);
	rolls_drop(hub);
	mem_free(hub->owner);
	mem_free(hub->dead);
	mem_free(hub->present);
	hub_miss_none(hub);
	mem_free(hub->blobs);
	mem_free(hub);
}
