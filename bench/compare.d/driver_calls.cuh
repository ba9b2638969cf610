/* SPDX-License-Identifier: MIT */
/* What the driver takes by itself, which no library that calls it can undercut. Behind bench.cuh. */
#ifndef COMPARE_DRIVER_CALLS_CUH
#define COMPARE_DRIVER_CALLS_CUH

/* As many bytes of arguments as a small collective's kernel of libspmt has. */
struct arguments {
	uint64_t words[55];
};

__global__ void k_nothing(struct arguments)
{
}

static void launch_nothing(struct rank *r, bool event)
{
	k_nothing<<<1, 512, 0, r->stream>>>(arguments());
	CHECK(cudaGetLastError());
	if (event)
		CHECK(cudaEventRecord(r->done, r->stream));
}

static void copy_to(struct rank *r, char *dst, const char *src, uint64_t bytes)
{
	CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, r->stream));
}

#endif
