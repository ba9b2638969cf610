/* SPDX-License-Identifier: MIT */
/* Buffers that ranks of this process offer their peers by a key, without a meeting. */
#ifndef SPMT_OFFERS_H
#define SPMT_OFFERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { OFFER_ROWS = 64 };

struct offer {
	struct offer *next;
	uint64_t comm, key, base, size; /* the comm's id */
	int rank;			/* of the comm */
	_Atomic int refs;
	_Atomic bool gone; /* the rank has withdrawn it */
};

/* Of a world; zeroed is empty. */
struct offers {
	pthread_mutex_t lock; /* guards the rows; never held across anything else */
	struct offer *rows[OFFER_ROWS];
};

/* false: the rank has one of this key on this comm. Holds it until offers_remove. */
bool offers_add(struct offers *all, struct offer *offer);
void offers_remove(struct offers *all, struct offer *offer);
/* Held until offer_unref; NULL: the rank has none of this key. */
struct offer *offers_find(struct offers *all, uint64_t comm, int rank, uint64_t key);
void offer_unref(struct offer *offer);

#endif
