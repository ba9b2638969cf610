/* SPDX-License-Identifier: MIT */
/*
 * A connection from a port to another one, or to itself: one for all ranks of the process at one end and all ranks of the process at
 * the other, or several, of which each link has one. It is made with the first link that asks or the first hello that comes, and lives as
 * long as the port. One that fails stays so for the worlds that have it, as nothing behind what it lost may be believed; later worlds have
 * another one. As one end may not know, each process says in a world how many of its connections have failed, and worlds share one where
 * both ends say the same.
 */
#ifndef SPMT_VERBS_CONN_H
#define SPMT_VERBS_CONN_H

#include "nic.h"

#define CONN_PARALLEL 16 /* between two ports, the most */
#define CONN_DEPTH 128u	 /* moves and asks in flight; more wait for room */
#define CONN_RING 256u	 /* with answers and what flushes */
#define CONN_ASKS 32u	 /* of the peer's thread, in flight */
#define CONN_ANSWERS 4u	 /* on their way to the peer */
#define STAGE_CHUNKS 32	 /* of what is moved for peers, a port */
/* what flushes comes behind each ask that the stager held, and once more */
#define CONN_SENDS (CONN_DEPTH + CONN_ASKS + CONN_ANSWERS + STAGE_CHUNKS + 4u)
#define CONN_CHAIN 8u
#define CONN_WHY 352

struct region;
struct sender;

/* What there is to do at the end of a move. */
struct landing {
	struct sender *sender; /* whose; NULL: the connection's own */
	int chunk;	       /* that it bounces through; -1: none */
	struct region *region; /* where the user has it: counts in sender->direct; or NULL */
	char *dst;	       /* a get's, from the chunk; else NULL */
	size_t n;
	struct stage *stage; /* by which dst is reached; NULL: by the CPU */
};

/* A work request in flight. */
struct sent {
	struct landing land;
	bool answer;
	bool native;	/* an atomic of the port's */
	bool asks;	/* land.sender->old is to be what it found */
	uint64_t serve; /* serves that ask of the peer's; 0: none */
	int lent;	/* 1 + the stager's chunk that it moves; 0: none */
};

enum pairing_state { CONN_NEW, CONN_MET, CONN_READY, CONN_FAILED };

/* What one asks of the peer's thread. */
enum { MESSAGE_ASK = 0x61736b21, MESSAGE_TAKE = 0x74616b21, MESSAGE_GIVE = 0x67697621 };
struct ask_message {
	uint32_t
		kind; /* ASK: an atomic; TAKE: of bytes of the asker's, to `at`; GIVE: the reverse */
	uint32_t op;
	uint32_t size; /* of the word, or so many bytes */
	uint32_t key;
	uint64_t number, at;
	uint64_t operand, compare; /* of a move: where the asker has it, and the key there */
};

struct ask_slot {
	struct landing land;
	bool asks; /* sender->old is to be what was there */
};

/* An ask of the peer's that the stager serves. */
struct serve_slot {
	struct ask_message ask;
	enum { SERVE_DEAD, SERVE_FETCH, SERVE_FETCHES, SERVE_READY } state;
	int chunk; /* the stager's; -1: none */
};

struct answer_slot {
	uint64_t old;
	int64_t code;
};

struct pairing {
	struct nic *nic;
	uint32_t number; /* in nic->conns */
	struct rank_nic peer;
	uint32_t failures; /* as this process has said; peer.failures: the other one */
	int nth;	   /* of those to this peer */
	/* MET: the queue pair may send and receive, but the peer's perhaps not */
	enum pairing_state state;
	struct verbs_qp *qp;
	struct verbs_ah *ah; /* to the peer's hellos; NULL: itself */
	uint32_t psn, peer_qpn;
	uint32_t inline_most;

	/* work requests: sent[head..tail), modulo 2^32 */
	uint32_t head, tail, signaled; /* the last that tells of its end: this - 1 */
	struct sent sent[CONN_RING];
	uint32_t natives; /* of them */
	uint32_t chained; /* the last of them, untold to the device; none without the lock */
	struct verbs_send chain[CONN_CHAIN];
	struct verbs_sge chain_sge[CONN_CHAIN];

	/* by number, from 1 */
	uint64_t asked, answered;
	struct ask_slot asks[CONN_ASKS];
	uint32_t held, held_asks;     /* room for what the stager is to post */
	uint64_t heard, served, told; /* the peer's asks: come, done, and answered */
	struct serve_slot serves[CONN_ASKS];
	bool serving;
	struct pairing *next_serving;
	struct answer_slot answers[CONN_ASKS];
	uint32_t answering, answers_sent;
	bool owes;
	struct pairing *next_owing;

	char *messages;
	struct verbs_mr *mr;

	int code; /* why it failed */
	char why[CONN_WHY];
};

/* All of these under the lock. */

/* The nth to `peer` of worlds in which this process has said `own` failures, made if need be; NULL: a sentence. */
struct pairing *pairing_get(struct nic *nic, uint32_t own, const struct rank_nic *peer, int nth);
/* Ready to send and receive. Once only; the failure is the connection's. */
int pairing_join(struct pairing *c, uint32_t qpn, uint32_t psn, uint32_t mtu, uint32_t reads);
/* Its work ends with failures from now on. The first reason counts. _last: a sentence of this thread's, that has both places. */
void pairing_fail(struct pairing *c, int code, const char *why);
int pairing_fail_last(struct pairing *c, int code);
void conns_fail(struct nic *nic, int code, const char *why);
/* An event of the device's, of this name, says so. */
void pairing_event(struct nic *nic, const struct verbs_qp *qp, const char *name);
/* A move has ended, or what was asked for: 0, or why not. */
void landing_end(struct pairing *c, const struct landing *land, int code, bool asked);
/* The last n work requests will not be done, for the connection has failed. */
void pairing_unsent(struct pairing *c, uint32_t n);
/* A work request has ended, and with it those before it. */
void pairing_sent(struct pairing *c, uint32_t at, const struct verbs_wc *wc);
/* A completion tells of its failure. */
void pairing_blame(struct pairing *c, const struct verbs_wc *wc);
/* Room for what comes from the peer: buffer `at`. */
int pairing_listen(struct pairing *c, uint32_t at);
/* What a connection reads at a time from the other's memory. */
uint32_t nic_reads(const struct nic *nic);
/* Without the lock, nobody else is there. */
void conns_close(struct nic *nic);

/* How others are addressed. */
void nic_route(const struct nic *nic, const struct rank_nic *peer, struct verbs_ah_attr *attr);

#endif
