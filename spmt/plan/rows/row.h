/* SPDX-License-Identifier: MIT */
/*
 * Plans as rows of the collectives: SPMT_COLL=plan:FILE. Each is taken for the calls that it fits, before the rows of the table: of the
 * world's comm, or of comms split from it that have as many ranks.
 */
#ifndef SPMT_PLAN_ROW_H
#define SPMT_PLAN_ROW_H

#include "include/spmt.h"
#include "spmt/comm/comm.h"
#include "spmt/control/found.h"
#include "src/kernels/coll/table.h"

#define PLAN_ROW_PREFIX "plan:"
#define PLAN_ROWS_ONLY "only"

struct plan_limit;

/*
 * SPMT_COLL in parts, between commas: at most one row of the table, any number of plans, and "only". NULL: unset. What this rank
 * can find wrong by itself is refused with a sentence: -EINVAL, or what the file's reading left. plan_rows_close undoes it.
 */
int plan_rows_read(spmt_comm *comm, const char *wish);
/* Bytes of the library's part of the heap that they need, equal on all ranks with equal plans. PLAN_ROWS_ALIGN of where. */
#define PLAN_ROWS_ALIGN (2 * CACHE_LINE)
uint64_t plan_rows_size(const spmt_comm *comm);
/* Once the heap is there: `at` bytes behind the comm's library area, `own`. */
int plan_rows_open(spmt_comm *comm, char *own, uint64_t at);
/* Once comm->units is this rank's part of its device: all blocks of each run at once. -EINVAL and a sentence: not those of one. */
int plan_rows_fit(const spmt_comm *comm);
/* Those that a comm split from another takes, before the size is asked for: the same on all its ranks. */
int plan_rows_split(spmt_comm *part);
/* What has to be equal on all ranks; 0: no plan. */
uint64_t plan_rows_key(const spmt_comm *comm);
void plan_rows_close(spmt_comm *comm); /* also if there are none */

/* ---- without a comm ------------------------------------------------------------------------------ */

/* The next part of SPMT_COLL to word[room]; *wish moves on, NULL behind the last. False: there is none. */
bool plan_rows_part(const char **wish, char *word, size_t room);
/* What the parts were so far; begins as { 0 }. */
#define PLAN_ROWS_MOST 16
struct plan_rows_words {
	char row[64]; /* of the table; "": none */
	int plans;
	bool only;
};
/* One more. *file: the plan that it names, NULL: none. -EINVAL and a sentence: what may not stand there; and behind the last one. */
int plan_rows_word(struct plan_rows_words *w, const char *word, const char **file);
int plan_rows_words_end(const struct plan_rows_words *w);
/* A file as a plan that may be a row of `kind`, all but what plan_row_prove finds. */
int plan_row_load(const char *file, spmt_plan **plan, enum kernel_collective_kind *kind);
/* The plan is right, and does what its collective does. -E2BIG: to try that would take too much memory. -ECANCELED, SPMT_ERR_TIMEOUT: the
   limit, of a world that waits for the proof while it is whole. */
int plan_row_prove(
	const spmt_plan *plan, enum kernel_collective_kind kind, const struct plan_limit *limit);
/* Is a plan that plan_row_prove found right so both in place and not? Tried once, and kept in `found`; no, if trying would take too much
   memory. -ENOMEM, or the limit. */
int plan_row_either(spmt_plan *plan, enum kernel_collective_kind kind,
	const struct plan_limit *limit, struct plan_found *found, bool *either);
bool plan_row_writes_input(const spmt_plan *plan);

#endif
