/* SPDX-License-Identifier: MIT */
/*
 * A world that breaks beside one of the same processes that does not, over the stand-in for libibverbs: a put is in flight to a rank that
 * leaves the broken world. To a heap it harms nobody, the other world's connection least of all; nothing is written to a buffer that
 * the user has back; and what is kept for that is bounded.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/fake_verbs.h"
#include "tests/lib/processes.h"
#include "tests/lib/tap.h"
#include "tests/lib/transports/bytes.h"

enum { MIB = 1 << 20, NAP_MS = 50, KEPT_MS = 20000, OLD = 3, LATE = 5 };

/* The stand-in of this process. */
struct wires {
	__typeof__(&fake_verbs_hold) hold;
	__typeof__(&fake_verbs_limit) limit;
	__typeof__(&fake_verbs_live) live;
};

struct scene {
	struct processes p;
	_Atomic int *turn;
	bool own;   /* the put goes to a buffer of rank 1's */
	bool none;  /* is kept; else one heap, which is larger than what may be */
	bool waits; /* until it keeps that no more */
};

struct both {
	spmt_comm *broken, *whole;
	char *block, *other; /* of each */
	char *own;	     /* MIB, registered in the broken one */
	spmt_mem *mem;
};

static int wires_find(struct wires *wires)
{
	void *library = dlopen(FAKES "/fake-verbs.so", RTLD_NOW | RTLD_LOCAL);

	REQUIRE(library != NULL);
	*(void **)&wires->hold = dlsym(library, "fake_verbs_hold");
	*(void **)&wires->limit = dlsym(library, "fake_verbs_limit");
	*(void **)&wires->live = dlsym(library, "fake_verbs_live");
	return 0;
}

static void until(const struct scene *s, int turn)
{
	while (*s->turn < turn)
		sleep_ms(1);
}

static int sender_rank(const struct scene *s, const struct wires *wires, struct both *b)
{
	bool ends = s->own || s->none;

	fill(b->block, MIB, LATE);
	wires->hold(1);
	if (s->own)
		REQUIRE_OK(spmt_mem_put_nbi(b->broken, b->mem, 0, b->block, MIB, 1));
	else
		REQUIRE_OK(spmt_put_nbi(b->broken, b->block, b->block, MIB, 1));
	*s->turn = 1;
	until(s, 2);
	wires->hold(0);
	sleep_ms(NAP_MS);
	REQUIRE_CODE(spmt_put(b->whole, b->other, b->block, MIB, 1), ends ? -EIO : 0);
	REQUIRE_OK(spmt_status(b->whole));
	*s->turn = 3;
	spmt_finalize(b->broken);
	return 0;
}

/* The port gives up the heap for what has no room beside it, or once it has had it for long enough. */
static int makes_room(const struct wires *wires, const struct both *b, bool waits)
{
	int rank = spmt_rank(b->whole), before = wires->live();
	char *more = malloc(2 * MIB);
	spmt_mem *mem;

	REQUIRE(more != NULL);
	for (int ms = 0; waits && rank && ms < KEPT_MS && wires->live() == before; ms++)
		sleep_ms(1);
	if (rank && !waits)
		wires->limit(MIB);
	REQUIRE_OK(spmt_register(b->whole, rank ? more : NULL, rank ? 2 * MIB : 0, &mem));
	wires->limit(0);
	if (rank)
		REQUIRE_EQ(wires->live(), before);
	REQUIRE_OK(spmt_deregister(b->whole, mem));
	free(more);
	return 0;
}

static int leaver_rank(const struct scene *s, const struct wires *wires, struct both *b)
{
	int before = wires->live();

	until(s, 1);
	REQUIRE_OK(spmt_abort(b->broken, -EPROTO));
	spmt_finalize(b->broken);
	/* the buffer's, and the heap's */
	REQUIRE_EQ(wires->live(), before - (s->none ? 2 : 1));
	*s->turn = 2;
	until(s, 3);
	if (!s->own && !s->none)
		return filled_by("in the world beside", b->other, MIB, LATE);
	return filled_by("a buffer that its user has back", b->own, MIB, OLD);
}

static int begin(int rank, struct scene *s, struct both *b)
{
	struct spmt_attr first = ranks_attr(rank, 2, &s->p.uid[0]);
	struct spmt_attr second = ranks_attr(rank, 2, &s->p.uid[1]);

	REQUIRE_OK(spmt_init(&first, &b->broken));
	REQUIRE_OK(spmt_init(&second, &b->whole));
	REQUIRE_OK(spmt_malloc(b->broken, MIB, (void **)&b->block));
	REQUIRE_OK(spmt_malloc(b->whole, MIB, (void **)&b->other));
	b->own = malloc(MIB);
	REQUIRE(b->own != NULL);
	fill(b->own, MIB, OLD);
	REQUIRE_OK(spmt_register(b->broken, b->own, MIB, &b->mem));
	REQUIRE_OK(spmt_set_timeout(b->whole, 2 * KEPT_MS));
	REQUIRE_OK(spmt_put(b->whole, b->other, b->other, 1, !rank)); /* they meet */
	REQUIRE_OK(spmt_barrier(b->broken));
	return spmt_barrier(b->whole);
}

static int scene_rank(int rank, void *arg)
{
	struct scene *s = arg;
	struct wires wires;
	struct both b;
	int rc;

	TRY(wires_find(&wires));
	setenv("SPMT_RDMA_CACHE_SIZE", s->none ? "0" : "1M", 1);
	TRY(begin(rank, s, &b));
	rc = rank ? leaver_rank(s, &wires, &b) : sender_rank(s, &wires, &b);
	if (rc)
		*s->turn = 3;
	TRY(rc);
	if (!s->own && !s->none)
		TRY(makes_room(&wires, &b, s->waits));
	free(b.own);
	spmt_finalize(b.whole);
	REQUIRE_EQ(wires.live(), 0);
	return 0;
}

static int play(struct scene s)
{
	s.p = (struct processes){ .layout = "0|1" };
	s.turn = processes_shared(sizeof(*s.turn));
	REQUIRE(s.turn != NULL);
	return processes_run(&s.p, scene_rank, &s);
}

static int to_a_heap(void)
{
	return play((struct scene){ .own = false });
}

static int to_a_buffer(void)
{
	return play((struct scene){ .own = true });
}

static int not_kept(void)
{
	return play((struct scene){ .none = true });
}

static int for_long(void)
{
	return play((struct scene){ .waits = true });
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "a late put to a heap", to_a_heap },
		{ "a late put to a user's buffer", to_a_buffer },
		{ "a heap where a port keeps none", not_kept },
		{ "a heap that is kept for long enough", for_long },
	};
	char folder[] = "/tmp/spmt-wire.XXXXXX";
	int rc;

	if (!mkdtemp(folder)) {
		perror("mkdtemp");
		return 1;
	}
	setenv("SPMT_FAKE_WIRE", folder, 1);
	setenv("SPMT_FAKE_PINS", "memfd:spmt-host", 1);
	setenv("SPMT_MAPS", "rdma", 1);
	setenv("SPMT_VERBS_LIB", FAKES "/fake-verbs.so", 1);
	rc = tap_run(cases, sizeof(cases) / sizeof(cases[0]) - !test_count(0, 1));
	return rmdir(folder) || rc;
}
