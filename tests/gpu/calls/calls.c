/* SPDX-License-Identifier: MIT */
#include "calls.h"

#include <stdatomic.h>

#include "spmt_device.h"

enum { SMALL = 1000, OUTSIDE = 4096 }; /* bytes */
/* Of `words`: what moves and streams signal with, an atomic's target, four that are waited for. */
enum { SIGNAL = 0, MEETING = 1, TARGET = 8, WAITED = 16, WORDS = 24 };

int calls_gave(const struct calls *c, const char *call, int code, int want)
{
	int rc = ranks_code(call, code, want);

	return rc || !c->after ? rc : c->after(c->state, call);
}

uint64_t calls_pattern(const struct calls *c, int pe)
{
	return c->turn * 64 + (uint64_t)pe;
}

int calls_settle(struct calls *c, spmt_stream s)
{
	if (s)
		REQUIRE_OK(stream_wait(c->r->comm, s));
	else
		CALL(spmt_quiet(c->r->comm));
	return 0;
}

int calls_open(struct calls *c)
{
	spmt_comm *comm = c->r->comm;
	void *p;

	CALL(spmt_malloc(comm, 3 * CALLS_LARGE, &p));
	c->block = p;
	CALL(spmt_calloc(comm, WORDS, 8, &p));
	c->words = p;
	TRY(rank_alloc(c->r, OUTSIDE, &c->outside));
	CALL(spmt_register(comm, c->outside, OUTSIDE, &c->mem));
	REQUIRE_OK(stream_make(comm, &c->streams[0]));
	return 0;
}

/* Freeing device memory may wait for the device: nobody has a kernel that waits any more. */
int calls_close(struct calls *c)
{
	spmt_comm *comm = c->r->comm;

	REQUIRE_OK(stream_end(comm, c->streams[0]));
	CALL(spmt_deregister(comm, c->mem));
	CALL(spmt_free(comm, c->words));
	CALL(spmt_free(comm, c->block));
	rank_free(c->r, c->outside);
	return 0;
}

/* ---- put and get ----------------------------------------------------------------------------- */

/* clang-format off */
enum form { PUT, PUT_NBI, PUT_STREAM, PUT_SIGNAL, PUT_SIGNAL_NBI, PUT_SIGNAL_STREAM, MEM_PUT, MEM_PUT_NBI, MEM_PUT_STREAM,
	GET, GET_NBI, GET_STREAM, MEM_GET, MEM_GET_NBI, MEM_GET_STREAM, FORMS };
/* clang-format on */

static bool is_put(enum form f)
{
	return f < GET;
}

static bool is_mem(enum form f)
{
	return (f >= MEM_PUT && f <= MEM_PUT_STREAM) || f >= MEM_GET;
}

static bool is_signal(enum form f)
{
	return f >= PUT_SIGNAL && f <= PUT_SIGNAL_STREAM;
}

static bool is_stream(enum form f)
{
	return f % 3 == PUT_STREAM;
}

/* n bytes to the next rank, or from it. */
static int issue(struct calls *c, enum form form, size_t n, spmt_stream s)
{
	const enum spmt_signal_op set = SPMT_SIGNAL_SET;
	unsigned char *from = c->block, *to = from + CALLS_LARGE, *into = to + CALLS_LARGE;
	uint64_t *sig = c->words + SIGNAL, v = c->turn;
	spmt_comm *comm = c->r->comm;
	int pe = c->r->next;

	switch (form) {
	case PUT:
		CALL(spmt_put(comm, to, from, n, pe));
		break;
	case PUT_NBI:
		CALL(spmt_put_nbi(comm, to, from, n, pe));
		break;
	case PUT_STREAM:
		CALL(spmt_put_on_stream(comm, to, from, n, pe, s));
		break;
	case PUT_SIGNAL:
		CALL(spmt_put_signal(comm, to, from, n, sig, v, set, pe));
		break;
	case PUT_SIGNAL_NBI:
		CALL(spmt_put_signal_nbi(comm, to, from, n, sig, v, set, pe));
		break;
	case PUT_SIGNAL_STREAM:
		CALL(spmt_put_signal_on_stream(comm, to, from, n, sig, v, set, pe, s));
		break;
	case MEM_PUT:
		CALL(spmt_mem_put(comm, c->mem, 8, from, n, pe));
		break;
	case MEM_PUT_NBI:
		CALL(spmt_mem_put_nbi(comm, c->mem, 8, from, n, pe));
		break;
	case MEM_PUT_STREAM:
		CALL(spmt_mem_put_on_stream(comm, c->mem, 8, from, n, pe, s));
		break;
	case GET:
		CALL(spmt_get(comm, into, from, n, pe));
		break;
	case GET_NBI:
		CALL(spmt_get_nbi(comm, into, from, n, pe));
		break;
	case GET_STREAM:
		CALL(spmt_get_on_stream(comm, into, from, n, pe, s));
		break;
	case MEM_GET:
		CALL(spmt_mem_get(comm, into, c->mem, 8, n, pe));
		break;
	case MEM_GET_NBI:
		CALL(spmt_mem_get_nbi(comm, into, c->mem, 8, n, pe));
		break;
	default:
		CALL(spmt_mem_get_on_stream(comm, into, c->mem, 8, n, pe, s));
		break;
	}
	return 0;
}

static int move(struct calls *c, enum form form, size_t n, spmt_stream s)
{
	unsigned char *from = c->block, *to = from + CALLS_LARGE, *into = to + CALLS_LARGE;
	spmt_comm *comm = c->r->comm;

	c->turn++;
	TRY(sym_fill(comm, from, n, calls_pattern(c, c->r->pe)));
	if (is_mem(form) && !is_put(form))
		CALL(spmt_mem_put(comm, c->mem, 8, from, n, c->r->pe));
	CALL(spmt_barrier(comm));
	TRY(issue(c, form, n, s));
	if (is_signal(form)) {
		CALL(spmt_signal_wait(comm, c->words + SIGNAL, SPMT_CMP_EQ, c->turn, NULL));
		TRY(sym_check(comm, to, n, calls_pattern(c, c->r->prev)));
	}
	TRY(calls_settle(c, s));
	CALL(spmt_barrier(comm));
	if (!is_put(form))
		return sym_check(comm, into, n, calls_pattern(c, c->r->next));
	if (is_mem(form))
		CALL(spmt_mem_get(comm, to, c->mem, 8, n, c->r->pe));
	return sym_check(comm, to, n, calls_pattern(c, c->r->prev));
}

/* Those in streams in both; in some sizes copy engines move it. */
static int moves(struct calls *c)
{
	for (enum form f = PUT; f < FORMS; f++)
		for (int s = is_stream(f) ? 0 : 1; s < 2; s++)
			TRY(move(c, f, SMALL, c->streams[s]));
	TRY(move(c, PUT_NBI, CALLS_LARGE, NULL));
	TRY(move(c, GET_NBI, CALLS_LARGE, NULL));
	TRY(move(c, PUT_SIGNAL_STREAM, CALLS_LARGE, c->streams[0]));
	return 0;
}

/* The CPU's memory: taken apart there, and put together again on the way back. */
static int strides(struct calls *c)
{
	enum { N = 60, HALF = N / 2 };
	spmt_comm *comm = c->r->comm;
	uint64_t own[N], back[N] = { 0 }, *to = (uint64_t *)(void *)(c->block + CALLS_LARGE);

	c->turn++;
	pattern_fill(own, sizeof(own), calls_pattern(c, c->r->pe));
	CALL(spmt_barrier(comm));
	CALL(spmt_iput(comm, to, own, 1, 2, HALF, 8, c->r->next));
	CALL(spmt_iput(comm, to + HALF, own + 1, 1, 2, HALF, 8, c->r->next));
	CALL(spmt_fence(comm));
	CALL(spmt_barrier(comm));
	CALL(spmt_copy_out(comm, back, to, sizeof(back)));
	REQUIRE(back[1] != back[HALF]);
	CALL(spmt_iget(comm, back, to, 2, 1, HALF, 8, c->r->next));
	CALL(spmt_iget(comm, back + 1, to + HALF, 2, 1, HALF, 8, c->r->next));
	REQUIRE(!memcmp(back, own, sizeof(own)));
	CALL(spmt_barrier(comm));
	CALL(spmt_copy_in(comm, to, own, sizeof(own)));
	CALL(spmt_sync(comm));
	CALL(spmt_get(comm, back, to, sizeof(back), c->r->next));
	REQUIRE_EQ(pattern_differs(back, sizeof(back), calls_pattern(c, c->r->next)), SIZE_MAX);
	CALL(spmt_put(comm, to + N, own, sizeof(own), c->r->next));
	CALL(spmt_barrier(comm));
	return sym_check(comm, to + N, sizeof(own), calls_pattern(c, c->r->prev));
}

/* ---- signals, atomics, waits ----------------------------------------------------------------- */

static int signals(struct calls *c)
{
	uint64_t *sig = c->words + SIGNAL, v = ++c->turn, seen = 0;
	spmt_comm *comm = c->r->comm;

	CALL(spmt_barrier(comm));
	CALL(spmt_signal(comm, sig, v, SPMT_SIGNAL_SET, c->r->next));
	CALL(spmt_signal_wait(comm, sig, SPMT_CMP_EQ, v, &seen));
	REQUIRE_EQ(seen, v);
	CALL(spmt_barrier(comm));
	CALL(spmt_signal(comm, sig, 1, SPMT_SIGNAL_ADD, c->r->next));
	CALL(spmt_signal_wait(comm, sig, SPMT_CMP_NE, v, NULL));
	CALL(spmt_signal_fetch(comm, sig, &seen));
	REQUIRE_EQ(seen, ++c->turn);
	return 0;
}

/* One after the other on a word that nobody else touches: what is there, and what comes of it. */
static int atomics(struct calls *c)
{
	static const struct {
		enum spmt_amo amo;
		bool fetches;
		uint64_t operand, was, is;
	} rows[] = { { SPMT_AMO_SET, false, 6, 0, 6 }, { SPMT_AMO_INC, false, 0, 6, 7 },
		{ SPMT_AMO_ADD, false, 8, 7, 15 }, { SPMT_AMO_AND, false, 10, 15, 10 },
		{ SPMT_AMO_OR, false, 5, 10, 15 }, { SPMT_AMO_XOR, false, 9, 15, 6 },
		{ SPMT_AMO_FETCH_INC, true, 0, 6, 7 }, { SPMT_AMO_FETCH_ADD, true, 8, 7, 15 },
		{ SPMT_AMO_FETCH_AND, true, 10, 15, 10 }, { SPMT_AMO_FETCH_OR, true, 5, 10, 15 },
		{ SPMT_AMO_FETCH_XOR, true, 9, 15, 6 }, { SPMT_AMO_SWAP, true, 4, 6, 4 },
		{ SPMT_AMO_COMPARE_SWAP, true, 1, 4, 1 }, { SPMT_AMO_FETCH, true, 0, 1, 1 } };
	uint64_t *target = c->words + TARGET, *counter = target + 1, seen, one = 1;
	spmt_comm *comm = c->r->comm;
	int pe = c->r->next;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		CALL(spmt_atomic(comm, rows[i].amo, SPMT_TYPE_U64, target, &rows[i].operand,
			&rows[i].was, &seen, pe));
		REQUIRE(!rows[i].fetches || seen == rows[i].was);
		CALL(spmt_get(comm, &seen, target, 8, pe));
		REQUIRE_EQ(seen, rows[i].is);
	}
	CALL(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, counter, &one, NULL, NULL, 0));
	CALL(spmt_barrier(comm));
	CALL(spmt_get(comm, &seen, counter, 8, 0));
	REQUIRE_EQ(seen % (uint64_t)c->r->n, 0);
	return 0;
}

/* Four words, from the previous rank; `status` leaves out some. */
static int waits(struct calls *c)
{
	const int third[] = { 1, 1, 0, 1 }, middle[] = { 1, 0, 0, 1 };
	const enum spmt_type type = SPMT_TYPE_U64;
	uint64_t *w = c->words + WAITED, v = c->turn + 1, more = v + 4;
	size_t at = 0, found = 0, several[4] = { 0 };
	spmt_comm *comm = c->r->comm;
	int yes = -1, no = -1;

	c->turn += 4;
	CALL(spmt_barrier(comm));
	for (uint64_t i = 0; i < 4; i++)
		CALL(spmt_signal(comm, w + i, v + i, SPMT_SIGNAL_SET, c->r->next));
	CALL(spmt_wait_until(comm, type, w, SPMT_CMP_EQ, &v));
	CALL(spmt_wait_until_any(comm, type, w, 4, third, SPMT_CMP_GT, &v, &at));
	REQUIRE_EQ(at, 2);
	CALL(spmt_wait_until_all(comm, type, w, 4, NULL, SPMT_CMP_GE, &v));
	CALL(spmt_wait_until_some(comm, type, w, 4, middle, SPMT_CMP_GT, &v, several, &found));
	REQUIRE(found == 2 && several[0] == 1 && several[1] == 2);
	CALL(spmt_test(comm, type, w + 3, SPMT_CMP_GT, &v, &yes));
	CALL(spmt_test(comm, type, w, SPMT_CMP_GT, &v, &no));
	REQUIRE(yes == 1 && no == 0);
	CALL(spmt_test_any(comm, type, w, 4, NULL, SPMT_CMP_GE, &more, &at));
	REQUIRE_EQ(at, SIZE_MAX);
	CALL(spmt_test_any(comm, type, w, 4, third, SPMT_CMP_GE, &v, &at));
	REQUIRE_EQ(at, 2);
	CALL(spmt_test_some(comm, type, w, 4, third, SPMT_CMP_GE, &v, several, &found));
	REQUIRE(found == 1 && several[0] == 2);
	CALL(spmt_test_all(comm, type, w, 4, NULL, SPMT_CMP_GE, &v, &yes));
	CALL(spmt_test_all(comm, type, w, 4, NULL, SPMT_CMP_LT, &v, &no));
	REQUIRE(yes == 1 && no == 0);
	CALL(spmt_barrier(comm));
	return 0;
}

/* ---- in streams ------------------------------------------------------------------------------ */

/*
 * Bytes put in another stream are there when this one has come past its quiet, which the signal tells the next rank's
 * stream; and after the barrier what was put before it is there without a wait.
 */
static int in_stream(struct calls *c, spmt_stream s, spmt_stream other)
{
	unsigned char *from = c->block, *to = from + CALLS_LARGE, *into = to + CALLS_LARGE;
	uint64_t *sig = c->words + SIGNAL, *meeting = c->words + MEETING, v = ++c->turn, seen = 0;
	spmt_comm *comm = c->r->comm;
	int next = c->r->next, me = c->r->pe;

	TRY(sym_fill(comm, from, CALLS_LARGE, calls_pattern(c, me)));
	CALL(spmt_barrier(comm));
	CALL(spmt_put_on_stream(comm, to, from, CALLS_LARGE, next, other));
	CALL(spmt_quiet_on_stream(comm, s));
	CALL(spmt_signal_on_stream(comm, sig, v, SPMT_SIGNAL_SET, next, s));
	CALL(spmt_signal_wait_on_stream(comm, sig, SPMT_CMP_EQ, v, s));
	CALL(spmt_get_on_stream(comm, into, to, CALLS_LARGE, me, s));
	CALL(spmt_put_on_stream(comm, meeting, sig, 8, next, s));
	CALL(spmt_barrier_on_stream(comm, s));
	CALL(spmt_get_on_stream(comm, from, meeting, 8, me, s));
	TRY(calls_settle(c, s));
	TRY(sym_check(comm, into, CALLS_LARGE, calls_pattern(c, c->r->prev)));
	CALL(spmt_copy_out(comm, &seen, from, 8));
	REQUIRE_EQ(seen, v);
	return 0;
}

/* ---- what a comm says, and the rest ---------------------------------------------------------- */

static int asks(struct calls *c)
{
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats = { .size = sizeof(stats) }, later = stats;
	struct spmt_view view = { .size = sizeof(view) };
	struct spmt_channel_attr attr = {
		.size = sizeof(attr), .peer = c->r->next, .remote = c->block, .remote_size = 64
	};
	struct spmt_channel channel = { .size = sizeof(channel) };
	struct spmt_port port = { .size = sizeof(port) };
	struct spmt_switch sw = { .size = sizeof(sw) };
	int pe = c->r->pe, next = c->r->next;
	spmt_comm *comm = c->r->comm;
	struct spmt_guard guard;
	int64_t value;

	TRUE(spmt_rank(comm) == pe);
	TRUE(spmt_nranks(comm) == c->r->n);
	TRUE(spmt_device(comm) == c->r->dev);
	TRUE(!strcmp(spmt_backend(comm), c->r->b->name));
	TRUE(spmt_ptr(comm, c->block, pe) == c->block);
	CALL(spmt_status(comm));
	CALL(spmt_route(comm, next, &route));
	REQUIRE(!strcmp(route.map, pe == next ? "self" : "p2p"));
	CALL(spmt_view_get(comm, &view));
	REQUIRE(view.pe == pe && view.npes == c->r->n);
	CALL(spmt_channel_get(comm, &attr, &channel));
	REQUIRE(channel.pe == pe && channel.peer == next && channel.local == addr(c->block));
	REQUIRE(channel.remote == addr(spmt_ptr(comm, c->block, next)));
	CALL(spmt_port_get(comm, &attr, &port));
	REQUIRE(port.pe == pe && port.peer == next && port.remote_size == 64);
	CALL(spmt_switch_get(comm, c->block, 64, NULL, &sw));
	REQUIRE(sw.pe == pe && sw.npes == c->r->n && sw.bytes == 64);
	for (int cap = SPMT_CAP_VMM; cap <= SPMT_CAP_CHANNELS; cap++)
		CALL(spmt_query(comm, (enum spmt_cap)cap, &value));
	REQUIRE(value >= 8); /* channels */
	CALL(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &value));
	REQUIRE(value >= 3 * CALLS_LARGE);
	CALL(spmt_stats(comm, -1, &stats));
	CALL(spmt_put(comm, c->block, c->block + CALLS_LARGE, 100, next));
	CALL(spmt_stats(comm, -1, &later));
	REQUIRE(later.ops > stats.ops && later.bytes >= stats.bytes + 100);
	CALL(spmt_set_timeout(comm, 12345));
	CALL(spmt_view_get(comm, &view));
	REQUIRE_EQ(view.timeout_ns, 12345000000);
	CALL(spmt_set_timeout(comm, 0));
	spmt_guard_enter(comm, &guard);
	REQUIRE_EQ(driver_current(), c->r->dev);
	spmt_guard_leave(&guard);
	return calls_gave(c, "spmt_guard_leave", 0, 0);
}

static int one_of_each(spmt_comm *comm, void *arg)
{
	*(int *)arg = spmt_rank(comm);
	return spmt_barrier(comm);
}

static void note(void *args)
{
	atomic_store(*(_Atomic int **)args, 1);
}

static void completed(void *arg, int code)
{
	atomic_store((_Atomic int *)arg, code ? code : 1);
}

static int others(struct calls *c)
{
	_Atomic int noted = 0, *at = &noted;
	spmt_comm *comm = c->r->comm, *lane;
	spmt_stream made;
	int seen = -1, want = c->r->b == &backend_host ? 0 : SPMT_ERR_UNSUPPORTED;

	CALL(spmt_each(1, &comm, one_of_each, &seen));
	REQUIRE_EQ(seen, c->r->pe);
	CALL(spmt_each_abort(1, &comm, one_of_each, &seen));
	CALL(spmt_on_complete(comm, c->streams[0], completed, &noted));
	TRY(calls_settle(c, c->streams[0]));
	REQUIRE_EQ(atomic_exchange(&noted, 0), 1);
	CALL(spmt_stream_register(comm, c->streams[0]));
	CALL(spmt_barrier_on_stream(comm, c->streams[0]));
	CALL(spmt_stream_deregister(comm, c->streams[0]));
	CALL(spmt_quiet(comm));
	CALL(spmt_lane(comm, 7, &lane));
	GIVES(want, spmt_host_launch(comm, c->streams[0], note, &at, sizeof(at)));
	GIVES(want, spmt_host_stream_create(comm, &made));
	TRY(calls_settle(c, c->streams[0]));
	if (want)
		return 0;
	REQUIRE_EQ(atomic_load(&noted), 1);
	CALL(spmt_host_stream_synchronize(made));
	CALL(spmt_host_stream_destroy(made));
	return 0;
}

int calls_all(struct calls *c, uint64_t seed)
{
	c->turn = MAX_OF(c->turn, seed << 12);
	TRY(moves(c));
	TRY(strides(c));
	TRY(signals(c));
	TRY(atomics(c));
	TRY(waits(c));
	for (int s = 0; s < 2; s++)
		TRY(in_stream(c, c->streams[s], c->streams[!s]));
	TRY(calls_together(c));
	TRY(asks(c));
	return others(c);
}
