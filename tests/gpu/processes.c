/* SPDX-License-Identifier: MIT */
/*
 * Ranks in several processes on GPUs, and on one: the same program text over every layout, kernels of
 * ranks that store to each other across processes, the death of a process under waiting kernels, what a
 * put between processes moves. The parent never touches a driver; each child has its deadline and ends
 * with its parent.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"
#include "kernels/puts.h"
#include "kernels/signals.h"
#include "kernels/waits.h"
#include "tests/lib/every_call.h"
#include "tests/lib/processes.h"

enum { CHILD_SECONDS = 60, PROGRAM_SECONDS = 400, NOTICE_MS = 1000, BIG = 64 << 20 };

/* Which devices the ranks are on: one each; one each, and a process sees those of its ranks alone; all
   on device 0. */
enum spread { OWN, MASKED, SHARED, SPREADS };
static const char *const spread_names[SPREADS] = { "a device each", "a masked device each",
	"one device" };

static const struct test_kernel *const kernels[] = { &test_puts, &test_signals, &test_meetings,
	&test_hold, NULL };

/* What the processes of a test share. */
struct common {
	_Atomic int ready; /* ranks that are where they should be */
	_Atomic int64_t begin;
	double gbs[2]; /* device put, host put */
};

struct play {
	struct processes p;
	struct common *common;
	enum spread spread;
	int devices[PROCESSES_MOST * 8];
	int (*fn)(struct rank *r, struct play *play);
};

static struct {
	char backend[16];
	int devices, number, failed;
	bool no_kernels;     /* the backend is a stand-in, which has the library's kernels alone */
	pthread_once_t once; /* in a child */
	int opened;
} run = { .once = PTHREAD_ONCE_INIT };

/* ---- in a child ------------------------------------------------------------------------------ */

static struct play *child_play;
static int child_process;

static bool is_local(const struct play *play, int rank)
{
	return processes_of(play->p.layout, rank) == child_process;
}

/* Before the driver is loaded: it reads the mask once. */
static void mask_devices(const struct play *play)
{
	char list[64] = "";
	size_t used = 0;

	for (int r = 0; r < play->p.nranks; r++)
		if (is_local(play, r))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d",
				used ? "," : "", r % run.devices);
	setenv("CUDA_VISIBLE_DEVICES", list, 1);
	setenv("HIP_VISIBLE_DEVICES", list, 1);
}

static void child_open(void)
{
	unsigned devices = 0;

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	if (child_play->spread == MASKED)
		mask_devices(child_play);
	for (int r = 0; r < child_play->p.nranks; r++)
		if (is_local(child_play, r))
			devices |= 1u << child_play->devices[r];
	run.opened = gpu_take(run.no_kernels ? 0 : devices, kernels);
}

static struct spmt_attr attr_of(const struct play *play, int rank, int nranks, const spmt_uid *uid)
{
	struct spmt_attr attr = ranks_attr(rank, nranks, uid);

	attr.backend = run.backend;
	attr.heap_size = 3 * (size_t)BIG;
	attr.timeout_ms = 20000;
	attr.device = play->spread == MASKED ? -1 : play->devices[rank];
	return attr;
}

/* The backend, the world, a stream of one's own; then the test. */
static int rank_main(int rank, void *arg)
{
	struct play *play = arg;
	struct spmt_attr attr;
	struct rank r;
	spmt_comm *comm;
	int code;

	child_process =
		processes_of(play->p.layout, rank); /* equal for all threads that write it */
	child_play = play;
	pthread_once(&run.once, child_open);
	TRY(run.opened);
	attr = attr_of(play, rank, play->p.nranks, &play->p.uid[0]);
	REQUIRE_OK(spmt_init(&attr, &comm));
	ranks_watch(comm);
	TRY(rank_open(&r, comm));
	code = play->fn(&r, play);
	if (code)
		spmt_abort(comm, -ECANCELED);
	rank_close(&r);
	ranks_watch(NULL);
	ranks_at("spmt_finalize", 0);
	if (code || spmt_status(comm))
		spmt_finalize(comm);
	else
		REQUIRE_OK(spmt_finalize(comm));
	return code;
}

/* ---- every call ------------------------------------------------------------------------------ */

static struct every_call every_call_of(const struct play *play)
{
	return (struct every_call){ .layout = play->p.layout,
		.uid = &play->p.uid[0],
		.devices = play->devices,
		.less = play->spread == SHARED };
}

static int every_call(struct rank *r, struct play *play)
{
	struct every_call b = every_call_of(play);

	TRY(every_call_places(r->comm, &b));
	return every_call_right(r->comm, &b);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static int ring_of_signals(struct rank *r, struct outcome *o, uint64_t rounds)
{
	struct signals_args a = { .view = r->view, .outcome = addr(o), .words = 513 };
	void *slots, *buffers, *words;

	REQUIRE_OK(spmt_calloc(r->comm, 2 * 513, 8, &slots));
	REQUIRE_OK(spmt_calloc(r->comm, 513, 8, &buffers));
	REQUIRE_OK(spmt_calloc(r->comm, 16, 8, &words));
	a.slots = addr(slots);
	a.buffers = addr(buffers);
	a.sigs = addr(words);
	a.acks = addr((uint64_t *)words + 8);
	a.rounds = rounds;
	a.to = r->next;
	a.from = r->prev;
	a.scope = BY_BLOCK;
	for (a.form = 0; a.form < SIGNAL_FORMS; a.form++) {
		TRY(rank_fill(r, words, 0, 128));
		REQUIRE_OK(spmt_barrier(r->comm));
		RANK_STEP(r, test_signals, 1, 128, a);
		TRY(outcome_check(r, o, "signals"));
	}
	REQUIRE_OK(spmt_free(r->comm, words));
	REQUIRE_OK(spmt_free(r->comm, buffers));
	REQUIRE_OK(spmt_free(r->comm, slots));
	return 0;
}

static int meetings(struct rank *r, struct outcome *o, uint64_t rounds)
{
	struct meetings_args a = {
		.view = r->view, .outcome = addr(o), .rounds = rounds, .scope = BY_BLOCK
	};
	void *slots;

	REQUIRE_OK(spmt_calloc(r->comm, 2 * (size_t)r->n, 8, &slots));
	a.slots = addr(slots);
	for (a.form = 0; a.form < MEET_FORMS; a.form++) {
		RANK_STEP(r, test_meetings, 1, 96, a);
		TRY(outcome_check(r, o, "meetings"));
		a.done += a.rounds;
	}
	REQUIRE_OK(spmt_free(r->comm, slots));
	return 0;
}

static int compare_puts(struct rank *r, const void *at, size_t n, uint64_t seed)
{
	unsigned char *seen = malloc(n);
	size_t wrong;

	REQUIRE(seen);
	TRY(rank_read(r, seen, at, n));
	wrong = pattern_differs(seen, n, seed + (uint64_t)r->prev);
	free(seen);
	return wrong == SIZE_MAX ? 0 : ranks_fail("byte %zu of a kernel's put is wrong", wrong);
}

/* The same bytes by a host call, so that it is known what a kernel's failure means. */
static int put_by_host(struct rank *r, spmt_mem *mem, const void *at, size_t n)
{
	unsigned char *given = malloc(n);
	int code;

	REQUIRE(given);
	pattern_fill(given, n, 9 + (uint64_t)r->pe);
	code = spmt_mem_put(r->comm, mem, 0, given, n, r->next);
	free(given);
	REQUIRE_OK(code);
	REQUIRE(spmt_mem_ptr(mem, r->next));
	REQUIRE_OK(spmt_barrier(r->comm));
	TRY(compare_puts(r, at, n, 9));
	REQUIRE_OK(spmt_barrier(r->comm));
	return 0;
}

/* By kernels into the next rank's heap, then into its registered buffer, which lies outside. */
static int put_bytes(struct rank *r)
{
	enum { N = 1000003 };
	struct puts_args a = { .view = r->view, .size = N, .rounds = 1, .pe = r->next };
	unsigned char *given = malloc(N);
	void *sym, *src, *out;
	spmt_mem *mem;

	REQUIRE(given);
	REQUIRE_OK(spmt_malloc(r->comm, N, &sym));
	TRY(rank_alloc(r, N, &src));
	TRY(rank_alloc(r, N + 4096, &out));
	REQUIRE_OK(spmt_register(r->comm, (char *)out + 80, N, &mem));
	pattern_fill(given, N, 5 + (uint64_t)r->pe);
	TRY(rank_write(r, src, given, N));
	free(given);
	a.dst = addr(sym);
	a.src = addr(src);
	RANK_STEP(r, test_puts, 7, 128, a);
	TRY(compare_puts(r, sym, N, 5));
	TRY(put_by_host(r, mem, (char *)out + 80, N));
	a.mem.size = sizeof(a.mem);
	REQUIRE_OK(spmt_mem_view_get(r->comm, mem, &a.mem));
	a.dst = 0;
	a.on_mem = 1;
	RANK_STEP(r, test_puts, 7, 128, a);
	TRY(compare_puts(r, (char *)out + 80, N, 5));
	REQUIRE_OK(spmt_deregister(r->comm, mem));
	REQUIRE_OK(spmt_free(r->comm, sym));
	rank_free(r, out);
	rank_free(r, src);
	return 0;
}

static int kernels_meet(struct rank *r, struct play *play)
{
	uint64_t rounds = play->spread == SHARED ? 20 : gpu_number(5000, 100);
	struct outcome *o;

	TRY(outcome_open(r, &o));
	TRY(put_bytes(r));
	TRY(ring_of_signals(r, o, rounds));
	TRY(meetings(r, o, rounds));
	REQUIRE_OK(spmt_free(r->comm, o));
	return 0;
}

/* ---- a death --------------------------------------------------------------------------------- */

static void kill_last(struct processes *p)
{
	struct common *c = p->shared;

	for (int64_t end = now_ns() + 30000000000; atomic_load(&c->ready) < p->nranks; sleep_ms(1))
		if (now_ns() > end)
			return;
	sleep_ms(100);
	atomic_store(&c->begin, now_ns());
	kill(p->pid[p->n - 1], SIGKILL);
}

/* Until the stream's kernel has ended, which the death has to bring about. */
static int ends_soon(struct rank *r, const struct common *c, const char *what)
{
	int64_t ms;

	TRY(rank_sync(r));
	ms = (now_ns() - atomic_load(&c->begin)) / 1000000;
	if (!atomic_load(&c->begin) || ms > NOTICE_MS)
		return ranks_fail(
			"rank %d: %s ended %lld ms after the death", r->pe, what, (long long)ms);
	if (r->pe == 0)
		fprintf(stderr, "# %s ended %lld ms after the death\n", what, (long long)ms);
	return 0;
}

/* The survivors, in a world of their own. */
static int go_on(const struct rank *r, const struct play *play, int survivors)
{
	struct spmt_attr attr = attr_of(play, r->pe, survivors, &play->p.uid[1]);
	uint64_t *sum, one = 1, seen = 0;
	spmt_comm *comm;

	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 2, 8, (void **)&sum));
	REQUIRE_OK(spmt_copy_in(comm, sum, &one, sizeof(one)));
	REQUIRE_OK(spmt_all_reduce(comm, sum + 1, sum, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
	REQUIRE_OK(spmt_quiet(comm));
	REQUIRE_OK(spmt_copy_out(comm, &seen, sum + 1, sizeof(seen)));
	REQUIRE_EQ(seen, survivors);
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

static int watch_the_end(
	struct rank *waits, struct rank *puts, struct play *play, int64_t *code, int survivors)
{
	int64_t seen = 0;

	TRY(ends_soon(waits, play->common, "a kernel's wait"));
	TRY(ends_soon(puts, play->common, "a kernel's put to the dead"));
	TRY(rank_read(waits, &seen, code, sizeof(seen)));
	REQUIRE_EQ(seen, SPMTD_ABORTED);
	REQUIRE_CODE(spmt_status(waits->comm), SPMT_ERR_PEER_DEAD);
	REQUIRE_CODE(spmt_barrier(waits->comm), SPMT_ERR_PEER_DEAD);
	REQUIRE_SAYS("died");
	return go_on(waits, play, survivors);
}

/* Each rank's kernels wait for what never comes, and put to a rank of the last process, or from it. */
static int one_dies(struct rank *r, struct play *play)
{
	int last = processes_of(play->p.layout, r->n - 1), survivors = 0;
	bool dies = processes_of(play->p.layout, r->pe) == last;
	struct hold_args hold = { .value = 1, .scope = BY_BLOCK, .form = HOLD_SIGNAL };
	struct puts_args puts = { .size = 1 << 20, .pe = dies ? 0 : r->n - 1 };
	struct rank second;
	void *words, *block;

	for (int pe = 0; pe < r->n; pe++)
		survivors += processes_of(play->p.layout, pe) != last;
	REQUIRE_OK(spmt_calloc(r->comm, 8, 8, &words));
	REQUIRE_OK(spmt_malloc(r->comm, 2 << 20, &block));
	REQUIRE_OK(spmt_set_timeout(r->comm, -1));
	REQUIRE_OK(spmt_view_get(r->comm, &r->view));
	TRY(rank_open(&second, r->comm));
	hold.view = puts.view = r->view;
	hold.word = addr(words);
	hold.code = addr((uint64_t *)words + 4);
	puts.dst = addr(block);
	puts.src = puts.dst + (1 << 20);
	REQUIRE_OK(spmt_barrier(r->comm));
	RANK_LAUNCH(r, test_hold, 1, 64, hold);
	RANK_LAUNCH(&second, test_puts, 4, 256, puts);
	atomic_fetch_add(&play->common->ready, 1);
	TRY(watch_the_end(r, &second, play, (int64_t *)words + 4, survivors));
	rank_close(&second);
	return 0;
}

/* ---- bandwidth ------------------------------------------------------------------------------- */

static int put_once(struct rank *r, struct puts_args *a, bool by_host, double *seconds)
{
	int64_t begin;

	REQUIRE_OK(spmt_barrier(r->comm));
	begin = now_ns();
	if (by_host)
		for (uint64_t i = 0; i < a->rounds; i++)
			REQUIRE_OK(spmt_put(
				r->comm, spmtd_to_(a->dst), spmtd_to_(a->src), a->size, a->pe));
	else
		RANK_LAUNCH(r, test_puts, 128, 512, *a);
	if (!by_host)
		TRY(rank_sync(r));
	*seconds = (double)(now_ns() - begin) / 1e9;
	REQUIRE_OK(spmt_barrier(r->comm));
	return 0;
}

/* The best of some runs, rank 0's; the other one is idle. */
static int put_speed(struct rank *r, struct play *play)
{
	struct puts_args a = { .view = r->view, .size = BIG, .pe = 1 };
	void *dst, *src;

	a.rounds = gpu_number(64, 2);
	REQUIRE_OK(spmt_malloc(r->comm, BIG, &dst));
	REQUIRE_OK(spmt_malloc(r->comm, BIG, &src));
	a.dst = addr(dst);
	a.src = addr(src);
	for (int by_host = 0; by_host < 2; by_host++)
		for (int i = 0; i < 7; i++) {
			double seconds = 0, gbs;

			if (r->pe == 0)
				TRY(put_once(r, &a, by_host, &seconds));
			else
				for (int b = 0; b < 2; b++)
					REQUIRE_OK(spmt_barrier(r->comm));
			gbs = seconds > 0 ? (double)a.rounds * (double)BIG / seconds / 1e9 : 0;
			if (gbs > play->common->gbs[by_host])
				play->common->gbs[by_host] = gbs;
		}
	return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

/* "ok 3 - name, 0|1, a device each" */
static void report(int code, const char *name, const char *layout, enum spread spread)
{
	printf("%sok %d - %s, %s, %s on %s\n", code ? "not " : "", ++run.number, name, layout,
		spread_names[spread], run.backend);
	if (code)
		printf("# %s\n", ranks_message());
	run.failed += code != 0;
}

static int play_out(struct play *play, const char *layout, enum spread spread,
	int (*fn)(struct rank *, struct play *))
{
	play->p.layout = layout;
	play->p.seconds = CHILD_SECONDS;
	play->p.nranks = 0;
	play->spread = spread;
	play->fn = fn;
	play->common = processes_shared(sizeof(*play->common));
	play->p.shared = play->common;
	if (!play->common)
		return ranks_fail("no shared memory");
	for (int r = 0, position; processes_of(layout, r) >= 0; r++) {
		position = processes_position(layout, r);
		play->devices[r] = spread == SHARED ? 0
			: spread == MASKED	    ? position
						    : r % run.devices;
	}
	return processes_run(&play->p, rank_main, play);
}

static int ranks_of(const char *layout)
{
	int n = 0;

	while (processes_of(layout, n) >= 0)
		n++;
	return n;
}

/* Enough devices, and not the same test twice. */
static bool makes_sense(const char *layout, enum spread spread)
{
	bool host = !strcmp(run.backend, backend_host.name);

	if (spread == SHARED)
		return ranks_of(layout) == 2;
	if (spread == MASKED && (host || !strchr(layout, '|')))
		return false;
	return ranks_of(layout) <= run.devices;
}

static const char *const layouts[] = { "0,1", "0|1", "0,1,2,3", "0,1|2,3", "0|1|2|3", "0|1,2,3" };

static void over_layouts(const char *name, int (*fn)(struct rank *, struct play *))
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		for (enum spread s = OWN; s < SPREADS; s++) {
			struct play play = { .fn = NULL };

			if (makes_sense(layouts[i], s))
				report(play_out(&play, layouts[i], s, fn), name, layouts[i], s);
		}
}

static void test_calls(void)
{
	over_layouts("every call", every_call);
}

static void test_kernels(void)
{
	over_layouts("kernels", kernels_meet);
}

static void test_death(void)
{
	for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
		struct play play = { .p = { .watch = kill_last } };

		if (!strchr(layouts[i], '|') || !makes_sense(layouts[i], OWN))
			continue;
		play.p.killed = 1u << processes_of(layouts[i], ranks_of(layouts[i]) - 1);
		report(play_out(&play, layouts[i], OWN, one_dies), "death", layouts[i], OWN);
	}
}

/* What a put moves between processes, beside a put within one: the best of up to three turns each, as the first that
   suffices proves it. */
static void test_bandwidth(void)
{
	static const char *const what[] = { "device", "host" }, *const pair[] = { "0,1", "0|1" };
	double gbs[2][2] = { { 0 } }; /* [between processes][by the host] */
	bool gpus = strcmp(run.backend, backend_host.name) != 0;
	int code = 0;

	if (run.devices < 2)
		return;
	for (int i = 0; i < 6 && !code && (i % 2 || !i || gbs[1][0] < 0.98 * gbs[0][0]); i++) {
		struct play play = { .fn = NULL };

		code = play_out(&play, pair[i % 2], OWN, put_speed);
		for (int h = 0; h < 2 && !code; h++)
			if (play.common->gbs[h] > gbs[i % 2][h])
				gbs[i % 2][h] = play.common->gbs[h];
	}
	for (int h = 0; h < 2 && !code; h++)
		printf("# %s put of 64 MiB: %.1f GB/s in a process, %.1f GB/s between two, ratio %.3f\n",
			what[h], gbs[0][h], gbs[1][h], gbs[1][h] / gbs[0][h]);
	if (!code && gpus && gbs[1][0] < 0.98 * gbs[0][0])
		code = ranks_fail("the ratio is below 0.98");
	report(code, "bandwidth", "0|1 beside 0,1", OWN);
}

/* What there is, found out by a child, which alone loads a driver. */
static bool probe(void)
{
	int ends[2], status = 0;
	pid_t child;

	if (pipe(ends))
		return false;
	child = fork();
	if (!child) {
		if (gpu_take(0, NULL))
			dprintf(ends[1], "- 0");
		else
			dprintf(ends[1], "%s %d", gpu_backend()->name, gpu_devices());
		_exit(0);
	}
	close(ends[1]);
	if (child > 0 && waitpid(child, &status, 0) == child) {
		char text[64] = "";

		if (read(ends[0], text, sizeof(text) - 1) > 0)
			sscanf(text, "%15s %d", run.backend, &run.devices);
	}
	close(ends[0]);
	return run.devices > 0;
}

static const struct {
	const char *name;
	void (*run)(void);
	bool kernels;
} tests[] = {
	{ "calls", test_calls, false },
	{ "kernels", test_kernels, true },
	{ "death", test_death, true },
	{ "bandwidth", test_bandwidth, true },
};

/* program [-n ANY | --no-kernels] [TEST ..]: -n as the other programs here have it; this one takes all
   layouts that fit. */
int main(int argc, char **argv)
{
	int first = argc > 2 && !strcmp(argv[1], "-n") ? 3 : 1;

	run.no_kernels = argc > 1 && !strcmp(argv[1], "--no-kernels");
	first += run.no_kernels;
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(PROGRAM_SECONDS);
	if (!probe()) {
		printf("Bail out! no devices\n");
		return 1;
	}
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		bool wanted = first >= argc && !(tests[i].kernels && run.no_kernels);

		for (int k = first; k < argc; k++)
			wanted |= !strcmp(argv[k], tests[i].name);
		if (wanted)
			tests[i].run();
	}
	printf("1..%d\n", run.number);
	return run.failed != 0;
}
