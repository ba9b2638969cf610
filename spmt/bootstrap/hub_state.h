/* SPDX-License-Identifier: MIT */
/* The hub, for the files that implement it. */
#ifndef SPMT_BOOTSTRAP_HUB_STATE_H
#define SPMT_BOOTSTRAP_HUB_STATE_H

#include "connection.h"
#include "hub.h"

enum member_state {
	MEMBER_STRANGER, /* has been sent a challenge */
	MEMBER_READY,
	MEMBER_GUEST, /* proved the secret, but is of another shape: may break the world or leave */
	MEMBER_GONE   /* to be taken off the list */
};

struct member {
	struct member *next;
	struct conn conn;
	enum member_state state;
	bool died;
	uint32_t id;
	uint32_t round;	   /* exchanges it has sent */
	uint32_t answered; /* hall.c: the last question */
	int nranks, process;
	int rank;	  /* that it brings, by its socket's name; -1: none was said */
	int64_t deadline; /* of a stranger */
	struct wire_challenge challenge;
};

struct hub {
	const struct bootstrap_config *config;
	struct meeting listeners;
	int control;
	struct member *members; /* newest first */
	uint32_t next_id;
	size_t nmembers;
	int npresent;
	bool complete, remote;
	int strangers; /* most there may be */
	int64_t pause; /* do not accept before */
	int64_t full;  /* since when there is no descriptor for somebody; 0: there is */
	int listen_slot, tcp_slots[PLACE_ADDRESSES];
	struct cause cause;	   /* its code is negative: broken */
	int64_t *owner;		   /* by rank: a member's id, -1: nobody's */
	bool *dead;		   /* by rank: in a pass of hub_serve */
	struct wire_rank *present; /* by rank: what all are told of it */
	unsigned char *blobs;
	struct hall *halls; /* hall.c: of comms over several nodes */
	struct roll *rolls; /* .. that may be broken */
	size_t called;	    /* .. members there were when they were looked at last; 0: look again */
	uint32_t questions; /* asked so far */
	int64_t ping;	    /* when to send the next ones */
	struct uid_place place; /* of this node */
	bool decided;		/* who goes on of some comm */
	/* Of one that follows another (heir.c): */
	struct missed *missed; /* by process: it may still return; NULL: this hub is the first */
	const int *home;       /* by rank: its process */
	int processes;
	int64_t until; /* they are missed */
};

/* Where a member is, as others reach it. */
void hub_place(const struct hub *hub, const struct member *m, struct uid_place *place);
/* A member adds a rank: what all are told of it, and one of them. */
void hub_present(struct hub *hub, const struct member *m, const struct wire_rank *added);
struct wire_rank hub_present_to(const struct hub *hub, const struct member *to, int rank);
/* hub_open, without memory to share. */
int hub_make(
	const struct bootstrap_config *config, struct meeting *meeting, int self, struct hub **out);
/* RETURN; and whether a member may say it: its bit of struct wire_rules, or 0. */
void hub_return(struct hub *hub, struct member *m, uint32_t process);
unsigned hub_return_type(const struct hub *hub, const struct member *m);
/* Whether a process, or that of a rank, may still return. */
bool hub_misses(const struct hub *hub, uint32_t process);
bool hub_misses_rank(const struct hub *hub, uint32_t rank);
bool hub_misses_any(const struct hub *hub);
/* In every pass: those who are known to have died, or are too late; and when to come back. */
void hub_miss_less(struct hub *hub, int64_t now);
int64_t hub_miss_until(const struct hub *hub, int64_t now);
void hub_miss_none(struct hub *hub);

/* A member's word of a comm's meeting. -ENOMEM: it cannot be kept. */
int hall_hear(struct hub *hub, struct member *m, const struct wire_message *msg);
/* Ends the questions that have been answered by now, or not in time. In every pass. */
void halls_look(struct hub *hub, int64_t now);
/* What is asked just now, of a member that has returned. */
void halls_ask(struct hub *hub, const struct member *m);
void halls_drop(struct hub *hub);
/* Decides those in which only members were missing that have gone. In every pass. */
void rolls_look(struct hub *hub);
void rolls_drop(struct hub *hub);
/* Those who shrink a broken world of several nodes have not heard from this one: it ends as if it had died, and they find another. */
bool rolls_need_a_hub(const struct hub *hub);
/* Looks whether members on other nodes are there, and tells them that this one is once the world is complete, now and then. */
void hub_ping(struct hub *hub, int64_t now);

#endif
