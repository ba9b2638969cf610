/* SPDX-License-Identifier: MIT */
/* Ranks of a process that fail while another of them is just calling other processes. */
#include <criterion/criterion.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/lib/processes.h"

enum { RANKS = 3, NOTICE_MS = SANITIZED ? 5000 : 1000, DEADLINE_MS = 15000 };

static struct processes joins;

static struct {
	_Atomic int wanted; /* the next bootstrap of this process is held */
	sem_t inside, leave;
} held;

/* In place of the C library's: a bootstrap begins so. */
int epoll_create1(int flags)
{
	if (atomic_exchange(&held.wanted, 0)) {
		sem_post(&held.inside);
		while (sem_wait(&held.leave))
			;
	}
	return (int)syscall(SYS_epoll_create1, flags);
}

/* It breaks the world that another rank of its process is in, and nobody else hears of it by itself. */
static int comes_for_another_size(struct spmt_attr *attr)
{
	spmt_comm *comm;

	sem_wait(&held.inside);
	attr->nranks = RANKS + 1;
	REQUIRE_CODE(spmt_init(attr, &comm), SPMT_ERR_MISMATCH);
	sem_post(&held.leave);
	return 0;
}

static int joins_main(int rank, void *arg)
{
	struct spmt_attr attr = ranks_attr(rank, RANKS, &joins.uid[0]);
	int64_t begin = calm_ns();
	spmt_comm *comm;

	(void)arg;
	attr.timeout_ms = DEADLINE_MS;
	if (rank == 2)
		return comes_for_another_size(&attr);
	if (rank == 1)
		atomic_store(&held.wanted, 1);
	REQUIRE_CODE(spmt_init(&attr, &comm), SPMT_ERR_MISMATCH);
	REQUIRE_SAYS("nranks differs: rank 1 passed 3, rank 2 passed 4");
	REQUIRE(calm_ns() - begin < NOTICE_MS * (int64_t)1000000);
	return 0;
}

Test(process_joins, who_breaks_the_world_before_its_process_has_called_others)
{
	sem_init(&held.inside, 0, 0);
	sem_init(&held.leave, 0, 0);
	joins.layout = "0|1,2";
	RANKS_OK(processes_run(&joins, joins_main, NULL));
}
