/* SPDX-License-Identifier: MIT */
/*
 * Log lines on stderr, only on request: SPMT_LOG=error|warn|info|debug (default: none).
 * SPMT_CHECK=1 requests what SPMT_CHECK finds (LOG_CHECK) as well, and an SPMT_ variable that nobody reads requests a
 * line about it (LOG_SLIP): it may be SPMT_LOG, misspelled. One write(2) a line, prefix
 * "spmt: ", so that lines of threads do not mix. Never allocates, never fails, keeps errno.
 */
#ifndef SPMT_LOG_H
#define SPMT_LOG_H

#include "base.h"

enum log_level { LOG_NONE, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_CHECK, LOG_SLIP };

void log_line(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#endif
