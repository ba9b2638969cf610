/* SPDX-License-Identifier: MIT */
/*
 * Every argument of every call, wrong: the code, a sentence that names function, rank and value, outputs unwritten, and not
 * a byte of anybody's memory changed.
 */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"

enum { WORDS = 512 };

struct bad {
	spmt_comm *comm;
	int rank;
	uint64_t *words, *sig; /* symmetric; never to change */
	uint64_t local[8];
	spmt_mem *mem;
	size_t heap;
};

/* The call's text begins with its name. rank -1: any, in a call that all ranks get wrong together. */
static int refused(int whose, const char *text, int code, int want, const char *word)
{
	char name[64], rank[32];

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "("), text);
	snprintf(rank, sizeof(rank), "rank %d", whose);
	if (whose < 0)
		strcpy(rank, "rank ");
	if (code != want)
		return ranks_fail("%s gave %d, not %d: %s", text, code, want,
			code < 0 ? spmt_last_error() : "");
	if (!strstr(spmt_last_error(), name) || !strstr(spmt_last_error(), rank) ||
		!strstr(spmt_last_error(), word))
		return ranks_fail("%s: no \"%s\", \"%s\" or \"%s\" in: %s", text, name, rank, word,
			spmt_last_error());
	return 0;
}

#define BAD(call, word) TRY(refused(b->rank, #call, (call), -EINVAL, word))
#define BAD_ALL(call, word) TRY(refused(-1, #call, (call), -EINVAL, word))

static int begin(spmt_comm *comm, struct bad *b)
{
	int64_t heap = 0;

	memset(b, 0, sizeof(*b));
	b->comm = comm;
	b->rank = spmt_rank(comm);
	memset(b->local, 0x5a, sizeof(b->local));
	REQUIRE_OK(spmt_query(comm, SPMT_CAP_HEAP_SIZE, &heap));
	b->heap = (size_t)heap;
	REQUIRE_OK(spmt_malloc(comm, WORDS * sizeof(*b->words), (void **)&b->words));
	REQUIRE_OK(spmt_malloc(comm, 64 * sizeof(*b->sig), (void **)&b->sig));
	TRY(sym_fill(comm, b->words, WORDS * sizeof(*b->words), 1));
	TRY(sym_fill(comm, b->sig, 64 * sizeof(*b->sig), 2));
	REQUIRE_OK(spmt_register(comm, b->words, 4096, &b->mem));
	return spmt_barrier(comm);
}

static int end(struct bad *b)
{
	REQUIRE_OK(spmt_barrier(b->comm));
	TRY(sym_check(b->comm, b->words, WORDS * sizeof(*b->words), 1));
	TRY(sym_check(b->comm, b->sig, 64 * sizeof(*b->sig), 2));
	for (size_t i = 0; i < 8; i++)
		REQUIRE_EQ(b->local[i], 0x5a5a5a5a5a5a5a5a);
	REQUIRE_EQ(spmt_status(b->comm), 0);
	return spmt_barrier(b->comm);
}

static int with(spmt_comm *comm, int (*body)(struct bad *))
{
	struct bad b;

	TRY(begin(comm, &b));
	TRY(body(&b));
	return end(&b);
}

#define BODY(name)                                               \
	static int name##_main(spmt_comm *comm, void *arg)       \
	{                                                        \
		(void)arg;                                       \
		return with(comm, name);                         \
	}                                                        \
	Test(bad_input, name)                                    \
	{                                                        \
		RANKS_OK(ranks_run(2, NULL, name##_main, NULL)); \
	}

/* ---- a PE that is none --------------------------------------------------------------------------------------------------- */

static int one_pe(struct bad *b, int pe)
{
	spmt_comm *c = b->comm;
	uint64_t *w = b->words, *l = b->local;
	char at[16];
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats = { .size = sizeof(stats) };

	snprintf(at, sizeof(at), "%d", pe);
	BAD(spmt_put(c, w, l, 8, pe), at);
	BAD(spmt_put(c, w, l, 0, pe), at);
	BAD(spmt_put_nbi(c, w, l, 8, pe), at);
	BAD(spmt_put_on_stream(c, w, l, 8, pe, NULL), at);
	BAD(spmt_get(c, l, w, 8, pe), at);
	BAD(spmt_get_nbi(c, l, w, 8, pe), at);
	BAD(spmt_get_on_stream(c, l, w, 8, pe, NULL), at);
	BAD(spmt_put_signal(c, w, l, 8, b->sig, 1, SPMT_SIGNAL_ADD, pe), at);
	BAD(spmt_put_signal_nbi(c, w, l, 8, b->sig, 1, SPMT_SIGNAL_ADD, pe), at);
	BAD(spmt_put_signal_on_stream(c, w, l, 8, b->sig, 1, SPMT_SIGNAL_ADD, pe, NULL), at);
	BAD(spmt_iput(c, w, l, 1, 1, 2, 8, pe), at);
	BAD(spmt_iget(c, l, w, 1, 1, 2, 8, pe), at);
	BAD(spmt_signal(c, b->sig, 1, SPMT_SIGNAL_SET, pe), at);
	BAD(spmt_signal_on_stream(c, b->sig, 1, SPMT_SIGNAL_SET, pe, NULL), at);
	BAD(spmt_atomic(c, SPMT_AMO_ADD, SPMT_TYPE_U64, w, l, NULL, NULL, pe), at);
	BAD(spmt_mem_put(c, b->mem, 0, l, 8, pe), at);
	BAD(spmt_mem_put_nbi(c, b->mem, 0, l, 8, pe), at);
	BAD(spmt_mem_put_on_stream(c, b->mem, 0, l, 8, pe, NULL), at);
	BAD(spmt_mem_get(c, l, b->mem, 0, 8, pe), at);
	BAD(spmt_mem_get_nbi(c, l, b->mem, 0, 8, pe), at);
	BAD(spmt_mem_get_on_stream(c, l, b->mem, 0, 8, pe, NULL), at);
	BAD(spmt_mem_lookup(c, pe, 1, &(spmt_mem *){ NULL }), at);
	BAD(spmt_broadcast(c, w, w, 1, SPMT_TYPE_U64, pe, NULL), at);
	BAD(spmt_route(c, pe, &route), at);
	if (pe != -1)
		BAD(spmt_stats(c, pe, &stats), at);
	REQUIRE(!spmt_ptr(c, w, pe));
	REQUIRE(!spmt_mem_ptr(b->mem, pe));
	REQUIRE_EQ(spmt_mem_size(b->mem, pe), 0);
	return 0;
}

static int pe_out_of_range(struct bad *b)
{
	static const int pes[] = { -1, 2, 3, INT_MAX, INT_MIN, 1 << 16 };

	for (size_t i = 0; i < sizeof(pes) / sizeof(pes[0]); i++)
		TRY(one_pe(b, pes[i]));
	return 0;
}
BODY(pe_out_of_range)

/* ---- ranges that are not symmetric ------------------------------------------------------------------------------------------ */

static int one_range(struct bad *b, void *at, size_t n)
{
	spmt_comm *c = b->comm;
	uint64_t *l = b->local;

	BAD(spmt_put(c, at, l, n, 1), "dst");
	BAD(spmt_put_nbi(c, at, l, n, 1), "dst");
	BAD(spmt_put_on_stream(c, at, l, n, 1, NULL), "dst");
	BAD(spmt_get(c, l, at, n, 1), "src");
	BAD(spmt_get_nbi(c, l, at, n, 1), "src");
	BAD(spmt_get_on_stream(c, l, at, n, 1, NULL), "src");
	BAD(spmt_put_signal(c, at, l, n, b->sig, 1, SPMT_SIGNAL_ADD, 1), "dst");
	BAD(spmt_put_signal_nbi(c, at, l, n, b->sig, 1, SPMT_SIGNAL_ADD, 1), "dst");
	BAD(spmt_put_signal_on_stream(c, at, l, n, b->sig, 1, SPMT_SIGNAL_ADD, 1, NULL), "dst");
	BAD(spmt_copy_in(c, at, l, n), "dst");
	BAD(spmt_copy_out(c, l, at, n), "src");
	BAD(spmt_iput(c, at, l, 1, 1, n, 1, 1), "");
	BAD(spmt_iget(c, l, at, 1, 1, n, 1, 1), "");
	BAD(spmt_mem_put(c, b->mem, 4096, l, n, 1), "4096");
	BAD(spmt_mem_get(c, l, b->mem, 4096, n, 1), "4096");
	return 0;
}

static int one_word(struct bad *b, uint64_t *at)
{
	spmt_comm *c = b->comm;
	uint64_t *w = b->words, *l = b->local, value = 77, other = 77;
	size_t index = 77;
	int result = 77;

	BAD(spmt_put_signal(c, w, l, 8, at, 1, SPMT_SIGNAL_ADD, 1), "sig");
	BAD(spmt_put_signal(c, NULL, NULL, 0, at, 1, SPMT_SIGNAL_ADD, 1), "sig");
	BAD(spmt_put_signal_nbi(c, w, l, 8, at, 1, SPMT_SIGNAL_ADD, 1), "sig");
	BAD(spmt_put_signal_on_stream(c, w, l, 8, at, 1, SPMT_SIGNAL_ADD, 1, NULL), "sig");
	BAD(spmt_signal(c, at, 1, SPMT_SIGNAL_SET, 1), "sig");
	BAD(spmt_signal_on_stream(c, at, 1, SPMT_SIGNAL_SET, 1, NULL), "sig");
	BAD(spmt_signal_fetch(c, at, &value), "sig");
	BAD(spmt_signal_wait(c, at, SPMT_CMP_NE, 1, &value), "sig");
	BAD(spmt_signal_wait_on_stream(c, at, SPMT_CMP_NE, 1, NULL), "sig");
	BAD(spmt_atomic(c, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, at, l, NULL, &value, 1), "target");
	BAD(spmt_wait_until(c, SPMT_TYPE_U64, at, SPMT_CMP_NE, &other), ": ivar ");
	BAD(spmt_wait_until_any(c, SPMT_TYPE_U64, at, 2, NULL, SPMT_CMP_NE, &other, &index),
		"ivar");
	BAD(spmt_wait_until_some(
		    c, SPMT_TYPE_U64, at, 2, NULL, SPMT_CMP_NE, &other, &index, &index),
		"ivar");
	BAD(spmt_wait_until_all(c, SPMT_TYPE_U64, at, 2, NULL, SPMT_CMP_NE, &other), ": ivars ");
	BAD(spmt_test(c, SPMT_TYPE_U64, at, SPMT_CMP_NE, &other, &result), ": ivar ");
	BAD(spmt_test_any(c, SPMT_TYPE_U64, at, 2, NULL, SPMT_CMP_NE, &other, &index), ": ivars ");
	BAD(spmt_test_some(c, SPMT_TYPE_U64, at, 2, NULL, SPMT_CMP_NE, &other, &index, &index),
		"ivar");
	BAD(spmt_test_all(c, SPMT_TYPE_U64, at, 2, NULL, SPMT_CMP_NE, &other, &result), "ivar");
	REQUIRE_EQ(value, 77);
	REQUIRE_EQ(index, 77);
	REQUIRE_EQ(result, 77);
	return 0;
}

static int foreign_ranges(struct bad *b)
{
	char *heap = (char *)b->words, *peer = spmt_ptr(b->comm, b->words, 1 - b->rank);
	uintptr_t top = UINTPTR_MAX - 7;

	TRY(one_range(b, NULL, 8));
	TRY(one_range(b, b->local, 8));
	TRY(one_range(b, heap, b->heap + 1));
	TRY(one_range(b, heap + 8, 2 * b->heap));
	TRY(one_range(b, heap + 8, SIZE_MAX));
	TRY(one_range(b, heap + 8, SIZE_MAX - 7));
	TRY(one_range(b, heap, (size_t)PTRDIFF_MAX + 1));
	TRY(one_range(b, heap + b->heap, 8));
	TRY(one_range(b, (void *)top, 16));
	if (peer)
		TRY(one_range(b, peer, 8));
	TRY(one_word(b, NULL));
	TRY(one_word(b, b->local));
	TRY(one_word(b, (uint64_t *)(void *)(heap + b->heap)));
	TRY(one_word(b, (uint64_t *)(void *)(heap + 4)));
	TRY(one_word(b, (uint64_t *)(void *)(heap + 1)));
	return 0;
}
BODY(foreign_ranges)

/* The local side may be any memory, but what begins in the heap ends there. */
static int local_beyond(struct bad *b)
{
	static const char beyond[] = "in this rank's heap and goes beyond its end";
	spmt_comm *c = b->comm;
	uint64_t *w = b->words, *last = w + b->heap / 8 - 1;
	void *top = (void *)(UINTPTR_MAX - 7);
	spmt_mem *mem;

	BAD(spmt_put(c, w, last, 16, 1), beyond);
	BAD(spmt_put(c, w, top, 16, 1), "src 0xfffffffffffffff8 with 16 bytes wraps");
	BAD(spmt_put_nbi(c, w, last, 16, 1), beyond);
	BAD(spmt_put_on_stream(c, w, last, 16, 1, NULL), beyond);
	BAD(spmt_get(c, last, w, 16, 1), "dst ");
	BAD(spmt_get_nbi(c, last, w, 16, 1), beyond);
	BAD(spmt_get_on_stream(c, last, w, 16, 1, NULL), beyond);
	BAD(spmt_put_signal(c, w, last, 16, b->sig, 1, SPMT_SIGNAL_SET, 1), beyond);
	BAD(spmt_put_signal_on_stream(c, w, last, 16, b->sig, 1, SPMT_SIGNAL_SET, 1, NULL), beyond);
	BAD(spmt_iput(c, w, last, 1, 1, 2, 8, 1), beyond);
	BAD(spmt_iget(c, last - 2, w, 4, 1, 2, 8, 1), beyond);
	BAD(spmt_copy_in(c, w, last, 16), "host_src ");
	BAD(spmt_copy_out(c, last, w, 16), "host_dst ");
	BAD(spmt_mem_put(c, b->mem, 0, last, 16, 1), beyond);
	BAD(spmt_mem_get(c, last, b->mem, 0, 16, 1), beyond);
	BAD_ALL(spmt_register(c, last, 4096, &mem), beyond);
	return 0;
}

static int local_null(struct bad *b)
{
	spmt_comm *c = b->comm;
	uint64_t *w = b->words;

	BAD(spmt_put(c, w, NULL, 8, 1), ": src is NULL");
	BAD(spmt_put_nbi(c, w, NULL, 8, 1), ": src is NULL");
	BAD(spmt_put_on_stream(c, w, NULL, 8, 1, NULL), ": src is NULL");
	BAD(spmt_get(c, NULL, w, 8, 1), ": dst is NULL");
	BAD(spmt_get_nbi(c, NULL, w, 8, 1), ": dst is NULL");
	BAD(spmt_get_on_stream(c, NULL, w, 8, 1, NULL), ": dst is NULL");
	BAD(spmt_put_signal(c, w, NULL, 8, b->sig, 1, SPMT_SIGNAL_SET, 1), ": src is NULL");
	BAD(spmt_put_signal_on_stream(c, w, NULL, 8, b->sig, 1, SPMT_SIGNAL_SET, 1, NULL),
		": src is NULL");
	BAD(spmt_iput(c, w, NULL, 1, 1, 2, 8, 1), ": src is NULL");
	BAD(spmt_iget(c, NULL, w, 1, 1, 2, 8, 1), ": dst is NULL");
	BAD(spmt_copy_in(c, w, NULL, 8), ": host_src is NULL");
	BAD(spmt_copy_out(c, NULL, w, 8), ": host_dst is NULL");
	BAD(spmt_mem_put(c, b->mem, 0, NULL, 8, 1), ": src is NULL");
	BAD(spmt_mem_get(c, NULL, b->mem, 0, 8, 1), ": dst is NULL");
	BAD_ALL(spmt_register(c, NULL, 8, &b->mem), "buf");
	return 0;
}

static int local_null_and_outputs(struct bad *b)
{
	spmt_comm *c = b->comm;
	uint64_t *w = b->words, value = 1;
	spmt_mem *mem = b->mem;
	size_t index;
	spmt_uid uid;
	int number = 77;

	TRY(local_null(b));
	TRY(local_beyond(b));
	REQUIRE(b->mem == mem);
	BAD_ALL(spmt_malloc(c, 8, NULL), "NULL");
	BAD_ALL(spmt_split(c, 0, 0, NULL), "part is NULL");
	BAD(spmt_shrink(c, NULL, &number, &number), "next is NULL");
	BAD(spmt_shrink(c, &uid, NULL, &number), "rank is NULL");
	BAD(spmt_shrink(c, &uid, &number, &number), "the world is whole");
	REQUIRE_EQ(number, 77);
	BAD_ALL(spmt_calloc(c, 1, 8, NULL), "NULL");
	BAD_ALL(spmt_aligned_alloc(c, 8, 8, NULL), "NULL");
	BAD_ALL(spmt_register(c, b->local, 8, NULL), "NULL");
	BAD(spmt_query(c, SPMT_CAP_VMM, NULL), "NULL");
	BAD(spmt_route(c, 0, NULL), "NULL");
	BAD(spmt_stats(c, 0, NULL), "NULL");
	BAD(spmt_view_get(c, NULL), "NULL");
	BAD(spmt_mem_view_get(c, b->mem, NULL), "NULL");
	BAD(spmt_signal_fetch(c, w, NULL), "NULL");
	BAD(spmt_wait_until(c, SPMT_TYPE_U64, w, SPMT_CMP_NE, NULL), "NULL");
	BAD(spmt_wait_until_any(c, SPMT_TYPE_U64, w, 1, NULL, SPMT_CMP_NE, &value, NULL), "NULL");
	BAD(spmt_wait_until_some(c, SPMT_TYPE_U64, w, 1, NULL, SPMT_CMP_NE, &value, NULL, &index),
		"NULL");
	BAD(spmt_wait_until_some(c, SPMT_TYPE_U64, w, 1, NULL, SPMT_CMP_NE, &value, &index, NULL),
		"NULL");
	BAD(spmt_test(c, SPMT_TYPE_U64, w, SPMT_CMP_NE, &value, NULL), "NULL");
	BAD(spmt_test_any(c, SPMT_TYPE_U64, w, 1, NULL, SPMT_CMP_NE, &value, NULL), "NULL");
	BAD(spmt_test_some(c, SPMT_TYPE_U64, w, 1, NULL, SPMT_CMP_NE, &value, NULL, &index),
		"NULL");
	BAD(spmt_test_all(c, SPMT_TYPE_U64, w, 1, NULL, SPMT_CMP_NE, &value, NULL), "NULL");
	BAD(spmt_atomic(c, SPMT_AMO_ADD, SPMT_TYPE_U64, w, NULL, NULL, NULL, 1), "NULL");
	BAD(spmt_atomic(c, SPMT_AMO_FETCH, SPMT_TYPE_U64, w, NULL, NULL, NULL, 1), "NULL");
	BAD(spmt_atomic(c, SPMT_AMO_COMPARE_SWAP, SPMT_TYPE_U64, w, &value, NULL, &value, 1),
		"NULL");
	if (on_host()) {
		BAD(spmt_host_launch(c, NULL, NULL, &value, 8), "NULL");
		BAD(spmt_host_launch(c, NULL, (void (*)(void *))abort, NULL, 8), "NULL");
		BAD(spmt_host_stream_create(c, NULL), "NULL");
	}
	REQUIRE_OK(spmt_signal_wait(c, w, SPMT_CMP_NE, 1, NULL));
	return 0;
}
BODY(local_null_and_outputs)

/* ---- enumerators that are none ------------------------------------------------------------------------------------------------ */

static int one_enum(struct bad *b, int e)
{
	spmt_comm *c = b->comm;
	uint64_t *w = b->words, *l = b->local, value = 1;
	int64_t number = 77;
	size_t index = 77;
	char at[16];
	int result = 77;

	snprintf(at, sizeof(at), "%d", e);
	BAD(spmt_signal(c, b->sig, 1, (enum spmt_signal_op)e, 1), at);
	BAD(spmt_signal_on_stream(c, b->sig, 1, (enum spmt_signal_op)e, 1, NULL), at);
	BAD(spmt_put_signal(c, w, l, 8, b->sig, 1, (enum spmt_signal_op)e, 1), at);
	BAD(spmt_put_signal(c, w, l, 0, b->sig, 1, (enum spmt_signal_op)e, 1), at);
	BAD(spmt_put_signal_nbi(c, w, l, 8, b->sig, 1, (enum spmt_signal_op)e, 1), at);
	BAD(spmt_put_signal_on_stream(c, w, l, 8, b->sig, 1, (enum spmt_signal_op)e, 1, NULL), at);
	BAD(spmt_signal_wait(c, b->sig, (enum spmt_cmp)e, 1, &value), at);
	BAD(spmt_signal_wait_on_stream(c, b->sig, (enum spmt_cmp)e, 1, NULL), at);
	BAD(spmt_wait_until(c, SPMT_TYPE_U64, w, (enum spmt_cmp)e, &value), at);
	BAD(spmt_wait_until(c, (enum spmt_type)e, w, SPMT_CMP_NE, &value), at);
	BAD(spmt_wait_until_any(c, (enum spmt_type)e, w, 1, NULL, SPMT_CMP_NE, &value, &index), at);
	BAD(spmt_wait_until_all(c, SPMT_TYPE_U64, w, 1, NULL, (enum spmt_cmp)e, &value), at);
	BAD(spmt_test(c, (enum spmt_type)e, w, SPMT_CMP_NE, &value, &result), at);
	BAD(spmt_test_some(c, SPMT_TYPE_U64, w, 1, NULL, (enum spmt_cmp)e, &value, &index, &index),
		at);
	BAD(spmt_atomic(c, (enum spmt_amo)e, SPMT_TYPE_U64, w, l, l, &value, 1), at);
	BAD(spmt_atomic(c, SPMT_AMO_ADD, (enum spmt_type)e, w, l, l, &value, 1), at);
	BAD(spmt_all_reduce(c, w, w, 1, (enum spmt_type)e, SPMT_OP_SUM, NULL), at);
	BAD(spmt_all_reduce(c, w, w, 1, SPMT_TYPE_U64, (enum spmt_op)e, NULL), at);
	BAD(spmt_reduce_scatter(c, w, w + 8, 1, SPMT_TYPE_U64, (enum spmt_op)e, NULL), at);
	BAD(spmt_broadcast(c, w, w, 1, (enum spmt_type)e, 0, NULL), at);
	BAD(spmt_all_gather(c, w, w + 8, 1, (enum spmt_type)e, NULL), at);
	BAD(spmt_all_to_all(c, w, w + 8, 1, (enum spmt_type)e, NULL), at);
	BAD(spmt_query(c, (enum spmt_cap)e, &number), at);
	REQUIRE_EQ(value, 1);
	REQUIRE_EQ(number, 77);
	REQUIRE_EQ(index, 77);
	REQUIRE_EQ(result, 77);
	return 0;
}

static int unknown_enums(struct bad *b)
{
	TRY(one_enum(b, -1));
	TRY(one_enum(b, 14));
	TRY(one_enum(b, 1000));
	TRY(one_enum(b, INT_MAX));
	TRY(one_enum(b, INT_MIN));
	return 0;
}
BODY(unknown_enums)

static const char *const type_names[] = { "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64",
	"f16", "bf16", "f32", "f64" };
static const char *const op_names[] = { "sum", "prod", "min", "max", "and", "or", "xor" };
static const char *const amo_names[] = { "fetch", "set", "swap", "compare_swap", "inc", "add",
	"and", "or", "xor", "fetch_inc", "fetch_add", "fetch_and", "fetch_or", "fetch_xor" };

static int types_that_do_not_fit(struct bad *b)
{
	spmt_comm *c = b->comm;
	uint64_t *w = b->words, *l = b->local, value = 1;
	char names[48];

	BAD(spmt_wait_until(c, SPMT_TYPE_F16, w, SPMT_CMP_NE, &value), "type f16 ");
	BAD(spmt_test(c, SPMT_TYPE_BF16, w, SPMT_CMP_NE, &value, &(int){ 0 }), "type bf16 ");
	BAD(spmt_wait_until(c, SPMT_TYPE_F8E4M3, w, SPMT_CMP_NE, &value), "type f8e4m3 ");
	BAD(spmt_test(c, SPMT_TYPE_F8E5M2, w, SPMT_CMP_NE, &value, &(int){ 0 }), "type f8e5m2 ");
	BAD(spmt_atomic(c, SPMT_AMO_COMPARE_SWAP, SPMT_TYPE_U32, w, l, NULL, &value, 1),
		"compare is NULL, amo compare_swap ");
	for (int type = SPMT_TYPE_I8; type <= SPMT_TYPE_F64; type++)
		for (int amo = SPMT_AMO_FETCH; amo <= SPMT_AMO_FETCH_XOR; amo++) {
			bool whole = type >= SPMT_TYPE_I32 && type <= SPMT_TYPE_U64;
			bool real = type >= SPMT_TYPE_F32 && amo <= SPMT_AMO_SWAP;

			snprintf(names, sizeof(names), ": type %s, amo %s: ", type_names[type],
				amo_names[amo]);
			if (!whole && !real)
				BAD(spmt_atomic(c, (enum spmt_amo)amo, (enum spmt_type)type, w, l,
					    l, &value, 1),
					names);
		}
	for (int type = SPMT_TYPE_F16; type <= SPMT_TYPE_F64; type++)
		for (int op = SPMT_OP_AND; op <= SPMT_OP_XOR; op++) {
			snprintf(names, sizeof(names), ": type %s, op %s: ", type_names[type],
				op_names[op]);
			BAD(spmt_all_reduce(
				    c, w, w, 1, (enum spmt_type)type, (enum spmt_op)op, NULL),
				names);
		}
	REQUIRE_EQ(value, 1);
	return 0;
}
BODY(types_that_do_not_fit)

static int collective_arguments(struct bad *b)
{
	static const int twice[] = { 1, 1 }, outside[] = { 2, 0 }, below[] = { -2, 0 };
	spmt_comm *c = b->comm;
	uint64_t *w = b->words;
	void *away = (void *)0x10000; /* not looked at */

	BAD(spmt_all_reduce(c, NULL, w, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL), "NULL");
	BAD(spmt_all_reduce(c, w, NULL, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL), "NULL");
	BAD(spmt_all_gather(c, NULL, w, 1, SPMT_TYPE_U64, NULL), "NULL");
	BAD(spmt_all_to_all(c, w, NULL, 1, SPMT_TYPE_U64, NULL), "NULL");
	BAD(spmt_reduce_scatter(c, NULL, w, 1, SPMT_TYPE_U64, SPMT_OP_MAX, NULL), "NULL");
	BAD(spmt_broadcast(c, NULL, w, 1, SPMT_TYPE_U64, 0, NULL), "NULL");
	BAD(spmt_all_reduce(c, w, w, SIZE_MAX / 4, SPMT_TYPE_U64, SPMT_OP_SUM, NULL), "count");
	BAD(spmt_all_gather(c, w, w + 8, SIZE_MAX / 8, SPMT_TYPE_U64, NULL), "count");
	BAD(spmt_all_reduce(c, w, w, SIZE_MAX / 8, SPMT_TYPE_U64, SPMT_OP_SUM, NULL), "dst");
	BAD(spmt_all_reduce(c, w, w, 1u << 30, SPMT_TYPE_U64, SPMT_OP_SUM, NULL), "beyond its end");
	BAD(spmt_broadcast(c, w, w, (size_t)1 << 60, SPMT_TYPE_U64, 0, NULL), "beyond its end");
	BAD(spmt_reduce_scatter(c, away, w, 1u << 29, SPMT_TYPE_U64, SPMT_OP_MAX, NULL), "src");
	BAD(spmt_all_to_all(c, (void *)(UINTPTR_MAX - 63), w, 8, SPMT_TYPE_U64, NULL), "wraps");
	BAD(spmt_permute(c, w, w + 8, 1, SPMT_TYPE_U64, NULL, NULL), "NULL");
	BAD(spmt_permute(c, w, w + 8, 1, SPMT_TYPE_U64, twice, NULL), "1");
	BAD(spmt_permute(c, w, w + 8, 1, SPMT_TYPE_U64, outside, NULL), "2");
	BAD(spmt_permute(c, w, w + 8, 1, SPMT_TYPE_U64, below, NULL), "-2");
	REQUIRE_OK(spmt_quiet(c));
	return 0;
}
BODY(collective_arguments)

static int views(struct bad *b)
{
	struct spmt_view view = { .size = 0 };
	struct spmt_mem_view mem_view = { .size = 0 };
	struct spmt_stats stats = { .size = 1 };

	BAD(spmt_view_get(b->comm, &view), "size");
	BAD(spmt_mem_view_get(b->comm, b->mem, &mem_view), "size");
	BAD(spmt_stats(b->comm, 0, &stats), "size");
	REQUIRE_EQ(view.npes, 0);
	REQUIRE_EQ(mem_view.npes, 0);
	return 0;
}
BODY(views)

/* ---- comms that are none ----------------------------------------------------------------------------------------------------------- */

static void never_called(void *arg, int code)
{
	(void)arg;
	(void)code;
}

static int no_comm(spmt_comm *c, int want)
{
	uint64_t w[4] = { 0 };
	struct spmt_guard guard;

	REQUIRE_CODE(spmt_put(c, w, w, 8, 0), want);
	REQUIRE_SAYS("spmt_put");
	REQUIRE_CODE(spmt_get(c, w, w, 8, 0), want);
	REQUIRE_CODE(spmt_put_signal(c, w, w, 8, w, 1, SPMT_SIGNAL_SET, 0), want);
	REQUIRE_CODE(spmt_signal(c, w, 1, SPMT_SIGNAL_SET, 0), want);
	REQUIRE_CODE(spmt_signal_wait(c, w, SPMT_CMP_EQ, 0, NULL), want);
	REQUIRE_CODE(spmt_atomic(c, SPMT_AMO_INC, SPMT_TYPE_U64, w, NULL, NULL, NULL, 0), want);
	REQUIRE_CODE(spmt_fence(c), want);
	REQUIRE_CODE(spmt_quiet(c), want);
	REQUIRE_CODE(spmt_barrier(c), want);
	REQUIRE_CODE(spmt_sync(c), want);
	REQUIRE_CODE(spmt_malloc(c, 8, (void **)&(void *){ NULL }), want);
	REQUIRE_CODE(spmt_free(c, w), want);
	REQUIRE_CODE(spmt_register(c, w, 8, &(spmt_mem *){ NULL }), want);
	REQUIRE_CODE(spmt_register_local(c, 1, w, 8, &(spmt_mem *){ NULL }), want);
	REQUIRE_CODE(spmt_mem_lookup(c, 0, 1, &(spmt_mem *){ NULL }), want);
	REQUIRE_CODE(spmt_all_reduce(c, w, w, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL), want);
	REQUIRE_CODE(spmt_status(c), want);
	REQUIRE_CODE(spmt_abort(c, -1), want);
	REQUIRE_CODE(spmt_set_timeout(c, 1), want);
	REQUIRE_CODE(spmt_rank(c), want);
	REQUIRE_CODE(spmt_nranks(c), want);
	REQUIRE_CODE(spmt_device(c), want);
	REQUIRE_CODE(spmt_finalize(c), want);
	REQUIRE_CODE(spmt_split(c, 0, 0, &(spmt_comm *){ NULL }), want);
	REQUIRE_SAYS("spmt_split");
	REQUIRE_CODE(spmt_shrink(c, &(spmt_uid){ { 0 } }, &(int){ 0 }, &(int){ 0 }), want);
	REQUIRE_SAYS("spmt_shrink");
	REQUIRE_CODE(spmt_deregister(c, NULL), want);
	REQUIRE_CODE(spmt_lane(c, 1, &(spmt_comm *){ NULL }), want);
	REQUIRE_CODE(spmt_on_complete(c, NULL, never_called, NULL), want);
	REQUIRE_CODE(spmt_finalize_all(1, &c), want);
	REQUIRE(!spmt_ptr(c, w, 0));
	REQUIRE(!spmt_backend(c));
	spmt_guard_enter(c, &guard);
	spmt_guard_leave(&guard);
	spmt_guard_leave(&guard);
	return 0;
}

Test(bad_input, no_comm)
{
	static _Alignas(64) char never[8192];

	memset(never, 0x5a, sizeof(never));
	RANKS_OK(no_comm(NULL, -EINVAL));
	RANKS_OK(no_comm((spmt_comm *)(void *)never, -EBADF));
	for (size_t i = 0; i < sizeof(never); i++)
		cr_assert_eq(never[i], 0x5a, "byte %zu of what was no comm was written", i);
}

/* More ranks than these, and nothing that says where the others are: the attr is told, not its uid. */
Test(bad_input, more_ranks_than_attrs)
{
	struct spmt_attr attrs[3];
	spmt_comm *none = (spmt_comm *)(uintptr_t)0x51, *comms[3] = { none, none, none };

	for (int i = 0; i < 3; i++)
		attrs[i] = ranks_attr(i, 3, NULL);
	unsetenv("PMIX_NAMESPACE"); /* no job */
	attrs[1].nranks = 5;
	cr_expect_eq(spmt_init_all(3, attrs, comms), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "spmt_init_all: attrs[1].nranks is 5, n is 3:"), "%s",
		spmt_last_error());
	for (int i = 0; i < 3; i++)
		cr_expect_eq(comms[i], none);
}

static int never_run(spmt_comm *comm, void *arg)
{
	(void)comm;
	(void)arg;
	return -1;
}

/* Refused before room or threads are made for them. */
Test(bad_input, more_ranks_than_a_world_has)
{
	struct spmt_attr attr = ranks_attr(0, 1 << 20, NULL);
	spmt_comm *none = (spmt_comm *)(uintptr_t)0x51, *comm = none;
	spmt_uid uid;

	cr_expect_eq(spmt_run(INT_MAX, NULL, never_run, NULL), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "at most 32768 ranks"), "%s", spmt_last_error());
	cr_expect_eq(spmt_run((1 << 15) + 1, NULL, never_run, NULL), -EINVAL);
	cr_assert_eq(spmt_uid_create(&uid), 0);
	attr.uid = &uid;
	cr_expect_eq(spmt_init_all(1, &attr, &comm), -EINVAL);
	cr_expect(strstr(spmt_last_error(), "at most 32768 ranks"), "%s", spmt_last_error());
	cr_expect_eq(comm, none);
}

Test(bad_input, devices_and_streams)
{
	int count = 77;

	cr_expect_eq(spmt_device_count("host", NULL), -EINVAL);
	cr_expect_lt(spmt_device_count("abacus", &count), 0);
	cr_expect_eq(count, 77);
	cr_expect_eq(spmt_host_stream_synchronize(NULL), -EINVAL);
	cr_expect_eq(spmt_host_stream_destroy(NULL), -EINVAL);
	cr_expect_lt(spmt_host_stream_destroy(SPMT_STREAM_LEGACY), 0);
}
