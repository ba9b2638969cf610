/* SPDX-License-Identifier: MIT */
/* device_rtc nvrtc|hiprtc FILE HEADER: FILE, which includes spmt_device.h, with HEADER as that, through a run-time compiler.
   Needs no GPU. 77: it is not there. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MISSING = 77 };

struct compiler {
	int (*create)(
		void **, const char *, const char *, int, const char *const *, const char *const *);
	int (*compile)(void *, int, const char *const *);
	int (*log_size)(void *, size_t *);
	int (*log)(void *, char *);
};

static const char *const nvrtc_libraries[] = { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
	"/usr/local/cuda/lib64/libnvrtc.so", "/usr/local/cuda/lib/libnvrtc.so", NULL };
static const char *const hiprtc_libraries[] = { "libhiprtc.so.7", "libhiprtc.so.6",
	"libamdhip64.so.5", NULL };

static char *file(const char *path)
{
	char *text = calloc(1, 1 << 20);
	FILE *f = fopen(path, "r");

	if (!f || !text || fread(text, 1, (1 << 20) - 1, f) == 0) {
		fprintf(stderr, "cannot read %s\n", path);
		exit(1);
	}
	fclose(f);
	return text;
}

static void *bind(void *library, const char *prefix, const char *name)
{
	char symbol[64];
	void *p;

	snprintf(symbol, sizeof(symbol), "%s%s", prefix, name);
	p = dlsym(library, symbol);
	if (!p) {
		printf("no %s\n", symbol);
		exit(MISSING);
	}
	return p;
}

static int run(const struct compiler *c, const char *source, const char *header, const char *option)
{
	const char *const names[] = { "spmt_device.h" }, *const headers[] = { header };
	const char *const options[] = { option };
	char *log = calloc(1, 1 << 20);
	void *program = NULL;
	size_t size = 0;
	int rc = c->create(&program, source, "kernels", 1, headers, names);

	if (rc)
		printf("create: %d\n", rc);
	if (rc || !log)
		return 1;
	rc = c->compile(program, 1, options);
	if (!c->log_size(program, &size) && size < 1 << 20)
		c->log(program, log);
	if (rc || strstr(log, "warning"))
		printf("compile: %d\n%s\n", rc, log);
	return rc || strstr(log, "warning");
}

int main(int argc, char **argv)
{
	int nv = argc == 4 && !strcmp(argv[1], "nvrtc");
	const char *const *name = nv ? nvrtc_libraries : hiprtc_libraries;
	const char *prefix = nv ? "nvrtc" : "hiprtc";
	struct compiler c;
	void *library = NULL;

	if (argc != 4)
		return 1;
	for (; *name && !library; name++)
		library = dlopen(*name, RTLD_NOW);
	if (!library) {
		printf("no %s\n", argv[1]);
		return MISSING;
	}
	*(void **)&c.create = bind(library, prefix, "CreateProgram");
	*(void **)&c.compile = bind(library, prefix, "CompileProgram");
	*(void **)&c.log_size = bind(library, prefix, "GetProgramLogSize");
	*(void **)&c.log = bind(library, prefix, "GetProgramLog");
	return run(&c, file(argv[2]), file(argv[3]), nv ? "-arch=sm_90" : "--offload-arch=gfx90a");
}
