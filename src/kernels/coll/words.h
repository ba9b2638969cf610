/* SPDX-License-Identifier: MIT */
/* Where in a library area a collective has its slots and its words: counters, hellos, and those between two ranks by which blocks meet. */
#ifndef SPMT_KERNELS_WORDS_H
#define SPMT_KERNELS_WORDS_H

#include "coll.h"

/* The struct area of this rank. ptxas 13.0 keeps that sum in registers, of which twoshot_u8 has none left for sm_80. */
static inline struct area *coll_area(const struct coll *c)
{
#if defined(__NVPTX__) && __CUDA_ARCH__ < 900
	return area_of(c->view);
#endif
	return (struct area *)spmtd_to_(spmtd_at_(c->view->own) + c->args->places.area);
}

/* What `writer` tells the rank with this library area. */
static inline struct area_inbox *coll_box(const struct coll *c, uint64_t own, int writer)
{
	return (struct area_inbox *)spmtd_to_(own + c->args->places.area + sizeof(struct area)) +
		writer;
}

/* Where `writer` tells the rank with this library area of how many blocks its launch is. */
static inline uint64_t coll_blocks_word(const struct coll *c, uint64_t own, int writer)
{
	return spmtd_at_(&area_blocks_at(own, c->view->npes, writer)->blocks[c->epoch & 1]);
}

/* The end of those words at this rank by which the blocks of pe meet it; known once all have come. */
static inline uint32_t coll_words_of(const struct coll *c, int pe)
{
	uint64_t n = c->words;

	if (n > 1)
		n = spmtd_peek64_(coll_blocks_word(c, spmtd_at_(c->view->own), pe));
	return n < c->words ? (uint32_t)n : c->words;
}

/* At this rank; at another. */
static inline struct area_words *coll_words_from(const struct coll *c, int pe, uint32_t word)
{
	return area_words_at(spmtd_at_(c->view->own), c->view->npes, pe, word);
}

static inline struct area_words *coll_words_at(const struct coll *c, int pe, uint32_t word)
{
	return area_words_at(area_there(c->view, pe), c->view->npes, c->view->pe, word);
}

/* The slot that `writer` fills in epochs of this parity at the rank with this library area. */
static inline uint64_t coll_slot_of(const struct coll *c, uint64_t own, int writer, uint64_t odd)
{
	uint64_t npes = (uint64_t)c->view->npes, nth = odd * npes + (uint64_t)writer;

	return own + c->args->places.slots + nth * 2 * c->args->room;
}

static inline uint64_t coll_slot(const struct coll *c, uint64_t own, int writer)
{
	return coll_slot_of(c, own, writer, c->epoch & 1);
}

#endif
