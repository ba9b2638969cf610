/* SPDX-License-Identifier: MIT */
/*
 * The conformance cases on a real backend: `backend [hip|cuda|host] [case..]`, or SPMT_BACKEND, or
 * the first that has devices. TAP, and a last line "N passed, N failed". Each case runs in a
 * process of its own, because a device that has faulted stays faulted, and so that one that hangs
 * is killed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform/conform.h"
#include "src/base/status.h"

#define CASE_SECONDS 120

static const struct backend *const backends[] = { &backend_hip, &backend_cuda, &backend_host };

static const struct backend *by_name(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(backends); i++) {
		if (!strcmp(backends[i]->name, name))
			return backends[i];
	}
	return NULL;
}

/* In a child, so that this process itself never touches a driver. */
static bool loads(const struct backend *b)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		int rc = b->load();

		if (rc < 0)
			printf("# %s: %s\n", b->name, status_sentence());
		fflush(stdout);
		_exit(rc < 0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

static int run_case(const struct backend *b, const struct conform_case *test, int number)
{
	static const char *const verdicts[] = { "ok", "not ok", "ok" };
	struct conform c = { .b = b, .child = "/proc/self/exe" };
	int rc;

	if (b->load() || b->count(&c.n)) {
		printf("not ok %d - %s\n# %s\n", number, test->name, status_sentence());
		return CONFORM_FAIL;
	}
	rc = test->run(&c);
	printf("%s %d - %s%s%s\n", verdicts[rc], number, test->name,
		rc == CONFORM_SKIP ? " # SKIP " : "", rc == CONFORM_SKIP ? c.why : "");
	if (rc == CONFORM_FAIL)
		printf("# %s\n", c.why);
	return rc;
}

static int run_forked(const struct backend *b, const struct conform_case *test, int number)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		int rc;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(CASE_SECONDS);
		rc = run_case(b, test, number);
		fflush(stdout);
		_exit(rc);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return CONFORM_FAIL;
	if (WIFEXITED(status) && WEXITSTATUS(status) <= CONFORM_SKIP)
		return WEXITSTATUS(status);
	printf("not ok %d - %s\n# status %#x\n", number, test->name, (unsigned)status);
	return CONFORM_FAIL;
}

static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 2; i < argc; i++) {
		if (!strcmp(argv[i], name))
			return true;
	}
	return argc < 3;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : getenv("SPMT_BACKEND");
	const struct backend *b = name ? by_name(name) : NULL;
	const struct conform_case *test;
	int counts[3] = { 0 }, number = 0;
	size_t i;

	if (argc == 4 && !strcmp(argv[1], "--import"))
		return conform_import(argv[2], atoi(argv[3]));
	for (i = 0; !name && !b && i < ARRAY_SIZE(backends); i++)
		b = loads(backends[i]) ? backends[i] : NULL;
	if (!b || !loads(b)) {
		printf("Bail out! no backend '%s'\n", name ? name : "any");
		return 1;
	}
	printf("# backend %s\n", b->name);
	for (i = 0; (test = conform_case(i)); i++) {
		if (wanted(test->name, argc, argv))
			counts[run_forked(b, test, ++number)]++;
	}
	printf("1..%d\n# %d skipped\n", number, counts[CONFORM_SKIP]);
	printf("%d passed, %d failed\n", counts[CONFORM_PASS], counts[CONFORM_FAIL]);
	return counts[CONFORM_FAIL] != 0 || !number;
}
