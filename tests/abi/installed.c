/* SPDX-License-Identifier: MIT */
/* A user's program, in C and in C++, built against what was installed. */
#include <spmt.h>
#include <stdio.h>
#include <string.h>

static int hello(spmt_comm *comm, void *arg)
{
	(void)arg;
	return spmt_nranks(comm) == 2 ? spmt_barrier(comm) : -1;
}

int main(void)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	char version[32];
	int rc;

	snprintf(version, sizeof(version), "%d.%d.%d", SPMT_VERSION_MAJOR, SPMT_VERSION_MINOR,
		SPMT_VERSION_PATCH);
	if (strcmp(version, spmt_version()) || SPMT_VERSION_NUMBER != spmt_version_number()) {
		fprintf(stderr, "header %s, library %s\n", version, spmt_version());
		return 1;
	}
	attr.backend = "host";
	attr.heap_size = 1 << 20;
	rc = spmt_run(2, &attr, hello, NULL);
	if (rc)
		fprintf(stderr, "%s: %s\n", spmt_strerror(rc), spmt_last_error());
	return rc ? 1 : 0;
}
