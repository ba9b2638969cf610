/* SPDX-License-Identifier: MIT */
/* Clocks, one of which stands while the machine does. */
#ifndef TESTS_CLOCKS_H
#define TESTS_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

int64_t now_ns(void);
int64_t cpu_ns(void); /* of the process */
void sleep_ms(int ms);

/*
 * For upper limits: a machine that stands still for a second, as shared ones do, must not fail a test that took a millisecond.
 * calm_ns() is now_ns() less what the machine stood still since the first call: a thread naps and counts what it oversleeps, and
 * while it oversleeps this clock stands. It is one clock for a test's process and its children, if called in the test's process
 * before them (processes_run() does). Under sanitizers, which do not survive a fork beside another thread, it is now_ns(): limits
 * are wider there.
 */
int64_t calm_ns(void);
/* begin is of calm_ns(). */
int ms_since(int64_t begin);
/* text holds the head, the seconds or up to four more ("%.1f"), and the tail: "missing after ", 0.1, " s: 3". */
bool calm_says(const char *text, const char *head, double seconds, const char *tail);

#endif
