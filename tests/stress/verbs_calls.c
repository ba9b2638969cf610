/* SPDX-License-Identifier: MIT */
/*
 * Every call of libibverbs by its name: its first ones fail in turn, those that give something back included, while two ranks move data.
 * The world ends with codes and sentences or is none the worse, nothing is left, and the next one works.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_verbs.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"

enum { RANKS = 2, FIRST = 3, BIG = 40000, TRIES = 300, NAP_MS = 5 };

static __typeof__(&fake_verbs_fail_named) fail_named;
static __typeof__(&fake_verbs_live) live;

struct run {
	spmt_uid uid;
	int code[RANKS];
	char said[RANKS][512];
};

static int told(struct run *run, int rank, int code)
{
	if (code && !run->code[rank]) {
		run->code[rank] = code;
		snprintf(run->said[rank], sizeof(run->said[rank]), "%s", spmt_last_error());
	}
	return code;
}

static void moves(struct run *run, int rank, spmt_comm *comm, char *block, char *own)
{
	uint64_t one = 1, old;
	int peer = !rank;

	told(run, rank, spmt_put(comm, block + 64, own, 100, peer));
	told(run, rank, spmt_get(comm, own, block + 4096, BIG, peer));
	told(run, rank,
		spmt_atomic(
			comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, block, &one, NULL, &old, peer));
	told(run, rank, spmt_quiet(comm));
	sleep_ms(NAP_MS);
	told(run, rank, spmt_barrier(comm));
}

static int one_rank(int rank, void *arg)
{
	struct run *run = arg;
	struct spmt_attr a = ranks_attr(rank, RANKS, &run->uid);
	char *block, *own = calloc(1, BIG);
	spmt_comm *comm;

	REQUIRE(own != NULL);
	if (!told(run, rank, spmt_init(&a, &comm))) {
		if (!told(run, rank, spmt_calloc(comm, 1, 1 << 20, (void **)&block)))
			moves(run, rank, comm, block, own);
		told(run, rank, spmt_finalize(comm));
	}
	free(own);
	return 0;
}

static int world(struct run *run)
{
	*run = (struct run){ .code = { 0 } };
	REQUIRE_OK(spmt_uid_create(&run->uid));
	return ranks_threads(RANKS, one_rank, run);
}

/* How often the call was made in the last world that it let be; *seen: in any. */
static int each(const char *name, bool drops, uint64_t *seen)
{
	for (uint64_t n = 1; n <= FIRST; n++) {
		struct run run;

		fail_named(name, n);
		TRY(world(&run));
		*seen += fail_named("", 0);
		for (int r = 0; r < RANKS; r++)
			if (run.code[r] > 0 || (drops && run.code[r]) ||
				(run.code[r] && strncmp(run.said[r], "spmt_", 5) != 0))
				return ranks_fail("%s, no. %d: rank %d: %d, '%s'", name, (int)n, r,
					run.code[r], run.said[r]);
		if (live())
			return ranks_fail("%s, no. %d: %d objects are left", name, (int)n, live());
	}
	return 0;
}

static int works(void)
{
	struct run run;

	TRY(world(&run));
	for (int r = 0; r < RANKS; r++)
		if (run.code[r])
			return ranks_fail("%d, '%s'", run.code[r], run.said[r]);
	return 0;
}

/* calls: NULL behind the last. */
static int all_of(const char *const *calls, bool drops)
{
	for (; *calls; calls++) {
		uint64_t seen = 0;

		/* the port's thread asks to be woken where nothing comes for a while */
		for (int i = 0; i < TRIES && !seen; i++)
			TRY(each(*calls, drops, &seen));
		if (!seen)
			return ranks_fail("%s was never called", *calls);
		TRY(works());
	}
	return 0;
}

static int those_that_make(void)
{
	static const char *const calls[] = { "ibv_get_device_list", "ibv_open_device",
		"ibv_query_device", "ibv_query_port", "_ibv_query_gid_ex", "ibv_alloc_pd",
		"ibv_reg_mr", "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp",
		"ibv_modify_qp", "ibv_create_ah", NULL };

	return all_of(calls, false);
}

static int those_that_move(void)
{
	static const char *const calls[] = { "checked_poll", "checked_notify", "checked_send",
		"checked_recv", NULL };

	return all_of(calls, false);
}

static int those_that_give_back(void)
{
	static const char *const calls[] = { "ibv_close_device", "ibv_dealloc_pd", "ibv_dereg_mr",
		"ibv_destroy_comp_channel", "ibv_destroy_cq", "ibv_destroy_qp", "ibv_destroy_ah",
		NULL };

	return all_of(calls, true);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "calls that ask and make", those_that_make },
		{ "calls that move", those_that_move },
		{ "calls that give back", those_that_give_back },
	};
	static const char path[] = FAKES "/fake-verbs.so";
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	setenv("SPMT_MAPS", "rdma", 1);
	setenv("SPMT_VERBS_LIB", path, 1);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&fail_named = dlsym(library, "fake_verbs_fail_named");
	*(void **)&live = dlsym(library, "fake_verbs_live");
	return tap_run(cases, sizeof(cases) / sizeof(cases[0]));
}
