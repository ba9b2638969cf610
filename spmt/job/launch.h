/* SPDX-License-Identifier: MIT */
/* Where a rank's uid comes from when its attributes have none, and what follows for its rank and device:
   the rules under "Uids" in spmt.h. */
#ifndef SPMT_LAUNCH_H
#define SPMT_LAUNCH_H

#include "spmt/bootstrap/uid.h"

/* This process among those of its job. processes 0: nobody started a job. */
struct job_info {
	int process, processes;
	int local; /* processes of this node before this one */
};

/* Copies what this library knows of the user's struct. `what` and `name` begin the sentence. On
   failure *attr is written where given->size is one that ever was. */
int attr_take(
	const char *what, const char *name, const struct spmt_attr *given, struct spmt_attr *attr);

/* The uid for attr, of the user, of a bootstrap or launcher, or a new one. Waits for other processes until
   attr's deadline. */
int launch_uid(const struct spmt_attr *attr, struct uid *uid, struct job_info *launch);

/* Whether a launcher or SPMT_UID names a job for ranks without a uid, or the environment has a mistake, which launch_uid then
   tells. */
bool launch_in_job(void);

/* Fills in rank and nranks that are left to the job, and checks the others. */
int launch_ranks(const struct job_info *launch, struct spmt_attr *attr);

/* The device for attr.device -1 on a process that sees `count`; may be beyond them. */
int launch_device(const struct job_info *launch, int rank, int nranks, int count);

#endif
