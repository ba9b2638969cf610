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

/* Of a text that is too long half a word is another word: a list of ranks would end with one that is not meant. */
static void cut_behind_a_word(char text[STATUS_SENTENCE])
{
	static const char cut[] = " ..";
	size_t last = STATUS_SENTENCE - sizeof(cut), at = last;

	while (at > last - 64 && text[at] != ' ')
		at--;
	memcpy(text + (text[at] == ' ' ? at : last), cut, sizeof(cut));
}

/* One line, whatever a value, a path or a driver's text has in it: a file of variables with CR before its line ends, say. */
static void make_printing(char *text)
{
	for (; *text; text++)
		if (is_control(*text))
			*text = '?';
}

/* Written to a copy first, because an argument may be the last sentence itself. Keeps the
   caller's errno. `before` goes in front of the text; "": nothing does. */
static int PRINTF(3, 0) store_sentence(
	int code, const char *before, const char *fmt, va_list args, const char *suffix)
{
	int saved_errno = errno, n;
	char text[STATUS_SENTENCE];
	size_t used;
	bool cut;

	snprintf(text, sizeof(text), "%s%s", before, *before ? ": " : "");
	used = strlen(text);
	n = vsnprintf(text + used, sizeof(text) - used, fmt, args);
	if (n < 0)
		text[used] = '\0';
	cut = n >= (int)(sizeof(text) - used);
	used = strlen(text);
	n = suffix ? snprintf(text + used, sizeof(text) - used, ": %s", suffix) : 0;
	if (cut || n >= (int)(sizeof(text) - used))
		cut_behind_a_word(text);
	make_printing(text);
	memcpy(last_failure.sentence, text, sizeof(text));
	last_failure.code = code;
	last_failure.call = 0;
	last_failure.ranked = false;
	log_line(LOG_DEBUG, "%s (%d)", text, code);
	errno = saved_errno;
	return code;
}

int fail(int code, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	store_sentence(code, "", fmt, args, NULL);
	va_end(args);
	return code;
}

int fail_call(int code, const char *call, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	store_sentence(code, call, fmt, args, NULL);
	va_end(args);
	last_failure.call = call_id(call);
	return code;
}

int fail_rank(int code, int rank, const char *fmt, ...)
{
	char who[24];
	va_list args;

	snprintf(who, sizeof(who), "rank %d", rank);
	va_start(args, fmt);
	store_sentence(code, who, fmt, args, NULL);
	va_end(args);
	last_failure.ranked = true;
	return code;
}

int fail_errno(int err, const char *fmt, ...)
{
	int code = err > 0 ? -err : -EIO;
	va_list args;

	va_start(args, fmt);
	store_sentence(code, "", fmt, args, status_text(code));
	va_end(args);
	return code;
}

int fail_call_errno(int err, const char *call, const char *fmt, ...)
{
	int code = err > 0 ? -err : -EIO;
	va_list args;

	va_start(args, fmt);
	store_sentence(code, call, fmt, args, status_text(code));
	va_end(args);
	last_failure.call = call_id(call);
	return code;
}

int fail_with(int code, const char *sentence)
{
	size_t n = strnlen(sentence, STATUS_SENTENCE - 1);

	memmove(last_failure.sentence, sentence, n);
	last_failure.sentence[n] = '\0';
	make_printing(last_failure.sentence);
	last_failure.code = code;
	last_failure.call = 0;
	last_failure.ranked = false;
	return code;
}

int fail_with_call(int code, const char *call, const char *sentence)
{
	fail_with(code, sentence);
	last_failure.call = call_id(call);
	return code;
}

/* FNV-1a. */
uint32_t call_id(const char *name)
{
	uint32_t h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h ? h : 1;
}

void cause_set(struct cause *cause, int code, const char *call, const char *sentence)
{
	size_t n = strnlen(sentence, STATUS_SENTENCE - 1);

	memset(cause, 0, sizeof(*cause));
	cause->code = code;
	cause->call = call ? call_id(call) : 0;
	memcpy(cause->sentence, sentence, n);
}

bool cause_is_abort(const struct cause *cause)
{
	return cause->call == call_id("spmt_abort");
}

void cause_follow(struct cause *follows, const struct cause *cause, const char *sentence)
{
	cause_set(follows, cause->code, cause_is_abort(cause) ? "spmt_abort" : NULL, sentence);
}

void cause_last(struct cause *cause, int code)
{
	cause_set(cause, code, NULL, last_failure.sentence);
	cause->call = last_failure.call;
}

int fail_cause(const struct cause *cause)
{
	fail_with(cause->code, cause->sentence);
	last_failure.call = cause->call;
	return cause->code;
}

const char *status_sentence(void)
{
	return last_failure.sentence;
}

int status_last_code(void)
{
	return last_failure.code;
}

bool status_names(const char *call)
{
	return call ? last_failure.call == call_id(call) : last_failure.call != 0;
}

bool status_names_rank(void)
{
	return last_failure.ranked;
}

/* The same English text in every locale and at each call. NULL: no such error. */
static const char *errno_text(int err)
{
#if SPMT_HAVE_STRERRORDESC
	return strerrordesc_np(err);
#else
	/* glibc before 2.32, and musl. They make up a text for a number that is no error. This
	   locale takes no memory. */
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
	/* -INT_MIN would overflow */
	text = code < 0 && code > -4096 ? errno_text(-code) : NULL;
	return text ? text : "unknown code";
}

/* Where nothing has failed yet, on the way of every call in a stream, there is no sentence to copy. */
static inline void status_copy(struct status_saved *to, const struct status_saved *from)
{
	if (UNLIKELY(*from->sentence)) {
		*to = *from;
		return;
	}
	*to->sentence = 0;
	to->code = from->code;
	to->call = from->call;
	to->ranked = from->ranked;
}

void status_save(struct status_saved *saved)
{
	status_copy(saved, &last_failure);
}

void status_restore(const struct status_saved *saved)
{
	status_copy(&last_failure, saved);
}

int fail_again(int code, const struct status_saved *saved)
{
	last_failure = *saved;
	return code;
}

void failure_note(struct first_failure *first, int rc)
{
	if (LIKELY(!rc) || first->rc)
		return;
	first->rc = rc;
	status_save(&first->why);
}

int failure_tell(const struct first_failure *first)
{
	if (UNLIKELY(first->rc))
		status_restore(&first->why);
	return first->rc;
}

void text_add(struct text *t, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->bytes + t->used, sizeof(t->bytes) - t->used, fmt, args);
	va_end(args);
	if (n <= 0 || t->cut)
		return;
	t->cut = t->used + (size_t)n >= sizeof(t->bytes);
	if (t->cut)
		cut_behind_a_word(t->bytes);
	t->used = MIN_OF(t->used + (size_t)n, sizeof(t->bytes) - 1);
}
