/* SPDX-License-Identifier: MIT */
#include "messages.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "spmt/comm/broken.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/record.h"
#include "spmt/comm/waits.h"
#include "src/base/process.h"

enum { RANKS_AT_MOST = 160, LOOK_MS = 20, DECIDE_MS = 20000 };

/* JOIN: a rank opens a comm. COME: to a meeting; the hub passes it on. OPEN: all have come. BREAK: the comm is broken, or, with a
   number, this meeting is unless it is open. */
enum kind { JOIN = 1, COME, OPEN, BREAK };

struct message {
	uint32_t kind, call; /* call, code, text: a struct cause, where something broke */
	int32_t rank, nranks, code;
	uint64_t world[2], comm, epoch;
	struct meet_record record;
	char text[STATUS_SENTENCE];
};

static void send_message(int fd, const struct message *m)
{
	UNCANCELLED;
	ssize_t n;

	do
		n = send(fd, m, sizeof(*m), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
}

/* ---- the hub ------------------------------------------------------------------------------------------------------ */

/* The connections of one comm. A place is never given twice: a later world of the same name is another group. */
struct group {
	struct group *next;
	struct message key;
	int members, come;
	uint64_t open; /* its last meeting */
	bool broken;
	struct message why;
	int fd[RANKS_AT_MOST]; /* 0: has not joined, -1: has left */
	struct message
		said[RANKS_AT_MOST]; /* what each has come with last, for those who join later */
};

struct connection {
	int fd, rank;
	struct group *group;
};

static struct hub_state {
	struct sockaddr_un name;
	socklen_t name_size;
	int listener, n, room;
	struct group *groups;
	struct connection *connections;
	struct pollfd *polls;
} hub;

static void tell_group(const struct group *g, const struct message *m)
{
	for (int r = 0; r < g->key.nranks; r++)
		if (g->fd[r] > 0)
			send_message(g->fd[r], m);
}

static bool is_of(const struct group *g, const struct message *m)
{
	return g->key.world[0] == m->world[0] && g->key.world[1] == m->world[1] &&
		g->key.comm == m->comm && g->key.nranks == m->nranks && !g->fd[m->rank];
}

static void hub_join(struct connection *c, const struct message *m)
{
	struct group *g = hub.groups;

	while (g && !is_of(g, m))
		g = g->next;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			abort();
		g->key = *m;
		g->next = hub.groups;
		hub.groups = g;
	}
	c->group = g;
	c->rank = m->rank;
	g->fd[m->rank] = c->fd;
	g->members++;
	for (int r = 0; r < m->nranks; r++)
		if (g->said[r].kind)
			send_message(c->fd, &g->said[r]);
	if (g->broken)
		send_message(c->fd, &g->why);
}

static void hub_break(struct group *g, const struct message *m)
{
	if (g->broken || (m->epoch && g->open >= m->epoch))
		return;
	g->broken = true;
	g->why = *m;
	tell_group(g, m);
}

static void hub_come(struct group *g, const struct message *m)
{
	struct message open = { .kind = OPEN, .epoch = m->epoch };

	if (g->broken)
		return;
	g->said[m->rank] = *m;
	tell_group(g, m);
	if (++g->come < g->key.nranks)
		return;
	g->come = 0;
	g->open = m->epoch;
	tell_group(g, &open);
}

static void hub_left(struct connection *c)
{
	struct group *g = c->group, **at = &hub.groups;

	close(c->fd);
	if (g) {
		g->fd[c->rank] = -1;
		if (!--g->members) {
			while (*at != g)
				at = &(*at)->next;
			*at = g->next;
			free(g);
		}
	}
	*c = hub.connections[--hub.n];
}

/* False: it has left. */
static bool hub_dispatch(struct connection *c)
{
	struct message m;

	if (recv(c->fd, &m, sizeof(m), 0) != sizeof(m)) {
		hub_left(c);
		return false;
	}
	if (m.kind == JOIN)
		hub_join(c, &m);
	else if (m.kind == COME)
		hub_come(c->group, &m);
	else
		hub_break(c->group, &m);
	return true;
}

static void hub_room(void)
{
	if (hub.n < hub.room)
		return;
	hub.room = 2 * hub.room + 64;
	hub.connections = realloc(hub.connections, (size_t)hub.room * sizeof(*hub.connections));
	hub.polls = realloc(hub.polls, ((size_t)hub.room + 1) * sizeof(*hub.polls));
	if (!hub.connections || !hub.polls)
		abort();
}

static void *hub_main(void *arg)
{
	for (;;) {
		hub_room();
		hub.polls[0] = (struct pollfd){ .fd = hub.listener, .events = POLLIN };
		for (int i = 0; i < hub.n; i++)
			hub.polls[i + 1] =
				(struct pollfd){ .fd = hub.connections[i].fd, .events = POLLIN };
		if (poll(hub.polls, (nfds_t)hub.n + 1, -1) < 0)
			continue;
		/* downwards, as one that has left is replaced by the last */
		for (int i = hub.n - 1; i >= 0; i--)
			if (hub.polls[i + 1].revents)
				hub_dispatch(&hub.connections[i]);
		if (hub.polls[0].revents) {
			int fd = accept4(hub.listener, NULL, NULL, SOCK_CLOEXEC);

			if (fd >= 0)
				hub.connections[hub.n++] = (struct connection){ .fd = fd };
		}
	}
	return arg;
}

/* Before a test forks: children connect by the same name. */
__attribute__((constructor)) static void hub_start(void)
{
	struct rlimit files;
	pthread_t thread;

	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	hub.name.sun_family = AF_UNIX;
	hub.name_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
		(size_t)snprintf(hub.name.sun_path + 1, sizeof(hub.name.sun_path) - 1,
			"spmt-messages-%d", (int)getpid()));
	hub.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (hub.listener < 0 || bind(hub.listener, (struct sockaddr *)&hub.name, hub.name_size) ||
		listen(hub.listener, 1024) || pthread_create(&thread, NULL, hub_main, NULL))
		abort();
	pthread_detach(thread);
}

/* ---- a rank ------------------------------------------------------------------------------------------------------- */

/* By parity of the meeting: others may be in the next while this rank still reads. */
struct said {
	struct {
		struct meet_record record;
		char text[STATUS_SENTENCE];
	} at[2];
	uint64_t come;
};

/* A thread of its own hears what comes, also while the rank is in no meeting: its process is to know of a break at once. */
struct state {
	int fd;
	pthread_t ear;
	spmt_comm *comm;
	pthread_mutex_t lock; /* guards open, over and said */
	pthread_cond_t heard;
	bool over;			/* there is nothing more to hear */
	uint64_t open;			/* the last meeting known to be */
	char attached[STATUS_SENTENCE]; /* for the next */
	struct said said[];
};

static struct state *state_of(const spmt_comm *comm)
{
	return comm->meeting_state;
}

static void *ear_main(void *arg)
{
	struct state *s = arg;
	struct message m = { .kind = 0 };

	while (m.kind != BREAK && recv(s->fd, &m, sizeof(m), 0) == sizeof(m)) {
		pthread_mutex_lock(&s->lock);
		if (m.kind == COME) {
			struct said *said = &s->said[m.rank];

			said->at[m.epoch & 1].record = m.record;
			memcpy(said->at[m.epoch & 1].text, m.text, sizeof(m.text));
			said->come = m.epoch;
		} else if (m.kind == OPEN) {
			s->open = m.epoch;
		}
		pthread_cond_broadcast(&s->heard);
		pthread_mutex_unlock(&s->lock);
	}
	if (m.kind == BREAK) {
		struct cause cause = { m.code, m.call, "" };

		memcpy(cause.sentence, m.text, sizeof(m.text) - 1);
		comm_break(s->comm, &cause);
	}
	pthread_mutex_lock(&s->lock);
	s->over = true;
	pthread_cond_broadcast(&s->heard);
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void state_free(struct state *s)
{
	if (s->fd >= 0)
		close(s->fd);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->heard);
	free(s);
}

static int state_make(spmt_comm *comm, struct state **out)
{
	struct state *s = calloc(1, sizeof(*s) + (size_t)comm->nranks * sizeof(s->said[0]));

	if (!s)
		return fail(-ENOMEM, "out of memory for meetings by messages");
	s->comm = comm;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->heard, NULL);
	s->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s->fd < 0 || connect(s->fd, (struct sockaddr *)&hub.name, hub.name_size)) {
		int err = errno;

		state_free(s);
		return fail_errno(err, "cannot reach the hub of the test");
	}
	*out = s;
	return 0;
}

static int messages_open(spmt_comm *comm)
{
	struct message m = { .kind = JOIN,
		.rank = comm->rank,
		.nranks = comm->nranks,
		.world = { comm->world->uid.id[0], comm->world->uid.id[1] },
		.comm = comm->id };
	struct state *s = NULL;
	int rc;

	if (comm->nranks > RANKS_AT_MOST)
		return fail(
			-EINVAL, "meetings by messages are for %d ranks at most", RANKS_AT_MOST);
	rc = state_make(comm, &s);
	if (rc)
		return rc;
	comm->meeting_state = s;
	send_message(s->fd, &m);
	rc = process_thread(&s->ear, 0, ear_main, s);
	if (!rc)
		return 0;
	state_free(s);
	return fail_errno(rc, "no thread to hear the hub of the test");
}

static void messages_close(spmt_comm *comm)
{
	struct state *s = state_of(comm);
	struct message m;

	shutdown(s->fd, SHUT_WR);
	pthread_join(s->ear, NULL);
	/* until the hub has closed its end, for tests that count descriptors */
	while (recv(s->fd, &m, sizeof(m), 0) > 0)
		;
	state_free(s);
	comm->meeting_state = NULL;
}

static void message_break(const spmt_comm *comm, uint64_t epoch, const struct cause *cause)
{
	struct message m = {
		.kind = BREAK, .call = cause->call, .code = cause->code, .epoch = epoch
	};

	memcpy(m.text, cause->sentence, sizeof(m.text));
	send_message(state_of(comm)->fd, &m);
}

static void messages_broke(spmt_comm *comm, const struct cause *cause)
{
	message_break(comm, 0, cause);
}

static void messages_attach(spmt_comm *comm, const void *data, size_t size)
{
	memcpy(state_of(comm)->attached, data, size);
}

static bool messages_bring(spmt_comm *comm, const struct meet_record *mine)
{
	struct state *s = state_of(comm);
	struct message m = { .kind = COME, .rank = comm->rank, .epoch = comm->epoch };

	m.record = *mine;
	memcpy(m.text, s->attached, sizeof(m.text));
	pthread_mutex_lock(&s->lock);
	s->said[comm->rank].at[comm->epoch & 1].record = *mine;
	pthread_mutex_unlock(&s->lock);
	send_message(s->fd, &m);
	return false;
}

/* The meeting is decided. Waits a moment for that. */
static bool messages_decided(spmt_comm *comm)
{
	struct state *s = state_of(comm);
	struct timespec until;
	bool decided;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += LOOK_MS * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->lock);
	if (!s->over && s->open < comm->epoch)
		pthread_cond_timedwait(&s->heard, &s->lock, &until);
	decided = s->over || s->open >= comm->epoch;
	pthread_mutex_unlock(&s->lock);
	return decided;
}

/* Once, when the deadline passes: the hub decides whether all have come before. */
static void messages_give_up(spmt_comm *comm, int64_t waited)
{
	struct cause cause;

	(void)meet_missed(comm, waited, &cause);
	message_break(comm, comm->epoch, &cause);
}

static int64_t messages_wait(spmt_comm *comm)
{
	UNCANCELLED;
	struct state *s = state_of(comm);
	const struct wait_for wait = { .name = meet_name(
					       s->said[comm->rank].at[comm->epoch & 1].record.op),
		.since = process_now(),
		.epoch = comm->epoch };
	int64_t limit = comm_timeout(comm), waited = 0;
	bool given_up = false;

	while (!messages_decided(comm)) {
		waited = process_now() - wait.since;
		if (limit >= 0 && !given_up && waited >= limit * 1000000) {
			messages_give_up(comm, waited);
			given_up = true;
		}
		if (given_up && waited > (limit + DECIDE_MS) * 1000000) {
			comm_break(comm,
				&(struct cause){
					SPMT_ERR_BROKEN, 0, "the hub of the test is silent" });
			break;
		}
		waits_show(comm, s, &wait);
		comm_look(comm);
	}
	waits_hide(comm, s);
	return process_now() - wait.since;
}

static struct brought messages_brought(const spmt_comm *comm)
{
	const struct said *first = state_of(comm)->said;

	return (struct brought){ &first->at[comm->epoch & 1].record,
		first->at[comm->epoch & 1].text, sizeof(*first) };
}

static enum meet_verdict messages_verdict(const spmt_comm *comm)
{
	const struct brought all = messages_brought(comm);
	struct state *s = state_of(comm);
	bool open;

	pthread_mutex_lock(&s->lock);
	open = s->open >= comm->epoch;
	pthread_mutex_unlock(&s->lock);
	return open ? meet_judge(&all, comm->nranks) : MEET_BROKEN;
}

static enum meet_standing messages_standing(const spmt_comm *comm, int rank)
{
	struct state *s = state_of(comm);
	bool come;

	pthread_mutex_lock(&s->lock);
	come = rank == comm->rank || s->said[rank].come >= comm->epoch;
	pthread_mutex_unlock(&s->lock);
	return come ? MEET_COME : MEET_MISSING;
}

static const struct meeting_apart messages_apart = {
	.open = messages_open,
	.close = messages_close,
	.broke = messages_broke,
};

const struct meeting_ops meeting_messages = {
	.name = "messages",
	.apart = &messages_apart,
	.attach = messages_attach,
	.bring = messages_bring,
	.wait = messages_wait,
	.verdict = messages_verdict,
	.standing = messages_standing,
	.brought = messages_brought,
};

/* ---- all worlds of a program -------------------------------------------------------------------------------------- */

int __real_spmt_init(const struct spmt_attr *attr, spmt_comm **comm);
int __wrap_spmt_init(const struct spmt_attr *attr, spmt_comm **comm);

/* What the attributes say wrongly is for spmt_init to refuse. */
static struct world *hold(const struct spmt_attr *attr)
{
	struct world *w = NULL;
	struct uid uid;

	if (!attr || attr->size < sizeof(*attr) || !attr->uid || attr->nranks < 1 ||
		attr->nranks > RANKS_AT_MOST || uid_read("messages", attr->uid, &uid) ||
		world_hold("messages", &uid, attr->nranks, &w))
		return NULL;
	if (!w->process && w->nranks <= RANKS_AT_MOST)
		atomic_store(&w->meeting, &meeting_messages);
	return w;
}

int __wrap_spmt_init(const struct spmt_attr *attr, spmt_comm **comm)
{
	struct world *w = hold(attr);
	int rc = __real_spmt_init(attr, comm);

	if (!rc && w && (*comm)->meeting != &meeting_messages)
		abort();
	world_release(w);
	return rc;
}
