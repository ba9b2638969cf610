/* SPDX-License-Identifier: MIT */
/*
 * Calling the hub of another node at all addresses of its place: the first at once, each of the others a little later, or as soon as one
 * before it has failed, so that an address at which nobody answers holds up nothing. Who greets first is the hub, until it proves to be
 * none. At each address the ports are tried in their row, over and over.
 */
#ifndef SPMT_ADDRESS_DIAL_H
#define SPMT_ADDRESS_DIAL_H

#include <poll.h>

#include "place.h"

#define DIAL_STAGGER_NS 250000000ll /* what an address gets before the next is called as well .. */
#define DIAL_GREET_NS 1000000000ll  /* .. or this, once the other end has taken the call */
#define DIAL_ANSWER_NS 2000000000ll /* what a port gets before the next is tried */

/* What a hub says first. */
struct dial_greeting {
	size_t size; /* at most DIAL_GREETING */
	bool (*known)(const void *bytes);
};
#define DIAL_GREETING 64

/* One address. */
struct dial_line {
	int fd, slot;
	bool called, taken; /* since dial_begin; the other end has taken the call */
	unsigned tries;	    /* ports so far */
	int err;	    /* of the last, an errno; 0: none has failed, or by silence */
	int64_t at;	    /* fd -1: when to call; else: when to give up */
};

struct dial {
	const struct uid_place *place;
	const struct dial_greeting *greeting;
	uint16_t port;
	int n; /* lines; 0: nothing to call */
	struct dial_line lines[PLACE_ADDRESSES];
};

/* What the pointers lead to has to stay. Calls nobody yet. */
void dial_open(struct dial *d, const struct uid_place *place, uint16_t port,
	const struct dial_greeting *greeting);
/* Begins, again if it has begun before: the ports that were tried are passed over at first. */
void dial_begin(struct dial *d, int64_t now);
/* Hangs up. */
void dial_stop(struct dial *d);
/* The earliest time at which there is something to do. */
int64_t dial_until(const struct dial *d);
/* As conn_poll(). */
size_t dial_poll(struct dial *d, struct pollfd *set, size_t n, size_t most);
/* What poll found, and what is due. *fd: a connection whose greeting is still to be read, the caller's from here on, the others are
   closed; -1: none yet. A negative code: none can be, with a sentence. */
int dial_serve(struct dial *d, const struct pollfd *set, int64_t now, int *fd);
/* "10.1.0.1 (no answer), fd00::1 (Connection refused)" */
void dial_say(const struct dial *d, char *text, size_t size);

#endif
