/* SPDX-License-Identifier: MIT */
/* For suites that make a backend load one of the stand-ins of tests/fakes. */
#ifndef TESTS_STANDIN_H
#define TESTS_STANDIN_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakes/control.h"
#include "src/base/status.h"
#include "src/device/device.h"

/* The stand-in's own controls, as fakes/fake.h declares them. */
struct standin {
	void *library;
	void (*live)(struct fake_counts *out);
	void (*fail)(const char *name, int nth, int result);
	int (*calls)(void);
	void (*set_capturing)(bool capturing);
};

static inline void standin_symbol(const struct standin *s, const char *name, void *out)
{
	void *address = dlsym(s->library, name);

	cr_assert_not_null(address, "%s", name);
	memcpy(out, &address, sizeof(address));
}

/* Points `variable` at the stand-in and loads the backend from there. */
static inline void standin_load(
	struct standin *s, const struct backend *b, const char *variable, const char *path)
{
	setenv(variable, path, 1);
	cr_assert_eq(b->load(), 0, "%s", status_sentence());
	s->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	cr_assert_not_null(s->library, "the backend has not loaded %s", path);
	standin_symbol(s, "fake_live", &s->live);
	standin_symbol(s, "fake_fail", &s->fail);
	standin_symbol(s, "fake_calls", &s->calls);
	standin_symbol(s, "fake_set_capturing", &s->set_capturing);
}

static inline bool standin_idle(const struct standin *s)
{
	static const struct fake_counts none;
	struct fake_counts now;

	s->live(&now);
	return !memcmp(&now, &none, sizeof(now));
}

#endif
