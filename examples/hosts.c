/* SPDX-License-Identifier: MIT */
/*
 * A rank a process on any hosts, without a launcher: hosts RANK NRANKS FILE. Rank 0 makes the uid and writes it to FILE, which all
 * see; it holds a secret. On several hosts SPMT_SOCKET_IFNAME says by which interface rank 0 is found. Once all have joined, or the time for
 * that is over, rank 0 removes FILE: a later run that finds it would take its uid for its own.
 */
#define _DEFAULT_SOURCE /* fdopen, usleep: -std=c11 hides them */
#include <fcntl.h>
#include <spmt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Under another name first, so that nobody reads half of it, and for this user alone. */
static int uid_write(const char *file, const spmt_uid *uid)
{
	char part[4096];
	FILE *f;
	int fd, bad;

	if (snprintf(part, sizeof(part), "%s.part", file) >= (int)sizeof(part))
		return 1;
	fd = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		return 1;
	bad = fwrite(uid, sizeof(*uid), 1, f) != 1;
	return fclose(f) || bad || rename(part, file);
}

static int uid_read(const char *file, spmt_uid *uid)
{
	FILE *f = fopen(file, "r");
	int bad;

	for (int tenths = 0; !f && tenths < 600; tenths++) {
		usleep(100000);
		f = fopen(file, "r");
	}
	if (!f)
		return 1;
	bad = fread(uid, sizeof(*uid), 1, f) != 1;
	return fclose(f) || bad;
}

/* Each puts 100 and its rank to its right neighbour. */
static int ring(spmt_comm *comm)
{
	int rank = spmt_rank(comm), n = spmt_nranks(comm), right = (rank + 1) % n;
	uint64_t value = 100 + (uint64_t)rank;
	void *word;
	int rc = spmt_calloc(comm, 1, sizeof(uint64_t), &word);

	if (!rc)
		rc = spmt_put(comm, word, &value, sizeof(value), right);
	if (!rc)
		rc = spmt_barrier(comm);
	if (!rc)
		rc = spmt_copy_out(comm, &value, word, sizeof(value));
	if (!rc)
		printf("rank %d of %d received %d\n", rank, n, (int)value);
	return rc;
}

int main(int argc, char **argv)
{
	struct spmt_attr attr = SPMT_ATTR_INIT;
	spmt_comm *comm = NULL;
	spmt_uid uid;
	int rc;

	if (argc != 4) {
		fprintf(stderr, "usage: hosts RANK NRANKS FILE\n");
		return 2;
	}
	attr.rank = atoi(argv[1]);
	attr.nranks = atoi(argv[2]);
	attr.uid = &uid;
	attr.heap_size = 1 << 20;
	rc = attr.rank ? 0 : spmt_uid_create(&uid);
	if (!rc && (attr.rank ? uid_read(argv[3], &uid) : uid_write(argv[3], &uid))) {
		perror(argv[3]);
		return 1;
	}
	if (!rc)
		rc = spmt_init(&attr, &comm);
	if (!attr.rank)
		unlink(argv[3]);
	if (!rc)
		rc = ring(comm);
	if (!rc)
		rc = spmt_finalize(comm);
	if (rc)
		fprintf(stderr, "hosts: %s\n", spmt_last_error());
	return rc ? 1 : 0;
}
