/* SPDX-License-Identifier: MIT */
#include "status.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "include/spmt.h"
#include "log.h"

static _Thread_local struct status_saved last_failure;

static const struct {
	int code;
	const char *text;
} own_codes[] = {
	{ SPMT_ERR_TIMEOUT, "a deadline passed" },
	{ SPMT_ERR_ABORTED, "the world was aborted" },
	{ SPMT_ERR_PEER_DEAD, "a peer is gone" },
	{ SPMT_ERR_MISMATCH, "ranks disagree" },
	{ SPMT_ERR_FORKED, "the comm belongs to the parent process" },
	{ SPMT_ERR_UNSUPPORTED, "not supported here" },
	{ SPMT_ERR_BROKEN, "the world is broken" },
};

/* Written aside first: an argument may be the last sentence itself. The caller's errno is kept. */
static int PRINTF(2, 0) store_sentence(int code, const char *fmt, va_list args, const char *suffix)
{
	int saved_errno = errno;
	char text[STATUS_SENTENCE];
	size_t used;

	if (vsnprintf(text, sizeof(text), fmt, args) < 0)
		text[0] = '\0';
	used = strlen(text);
	if (suffix)
		snprintf(text + used, sizeof(text) - used, ": %s", suffix);
	memcpy(last_failure.sentence, text, sizeof(text));
	log_line(LOG_DEBUG, "%s (%d)", text, code);
	errno = saved_errno;
	return code;
}

int fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	store_sentence(code, fmt, args, NULL);
	va_end(args);
	return code;
}

int fail_errno(int err, const char *fmt, ...)
{
	int code = err > 0 ? -err : -EIO;
	va_list args;

	va_start(args, fmt);
	store_sentence(code, fmt, args, status_text(code));
	va_end(args);
	return code;
}

int fail_with(int code, const char *sentence)
{
	size_t n = strnlen(sentence, STATUS_SENTENCE - 1);

	memmove(last_failure.sentence, sentence, n);
	last_failure.sentence[n] = '\0';
	return code;
}

const char *status_sentence(void)
{
	return last_failure.sentence;
}

/* In English whatever the locale, and the same text at each call. NULL: no such error. */
static const char *errno_text(int err)
{
#if SPMT_HAVE_STRERRORDESC
	return strerrordesc_np(err);
#else
	/* glibc before 2.32, musl; for what is no error they make up a text. This locale takes no memory. */
	locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);

	return c && err <= EHWPOISON ? strerror_l(err, c) : NULL;
#endif
}

const char *status_text(int code)
{
	const char *text;

	if (code == 0)
		return "success";
	for (size_t i = 0; i < ARRAY_SIZE(own_codes); i++)
		if (own_codes[i].code == code)
			return own_codes[i].text;
	/* -INT_MIN does not exist */
	text = code < 0 && code > -4096 ? errno_text(-code) : NULL;
	return text ? text : "unknown code";
}

void status_save(struct status_saved *saved)
{
	*saved = last_failure;
}

void status_restore(const struct status_saved *saved)
{
	last_failure = *saved;
}

void text_add(struct text *t, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->bytes + t->used, sizeof(t->bytes) - t->used, fmt, args);
	va_end(args);
	if (n > 0)
		t->used = MIN_OF(t->used + (size_t)n, sizeof(t->bytes) - 1);
}
