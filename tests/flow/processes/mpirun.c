/* SPDX-License-Identifier: MIT */
/*
 * A process of a launcher's job, run by mpirun.sh and srun.sh. Arguments, in turn: `worlds N` N worlds of a rank a process;
 * `share N` a world of N ranks a process; `late` process 1 comes after the others' deadline, and all do once more;
 * `missing` process 1 ends without a world, and the others want one; `dies` process 1 is killed in a world; `mpi` calls
 * MPI_Init, if this is an MPI program; `mpi-end` MPI_Finalize.
 */
#include <pthread.h>
#include <signal.h>
#include <spmt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

static int said(const char *what)
{
	fprintf(stderr, "mpirun: %s: %s\n", what, spmt_last_error());
	return 1;
}

static int use(spmt_comm *comm)
{
	uint64_t mine = (uint64_t)spmt_rank(comm) + 1, total = 0, n = (uint64_t)spmt_nranks(comm);
	void *sum;

	if (spmt_calloc(comm, 1, sizeof(uint64_t), &sum) ||
		spmt_atomic(comm, SPMT_AMO_ADD, SPMT_TYPE_U64, sum, &mine, NULL, NULL, 0) ||
		spmt_barrier(comm) || spmt_get(comm, &total, sum, sizeof(total), 0))
		return said("a world");
	if (total == n * (n + 1) / 2)
		return 0;
	fprintf(stderr, "mpirun: rank %d sees %llu\n", spmt_rank(comm), (unsigned long long)total);
	return 1;
}

static int world(const struct spmt_attr *attr)
{
	spmt_comm *comm;
	int bad;

	if (spmt_init(attr, &comm))
		return said("spmt_init");
	bad = use(comm);
	printf("rank %d of %d device %d ok\n", spmt_rank(comm), spmt_nranks(comm),
		spmt_device(comm));
	return spmt_finalize(comm) ? said("spmt_finalize") : bad;
}

static int worlds(int n)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int bad = 0;

	for (int i = 0; i < n && !bad; i++)
		bad = world(&attr);
	return bad;
}

static void *share_main(void *attr)
{
	return world(attr) ? attr : NULL;
}

/* The launcher's numbers as a user has them: from its environment. An mpirun in an allocation of Slurm has both. */
static int number(const char *name, const char *other)
{
	const char *text = getenv(name);

	text = text ? text : getenv(other);
	return text ? atoi(text) : -1;
}

static int share(int n)
{
	struct spmt_attr attrs[8];
	pthread_t threads[8];
	int bad = 0, process = number("PMIX_RANK", "SLURM_PROCID"),
	    processes = number("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS");

	for (int i = 0; i < n; i++) {
		attrs[i] = (struct spmt_attr)SPMT_ATTR_INIT;
		attrs[i].rank = process * n + i;
		attrs[i].nranks = processes * n;
		bad |= pthread_create(&threads[i], NULL, share_main, &attrs[i]);
	}
	for (int i = 0; i < n; i++) {
		void *failed = NULL;

		pthread_join(threads[i], &failed);
		bad |= failed != NULL;
	}
	return bad;
}

static int late(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm;

	attr.timeout_ms = 700;
	if (!strcmp(getenv("PMIX_RANK"), "1")) {
		sleep(3);
	} else if (spmt_init(&attr, &comm) != SPMT_ERR_TIMEOUT ||
		!strstr(spmt_last_error(), "PMIx_Fence")) {
		return said("a process is missing, but");
	}
	return worlds(1);
}

static int missing(void)
{
	return strcmp(getenv("PMIX_RANK"), "1") ? worlds(1) : 0;
}

static int dies(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm;

	if (spmt_init(&attr, &comm) || spmt_barrier(comm))
		return said("spmt_init");
	if (spmt_rank(comm) == 1)
		raise(SIGKILL);
	return spmt_barrier(comm) ? said("spmt_barrier") : 0;
}

static int mpi(const char *what)
{
#ifdef WITH_MPI
	if (!strcmp(what, "mpi"))
		return MPI_Init(NULL, NULL) || MPI_Barrier(MPI_COMM_WORLD);
	return MPI_Barrier(MPI_COMM_WORLD) || MPI_Finalize();
#else
	(void)what;
	return 1;
#endif
}

int main(int argc, char **argv)
{
	int bad = 0;

	for (int i = 1; i < argc && !bad; i++) {
		if (!strncmp(argv[i], "mpi", 3))
			bad = mpi(argv[i]);
		else if (!strcmp(argv[i], "late"))
			bad = late();
		else if (!strcmp(argv[i], "missing"))
			bad = missing();
		else if (!strcmp(argv[i], "dies"))
			bad = dies();
		else if (i + 1 < argc)
			bad = (strcmp(argv[i], "share") ? worlds : share)(atoi(argv[i + 1])), i++;
	}
	return bad;
}
