/* SPDX-License-Identifier: MIT */
/*
 * What a map publishes of a heap to other processes of the node, and the heap as such a process
 * sees it.
 *
 * A heap is published in pieces, one a chunk, each exported once. A heap of vmm mode grows: pieces
 * [known, n) are what a peer has not got yet. The peer adds them to one range of addresses, at the
 * offsets they have in the heap, so that base + offset is right on both sides and never changes.
 *
 * One thread at a time on each object. What import has mapped may be used from any thread.
 */
#ifndef SPMT_EXPORT_H
#define SPMT_EXPORT_H

#include "heap.h"

/* Plain data, equal in all builds of one version; the descriptor (if export.kind asks for one)
   travels beside it. */
struct heap_piece {
	uint64_t offset, length; /* from the heap's base; the own part begins at heap.size */
	struct device_export export;
};

struct heap_export {
	struct heap_piece *pieces;
	int *fds; /* of the pieces, -1: none; open until heap_export_close */
	int n, room;
};

/* Exports the chunks that have come since the last call. *e: zeroed before the first. SPMT_ERR_UNSUPPORTED:
   the backend cannot. On failure what was published stays, and a later call goes on from there. */
int heap_export_update(const struct heap *heap, struct heap_export *e);
/* Before heap_close. Zeroed or closed: fine. */
void heap_export_close(struct heap_export *e);

struct heap_import {
	const struct backend *backend;
	int dev;
	char *base; /* the peer's heap as seen from here; NULL before the first piece */
	uint64_t size, own_size;
	/* private to export.c */
	bool reserved; /* base is a range of ours; else the one piece's own address */
	struct heap_piece *pieces;
	int n, room;
};

/* Sizes as the peer states them (heap.size, heap.own_size). Maps nothing yet. */
int heap_import_open(const struct backend *backend, int dev, uint64_t size, uint64_t own_size,
	struct heap_import *in);
/* Maps one piece; fd stays the caller's. Pieces are not trusted: -EPROTO with a sentence if one
   lies outside the heap, over another or is at odds with itself. On failure nothing has changed. */
int heap_import_add(struct heap_import *in, const struct heap_piece *piece, int fd);
/* Zeroed or closed: fine. */
void heap_import_close(struct heap_import *in);

#endif
