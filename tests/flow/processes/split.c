/* SPDX-License-Identifier: MIT */
/* Parts of a world as comms of their own, over every layout of ranks in processes. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>

#include "spmt_device.h"
#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

enum { LAYOUTS = 4 };

static const char *const layouts[LAYOUTS] = { "0|1,2,3|4,5,6,7", "0,1,2,3|4,5,6,7",
	"0,1,2,3,4,5,6,7", "0|1|2|3|4|5|6|7" };

static void in_layouts(int n, int (*fn)(spmt_comm *comm, void *arg))
{
	for (int i = 0; i < n; i++) {
		struct processes p = { .layout = layouts[i] };

		RANKS_OK(processes_world(&p, fn, &p));
	}
}

/*
 * Where each process opens devices of its own, a second or so each, the first layout alone: it has pairs of ranks of every kind,
 * and all calls are made in the others, too.
 */
static void everywhere(int (*fn)(spmt_comm *comm, void *arg))
{
	in_layouts(opening_s() ? 1 : LAYOUTS, fn);
}

static int calls(spmt_comm *comm)
{
	return every_call_right(comm, &(struct every_call){ .less = !on_host() });
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

/* Even and odd ranks, the last first. */
static int halve(spmt_comm *comm, spmt_comm **part)
{
	int me = spmt_rank(comm), n = spmt_nranks(comm);

	REQUIRE_OK(spmt_split(comm, me % 2, -me, part));
	REQUIRE_EQ(spmt_nranks(*part), (n + 1 - me % 2) / 2);
	REQUIRE_EQ(spmt_rank(*part), (n - 1 - me) / 2);
	return 0;
}

/* Peers are those of the world under other numbers. */
static int same_peers(spmt_comm *world, spmt_comm *turned)
{
	for (int pe = 0, n = spmt_nranks(world); pe < n; pe++) {
		struct spmt_route a = { .size = sizeof(a) }, b = a;

		REQUIRE_OK(spmt_route(world, pe, &a));
		REQUIRE_OK(spmt_route(turned, n - 1 - pe, &b));
		REQUIRE_EQ(a.device, b.device);
		REQUIRE_EQ(a.process, b.process);
		REQUIRE(!strcmp(a.map, b.map));
	}
	return 0;
}

static int numbers(spmt_comm *world, void *arg)
{
	int me = spmt_rank(world), n = spmt_nranks(world);
	spmt_comm *part = world;

	(void)arg;
	/* equal keys: in the parent's order; the colors are only names */
	REQUIRE_OK(spmt_split(world, me < 3 ? 2000000000 : 7, 5, &part));
	REQUIRE_EQ(spmt_rank(part), me < 3 ? me : me - 3);
	REQUIRE_EQ(spmt_nranks(part), me < 3 ? 3 : n - 3);
	REQUIRE_EQ(spmt_device(part), spmt_device(world));
	REQUIRE_OK(spmt_finalize(part));
	REQUIRE_CODE(spmt_barrier(part), -EBADF);
	/* some in pairs, the pairs swapped, one alone, the others nowhere */
	REQUIRE_OK(spmt_split(world,
		me < 4		  ? me / 2
			: me == 4 ? 9
				  : SPMT_SPLIT_NONE,
		-me % 2, &part));
	REQUIRE((part == NULL) == (me > 4));
	if (part) {
		REQUIRE_EQ(spmt_nranks(part), me == 4 ? 1 : 2);
		REQUIRE_EQ(spmt_rank(part), me == 4 ? 0 : 1 - me % 2);
		TRY(calls(part));
		REQUIRE_OK(spmt_finalize(part));
	}
	part = NULL;
	REQUIRE_OK(spmt_split(world, -77, 0, &part));
	REQUIRE(!part);
	TRY(halve(world, &part));
	return spmt_finalize(part);
}

Test(split, numbers)
{
	everywhere(numbers);
}

/* ---- all calls ---------------------------------------------------------------------------------------------------- */

/* The world turned round, its halves, and a half's halves, all alive at once. */
static int all_calls(spmt_comm *world, void *arg)
{
	spmt_comm *turned, *half, *quarter;

	(void)arg;
	REQUIRE_OK(spmt_split(world, 0, -spmt_rank(world), &turned));
	REQUIRE_EQ(spmt_rank(turned), spmt_nranks(world) - 1 - spmt_rank(world));
	TRY(same_peers(world, turned));
	TRY(halve(world, &half));
	TRY(halve(half, &quarter));
	TRY(calls(turned));
	TRY(calls(half));
	TRY(calls(quarter));
	TRY(calls(world));
	REQUIRE_OK(spmt_finalize(quarter));
	REQUIRE_OK(spmt_finalize(turned));
	TRY(calls(half));
	return spmt_finalize(half);
}

Test(split, all_calls_on_parts, .timeout = 240)
{
	in_layouts(LAYOUTS, all_calls);
}

/* A symmetric address is good on all comms of the rank, and a store through one ends a wait through another. */
static int one_heap(spmt_comm *world, void *arg)
{
	uint64_t *word, got;
	spmt_comm *half;
	int me;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 2, sizeof(*word), (void **)&word));
	TRY(halve(world, &half));
	me = spmt_rank(half);
	for (uint64_t i = 1; i <= 50; i++) {
		/* round the ring of the half, waiting on the world's comm in every other round */
		if (me == 0)
			REQUIRE_OK(spmt_signal(half, word, i, SPMT_SIGNAL_SET, 1));
		REQUIRE_OK(spmt_signal_wait(i % 2 ? world : half, word, SPMT_CMP_EQ, i, &got));
		if (me > 0)
			REQUIRE_OK(spmt_signal(half, word, i, SPMT_SIGNAL_SET, (me + 1) % 4));
	}
	REQUIRE_EQ(spmt_ptr(half, word, me) == word, 1);
	REQUIRE(spmt_ptr(half, word, 3) == spmt_ptr(world, word, spmt_rank(world) % 2));
	REQUIRE_CODE(spmt_put(half, word, &got, sizeof(got), 4), -EINVAL);
	REQUIRE_OK(spmt_finalize(half));
	return spmt_free(world, word);
}

Test(split, one_heap)
{
	everywhere(one_heap);
}

/* Such a wait ends by the bell, not when it looks again: half a millisecond where that takes one or more. */
static int rung(spmt_comm *world, void *arg)
{
	int64_t best = INT64_MAX;
	uint64_t *word;
	spmt_comm *half;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 2, sizeof(*word), (void **)&word));
	TRY(halve(world, &half));
	for (uint64_t i = 1; i <= 40; i++) {
		int64_t begin = now_ns();

		if (spmt_rank(world) == 0) {
			sleep_ms(3);
			REQUIRE_OK(spmt_put(half, word, &i, sizeof(i), 2));
			REQUIRE_OK(spmt_signal_wait(half, word + 1, SPMT_CMP_EQ, i, NULL));
			begin = now_ns() - begin - 3000000;
			best = begin < best ? begin : best;
		} else if (spmt_rank(world) == 2) {
			REQUIRE_OK(spmt_signal_wait(world, word, SPMT_CMP_EQ, i, NULL));
			REQUIRE_OK(spmt_signal(half, word + 1, i, SPMT_SIGNAL_SET, 3));
		}
	}
	if (spmt_rank(world) == 0)
		REQUIRE(SANITIZED || best < 500000);
	return spmt_finalize(half);
}

Test(split, stores_ring_across_comms)
{
	NEEDS_HOST("a word in a GPU's memory is looked at, not slept on");
	everywhere(rung);
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

/* Halves that have allocated and freed differently agree on an offset that is free on all. */
static int offsets(spmt_comm *world, void *arg)
{
	int me = spmt_rank(world);
	uint64_t *told, seed = 5;
	spmt_comm *half;
	char *odd[40], *both[40];

	(void)arg;
	REQUIRE_OK(spmt_malloc(world, 8 * sizeof(*told), (void **)&told));
	TRY(halve(world, &half));
	for (int i = 0; i < 40; i++) {
		size_t mine = 64 + (size_t)(me % 2 ? i * 1000 : 50000 - i * 1000);

		REQUIRE_OK(spmt_malloc(half, mine, (void **)&odd[i]));
		TRY(sym_fill(half, odd[i], mine, (uint64_t)i));
		if (me % 2 && i % 3 == 2)
			REQUIRE_OK(spmt_free(half, odd[i - 1]));
		REQUIRE_OK(spmt_calloc(world, random_next(&seed) % 9000, 1, (void **)&both[i]));
		TRY(every_call_same(world, told, (uint64_t)(both[i] - (char *)told)));
	}
	for (int i = 0; i < 40; i++) {
		size_t mine = 64 + (size_t)(me % 2 ? i * 1000 : 50000 - i * 1000);

		if (me % 2 && i % 3 == 1 && i < 39)
			continue;
		TRY(sym_check(half, odd[i], mine, (uint64_t)i));
	}
	/* a block is freed on the comm that it is of */
	REQUIRE_CODE(spmt_free(half, both[3]), -EINVAL);
	REQUIRE_SAYS("another comm");
	REQUIRE_CODE(spmt_free(world, odd[3]), -EINVAL);
	for (int i = 0; i < 40; i += 2)
		REQUIRE_OK(spmt_free(world, both[i]));
	REQUIRE_OK(spmt_finalize(half));
	/* what the halves had is free again: one block of nearly all the heap */
	for (int i = 1; i < 40; i += 2)
		REQUIRE_OK(spmt_free(world, both[i]));
	REQUIRE_OK(spmt_malloc(world, (16u << 20) - 4096, (void **)&both[0]));
	return spmt_free(world, both[0]);
}

Test(split, offsets_agree)
{
	everywhere(offsets);
}

/* One half has filled its heaps: no room on some is no room for all, and nothing is lost. */
static int full(spmt_comm *world, void *arg)
{
	spmt_comm *half;
	void *big, *none;

	(void)arg;
	TRY(halve(world, &half));
	REQUIRE_OK(spmt_malloc(half, (spmt_rank(world) % 2 ? 15u : 2u) << 20, &big));
	REQUIRE_CODE(spmt_malloc(world, 2u << 20, &none), -ENOMEM);
	REQUIRE_OK(spmt_malloc(world, 1u << 19, &none));
	REQUIRE_OK(spmt_free(world, none));
	REQUIRE_OK(spmt_free(half, big));
	REQUIRE_OK(spmt_malloc(world, 15u << 20, &none));
	REQUIRE_OK(spmt_free(world, none));
	return spmt_finalize(half);
}

Test(split, a_full_half)
{
	everywhere(full);
}

static int registered(spmt_comm *world, void *arg)
{
	spmt_comm *half;
	spmt_mem *mem;
	char *block, byte = 0;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 1, 256, (void **)&block));
	TRY(halve(world, &half));
	REQUIRE_OK(spmt_register(half, block + spmt_rank(half), 32, &mem));
	byte = (char)('a' + spmt_rank(half));
	REQUIRE_OK(spmt_mem_put(half, mem, 7, &byte, 1, (spmt_rank(half) + 1) % 4));
	REQUIRE_OK(spmt_barrier(half));
	TRY(sym_check_byte(half, block + spmt_rank(half) + 7, 'a' + (spmt_rank(half) + 3) % 4, 1));
	REQUIRE_CODE(spmt_mem_put(world, mem, 0, &byte, 1, 0), -EINVAL);
	REQUIRE_SAYS("on another comm");
	REQUIRE_OK(spmt_barrier(world)); /* or a later registration may be at its address */
	REQUIRE_OK(spmt_finalize(half)); /* and with it the registration */
	REQUIRE(!spmt_mem_ptr(mem, 0));
	return spmt_free(world, block);
}

Test(split, registered_buffers)
{
	everywhere(registered);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------ */

struct ring_args {
	struct spmt_view view;
	uint64_t *word;
	int *code;
};

static void ring_kernel(void *args)
{
	struct ring_args *a = args;
	const struct spmt_view *v = &a->view;
	int me = spmtd_my_pe(v), n = spmtd_n_pes(v);

	for (uint64_t i = 1; i <= 20 && !*a->code; i++) {
		spmtd_uint64_p(v, a->word + me, 100 * i + (uint64_t)me, (me + 1) % n);
		*a->code = spmtd_barrier(v);
		if (a->word[(me + n - 1) % n] != 100 * i + (uint64_t)((me + n - 1) % n))
			*a->code = -1;
		if (!*a->code)
			*a->code = spmtd_barrier(v);
	}
}

static int ring(spmt_comm *comm, uint64_t *words, int *code)
{
	struct ring_args args = {
		.view = { .size = sizeof(args.view) }, .word = words, .code = code
	};

	REQUIRE_OK(spmt_view_get(comm, &args.view));
	return spmt_host_launch(comm, NULL, ring_kernel, &args, sizeof(args));
}

/* Kernels of two comms of a rank at once, each with its own barriers. */
static int kernels(spmt_comm *world, void *arg)
{
	uint64_t *words;
	int on_world = 0, on_half = 0;
	spmt_comm *half;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 16, sizeof(*words), (void **)&words));
	TRY(halve(world, &half));
	REQUIRE_OK(ring(world, words, &on_world));
	REQUIRE_OK(ring(half, words + 8, &on_half));
	REQUIRE_OK(spmt_quiet(half));
	REQUIRE_OK(spmt_quiet(world));
	REQUIRE_EQ(on_world, 0);
	REQUIRE_EQ(on_half, 0);
	REQUIRE_OK(spmt_barrier(world));
	return spmt_finalize(half);
}

Test(split, kernels)
{
	NEEDS_HOST("kernels are C functions");
	everywhere(kernels);
}

/* ---- ends ---------------------------------------------------------------------------------------------------------- */

/* Comms that were split from one that ends, end with it. */
static int with_their_parent(spmt_comm *world, void *arg)
{
	spmt_comm *half, *quarter, *other;
	void *block;

	(void)arg;
	TRY(halve(world, &half));
	TRY(halve(half, &quarter));
	REQUIRE_OK(spmt_malloc(quarter, 1u << 20, &block));
	REQUIRE_OK(spmt_split(world, 0, 0, &other));
	REQUIRE_OK(spmt_put_nbi(quarter, block, block, 1u << 20, 0));
	REQUIRE_OK(spmt_finalize(half));
	REQUIRE_CODE(spmt_barrier(half), -EBADF);
	REQUIRE_CODE(spmt_barrier(quarter), -EBADF);
	REQUIRE_CODE(spmt_finalize(quarter), -EBADF);
	REQUIRE_OK(spmt_barrier(other));
	REQUIRE_OK(spmt_malloc(other, 15u << 20, &block));
	return 0; /* `other` is the world's to end */
}

Test(split, ends_with_its_parent)
{
	everywhere(with_their_parent);
}

/* A collective that times out breaks the part and nothing else. */
static int alone(spmt_comm *world, void *arg)
{
	int me = spmt_rank(world), code;
	spmt_comm *half;
	char whole[64];
	void *block;

	(void)arg;
	REQUIRE_OK(spmt_set_timeout(world, 9000));
	TRY(halve(world, &half));
	REQUIRE_OK(spmt_malloc(half, 1000, &block));
	REQUIRE_OK(spmt_set_timeout(half, 150));
	if (me > 1) {
		code = spmt_barrier(half);
		REQUIRE_CODE(code, SPMT_ERR_TIMEOUT);
		REQUIRE_SAYS("spmt_barrier: ");
		REQUIRE_SAYS("1 of 4 ranks missing after 0.");
		REQUIRE_SAYS(" s: 3");
		REQUIRE_CODE(spmt_status(half), SPMT_ERR_TIMEOUT);
		REQUIRE_CODE(spmt_sync(half), SPMT_ERR_BROKEN);
		snprintf(whole, sizeof(whole), "rank %d: the comm is broken", spmt_rank(half));
		REQUIRE_SAYS(whole);
	}
	REQUIRE_OK(spmt_barrier(world));
	while (!spmt_status(half)) /* where it is told by a message */
		sleep_ms(1);
	REQUIRE_CODE(spmt_barrier(half), SPMT_ERR_BROKEN);
	REQUIRE_OK(spmt_status(world));
	REQUIRE_OK(spmt_finalize(half));
	TRY(halve(world, &half));
	TRY(calls(half));
	TRY(calls(world));
	return spmt_finalize(half);
}

Test(split, breaks_alone)
{
	everywhere(alone);
}

/* Waits of all kinds on a part end when it is aborted; those on the world go on. */
static int aborted(spmt_comm *world, void *arg)
{
	int me = spmt_rank(world), code;
	uint64_t *word;
	spmt_comm *half;

	(void)arg;
	REQUIRE_OK(spmt_calloc(world, 1, sizeof(*word), (void **)&word));
	TRY(halve(world, &half));
	REQUIRE_OK(spmt_set_timeout(half, -1));
	if (me == 0) {
		sleep_ms(20);
		REQUIRE_OK(spmt_abort(half, -55));
	} else if (me == 2) {
		REQUIRE_CODE(spmt_barrier(half), -55);
	} else if (me == 4) {
		REQUIRE_CODE(spmt_signal_wait(half, word, SPMT_CMP_EQ, 9, NULL), -55);
		REQUIRE_SAYS("rank 3 aborted the comm");
	} else if (me == 6) {
		code = spmt_barrier_on_stream(half, NULL); /* or this is late for it */
		REQUIRE_CODE(code ? code : spmt_quiet(half), -55);
	} else {
		REQUIRE_OK(spmt_barrier(half));
	}
	REQUIRE_OK(spmt_barrier(world));
	REQUIRE_CODE(spmt_status(half), me % 2 ? 0 : -55);
	return spmt_finalize(half);
}

Test(split, aborted_alone)
{
	everywhere(aborted);
}

/* What breaks the world breaks its parts, and parts of parts. */
static int together(int rank, void *arg)
{
	struct processes *p = arg;
	struct spmt_attr attr = ranks_attr(rank, 8, &p->uid[0]);
	spmt_comm *world, *half, *quarter;
	_Atomic int *ready = p->shared;

	attr.timeout_ms = -1;
	attr.heap_size = 16u << 20;
	REQUIRE_OK(spmt_init(&attr, &world));
	ranks_watch(world);
	TRY(halve(world, &half));
	TRY(halve(half, &quarter));
	if (rank == 0) {
		while (atomic_load(ready) < 7 && !spmt_status(world))
			sleep_ms(1);
		sleep_ms(20);
		REQUIRE_OK(spmt_abort(world, -44));
	} else if (rank % 2) {
		REQUIRE_OK(spmt_barrier(half));
		REQUIRE_CODE(spmt_signal_wait(quarter, NULL, SPMT_CMP_EQ, 0, NULL), -EINVAL);
		atomic_fetch_add(ready, 1);
	} else {
		atomic_fetch_add(ready, 1);
		REQUIRE_CODE(spmt_barrier(rank == 4 ? quarter : world), -44);
	}
	while (!spmt_status(world))
		sleep_ms(1);
	REQUIRE_CODE(spmt_status(quarter), -44);
	REQUIRE_SAYS("its world is broken: spmt_abort: rank 0 aborted the world");
	REQUIRE_CODE(spmt_barrier(half), -44);
	ranks_watch(NULL);
	REQUIRE_OK(spmt_finalize(world));
	REQUIRE_CODE(spmt_status(quarter), -EBADF);
	return 0;
}

Test(split, breaks_with_its_world)
{
	for (int i = 0; i < (opening_s() ? 1 : LAYOUTS); i++) {
		struct processes p = { .layout = layouts[i] };

		p.shared = processes_shared(sizeof(int));
		RANKS_OK(processes_run(&p, together, &p));
	}
}

/* ---- many ------------------------------------------------------------------------------------------------------------ */

static int cycles(spmt_comm *world, void *arg)
{
	uint64_t seed = 11;
	void *block;

	(void)arg;
	for (size_t i = 0, n = test_count(300, 3000); i < n; i++) {
		int color = (int)((random_next(&seed) >> spmt_rank(world)) % 3);
		spmt_comm *part;

		REQUIRE_OK(spmt_split(world, color, 0, &part));
		REQUIRE_OK(spmt_malloc(part, (i % 7) << 17, &block));
		REQUIRE_OK(spmt_barrier(part));
		REQUIRE_OK(spmt_finalize(part));
	}
	REQUIRE_OK(spmt_malloc(world, 15u << 20, &block));
	return 0;
}

Test(split, comes_and_goes)
{
	everywhere(cycles);
}

Test(split, leaves_nothing)
{
	for (int i = 1; i < 3; i++) {
		struct processes p = { .layout = layouts[i],
			.cycles = 8,
			.slack = { .fds = 0, .threads = 0, .maps = 8, .rss_kib = 8192 } };

		RANKS_OK(processes_world(&p, cycles, &p));
	}
}

/* Alive at once: as many as there is room for, then an error on all, and room again when some have gone. */
static int crowd(spmt_comm *world, void *arg)
{
	static const int most = 4000;
	spmt_comm *parts[28], *last, *none = NULL;
	int code = 0, n = 0;

	(void)arg;
	for (int i = 0; i < 28; i++)
		REQUIRE_OK(spmt_split(world, 0, 0, &parts[i]));
	for (last = parts[27]; n < most; n++) {
		code = spmt_split(world, spmt_rank(world), 0, &none);
		if (code)
			break;
	}
	REQUIRE_CODE(code, -ENOMEM);
	REQUIRE_OK(spmt_barrier(last));
	for (int i = 0; i < 8; i++)
		REQUIRE_OK(spmt_finalize(parts[i]));
	REQUIRE_OK(spmt_split(world, 0, 0, &last));
	REQUIRE_OK(spmt_barrier(last));
	return 0;
}

Test(split, no_more_room)
{
	struct processes p = { .layout = layouts[1] };

	RANKS_OK(processes_world(&p, crowd, &p));
}

/* The words of the first parts lie where the heap begins. */
static int all_given_back(spmt_comm *world, void *arg)
{
	spmt_comm *parts[20];
	void *all;

	(void)arg;
	for (int turn = 0; turn < 2; turn++) {
		for (int i = 0; i < 20; i++)
			REQUIRE_OK(spmt_split(world, 0, 0, &parts[i]));
		for (int i = 0; i < 20; i++)
			REQUIRE_OK(spmt_finalize(parts[i]));
		REQUIRE_OK(spmt_malloc(world, (16u << 20) - 4096, &all));
		REQUIRE_OK(spmt_free(world, all));
	}
	return 0;
}

Test(split, gives_all_back)
{
	everywhere(all_given_back);
}
