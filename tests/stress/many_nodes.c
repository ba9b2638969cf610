/* SPDX-License-Identifier: MIT */
/*
 * The rendezvous of a world over many nodes, a bootstrap in this process for each: how long the start and a meeting take, and what they
 * need. many_nodes [NODES [RANKS-A-NODE]]; the figures are comments of the TAP output.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmt/bootstrap/bootstrap.h"
#include "spmt/control/meeting.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "tests/lib/tap.h"
#include "transports/transport.h"

enum { NODES = 24, RANKS = 2, NODES_MOST = 2048, MEETINGS = 5, COMM = 1 };

struct world {
	int nodes, ranks; /* ranks: a node */
	struct uid uid;
	struct bootstrap *boot[NODES_MOST];
	atomic_int opened, broken;
	atomic_ullong bytes; /* of what has been opened */
};

static void on_break(void *ctx, const struct cause *cause)
{
	struct world *w = ctx;

	if (!atomic_fetch_add(&w->broken, 1))
		fprintf(stderr, "# broken: %s\n", cause->sentence);
}

static void on_word(void *ctx, const struct bootstrap_word *word, const void *data, size_t size)
{
	struct world *w = ctx;

	(void)data;
	if (word->kind != WORD_OPEN)
		return;
	atomic_fetch_add(&w->bytes, size);
	atomic_fetch_add(&w->opened, 1);
}

static double ms_since(int64_t begin)
{
	return (double)(process_now() - begin) / 1e6;
}

/* Of /proc/self/status. */
static long status_of(const char *name)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	long value = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			value = atol(line + strlen(name));
	if (f)
		fclose(f);
	return value;
}

static int node_join(struct world *w, int node)
{
	static const struct rank_info info;
	const struct bootstrap_config config = { .uid = &w->uid,
		.nranks = w->nodes * w->ranks,
		.rank = node * w->ranks,
		.blob_size = sizeof(info),
		.broken = on_break,
		.heard = on_word,
		.ctx = w,
		.only_tcp = node > 0 };
	const struct patience patience = { process_now(), 60000 };
	int rc = bootstrap_open(&config, NULL, &w->boot[node]);

	for (int r = 0; !rc && r < w->ranks; r++)
		rc = bootstrap_add(w->boot[node], node * w->ranks + r, &info, &patience);
	return rc;
}

static int world_start(struct world *w)
{
	const struct patience patience = { process_now(), 60000 };
	const void *blobs;
	const int *process;
	void *control;
	spmt_uid uid;
	int rc = spmt_uid_create(&uid);

	if (!rc)
		rc = uid_read("many_nodes", &uid, &w->uid);
	for (int i = 0; !rc && i < w->nodes; i++)
		rc = node_join(w, i);
	for (int i = 0; !rc && i < w->nodes; i++)
		rc = bootstrap_wait(w->boot[i], &patience, &blobs, &process, &control);
	if (rc)
		fprintf(stderr, "# %s\n", status_sentence());
	return rc;
}

/* All ranks of a node have brought the same, as to a barrier, or each something else, as to a split. */
static int world_meet(struct world *w, uint64_t epoch, bool same)
{
	struct {
		uint32_t head[4];
		struct meet_record record;
	} entry[64] = { 0 };
	size_t size = (same ? 1 : (size_t)MIN_OF(w->ranks, 64)) * sizeof(entry[0]);
	int64_t end = process_now() + 60 * 1000000000ll;
	int rc = 0;

	atomic_store(&w->opened, 0);
	for (int i = w->nodes; i-- && !rc;) {
		const struct bootstrap_word word = { .comm = COMM,
			.epoch = epoch,
			.kind = WORD_COME,
			.part = (uint32_t)i,
			.parts = (uint32_t)w->nodes };

		rc = bootstrap_say(w->boot[i], &word, entry, size);
	}
	while (!rc && atomic_load(&w->opened) < w->nodes && process_now() < end)
		usleep(100);
	return rc || atomic_load(&w->opened) != w->nodes;
}

static int meetings(struct world *w, int number, bool same, int bad)
{
	uint64_t epoch = 1 + (uint64_t)number * MEETINGS;
	int64_t begin = process_now();

	atomic_store(&w->bytes, 0);
	for (uint64_t i = 0; i < MEETINGS && !bad; i++)
		bad = world_meet(w, epoch + i, same);
	bad = tap_report(number, bad, "%s of %d nodes", same ? "barriers" : "splits", w->nodes);
	printf("# %s: %.2f ms, %d messages, the hub sends %.2f MB\n", same ? "barrier" : "split",
		ms_since(begin) / (double)MEETINGS, 2 * w->nodes,
		(double)atomic_load(&w->bytes) / (double)MEETINGS / 1e6);
	return bad;
}

int main(int argc, char **argv)
{
	static struct world w;
	long before = status_of("VmRSS:");
	int64_t begin = process_now();
	int bad;

	w.nodes = argc > 1 ? atoi(argv[1]) : NODES;
	w.ranks = argc > 2 ? atoi(argv[2]) : RANKS;
	if (w.nodes < 2 || w.nodes > NODES_MOST || w.ranks < 1 || w.nodes * w.ranks > 65536)
		return 2;
	setenv("SPMT_SOCKET_IFNAME", "lo", 1);
	printf("1..4\n");
	bad = tap_report(
		1, world_start(&w), "%d nodes of %d ranks find each other", w.nodes, w.ranks);
	printf("# start: %.0f ms, %ld KiB and %zu bytes of infos a node, %d connections at the hub, 1 elsewhere\n",
		ms_since(begin), (status_of("VmRSS:") - before) / w.nodes,
		(size_t)w.nodes * (size_t)w.ranks * sizeof(struct rank_info), w.nodes - 1);
	bad |= meetings(&w, 2, true, bad);
	bad |= meetings(&w, 3, false, bad);
	begin = process_now();
	for (int i = w.nodes; i--;)
		bootstrap_close(w.boot[i]);
	bad |= tap_report(4, atomic_load(&w.broken), "none hears of a death");
	printf("# end: %.0f ms\n", ms_since(begin));
	return bad;
}
