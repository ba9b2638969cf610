/* SPDX-License-Identifier: MIT */
/*
 * Who waits where, for whom and since when, in a process that runs. Each world has a control block (spmt/control/control.h), at the begin of
 * a page: in memory that is shared under a name, or in memory that is wiped on fork. /proc gives both; the process is not stopped,
 * and notices nothing. What it holds may be anything by now, so that all of it is copied first, and checked before it is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "info.h"
#include "spmt/bootstrap/uid.h"
#include "spmt/control/control.h"
#include "src/base/names.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define PAGE 4096u
#define PAGES_MOST (1u << 20) /* looked at in one process */
#define SHARED "/memfd:spmt-control"

struct watched {
	int pid, mem;
	unsigned pages;
	int worlds, foreign; /* found; found of another version */
};

/* Two copies of a control block's ranks: what is equal in both was true between them. */
struct block {
	_Alignas(CACHE_LINE) unsigned char bytes[sizeof(struct control)];
	uint64_t at, size; /* in the process */
	struct control_row *rows[2];
};

static const struct control *head(const struct block *b)
{
	return (const struct control *)(const void *)b->bytes;
}

/* ---- reading ------------------------------------------------------------------------------- */

static bool copy(const struct watched *w, uint64_t at, void *to, size_t size)
{
	char *bytes = to;

	for (size_t done = 0; done < size;) {
		ssize_t got = pread(w->mem, bytes + done, size - done, (off_t)(at + done));

		if (got <= 0)
			return false;
		done += (size_t)got;
	}
	return true;
}

static void block_free(struct block *b)
{
	free(b->rows[0]);
	free(b->rows[1]);
	b->rows[0] = b->rows[1] = NULL;
}

/* The head is copied already. False: there is no room for so many ranks, or they cannot be read. */
static bool block_read(const struct watched *w, uint64_t room, struct block *b)
{
	size_t n = head(b)->nranks, size = n * sizeof(struct control_row);

	if (n < 1 || n > RANKS_MOST || control_size((int)n) > room)
		return false;
	b->size = MIN_OF(room, control_world_size((int)n));
	for (int i = 0; i < 2; i++) {
		b->rows[i] = aligned_alloc(CACHE_LINE, size);
		if (!b->rows[i] || !copy(w, b->at + sizeof(b->bytes), b->rows[i], size))
			return false;
	}
	return true;
}

/* ---- words ---------------------------------------------------------------------------------- */

/* The times may be anything. */
static double seconds(int64_t from, int64_t to)
{
	return to > from ? ((double)to - (double)from) / 1e9 : 0;
}

static void text_print(const char *text, size_t size)
{
	for (size_t i = 0; i < size && text[i]; i++)
		putchar(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
}

static int world_rank(const struct block *b, const struct block *world, uint32_t i)
{
	int rank = b == world ? (int)i : atomic_load(&b->rows[1][i].world_rank);

	return rank >= 0 && (uint32_t)rank < head(world)->nranks ? rank : -1;
}

/* Ranks that have not come to a meeting, by their numbers in the world. */
static void missing_print(const struct block *b, const struct block *world, uint64_t epoch)
{
	int n = 0;

	for (uint32_t i = 0; i < head(b)->nranks; i++)
		if (atomic_load(&b->rows[1][i].arrived) < epoch)
			printf("%s%d", n++ ? ", " : " for rank ", world_rank(b, world, i));
	if (!n)
		printf(" for nobody any more");
}

/* In a part of the world, whose control block lies in the world's room. */
static void part_print(
	const struct watched *w, const struct block *world, const struct wait_seen *s)
{
	struct block b = { .at = world->at + s->part };

	if (s->part % CACHE_LINE || s->part > world->size ||
		world->size - s->part < sizeof(b.bytes) ||
		!copy(w, b.at, b.bytes, sizeof(b.bytes)) ||
		head(&b)->nranks > head(world)->nranks ||
		!block_read(w, world->size - s->part, &b)) {
		printf(" of a part that has ended");
	} else {
		printf(" of a part of %u ranks", head(&b)->nranks);
		if (s->epoch)
			missing_print(&b, world, s->epoch);
	}
	block_free(&b);
}

static void gather_print(const struct block *b)
{
	int n = 0;

	for (uint32_t i = 0; i < head(b)->nranks; i++)
		if (!atomic_load(&b->rows[1][i].pid))
			printf("%s%u", n++ ? ", " : " for what has not come here, rank ", i);
}

static void wait_print(const struct watched *w, const struct block *b, const struct wait_seen *s)
{
	int64_t now = process_now();

	if (s->until) {
		printf("gave up in %s %.1f s ago, after %.1f s\n", s->name, seconds(s->until, now),
			seconds(s->since, s->until));
		return;
	}
	printf("waits in %s since %.1f s", s->name, seconds(s->since, now));
	if (s->kind & WAIT_WORD)
		printf(" for the word at offset %#" PRIx64 " %s %s, which is %s", s->offset,
			cmp_name(s->kind >> 16), word_text(s->kind >> 8 & 255, s->value).text,
			word_text(s->kind >> 8 & 255, s->seen).text);
	if (s->part)
		part_print(w, b, s);
	else if (s->epoch)
		missing_print(b, b, s->epoch);
	else if (s->kind & WAIT_GATHER)
		gather_print(b);
	printf("\n");
}

/* What both copies have is no mixture. */
static bool wait_whole(const struct block *b, uint32_t rank, int i, struct wait_seen *seen)
{
	const struct waiting *first = &b->rows[0][rank].waits[i],
			     *then = &b->rows[1][rank].waits[i];

	return atomic_load(&first->state) == atomic_load(&then->state) && waiting_read(then, seen);
}

static void rank_print(const struct watched *w, const struct block *b, uint32_t rank)
{
	int pid = atomic_load(&b->rows[1][rank].pid), shown = 0;
	struct wait_seen seen;

	if (!pid) {
		printf("%5u %8s  has not come\n", rank, "-");
		return;
	}
	for (int i = 0; i < WAITS_MOST; i++) {
		if (!wait_whole(b, rank, i, &seen))
			continue;
		shown++;
		printf("%5u %8d  ", rank, pid);
		wait_print(w, b, &seen);
	}
	if (!shown)
		printf("%5u %8d  in no wait\n", rank, pid);
}

static void world_print(struct watched *w, const struct block *b)
{
	const struct cause *cause = control_cause(head(b));

	printf("%sworld %016" PRIx64 " of %u ranks\n", w->worlds++ ? "\n" : "", head(b)->mark.name,
		head(b)->nranks);
	if (atomic_load(&head(b)->stop)) {
		printf("broken (%s): ", status_text(cause->code));
		text_print(cause->sentence, sizeof(cause->sentence));
		printf("\n");
	}
	printf(" rank  process\n");
	for (uint32_t rank = 0; rank < head(b)->nranks; rank++)
		rank_print(w, b, rank);
}

/* ---- finding ------------------------------------------------------------------------------- */

/* Returns how many bytes the block at this page takes, 0: there is none. */
static uint64_t page_take(struct watched *w, uint64_t at, uint64_t end)
{
	struct block b = { .at = at };
	const struct control_mark *mark = &head(&b)->mark;
	uint64_t size = 0;

	if (++w->pages > PAGES_MOST || end - at < sizeof(b.bytes) ||
		!copy(w, at, b.bytes, sizeof(b.bytes)) ||
		atomic_load(&mark->magic) != CONTROL_MAGIC)
		return 0;
	if (mark->version != CONTROL_VERSION || mark->row != sizeof(struct control_row)) {
		w->foreign++;
	} else if (block_read(w, end - at, &b)) {
		size = control_world_size((int)head(&b)->nranks);
		if (!atomic_load(&mark->moved))
			world_print(w, &b);
	}
	block_free(&b);
	return size;
}

static void range_take(struct watched *w, uint64_t begin, uint64_t end)
{
	uint64_t size;

	for (uint64_t at = begin; at < end && w->pages < PAGES_MOST; at += size) {
		size = (page_take(w, at, end) + PAGE - 1) / PAGE * PAGE;
		size = size ? size : PAGE;
	}
}

/* A line of smaps is a mapping's head, or says something of the mapping above. */
static void maps_read(struct watched *w, FILE *maps)
{
	uint64_t begin = 0, end = 0, from, to;
	char *line = NULL;
	size_t room = 0;
	int at;

	while (getline(&line, &room, maps) > 0) {
		at = 0;
		/* Too long a number is none of the kernel's. NOLINTNEXTLINE(cert-err34-c) */
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %*s %n", &from, &to, &at) ==
				2 &&
			at) {
			begin = from;
			end = to;
			if (!strncmp(line + at, SHARED, strlen(SHARED)))
				range_take(w, begin, end);
		} else if (!strncmp(line, "VmFlags:", 8) && strstr(line, " wf")) {
			range_take(w, begin, end);
		}
	}
	free(line);
}

static int refused(int pid, const char *file, int err)
{
	if (err == ENOENT || err == ESRCH)
		return fail(-ESRCH, "there is no process %d, or it is not to be looked at (%s)",
			pid, file);
	if (err == EACCES || err == EPERM)
		return fail(-err,
			"process %d cannot be looked at: it is another user's, or none may look at others (%s, kernel.yama.ptrace_scope)",
			pid, file);
	return fail_errno(err, "process %d: %s", pid, file);
}

int waits_print(int pid)
{
	struct watched w = { .pid = pid };
	char path[64];
	FILE *maps;
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	w.mem = open(path, O_RDONLY | O_CLOEXEC);
	if (w.mem < 0)
		return refused(pid, path, errno);
	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	maps = fopen(path, "re");
	if (maps) {
		maps_read(&w, maps);
		fclose(maps);
	} else {
		rc = refused(pid, path, errno);
	}
	close(w.mem);
	if (rc || w.worlds)
		return rc;
	if (w.foreign)
		return fail(-EPROTO,
			"process %d has a world of another version of libspmt than this one, %s",
			pid, spmt_version());
	return fail(-ENODATA, "process %d has no world of libspmt", pid);
}
