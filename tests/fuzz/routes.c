/* SPDX-License-Identifier: MIT */
/*
 * Files that SPMT_ROUTES may have written, and damage to them: any bytes are printed or refused with a sentence that names the
 * file. The input is a program that writes such a file, as nobody finds its rows by chance.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/status.h"
#include "tools/spmt-info/info.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	require(freopen("/dev/null", "w", stdout));
	return 0;
}

/* Worlds of few ranks, so that some become whole; one byte says what is odd. */
static void row_write(FILE *out, const uint8_t *b)
{
	static const char *const reasons[] = { "peer access", "", "a: b -> c", "%s%n" };
	int n = b[1] % 4 ? b[1] % 4 : b[1] * 4, ranks = n ? n : 1;

	fprintf(out,
		"world %016x of %d: pid %d process %d device %d rank %d -> process %d device %d rank %d: map %s movers %s threshold %d: %s\n",
		b[0] % 3, n, b[2], b[3] % 2, b[4] % 3, b[5] % (ranks + (b[7] & 1)), b[3] / 2 % 2,
		b[4] / 3 % 3, b[6] % (ranks + (b[7] >> 1 & 1)),
		b[7] & 4 ? "p2p" : "a map with a long name", b[7] & 8 ? "store,sdma" : "store",
		b[7] & 16 ? -1 : 1 << 20, reasons[b[7] >> 5 & 3]);
}

/* 8 bytes a row; a first byte above 0xf0: so many of the next bytes as they are. */
static void file_write(FILE *out, const uint8_t *data, size_t size)
{
	while (size) {
		size_t n = data[0] > 0xf0 ? (size_t)data[0] - 0xf0 : 8;

		if (size < n + 1)
			break;
		if (n == 8 && data[0] <= 0xf0) {
			row_write(out, data);
		} else {
			fwrite(data + 1, 1, n, out);
			n++;
		}
		data += n;
		size -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32];
	int fd = memfd_create("routes", 0);
	FILE *out = NULL;

	require(fd >= 0 && (out = fdopen(dup(fd), "w")));
	file_write(out, data, size);
	fclose(out);
	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	lseek(fd, 0, SEEK_SET);
	fail(-1, "%s", "");
	if (routes_file_print(path))
		require(strstr(status_sentence(), path));
	close(fd);
	return 0;
}
