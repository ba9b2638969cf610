/* SPDX-License-Identifier: MIT */
#include "busy.h"

#include <string.h>

#include "kernels/fills.h"

enum { AT_BLOCKS = 8, WORDS = AT_BLOCKS + BUSY_BLOCKS_MOST };

int busy_open(struct busy *b, struct rank *r)
{
	void *p, *q;

	*b = (struct busy){ .r = r };
	REQUIRE_EQ(r->b->stream_create(r->dev, &b->stream), 0);
	REQUIRE_EQ(r->b->stream_create(r->dev, &b->stop), 0);
	REQUIRE_EQ(r->b->host_alloc(r->dev, 8 * (size_t)WORDS, &p, &q), 0);
	b->words = p;
	b->words_dev = q;
	return rank_alloc(r, 256, &b->end);
}

void busy_close(struct busy *b)
{
	b->r->b->host_free(b->r->dev, b->words);
	rank_free(b->r, b->end);
	b->r->b->stream_destroy(b->r->dev, b->stream);
	b->r->b->stream_destroy(b->r->dev, b->stop);
}

int busy_clear(struct busy *b)
{
	memset(b->words, 0, 8 * (size_t)WORDS);
	return rank_fill(b->r, b->end, 0, 8);
}

int busy_begin(struct busy *b, unsigned blocks)
{
	struct fills_args a = { .run = addr(b->words_dev + AT_BLOCKS), .end = addr(b->end) };

	REQUIRE(blocks <= BUSY_BLOCKS_MOST);
	if (gpu_host())
		REQUIRE_OK(spmt_host_launch(b->r->comm, b->stream, test_fills.host, &a, sizeof(a)));
	else
		REQUIRE_EQ(driver_launch(b->r->dev, &test_fills, blocks, BUSY_THREADS, &a,
				   sizeof(a), b->stream),
			0);
	return 0;
}

unsigned busy_seen(const struct busy *b)
{
	unsigned n = 0;

	for (size_t i = AT_BLOCKS; i < WORDS; i++)
		n += (unsigned)__atomic_load_n(&b->words[i], __ATOMIC_ACQUIRE);
	return n;
}

int busy_end(struct busy *b)
{
	*b->words = 1;
	REQUIRE_EQ(b->r->b->copy(b->r->dev, b->end, b->words, 8, b->stop), 0);
	REQUIRE_EQ(b->r->b->stream_sync(b->r->dev, b->stream, 50000000000, NULL), 0);
	return 0;
}
