/* SPDX-License-Identifier: MIT */
/* The file of SPMT_TRACE: waits for other processes that write it end, no child keeps it locked, and it stays where it was begun. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spmt/control/trace.h"
#include "src/base/process.h"

#define EVENT "{\"name\":\"one\"}"

static char dir[] = "/tmp/spmt-trace-XXXXXX";

static void make_dir(void)
{
	cr_assert(mkdtemp(dir));
	cr_assert_eq(chdir(dir), 0);
}

static void remove_dir(void)
{
	cr_assert_eq(chdir(dir), 0);
	unlink("trace");
	rmdir("elsewhere");
	cr_assert_eq(chdir("/"), 0);
	cr_assert_eq(rmdir(dir), 0);
}

static bool file_has(const char *path, const char *word)
{
	char text[4096] = "";
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	(void)!fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	return strstr(text, word);
}

/* ---- locks ----------------------------------------------------------------------------------- */

static pid_t child; /* forked in the midst of a write; 0: none yet, -1: none is wanted */

/* In place of the C library's. */
ssize_t pwritev(int fd, const struct iovec *rows, int n, off_t at)
{
	if (!child) {
		child = fork();
		if (!child)
			alarm(60);
		while (!child)
			pause();
	}
	return syscall(SYS_pwritev, fd, rows, n, at, 0);
}

Test(trace, a_lock_that_is_kept_is_not_waited_for_for_ever, .init = make_dir, .fini = remove_dir)
{
	const char *why = "";
	int fd = open("trace", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	child = -1;
	cr_assert(fd >= 0);
	cr_assert_eq(trace_file_begin("trace", true, INT64_MAX, &why), 0);
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_expect_eq(trace_file_begin("trace", true, process_now() + 20000000, &why), -ETIMEDOUT);
	cr_expect(strstr(why, "locked"), "%s", why);
	cr_expect_eq(trace_file_append("trace", EVENT, strlen(EVENT), 0, &why), -ETIMEDOUT);
	cr_expect(!file_has("trace", EVENT));
	close(fd);
	cr_expect_eq(trace_file_append("trace", EVENT, strlen(EVENT), 0, &why), 0);
	cr_expect(file_has("trace", EVENT));
}

Test(trace, a_child_that_was_forked_in_a_write_keeps_no_lock, .init = make_dir, .fini = remove_dir)
{
	const char *why = "";
	int rc = trace_file_begin("trace", true, INT64_MAX, &why);

	cr_expect(child > 0);
	if (!rc)
		rc = trace_file_append("trace", EVENT, strlen(EVENT), 0, &why);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	cr_assert_eq(rc, 0, "%s", why);
}

/* ---- its place ------------------------------------------------------------------------------- */

Test(trace, the_file_is_where_it_was_begun, .init = make_dir, .fini = remove_dir)
{
	child = -1;
	cr_assert_eq(mkdir("elsewhere", 0700), 0);
	cr_assert_eq(trace_open("trace", 0, -1), 0);
	trace_span(
		&(struct trace_event){ .name = "spmt_first", .begin = 1, .end = 2, .nranks = 1 });
	cr_assert_eq(chdir("elsewhere"), 0);
	trace_flush();
	cr_assert_eq(trace_open("trace", 1, -1), 0); /* another world's */
	trace_span(
		&(struct trace_event){ .name = "spmt_second", .begin = 3, .end = 4, .nranks = 1 });
	trace_flush();
	cr_expect_neq(access("trace", F_OK), 0);
	cr_assert_eq(chdir(".."), 0);
	cr_expect(file_has("trace", "spmt_first"));
	cr_expect(file_has("trace", "spmt_second"));
}
