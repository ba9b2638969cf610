/* SPDX-License-Identifier: MIT */
/* The steps of the demonstration. Data moves by copy_in and copy_out, so that they run on any backend. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "demo.h"
#include "spmt_device.h"

/* The i-th byte group of what `owner` sends. */
static uint64_t word_of(int owner, size_t i)
{
	uint64_t z = ((uint64_t)owner << 40) + i + 1;

	z = (z ^ (z >> 31)) * 0x7fb5d329728ea185u;
	z = (z ^ (z >> 27)) * 0x81dadef4bc2dd44du;
	return z ^ (z >> 33);
}

static int data_fill(struct demo_rank *r, void *sym, size_t size)
{
	uint64_t *host = r->host;

	for (size_t i = 0; i < size / sizeof(*host); i++)
		host[i] = word_of(r->rank, i);
	return spmt_copy_in(r->comm, sym, host, size);
}

static int data_check(
	struct demo_rank *r, const char *what, const void *sym, size_t size, int owner)
{
	uint64_t *host = r->host;
	int rc;

	memset(host, 0, size);
	rc = spmt_copy_out(r->comm, host, sym, size);
	for (size_t i = 0; i < size / sizeof(*host) && !rc; i++)
		if (host[i] != word_of(owner, i))
			rc = demo_wrong(r, "%s: rank %d, word %zu of %zu is not what rank %d sent",
				what, r->rank, i, size / sizeof(*host), owner);
	return rc;
}

/* ---- ring */

/* Hop by hop: every block visits every rank; each has a slot of its own, so nobody waits for anything but the data. */
static int ring_hop(struct demo_rank *r, int hop, size_t block)
{
	unsigned char *to = r->b + (size_t)hop * block;
	const unsigned char *from = hop ? to - block : r->a;
	int owner = (r->left - hop + 2 * r->nranks) % r->nranks;
	int rc = spmt_put_signal(r->comm, to, from, block, demo_signal(r, SIGNAL_RING), 1,
		SPMT_SIGNAL_ADD, r->right);

	if (!rc)
		rc = spmt_signal_wait(
			r->comm, demo_signal(r, SIGNAL_RING), SPMT_CMP_GE, (uint64_t)hop + 1, NULL);
	return rc ? rc : data_check(r, "ring", to, block, owner);
}

int demo_ring(struct demo_rank *r)
{
	size_t block = DEMO_LARGEST / (size_t)r->nranks & ~(size_t)7;
	int rc;

	if (block > DEMO_BLOCK)
		block = DEMO_BLOCK;
	rc = data_fill(r, r->a, block);
	for (int hop = 0; hop < r->nranks && !rc; hop++)
		rc = ring_hop(r, hop, block);
	if (!rc && r->rank == 0)
		printf("ring: %d blocks of %zu bytes went round by put_signal, every byte compared\n",
			r->nranks, block);
	return rc;
}

/* ---- all-reduce */

/* Small whole numbers: their f32 sums are exact in any order. */
static float term(int rank, size_t i)
{
	return (float)(word_of(rank, i) % 1024);
}

static int sum_check(struct demo_rank *r, const float *sums)
{
	for (size_t i = 0; i < DEMO_SUM; i++) {
		float want = 0;

		for (int pe = 0; pe < r->nranks; pe++)
			want += term(pe, i);
		if (sums[i] != want)
			return demo_wrong(r, "all_reduce: rank %d, element %zu is %g, want %g",
				r->rank, i, (double)sums[i], (double)want);
	}
	return 0;
}

int demo_all_reduce(struct demo_rank *r)
{
	float *host = r->host;
	int rc;

	for (size_t i = 0; i < DEMO_SUM; i++)
		host[i] = term(r->rank, i);
	rc = spmt_copy_in(r->comm, r->a, host, DEMO_SUM * sizeof(*host));
	if (!rc)
		rc = spmt_all_reduce(
			r->comm, r->b, r->a, DEMO_SUM, SPMT_TYPE_F32, SPMT_OP_SUM, NULL);
	if (!rc)
		rc = spmt_quiet(r->comm);
	memset(host, 0, DEMO_SUM * sizeof(*host));
	if (!rc)
		rc = spmt_copy_out(r->comm, host, r->b, DEMO_SUM * sizeof(*host));
	if (!rc)
		rc = sum_check(r, host);
	if (!rc && r->rank == 0)
		printf("all_reduce: sum of %d floats over %d ranks, every element compared\n",
			DEMO_SUM, r->nranks);
	return rc;
}

/* ---- barrier */

/* Round i: what the left neighbour put before the barrier is here behind it. */
static int barrier_round(struct demo_rank *r, uint64_t i)
{
	uint64_t *sent = (uint64_t *)(void *)r->a, *seen = (uint64_t *)(void *)r->b;
	uint64_t value = word_of(r->rank, i), got = 0;
	int rc = spmt_copy_in(r->comm, sent, &value, sizeof(value));

	if (!rc)
		rc = spmt_put_nbi(r->comm, seen, sent, sizeof(value), r->right);
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc)
		rc = spmt_copy_out(r->comm, &got, seen, sizeof(got));
	if (!rc && got != word_of(r->left, i))
		rc = demo_wrong(r, "barrier %d: rank %d does not have what rank %d put before it",
			(int)i, r->rank, r->left);
	return rc ? rc : spmt_barrier(r->comm);
}

int demo_barrier(struct demo_rank *r)
{
	enum { ROUNDS = 100 };
	int rc = 0;

	for (uint64_t i = 0; i < ROUNDS && !rc; i++)
		rc = barrier_round(r, i);
	if (!rc && r->rank == 0)
		printf("barrier: %d rounds, what was put before each was there behind it\n",
			ROUNDS);
	return rc;
}

/* ---- kernel */

enum { FACTOR = 3 };

/* A kernel's arguments: the view makes it act as its rank. */
struct scale_args {
	struct spmt_view view;
	uint64_t *block, *out, *signal;
	uint64_t count, factor;
	int right;
};

/* Every element times factor, in this rank's memory; then the whole block to the right, with a signal. */
static void scale_and_send(void *p)
{
	const struct scale_args *a = p;

	for (uint64_t i = 0; i < a->count; i++)
		a->block[i] *= a->factor;
	spmtd_putmem_signal(&a->view, a->out, a->block, a->count * sizeof(*a->block), a->signal, 1,
		SPMT_SIGNAL_SET, a->right);
}

static int kernel_launch(struct demo_rank *r, size_t count)
{
	struct scale_args args = { .view = { .size = sizeof(args.view) },
		.block = (uint64_t *)(void *)r->a,
		.out = (uint64_t *)(void *)r->b,
		.signal = demo_signal(r, SIGNAL_KERNEL),
		.count = count,
		.factor = FACTOR,
		.right = r->right };
	int rc = spmt_view_get(r->comm, &args.view);

	return rc ? rc : spmt_host_launch(r->comm, NULL, scale_and_send, &args, sizeof(args));
}

/* On GPUs, where a kernel of this program's own would need a vendor's compiler: the library's, queued in stream order. */
static int kernel_queue(struct demo_rank *r, size_t count)
{
	return spmt_put_signal_on_stream(r->comm, r->b, r->a, count * sizeof(uint64_t),
		demo_signal(r, SIGNAL_KERNEL), 1, SPMT_SIGNAL_SET, r->right, NULL);
}

static int kernel_check(struct demo_rank *r, size_t count, uint64_t factor)
{
	uint64_t *host = r->host;
	int rc = spmt_copy_out(r->comm, host, r->b, count * sizeof(*host));

	for (size_t i = 0; i < count && !rc; i++)
		if (host[i] != factor * word_of(r->left, i))
			rc = demo_wrong(r, "kernel: rank %d, word %zu is not rank %d's times %d",
				r->rank, i, r->left, (int)factor);
	return rc;
}

int demo_kernel(struct demo_rank *r)
{
	enum { COUNT = 4096 };
	bool own = !strcmp(spmt_backend(r->comm), "host");
	int rc = data_fill(r, r->a, COUNT * sizeof(uint64_t));

	if (!rc)
		rc = own ? kernel_launch(r, COUNT) : kernel_queue(r, COUNT);
	if (!rc)
		rc = spmt_signal_wait(r->comm, demo_signal(r, SIGNAL_KERNEL), SPMT_CMP_EQ, 1, NULL);
	if (!rc)
		rc = kernel_check(r, COUNT, own ? FACTOR : 1);
	if (!rc)
		rc = spmt_quiet(r->comm);
	if (!rc && r->rank == 0)
		printf("kernel: %s on each device put %d words to its neighbour with a signal\n",
			own ? "a kernel" : "the library's kernel", COUNT);
	return rc;
}

/* ---- figures */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int put_verify(struct demo_rank *r, size_t size)
{
	int rc = r->rank == 0 ? data_fill(r, r->a, size) : 0;

	if (!rc && r->rank == 0)
		rc = spmt_put(r->comm, r->b, r->a, size, r->right);
	if (!rc)
		rc = spmt_barrier(r->comm);
	if (!rc && r->left == 0)
		rc = data_check(r, "put", r->b, size, 0);
	return rc ? rc : spmt_barrier(r->comm);
}

/* Rank 0 puts to rank 1 while the others wait in the barrier. */
static int put_time(struct demo_rank *r, size_t size)
{
	int turns = size > (1u << 18) ? 20 : 2000, rc = put_verify(r, size);
	double begin = now_us();

	for (int i = 0; i < turns && !rc && r->rank == 0; i++)
		rc = spmt_put(r->comm, r->b, r->a, size, r->right);
	if (!rc)
		rc = spmt_quiet(r->comm);
	if (!rc && r->rank == 0) {
		double us = (now_us() - begin) / turns;

		printf("  put %9zu bytes  %10.3f us  %8.2f GB/s\n", size, us,
			(double)size / us / 1e3);
	}
	return rc ? rc : spmt_barrier(r->comm);
}

static int pingpong_time(struct demo_rank *r)
{
	enum { TURNS = 2000 };
	uint64_t *signal = demo_signal(r, SIGNAL_PINGPONG);
	double begin = now_us();
	int rc = 0, other = r->rank ^ 1;

	for (uint64_t i = 1; i <= TURNS && !rc && r->rank < 2; i++) {
		if (r->rank == 0)
			rc = spmt_put_signal(
				r->comm, r->b, r->a, 8, signal, i, SPMT_SIGNAL_SET, other);
		if (!rc)
			rc = spmt_signal_wait(r->comm, signal, SPMT_CMP_GE, i, NULL);
		if (!rc && r->rank == 1)
			rc = spmt_put_signal(
				r->comm, r->b, r->a, 8, signal, i, SPMT_SIGNAL_SET, other);
	}
	if (!rc && r->rank == 0)
		printf("  put with signal, 8 bytes, one way  %8.3f us\n",
			(now_us() - begin) / (double)TURNS / 2);
	return rc ? rc : spmt_barrier(r->comm);
}

static int barrier_time(struct demo_rank *r)
{
	enum { TURNS = 1000 };
	double begin = now_us();
	int rc = 0;

	for (int i = 0; i < TURNS && !rc; i++)
		rc = spmt_barrier(r->comm);
	if (!rc && r->rank == 0)
		printf("  barrier of %d                       %8.3f us\n", r->nranks,
			(now_us() - begin) / (double)TURNS);
	return rc;
}

int demo_table(struct demo_rank *r)
{
	static const size_t sizes[] = { 8, 4096, 65536, 1u << 20, DEMO_LARGEST };
	int rc = 0;

	if (r->rank == 0)
		printf("figures (one run, one clock; spmt-perf measures with care)\n");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !rc; i++)
		rc = put_time(r, sizes[i]);
	if (!rc && r->nranks > 1)
		rc = pingpong_time(r);
	return rc ? rc : barrier_time(r);
}
