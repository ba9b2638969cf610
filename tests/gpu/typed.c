/* SPDX-License-Identifier: MIT */
/* The typed device calls: 11 types x forms x scopes, on the heap and on registered buffers;
   single elements, too. */
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "kernels/typed.h"

enum { POISON = 0x5e, ROOM = 8192, AT = 512, COUNTS = 9 };

#define X(name, T) sizeof(T),
static const size_t type_bytes[TYPES_OF] = { TYPES(X) };
#undef X
#define X(name, T) #name,
static const char *const type_names[TYPES_OF] = { TYPES(X) };
#undef X
static const char *const form_names[TYPED_FORMS] = { "put", "put_nbi", "get", "get_nbi", "p", "g" };
static const uint64_t counts[COUNTS] = { 0, 1, 2, 3, 7, 16, 33, 100, 513 };

struct scene {
	struct rank r;
	unsigned char *dst, *src; /* symmetric */
	spmt_mem *mem;		  /* dst, then src, of a buffer that is not symmetric */
	unsigned char *outside;
	struct spmt_mem_view view;
	unsigned char next[ROOM], prev[ROOM]; /* their src */
};

static int scene_open(struct scene *s, spmt_comm *comm)
{
	unsigned char own[ROOM];
	void *p;

	memset(s, 0, sizeof(*s));
	TRY(rank_open(&s->r, comm));
	REQUIRE_OK(spmt_malloc(comm, ROOM, &p));
	s->dst = p;
	REQUIRE_OK(spmt_malloc(comm, ROOM, &p));
	s->src = p;
	TRY(rank_alloc(&s->r, 2 * ROOM, &p));
	s->outside = p;
	REQUIRE_OK(spmt_register(comm, s->outside, 2 * ROOM, &s->mem));
	s->view.size = sizeof(s->view);
	REQUIRE_OK(spmt_mem_view_get(comm, s->mem, &s->view));
	pattern_fill(own, ROOM, (uint64_t)s->r.pe + 7);
	pattern_fill(s->next, ROOM, (uint64_t)s->r.next + 7);
	pattern_fill(s->prev, ROOM, (uint64_t)s->r.prev + 7);
	TRY(rank_write(&s->r, s->src, own, ROOM));
	TRY(rank_write(&s->r, s->outside + ROOM, own, ROOM));
	REQUIRE_OK(spmt_barrier(comm));
	return 0;
}

static bool is_get(int form)
{
	return form == TYPED_GET || form == TYPED_GET_NBI || form == TYPED_G;
}

static int check(const struct scene *s, const unsigned char *dst, const struct typed_args *a)
{
	const unsigned char *want = is_get(a->form) ? s->next : s->prev;
	size_t bytes = a->count * type_bytes[a->type];

	for (size_t i = 0; i < ROOM; i++) {
		bool inside = i >= AT && i < AT + bytes;

		if (dst[i] != (inside ? want[i - AT] : POISON))
			return ranks_fail("%s%s_%s, scope %d, %llu elements: byte %td is %#x",
				a->on_mem ? "mem_" : "", type_names[a->type], form_names[a->form],
				a->scope, (unsigned long long)a->count, (ptrdiff_t)i - AT, dst[i]);
	}
	return 0;
}

static int one_call(struct scene *s, struct typed_args *a)
{
	bool get = is_get(a->form), mem = a->on_mem;
	/* The remote side is on the heap or in the buffer, the local one in the other. */
	unsigned char *dst = get == mem ? s->dst : s->outside;
	unsigned char *src = get == mem ? s->outside + ROOM : s->src;
	unsigned char seen[ROOM];

	a->view = s->r.view;
	a->mem = s->view;
	a->pe = s->r.next;
	a->dst = mem && !get ? AT : addr(dst + AT);
	a->src = mem && get ? ROOM : addr(src);
	TRY(rank_fill(&s->r, dst, POISON, ROOM));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	RANK_STEP(&s->r, test_typed, 2, 96, *a);
	TRY(rank_read(&s->r, seen, dst, ROOM));
	return check(s, seen, a);
}

struct part {
	int form, on_mem;
};

static int typed(spmt_comm *comm, void *arg)
{
	const struct part *p = arg;
	struct scene *s = malloc(sizeof(*s));
	struct typed_args a;
	int scopes = p->form == TYPED_P || p->form == TYPED_G ? 1 : SCOPES;

	REQUIRE(s);
	TRY(scene_open(s, comm));
	for (int i = 0; i < TYPES_OF * scopes * COUNTS; i++) {
		memset(&a, 0, sizeof(a));
		a.form = p->form;
		a.on_mem = p->on_mem;
		a.type = i % TYPES_OF;
		a.scope = i / TYPES_OF % scopes;
		a.count = counts[i / TYPES_OF / scopes];
		TRY(one_call(s, &a));
	}
	REQUIRE_OK(spmt_deregister(comm, s->mem));
	rank_free(&s->r, s->outside);
	rank_close(&s->r);
	free(s);
	return 0;
}

static int run_forms(int n, int on_mem)
{
	struct part part = { .on_mem = on_mem };
	int rc = 0;

	for (part.form = 0; part.form < TYPED_FORMS && !rc; part.form++)
		rc = gpu_run(n, 4u << 20, typed, &part);
	return rc;
}

static int run_heap(int n)
{
	return run_forms(n, 0);
}

static int run_mem(int n)
{
	return run_forms(n, 1);
}

static const struct gpu_test tests[] = {
	{ "typed_calls", run_heap, 1 },
	{ "typed_calls_on_registered_buffers", run_mem, 1 },
};
static const struct test_kernel *const kernels[] = { &test_typed, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
