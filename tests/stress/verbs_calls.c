/* SPDX-License-Identifier: MIT */
/*
 * verbs_calls [cuda]: every call of libibverbs that the library resolves, by its name, and those of a context's table: the first ones
 * fail in turn, those that give something back included, while two ranks move data. The world ends with codes and a sentence that names
 * the call, or is none the worse; nothing is left, and the next one works. The names are the library's own list, so that a new call is
 * not forgotten. Last, memory that a registration asks for. cuda: those for memory that the CPU does not reach, over a stand-in for libcuda.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fault.h"
#include "tests/fakes/fake_verbs.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tap.h"
#include "transports/verbs/nic.h"

enum { RANKS = 2, FIRST = 3, BIG = 40000, TRIES = 300, NAP_MS = 5, PORT_ACTIVE = 9 };

static __typeof__(&fake_verbs_fail_named) fail_named;
static __typeof__(&fake_verbs_live) live;
static __typeof__(&fake_verbs_event) tell_event;
static bool on_gpus;

struct call {
	const char *name, *said; /* what sentences call it; NULL: the same */
	bool fails;		 /* it has a result that can say so */
};

static const struct call calls[] = {
/* clang-format off */
#define X(field, symbol, optional, result, args) \
	{ #symbol, NULL, _Generic((result *)0, void *: false, const char **: false, default: true) },
	VERBS_CALLS(X)
#undef X
	/* clang-format on */
	{ "checked_poll", "ibv_poll_cq", true },
	{ "checked_notify", "ibv_req_notify_cq", true },
	{ "checked_send", "ibv_post_send", true },
	{ "checked_recv", "ibv_post_recv", true },
};

static bool is(const struct call *call, const char *name)
{
	return !strcmp(call->name, name);
}

static const char *said(const struct call *call)
{
	return call->said ? call->said : call->name + (*call->name == '_');
}

/* What is given back is gone, whatever the call says: nobody is the worse for it. */
static bool gives_back(const struct call *call)
{
	static const char *const verbs[] = { "ibv_close_", "ibv_dealloc_", "ibv_dereg_",
		"ibv_destroy_" };

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strncmp(call->name, verbs[i], strlen(verbs[i])))
			return true;
	return false;
}

/* Calls without which there is another way, or which are made again. */
static bool is_spared(const struct call *call)
{
	return gives_back(call) || is(call, "ibv_reg_dmabuf_mr") || is(call, "ibv_get_cq_event") ||
		is(call, "ibv_get_async_event");
}

/* ---- a world ----------------------------------------------------------------------------------- */

struct run {
	const struct call *call; /* the one that fails; NULL: none */
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

/* The next connection finds the completion queues full. */
static void fill_queues(void)
{
	struct verbs_state *state = verbs_state();

	pthread_mutex_lock(&state->lock);
	for (struct nic *nic = state->nics; nic; nic = nic->next) {
		pthread_mutex_lock(&nic->lock);
		nic->cq_used = nic->cq_room;
		pthread_mutex_unlock(&nic->lock);
	}
	pthread_mutex_unlock(&state->lock);
}

static void moves(struct run *run, int rank, spmt_comm *comm, char *block, char *own)
{
	uint64_t one = 1, old;
	int peer = !rank;

	told(run, rank, spmt_put(comm, block + 64, own, 100, peer));
	told(run, rank, spmt_get(comm, own, block + 4096, BIG, peer));
	if (!on_gpus) /* those go by a kernel */
		told(run, rank,
			spmt_atomic(comm, SPMT_AMO_FETCH_ADD, SPMT_TYPE_U64, block, &one, NULL,
				&old, peer));
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
		if (run->call && is(run->call, "ibv_resize_cq"))
			fill_queues();
		if (run->call && is(run->call, "ibv_get_async_event"))
			tell_event(PORT_ACTIVE);
		if (!told(run, rank, spmt_calloc(comm, 1, 1 << 20, (void **)&block)))
			moves(run, rank, comm, block, own);
		told(run, rank, spmt_finalize(comm));
	}
	free(own);
	return 0;
}

static int world(struct run *run, const struct call *call)
{
	*run = (struct run){ .call = call };
	REQUIRE_OK(spmt_uid_create(&run->uid));
	return ranks_threads(RANKS, one_rank, run);
}

static int works(void)
{
	struct run run;

	TRY(world(&run, NULL));
	for (int r = 0; r < RANKS; r++)
		if (run.code[r])
			return ranks_fail("%d, '%s'", run.code[r], run.said[r]);
	return 0;
}

/* ---- one call ---------------------------------------------------------------------------------- */

/* Who could not go on has a code, and a sentence of a call of this library's; one of them says which verb it was. */
static int ended_well(const struct run *run, int n)
{
	const struct call *call = run->call;
	bool named = false, failed = false;

	for (int r = 0; r < RANKS; r++) {
		failed |= run->code[r] != 0;
		named |= strstr(run->said[r], said(call)) != NULL;
		/* who had no move of its own in flight hears of its port's failure no more; the peer does */
		named |= strstr(run->said[r], "verbs status") ||
			strstr(run->said[r], "other end has failed");
		if (run->code[r] > 0 || (is_spared(call) && run->code[r]) ||
			(run->code[r] && strncmp(run->said[r], "spmt_", 5) != 0))
			return ranks_fail("%s, no. %d: rank %d: %d, '%s'", call->name, n, r,
				run->code[r], run->said[r]);
	}
	if (failed && !named)
		return ranks_fail("%s, no. %d: nobody names it: '%s', '%s'", call->name, n,
			run->said[0], run->said[1]);
	if (live())
		return ranks_fail("%s, no. %d: %d objects are left", call->name, n, live());
	return 0;
}

/* How often the call was made in the last world that it let be; *seen: in any. */
static int each(const struct call *call, uint64_t *seen)
{
	for (uint64_t n = 1; n <= FIRST; n++) {
		struct run run;

		fail_named(call->name, n);
		TRY(world(&run, call));
		*seen += fail_named("", 0);
		TRY(ended_well(&run, (int)n));
	}
	return 0;
}

/* Such as libibverbs had before it could say what kind a GID is of. */
static int without_kinds(const struct call *call, uint64_t *seen)
{
	struct verbs_state *state = verbs_state();
	__typeof__(state->api.query_gid_ex) ex = state->api.query_gid_ex;
	int rc;

	state->api.query_gid_ex = NULL;
	rc = each(call, seen);
	state->api.query_gid_ex = ex;
	return rc;
}

static int sweep(const struct call *call)
{
	uint64_t seen = 0;

	/* the port's thread asks to be woken where nothing comes for a while */
	for (int i = 0; i < TRIES && !seen; i++)
		TRY(is(call, "ibv_query_gid") ? without_kinds(call, &seen) : each(call, &seen));
	if (!seen)
		return ranks_fail("%s was never called", call->name);
	return works();
}

static int all_that(bool give_back)
{
	int swept = 0;

	TRY(works());
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		const struct call *call = &calls[i];

		if (!call->fails || gives_back(call) != give_back ||
			is(call, "ibv_reg_dmabuf_mr") != on_gpus)
			continue;
		TRY(sweep(call));
		swept++;
	}
	REQUIRE(swept > 0);
	return 0;
}

static int those_that_ask_make_and_move(void)
{
	return all_that(false);
}

static int those_that_give_back(void)
{
	return all_that(true);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static spmt_uid buffers_uid;
static int registered[RANKS];

/* Each rank is refused what another one gets: a registration is of all ranks or of none. */
static int registers(int rank, void *refused)
{
	struct spmt_attr a = ranks_attr(rank, RANKS, &buffers_uid);
	char own[64] = { 0 }, word[8] = "word";
	spmt_comm *comm;
	spmt_mem *mem;

	REQUIRE_OK(spmt_init(&a, &comm));
	for (uint64_t n = 1; n == 1 || *(bool *)refused; n++) {
		REQUIRE_OK(spmt_barrier(comm));
		if (!rank)
			fault_arm(1u << FAULT_ALLOC, n);
		REQUIRE_OK(spmt_barrier(comm));
		registered[rank] = spmt_register(comm, own, sizeof(own), &mem);
		REQUIRE_OK(spmt_barrier(comm));
		if (!rank) {
			*(bool *)refused = fault_fired();
			fault_disarm();
		}
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE_EQ(registered[rank], registered[!rank]);
		REQUIRE_EQ(registered[rank], *(bool *)refused ? -ENOMEM : 0);
		if (registered[rank])
			continue;
		REQUIRE_OK(spmt_mem_put(comm, mem, 8, word, sizeof(word), !rank));
		REQUIRE_OK(spmt_barrier(comm));
		REQUIRE(!strcmp(own + 8, "word"));
		REQUIRE_OK(spmt_deregister(comm, mem));
	}
	return spmt_finalize(comm);
}

static int memory_of_registrations(void)
{
	bool refused = false;

	REQUIRE_OK(spmt_uid_create(&buffers_uid));
	TRY(ranks_threads(RANKS, registers, &refused));
	return works();
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "calls that ask, make and move", those_that_ask_make_and_move },
		{ "calls that give back", those_that_give_back },
		{ "memory of registrations", memory_of_registrations },
	};
	static const char path[] = FAKES "/fake-verbs.so";
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	setenv("SPMT_MAPS", "rdma", 1);
	setenv("SPMT_VERBS_LIB", path, 1);
	on_gpus = argc > 1 && !strcmp(argv[1], "cuda");
	if (on_gpus) {
		setenv("SPMT_BACKEND", "cuda", 1);
		setenv("SPMT_CUDA_LIB", FAKES "/fake-cuda.so", 1);
		setenv("SPMT_FAKE_BLIND", "1", 1);
	}
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&fail_named = dlsym(library, "fake_verbs_fail_named");
	*(void **)&live = dlsym(library, "fake_verbs_live");
	*(void **)&tell_event = dlsym(library, "fake_verbs_event");
	return tap_run(cases, on_gpus ? 1 : sizeof(cases) / sizeof(cases[0]));
}
