/* SPDX-License-Identifier: MIT */
/* Private to spmt-perf: what its files share. Ranks are threads, of this process or of several (spmt-perf-launch.h). */
#ifndef SPMT_PERF_H
#define SPMT_PERF_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "figure.h"
#include "layout.h"
#include "spmt.h"

enum {
	PERF_ROUNDS_MAX = 101,
	PERF_FIGURES = 512,
	PERF_LIST = 40,	     /* sizes or rank counts in one list: from 8 to 64G by 2 are 34 */
	PERF_GUARD = 64,     /* bytes behind a destination that must stay as they were */
	PERF_WORD = 64,	     /* bytes a signal or an atomic has to itself */
	PERF_EXIT_WRONG = 1, /* wrong data, or a call that failed */
	PERF_EXIT_USAGE = 2,
	PERF_EXIT_TARGET = 3 /* --check: a target was missed */
};

/* Plain data, but for json and plot: it is passed to other processes. */
struct options {
	struct layout layout; /* n 0: none, all ranks are threads of this process */
	int ranks;	      /* 0: each test's own */
	int pairs;
	size_t min, max; /* bytes; min 0: each test's own sizes */
	size_t factor;
	char tests[256]; /* "": all */
	char backend[PERF_TEXT];
	const char *json;
	const char *plot; /* a directory */
	uint64_t iters;	  /* 0: as many as fill a round */
	int rounds;
	bool check, matrix;
};

struct member; /* spmt-perf-launch.h */
struct rank;
typedef int (*perf_loop)(struct rank *r, size_t size, uint64_t iters);

/*
 * One test. Every rank of the world calls verify, ours and peer with the same arguments; verify leaves both buffers touched.
 * 0, or a negative code: of the library with its sentence, or -EILSEQ after perf_wrong().
 */
struct bench {
	const char *name, *help, *peer_name;
	double hops;  /* operations in one turn of the loop */
	size_t limit; /* without --sizes: from 8 bytes to this, unless `sizes` are given */
	int (*verify)(struct rank *r, size_t size);
	perf_loop ours, peer; /* peer NULL, or needs CPU access to the memory */
	size_t sizes[PERF_LIST];
	enum unit unit;
	int ranks[4]; /* rank counts without --ranks, 0 ends; paired: 2 * pairs */
	bool paired;  /* ranks 2p and 2p + 1 work with each other; else all ranks together */
	bool sized;   /* --sizes counts */
};

/* Words behind those that the ranks use; the ping-pong's must not share a line with the library's. */
enum { WORD_PINGPONG, WORD_ADD, WORD_CLOCK, WORD_THEIR_CLOCK, WORD_BARRIER, WORDS };

enum role { ROLE_IDLE, ROLE_SENDER, ROLE_RECEIVER };

/* One world for one test. Ranks read the results of others only behind a barrier. */
struct run {
	const struct options *opt;
	const struct bench *bench;
	int nranks;
	size_t sizes[PERF_LIST];
	int nsizes;
	struct layout layout;
	struct member *member;				 /* NULL: no layout */
	void (*emit)(void *ctx, const struct figure *f); /* by rank 0 */
	void *ctx;
	pthread_mutex_t lock; /* guards wrong */
	char wrong[256];      /* first wrong data, in words; "" if none */
};

struct rank {
	struct run *run;
	spmt_comm *comm;
	int rank, peer; /* peer: the other of the pair */
	enum role role;
	bool addressable; /* the CPU may load and store device memory */
	char *src, *dst;  /* symmetric, the largest size and a guard */
	uint64_t *words;  /* symmetric, PERF_WORD apart, one a rank and WORDS more */
	uint64_t epoch, peer_epoch;
	unsigned char *scratch; /* host memory of the same size */
};

/* spmt-perf-run.c */
/* All sizes of one test with nranks ranks; emits figures. An exit code. */
int perf_world(struct run *run);
uint64_t *perf_word(struct rank *r, int which);
int perf_wrong(struct rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int64_t perf_now(void);

/* spmt-perf-tests.c: ends with a row whose name is NULL */
extern const struct bench perf_benches[];
extern const char perf_init_name[], perf_init_help[];
/* Init and finalize of a world of nranks. An exit code. */
int perf_init(const struct options *opt, int nranks, struct figure *figure);

/* spmt-perf-options.c: 0: go on; 1: done, all said; -1: usage. Listed: an empty list has all. */
int perf_options(int argc, char **argv, struct options *opt);
bool perf_listed(const char *list, const char *name);

/* spmt-perf-data.c: random data by seed, poisoned destinations */
int perf_fill(struct rank *r, void *sym, size_t size, uint64_t seed);
int perf_poison(struct rank *r, void *sym, size_t size);
/* perf_wrong() unless the bytes are those of seed and the guard behind them is poison. */
int perf_compare(struct rank *r, const char *what, const void *sym, size_t size, uint64_t seed);
/* The word-sized part of the data at index i. */
uint64_t perf_random(uint64_t seed, uint64_t i);

#endif
