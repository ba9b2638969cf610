/* SPDX-License-Identifier: MIT */
/* Inside the stand-in for libibverbs: its objects, and the thread that carries out what is posted (fake_wire.c). */
#ifndef TESTS_FAKE_WIRE_H
#define TESTS_FAKE_WIRE_H

#include <stdbool.h>

#include "fake_verbs.h"

#define FAKE_DEVICES 2
#define FAKE_CONTEXTS 16
#define FAKE_PAIRS 1024u
#define FAKE_REGIONS 8192
#define FAKE_MESSAGE (1u << 20) /* most bytes at once */
#define FAKE_HEADER 40		/* before a datagram */
#define FAKE_HOME_SHIFT 17 /* a pair's number: process, a count of 7 bits, and its place of 10 */
#define LOC_PROT_ERR 4

struct verbs_pd {
	struct verbs_ctx *ctx;
	int users;
};

/* What tells the library of something: an eventfd, or a pipe (SPMT_FAKE_UNPLUG), whose other end can go. */
struct fake_waker {
	int other; /* where it is told; -1: it has gone */
};

struct fake_ctx {
	struct verbs_ctx pub;
	struct fake_waker waker;
	struct fake_channel *channel; /* the last made; NULL: none */
};

struct fake_channel {
	struct verbs_channel pub;
	struct fake_waker waker;
};

struct fake_mr {
	struct verbs_mr pub;
	int access;
	char *data;    /* pub.addr, or where the wire has the memory of a device */
	size_t mapped; /* 0: not mapped by the stand-in */
};

struct fake_cq {
	struct verbs_cq pub;
	struct verbs_wc *ring; /* pub.cqe of them */
	uint32_t head, tail;
	int armed; /* 1: for what a peer asks for; 2: for all */
};

/* A work request as it waits. */
struct fake_work {
	struct fake_work *next;
	uint64_t wr_id, far, compare_add, swap; /* the last two: an atomic's */
	uint32_t opcode, key, qpn;
	unsigned flags;
	struct verbs_sge sge;
	char body[]; /* inline */
};

struct fake_room {
	struct fake_room *next;
	uint64_t wr_id;
	struct verbs_sge sge;
};

struct fake_qp {
	struct verbs_qp pub;
	struct verbs_qp_cap cap;
	uint32_t dest, key;
	struct fake_work *work, *last;
	struct fake_room *room, *last_room;
	bool busy; /* its first work is on its way to another process */
};

struct fake_fault {
	uint64_t seen, at;
};

struct fake_wire {
	pthread_mutex_t lock; /* guards all of it, and all objects */
	pthread_cond_t changed;
	pthread_t thread;
	int users; /* devices open */
	int held, lose, live;
	int prompt;	       /* who posts carries it out */
	int congested;	       /* 1 + the device whose connections move nothing; 0: none */
	uint64_t atomics;      /* done */
	_Atomic uint64_t most; /* bytes that may be registered by address; 0: any */
	bool later;	       /* another process has asked for patience */
	uint32_t base;	       /* of the numbers of this process's pairs */
	struct fake_fault calls, works, named;
	char name[64]; /* of the call that `named` counts */
	uint32_t status, event, keys, numbers, inline_most;
	struct fake_ctx *contexts[FAKE_CONTEXTS];
	struct fake_mr *regions[FAKE_REGIONS];
	struct fake_qp *pairs[FAKE_PAIRS];
	unsigned char overheard[256]; /* the last datagram */
	uint32_t overheard_n;
};
extern struct fake_wire wire;

void wire_start(void);
void wire_stop(void);
int wire_poll(struct verbs_cq *cq, int n, struct verbs_wc *wc);
int wire_notify(struct verbs_cq *cq, int solicited);
int wire_send(struct verbs_qp *qp, const struct verbs_send *wr);
int wire_recv(struct verbs_qp *qp, const struct verbs_recv *wr);

/* What the devices say of their atomics: SPMT_FAKE_NIC_ATOMICS, none, hca (unset) or glob. */
uint32_t fake_atomics(void);
/* What every call begins with: whether a test has it fail; errno is EIO then. */
bool fake_refused_at(const char *call);
#define refused() fake_refused_at(__func__)
#define call_refused() (refused() ? EIO : 0)
/* An object, counted until it is given back. */
void *fake_make(size_t size);
void fake_unmake(void *made); /* under the lock */
int fake_drop_at(const char *call, void *made);
#define drop(made) fake_drop_at(__func__, made)
/* Bytes that are registered. */
uint64_t fake_registered(void);
/* The result of a call that gives something back. */
int fake_dropped(const char *call);

/* The descriptor that the library sleeps on. */
int fake_waker_open(struct fake_waker *waker);

/* Under the lock. */
void fake_waker_close(struct fake_waker *waker, int fd);
void fake_wake(const struct fake_waker *waker);
bool fake_fires(struct fake_fault *fault);
bool pair_round(struct fake_qp *qp);
const char *pair_source(const struct fake_qp *qp);
void pair_flush(struct fake_qp *qp);
void pair_empty(struct fake_qp *qp);
bool pair_hear(struct fake_qp *qp, const void *data, uint32_t n);

/* fake_far.c: wires to other processes. */
void far_start(void);
void far_stop(void);
/* Whether a pair of this number is another process's. Under the lock. */
bool far_is(uint32_t qpn);
/* Has it carry out the first work, without the lock meanwhile. False: it has to wait for the other end. */
bool far_carry(struct fake_qp *qp, uint32_t qpn, uint32_t *status);

#endif
