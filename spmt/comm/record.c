/* SPDX-License-Identifier: MIT */
/* Reading what kernels have left for the host when they failed. */
#include "record.h"

#include <stdio.h>
#include <string.h>

#include "broken.h"
#include "comm.h"
#include "spmt/control/coll_key.h"
#include "spmt/lane/lane.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "waits.h"

static bool is_there(const struct spmtd_record *r)
{
	return __atomic_load_n(&r->valid, __ATOMIC_ACQUIRE) == 2;
}

/* ---- waits, and calls that differ ------------------------------------------------------------- */

static int say_differs(const spmt_comm *comm, const char *what, const struct spmtd_record *r)
{
	char difference[192];

	coll_differ(difference, sizeof(difference), r->peer, r->seen, comm->rank, r->expected);
	return fail_call(r->code, what, "rank %d: %s", comm->rank, difference);
}

/* For a kernel's own meeting only the peer it waited for last is known; others may be missing
   too. */
static int say_wait(const spmt_comm *comm, const char *what, const struct spmtd_record *r)
{
	bool meets = r->what == SPMTD_WHAT_SYNC || r->what == SPMTD_WHAT_BARRIER;

	if (meets && r->code == SPMT_ERR_TIMEOUT)
		return fail_call(r->code, what,
			"rank %d: a kernel's %s timed out, the first rank missing: %d", comm->rank,
			r->what == SPMTD_WHAT_SYNC ? "sync" : "barrier", r->peer);
	if (r->what == SPMTD_WHAT_CHANNEL || r->what == SPMTD_WHAT_PORT)
		return fail_call(r->code, what,
			"rank %d: a kernel's wait for signal %llu of rank %d's through a %s ended: %llu had come",
			comm->rank, (unsigned long long)r->expected, r->peer,
			r->what == SPMTD_WHAT_PORT ? "port" : "channel",
			(unsigned long long)r->seen);
	if (r->what == SPMTD_WHAT_POST)
		return fail_call(r->code, what,
			"rank %d: a kernel waited for the host to take its post %llu, for rank %d: %llu are done",
			comm->rank, (unsigned long long)r->expected, r->peer,
			(unsigned long long)r->seen);
	if (r->what == SPMTD_WHAT_SDMA)
		return fail_call(r->code, what,
			"rank %d: a kernel waited for the copy engine for rank %d to come to byte %llu of what it is fed: it is at %llu",
			comm->rank, r->peer, (unsigned long long)r->expected,
			(unsigned long long)r->seen);
	return fail_call(r->code, what,
		"rank %d: %s the word at %#llx ended: expected %llu, saw %llu", comm->rank,
		r->what == SPMTD_WHAT_ON_STREAM ? "spmt_signal_wait_on_stream on"
						: "a kernel's wait for",
		(unsigned long long)r->address, (unsigned long long)r->expected,
		(unsigned long long)r->seen);
}

/* Both readers hold the world's lock; kernels never overwrite a record that is there. `but`: a record with one of these bits is not freed. */
static bool take(
	spmt_comm *comm, struct spmtd_record *r, bool free, uint64_t but, struct spmtd_record *out)
{
	bool there;

	if (!is_there(r))
		return false;
	pthread_mutex_lock(&comm->world->lock);
	there = is_there(r);
	if (there)
		*out = *r;
	if (there && free && !((out->expected | out->seen) & but))
		__atomic_store_n(&r->valid, 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&comm->world->lock);
	return there;
}

/* Keeps what has broken the comm, for comm_look, and what is about to: a kernel records it before it raises the stop word. */
int kernel_failure(spmt_comm *comm, const char *what)
{
	bool whole = !comm->stop_word || !__atomic_load_n(&comm->stop_word->stop, __ATOMIC_ACQUIRE);
	struct spmtd_record r;

	if (take(comm, &kernel_report_of(comm->signals)->differs, whole, COLL_KEY_BREAKS, &r))
		return say_differs(comm, what, &r);
	return take(comm, &comm->signals->record, true, 0, &r) ? say_wait(comm, what, &r) : 0;
}

int kernel_looks(spmt_comm *comm, const char *what)
{
	struct spmtd_record r;

	if (!comm->signals)
		return 0;
	if (take(comm, &kernel_report_of(comm->signals)->differs, false, 0, &r))
		return say_differs(comm, what, &r);
	if (take(comm, &comm->signals->record, false, 0, &r))
		say_wait(comm, what, &r);
	return 0;
}

/* ---- what breaks the comm ---------------------------------------------------------------------- */

/* ": 2 of 8 ranks missing after 5.0 s: 3, 6"; of a rank that heard it from a peer, whose deadline it was. */
static void fail_missing(const spmt_comm *comm, const struct kernel_report *report, struct text *t)
{
	const unsigned char *is_missing = (const unsigned char *)(report + 1);
	bool timed_out = report->broke.code == SPMT_ERR_TIMEOUT;
	int64_t ms = comm_timeout(comm), since = process_now() - ms * 1000000;
	struct waits_text waits = { .used = 0 };
	int missing = 0, n = 0;

	for (int pe = 0; pe < comm->nranks; pe++) {
		if (!__atomic_load_n(&is_missing[pe], __ATOMIC_RELAXED))
			continue;
		missing++;
		waits_add(&waits, comm, pe, since);
	}
	if (report->broke.code == SPMT_ERR_MISMATCH) {
		text_add(t, " ended: rank %d was called otherwise than its peers",
			report->broke.peer);
		return;
	}
	if (!missing && !timed_out) {
		text_add(t, " ended: rank %d has given up a collective or barrier",
			report->broke.peer);
		return;
	}
	text_add(t, ": %s%d of %d ranks missing after ", waits_said(&waits), MAX_OF(missing, 1),
		comm->nranks);
	if (timed_out)
		text_add(t, "%.*f s:", SECONDS((double)ms / 1e3));
	else
		text_add(t, "rank %d's deadline:", report->broke.peer);
	for (int pe = 0; pe < comm->nranks && missing; pe++)
		if (__atomic_load_n(&is_missing[pe], __ATOMIC_RELAXED))
			text_add(t, "%s %d", n++ ? "," : "", pe);
	if (!missing) /* it has come meanwhile */
		text_add(t, " %d", report->broke.peer);
}

/* A wait of a kernel that failed before may be the reason. Under the world's lock. */
static void say_wait_before(const spmt_comm *comm, struct text *t)
{
	KEEPS_SENTENCE;

	if (!is_there(&comm->signals->record))
		return;
	say_wait(comm, "before", &comm->signals->record);
	text_add(t, "%.200s; then ", status_sentence() + strlen("before: "));
}

/* A rank of this process whose own deadline has passed; else one that heard it from a peer. Under
   the world's lock. */
static const spmt_comm *find_cause(const spmt_comm *comm)
{
	const spmt_comm *cause = NULL;

	for (const spmt_comm *c = comm->world->comms; c; c = c->next_here) {
		const struct kernel_report *report;

		if (c->id != comm->id || !c->signals)
			continue;
		report = kernel_report_of(c->signals);
		/* another may have raised the word while this one is still noting who is missing */
		if (!__atomic_load_n(&report->told, __ATOMIC_ACQUIRE))
			continue;
		if (is_there(&report->broke) && (!cause || report->broke.code == SPMT_ERR_TIMEOUT))
			cause = c;
		if (cause == c && report->broke.code == SPMT_ERR_TIMEOUT)
			break;
	}
	return cause;
}

/* A rank of this process whose call differed from a peer's. Under the world's lock. */
static const spmt_comm *find_odd(const spmt_comm *comm)
{
	const spmt_comm *c = comm->world->comms;

	while (c &&
		(c->id != comm->id || !c->signals ||
			!is_there(&kernel_report_of(c->signals)->differs)))
		c = c->next_here;
	return c;
}

static int say_odd(const spmt_comm *odd, struct text *t)
{
	const struct spmtd_record *r = &kernel_report_of(odd->signals)->differs;
	char difference[192];

	coll_differ(difference, sizeof(difference), r->peer, r->seen, odd->rank, r->expected);
	text_add(t, "rank %d: %s", odd->rank, difference);
	return r->code;
}

/* A collective records its key; one refused because its comm was broken does not. */
static const char *broke_name(const struct spmtd_record *r)
{
	if (r->what == SPMTD_WHAT_COLLECTIVE)
		return r->expected ? coll_key_call(r->expected) : "a collective";
	return r->what == SPMTD_WHAT_CHANNEL ? "spmt_plan_run" : "a barrier";
}

/* Returns what breaks the comm; 0: no kernel of this process has told why. */
static int say_cause(const spmt_comm *comm, struct text *t)
{
	const spmt_comm *cause = find_cause(comm), *odd = find_odd(comm);
	const struct kernel_report *report = cause ? kernel_report_of(cause->signals) : NULL;

	if (odd && (!report || report->broke.code != SPMT_ERR_TIMEOUT))
		return say_odd(odd, t);
	if (!report)
		return 0;
	say_wait_before(cause, t);
	text_add(t, "rank %d: %s in a stream", cause->rank, broke_name(&report->broke));
	if (report->broke.what == SPMTD_WHAT_SDMA)
		text_add(t,
			" waited for the copy engine for rank %d to come to byte %llu of what it is fed: it was at %llu",
			report->broke.peer, (unsigned long long)report->broke.expected,
			(unsigned long long)report->broke.seen);
	else
		fail_missing(cause, report, t);
	return report->broke.code == SPMT_ERR_MISMATCH ? SPMT_ERR_MISMATCH : SPMT_ERR_TIMEOUT;
}

void comm_look(const spmt_comm *comm)
{
	struct text text = { .used = 0 };
	struct cause cause;
	int code;

	if (!comm->stop_word || !__atomic_load_n(&comm->stop_word->stop, __ATOMIC_ACQUIRE) ||
		atomic_load_explicit(&comm->control->stop, memory_order_acquire))
		return;
	if (comm->lane)
		text_add(&text, "lane %llu: ", (unsigned long long)comm->lane->key);
	pthread_mutex_lock(&comm->world->lock);
	code = say_cause(comm, &text);
	pthread_mutex_unlock(&comm->world->lock);
	if (!code) { /* a kernel ended because the control block said that the comm is broken, which it does no longer */
		comm_cause(comm, &cause);
		return;
	}
	cause_set(&cause, code, NULL, text.bytes);
	comm_break((spmt_comm *)(uintptr_t)comm, &cause);
}
