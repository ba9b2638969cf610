/* SPDX-License-Identifier: MIT */
/* A world's uid in a file, for programs that a script starts. 0, or not. */
#ifndef TESTS_UID_FILE_H
#define TESTS_UID_FILE_H

#include <stdio.h>
#include <unistd.h>

#include "spmt.h"

enum { UID_FILE_MS = 20000 };

/* Under another name first, so that nobody reads half of it. */
static inline int uid_to_file(const char *path, spmt_uid *uid)
{
	char part[512];
	FILE *f;
	int bad = spmt_uid_create(uid);

	snprintf(part, sizeof(part), "%.500s.part", path);
	f = bad ? NULL : fopen(part, "we");
	if (!f)
		return fprintf(stderr, "uid: %s\n", spmt_last_error());
	bad = fwrite(uid, sizeof(*uid), 1, f) != 1;
	return fclose(f) || bad || rename(part, path);
}

/* Waits until it is there. */
static inline int uid_from_file(const char *path, spmt_uid *uid)
{
	FILE *f = NULL;
	int bad;

	for (int i = 0; i < UID_FILE_MS && !(f = fopen(path, "re")); i++)
		usleep(1000);
	if (!f)
		return 1;
	bad = fread(uid, sizeof(*uid), 1, f) != 1;
	fclose(f);
	return bad;
}

#endif
