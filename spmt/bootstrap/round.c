/* SPDX-License-Identifier: MIT */
/* What processes pass each other by the hub: rounds of exchanges, of which at most two are under way at a time; and words of meetings. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "src/base/mem.h"

int rounds_make(struct client *c)
{
	for (int i = 0; i < 2; i++) {
		c->rounds[i].parts = mem_calloc((size_t)c->processes, sizeof(struct part));
		if (!c->rounds[i].parts)
			return fail_call(-ENOMEM, "spmt_init", "out of memory for %d processes",
				c->processes);
		for (int p = 0; p < c->processes; p++)
			c->rounds[i].parts[p].fd = -1;
	}
	return 0;
}

void client_exchange(struct client *c, const void *data, size_t size, int fd)
{
	struct wire_data w = { ++c->begun, 0 };

	conn_send(&c->conn, WIRE_EXCHANGE, &w, data, size, fd);
}

struct round *client_round(struct client *c, uint32_t round)
{
	return &c->rounds[round & 1];
}

/* A fast process may be one round ahead, never two: the round between needs this one. */
int round_take(struct client *c, const struct wire_message *m, int *fd)
{
	struct round *round = client_round(c, m->u.data.round);
	uint32_t ahead = m->u.data.round - c->taken;
	struct part *part;

	if (ahead < 1 || ahead > 2 || m->u.data.process >= (uint32_t)c->processes ||
		round->parts[m->u.data.process].here)
		return fail_call(-EPROTO, "spmt_init", "an exchange out of order");
	part = &round->parts[m->u.data.process];
	part->data = mem_calloc(1, MAX_OF(m->tail_size, 1));
	if (!part->data)
		return fail_call(-ENOMEM, "spmt_init", "out of memory for an exchange of %zu bytes",
			m->tail_size);
	memcpy(part->data, m->tail, m->tail_size);
	part->size = m->tail_size;
	part->fd = *fd;
	*fd = -1;
	part->here = true;
	round->have++;
	return 0;
}

void round_empty(struct round *round, int processes)
{
	for (int p = 0; round->parts && p < processes; p++) {
		struct part *part = &round->parts[p];

		if (part->fd >= 0)
			close(part->fd);
		mem_free(part->data);
		*part = (struct part){ .fd = -1 };
	}
	round->have = 0;
}

/* ---- words ---------------------------------------------------------------------------------- */

int client_say(struct client *c, const struct bootstrap_word *word, const void *data, size_t size)
{
	if (c->state != CLIENT_READY)
		return SPMT_ERR_PEER_DEAD;
	conn_send(&c->conn, WIRE_WORD, word, data, size, -1);
	return 0;
}

int heard_keep(struct client *c, const struct wire_message *m)
{
	struct heard *h = mem_calloc(1, sizeof(*h) + m->tail_size);

	if (!h)
		return fail_call(-ENOMEM, "spmt_init",
			"out of memory for %zu bytes of a meeting between nodes", m->tail_size);
	h->word = m->u.word;
	h->size = m->tail_size;
	memcpy(h->data, m->tail, m->tail_size);
	if (c->heard_last)
		c->heard_last->next = h;
	else
		c->heard = h;
	c->heard_last = h;
	return 0;
}

struct heard *heard_take(struct client *c)
{
	struct heard *h = c->heard;

	if (!h)
		return NULL;
	c->heard = h->next;
	if (!c->heard)
		c->heard_last = NULL;
	return h;
}

/* ---- being there ------------------------------------------------------------------------------ */

bool client_pings(const struct client *c)
{
	return c->remote && c->conn.fd >= 0 && !c->conn.ended;
}

void client_ping(struct client *c, int64_t now)
{
	if (!client_pings(c) || now < c->ping)
		return;
	c->ping = now + PING_NS;
	conn_look(&c->conn, now);
	if (c->complete)
		conn_ping(&c->conn);
}
