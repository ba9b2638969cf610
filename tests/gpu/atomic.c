/* SPDX-License-Identifier: MIT */
/* Atomics of every type by all threads of all ranks on the words of one rank: exact in the end
   and on the way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "kernels/atomics.h"

enum { GRID = 4, BLOCK = 128, THREADS = GRID * BLOCK, EACH = 8, OPS = THREADS * EACH };

#define X(name, T) sizeof(T),
static const uint32_t type_bytes[TYPES_OF] = { TYPES(X) };
#undef X
#define X(name, T) #name,
static const char *const type_names[TYPES_OF] = { TYPES(X) };
#undef X
static const char *const form_names[ATOMIC_FORMS] = { "add", "inc", "fetch_add", "fetch_inc",
	"swap", "compare_swap", "set", "and, or and xor" };

struct scene {
	struct rank r;
	void *target;
	uint64_t *results; /* symmetric: rank 0 gets all ranks' */
	uint64_t *all;	   /* on the host, rank 0 */
	uint32_t *tally;
	struct outcome *outcome;
};

static bool is_float(int type)
{
	return type == TYPE_OF_float || type == TYPE_OF_double;
}

/* An integer that is as wide as the type, by its bits; floats hold integers here. */
static uint64_t value_of(int type, uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	double d;
	float f;

	if (type == TYPE_OF_double) {
		memcpy(&d, &bits, sizeof(d));
		return (uint64_t)d;
	}
	if (type == TYPE_OF_float) {
		memcpy(&f, &low, sizeof(f));
		return (uint64_t)f;
	}
	return type_bytes[type] == 8 ? bits : bits & ((1ull << (8 * type_bytes[type])) - 1);
}

static uint64_t mask_of(int type)
{
	if (is_float(type) || type_bytes[type] == 8)
		return UINT64_MAX;
	return (1ull << (8 * type_bytes[type])) - 1;
}

/* Sums start just below the wrap. */
static uint64_t start_of(const struct atomics_args *a)
{
	bool sums = a->form <= ATOMIC_FETCH_INC || a->form == ATOMIC_CAS;

	return sums && !is_float(a->type) ? mask_of(a->type) - 99 : 0;
}

static int wrong(const struct atomics_args *a, const char *what, uint64_t seen, uint64_t want)
{
	return ranks_fail("%s of %s on rank %d: %s %#llx, not %#llx", form_names[a->form],
		type_names[a->type], a->pe, what, (unsigned long long)seen,
		(unsigned long long)want);
}

/* How often each of 0 .. n was seen, from `start` on, must be how often it was made, modulo the
   type's width. */
static int check_fetched(struct scene *s, const struct atomics_args *a, uint64_t final)
{
	uint64_t n = (uint64_t)OPS * (uint64_t)s->r.n, mask = mask_of(a->type), start = start_of(a);
	bool swap = a->form == ATOMIC_SWAP;

	memset(s->tally, 0, (n + 1) * sizeof(*s->tally));
	for (uint64_t k = 0; k < n + swap; k++) {
		/* A swap brings 1 .. n and takes 0 .. n: the last is still there. */
		uint64_t bits = k < n ? s->all[k] : final,
			 seen = (value_of(a->type, bits) - start) & mask;

		if (seen > n)
			return wrong(a, "fetched", seen, n);
		s->tally[seen]++;
		s->tally[k & mask]--;
	}
	for (uint64_t k = 0; k <= n; k++)
		if (s->tally[k])
			return wrong(a, "fetched not exactly once", k, s->tally[k]);
	return 0;
}

/* Each value seen was set by somebody, whole: one of 1 .. n, which only a type that is as narrow as n wraps to 0. */
static int check_set(struct scene *s, const struct atomics_args *a, uint64_t final)
{
	uint64_t n = (uint64_t)OPS * (uint64_t)s->r.n, zeros = 0;
	uint32_t half = type_bytes[a->type] * 4;
	bool halves = !is_float(a->type) && type_bytes[a->type] > 1;
	bool wraps = !is_float(a->type) && type_bytes[a->type] <= 2;

	for (uint64_t k = 0; k <= n; k++) {
		uint64_t seen = value_of(a->type, k < n ? s->all[k] : final);
		uint64_t number = halves ? seen & ((1ull << half) - 1) : seen;

		if (halves && number != seen >> half)
			return wrong(a, "torn", seen, 0);
		if (number > n || (!number && !wraps))
			return wrong(a, "seen", seen, n);
		zeros += !number;
	}
	return zeros > n ? wrong(a, "never set", zeros, 0) : 0;
}

static int check_bits(struct scene *s, const struct atomics_args *a)
{
	uint64_t owners = (uint64_t)THREADS * (uint64_t)s->r.n;
	unsigned char seen[THREADS];

	for (uint64_t at = 0; at < owners / 8; at += THREADS) {
		TRY(rank_read(&s->r, seen, (unsigned char *)s->target + at,
			owners / 8 - at < THREADS ? owners / 8 - at : THREADS));
		for (uint64_t i = at; i < owners / 8 && i < at + THREADS; i++)
			if (seen[i - at] != 0xff)
				return wrong(a, "left", seen[i - at], 0xff);
	}
	return 0;
}

/* On rank 0, which has everybody's results; the target's final value came with them. */
static int check_all(struct scene *s, const struct atomics_args *a, uint64_t final)
{
	uint64_t n = (uint64_t)OPS * (uint64_t)s->r.n;
	uint64_t want = (start_of(a) + n) & mask_of(a->type);
	bool sums = a->form <= ATOMIC_FETCH_INC || a->form == ATOMIC_CAS;

	if (sums && value_of(a->type, final) != want)
		return wrong(a, "final", value_of(a->type, final), want);
	if (a->form == ATOMIC_SET)
		return check_set(s, a, final);
	return a->form >= ATOMIC_FETCH_ADD ? check_fetched(s, a, final) : 0;
}

/* All ranks' results to rank 0. */
static int gather(struct scene *s)
{
	uint64_t *mine = s->results + (size_t)s->r.pe * OPS;

	if (s->r.pe != 0)
		REQUIRE_OK(spmt_put(s->r.comm, mine, mine, OPS * 8, 0));
	REQUIRE_OK(spmt_barrier(s->r.comm));
	return s->r.pe ? 0 : rank_read(&s->r, s->all, s->results, OPS * 8 * (size_t)s->r.n);
}

static int one_form(struct scene *s, struct atomics_args *a)
{
	uint64_t start = start_of(a), final = 0;
	spmt_comm *comm = s->r.comm;
	char what[64];

	snprintf(what, sizeof(what), "%s of %s", form_names[a->form], type_names[a->type]);
	TRY(rank_fill(&s->r, s->target, 0, 4096));
	TRY(rank_write(&s->r, s->target, &start, type_bytes[a->type]));
	REQUIRE_OK(spmt_barrier(comm));
	RANK_STEP(&s->r, test_atomics, GRID, BLOCK, *a);
	TRY(outcome_check(&s->r, s->outcome, what));
	if (a->form == ATOMIC_BITS)
		return s->r.pe == a->pe ? check_bits(s, a) : 0;
	TRY(gather(s));
	if (s->r.pe == 0) {
		REQUIRE_OK(spmt_get(comm, s->results + (size_t)s->r.n * OPS, s->target, 8, a->pe));
		REQUIRE_OK(spmt_quiet(comm));
		TRY(rank_read(&s->r, &final, s->results + (size_t)s->r.n * OPS, 8));
	}
	REQUIRE_OK(spmt_barrier(comm)); /* before the target is used again */
	return s->r.pe == 0 ? check_all(s, a, final) : 0;
}

static int open_scene(struct scene *s, spmt_comm *comm)
{
	void *p;

	TRY(rank_open(&s->r, comm));
	TRY(outcome_open(&s->r, &s->outcome));
	REQUIRE_OK(spmt_malloc(comm, 4096, &s->target));
	REQUIRE_OK(spmt_malloc(comm, (size_t)OPS * 8 * (size_t)(s->r.n + 1), &p));
	s->results = p;
	s->all = calloc((size_t)OPS * (size_t)s->r.n, sizeof(*s->all));
	s->tally = calloc((size_t)OPS * (size_t)s->r.n + 2, sizeof(*s->tally));
	REQUIRE(s->all && s->tally);
	return 0;
}

static void close_scene(struct scene *s)
{
	free(s->all);
	free(s->tally);
	rank_close(&s->r);
}

static int atomics(spmt_comm *comm, void *arg)
{
	struct scene s = { .target = NULL };
	struct atomics_args a = { .threads = THREADS, .each = EACH };

	a.form = *(const int *)arg;
	TRY(open_scene(&s, comm));
	a.view = s.r.view;
	a.target = addr(s.target);
	a.results = addr(s.results + (size_t)s.r.pe * OPS);
	a.outcome = addr(s.outcome);
	a.first = (uint64_t)s.r.pe * OPS;
	for (a.type = 0; a.type < TYPES_OF; a.type++)
		for (a.pe = 0; a.pe<s.r.n; a.pe += s.r.n> 1 ? s.r.n - 1 : 1)
			if (a.form != ATOMIC_BITS || !is_float(a.type))
				TRY(one_form(&s, &a));
	close_scene(&s);
	return 0;
}

/* ---- sums of halves ------------------------------------------------------------------------- */

/* Between the elements: a NaN in either format that arithmetic would not leave as it is. */
enum { BESIDE = 0x7f81, PLACES = 2048 };

static uint16_t half_of(const struct halves_args *a, uint64_t x)
{
	return a->bfloat16 ? spmtd_bfloat16_nearest_((float)x) : spmtd_half_nearest_((float)x);
}

/* Everything that lies there when each half of an element is `x`. */
static void image_of(const struct halves_args *a, uint64_t x, uint16_t *image)
{
	uint32_t halves = a->form >= HALF_PAIR_ADD ? 2 * HALF_ELEMENTS : HALF_ELEMENTS;
	uint32_t stride = a->form >= HALF_PAIR_ADD ? 1 : a->stride;

	for (uint32_t i = 0; i < PLACES; i++)
		image[i] = i % stride || i / stride >= halves ? BESIDE : half_of(a, x);
}

static int wrong_half(const struct halves_args *a, const char *what, uint64_t at, uint64_t bits)
{
	return ranks_fail("form %d of %s on rank %d, stride %u: %s %llu: %#llx", a->form,
		a->bfloat16 ? "bfloat16" : "half", a->pe, a->stride, what, (unsigned long long)at,
		(unsigned long long)bits);
}

/* On rank 0: each half of each element was fetched with each count that it went through, once. */
static int check_counts(struct scene *s, const struct halves_args *a)
{
	uint64_t n = (uint64_t)OPS * (uint64_t)s->r.n, counts = n / HALF_ELEMENTS;
	int width = a->form == HALF_PAIR_FETCH_ADD ? 2 : 1;

	for (int half = 0; half < width; half++) {
		memset(s->tally, 0, n * sizeof(*s->tally));
		for (uint64_t k = 0; k < n; k++) {
			uint16_t bits = (uint16_t)(s->all[k] >> 16 * half);
			uint64_t count = 0;

			while (count < counts && half_of(a, count) != bits)
				count++;
			if (count == counts || s->tally[k % HALF_ELEMENTS * counts + count]++)
				return wrong_half(a, "fetched by", k, s->all[k]);
		}
	}
	return 0;
}

static int one_half_form(struct scene *s, struct halves_args *a)
{
	uint16_t image[PLACES], want[PLACES];
	spmt_comm *comm = s->r.comm;

	image_of(a, 0, image);
	image_of(a, (uint64_t)OPS * (uint64_t)s->r.n / HALF_ELEMENTS, want);
	TRY(rank_write(&s->r, s->target, image, sizeof(image)));
	REQUIRE_OK(spmt_barrier(comm));
	RANK_STEP(&s->r, test_halves, GRID, BLOCK, *a);
	if (s->r.pe == a->pe) {
		TRY(rank_read(&s->r, image, s->target, sizeof(image)));
		for (uint32_t i = 0; i < PLACES; i++)
			if (image[i] != want[i])
				return wrong_half(a, "left in place", i, image[i]);
	}
	if (a->form != HALF_FETCH_ADD && a->form != HALF_PAIR_FETCH_ADD)
		return 0;
	TRY(gather(s));
	return s->r.pe == 0 ? check_counts(s, a) : 0;
}

static int halves(spmt_comm *comm, void *unused)
{
	struct scene s = { .target = NULL };
	struct halves_args a = { .threads = THREADS, .each = EACH };

	(void)unused;
	TRY(open_scene(&s, comm));
	a.view = s.r.view;
	a.target = addr(s.target);
	a.results = addr(s.results + (size_t)s.r.pe * OPS);
	a.first = (uint64_t)s.r.pe * OPS;
	for (a.form = 0; a.form < HALF_FORMS; a.form++)
		for (a.bfloat16 = 0; a.bfloat16 < 2; a.bfloat16++)
			for (a.stride = 1; a.stride <= 3;
				a.stride += 2) /* both odd: odd and even places */
				for (a.pe = 0; a.pe<s.r.n; a.pe += s.r.n> 1 ? s.r.n - 1 : 1)
					TRY(one_half_form(&s, &a));
	close_scene(&s);
	return 0;
}

static int run_halves(int n)
{
	return gpu_run(n, 8u << 20, halves, NULL);
}

/* --------------------------------------------------------------------------------------------- */

static int run_form(int n, int form)
{
	return gpu_run(n, 8u << 20, atomics, &form);
}

static int run_add(int n)
{
	return run_form(n, ATOMIC_ADD);
}

static int run_inc(int n)
{
	return run_form(n, ATOMIC_INC);
}

static int run_fetch_add(int n)
{
	return run_form(n, ATOMIC_FETCH_ADD);
}

static int run_fetch_inc(int n)
{
	return run_form(n, ATOMIC_FETCH_INC);
}

static int run_swap(int n)
{
	return run_form(n, ATOMIC_SWAP);
}

static int run_cas(int n)
{
	return run_form(n, ATOMIC_CAS);
}

static int run_set(int n)
{
	return run_form(n, ATOMIC_SET);
}

static int run_bits(int n)
{
	return run_form(n, ATOMIC_BITS);
}

static const struct gpu_test tests[] = {
	{ "atomic_add", run_add, 1 },
	{ "atomic_inc", run_inc, 1 },
	{ "atomic_fetch_add", run_fetch_add, 1 },
	{ "atomic_fetch_inc", run_fetch_inc, 1 },
	{ "atomic_swap", run_swap, 1 },
	{ "atomic_compare_swap", run_cas, 1 },
	{ "atomic_set_and_fetch", run_set, 1 },
	{ "atomic_and_or_xor", run_bits, 1 },
	{ "atomic_sums_of_halves", run_halves, 1 },
};
static const struct test_kernel *const kernels[] = { &test_atomics, &test_halves, NULL };

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, kernels, tests, sizeof(tests) / sizeof(tests[0]));
}
