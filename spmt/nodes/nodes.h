/* SPDX-License-Identifier: MIT */
/*
 * Worlds whose ranks live on several nodes. A node is what has a boot id and a network namespace of its own, or is reached over TCP
 * alone. The ranks of a node meet in shared memory: of their process, where they share one, else of a bootstrap of the node's
 * processes. Nodes meet by the hub of the world's bootstrap (meet_nodes.c).
 */
#ifndef SPMT_NODES_H
#define SPMT_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/spmt.h"

/*
 * Between gather() and the first meeting: where the ranks turned out to be on several nodes, gives the world the row by which they
 * meet and this node its control block. -EHOSTUNREACH: no map reaches some of them; each rank finds that alone, and none waits for
 * another.
 */
int nodes_settle(spmt_comm *comm);

/*
 * A move to another node has failed with rc, not 0: a process that has died is heard of a moment later, and named then. Returns what
 * broke the comm by then, or rc and its sentence.
 */
int nodes_move_failed(const spmt_comm *comm, const char *what, int rc);
/*
 * The same where a call has returned the NIC's word for it, of a comm that is whole still: returns once it is broken, or the death would
 * be known, by the comm's deadline at the latest; at once where no NIC reaches a rank.
 */
void nodes_hear(const spmt_comm *comm);

/* Of the nodes that the ranks of comm are on, in the order of their first ranks: how many, which is this rank's, and how many
   ranks are there. */
struct nodes {
	int n, mine, near;
	struct {
		uint64_t epoch;	  /* of the meeting of which this rank has asked last; 0: none */
		unsigned leaders; /* .. and which hub */
		int64_t until;	  /* .. which has had its time by then */
	} asked;
	struct muster *muster; /* muster.c; NULL: never asked for. Of a comm that meets */
	struct notes *notes;   /* notes.h; the same */
};
void nodes_count(const spmt_comm *comm, struct nodes *nodes);

/*
 * Notes (notes.h): room for a rank's slots, a multiple of a line; once comm's links to other nodes exist and its slots are zeroed, offers them
 * in what this rank brings to a meeting (payload 2); has the comm's nodes meet by them if all ranks did so on `met`, by their numbers there
 * (NULL: the same); and ends that. Without memory, or where the CPU does not reach the slots, nodes meet by
 * the hub.
 */
struct meet_record;
uint64_t nodes_notes_room(void);
void nodes_notes_offer(spmt_comm *comm, char *slots, struct meet_record *record);
void nodes_notes_begin(spmt_comm *comm, const spmt_comm *met, const int *numbers);
void nodes_notes_end(spmt_comm *comm);

/*
 * This rank of a broken comm over several nodes, with that number of shrinks, wants to go on: writes who does into set, one bit a
 * rank, and where the first of them is. The hub decides, once all others have come here, left or died, or once a deadline
 * passes. Where it has died, another process is the hub (spmt/bootstrap/heir.c); comm->shrinks rises further if that does not know
 * how often was decided before. SPMT_ERR_PEER_DEAD: none is; SPMT_ERR_TIMEOUT: it has left, or does not answer.
 */
struct uid_place;
int nodes_muster(spmt_comm *comm, uint64_t *set, struct uid_place *place);
/* JOINED has been heard. Under the world's lock, of a comm that can meet. False: it cannot be. */
struct bootstrap_word;
bool muster_heard(
	spmt_comm *comm, const struct bootstrap_word *word, const void *data, size_t size);
/* The rank meets on it no more. */
void muster_drop(struct nodes *nodes);

#endif
