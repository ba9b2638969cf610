/* SPDX-License-Identifier: MIT */
/*
 * A process that is killed, and has a child that goes on: the others hear of its death, also where the kernel tells nothing but that its
 * connections have ended (sandboxes refuse pidfds, and older kernels have none).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/processes.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

enum {
	RANKS = 2,
	NOTICE_MS = SANITIZED ? 5000 : 1000,
	DEADLINE_MS = 15000,
	CHILD_S = 2 + NOTICE_MS / 1000
};

static bool refused;

/* In place of the C library's. */
int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict size)
{
	if (refused && level == SOL_SOCKET && name == SO_PEERPIDFD) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return (int)syscall(SYS_getsockopt, fd, level, name, value, size);
}

static void refuse_pidfds(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	refused = true;
	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		cr_skip_test("no filters of system calls here");
}

static struct processes world;

static int has_a_child(spmt_comm *comm)
{
	pid_t child = fork();

	REQUIRE(child >= 0);
	if (!child) {
		alarm(CHILD_S);
		for (;;)
			pause();
	}
	REQUIRE_OK(spmt_barrier(comm));
	raise(SIGKILL);
	return 0;
}

static int hears(spmt_comm *comm)
{
	int64_t begin;
	int rc;

	REQUIRE_OK(spmt_barrier(comm));
	begin = calm_ns();
	rc = spmt_barrier(comm);
	REQUIRE_EQ(rc, SPMT_ERR_PEER_DEAD);
	REQUIRE(calm_ns() - begin < NOTICE_MS * (int64_t)1000000);
	return spmt_finalize(comm);
}

static int one_dies(int rank, void *arg)
{
	const int *victim = arg;
	struct spmt_attr attr = ranks_attr(rank, RANKS, &world.uid[0]);
	spmt_comm *comm;

	attr.timeout_ms = DEADLINE_MS;
	REQUIRE_OK(spmt_init(&attr, &comm));
	return rank == *victim ? has_a_child(comm) : hears(comm);
}

/* Either may lead the rendezvous. */
static void either_dies(void)
{
	for (int victim = 0; victim < RANKS; victim++) {
		world = (struct processes){ .layout = "0|1", .killed = 1u << victim };
		RANKS_OK(processes_run(&world, one_dies, &victim));
	}
}

Test(process_children, of_one_that_is_killed)
{
	either_dies();
}

Test(process_children, where_there_are_no_pidfds)
{
	refuse_pidfds();
	either_dies();
}
