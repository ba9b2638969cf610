/* SPDX-License-Identifier: MIT */
/* Memory: zeroed, aligned, copied and filled whatever the size and place, shared with peers,
   backed on demand. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>

#include "include/spmt.h"
#include "src/base/status.h"

static int case_alloc(struct conform *c)
{
	static const size_t sizes[] = { 1, 255, 4097, 65536, (1 << 20) - 3 };
	struct rig r;
	size_t i, kind, round;
	void *ptr;

	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	/* twice, so that what comes back from the allocator has been used */
	for (i = 0, round = 0; round < 2 * ARRAY_SIZE(sizes); round++, i = round / 2) {
		for (kind = DEVICE_MEMORY_PLAIN; kind <= DEVICE_MEMORY_SYMMETRIC; kind++) {
			CHECK(c, !c->b->alloc(0, sizes[i], (enum device_memory)kind, &ptr));
			CHECK(c, (uintptr_t)ptr % 256 == 0);
			CHECK(c, rig_holds(c, &r, ptr, sizes[i], NULL, 0));
			CHECK(c, !c->b->fill(0, ptr, 0xee, sizes[i], r.s));
			CHECK(c, rig_holds(c, &r, ptr, sizes[i], NULL, 0xee));
			CHECK(c, !c->b->free(0, ptr));
		}
	}
	return rig_close(c, &r);
}

static int case_alloc_refused(struct conform *c)
{
	void *ptr = c, *device = c;

	CHECK(c, !c->b->open(0));
	fail(-1, "nothing said");
	CHECK(c, c->b->alloc(0, (size_t)1 << 50, DEVICE_MEMORY_PLAIN, &ptr) < 0 && ptr == c);
	CHECK(c, strcmp(status_sentence(), "nothing said"));
	CHECK(c, c->b->alloc(0, (size_t)1 << 50, DEVICE_MEMORY_SYMMETRIC, &ptr) < 0 && ptr == c);
	CHECK(c,
		c->b->host_alloc(0, (size_t)1 << 50, &ptr, &device) < 0 && ptr == c && device == c);
	CHECK(c, !c->b->alloc(0, 64, DEVICE_MEMORY_PLAIN, &ptr) && !c->b->free(0, ptr));
	c->b->close(0);
	return CONFORM_PASS;
}

static int case_host_alloc(struct conform *c)
{
	struct rig r;
	void *host, *seen, *ptr;
	size_t i;

	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->host_alloc(0, 10000, &host, &seen) && host && seen);
	for (i = 0; i < 10000; i++)
		CHECK(c, !((char *)host)[i]);
	CHECK(c, !c->b->alloc(0, 10000, DEVICE_MEMORY_PLAIN, &ptr));
	conform_noise(host, 10000, 3);
	CHECK(c, !c->b->copy(0, ptr, seen, 10000, r.s));
	CHECK(c, rig_holds(c, &r, ptr, 10000, host, 0));
	CHECK(c, !c->b->fill(0, seen, 0x11, 10000, r.s) && !c->b->stream_sync(0, r.s, -1, NULL));
	for (i = 0; i < 10000; i++)
		CHECK(c, ((char *)host)[i] == 0x11);
	CHECK(c, !c->b->free(0, ptr) && !c->b->host_free(0, host));
	return rig_close(c, &r);
}

static int case_copy_places(struct conform *c)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 127, 255, 257,
		4095, 4097, 70001 };
	unsigned char *want = malloc(131072), *noise = malloc(131072);
	size_t i, d, s;
	struct rig r;
	char *ptr;
	void *p;

	CHECK(c, want && noise);
	conform_noise(noise, 131072, 7);
	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(0, 262144, DEVICE_MEMORY_PLAIN, &p));
	ptr = p;
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (d = 0; d < 16; d += 5) {
			for (s = 0; s < 16; s += 7) {
				/* pageable to device, device to device, with untouched bytes on
				   both sides */
				CHECK(c, !c->b->fill(0, ptr, 0x77, 262144, r.s));
				CHECK(c,
					!c->b->copy(0, ptr + 131072 + s, noise + s, sizes[i], r.s));
				CHECK(c,
					!c->b->copy(
						0, ptr + 32 + d, ptr + 131072 + s, sizes[i], r.s));
				memset(want, 0x77, sizes[i] + 96);
				memcpy(want + 32 + d, noise + s, sizes[i]);
				CHECK(c, rig_holds(c, &r, ptr, sizes[i] + 96, want, 0));
			}
		}
	}
	CHECK(c, !c->b->free(0, p));
	free(want);
	free(noise);
	return rig_close(c, &r);
}

static int case_copy_overlap(struct conform *c)
{
	static const size_t shifts[] = { 0, 1, 7, 8, 64, 1000, 4096, 30000, 60000 };
	const size_t all = 131072, n = 60001;
	unsigned char *want = malloc(all);
	struct rig r;
	size_t i, down;
	char *ptr;
	void *p;

	CHECK(c, want);
	if (rig_open(c, 0, &r))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(0, all, DEVICE_MEMORY_PLAIN, &p));
	ptr = p;
	for (i = 0; i < 2 * ARRAY_SIZE(shifts); i++) {
		size_t shift = shifts[i / 2];

		down = i % 2;
		conform_noise(r.host, all, (unsigned)i);
		memcpy(want, r.host, all);
		CHECK(c,
			!c->b->copy(0, ptr, r.host, all, r.s) &&
				!c->b->stream_sync(0, r.s, -1, NULL));
		CHECK(c,
			!c->b->copy(0, ptr + 3 + (down ? 0 : shift), ptr + 3 + (down ? shift : 0),
				n, r.s));
		memmove(want + 3 + (down ? 0 : shift), want + 3 + (down ? shift : 0), n);
		CHECK(c, rig_holds(c, &r, ptr, all, want, 0));
	}
	CHECK(c, !c->b->free(0, p));
	free(want);
	return rig_close(c, &r);
}

static int exchange(struct conform *c, int from, int to)
{
	struct rig r, peer;
	void *here, *there;

	if (rig_open(c, from, &r) || rig_open(c, to, &peer))
		return CONFORM_FAIL;
	CHECK(c, !c->b->alloc(from, 40000, DEVICE_MEMORY_SYMMETRIC, &here));
	CHECK(c, !c->b->peer_enable(from, to) && !c->b->peer_enable(from, to));
	CHECK(c, !c->b->alloc(to, 40000, DEVICE_MEMORY_SYMMETRIC, &there));
	CHECK(c, !c->b->fill(from, here, from + 1, 40000, r.s));
	CHECK(c,
		!c->b->copy(from, there, here, 39999, r.s) &&
			!c->b->stream_sync(from, r.s, -1, NULL));
	CHECK(c, rig_holds(c, &peer, there, 39999, NULL, from + 1));
	CHECK(c,
		!c->b->fill(to, there, 0x99, 40000, peer.s) &&
			!c->b->stream_sync(to, peer.s, -1, NULL));
	CHECK(c, !c->b->copy(from, here, there, 40000, r.s));
	CHECK(c, rig_holds(c, &r, here, 40000, NULL, 0x99));
	CHECK(c, !c->b->free(from, here) && !c->b->free(to, there));
	return rig_close(c, &r) || rig_close(c, &peer) ? CONFORM_FAIL : CONFORM_PASS;
}

static int case_peers(struct conform *c)
{
	char reason[DEVICE_REASON];
	int from, to, pairs = 0;

	for (from = 0; from < c->n && from < 4; from++) {
		for (to = 0; to < c->n && to < 4; to++) {
			memset(reason, 0, sizeof(reason));
			if (c->b->peer_check(from, to, reason)) {
				CHECK(c,
					from != to && reason[0] &&
						strnlen(reason, sizeof(reason)) < sizeof(reason));
				continue;
			}
			pairs += from != to;
			if (exchange(c, from, to))
				return CONFORM_FAIL;
		}
	}
	return pairs ? CONFORM_PASS : conform_skip(c, "no two devices that reach each other");
}

/* Two commits beside each other, seen by the device and its peer, zeroed each time, given back
   one by one. */
static int vmm_use(struct conform *c, struct rig *r, struct rig *peer, char *base, size_t g)
{
	int peers[] = { 0, peer->dev };

	CHECK(c, !c->b->vmm->commit(0, base, g, peers, 2));
	CHECK(c, !c->b->vmm->commit(0, base + g, 2 * g, peers, 2));
	CHECK(c, rig_holds(c, r, base + g - 1000, 2000, NULL, 0));
	CHECK(c,
		!c->b->fill(0, base, 0x42, g, r->s) && !c->b->fill(0, base + g, 0x42, 2 * g, r->s));
	CHECK(c, rig_holds(c, r, base + 2 * g, 4096, NULL, 0x42));
	CHECK(c, rig_holds(c, peer, base, 4096, NULL, 0x42));
	CHECK(c, c->b->vmm->decommit(0, base, 2 * g) < 0);
	CHECK(c, c->b->vmm->decommit(0, base + 4 * g, g) < 0);
	CHECK(c, !c->b->vmm->decommit(0, base + g, 2 * g));
	CHECK(c, c->b->vmm->decommit(0, base + g, 2 * g) < 0);
	CHECK(c, !c->b->vmm->commit(0, base + g, g, peers, 1));
	CHECK(c, rig_holds(c, r, base + g, 4096, NULL, 0));
	CHECK(c, rig_holds(c, r, base, 4096, NULL, 0x42));
	CHECK(c, !c->b->vmm->decommit(0, base, g) && !c->b->vmm->decommit(0, base + g, g));
	return CONFORM_PASS;
}

static int case_vmm(struct conform *c)
{
	const size_t align = (size_t)8 << 20;
	char reason[DEVICE_REASON];
	struct rig r, peer;
	size_t g = 0;
	void *base;
	int rc, other = c->n - 1;

	if (!c->b->vmm)
		return conform_skip(c, "no such group");
	rc = c->b->vmm->granularity(0, &g);
	if (rc == SPMT_ERR_UNSUPPORTED)
		return conform_skip(c, status_sentence());
	CHECK(c, !rc && g >= 4096 && is_power_of_two(g));
	if (c->b->peer_check(other, 0, reason))
		other = 0;
	if (rig_open(c, 0, &r) || rig_open(c, other, &peer))
		return CONFORM_FAIL;
	CHECK(c, !c->b->peer_enable(other, 0));
	CHECK(c, !c->b->vmm->reserve(8 * align, align, &base) && (uintptr_t)base % align == 0);
	if (vmm_use(c, &r, &peer, base, g))
		return CONFORM_FAIL;
	CHECK(c, !c->b->vmm->unreserve(base, 8 * align));
	return rig_close(c, &r) || rig_close(c, &peer) ? CONFORM_FAIL : CONFORM_PASS;
}

const struct conform_case conform_memory[] = {
	{ "alloc", case_alloc },
	{ "alloc_refused", case_alloc_refused },
	{ "host_alloc", case_host_alloc },
	{ "copy_places", case_copy_places },
	{ "copy_overlap", case_copy_overlap },
	{ "peers", case_peers },
	{ "vmm", case_vmm },
	{ NULL, NULL },
};
