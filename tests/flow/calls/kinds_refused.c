/* SPDX-License-Identifier: MIT */
/*
 * What the collectives with a root or with counts refuse: arguments that are wrong on their own, with a sentence, nothing written and
 * the world whole; and arguments that differ between ranks, which break it, told to all.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/lib/processes.h"

/* ---- wrong on their own ----------------------------------------------------------------------------------------------------- */

#define BAD(call, word)                        \
	do {                                   \
		REQUIRE_CODE((call), -EINVAL); \
		REQUIRE_SAYS(word);            \
	} while (0)

enum { WORDS = 64 };

static int roots(spmt_comm *c, uint64_t *w, uint64_t *far)
{
	int me = spmt_rank(c), other = !me;

	BAD(spmt_reduce(c, far, w, 1, SPMT_TYPE_U64, SPMT_OP_SUM, 2, NULL), "spmt_reduce: rank ");
	BAD(spmt_reduce(c, far, w, 1, SPMT_TYPE_U64, SPMT_OP_SUM, -1, NULL),
		"root -1 is not in 0 .. 1");
	BAD(spmt_gather(c, far, w, 1, SPMT_TYPE_U64, 2, NULL), "root 2 is not in 0 .. 1");
	BAD(spmt_scatter(c, w, far, 1, SPMT_TYPE_U64, 7, NULL), "root 7 is not in 0 .. 1");
	BAD(spmt_reduce(c, NULL, w, 1, SPMT_TYPE_U64, SPMT_OP_SUM, me, NULL), "dst is NULL");
	BAD(spmt_reduce(c, NULL, NULL, 1, SPMT_TYPE_U64, SPMT_OP_SUM, other, NULL), "src is NULL");
	BAD(spmt_gather(c, NULL, w, 1, SPMT_TYPE_U64, me, NULL), "dst is NULL");
	BAD(spmt_gather(c, far, NULL, 1, SPMT_TYPE_U64, other, NULL), "src is NULL");
	BAD(spmt_scatter(c, w, NULL, 1, SPMT_TYPE_U64, me, NULL), "src is NULL");
	BAD(spmt_scatter(c, NULL, far, 1, SPMT_TYPE_U64, other, NULL), "dst is NULL");
	BAD(spmt_gather(c, w, w + 1, 2, SPMT_TYPE_U64, me, NULL), "overlap");
	BAD(spmt_scatter(c, w + 1, w, 2, SPMT_TYPE_U64, me, NULL), "overlap");
	BAD(spmt_reduce(c, w, w + 1, 2, SPMT_TYPE_U64, SPMT_OP_SUM, me, NULL), "overlap");
	BAD(spmt_gather(c, w, far, SIZE_MAX / 8, SPMT_TYPE_U64, me, NULL), "count");
	BAD(spmt_gather(c, w, (char *)far + 4, 1, SPMT_TYPE_U64, other, NULL), "aligned");
	BAD(spmt_scatter(c, (char *)w + 1, far, 1, SPMT_TYPE_F16, me, NULL), "aligned");
	BAD(spmt_scatter(c, w, far, 1, (enum spmt_type)14, me, NULL), "unknown type 14");
	BAD(spmt_reduce(c, far, w, 1, SPMT_TYPE_U64, (enum spmt_op)8, me, NULL), "unknown op 8");
	BAD(spmt_reduce(c, far, w, 1, SPMT_TYPE_F8E4M3, SPMT_OP_OR, me, NULL),
		"type f8e4m3, op or");
	BAD(spmt_reduce(c, far, w, 1, SPMT_TYPE_F8E5M2, SPMT_OP_AND, other, NULL),
		"type f8e5m2, op and");
	BAD(spmt_all_to_all(c, w, w + 1, 2, SPMT_TYPE_U64, NULL), "overlap");
	return 0;
}

static int counts(spmt_comm *c, uint64_t *w, uint64_t *far)
{
	static const size_t two[] = { 2, 2 }, at[] = { 0, 2 }, same[] = { 1, 1 }, none[] = { 0, 0 };
	static const size_t odd[] = { 2, 3 }, huge[] = { 0, SIZE_MAX - 1 },
			    many[] = { SIZE_MAX, SIZE_MAX };
	const enum spmt_type t = SPMT_TYPE_U64;
	int me = spmt_rank(c);
	char text[64];

	BAD(spmt_all_gather_v(c, w, NULL, at, far, t, NULL), "counts is NULL");
	BAD(spmt_all_gather_v(c, w, two, NULL, far, t, NULL), "offsets is NULL");
	BAD(spmt_all_to_all_v(c, w, NULL, at, far, two, at, t, NULL), "dst_counts is NULL");
	BAD(spmt_all_to_all_v(c, w, two, NULL, far, two, at, t, NULL), "dst_offsets is NULL");
	BAD(spmt_all_to_all_v(c, w, two, at, far, NULL, at, t, NULL), "src_counts is NULL");
	BAD(spmt_all_to_all_v(c, w, two, at, far, two, NULL, t, NULL), "src_offsets is NULL");
	BAD(spmt_all_gather_v(c, NULL, two, at, far, t, NULL),
		"dst is NULL with count 2 for rank 0");
	BAD(spmt_all_gather_v(c, w, two, at, NULL, t, NULL), "src is NULL with count 2");
	BAD(spmt_all_to_all_v(c, w, two, at, NULL, two, at, t, NULL),
		"src is NULL with count 2 for rank 0");
	BAD(spmt_all_gather_v(c, w, two, same, far, t, NULL),
		"what comes from rank 0 and from rank 1 overlaps in dst");
	BAD(spmt_all_gather_v(c, w, two, huge, far, t, NULL), "wraps");
	BAD(spmt_all_gather_v(c, w, many, at, far, t, NULL), "wraps");
	BAD(spmt_all_to_all_v(c, w, two, at, far, two, huge, t, NULL), "src: count 2 at offset");
	BAD(spmt_all_gather_v(c, w, two, at, w + 1, t, NULL), "overlap");
	BAD(spmt_all_to_all_v(c, w, two, at, w + 3, two, at, t, NULL), "overlap");
	BAD(spmt_all_to_all_v(c, w, two, at, w, two, at, t, NULL), "overlap");
	BAD(spmt_all_gather_v(c, (char *)w + 2, two, at, far, t, NULL), "aligned");
	BAD(spmt_all_to_all_v(c, w, two, at, (char *)far + 4, two, at, t, NULL), "aligned");
	BAD(spmt_all_gather_v(c, w, two, at, far, (enum spmt_type)14, NULL), "unknown type 14");
	snprintf(text, sizeof(text), "rank %d: %d elements go to itself, %d come from itself", me,
		me ? 3 : 2, me ? 2 : 3);
	BAD(spmt_all_to_all_v(c, w, me ? two : (const size_t[]){ 3, 2 }, (const size_t[]){ 0, 8 },
		    far, me ? odd : two, at, t, NULL),
		text);
	/* of which nothing is touched */
	REQUIRE_OK(spmt_all_gather_v(c, NULL, none, huge, NULL, t, NULL));
	REQUIRE_OK(spmt_all_to_all_v(c, NULL, none, many, NULL, none, many, t, NULL));
	return 0;
}

static int wrong(spmt_comm *comm, void *arg)
{
	uint64_t *w;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 2 * WORDS, sizeof(*w), (void **)&w));
	TRY(roots(comm, w, w + WORDS));
	TRY(counts(comm, w, w + WORDS));
	REQUIRE_OK(spmt_quiet(comm));
	TRY(sym_check_byte(comm, w, 0, 2 * WORDS * sizeof(*w)));
	REQUIRE_OK(spmt_status(comm));
	return spmt_barrier(comm);
}

Test(kinds_refused, wrong_arguments)
{
	RANKS_OK(ranks_run(2, NULL, wrong, NULL));
}

/* ---- that differ ---------------------------------------------------------------------------------------------------------------- */

enum way {
	COUNT,
	TYPE,
	OP,
	ROOT,
	GATHER_ROOT,
	FUNCTION,
	IN_PLACE,
	GATHERED,
	PAIR,
	SELF_ZERO,
	WAYS
};
enum { ODD = 2, SMALL = 3, GREAT = 3000 };

static const struct {
	const char *what; /* in the sentence of every rank that found it */
	bool pair;	  /* which one rank finds, and tells */
} said[WAYS] = { [COUNT] = { "spmt_reduce: count differs" },
	[TYPE] = { "spmt_scatter: type differs" },
	[OP] = { "spmt_reduce: op differs" },
	[ROOT] = { "spmt_reduce: root differs" },
	[GATHER_ROOT] = { "spmt_gather: root differs" },
	[FUNCTION] = { "the function called differs" },
	[IN_PLACE] = { "the function called differs" },
	[GATHERED] = { "spmt_all_gather_v: ", true },
	[PAIR] = { "spmt_all_to_all_v: ", true },
	[SELF_ZERO] = { "spmt_all_to_all_v: ", true } };

static int all_to_all_v(spmt_comm *comm, uint32_t *w, size_t n, size_t to_next)
{
	size_t gives[8], gets[8], at[8];
	int me = spmt_rank(comm), ranks = spmt_nranks(comm);

	for (int r = 0; r < ranks; r++) {
		gives[r] = r == (me + 1) % ranks ? to_next : n;
		gets[r] = n;
		at[r] = (size_t)r * GREAT;
	}
	return spmt_all_to_all_v(comm, w, gets, at, w + 5 * GREAT, gives, at, SPMT_TYPE_U32, NULL);
}

/* n: an equal count. */
static int stray(spmt_comm *comm, uint32_t *w, enum way way, bool odd, size_t n)
{
	const enum spmt_type t = SPMT_TYPE_U32;
	uint32_t *src = w + 5 * GREAT;
	const size_t counts[] = { n, n, odd ? n - 1 : n, n }, at[] = { 0, n, 2 * n, 3 * n };

	switch (way) {
	case COUNT:
		return spmt_reduce(comm, w, src, odd ? n + 1 : n, t, SPMT_OP_SUM, 1, NULL);
	case TYPE:
		return spmt_scatter(comm, w, src, n, odd ? SPMT_TYPE_F32 : t, 1, NULL);
	case OP:
		return spmt_reduce(comm, w, src, n, t, odd ? SPMT_OP_AVG : SPMT_OP_SUM, 0, NULL);
	case ROOT:
		return spmt_reduce(comm, w, src, n, t, SPMT_OP_SUM, odd, NULL);
	case GATHER_ROOT:
		return spmt_gather(comm, w, src, n, t, odd ? 1 : 3, NULL);
	case FUNCTION:
		return odd ? spmt_gather(comm, w, src, n, t, 0, NULL)
			   : spmt_scatter(comm, w, src, n, t, 0, NULL);
	case IN_PLACE:
		return spmt_all_to_all(comm, w, odd ? w : src, n, t, NULL);
	case GATHERED:
		return spmt_all_gather_v(comm, w, counts, at, src, t, NULL);
	case PAIR:
		return all_to_all_v(comm, w, n, odd ? n - 1 : n);
	default:
		return all_to_all_v(comm, w, n, odd ? 0 : n);
	}
}

struct scene {
	struct processes p; /* first */
	enum way way;
	size_t count;
};

/* What is queued behind it does not happen: a signal to the next rank. */
static int strays(spmt_comm *comm, void *arg)
{
	const struct scene *s = arg;
	int me = spmt_rank(comm), next = (me + 1) % spmt_nranks(comm);
	uint64_t *sig, seen = 0;
	uint32_t *w;
	int code;

	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*sig), (void **)&sig));
	REQUIRE_OK(spmt_calloc(comm, 10 * GREAT, sizeof(*w), (void **)&w));
	REQUIRE_OK(stray(comm, w, s->way, me == ODD, s->count));
	code = spmt_signal_on_stream(comm, sig, 1, SPMT_SIGNAL_ADD, next, NULL);
	REQUIRE_CODE(code, code ? SPMT_ERR_BROKEN : 0); /* it may have broken by now */
	REQUIRE_CODE(spmt_quiet(comm), SPMT_ERR_MISMATCH);
	if (!said[s->way].pair)
		REQUIRE_SAYS(said[s->way].what);
	REQUIRE_CODE(spmt_status(comm), SPMT_ERR_MISMATCH);
	REQUIRE_CODE(stray(comm, w, s->way, false, s->count), SPMT_ERR_BROKEN);
	REQUIRE_CODE(spmt_barrier(comm), SPMT_ERR_BROKEN);
	if (on_host()) {
		seen = __atomic_load_n(sig, __ATOMIC_ACQUIRE);
		REQUIRE_EQ(seen, 0);
	}
	return 0;
}

static void each_way(struct scene *s, int (*run)(struct scene *s))
{
	for (s->way = 0; s->way < WAYS; s->way++)
		for (int large = 0; large < 2; large++) {
			s->count = large ? GREAT : SMALL;
			RANKS_OK(run(s));
		}
}

static int here(struct scene *s)
{
	return ranks_run(ranks_here(4), NULL, strays, s);
}

static int apart(struct scene *s)
{
	return processes_world(&s->p, strays, s);
}

Test(kinds_refused, what_differs_breaks_the_world)
{
	NEEDS_DEVICES(ODD + 1);
	each_way(&(struct scene){ .count = 0 }, here);
}

Test(kinds_refused, the_same_over_processes)
{
	struct scene s = { .p.layout = "0,1|2,3" };

	NEEDS_LAYOUT(s.p.layout);
	each_way(&s, apart);
}
