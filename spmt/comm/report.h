/* SPDX-License-Identifier: MIT */
/* What SPMT_LOG says of worlds, a line each. */
#ifndef SPMT_REPORT_H
#define SPMT_REPORT_H

#include "include/spmt.h"

struct cause;
struct world;

/* info: what the world is, by the first rank of each process, when it stands; begin: of its init. */
void report_world(const spmt_comm *comm, int64_t begin);
/* error: what broke a world first; called in each process where it breaks, whoever broke it.
   rank: the one that found out, -1: not known here. */
void report_broken(const struct world *world, int rank, const struct cause *cause);
/* The same of a part of a world. */
void report_part_broken(const spmt_comm *comm, const struct cause *cause);

#endif
