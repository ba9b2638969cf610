/* SPDX-License-Identifier: MIT */
/*
 * What the GPU tests share: plain programs that print TAP, run on the backend that has devices
 * (SPMT_BACKEND names another) for 1, 2 and 4 ranks, one a device, as far as there are devices. A
 * test's body is written once: on GPUs its kernels are launched through the driver, on the host
 * backend through spmt_host_launch, where one thread is the whole grid.
 */
#ifndef TESTS_GPU_H
#define TESTS_GPU_H

#include "driver.h"
#include "tests/lib/ranks.h"

enum { GPU_SKIP = 1 };

struct gpu_test {
	const char *name;
	int (*run)(int nranks); /* 0, GPU_SKIP, or a failure with ranks_message() */
	int least;		/* ranks; with fewer it is left out */
};

/* program [-n RANKS] [TEST ..], or program --probe: the backend and how many GPUs it has. What
   main returns. kernels: NULL at the end. */
int gpu_main(int argc, char **argv, const struct test_kernel *const *kernels,
	const struct gpu_test *tests, size_t ntests);

/* For a process that gpu_main does not run in: the backend, and the kernels on the devices of a mask if it is not 0. 0, or a failure with
   ranks_message(). */
int gpu_take(unsigned devices, const struct test_kernel *const *kernels);

const struct backend *gpu_backend(void);
bool gpu_host(void); /* on the host backend */
int gpu_devices(void);
/* How often, or how much: on GPUs; on the host backend and with SPMT_GPU_SHORT. */
size_t gpu_number(size_t full, size_t less);

/* A row of a test's table: who makes calls, how many, with how much. */
struct load {
	enum scope scope;
	unsigned grid, block;
	uint64_t words, rounds, fewer; /* on GPUs; on the host backend */
};
extern const char *const scope_names[SCOPES];
unsigned workers_of(const struct load *l);

/* fn on n ranks of a world of its own. */
int gpu_run(int n, size_t heap, int (*fn)(spmt_comm *comm, void *arg), void *arg);
/* The same on another backend: what rank_* do, launches apart, works there, too. */
int gpu_run_on(const struct backend *b, int n, size_t heap, int (*fn)(spmt_comm *comm, void *arg),
	void *arg);

/* ---- a rank. Failures are recorded as those of ranks.h --------------------------------------- */

struct rank {
	spmt_comm *comm;
	const struct backend *b;
	int pe, n, dev, next, prev;
	spmt_stream stream; /* the test's own */
	struct spmt_view view;
};
int rank_open(struct rank *r, spmt_comm *comm);
void rank_close(struct rank *r);

int rank_launch(struct rank *r, const struct test_kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size);
int rank_sync(struct rank *r); /* of its stream */
/* launch and sync; then all ranks meet */
int rank_step(struct rank *r, const struct test_kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size);
#define RANK_STEP(r, kernel, grid, block, args) \
	TRY(rank_step((r), &(kernel), (grid), (block), &(args), sizeof(args)))
#define RANK_LAUNCH(r, kernel, grid, block, args) \
	TRY(rank_launch((r), &(kernel), (grid), (block), &(args), sizeof(args)))

int rank_fill(struct rank *r, void *dst, int byte, size_t n);
int rank_write(struct rank *r, void *dst, const void *host, size_t n);
int rank_read(struct rank *r, void *host, const void *src, size_t n);
int rank_alloc(struct rank *r, size_t n, void **ptr); /* of its device, not symmetric */
void rank_free(struct rank *r, void *ptr);

/* Symmetric and zeroed, for kernels that report; checked and cleared. */
int outcome_open(struct rank *r, struct outcome **o);
int outcome_check(struct rank *r, struct outcome *o, const char *what);

uint64_t addr(const void *p);

#endif
