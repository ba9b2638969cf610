/* SPDX-License-Identifier: MIT */
/*
 * The backend under test: SPMT_BACKEND's, the host's where that is unset; and SPMT_TEST_DEVICES, how many devices it has. Both are
 * told, not asked for: a child forked after its parent has started a driver could not use it. A suite runs on every backend; what
 * a test needs of one that another lacks it says in words and is skipped there.
 */
#ifndef TESTS_BACKEND_HERE_H
#define TESTS_BACKEND_HERE_H

#include <stdbool.h>

bool on_host(void);
/* As many as anybody asks for on the host backend. */
int devices_here(void);
/* n, or as many as can have a device each. */
int ranks_here(int n);
/*
 * What opening devices may add to a deadline, in seconds; 0 on the host backend and stand-ins. A driver opens one at a time for
 * all processes of the machine, 0.6 s each on H200: 8 processes with 4 of them take 20 s, and as long again beside another suite.
 */
int opening_s(void);
/* For attr.device: -1 on the host backend, else one that the rank shares with others where there are fewer than ranks. */
int device_of(int rank);
/* Are all n of these there? */
bool devices_fit(const int *devices, int n);
/* Does device 0 back ranges on demand? A child asks. */
bool ranges_here(void);

/* In a Criterion test's own thread. */
#define NEEDS_HOST(what)                                          \
	do {                                                      \
		if (!on_host())                                   \
			cr_skip_test("host backend only: " what); \
	} while (0)
#define NEEDS_DEVICES(n)                                                                     \
	do {                                                                                 \
		if (devices_here() < (n))                                                    \
			cr_skip_test("needs %d devices, there are %d", (n), devices_here()); \
	} while (0)

#define NEEDS_RANGES()                                                                        \
	do {                                                                                  \
		if (!ranges_here())                                                           \
			cr_skip_test("this backend's devices back no ranges on demand here"); \
	} while (0)

#endif
