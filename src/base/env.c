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

enum kind { KIND_SIZE, KIND_MS, KIND_INT, KIND_TEXT, KIND_LIST, KIND_ENUM };

struct row {
	const char *name, *kind_name, *def, *help;
	enum kind kind;
	size_t offset; /* of the member in struct env */
};

static const struct row rows[] = {
#define X(field, name, kind, def, help) \
	{ name, #kind, def, help, KIND_##kind, offsetof(struct env, field) },
	ENV_TABLE(X)
#undef X
};

/* The result of env_get. A forked child sees zeros and reads again. */
struct loaded {
	pthread_mutex_t lock; /* guards everything except `env` and the texts once `ready` is set */
	atomic_bool ready;
	int code;
	struct status_saved why;
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

/* The last "<min> to <max>" of a help text; everything where there is none. */
static void help_range(const char *help, int64_t *min, int64_t *max)
{
	const char *at, *end;
	int64_t low, high;

	*min = INT64_MIN;
	*max = INT64_MAX;
	for (at = strstr(help, " to "); at; at = strstr(at + 1, " to ")) {
		const char *start = at;

		while (start > help && start[-1] >= '0' && start[-1] <= '9')
			start--;
		if (start > help && start[-1] == '-')
			start--;
		if (parse_i64(start, &low, &end) || parse_i64(at + 4, &high, &end))
			continue;
		*min = low;
		*max = high;
	}
}

/* ---- words */

/* Position of the n characters at `word` among those in the help's first parentheses, or -1. */
static int word_index(const char *help, const char *word, size_t n)
{
	const char *at = strchr(help, '(');

	for (int i = 0; at && *at != ')'; i++) {
		size_t len = strcspn(++at, "|)");

		if (len == n && !strncmp(at, word, n))
			return i;
		at += len;
	}
	return -1;
}

static bool list_valid(const char *help, const char *list)
{
	for (const char *at = list;; at++) {
		size_t n = strcspn(at, ",");
		size_t minus = *at == '-';

		if (word_index(help, at + minus, n - minus) < 0)
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

static int parse_int(const struct row *row, const char *text, int64_t *value)
{
	int64_t min, max, v;

	help_range(row->help, &min, &max);
	if (parse_whole(text, &v) || v < min || v > max)
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

static int parse_enum(const struct row *row, const char *text, int *value)
{
	int i = word_index(row->help, text, strlen(text));

	if (i < 0)
		return -EINVAL;
	*value = i;
	return 0;
}

static int parse_row(const struct row *row, const char *text, void *member)
{
	switch (row->kind) {
	case KIND_SIZE:
		return parse_size(text, member);
	case KIND_MS:
		return parse_ms(text, member);
	case KIND_INT:
		return parse_int(row, text, member);
	case KIND_ENUM:
		return parse_enum(row, text, member);
	case KIND_LIST:
		if (!list_valid(row->help, text))
			return -EINVAL;
		break;
	case KIND_TEXT:
		break;
	}
	*(const char **)member = text;
	return 0;
}

static void unset_row(const struct row *row, void *member)
{
	if (row->kind == KIND_SIZE)
		*(uint64_t *)member = ENV_SIZE_UNSET;
}

int env_parse(const char *(*lookup)(const char *name, void *ctx), void *ctx, struct env *env)
{
	struct env out = { 0 };
	unsigned sites;
	uint64_t n;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		const char *text = lookup(row->name, ctx);
		void *member = (char *)&out + row->offset;

		if (!text || !*text)
			text = row->def;
		if (!*text)
			unset_row(row, member);
		else if (parse_row(row, text, member))
			return fail(-EINVAL, "%s=%.64s is not understood; want %s: %s", row->name,
				text, row->kind_name, row->help);
	}
	if (out.fault && fault_parse(out.fault, &sites, &n))
		return -EINVAL;
	*env = out;
	return 0;
}

static bool value_wrong(const struct row *row, const char *text)
{
	struct status_saved saved;
	struct env env = { 0 };
	unsigned sites;
	uint64_t n;
	bool wrong;

	if (!text || !*text)
		return false;
	status_save(&saved);
	wrong = parse_row(row, text, (char *)&env + row->offset) ||
		(env.fault && fault_parse(env.fault, &sites, &n));
	status_restore(&saved);
	return wrong;
}

bool env_row(size_t i, struct env_row *row)
{
	if (i >= ARRAY_SIZE(rows))
		return false;
	row->name = rows[i].name;
	row->kind = rows[i].kind_name;
	row->def = rows[i].def;
	row->help = rows[i].help;
	row->value = secure_getenv(rows[i].name);
	row->wrong = value_wrong(&rows[i], row->value);
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
	log_line(LOG_WARN, "%s is set, which is no variable of libspmt%s%s (spmt-info --env)", name,
		near ? ": did you mean " : "", near ? near : "");
}

static void load_env(struct loaded *l)
{
	int rc = env_parse(lookup_and_keep, l, &l->env);

	if (rc)
		l->code = rc;
	if (l->code)
		status_save(&l->why);
	atomic_store_explicit(&l->ready, true, memory_order_release);
	env_unknown(unknown_warn, NULL);
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
