/* SPDX-License-Identifier: MIT */
/* A thread that calls users' functions, one after the other: no lock of the library is held meanwhile, so that they may call it. */
#ifndef SPMT_CALLER_H
#define SPMT_CALLER_H

#include <stdbool.h>

struct caller;

/* `run` may free the errand. */
struct errand {
	struct errand *next;
	void (*run)(struct errand *errand);
};

/* Makes the thread, named after a rank. A failure has a sentence that names no call. */
int caller_open(struct caller **out, int rank);
/* Never fails, never blocks. */
void caller_post(struct caller *caller, struct errand *errand);
/* Is this the calling thread? NULL: no. */
bool caller_is_me(const struct caller *caller);
/* What was posted still runs. Takes NULL. Not by the thread itself. */
void caller_close(struct caller *caller);

#endif
