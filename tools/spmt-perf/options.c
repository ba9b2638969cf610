/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

enum {
	OPT_RANKS = 256,
	OPT_PAIRS,
	OPT_LAYOUT,
	OPT_SIZES,
	OPT_TESTS,
	OPT_ITERS,
	OPT_ROUNDS,
	OPT_JSON,
	OPT_BACKEND,
	OPT_PLOT,
	OPT_MATRIX,
	OPT_CHECK
};

static const struct option long_options[] = {
	{ "ranks", required_argument, NULL, OPT_RANKS },
	{ "pairs", required_argument, NULL, OPT_PAIRS },
	{ "layout", required_argument, NULL, OPT_LAYOUT },
	{ "sizes", required_argument, NULL, OPT_SIZES },
	{ "tests", required_argument, NULL, OPT_TESTS },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "rounds", required_argument, NULL, OPT_ROUNDS },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "backend", required_argument, NULL, OPT_BACKEND },
	{ "plot", required_argument, NULL, OPT_PLOT },
	{ "matrix", no_argument, NULL, OPT_MATRIX },
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
	       "  --layout AxB     the ranks in A processes of B, or 1+3+4: of 1, 3 and 4; pairs then span processes\n"
	       "  --sizes MIN:MAX[:FACTOR]  bytes, suffix K M G (8:64M:8)\n"
	       "  --iters N        turns a round (as many as fill 4 ms)\n"
	       "  --rounds N       rounds of ours and of the peer in turn, 1 to %d (10; for --check 64, with --layout 16); figures are medians\n"
	       "  --json FILE      the figures with quartiles and extremes\n"
	       "  --plot DIR       a picture of every test with two sizes or more, DIR/TEST.svg, by gnuplot\n"
	       "  --matrix         instead of the tests: GB/s of puts between every two ranks (8 of 1 MiB; --ranks, the largest of --sizes); --plot: matrix.svg\n"
	       "  --backend NAME   hip, cuda or host (the first that has devices)\n"
	       "  --check          measure what the project promises; print target, measured, met\n"
	       "                   --layout: several times, in turn with one process of as many ranks, the best of each\n"
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
	return -1;
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
	const uint64_t most = (uint64_t)1 << 36;
	const char *at;
	uint64_t v;

	if (!number(text, most, &v, end))
		return false;
	at = **end ? strchr(suffixes, **end) : NULL;
	if (at) {
		int shift = 10 * (int)(at - suffixes + 1);

		if (v > most >> shift)
			return false;
		v <<= shift;
		++*end;
	}
	*size = (size_t)v;
	return true;
}

/* MIN:MAX[:FACTOR]; why it is not. */
static const char *sizes_wrong(const char *text, struct options *opt)
{
	static const char form[] =
		"is not MIN:MAX or MIN:MAX:FACTOR, of whole numbers up to 64G with a suffix K, M, G or none";
	const char *end;
	uint64_t factor = 8;

	if (!size_value(text, &opt->min, &end) || *end != ':' ||
		!size_value(end + 1, &opt->max, &end) || (*end && *end != ':'))
		return form;
	if (*end && !whole(end + 1, 2, 1024, &factor))
		return "FACTOR is not from 2 to 1024";
	if (opt->min < 8 || opt->min % 8 || opt->max % 8)
		return "MIN and MAX are not multiples of 8 bytes, from 8 on";
	if (opt->max < opt->min)
		return "MAX is less than MIN";
	opt->factor = (size_t)factor;
	return NULL;
}

bool perf_listed(const char *list, const char *name)
{
	size_t len = strlen(name);

	if (!*list)
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

static bool text_value(const char *text, char *to, size_t room)
{
	return (size_t)snprintf(to, room, "%s", text) < room;
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
	case OPT_LAYOUT:
		ok = layout_parse(text, &opt->layout);
		break;
	case OPT_ITERS:
		ok = whole(text, 1, (uint64_t)1 << 40, &opt->iters);
		break;
	case OPT_ROUNDS:
		ok = whole(text, 1, PERF_ROUNDS_MAX, &v);
		opt->rounds = (int)v;
		break;
	case OPT_SIZES:
		ok = !sizes_wrong(text, opt);
		break;
	case OPT_TESTS:
		ok = tests_value(text) && text_value(text, opt->tests, sizeof(opt->tests));
		break;
	case OPT_JSON:
		opt->json = text;
		break;
	case OPT_PLOT:
		opt->plot = text;
		ok = *text;
		break;
	case OPT_MATRIX:
		opt->matrix = true;
		break;
	case OPT_BACKEND:
		ok = *text && text_value(text, opt->backend, sizeof(opt->backend));
		break;
	default:
		opt->check = true;
	}
	return ok;
}

static int refused(const char *option, const char *value)
{
	char why[160];

	if (*value && !strcmp(option, "sizes")) {
		struct options unused;

		snprintf(why, sizeof(why), "%.40s: %s", value, sizes_wrong(value, &unused));
		return usage(option, why);
	}
	if (*value)
		return usage(option, value);
	return usage(option,
		strcmp(option, "plot") ? "its value is empty" : "the folder's name is empty");
}

/* Of what was given; --pairs has no value that says that it was not. */
static bool matrix_is_not_all(const struct options *opt)
{
	return opt->layout.n || opt->check || opt->json || opt->tests[0] || opt->iters ||
		opt->rounds || opt->pairs > 1;
}

static bool check_is_not_all(const struct options *opt)
{
	return opt->min || opt->tests[0] || opt->pairs > 1 || (opt->ranks && !opt->layout.n);
}

static int consistent(struct options *opt)
{
	int nranks = layout_nranks(&opt->layout);

	if (nranks && opt->ranks && opt->ranks != nranks)
		return usage("--ranks is not what the layout has", opt->layout.text);
	if (opt->matrix && matrix_is_not_all(opt))
		return usage("goes with --ranks, --sizes, --backend and --plot alone", "--matrix");
	if (opt->check && check_is_not_all(opt))
		return usage(
			"has sizes, tests and ranks of its own: not with --sizes, --tests, --pairs, or --ranks but for a layout",
			"--check");
	opt->ranks = nranks ? nranks : opt->ranks;
	if (opt->ranks && opt->ranks < 2 * opt->pairs)
		return usage("ranks are fewer than two a pair", "--ranks, --layout, --pairs");
	return 0;
}

int perf_options(int argc, char **argv, struct options *opt)
{
	int c, index = 0;

	*opt = (struct options){ .pairs = 1, .factor = 8 };
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
		if (!option_value(c, optarg, opt))
			return refused(long_options[index].name, optarg);
	}
	if (optind < argc)
		return usage("not an option", argv[optind]);
	c = consistent(opt);
	if (!opt->rounds)
		/* even: either side is first in half of them */
		opt->rounds = !opt->check ? 10 : opt->layout.n ? 16 : 64;
	return c;
}
