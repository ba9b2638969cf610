/* SPDX-License-Identifier: MIT */
#include "every_call.h"

#include <stdio.h>
#include <stdlib.h>

#include "processes.h"
#include "src/device/device.h"

enum { GUARD = 64, BIG = (1 << 20) + 3 };

/* ---- memory of the rank's device outside the heap ------------------------------------------------------------- */

struct device {
	const struct backend *b;
	int dev;
	device_stream s;
};

static int device_open(spmt_comm *comm, struct device *d)
{
	d->dev = spmt_device(comm);
	d->b = NULL;
	for (size_t i = 0; !d->b; i++) {
		const struct backend *b = device_backend(i);

		REQUIRE(b);
		d->b = !strcmp(b->name, spmt_backend(comm)) ? b : NULL;
	}
	REQUIRE_OK(d->b->stream_create(d->dev, &d->s));
	return 0;
}

static int device_move(const struct device *d, void *dst, const void *src, size_t n)
{
	REQUIRE_OK(d->b->copy(d->dev, dst, src, n, d->s));
	REQUIRE_OK(d->b->stream_sync(d->dev, d->s, 20000000000, NULL));
	return 0;
}

/* Freeing waits for all that runs on the device: nobody may be waiting for this rank. */
static int device_free(spmt_comm *comm, const struct device *d, void *ptr)
{
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(d->b->free(d->dev, ptr));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

/* ---- the heap -------------------------------------------------------------------------------------------------- */

int every_call_same(spmt_comm *comm, uint64_t *told, uint64_t value)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);

	for (int pe = 0; pe < n; pe++)
		REQUIRE_OK(spmt_put(comm, &told[me], &value, sizeof(value), pe));
	REQUIRE_OK(spmt_barrier(comm));
	for (int pe = 0; pe < n; pe++)
		TRY(sym_check_u64(comm, &told[pe], value));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int heap(spmt_comm *comm)
{
	uint64_t *told, seed = 99;
	char *block[12];
	int64_t most;
	void *none;

	REQUIRE_OK(spmt_malloc(comm, 8 * sizeof(*told), (void **)&told));
	for (int i = 0; i < 12; i++) {
		size_t size = random_next(&seed) % 30000, align = (size_t)64 << i % 7;

		if (i % 3 == 0)
			REQUIRE_OK(spmt_malloc(comm, size, (void **)&block[i]));
		else if (i % 3 == 1)
			REQUIRE_OK(spmt_calloc(comm, size, 1, (void **)&block[i]));
		else
			REQUIRE_OK(spmt_aligned_alloc(comm, align, size, (void **)&block[i]));
		if (i % 3 == 1)
			TRY(sym_check_byte(comm, block[i], 0, size));
		REQUIRE(i % 3 != 2 || (uintptr_t)block[i] % align == 0);
		TRY(sym_set(comm, block[i], 0xee, size));
		TRY(every_call_same(comm, told, (uint64_t)(block[i] - (char *)told)));
		if (i % 4 == 3)
			REQUIRE_OK(spmt_free(comm, block[i - 2]));
	}
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &most));
	REQUIRE_CODE(spmt_malloc(comm, (size_t)most + 1, &none), -ENOMEM);
	REQUIRE_CODE(spmt_malloc(comm, 8 + (size_t)(spmt_rank(comm) == 1), &none),
		spmt_nranks(comm) > 1 ? SPMT_ERR_MISMATCH : 0);
	for (int i = 0; i < 12; i++)
		if (i % 4 != 1)
			REQUIRE_OK(spmt_free(comm, block[i]));
	REQUIRE_OK(spmt_free(comm, told));
	return 0;
}

/* ---- put and get ------------------------------------------------------------------------------------------------- */

enum kind { PUT, PUT_NBI, PUT_STREAM, PUT_SIGNAL, PUT_SIGNAL_NBI, GET, GET_NBI, GET_STREAM, KINDS };

struct move {
	enum kind kind;
	size_t size;
	char *sym, *own;
	uint64_t *sig, turn;
	int to, from; /* I write to `to`, `from` writes to me; a get reads from `from` */
};

static int issue(spmt_comm *comm, const struct move *m)
{
	switch (m->kind) {
	case PUT:
		return spmt_put(comm, m->sym, m->own, m->size, m->to);
	case PUT_NBI:
		return spmt_put_nbi(comm, m->sym, m->own, m->size, m->to);
	case PUT_STREAM:
		return spmt_put_on_stream(comm, m->sym, m->own, m->size, m->to, NULL);
	case PUT_SIGNAL:
		return spmt_put_signal(
			comm, m->sym, m->own, m->size, m->sig, m->turn, SPMT_SIGNAL_SET, m->to);
	case PUT_SIGNAL_NBI:
		return spmt_put_signal_nbi(
			comm, m->sym, m->own, m->size, m->sig, m->turn, SPMT_SIGNAL_SET, m->to);
	case GET:
		return spmt_get(comm, m->own, m->sym, m->size, m->from);
	case GET_NBI:
		return spmt_get_nbi(comm, m->own, m->sym, m->size, m->from);
	default:
		return spmt_get_on_stream(comm, m->own, m->sym, m->size, m->from, NULL);
	}
}

static int put_once(spmt_comm *comm, const struct move *m)
{
	TRY(sym_set(comm, m->sym, 0xc3, m->size + GUARD));
	REQUIRE_OK(spmt_barrier(comm));
	pattern_fill(m->own, m->size, m->turn * 100 + (uint64_t)spmt_rank(comm));
	REQUIRE_OK(issue(comm, m));
	if (m->kind == PUT_SIGNAL || m->kind == PUT_SIGNAL_NBI)
		REQUIRE_OK(spmt_signal_wait(comm, m->sig, SPMT_CMP_EQ, m->turn, NULL));
	else
		REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check(comm, m->sym, m->size, m->turn * 100 + (uint64_t)m->from));
	TRY(sym_check_byte(comm, m->sym + m->size, 0xc3, GUARD));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int get_once(spmt_comm *comm, const struct move *m)
{
	TRY(sym_fill(comm, m->sym, m->size, m->turn * 100 + (uint64_t)spmt_rank(comm)));
	memset(m->own, 0x3c, m->size + GUARD);
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(issue(comm, m));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_EQ(pattern_differs(m->own, m->size, m->turn * 100 + (uint64_t)m->from), SIZE_MAX);
	for (int i = 0; i < GUARD; i++)
		REQUIRE_EQ(m->own[m->size + (size_t)i], 0x3c);
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int moves(spmt_comm *comm, struct move *m)
{
	static const size_t sizes[] = { 0, 1, 7, 8, 4099, 70001, BIG };
	int me = spmt_rank(comm), n = spmt_nranks(comm);

	for (m->kind = PUT; m->kind < KINDS; m->kind++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
			int away = s % 3 == 0 ? 1 : s % 3 == 1 ? n / 2 : n - 1;

			if (sizes[s] == BIG && m->kind != PUT_NBI && m->kind != GET)
				continue;
			m->size = sizes[s];
			m->turn++;
			m->to = (me + away) % n;
			m->from = (me + n - away) % n;
			TRY(m->kind >= GET ? get_once(comm, m) : put_once(comm, m));
		}
	return 0;
}

static int rma(spmt_comm *comm)
{
	struct move m = { .own = malloc(BIG + GUARD) };
	int code;

	REQUIRE(m.own);
	REQUIRE_OK(spmt_malloc(comm, BIG + GUARD, (void **)&m.sym));
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*m.sig), (void **)&m.sig));
	code = moves(comm, &m);
	free(m.own);
	TRY(code);
	REQUIRE_OK(spmt_free(comm, m.sig));
	REQUIRE_OK(spmt_free(comm, m.sym));
	return 0;
}

static int strided(spmt_comm *comm)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm), from = (me + n - 1) % n;
	int own[60], back[60], *sym;

	for (int i = 0; i < 60; i++)
		own[i] = me * 1000 + i;
	REQUIRE_OK(spmt_malloc(comm, sizeof(own), (void **)&sym));
	TRY(sym_set(comm, sym, 0xff, sizeof(own)));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_iput(comm, sym, own, 3, 2, 20, sizeof(int), (me + 1) % n));
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_copy_out(comm, back, sym, sizeof(back)));
	for (int i = 0; i < 60; i++)
		REQUIRE_EQ(back[i], i % 3 ? -1 : from * 1000 + i / 3 * 2);
	memset(back, 0, sizeof(back));
	REQUIRE_OK(spmt_iget(comm, back, sym, 2, 3, 20, sizeof(int), (me + 1) % n));
	for (int i = 0; i < 40; i++)
		REQUIRE_EQ(back[i], i % 2 ? 0 : me * 1000 + i);
	REQUIRE_OK(spmt_free(comm, sym));
	return 0;
}

/* ---- atomics, signals, waits ------------------------------------------------------------------------------------- */

enum { TICKETS = 200, FEW = 20 };

/* Every ticket of a counter is drawn once; a word guarded by a lock of compare_swap loses no increment. */
static int draw(spmt_comm *comm, uint64_t *counter, unsigned char *drawn, int home, int each)
{
	for (int i = 0; i < each; i++) {
		unsigned char one = 1;
		uint64_t ticket;

		REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_FETCH_INC, SPMT_TYPE_U64, counter, NULL, NULL,
			&ticket, home));
		REQUIRE(ticket < (uint64_t)(each * spmt_nranks(comm)));
		REQUIRE_OK(spmt_put(comm, &drawn[ticket], &one, 1, home));
	}
	return 0;
}

static int locked(spmt_comm *comm, uint32_t *lock, uint64_t *word, int home, int each)
{
	uint32_t none = 0, mine = 1 + (uint32_t)spmt_rank(comm), seen;

	for (int i = 0; i < each; i++) {
		uint64_t value;

		do {
			REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_COMPARE_SWAP, SPMT_TYPE_U32, lock,
				&mine, &none, &seen, home));
		} while (seen);
		REQUIRE_OK(spmt_get(comm, &value, word, sizeof(value), home));
		value++;
		REQUIRE_OK(spmt_put(comm, word, &value, sizeof(value), home));
		REQUIRE_OK(spmt_quiet(comm));
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_SWAP, SPMT_TYPE_U32, lock, &none, NULL, &seen, home));
		REQUIRE_EQ(seen, mine);
	}
	return 0;
}

static int atomics(spmt_comm *comm, const struct every_call *b)
{
	int each = b->less ? FEW : TICKETS, locks = each / 10;
	int n = spmt_nranks(comm), home = n - 1, all = each * n;
	uint32_t bit = 1u << spmt_rank(comm);
	unsigned char *drawn;
	uint64_t *words;

	REQUIRE_OK(spmt_calloc(comm, (size_t)all, 1, (void **)&drawn));
	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(*words), (void **)&words));
	TRY(draw(comm, &words[0], drawn, home, each));
	TRY(locked(comm, (uint32_t *)&words[2], &words[3], home, locks));
	for (int pe = 0; pe < n; pe++)
		REQUIRE_OK(spmt_atomic(
			comm, SPMT_AMO_XOR, SPMT_TYPE_U32, &words[4], &bit, NULL, NULL, pe));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, &words[4], (1u << n) - 1));
	if (spmt_rank(comm) == home) {
		TRY(sym_check_byte(comm, drawn, 1, (size_t)all));
		TRY(sym_check_u64(comm, &words[0], (uint64_t)all));
		TRY(sym_check_u64(comm, &words[3], (uint64_t)(locks * n)));
	}
	REQUIRE_OK(spmt_free(comm, words));
	REQUIRE_OK(spmt_free(comm, drawn));
	return 0;
}

static int signals(spmt_comm *comm)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	uint64_t *words, one = 1, seen, total = (uint64_t)n * (uint64_t)(n + 1) / 2;
	size_t index = SIZE_MAX;

	REQUIRE_OK(spmt_calloc(comm, 16, sizeof(*words), (void **)&words));
	for (int pe = 0; pe < n; pe++) {
		REQUIRE_OK(spmt_signal(comm, &words[0], (uint64_t)me + 1, SPMT_SIGNAL_ADD, pe));
		REQUIRE_OK(spmt_signal(comm, &words[8 + me], 1, SPMT_SIGNAL_SET, pe));
	}
	REQUIRE_OK(spmt_signal_wait(comm, &words[0], SPMT_CMP_GE, total, &seen));
	REQUIRE_EQ(seen, total);
	REQUIRE_OK(spmt_wait_until_all(
		comm, SPMT_TYPE_U64, &words[8], (size_t)n, NULL, SPMT_CMP_EQ, &one));
	REQUIRE_OK(spmt_wait_until_any(
		comm, SPMT_TYPE_U64, &words[8], 8, NULL, SPMT_CMP_EQ, &one, &index));
	REQUIRE(index < (size_t)n);
	REQUIRE_OK(spmt_set_timeout(comm, 30));
	REQUIRE_CODE(spmt_signal_wait(comm, &words[1], SPMT_CMP_EQ, 5, NULL), SPMT_ERR_TIMEOUT);
	REQUIRE_OK(spmt_set_timeout(comm, 0));
	REQUIRE_OK(spmt_free(comm, words));
	return 0;
}

/* After the i-th barrier everybody's i-th word is there. */
static int barriers(spmt_comm *comm, const struct every_call *b)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	uint64_t *words;

	REQUIRE_OK(spmt_calloc(comm, 8, sizeof(*words), (void **)&words));
	for (uint64_t i = 1; i <= (b->less ? 50 : test_count(1000, 10000)); i++) {
		int to = (me + 1 + (int)(i % 7)) % n;
		uint64_t seen;

		REQUIRE_OK(spmt_put(comm, &words[me], &i, sizeof(i), to));
		REQUIRE_OK(i % 2 ? spmt_barrier(comm) : spmt_sync(comm));
		REQUIRE_OK(spmt_get(comm, &seen, &words[me], sizeof(seen), to));
		REQUIRE_EQ(seen, i);
	}
	REQUIRE_OK(spmt_free(comm, words));
	return 0;
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

struct buffers {
	struct device d;
	uint64_t *dst, *src;   /* of the device */
	uint64_t *got, *given; /* the same for the CPU */
};

enum { ELEMENTS = 160009 };

static int coll_once(
	spmt_comm *comm, enum kernel_collective_kind c, size_t count, const struct buffers *bufs)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm), to[8];
	size_t gets = count * (size_t)(coll_kinds[c].dst_blocks ? n : 1);
	size_t gives = count * (size_t)(coll_kinds[c].src_blocks ? n : 1);
	uint64_t *src = c == COLL_EXCHANGE ? bufs->dst : bufs->src; /* in place */

	for (int r = 0; r < n; r++)
		to[r] = r - 1;
	memset(bufs->got, 0xff, (gets + 1) * 8);
	for (size_t i = 0; i < gives; i++)
		bufs->given[i] = every_call_given(me, i);
	TRY(device_move(&bufs->d, bufs->dst, bufs->got, (gets + 1) * 8));
	TRY(device_move(&bufs->d, src, bufs->given, gives * 8));
	REQUIRE_OK(every_call_collective(comm, c, bufs->dst, src, count, to));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(device_move(&bufs->d, bufs->got, bufs->dst, (gets + 1) * 8));
	for (size_t i = 0; i < gets; i++)
		if (bufs->got[i] != every_call_collected(c, me, n, count, i))
			return ranks_fail(
				"collective %d, count %zu: element %zu is wrong", (int)c, count, i);
	REQUIRE_EQ(bufs->got[gets], UINT64_MAX);
	return 0;
}

static int coll_all(spmt_comm *comm, const struct buffers *bufs, size_t most)
{
	static const size_t counts[] = { 0, 1, 37, 19999, 140001 };

	for (enum kernel_collective_kind c = COLL_BROADCAST; c < COLL_KINDS; c++)
		for (size_t k = 0; k < sizeof(counts) / sizeof(*counts); k++)
			if (counts[k] <= most &&
				(counts[k] < 100000 || c == COLL_BROADCAST || c == COLL_ALL_REDUCE))
				TRY(coll_once(comm, c, counts[k], bufs));
	return 0;
}

int every_call_collectives(spmt_comm *comm, size_t most)
{
	struct buffers bufs = { .got = malloc(ELEMENTS * 8), .given = malloc(ELEMENTS * 8) };
	int code;

	REQUIRE(bufs.got && bufs.given);
	TRY(device_open(comm, &bufs.d));
	REQUIRE_OK(
		bufs.d.b->alloc(bufs.d.dev, ELEMENTS * 8, DEVICE_MEMORY_PLAIN, (void **)&bufs.dst));
	REQUIRE_OK(
		bufs.d.b->alloc(bufs.d.dev, ELEMENTS * 8, DEVICE_MEMORY_PLAIN, (void **)&bufs.src));
	REQUIRE_OK(spmt_barrier(comm));
	code = coll_all(comm, &bufs, most);
	free(bufs.got);
	free(bufs.given);
	TRY(code);
	TRY(device_free(comm, &bufs.d, bufs.dst));
	TRY(device_free(comm, &bufs.d, bufs.src));
	bufs.d.b->stream_destroy(bufs.d.dev, bufs.d.s);
	return 0;
}

/* ---- who and where ----------------------------------------------------------------------------------------------- */

static bool reached_by(spmt_comm *comm, int pe, const char *map)
{
	struct spmt_route route = { .size = sizeof(route) };

	return !spmt_route(comm, pe, &route) && !strcmp(route.map, map);
}
#define is_here(comm, pe) (!reached_by(comm, pe, "ipc"))
#define is_far(comm, pe) reached_by(comm, pe, "rdma") /* moves reach it, loads do not */

/* What travels by descriptor is shared on the world's comm alone: a part is told so. */
static int refused(spmt_comm *comm, const struct every_call *b, spmt_mem *mem, int pe)
{
	char text[8];

	REQUIRE(!b->layout && !is_here(comm, pe));
	REQUIRE_CODE(spmt_mem_get(comm, text, mem, 0, sizeof(text), pe), SPMT_ERR_UNSUPPORTED);
	REQUIRE_SAYS("descriptor");
	return 0;
}

int every_call_registered(spmt_comm *comm, const struct every_call *b)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm), got;
	char *inside, *outside, said[64] = "", text[8];
	struct device d;
	spmt_mem *in, *out;

	TRY(device_open(comm, &d));
	REQUIRE_OK(d.b->alloc(d.dev, 4096, DEVICE_MEMORY_PLAIN, (void **)&outside));
	REQUIRE_OK(spmt_calloc(comm, 1, 256, (void **)&inside));
	snprintf(said, sizeof(said), "of %d", me);
	TRY(device_move(&d, outside + 192, said, sizeof(said)));
	REQUIRE_OK(spmt_register(comm, inside + 8 * me, 64, &in));
	REQUIRE_OK(spmt_register(comm, outside + 192, sizeof(said), &out));
	REQUIRE_OK(spmt_mem_put(comm, in, 3, &me, sizeof(me), (me + 1) % n));
	for (int pe = 0; pe < n; pe++) {
		REQUIRE_EQ(spmt_mem_size(out, pe), sizeof(said));
		if (!spmt_mem_ptr(out, pe) && !is_far(comm, pe)) {
			TRY(refused(comm, b, out, pe));
			continue;
		}
		REQUIRE_OK(spmt_mem_get(comm, text, out, 0, sizeof(text), pe));
		REQUIRE_EQ(atoi(text + 3), pe);
	}
	REQUIRE_OK(spmt_barrier(comm));
	REQUIRE_OK(spmt_mem_get(comm, text, in, 3, sizeof(me), (me + 1) % n));
	REQUIRE_EQ(memcmp(text, &me, sizeof(me)), 0);
	REQUIRE_OK(spmt_copy_out(comm, &got, inside + 8 * me + 3, sizeof(got)));
	REQUIRE_EQ(got, (me + n - 1) % n);
	got = (me + n - 1) % n;
	if (spmt_mem_ptr(out, got) || is_far(comm, got))
		REQUIRE_OK(spmt_mem_put(comm, out, 5, &me, sizeof(me), (me + n - 1) % n));
	REQUIRE_OK(spmt_barrier(comm));
	TRY(device_move(&d, text, outside + 192 + 5, sizeof(got)));
	got = (me + 1) % n;
	REQUIRE(!(spmt_mem_ptr(out, got) || is_far(comm, got)) ||
		memcmp(text, &got, sizeof(got)) == 0);
	REQUIRE_OK(spmt_deregister(comm, out));
	REQUIRE_OK(spmt_deregister(comm, in));
	REQUIRE_OK(spmt_free(comm, inside));
	TRY(device_free(comm, &d, outside));
	d.b->stream_destroy(d.dev, d.s);
	return 0;
}

/* Of the CPU's memory: for the ranks of the process. Each rank says where its buffer is; rank 1 has none. */
static int unshared(spmt_comm *comm)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	char *own = malloc(64), text[8];
	spmt_mem *mem;

	REQUIRE(own);
	snprintf(own, 64, "of %d", me);
	REQUIRE_OK(spmt_register(comm, me == 1 ? NULL : own, me == 1 ? 0 : 64, &mem));
	for (int pe = 0; pe < n; pe++) {
		bool here = is_here(comm, pe);

		if (pe == 1)
			continue;
		REQUIRE((spmt_mem_ptr(mem, pe) != NULL) == (here && !is_far(comm, pe)));
		REQUIRE_CODE(spmt_mem_get(comm, text, mem, 0, sizeof(text), pe),
			here ? 0 : SPMT_ERR_UNSUPPORTED);
		if (here)
			REQUIRE_EQ(atoi(text + 3), pe);
		else
			REQUIRE_SAYS("export");
	}
	REQUIRE_OK(spmt_deregister(comm, mem));
	free(own);
	return 0;
}

static int place(spmt_comm *comm, const struct every_call *b, const uint64_t *word, int pe)
{
	int me = spmt_rank(comm);
	bool here = processes_of(b->layout, pe) == processes_of(b->layout, me),
	     far = is_far(comm, pe);
	const uint64_t *there = spmt_ptr(comm, word, pe);
	struct spmt_route route = { .size = sizeof(route) }, self = route;
	uint64_t seen;

	REQUIRE((there != NULL) == !far);
	REQUIRE(!there || !host_access(comm) || *there == 100 + (uint64_t)pe);
	REQUIRE_OK(spmt_get(comm, &seen, word, sizeof(seen), pe));
	REQUIRE_EQ(seen, 100 + pe);
	REQUIRE((spmt_comm_by_rank(b->uid, pe) != NULL) == here);
	REQUIRE_OK(spmt_route(comm, pe, &route));
	REQUIRE(!strcmp(route.map, pe == me ? "self" : here ? "p2p" : far ? "rdma" : "ipc"));
	REQUIRE(route.reason[0] && strstr(route.movers, far ? "verbs" : "store"));
	REQUIRE_OK(spmt_route(comm, me, &self));
	REQUIRE_EQ(route.process == self.process, here);
	REQUIRE_EQ(route.device, b->devices ? b->devices[pe] : processes_position(b->layout, pe));
	return 0;
}

int every_call_places(spmt_comm *comm, const struct every_call *b)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);
	uint64_t *word, mine = 100 + (uint64_t)me;

	REQUIRE_EQ(
		spmt_device(comm), b->devices ? b->devices[me] : processes_position(b->layout, me));
	REQUIRE_OK(spmt_malloc(comm, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_copy_in(comm, word, &mine, sizeof(mine)));
	REQUIRE_OK(spmt_barrier(comm));
	for (int pe = 0; pe < n; pe++)
		TRY(place(comm, b, word, pe));
	REQUIRE_OK(spmt_free(comm, word));
	return 0;
}

int every_call_right(spmt_comm *comm, const struct every_call *b)
{
	TRY(heap(comm));
	TRY(rma(comm));
	TRY(strided(comm));
	TRY(atomics(comm, b));
	TRY(signals(comm));
	TRY(barriers(comm, b));
	TRY(every_call_collectives(comm, SIZE_MAX));
	TRY(every_call_registered(comm, b));
	return unshared(comm);
}
