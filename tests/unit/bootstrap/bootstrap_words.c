/* SPDX-License-Identifier: MIT */
/* Meetings of comms over several nodes, as the hub decides them: a process a node here, which answers for it or does not. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "party_world.h"
#include "tests/lib/clocks.h"

#define COMM 77u
#define HEARD_NS (20 * 1000000000ll)

/* A node's process: what it brings to a meeting, and what it has heard of that. */
struct node {
	struct party party;
	pthread_mutex_t lock;
	int part, parts;
	bool mute; /* answers no question */
	char brought[8];
	int32_t ranks; /* .. by so many */
	int asked,
		silent; /* silent: the process that has not answered, by the hub's word; -1: all have */
	struct bootstrap_word last; /* OPEN or SHUT */
	char said[64];
	atomic_int held, told; /* HELD: stays in the first word until 0 */
	int leader[2];	       /* .. what bootstrap_leader() said in it and in the next */
};

static int node_say(struct node *n, enum word_kind kind, uint64_t epoch, uint32_t question)
{
	const struct bootstrap_word w = { .comm = COMM,
		.epoch = epoch,
		.kind = kind,
		.part = (uint32_t)n->part,
		.parts = (uint32_t)n->parts,
		.code = n->ranks,
		.question = question };
	size_t size = kind == WORD_MISS ? 0 : strlen(n->brought);

	return bootstrap_say(n->party.b, &w, n->brought, size);
}

static void node_hears(void *ctx, const struct bootstrap_word *w, const void *data, size_t size)
{
	struct node *n = ctx;

	pthread_mutex_lock(&n->lock);
	if (w->kind == WORD_ASK) {
		n->asked++;
		if (!n->mute)
			(void)node_say(n, WORD_TOLD, w->epoch, w->question);
	} else if (w->kind == WORD_SILENT) {
		n->silent = (int)w->question;
	} else {
		n->last = *w;
		memcpy(n->said, data, MIN_OF(size, sizeof(n->said) - 1));
		n->said[MIN_OF(size, sizeof(n->said) - 1)] = '\0';
	}
	pthread_mutex_unlock(&n->lock);
}

static void node_breaks(void *ctx, const struct cause *cause)
{
	(void)ctx;
	(void)cause;
}

typedef void hearing(void *ctx, const struct bootstrap_word *w, const void *data, size_t size);

/* The hub on this node, the others as if on nodes of their own. */
static void nodes_open_hearing(struct node *nodes, int n, hearing *heard)
{
	struct uid uid;

	cr_assert_eq(setenv("SPMT_SOCKET_IFNAME", "lo", 1), 0);
	uid_make(&uid);
	for (int i = 0; i < n; i++) {
		const struct bootstrap_config config = { .uid = &uid,
			.nranks = n,
			.rank = i,
			.blob_size = sizeof(struct blob),
			.broken = node_breaks,
			.heard = heard,
			.ctx = &nodes[i],
			.only_tcp = i > 0 };

		memset(&nodes[i], 0, sizeof(nodes[i]));
		pthread_mutex_init(&nodes[i].lock, NULL);
		nodes[i].part = i;
		nodes[i].parts = n;
		nodes[i].silent = -1;
		snprintf(nodes[i].brought, sizeof(nodes[i].brought), "<%d>", i % 100);
		nodes[i].ranks = 1;
		cr_assert_eq(bootstrap_open(&config, NULL, &nodes[i].party.b), 0, "%s",
			status_sentence());
		add_ok(&nodes[i].party, i);
	}
	for (int i = 0; i < n; i++)
		cr_assert_eq(wait_for(&nodes[i].party, 20000), 0, "%s", status_sentence());
}

static void nodes_open(struct node *nodes, int n)
{
	nodes_open_hearing(nodes, n, node_hears);
}

/* The hub last. */
static void nodes_close(struct node *nodes, int n)
{
	for (int i = n - 1; i >= 0; i--) {
		bootstrap_close(nodes[i].party.b);
		pthread_mutex_destroy(&nodes[i].lock);
	}
}

/* kind 0: that many questions */
static bool node_heard(struct node *n, enum word_kind kind, uint64_t epoch, const char *said)
{
	int64_t end = calm_ns() + HEARD_NS;
	bool heard = false;

	while (!heard && calm_ns() < end) {
		pthread_mutex_lock(&n->lock);
		heard = kind ? n->last.kind == (uint32_t)kind && n->last.epoch == epoch &&
				!strcmp(n->said, said)
			     : (uint64_t)n->asked >= epoch;
		pthread_mutex_unlock(&n->lock);
		usleep(500);
	}
	return heard;
}

Test(bootstrap_words, opens_when_all_have_come)
{
	struct node nodes[3];

	nodes_open(nodes, 3);
	for (uint64_t epoch = 1; epoch < 20; epoch++) {
		for (int i = 0; i < 3; i++)
			cr_assert_eq(
				node_say(&nodes[(epoch + (uint64_t)i) % 3], WORD_COME, epoch, 0),
				0);
		for (int i = 0; i < 3; i++)
			cr_assert(
				node_heard(&nodes[i], WORD_OPEN, epoch, "<0><1><2>"), "node %d", i);
	}
	/* Who gives up on one that is open hears no more of it. */
	cr_assert_eq(node_say(&nodes[1], WORD_MISS, 19, 0), 0);
	cr_assert_eq(node_say(&nodes[1], WORD_MISS, 20, 0), 0);
	cr_assert(node_heard(&nodes[1], WORD_SHUT, 20, "<0><1><2>"));
	nodes_close(nodes, 3);
}

Test(bootstrap_words, shuts_with_all_who_have_come)
{
	struct node nodes[3];

	nodes_open(nodes, 3);
	/* Node 0 has come, of node 1 some have, which it has not said yet; node 2 has more than it said. */
	strcpy(nodes[2].brought, "(");
	cr_assert_eq(node_say(&nodes[2], WORD_SOME, 1, 0), 0);
	pthread_mutex_lock(&nodes[2].lock);
	strcpy(nodes[2].brought, "((");
	nodes[2].ranks = 2;
	pthread_mutex_unlock(&nodes[2].lock);
	cr_assert_eq(node_say(&nodes[0], WORD_COME, 1, 0), 0);
	cr_assert_eq(node_say(&nodes[0], WORD_MISS, 1, 0), 0);
	for (int i = 0; i < 3; i++)
		cr_assert(node_heard(&nodes[i], WORD_SHUT, 1, "<0><1>(("), "node %d", i);
	/* It stays shut, and who gives up later is told so. */
	cr_assert_eq(node_say(&nodes[1], WORD_COME, 1, 0), 0);
	cr_assert_eq(node_say(&nodes[2], WORD_COME, 1, 0), 0);
	cr_assert_eq(node_say(&nodes[2], WORD_MISS, 1, 0), 0);
	cr_assert(node_heard(&nodes[2], WORD_SHUT, 1, "<0><1>(("));
	cr_assert_eq(nodes[0].last.kind, (uint32_t)WORD_SHUT);
	cr_assert_eq(nodes[0].silent, -1);
	nodes_close(nodes, 3);
}

Test(bootstrap_words, waits_for_nobody_who_is_mute)
{
	struct node nodes[3];

	nodes_open(nodes, 3);
	nodes[1].mute = true;
	cr_assert_eq(node_say(&nodes[2], WORD_MISS, 1, 0), 0);
	cr_assert(node_heard(&nodes[2], WORD_SHUT, 1, "<0><2>"));
	cr_assert_eq(nodes[1].asked, 1);
	cr_assert_eq(nodes[2].silent, nodes[1].party.self);
	nodes_close(nodes, 3);
}

Test(bootstrap_words, waits_for_nobody_who_is_gone)
{
	struct node nodes[3];

	nodes_open(nodes, 3);
	nodes[1].mute = true;
	cr_assert_eq(node_say(&nodes[2], WORD_MISS, 1, 0), 0);
	cr_assert(node_heard(&nodes[1], 0, 1, ""));
	bootstrap_close(nodes[1].party.b);
	nodes[1].party.b = NULL;
	cr_assert(node_heard(&nodes[2], WORD_SHUT, 1, "<0><2>"));
	nodes_close(nodes, 3);
}

/* A node that knows nothing of the comm says so as of one part. */
Test(bootstrap_words, of_a_comm_that_some_do_not_know)
{
	struct node nodes[3];

	nodes_open(nodes, 3);
	nodes[1].part = 0;
	nodes[1].parts = 1;
	nodes[0].parts = nodes[2].parts = 2;
	nodes[2].part = 1;
	cr_assert_eq(node_say(&nodes[2], WORD_MISS, 1, 0), 0);
	cr_assert(node_heard(&nodes[2], WORD_SHUT, 1, "<0><2>"));
	nodes_close(nodes, 3);
}

static void breaks_heard(void *ctx, const struct bootstrap_word *w, const void *data, size_t size)
{
	struct node *n = ctx;
	int told = atomic_load(&n->told);

	(void)w;
	(void)data;
	(void)size;
	if (told < 2)
		n->leader[told] = bootstrap_leader(n->party.b);
	atomic_store(&n->told, told + 1);
	for (int64_t end = calm_ns() + HEARD_NS; atomic_load(&n->held) && calm_ns() < end;)
		usleep(500);
}

static bool has_told(struct node *n, int words)
{
	int64_t end = calm_ns() + HEARD_NS;

	while (atomic_load(&n->told) < words && calm_ns() < end)
		usleep(500);
	return atomic_load(&n->told) >= words;
}

/* What it has decided before may be read together with its goodbye. */
Test(bootstrap_words, a_hub_that_leaves_is_there_until_its_last_word_is_told)
{
	const struct bootstrap_word word = { .comm = COMM, .kind = WORD_BREAK, .code = -1 };
	int64_t end = calm_ns() + HEARD_NS;
	struct node nodes[2];

	nodes_open_hearing(nodes, 2, breaks_heard);
	atomic_store(&nodes[1].held, 1);
	cr_assert_eq(bootstrap_say(nodes[0].party.b, &word, "1", 1), 0);
	cr_assert(has_told(&nodes[1], 1));
	cr_assert_eq(bootstrap_say(nodes[0].party.b, &word, "2", 1), 0);
	bootstrap_close(nodes[0].party.b);
	nodes[0].party.b = NULL;
	atomic_store(&nodes[1].held, 0);
	cr_assert(has_told(&nodes[1], 2));
	cr_assert_eq(nodes[1].leader[0], 0);
	cr_assert_eq(nodes[1].leader[1], 0);
	while (bootstrap_leader(nodes[1].party.b) != -ENOTCONN && calm_ns() < end)
		usleep(500);
	cr_assert_eq(bootstrap_leader(nodes[1].party.b), -ENOTCONN);
	nodes_close(nodes, 2);
}
