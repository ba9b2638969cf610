/* SPDX-License-Identifier: MIT */
/*
 * A block of threads, each of which is a thread here: for programs that include the library's kernels behind this, as GPUs run them. Each thread
 * sets who it is; PLAN_KEPT: the words that a block keeps of a plan's list; BLOCK_ABREAST: its threads, each of which has a unit that all see.
 * KERNELS_OF_GPUS: four of them are a warp, which votes, and tells what each has.
 */
#ifndef TESTS_GRID_BLOCK_H
#define TESTS_GRID_BLOCK_H

#include <pthread.h>
#include <stdint.h>

#include "spmt_device/packet.h"

struct block {
	pthread_mutex_t lock;
	pthread_cond_t all;
	uint32_t come;
	int any, result;
	uint64_t turn;
#if defined(PLAN_KEPT)
	uint64_t kept[PLAN_KEPT]; /* which some lists exceed */
#endif
#if defined(BLOCK_ABREAST)
	struct spmtd_unit_ abreast[BLOCK_ABREAST];
#endif
#if defined(KERNELS_OF_GPUS)
	uint32_t told[4]; /* of a warp */
#endif
};

static _Thread_local uint32_t own_tid, own_threads, own_block, own_blocks;
static _Thread_local struct block *own_meeting;

static int any_of(struct block *b, uint32_t threads, int x)
{
	uint64_t turn;
	int any;

	pthread_mutex_lock(&b->lock);
	turn = b->turn;
	b->any |= x != 0;
	if (++b->come == threads) {
		b->result = b->any;
		b->any = 0;
		b->come = 0;
		b->turn++;
		pthread_cond_broadcast(&b->all);
	}
	while (b->turn == turn)
		pthread_cond_wait(&b->all, &b->lock);
	any = b->result;
	pthread_mutex_unlock(&b->lock);
	return any;
}

static int any_of_block(int x)
{
	return any_of(own_meeting, own_threads, x);
}

#if defined(KERNELS_OF_GPUS)
static _Thread_local struct block *own_warp;

static inline int warp_any(int x)
{
	return any_of(own_warp, 4, x);
}

static inline uint32_t quad_take(uint32_t x, int from)
{
	uint32_t y;

	own_warp->told[own_tid % 4] = x;
	(void)warp_any(0);
	y = own_warp->told[from];
	(void)warp_any(0);
	return y;
}
#endif

static inline int agreed_by_block(int rc)
{
	if (!any_of_block(rc))
		return 0;
	return any_of_block(rc == SPMTD_ABORTED) ? SPMTD_ABORTED : SPMTD_TIMEOUT;
}

/* What the device header does by a block, each of its threads does all of here. Where they meet for it, they do, too. */
static inline int get_packets_by_block(const struct spmt_view *v, void *dst, const void *src,
	uint64_t size, uint32_t flag, uint64_t onto, int pe, uint32_t bytes)
{
	(void)any_of_block(0);
	return agreed_by_block(
		spmtd_do_get_packets_(v, dst, src, size, flag, onto, pe, SPMTD_BLOCK_, bytes));
}

static inline void put_packets_by_block(const struct spmt_view *v, uint64_t dst, const void *src,
	uint64_t size, uint32_t flag, int pe, uint32_t bytes)
{
	(void)any_of_block(0);
	spmtd_do_put_packets_(v, dst, src, size, flag, pe, SPMTD_BLOCK_, bytes);
	(void)any_of_block(0);
}

#define spmtd_do_get_packets_(v, dst, src, size, flag, onto, pe, scope, bytes) \
	get_packets_by_block(v, dst, src, size, flag, onto, pe, bytes)
#define spmtd_do_put_packets_(v, dst, src, size, flag, pe, scope, bytes) \
	put_packets_by_block(v, dst, src, size, flag, pe, bytes)
#define spmtd_tid_() own_tid
#define spmtd_threads_() own_threads
#define spmtd_any_block_(x) any_of_block(x)
#define spmtd_agree_(rc, scope) agreed_by_block(rc)
#define spmtd_meet_block_() ((void)any_of_block(0))
#define spmtd_meet_settled_(scope) ((void)any_of_block(0))
#define kernel_block() own_block
#define kernel_blocks() own_blocks
#define kernel_lane() (own_block * own_threads + own_tid)
#define kernel_lanes() (own_blocks * own_threads)
#define plan_kept (own_meeting->kept)
#if defined(BLOCK_ABREAST)
#define ll_abreast (own_meeting->abreast)
#endif

#endif
