/* SPDX-License-Identifier: MIT */
/* How many rounds a test takes: fewer under sanitizers and on GPUs, more where SPMT_TEST_LONG asks for them. */
#ifndef TESTS_ROUNDS_H
#define TESTS_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

bool test_long(void); /* SPMT_TEST_LONG is set and not 0 */
/* Less under sanitizers, on GPUs, and with SPMT_TEST_SLOW, where each call takes microseconds. */
size_t test_count(size_t usual, size_t longer);

#endif
