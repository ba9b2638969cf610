/* SPDX-License-Identifier: MIT */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/log.h"
#include "src/base/status.h"

struct setting {
	const char *name, *value;
};

static const char *from_setting(const char *name, void *ctx)
{
	const struct setting *s = ctx;

	return !strcmp(name, s->name) ? s->value : NULL;
}

static int parse(const char *name, const char *value, struct env *env)
{
	struct setting s = { name, value };

	return env_parse(from_setting, &s, env);
}

Test(env, defaults)
{
	struct env env;

	cr_assert_eq(parse("none", "", &env), 0, "%s", status_sentence());
	cr_expect_eq(env.timeout, 10000);
	cr_expect_eq(env.heap_size, 1ull << 30);
	cr_expect_eq(env.heap_mode, ENV_HEAP_AUTO);
	cr_expect_eq(env.host_devices, 8);
	cr_expect_eq(env.threshold, ENV_SIZE_UNSET);
	cr_expect_eq(env.log, LOG_NONE);
	cr_expect_null(env.backend);
	cr_expect_null(env.maps);
	cr_expect_null(env.fault);
}

Test(env, an_empty_variable_is_unset)
{
	struct env env;

	cr_assert_eq(parse("SPMT_TIMEOUT_MS", "", &env), 0);
	cr_expect_eq(env.timeout, 10000);
	cr_assert_eq(parse("SPMT_BACKEND", "", &env), 0);
	cr_expect_null(env.backend);
}

Test(env, sizes)
{
	static const struct {
		const char *text;
		uint64_t size;
	} good[] = { { "0", 0 }, { "1", 1 }, { "007", 7 }, { "3k", 3072 }, { "2M", 2 << 20 },
		{ "5G", 5ull << 30 }, { "8388607T", 8388607ull << 40 },
		{ "9223372036854775807", INT64_MAX } };
	static const char *const bad[] = { "-1", "+1", " 1", "1 ", "1.5G", "G", "1GB", "0x10",
		"abc", "9223372036854775808", "8388608T", "18446744073709551616", "1KK" };
	struct env env;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		cr_expect_eq(parse("SPMT_HEAP_SIZE", good[i].text, &env), 0, "%s", good[i].text);
		cr_expect_eq(env.heap_size, good[i].size, "%s", good[i].text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_expect_eq(parse("SPMT_HEAP_SIZE", bad[i], &env), -EINVAL, "%s", bad[i]);
}

Test(env, milliseconds_may_be_negative_but_fit_nanoseconds)
{
	struct env env;

	cr_expect_eq(parse("SPMT_TIMEOUT_MS", "-1", &env), 0);
	cr_expect_eq(env.timeout, -1);
	cr_expect_eq(parse("SPMT_TIMEOUT_MS", "9223372036854", &env), 0);
	cr_expect_eq(parse("SPMT_TIMEOUT_MS", "9223372036855", &env), -EINVAL);
	cr_expect_eq(parse("SPMT_TIMEOUT_MS", "10s", &env), -EINVAL);
	cr_expect_eq(parse("SPMT_TIMEOUT_MS", "--1", &env), -EINVAL);
}

Test(env, integers_stay_in_their_range)
{
	struct env env;

	cr_expect_eq(parse("SPMT_CHANNELS", "1", &env), 0);
	cr_expect_eq(parse("SPMT_CHANNELS", "8", &env), 0);
	cr_expect_eq(env.channels, 8);
	cr_expect_eq(parse("SPMT_CHANNELS", "0", &env), -EINVAL);
	cr_expect_eq(parse("SPMT_CHANNELS", "9", &env), -EINVAL);
	cr_expect_eq(parse("SPMT_CHANNELS", "-1", &env), -EINVAL);
	cr_expect_eq(parse("SPMT_HOST_DEVICES", "4096", &env), 0);
	cr_expect_eq(parse("SPMT_HOST_DEVICES", "4097", &env), -EINVAL);
	cr_expect_not_null(strstr(status_sentence(), "(0 to 4096)"), "%s", status_sentence());
}

Test(env, words)
{
	struct env env;

	cr_expect_eq(parse("SPMT_HEAP_MODE", "vmm", &env), 0);
	cr_expect_eq(env.heap_mode, ENV_HEAP_VMM);
	cr_expect_eq(parse("SPMT_HEAP_MODE", "static", &env), 0);
	cr_expect_eq(env.heap_mode, ENV_HEAP_STATIC);
	cr_expect_eq(parse("SPMT_HEAP_MODE", "vm", &env), -EINVAL);
	cr_expect_eq(parse("SPMT_HEAP_MODE", "vmm ", &env), -EINVAL);
	cr_expect_eq(parse("SPMT_LOG", "error", &env), 0);
	cr_expect_eq(env.log, LOG_ERROR);
	cr_expect_eq(parse("SPMT_LOG", "debug", &env), 0);
	cr_expect_eq(env.log, LOG_DEBUG);
}

Test(env, lists)
{
	static const char *const bad[] = { "p3p", "p2p,", ",p2p", "-", "p2p,,ipc", "--ipc",
		"p2p ipc" };
	struct env env;

	cr_expect_eq(parse("SPMT_MAPS", "ipc,-rdma", &env), 0);
	cr_expect_str_eq(env.maps, "ipc,-rdma");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		cr_expect_eq(parse("SPMT_MAPS", bad[i], &env), -EINVAL, "%s", bad[i]);
}

Test(env, rank_in_a_list)
{
	cr_expect_eq(env_list_rank(NULL, "p2p", 7), 7);
	cr_expect_eq(env_list_rank("ipc,p2p", "ipc", 7), 0);
	cr_expect_eq(env_list_rank("ipc,p2p", "p2p", 7), 1);
	cr_expect_eq(env_list_rank("ipc,p2p", "rdma", 7), -1);
	cr_expect_eq(env_list_rank("-rdma", "rdma", 7), -1);
	cr_expect_eq(env_list_rank("-rdma", "p2p", 7), 7);
	cr_expect_eq(env_list_rank("-rdma,ipc", "ipc", 7), 0);
	cr_expect_eq(env_list_rank("-rdma,ipc", "p2p", 7), -1);
	cr_expect_eq(env_list_rank("ipcx", "ipc", 7), -1);
}

Test(env, a_refusal_names_variable_value_and_what_is_wanted)
{
	struct env env, before;

	memset(&env, 0x5a, sizeof(env));
	before = env;
	cr_assert_eq(parse("SPMT_HEAP_MODE", "banana", &env), -EINVAL);
	cr_expect_not_null(strstr(status_sentence(), "SPMT_HEAP_MODE"));
	cr_expect_not_null(strstr(status_sentence(), "banana"));
	cr_expect_not_null(strstr(status_sentence(), "auto|static|vmm"));
	cr_expect_eq(memcmp(&env, &before, sizeof(env)), 0);
	cr_assert_eq(parse("SPMT_FAULT", "nowhere:1", &env), -EINVAL);
	cr_expect_not_null(strstr(status_sentence(), "SPMT_FAULT"));
	cr_expect_eq(memcmp(&env, &before, sizeof(env)), 0);
}

Test(env, every_row_is_whole_and_its_default_parses)
{
	struct env_row row;
	struct env env;
	size_t i;

	for (i = 0; env_row(i, &row); i++) {
		cr_expect_eq(strncmp(row.name, "SPMT_", 5), 0, "%s", row.name);
		cr_expect(*row.help, "%s", row.name);
		cr_expect_eq(parse(row.name, row.def, &env), 0, "%s", row.name);
	}
	cr_assert_gt(i, 10);
}

Test(env, an_unknown_variable_has_the_nearest_known_one)
{
	static const struct setting near[] = { { "SPMT_HEAPSIZE", "SPMT_HEAP_SIZE" },
		{ "SPMT_heap_size", "SPMT_HEAP_SIZE" }, { "SPMT_TIMEOUT", "SPMT_TIMEOUT_MS" },
		{ "SPMT_TIMEOUT_SEC", "SPMT_TIMEOUT_MS" }, { "SPMT_DEVICES", "SPMT_HOST_DEVICES" },
		{ "SPMT_LOG_LEVEL", "SPMT_LOG" }, { "SPMT_BACKENDS", "SPMT_BACKEND" },
		{ "SPMT_CHANELS", "SPMT_CHANNELS" }, { "SPMT_MAP", "SPMT_MAPS" },
		{ "SPMT_THRESHOLD", "SPMT_STORE_THRESHOLD" }, { "SPMT_COFFEE", NULL },
		{ "SPMT_", NULL }, { "SPMT", NULL }, { "", NULL },
		{ "SPMT_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_", "SPMT_LOG" },
		{ "SPMT_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_LOG_L", NULL } };
	struct env_row row;

	for (size_t i = 0; i < ARRAY_SIZE(near); i++) {
		const char *got = env_near(near[i].name);

		cr_expect(got && near[i].value ? !strcmp(got, near[i].value) : got == near[i].value,
			"%s: %s", near[i].name, got ? got : "none");
	}
	for (size_t i = 0; env_row(i, &row); i++)
		cr_expect_str_eq(env_near(row.name), row.name);
}

struct told {
	int n;
	char name[128];
	const char *near;
};

static void take(void *ctx, const char *name, const char *near)
{
	struct told *told = ctx;

	told->n++;
	snprintf(told->name, sizeof(told->name), "%s", name);
	told->near = near;
}

Test(env, unknown_variables_are_found_in_printing_characters)
{
	static char none[] = "SPMT_NOTHING", odd[] = "SPMT_LO\033[2JG=1", other[] = "XSPMT_LOG=1",
		    known[] = "SPMT_LOG=none", part[] = "SPMT_LO=x=SPMT_LOG",
		    more[] = "SPMT_LOGS=x", empty[] = "SPMT_LOGS=", tests[] = "SPMT_TEST_LONG=1",
		    root[] = "SPMT_ROOT=/opt", python[] = "SPMT_LIBRARY=x",
		    like_python[] = "SPMT_LIBRARYS=x", like_tests[] = "SPMT_TEST=1";
	char *each[][2] = { { none, NULL }, { odd, NULL }, { other, NULL }, { known, NULL },
		{ part, NULL }, { more, NULL }, { empty, NULL }, { tests, NULL }, { python, NULL },
		{ root, NULL }, { like_python, NULL }, { like_tests, NULL } };
	static const char *const want[] = { NULL, "SPMT_LO?[2JG", NULL, NULL, "SPMT_LO",
		"SPMT_LOGS", NULL, NULL, NULL, NULL, "SPMT_LIBRARYS", "SPMT_TEST" };
	char **saved = environ;

	for (size_t i = 0; i < ARRAY_SIZE(each); i++) {
		struct told told = { .n = 0 };

		environ = each[i];
		env_unknown(take, &told);
		environ = saved;
		cr_expect_eq(told.n, want[i] != NULL, "%s: %d", each[i][0], told.n);
		cr_expect_str_eq(told.name, want[i] ? want[i] : "");
	}
	environ = NULL;
	env_unknown(take, &(struct told){ .n = 0 });
	environ = saved;
}

Test(env, a_row_says_whether_its_value_parses)
{
	struct env_row row;

	setenv("SPMT_HEAP_SIZE", "12Q", 1);
	setenv("SPMT_FAULT", "nowhere:1", 1);
	setenv("SPMT_CHANNELS", "8", 1);
	setenv("SPMT_LOG", "", 1);
	fail(-EINVAL, "what was there");
	for (size_t i = 0; env_row(i, &row); i++)
		cr_expect_eq(row.wrong,
			!strcmp(row.name, "SPMT_HEAP_SIZE") || !strcmp(row.name, "SPMT_FAULT"),
			"%s", row.name);
	cr_expect_str_eq(status_sentence(), "what was there");
}

Test(env, the_process_reads_once_and_keeps_its_own_copy)
{
	const struct env *first, *second;

	setenv("SPMT_BACKEND", "host", 1);
	cr_assert_null(env_loaded());
	cr_assert_eq(env_get(&first), 0);
	setenv("SPMT_BACKEND", "hip!", 1);
	cr_assert_eq(env_get(&second), 0);
	cr_assert_eq(first, second);
	cr_assert_eq(env_loaded(), first);
	cr_assert_str_eq(second->backend, "host");
}

static void *get_bad(void *arg)
{
	const struct env *env = NULL;

	(void)arg;
	return (void *)(intptr_t)(env_get(&env) == -EINVAL && !env &&
		strstr(status_sentence(), "SPMT_TIMEOUT_MS=soon"));
}

Test(env, a_bad_value_stays_an_error_for_every_thread)
{
	pthread_t threads[4];
	void *ok;

	setenv("SPMT_TIMEOUT_MS", "soon", 1);
	cr_assert(get_bad(NULL));
	setenv("SPMT_TIMEOUT_MS", "1", 1);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, get_bad, NULL), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &ok);
		cr_expect(ok);
	}
	cr_assert_null(env_loaded());
}

Test(env, values_that_fit_nowhere_are_refused)
{
	const struct env *env;
	char *text = malloc(40000);

	cr_assert_not_null(text);
	memset(text, 'x', 39999);
	text[39999] = '\0';
	setenv("SPMT_ROUTES", text, 1);
	cr_assert_eq(env_get(&env), -E2BIG);
	cr_assert_not_null(strstr(status_sentence(), "SPMT_ROUTES"));
	free(text);
}

Test(env, a_forked_child_reads_again)
{
	const struct env *env;
	int status;
	pid_t pid;

	setenv("SPMT_BACKEND", "host", 1);
	cr_assert_eq(env_get(&env), 0);
	setenv("SPMT_BACKEND", "cuda", 1);
	pid = fork();
	if (!pid)
		_exit(env_loaded() || env_get(&env) || strcmp(env->backend, "cuda"));
	cr_assert_gt(pid, 0);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
}
