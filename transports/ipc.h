/* SPDX-License-Identifier: MIT */
/* What map ipc needs of a peer in another process: its heap, named, and the descriptor if it takes one. */
#ifndef SPMT_IPC_H
#define SPMT_IPC_H

#include "../heap/export.h"

struct ipc_memory {
	struct heap_piece piece;
	int fd; /* -1: none; the world's */
	bool known;
	int buffer; /* of a buffer of the rank's while it is registered, -1: none */
};

#endif
