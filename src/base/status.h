/* SPDX-License-Identifier: MIT */
/*
 * Failure: a code and one sentence, kept per thread (thread-local, at most 512 bytes).
 *
 * The first function that knows a cause calls fail() with everything the user needs: function,
 * rank, argument, value, and the environment variable that would help. Everybody above passes the
 * code on and leaves the sentence.
 *
 * A sentence is for people. What code needs to know of it is kept beside it: the call that it
 * names first, or that it begins with a rank.
 */
#ifndef SPMT_STATUS_H
#define SPMT_STATUS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "base.h"

#define STATUS_SENTENCE 512

/* Records the sentence for the calling thread and returns `code`, which is negative. Truncates at STATUS_SENTENCE, behind
   a word, and says so: " ..". What does not print is '?' in it. */
int fail(int code, const char *fmt, ...) PRINTF(2, 3) __attribute__((cold));

/* As fail(-err, ..), with ": <text of errno>" appended. `err` is a positive errno; 0 is taken as EIO. */
int fail_errno(int err, const char *fmt, ...) PRINTF(2, 3) __attribute__((cold));

/* What was short may be there when the call is made once more: no verdict on anything. */
static inline bool is_shortage(int code)
{
	return code == -ENOMEM || code == -EMFILE || code == -ENFILE || code == -EAGAIN;
}

/* As fail and fail_errno, with "<call>: " before the text: the name of a public call. */
int fail_call(int code, const char *call, const char *fmt, ...) PRINTF(3, 4) __attribute__((cold));
int fail_call_errno(int err, const char *call, const char *fmt, ...) PRINTF(3, 4)
	__attribute__((cold));
/* As fail, with "rank <rank>: " before the text: of a layer that knows the rank, but no call. */
int fail_rank(int code, int rank, const char *fmt, ...) PRINTF(3, 4) __attribute__((cold));

/* A call's name as a number, never 0. */
uint32_t call_id(const char *name);

/* Why something failed or broke, as it goes from thread to thread and from process to process. */
struct cause {
	int32_t code;
	/* call_id() of the name that the sentence begins with, or spmt_abort's where that broke what this one follows; 0: of no call */
	uint32_t call;
	char sentence[STATUS_SENTENCE];
};
/* `call` and all of `sentence` are copied; call NULL: it names none. Bytes behind the sentence are 0. */
void cause_set(struct cause *cause, int code, const char *call, const char *sentence);
/* Of what is broken because something else is, which the sentence says. */
void cause_follow(struct cause *follows, const struct cause *cause, const char *sentence);
/* Somebody has called spmt_abort: every call gets the code, not only those that are inside. */
bool cause_is_abort(const struct cause *cause);
/* The calling thread's last failure. */
void cause_last(struct cause *cause, int code);
/* Takes over what another thread or rank recorded; returns its code. */
int fail_cause(const struct cause *cause) __attribute__((cold));
/* Takes over a sentence that names no call, or begins with the name of `call`; returns `code`. */
int fail_with(int code, const char *sentence) __attribute__((cold));
int fail_with_call(int code, const char *call, const char *sentence) __attribute__((cold));

/* This thread's last sentence, "" if none, and its code. Valid until this thread's next failure. */
const char *status_sentence(void);
int status_last_code(void);
/* Whether that begins with the name of `call`, NULL: of any; and whether it begins with a rank. */
bool status_names(const char *call);
bool status_names_rank(void);

/* The kind of a code in a few words; never NULL, not even for an unknown code. */
const char *status_text(int code);

/* A sentence put together piece by piece; begins as { .used = 0 }, truncates as above. */
struct text {
	char bytes[STATUS_SENTENCE];
	size_t used;
	bool cut;
};
void text_add(struct text *t, const char *fmt, ...) PRINTF(2, 3);

/* For "%.*f s": a deadline of milliseconds is not "0.0 s". The value may be asked for twice. */
#define SECONDS(s) (s) >= 0.0995 ? 1 : 3, (s)

/* A saved sentence. A clean-up that must not overwrite the cause puts it back. */
struct status_saved {
	char sentence[STATUS_SENTENCE];
	int code;
	uint32_t call; /* as in struct cause */
	bool ranked;   /* it begins with a rank */
};
void status_save(struct status_saved *saved);
void status_restore(const struct status_saved *saved);
/* What the rest of the block fails with is not told: the sentence of before is put back at its end. */
#define KEEPS_SENTENCE                                                              \
	__attribute__((cleanup(status_restore))) struct status_saved kept_sentence; \
	status_save(&kept_sentence)
/* The same, of a failure that is told later; returns its code. */
int fail_again(int code, const struct status_saved *saved) __attribute__((cold));

/* Of several things that may fail, all of which are done: the first failure is the one to tell. Begins with rc 0;
   the sentence is left as it is, as it is long. */
struct first_failure {
	int rc;
	struct status_saved why;
};
/* rc, of one of them, with this thread's sentence. */
void failure_note(struct first_failure *first, int rc);
/* Its code, 0 if there was none; its sentence is this thread's again. */
int failure_tell(const struct first_failure *first);

#endif
