/* SPDX-License-Identifier: MIT */
/*
 * Links without ranks: n devices of a backend, a buffer and a stream on each, and a link from every device to every other,
 * with the store mover below a threshold and sdma above. What the tests of movers share.
 */
#ifndef TESTS_DEVICE_LINKS_H
#define TESTS_DEVICE_LINKS_H

#include "transports/transport.h"

#define LINKS_THRESHOLD 1024

struct links {
	const struct backend *backend;
	int n, opened;
	size_t size;
	char **mem; /* [device], zeroed */
	device_stream *streams;
	struct link *links;	    /* [from * n + to] */
	_Atomic int64_t timeout_ms; /* 10 s at first */
	uint32_t stop;
};

/* 0, or the first failure with its sentence; links_close() takes what was opened in both cases. */
int links_open(struct links *l, const struct backend *backend, int n, size_t size);
/* Closes the movers first. */
void links_close(struct links *l);
struct link *links_at(struct links *l, int from, int to);
/* A link's movers. */
static inline struct mover *links_store(struct link *link)
{
	return &link->movers[0];
}
static inline struct mover *links_sdma(struct link *link)
{
	return &link->movers[1];
}
/* Moves, with the place as an address. */
static inline int links_put(struct mover *m, void *remote, const void *local, size_t n,
	enum move_mode mode, device_stream stream)
{
	return m->ops->put(m, link_offset(m->link, (uintptr_t)remote), local, n, mode, stream);
}
static inline int links_get(struct mover *m, void *local, const void *remote, size_t n,
	enum move_mode mode, device_stream stream)
{
	return m->ops->get(m, local, link_offset(m->link, (uintptr_t)remote), n, mode, stream);
}
/* With the link's deadline. */
static inline int links_quiet(struct mover *m)
{
	struct move_wait wait = link_wait_of(m->link);

	return m->ops->quiet(m, &wait);
}
static inline int links_fence(struct mover *m)
{
	struct move_wait wait = link_wait_of(m->link);

	return m->ops->fence(m, &wait);
}

/* backend_host without host access: the device has to move every byte, as on a GPU. */
struct backend links_deaf(void);

/* Entries in /proc/self/<what>: "task", "fd". */
int links_count(const char *what);
/* Waits up to 5 s for no more than `most`: an ended thread leaves /proc a moment later. */
int links_count_down(const char *what, int most);

#endif
