/* SPDX-License-Identifier: MIT */
/* Waits in kernels: every type and form; deadlines and aborts that return codes, leave a record,
   and a device that goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "kernels/waits.h"

enum { CMPS = SPMT_CMP_LE + 1, SHORT_MS = 50 };

struct scene {
	struct rank r;
	struct outcome *outcome;
	unsigned char *words; /* symmetric, 4 KiB */
	int64_t *code;	      /* symmetric, 2 words */
};

static int scene_open(struct scene *s, spmt_comm *comm)
{
	void *p;

	TRY(rank_open(&s->r, comm));
	TRY(outcome_open(&s->r, &s->outcome));
	REQUIRE_OK(spmt_calloc(comm, 4096, 1, &p));
	s->words = p;
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(int64_t), &p));
	s->code = p;
	return 0;
}

/* ---- every type and form --------------------------------------------------------------------- */

static size_t before_words(unsigned char *room, int type)
{
	for (int cmp = 0; cmp < CMPS; cmp++) {
		int before = waits_before(cmp, type);

		switch (type) {
#define X(name, T)                                                             \
	case TYPE_OF_##name: {                                                 \
		T value = (T)before;                                           \
                                                                               \
		memcpy(room + (size_t)cmp * sizeof(T), &value, sizeof(value)); \
		break;                                                         \
	}
			TYPES(X)
#undef X
		default:
			break;
		}
	}
	return CMPS * 8;
}

static int all_types(struct scene *s)
{
	for (int type = 0; type < TYPES_OF; type++) {
		struct waits_args a = { .view = s->r.view,
			.words = addr(s->words),
			.outcome = addr(s->outcome),
			.pe = s->r.next,
			.type = type };
		unsigned char room[CMPS * 8] = { 0 };
		char what[32];

		snprintf(what, sizeof(what), "waits of type %d", type);
		TRY(rank_write(&s->r, s->words, room, before_words(room, type)));
		REQUIRE_OK(spmt_barrier(s->r.comm));
		RANK_STEP(&s->r, test_waits, 2, 64, a);
		TRY(outcome_check(&s->r, s->outcome, what));
	}
	return 0;
}

static int waits(spmt_comm *comm, void *arg)
{
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm));
	TRY(all_types(&s));
	rank_close(&s.r);
	return 0;
}

static int run_waits(int n)
{
	return gpu_run(n, 4u << 20, waits, NULL);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static struct hold_args hold_of(const struct scene *s, int form, int scope)
{
	struct hold_args a = { .view = s->r.view,
		.word = addr(s->words),
		.value = 1,
		.code = addr(s->code),
		.scope = scope,
		.form = form };

	return a;
}

static unsigned threads_of(int form, int scope)
{
	bool meeting = form == HOLD_SYNC || form == HOLD_BARRIER;

	if (gpu_host() || !meeting || scope == BY_THREAD)
		return 1;
	return scope == BY_WARP ? 32 : 96;
}

/* Launches one wait, and says what every thread of it must have returned. */
static int hold(struct scene *s, int form, int scope, int want)
{
	struct hold_args a = hold_of(s, form, scope);
	int64_t seen[2];

	TRY(rank_fill(&s->r, s->code, 0, 16));
	RANK_LAUNCH(&s->r, test_hold, 1, 96, a);
	TRY(rank_sync(&s->r));
	TRY(rank_read(&s->r, seen, s->code, sizeof(seen)));
	if (seen[0] != want || seen[1] != (want ? (int64_t)threads_of(form, scope) : 0))
		return ranks_fail("wait %d, scope %d: code %lld, not %d; %lld threads failed", form,
			scope, (long long)seen[0], want, (long long)seen[1]);
	return 0;
}

static int timeout_ms(struct scene *s, int64_t ms)
{
	REQUIRE_OK(spmt_set_timeout(s->r.comm, ms));
	REQUIRE_OK(spmt_view_get(s->r.comm, &s->r.view));
	return 0;
}

/* The wait ends at its deadline; the record is read once, by a quiet that knows of the stream. */
static int hold_in_vain(struct scene *s, int form, int scope, const char *word)
{
	int64_t begin, took;

	TRY(timeout_ms(s, SHORT_MS));
	begin = now_ns();
	TRY(hold(s, form, scope, SPMTD_TIMEOUT));
	took = (now_ns() - begin) / 1000000;
	TRY(timeout_ms(s, 20000));
	if (took < SHORT_MS - 1 || took > 5000)
		return ranks_fail("wait %d, scope %d took %lld ms", form, scope, (long long)took);
	REQUIRE_OK(spmt_quiet_on_stream(s->r.comm, s->r.stream));
	REQUIRE_CODE(spmt_quiet(s->r.comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS(word);
	REQUIRE_OK(spmt_quiet(s->r.comm));
	REQUIRE_OK(spmt_status(s->r.comm));
	return 0;
}

/* A put by the host and kernels afterwards. */
static int healthy(struct scene *s)
{
	uint64_t sent = 0x1234567800 + (uint64_t)s->r.pe, seen = 0;

	REQUIRE_OK(spmt_put(s->r.comm, s->words + 2048, &sent, sizeof(sent), s->r.next));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	REQUIRE_OK(spmt_copy_out(s->r.comm, &seen, s->words + 2048, sizeof(seen)));
	REQUIRE_EQ(seen, 0x1234567800 + (uint64_t)s->r.prev);
	TRY(all_types(s));
	return rank_fill(&s->r, s->words, 0, 4096);
}

static int word_timeouts(spmt_comm *comm, void *arg)
{
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm));
	for (int form = HOLD_SIGNAL; form <= HOLD_ALL; form++) {
		TRY(hold_in_vain(&s, form, BY_THREAD, "expected 1, saw 0"));
		if (form == HOLD_SIGNAL || form == HOLD_ALL)
			TRY(healthy(&s));
	}
	REQUIRE_OK(spmt_barrier(comm));
	rank_close(&s.r);
	return 0;
}

static int run_word_timeouts(int n)
{
	return gpu_run(n, 4u << 20, word_timeouts, NULL);
}

/* What is set meanwhile is for waits to come, of the host and of views that are got from then on. */
static int view_deadline(spmt_comm *comm, void *arg)
{
	struct hold_args a;
	struct scene s;
	int64_t seen;

	(void)arg;
	TRY(scene_open(&s, comm));
	a = hold_of(&s, HOLD_SIGNAL, BY_THREAD);
	RANK_LAUNCH(&s.r, test_hold, 1, 96, a);
	REQUIRE_OK(spmt_set_timeout(comm, SHORT_MS));
	REQUIRE_CODE(spmt_signal_wait(comm, (uint64_t *)(void *)s.words, SPMT_CMP_EQ, 1, NULL),
		SPMT_ERR_TIMEOUT);
	sleep_ms(2 * SHORT_MS);
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE_EQ(s.r.b->stream_query(s.r.dev, s.r.stream), 0);
	REQUIRE_OK(spmt_signal(comm, (uint64_t *)(void *)s.words, 1, SPMT_SIGNAL_SET, s.r.pe));
	TRY(rank_sync(&s.r));
	TRY(rank_read(&s.r, &seen, s.code, sizeof(seen)));
	REQUIRE_EQ(seen, 0);
	REQUIRE_OK(spmt_barrier(comm));
	rank_close(&s.r);
	return 0;
}

static int run_view_deadline(int n)
{
	return gpu_run(n, 4u << 20, view_deadline, NULL);
}

/* Rank 0 comes alone and in vain; then all come, and the same meeting goes on. */
static int meeting_timeout(struct scene *s, int form, int scope)
{
	if (s->r.pe == 0)
		TRY(hold_in_vain(s, form, scope, "missing"));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	if (form != HOLD_HALVES)
		TRY(hold(s, form, scope, 0));
	else
		TRY(hold(s, s->r.pe ? HOLD_SYNC : HOLD_SECOND_HALF, scope, 0));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	return 0;
}

static int meeting_timeouts(spmt_comm *comm, void *arg)
{
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm));
	for (int scope = 0; scope < SCOPES; scope++) {
		TRY(meeting_timeout(&s, HOLD_SYNC, scope));
		TRY(meeting_timeout(&s, HOLD_BARRIER, scope));
	}
	TRY(meeting_timeout(&s, HOLD_HALVES, BY_THREAD));
	TRY(healthy(&s));
	REQUIRE_OK(spmt_barrier(comm));
	rank_close(&s.r);
	return 0;
}

static int run_meeting_timeouts(int n)
{
	return gpu_run(n, 4u << 20, meeting_timeouts, NULL);
}

/* ---- aborts ---------------------------------------------------------------------------------- */

struct held {
	int form, scope;
};

static bool meets(int form)
{
	return form == HOLD_SYNC || form == HOLD_BARRIER || form == HOLD_HALVES;
}

static int aborted(spmt_comm *comm, void *arg)
{
	const struct held *held = arg;
	struct scene s;
	struct hold_args a;
	int64_t seen[2] = { 0 }, begin;
	bool waits;

	TRY(scene_open(&s, comm));
	TRY(timeout_ms(&s, -1));
	a = hold_of(&s, held->form, held->scope);
	/* Of a meeting, one rank stays away. */
	waits = !meets(held->form) || s.r.pe != s.r.n - 1;
	if (waits)
		RANK_LAUNCH(&s.r, test_hold, 1, 96, a);
	REQUIRE_OK(spmt_barrier(comm));
	sleep_ms(20);
	if (s.r.pe == 0)
		spmt_abort(comm, 7);
	begin = now_ns();
	while (!spmt_status(comm) && now_ns() - begin < 5000000000)
		sleep_ms(1);
	TRY(rank_sync(&s.r));
	REQUIRE((now_ns() - begin) / 1000000 < 5000);
	TRY(rank_read(&s.r, seen, s.code, sizeof(seen)));
	if (waits &&
		(seen[0] != SPMTD_ABORTED ||
			seen[1] != (int64_t)threads_of(held->form, held->scope)))
		return ranks_fail("wait %d, scope %d: code %lld, not %d; %lld threads failed",
			held->form, held->scope, (long long)seen[0], SPMTD_ABORTED,
			(long long)seen[1]);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_ABORTED);
	REQUIRE(spmt_barrier(comm) < 0);
	rank_close(&s.r);
	return 0;
}

static int run_abort(int n, int form, int scope)
{
	struct held held = { form, scope };

	return gpu_run(n, 4u << 20, aborted, &held);
}

static int run_abort_waits(int n)
{
	int rc = 0;

	for (int form = HOLD_SIGNAL; form <= HOLD_ALL && !rc; form++)
		rc = run_abort(n, form, BY_THREAD);
	return rc ? rc : gpu_run(n, 4u << 20, waits, NULL);
}

static int run_abort_meetings(int n)
{
	int rc = run_abort(n, HOLD_HALVES, BY_THREAD);

	for (int scope = 0; scope < SCOPES && !rc; scope++) {
		rc = run_abort(n, HOLD_SYNC, scope);
		rc = rc ? rc : run_abort(n, HOLD_BARRIER, scope);
	}
	return rc ? rc : gpu_run(n, 4u << 20, waits, NULL);
}

/* ---- what a kernel asks of its view ---------------------------------------------------------- */

static int asks(spmt_comm *comm, void *arg)
{
	struct scene s;
	struct asks_args a;
	spmt_mem *mem;
	uint64_t words[2];

	(void)arg;
	TRY(scene_open(&s, comm));
	REQUIRE_OK(spmt_register(comm, s.words, 4096, &mem));
	a = (struct asks_args){ .view = s.r.view,
		.mem.size = sizeof(a.mem),
		.word = addr(s.words),
		.outcome = addr(s.outcome),
		.pe = s.r.pe,
		.npes = s.r.n };
	REQUIRE_OK(spmt_mem_view_get(comm, mem, &a.mem));
	words[0] = words[1] = 0x7700 + (uint64_t)s.r.pe;
	TRY(rank_write(&s.r, s.words, words, sizeof(words)));
	REQUIRE_OK(spmt_barrier(comm));
	RANK_STEP(&s.r, test_asks, 1, 64, a);
	TRY(outcome_check(&s.r, s.outcome, "what the view says"));
	REQUIRE_OK(spmt_deregister(comm, mem));
	rank_close(&s.r);
	return 0;
}

static int run_asks(int n)
{
	return gpu_run(n, 4u << 20, asks, NULL);
}

static const struct gpu_test tests[] = {
	{ "waits", run_waits, 1 },
	{ "timeouts_of_words", run_word_timeouts, 1 },
	{ "a_view_keeps_its_deadline", run_view_deadline, 1 },
	{ "timeouts_of_meetings", run_meeting_timeouts, 2 },
	{ "abort_ends_waits", run_abort_waits, 1 },
	{ "abort_ends_meetings", run_abort_meetings, 2 },
	{ "asks", run_asks, 1 },
};
static const struct test_kernel *const kernels[] = { &test_waits, &test_hold, &test_asks, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
