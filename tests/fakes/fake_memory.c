/* SPDX-License-Identifier: MIT */
/* Memory is in memfds, so that another process can open it through /proc. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IPC_MAGIC 0x46414b45u

struct reservation {
	struct reservation *next;
	char *base;
	size_t size;
};

/* Under fake_lock. */
static struct {
	struct fake_block *blocks;
	struct reservation *reservations;
	bool peer[FAKE_DEVICES][FAKE_DEVICES];
	uint64_t number;
	int working; /* streams that touch memory now */
} memory;

static void *map_fd(int fd, size_t size)
{
	void *ptr = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return ptr == MAP_FAILED ? NULL : ptr;
}

static bool is_blind;

/* Before any thread of it runs: a stream's may not read the environment, to which a test's adds meanwhile. */
__attribute__((constructor)) static void blind_read(void)
{
	const char *text = getenv("SPMT_FAKE_BLIND");

	is_blind = text && atoi(text);
}

/* With fake_lock. */
static void show(const struct fake_block *block, bool shown)
{
	if (block->kind != FAKE_HOST && !(block->memory && block->memory->team) &&
		mprotect(block->base, block->size, shown ? PROT_READ | PROT_WRITE : PROT_NONE))
		abort();
}

/* Seen by all threads while one of them is the device at work, hidden again behind the last of those. */
void fake_work(bool begins)
{
	const struct fake_block *b;
	bool turns;

	if (!is_blind)
		return;
	pthread_mutex_lock(&fake_lock);
	turns = begins ? !memory.working++ : !--memory.working;
	for (b = memory.blocks; turns && b; b = b->next) {
		if (!b->working)
			show(b, begins);
	}
	pthread_mutex_unlock(&fake_lock);
}

void fake_work_at(bool begins, const void *ptr, size_t n)
{
	struct fake_block *b;

	if (!is_blind)
		return;
	pthread_mutex_lock(&fake_lock);
	for (b = memory.blocks; b; b = b->next) {
		if ((const char *)ptr >= b->base + b->size || (const char *)ptr + n <= b->base)
			continue;
		if ((begins ? !b->working++ : b->working && !--b->working) && !memory.working)
			show(b, begins);
	}
	pthread_mutex_unlock(&fake_lock);
}

static void add_block(const struct fake_block *block)
{
	struct fake_block *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *block;
	pthread_mutex_lock(&fake_lock);
	if (is_blind)
		show(block, memory.working);
	copy->number = ++memory.number;
	copy->next = memory.blocks;
	memory.blocks = copy;
	fake_count.blocks++;
	pthread_mutex_unlock(&fake_lock);
}

/* Dirty, as real memory may be: who wants zeros has to write them. */
bool fake_block_new(int dev, size_t size, enum fake_kind kind, void **ptr)
{
	struct fake_block block = { .dev = dev, .size = size, .kind = kind };

	if (!size || size > (size_t)1 << 40)
		return false;
	block.fd = memfd_create("fake-gpu", MFD_CLOEXEC);
	if (block.fd < 0)
		return false;
	if (ftruncate(block.fd, (off_t)size) || !(block.base = map_fd(block.fd, size))) {
		close(block.fd);
		return false;
	}
	memset(block.base, 0xa5, size < 65536 ? size : 65536);
	add_block(&block);
	*ptr = block.base;
	return true;
}

static struct fake_block **find(const void *ptr)
{
	struct fake_block **at;

	for (at = &memory.blocks; *at; at = &(*at)->next) {
		if ((uintptr_t)ptr - (uintptr_t)(*at)->base < (*at)->size)
			break;
	}
	return at;
}

bool fake_block_free(const void *ptr, enum fake_kind kind)
{
	struct fake_block **at, *block;

	pthread_mutex_lock(&fake_lock);
	at = find(ptr);
	block = *at;
	if (block && block->base == ptr && block->kind == kind) {
		*at = block->next;
		fake_count.blocks--;
	} else {
		block = NULL;
	}
	pthread_mutex_unlock(&fake_lock);
	if (!block)
		return false;
	munmap(block->base, block->size);
	close(block->fd);
	free(block);
	return true;
}

bool fake_block_find(const void *ptr, struct fake_block *out)
{
	const struct fake_block *block;

	pthread_mutex_lock(&fake_lock);
	block = *find(ptr);
	if (block)
		*out = *block;
	pthread_mutex_unlock(&fake_lock);
	return block != NULL;
}

/* An allocation of dev, or NULL. */
static void *one_of(int dev, enum fake_kind *kind)
{
	const struct fake_block *b;
	void *base;

	pthread_mutex_lock(&fake_lock);
	for (b = memory.blocks; b; b = b->next) {
		if (b->dev == dev && (b->kind == FAKE_DEVICE || b->kind == FAKE_HOST))
			break;
	}
	base = b ? b->base : NULL;
	if (b)
		*kind = b->kind;
	pthread_mutex_unlock(&fake_lock);
	return base;
}

void fake_reset(int dev)
{
	enum fake_kind kind;
	void *base;
	int i;

	fake_drain(dev);
	fake_streams_end(dev);
	fake_modules_end(dev);
	while ((base = one_of(dev, &kind)))
		fake_block_free(base, kind);
	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < FAKE_DEVICES; i++)
		memory.peer[dev][i] = memory.peer[i][dev] = false;
	pthread_mutex_unlock(&fake_lock);
}

/* A memfd begins where its memory does: where the range begins is the descriptor's own position. */
int fake_dmabuf(const void *ptr, size_t n)
{
	const struct fake_block *block;
	off_t at = 0;
	char path[64];
	int fd = -1;

	pthread_mutex_lock(&fake_lock);
	block = *find(ptr);
	if (block && block->kind != FAKE_HOST) {
		at = (const char *)ptr - block->base;
		fd = block->kind == FAKE_MAPPED ? block->memory->fd : block->fd;
		if (n > block->size - (size_t)at)
			fd = -1;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
	pthread_mutex_unlock(&fake_lock);
	if (fd >= 0)
		lseek(fd, at, SEEK_SET);
	return fd;
}

bool fake_ipc_name(const void *ptr, struct fake_ipc *out)
{
	struct fake_block block;

	if (!fake_block_find(ptr, &block) || block.kind != FAKE_DEVICE)
		return false;
	memset(out, 0, sizeof(*out));
	*out = (struct fake_ipc){ IPC_MAGIC, (int)getpid(), block.fd, block.dev, block.size,
		block.number };
	return true;
}

bool fake_ipc_open(const struct fake_ipc *name, int for_dev, void **ptr)
{
	struct fake_block block = { .kind = FAKE_IMPORT, .dev = name->dev, .size = name->size };
	char path[64];

	if (name->magic != IPC_MAGIC || name->pid == (int)getpid())
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", name->pid, name->fd);
	block.fd = open(path, O_RDWR | O_CLOEXEC);
	if (block.fd < 0)
		return false;
	block.base = map_fd(block.fd, block.size);
	if (!block.base) {
		close(block.fd);
		return false;
	}
	block.access = 1u << for_dev;
	add_block(&block);
	*ptr = block.base;
	return true;
}

void fake_peer_enable(int from, int to)
{
	pthread_mutex_lock(&fake_lock);
	memory.peer[from][to] = true;
	pthread_mutex_unlock(&fake_lock);
}

bool fake_peer_enabled(int from, int to)
{
	bool enabled;

	pthread_mutex_lock(&fake_lock);
	enabled = memory.peer[from][to];
	pthread_mutex_unlock(&fake_lock);
	return enabled;
}

static bool block_reaches(int dev, const struct fake_block *block)
{
	switch (block->kind) {
	case FAKE_HOST:
		return true;
	case FAKE_DEVICE:
		return block->dev == dev || memory.peer[dev][block->dev];
	default: /* no load, store or copy goes to a multicast object */
		return !(block->memory && block->memory->team) && block->access & 1u << dev;
	}
}

bool fake_reaches(int dev, const void *ptr, size_t n)
{
	const struct fake_block *block;
	bool ok = true;

	pthread_mutex_lock(&fake_lock);
	while (n && ok && (block = *find(ptr))) {
		size_t left = block->size - (size_t)((const char *)ptr - block->base);

		/* ranges backed on demand may go on in the next block */
		ok = block_reaches(dev, block) && (left >= n || block->kind == FAKE_MAPPED);
		ptr = (const char *)ptr + (left < n ? left : n);
		n -= left < n ? left : n;
	}
	pthread_mutex_unlock(&fake_lock);
	return ok;
}

/* ---- ranges backed on demand */

bool fake_reserve_behind(size_t size, size_t align, size_t behind, void **ptr)
{
	size_t room = size + (align > FAKE_GRANULARITY ? align : FAKE_GRANULARITY), front;
	struct reservation *r;
	char *at;

	align = room - size;
	if (!size || size % FAKE_GRANULARITY || align & (align - 1))
		return false;
	at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return false;
	front = (size_t)((behind - (uintptr_t)at) & (align - 1));
	if (front)
		munmap(at, front);
	munmap(at + front + size, room - front - size);
	r = malloc(sizeof(*r));
	if (!r)
		abort();
	*r = (struct reservation){ NULL, at + front, size };
	pthread_mutex_lock(&fake_lock);
	r->next = memory.reservations;
	memory.reservations = r;
	fake_count.reservations++;
	pthread_mutex_unlock(&fake_lock);
	*ptr = r->base;
	return true;
}

bool fake_reserve(size_t size, size_t align, void **ptr)
{
	return fake_reserve_behind(size, align, 0, ptr);
}

/* Any mapping left in [base, base + size)? */
static bool occupied(const char *base, size_t size)
{
	const struct fake_block *b;

	for (b = memory.blocks; b; b = b->next) {
		if (b->base < base + size && base < b->base + b->size)
			return true;
	}
	return false;
}

bool fake_unreserve(const void *ptr, size_t size)
{
	struct reservation **at, *r;

	pthread_mutex_lock(&fake_lock);
	for (at = &memory.reservations; (r = *at); at = &r->next) {
		if (r->base == ptr && r->size == size)
			break;
	}
	if (r && occupied(r->base, r->size))
		r = NULL;
	if (r) {
		*at = r->next;
		fake_count.reservations--;
	}
	pthread_mutex_unlock(&fake_lock);
	if (!r)
		return false;
	munmap(r->base, r->size);
	free(r);
	return true;
}

static struct fake_physical *new_physical(int dev, int fd, size_t size, bool shareable)
{
	struct fake_physical *p = malloc(sizeof(*p));

	if (!p)
		abort();
	*p = (struct fake_physical){
		.dev = dev, .fd = fd, .refs = 1, .size = size, .shareable = shareable
	};
	pthread_mutex_lock(&fake_lock);
	fake_count.physicals++;
	pthread_mutex_unlock(&fake_lock);
	return p;
}

struct fake_physical *fake_physical_of(struct fake_team *team, size_t size)
{
	struct fake_physical *p = new_physical(-1, -1, size, false);

	p->team = team;
	return p;
}

char *fake_physical_at(const struct fake_physical *p)
{
	const struct fake_block *b;

	pthread_mutex_lock(&fake_lock);
	for (b = memory.blocks; b && b->memory != p; b = b->next)
		;
	pthread_mutex_unlock(&fake_lock);
	return b ? b->base : NULL;
}

bool fake_physical_new(int dev, size_t size, bool shareable, struct fake_physical **out)
{
	int fd;

	if (!size || size % FAKE_GRANULARITY || size > (size_t)1 << 40)
		return false;
	fd = memfd_create("fake-gpu-memory", MFD_CLOEXEC);
	if (fd < 0)
		return false;
	if (ftruncate(fd, (off_t)size) || pwrite(fd, "dirty", 5, 0) != 5) {
		close(fd);
		return false;
	}
	*out = new_physical(dev, fd, size, shareable);
	return true;
}

bool fake_physical_import(int fd, struct fake_physical **out)
{
	struct stat st;
	int copy;

	if (fstat(fd, &st) || (size_t)st.st_size % FAKE_GRANULARITY || !st.st_size)
		return false;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return false;
	*out = new_physical(-1, copy, (size_t)st.st_size, true);
	return true;
}

void fake_physical_retain(struct fake_physical *p)
{
	pthread_mutex_lock(&fake_lock);
	p->refs++;
	pthread_mutex_unlock(&fake_lock);
}

void fake_physical_release(struct fake_physical *p)
{
	bool last;

	pthread_mutex_lock(&fake_lock);
	last = !--p->refs;
	fake_count.physicals -= last;
	pthread_mutex_unlock(&fake_lock);
	if (!last)
		return;
	if (p->team)
		fake_team_end(p->team);
	else
		close(p->fd);
	free(p);
}

static bool reserved(const char *base, size_t size)
{
	const struct reservation *r;

	for (r = memory.reservations; r; r = r->next) {
		if (base >= r->base && size <= r->size &&
			base - r->base <= (ptrdiff_t)(r->size - size))
			return true;
	}
	return false;
}

bool fake_map(void *ptr, size_t size, struct fake_physical *p)
{
	struct fake_block block = {
		.kind = FAKE_MAPPED, .dev = p->dev, .base = ptr, .size = size, .fd = -1, .memory = p
	};
	bool ok;

	pthread_mutex_lock(&fake_lock);
	ok = size == p->size && reserved(ptr, size) && !occupied(ptr, size) &&
		(!p->team || fake_team_whole(p));
	if (ok)
		p->refs++;
	pthread_mutex_unlock(&fake_lock);
	if (!ok)
		return false;
	if (!p->team &&
		mmap(ptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, p->fd, 0) ==
			MAP_FAILED)
		abort();
	add_block(&block);
	return true;
}

bool fake_unmap(void *ptr, size_t size)
{
	struct fake_block **at, *block;

	pthread_mutex_lock(&fake_lock);
	at = find(ptr);
	block = *at;
	if (block && block->kind == FAKE_MAPPED && block->base == ptr && block->size == size) {
		*at = block->next;
		fake_count.blocks--;
	} else {
		block = NULL;
	}
	pthread_mutex_unlock(&fake_lock);
	if (!block)
		return false;
	if (mmap(ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		    0) == MAP_FAILED)
		abort();
	fake_physical_release(block->memory);
	free(block);
	return true;
}

bool fake_access(const void *ptr, size_t size, unsigned devices)
{
	struct fake_block *block;
	bool ok;

	pthread_mutex_lock(&fake_lock);
	block = *find(ptr);
	ok = block && block->kind == FAKE_MAPPED && block->base == ptr && block->size == size;
	if (ok)
		block->access |= devices;
	pthread_mutex_unlock(&fake_lock);
	return ok;
}
