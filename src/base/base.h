/* SPDX-License-Identifier: MIT */
/* The few words every file uses. No declarations of other modules belong here. */
#ifndef SPMT_BASE_H
#define SPMT_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* The argument taken is evaluated twice: pass no call whose answer time, or another thread, may change. */
#define MIN_OF(a, b) ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b) ((a) > (b) ? (a) : (b))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CACHE_LINE 64

/* 1 under ThreadSanitizer: gcc and clang each have their own way to say so. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZE_THREAD 1
#elif defined(__has_feature)
#define SANITIZE_THREAD __has_feature(thread_sanitizer)
#else
#define SANITIZE_THREAD 0
#endif

/* The same of AddressSanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZE_ADDRESS 1
#elif defined(__has_feature)
#define SANITIZE_ADDRESS __has_feature(address_sanitizer)
#else
#define SANITIZE_ADDRESS 0
#endif

/* Bytes that a caller's struct may have in a later release. A size above them was never set, and nobody reads so far for what is not 0. */
#define STRUCT_MOST 4096

/* What has no place in a sentence, which is one line. Bytes of UTF-8 have. */
static inline bool is_control(char c)
{
	return (unsigned char)c < ' ' || c == 127;
}

static inline bool is_power_of_two(uint64_t x)
{
	return x && !(x & (x - 1));
}

/* `to` is a power of two; the caller has made sure that x + to - 1 does not wrap. */
static inline uint64_t align_up(uint64_t x, uint64_t to)
{
	return (x + to - 1) & ~(to - 1);
}

#endif
