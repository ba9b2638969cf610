/* SPDX-License-Identifier: MIT */
/*
 * How the two ends of a connection get to know their queue pairs: by datagrams between the ports, whose addresses went through the
 * bootstrap. One who wants the connection asks until it is answered; datagrams may be lost, or come twice.
 *
 *	A, new               --- not joined, asks --->   B joins
 *	A joins, is ready   <--- joined -------------    B
 *	A                    --- joined ------------->   B is ready
 *
 * One whose end has failed says so. A hello proves that its sender knows the endpoint it is for, which never travels in clear, nor
 * does the sender's: an endpoint is 16 random bytes that only those of a world in which the port takes part are told. A hello that
 * comes again changes nothing.
 */
#ifndef SPMT_VERBS_HELLO_H
#define SPMT_VERBS_HELLO_H

#include "conn.h"

#define HELLO_HEADER 40 /* the device's own, before each that comes */
#define HELLO_ROOM 216
#define HELLO_BYTES (NIC_HELLOS * (HELLO_HEADER + HELLO_ROOM) + NIC_GREETINGS * HELLO_ROOM)

/* The port takes hellos from here on; its queue pair is the caller's to destroy. */
int hello_open(struct nic *nic);
/* How others say hello to it, and how many connections of the process have failed so far. */
void hello_address(const struct nic *nic, struct rank_nic *address);
/* One has come. Under the lock. */
void hello_heard(struct nic *nic, uint32_t at, const struct verbs_wc *wc);
/* Until the connection is ready: 0, why it failed, SPMT_ERR_TIMEOUT, or -ECANCELED without a sentence. Not under the lock. */
int hello_meet(struct pairing *c, struct verbs_wait *wait);

#endif
