/* SPDX-License-Identifier: MIT */
/* BLAKE2s (RFC 7693), whole messages only, keyed or not: the keyed form proves that a message comes
   from somebody who has the key. Pure. */
#ifndef SPMT_BLAKE2S_H
#define SPMT_BLAKE2S_H

#include "base.h"

#define BLAKE2S_MOST 32 /* bytes of a digest, and of a key */

/* One piece of a message. */
struct blake2s_part {
	const void *bytes;
	size_t size;
};

/* The digest, of `size` (1 to 32) bytes, of the n parts one after the other; key_size 0: not keyed. */
void blake2s(const void *key, size_t key_size, const struct blake2s_part *parts, size_t n,
	void *digest, size_t size);

/* Compares in a time that does not depend on where the first difference is. */
bool equal_secrets(const void *a, const void *b, size_t size);

#endif
