/* SPDX-License-Identifier: MIT */
#include "machines.h"

#include <stdio.h>
#include <stdlib.h>

#include "clocks.h"

enum { LOOK_MS = 5, WAIT_MS = 60000, PATH = 512 };

int machine_here(void)
{
	const char *text = getenv("SPMT_TEST_MACHINE");

	return text && *text && getenv("SPMT_TEST_FOLDER") ? atoi(text) : -1;
}

bool is_of_this_machine(int i)
{
	return machine_here() < 0 || i % 2 == machine_here();
}

static void name(char path[PATH], const char *what, int n)
{
	snprintf(path, PATH, "%.480s/%s.%d", getenv("SPMT_TEST_FOLDER"), what, n);
}

/* Tests are processes of their own: the number of this machine's calls lies in a file. */
static int turn_next(void)
{
	char path[PATH];
	FILE *f;
	int n = 0;

	name(path, "turn", machine_here());
	f = fopen(path, "re");
	if (f) {
		n = fscanf(f, "%d", &n) == 1 ? n : -1;
		fclose(f);
	}
	f = n < 0 ? NULL : fopen(path, "we");
	if (!f)
		return -1;
	fprintf(f, "%d\n", n + 1);
	return fclose(f) ? -1 : n;
}

/* Under another name first, so that nobody reads half of them. */
static int uids_write(const char *path, const spmt_uid *uids, int n)
{
	char part[PATH + 8];
	FILE *f;
	bool whole;

	snprintf(part, sizeof(part), "%s.part", path);
	f = fopen(part, "we");
	if (!f)
		return -1;
	whole = fwrite(uids, sizeof(*uids), (size_t)n, f) == (size_t)n;
	return fclose(f) || !whole ? -1 : rename(part, path);
}

static int uids_take(const char *path, spmt_uid *uids, int n)
{
	FILE *f = fopen(path, "re");
	bool whole;

	for (int ms = 0; !f && ms < WAIT_MS; ms += LOOK_MS) {
		sleep_ms(LOOK_MS);
		f = fopen(path, "re");
	}
	if (!f)
		return -1;
	whole = fread(uids, sizeof(*uids), (size_t)n, f) == (size_t)n;
	return fclose(f) || !whole ? -1 : 0;
}

int machines_uids(spmt_uid *uids, int n)
{
	char path[PATH];
	int turn = turn_next();

	if (turn < 0)
		return -1;
	name(path, "uids", turn);
	if (machine_here())
		return uids_take(path, uids, n);
	for (int i = 0; i < n; i++)
		if (spmt_uid_create(&uids[i]))
			return -1;
	return uids_write(path, uids, n);
}
