/* SPDX-License-Identifier: MIT */
/* What this process holds, to see that a test leaves nothing behind; and what memory the machine has left. */
#ifndef TESTS_USAGE_H
#define TESTS_USAGE_H

#include <stdint.h>

struct usage {
	long fds, threads, maps, rss_kib;
};
struct usage usage_now(void);
/* NULL or, in words, what has grown by more than allowed. RSS and mappings are not judged under sanitizers, nor a driver's. */
const char *usage_grown(const struct usage *before, const struct usage *slack);
uint64_t memory_free(void); /* bytes the system could give now */

#endif
