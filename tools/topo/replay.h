/* SPDX-License-Identifier: MIT */
/* The routes that ranks would get on a recorded machine, by the same selection that init uses. */
#ifndef SPMT_REPLAY_H
#define SPMT_REPLAY_H

#include "topo.h"
#include "transports/route.h"

/* What `from` and `to` would say of themselves and the driver of the pair. Wishes and threshold
   are the recording's: none. */
void replay_pair(const struct topo *topo, int from, int to, struct rank_info *me,
	struct rank_info *peer, struct pair_facts *facts);

/* Heads the lines of route_format. */
#define ROUTE_HEAD "# from to map movers threshold reason"

/*
 * One line of a route matrix: from rank `from` to ranks first..last, which share a route. Without a
 * newline; returns what snprintf would. "-" stands for no mover and for a threshold that decides
 * nothing.
 */
int route_format(int from, int first, int last, const struct route *route, char *line, size_t size);

struct replay_wish {
	const char *maps, *moves; /* as SPMT_MAPS, SPMT_MOVES; NULL: no wish */
	int first, last;	  /* rows of the matrix */
};
/* Gives the matrix to line(ctx, text), the head first, peers in a row with the same route on one
   line. -EINVAL: no such rank. */
int replay_routes(const struct topo *topo, const struct replay_wish *wish,
	void (*line)(void *ctx, const char *text), void *ctx);

#endif
