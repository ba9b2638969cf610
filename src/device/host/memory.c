/* SPDX-License-Identifier: MIT */
/*
 * Memory of the host runtime. Every allocation is a memfd of its own, because that is what
 * another process can map, and sits in a table by address: for any pointer the table tells which
 * device owns the memory and which may reach it. Memory outside the table is plain memory of the
 * process, which every device reaches.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"
#include "src/base/fault.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/base/status.h"

#define LARGEST ((size_t)1 << 46)    /* half of a 47-bit address space: sums below do not wrap */
#define HUGE_ALIGN ((size_t)2 << 20) /* large blocks begin where a huge page may */

/* ---- the table */

size_t host_index_at(const struct host_index *x, const void *ptr)
{
	size_t low = 0, high = x->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if ((uintptr_t)x->rows[mid]->base + x->rows[mid]->size > (uintptr_t)ptr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

struct host_block *host_index_exact(
	const struct host_index *x, const void *base, enum host_kind kind, int dev)
{
	size_t i = host_index_at(x, base);

	if (i == x->n || x->rows[i]->base != base || x->rows[i]->kind != kind ||
		x->rows[i]->dev != dev)
		return NULL;
	return x->rows[i];
}

int host_index_room(struct host_index *x)
{
	size_t room = x->room ? 2 * x->room : 16, i;
	struct host_block **rows;

	if (x->n < x->room)
		return 0;
	rows = mem_calloc(room, sizeof(struct host_block *));
	if (!rows)
		return -ENOMEM;
	for (i = 0; i < x->n; i++)
		rows[i] = x->rows[i];
	mem_free(x->rows);
	x->rows = rows;
	x->room = room;
	return 0;
}

/* Under the lock. */
static void index_changes(struct host_index *x)
{
	uint64_t changes = atomic_load_explicit(&x->changes, memory_order_relaxed);

	atomic_store_explicit(&x->changes, changes + 1, memory_order_release);
}

void host_index_insert(struct host_index *x, struct host_block *b)
{
	size_t at = host_index_at(x, b->base), i;

	index_changes(x);
	for (i = x->n++; i > at; i--)
		x->rows[i] = x->rows[i - 1];
	x->rows[at] = b;
}

void host_index_trim(struct host_index *x)
{
	if (x->n)
		return;
	mem_free(x->rows);
	x->rows = NULL;
	x->room = 0;
}

void host_index_remove(struct host_index *x, struct host_block *b)
{
	size_t i = host_index_at(x, b->base);

	index_changes(x);
	for (x->n--; i < x->n; i++)
		x->rows[i] = x->rows[i + 1];
	host_index_trim(x);
}

/* ---- files, address space, blocks */

/* By its name, not by number: ThreadSanitizer has to see that the next file of this descriptor is another one. */
static void file_close(int fd)
{
	UNCANCELLED;

	close(fd);
}

static int file_create(uint64_t size, int *fd)
{
	int err;

	if (fault_here(FAULT_FD))
		return -fault_errno(FAULT_FD);
	*fd = process_fd(memfd_create("spmt-host", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (*fd < 0)
		return -errno;
	if (!process_file_fits(size)) {
		file_close(*fd);
		return -EFBIG;
	}
	/* sealed, so that no process that maps it can be made to fault by another one that shrinks it */
	if (!ftruncate(*fd, (off_t)size) &&
		!fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return 0;
	err = errno;
	file_close(*fd);
	return -err;
}

int host_file_open(int dev, uint64_t size, struct host_file **file)
{
	struct host_file *f = mem_calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return -ENOMEM;
	rc = file_create(size, &f->fd);
	if (rc) {
		mem_free(f);
		return rc;
	}
	f->dev = dev;
	f->refs = 1;
	f->size = size;
	*file = f;
	return 0;
}

void host_file_drop(struct host_file *file)
{
	if (--file->refs)
		return;
	file_close(file->fd);
	mem_free(file);
}

int host_space(size_t size, size_t align, char **base)
{
	size_t whole = align > HOST_PAGE ? size + align : size;
	char *raw;
	size_t skip;

	if (fault_here(FAULT_MAP))
		return -fault_errno(FAULT_MAP);
	raw = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return -errno;
	skip = (size_t)(align_up((uintptr_t)raw, align) - (uintptr_t)raw);
	if (skip)
		munmap(raw, skip);
	if (whole - skip > size)
		munmap(raw + skip + size, whole - skip - size);
	*base = raw + skip;
	return 0;
}

struct host_block *host_block_new(enum host_kind kind, int dev, size_t words)
{
	struct host_block *b = mem_calloc(1, sizeof(*b) + words * sizeof(b->access[0]));

	if (!b)
		return NULL;
	b->kind = kind;
	b->dev = dev;
	b->words = words;
	return b;
}

void host_block_drop(struct host_block *b)
{
	if (!b)
		return;
	if (b->base)
		munmap(b->base, b->size);
	if (b->file)
		host_file_drop(b->file);
	mem_free(b);
}

/* Fills b with `size` bytes of zeros: the memory of a file, or private to the process. */
static int block_back(struct host_block *b, size_t size)
{
	int rc = b->kind == HOST_ALLOC ? host_file_open(b->dev, size, &b->file) : 0;
	int share = b->file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;

	if (rc)
		return rc;
	rc = host_space(size, size < HUGE_ALIGN ? HOST_PAGE : HUGE_ALIGN, &b->base);
	if (rc)
		return rc;
	b->size = size;
	if (mmap(b->base, size, PROT_READ | PROT_WRITE, share | MAP_FIXED,
		    b->file ? b->file->fd : -1, 0) == MAP_FAILED)
		return -errno;
	return 0;
}

static int block_publish(struct host_state *st, struct host_block *b)
{
	int rc;

	pthread_rwlock_wrlock(&st->memory);
	rc = host_index_room(&st->blocks);
	if (!rc)
		host_index_insert(&st->blocks, b);
	pthread_rwlock_unlock(&st->memory);
	return rc;
}

static int block_create(enum host_kind kind, int dev, size_t size, const char *op, void **ptr)
{
	struct host_block *b;
	int rc = host_check(dev, op);

	if (rc)
		return rc;
	if (!size)
		return fail(-EINVAL, "host: %s on device %d: size is 0", op, dev);
	if (size > LARGEST || fault_here(FAULT_MEMORY))
		return fail(
			-ENOMEM, "host: %s on device %d: no memory for %zu bytes", op, dev, size);
	b = host_block_new(kind, dev, 0);
	rc = b ? block_back(b, align_up(size, HOST_PAGE)) : -ENOMEM;
	if (!rc)
		rc = block_publish(host_state(), b);
	if (rc) {
		host_block_drop(b);
		return fail_errno(-rc, "host: %s on device %d: no memory for %zu bytes%s", op, dev,
			size, rc == -EFBIG ? " (ulimit -f)" : "");
	}
	*ptr = b->base;
	return 0;
}

static int block_free(enum host_kind kind, int dev, void *ptr, const char *op)
{
	struct host_state *st = host_state();
	struct host_block *b;
	int rc = host_check(dev, op);

	if (rc || !ptr)
		return rc;
	pthread_rwlock_wrlock(&st->memory);
	b = host_index_exact(&st->blocks, ptr, kind, dev);
	if (b)
		host_index_remove(&st->blocks, b);
	pthread_rwlock_unlock(&st->memory);
	if (!b)
		return fail(-EINVAL, "host: %s on device %d: no allocation of it begins at %p", op,
			dev, ptr);
	host_block_drop(b);
	return 0;
}

int host_mem_alloc(int dev, size_t size, enum device_memory kind, void **ptr)
{
	if (kind != DEVICE_MEMORY_PLAIN && kind != DEVICE_MEMORY_SYMMETRIC)
		return fail(-EINVAL, "host: alloc on device %d: unknown kind of memory %d", dev,
			(int)kind);
	return block_create(HOST_ALLOC, dev, size, "alloc", ptr);
}

int host_mem_free(int dev, void *ptr)
{
	return block_free(HOST_ALLOC, dev, ptr, "free");
}

int host_pinned_alloc(int dev, size_t size, void **host, void **device)
{
	void *ptr = NULL;
	int rc = block_create(HOST_PINNED, dev, size, "host_alloc", &ptr);

	if (rc)
		return rc;
	*host = ptr;
	*device = ptr;
	return 0;
}

int host_pinned_free(int dev, void *host)
{
	return block_free(HOST_PINNED, dev, host, "host_free");
}

/* ---- who may reach what */

struct range_verdict {
	enum { REACHED, WRAPS, UNCOMMITTED, FOREIGN } kind;
	bool device;  /* some of it is in the table */
	uintptr_t at; /* FOREIGN, UNCOMMITTED: where, and whose */
	const struct host_block *block;
};

/* Peer access enabled for a device covers its allocations; a commit names its own readers, as in the vendors' VMM. */
static bool may_reach(const struct host_state *st, int dev, const struct host_block *b)
{
	if (b->kind == HOST_PINNED || b->dev == dev)
		return true;
	if (b->kind == HOST_ALLOC)
		return host_enabled(st, dev, b->dev);
	return (size_t)dev / 64 < b->words && (b->access[dev / 64] >> (dev % 64) & 1);
}

static bool range_meets(const struct host_state *st, uintptr_t at, uintptr_t end)
{
	size_t i = host_index_at(&st->ranges, (const void *)at);

	return i < st->ranges.n && (uintptr_t)st->ranges.rows[i]->base < end;
}

/* Under the lock. */
static void judge_range(
	const struct host_state *st, int dev, const void *ptr, size_t n, struct range_verdict *v)
{
	uintptr_t at = (uintptr_t)ptr, end = at + n, next;
	size_t i = host_index_at(&st->blocks, ptr);

	*v = (struct range_verdict){ .kind = end < at ? WRAPS : REACHED };
	for (; at < end; at = next) {
		const struct host_block *b = i < st->blocks.n ? st->blocks.rows[i] : NULL;

		if (b && (uintptr_t)b->base <= at) {
			v->device = true;
			next = (uintptr_t)b->base + b->size;
			i++;
			if (may_reach(st, dev, b))
				continue;
			v->kind = FOREIGN;
			v->block = b;
		} else {
			next = b ? MIN_OF((uintptr_t)b->base, end) : end;
			if (!range_meets(st, at, next))
				continue;
			v->kind = UNCOMMITTED;
		}
		v->at = at;
		return;
	}
}

int host_reach(int dev, const void *ptr, size_t n, const char *op, bool *device)
{
	struct host_state *st = host_state();
	struct range_verdict v;
	int owner = -1, kind = 0;

	if (n && (uintptr_t)ptr < HOST_PAGE)
		return fail(-EINVAL, "host: %s on device %d: address %p", op, dev, ptr);
	pthread_rwlock_rdlock(&st->memory);
	judge_range(st, dev, ptr, n, &v);
	if (v.block) {
		owner = v.block->dev;
		kind = (int)v.block->kind;
	}
	pthread_rwlock_unlock(&st->memory);
	switch (v.kind) {
	case WRAPS:
		return fail(-EINVAL,
			"host: %s on device %d: %zu bytes from %p wrap the address space", op, dev,
			n, ptr);
	case UNCOMMITTED:
		return fail(-EFAULT,
			"host: %s on device %d: %#zx is reserved, with no memory committed there",
			op, dev, (size_t)v.at);
	case FOREIGN:
		return fail(-EACCES,
			"host: %s on device %d: %#zx is memory of device %d, which device %d may not reach: %s",
			op, dev, (size_t)v.at, owner, dev,
			kind == HOST_ALLOC	      ? "peer access is not enabled"
				: kind == HOST_COMMIT ? "it is not among the peers of the commit"
						      : "it was imported for that device alone");
	case REACHED:
		break;
	}
	*device = v.device;
	return 0;
}

/*
 * The padding behind an int holds what was there before, often the upper half of some address, and blocks of memory begin
 * at multiples of 4 GiB: a word whose lower half is a small number is taken for that.
 */
static bool is_small_int(uintptr_t word)
{
	return (uint32_t)word < 65536;
}

/* All blocks lie in so many bytes from there on: most words of arguments are not among them. */
static uintptr_t index_span(const struct host_index *x, uintptr_t *span)
{
	const struct host_block *last = x->n ? x->rows[x->n - 1] : NULL;
	uintptr_t low = x->n ? (uintptr_t)x->rows[0]->base : 0;

	*span = last ? (uintptr_t)last->base + last->size - low : 0;
	return low;
}

/* Whose memory it is, if that is one which dev may not reach; else -1. Under the lock. */
static int foreign_owner(
	const struct host_state *st, int dev, uintptr_t at, const struct host_block **block)
{
	size_t i = host_index_at(&st->blocks, (const void *)at);
	const struct host_block *b = st->blocks.rows[i]; /* one ends behind it */

	if ((uintptr_t)b->base > at)
		return -1;
	*block = b;
	return may_reach(st, dev, b) ? -1 : b->dev;
}

/* What a thread's last look has found, for as long as the table stays the same: the lock's word goes from CPU to CPU. */
static _Thread_local struct {
	uint64_t changes;
	uintptr_t low, span;  /* of all blocks */
	uintptr_t base, size; /* of one, which dev owns */
	int dev;
} looked;

static bool looked_before(const struct host_state *st, int dev, const void *args, size_t size)
{
	const char *at = args;
	uintptr_t word;
	bool known = looked.dev == dev &&
		looked.changes == atomic_load_explicit(&st->blocks.changes, memory_order_acquire);

	for (size_t off = 0; known && off + sizeof(word) <= size; off += sizeof(word)) {
		memcpy(&word, at + off, sizeof(word));
		known = word - looked.base < looked.size || word - looked.low >= looked.span;
	}
	return known;
}

int host_reach_args(int dev, const void *args, size_t size)
{
	struct host_state *st = host_state();
	const struct host_block *block = NULL;
	uintptr_t word = 0;
	const char *at = args;
	int owner = -1;

	if (LIKELY(looked_before(st, dev, args, size)))
		return 0;
	pthread_rwlock_rdlock(&st->memory);
	looked.low = index_span(&st->blocks, &looked.span);
	looked.changes = atomic_load_explicit(&st->blocks.changes, memory_order_relaxed);
	looked.dev = dev;
	for (size_t off = 0; owner < 0 && off + sizeof(word) <= size; off += sizeof(word)) {
		memcpy(&word, at + off, sizeof(word));
		if (word - looked.low < looked.span && !is_small_int(word))
			owner = foreign_owner(st, dev, word, &block);
	}
	looked.base = block ? (uintptr_t)block->base : 0;
	looked.size = block && block->dev == dev ? block->size : 0;
	pthread_rwlock_unlock(&st->memory);
	if (owner < 0)
		return 0;
	return fail(-EACCES,
		"host: launch on device %d: %#zx in its arguments is memory of device %d, which device %d may not reach",
		dev, (size_t)word, owner, dev);
}

bool host_may_touch(int dev, const void *ptr, size_t n, bool *device)
{
	struct host_state *st = host_state();
	struct range_verdict v;

	pthread_rwlock_rdlock(&st->memory);
	judge_range(st, dev, ptr, n, &v);
	pthread_rwlock_unlock(&st->memory);
	*device = v.device;
	return v.kind == REACHED;
}

bool host_still(int dev, const void *ptr, size_t n)
{
	bool device;

	return host_may_touch(dev, ptr, n, &device) && device;
}
