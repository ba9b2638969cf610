/* SPDX-License-Identifier: MIT */
/* The checker, of plans with packets: what these order and what not. */
#include "two_ranks.h"

/* From rank 0 to rank 1. */
static void puts_packets(spmt_plan *plan)
{
	cr_assert_eq(spmt_plan_put_packets(
			     plan, 0, 0, spmt_plan_input(0, 0, 1), spmt_plan_scratch(1, 0, 1)),
		0);
}

static void unpacks(spmt_plan *plan)
{
	cr_assert_eq(spmt_plan_unpack_packets(
			     plan, 1, 0, spmt_plan_scratch(1, 0, 1), spmt_plan_output(1, 0, 1)),
		0);
}

Test(plan_packets, packets_are_written_once_and_order_their_readers)
{
	for (int twice = 0; twice < 2; twice++) {
		spmt_plan *plan = empty_plan();

		for (int i = 0; i <= twice; i++)
			puts_packets(plan);
		unpacks(plan);
		finds(plan, twice ? "written twice" : NULL);
	}
	spmt_plan *plan = empty_plan();

	unpacks(plan);
	finds(plan, "waits for what nobody puts there");
}

/* What a block has stored before it puts packets may come later than they do; what it has read is over. */
Test(plan_packets, packets_are_no_fence)
{
	enum { READ_BEHIND, WRITTEN_BEHIND, SIGNALLED, ONLY_READ, CASES };
	const struct spmt_plan_chunk told = spmt_plan_output(1, 5, 1),
				     own = spmt_plan_output(1, 4, 1);

	for (int i = 0; i < CASES; i++) {
		spmt_plan *plan = empty_plan();

		cr_assert_eq(i == ONLY_READ
				? spmt_plan_fetch(plan, 0, 0, told, spmt_plan_output(0, 5, 1))
				: spmt_plan_put(plan, 0, 0, spmt_plan_input(0, 5, 1), told),
			0);
		puts_packets(plan);
		unpacks(plan);
		if (i == SIGNALLED) {
			cr_assert_eq(spmt_plan_signal(plan, 0, 0, 1, 0), 0);
			cr_assert_eq(spmt_plan_wait(plan, 1, 0, 0, 0), 0);
		}
		cr_assert_eq(i == READ_BEHIND || i == SIGNALLED
				? spmt_plan_copy(plan, 1, 0, told, own)
				: spmt_plan_copy(plan, 1, 0, own, told),
			0);
		finds(plan, i == READ_BEHIND || i == WRITTEN_BEHIND ? "race: " : NULL);
	}
}

/* A rank folds a chunk to itself and, as packets, to another one, which then wants to read it there. */
Test(plan_packets, what_is_folded_comes_behind_its_packets)
{
	for (int signal = 0; signal < 2; signal++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);
		spmt_plan *plan = empty_plan();

		cr_assert_eq(spmt_plan_put_packets(plan, 1, 0, spmt_plan_input(1, 0, 1),
				     spmt_plan_scratch(0, 0, 1)),
			0);
		op.nsrc = op.ndst = 2;
		op.src[0] = spmt_plan_input(0, 0, 1);
		op.src[1] = spmt_plan_scratch(0, 0, 1);
		op.dst[0] = spmt_plan_output(0, 0, 1);
		op.dst[1] = spmt_plan_scratch(1, 1, 1);
		cr_assert_eq(spmt_plan_add(plan, 0, 0, &op), 0, "%s", spmt_last_error());
		cr_assert_eq(spmt_plan_unpack_packets(plan, 1, 0, spmt_plan_scratch(1, 1, 1),
				     spmt_plan_output(1, 0, 1)),
			0);
		if (signal) {
			cr_assert_eq(spmt_plan_signal(plan, 0, 0, 1, 0), 0);
			cr_assert_eq(spmt_plan_wait(plan, 1, 0, 0, 0), 0);
		}
		cr_assert_eq(spmt_plan_fetch(plan, 1, 0, spmt_plan_output(0, 0, 1),
				     spmt_plan_output(1, 1, 1)),
			0);
		finds(plan, signal ? NULL : "race: ");
	}
}

/* Where a part ends depends on the chunks' size: a part of two chunks may have some of both. How the first and second packets are put, and
   how they are read: by chunks, in halves, as a whole. Between the first and the second one the reader is asked. */
Test(plan_packets, packets_in_parts)
{
	enum { CHUNKS, HALVES, WHOLE };
	static const struct {
		int put, read;
		const char *words;
	} cases[] = { { CHUNKS, CHUNKS, NULL }, { HALVES, HALVES, NULL },
		{ CHUNKS, HALVES, "deadlock" }, { HALVES, CHUNKS, "deadlock" },
		{ CHUNKS, WHOLE, "deadlock" }, { HALVES, WHOLE, "deadlock" } };

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		spmt_plan *plan = empty_plan();

		for (uint32_t i = 0; i < 2; i++) {
			bool halves = cases[c].put == HALVES;
			uint32_t at = halves ? 0 : i, n = halves ? 2 : 1;

			add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, at, n),
				spmt_plan_scratch(1, at, n), halves ? (int)i : 0, halves ? 2 : 0);
			if (!i)
				cr_assert_eq(spmt_plan_wait(plan, 0, 0, 1, 0), 0);
			halves = cases[c].read == HALVES;
			at = halves || cases[c].read == WHOLE ? 0 : i;
			n = halves || cases[c].read == WHOLE ? 2 : 1;
			add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(1, at, n),
				spmt_plan_output(1, at, n), halves ? (int)i : 0, halves ? 2 : 0);
			if (!i)
				cr_assert_eq(spmt_plan_signal(plan, 1, 0, 0, 0), 0);
		}
		finds(plan, cases[c].words);
	}
}

/* Of small chunks all parts but the first are empty, and who reads one waits for nobody. */
Test(plan_packets, an_empty_part_orders_nothing)
{
	for (int slice = 0; slice < 2; slice++) {
		spmt_plan *plan = empty_plan();

		cr_assert_eq(spmt_plan_fetch(plan, 0, 0, spmt_plan_output(1, 5, 1),
				     spmt_plan_output(0, 5, 1)),
			0);
		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, 1),
			spmt_plan_scratch(1, 0, 1), slice, 2);
		add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(1, 0, 1),
			spmt_plan_output(1, 0, 1), slice, 2);
		cr_assert_eq(spmt_plan_copy(plan, 1, 0, spmt_plan_output(1, 4, 1),
				     spmt_plan_output(1, 5, 1)),
			0);
		finds(plan, slice ? "race: " : NULL);
	}
}

/* Where one part has bytes, so have all that begin no later in as many chunks, and these order it. */
Test(plan_packets, a_part_that_has_bytes_orders_others)
{
	static const struct {
		int slice; /* of 4, of the packets */
		uint32_t chunks;
		const char *words;
	} cases[] = { { 0, 1, NULL }, { 1, 1, NULL }, { 2, 1, "race: " }, { 2, 2, NULL },
		{ 3, 2, "race: " } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		spmt_plan *plan = empty_plan();
		uint32_t n = cases[i].chunks;

		add_part(plan, 0, SPMT_PLAN_GET, spmt_plan_output(1, 5, 1),
			spmt_plan_output(0, 5, 1), 1, 2);
		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, n),
			spmt_plan_scratch(1, 0, n), cases[i].slice, 4);
		add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(1, 0, n),
			spmt_plan_output(1, 0, n), cases[i].slice, 4);
		add_part(plan, 1, SPMT_PLAN_COPY, spmt_plan_output(1, 4, 1),
			spmt_plan_output(1, 5, 1), 1, 2);
		finds(plan, cases[i].words);
	}
}

/* A chunk goes as packets to another rank and back over itself, cut into so many parts each time (0: whole), a block each. Every byte comes
   back behind its going, however the parts lie. */
Test(plan_packets, packets_that_come_back)
{
	static const int cuts[][3] = { { 2, 2, 2 }, { 0, 2, 2 }, { 2, 0, 0 }, { 2, 2, 0 },
		{ 4, 20, 20 }, { 4, 4, 20 }, { 3, 2, 2 }, { 0, 2, 0 } };

	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		spmt_plan *plan = empty_plan();
		const struct spmt_plan_chunk own = spmt_plan_input(0, 0, 1),
					     there = spmt_plan_scratch(1, 0, 1),
					     here = spmt_plan_scratch(0, 1, 1);

		for (int k = 0; k < (cuts[i][0] ? cuts[i][0] : 1); k++)
			add_part_to(plan, 0, k, SPMT_PLAN_PUT_PACKETS, own, there, k, cuts[i][0]);
		for (int k = 0; k < (cuts[i][1] ? cuts[i][1] : 1); k++)
			add_part_to(
				plan, 1, k, SPMT_PLAN_SEND_PACKETS_ON, there, here, k, cuts[i][1]);
		for (int k = 0; k < (cuts[i][2] ? cuts[i][2] : 1); k++)
			add_part_to(
				plan, 0, 8 + k, SPMT_PLAN_UNPACK_PACKETS, here, own, k, cuts[i][2]);
		finds(plan, NULL);
	}
}

/* Two chunks go out by one operation. Those that have come have been read, whether the receiver sends them on or takes them itself. */
Test(plan_packets, some_have_come)
{
	static const struct {
		uint32_t takes[2],
			stores; /* so many chunks, a call each; which one is stored over then */
		bool right;
	} cases[] = { { { 1, 0 }, 0, true }, { { 1, 0 }, 1, false }, { { 2, 0 }, 1, true },
		{ { 1, 1 }, 1, true } };

	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		spmt_plan *plan = empty_plan();
		bool on = i % 2;
		int taker = !on;
		uint32_t at = 0, n;

		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, 2),
			spmt_plan_scratch(1, 0, 2), 0, 0);
		if (on)
			add_part(plan, 1, SPMT_PLAN_SEND_PACKETS_ON, spmt_plan_scratch(1, 0, 2),
				spmt_plan_scratch(0, 0, 2), 0, 0);
		for (int k = 0; k < 2; k++, at += n) {
			n = cases[i / 2].takes[k];
			if (n)
				add_part_to(plan, taker, 1, SPMT_PLAN_UNPACK_PACKETS,
					spmt_plan_scratch(taker, at, n),
					spmt_plan_output(taker, at, n), 0, 0);
		}
		add_part_to(plan, taker, 1, on ? SPMT_PLAN_COPY : SPMT_PLAN_PUT,
			spmt_plan_output(taker, 5, 1), spmt_plan_input(0, cases[i / 2].stores, 1),
			0, 0);
		finds(plan, cases[i / 2].right ? NULL : "race: ");
	}
}

/* What is stored as it comes: over the packet's own source, or over one that may be read yet; by one operation or two. */
Test(plan_packets, stored_as_they_come)
{
	for (uint32_t to = 0; to < 3; to++) {
		spmt_plan *plan = empty_plan();
		struct spmt_plan_chunk in = spmt_plan_input(0, 0, 2),
				       sent = spmt_plan_scratch(0, 0, 2);

		cr_assert_eq(spmt_plan_put_packets(plan, 0, 0, in, sent), 0);
		cr_assert_eq(
			spmt_plan_unpack_packets(plan, 0, 1, sent, spmt_plan_input(0, to, 2)), 0);
		finds(plan, to == 1 ? "race: " : NULL);
	}
}

/* Two packets, the second of which says that a chunk has been read, are taken by one operation. It stores each when that one has come: the first
   over that chunk, or the second; another operation behind it does so when both have. */
Test(plan_packets, each_stored_behind_its_own)
{
	enum { FIRST, SECOND, BEHIND, SENT_ON, CASES };

	for (int i = 0; i < CASES; i++) {
		spmt_plan *plan = empty_plan();
		uint32_t read = i == SECOND ? 1 : i == BEHIND ? 5 : 0;
		struct spmt_plan_chunk both = spmt_plan_scratch(1, 0, 2);

		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, 1),
			spmt_plan_scratch(1, 0, 1), 0, 0);
		add_part(plan, 0, SPMT_PLAN_GET, spmt_plan_output(1, read, 1),
			spmt_plan_output(0, 5, 1), 0, 0);
		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 1, 1),
			spmt_plan_scratch(1, 1, 1), 0, 0);
		if (i == SENT_ON) {
			add_part(plan, 1, SPMT_PLAN_SEND_PACKETS_ON, both,
				spmt_plan_scratch(1, 2, 2), 0, 0);
			both.index = 2;
		}
		add_part_to(plan, 1, 1, SPMT_PLAN_UNPACK_PACKETS, both, spmt_plan_output(1, 0, 2),
			0, 0);
		if (i == BEHIND)
			add_part_to(plan, 1, 1, SPMT_PLAN_COPY, spmt_plan_output(1, 4, 1),
				spmt_plan_output(1, 5, 1), 0, 0);
		finds(plan, i == FIRST || i == SENT_ON ? "race: " : NULL);
	}
}

/* Of two chunks the second part may begin within the second chunk: who has taken one part has not taken all of the chunk. */
Test(plan_packets, a_part_is_no_chunk)
{
	for (int late = 0; late < 3; late++) { /* 2: none is */
		spmt_plan *plan = empty_plan();
		struct spmt_plan_chunk in = spmt_plan_input(0, 0, 2),
				       sent = spmt_plan_scratch(1, 0, 2),
				       out = spmt_plan_output(1, 0, 2);

		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, in, sent, 0, 0);
		for (int part = 0; part < 2; part++)
			if (part != late)
				add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, sent, out, part, 2);
		cr_assert_eq(spmt_plan_signal(plan, 1, 0, 0, 0), 0);
		if (late < 2)
			add_part(plan, 1, SPMT_PLAN_UNPACK_PACKETS, sent, out, late, 2);
		cr_assert_eq(spmt_plan_wait(plan, 0, 1, 1, 0), 0);
		add_part_to(plan, 0, 1, SPMT_PLAN_COPY, spmt_plan_output(0, 1, 1),
			spmt_plan_input(0, 1, 1), 0, 0);
		finds(plan, late == 2 ? NULL : "race: ");
	}
}

/* The second of 4 parts and the second of 20 are the same line where there are two. */
Test(plan_packets, parts_that_seem_apart)
{
	spmt_plan *plan = empty_plan();

	add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, 1),
		spmt_plan_scratch(1, 0, 1), 1, 4);
	add_part_to(plan, 0, 1, SPMT_PLAN_COPY, spmt_plan_output(0, 0, 1), spmt_plan_input(0, 0, 1),
		1, 20);
	finds(plan, "race: ");
}

/* Sent round by operations that write one packet twice, in ways without end: that is said, and at once. */
Test(plan_packets, sent_round_and_round, .timeout = 20)
{
	spmt_plan *plan = empty_plan();

	for (int r = 0; r < 2; r++) {
		add_part(plan, r, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(r, 0, 1),
			spmt_plan_scratch(1 - r, 0, 1), 0, 0);
		for (int i = r; i < 2; i++)
			add_part_to(plan, r, 1, SPMT_PLAN_SEND_PACKETS_ON,
				spmt_plan_scratch(r, 0, 1), spmt_plan_scratch(1 - r, 0, 1), 0, 0);
	}
	add_part_to(plan, 1, 2, SPMT_PLAN_PUT, spmt_plan_output(1, 0, 1), spmt_plan_input(0, 0, 1),
		0, 0);
	finds(plan, "packets are written twice");
}

/* Each rank folds two packets that are made of the same, and sends the result on twice: as many ways as there are numbers of 40 bits. */
Test(plan_packets, folded_on_and_on, .timeout = 60)
{
	enum { RANKS = 42 };
	const int last = RANKS - 1;
	struct spmt_plan_attr attr = { .size = sizeof(attr),
		.name = "p",
		.collective = "c",
		.nranks = RANKS,
		.input_chunks = 2,
		.output_chunks = 2,
		.scratch_chunks = 4 };
	spmt_plan *plan = NULL;

	cr_assert_eq(spmt_plan_create(&attr, &plan), 0);
	for (uint32_t way = 0; way < 2; way++)
		add_part(plan, 0, SPMT_PLAN_PUT_PACKETS, spmt_plan_input(0, 0, 2),
			spmt_plan_scratch(1, 2 * way, 2), 0, 0);
	for (int r = 1; r < last; r++) {
		struct spmt_plan_op op = spmt_plan_op_(SPMT_PLAN_REDUCE_PACKETS);

		op.nsrc = op.ndst = 3;
		op.src[0] = spmt_plan_input(r, 0, 2);
		op.dst[0] = spmt_plan_output(r, 0, 2);
		for (uint32_t way = 0; way < 2; way++) {
			op.src[1 + way] = spmt_plan_scratch(r, 2 * way, 2);
			op.dst[1 + way] = spmt_plan_scratch(r + 1, 2 * way, 2);
		}
		cr_assert_eq(spmt_plan_add(plan, r, 0, &op), 0, "%s", spmt_last_error());
	}
	add_part(plan, last, SPMT_PLAN_UNPACK_PACKETS, spmt_plan_scratch(last, 0, 2),
		spmt_plan_output(last, 0, 2), 0, 0);
	add_part(plan, last, SPMT_PLAN_PUT, spmt_plan_output(last, 0, 1), spmt_plan_input(0, 1, 1),
		0, 0);
	finds(plan, NULL);
}
