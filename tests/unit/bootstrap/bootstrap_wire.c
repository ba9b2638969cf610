/* SPDX-License-Identifier: MIT */
/* Frames at every limit of what a receiver takes: the last that is right, the first that is wrong. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "spmt/bootstrap/wire.h"

enum { RANKS = 5, BLOB = 12 };

static unsigned char bytes[sizeof(struct wire_header) + WIRE_DATA + 4096];

/* A frame of a type with `tail` bytes of 'x' behind its fixed part; its size. */
static size_t frame(enum wire_type type, const void *fixed, size_t tail, uint16_t fds)
{
	struct wire_header h = { (uint32_t)(wire_fixed(type) + tail), (uint16_t)type, fds };

	memcpy(bytes, &h, sizeof(h));
	memcpy(bytes + sizeof(h), fixed, wire_fixed(type));
	memset(bytes + sizeof(h) + wire_fixed(type), 'x', tail);
	return sizeof(h) + wire_fixed(type) + tail;
}

/* All of a frame is there: taken, 1, or refused, 0. */
static int takes(size_t n)
{
	const struct wire_rules all = { ~0u, RANKS, BLOB };
	struct wire_message m;
	int64_t rc = wire_parse(&all, bytes, n, &m);

	cr_assert(rc == (int64_t)n || rc == -EPROTO, "%ld of %zu", (long)rc, n);
	return rc > 0;
}

static int takes_rank(enum wire_type type, uint32_t rank, uint32_t member)
{
	struct wire_rank w = { rank, member };

	return takes(frame(type, &w, type == WIRE_ABSENT ? 0 : BLOB, 0));
}

Test(bootstrap_wire, ranks_of_the_world)
{
	static const enum wire_type types[] = { WIRE_ADD, WIRE_PRESENT, WIRE_ABSENT };

	for (size_t i = 0; i < 3; i++) {
		cr_expect(takes_rank(types[i], 0, 0));
		cr_expect(takes_rank(types[i], RANKS - 1, INT32_MAX));
		cr_expect_not(takes_rank(types[i], RANKS, 0));
		cr_expect_not(takes_rank(types[i], UINT32_MAX, 0));
		cr_expect_not(takes_rank(types[i], 0, (uint32_t)INT32_MAX + 1));
	}
}

Test(bootstrap_wire, verdicts)
{
	static const struct {
		struct wire_verdict w;
		int taken;
	} rows[] = { { { RANKS - 1, 0 }, 1 }, { { 0, -EEXIST }, 1 }, { { RANKS, 0 }, 0 },
		{ { 0, 1 }, 0 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(
			takes(frame(WIRE_VERDICT, &rows[i].w, 0, 0)), rows[i].taken, "row %zu", i);
}

Test(bootstrap_wire, counts_of_processes)
{
	static const struct {
		struct wire_complete w;
		int taken;
	} rows[] = { { { 1, 0 }, 1 }, { { RANKS, 1 }, 1 }, { { 0, 0 }, 0 }, { { RANKS + 1, 0 }, 0 },
		{ { 1, 2 }, 0 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		cr_expect_eq(
			takes(frame(WIRE_COMPLETE, &rows[i].w, 0, 0)), rows[i].taken, "row %zu", i);
}

/* A process has a rank: there are no more of them. What is said of one's own carries no number. */
Test(bootstrap_wire, whose_data)
{
	struct wire_data w = { 1, RANKS - 1 };

	cr_expect(takes(frame(WIRE_RELAY, &w, 3, 0)));
	w.process = RANKS;
	cr_expect_not(takes(frame(WIRE_RELAY, &w, 3, 0)));
	w.process = UINT32_MAX;
	cr_expect_not(takes(frame(WIRE_RELAY, &w, 3, 0)));
	w.process = 0;
	cr_expect(takes(frame(WIRE_RELAY, &w, WIRE_DATA, 0)));
	cr_expect_not(takes(frame(WIRE_RELAY, &w, WIRE_DATA + 1, 0)));
	cr_expect(takes(frame(WIRE_EXCHANGE, &w, WIRE_DATA, 0)));
	cr_expect_not(takes(frame(WIRE_EXCHANGE, &w, WIRE_DATA + 1, 0)));
}

Test(bootstrap_wire, who_returns)
{
	struct wire_return w = { .process = RANKS - 1 };

	cr_expect(takes(frame(WIRE_RETURN, &w, 0, 0)));
	cr_expect_not(takes(frame(WIRE_RETURN, &w, 1, 0)));
	cr_expect_not(takes(frame(WIRE_RETURN, &w, 0, 1)));
	w.process = RANKS;
	cr_expect_not(takes(frame(WIRE_RETURN, &w, 0, 0)));
}

static int takes_break(int code, const unsigned char *text, size_t n)
{
	struct wire_break w = { code, 0 };
	size_t size = frame(WIRE_BREAK, &w, n, 0);

	memcpy(bytes + size - n, text, n);
	return takes(size);
}

/* Sentences are shown to people. */
Test(bootstrap_wire, sentences)
{
	unsigned char text[STATUS_SENTENCE];

	memset(text, 'x', sizeof(text));
	cr_expect(takes_break(-1, text, STATUS_SENTENCE - 1));
	cr_expect_not(takes_break(-1, text, STATUS_SENTENCE));
	cr_expect_not(takes_break(-1, text, 0));
	cr_expect_not(takes_break(0, text, 3));
	cr_expect_not(takes_break(1, text, 3));
	for (int c = 0; c < 256; c++) {
		text[1] = (unsigned char)c;
		cr_expect_eq(takes_break(-1, text, 3), c >= ' ' && c != 127, "byte %d", c);
	}
}

/* How many descriptors may come with a frame of each type, when it is announced: before it is there. */
Test(bootstrap_wire, descriptors)
{
	static const unsigned char most[WIRE_TYPES] = {
		[WIRE_COMPLETE] = 1, [WIRE_EXCHANGE] = 1, [WIRE_RELAY] = 1
	};
	const struct wire_rules all = { ~0u, RANKS, BLOB };

	for (uint16_t type = WIRE_CHALLENGE; type < WIRE_TYPES; type++)
		for (uint16_t fds = 0; fds < 4; fds++) {
			bool blob = type == WIRE_ADD || type == WIRE_PRESENT;
			size_t tail = blob ? BLOB : type == WIRE_BREAK;
			struct wire_header h = {
				(uint32_t)(wire_fixed((enum wire_type)type) + tail), type, fds
			};
			int64_t size = wire_size(&all, &h, sizeof(h));

			if (fds <= most[type])
				cr_expect_eq(
					size, (int64_t)(sizeof(h) + h.length), "type %d", type);
			else
				cr_expect_eq(size, -EPROTO, "type %d, %d", type, fds);
		}
}

/* Types outside the set, and such as there are none. */
Test(bootstrap_wire, types)
{
	struct wire_header h = { 0, WIRE_BYE, 0 };

	for (unsigned type = 0; type < 40; type++) {
		struct wire_rules rules = { 1u << WIRE_BYE, RANKS, BLOB };

		h.type = (uint16_t)type;
		if (type == WIRE_BYE)
			cr_expect_eq(wire_size(&rules, &h, sizeof(h)), sizeof(h));
		else
			cr_expect_eq(wire_size(&rules, &h, sizeof(h)), -EPROTO, "type %u", type);
	}
}

/* Nothing is taken, nor refused, of which not all is there. */
Test(bootstrap_wire, halves)
{
	const struct wire_rules all = { ~0u, RANKS, BLOB };
	struct wire_rank w = { 2, 7 };
	size_t n = frame(WIRE_ADD, &w, BLOB, 0);
	struct wire_message m;

	for (size_t k = 0; k < n; k++)
		cr_expect_eq(wire_parse(&all, bytes, k, &m), 0, "%zu bytes", k);
	cr_assert_eq(wire_parse(&all, bytes, n + 5, &m), (int64_t)n);
	cr_expect(m.type == WIRE_ADD && m.u.rank.rank == 2 && m.tail_size == BLOB);
}
