/* SPDX-License-Identifier: MIT */
#include "named.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fault.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define NAMED_PROCESSES 32768

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int named_uid(const char *from, const char *text, size_t n, struct uid *uid)
{
	spmt_uid bytes;
	int rc;

	while (n && is_space(text[n - 1]))
		n--;
	for (size_t i = 0; i < n; i++)
		if (digit(text[i]) < 0)
			return fail_call(-EINVAL, from,
				"character %zu is no hexadecimal digit; spmt-info --uid makes a uid",
				i + 1);
	if (n != NAMED_DIGITS)
		return fail_call(-EINVAL, from,
			"%zu hexadecimal digits, a uid has %zu; spmt-info --uid makes one", n,
			NAMED_DIGITS);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes.bytes[i] = (unsigned char)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
	rc = uid_read(from, &bytes, uid);
	explicit_bzero(&bytes, sizeof(bytes));
	return rc;
}

/* A number below NAMED_PROCESSES, -1: none; *at is moved behind it. */
static int number(const char **at)
{
	char *end;
	long n = **at >= '0' && **at <= '9' ? strtol(*at, &end, 10) : -1;

	if (n < 0 || n > NAMED_PROCESSES)
		return -1;
	*at = end;
	return (int)n;
}

int named_process(const char *text, struct job_info *launch)
{
	const char *at = text;
	struct job_info l = { -1, -1, -1 };

	l.process = number(&at);
	if (*at == '/') {
		at++;
		l.processes = number(&at);
		l.local = l.process;
	}
	if (l.processes >= 0 && *at == '/') {
		at++;
		l.local = number(&at);
	}
	if (*at || l.processes < 1 || l.process < 0 || l.process >= l.processes || l.local < 0 ||
		l.local > l.process)
		return fail_call(-EINVAL, "spmt_init",
			"SPMT_PROCESS=%.64s: wanted are this process's number from 0 on and how many there are, 9/16, and how many of its node come before it, 9/16/1",
			text);
	*launch = l;
	return 0;
}

/* Returns the bytes read, or -errno. */
static ssize_t file_read(const char *path, char *text, size_t size)
{
	int err = fault_here(FAULT_FD) ? fault_errno(FAULT_FD) : 0;
	int fd = err ? -1 : process_fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	size_t used = 0;
	ssize_t n = 0;

	if (fd < 0)
		return -(err ? err : errno);
	while (used < size && (n = read(fd, text + used, size - used)) > 0)
		used += (size_t)n;
	err = n < 0 ? errno : 0;
	close(fd);
	return err ? -err : (ssize_t)used;
}

static bool all_digits(const char *text, ssize_t n)
{
	for (ssize_t i = 0; i < n; i++)
		if (digit(text[i]) < 0)
			return false;
	return true;
}

int named_file(const char *path, struct uid *uid)
{
	char text[NAMED_DIGITS + 8], from[300] = "spmt_init: SPMT_UID=";
	ssize_t n = file_read(path, text, sizeof(text));
	int rc;

	strncat(from, path, sizeof(from) - strlen(from) - 1);
	if (n < 0 && n != -ENOENT && n != -EAGAIN)
		return fail_call_errno((int)-n, "spmt_init", "SPMT_UID=%s", path);
	if (n < (ssize_t)NAMED_DIGITS && all_digits(text, n))
		return -EAGAIN; /* it is being written */
	rc = named_uid(from, text, (size_t)n, uid);
	explicit_bzero(text, sizeof(text));
	return rc;
}
