/* SPDX-License-Identifier: MIT */
/* spmt-plan: plans shown, checked and run. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "made.h"

static const char usage[] =
	"usage: spmt-plan COMMAND FILE\n"
	"  show FILE           its operations, a line each\n"
	"  svg FILE            a picture of it\n"
	"  json FILE           as an execution plan of MSCCL++; it relies on the meetings before and behind a run here, and has no closing signals\n"
	"  check FILE          0, or a deadlock, a race, a wait that nobody signals, a signal that nobody waits for\n"
	"  run FILE [BYTES [ROUNDS]]\n"
	"                      on as many devices, with inputs of BYTES (outputs, without), a multiple of two elements a chunk; tells whether the collective is right, and its time\n"
	"FILE is an execution plan of MSCCL++ 0.8 or 0.9, - for standard input; or make:NAME:RANKS, or make:NAME:RANKS:BLOCKS, NAME one of\n"
	"  ";

#define FILE_MOST ((size_t)256 << 20) /* bytes */

static int say(const char *what)
{
	fprintf(stderr, "spmt-plan: %s: %s\n", what, spmt_last_error());
	return 1;
}

/* ---- files ------------------------------------------------------------------------------------ */

static char *read_all(const char *name, size_t *size)
{
	FILE *f = strcmp(name, "-") ? fopen(name, "rb") : stdin;
	size_t room = 1 << 16, n = 0;
	char *text = f ? malloc(room) : NULL;

	while (text && n <= FILE_MOST && !feof(f) && !ferror(f)) {
		n += fread(text + n, 1, room - n, f);
		if (n == room) {
			char *more = realloc(text, room *= 2);

			if (!more)
				free(text);
			text = more;
		}
	}
	if (!f || !text || ferror(f))
		fprintf(stderr, "spmt-plan: %s: %s\n", name, strerror(errno ? errno : EIO));
	else if (n > FILE_MOST)
		fprintf(stderr, "spmt-plan: %s: more than %zu bytes, too many for a plan\n", name,
			FILE_MOST);
	if (!f || !text || ferror(f) || n > FILE_MOST) {
		free(text);
		text = NULL;
	}
	if (f && f != stdin)
		fclose(f);
	*size = n;
	return text;
}

static bool whole(const char *text, unsigned long long most, unsigned long long *n)
{
	char *end;

	errno = 0;
	*n = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *n <= most;
}

/* make:NAME:RANKS or make:NAME:RANKS:BLOCKS */
static int make(const char *what, spmt_plan **plan)
{
	unsigned long long ranks = 0, blocks = 1;
	char text[96], *rest = text, *name, *number;
	int rc = -ENOENT;

	snprintf(text, sizeof(text), "%s", what);
	name = strsep(&rest, ":");
	number = strsep(&rest, ":");
	if (strlen(what) < sizeof(text) && number && whole(number, SPMT_PLAN_RANKS, &ranks) &&
		ranks && (!rest || whole(rest, SPMT_PLAN_BLOCKS, &blocks)) && blocks)
		rc = made_plan_of(name, (int)ranks, (int)blocks, plan);
	if (rc == -ENOENT)
		fprintf(stderr,
			"spmt-plan: make:%s is none of make:NAME:RANKS or make:NAME:RANKS:BLOCKS with NAME %s, RANKS 1 to %d, BLOCKS 1 to %d\n",
			what, made_names, SPMT_PLAN_RANKS, SPMT_PLAN_BLOCKS);
	else if (rc)
		say(what);
	return rc;
}

static int load(const char *name, spmt_plan **plan)
{
	size_t size;
	char *text;
	int rc;

	if (!strncmp(name, "make:", 5))
		return make(name + 5, plan);
	text = read_all(name, &size);
	if (!text)
		return -EIO;
	rc = spmt_plan_read(text, size, plan);
	if (rc)
		say(name);
	free(text);
	return rc;
}

/* Why what is longer than stdout's buffer was not written, where that is known. */
static int unprinted = EIO;

static int print(const spmt_plan *plan, enum spmt_plan_form form, const char *name)
{
	size_t need = 0;
	char *text;
	int rc = spmt_plan_write(plan, form, NULL, 0, &need);

	text = rc == -ERANGE ? malloc(need) : NULL;
	if (!text || spmt_plan_write(plan, form, text, need, &need)) {
		free(text);
		return say(name);
	}
	if (fputs(text, stdout) < 0)
		unprinted = errno;
	free(text);
	return 0;
}

/* ---- run -------------------------------------------------------------------------------------- */

struct job {
	const spmt_plan *plan;
	struct spmt_plan_info info;
	size_t elements; /* as spmt_plan_run's count */
	long rounds;
	double us;	  /* of rank 0, a round */
	int right;	  /* as made_right, of all ranks */
	size_t no_memory; /* bytes that the host had not */
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Chunks of spmt_plan_run's count. */
static size_t parts_of(const struct spmt_plan_attr *a)
{
	return a->input_chunks ? a->input_chunks : a->output_chunks ? a->output_chunks : 1;
}

/* Both buffers; in place, one in the other. */
static int buffers(spmt_comm *comm, const struct job *j, size_t in, size_t out, uint32_t **base,
	uint32_t **dst, uint32_t **src)
{
	const struct spmt_plan_attr *a = &j->info.attr;
	size_t apart = a->in_place ? 0 : in, me = (size_t)spmt_rank(comm);
	int rc =
		spmt_calloc(comm, (in > out ? in : out) + apart + 1, sizeof(**base), (void **)base);

	if (rc)
		return rc;
	*src = *base;
	*dst = *base + apart;
	if (a->in_place && !strcmp(a->collective, "allgather"))
		*src = *base + me * in;
	if (a->in_place && !strcmp(a->collective, "reducescatter"))
		*dst = *base + me * out;
	return 0;
}

static int run_rounds(
	spmt_comm *comm, struct job *j, spmt_plan_open *open, uint32_t *dst, uint32_t *src)
{
	double begin = now_us();
	int rc = 0;

	for (long i = 0; i < j->rounds && !rc; i++)
		rc = spmt_plan_run(
			comm, open, dst, src, j->elements, SPMT_TYPE_U32, SPMT_OP_SUM, NULL);
	if (!rc)
		rc = spmt_quiet(comm);
	if (!rc && spmt_rank(comm) == 0)
		j->us = (now_us() - begin) / (double)j->rounds;
	return rc;
}

static int run_rank(spmt_comm *comm, void *arg)
{
	struct job *j = arg;
	const struct spmt_plan_attr *a = &j->info.attr;
	size_t chunk = j->elements / parts_of(a);
	size_t in = a->input_chunks * chunk, out = a->output_chunks * chunk,
	       most = in > out ? in : out, filled = in || !a->in_place ? in : out;
	uint32_t *base, *dst = NULL, *src = NULL, *host = calloc(most + 1, sizeof(*host));
	spmt_plan_open *open = NULL;
	long rounds = j->rounds;
	int rc = host ? buffers(comm, j, in, out, &base, &dst, &src) : -ENOMEM, right = -1;

	if (!host)
		__atomic_store_n(&j->no_memory, (most + 1) * sizeof(*host), __ATOMIC_RELAXED);

	for (size_t i = 0; !rc && i < filled; i++)
		host[i] = made_input(spmt_rank(comm), i);
	if (!rc && filled)
		rc = spmt_copy_in(comm, src, host, filled * sizeof(*host));
	if (!rc)
		rc = spmt_plan_begin(comm, j->plan, j->elements * sizeof(*host), &open);
	/* once for the result: a collective in place goes on from it */
	if (!rc)
		rc = spmt_plan_run(
			comm, open, dst, src, j->elements, SPMT_TYPE_U32, SPMT_OP_SUM, NULL);
	if (!rc)
		rc = spmt_quiet(comm);
	if (!rc)
		rc = spmt_copy_out(comm, host, out ? dst : src, (out ? out : in) * sizeof(*host));
	if (!rc)
		right = made_right(a, spmt_rank(comm), j->elements, host);
	if (!rc && right < 1)
		__atomic_store_n(&j->right, right, __ATOMIC_RELAXED);
	if (!rc && rounds)
		rc = run_rounds(comm, j, open, dst, src);
	if (!rc)
		rc = spmt_plan_end(comm, open);
	free(host);
	return rc ? rc : spmt_free(comm, base);
}

/* Chunks of an even number of elements: packets want that. 0: none. */
static size_t elements_of(const struct spmt_plan_info *info, unsigned long long bytes, bool given)
{
	const struct spmt_plan_attr *a = &info->attr;
	size_t unit = 2 * parts_of(a);
	unsigned long long each = unit * sizeof(uint32_t), times;

	if (!given && bytes < a->min_bytes &&
		__builtin_add_overflow(a->min_bytes, each - 1, &bytes))
		bytes = ULLONG_MAX;
	if (!given && a->max_bytes && bytes > a->max_bytes)
		bytes = a->max_bytes;
	times = bytes / each;

	if (times && !(bytes % each))
		return (size_t)times * unit;
	if (!given)
		return (size_t)(times ? times : 1) * unit;
	fprintf(stderr, "spmt-plan: %llu is no size of %s of %s: multiples of %llu are, as ", bytes,
		a->input_chunks		   ? "inputs"
			: a->output_chunks ? "outputs"
					   : "chunks of scratch",
		a->name, each);
	if (times)
		fprintf(stderr, "%llu or ", times * each);
	fprintf(stderr, "%llu\n", (times + 1) * each);
	return 0;
}

/* Whether a rank's buffers, of so many elements of its input, have addresses. */
static bool addressed(const struct spmt_plan_attr *a, size_t elements)
{
	size_t chunks = (size_t)a->input_chunks + a->output_chunks + 1, bytes;

	return !__builtin_mul_overflow(elements / parts_of(a), chunks * sizeof(uint32_t), &bytes) &&
		bytes <= PTRDIFF_MAX;
}

/* bytes NULL: a size that fits. */
static int run(
	const spmt_plan *plan, const char *name, const unsigned long long *bytes, long rounds)
{
	struct spmt_attr common = SPMT_ATTR_INIT;
	struct job j = {
		.plan = plan, .info = { .size = sizeof(j.info) }, .rounds = rounds, .right = 1
	};
	int rc;

	if (spmt_plan_about(plan, &j.info))
		return say(name);
	j.elements = elements_of(&j.info, bytes ? *bytes : 1 << 20, bytes);
	if (!j.elements)
		return 2;
	if (!addressed(&j.info.attr, j.elements)) {
		fprintf(stderr,
			"spmt-plan: %s: the plan is for %llu bytes and more, and no buffer can be so large\n",
			name, (unsigned long long)j.info.attr.min_bytes);
		return 1;
	}
	rc = spmt_run(j.info.attr.nranks, &common, run_rank, &j);
	if (rc == -ENODEV)
		fprintf(stderr,
			"spmt-plan: %s: a plan of %d ranks needs as many devices; SPMT_BACKEND=host SPMT_HOST_DEVICES=%d has it run on virtual ones\n",
			name, j.info.attr.nranks, j.info.attr.nranks);
	if (j.no_memory) {
		fprintf(stderr,
			"spmt-plan: %s: no memory for the %zu bytes that a rank fills and compares on the host\n",
			name, j.no_memory);
		return 1;
	}
	if (rc)
		return say(name);
	printf("%s: %s of %d ranks, %zu bytes: %s", j.info.attr.name, j.info.attr.collective,
		j.info.attr.nranks, j.elements * sizeof(uint32_t),
		j.right < 0	  ? "ran; no collective that is known here"
			: j.right ? "right"
				  : "WRONG");
	if (rounds)
		printf(", %.2f us", j.us);
	putchar('\n');
	return j.right == 0;
}

static int number(const char *text, unsigned long long most, unsigned long long *n)
{
	if (whole(text, most, n))
		return 0;
	fprintf(stderr, "spmt-plan: %s is no number from 0 to %llu\n", text, most);
	return 1;
}

static int command(int argc, char **argv, const spmt_plan *plan)
{
	static const struct {
		const char *name;
		enum spmt_plan_form form;
	} forms[] = { { "show", SPMT_PLAN_TEXT }, { "svg", SPMT_PLAN_SVG },
		{ "json", SPMT_PLAN_JSON } };
	unsigned long long bytes, rounds = 10;

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (!strcmp(argv[1], forms[i].name))
			return print(plan, forms[i].form, argv[2]);
	if (!strcmp(argv[1], "check")) {
		if (spmt_plan_check(plan))
			return say(argv[2]);
		puts("right");
		return 0;
	}
	if ((argc > 3 && number(argv[3], 1ull << 28, &bytes)) ||
		(argc > 4 && number(argv[4], 1000000, &rounds)))
		return 2;
	return run(plan, argv[2], argc > 3 ? &bytes : NULL, (long)rounds);
}

static int answer(int argc, char **argv)
{
	static const char *const commands[] = { "show", "svg", "json", "check", "run" };
	spmt_plan *plan = NULL;
	int known = 0, rc;

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		printf("%s%s\n", usage, made_names);
		return 0;
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		printf("spmt-plan %s\n", spmt_version());
		return 0;
	}
	for (size_t i = 0; argc > 2 && i < sizeof(commands) / sizeof(commands[0]); i++)
		known |= !strcmp(argv[1], commands[i]);
	if (!known || argc > (strcmp(argv[1], "run") ? 3 : 5)) {
		fprintf(stderr, "%s%s\n", usage, made_names);
		return 2;
	}
	rc = load(argv[2], &plan);
	if (rc)
		return rc == -ENOENT ? 2 : 1; /* none that is made */
	rc = command(argc, argv, plan);
	spmt_plan_destroy(plan);
	return rc;
}

int main(int argc, char **argv)
{
	bool closed = fcntl(STDOUT_FILENO, F_GETFD) < 0; /* its number will be another file's */
	int rc = closed ? 0 : answer(argc, argv), error = EBADF;

	if (!closed)
		error = fflush(stdout) ? errno : ferror(stdout) ? unprinted : 0;
	if (!error)
		return rc;
	fprintf(stderr, "spmt-plan: stdout: %s\n", strerror(error));
	return 1;
}
