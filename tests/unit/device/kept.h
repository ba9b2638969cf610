/* SPDX-License-Identifier: MIT */
/* What a vendor's backend keeps: contexts, modules and memory; and that its frees wait for nobody. */
#ifndef TESTS_KEPT_H
#define TESTS_KEPT_H

#include "standin.h"

/* Of `devices` once opened nothing is there but what is kept for each, and `blocks` of the pool. */
bool standin_only_kept(const struct standin *s, int devices, int blocks);

void kept_frees_do_not_wait(const struct backend *b);
/* alloc: the call that makes device memory. */
void kept_is_given_back(const struct backend *b, const struct standin *s, const char *alloc);
/* alloc: the same for symmetric memory. */
void kept_retires(const struct backend *b, const struct standin *s, const char *alloc);
/* create: the call that makes memory for ranges. */
void kept_yields_to_ranges(const struct backend *b, const struct standin *s, const char *create);
void ranges_pass_over_strangers(const struct backend *b);
/* use: what an application may do with a device that it has reset. */
void kept_survives_resets(const struct backend *b, const struct standin *s, void (*reset)(int dev),
	void (*use)(int dev));

#endif
