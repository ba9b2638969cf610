/* SPDX-License-Identifier: MIT */
/*
 * Atomics and signals, and how they are asked of the peer's thread, which does them with the CPU: by messages behind the writes of the
 * same connection, served and answered in order; an answer is for all that have been served since the last. Ports do some
 * themselves, where those are atomic with the CPU's or nobody's else (sender_atomic).
 */
#ifndef SPMT_VERBS_ASK_H
#define SPMT_VERBS_ASK_H

#include "conn.h"
#include "transports/amo.h"

#define ASK_BUFFERS (2 * CONN_ASKS) /* that may come: asks, and answers to ours */
#define ASK_BUFFER 576u
#define ASK_BYTES 64u
#define NATIVE_AT ((size_t)(ASK_BUFFERS + CONN_ANSWERS) * ASK_BUFFER + CONN_ASKS * ASK_BYTES)
#define ASK_ROOM (NATIVE_AT + CONN_RING * sizeof(uint64_t))

/* All of these under the lock. */

static inline char *ask_buffer(const struct pairing *c, uint32_t at)
{
	return c->messages + (size_t)at * ASK_BUFFER;
}

/* Where an atomic of the port's, the work request `at`, puts what it found. */
static inline uint64_t *native_word(const struct pairing *c, uint32_t at)
{
	return (uint64_t *)(void *)(c->messages + NATIVE_AT) + at % CONN_RING;
}

/* There is room: c->asked - c->answered < CONN_ASKS. ask->number is filled in. asks: the sender wants what was there. */
int ask_send(
	struct pairing *c, const struct ask_message *what, const struct landing *land, bool asks);
/* Something has come from the peer. */
void ask_heard(struct pairing *c, uint32_t at, const struct verbs_wc *wc);
/* Whether it says of an atomic what there is. */
bool ask_is_atomic(const struct ask_message *ask);
/* An atomic by the CPU. */
struct answer_slot ask_do(struct pairing *c, const struct ask_message *ask);
/* One more is done, in order: its answer is in c->answers. */
void ask_served(struct pairing *c);
/* Tells the peers what has been served for them. */
void asks_answer(struct nic *nic);
/* The connection has failed: no answer comes. */
void asks_fail(struct pairing *c);

#endif
