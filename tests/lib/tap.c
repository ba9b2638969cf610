/* SPDX-License-Identifier: MIT */
#include "tap.h"

#include <stdarg.h>
#include <stdio.h>

#include "ranks.h"

int tap_report(int number, int code, const char *fmt, ...)
{
	va_list ap;

	printf("%s %d - ", code ? "not ok" : "ok", number);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	if (code && *ranks_message())
		printf("# %s\n", ranks_message());
	fflush(stdout);
	return code != 0;
}

int tap_run(const struct test_case *cases, size_t n)
{
	int failed = 0;

	printf("1..%zu\n", n);
	fflush(stdout);
	for (size_t i = 0; i < n; i++)
		failed |= tap_report((int)i + 1, cases[i].fn(), "%s", cases[i].name);
	return failed;
}
