/* SPDX-License-Identifier: MIT */
/* Open MPI's OSHMEM beside the figures of a layout: spmt-perf-oshmem (perf-oshmem.c), where it could be built and oshrun is found. */
#include "oshmem.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "spmt-perf-oshmem"

struct theirs {
	char test[PERF_TEXT], unit[8];
	int ranks;
	size_t size;
	double value;
};

/* Beside this program. */
static bool program_path(char *path, size_t room)
{
	ssize_t n = readlink("/proc/self/exe", path, room - 1);
	char *slash;

	if (n <= 0)
		return false;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || (size_t)(slash + 1 - path) + sizeof(PROGRAM) > room)
		return false;
	memcpy(slash + 1, PROGRAM, sizeof(PROGRAM));
	return access(path, X_OK) == 0;
}

/* 0, or why not. *out reads what it prints; it ends by itself after two minutes. */
static int start_oshrun(char *program, int ranks, pid_t *pid, FILE **out)
{
	posix_spawn_file_actions_t actions;
	char count[16], wait[] = "timeout", most[] = "120", run[] = "oshrun", many[] = "-n";
	char crowd[] = "--oversubscribe", all[] = "all", root[] = "--allow-run-as-root";
	char *argv[] = { wait, most, run, crowd, many, count, program, all, NULL };
	char *argv_root[] = { wait, most, run, root, crowd, many, count, program, all, NULL };
	int ends[2], err;

	if (pipe2(ends, O_CLOEXEC))
		return errno;
	snprintf(count, sizeof(count), "%d", ranks);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0);
	err = posix_spawnp(pid, wait, &actions, NULL, geteuid() ? argv : argv_root, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	*out = err ? NULL : fdopen(ends[0], "r");
	if (!*out)
		close(ends[0]);
	return err;
}

static bool parse(const char *line, struct theirs *t)
{
	/* Figures of a program of ours: what is no number is no line. NOLINTNEXTLINE(cert-err34-c) */
	return sscanf(line, "%23s %9d %19zu %31lf %7s", t->test, &t->ranks, &t->size, &t->value,
		       t->unit) == 5;
}

static const struct figure *ours(const struct figure *figures, int n, const struct theirs *t)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(figures[i].test, t->test) && figures[i].layout[0] &&
			figures[i].ranks == t->ranks && figures[i].size == t->size)
			return &figures[i];
	return NULL;
}

static void print(const struct theirs *t, const struct figure *f)
{
	bool time = f->unit >= UNIT_NS;
	char size[24];

	perf_size_text(t->size, size, sizeof(size));
	printf("%-10s %5s %5s  %-5s %10.4g %10.4g %6.3g\n", t->test, f->layout, size, t->unit,
		f->ours.median, t->value,
		time ? t->value / f->ours.median : f->ours.median / t->value);
	perf_told();
}

void oshmem_print(const struct figure *figures, int n, int ranks)
{
	char program[4096], line[256];
	struct theirs t;
	FILE *out = NULL;
	pid_t pid;
	int status = 0, err;

	if (!program_path(program, sizeof(program))) {
		printf("\nOpen MPI's OSHMEM is not beside: it was not installed when this was built\n");
		return;
	}
	printf("\nbeside Open MPI's OSHMEM, %d processes; ratio above 1: spmt is the faster\n",
		ranks);
	printf("%-10s %5s %5s  %-5s %10s %10s %6s\n", "test", "ranks", "size", "unit", "spmt",
		"oshmem", "ratio");
	err = start_oshrun(program, ranks, &pid, &out);
	if (err || !out) {
		printf("oshrun: %s\n", strerror(err));
		return;
	}
	while (fgets(line, sizeof(line), out)) {
		const struct figure *f = parse(line, &t) ? ours(figures, n, &t) : NULL;

		if (f)
			print(&t, f);
	}
	fclose(out);
	waitpid(pid, &status, 0);
	if (status)
		printf("oshrun ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : status);
}
