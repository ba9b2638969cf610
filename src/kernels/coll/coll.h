/* SPDX-License-Identifier: MIT */
/* What the files of the collectives share. On devices, and with COLL_ONE_UNIT, they are one unit, whose functions are its own. */
#ifndef SPMT_KERNELS_COLL_H
#define SPMT_KERNELS_COLL_H

#include "../../../include/spmt.h"
#include "src/kernels/broken.h"

#if defined(__AMDGCN__) || defined(__NVPTX__)
/* Inlined into each kernel: its arguments would be copied to the stack if their address reached a call. */
#define COLL_FN static inline __attribute__((always_inline)) SPMTD_MEETS
/* After which polls a wait checks what else may end it. */
#define COLL_LOOKS(polls) ((polls) % 64 == 0)
#elif defined(COLL_ONE_UNIT)
#define COLL_FN static inline
#else
#define COLL_FN
#endif
#if !defined(COLL_LOOKS)
/* Peers write there, too; later a poll is a sleep. */
#define COLL_LOOKS(polls) ((polls) % 16 == 0 || (polls) > 256)
#endif

/* Of kernels for many threads. */
#if defined(__NVPTX__)
#define COLL_TELLS 1
#else
#define COLL_TELLS 0
#endif

/* The worst block's counts for all. */
enum { ENDED_WELL, ENDED_DIFFERS, ENDED_ABORTED, ENDED_TIMEOUT };

struct coll {
	const struct kernel_collective_args *args;
	const struct spmt_view *view;
	const struct coll_share *share; /* for the grid that runs */
	uint64_t epoch, before;
	uint64_t bytes; /* of a block */
	uint32_t brief; /* as the arguments', for the grid that runs */
	uint64_t mark;	/* not 0 in some thread of a block: the comm was broken when it began */
	/* what this launch has added to the count of blocks, in the last one's first thread */
	uint64_t ended;
	int refused; /* as mark, in all of them */
	int stopped; /* not 0 in some thread: it has seen since that this one is to be given up */
	int glances; /* not 0: that is being found out, or has been (coll_stopped) */
	int last;    /* by slots: of its rank's blocks, the last to begin; in its first thread */
	int met;     /* all ranks have come, and may touch each other's buffers */
	int closed;  /* a block that is through need not ask whether the others are */
	int tells;   /* a constant: a block's first warp asks, and tells the others in coll_open */
	int failed;  /* some block of this rank has, at peers; in the last one */
	/* the first of the words between two ranks by which this block meets; more follow, up to `words`, each a grid's number of blocks
	   further */
	uint32_t word, words;
	const struct kernel_collective_v_args
		*v;		/* where each pair has a count of its own, else NULL */
	uint64_t round, rounds; /* then: through the stage, from 0 */
#if !defined(__AMDGCN__) && !defined(__NVPTX__)
	struct coll_share own_share;
#endif
};

static inline uint64_t peek_word(const uint64_t *word)
{
	return spmtd_peek64_(spmtd_at_(word));
}

/* ---- coll.c ----------------------------------------------------------------------------------- */

/* Sets what is called, needing nothing from earlier work in the stream; then starts to find out the epoch, nothing of which may be read before coll_open.
   The last by the threads of every block; 0: it does not take place. */
COLL_FN void coll_enter(struct coll *c, const struct kernel_collective_args *args);
COLL_FN void coll_set(struct coll *c);
COLL_FN int coll_open(struct coll *c);
/* Not 0 in some thread: give this collective up. Called before a block touches its rank's or a peer's memory. */
COLL_FN int coll_stopped(const struct coll *c);
/* Around one by slots, which has ended with rc. */
COLL_FN void coll_slots_begin(struct coll *c);
COLL_FN void coll_slots_end(const struct coll *c, int rc);
/* The collective between two meetings. Each kernel names its counts, so that none holds the loops of the other. */
enum coll_counts { COLL_COUNTS_EQUAL, COLL_COUNTS_VARY };
COLL_FN void coll_at_peers(struct coll *c, enum coll_counts counts);
/* Two meetings of this block with those of its number, around what it moves. 0: all have come. The first one in two halves, between which it does
   what waits for nobody; the first of these in parts, of which the other ranks hear by a greeting before they are taken. */
COLL_FN int coll_block_meets(struct coll *c);
COLL_FN int coll_block_greets(struct coll *c);
COLL_FN void coll_block_begins(struct coll *c);
COLL_FN int coll_block_met(struct coll *c);
COLL_FN void coll_block_parts(struct coll *c, int rc);

/* ---- varied.c --------------------------------------------------------------------------------- */

/* As an algorithm's function; the first round finds how many there are. */
COLL_FN int coll_varied(struct coll *c);

/* ---- meet.c ----------------------------------------------------------------------------------- */

/* One code for the block: an abort outranks a timeout, a timeout a mismatch. */
COLL_FN int coll_agrees(int rc);
/* By the threads of one block: says what this rank calls. Loads of peers follow where `posted`. */
COLL_FN void coll_greet(const struct coll *c, int posted);
/* As spmtd_wait_check_, of a rank that any other may have told that it waits in vain. */
COLL_FN int coll_patience(const struct spmt_view *v, struct spmtd_waiter_ *w);
/* What pe says that it calls, its key; 0: it has not come. */
COLL_FN int coll_hello(const struct coll *c, int pe, uint64_t *key);
/* All ranks see some key that is not their own, or none does. */
COLL_FN int coll_meet(const struct coll *c);
COLL_FN void coll_record_mismatch(const struct coll *c, int pe);
/* Is this block, which has failed or not, the last of its rank to get here? What the others have stored is then seen, and told with the
   next release; c->failed is set. */
COLL_FN int coll_last_block(struct coll *c, int failed);
/* By one thread of the last block. */
COLL_FN void coll_end_epoch(const struct coll *c);

/* By one thread of each block that is not through with it; then by any: how the collective `epoch` has ended. */
COLL_FN void coll_ended_badly(const struct coll *c, int rc);
COLL_FN int coll_ended_how(const struct spmt_view *v, uint64_t epoch);
static inline int ended_code(int how)
{
	return how == ENDED_TIMEOUT    ? SPMTD_TIMEOUT
		: how == ENDED_DIFFERS ? SPMTD_MISMATCH
				       : SPMTD_ABORTED;
}
/* By the threads of every block of a rank, before they touch peers' buffers; rc: of what came before. Not 0: that, or one has taken
   itself back. */
COLL_FN int coll_take_all(const struct coll *c, int rc);
/* This block alone; c->stopped: some peer has taken itself back. By its threads, each of which has its own answer. */
COLL_FN void coll_block_takes(struct coll *c);
/* By lane of lanes threads of the rank's last block. */
COLL_FN void coll_note_missing(const struct coll *c, uint32_t lane, uint32_t lanes);
/* Between two looks, in a broken comm, for what pe must do (-1: the host); not 0: it has taken too long. */
COLL_FN int coll_pause_broken(const struct spmt_view *v, int pe, struct spmtd_waiter_ *w);
/* Until no peer touches this rank's buffers. By the threads of the rank's last block, or of each. */
COLL_FN void coll_take_back(const struct coll *c);

/* ---- the algorithms, one file each ---------------------------------------------------------------- */

/* By the threads of all blocks, none of which has found the comm broken. COLL_AT_PEERS: between the two meetings, `push2` from the first
   half of the first on. 0, or the code that ended it, the same in all threads of a block. */
#define X(name, kinds, way, gpu, cpu, grain) COLL_FN int coll_##name(struct coll *c);
COLL_TABLE(X)
#undef X

#if !defined(__AMDGCN__) && !defined(__NVPTX__)
const struct kernel *ll12_kernel_of(const struct kernel_collective_args *args);
const struct kernel *push2_kernel_for(const struct kernel_collective_args *args);
const struct kernel *twoshot_kernel_for(const struct kernel_collective_args *args);
#endif

#endif
