/* SPDX-License-Identifier: MIT */
/* suid.sh gives this program root's rights: a world of one rank, or of a launcher's job. Says what came of it. */
#include <spmt.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm = NULL;
	int rc, devices = 0;

	(void)argv;
	attr.nranks = argc > 1 ? 0 : 1;
	attr.heap_size = 1 << 20;
	rc = spmt_init(&attr, &comm);
	if (!rc)
		rc = spmt_device_count("host", &devices);
	printf("uid %d euid %d: %d devices: %s\n", (int)getuid(), (int)geteuid(), devices,
		rc ? spmt_last_error() : "a world");
	return comm ? spmt_finalize(comm) : 0;
}
