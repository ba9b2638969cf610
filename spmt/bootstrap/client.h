/* SPDX-License-Identifier: MIT */
/* The client of the hub: the ranks of this process, what it knows of the others, and the search
   for a new hub while the world gathers. Used under the bootstrap's lock; what is marked
   "service" by the service thread alone. */
#ifndef SPMT_BOOTSTRAP_CLIENT_H
#define SPMT_BOOTSTRAP_CLIENT_H

#include "connection.h"
#include "live_table.h"
#include "search.h"
#include "spmt/address/dial.h"

enum client_state {
	CLIENT_LOOKING,	 /* for a hub */
	CLIENT_CALLING,	 /* one on another node */
	CLIENT_STRANGER, /* connected, waits for the challenge */
	CLIENT_HELLO,	 /* has said hello, waits for the answer */
	CLIENT_READY,
	CLIENT_REFUSED, /* the world has another shape */
	CLIENT_ALONE	/* the world was complete and the hub has gone; no other follows */
};

enum claim { CLAIM_NONE, CLAIM_WANTED, CLAIM_SENT, CLAIM_HELD, CLAIM_REFUSED };

/* One all-gather: what has arrived so far. */
struct round {
	int have;
	struct part {
		bool here;
		int fd;
		size_t size;
		unsigned char *data;
	} * parts; /* by process */
};

/* A word that the user is to be told. */
struct heard {
	struct heard *next;
	struct bootstrap_word word;
	size_t size;
	unsigned char data[];
};

struct client {
	const struct bootstrap_config *config;
	enum client_state state;
	unsigned number; /* of the name that it is connected to */
	struct conn conn;
	struct former {
		int pidfd, process, slot; /* pidfd -1: there is none */
		int64_t until;
	} former;	  /* a hub that closed before it let this process in, and may have died */
	struct dial dial; /* CALLING */
	int64_t deadline; /* LOOKING: when to try; not yet READY: when to look for another hub */
	struct search search;
	struct wire_challenge challenge;
	struct wire_hello hello;
	struct wire_welcome welcome; /* REFUSED: what the world is like */
	uint32_t id;

	unsigned char *claims; /* by rank: enum claim, of this process */
	bool *held;	       /* by rank: this process has been granted it */
	int64_t *owner;	       /* by rank: a member's id, -1: missing */
	bool *away;	       /* by rank: not on the hub's node */
	unsigned char *blobs;
	int *process; /* by rank, once complete */

	bool local, remote;		   /* the hub is this process; it is on another node */
	bool complete, any_remote, parted; /* parted: the hub has said goodbye since */
	uint16_t heir_port;
	int processes, self;
	struct heir { /* where a process would be the hub of those who outlive this one's */
		struct place_address place;
		uint16_t port;	       /* 0: nowhere */
	} * heirs;		       /* by rank */
	struct uid_place place;	       /* of this node */
	int heir_fds[PLACE_ADDRESSES]; /* listen there, at heir_port; -1: there is none */
	bool *gone;	  /* by process, once complete: it is no hub any more, and none to come */
	int leader;	  /* the process that is the hub, or is asked to be; -1: not known */
	unsigned leaders; /* hubs that have followed the first */
	int64_t silent;	  /* when another is asked */
	void *control, *live_table; /* in one mapping */
	struct live_process live;

	uint32_t begun; /* exchanges this process has begun */
	uint32_t taken; /* .. and has got the results of */
	struct round rounds[2];

	struct heard *heard, *heard_last; /* not told yet */
	int64_t ping;			  /* when to send the next one, to a hub on another node */

	struct cause cause; /* its code is negative: the world is broken */
	bool report;	    /* .. and the user has to be told */
	bool break_sent;    /* the hub knows */
};

/* client_close() is due after a failure too. */
int client_open(struct client *c, const struct bootstrap_config *config);
void client_close(struct client *c);

/* As client_break, for what the hub said, or for its silence: the hub need not be told. */
void client_told(struct client *c, const struct cause *cause);

/* Service. Takes over a connection to a hub. */
void client_connect(struct client *c, const struct meeting *meeting);
/* Service. The hub is on another node: calls it, until it answers. here: what this one has of its addresses. */
void client_call(struct client *c, const struct uid_place *here);
void client_calls(struct client *c, const struct pollfd *set);
/* The search is about to begin; connections, begun ones as well, are closed. */
void client_search(struct client *c);
void client_hang_up(struct client *c);
/* Service. No hub was found: looks again a little later. */
void client_postpone(struct client *c);
/* Bytes of the memory that the processes share: what the user asked for, and the table of live
   processes. */
size_t client_memory(const struct bootstrap_config *config);
/* Service, at its end. */
void client_end(struct client *c);
/* Service. Handles what poll found and what is due. True: something has changed. */
bool client_serve(struct client *c, const struct pollfd *set);
/* Service. Looks whether a hub on another node is there, and tells it that this one is, now and then. */
void client_ping(struct client *c, int64_t now);
bool client_pings(const struct client *c);
/* Whether a hub is to be looked for, once client_until has passed. */
bool client_looks(const struct client *c);
int64_t client_until(const struct client *c);
/* As conn_poll(). */
size_t client_poll(struct client *c, struct pollfd *set, size_t n, size_t most);

/* Claims a rank, whose blob is in place; the verdict comes in claims[rank]. */
void client_claim(struct client *c, int rank);
/* Only the first cause counts. `own`: the user of this bootstrap reported it; otherwise the user
   is told. */
void client_break(struct client *c, const struct cause *cause, bool own);
/* The same, by what this thread has failed with. */
void client_fail(struct client *c, int code);
void client_exchange(struct client *c, const void *data, size_t size, int fd);
/* 0, or SPMT_ERR_PEER_DEAD without a sentence: there is no hub any more. */
int client_say(struct client *c, const struct bootstrap_word *word, const void *data, size_t size);
int heard_keep(struct client *c, const struct wire_message *m);
/* The next word to tell, the caller's to free; NULL: there is none. */
struct heard *heard_take(struct client *c);
int rounds_make(struct client *c);
/* Takes what a process has sent for a round. *fd: -1 once it is taken. */
int round_take(struct client *c, const struct wire_message *m, int *fd);
struct round *client_round(struct client *c, uint32_t round);
void round_empty(struct round *round, int processes);

#endif
