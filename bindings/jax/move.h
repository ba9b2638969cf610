/* SPDX-License-Identifier: MIT */
#ifndef SPMT_XLA_MOVE_H
#define SPMT_XLA_MOVE_H

#include <stdbool.h>

#include "bindings/jax/room.h"

/* Whether move_here() does it: small copies, and what the library has no call for. */
bool move_is_here(const struct room *room);
/* Before any move: what results hold where nothing comes. */
void move_prepare(const struct room *room);
/* Moves the data of all ranks, or sets room->code and why. */
void move_here(struct room *room);

#endif
