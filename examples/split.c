/* SPDX-License-Identifier: MIT */
/* A grid of ranks: one comm a row, one a column, and a sum along each. */
#include <spmt.h>
#include <stdio.h>

enum { ROWS = 2, COLUMNS = 4 };

/* The sum of all ranks' numbers in the world, over the ranks of `part`. */
static int sum_of(spmt_comm *part, int64_t *words, int64_t world_rank, int64_t *sum)
{
	int rc = spmt_copy_in(part, &words[0], &world_rank, sizeof(world_rank));

	if (!rc)
		rc = spmt_all_reduce(
			part, &words[1], &words[0], 1, SPMT_TYPE_I64, SPMT_OP_SUM, NULL);
	if (!rc)
		rc = spmt_quiet(part);
	return rc ? rc : spmt_copy_out(part, sum, &words[1], sizeof(*sum));
}

static int grid(spmt_comm *world, void *out)
{
	int rank = spmt_rank(world), row = rank / COLUMNS, column = rank % COLUMNS;
	int64_t along_row = 0, along_column = 0;
	spmt_comm *rows = NULL, *columns = NULL;
	void *words = NULL;
	int rc = spmt_calloc(world, 2, sizeof(int64_t), &words);

	/* Ranks that pass one color come together, in order of key. */
	if (!rc)
		rc = spmt_split(world, row, column, &rows);
	if (!rc)
		rc = spmt_split(world, column, row, &columns);
	/* A symmetric address of the world is good on its parts. */
	if (!rc)
		rc = sum_of(rows, words, rank, &along_row);
	if (!rc)
		rc = sum_of(columns, words, rank, &along_column);
	if (rc)
		return rc; /* the parts end with the world */
	fprintf(out, "rank %d: row %d has sum %d, column %d has sum %d\n", rank, row,
		(int)along_row, column, (int)along_column);
	rc = spmt_finalize(rows);
	if (!rc)
		rc = spmt_finalize(columns);
	return rc ? rc : spmt_free(world, words);
}

int main(void)
{
	if (spmt_run(ROWS * COLUMNS, NULL, grid, stdout) == 0)
		return 0;
	fprintf(stderr, "split: %s\n", spmt_last_error());
	return 1;
}
