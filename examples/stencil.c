/* SPDX-License-Identifier: MIT */
/* Heat in a ring of cells, shared out among the ranks. Before each step a rank sends its two edge cells to its neighbours. */
#include <errno.h>
#include <spmt.h>
#include <stdio.h>

enum { RANKS = 4, CELLS = 16, STEPS = 50 };
enum { LEFT, RIGHT, SIDES };

/* Symmetric. A neighbour may be one step ahead, so even and odd steps have halo cells of their own. */
struct shared {
	double edge[SIDES];
	double halo[2][SIDES];
	uint64_t step[SIDES]; /* the last step for which the neighbour on that side has sent */
};

/* Cells 1 .. n; 0 and n + 1 are the neighbours'. */
static void diffuse(double *cell, int n)
{
	double before = cell[0];

	for (int i = 1; i <= n; i++) {
		double here = cell[i];

		cell[i] = here + 0.25 * (before - 2 * here + cell[i + 1]);
		before = here;
	}
}

static int exchange(spmt_comm *comm, struct shared *s, double *cell, uint64_t step)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm);
	int neighbour[SIDES] = { (rank + n - 1) % n, (rank + 1) % n };
	double edge[SIDES] = { cell[1], cell[CELLS] }, halo[SIDES];
	int rc = spmt_copy_in(comm, s->edge, edge, sizeof(edge));

	/* A rank's left edge is the right halo of its left neighbour. The signal arrives after the cell. */
	for (int side = LEFT; side < SIDES && !rc; side++)
		rc = spmt_put_signal(comm, &s->halo[step % 2][!side], &s->edge[side],
			sizeof(double), &s->step[!side], step, SPMT_SIGNAL_SET, neighbour[side]);
	for (int side = LEFT; side < SIDES && !rc; side++)
		rc = spmt_signal_wait(comm, &s->step[side], SPMT_CMP_GE, step, NULL);
	if (!rc)
		rc = spmt_copy_out(comm, halo, s->halo[step % 2], sizeof(halo));
	cell[0] = rc ? 0 : halo[LEFT];
	cell[CELLS + 1] = rc ? 0 : halo[RIGHT];
	return rc;
}

/* The same on one rank, to compare with: all cells in one array. */
static void alone(double *cell)
{
	for (int step = 0; step < STEPS; step++) {
		cell[0] = cell[RANKS * CELLS];
		cell[RANKS * CELLS + 1] = cell[1];
		diffuse(cell, RANKS * CELLS);
	}
}

static int heat(spmt_comm *comm, void *out)
{
	int rank = spmt_rank(comm), wrong = 0;
	double whole[RANKS * CELLS + 2] = { [1] = 1000 }, cell[CELLS + 2] = { 0 };
	void *shared = NULL;
	int rc = spmt_calloc(comm, 1, sizeof(struct shared), &shared);

	cell[1] = rank == 0 ? 1000 : 0;
	for (uint64_t step = 1; step <= STEPS && !rc; step++) {
		rc = exchange(comm, shared, cell, step);
		diffuse(cell, CELLS);
	}
	if (rc)
		return rc;
	alone(whole);
	for (int i = 1; i <= CELLS; i++)
		wrong += cell[i] != whole[rank * CELLS + i];
	fprintf(out, "rank %d: %d steps, %d of %d cells differ from one rank's\n", rank, STEPS,
		wrong, CELLS);
	return wrong ? -EIO : spmt_free(comm, shared);
}

int main(void)
{
	if (spmt_run(RANKS, NULL, heat, stdout) == 0)
		return 0;
	fprintf(stderr, "stencil: %s\n", spmt_last_error());
	return 1;
}
