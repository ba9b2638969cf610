/* SPDX-License-Identifier: MIT */
/* What processes tell each other of their heaps, where one of them tells what is not its own. Two worlds of one process stand for
   two processes, as in bootstrap.c. */
#include <errno.h>
#include <pthread.h>

#include "spmt/comm/comm.h"
#include "spmt/comm/gather.h"
#include "spmt/comm/world.h"
#include "tests/unit/bootstrap/party_world.h"

enum { MIB = 1 << 20, NRANKS = 2 };

/* What a process needs to have for gather_memory(). */
struct process {
	struct party party;
	struct world world;
	struct slot slots[NRANKS];
	struct rank_info infos[NRANKS];
	spmt_comm comm;
	int rc;
};

static void heap_make(struct slot *slot, int dev)
{
	struct heap_config config = { .backend = &backend_host, .dev = dev, .size = 2 * MIB };

	cr_assert_eq(backend_host.open(dev), 0);
	cr_assert_eq(heap_open(&config, &slot->heap), 0, "%s", status_sentence());
}

/* process: of each rank, as this one sees it. */
static void process_make(struct process *p, int rank, const int *process)
{
	p->world.nranks = NRANKS;
	p->world.slots = p->slots;
	p->world.infos = p->infos;
	p->world.process = process;
	atomic_store(&p->world.boot, p->party.b);
	p->comm.rank = rank;
	p->comm.nranks = NRANKS;
	p->comm.world = &p->world;
	atomic_store(&p->comm.timeout_ms, 5000);
	for (int r = 0; r < NRANKS; r++)
		if (process[r] == process[rank])
			heap_make(&p->slots[r], r);
}

static void process_end(struct process *p)
{
	gather_close(&p->world);
	for (int r = 0; r < NRANKS; r++)
		if (p->slots[r].heap.backend) {
			heap_export_close(&p->slots[r].export);
			heap_close(&p->slots[r].heap);
			backend_host.close(r);
		}
}

static void *tell_memory(void *arg)
{
	struct process *p = arg;

	p->rc = gather_memory(&p->comm);
	return NULL;
}

/* The second process offers a heap of `offers`, which is of the first if that is 0. What the first has from it then. */
static void offered(int offers)
{
	static const int right[NRANKS] = { 0, 1 }, wrong[NRANKS] = { 1, 1 };
	struct process p[2] = { { .rc = 0 } };
	pthread_t thread;
	struct uid uid;

	uid_make(&uid);
	for (int i = 0; i < 2; i++)
		open_ok(&p[i].party, &uid, NRANKS);
	for (int i = 0; i < 2; i++)
		add_ok(&p[i].party, i);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(wait_for(&p[i].party, 5000), 0, "%s", status_sentence());
	cr_assert_eq(p[0].party.self, 0);
	process_make(&p[0], 0, right);
	process_make(&p[1], offers, offers ? right : wrong);
	/* Who takes both ranks for its own has two rounds to tell them; there is one. */
	atomic_store(&p[1].comm.timeout_ms, offers ? 5000 : 200);
	cr_assert_eq(pthread_create(&thread, NULL, tell_memory, &p[1]), 0);
	tell_memory(&p[0]);
	pthread_join(thread, NULL);
	cr_expect_eq(p[1].rc, offers ? 0 : SPMT_ERR_TIMEOUT, "%d", p[1].rc);
	if (offers) {
		cr_expect_eq(p[0].rc, 0);
		cr_expect(p[0].world.memory[0].known && p[0].world.memory[1].known);
		cr_expect_eq(p[0].infos[1].rank, p[1].infos[1].rank);
	} else {
		cr_expect(p[0].rc <= 0); /* refused, or not taken */
		cr_expect_not(p[0].world.memory[1].known);
	}
	for (int i = 0; i < 2; i++)
		process_end(&p[i]);
}

Test(gather, heaps_are_known)
{
	int before;

	cr_assert_eq(backend_host.load(), 0);
	offered(1);
	before = links_count("fd");
	offered(1);
	cr_expect_eq(links_count("fd"), before);
}

/* Its descriptor came with it all the same. */
Test(gather, a_rank_that_is_known_is_not_offered_again)
{
	int before;

	cr_assert_eq(backend_host.load(), 0);
	offered(1);
	before = links_count("fd");
	offered(0);
	cr_expect_eq(links_count("fd"), before);
}
