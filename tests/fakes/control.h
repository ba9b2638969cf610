/* SPDX-License-Identifier: MIT */
/* What tests ask of a stand-in: reached with dlsym on the library that they have made the
   backend load. */
#ifndef SPMT_TESTS_CONTROL_H
#define SPMT_TESTS_CONTROL_H

#include <stdbool.h>

struct fake_counts {
	int blocks, reservations, physicals, streams, events, modules, contexts;
};
void fake_live(struct fake_counts *out);
/* The nth call from now of this name gives `result`; -1: every call; 0 disarms. */
void fake_fail(const char *name, int nth, int result);
/* How often a call of this name was made since fake_fail named it. */
int fake_calls(void);
/* How often calls of this name were made since the library was loaded; NULL: of all names. */
int fake_made(const char *name);
/* What StreamIsCapturing says of the calling process's streams. */
void fake_set_capturing(bool capturing);
bool fake_capturing(void);
/* The hip one: calls for ranges that two threads made at once. From the first on they all fail. */
int fake_overlaps(void);

#endif
