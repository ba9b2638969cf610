/* SPDX-License-Identifier: MIT */
#include "ports.h"

/* ---- all calls by each scope ------------------------------------------------------------------ */

enum { SEND_FORMS = 4 };

#define CALLS(scope, suffix, SCOPE)                                                              \
	static inline int send_##scope(const struct spmt_view *v, const struct spmt_port *p,     \
		uint64_t form, uint64_t dst, uint64_t src, uint64_t n)                           \
	{                                                                                        \
		int rc;                                                                          \
                                                                                                 \
		if (form == 0)                                                                   \
			return spmtd_port_put_signal_flush##suffix(v, p, dst, src, n);           \
		if (form == 1)                                                                   \
			return spmtd_port_put_signal##suffix(v, p, dst, src, n);                 \
		if (form == 2) {                                                                 \
			rc = spmtd_port_put##suffix(v, p, dst, src, n);                          \
			rc = rc ? rc : spmtd_port_flush##suffix(v, p);                           \
			return rc ? rc : spmtd_port_signal##suffix(v, p);                        \
		}                                                                                \
		/* in parts, one of them of nothing */                                           \
		rc = spmtd_port_put##suffix(v, p, dst + 8, src + 8, n - 8);                      \
		rc = rc ? rc : spmtd_port_put##suffix(v, p, dst, src, 0);                        \
		rc = rc ? rc : spmtd_port_put##suffix(v, p, dst, src, 8);                        \
		return rc ? rc : spmtd_port_signal##suffix(v, p);                                \
	}                                                                                        \
	static inline int signal_##scope(const struct spmt_view *v, const struct spmt_port *p)   \
	{                                                                                        \
		return spmtd_port_signal##suffix(v, p);                                          \
	}                                                                                        \
	static inline int flush_##scope(const struct spmt_view *v, const struct spmt_port *p)    \
	{                                                                                        \
		return spmtd_port_flush##suffix(v, p);                                           \
	}                                                                                        \
	static inline int wait_##scope(const struct spmt_view *v, const struct spmt_port *p)     \
	{                                                                                        \
		return spmtd_port_wait##suffix(v, p);                                            \
	}                                                                                        \
	static inline int poll_##scope(const struct spmt_view *v, const struct spmt_port *p)     \
	{                                                                                        \
		return spmtd_port_poll##suffix(v, p);                                            \
	}                                                                                        \
	/* with the deadline of a wait */                                                        \
	static inline int polls_##scope(const struct spmt_view *v, const struct spmt_port *p)    \
	{                                                                                        \
		struct spmtd_waiter_ w;                                                          \
		int rc = 0;                                                                      \
                                                                                                 \
		spmtd_wait_begin_(&w);                                                           \
		while (!rc && !spmtd_port_poll##suffix(v, p))                                    \
			rc = spmtd_agree_(spmtd_wait_check_(v, &w), SCOPE);                      \
		spmtd_wait_rest_(v, &w);                                                         \
		return rc;                                                                       \
	}                                                                                        \
	static inline int packets_##scope(const struct spmt_view *v, const struct spmt_port *p,  \
		int narrow, uint64_t dst, uint64_t via, const void *src, uint64_t n,             \
		uint32_t flag)                                                                   \
	{                                                                                        \
		return narrow ? spmtd_port_put_packets8##suffix(v, p, dst, via, src, n, flag)    \
			      : spmtd_port_put_packets##suffix(v, p, dst, via, src, n, flag);    \
	}                                                                                        \
	static inline int read_put_##scope(const struct spmt_view *v, const struct spmt_port *p, \
		int narrow, uint64_t dst, uint64_t src, uint64_t n, uint32_t flag)               \
	{                                                                                        \
		return narrow ? spmtd_port_read_put_packets8##suffix(v, p, dst, src, n, flag)    \
			      : spmtd_port_read_put_packets##suffix(v, p, dst, src, n, flag);    \
	}                                                                                        \
	static inline int unpack_##scope(const struct spmt_view *v, const struct spmt_port *p,   \
		int narrow, void *dst, uint64_t src, uint64_t n, uint32_t flag)                  \
	{                                                                                        \
		return narrow ? spmtd_port_unpack_packets8##suffix(v, p, dst, src, n, flag)      \
			      : spmtd_port_unpack_packets##suffix(v, p, dst, src, n, flag);      \
	}
CALLS(thread, , BY_THREAD)
CALLS(warp, _warp, BY_WARP)
CALLS(block, _block, BY_BLOCK)

#define BY_SCOPE(scope, call, ...)                                        \
	((scope) == BY_THREAD		     ? call##_thread(__VA_ARGS__) \
			: (scope) == BY_WARP ? call##_warp(__VA_ARGS__)   \
					     : call##_block(__VA_ARGS__))

/* ---- round a ring ----------------------------------------------------------------------------- */

/* What a worker calls for one round with. */
struct turn {
	const struct spmt_view *v;
	const struct spmt_port *next, *prev;
	uint64_t local, remote, at, unit; /* its place begins `at` bytes on */
	uint64_t round, outcome;
	int scope;
};

#define TURN static inline __attribute__((always_inline))

TURN uint64_t part(const struct turn *t, int part)
{
	return t->at + (uint64_t)(uint32_t)part * t->unit;
}

/* hops: how far the rank is that the words are of. */
TURN void check(const struct turn *t, uint64_t where, int hops)
{
	const uint64_t *words = (const uint64_t *)spmtd_to_(where);
	int n = t->v->npes, pe = (t->v->pe + 2 * n - hops) % n;

	for (uint64_t i = spmtd_lane_(t->scope); i < t->unit / 8; i += spmtd_lanes_(t->scope)) {
		uint64_t want = ports_word(t->round, pe, i);

		if (words[i] != want)
			outcome_add(t->outcome, hops, t->round, words[i], want);
	}
}

TURN int turn_words(const struct turn *t)
{
	uint64_t *own = (uint64_t *)spmtd_to_(t->local + part(t, PORTS_OWN));
	int rc;

	for (uint64_t i = spmtd_lane_(t->scope); i < t->unit / 8; i += spmtd_lanes_(t->scope))
		own[i] = ports_word(t->round, t->v->pe, i);
	rc = BY_SCOPE(t->scope, send, t->v, t->next, t->round % SEND_FORMS, part(t, PORTS_CAME),
		part(t, PORTS_OWN), t->unit);
	if (rc)
		return rc;
	if (t->round % 3)
		rc = BY_SCOPE(t->scope, wait, t->v, t->prev);
	else
		rc = BY_SCOPE(t->scope, polls, t->v, t->prev);
	if (!rc)
		check(t, t->remote + part(t, PORTS_CAME), 1);
	return rc;
}

/* To the next rank, and on from there. */
TURN int turn_packets(const struct turn *t)
{
	uint64_t first = t->local + part(t, PORTS_GOT_FIRST);
	uint64_t second = t->local + part(t, PORTS_GOT_SECOND);
	const void *own = spmtd_to_(t->local + part(t, PORTS_OWN));
	uint32_t flag = (uint32_t)t->round;
	int narrow = t->round % 5 < 2, rc;

	rc = BY_SCOPE(t->scope, packets, t->v, t->next, narrow, part(t, PORTS_FIRST),
		part(t, PORTS_VIA), own, t->unit, flag);
	if (!rc)
		rc = BY_SCOPE(t->scope, read_put, t->v, t->next, narrow, part(t, PORTS_SECOND),
			part(t, PORTS_FIRST), t->unit, flag);
	if (!rc)
		rc = BY_SCOPE(t->scope, unpack, t->v, t->prev, narrow, spmtd_to_(first),
			part(t, PORTS_FIRST), t->unit, flag);
	if (!rc)
		rc = BY_SCOPE(t->scope, unpack, t->v, t->prev, narrow, spmtd_to_(second),
			part(t, PORTS_SECOND), t->unit, flag);
	if (rc)
		return rc;
	check(t, first, 1);
	check(t, second, 2);
	return 0;
}

/* Both places are free again, once what has come has also been sent on. */
TURN int turn_end(const struct turn *t)
{
	int rc = BY_SCOPE(t->scope, flush, t->v, t->next);

	if (!rc)
		rc = BY_SCOPE(t->scope, signal, t->v, t->prev);
	return rc ? rc : BY_SCOPE(t->scope, wait, t->v, t->next);
}

/* scope: a constant. */
TURN void ports_rounds(const struct ports_args *a, int scope)
{
	uint32_t w = worker(scope);
	const struct spmt_port *own = (const struct spmt_port *)spmtd_to_(a->ports) + 2 * w;
	struct spmt_port next = own[0], prev = own[1];
	struct turn t;

	t.v = &a->view;
	t.next = &next;
	t.prev = &prev;
	t.local = a->local;
	t.remote = a->remote;
	t.unit = a->words * 8;
	t.at = w * PORTS_PARTS * t.unit;
	t.outcome = a->outcome;
	t.scope = scope;
	for (t.round = a->done + 1; t.round <= a->done + a->rounds; t.round++) {
		int rc = turn_words(&t);

		rc = rc ? rc : turn_packets(&t);
		rc = rc ? rc : turn_end(&t);
		if (rc) {
			outcome_add(a->outcome, rc, t.round, 0, 0);
			return;
		}
	}
}

KERNEL_BODY run_ports(const struct ports_args *a)
{
	if (a->scope == BY_THREAD)
		ports_rounds(a, BY_THREAD);
	else if (a->scope == BY_WARP)
		ports_rounds(a, BY_WARP);
	else
		ports_rounds(a, BY_BLOCK);
}
TEST_KERNEL(ports)

/* ---- more posts than the ring has places ------------------------------------------------------ */

/* May be false by mistake where others post meanwhile. */
static inline int flood_full(const struct spmt_port *p)
{
	const struct spmtd_fifo *f = (const struct spmtd_fifo *)spmtd_to_(p->fifo);
	uint64_t posted = spmtd_peek64_(spmtd_at_(&f->own->posted));

	return (int64_t)(posted - spmtd_look64_(f->taken)) >= (int64_t)1 << f->shift;
}

static inline int flood_post(const struct flood_args *a)
{
	uint64_t *own = (uint64_t *)spmtd_to_(a->own), full = 0;
	int rc = 0;

	for (uint64_t i = kernel_lane(); i < a->words && !rc; i += kernel_lanes()) {
		const struct spmt_port *p = &a->next[i % FLOOD_PORTS];

		own[i] = ports_word(a->round, a->view.pe, i);
		full += flood_full(p) ? 1 : 0;
		rc = spmtd_port_put(&a->view, p, 8 * i, 8 * i, 8);
		rc = rc ? rc : spmtd_port_signal(&a->view, p);
	}
	spmtd_add64_(a->full, full);
	return rc;
}

/* By one worker, as only one at a time waits through a port. */
static inline int flood_wait(const struct flood_args *a)
{
	int rc = 0;

	for (uint64_t i = 0; i < a->words && !rc; i++)
		rc = BY_SCOPE(a->scope, wait, &a->view, &a->prev[i % FLOOD_PORTS]);
	return rc;
}

/* By one block of fewer threads than the ring has places: where the lanes of a wave advance together, as AMD's do, one that has a
   place writes its post only once all of them have one. */
KERNEL_BODY run_flood(const struct flood_args *a)
{
	const uint64_t *came = (const uint64_t *)spmtd_to_(a->came);
	int prev = (a->view.pe + a->view.npes - 1) % a->view.npes;
	int rc = spmtd_agree_(flood_post(a), BY_BLOCK);

	if (!rc && worker(a->scope) == 0)
		rc = flood_wait(a);
	rc = spmtd_agree_(rc, BY_BLOCK);
	spmtd_acquired_(); /* by those who did not wait, too */
	if (rc)
		outcome_add(a->outcome, rc, a->round, 0, 0);
	for (uint64_t i = kernel_lane(); i < a->words && !rc; i += kernel_lanes()) {
		uint64_t want = ports_word(a->round, prev, i);

		if (came[i] != want)
			outcome_add(a->outcome, 0, a->round, came[i], want);
	}
}
TEST_KERNEL(flood)

/* ---- there and back --------------------------------------------------------------------------- */

static inline int port_pingpong_signal(const struct port_pingpong_args *a)
{
	return a->bytes ? spmtd_port_put_signal(&a->view, &a->other, 0, 0, a->bytes)
			: spmtd_port_signal(&a->view, &a->other);
}

KERNEL_BODY run_port_pingpong(const struct port_pingpong_args *a)
{
	int first = a->view.pe == 0, rc = 0;

	for (uint64_t round = 1; round <= a->rounds && !rc; round++) {
		if (first)
			rc = port_pingpong_signal(a);
		rc = rc ? rc : spmtd_port_wait(&a->view, &a->other);
		if (!first && !rc)
			rc = port_pingpong_signal(a);
		if (rc)
			outcome_add(a->outcome, rc, round, 0, 0);
	}
}
TEST_KERNEL(port_pingpong)

/* ---- one call --------------------------------------------------------------------------------- */

TURN int port_call(const struct port_call_args *a, int scope)
{
	const struct spmt_view *v = &a->view;
	const struct spmt_port *p = &a->port;
	void *data = spmtd_to_(a->data);
	int narrow =
		a->kind == CALL_UNPACK8 || a->kind == CALL_READ_PUT8 || a->kind == CALL_PACKETS8;
	int rc;

	switch (a->kind) {
	case CALL_WAIT:
		return BY_SCOPE(scope, wait, v, p);
	case CALL_POLL:
		return BY_SCOPE(scope, poll, v, p);
	case CALL_UNPACK:
	case CALL_UNPACK8:
		return BY_SCOPE(scope, unpack, v, p, narrow, data, 0, a->size, a->flag);
	case CALL_READ_PUT:
	case CALL_READ_PUT8:
		return BY_SCOPE(scope, read_put, v, p, narrow, 0, 0, a->size, a->flag);
	case CALL_SIGNAL:
		rc = BY_SCOPE(scope, signal, v, p);
		break;
	case CALL_BEYOND:
		rc = BY_SCOPE(scope, send, v, p, 1, p->remote_size - 8, 0, 16);
		break;
	default:
		rc = BY_SCOPE(scope, packets, v, p, narrow, 0, p->local_size - 2 * a->size, data,
			a->size, a->flag);
	}
	return rc ? rc : BY_SCOPE(scope, flush, v, p);
}

KERNEL_BODY run_port_call(const struct port_call_args *a)
{
	int rc;

	if (worker(a->scope) != 0)
		return;
	rc = a->scope == BY_THREAD    ? port_call(a, BY_THREAD)
		: a->scope == BY_WARP ? port_call(a, BY_WARP)
				      : port_call(a, BY_BLOCK);
	if (rc != a->want)
		outcome_add(a->outcome, rc, (uint64_t)(uint32_t)a->kind, 0, 0);
}
TEST_KERNEL(port_call)
