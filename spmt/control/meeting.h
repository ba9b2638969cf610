/* SPDX-License-Identifier: MIT */
/*
 * How the ranks of a comm come together: one const table of operations, a row, for each medium. meet.c has what holds over all of them:
 * what is compared, the verdict, the sentences. meet_shared.c is the row for ranks that share memory.
 *
 * Meetings of a comm have numbers: comm->epoch is the one that this rank came to last. A row decides each of them once: either all
 * ranks have come, and every rank leaves with what all have brought, or a deadline came first, and none does.
 */
#ifndef SPMT_MEETING_H
#define SPMT_MEETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/spmt.h"

struct bootstrap_word;
struct cause;
struct world;

/* What a rank brings to a meeting. All of op and key must be equal on all ranks; a status that
   is not 0 fails the meeting. */
struct meet_record {
	uint32_t op; /* enum meet_op */
	int32_t status;
	uint64_t key[3];
	uint64_t payload[6]; /* for the others to read; not compared */
};

/* BROKEN: it has not taken place, and will not. */
enum meet_verdict { MEET_AGREED, MEET_FAILED, MEET_DIFFERS, MEET_BROKEN };

/* How a rank stands in a meeting that a deadline ends. */
enum meet_standing {
	MEET_MISSING,
	MEET_COME,
	MEET_LATE,    /* it has come, as the last */
	MEET_SILENT,  /* it has come, but its process does not answer */
	MEET_UNKNOWN, /* nobody has told of it .. */
	MEET_LEADS,   /* .. as its process, which would tell, does not answer */
	MEET_STANDINGS
};

/* Where all of it lies: rank r's record and attachment (STATUS_SENTENCE bytes) are r strides behind these. */
struct brought {
	const struct meet_record *records;
	const char *attached;
	size_t stride;
};

/* For a row that meets by other means than one control block of the comm, of which each process or each node then has its own. */
struct meeting_apart {
	/* From here on the comm can meet; comm->control is known. By the rank's own thread, which the others do not wait for: it
	   may reach out to them, not wait for them to answer. Owns comm->meeting_state from success to close. A failure, with its
	   sentence, leaves nothing. */
	int (*open)(spmt_comm *comm);
	/* NULL, or: close follows, the last that the others hear of this rank. Under the world's lock; does not block. */
	void (*leave)(spmt_comm *comm);
	/* Nobody is in a call on the comm, and broke comes no more. The other ranks may still be leaving the last meeting. */
	void (*close)(spmt_comm *comm);
	/* The comm is broken in this process: the other ranks' waits in a meeting are to end, and their processes to hear of it
	   by comm_break. Any thread, under the world's lock, perhaps more than once: it does not block. */
	void (*broke)(spmt_comm *comm, const struct cause *cause);
	/* NULL: it hears nothing. A word from the hub of the world (bootstrap.h), by the bootstrap's thread. */
	void (*heard)(struct world *world, const struct bootstrap_word *word, const void *data,
		size_t size);
};

struct meeting_ops {
	const char *name;
	const struct meeting_apart *
		apart; /* NULL: one control block serves all ranks, and what breaks it ends their waits */

	/* All of these by the thread that has claimed the comm, without a lock, and none is a cancellation point. */

	/* At most STATUS_SENTENCE bytes to go with the next record. They are copied. */
	void (*attach)(spmt_comm *comm, const void *data, size_t size);
	/* This rank comes to meeting comm->epoch, the one after its last. True: all have come, there is nothing to wait for. Does not
	   block. What goes wrong is for verdict to say. */
	bool (*bring)(spmt_comm *comm, const struct meet_record *mine);
	/* Until all have come or the comm is broken, which a rank whose deadline passes does (meet_missed, comm_break) unless the others
	   have come by then. Returns about how many ns that took. */
	int64_t (*wait)(spmt_comm *comm);
	/* How it ended, the same on all ranks; BROKEN: the comm is broken, or what is there cannot be (comm_spoiled). */
	enum meet_verdict (*verdict)(const spmt_comm *comm);
	/* Of `rank` in meeting comm->epoch. While it is waited for. */
	enum meet_standing (*standing)(const spmt_comm *comm, int rank);
	/* What has been brought, from the verdict on until this rank brings again; its own record at once. */
	struct brought (*brought)(const spmt_comm *comm);
};

extern const struct meeting_ops meeting_shared, meeting_nodes;

/* Begins and ends the comm's meetings, by its world's row. Close takes one that was never opened. */
int meet_open(spmt_comm *comm);
void meet_close(spmt_comm *comm);
/* The comm is broken in this process. Under the world's lock. */
void meet_broke(spmt_comm *comm, const struct cause *cause);
/* Do this rank and `rank` have a control block in common? */
bool meet_is_near(const spmt_comm *comm, int rank);

static inline const struct meet_record *brought_record(const struct brought *b, int rank)
{
	return (const struct meet_record *)(const void *)((const char *)b->records +
		(size_t)rank * b->stride);
}

#endif
