/* SPDX-License-Identifier: MIT */
/* The file that processes share: each adds its events before the end of the list, in one write, under a lock of the file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "src/base/base.h"
#include "src/base/process.h"
#include "trace.h"

#define TRACE_HEAD "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["
#define TRACE_TAIL "\n]}\n"
#define HEAD_SIZE ((off_t)sizeof(TRACE_HEAD) - 1)
#define TAIL_SIZE ((off_t)sizeof(TRACE_TAIL) - 1)

static int not_kept(const char **why, int err, const char *text)
{
	*why = text ? text : strerror(err);
	return -err;
}

/* Who has the lock may be stopped. A file system without locks is taken as it is. */
static int trace_file_lock(int fd, int64_t end, const char **why)
{
	const struct timespec nap = { .tv_nsec = 1000000 };

	while (flock(fd, LOCK_EX | LOCK_NB) && (errno == EINTR || errno == EWOULDBLOCK)) {
		if (process_now() >= end)
			return not_kept(why, ETIMEDOUT, "another process has it locked");
		nanosleep(&nap, NULL);
	}
	return 0;
}

/* Open and locked. */
static int trace_file_open(const char *path, int64_t end, const char **why)
{
	int rc, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
	struct stat s;

	if (fd < 0)
		return not_kept(why, errno, NULL);
	fd = process_fd(fd);
	if (fd < 0)
		return not_kept(why, EMFILE, NULL);
	if (fstat(fd, &s) || !S_ISREG(s.st_mode))
		rc = not_kept(why, EINVAL, "it has to be a file");
	else
		rc = trace_file_lock(fd, end, why);
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* A child that was forked meanwhile has the descriptor, too: closing it here would not unlock the file. */
static void trace_file_close(int fd)
{
	flock(fd, LOCK_UN);
	close(fd);
}

static int write_rows(int fd, const struct iovec *rows, int n, off_t at, const char **why)
{
	size_t size = 0;
	ssize_t done;

	for (int i = 0; i < n; i++)
		size += rows[i].iov_len;
	if (!process_file_fits((uint64_t)at + size))
		return not_kept(why, EFBIG, "File too large (ulimit -f)");
	done = pwritev(fd, rows, n, at);
	if (done < 0)
		return not_kept(why, errno, NULL);
	return (size_t)done == size ? 0 : not_kept(why, ENOSPC, NULL);
}

static struct iovec trace_row(const char *text, size_t size)
{
	return (struct iovec){ (void *)(uintptr_t)text, size };
}

static int write_empty(int fd, const char **why)
{
	const struct iovec rows[] = { trace_row(
		TRACE_HEAD TRACE_TAIL, sizeof(TRACE_HEAD TRACE_TAIL) - 1) };

	return write_rows(fd, rows, 1, 0, why);
}

int trace_file_begin(const char *path, bool anew, int64_t end, const char **why)
{
	struct stat s;
	int rc = 0, fd = trace_file_open(path, end, why);

	if (fd < 0)
		return fd;
	if ((anew && ftruncate(fd, 0)) || fstat(fd, &s))
		rc = not_kept(why, errno, NULL);
	else if (!s.st_size)
		rc = write_empty(fd, why);
	trace_file_close(fd);
	return rc;
}

static bool is_trace(int fd, off_t size)
{
	char head[HEAD_SIZE], tail[TAIL_SIZE];

	return size >= HEAD_SIZE + TAIL_SIZE && pread(fd, head, sizeof(head), 0) == HEAD_SIZE &&
		pread(fd, tail, sizeof(tail), size - TAIL_SIZE) == TAIL_SIZE &&
		memcmp(head, TRACE_HEAD, sizeof(head)) == 0 &&
		memcmp(tail, TRACE_TAIL, sizeof(tail)) == 0;
}

/* What is written in part is taken back. */
static int rows_append(int fd, const char *text, size_t size, const char **why)
{
	struct stat s;
	struct iovec rows[3];
	int rc = 0;

	if (fstat(fd, &s))
		return not_kept(why, errno, NULL);
	if (!s.st_size) {
		rc = write_empty(fd, why);
		s.st_size = HEAD_SIZE + TAIL_SIZE;
	}
	if (rc)
		return rc;
	if (!is_trace(fd, s.st_size))
		return not_kept(why, EINVAL, "the file is no trace of this library any more");
	rows[0] = trace_row(",\n", 2);
	if (s.st_size == HEAD_SIZE + TAIL_SIZE)
		rows[0] = trace_row("\n", 1);
	rows[1] = trace_row(text, size);
	rows[2] = trace_row(TRACE_TAIL, sizeof(TRACE_TAIL) - 1);
	rc = write_rows(fd, rows, 3, s.st_size - TAIL_SIZE, why);
	if (rc && !ftruncate(fd, s.st_size - TAIL_SIZE))
		(void)!pwrite(fd, TRACE_TAIL, sizeof(TRACE_TAIL) - 1, s.st_size - TAIL_SIZE);
	return rc;
}

int trace_file_append(
	const char *path, const char *text, unsigned long size, int64_t end, const char **why)
{
	int rc, fd = trace_file_open(path, end, why);

	if (fd < 0)
		return fd;
	rc = rows_append(fd, text, size, why);
	trace_file_close(fd);
	return rc;
}
