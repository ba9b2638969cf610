/* SPDX-License-Identifier: MIT */
/*
 * Failure: a code and one sentence, kept per thread (thread-local, at most 512 bytes).
 *
 * The first function that knows a cause calls fail() with everything the user needs: function, rank, argument,
 * value, and the environment variable that would help. Everybody above passes the code on and leaves the sentence.
 */
#ifndef SPMT_STATUS_H
#define SPMT_STATUS_H

#include <stddef.h>

#include "base.h"

#define STATUS_SENTENCE 512

/* Records the sentence for the calling thread and returns `code`, which is negative. Truncates at STATUS_SENTENCE. */
int fail(int code, const char *fmt, ...) PRINTF(2, 3) __attribute__((cold));

/* As fail(-err, ..), with ": <text of errno>" appended. `err` is a positive errno; 0 is taken as EIO. */
int fail_errno(int err, const char *fmt, ...) PRINTF(2, 3) __attribute__((cold));

/* Takes over a sentence that another thread or rank recorded; returns `code`. */
int fail_with(int code, const char *sentence) __attribute__((cold));

/* This thread's last sentence, "" if none. Valid until this thread's next failure. */
const char *status_sentence(void);

/* The kind of a code in a few words; never NULL, codes nobody knows included. */
const char *status_text(int code);

/* A sentence put together piece by piece; begins as { .used = 0 }, truncates as above. */
struct text {
	char bytes[STATUS_SENTENCE];
	size_t used;
};
void text_add(struct text *t, const char *fmt, ...) PRINTF(2, 3);

/* The sentence saved, and put back by a clean-up that must not overwrite the cause. */
struct status_saved {
	char sentence[STATUS_SENTENCE];
};
void status_save(struct status_saved *saved);
void status_restore(const struct status_saved *saved);

#endif
