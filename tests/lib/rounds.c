/* SPDX-License-Identifier: MIT */
#include "rounds.h"

#include <stdlib.h>
#include <string.h>

#include "device/backend_here.h"

bool test_long(void)
{
	const char *text = getenv("SPMT_TEST_LONG");

	return text && *text && strcmp(text, "0") != 0;
}

size_t test_count(size_t usual, size_t longer)
{
	bool slow = !on_host() || getenv("SPMT_TEST_SLOW");
	size_t n = test_long() ? longer : usual;

	if (slow && n > 16)
		n = n / 100 > 16 ? n / 100 : 16;
	return SANITIZED && n > 16 ? n / 8 : n;
}
