/* SPDX-License-Identifier: MIT */
/*
 * A map and a mover between processes that share no memory: a program that links parcel.c has them as `rdma` and `verbs`. Each process
 * has a socket, named by its nonce, at which a thread a connection does what peers ask: bytes in, bytes out, an atomic. Every move
 * is done and answered before the call returns, in a stream by the stream's own thread.
 *
 * And simulated nodes: the processes of processes_run() are told apart by their host ids (SPMT_TEST_NODES: a character a process, its
 * node; unset: each is one), and those beyond the node at whose address a world is find it over TCP, by SPMT_SOCKET_IFNAME=lo: nodes
 * have 127.0.0.1, .2 and so on. Link such a program with --wrap=connect, --wrap=process_host and --wrap=search_begin.
 */
#ifndef TESTS_PARCEL_H
#define TESTS_PARCEL_H

#endif
