/* SPDX-License-Identifier: MIT */
/* Descriptors of the rendezvous: who is at the other end, and memory to share. Nothing is in the file
   system, nothing blocks, every descriptor is close-on-exec. */
#ifndef SPMT_ADDRESS_SOCKET_H
#define SPMT_ADDRESS_SOCKET_H

#include <sys/types.h>

#include "place.h"

/* A socket of the family, or a negative code. */
int socket_make(int family);
/* Makes a TCP connection send without delay, and ask for an answer now and then. */
void socket_settle(int fd);
/* Data that gets no answer, or finds no room there, is resent after at most `ms` (1000 at least), where the kernel can be told. */
void socket_hurry(int fd, int ms);
/* Whether the kernel at the other end of a TCP connection, which answers for a stopped process as well, has yet to answer; *ns: how long ago
   it last did, to within a tick of this one's clock. */
bool socket_owes(int fd, int64_t *ns);
/* A connection of a listener: its descriptor, -EAGAIN: none is waiting, -EMFILE: no descriptors are
   left, -EACCES: a process of another user, sent away. No sentence. */
int socket_accept(int listener, bool remote);
/* Whether the process at the other end is of this user. */
bool socket_is_own(int fd, uid_t *user);
/* Whether that process is known to have ended: a forked child may hold its listening socket. */
bool socket_is_orphan(int fd);
/* The number of the process at the other end, 0: not known. */
int socket_process(int fd);
/* The address of the other end of a TCP connection, or of this one. Family 0: it is not connected. */
void socket_address(int fd, bool here, struct place_address *address);
bool socket_is_connected(int fd);
/* The two ends of a connection within the process. */
int socket_pair(int fds[2]);
/* A descriptor that is readable once the process at the other end has ended; -ESRCH: it has; -1: none to be
   had, or it is this process. */
int socket_pidfd(int fd);

/* Zeroed memory to share, a memfd that cannot change its size under those who have mapped it. */
int memory_make(size_t size, int *out);
/* Maps memory that another process made this way; -EPROTO: it is something else, or has another
   size. */
int memory_map(int fd, size_t size, void **out);

#endif
