/* SPDX-License-Identifier: MIT */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "env.h"
#include "process.h"

static const char *const level_names[] = { "none", "error", "warn", "info", "debug", "check",
	"warn" };

/* Only once the environment has been read: reading it may itself fail, and a failure is logged. */
static bool wanted(enum log_level level)
{
	const struct env *env = env_loaded();

	if (env && level == LOG_CHECK)
		return env->check == ENV_CHECK_ON || env->log >= LOG_WARN;
	if (env && level == LOG_SLIP)
		return env->log >= LOG_WARN || !env_said_log();
	return env && level != LOG_NONE && (int)level <= env->log;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char line[640];
	int saved_errno = errno;
	size_t used;
	va_list args;

	if (!wanted(level))
		return;
	snprintf(line, sizeof(line), "spmt: %s: ", level_names[level]);
	used = strlen(line);
	va_start(args, fmt);
	vsnprintf(line + used, sizeof(line) - used - 1, fmt, args);
	va_end(args);
	used = strlen(line);
	line[used++] = '\n';
	/* If stderr takes no text, there is nowhere to report that. */
	(void)process_write(STDERR_FILENO, line, used);
	errno = saved_errno;
}
