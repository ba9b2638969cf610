/* SPDX-License-Identifier: MIT */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/status.h"

enum { PROGRAM_SECONDS = 150, TEST_SECONDS = 60, RANKS_MOST = 8 };

static struct {
	const struct backend *b;
	bool less;
	int devices, number, passed, failed, skipped;
} gpu;

const struct backend *gpu_backend(void)
{
	return gpu.b;
}

bool gpu_host(void)
{
	return gpu.b == &backend_host;
}

int gpu_devices(void)
{
	return gpu.devices;
}

size_t gpu_number(size_t full, size_t less)
{
	return gpu.less ? less : full;
}

const char *const scope_names[SCOPES] = { "thread", "warp", "block" };

unsigned workers_of(const struct load *l)
{
	if (gpu_host())
		return 1;
	if (l->scope == BY_BLOCK)
		return l->grid;
	return l->grid * (l->scope == BY_WARP ? (l->block + 31) / 32 : l->block);
}

uint64_t addr(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

int gpu_run(int n, size_t heap, int (*fn)(spmt_comm *comm, void *arg), void *arg)
{
	return gpu_run_on(gpu.b, n, heap, fn, arg);
}

int gpu_run_on(const struct backend *b, int n, size_t heap, int (*fn)(spmt_comm *comm, void *arg),
	void *arg)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;

	attr.backend = b->name;
	attr.heap_size = heap;
	attr.timeout_ms = 20000;
	return ranks_run(n, &attr, fn, arg);
}

/* ---- main ------------------------------------------------------------------------------------ */

static bool wanted(const char *name, int argc, char **argv)
{
	bool any = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-n")) {
			i++;
			continue;
		}
		any = true;
		if (!strcmp(argv[i], name))
			return true;
	}
	return !any;
}

static void run_test(const struct gpu_test *t, int n)
{
	int64_t begin = now_ns();
	int rc = t->run(n);
	double seconds = (double)(now_ns() - begin) / 1e9;

	printf("%s %d - %s, %d rank%s on %s%s\n", rc && rc != GPU_SKIP ? "not ok" : "ok",
		++gpu.number, t->name, n, n > 1 ? "s" : "", gpu.b->name,
		rc == GPU_SKIP ? " # SKIP not on this backend" : "");
	if (rc && rc != GPU_SKIP)
		printf("# %s\n", ranks_message());
	if (seconds > 1)
		printf("# %.1f s\n", seconds);
	fflush(stdout);
	gpu.passed += !rc;
	gpu.skipped += rc == GPU_SKIP;
	gpu.failed += rc && rc != GPU_SKIP;
}

static int one_count(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "-n"))
			return atoi(argv[i + 1]);
	return 0;
}

static bool find_devices(const struct test_kernel *const *kernels)
{
	const char *reason = "";

	/* Streams that share a queue wait for each other's kernels, and some kernels here wait for what
	   another stream brings: as many queues as CUDA makes, before its driver starts. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	if (device_select(NULL, &gpu.b) || gpu.b->count(&gpu.devices)) {
		printf("Bail out! %s\n", status_sentence());
		return false;
	}
	gpu.devices = MIN_OF(gpu.devices, RANKS_MOST);
	gpu.less = gpu_host() || getenv("SPMT_GPU_SHORT");
	if (driver_open(gpu.b, (1u << gpu.devices) - 1, kernels, &reason))
		return true;
	printf("Bail out! %s: %s\n", gpu.b->name, reason);
	return false;
}

int gpu_take(unsigned devices, const struct test_kernel *const *kernels)
{
	const char *reason = "";

	REQUIRE_OK(device_select(NULL, &gpu.b));
	REQUIRE_OK(gpu.b->count(&gpu.devices));
	gpu.less = gpu_host() || getenv("SPMT_GPU_SHORT");
	if (devices && !driver_open(gpu.b, devices, kernels, &reason))
		return ranks_fail("%s: %s", gpu.b->name, reason);
	return 0;
}

int gpu_main(int argc, char **argv, const struct test_kernel *const *kernels,
	const struct gpu_test *tests, size_t ntests)
{
	static const struct test_kernel *const none[] = { NULL };
	bool probe = argc == 2 && !strcmp(argv[1], "--probe");
	int only = one_count(argc, argv);

	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(PROGRAM_SECONDS);
	ranks_deadline(TEST_SECONDS);
	if (!find_devices(probe ? none : kernels))
		return 1;
	if (probe) {
		printf("%s %d\n", gpu.b->name, gpu_host() ? 0 : gpu.devices);
		return 0;
	}
	for (int n = only ? only : 1; n <= (only ? only : MIN_OF(4, gpu.devices)); n *= 2)
		for (size_t i = 0; i < ntests; i++)
			if (n >= tests[i].least && wanted(tests[i].name, argc, argv))
				run_test(&tests[i], n);
	if (!gpu.number)
		printf("ok %d - all # SKIP none is for so few ranks, or of that name\n",
			++gpu.number);
	printf("1..%d\n", gpu.number);
	return gpu.failed != 0;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

int rank_open(struct rank *r, spmt_comm *comm)
{
	const char *backend = spmt_backend(comm);

	*r = (struct rank){ .comm = comm,
		.b = backend && !strcmp(backend, backend_host.name) ? &backend_host : gpu.b,
		.pe = spmt_rank(comm),
		.n = spmt_nranks(comm),
		.dev = spmt_device(comm),
		.view.size = sizeof(r->view) };
	r->next = (r->pe + 1) % r->n;
	r->prev = (r->pe + r->n - 1) % r->n;
	REQUIRE_OK(spmt_view_get(comm, &r->view));
	if (r->b == &backend_host)
		REQUIRE_OK(spmt_host_stream_create(comm, &r->stream));
	else
		REQUIRE_OK(r->b->stream_create(r->dev, &r->stream));
	return 0;
}

void rank_close(struct rank *r)
{
	r->b->stream_destroy(r->dev, r->stream);
}

int rank_launch(struct rank *r, const struct test_kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size)
{
	int rc;

	if (r->b == &backend_host)
		REQUIRE_OK(spmt_host_launch(r->comm, r->stream, k->host, args, size));
	if (r->b == &backend_host)
		return 0;
	rc = driver_launch(r->dev, k, grid, block, args, size, r->stream);
	return rc ? ranks_fail("launch of %s: %d", k->name, rc) : 0;
}

int rank_sync(struct rank *r)
{
	int rc = r->b->stream_sync(r->dev, r->stream, 50000000000, NULL);

	if (rc == -ETIMEDOUT)
		return ranks_fail("the stream of rank %d is not done after 50 s", r->pe);
	return rc ? ranks_fail("the stream of rank %d: %d: %s", r->pe, rc, spmt_last_error()) : 0;
}

int rank_step(struct rank *r, const struct test_kernel *k, unsigned grid, unsigned block,
	const void *args, size_t size)
{
	int rc = rank_launch(r, k, grid, block, args, size);

	if (!rc)
		rc = rank_sync(r);
	if (rc)
		return rc;
	rc = spmt_barrier(r->comm);
	return rc ? ranks_fail("the barrier after %s: %d: %s", k->name, rc, spmt_last_error()) : 0;
}

int rank_fill(struct rank *r, void *dst, int byte, size_t n)
{
	int rc = n ? r->b->fill(r->dev, dst, byte, n, r->stream) : 0;

	return rc ? ranks_fail("fill: %d: %s", rc, spmt_last_error()) : rank_sync(r);
}

int rank_write(struct rank *r, void *dst, const void *host, size_t n)
{
	int rc = n ? r->b->copy(r->dev, dst, host, n, r->stream) : 0;

	return rc ? ranks_fail("copy: %d: %s", rc, spmt_last_error()) : rank_sync(r);
}

int rank_read(struct rank *r, void *host, const void *src, size_t n)
{
	return rank_write(r, host, src, n);
}

int rank_alloc(struct rank *r, size_t n, void **ptr)
{
	int rc = r->b->alloc(r->dev, n, DEVICE_MEMORY_PLAIN, ptr);

	return rc ? ranks_fail("alloc of %zu bytes: %d: %s", n, rc, spmt_last_error()) : 0;
}

void rank_free(struct rank *r, void *ptr)
{
	if (ptr)
		r->b->free(r->dev, ptr);
}

int outcome_open(struct rank *r, struct outcome **o)
{
	void *p;

	REQUIRE_OK(spmt_calloc(r->comm, 1, sizeof(**o), &p));
	*o = p;
	return 0;
}

int outcome_check(struct rank *r, struct outcome *o, const char *what)
{
	struct outcome seen;

	TRY(rank_read(r, &seen, o, sizeof(seen)));
	if (seen.errors)
		return ranks_fail(
			"%s, rank %d: %llu errors; first: round %llu, code %lld, saw %#llx for %#llx",
			what, r->pe, (unsigned long long)seen.errors,
			(unsigned long long)seen.round, (long long)seen.code,
			(unsigned long long)seen.seen, (unsigned long long)seen.expected);
	return 0;
}
