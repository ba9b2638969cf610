/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf.h"

static int compare_doubles(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

void perf_spread(double *values, int n, struct spread *out)
{
	qsort(values, (size_t)n, sizeof(*values), compare_doubles);
	out->min = values[0];
	out->q1 = values[n / 4];
	out->median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
	out->q3 = values[n - 1 - n / 4];
	out->max = values[n - 1];
}

double perf_convert(enum unit unit, double ns, double bytes, double ops)
{
	switch (unit) {
	case UNIT_GBPS:
		return bytes / ns;
	case UNIT_MOPS:
		return ops * 1e3 / ns;
	case UNIT_US:
		return ns / 1e3;
	case UNIT_MS:
		return ns / 1e6;
	case UNIT_NS:
		break;
	}
	return ns;
}

void perf_ratio(struct figure *f)
{
	bool rate = f->unit == UNIT_GBPS || f->unit == UNIT_MOPS;

	f->ratio = 0;
	if (f->peer_name[0])
		f->ratio = rate ? f->ours.median / f->peer.median : f->peer.median / f->ours.median;
}

/* ---- words */

const char *perf_unit_name(enum unit unit)
{
	static const char *const names[] = { "GB/s", "Mop/s", "ns", "us", "ms" };

	return names[unit];
}

void perf_size_text(size_t size, char *text, size_t room)
{
	if (!size)
		snprintf(text, room, "-");
	else if (size % (1u << 20) == 0)
		snprintf(text, room, "%zuM", size >> 20);
	else if (size % (1u << 10) == 0)
		snprintf(text, room, "%zuK", size >> 10);
	else
		snprintf(text, room, "%zu", size);
}

void perf_progress(const char *test, int ranks, size_t size)
{
	char text[24];

	if (!isatty(STDERR_FILENO))
		return;
	perf_size_text(size, text, sizeof(text));
	if (!test)
		fprintf(stderr, "\r\033[K");
	else if (size)
		fprintf(stderr, "\r\033[K%s, %d ranks, %s ..", test, ranks, text);
	else
		fprintf(stderr, "\r\033[K%s, %d ranks ..", test, ranks);
}

/* The first reason for which stdout took nothing; a later flush may find nothing left to write. */
static int untold;

int perf_told(void)
{
	if (fflush(stdout) && !untold)
		untold = errno;
	if (ferror(stdout) && !untold)
		untold = EIO;
	return untold;
}

void perf_print_head(void)
{
	printf("%-10s %5s %5s  %-5s %10s %6s  %-7s %10s %6s %6s\n", "test", "ranks", "size", "unit",
		"spmt", "spread", "peer", "", "spread", "ratio");
	perf_told();
}

/* Half of the rounds lie within this part of the median. */
static double spread_percent(const struct spread *s)
{
	return s->median > 0 ? 100 * (s->q3 - s->q1) / s->median : 0;
}

void perf_print(const struct figure *f)
{
	char size[24], ranks[PERF_TEXT];

	perf_size_text(f->size, size, sizeof(size));
	snprintf(ranks, sizeof(ranks), "%d", f->ranks);
	printf("%-10s %5s %5s  %-5s %10.4g %5.1f%%", f->test, f->layout[0] ? f->layout : ranks,
		size, perf_unit_name(f->unit), f->ours.median, spread_percent(&f->ours));
	if (f->peer_name[0])
		printf("  %-7s %10.4g %5.1f%% %6.3g\n", f->peer_name, f->peer.median,
			spread_percent(&f->peer), f->ratio);
	else
		printf("  %-7s %10s %6s %6s\n", "-", "-", "-", "-");
	perf_told();
}

/* ---- targets */

/* What of a figure is judged; of: the same test in the world of one process. ABOVE: by how much ours exceeds the other, in
   the figure's unit. */
enum judged { OURS, RATIO_TO_PEER, ABOVE_PEER, RATIO_TO_ONE, ABOVE_ONE };

struct target {
	const char *text, *test, *unit;
	size_t size;
	double limit;
	int ranks; /* 0: any */
	enum judged measure;
	bool at_least; /* else at most */
};

static const struct target targets[] = {
	{ "put of 1 MiB, of memcpy's", "put", "x", 1u << 20, 0.95, 2, RATIO_TO_PEER, true },
	{ "put of 4 MiB, of memcpy's", "put", "x", 4u << 20, 0.95, 2, RATIO_TO_PEER, true },
	{ "put of 16 MiB, of memcpy's", "put", "x", 16u << 20, 0.95, 2, RATIO_TO_PEER, true },
	{ "put of 64 MiB, of memcpy's", "put", "x", 64u << 20, 0.95, 2, RATIO_TO_PEER, true },
	{ "8-byte put above a store", "put8", "ns", 8, 20, 2, ABOVE_PEER, false },
	{ "ping-pong, one way", "pingpong", "us", 8, 0.3, 2, OURS, false },
	{ "barrier of 2", "barrier", "us", 0, 0.6, 2, OURS, false },
	{ "barrier of 8, times pthread's", "barrier", "x", 0, 4, 8, RATIO_TO_PEER, true },
	{ "barrier of 64, times pthread's", "barrier", "x", 0, 2, 64, RATIO_TO_PEER, true },
	{ "all_reduce of 1 MiB of 2, of memcpy's", "all_reduce", "x", 1u << 20, 0.8, 2,
		RATIO_TO_PEER, true },
	{ "all_reduce of 1 MiB of 8, of memcpy's", "all_reduce", "x", 1u << 20, 0.8, 8,
		RATIO_TO_PEER, true },
	{ "init and finalize of 8", "init", "ms", 0, 5, 8, OURS, false },
};
static const struct target layout_targets[] = {
	{ "put of 1 MiB, of memcpy's", "put", "x", 1u << 20, 0.9, 0, RATIO_TO_PEER, true },
	{ "put of 4 MiB, of memcpy's", "put", "x", 4u << 20, 0.9, 0, RATIO_TO_PEER, true },
	{ "put of 16 MiB, of memcpy's", "put", "x", 16u << 20, 0.9, 0, RATIO_TO_PEER, true },
	{ "put of 64 MiB, of memcpy's", "put", "x", 64u << 20, 0.9, 0, RATIO_TO_PEER, true },
	{ "8-byte put above one process's", "put8", "ns", 8, 50, 0, ABOVE_ONE, false },
	{ "barrier, of one process's time", "barrier", "x", 0, 2, 0, RATIO_TO_ONE, false },
	{ "first init", "init", "ms", 0, 100, 0, OURS, false },
};

static const struct figure *find(
	const struct figure *figures, int n, const struct target *t, const char *layout)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(figures[i].test, t->test) && figures[i].size == t->size &&
			(!t->ranks || figures[i].ranks == t->ranks) &&
			!strcmp(figures[i].layout, layout))
			return &figures[i];
	return NULL;
}

/* False: there is nothing to compare with. */
static bool value_of(
	const struct target *t, const struct figure *f, const struct figure *one, double *value)
{
	switch (t->measure) {
	case RATIO_TO_PEER:
		*value = f->ratio;
		return f->peer_name[0];
	case ABOVE_PEER:
		*value = f->ours.median - f->peer.median;
		return f->peer_name[0];
	case RATIO_TO_ONE:
		*value = one ? f->ours.median / one->ours.median : 0;
		return one;
	case ABOVE_ONE:
		*value = one ? f->ours.median - one->ours.median : 0;
		return one;
	case OURS:
		break;
	}
	*value = f->ours.median;
	return true;
}

static bool target_check(const struct target *t, const struct figure *f, const struct figure *one)
{
	double value = 0;
	bool known = f && value_of(t, f, one, &value);
	bool met = known && (t->at_least ? value >= t->limit : value <= t->limit);

	printf("%-38s %2s %8.4g %-2s ", t->text, t->at_least ? ">=" : "<=", t->limit, t->unit);
	if (known)
		printf("%9.4g %-2s  %s\n", value, t->unit, met ? "yes" : "NO");
	else
		printf("%9s %-2s  NO\n", "none", "");
	return met;
}

bool perf_check(const struct figure *figures, int n, const char *layout, const char *one)
{
	const struct target *table = *layout ? layout_targets : targets;
	size_t count = *layout ? COUNT_OF(layout_targets) : COUNT_OF(targets);
	bool all = true;

	printf("\n%-38s %14s %12s  %s\n", "target", "", "measured", "met");
	for (size_t i = 0; i < count; i++)
		all &= target_check(&table[i], find(figures, n, &table[i], layout),
			find(figures, n, &table[i], one));
	return all;
}

/* ---- JSON */

static void json_spread(FILE *out, const char *name, const struct spread *s)
{
	fprintf(out,
		", \"%s\": {\"median\": %.6g, \"q1\": %.6g, \"q3\": %.6g, \"min\": %.6g, \"max\": %.6g}",
		name, s->median, s->q1, s->q3, s->min, s->max);
}

static void json_figure(FILE *out, const struct figure *f)
{
	fprintf(out,
		"    {\"test\": \"%s\", \"ranks\": %d, \"pairs\": %d, \"size\": %zu, \"unit\": \"%s\"",
		f->test, f->ranks, f->pairs, f->size, perf_unit_name(f->unit));
	if (f->layout[0])
		fprintf(out, ", \"layout\": \"%s\"", f->layout);
	json_spread(out, "spmt", &f->ours);
	if (f->peer_name[0]) {
		json_spread(out, "peer", &f->peer);
		fprintf(out, ", \"peer_name\": \"%s\", \"ratio\": %.4g", f->peer_name, f->ratio);
	}
	fprintf(out, "}");
}

int perf_json(FILE *out, const struct options *opt, const struct figure *figures, int n)
{
	int error;

	fprintf(out, "{\n  \"tool\": \"spmt-perf\",\n  \"version\": \"%s\",\n  \"cpus\": %ld,\n",
		spmt_version(), sysconf(_SC_NPROCESSORS_ONLN));
	fprintf(out, "  \"rounds\": %d,\n  \"figures\": [\n", opt->rounds);
	for (int i = 0; i < n; i++) {
		json_figure(out, &figures[i]);
		fprintf(out, "%s\n", i + 1 < n ? "," : "");
	}
	fprintf(out, "  ]\n}\n");
	error = fflush(out) ? errno : ferror(out) ? EIO : 0;
	return fclose(out) && !error ? -errno : -error;
}
