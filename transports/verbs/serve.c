/* SPDX-License-Identifier: MIT */
/* What peers ask of memory that the CPU, or the port, does not reach; by the stager's thread. */
#include <errno.h>

#include "src/base/log.h"
#include "src/base/status.h"
#include "stage.h"
#include "transports/transport.h"

bool stage_takes(const struct pairing *c, const struct ask_message *ask)
{
	const struct region *r;

	if (!c->nic->stager)
		return false;
	if (ask->kind != MESSAGE_ASK || c->heard != c->served + 1)
		return true;
	r = region_keyed(c->nic, ask->key, ask->at, ask->size);
	return r && r->stage;
}

void stage_serve(struct pairing *c, const struct ask_message *ask)
{
	struct stager *st = c->nic->stager;

	c->serves[ask->number % CONN_ASKS] = (struct serve_slot){ .ask = *ask,
		.chunk = -1,
		.state = ask->kind == MESSAGE_TAKE ? SERVE_FETCH : SERVE_READY };
	if (!c->serving) {
		c->serving = true;
		c->next_serving = st->serving;
		st->serving = c;
	}
	pthread_cond_broadcast(&st->changed);
}

static void serve_chunk_give(struct nic *nic, int chunk)
{
	if (chunk < 0)
		return;
	nic->stager->free_chunks[nic->stager->nfree++] = chunk;
	pthread_cond_broadcast(&nic->stager->changed);
}

static int serve_chunk_take(struct nic *nic)
{
	return nic->stager->nfree ? nic->stager->free_chunks[--nic->stager->nfree] : -1;
}

static char *serve_chunk_at(const struct nic *nic, int chunk)
{
	return nic->stager->chunks + (size_t)chunk * NIC_CHUNK;
}

void stage_moved(struct pairing *c, const struct sent *sent, bool whole)
{
	struct serve_slot *slot = &c->serves[sent->serve % CONN_ASKS];

	if (sent->lent)
		serve_chunk_give(c->nic, sent->lent - 1);
	if (!sent->serve)
		return;
	if (whole && c->state != CONN_FAILED) {
		slot->state = SERVE_READY;
	} else {
		serve_chunk_give(c->nic, slot->chunk);
		slot->chunk = -1;
		slot->state = SERVE_DEAD;
	}
	pthread_cond_broadcast(&c->nic->stager->changed);
}

/* Between a chunk of the thread's and the peer's memory. */
static int serve_post(struct pairing *c, const struct serve_slot *slot, const struct sent *sent)
{
	bool take = slot->ask.kind == MESSAGE_TAKE;
	struct verbs_send *wr = post_next(c);

	*wr->sg_list = (struct verbs_sge){ (uintptr_t)serve_chunk_at(c->nic, slot->chunk),
		slot->ask.size, c->nic->stager->mr->lkey };
	wr->opcode = take ? VERBS_WR_RDMA_READ : VERBS_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = slot->ask.operand;
	wr->wr.rdma.rkey = (uint32_t)slot->ask.compare;
	*post_known(c) = *sent;
	return post_send(c, true);
}

/* Begins to fetch what it has room for. */
static bool serve_fetch(struct pairing *c)
{
	bool some = false;

	for (uint64_t n = c->served + 1; n <= c->heard && c->state != CONN_FAILED; n++) {
		struct serve_slot *slot = &c->serves[n % CONN_ASKS];
		int rc;

		if (slot->state != SERVE_FETCH)
			continue;
		if (slot->ask.size > NIC_CHUNK) {
			slot->state = SERVE_READY; /* and refused in its turn */
			continue;
		}
		slot->chunk = serve_chunk_take(c->nic);
		if (slot->chunk < 0)
			break;
		slot->state = SERVE_FETCHES;
		some = true;
		rc = serve_post(c, slot, &(struct sent){ .land = { .chunk = -1 }, .serve = n });
		if (rc) {
			serve_chunk_give(c->nic, slot->chunk);
			slot->chunk = -1;
			slot->state = SERVE_DEAD;
			pairing_fail_last(c, rc);
		}
	}
	return some;
}

/* With the region busy, not under the lock. */
static int serve_move(const struct region *r, struct serve_slot *slot, char *chunk)
{
	char *here = (char *)(uintptr_t)slot->ask.at;
	char *dst = slot->ask.kind == MESSAGE_TAKE ? here : chunk;
	const char *src = slot->ask.kind == MESSAGE_TAKE ? chunk : here;

	if (r->stage)
		return device_move(r->stage, dst, src, slot->ask.size);
	store_bytes(dst, src, slot->ask.size);
	return 0;
}

/* One that is ready: what is told to the peer. */
static struct answer_slot serve_do(struct pairing *c, struct serve_slot *slot)
{
	const struct ask_message *ask = &slot->ask;
	const struct region *r = region_keyed(c->nic, ask->key, ask->at, ask->size);
	struct answer_slot answer = { .code = -EFAULT };
	char *chunk = slot->chunk < 0 ? NULL : serve_chunk_at(c->nic, slot->chunk);

	if (!r || (ask->kind != MESSAGE_ASK && !chunk))
		return answer;
	if (ask->kind == MESSAGE_ASK && (!r->stage || !ask_is_atomic(ask)))
		return ask_do(c, ask);
	stage_busy(c->nic, r->stage, r);
	answer.code = ask->kind == MESSAGE_ASK ? device_atomic(r->stage, ask, &answer.old)
					       : serve_move(r, slot, chunk);
	stage_done(c->nic);
	if (answer.code == -ETIMEDOUT)
		slot->chunk = -1;
	if (answer.code)
		log_line(LOG_ERROR, "%s: for a peer: %s", c->nic->place.name, status_sentence());
	return answer;
}

/* What was read for a peer goes there, before the answer does. */
static void serve_give(struct pairing *c, struct serve_slot *slot)
{
	int rc = serve_post(
		c, slot, &(struct sent){ .land = { .chunk = -1 }, .lent = slot->chunk + 1 });

	if (rc)
		pairing_fail_last(c, rc);
	else
		slot->chunk = -1;
}

static bool serve_next(struct pairing *c)
{
	struct serve_slot *slot = &c->serves[(c->served + 1) % CONN_ASKS];
	struct answer_slot answer;

	if (c->served == c->heard || slot->state != SERVE_READY)
		return false;
	if (slot->ask.kind == MESSAGE_GIVE && slot->ask.size <= NIC_CHUNK) {
		slot->chunk = serve_chunk_take(c->nic);
		if (slot->chunk < 0)
			return false;
	}
	answer = serve_do(c, slot);
	if (c->state != CONN_FAILED && !answer.code && slot->ask.kind == MESSAGE_GIVE)
		serve_give(c, slot);
	serve_chunk_give(c->nic, slot->chunk);
	slot->chunk = -1;
	slot->state = SERVE_DEAD;
	if (c->state == CONN_FAILED)
		return true;
	c->answers[(c->served + 1) % CONN_ASKS] = answer;
	ask_served(c);
	asks_answer(c->nic);
	return true;
}

/* Nobody waits for them any more. What is being fetched ends by itself. */
static void serve_forget(struct pairing *c)
{
	for (; c->served != c->heard; c->served++) {
		struct serve_slot *slot = &c->serves[(c->served + 1) % CONN_ASKS];

		if (slot->state == SERVE_READY) {
			serve_chunk_give(c->nic, slot->chunk);
			slot->chunk = -1;
		}
		if (slot->state != SERVE_FETCHES)
			slot->state = SERVE_DEAD;
	}
}

bool serve_step(struct nic *nic)
{
	struct pairing **at = &nic->stager->serving;
	bool some = false, fetches = false;

	while (*at) {
		struct pairing *c = *at;

		if (c->state == CONN_FAILED)
			serve_forget(c);
		else
			fetches |= serve_fetch(c);
		some |= serve_next(c);
		/* the list may have grown, at its head */
		if (*at != c)
			break;
		c->serving = c->served != c->heard;
		if (c->serving)
			at = &c->next_serving;
		else
			*at = c->next_serving;
	}
	if (some || fetches)
		nic_look_out(nic);
	return some || fetches;
}
