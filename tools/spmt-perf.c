/* SPDX-License-Identifier: MIT */
/* spmt-perf: speed of the library on this machine, beside what the C library gives on the same threads. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt-perf.h"

enum {
	OPT_RANKS = 256,
	OPT_PAIRS,
	OPT_SIZES,
	OPT_TESTS,
	OPT_ITERS,
	OPT_ROUNDS,
	OPT_JSON,
	OPT_BACKEND,
	OPT_CHECK
};

static const struct option long_options[] = {
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "pairs", required_argument, NULL, OPT_PAIRS },
	{ "sizes", required_argument, NULL, OPT_SIZES },
	{ "tests", required_argument, NULL, OPT_TESTS },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "rounds", required_argument, NULL, OPT_ROUNDS },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "backend", required_argument, NULL, OPT_BACKEND },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static void help(void)
{
	printf("usage: spmt-perf [options]\n"
	       "  --tests LIST     comma-separated names of the tests below (all)\n"
	       "  --ranks N        ranks of the world (each test's own: 2 a pair; barrier 2, 8, 64; ..)\n"
	       "  --pairs P        ranks 2p and 2p + 1 work at once, for p below P (1); GB/s and Mop/s are sums\n"
	       "  --sizes MIN:MAX[:FACTOR]  bytes, suffix K M G (8:64M:8)\n"
	       "  --iters N        turns a round (as many as fill 4 ms)\n"
	       "  --rounds N       rounds of ours and of the peer in turn, 1 to %d (9, for --check 15); figures are medians\n"
	       "  --json FILE      the figures with quartiles and extremes\n"
	       "  --backend NAME   hip, cuda or host (the first that has devices)\n"
	       "  --check          measure what the project promises; print target, measured, met\n"
	       "  --help, --version\n"
	       "spread: the middle half of the rounds over the median. ratio: above 1 spmt is the faster.\n"
	       "exit: 0; 1 wrong data or a failed call; 2 usage; 3 --check missed a target\n"
	       "tests:\n",
		PERF_ROUNDS_MAX);
	for (const struct bench *b = perf_benches; b->name; b++)
		printf("  %-10s %s, %s%s\n", b->name, perf_unit_name(b->unit), b->help,
			b->peer ? "; beside it the peer named" : "");
	printf("  %-10s %s, %s\n", perf_init_name, perf_unit_name(UNIT_MS), perf_init_help);
}

static int usage(const char *what, const char *value)
{
	fprintf(stderr, "spmt-perf: %s: %s (see --help)\n", what, value);
	return PERF_EXIT_USAGE;
}

/* ---- values */

/* A number of `max` at most; *end is what follows it. */
static bool number(const char *text, uint64_t max, uint64_t *value, const char **end)
{
	unsigned long long v;
	char *stop;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoull(text, &stop, 10);
	*end = stop;
	*value = v;
	return !errno && v <= max;
}

static bool whole(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
	const char *end;

	return number(text, max, value, &end) && !*end && *value >= min;
}

static bool size_value(const char *text, size_t *size, const char **end)
{
	static const char suffixes[] = "KMG";
	const char *at;
	uint64_t v;

	if (!number(text, (uint64_t)1 << 40, &v, end))
		return false;
	at = **end ? strchr(suffixes, **end) : NULL;
	if (at) {
		v <<= 10 * (at - suffixes + 1);
		++*end;
	}
	*size = (size_t)v;
	return v >= 8 && v % 8 == 0 && v <= (uint64_t)1 << 36;
}

static bool sizes_value(const char *text, struct options *opt)
{
	const char *end;
	uint64_t factor = 8;

	if (!size_value(text, &opt->min, &end) || *end != ':')
		return false;
	if (!size_value(end + 1, &opt->max, &end) || opt->max < opt->min)
		return false;
	if (*end == ':' && !whole(end + 1, 2, 1024, &factor))
		return false;
	opt->factor = (size_t)factor;
	return !*end || *end == ':';
}

/* Is `name` in the list? No list: yes. */
static bool listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	if (!list)
		return true;
	for (const char *at = list; *at; at += *at == ',') {
		size_t n = strcspn(at, ",");

		if (n == len && !strncmp(at, name, n))
			return true;
		at += n;
	}
	return false;
}

static bool known(const char *name, size_t n)
{
	if (n == strlen(perf_init_name) && !strncmp(name, perf_init_name, n))
		return true;
	for (const struct bench *b = perf_benches; b->name; b++)
		if (n == strlen(b->name) && !strncmp(name, b->name, n))
			return true;
	return false;
}

static bool tests_value(const char *list)
{
	for (const char *at = list;; at++) {
		size_t n = strcspn(at, ",");

		if (!known(at, n))
			return false;
		at += n;
		if (!*at)
			return true;
	}
}

static bool option_value(int c, const char *text, struct options *opt)
{
	uint64_t v = 0;
	bool ok = true;

	switch (c) {
	case OPT_RANKS:
		ok = whole(text, 1, 4096, &v);
		opt->ranks = (int)v;
		break;
	case OPT_PAIRS:
		ok = whole(text, 1, 2048, &v);
		opt->pairs = (int)v;
		break;
	case OPT_ITERS:
		ok = whole(text, 1, (uint64_t)1 << 40, &opt->iters);
		break;
	case OPT_ROUNDS:
		ok = whole(text, 1, PERF_ROUNDS_MAX, &v);
		opt->rounds = (int)v;
		break;
	case OPT_SIZES:
		ok = sizes_value(text, opt);
		break;
	case OPT_TESTS:
		ok = tests_value(text);
		opt->tests = text;
		break;
	case OPT_JSON:
		opt->json = text;
		break;
	case OPT_BACKEND:
		opt->backend = text;
		break;
	default:
		opt->check = true;
	}
	return ok;
}

/* 0: go on; 1: done, all said; -1: usage. */
static int parse(int argc, char **argv, struct options *opt)
{
	int c, index = 0;

	while ((c = getopt_long(argc, argv, "hV", long_options, &index)) != -1) {
		if (c == 'h' || c == 'V') {
			if (c == 'h')
				help();
			else
				printf("spmt-perf %s\n", spmt_version());
			return 1;
		}
		if (c == '?')
			return -1;
		if (!option_value(c, optarg, opt)) {
			usage(long_options[index].name, optarg);
			return -1;
		}
	}
	if (optind < argc) {
		usage("not an option", argv[optind]);
		return -1;
	}
	return 0;
}

/* ---- worlds */

struct session {
	struct options opt;
	struct figure figures[PERF_FIGURES];
	int nfigures;
	int devices;
};

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
		.figures = s->figures,
		.nfigures = &s->nfigures };

	if (nranks > s->devices) {
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
	struct figure *f = &s->figures[s->nfigures];
	int code;

	if (s->nfigures == PERF_FIGURES || nranks > s->devices)
		return 0;
	perf_progress(perf_init_name, nranks, 0);
	code = perf_init(&s->opt, nranks, f);
	perf_progress(NULL, 0, 0);
	if (code)
		return code;
	perf_print(f);
	s->nfigures++;
	return 0;
}

static int init_all(struct session *s)
{
	int code;

	if (s->opt.ranks)
		return init_world(s, s->opt.ranks);
	code = init_world(s, 2);
	return code ? code : init_world(s, 8);
}

static int run_tests(struct session *s)
{
	int code = 0;

	for (const struct bench *b = perf_benches; b->name && !code; b++)
		if (listed(s->opt.tests, b->name))
			code = bench_all(s, b);
	if (!code && listed(s->opt.tests, perf_init_name))
		code = init_all(s);
	return code;
}

/* The large puts by factors of 4; of the rest what the targets name. */
static int run_check(struct session *s)
{
	struct options given = s->opt;
	int code;

	s->opt.ranks = 0;
	s->opt.pairs = 1;
	s->opt.tests = "put";
	s->opt.min = 1u << 20;
	s->opt.max = 64u << 20;
	s->opt.factor = 4;
	code = run_tests(s);
	s->opt.tests = "put8,pingpong,barrier,init";
	s->opt.min = s->opt.max = 8;
	if (!code)
		code = run_tests(s);
	s->opt = given;
	return code;
}

/* The host backend has as many devices as asked for: enough for the largest world, unless the user has said how many. */
static void ask_for_devices(const struct options *opt)
{
	char text[16];
	int n = opt->ranks > 2 * opt->pairs ? opt->ranks : 2 * opt->pairs;

	snprintf(text, sizeof(text), "%d", n > 64 ? n : 64);
	setenv("SPMT_HOST_DEVICES", text, 0);
}

static int finish(struct session *s, int code)
{
	int rc;

	if (!code && s->opt.check && !perf_check(s->figures, s->nfigures))
		code = PERF_EXIT_TARGET;
	rc = s->opt.json ? perf_json(s->opt.json, &s->opt, s->figures, s->nfigures) : 0;
	if (rc) {
		fprintf(stderr, "spmt-perf: %s: %s\n", s->opt.json, strerror(-rc));
		return PERF_EXIT_WRONG;
	}
	return code;
}

static int session_run(struct session *s)
{
	int rc;

	ask_for_devices(&s->opt);
	rc = spmt_device_count(s->opt.backend, &s->devices);
	if (rc) {
		fprintf(stderr, "spmt-perf: %s: %s\n", spmt_strerror(rc), spmt_last_error());
		return PERF_EXIT_WRONG;
	}
	if (s->opt.ranks > s->devices) {
		fprintf(stderr, "spmt-perf: --ranks %d: there are %d devices\n", s->opt.ranks,
			s->devices);
		return PERF_EXIT_USAGE;
	}
	printf("spmt-perf %s: %d devices, %ld CPUs\n", spmt_version(), s->devices,
		sysconf(_SC_NPROCESSORS_ONLN));
	perf_print_head();
	return finish(s, s->opt.check ? run_check(s) : run_tests(s));
}

int main(int argc, char **argv)
{
	struct session *s = calloc(1, sizeof(*s));
	int rc, code;

	if (!s) {
		fprintf(stderr, "spmt-perf: out of memory\n");
		return PERF_EXIT_WRONG;
	}
	s->opt = (struct options){ .pairs = 1, .factor = 8 };
	rc = parse(argc, argv, &s->opt);
	if (!s->opt.rounds)
		s->opt.rounds = s->opt.check ? 15 : 9;
	if (rc > 0)
		code = 0;
	else if (rc < 0)
		code = PERF_EXIT_USAGE;
	else if (s->opt.ranks && s->opt.ranks < 2 * s->opt.pairs)
		code = usage("ranks are fewer than two a pair", "--ranks, --pairs");
	else
		code = session_run(s);
	free(s);
	return code;
}
