/* SPDX-License-Identifier: MIT */
#ifndef SPMT_COLLECTIVE_H
#define SPMT_COLLECTIVE_H

#include "spmt/comm/comm.h"
#include "spmt/comm/stream.h"
#include "spmt/comm/table.h"
#include "src/kernels/coll/table.h"

#define COLL_STAGE (1u << 20)	 /* bytes, either way, where ranks live in several processes */
#define SPLIT_STAGE (128u << 10) /* the same of a comm split from another */
/* Bytes of a slot (coll/table.h), where all slots of a rank may take `most`. */
#define COLL_SLOTS (24u << 20)
#define SPLIT_SLOTS (64u << 10)
#define SPLITS_ROOM \
	(4u << 20) /* for the areas of comms split from a world; then they take from the heap */
uint32_t coll_room(const spmt_comm *comm, uint64_t most);
uint64_t coll_stage_room(const spmt_comm *comm);
/* Its devices' kernels access 16 bytes at once. */
bool coll_whole_units(const spmt_comm *comm);

/* For collectives of the comm the algorithm of this name, where it fits; NULL: no wish. */
int coll_wish(spmt_comm *comm, const char *name);

/* ---- plans as rows (spmt/plan/rows/row.c) ------------------------------------------------------------- */

/* A call as a plan sees it, or a part of one. */
struct coll_planned {
	const char *what;
	enum kernel_collective_kind kind;
	void *dst;
	const void *src;
	size_t count; /* as the call's */
	enum spmt_type type;
	enum spmt_op op;
	uint64_t key; /* what the ranks compare */
	int part;     /* 0: the first */
};

/* Those that SPMT_COLL names, before the rows of the table; of a world's comm alone. The first member of what has them. */
struct coll_in_stream;
struct coll_plan;
struct coll_plans {
	/* The plan for a call, the same on all ranks; NULL: none fits. -EINVAL and a sentence: none fits, and no other row is
	   wanted. */
	int (*choose)(
		spmt_comm *comm, const struct coll_planned *call, const struct coll_plan **plan);
	/* A part of a call has a multiple of so many elements. */
	size_t (*grain)(const struct coll_plan *plan, const struct coll_planned *call);
	/* Between coll_begin and coll_end. */
	int (*queue)(spmt_comm *comm, const struct coll_plan *plan, const struct coll_planned *call,
		struct coll_in_stream *in);
};

/* ---- what calls of collectives share ------------------------------------------------------------ */

/* Call around everything that a collective puts into a stream. */
struct coll_in_stream {
	struct reserved reserved;
	device_stream stream;
	uint64_t key;	  /* what the ranks compare; 0: not told */
	bool queued, met; /* something is there; a kernel by which the others meet this rank is */
};
int coll_begin(spmt_comm *comm, device_stream stream, struct coll_in_stream *in);
/* Also after a failure, for the parts that were queued before it. */
void coll_end(spmt_comm *comm, const struct coll_in_stream *in);
/* Where kernels do not reach all peers (comm->far), movers do it all. Takes the spans over. */
struct far_call;
int coll_far(spmt_comm *comm, const struct far_call *call, struct coll_in_stream *in);
/* Both are ranks of one device. */
bool coll_device_is_shared(const struct rank_info *a, const struct rank_info *b);
uint64_t coll_report(const spmt_comm *comm);
/* Blocks of threads for so many bytes, `grain` for each, and no more than run at once. */
#define COLL_BLOCKS 32u
#define COLL_MEETING 64u /* of those that meet block by block, where the comm has the device */
#define COLL_PUSHING \
	128u /* the same of row push2, which waits for what is stored: more keep links busier */
/* No rank shares its GPU, nor does another comm of this process: its blocks may be most of those that fit. With others, some kernels on each GPU
   might wait for kernels that another GPU has not begun. */
bool coll_has_device(const spmt_comm *comm);
/* Passed to such a kernel: whether it may let the next one of its stream begin. */
bool coll_is_alone(const spmt_comm *comm, const struct kernel *kernel);
unsigned coll_grid(const spmt_comm *comm, uint64_t bytes, uint64_t grain, unsigned most);
/* Of a row's kernel, by which `blocks` of `bytes` come through a rank. */
struct kernel_grid coll_shape(
	const spmt_comm *comm, int row, bool folds, uint64_t bytes, uint64_t blocks);

#endif
