/* SPDX-License-Identifier: MIT */
/* Every device copy: forms x scopes x sizes x misalignments, into poisoned memory, against the
   host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "kernels/copies.h"

enum { POISON = 0xc3, SMALL_MOST = 257, BATCH = 43 }; /* 258 sizes are 6 batches */
enum { COPIES = (int)COPY_FORMS * (int)SCOPES };

static const char *const form_names[COPY_FORMS] = { "put", "put_nbi", "get", "get_nbi",
	"put_signal", "put_signal_nbi" };

struct scene {
	struct rank r;
	size_t room, src_size;
	uint32_t calls_most, pair; /* pair: the next of shifts */
	unsigned char *dst, *src;  /* symmetric */
	uint64_t *sig;		   /* symmetric */
	unsigned char *outside[2]; /* of the device: dst and src that are not symmetric */
	spmt_mem *mem[2];	   /* they, registered */
	struct spmt_mem_view mem_view[2];
	unsigned char *seen;	/* what came, on the host */
	unsigned char *data[2]; /* what next and prev have in src */
	unsigned char poison[256];
};

static bool is_get(int form)
{
	return form == GET || form == GET_NBI;
}

static bool has_signal(int form)
{
	return form == PUT_SIGNAL || form == PUT_SIGNAL_NBI;
}

static int scene_memory(struct scene *s)
{
	void *p;

	REQUIRE_OK(spmt_malloc(s->r.comm, s->room, &p));
	s->dst = p;
	REQUIRE_OK(spmt_malloc(s->r.comm, s->src_size, &p));
	s->src = p;
	REQUIRE_OK(spmt_malloc(s->r.comm, s->calls_most * sizeof(*s->sig), &p));
	s->sig = p;
	TRY(rank_alloc(&s->r, s->room, &p));
	s->outside[0] = p;
	TRY(rank_alloc(&s->r, s->src_size, &p));
	s->outside[1] = p;
	for (int i = 0; i < 2; i++) {
		REQUIRE_OK(spmt_register(
			s->r.comm, s->outside[i], i ? s->src_size : s->room, &s->mem[i]));
		s->mem_view[i].size = sizeof(s->mem_view[i]);
		REQUIRE_OK(spmt_mem_view_get(s->r.comm, s->mem[i], &s->mem_view[i]));
		s->data[i] = malloc(s->src_size);
		REQUIRE(s->data[i]);
	}
	s->seen = malloc(s->room);
	REQUIRE(s->seen);
	return 0;
}

static int scene_open(struct scene *s, spmt_comm *comm, size_t room, size_t src_size)
{
	memset(s, 0, sizeof(*s));
	s->room = room;
	s->src_size = src_size;
	s->calls_most = BATCH * SIDE * SIDE;
	memset(s->poison, POISON, sizeof(s->poison));
	TRY(rank_open(&s->r, comm));
	TRY(scene_memory(s));
	pattern_fill(s->data[0], src_size, (uint64_t)s->r.pe + 1);
	TRY(rank_write(&s->r, s->src, s->data[0], src_size));
	TRY(rank_write(&s->r, s->outside[1], s->data[0], src_size));
	pattern_fill(s->data[0], src_size, (uint64_t)s->r.next + 1);
	pattern_fill(s->data[1], src_size, (uint64_t)s->r.prev + 1);
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static int scene_close(struct scene *s)
{
	for (int i = 0; i < 2; i++) {
		REQUIRE_OK(spmt_deregister(s->r.comm, s->mem[i]));
		rank_free(&s->r, s->outside[i]);
		free(s->data[i]);
	}
	free(s->seen);
	rank_close(&s->r);
	return 0;
}

/* All of one slot: guards, data, what follows up to the next slot. */
static size_t slot_differs(const struct scene *s, const unsigned char *slot, size_t slot_size,
	size_t shift, const unsigned char *data, size_t n)
{
	size_t at = GUARD + shift, i;

	if (!memcmp(slot, s->poison, at) && !memcmp(slot + at, data, n)) {
		for (i = at + n; i < slot_size; i += sizeof(s->poison)) {
			size_t left = slot_size - i;

			if (memcmp(slot + i, s->poison,
				    left < sizeof(s->poison) ? left : sizeof(s->poison)))
				break;
		}
		if (i >= slot_size)
			return SIZE_MAX;
	}
	for (i = 0; i < slot_size; i++) {
		bool inside = i >= at && i < at + n;

		if (slot[i] != (inside ? data[i - at] : POISON))
			break;
	}
	return i;
}

/* Blocks of whole and of broken warps, and of so many threads that puts go another way. */
static unsigned block_of(const struct copies_args *a)
{
	static const unsigned blocks[] = { 256, 1024, 96, 512, 1000 };

	return a->scope == BY_BLOCK ? blocks[(a->size + (unsigned)a->form) % 5] : 256;
}

static int check_slots(const struct scene *s, const struct copies_args *a)
{
	const unsigned char *data = s->data[is_get(a->form) ? 0 : 1];

	for (uint32_t c = 0; c < a->calls; c++) {
		const unsigned char *slot = s->seen + c * a->slot;
		size_t n = a->size + c / a->each, to = copies_dst_shift(a, c),
		       from = copies_src_shift(a, c),
		       at = slot_differs(s, slot, a->slot, to, data + from, n);

		if (at != SIZE_MAX)
			return ranks_fail(
				"%s%s by a %s of %u, %zu bytes, dst shift %zu, src shift %zu: byte %td is %#x",
				a->on_mem ? "mem_" : "", form_names[a->form], scope_names[a->scope],
				block_of(a), n, to, from, (ptrdiff_t)at - GUARD - (ptrdiff_t)to,
				slot[at]);
	}
	return 0;
}

static int check_signals(struct scene *s, const struct copies_args *a)
{
	uint64_t *seen = malloc(a->calls * sizeof(*seen));
	uint64_t want = has_signal(a->form);
	int rc;

	REQUIRE(seen);
	rc = rank_read(&s->r, seen, s->sig, a->calls * sizeof(*seen));
	for (uint32_t c = 0; c < a->calls && !rc; c++)
		if (seen[c] != want)
			rc = ranks_fail("%s by a %s: signal %u is %llu, not %llu",
				form_names[a->form], scope_names[a->scope], c,
				(unsigned long long)seen[c], (unsigned long long)want);
	free(seen);
	return rc;
}

/* Which side is where: the remote one symmetric or an offset, the local one of the other kind. */
static void set_sides(const struct scene *s, struct copies_args *a)
{
	bool get = is_get(a->form);

	a->mem = s->mem_view[get];
	if (!a->on_mem) {
		a->dst = addr(get ? s->outside[0] : s->dst);
		a->src = addr(get ? s->src : s->outside[1]);
	} else {
		a->dst = get ? addr(s->dst) : 0;
		a->src = get ? 0 : addr(s->src);
	}
}

static int copies(struct scene *s, struct copies_args *a)
{
	bool outside = is_get(a->form) != (a->on_mem != 0);
	unsigned char *dst = outside ? s->outside[0] : s->dst;
	unsigned grid = a->scope == BY_BLOCK ? 64 : 32;
	size_t bytes = a->calls * a->slot;

	REQUIRE(bytes <= s->room && a->calls <= s->calls_most);
	a->view = s->r.view;
	a->pe = s->r.next;
	a->sig = addr(s->sig);
	set_sides(s, a);
	TRY(rank_fill(&s->r, dst, POISON, bytes));
	TRY(rank_fill(&s->r, s->sig, 0, a->calls * sizeof(*s->sig)));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	RANK_STEP(&s->r, test_copies, grid, block_of(a), *a);
	TRY(rank_read(&s->r, s->seen, dst, bytes));
	TRY(check_slots(s, a));
	return check_signals(s, a);
}

static size_t slot_of(size_t most)
{
	return (2 * GUARD + SIDE + most + 63) / 64 * 64;
}

/* ---- all sizes to 257, all pairs of shifts --------------------------------------------------- */

static int small_copies(spmt_comm *comm, void *arg)
{
	const size_t slot = slot_of(SMALL_MOST);
	const uint32_t step = (uint32_t)gpu_number(1, 3); /* batches left out on the host */
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm, BATCH * SIDE * SIDE * slot, 4096));
	for (uint32_t i = 0; i < COPIES * 2; i++)
		for (uint32_t size = 0; size <= SMALL_MOST; size += BATCH) {
			struct copies_args a = { .slot = slot,
				.size = size,
				.each = SIDE * SIDE,
				.calls = BATCH * SIDE * SIDE,
				.form = (int)(i % COPY_FORMS),
				.scope = (int)(i / COPY_FORMS % SCOPES),
				.on_mem = i >= COPIES };

			if ((i + size / BATCH) % step == 0)
				TRY(copies(&s, &a));
		}
	return scene_close(&s);
}

static int run_small(int n)
{
	return gpu_run(n, 32u << 20, small_copies, NULL);
}

/* ---- powers of two and their neighbours, to 4 MiB -------------------------------------------- */

/* Where not all pairs of shifts are tried at once, the next call goes on where the last one ended. */

static int one_large(struct scene *s, size_t size, uint32_t i)
{
	struct copies_args a = { .slot = slot_of(size),
		.size = size,
		.form = (int)(i % COPY_FORMS),
		.scope = (int)(i / COPY_FORMS % SCOPES),
		.on_mem = i >= COPIES,
		.first = s->pair };

	a.each = a.calls = size <= 4096 ? SIDE * SIDE : size <= 65536 ? 2 * SIDE : SIDE / 2;
	s->pair = (s->pair + a.calls) % (SIDE * SIDE);
	return copies(s, &a);
}

static int large_copies(spmt_comm *comm, void *arg)
{
	const size_t most = gpu_number(4u << 20, 32u << 10);
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm, SIDE / 2 * slot_of(most + 1) + (4u << 20), most + 64));
	for (size_t size = 512; size <= most; size *= 2)
		for (uint32_t i = 0; i < COPIES * 2; i++)
			for (size_t odd = 0; odd < 3; odd++)
				if (!gpu_host() || i % 3 == odd)
					TRY(one_large(&s, size + odd - 1, i));
	return scene_close(&s);
}

static int run_large(int n)
{
	return gpu_run(n, gpu_host() ? 16u << 20 : 64u << 20, large_copies, NULL);
}

/* ---- the stack and the block's shared memory ------------------------------------------------- */

static int through_locals(spmt_comm *comm, void *arg)
{
	struct scene s;

	(void)arg;
	TRY(scene_open(&s, comm, 65 * 128, 4096));
	for (int shared = 0; shared < 2; shared++) {
		struct locals_args a = { .view = s.r.view,
			.dst = addr(s.dst),
			.src = addr(s.src),
			.pe = s.r.next,
			.shared = shared };

		TRY(rank_fill(&s.r, s.dst, POISON, s.room));
		REQUIRE_OK(spmt_barrier(comm));
		RANK_STEP(&s.r, test_locals, 1, 32, a);
		TRY(rank_read(&s.r, s.seen, s.dst, s.room));
		/* what prev sent here came from here */
		pattern_fill(s.data[0], s.src_size, (uint64_t)s.r.pe + 1);
		for (size_t n = 1; n <= 64; n++) {
			REQUIRE(!memcmp(s.seen + 128 * n, s.data[0] + n, n));
			REQUIRE(!memcmp(s.seen + 128 * n + n, s.poison, 128 - n));
		}
	}
	return scene_close(&s);
}

static int run_locals(int n)
{
	return gpu_run(n, 8u << 20, through_locals, NULL);
}

static const struct gpu_test tests[] = {
	{ "copies_small", run_small, 1 },
	{ "copies_large", run_large, 1 },
	{ "copies_locals", run_locals, 1 },
};
static const struct test_kernel *const kernels[] = { &test_copies, &test_locals, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
