/* SPDX-License-Identifier: MIT */
/* Shared by hip_on_cuda*.c: a libamdhip64 of version 7.2 that forwards to libcuda, so that the
   hip backend runs on NVIDIA GPUs. */
#ifndef SPMT_TESTS_HIP_ON_CUDA_H
#define SPMT_TESTS_HIP_ON_CUDA_H

#include <stdbool.h>

#include "src/device/gpu/abi_cuda_calls.h"
#include "src/device/gpu/abi_hip_calls.h"

/* Of the static kind: ThreadSanitizer takes the end of a loaded library's other kind for a race. */
#define THREAD _Thread_local __attribute__((tls_model("initial-exec")))

#define X(field, symbol, args) hip_result symbol args;
HIP_REQUIRED(X)
HIP_OPTIONAL(X)
HIP_PROPS(X)
#undef X
#define X(field, symbol, args) const char *symbol args;
HIP_TEXTS(X)
#undef X

/* The driver, loaded at the first call from SPMT_CUDA_LIB or libcuda.so.1; NULL: there is none. */
const struct cuda_api *over_driver(void);
/* The primary context of the thread's device on the stack, between enter and leave; leave gives
   result back. */
cu_result over_enter(void);
hip_result over_leave(cu_result result);
/* Results are numbered alike; a failure becomes the thread's last error, success changes
   nothing, as in version 7. */
hip_result over_end(cu_result result);
int over_device(void);
cu_stream over_stream(hip_stream stream);

#define IN_CONTEXT(call)                                \
	do {                                            \
		cu_result in_ = over_enter();           \
		if (in_ != CU_OK)                       \
			return over_end(in_);           \
		return over_leave(over_driver()->call); \
	} while (0)

#endif
