/* SPDX-License-Identifier: MIT */
#include "device_links.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static int open_device(struct links *l, int dev)
{
	const struct backend *b = l->backend;
	void *mem;
	int rc = b->open(dev);

	if (rc)
		return rc;
	l->opened++;
	rc = b->alloc(dev, l->size, DEVICE_MEMORY_SYMMETRIC, &mem);
	if (rc)
		return rc;
	l->mem[dev] = mem;
	return b->stream_create(dev, &l->streams[dev]);
}

static int open_link(struct links *l, int from, int to)
{
	struct link *link = links_at(l, from, to);
	struct rank_info peer = { .rank = to, .device = to, .settled = to };

	peer.heap_base = (uint64_t)(uintptr_t)l->mem[to];
	peer.heap_size = l->size / 2;
	peer.own_base = peer.heap_base + l->size / 2;
	peer.own_size = l->size / 2;
	link->backend = l->backend;
	link->dev = link->rank = from;
	link->peer_dev = link->pe = to;
	link->stream = l->streams[from];
	link->timeout_ms = &l->timeout_ms;
	link->stop = &l->stop;
	link->movers[0] = (struct mover){ .ops = &mover_store, .link = link };
	link->movers[1] = (struct mover){ .ops = &mover_sdma, .link = link };
	link->nmovers = 2;
	link->threshold = LINKS_THRESHOLD;
	link->map = from == to ? &map_self : &map_p2p;
	link->route.map = from == to ? MAP_SELF : MAP_P2P;
	link->route.movers[0] = MOVER_STORE;
	link->route.movers[1] = MOVER_SDMA;
	link->route.nmovers = 2;
	link->route.threshold = LINKS_THRESHOLD;
	snprintf(link->route.reason, sizeof(link->route.reason), "a test wants it");
	return link->map->attach(link, l->backend, from, &peer);
}

int links_open(struct links *l, const struct backend *backend, int n, size_t size)
{
	size_t count = (size_t)n;
	int rc;

	memset(l, 0, sizeof(*l));
	l->backend = backend;
	l->n = n;
	l->size = size;
	l->timeout_ms = 10000;
	l->mem = calloc(count, sizeof(*l->mem));
	l->streams = calloc(count, sizeof(*l->streams));
	l->links = calloc(count * count, sizeof(*l->links));
	rc = l->mem && l->streams && l->links ? backend->load() : -1;
	for (int dev = 0; !rc && dev < n; dev++)
		rc = open_device(l, dev);
	for (int i = 0; !rc && i < n * n; i++)
		rc = open_link(l, i / n, i % n);
	return rc;
}

static void close_link(struct links *l, struct link *link)
{
	if (!link->map)
		return;
	for (int i = 0; i < link->nmovers; i++)
		link->movers[i].ops->close(&link->movers[i]);
	link->map->detach(link, l->backend, link->dev);
}

void links_close(struct links *l)
{
	for (int i = 0; l->links && i < l->n * l->n; i++)
		close_link(l, &l->links[i]);
	for (int dev = 0; dev < l->opened; dev++) {
		if (l->streams[dev])
			l->backend->stream_destroy(dev, l->streams[dev]);
		if (l->mem[dev])
			l->backend->free(dev, l->mem[dev]);
		l->backend->close(dev);
	}
	free(l->links);
	free(l->streams);
	free(l->mem);
	memset(l, 0, sizeof(*l));
}

struct link *links_at(struct links *l, int from, int to)
{
	return &l->links[from * l->n + to];
}

struct backend links_deaf(void)
{
	struct backend b = backend_host;

	b.traits &= ~DEVICE_HOST_ACCESS;
	return b;
}

int links_count(const char *what)
{
	char path[64];
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/self/%s", what);
	dir = opendir(path);
	if (!dir)
		return -1;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

int links_count_down(const char *what, int most)
{
	for (int i = 0; i < 5000 && links_count(what) > most; i++)
		nap();
	return links_count(what);
}
