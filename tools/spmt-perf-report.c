/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt-perf.h"

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
	if (f->peer_name)
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

void perf_print_head(void)
{
	printf("%-10s %5s %5s  %-5s %10s %6s  %-7s %10s %6s %6s\n", "test", "ranks", "size", "unit",
		"spmt", "spread", "peer", "", "spread", "ratio");
}

/* Half of the rounds lie within this part of the median. */
static double spread_percent(const struct spread *s)
{
	return s->median > 0 ? 100 * (s->q3 - s->q1) / s->median : 0;
}

void perf_print(const struct figure *f)
{
	char size[24];

	perf_size_text(f->size, size, sizeof(size));
	printf("%-10s %5d %5s  %-5s %10.4g %5.1f%%", f->test, f->ranks, size,
		perf_unit_name(f->unit), f->ours.median, spread_percent(&f->ours));
	if (f->peer_name)
		printf("  %-7s %10.4g %5.1f%% %6.3g\n", f->peer_name, f->peer.median,
			spread_percent(&f->peer), f->ratio);
	else
		printf("  %-7s %10s %6s %6s\n", "-", "-", "-", "-");
	fflush(stdout);
}

/* ---- targets */

enum measure { MEASURE_OURS, MEASURE_RATIO, MEASURE_ABOVE };

/* What --check asks. MEASURE_ABOVE: by how much ours exceeds the peer's, in the figure's unit. */
struct target {
	const char *text, *test, *unit;
	size_t size;
	double limit;
	int ranks;
	enum measure measure;
	bool at_least; /* else at most */
};

static const struct target targets[] = {
	{ "put of 1 MiB, of memcpy's", "put", "x", 1u << 20, 0.95, 2, MEASURE_RATIO, true },
	{ "put of 4 MiB, of memcpy's", "put", "x", 4u << 20, 0.95, 2, MEASURE_RATIO, true },
	{ "put of 16 MiB, of memcpy's", "put", "x", 16u << 20, 0.95, 2, MEASURE_RATIO, true },
	{ "put of 64 MiB, of memcpy's", "put", "x", 64u << 20, 0.95, 2, MEASURE_RATIO, true },
	{ "8-byte put above a store", "put8", "ns", 8, 20, 2, MEASURE_ABOVE, false },
	{ "ping-pong, one way", "pingpong", "us", 8, 0.3, 2, MEASURE_OURS, false },
	{ "barrier of 2", "barrier", "us", 0, 0.6, 2, MEASURE_OURS, false },
	{ "barrier of 8, times pthread's", "barrier", "x", 0, 4, 8, MEASURE_RATIO, true },
	{ "barrier of 64, times pthread's", "barrier", "x", 0, 2, 64, MEASURE_RATIO, true },
	{ "init and finalize of 8", "init", "ms", 0, 5, 8, MEASURE_OURS, false },
};

static const struct figure *find(const struct figure *figures, int n, const struct target *t)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(figures[i].test, t->test) && figures[i].ranks == t->ranks &&
			figures[i].size == t->size)
			return &figures[i];
	return NULL;
}

static double value_of(const struct target *t, const struct figure *f)
{
	switch (t->measure) {
	case MEASURE_RATIO:
		return f->ratio;
	case MEASURE_ABOVE:
		return f->ours.median - f->peer.median;
	case MEASURE_OURS:
		break;
	}
	return f->ours.median;
}

bool perf_check(const struct figure *figures, int n)
{
	bool all = true;

	printf("\n%-32s %14s %12s  %s\n", "target", "", "measured", "met");
	for (size_t i = 0; i < COUNT_OF(targets); i++) {
		const struct target *t = &targets[i];
		const struct figure *f = find(figures, n, t);
		double value = f ? value_of(t, f) : 0;
		bool met = f && (f->peer_name || t->measure == MEASURE_OURS) &&
			(t->at_least ? value >= t->limit : value <= t->limit);

		printf("%-32s %2s %8.4g %-2s ", t->text, t->at_least ? ">=" : "<=", t->limit,
			t->unit);
		if (f)
			printf("%9.4g %-2s  %s\n", value, t->unit, met ? "yes" : "NO");
		else
			printf("%9s %-2s  NO\n", "none", "");
		all = all && met;
	}
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
	json_spread(out, "spmt", &f->ours);
	if (f->peer_name) {
		json_spread(out, "peer", &f->peer);
		fprintf(out, ", \"peer_name\": \"%s\", \"ratio\": %.4g", f->peer_name, f->ratio);
	}
	fprintf(out, "}");
}

int perf_json(const char *path, const struct options *opt, const struct figure *figures, int n)
{
	FILE *out = fopen(path, "we");
	int bad;

	if (!out)
		return -errno;
	fprintf(out, "{\n  \"tool\": \"spmt-perf\",\n  \"version\": \"%s\",\n  \"cpus\": %ld,\n",
		spmt_version(), sysconf(_SC_NPROCESSORS_ONLN));
	fprintf(out, "  \"rounds\": %d,\n  \"figures\": [\n", opt->rounds);
	for (int i = 0; i < n; i++) {
		json_figure(out, &figures[i]);
		fprintf(out, "%s\n", i + 1 < n ? "," : "");
	}
	fprintf(out, "  ]\n}\n");
	bad = ferror(out);
	return fclose(out) || bad ? -EIO : 0;
}
