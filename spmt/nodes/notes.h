/* SPDX-License-Identifier: MIT */
/*
 * Notes: how nodes meet without the hub, while all goes well. The lowest rank of a comm on each node leads it. Once all ranks of its
 * node have come, and have brought the same, it puts that into a slot of another leader's library area, in ceil(log2(nodes)) rounds: in
 * round k to the node 2^k behind its own, once the note of round k - 1 has come to it. A leader that has had all of them knows that all
 * ranks have come and what each has brought, fills their rows and opens its node's gate.
 *
 * Everything less simple is left to the hub, whose verdict names names. Where records differ, a rank has failed or attached
 * something, the notes say so, on the same ways, and each node says to the hub what it would have said without them. A rank whose deadline
 * passes, or whose comm breaks while its node's notes are out, asks the hub, which asks all processes (control->noted is what each of them
 * answers by): one word for each node decides whether the meeting is open there or frozen, so that one that is open anywhere is open
 * for all, and one that is frozen everywhere never opens.
 */
#ifndef SPMT_NOTES_H
#define SPMT_NOTES_H

#include "nodes.h"
#include "spmt/comm/meet.h"
#include "src/base/mem.h"

#define NOTES_ROUNDS 16 /* nodes up to 2 to the power of this */

/* This node's state in the meeting that it has heard of last: control->noted is 4 * its number and one of these. */
enum noted {
	NOTED_OUT,    /* its first note may be out */
	NOTED_FROZEN, /* somebody has asked: from here on only the hub opens it */
	NOTED_STAR,   /* only the hub may open it: it is said there, or broken already */
	NOTED_OPEN    /* it is open: all nodes have brought the same */
};

/* What a leader says in a round. It lies in the library area of who is told, twice a round: by parity of the meeting. */
struct note {
	_Alignas(CACHE_LINE) struct meet_record record;
	uint64_t word; /* last: number of the meeting, and whether all have brought this record */
};
_Static_assert(sizeof(struct note) % CACHE_LINE == 0, "no two writers share a line");

/* What a comm has of it; in the state of its row. NULL: its nodes meet by the hub alone. By its own thread. */
struct notes {
	bool on; /* all leaders have offered */
	int lead, rounds;
	struct note *slots;  /* own */
	struct link *links;  /* by round; NULL: another rank leads */
	uint64_t at, epoch;  /* at: of the slots in the library area; epoch: of the meeting below */
	int round;	     /* whose note is waited for */
	bool differs, ended; /* ended: nothing to do in it any more */
	struct note out;
};
void notes_drop(struct notes *t);
/* Whether the meeting that this rank has just come to goes by them; and whether it leads its node there. */
bool notes_serve(const spmt_comm *comm);
bool notes_lead(const spmt_comm *comm);

/*
 * Goes as far as it can, without waiting for other nodes: by the rank that leads its node. STAR: it is time to say to the hub what has been
 * brought. Negative, with a sentence: a mover has failed.
 */
enum notes_step { NOTES_WAIT, NOTES_DONE, NOTES_STAR };
int notes_go(spmt_comm *comm);

/* The hub asks. True: the meeting is open here, by notes; else it is frozen. Under the world's lock; so is the next. */
bool notes_asked(const spmt_comm *comm, uint64_t epoch);
/* The hub has heard that it is open somewhere. */
void notes_opened(const spmt_comm *comm, uint64_t epoch);

/* The meeting that this rank is in: this node's notes are out, and nobody has said yet how it ends. */
bool notes_are_out(const spmt_comm *comm);
/* The last that is known here to be open; 0: none. */
uint64_t notes_last(const spmt_comm *comm);
/* It is open by notes, whatever became of the gate, and its rows are filled: control->held is the last of which both are true. */
bool notes_hold(const spmt_comm *comm);

#endif
