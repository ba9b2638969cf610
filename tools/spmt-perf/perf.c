/* SPDX-License-Identifier: MIT */
/* spmt-perf: speed of the library on this machine, beside what the C library gives on the same threads. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "oshmem.h"
#include "plot.h"

/* ---- worlds */

struct session {
	struct options opt;
	struct figure figures[PERF_FIGURES];
	int nfigures;
	int devices;
	FILE *json;	       /* open before anything is measured; NULL: none asked for */
	struct member *member; /* NULL: this is the process that was started */
	bool keep_best;	       /* of figures of one kind; told at the end */
};

static bool same_kind(const struct figure *a, const struct figure *b)
{
	return !strcmp(a->test, b->test) && !strcmp(a->layout, b->layout) && a->size == b->size &&
		a->ranks == b->ranks;
}

/* Either side's best counts: the ratio is not chosen among pairs in which one of them was disturbed. */
static void keep_best(struct figure *kept, const struct figure *f)
{
	bool rate = f->unit == UNIT_GBPS || f->unit == UNIT_MOPS;

	if (rate == (f->ours.median > kept->ours.median))
		kept->ours = f->ours;
	if (rate == (f->peer.median > kept->peer.median))
		kept->peer = f->peer;
	perf_ratio(kept);
}

static void session_add(void *ctx, const struct figure *f)
{
	struct session *s = ctx;

	if (!s->keep_best)
		perf_print(f);
	for (int i = 0; s->keep_best && i < s->nfigures; i++)
		if (same_kind(&s->figures[i], f)) {
			keep_best(&s->figures[i], f);
			return;
		}
	if (s->nfigures < PERF_FIGURES)
		s->figures[s->nfigures++] = *f;
}

/* ---- in this process */

static int sizes_of(const struct bench *b, const struct options *opt, size_t *sizes)
{
	size_t min = opt->min ? opt->min : 8, max = opt->min ? opt->max : b->limit;
	size_t factor = opt->factor;
	int n = 0;

	if (!b->sized || (!opt->min && b->sizes[0])) {
		for (; n == 0 || (n < PERF_LIST && b->sizes[n]); n++)
			sizes[n] = b->sizes[n];
		return n;
	}
	while (n < PERF_LIST - 1 && min <= max) {
		sizes[n++] = min;
		min *= factor;
	}
	if (sizes[n - 1] != max && n < PERF_LIST)
		sizes[n++] = max;
	return n;
}

static int bench_world(struct session *s, const struct bench *b, int nranks)
{
	struct run run = { .opt = &s->opt,
		.bench = b,
		.nranks = nranks,
		.layout = s->opt.layout,
		.member = s->member,
		.emit = s->member ? member_emit : session_add,
		.ctx = s->member ? (void *)s->member : s };

	if (nranks > s->devices && !s->member) {
		printf("%-10s %5d  not measured: %d devices\n", b->name, nranks, s->devices);
		return 0;
	}
	pthread_mutex_init(&run.lock, NULL);
	run.nsizes = sizes_of(b, &s->opt, run.sizes);
	return perf_world(&run);
}

static int bench_all(struct session *s, const struct bench *b)
{
	int code = 0;

	if (s->opt.ranks)
		return bench_world(s, b, s->opt.ranks);
	if (b->paired)
		return bench_world(s, b, 2 * s->opt.pairs);
	for (size_t i = 0; i < COUNT_OF(b->ranks) && b->ranks[i] && !code; i++)
		code = bench_world(s, b, b->ranks[i]);
	return code;
}

static int init_world(struct session *s, int nranks)
{
	struct figure f;
	int code;

	if (nranks > s->devices)
		return 0;
	perf_progress(perf_init_name, nranks, 0);
	code = perf_init(&s->opt, nranks, &f);
	perf_progress(NULL, 0, 0);
	if (!code)
		session_add(s, &f);
	return code;
}

static int init_all(struct session *s)
{
	int code;

	if (s->member)
		return member_init(s->member);
	if (s->opt.ranks)
		return init_world(s, s->opt.ranks);
	code = init_world(s, 2);
	return code ? code : init_world(s, 8);
}

static int run_tests(struct session *s)
{
	int code = 0;

	for (const struct bench *b = perf_benches; b->name && !code; b++)
		if (perf_listed(s->opt.tests, b->name))
			code = bench_all(s, b);
	if (!code && perf_listed(s->opt.tests, perf_init_name))
		code = init_all(s);
	return code;
}

/* ---- in several */

static int run_layout(struct session *s, const struct layout *layout)
{
	struct options opt = s->opt;
	char tests[sizeof(opt.tests)] = "";
	size_t used = 0;
	int code = 0;

	opt.layout = *layout;
	for (const struct bench *b = perf_benches; b->name; b++)
		if (perf_listed(s->opt.tests, b->name) && used < sizeof(tests))
			used += (size_t)snprintf(tests + used, sizeof(tests) - used, "%s%s",
				used ? "," : "", b->name);
	memcpy(opt.tests, tests, sizeof(tests));
	if (*tests)
		code = launch(&opt, session_add, s);
	if (!code && perf_listed(s->opt.tests, perf_init_name))
		code = launch_init(&opt, session_add, s);
	return code;
}

static int run_given(struct session *s)
{
	return s->opt.layout.n ? run_layout(s, &s->opt.layout) : run_tests(s);
}

static int member_main(int fd)
{
	struct member m = { .fd = fd };
	struct session *s = calloc(1, sizeof(*s));
	int code = PERF_EXIT_WRONG;

	if (s && member_open(&m, fd)) {
		s->member = &m;
		s->opt = m.job.opt;
		code = run_tests(s);
	}
	free(s);
	return code;
}

/* ---- what is asked */

static void ask(struct session *s, const char *tests, size_t min, size_t max, size_t factor)
{
	snprintf(s->opt.tests, sizeof(s->opt.tests), "%s", tests);
	s->opt.min = min;
	s->opt.max = max;
	s->opt.factor = factor;
}

/* The large puts by factors of 4; of the rest what the targets name. */
static int run_check(struct session *s)
{
	struct options given = s->opt;
	int code;

	s->opt.ranks = 0;
	s->opt.pairs = 1;
	ask(s, "put", 1u << 20, 64u << 20, 4);
	code = run_tests(s);
	ask(s, "put8,pingpong,barrier,init", 8, 8, 8);
	if (!code)
		code = run_tests(s);
	ask(s, "all_reduce", 1u << 20, 1u << 20, 4);
	if (!code)
		code = run_tests(s);
	s->opt = given;
	return code;
}

/* One after the other, so that all see the same weather. */
static int check_turn(struct session *s, const struct layout *one)
{
	int code;

	ask(s, "put", 1u << 20, 64u << 20, 4);
	code = run_given(s);
	ask(s, "put8,put_lat,pingpong,barrier", 8, 8, 8);
	if (!code)
		code = run_given(s);
	if (!code)
		code = run_layout(s, one);
	return code;
}

static int run_layout_check(struct session *s)
{
	enum { TURNS = 3 };
	struct options given = s->opt;
	struct layout one;
	int code = 0;

	layout_one(s->opt.ranks, &one);
	s->keep_best = true;
	s->opt.pairs = 1;
	for (int i = 0; i < TURNS && !code; i++)
		code = check_turn(s, &one);
	ask(s, perf_init_name, 8, 8, 8);
	if (!code)
		code = run_given(s);
	for (int i = 0; i < s->nfigures; i++)
		perf_print(&s->figures[i]);
	s->opt = given;
	return code;
}

/* The host backend has as many devices as asked for: enough for the largest world, unless the user has said how many. An empty
   variable says nothing. */
static void ask_for_devices(const struct options *opt)
{
	const char *given = getenv("SPMT_HOST_DEVICES");
	char text[16];
	int n = opt->ranks > 2 * opt->pairs ? opt->ranks : 2 * opt->pairs;

	snprintf(text, sizeof(text), "%d", n > 64 ? n : 64);
	setenv("SPMT_HOST_DEVICES", text, given && !*given);
}

static bool met(const struct session *s)
{
	struct layout one;

	layout_one(s->opt.ranks, &one);
	return perf_check(s->figures, s->nfigures, s->opt.layout.text, one.text);
}

static int json_failed(const struct session *s, int error)
{
	fprintf(stderr, "spmt-perf: %s: %s\n", s->opt.json, strerror(error));
	return PERF_EXIT_WRONG;
}

static int finish(struct session *s, int code)
{
	int rc;

	if (!code && s->opt.check && !met(s))
		code = PERF_EXIT_TARGET;
	rc = s->json ? perf_json(s->json, &s->opt, s->figures, s->nfigures) : 0;
	if (s->opt.plot && !plot_figures(s->opt.plot, s->figures, s->nfigures) && !code)
		code = PERF_EXIT_WRONG;
	return rc ? json_failed(s, -rc) : code;
}

/* Explicit ordinals are shared by processes; each has the same devices. */
static int room_for(const struct session *s)
{
	int most = s->opt.layout.n ? layout_most(&s->opt.layout) : s->opt.ranks;

	if (most <= s->devices)
		return 0;
	fprintf(stderr, "spmt-perf: %d ranks in a process: there are %d devices\n", most,
		s->devices);
	return PERF_EXIT_USAGE;
}

static int session_run(struct session *s)
{
	int rc, code;

	ask_for_devices(&s->opt);
	rc = spmt_device_count(s->opt.backend[0] ? s->opt.backend : NULL, &s->devices);
	if (rc) {
		fprintf(stderr, "spmt-perf: %s: %s\n", spmt_strerror(rc), spmt_last_error());
		return PERF_EXIT_WRONG;
	}
	code = room_for(s);
	if (code)
		return code;
	if (s->opt.plot && !plot_ready(s->opt.plot))
		return PERF_EXIT_WRONG;
	if (s->opt.matrix)
		return perf_matrix(&s->opt,
			s->opt.ranks		 ? s->opt.ranks
				: s->devices < 8 ? s->devices
						 : 8);
	s->json = s->opt.json ? fopen(s->opt.json, "we") : NULL;
	if (s->opt.json && !s->json)
		return json_failed(s, errno);
	printf("spmt-perf %s: %d devices, %ld CPUs\n", spmt_version(), s->devices,
		sysconf(_SC_NPROCESSORS_ONLN));
	perf_print_head();
	if (s->opt.check)
		return finish(s, s->opt.layout.n ? run_layout_check(s) : run_check(s));
	code = run_given(s);
	if (!code && s->opt.layout.n && !s->opt.tests[0])
		oshmem_print(s->figures, s->nfigures, layout_nranks(&s->opt.layout));
	return finish(s, code);
}

int main(int argc, char **argv)
{
	struct session *s;
	bool closed = fcntl(STDOUT_FILENO, F_GETFD) < 0; /* its number will be another file's */
	int rc, code = PERF_EXIT_USAGE;

	if (argc == 3 && !strcmp(argv[1], "--member"))
		return member_main((int)strtol(argv[2], NULL, 10));
	s = calloc(1, sizeof(*s));
	if (!s) {
		fprintf(stderr, "spmt-perf: out of memory\n");
		return PERF_EXIT_WRONG;
	}
	rc = perf_options(argc, argv, &s->opt);
	if (rc >= 0)
		code = rc || closed ? 0 : session_run(s);
	free(s);
	rc = closed ? EBADF : perf_told();
	if (!rc)
		return code;
	fprintf(stderr, "spmt-perf: stdout: %s\n", strerror(rc));
	return PERF_EXIT_WRONG;
}
