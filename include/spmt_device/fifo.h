/* SPDX-License-Identifier: MIT */
/* Posts: what a kernel has the host do for it, through a ring of descriptors (struct spmtd_post) that a thread of the host reads. */
#ifndef SPMTD_FIFO_H
#define SPMTD_FIFO_H

#include "wait.h"

SPMTD_BEGIN

/*
 * Threads claim places in turn, by compare-and-swap: one whose deadline passes before there is a free place has claimed none, and the
 * ring goes on without it. The count of what the host has taken is across the bus, so that the device keeps what it saw last.
 */
SPMTD_FN int spmtd_post_fits_(const struct spmtd_fifo *f, uint64_t place)
{
	uint64_t seen = spmtd_at_(&f->own->taken);
	int64_t places = (int64_t)1 << f->shift;
	uint64_t taken = spmtd_peek64_(seen);

	if ((int64_t)(place - taken) < places)
		return 1;
	taken = spmtd_look64_(f->taken);
	spmtd_poke64_(seen, taken);
	return (int64_t)(place - taken) < places;
}

SPMTD_FN int spmtd_post_claim_(const struct spmt_view *v, const struct spmtd_fifo *f, int peer,
	struct spmtd_waiter_ *w, uint64_t *place)
{
	uint64_t posted = spmtd_at_(&f->own->posted);
	uint64_t at = spmtd_peek64_(posted), seen;
	int rc;

	for (;;) {
		if (spmtd_post_fits_(f, at)) {
			seen = spmtd_cas64_(posted, at, at + 1);
			if (seen == at)
				break;
			at = seen;
			continue;
		}
		rc = spmtd_wait_check_(v, w);
		if (rc) {
			spmtd_record_(v, rc, SPMTD_WHAT_POST, peer, f->taken, at,
				spmtd_look64_(f->taken));
			return rc;
		}
		at = spmtd_peek64_(posted);
	}
	*place = at;
	return 0;
}

SPMTD_FN uint64_t spmtd_post_head_(int kind, int peer, uint32_t arg)
{
	return (uint64_t)arg << 32 | (uint64_t)(uint32_t)peer << 8 | (uint64_t)(uint32_t)kind << 1;
}

SPMTD_FN int spmtd_post_peer_(uint64_t head)
{
	return (int)(head >> 8 & 0xffffff);
}

/* Behind all that the calling thread has stored. */
SPMTD_FN void spmtd_post_write_(
	const struct spmtd_fifo *f, uint64_t place, const struct spmtd_post *post)
{
	uint64_t at = place & (((uint64_t)1 << f->shift) - 1);
	uint64_t a = f->ring + at * sizeof(*post);

	spmtd_poke64_(a + 8, post->to);
	spmtd_poke64_(a + 16, post->from);
	spmtd_poke64_(a + 24, post->size);
	spmtd_release_set_(a, post->head | (~(place >> f->shift) & 1));
}

/*
 * By one thread. waits: until the host is through with it. 0, or the code of the wait for a place, which is kept for a quiet, or of
 * that for the host. Never inlined on devices, and not by the view, so that kernels which do not post pay nothing for it.
 */
SPMTD_LONG int spmtd_post_(
	uint64_t fifo, uint64_t timeout_ns, const struct spmtd_post post, int waits)
{
	const struct spmtd_fifo *f = (const struct spmtd_fifo *)spmtd_to_(fifo);
	int peer = spmtd_post_peer_(post.head), rc;
	struct spmtd_waiter_ w;
	struct spmt_view v;
	uint64_t place;

	v.pe = f->pe;
	v.own = f->own;
	v.stop = f->stop;
	v.record = f->record;
	v.timeout_ns = timeout_ns;
	v.host = f->host;
	spmtd_wait_begin_(&w);
	rc = spmtd_post_claim_(&v, f, peer, &w, &place);
	if (!rc) {
		spmtd_post_write_(f, place, &post);
#if defined(SPMTD_HOST)
		if (v.host && v.host->posted)
			v.host->posted(&v);
#endif
		if (waits)
			rc = spmtd_await_(&v, &w, SPMTD_KIND_W_, 64, f->taken, 0, place + 1,
				SPMTD_WHAT_POST, peer);
	} else {
		spmtd_poke64_(spmtd_at_(&f->own->lost), (uint64_t)(int64_t)rc);
	}
	spmtd_wait_end_(&v, &w);
	return rc;
}

SPMTD_END

#endif
