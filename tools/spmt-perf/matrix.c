/* SPDX-License-Identifier: MIT */
/* What every pair of ranks reaches: puts from one to the other, while all else is quiet. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plot.h"

enum { MATRIX_NS = 1000000, MATRIX_ROUNDS = 3 };

/* Of ranks that are threads of this process. A rank writes its own row. */
struct matrix {
	const struct options *opt;
	int n;
	size_t size;
	double *rates; /* [from][to], GB/s */
	_Atomic int wrong;
};

struct matrix_rank {
	struct matrix *m;
	spmt_comm *comm;
	int rank;
	char *src, *dst; /* symmetric */
	unsigned char *mine;
};

static unsigned char matrix_byte(int rank, size_t i)
{
	return (unsigned char)perf_random((uint64_t)rank + 11, i / 8);
}

static int puts_to(struct matrix_rank *r, int pe, uint64_t times)
{
	int rc = 0;

	for (uint64_t i = 0; i < times && !rc; i++)
		rc = spmt_put(r->comm, r->dst, r->src, r->m->size, pe);
	return rc ? rc : spmt_quiet(r->comm);
}

/* The best of some rounds, each as many puts as fill it. */
static int rate_to(struct matrix_rank *r, int pe)
{
	double best = 0;
	uint64_t times = 1;
	int rc = 0;

	for (int round = 0; round < MATRIX_ROUNDS && !rc; round++) {
		int64_t begin = perf_now(), ns;

		rc = puts_to(r, pe, times);
		ns = perf_now() - begin + 1;
		if (!round)
			times = (uint64_t)(MATRIX_NS / ns + 1);
		if ((double)(r->m->size * times) / (double)ns > best && round)
			best = (double)(r->m->size * times) / (double)ns;
	}
	r->m->rates[r->rank * r->m->n + pe] = best;
	return rc;
}

static int compare_from(struct matrix_rank *r, int from)
{
	int rc = spmt_copy_out(r->comm, r->mine, r->dst, r->m->size);

	for (size_t i = 0; i < r->m->size && !rc; i++)
		if (r->mine[i] != matrix_byte(from, i)) {
			r->m->wrong = 1;
			return -EILSEQ;
		}
	return rc;
}

/* All ranks come between two pairs. */
static int pairs_in_turn(struct matrix_rank *r)
{
	int rc = spmt_barrier(r->comm);

	for (int pair = 0; pair < r->m->n * r->m->n && !rc; pair++) {
		int from = pair / r->m->n, pe = pair % r->m->n;

		if (r->rank == from)
			rc = rate_to(r, pe);
		if (!rc)
			rc = spmt_barrier(r->comm);
		if (!rc && r->rank == pe)
			rc = compare_from(r, from);
		if (!rc)
			rc = spmt_barrier(r->comm);
	}
	return rc;
}

static int matrix_main(spmt_comm *comm, void *arg)
{
	struct matrix_rank r = { .m = arg, .comm = comm, .rank = spmt_rank(comm) };
	void *p = NULL;
	int rc = spmt_aligned_alloc(comm, 4096, r.m->size, &p);

	r.src = p;
	if (!rc)
		rc = spmt_aligned_alloc(comm, 4096, r.m->size, &p);
	r.dst = p;
	if (rc)
		return rc;
	r.mine = malloc(r.m->size);
	if (!r.mine)
		return -ENOMEM;
	for (size_t i = 0; i < r.m->size; i++)
		r.mine[i] = matrix_byte(r.rank, i);
	rc = spmt_copy_in(comm, r.src, r.mine, r.m->size);
	if (!rc)
		rc = pairs_in_turn(&r);
	free(r.mine);
	if (!rc)
		rc = spmt_free(comm, r.dst);
	return rc ? rc : spmt_free(comm, r.src);
}

static void matrix_print(const struct matrix *m)
{
	char size[24];

	perf_size_text(m->size, size, sizeof(size));
	printf("puts of %s, GB/s, from row to column\n%5s", size, "");
	for (int pe = 0; pe < m->n; pe++)
		printf(" %8d", pe);
	printf("\n");
	for (int from = 0; from < m->n; from++) {
		printf("%5d", from);
		for (int pe = 0; pe < m->n; pe++)
			printf(" %8.4g", m->rates[from * m->n + pe]);
		printf("\n");
	}
}

int perf_matrix(const struct options *opt, int nranks)
{
	struct matrix m = { .opt = opt, .n = nranks, .size = opt->min ? opt->max : 1u << 20 };
	struct spmt_attr attr = SPMT_ATTR_INIT;
	bool drawn = true;
	int rc;

	m.rates = calloc((size_t)nranks * (size_t)nranks, sizeof(*m.rates));
	if (!m.rates) {
		fprintf(stderr, "spmt-perf: out of memory\n");
		return PERF_EXIT_WRONG;
	}
	attr.backend = opt->backend[0] ? opt->backend : NULL;
	attr.heap_size = 2 * m.size + (4u << 20);
	rc = spmt_run(nranks, &attr, matrix_main, &m);
	if (m.wrong)
		fprintf(stderr, "spmt-perf: wrong data: a put between two ranks\n");
	else if (rc)
		fprintf(stderr, "spmt-perf: matrix with %d ranks: %s: %s\n", nranks,
			spmt_strerror(rc), spmt_last_error());
	else
		matrix_print(&m);
	if (!rc && opt->plot)
		drawn = plot_matrix(opt->plot, m.rates, nranks, m.size);
	free(m.rates);
	return rc || !drawn ? PERF_EXIT_WRONG : 0;
}
