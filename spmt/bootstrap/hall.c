/* SPDX-License-Identifier: MIT */
/*
 * Where nodes meet: what the hub keeps of comms whose ranks live on several. A hall is a comm's meetings; a roll, who of a broken comm
 * goes on: ranks say that they want to, and the hub decides, once all others have said so too, have left, or have died with their
 * process; or once one that has come waits no longer. Who is not in a decision is not asked again.
 */
#include <errno.h>
#include <string.h>

#include "hub_state.h"
#include "spmt/address/socket.h"
#include "src/base/mem.h"
#include "src/base/process.h"

#define ASK_NS 1000000000ll /* what a process gets to answer: one that is stopped never does */

/* What a node's ranks have brought so far. */
struct hall_part {
	bool come;     /* all of them have */
	uint32_t id;   /* the member that said so, and is told when it is open */
	int32_t ranks; /* whose data it is */
	size_t size;
	unsigned char *data;
};

/* Of one comm. */
struct hall {
	struct hall *next;
	uint64_t comm;
	uint64_t epoch;	       /* of the last meeting that somebody has come to */
	uint64_t opened, shut; /* the last of each kind */
	uint64_t noted;	       /* the last that is known to be open without this hub's doing */
	uint32_t question;     /* 0: none; else nobody has been told yet that it is shut */
	int64_t until;	       /* .. and then it ends */
	uint32_t parts, come, left;
	struct hall_part part[];
};

static void part_empty(struct hall_part *p)
{
	mem_free(p->data);
	*p = (struct hall_part){ .come = false };
}

static void hall_empty(struct hall *h)
{
	for (uint32_t i = 0; i < h->parts; i++)
		part_empty(&h->part[i]);
	h->come = 0;
}

static void hall_free(struct hall **at)
{
	struct hall *h = *at;

	*at = h->next;
	hall_empty(h);
	mem_free(h);
}

void halls_drop(struct hub *hub)
{
	while (hub->halls)
		hall_free(&hub->halls);
}

static struct hall **hall_find(struct hub *hub, uint64_t comm)
{
	struct hall **at = &hub->halls;

	while (*at && (*at)->comm != comm)
		at = &(*at)->next;
	return at;
}

static struct hall *hall_make(struct hall **at, const struct bootstrap_word *w)
{
	struct hall *h = mem_calloc(1, sizeof(*h) + w->parts * sizeof(h->part[0]));

	if (!h)
		return NULL;
	h->comm = w->comm;
	h->parts = w->parts;
	*at = h;
	return h;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* What the parts have brought, one behind the other. */
static unsigned char *hall_pack(const struct hall *h, size_t *size)
{
	unsigned char *all;
	size_t n = 0;

	for (uint32_t i = 0; i < h->parts; i++)
		n += h->part[i].size;
	if (n > WIRE_WORDS)
		return NULL;
	all = mem_calloc(1, MAX_OF(n, 1));
	*size = n;
	n = 0;
	for (uint32_t i = 0; all && i < h->parts; i++) {
		if (h->part[i].size)
			memcpy(all + n, h->part[i].data, h->part[i].size);
		n += h->part[i].size;
	}
	return all;
}

static int hall_open(struct hub *hub, struct hall *h)
{
	struct bootstrap_word w = {
		.comm = h->comm, .epoch = h->epoch, .kind = WORD_OPEN, .parts = h->parts
	};
	size_t size;
	unsigned char *all = hall_pack(h, &size);

	if (!all)
		return -ENOMEM;
	h->opened = h->epoch;
	for (struct member *m = hub->members; m; m = m->next)
		for (uint32_t i = 0; i < h->parts; i++)
			if (m->state == MEMBER_READY && h->part[i].id == m->id)
				conn_send(&m->conn, WIRE_WORD, &w, all, size, -1);
	mem_free(all);
	hall_empty(h);
	return 0;
}

static bool is_asked(const struct member *m)
{
	return m->state == MEMBER_READY && m->process >= 0;
}

/* to: NULL: all. */
static int hall_tell_shut(struct hub *hub, const struct hall *h, const struct member *to)
{
	struct bootstrap_word w = {
		.comm = h->comm, .epoch = h->shut, .kind = WORD_SHUT, .parts = h->parts
	};
	size_t size;
	unsigned char *all = hall_pack(h, &size);

	if (!all)
		return -ENOMEM;
	for (struct member *m = hub->members; m; m = m->next)
		if (is_asked(m) && (!to || m == to))
			conn_send(&m->conn, WIRE_WORD, &w, all, size, -1);
	mem_free(all);
	return 0;
}

/* Without data; to: NULL: all. */
static void hall_say(
	struct hub *hub, const struct hall *h, struct bootstrap_word w, const struct member *to)
{
	w.comm = h->comm;
	w.parts = h->parts;
	for (struct member *m = hub->members; m; m = m->next)
		if (is_asked(m) && (!to || m == to))
			conn_send(&m->conn, WIRE_WORD, &w, NULL, 0, -1);
}

static void hall_ask(struct hub *hub, struct hall *h, const struct member *to)
{
	const struct bootstrap_word w = {
		.epoch = h->shut, .kind = WORD_ASK, .question = h->question
	};

	hall_say(hub, h, w, to);
}

void halls_ask(struct hub *hub, const struct member *m)
{
	for (struct hall *h = hub->halls; h; h = h->next)
		if (h->question)
			hall_ask(hub, h, m);
}

/* It is open somewhere, and nodes did it themselves: so it is for all. */
static void hall_noted(struct hub *hub, struct hall *h, uint64_t epoch)
{
	h->noted = epoch;
	if (h->shut <= epoch)
		h->shut = h->question = 0;
	hall_say(hub, h, (struct bootstrap_word){ .epoch = epoch, .kind = WORD_NOTED }, NULL);
}

/* From m on, the first that has not answered. */
static const struct member *silent_from(const struct member *m, const struct hall *h)
{
	while (m && !(is_asked(m) && (int32_t)(m->answered - h->question) < 0))
		m = m->next;
	return m;
}

static void hall_tell_silent(struct hub *hub, const struct hall *h)
{
	struct bootstrap_word w = { .epoch = h->shut, .kind = WORD_SILENT };
	const struct member *m = hub->members;

	for (; (m = silent_from(m, h)); m = m->next) {
		w.question = (uint32_t)m->process;
		hall_say(hub, h, w, NULL);
	}
}

void halls_look(struct hub *hub, int64_t now)
{
	bool missed = hub_misses_any(hub);

	for (struct hall *h = hub->halls; h; h = h->next) {
		if (!h->question || missed || (now < h->until && silent_from(hub->members, h)))
			continue;
		hall_tell_silent(hub, h);
		h->question = 0;
		(void)hall_tell_shut(hub, h, NULL); /* without memory they do not hear who came */
	}
}

static void hall_reach(struct hall *h, uint64_t epoch)
{
	if (epoch <= h->epoch)
		return;
	hall_empty(h);
	h->epoch = epoch;
}

/* A rank gives up. What is open stays so, and it hears of that; else it will not open any more. */
static int hall_missed(struct hub *hub, struct hall *h, const struct member *m, uint64_t epoch)
{
	if (h->opened >= epoch)
		return 0;
	/* Whoever comes to a meeting, or misses one, has left those before. */
	if (h->question && h->shut < epoch)
		hall_noted(hub, h, h->shut);
	if (h->noted >= epoch || h->epoch > epoch) {
		hall_say(hub, h, (struct bootstrap_word){ .epoch = epoch, .kind = WORD_NOTED }, m);
		return 0;
	}
	if (h->shut >= epoch)
		return h->question ? 0 : hall_tell_shut(hub, h, m);
	hall_reach(h, epoch);
	h->shut = epoch;
	h->question = ++hub->questions;
	h->until = process_now() + ASK_NS;
	hall_ask(hub, h, NULL);
	return 0;
}

/* ---- what is said --------------------------------------------------------------------------- */

static int part_keep(struct hall_part *p, const struct wire_message *msg)
{
	unsigned char *data = mem_calloc(1, MAX_OF(msg->tail_size, 1));

	if (!data)
		return -ENOMEM;
	memcpy(data, msg->tail, msg->tail_size);
	mem_free(p->data);
	p->data = data;
	p->size = msg->tail_size;
	p->ranks = msg->u.word.code;
	return 0;
}

/* Some of a node's ranks have come, or all. */
static int hall_come(
	struct hub *hub, struct hall *h, const struct member *m, const struct wire_message *msg)
{
	const struct bootstrap_word *w = &msg->u.word;
	struct hall_part *p = &h->part[w->part];

	hall_reach(h, w->epoch);
	if (w->epoch != h->epoch || h->opened >= w->epoch || (p->come && w->kind != WORD_TOLD))
		return 0;
	if (w->kind != WORD_COME && w->code < p->ranks + (w->kind == WORD_SOME))
		return 0; /* another process of the node has told of as many; who is asked says more */
	if (part_keep(p, msg))
		return -ENOMEM;
	if (w->kind != WORD_COME)
		return 0;
	p->come = true;
	p->id = m->id;
	h->come++;
	return h->come == h->parts && h->shut != h->epoch ? hall_open(hub, h) : 0;
}

static void pass_on(struct hub *hub, const struct member *from, const struct wire_message *msg)
{
	for (struct member *m = hub->members; m; m = m->next)
		if (m != from && m->state == MEMBER_READY)
			conn_send(&m->conn, WIRE_WORD, &msg->u.word, msg->tail, msg->tail_size, -1);
}

/* Its process, which may be this one, will answer no more that a meeting is open there. */
static int hall_left(struct hub *hub, const struct bootstrap_word *w)
{
	struct hall **at = hall_find(hub, w->comm), *h = *at;
	const struct bootstrap_word first = { .comm = w->comm, .parts = w->question };

	if (!h && (!w->question || w->question > w->parts))
		return 0; /* not what any process of ours says */
	if (!h)
		h = hall_make(at, &first);
	if (!h)
		return -ENOMEM;
	if (w->epoch > h->noted && (hub->cause.code || (h->question && h->shut <= w->epoch)))
		hall_noted(hub, h, w->epoch);
	h->noted = MAX_OF(h->noted, w->epoch);
	if (++h->left == w->parts)
		hall_free(at);
	return 0;
}

/* ---- who goes on ------------------------------------------------------------------------------ */

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
	bool ripe;			 /* .. and nobody was missing in the last pass */
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

bool rolls_need_a_hub(const struct hub *hub)
{
	return hub->complete && hub->remote && hub->cause.code && !hub->decided;
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

		if (!rank->come && !rank->left && !rank->out &&
			(roll_member(hub, rank) || hub_misses_rank(hub, rank->world)))
			return false;
	}
	return true;
}

/* ---- the decision ---------------------------------------------------------------------------- */

void hub_place(const struct hub *hub, const struct member *m, struct uid_place *place)
{
	struct uid_place theirs = hub->place;

	if (m->conn.remote) {
		theirs = (struct uid_place){ 0 };
		socket_address(m->conn.fd, false, &theirs.at[0]);
	}
	*place = place_has(&hub->place, &theirs.at[0]) ? hub->place : theirs;
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
			hub_place(hub, m, &joined->place);
		any |= m != NULL;
		if (m)
			joined->set[i / 64] |= 1ull << i % 64;
	}
	mem_free(r->joined);
	r->joined = joined;
	r->decided++;
	r->wanted = false;
	hub->decided = true;
	for (struct member *m = hub->members; m; m = m->next)
		if (m->state == MEMBER_READY && m->process >= 0)
			joined_send(r, m);
	return 0;
}

/* In the pass behind that which found nobody missing: a death that came before the last word is read by then. */
void rolls_look(struct hub *hub)
{
	if (hub->called == hub->nmembers)
		return;
	hub->called = hub->nmembers;
	for (struct roll *r = hub->rolls; r; r = r->next) {
		bool full = r->wanted && roll_is_full(hub, r);

		if (full && r->ripe)
			(void)roll_decide(hub, r); /* without memory their deadlines do */
		else if (full)
			hub->called = 0;
		r->ripe = full && !r->ripe;
	}
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
	else
		hub->called = 0;
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
	if (!roll_number(hub, r, msg))
		return 0;
	/* The hub before this one may have decided some times, which not all have heard: all get the next decision. */
	if (hub->missed && !r->joined && w->epoch > r->decided)
		r->decided = w->epoch - 1;
	if (w->epoch > r->decided + 1)
		return 0;
	if (w->epoch <= r->decided && r->joined) {
		joined_send(r, m);
		return 0;
	}
	r->wanted = r->ranks[w->part].come = true;
	hub->called = 0;
	return w->kind == WORD_HASTE ? roll_decide(hub, r) : 0;
}

static int roll_hear(struct hub *hub, struct member *m, const struct wire_message *msg)
{
	if (msg->u.word.kind != WORD_LEAVE)
		return roll_join(hub, m, msg);
	roll_left(hub, &msg->u.word);
	return 0;
}

/* ---- hearing ---------------------------------------------------------------------------------- */

static int hall_told(struct hub *hub, struct member *m, const struct wire_message *msg)
{
	struct hall *h = *hall_find(hub, msg->u.word.comm);

	m->answered = msg->u.word.question;
	if (msg->u.word.kind == WORD_NOTED) {
		if (h && h->question && h->shut == msg->u.word.epoch)
			hall_noted(hub, h, h->shut);
		return 0;
	}
	return h && h->parts == msg->u.word.parts && h->shut == msg->u.word.epoch
		? hall_come(hub, h, m, msg)
		: 0;
}

int hall_hear(struct hub *hub, struct member *m, const struct wire_message *msg)
{
	const struct bootstrap_word *w = &msg->u.word;
	struct hall **at = hall_find(hub, w->comm), *h;
	int rc;

	switch (w->kind) {
	case WORD_BREAK:
		pass_on(hub, m, msg);
		return 0;
	case WORD_LEAVE:
		rc = hall_left(hub, w);
		return roll_hear(hub, m, msg) ? -ENOMEM : rc;
	case WORD_JOIN:
	case WORD_HASTE:
		return roll_hear(hub, m, msg);
	case WORD_TOLD:
	case WORD_NOTED:
		return hall_told(hub, m, msg);
	case WORD_COME:
	case WORD_SOME:
	case WORD_MISS:
		h = *at ? *at : hall_make(at, w);
		if (!h)
			return -ENOMEM;
		if (h->parts != w->parts)
			return 0; /* not what any process of ours says */
		return w->kind == WORD_MISS ? hall_missed(hub, h, m, w->epoch)
					    : hall_come(hub, h, m, msg);
	default:
		return 0;
	}
}
