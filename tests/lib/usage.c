/* SPDX-License-Identifier: MIT */
#include "usage.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "clocks.h"
#include "device/backend_here.h"
#include "rounds.h"

uint64_t memory_free(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long kib = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return (uint64_t)kib << 10;
}

static long count_entries(const char *path)
{
	DIR *d = opendir(path);
	long n = 0;

	if (!d)
		return -1;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static long count_lines(const char *path)
{
	FILE *f = fopen(path, "re");
	long n = 0;
	int c;

	if (!f)
		return -1;
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static long rss_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long total = 0, resident = 0;

	if (f && fscanf(f, "%ld %ld", &total, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

struct usage usage_now(void)
{
	struct usage u;

	calm_ns(); /* its thread is there from now on */
	u.fds = count_entries("/proc/self/fd");
	u.threads = count_entries("/proc/self/task");
	u.maps = count_lines("/proc/self/maps");
	u.rss_kib = rss_kib();
	return u;
}

const char *usage_grown(const struct usage *before, const struct usage *slack)
{
	static _Thread_local char message[256];
	struct usage now = usage_now();

	/* A joined thread may stand in /proc/self/task for a moment longer. */
	for (int i = 0; i < 100 && now.threads > before->threads + slack->threads; i++) {
		sleep_ms(10);
		now = usage_now();
	}
	/* A driver, or a stand-in, keeps some as it likes. */
	if (now.fds <= before->fds + slack->fds + (on_host() ? 0 : 8) &&
		now.threads <= before->threads + slack->threads &&
		(SANITIZED || !on_host() ||
			(now.maps <= before->maps + slack->maps &&
				now.rss_kib <= before->rss_kib + slack->rss_kib)))
		return NULL;
	snprintf(message, sizeof(message),
		"fds %ld -> %ld, threads %ld -> %ld, mappings %ld -> %ld, RSS %ld -> %ld KiB",
		before->fds, now.fds, before->threads, now.threads, before->maps, now.maps,
		before->rss_kib, now.rss_kib);
	return message;
}
