/* SPDX-License-Identifier: MIT */
/* A plan as it is kept, and what its parts share: who reads and writes which chunks, who waits for whom. */
#ifndef SPMT_PLAN_PRIVATE_H
#define SPMT_PLAN_PRIVATE_H

#include "include/spmt.h"
#include "src/base/base.h"

struct plan_list {
	struct spmt_plan_op *ops;
	size_t n, room;
};

struct plan_rank {
	struct plan_list blocks[SPMT_PLAN_BLOCKS];
	int nblocks;
};

struct spmt_plan {
	struct spmt_plan_attr attr; /* name and collective point behind */
	char name[64], collective[64];
	struct plan_rank *ranks; /* attr.nranks */
	size_t ops;
	int nblocks; /* of the rank that has most */
};

/* ---- what an operation is ---------------------------------------------------------------------- */

/* What a chunk of an operation is to it; packets lie beside scratch. */
enum plan_place { PLAN_NO_PLACE, PLAN_PLAIN, PLAN_PACKETS };

/* One row a kind. */
struct plan_kind {
	const char *name;
	const char *json; /* its name in execution plans */
	int nsrc, ndst;	  /* at least; `more`: or any number up to SPMT_PLAN_TERMS */
	bool more_src, more_dst;
	enum plan_place first_src, other_src, first_dst, other_dst;
	bool folds;
};
extern const struct plan_kind plan_kinds[SPMT_PLAN_ACQUIRE + 1];

static inline enum plan_place plan_src_place(const struct spmt_plan_op *op, int i)
{
	return i ? plan_kinds[op->kind].other_src : plan_kinds[op->kind].first_src;
}

static inline enum plan_place plan_dst_place(const struct spmt_plan_op *op, int i)
{
	return i ? plan_kinds[op->kind].other_dst : plan_kinds[op->kind].first_dst;
}

static inline bool plan_signals(const struct spmt_plan_op *op)
{
	return op->kind == SPMT_PLAN_SIGNAL || op->kind == SPMT_PLAN_SIGNAL_RELAXED;
}

static inline bool plan_waits(const struct spmt_plan_op *op)
{
	return op->kind == SPMT_PLAN_WAIT || op->kind == SPMT_PLAN_WAIT_RELAXED;
}

/* Of a semaphore. */
static inline bool plan_counts(const struct spmt_plan_op *op)
{
	return op->kind == SPMT_PLAN_RELEASE || op->kind == SPMT_PLAN_ACQUIRE;
}

static inline bool plan_moves(const struct spmt_plan_op *op)
{
	return op->ndst > 0;
}

/* How many semaphores are named, or of what else has an index; one at least. */
uint32_t plan_indices(const struct spmt_plan *plan, bool semaphores);

/* Into how many chunks a call's count is cut: 1 where there is neither input nor output. */
uint32_t plan_parts(const struct spmt_plan_attr *attr);
/* Chunks of a buffer of each rank. */
uint32_t plan_chunks(const struct spmt_plan *plan, enum spmt_plan_buffer buffer);
/* The chunk as one of the buffer that both lie in, in place: the larger one. As if the plan were in place; and if it is. */
struct spmt_plan_chunk plan_merged_in_place(
	const struct spmt_plan *plan, struct spmt_plan_chunk chunk);
struct spmt_plan_chunk plan_merged(const struct spmt_plan *plan, struct spmt_plan_chunk chunk);
/* Who waits for a verdict: as long as the stop word is 0, and until then, as of process_now(). NULL: nobody does. */
struct plan_limit {
	const uint32_t *stop;
	int64_t until;
};
/* 0; -ECANCELED, SPMT_ERR_TIMEOUT, with a sentence. */
int plan_goes_on(const struct spmt_plan *plan, const struct plan_limit *limit);
/* spmt_plan_check, which the limit may end, without a verdict. */
int plan_check(const struct spmt_plan *plan, const struct plan_limit *limit);

/* Whether some operation has packets. */
bool plan_has_packets(const struct spmt_plan *plan);
/* "rank 0 block 1 op 2 (put i0 to rank 1 o0)"; text of at least PLAN_WORDS bytes. */
enum { PLAN_WORDS = 160 };
const char *plan_words(
	const struct spmt_plan *plan, int rank, int block, size_t nth, char text[PLAN_WORDS]);
/* The operation alone. */
void plan_op_words(const struct spmt_plan_op *op, int rank, char *text, size_t room);

/* Folds all that makes two plans different when they run; and that without the operations, which plan_shape() has in words. */
uint64_t plan_fold_all(const struct spmt_plan *plan);
uint64_t plan_fold_shape(const struct spmt_plan *plan);
void plan_shape(const struct spmt_plan *plan, char *text, size_t room);

/* A struct of the caller's, perhaps older or newer than this library: its first bytes to ours. -EINVAL with a sentence. */
int plan_take(const char *what, const char *name, void *ours, size_t size, const void *theirs,
	size_t least);

/* ---- text that grows (show.c) --------------------------------------------------------------------- */

struct plan_text {
	char *bytes;
	size_t used, room;
	bool failed; /* there was no memory */
};
void plan_print(struct plan_text *t, const char *fmt, ...) PRINTF(2, 3);
/* -EINVAL and a sentence: an operation has no such form. */
int plan_write_json(const struct spmt_plan *plan, struct plan_text *t); /* write.c */
void plan_write_svg(const struct spmt_plan *plan, struct plan_text *t); /* svg.c */

#endif
