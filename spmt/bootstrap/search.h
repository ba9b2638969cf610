/* SPDX-License-Identifier: MIT */
/*
 * Finding out who is the hub.
 *
 * On a node it listens at one of a row of names that only those who have the secret can tell. A name can be seen once it is in
 * use; so another user may take it as soon as it is given up, and a forked child keeps it as long as it lives. Names that another
 * user holds, or at which nobody answers, are passed over: the hub is at the first where one of ours listens.
 *
 * The addresses say which node leads: one that has them all, or one that made the uid and still has some. For any other, having some says
 * nothing: nodes share addresses, those of bridges for containers.
 *
 * Two that look at the same time may see different names free, so there may be two hubs for a moment. A hub at a higher number checks
 * those below as long as the world gathers, and gives way: the lowest stays.
 */
#ifndef SPMT_BOOTSTRAP_SEARCH_H
#define SPMT_BOOTSTRAP_SEARCH_H

#include "uid.h"

enum meeting_kind {
	MEETING_AGAIN,	/* nobody listens yet, or any more: try again soon */
	MEETING_HUB,	/* fd listens; those of tcp too, -1: none */
	MEETING_CLIENT, /* fd is connected, or about to be */
	MEETING_AWAY	/* the hub is on another node: to be called (spmt/address/dial.h) */
};

struct meeting {
	enum meeting_kind kind;
	int fd, tcp[PLACE_ADDRESSES];
	bool remote;		/* CLIENT: over TCP */
	unsigned number;	/* of the name on this node */
	struct uid_place place; /* HUB, AWAY: the uid's addresses that are this node's */
};
#define MEETING_NONE ((struct meeting){ .kind = MEETING_AGAIN, .fd = -1, .tcp = { -1, -1, -1 } })
/* Of who is connected. */
struct meeting meeting_at(int fd, unsigned number, bool remote);

struct search {
	const struct uid *uid;
	bool only_tcp; /* as a process of another node */
	int rank; /* one that this process brings, -1: none; the hub knows it by the connection alone */
	unsigned attempts; /* looks in vain; for the caller to count */
	struct {
		unsigned number;
		int process;
	} shunned[4];
	unsigned shuns;	  /* so far */
	int64_t stranger; /* a user who held a name at the last look, -1: none did */
};

void search_begin(struct search *search, const struct uid *uid, bool only_tcp, int rank);
/* What fd is connected to, under this number, is none of ours: passed over while the same process has the name. */
void search_shun(struct search *search, unsigned number, int fd);

/* One look. Failure: there is no point in another. */
int search_look(struct search *search, struct meeting *meeting);
/* The same below a number, for who leads there: CLIENT, or AGAIN if there is no hub. */
int search_below(struct search *search, unsigned number, struct meeting *meeting);
/* Releases what a meeting holds; it is MEETING_NONE afterwards. */
void meeting_close(struct meeting *meeting);

/* The rank that the process at the other end brings, -1: it has not said so by its socket's name. */
int search_rank(int fd, const struct uid *uid, int nranks);

#endif
