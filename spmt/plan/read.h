/* SPDX-License-Identifier: MIT */
/* Reading an execution plan: its members, and what its numbers of channels and buffers mean (places.c); each sets what it reads to something
   even if it fails, which it does with the line. */
#ifndef SPMT_PLAN_READ_H
#define SPMT_PLAN_READ_H

#include "lists.h"
#include "plan.h"

#define PLAN_READ "spmt_plan_read"

/* Of one GPU, while its operations are read. */
struct plan_reader {
	struct json json;
	const struct json_node *gpus;
	struct spmt_plan *plan;
	int rank, block;
	const struct json_node *gpu, *threadblock;
	struct read_lists peers, groups, buffers; /* of the GPU */
	struct read_lists channels, refs;	  /* of the block */
	uint32_t *before; /* by item of peers: those of its type and peer before it */
	uint32_t connected[2][SPMT_PLAN_RANKS]; /* channels to a peer of type memory, and port */
};

int read_wrong(const struct json_node *at, const char *fmt, ...) PRINTF(2, 3);

/* ---- members ---------------------------------------------------------------------------------- */

/* A number in 0 .. most; without one, `missing`, or, if that is above most, an error. */
#define READ_MUST UINT64_MAX
int read_number(const struct plan_reader *r, const struct json_node *of, const char *key,
	uint64_t most, uint64_t missing, uint64_t *number);
int read_word(const struct plan_reader *r, const struct json_node *of, const char *key,
	const char **word);
/* Missing is empty. */
int read_array(const struct plan_reader *r, const struct json_node *of, const char *key,
	const struct json_node **array);
/* An array's nth, which the caller has. */
int read_element(
	const struct json_node *n, const char *key, uint64_t nth, uint64_t most, uint64_t *number);
int read_item(const struct plan_reader *r, const struct json_node *of,
	const struct json_node *array, const char *key, uint64_t nth, uint64_t most,
	uint64_t *number);

/* ---- channels and chunks ------------------------------------------------------------------------ */

/* What its GPU's and block's operations call by number; that no list is longer than a plan has use for. What was there goes. */
int read_gpu_lists(struct plan_reader *r);
int read_block_lists(struct plan_reader *r);
void read_lists_close(struct plan_reader *r);
/* The channel_type of it. */
bool read_is_type(const struct plan_reader *r, const struct json_node *of, const char *type);
/* What the block calls channel `nth` of this type: its number among the GPU's. */
int read_block_channel(const struct plan_reader *r, const struct json_node *op, const char *type,
	uint64_t nth, uint64_t *number);
/* The peer of a GPU's channel, and how many to that peer of its type come before it. */
int read_gpu_channel(const struct plan_reader *r, const struct json_node *op, const char *type,
	uint64_t number, int *peer, int *index);

/* All chunks of an operation on each side; of a switch's, those of all its ranks, this one's first. */
struct read_side {
	struct spmt_plan_chunk c[SPMT_PLAN_TERMS];
	int n;
};
int read_sides(const struct plan_reader *r, const struct json_node *op, struct read_side *src,
	struct read_side *dst);
/* Of a reduction of a switch's chunks to one of this rank, which has them by other names. */
int read_group_sides(const struct plan_reader *r, const struct json_node *op, struct read_side *src,
	struct read_side *dst);

#endif
