/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info.h"
#include "src/base/status.h"

enum { KINDS_MAX = 999 };

int matrix_make(int n, struct matrix *m)
{
	m->n = n;
	m->routes = calloc((size_t)n * (size_t)n, sizeof(*m->routes));
	m->pids = calloc((size_t)n, sizeof(*m->pids));
	if (m->routes && m->pids)
		return 0;
	matrix_free(m);
	return -ENOMEM;
}

void matrix_free(struct matrix *m)
{
	free(m->routes);
	free(m->pids);
	*m = (struct matrix){ 0 };
}

struct spmt_route *matrix_at(struct matrix *m, int rank, int pe)
{
	return &m->routes[(size_t)rank * (size_t)m->n + (size_t)pe];
}

/* ---- a live world */

static int ask(spmt_comm *comm, void *arg)
{
	struct matrix *m = arg;
	int rank = spmt_rank(comm), rc = 0;

	m->pids[rank] = (int)getpid();
	for (int pe = 0; pe < m->n && !rc; pe++) {
		struct spmt_route *route = matrix_at(m, rank, pe);

		route->size = sizeof(*route);
		rc = spmt_route(comm, pe, route);
	}
	return rc;
}

int matrix_live(int n, struct matrix *m)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int rc = n ? 0 : spmt_device_count(NULL, &n);

	if (!rc && n > MATRIX_MAX)
		rc = fail(-E2BIG, "a rank a device are %d; a matrix has %d at most (--routes N)", n,
			MATRIX_MAX);
	if (!rc)
		rc = matrix_make(n, m);
	if (rc)
		return rc;
	attr.heap_size = 2u << 20;
	rc = spmt_run(n, &attr, ask, m);
	if (rc)
		matrix_free(m);
	return rc;
}

/* ---- printing */

/* Pairs whose routes read alike have one code: a letter for the map and the number of the reason. */
static bool alike(const struct spmt_route *a, const struct spmt_route *b)
{
	return !strcmp(a->map, b->map) && !strcmp(a->movers, b->movers) &&
		a->threshold == b->threshold && !strcmp(a->reason, b->reason);
}

static int kind_of(const struct spmt_route **kinds, int *n, const struct spmt_route *route)
{
	for (int i = 0; i < *n; i++)
		if (alike(kinds[i], route))
			return i;
	if (*n == KINDS_MAX)
		return KINDS_MAX - 1;
	kinds[*n] = route;
	return (*n)++;
}

static void code_text(const struct spmt_route *route, int kind, char *text, size_t room)
{
	snprintf(text, room, "%c%d", route->map[0] ? route->map[0] : 'x', kind + 1);
}

static void print_kind(const struct spmt_route *route, int kind)
{
	char code[16];

	code_text(route, kind, code, sizeof(code));
	printf("%-4s %-5s %-12s", code, route->map[0] ? route->map : "none", route->movers);
	if (strchr(route->movers, ','))
		printf(" up to %llu bytes the first", (unsigned long long)route->threshold);
	printf("  %s\n", route->reason);
}

static void print_row(struct matrix *m, int rank, const struct spmt_route **kinds, int *n)
{
	printf("%5d", rank);
	for (int pe = 0; pe < m->n; pe++) {
		const struct spmt_route *route = matrix_at(m, rank, pe);
		char code[16];

		code_text(route, kind_of(kinds, n, route), code, sizeof(code));
		printf(" %4s", code);
	}
	printf("\n");
}

/* The line of a process that begins with rank `first`. */
static void print_process(struct matrix *m, int first)
{
	int process = matrix_at(m, first, first)->process;

	printf("%7d %7d ", process, m->pids[first]);
	for (int rank = first, comma = 0; rank < m->n; rank++)
		if (matrix_at(m, rank, rank)->process == process)
			printf("%s %d on %d", comma++ ? "," : "", rank,
				matrix_at(m, rank, rank)->device);
	printf("\n");
}

static void print_processes(struct matrix *m)
{
	printf("process     pid  ranks on devices\n");
	for (int rank = 0; rank < m->n; rank++) {
		int first = 0;

		while (matrix_at(m, first, first)->process != matrix_at(m, rank, rank)->process)
			first++;
		if (first == rank)
			print_process(m, rank);
	}
	printf("\n");
}

bool matrix_print(struct matrix *m)
{
	const struct spmt_route **kinds = calloc(KINDS_MAX, sizeof(const struct spmt_route *));
	int n = 0;

	if (!kinds)
		return false;
	if (m->pids[0])
		print_processes(m);
	printf("routes of %d ranks (row: from, column: to)\n     ", m->n);
	for (int pe = 0; pe < m->n; pe++)
		printf(" %4d", pe);
	printf("\n");
	for (int rank = 0; rank < m->n; rank++)
		print_row(m, rank, kinds, &n);
	printf("\ncode map   movers\n");
	for (int i = 0; i < n; i++)
		print_kind(kinds[i], i);
	free(kinds);
	return true;
}
