/* SPDX-License-Identifier: MIT */
/* Plans as files, for SPMT_COLL. */
#ifndef TESTS_PLAN_FILES_H
#define TESTS_PLAN_FILES_H

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "spmt_plan.h"
#include "tools/spmt-plan/made.h"

enum { NAME = 64 };

/* A file that goes with the process, and its children. */
static inline void text_file(const char *text, size_t size, char name[NAME])
{
	int fd = memfd_create("plan", 0);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, size), (ssize_t)size);
	snprintf(name, NAME, "/proc/self/fd/%d", fd);
}

static inline void plan_file(const spmt_plan *plan, char name[NAME])
{
	size_t need = 0;
	char *text;

	cr_assert_eq(spmt_plan_write(plan, SPMT_PLAN_JSON, NULL, 0, &need), -ERANGE);
	text = malloc(need);
	cr_assert_eq(spmt_plan_write(plan, SPMT_PLAN_JSON, text, need, &need), 0);
	text_file(text, need - 1, name);
	free(text);
}

static inline void wish_for(const char *file, const char *more)
{
	char text[2 * NAME];

	snprintf(text, sizeof(text), "plan:%s%s", file, more);
	setenv("SPMT_COLL", text, 1);
}

static inline void made_file(const char *made, int nranks, char name[NAME])
{
	spmt_plan *plan = NULL;

	cr_assert_eq(made_plan(made, nranks, &plan), 0, "%s", spmt_last_error());
	plan_file(plan, name);
	spmt_plan_destroy(plan);
}

#endif
