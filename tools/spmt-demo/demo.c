/* SPDX-License-Identifier: MIT */
/* spmt-demo: what the library is for, on the devices found here, one rank a device. Last line: "demo: ok". */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "demo.h"

enum { EXIT_USAGE = 2 };

static const struct option long_options[] = {
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static const char usage[] = "usage: spmt-demo [--help | --version]\n";

static void help(void)
{
	printf("%s"
	       "Ranks, one a device, exchange data, meet and launch kernels; what they get is checked.\n"
	       "SPMT_BACKEND names a backend; SPMT_HOST_DEVICES (8) is the number of virtual devices where there are no others.\n"
	       "exit: 0, the last line is \"demo: ok\"; 1 wrong data or a failure, the reason on stderr; 2 usage\n",
		usage);
}

/* 0: go on; 1: done, all said; -1: usage. */
static int parse(int argc, char **argv)
{
	switch (getopt_long(argc, argv, "hV", long_options, NULL)) {
	case 'h':
		help();
		return 1;
	case 'V':
		printf("spmt-demo %s\n", spmt_version());
		return 1;
	case -1:
		if (optind == argc)
			return 0;
		fprintf(stderr, "spmt-demo: an argument too many: %s\n", argv[optind]);
		break;
	default: /* getopt_long has said it */
		break;
	}
	fputs(usage, stderr);
	return -1;
}

int demo_wrong(struct demo_rank *r, const char *fmt, ...)
{
	va_list args;

	if (__atomic_exchange_n(&r->demo->said, 1, __ATOMIC_ACQ_REL))
		return -EILSEQ;
	va_start(args, fmt);
	vsnprintf(r->demo->wrong, sizeof(r->demo->wrong), fmt, args);
	va_end(args);
	return -EILSEQ;
}

/* ---- routes */

static int routes_ask(struct demo_rank *r)
{
	struct spmt_route *row = r->demo->routes + (size_t)r->rank * (size_t)r->nranks;
	int rc = 0;

	for (int pe = 0; pe < r->nranks && !rc; pe++) {
		row[pe].size = sizeof(row[pe]);
		rc = spmt_route(r->comm, pe, &row[pe]);
	}
	return rc ? rc : spmt_barrier(r->comm);
}

static void routes_matrix(const struct demo *d)
{
	for (int rank = 0; rank < d->nranks; rank++) {
		printf("  %2d ", rank);
		for (int pe = 0; pe < d->nranks; pe++)
			printf(" %-5s", d->routes[rank * d->nranks + pe].map);
		printf("\n");
	}
}

static void routes_print(const struct demo *d)
{
	const struct spmt_route *far = &d->routes[d->nranks > 1 ? 1 : 0];

	printf("routes (row: from, column: to; all of it: spmt-info --routes)\n");
	if (d->nranks <= DEMO_MATRIX)
		routes_matrix(d);
	printf("  0 to %d: map %s, movers %s: %s\n", far->pe, far->map, far->movers, far->reason);
}

static int demo_routes(struct demo_rank *r)
{
	int rc = routes_ask(r);

	if (!rc && r->rank == 0)
		routes_print(r->demo);
	return rc;
}

/* ---- one rank */

static int rank_open(struct demo_rank *r)
{
	void *ptr = NULL;
	int rc = spmt_malloc(r->comm, DEMO_LARGEST, &ptr);

	r->a = ptr;
	if (!rc)
		rc = spmt_malloc(r->comm, DEMO_LARGEST, &ptr);
	r->b = ptr;
	if (!rc)
		rc = spmt_calloc(
			r->comm, SIGNAL_COUNT, DEMO_SIGNAL_STRIDE * sizeof(*r->signal), &ptr);
	r->signal = ptr;
	if (rc)
		return rc;
	r->host = malloc(DEMO_LARGEST);
	return r->host ? 0 : -ENOMEM;
}

static int rank_steps(struct demo_rank *r)
{
	static int (*const steps[])(struct demo_rank *) = { demo_routes, demo_ring, demo_all_reduce,
		demo_barrier, demo_kernel, demo_table };
	int rc = 0;

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && !rc; i++) {
		rc = steps[i](r);
		if (!rc)
			rc = spmt_barrier(r->comm);
	}
	return rc;
}

static int rank_close(struct demo_rank *r)
{
	void *const blocks[] = { r->signal, r->b, r->a };
	int rc = 0;

	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]) && !rc; i++)
		rc = spmt_free(r->comm, blocks[i]);
	return rc;
}

static int rank_main(spmt_comm *comm, void *arg)
{
	struct demo_rank r = { .demo = arg, .comm = comm };
	int rc;

	r.rank = spmt_rank(comm);
	r.nranks = spmt_nranks(comm);
	r.left = (r.rank + r.nranks - 1) % r.nranks;
	r.right = (r.rank + 1) % r.nranks;
	if (r.rank == 0)
		printf("spmt-demo %s: %d ranks, one a device, backend %s, threads of one process\n",
			spmt_version(), r.nranks, spmt_backend(comm));
	rc = rank_open(&r);
	if (!rc)
		rc = rank_steps(&r);
	free(r.host);
	return rc ? rc : rank_close(&r);
}

static int failed(const char *kind, const char *sentence)
{
	fflush(stdout);
	fprintf(stderr, "demo: FAILED: %s: %s\n", kind, sentence);
	return EXIT_FAILURE;
}

static int demo_run(struct demo *d)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int rc;

	attr.heap_size = 64u << 20;
	rc = spmt_run(d->nranks, &attr, rank_main, d);
	if (d->said)
		return failed("wrong data", d->wrong);
	if (rc)
		return failed(spmt_strerror(rc), spmt_last_error());
	printf("demo: ok\n");
	return fflush(stdout) ? failed("stdout", strerror(errno)) : 0;
}

static int demo(void)
{
	struct demo d = { 0 };
	int code, rc;

	rc = spmt_device_count(NULL, &d.nranks);
	if (rc)
		return failed(spmt_strerror(rc), spmt_last_error());
	if (!d.nranks)
		return failed("no device",
			"SPMT_BACKEND=host gives virtual ones, SPMT_HOST_DEVICES of them");
	d.routes = calloc((size_t)d.nranks * (size_t)d.nranks, sizeof(*d.routes));
	if (!d.routes)
		return failed("out of memory", "routes");
	code = demo_run(&d);
	free(d.routes);
	return code;
}

int main(int argc, char **argv)
{
	bool closed = fcntl(STDOUT_FILENO, F_GETFD) < 0; /* its number will be another file's */
	int rc = closed ? 0 : parse(argc, argv);

	if (rc < 0)
		return EXIT_USAGE;
	if (closed || (rc && fflush(stdout)))
		return failed("stdout", strerror(errno));
	return rc ? 0 : demo();
}
