/* SPDX-License-Identifier: MIT */
/* The hub: the process that the others connect to. It records which ranks have come, informs
   everybody, and declares the world complete or broken. Its own process is a client of it like
   any other, over a pair of sockets. Used under the bootstrap's lock, by the service thread alone
   once that runs. */
#ifndef SPMT_BOOTSTRAP_HUB_H
#define SPMT_BOOTSTRAP_HUB_H

#include <poll.h>

#include "bootstrap.h"
#include "search.h"

#define HUB_STRANGERS 64	     /* most connections that have not proved anything yet */
#define HUB_PATIENCE_NS 2000000000ll /* how long one may take to */
#define HUB_SELF 0u		     /* the member that is the hub's own process */

struct client;
struct hub;
struct member;

/* Takes over the meeting's listeners and `self`, its end of the pair, also on failure. */
int hub_open(
	const struct bootstrap_config *config, struct meeting *meeting, int self, struct hub **out);
/* As hub_open, of a complete world whose hub has died: its processes, of which c is one's, return. */
int hub_follow(const struct bootstrap_config *config, struct meeting *meeting, int self,
	const struct client *c, struct hub **out);
/* Ranks are missing. */
bool hub_gathers(const struct hub *hub);
/* Adds what is to be polled; *until: earliest time at which there is something to do anyway. */
size_t hub_poll(struct hub *hub, struct pollfd *set, size_t n, size_t most, int64_t *until);
/* A process may wait to connect for which there was no descriptor. */
bool hub_cramped(const struct hub *hub);
/* Entries that hub_poll would like to have. */
size_t hub_wants(const struct hub *hub);
/* Handles what poll has found. */
void hub_serve(struct hub *hub, const struct pollfd *set);
/* Breaks the world for its members, unless it is broken. from: who has said so and knows already; NULL: this process, which cannot
   go on. */
void hub_break(struct hub *hub, const struct cause *cause, const struct member *from);
/* Says goodbye, waits briefly for it to be taken, and closes everything. NULL is fine. */
void hub_close(struct hub *hub);

#endif
