/* SPDX-License-Identifier: MIT */
/* What the calls share beside entering: breaking, completing, and single steps of init and finalize. */
#ifndef SPMT_STEPS_H
#define SPMT_STEPS_H

#include "broken.h"
#include "record.h"
#include "turn.h"

/* Calls are let in from here on. */
void comm_set_live(spmt_comm *comm);

/* As comm_enter_any beside finalize, which waits for those between comm_visit and comm_left. Not 0: no comm_left follows. */
int comm_visit(spmt_comm *comm, const char *what);
static inline void comm_left(spmt_comm *comm)
{
	atomic_fetch_sub_explicit(&comm->head.visitors, 1, memory_order_release);
}
void comm_unvisited(spmt_comm *comm); /* once it is no longer live: until nobody is in it */

/* ---- breaking ------------------------------------------------------------------------------ */

/* Breaks what comm stands for: the world, and with it all comms split from it; or a split comm, for
   its ranks alone. Any thread while comm cannot end. */
void comm_break(spmt_comm *comm, int code, const char *sentence);

/* world.c: ends the waits of this rank's kernels. */
void comm_stop(const spmt_comm *comm);

/* ---- failing ------------------------------------------------------------------------------- */

/* rc < 0: puts function and rank before the sentence of a lower layer, which knows neither. */
int comm_failed(const spmt_comm *comm, const char *what, int rc);

/* Two threads in collectives of one comm would both count for its rank, and meetings end without the others. -EBUSY: another
   thread is in one, and is not harmed: whoever claims does so before the call's first step, and until its last. */
int comm_claim(spmt_comm *comm, const char *what);
static inline void comm_unclaim(spmt_comm *comm)
{
	atomic_store_explicit(&comm->inside, NULL, memory_order_release);
}
/* The beginning of a public call that is a collective: comm_enter and comm_claim. */
int comm_begin(spmt_comm *comm, const char *what);
int comm_busy(const spmt_comm *comm, const char *what, const char *other) __attribute__((cold));

/* ---- one step each of init and finalize, and what the calls share -------------------------- */

void view_prepare(spmt_comm *comm); /* view.c: once the links stand */
void view_fill(spmt_comm *comm, struct spmt_view *view);

/* finalize.c: undoes a comm, however far it got, and before it those split from it. Peers are done
   with it, or it is broken. */
void comm_destroy(spmt_comm *comm);
/* finalize.c: what was left because work went on there, and has ended since. */
void comms_release(void);

#define COLL_STAGE (1u << 20)	 /* bytes, either way, where ranks live in several processes */
#define SPLIT_STAGE (128u << 10) /* the same of a comm split from another */
/* collective.c: bytes of a slot (kernels.h), where all slots of a rank may take `most`. */
#define COLL_SLOTS (1u << 20)
#define SPLIT_SLOTS (64u << 10)
#define SPLITS_ROOM \
	(4u << 20) /* for the areas of comms split from a world; then they take from the heap */
uint32_t coll_room(const spmt_comm *comm, uint64_t most);

/* table.c */
int signals_open(spmt_comm *comm);

/* register.c: what is still registered at finalize */
void mems_drop(spmt_comm *comm);
void mems_left(const spmt_comm *comm); /* names it, with SPMT_CHECK */
/* The number, from 1 on, of one that lies in [ptr, ptr + n) of this rank's; 0: none does. */
uint64_t mems_within(const spmt_comm *comm, const void *ptr, uint64_t n);

/* ---- spinning: spin.c ---------------------------------------------------------------------------------- */

enum { SPIN_LOOKS = 32 }; /* from one call of spin_on to the next, with a cpu_relax() each */
/* false: this rank has spun for SPMT_SPIN_US. *begin: 0 at first. */
bool spin_on(spmt_comm *comm, int64_t *begin);
void spin_seen(spmt_comm *comm); /* this rank, on this CPU */

/* quiet without entering: 0 or the first failure since the last one. */
int quiet_slow(spmt_comm *comm, const char *what);   /* sync.c */
int movers_quiet(spmt_comm *comm, const char *what); /* NBI work of all links; the first failure */

static inline int quiet_all(spmt_comm *comm, const char *what)
{
	return LIKELY(!comm->pending && !comm->streamed && !kernel_left(comm))
		? 0
		: quiet_slow(comm, what);
}

#endif
