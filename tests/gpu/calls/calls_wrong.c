/* SPDX-License-Identifier: MIT */
/* Calls that have to fail, each with its code, and the comm is as good as before. */
#include "calls.h"
#include "spmt_device.h"

#define WRONG(call) GIVES(-EINVAL, call)
#define NONE(enumeration) ((enum enumeration)77)

static const enum spmt_type U64 = SPMT_TYPE_U64;
static const enum spmt_cmp EQ = SPMT_CMP_EQ;
static const enum spmt_signal_op SET = SPMT_SIGNAL_SET;

static int wrong_moves(struct calls *c)
{
	uint64_t *w = c->words, local[8] = { 0 }, *odd = (uint64_t *)(void *)(c->block + 4);
	spmt_comm *comm = c->r->comm;
	int n = c->r->n, pe = c->r->next;
	spmt_stream s = c->streams[0];

	WRONG(spmt_put(comm, w, local, 8, n));
	WRONG(spmt_put(NULL, w, local, 8, pe));
	WRONG(spmt_put_nbi(comm, local, w, 8, pe));
	WRONG(spmt_put_on_stream(comm, w, w + 8, SIZE_MAX / 2, pe, s));
	WRONG(spmt_get(comm, NULL, w, 8, pe));
	WRONG(spmt_get_nbi(comm, local, w, 8, -1));
	WRONG(spmt_get_on_stream(comm, w, local, 8, pe, NULL));
	WRONG(spmt_put_signal(comm, w, local, 8, odd, 1, SET, pe));
	WRONG(spmt_put_signal_nbi(comm, w, local, 8, w, 1, NONE(spmt_signal_op), pe));
	WRONG(spmt_put_signal_on_stream(comm, w, w + 8, 8, local, 1, SET, pe, s));
	WRONG(spmt_iput(comm, w, local, 0, 1, 2, 8, pe));
	WRONG(spmt_iget(comm, local, w, 1, 1, SIZE_MAX / 2, 8, pe));
	WRONG(spmt_copy_in(comm, local, local, 8));
	WRONG(spmt_copy_out(comm, NULL, w, 8));
	WRONG(spmt_mem_put(comm, c->mem, 4096, local, 8, pe));
	WRONG(spmt_mem_put_nbi(comm, NULL, 0, local, 8, pe));
	WRONG(spmt_mem_put_on_stream(comm, c->mem, 0, w, 8, n, s));
	WRONG(spmt_mem_get(comm, NULL, c->mem, 0, 8, pe));
	WRONG(spmt_mem_get_nbi(comm, local, c->mem, 0, 5000, pe));
	WRONG(spmt_mem_get_on_stream(comm, w, c->mem, SIZE_MAX, 8, pe, NULL));
	TRUE(!spmt_ptr(comm, local, pe));
	TRUE(!spmt_mem_ptr(c->mem, n));
	TRUE(!spmt_mem_size(NULL, pe));
	return 0;
}

static int wrong_words(struct calls *c)
{
	uint64_t *w = c->words, local = 0, *odd = (uint64_t *)(void *)(c->block + 4);
	spmt_comm *comm = c->r->comm;
	int n = c->r->n, pe = c->r->next, yes;
	size_t at, found;

	WRONG(spmt_signal(comm, odd, 1, SET, pe));
	WRONG(spmt_signal_on_stream(comm, w, 1, SET, n, c->streams[0]));
	WRONG(spmt_signal_fetch(comm, w, NULL));
	WRONG(spmt_signal_wait(comm, w, NONE(spmt_cmp), 1, NULL));
	WRONG(spmt_signal_wait_on_stream(comm, odd, EQ, 1, NULL));
	WRONG(spmt_wait_until(comm, NONE(spmt_type), w, EQ, &local));
	WRONG(spmt_wait_until_any(comm, U64, &local, 1, NULL, EQ, &local, &at));
	WRONG(spmt_wait_until_some(comm, U64, w, 1, NULL, EQ, &local, NULL, &found));
	WRONG(spmt_wait_until_all(comm, U64, w, SIZE_MAX / 4, NULL, EQ, &local));
	WRONG(spmt_test(comm, SPMT_TYPE_F16, w, EQ, &local, &yes));
	WRONG(spmt_test_any(comm, U64, odd, 1, NULL, EQ, &local, &at));
	WRONG(spmt_test_some(comm, U64, w, 1, NULL, EQ, &local, &at, NULL));
	WRONG(spmt_test_all(comm, U64, w, 1, NULL, EQ, NULL, &yes));
	WRONG(spmt_atomic(comm, SPMT_AMO_ADD, U64, odd, &local, NULL, NULL, pe));
	WRONG(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_I8, w, &local, NULL, NULL, pe));
	WRONG(spmt_atomic(comm, NONE(spmt_amo), U64, w, &local, &local, &local, pe));
	return 0;
}

/* What is waited for does not come. */
static int late(struct calls *c)
{
	uint64_t *w = c->words, never = UINT64_MAX;
	spmt_comm *comm = c->r->comm;
	size_t at, found;

	CALL(spmt_set_timeout(comm, 2));
	GIVES(SPMT_ERR_TIMEOUT, spmt_signal_wait(comm, w, EQ, never, NULL));
	GIVES(SPMT_ERR_TIMEOUT, spmt_wait_until(comm, U64, w, EQ, &never));
	GIVES(SPMT_ERR_TIMEOUT, spmt_wait_until_any(comm, U64, w, 4, NULL, EQ, &never, &at));
	GIVES(SPMT_ERR_TIMEOUT,
		spmt_wait_until_some(comm, U64, w, 1, NULL, EQ, &never, &at, &found));
	GIVES(SPMT_ERR_TIMEOUT, spmt_wait_until_all(comm, U64, w, 4, NULL, EQ, &never));
	CALL(spmt_set_timeout(comm, 0));
	return 0;
}

static int wrong_collectives(struct calls *c)
{
	const int twice[2] = { 0, 0 }, outside[1] = { c->r->n };
	uint64_t *d = (uint64_t *)(void *)c->block, *s = d + 64;
	const enum spmt_op sum = SPMT_OP_SUM;
	enum spmt_op made;
	spmt_comm *comm = c->r->comm;
	spmt_stream own = c->streams[0];

	WRONG(spmt_broadcast(comm, d, s, 1, U64, c->r->n, own));
	WRONG(spmt_all_gather(comm, NULL, s, 1, U64, NULL));
	WRONG(spmt_all_to_all(comm, d, s, SIZE_MAX / 4, U64, own));
	WRONG(spmt_permute(comm, d, s, 1, U64, c->r->n > 1 ? twice : outside, NULL));
	WRONG(spmt_reduce_scatter(comm, d, (char *)s + 4, 1, U64, sum, own));
	WRONG(spmt_all_reduce(comm, d, d + 1, 2, U64, sum, NULL));
	WRONG(spmt_all_reduce(comm, d, s, 1, SPMT_TYPE_F32, SPMT_OP_XOR, own));
	WRONG(spmt_all_reduce(comm, d, s, 1, NONE(spmt_type), sum, own));
	WRONG(spmt_reduce(comm, d, s, 1, U64, sum, -1, own));
	WRONG(spmt_op_premul_create(comm, U64, NULL, SPMT_SCALAR_DEVICE, &made));
	WRONG(spmt_op_destroy(comm, SPMT_OP_MADE));
	WRONG(spmt_gather(comm, d, s, 1, U64, c->r->n, own));
	WRONG(spmt_scatter(comm, NULL, s, 1, U64, 0, own));
	WRONG(spmt_all_gather_v(comm, d, NULL, NULL, s, U64, own));
	WRONG(spmt_all_to_all_v(comm, d, NULL, NULL, s, NULL, NULL, U64, NULL));
	WRONG(spmt_barrier(NULL));
	WRONG(spmt_sync(NULL));
	WRONG(spmt_barrier_on_stream(NULL, own));
	WRONG(spmt_fence(NULL));
	WRONG(spmt_quiet(NULL));
	WRONG(spmt_quiet_on_stream(NULL, own));
	CALL(spmt_quiet(comm));
	return 0;
}

/* All ranks meet, and all fail. */
static int wrong_meetings(struct calls *c)
{
	spmt_comm *comm = c->r->comm, *part;
	size_t differs = 64 + (size_t)(c->r->pe == 0);
	spmt_mem *mem;
	void *p;

	WRONG(spmt_malloc(comm, 64, NULL));
	GIVES(-ENOMEM, spmt_malloc(comm, (size_t)1 << 40, &p));
	GIVES(-ENOMEM, spmt_calloc(comm, SIZE_MAX / 2, 4, &p));
	WRONG(spmt_aligned_alloc(comm, 3, 64, &p));
	WRONG(spmt_free(comm, c->block + 64));
	if (c->r->n > 1)
		GIVES(SPMT_ERR_MISMATCH, spmt_malloc(comm, differs, &p));
	WRONG(spmt_register(comm, NULL, 64, &mem));
	WRONG(spmt_register_local(comm, 1, NULL, 64, &mem));
	GIVES(-ENOENT, spmt_mem_lookup(comm, c->r->pe, 1, &mem));
	WRONG(spmt_deregister(comm, NULL));
	WRONG(spmt_split(comm, 0, 0, NULL));
	WRONG(spmt_plan_begin(comm, NULL, 64, NULL));
	WRONG(spmt_plan_run(comm, NULL, c->words, c->words, 1, U64, SPMT_OP_SUM, NULL));
	WRONG(spmt_plan_end(comm, NULL));
	WRONG(spmt_finalize(NULL));
	WRONG(spmt_finalize_all(0, &comm));
	WRONG(spmt_lane(comm, 7, NULL));
	WRONG(spmt_on_complete(comm, NULL, NULL, NULL));
	WRONG(spmt_stream_register(comm, NULL));
	WRONG(spmt_stream_deregister(comm, NULL));
	CALL(spmt_split(comm, 0, 0, &part));
	WRONG(spmt_deregister(part, c->mem));
	CALL(spmt_finalize(part));
	return 0;
}

static int wrong_questions(struct calls *c)
{
	struct spmt_mem_view mem_view = { .size = 1 };
	struct spmt_route route = { .size = 1 };
	struct spmt_stats stats = { .size = 1 };
	struct spmt_view view = { .size = 1 };
	struct spmt_channel channel = { .size = 1 };
	struct spmt_port port = { .size = 1 };
	struct spmt_switch sw = { .size = 1 };
	spmt_comm *comm = c->r->comm;
	int64_t value;
	int number;
	spmt_uid uid;

	WRONG(spmt_rank(NULL));
	WRONG(spmt_nranks(NULL));
	WRONG(spmt_device(NULL));
	TRUE(!spmt_backend(NULL));
	WRONG(spmt_status(NULL));
	WRONG(spmt_abort(NULL, -1));
	WRONG(spmt_set_timeout(NULL, 1));
	WRONG(spmt_query(comm, NONE(spmt_cap), &value));
	WRONG(spmt_route(comm, 0, &route));
	WRONG(spmt_stats(comm, c->r->n, &stats));
	WRONG(spmt_stats(comm, 0, &stats));
	WRONG(spmt_view_get(comm, &view));
	WRONG(spmt_mem_view_get(comm, c->mem, &mem_view));
	WRONG(spmt_channel_get(comm, NULL, &channel));
	WRONG(spmt_port_get(comm, NULL, &port));
	WRONG(spmt_switch_get(comm, c->block, 64, c->mem, &sw));
	WRONG(spmt_shrink(comm, &uid, &number, &number));
	return 0;
}

int calls_wrong(struct calls *c)
{
	TRY(wrong_moves(c));
	TRY(wrong_words(c));
	TRY(late(c));
	TRY(wrong_collectives(c));
	TRY(wrong_meetings(c));
	TRY(wrong_questions(c));
	CALL(spmt_status(c->r->comm));
	CALL(spmt_barrier(c->r->comm));
	return 0;
}
