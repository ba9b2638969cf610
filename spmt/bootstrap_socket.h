/* SPDX-License-Identifier: MIT */
/* Descriptors of the rendezvous: finding out who is the hub, who is at the other end, and memory to
   share. Nothing is in the file system, nothing blocks, every descriptor is close-on-exec. */
#ifndef SPMT_BOOTSTRAP_SOCKET_H
#define SPMT_BOOTSTRAP_SOCKET_H

#include "uid.h"

enum meeting_kind {
	MEETING_AGAIN,	/* nobody listens yet, or any more: try again soon */
	MEETING_HUB,	/* fd listens; tcp too, -1: no TCP */
	MEETING_CLIENT, /* fd is connected, or about to be */
};

struct meeting {
	enum meeting_kind kind;
	int fd, tcp;
	bool remote; /* CLIENT: over TCP */
};

/* One attempt. `attempt` counts them, and so the ports tried; only_tcp: as a process of another node.
   rank: one that this process brings, -1: none; on this node the hub knows it by the connection
   alone. Failure: there is no point in trying again. */
int socket_meet(
	const struct uid *uid, bool only_tcp, unsigned attempt, int rank, struct meeting *meeting);
/* Gives up what a meeting holds; AGAIN from then on. */
void meeting_close(struct meeting *meeting);

/* A connection of a listener: its descriptor, -EAGAIN: none is waiting, -EMFILE: no descriptors are
   left, -EACCES: a process of another user, sent away. No sentence. */
int socket_accept(int listener, bool remote);
/* The rank that the process at the other end brings, -1: it has not said so by its socket's name. */
int socket_rank(int fd, const struct uid *uid, int nranks);
/* The number of the process at the other end, 0: not known. */
int socket_process(int fd);
/* The two ends of a connection within the process. */
int socket_pair(int fds[2]);
/* A descriptor that is readable once the process at the other end has ended; -1: none to be had, or
   it is this process. */
int socket_pidfd(int fd);

/* Zeroed memory to share, a memfd that cannot change its size under those who have mapped it. */
int memory_make(size_t size, int *out);
/* Maps what another process has made so; -EPROTO: it is not that, or not of that size. */
int memory_map(int fd, size_t size, void **out);

#endif
