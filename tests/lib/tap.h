/* SPDX-License-Identifier: MIT */
/* What plain programs print: TAP, a line a case. */
#ifndef TESTS_TAP_H
#define TESTS_TAP_H

#include <stddef.h>

struct test_case {
	const char *name;
	int (*fn)(void); /* 0, or a code and ranks_message() */
};

/* Runs them in turn; the program's exit status. */
int tap_run(const struct test_case *cases, size_t n);
/* The line of one case, and ranks_message() if there is one and code is not 0. 1: it failed. */
int tap_report(int number, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
