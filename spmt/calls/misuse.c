/* SPDX-License-Identifier: MIT */
#include "misuse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "register.h"
#include "spmt/comm/comm.h"
#include "spmt/comm/stream.h"
#include "src/base/log.h"
#include "src/base/status.h"

#define ZONE_BYTE 0xa7
#define FREED_BYTE 0xd3
#define FREED_LOOK (64u << 10) /* bytes of a freed block that are checked */
#define LOOK_PIECE 4096u       /* bytes copied back from a device at a time */
#define NAMED_MOST 8	       /* blocks left that are named */

/* Logs the sentence that was just recorded, because a program may never ask for it; returns the
   code. */
static int reported(int code)
{
	log_line(LOG_CHECK, "%s", status_sentence());
	return code;
}

/* ---- blocks in words ----------------------------------------------------------------------- */

struct block_text {
	char text[96];
};

static unsigned long long ull(uint64_t n)
{
	return n;
}

/* "the block of 48 bytes (spmt_malloc no. 7)" */
static struct block_text block_text(const struct heap_block *b)
{
	struct block_text t;

	snprintf(t.text, sizeof(t.text), "the block of %llu bytes (%s no. %llu)", ull(b->size),
		b->maker ? b->maker : "not yet agreed on", ull(b->made));
	return t;
}

static uint64_t block_end(const struct heap_block *b)
{
	return b->offset + b->size;
}

/* ---- ranges -------------------------------------------------------------------------------- */

/* The address lies in no block: names the nearest. */
static int refuse_gap(const spmt_comm *comm, const char *what, const char *name, const void *ptr,
	uint64_t n, const struct heap_block *below)
{
	uint64_t offset = heap_offset(comm->heap, ptr);
	struct heap_block above;

	if (heap_block_from(comm->heap, offset + 1, &above) && above.offset - offset < CHECK_ZONE)
		return fail_call(-EINVAL, what,
			"rank %d: %s %p with %llu bytes begins %llu bytes before %s", comm->rank,
			name, ptr, ull(n), ull(above.offset - offset), block_text(&above).text);
	if (below && offset < below->offset + below->span)
		return fail_call(-EINVAL, what,
			"rank %d: %s %p with %llu bytes begins %llu bytes past the end of %s",
			comm->rank, name, ptr, ull(n), ull(offset - block_end(below)),
			block_text(below).text);
	return fail_call(-EINVAL, what,
		"rank %d: %s %p with %llu bytes (offset %llu) lies in no block", comm->rank, name,
		ptr, ull(n), ull(offset));
}

int misuse_range(
	const spmt_comm *comm, const char *what, const char *name, const void *ptr, uint64_t n)
{
	uint64_t offset = heap_offset(comm->heap, ptr);
	struct heap_block b;

	if (!heap_block_below(comm->heap, offset, &b))
		return reported(refuse_gap(comm, what, name, ptr, n, NULL));
	/* An empty range one past the end still belongs to the block. */
	if (offset > block_end(&b) || (n && offset == block_end(&b)))
		return reported(refuse_gap(comm, what, name, ptr, n, &b));
	if (b.freed)
		return reported(fail_call(-EINVAL, what,
			"rank %d: %s %p with %llu bytes lies in %s, which was freed (spmt_free no. %llu)",
			comm->rank, name, ptr, ull(n), block_text(&b).text, ull(b.freed)));
	if (n > block_end(&b) - offset)
		return reported(fail_call(-EINVAL, what,
			"rank %d: %s %p with %llu bytes goes %llu bytes past the end of %s",
			comm->rank, name, ptr, ull(n), ull(n - (block_end(&b) - offset)),
			block_text(&b).text));
	return 0;
}

int misuse_free(const spmt_comm *comm, const void *ptr)
{
	uint64_t offset = heap_offset(comm->heap, ptr);
	const spmt_mem *buffer;
	struct heap_block b;

	if (!heap_block_below(comm->heap, offset, &b) || offset >= b.offset + b.span)
		return reported(fail_call(-EINVAL, "spmt_free",
			"rank %d: ptr %p (offset %llu) lies in no block", comm->rank, ptr,
			ull(offset)));
	if (b.freed)
		return reported(fail_call(-EINVAL, "spmt_free",
			"rank %d: ptr %p lies in %s, which was freed before (spmt_free no. %llu)",
			comm->rank, ptr, block_text(&b).text, ull(b.freed)));
	if (offset != b.offset)
		return reported(fail_call(-EINVAL, "spmt_free",
			"rank %d: ptr %p is no block's begin, but %llu bytes into %s", comm->rank,
			ptr, ull(offset - b.offset), block_text(&b).text));
	buffer = mems_within(comm, ptr, b.size);
	if (buffer)
		return reported(fail_call(-EINVAL, "spmt_free",
			"rank %d: ptr %p: in %s lies a buffer that is still registered (%s no. %llu)",
			comm->rank, ptr, block_text(&b).text, mem_made_by(buffer),
			ull(buffer->name + 1)));
	return 0;
}

/* ---- red zones and what was freed ---------------------------------------------------------- */

/*
 * Volatile accesses, one by one: in a program under AddressSanitizer the C library's functions
 * check their arguments, and these bytes are poisoned.
 */
__attribute__((no_sanitize("address"))) static void stamp_now(
	volatile unsigned char *at, int byte, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		at[i] = (unsigned char)byte;
}

struct scar {
	uint64_t first, bytes; /* none: bytes is 0 */
};

__attribute__((no_sanitize("address"))) static void scar_look(
	const volatile unsigned char *at, int byte, uint64_t from, uint64_t n, struct scar *scar)
{
	for (uint64_t i = 0; i < n; i++) {
		if (at[i] == byte)
			continue;
		if (!scar->bytes++)
			scar->first = from + i;
	}
}

static int stamp(spmt_comm *comm, const char *what, uint64_t offset, int byte, uint64_t n)
{
	char *at = comm->heap->base + offset;
	int rc;

	if (!n)
		return 0;
	if (comm_cpu_access(comm)) {
		stamp_now((unsigned char *)at, byte, n);
		return 0;
	}
	rc = comm->backend->fill(comm->dev, at, byte, n, comm->stream);
	return comm_failed(comm, what, rc ? rc : stream_drain(comm, what));
}

/* Which bytes of [offset, offset + n) are not as stamped. */
static int scars(
	spmt_comm *comm, const char *what, uint64_t offset, int byte, uint64_t n, struct scar *scar)
{
	const char *at = comm->heap->base + offset;
	int rc = 0;

	*scar = (struct scar){ 0 };
	if (comm_cpu_access(comm)) {
		scar_look((const unsigned char *)at, byte, 0, n, scar);
		return 0;
	}
	rc = scratch_room(comm, LOOK_PIECE);
	for (uint64_t done = 0, part; done < n && !rc; done += part) {
		part = MIN_OF(n - done, LOOK_PIECE);
		rc = comm->backend->copy(
			comm->dev, scratch_dev(comm), at + done, part, comm->stream);
		if (!rc)
			rc = stream_drain(comm, what);
		if (!rc)
			scar_look(scratch_host(comm), byte, done, part, scar);
	}
	return comm_failed(comm, what, rc);
}

int misuse_fence(spmt_comm *comm, const char *what, uint64_t offset)
{
	struct heap_block b;

	if (!heap_block_below(comm->heap, offset, &b))
		return 0;
	return stamp(comm, what, block_end(&b), ZONE_BYTE, b.span - b.size);
}

/* Names the damage: behind a live block, or in one that was freed. */
static int look(spmt_comm *comm, const char *what, const struct heap_block *b)
{
	struct scar scar;
	uint64_t n = b->freed ? MIN_OF(b->size, FREED_LOOK) : b->span - b->size;
	int rc = scars(comm, what, b->freed ? b->offset : block_end(b),
		b->freed ? FREED_BYTE : ZONE_BYTE, n, &scar);

	if (rc || !scar.bytes)
		return rc;
	if (b->freed)
		return reported(fail_call(-EFAULT, what,
			"rank %d: %s was written to after it had been freed (spmt_free no. %llu): %llu bytes, the first at %llu",
			comm->rank, block_text(b).text, ull(b->freed), ull(scar.bytes),
			ull(scar.first)));
	return reported(fail_call(-EFAULT, what,
		"rank %d: what lies behind %s was overwritten: %llu bytes, the first %llu past its end",
		comm->rank, block_text(b).text, ull(scar.bytes), ull(scar.first)));
}

int misuse_freed(spmt_comm *comm, uint64_t offset)
{
	static const char what[] = "spmt_free";
	struct heap_block b, oldest;
	struct first_failure first;

	if (!heap_block_below(comm->heap, offset, &b))
		return 0;
	first.rc = 0;
	failure_note(&first, look(comm, what, &b));
	while (heap_kept_over(comm->heap, b.span, &oldest)) {
		failure_note(&first, look(comm, what, &oldest));
		heap_free(comm->heap, oldest.offset);
	}
	failure_note(&first, stamp(comm, what, offset, FREED_BYTE, MIN_OF(b.size, FREED_LOOK)));
	heap_keep(comm->heap, offset, ++comm->freed);
	return failure_tell(&first);
}

/* ---- at the end ---------------------------------------------------------------------------- */

struct leaks {
	char text[320];
	size_t used;
	uint64_t blocks, bytes;
};

static void leak_add(struct leaks *l, const struct heap_block *b)
{
	int n = 0;

	l->bytes += b->size;
	if (l->blocks++ < NAMED_MOST)
		n = snprintf(l->text + l->used, sizeof(l->text) - l->used,
			"%s%llu bytes (%s no. %llu)", l->used ? ", " : "", ull(b->size), b->maker,
			ull(b->made));
	l->used = MIN_OF(l->used + (size_t)MAX_OF(n, 0), sizeof(l->text) - 1);
}

/* All ranks have the same blocks, so one rank reports. */
static void leaks_report(const spmt_comm *comm, const struct leaks *l)
{
	char more[48] = "";

	if (comm->rank || !l->blocks)
		return;
	if (l->blocks > NAMED_MOST)
		snprintf(more, sizeof(more), " and %llu more", ull(l->blocks - NAMED_MOST));
	log_line(LOG_CHECK,
		"spmt_finalize: blocks that were never freed, on each of %d ranks: %llu, of %llu bytes in all: %s%s",
		comm->nranks, ull(l->blocks), ull(l->bytes), l->text, more);
}

static int left_on(spmt_comm *comm)
{
	static const char what[] = "spmt_finalize";
	struct leaks leaks = { .used = 0 };
	struct first_failure first;
	struct heap_block b;

	first.rc = 0;
	for (uint64_t at = 0; heap_block_from(comm->heap, at, &b); at = b.offset + 1) {
		if (b.owner != comm->id || (b.freed && !heap_leave(comm->heap, b.offset)))
			continue;
		failure_note(&first, look(comm, what, &b));
		if (b.freed)
			heap_free(comm->heap, b.offset);
		else
			leak_add(&leaks, &b);
	}
	leaks_report(comm, &leaks);
	mems_left(comm);
	return failure_tell(&first);
}

int misuse_left(spmt_comm *root)
{
	struct first_failure first;

	first.rc = 0;
	failure_note(&first, left_on(root));
	for (spmt_comm *c = comm_tree_first(root); c != root; c = comm_tree_next(c))
		if (!c->lane &&
			!atomic_load(&c->control->stop)) /* in a broken comm nobody can free */
			failure_note(&first, left_on(c));
	return failure_tell(&first);
}
