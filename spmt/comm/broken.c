/* SPDX-License-Identifier: MIT */
/*
 * How a break travels. Whoever finds out writes the cause into the record of its process (world->local), then into the memory that all
 * processes share, raises the stop words of the comms here, parts and lanes behind their world, wakes who sleeps, and tells the rendezvous,
 * by which the other processes do the same (world_break_here). The first cause counts. Whoever learns of a break in the midst of that
 * does what is missing before its call returns (await_shared, parts_inherit, lanes_inherit), so that the next call of this process, on
 * whichever comm of the world, knows of it, too.
 */
#include "broken.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "comm.h"
#include "meet.h"
#include "record.h"
#include "report.h"
#include "spmt/bootstrap/bootstrap.h"
#include "spmt/control/keys.h"
#include "spmt/lane/lane.h"
#include "spmt/lane/lanes.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define CAUSE_NS 2000000000ll /* a process that dies is heard of long before */
#define WRITE_NS 200000000ll  /* to write the cause: twice the time after which another writes it */
#define CAUSE_LOOK_NS 1000000l

/* Looks again soon at first, because a breaker may just be writing. */
static void cause_pause(int64_t since)
{
	UNCANCELLED;
	const struct timespec ts = { .tv_nsec = CAUSE_LOOK_NS };

	if (process_now() - since < CAUSE_LOOK_NS)
		sched_yield();
	else
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
}

/* The cause may be in this process's own memory, or appear in the shared memory after all. */
static bool cause_is_known(struct world *world, struct control *control, struct cause *cause)
{
	return control_state(world->local, cause) == CONTROL_BROKEN ||
		control_state(control, cause) == CONTROL_BROKEN;
}

/* What comms split from a broken world report. */
static void cause_inherit(struct cause *inherited, const struct cause *cause)
{
	struct text text = { .used = 0 };

	text_add(&text, "its world is broken: %.450s", cause->sentence);
	cause_follow(inherited, cause, text.bytes);
}

/* A thread that breaks a world does so here first, then in shared memory: a call that has learnt of the break does not return before the
   latter, or the next call might not know. If that thread is stopped in between, another does it. */
static void await_shared(struct world *world, struct control *control, const struct cause *cause)
{
	int64_t begin = process_now();
	struct cause inherited;

	while (!atomic_load(&control->stop) && process_now() - begin < WRITE_NS)
		cause_pause(begin);
	if (atomic_load(&control->stop))
		return;
	cause_inherit(&inherited, cause);
	control_break(control, control == atomic_load(&world->control) ? cause : &inherited);
}

static void await_cause(
	struct world *world, struct control *control, int64_t most_ns, struct cause *cause)
{
	int64_t begin = process_now();
	struct cause shared;

	while (!cause_is_known(world, control, cause)) {
		if (process_now() - begin >= MAX_OF(most_ns, WRITE_NS)) {
			cause_set(cause, SPMT_ERR_BROKEN, NULL,
				"one of its processes has overwritten the memory that they share, or has stopped while it wrote there why");
			if (most_ns)
				world_break(world, cause);
			return;
		}
		cause_pause(begin);
	}
	await_shared(world, control, cause);
	/* another cause may have been the first there, which is what the next call reads */
	if (control_state(control, &shared) == CONTROL_BROKEN)
		*cause = shared;
}

static bool control_is_worlds(const struct world *world, const struct control *control)
{
	return control == world->local || control == atomic_load(&world->control);
}

/* Whoever breaks a world breaks its parts and lanes next, and another process does so once told. A call that has learnt of the break does
   not return before this process's parts and lanes know. */
static void parts_inherit(struct world *world, const struct cause *cause)
{
	struct cause inherited;

	cause_inherit(&inherited, cause);
	pthread_mutex_lock(&world->lock);
	for (spmt_comm *c = world->comms; c; c = c->next_here) {
		if (!c->parent || c->lane || atomic_load(&c->control->stop))
			continue;
		control_break(c->control, &inherited);
		comm_stop(c);
	}
	pthread_mutex_unlock(&world->lock);
	lanes_break(atomic_load(&world->lanes), LANES_ANY, &inherited);
}

/* A call that has learnt that a part is broken does not return before its lanes know. */
static void lanes_inherit(
	struct world *world, const struct control *control, const struct cause *cause)
{
	const spmt_comm *c;
	uint64_t id = 0;

	pthread_mutex_lock(&world->lock);
	for (c = world->comms; c && (c->lane || c->control != control);)
		c = c->next_here;
	if (c)
		id = c->id;
	pthread_mutex_unlock(&world->lock);
	if (c)
		lanes_break(atomic_load(&world->lanes), id, cause);
}

static int fail_broken(const struct world *world, const struct control *control, const char *what,
	const struct cause *cause)
{
	bool whole = control_is_worlds(world, control);

	if (cause->call == call_id(what))
		return fail_cause(cause);
	return fail_call(cause->code, what, "the %s is broken: %s", whole ? "world" : "comm",
		cause->sentence);
}

bool world_cause(struct world *world, struct control *control, int64_t most_ns, struct cause *cause)
{
	enum control_state state = control_state(control, cause);

	if (state == CONTROL_SPOILED)
		await_cause(world, control, most_ns, cause);
	if (state != CONTROL_WHOLE && control_is_worlds(world, control))
		parts_inherit(world, cause);
	else if (state != CONTROL_WHOLE)
		lanes_inherit(world, control, cause);
	return state != CONTROL_WHOLE;
}

int world_broken(struct world *world, struct control *control, const char *what, int64_t most_ns)
{
	struct cause cause;

	return world_cause(world, control, most_ns, &cause)
		? fail_broken(world, control, what, &cause)
		: 0;
}

void comm_cause(const spmt_comm *comm, struct cause *cause)
{
	if (!world_cause(comm->world, comm->control, CAUSE_NS, cause))
		await_cause(comm->world, comm->control, CAUSE_NS, cause);
}

int comm_broken(const spmt_comm *comm, const char *what)
{
	int rc;

	comm_look(comm);
	/* Only once the cause is known: a thread that finds the stop word raised without a cause
	   thinks that a kernel raised it. */
	rc = world_broken(comm->world, comm->control, what, CAUSE_NS);
	if (rc)
		comm_stop(comm);
	return rc;
}

int comm_spoiled(const spmt_comm *comm, const char *what)
{
	struct cause cause;

	comm_cause(comm, &cause);
	comm_stop(comm); /* not before: see comm_broken */
	return fail_broken(comm->world, comm->control, what, &cause);
}

void comm_inherit(const spmt_comm *comm)
{
	struct control *world = atomic_load(&comm->world->control);
	const spmt_comm *parent = comm->parent;
	struct cause cause;

	if (comm->lane)
		comm_inherit_lanes(parent);
	else if (parent && atomic_load(&world->stop))
		world_cause(comm->world, world, 0, &cause);
}

void comm_inherit_lanes(const spmt_comm *parent)
{
	struct cause cause;

	comm_inherit(parent);
	if (!comm_is_broken(parent))
		return;
	comm_look(parent);
	comm_cause(parent, &cause);
	lanes_break(atomic_load(&parent->world->lanes), parent->id, &cause);
}

void comm_break_lanes(const spmt_comm *comm, const struct cause *cause)
{
	struct world *w = comm->world;
	struct control *control = atomic_load(&w->control);

	lanes_break(atomic_load(&w->lanes), comm->id, cause);
	if (comm->nlanes)
		keys_break(control_keys(control, w->nranks), comm->id, cause,
			control_stop_word(control));
}

/* ---- who is told, and whose waits end ---------------------------------------------------------- */

void comms_break(struct world *world, const struct cause *cause)
{
	struct control *control = atomic_load(&world->control);
	struct cause inherited;

	cause_inherit(&inherited, cause);
	pthread_mutex_lock(&world->lock);
	for (spmt_comm *c = world->comms; c; c = c->next_here) {
		if (c->lane)
			continue;
		if (c->parent)
			control_break(c->control, &inherited);
		meet_broke(c, c->parent ? &inherited : cause);
		comm_stop(c);
	}
	pthread_mutex_unlock(&world->lock);
	lanes_break(atomic_load(&world->lanes), LANES_ANY, &inherited);
	for (int i = 0; i < world->nranks; i++)
		wake_sleepers(&control->rows[i].wake_counter);
}

/* rank: the one of this process that found out; -1: one of another process. Each process logs
   once, and logs the first cause, which may come from another process. */
static void break_here(struct world *world, int rank, const struct cause *cause)
{
	bool tell = control_break(world->local, cause), first = tell;
	struct control *control = atomic_load(&world->control); /* after that: world_adopt */
	struct cause earlier;

	if (control != world->local)
		first = control_break(control, cause);
	if (tell && control_state(control, &earlier) == CONTROL_BROKEN)
		report_broken(world, first ? rank : -1, &earlier);
	else if (tell)
		report_broken(world, rank, cause);
	comms_break(world, cause);
}

void world_break_here(struct world *world, const struct cause *cause)
{
	break_here(world, -1, cause);
}

static void break_everywhere(struct world *world, int rank, const struct cause *cause)
{
	struct bootstrap *boot;

	break_here(world, rank, cause);
	boot = atomic_load(&world->boot); /* after that: call_others */
	if (boot)
		bootstrap_break(boot, cause);
}

void world_break(struct world *world, const struct cause *cause)
{
	break_everywhere(world, -1, cause);
}

void world_break_part(struct world *w, uint64_t id, const struct cause *cause)
{
	pthread_mutex_lock(&w->lock);
	for (spmt_comm *c = w->comms; c; c = c->next_here) {
		if (!c->parent || c->id != id)
			continue;
		if (control_break(c->control, cause))
			report_part_broken(c, cause);
		comm_stop(c);
		wake_sleepers(
			&atomic_load(&w->control)->rows[comm_world_rank(c, c->rank)].wake_counter);
	}
	pthread_mutex_unlock(&w->lock);
}

void comm_break_last(spmt_comm *comm, int code)
{
	struct cause cause;

	cause_last(&cause, code);
	comm_break(comm, &cause);
}

void comm_break(spmt_comm *comm, const struct cause *cause)
{
	UNCANCELLED;
	struct world *w = comm->world;

	if (!comm->parent) {
		break_everywhere(w, comm->rank, cause);
		return;
	}
	if (comm->lane) {
		if (lane_break(comm->lane, cause))
			report_part_broken(comm, cause);
	} else {
		if (control_break(comm->control, cause))
			report_part_broken(comm, cause);
		pthread_mutex_lock(&w->lock);
		meet_broke(comm, cause);
		for (spmt_comm *c = w->comms; c; c = c->next_here)
			if (c->control == comm->control)
				comm_stop(c);
		pthread_mutex_unlock(&w->lock);
		comm_break_lanes(comm, cause);
	}
	/* NULL: its links have ended, and nobody waits in it except in a meeting */
	for (int pe = 0; pe < comm->nranks && comm->wake_counters; pe++)
		wake_sleepers(comm->wake_counters[pe]);
}
