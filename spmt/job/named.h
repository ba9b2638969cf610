/* SPDX-License-Identifier: MIT */
/* A job without a launcher: SPMT_UID is the uid that its processes share, or the file that holds it; SPMT_PROCESS which of them this is. */
#ifndef SPMT_JOB_NAMED_H
#define SPMT_JOB_NAMED_H

#include "launch.h"

#define NAMED_DIGITS (2 * sizeof(spmt_uid)) /* of a uid as text, hexadecimal */

/* A uid as text of n characters, white space behind it; -EINVAL: it is none, with a sentence that begins with `from`, what it came
   from. Pure. */
int named_uid(const char *from, const char *text, size_t n, struct uid *uid);

/* "9/16", or "9/16/1": process 9 of 16, one of which is before it on its node; where that is not said, all before it are. Pure. */
int named_process(const char *text, struct job_info *launch);

/* The uid in a file. -EAGAIN, without a sentence: it is not all there yet. */
int named_file(const char *path, struct uid *uid);

#endif
