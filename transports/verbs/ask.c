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
	struct verbs_send *wr = post_next(c);

	*wr->sg_list = (struct verbs_sge){ (uintptr_t)at, (uint32_t)n, c->mr->lkey };
	wr->opcode = VERBS_WR_SEND;
	/* an ask wakes the peer's thread; who waits for an answer polls, or has its own wake with anything */
	wr->send_flags =
		(answer ? 0 : VERBS_SEND_SOLICITED) | (n <= c->inline_most ? VERBS_SEND_INLINE : 0);
	*post_known(c) = (struct sent){ .land = { .chunk = -1 }, .answer = answer };
	return post_send(c, answer);
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
	land->sender->mail++;
	return 0;
}

static void ask_ended(struct pairing *c, const struct answer_slot *slot)
{
	struct ask_slot *ask = &c->asks[++c->answered % CONN_ASKS];

	ask->land.sender->mail--;
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

/* ---- by the peer's thread, or by a port ------------------------------------------------------ */

/* What the last one found. */
static int sender_found(struct sender *sender, uint64_t *old, struct verbs_wait *wait)
{
	int rc = sender_wait(sender, true, wait);

	if (!rc)
		rc = sender_failure(sender, false);
	if (!rc)
		*old = sender->old;
	return rc;
}

static int sender_ask(struct sender *sender, struct rdma_place at, const struct amo *amo,
	uint64_t *old, struct verbs_wait *wait)
{
	struct work_room room = { .c = sender->conn, .ask = true };
	int rc = post_begin(&room, wait);

	if (rc)
		return rc;
	rc = ask_send(sender->conn,
		&(struct ask_message){ .kind = MESSAGE_ASK,
			.op = amo->op,
			.size = (uint32_t)amo->size,
			.key = at.key,
			.at = at.at,
			.operand = amo->operand,
			.compare = amo->compare },
		&(struct landing){ .sender = sender, .chunk = -1 }, old);
	sender->asked += !rc;
	pthread_mutex_unlock(&sender->conn->nic->lock);
	return rc || !old ? rc : sender_found(sender, old, wait);
}

/*
 * Atomics that a port does in the peer's memory, of words of 64 bit. Who does them is the peer's to say, once for all of its memory that
 * others may change, so that all who come by a port are of one mind:
 *
 * - BOTH: its port's atomics are atomic with its CPU's (IBV_ATOMIC_GLOB). What a port can do it does, and the CPU the rest. While
 *   something of the sender's is with the CPU, all goes there, for a port would be done before it.
 * - NIC: they are atomic among each other alone (IBV_ATOMIC_HCA), and the user wants them (SPMT_RDMA_ATOMICS=nic). Then the port does
 *   all of them: what it cannot do in one go is compared and swapped until nobody was in between.
 * - CPU: in all other cases (ask.h).
 */
enum { NATIVE_LATE = 1 }; /* no code: by message, then */
struct native {
	uint32_t opcode;
	uint64_t compare_add, swap;
};

/* False: no port does this in one go. */
static bool native_of(const struct amo *amo, struct native *native)
{
	*native = (struct native){ .opcode = VERBS_WR_ATOMIC_FETCH_AND_ADD };
	switch (amo->op) {
	case SPMT_AMO_FETCH:
		return true;
	case SPMT_AMO_INC:
	case SPMT_AMO_FETCH_INC:
		native->compare_add = 1;
		return true;
	case SPMT_AMO_ADD:
	case SPMT_AMO_FETCH_ADD:
		native->compare_add = amo->operand;
		return true;
	case SPMT_AMO_COMPARE_SWAP:
		*native =
			(struct native){ VERBS_WR_ATOMIC_CMP_AND_SWP, amo->compare, amo->operand };
		return true;
	default:
		return false;
	}
}

/*
 * Under the lock, behind a post. The device may be done, or nearly so: then there is nothing to wait for, nothing to lock again, and the
 * port's thread sleeps on. Nobody misses what comes meanwhile: polling tells all who wait, as it does in nic_wait, and what is owed to peers
 * is left to the thread. Few looks, for others want the lock. False: it is not there yet, or has failed.
 */
enum { FETCH_LOOKS = 8 };
static bool native_look(const struct sender *sender, uint64_t *old)
{
	struct nic *nic = sender->conn->nic;

	for (int i = 0; i < FETCH_LOOKS && sender->answered != sender->asked; i++)
		nic_poll(nic);
	if (nic->owing)
		nic_look_out(nic);
	if (sender->answered != sender->asked || sender->code)
		return false;
	*old = sender->old;
	return true;
}

/* *there: it is done, and *old what it found. */
static int native_post(struct sender *sender, const struct rdma_place *at,
	const struct native *native, uint64_t *old, bool *there, struct verbs_wait *wait)
{
	bool asks = old != NULL;
	struct pairing *c = sender->conn;
	struct work_room room = { .c = c };
	struct verbs_send *wr;
	int rc = post_begin(&room, wait);

	if (rc)
		return rc;
	if (at->atomics == RDMA_ATOMICS_BOTH && sender->mail) {
		pthread_mutex_unlock(&c->nic->lock);
		return NATIVE_LATE;
	}
	wr = post_next(c);
	*wr->sg_list = (struct verbs_sge){ (uintptr_t)native_word(c, c->tail), sizeof(uint64_t),
		c->mr->lkey };
	wr->opcode = native->opcode;
	wr->wr.atomic.remote_addr = at->at;
	wr->wr.atomic.compare_add = native->compare_add;
	wr->wr.atomic.swap = native->swap;
	wr->wr.atomic.rkey = at->key;
	*post_known(c) = (struct sent){
		.land = { .sender = sender, .chunk = -1 }, .native = true, .asks = asks
	};
	rc = post_send(c, asks);
	if (!rc) {
		sender->asked++;
		c->natives++;
		*there = asks && native_look(sender, old);
	}
	pthread_mutex_unlock(&c->nic->lock);
	return rc;
}

/* old NULL: it is in flight on return. */
static int native_do(struct sender *sender, const struct rdma_place *at,
	const struct native *native, uint64_t *old, struct verbs_wait *wait)
{
	bool there = false;
	int rc = native_post(sender, at, native, old, &there, wait);

	return rc || !old || there ? rc : sender_found(sender, old, wait);
}

static int native_loop(struct sender *sender, const struct rdma_place *at, const struct amo *amo,
	uint64_t *old, struct verbs_wait *wait)
{
	struct native look = { .opcode = VERBS_WR_ATOMIC_FETCH_AND_ADD };
	uint64_t found, seen, next;
	int rc = native_do(sender, at, &look, &found, wait);

	do {
		if (rc)
			return rc;
		next = seen = found;
		amo_do(&next, amo);
		if (next == seen)
			break;
		rc = native_do(sender, at,
			&(struct native){ VERBS_WR_ATOMIC_CMP_AND_SWP, seen, next }, &found, wait);
	} while (rc || found != seen);
	if (old)
		*old = seen;
	return 0;
}

int sender_atomic(struct sender *sender, struct rdma_place at, const struct amo *amo, uint64_t *old,
	struct verbs_wait *wait)
{
	const struct nic *nic = sender->conn->nic;
	bool can = nic->place.device.atomic_cap != VERBS_ATOMIC_NONE;
	struct native native;
	int rc = NATIVE_LATE;

	if (amo->size != sizeof(uint64_t) || at.atomics == RDMA_ATOMICS_CPU)
		return sender_ask(sender, at, amo, old, wait);
	if (!can && at.atomics == RDMA_ATOMICS_NIC)
		return fail(SPMT_ERR_UNSUPPORTED,
			"%s has no atomics, and in the peer's memory its device does them (SPMT_RDMA_ATOMICS)",
			nic->place.name);
	if (can && native_of(amo, &native))
		rc = native_do(sender, &at, &native, old, wait);
	if (rc != NATIVE_LATE)
		return rc;
	return at.atomics == RDMA_ATOMICS_NIC ? native_loop(sender, &at, amo, old, wait)
					      : sender_ask(sender, at, amo, old, wait);
}
