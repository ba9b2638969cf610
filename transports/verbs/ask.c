/* SPDX-License-Identifier: MIT */
#include "ask.h"

#include <errno.h>
#include <string.h>

#include "memory.h"
#include "post.h"
#include "src/base/status.h"
#include "src/base/tsan.h"
#include "stage.h"

enum { MESSAGE_ANSWER = 0x616e7321 };
_Static_assert(sizeof(struct ask_message) <= ASK_BYTES, "an ask fits its buffer");

struct answer_message {
	uint32_t kind, n;
	uint64_t first;
	struct answer_slot slots[CONN_ASKS];
};
_Static_assert(sizeof(struct answer_message) <= ASK_BUFFER, "an answer fits its buffer");

/* ---- asking --------------------------------------------------------------------------------- */

/* n bytes of this connection's messages. */
static int message_send(struct pairing *c, const char *at, size_t n, bool answer)
{
	struct verbs_sge sge = {
		.addr = (uintptr_t)at, .length = (uint32_t)n, .lkey = c->mr->lkey
	};
	/* an ask wakes the peer's thread; who waits for an answer polls, or has its own wake with anything */
	struct verbs_send wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = VERBS_WR_SEND,
		.send_flags = answer ? 0 : VERBS_SEND_SOLICITED };

	if (n <= c->inline_most)
		wr.send_flags |= VERBS_SEND_INLINE;
	return post_send(
		c, &wr, &(struct sent){ .land = { .chunk = -1 }, .answer = answer }, answer);
}

int ask_send(
	struct pairing *c, const struct ask_message *what, const struct landing *land, bool asks)
{
	uint64_t number = c->asked + 1;
	char *buffer = ask_buffer(c, ASK_BUFFERS + CONN_ANSWERS) + number % CONN_ASKS * ASK_BYTES;
	struct ask_message ask = *what;
	int rc;

	ask.number = number;
	memcpy(buffer, &ask, sizeof(ask));
	rc = message_send(c, buffer, sizeof(ask), false);
	if (rc)
		return rc;
	c->asked = number;
	c->asks[number % CONN_ASKS] = (struct ask_slot){ .land = *land, .asks = asks };
	return 0;
}

static void ask_ended(struct pairing *c, const struct answer_slot *slot)
{
	struct ask_slot *ask = &c->asks[++c->answered % CONN_ASKS];

	if (ask->asks)
		ask->land.sender->old = slot->old;
	landing_end(c, &ask->land, (int)slot->code, true);
}

void asks_fail(struct pairing *c)
{
	while (c->answered != c->asked)
		ask_ended(c, &(struct answer_slot){ .code = c->code });
}

/* ---- answering ------------------------------------------------------------------------------ */

bool ask_is_atomic(const struct ask_message *ask)
{
	return ask->kind == MESSAGE_ASK && ask->op <= SPMT_AMO_FETCH_XOR &&
		(ask->size == 4 || ask->size == 8) && !(ask->at % ask->size);
}

struct answer_slot ask_do(struct pairing *c, const struct ask_message *ask)
{
	struct amo amo = { .op = (enum spmt_amo)ask->op,
		.size = ask->size,
		.operand = ask->operand,
		.compare = ask->compare };
	struct answer_slot slot = { .code = 0 };
	void *word = (void *)(uintptr_t)ask->at;

	if (!ask_is_atomic(ask) || !region_keyed(c->nic, ask->key, ask->at, ask->size)) {
		slot.code = -EFAULT;
		return slot;
	}
	tsan_release(word);
	slot.old = amo_do(word, &amo);
	tsan_acquire(word);
	return slot;
}

void ask_served(struct pairing *c)
{
	c->served++;
	if (c->owes)
		return;
	c->owes = true;
	c->next_owing = c->nic->owing;
	c->nic->owing = c;
}

static void ask_serve(struct pairing *c, const struct ask_message *ask)
{
	if (ask->number != c->heard + 1 || c->heard - c->told >= CONN_ASKS) {
		pairing_fail(c, -EPROTO, "the peer asks out of order");
		return;
	}
	c->heard++;
	if (stage_takes(c, ask)) {
		stage_serve(c, ask);
		return;
	}
	c->answers[ask->number % CONN_ASKS] = ask_do(c, ask);
	ask_served(c);
}

static int answer_send(struct pairing *c)
{
	char *buffer = ask_buffer(c, ASK_BUFFERS + c->answers_sent % CONN_ANSWERS);
	struct answer_message answer = { .kind = MESSAGE_ANSWER, .first = c->told + 1 };
	size_t size;
	int rc;

	for (uint64_t number = answer.first; number <= c->served; number++)
		answer.slots[answer.n++] = c->answers[number % CONN_ASKS];
	size = offsetof(struct answer_message, slots) + answer.n * sizeof(answer.slots[0]);
	memcpy(buffer, &answer, size);
	rc = message_send(c, buffer, size, true);
	if (rc)
		return rc;
	c->told = c->served;
	c->answers_sent++;
	c->answering++;
	return 0;
}

void asks_answer(struct nic *nic)
{
	struct pairing **at = &nic->owing;

	while (*at) {
		struct pairing *c = *at;

		if (c->state != CONN_FAILED && c->answering < CONN_ANSWERS) {
			int rc = answer_send(c);

			if (rc)
				pairing_fail_last(c, rc);
		}
		c->owes = c->state != CONN_FAILED && c->told != c->served;
		if (c->owes)
			at = &c->next_owing;
		else
			*at = c->next_owing;
	}
}

/* ---- hearing -------------------------------------------------------------------------------- */

static void answer_take(struct pairing *c, const struct answer_message *answer)
{
	if (answer->first != c->answered + 1 || answer->n > c->asked - c->answered) {
		pairing_fail(c, -EPROTO, "the peer answers what it was not asked");
		return;
	}
	for (uint32_t i = 0; i < answer->n; i++)
		ask_ended(c, &answer->slots[i]);
}

static void message_take(struct pairing *c, const char *buffer, uint32_t size)
{
	struct ask_message ask = { .kind = 0 };
	struct answer_message answer;

	memcpy(&ask, buffer, MIN_OF(size, sizeof(ask)));
	if (size == sizeof(ask) &&
		(ask.kind == MESSAGE_ASK || ask.kind == MESSAGE_TAKE || ask.kind == MESSAGE_GIVE)) {
		ask_serve(c, &ask);
		return;
	}
	memcpy(&answer, buffer, MIN_OF(size, sizeof(answer)));
	if (ask.kind == MESSAGE_ANSWER && size >= offsetof(struct answer_message, slots) &&
		answer.n <= CONN_ASKS &&
		size == offsetof(struct answer_message, slots) + answer.n * sizeof(answer.slots[0]))
		answer_take(c, &answer);
	else
		pairing_fail(c, -EPROTO, "the peer sends what is no message");
}

void ask_heard(struct pairing *c, uint32_t at, const struct verbs_wc *wc)
{
	int rc;

	if (at >= ASK_BUFFERS || c->state == CONN_FAILED)
		return;
	if (wc->status != VERBS_WC_SUCCESS) {
		pairing_blame(c, wc);
		return;
	}
	c->state = CONN_READY;
	message_take(c, ask_buffer(c, at), wc->byte_len);
	rc = c->state == CONN_FAILED ? 0 : pairing_listen(c, at);
	if (rc)
		pairing_fail_last(c, rc);
}
