/* SPDX-License-Identifier: MIT */
/* When the hub has gone, and who follows it: the client's part of that. Used as the client is. */
#ifndef SPMT_BOOTSTRAP_HEIR_H
#define SPMT_BOOTSTRAP_HEIR_H

#include "client.h"

/* A hub has let this process in, while the world gathers: makes ready to follow it. */
void heir_listen(struct client *c);
void heir_close(struct client *c);
/* The world is complete. */
int heirs_make(struct client *c);
/* As search_look, for the next hub; AGAIN in state ALONE: there will be none. */
int heirs_look(struct client *c, struct meeting *meeting);
/* The process that was asked will not be it. */
void heir_pass_over(struct client *c);
/* It has not answered yet. */
void heir_overdue(struct client *c);
/* It has. */
void heir_return(struct client *c);

/* The hub's process has ended without a goodbye; has ended the connection before it let this process in. */
void hub_died(struct client *c);
void hub_silent(struct client *c);
void former_forget(struct client *c);
/* True: it has died. */
bool former_serve(struct client *c, const struct pollfd *set);

#endif
