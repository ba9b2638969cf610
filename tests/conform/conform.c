/* SPDX-License-Identifier: MIT */
#include "conform.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/status.h"

const struct conform_case *conform_case(size_t i)
{
	const struct conform_case *files[] = { conform_life, conform_memory, conform_streams,
		conform_share };
	size_t f;

	for (f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
		const struct conform_case *c;

		for (c = files[f]; c->name; c++) {
			if (!i--)
				return c;
		}
	}
	return NULL;
}

static bool holes(const void *group, size_t size)
{
	const char *at = group;
	size_t i;

	for (i = 0; i < size; i += sizeof(void *)) {
		void *member;

		memcpy(&member, at + i, sizeof(member));
		if (!member)
			return true;
	}
	return false;
}

const char *conform_table(const struct backend *b)
{
	if (!b->name || !*b->name)
		return "no name";
	if (!b->store_threshold)
		return "no store threshold";
	if (holes(&b->load, offsetof(struct backend, vmm) - offsetof(struct backend, load)))
		return "a required op is NULL";
	if (b->vmm && holes(b->vmm, sizeof(*b->vmm)))
		return "vmm has a NULL member";
	if (b->ipc && holes(b->ipc, sizeof(*b->ipc)))
		return "ipc has a NULL member";
	if (b->words && holes(b->words, sizeof(*b->words)))
		return "words has a NULL member";
	return NULL;
}

int conform_fail(struct conform *c, const char *file, int line, const char *what)
{
	snprintf(c->why, sizeof(c->why), "%s:%d: %s (last sentence: %s)", file, line, what,
		status_sentence());
	return CONFORM_FAIL;
}

int conform_skip(struct conform *c, const char *why)
{
	snprintf(c->why, sizeof(c->why), "%s", why);
	return CONFORM_SKIP;
}

int rig_open(struct conform *c, int dev, struct rig *r)
{
	void *host;

	memset(r, 0, sizeof(*r));
	r->dev = dev;
	CHECK(c, !c->b->open(dev));
	CHECK(c, !c->b->stream_create(dev, &r->s));
	CHECK(c, !c->b->host_alloc(dev, RIG_HOST, &host, &r->host_device));
	r->host = host;
	return CONFORM_PASS;
}

int rig_close(struct conform *c, struct rig *r)
{
	CHECK(c, !c->b->stream_sync(r->dev, r->s, 5000000000, NULL));
	CHECK(c, !c->b->host_free(r->dev, r->host));
	CHECK(c, !c->b->stream_destroy(r->dev, r->s));
	c->b->close(r->dev);
	return CONFORM_PASS;
}

bool rig_holds(
	struct conform *c, struct rig *r, const void *ptr, size_t n, const void *want, int byte)
{
	size_t i;

	memset(r->host, ~byte, n);
	if (c->b->copy(r->dev, r->host, ptr, n, r->s) ||
		c->b->stream_sync(r->dev, r->s, 20000000000, NULL))
		return false;
	if (want)
		return !memcmp(r->host, want, n);
	for (i = 0; i < n; i++) {
		if (r->host[i] != (unsigned char)byte)
			return false;
	}
	return true;
}

void conform_noise(void *buf, size_t n, unsigned seed)
{
	unsigned char *at = buf;
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
	size_t i;

	for (i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		at[i] = (unsigned char)x;
	}
}

void conform_nap(long us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&ts, NULL);
}
