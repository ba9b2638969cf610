/* SPDX-License-Identifier: MIT */
/* spmt-info: what the library finds on this machine, and why. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/status.h"
#include "src/device/device.h"
#include "topo.h"

enum { EXIT_USAGE = 2 };
enum { OPT_ENV = 256, OPT_COLL, OPT_ROUTES, OPT_TOPO, OPT_RECORD, OPT_WAITS, OPT_UID };

static const struct option long_options[] = {
	{ "env", no_argument, NULL, OPT_ENV },
	{ "coll", optional_argument, NULL, OPT_COLL },
	{ "routes", optional_argument, NULL, OPT_ROUTES },
	{ "topo", required_argument, NULL, OPT_TOPO },
	{ "record", required_argument, NULL, OPT_RECORD },
	{ "waits", required_argument, NULL, OPT_WAITS },
	{ "uid", no_argument, NULL, OPT_UID },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

struct question {
	bool env, coll, routes, uid;
	int ranks;			  /* of --routes; 0: one a device */
	int among;			  /* ranks of --coll; 0: the usual numbers */
	int pid;			  /* of --waits; 0: not asked */
	const char *topo, *record, *file; /* file: of SPMT_ROUTES */
};

static void help(void)
{
	printf("usage: spmt-info [options]\n"
	       "  (none)           version, backends, devices and topology of this machine\n"
	       "  --env            the environment variables: name, kind, default, value, meaning; and what is\n"
	       "                   set and unknown, or not understood\n"
	       "  --coll [N]       the algorithms of collectives, and which a call of N ranks (2, 4 and 8) takes, by its\n"
	       "                   size; of the plans that SPMT_COLL names, what they are and whether they are right\n"
	       "  --routes [N]     how each rank of a world of N (one a device) reaches each other, and why\n"
	       "  --routes FILE    the same of worlds that ran with SPMT_ROUTES=FILE\n"
	       "  --topo FILE      devices and routes of a recorded machine\n"
	       "  --record FILE    writes this machine for --topo\n"
	       "  --waits PID      who waits where, for whom and since when in the running process PID, and in the\n"
	       "                   processes that share its worlds\n"
	       "  --uid            a new uid for SPMT_UID, with this node's addresses where SPMT_SOCKET_IFNAME names\n"
	       "                   some; it is a secret\n"
	       "  --help, --version\n"
	       "exit: 0; 1 a failure, the reason on stderr; 2 usage\n");
}

static int usage(const char *what)
{
	fprintf(stderr, "spmt-info: %s (see --help)\n", what);
	return EXIT_USAGE;
}

static int failed(const char *what, int code)
{
	const char *why = spmt_last_error();

	fprintf(stderr, "spmt-info: %s: %s\n", what, *why ? why : spmt_strerror(code));
	return EXIT_FAILURE;
}

/* ---- environment */

static void unknown_print(void *ctx, const char *name, const char *near)
{
	(void)ctx;
	printf("unknown: %s is no variable of libspmt%s%s\n", name, near ? ": did you mean " : "",
		near ? near : "");
}

/* Secrets are not shown: what this prints goes into reports. */
static const char *shown(const struct env_row *row)
{
	if (!row->value)
		return "-";
	return strcmp(row->name, "SPMT_UID") != 0 || strchr(row->value, '/') ? row->value : "(set)";
}

/* On one line, with '?' for what does not print; as wide as its column at least. */
static void value_print(const char *text, size_t most, int column)
{
	for (size_t i = 0; i < most && text[i]; i++, column--)
		putchar(is_control(text[i]) ? '?' : text[i]);
	for (; column > 0; column--)
		putchar(' ');
}

static void env_print(void)
{
	struct env_row row;

	printf("%-22s %-5s %-8s %-12s %s\n", "variable", "kind", "default", "value", "meaning");
	for (size_t i = 0; env_row(i, &row); i++) {
		printf("%-22s %-5s %-8s ", row.name, row.kind_name, *row.def ? row.def : "-");
		value_print(shown(&row), SIZE_MAX, 12);
		printf(" %s%s%s%s\n", row.accepts ? "(" : "", row.accepts ? row.accepts : "",
			row.accepts ? ") " : "", row.help);
	}
	for (size_t i = 0; env_row(i, &row); i++)
		if (row.wrong) {
			printf("not understood: %s=", row.name);
			value_print(row.value, 64, 0);
			puts(": every call fails");
		}
	env_unknown(unknown_print, NULL);
	if (env_withheld())
		printf("none is read: the program runs with more rights than its caller has\n");
}

/* ---- this machine */

static void device_print(const struct backend *b, int dev)
{
	struct device_desc d;
	bool named = false;

	if (b->describe(dev, &d)) {
		printf("    %2d  %s\n", dev, status_sentence());
		return;
	}
	printf("    %2d  %-24s %-8s %7.1f GiB  %3d units  numa %2d  pci %s", dev, d.name, d.arch,
		(double)d.memory / (1 << 30), d.units, d.numa, d.pci[0] ? d.pci : "-");
	for (size_t i = 0; i < sizeof(d.uuid); i++)
		named = named || d.uuid[i];
	if (named) {
		printf("  uuid ");
		for (size_t i = 0; i < sizeof(d.uuid); i++)
			printf("%02x", d.uuid[i]);
	}
	printf("\n");
}

/* A backend may know how where its devices cannot. */
static bool backs_on_demand(const struct backend *b, int n)
{
	struct status_saved saved;
	size_t bytes;
	bool can;

	status_save(&saved);
	can = b->vmm && n > 0 && !b->vmm->granularity(0, &bytes);
	status_restore(&saved);
	return can;
}

static void backend_print(const struct backend *b)
{
	int n = 0;

	if (b->load() || b->count(&n)) {
		printf("  %-5s no: %s\n", b->name, status_sentence());
		return;
	}
	printf("  %-5s %d device%s%s%s%s%s\n", b->name, n, n == 1 ? "" : "s",
		b->traits & DEVICE_HOST_ACCESS ? ", CPU access" : "",
		backs_on_demand(b, n) ? ", vmm" : "", b->ipc ? ", ipc" : "",
		device_lacks_images(b) ? "; built without device images: taken only where named"
				       : "");
	for (int dev = 0; dev < n; dev++)
		device_print(b, dev);
}

static int machine_print(void)
{
	const struct backend *b;
	const struct topo *t;

	printf("libspmt %s\nbackends, in order of preference\n", spmt_version());
	for (size_t i = 0; (b = device_backend(i)); i++)
		backend_print(b);
	if (device_select(NULL, &b))
		return failed("no backend", -ENODEV);
	printf("default backend: %s\n", b->name);
	if (topo_get(&t))
		printf("no topology: %s\n", status_sentence());
	else
		topo_print(t, false);
	return 0;
}

/* The host backend has as many devices as asked for, unless the user has said how many. An empty variable says nothing. */
static void ask_for_devices(int ranks)
{
	const char *given = getenv("SPMT_HOST_DEVICES");
	char text[16];

	snprintf(text, sizeof(text), "%d", ranks);
	if (ranks > 8)
		setenv("SPMT_HOST_DEVICES", text, given && !*given);
}

static int show_routes(struct matrix *m)
{
	bool ok = matrix_print(m);

	matrix_free(m);
	return ok ? 0 : failed("out of memory", -ENOMEM);
}

static int routes_print(int ranks)
{
	struct matrix m;
	int rc;

	ask_for_devices(ranks);
	rc = matrix_live(ranks, &m);
	return rc ? failed("--routes", rc) : show_routes(&m);
}

static int routes_file(const char *path)
{
	int rc = routes_file_print(path);

	return rc ? failed("--routes", rc) : 0;
}

static int recording_print(const char *path)
{
	struct topo *t;
	struct matrix m;
	int rc = topo_read(path, &t);

	if (rc)
		return failed("--topo", rc);
	topo_print(t, true);
	rc = topo_routes(t, &m);
	topo_free(t);
	return rc ? failed("--topo", rc) : show_routes(&m);
}

static int recording_write(const char *path)
{
	const struct topo *t;
	int rc = topo_get(&t);

	if (!rc)
		rc = topo_write(t, path);
	return rc ? failed("--record", rc) : 0;
}

static int uid_print(void)
{
	spmt_uid uid;
	int rc = spmt_uid_create(&uid);

	if (rc)
		return failed("--uid", rc);
	for (size_t i = 0; i < sizeof(uid.bytes); i++)
		printf("%02x", uid.bytes[i]);
	printf("\n");
	return 0;
}

/* ---- options */

static bool ranks_value(const char *text, int *ranks)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (end == text || *end || n < 1 || n > MATRIX_MAX)
		return false;
	*ranks = (int)n;
	return true;
}

static int among_take(const char *text, struct question *q)
{
	return ranks_value(text, &q->among) ? 0 : usage("--coll wants 1 to 512 ranks");
}

/* What begins like a number is meant as one. */
static int routes_take(const char *text, struct question *q)
{
	if (ranks_value(text, &q->ranks))
		return 0;
	if ((*text >= '0' && *text <= '9') || *text == '-')
		return usage(
			"--routes wants 1 to 512 ranks, or a file (./NAME if it begins with a digit)");
	q->file = text;
	return 0;
}

static int pid_take(const char *text, struct question *q)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || n < 1 || n > INT32_MAX)
		return usage("--waits wants the number of a process");
	q->pid = (int)n;
	return 0;
}

static int option_take(int c, struct question *q)
{
	switch (c) {
	case OPT_ENV:
		q->env = true;
		break;
	case OPT_COLL:
		q->coll = true;
		return optarg ? among_take(optarg, q) : 0;
	case OPT_TOPO:
		q->topo = optarg;
		break;
	case OPT_RECORD:
		q->record = optarg;
		break;
	case OPT_WAITS:
		return pid_take(optarg, q);
	case OPT_UID:
		q->uid = true;
		break;
	case OPT_ROUTES:
		q->routes = true;
		return optarg ? routes_take(optarg, q) : 0;
	default:
		return EXIT_USAGE;
	}
	return 0;
}

/* `--coll N` as well as `--coll=N`, and so for --routes: the word belongs to the option before it. */
static void word_take(int c, int argc, char **argv)
{
	if ((c == OPT_COLL || c == OPT_ROUTES) && !optarg && optind < argc && *argv[optind] != '-')
		optarg = argv[optind++];
}

/* 0: go on; 1: done; -1: usage. */
static int parse(int argc, char **argv, struct question *q)
{
	int c;

	while ((c = getopt_long(argc, argv, "+hV", long_options, NULL)) != -1) {
		if (c == 'h') {
			help();
			return 1;
		}
		if (c == 'V') {
			printf("spmt-info %s\n", spmt_version());
			return 1;
		}
		word_take(c, argc, argv);
		if (c == '?' || option_take(c, q))
			return -1;
	}
	if (optind == argc)
		return 0;
	usage("an argument that is no option");
	return -1;
}

static int answer(const struct question *q)
{
	int code = 0;

	if (q->env)
		env_print();
	if (q->coll && !coll_print(q->among))
		code = EXIT_FAILURE;
	if (!code && q->record)
		code = recording_write(q->record);
	if (!code && q->topo)
		code = recording_print(q->topo);
	if (!code && q->routes)
		code = q->file ? routes_file(q->file) : routes_print(q->ranks);
	if (!code && q->pid) {
		code = waits_print(q->pid);
		code = code ? failed("--waits", code) : 0;
	}
	if (!code && q->uid)
		code = uid_print();
	if (!q->env && !q->coll && !q->record && !q->topo && !q->routes && !q->pid && !q->uid)
		code = machine_print();
	return code;
}

int main(int argc, char **argv)
{
	struct question q = { 0 };
	bool closed = fcntl(STDOUT_FILENO, F_GETFD) < 0; /* its number will be another file's */
	int rc = parse(argc, argv, &q), error = EBADF;

	if (rc < 0)
		return EXIT_USAGE;
	rc = rc || closed ? 0 : answer(&q);
	if (!closed)
		error = fflush(stdout) ? errno : ferror(stdout) ? EIO : 0;
	if (!error)
		return rc;
	fprintf(stderr, "spmt-info: stdout: %s\n", strerror(error));
	return EXIT_FAILURE;
}
