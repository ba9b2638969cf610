/* SPDX-License-Identifier: MIT */
#include "client.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heir.h"
#include "hub.h"
#include "spmt/address/socket.h"
#include "src/base/blake2s.h"
#include "src/base/mem.h"
#include "src/base/process.h"

#define LOOK_NS 2000000ll  /* before looking for a hub again; grows by as much, up to .. */
#define LOOK_MOST 10	   /* .. so many times */
#define RETRY_NS 5000000ll /* the kernel was short of something */

/* ---- broken -------------------------------------------------------------------------------- */

static void client_send_break(struct client *c)
{
	struct wire_break w = { c->cause.code, c->cause.call };

	if (c->break_sent || (c->state != CLIENT_READY && c->state != CLIENT_REFUSED))
		return;
	conn_send(&c->conn, WIRE_BREAK, &w, c->cause.sentence, strlen(c->cause.sentence), -1);
	c->break_sent = true;
}

/* Control characters have no place in a frame, nor in a sentence. */
static void take_cause(struct client *c, const struct cause *cause)
{
	c->cause = *cause;
	if (!*c->cause.sentence)
		cause_set(&c->cause, cause->code, NULL, "no reason given");
	for (char *at = c->cause.sentence; *at; at++)
		if (is_control(*at))
			*at = ' ';
	if (c->cause.code >= 0)
		c->cause.code = SPMT_ERR_ABORTED;
}

void client_break(struct client *c, const struct cause *cause, bool own)
{
	if (c->cause.code)
		return;
	take_cause(c, cause);
	c->report = !own;
	client_send_break(c);
}

void client_told(struct client *c, const struct cause *cause)
{
	if (c->cause.code)
		return;
	take_cause(c, cause);
	c->report = c->break_sent = true;
}

void client_fail(struct client *c, int code)
{
	struct cause cause;

	cause_last(&cause, code);
	client_break(c, &cause, false);
}

/* ---- finding a hub ------------------------------------------------------------------------- */

static void look_again(struct client *c)
{
	int64_t times = MIN_OF(c->search.attempts + 1, LOOK_MOST);

	client_hang_up(c);
	c->local = false;
	c->state = CLIENT_LOOKING;
	c->search.attempts++;
	c->deadline = process_now() + times * LOOK_NS;
	for (int r = 0; r < c->config->nranks && !c->complete; r++) {
		c->owner[r] = -1;
		if (c->claims[r] == CLAIM_SENT || c->claims[r] == CLAIM_HELD)
			c->claims[r] = CLAIM_WANTED;
	}
}

/* The peer has shown that it is no hub. */
static void look_elsewhere(struct client *c)
{
	if (c->complete)
		heir_pass_over(c);
	else if (!c->remote && !c->local)
		search_shun(&c->search, c->number, c->conn.fd);
	look_again(c);
}

void client_postpone(struct client *c)
{
	look_again(c);
}

void client_connect(struct client *c, const struct meeting *meeting)
{
	bool remote = meeting->remote;

	conn_open(&c->conn, meeting->fd, remote ? -1 : socket_pidfd(meeting->fd), remote);
	c->remote = remote;
	c->number = meeting->number;
	c->state = CLIENT_STRANGER;
	c->deadline = remote ? process_now() + DIAL_ANSWER_NS : INT64_MAX;
}

/* ---- what the hub says --------------------------------------------------------------------- */

static void on_challenge(struct client *c, const struct wire_challenge *challenge)
{
	const struct bootstrap_config *config = c->config;

	if (challenge->magic != WIRE_MAGIC || (challenge->version != WIRE_VERSION && c->remote)) {
		look_elsewhere(c);
		return;
	}
	if (challenge->version != WIRE_VERSION) {
		fail_call(SPMT_ERR_MISMATCH, "spmt_init",
			"the rendezvous speaks version %u, this library (%s) %u",
			challenge->version, spmt_version(), WIRE_VERSION);
		client_fail(c, SPMT_ERR_MISMATCH);
		return;
	}
	c->challenge = *challenge;
	c->hello = (struct wire_hello){ .magic = WIRE_MAGIC,
		.version = WIRE_VERSION,
		.nranks = (uint32_t)config->nranks,
		.blob_size = config->blob_size,
		.control_size = config->control_size };
	if (process_random(c->hello.nonce, sizeof(c->hello.nonce))) {
		client_fail(c, -EIO);
		return;
	}
	wire_prove_hello(config->uid, challenge, &c->hello, c->hello.proof);
	conn_send(&c->conn, WIRE_HELLO, &c->hello, NULL, 0, -1);
	c->state = CLIENT_HELLO;
}

static void send_claims(struct client *c)
{
	size_t size = c->config->blob_size;

	for (int r = 0; r < c->config->nranks && c->state == CLIENT_READY; r++) {
		struct wire_rank w = { .rank = (uint32_t)r, .port = c->heir_port };

		if (c->claims[r] != CLAIM_WANTED)
			continue;
		c->claims[r] = CLAIM_SENT;
		conn_send(&c->conn, WIRE_ADD, &w, c->blobs + (size_t)r * size, size, -1);
	}
}

static void on_welcome(struct client *c, const struct wire_welcome *welcome)
{
	unsigned char proof[WIRE_PROOF];

	wire_prove_welcome(c->config->uid, &c->hello, welcome, proof);
	if (!equal_secrets(proof, welcome->proof, sizeof(proof))) {
		look_elsewhere(c);
		return;
	}
	c->welcome = *welcome;
	c->id = welcome->member;
	c->deadline = INT64_MAX;
	c->state = welcome->code ? CLIENT_REFUSED : CLIENT_READY;
	c->search.attempts = 0;
	if (c->complete)
		heir_return(c);
	else
		heir_listen(c);
	send_claims(c);
	if (c->cause.code)
		client_send_break(c);
}

/* Another process may have taken a rank that this process held under an earlier hub. */
static void on_verdict(struct client *c, const struct wire_verdict *verdict)
{
	uint32_t rank = verdict->rank;

	if (c->claims[rank] != CLAIM_SENT)
		return;
	c->claims[rank] = verdict->code ? CLAIM_REFUSED : CLAIM_HELD;
	if (!verdict->code) {
		c->held[rank] = true;
	} else if (c->held[rank]) {
		fail_call(
			-EEXIST, "spmt_init", "rank %u was taken while the rendezvous moved", rank);
		client_fail(c, -EEXIST);
	}
}

static void on_rank(struct client *c, const struct wire_message *m)
{
	uint32_t rank = m->u.rank.rank;

	c->owner[rank] = m->type == WIRE_PRESENT ? (int64_t)m->u.rank.member : -1;
	c->away[rank] = m->u.rank.remote;
	c->heirs[rank] = (struct heir){ m->u.rank.place, m->u.rank.port };
	if (m->type == WIRE_PRESENT)
		memcpy(c->blobs + rank * m->tail_size, m->tail, m->tail_size);
}

/* Numbers ids 0, 1, .. in rising order, which is the same in every process. */
static int client_number(struct client *c)
{
	int64_t last = -1;
	int n = 0;

	for (;;) {
		int64_t next = INT64_MAX;

		for (int r = 0; r < c->config->nranks; r++)
			if (c->owner[r] > last && c->owner[r] < next)
				next = c->owner[r];
		if (next == INT64_MAX)
			return n;
		for (int r = 0; r < c->config->nranks; r++)
			if (c->owner[r] == next)
				c->process[r] = n;
		if (next == c->id)
			c->self = n;
		last = next;
		n++;
	}
}

size_t client_memory(const struct bootstrap_config *config)
{
	return config->control_size
		? align_up(config->control_size, CACHE_LINE) + live_table_size(config->nranks)
		: 0;
}

static int memory_take(struct client *c, int fd)
{
	int rc = memory_map(fd, client_memory(c->config), &c->control);

	if (rc)
		return rc;
	c->live_table = (char *)c->control + align_up(c->config->control_size, CACHE_LINE);
	live_table_join(&c->live, c->live_table, c->self);
	return 0;
}

void client_end(struct client *c)
{
	live_table_leave(&c->live);
}

static void on_complete(struct client *c, const struct wire_complete *complete, int fd)
{
	int missing = 0, rc;

	for (int r = 0; r < c->config->nranks; r++)
		missing += c->owner[r] < 0;
	c->self = -1;
	c->processes = client_number(c);
	if (missing || c->self < 0 || (uint32_t)c->processes != complete->processes ||
		(!c->remote && (fd >= 0) != (c->config->control_size > 0))) {
		rc = fail_call(-EPROTO, "spmt_init", "the rendezvous contradicts itself");
	} else {
		rc = rounds_make(c);
		if (!rc)
			rc = heirs_make(c);
		if (!rc && fd >= 0)
			rc = memory_take(c, fd);
	}
	c->any_remote = complete->remote;
	if (!c->any_remote)
		heir_close(c);
	conn_watch(&c->conn);
	c->complete = !rc;
	if (rc)
		client_fail(c, rc);
}

/* A goodbye. While the world gathers, another hub must be found; later none is needed. */
static void on_bye(struct client *c)
{
	if (!c->complete && !c->cause.code) {
		c->search.attempts = 0;
		look_again(c);
		return;
	}
	conn_close(&c->conn);
	c->state = CLIENT_ALONE;
	c->parted = true;
}

static void client_dispatch(struct client *c, const struct wire_message *m, int *fd)
{
	struct cause cause;
	int rc;

	switch (m->type) {
	case WIRE_CHALLENGE:
		on_challenge(c, &m->u.challenge);
		break;
	case WIRE_WELCOME:
		on_welcome(c, &m->u.welcome);
		break;
	case WIRE_VERDICT:
		on_verdict(c, &m->u.verdict);
		break;
	case WIRE_PRESENT:
	case WIRE_ABSENT:
		on_rank(c, m);
		break;
	case WIRE_COMPLETE:
		on_complete(c, &m->u.complete, *fd);
		break;
	case WIRE_RELAY:
		rc = round_take(c, m, fd);
		if (rc)
			client_fail(c, rc);
		break;
	case WIRE_WORD:
		rc = heard_keep(c, m);
		if (rc)
			client_fail(c, rc);
		break;
	case WIRE_BREAK:
		wire_cause(m, &cause);
		client_told(c, &cause);
		break;
	case WIRE_PING:
		break;
	default: /* WIRE_BYE */
		on_bye(c);
	}
}

static struct wire_rules client_rules(const struct client *c)
{
	const unsigned always = 1u << WIRE_BREAK | 1u << WIRE_BYE | 1u << WIRE_PING;
	struct wire_rules rules = { 0, c->config->nranks, c->config->blob_size };

	if (c->state == CLIENT_STRANGER)
		rules.types = 1u << WIRE_CHALLENGE | 1u << WIRE_BYE;
	else if (c->state == CLIENT_HELLO)
		rules.types = 1u << WIRE_WELCOME | 1u << WIRE_BYE;
	else if (c->state == CLIENT_REFUSED)
		rules.types = always;
	else if (c->state == CLIENT_READY && c->complete)
		rules.types = always | 1u << WIRE_RELAY | 1u << WIRE_VERDICT | 1u << WIRE_WORD;
	else if (c->state == CLIENT_READY)
		rules.types = always | 1u << WIRE_PRESENT | 1u << WIRE_ABSENT |
			1u << WIRE_COMPLETE | 1u << WIRE_VERDICT;
	return rules;
}

/* Reads everything that has arrived. */
static bool client_read(struct client *c)
{
	bool more = true, changed = false;

	while (more && c->conn.fd >= 0) {
		struct wire_rules rules = client_rules(c);
		struct wire_message m;
		int fd, rc;

		more = conn_receive(&c->conn, &rules);
		while ((rc = conn_next(&c->conn, &rules, &m, &fd)) > 0) {
			client_dispatch(c, &m, &fd);
			if (fd >= 0)
				close(fd);
			rules = client_rules(c);
			changed = true;
		}
		if (rc < 0)
			c->conn.error = rc;
		more = more && !rc;
	}
	return changed;
}

/* The connection has failed for a reason within this process. */
static void connection_failed(struct client *c)
{
	int code = c->conn.error;

	if (c->state != CLIENT_READY && !c->local && code == -EPROTO) {
		look_elsewhere(c);
		return;
	}
	fail_call(code, "spmt_init", "the rendezvous: %s", status_text(code));
	c->conn.error = 0; /* so that the others hear of it, if that is possible */
	client_fail(c, code);
	if (!c->local && !c->complete && !c->break_sent) {
		look_again(c); /* to tell it */
		return;
	}
	conn_close(&c->conn);
	c->state = CLIENT_ALONE;
}

bool client_serve(struct client *c, const struct pollfd *set)
{
	bool orphaned, changed = c->former.pidfd >= 0 && former_serve(c, set);

	client_calls(c, set);
	if (c->conn.fd < 0)
		return changed;
	orphaned = conn_orphaned(&c->conn, set);
	conn_flush(&c->conn);
	if (conn_readable(&c->conn, set) || orphaned)
		changed |= client_read(c);
	if (c->conn.fd >= 0 && c->conn.error) {
		connection_failed(c);
		return true;
	}
	if (c->conn.fd >= 0 && orphaned && c->conn.pid_slot >= 0) {
		hub_died(c);
		changed = true;
	} else if (c->conn.fd >= 0 && c->conn.ended) {
		if (c->local || c->state >= CLIENT_READY)
			hub_died(c);
		else
			hub_silent(c);
		changed = true;
	}
	if (c->conn.fd < 0 || c->state >= CLIENT_READY || process_now() < c->deadline)
		return changed;
	if (c->complete)
		heir_overdue(c);
	else
		look_again(c);
	return changed;
}

/* A break has to reach the others even if there was no hub at that moment; and who goes on has to be agreed. */
bool client_looks(const struct client *c)
{
	return c->state == CLIENT_LOOKING && (c->complete || !(c->cause.code && c->break_sent));
}

static int64_t conn_until(const struct client *c)
{
	if (c->state == CLIENT_LOOKING && !client_looks(c))
		return INT64_MAX;
	if (c->state == CLIENT_CALLING)
		return dial_until(&c->dial);
	if (c->conn.error || c->conn.ended)
		return 0;
	if (c->conn.later)
		return process_now() + RETRY_NS;
	return c->state < CLIENT_READY ? c->deadline : INT64_MAX;
}

int64_t client_until(const struct client *c)
{
	int64_t until = MIN_OF(conn_until(c), c->former.until);

	return client_pings(c) ? MIN_OF(until, c->ping) : until;
}

size_t client_poll(struct client *c, struct pollfd *set, size_t n, size_t most)
{
	n = dial_poll(&c->dial, set, conn_poll(&c->conn, set, n, most), most);
	c->former.slot = -1;
	if (c->former.pidfd < 0 || n >= most)
		return n;
	c->former.slot = (int)n;
	set[n] = (struct pollfd){ .fd = c->former.pidfd, .events = POLLIN };
	return n + 1;
}

/* ---- what the user asks for ---------------------------------------------------------------- */

void client_claim(struct client *c, int rank)
{
	c->claims[rank] = CLAIM_WANTED;
	send_claims(c);
}

/* ---- life ---------------------------------------------------------------------------------- */

int client_open(struct client *c, const struct bootstrap_config *config)
{
	size_t n = (size_t)config->nranks;

	*c = (struct client){ .config = config,
		.state = CLIENT_LOOKING,
		.former = { -1, 0, -1, INT64_MAX },
		.heir_fds = { -1, -1, -1 } };
	conn_open(&c->conn, -1, -1, false);
	client_search(c);
	c->claims = mem_calloc(n, 1);
	c->held = mem_calloc(n, sizeof(*c->held));
	c->owner = mem_calloc(n, sizeof(*c->owner));
	c->away = mem_calloc(n, sizeof(*c->away));
	c->process = mem_calloc(n, sizeof(*c->process));
	c->heirs = mem_calloc(n, sizeof(*c->heirs));
	c->blobs = mem_calloc(n, MAX_OF(config->blob_size, 1));
	for (size_t r = 0; c->owner && r < n; r++)
		c->owner[r] = -1;
	if (c->claims && c->held && c->owner && c->away && c->process && c->heirs && c->blobs)
		return 0;
	return fail_call(-ENOMEM, "spmt_init", "out of memory for a rendezvous of %zu ranks", n);
}

void client_close(struct client *c)
{
	struct heard *h;

	client_hang_up(c);
	former_forget(c);
	heir_close(c);
	while ((h = heard_take(c)))
		mem_free(h);
	for (int i = 0; i < 2; i++) {
		round_empty(&c->rounds[i], c->processes);
		mem_free(c->rounds[i].parts);
	}
	if (c->control)
		munmap(c->control, client_memory(c->config));
	mem_free(c->claims);
	mem_free(c->held);
	mem_free(c->owner);
	mem_free(c->away);
	mem_free(c->process);
	mem_free(c->heirs);
	mem_free(c->gone);
	mem_free(c->blobs);
}
