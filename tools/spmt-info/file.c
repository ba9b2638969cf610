/* SPDX-License-Identifier: MIT */
/* What SPMT_ROUTES has written: rows of worlds, each by the processes that had its ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "info.h"
#include "src/base/status.h"

#define LINE_MOST 1024 /* longer than any row; a file of one endless line is none */

/* One world; the same uid may have served several times. */
struct recorded {
	struct recorded *older; /* once all are read: the next */
	unsigned long long name;
	struct matrix m;
	int rows;
};

struct row {
	unsigned long long name;
	int n, pid, rank, process, device;
	struct spmt_route to;
};

/* Numbers without sign or blanks: sscanf alone takes both, and wraps. */
static bool numbers_plain(const char *line)
{
	size_t digits = 0;

	for (const char *at = line; *at && *at != '\n'; at++) {
		if (is_control(*at))
			return false;
		digits = *at >= '0' && *at <= '9' ? digits + 1 : 0;
		if (digits > 20)
			return false;
	}
	return true;
}

static bool row_parse(const char *line, struct row *row)
{
	int end = 0, got;

	*row = (struct row){ .to = { .size = sizeof(row->to) } };
	if (!numbers_plain(line))
		return false;
	/* No number can be too long: see above. NOLINTNEXTLINE(cert-err34-c) */
	got = sscanf(line,
		"world %16llx of %9d: pid %9d process %9d device %9d rank %9d -> process %9d device %9d rank %9d: map %15[a-z0-9] movers %31[a-z,] threshold %20llu: %255[^\n]%n",
		&row->name, &row->n, &row->pid, &row->process, &row->device, &row->rank,
		&row->to.process, &row->to.device, &row->to.pe, row->to.map, row->to.movers,
		(unsigned long long *)&row->to.threshold, row->to.reason, &end);
	return got == 13 && line[end] == '\n' && row->n >= 1 && row->pid > 0 && row->process >= 0 &&
		row->process < row->n && row->device >= 0 && row->rank >= 0 && row->rank < row->n &&
		row->to.process >= 0 && row->to.process < row->n && row->to.device >= 0 &&
		row->to.pe >= 0 && row->to.pe < row->n;
}

/* The world that the row belongs to; a row that is there already begins the next of that name. */
static struct recorded *world_of(struct recorded **newest, const struct row *row)
{
	struct recorded *w = *newest;

	while (w && (w->name != row->name || w->m.n != row->n))
		w = w->older;
	if (w && !matrix_at(&w->m, row->rank, row->to.pe)->size)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w || matrix_make(row->n, &w->m)) {
		free(w);
		return NULL;
	}
	w->name = row->name;
	w->older = *newest;
	*newest = w;
	return w;
}

static int line_take(const char *path, int number, const char *line, struct recorded **worlds)
{
	struct recorded *w;
	struct row row;

	if (!row_parse(line, &row))
		return fail(-EINVAL, "%s:%d: not a row that SPMT_ROUTES writes", path, number);
	if (row.n > MATRIX_MAX)
		return fail(-E2BIG, "%s:%d: a world of %d ranks; a matrix has %d at most", path,
			number, row.n, MATRIX_MAX);
	w = world_of(worlds, &row);
	if (!w)
		return fail(-ENOMEM, "%s:%d: no memory for %d ranks", path, number, row.n);
	*matrix_at(&w->m, row.rank, row.to.pe) = row.to;
	w->m.pids[row.rank] = row.pid;
	w->rows++;
	return 0;
}

static int file_read(const char *path, struct recorded **worlds)
{
	FILE *in = fopen(path, "re");
	char line[LINE_MOST];
	int rc = 0, number = 0;

	if (!in)
		return fail_errno(errno, "%s", path);
	while (!rc && fgets(line, sizeof(line), in))
		rc = line_take(path, ++number, line, worlds);
	if (!rc && ferror(in))
		rc = fail_errno(errno ? errno : EIO, "%s", path);
	if (!rc && !*worlds)
		rc = fail(-ENODATA, "%s: no routes in it: did the program make a world?", path);
	fclose(in);
	return rc;
}

static int world_whole(const char *path, struct recorded *w)
{
	for (int i = 0; i < w->m.n * w->m.n; i++)
		if (!w->m.routes[i].size)
			return fail(-ENODATA,
				"%s: world %016llx: %d of %d rows are there; none from rank %d to rank %d",
				path, w->name, w->rows, w->m.n * w->m.n, i / w->m.n, i % w->m.n);
	return 0;
}

static struct recorded *in_order(struct recorded *newest)
{
	struct recorded *first = NULL;

	while (newest) {
		struct recorded *next = newest->older;

		newest->older = first;
		first = newest;
		newest = next;
	}
	return first;
}

/* What could be read is printed, whatever comes after it. The first failure counts. */
static int worlds_print(const char *path, struct recorded *first)
{
	struct status_saved saved = { 0 };
	int rc = 0;

	for (struct recorded *w = first; w; w = w->older) {
		int own = world_whole(path, w);

		if (!own) {
			printf("%sworld %016llx\n", w == first ? "" : "\n", w->name);
			if (!matrix_print(&w->m))
				own = fail(-ENOMEM, "%s: no memory to print it", path);
		}
		if (own && !rc) {
			rc = own;
			status_save(&saved);
		}
	}
	if (rc)
		status_restore(&saved);
	return rc;
}

int routes_file_print(const char *path)
{
	struct recorded *worlds = NULL;
	int rc = file_read(path, &worlds);

	worlds = in_order(worlds);
	if (!rc)
		rc = worlds_print(path, worlds);
	while (worlds) {
		struct recorded *next = worlds->older;

		matrix_free(&worlds->m);
		free(worlds);
		worlds = next;
	}
	return rc;
}
