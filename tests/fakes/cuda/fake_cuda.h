/* SPDX-License-Identifier: MIT */
/* What the files of the stand-in libcuda.so.1 share: its calls, and how each begins. */
#ifndef SPMT_FAKE_CUDA_H
#define SPMT_FAKE_CUDA_H

#include "src/device/gpu/abi_cuda_calls.h"
#include "tests/fakes/fake.h"

#define X(field, symbol, args) cu_result symbol args;
CUDA_REQUIRED(X)
CUDA_OPTIONAL(X)
#undef X
int fake_cuda_current(void); /* the current context's device, or -1 */
bool fake_cuda_prohibits(
	void); /* a capture somewhere is broken by what this thread calls, but for what only queues */

#define CHECK(name)                                \
	do {                                       \
		int armed_ = fake_call(name);      \
		if (armed_)                        \
			return armed_;             \
		if (!fake_same_process())          \
			return CU_NOT_INITIALIZED; \
	} while (0)
#define CHECK_CONTEXT(name)                        \
	do {                                       \
		CHECK(name);                       \
		if (fake_cuda_current() < 0)       \
			return CU_INVALID_CONTEXT; \
	} while (0)

#endif
