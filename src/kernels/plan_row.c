/* SPDX-License-Identifier: MIT */
/*
 * A plan as a row of the collectives: one launch, which opens and ends as the table's rows do. Of a plan whose ranks touch nothing of each
 * other's but packets it is as by slots: nobody has read a set of packets since all came to the collective before, and nobody waits
 * at the end. Of others the blocks meet one by one before and, where the plan's own signals do not say it, behind. A block of a plan touches
 * what is not its own; but that a rank has come says that all its memory is ready, and its kernel ends when all its blocks have.
 */
#include "plan_row.h"

#include "plan_run.h"

/* This block's part of the input; not 0: that was the last one. */
PLAN_FN int row_copies(const struct plan_run *r)
{
	const struct plan_words *own =
		(const struct plan_words *)spmtd_to_(r->given->at + r->given->words);
	uint64_t count = spmtd_at_(&own->copied);
	int last = 0;

	spmtd_bulk_raw_(r->now->to, r->now->from, r->now->bytes, kernel_lane(), kernel_lanes());
	spmtd_meet_settled_(SPMTD_BLOCK_);
	if (kernel_blocks() == 1)
		return 1;
	if (spmtd_tid_() == 0) {
		spmtd_order_();
		last = (spmtd_add64_(count, 1) + 1) % kernel_blocks() == 0;
		if (last)
			spmtd_order_();
	}
	return spmtd_any_block_(last);
}

/*
 * One rank's greeting tells the others, and its own blocks, that the input is where the plan finds it. Packets alone do not
 * wait for that: but a block may read what another one has copied.
 */
PLAN_FN int row_greets_late(const struct kernel_plan_row_args *args)
{
	return args->from != args->to && !(args->apart && kernel_blocks() == 1);
}

/* Peers are taken before anything but packets goes to them: who gives up waits for that. */
PLAN_FN int row_meets(
	struct coll *c, const struct kernel_plan_row_args *args, const struct plan_run *r)
{
	const int copies_first = r->given->other_scratch != 0;
	int copied = 0;

	if (copies_first)
		coll_block_takes(c);
	if (plan_has_list(r->given))
		plan_early(r);
	if (args->from != args->to)
		copied = row_copies(r);
	if (row_greets_late(args) && copied)
		coll_greet(c, 1);
	if (args->apart)
		return coll_meet(c);
	if (!copies_first)
		coll_block_takes(c);
	return coll_block_met(c);
}

KERNEL_BODY run_plan_row(const struct kernel_plan_row_args *args)
{
	struct plan_now now = { 0 };
	struct plan_run r;
	struct coll c;
	int rc;

	coll_enter(&c, &args->same);
	c.tells = COLL_TELLS;
	plan_ahead(&args->plan, c.view, &now);
	kernel_behind(args->same.alone);
	coll_set(&c);
	if (!coll_open(&c))
		return;
	if (args->apart)
		coll_slots_begin(&c);
	else
		coll_block_begins(&c);
	if (!c.refused && !row_greets_late(args) && kernel_block() == 0)
		coll_greet(&c, !args->apart);
	c.closed = args->closed;
	now.from = args->from;
	now.to = args->to;
	now.bytes = args->from != args->to ? args->bytes : 0;
	r = plan_begin(&args->plan, c.view, &now, c.epoch);
	rc = c.refused ? SPMTD_ABORTED : row_meets(&c, args, &r);
	if (!rc && plan_has_list(&args->plan))
		rc = plan_go(&r);
	if (args->apart)
		coll_slots_end(&c, rc);
	else
		coll_block_parts(&c, rc);
}
KERNEL_TAKING_EARLY(plan_row, struct kernel_plan_row_args, true)
