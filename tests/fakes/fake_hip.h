/* SPDX-License-Identifier: MIT */
/*
 * Shared by fake_hip*.c: a libamdhip64 over host memory, built three times. FAKE_HIP_VERSION is
 * what hipRuntimeGetVersion says (50221153, 60443484, 70200000), and decides the quirks.
 */
#ifndef SPMT_TESTS_FAKE_HIP_H
#define SPMT_TESTS_FAKE_HIP_H

#include "fake.h"
#include "src/device/gpu/abi_hip_calls.h"

#ifndef FAKE_HIP_VERSION
#define FAKE_HIP_VERSION 60443484
#endif
#define FAKE_HIP_MAJOR (FAKE_HIP_VERSION / 10000000)

/* Prototypes of all that is exported. */
#define X(field, symbol, args) hip_result symbol args;
HIP_REQUIRED(X)
HIP_OPTIONAL(X)
HIP_YOUNG(X)
HIP_PROPS(X)
#undef X
#define X(field, symbol, args) const char *symbol args;
HIP_TEXTS(X)
#undef X

int fake_hip_current(void);
bool fake_hip_good(int dev);
/* Every call begins with fake_hip_begin: not HIP_OK, its result is to be given; and ends with
   fake_hip_end, which is what the thread's last error is made of. */
hip_result fake_hip_begin(const char *name);
hip_result fake_hip_end(hip_result result);

#define FAKE_HIP_OVERLAP 4242 /* what no real one gives */

#define CALL(name)                                        \
	do {                                              \
		hip_result begun_ = fake_hip_begin(name); \
		if (begun_ != HIP_OK)                     \
			return fake_hip_end(begun_);      \
	} while (0)
#define GIVE(ok, otherwise) return fake_hip_end((ok) ? HIP_OK : (otherwise))

#endif
