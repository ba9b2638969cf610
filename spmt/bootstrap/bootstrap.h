/* SPDX-License-Identifier: MIT */
/*
 * How the processes of a world find each other. One bootstrap a process and world, made as soon as it
 * is known that ranks are in other processes, or that some are not here after a moment.
 *
 * The first process to bind a name that the uid gives is the hub, the others connect to it (bootstrap/search.h); the hub's listening
 * socket stays open while ranks are missing. One service thread a process, signals blocked, sleeping in poll. A connection is
 * authenticated (keyed hash over the uid's secret and a nonce of either side, constant-time compare), versioned, and checked for rank
 * range, duplicates and world size; strangers and garbage are dropped without harm to the world. The connections stay open until
 * close: their end tells that a process has died. A process of the hub's node is known from its connect() on, by the name of its
 * socket, one of another node from its first rank on.
 *
 * Threads: bootstrap_add, _wait, _exchange, _break from any thread; open and close from one.
 */
#ifndef SPMT_BOOTSTRAP_H
#define SPMT_BOOTSTRAP_H

#include "src/base/status.h"
#include "uid.h"

#define BOOTSTRAP_BLOB 640 /* most bytes a rank may publish */

struct bootstrap;
struct meeting;

/*
 * What processes of several nodes say of a comm's meetings. The hub brings together what the nodes' ranks have brought, each
 * node's once, by the process that is the last of it to come, and decides: a meeting is open when all nodes have come, or
 * shut when one has given up before; never both. Before that it asks all that live, for a second at most, who has come, or left it.
 */
enum word_kind {
	WORD_COME = 1, /* to the hub: all ranks of a node have, with this */
	WORD_SOME,     /* to the hub: some have, for those who give up */
	WORD_MISS,     /* to the hub: a rank gives up */
	WORD_OPEN,     /* from it, to who sent COME: what all have brought */
	WORD_SHUT,     /* from it: it will not open; who has come */
	WORD_SILENT,   /* from it, before that: process `question` has not answered */
	WORD_ASK,      /* from it, to all: who has come to a meeting that is shut? */
	WORD_TOLD,  /* to the hub: the answer, as SOME; of one part where the comm is not known */
	WORD_NOTED, /* to the hub: the answer: it is open here without its doing (spmt/nodes/notes.h); from it, to all: it is somewhere */
	WORD_BREAK, /* either way: the comm, a part of the world, is broken; with the sentence */
	WORD_LEAVE, /* to the hub: a rank meets on it no more; part: which; epoch: the last that was open there; question: nodes */
	WORD_JOIN, /* to the hub: rank `part` wants to go on without those who are gone; epoch: which time, from 1 on */
	WORD_HASTE,  /* to the hub: it waits no longer for others that live */
	WORD_JOINED, /* from it, to all: who goes on, struct bootstrap_joined */
	WORD_KINDS
};
struct bootstrap_word {
	uint64_t comm, epoch;
	uint32_t kind, part; /* part: which of the comm's nodes speaks */
	uint32_t parts;	     /* so many nodes the comm has; LEAVE, JOIN, HASTE, JOINED: ranks */
	int32_t code;	     /* BREAK: as in struct cause; SOME, TOLD: how many ranks have come */
	uint32_t call;	     /* BREAK: as in struct cause */
	uint32_t question;   /* ASK, TOLD, NOTED: its number */
};

/* What JOINED carries. JOIN and HASTE carry the world's ranks of the comm's, uint32_t each, or nothing where they are the same. */
struct bootstrap_joined {
	struct uid_place place; /* of the node of the first that goes on, as the hub sees it */
	uint64_t set[];		/* a bit a rank of the comm */
};

/* How long a caller waits: ms from `begin`, as process_now() says it; < 0: for ever. */
struct patience {
	int64_t begin, ms;
};

struct bootstrap_config {
	const struct uid *uid;
	int nranks;
	int rank; /* one that this process brings; -1: none, and nobody misses it before its first */
	size_t blob_size;    /* bytes every rank publishes, equal in all processes */
	size_t control_size; /* bytes of shared memory that the hub makes (memfd, zeroed); 0: none */
	/*
	 * Called once, from the service thread, when the world cannot go on: a process died (code
	 * SPMT_ERR_PEER_DEAD, ranks after the sentence's last colon; or the number of a hub that had
	 * not come to say its ranks) or another process broke it.
	 * Not called after bootstrap_close has begun, nor for processes that said goodbye.
	 */
	void (*broken)(void *ctx, const struct cause *cause);
	/* From the service thread: each word for this process, in the hub's order. Not after bootstrap_close has begun. NULL: none. */
	void (*heard)(void *ctx, const struct bootstrap_word *word, const void *data, size_t size);
	void *ctx;
	bool only_tcp; /* as a process of another node: no unix socket, no descriptors */
	bool reports;  /* is there to break the world alone: as its hub it makes no shared memory */
};

/* Binds or connects and starts the service thread. Nothing is left behind on failure. met: what
   search_look() has found already, NULL or AGAIN: nothing; taken over, on failure too. */
int bootstrap_open(
	const struct bootstrap_config *config, struct meeting *met, struct bootstrap **out);

/* A rank of this process joins with its blob, at any time before the world is complete. -EEXIST: the
   rank is taken; SPMT_ERR_MISMATCH: another world size; both name the rank and harm nobody else, but
   the caller may break the world then, as long as it gathers. SPMT_ERR_TIMEOUT: the hub is silent. */
int bootstrap_add(struct bootstrap *b, int rank, const void *blob, const struct patience *patience);

/*
 * Until all nranks ranks have been added in all processes. blobs: nranks of them by rank, valid until
 * close. process: for each rank a small number, equal for ranks of one process. *control: the shared
 * memory, mapped here until close; NULL on another node than the hub's. SPMT_ERR_TIMEOUT names the
 * ranks that are missing in all processes.
 */
int bootstrap_wait(struct bootstrap *b, const struct patience *patience, const void **blobs,
	const int **process, void **control);

/*
 * One all-gather among the processes, with a descriptor each: every process calls it in the same
 * order, from one thread; at most 1 MiB, the same size in all. After a failure there are no more
 * exchanges. SPMT_ERR_UNSUPPORTED: fd >= 0 and a process is on another node. Data of process p at data_out + p * size; fds[p] (-1: none) become the
 * caller's. processes: as many as bootstrap_processes() says.
 */
int bootstrap_exchange(struct bootstrap *b, const void *data, size_t size, int fd, void *data_out,
	int *fds, int64_t timeout_ms);
int bootstrap_processes(const struct bootstrap *b, int *self);

/* Says a word, once complete; from any thread. Does not wait. SPMT_ERR_PEER_DEAD: the hub has left. */
int bootstrap_say(
	struct bootstrap *b, const struct bootstrap_word *word, const void *data, size_t size);
/* Once complete, no sentence. 0: the hub is there, or `heard` has still to be called; -ENOTCONN: it has left; SPMT_ERR_PEER_DEAD: died;
   -EAGAIN: and another is about to follow. _leaders: how many have; what was said to one the next has not heard. */
int bootstrap_leader(struct bootstrap *b);
unsigned bootstrap_leaders(struct bootstrap *b);
int bootstrap_leading(struct bootstrap *b); /* the process that is the hub; -1: not known */
/* Once complete: whether two ranks have found each other over TCP, as those of two nodes do. Neither memory nor descriptors pass
   between them. No for two that are on other nodes than the hub, which need not be the same. */
bool bootstrap_apart(const struct bootstrap *b, int rank, int other);

/* Whether the process still takes part: 0 once it has died, or has closed its bootstrap. Said by the
   shared memory, so that it holds in a broken world and without the hub, too; on another node, or with
   a control_size of 0, always true. Once complete, of processes that have been heard of since. */
bool bootstrap_is_alive(const struct bootstrap *b, int process);
/* Whether that memory still tells that this process lives: if not, somebody has overwritten it. True without it. */
bool bootstrap_intact(const struct bootstrap *b);

/* Tells all processes that the world is broken; their `broken` is called. Never blocks for long. */
void bootstrap_break(struct bootstrap *b, const struct cause *cause);

/* After _break: until the hub has been told, or the time is up, which a process that is the hub itself
   takes in full so that others find it. */
void bootstrap_spread(struct bootstrap *b, int64_t most_ms);

/*
 * Says goodbye (an orderly leave is no death), ends the thread, closes everything. NULL is fine. While the world gathers its ranks are
 * missing again. Once complete: after the hub's goodbye exchanges fail and deaths among the others are no longer seen, so the last
 * meeting of the ranks comes first. Does nothing in a forked child.
 */
void bootstrap_close(struct bootstrap *b);

#endif
