/* SPDX-License-Identifier: MIT */
#include "env.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "fault.h"
#include "log.h"
#include "process.h"
#include "status.h"

static const struct env_row rows[] = {
#define X(field, text, how, value, about) \
	{ .name = text, .def = value, .help = about, ENV_ROW_##how },
	ENV_TABLE(X)
#undef X
};

/* Of each row's member in struct env. */
static const size_t offsets[] = {
#define X(field, text, how, value, about) offsetof(struct env, field),
	ENV_TABLE(X)
#undef X
};

/* The result of env_get. A forked child sees zeros and reads again. */
struct loaded {
	pthread_mutex_t lock; /* guards the rest until `ready` is set; nothing changes then */
	atomic_bool ready;
	int code;
	struct status_saved why;
	bool says_log; /* SPMT_LOG was set */
	struct env env;
	size_t used;
	char texts[16384]; /* the values, since setenv may move the originals */
};

static void *_Atomic loaded_slot;

/* ---- numbers */

static int parse_i64(const char *text, int64_t *value, const char **end)
{
	char *stop;
	long long v;

	if (*text != '-' && (*text < '0' || *text > '9'))
		return -EINVAL;
	errno = 0;
	v = strtoll(text, &stop, 10);
	if (stop == text || errno)
		return -EINVAL;
	*value = v;
	*end = stop;
	return 0;
}

static int suffix_shift(char c)
{
	switch (c) {
	case 'k':
	case 'K':
		return 10;
	case 'm':
	case 'M':
		return 20;
	case 'g':
	case 'G':
		return 30;
	case 't':
	case 'T':
		return 40;
	default:
		return 0;
	}
}

static int parse_size(const char *text, uint64_t *size)
{
	const char *end;
	int64_t value;
	int shift;

	if (parse_i64(text, &value, &end) || value < 0)
		return -EINVAL;
	shift = suffix_shift(*end);
	if (shift)
		end++;
	if (*end || value > INT64_MAX >> shift)
		return -EINVAL;
	*size = (uint64_t)value << shift;
	return 0;
}

static int parse_whole(const char *text, int64_t *value)
{
	const char *end;
	int64_t v;

	if (parse_i64(text, &v, &end) || *end)
		return -EINVAL;
	*value = v;
	return 0;
}

/* ---- words */

/* Position of the n characters at `word` among `words`, or -1. */
static int word_index(const char *words, const char *word, size_t n)
{
	for (int i = 0;; i++) {
		size_t len = strcspn(words, "|");

		if (len == n && !strncmp(words, word, n))
			return i;
		if (!words[len])
			return -1;
		words += len + 1;
	}
}

static bool list_valid(const char *words, const char *list)
{
	for (const char *at = list;; at++) {
		size_t n = strcspn(at, ",");
		size_t minus = *at == '-';

		if (word_index(words, at + minus, n - minus) < 0)
			return false;
		at += n;
		if (!*at)
			return true;
	}
}

int env_list_rank(const char *list, const char *word, int otherwise)
{
	size_t len = strlen(word);
	int named = 0;

	for (const char *at = list; at && *at; at += *at == ',') {
		size_t n = strcspn(at, ",");
		size_t minus = *at == '-';

		if (n - minus == len && !strncmp(at + minus, word, len))
			return minus ? -1 : named;
		named += !minus;
		at += n;
	}
	return named ? -1 : otherwise;
}

/* ---- rows */

static int parse_int(const struct env_row *row, const char *text, int64_t *value)
{
	int64_t v;

	if (parse_whole(text, &v) || v < row->min || v > row->max)
		return -EINVAL;
	*value = v;
	return 0;
}

/* Waits count in nanoseconds, so longer times would overflow. */
static int parse_ms(const char *text, int64_t *value)
{
	int64_t v;

	if (parse_whole(text, &v) || v > INT64_MAX / 1000000)
		return -EINVAL;
	*value = v;
	return 0;
}

static int parse_enum(const struct env_row *row, const char *text, int *value)
{
	int i = word_index(row->accepts, text, strlen(text));

	if (i < 0)
		return -EINVAL;
	*value = i;
	return 0;
}

static int parse_row(const struct env_row *row, const char *text, void *member)
{
	switch (row->kind) {
	case ENV_SIZE:
		return parse_size(text, member);
	case ENV_MS:
		return parse_ms(text, member);
	case ENV_INT:
		return parse_int(row, text, member);
	case ENV_ENUM:
		return parse_enum(row, text, member);
	case ENV_LIST:
		if (!list_valid(row->accepts, text))
			return -EINVAL;
		break;
	case ENV_TEXT:
		break;
	}
	*(const char **)member = text;
	return 0;
}

static void unset_row(const struct env_row *row, void *member)
{
	if (row->kind == ENV_SIZE)
		*(uint64_t *)member = ENV_SIZE_UNSET;
}

static int refuse_value(const struct env_row *row, const char *text)
{
	const char *accepts = row->accepts;

	return fail(-EINVAL, "%s=%.64s is not understood; want %s: %s%s%s%s", row->name, text,
		row->kind_name, accepts ? "(" : "", accepts ? accepts : "", accepts ? ") " : "",
		row->help);
}

int env_parse(const char *(*lookup)(const char *name, void *ctx), void *ctx, struct env *env)
{
	struct env out = { 0 };
	unsigned sites;
	uint64_t n;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct env_row *row = &rows[i];
		const char *text = lookup(row->name, ctx);
		void *member = (char *)&out + offsets[i];

		if (!text || !*text)
			text = row->def;
		if (!*text)
			unset_row(row, member);
		else if (parse_row(row, text, member))
			return refuse_value(row, text);
	}
	if (out.fault && fault_parse(out.fault, &sites, &n))
		return -EINVAL;
	*env = out;
	return 0;
}

static bool value_wrong(size_t i, const char *text)
{
	struct env env = { 0 };
	unsigned sites;
	uint64_t n;
	bool wrong;

	if (!text || !*text)
		return false;
	KEEPS_SENTENCE;
	wrong = parse_row(&rows[i], text, (char *)&env + offsets[i]) ||
		(env.fault && fault_parse(env.fault, &sites, &n));
	return wrong;
}

bool env_row(size_t i, struct env_row *row)
{
	if (i >= ARRAY_SIZE(rows))
		return false;
	*row = rows[i];
	row->value = secure_getenv(row->name);
	row->wrong = value_wrong(i, row->value);
	return true;
}

/* ---- the process's own */

bool env_withheld(void)
{
	return getauxval(AT_SECURE) != 0;
}

static const char *lookup_and_keep(const char *name, void *ctx)
{
	struct loaded *l = ctx;
	const char *text = secure_getenv(name);
	char *copy = l->texts + l->used;
	size_t room = sizeof(l->texts) - l->used;
	size_t n = text ? strnlen(text, room) : 0;

	if (!text)
		return NULL;
	if (n == room) {
		l->code = fail(-E2BIG, "%s: the SPMT_ variables together are longer than %zu bytes",
			name, sizeof(l->texts));
		return NULL;
	}
	memcpy(copy, text, n);
	copy[n] = '\0';
	l->used += n + 1;
	return copy;
}

static void unknown_warn(void *ctx, const char *name, const char *near)
{
	(void)ctx;
	log_line(LOG_SLIP, "%s is set, which is no variable of libspmt%s%s (spmt-info --env)", name,
		near ? ": did you mean " : "", near ? near : "");
}

static void load_env(struct loaded *l)
{
	const char *log;
	int rc = env_parse(lookup_and_keep, l, &l->env);

	if (rc)
		l->code = rc;
	if (l->code)
		status_save(&l->why);
	log = secure_getenv("SPMT_LOG");
	l->says_log = log && *log;
	atomic_store_explicit(&l->ready, true, memory_order_release);
	env_unknown(unknown_warn, NULL);
}

bool env_said_log(void)
{
	struct loaded *l = atomic_load_explicit(&loaded_slot, memory_order_acquire);

	return l && atomic_load_explicit(&l->ready, memory_order_acquire) && l->says_log;
}

bool env_launched(void)
{
	const char *space = secure_getenv("PMIX_NAMESPACE"), *rank = secure_getenv("PMIX_RANK");

	return space && *space && rank && *rank;
}

const struct env *env_loaded(void)
{
	struct loaded *l = atomic_load_explicit(&loaded_slot, memory_order_acquire);

	return l && atomic_load_explicit(&l->ready, memory_order_acquire) && !l->code ? &l->env
										      : NULL;
}

int env_get(const struct env **env)
{
	struct loaded *l = process_state(&loaded_slot, sizeof(*l));

	if (!l)
		return fail(-ENOMEM, "no memory for the environment's values");
	if (!atomic_load_explicit(&l->ready, memory_order_acquire)) {
		pthread_mutex_lock(&l->lock);
		if (!atomic_load_explicit(&l->ready, memory_order_relaxed))
			load_env(l);
		pthread_mutex_unlock(&l->lock);
	}
	if (l->code)
		return fail_with(l->code, l->why.sentence);
	*env = &l->env;
	return 0;
}
