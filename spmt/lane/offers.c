/* SPDX-License-Identifier: MIT */
#include "offers.h"

#include "src/base/mem.h"

static struct offer **offers_row(struct offers *all, uint64_t comm, int rank, uint64_t key)
{
	uint64_t h = (key + (uint64_t)(unsigned)rank * 0x9e3779b97f4a7c15u) ^ comm;

	h *= 0xbf58476d1ce4e5b9u;
	return &all->rows[(h >> 32) % OFFER_ROWS];
}

static struct offer *offer_in(struct offer *row, uint64_t comm, int rank, uint64_t key)
{
	while (row && (row->comm != comm || row->rank != rank || row->key != key))
		row = row->next;
	return row;
}

bool offers_add(struct offers *all, struct offer *offer)
{
	struct offer **row = offers_row(all, offer->comm, offer->rank, offer->key);
	bool is_new;

	pthread_mutex_lock(&all->lock);
	is_new = !offer_in(*row, offer->comm, offer->rank, offer->key);
	if (is_new) {
		atomic_fetch_add(&offer->refs, 1);
		offer->next = *row;
		*row = offer;
	}
	pthread_mutex_unlock(&all->lock);
	return is_new;
}

void offers_remove(struct offers *all, struct offer *offer)
{
	struct offer **at = offers_row(all, offer->comm, offer->rank, offer->key);

	pthread_mutex_lock(&all->lock);
	while (*at != offer)
		at = &(*at)->next;
	*at = offer->next;
	atomic_store(&offer->gone, true);
	pthread_mutex_unlock(&all->lock);
	offer_unref(offer);
}

struct offer *offers_find(struct offers *all, uint64_t comm, int rank, uint64_t key)
{
	struct offer *offer;

	pthread_mutex_lock(&all->lock);
	offer = offer_in(*offers_row(all, comm, rank, key), comm, rank, key);
	if (offer)
		atomic_fetch_add(&offer->refs, 1);
	pthread_mutex_unlock(&all->lock);
	return offer;
}

void offer_unref(struct offer *offer)
{
	if (atomic_fetch_sub(&offer->refs, 1) == 1)
		mem_free(offer);
}
