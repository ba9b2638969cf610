/* SPDX-License-Identifier: MIT */
/*
 * Words on stderr, only when asked: SPMT_LOG=error|warn|info|debug (default: none). What SPMT_CHECK finds (LOG_CHECK) is asked
 * for by SPMT_CHECK=1 as well. One write(2) a line, prefix "spmt: ", so that lines of threads do not mix. Never allocates, never fails, keeps errno.
 */
#ifndef SPMT_LOG_H
#define SPMT_LOG_H

#include "base.h"

enum log_level { LOG_NONE, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_CHECK };

void log_line(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#endif
