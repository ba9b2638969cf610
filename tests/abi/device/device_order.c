/* SPDX-License-Identifier: MIT */
/*
 * The header's fences, syncs and patience as devices compile them, cut out of spmt_device.h
 * (device_order.sh does it) and run here, lane by lane, over a machine that writes down what each lane does. By
 * PTX's model a relaxed post tells of what others have stored if its own lane has fenced before it, after it had met them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SPMTD_FN static inline __attribute__((unused))
#define SPMTD_ROLLED

#include "spmt_device/types.h"

enum { LANES = 1024, PES = 144, WARP = 32, EVENTS = 512 };
enum what { MEETS_WARP, MEETS_BLOCK, SETTLES, FENCES, COMPLETES, POSTS };

/* What one lane has done. */
struct trace {
	int n;
	enum what what[EVENTS];
};

static struct {
	uint32_t lane, lanes;
	struct trace traces[LANES];
	struct spmtd_inbox theirs[PES]; /* this rank's at each peer */
	int awaited;			/* what each wait returns */
	uint32_t stop;
	int votes[8], voted; /* in this run, by this lane */
	uint64_t ns, stop_looks, clock_looks;
} machine;

static void note(enum what what)
{
	struct trace *t = &machine.traces[machine.lane];

	if (t->n < EVENTS)
		t->what[t->n++] = what;
}

/* ---- the machine ----------------------------------------------------------------------------- */

enum spmtd_scope_ { SPMTD_THREAD_, SPMTD_WARP_, SPMTD_BLOCK_ };

#define NOTES(name, what)                        \
	static inline void spmtd_##name##_(void) \
	{                                        \
		note(what);                      \
	}
NOTES(meet_warp, MEETS_WARP)
NOTES(meet_block, MEETS_BLOCK)
NOTES(settle, SETTLES)
NOTES(order, FENCES)
NOTES(complete, COMPLETES)

static inline void spmtd_acquired_(void)
{
}

#define IS(name, value)                              \
	static inline uint32_t spmtd_##name##_(void) \
	{                                            \
		return value;                        \
	}
IS(tid_x, machine.lane)
IS(tid_y, 0)
IS(tid_z, 0)
IS(ntid_x, machine.lanes)
IS(ntid_y, 1)
IS(ntid_z, 1)
IS(warp_size, WARP)

/* Lane 0, which goes first, has seen what any has. */
static inline int spmtd_any_warp_(int x) /* orders no memory */
{
	int *vote = &machine.votes[machine.voted++];

	if (machine.lane == 0)
		*vote = x != 0;
	return *vote;
}

static inline int spmtd_any_block_(int x)
{
	note(MEETS_BLOCK);
	return spmtd_any_warp_(x);
}

static inline uint64_t spmtd_clock_(void)
{
	machine.clock_looks++;
	return machine.ns += 1000;
}

static inline uint32_t spmtd_peek32_(uint64_t a)
{
	machine.stop_looks++;
	return *(const uint32_t *)(uintptr_t)a;
}

static inline uint64_t spmtd_peek64_(uint64_t a)
{
	return *(const uint64_t *)(uintptr_t)a;
}

static inline void spmtd_poke64_(uint64_t a, uint64_t x)
{
	*(uint64_t *)(uintptr_t)a = x;
}

static inline void spmtd_noret_add64_(uint64_t a, uint64_t x)
{
	note(POSTS);
	*(uint64_t *)(uintptr_t)a += x;
}

static inline uint64_t spmtd_at_(const volatile void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/* A library area of which there is nothing but this rank's inbox. */
static inline uint64_t spmtd_there_(const struct spmt_view *v, const volatile void *sym, int pe)
{
	(void)sym;
	return spmtd_at_(&machine.theirs[pe]) - sizeof(struct spmtd_own) -
		(uint64_t)v->pe * sizeof(struct spmtd_inbox);
}

static inline void spmtd_wake_(const struct spmt_view *v, int pe)
{
	(void)v, (void)pe;
}

/* All peers have an address. */
static inline int spmtd_is_far_(const struct spmt_view *v, int pe)
{
	(void)v, (void)pe;
	return 0;
}

static inline uint64_t spmtd_fifo_(const struct spmt_view *v)
{
	return spmtd_at_(v->fifo);
}

static inline void spmtd_far_signal_(
	const struct spmt_view *v, uint64_t off, uint64_t value, int op, int pe, int waits)
{
	(void)v, (void)off, (void)value, (void)op, (void)pe, (void)waits;
}

static inline void spmtd_far_fence_(const struct spmt_view *v, int scope)
{
	(void)v, (void)scope;
}

static inline int spmtd_far_quiet_by_(uint64_t fifo, uint64_t timeout_ns, int scope)
{
	(void)fifo, (void)timeout_ns, (void)scope;
	return 0;
}

static inline int spmtd_sdma_has_(const struct spmt_view *v)
{
	return v->sdma != NULL;
}

static inline int spmtd_sdma_done_(const struct spmt_view *v, int pe)
{
	(void)v, (void)pe;
	return 0;
}

static inline int spmtd_sdma_done_by_(const struct spmt_view *v, int pe, int scope)
{
	(void)v, (void)pe, (void)scope;
	return 0;
}

struct spmtd_waiter_;
enum spmtd_kind_ { SPMTD_KIND_W_ = 3 };
static inline int spmtd_await_(const struct spmt_view *v, struct spmtd_waiter_ *w, int kind,
	uint32_t bits, uint64_t a, int cmp, uint64_t val, int what, int peer)
{
	(void)v, (void)w, (void)kind, (void)bits, (void)a, (void)cmp, (void)val, (void)what,
		(void)peer;
	return machine.awaited;
}

#include "device_order.h"

/* ---- what the lanes did ---------------------------------------------------------------------- */

static int tests, failures;

static void report(const char *name, const char *wrong)
{
	printf("%sok %d - %s\n", wrong ? "not " : "", ++tests, name);
	if (wrong)
		printf("# %s, %u lanes\n", wrong, machine.lanes);
	failures += wrong != NULL;
}

static int all_quiet(const struct spmt_view *v, int scope)
{
	return scope == SPMTD_THREAD_  ? spmtd_quiet(v)
		: scope == SPMTD_WARP_ ? spmtd_quiet_warp(v)
				       : spmtd_quiet_block(v);
}

static int all_fence(const struct spmt_view *v, int scope)
{
	if (scope == SPMTD_THREAD_)
		spmtd_fence(v);
	else if (scope == SPMTD_WARP_)
		spmtd_fence_warp(v);
	else
		spmtd_fence_block(v);
	return 0;
}

static int all_sync(const struct spmt_view *v, int scope)
{
	return scope == SPMTD_THREAD_  ? spmtd_sync(v)
		: scope == SPMTD_WARP_ ? spmtd_sync_warp(v)
				       : spmtd_sync_block(v);
}

static int all_barrier(const struct spmt_view *v, int scope)
{
	return scope == SPMTD_THREAD_  ? spmtd_barrier(v)
		: scope == SPMTD_WARP_ ? spmtd_barrier_warp(v)
				       : spmtd_barrier_block(v);
}

typedef int step_fn(const struct spmt_view *, int scope);

static const char *run(step_fn *first, step_fn *second, int scope, uint32_t lanes, int npes)
{
	struct spmtd_own own = { .sync_epoch = 7 };
	struct spmt_view v = { .pe = npes / 2, .npes = npes, .stride = 1, .own = &own };
	uint64_t epoch = 7;
	bool syncs = second || first == all_barrier, fails = machine.awaited && npes > 1;

	memset(machine.traces, 0, sizeof(machine.traces));
	memset(machine.theirs, 0, sizeof(machine.theirs));
	machine.lanes = lanes;
	for (machine.lane = 0; machine.lane < lanes; machine.lane++) {
		machine.voted = 0;
		own.sync_epoch = 7; /* lane 0's to write, after the others have read it */
		first(&v, scope);
		if (second)
			second(&v, scope);
		if (machine.lane == 0)
			epoch = own.sync_epoch;
	}
	if (syncs && epoch != (fails ? 7 : 8))
		return "the epoch is wrong";
	for (int pe = 0; pe < npes && syncs; pe++)
		if (machine.theirs[pe].sync != (pe != v.pe && !fails))
			return "a peer's count of arrivals is wrong";
	return NULL;
}

static int count(const struct trace *t, enum what what, int end)
{
	int n = 0;

	for (int i = 0; i < end; i++)
		n += t->what[i] == what;
	return n;
}

/* Lanes that do not meet alike wait for each other for ever. */
static const char *meet_alike(int scope)
{
	enum what meets = scope == SPMTD_WARP_ ? MEETS_WARP : MEETS_BLOCK;

	for (uint32_t i = 0; i < machine.lanes; i++) {
		const struct trace *t = &machine.traces[i];

		if (t->n == EVENTS)
			return "a lane does more than was written down";
		if (scope != SPMTD_THREAD_ &&
			count(t, meets, t->n) !=
				count(&machine.traces[0], meets, machine.traces[0].n))
			return "the lanes do not meet alike";
	}
	return NULL;
}

/* How many meetings lie before this lane's first such fence that follows one, -1: it makes none. */
static int fenced_after(const struct trace *t, enum what fence, int scope, int end)
{
	enum what meets = scope == SPMTD_WARP_ ? MEETS_WARP : MEETS_BLOCK;

	for (int i = 0; i < end; i++)
		if (t->what[i] == fence && (scope == SPMTD_THREAD_ || count(t, meets, i)))
			return count(t, meets, i);
	return -1;
}

/* Whoever posts has met all, and then fenced. */
static const char *posts_tell(enum what fence, int scope)
{
	for (uint32_t lane = 0; lane < machine.lanes; lane++) {
		const struct trace *t = &machine.traces[lane];

		for (int i = 0; i < t->n; i++)
			if (t->what[i] == POSTS && fenced_after(t, fence, scope, i) < 0)
				return "a lane posts that has not fenced since it met the others";
	}
	return NULL;
}

/* Each lane has fenced since it met the others, or has since met one that had. */
static const char *all_fenced(enum what fence, int scope)
{
	enum what meets = scope == SPMTD_WARP_ ? MEETS_WARP : MEETS_BLOCK;
	int first = fenced_after(&machine.traces[0], fence, scope, machine.traces[0].n);

	for (uint32_t lane = 0; lane < machine.lanes; lane++) {
		const struct trace *t = &machine.traces[lane];

		if (scope == SPMTD_BLOCK_ && (t->n == 0 || t->what[0] != SETTLES))
			return "a lane does not settle before it meets the others";
		if (fenced_after(t, fence, scope, t->n) < 0 &&
			(first < 0 || count(t, meets, t->n) <= first))
			return "a lane goes on before all is fenced";
	}
	return NULL;
}

static const char *judge(step_fn *first, step_fn *second, enum what fence)
{
	static const uint32_t sizes[] = { 1, 5, WARP, 33, 256, LANES };
	static const int worlds[] = { 1, 2, 8, 40, PES };
	const char *wrong = NULL;

	for (int scope = SPMTD_THREAD_; scope <= SPMTD_BLOCK_; scope++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]) && !wrong; w++) {
				if (sizes[i] > (scope == SPMTD_THREAD_		      ? 1u
							       : scope == SPMTD_WARP_ ? WARP
										      : LANES))
					continue;
				wrong = run(first, second, scope, sizes[i], worlds[w]);
				if (!wrong)
					wrong = meet_alike(scope);
				if (!wrong)
					wrong = posts_tell(fence, scope);
				if (!wrong)
					wrong = all_fenced(fence, scope);
			}
	return wrong;
}

static int patient(const struct spmt_view *v, int looks)
{
	struct spmtd_waiter_ w;
	int rc = 0;

	spmtd_wait_begin_(&w);
	for (int i = 0; i < looks && !rc; i++)
		rc = spmtd_wait_check_(v, &w);
	return rc;
}

static const char *patience(void)
{
	struct spmt_view v = { .stop = &machine.stop };

	if (patient(&v, 100000) || machine.stop_looks == 0)
		return "nothing ends a wait with no deadline in a world that stands, but it looks";
	if (machine.stop_looks > 100000 / 2000)
		return "a thread that waits reads the host's memory more than every 2000 looks";
	v.timeout_ns = 100000;
	if (patient(&v, 100000) != SPMTD_TIMEOUT)
		return "a deadline passes unseen";
	machine.stop = 1;
	if (patient(&v, 4000) != SPMTD_ABORTED)
		return "an abort is not seen within 4000 looks";
	v.timeout_ns = 1000;
	if (patient(&v, 1000) != SPMTD_ABORTED)
		return "a timeout outdoes an abort";
	v.stop = NULL;
	if (patient(&v, 1000) != SPMTD_TIMEOUT)
		return "a view without a stop word keeps no deadline";
	return NULL;
}

int main(void)
{
	puts("1..6");
	report("quiet completes for all, and what it completed a sync tells of",
		judge(all_quiet, all_sync, COMPLETES));
	report("barrier completes, then tells", judge(all_barrier, NULL, COMPLETES));
	report("fence orders for all", judge(all_fence, NULL, FENCES));
	machine.awaited = SPMTD_TIMEOUT;
	report("a sync that fails takes its arrivals back", judge(all_quiet, all_sync, COMPLETES));
	report("a barrier that fails does so, too", judge(all_barrier, NULL, COMPLETES));
	report("patience", patience());
	return failures != 0;
}
