/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for libibverbs: two ports, and a wire inside the process, or between those that share a folder (SPMT_FAKE_WIRE, fake_far.c).
 * Calls are cancellation points as those of rdma-core are, which write to a device's file.
 * A thread of its own carries out what is posted, a queue pair after the other, in order. It fails where a test says so; the functions
 * below are found with dlsym.
 */
#ifndef TESTS_FAKE_VERBS_H
#define TESTS_FAKE_VERBS_H

#include <stdint.h>

#include "transports/verbs/abi/abi_verbs.h"

/* Counts calls from 1, those that give something back left out, and makes the nth fail; 0: none does. Returns how many there were. */
uint64_t fake_verbs_fail(uint64_t n);
/* The same of the calls of one name, those that give something back included, which is gone all the same; those of a context's table are
   checked_poll, checked_notify, checked_send and checked_recv. */
uint64_t fake_verbs_fail_named(const char *name, uint64_t n);
/* The same of work requests: the nth ends with this status. */
uint64_t fake_verbs_break(uint64_t n, uint32_t status);
/* So many datagrams from now on get lost. */
void fake_verbs_lose(int n);
/* No queue pair writes inline from now on, or some do. */
void fake_verbs_inline(uint32_t most);
/* From here to false nothing is carried out. */
void fake_verbs_hold(int hold);
/* From here to false what is posted inside a process is done when the call returns, as Soft-RoCE does it over its own device. */
void fake_verbs_prompt(int prompt);
/* From here to -1 nothing that this device sends by a connection is carried out. */
void fake_verbs_congest(int device);
/* The devices, or one of them, tell of an event: of their second port, or of a connection. */
void fake_verbs_event(uint32_t type);
void fake_verbs_tell(int device, uint32_t type);
/* The devices are gone, with what tells of events and completions, if SPMT_FAKE_UNPLUG was set when they were opened; what is opened from now
   on is not concerned. */
void fake_verbs_unplug(void);
/* What a device says of its second port from now on; no event tells of it. */
void fake_verbs_port(int device, int down);
/* A datagram from nobody to all that take hellos; returns how many had room for it. */
int fake_verbs_shout(const void *data, uint32_t n);
/* The last datagram that went over the wire, at most so many bytes; returns how many it has. */
uint32_t fake_verbs_overheard(void *data, uint32_t most);
/* Atomics that the devices have done since the last call. */
uint64_t fake_verbs_atomics(void);
/* Reliable connections that are ready to send. */
int fake_verbs_joined(void);
/* So many bytes more may be registered from now on; 0: as many as one likes. Returns how many registrations there have been. What is
   mapped of a memfd "fake-pages", or of one with the name in SPMT_FAKE_PINS, is registered as a device has it: the pages, whatever comes
   to be at the addresses. */
uint64_t fake_verbs_limit(uint64_t more);
/* Objects that were made and not given back. */
int fake_verbs_live(void);

#define X(field, symbol, optional, result, args) result symbol args;
VERBS_CALLS(X)
#undef X

#endif
