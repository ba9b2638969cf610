/* SPDX-License-Identifier: MIT */
/*
 * What a rank is told of a failure over RDMA devices: the code, the peer's rank, the device and port at both ends, and the verbs status or
 * event by its name. Two ranks as threads, over the stand-in for libibverbs, each with a device of its own.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "spmt/comm/comm.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/fake_nic.h"
#include "transports/verbs/map.h"

#define US "fake0 port 2"
#define PLACES US " to fake1 port 2: "
#define RETRIES "transport retry counter exceeded (verbs status 12, vendor's 0)"
#define STATUS(n) "a status of the stand-in's (verbs status " #n ", vendor's 0)"

enum { RANKS = 2, SHORT_MS = 300, LOST = 1 << 30 };

/* ---- a world in which rank 0 fails ------------------------------------------------------------- */

struct scene {
	int (*begin)(
		struct scene *s, spmt_comm *comm, uint64_t *word); /* on rank 0; NULL: nothing */
	uint32_t status; /* with which the next work request ends; 0: it does not */
	bool told;	 /* of this event of rank 0's device */
	uint32_t event;
	int code;
	const char *says; /* behind "to rank 1: ", to the end */
	bool strangers;	  /* the ranks have not met */
	spmt_uid uid;
	_Atomic int over;
};

static int put_one(spmt_comm *comm, uint64_t *word)
{
	static const uint64_t one = 1;
	int rc = spmt_put(comm, word, &one, sizeof(one), 1);

	return rc ? rc : spmt_quiet(comm);
}

static int ends_so(const char *sentence, const char *says)
{
	const char *at = strstr(sentence, "to rank 1: ");

	if (!at || strcmp(at + strlen("to rank 1: "), says) || strncmp(sentence, "spmt_", 5))
		return ranks_fail("'%s', not '.. to rank 1: %s'", sentence, says);
	return 0;
}

/* An event takes its time, and what is posted before goes through. */
static int fails(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	int rc = 0;

	if (!s->strangers)
		REQUIRE_OK(put_one(comm, word));
	if (s->begin)
		TRY(s->begin(s, comm, word));
	if (s->status)
		fake.break_work(1, s->status);
	if (s->told)
		fake.tell(0, s->event);
	do
		rc = put_one(comm, word);
	while (!rc && s->told);
	fake.break_work(0, 0);
	REQUIRE_EQ(rc, s->code);
	return ends_so(spmt_last_error(), s->says);
}

static int plays(int rank, void *arg)
{
	struct scene *s = arg;
	struct spmt_attr a = ranks_attr(rank, RANKS, &s->uid);
	spmt_comm *comm;
	uint64_t *word;
	int rc = 0;

	REQUIRE_OK(spmt_init(&a, &comm));
	REQUIRE_OK(spmt_calloc(comm, 64, sizeof(*word), (void **)&word));
	if (!rank) {
		rc = fails(s, comm, word);
		fake.hold(0);
		fake.lose(0);
		s->over = 1;
	}
	while (!s->over)
		sleep_ms(1);
	spmt_finalize(comm);
	return rc;
}

static int play(const struct scene *what)
{
	struct scene s = *what;

	REQUIRE_OK(spmt_uid_create(&s.uid));
	TRY(ranks_threads(RANKS, plays, &s));
	REQUIRE_EQ(fake.live(), 0);
	return 0;
}

/* ---- statuses, events --------------------------------------------------------------------------- */

static int statuses(void)
{
	static const struct scene scenes[] = {
		{ .status = VERBS_WC_RETRY_EXC_ERR,
			.code = SPMT_ERR_PEER_DEAD,
			.says = PLACES RETRIES },
		{ .status = VERBS_WC_RNR_RETRY_EXC_ERR,
			.code = SPMT_ERR_PEER_DEAD,
			.says = PLACES STATUS(13) },
		{ .status = VERBS_WC_RESP_TIMEOUT_ERR,
			.code = SPMT_ERR_PEER_DEAD,
			.says = PLACES STATUS(20) },
		{ .status = VERBS_WC_REM_ACCESS_ERR, .code = -EIO, .says = PLACES STATUS(10) },
		{ .status = VERBS_WC_FATAL_ERR, .code = -EIO, .says = PLACES STATUS(19) },
		{ .status = VERBS_WC_WR_FLUSH_ERR,
			.code = -EIO,
			.says = PLACES "Work Request Flushed Error (verbs status 5, vendor's 0)" },
	};

	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		TRY(play(&scenes[i]));
	return 0;
}

static int events(void)
{
#define PAIR_FAILED(name)                                                 \
	{                                                                 \
		.told = true, .event = VERBS_##name, .code = -EIO,        \
		.says = PLACES "the device says that the queue pair has " \
			       "failed (IBV_" #name ")"                   \
	}
	static const struct scene scenes[] = {
		PAIR_FAILED(EVENT_QP_FATAL),
		PAIR_FAILED(EVENT_QP_REQ_ERR),
		PAIR_FAILED(EVENT_QP_ACCESS_ERR),
		{ .told = true,
			.event = VERBS_EVENT_CQ_ERR,
			.code = -EIO,
			.says = PLACES "its completion queue has failed (IBV_EVENT_CQ_ERR)" },
		{ .told = true,
			.event = VERBS_EVENT_DEVICE_FATAL,
			.code = -EIO,
			.says = PLACES "the device has failed (IBV_EVENT_DEVICE_FATAL)" },
	};

	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		TRY(play(&scenes[i]));
	return 0;
}

/* As sandboxes do once a program has what it needs: fewer than a thread of a device waits for. It sleeps as before. */
static int few_files(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	struct rlimit limit;
	int64_t begin;

	(void)s;
	(void)comm;
	(void)word;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = 2;
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &limit));
	begin = cpu_ns();
	sleep_ms(500);
	begin = cpu_ns() - begin;
	REQUIRE(begin < 150 * 1000000);
	return 0;
}

static int events_unpolled(void)
{
	struct rlimit limit;
	int rc;

	getrlimit(RLIMIT_NOFILE, &limit);
	rc = play(&(struct scene){ .begin = few_files,
		.told = true,
		.event = VERBS_EVENT_DEVICE_FATAL,
		.code = -EIO,
		.says = PLACES "the device has failed (IBV_EVENT_DEVICE_FATAL)" });

	setrlimit(RLIMIT_NOFILE, &limit);
	return rc;
}

/* ---- ports that go down and up ------------------------------------------------------------------ */

static bool port_is_down(spmt_comm *comm)
{
	struct rdma_peer *peer = comm->links[1].attached;
	bool down;

	pthread_mutex_lock(&peer->nic->lock);
	down = peer->nic->down;
	pthread_mutex_unlock(&peer->nic->lock);
	return down;
}

static void port_goes(spmt_comm *comm, uint32_t event)
{
	fake.tell(0, event);
	while (port_is_down(comm) != (event == VERBS_EVENT_PORT_ERR))
		sleep_ms(1);
}

/* The log has it, and moves go on until the device gives them up. */
static int goes_down(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	int log = memfd_create("log", MFD_CLOEXEC), before = dup(2);
	char said[4096] = "";

	(void)s;
	REQUIRE(log >= 0 && before >= 0 && dup2(log, 2) == 2);
	port_goes(comm, VERBS_EVENT_PORT_ERR);
	dup2(before, 2);
	close(before);
	REQUIRE(pread(log, said, sizeof(said) - 1, 0) > 0);
	close(log);
	if (!strstr(said, US " is down (IBV_EVENT_PORT_ERR)"))
		return ranks_fail("the log says '%s'", said);
	REQUIRE_OK(put_one(comm, word));
	return 0;
}

static int goes_down_and_up(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	(void)s;
	(void)word;
	port_goes(comm, VERBS_EVENT_PORT_ERR);
	port_goes(comm, VERBS_EVENT_PORT_ACTIVE);
	return 0;
}

static int is_down_unsaid(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	(void)s;
	(void)comm;
	(void)word;
	fake.port(0, 1);
	return 0;
}

static int ports(void)
{
	int rc;

	TRY(play(&(struct scene){ .begin = goes_down,
		.status = VERBS_WC_RETRY_EXC_ERR,
		.code = -ENETDOWN,
		.says = US " (down: IBV_EVENT_PORT_ERR) to fake1 port 2: " RETRIES }));
	TRY(play(&(struct scene){ .begin = goes_down_and_up,
		.status = VERBS_WC_RETRY_EXC_ERR,
		.code = SPMT_ERR_PEER_DEAD,
		.says = PLACES RETRIES }));
	rc = play(&(struct scene){ .begin = is_down_unsaid,
		.status = VERBS_WC_RETRY_EXC_ERR,
		.code = -ENETDOWN,
		.says = US " (down: not IBV_PORT_ACTIVE) to fake1 port 2: " RETRIES });
	fake.port(0, 0);
	return rc;
}

/* ---- keys --------------------------------------------------------------------------------------- */

static int wrong_key(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	struct rdma_peer *peer = comm->links[1].attached;

	(void)s;
	(void)word;
	peer->address.key ^= 1u << 30;
	return 0;
}

/* As above, of a signal, which the peer's thread does. */
static int wrong_key_asked(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	TRY(wrong_key(s, comm, word));
	REQUIRE_OK(spmt_signal(comm, word, 1, SPMT_SIGNAL_ADD, 1));
	REQUIRE_EQ(spmt_quiet(comm), -EFAULT);
	TRY(ends_so(spmt_last_error(), PLACES "the peer has no such memory"));
	return 0;
}

static int keys(void)
{
	TRY(play(&(struct scene){ .begin = wrong_key, .code = -EIO, .says = PLACES STATUS(10) }));
	return play(&(struct scene){
		.begin = wrong_key_asked, .code = -EIO, .says = PLACES STATUS(10) });
}

/* ---- what does not come ------------------------------------------------------------------------- */

static int held_up(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	(void)s;
	(void)word;
	REQUIRE_OK(spmt_set_timeout(comm, SHORT_MS));
	fake.hold(1);
	return 0;
}

static int lost(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	(void)s;
	(void)word;
	REQUIRE_OK(spmt_set_timeout(comm, SHORT_MS));
	fake.lose(LOST);
	return 0;
}

/* The peer's, before it was found out that it is another one; or what is none at all. */
static int lost_and_other(struct scene *s, spmt_comm *comm, uint64_t *word)
{
	uint32_t hello[34] = { 0x6c6c6568, 2 };

	TRY(lost(s, comm, word));
	fake.shout("no hello", 9);
	fake.shout(hello, sizeof(hello));
	return 0;
}

static int late(void)
{
#define NO_HELLO PLACES "no hello has come in answer within 0.3 s (SPMT_TIMEOUT_MS)"
	TRY(play(&(struct scene){
		.begin = lost, .strangers = true, .code = SPMT_ERR_TIMEOUT, .says = NO_HELLO }));
	TRY(play(&(struct scene){ .begin = lost_and_other,
		.strangers = true,
		.code = SPMT_ERR_TIMEOUT,
		.says = NO_HELLO
		"; refused since it was opened: 2, the last a hello of version 2, not 5" }));
	return 0;
}

/* The sentence of every mover's, and where it was behind it. */
static int late_moves(spmt_comm *comm, void *arg)
{
	uint64_t *word;
	int rc = 0;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	if (!spmt_rank(comm)) {
		REQUIRE_OK(put_one(comm, word));
		TRY(held_up(NULL, comm, word));
		rc = put_one(comm, word);
		fake.hold(0);
		REQUIRE_EQ(rc, SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("moves to rank 1 are not done after 0.3 s (SPMT_TIMEOUT_MS): " US
			     " to fake1 port 2");
		REQUIRE_OK(spmt_set_timeout(comm, 60000));
	}
	return spmt_barrier(comm);
}

static int late_in_flight(void)
{
	return ranks_run(RANKS, NULL, late_moves, NULL);
}

/* ---- the end that was called --------------------------------------------------------------------- */

/* It knows the other one by its hello alone. */
static int called_rank(spmt_comm *comm, void *arg)
{
	uint64_t *word, one = 1;
	int rc = 0;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	if (!spmt_rank(comm))
		REQUIRE_OK(put_one(comm, word));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm)) {
		fake.break_work(1, VERBS_WC_RETRY_EXC_ERR);
		rc = spmt_put(comm, word, &one, sizeof(one), 0);
		if (!rc)
			rc = spmt_quiet(comm);
		fake.break_work(0, 0);
		REQUIRE_EQ(rc, SPMT_ERR_PEER_DEAD);
		REQUIRE_SAYS("rank 1: ");
		REQUIRE_SAYS(" to rank 0: fake1 port 2 to fake0 port 2: " RETRIES);
	}
	return 0;
}

static int called(void)
{
	return ranks_run(RANKS, NULL, called_rank, NULL);
}

/* ---- fetches ------------------------------------------------------------------------------------ */

/* By the device, which is done when the post returns. */
static int fetch_rank(spmt_comm *comm, void *arg)
{
	uint64_t *word, one = 1, old = 7;
	int rc = 0;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	if (!spmt_rank(comm)) {
		REQUIRE_OK(put_one(comm, word));
		fake.break_work(1, VERBS_WC_REM_ACCESS_ERR);
		rc = spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, word, &one, NULL, &old, 1);
		fake.break_work(0, 0);
		REQUIRE_EQ(rc, -EIO);
		REQUIRE_EQ(old, 7);
		TRY(ends_so(spmt_last_error(), PLACES STATUS(10)));
	}
	return 0;
}

static int fetches(void)
{
	int rc;

	setenv("SPMT_FAKE_NIC_ATOMICS", "glob", 1);
	rc = ranks_run(RANKS, NULL, fetch_rank, NULL);
	fake.prompt(1);
	if (!rc)
		rc = ranks_run(RANKS, NULL, fetch_rank, NULL);
	fake.prompt(0);
	unsetenv("SPMT_FAKE_NIC_ATOMICS");
	return rc;
}

/* ---- in streams --------------------------------------------------------------------------------- */

static int put_in_stream(spmt_comm *comm, uint64_t *word)
{
	static const uint64_t one = 1;
	spmt_stream stream;
	int rc;

	REQUIRE_OK(put_one(comm, word));
	REQUIRE_OK(spmt_host_stream_create(comm, &stream));
	fake.break_work(1, VERBS_WC_RETRY_EXC_ERR);
	REQUIRE_OK(spmt_put_on_stream(comm, word, &one, sizeof(one), 1, stream));
	rc = spmt_host_stream_synchronize(stream);
	fake.break_work(0, 0);
	REQUIRE_EQ(rc, SPMT_ERR_PEER_DEAD);
	REQUIRE_SAYS("put to rank 1: " PLACES RETRIES);
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_PEER_DEAD);
	REQUIRE_SAYS("spmt_quiet: rank 0: put to rank 1: " PLACES RETRIES);
	REQUIRE_OK(spmt_host_stream_destroy(stream));
	return 0;
}

static int streams_rank(spmt_comm *comm, void *arg)
{
	uint64_t *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	if (!spmt_rank(comm))
		TRY(put_in_stream(comm, word));
	return 0;
}

static int streams(void)
{
	return ranks_run(RANKS, NULL, streams_rank, NULL);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "statuses of work requests", statuses },
		{ "events of queue pairs, queues and devices", events },
		{ "events where no descriptors are allowed", events_unpolled },
		{ "a port that is down, or was", ports },
		{ "wrong keys", keys },
		{ "hellos that do not come, and others that do", late },
		{ "moves that are late", late_in_flight },
		{ "the end that was called", called },
		{ "fetches by the device", fetches },
		{ "moves in streams", streams },
	};

	setenv("SPMT_LOG", "warn", 1);
	if (fake_nic(FAKES "/fake-verbs.so"))
		return 1;
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
