/* SPDX-License-Identifier: MIT */
/* What the ranks of a process ask of its bootstrap. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hub.h"
#include "spmt/address/socket.h"
#include "src/base/process.h"
#include "state.h"

/* ---- what ranks ask for -------------------------------------------------------------------- */

static int64_t deadline_of(const struct patience *p)
{
	return p->ms < 0 || p->ms > (INT64_MAX - p->begin) / 1000000 ? INT64_MAX
								     : p->begin + p->ms * 1000000;
}

static struct patience patience_of(int64_t timeout_ms)
{
	return (struct patience){ process_now(), timeout_ms };
}

/* Sleeps until something changes. False: the deadline passed. */
static bool sleep_until(struct bootstrap *b, int64_t deadline)
{
	struct timespec at = { .tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000 };

	if (deadline == INT64_MAX)
		return !pthread_cond_wait(&b->changed, &b->lock);
	return pthread_cond_timedwait(&b->changed, &b->lock, &at) != ETIMEDOUT;
}

static double seconds_since(int64_t begin)
{
	return (double)(process_now() - begin) / 1e9;
}

/* Why this world cannot go on; 0: it can. */
static int trouble(const struct bootstrap *b, int rank)
{
	const struct client *c = &b->client;
	const struct wire_welcome *w = &c->welcome;

	if (c->cause.code)
		return fail_cause(&c->cause);
	if (c->state != CLIENT_REFUSED)
		return 0;
	if (w->nranks != (uint32_t)b->config.nranks)
		return fail_call(SPMT_ERR_MISMATCH, "spmt_init",
			"nranks differs: rank %d passed %d, the world has %u", rank,
			b->config.nranks, w->nranks);
	return fail_call(SPMT_ERR_MISMATCH, "spmt_init",
		"rank %d: the world's processes use another build of the library (%s here)", rank,
		spmt_version());
}

static int claim_rank(struct bootstrap *b, int rank, const void *blob)
{
	struct client *c = &b->client;
	int rc = trouble(b, rank);

	if (rc)
		return rc;
	if (c->claims[rank] != CLAIM_NONE)
		return fail_call(-EEXIST, "spmt_init", "rank %d of %d is taken in this process",
			rank, b->config.nranks);
	if (c->owner[rank] >= 0)
		return fail_call(-EEXIST, "spmt_init", "rank %d of %d is taken in another process",
			rank, b->config.nranks);
	memcpy(c->blobs + (size_t)rank * b->config.blob_size, blob, b->config.blob_size);
	client_claim(c, rank);
	bootstrap_wake(b);
	return 0;
}

/* A node with some of the uid's addresses may be taken for the one that leads. */
static void say_place(const struct client *c, char *text, size_t size)
{
	char here[PLACE_TEXT];

	place_text(&c->place, here);
	*text = '\0';
	if (*here)
		snprintf(text, size,
			"; this node has %s of these and not the rest, so it does not lead", here);
}

/* Names the leading process by its number, where that is known. */
static int unanswered(const struct client *c, const char *who, const struct patience *patience)
{
	int process = c->conn.fd < 0 || c->remote || c->local ? 0 : socket_process(c->conn.fd);
	char leader[48] = "the process that leads the rendezvous", calls[STATUS_SENTENCE / 2];
	char place[PLACE_TEXT + 80];

	if (c->state == CLIENT_CALLING) {
		dial_say(&c->dial, calls, sizeof(calls));
		say_place(c, place, sizeof(place));
		return fail_call(SPMT_ERR_TIMEOUT, "spmt_init",
			"%snobody leads the rendezvous at %s after %.*f s%s", who, calls,
			SECONDS(seconds_since(patience->begin)), place);
	}
	if (process)
		snprintf(
			leader, sizeof(leader), "process %d, which leads the rendezvous,", process);
	return fail_call(SPMT_ERR_TIMEOUT, "spmt_init", "%s%s has not answered after %.*f s", who,
		leader, SECONDS(seconds_since(patience->begin)));
}

static int await_verdict(struct bootstrap *b, int rank, const struct patience *patience)
{
	int64_t deadline = deadline_of(patience);
	char who[24];
	unsigned char *mine = &b->client.claims[rank];
	int rc = 0;

	snprintf(who, sizeof(who), "rank %d: ", rank);
	while (!rc && *mine != CLAIM_HELD) {
		rc = trouble(b, rank);
		if (!rc && *mine == CLAIM_REFUSED)
			rc = fail_call(-EEXIST, "spmt_init",
				"rank %d of %d is taken in another process", rank,
				b->config.nranks);
		if (!rc && !sleep_until(b, deadline) && *mine != CLAIM_HELD)
			rc = unanswered(&b->client, who, patience);
	}
	if (!rc)
		rc = trouble(b, rank);
	if (rc)
		*mine = CLAIM_NONE;
	return rc;
}

int bootstrap_add(struct bootstrap *b, int rank, const void *blob, const struct patience *patience)
{
	int rc;

	if (rank < 0 || rank >= b->config.nranks)
		return fail_call(-EINVAL, "spmt_init", "rank %d is not in 0 .. %d", rank,
			b->config.nranks - 1);
	pthread_mutex_lock(&b->lock);
	rc = claim_rank(b, rank, blob);
	if (!rc)
		rc = await_verdict(b, rank, patience);
	pthread_mutex_unlock(&b->lock);
	return rc;
}

static bool is_missing(const void *ctx, int rank)
{
	const struct client *c = &((const struct bootstrap *)ctx)->client;

	return c->owner[rank] < 0 && c->claims[rank] == CLAIM_NONE;
}

/* What may keep ranks out although they have started. */
static void obstacle(const struct bootstrap *b, char *text, size_t size)
{
	*text = '\0';
	if (b->hub && hub_cramped(b->hub))
		snprintf(text, size, "no descriptor for a process that wanted in (ulimit -n): ");
	else if (b->client.state == CLIENT_STRANGER)
		snprintf(text, size,
			"the process that leads the rendezvous has not let this one in: ");
	else if (b->client.search.stranger >= 0)
		snprintf(text, size,
			"a process of user %u has a name of the rendezvous, this one is of user %u: ",
			(unsigned)b->client.search.stranger, (unsigned)geteuid());
}

static int missing(const struct bootstrap *b, const struct patience *patience)
{
	char sentence[STATUS_SENTENCE], why[120];
	int n = 0, nranks = b->config.nranks;

	for (int r = 0; r < nranks; r++)
		n += is_missing(b, r);
	if (!n) {
		snprintf(why, sizeof(why), "all %d ranks have come, but ", nranks);
		return unanswered(&b->client, why, patience);
	}
	obstacle(b, why, sizeof(why));
	snprintf(sentence, sizeof(sentence),
		"spmt_init: %s%d of %d ranks missing after %.*f s:", why, n, nranks,
		SECONDS(seconds_since(patience->begin)));
	say_ranks(sentence, sizeof(sentence), nranks, is_missing, b);
	return fail_with_call(SPMT_ERR_TIMEOUT, "spmt_init", sentence);
}

static int first_claimed(const struct client *c)
{
	int r = 0;

	while (r < c->config->nranks - 1 && c->claims[r] == CLAIM_NONE)
		r++;
	return r;
}

int bootstrap_wait(struct bootstrap *b, const struct patience *patience, const void **blobs,
	const int **process, void **control)
{
	int64_t deadline = deadline_of(patience);
	struct client *c = &b->client;
	int rc;

	pthread_mutex_lock(&b->lock);
	rc = trouble(b, first_claimed(c));
	while (!rc && !c->complete) {
		bool late = !sleep_until(b, deadline);

		rc = trouble(b, first_claimed(c));
		if (!rc && late && !c->complete)
			rc = missing(b, patience);
	}
	if (!rc) {
		*blobs = c->blobs;
		*process = c->process;
		*control = c->control;
	}
	pthread_mutex_unlock(&b->lock);
	return rc;
}

int bootstrap_processes(const struct bootstrap *b, int *self)
{
	*self = b->client.self;
	return b->client.processes;
}

int bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size)
{
	bool queued;
	int rc;

	pthread_mutex_lock(&b->lock);
	rc = client_say(&b->client, word, data, size);
	queued = b->client.conn.first || b->client.conn.error;
	/* The ranks hear of a death a moment after the connection has ended. */
	if (rc)
		fail(rc, "%s",
			b->client.cause.code == rc
				? b->client.cause.sentence
				: "the process that led the rendezvous has left the world");
	pthread_mutex_unlock(&b->lock);
	if (queued)
		bootstrap_wake(b);
	return rc;
}

int bootstrap_leader(struct bootstrap *b)
{
	const struct client *c = &b->client;
	int rc = 0;

	pthread_mutex_lock(&b->lock);
	if (c->state != CLIENT_READY && !c->heard)
		rc = c->parted			   ? -ENOTCONN
			: c->state == CLIENT_ALONE ? SPMT_ERR_PEER_DEAD
						   : -EAGAIN;
	pthread_mutex_unlock(&b->lock);
	return rc;
}

int bootstrap_leading(struct bootstrap *b)
{
	int process;

	pthread_mutex_lock(&b->lock);
	process = b->client.leader;
	pthread_mutex_unlock(&b->lock);
	return process;
}

unsigned bootstrap_leaders(struct bootstrap *b)
{
	unsigned n;

	pthread_mutex_lock(&b->lock);
	n = b->client.leaders;
	pthread_mutex_unlock(&b->lock);
	return n;
}

bool bootstrap_apart(const struct bootstrap *b, int rank, int other)
{
	return b->client.away[rank] != b->client.away[other];
}

bool bootstrap_is_alive(const struct bootstrap *b, int process)
{
	return !b->client.live_table || live_table_has(b->client.live_table, process);
}

bool bootstrap_intact(const struct bootstrap *b)
{
	return live_table_intact(&b->client.live);
}

void bootstrap_break(struct bootstrap *b, const struct cause *cause)
{
	pthread_mutex_lock(&b->lock);
	client_break(&b->client, cause, true);
	pthread_cond_broadcast(&b->changed);
	bootstrap_wake(b);
	pthread_mutex_unlock(&b->lock);
}

void bootstrap_spread(struct bootstrap *b, int64_t most_ms)
{
	struct patience patience = patience_of(most_ms);
	int64_t deadline = deadline_of(&patience);
	const struct client *c = &b->client;

	pthread_mutex_lock(&b->lock);
	while ((c->local || !c->break_sent) && sleep_until(b, deadline))
		;
	pthread_mutex_unlock(&b->lock);
}

/* ---- exchange ------------------------------------------------------------------------------ */

static int exchange_check(const struct bootstrap *b, size_t size, int fd)
{
	const struct client *c = &b->client;
	int rc = trouble(b, first_claimed(c));

	if (rc)
		return rc;
	if (!c->complete || c->begun != c->taken)
		return fail_call(-EINVAL, "spmt_init", "an exchange %s",
			c->complete ? "after one that failed" : "before all ranks are there");
	if (size > WIRE_DATA)
		return fail_call(-EINVAL, "spmt_init", "an exchange of %zu bytes, the most are %u",
			size, WIRE_DATA);
	if (c->state == CLIENT_ALONE)
		return fail_call(SPMT_ERR_PEER_DEAD, "spmt_init",
			"the process that led the rendezvous has left the world");
	if (fd >= 0 && c->any_remote)
		return fail_call(SPMT_ERR_UNSUPPORTED, "spmt_init",
			"descriptors do not reach ranks on other nodes (SPMT_SOCKET_IFNAME)");
	return 0;
}

static bool is_absent(const void *ctx, int rank)
{
	const struct client *c = ctx;

	return !c->rounds[c->begun & 1].parts[c->process[rank]].here;
}

static int absent(const struct client *c, int64_t begin)
{
	char sentence[STATUS_SENTENCE];
	int n = 0, nranks = c->config->nranks;

	for (int r = 0; r < nranks; r++)
		n += is_absent(c, r);
	snprintf(sentence, sizeof(sentence),
		"spmt_init: %d of %d ranks missing in an exchange after %.*f s:", n, nranks,
		SECONDS(seconds_since(begin)));
	say_ranks(sentence, sizeof(sentence), nranks, is_absent, c);
	return fail_with_call(SPMT_ERR_TIMEOUT, "spmt_init", sentence);
}

static bool is_odd(const void *ctx, int rank)
{
	const struct client *c = ctx;
	const struct part *parts = c->rounds[c->begun & 1].parts;

	return parts[c->process[rank]].size != parts[c->self].size;
}

static int sizes_agree(const struct client *c, size_t size)
{
	char sentence[STATUS_SENTENCE];
	int odd = 0;

	for (int r = 0; r < c->config->nranks; r++)
		odd += is_odd(c, r);
	if (!odd)
		return 0;
	snprintf(sentence, sizeof(sentence),
		"spmt_init: an exchange of %zu bytes here, of another size on ranks:", size);
	say_ranks(sentence, sizeof(sentence), c->config->nranks, is_odd, c);
	return fail_with_call(SPMT_ERR_MISMATCH, "spmt_init", sentence);
}

static int exchange_wait(struct bootstrap *b, struct round *round, int64_t timeout_ms)
{
	struct patience patience = patience_of(timeout_ms);
	int64_t deadline = deadline_of(&patience);
	struct client *c = &b->client;
	int rc = 0;

	while (!rc && round->have < c->processes) {
		bool late = !sleep_until(b, deadline);

		rc = trouble(b, first_claimed(c));
		if (!rc && c->state == CLIENT_ALONE && round->have < c->processes)
			rc = fail_call(SPMT_ERR_PEER_DEAD, "spmt_init",
				"the process that led the rendezvous left during an exchange");
		if (!rc && late && round->have < c->processes)
			rc = absent(c, patience.begin);
	}
	return rc;
}

/* Hands over the results. */
static void exchange_take(struct client *c, struct round *round, size_t size, void *data, int *fds)
{
	for (int p = 0; p < c->processes; p++) {
		struct part *part = &round->parts[p];

		if (size)
			memcpy((char *)data + (size_t)p * size, part->data, size);
		if (!fds)
			continue;
		fds[p] = part->fd;
		part->fd = -1;
	}
	round_empty(round, c->processes);
	c->taken++;
}

int bootstrap_exchange(struct bootstrap *b, const void *data, size_t size, int fd, void *data_out,
	int *fds, int64_t timeout_ms)
{
	struct client *c = &b->client;
	struct round *round;
	int rc;

	pthread_mutex_lock(&b->lock);
	rc = exchange_check(b, size, fd);
	if (!rc) {
		client_exchange(c, data, size, fd);
		bootstrap_wake(b);
		round = client_round(c, c->begun);
		rc = exchange_wait(b, round, timeout_ms);
		if (!rc)
			rc = sizes_agree(c, size);
		if (!rc)
			exchange_take(c, round, size, data_out, fds);
	}
	pthread_mutex_unlock(&b->lock);
	return rc;
}
