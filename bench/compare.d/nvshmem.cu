/* SPDX-License-Identifier: MIT */
/* NVSHMEM: a process a GPU, which the parent starts; they exchange the library's id through shared memory. */
#include "ops_nvshmem.cuh"

#include "kernels.cuh"

#include "device_calls.cuh"

#include "calls.cuh"
#include "groups.cuh"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static unsigned calls_there(void)
{
	return ((1u << CALL_RING) - 1) & ~(1u << CALL_COPY);
}

static void issue(struct rank *r, enum call call, uint64_t bytes)
{
	float *dst = (float *)r->dst, *src = (float *)r->src;
	size_t words = bytes / 4, each = words / (size_t)r->npes;
	int rc = 0;

	switch (call) {
	case CALL_PUT:
		nvshmemx_putmem_on_stream(dst, src, bytes, 1, r->stream);
		break;
	case CALL_BARRIER:
		nvshmemx_barrier_all_on_stream(r->stream);
		break;
	case CALL_ALL_REDUCE:
		rc = nvshmemx_float_sum_reduce_on_stream(
			NVSHMEM_TEAM_WORLD, dst, src, words, r->stream);
		break;
	case CALL_ALL_GATHER:
		rc = nvshmemx_float_fcollect_on_stream(
			NVSHMEM_TEAM_WORLD, dst, src, each, r->stream);
		break;
	case CALL_ALL_TO_ALL:
		rc = nvshmemx_float_alltoall_on_stream(
			NVSHMEM_TEAM_WORLD, dst, src, each, r->stream);
		break;
	default:
		rc = -1;
	}
	if (rc)
		die("PE %d: call %d on a stream returned %d", r->pe, (int)call, rc);
}

static void join_world(struct rank *r)
{
	nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
	nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
	struct shared *s = r->shared;

	static_assert(sizeof(id) <= sizeof(s->id), "the id fits");
	if (r->pe == 0) {
		if (nvshmemx_get_uniqueid(&id))
			die("nvshmemx_get_uniqueid failed");
		memcpy(s->id, &id, sizeof(id));
	}
	meet(r);
	memcpy(&id, s->id, sizeof(id));
	if (nvshmemx_set_attr_uniqueid_args(r->pe, r->npes, &id, &attr))
		die("nvshmemx_set_attr_uniqueid_args failed");
	if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr))
		die("nvshmemx_init_attr failed");
	if (nvshmem_my_pe() != r->pe || nvshmem_n_pes() != r->npes)
		die("PE %d of %d thinks it is %d of %d", r->pe, r->npes, nvshmem_my_pe(),
			nvshmem_n_pes());
}

static void rank_main(struct shared *shared, const struct options *options, int pe)
{
	struct rank rank = {}, *r = &rank;

	r->shared = shared;
	r->options = options;
	r->pe = pe;
	r->npes = options->npes;
	r->window = window_of(options);
	CHECK(cudaSetDevice(pe));
	CHECK(cudaFree(NULL));
	join_world(r);
	r->src = (char *)nvshmem_align(65536, r->window + GUARD);
	r->dst = (char *)nvshmem_align(65536, r->window + GUARD);
	r->words = (uint64_t *)nvshmem_align(65536, WORDS_ALL * sizeof(uint64_t));
	if (!r->src || !r->dst || !r->words)
		die("PE %d: no symmetric memory (NVSHMEM_SYMMETRIC_SIZE)", pe);
	if (pe == 0) {
		printf("note NVSHMEM %d.%d.%d; PE 1 by %s\n", NVSHMEM_VENDOR_MAJOR_VERSION,
			NVSHMEM_VENDOR_MINOR_VERSION, NVSHMEM_VENDOR_PATCH_VERSION,
			nvshmem_ptr(r->dst, 1) ? "loads and stores" : "something slow");
		fflush(stdout);
	}
	bench_run(r);
	fflush(stdout);
	_exit(0); /* finalize is not measured, and may hang */
}

/* The first that fails takes the others with it. */
static int wait_for(pid_t *children, int n)
{
	int left = n, failed = 0;

	while (left > 0) {
		int status;
		pid_t child = wait(&status);

		if (child < 0 && errno == EINTR)
			continue;
		if (child < 0)
			break;
		left--;
		for (int i = 0; i < n; i++)
			if (children[i] == child)
				children[i] = 0;
		if (status && !failed) {
			failed = 1;
			printf("failed a PE ended with status %#x\n", (unsigned)status);
			for (int i = 0; i < n; i++)
				if (children[i])
					kill(children[i], SIGKILL);
		}
	}
	return failed;
}

int main(int argc, char **argv)
{
	pid_t children[COMPARE_MAX_PES], parent = getpid();
	struct options options;
	struct shared *shared;

	parse(&options, argc, argv);
	shared = (struct shared *)mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("no shared memory");
	fflush(stdout);
	for (int pe = 0; pe < options.npes; pe++) {
		children[pe] = fork();
		if (children[pe] < 0)
			die("no process %d", pe);
		if (!children[pe]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			rank_main(shared, &options, pe);
		}
	}
	fflush(stdout);
	return wait_for(children, options.npes);
}
