/* SPDX-License-Identifier: MIT */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "src/base/blake2s.h"

enum tail { TAIL_NONE, TAIL_BLOB, TAIL_DATA, TAIL_TEXT, TAIL_WORDS };

static const struct {
	unsigned char fixed, fds; /* fds: the most */
	enum tail tail;
} types[WIRE_TYPES] = {
	[WIRE_CHALLENGE] = { sizeof(struct wire_challenge), 0, TAIL_NONE },
	[WIRE_HELLO] = { sizeof(struct wire_hello), 0, TAIL_NONE },
	[WIRE_WELCOME] = { sizeof(struct wire_welcome), 0, TAIL_NONE },
	[WIRE_ADD] = { sizeof(struct wire_rank), 0, TAIL_BLOB },
	[WIRE_VERDICT] = { sizeof(struct wire_verdict), 0, TAIL_NONE },
	[WIRE_PRESENT] = { sizeof(struct wire_rank), 0, TAIL_BLOB },
	[WIRE_ABSENT] = { sizeof(struct wire_rank), 0, TAIL_NONE },
	[WIRE_COMPLETE] = { sizeof(struct wire_complete), 1, TAIL_NONE },
	[WIRE_EXCHANGE] = { sizeof(struct wire_data), 1, TAIL_DATA },
	[WIRE_RELAY] = { sizeof(struct wire_data), 1, TAIL_DATA },
	[WIRE_BREAK] = { sizeof(struct wire_break), 0, TAIL_TEXT },
	[WIRE_BYE] = { 0, 0, TAIL_NONE },
	[WIRE_WORD] = { sizeof(struct bootstrap_word), 0, TAIL_WORDS },
	[WIRE_PING] = { 0, 0, TAIL_NONE },
	[WIRE_RETURN] = { sizeof(struct wire_return), 0, TAIL_NONE },
};

size_t wire_fixed(enum wire_type type)
{
	return types[type].fixed;
}

static bool length_fits(const struct wire_rules *rules, const struct wire_header *h)
{
	size_t tail;

	if (h->length < types[h->type].fixed)
		return false;
	tail = h->length - types[h->type].fixed;
	switch (types[h->type].tail) {
	case TAIL_BLOB:
		return tail == rules->blob_size;
	case TAIL_DATA:
		return tail <= WIRE_DATA;
	case TAIL_WORDS:
		return tail <= WIRE_WORDS;
	case TAIL_TEXT:
		return tail >= 1 && tail < STATUS_SENTENCE;
	default:
		return !tail;
	}
}

int64_t wire_size(const struct wire_rules *rules, const void *bytes, size_t n)
{
	struct wire_header h;

	if (n < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	if (h.type >= WIRE_TYPES || !(rules->types & 1u << h.type) || h.fds > types[h.type].fds ||
		!length_fits(rules, &h))
		return -EPROTO;
	return (int64_t)sizeof(h) + h.length;
}

/* Sentences are shown to people: no control characters. */
static bool text_is_clean(const unsigned char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_control((char)text[i]))
			return false;
	return true;
}

static bool word_makes_sense(const struct wire_rules *rules, const struct wire_message *m)
{
	const struct bootstrap_word *w = &m->u.word;

	if (!w->kind || w->kind >= WORD_KINDS || w->parts > (uint32_t)rules->nranks)
		return false;
	if (w->kind == WORD_BREAK)
		return w->code < 0 && m->tail_size && m->tail_size < STATUS_SENTENCE &&
			text_is_clean(m->tail, m->tail_size);
	return w->parts && w->part < w->parts;
}

static bool makes_sense(const struct wire_rules *rules, const struct wire_message *m)
{
	uint32_t nranks = (uint32_t)rules->nranks;

	switch (m->type) {
	case WIRE_ADD:
	case WIRE_PRESENT:
	case WIRE_ABSENT:
		return m->u.rank.rank < nranks && m->u.rank.member <= INT32_MAX &&
			m->u.rank.remote <= 1;
	case WIRE_VERDICT:
		return m->u.verdict.rank < nranks && m->u.verdict.code <= 0;
	case WIRE_COMPLETE:
		return m->u.complete.processes >= 1 && m->u.complete.processes <= nranks &&
			m->u.complete.remote <= 1;
	case WIRE_RELAY:
		return m->u.data.process < nranks;
	case WIRE_RETURN:
		return m->u.back.process < nranks;
	case WIRE_BREAK:
		return m->u.broken.code < 0 && text_is_clean(m->tail, m->tail_size);
	case WIRE_WELCOME:
		return m->u.welcome.code <= 0 && m->u.welcome.nranks <= INT32_MAX;
	case WIRE_HELLO:
		return m->u.hello.nranks <= INT32_MAX;
	case WIRE_WORD:
		return word_makes_sense(rules, m);
	default:
		return true;
	}
}

int64_t wire_parse(
	const struct wire_rules *rules, const void *bytes, size_t n, struct wire_message *message)
{
	const unsigned char *at = (const unsigned char *)bytes + sizeof(struct wire_header);
	int64_t size = wire_size(rules, bytes, n);
	struct wire_message m = { .type = WIRE_BYE };
	struct wire_header h;

	if (size < 0 || (uint64_t)size > n)
		return size < 0 ? size : 0;
	if (!size)
		return 0;
	memcpy(&h, bytes, sizeof(h));
	m.type = (enum wire_type)h.type;
	m.has_fd = h.fds;
	memcpy(&m.u, at, types[h.type].fixed);
	m.tail = at + types[h.type].fixed;
	m.tail_size = h.length - types[h.type].fixed;
	if (!makes_sense(rules, &m))
		return -EPROTO;
	*message = m;
	return size;
}

/* ---- proofs -------------------------------------------------------------------------------- */

/* `label` separates the uses of the secret. */
static void prove(const struct uid *uid, const char label[16], const unsigned char *nonce,
	const void *said, size_t size, unsigned char proof[WIRE_PROOF])
{
	const struct blake2s_part parts[] = { { label, 16 }, { nonce, WIRE_NONCE },
		{ said, size } };

	blake2s(uid->secret, sizeof(uid->secret), parts, ARRAY_SIZE(parts), proof, WIRE_PROOF);
}

void wire_prove_hello(const struct uid *uid, const struct wire_challenge *challenge,
	const struct wire_hello *hello, unsigned char proof[WIRE_PROOF])
{
	prove(uid, "spmt boot hello", challenge->nonce, hello, offsetof(struct wire_hello, proof),
		proof);
}

/* The hello's own proof stands for both nonces. */
void wire_prove_welcome(const struct uid *uid, const struct wire_hello *hello,
	const struct wire_welcome *welcome, unsigned char proof[WIRE_PROOF])
{
	const struct blake2s_part parts[] = { { "spmt boot answer", 16 },
		{ hello->proof, WIRE_PROOF }, { hello->nonce, WIRE_NONCE },
		{ welcome, offsetof(struct wire_welcome, proof) } };

	blake2s(uid->secret, sizeof(uid->secret), parts, ARRAY_SIZE(parts), proof, WIRE_PROOF);
}

void wire_name(const struct uid *uid, int rank, unsigned number, char name[WIRE_NAME])
{
	const int32_t whose[] = { rank, (int32_t)number };
	const struct blake2s_part parts[] = { { rank < 0 ? "spmt socket name" : "spmt member name",
						      16 },
		{ uid->id, sizeof(uid->id) }, { whose, sizeof(whose) } };
	unsigned char digest[16];

	blake2s(uid->secret, sizeof(uid->secret), parts, ARRAY_SIZE(parts), digest, sizeof(digest));
	memcpy(name, "spmt-", 6);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(name + 5 + 2 * i, 3, "%02x", digest[i]);
	if (rank >= 0)
		snprintf(name + 37, WIRE_NAME - 37, ".%d.%u", rank, number);
}

void wire_cause(const struct wire_message *message, struct cause *cause)
{
	memset(cause, 0, sizeof(*cause));
	cause->code = message->u.broken.code;
	cause->call = message->u.broken.call;
	memcpy(cause->sentence, message->tail, MIN_OF(message->tail_size, STATUS_SENTENCE - 1));
}

/* ---- sentences ----------------------------------------------------------------------------- */

void say_ranks(char *sentence, size_t size, int nranks, bool (*test)(const void *ctx, int rank),
	const void *ctx)
{
	size_t used = strlen(sentence);
	const char *comma = "";

	for (int r = 0; r < nranks; r++) {
		if (!test(ctx, r))
			continue;
		if (used + 20 > size) {
			snprintf(sentence + used, size - used, ", ..");
			return;
		}
		used += (size_t)snprintf(sentence + used, size - used, "%s %d", comma, r);
		comma = ",";
	}
}
