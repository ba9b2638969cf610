/* SPDX-License-Identifier: MIT */
/* A forked child owns no rank: every call on what it inherited is an error that touches nothing; the parent goes on. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spmt_device.h"
#include "tests/lib/ranks.h"

enum { RANKS = 2, WORDS = 512, FOLLOWS = 100 };

/* What the parent made and the child finds. */
static struct {
	spmt_comm *comms[RANKS];
	uint64_t *words;
	spmt_mem *mems[RANKS];
	spmt_uid uid;
	char local[64];
} inherited;

#define COMM (inherited.comms[0])
#define WORD (inherited.words)
#define SIG (inherited.words + 1)
#define MEM (inherited.mems[0])
#define LOCAL (inherited.local)

static int never(spmt_comm *comm, void *arg)
{
	(void)comm;
	(void)arg;
	return FOLLOWS;
}

static void no_kernel(void *args)
{
	(void)args;
}

/* Call i of those that take a comm, -1 past the end; long because it lists them all. */
static int call_no(int i, const char **name)
{
	static const int to[RANKS] = { 1, 0 };
	uint64_t one = 1, seen;
	size_t index, indices[1];
	int result;
	int64_t value;
	void *ptr;
	spmt_mem *mem;
	spmt_stream stream;
	struct spmt_route route = { .size = sizeof(route) };
	struct spmt_stats stats = { .size = sizeof(stats) };
	struct spmt_view view = { .size = sizeof(view) };
	struct spmt_mem_view mem_view = { .size = sizeof(mem_view) };

#define CALL(n, call)          \
	case n:                \
		*name = #call; \
		return (call)
	switch (i) {
		CALL(0, spmt_set_timeout(COMM, 10));
		CALL(1, spmt_abort(COMM, -5));
		CALL(2, spmt_status(COMM));
		CALL(3, spmt_query(COMM, SPMT_CAP_VMM, &value));
		CALL(4, spmt_rank(COMM));
		CALL(5, spmt_nranks(COMM));
		CALL(6, spmt_device(COMM));
		CALL(7, spmt_route(COMM, 0, &route));
		CALL(8, spmt_malloc(COMM, 8, &ptr));
		CALL(9, spmt_calloc(COMM, 1, 8, &ptr));
		CALL(10, spmt_aligned_alloc(COMM, 64, 8, &ptr));
		CALL(11, spmt_free(COMM, WORD));
		CALL(12, spmt_register(COMM, LOCAL, 8, &mem));
		CALL(13, spmt_deregister(COMM, MEM));
		CALL(14, spmt_mem_put(COMM, MEM, 0, LOCAL, 8, 1));
		CALL(15, spmt_mem_put_nbi(COMM, MEM, 0, LOCAL, 8, 1));
		CALL(16, spmt_mem_put_on_stream(COMM, MEM, 0, LOCAL, 8, 1, NULL));
		CALL(17, spmt_mem_get(COMM, LOCAL, MEM, 0, 8, 1));
		CALL(18, spmt_mem_get_nbi(COMM, LOCAL, MEM, 0, 8, 1));
		CALL(19, spmt_mem_get_on_stream(COMM, LOCAL, MEM, 0, 8, 1, NULL));
		CALL(20, spmt_mem_view_get(COMM, MEM, &mem_view));
		CALL(21, spmt_copy_in(COMM, WORD, LOCAL, 8));
		CALL(22, spmt_copy_out(COMM, LOCAL, WORD, 8));
		CALL(23, spmt_put(COMM, WORD, LOCAL, 8, 1));
		CALL(24, spmt_put_nbi(COMM, WORD, LOCAL, 8, 1));
		CALL(25, spmt_put_on_stream(COMM, WORD, LOCAL, 8, 1, NULL));
		CALL(26, spmt_get(COMM, LOCAL, WORD, 8, 1));
		CALL(27, spmt_get_nbi(COMM, LOCAL, WORD, 8, 1));
		CALL(28, spmt_get_on_stream(COMM, LOCAL, WORD, 8, 1, NULL));
		CALL(29, spmt_put_signal(COMM, WORD, LOCAL, 8, SIG, 1, SPMT_SIGNAL_ADD, 1));
		CALL(30, spmt_put_signal_nbi(COMM, WORD, LOCAL, 8, SIG, 1, SPMT_SIGNAL_ADD, 1));
		CALL(31,
			spmt_put_signal_on_stream(
				COMM, WORD, LOCAL, 8, SIG, 1, SPMT_SIGNAL_ADD, 1, NULL));
		CALL(32, spmt_iput(COMM, WORD, LOCAL, 1, 1, 1, 8, 1));
		CALL(33, spmt_iget(COMM, LOCAL, WORD, 1, 1, 1, 8, 1));
		CALL(34, spmt_signal(COMM, SIG, 1, SPMT_SIGNAL_ADD, 1));
		CALL(35, spmt_signal_on_stream(COMM, SIG, 1, SPMT_SIGNAL_ADD, 1, NULL));
		CALL(36, spmt_signal_fetch(COMM, SIG, &seen));
		CALL(37, spmt_signal_wait(COMM, SIG, SPMT_CMP_EQ, 9, &seen));
		CALL(38, spmt_signal_wait_on_stream(COMM, SIG, SPMT_CMP_EQ, 9, NULL));
		CALL(39, spmt_wait_until(COMM, SPMT_TYPE_U64, WORD, SPMT_CMP_EQ, &one));
		CALL(40,
			spmt_wait_until_any(
				COMM, SPMT_TYPE_U64, WORD, 1, NULL, SPMT_CMP_EQ, &one, &index));
		CALL(41,
			spmt_wait_until_some(COMM, SPMT_TYPE_U64, WORD, 1, NULL, SPMT_CMP_EQ, &one,
				indices, &index));
		CALL(42,
			spmt_wait_until_all(COMM, SPMT_TYPE_U64, WORD, 1, NULL, SPMT_CMP_EQ, &one));
		CALL(43, spmt_test(COMM, SPMT_TYPE_U64, WORD, SPMT_CMP_EQ, &one, &result));
		CALL(44,
			spmt_test_any(
				COMM, SPMT_TYPE_U64, WORD, 1, NULL, SPMT_CMP_EQ, &one, &index));
		CALL(45,
			spmt_test_some(COMM, SPMT_TYPE_U64, WORD, 1, NULL, SPMT_CMP_EQ, &one,
				indices, &index));
		CALL(46,
			spmt_test_all(
				COMM, SPMT_TYPE_U64, WORD, 1, NULL, SPMT_CMP_EQ, &one, &result));
		CALL(47, spmt_atomic(COMM, SPMT_AMO_ADD, SPMT_TYPE_U64, WORD, &one, NULL, NULL, 1));
		CALL(48, spmt_fence(COMM));
		CALL(49, spmt_quiet(COMM));
		CALL(50, spmt_quiet_on_stream(COMM, NULL));
		CALL(51, spmt_barrier(COMM));
		CALL(52, spmt_sync(COMM));
		CALL(53, spmt_barrier_on_stream(COMM, NULL));
		CALL(54, spmt_broadcast(COMM, WORD, WORD, 1, SPMT_TYPE_U64, 0, NULL));
		CALL(55, spmt_all_gather(COMM, WORD, LOCAL, 1, SPMT_TYPE_U64, NULL));
		CALL(56, spmt_all_to_all(COMM, WORD, LOCAL, 1, SPMT_TYPE_U64, NULL));
		CALL(57, spmt_permute(COMM, WORD, LOCAL, 1, SPMT_TYPE_U64, to, NULL));
		CALL(58,
			spmt_reduce_scatter(
				COMM, WORD, LOCAL, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		CALL(59, spmt_all_reduce(COMM, WORD, WORD, 1, SPMT_TYPE_U64, SPMT_OP_SUM, NULL));
		CALL(60, spmt_view_get(COMM, &view));
		CALL(61, spmt_host_launch(COMM, NULL, no_kernel, &one, sizeof(one)));
		CALL(62, spmt_host_stream_create(COMM, &stream));
		CALL(63, spmt_stats(COMM, -1, &stats));
		CALL(64, spmt_ptr(COMM, WORD, 1) ? 0 : SPMT_ERR_FORKED);
		CALL(65, spmt_mem_ptr(MEM, 1) ? 0 : SPMT_ERR_FORKED);
		CALL(66, spmt_backend(COMM) ? 0 : SPMT_ERR_FORKED);
		CALL(67, spmt_comm_by_rank(&inherited.uid, 0) ? 0 : SPMT_ERR_FORKED);
		CALL(68, spmt_comm_by_device(&inherited.uid, 0) ? 0 : SPMT_ERR_FORKED);
		CALL(69, spmt_mem_size(MEM, 1) ? 0 : SPMT_ERR_FORKED);
		CALL(70, spmt_finalize(inherited.comms[1]));
		CALL(71, spmt_finalize(COMM));
		CALL(72, spmt_finalize(COMM));
		CALL(73, spmt_finalize_all(RANKS, inherited.comms));
		CALL(74, spmt_each(RANKS, inherited.comms, never, NULL));
		CALL(75, spmt_each_abort(RANKS, inherited.comms, never, NULL));
	}
#undef CALL
	*name = "the end";
	return -1;
}

static int child_calls(void)
{
	const char *name;
	int code, i;

	for (i = 0; (code = call_no(i, &name)) != -1; i++)
		if (code != SPMT_ERR_FORKED) {
			fprintf(stderr, "# in the child: %s gave %d\n", name, code);
			return i + 1;
		}
	return i < 70 ? FOLLOWS : 0;
}

static int add_ranks(spmt_comm *comm, void *arg)
{
	uint64_t one = 1, *word;

	(void)arg;
	REQUIRE_OK(spmt_calloc(comm, 1, sizeof(*word), (void **)&word));
	REQUIRE_OK(spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, word, &one, NULL, NULL, 0));
	REQUIRE_OK(spmt_barrier(comm));
	if (spmt_rank(comm) == 0)
		TRY(sym_check_u64(comm, word, (uint64_t)spmt_nranks(comm)));
	return spmt_barrier(comm);
}

/* A vendor's driver serves no forked child, and the library says so; the host backend does. */
static int child_world(void)
{
	struct spmt_attr attr = ranks_attr(0, 1, NULL);
	int code;

	attr.device = -1;
	if (!on_host()) {
		code = spmt_run(1, &attr, add_ranks, NULL);
		if (code != -ENODEV || !strstr(spmt_last_error(), "forked"))
			fprintf(stderr, "# in the child: %d: %s\n", code, spmt_last_error());
		if (code != -ENODEV || !strstr(spmt_last_error(), "forked"))
			return FOLLOWS + 4;
	}
	attr.backend = "host";
	code = spmt_run(3, &attr, add_ranks, NULL);
	if (code)
		fprintf(stderr, "# in the child: spmt_run: %d: %s\n", code, spmt_last_error());
	return code ? FOLLOWS + 1 : 0;
}

static int child_both(void)
{
	int code = child_calls();

	code = code ? code : child_world();
	return code ? code : child_calls();
}

/* The child's exit code; 255: it was still there after 20 s, or died of a signal. */
static int in_child(int (*fn)(void))
{
	int64_t end = now_ns() + 20000000000;
	int status = 0;
	pid_t parent = getpid(), pid = fork(), got;

	cr_assert_geq(pid, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(getppid() == parent ? fn() : FOLLOWS + 2);
	}
	while ((got = waitpid(pid, &status, WNOHANG)) == 0 && now_ns() < end)
		sleep_ms(2);
	if (got != pid) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return 255;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int make_memory(spmt_comm *comm, void *arg)
{
	uint64_t *words;
	int rank = spmt_rank(comm);

	(void)arg;
	REQUIRE_OK(spmt_malloc(comm, WORDS * sizeof(*words), (void **)&words));
	TRY(sym_fill(comm, words, WORDS * sizeof(*words), (uint64_t)rank));
	REQUIRE_OK(
		spmt_register(comm, inherited.local, 32u + (unsigned)rank, &inherited.mems[rank]));
	if (rank == 0)
		inherited.words = words;
	return spmt_barrier(comm);
}

static int check_memory(spmt_comm *comm, void *arg)
{
	uint64_t *words = spmt_ptr(inherited.comms[0], arg, spmt_rank(comm));

	TRY(sym_check(comm, words, WORDS * sizeof(*words), (uint64_t)spmt_rank(comm)));
	REQUIRE_EQ(spmt_mem_size(inherited.mems[0], 1), 33);
	return add_ranks(comm, NULL);
}

static int leave(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_finalize(comm);
}

static void parent_begins(void)
{
	struct spmt_attr attrs[RANKS];

	cr_assert_eq(spmt_uid_create(&inherited.uid), 0);
	for (int i = 0; i < RANKS; i++)
		attrs[i] = ranks_attr(i, RANKS, &inherited.uid);
	cr_assert_eq(spmt_init_all(RANKS, attrs, inherited.comms), 0, "%s", spmt_last_error());
	cr_assert_eq(
		spmt_each(RANKS, inherited.comms, make_memory, NULL), 0, "%s", spmt_last_error());
	memset(inherited.local, 0x11, sizeof(inherited.local));
}

static void parent_goes_on(void)
{
	int code = spmt_each(RANKS, inherited.comms, check_memory, inherited.words);

	cr_expect_eq(code, 0, "%d: %s / %s", code, ranks_message(), spmt_last_error());
}

static void parent_ends(void)
{
	cr_expect_eq(spmt_each(RANKS, inherited.comms, leave, NULL), 0, "%s", spmt_last_error());
}

Test(fork, every_call_is_refused)
{
	parent_begins();
	cr_expect_eq(in_child(child_calls), 0);
	parent_goes_on();
	parent_ends();
}

Test(fork, the_child_makes_its_own_world)
{
	parent_begins();
	cr_expect_eq(in_child(child_world), 0);
	cr_expect_eq(in_child(child_both), 0);
	parent_goes_on();
	parent_ends();
	cr_expect_eq(in_child(child_world), 0);
}

static int grandchild(void)
{
	return child_world() ? FOLLOWS + 3 : in_child(child_both);
}

Test(fork, a_child_of_a_child)
{
	parent_begins();
	cr_expect_eq(in_child(grandchild), 0);
	parent_goes_on();
	parent_ends();
}

/* Ranks at work while another thread forks again and again. */
static int work_or_fork(int index, void *arg)
{
	struct spmt_attr attr = ranks_attr(index, RANKS, arg);
	spmt_comm *comm;
	uint64_t *word, rounds = test_count(2000, 2000);

	/* Until the parent has started a driver its child may have it. */
	while (index == RANKS && !on_host() && !spmt_comm_by_rank(arg, 0))
		sleep_ms(1);
	if (index == RANKS) {
		for (int i = 0; i < 10; i++)
			REQUIRE_EQ(in_child(child_world), 0);
		return 0;
	}
	REQUIRE_OK(spmt_init(&attr, &comm));
	REQUIRE_OK(spmt_calloc(comm, 2, sizeof(*word), (void **)&word));
	for (uint64_t i = 1; i <= rounds; i++) {
		REQUIRE_OK(spmt_put_signal(
			comm, word, &i, sizeof(i), word + 1, 1, SPMT_SIGNAL_ADD, 1 - index));
		REQUIRE_OK(spmt_signal_wait(comm, word + 1, SPMT_CMP_GE, i, NULL));
	}
	REQUIRE_OK(spmt_barrier(comm));
	TRY(sym_check_u64(comm, word, rounds));
	REQUIRE_OK(spmt_finalize(comm));
	return 0;
}

/* Sanitizers take locks of their own in the child, which threads of the parent may have held. */
Test(fork, amid_the_work)
{
	spmt_uid uid;

	if (SANITIZED)
		cr_skip_test("fork amid threads is unsafe under sanitizers");
	cr_assert_eq(spmt_uid_create(&uid), 0);
	RANKS_OK(ranks_threads(RANKS + 1, work_or_fork, &uid));
}

Test(fork, descriptors_close_on_exec)
{
	bool before[1024];

	for (int fd = 0; fd < 1024; fd++)
		before[fd] = fcntl(fd, F_GETFD) >= 0;
	parent_begins();
	for (int fd = 0; fd < 1024; fd++) {
		int flags = fcntl(fd, F_GETFD);

		if (!before[fd] && flags >= 0)
			cr_expect(flags & FD_CLOEXEC, "descriptor %d", fd);
	}
	parent_ends();
}
