/* SPDX-License-Identifier: MIT */
/*
 * What ours is compared with, on the same threads and the same buffers: the C library's memcpy, plain stores, C11 atomics
 * and pthread_barrier. Only where the CPU may load and store device memory.
 */
#ifndef SPMT_PERF_PEERS_H
#define SPMT_PERF_PEERS_H

#include "perf.h"

int peer_memcpy_out(struct rank *r, size_t size, uint64_t iters); /* src here to dst of the other */
int peer_memcpy_in(struct rank *r, size_t size, uint64_t iters);
int peer_store(struct rank *r, size_t size, uint64_t iters);
int peer_pingpong(struct rank *r, size_t size, uint64_t iters);
int peer_fetch_add(struct rank *r, size_t size, uint64_t iters);
int peer_barrier(struct rank *r, size_t size, uint64_t iters);
/* What an all_reduce has to move at least: each rank copies its share from every src to every dst; then a pthread_barrier. */
int peer_share(struct rank *r, size_t size, uint64_t iters);
/* By rank 0, with a barrier of the world before and behind: the pthread_barrier_t lies in its symmetric memory. */
int peer_barrier_open(struct rank *r);
void peer_barrier_close(struct rank *r);

#endif
