/* SPDX-License-Identifier: MIT */
/* A plan as a picture: a column a block, an operation a box, in a row behind all that it waits for; an arrow from each signal to its wait.
   Of a plan that stands still the rest is red. */
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "walk.h"

enum { SVG_WIDE = 210, SVG_HIGH = 30, SVG_TOP = 60, SVG_BOX = 190, SVG_ROWS = 4000 };

#define SVG_STILL "#f2a7a0"

struct picture {
	struct plan_walk walk;
	struct plan_text *t;
	unsigned *rows; /* of each thread: that of its next operation */
};

static const char *svg_colour(const struct spmt_plan_op *op)
{
	if (plan_signals(op) || plan_waits(op))
		return "#fde9c8";
	if (!plan_moves(op))
		return "#e6e6e6";
	if (plan_kinds[op->kind].folds)
		return "#d5ecd4";
	return plan_kinds[op->kind].first_dst == PLAN_PACKETS ||
			plan_kinds[op->kind].first_src == PLAN_PACKETS
		? "#f3d9ec"
		: "#d6e4f7";
}

static void svg_text(struct plan_text *t, const char *text)
{
	for (; *text; text++) {
		if (*text == '<')
			plan_print(t, "&lt;");
		else if (*text == '>') /* which may not stand behind two brackets */
			plan_print(t, "&gt;");
		else if (*text == '&')
			plan_print(t, "&amp;");
		else
			plan_print(t, "%c", *text);
	}
}

static void svg_box(
	struct picture *p, int thread, const struct spmt_plan_op *op, const char *colour)
{
	const struct walk_thread *at = &p->walk.threads[thread];
	char words[PLAN_WORDS];
	int x = 10 + thread * SVG_WIDE;
	unsigned y = SVG_TOP + p->rows[thread] * SVG_HIGH;

	plan_op_words(op, at->rank, words, sizeof(words));
	plan_print(p->t,
		"<g><rect x=\"%d\" y=\"%u\" width=\"%d\" height=\"22\" rx=\"3\" fill=\"%s\" stroke=\"#888\"/><text x=\"%d\" y=\"%u\">",
		x, y, SVG_BOX, colour, x + 5, y + 15);
	plan_print(p->t, "<title>rank %d block %d op %zu: ", at->rank, at->block, at->next);
	svg_text(p->t, words);
	plan_print(p->t, "</title>");
	words[34] = '\0';
	svg_text(p->t, words);
	plan_print(p->t, "</text></g>\n");
}

/* The nth operation of the list that gives to the count. */
static const struct walk_thread *svg_giver(
	const struct picture *p, const struct walk_count *n, size_t nth, size_t *place)
{
	for (int t = 0; t < p->walk.nthreads; t++) {
		const struct walk_thread *who = &p->walk.threads[t];
		size_t seen = 0;

		for (size_t i = 0; i < who->next; i++) {
			const struct spmt_plan_op *op = &who->list->ops[i];

			if ((plan_signals(op) || op->kind == SPMT_PLAN_RELEASE) &&
				walk_counted(&p->walk, who->rank, op) == n && seen++ == nth) {
				*place = i;
				return who;
			}
		}
	}
	return NULL;
}

/* Rows of all operations done, by thread: kept in the threads' order. */
struct svg_rows {
	unsigned **of;
};

static void svg_arrow(const struct picture *p, const struct svg_rows *rows, int thread,
	const struct spmt_plan_op *op)
{
	const struct walk_count *n = walk_counted(&p->walk, p->walk.threads[thread].rank, op);
	size_t place = 0, first = op->kind == SPMT_PLAN_ACQUIRE ? (size_t)op->initial : 0;
	const struct walk_thread *from;

	if (!n || plan_signals(op) || op->kind == SPMT_PLAN_RELEASE || n->taken < first)
		return;
	from = svg_giver(p, n, n->taken - first, &place);
	if (!from)
		return;
	int giver = (int)(from - p->walk.threads), right = giver < thread;

	plan_print(p->t,
		"<line x1=\"%d\" y1=\"%u\" x2=\"%d\" y2=\"%u\" stroke=\"#a05a00\" marker-end=\"url(#a)\"/>\n",
		10 + giver * SVG_WIDE + (right ? SVG_BOX : 0),
		SVG_TOP + rows->of[giver][place] * SVG_HIGH + 11,
		10 + thread * SVG_WIDE + (right ? 0 : SVG_BOX),
		SVG_TOP + p->rows[thread] * SVG_HIGH + 11);
}

/* A round lets each thread do one operation, so that a row is a round. */
static bool svg_round(struct picture *p, const struct svg_rows *rows, unsigned row)
{
	size_t n = (size_t)p->walk.nthreads;
	bool *ready = mem_calloc(MAX_OF(n, 1u), sizeof(*ready)), any = false;

	if (!ready)
		p->t->failed = true;
	for (int t = 0; ready && t < p->walk.nthreads; t++)
		ready[t] =
			walk_op(&p->walk.threads[t]) && walk_ready(&p->walk, &p->walk.threads[t]);
	for (int t = 0; ready && t < p->walk.nthreads; t++) {
		struct walk_thread *at = &p->walk.threads[t];

		if (!ready[t])
			continue;
		any = true;
		p->rows[t] = row;
		rows->of[t][at->next] = row;
		svg_arrow(p, rows, t, walk_op(at));
		svg_box(p, t, walk_op(at), svg_colour(walk_op(at)));
		p->t->failed |= !walk_done(&p->walk, at, 0);
	}
	mem_free(ready);
	return any && !p->t->failed;
}

/* Of a plan that stands still: what is left of each thread, below all that was done. The number of rows. */
static unsigned svg_still(struct picture *p, unsigned row)
{
	unsigned rows = row;

	for (int t = 0; t < p->walk.nthreads; t++) {
		struct walk_thread *at = &p->walk.threads[t];

		for (unsigned own = row; walk_op(at) && own < SVG_ROWS; own++, at->next++) {
			p->rows[t] = own;
			svg_box(p, t, walk_op(at), SVG_STILL);
			rows = MAX_OF(rows, own + 1);
		}
	}
	return rows;
}

/* What the boxes do not say, below them. */
static void svg_notes(const struct picture *p, unsigned rows, bool still)
{
	unsigned y = SVG_TOP + rows * SVG_HIGH + 14;
	size_t left = 0;

	for (int t = 0; t < p->walk.nthreads; t++)
		left += p->walk.threads[t].list->n - p->walk.threads[t].next;
	if (still)
		plan_print(p->t,
			"<text x=\"10\" y=\"%u\">The plan stands still: what is red is never done.</text>\n",
			y);
	if (left)
		plan_print(p->t,
			"<text x=\"10\" y=\"%u\">%zu operations are left out: a picture has at most %d rows.</text>\n",
			y + 16, left, SVG_ROWS);
}

static bool svg_left(const struct picture *p)
{
	for (int t = 0; t < p->walk.nthreads; t++)
		if (walk_op(&p->walk.threads[t]))
			return true;
	return false;
}

static bool rows_open(const struct picture *p, struct svg_rows *rows)
{
	size_t n = (size_t)MAX_OF(p->walk.nthreads, 1);
	bool well;

	rows->of = mem_calloc(n, sizeof(*rows->of));
	well = rows->of != NULL;
	for (int t = 0; well && t < p->walk.nthreads; t++) {
		rows->of[t] = mem_calloc(p->walk.threads[t].list->n + 1, sizeof(**rows->of));
		well = rows->of[t] != NULL;
	}
	return well;
}

static void rows_close(const struct picture *p, struct svg_rows *rows)
{
	for (int t = 0; rows->of && t < p->walk.nthreads; t++)
		mem_free(rows->of[t]);
	mem_free(rows->of);
}

static void svg_columns(struct picture *p)
{
	for (int t = 0; t < p->walk.nthreads; t++)
		plan_print(p->t,
			"<text x=\"%d\" y=\"48\" font-weight=\"bold\">rank %d block %d</text>\n",
			10 + t * SVG_WIDE, p->walk.threads[t].rank, p->walk.threads[t].block);
}

/* The body first, which knows how many rows there are. */
static void svg_head(const struct spmt_plan *plan, struct plan_text *t, int columns, unsigned rows)
{
	plan_print(t,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" font-family=\"sans-serif\" font-size=\"11\">\n"
		"<defs><marker id=\"a\" markerWidth=\"8\" markerHeight=\"6\" refX=\"8\" refY=\"3\" orient=\"auto\"><path d=\"M0,0 L8,3 L0,6 z\" fill=\"#a05a00\"/></marker></defs>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/><text x=\"10\" y=\"22\" font-size=\"15\">",
		MAX_OF(20 + columns * SVG_WIDE, 400), SVG_TOP + rows * SVG_HIGH + 40);
	svg_text(t, plan->name);
	plan_print(t, ": ");
	svg_text(t, plan->collective);
	plan_print(t, " of %d ranks</text>\n", plan->attr.nranks);
}

void plan_write_svg(const struct spmt_plan *plan, struct plan_text *t)
{
	struct plan_text body = { .used = 0 };
	struct picture p = { .t = &body };
	struct svg_rows rows = { NULL };
	unsigned row = 0;
	bool still;

	if (walk_open(&p.walk, plan, "spmt_plan_write")) {
		t->failed = true;
		return;
	}
	p.rows = mem_calloc((size_t)MAX_OF(p.walk.nthreads, 1), sizeof(*p.rows));
	body.failed = !p.rows || !rows_open(&p, &rows);
	if (!body.failed)
		svg_columns(&p);
	while (!body.failed && row < SVG_ROWS && svg_round(&p, &rows, row))
		row++;
	still = !body.failed && row < SVG_ROWS && svg_left(&p);
	if (still)
		row = svg_still(&p, row);
	if (!body.failed)
		svg_notes(&p, row, still);
	svg_head(plan, t, p.walk.nthreads, row);
	plan_print(t, "%s</svg>\n", body.bytes ? body.bytes : "");
	t->failed |= body.failed;
	mem_free(body.bytes);
	rows_close(&p, &rows);
	mem_free(p.rows);
	walk_close(&p.walk);
}
