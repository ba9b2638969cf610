/* SPDX-License-Identifier: MIT */
/* Finds the variable that a user meant who misspelled its name. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env.h"

#define ENV_PREFIX "SPMT_"
#define ENV_LONGEST 48 /* longer names are not compared */

/* Insertions, deletions and changes from a to b, both no longer than ENV_LONGEST. */
static size_t letters_apart(const char *a, const char *b)
{
	size_t n = strlen(b), row[ENV_LONGEST + 1];

	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t before = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t change = before + (a[i - 1] != b[j - 1]);

			before = row[j];
			row[j] = MIN_OF(MIN_OF(row[j - 1], row[j]) + 1, change);
		}
	}
	return row[n];
}

/* True if few letters differ, or if one name is a part of the other: DEVICES, HOST_DEVICES. */
static bool near_enough(const char *a, const char *b, size_t d)
{
	bool part = strlen(a) >= 3 && (strstr(a, b) || strstr(b, a));

	return part || d <= MAX_OF(2, strlen(a) / 3);
}

const char *env_near(const char *name)
{
	char word[ENV_LONGEST + 1] = "";
	const char *best = NULL;
	size_t least = SIZE_MAX, prefix = strlen(ENV_PREFIX);
	struct env_row row;

	if (strlen(name) < prefix || strlen(name) - prefix > ENV_LONGEST)
		return NULL;
	for (size_t i = 0; name[prefix + i]; i++) {
		char c = name[prefix + i];

		word[i] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
	}
	for (size_t i = 0; env_row(i, &row); i++) {
		size_t d = letters_apart(word, row.name + prefix);

		if (d >= least || !near_enough(word, row.name + prefix, d))
			continue;
		least = d;
		best = row.name;
	}
	return best;
}

static bool env_known(const char *name, size_t n)
{
	struct env_row row;

	for (size_t i = 0; env_row(i, &row); i++)
		if (strlen(row.name) == n && !memcmp(row.name, name, n))
			return true;
	return false;
}

/* What the Python package, the tests and the tools read, and what module systems and CMake say a prefix by: a name, or with a '*' how names begin. */
static const char *const env_elsewhere[] = { "SPMT_BUILD", "SPMT_DIR", "SPMT_FAKE_*",
	"SPMT_GPU_SHORT", "SPMT_HOME", "SPMT_LIBRARY", "SPMT_MSCCLPP_PLANS", "SPMT_NEW_ROUTES",
	"SPMT_PERF", "SPMT_ROOT", "SPMT_SOURCE", "SPMT_TEST_*", "SPMT_VM_CACHE",
	"SPMT_XLA_LIBRARY" };

static bool env_of_others(const char *name, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(env_elsewhere); i++) {
		const char *other = env_elsewhere[i];
		size_t length = strcspn(other, "*");

		if (!strncmp(name, other, length) && (other[length] || n == length))
			return true;
	}
	return false;
}

/* The part before the '=', made safe for a terminal. */
static void printable_copy(char *to, size_t size, const char *from, size_t n)
{
	n = MIN_OF(n, size - 1);
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] > ' ' && from[i] < 127 ? from[i] : '?';
	to[n] = '\0';
}

void env_unknown(void (*tell)(void *ctx, const char *name, const char *near), void *ctx)
{
	char name[96];

	for (char **at = environ; at && *at && !env_withheld(); at++) {
		size_t n = strcspn(*at, "=");

		if (strncmp(*at, ENV_PREFIX, strlen(ENV_PREFIX)) || !(*at)[n] || !(*at)[n + 1] ||
			env_known(*at, n) || env_of_others(*at, n))
			continue;
		printable_copy(name, sizeof(name), *at, n);
		tell(ctx, name, env_near(name));
	}
}
