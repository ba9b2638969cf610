/* SPDX-License-Identifier: MIT */
/* What the suites of the host backend share. */
#ifndef TESTS_HOST_BACKEND_H
#define TESTS_HOST_BACKEND_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"
#include "src/device/host/host.h"
#include "tests/lib/ranks.h"

static const struct backend *const b = &backend_host;

#define MIB ((size_t)1 << 20)
#define OK(call) cr_assert_eq((call), 0, "%s", status_sentence())
#define SAYS(text) cr_expect_not_null(strstr(status_sentence(), text), "%s", status_sentence())
#define SECOND 1000000000ll

/* Exit status of fn in a forked child that is killed with its parent. */
static inline int in_child(int (*fn)(void *arg), void *arg)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(20);
		_exit(fn(arg));
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

static inline int entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static inline int lines(const char *path)
{
	FILE *file = fopen(path, "r");
	int c, n = 0;

	while (file && (c = getc(file)) != EOF)
		n += c == '\n';
	if (file)
		fclose(file);
	return n;
}

static int tasks_at_start; /* of the suite's own process, entries of /proc/self/task */

/* How many threads there are beside the suite's own, at most `at_most` of which are waited for to settle: one that was
   joined may be listed for a moment longer. */
static inline int workers(int at_most)
{
	int i, n = entries("/proc/self/task") - tasks_at_start;

	for (i = 0; i < 1000 && n > at_most; i++) {
		usleep(1000);
		n = entries("/proc/self/task") - tasks_at_start;
	}
	return n;
}

static inline void load(void)
{
	OK(b->load());
}

static inline void start(int devices)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", devices);
	tasks_at_start = entries("/proc/self/task");
	setenv("SPMT_HOST_DEVICES", text, 1);
	load();
}

static inline bool is_filled(const void *ptr, int byte, size_t n)
{
	const unsigned char *at = ptr;

	for (size_t i = 0; i < n; i++)
		if (at[i] != byte)
			return false;
	return true;
}

#endif
