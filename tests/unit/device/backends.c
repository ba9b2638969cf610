/* SPDX-License-Identifier: MIT */
/* Every backend's table, and the cases of tests/conform on each backend that loads here: virtual
   devices, the stand-ins, GPUs. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conform/conform.h"
#include "src/base/status.h"
#include "standin_images.h"

/* Names of files in tests/fakes of the build; NULL: what the machine has. */
struct machine {
	const char *name, *hip, *cuda;
};
static const struct machine machines[] = {
	{ "host", NULL, NULL },
	{ "cuda", NULL, "fake-cuda.so" },
	{ "hip", "fake-hip5.so", NULL },
	{ "hip", "fake-hip6.so", NULL },
	{ "hip", "fake-hip7.so", NULL },
	{ "hip", "hip-on-cuda.so", "fake-cuda.so" },
	{ "cuda", NULL, NULL },
	{ "hip", NULL, NULL },
};

static const struct backend *by_name(const char *name)
{
	const struct backend *all[] = { &backend_hip, &backend_cuda, &backend_host };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		if (!strcmp(all[i]->name, name))
			return all[i];
	}
	return NULL;
}

Test(backends, tables)
{
	const struct backend *b;
	size_t i;

	for (i = 0; (b = device_backend(i)); i++) {
		const char *wrong = conform_table(b);

		cr_expect_null(wrong, "%s: %s", b->name, wrong);
		cr_expect_eq(by_name(b->name), b);
	}
	cr_assert_eq(i, 3);
}

/* The check itself sees what is missing. */
Test(backends, holes_are_seen)
{
	struct backend b = backend_cuda;
	struct device_vmm_ops vmm = *backend_cuda.vmm;

	b.vmm = NULL;
	cr_expect_null(conform_table(&b));
	b.vmm = &vmm;
	cr_expect_null(conform_table(&b));
	vmm.decommit = NULL;
	cr_expect_not_null(conform_table(&b));
	b = backend_cuda;
	b.capturing = NULL;
	cr_expect_not_null(conform_table(&b));
	b = backend_cuda;
	b.load = NULL;
	cr_expect_not_null(conform_table(&b));
}

struct job {
	int machine, test;
};

ParameterizedTestParameters(backends, conform)
{
	static struct job jobs[ARRAY_SIZE(machines) * 64];
	size_t m, t, n = 0;

	for (m = 0; m < ARRAY_SIZE(machines); m++) {
		for (t = 0; conform_case(t); t++)
			jobs[n++] = (struct job){ (int)m, (int)t };
	}
	return cr_make_param_array(struct job, jobs, n);
}

static void use(const char *variable, const char *file)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", FAKES, file ? file : "");
	if (file)
		setenv(variable, path, 1);
}

ParameterizedTest(struct job *job, backends, conform, .timeout = 120)
{
	const struct machine *m = &machines[job->machine];
	const struct conform_case *test = conform_case((size_t)job->test);
	struct conform c = { .b = by_name(m->name), .child = CHILD };
	bool real = !m->hip && !m->cuda && strcmp(m->name, "host") != 0;
	int rc;

	use("SPMT_HIP_LIB", m->hip);
	use("SPMT_CUDA_LIB", m->cuda);
	if (c.b->load()) {
		cr_assert(real, "%s: %s", m->name, status_sentence());
		cr_skip_test("no GPU");
	}
	cr_assert_eq(c.b->count(&c.n), 0);
	rc = test->run(&c);
	if (rc == CONFORM_SKIP)
		cr_skip_test("%s", c.why);
	cr_assert_eq(rc, CONFORM_PASS, "%s %s: %s", m->name, test->name, c.why);
}
