/* SPDX-License-Identifier: MIT */
/* A ring from inside a kernel, a rank on each device. One source: nvcc and hipcc build it for GPUs, cc -x c for virtual devices. */
#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#endif
#include <errno.h>
#include <spmt.h>
#include <spmt_device.h>
#include <stdio.h>

enum { WORDS = 1000 };

struct ring {
	struct spmt_view view;
	/* symmetric: WORDS of this rank's, WORDS that come, the signal, what the wait returned */
	uint64_t *words;
};

#if defined(__CUDACC__) || defined(__HIPCC__)
#define ON_GPU 1
#define DEVICE __device__ static
#else
#define DEVICE static
#endif

DEVICE void ring(const struct ring *r)
{
	const struct spmt_view *v = &r->view;
	uint64_t *came = r->words + WORDS, *signal = came + WORDS;
	int right = (v->pe + 1) % v->npes;

	spmtd_putmem_signal_block(
		v, came, r->words, WORDS * sizeof(*came), signal, 1, SPMT_SIGNAL_SET, right);
	signal[1] = (uint64_t)(int64_t)spmtd_signal_wait_until(v, signal, SPMT_CMP_EQ, 1);
}

#if defined(ON_GPU)
static __global__ void ring_kernel(struct ring r)
{
	ring(&r);
}

static int launch(spmt_comm *comm, const struct ring *r)
{
	SPMT_GUARD(comm); /* until return, the rank's device is the thread's */
	ring_kernel<<<1, 256>>>(*r);
#if defined(__HIPCC__)
	return hipGetLastError() || hipStreamSynchronize(0) ? -EIO : 0;
#else
	return cudaGetLastError() || cudaStreamSynchronize(0) ? -EIO : 0;
#endif
}
#else
static void ring_kernel(void *r)
{
	ring((const struct ring *)r);
}

static int launch(spmt_comm *comm, const struct ring *r)
{
	int rc = spmt_host_launch(comm, NULL, ring_kernel, r, sizeof(*r));

	return rc ? rc : spmt_quiet(comm);
}
#endif

static int rank_main(spmt_comm *comm, void *out)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm), left = (rank + n - 1) % n, rc;
	uint64_t words[WORDS], code = 0;
	struct ring r;
	void *ptr;

	for (int i = 0; i < WORDS; i++)
		words[i] = (uint64_t)(1000000 * rank + i);
	r.view.size = sizeof(r.view);
	rc = spmt_calloc(comm, 2 * WORDS + 2, sizeof(uint64_t), &ptr);
	if (rc || (rc = spmt_view_get(comm, &r.view)))
		return rc;
	r.words = (uint64_t *)ptr;
	if ((rc = spmt_copy_in(comm, r.words, words, sizeof(words))) || (rc = launch(comm, &r)))
		return rc;
	if ((rc = spmt_copy_out(comm, &code, r.words + 2 * WORDS + 1, sizeof(code))) || code)
		return rc ? rc : (int)(int64_t)code;
	if ((rc = spmt_copy_out(comm, words, r.words + WORDS, sizeof(words))))
		return rc;
	for (int i = 0; i < WORDS; i++)
		if (words[i] != (uint64_t)(1000000 * left + i))
			return -EIO;
	fprintf((FILE *)out, "rank %d of %d has %d words of rank %d, put by a kernel\n", rank, n,
		WORDS, left);
	return spmt_free(comm, ptr);
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	int n = 0, rc;

#if defined(__HIPCC__)
	attr.backend = "hip";
#elif defined(ON_GPU)
	attr.backend = "cuda";
#else
	attr.backend = "host";
#endif
	rc = spmt_device_count(attr.backend, &n);
	if (!rc)
		rc = spmt_run(n, &attr, rank_main, stdout);
	if (rc)
		fprintf(stderr, "ring_kernel: %s: %s\n", spmt_strerror(rc), spmt_last_error());
	return rc ? 1 : 0;
}
