/* SPDX-License-Identifier: MIT */
/*
 * Who of a broken comm over several nodes goes on: ranks say to the hub that they want to, and the hub decides, once all others have
 * said so too, have left, or have died with their process; or once one that has come waits no longer. Who is not in a decision is
 * not asked again.
 */
#include <errno.h>
#include <string.h>

#include "hub_state.h"
#include "socket.h"
#include "src/base/mem.h"

/* A rank of the comm. */
struct roll_rank {
	uint32_t world; /* its number there */
	bool come, left, out;
};

struct roll {
	struct roll *next;
	uint64_t comm, decided; /* decided: how many times */
	uint32_t n, left;
	bool wanted;			 /* somebody has come since */
	struct bootstrap_joined *joined; /* the last decision, NULL: none */
	struct roll_rank ranks[];
};

static size_t joined_size(uint32_t n)
{
	return sizeof(struct bootstrap_joined) + (n + 63) / 64 * sizeof(uint64_t);
}

static void roll_free(struct roll **at)
{
	struct roll *r = *at;

	*at = r->next;
	mem_free(r->joined);
	mem_free(r);
}

void rolls_drop(struct hub *hub)
{
	while (hub->rolls)
		roll_free(&hub->rolls);
}

static struct roll **roll_find(struct hub *hub, uint64_t comm)
{
	struct roll **at = &hub->rolls;

	while (*at && (*at)->comm != comm)
		at = &(*at)->next;
	return at;
}

static struct roll *roll_make(struct roll **at, const struct bootstrap_word *w)
{
	struct roll *r = mem_calloc(1, sizeof(*r) + w->parts * sizeof(r->ranks[0]));

	if (!r)
		return NULL;
	r->comm = w->comm;
	r->n = w->parts;
	for (uint32_t i = 0; i < r->n; i++)
		r->ranks[i].world = i;
	*at = r;
	return r;
}

/* ---- who lives ------------------------------------------------------------------------------- */

static struct member *roll_member(const struct hub *hub, const struct roll_rank *rank)
{
	struct member *m = hub->members;

	while (m && (m->state != MEMBER_READY || (int64_t)m->id != hub->owner[rank->world]))
		m = m->next;
	return m;
}

/* Is nobody missing who might still come? */
static bool roll_is_full(const struct hub *hub, const struct roll *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		const struct roll_rank *rank = &r->ranks[i];

		if (!rank->come && !rank->left && !rank->out && roll_member(hub, rank))
			return false;
	}
	return true;
}

/* ---- the decision ---------------------------------------------------------------------------- */

static void place_of(const struct hub *hub, const struct member *m, struct uid_place *place)
{
	const struct uid *uid = hub->config->uid;

	if (m->conn.remote) {
		socket_place(m->conn.fd, place);
		return;
	}
	*place = (struct uid_place){ .family = uid->family, .scope = uid->scope };
	memcpy(place->address, uid->address, sizeof(place->address));
}

static void joined_send(const struct roll *r, struct member *m)
{
	const struct bootstrap_word w = {
		.comm = r->comm, .epoch = r->decided, .kind = WORD_JOINED, .parts = r->n
	};

	conn_send(&m->conn, WIRE_WORD, &w, r->joined, joined_size(r->n), -1);
}

static int roll_decide(struct hub *hub, struct roll *r)
{
	struct bootstrap_joined *joined = mem_calloc(1, joined_size(r->n));
	bool any = false;

	if (!joined)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->n; i++) {
		struct roll_rank *rank = &r->ranks[i];
		const struct member *m = rank->come && !rank->out ? roll_member(hub, rank) : NULL;

		rank->come = false;
		rank->out = !m;
		if (m && !any)
			place_of(hub, m, &joined->place);
		any |= m != NULL;
		if (m)
			joined->set[i / 64] |= 1ull << i % 64;
	}
	mem_free(r->joined);
	r->joined = joined;
	r->decided++;
	r->wanted = false;
	for (struct member *m = hub->members; m; m = m->next)
		if (m->state == MEMBER_READY && m->process >= 0)
			joined_send(r, m);
	return 0;
}

void rolls_look(struct hub *hub)
{
	if (hub->called == hub->nmembers)
		return;
	hub->called = hub->nmembers;
	for (struct roll *r = hub->rolls; r; r = r->next)
		if (r->wanted && roll_is_full(hub, r))
			(void)roll_decide(hub, r); /* without memory their deadlines do */
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void roll_left(struct hub *hub, const struct bootstrap_word *w)
{
	struct roll **at = roll_find(hub, w->comm), *r = *at ? *at : roll_make(at, w);

	if (!r || r->n != w->parts || r->ranks[w->part].left)
		return;
	r->ranks[w->part].left = true;
	if (++r->left == r->n)
		roll_free(at);
	else if (r->wanted && roll_is_full(hub, r))
		(void)roll_decide(hub, r);
}

/* False: not what any process of ours says. */
static bool roll_number(const struct hub *hub, struct roll *r, const struct wire_message *msg)
{
	uint32_t world;

	if (msg->u.word.parts != r->n || (msg->tail_size && msg->tail_size != r->n * sizeof(world)))
		return false;
	for (uint32_t i = 0; i < r->n && msg->tail_size; i++) {
		memcpy(&world, msg->tail + i * sizeof(world), sizeof(world));
		if (world >= (uint32_t)hub->config->nranks)
			return false;
		r->ranks[i].world = world;
	}
	return true;
}

static int roll_join(struct hub *hub, struct member *m, const struct wire_message *msg)
{
	const struct bootstrap_word *w = &msg->u.word;
	struct roll **at = roll_find(hub, w->comm), *r = *at ? *at : roll_make(at, w);

	if (!r)
		return -ENOMEM;
	if (!roll_number(hub, r, msg) || w->epoch > r->decided + 1)
		return 0;
	if (w->epoch <= r->decided) {
		joined_send(r, m);
		return 0;
	}
	r->wanted = r->ranks[w->part].come = true;
	return w->kind == WORD_HASTE || roll_is_full(hub, r) ? roll_decide(hub, r) : 0;
}

int roll_hear(struct hub *hub, struct member *m, const struct wire_message *msg)
{
	if (msg->u.word.kind != WORD_LEAVE)
		return roll_join(hub, m, msg);
	roll_left(hub, &msg->u.word);
	return 0;
}
