/* SPDX-License-Identifier: MIT */
/* Blocks of memory and the tables that hold them: host/memory.c, used by host/vmm.c and host/ipc.c. */
#ifndef SPMT_DEVICE_HOST_MEMORY_H_
#define SPMT_DEVICE_HOST_MEMORY_H_

#include "state.h"

/* A memfd, shared by the blocks that lie in it. */
struct host_file {
	struct host_file *next; /* of a range: one file a device */
	int fd, dev;
	unsigned refs;
	uint64_t size;
};

enum host_kind { HOST_ALLOC, HOST_PINNED, HOST_COMMIT, HOST_IMPORT, HOST_RANGE };

struct host_block {
	char *base;
	size_t size;
	enum host_kind kind;
	int dev;		/* -1: a range */
	struct host_file *file; /* NULL: pinned, imported; a range: the list */
	uint64_t offset;	/* of base in file */
	size_t words;
	uint64_t access[]; /* commits: the devices that may reach it beside dev, `words` words */
};

/* Tables are read and written under the state's memory lock. */

/* The first row that ends above ptr; x->n if none does. */
size_t host_index_at(const struct host_index *x, const void *ptr);
struct host_block *host_index_exact(
	const struct host_index *x, const void *base, enum host_kind kind, int dev);
int host_index_room(struct host_index *x); /* so that the next insert cannot fail */
void host_index_insert(struct host_index *x, struct host_block *b);
void host_index_remove(struct host_index *x, struct host_block *b);
void host_index_trim(struct host_index *x); /* gives back the room of an empty one */
struct host_block *host_block_new(enum host_kind kind, int dev, size_t words);
void host_block_drop(struct host_block *b); /* NULL and half-built ones too; unmaps */
int host_file_open(int dev, uint64_t size, struct host_file **file);
void host_file_drop(struct host_file *file);
/* Address space without access: 0 or -errno, no sentence. */
int host_space(size_t size, size_t align, char **base);

/* host/ipc.c. Does not trust the other process: 0 if fd is memory of this backend, of the stated length
   and sealed against shrinking; else a sentence. */
int host_import_check(int dev, const struct device_export *in, int fd);

#endif
