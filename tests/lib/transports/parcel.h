/* SPDX-License-Identifier: MIT */
/*
 * A map and a mover between processes that share no memory: a program that links parcel.c has them as `rdma` and `verbs`. Each process
 * has a socket, named by its nonce, at which a thread a connection does what peers ask: bytes in, bytes out, an atomic. Every move
 * is done and answered before the call returns, in a stream by the stream's own thread.
 *
 * And simulated nodes: the processes of processes_run() are told apart by their host ids (SPMT_TEST_NODES: a character a process, its
 * node; unset: each is one), and those beyond the first node find the world over TCP, by SPMT_SOCKET_IFNAME. Link such a program
 * with --wrap=process_host and --wrap=search_begin.
 */
#ifndef TESTS_PARCEL_H
#define TESTS_PARCEL_H

#endif
