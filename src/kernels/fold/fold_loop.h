/* SPDX-License-Identifier: MIT */
/* The loop of a fold over its units. */
#ifndef SPMT_KERNELS_FOLD_LOOP_H
#define SPMT_KERNELS_FOLD_LOOP_H

#include "fold_unit.h"

#if defined(__AMDGCN__) || defined(__NVPTX__)

/* The next rank's unit is loaded before the last one's is folded. */
#define DEFINE_REDUCER(name, acc, hold, begin, step, m, end)                   \
	static void name(const struct fold *r)                                 \
	{                                                                      \
		for (uint64_t k = r->lane; 16 * k < r->bytes; k += r->lanes) { \
			union unit x = unit_of(r, 0, k), next = x;             \
			acc a = begin(x);                                      \
                                                                               \
			if (r->npes > 1)                                       \
				next = unit_of(r, 1, k);                       \
			for (int pe = 1; pe < r->npes; pe++) {                 \
				x = next;                                      \
				if (pe + 1 < r->npes)                          \
					next = unit_of(r, pe + 1, k);          \
				step(m, a, x);                                 \
				a = hold(a);                                   \
			}                                                      \
			unit_out(r, k, end(a));                                \
		}                                                              \
	}

#else

/* On a CPU a tile of all ranks' units is folded rank by rank: each is read as one stream, and the sums stay in the nearest cache. */
#define FOLD_TILE 256

/* So many units of rank pe from `at` on, as bytes; those of slots, or with a short one, by way of `room`. */
static inline const unsigned char *tile_of(
	const struct fold *r, int pe, uint64_t at, uint32_t n, union unit *room)
{
	if (!r->slots && 16 * (at + n) <= r->bytes)
		return (const unsigned char *)spmtd_to_(r->inboxes[pe].src + r->from + 16 * at);
	for (uint32_t i = 0; i < n; i++)
		room[i] = unit_of(r, pe, at + i);
	return (const unsigned char *)room;
}

static inline void tile_out(const struct fold *r, uint64_t at, uint32_t n, const union unit *tile)
{
	uint64_t left = r->bytes - 16 * at,
		 bytes = left < 16 * (uint64_t)n ? left : 16 * (uint64_t)n;
	uint64_t from = spmtd_at_(tile);
	int pe = r->first;

	if (!r->everyone) {
		spmtd_bulk_raw_(r->dst + r->to + 16 * at, from, bytes, 0, 1);
		return;
	}
	for (int i = 0; i < r->everyone; i++) {
		spmtd_bulk_raw_(r->inboxes[pe].dst + r->to + 16 * at, from, bytes, 0, 1);
		pe = pe + 1 < r->npes ? pe + 1 : 0;
	}
}

static inline uint32_t tile_units(const struct fold *r, uint64_t at)
{
	uint64_t left = (r->bytes + 15) / 16 - at;

	return left < FOLD_TILE ? (uint32_t)left : FOLD_TILE;
}

#define DEFINE_REDUCER(name, acc, hold, begin, step, m, end)                       \
	static void name(const struct fold *r)                                     \
	{                                                                          \
		uint64_t at = (uint64_t)r->lane * FOLD_TILE;                       \
		union unit tile[FOLD_TILE], x;                                     \
		acc a[FOLD_TILE];                                                  \
                                                                                   \
		for (; 16 * at < r->bytes; at += (uint64_t)r->lanes * FOLD_TILE) { \
			uint32_t n = tile_units(r, at);                            \
			const unsigned char *from = tile_of(r, 0, at, n, tile);    \
                                                                                   \
			for (uint32_t i = 0; i < n; i++) {                         \
				__builtin_memcpy(&x, from + 16 * i, 16);           \
				a[i] = begin(x);                                   \
			}                                                          \
			for (int pe = 1; pe < r->npes; pe++) {                     \
				from = tile_of(r, pe, at, n, tile);                \
				for (uint32_t i = 0; i < n; i++) {                 \
					__builtin_memcpy(&x, from + 16 * i, 16);   \
					step(m, a[i], x);                          \
				}                                                  \
			}                                                          \
			for (uint32_t i = 0; i < n; i++)                           \
				tile[i] = end(a[i]);                               \
			tile_out(r, at, n, tile);                                  \
		}                                                                  \
	}

#endif

#endif
