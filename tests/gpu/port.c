/* SPDX-License-Identifier: MIT */
/* Ports, by which kernels have the host move and signal, across GPUs or among ranks that share one (-n 2 where there is one). What a signal takes
   is told. */
#include <stdio.h>
#include <stdlib.h>

#include "gpu.h"
#include "kernels/ports.h"
#include "spmt_channel.h"

/* ---- buffers ---------------------------------------------------------------------------------- */

enum buffers_of { OF_THE_HEAP, SENT_FROM_ELSEWHERE, REGISTERED, BUFFERS };
static const char *const buffers_names[BUFFERS] = { "of the heap", "sent from elsewhere",
	"registered" };

/* What is sent from, and where it comes; one of its own is not symmetric. */
struct buffers {
	void *local, *remote;
	size_t size;
	spmt_mem *mem; /* NULL: remote is symmetric */
};

static int own_memory(struct rank *r, size_t size, void **ptr)
{
	TRY(rank_alloc(r, size, ptr));
	return rank_fill(r, *ptr, 0, size);
}

static int buffers_open(struct rank *r, enum buffers_of of, size_t size, struct buffers *b)
{
	*b = (struct buffers){ .size = size };
	if (of == REGISTERED) {
		TRY(own_memory(r, size, &b->remote));
		REQUIRE_OK(spmt_register(r->comm, b->remote, size, &b->mem));
	} else {
		REQUIRE_OK(spmt_calloc(r->comm, 1, size, &b->remote));
	}
	b->local = b->remote;
	if (of == SENT_FROM_ELSEWHERE)
		TRY(own_memory(r, size, &b->local));
	return 0;
}

static int buffers_close(struct rank *r, struct buffers *b)
{
	if (b->local != b->remote)
		rank_free(r, b->local);
	if (!b->mem) {
		REQUIRE_OK(spmt_free(r->comm, b->remote));
		return 0;
	}
	REQUIRE_OK(spmt_deregister(r->comm, b->mem));
	rank_free(r, b->remote);
	return 0;
}

/* The link between a rank and the next has one of two indices in turn, as with two ranks both are to one peer. */
static int port_get(struct rank *r, const struct buffers *b, unsigned worker, int first, int peer,
	struct spmt_port *port)
{
	struct spmt_channel_attr attr = {
		.size = sizeof(attr), .peer = peer, .index = (int)(2 * worker) + first % 2
	};

	if (b->mem) {
		attr.mem = b->mem;
	} else {
		attr.remote = b->remote;
		attr.remote_size = b->size;
	}
	if (b->local != b->remote) {
		attr.local = b->local;
		attr.local_size = b->size;
	}
	port->size = sizeof(*port);
	REQUIRE_OK(spmt_port_get(r->comm, &attr, port));
	return 0;
}

static int ports_of_worker(struct rank *r, const struct buffers *b, unsigned worker,
	struct spmt_port *next, struct spmt_port *prev)
{
	TRY(port_get(r, b, worker, r->pe, r->next, next));
	return port_get(r, b, worker, r->prev, r->prev, prev);
}

/* ---- round a ring ----------------------------------------------------------------------------- */

/* A post is a copy of the driver's: some 10 us of the one thread that serves all ranks. */
static const struct load loads[] = {
	{ BY_THREAD, 1, 1, 1, 500, 60 },
	{ BY_THREAD, 1, 32, 9, 30, 30 },
	{ BY_WARP, 2, 128, 33, 100, 30 },
	{ BY_BLOCK, 1, 512, 20000, 60, 15 },
	{ BY_BLOCK, 8, 256, 1000, 60, 15 },
};

/* Words as the host reads them, or each half of one in a packet with its flag. */
struct found {
	const uint64_t *words;
	bool packets;
	int pe; /* whose they are to be */
	const char *what;
};

static int found_check(
	const struct rank *r, const struct found *f, uint64_t round, const struct load *l)
{
	for (uint64_t i = 0; i < l->words * (f->packets ? 2 : 1); i++) {
		uint64_t want = ports_word(round, f->pe, f->packets ? i / 2 : i);

		if (f->packets)
			want = (i % 2 ? want >> 32 : want & 0xffffffff) | round << 32;
		if (f->words[i] != want)
			return ranks_fail(
				"rank %d, round %llu by a %s: %s, word %llu of rank %d is %#llx, not %#llx",
				r->pe, (unsigned long long)round, scope_names[l->scope], f->what,
				(unsigned long long)i, f->pe, (unsigned long long)f->words[i],
				(unsigned long long)want);
	}
	return 0;
}

/* What the last round has left. */
static int places_check(struct rank *r, const struct load *l, uint64_t round, const uint64_t *local,
	const uint64_t *remote)
{
	int before = (r->pe + 2 * r->n - 2) % r->n;

	for (unsigned w = 0; w < workers_of(l); w++) {
		uint64_t at = w * PORTS_PARTS * l->words, unit = l->words;
		const struct found found[] = {
			{ remote + at + PORTS_CAME * unit, false, r->prev, "a put" },
			{ local + at + PORTS_VIA * unit, true, r->pe, "packets" },
			{ remote + at + PORTS_FIRST * unit, true, r->prev, "packets that came" },
			{ remote + at + PORTS_SECOND * unit, true, before, "packets sent on" },
			{ local + at + PORTS_GOT_FIRST * unit, false, r->prev, "packets' words" },
			{ local + at + PORTS_GOT_SECOND * unit, false, before, "words sent on" },
		};

		for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++)
			TRY(found_check(r, &found[i], round, l));
	}
	return 0;
}

static int places_read(
	struct rank *r, const struct load *l, uint64_t round, const struct buffers *b)
{
	uint64_t *local = malloc(b->size), *remote = malloc(b->size);
	int rc = local && remote ? 0 : ranks_fail("out of memory");

	if (!rc)
		rc = rank_read(r, local, b->local, b->size);
	if (!rc)
		rc = rank_read(r, remote, b->remote, b->size);
	if (!rc)
		rc = places_check(r, l, round, local, remote);
	free(local);
	free(remote);
	return rc;
}

static int ports_run(
	struct rank *r, const struct load *l, enum buffers_of of, struct outcome *outcome)
{
	struct ports_args a = { .view = r->view,
		.outcome = addr(outcome),
		.words = l->words,
		.rounds = gpu_number(l->rounds, l->fewer),
		.scope = (int)l->scope };
	struct spmt_port ports[2 * PORTS_WORKERS];
	struct buffers b;
	void *table;
	char what[96];

	REQUIRE(workers_of(l) <= PORTS_WORKERS);
	TRY(buffers_open(r, of, workers_of(l) * PORTS_PARTS * 8 * l->words, &b));
	REQUIRE_OK(spmt_malloc(r->comm, sizeof(ports), &table));
	for (unsigned w = 0; w < workers_of(l); w++)
		TRY(ports_of_worker(r, &b, w, &ports[2 * w], &ports[2 * w + 1]));
	TRY(rank_write(r, table, ports, sizeof(ports[0]) * 2 * workers_of(l)));
	REQUIRE_OK(spmt_barrier(r->comm)); /* all buffers are zeroed */
	a.local = addr(b.local);
	a.remote = addr(b.remote);
	a.ports = addr(table);
	snprintf(what, sizeof(what), "ports of %u x a %s, %llu words, %s", workers_of(l),
		scope_names[l->scope], (unsigned long long)l->words, buffers_names[of]);
	for (; a.done < 2 * a.rounds; a.done += a.rounds) {
		RANK_STEP(r, test_ports, l->grid, l->block, a);
		TRY(outcome_check(r, outcome, what));
		TRY(places_read(r, l, a.done + a.rounds, &b));
		REQUIRE_OK(spmt_barrier(r->comm)); /* before the others' next launch */
	}
	REQUIRE_OK(spmt_free(r->comm, table));
	return buffers_close(r, &b);
}

static int ports(spmt_comm *comm, void *arg)
{
	const enum buffers_of *of = arg;
	struct outcome *outcome;
	struct rank r;

	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		TRY(ports_run(&r, &loads[i], *of, outcome));
	rank_close(&r);
	return 0;
}

static int run_ports_of(int n, enum buffers_of of)
{
	return gpu_run(n, 16u << 20, ports, &of);
}

static int run_ports_heap(int n)
{
	return run_ports_of(n, OF_THE_HEAP);
}

static int run_ports_elsewhere(int n)
{
	return run_ports_of(n, SENT_FROM_ELSEWHERE);
}

static int run_ports_registered(int n)
{
	return run_ports_of(n, REGISTERED);
}

/* ---- more posts than the ring has places ------------------------------------------------------ */

/* Each word is two posts, and the ring has 512 places. */
enum { FLOOD_WORDS = 2048, FLOOD_THREADS = 256 };

static int flood_run(struct rank *r, struct flood_args *a, struct outcome *outcome, uint64_t *full)
{
	uint64_t came[FLOOD_WORDS];
	char what[64];

	snprintf(what, sizeof(what), "signals and puts of %d threads, waited for by a %s",
		gpu_host() ? 1 : FLOOD_THREADS, scope_names[a->scope]);
	RANK_STEP(r, test_flood, 1, FLOOD_THREADS, *a);
	TRY(outcome_check(r, outcome, what));
	TRY(rank_read(r, came, (void *)(uintptr_t)a->came, sizeof(came)));
	for (uint64_t i = 0; i < FLOOD_WORDS; i++)
		if (came[i] != ports_word(a->round, r->prev, i))
			return ranks_fail("%s: rank %d's word %llu is %#llx", what, r->prev,
				(unsigned long long)i, (unsigned long long)came[i]);
	TRY(rank_read(r, full, (void *)(uintptr_t)a->full, sizeof(*full)));
	REQUIRE_OK(spmt_barrier(r->comm));
	return 0;
}

static int flood(spmt_comm *comm, void *arg)
{
	struct flood_args a = { .words = FLOOD_WORDS, .round = 1 };
	struct buffers b;
	struct outcome *outcome;
	uint64_t found = 0;
	void *full;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(uint64_t), &full));
	TRY(buffers_open(&r, SENT_FROM_ELSEWHERE, FLOOD_WORDS * 8, &b));
	for (unsigned p = 0; p < FLOOD_PORTS; p++)
		TRY(ports_of_worker(&r, &b, p, &a.next[p], &a.prev[p]));
	a.view = r.view;
	a.own = addr(b.local);
	a.came = addr(b.remote);
	a.outcome = addr(outcome);
	a.full = addr(full);
	/* a kernel that waits may hold up what others still ask of their device */
	REQUIRE_OK(spmt_barrier(comm));
	for (a.scope = 0; a.scope < SCOPES; a.scope++, a.round++)
		TRY(flood_run(&r, &a, outcome, &found));
	if (r.pe == 0)
		printf("# %llu of %d posts found the ring full\n", (unsigned long long)found,
			SCOPES * FLOOD_WORDS);
	REQUIRE(gpu_host() || found);
	TRY(buffers_close(&r, &b));
	rank_close(&r);
	return 0;
}

static int run_flood_full(int n)
{
	return gpu_run(n, 4u << 20, flood, NULL);
}

/* ---- what a signal takes ---------------------------------------------------------------------- */

static int pingpong(spmt_comm *comm, void *arg)
{
	static const uint64_t bytes[] = { 0, 8 };
	struct port_pingpong_args a = { .rounds = gpu_number(5000, 200) };
	struct outcome *outcome;
	struct buffers b;
	struct rank r;

	(void)arg;
	TRY(rank_open(&r, comm));
	TRY(outcome_open(&r, &outcome));
	TRY(buffers_open(&r, OF_THE_HEAP, 64, &b));
	a.view = r.view;
	a.outcome = addr(outcome);
	if (r.pe < 2)
		TRY(port_get(&r, &b, 0, 0, 1 - r.pe, &a.other));
	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
		int64_t begin;

		a.bytes = bytes[i];
		REQUIRE_OK(spmt_barrier(comm));
		begin = now_ns();
		if (r.pe < 2)
			RANK_LAUNCH(&r, test_port_pingpong, 1, 1, a);
		TRY(rank_sync(&r));
		if (r.pe == 0)
			printf("# a port's %s one way: %.2f us\n",
				a.bytes ? "8 bytes and a signal" : "signal",
				(double)(now_ns() - begin) / 2e3 / (double)a.rounds);
		TRY(outcome_check(&r, outcome, "signals there and back"));
	}
	TRY(buffers_close(&r, &b));
	rank_close(&r);
	return 0;
}

static int run_pingpong_pair(int n)
{
	return gpu_run(n, 4u << 20, pingpong, NULL);
}

/* ---- calls one by one ------------------------------------------------------------------------- */

enum { CALL_WORDS = 33, SHORT_MS = 100 };

struct calls {
	struct rank r;
	struct buffers b;
	struct outcome *outcome;
	struct spmt_port next, prev;
	void *data; /* CALL_WORDS of the device */
};

static int calls_open(struct calls *c, spmt_comm *comm)
{
	TRY(rank_open(&c->r, comm));
	TRY(outcome_open(&c->r, &c->outcome));
	TRY(buffers_open(&c->r, OF_THE_HEAP, 4096, &c->b));
	TRY(own_memory(&c->r, CALL_WORDS * 8, &c->data));
	TRY(ports_of_worker(&c->r, &c->b, 0, &c->next, &c->prev));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int calls_close(struct calls *c)
{
	rank_free(&c->r, c->data);
	TRY(buffers_close(&c->r, &c->b));
	rank_close(&c->r);
	return 0;
}

static struct port_call_args call_of(const struct calls *c, int kind, int scope)
{
	struct port_call_args a = { .view = c->r.view,
		.port = kind >= CALL_SIGNAL ? c->next : c->prev,
		.data = addr(c->data),
		.outcome = addr(c->outcome),
		.size = CALL_WORDS * 8,
		.kind = kind,
		.scope = scope };

	return a;
}

static int call_once(struct calls *c, const struct port_call_args *a)
{
	char what[64];

	RANK_LAUNCH(&c->r, test_port_call, 1, 96, *a);
	TRY(rank_sync(&c->r));
	snprintf(what, sizeof(what), "call %d by a %s, which is to return %d", a->kind,
		scope_names[a->scope], a->want);
	return outcome_check(&c->r, c->outcome, what);
}

static int timeout_ms(struct calls *c, int64_t ms)
{
	REQUIRE_OK(spmt_set_timeout(c->r.comm, ms));
	REQUIRE_OK(spmt_view_get(c->r.comm, &c->r.view));
	return 0;
}

/* It ends at the deadline, and a quiet that knows of the stream tells, once. */
static int call_in_vain(struct calls *c, int kind, int scope, uint32_t flag)
{
	struct port_call_args a;
	int64_t begin, took;
	char says[64];

	TRY(timeout_ms(c, SHORT_MS));
	a = call_of(c, kind, scope);
	TRY(timeout_ms(c, 20000));
	a.want = SPMTD_TIMEOUT;
	a.flag = flag;
	if (kind == CALL_WAIT)
		snprintf(says, sizeof(says), "signal %d of rank %d's", 1 + 2 * scope, c->r.prev);
	else
		snprintf(says, sizeof(says), "expected %u, saw %u", flag, flag > 1 ? flag - 1 : 0);
	begin = now_ns();
	TRY(call_once(c, &a));
	took = (now_ns() - begin) / 1000000;
	if (took < SHORT_MS - 1 || took > 5000)
		return ranks_fail(
			"call %d by a %s took %lld ms", kind, scope_names[scope], (long long)took);
	REQUIRE_OK(spmt_quiet_on_stream(c->r.comm, c->r.stream));
	REQUIRE_CODE(spmt_quiet(c->r.comm), SPMT_ERR_TIMEOUT);
	REQUIRE_SAYS(says);
	REQUIRE_OK(spmt_status(c->r.comm));
	return 0;
}

static int call_ok(struct calls *c, int kind, int scope, int want)
{
	struct port_call_args a = call_of(c, kind, scope);

	a.want = want;
	return call_once(c, &a);
}

/* Signals that come late are those that were waited for. */
static int late_signals(struct calls *c, int scope)
{
	if (c->r.pe == 0) {
		TRY(call_in_vain(c, CALL_WAIT, scope, 0));
		TRY(call_ok(c, CALL_POLL, scope, 0));
	}
	REQUIRE_OK(spmt_barrier(c->r.comm));
	if (c->r.next == 0)
		for (int i = 0; i < 2; i++)
			TRY(call_ok(c, CALL_SIGNAL, scope, 0));
	REQUIRE_OK(spmt_barrier(c->r.comm));
	if (c->r.pe == 0) {
		TRY(call_ok(c, CALL_POLL, scope, 1));
		TRY(call_ok(c, CALL_WAIT, scope, 0));
		TRY(call_ok(c, CALL_POLL, scope, 0));
	}
	REQUIRE_OK(spmt_barrier(c->r.comm));
	return 0;
}

/* What is sent; and, once it is here, what came of it. */
static int late_words(struct calls *c, uint64_t flag, bool sent)
{
	uint64_t words[CALL_WORDS];
	int sender = c->r.n - 1;

	for (uint64_t i = 0; i < CALL_WORDS; i++)
		words[i] = ports_word(flag, sender, i);
	if (!sent)
		return rank_write(&c->r, c->data, words, sizeof(words));
	TRY(rank_read(&c->r, words, c->data, sizeof(words)));
	for (uint64_t i = 0; i < CALL_WORDS; i++)
		if (words[i] != ports_word(flag, sender, i))
			return ranks_fail("flag %llu: word %llu is %#llx", (unsigned long long)flag,
				(unsigned long long)i, (unsigned long long)words[i]);
	return 0;
}

static int late_packets(struct calls *c, int scope, int narrow, uint32_t flag)
{
	struct port_call_args a;

	if (c->r.pe == 0) {
		TRY(call_in_vain(c, CALL_UNPACK + narrow, scope, flag));
		TRY(call_in_vain(c, CALL_READ_PUT + narrow, scope, flag));
	}
	REQUIRE_OK(spmt_barrier(c->r.comm));
	if (c->r.next == 0) {
		a = call_of(c, CALL_PACKETS + narrow, scope);
		a.flag = flag;
		TRY(late_words(c, flag, false));
		TRY(call_once(c, &a));
	}
	REQUIRE_OK(spmt_barrier(c->r.comm));
	if (c->r.pe == 0) {
		a = call_of(c, CALL_UNPACK + narrow, scope);
		a.flag = flag;
		TRY(rank_fill(&c->r, c->data, 0x5a, CALL_WORDS * 8));
		TRY(call_once(c, &a));
		TRY(late_words(c, flag, true));
	}
	REQUIRE_OK(spmt_barrier(c->r.comm));
	return 0;
}

/* Rank 0 waits in vain, then for what the previous one posts. */
static int late(spmt_comm *comm, void *arg)
{
	struct calls c;

	(void)arg;
	TRY(calls_open(&c, comm));
	for (int scope = 0; scope < SCOPES; scope++) {
		TRY(late_signals(&c, scope));
		for (int narrow = 0; narrow < 2; narrow++)
			TRY(late_packets(&c, scope, narrow, (uint32_t)(1 + 2 * scope + narrow)));
	}
	return calls_close(&c);
}

static int run_late(int n)
{
	return gpu_run(n, 4u << 20, late, NULL);
}

/* ---- a post that fails ------------------------------------------------------------------------ */

/* Rank 0's flush hears of it, and so do the others' waits. */
static int beyond(spmt_comm *comm, void *arg)
{
	const int *scope = arg;
	struct port_call_args a;
	struct calls c;

	TRY(calls_open(&c, comm));
	a = call_of(&c, c.r.pe ? CALL_WAIT : CALL_BEYOND, *scope);
	a.want = SPMTD_ABORTED;
	if (c.r.pe)
		RANK_LAUNCH(&c.r, test_port_call, 1, 96, a);
	REQUIRE_OK(spmt_barrier(comm));
	if (!c.r.pe)
		RANK_LAUNCH(&c.r, test_port_call, 1, 96, a);
	TRY(rank_sync(&c.r));
	TRY(outcome_check(&c.r, c.outcome, "a call whose comm is broken"));
	REQUIRE_CODE(spmt_status(comm), -EINVAL);
	REQUIRE_CODE(spmt_quiet(comm), -EINVAL);
	REQUIRE_SAYS("offset 4088 with 16 bytes goes beyond rank");
	rank_free(&c.r, c.data);
	rank_close(&c.r);
	return 0;
}

static int run_beyond(int n)
{
	int rc = 0;

	for (int scope = 0; scope < SCOPES && !rc; scope++)
		rc = gpu_run(n, 4u << 20, beyond, &scope);
	return rc;
}

static const struct gpu_test tests[] = {
	{ "ports_round_a_ring", run_ports_heap, 1 },
	{ "ports_from_other_memory", run_ports_elsewhere, 1 },
	{ "ports_of_registered_buffers", run_ports_registered, 1 },
	{ "more_posts_than_places", run_flood_full, 1 },
	{ "port_signals_there_and_back", run_pingpong_pair, 2 },
	{ "port_waits_in_vain", run_late, 1 },
	{ "a_post_that_fails", run_beyond, 1 },
};
static const struct test_kernel *const kernels[] = { &test_ports, &test_flood, &test_port_pingpong,
	&test_port_call, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
