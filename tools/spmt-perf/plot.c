/* SPDX-License-Identifier: MIT */
/* Pictures by gnuplot, which reads its program, with the data in it, from its standard input. */
#include "plot.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* gnuplot with this program: its status as waitpid() has it, or a negative errno where it does not start. */
static int gnuplot(FILE *program)
{
	char *const argv[] = { (char[]){ "gnuplot" }, NULL };
	posix_spawn_file_actions_t files;
	int status = 0, err;
	pid_t pid;

	rewind(program);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, fileno(program), STDIN_FILENO);
	err = posix_spawnp(&pid, "gnuplot", &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

/* One to write to, made if there is none; a file is said to be one, which access() would have without permission. */
static int folder(const char *dir)
{
	struct stat st;

	if ((mkdir(dir, 0777) && errno != EEXIST) || stat(dir, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	return access(dir, W_OK | X_OK) ? -errno : 0;
}

bool plot_ready(const char *dir)
{
	FILE *nothing = tmpfile();
	int rc = nothing ? gnuplot(nothing) : -errno;

	if (nothing)
		fclose(nothing);
	if (rc < 0) {
		fprintf(stderr, "spmt-perf: --plot: %s\n",
			rc == -ENOENT ? "gnuplot is not installed (Debian: gnuplot-nox)"
				      : strerror(-rc));
		return false;
	}
	rc = folder(dir);
	if (rc)
		fprintf(stderr, "spmt-perf: --plot %s: %s\n", dir, strerror(-rc));
	return !rc;
}

/* In gnuplot's single quotes, where a quote is two. */
static void quoted(FILE *to, const char *text)
{
	for (; *text; text++)
		fprintf(to, *text == '\'' ? "''" : "%c", *text);
}

static FILE *plot_open(const char *dir, const char *name)
{
	FILE *to = tmpfile();

	if (!to) {
		fprintf(stderr, "spmt-perf: --plot: %s\n", strerror(errno));
		return NULL;
	}
	fprintf(to,
		"set terminal svg size 900,560 dynamic background rgb 'white' font 'sans,13'\nset output '");
	quoted(to, dir);
	fprintf(to, "/%s.svg'\n", name);
	return to;
}

static bool plot_close(FILE *to, const char *dir, const char *name)
{
	int status = fflush(to) ? -errno : gnuplot(to);

	fclose(to);
	if (status == 0)
		return true;
	fprintf(stderr, "spmt-perf: --plot %s: gnuplot did not make %s.svg (%s %d)\n", dir, name,
		status > 0 && WIFEXITED(status) ? "exit status" : "status",
		status > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : status);
	return false;
}

/* ---- over size ------------------------------------------------------------------------------- */

static bool same_world(const struct figure *a, const struct figure *b)
{
	return !strcmp(a->test, b->test) && a->ranks == b->ranks && !strcmp(a->layout, b->layout);
}

/* One of the lines begins at figure i: it is the first of its test and world. */
static bool is_first(const struct figure *figures, int i)
{
	for (int j = 0; j < i; j++)
		if (same_world(&figures[j], &figures[i]))
			return false;
	return true;
}

static int sizes_in(const struct figure *figures, int n, const char *test)
{
	size_t seen[PERF_LIST];
	int count = 0;

	for (int i = 0; i < n; i++) {
		bool again = strcmp(figures[i].test, test) || !figures[i].size;

		for (int j = 0; j < count && !again; j++)
			again = seen[j] == figures[i].size;
		if (!again && count < PERF_LIST)
			seen[count++] = figures[i].size;
	}
	return count;
}

/* Blocks of "size ours peer", one a line of the picture. */
static void write_data(FILE *to, const struct figure *figures, int n, const char *test)
{
	int line = 0;

	for (int i = 0; i < n; i++) {
		if (strcmp(figures[i].test, test) || !is_first(figures, i))
			continue;
		fprintf(to, "$line%d << END\n", line++);
		for (int j = i; j < n; j++)
			if (same_world(&figures[j], &figures[i]) && figures[j].size)
				fprintf(to, "%zu %.6g %.6g\n", figures[j].size,
					figures[j].ours.median, figures[j].peer.median);
		fprintf(to, "END\n");
	}
}

static void write_lines(FILE *to, const struct figure *figures, int n, const char *test)
{
	int line = 0;

	fprintf(to, "plot ");
	for (int i = 0; i < n; i++) {
		const struct figure *f = &figures[i];

		if (strcmp(f->test, test) || !is_first(figures, i))
			continue;
		fprintf(to, "%s$line%d using 1:2 with linespoints lw 2 pt 7 lc %d title 'spmt, ",
			line ? ", " : "", line, line + 1);
		if (f->layout[0])
			fprintf(to, "processes %s'", f->layout);
		else
			fprintf(to, "%d ranks'", f->ranks);
		if (f->peer_name[0])
			fprintf(to,
				", $line%d using 1:3 with linespoints lw 1 dt 2 pt 6 lc %d title '%s'",
				line, line + 1, f->peer_name);
		line++;
	}
	fprintf(to, "\n");
}

static bool plot_test(const char *dir, const struct figure *figures, int n, const struct figure *f)
{
	bool rate = f->unit == UNIT_GBPS || f->unit == UNIT_MOPS;
	FILE *to = plot_open(dir, f->test);
	char label[24];

	if (!to)
		return false;
	fprintf(to, "set title '%s' noenhanced\nset xlabel 'bytes'\nset ylabel '%s, %s'\n", f->test,
		rate ? "bandwidth" : "latency", perf_unit_name(f->unit));
	fprintf(to,
		"set logscale x 2\nset logscale y\nset grid\nset key left top Left reverse\nset xtics (");
	for (size_t size = 8, nth = 0; size <= (size_t)1 << 36; size *= 8, nth++) {
		perf_size_text(size, label, sizeof(label));
		fprintf(to, "%s'%s' %zu", nth ? ", " : "", label, size);
	}
	fprintf(to, ")\n");
	write_data(to, figures, n, f->test);
	write_lines(to, figures, n, f->test);
	return plot_close(to, dir, f->test);
}

static bool is_first_of_test(const struct figure *figures, int i)
{
	for (int j = 0; j < i; j++)
		if (!strcmp(figures[j].test, figures[i].test))
			return false;
	return true;
}

bool plot_figures(const char *dir, const struct figure *figures, int n)
{
	int made = 0;

	for (int i = 0; i < n; i++) {
		if (!is_first_of_test(figures, i) || sizes_in(figures, n, figures[i].test) < 2)
			continue;
		if (!plot_test(dir, figures, n, &figures[i]))
			return false;
		made++;
	}
	printf("%d picture%s of figures over size in %s\n", made, made == 1 ? "" : "s", dir);
	return true;
}

/* ---- pairs ------------------------------------------------------------------------------------ */

bool plot_matrix(const char *dir, const double *rates, int n, size_t size)
{
	FILE *to = plot_open(dir, "matrix");
	char label[24];
	double most = 0;

	if (!to)
		return false;
	for (int i = 0; i < n * n; i++)
		most = rates[i] > most ? rates[i] : most;
	perf_size_text(size, label, sizeof(label));
	fprintf(to, "set title 'puts of %s, GB/s'\nset xlabel 'to rank'\nset ylabel 'from rank'\n",
		label);
	fprintf(to,
		"set xrange [-0.5:%d.5]\nset yrange [%d.5:-0.5]\nset xtics 1\nset ytics 1\nset size ratio 1\nset cblabel 'GB/s'\n"
		"set cbrange [0:*]\nset palette defined (0 '#f7fbff', 0.5 '#6baed6', 1 '#08519c')\nset key off\n",
		n - 1, n - 1);
	fprintf(to, "$rates << END\n");
	for (int from = 0; from < n; from++)
		for (int at = 0; at < n; at++)
			fprintf(to, "%d %d %.4g\n", at, from, rates[from * n + at]);
	fprintf(to, "END\nplot $rates using 1:2:3 with image");
	for (int dark = 0; dark < 2 && n <= 16; dark++) /* white on what is dark */
		fprintf(to,
			", $rates using 1:($3 %s %.6g ? $2 : NaN):(sprintf('%%.3g', $3)) with labels font ',10' textcolor rgb '%s'",
			dark ? ">" : "<=", most / 2, dark ? "white" : "black");
	fprintf(to, "\n");
	return plot_close(to, dir, "matrix");
}
