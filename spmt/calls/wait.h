/* SPDX-License-Identifier: MIT */
/* Waiting for words in a rank's memory. */
#ifndef SPMT_WAIT_H
#define SPMT_WAIT_H

#include "include/spmt.h"
#include "include/spmt_device.h"
#include "spmt/comm/waits.h"

/*
 *	struct spmtd_pause p = { 0 };
 *	while (!(done = look()) && !(rc = wait_pause(comm, &p, &wait)))
 *		;
 *	wait_end(comm, &p);
 * Pauses spin, then yield, then sleep as the world's policy says. SPMT_ERR_TIMEOUT without a
 * sentence; the world's code with. wait: for what; since is p's to say.
 */
int wait_pause(spmt_comm *comm, struct spmtd_pause *p, const struct wait_for *wait);
void wait_end(spmt_comm *comm, struct spmtd_pause *p);

extern const struct spmtd_host wait_callbacks;

#endif
