/* SPDX-License-Identifier: MIT */
/* Any bytes as what a hub or a process reads. What parses keeps its promises, and parses the same
   when it comes a byte at a time. */
#include <stdlib.h>
#include <string.h>

#include "spmt/bootstrap/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool promise)
{
	if (!promise)
		abort();
}

static void check_tail(const struct wire_rules *rules, const struct wire_message *m)
{
	switch (m->type) {
	case WIRE_ADD:
	case WIRE_PRESENT:
		need(m->tail_size == rules->blob_size);
		break;
	case WIRE_EXCHANGE:
	case WIRE_RELAY:
		need(m->tail_size <= WIRE_DATA);
		break;
	case WIRE_WORD:
		need(m->tail_size <= WIRE_WORDS);
		break;
	case WIRE_BREAK:
		need(m->tail_size >= 1 && m->tail_size < STATUS_SENTENCE);
		for (size_t i = 0; i < m->tail_size; i++)
			need(m->tail[i] >= ' ' && m->tail[i] != 127);
		break;
	default:
		need(!m->tail_size);
	}
}

static void check_fixed(const struct wire_rules *rules, const struct wire_message *m)
{
	uint32_t nranks = (uint32_t)rules->nranks;

	switch (m->type) {
	case WIRE_ADD:
	case WIRE_PRESENT:
	case WIRE_ABSENT:
		need(m->u.rank.rank < nranks && m->u.rank.member <= INT32_MAX &&
			m->u.rank.remote <= 1);
		break;
	case WIRE_VERDICT:
		need(m->u.verdict.rank < nranks && m->u.verdict.code <= 0);
		break;
	case WIRE_COMPLETE:
		need(m->u.complete.processes >= 1 && m->u.complete.processes <= nranks);
		break;
	case WIRE_RELAY:
		need(m->u.data.process < nranks);
		break;
	case WIRE_BREAK:
		need(m->u.broken.code < 0);
		break;
	default:
		need(m->type != WIRE_BYE || !m->has_fd);
	}
}

/* A message again from what was made of it: the same bytes. */
static void check_bytes(const struct wire_message *m, const uint8_t *bytes, size_t n)
{
	struct wire_header h = { (uint32_t)(wire_fixed(m->type) + m->tail_size), (uint16_t)m->type,
		m->has_fd };

	need(n == sizeof(h) + h.length && !memcmp(bytes, &h, sizeof(h)));
	need(!memcmp(bytes + sizeof(h), &m->u, wire_fixed(m->type)));
	need(m->tail == bytes + n - m->tail_size);
}

/* A part of the frame is a part of it, whatever follows. */
static void check_parts(const struct wire_rules *rules, const uint8_t *bytes, size_t n)
{
	struct wire_message m;

	for (size_t k = 0; k < n; k += 1 + k / 16) {
		int64_t got = wire_size(rules, bytes, k);

		need(!wire_parse(rules, bytes, k, &m));
		need(got == (k < sizeof(struct wire_header) ? 0 : (int64_t)n));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_rules rules;
	uint8_t *bytes;
	size_t n, at = 0;

	if (size < 5)
		return 0;
	rules.types = data[0] | (unsigned)data[1] << 8;
	rules.nranks = 1 + data[2];
	rules.blob_size = (data[3] | (unsigned)data[4] << 8) % (BOOTSTRAP_BLOB + 1);
	n = size - 5;
	bytes = malloc(n + !n);
	if (!bytes)
		return 0;
	memcpy(bytes, data + 5, n);
	while (at < n) {
		struct wire_message m;
		int64_t got = wire_parse(&rules, bytes + at, n - at, &m);

		if (got <= 0)
			break;
		need((uint64_t)got <= n - at && m.type < WIRE_TYPES && rules.types & 1u << m.type);
		check_tail(&rules, &m);
		check_fixed(&rules, &m);
		check_bytes(&m, bytes + at, (size_t)got);
		check_parts(&rules, bytes + at, (size_t)got);
		at += (size_t)got;
	}
	free(bytes);
	return 0;
}
