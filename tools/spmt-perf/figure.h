/* SPDX-License-Identifier: MIT */
/* Private to spmt-perf: a figure, how it is made of rounds and how it is told. */
#ifndef SPMT_PERF_FIGURE_H
#define SPMT_PERF_FIGURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

enum unit { UNIT_GBPS, UNIT_MOPS, UNIT_NS, UNIT_US, UNIT_MS };

/* Nanoseconds an operation over the rounds. */
struct spread {
	double median, q1, q3, min, max;
};

enum { PERF_TEXT = 24 };

/* Plain data: it crosses from process to process. */
struct figure {
	char test[PERF_TEXT], peer_name[PERF_TEXT]; /* peer_name "": nothing to compare with */
	char layout[PERF_TEXT]; /* "": all ranks in the process that was started */
	int ranks, pairs;
	size_t size; /* 0: the test has no size */
	enum unit unit;
	struct spread ours, peer; /* in `unit` */
	double ratio;		  /* above 1: ours is the faster */
};

struct options;

void perf_spread(double *values, int n, struct spread *out); /* sorts values */
double perf_convert(enum unit unit, double ns, double bytes, double ops);
void perf_ratio(struct figure *f);

const char *perf_unit_name(enum unit unit);
/* Flushes stdout; the first reason for which it took nothing, 0: none. */
int perf_told(void);
void perf_print_head(void);
void perf_print(const struct figure *f);
void perf_progress(const char *test, int ranks, size_t size); /* test NULL: clears the line */
void perf_size_text(size_t size, char *text, size_t room);
/* Prints target / measured / met for each target of a layout, `one` being the world of one process that it is compared
   with; false if one was missed. */
bool perf_check(const struct figure *figures, int n, const char *layout, const char *one);
/* Closes out. */
int perf_json(FILE *out, const struct options *opt, const struct figure *figures, int n);

#endif
