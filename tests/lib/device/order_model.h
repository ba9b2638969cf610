/* SPDX-License-Identifier: MIT */
/*
 * GPUs that promise no more than PTX's memory model: threads of blocks of ranks, of which one runs at a time. Two accesses to a byte, one of them a
 * store, are compared by what orders them, and not by when they were: what may go wrong is found, whether it does or not. order_machine.h is
 * the device header over it.
 *
 * A store comes before another thread's access where a meeting of the block says so, a release that was acquired, or a relaxed store behind a fence
 * that was loaded before a fence. A load comes before another thread's store by these, and by any store behind it that was seen: a thread
 * has what it loads before it goes past a meeting, or stores what depends on it.
 */
#ifndef TESTS_ORDER_MODEL_H
#define TESTS_ORDER_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum {
	ORDER_THREADS = 64, /* at most, of all ranks */
	ORDER_RANKS = 8,
	ORDER_SHARED = 1024 /* words of a block's memory */
};

/* Ordinary, alone of its kind, or such that it acquires or releases. */
enum order_kind { ORDER_WEAK, ORDER_RELAXED, ORDER_SYNC };
enum order_change { ORDER_SWAP, ORDER_CAS, ORDER_ADD, ORDER_AND, ORDER_OR, ORDER_XOR };

/* Who the calling thread is. */
struct order_who {
	uint32_t rank, block, blocks, tid, threads;
	uint64_t *shared; /* its block's */
};
extern _Thread_local struct order_who order_self;

/* Accesses to these bytes are compared, those to others are done. */
void order_open(const void *memory, size_t bytes);
void order_close(void);
/*
 * fn by all threads of so many blocks of each rank, in an order drawn by seed; returns when all have. `slow`: a rank whose threads seldom have
 * their turn, -1: none.
 */
struct order_grid {
	int ranks, slow;
	uint32_t blocks[ORDER_RANKS], threads;
	uint64_t seed;
};
void order_run(const struct order_grid *grid, void (*fn)(void *arg), void *arg);
/* What was wrong first, NULL: nothing. Until the next order_open. */
const char *order_wrong(void);

/* ---- by those threads ---------------------------------------------------------------------------- */

void order_load(uint64_t a, void *x, size_t n, enum order_kind kind);
void order_store(uint64_t a, const void *x, size_t n, enum order_kind kind);
/* An atomic of n bytes: the old value. */
uint64_t order_atomic(uint64_t a, size_t n, enum order_change change, uint64_t x, uint64_t compare,
	enum order_kind kind);
void order_fence(void);
/* Of the block: whether x is not 0 in any thread. */
int order_meet(int x);
/* By all threads of a rank: its kernel is over, and the next one begins. */
void order_kernel_ends(void);

#endif
