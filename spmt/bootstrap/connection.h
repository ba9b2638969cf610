/* SPDX-License-Identifier: MIT */
/* One connection: frames out, queued while the peer does not take them, frames in, descriptors with
   them, and the peer's life. Never blocks. Used under the bootstrap's lock. */
#ifndef SPMT_BOOTSTRAP_CONN_H
#define SPMT_BOOTSTRAP_CONN_H

#include <poll.h>

#include "wire.h"

#define CONN_FDS 4 /* descriptors that may be ahead of their frames */

struct packet;

struct conn {
	int fd;	      /* -1: closed */
	int pidfd;    /* readable when the peer's process has ended; -1: not known */
	bool remote;  /* TCP: no descriptors */
	bool ended;   /* nothing more will come */
	bool refused; /* .. as nobody listens there, or the node cannot be reached */
	bool deaf;    /* nothing more is taken */
	bool later;   /* the kernel had no room for descriptors in flight: try again soon */
	bool no_fd;   /* a descriptor was lost because this process has too many */
	int unheard;  /* pings since something has come */
	int error;    /* negative: out of memory or descriptors; the connection is of no more use */
	unsigned char *in;
	size_t at, used, room;
	int fds[CONN_FDS], nfds;
	struct packet *first, *last;
	int slot, pid_slot; /* in the poll set, -1: not in it */
	int64_t looked;	    /* when conn_look() last did */
	int64_t silent;	    /* ns without an answer that is due .. */
	int64_t lost;	    /* .. of which so many end it */
};

void conn_open(struct conn *conn, int fd, int pidfd, bool remote);
/* Fine on a closed or zeroed one whose fd is -1. */
void conn_close(struct conn *conn);

/* Queues a frame and sends what it can. fd is borrowed, -1: none. Failures are kept in `error`. */
void conn_send(struct conn *conn, enum wire_type type, const void *fixed, const void *tail,
	size_t tail_size, int fd);
void conn_flush(struct conn *conn);

/* Asks the other node's kernel for an acknowledgement, unless one is due anyway, or the process there has read none for long. */
void conn_ping(struct conn *conn);
#define PING_NS 200000000ll /* between two, and between two looks */
/* Ends a connection to a node whose kernel has answered nothing for so long: 10 s, or SPMT_SOCKET_LOST_MS once it is watched. The caller
   sees to it that it is handled as one that the other side has ended. */
void conn_look(struct conn *conn, int64_t now);
void conn_watch(struct conn *conn);

/* Reads once. False: nothing more now. */
bool conn_receive(struct conn *conn, const struct wire_rules *rules);
/* 1: the next frame, *fd the caller's (-1: none), tail valid until the next call on conn; 0: none;
   -EPROTO; -EMFILE. */
int conn_next(
	struct conn *conn, const struct wire_rules *rules, struct wire_message *message, int *fd);

/* Adds conn to a poll set of n entries of at most `most`. */
size_t conn_poll(struct conn *conn, struct pollfd *set, size_t n, size_t most);
/* What poll said: something can be read, or the peer's process has ended. */
bool conn_readable(const struct conn *conn, const struct pollfd *set);
bool conn_orphaned(const struct conn *conn, const struct pollfd *set);

#endif
