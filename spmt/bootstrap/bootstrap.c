/* SPDX-License-Identifier: MIT */
/* The bootstrap of a process: opening, service thread, closing. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "heir.h"
#include "hub.h"
#include "spmt/address/socket.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "state.h"

#define SERVICE_STACK (256u << 10)
#define ROOM_NS 10000000ll	/* without room for the poll set, before trying again */
#define BELOW_NS 20000000ll	/* between two looks for a hub at lower numbers .. */
#define BELOW_EACH_NS 1000000ll /* .. and for each of those */
#define GOODBYE_NS 200000000ll	/* longest that a goodbye may wait for a hub that does not read */

/* ---- the service thread -------------------------------------------------------------------- */

void bootstrap_wake(struct bootstrap *b)
{
	const uint64_t one = 1;

	while (write(b->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static int become_hub(struct bootstrap *b, struct meeting *meeting)
{
	int ends[2], rc = socket_pair(ends);
	struct meeting pair;

	if (rc) {
		meeting_close(meeting);
		return rc;
	}
	rc = b->client.complete ? hub_follow(&b->config, meeting, ends[0], &b->client, &b->hub)
				: hub_open(&b->config, meeting, ends[0], &b->hub);
	if (rc) {
		close(ends[1]);
		return rc;
	}
	b->number = meeting->number;
	b->below = process_now();
	pair = meeting_at(ends[1], b->number, false);
	client_connect(&b->client, &pair);
	b->client.local = true;
	return 0;
}

/* Takes the hub, or the place of the hub, that was found already; else looks once. */
static int rendezvous(struct bootstrap *b, struct meeting *met)
{
	struct client *c = &b->client;
	struct meeting meeting;
	int rc = 0;

	if (met && met->kind != MEETING_AGAIN) {
		meeting = *met;
		*met = MEETING_NONE;
	} else {
		rc = c->complete ? heirs_look(c, &meeting) : search_look(&c->search, &meeting);
	}
	if (!rc && meeting.kind == MEETING_HUB)
		return become_hub(b, &meeting);
	if (!rc && meeting.kind == MEETING_CLIENT)
		client_connect(c, &meeting);
	if (!rc && meeting.kind == MEETING_AWAY)
		client_call(c, &meeting.place);
	if (!rc && meeting.kind == MEETING_AGAIN && c->state != CLIENT_ALONE)
		client_postpone(c);
	return rc;
}

static bool may_give_way(const struct bootstrap *b)
{
	return b->hub && b->number && !b->closing && hub_gathers(b->hub);
}

/* Another process leads at a lower number: this one and its members go there, and take along what
   broke the world, if anything. */
static void give_way(struct bootstrap *b)
{
	struct meeting meeting;
	KEEPS_SENTENCE;

	b->below = process_now() + BELOW_NS + b->number * BELOW_EACH_NS;
	if (!search_below(&b->client.search, b->number, &meeting) &&
		meeting.kind == MEETING_CLIENT) {
		hub_close(b->hub);
		b->hub = NULL;
		client_postpone(&b->client);
		b->client.break_sent = false;
		client_connect(&b->client, &meeting);
	}
}

/* Entries of the poll set; *until: when to come back in any case. */
static size_t poll_set(struct bootstrap *b, int64_t *until)
{
	size_t wanted = 4 + PLACE_ADDRESSES + (b->hub ? hub_wants(b->hub) : 0), n = 1;
	struct poller *p = &b->poller;
	int64_t again = process_now() + ROOM_NS;

	*until = client_until(&b->client);
	if (!poller_room(p, wanted))
		*until = MIN_OF(*until, again);
	if (may_give_way(b))
		*until = MIN_OF(*until, b->below);
	p->set[0] = (struct pollfd){ .fd = b->wake, .events = POLLIN };
	n = client_poll(&b->client, p->set, n, p->room);
	return b->hub ? hub_poll(b->hub, p->set, n, p->room, until) : n;
}

static int poll_timeout(int64_t until)
{
	int64_t left = until - process_now();

	if (until == INT64_MAX)
		return -1;
	return left <= 0 ? 0 : (int)MIN_OF((left + 999999) / 1000000, 3600000);
}

/* Called with the lock held; releases it for a while. */
static void report(struct bootstrap *b)
{
	struct cause cause = b->client.cause;
	bool closing;

	b->client.report = false;
	pthread_mutex_unlock(&b->lock);
	pthread_mutex_lock(&b->calling);
	pthread_mutex_lock(&b->lock);
	closing = b->closing;
	pthread_mutex_unlock(&b->lock);
	if (!closing && b->config.broken)
		b->config.broken(b->config.ctx, &cause);
	pthread_mutex_unlock(&b->calling);
	pthread_mutex_lock(&b->lock);
}

/* As report(). */
static void tell(struct bootstrap *b)
{
	const struct heard *h =
		b->client.heard; /* stays there until it has been told: bootstrap_leader */
	bool closing;

	pthread_mutex_unlock(&b->lock);
	pthread_mutex_lock(&b->calling);
	pthread_mutex_lock(&b->lock);
	closing = b->closing;
	pthread_mutex_unlock(&b->lock);
	if (!closing && b->config.heard)
		b->config.heard(b->config.ctx, &h->word, h->data, h->size);
	pthread_mutex_unlock(&b->calling);
	pthread_mutex_lock(&b->lock);
	mem_free(heard_take(&b->client));
}

static void serve_once(struct bootstrap *b)
{
	struct client *c = &b->client;
	bool changed;
	int rc;

	changed = client_serve(c, b->poller.set);
	client_ping(c, process_now());
	/* This process's own way to its hub may be what has failed. */
	if (b->hub && c->cause.code)
		hub_break(b->hub, &c->cause, NULL);
	if (b->hub)
		hub_serve(b->hub, b->poller.set);
	if (may_give_way(b) && process_now() >= b->below)
		give_way(b);
	if (!b->closing && client_looks(c) && process_now() >= c->deadline) {
		rc = rendezvous(b, NULL);
		if (rc) {
			client_fail(c, rc);
			client_postpone(c); /* to tell it */
		}
		changed = true;
	}
	if (changed || c->report)
		pthread_cond_broadcast(&b->changed);
	while (c->heard)
		tell(b);
	if (c->report)
		report(b);
}

static void drain_wake(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

static void *service(void *arg)
{
	struct bootstrap *b = arg;
	bool last = false;

	pthread_setname_np(pthread_self(), "spmt-boot");
	pthread_mutex_lock(&b->lock);
	/* One more pass after close was called, which forwards what was sent before. */
	while (!last) {
		int64_t until;
		size_t n = poll_set(b, &until);
		int timeout = b->closing ? 0 : poll_timeout(until);

		last = b->closing;
		pthread_mutex_unlock(&b->lock);
		poller_wait(&b->poller, n, timeout);
		pthread_mutex_lock(&b->lock);
		drain_wake(b->wake);
		serve_once(b);
	}
	client_end(&b->client);
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

static int start_thread(struct bootstrap *b)
{
	int err = fault_here(FAULT_THREAD) ? fault_errno(FAULT_THREAD)
					   : process_thread(&b->thread, SERVICE_STACK, service, b);

	return err ? fail_call_errno(err, "spmt_init", "a thread for the rendezvous") : 0;
}

/* ---- opening and closing ------------------------------------------------------------------- */

static int config_check(const struct bootstrap_config *config)
{
	if (config->nranks < 1 || config->blob_size > BOOTSTRAP_BLOB ||
		config->control_size > INT64_MAX)
		return fail_call(-EINVAL, "spmt_init",
			"a rendezvous of %d ranks with %zu bytes each", config->nranks,
			config->blob_size);
	if (config->only_tcp && !uid_travels(config->uid))
		return fail_call(-EINVAL, "spmt_init",
			"the uid has no address: SPMT_SOCKET_IFNAME was not set when it was made");
	return 0;
}

static void locks_make(struct bootstrap *b)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&b->calling, NULL);
	pthread_mutex_init(&b->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&b->changed, &attr);
	pthread_condattr_destroy(&attr);
}

static int fill(struct bootstrap *b, struct meeting *met)
{
	int err, rc = client_open(&b->client, &b->config);

	if (rc)
		return rc;
	rc = poller_open(&b->poller);
	if (rc)
		return rc;
	err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0;
	b->wake = err ? -1 : process_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (b->wake < 0)
		return fail_call_errno(
			err ? err : errno, "spmt_init", "an eventfd for the rendezvous");
	rc = process_nonce(b->nonce);
	if (!rc)
		rc = rendezvous(b, met);
	return rc ? rc : start_thread(b);
}

static void client_goodbye(struct client *c)
{
	int64_t end = process_now() + GOODBYE_NS;

	/* A hub on another node that has not let this process in does not know it, so it needs no
	   goodbye. */
	if (c->local || c->conn.fd < 0 || (c->remote && c->state < CLIENT_READY))
		return;
	conn_send(&c->conn, WIRE_BYE, NULL, NULL, 0, -1);
	while (c->conn.first && process_now() < end) {
		poll(NULL, 0, 1);
		conn_flush(&c->conn);
	}
}

/* Frees a bootstrap, however far it got. */
static void destroy(struct bootstrap *b)
{
	KEEPS_SENTENCE;

	hub_close(b->hub);
	client_close(&b->client);
	if (b->wake >= 0)
		close(b->wake);
	poller_close(&b->poller);
	pthread_cond_destroy(&b->changed);
	pthread_mutex_destroy(&b->lock);
	pthread_mutex_destroy(&b->calling);
	explicit_bzero(&b->uid, sizeof(b->uid));
	mem_free(b);
}

static int open_at(
	const struct bootstrap_config *config, struct meeting *met, struct bootstrap **out)
{
	int rc = config_check(config);
	struct bootstrap *b;

	if (rc)
		return rc;
	b = mem_calloc(1, sizeof(*b));
	if (!b)
		return fail_call(-ENOMEM, "spmt_init", "out of memory for a rendezvous");
	b->config = *config;
	b->uid = *config->uid;
	b->config.uid = &b->uid;
	b->wake = b->poller.epoll = -1;
	conn_open(&b->client.conn, -1, -1, false);
	locks_make(b);
	rc = fill(b, met);
	if (rc) {
		client_goodbye(&b->client);
		destroy(b);
		return rc;
	}
	*out = b;
	return 0;
}

int bootstrap_open(
	const struct bootstrap_config *config, struct meeting *met, struct bootstrap **out)
{
	int rc = open_at(config, met, out);

	if (met)
		meeting_close(met);
	return rc;
}

/* A forked child has copies of the descriptors and no thread. It must not speak for its parent. */
static bool is_ours(const struct bootstrap *b)
{
	unsigned char nonce[16];

	return !process_nonce(nonce) && !memcmp(nonce, b->nonce, sizeof(nonce));
}

void bootstrap_close(struct bootstrap *b)
{
	if (!b || !is_ours(b))
		return;
	pthread_mutex_lock(&b->calling);
	pthread_mutex_lock(&b->lock);
	b->closing = true;
	pthread_mutex_unlock(&b->lock);
	pthread_mutex_unlock(&b->calling);
	bootstrap_wake(b);
	pthread_join(b->thread, NULL);
	client_goodbye(&b->client);
	destroy(b);
}
